"""Numbers of decoded messages: a field is a path, such as `twist.twist.linear.x` or `ranges[12]`.

`position[name=elbow]` is the number beside the text "elbow" in the array `name` of the same
message; `transforms[child_frame_id=base].transform` is the record of an array that has this member.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from horde_agent.formats.bag_files import NEEDS_READERS, Topic
from horde_agent.refusals import BadInput, imported, one_line

Decoder = Callable[[bytes], Any]
"""Returns the message of some bytes: a dataclass, of JSON a dict, or a message of protobuf."""


class Selector(NamedTuple):
    """Chooses the element of an array by a name: that of a member of the element, or beside it in another array."""

    member: str
    name: str


Steps = tuple[str | int | Selector, ...]
"""The path of a number in a message: names, indices and selectors."""

_STEP = re.compile(r'\.?([^.\[\]]+)|\[(\d+)\]|\["([^"]+)"\]|\[([^=\]"]+)=(?:"([^"]*)"|([^\]"]*))\]')
_IDL_HEAD = re.compile(r"^(=+|IDL: .*|#include .*)\n", re.MULTILINE)
"""Lines before each type, where the definitions of several are one text."""
_PLAIN_NAME = re.compile(r"[^.\[\]]+")
_ENCODINGS = ("cdr", "ros1", "json")
_PROTOBUF = "protobuf"
_NEEDS_PROTOBUF = (
    "messages of protobuf need the package mcap-protobuf-support: pip install mcap-protobuf-support"
)
_ABSENT = object()
_MOST_SHOWN = 12
_MOST_DRAFTED = 8
"""Elements of a long array that a first columns file names."""
_MOST_NAMED = 64
"""Elements with names that a first columns file names; of a longer array it names some by their places."""
_MOST_BYTES = 64
"""A longer array of bytes is a picture or a cloud of points, no reading."""
_NO_READINGS = ("header", "stamp", "timestamp")
_NAMING = re.compile(r"(.*_)?(name|id|label)s?")
"""Members that name an element of an array."""
_STAMP = struct.Struct("<II")  # s, ns
_BIG_ENDIAN_STAMP = struct.Struct(">II")
_STAMP_PLACE = 4  # bytes before it


class FieldError(ValueError):
    """A field is not in a message, or is no number; the message says what there is."""


def decoder(topic: Topic) -> Decoder:
    """Return the decoder of a topic's messages; raise BadInput if its encoding or type is unknown."""
    if topic.encoding == "json":
        return json.loads
    if topic.encoding == _PROTOBUF:
        return _protobuf_decoder(topic)
    if topic.encoding not in _ENCODINGS:
        raise BadInput(
            f"the messages of {topic.name} are encoded as {topic.encoding!r}: only those of ROS (cdr, ros1), JSON and "
            "protobuf can be read"
        )
    types = imported("rosbags.typesys", NEEDS_READERS)
    type_name = _with_msg(topic.type)
    store = types.get_typestore(types.Stores.ROS2_HUMBLE)
    if topic.definition:
        store = types.get_typestore(types.Stores.EMPTY)
        definition = topic.definition.decode(errors="replace")
        try:
            if topic.is_idl:
                definitions = types.get_types_from_idl(_IDL_HEAD.sub("", definition))
            else:
                definitions = types.get_types_from_msg(definition, type_name)
            store.register(definitions)
        except (types.TypesysError, ValueError, KeyError) as error:
            raise BadInput(
                f"the type {topic.type} of {topic.name} is not understood: {error}"
            ) from None
    if type_name not in store.fielddefs:
        raise BadInput(
            f"the bag does not define the type {topic.type} of {topic.name}, which is not one of ROS's own: record it "
            "as MCAP, which holds the definitions"
        )
    if topic.encoding == "ros1":
        return lambda data: store.deserialize_ros1(data, type_name)
    return lambda data: store.deserialize_cdr(data, type_name)


def decoded(decode: Decoder, messages: Iterable[bytes]) -> list[Any]:
    """Return the contents of the first messages of a topic, without those that do not fit its type.

    Raises:
        ValueError: If the very first one does not fit.
    """
    contents = []
    for data in messages:
        try:
            contents.append(decode(data))
        except Exception as error:  # decoders are generated, and raise anything
            if not contents:
                raise ValueError(one_line(error)) from None
    return contents


def _protobuf_decoder(topic: Topic) -> Decoder:
    protobuf = imported("mcap_protobuf.decoder", _NEEDS_PROTOBUF)
    records = imported("mcap.records", NEEDS_READERS)
    schema = records.Schema(id=1, data=topic.definition, encoding=_PROTOBUF, name=topic.type)
    try:
        decode: Decoder | None = protobuf.DecoderFactory().decoder_for(_PROTOBUF, schema)
    except Exception as error:  # of protobuf's descriptors, which raise anything
        raise BadInput(
            f"the type {topic.type} of {topic.name} is not understood: {error}"
        ) from None
    assert decode is not None
    return decode


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


def steps_of(path: str) -> Steps:
    """Return the steps of a field's path; raise FieldError at another text."""
    steps: list[str | int | Selector] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            raise FieldError(
                f"{path!r} is no field: write names and indices, as in pose.position.x, ranges[12] or "
                "position[name=elbow]"
            )
        name, index, quoted_name, member, quoted_element, element = match.groups()
        if member is not None:
            steps.append(Selector(member, quoted_element or element or ""))
        elif index is not None:
            steps.append(int(index))
        else:
            steps.append(name or quoted_name)
        position = match.end()
    if not steps:
        raise FieldError("a field must not be empty")
    return tuple(steps)


def selected_part(steps: Steps) -> Steps:
    """Return the steps up to the last selector; empty without one."""
    for i in range(len(steps), 0, -1):
        if isinstance(steps[i - 1], Selector):
            return steps[:i]
    return ()


def has_element(message: Any, steps: Steps) -> bool:
    """Return whether a message has the elements that the selectors of a path choose."""
    try:
        return _found(message, steps) is not None
    except FieldError:
        return False


def number_at(message: Any, steps: Steps, *, may_be_short: bool = True) -> float:
    """Return the number at a path of a message; NaN for null, and for an element that an array lacks.

    Raises:
        FieldError: If there is no such field, or it holds no number; or if an array lacks the
            element and may not.
    """
    value = _found(message, steps, may_be_short=may_be_short)
    if value is None:
        return float("nan")
    if isinstance(value, Real | np.bool_):
        try:
            return float(value)
        except OverflowError:  # JSON has whole numbers of any size
            raise FieldError(
                f"{_path(steps)} holds a number of more than 308 digits, which no reading can be"
            ) from None
    if isinstance(value, str):
        raise FieldError(f"{_path(steps)} holds the text {value[:40]!r}, not a number")
    if _is_array(value):
        raise FieldError(
            f"{_path(steps)} is an array of {len(value)}: choose a number of it, {_path(steps)}[0]"
        )
    raise FieldError(f"{_path(steps)} is no number; there are {_shown(_members(value))} in it")


def _found(message: Any, steps: Steps, *, may_be_short: bool = True) -> Any:
    """Return what stands at a path of a message; None for an element that an array lacks."""
    value = message
    owner = message
    for i, step in enumerate(steps):
        if isinstance(step, str):
            owner = value
            value = _member(owner, step)
            if value is _ABSENT:
                place = _path(steps[:i]) or "it"
                raise FieldError(
                    f"{place} has no field {step!r}; there are {_shown(_members(owner))}"
                )
            continue
        if not _is_array(value):
            raise FieldError(f"{_path(steps[:i])} is no array")
        names: list[str] = []
        if isinstance(step, int):
            index = step
        else:
            names = _names_of(owner, value, step.member)
            index = len(value)
            if step.name in names:
                index = names.index(step.name)
        if index < len(value):
            value = value[index]
            continue
        if may_be_short:
            return None
        place = _path(steps[:i])
        if isinstance(step, Selector):
            raise FieldError(
                f"no element of {place} has the {step.member} {step.name!r}; there are {_shown(names)}"
            )
        raise FieldError(f"{place} has {len(value)} numbers, so there is no [{step}]")
    return value


def _names_of(owner: Any, array: Any, member: str) -> list[str]:
    """Return the names of an array's elements: a member of each, or the array beside it; empty without names."""
    if len(array) and _members(array[0]):
        names = [_walked(element, member) for element in array]
    else:
        names = _walked(owner, member)
        if not _is_array(names) or len(names) != len(array):
            return []
    return [str(name) for name in names if name is not None]


def _walked(value: Any, path: str) -> Any:
    """Return what stands at names separated by dots; None if it is not there."""
    for name in path.split("."):
        value = _member(value, name)
    if value is _ABSENT:
        return None
    return value


def _is_array(value: Any) -> bool:
    if isinstance(value, list | tuple | np.ndarray):
        return True
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)  # of protobuf


def _path(steps: Steps) -> str:
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif isinstance(step, Selector):
            name = step.name
            if not name or re.search(r"[\]]", name):
                name = f'"{name}"'
            text += f"[{step.member}={name}]"
        elif _PLAIN_NAME.fullmatch(step):
            text += f".{step}"
        else:
            text += f'["{step}"]'
    return text.removeprefix(".")


def _members(value: Any) -> Sequence[str]:
    """Return the names of what a record holds, without constants of its type; none if it is no record."""
    if isinstance(value, dict):
        return list(value)
    if is_dataclass(value):
        return [one.name for one in fields(value) if not str(one.type).startswith("ClassVar")]
    if hasattr(value, "DESCRIPTOR"):  # of protobuf
        return [one.name for one in value.DESCRIPTOR.fields]
    return ()


def _member(value: Any, name: str) -> Any:
    """Return what a record holds by a name; _ABSENT if it is not there."""
    if isinstance(value, dict):
        return value.get(name, _ABSENT)
    if is_dataclass(value) or name in _members(value):
        return getattr(value, name, _ABSENT)
    return _ABSENT


def _shown(names: Sequence[str]) -> str:
    if not names:
        return "none"
    shown = ", ".join(names[:_MOST_SHOWN])
    if len(names) > _MOST_SHOWN:
        shown += ", ..."
    return shown


# ---- for a first columns file ----------------------------------------------------------------------------------------


def number_fields(messages: Iterable[Any]) -> list[str]:
    """Return the paths of the numbers of messages; of a long array only some, without headers and covariances.

    Elements with names are chosen by them. A message with bytes of a picture or a cloud has none.
    """
    paths: dict[str, None] = {}
    for message in messages:
        if _has_blob(message):
            return []
        paths.update(dict.fromkeys(_number_fields(message, message, ())))
    return list(paths)


def _has_blob(value: Any) -> bool:
    if isinstance(value, bytes) or getattr(value, "dtype", None) in (np.uint8, np.int8):
        return len(value) > _MOST_BYTES
    return any(_has_blob(_member(value, name)) for name in _members(value))


def _number_fields(owner: Any, value: Any, steps: Steps) -> Iterator[str]:
    if isinstance(value, Real | np.bool_):
        yield _path(steps)
    elif _is_array(value):
        names = _naming(owner, value)
        n_elements = len(value)
        stride = max(1, -(-n_elements // _MOST_DRAFTED))
        if names:
            stride = 1
        for i in range(0, n_elements, stride):
            step: int | Selector = i
            if names:
                step = names[i]
            yield from _number_fields(value, value[i], (*steps, step))
    else:
        for name in _members(value):
            member = _member(value, name)
            chose_element = steps and isinstance(steps[-1], Selector) and steps[-1].member == name
            is_names = _is_array(member) and _NAMING.fullmatch(name)
            if name in _NO_READINGS or "covariance" in name or chose_element or is_names:
                continue
            yield from _number_fields(value, member, (*steps, name))


def _naming(owner: Any, array: Any) -> list[Selector]:
    """Return a selector for each element of an array; empty unless each has a name of its own."""
    candidates = _members(owner)
    if len(array) and _members(array[0]):
        candidates = _members(array[0])
    for member in candidates:
        if not _NAMING.fullmatch(member):
            continue
        names = _names_of(owner, array, member)
        is_short = len(names) <= _MOST_NAMED
        if names and is_short and len(names) == len(array) == len(set(names)):
            return [Selector(member, name) for name in names]
    return []
