"""What both engines share: limits of numbers, saved streams, reasons of divergence.

An engine, `plain.py` or `span.py`, updates all demons from one stream of tiles. It has no access to
policies, sensors or names: the Horde first computes the signals. All inputs and outputs are in the
order of the demons.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.saving import State, inner, nested
from horde_agent.types import Integers, Reals

SMALLEST_SHARED_WORK = 50_000  # weights per pass below which one thread is used
# Trace entries below this are dropped; an active feature enters with 1. 1e-8 is a tenth of
# float32's rounding, 1e-16 is float64's rounding.
DROP_BELOW = {"float32": 1e-8, "float64": 1e-16}
# m is stored over a common scale that decays in its place; below this scale, the two are multiplied
# out.
SMALLEST_SCALE = 1e-12
# A demon diverged if |delta| max e of a step reaches this. Below it, m over its scale of at least 1e-12 and the product
# of two such numbers in float64 are finite.
LARGEST_STEP = {"float32": 1e25, "float64": 1e140}


NEWCOMER = -1


class DemonMapping(NamedTuple):
    """The demons after an addition or removal.

    Attributes:
        old_index: Previous index of each demon, NEWCOMER if it is new, shape (n_demons,).
        group: Trace group of each demon, shape (n_demons,), numbered from 0. New demons have
            separate groups, because
            the traces of other groups include earlier steps.
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


def streams_state(selected: int, others: Mapping[int, State]) -> State:
    """Return the number of the selected stream and copies of the states of the others; nothing if there are none."""
    if not others:
        return {}
    states = {
        f"stream{k}": {name: array.copy() for name, array in of.items()} for k, of in others.items()
    }
    return {"stream": np.array(selected), **nested(**states)}


def restored_streams(state: State) -> tuple[int, dict[int, State]]:
    """Return the arguments of `streams_state` from a state that contains its result."""
    numbers = {int(found[1]) for found in map(re.compile(r"stream(\d+)/").match, state) if found}
    states = {
        k: {name: np.array(a) for name, a in inner(state, f"stream{k}").items()}
        for k in sorted(numbers)
    }
    return int(state.get("stream", 0)), states


def fault(
    theta: Reals,
    w: Reals,
    m: Reals,
    prediction: float,
    estimate: float,
    td_error: float,
    bound: float,
) -> str:
    """Describe why a flagged demon diverged.

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
