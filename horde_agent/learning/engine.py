"""What a Horde needs of whatever learns for it: the plain engine (`learner.py`) and the span engine (`span.py`) do it.

An engine answers all demons from one stream of tiles. It knows nothing of policies, sensors or names: the Horde turns
questions into numbers first. Everything that enters or leaves is in the order of the demons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from horde_agent.saving import State

if TYPE_CHECKING:
    from horde_agent.kernels.gtd_arrays import Signals
    from horde_agent.learning.roster import Roster
    from horde_agent.learning.telling import Telling

Floats = NDArray[np.float64]
Tiles = NDArray[np.int64]
Reals = NDArray[Any]

SMALLEST_SHARED_WORK = 50_000  # weights read at once, below which one thread does it all
# An entry of the trace below this leaves it, beside the 1 with which an active feature enters: 1e-8 is invisible in
# float32 (it is a tenth of its rounding), 1e-16 is float64's own rounding.
DROP_BELOW = {"float32": 1e-8, "float64": 1e-16}
# m is kept over a common scale that decays instead of it; far from overflow, the two are multiplied out.
SMALLEST_SCALE = 1e-12
# A demon is set aside when one step's |delta| max e reaches this. Below it m, over its scale of 1e-12 at least, and the
# product of two such numbers in float64, are numbers still.
LARGEST_STEP = {"float32": 1e25, "float64": 1e140}


def most(dtype: np.dtype[Any]) -> float:
    """Return the largest number that a type can hold."""
    return float(np.finfo(dtype).max)


def check_weights(theta: Reals, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
    """Raise ValueError where weights from elsewhere have another shape, are not finite, or too large for the dtype."""
    if np.shape(theta) != shape:
        raise ValueError(f"theta must be finite, of shape {shape}, (n_demons, n_features), not {np.shape(theta)}")
    wrong = np.argwhere(~(np.abs(theta) <= most(dtype)))  # NaN is not
    if wrong.size:
        demon, feature = wrong[0]
        raise ValueError(
            f"theta must be finite, and at most {most(dtype):.3g}, as much as {dtype} can hold; theta[{demon}, "
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


class TailBounds(NamedTuple):
    """What dropping the tails of traces may have changed; float rounding comes on top. Each of shape (n_demons,).

    Attributes:
        theta: By the TD errors that it made, and with the full trace, a demon would have written a theta that differs
            in no entry by more than this. A prediction is the sum of n_active entries.
        w: The same of w.
        learned: A demon that dropped nothing, and made its own TD errors ever since, would have a theta at no greater
            Euclidean distance than this; nor would its w be. A prediction differs by at most |phi| times this. It grows
            exponentially with the steps since the first loss, as the worst case does: with large steps it soon says
            nothing, up to infinity, where `theta` still does.

    The derivation is in `kernels/dropped.py`.
    """

    theta: Floats
    w: Floats
    learned: Floats

    @classmethod
    def of(cls, sums: Floats, alpha: Floats, alpha_w: Floats, most: float, norm: float) -> TailBounds:
        """Return the bounds from sum |delta| beta, sum eta and sum kappa, shape (3, n_demons), and from M and N."""
        moved, leaked, growth = sums
        is_beyond = (alpha_w * norm > 2.0) | (growth > 700.0)  # exp(700) is close to overflow
        total = np.sqrt(norm) * np.maximum(alpha, alpha_w) * (moved + leaked)
        learned = total * np.exp(np.where(is_beyond, 0.0, growth))
        learned[is_beyond & (total > 0)] = np.inf
        return cls(alpha * most * (moved + leaked), alpha_w * most * moved, learned)


class Engine(Protocol):
    """What the Horde needs of whatever learns for it. Arrays are in the order of the demons, shape (n_demons,)."""

    latest: Floats
    """Predictions at the latest step that was taken."""
    n_waiting: int
    """Steps that were only noted so far."""

    def begin(self, tiles: Tiles, gamma: Floats, lam: Floats) -> Floats:
        """Start a stream at `tiles` with traces at zero, and return the predictions there.

        Gamma and lambda there would decay the trace of the step before: there is none, and they change nothing.
        """

    def learn(self, tiles: Tiles, signals: Signals) -> Floats:
        """Learn from the transition to `tiles`, and return the latest predictions.

        To whom something is told that is not finite, or past what the engine's type can hold, the step is a gap: the
        trace is cleared, theta and w stand, the estimates decay as where rho = 0, and the TD error is 0.
        """

    def meet(
        self,
        telling: Telling,
        observation: Floats,
        tiles: Tiles,
        action: int,
        probability: float,
        is_inspected: bool,
        is_last: bool,
    ) -> int:
        """Inspect what the demons are told about a transition, and where there is nothing to say, learn from it.

        Args:
            telling: What they are told. Where it was inspected already, it is not again.
            observation: Of the state reached, float64, shape (n_channels,).
            tiles: Of the state reached, int64, shape (n_active,).
            action: The action taken.
            probability: b(action).
            is_inspected: See `telling`.
            is_last: Says that the stream ends here: all continuations are 0.

        Returns:
            The findings of `checks.inspect`; where there are any, nothing was learned.
        """

    def catch_up(self) -> None:
        """Take the steps that were only noted so far."""

    def predict(self, tiles: Tiles) -> Floats:
        """Return the predictions at `tiles`; nothing changes."""

    def predict_one(self, demon: int, tiles: Tiles) -> float:
        """Return one demon's prediction at `tiles`."""

    def reset_weights(self, theta: Reals | None = None) -> None:
        """Set theta, to zero unless given; the rest stays."""

    def set_bounds(self, bound: Floats) -> None:
        """Set the |theta| past which a demon is flagged."""

    def newly_broken(self) -> dict[int, str]:
        """Return the demons flagged since they were last asked for, and what is wrong with each."""

    def set_aside(self, demon: int) -> None:
        """Freeze one demon's weights at zero for good."""

    def dismiss(self) -> None:
        """Ask no policies any more: their ratios are told from now on."""

    def rearrange(self, roster: Roster) -> None:
        """Go on with other demons; those that stay take along what they have learned, their traces and estimates."""

    def state(self) -> State:
        """Return copies of all that this engine's future depends on, by stable names; steps that wait go on waiting."""

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, of an engine that was made, and rearranged, in the same way."""

    def weights(self) -> tuple[Reals, Reals]:
        """Return copies of theta and w, each (n_demons, n_features)."""

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimates."""

    def mspbe_trace(self) -> Reals:
        """Return a copy of m, (n_demons, n_features)."""

    def tail_bounds(self) -> TailBounds:
        """Return what dropping the tails of traces may have changed."""

    @property
    def alarm(self) -> int:
        """Not 0 where demons are flagged (SOMEBODY_IS_SICK), or policies cannot be asked any more (TOO_OFTEN)."""

    @property
    def mspbe_scalar(self) -> Floats:
        """Scalar MSPBE estimates."""

    @property
    def td_error(self) -> Floats:
        """TD errors of the last step."""

    @property
    def max_trace(self) -> Floats:
        """Largest |e| of each demon so far."""
