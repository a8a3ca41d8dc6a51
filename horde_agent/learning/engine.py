"""What an engine is, and what both share: limits of numbers, saved streams, reasons of divergence.

An engine updates all demons from one stream of tiles. It has no access to policies, sensors or
names: the Horde first computes the signals. All inputs and outputs are in the order of the demons.
`plain.py` and `span.py` are engines of one update rule; `mixed.py` is one made of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels.checks import Signals
from horde_agent.learning.rarity import Rarity
from horde_agent.learning.stored import NEWCOMER
from horde_agent.saving import State
from horde_agent.types import Floats, Integers, Reals, Tiles

SMALLEST_SHARED_WORK = 100_000  # weights per step below which one thread is faster
# Trace entries below this are dropped; an active feature enters with 1. 1e-8 is a tenth of
# float32's rounding, 1e-16 is float64's rounding.
DROP_BELOW = {"float32": 1e-8, "float64": 1e-16}
# m is stored over a common scale that decays in its place; below this scale, the two are multiplied
# out.
SMALLEST_SCALE = 1e-12
# A demon diverged if |delta| max e of a step reaches this. Below it, m over its scale of at least 1e-12 and the product
# of two such numbers in float64 are finite.
LARGEST_STEP = {"float32": 1e25, "float64": 1e140}

# Why the traces of several streams cannot be kept apart
SEPARATE_TRACES = (
    "several streams need separate traces, which only the plain engine stores: create the Horde with "
    'config=LearnerConfig(engine="plain")'
)
WeightsName = Literal["theta", "average"]
"""Weights that an engine can predict from: the latest, or their averages."""
NumberName = Literal["td_error", "mspbe", "max_trace", "alpha"]
"""Numbers of each demon that can be read: `EngineResults.numbers`."""
NO_TILES = np.zeros(0, dtype=np.int64)
NO_VECTOR_ESTIMATE = (
    "no vector MSPBE estimate is computed: set vector_mspbe=True, and a rule that has w"
)


class EngineResults(Protocol):
    """What can be read of an engine; nothing here changes what is learned."""

    @property
    def latest(self) -> Floats:
        """theta.phi at the latest completed step, float64, shape (n_demons,); the next step may overwrite it."""

    @property
    def latest_averaged(self) -> Floats:
        """theta_bar.phi there, likewise; 0 without averages."""

    def numbers(self, name: NumberName) -> Floats:
        """Return a number of each demon after all queued steps, float64, shape (n_demons,).

        "td_error" is delta of the last step; "mspbe" the scalar MSPBE estimate, signed, NaN for a rule
        without w; "max_trace" the largest |e| so far, or an upper bound of it; "alpha" the step size.
        """

    def rows(self, *names: str, demons: Integers | None = None) -> tuple[Reals, ...]:
        """Return copies of arrays with a number for each weight, each (n, n_features), of demons (n,) or all.

        "theta" are the weights, "w" the secondary ones, 0 for a rule without; "average" is the averaged
        theta, "m" the trace of delta e. The plain engine has the rule's vectors, too, such as "e".

        Raises:
            ValueError: If there is no such array.
        """

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimate m.w, shape (n_demons,); raise ValueError without m."""

    def predict(self, tiles: Tiles, weights: WeightsName = "theta") -> Floats:
        """Return theta.phi or average.phi of all demons at `tiles`, (n_active,), float64, shape (n_demons,)."""

    def predict_one(self, demon: int, tiles: Tiles, weights: WeightsName = "theta") -> float:
        """Return one demon's theta.phi or average.phi at `tiles`, (n_active,)."""

    def action_values(self, demon: int, tiles: Tiles) -> Floats:
        """Return the action values, (n_actions,), of a demon at `tiles`; raise ValueError if its rule has none."""


class Engine(EngineResults, Protocol):
    """What updates demons from one stream of tiles; `PlainEngine` describes the arguments."""

    @property
    def flags(self) -> int:
        """Bits: DEMON_DIVERGED if a demon diverged, TAIL_TOO_LONG if a trace is too long."""

    @property
    def n_waiting(self) -> int:
        """Number of queued steps."""

    @property
    def stream(self) -> int:
        """Number of the selected stream."""

    def begin(self, tiles: Tiles) -> Floats:
        """Begin a stream at `tiles`, (n_active,), with all traces at zero, and return the predictions."""

    def learn(self, tiles: Tiles, signals: Signals, *, is_last: bool = False) -> Floats:
        """Learn from the transition to `tiles`, (n_active,), or queue it; return the latest predictions.

        Raises:
            RuntimeError: If the selected stream has not begun.
        """

    def catch_up(self) -> None:
        """Process all queued steps."""

    def work_ahead(self) -> None:
        """Do now what the next step would begin with: the same results, and a shorter step."""

    def pop_errors(self) -> Floats:
        """Return each demon's sums of rho delta and of rho delta^2 since the last call, shape (2, n_demons).

        delta is the TD error of a step, rho its ratio. Queued steps are processed first; both sums begin again at 0.
        """

    def move_averages(self, rates: Floats) -> None:
        """Move the averaged weights toward theta, by a rate for each demon, shape (n_demons,)."""

    def set_scales(self, rarity: Rarity) -> None:
        """Set the factors of the features' step sizes; nothing changes if the engine's rule has none."""

    def select_stream(self, stream: int) -> None:
        """Learn from another stream from now on."""

    def pop_diverged(self) -> dict[int, str]:
        """Return the demons that diverged since the last call, with the reason."""

    def mark_diverged(self, demon: int) -> None:
        """Set one demon's weights to zero for good; other demons do not change."""

    def set_bounds(self, bound: Floats) -> None:
        """Set the |theta| above which a demon has diverged, shape (n_demons,)."""

    def reset_weights(self, theta: Reals | None = None) -> None:
        """Set theta, (n_demons, n_features), by default to zero; w and traces do not change."""

    def state(self) -> State:
        """Return copies of the complete state, by name; queued steps stay queued."""

    def restore(self, state: State) -> None:
        """Restore a state of an engine with the same arguments and the same demons."""


class RuleEngine(Engine, Protocol):
    """An engine whose demons have one update rule."""

    @property
    def can_merge(self) -> bool:
        """True if it is a `MergingEngine`."""

    def rearrange(self, mapping: DemonMapping) -> None:
        """Add and remove demons. Remaining demons keep their weights, traces and estimates."""

    def to_plain(self) -> MergingEngine:
        """Return an engine without a limit for the length of traces, which continues from here."""


class MergingEngine(RuleEngine, Protocol):
    """An engine that stores its traces, so that several can share what they learn from their streams."""

    def merge(self, others: Sequence[Self]) -> None:
        """Give several engines the mean of their weights and MSPBE estimates; traces stay separate."""


class DemonMapping(NamedTuple):
    """The demons after an addition or removal.

    Attributes:
        old_index: Previous index of each demon, NEWCOMER if it is new, shape (n_demons,).
        group: Trace group of each demon, shape (n_demons,), numbered from 0. New demons have
            separate groups, because the traces of other groups include earlier steps.
        policy: Policy of each group, shape (n_groups,).
        alpha, alpha_w: Step sizes of new demons, already divided by the number of active tiles.
        cumulant: Index of each demon's cumulant in the signals, shape (n_demons,); None for one
            each.
        algorithm: Update rule of each demon, for `MixedEngine`.
        largest_decay: Upper bound of gamma lambda.
        n_actions: Number of actions, for rules that find policies.
    """

    old_index: Integers
    group: Integers
    policy: Integers
    alpha: float = np.nan
    alpha_w: float = np.nan
    cumulant: Integers | None = None
    algorithm: tuple[str, ...] = ()
    largest_decay: float = 0.0
    n_actions: int = 1

    @property
    def is_new(self) -> NDArray[np.bool_]:
        """Mask of new demons, shape (n_demons,)."""
        return np.equal(self.old_index, NEWCOMER)


def max_finite(dtype: np.dtype[Any]) -> float:
    """Return the largest finite number of a dtype."""
    return float(np.finfo(dtype).max)


def no_stream() -> RuntimeError:
    """Return the error for learning from a stream that has not begun."""
    return RuntimeError("no stream to learn from: call begin(tiles) first")


def no_step_sizes(algorithm: str) -> ValueError:
    """Return the error for step sizes of a rule that has one for all weights."""
    return ValueError(
        f"algorithm {algorithm!r} has no step size per weight: choose a rule that has"
    )


def check_weights(theta: Reals, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
    """Raise ValueError if weights have another shape, are not finite, or exceed the dtype's range."""
    if np.shape(theta) != shape:
        raise ValueError(
            f"theta must be finite, of shape {shape}, (n_demons, n_features), not {np.shape(theta)}"
        )
    wrong = np.argwhere(~(np.abs(theta) <= max_finite(dtype)))  # NaN is not
    if wrong.size:
        demon, feature = wrong[0]
        raise ValueError(
            f"theta must be finite, and at most {max_finite(dtype):.3g}, as much as {dtype} can hold; theta[{demon}, "
            f"{feature}] is {theta[demon, feature]}"
        )


def fault(
    theta: Reals,
    w: Reals,
    m: Reals,
    prediction: float,
    estimate: float,
    td_error: float,
    bound: float,
) -> str:
    """Describe why a demon diverged.

    Its theta and w have the shape (n_features,), m too, or (0,) without the vector MSPBE estimate. The prediction, the
    scalar MSPBE estimate and delta are the latest; `bound` is the largest plausible |theta|.
    """
    largest = float(np.abs(theta).max())
    if bound < largest < np.inf:
        return f"its weights reached {largest:.3g}, above their bound of {bound:.3g}"
    weights = (("weights", theta), ("secondary weights", w), ("vector MSPBE trace", m))
    for what, values in (*weights, ("prediction", prediction), ("scalar MSPBE estimate", estimate)):
        broken = np.ravel(values)[~np.isfinite(np.ravel(values))]
        if broken.size:
            return f"its {what} became {broken[0]}"
    dtype = theta.dtype.name
    return (
        f"a step of its weights, |delta| max e, reached {LARGEST_STEP[dtype]:g}, the limit for estimates in {dtype}; "
        f"its TD error was {td_error:.3g}"
    )
