"""The messages of a bag as bytes, in the order of its file; needs no ROS.

Read are MCAP files, `.bag` files of ROS 1, and the folders of ROS 2 (SQLite or MCAP). A bag that
was cut off, because its recorder crashed, is read up to the cut: MCAP and `.bag` files are read
from the front, without their index; a folder without `metadata.yaml` is read file by file.

Only `Damage` ends a bag early. Errors of files and of other packages' readers become one where they
are called (`_reading`, `_each`); every other error is a fault of this program, and is raised.

Sources: the MCAP specification (mcap.dev/spec); "Bags/Format/2.0" of the ROS wiki.
"""

from __future__ import annotations

import bz2
import io
import sqlite3
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, TypeVar

from horde_agent.runs.config import BadInput, imported

NEEDS_READERS = "bags need the packages rosbags and mcap: pip install -e '.[bag]'"
SUFFIXES = (".mcap", ".bag", ".db3")
_METADATA = "metadata.yaml"
_ROS1_MAGIC = b"#ROSBAG V2.0\n"
_LARGEST_RECORD = 1 << 30  # bytes; a larger record is damage
_T = TypeVar("_T")


class Damage(Exception):
    """A bag is damaged or cut off here; the text says how."""


class Topic(NamedTuple):
    """A topic of a bag.

    Attributes:
        name: Its name, such as /odom.
        type: Name of the type of its messages.
        encoding: How they are encoded: "cdr" (ROS 2), "ros1" or "json"; others cannot be read.
        definition: Text that defines the type; empty if the bag has none.
        is_idl: Whether the definition is in OMG IDL, not in ROS's own language.
        n_messages: How many there are.
    """

    name: str
    type: str
    encoding: str
    definition: str
    is_idl: bool
    n_messages: int


class Message(NamedTuple):
    """A message: its topic, the time at which it was recorded in ns, its bytes."""

    topic: str
    time_ns: int
    data: bytes


class Bag(Protocol):
    """A bag.

    Attributes:
        path: Its file or folder.
        topics: Its topics by name.
        cut: Why it was not read to its end; empty if it was.
    """

    path: Path
    topics: dict[str, Topic]

    @property
    def cut(self) -> str:
        """Why it was not read to its end."""

    def messages(self, topics: Iterable[str]) -> Iterator[Message]:
        """Yield the messages of some topics in the order of the file, up to a cut."""


def is_bag(path: Path) -> bool:
    """Return whether a path is a bag by its name, or a folder with bag files."""
    if path.is_dir():
        return (path / _METADATA).is_file() or bool(_bag_files(path))
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
        return _opened_file(path)
    if (path / _METADATA).is_file():
        try:
            return _Ros2Folder(path)
        except Damage as error:
            reason = str(error)
    else:
        reason = f"{_METADATA} is missing, so its recorder was not closed"
    files = _bag_files(path)
    if not files:
        raise BadInput(f"{path} cannot be read: {reason}")
    return _Files(path, [_opened_file(file) for file in files], reason)


def _opened_file(path: Path) -> Bag:
    kinds: dict[str, Callable[[Path], Bag]] = {
        ".mcap": _McapFile,
        ".bag": _Ros1File,
        ".db3": _SqliteFile,
    }
    return kinds[path.suffix.lower()](path)


def _bag_files(folder: Path) -> list[Path]:
    files = [path for path in folder.iterdir() if path.suffix.lower() in (".mcap", ".db3")]
    return sorted(files, key=lambda path: (len(path.name), path.name))  # part_2 before part_10


@cache
def _reader_errors() -> tuple[type[Exception], ...]:
    """Return the errors that damage to a bag causes in other packages' readers."""
    errors: list[type[Exception]] = [
        OSError,
        ValueError,
        EOFError,
        KeyError,
        IndexError,
        RuntimeError,  # lz4's
        MemoryError,  # a false size
        OverflowError,
        struct.error,
        sqlite3.Error,
        imported("mcap.exceptions", NEEDS_READERS).McapError,
        imported("zstandard", NEEDS_READERS).ZstdError,
        imported("rosbags.rosbag2", NEEDS_READERS).ReaderError,
        imported("apsw", NEEDS_READERS).Error,
    ]
    return tuple(errors)


def _opened_binary(path: Path) -> IO[bytes]:
    """Open a file; raise Damage if that fails."""
    with _reading():
        return path.open("rb")


def _has_more(file: IO[bytes]) -> bool:
    """Return whether a file has another byte."""
    with _reading():
        return bool(file.peek(1))  # type: ignore[attr-defined]


def _numbers(layout: struct.Struct, content: bytes, position: int = 0) -> tuple[Any, ...]:
    """Return the numbers at a position of some bytes; raise Damage if they are too few."""
    if len(content) < position + layout.size:
        n_bytes = max(len(content) - position, 0)
        raise Damage(f"{n_bytes} of {layout.size} bytes of a number")
    return layout.unpack_from(content, position)


def _field(header: Mapping[bytes, bytes], name: bytes, layout: struct.Struct) -> int:
    """Return the number of a header's field; raise Damage if there is none."""
    number: int = _numbers(layout, _entry(header, name, "field"))[0]
    return number


def _entry(entries: Mapping[Any, _T], key: Any, kind: str) -> _T:
    """Return an entry that other bytes of a bag refer to; raise Damage if there is none."""
    if key not in entries:
        name = key
        if isinstance(key, bytes):
            name = key.decode(errors="replace")
        raise Damage(f"there is no {kind} {name}")
    return entries[key]


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def _reading() -> Iterator[None]:
    """Raise Damage if a reader fails; it contains calls of files and of other packages only."""
    try:
        yield
    except _reader_errors() as error:
        raise Damage(_reason(error)) from error


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


# ---- MCAP ------------------------------------------------------------------------------------------------------------

_MCAP_RECORD = struct.Struct("<BQ")  # opcode, length
_MCAP_MESSAGE = struct.Struct("<HIQQ")  # channel, sequence, log time, publish time
_SCHEMA_OPCODE = 3
_CHANNEL_OPCODE = 4
_MESSAGE_OPCODE = 5


class _McapFile:
    """An MCAP file. It is read from its front to its end, one chunk at a time, so a cut does no harm."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut = ""
        self._mcap = imported("mcap.stream_reader", NEEDS_READERS)
        self._records = imported("mcap.records", NEEDS_READERS)
        self._data_stream = imported("mcap.data_stream", NEEDS_READERS)
        self._schemas: dict[int, Any] = {}
        self._channels: dict[int, Any] = {}
        counts = self._summary()
        if counts is None:
            counts = Counter(message.topic for message in self.messages(None))
        self.topics = {topic.name: topic for topic in self._topics(counts)}

    def _summary(self) -> Counter[str] | None:
        """Read schemas and channels from the summary, return the numbers of messages; None without one."""
        reader = imported("mcap.reader", NEEDS_READERS)
        try:
            with _reading(), self.path.open("rb") as file:
                opened = reader.SeekingReader(file, record_size_limit=_LARGEST_RECORD)
                summary = opened.get_summary()
        except Damage:
            return None
        if summary is None or summary.statistics is None or not summary.channels:
            return None
        n_messages_of = summary.statistics.channel_message_counts
        if not set(n_messages_of) <= set(summary.channels):
            return None
        self._schemas |= summary.schemas
        self._channels |= summary.channels
        counts = Counter[str]()
        for number, n_messages in n_messages_of.items():
            counts[self._channels[number].topic] += n_messages
        return counts

    def _topics(self, counts: Counter[str]) -> Iterator[Topic]:
        for channel in self._channels.values():
            schema = self._schemas.get(channel.schema_id)
            definition = ""
            type_name = ""
            if schema is not None:
                definition = schema.data.decode(errors="replace")
                type_name = schema.name
            yield Topic(
                name=channel.topic,
                type=type_name,
                encoding=channel.message_encoding,
                definition=definition,
                is_idl=schema is not None and schema.encoding == "ros2idl",
                n_messages=counts[channel.topic],
            )

    def messages(self, topics: Iterable[str] | None) -> Iterator[Message]:
        """Yield the messages of some topics, of all when None."""
        wanted = None
        if topics is not None:
            wanted = set(topics)
        try:
            with _opened_binary(self.path) as file:
                reader = self._mcap.StreamReader(
                    file, emit_chunks=True, record_size_limit=_LARGEST_RECORD
                )
                for record in _each(reader.records):
                    yield from self._messages_of(record, wanted)
        except Damage as error:
            self.cut = f"{self.path.name} ends without its footer ({error})"

    def _messages_of(self, record: Any, wanted: set[str] | None) -> Iterator[Message]:
        if isinstance(record, self._records.Chunk):
            with _reading():
                stream, length = self._mcap.get_chunk_data_stream(record, validate_crc=True)
                chunk = stream.read(length)
            yield from self._messages_in_chunk(chunk, wanted)
        elif isinstance(record, self._records.Message):
            topic = _entry(self._channels, record.channel_id, "channel").topic
            if wanted is None or topic in wanted:
                yield Message(topic, record.log_time, record.data)
        elif isinstance(record, self._records.Schema):
            self._schemas[record.id] = record
        elif isinstance(record, self._records.Channel):
            self._channels[record.id] = record

    def _messages_in_chunk(self, chunk: bytes, wanted: set[str] | None) -> Iterator[Message]:
        """Yield the messages of a chunk; mcap's own parser takes several times as long."""
        position = 0
        while position < len(chunk):
            opcode, length = _numbers(_MCAP_RECORD, chunk, position)
            start = position + _MCAP_RECORD.size
            position = start + length
            if position > len(chunk):
                raise Damage(f"a record of {length} bytes exceeds its chunk")
            if opcode == _MESSAGE_OPCODE:
                channel, _, log_time_ns, _ = _numbers(_MCAP_MESSAGE, chunk, start)
                topic = _entry(self._channels, channel, "channel").topic
                if wanted is None or topic in wanted:
                    yield Message(topic, log_time_ns, chunk[start + _MCAP_MESSAGE.size : position])
            elif opcode in (_SCHEMA_OPCODE, _CHANNEL_OPCODE):
                kind = self._records.Channel
                entries = self._channels
                if opcode == _SCHEMA_OPCODE:
                    kind = self._records.Schema
                    entries = self._schemas
                with _reading():
                    content = self._data_stream.ReadDataStream(io.BytesIO(chunk[start:position]))
                    entry = kind.read(content)
                entries[entry.id] = entry


# ---- ROS 1 -----------------------------------------------------------------------------------------------------------

_U8 = struct.Struct("<B")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_ROS1_TIME = struct.Struct("<II")  # s, ns
_MESSAGE_OP = 2
_HEADER_OP = 3
_INDEX_OP = 4
_CHUNK_OP = 5
_CHUNK_INFO_OP = 6
_CONNECTION_OP = 7


class _Connection(NamedTuple):
    """A connection of a ROS 1 bag: what one publisher wrote to one topic."""

    topic: str
    type: str
    definition: str


class _Ros1File:
    """A bag of ROS 1, version 2.0. It is read from its front; its index only gives the numbers of messages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut = ""
        self._connections: dict[int, _Connection] = {}
        with path.open("rb") as file:
            if file.read(len(_ROS1_MAGIC)) != _ROS1_MAGIC:
                raise BadInput(
                    f"{path} is no ROS 1 bag of version 2.0: it does not begin with #ROSBAG V2.0"
                )
        counts = self._index()
        if counts is None:
            counts = Counter(message.topic for message in self.messages(None))
        self.topics: dict[str, Topic] = {}
        for connection in self._connections.values():
            self.topics[connection.topic] = Topic(
                name=connection.topic,
                type=connection.type,
                encoding="ros1",
                definition=connection.definition,
                is_idl=False,
                n_messages=counts[connection.topic],
            )

    def _index(self) -> Counter[str] | None:
        """Read the connections from the index, return the numbers of messages; None if the bag was not closed."""
        counts = Counter[str]()
        try:
            with _opened_binary(self.path) as file:
                file.seek(len(_ROS1_MAGIC))
                header, _ = _ros1_record(file)
                index_position = _field(header, b"index_pos", _U64)
                if not index_position:
                    return None
                with _reading():
                    file.seek(index_position)
                while _has_more(file):
                    header, data = _ros1_record(file)
                    operation = _field(header, b"op", _U8)
                    if operation == _CONNECTION_OP:
                        self._add_connection(header, data)
                    elif operation == _CHUNK_INFO_OP:
                        with _reading():
                            pairs = list(struct.iter_unpack("<II", data))
                        for number, n_messages in pairs:
                            topic = _entry(self._connections, number, "connection").topic
                            counts[topic] += n_messages
        except Damage:
            self._connections.clear()
            return None
        return counts

    def messages(self, topics: Iterable[str] | None) -> Iterator[Message]:
        """Yield the messages of some topics, of all when None."""
        wanted = None
        if topics is not None:
            wanted = set(topics)
        is_closed = False
        try:
            with _opened_binary(self.path) as file:
                file.seek(len(_ROS1_MAGIC))
                while _has_more(file):
                    header, data = _ros1_record(file, may_be_short=True)
                    operation = _field(header, b"op", _U8)
                    if operation == _HEADER_OP:
                        is_closed = _field(header, b"index_pos", _U64) > 0
                    elif operation == _CHUNK_OP:
                        compression = _entry(header, b"compression", "field")
                        yield from self._messages_in_chunk(_decompressed(data, compression), wanted)
                    elif operation not in (_INDEX_OP, _CHUNK_INFO_OP, _CONNECTION_OP):
                        raise Damage(f"a record of the unknown kind {operation}")
        except Damage as error:
            self.cut = f"{self.path.name} ends within a record ({error})"
            return
        if not is_closed:
            self.cut = f"{self.path.name} has no index"

    def _messages_in_chunk(self, chunk: bytes, wanted: set[str] | None) -> Iterator[Message]:
        stream = io.BytesIO(chunk)
        while stream.tell() < len(chunk):
            header, data = _ros1_record(stream)
            operation = _field(header, b"op", _U8)
            if operation == _CONNECTION_OP:
                self._add_connection(header, data)
            elif operation == _MESSAGE_OP:
                number = _field(header, b"conn", _U32)
                topic = _entry(self._connections, number, "connection").topic
                if wanted is None or topic in wanted:
                    time_s, time_ns = _numbers(_ROS1_TIME, _entry(header, b"time", "field"))
                    yield Message(topic, time_s * 1_000_000_000 + time_ns, data)
            else:
                raise Damage(f"a record of the unknown kind {operation} in a chunk")

    def _add_connection(self, header: dict[bytes, bytes], data: bytes) -> None:
        description = _ros1_fields(data)
        type_name = _entry(description, b"type", "field").decode(errors="replace")
        package, _, name = type_name.rpartition("/")
        definition = _entry(description, b"message_definition", "field")
        self._connections[_field(header, b"conn", _U32)] = _Connection(
            topic=_entry(header, b"topic", "field").decode(errors="replace"),
            type=f"{package}/msg/{name}",  # as in ROS 2
            definition=definition.decode(errors="replace"),
        )


def _ros1_record(
    file: IO[bytes], *, may_be_short: bool = False
) -> tuple[dict[bytes, bytes], bytes]:
    """Read one record, its header and its data; raise Damage if it is cut off, and its data may not be."""
    header = _ros1_fields(_sized(file))
    return header, _sized(file, may_be_short=may_be_short)


def _sized(file: IO[bytes], *, may_be_short: bool = False) -> bytes:
    """Read a length and so many bytes."""
    with _reading():
        size = file.read(_U32.size)
    length = _numbers(_U32, size)[0]
    if length > _LARGEST_RECORD:
        raise Damage(f"a record of {length} bytes")
    with _reading():
        content = file.read(length)
    if len(content) < length and not may_be_short:
        raise Damage(f"{len(content)} of {length} bytes of a record")
    return content


def _ros1_fields(text: bytes) -> dict[bytes, bytes]:
    """Return the fields NAME=VALUE of a header."""
    fields = {}
    position = 0
    while position < len(text):
        start = position + _U32.size
        position = start + _numbers(_U32, text, position)[0]
        name, _, value = text[start:position].partition(b"=")
        fields[name] = value
    return fields


def _decompressed(data: bytes, compression: bytes) -> bytes:
    if compression == b"none":
        return data
    if compression == b"bz2":
        with _reading():
            return bz2.decompress(data)
    if compression == b"lz4":
        lz4 = imported("lz4.frame", NEEDS_READERS)
        with _reading():
            return bytes(lz4.decompress(data))
    raise Damage(f"unknown compression {compression.decode(errors='replace')}")


# ---- ROS 2 -----------------------------------------------------------------------------------------------------------


class _Ros2Folder:
    """The folder of a ROS 2 bag, SQLite or MCAP, compressed or not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut = ""
        self._rosbag2 = imported("rosbags.rosbag2", NEEDS_READERS)
        self.topics: dict[str, Topic] = {}
        with self._opened() as reader:
            for connection in reader.connections:
                self.topics[connection.topic] = Topic(
                    name=connection.topic,
                    type=connection.msgtype,
                    encoding=connection.ext.serialization_format,
                    definition=connection.msgdef.data,
                    is_idl=connection.msgdef.format.name == "IDL",
                    n_messages=connection.msgcount,
                )

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """Open the folder; raise Damage if that fails."""
        with _reading():
            reader = self._rosbag2.Reader(self.path)
            reader.open()
        try:
            yield reader
        finally:
            reader.close()

    def messages(self, topics: Iterable[str]) -> Iterator[Message]:
        """Yield the messages of some topics."""
        wanted = set(topics)
        try:
            with self._opened() as reader:
                connections = [c for c in reader.connections if c.topic in wanted]
                for connection, time_ns, data in _each(reader.messages(connections)):
                    # Its SQLite reader passes on cells of any type
                    _check_types((time_ns, data), (int, bytes))
                    yield Message(connection.topic, time_ns, data)
        except Damage as error:
            self.cut = f"{self.path.name} is damaged ({error})"


class _SqliteFile:
    """One SQLite file of a ROS 2 bag, without its metadata."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut = ""
        self.topics: dict[str, Topic] = {}
        self._names: dict[int, str] = {}
        try:
            with closing(self._opened()) as database:
                self._read_topics(database)
        except Damage as error:
            self.cut = f"{path.name} is no SQLite file of a bag ({error})"

    def _opened(self) -> sqlite3.Connection:
        with _reading():
            return sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=ro", uri=True)

    def _read_topics(self, database: sqlite3.Connection) -> None:
        definitions: dict[str, tuple[str, str]] = {}
        tables = [name for (name,) in _selected(database, "SELECT name FROM sqlite_master")]
        if "message_definitions" in tables:
            query = (
                "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions"
            )
            for type_name, language, text in _selected(database, query, (str, str, str)):
                definitions[type_name] = (language, text)
        counts: dict[int, int] = {}
        try:
            query = "SELECT topic_id, COUNT(*) FROM messages GROUP BY topic_id"
            counts |= dict(_selected(database, query, (int, int)))
        except Damage as error:
            self.cut = f"{self.path.name} is damaged ({error})"
        query = "SELECT id, name, type, serialization_format FROM topics"
        topics = list(_selected(database, query, (int, str, str, str)))
        numbers = {number for number, *_ in topics}
        if len(numbers) < len(topics) or not numbers >= set(counts):
            raise Damage("the numbers of topics do not fit the messages")
        for number, name, type_name, encoding in topics:
            language, text = definitions.get(type_name, ("", ""))
            n_messages = counts.get(number, 0)
            if self.cut:
                # A damaged table cannot be counted; reading finds what it has
                n_messages = 1
            self._names[number] = name
            self.topics[name] = Topic(
                name=name,
                type=type_name,
                encoding=encoding,
                definition=text,
                is_idl=language == "ros2idl",
                n_messages=n_messages,
            )

    def messages(self, topics: Iterable[str]) -> Iterator[Message]:
        """Yield the messages of some topics."""
        wanted = set(topics)
        try:
            with closing(self._opened()) as database:
                # In the order of the rows, not of the times: an index may be lost with the end
                query = "SELECT id, topic_id, timestamp, data FROM messages ORDER BY id"
                previous = None
                for row, number, time_ns, data in _selected(
                    database, query, (int, int, int, bytes)
                ):
                    if previous is not None and row <= previous:
                        raise Damage(f"row {row} follows row {previous}")
                    previous = row
                    topic = _entry(self._names, number, "topic")
                    if topic in wanted:
                        yield Message(topic, time_ns, data)
        except Damage as error:
            self.cut = f"{self.path.name} is damaged ({error})"


def _selected(
    database: sqlite3.Connection, query: str, kinds: tuple[type, ...] = (str,)
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query; raise Damage if it fails, or a cell is of another type than expected."""
    with _reading():
        rows = database.execute(query)
    for row in _each(rows):
        _check_types(row, kinds)
        yield row


def _check_types(row: Sequence[object], kinds: Sequence[type]) -> None:
    """Raise Damage if a cell of a row is of another type than expected."""
    for cell, kind in zip(row, kinds, strict=True):
        if not isinstance(cell, kind):
            raise Damage(f"a cell holds {type(cell).__name__}, expected {kind.__name__}")


class _Files:
    """Several files that are one bag, in the order of their names."""

    def __init__(self, path: Path, bags: list[Bag], reason: str) -> None:
        self.path = path
        self._bags = bags
        self._reason = reason
        self.topics: dict[str, Topic] = {}
        for bag in bags:
            for name, topic in bag.topics.items():
                n_before = 0
                if name in self.topics:
                    n_before = self.topics[name].n_messages
                self.topics[name] = topic._replace(n_messages=n_before + topic.n_messages)

    @property
    def cut(self) -> str:
        """Why the bag may lack its end."""
        return "; ".join([self._reason, *(bag.cut for bag in self._bags if bag.cut)])

    def messages(self, topics: Iterable[str]) -> Iterator[Message]:
        """Yield the messages of some topics."""
        names = list(topics)
        for bag in self._bags:
            yield from bag.messages(names)
