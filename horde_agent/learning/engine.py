"""What a Horde needs of whatever learns for it: the plain engine (`plain.py`) and the span engine (`span.py`) do it.

An engine answers all demons from one stream of tiles. It knows nothing of policies, sensors or names: the Horde turns
questions into numbers first. Everything that enters or leaves is in the order of the demons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from horde_agent.saving import State
from horde_agent.types import Floats, Integers, Reals, Tiles

if TYPE_CHECKING:
    from horde_agent.kernels.checks import Signals
    from horde_agent.learning.layout import DemonMapping


SMALLEST_SHARED_WORK = 50_000  # weights read at once, below which one thread does it all
# An entry of the trace below this leaves it, beside the 1 with which an active feature enters: 1e-8 is invisible in
# float32 (it is a tenth of its rounding), 1e-16 is float64's own rounding.
DROP_BELOW = {"float32": 1e-8, "float64": 1e-16}
# m is kept over a common scale that decays instead of it; far from overflow, the two are multiplied out.
SMALLEST_SCALE = 1e-12
# A demon is set aside when one step's |delta| max e reaches this. Below it m, over its scale of 1e-12 at least, and the
# product of two such numbers in float64, are numbers still.
LARGEST_STEP = {"float32": 1e25, "float64": 1e140}


def max_finite(dtype: np.dtype[Any]) -> float:
    """Return the largest number that a type can hold."""
    return float(np.finfo(dtype).max)


def check_weights(theta: Reals, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
    """Raise ValueError where weights from elsewhere have another shape, are not finite, or too large for the dtype."""
    if np.shape(theta) != shape:
        raise ValueError(f"theta must be finite, of shape {shape}, (n_demons, n_features), not {np.shape(theta)}")
    wrong = np.argwhere(~(np.abs(theta) <= max_finite(dtype)))  # NaN is not
    if wrong.size:
        demon, feature = wrong[0]
        raise ValueError(
            f"theta must be finite, and at most {max_finite(dtype):.3g}, as much as {dtype} can hold; theta[{demon}, "
            f"{feature}] is {theta[demon, feature]}"
        )


class Patient(NamedTuple):
    """A demon that was flagged: its weights, shape (n_features,), and its numbers.

    Attributes:
        theta, w, m: As of now; m of shape (0,) where it is not kept.
        prediction, estimate, td_error: theta.phi, the scalar MSPBE estimate and delta, the latest.
        bound: |theta| that no answer of it can need.
    """

    theta: Reals
    w: Reals
    m: Reals
    prediction: float
    estimate: float
    td_error: float
    bound: float

    def ailment(self) -> str:
        """Say what is wrong with it."""
        largest = float(np.abs(self.theta).max())
        if self.bound < largest < np.inf:
            return f"its weights reached {largest:.3g}, past their bound of {self.bound:.3g}, which no answer can need"
        weights = (("weights", self.theta), ("secondary weights", self.w), ("vector MSPBE trace", self.m))
        for what, values in (*weights, ("prediction", self.prediction), ("scalar MSPBE estimate", self.estimate)):
            broken = np.ravel(values)[~np.isfinite(np.ravel(values))]
            if broken.size:
                return f"its {what} became {broken[0]}"
        dtype = self.theta.dtype.name
        return (
            f"a step of its weights, |delta| max e, reached {LARGEST_STEP[dtype]:g}, past which {dtype} cannot hold "
            f"its estimates; its TD error was {self.td_error:.3g}"
        )


class Engine(Protocol):
    """What the Horde needs of whatever learns for it. Arrays are in the order of the demons, shape (n_demons,)."""

    latest: Floats
    """Predictions at the latest step that was taken."""
    n_waiting: int
    """Steps that were only noted so far."""

    def begin(self, tiles: Tiles) -> Floats:
        """Start a stream at `tiles` with every trace at zero, and return the predictions there; what is learned stays.

        Args:
            tiles: Active features, all different, int64, shape (n_active,), as many as the first time; the plain engine
                takes the value of every feature too, float, shape (n_features,).

        Raises:
            ValueError: If there are more or fewer tiles than the first time.
        """

    def learn(self, tiles: Tiles, signals: Signals, *, is_last: bool = False) -> Floats:
        """Learn from the transition to `tiles`, or note it where steps are taken in batches.

        To whom something is told that is not finite, or past what the engine's type can hold, the step is a gap: the
        trace is cleared, theta and w stand, the estimates decay as where rho = 0, and the TD error is 0.

        Args:
            tiles: As in `begin`, shape (n_active,).
            signals: What the demons are told.
            is_last: Says that the stream ends here: all continuations are 0.

        Returns:
            Predictions theta_{t+1}.phi_{t+1} at the latest step that was taken.

        Raises:
            ValueError: If the signals do not fit the demons.
        """

    def catch_up(self) -> None:
        """Take the steps that were only noted so far."""

    def predict(self, tiles: Tiles) -> Floats:
        """Return the predictions at `tiles`, (n_active,); nothing changes."""

    def predict_one(self, demon: int, tiles: Tiles) -> float:
        """Return one demon's prediction at `tiles`, (n_active,)."""

    def reset_weights(self, theta: Reals | None = None) -> None:
        """Set theta, (n_demons, n_features), to zero unless given, for measuring how learning recovers; the rest stays.

        Raises:
            ValueError: If `theta` has another shape, or holds what the engine's dtype cannot.

        Source: White, Modayil & Sutton (2012), section 6: theta := 0 after 40,000 steps.
        """

    def set_bounds(self, bound: Floats) -> None:
        """Set the |theta| past which a demon is flagged, shape (n_demons,)."""

    def newly_broken(self) -> dict[int, str]:
        """Return the demons flagged since they were last asked for, and what is wrong with each."""

    def set_aside(self, demon: int) -> None:
        """Freeze one demon's weights at zero for good."""

    def rearrange(self, mapping: DemonMapping) -> None:
        """Go on with other demons; those that stay take along what they have learned, their traces and estimates."""

    def state(self) -> State:
        """Return copies of all that this engine's future depends on, by name; steps that wait go on waiting."""

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, of an engine that was made, and rearranged, in the same way."""

    def weights(self, demons: Integers | None = None) -> tuple[Reals, Reals]:
        """Return copies of theta and w of some demons, by their places, shape (n,), or all: each (n, n_features)."""

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimates m.w; ValueError where m is not kept."""

    def mspbe_trace(self) -> Reals:
        """Return a copy of m, (n_demons, n_features)."""

    @property
    def flags(self) -> int:
        """Not 0 where demons are flagged (SOMEBODY_IS_FLAGGED), or a trace reaches too far (A_TAIL_IS_TOO_LONG)."""

    @property
    def mspbe_scalar(self) -> Floats:
        """Scalar MSPBE estimates."""

    @property
    def td_error(self) -> Floats:
        """TD errors of the last step."""

    @property
    def max_trace(self) -> Floats:
        """Largest |e| of each demon so far."""
