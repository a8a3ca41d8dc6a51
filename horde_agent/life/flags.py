"""Which rows of a stream follow from the row before, and which transitions are learned from.

These rules hold for a life, the stable-baselines3 callback, an imported log and a replayed stream
alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.record import BROKEN, Flag, Phase
from horde_agent.types import Bools, Integers


def are_broken(flags: NDArray[Any]) -> Bools:
    """Return which rows do not follow from the row before: BROKEN, or another robot's; shape (n_rows,)."""
    return np.asarray((flags & (BROKEN | Flag.TURN)) != 0)


def are_followed(flags: NDArray[Any]) -> Bools:
    """Return which rows of a stream continue in the next row, shape (n_rows,): not the last, none before a gap.

    Args:
        flags: Of the rows, shape (n_rows,).
    """
    return np.append(~are_broken(flags[1:]), False)[: len(flags)]


def are_learned(came_by: NDArray[Any], flags: NDArray[Any]) -> Bools:
    """Return which rows of a stream are learned from, shape (n_rows,): the transition to each of them.

    Args:
        came_by: Phase of the step to each row, shape (n_rows,).
        flags: Of the rows, shape (n_rows,).
    """
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
