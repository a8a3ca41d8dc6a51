"""A TurtleBot-like drive, written as a bag by the libraries that people have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

START_NS = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000
N_RANGES = 24


class Recorded(NamedTuple):
    """A message as it is recorded: `content` has its numbers by path, `stamp_ns` its header's time, None without."""

    topic: str
    type: str
    time_ns: int
    content: dict[str, Any]
    stamp_ns: int | None = None


def drive(duration_s: float = 30.0) -> Iterator[Recorded]:
    """Yield odometry at 20 Hz, a scan at 5 Hz, commands at 10 Hz, and the battery at 1 Hz.

    A command is sent 10 ms behind each tenth of a second: forward or a turn, by a coin. The robot moves
    by the command in force, in a room in which nothing is in front of it beyond 3.5 m (inf).
    """
    rng = np.random.default_rng(5)
    forward = 0.0
    turn = 0.0
    distance = 1.0
    for tick in range(round(duration_s * 100)):
        time_ns = START_NS + tick * SECOND_NS // 100
        if tick % 10 == 1:
            is_forward = rng.random() < 0.5
            forward = 0.2 if is_forward else 0.0
            turn = 0.0 if is_forward else 0.5
            content = {"linear.x": forward, "angular.z": turn}
            yield Recorded("/cmd_vel", "geometry_msgs/msg/Twist", time_ns, content)
        distance = 1.0 + (distance - 1.0 + 0.01 * forward) % 3.5
        if tick % 5 == 0:
            content = {"twist.twist.linear.x": forward, "twist.twist.angular.z": turn}
            yield Recorded("/odom", "nav_msgs/msg/Odometry", time_ns, content, time_ns - 1000)
        if tick % 20 == 0:
            ranges = np.full(N_RANGES, distance, dtype=np.float32)
            ranges[ranges > 3.5] = np.inf
            content = {"ranges": ranges, "range_max": 3.5}
            yield Recorded("/scan", "sensor_msgs/msg/LaserScan", time_ns, content, time_ns - 2000)
        if tick % 100 == 0:
            content = {"voltage": 12.0 - 0.01 * tick / 100}
            yield Recorded("/battery", "sensor_msgs/msg/BatteryState", time_ns, content, time_ns)


def _message(store: Any, one: Recorded, *, is_ros1: bool) -> Any:
    """Return a message of zeros with the numbers of `one`."""
    message = _zeros(store, one.type, is_ros1=is_ros1)
    for path, value in one.content.items():
        *parents, name = path.split(".")
        owner = message
        for parent in parents:
            owner = getattr(owner, parent)
        setattr(owner, name, value)
    if one.stamp_ns is not None:
        message.header.stamp.sec = one.stamp_ns // SECOND_NS
        message.header.stamp.nanosec = one.stamp_ns % SECOND_NS
    return message


def _zeros(store: Any, type_name: str, *, is_ros1: bool) -> Any:
    values = {}
    for name, (kind, what) in store.fielddefs[type_name][1]:
        values[name] = _zero(store, int(kind), what, is_ros1=is_ros1)
    return store.types[type_name](**values)


def _zero(store: Any, kind: int, what: Any, *, is_ros1: bool) -> Any:
    if kind == 2:  # a named type
        return _zeros(store, what, is_ros1=is_ros1)
    if kind == 1:
        return "" if what[0] == "string" else 0
    element, length = what
    if element[1][0] == "string":
        return []
    return np.zeros(length, dtype=element[1][0])


def _nested(one: Recorded) -> dict[str, Any]:
    """Return the numbers of `one` as nested dicts; mcap-ros2-support fills in zeros."""
    message: dict[str, Any] = {}
    for path, value in one.content.items():
        *parents, name = path.split(".")
        owner = message
        for parent in parents:
            owner = owner.setdefault(parent, {})
        owner[name] = value.tolist() if isinstance(value, np.ndarray) else value
    if one.stamp_ns is not None:
        stamp = {"sec": one.stamp_ns // SECOND_NS, "nanosec": one.stamp_ns % SECOND_NS}
        message["header"] = {"stamp": stamp}
    return message


Writer = Callable[[Path, Iterator[Recorded]], Path]


def write_ros1(folder: Path, messages: Iterator[Recorded]) -> Path:
    from rosbags.rosbag1 import Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS1_NOETIC)
    path = folder / "drive.bag"
    with Writer(path) as writer:
        connections: dict[str, Any] = {}
        for one in messages:
            if one.topic not in connections:
                connections[one.topic] = writer.add_connection(one.topic, one.type, typestore=store)
            data = store.serialize_ros1(_message(store, one, is_ros1=True), one.type)
            writer.write(connections[one.topic], one.time_ns, data)
    return path


def _write_ros2(
    path: Path, messages: Iterator[Recorded], plugin: str, compression: str = "NONE"
) -> Path:
    from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    bag = Writer(path, version=9, storage_plugin=StoragePlugin[plugin])
    bag.set_compression(CompressionMode[compression], CompressionFormat.ZSTD)
    with bag as writer:
        connections: dict[str, Any] = {}
        for one in messages:
            if one.topic not in connections:
                connections[one.topic] = writer.add_connection(one.topic, one.type, typestore=store)
            data = store.serialize_cdr(_message(store, one, is_ros1=False), one.type)
            writer.write(connections[one.topic], one.time_ns, data)
    return path


def write_sqlite(folder: Path, messages: Iterator[Recorded], compression: str = "NONE") -> Path:
    """Write the folder of a ROS 2 bag; its messages or its file ("MESSAGE", "FILE") may be compressed."""
    return _write_ros2(folder / "sqlite", messages, "SQLITE3", compression)


def write_mcap_folder(
    folder: Path, messages: Iterator[Recorded], compression: str = "NONE"
) -> Path:
    return _write_ros2(folder / "mcap", messages, "MCAP", compression)


def write_mcap(folder: Path, messages: Iterator[Recorded]) -> Path:
    """Write one MCAP file by mcap-ros2-support, which encodes messages by itself."""
    from mcap_ros2.writer import Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    path = folder / "drive.mcap"
    with path.open("wb") as file, Writer(file) as writer:
        schemas: dict[str, Any] = {}
        for one in messages:
            if one.type not in schemas:
                text, _ = store.generate_msgdef(one.type, ros_version=2)
                schemas[one.type] = writer.register_msgdef(one.type, text)
            writer.write_message(
                topic=one.topic,
                schema=schemas[one.type],
                message=_nested(one),
                log_time=one.time_ns,
                publish_time=one.time_ns,
            )
    return path


def write_json(
    path: Path,
    messages: Iterator[Recorded],
    chunk_size: int = 1 << 20,
    **options: Any,
) -> Path:
    """Write one MCAP file of JSON messages, whose content is as given; without chunks it has no index."""
    from mcap.writer import Writer

    with path.open("wb") as file:
        writer = Writer(file, chunk_size=chunk_size, **options)
        writer.start()
        channels: dict[str, int] = {}
        for one in messages:
            if one.topic not in channels:
                schema = writer.register_schema(one.type, "jsonschema", b'{"type": "object"}')
                channels[one.topic] = writer.register_channel(one.topic, "json", schema)
            data = json.dumps(one.content).encode()
            writer.add_message(
                channels[one.topic], log_time=one.time_ns, publish_time=one.time_ns, data=data
            )
        writer.finish()
    return path


WRITERS: dict[str, Writer] = {
    "ROS 1": write_ros1,
    "ROS 2, SQLite": write_sqlite,
    "ROS 2, MCAP": write_mcap_folder,
    "one MCAP file": write_mcap,
}
COMPRESSED: dict[str, Writer] = {
    "compressed messages, SQLite": partial(write_sqlite, compression="MESSAGE"),
    "compressed file, SQLite": partial(write_sqlite, compression="FILE"),
    "compressed file, MCAP": partial(write_mcap_folder, compression="FILE"),
}
COLUMNS = """
period_s = 0.1
action = { topic = "/cmd_vel", field = "angular.z", bins = [0.1] }
actions = ["forward", "turn"]
b = "estimate"
[[channel]]
topic = "/odom"
field = "twist.twist.linear.x"
name = "speed"
[[channel]]
topic = "/scan"
field = "ranges[12]"
name = "ahead"
infinite = 3.5
[[channel]]
topic = "/battery"
field = "voltage"
max_age_s = 3.0
"""
