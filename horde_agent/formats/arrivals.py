"""Rows of a table that arrive one by one: each can be learned to before the next one is there.

Whether a row is the last one of its episode is known when the next row arrives. The transition *to*
a row does not depend on that; its action counts from then on. So the rows are those of the table as
a whole.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from horde_agent.formats.columns import ESTIMATE, Columns
from horde_agent.formats.part import Chunk, Part
from horde_agent.formats.tables import Following, Position, RowBefore, Table
from horde_agent.record import NO_ACTION, Flag, Phase, Row, rows_in
from horde_agent.refusals import BadInput

_FIRST_SPACINGS = 100
"""After which times are compared with the period: soon, as the user waits for predictions."""


class Arrival(NamedTuple):
    """What arrived.

    Attributes:
        rows: The new rows: none if it was dropped; two if its action led to a terminal state. The
            last one is open unless its phase is END.
        ends_previous: Whether the open row before them was the last one of its episode.
        lacks_action: Whether the row before them was not the last one, and had no action.
    """

    rows: tuple[Row, ...]
    ends_previous: bool
    lacks_action: bool


class ArrivingRows:
    """Converts the cells of one row after another.

    Args:
        table: Describes the columns; nothing is read from it.

    Raises:
        BadInput: If the columns leave open what only a whole table shows.
    """

    def __init__(self, table: Table) -> None:
        refuse_open(table.columns)
        self._table = table
        table.begin_fit(_FIRST_SPACINGS)
        self._position = Position(RowBefore())
        self._completed = self._position

    @property
    def n_read(self) -> int:
        """Number of rows that arrived, invalid ones included."""
        return self._position.n_read

    @property
    def open(self) -> Row | None:
        """The newest row, while the next one has not arrived; None if it is complete."""
        return self._position.open

    def arrive(self, chunk: Chunk, *, is_late: bool = False, unix_s: float = math.nan) -> Arrival:
        """Return the rows of the cells of one row, each of shape (1,).

        Args:
            chunk: The cells, by column.
            is_late: Whether it came late by the clock, so that it follows a gap.
            unix_s: When it came, in seconds since 1970; NaN if unknown.

        Raises:
            UnfitPeriod: If the times of the rows do not fit the period.
            BadInput: If it is invalid: it is left out, and the next one follows a gap.
        """
        table = self._table
        position = self._position
        part = Part(chunk, table.where, table.columns, position.n_read)
        previous = position.previous.copy()
        self.skip()
        begins = table.begins_episode(part, previous)
        if begins:
            previous.end_episode()
        completed = position._replace(previous=previous.copy(), open=None)
        rows = table.converted(part, Following.UNKNOWN, previous)
        rows["unix_s"] = unix_s
        follows_gap = position.follows_gap or is_late
        if len(rows) and follows_gap:
            rows["flags"][0] |= np.uint8(Flag.GAP)
            follows_gap = False
        self._completed = completed
        new_rows = tuple(rows_in(rows))
        open_row = None
        if new_rows and new_rows[-1].phase == Phase.BEHAVE:
            open_row = new_rows[-1]
        ends = open_row is None and bool(previous.newest("ends"))
        self._position = Position(
            previous,
            position.n_read + 1,
            follows_gap=follows_gap,
            lacks_action=bool(new_rows) and open_row is None and not ends,
            open=open_row,
        )
        return Arrival(new_rows, begins, position.lacks_action and not begins)

    def skip(self) -> None:
        """Leave out a row that cannot be read; the next one follows a gap."""
        position = self._position
        self._position = position._replace(n_read=position.n_read + 1, follows_gap=True)

    def position(self, *, is_complete: bool) -> Position:
        """Return a place from which to continue.

        Args:
            is_complete: Whether with the newest row, after the row before it; else with the row
                after the newest one, which may be open.
        """
        if is_complete:
            return self._completed
        return self._position

    def continue_at(self, position: Position) -> None:
        """Continue at a place."""
        self._position = self._completed = position

    def continue_after(self, row: Row | None) -> None:
        """Continue behind a gap.

        Args:
            row: The last recorded row; None if it is the one before the place of `continue_at`.
        """
        position = self._position
        previous = position.previous.copy()
        if row is not None:
            previous.step = row.step
            previous.set_newest("t", row.t)
        self.continue_at(
            Position(previous, position.n_read, follows_gap=True, lacks_action=False, open=None)
        )


def completed(row: Row, *, is_last: bool) -> Row:
    """Return an open row as it is recorded: the last one of an episode or a stream has no action."""
    if not is_last:
        return row
    return row._replace(phase=Phase.END, action=NO_ACTION, b=np.nan)


def refuse_open(columns: Columns) -> None:
    """Raise BadInput if columns leave open what only a whole table shows."""
    for channel in columns.channel:
        if channel.low is None or channel.high is None:
            raise BadInput(
                f"the columns file gives no range of {channel.name!r}, and a stream shows it only at its end: write "
                "low and high into its [[channel]]"
            )
    if columns.actions.action is not None and not columns.actions.actions:
        raise BadInput(
            "the columns file does not name the actions, and a stream shows their number only at its end: write "
            f'actions = ["...", "..."], for the numbers 0, 1, ... in {columns.actions.action!r}'
        )
    if columns.actions.b == ESTIMATE:
        raise BadInput(
            'b = "estimate" needs a whole table: let the program that acts write b, or leave b out and ask nexting'
        )
    if columns.run.phase is not None:
        raise BadInput(
            "phase is of a recorded run: a stream has none; remove phase, flags and policy from the columns file"
        )
