"""A recording as an MCAP file, for robot viewers and for `horde learn --data`.

Messages are JSON with a JSON schema. There is a message of each topic per row, all with the same
time:

* `/life`: the columns of `record`, with the row's wall clock if it was recorded;
* `/observation/GROUP`: the readings of a group of channels, each as a field;
* `/pose`: `foxglove.PoseInFrame`, if the pose is known;
* `/predictions/NAME`: on request, the predictions of the questions NAME/FIELD;
* `/events`: `foxglove.Log`, one for each event of the run.

Log times are nanoseconds since 1970: robot time, counted from the start of the run, and anew from
each resume, so a simulated life has a row per period however fast it was computed. The publish time
is the row's wall clock. Times of rows increase, by a microsecond at least.

Numbers have the shortest form that reads back as the same number; NaN and infinity are null.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.formats.cells import Shift
from horde_agent.formats.columns import Columns, channel_facts, shifts_of, toml_lines
from horde_agent.record import FIELDS, READ_FIELDS, Flag, Stream
from horde_agent.toml import toml_value
from horde_agent.types import Floats

ROWS_TOPIC = "/life"
POSE_TOPIC = "/pose"
EVENTS_TOPIC = "/events"
FRAME = "world"
SECOND_NS = 1_000_000_000
_TICK_NS = 1_000  # of log times
_INFO_LEVEL = 2  # of foxglove.Log
_WARNING_LEVEL = 3
_USUAL_EVENTS = ("began", "resumed", "snapshot", "questions", "ended")
Schema = dict[str, Any]


# ---- names -----------------------------------------------------------------------------------------------------------


class TopicField(NamedTuple):
    """Where a number is: a topic, and a field of its messages."""

    topic: str
    field: str


def channel_fields(header: Mapping[str, Any], n_inputs: int) -> list[TopicField]:
    """Return the place of each channel of a recording, in its order; without names they are obs_0, ..."""
    channels = header.get("channels", [])
    if len(channels) != n_inputs:
        return [TopicField("/observation/obs", f"obs_{i}") for i in range(n_inputs)]
    places = [
        (f"/observation/{_plain(channel.get('group') or channel['name'])}", channel["name"])
        for channel in channels
    ]
    return _distinct(places)


def prediction_fields(names: Sequence[str]) -> list[TopicField]:
    """Return the place of each question's prediction: of "forward/g0.8/light_0" the field light_0 of its own topic."""
    places = []
    for name in names:
        group, _, field = name.rpartition("/")
        topic = "/predictions"
        if group:
            topic += "/" + "/".join(map(_plain, group.split("/")))
        places.append((topic, field))
    return _distinct(places)


def _plain(name: str) -> str:
    """Return a name of letters, digits and underscores: viewers and columns files separate names by dots."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not plain or plain[0].isdigit():
        plain = f"_{plain}"
    return plain


def _distinct(places: Sequence[tuple[str, str]]) -> list[TopicField]:
    """Return places with plain names of fields, which are numbered if two of a topic would be the same."""
    fields: list[TopicField] = []
    used: set[TopicField] = set()
    for topic, name in places:
        candidate = TopicField(topic, _plain(name))
        number = 1
        while candidate in used:
            number += 1
            candidate = TopicField(topic, f"{_plain(name)}_{number}")
        used.add(candidate)
        fields.append(candidate)
    return fields


# ---- times -----------------------------------------------------------------------------------------------------------


class Resume(NamedTuple):
    """A resume: the step after which rows are new, and its time."""

    step: int
    time: datetime


class RowTimes:
    """Computes the times of rows, in their order.

    Args:
        began: The time at which the run began, for a record without a wall clock.
        resumes: In their order; their times are for a record without a wall clock.
        period_s: Duration of a step, in seconds.

    Attributes:
        n_unknown: Number of rows without a wall clock.
    """

    def __init__(self, began: datetime, resumes: Sequence[Resume], period_s: float) -> None:
        self.n_unknown = 0
        self._start_s = began.timestamp()
        self._start_step = 0
        self._resumes = list(resumes)
        self._period_s = period_s
        self._has_begun = False
        self._newest_ns = 0

    def log_times(self, rows: NDArray[Any]) -> list[int]:
        """Return the log times of the next rows, shape (n_rows,), in nanoseconds since 1970."""
        is_resumed = (rows["flags"] & Flag.RESUMED) != 0
        wall_s = rows["unix_s"]
        times = []
        for i, step in enumerate(rows["step"].tolist()):
            if not math.isfinite(wall_s[i]):
                self.n_unknown += 1
            if not self._has_begun:
                self._has_begun = True
                self._begin(step, float(wall_s[i]))
            resumed_s = math.nan
            while self._resumes and self._resumes[0].step <= step:
                resumed_s = self._resumes.pop(0).time.timestamp()
            if is_resumed[i] or not math.isnan(resumed_s):
                self._resume(step, resumed_s, float(wall_s[i]))
            # A drive without a step has two rows at its step, which readers tell apart by their times
            self._newest_ns = max(self._newest_ns + _TICK_NS, _in_ns(self._time_s(step)))
            times.append(self._newest_ns)
        return times

    def _begin(self, step: int, wall_s: float) -> None:
        if math.isfinite(wall_s):
            self._start_s = wall_s - step * self._period_s

    def _resume(self, step: int, event_s: float, wall_s: float) -> None:
        """Count from a resume, unless robot time is ahead of the clock, as in a fast simulation."""
        resumed_s = event_s
        if math.isfinite(wall_s):
            resumed_s = wall_s
        if resumed_s > self._time_s(step):
            self._start_s = resumed_s
            self._start_step = step

    def _time_s(self, step: int) -> float:
        return self._start_s + (step - self._start_step) * self._period_s


def publish_times(rows: NDArray[Any], log_times: Sequence[int]) -> list[int]:
    """Return the wall clocks of rows, shape (n_rows,), in nanoseconds since 1970; the log time of one without."""
    times = []
    for wall_s, log_time in zip(rows["unix_s"].tolist(), log_times, strict=True):
        if math.isfinite(wall_s):
            times.append(_in_ns(wall_s))
        else:
            times.append(log_time)
    return times


def _in_ns(seconds: float) -> int:
    """Return seconds since 1970 in nanoseconds, rounded to a microsecond: a float has no more."""
    return round(seconds * 1e6) * _TICK_NS


def resumes_of(events: Sequence[Mapping[str, Any]]) -> list[Resume]:
    """Return the resumes among the events of a run; those that are damaged are left out."""
    resumes = []
    for event in events:
        if event.get("event") == "resumed":
            try:
                step = int(event["step"]) + int(event.get("redone", 0))
                resumes.append(Resume(step, datetime.fromisoformat(event["time"])))
            except (LookupError, TypeError, ValueError):
                continue
    return resumes


# ---- schemas ---------------------------------------------------------------------------------------------------------


def _object(title: str, properties: Schema) -> Schema:
    return {"type": "object", "title": title, "properties": properties}


def _numbers(title: str, names: Sequence[str]) -> Schema:
    return _object(title, {name: {"type": "number"} for name in names})


TIME_SCHEMA = _object("time", {"sec": {"type": "integer"}, "nsec": {"type": "integer"}})
POSE_SCHEMA = _object(
    "foxglove.PoseInFrame",
    {
        "timestamp": TIME_SCHEMA,
        "frame_id": {"type": "string"},
        "pose": _object(
            "foxglove.Pose",
            {
                "position": _numbers("foxglove.Vector3", "xyz"),
                "orientation": _numbers("foxglove.Quaternion", "xyzw"),
            },
        ),
    },
)
LOG_SCHEMA = _object(
    "foxglove.Log",
    {
        "timestamp": TIME_SCHEMA,
        "level": {"type": "integer"},
        "message": {"type": "string"},
        "name": {"type": "string"},
        "file": {"type": "string"},
        "line": {"type": "integer"},
    },
)


def _timestamp(time_ns: int) -> dict[str, int]:
    return {"sec": time_ns // SECOND_NS, "nsec": time_ns % SECOND_NS}


def _pose(time_ns: int, x_m: float, y_m: float, heading_rad: float) -> dict[str, Any]:
    orientation = {
        "x": 0.0,
        "y": 0.0,
        "z": math.sin(heading_rad / 2),
        "w": math.cos(heading_rad / 2),
    }
    return {
        "timestamp": _timestamp(time_ns),
        "frame_id": FRAME,
        "pose": {"position": {"x": x_m, "y": y_m, "z": 0.0}, "orientation": orientation},
    }


# ---- messages --------------------------------------------------------------------------------------------------------


class _Stamp(NamedTuple):
    """The times of a message, in nanoseconds since 1970."""

    log_ns: int
    publish_ns: int


class _Topic(NamedTuple):
    """A topic with a message per row: its channel's id, and its fields with the column of each."""

    channel: int
    fields: dict[str, int]


class LifeWriter:
    """Writes the rows of a recording, in their order, as messages.

    Args:
        writer: Of `mcap.writer`, started.
        header: Of the recording.
        times: Computes the rows' times.
        events: Of the run, in their order.
        prediction_names: Names of the questions whose predictions are written.
    """

    def __init__(
        self,
        writer: Any,
        header: Mapping[str, Any],
        times: RowTimes,
        events: Sequence[Mapping[str, Any]],
        prediction_names: Sequence[str] = (),
    ) -> None:
        self._writer = writer
        self._header = header
        self._times = times
        self._events = list(events)
        self._prediction_names = prediction_names
        self._pose_channel = 0
        self._run_columns: list[str] = []
        self._topics: list[_Topic] = []
        self._shifts: list[Shift | None] = []
        self._newest_ns = 0
        self._event_channel = self._register(EVENTS_TOPIC, LOG_SCHEMA)

    def write(self, part: Stream, predictions: Floats | None = None) -> None:
        """Write the next part of the recording; `predictions` at its rows, if any, are (n_rows, n_questions)."""
        rows = part.rows
        if not self._topics:
            self._declare(rows)
        columns = [rows[name].tolist() for name in self._run_columns]
        for i, shift in enumerate(self._shifts):
            readings = rows["observation"][:, i]
            if shift is not None:
                readings = shift.values(readings)
            columns.append(readings.tolist())
        if predictions is not None:
            columns += predictions.T.astype(np.float32).tolist()
        poses = rows["pose"].tolist()
        log_times = self._times.log_times(rows)
        published = publish_times(rows, log_times)
        for i, values in enumerate(zip(*columns, strict=True)):
            stamp = _Stamp(log_times[i], published[i])
            self._write_events(int(rows["step"][i]), stamp.log_ns)
            for topic in self._topics:
                message = {name: _finite(values[k]) for name, k in topic.fields.items()}
                self._send(topic.channel, message, stamp)
            if all(map(math.isfinite, poses[i])):
                self._send_pose(poses[i], stamp)
            self._newest_ns = stamp.log_ns

    def finish(self) -> None:
        """Write the events after the last row."""
        self._write_events(None, self._newest_ns)

    def _declare(self, rows: NDArray[Any]) -> None:
        """Register the topics that have a message per row."""
        stored = rows.dtype.names or ()
        self._run_columns = [
            name for name, field in FIELDS.items() if name in stored and not field.shape
        ]
        places = [TopicField(ROWS_TOPIC, name) for name in self._run_columns]
        places += channel_fields(self._header, rows["observation"].shape[1])
        shifts = shifts_of(self._header)
        self._shifts = [None] * rows["observation"].shape[1]
        if shifts:
            self._shifts = [shifts.get(channel["name"]) for channel in self._header["channels"]]
        places += prediction_fields(self._prediction_names)
        fields_by_topic: dict[str, dict[str, int]] = {}
        for column, place in enumerate(places):
            fields_by_topic.setdefault(place.topic, {})[place.field] = column
        for topic, fields in fields_by_topic.items():
            title = "horde." + topic.strip("/").replace("/", ".")
            channel = self._register(topic, _numbers(title, list(fields)))
            self._topics.append(_Topic(channel, fields))

    def _register(self, topic: str, schema: Schema) -> int:
        schema_id = self._writer.register_schema(
            schema["title"], "jsonschema", json.dumps(schema).encode()
        )
        channel: int = self._writer.register_channel(topic, "json", schema_id)
        return channel

    def _send(self, channel: int, message: Schema, stamp: _Stamp) -> None:
        self._writer.add_message(
            channel,
            log_time=stamp.log_ns,
            publish_time=stamp.publish_ns,
            data=json.dumps(message, allow_nan=False).encode(),
        )

    def _send_pose(self, pose: Sequence[float], stamp: _Stamp) -> None:
        if not self._pose_channel:
            self._pose_channel = self._register(POSE_TOPIC, POSE_SCHEMA)
        x_m, y_m, heading_rad = pose
        message = _pose(stamp.log_ns, x_m, y_m, heading_rad)
        self._send(self._pose_channel, message, stamp)

    def _write_events(self, step: int | None, log_ns: int) -> None:
        """Write the events before a step; all when None."""
        while self._events and (step is None or int(self._events[0].get("step") or 0) <= step):
            event = self._events.pop(0)
            level = _WARNING_LEVEL
            if event.get("event") in _USUAL_EVENTS:
                level = _INFO_LEVEL
            words = [str(event[key]) for key in ("event", "why", "cause") if event.get(key)]
            message = {
                "timestamp": _timestamp(log_ns),
                "level": level,
                "message": ": ".join(words),
                "name": "horde",
                "file": "events.jsonl",
                "line": 0,
            }
            self._send(self._event_channel, message, _Stamp(log_ns, log_ns))


def _finite(value: float) -> float | None:
    if math.isfinite(value):
        return value
    return None


# ---- columns ---------------------------------------------------------------------------------------------------------


def columns_toml(header: Mapping[str, Any], *, is_reward_known: bool) -> str:
    """Return the columns file with which `horde learn --data` learns from the export of a recording with channels."""
    columns = Columns.of_header(header)
    places = channel_fields(header, len(columns.channel))
    lines = [f"rows = {toml_value(ROWS_TOPIC)}"]
    keys = columns.keys
    described = ("period_s", "actions", "tests_excursions", "tile_layout")
    lines += toml_lines({key: keys[key] for key in described if keys[key] is not None})
    names = list(READ_FIELDS)
    if not header.get("b_known", True):
        names.remove("b")
    if not is_reward_known:
        names.remove("reward")
    lines += [f"{name} = {_source(TopicField(ROWS_TOPIC, name))}" for name in names]
    for channel, place in zip(columns.channel, places, strict=True):
        facts = {
            "topic": place.topic,
            "field": place.field,
            **channel_facts(channel),
        }
        del facts["column"]
        lines += ["", "[[channel]]"]
        lines += toml_lines(facts)
    return "\n".join(lines) + "\n"


def _source(place: TopicField) -> str:
    return f"{{ topic = {toml_value(place.topic)}, field = {toml_value(place.field)} }}"
