"""The messages of a bag as bytes, in the order of their times; needs no ROS.

`mcap` reads the chunks of MCAP files; `rosbags` reads the `.bag` files of ROS 1 and the SQLite files
of ROS 2, and unpacks compressed folders. Messages are sorted by the index of the file, so memory
holds an index and the chunks that overlap in time. `rosbags`' AnyReader does the same for several
files, but it refuses JSON and all of a bag in which one type is unreadable.

If a clock was set back, a file is read in its own order, because sorting would mix the parts. An
MCAP file without an index, because its recorder crashed, is read up to its last whole chunk, in its
own order. A `.bag` file without an index is refused.

Only `Damage` ends a bag early. Any error of the two packages becomes one where they are called
(`_reading`, `_each`); every other error is a fault of this program, and is raised.
"""

from __future__ import annotations

import heapq
import weakref
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, combinations, islice
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from horde_agent.refusals import BadInput, imported, one_line

NEEDS_READERS = "bags need the packages rosbags and mcap: pip install -e '.[bag]'"
SUFFIXES = (".mcap", ".bag", ".db3")
SECOND_NS = 1_000_000_000
REORDERED_NS = SECOND_NS
"""Messages may stand in a bag up to so much later than others of the same time."""
_METADATA = "metadata.yaml"
LARGEST_RECORD = 1 << 30  # bytes; a larger record is damage
_MOST_JUMPS = 0.2
"""A larger share of jumps back in time is disorder of the messages, not a clock that was set back."""
LARGEST_OVERLAP = 1 << 31  # bytes of chunks of the same time, which are in memory at once
_RECORD_HEAD = 9  # bytes of the kind and length of a record of MCAP
_FILE_ORDER = -1  # number of no connection: entries of the index of a ROS 1 bag as they stand in it
_PLACE = attrgetter("chunk_pos", "offset")
_CHUNK_PLACE = attrgetter("chunk_start_offset")
_CHUNK_START = attrgetter("message_start_time")
_TIME = attrgetter("time_ns")
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


@dataclass(slots=True, eq=False)
class Message:
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
    damage: str = ""


class Bag:
    """A bag of one or several files.

    Attributes:
        path: Its file or folder.
        topics: Its topics by name.
        is_indexed: Whether the messages of one topic are found without reading the others.
    """

    def __init__(self, path: Path, files: Sequence[_BagFile], reasons: Sequence[str] = ()) -> None:
        self.path = path
        self._files = files
        self._reasons = reasons
        self.is_indexed = all(file.is_indexed for file in files)
        self.topics = _by_name(chain.from_iterable(file.topics.values() for file in files))

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
        """Why it may lack messages, and what helps; empty if it was read to its end."""
        reasons = [*self._reasons, *(file.cut for file in self._files)]
        return "; ".join(dict.fromkeys(reason for reason in reasons if reason))

    def messages(self, topics: Iterable[str]) -> Iterator[Message]:
        """Yield the messages of some topics in the order of their times within a second, up to a cut.

        Files that hold the same topic at the same time, such as two runs of a simulation, follow
        one another instead.
        """
        names = list(topics)
        for name in names:
            self._refuse_mixture(name)
        files = [file for file in self._files if not file.topics.keys().isdisjoint(names)]
        files.sort(key=lambda file: file.contents.start_ns)
        parts = [file.messages(names) for file in files]
        if any(_repeat(*pair, names) for pair in combinations(files, 2)):
            yield from chain.from_iterable(parts)
        else:
            yield from heapq.merge(*parts, key=_TIME)

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
    """One file, or a folder of ROS 2 with its metadata, and the messages lost from it.

    Args:
        reader: Reads it.
        folder: The compressed folder that holds the file; None without one.
    """

    def __init__(self, reader: _Mcap | _Ros, folder: _Ros | None = None) -> None:
        self._reader = reader
        self._folder = folder
        self._packed = folder or reader
        self.cut = ""
        try:
            self.contents = reader.contents()
        except Damage as error:
            self.contents = Contents({}, 0, 0, str(error))
        self.topics = self.contents.topics
        self.n_messages = sum(topic.n_messages for topic in self.topics.values())
        self.is_indexed = reader.is_indexed
        self._note_damage(self.contents.damage)
        path = reader.path
        log = path.with_name(f"{path.name}-wal")
        if log.is_file() and log.stat().st_size:
            self.cut = (
                f"{log.name} holds messages that are not in {path.name} yet: `sqlite3 {path.name} 'PRAGMA "
                "wal_checkpoint'` adds them"
            )

    def _note_damage(self, damage: str) -> None:
        if damage:
            self.cut = f"{self._packed.path.name} is damaged ({damage}): {self._packed.remedy}"

    def messages(self, names: Sequence[str]) -> Iterator[Message]:
        """Yield the messages of some topics up to a cut."""
        wanted = [name for name in names if name in self.topics]
        n_expected = sum(self.topics[name].n_messages for name in wanted)
        n_read = 0
        try:
            for message in self._reader.messages(wanted):
                n_read += 1
                if self._folder is not None:
                    self._folder.unpack(message)
                yield message
        except Damage as error:
            self._note_damage(str(error))
            return
        self.note_lack(n_read, n_expected)

    def note_lack(self, n_read: int, n_expected: int) -> None:
        """Note if fewer messages were read than were counted."""
        if n_read < n_expected:
            self.cut = (
                f"{self._packed.path.name} lacks {n_expected - n_read:,} of the {n_expected:,} messages that it "
                f"counts: {self._packed.remedy}"
            )


def _by_name(topics: Iterable[Topic]) -> dict[str, Topic]:
    """Return topics by name; those of the same name are one with the messages of all."""
    by_name: dict[str, Topic] = {}
    for topic in topics:
        n_messages = topic.n_messages
        if topic.name in by_name:
            n_messages += by_name[topic.name].n_messages
        by_name[topic.name] = topic._replace(n_messages=n_messages)
    return by_name


def _repeat(file: _BagFile, later: _BagFile, names: Iterable[str]) -> bool:
    """Return whether two files, of which the second begins later, hold one of some topics at the same times."""
    shared = file.topics.keys() & later.topics.keys() & set(names)
    return bool(shared) and later.contents.start_ns < file.contents.end_ns - REORDERED_NS


def is_bag(path: Path) -> bool:
    """Return whether a path is a bag by its name, or a folder with bags."""
    if path.is_dir():
        return (path / _METADATA).is_file() or bool(bags_in(path))
    return path.name.lower().endswith(SUFFIXES)


def open_bag(path: Path) -> Bag:
    """Return a bag; raise BadInput if the path is no bag, a package is missing, or the bag holds no message."""
    if not path.exists():
        raise BadInput(
            f"{path} does not exist: give a bag, a file *{', *'.join(SUFFIXES)} or a folder"
        )
    reasons: list[str] = []
    files = list(_files_of(path, reasons))
    if not files:
        raise BadInput(f"{path} cannot be read: {'; '.join(filter(None, reasons))}")
    bag = Bag(path, files, reasons)
    if not any(topic.n_messages for topic in bag.topics.values()):
        raise BadInput(f"{path} holds no message that can be read: {bag.cut or 'it is empty'}")
    return bag


def _files_of(path: Path, reasons: list[str]) -> Iterator[_BagFile]:
    """Yield the files of a bag, and add to `reasons` why a folder may lack some."""
    if path.is_file():
        yield _BagFile(_reader(path))
        return
    bags = bags_in(path)
    if (path / _METADATA).is_file():
        folder = _Ros(path)
        whole = _BagFile(folder)
        if folder.compression:
            files = [_BagFile(_reader(file), folder) for file in folder.unpacked_files]
            yield from files
            whole.note_lack(sum(file.n_messages for file in files), whole.n_messages)
            reasons.append(whole.cut)
            return
        reasons.append(whole.cut)
    elif all(bag.suffix.lower() == ".db3" for bag in bags):
        reasons.append(f"{_METADATA} is missing, so its recorder was not closed")
    for bag in bags:
        yield from _files_of(bag, reasons)


def _reader(file: Path) -> _Mcap | _Ros:
    if file.suffix.lower() == ".mcap":
        return _Mcap(file)
    return _Ros(file)


def bags_in(folder: Path) -> list[Path]:
    """Return the bag files of a folder, and its folders that are bags of ROS 2, in their order."""
    bags = [
        path
        for path in folder.iterdir()
        if (path.is_file() and path.suffix.lower() in SUFFIXES) or (path / _METADATA).is_file()
    ]
    return sorted(bags, key=order_of_bag)


def order_of_bag(path: Path) -> tuple[int, str]:
    """Return the key by which the bags of a folder are sorted: part_2 comes before part_10."""
    return len(path.name), path.name


@contextmanager
def _reading() -> Iterator[None]:
    """Raise Damage if a reader fails; it contains calls of files and of other packages only."""
    try:
        yield
    except Exception as error:  # readers of damaged bytes raise anything
        raise Damage(one_line(error)) from error


def _each(items: Iterable[_T]) -> Iterator[_T]:
    """Yield the items of another package's iterator; raise Damage if it fails, not if the consumer does."""
    with _reading():
        yield from items


# ---- order -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Clock:
    """The times of one publisher so far."""

    newest_ns: int
    previous_ns: int
    n_messages: int = 0
    n_jumps: int = 0
    was_back: bool = False
    is_set_back: bool = False


def _restarted(times: Iterable[tuple[int, int]]) -> set[int]:
    """Return the publishers with a clock that was set back, by more than is put in order.

    One message behind later ones is only late, and after many jumps the file is not in the order of
    time.

    Args:
        times: Publisher and time in ns of messages, as they stand in the file.
    """
    clocks: dict[int, _Clock] = {}
    for publisher, time_ns in times:
        if publisher not in clocks:
            clocks[publisher] = _Clock(newest_ns=time_ns, previous_ns=time_ns)
        clock = clocks[publisher]
        clock.n_messages += 1
        clock.n_jumps += time_ns < clock.previous_ns - REORDERED_NS
        clock.previous_ns = time_ns
        is_back = time_ns < clock.newest_ns - REORDERED_NS
        clock.is_set_back |= is_back and clock.was_back
        clock.was_back = is_back
        clock.newest_ns = max(clock.newest_ns, time_ns)
    return {
        publisher
        for publisher, clock in clocks.items()
        if clock.is_set_back and clock.n_jumps <= _MOST_JUMPS * clock.n_messages
    }


# ---- MCAP ------------------------------------------------------------------------------------------------------------


class _Mcap:
    """An MCAP file; without an index it is read from its front, one chunk at a time, so a cut does no harm.

    Attributes:
        path: The file.
        remedy: What helps against damage.
        is_indexed: Whether the messages of one topic are found without reading the others.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.remedy = (
            f"`mcap recover {path.name} -o recovered.mcap` writes what it finds, with an index"
        )
        self.is_indexed = False
        self._mcap = imported("mcap.reader", NEEDS_READERS)
        self._records = imported("mcap.records", NEEDS_READERS)
        self._data_stream = imported("mcap.data_stream", NEEDS_READERS)
        self._stream_reader = imported("mcap.stream_reader", NEEDS_READERS)

    def contents(self) -> Contents:
        """Return what it holds; raise Damage if that cannot be read."""
        with _reading():
            self._file = self.path.open("rb")
        weakref.finalize(self, self._file.close)
        with _reading():
            self._reader = self._mcap.SeekingReader(
                self._file, validate_crcs=True, record_size_limit=LARGEST_RECORD
            )
        self._summary: Any = None
        with suppress(Damage), _reading():  # its end may be missing
            self._summary = self._reader.get_summary()
        self.is_indexed = _is_index(self._summary)
        if not self.is_indexed:
            return self._counted()
        statistics = self._summary.statistics
        counts = Counter(statistics.channel_message_counts)
        topics = [
            _mcap_topic(channel, self._summary.schemas.get(channel.schema_id), counts[number])
            for number, channel in self._summary.channels.items()
        ]
        start_ns = statistics.message_start_time
        return Contents(_by_name(topics), start_ns, statistics.message_end_time)

    def _counted(self) -> Contents:
        """Return what a file without an index holds, up to its end or its cut."""
        counts = Counter[int]()
        channels: dict[int, tuple[Any, Any]] = {}
        start_ns = 2**63
        end_ns = 0
        damage = ""
        try:
            for schema, channel, message in _each(self._in_file_order(None)):
                channels[channel.id] = (channel, schema)
                counts[channel.id] += 1
                start_ns = min(start_ns, message.log_time)
                end_ns = max(end_ns, message.log_time)
        except Damage as error:
            damage = f"it lacks its end: {error}"
        statistics = self._summary and self._summary.statistics
        if statistics and statistics.message_count != counts.total():
            damage = f"{counts.total():,} of its {statistics.message_count:,} messages are in it"
        topics = [_mcap_topic(*channels[number], counts[number]) for number in channels]
        return Contents(_by_name(topics), start_ns, end_ns, damage)

    def _in_file_order(self, topics: Sequence[str] | None) -> Iterator[Any]:
        with self.path.open("rb") as file:
            reader = self._mcap.NonSeekingReader(
                file, validate_crcs=True, record_size_limit=LARGEST_RECORD
            )
            yield from reader.iter_messages(topics, log_time_order=False)

    def messages(self, topics: Sequence[str]) -> Iterator[Message]:
        """Yield the messages of some topics; raise Damage where they end early.

        They are in the order of their times, or in that of the file if it has no index or a clock
        was set back.
        """
        if not self.is_indexed:
            for _, channel, message in _each(self._in_file_order(topics)):
                yield Message(channel.topic, message.log_time, message.data)
            return
        topic_names = {
            number: channel.topic
            for number, channel in self._summary.channels.items()
            if channel.topic in topics
        }
        chunks = [
            chunk
            for chunk in sorted(self._summary.chunk_indexes, key=_CHUNK_PLACE)
            if topic_names.keys() & chunk.message_index_offsets or not chunk.message_index_offsets
        ]
        restarted = set[int]()
        with suppress(Damage):  # of an index that only says how the file is sorted
            restarted = _restarted(
                chain.from_iterable(self._times(one, topic_names) for one in chunks)
            )
        if restarted:
            for chunk in chunks:
                yield from self._messages_in(chunk, topic_names)
        else:
            yield from self._by_time(chunks, topic_names)

    def _by_time(self, chunks: Iterable[Any], topic_names: Mapping[int, str]) -> Iterator[Message]:
        """Yield the messages of some channels in the order of their times; memory holds chunks that overlap in it.

        Raise BadInput if they need too much memory.
        """
        self._refuse_overlap(chunks)
        waiting: list[Message] = []
        for chunk in sorted(chunks, key=_CHUNK_START):
            n_due = bisect_left(waiting, chunk.message_start_time, key=_TIME)
            yield from waiting[:n_due]
            del waiting[:n_due]
            waiting += self._messages_in(chunk, topic_names)
            waiting.sort(key=_TIME)
        yield from waiting

    def _messages_in(self, chunk: Any, topic_names: Mapping[int, str]) -> Iterator[Message]:
        """Yield the messages of some channels in a chunk, as they stand in it."""
        with _reading():
            content = self._record_at(chunk.chunk_start_offset, self._records.Chunk)
            records = self._stream_reader.breakup_chunk(content, validate_crc=True)
        for record in records:
            if isinstance(record, self._records.Message) and record.channel_id in topic_names:
                yield Message(topic_names[record.channel_id], record.log_time, record.data)

    def _record_at(self, place: int, kind: Any) -> Any:
        self._file.seek(place + _RECORD_HEAD)
        return kind.read(self._data_stream.ReadDataStream(self._file))

    def _refuse_overlap(self, chunks: Iterable[Any]) -> None:
        """Raise BadInput if the chunks of the same time are too large for the memory."""
        changes = []
        for chunk in chunks:
            n_bytes = chunk.uncompressed_size
            if n_bytes <= LARGEST_OVERLAP:  # a larger one is damage, and not a matter of order
                changes.append((chunk.message_start_time, 1, n_bytes))
                changes.append((chunk.message_end_time, 0, -n_bytes))
        n_overlapping = accumulate(change for _, _, change in sorted(changes))
        if max(n_overlapping, default=0) > LARGEST_OVERLAP:
            raise BadInput(
                f"{self.path} is so far from the order of time that sorting it needs more than "
                f"{LARGEST_OVERLAP / 2**30:.3g} GiB of memory: `mcap sort {self.path.name} -o sorted.mcap` sorts it"
            )

    def _times(self, chunk: Any, topic_names: Mapping[int, str]) -> Iterator[tuple[int, int]]:
        """Yield channel and time of the messages of a chunk as they stand in it."""
        places = []
        for number in topic_names.keys() & chunk.message_index_offsets:
            with _reading():
                place = chunk.message_index_offsets[number]
                index = self._record_at(place, self._records.MessageIndex)
            places += [(offset, number, time_ns) for time_ns, offset in index.records]
        places.sort()
        for _, number, time_ns in places:
            yield number, time_ns


def _is_index(summary: Any) -> bool:
    """Return whether the summary of an MCAP file finds and counts its messages, and defines their types."""
    if summary is None or summary.statistics is None or not summary.chunk_indexes:
        return False
    schema_numbers = {channel.schema_id for channel in summary.channels.values()}
    if not schema_numbers <= {0, *summary.schemas}:  # 0: a channel without a type
        return False
    return set(summary.statistics.channel_message_counts) <= set(summary.channels)


def _mcap_topic(channel: Any, schema: Any, n_messages: int) -> Topic:
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
        n_messages=n_messages,
    )


# ---- ROS -------------------------------------------------------------------------------------------------------------


class _Ros:
    """A `.bag` file of ROS 1, a SQLite file of ROS 2, or a folder of ROS 2, file by file.

    Attributes:
        path: The file or folder.
        remedy: What helps against damage.
        is_indexed: True: the messages of one topic are found without reading the others.
        compression: Of a folder, what is compressed: "file" or "message"; None without it.
        unpacked_files: Of a compressed folder, its files as they are read, which may be temporary.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_indexed = True
        self.compression: str | None = None
        self.unpacked_files: list[Path] = []
        self._is_ros1 = path.suffix.lower() == ".bag"
        if self._is_ros1:
            self._rosbags = imported("rosbags.rosbag1", NEEDS_READERS)
            self.remedy = f"`rosbag reindex {path.name}` writes an index"
        else:
            self._rosbags = imported("rosbags.rosbag2", NEEDS_READERS)
            self._zstandard = imported("zstandard", NEEDS_READERS)
            self.remedy = (
                f"`sqlite3 {path.name} .recover | sqlite3 recovered.db3` writes what it finds"
            )
        if path.is_dir():
            self.remedy = (
                f"copy it again, or `ros2 bag reindex {path.name}` if its {_METADATA} is wrong"
            )

    def contents(self) -> Contents:
        """Return what it holds; raise Damage if that cannot be read."""
        try:
            with _reading():
                self._reader = self._rosbags.Reader(self.path)
                self._reader.open()
        except Damage as error:
            if "not indexed" in str(error):
                raise Damage("it has no index, because its recorder was not closed") from None
            raise
        weakref.finalize(self, self._reader.close)
        with _reading():
            if self.path.is_dir():
                self.compression = self._reader.compression_mode
                self.unpacked_files = [one.path for one in self._reader.storage.storages]
            topics = _by_name(map(self._topic, self._reader.connections))
            start_ns = self._reader.start_time
            end_ns = self._reader.end_time
            n_counted = self._reader.message_count
        n_messages = sum(topic.n_messages for topic in topics.values())
        damage = ""
        if n_messages != n_counted:
            damage = f"{n_messages:,} of its {n_counted:,} messages are of its topics"
        return Contents(topics, start_ns, end_ns, damage)

    def _topic(self, connection: Any) -> Topic:
        encoding = "ros1"
        if not self._is_ros1:
            encoding = connection.ext.serialization_format
        return Topic(
            name=connection.topic,
            type=connection.msgtype,
            encoding=encoding,
            definition=connection.msgdef.data.encode(),
            is_idl=connection.msgdef.format.name == "IDL",
            n_messages=connection.msgcount,
        )

    def messages(self, topics: Sequence[str]) -> Iterator[Message]:
        """Yield the messages of some topics; raise Damage where they end early.

        They are in the order of their times, or in that of the file if a clock was set back.
        """
        connections = {one.id: one for one in self._reader.connections if one.topic in topics}
        if self._restarted.isdisjoint(connections):
            messages = self._reader.messages(list(connections.values()))
        elif self._is_ros1:
            indexes = self._reader.indexes
            entries = chain.from_iterable(indexes[number] for number in connections)
            indexes[_FILE_ORDER] = sorted(entries, key=_PLACE)
            any_connection = next(iter(connections.values()))
            messages = self._reader.messages([any_connection._replace(id=_FILE_ORDER)])
        else:
            messages = (
                (connections[number], time_ns, data)
                for number, time_ns, data in self._stored("topic_id, timestamp, data")
                if number in connections
            )
        for connection, time_ns, data in _each(messages):
            # SQLite stores any type in any column
            for cell, kind in ((time_ns, int), (data, bytes)):
                if not isinstance(cell, kind):
                    raise Damage(f"a cell holds {type(cell).__name__}, expected {kind.__name__}")
            yield Message(connection.topic, time_ns, data)

    def unpack(self, message: Message) -> None:
        """Decompress a message of a folder in place if each is compressed; raise Damage if it cannot be."""
        if self.compression == "message":
            with _reading():
                message.data = self._zstandard.ZstdDecompressor().decompress(message.data)

    @cached_property
    def _restarted(self) -> set[int]:
        """The publishers with a clock that was set back, as the file has them."""
        pairs: Iterable[tuple[int, int]] = ()
        if self._is_ros1:
            pairs = (
                (number, entry.time)
                for number, index in self._reader.indexes.items()
                for entry in sorted(index, key=_PLACE)
            )
        else:
            stored = _each(self._stored("topic_id, timestamp"))
            pairs = (pair for pair in stored if set(map(type, pair)) == {int})
        try:
            return _restarted(pairs)
        except Damage:  # `messages` says so
            return set()

    def _stored(self, cells: str) -> Iterator[Any]:
        """Yield cells of the messages of a SQLite file, by rosbags' connection to it, as they were stored."""
        rows: Iterator[Any] = self._reader.storage.dbconn.execute(
            f"SELECT {cells} FROM messages ORDER BY id"
        )
        return rows
