"""The messages of a bag as bytes, in the order of its file; needs no ROS.

Read are MCAP files, `.bag` files of ROS 1, and the folders of ROS 2 (SQLite or MCAP). A bag that
was cut off, because its recorder crashed, is read up to the cut: MCAP and `.bag` files are read
from the front, without their index; a folder without `metadata.yaml` is read file by file.

Sources: the MCAP specification (mcap.dev/spec); "Bags/Format/2.0" of the ROS wiki.
"""

from __future__ import annotations

import bz2
import io
import sqlite3
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from horde_agent.runs.config import BadInput, imported

NEEDS_READERS = "bags need the packages rosbags and mcap: pip install -e '.[bag]'"
SUFFIXES = (".mcap", ".bag", ".db3")
_METADATA = "metadata.yaml"
_ROS1_MAGIC = b"#ROSBAG V2.0\n"
_LARGEST_RECORD = 1 << 30  # bytes; a larger record is damage


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
        except _damage() as error:
            reason = _reason(error)
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


def _damage() -> tuple[type[Exception], ...]:
    """Return the errors that damage to a bag causes in its reader."""
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


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


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
            with self.path.open("rb") as file:
                opened = reader.SeekingReader(file, record_size_limit=_LARGEST_RECORD)
                summary = opened.get_summary()
        except _damage():
            return None
        if summary is None or summary.statistics is None or not summary.channels:
            return None
        self._schemas |= summary.schemas
        self._channels |= summary.channels
        counts = Counter[str]()
        for number, n_messages in summary.statistics.channel_message_counts.items():
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
            with self.path.open("rb") as file:
                reader = self._mcap.StreamReader(
                    file, emit_chunks=True, record_size_limit=_LARGEST_RECORD
                )
                for record in reader.records:
                    yield from self._messages_of(record, wanted)
        except _damage() as error:
            reason = _reason(error)
            self.cut = f"{self.path.name} ends without its footer ({reason})"

    def _messages_of(self, record: Any, wanted: set[str] | None) -> Iterator[Message]:
        if isinstance(record, self._records.Chunk):
            stream, length = self._mcap.get_chunk_data_stream(record, validate_crc=True)
            yield from self._messages_in_chunk(stream.read(length), wanted)
        elif isinstance(record, self._records.Message):
            topic = self._channels[record.channel_id].topic
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
            opcode, length = _MCAP_RECORD.unpack_from(chunk, position)
            start = position + _MCAP_RECORD.size
            position = start + length
            if opcode == _MESSAGE_OPCODE:
                channel, _, log_time_ns, _ = _MCAP_MESSAGE.unpack_from(chunk, start)
                topic = self._channels[channel].topic
                if wanted is None or topic in wanted:
                    yield Message(topic, log_time_ns, chunk[start + _MCAP_MESSAGE.size : position])
            elif opcode in (_SCHEMA_OPCODE, _CHANNEL_OPCODE):
                content = self._data_stream.ReadDataStream(io.BytesIO(chunk[start:position]))
                if opcode == _SCHEMA_OPCODE:
                    schema = self._records.Schema.read(content)
                    self._schemas[schema.id] = schema
                else:
                    new_channel = self._records.Channel.read(content)
                    self._channels[new_channel.id] = new_channel


# ---- ROS 1 -----------------------------------------------------------------------------------------------------------

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_ROS1_TIME = struct.Struct("<II")  # s, ns
_MESSAGE_OP = 2
_HEADER_OP = 3
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
            with self.path.open("rb") as file:
                file.seek(len(_ROS1_MAGIC))
                header, _ = _ros1_record(file)
                index_position = _U64.unpack(header[b"index_pos"])[0]
                if not index_position:
                    return None
                file.seek(index_position)
                while file.peek(1):
                    header, data = _ros1_record(file)
                    if header[b"op"][0] == _CONNECTION_OP:
                        self._add_connection(header, data)
                    elif header[b"op"][0] == _CHUNK_INFO_OP:
                        for number, n_messages in struct.iter_unpack("<II", data):
                            counts[self._connections[number].topic] += n_messages
        except _damage():
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
            with self.path.open("rb") as file:
                file.seek(len(_ROS1_MAGIC))
                while file.peek(1):
                    header, data = _ros1_record(file, may_be_short=True)
                    operation = header[b"op"][0]
                    if operation == _HEADER_OP:
                        is_closed = _U64.unpack(header[b"index_pos"])[0] > 0
                    elif operation == _CHUNK_OP:
                        compression = header[b"compression"]
                        yield from self._messages_in_chunk(_decompressed(data, compression), wanted)
        except _damage() as error:
            self.cut = f"{self.path.name} ends within a record ({_reason(error)})"
            return
        if not is_closed:
            self.cut = f"{self.path.name} has no index"

    def _messages_in_chunk(self, chunk: bytes, wanted: set[str] | None) -> Iterator[Message]:
        stream = io.BytesIO(chunk)
        while stream.tell() < len(chunk):
            header, data = _ros1_record(stream)
            operation = header[b"op"][0]
            if operation == _CONNECTION_OP:
                self._add_connection(header, data)
            elif operation == _MESSAGE_OP:
                topic = self._connections[_U32.unpack(header[b"conn"])[0]].topic
                if wanted is None or topic in wanted:
                    time_s, time_ns = _ROS1_TIME.unpack(header[b"time"])
                    yield Message(topic, time_s * 1_000_000_000 + time_ns, data)

    def _add_connection(self, header: dict[bytes, bytes], data: bytes) -> None:
        description = _ros1_fields(data)
        package, _, name = description[b"type"].decode().rpartition("/")
        self._connections[_U32.unpack(header[b"conn"])[0]] = _Connection(
            topic=header[b"topic"].decode(),
            type=f"{package}/msg/{name}",  # as in ROS 2
            definition=description[b"message_definition"].decode(errors="replace"),
        )


def _ros1_record(
    file: IO[bytes], *, may_be_short: bool = False
) -> tuple[dict[bytes, bytes], bytes]:
    """Read one record, its header and its data; raise EOFError if it is cut off, and its data may not be."""
    header = _ros1_fields(_sized(file))
    return header, _sized(file, may_be_short=may_be_short)


def _sized(file: IO[bytes], *, may_be_short: bool = False) -> bytes:
    """Read a length and so many bytes."""
    length = _U32.unpack(file.read(_U32.size))[0]
    if length > _LARGEST_RECORD:
        raise EOFError(f"a record of {length} bytes")
    content = file.read(length)
    if len(content) < length and not may_be_short:
        raise EOFError(f"{len(content)} of {length} bytes of a record")
    return content


def _ros1_fields(text: bytes) -> dict[bytes, bytes]:
    """Return the fields NAME=VALUE of a header."""
    fields = {}
    position = 0
    while position < len(text):
        start = position + _U32.size
        position = start + _U32.unpack_from(text, position)[0]
        name, _, value = text[start:position].partition(b"=")
        fields[name] = value
    return fields


def _decompressed(data: bytes, compression: bytes) -> bytes:
    if compression == b"none":
        return data
    if compression == b"bz2":
        return bz2.decompress(data)
    if compression == b"lz4":
        return bytes(imported("lz4.frame", NEEDS_READERS).decompress(data))
    raise ValueError(f"unknown compression {compression.decode(errors='replace')}")


# ---- ROS 2 -----------------------------------------------------------------------------------------------------------


class _Ros2Folder:
    """The folder of a ROS 2 bag, SQLite or MCAP, compressed or not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut = ""
        self._rosbag2 = imported("rosbags.rosbag2", NEEDS_READERS)
        self.topics: dict[str, Topic] = {}
        with self._rosbag2.Reader(path) as reader:
            for connection in reader.connections:
                self.topics[connection.topic] = Topic(
                    name=connection.topic,
                    type=connection.msgtype,
                    encoding=connection.ext.serialization_format,
                    definition=connection.msgdef.data,
                    is_idl=connection.msgdef.format.name == "IDL",
                    n_messages=connection.msgcount,
                )

    def messages(self, topics: Iterable[str]) -> Iterator[Message]:
        """Yield the messages of some topics."""
        wanted = set(topics)
        try:
            with self._rosbag2.Reader(self.path) as reader:
                connections = [c for c in reader.connections if c.topic in wanted]
                for connection, time_ns, data in reader.messages(connections):
                    yield Message(connection.topic, time_ns, data)
        except _damage() as error:
            self.cut = f"{self.path.name} is damaged ({_reason(error)})"


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
        except sqlite3.Error as error:
            self.cut = f"{path.name} is no SQLite file of a bag ({_reason(error)})"

    def _opened(self) -> sqlite3.Connection:
        return sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=ro", uri=True)

    def _read_topics(self, database: sqlite3.Connection) -> None:
        definitions: dict[str, tuple[str, str]] = {}
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
        if "message_definitions" in tables:
            query = (
                "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions"
            )
            for type_name, language, text in database.execute(query):
                definitions[type_name] = (language, text)
        counts: dict[int, int] = {}
        try:
            query = "SELECT topic_id, COUNT(*) FROM messages GROUP BY topic_id"
            counts |= dict(database.execute(query))
        except sqlite3.Error as error:
            self.cut = f"{self.path.name} is damaged ({_reason(error)})"
        query = "SELECT id, name, type, serialization_format FROM topics"
        for number, name, type_name, encoding in database.execute(query):
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
                query = "SELECT topic_id, timestamp, data FROM messages ORDER BY id"
                for number, time_ns, data in database.execute(query):
                    topic = self._names.get(number)
                    if topic in wanted:
                        assert topic is not None
                        yield Message(topic, time_ns, data)
        except sqlite3.Error as error:
            self.cut = f"{self.path.name} is damaged ({_reason(error)})"


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
