"""A table with a row per step as a stream that can be learned from, without holding it in memory.

Row t has the observation after t steps, the action taken *from* it, and b, the probability of that
action. The last observation of an episode has no action. Rows of transitions, (s, a, r, done), are
converted to this order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.formats import cells
from horde_agent.formats.cells import NO_SHIFT, Cells
from horde_agent.formats.columns import (
    COPIED_FIELDS,
    MISSING_GAP,
    MISSING_READING,
    OBSERVATION,
    REWARD_NAMES,
    SHIFTS,
    TERMINATED,
    TERMINATED_NAMES,
    TRANSITION,
    TRUNCATED,
    TRUNCATED_NAMES,
    ChannelColumn,
    Columns,
    RewardColumns,
    layout_without_transitions,
)
from horde_agent.formats.fit import LATE, MOST_SPACINGS, TableFit
from horde_agent.formats.part import Chunk, Part, rows_of_chunk
from horde_agent.interface import HeldReadings, Interface
from horde_agent.interface.held import filled_rows
from horde_agent.life.flags import borders_of
from horde_agent.policies import Policy
from horde_agent.record import NO_ACTION, Flag, Phase, Row, Stream, new_rows, row_dtype, rows_in
from horde_agent.refusals import BadInput
from horde_agent.toml import toml_value
from horde_agent.types import Bools, Floats, listed

_ACTED = (int(Phase.BEHAVE), int(Phase.EXCURSION))
_NEEDED = (*_ACTED, int(Phase.END))
"""Phases of rows that are learned from."""
_PHASES = np.arange(256)
_IS_ACTED: Bools = np.isin(_PHASES, _ACTED)
_IS_NEEDED: Bools = np.isin(_PHASES, _NEEDED)
_LARGEST_ACTION = np.iinfo(row_dtype(1)["action"]).max
_UNKNOWN_ACTIONS = ("unknown",)
_NO_READING = 0.0
"""Reading of a channel of transitions in the first row of an episode, to which no transition led."""
_TIMES = "seconds, a number, or a date such as 2026-01-31T12:00:00"
_ARGUMENTS = {"terminated": "terminations", "truncated": "truncations"}  # of `learn_from`
_STEPS_END = 2**62


class Following(Enum):
    """What stands for the part after another one of a table while that is unknown."""

    UNKNOWN = "it has not arrived"


_SAVED_FIELDS = ("step", "t", "action", "b", "flags", "policy", "reward", "unix_s")
"""Fields of an open row in a `Position`, beside its observation."""


class Position(NamedTuple):
    """A place between two rows of a table.

    Attributes:
        previous: What the rows behind it depend on of those before.
        n_read: Number of rows before it, invalid ones included.
        follows_gap: Whether a row was left out, so that the next one follows a gap.
        lacks_action: Whether the row before has no action, although it may not be the last one.
        open: The row before, with its action, if the next row may continue its episode; else None.
    """

    previous: RowBefore
    n_read: int = 0
    follows_gap: bool = False
    lacks_action: bool = False
    open: Row | None = None

    def state(self) -> dict[str, Any]:
        """Return it in JSON types, with null for NaN."""
        open_row: dict[str, Any] = {}
        if self.open is not None:
            open_row = {name: _plain(getattr(self.open, name)) for name in _SAVED_FIELDS}
            open_row["observation"] = _plain(self.open.observation.tolist())
        return {**self._asdict(), "previous": self.previous.state(), "open": open_row}

    def with_channels(self, n_channels: int) -> Position:
        """Return the place for rows with further channels behind their own, of which the row before has no reading."""
        if self.open is None:
            return self
        observation = self.open.observation
        missing = np.full(n_channels - len(observation), np.nan, dtype=np.float32)
        return self._replace(open=self.open._replace(observation=np.append(observation, missing)))

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Position:
        """Return the place whose `state` this is."""
        open_row = None
        if state["open"]:
            fields = {name: _with_nan(value) for name, value in state["open"].items()}
            observation = np.array(fields["observation"], dtype=np.float32)
            open_row = Row(**{**fields, "observation": observation})
        previous = RowBefore.of_state(state["previous"])
        return cls(**{**state, "previous": previous, "open": open_row})


class Table:
    """A table as consecutive `Stream`s, checked row by row; raises BadInput if a column or its range is missing.

    Args:
        chunks: Returns an iterator over consecutive parts of the table, from its beginning on each
            call.
        columns: Meaning of the columns.
        where: Name of the table, for messages.
        notes: Remarks for the report.

    Attributes:
        columns: As given, with the ranges and actions found in the table.
        behaviour: The policy that acted, and the interface that encodes its observations; None if b
            is a column.
        b_estimate: Facts about an estimated policy, for the header.
        counts_each_reward: Whether each reward is to be in a return: the action of an episode's
            last row counts with its reward, by a row after it with an unknown observation (NaN),
            and a reward that belongs to no step is refused. Learning needs neither: it needs the
            state that an action led to.
        start: The place behind which its rows continue those of another table; None at a beginning.
        end: The place behind its last row, once it was read whole; None if b is not a column.
        ends_open: Whether its first row begins an episode, so that the open row of `start` ends one.
    """

    def __init__(
        self,
        chunks: Callable[[], Iterable[Chunk]],
        columns: Columns,
        where: str,
        notes: tuple[str, ...] = (),
    ) -> None:
        self._chunks = chunks
        self.where = where
        self._notes = notes
        self._extremes: dict[str, _Extremes] = {}
        self._has_action_names = bool(columns.actions.actions)
        if columns.tile_layout is None:
            columns = replace(columns, tile_layout=layout_without_transitions(columns.channel))
        is_open = any(c.low is None or c.high is None for c in columns.channel)
        self.columns = columns
        has_actions = columns.actions.action is not None
        if is_open or (has_actions and not self._has_action_names):
            self.columns = self._with_ranges(columns)
        self.behaviour: tuple[Policy, Interface] | None = None
        self.b_estimate: dict[str, float] | None = None
        self.counts_each_reward = False
        self.start: Position | None = None
        self.end: Position | None = None
        self.ends_open = False
        self._fit = self._new_fit()

    def _new_fit(self, most_spacings: int = MOST_SPACINGS) -> TableFit:
        return TableFit(
            self.where,
            self.columns,
            has_action_names=self._has_action_names,
            knows_b=self._knows_b,
            most_spacings=most_spacings,
        )

    def arrange(self, columns: Columns) -> None:
        """Read the channels in another order, with lost ones, by columns that are otherwise those of the table."""
        self.columns = columns
        for name in ("_shifts", "_spans"):
            vars(self).pop(name, None)
        self._fit = self._new_fit()

    def begin_fit(self, most_spacings: int) -> None:
        """Collect the facts about the rows anew, and compare that number of times with the period."""
        self._fit = self._new_fit(most_spacings)

    @property
    def _knows_b(self) -> bool:
        return self.columns.actions.b is not None or self.behaviour is not None

    @property
    def remarks(self) -> list[str]:
        """What the user should see at once; complete after the table was read."""
        return [*self._reward_remarks(), *self._mark_remarks(), *self._fit.remarks()]

    def _mark_remarks(self) -> list[str]:
        """Say if a mark of the ends of episodes is read as a sensor."""
        usual_names = {"terminated": TERMINATED_NAMES, "truncated": TRUNCATED_NAMES}
        column_names = self.columns.others
        unnamed = {key: names for key, names in usual_names.items() if key not in column_names}
        remarks = []
        for channel in self.columns.channel:
            for key, names in unnamed.items():
                is_mark = len(channel.name) > 1 and channel.name.lower() in names
                if is_mark and (channel.low, channel.high) == (0.0, 1.0):
                    remarks.append(
                        f"The channel {channel.name!r} is read as a sensor. If it marks the ends of episodes, write "
                        f"{key} = {toml_value(channel.column)} and remove its [[channel]], or give its name as "
                        f"{_ARGUMENTS[key]} in Python."
                    )
        return remarks

    @property
    def facts(self) -> list[str]:
        """What the user should know, though nothing is wrong; complete after the table was read."""
        return []

    def _reward_remarks(self) -> list[str]:
        """Say if a reward is read as one of the row's observation though the rows are transitions."""
        channels = self.columns.channel
        is_transitions = self.columns.episodes.convention == TRANSITION
        if not is_transitions or any(channel.transition for channel in channels):
            return []
        return [
            f"The channel {channel.name!r} is read as one of the row's observation. If it is the reward of the row's "
            f"action, mark it: transition = true in its [[channel]], or rewards=[{channel.name!r}] in Python."
            for channel in channels
            if channel.name.lower() in REWARD_NAMES
        ]

    @property
    def notes(self) -> list[str]:
        """Remarks for the report; complete after the table was read."""
        return [*self._notes, *self._shift_notes(), *self._fit.notes(), *self.remarks]

    def _shift_notes(self) -> list[str]:
        """Say what the readings of channels with an origin or a scale are."""
        return [
            f"Readings of {channel.name!r} are (value - {channel.origin!r}) x {channel.scale!r}; predictions are about "
            "readings."
            for channel in self.columns.channel
            if channel.shift != NO_SHIFT
        ]

    @property
    def header(self) -> dict[str, Any]:
        """Description of the robot, as in the header of a recording."""
        columns = self.columns
        channels = columns.channel
        is_density = any((c.name, c.group) == ("b", "action") for c in channels)
        header = {
            "channels": [
                {
                    "name": c.name,
                    "group": c.group,
                    "unit": c.unit,
                    "is_sensor": c.sensor,
                    "step": c.step,
                    "hold_s": c.hold_s,
                    "role": c.role,
                }
                for c in channels
            ],
            "actions": list(columns.actions.actions or _UNKNOWN_ACTIONS),
            "period_s": columns.times.period_s,
            "low": [_finite(c.low) for c in channels],
            "high": [_finite(c.high) for c in channels],
            "tile_layout": columns.tile_layout,
            "notes": self.notes,
            "tests_excursions": columns.run.tests_excursions,
            "has_actions": self._has_actions or is_density,
            "b_known": self._knows_b or is_density,
            "reward_known": columns.rewards != RewardColumns(),
        }
        shifts = {c.name: list(c.shift) for c in channels if c.shift != NO_SHIFT}
        if shifts:
            header[SHIFTS] = shifts
        if self.b_estimate is not None:
            header["b_estimate"] = self.b_estimate
        return header

    @property
    def _has_actions(self) -> bool:
        """Whether rows have actions: an export of rows without any has the action "unknown"."""
        actions = self.columns.actions
        return actions.action is not None and actions.actions != _UNKNOWN_ACTIONS

    def _with_ranges(self, columns: Columns) -> Columns:
        """Read the table once for unknown ranges and the number of actions."""
        names = [channel.column for channel in columns.channel]
        low = np.full(len(names), np.inf)
        high = np.full(len(names), -np.inf)
        first_cells: dict[str, str] = {}
        n_actions = 0
        for part in self._parts():
            for i, (name, channel) in enumerate(zip(names, columns.channel, strict=True)):
                values = part.values_of(channel)
                readings = channel.shift.readings(values)
                finite = readings[np.isfinite(readings)]
                if len(finite):
                    low[i] = min(low[i], finite.min())
                    high[i] = max(high[i], finite.max())
                else:
                    first_cells.setdefault(name, cells.shown(cells.cell_at(part.column(name), 0)))
            actions = part.numbers("action")
            if actions is not None:
                largest = np.nanmax(actions, initial=0.0)
                n_actions = max(n_actions, int(min(largest, _LARGEST_ACTION)) + 1)
        are_lost = np.array([channel.lost for channel in columns.channel])
        lacks_numbers = np.isinf(low) & ~are_lost
        if lacks_numbers.any():
            name = names[int(lacks_numbers.argmax())]
            text = ""
            if name in first_cells:
                text = f"; its first cell is {first_cells[name]}"
            raise BadInput(f"{self.where} has no number in the column {name!r}{text}")
        channels = []
        for c, lowest, highest in zip(columns.channel, low.tolist(), high.tolist(), strict=True):
            if c.transition:
                lowest = min(lowest, _NO_READING)
                highest = max(highest, _NO_READING)
            if c.low is None and c.high is None:
                self._extremes[c.name] = _Extremes(lowest, highest)
            channels.append(_with_range(c, lowest, highest))
        action_names = columns.actions.actions or tuple(f"action_{a}" for a in range(n_actions))
        return columns.with_keys(channel=tuple(channels), actions=action_names)

    def __iter__(self) -> Iterator[Stream]:
        """Yield the rows in consecutive parts; raise BadInput at an invalid value, with its row and column.

        Raise NothingToLearn at the end if no row follows from the one before it.
        """
        self._fit = self._new_fit()
        header = self.header
        start = self.start or Position(RowBefore())
        if start.open is not None:
            self._fit.continue_behaviour()
        previous = start.previous.copy()
        follows_gap = start.follows_gap
        widths: dict[str, int] = {}
        for part, following in pairwise(chain(self._parts(), [None])):
            assert part is not None
            self._check_widths(part, widths)
            if not part.n_read:
                self.ends_open = self.begins_episode(part, previous)
                if self.ends_open:
                    previous.end_episode()
            rows = self.converted(part, following, previous)
            if not len(rows):
                continue
            if follows_gap:
                rows["flags"][0] |= np.uint8(Flag.GAP)
                follows_gap = False
            yield Stream(rows, header)
        self._fit.finish()

    def _parts(self) -> Iterator[Part]:
        """Yield the parts of the table that have rows."""
        n_read = 0
        for chunk in self._chunks():
            part = Part(chunk, self.where, self.columns, n_read)
            n_read += part.n_rows
            if part.n_rows:
                yield part

    def row_cells(self) -> Iterator[Chunk]:
        """Yield the cells of each row by column, each of shape (1,), from the first row on."""
        for chunk in self._chunks():
            yield from rows_of_chunk(chunk)

    def check_fit(self) -> None:
        """Raise BadInput if the rows that were read do not fit the period, or no step can be learned from."""
        self._fit.finish()

    def _check_widths(self, part: Part, widths: dict[str, int]) -> None:
        """Raise BadInput if the vectors of a column are longer or shorter than in the parts before."""
        for vector in {name.rpartition("_")[0] for name in self.columns.names}:
            width = part.vector_width(vector)
            if width and widths.setdefault(vector, width) != width:
                where = f"{self.where}, row {part.n_read + 1}, column {vector!r}"
                raise BadInput(f"{where}: a vector of {width} numbers, expected {widths[vector]}")

    def converted(
        self, part: Part, following: Part | Following | None, previous: RowBefore
    ) -> NDArray[Any]:
        """Return the rows of a part that are kept.

        Args:
            part: The part.
            following: The part after it, None for the last one. If it is unknown, the last row ends
                no episode by that part, and may lack an action.
            previous: The row before it; becomes the last row of the part.

        Raises:
            BadInput: At an invalid value, with its row and column.
        """
        values = part.values()
        t = part.times()
        borders = self._borders(part, following, values, t, previous)
        gaps = borders.breaks | self._late(part, t, borders.begins, previous)
        adds_rows = borders.is_terminal_after | borders.is_cut_after
        is_last = borders.ends & ~adds_rows
        if following is Following.UNKNOWN and part.lacks_last_action:
            is_last[-1] = not adds_rows[-1]
        is_terminal = borders.is_terminal & ~borders.is_terminal_after

        rows = new_rows(part.n_rows, len(self.columns.channel))
        rows["observation"] = self._readings(part, values)
        rows["pose"] = np.nan
        rows["step"] = self._steps(part, borders.begins, adds_rows, previous)
        if t is None:
            rows["t"] = rows["step"] * self.columns.times.period_s
        else:
            rows["t"] = t
        self._set_phase_and_flags(part, rows, is_last, gaps, is_terminal)
        self._copy_fields(part, rows)
        if not self._drops:
            self._refuse_missing(part, rows, t)
        self._set_actions(part, rows, borders.is_kept)
        self._check_terminal_actions(part, borders.is_terminal)
        own_observations = self._move_readings(rows, borders.breaks, previous)
        next_rewards = self._set_rewards(part, rows, borders.breaks, previous)
        if self.counts_each_reward:
            self._refuse_lost_rewards(part, borders, is_last)
        kept_rows = rows[borders.is_kept]
        if self.behaviour is not None:
            policy, interface = self.behaviour
            previous.held = previous.held or HeldReadings(interface)
            _act_by(policy, interface, kept_rows, previous.held)
        if adds_rows.any():
            kept_rows = self._with_end_rows(kept_rows, borders, own_observations, next_rewards)
        self._fit.add_rows(kept_rows, int((borders.begins & borders.is_kept).sum()))
        if following is None and self.behaviour is None:
            self.end = self._position_behind(part, kept_rows, borders, previous)
        return kept_rows

    def _position_behind(
        self, part: Part, kept_rows: NDArray[Any], borders: _Borders, previous: RowBefore
    ) -> Position:
        """Return the place behind the last part of the table; its last row may have an action that counts.

        Args:
            part: The part.
            kept_rows: Its rows that are kept.
            borders: Of its rows.
            previous: Its last row.
        """
        place = Position(previous.copy(), part.n_read + part.n_rows)
        if not borders.ends_only_here:
            return place
        place.previous.set_newest("ends", False)
        if not borders.is_kept[-1] or kept_rows["phase"][-1] != Phase.END:
            return place
        *_, row = rows_in(kept_rows[-1:])
        actions = part.actions
        action = 0.0
        b = 1.0
        if actions.number is not None:
            action = actions.number[-1]
        if actions.b is not None:
            b = actions.b[-1]
        if not (actions.is_valid[-1] and actions.has_b[-1]):
            return place._replace(follows_gap=True, lacks_action=True)
        return place._replace(open=row._replace(phase=Phase.BEHAVE, action=int(action), b=float(b)))

    @property
    def _drops(self) -> bool:
        return self.columns.missing == MISSING_GAP

    def _borders(
        self,
        part: Part,
        following: Part | Following | None,
        values: Floats,
        t: Floats | None,
        previous: RowBefore,
    ) -> _Borders:
        """Return which rows are kept, and where episodes begin and end."""
        is_kept: Bools = np.ones(part.n_rows, dtype=bool)
        if self._drops:
            is_needed = [not channel.lost for channel in self.columns.channel]
            is_kept = np.asarray(np.isfinite(values[:, is_needed]).all(axis=1))
            if t is not None:
                is_kept &= np.isfinite(t)
        is_terminal: Bools = part.marks("terminated", is_kept) & is_kept
        is_truncated = part.marks("truncated", is_kept)
        is_terminal &= ~self._are_truncated_alone(part, is_terminal & is_truncated)
        ends = self._ends(part, following, previous) | is_terminal | is_truncated
        ends_only_here = False
        if following is None and self.columns.run.phase is None:
            ends_only_here = not ends[-1]
            ends[-1] = True
        begins = previous.of("ends", ends, first=True)
        follows_dropped = ~previous.of("is_kept", is_kept, first=True)
        if not is_kept.all():
            self._fit.add_dropped(
                int((~is_kept).sum()),
                int((follows_dropped & ~begins).sum()),
                self._first_dropped(part, values, int(is_kept.argmin())),
            )
        is_terminal_after = np.zeros(part.n_rows, dtype=bool)
        if self.columns.episodes.convention == TRANSITION:
            is_terminal_after = is_terminal
        is_cut_after = np.zeros(part.n_rows, dtype=bool)
        if self.counts_each_reward:
            is_cut_after = self._are_cut_after(part, ends & is_kept & ~is_terminal)
        return _Borders(
            is_kept=is_kept,
            begins=begins,
            breaks=begins | follows_dropped,
            ends=ends,
            is_terminal=is_terminal,
            is_terminal_after=is_terminal_after,
            is_cut_after=is_cut_after,
            ends_only_here=ends_only_here,
        )

    def _readings(self, part: Part, values: Floats) -> NDArray[np.float32]:
        """Return the readings of the channels' numbers, shape (n_rows, n_channels); raise BadInput at a rounded one."""
        if part.has_floats_alone:
            # All channels at once: a stream has one row at a time
            origins, scales = self._shifts
            shifted = (values - origins) * scales
            is_kept = cells.are_near_float32(shifted, self._spans) | ~np.isfinite(values)
            if is_kept.all():
                return np.asarray(shifted, dtype=np.float32)
        readings = np.empty(values.shape, dtype=np.float32)
        for i, (channel, column) in enumerate(
            zip(self.columns.channel, part.channels, strict=True)
        ):
            is_kept = cells.are_kept_by_float32(
                column, values[:, i], self._span(channel), channel.shift
            )
            if not is_kept.all():
                advice = self._shift_advice(channel, column, values[:, i])
                part.check(is_kept, channel.column, advice)
            readings[:, i] = channel.shift.readings(values[:, i])
        return readings

    @cached_property
    def _shifts(self) -> Floats:
        """Origins and scales of the channels, shape (2, n_channels)."""
        return np.array([channel.shift for channel in self.columns.channel]).T

    @cached_property
    def _spans(self) -> Floats:
        """Range of each channel's readings, shape (n_channels,)."""
        return np.array([self._span(channel) for channel in self.columns.channel])

    def _span(self, channel: ChannelColumn) -> float:
        """Return the range of a channel's readings, without the rounding of its ends to float32."""
        assert channel.low is not None
        assert channel.high is not None
        extremes = self._extremes.get(channel.name)
        if extremes is None or cells.is_rounding(*extremes):
            return channel.high - channel.low
        return extremes.highest - extremes.lowest

    def _shift_advice(self, channel: ChannelColumn, column: Cells, values: Floats) -> str:
        """Return what to do about the values of a column that float32 does not hold."""
        extremes = self._extremes.get(channel.name)
        if extremes is not None:
            values = np.append(values, channel.shift.values(np.array(extremes)))
        must = "would be rounded, because a reading is stored with 24 binary digits: "
        shift = cells.shift_for(values)
        if shift is None or cells.are_merged(column, values[: len(column)]).any():
            return must + "divide the column, or leave it out"
        keys = f"origin = {shift.origin!r}"
        if shift.scale != 1.0:
            keys += f" and scale = {shift.scale!r}"
        return (
            f"{must}write {keys} in its [[channel]], or subtract {shift.origin!r} from the column; the reading is then "
            "(value - origin) x scale"
        )

    def _are_truncated_alone(self, part: Part, are_both: Bools) -> Bools:
        """Return which rows with both marks did not terminate; raise BadInput if the columns do not say it."""
        ending = self.columns.episodes.both
        if ending is None and are_both.any():
            must = (
                f'marks a row that is terminated, too: write both = "{TRUNCATED}" if `terminated` is true at any end '
                f'of an episode, as a done, or "{TERMINATED}" if its last state is terminal'
            )
            part.check(~are_both, self.columns.others["truncated"], must)
        return are_both & (ending == TRUNCATED)

    def _ends(self, part: Part, following: Part | Following | None, previous: RowBefore) -> Bools:
        """Return the last rows of episodes by their numbers and counters, shape (n_rows,)."""
        ends = np.zeros(part.n_rows, dtype=bool)
        if self.columns.run.phase is not None:
            return ends
        name = self.columns.episodes.episode
        if name is not None:
            episode = part.whole_numbers(name, "must be the number of an episode, a whole number")
            episode_before = previous.of("episode", episode, first=cells.cell_at(episode, 0))
            increases = np.asarray(episode >= episode_before, dtype=bool)
            part.check(increases, name, "must not decrease: sort the rows by episode")
            ends[:-1] |= (episode[1:] != episode[:-1]).astype(bool)
        if self.columns.episodes.episode_step is not None:
            ends[:-1] |= self._restarts(part, previous)
        if isinstance(following, Part):
            ends[-1] |= self.begins_episode(following, previous)
        return ends

    def begins_episode(self, part: Part, previous: RowBefore) -> bool:
        """Return whether the first row of a part begins an episode, by its number or counter.

        Raises:
            BadInput: If the number is no whole number.
        """
        columns = self.columns.episodes
        begins = False
        number_before = previous.newest("episode")
        if columns.episode is not None and number_before is not None:
            must = "must be the number of an episode"
            number = cells.cell_at(part.whole_numbers(columns.episode, must), 0)
            begins = bool(number != number_before)
        if columns.episode_step is not None:
            count = cells.as_numbers(part.column(columns.episode_step)[:1])[0]
            begins |= bool(count <= previous.count)
        return begins

    def _restarts(self, part: Part, previous: RowBefore) -> Bools:
        """Return the rows but the last one after which the counter of an episode's steps does not increase."""
        column = self.columns.episodes.episode_step
        assert column is not None
        counts = cells.as_numbers(part.column(column))
        is_count = np.isfinite(counts)
        if not self._drops:
            part.check(is_count, column, "must be a number, which starts again in each episode")
        # Cells without a number repeat the one before them
        places = np.maximum.accumulate(np.where(is_count, np.arange(part.n_rows), -1))
        newest = np.where(places < 0, previous.count, counts[places])
        previous.count = float(newest[-1])
        return np.asarray(counts[1:] <= newest[:-1])

    def _late(self, part: Part, t: Floats | None, begins: Bools, previous: RowBefore) -> Bools:
        """Return which rows come late, or earlier than the row before, shape (n_rows,)."""
        if t is None:
            return np.zeros(part.n_rows, dtype=bool)
        columns = self.columns.times
        assert columns.time is not None
        since_s: Floats = t - previous.of("t", t, first=np.nan)
        is_back = (since_s <= 0) & ~begins
        if not self._drops:
            must = (
                "must increase within an episode: sort the rows by time, or, if it starts again in each episode, write "
                f"episode_step = {toml_value(columns.time)}"
            )
            part.check(~is_back, columns.time, must)
        column = part.column(columns.time, may_be_dates=True)
        resolution_s = cells.resolution(column, t) * columns.unit_s
        is_late = is_back | ((since_s - resolution_s > LATE * columns.period_s) & ~begins)
        self._fit.add_spacings(since_s[~begins], is_late[~begins], resolution_s[~begins])
        return is_late

    def _steps(
        self, part: Part, begins: Bools, adds_rows: Bools, previous: RowBefore
    ) -> NDArray[np.int64]:
        """Return the number of the step of each row, shape (n_rows,).

        Without a column, an episode begins at the step at which the one before it ended.
        """
        name = self.columns.times.step
        if name is not None:
            steps = part.whole_numbers(name, "must be the number of a step, a whole number")
            is_valid = np.asarray(steps >= previous.of("step", steps, first=-1), dtype=bool)
            must = (
                "must not decrease: sort the rows, or, if it starts again in each episode, name it by episode_step "
                "instead"
            )
            part.check(is_valid, name, must)
            is_small = np.asarray(steps < _STEPS_END, dtype=bool)
            part.check(is_small, name, f"must be below {_STEPS_END:,}")
            return np.asarray(steps, dtype=np.int64)
        advances = ~begins | previous.of("adds_rows", adds_rows, first=True)
        steps = np.asarray(previous.step + np.cumsum(advances), dtype=np.int64)
        previous.step = int(steps[-1])
        return steps

    def _set_phase_and_flags(
        self, part: Part, rows: NDArray[Any], is_last: Bools, gaps: Bools, is_terminal: Bools
    ) -> None:
        rows["phase"] = np.where(is_last, int(Phase.END), int(Phase.BEHAVE))
        rows["flags"] = np.where(gaps, int(Flag.GAP), 0) | np.where(
            is_terminal, int(Flag.TERMINATED), 0
        )
        phase = part.numbers_below("phase", max(Phase) + 1, f"must be 0..{max(Phase):d}")
        if phase is not None:
            rows["phase"] = phase
        flags = part.numbers_below("flags", 256, "must be 0..255")
        if flags is not None:
            found_gaps = rows["flags"] & np.uint8(Flag.GAP)
            rows["flags"] = flags.astype(np.uint8)
            if phase is None:
                rows["flags"] |= found_gaps
            is_turn = (rows["flags"] & Flag.TURN) > 0
            rows["flags"][is_turn] |= np.uint8(Flag.GAP)  # a data set is one stream

    def _copy_fields(self, part: Part, rows: NDArray[Any]) -> None:
        """Write the fields of rows that a column has as they are."""
        for name in COPIED_FIELDS:
            numbers = part.numbers_of_type(name, rows.dtype[name])
            if numbers is not None:
                rows[name] = numbers

    def _refuse_missing(self, part: Part, rows: NDArray[Any], t: Floats | None) -> None:
        """Raise BadInput at a cell that is no number, or at an empty one if these are refused.

        Frames within a drive may be unknown.
        """
        is_needed = _IS_NEEDED[rows["phase"]]
        may_all_be_missing = self.columns.missing == MISSING_READING
        must = 'must be a finite number: correct it, or set missing = "gap" to drop such rows'
        if may_all_be_missing:
            must = f"{must}; an empty cell is a missing reading"
        are_finite = np.isfinite(rows["observation"])
        for i in np.flatnonzero(~are_finite.all(axis=0)):
            channel = self.columns.channel[i]
            must_be = must
            if channel.categories:
                must_be = f"is none of the categories {', '.join(channel.categories)}"
            is_valid = are_finite[:, i]
            if may_all_be_missing or channel.lost:
                is_valid |= part.are_missing(channel)
            part.check(~is_needed | is_valid, channel.column, must_be)
        if t is not None:
            assert self.columns.times.time is not None
            is_time = np.isfinite(t)
            part.check(~is_needed | is_time, self.columns.times.time, f"must be {_TIMES}")

    def _set_actions(self, part: Part, rows: NDArray[Any], is_kept: Bools) -> None:
        acted = _IS_ACTED[rows["phase"]] & is_kept
        rows["action"] = np.where(acted, 0, NO_ACTION)
        rows["b"] = np.where(acted, 1.0, np.nan)
        columns = self.columns.actions
        actions = part.actions
        if actions.number is not None:
            assert columns.action is not None
            n = len(columns.actions)
            must = f"must be a whole number in 0..{n - 1}"
            if n == 1:
                must = "must be 0, the only action: actions are numbered from 0"
            if self._has_action_names:
                must = f"{must}, or the name of an action: {listed(columns.actions)}"
            else:
                must = f"{must}; texts need `actions`, in Python `action_names`, their names"
            part.check(~acted | actions.is_valid, columns.action, must)
            rows["action"] = np.where(acted, actions.number, NO_ACTION)
        if actions.b is not None:
            assert columns.b is not None
            must = "must be in (0, 1], the probability of the action that was taken"
            part.check(~acted | actions.has_b, columns.b, must)
            rows["b"] = np.where(acted, actions.b, np.nan)

    def _check_terminal_actions(self, part: Part, is_terminal: Bools) -> None:
        """Raise BadInput if a terminal row has an action and a b, unless `convention` says what that means."""
        columns = self.columns.episodes
        actions = part.actions
        if columns.convention is not None or actions.number is None or not is_terminal.any():
            return
        has_action = is_terminal & actions.is_valid
        if actions.b is None:
            self._fit.add_ignored(int(has_action.sum()))
            return
        must = (
            'marks a terminal row that has an action and a b: write convention = "transition" if the action led to a '
            f'terminal state, as in rows (s, a, r, done), or "{OBSERVATION}" if the row\'s observation is terminal'
        )
        assert columns.terminated is not None
        part.check(~(has_action & actions.has_b), columns.terminated, must)

    def _move_readings(
        self, rows: NDArray[Any], breaks: Bools, previous: RowBefore
    ) -> NDArray[np.float32]:
        """Move the readings of transitions to the rows to which they led; return where each row's transition led.

        Args:
            rows: Rows of a recording, shape (n_rows,), changed in place.
            breaks: Which rows do not follow from the row before, shape (n_rows,).
            previous: The row before the first one.

        Returns:
            The observations with the readings before they were moved, shape (n_rows, n_channels).
        """
        moved = [i for i, channel in enumerate(self.columns.channel) if channel.transition]
        if not moved:
            return np.asarray(rows["observation"])
        observations = rows["observation"].copy()
        led_here = previous.of("readings", observations[:, moved], first=[_NO_READING] * len(moved))
        led_here[breaks] = _NO_READING
        rows["observation"][:, moved] = led_here
        return np.asarray(observations)

    def _set_rewards(
        self, part: Part, rows: NDArray[Any], breaks: Bools, previous: RowBefore
    ) -> Floats:
        """Write the reward of the transition to each row, NaN if it is unknown or no transition led there.

        Args:
            part: The part of the table.
            rows: Rows of a recording, shape (n_rows,), changed in place.
            breaks: Which rows do not follow from the row before, shape (n_rows,).
            previous: The row before the first one.

        Returns:
            The reward of each row's action, NaN if unknown, shape (n_rows,).
        """
        next_rewards = np.full(len(rows), np.nan)
        rewards = part.numbers("reward")
        own_rewards = part.numbers("next_reward")
        if own_rewards is not None:
            next_rewards = own_rewards.astype(np.float64)
            rewards = previous.of("next_reward", next_rewards, first=np.nan)
        if rewards is not None:
            rows["reward"] = np.where(breaks, np.nan, rewards)
        return next_rewards

    def _are_cut_after(self, part: Part, is_last: Bools) -> Bools:
        """Return which of the last rows have an action, its b and its reward, shape (n_rows,)."""
        column = self.columns.reward_column(is_of_action=True)
        if column is None or self.columns.episodes.convention == OBSERVATION:
            return np.zeros(part.n_rows, dtype=bool)
        has_reward = np.isfinite(cells.as_numbers(part.column(column)))
        actions = part.actions
        return np.asarray(is_last & has_reward & actions.is_valid & actions.has_b)

    def _refuse_lost_rewards(self, part: Part, borders: _Borders, is_last: Bools) -> None:
        """Raise BadInput at a reward of no step: of the last row's action, or of a transition to the first row."""
        of_action = self.columns.reward_column(is_of_action=True)
        if of_action is not None:
            is_lost = is_last & borders.is_kept & _are_rewards(part, of_action)
            must = (
                "is the reward of no step, because the row ends its episode without an action that counts: write "
                f'convention = "{TRANSITION}" if its action was taken, or name the column by `reward` if it is the '
                "reward of the transition that led to the row"
            )
            part.check(~is_lost, of_action, must)
            return
        of_arrival = self.columns.reward_column(is_of_action=False)
        if of_arrival is not None and self.columns.run.phase is None:
            is_lost = borders.begins & borders.is_kept & _are_rewards(part, of_arrival)
            must = (
                "is the reward of no step, because no transition led to the first row of an episode: name the column "
                "by `next_reward` if it is the reward of the row's action, or leave this cell empty"
            )
            part.check(~is_lost, of_arrival, must)

    def _first_dropped(self, part: Part, values: Floats, i: int) -> str:
        """Return the place of the first dropped row, i, and the text of its first cell that is no number."""
        are_lost = [channel.lost for channel in self.columns.channel]
        is_number = np.isfinite(values[i]) | are_lost
        if not is_number.all():
            name = self.columns.channel[int(is_number.argmin())].column
            must = " is no number"
        else:
            assert self.columns.times.time is not None
            name = self.columns.times.time
            must = f" must be {_TIMES}"
        text = cells.shown(cells.cell_at(part.column(name, may_be_dates=True), i))
        return f"the first is row {part.n_read + i + 1}, column {name!r}: {text}{must}"

    def _with_end_rows(
        self,
        rows: NDArray[Any],
        borders: _Borders,
        own_observations: NDArray[np.float32],
        next_rewards: Floats,
    ) -> NDArray[Any]:
        """Return rows of a recording with a row after each of some, which ends the episode.

        A terminal state is unknown, and nothing is predicted from it: its observation repeats that of
        the row before. That of a truncated episode is NaN.

        Args:
            rows: The rows that are kept, shape (n_kept,).
            borders: Of all rows.
            own_observations: Of all rows, with the reading of each row's action, shape (n_rows,
                n_channels).
            next_rewards: Reward of each row's action, NaN if unknown, shape (n_rows,).
        """
        is_before = borders.is_terminal_after | borders.is_cut_after
        is_cut = borders.is_cut_after[is_before]
        end_rows = rows[is_before[borders.is_kept]].copy()
        end_rows["observation"] = own_observations[is_before]
        for i, channel in enumerate(self.columns.channel):
            if not channel.transition:
                end_rows["observation"][is_cut, i] = np.nan
        end_rows["reward"] = next_rewards[is_before]
        end_rows["step"] += 1
        end_rows["t"] += self.columns.times.period_s
        end_rows["action"] = NO_ACTION
        end_rows["b"] = np.nan
        end_rows["phase"] = int(Phase.END)
        end_rows["flags"] = np.where(is_cut, int(Flag.TRUNCATED), int(Flag.TERMINATED))
        return np.insert(rows, np.flatnonzero(is_before[borders.is_kept]) + 1, end_rows)


class _Borders(NamedTuple):
    """Which rows of a part of a table are kept, and where episodes begin and end; all have shape (n_rows,).

    Attributes:
        is_kept: Which rows lack no number, or may lack one.
        begins: Which begin an episode.
        breaks: Which do so, or follow a dropped row.
        ends: Which end an episode.
        is_terminal: Which are marked as terminal.
        is_terminal_after: Which have an action that led to a terminal state.
        is_cut_after: Which have an action after which the episode was truncated.
        ends_only_here: Whether the last one ends an episode only because the table ends there.
    """

    is_kept: Bools
    begins: Bools
    breaks: Bools
    ends: Bools
    is_terminal: Bools
    is_terminal_after: Bools
    is_cut_after: Bools
    ends_only_here: bool


class _Extremes(NamedTuple):
    """The smallest and the largest reading of a channel in a table, float64."""

    lowest: float
    highest: float


def _with_range(channel: ChannelColumn, lowest: float, highest: float) -> ChannelColumn:
    """Return a channel with the range of its readings, as float32, unless a range was given."""
    with np.errstate(over="ignore"):
        low = float(np.float32(lowest))
        high = float(np.float32(highest))
    if not low < high:
        high = low + 1.0
    if channel.low is not None:
        low = channel.low
    if channel.high is not None:
        high = channel.high
    return channel._replace(low=low, high=high)


def _finite(bound: float | None) -> float | None:
    """Return a bound for a header, in which None stands for an infinite or unknown one."""
    if bound is None or not np.isfinite(bound):
        return None
    return bound


def _are_rewards(part: Part, column: str) -> Bools:
    """Return which cells of a column change a return: numbers other than 0, shape (n_rows,)."""
    values = cells.as_numbers(part.column(column))
    return np.asarray(np.isfinite(values) & (values != 0.0))


def _act_by(policy: Policy, interface: Interface, rows: NDArray[Any], held: HeldReadings) -> None:
    """Write b of a policy into the rows with an action; `held` has the readings before them."""
    begins = (rows["flags"] & Flag.GAP) != 0
    filled = filled_rows(rows["observation"], begins, interface, held)
    for i in np.flatnonzero(rows["phase"] == Phase.BEHAVE).tolist():
        tiles = interface.encode(filled.for_tiles[i])
        action = int(rows["action"][i])
        b = float(policy.probabilities(filled.known[i].astype(np.float64), tiles)[action])
        if not 0.0 < b <= 1.0:
            where = f"action {action} of step {rows['step'][i]:,}"
            raise BadInput(
                f"the policy given as b gives {where} the probability {b}, expected one in (0, 1]"
            )
        rows["b"][i] = b


class RowBefore:
    """The row before a part of the table.

    Attributes:
        step: Number of its step, if steps are counted.
        count: The newest counter of an episode's steps.
        held: The last reading of each channel, for a policy that gives b; None without one.
    """

    def __init__(self) -> None:
        self.step = -1
        self.count = np.nan
        self.held: HeldReadings | None = None
        self._values: dict[str, NDArray[Any]] = {}

    def of(self, name: str, values: NDArray[Any], *, first: Any) -> NDArray[Any]:
        """Return for each row the value of the row before it, shape as `values`; `first` for that of the table."""
        value_before = self._values.get(name, np.array([first]))
        self._values[name] = values[-1:].copy()
        if (
            value_before.dtype.kind != values.dtype.kind
        ):  # two kinds of whole numbers would be floats
            value_before = value_before.astype(object)
            values = values.astype(object)
        return np.concatenate([value_before, values[:-1]])

    def newest(self, name: str) -> Any:
        """Return the value of the row; None if there is none."""
        values = self._values.get(name)
        if values is None:
            return None
        return cells.cell_at(values, 0)

    def set_newest(self, name: str, value: float | bool) -> None:
        """Set a value of the row."""
        self._values[name] = np.array([value])

    def end_episode(self) -> None:
        """Set that it is the last row of its episode."""
        self.set_newest("ends", True)

    def copy(self) -> RowBefore:
        """Return a copy; the arrays are shared, and never changed."""
        row = RowBefore()
        vars(row).update(vars(self))
        row._values = dict(self._values)
        return row

    def state(self) -> dict[str, Any]:
        """Return everything, in JSON types, with null for NaN."""
        values = {name: _plain(array.tolist()) for name, array in self._values.items()}
        return {"step": self.step, "count": _plain(self.count), "values": values}

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> RowBefore:
        """Return the row whose `state` this is."""
        row = cls()
        row.step = int(state["step"])
        row.count = float(_with_nan(state["count"]))
        row._values = {
            name: np.array(_with_nan(values)) for name, values in state["values"].items()
        }
        return row


def _plain(value: Any) -> Any:
    """Return a number, or numbers in lists, with None for NaN."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and np.isnan(value):
        return None
    return value


def _with_nan(value: Any) -> Any:
    """Return what `_plain` had, with NaN for None."""
    if isinstance(value, list):
        return [_with_nan(each) for each in value]
    if value is None:
        return np.nan
    return value


# ---- episodes of a recording, for other formats ----------------------------------------------------------------------

Predict = Callable[[Stream], Floats]
"""Returns the predictions at each row of a stream, shape (n_rows, n_demons)."""


class Episode(NamedTuple):
    """Consecutive transitions of which each was learned from: n of them, and n + 1 rows."""

    step: NDArray[np.int64]  # number of the step, shape (n + 1,)
    observation: NDArray[np.float32]  # shape (n + 1, n_channels)
    action: NDArray[np.int64]  # action taken from each row but the last, shape (n,)
    b: Floats  # its probability, NaN in the last row, shape (n + 1,)
    reward: Floats  # of each action, NaN if unknown, shape (n,)
    is_terminated: bool  # whether the last observation is terminal
    predictions: NDArray[np.float32] | None  # shape (n + 1, n_demons); None if they are unknown


def episodes_of(parts: Iterable[Stream], predict: Predict | None = None) -> Iterator[Episode]:
    """Yield the episodes of a recording; an excursion, a drive, a gap and a termination end one."""
    remaining: NDArray[Any] | None = None
    for part in parts:
        if remaining is None:
            rows = part.rows
        else:
            rows = np.concatenate([remaining, part.rows])
        borders = borders_of(rows)
        for first, end in zip(borders.first[:-1].tolist(), borders.end[:-1].tolist(), strict=True):
            if end - first > 1:
                yield _episode(rows[first:end], predict)
        remaining = rows[borders.first[-1] :]
    if remaining is not None and len(remaining) > 1:
        yield _episode(remaining, predict)


def _episode(rows: NDArray[Any], predict: Predict | None) -> Episode:
    predictions = None
    if predict is not None:
        predictions = predict(Stream(rows)).astype(np.float32)
    return Episode(
        step=rows["step"].copy(),
        observation=rows["observation"].copy(),
        action=rows["action"][:-1].astype(np.int64),
        b=np.append(rows["b"][:-1], np.nan),
        reward=rows["reward"][1:].copy(),
        is_terminated=bool(rows["flags"][-1] & Flag.TERMINATED),
        predictions=predictions,
    )
