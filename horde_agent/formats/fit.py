"""Whether a data set fits its description: times and period, actions and their probabilities, anything to learn.

The facts are collected while the rows are read, so that a long table is read once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.formats.cells import TIME_UNITS_S
from horde_agent.formats.columns import Columns
from horde_agent.life.flags import are_learned
from horde_agent.record import Phase
from horde_agent.refusals import BadInput
from horde_agent.types import Bools, Floats

LATE = 1.5
"""Periods after which a row follows a gap."""
MANY_GAPS = 0.2
"""Share of rows behind a gap above which a remark says so."""
_LEAST_SPACINGS = 10
MOST_SPACINGS = 32_768
"""Times between rows that are compared with the period."""
_MOST_NAMED = 3
_UNITS = {"ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


class NothingToLearn(BadInput):
    """No row of a data set follows from the row before it by an action of the behaviour."""


class UnfitPeriod(BadInput):
    """The times of the rows do not fit the period."""


class TableFit:
    """Facts about the rows of a data set, added in order.

    Args:
        where: Name of the table, for messages.
        columns: Meaning of its columns.
        has_action_names: Whether the names of the actions were given, so that each of them exists.
        knows_b: Whether b was given.
        most_spacings: Number of times between rows that are compared with the period.
    """

    def __init__(
        self,
        where: str,
        columns: Columns,
        *,
        has_action_names: bool,
        knows_b: bool,
        most_spacings: int = MOST_SPACINGS,
    ) -> None:
        self._where = where
        self._period_s = columns.times.period_s
        self._has_action_names = has_action_names
        self._knows_b = knows_b
        self._most_spacings = most_spacings
        self._reward = columns.rewards.next_reward or columns.rewards.reward
        self._spacings: list[Floats] = []
        self._n_spacings = 0
        self._is_time_checked = False
        self._is_coarse = False
        self._n_rows = 0
        self._n_first_rows = 0
        self._n_late = 0
        self._n_after_dropped = 0
        self._n_dropped = 0
        self._first_dropped = ""
        self._n_transitions = 0
        self._n_rewards = 0  # of these transitions
        self._last_phase = np.array([Phase.END], dtype=np.uint8)
        self._action_counts = np.zeros(0, dtype=np.int64)
        self._n_acted = 0
        self._n_sure = 0
        self._n_ignored = 0

    def continue_behaviour(self) -> None:
        """Take the first row as the one that follows an action of the behaviour, in another table."""
        self._last_phase = np.array([Phase.BEHAVE], dtype=np.uint8)

    def add_spacings(self, spacing_s: Floats, is_late: Bools, resolution_s: Floats) -> None:
        """Add times since the row before, in seconds, of rows within an episode; all arguments of shape (n,).

        Raise UnfitPeriod if the first `most_spacings` do not fit the period.
        """
        self._n_late += int(is_late.sum())
        self._is_coarse |= bool((resolution_s > self._period_s / 4).any())
        if self._is_time_checked:
            return
        self._spacings.append(spacing_s[np.isfinite(spacing_s)])
        self._n_spacings += len(self._spacings[-1])
        if self._n_spacings >= self._most_spacings:
            self._check_time()

    def add_dropped(self, n: int, n_behind: int, first: str) -> None:
        """Add a number of dropped rows, of rows behind them in an episode, and the place and text of the first one."""
        self._n_dropped += n
        self._n_after_dropped += n_behind
        self._first_dropped = self._first_dropped or first

    def add_ignored(self, n: int) -> None:
        """Add a number of terminal rows with an action."""
        self._n_ignored += n

    def add_rows(self, rows: NDArray[Any], n_first: int) -> None:
        """Add rows of a recording, shape (n,), of which `n_first` begin an episode."""
        self._n_rows += len(rows)
        self._n_first_rows += n_first
        came_by = np.concatenate([self._last_phase, rows["phase"]])
        is_learned = are_learned(came_by[:-1], rows["flags"])
        self._n_transitions += int(is_learned.sum())
        self._n_rewards += int(np.isfinite(rows["reward"][is_learned]).sum())
        self._last_phase = came_by[-1:]
        acted = rows[rows["phase"] == Phase.BEHAVE]
        counts = np.bincount(np.maximum(acted["action"], 0), minlength=len(self._action_counts))
        counts[: len(self._action_counts)] += self._action_counts
        self._action_counts = counts
        self._n_acted += len(acted)
        self._n_sure += int((acted["b"] == 1.0).sum())

    def finish(self) -> None:
        """Raise BadInput if the times do not fit the period or no step has a reward, NothingToLearn without a step."""
        if not self._n_rows:
            if not self._n_dropped:
                raise BadInput(f"{self._where} has no row to learn from")
            raise BadInput(
                f"{self._where} has no row to learn from: every one lacks a number in one of its columns; "
                f"{self._first_dropped}"
            )
        if not self._is_time_checked and self._n_spacings >= _LEAST_SPACINGS:
            self._check_time()
        if not self._n_transitions:
            raise NothingToLearn(
                f"{self._where}: no step can be learned from, because {self._why_nothing()}"
            )
        if self._reward is not None and not self._n_rewards:
            raise BadInput(
                f"{self._where}: the column {self._reward!r} has no reward of any of the {self._n_transitions:,} "
                "steps: write numbers into it, or name no column of rewards"
            )

    def notes(self) -> list[str]:
        """Return facts for the report."""
        facts = []
        if self._n_dropped:
            facts.append(
                f"{self._n_dropped:,} rows have no number in one of the columns and are dropped; {self._first_dropped}."
            )
        n_unpaid = self._n_transitions - self._n_rewards
        if self._reward is not None and n_unpaid:
            facts.append(
                f"{n_unpaid:,} of {self._n_transitions:,} steps have no reward in the column {self._reward!r}; "
                "questions about the reward skip them."
            )
        if self._n_late and not self._has_many_gaps:
            facts.append(f"{self._gaps()}.")
        return facts

    def remarks(self) -> list[str]:
        """Return what a user should see at once: facts that make most data sets useless."""
        remarks = []
        if self._has_many_gaps:
            remarks.append(f"{self._gaps()}; nothing is learned across a gap.")
            if self._n_spacings:
                remarks[0] += f" The {self._medians()}."
        if self._is_coarse:
            remarks.append(
                "The times are rounded to more than a quarter of period_s by their type (float32?), so single missing "
                "rows go unnoticed: give times as float64."
            )
        if self._n_ignored:
            remarks.append(
                f"{self._n_ignored:,} terminal rows have an action, which is ignored: a terminal observation has none. "
                'If `terminated` belongs to the transition that the action led to, write convention = "transition".'
            )
        return [*remarks, *self._action_remarks()]

    @property
    def _has_many_gaps(self) -> bool:
        n_followers = max(self._n_rows - self._n_first_rows, 1)
        return self._n_late + self._n_after_dropped > MANY_GAPS * n_followers

    def _gaps(self) -> str:
        n = self._n_late + self._n_after_dropped
        share = n / self._n_rows
        return (
            f"{n:,} of {self._n_rows:,} rows ({share:.0%}) follow a gap, because they come more than {LATE} periods "
            "late, or a row before them was dropped"
        )

    def _medians(self) -> str:
        median_s = float(np.median(np.concatenate(self._spacings)))
        return (
            f"median time between rows is {median_s:.6g} s, and period_s is {self._period_s:.6g} s"
        )

    def _check_time(self) -> None:
        self._is_time_checked = True
        ratio = float(np.median(np.concatenate(self._spacings))) / self._period_s
        if 1 / LATE <= ratio <= LATE:
            return
        if ratio <= 0.0:
            raise UnfitPeriod(
                f"{self._where}: the times do not increase from row to row: sort the rows, the oldest first"
            )
        remedy = "give times in seconds, or their time_unit"
        for unit, name in _UNITS.items():
            if 1 / LATE < ratio * TIME_UNITS_S[unit] < LATE:
                remedy = (
                    f'these seem to be {name}: write time_unit = "{unit}", or give times in seconds'
                )
        raise UnfitPeriod(
            f"{self._where}: the {self._medians()}: {remedy}, and the duration of a step as period_s"
        )

    def _why_nothing(self) -> str:
        if self._n_first_rows == self._n_rows:
            return "each episode has one row"
        if self._n_late:
            return f"every row comes more than {LATE} periods after the row before it: the {self._medians()}"
        return "no row with an action is followed by a row without a gap"

    def _action_remarks(self) -> list[str]:
        remarks = []
        n_actions = len(self._action_counts)
        absent = np.flatnonzero(self._action_counts == 0).tolist()
        n_taken = n_actions - len(absent)
        if not self._has_action_names and absent and n_taken:
            names = ", ".join(map(str, absent[:_MOST_NAMED]))
            if len(absent) > _MOST_NAMED:
                names += ", ..."
            advice = ""
            if absent == [0]:
                advice = ": if they are numbered from 1, subtract 1"
            remarks.append(
                f"Actions are numbered from 0 to {n_actions - 1}, and {names} never occurs{advice}. Give the names of "
                "the actions if there are so many."
            )
        if self._knows_b and n_taken > 1 and self._n_sure == self._n_acted:
            remarks.append(
                f"b is 1 in every row, but {n_taken} actions were taken: b must be the probability with which the "
                "behaviour chose the action, so rho and everything learned about other policies would be wrong."
            )
        return remarks
