"""A first columns file for a bag, from what its first messages hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent.runs.config import BadInput
from horde_agent.runs.data.bag_files import SECOND_NS, Bag, Message, Topic, open_bag
from horde_agent.runs.data.bag_messages import (
    FieldError,
    decoder,
    number_at,
    number_fields,
    steps_of,
)
from horde_agent.runs.data.bags import DEFAULT_MAX_AGE_S
from horde_agent.runs.data.cells import shift_for
from horde_agent.runs.toml import toml_value
from horde_agent.types import Floats

_N_EXAMPLES = 50
_LEAST_PERIOD_S = 0.1
_PERIODS_OF_AGE = 3.0
_COMMAND_TYPES = ("Twist", "TwistStamped")
_COMMAND_BINS = {"linear.x": "[0.01]", "angular.z": "[-0.1, 0.1]"}


_RANGE_MEMBERS = (("ranges", "range_min", "range_max"), ("range", "min_range", "max_range"))
"""Members of the messages of lasers and sonars: the readings, and their limits."""


class _Known(NamedTuple):
    """What is known of a topic: its first messages, and the median time between two, in seconds or NaN."""

    topic: Topic
    contents: list[Any]
    interval_s: float

    @property
    def fields(self) -> list[str]:
        """Paths of its readings."""
        paths = number_fields(self.contents)
        limits = self.limits
        if limits is None:
            return [path for path in paths if np.isfinite(self.values(path)).any()]
        ranges = [path for path in paths if path.partition("[")[0] == limits.readings]
        return [path for path in ranges if not np.isnan(self.values(path)).all()]

    @property
    def limits(self) -> _Limits | None:
        """The limits of its ranges if it is a laser or a sonar."""
        paths = number_fields(self.contents[:1])
        for readings, nearest, longest in _RANGE_MEMBERS:
            is_there = any(path.partition("[")[0] == readings for path in paths)
            if is_there and nearest in paths and longest in paths:
                content = self.contents[0]
                return _Limits(
                    readings,
                    number_at(content, (nearest,)),
                    number_at(content, (longest,)),
                )
        return None

    def values(self, path: str) -> Floats:
        """Return a number of each of its first messages, shape (n,); NaN where it is not."""
        values = np.full(len(self.contents), np.nan)
        for i, content in enumerate(self.contents):
            with suppress(FieldError):
                values[i] = number_at(content, steps_of(path))
        return values


class _Limits(NamedTuple):
    """Name of the readings of a laser or a sonar, and the smallest and largest range that it measures."""

    readings: str
    nearest: float
    longest: float


def draft_bag_columns(path: Path) -> str:
    """Return a columns file for a bag; raise BadInput if it cannot be read."""
    bag = open_bag(path)
    names = [name for name, topic in sorted(bag.topics.items()) if topic.n_messages]
    read_topics = {}
    unread = {}
    for name, examples in bag.first_messages(names, _N_EXAMPLES).items():
        try:
            read_topics[name] = _known(bag.topics[name], examples)
        except BadInput as error:
            unread[name] = str(error)
    commands = [name for name in sorted(read_topics) if _is_command(read_topics[name].topic)]
    lines = [f"# Columns of {path.name}: check them, and leave out what is not needed."]
    if bag.cut:
        lines.append(f"# The bag was cut off: {bag.cut}.")
    lines += ["# Topics:", *_topic_lines(bag, read_topics, unread), ""]
    lines += _settings(read_topics, commands[:1])
    has_repeats = any(bag.topics[name].n_messages > 1 for name in read_topics)
    for name in sorted(read_topics):
        if name in commands[:1]:
            continue
        channel_lines = list(_channel_lines(read_topics[name]))
        if has_repeats and bag.topics[name].n_messages == 1:
            channel_lines = _behind_hash(name, channel_lines)
        lines += channel_lines
    if "[[channel]]" not in lines:
        raise BadInput(
            f"{path} has no topic with numbers that can be read: {', '.join(unread.values())}"
        )
    return "\n".join(lines) + "\n"


def _known(topic: Topic, examples: list[Message]) -> _Known:
    decode = decoder(topic)
    contents = []
    for example in examples:
        try:
            contents.append(decode(example.data))
        except Exception as error:  # decoders are generated, and raise anything
            if not contents:
                raise BadInput(f"its messages are not of the type {topic.type} ({error})") from None
    intervals_s = np.diff([message.time_ns for message in examples]) / SECOND_NS
    interval_s = float("nan")
    if len(intervals_s):
        interval_s = float(np.median(intervals_s))
    return _Known(topic, contents, interval_s)


def _behind_hash(name: str, channel_lines: list[str]) -> list[str]:
    """Return the channels of a topic with one message as they are not used."""
    if not channel_lines:
        return []
    reason = f"# {name} was sent once, so it is no reading; max_age_s = 1e6 would hold it"
    return ["", reason, *(f"# {line}" for line in channel_lines if line)]


def _is_command(topic: Topic) -> bool:
    is_velocity = topic.type.rpartition("/")[2] in _COMMAND_TYPES
    return is_velocity and "cmd" in topic.name


def _topic_lines(bag: Bag, known: Mapping[str, _Known], unread: Mapping[str, str]) -> Iterator[str]:
    for name, topic in sorted(bag.topics.items()):
        line = f"#   {name}  {topic.type or topic.encoding}  {topic.n_messages:,} messages"
        if name in known and np.isfinite(known[name].interval_s):
            line += f", every {known[name].interval_s:.3g} s"
        if name in known and not known[name].fields:
            line += "; no numbers that are readings"
        if name in unread:
            line += f"; not read: {unread[name]}"
        yield line


def _settings(known: Mapping[str, _Known], commands: list[str]) -> Iterator[str]:
    intervals_s = [one.interval_s for one in known.values() if one.interval_s > 0]
    period_s = max(_LEAST_PERIOD_S, min(intervals_s, default=_LEAST_PERIOD_S))
    yield f"period_s = {_rounded(period_s)}  # time between two rows in seconds; required"
    yield f"max_age_s = {DEFAULT_MAX_AGE_S}  # an older value is missing: no row, a gap; also in a [[channel]]"
    yield '# rows = "/odom"  # a row at each message of this topic, not at a fixed period'
    yield '# clock = "stamp"  # times of the headers; "log": times of recording'
    if commands:
        (name,) = commands
        prefix = ""
        if known[name].topic.type.endswith("TwistStamped"):
            prefix = "twist."
        yield "action = [  # the first command from a row on, or the one in force; bins count the last field fastest"
        for field, bins in _COMMAND_BINS.items():
            yield f'    {{ topic = {toml_value(name)}, field = "{prefix}{field}", bins = {bins} }},'
        yield "]"
        yield '# actions = ["stop right", "stop", ...]  # their names'
        yield 'b = "estimate"  # or { topic = "/b", field = "data" }, the probability of the action'
    else:
        yield '# action = { topic = "/cmd_vel", field = "angular.z", bins = [-0.1, 0.1] }'
        yield '# b = "estimate"  # or { topic = "/b", field = "data" }, the probability of the action'
    yield '# next_reward = { topic = "/reward", field = "data" }  # the sum from a row to the next; 0 without one'
    yield '# terminated = { topic = "/done", field = "data" }  # true once at the end of an episode'
    yield '# episode = { topic = "/episode", field = "data" }'
    yield '# missing = "gap"  # rows with a NaN are dropped; an error otherwise'


def _channel_lines(known: _Known) -> Iterator[str]:
    max_age_s = known.interval_s * _PERIODS_OF_AGE
    limits = known.limits
    for path in known.fields:
        yield ""
        yield "[[channel]]"
        yield f"topic = {toml_value(known.topic.name)}"
        yield f"field = {toml_value(path)}"
        if max_age_s > DEFAULT_MAX_AGE_S:
            yield f"max_age_s = {_rounded(max_age_s)}"
        if limits is not None:
            yield f"infinite = {_rounded(limits.longest)}  # no echo"
            yield f"too_near = {_rounded(limits.nearest)}  # -inf"
        shift = shift_for(known.values(path))
        if shift is not None:
            yield f"origin = {shift.origin}  # the reading, of 24 binary digits, is (value - origin) x scale"
            if shift.scale != 1.0:
                yield f"scale = {shift.scale}"


def _rounded(number: float) -> float:
    return float(f"{number:.3g}")
