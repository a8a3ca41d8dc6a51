"""A first columns file for a bag, from what its first messages hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent.formats.bag_files import SECOND_NS, Bag, Message, Topic, open_bag
from horde_agent.formats.bag_messages import (
    FieldError,
    decoded,
    decoder,
    number_at,
    number_fields,
    steps_of,
)
from horde_agent.formats.bag_rows import DEFAULT_MAX_AGE_S
from horde_agent.formats.columns import USUAL_NAMES
from horde_agent.formats.draft import CHANNEL_KEYS, Key, fits, key_lines, name_called, shift_keys
from horde_agent.refusals import BadInput
from horde_agent.types import Floats

_N_EXAMPLES = 50
_LEAST_PERIOD_S = 0.1
_PERIODS_OF_AGE = 3.0
_COMMAND_PREFIXES = {"Twist": "", "TwistStamped": "twist."}
"""Types of commands, and what stands before the fields of their velocities."""
_COMMAND_BINS = {"linear.x": [0.01], "angular.z": [-0.1, 0.1]}
_KEYS = {
    "period_s": Key("0.1", "time between two rows in seconds; required"),
    "max_age_s": Key("1.0", "an older value is missing; also in a [[channel]]"),
    "rows": Key('"/odom"', "a row at each message of this topic, not at a fixed period"),
    "clock": Key('"stamp"', 'times of the headers; "log": times of recording'),
    "action": Key(
        '{ topic = "/cmd_vel", field = "angular.z", bins = [-0.1, 0.1] }',
        "the first one from a row on, or the one in force; bins of several count the last field fastest",
    ),
    "actions": Key('["stop right", "stop", ...]', "their names"),
    "b": Key('"estimate"', 'the probability of the action; or { topic = "/b", field = "data" }'),
    "next_reward": Key(
        '{ topic = "/reward", field = "data" }',
        "the sum from a row to the next, of the row's action; `reward` if it led to the row",
    ),
    "terminated": Key(
        '{ topic = "/done", field = "data" }',
        'once at the end of an episode; convention = "transition" if after its last action',
    ),
    "truncated": Key('{ topic = "/time_limit", field = "data" }', "at a time limit, likewise"),
    "episode": Key(
        '{ topic = "/episode", field = "data" }', "its number, which holds until the next one"
    ),
    "missing": Key('"gap"', "rows that lack a reading are dropped"),
}
_CHANNEL_MEANINGS = {
    "infinite": "no echo",
    "too_near": "-inf",
    "origin": CHANNEL_KEYS["origin"].meaning,
}
_USUAL_KEYS = {
    "action": "action",
    "b": "b",
    "next_reward": "reward",
    "terminated": "terminated",
    "truncated": "truncated",
    "episode": "episode",
}
"""Keys of topics that are no readings, with those of `USUAL_NAMES` for the last parts of their names."""
_READING_NAMES = ("a", "e")
"""Usual names of a table's columns that are too short for a topic: /a may be any reading."""
_RANGE_MEMBERS = (("ranges", "range_min", "range_max"), ("range", "min_range", "max_range"))
"""Members of the messages of lasers and sonars: the readings, and their limits."""


class _Readings(NamedTuple):
    """What the first messages of a topic hold.

    Attributes:
        topic: The topic.
        interval_s: Median time between two messages, in seconds; NaN for a single one.
        values: Numbers of each message by path, shape (n_messages,); NaN where it is not.
        limits: `infinite` and `too_near` of a laser or a sonar; empty for others.
    """

    topic: Topic
    interval_s: float
    values: dict[str, Floats]
    limits: dict[str, float]


def draft_bag_columns(path: Path) -> str:
    """Return a columns file for a bag; raise BadInput if it cannot be read."""
    bag = open_bag(path)
    names = [name for name, topic in sorted(bag.topics.items()) if topic.n_messages]
    readings: dict[str, _Readings] = {}
    unread = {}
    for name, examples in bag.first_messages(names, _N_EXAMPLES).items():
        try:
            readings[name] = _readings(bag.topics[name], examples)
        except BadInput as error:
            unread[name] = str(error)
    lines = [f"# Columns of {path.name}: check them, and leave out what is not needed."]
    if bag.cut:
        lines.append(f"# The bag was cut off: {bag.cut}.")
    lines += ["# Topics:", *_topic_lines(bag, readings, unread), ""]
    intervals_s = [one.interval_s for one in readings.values() if one.interval_s > 0]
    period_s = max(_LEAST_PERIOD_S, min(intervals_s, default=_LEAST_PERIOD_S))
    settings: dict[str, Any] = {"period_s": _rounded(period_s), "max_age_s": DEFAULT_MAX_AGE_S}
    roles = _roles(readings)
    if "action" in roles:
        settings["b"] = "estimate"
    settings |= {key: _source(readings[name]) for key, name in roles.items()}
    if "action" not in roles:
        settings.pop("b", None)  # the probability of no known action
    lines += key_lines(_KEYS, settings)
    has_repeats = any(bag.topics[name].n_messages > 1 for name in readings)
    for name in sorted(readings.keys() - set(roles.values())):
        channel_lines = list(_channel_lines(readings[name]))
        if has_repeats and bag.topics[name].n_messages == 1:
            channel_lines = _behind_hash(name, channel_lines)
        lines += channel_lines
    if "[[channel]]" not in lines:
        reasons = ", ".join(unread.values()) or "no message has a finite number"
        raise BadInput(f"{path} has no topic with numbers that can be read: {reasons}")
    return "\n".join(lines) + "\n"


def _readings(topic: Topic, examples: Sequence[Message]) -> _Readings:
    """Return what the first messages of a topic hold; raise BadInput if it is not of its type."""
    decode = decoder(topic)
    try:
        contents = decoded(decode, (example.data for example in examples))
    except ValueError as error:
        raise BadInput(f"its messages are not of the type {topic.type} ({error})") from None
    times_ns = sorted(message.time_ns for message in examples)
    interval_s = float("nan")
    if len(times_ns) > 1:
        interval_s = float(np.median(np.diff(times_ns))) / SECOND_NS
    values = {path: _values(contents, path) for path in number_fields(contents)}
    members = {path: path.partition("[")[0] for path in values}
    for ranges, nearest, longest in _RANGE_MEMBERS:
        if {ranges, nearest, longest} <= set(members.values()):
            limits = {"infinite": values[longest][0], "too_near": values[nearest][0]}
            values = {
                path: numbers
                for path, numbers in values.items()
                if members[path] == ranges and not np.isnan(numbers).all()
            }
            return _Readings(topic, interval_s, values, limits)
    finite_values = {
        path: numbers for path, numbers in values.items() if np.isfinite(numbers).any()
    }
    return _Readings(topic, interval_s, finite_values, limits={})


def _values(contents: Sequence[Any], path: str) -> Floats:
    values = np.full(len(contents), np.nan)
    for i, content in enumerate(contents):
        with suppress(FieldError):
            values[i] = number_at(content, steps_of(path))
    return values


def _behind_hash(name: str, channel_lines: list[str]) -> list[str]:
    """Return the channels of a topic with one message as they are not used."""
    if not channel_lines:
        return []
    reason = f"# {name} was sent once, so it is no reading; max_age_s = 1e6 would hold it"
    return ["", reason, *(f"# {line}" for line in channel_lines if line)]


def _topic_lines(
    bag: Bag, readings: Mapping[str, _Readings], unread: Mapping[str, str]
) -> Iterator[str]:
    for name, topic in sorted(bag.topics.items()):
        line = f"#   {name}  {topic.type or topic.encoding}  {topic.n_messages:,} messages"
        if name in readings and np.isfinite(readings[name].interval_s):
            line += f", every {readings[name].interval_s:.3g} s"
        if name in readings and not readings[name].values:
            line += "; no numbers that are readings"
        if name in unread:
            line += f"; not read: {unread[name]}"
        yield line


def _roles(readings: Mapping[str, _Readings]) -> dict[str, str]:
    """Return the topics of keys that are no readings, by their types, or their names and numbers."""
    roles = {}
    for key, usual_key in _USUAL_KEYS.items():
        topics = {}
        for name in sorted(readings, reverse=True):
            last_part = name.rpartition("/")[2]
            numbers = list(readings[name].values.values())
            is_one = len(numbers) == 1 and last_part not in _READING_NAMES
            if is_one and (key == "next_reward" or fits(key, numbers[0])):
                topics[last_part] = name
        usual_part = name_called(USUAL_NAMES[usual_key], list(topics))
        if usual_part is not None:
            roles[key] = topics[usual_part]
    for name in sorted(readings, reverse=True):
        if "cmd" in name and _command_prefix(readings[name].topic) is not None:
            roles["action"] = name
    return roles


def _command_prefix(topic: Topic) -> str | None:
    return _COMMAND_PREFIXES.get(topic.type.rpartition("/")[2])


def _source(readings: _Readings) -> Any:
    """Return the value of a key: topic and field, or those of a command with the bounds between bins."""
    prefix = _command_prefix(readings.topic)
    if prefix is None:
        return {"topic": readings.topic.name, "field": next(iter(readings.values))}
    return [
        {"topic": readings.topic.name, "field": prefix + field, "bins": bins}
        for field, bins in _COMMAND_BINS.items()
    ]


def _channel_lines(readings: _Readings) -> Iterator[str]:
    max_age_s = readings.interval_s * _PERIODS_OF_AGE
    for path, numbers in readings.values.items():
        given: dict[str, Any] = {"topic": readings.topic.name, "field": path}
        if max_age_s > DEFAULT_MAX_AGE_S:
            given["max_age_s"] = _rounded(max_age_s)
        given |= {key: _rounded(limit) for key, limit in readings.limits.items()}
        given |= shift_keys(numbers)
        keys = {key: Key("", _CHANNEL_MEANINGS.get(key, "")) for key in given}
        yield from ("", "[[channel]]", *key_lines(keys, given))


def _rounded(number: float) -> float:
    return float(f"{number:.3g}")
