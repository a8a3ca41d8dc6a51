"""Bags of robots as data: every kind of file, resampling, actions, cuts, and what is refused."""

from __future__ import annotations

import json
import re
import sqlite3
import struct
import sys
import tomllib
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from horde_agent import GVF, Behaviour, Channel, ConstantAction, PolicyFunction, cli, learn_from
from horde_agent.formats import bag_files
from horde_agent.formats.bag_files import Message, open_bag
from horde_agent.formats.bag_rows import AFTER, AT, SUM, VALUE, Field, Losses, Resampler
from horde_agent.formats.bags import open_bag_table
from horde_agent.record import Flag, Phase, read
from horde_agent.refusals import BadInput
from tests.agent.bags import (
    COLUMNS,
    COMPRESSED,
    SECOND_NS,
    START_NS,
    WRITERS,
    Recorded,
    drive,
    write_json,
    write_mcap,
    write_mcap_folder,
    write_ros1,
    write_sqlite,
)
from tests.agent.commands import summary_of, toy
from tests.agent.table_files import draft_columns

for package in ("rosbags", "mcap", "mcap_ros2"):
    pytest.importorskip(package)

WITHOUT_B = COLUMNS.replace('b = "estimate"\n', "")


def columns_file(folder: Path, text: str = WITHOUT_B) -> Path:
    file = folder / "columns.toml"
    file.write_text(text)
    return file


def rows_of(bag: Path, columns: str = WITHOUT_B) -> Any:
    table = open_bag_table(bag, columns_file(bag.parent, columns))
    return np.concatenate([part.rows for part in table])


def newest(topic: str, path: str, time_ns: int, *, duration_s: float = 30.0) -> Any:
    """Return a field of the newest message until a time, by looking at all messages."""
    value = None
    for one in drive(duration_s):
        if one.topic == topic and one.time_ns <= time_ns:
            value = one.content[path]
    return value


@pytest.mark.parametrize("kind", WRITERS)
def test_every_kind_of_bag_has_the_rows_of_the_drive(kind: str, tmp_path: Path) -> None:
    """Each row has the newest value until its time; its action is that of the command 10 ms later."""
    rows = rows_of(WRITERS[kind](tmp_path, drive()))
    assert len(rows) == 300
    assert rows["t"][:3].tolist() == [0.0, 0.1, 0.2]
    for i in (0, 1, 57, 299):
        time_ns = START_NS + i * SECOND_NS // 10
        ahead = min(float(newest("/scan", "ranges", time_ns)[12]), 3.5)
        expected = [
            newest("/odom", "twist.twist.linear.x", time_ns),
            ahead,
            newest("/battery", "voltage", time_ns),
        ]
        assert rows["observation"][i].tolist() == np.float32(expected).tolist(), i
    commands = [one.content["angular.z"] for one in drive() if one.topic == "/cmd_vel"]
    assert rows["action"][:299].tolist() == [int(turn > 0.1) for turn in commands[:299]]


def json_bag(folder: Path, messages: Iterator[Recorded], **options: Any) -> Path:
    return write_json(folder / "json.mcap", messages, **options)


def sent(topic: str, times_s: list[float], values: list[float]) -> Iterator[Recorded]:
    """Yield messages with one number each."""
    for time_s, value in zip(times_s, values, strict=True):
        yield Recorded(topic, "Number", round(time_s * SECOND_NS), {"data": value})


def test_an_old_value_is_a_gap_and_is_never_interpolated(tmp_path: Path) -> None:
    """A second without messages, max_age_s 0.25: rows at 0.5 .. 0.7 hold the old value, then none until 1.5."""
    times = [0.1 * i for i in range(6)] + [1.45 + 0.1 * i for i in range(4)]
    bag = json_bag(tmp_path, sent("/x", times, [float(i) for i in range(10)]))
    rows = rows_of(
        bag, 'period_s = 0.1\nmax_age_s = 0.25\n[[channel]]\ntopic = "/x"\nfield = "data"\n'
    )
    assert np.allclose(rows["t"], [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 1.5, 1.6, 1.7])
    assert rows["observation"][:, 0].tolist() == [0, 1, 2, 3, 4, 5, 5, 5, 6, 7, 8]
    is_gap = (rows["flags"] & Flag.GAP) > 0
    assert np.flatnonzero(is_gap).tolist() == [0, 8]


def test_an_old_value_of_one_topic_is_a_missing_reading_of_its_channel(tmp_path: Path) -> None:
    """/y is silent from 0.3 s on: rows lack it from 0.6 s on; with missing = "gap" there are none until it returns."""
    times = [0.1 * i for i in range(15)]
    y_times = [0.0, 0.1, 0.2, 0.3, 1.2, 1.3]
    messages = merge(
        sent("/x", times, [float(i) for i in range(15)]),
        sent("/y", y_times, [float(i) for i in range(6)]),
        key=lambda one: one.time_ns,
    )
    bag = json_bag(tmp_path, messages)
    columns = "period_s = 0.1\nmax_age_s = 0.25\n" + "".join(
        f'[[channel]]\ntopic = "{topic}"\nfield = "data"\n' for topic in ("/x", "/y")
    )
    rows = rows_of(bag, columns)
    assert rows["observation"][:, 0].tolist() == list(range(15))
    assert np.flatnonzero(np.isnan(rows["observation"][:, 1])).tolist() == [6, 7, 8, 9, 10, 11]
    assert np.flatnonzero((rows["flags"] & Flag.GAP) > 0).tolist() == [0]
    with_gap = rows_of(bag, f'missing = "gap"\n{columns}')
    assert with_gap["observation"][:, 0].tolist() == [0, 1, 2, 3, 4, 5, 12, 13, 14]


@pytest.mark.parametrize("episode", ["", 'episode = { topic = "/x", field = "episode" }\n'])
def test_a_pause_of_years_costs_no_time(episode: str, tmp_path: Path) -> None:
    """Also if the number of an episode holds for ever."""
    messages = [
        Recorded("/x", "Number", round(time_s * SECOND_NS), {"data": float(i + 1), "episode": 0})
        for i, time_s in enumerate([0.0, 0.1, 1e9, 1e9 + 0.1])
    ]
    rows = rows_of(json_bag(tmp_path, iter(messages)), episode + X_EACH_TENTH)
    assert rows["observation"][-2:, 0].tolist() == [3.0, 4.0]
    assert len(rows) == 2 + 10 + 2


COMMANDED = """
period_s = 1.0
max_age_s = 2.5
action = { topic = "/a", field = "data" }
actions = ["one", "two", "three"]
[[channel]]
topic = "/x"
field = "data"
"""


def commanded(folder: Path) -> Path:
    """Write x each second, and commands 1, 2 and 0 at 0.2, 0.9 and 3.0 s."""
    x = list(sent("/x", [float(i) for i in range(9)], [float(i) for i in range(9)]))
    commands = list(sent("/a", [0.2, 0.9, 3.0], [1.0, 2.0, 0.0]))
    return json_bag(folder, iter(sorted([*x, *commands], key=lambda one: one.time_ns)))


def test_the_action_is_the_first_command_after_the_row_or_the_one_in_force(tmp_path: Path) -> None:
    """1 answers row 0; 2 is in force at rows 1 and 2; 0 has the time of row 3, and is its action; then it is old.

    Were a command at a row's time that of the row before, row 2 would have 0. At row 6 it is 3 s old: rows 6
    and 7 end episodes.
    """
    rows = rows_of(commanded(tmp_path), COMMANDED)
    assert rows["action"][:6].tolist() == [1, 2, 2, 0, 0, 0]
    assert rows["phase"].tolist() == [int(Phase.BEHAVE)] * 6 + [int(Phase.END)] * 3


def test_an_action_at_the_row_is_the_newest_command(tmp_path: Path) -> None:
    columns = COMMANDED.replace('field = "data" }', 'field = "data", timing = "at" }')
    rows = rows_of(commanded(tmp_path), columns)
    assert rows["t"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert rows["action"][:4].tolist() == [2, 2, 0, 0]


def test_b_is_the_first_one_after_the_row_as_the_action_is(tmp_path: Path) -> None:
    """Each command has its probability, 10 ms behind it."""
    x = list(sent("/x", [0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0]))
    commands = list(sent("/a", [0.2, 1.3, 2.4], [1.0, 0.0, 2.0]))
    probabilities = list(sent("/b", [0.21, 1.31, 2.41], [0.5, 0.25, 0.125]))
    messages = sorted([*x, *commands, *probabilities], key=lambda one: one.time_ns)
    bag = json_bag(tmp_path, iter(messages))
    rows = rows_of(bag, 'b = { topic = "/b", field = "data" }' + COMMANDED)
    assert rows["action"][:3].tolist() == [1, 0, 2]
    assert rows["b"][:3].tolist() == [0.5, 0.25, 0.125]


@pytest.mark.parametrize("key", ["reward", "next_reward"])
def test_a_reward_is_that_of_the_step_to_its_row(key: str, tmp_path: Path) -> None:
    """Rows at 0, 1, 2, 3 s. The reward of the step from the first row is published 0.5 s after it, and so on."""
    places = sent("/x", [0.0, 1.0, 2.0, 3.0], [0.0] * 4)
    paid = sent("/reward", [0.5, 1.5, 2.5], [5.0, 6.0, 7.0])
    bag = json_bag(tmp_path, merge(places, paid, key=lambda message: message.time_ns))
    columns = f"""
period_s = 1.0
{key} = {{ topic = "/reward", field = "data" }}
[[channel]]
topic = "/x"
field = "data"
low = 0.0
high = 1.0
"""
    np.testing.assert_array_equal(rows_of(bag, columns)["reward"], [np.nan, 5.0, 6.0, 7.0])


def test_bins_of_two_fields_count_the_last_one_fastest(tmp_path: Path) -> None:
    """Speed v is cut at .1, turn w at -.1 and .1: the action is 3 (v >= .1) + the bin of w."""
    speeds = [(0.0, -0.5), (0.0, 0.0), (0.2, 0.5), (0.2, -0.5), (0.1, 0.1)]
    messages = [
        Recorded("/cmd", "Twist", i * SECOND_NS, {"v": v, "w": w})
        for i, (v, w) in enumerate(speeds)
    ]
    columns = """
period_s = 1.0
rows = "/cmd"
action = [
    { topic = "/cmd", field = "v", bins = [0.1] },
    { topic = "/cmd", field = "w", bins = [-0.1, 0.1] },
]
[[channel]]
topic = "/cmd"
field = "v"
"""
    bag = json_bag(tmp_path, iter([*messages, *sent("/cmd", [], [])]))
    table = open_bag_table(bag, columns_file(tmp_path, columns))
    rows = np.concatenate([part.rows for part in table])
    assert rows["action"][:4].tolist() == [0, 1, 5, 3]
    assert len(table.columns.actions.actions) == 6


STEPS = """
period_s = 0.1
action = { topic = "/action", field = "data" }
b = { topic = "/b", field = "data" }
[[channel]]
topic = "/obs"
field = "data"
"""


class Logged(NamedTuple):
    """Messages of 60 steps, of which `/obs` has the number of the action and `/reward` ten times that."""

    actions: list[int]
    messages: list[Recorded]


def logged(action_s: float, reward_s: float) -> Logged:
    """Return steps whose action, b and reward are so much later than the observation."""
    actions = np.random.default_rng(0).integers(3, size=60).tolist()
    times = [0.1 * i for i in range(60)]
    topics = {
        "/obs": (0.0, [float(a) for a in actions]),
        "/action": (action_s, [float(a) for a in actions]),
        "/b": (action_s, [1 / 3] * 60),
        "/reward": (reward_s, [10.0 * a for a in actions]),
    }
    messages: list[Recorded] = []
    for topic, (lag_s, values) in topics.items():
        messages += sent(topic, [t + lag_s for t in times], values)
    return Logged(actions, sorted(messages, key=lambda one: one.time_ns))


@pytest.mark.parametrize("rows", ["", 'rows = "/obs"\n'])
@pytest.mark.parametrize(
    ("action_s", "reward_s", "pairing"),
    [
        (0.0, 0.0, "Actions have the time of their rows."),
        (0.02, 0.09, "Actions follow their rows by 20 ms."),
    ],
)
def test_a_row_has_its_own_action_and_its_reward_is_in_the_next(
    rows: str, action_s: float, reward_s: float, pairing: str, tmp_path: Path
) -> None:
    """At a period, and for each message of a topic. An action of another row would be right in a third of them."""
    actions, messages = logged(action_s, reward_s)
    reward = 'next_reward = { topic = "/reward", field = "data" }\n'
    table = open_bag_table(
        json_bag(tmp_path, iter(messages)), columns_file(tmp_path, rows + reward + STEPS)
    )
    result = np.concatenate([part.rows for part in table])
    assert result["action"].tolist() == [*actions[:-1], -1]
    assert result["reward"][1:].tolist() == [10.0 * a for a in actions[:-1]]
    assert table.facts == [pairing]


class Sample(NamedTuple):
    """A number at a time, in units of a tenth of a period."""

    tick: int
    value: float


def samples(rng: np.random.Generator) -> list[Sample]:
    """Return numbers at random times of 40 periods, some of them at one time, and none in a pause."""
    ticks = np.sort(rng.integers(400, size=60))
    ticks = ticks[(ticks < 150) | (ticks > 200)]
    return [Sample(int(tick), float(rng.integers(1, 9))) for tick in ticks]


def expected_rows(topics: dict[str, list[Sample]], row_ticks: list[int]) -> list[list[float]]:
    """Return tick, x, answer, paid and reward of each row, found by looking at all messages; NaN without.

    A value is missing 12 ticks after it.
    """

    def newest(topic: str, tick: int) -> float:
        earlier = [one for one in topics[topic] if one.tick <= tick]
        if not earlier or tick - earlier[-1].tick > 12:
            return np.nan
        return earlier[-1].value

    rows = []
    for previous, tick, following in zip(
        [-1, *row_ticks], row_ticks, [*row_ticks[1:], 10_000], strict=False
    ):
        answers = [one for one in topics["/answer"] if tick <= one.tick < following]
        answer = newest("/answer", tick)
        if answers and answers[0].tick <= tick + 12:
            answer = answers[0].value
        paid = sum(one.value for one in topics["/paid"] if tick <= one.tick < following)
        led = sum(one.value for one in topics["/led"] if previous < one.tick <= tick)
        if not np.isnan(newest("/x", tick)):
            rows.append([tick, newest("/x", tick), answer, paid, led])
    return rows


@pytest.mark.parametrize("rows_topic", [None, "/x"])
@pytest.mark.parametrize("seed", range(4))
def test_rows_are_those_of_a_look_at_all_messages(
    seed: int, rows_topic: str | None, tmp_path: Path
) -> None:
    """Values at and after the rows and amounts before and after them, for messages at random times."""
    rng = np.random.default_rng(seed)
    topics = {name: samples(rng) for name in ("/x", "/answer", "/paid", "/led")}
    messages = [
        Recorded(topic, "Number", one.tick * SECOND_NS // 10, {"data": one.value})
        for topic, of_topic in topics.items()
        for one in of_topic
    ]
    messages.sort(key=lambda one: one.time_ns)
    first_tick = messages[0].time_ns * 10 // SECOND_NS
    last_tick = messages[-1].time_ns * 10 // SECOND_NS
    row_ticks = list(range(first_tick, last_tick + 1, 10))
    if rows_topic is not None:
        row_ticks = sorted({one.tick for one in topics["/x"]})
    resampler = Resampler(
        fields=[
            field("/x", AT),
            field("/answer", AFTER),
            field("/paid", AFTER, SUM),
            field("/led", AT, SUM),
        ],
        decoders=dict.fromkeys(topics, json.loads),
        period_s=1.0,
        rows_topic=rows_topic,
    )
    encoded = (
        Message(one.topic, one.time_ns, json.dumps(one.content).encode()) for one in messages
    )
    blocks = list(resampler.blocks(encoded, Losses()))
    rows = np.concatenate(blocks)
    rows[:, 0] = rows[:, 0] * 10 + first_tick
    np.testing.assert_allclose(rows, expected_rows(topics, row_ticks))


def field(topic: str, timing: str, kind: str = VALUE) -> Field:
    return Field(
        column=topic,
        topic=topic,
        steps=("data",),
        max_age_s=1.2,
        timing=timing,
        kind=kind,
        infinite=None,
        too_near=None,
    )


def test_the_screen_says_how_actions_were_paired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands at 0.2, 0.9 and 3.0 s answer the rows 0 and 3; those at rows 1, 2, 4 and 5 are in force."""
    columns = columns_file(tmp_path, COMMANDED)
    out = tmp_path / "run"
    command = f"learn --data {commanded(tmp_path)} --columns {columns} --out {out}"
    assert cli.main([*command.split(), "--questions", "nexting"]) == 0
    text = " ".join(capsys.readouterr().err.split())
    assert "Actions have the time of their rows; 4 of 9 rows have the action in force." in text


def test_rewards_between_two_rows_are_summed_and_without_one_it_is_0(tmp_path: Path) -> None:
    """Two rewards of 1, and .5 at the time of the row at 5 s: it is that of the row's action, or led to the row."""
    x = sent("/x", [float(i) for i in range(9)], [0.0] * 9)
    paid = sent("/reward", [1.1, 1.9, 5.0], [1.0, 1.0, 0.5])
    bag = json_bag(tmp_path, merge(x, paid, key=lambda message: message.time_ns))
    for key, row_of_half in (("next_reward", 6), ("reward", 5)):
        columns = f'{key} = {{ topic = "/reward", field = "data" }}\n' + X_EACH_TENTH
        rows = rows_of(bag, columns.replace("0.1", "1.0"))
        expected = np.zeros(9)
        expected[2] = 2.0
        expected[row_of_half] = 0.5
        assert rows["reward"][1:].tolist() == expected[1:].tolist(), key


def test_a_reward_at_a_time_without_a_row_is_reported(tmp_path: Path) -> None:
    """In a pause, and a period before the first row after it, which is not since the row before."""
    x = sent("/x", [0.0, 0.1, 0.2, 60.0, 60.1], [0.0] * 5)
    paid = sent("/reward", [0.15, 30.0, 59.9, 59.95], [1.0, 5.0, 7.0, 0.5])
    bag = json_bag(tmp_path, merge(x, paid, key=lambda message: message.time_ns))
    for key, total, n_lost in (("next_reward", 1.0, 3), ("reward", 1.5, 2)):
        columns = f'{key} = {{ topic = "/reward", field = "data" }}\n' + X_EACH_TENTH
        table = open_bag_table(bag, columns_file(tmp_path, columns))
        rows = np.concatenate([part.rows for part in table])
        assert np.nansum(rows["reward"]) == total, key
        remark = f"{n_lost} messages of /reward count in no row, because no row is at their time."
        assert remark in table.remarks


@pytest.mark.parametrize("convention", ["transition", "observation"])
def test_a_done_that_is_sent_once_ends_one_row(convention: str, tmp_path: Path) -> None:
    """50 ms after rows 19 and 39, there twice, with no message else. Held, it would end each row for a second.

    Of the row's action, it ends the episode after row 19, and a terminal row is added. Of the
    observation, it is that of row 20.
    """
    _, messages = logged(0.02, 0.09)
    messages += [
        Recorded("/done", "Bool", t * SECOND_NS // 100, {"data": True}) for t in (195, 395, 396)
    ]
    columns = f"""
convention = "{convention}"
terminated = {{ topic = "/done", field = "data" }}
"""
    messages.sort(key=lambda one: one.time_ns)
    rows = rows_of(json_bag(tmp_path, iter(messages)), columns + STEPS)
    is_terminal = (rows["flags"] & Flag.TERMINATED) > 0
    expected = {"transition": ([20, 41], 62), "observation": ([20, 40], 60)}
    assert (np.flatnonzero(is_terminal).tolist(), len(rows)) == expected[convention]


def test_a_time_limit_that_is_sent_once_ends_one_episode(tmp_path: Path) -> None:
    """50 ms after row 19, of the row's action: the next row follows a gap, and no row is terminal."""
    _, messages = logged(0.02, 0.09)
    messages.append(Recorded("/limit", "Bool", 195 * SECOND_NS // 100, {"data": True}))
    messages.sort(key=lambda one: one.time_ns)
    columns = 'convention = "transition"\ntruncated = { topic = "/limit", field = "data" }\n'
    rows = rows_of(json_bag(tmp_path, iter(messages)), columns + STEPS)
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 20]
    assert np.flatnonzero(rows["phase"] == int(Phase.END)).tolist() == [19, 59]
    assert not (rows["flags"] & Flag.TERMINATED).any()


def test_the_number_of_an_episode_holds_until_the_next_one(tmp_path: Path) -> None:
    """Sent once per episode; an age of 1 s would leave 20 of 60 rows."""
    _, messages = logged(0.02, 0.09)
    messages += sent("/episode", [0.0, 3.0], [1.0, 2.0])
    messages.sort(key=lambda one: one.time_ns)
    columns = 'episode = { topic = "/episode", field = "data" }\n' + STEPS
    rows = rows_of(json_bag(tmp_path, iter(messages)), columns)
    assert np.flatnonzero(rows["phase"] == int(Phase.END)).tolist() == [29, 59]


def test_a_reading_of_the_row_s_action_comes_after_the_row(tmp_path: Path) -> None:
    """The newest one at the row would be that of the action before."""
    actions, messages = logged(0.02, 0.09)
    channel = '[[channel]]\ntopic = "/reward"\nfield = "data"\ntransition = true\n'
    rows = rows_of(json_bag(tmp_path, iter(messages)), STEPS + channel)
    assert rows["observation"][1:, 1].tolist() == [10.0 * a for a in actions[:-1]]


# ---- order of time ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", WRITERS)
def test_topic_after_topic_has_the_rows_of_the_order_of_time(kind: str, tmp_path: Path) -> None:
    """As converters write. In the order of the file, all but the last topic would be a second too old: 10 rows."""
    by_topic = sorted(drive(10.0), key=lambda one: one.topic)
    for name in ("by_time", "by_topic"):
        (tmp_path / name).mkdir()
    expected = rows_of(WRITERS[kind](tmp_path / "by_time", drive(10.0)))
    rows = rows_of(WRITERS[kind](tmp_path / "by_topic", iter(by_topic)))
    assert len(rows) == 100
    for name in ("observation", "action", "t"):
        assert rows[name].tolist() == expected[name].tolist()


def test_one_message_behind_later_ones_is_put_in_order(tmp_path: Path) -> None:
    """2.9 s late in the file, as a converter writes it: no clock was set back."""
    times = [0.0, 1.0, 2.0, 1.5, 3.0, 0.1, 4.0]
    bag = json_bag(tmp_path, sent("/x", times, times))
    rows = rows_of(bag, 'period_s = 0.5\n[[channel]]\ntopic = "/x"\nfield = "data"\n')
    values = [0, 0.1, 1, 1.5, 2, 2, 3, 3, 4]
    assert rows["observation"][:, 0].tolist() == np.float32(values).tolist()


X_EACH_TENTH = 'period_s = 0.1\n[[channel]]\ntopic = "/x"\nfield = "data"\n'


def twenty_seconds(first: float, start_s: float) -> list[Recorded]:
    """Return x each tenth of a second from a time on: first, first + 1, ..."""
    times = [start_s + 0.1 * i for i in range(200)]
    return list(sent("/x", times, [first + i for i in range(200)]))


@pytest.mark.parametrize("names", [("a", "b"), ("morning", "evening"), ("x_10", "x_2")])
def test_files_of_a_folder_are_read_in_the_order_of_their_times(
    names: tuple[str, str], tmp_path: Path
) -> None:
    """The second file is an hour later; 10 rows hold the last value of the first. By name, half would be lost."""
    for name, messages in zip(
        names, (twenty_seconds(0, 0), twenty_seconds(1000, 3600)), strict=True
    ):
        write_json(tmp_path / f"{name}.mcap", iter(messages))
    table = open_bag_table(tmp_path, columns_file(tmp_path, X_EACH_TENTH))
    rows = np.concatenate([part.rows for part in table])
    assert rows["observation"][:, 0].tolist() == [*range(200), *[199] * 10, *range(1000, 1200)]
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 210]
    assert table.remarks == []


def test_bags_of_several_kinds_in_one_folder_are_one_bag(tmp_path: Path) -> None:
    """The folders of two ROS 2 bags and an MCAP file, each ten seconds of the drive; not one of ROS 1 beside them."""
    messages = list(drive(30.0))
    bounds = [START_NS + i * 10 * SECOND_NS for i in range(4)]
    folder = tmp_path / "drives"
    folder.mkdir()
    for writer, start, end in zip(
        (write_mcap_folder, write_sqlite, write_mcap), bounds[:-1], bounds[1:], strict=True
    ):
        writer(folder, iter([one for one in messages if start <= one.time_ns < end]))
    rows = rows_of(folder)
    whole = tmp_path / "whole"
    whole.mkdir()
    expected = rows_of(write_mcap(whole, iter(messages)))
    assert len(rows) == 300
    for name in ("observation", "action", "flags"):
        assert rows[name].tolist() == expected[name].tolist()
    write_ros1(folder, iter(messages))
    with pytest.raises(BadInput, match=r"\(cdr\) in one file, and nav_msgs/msg/Odometry \(ros1\)"):
        rows_of(folder)


def test_two_runs_of_a_simulation_are_read_one_after_the_other(tmp_path: Path) -> None:
    """Both begin at 0 s. Merged by time, x would alternate between the two runs."""
    write_json(tmp_path / "1.mcap", iter(twenty_seconds(0, 0)))
    write_json(tmp_path / "2.mcap", iter(twenty_seconds(1000, 0)))
    rows = rows_of(tmp_path, X_EACH_TENTH)
    assert rows["observation"][:, 0].tolist() == [*range(200), *range(1000, 1200)]
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 200]


def restarted() -> Iterator[Recorded]:
    """Yield x from 100 s on, then, after a simulation restarted, from 0 s on."""
    yield from twenty_seconds(0, 100)
    yield from twenty_seconds(1000, 0)


def test_a_clock_that_jumps_back_is_a_gap_and_both_parts_are_read(tmp_path: Path) -> None:
    """MCAP has the order of the file. Left out, as too late, half of the rows would be missing."""
    table = open_bag_table(json_bag(tmp_path, restarted()), columns_file(tmp_path, X_EACH_TENTH))
    rows = np.concatenate([part.rows for part in table])
    assert rows["observation"][:, 0].tolist() == [*range(200), *range(1000, 1200)]
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 200]
    assert (np.diff(rows["t"]) > 0).all()
    assert "The clock jumps back once by 119.9 s, in /x" in table.remarks[0]


@pytest.mark.parametrize("rows_at", ["", 'rows = "/x"\n'])
def test_no_value_from_before_a_clock_jumped_back_is_used_after_it(
    rows_at: str, tmp_path: Path
) -> None:
    """After the restart y comes .45 s late; until then it is missing, though its last value is younger than 100 s."""
    columns = rows_at + X_EACH_TENTH
    columns += '[[channel]]\ntopic = "/y"\nfield = "data"\nmax_age_s = 100.0\n'
    first_y, second_y = sent("/y", [100.0, 0.45], [1.0, 2.0])
    second_part = twenty_seconds(1000, 0)
    messages = [first_y, *twenty_seconds(0, 100), *second_part[:5], second_y, *second_part[5:]]
    rows = rows_of(json_bag(tmp_path, iter(messages)), columns)
    is_after = rows["observation"][:, 0] >= 1000
    assert rows["observation"][is_after, 0].tolist() == list(range(1000, 1200))
    of_y = rows["observation"][is_after, 1]
    assert np.isnan(of_y[:5]).all()
    assert set(of_y[5:].tolist()) == {2.0}


def stamped(messages: Iterator[Recorded]) -> Iterator[Recorded]:
    """Yield odometry with the times of messages in its headers, recorded a tenth of a second after one another."""
    for i, one in enumerate(messages):
        content = {"twist.twist.linear.x": one.content["data"]}
        time_ns = START_NS + i * SECOND_NS // 10
        yield Recorded("/odom", "nav_msgs/msg/Odometry", time_ns, content, one.time_ns)


def test_stamps_that_jump_back_are_a_gap_and_both_parts_are_read(tmp_path: Path) -> None:
    columns = 'period_s = 0.1\nclock = "stamp"\n[[channel]]\ntopic = "/odom"\nfield = "twist.twist.linear.x"\n'
    rows = rows_of(write_mcap(tmp_path, stamped(restarted())), columns)
    assert rows["observation"][:, 0].tolist() == [*range(200), *range(1000, 1200)]
    assert np.flatnonzero(rows["flags"] & Flag.GAP).tolist() == [0, 200]


@pytest.mark.parametrize("kind", [*WRITERS, *COMPRESSED])
def test_a_recorder_s_clock_that_jumps_back_is_a_gap_in_every_kind_of_bag(
    kind: str, tmp_path: Path
) -> None:
    """From 5 s on to 25 s, then from 0 s to 20 s: sorted by time, the two parts would be mixed, message by message."""
    speed = "twist.twist.linear.x"
    parts = [*twenty_seconds(0, 5), *twenty_seconds(1000, 0)]
    messages = [
        Recorded("/odom", "nav_msgs/msg/Odometry", one.time_ns, {speed: one.content["data"]})
        for one in parts
    ]
    for i in (0, 100, 200, 300):
        battery = Recorded("/battery", "sensor_msgs/msg/BatteryState", messages[i].time_ns, {})
        messages[i] = battery
    columns = f'period_s = 0.1\n[[channel]]\ntopic = "/odom"\nfield = "{speed}"\nmax_age_s = 0.05\n'
    columns += '[[channel]]\ntopic = "/battery"\nfield = "voltage"\nmax_age_s = 20.0\n'
    write = (WRITERS | COMPRESSED)[kind]
    table = open_bag_table(write(tmp_path, iter(messages)), columns_file(tmp_path, columns))
    rows = np.concatenate([part.rows for part in table])
    # A battery's message stands for each hundredth one
    values = np.array([*range(200), *range(1000, 1200)], dtype=float)
    values[values % 100 == 0] = np.nan
    np.testing.assert_array_equal(rows["observation"][:, 0], values)
    assert "The clock jumps back once by" in table.remarks[0]


def test_without_an_index_the_order_of_the_file_must_be_that_of_time(tmp_path: Path) -> None:
    by_topic = [*twenty_seconds(0, 0), *sent("/y", [0.1 * i for i in range(200)], [0.0] * 200)]
    columns = X_EACH_TENTH + '[[channel]]\ntopic = "/y"\nfield = "data"\n'
    by_time = sorted(by_topic, key=lambda one: one.time_ns)
    table = open_bag_table(
        json_bag(tmp_path, iter(by_time), use_chunking=False), columns_file(tmp_path, columns)
    )
    assert sum(len(part.rows) for part in table) == 200
    assert table.remarks == []
    bag = json_bag(tmp_path, iter(by_topic), use_chunking=False)
    with pytest.raises(BadInput, match=r"not in the order of time.* most of them of /y"):
        rows_of(bag, columns)


def write_x(path: Path, encoding: str, definition: str, **options: Any) -> Path:
    """Write the numbers 0 to 4, a tenth of a second apart, as an MCAP file whose type is given by a text."""
    from mcap.writer import Writer

    with path.open("wb") as file:
        writer = Writer(file, **options)
        writer.start()
        schema = writer.register_schema("own_msgs/msg/X", encoding, definition.encode())
        channel = writer.register_channel("/x", "cdr", schema)
        for i in range(5):
            data = b"\0\1\0\0" + struct.pack("<d", float(i))
            time_ns = i * SECOND_NS // 10
            writer.add_message(channel, log_time=time_ns, publish_time=time_ns, data=data)
        writer.finish()
    return path


def test_a_summary_without_types_is_no_index(tmp_path: Path) -> None:
    """The types stand in the chunks, so the file is read from its front."""
    path = write_x(tmp_path / "x.mcap", "ros2msg", "float64 data", repeat_schemas=False)
    assert rows_of(path, X_EACH_TENTH)["observation"][:, 0].tolist() == [0, 1, 2, 3, 4]


def test_types_in_the_interface_language_of_the_omg_are_read(tmp_path: Path) -> None:
    """Each type of several stands behind a line of ===, one with its name, and includes, as rosbag2 writes them."""
    rule = 80 * "="
    definition = f"""{rule}
IDL: own_msgs/msg/X
#include "own_msgs/msg/Number.idl"
module own_msgs {{ module msg {{ struct X {{ own_msgs::msg::Number data; }}; }}; }};
{rule}
IDL: own_msgs/msg/Number
module own_msgs {{ module msg {{ struct Number {{ double value; }}; }}; }};
"""
    path = write_x(tmp_path / "x.mcap", "ros2idl", definition)
    rows = rows_of(path, X_EACH_TENTH.replace('"data"', '"data.value"'))
    assert rows["observation"][:, 0].tolist() == [0, 1, 2, 3, 4]


def test_chunks_without_an_index_of_messages_are_sorted(tmp_path: Path) -> None:
    """Topic after topic: in the order of the file, the first topic would be too old for all rows of the second."""
    from mcap.writer import IndexType

    by_topic = [*twenty_seconds(0, 0), *sent("/y", [0.1 * i for i in range(200)], [0.0] * 200)]
    bag = json_bag(tmp_path, iter(by_topic), index_types=IndexType.CHUNK)
    rows = rows_of(bag, X_EACH_TENTH + '[[channel]]\ntopic = "/y"\nfield = "data"\n')
    assert rows["observation"][:, 0].tolist() == list(range(200))


def test_a_large_attachment_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is larger than any record that is taken for whole; read as one, it would cut the file off in its middle."""
    from mcap.writer import Writer

    bag = tmp_path / "x.mcap"
    with bag.open("wb") as file:
        writer = Writer(file, chunk_size=1_000)
        writer.start()
        schema = writer.register_schema("Number", "jsonschema", b'{"type": "object"}')
        channel = writer.register_channel("/x", "json", schema)
        for i, one in enumerate(twenty_seconds(0, 0)):
            if i == 100:
                writer.add_attachment(0, 0, "video", "video/mp4", bytes(20_000))
            data = json.dumps(one.content).encode()
            writer.add_message(channel, log_time=one.time_ns, publish_time=one.time_ns, data=data)
        writer.finish()
    monkeypatch.setattr(bag_files, "LARGEST_RECORD", 10_000)
    table = open_bag_table(bag, columns_file(tmp_path, X_EACH_TENTH))
    assert sum(len(part.rows) for part in table) == 200
    assert table.remarks == []


def test_a_file_in_no_order_is_sorted_as_far_as_memory_can_hold_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each chunk has messages of all times."""
    messages = twenty_seconds(0, 0)
    shuffled = [messages[i] for i in np.random.default_rng(0).permutation(200)]
    bag = json_bag(tmp_path, iter(shuffled), chunk_size=2_000)
    assert rows_of(bag, X_EACH_TENTH)["observation"][:, 0].tolist() == list(range(200))
    monkeypatch.setattr(bag_files, "LARGEST_OVERLAP", 4_000)
    with pytest.raises(BadInput, match="mcap sort"):
        rows_of(bag, X_EACH_TENTH)
    in_order = json_bag(tmp_path, iter(messages), chunk_size=2_000)
    assert len(rows_of(in_order, X_EACH_TENTH)) == 200


def test_a_whole_number_beyond_float64_is_no_reading(tmp_path: Path) -> None:
    """JSON has numbers of any size. In the first messages it is refused, later it is a value that is missing."""
    numbers = [1.0] * 200
    bag = json_bag(
        tmp_path,
        sent("/x", [0.1 * i for i in range(200)], [*numbers[:100], 10**400, *numbers[101:]]),
    )
    table = open_bag_table(bag, columns_file(tmp_path, 'missing = "gap"\n' + X_EACH_TENTH))
    assert sum(len(part.rows) for part in table) == 199
    assert "1 messages have no value" in table.remarks[0]
    bag = json_bag(tmp_path, sent("/x", [0.0, 0.1], [10**400, 1.0]))
    with pytest.raises(BadInput, match="data holds a number of more than 308 digits"):
        rows_of(bag, X_EACH_TENTH)
    with pytest.raises(BadInput, match="can be read: no message has a finite number"):
        draft_columns(json_bag(tmp_path, sent("/x", [0.0, 0.1], [10**400] * 2)))


# ---- elements with names ---------------------------------------------------------------------------------------------


def joints(names: list[list[str]]) -> Iterator[Recorded]:
    """Yield states of an elbow, which is at 1, and a wrist, which is at 2, in changing order."""
    places = {"elbow": 1.0, "wrist": 2.0}
    for i, order in enumerate(names):
        content = {"name": order, "position": [places[name] for name in order]}
        yield Recorded("/joint_states", "JointState", i * SECOND_NS // 10, content)


def test_an_element_is_chosen_by_the_name_beside_it(tmp_path: Path) -> None:
    """Names in changing order, and a message without the elbow, whose last value holds. By place: 1, 2, 2."""
    bag = json_bag(tmp_path, joints([["elbow", "wrist"], ["wrist", "elbow"], ["wrist"]]))
    text = draft_columns(bag)
    assert 'field = "position[name=elbow]"' in text
    assert 'field = "position[name=wrist]"' in text
    assert rows_of(bag, text)["observation"].tolist() == [[1.0, 2.0]] * 3


def transforms() -> Iterator[Recorded]:
    """Yield /tf of two publishers, at 20 and 10 Hz: base is near 0, odom at 100."""
    for i in range(40):
        frames = [("base", 0.01 * i, i)]
        if i % 2:
            frames.insert(0, ("odom", 100.0, i))
        for child, x, tick in frames:
            transform = {"translation": {"x": x}}
            content = {"transforms": [{"child_frame_id": child, "transform": transform}]}
            yield Recorded("/tf", "TFMessage", tick * SECOND_NS // 20, content)


def test_a_record_is_chosen_by_a_member(tmp_path: Path) -> None:
    """Each message has one of two frames. By place, the channel would jump between 0 and 100."""
    bag = json_bag(tmp_path, transforms())
    text = draft_columns(bag)
    assert 'field = "transforms[child_frame_id=base].transform.translation.x"' in text
    rows = rows_of(bag, text)
    by_name = dict(zip(("base", "odom"), rows["observation"].T, strict=True))
    assert len(rows) >= 19
    assert (by_name["base"] < 1.0).all()
    is_read = np.isfinite(by_name["odom"])
    assert set(by_name["odom"][is_read].tolist()) == {100.0}
    assert is_read.sum() >= len(rows) - 1


def test_a_name_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    columns = (
        'period_s = 0.1\n[[channel]]\ntopic = "/joint_states"\nfield = "position[name=knee]"\n'
    )
    with pytest.raises(BadInput, match="position has the name 'knee'; there are elbow, wrist"):
        rows_of(json_bag(tmp_path, joints([["elbow", "wrist"]])), columns)


# ---- a first columns file --------------------------------------------------------------------------------------------


def drafted(folder: Path, messages: Iterator[Recorded]) -> str:
    return draft_columns(json_bag(folder, messages))


def fields_of(text: str) -> list[str]:
    channels = tomllib.loads(text)["channel"]
    return [f"{channel['topic']}.{channel['field']}" for channel in channels]


def repeated(topic: str, content: dict[str, Any], n: int, every_s: float) -> Iterator[Recorded]:
    for i in range(n):
        yield Recorded(topic, "T", round(i * every_s * SECOND_NS), content)


@pytest.mark.parametrize(
    "content",
    [
        {"ranges": [1.0, np.inf, -np.inf, 0.5], "range_min": 0.1, "range_max": 3.5},
        {"range": np.inf, "min_range": 0.1, "max_range": 3.5},
        {"range": -np.inf, "min_range": 0.1, "max_range": 3.5},
    ],
)
def test_no_echo_is_the_longest_range_and_too_near_the_shortest(
    content: dict[str, Any], tmp_path: Path
) -> None:
    """REP 117: -inf is an object that is too near. Of a laser and of a sonar, as drafted."""
    bag = json_bag(tmp_path, repeated("/scan", content, 10, 0.1))
    readings = content.get("ranges", [content.get("range")])
    expected = [{np.inf: 3.5, -np.inf: 0.1}.get(value, value) for value in readings]
    rows = rows_of(bag, draft_columns(bag))
    assert rows["observation"][0].tolist() == np.float32(expected).tolist()


def test_topics_of_actions_rewards_and_ends_are_keys_and_no_channels(tmp_path: Path) -> None:
    """As a logger names them; `/state/b` of 3 is no probability, so it stays a reading, as `/a` does."""
    actions, messages = logged(0.02, 0.09)
    messages += sent("/done", [1.95, 3.95], [1.0, 1.0])
    messages += sent("/state/b", [0.1 * i for i in range(60)], [3.0] * 60)
    messages += sent("/a", [0.1 * i for i in range(60)], [1.0] * 60)
    messages.sort(key=lambda one: one.time_ns)
    bag = json_bag(tmp_path, iter(messages))
    text = draft_columns(bag)
    table = tomllib.loads(text)
    keys = {"action": "/action", "b": "/b", "next_reward": "/reward", "terminated": "/done"}
    for key, topic in keys.items():
        assert table[key] == {"topic": topic, "field": "data"}
    assert fields_of(text) == ["/a.data", "/obs.data", "/state/b.data"]
    rows = rows_of(bag, 'convention = "transition"\n' + text)
    assert rows["action"][rows["action"] >= 0].tolist() == actions[:-1]


def test_a_probability_without_an_action_is_left_out_of_a_draft(tmp_path: Path) -> None:
    """A columns file with b alone is refused; as a reading, a constant would be a sensor."""
    messages = [*twenty_seconds(0, 0), *sent("/b", [0.1 * i for i in range(200)], [0.5] * 200)]
    messages.sort(key=lambda one: one.time_ns)
    text = drafted(tmp_path, iter(messages))
    assert "b" not in tomllib.loads(text)
    assert fields_of(text) == ["/x.data"]
    assert len(rows_of(tmp_path / "json.mcap", text)) == 200


def test_a_topic_that_was_sent_once_is_no_channel(tmp_path: Path) -> None:
    """It would leave 10 of 200 rows."""
    payload = Recorded("/payload", "Number", 0, {"data": 7.0})
    text = drafted(tmp_path, iter([payload, *twenty_seconds(0, 0)]))
    assert fields_of(text) == ["/x.data"]
    assert "# /payload was sent once" in text
    assert '# field = "data"' in text


def test_a_slow_topic_beside_a_fast_one_has_its_age(tmp_path: Path) -> None:
    """Its second message stands behind 10,000 of the fast one, so the first messages of the bag do not tell."""
    fast = repeated("/imu", {"z": 0.5}, 20_000, 0.001)
    slow = repeated("/battery", {"voltage": 12.0}, 3, 10.0)
    text = drafted(tmp_path, merge(fast, slow, key=lambda one: one.time_ns))
    assert "#   /battery  T  3 messages, every 10 s" in text
    ages = {one["topic"]: one.get("max_age_s") for one in tomllib.loads(text)["channel"]}
    assert ages == {"/imu": None, "/battery": 30.0}


def test_readings_alone_become_channels(tmp_path: Path) -> None:
    """Neither the constants of a type (POWER_SUPPLY_...) nor the bytes of a picture."""
    from rosbags.rosbag2 import Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    image = "sensor_msgs/msg/CompressedImage"
    header = store.types["std_msgs/msg/Header"](
        stamp=store.types["builtin_interfaces/msg/Time"](sec=0, nanosec=0), frame_id=""
    )
    picture = store.types[image](header=header, format="jpeg", data=np.arange(200).astype(np.uint8))
    path = write_sqlite(tmp_path, (one for one in drive(3.0) if one.topic == "/battery"))
    pictures = tmp_path / "pictures"
    with Writer(pictures, version=9) as writer:
        connection = writer.add_connection("/image", image, typestore=store)
        writer.write(connection, START_NS, store.serialize_cdr(picture, image))
    (pictures / "metadata.yaml").unlink()
    for file in pictures.glob("*.db3"):
        file.rename(path / file.name)
    (path / "metadata.yaml").unlink()
    text = draft_columns(path)
    fields = fields_of(text)
    assert "/battery.voltage" in fields
    assert not [field for field in fields if field.startswith("/image") or field.isupper()]
    assert not [field for field in fields if "POWER_SUPPLY" in field]
    assert (
        "/image  sensor_msgs/msg/CompressedImage  1 messages; no numbers that are readings" in text
    )


def test_a_latitude_has_an_origin(tmp_path: Path) -> None:
    """52.1234567 needs more than the 24 binary digits of a reading."""
    fixes = (
        Recorded("/fix", "Fix", i * SECOND_NS // 10, {"latitude": 52.1234567 + 1e-7 * i})
        for i in range(50)
    )
    bag = json_bag(tmp_path, fixes)
    text = draft_columns(bag)
    (channel,) = tomllib.loads(text)["channel"]
    readings = rows_of(bag, text)["observation"][:, 0].astype(np.float64)
    latitudes = 52.1234567 + 1e-7 * np.arange(50)
    np.testing.assert_allclose(readings + channel["origin"], latitudes, rtol=0, atol=1e-9)


def test_messages_of_protobuf_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By mcap-protobuf-support, which is named where it is not installed."""
    pytest.importorskip("mcap_protobuf")
    from google.protobuf.descriptor_pb2 import DescriptorProto
    from mcap_protobuf.writer import Writer

    path = tmp_path / "arm.mcap"
    with path.open("wb") as file, Writer(file) as writer:
        for i in range(5):
            arm = DescriptorProto(name="arm")
            arm.field.add(name="elbow", number=10 + i)
            arm.field.add(name="wrist", number=20)
            time_ns = i * SECOND_NS // 10
            writer.write_message("/arm", arm, log_time=time_ns, publish_time=time_ns)
    assert "/arm.field[name=elbow].number" in fields_of(draft_columns(path))
    columns = 'period_s = 0.1\n[[channel]]\ntopic = "/arm"\nfield = "field[name=elbow].number"\n'
    assert rows_of(path, columns)["observation"][:, 0].tolist() == [10, 11, 12, 13, 14]
    monkeypatch.setitem(sys.modules, "mcap_protobuf.decoder", None)
    with pytest.raises(BadInput, match="pip install mcap-protobuf-support"):
        rows_of(path, columns)


# ---- a crash of the recorder -----------------------------------------------------------------------------------------


def cut_file(path: Path, share: float) -> Path:
    """Cut a file off; a ROS 1 bag says in its header that it has no index, as while it is recorded."""
    content = bytearray(path.read_bytes())
    if path.suffix == ".bag":
        place = content.index(b"index_pos=") + len(b"index_pos=")
        content[place : place + 8] = bytes(8)
    path.write_bytes(content[: round(share * len(content))])
    return path


def crashed_sqlite(folder: Path, messages: Iterator[Recorded]) -> Path:
    """Write the folder of a bag whose recorder did not end: half of the messages, and no metadata."""
    path = write_sqlite(folder, islice(messages, 700))
    (path / "metadata.yaml").unlink()
    return path


def crashed_mcap(folder: Path, messages: Iterator[Recorded]) -> Path:
    path = json_bag(folder, messages, chunk_size=4096)
    return cut_file(path, 0.6)


def crashed_ros1(folder: Path, messages: Iterator[Recorded]) -> Path:
    return cut_file(write_ros1(folder, messages), 0.6)


TWO_CHANNELS = """
period_s = 0.1
[[channel]]
topic = "/odom"
field = '{odom}'
[[channel]]
topic = "/battery"
field = "voltage"
max_age_s = 3.0
"""


def test_a_sqlite_bag_of_a_crash_is_read_to_the_cut_and_says_so(tmp_path: Path) -> None:
    columns = TWO_CHANNELS.format(odom="twist.twist.linear.x")
    table = open_bag_table(crashed_sqlite(tmp_path, drive()), columns_file(tmp_path, columns))
    rows = np.concatenate([part.rows for part in table])
    assert 100 < len(rows) < 250
    i = len(rows) - 1
    time_ns = START_NS + i * SECOND_NS // 10
    speed = newest("/odom", "twist.twist.linear.x", time_ns)
    assert rows["observation"][i, 0] == np.float32(speed)
    assert "read up to the cut" in table.remarks[0]
    n_messages = sum(one.topic in ("/odom", "/battery") for one in islice(drive(), 700))
    assert f"{n_messages} of {n_messages} messages of its topics were read" in table.remarks[0]


def test_a_ros_1_bag_of_a_crash_has_no_index_and_the_remedy_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"it has no index, .*: `rosbag reindex drive\.bag` writes an index"
    ):
        open_bag(crashed_ros1(tmp_path, drive(5.0)))


def test_messages_in_a_write_ahead_log_are_not_lost_in_silence(tmp_path: Path) -> None:
    """SQLite adds them to the file when its recorder is closed."""
    folder = write_sqlite(tmp_path, numbers_only(3.0))
    (file,) = folder.glob("*.db3")
    assert not open_bag(folder).cut
    file.with_name(f"{file.name}-wal").write_bytes(b"pages")
    assert "wal_checkpoint" in open_bag(folder).cut


def numbers_only(duration_s: float = 30.0) -> Iterator[Recorded]:
    for one in drive(duration_s):
        if one.topic != "/scan":
            yield one


def test_a_cut_mcap_file_is_read_to_its_last_whole_chunk(tmp_path: Path) -> None:
    columns = TWO_CHANNELS.format(odom='["twist.twist.linear.x"]')
    of_topics = [one for one in numbers_only() if one.topic in ("/odom", "/battery")]
    whole = rows_of(json_bag(tmp_path, numbers_only()), columns)
    table = open_bag_table(crashed_mcap(tmp_path, numbers_only()), columns_file(tmp_path, columns))
    rows = np.concatenate([part.rows for part in table])
    assert 100 < len(rows) < 250
    assert rows["observation"].tolist() == whole["observation"][: len(rows)].tolist()
    n_messages = sum(one.time_ns <= START_NS + rows["t"][-1] * SECOND_NS for one in of_topics)
    pattern = (
        r"read up to the cut: .* `mcap recover json\.mcap -o .* (\d+) messages of its topics were read, and nothing "
        r"counts those behind the cut: from 2023-11-14T22:13:20\+00:00 to (\S+)\.$"
    )
    match = re.search(pattern, table.remarks[0])
    assert match is not None
    assert n_messages <= int(match[1]) <= n_messages + 2
    assert datetime.fromisoformat(match[2]).timestamp() - START_NS / SECOND_NS < rows["t"][-1] + 0.1
    assert "# The bag was cut off" in draft_columns(tmp_path / "json.mcap")


def test_messages_behind_damage_are_counted(tmp_path: Path) -> None:
    """A flipped bit in the third chunk; those after it are not read."""
    bag = json_bag(tmp_path, iter(twenty_seconds(0, 0)), chunk_size=1_500)
    content = bytearray(bag.read_bytes())
    compression = content.split(b"zstd", maxsplit=3)
    compression[3][20] ^= 1
    content = b"zstd".join(compression)
    bag.write_bytes(content)
    table = open_bag_table(bag, columns_file(tmp_path, X_EACH_TENTH))
    n_rows = sum(len(part.rows) for part in table)
    assert 20 < n_rows < 180
    assert f" {n_rows} of 200 messages of its topics were read: from 1970-01-01" in table.remarks[0]


@pytest.mark.parametrize("kind", ["MCAP", "ROS 1", "SQLite", "folder"])
def test_a_fault_of_this_program_is_not_called_a_cut(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A KeyError of a reader is damage; one of this program would hide the messages after it."""
    writers = {
        "MCAP": json_bag,
        "ROS 1": write_ros1,
        "SQLite": crashed_sqlite,
        "folder": write_sqlite,
    }
    bag = open_bag(writers[kind](tmp_path, numbers_only(3.0)))

    def faulty(*_: object) -> None:
        raise KeyError("own fault")

    monkeypatch.setattr(bag_files, "Message", faulty)
    with pytest.raises(KeyError, match="own fault"):
        list(bag.messages(["/odom"]))
    assert "own fault" not in bag.cut


def damaged(content: bytes, number: int) -> bytes:
    """Return the content cut off, with flipped bits, or with a stretch of random bytes."""
    rng = np.random.default_rng(number)
    place = int(rng.integers(len(content)))
    if number % 3 == 0:
        return content[:place]
    changed = bytearray(content)
    if number % 3 == 1:
        changed[place] ^= 1 << int(rng.integers(8))
    else:
        stretch = content[place : place + 100]
        changed[place : place + 100] = rng.bytes(len(stretch))
    return bytes(changed)


def written(kind: str, folder: Path, messages: Iterator[Recorded]) -> Path:
    """Return a bag of one kind."""
    match kind:
        case "MCAP":
            return json_bag(folder, messages, chunk_size=2_000)
        case "MCAP without chunks":
            return json_bag(folder, messages, use_chunking=False)
        case "ROS 1":
            return write_ros1(folder, messages)
        case "SQLite":
            path = write_sqlite(folder, messages)
            (path / "metadata.yaml").unlink()
            return path
    return write_sqlite(folder, messages, compression=kind)


@pytest.mark.parametrize(
    "kind", ["MCAP", "MCAP without chunks", "ROS 1", "SQLite", "MESSAGE", "FILE"]
)
def test_a_damaged_bag_is_read_to_the_damage_or_refused(kind: str, tmp_path: Path) -> None:
    """Of 60 damaged files, none hides a message without saying so, and none raises another error.

    MESSAGE and FILE: folders of ROS 2 with compressed messages, or a compressed file, whose packages
    raise errors of their own.
    """
    path = written(kind, tmp_path, numbers_only(6.0))
    file = path
    if path.is_dir():
        (file,) = [one for one in path.iterdir() if one.name != "metadata.yaml"]
    content = file.read_bytes()
    n_messages = len(list(open_bag(path).messages(["/odom", "/battery"])))
    assert n_messages == 126
    n_noticed = 0
    for number in range(60):
        file.write_bytes(damaged(content, number))
        try:
            bag = open_bag(path)
        except BadInput:
            n_noticed += 1
            continue
        topics = [topic for topic in ("/odom", "/battery") if topic in bag.topics]
        n_read = len(list(bag.messages(topics)))
        assert n_read >= n_messages or bag.cut
        n_noticed += bool(bag.cut)
    assert n_noticed >= 20  # those that are cut off


def test_a_message_that_a_damaged_kind_hides_is_missing_from_the_count(tmp_path: Path) -> None:
    """A record of an unknown kind is skipped, which no checksum tells in a file without chunks."""
    bag = json_bag(tmp_path, iter(twenty_seconds(0, 0)), use_chunking=False)
    content = bytearray(bag.read_bytes())
    place = content.index(b'{"data": 7}') - 31  # kind, length, channel, number and two times
    assert content[place] == 5
    content[place] = 0x85
    bag.write_bytes(content)
    assert "199 of its 200 messages are in it" in open_bag(bag).cut


def test_a_message_of_no_topic_is_damage(tmp_path: Path) -> None:
    """The reader joins messages with topics, so it would leave it out in silence."""
    folder = write_sqlite(tmp_path, numbers_only(6.0))
    (file,) = folder.glob("*.db3")
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE messages SET topic_id = 99 WHERE id = 40")
    assert "185 of its 186 messages are of its topics" in open_bag(file).cut


def test_a_file_with_fewer_messages_than_it_counts_is_damage(tmp_path: Path) -> None:
    bag = json_bag(tmp_path, iter(twenty_seconds(0, 0)))
    content = bytearray(bag.read_bytes())
    count = struct.pack("<HQ", 1, 200)  # of the first channel
    place = content.rindex(count)
    content[place : place + len(count)] = struct.pack("<HQ", 1, 201)
    bag.write_bytes(content)
    opened = open_bag(bag)
    assert len(list(opened.messages(["/x"]))) == 200
    assert "lacks 1 of the 201 messages that it counts" in opened.cut


def test_a_compressed_folder_with_fewer_messages_than_it_counts_is_damage(tmp_path: Path) -> None:
    """As if a part of its file were lost."""
    folder = write_sqlite(tmp_path, numbers_only(6.0), compression="FILE")
    metadata = folder / "metadata.yaml"
    text = metadata.read_text()
    for count in ("186", "120"):  # of all messages, and of /odom
        assert text.count(f"message_count: {count}\n") >= 1
        text = text.replace(f"message_count: {count}\n", f"message_count: {int(count) + 1}\n", 1)
    metadata.write_text(text)
    assert "lacks 1 of the 187 messages that it counts" in open_bag(folder).cut


def test_a_cell_of_another_type_is_damage(tmp_path: Path) -> None:
    """SQLite stores any type in any column."""
    folder = write_sqlite(tmp_path, numbers_only(6.0))
    (file,) = folder.glob("*.db3")
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE messages SET timestamp = 'noon' WHERE id = 40")
    bag = open_bag(file)
    n_messages = sum(topic.n_messages for topic in bag.topics.values())
    n_read = len(list(bag.messages([*bag.topics])))
    assert n_read == n_messages - 1
    assert "a cell holds str, expected int" in bag.cut


# ---- refusals --------------------------------------------------------------------------------------------------------

REFUSALS = {
    "topic": (
        WITHOUT_B.replace('"/odom"', '"/odometry"'),
        "no topic '/odometry'; there are /battery",
    ),
    "field": (
        WITHOUT_B.replace("twist.twist.linear.x", "twist.linear.x"),
        "twist has no field 'linear'; there are twist, covariance",
    ),
    "index": (WITHOUT_B.replace("ranges[12]", "ranges[99]"), "ranges has 24 numbers"),
    "text": (WITHOUT_B.replace("voltage", "header.frame_id"), "holds the text"),
    "array": (WITHOUT_B.replace("ranges[12]", "ranges"), "is an array of 24"),
    "group": (
        WITHOUT_B.replace("twist.twist.linear.x", "twist.twist"),
        "there are linear, angular",
    ),
    "path": (WITHOUT_B.replace("ranges[12]", "ranges[a]"), "is no field"),
    "column": (WITHOUT_B + '[[channel]]\ncolumn = "x"\n', "not the column 'x'"),
    "time": ('time = "t"\n' + WITHOUT_B, "its own times"),
    "clock": ('clock = "sun"\n' + WITHOUT_B, "clock must be log or stamp"),
    "bins": (WITHOUT_B.replace("[0.1]", "[0.1, 0.0]"), "bins must be increasing"),
    "age": (WITHOUT_B.replace("max_age_s = 3.0", "max_age_s = 0"), "max_age_s must be > 0"),
    "old": (
        'rows = "/cmd_vel"\n' + WITHOUT_B.replace("max_age_s = 3.0", "max_age_s = 1e-9"),
        "/battery had no value, or one older",
    ),
    "rows": ('rows = "/imu"\n' + WITHOUT_B, "no topic '/imu'"),
}


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mcap(tmp_path_factory.mktemp("bag"), drive(5.0))


@pytest.mark.parametrize("case", REFUSALS)
def test_a_bag_that_does_not_fit_is_refused_by_what_there_is(
    case: str, bag: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns, reason = REFUSALS[case]
    out = tmp_path / "run"
    command = f"learn --data {bag} --columns {columns_file(tmp_path, columns)} --out {out}"
    assert cli.main([*command.split(), "--questions", "nexting"]) == 2
    assert reason in " ".join(capsys.readouterr().err.split())
    assert not out.exists()


def test_a_bag_without_columns_is_refused_with_the_command_that_writes_them(bag: Path) -> None:
    with pytest.raises(BadInput, match=r"horde columns .*drive\.mcap > columns\.toml"):
        learn_from(bag, questions="nexting")


def test_without_a_reader_the_extra_is_named(
    bag: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rosbags.typesys", None)
    with pytest.raises(BadInput, match=r"pip install -e '\.\[bag\]'"):
        open_bag_table(bag, columns_file(tmp_path))


def test_a_topic_without_a_message_is_refused(tmp_path: Path) -> None:
    from rosbags.rosbag2 import Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    path = tmp_path / "empty"
    with Writer(path, version=9) as writer:
        for topic in ("/a", "/b"):
            connection = writer.add_connection(topic, "std_msgs/msg/Float64", typestore=store)
        number = store.types["std_msgs/msg/Float64"](data=1.0)
        writer.write(connection, 0, store.serialize_cdr(number, "std_msgs/msg/Float64"))
    columns = 'period_s = 1.0\n[[channel]]\ntopic = "/a"\nfield = "data"\n'
    with pytest.raises(BadInput, match="the topic /a has no message"):
        open_bag_table(path, columns_file(tmp_path, columns))


@pytest.mark.parametrize("content", [b"", b"no bag", bytes(4096)])
@pytest.mark.parametrize("suffix", ["mcap", "bag", "db3"])
def test_a_file_that_is_no_bag_is_refused(suffix: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"x\."):
        open_bag_table(path, columns_file(tmp_path))


# ---- clocks ----------------------------------------------------------------------------------------------------------


def shifted(offset_s: float) -> Iterator[Recorded]:
    """Yield the drive; the stamps of the scan are of a clock that is ahead."""
    for one in drive(5.0):
        if one.topic == "/scan":
            assert one.stamp_ns is not None
            yield one._replace(stamp_ns=one.stamp_ns + round(offset_s * SECOND_NS))
        else:
            yield one


def test_clocks_that_disagree_are_refused_unless_the_log_times_are_chosen(tmp_path: Path) -> None:
    bag = write_mcap(tmp_path, shifted(30.0))
    with pytest.raises(
        BadInput, match=r"disagree: stamps minus log times are .* and 30 s in /scan"
    ):
        rows_of(bag)
    assert len(rows_of(bag, 'clock = "log"\n' + WITHOUT_B)) == 50
    with pytest.raises(BadInput, match="disagree"):
        rows_of(bag, 'clock = "stamp"\n' + WITHOUT_B)


def test_stamps_are_the_times_of_the_messages_if_they_are_chosen(tmp_path: Path) -> None:
    """The scan's stamps are .35 s late: at 2 s, the scan of 1.6 s is the newest."""
    bag = write_mcap(tmp_path, shifted(0.352))
    by_log = rows_of(bag, WITHOUT_B)
    rows = rows_of(bag, 'clock = "stamp"\n' + WITHOUT_B)
    at_2s = np.abs(rows["t"] - 2.0).argmin()
    log_row = round(1.6 / 0.1)
    assert rows["observation"][at_2s, 1] == by_log["observation"][log_row, 1]


# ---- to the end ------------------------------------------------------------------------------------------------------


def test_a_first_columns_file_teaches_at_once(
    bag: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands become actions, b is estimated, and an infinite range is the longest one."""
    assert cli.main(["columns", str(bag)]) == 0
    text = capsys.readouterr().out
    assert "#   /odom  nav_msgs/msg/Odometry  100 messages, every 0.05 s" in text
    assert 'field = "ranges[0]"\ninfinite = 3.5' in text
    columns = columns_file(tmp_path, text)
    table = open_bag_table(bag, columns)
    assert len(table.columns.actions.actions) == 6
    assert table.columns.actions.b == "estimate"
    names = [channel.name for channel in table.columns.channel]
    assert "odom.twist.twist.linear.x" in names
    assert sum(len(part.rows) for part in table) == 50


def test_a_bag_is_learned_from_as_its_rows_are(bag: Path, tmp_path: Path) -> None:
    """The same weights as by a table of the same rows."""
    columns = columns_file(tmp_path)
    question = [GVF("speed", Behaviour(), Channel(0), 0.9)]
    of_bag = learn_from(bag, columns=columns, questions=question, out=tmp_path / "bag")
    table = open_bag_table(bag, columns)
    rows = np.concatenate([part.rows for part in table])
    channels = table.columns.channel
    of_rows = learn_from(
        rows["observation"],
        rows["action"],
        action_names=table.columns.actions.actions,
        questions=question,
        channels=[channel.name for channel in channels],
        ranges=[[channel.low, channel.high] for channel in channels],
        period_s=0.1,
        out=tmp_path / "rows",
    )
    assert of_bag.summary["weights_sha256"] == of_rows.summary["weights_sha256"]
    assert of_bag.summary["learning_steps"] == 49


def test_b_of_a_bag_may_be_a_policy(bag: Path, tmp_path: Path) -> None:
    coin = PolicyFunction(lambda observation, tiles: np.array([0.5, 0.5]), n_actions=2)
    question = [GVF("turn", ConstantAction(1, n_actions=2), Channel(0), 0.9)]
    columns = columns_file(tmp_path)
    learned = learn_from(bag, columns=columns, b=coin, questions=question, out=tmp_path / "run")
    b = read(learned.path / "log" / "life.rec").rows["b"]
    assert set(b[:-1].tolist()) == {0.5}
    with pytest.raises(BadInput, match="actions is in the columns file"):
        learn_from(bag, "a", columns=columns, questions=question, out=tmp_path / "b")


def test_the_rows_of_a_life_teach_the_same_weights_as_json_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row per message, from two topics, with gaps, drives and test excursions."""
    run = tmp_path / "life"
    second_run = tmp_path / "again"
    questions = "--horizon 8 --questions excursions"
    faults = {40: {"gap": 1}, 90: {"applied": 0}}
    command = f"learn --steps 300 --seed 1 --out {run} {questions}"
    assert toy(command, monkeypatch, faults=faults) == 0
    bag = write_json(tmp_path / "life.mcap", messages_of(run))
    assert cli.main(f"export {run} --to parquet --out {tmp_path / 'tables'}".split()) == 0
    columns = columns_file(tmp_path, as_bag_columns((tmp_path / "tables-columns.toml").read_text()))
    command = f"learn --data {bag} --columns {columns} --out {second_run} {questions}"
    assert cli.main(command.split()) == 0
    for key in ("learning_steps", "weights_sha256", "n_excursions"):
        assert summary_of(second_run)[key] == summary_of(run)[key], key


ROW_FIELDS = ("step", "action", "b", "reward", "phase", "flags", "policy")


def messages_of(run: Path) -> Iterator[Recorded]:
    """Yield two messages for each row of a run's record, of the same time."""
    stream = read(run / "log" / "life.rec")
    names = [channel["name"] for channel in stream.header["channels"]]
    for i, row in enumerate(stream.rows):
        time_ns = START_NS + i * SECOND_NS // 10
        facts = {name: row[name].item() for name in ROW_FIELDS}
        for name in ("b", "reward"):
            if np.isnan(facts[name]):
                facts[name] = None
        yield Recorded("/row", "Row", time_ns, facts)
        readings = dict(zip(names, row["observation"].tolist(), strict=True))
        yield Recorded("/sensors", "Sensors", time_ns, readings)


def as_bag_columns(text: str) -> str:
    """Return the columns file of an exported table for messages of these two topics."""
    head, *channels = text.split("[[channel]]")
    lines = ['rows = "/row"']
    for line in head.splitlines():
        key = line.partition(" = ")[0]
        if key in ROW_FIELDS:
            line = f'{key} = {{ topic = "/row", field = "{key}" }}'
        lines.append(line)
    for channel in channels:
        source = channel.replace("column = ", "field = ")
        lines += ["[[channel]]", f'topic = "/sensors"{source}']
    return "\n".join(lines)


def test_the_columns_file_of_the_documentation_fits_the_bag(bag: Path, tmp_path: Path) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "data.md"
    blocks = re.findall(r"^```toml\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    (columns,) = [block for block in blocks if "/cmd_vel" in block]
    rows = rows_of(bag, columns.replace('b = "estimate"\n', ""))
    assert rows["observation"].tolist() == rows_of(bag)["observation"].tolist()
    assert rows["action"].tolist() == rows_of(bag)["action"].tolist()
