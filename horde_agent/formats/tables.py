"""A table with a row per step as a stream that can be learned from, without holding it in memory.

Row t has the observation after t steps, the action taken *from* it, and b, the probability of that
action. The last observation of an episode has no action. Rows of transitions, (s, a, r, done), are
converted to this order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.formats import cells
from horde_agent.formats.cells import NO_SHIFT, Cells
from horde_agent.formats.columns import (
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
    layout_without_transitions,
)
from horde_agent.formats.fit import LATE, TableFit
from horde_agent.interface import Interface
from horde_agent.life.flags import borders_of
from horde_agent.policies import Policy
from horde_agent.record import NO_ACTION, Flag, Phase, Stream, new_rows, row_dtype
from horde_agent.refusals import BadInput
from horde_agent.toml import toml_value
from horde_agent.types import Bools, Floats

Chunk = Mapping[str, NDArray[Any]]
"""Columns by name, of cells or of vectors: shape (n_rows,) or (n_rows, n)."""

CHUNK_ROWS = 32_768
_ACTED = (int(Phase.BEHAVE), int(Phase.EXCURSION))
_LARGEST_ACTION = np.iinfo(row_dtype(1)["action"]).max
_NO_READING = 0.0
"""Reading of a channel of transitions in the first row of an episode, to which no transition led."""
_TIMES = "seconds, a number, or a date such as 2026-01-31T12:00:00"
_ARGUMENTS = {"terminated": "terminations", "truncated": "truncations"}  # of `learn_from`
_STEPS_END = 2**62
_POLICIES_END = 2**32


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
            last row counts with its reward, by a row after it whose observation is unknown (NaN),
            and a reward that belongs to no step is refused. Learning needs neither: it needs the
            state that an action led to.
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
        self._has_action_names = bool(columns.actions)
        if columns.tile_layout is None:
            columns = replace(columns, tile_layout=layout_without_transitions(columns.channel))
        is_open = any(c.low is None or c.high is None for c in columns.channel)
        self.columns = columns
        if is_open or (columns.action is not None and not columns.actions):
            self.columns = self._with_ranges(columns)
        self.behaviour: tuple[Policy, Interface] | None = None
        self.b_estimate: dict[str, float] | None = None
        self.counts_each_reward = False
        self._fit = self._new_fit()

    def _new_fit(self) -> TableFit:
        knows_b = self.columns.b is not None or self.behaviour is not None
        return TableFit(
            self.where,
            self.columns.period_s,
            has_action_names=self._has_action_names,
            knows_b=knows_b,
            reward=self.columns.next_reward or self.columns.reward,
        )

    @property
    def remarks(self) -> list[str]:
        """What the user should see at once; complete after the table was read."""
        return [*self._reward_remarks(), *self._mark_remarks(), *self._fit.remarks()]

    def _mark_remarks(self) -> list[str]:
        """Say if a mark of the ends of episodes is read as a sensor."""
        usual_names = {"terminated": TERMINATED_NAMES, "truncated": TRUNCATED_NAMES}
        unnamed = {
            key: names for key, names in usual_names.items() if getattr(self.columns, key) is None
        }
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
        if self.columns.convention != TRANSITION or any(channel.transition for channel in channels):
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
        low, high = (
            [None if x is None or not np.isfinite(x) else x for x in bounds]
            for bounds in ([c.low for c in columns.channel], [c.high for c in columns.channel])
        )
        described = [
            {
                "name": c.name,
                "group": c.group,
                "unit": c.unit,
                "is_sensor": c.sensor,
                "step": c.step,
            }
            for c in columns.channel
        ]
        is_density = any((c.name, c.group) == ("b", "action") for c in columns.channel)
        return {
            "channels": described,
            "actions": list(columns.actions) or ["unknown"],
            "period_s": columns.period_s,
            "low": low,
            "high": high,
            "tile_layout": columns.tile_layout,
            "notes": self.notes,
            "tests_excursions": columns.tests_excursions,
            "b_known": columns.b is not None or self.behaviour is not None or is_density,
            "reward_known": columns.reward is not None or columns.next_reward is not None,
            **self._shifts(),
            **({} if self.b_estimate is None else {"b_estimate": self.b_estimate}),
        }

    def _shifts(self) -> dict[str, Any]:
        """Return origin and scale of the channels that have them, for the header."""
        shifts = {c.name: list(c.shift) for c in self.columns.channel if c.shift != NO_SHIFT}
        if not shifts:
            return {}
        return {SHIFTS: shifts}

    def _with_ranges(self, columns: Columns) -> Columns:
        """Read the table once for unknown ranges and the number of actions."""
        names = [channel.column for channel in columns.channel]
        low = np.full(len(names), np.inf)
        high = np.full(len(names), -np.inf)
        first_cells: dict[str, str] = {}
        n_actions = 0
        for part in self._parts():
            for i, (name, channel) in enumerate(zip(names, columns.channel, strict=True)):
                values = part.values(channel)
                readings = channel.shift.readings(values)
                finite = readings[np.isfinite(readings)]
                if len(finite):
                    low[i] = min(low[i], finite.min())
                    high[i] = max(high[i], finite.max())
                else:
                    first_cells.setdefault(name, cells.shown(cells.cell_at(part.column(name), 0)))
            if columns.action is not None:
                actions = cells.as_numbers(part.column(columns.action))
                largest = np.nanmax(actions, initial=0.0)
                n_actions = max(n_actions, int(min(largest, _LARGEST_ACTION)) + 1)
        if not np.isfinite(low).all():
            name = names[int(np.isinf(low).argmax())]
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
        actions_found = tuple(f"action_{a}" for a in range(n_actions if columns.action else 0))
        return replace(columns, channel=tuple(channels), actions=columns.actions or actions_found)

    def __iter__(self) -> Iterator[Stream]:
        """Yield the rows in consecutive parts; raise BadInput at an invalid value, with its row and column.

        Raise NothingToLearn at the end if no row follows from the one before it.
        """
        self._fit = self._new_fit()
        header = self.header
        previous = _RowBefore()
        widths: dict[str, int] = {}
        for part, following in pairwise(chain(self._parts(), [None])):
            assert part is not None
            self._check_widths(part, widths)
            rows = self._rows(part, following, previous)
            if len(rows):
                yield Stream(rows, header)
        self._fit.finish()

    def _parts(self) -> Iterator[_Part]:
        """Yield the parts of the table that have rows."""
        n_read = 0
        for chunk in self._chunks():
            part = _Part(chunk, self.where, self.columns, n_read)
            n_read += part.n_rows
            if part.n_rows:
                yield part

    def check_fit(self) -> None:
        """Raise BadInput if the rows that were read do not fit the period, or no step can be learned from."""
        self._fit.finish()

    def _check_widths(self, part: _Part, widths: dict[str, int]) -> None:
        """Raise BadInput if the vectors of a column are longer or shorter than in the parts before."""
        for vector in {name.rpartition("_")[0] for name in self.columns.names}:
            width = part.vector_width(vector)
            if width and widths.setdefault(vector, width) != width:
                where = f"{self.where}, row {part.n_read + 1}, column {vector!r}"
                raise BadInput(f"{where}: a vector of {width} numbers, expected {widths[vector]}")

    def _rows(self, part: _Part, following: _Part | None, previous: _RowBefore) -> NDArray[Any]:
        """Return the rows of a part that are kept; `following` is the part after it, None for the last one."""
        columns = self.columns
        n = part.n_rows
        drops = columns.missing == "gap"

        observation, is_missing = self._observation(part)
        t = part.times()
        if t is not None and drops:
            is_missing |= ~np.isfinite(t)
        if drops:
            is_kept = ~is_missing
        else:
            is_kept = np.ones(n, dtype=bool)
        is_terminal = self._marked(part, "terminated", is_kept) & is_kept
        is_truncated = self._marked(part, "truncated", is_kept)
        is_terminal &= ~self._are_truncated_alone(part, is_terminal & is_truncated)
        ends = self._ends(part, following, previous) | is_terminal | is_truncated
        begins = previous.of("ends", ends, first=True)
        follows_dropped = ~previous.of("is_kept", is_kept, first=True)
        gaps = begins | follows_dropped | self._late(part, t, begins, previous)
        if not is_kept.all():
            first = self._first_dropped(part, is_kept)
            self._fit.add_dropped(
                int((~is_kept).sum()), int((follows_dropped & ~begins).sum()), first
            )

        rows = new_rows(n, len(columns.channel))
        rows["observation"] = observation
        rows["pose"] = np.nan
        is_terminal_after = is_terminal & (columns.convention == TRANSITION)
        is_cut_after = np.zeros(n, dtype=bool)
        if self.counts_each_reward:
            is_cut_after = self._are_cut_after(part, ends & is_kept & ~is_terminal)
        adds_rows = is_terminal_after | is_cut_after
        rows["step"] = self._steps(part, begins, adds_rows, previous)
        if t is None:
            rows["t"] = rows["step"] * columns.period_s
        else:
            rows["t"] = t
        is_last = ends & ~adds_rows
        self._set_phase_and_flags(part, rows, is_last, gaps, is_terminal & ~is_terminal_after)
        if not drops:
            self._refuse_missing(part, rows, observation, t)
        self._set_actions(part, rows, is_kept)
        self._check_terminal_actions(part, is_terminal & is_kept)
        own_observations = self._move_readings(rows, begins | follows_dropped, previous)
        next_rewards = self._set_rewards(part, rows, begins | follows_dropped, previous)
        if self.counts_each_reward:
            self._refuse_lost_rewards(part, begins & is_kept, is_last & is_kept)
        kept_rows = rows[is_kept]
        if self.behaviour is not None:
            _act_by(*self.behaviour, kept_rows)
        if adds_rows.any():
            end_observations = own_observations.copy()
            for i, channel in enumerate(columns.channel):
                if not channel.transition:
                    end_observations[is_cut_after, i] = np.nan
            kept_rows = _with_end_rows(
                kept_rows,
                is_terminal_after[is_kept],
                is_cut_after[is_kept],
                end_observations[is_kept],
                next_rewards[is_kept],
                columns.period_s,
            )
        self._fit.add_rows(kept_rows, int((begins & is_kept).sum()))
        return kept_rows

    def _observation(self, part: _Part) -> tuple[NDArray[np.float32], Bools]:
        """Return the observations, shape (n_rows, n_channels), and which rows lack one of their numbers, (n_rows,)."""
        channels = self.columns.channel
        observation = np.empty((part.n_rows, len(channels)), dtype=np.float32)
        is_missing = np.zeros(part.n_rows, dtype=bool)
        for i, channel in enumerate(channels):
            column = part.column(channel.column)
            values = part.values(channel)
            is_kept = cells.are_kept_by_float32(column, values, self._span(channel), channel.shift)
            if not is_kept.all():
                part.check(is_kept, channel.column, self._shift_advice(channel, column, values))
            observation[:, i] = channel.shift.readings(values)
            is_missing |= ~np.isfinite(values)
        return observation, is_missing

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

    def _marked(self, part: _Part, key: str, is_kept: Bools) -> Bools:
        """Return where the column that is an attribute of `Columns` says true, shape (n_rows,)."""
        column = self.columns.others.get(key)
        if column is None:
            return np.zeros(part.n_rows, dtype=bool)
        is_true, is_readable = cells.as_claims(part.column(column))
        part.check(is_readable | ~is_kept, column, "must be true or false")
        return is_true

    def _are_truncated_alone(self, part: _Part, are_both: Bools) -> Bools:
        """Return which rows with both marks did not terminate; raise BadInput if the columns do not say it."""
        if self.columns.both is None and are_both.any():
            must = (
                f'marks a row that is terminated, too: write both = "{TRUNCATED}" if `terminated` is true at any end '
                f'of an episode, as a done, or "{TERMINATED}" if its last state is terminal'
            )
            part.check(~are_both, self.columns.others["truncated"], must)
        return are_both & (self.columns.both == TRUNCATED)

    def _ends(self, part: _Part, following: _Part | None, previous: _RowBefore) -> Bools:
        """Return the last rows of episodes by their numbers and counters, and of the table, shape (n_rows,)."""
        ends = np.zeros(part.n_rows, dtype=bool)
        if self.columns.phase is not None:
            return ends
        ends[-1] = following is None
        if self.columns.episode is not None:
            episode = part.whole_numbers(
                self.columns.episode, "must be the number of an episode, a whole number"
            )
            episode_before = previous.of("episode", episode, first=cells.cell_at(episode, 0))
            increases = np.asarray(episode >= episode_before, dtype=bool)
            part.check(
                increases, self.columns.episode, "must not decrease: sort the rows by episode"
            )
            ends[:-1] |= (episode[1:] != episode[:-1]).astype(bool)
            if following is not None:
                further = following.whole_numbers(
                    self.columns.episode, "must be the number of an episode"
                )
                ends[-1] |= cells.cell_at(further, 0) != cells.cell_at(episode, -1)
        if self.columns.episode_step is not None:
            ends |= self._restarts(part, following, previous)
        return ends

    def _restarts(self, part: _Part, following: _Part | None, previous: _RowBefore) -> Bools:
        """Return the rows after which the counter of an episode's steps does not increase, shape (n_rows,)."""
        column = self.columns.episode_step
        assert column is not None
        counts = cells.as_numbers(part.column(column))
        is_count = np.isfinite(counts)
        if self.columns.missing == "error":
            part.check(is_count, column, "must be a number, which starts again in each episode")
        # Cells without a number repeat the one before them
        places = np.maximum.accumulate(np.where(is_count, np.arange(part.n_rows), -1))
        newest = np.where(places < 0, previous.count, counts[places])
        previous.count = float(newest[-1])
        next_count = np.array([np.nan])
        if following is not None:
            next_count = cells.as_numbers(following.column(column)[:1])
        return np.asarray(np.append(counts[1:], next_count) <= newest)

    def _late(self, part: _Part, t: Floats | None, begins: Bools, previous: _RowBefore) -> Bools:
        """Return which rows come late, or earlier than the row before, shape (n_rows,)."""
        if t is None:
            return np.zeros(part.n_rows, dtype=bool)
        columns = self.columns
        assert columns.time is not None
        since_s: Floats = t - previous.of("t", t, first=np.nan)
        is_back = (since_s <= 0) & ~begins
        if columns.missing == "error":
            must = (
                "must increase within an episode: sort the rows by time, or, if it starts again in each episode, write "
                f"episode_step = {toml_value(columns.time)}"
            )
            part.check(~is_back, columns.time, must)
        column = part.column(columns.time, may_be_dates=True)
        resolution_s = cells.resolution(column, t) * columns.time_unit_s
        is_late = is_back | ((since_s - resolution_s > LATE * columns.period_s) & ~begins)
        self._fit.add_spacings(since_s[~begins], is_late[~begins], resolution_s[~begins])
        return is_late

    def _steps(
        self, part: _Part, begins: Bools, adds_rows: Bools, previous: _RowBefore
    ) -> NDArray[np.int64]:
        """Return the number of the step of each row, shape (n_rows,).

        Without a column, an episode begins at the step at which the one before it ended.
        """
        if self.columns.step is not None:
            steps = part.whole_numbers(
                self.columns.step, "must be the number of a step, a whole number"
            )
            is_valid = np.asarray(steps >= previous.of("step", steps, first=-1), dtype=bool)
            must = (
                "must not decrease: sort the rows, or, if it starts again in each episode, name it by episode_step "
                "instead"
            )
            part.check(is_valid, self.columns.step, must)
            is_small = np.asarray(steps < _STEPS_END, dtype=bool)
            part.check(is_small, self.columns.step, f"must be below {_STEPS_END:,}")
            return np.asarray(steps, dtype=np.int64)
        advances = ~begins | previous.of("adds_rows", adds_rows, first=True)
        steps = np.asarray(previous.step + np.cumsum(advances), dtype=np.int64)
        previous.step = int(steps[-1])
        return steps

    def _set_phase_and_flags(
        self, part: _Part, rows: NDArray[Any], is_last: Bools, gaps: Bools, is_terminal: Bools
    ) -> None:
        columns = self.columns
        rows["phase"] = np.where(is_last, int(Phase.END), int(Phase.BEHAVE))
        rows["flags"] = np.where(gaps, int(Flag.GAP), 0) | np.where(
            is_terminal, int(Flag.TERMINATED), 0
        )
        if columns.phase is not None:
            phase = cells.as_numbers(part.column(columns.phase))
            part.check(np.isin(phase, list(Phase)), columns.phase, f"must be 0..{max(Phase):d}")
            rows["phase"] = phase
        if columns.flags is not None:
            flags = cells.as_numbers(part.column(columns.flags))
            is_valid = (flags >= 0) & (flags < 256) & (flags == np.floor(flags))
            part.check(is_valid, columns.flags, "must be 0..255")
            found_gaps = rows["flags"] & np.uint8(Flag.GAP)
            rows["flags"] = flags.astype(np.uint8)
            if columns.phase is None:
                rows["flags"] |= found_gaps
            is_turn = (rows["flags"] & Flag.TURN) > 0
            rows["flags"][is_turn] |= np.uint8(Flag.GAP)  # a data set is one stream
        if columns.policy is not None:
            policy = cells.as_numbers(part.column(columns.policy))
            is_valid = (policy >= 0) & (policy < _POLICIES_END) & (policy == np.floor(policy))
            part.check(
                is_valid, columns.policy, "must be the number of a policy, as in a recorded run"
            )
            rows["policy"] = policy

    def _refuse_missing(
        self, part: _Part, rows: NDArray[Any], observation: NDArray[np.float32], t: Floats | None
    ) -> None:
        """Raise BadInput if a number is missing that is learned from; frames within a drive may be unknown."""
        is_needed = np.isin(rows["phase"], (*_ACTED, int(Phase.END)))
        must = 'must be a finite number: correct it, or set missing = "gap" to drop such rows'
        for channel, values in zip(self.columns.channel, observation.T, strict=True):
            must_be = must
            if channel.categories:
                must_be = f"is none of the categories {', '.join(channel.categories)}"
            part.check(~is_needed | np.isfinite(values), channel.column, must_be)
        if t is not None:
            assert self.columns.time is not None
            part.check(~is_needed | np.isfinite(t), self.columns.time, f"must be {_TIMES}")

    def _set_actions(self, part: _Part, rows: NDArray[Any], is_kept: Bools) -> None:
        acted = np.isin(rows["phase"], _ACTED) & is_kept
        rows["action"] = np.where(acted, 0, NO_ACTION)
        rows["b"] = np.where(acted, 1.0, np.nan)
        action = part.numbers("action")
        if action is not None:
            n = len(self.columns.actions)
            must = f"must be a whole number in 0..{n - 1}"
            if n == 1:
                must = "must be 0, the only action: actions are numbered from 0"
            part.check(~acted | _is_action(action, n), self.columns.others["action"], must)
            rows["action"] = np.where(acted, action, NO_ACTION)
        b = part.numbers("b")
        if b is not None:
            must = "must be in (0, 1], the probability of the action that was taken"
            part.check(~acted | _is_probability(b), self.columns.others["b"], must)
            rows["b"] = np.where(acted, b, np.nan)

    def _check_terminal_actions(self, part: _Part, is_terminal: Bools) -> None:
        """Raise BadInput if a terminal row has an action and a b, unless `convention` says what that means."""
        action = part.numbers("action")
        if self.columns.convention is not None or action is None or not is_terminal.any():
            return
        has_action = is_terminal & _is_action(action, len(self.columns.actions))
        b = part.numbers("b")
        if b is None:
            self._fit.add_ignored(int(has_action.sum()))
            return
        must = (
            'marks a terminal row that has an action and a b: write convention = "transition" if the action led to a '
            f'terminal state, as in rows (s, a, r, done), or "{OBSERVATION}" if the row\'s observation is terminal'
        )
        part.check(~(has_action & _is_probability(b)), self.columns.others["terminated"], must)

    def _move_readings(
        self, rows: NDArray[Any], breaks: Bools, previous: _RowBefore
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
        self, part: _Part, rows: NDArray[Any], breaks: Bools, previous: _RowBefore
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

    def _reward_column(self, *, is_of_action: bool) -> str | None:
        """Return the column with the rewards of the rows' actions, or of the transitions to them; None without one."""
        columns = self.columns
        named = columns.next_reward if is_of_action else columns.reward
        if named is not None:
            return named
        for channel in columns.channel:
            if channel.name.lower() in REWARD_NAMES and channel.transition == is_of_action:
                return channel.column
        return None

    def _are_cut_after(self, part: _Part, is_last: Bools) -> Bools:
        """Return which of the last rows have an action, its b and its reward, shape (n_rows,)."""
        column = self._reward_column(is_of_action=True)
        if column is None or self.columns.convention == OBSERVATION:
            return np.zeros(part.n_rows, dtype=bool)
        is_cut = is_last & np.isfinite(cells.as_numbers(part.column(column)))
        action = part.numbers("action")
        if action is not None:
            is_cut &= _is_action(action, len(self.columns.actions))
        b = part.numbers("b")
        if b is not None:
            is_cut &= _is_probability(b)
        return is_cut

    def _refuse_lost_rewards(self, part: _Part, begins: Bools, is_last: Bools) -> None:
        """Raise BadInput at a reward of no step: of the last row's action, or of a transition to the first row."""
        of_action = self._reward_column(is_of_action=True)
        if of_action is not None:
            is_lost = is_last & _are_rewards(part, of_action)
            must = (
                "is the reward of no step, because the row ends its episode without an action that counts: write "
                f'convention = "{TRANSITION}" if its action was taken, or name the column by `reward` if it is the '
                "reward of the transition that led to the row"
            )
            part.check(~is_lost, of_action, must)
            return
        of_arrival = self._reward_column(is_of_action=False)
        if of_arrival is not None and self.columns.phase is None:
            is_lost = begins & _are_rewards(part, of_arrival)
            must = (
                "is the reward of no step, because no transition led to the first row of an episode: name the column "
                "by `next_reward` if it is the reward of the row's action, or leave this cell empty"
            )
            part.check(~is_lost, of_arrival, must)

    def _first_dropped(self, part: _Part, is_kept: Bools) -> str:
        """Return the place of the first dropped row and the text of the cell that is no number."""
        i = int(is_kept.argmin())
        names = [channel.column for channel in self.columns.channel]
        if self.columns.time is not None:
            names.append(self.columns.time)
        for name in names:
            column = part.column(name, may_be_dates=name == self.columns.time)
            value = cells.as_numbers(column[i : i + 1])[0]
            must = " is no number"
            if name == self.columns.time:
                value = cells.as_seconds(column[i : i + 1])[0]
                must = f" must be {_TIMES}"
            if not np.isfinite(value) or value in self.columns.missing_values:
                text = cells.shown(cells.cell_at(column, i))
                return f"the first is row {part.n_read + i + 1}, column {name!r}: {text}{must}"
        return f"the first is row {part.n_read + i + 1}"


class _Extremes(NamedTuple):
    """The smallest and the largest reading of a channel in a table, float64."""

    lowest: float
    highest: float


class _Part:
    """A part of a table: its columns by name, or by attribute of `Columns`; `n_read` rows were read before it."""

    def __init__(self, chunk: Chunk, where: str, columns: Columns, n_read: int) -> None:
        self._chunk = chunk
        self._where = where
        self._columns = columns
        self.n_read = n_read
        self.n_rows = len(next(iter(chunk.values()), ()))

    def numbers(self, key: str) -> Floats | None:
        """Return the numbers of an attribute's column, NaN where there is none, (n_rows,); None without a column."""
        name = self._columns.others.get(key)
        if name is None:
            return None
        return cells.as_numbers(self.column(name))

    def times(self) -> Floats | None:
        """Return the times in seconds, NaN where there is none, (n_rows,); None without a column."""
        name = self._columns.time
        if name is None:
            return None
        return cells.as_seconds(self.column(name, may_be_dates=True), self._columns.time_unit_s)

    def values(self, channel: ChannelColumn) -> Floats:
        """Return the numbers of a channel's column, NaN where there is none, shape (n_rows,)."""
        column = self.column(channel.column)
        if channel.categories:
            return cells.as_categories(column, channel.categories)
        values = cells.as_numbers(column)
        if self._columns.missing_values:
            values[np.isin(values, self._columns.missing_values)] = np.nan
        return values

    def whole_numbers(self, name: str, must: str) -> Cells:
        """Return a column of whole numbers, shape (n_rows,); raise BadInput at another cell."""
        numbers, is_whole = cells.as_whole_numbers(self.column(name))
        self.check(is_whole, name, must)
        return numbers

    def check(self, is_valid: Bools, name: str, must: str) -> None:
        """Raise BadInput with file, row, column and text of the first invalid cell; `is_valid` has shape (n_rows,)."""
        if is_valid.all():
            return
        i = int(is_valid.argmin())
        column = self.column(name, may_be_dates=True)
        text = cells.shown(cells.cell_at(column, i))
        raise BadInput(f"{self._where}, row {self.n_read + i + 1}, column {name!r}: {text} {must}")

    def column(self, name: str, *, may_be_dates: bool = False) -> Cells:
        """Return a column, or number 3 of a column NAME of vectors for NAME_3, shape (n_rows,)."""
        vector, _, i = name.rpartition("_")
        if name in self._chunk:
            column = np.asarray(self._chunk[name])
        elif i.isdecimal() and np.ndim(self._chunk.get(vector, 0)) == 2:
            column = self._number_of(np.asarray(self._chunk[vector]), int(i), name)
        else:
            raise self._lacks(name)
        if column.ndim == 2 and column.shape[1] == 1:
            column = column[:, 0]
        kind = column.dtype.kind
        if kind == "M" and may_be_dates and column.ndim == 1:
            return column
        if kind in "mM":
            raise BadInput(
                f"{self._where}: the column {name!r} holds dates, expected numbers: name it as the time, or convert it "
                "by (t - t[0]) / numpy.timedelta64(1, 's')"
            )
        if column.ndim != 1 or kind not in "fiubOUT":
            raise BadInput(
                f"{self._where}: the column {name!r} must hold a number per row, not {column.dtype} {column.shape}"
            )
        if kind in "UT":
            return column.astype(object)
        return column

    def vector_width(self, vector: str) -> int:
        """Return how many numbers the vectors of a column have, 0 if they are unknown."""
        vectors = np.asarray(self._chunk.get(vector, 0))
        if vectors.ndim == 2:
            return int(vectors.shape[1])
        return 0

    def _number_of(self, vectors: NDArray[Any], i: int, name: str) -> NDArray[Any]:
        if not vectors.shape[1]:  # all are null
            return np.full(len(vectors), np.nan)
        if i >= vectors.shape[1]:
            raise self._lacks(name)
        return vectors[:, i]

    def _lacks(self, name: str) -> BadInput:
        return BadInput(f"{self._where} has no column {name!r}; there are {', '.join(self._chunk)}")


def _with_range(channel: ChannelColumn, lowest: float, highest: float) -> ChannelColumn:
    """Return a channel with the range of its readings, as float32, where none was given."""
    with np.errstate(over="ignore"):
        low = float(np.float32(lowest))
        high = float(np.float32(highest))
    if not low < high:
        high = low + 1.0
    return channel._replace(
        low=low if channel.low is None else channel.low,
        high=high if channel.high is None else channel.high,
    )


def _is_action(action: Floats, n_actions: int) -> Bools:
    return np.asarray((action >= 0) & (action < n_actions) & (action == np.floor(action)))


def _is_probability(b: Floats) -> Bools:
    return np.asarray((b > 0.0) & (b <= 1.0))


def _are_rewards(part: _Part, column: str) -> Bools:
    """Return which cells of a column change a return: numbers other than 0, shape (n_rows,)."""
    values = cells.as_numbers(part.column(column))
    return np.asarray(np.isfinite(values) & (values != 0.0))


def _with_end_rows(
    rows: NDArray[Any],
    is_terminal_after: Bools,
    is_cut_after: Bools,
    observations: NDArray[np.float32],
    rewards: Floats,
    period_s: float,
) -> NDArray[Any]:
    """Return rows of a recording with a row after each of some, which ends the episode.

    A terminal state is unknown, and nothing is predicted from it: its observation repeats that of
    the row before.

    Args:
        rows: The rows, shape (n_rows,).
        is_terminal_after: Which rows have an action that led to a terminal state, shape (n_rows,).
        is_cut_after: Which rows have an action after which the episode was truncated, shape
            (n_rows,).
        observations: For each row the observation of the row after it, shape (n_rows, n_channels).
        rewards: Reward of each row's action, NaN if unknown, shape (n_rows,).
        period_s: Time between the two rows in seconds.
    """
    is_before = is_terminal_after | is_cut_after
    end_rows = rows[is_before].copy()
    end_rows["observation"] = observations[is_before]
    end_rows["reward"] = rewards[is_before]
    end_rows["step"] += 1
    end_rows["t"] += period_s
    end_rows["action"] = NO_ACTION
    end_rows["b"] = np.nan
    end_rows["phase"] = int(Phase.END)
    flags = np.where(is_terminal_after, int(Flag.TERMINATED), int(Flag.TRUNCATED))
    end_rows["flags"] = flags[is_before]
    return np.insert(rows, np.flatnonzero(is_before) + 1, end_rows)


def _act_by(policy: Policy, interface: Interface, rows: NDArray[Any]) -> None:
    """Write b of a policy into the rows with an action."""
    for i in np.flatnonzero(rows["phase"] == Phase.BEHAVE).tolist():
        observation = rows["observation"][i]
        action = int(rows["action"][i])
        b = float(
            policy.probabilities(observation.astype(np.float64), interface.encode(observation))[
                action
            ]
        )
        if not 0.0 < b <= 1.0:
            where = f"action {action} of step {rows['step'][i]:,}"
            raise BadInput(
                f"the policy given as b gives {where} the probability {b}, expected one in (0, 1]"
            )
        rows["b"][i] = b


class _RowBefore:
    """The row before a part of the table.

    Attributes:
        step: Number of its step, if steps are counted.
        count: The newest counter of an episode's steps.
    """

    def __init__(self) -> None:
        self.step = -1
        self.count = np.nan
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
    return Episode(
        step=rows["step"].copy(),
        observation=rows["observation"].copy(),
        action=rows["action"][:-1].astype(np.int64),
        b=np.append(rows["b"][:-1], np.nan),
        reward=rows["reward"][1:].copy(),
        is_terminated=bool(rows["flags"][-1] & Flag.TERMINATED),
        predictions=None if predict is None else predict(Stream(rows)).astype(np.float32),
    )
