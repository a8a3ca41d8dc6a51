"""Rows at a fixed period from the messages of a bag: the newest value of each field at the row's time.

Nothing is interpolated. A row at which a field's newest value is older than its `max_age_s` is left
out, so the next one follows a gap. Messages are read once, and put in the order of their times
within a second. Where the clock of a topic jumps back further, as when a simulation restarts, the
messages that follow are read after a pause.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from horde_agent.formats.bag_files import REORDERED_NS, SECOND_NS, Message
from horde_agent.formats.bag_messages import (
    Decoder,
    FieldError,
    Steps,
    has_element,
    number_at,
    selected_part,
)
from horde_agent.types import Floats

AT = "at"
AFTER = "after"
VALUE = "value"
SUM = "sum"
ANY = "any"
BLOCK_ROWS = 8_192
_PAUSE_PERIODS = 10  # between the rows before and after a jump of the clock


class Field(NamedTuple):
    """A number of a topic's messages as a column.

    Attributes:
        column: Name of the column.
        topic: The topic.
        steps: Path of the number in a message.
        max_age_s: Age from which a value is missing, in seconds.
        timing: Of a value, "at": the newest at the row's time; a row without it is left out.
            "after": the first one from the row's time on and before the next row, as of a command
            that answers the row's observation, or the value in force without one; NaN without
            either. Of an amount, "at": since the row before, up to the row's time; "after": from the
            row's time on and before the next row.
        kind: "value"; or an amount, "sum" of the messages, as of rewards, 0 without one, or "any", 1
            if one of the messages is true.
        infinite: What an infinite number is replaced by; None to keep it.
        too_near: What minus infinity is replaced by; None to keep it.
    """

    column: str
    topic: str
    steps: Steps
    max_age_s: float
    timing: str
    kind: str
    infinite: float | None
    too_near: float | None

    def number_in(self, content: Any) -> float:
        """Return the number of a message; NaN if an array lacks its element; raise FieldError if it is not there."""
        number = number_at(content, self.steps)
        if number == math.inf and self.infinite is not None:
            return self.infinite
        if number == -math.inf and self.too_near is not None:
            return self.too_near
        return number


class Block(NamedTuple):
    """Consecutive rows: their times in seconds since the first message, (n,), and numbers, (n, n_fields)."""

    time_s: Floats
    values: Floats


class Losses:
    """Counts what was left out, and how actions were paired with rows.

    Attributes:
        n_messages: Number of messages.
        n_rows: Number of rows.
        n_gaps: Number of row times without a row, by the topic that was missing.
        n_late: Number of messages of a topic that stood too late in the file.
        n_unreadable: Number of messages that do not fit their type, of those that were decoded.
        n_in_no_row: Number of messages with an amount other than 0 that is in no row, by topic.
        jumps_s: How far the clock of a topic jumped back, the topic and seconds each time.
        lags_ms: How many values of a topic came so many milliseconds after their row.
        n_in_force: Number of rows that have a topic's value in force, because none came after them.
        start_ns: Time of the first message; None before it.
    """

    def __init__(self) -> None:
        self.n_messages = 0
        self.n_rows = 0
        self.n_gaps = Counter[str]()
        self.n_late = Counter[str]()
        self.n_unreadable = 0
        self.n_in_no_row = Counter[str]()
        self.jumps_s: list[tuple[str, float]] = []
        self.lags_ms: dict[str, Counter[int]] = {}
        self.n_in_force = Counter[str]()
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
        # Beyond it, a field that a row needs is missing
        ages_s = [field.max_age_s for field in fields if (field.kind, field.timing) == (VALUE, AT)]
        self._longest_ns = self._period_ns + _in_ns(min(ages_s, default=0.0))

    def blocks(self, messages: Iterable[Message], losses: Losses) -> Iterator[Block]:
        """Yield the rows of messages, which may be out of order by a second."""
        rows = _Rows(self._fields, self._decoders, losses)
        ordered = in_order(messages, _PAUSE_PERIODS * self._period_ns, losses)
        if self._rows_topic is None:
            row_times = self._at_period(ordered, rows)
        else:
            row_times = self._at_messages(ordered, rows)
        for row_time_ns in row_times:
            rows.add(row_time_ns)
            if rows.n_complete == BLOCK_ROWS:
                yield rows.block()
        rows.end()
        if rows.n_complete:
            yield rows.block()

    def _at_period(self, messages: Iterator[OrderedMessage], rows: _Rows) -> Iterator[int]:
        """Receive messages, and yield the time of each row when all until then were received."""
        row_time_ns: int | None = None
        previous_ns = 0
        for message, is_restart in messages:
            time_ns = message.time_ns
            if is_restart and row_time_ns is not None:
                if row_time_ns <= previous_ns:
                    yield row_time_ns
                rows.restart()
                row_time_ns = None
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

    def _at_messages(self, messages: Iterator[OrderedMessage], rows: _Rows) -> Iterator[int]:
        """Receive messages, and yield the time of each of a topic when all until then were received."""
        due_ns: int | None = None
        for message, is_restart in messages:
            if due_ns is not None and message.time_ns > due_ns:
                yield due_ns
                due_ns = None
            if is_restart:
                rows.restart()
            rows.receive(message)
            if message.topic == self._rows_topic:
                due_ns = message.time_ns
        if due_ns is not None:
            yield due_ns


class OrderedMessage(NamedTuple):
    """A message in the order of the times, and whether it is the first one after a clock jumped back."""

    message: Message
    is_restart: bool


def in_order(
    messages: Iterable[Message], pause_ns: int, losses: Losses
) -> Iterator[OrderedMessage]:
    """Yield messages in the order of their times; those that stand more than a second too late are left out.

    If two messages of a topic in a row are further behind its own times, the clock was set back:
    the messages that follow get later times, so that they begin `pause_ns` after all before.
    """
    queue = _OrderedQueue(losses)
    behind: dict[str, Message] = {}
    for message in messages:
        losses.n_messages += 1
        newest_ns = queue.newest_of_topic(message)
        if message.time_ns >= newest_ns - REORDERED_NS:
            if message.topic in behind:
                losses.n_late[message.topic] += 1
                del behind[message.topic]
            queue.push(message)
        elif message.topic not in behind:
            behind[message.topic] = message
            continue
        else:
            back_ns = newest_ns - behind[message.topic].time_ns
            losses.jumps_s.append((message.topic, back_ns / SECOND_NS))
            yield from queue.all()
            first_ns = min(message.time_ns, *(one.time_ns for one in behind.values()))
            queue.restart(first_ns, pause_ns)
            for one in (*behind.values(), message):
                queue.push(one)
            behind.clear()
        yield from queue.passed()
    yield from queue.all()
    losses.n_late.update(behind.keys())


class _OrderedQueue:
    """Messages of the last second, in the order of their times."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._waiting: list[tuple[int, int, Message]] = []
        self._newest_of_topic: dict[str, int] = {}
        self._newest_ns = -(2**63)
        self._passed_ns = -(2**63)
        self._shift_ns = 0
        self._is_restart = False
        self._n_pushed = 0

    def newest_of_topic(self, message: Message) -> int:
        """Return the largest time of the message's topic since the clock was set back; its own before the first."""
        return self._newest_of_topic.get(message.topic, message.time_ns)

    def push(self, message: Message) -> None:
        """Take a message, unless later ones have passed."""
        topic = message.topic
        self._newest_of_topic[topic] = max(self.newest_of_topic(message), message.time_ns)
        time_ns = message.time_ns + self._shift_ns
        if time_ns < self._passed_ns:
            self._losses.n_late[topic] += 1
            return
        self._n_pushed += 1
        shifted = Message(message.topic, time_ns, message.data)
        heapq.heappush(self._waiting, (time_ns, self._n_pushed, shifted))
        self._newest_ns = max(self._newest_ns, time_ns)

    def passed(self) -> Iterator[OrderedMessage]:
        """Yield the messages that are a second behind the newest one."""
        while self._waiting and self._waiting[0][0] <= self._newest_ns - REORDERED_NS:
            yield self._pop()

    def all(self) -> Iterator[OrderedMessage]:
        """Yield all messages that wait."""
        while self._waiting:
            yield self._pop()

    def restart(self, time_ns: int, pause_ns: int) -> None:
        """Begin anew at a time that is before earlier ones."""
        self._shift_ns = self._newest_ns + REORDERED_NS + pause_ns - time_ns
        self._newest_of_topic.clear()
        self._is_restart = True

    def _pop(self) -> OrderedMessage:
        self._passed_ns, _, message = heapq.heappop(self._waiting)
        ordered = OrderedMessage(message, self._is_restart)
        self._is_restart = False
        return ordered


def _in_ns(seconds: float) -> int:
    return round(min(seconds, 1e9) * SECOND_NS)


class _DecodedMessages:
    """Decodes the messages of one topic, each at most once if they come one after the other."""

    def __init__(self, decode: Decoder, losses: Losses) -> None:
        self._decode = decode
        self._losses = losses
        self._message: Message | None = None
        self._content: Any = None

    def content(self, message: Message) -> Any:
        """Return the content of a message; None if its bytes are damaged."""
        if message is not self._message:
            self._message = message
            self._content = None
            try:
                self._content = self._decode(message.data)
            except Exception:  # decoders are generated, and raise anything
                self._losses.n_unreadable += 1
        return self._content


class _Source:
    """Fields of one topic with one timing, age and choice of elements: their columns, and the messages around a row.

    Attributes:
        topic: The topic.
        timing: That of the fields.
        max_age_ns: Age from which a value is missing, in ns.
    """

    def __init__(
        self,
        fields: Mapping[int, Field],
        decoded: _DecodedMessages,
        losses: Losses,
    ) -> None:
        first = next(iter(fields.values()))
        self.topic = first.topic
        self.timing = first.timing
        self.kind = first.kind
        self.max_age_ns = _in_ns(first.max_age_s)
        self._selected = selected_part(first.steps)
        self._fields = fields
        self._decoded = decoded
        self._losses = losses
        self._newest: Message | None = None
        self._first_of_newest: Message | None = None  # of those with the newest time
        self._first_since_row: Message | None = None
        self._read: Message | None = None
        self._values: list[float] = []
        self._amounts: list[tuple[int, list[float]]] = []  # with their times, since the row before

    def receive(self, message: Message) -> None:
        """Take a message; one without the element that the fields choose is none of theirs."""
        if self._selected:
            content = self._decoded.content(message)
            if content is None or not has_element(content, self._selected):
                return
        if self.kind != VALUE:
            values = self._numbers(message)
            if any(values):
                self._amounts.append((message.time_ns, values))
            return
        if self._newest is None or message.time_ns != self._newest.time_ns:
            self._first_of_newest = message
        self._newest = message
        if self._first_since_row is None:
            self._first_since_row = message

    def fresh(self, time_ns: int) -> Message | None:
        """Return the newest message if it is no older than may be at a time; None otherwise."""
        newest = self._newest
        if newest is None or time_ns - newest.time_ns > self.max_age_ns:
            return None
        return newest

    def first_before(self, time_ns: int) -> Message | None:
        """Return the first message from the last row's time on, before a time; None without one."""
        first = self._first_since_row
        if first is not None and first.time_ns < time_ns:
            return first
        return None

    def restart(self) -> None:
        """Forget all values: the clock jumped back."""
        self._newest = None
        self._first_of_newest = None
        self._first_since_row = None

    def begin_row(self, time_ns: int) -> None:
        """Begin to wait for the first message from a row's time on."""
        first = self._first_of_newest
        self._first_since_row = None
        if first is not None and first.time_ns == time_ns:
            self._first_since_row = first

    def write(self, row: Floats, message: Message) -> None:
        """Write the fields of a message to a row."""
        if message is not self._read:
            self._read = message
            self._values = self._numbers(message)
        for column, value in zip(self._fields, self._values, strict=True):
            row[column] = value

    def write_amount(self, row: Floats, end_ns: int) -> None:
        """Write the amounts of the messages before a time to a row, and forget these messages."""
        total = np.zeros(len(self._fields))
        later_amounts = []
        for time_ns, values in self._amounts:
            if time_ns >= end_ns:
                later_amounts.append((time_ns, values))
            elif self.kind == ANY:
                total = np.maximum(total, values)
            else:
                total += values
        self._amounts = later_amounts
        row[list(self._fields)] = total

    def drop_amounts(self, end_ns: int) -> None:
        """Forget the messages before a time, and count them as being in no row."""
        amounts = [(time_ns, values) for time_ns, values in self._amounts if time_ns >= end_ns]
        n_dropped = len(self._amounts) - len(amounts)
        if n_dropped:
            self._losses.n_in_no_row[self.topic] += n_dropped
        self._amounts = amounts

    def _numbers(self, message: Message) -> list[float]:
        content = self._decoded.content(message)
        if content is None:
            return [math.nan] * len(self._fields)
        try:
            return [field.number_in(content) for field in self._fields.values()]
        except FieldError:  # the first messages of the topic have these fields
            self._losses.n_unreadable += 1
            return [math.nan] * len(self._fields)


class _Rows:
    """Rows as they become complete; a row lacks what follows it until the next one."""

    def __init__(
        self,
        fields: Sequence[Field],
        decoders: Mapping[str, Decoder],
        losses: Losses,
    ) -> None:
        self._losses = losses
        # One more: the last row waits for what follows it
        self._values = np.empty((BLOCK_ROWS + 1, len(fields)))
        self._times_ns = np.empty(BLOCK_ROWS + 1, dtype=np.int64)
        self._pending: int | None = None
        self._in_force: dict[int, Message] = {}
        self.n_complete = 0
        self._of_topic: dict[str, list[_Source]] = {}
        for topic in dict.fromkeys(field.topic for field in fields):
            decoded = _DecodedMessages(decoders[topic], losses)
            self._of_topic[topic] = [
                _Source(group, decoded, losses) for group in _groups(topic, fields)
            ]
        sources = [source for of_topic in self._of_topic.values() for source in of_topic]
        self._at = [s for s in sources if s.kind == VALUE and s.timing == AT]
        self._after = [s for s in sources if s.kind == VALUE and s.timing == AFTER]
        self._amounts_at = [s for s in sources if s.kind != VALUE and s.timing == AT]
        self._amounts_after = [s for s in sources if s.kind != VALUE and s.timing == AFTER]

    def receive(self, message: Message) -> None:
        """Take a message; its time is not before that of any message or row so far."""
        if self._losses.start_ns is None:
            self._losses.start_ns = message.time_ns
        for source in self._of_topic.get(message.topic, ()):
            source.receive(message)

    def add(self, time_ns: int) -> None:
        """Add a row at a time, unless a number that it needs is missing."""
        self._finish(time_ns)
        missing = [source for source in self._at if source.fresh(time_ns) is None]
        if missing:
            self._losses.n_gaps.update({source.topic for source in missing})
        else:
            self._begin(time_ns)
        for source in self._amounts_at:
            source.drop_amounts(time_ns + 1)
        for source in self._after:
            source.begin_row(time_ns)

    def _begin(self, time_ns: int) -> None:
        row = self._values[self.n_complete]
        row[:] = np.nan
        self._times_ns[self.n_complete] = time_ns
        for source in self._at:
            newest = source.fresh(time_ns)
            assert newest is not None
            source.write(row, newest)
        for source in self._amounts_at:
            source.write_amount(row, time_ns + 1)
        self._in_force = {}
        for i, source in enumerate(self._after):
            message = source.fresh(time_ns)
            if message is not None:
                self._in_force[i] = message
        self._pending = time_ns

    def restart(self) -> None:
        """Complete the last row, and forget all values: the clock jumped back."""
        self.end()
        for source in (*self._at, *self._after):
            source.restart()

    def end(self) -> None:
        """Complete the last row after the last message."""
        self._finish(2**63 - 1)
        for source in (*self._amounts_at, *self._amounts_after):
            source.drop_amounts(2**63 - 1)

    def _finish(self, next_ns: int) -> None:
        """Complete the last row by what came from its time on and before the next row's."""
        if self._pending is None:
            for source in self._amounts_after:
                source.drop_amounts(next_ns)
            return
        row = self._values[self.n_complete]
        for i, source in enumerate(self._after):
            command = source.first_before(next_ns)
            if command is not None and command.time_ns <= self._pending + source.max_age_ns:
                lag_ms = round((command.time_ns - self._pending) / 1e6)
                self._losses.lags_ms.setdefault(source.topic, Counter())[lag_ms] += 1
                source.write(row, command)
            elif i in self._in_force:
                self._losses.n_in_force[source.topic] += 1
                source.write(row, self._in_force[i])
        for source in self._amounts_after:
            source.write_amount(row, next_ns)
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


def _groups(topic: str, fields: Sequence[Field]) -> Iterator[dict[int, Field]]:
    """Yield the fields of a topic by column, those together that the same messages have at the same time."""
    groups: dict[tuple[Any, ...], dict[int, Field]] = {}
    for column, field in enumerate(fields):
        if field.topic == topic:
            key = (field.timing, field.kind, field.max_age_s, selected_part(field.steps))
            groups.setdefault(key, {})[column] = field
    yield from groups.values()
