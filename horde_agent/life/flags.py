"""Flags of an observation, made from `info`, and which transitions are learned from.

These rules hold for a life, the stable-baselines3 callback, an imported log and a replayed stream
alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.life.robot import RobotInfo
from horde_agent.record import BROKEN, Flag, Phase
from horde_agent.types import Bools, Integers


def flags_of(
    info: RobotInfo, *, begins: bool = False, terminated: bool = False, truncated: bool = False
) -> int:
    """Return the flags of an observation from its info; `begins`: it is the first one after a reset."""
    flags = int(Flag.NONE)
    if begins or info.gap:
        flags |= Flag.GAP
    if not info.applied:
        flags |= Flag.NOT_APPLIED
    if info.stale:
        flags |= Flag.STALE
    if terminated:
        flags |= Flag.TERMINATED
    if truncated:
        flags |= Flag.TRUNCATED
    return flags


def is_broken(flags: int) -> bool:
    """Return whether updates must not cross an observation: a gap, a stale frame, or an action not applied."""
    return bool(flags & BROKEN)


def ends_test(flags: int) -> bool:
    """Return whether a test excursion or an on-policy test ends at an observation: a gap, or an action not applied.

    A stale frame repeats the reading before, which stands for the one that did not arrive: the test
    continues, and counts how much of each return was repeated (`TestExcursion`).
    """
    return bool(flags & (Flag.GAP | Flag.NOT_APPLIED))


def is_unfit(flags: int) -> bool:
    """Return whether no excursion may begin at an observation: the frame is stale or the action was not applied."""
    return bool(flags & (Flag.NOT_APPLIED | Flag.STALE))


def is_learned(came_by: int, flags: int) -> bool:
    """Return whether the transition to an observation, by a step of phase `came_by`, is learned from."""
    return came_by == Phase.BEHAVE and not is_broken(flags)


def are_broken(flags: NDArray[Any]) -> Bools:
    """Return which rows do not follow from the row before: `is_broken`, or another robot's; shape (n_rows,)."""
    return np.asarray((flags & (BROKEN | Flag.TURN)) != 0)


def are_followed(flags: NDArray[Any]) -> Bools:
    """Return which rows of a stream continue in the next row, shape (n_rows,): not the last, none before a gap.

    Args:
        flags: Of the rows, shape (n_rows,).
    """
    return np.append(~are_broken(flags[1:]), False)[: len(flags)]


def are_learned(came_by: NDArray[Any], flags: NDArray[Any]) -> Bools:
    """Return `is_learned` of each row of a stream, shape (n_rows,)."""
    return np.asarray((came_by == Phase.BEHAVE) & ~are_broken(flags))


class Borders(NamedTuple):
    """Rows [first, end) of each stretch of a stream within which every row follows, shape (n_stretches,)."""

    first: Integers
    end: Integers


def borders_of(rows: NDArray[Any]) -> Borders:
    """Return the stretches of rows, shape (n_rows,), whose transitions are learned from."""
    breaks = ~are_learned(rows["phase"][:-1], rows["flags"][1:])
    inner = np.flatnonzero(breaks) + 1
    return Borders(first=np.append(0, inner), end=np.append(inner, len(rows)))
