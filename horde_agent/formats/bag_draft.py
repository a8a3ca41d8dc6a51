"""A first columns file for a bag, from what its first messages hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent.formats.bag_files import SECOND_NS, Bag, Message, Topic, open_bag
from horde_agent.formats.bag_messages import (
    FieldError,
    decoder,
    number_at,
    number_fields,
    steps_of,
)
from horde_agent.formats.bags import DEFAULT_MAX_AGE_S
from horde_agent.formats.cells import shift_for
from horde_agent.formats.columns import REWARD_NAMES, TERMINATED_NAMES, TRUNCATED_NAMES
from horde_agent.refusals import BadInput
from horde_agent.toml import toml_value
from horde_agent.types import Floats

_N_EXAMPLES = 50
_LEAST_PERIOD_S = 0.1
_PERIODS_OF_AGE = 3.0
_COMMAND_TYPES = ("Twist", "TwistStamped")
_COMMAND_BINS = {"linear.x": "[0.01]", "angular.z": "[-0.1, 0.1]"}


_TOPIC_NAMES = {
    "action": ("action", "actions"),
    "b": ("b", "prob", "probability", "action_prob", "propensity"),
    "next_reward": REWARD_NAMES,
    "terminated": TERMINATED_NAMES,
    "truncated": TRUNCATED_NAMES,
    "episode": ("episode", "episode_id", "trajectory"),
}
"""Usual last parts of the names of topics that are no readings, in lower case, by key."""
_EXAMPLES = {
    "action": '{ topic = "/cmd_vel", field = "angular.z", bins = [-0.1, 0.1] }',
    "next_reward": '{ topic = "/reward", field = "data" }',
    "terminated": '{ topic = "/done", field = "data" }',
    "truncated": '{ topic = "/time_limit", field = "data" }',
    "episode": '{ topic = "/episode", field = "data" }',
}
_MEANINGS = {
    "action": "the first one from a row on, or the one in force",
    "next_reward": "the sum from a row to the next, of the row's action; `reward` if it led to the row",
    "terminated": 'once at the end of an episode; convention = "transition" if after its last action',
    "truncated": "at a time limit, likewise",
    "episode": "its number, which holds until the next one",
}
_LARGEST_ACTION = 99
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
    roles = _roles(read_topics, has_command=bool(commands))
    lines += _settings(read_topics, commands[:1], roles)
    no_channels = {*commands[:1], *(known.topic.name for known in roles.values())}
    has_repeats = any(bag.topics[name].n_messages > 1 for name in read_topics)
    for name in sorted(read_topics):
        if name in no_channels:
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


def _roles(known: Mapping[str, _Known], *, has_command: bool) -> dict[str, _Known]:
    """Return the topics with one number whose names and numbers say that they are no readings, by key."""
    roles = {}
    for name in sorted(known):
        last_part = name.rpartition("/")[2].lower()
        for key, usual_names in _TOPIC_NAMES.items():
            is_free = key not in roles and not (key == "action" and has_command)
            if is_free and last_part in usual_names and _fits(key, known[name]):
                roles[key] = known[name]
    return roles


def _fits(key: str, known: _Known) -> bool:
    """Return whether the first messages of a topic hold one number, which is what a key needs."""
    if len(known.fields) != 1:
        return False
    values = known.values(known.fields[0])
    is_whole = bool((values == np.floor(values)).all())
    if key == "action":
        return is_whole and bool(((values >= 0) & (values <= _LARGEST_ACTION)).all())
    if key == "b":
        return bool(((values > 0) & (values <= 1)).all())
    if key in ("terminated", "truncated"):
        return bool(np.isin(values, (0, 1)).all())
    return is_whole or key != "episode"


def _settings(
    known: Mapping[str, _Known], commands: list[str], roles: Mapping[str, _Known]
) -> Iterator[str]:
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
    else:
        yield _key_line("action", roles)
    if "b" in roles:
        yield f"b = {_source(roles['b'])}  # the probability of the action"
    else:
        prefix = "# "
        if commands or "action" in roles:
            prefix = ""
        yield f'{prefix}b = "estimate"  # or {{ topic = "/b", field = "data" }}, the probability of the action'
    for key in ("next_reward", "terminated", "truncated", "episode"):
        yield _key_line(key, roles)
    yield '# missing = "gap"  # rows with a NaN are dropped; an error otherwise'


def _key_line(key: str, roles: Mapping[str, _Known]) -> str:
    """Return the line of a key: that of its topic, or an example behind #."""
    if key in roles:
        return f"{key} = {_source(roles[key])}  # {_MEANINGS[key]}"
    return f"# {key} = {_EXAMPLES[key]}  # {_MEANINGS[key]}"


def _source(known: _Known) -> str:
    """Return a topic and its only field as the value of a key."""
    topic = toml_value(known.topic.name)
    field = toml_value(known.fields[0])
    return f"{{ topic = {topic}, field = {field} }}"


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
