"""Feedback: predictions of the previous step as inputs of the tile coder.

    phi_{t+1} = tiles(o_{t+1}, y_t)        y_t: the predictions made at t

A prediction depends on earlier observations, so that states with the same observation can have
different features. The loop is causal: from step t + 1 it uses only the observation. Where a stream
begins there is no previous step, and every prediction fed back is 0, clipped to the prediction's
range.

Source: White, Modayil & Sutton (2012), figure 1; Sutton & Tanner (2005), TD networks: x_t =
    x(a_{t-1}, o_t, y_{t-1}).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF, Channel, Feature, Prediction
from horde_agent.tiles import check_keys
from horde_agent.types import Floats, Integers

_LARGEST = 1e300  # of a range's bounds, so that their difference is finite
_OWN_KEYS = ("questions", "range")
_LAYOUT_KEYS = ("intervals", "tilings", "neighbour")


@dataclass(frozen=True)
class Feedback:
    """The predictions that are fed back, and their ranges.

    Attributes:
        names: Names of their questions; inputs of the coder after those of the observation.
        low, high: Range of each, in the unit of the prediction, shape (n,).
        groups: Group of each of these inputs, for the coder.
        tilings: `[[tiling]]` tables of those groups, for the coder.
    """

    names: tuple[str, ...]
    low: Floats
    high: Floats
    groups: tuple[str, ...]
    tilings: tuple[dict[str, Any], ...]

    @classmethod
    def of(
        cls, questions: Sequence[GVF], tables: Sequence[Mapping[str, Any]], channel_bounds: Floats
    ) -> Feedback:
        """Select questions by name.

        Args:
            questions: The questions of the Horde, or at least those that are fed back.
            tables: `[[feedback]]` tables: `questions`, a list of names or shell patterns;
                `intervals`, `tilings` and `neighbour` as in a `[[tiling]]`; and `range = [low,
                high]` if the range is not known from the question.
            channel_bounds: Low and high bound of each channel, infinite if there is none, shape (2,
                n_channels).

        Raises:
            ValueError: If a table has an unknown key, or selects no question or one with an unknown
                range.
        """
        names: list[str] = []
        ranges: list[tuple[float, float]] = []
        groups: list[str] = []
        tilings: list[dict[str, Any]] = []
        by_name = {gvf.name: gvf for gvf in questions}
        for number, table in enumerate(tables, 1):
            where = f"[[feedback]] number {number}"
            if not isinstance(table, Mapping):
                raise ValueError(f"{where} must be a table, not {table!r}")
            chosen = _chosen(table, where, by_name)
            given_range = _given_range(table, where)
            names += chosen
            ranges += [
                given_range or prediction_range(by_name[n], by_name, channel_bounds) for n in chosen
            ]
            groups += [where] * len(chosen)
            tilings.append(
                {"group": where} | {key: table[key] for key in _LAYOUT_KEYS if key in table}
            )
        low, high = np.array(ranges, dtype=np.float64).reshape(-1, 2).T.copy()
        return cls(tuple(names), low, high, tuple(groups), tuple(tilings))

    def scaled(self, predictions: NDArray[Any] | None) -> Floats:
        """Return predictions in [0, 1], clipped, shape (n,): 0 at `low`, 1 at `high`.

        Args:
            predictions: Predictions of `names`, shape (n,); None at the beginning of a stream.

        Raises:
            ValueError: If `predictions` has a wrong shape.
        """
        if predictions is None:
            y = np.zeros(len(self.names))
        else:
            y = np.asarray(predictions, dtype=np.float64)
        if y.shape != self.low.shape:
            raise ValueError(
                f"the predictions fed back must have shape {self.low.shape}, not {y.shape}"
            )
        return np.asarray(np.clip((y - self.low) / (self.high - self.low), 0.0, 1.0))

    def demons(self, names: Sequence[str]) -> Integers:
        """Return the indices of the questions in a Horde's `names`, shape (n,); raise ValueError if one is missing."""
        index = {name: i for i, name in enumerate(names)}
        missing = [name for name in self.names if name not in index]
        if missing:
            raise ValueError(
                f"the Horde lacks the question {missing[0]!r}, which the interface feeds back"
            )
        return np.array([index[name] for name in self.names], dtype=np.int64)


def prediction_range(
    gvf: GVF, others: Mapping[str, GVF], channel_bounds: Floats
) -> tuple[float, float]:
    """Return the range of a question's answer: c_min/(1 - gamma) + z to c_max/(1 - gamma) + z.

    Args:
        gvf: The question; its cumulant may be the prediction of another one.
        others: All questions, by name.
        channel_bounds: Low and high bound of each channel, infinite if there is none, shape (2,
            n_channels).

    Raises:
        ValueError: If the cumulant, the continuation or the outcome is a function, or the channel
            has no bounds.
    """
    lineage = [gvf]
    while isinstance(lineage[-1].cumulant, Prediction) and lineage[-1].cumulant.name in others:
        if len(lineage) > len(others):
            raise _unknown_range(gvf, "it refers to itself")
        lineage.append(others[lineage[-1].cumulant.name])
    match lineage[-1].cumulant:
        case Channel(int(index)) if index < channel_bounds.shape[1]:
            low, high = channel_bounds[:, index].tolist()
        case Feature(factor=float(factor)):
            low = min(factor, 0.0)
            high = max(factor, 0.0)
        case float(constant):
            low = constant
            high = constant
        case _:
            raise _unknown_range(gvf, "its cumulant is not a channel")
    if not np.isfinite([low, high]).all():
        raise _unknown_range(gvf, "its channel has no bounds")
    for question in reversed(lineage):
        gamma = question.continuation
        z = question.outcome
        if callable(gamma) or callable(z) or gamma == 1.0:
            raise _unknown_range(
                gvf, "its continuation and its outcome must be numbers, the continuation below 1"
            )
        low = low / (1.0 - gamma) + z
        high = high / (1.0 - gamma) + z
    return low, high


def _unknown_range(gvf: GVF, reason: str) -> ValueError:
    return ValueError(
        f"the range of the prediction {gvf.name!r} is unknown, because {reason}; set range = [low, high]"
    )


def _chosen(table: Mapping[str, Any], where: str, by_name: Mapping[str, GVF]) -> list[str]:
    """Return the names that a [[feedback]] table selects, in the order of the questions."""
    check_keys(table, where, (*_OWN_KEYS, *_LAYOUT_KEYS), _LAYOUT_KEYS[:2])
    patterns = table.get("questions")
    if (
        not isinstance(patterns, list)
        or not patterns
        or not all(isinstance(p, str) for p in patterns)
    ):
        raise ValueError(
            f"{where} needs 'questions', a list of names or patterns that is not empty"
        )
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in by_name):
            first = next(iter(by_name), "")
            raise ValueError(
                f"{where}: no question's name matches {pattern!r}; the first name is {first!r}"
            )
    return [name for name in by_name if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _given_range(table: Mapping[str, Any], where: str) -> tuple[float, float] | None:
    if "range" not in table:
        return None
    limits = table["range"]
    if isinstance(limits, list | tuple) and len(limits) == 2:
        are_numbers = all(
            isinstance(b, int | float | np.number) and not isinstance(b, bool) for b in limits
        )
        if are_numbers and -_LARGEST <= limits[0] < limits[1] <= _LARGEST:
            return float(limits[0]), float(limits[1])
    raise ValueError(
        f"{where}: range must be two finite numbers, the lower one first, not {limits!r}"
    )
