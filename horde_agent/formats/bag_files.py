"""The messages of a bag as bytes, in the order of their times; needs no ROS.

`mcap` reads MCAP files; `rosbags` reads the `.bag` files of ROS 1 and the SQLite files and
compressed folders of ROS 2. Both sort messages by the index of the file, so memory holds an index
and the chunks that overlap in time. `rosbags`' AnyReader does the same for several files, but it
refuses JSON and all of a bag in which one type is unreadable.

An MCAP file without an index, because its recorder crashed, is read up to its last whole chunk, in
its own order. A `.bag` file without an index is refused.

Only `Damage` ends a bag early. Errors of files and of the two packages become one where they are
called (`_reading`, `_each`); every other error is a fault of this program, and is raised.
"""

from __future__ import annotations

import heapq
import sqlite3
import struct
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from horde_agent.refusals import BadInput, imported

NEEDS_READERS = "bags need the packages rosbags and mcap: pip install -e '.[bag]'"
SUFFIXES = (".mcap", ".bag", ".db3")
SECOND_NS = 1_000_000_000
REORDERED_NS = SECOND_NS
"""Messages may stand in a bag up to so much later than others of the same time."""
_METADATA = "metadata.yaml"
_LARGEST_RECORD = 1 << 30  # bytes; a larger record is damage
_MOST_JUMPS = 0.2
"""A larger share of messages whose time jumps back is disorder, not a clock that was set back."""
LARGEST_OVERLAP = 1 << 31  # bytes of chunks of the same time, which are in memory at once
_T = TypeVar("_T")


class Damage(Exception):
    """A bag is damaged or cut off here; the text says how."""


class Topic(NamedTuple):
    """A topic of a bag.

    Attributes:
        name: Its name, such as /odom.
        type: Name of the type of its messages.
        encoding: How they are encoded: "cdr" (ROS 2), "ros1", "json" or "protobuf"; others cannot
            be read.
        definition: Text, or of protobuf bytes, that defines the type; empty if the bag has none.
        is_idl: Whether the definition is in OMG IDL, not in ROS's own language.
        n_messages: How many there are.
    """

    name: str
    type: str
    encoding: str
    definition: bytes
    is_idl: bool
    n_messages: int


class Message(NamedTuple):
    """A message: its topic, the time at which it was recorded in ns, its bytes."""

    topic: str
    time_ns: int
    data: bytes


class Contents(NamedTuple):
    """What a file holds.

    Attributes:
        topics: Its topics by name.
        start_ns: Time of its first message.
        end_ns: Time of its last message.
        damage: Why it lacks messages; empty if nothing says so.
    """

    topics: dict[str, Topic]
    start_ns: int
    end_ns: int
    damage: str


class Reader(Protocol):
    """A library's reader of one file or folder.

    Attributes:
        is_indexed: Whether the messages of one topic are found without reading the others.
    """

    is_indexed: bool

    def contents(self) -> Contents:
        """Return what it holds; raise Damage if that cannot be read."""

    def messages(self, topics: Sequence[str]) -> Iterator[tuple[str, int, bytes]]:
        """Yield topic, time and bytes of the messages of some topics; raise Damage where they end early.

        They are in the order of their times, or in that of the file if it has no index or its
        clock jumps back.
        """


class Bag:
    """A bag of one or several files.

    Attributes:
        path: Its file or folder.
        topics: Its topics by name.
        is_indexed: Whether the messages of one topic are found without reading the others.
    """

    def __init__(self, path: Path, files: Sequence[_BagFile], reason: str = "") -> None:
        self.path = path
        self._files = files
        self._reason = reason
        self.is_indexed = all(file.is_indexed for file in files)
        self.topics: dict[str, Topic] = {}
        for file in files:
            for name, topic in file.topics.items():
                n_messages = topic.n_messages
                if name in self.topics:
                    n_messages += self.topics[name].n_messages
                self.topics[name] = topic._replace(n_messages=n_messages)

    def _refuse_mixture(self, name: str) -> None:
        """Raise BadInput if two files encode the messages of a topic differently."""
        topics = [file.topics[name] for file in self._files if name in file.topics]
        kinds = {f"{topic.type} ({topic.encoding})" for topic in topics}
        if len(kinds) > 1:
            raise BadInput(
                f"{self.path}: the messages of {name} are {' in one file, and '.join(sorted(kinds))} in another: put "
                "the files into different folders"
            )

    @property
    def cut(self) -> str:
        """Why it may lack messages; empty if it was read to its end."""
        reasons = [self._reason, *(file.cut for file in self._files)]
        return "; ".join(dict.fromkeys(reason for reason in reasons if reason))

    def messages(self, topics: Iterable[str]) -> Iterator[Message]:
        """Yield the messages of some topics in the order of their times, up to a cut.

        Files that hold the same topic at the same time, such as two runs of a simulation, follow
        one another instead.
        """
        names = list(topics)
        for name in names:
            self._refuse_mixture(name)
        files = [file for file in self._files if not file.topics.keys().isdisjoint(names)]
        files.sort(key=lambda file: file.start_ns)
        if _repeat_times(files, set(names)):
            yield from chain.from_iterable(file.messages(names) for file in files)
        else:
            parts = [file.messages(names) for file in files]
            yield from heapq.merge(*parts, key=lambda message: message.time_ns)

    def first_messages(self, topics: Sequence[str], n_examples: int) -> dict[str, list[Message]]:
        """Return up to so many first messages of each topic that has one."""
        examples: dict[str, list[Message]] = {}
        if self.is_indexed:
            for name in topics:
                of_topic = list(islice(self.messages([name]), n_examples))
                if of_topic:
                    examples[name] = of_topic
            return examples
        n_wanted = sum(min(self.topics[name].n_messages, n_examples) for name in topics)
        for message in self.messages(topics):
            of_topic = examples.setdefault(message.topic, [])
            if len(of_topic) < n_examples:
                of_topic.append(message)
                n_wanted -= 1
            if n_wanted <= 0:
                break
        return examples


class _BagFile:
    """One file, or one compressed folder of ROS 2, with what was lost of it."""

    def __init__(self, path: Path, reader: Reader) -> None:
        self._path = path
        self._reader = reader
        self.cut = ""
        try:
            contents = reader.contents()
        except Damage as error:
            contents = Contents({}, 0, 0, str(error))
        if contents.damage:
            self.cut = f"{path.name} is damaged ({contents.damage})"
        self.is_indexed = reader.is_indexed
        self.topics = contents.topics
        self.start_ns = contents.start_ns
        self.end_ns = contents.end_ns

    def messages(self, names: Sequence[str]) -> Iterator[Message]:
        """Yield the messages of some topics up to a cut."""
        wanted = [name for name in names if name in self.topics]
        n_expected = sum(self.topics[name].n_messages for name in wanted)
        n_read = 0
        reader = self._reader.messages(wanted)
        while True:
            try:
                record = next(reader, None)
            except Damage as error:
                self.cut = f"{self._path.name} is damaged ({error})"
                return
            if record is None:
                break
            n_read += 1
            yield Message(*record)
        if n_read < n_expected:
            n_lost = n_expected - n_read
            self.cut = (
                f"{self._path.name} lacks {n_lost:,} of the {n_expected:,} messages that it counts"
            )


def _repeat_times(files: Sequence[_BagFile], names: set[str]) -> bool:
    """Return whether two of some files, sorted by their start, hold one of some topics at the same times."""
    for i, file in enumerate(files):
        for later in files[i + 1 :]:
            shared = names & file.topics.keys() & later.topics.keys()
            if shared and later.start_ns < file.end_ns - REORDERED_NS:
                return True
    return False


def is_bag(path: Path) -> bool:
    """Return whether a path is a bag by its name, or a folder with bags."""
    if path.is_dir():
        return (path / _METADATA).is_file() or bool(_bags_in(path))
    return path.name.lower().endswith(SUFFIXES)


def open_bag(path: Path) -> Bag:
    """Return a bag; raise BadInput if there is none, a package is missing, or it holds no message."""
    if not path.exists():
        raise BadInput(
            f"{path} does not exist: give a bag, a file *{', *'.join(SUFFIXES)} or a folder"
        )
    bag = _opened(path)
    if not any(topic.n_messages for topic in bag.topics.values()):
        reason = "it is empty"
        if bag.cut:
            reason = bag.cut
        raise BadInput(f"{path} holds no message that can be read: {reason}")
    return bag


def _opened(path: Path) -> Bag:
    if not path.is_dir():
        return Bag(path, [_opened_file(path)])
    bags = _bags_in(path)
    reason = ""
    if (path / _METADATA).is_file():
        try:
            if _is_compressed(path):
                return Bag(path, [_BagFile(path, _Ros(path))])
        except Damage as error:
            reason = str(error)
    elif all(bag.suffix.lower() == ".db3" for bag in bags):
        reason = f"{_METADATA} is missing, so its recorder was not closed"
    if not bags:
        raise BadInput(f"{path} cannot be read: {reason}")
    files: list[_BagFile] = []
    reasons = [reason]
    for bag in bags:
        if bag.is_dir():
            opened = _opened(bag)
            files += opened._files
            reasons.append(opened._reason)
        else:
            files.append(_opened_file(bag))
    return Bag(path, files, "; ".join(filter(None, reasons)))


def _bags_in(folder: Path) -> list[Path]:
    """Return the bag files of a folder, and its folders that are bags of ROS 2."""
    bags = [
        path
        for path in folder.iterdir()
        if (path.is_file() and path.suffix.lower() in SUFFIXES) or (path / _METADATA).is_file()
    ]
    return sorted(bags, key=lambda path: (len(path.name), path.name))  # part_2 before part_10


def _opened_file(path: Path) -> _BagFile:
    reader: Reader
    if path.suffix.lower() == ".mcap":
        reader = _Mcap(path)
    else:
        reader = _Ros(path)
    file = _BagFile(path, reader)
    log = path.with_name(f"{path.name}-wal")
    if log.is_file() and log.stat().st_size:
        file.cut = (
            f"{log.name} holds messages that are not in {path.name} yet: `sqlite3 {path.name} 'PRAGMA "
            "wal_checkpoint'` adds them"
        )
    return file


def _is_compressed(folder: Path) -> bool:
    """Return whether the files of a ROS 2 bag are compressed, or their messages; raise Damage if it cannot be read."""
    rosbag2 = imported("rosbags.rosbag2", NEEDS_READERS)
    with _reading(), rosbag2.Reader(folder) as reader:
        return bool(reader.compression_mode)


@cache
def _reader_errors() -> tuple[type[Exception], ...]:
    """Return the errors that damage to a bag causes in other packages' readers."""
    errors: list[type[Exception]] = [
        OSError,
        ValueError,
        EOFError,
        KeyError,
        IndexError,
        TypeError,  # SQLite stores any type in any column; this and the next two: rosbags'
        AttributeError,
        AssertionError,
        RuntimeError,  # lz4's
        MemoryError,  # a false size
        OverflowError,
        struct.error,
        sqlite3.Error,
        imported("mcap.exceptions", NEEDS_READERS).McapError,
        imported("zstandard", NEEDS_READERS).ZstdError,
        imported("rosbags.rosbag1", NEEDS_READERS).ReaderError,
        imported("rosbags.rosbag2", NEEDS_READERS).ReaderError,
        imported("apsw", NEEDS_READERS).Error,
    ]
    return tuple(errors)


@contextmanager
def _reading() -> Iterator[None]:
    """Raise Damage if a reader fails; it contains calls of files and of other packages only."""
    try:
        yield
    except _reader_errors() as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise Damage(reason) from error


def _each(items: Iterable[_T]) -> Iterator[_T]:
    """Yield the items of another package's iterator; raise Damage if it fails, not if the consumer does."""
    with _reading():
        iterator = iter(items)
    while True:
        with _reading():
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item


class _ClockCheck:
    """Finds publishers whose clock jumps back, in the order of the file, by more than is put in order.

    One message behind later ones is only late, and many jumps are a file whose order is none of time.
    """

    def __init__(self) -> None:
        self._publishers: dict[int, _Clock] = {}

    def add(self, publisher: int, time_ns: int) -> None:
        """Take the time of the next message of a publisher, by its number in the file."""
        clock = self._publishers.setdefault(publisher, _Clock(time_ns))
        clock.n_messages += 1
        clock.n_jumps += time_ns < clock.previous_ns - REORDERED_NS
        clock.previous_ns = time_ns
        is_back = time_ns < clock.newest_ns - REORDERED_NS
        clock.is_set_back |= is_back and clock.was_back
        clock.was_back = is_back
        clock.newest_ns = max(clock.newest_ns, time_ns)

    @property
    def restarted(self) -> set[int]:
        """The publishers whose clock was set back."""
        return {
            publisher
            for publisher, clock in self._publishers.items()
            if clock.is_set_back and clock.n_jumps <= _MOST_JUMPS * clock.n_messages
        }


class _Clock:
    """The times of one publisher so far."""

    def __init__(self, time_ns: int) -> None:
        self.newest_ns = time_ns
        self.previous_ns = time_ns
        self.was_back = False
        self.is_set_back = False
        self.n_messages = 0
        self.n_jumps = 0


# ---- MCAP ------------------------------------------------------------------------------------------------------------


class _TimedMessage(NamedTuple):
    """A message of mcap, or None at the time at which a chunk begins."""

    time_ns: int
    message: Any


class _Mcap:
    """An MCAP file; without an index it is read from its front, one chunk at a time, so a cut does no harm."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mcap = imported("mcap.reader", NEEDS_READERS)
        self._stream_reader = imported("mcap.stream_reader", NEEDS_READERS)
        self._records = imported("mcap.records", NEEDS_READERS)
        self._summary: Any = None
        self.is_indexed = False

    def contents(self) -> Contents:
        """Return what it holds."""
        with _reading():
            self._file = self._path.open("rb")
        weakref.finalize(self, self._file.close)
        with _reading():
            reader = self._mcap.SeekingReader(self._file, record_size_limit=_LARGEST_RECORD)
        try:
            with _reading():
                self._summary = reader.get_summary()
        except Damage:  # its end is missing
            return self._counted()
        if not _is_index(self._summary):
            return self._counted()
        self.is_indexed = True
        counts = Counter[str]()
        topics: dict[str, Topic] = {}
        statistics = self._summary.statistics
        for number, channel in self._summary.channels.items():
            schema = self._summary.schemas.get(channel.schema_id)
            topics[channel.topic] = _mcap_topic(channel, schema)
            counts[channel.topic] += statistics.channel_message_counts.get(number, 0)
        return Contents(
            _with_counts(topics, counts),
            statistics.message_start_time,
            statistics.message_end_time,
            damage="",
        )

    def _counted(self) -> Contents:
        """Return what a file without an index holds, up to its end or its cut."""
        counts = Counter[str]()
        topics: dict[str, Topic] = {}
        start_ns = 2**63
        end_ns = 0
        damage = ""
        try:
            for schema, channel, message in _each(self._in_file_order(None)):
                if channel.topic not in topics:
                    topics[channel.topic] = _mcap_topic(channel, schema)
                counts[channel.topic] += 1
                start_ns = min(start_ns, message.log_time)
                end_ns = max(end_ns, message.log_time)
        except Damage as error:
            damage = f"it lacks its end: {error}"
        return Contents(_with_counts(topics, counts), start_ns, end_ns, damage)

    def _in_file_order(self, topics: Sequence[str] | None) -> Iterator[Any]:
        self._file.seek(0)
        reader = self._mcap.NonSeekingReader(
            self._file, validate_crcs=True, record_size_limit=_LARGEST_RECORD
        )
        messages: Iterator[Any] = reader.iter_messages(topics, log_time_order=False)
        return messages

    def messages(self, topics: Sequence[str]) -> Iterator[tuple[str, int, bytes]]:
        """Yield topic, time and bytes of the messages of some topics."""
        if not self.is_indexed:
            for _, channel, message in _each(self._in_file_order(topics)):
                yield channel.topic, message.log_time, message.data
            return
        by_time = not self._clock_jumps_back(topics)
        parts = [self._messages_in(chunk, topics, by_time) for chunk, _ in self._chunks(topics)]
        timed_messages: Iterable[_TimedMessage] = chain.from_iterable(parts)
        if by_time:
            self._refuse_overlap(topics)
            timed_messages = heapq.merge(*parts, key=lambda one: one.time_ns)
        for time_ns, message in timed_messages:
            if message is not None:
                yield self._summary.channels[message.channel_id].topic, time_ns, message.data

    def _chunks(self, topics: Sequence[str]) -> Iterator[tuple[Any, dict[int, int]]]:
        """Yield the index of each chunk with one of some topics, and the offsets of their message indexes."""
        channels = self._summary.channels
        wanted = {number for number, channel in channels.items() if channel.topic in topics}
        for chunk in sorted(self._summary.chunk_indexes, key=lambda one: one.chunk_start_offset):
            all_offsets = chunk.message_index_offsets
            offsets = {number: all_offsets[number] for number in wanted & all_offsets.keys()}
            if offsets or not all_offsets:
                yield chunk, offsets

    def _messages_in(
        self, chunk: Any, topics: Sequence[str], by_time: bool
    ) -> Iterator[_TimedMessage]:
        """Yield the start of a chunk, then its messages, sorted by time or as they stand in the file."""
        # The chunk is not read before the merge of all chunks has come to its start
        yield _TimedMessage(chunk.message_start_time, None)
        channels = self._summary.channels
        wanted = {number for number, channel in channels.items() if channel.topic in topics}
        with _reading():
            record = self._record_at(chunk.chunk_start_offset)
            records = self._stream_reader.breakup_chunk(record, validate_crc=True)
        messages = [
            one
            for one in records
            if isinstance(one, self._records.Message) and one.channel_id in wanted
        ]
        if by_time:
            messages.sort(key=lambda one: one.log_time)
        for message in messages:
            yield _TimedMessage(message.log_time, message)

    def _record_at(self, offset: int) -> Any:
        self._file.seek(offset)
        reader = self._stream_reader.StreamReader(
            self._file, skip_magic=True, emit_chunks=True, record_size_limit=_LARGEST_RECORD
        )
        return next(reader.records)

    def _clock_jumps_back(self, topics: Sequence[str]) -> bool:
        """Return whether the log times of a topic jump back, in the order of the file."""
        clock = _ClockCheck()
        for _, offsets in self._chunks(topics):
            for number, offset in offsets.items():
                with _reading():
                    records = self._record_at(offset).records
                for time_ns, _ in sorted(records, key=lambda record: record[1]):
                    clock.add(number, time_ns)
        return bool(clock.restarted)

    def _refuse_overlap(self, topics: Sequence[str]) -> None:
        """Raise BadInput if sorting needs too much memory."""
        changes = []
        for chunk, _ in self._chunks(topics):
            changes.append((chunk.message_start_time, 1, chunk.uncompressed_size))
            changes.append((chunk.message_end_time, 0, -chunk.uncompressed_size))
        n_bytes = 0
        for _, _, change in sorted(changes):
            n_bytes += change
            if n_bytes > LARGEST_OVERLAP:
                name = self._path.name
                raise BadInput(
                    f"{self._path} is so far from the order of time that sorting it needs more than "
                    f"{LARGEST_OVERLAP / 2**30:.3g} GiB of memory: `mcap sort {name} -o sorted.mcap` sorts it"
                )


def _is_index(summary: Any) -> bool:
    """Return whether the summary of an MCAP file finds and counts its messages, and defines their types."""
    if summary is None or summary.statistics is None or not summary.chunk_indexes:
        return False
    schema_numbers = {channel.schema_id for channel in summary.channels.values()}
    if not schema_numbers <= {0, *summary.schemas}:  # 0: a channel without a type
        return False
    return set(summary.statistics.channel_message_counts) <= set(summary.channels)


def _with_counts(topics: dict[str, Topic], counts: Counter[str]) -> dict[str, Topic]:
    return {name: topic._replace(n_messages=counts[name]) for name, topic in topics.items()}


def _mcap_topic(channel: Any, schema: Any) -> Topic:
    definition = b""
    type_name = ""
    language = ""
    if schema is not None:
        definition = schema.data
        type_name = schema.name
        language = schema.encoding
    return Topic(
        name=channel.topic,
        type=type_name,
        encoding=channel.message_encoding,
        definition=definition,
        is_idl=language == "ros2idl",
        n_messages=0,
    )


# ---- ROS -------------------------------------------------------------------------------------------------------------


class _Ros:
    """A `.bag` file of ROS 1, a SQLite file of ROS 2, or the folder of a compressed bag of ROS 2."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.is_indexed = True
        self._restarted: set[int] | None = None

    @property
    def _is_ros1(self) -> bool:
        return self._path.suffix.lower() == ".bag"

    def contents(self) -> Contents:
        """Return what it holds; raise Damage if that cannot be read."""
        package = "rosbags.rosbag2"
        if self._is_ros1:
            package = "rosbags.rosbag1"
        rosbags = imported(package, NEEDS_READERS)
        try:
            with _reading():
                self._reader = rosbags.Reader(self._path)
                self._reader.open()
        except Damage as error:
            if "not indexed" in str(error):
                raise Damage(
                    "it has no index, because its recorder was not closed: "
                    f"`rosbag reindex {self._path.name}` writes one"
                ) from None
            raise
        weakref.finalize(self, self._reader.close)
        with _reading():
            topics = self._topics()
            start_ns = self._reader.start_time
            end_ns = self._reader.end_time
            n_counted = self._reader.message_count
        n_messages = sum(topic.n_messages for topic in topics.values())
        damage = ""
        if n_messages != n_counted:
            damage = f"{n_messages:,} of its {n_counted:,} messages are of its topics"
        return Contents(topics, start_ns, end_ns, damage)

    def _topics(self) -> dict[str, Topic]:
        topics: dict[str, Topic] = {}
        for connection in self._reader.connections:
            n_messages = connection.msgcount
            if connection.topic in topics:
                n_messages += topics[connection.topic].n_messages
            encoding = "ros1"
            if not self._is_ros1:
                encoding = connection.ext.serialization_format
            topics[connection.topic] = Topic(
                name=connection.topic,
                type=connection.msgtype,
                encoding=encoding,
                definition=connection.msgdef.data.encode(),
                is_idl=connection.msgdef.format.name == "IDL",
                n_messages=n_messages,
            )
        return topics

    def messages(self, topics: Sequence[str]) -> Iterator[tuple[str, int, bytes]]:
        """Yield topic, time and bytes of the messages of some topics."""
        connections = [one for one in self._reader.connections if one.topic in topics]
        if not connections:
            return
        if self._restarted is None:
            clock = _ClockCheck()
            for publisher, time_ns in self._times():
                clock.add(publisher, time_ns)
            self._restarted = clock.restarted
        if self._restarted.isdisjoint(one.id for one in connections):
            messages = self._reader.messages(connections)
        elif self._is_ros1:
            messages = self._by_parts(connections)
        else:
            messages = self._as_stored(connections)
        for connection, time_ns, data in _each(messages):
            # SQLite stores any type in any column
            for cell, kind in ((time_ns, int), (data, bytes)):
                if not isinstance(cell, kind):
                    raise Damage(f"a cell holds {type(cell).__name__}, expected {kind.__name__}")
            yield connection.topic, time_ns, data

    def _times(self) -> Iterator[tuple[int, int]]:
        """Yield the publisher and the time of each message as it stands in the file; of a compressed folder, none."""
        if self._is_ros1:
            for number, index in self._reader.indexes.items():
                for entry in sorted(index, key=lambda one: (one.chunk_pos, one.offset)):
                    yield number, entry.time
        elif self._path.is_file():
            try:
                for number, time_ns in _each(self._selected("topic_id, timestamp")):
                    if isinstance(time_ns, int):
                        yield number, time_ns
            except Damage:  # `messages` says so
                return

    def _as_stored(self, connections: Sequence[Any]) -> Iterator[tuple[Any, int, bytes]]:
        """Yield the messages of a SQLite file in the order in which they were stored."""
        publishers = {one.id: one for one in connections}
        for number, time_ns, data in self._selected("topic_id, timestamp, data"):
            if number in publishers:
                yield publishers[number], time_ns, data

    def _selected(self, cells: str) -> Iterator[Any]:
        uri = f"{self._path.resolve().as_uri()}?immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as database:
            yield from database.execute(f"SELECT {cells} FROM messages ORDER BY id")

    def _by_parts(self, connections: Sequence[Any]) -> Iterator[tuple[Any, int, bytes]]:
        """Yield the messages of a ROS 1 bag, each part between two jumps of the clock in the order of time."""
        whole_index = self._reader.indexes
        entries = [(one.id, entry) for one in connections for entry in whole_index[one.id]]
        entries.sort(key=lambda one: (one[1].chunk_pos, one[1].offset))
        parts: list[dict[int, list[Any]]] = [{}]
        for number, entry in entries:
            earlier_entries = parts[-1].get(number, [])
            if earlier_entries and entry.time < earlier_entries[-1].time - REORDERED_NS:
                parts.append({})
            parts[-1].setdefault(number, []).append(entry)
        try:
            for part in parts:
                self._reader.indexes = {one.id: sorted(part.get(one.id, [])) for one in connections}
                yield from self._reader.messages(connections)
        finally:
            self._reader.indexes = whole_index
