"""Numbers of decoded messages: a field is a path, such as `twist.twist.linear.x` or `ranges[12]`."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from numbers import Real
from typing import Any

import numpy as np

from horde_agent.runs.config import BadInput, imported
from horde_agent.runs.data.bag_files import NEEDS_READERS, Topic

Decoder = Callable[[bytes], Any]
"""Returns the message of some bytes: a dataclass, or of JSON a dict."""

_STEP = re.compile(r'\.?([^.\[\]]+)|\[(\d+)\]|\["([^"]+)"\]')
_PLAIN_NAME = re.compile(r"[^.\[\]]+")
_ENCODINGS = ("cdr", "ros1", "json")
_MOST_SHOWN = 12
_MOST_DRAFTED = 8
"""Elements of a long array that a first columns file names."""
_STAMP = struct.Struct("<II")  # s, ns
_BIG_ENDIAN_STAMP = struct.Struct(">II")
_STAMP_PLACE = 4  # bytes before it


class FieldError(ValueError):
    """A field is not in a message, or is no number; the message says what there is."""


def decoder(topic: Topic) -> Decoder:
    """Return the decoder of a topic's messages; raise BadInput if its encoding or type is unknown."""
    if topic.encoding == "json":
        return json.loads
    if topic.encoding not in _ENCODINGS:
        raise BadInput(
            f"the messages of {topic.name} are encoded as {topic.encoding!r}: only those of ROS (cdr, ros1) and JSON "
            "can be read"
        )
    types = imported("rosbags.typesys", NEEDS_READERS)
    type_name = _with_msg(topic.type)
    if topic.definition:
        store = types.get_typestore(types.Stores.EMPTY)
        try:
            if topic.is_idl:
                definitions = types.get_types_from_idl(topic.definition)
            else:
                definitions = types.get_types_from_msg(topic.definition, type_name)
            defined_names = set(store.fielddefs)
            new_types = {
                name: fields for name, fields in definitions.items() if name not in defined_names
            }
            store.register(new_types)
        except (types.TypesysError, ValueError, KeyError) as error:
            raise BadInput(
                f"the type {topic.type} of {topic.name} is not understood: {error}"
            ) from None
    else:
        store = types.get_typestore(types.Stores.ROS2_HUMBLE)
    if type_name not in store.fielddefs:
        raise BadInput(
            f"the bag does not define the type {topic.type} of {topic.name}, which is none of ROS's own: record it as "
            "MCAP, which holds the definitions"
        )
    if topic.encoding == "ros1":
        return lambda data: store.deserialize_ros1(data, type_name)
    return lambda data: store.deserialize_cdr(data, type_name)


def _with_msg(type_name: str) -> str:
    """Return package/msg/Name for package/Name."""
    package, _, name = type_name.rpartition("/")
    if "/" in package or not package:
        return type_name
    return f"{package}/msg/{name}"


def has_stamp(topic: Topic, message: Any) -> bool:
    """Return whether the messages of a topic begin with ROS's header."""
    if topic.encoding == "json" or not is_dataclass(message) or not fields(message):
        return False
    first = getattr(message, fields(message)[0].name)
    return hasattr(first, "stamp") and hasattr(first, "frame_id")


def stamp_ns(topic: Topic, data: bytes) -> int | None:
    """Return the time in the header of an encoded message, in ns, without decoding the rest; None if it is cut off."""
    if len(data) < _STAMP_PLACE + _STAMP.size:
        return None
    # Behind the encapsulation of CDR, or the header's sequence number of ROS 1
    kind = _STAMP
    if topic.encoding == "cdr" and not data[1] & 1:
        kind = _BIG_ENDIAN_STAMP
    time_s, time_ns = kind.unpack_from(data, _STAMP_PLACE)
    return int(time_s) * 1_000_000_000 + int(time_ns)


def steps_of(path: str) -> tuple[str | int, ...]:
    """Return the names and indices of a field's path; raise FieldError if it is none."""
    steps: list[str | int] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            raise FieldError(
                f"{path!r} is no field: write names and indices, as in pose.position.x or ranges[12]"
            )
        name, index, quoted_name = match.groups()
        if index is None:
            steps.append(name or quoted_name)
        else:
            steps.append(int(index))
        position = match.end()
    if not steps:
        raise FieldError("a field must not be empty")
    return tuple(steps)


def number_at(message: Any, steps: Sequence[str | int], *, may_be_short: bool = True) -> float:
    """Return the number at a path of a message; NaN for null, and beyond the end of an array.

    Raises:
        FieldError: If there is no such field, or it holds no number; or if an array is too short
            and may not be.
    """
    value = message
    for i, step in enumerate(steps):
        if isinstance(step, int):
            if not _is_array(value):
                raise FieldError(f"{_path(steps[:i])} is no array")
            if step >= len(value):
                if may_be_short:
                    return float("nan")
                raise FieldError(
                    f"{_path(steps[:i])} has {len(value)} numbers, so there is no [{step}]"
                )
            value = value[step]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        elif is_dataclass(value) and hasattr(value, step):
            value = getattr(value, step)
        else:
            place = _path(steps[:i]) or "it"
            raise FieldError(f"{place} has no field {step!r}; there are {_shown_fields(value)}")
    if value is None:
        return float("nan")
    if isinstance(value, Real | np.bool_):
        return float(value)
    if isinstance(value, str):
        raise FieldError(f"{_path(steps)} holds the text {value[:40]!r}, not a number")
    if _is_array(value):
        raise FieldError(
            f"{_path(steps)} is an array of {len(value)}: choose a number of it, {_path(steps)}[0]"
        )
    raise FieldError(f"{_path(steps)} is no number; there are {_shown_fields(value)} in it")


def _is_array(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def _path(steps: Sequence[str | int]) -> str:
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_NAME.fullmatch(step):
            text += f".{step}"
        else:
            text += f'["{step}"]'
    return text.removeprefix(".")


def _members(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return {}


def _shown_fields(value: Any) -> str:
    names = list(_members(value))
    if not names:
        return "none"
    shown = ", ".join(names[:_MOST_SHOWN])
    if len(names) > _MOST_SHOWN:
        shown += ", ..."
    return shown


def number_fields(message: Any) -> Iterator[str]:
    """Yield the paths of a message's numbers; of a long array only some, without headers and covariances."""
    yield from _number_fields(message, ())


def _number_fields(value: Any, steps: tuple[str | int, ...]) -> Iterator[str]:
    if isinstance(value, Real | np.bool_):
        yield _path(steps)
    elif _is_array(value):
        n_elements = len(value)
        stride = max(1, -(-n_elements // _MOST_DRAFTED))
        for i in range(0, n_elements, stride):
            yield from _number_fields(value[i], (*steps, i))
    else:
        for name, member in _members(value).items():
            if name not in ("header", "stamp") and "covariance" not in name:
                yield from _number_fields(member, (*steps, name))
