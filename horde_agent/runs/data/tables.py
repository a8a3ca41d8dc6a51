"""A table with a row per step as a stream that can be learned from, without holding it in memory.

Row t has the observation after t steps, the action taken *from* it, and b, the probability of that action. The last
observation of an episode has no action.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, pairwise
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from horde_agent.interface import Interface
from horde_agent.life.flags import are_broken
from horde_agent.policies import Policy
from horde_agent.record import NO_ACTION, Flag, Phase, Stream, row_dtype
from horde_agent.runs.config import BadInput
from horde_agent.runs.data.columns import Columns
from horde_agent.types import Bools, Floats

Chunk = Mapping[str, NDArray[Any]]
"""Columns by name, of numbers or of vectors: shape (n_rows,) or (n_rows, n)."""

_Given = Mapping[str, Floats]
"""The columns of a part, by attribute of `Columns`, each of shape (n_rows,)."""
_Check = Callable[[Bools, str, str], None]
"""Raises BadInput for an invalid value. Arguments: mask of valid rows, (n_rows,); column attribute; requirement."""

CHUNK_ROWS = 32_768
LATE = 1.5  # periods after which a row follows a gap
_ACTED = (int(Phase.BEHAVE), int(Phase.EXCURSION))
_LARGEST_ACTION = np.iinfo(row_dtype(1)["action"]).max


class Table:
    """A table as consecutive `Stream`s, checked row by row; raises BadInput if a column or its range is missing.

    Args:
        chunks: Returns an iterator over consecutive parts of the table, from its beginning on each call.
        columns: Meaning of the columns.
        where: Name of the table, for messages.
        notes: Remarks for the report.

    Attributes:
        columns: As given, with the ranges and actions found in the table.
        behaviour: The policy that acted, and the interface that encodes its observations; None if b is a column.
        b_estimate: Facts about an estimated policy, for the header.
    """

    def __init__(
        self, chunks: Callable[[], Iterable[Chunk]], columns: Columns, where: str, notes: tuple[str, ...] = ()
    ) -> None:
        self._chunks, self.where, self._n_dropped = chunks, where, 0
        is_open = any(c.low is None or c.high is None for c in columns.channel)
        self.columns = columns
        if is_open or (columns.action is not None and not columns.actions):
            self.columns = self._with_ranges(columns)
        self._notes = notes
        self.behaviour: tuple[Policy, Interface] | None = None
        self.b_estimate: dict[str, float] | None = None

    @property
    def notes(self) -> list[str]:
        """Remarks for the report; complete after the table was read."""
        said = f"{self._n_dropped:,} rows have no number in one of the columns and are dropped."
        return [*self._notes, *([said] if self._n_dropped else [])]

    @property
    def header(self) -> dict[str, Any]:
        """Description of the robot, as in the header of a recording."""
        columns = self.columns
        low, high = (
            [None if x is None or not np.isfinite(x) else x for x in bounds]
            for bounds in ([c.low for c in columns.channel], [c.high for c in columns.channel])
        )
        described = [
            {"name": c.name, "group": c.group, "unit": c.unit, "is_sensor": c.sensor, "step": c.step}
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
            **({} if self.b_estimate is None else {"b_estimate": self.b_estimate}),
        }

    def _with_ranges(self, columns: Columns) -> Columns:
        """Read the table once for unknown ranges and the number of actions."""
        names, n_actions = [c.column for c in columns.channel], 0
        low, high = np.full(len(names), np.inf), np.full(len(names), -np.inf)
        for chunk in self._chunks():
            values = np.column_stack([self._column(chunk, name) for name in names])
            finite = np.where(np.isfinite(values), values, np.nan)
            low, high = np.fmin(low, np.fmin.reduce(finite)), np.fmax(high, np.fmax.reduce(finite))
            if columns.action is not None:
                largest = np.nanmax(self._column(chunk, columns.action), initial=0.0)
                n_actions = max(n_actions, int(min(largest, _LARGEST_ACTION)) + 1)
        if not np.isfinite(low).all():
            raise BadInput(f"{self.where} has no number in the column {names[int(np.isinf(low).argmax())]!r}")
        low, high = low.astype(np.float32).astype(float), high.astype(np.float32).astype(float)
        high = np.where(high > low, high, low + 1.0)
        found = [
            c._replace(low=float(a) if c.low is None else c.low, high=float(b) if c.high is None else c.high)
            for c, a, b in zip(columns.channel, low, high, strict=True)
        ]
        actions = columns.actions or tuple(f"action_{a}" for a in range(n_actions if columns.action else 0))
        return Columns(**{**vars(columns), "channel": tuple(found), "actions": actions})

    def __iter__(self) -> Iterator[Stream]:
        """Yield the rows in consecutive parts; raise BadInput at an invalid value, with its row and column."""
        self._n_dropped, n_read = 0, 0
        header, before = self.header, _Before()
        for chunk, after in pairwise(chain(self._chunks(), [None])):
            assert chunk is not None
            n, rows = self._rows(chunk, after, before, n_read)
            n_read += n
            if self.behaviour is not None:
                _act_by(*self.behaviour, rows)
            if len(rows):
                yield Stream(rows, header)
        if before.step < 0:
            raise BadInput(f"{self.where} has no row to learn from: every one lacks a number in one of its columns")

    def _rows(self, chunk: Chunk, after: Chunk | None, before: _Before, n_read: int) -> tuple[int, NDArray[Any]]:
        """Return the number of rows of a part, and those that are kept; `n_read` rows were read before it.

        `after` is the part after it, None for the last one.
        """
        columns, given = self.columns, {key: self._column(chunk, name) for key, name in self.columns.others.items()}
        observation = np.column_stack([self._column(chunk, c.column) for c in columns.channel]).astype(np.float32)
        rows = np.zeros(n := len(observation), dtype=row_dtype(len(columns.channel)))

        def check(is_valid: Bools, key: str, must: str) -> None:
            if not is_valid.all():
                self._refuse(n_read, int(is_valid.argmin()), columns.others[key], given[key], must)

        rows["observation"], rows["pose"] = observation, np.nan
        t = given.get("time", np.zeros(n))
        is_kept = (np.isfinite(observation).all(axis=1) & np.isfinite(t)) | (columns.missing == "error")
        self._n_dropped += int(np.count_nonzero(~is_kept))
        ends = self._ends(given, n, after, before, check)
        begins = np.append(before.is_end, ends)[:-1]
        gaps = begins | ~np.append(before.is_kept, is_kept)[:-1]
        if "time" in given:
            since = np.diff(t, prepend=before.t)
            is_back = (since <= 0) & ~begins
            if columns.missing == "error":
                check(~is_back, "time", "must increase within an episode: sort the rows by time")
            gaps |= is_back | (since > LATE * columns.period_s) & ~begins
        if "step" in given:  # else an episode begins at the step at which the one before it ended
            steps = given["step"]
            is_valid = np.isfinite(steps) & ~(np.diff(steps, prepend=before.step) < 0)
            check(is_valid, "step", "must be a number that does not decrease: sort the rows")
            rows["step"] = steps
        else:
            rows["step"] = before.step + np.cumsum(~begins | (before.step + np.arange(n) < 0))
        if n:
            before.is_end, before.is_kept, before.t, before.step = ends[-1], is_kept[-1], t[-1], int(rows["step"][-1])
        rows["t"] = t if "time" in given else rows["step"] * columns.period_s
        self._describe(rows, given, gaps, ends, check)
        if columns.missing == "error":
            is_needed = np.isin(rows["phase"], (*_ACTED, int(Phase.END)))  # frames within a drive may be unknown
            for c, values in zip(columns.channel, observation.T, strict=True):
                if (is_bad := is_needed & ~np.isfinite(values)).any():
                    what = 'must be a finite number: correct it, or write missing = "gap" to drop such rows'
                    self._refuse(n_read, int(is_bad.argmax()), c.column, self._column(chunk, c.column), what)
            if "time" in given:
                check(~is_needed | np.isfinite(t), "time", "must be a finite number")
        self._act(rows, is_kept, given, check)
        return n, rows[is_kept]

    def _ends(self, given: _Given, n: int, after: Chunk | None, before: _Before, check: _Check) -> Bools:
        """Return the last rows of episodes, shape (n,)."""
        ends = np.zeros(n, dtype=bool)
        if "phase" in given:
            return ends
        ends[-1:] = after is None
        if n and (episode := given.get("episode")) is not None:
            check(np.isfinite(episode), "episode", "must be the number of an episode")
            change = np.diff(episode, prepend=episode[0] if np.isnan(before.episode) else before.episode)
            check(~(change < 0), "episode", "must not decrease: sort the rows by episode")
            following = episode[:0] if after is None else self._column(after, self.columns.others["episode"])
            ends |= np.diff(episode, append=following[0] if len(following) else episode[-1]) != 0
            before.episode = float(episode[-1])
        if "terminated" in given:
            ends |= np.nan_to_num(given["terminated"]) != 0
        return ends

    @staticmethod
    def _describe(rows: NDArray[Any], given: _Given, gaps: Bools, ends: Bools, check: _Check) -> None:
        rows["phase"] = np.where(ends, int(Phase.END), int(Phase.BEHAVE))
        rows["flags"] = np.where(gaps, int(Flag.GAP), int(Flag.NONE))
        if "terminated" in given:
            rows["flags"] |= np.where(np.nan_to_num(given["terminated"]) != 0, int(Flag.TERMINATED), 0).astype(np.uint8)
        if "phase" in given:
            check(np.isin(given["phase"], list(Phase)), "phase", f"must be 0..{max(Phase):d}")
            rows["phase"] = given["phase"]
        if (flags := given.get("flags")) is not None:
            check((flags >= 0) & (flags < 256), "flags", "must be 0..255")
            rows["flags"] = flags.astype(np.uint8) | (0 if "phase" in given else rows["flags"] & np.uint8(Flag.GAP))
            rows["flags"][(rows["flags"] & Flag.TURN) > 0] |= np.uint8(Flag.GAP)  # a data set is one stream
        if "policy" in given:
            rows["policy"] = given["policy"]

    def _act(self, rows: NDArray[Any], is_kept: Bools, given: _Given, check: _Check) -> None:
        acted = np.isin(rows["phase"], _ACTED) & is_kept
        rows["action"], rows["b"] = np.where(acted, 0, NO_ACTION), np.where(acted, 1.0, np.nan)
        if (action := given.get("action")) is not None:
            n = len(self.columns.actions)
            is_valid = (action >= 0) & (action < n) & (action == np.floor(action))
            check(~acted | is_valid, "action", f"must be a whole number in 0..{n - 1}")
            rows["action"] = np.where(acted, action, NO_ACTION)
        if (b := given.get("b")) is not None:
            is_valid = (b > 0.0) & (b <= 1.0)
            check(~acted | is_valid, "b", "must be in (0, 1], the probability of the action that was taken")
            rows["b"] = np.where(acted, b, np.nan)

    def _refuse(self, n_read: int, i: int, column: str, values: Floats, must: str) -> NoReturn:
        """Raise BadInput for a value in row i of a part after `n_read` rows."""
        raise BadInput(f"{self.where}, row {n_read + i + 1}, column {column!r}: {values[i]:.9g} {must}")

    def _column(self, chunk: Chunk, name: str) -> Floats:
        """Return a column of numbers, or number 3 of a column NAME of vectors for NAME_3, float64, shape (n_rows,)."""
        vector, _, i = name.rpartition("_")
        if name in chunk:
            found = np.asarray(chunk[name])
        elif i.isdecimal() and vector in chunk and np.ndim(chunk[vector]) == 2 and int(i) < chunk[vector].shape[1]:
            found = np.asarray(chunk[vector])[:, int(i)]
        else:
            raise BadInput(f"{self.where} has no column {name!r}; there are {', '.join(map(str, chunk))}")
        if found.ndim == 2 and found.shape[1] == 1:
            found = found[:, 0]
        if found.ndim != 1 or found.dtype.kind not in "fiub":
            raise BadInput(
                f"{self.where}: the column {name!r} must hold a number per row, not {found.dtype} {found.shape}"
            )
        return found.astype(np.float64)


def _act_by(policy: Policy, interface: Interface, rows: NDArray[Any]) -> None:
    """Write b of a policy into the rows with an action."""
    for i in np.flatnonzero(rows["phase"] == Phase.BEHAVE).tolist():
        observation, action = rows["observation"][i], int(rows["action"][i])
        b = float(policy.probabilities(observation.astype(np.float64), interface.encode(observation))[action])
        if not 0.0 < b <= 1.0:
            where = f"action {action} of step {rows['step'][i]:,}"
            raise BadInput(f"the policy given as b gives {where} the probability {b}, expected one in (0, 1]")
        rows["b"][i] = b


class _Before:
    """Facts about the row before a part of the table."""

    def __init__(self) -> None:
        self.is_end = self.is_kept = True
        self.episode = self.t = np.nan
        self.step = -1


# ---- episodes of a recording, for other formats ----------------------------------------------------------------------

Predict = Callable[[Stream], Floats]
"""Returns the predictions at each row of a stream, shape (n_rows, n_demons)."""


class Episode(NamedTuple):
    """Consecutive transitions of which each was learned from: n of them, and n + 1 rows."""

    step: NDArray[np.int64]  # number of the step, shape (n + 1,)
    observation: NDArray[np.float32]  # shape (n + 1, n_channels)
    action: NDArray[np.int64]  # action taken from each row but the last, shape (n,)
    b: Floats  # its probability, NaN in the last row, shape (n + 1,)
    is_terminated: bool  # whether the last observation is terminal
    predictions: NDArray[np.float32] | None  # shape (n + 1, n_demons); None if they are unknown


def episodes_of(parts: Iterable[Stream], predict: Predict | None = None) -> Iterator[Episode]:
    """Yield the episodes of a recording; an excursion, a drive, a gap and a termination end one."""
    left: NDArray[Any] | None = None
    for part in parts:
        rows = part.rows if left is None else np.concatenate([left, part.rows])
        is_end = (rows["phase"][:-1] != Phase.BEHAVE) | are_broken(rows["flags"][1:])
        first = 0
        for end in (np.flatnonzero(is_end) + 1).tolist():
            if end - first > 1:
                yield _episode(rows[first:end], predict)
            first = end
        left = rows[first:]
    if left is not None and len(left) > 1:
        yield _episode(left, predict)


def _episode(rows: NDArray[Any], predict: Predict | None) -> Episode:
    return Episode(
        step=rows["step"].copy(),
        observation=rows["observation"].copy(),
        action=rows["action"][:-1].astype(np.int64),
        b=np.append(rows["b"][:-1], np.nan),
        is_terminated=bool(rows["flags"][-1] & Flag.TERMINATED),
        predictions=None if predict is None else predict(Stream(rows)).astype(np.float32),
    )
