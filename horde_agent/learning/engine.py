"""Interface of a Horde's learning engine, implemented by `plain.py` and `span.py`.

An engine updates all demons from one stream of tiles. It has no access to policies, sensors or names: the Horde first
computes the signals. All inputs and outputs are in the order of the demons.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from horde_agent.saving import State, inner, nested
from horde_agent.types import Floats, Integers, Reals, Tiles

if TYPE_CHECKING:
    from horde_agent.kernels.checks import Signals
    from horde_agent.learning.layout import DemonMapping


SMALLEST_SHARED_WORK = 50_000  # weights per pass below which one thread is used
# Trace entries below this are dropped; an active feature enters with 1. 1e-8 is a tenth of float32's rounding, 1e-16 is
# float64's rounding.
DROP_BELOW = {"float32": 1e-8, "float64": 1e-16}
# m is stored over a common scale that decays in its place; below this scale, the two are multiplied out.
SMALLEST_SCALE = 1e-12
# A demon diverged if |delta| max e of a step reaches this. Below it, m over its scale of at least 1e-12 and the product
# of two such numbers in float64 are finite.
LARGEST_STEP = {"float32": 1e25, "float64": 1e140}


def max_finite(dtype: np.dtype[Any]) -> float:
    """Return the largest finite number of a dtype."""
    return float(np.finfo(dtype).max)


def check_weights(theta: Reals, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
    """Raise ValueError if weights have another shape, are not finite, or exceed the dtype's range."""
    if np.shape(theta) != shape:
        raise ValueError(f"theta must be finite, of shape {shape}, (n_demons, n_features), not {np.shape(theta)}")
    wrong = np.argwhere(~(np.abs(theta) <= max_finite(dtype)))  # NaN is not
    if wrong.size:
        demon, feature = wrong[0]
        raise ValueError(
            f"theta must be finite, and at most {max_finite(dtype):.3g}, as much as {dtype} can hold; theta[{demon}, "
            f"{feature}] is {theta[demon, feature]}"
        )


def streams_state(selected: int, others: Mapping[int, State]) -> State:
    """Return the number of the selected stream and copies of the states of the others; nothing if there are none."""
    if not others:
        return {}
    states = {f"stream{k}": {name: array.copy() for name, array in of.items()} for k, of in others.items()}
    return {"stream": np.array(selected), **nested(**states)}


def restored_streams(state: State) -> tuple[int, dict[int, State]]:
    """Return the arguments of `streams_state` from a state that contains its result."""
    numbers = {int(found[1]) for found in map(re.compile(r"stream(\d+)/").match, state) if found}
    states = {k: {name: np.array(a) for name, a in inner(state, f"stream{k}").items()} for k in sorted(numbers)}
    return int(state.get("stream", 0)), states


class FlaggedDemon(NamedTuple):
    """Weights, shape (n_features,), and estimates of a flagged demon.

    Attributes:
        theta, w, m: Current weights; m has shape (0,) without the vector MSPBE estimate.
        prediction, estimate, td_error: Latest theta.phi, scalar MSPBE estimate and delta.
        bound: Largest plausible |theta|.
    """

    theta: Reals
    w: Reals
    m: Reals
    prediction: float
    estimate: float
    td_error: float
    bound: float

    def fault(self) -> str:
        """Describe why the demon diverged."""
        largest = float(np.abs(self.theta).max())
        if self.bound < largest < np.inf:
            return f"its weights reached {largest:.3g}, above their bound of {self.bound:.3g}"
        weights = (("weights", self.theta), ("secondary weights", self.w), ("vector MSPBE trace", self.m))
        for what, values in (*weights, ("prediction", self.prediction), ("scalar MSPBE estimate", self.estimate)):
            broken = np.ravel(values)[~np.isfinite(np.ravel(values))]
            if broken.size:
                return f"its {what} became {broken[0]}"
        dtype = self.theta.dtype.name
        return (
            f"a step of its weights, |delta| max e, reached {LARGEST_STEP[dtype]:g}, the limit for estimates in "
            f"{dtype}; its TD error was {self.td_error:.3g}"
        )


class Engine(Protocol):
    """Interface between the Horde and its engine. Arrays are in the order of the demons, shape (n_demons,)."""

    @property
    def latest(self) -> Floats:
        """Predictions at the latest completed step."""

    @property
    def n_waiting(self) -> int:
        """Number of queued steps."""

    @property
    def stream(self) -> int:
        """Number of the selected stream."""

    def begin(self, tiles: Tiles) -> Floats:
        """Begin a stream at `tiles`: clear all traces, keep the weights, and return the predictions.

        Args:
            tiles: Active features, all different, int64, shape (n_active,), with a fixed n_active. The plain engine
                also accepts all feature values, float, shape (n_features,).

        Raises:
            ValueError: If the number of tiles differs from the first call.
        """

    def learn(self, tiles: Tiles, signals: Signals, *, is_last: bool = False) -> Floats:
        """Learn from the transition to `tiles`, or queue it if steps are processed in batches.

        A demon with a signal that is not finite, or exceeds the engine's dtype, skips the step: its trace is cleared,
        theta and w do not change, its estimates decay as if rho = 0, and its TD error is 0.

        Args:
            tiles: As in `begin`, shape (n_active,).
            signals: The signals of the transition.
            is_last: True if the stream ends here: all continuations are then 0.

        Returns:
            Predictions theta_{t+1}.phi_{t+1} at the latest completed step.

        Raises:
            ValueError: If the signals do not fit the demons.
        """

    def catch_up(self) -> None:
        """Process all queued steps."""

    def select_stream(self, stream: int) -> None:
        """Learn from another stream from now on, by its number from 0; at its first selection it has not begun.

        Each stream has its own traces and current state. Weights, MSPBE estimates, and numbers of the rule that a gap
        keeps belong to all: learning continues from the weights that the other streams have left, one update for each
        transition.
        """

    def predict(self, tiles: Tiles) -> Floats:
        """Return the predictions at `tiles`, (n_active,), without learning."""

    def predict_one(self, demon: int, tiles: Tiles) -> float:
        """Return one demon's prediction at `tiles`, (n_active,)."""

    def reset_weights(self, theta: Reals | None = None) -> None:
        """Set theta, (n_demons, n_features), by default to zero, to measure recovery; w and traces do not change.

        Raises:
            ValueError: If `theta` has another shape, or exceeds the range of the engine's dtype.

        Source: White, Modayil & Sutton (2012), section 6: theta := 0 after 40,000 steps.
        """

    def set_bounds(self, bound: Floats) -> None:
        """Set the |theta| above which a demon is flagged, shape (n_demons,)."""

    def pop_flagged(self) -> dict[int, str]:
        """Return the demons flagged since the last call, with the reason, and clear their flags."""

    def freeze(self, demon: int) -> None:
        """Freeze one demon's weights at zero permanently."""

    def rearrange(self, mapping: DemonMapping) -> None:
        """Add and remove demons; remaining demons keep their weights, traces and estimates."""

    def to_plain(self) -> Engine:
        """Return an engine that continues from here, with the plain engine where a trace is too long for this one."""

    def state(self) -> State:
        """Return copies of the engine's complete state, by name; queued steps stay queued."""

    def restore(self, state: State) -> None:
        """Restore a state from an engine with the same arguments and the same calls of `rearrange`."""

    def weights(self, demons: Integers | None = None) -> tuple[Reals, Reals]:
        """Return copies of theta and w, each (n, n_features), of the demons with indices (n,), or of all."""

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimates m.w; raise ValueError without vector_mspbe."""

    def mspbe_trace(self) -> Reals:
        """Return a copy of m, (n_demons, n_features)."""

    @property
    def flags(self) -> int:
        """Bits: DEMON_FLAGGED if a demon is flagged, TAIL_TOO_LONG if a trace is too long for the span engine."""

    @property
    def mspbe_scalar(self) -> Floats:
        """Scalar MSPBE estimates."""

    @property
    def td_error(self) -> Floats:
        """TD errors of the last step."""

    @property
    def max_trace(self) -> Floats:
        """Largest |e| of each demon so far."""
