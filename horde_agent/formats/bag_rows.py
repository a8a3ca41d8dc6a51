"""Rows at a fixed period from the messages of a bag: the newest value of each field at the row's time.

Nothing is interpolated. A channel whose newest value is older than its `max_age_s` is missing in the row.
A row is left out, so that the next one follows a gap, if all channels are missing, or a field that it needs
is. Messages are read once, and put in the order of their times
within a second. Where the clock of a topic jumps back further, as when a simulation restarts, the
messages that follow are read after a pause.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, groupby, islice
from operator import attrgetter
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
DEFAULT_MAX_AGE_S = 1.0
_PAUSE_PERIODS = 10  # between the rows before and after a jump of the clock


class Field(NamedTuple):
    """A number of a topic's messages as a column.

    Attributes:
        column: Name of the column.
        topic: The topic.
        steps: Path of the number in a message.
        max_age_s: Age from which a value is missing, in seconds.
        timing: Of a value, "at": the newest at the row's time.
            "after": the first one from the row's time on and before the next row, as of a command
            that answers the row's observation, or the value in force without one; NaN without
            either. Of an amount, "at": since the row before, up to the row's time; "after": from the
            row's time on and before the next row.
        kind: "value"; or an amount, "sum" of the messages, as of rewards, 0 without one, or "any", 1
            if one of the messages is true.
        infinite: What an infinite number is replaced by; None to keep it.
        too_near: What minus infinity is replaced by; None to keep it.
        is_needed: Whether a row without the value is left out.
    """

    column: str
    topic: str
    steps: Steps
    max_age_s: float
    timing: str
    kind: str
    infinite: float | None
    too_near: float | None
    is_needed: bool = True

    def number_in(self, content: Any) -> float:
        """Return the number of a message; NaN if an array lacks its element; raise FieldError if it is not there."""
        number = number_at(content, self.steps)
        if number == math.inf and self.infinite is not None:
            return self.infinite
        if number == -math.inf and self.too_near is not None:
            return self.too_near
        return number


@dataclass
class Losses:
    """Counts what was left out, and how actions were paired with rows.

    Attributes:
        n_messages: Number of messages.
        n_rows: Number of rows.
        n_gaps: Number of row times without a row, by the topic that was missing.
        n_missing: Number of rows that lack the readings of a topic, by topic.
        n_late: Number of messages of a topic that stood too late in the file.
        n_unreadable: Number of messages that do not fit their type, of those that were decoded.
        n_in_no_row: Number of messages with an amount other than 0 that is in no row, by topic.
        jumps_s: How far the clock of a topic jumped back, the topic and seconds each time.
        lags_ms: How many values of a topic came so many milliseconds after their row.
        n_in_force: Number of rows that have a topic's value in force, because none came after them.
        start_ns: Time of the first message; None before it.
        end_ns: Time of the last message.
    """

    n_messages: int = 0
    n_rows: int = 0
    n_gaps: Counter[str] = field(default_factory=Counter)
    n_missing: Counter[str] = field(default_factory=Counter)
    n_late: Counter[str] = field(default_factory=Counter)
    n_unreadable: int = 0
    n_in_no_row: Counter[str] = field(default_factory=Counter)
    jumps_s: list[tuple[str, float]] = field(default_factory=list)
    lags_ms: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    n_in_force: Counter[str] = field(default_factory=Counter)
    start_ns: int | None = None
    end_ns: int = 0


class Arrival(NamedTuple):
    """A message in the order of the times.

    Attributes:
        time_ns: Its time, moved behind all earlier ones if a clock had jumped back.
        number: Sorts messages of one time.
        part: How often a clock had jumped back.
        message: The message.
    """

    time_ns: int
    number: int
    part: int
    message: Message


class _Instant(NamedTuple):
    """A time, whether it is that of a row, and the messages that have it."""

    time_ns: int
    is_row: bool
    arrivals: Sequence[Arrival]


class _Row(NamedTuple):
    """A row: its time, and its time in seconds since the first message with its numbers, (1 + n_fields,)."""

    time_ns: int
    numbers: list[float]


@dataclass(frozen=True)
class Resampler:
    """Turns messages into rows.

    Attributes:
        fields: The columns.
        decoders: A decoder for each of their topics.
        period_s: Time between two rows, in seconds.
        rows_topic: The topic of the messages that are the rows; None for rows at a fixed period.
    """

    fields: Sequence[Field]
    decoders: Mapping[str, Decoder]
    period_s: float
    rows_topic: str | None

    def blocks(
        self, messages: Iterable[Message], losses: Losses, most_rows: int = BLOCK_ROWS
    ) -> Iterator[Floats]:
        """Yield the rows of messages, which may be out of order by a second, in blocks.

        A block has shape (n_rows, 1 + n_fields): times in seconds since the first message, numbers.
        """
        arrivals = in_order(messages, _PAUSE_PERIODS * _in_ns(self.period_s), losses)
        parts = groupby(arrivals, key=attrgetter("part"))
        rows = chain.from_iterable(self._rows(part, losses) for _, part in parts)
        while block := [row.numbers for row in islice(rows, most_rows)]:
            yield np.array(block)

    def _rows(self, arrivals: Iterable[Arrival], losses: Losses) -> Iterator[_Row]:
        """Yield the rows of the messages between two jumps of the clock; none has a value from before."""
        sources = self._sources(losses)
        of_topic: dict[str, list[_Source]] = {}
        for source in sources:
            of_topic.setdefault(source.topic, []).append(source)
        sources_at = [source for source in sources if source.timing == AT]
        sources_after = [source for source in sources if source.timing == AFTER]
        row: _Row | None = None
        for instant in self._instants(arrivals):
            if losses.start_ns is None:
                losses.start_ns = instant.time_ns
            if instant.is_row:
                yield from _completed(row, sources_after, losses)
            for arrival in instant.arrivals:
                for source in of_topic.get(arrival.message.topic, ()):
                    source.receive(arrival)
            if instant.is_row:
                time_s = float(instant.time_ns - losses.start_ns) / SECOND_NS
                row = _Row(instant.time_ns, [time_s, *[math.nan] * len(self.fields)])
                missing = [one for one in sources_at if not one.is_fresh(instant.time_ns)]
                left_out = [one.topic for one in missing if one.is_needed]
                optional = [one for one in sources_at if not one.is_needed]
                if optional and all(one in missing for one in optional):
                    left_out += [one.topic for one in optional]
                if left_out:
                    losses.n_gaps.update(dict.fromkeys(left_out, 1))
                    row = None
                elif missing:
                    losses.n_missing.update({one.topic for one in missing})
                for source in sources_at:
                    if source in missing:
                        source.write(None)
                    else:
                        source.write(row)
        yield from _completed(row, sources_after, losses)
        for source in sources_at:
            source.write(None)

    def _sources(self, losses: Losses) -> list[_Source]:
        """Return the fields by source: those together that the same messages have at the same time."""
        contents = {
            topic: _cached_content(decode, losses) for topic, decode in self.decoders.items()
        }
        groups: dict[tuple[Any, ...], dict[int, Field]] = {}
        for column, one in enumerate(self.fields):
            way = (one.timing, one.kind, one.max_age_s, one.is_needed)
            key = (one.topic, way, selected_part(one.steps))
            groups.setdefault(key, {})[column] = one
        return [_Source(group, contents[key[0]], losses) for key, group in groups.items()]

    def _instants(self, arrivals: Iterable[Arrival]) -> Iterator[_Instant]:
        """Yield the times of rows and messages in order."""
        period_ns = _in_ns(self.period_s)
        values = [one for one in self.fields if (one.kind, one.timing) == (VALUE, AT)]
        needed_s = [one.max_age_s for one in values if one.is_needed]
        optional_s = [one.max_age_s for one in values if not one.is_needed]
        # Beyond it, a field that a row needs is missing, or all channels are
        longest_s = min([*needed_s, max(optional_s, default=math.inf)], default=0.0)
        if not values:
            longest_s = 0.0
        longest_ns = period_ns + _in_ns(longest_s)
        row_ns: int | None = None
        previous_ns = 0
        for time_ns, group in groupby(arrivals, key=attrgetter("time_ns")):
            of_time = list(group)
            if self.rows_topic is not None:
                topics = [arrival.message.topic for arrival in of_time]
                yield _Instant(time_ns, self.rows_topic in topics, of_time)
                continue
            if row_ns is None:
                row_ns = time_ns
            while row_ns < time_ns:
                yield _Instant(row_ns, is_row=True, arrivals=())
                row_ns += period_ns
                if row_ns - previous_ns > longest_ns:
                    # A long pause: there is no row until its end
                    n_periods = -((row_ns - time_ns) // period_ns)
                    row_ns += max(0, n_periods) * period_ns
            is_row = row_ns == time_ns
            yield _Instant(time_ns, is_row, of_time)
            row_ns += is_row * period_ns
            previous_ns = time_ns


def _completed(row: _Row | None, sources: Iterable[_Source], losses: Losses) -> Iterator[_Row]:
    """Yield a row, if there is one, with what came from its time on and before the next one's."""
    for source in sources:
        source.write(row)
    if row is not None:
        losses.n_rows += 1
        yield row


def in_order(messages: Iterable[Message], pause_ns: int, losses: Losses) -> Iterator[Arrival]:
    """Yield messages in the order of their times; those that stand more than a second too late are left out.

    If two messages of a topic in a row are further behind its own times, the clock was set back:
    the messages that follow get later times, so that they begin `pause_ns` after all before.
    """
    waiting: list[Arrival] = []  # those of the last second, as a heap
    behind: dict[str, Message] = {}
    newest_of_topic: dict[str, int] = {}  # since the clock was set back
    newest_ns = -(2**63)
    passed_ns = newest_ns
    shift_ns = 0
    part = 0
    n_pushed = 0
    for message in messages:
        losses.n_messages += 1
        losses.end_ns = max(losses.end_ns, message.time_ns)
        following = [message]
        back_ns = newest_of_topic.get(message.topic, message.time_ns) - message.time_ns
        if back_ns <= REORDERED_NS:
            if behind.pop(message.topic, None) is not None:
                losses.n_late[message.topic] += 1
        elif message.topic not in behind:
            behind[message.topic] = message
            continue
        else:
            back_ns = newest_of_topic[message.topic] - behind[message.topic].time_ns
            losses.jumps_s.append((message.topic, back_ns / SECOND_NS))
            yield from sorted(waiting)
            waiting.clear()
            following = [*behind.values(), message]
            behind.clear()
            newest_of_topic.clear()
            part += 1
            first_ns = min(one.time_ns for one in following)
            shift_ns = newest_ns + REORDERED_NS + pause_ns - first_ns
        for one in following:
            topic_ns = newest_of_topic.get(one.topic, one.time_ns)
            newest_of_topic[one.topic] = max(topic_ns, one.time_ns)
            time_ns = one.time_ns + shift_ns
            if time_ns <= passed_ns:
                losses.n_late[one.topic] += 1
                continue
            n_pushed += 1
            heapq.heappush(waiting, Arrival(time_ns, n_pushed, part, one))
            newest_ns = max(newest_ns, time_ns)
        while waiting and waiting[0].time_ns < newest_ns - REORDERED_NS:
            arrival = heapq.heappop(waiting)
            passed_ns = arrival.time_ns
            yield arrival
    yield from sorted(waiting)
    losses.n_late.update(behind.keys())


def _in_ns(seconds: float) -> int:
    return round(min(seconds, 1e9) * SECOND_NS)


def _cached_content(decode: Decoder, losses: Losses) -> Callable[[Message], Any]:
    """Return a function that decodes messages of one topic, each once if they come one after the other.

    It returns None for damaged bytes.
    """

    @lru_cache(maxsize=1)
    def content(message: Message) -> Any:
        try:
            return decode(message.data)
        except Exception:  # decoders are generated, and raise anything
            losses.n_unreadable += 1
            return None

    return content


class _Source:
    """Fields of one topic with one timing, kind, age and choice of elements: what came for a row.

    Attributes:
        topic: The topic.
        timing: That of the fields.
        is_needed: Whether a row without them is left out.
    """

    def __init__(
        self, fields: Mapping[int, Field], content: Callable[[Message], Any], losses: Losses
    ) -> None:
        first = next(iter(fields.values()))
        self.topic = first.topic
        self.timing = first.timing
        self.is_needed = first.is_needed
        self._kind = first.kind
        self._max_age_ns = _in_ns(first.max_age_s)
        self._selected = selected_part(first.steps)
        self._fields = fields
        self._content = content
        self._numbers = lru_cache(maxsize=1)(self._decoded_numbers)
        self._losses = losses
        self._newest: Arrival | None = None
        self._in_force: Arrival | None = None  # the newest before the row
        self._first: Arrival | None = None  # from the row's time on
        self._total = np.zeros(len(fields))
        self._n_amounts = 0

    def receive(self, arrival: Arrival) -> None:
        """Take a message; one without the element that the fields choose is none of theirs."""
        message = arrival.message
        if self._selected and not has_element(self._content(message), self._selected):
            return
        if self._kind == VALUE:
            self._newest = arrival
            self._first = self._first or arrival
            return
        numbers = self._numbers(message)
        if any(numbers):
            self._n_amounts += 1
            if self._kind == SUM:
                self._total = self._total + numbers
            else:
                self._total = np.maximum(self._total, numbers)

    def is_fresh(self, time_ns: int) -> bool:
        """Return whether the newest value is no older than may be at a time; amounts are never old."""
        if self._kind != VALUE:
            return True
        return self._newest is not None and time_ns - self._newest.time_ns <= self._max_age_ns

    def write(self, row: _Row | None) -> None:
        """Write what came for a row to it, or drop it without one, and wait for what comes for the next one."""
        if row is not None:
            if self._kind == VALUE:
                numbers = self._values(row.time_ns)
            else:
                numbers = self._total.tolist()
            for column, number in zip(self._fields, numbers, strict=False):
                row.numbers[1 + column] = number
        elif self._n_amounts:
            self._losses.n_in_no_row[self.topic] += self._n_amounts
        if self._n_amounts:
            self._n_amounts = 0
            self._total = np.zeros(len(self._fields))
        self._in_force = self._newest
        self._first = None

    def _values(self, row_ns: int) -> list[float]:
        """Return the values of a row; none if there are none at its time."""
        chosen = self._newest
        if self.timing == AFTER:
            chosen = self._in_force
            if self._first is not None and self._first.time_ns <= row_ns + self._max_age_ns:
                chosen = self._first
                lag_ms = round((chosen.time_ns - row_ns) / 1e6)
                self._losses.lags_ms[self.topic][lag_ms] += 1
            elif chosen is None or row_ns - chosen.time_ns > self._max_age_ns:
                return []
            else:
                self._losses.n_in_force[self.topic] += 1
        assert chosen is not None
        return self._numbers(chosen.message)

    def _decoded_numbers(self, message: Message) -> list[float]:
        content = self._content(message)
        try:
            if content is not None:
                return [one.number_in(content) for one in self._fields.values()]
        except FieldError:  # the first messages of the topic have these fields
            self._losses.n_unreadable += 1
        return [math.nan] * len(self._fields)
