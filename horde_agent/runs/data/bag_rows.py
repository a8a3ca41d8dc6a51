"""Rows at a fixed period from the messages of a bag: the newest value of each field at the row's time.

Nothing is interpolated. A row at which a field's newest value is older than its `max_age_s` is left
out, so the next one follows a gap. Messages are read once, in the order of the file, and put in
the order of their times within a second; only the newest message of a topic is decoded.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from horde_agent.runs.data.bag_files import Message
from horde_agent.runs.data.bag_messages import Decoder, FieldError, number_at
from horde_agent.types import Floats

AT = "at"
AFTER = "after"
SECOND_NS = 1_000_000_000
_REORDERED_NS = SECOND_NS
"""Messages may stand in the file up to so much later than others of the same time."""
BLOCK_ROWS = 8_192


class Field(NamedTuple):
    """A number of a topic's messages as a column.

    Attributes:
        column: Name of the column.
        topic: The topic.
        steps: Path of the number in a message.
        max_age_s: Age from which a value is missing, in seconds.
        timing: "at": the newest value at the row's time; a row without it is left out. "after": the
            first value between a row and the next, as of a command that answers the row's
            observation, or the value in force without one; NaN without either.
        infinite: What an infinite number is replaced by; None to keep it.
    """

    column: str
    topic: str
    steps: tuple[str | int, ...]
    max_age_s: float
    timing: str
    infinite: float | None


class Block(NamedTuple):
    """Consecutive rows: their times in seconds since the first message, (n,), and numbers, (n, n_fields)."""

    time_s: Floats
    values: Floats


class Losses:
    """Counts what was left out.

    Attributes:
        n_rows: Number of rows.
        n_gaps: Number of row times without a row, by the topic that was missing.
        n_late: Number of messages that stood too late in the file.
        n_unreadable: Number of messages that do not fit their type, of those that were decoded.
        start_ns: Time of the first message; None before it.
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self.n_gaps = Counter[str]()
        self.n_late = 0
        self.n_unreadable = 0
        self.start_ns: int | None = None


class Resampler:
    """Turns messages into rows.

    Args:
        fields: The columns.
        decoders: A decoder for each of their topics.
        period_s: Time between two rows, in seconds.
        rows_topic: A topic whose messages are the rows, instead of a fixed period; None without one.
    """

    def __init__(
        self,
        fields: Sequence[Field],
        decoders: Mapping[str, Decoder],
        period_s: float,
        rows_topic: str | None,
    ) -> None:
        self._fields = fields
        self._decoders = decoders
        self._period_ns = round(period_s * SECOND_NS)
        self._rows_topic = rows_topic
        # Beyond it, nothing can be in a row
        self._longest_ns = self._period_ns + _in_ns(max(field.max_age_s for field in fields))

    def blocks(self, messages: Iterable[Message], losses: Losses) -> Iterator[Block]:
        """Yield the rows of messages, which may be out of order by a second."""
        rows = _Rows(self._fields, self._decoders, losses)
        ordered = in_order(messages, losses)
        if self._rows_topic is None:
            row_times = self._at_period(ordered, rows)
        else:
            row_times = self._at_messages(ordered, rows)
        for row_time_ns in row_times:
            rows.add(row_time_ns)
            if rows.n_complete == BLOCK_ROWS:
                yield rows.block()
        rows.finish()
        if rows.n_complete:
            yield rows.block()

    def _at_period(self, messages: Iterator[Message], rows: _Rows) -> Iterator[int]:
        """Receive messages, and yield the time of each row when all until then were received."""
        row_time_ns: int | None = None
        previous_ns = 0
        for message in messages:
            time_ns = message.time_ns
            if row_time_ns is None:
                row_time_ns = time_ns
            while row_time_ns < time_ns:
                yield row_time_ns
                row_time_ns += self._period_ns
                if row_time_ns - previous_ns > self._longest_ns:
                    # A long pause: there is no row until its end
                    n_periods = -((row_time_ns - time_ns) // self._period_ns)
                    row_time_ns += max(0, n_periods) * self._period_ns
            rows.receive(message)
            previous_ns = time_ns
        if row_time_ns is not None and row_time_ns <= previous_ns:
            yield row_time_ns

    def _at_messages(self, messages: Iterator[Message], rows: _Rows) -> Iterator[int]:
        """Receive messages, and yield the time of each of a topic when all until then were received."""
        due_ns: int | None = None
        for message in messages:
            is_row = message.topic == self._rows_topic
            if due_ns is not None and (is_row or message.time_ns > due_ns):
                yield due_ns
                due_ns = None
            rows.receive(message)
            if is_row:
                due_ns = message.time_ns
        if due_ns is not None:
            yield due_ns


def in_order(messages: Iterable[Message], losses: Losses) -> Iterator[Message]:
    """Yield messages in the order of their times; those that stand more than a second too late are left out."""
    waiting: list[tuple[int, int, Message]] = []
    newest_ns = -(2**63)
    passed_ns = -(2**63)
    for number, message in enumerate(messages):
        if message.time_ns < passed_ns:
            losses.n_late += 1
            continue
        heapq.heappush(waiting, (message.time_ns, number, message))
        newest_ns = max(newest_ns, message.time_ns)
        while waiting[0][0] <= newest_ns - _REORDERED_NS:
            passed_ns, _, passed = heapq.heappop(waiting)
            yield passed
    while waiting:
        yield heapq.heappop(waiting)[2]


def _in_ns(seconds: float) -> int:
    return round(min(seconds, 1e9) * SECOND_NS)


class _TopicState:
    """The newest message of a topic, and the first one since the last row.

    Attributes:
        newest: The message; None before the first one.
        first_since_row: The message; None if there was none since the row.
    """

    def __init__(self, decode: Decoder, fields: Sequence[Field], losses: Losses) -> None:
        self._losses = losses
        self.newest: Message | None = None
        self.first_since_row: Message | None = None
        self._decode = decode
        self._fields = fields
        self._decoded: Message | None = None
        self._values: list[float] = []

    def receive(self, message: Message) -> None:
        self.newest = message
        if self.first_since_row is None:
            self.first_since_row = message

    def values(self, message: Message) -> list[float]:
        """Return the numbers of a message, decoded at most once; NaN if its bytes are damaged."""
        if message is not self._decoded:
            self._values = self._read(message)
            self._decoded = message
        return self._values

    def _read(self, message: Message) -> list[float]:
        try:
            content = self._decode(message.data)
        except Exception:  # decoders are generated, and raise anything
            self._losses.n_unreadable += 1
            return [np.nan] * len(self._fields)
        try:
            return [self._number(content, field) for field in self._fields]
        except FieldError:  # the first message of the topic has these fields
            self._losses.n_unreadable += 1
            return [np.nan] * len(self._fields)

    def _number(self, content: object, field: Field) -> float:
        number = number_at(content, field.steps)
        if field.infinite is not None and np.isinf(number):
            return field.infinite
        return number


class _TimedFields(NamedTuple):
    """Fields of one topic with one timing: their columns, and their places in the topic's values."""

    state: _TopicState
    topic: str
    timing: str
    max_age_ns: int
    columns: list[int]
    places: list[int]


class _Rows:
    """Rows as they become complete; a row lacks its commands until the next one."""

    def __init__(
        self, fields: Sequence[Field], decoders: Mapping[str, Decoder], losses: Losses
    ) -> None:
        self._losses = losses
        # One more: the last row waits for its commands
        self._values = np.empty((BLOCK_ROWS + 1, len(fields)))
        self._times_ns = np.empty(BLOCK_ROWS + 1, dtype=np.int64)
        self._pending: int | None = None
        self._in_force: dict[int, Message] = {}
        self.n_complete = 0
        self._states: dict[str, _TopicState] = {}
        groups: list[_TimedFields] = []
        for topic in dict.fromkeys(field.topic for field in fields):
            of_topic = [field for field in fields if field.topic == topic]
            self._states[topic] = _TopicState(decoders[topic], of_topic, losses)
            groups += _groups(topic, self._states[topic], of_topic, fields)
        self._at = [group for group in groups if group.timing == AT]
        self._after = [group for group in groups if group.timing == AFTER]

    def receive(self, message: Message) -> None:
        """Take a message; its time is not before that of any message or row so far."""
        if self._losses.start_ns is None:
            self._losses.start_ns = message.time_ns
        self._states[message.topic].receive(message)

    def add(self, time_ns: int) -> None:
        """Add a row at a time, unless a number that it needs is missing."""
        self.finish()
        missing = [group for group in self._at if not _is_fresh(group, group.state.newest, time_ns)]
        if missing:
            self._losses.n_gaps.update({group.topic for group in missing})
        else:
            self._begin(time_ns)
        for state in self._states.values():
            state.first_since_row = None

    def _begin(self, time_ns: int) -> None:
        row = self._values[self.n_complete]
        row[:] = np.nan
        self._times_ns[self.n_complete] = time_ns
        for group in self._at:
            assert group.state.newest is not None
            _write(row, group, group.state.newest)
        self._in_force = {}
        for i, group in enumerate(self._after):
            message = group.state.newest
            if _is_fresh(group, message, time_ns):
                assert message is not None
                self._in_force[i] = message
        self._pending = time_ns

    def finish(self) -> None:
        """Complete the last row by the first commands since its time, or by those in force at it."""
        if self._pending is None:
            return
        row = self._values[self.n_complete]
        for i, group in enumerate(self._after):
            command = group.state.first_since_row or self._in_force.get(i)
            if command is not None and command.time_ns <= self._pending + group.max_age_ns:
                _write(row, group, command)
        self._pending = None
        self.n_complete += 1
        self._losses.n_rows += 1

    def block(self) -> Block:
        """Return the complete rows, and forget them."""
        n = self.n_complete
        assert self._losses.start_ns is not None
        since_start_ns = self._times_ns[:n] - self._losses.start_ns
        block = Block(since_start_ns / SECOND_NS, self._values[:n].copy())
        # The row that waits becomes the first
        self._values[0] = self._values[n]
        self._times_ns[0] = self._times_ns[n]
        self.n_complete = 0
        return block


def _groups(
    topic: str, state: _TopicState, of_topic: Sequence[Field], fields: Sequence[Field]
) -> list[_TimedFields]:
    """Return the fields of a topic by their timing and age."""
    kinds = dict.fromkeys((field.timing, field.max_age_s) for field in of_topic)
    groups = []
    for timing, max_age_s in kinds:
        columns = []
        places = []
        for place, field in enumerate(of_topic):
            if (field.timing, field.max_age_s) == (timing, max_age_s):
                columns.append(fields.index(field))
                places.append(place)
        groups.append(
            _TimedFields(
                state=state,
                topic=topic,
                timing=timing,
                max_age_ns=_in_ns(max_age_s),
                columns=columns,
                places=places,
            )
        )
    return groups


def _is_fresh(group: _TimedFields, message: Message | None, time_ns: int) -> bool:
    return message is not None and time_ns - message.time_ns <= group.max_age_ns


def _write(row: Floats, group: _TimedFields, message: Message) -> None:
    values = group.state.values(message)
    for column, place in zip(group.columns, group.places, strict=True):
        row[column] = values[place]
