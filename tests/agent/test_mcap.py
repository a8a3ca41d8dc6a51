"""Exports to MCAP: topics, times since 1970, full precision, Foxglove's schemas, the columns file."""

from __future__ import annotations

import json
import math
import tomllib
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from horde_agent import cli, learn_from
from horde_agent.record import Flag, new_rows, read
from horde_agent.runs.reporting.mcap_file import (
    Resume,
    RowTimes,
    TopicField,
    channel_fields,
    prediction_fields,
    publish_times,
)
from tests.agent.commands import summary_of, toy

reading = pytest.importorskip("mcap.reader")

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
START_S = START.timestamp()
SECOND_NS = 1_000_000_000


class Received(NamedTuple):
    """A message of a file."""

    log_time: int
    publish_time: int
    content: dict[str, Any]


def messages_of(path: Path) -> dict[str, list[Received]]:
    """Return the messages of an MCAP file by topic; its checksums are checked."""
    topics = defaultdict(list)
    with path.open("rb") as file:
        for _, channel, message in reading.make_reader(file, validate_crcs=True).iter_messages():
            content = json.loads(message.data)
            topics[channel.topic].append(Received(message.log_time, message.publish_time, content))
    return topics


def schemas_of(path: Path) -> dict[str, dict[str, Any]]:
    """Return the JSON schema of each topic."""
    with path.open("rb") as file:
        summary = reading.make_reader(file).get_summary()
    schemas = {}
    for channel in summary.channels.values():
        schema = summary.schemas[channel.schema_id]
        assert (channel.message_encoding, schema.encoding) == ("json", "jsonschema")
        schemas[channel.topic] = {**json.loads(schema.data), "name": schema.name}
    return schemas


@pytest.fixture(scope="module")
def exported(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mcap") / "toy.mcap"
    assert cli.main(["export", str(toy_run), "--to", "mcap", "--out", str(path)]) == 0
    return path


# ---- what a file holds -----------------------------------------------------------------------------------------------


def test_every_number_of_a_row_is_in_the_file_exactly(toy_run: Path, exported: Path) -> None:
    """JSON has the shortest number that reads back as the same float; NaN is null."""
    stream = read(toy_run / "log" / "life.rec")
    topics = messages_of(exported)
    life = [message.content for message in topics["/life"]]
    for name in ("step", "action", "phase", "flags", "policy"):
        assert [row[name] for row in life] == stream.rows[name].tolist()
    for name in ("t", "b", "unix_s"):
        values = [math.nan if row[name] is None else row[name] for row in life]
        np.testing.assert_array_equal(values, stream.rows[name])
    places = channel_fields(stream.header, stream.rows["observation"].shape[1])
    for i, (topic, field) in enumerate(places):
        values = np.array([message.content[field] for message in topics[topic]])
        np.testing.assert_array_equal(values.astype(np.float32), stream.rows["observation"][:, i])


def test_a_topic_is_a_group_of_channels(exported: Path) -> None:
    schemas = schemas_of(exported)
    groups = {topic for topic in schemas if topic.startswith("/observation/")}
    assert groups
    for topic in ["/life", *groups]:
        numbers = schemas[topic]["properties"].values()
        assert all(number == {"type": "number"} for number in numbers)
    assert schemas["/events"]["name"] == "foxglove.Log"


def test_rows_of_all_topics_have_the_time_of_their_row(toy_run: Path, exported: Path) -> None:
    """Robot time from the start on the wall clock; the publish time is the row's wall clock."""
    rows = read(toy_run / "log" / "life.rec").rows
    topics = messages_of(exported)
    life = topics["/life"]
    start_ns = 1_000 * round(1e6 * rows["unix_s"][0])
    steps = rows["step"] - rows["step"][0]
    assert life[0].log_time == start_ns
    np.testing.assert_allclose(
        [message.log_time - start_ns for message in life], steps * 1e8, rtol=0, atol=2_000
    )
    assert [message.publish_time for message in life] == [
        1_000 * round(1e6 * unix_s) for unix_s in rows["unix_s"].tolist()
    ]
    for topic in topics:
        if topic.startswith("/observation/"):
            assert [m.log_time for m in topics[topic]] == [m.log_time for m in life]


def test_the_pose_is_foxglove_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quaternion about z: (0, 0, sin(heading / 2), cos(heading / 2))."""
    run = tmp_path / "run"
    place = {"x_m": 0.25, "y_m": -0.5, "heading_rad": math.pi / 2}
    words = f"learn --steps 40 --excursion-probability 0 --out {run}"
    assert toy(words, monkeypatch, faults={20: place}) == 0
    path = tmp_path / "life.mcap"
    assert cli.main(["export", str(run), "--to", "mcap", "--out", str(path)]) == 0
    schema = schemas_of(path)["/pose"]
    assert schema["name"] == "foxglove.PoseInFrame"
    assert set(schema["properties"]) == {"timestamp", "frame_id", "pose"}
    topics = messages_of(path)
    (message,) = topics["/pose"]
    assert message.log_time == topics["/life"][20].log_time
    timestamp = message.content["timestamp"]
    assert timestamp["sec"] * SECOND_NS + timestamp["nsec"] == message.log_time
    pose = message.content["pose"]
    assert pose["position"] == {"x": 0.25, "y": -0.5, "z": 0.0}
    half = math.sqrt(0.5)
    np.testing.assert_allclose(
        [pose["orientation"][axis] for axis in "xyzw"], [0.0, 0.0, half, half], atol=1e-7
    )


def test_events_are_a_log_in_the_order_of_the_rows(toy_run: Path, exported: Path) -> None:
    topics = messages_of(exported)
    events = topics["/events"]
    lines = (toy_run / "log" / "events.jsonl").read_text().splitlines()
    names = [json.loads(line)["event"] for line in lines]
    assert [event.content["message"].partition(":")[0] for event in events] == names
    times = [event.log_time for event in events]
    assert times == sorted(times)
    assert times[0] == topics["/life"][0].log_time
    assert times[-1] == topics["/life"][-1].log_time


def test_predictions_on_request(tmp_path: Path) -> None:
    """By the weights of the newest snapshot, float32; NAME/FIELD is a field of the topic NAME."""
    run = tmp_path / "run"
    learned = learn_from(np.random.default_rng(0).random((60, 2)), questions="nexting", out=run)
    path = tmp_path / "life.mcap"
    words = ["export", str(run), "--to", "mcap", "--out", str(path), "--predictions"]
    assert cli.main(words) == 0
    topics = messages_of(path)
    expected = learned.predictions().astype(np.float32)
    for i, (topic, field) in enumerate(prediction_fields(learned.horde.names)):
        values = np.array([message.content[field] for message in topics[topic]], dtype=np.float32)
        np.testing.assert_array_equal(values, expected[:, i])


# ---- names -----------------------------------------------------------------------------------------------------------


def test_names_become_fields_without_dots_and_stay_distinct() -> None:
    """Viewers and columns files separate names by dots; "a.b" and "a_b" of one group would be one field."""
    channels = [
        {"name": "a.b", "group": "left wheel"},
        {"name": "a_b", "group": "left wheel"},
        {"name": "a_b", "group": "right"},
        {"name": "0", "group": ""},
    ]
    assert channel_fields({"channels": channels}, 4) == [
        TopicField("/observation/left_wheel", "a_b"),
        TopicField("/observation/left_wheel", "a_b_2"),
        TopicField("/observation/right", "a_b"),
        TopicField("/observation/_0", "_0"),
    ]
    assert channel_fields({}, 2) == [
        TopicField("/observation/obs", "obs_0"),
        TopicField("/observation/obs", "obs_1"),
    ]
    assert prediction_fields(["forward/g0.8/light_0", "mine"]) == [
        TopicField("/predictions/forward/g0_8", "light_0"),
        TopicField("/predictions", "mine"),
    ]


# ---- times -----------------------------------------------------------------------------------------------------------


def rows_at(steps: list[int], unix_s: list[float]) -> np.ndarray:
    rows = new_rows(len(steps), 1)
    rows["step"] = steps
    rows["unix_s"] = unix_s
    return rows


def seconds(times: list[int]) -> list[float]:
    """Return nanoseconds since 1970 as seconds since START."""
    return [round(time / SECOND_NS - START_S, 6) for time in times]


def test_a_resume_is_at_its_time_on_the_wall_clock() -> None:
    """Periods of 2 s; resumed an hour later, and once more 1 s later, when robot time is ahead already."""
    wall_s = [START_S + s for s in (0.0, 2.003, 4.001, 3600.0, 3602.0, 3603.0)]
    rows = rows_at([0, 1, 2, 3, 4, 5], wall_s)
    rows["flags"][[3, 5]] = Flag.RESUMED
    times = RowTimes(datetime.fromtimestamp(0, UTC), [], period_s=2.0)
    log_times = times.log_times(rows)
    assert seconds(log_times) == [0.0, 2.0, 4.0, 3600.0, 3602.0, 3604.0]
    assert seconds(publish_times(rows, log_times)) == [0.0, 2.003, 4.001, 3600.0, 3602.0, 3603.0]
    assert times.n_unknown == 0


def test_a_record_that_begins_later_begins_at_its_time_on_the_wall_clock() -> None:
    """Its older files were moved: step 100 at 0.1 s is START + 10 s, not START + 20 s, as if the run began there."""
    times = RowTimes(datetime.fromtimestamp(0, UTC), [], period_s=0.1)
    rows = rows_at([100, 101, 102], [START_S + 10.0, START_S + 10.11, START_S + 10.2])
    assert seconds(times.log_times(rows)) == [10.0, 10.1, 10.2]


def test_an_exact_resume_has_no_flag_but_an_event() -> None:
    """A simulated robot goes on as if nothing had happened; parts of a record continue each other."""
    resumes = [Resume(step=2, time=START)]
    times = RowTimes(START, resumes, period_s=0.1)
    first = times.log_times(rows_at([0, 1], [START_S, START_S + 0.01]))
    second = times.log_times(rows_at([2, 3], [START_S + 50.0, START_S + 50.01]))
    assert seconds([*first, *second]) == [0.0, 0.1, 50.0, 50.1]


def test_a_record_without_a_wall_clock_has_the_times_of_its_events() -> None:
    resumes = [Resume(step=2, time=datetime(2026, 3, 1, 13, tzinfo=UTC))]
    times = RowTimes(START, resumes, period_s=0.1)
    rows = rows_at([0, 1, 2, 3], [math.nan] * 4)
    log_times = times.log_times(rows)
    assert seconds(log_times) == [0.0, 0.1, 3600.0, 3600.1]
    assert publish_times(rows, log_times) == log_times
    assert times.n_unknown == 4


def test_a_fast_simulation_keeps_a_row_per_period() -> None:
    """1 ms of wall clock per step of 0.1 s: viewers show robot time."""
    steps = list(range(100))
    times = RowTimes(START, [], period_s=0.1)
    log_times = times.log_times(rows_at(steps, [START_S + 0.001 * step for step in steps]))
    np.testing.assert_allclose(np.diff(log_times), 1e8, rtol=0, atol=1_000)


def test_two_rows_of_a_step_have_two_times() -> None:
    """A drive without a step; with one time for both, each row would be read with the action of the first, none."""
    times = RowTimes(START, [], period_s=0.1)
    log_times = times.log_times(rows_at([0, 1, 1, 2], [math.nan] * 4))
    assert seconds(log_times) == [0.0, 0.1, 0.100001, 0.2]


# ---- the columns file ------------------------------------------------------------------------------------------------


def test_the_columns_file_names_a_topic_and_a_field_for_each_channel(
    toy_run: Path, exported: Path
) -> None:
    header = read(toy_run / "log" / "life.rec").header
    columns = tomllib.loads((exported.parent / "toy-columns.toml").read_text())
    topics = messages_of(exported)
    assert columns["rows"] == "/life"
    assert columns["period_s"] == 0.1
    assert columns["actions"] == header["actions"]
    assert [channel["name"] for channel in columns["channel"]] == [
        channel["name"] for channel in header["channels"]
    ]
    sources = [columns[key] for key in ("action", "b", "step", "phase", "flags", "policy")]
    for source in [*sources, *columns["channel"]]:
        assert source["field"] in topics[source["topic"]][0].content


def test_a_record_without_b_has_none_in_its_columns_file(tmp_path: Path) -> None:
    learn_from(np.random.default_rng(0).random((60, 2)), questions="nexting", out=tmp_path / "run")
    path = tmp_path / "life.mcap"
    words = ["export", str(tmp_path / "run"), "--to", "mcap", "--out", str(path)]
    assert cli.main(words) == 0
    assert "b" not in tomllib.loads((tmp_path / "life-columns.toml").read_text())


def test_a_life_exported_and_learned_from_has_the_same_weights(
    toy_run: Path, exported: Path, tmp_path: Path
) -> None:
    """To the bit: its rows are those of `/life`, with excursions, drives and gaps."""
    columns = exported.parent / "toy-columns.toml"
    run = tmp_path / "run"
    words = f"learn --data {exported} --columns {columns} --questions excursions --horizon 20 --out {run}"
    assert cli.main(words.split()) == 0
    life = summary_of(toy_run)
    learned = summary_of(run)
    for key in ("weights_sha256", "learning_steps", "mean_nmsre", "n_excursions"):
        assert learned[key] == life[key]
    assert learned["learning_steps"] > 500
