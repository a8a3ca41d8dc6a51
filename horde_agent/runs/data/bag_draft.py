"""A first columns file for a bag, from what its first messages hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent.runs.config import BadInput
from horde_agent.runs.data.bag_files import Bag, Message, Topic, open_bag
from horde_agent.runs.data.bag_messages import decoder, number_at, number_fields, steps_of
from horde_agent.runs.data.bag_rows import SECOND_NS
from horde_agent.runs.data.bags import DEFAULT_MAX_AGE_S, first_messages
from horde_agent.runs.toml import toml_value

_N_EXAMPLES = 50
_LEAST_PERIOD_S = 0.1
_PERIODS_OF_AGE = 3.0
_COMMAND_TYPES = ("Twist", "TwistStamped")
_COMMAND_BINS = {"linear.x": "[0.01]", "angular.z": "[-0.1, 0.1]"}


class _Known(NamedTuple):
    """What is known of a topic: its first message, and the median time between two, in seconds or NaN."""

    topic: Topic
    content: Any
    interval_s: float


def draft_bag_columns(path: Path) -> str:
    """Return a columns file for a bag; raise BadInput if it cannot be read."""
    bag = open_bag(path)
    names = [name for name, topic in sorted(bag.topics.items()) if topic.n_messages]
    read_topics = {}
    unread = {}
    for name, examples in first_messages(bag, names, _N_EXAMPLES).items():
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
    for name in sorted(read_topics):
        if name not in commands[:1]:
            lines += _channel_lines(read_topics[name])
    if "[[channel]]" not in lines:
        raise BadInput(
            f"{path} has no topic with numbers that can be read: {', '.join(unread.values())}"
        )
    return "\n".join(lines) + "\n"


def _known(topic: Topic, examples: list[Message]) -> _Known:
    decode = decoder(topic)
    try:
        content = decode(examples[0].data)
    except Exception as error:  # decoders are generated, and raise anything
        raise BadInput(f"its messages are not of the type {topic.type} ({error})") from None
    intervals_s = np.diff([message.time_ns for message in examples]) / SECOND_NS
    interval_s = float("nan")
    if len(intervals_s):
        interval_s = float(np.median(intervals_s))
    return _Known(topic, content, interval_s)


def _is_command(topic: Topic) -> bool:
    is_velocity = topic.type.rpartition("/")[2] in _COMMAND_TYPES
    return is_velocity and "cmd" in topic.name


def _topic_lines(bag: Bag, known: Mapping[str, _Known], unread: Mapping[str, str]) -> Iterator[str]:
    for name, topic in sorted(bag.topics.items()):
        line = f"#   {name}  {topic.type or topic.encoding}  {topic.n_messages:,} messages"
        if name in known and np.isfinite(known[name].interval_s):
            line += f", every {known[name].interval_s:.3g} s"
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
        yield "action = [  # the first command after a row, or the one in force; bins count the last field fastest"
        for field, bins in _COMMAND_BINS.items():
            yield f'    {{ topic = {toml_value(name)}, field = "{prefix}{field}", bins = {bins} }},'
        yield "]"
        yield '# actions = ["stop right", "stop", ...]  # their names'
        yield 'b = "estimate"  # or { topic = "/b", field = "data" }, the probability of the action'
    else:
        yield '# action = { topic = "/cmd_vel", field = "angular.z", bins = [-0.1, 0.1] }'
        yield '# b = "estimate"  # or { topic = "/b", field = "data" }, the probability of the action'
    yield '# next_reward = { topic = "/reward", field = "data" }  # the first one after a row'
    yield '# terminated = { topic = "/done", field = "data" }'
    yield '# episode = { topic = "/episode", field = "data" }'
    yield '# missing = "gap"  # rows with a NaN are dropped; an error otherwise'


def _channel_lines(known: _Known) -> Iterator[str]:
    max_age_s = known.interval_s * _PERIODS_OF_AGE
    longest = getattr(known.content, "range_max", None)
    for path in number_fields(known.content):
        number = number_at(known.content, steps_of(path))
        if longest is not None and not path.startswith("ranges"):
            continue
        if np.isnan(number):
            continue
        yield ""
        yield "[[channel]]"
        yield f"topic = {toml_value(known.topic.name)}"
        yield f"field = {toml_value(path)}"
        if max_age_s > DEFAULT_MAX_AGE_S:
            yield f"max_age_s = {_rounded(max_age_s)}"
        if longest is not None:
            yield f"infinite = {_rounded(longest)}  # no echo"


def _rounded(number: float) -> float:
    return float(f"{number:.3g}")
