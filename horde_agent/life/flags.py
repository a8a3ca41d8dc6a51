"""How an observation came about, as flags made from `info`, and which transitions are learned from: both decided here.

A life, the callback beside a controller, a log that is read and a stream that is learned from again all ask this file.
`info` may tell `gap`, `applied` and `stale` (0 or 1); an environment that tells none of them is whole on every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.record import BROKEN, Flag, Phase
from horde_agent.types import Bools


def flags_of(
    info: Mapping[str, Any], *, begins: bool = False, terminated: bool = False, truncated: bool = False
) -> int:
    """Return the flags of an observation.

    Args:
        info: What came with it.
        begins: True where it does not follow from an observation before it: after a reset.
        terminated: True where the stream truly ended with it, as `env.step` returned it.
        truncated: True where the environment stopped there for a reason of its own.
    """
    flags = int(Flag.NONE)
    if begins or info.get("gap", 0):
        flags |= Flag.GAP
    if not info.get("applied", 1):
        flags |= Flag.NOT_APPLIED
    if info.get("stale", 0):
        flags |= Flag.STALE
    if terminated:
        flags |= Flag.TERMINATED
    if truncated:
        flags |= Flag.TRUNCATED
    return flags


def is_broken(flags: int) -> bool:
    """Return whether no update may reach across an observation: a gap, an old frame, or what the body did not do."""
    return bool(flags & BROKEN)


def is_unfit(flags: int) -> bool:
    """Return whether no excursion may begin from an observation: the body is out of reach, or does not obey."""
    return bool(flags & (Flag.NOT_APPLIED | Flag.STALE))


def is_learned(came_by: int, flags: int) -> bool:
    """Return whether the transition to an observation is learned from.

    Args:
        came_by: The phase of the step that led to it.
        flags: Its flags.
    """
    return came_by == Phase.BEHAVE and not is_broken(flags)


def are_broken(flags: NDArray[Any]) -> Bools:
    """Return `is_broken` of each row of a stream, shape (n_rows,)."""
    return np.asarray((flags & BROKEN) != 0)


def are_followed(flags: NDArray[Any]) -> Bools:
    """Return which rows of a stream are followed by the next one, shape (n_rows,): not the last, none before a break.

    Args:
        flags: Of the rows, shape (n_rows,).
    """
    return np.append(~are_broken(flags[1:]), False)[: len(flags)]


def are_learned(came_by: NDArray[Any], flags: NDArray[Any]) -> Bools:
    """Return `is_learned` of each row of a stream, shape (n_rows,)."""
    return np.asarray((came_by == Phase.BEHAVE) & ~are_broken(flags))
