"""Read the folder of a running run (`live/`) or a finished one, for the live page and for TensorBoard."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.life.flags import are_followed
from horde_agent.life.status import CURVE_COLUMNS, FOLDER, SURPRISE, checksum_of
from horde_agent.questions import QuestionColumns
from horde_agent.record import FIELDS, Flag, Phase, Stream, read, snapshots
from horde_agent.record.kinds import LIVE, Content
from horde_agent.record.segments import record_files
from horde_agent.refusals import BadInput, did_you_mean, imported
from horde_agent.runs.config import refuse_no_run, time_name
from horde_agent.runs.storage.files import finite, read_curve, read_json, read_lines
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.question_table import QuestionLine, read_questions
from horde_agent.runs.storage.stop_request import stop_options
from horde_agent.scoring.bands import BandFacts, bands_of
from horde_agent.scoring.excursion_table import ExcursionTable
from horde_agent.scoring.nmsre import deviation_of
from horde_agent.scoring.returns import (
    NEGLIGIBLE_SHARE,
    are_read_next,
    measured_along,
    persistent,
    unmeasured,
)

MOST_POINTS = 2000  # of a curve
SHOWN = 600  # rows: a minute at 10 Hz
_MOST_ROWS = 36_000  # read for the returns of one question
MOST_FAMILIES = 40  # that the map names
_MOST_BYTES_OF_TESTS = 1 << 26  # from which bands are computed: of more they would take seconds
SILENT_S = 10.0  # without a change of now.json, after which a run is shown as silent, or as dead

Table = dict[str, Any]


class RunReader:
    """Reads a run's folder; facts and curves are cached until their files change. Raises BadInput without a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.live = folder / FOLDER
        self._run = RunFolder(folder)
        refuse_no_run(folder)
        if not self._run.config.is_file():
            raise BadInput(
                f"{folder} contains no run (no config.toml); name a folder made by `horde learn`"
            )
        if not self.facts()["channels"]:
            raise BadInput(
                f"{folder} contains neither a live feed nor a recording yet; try again in a few seconds"
            )

    # ---- facts -------------------------------------------------------------------------------------------------------

    def facts(self) -> Table:
        """Return channels, actions, questions and the picture; of a run without a feed, those in its recording."""
        path = self.live / "facts.json"
        if path.is_file():
            return _facts(path, path.stat().st_mtime_ns)
        header = self.record(1).header
        return {
            "channels": header.get("channels", []),
            "actions": header.get("actions", []),
            "period_s": header.get("period_s", 1.0),
            "total_steps": None,
            "time_name": time_name(self._run.settings(), float(header.get("period_s", 1.0))),
            "picture": {},
            "questions": [{"name": question.name} for question in self._questions()],
        }

    def record(self, n: int = SHOWN) -> Stream:
        """Return the last `n` rows of the recording, none without one; raise BadInput if it cannot be read."""
        try:
            # The newest row may be half written; `_returns` counts on no row across a gap.
            return read(self._run.life, newest=n, on_fault=lambda _: None)
        except FileNotFoundError:
            return Stream(np.zeros(0, [("step", "<i8")]))
        except (OSError, ValueError) as error:
            raise BadInput(f"{self._run.life} cannot be read: {error}") from error

    # ---- current values ----------------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        """Return whether the tables are newer than `live/`: a resumed run has both, and its robot is open."""
        if self._run.stop.is_file():
            return False
        return (
            self._run.summary.is_file()
            and self._json(self.live / "now.json").get("state") != "living"
        )

    def status(self, silent_s: float = SILENT_S) -> Table:
        """Return state, counts and times; those of a finished run are read from its summary.

        After `silent_s` without a change of now.json a run is "silent"; or "dead", if no process
        has locked its folder. `can_stop` says whether there is something to stop: a robot that is
        open, or a physical one after its process died.
        """
        status = self._json(self.live / "now.json")
        is_open = self._run.stop.is_file()
        # Of an earlier life: this one cannot write its feed
        if is_open and status.get("state") == "over":
            status["state"] = "living"
        if self._is_over():
            summary = self._json(self._run.summary)
            keys = (
                "deadlines_missed",
                "gaps",
                "crc_errors",
                "cycle_ms",
                "learning_steps",
                "n_excursions",
            )
            status |= {
                key: summary.get(key)
                for key in (*keys, "median_nmsre", "mean_nmsre", "share_nmsre_below_1")
            }
            status |= {
                "state": "over",
                "step": summary.get("steps"),
                "t": summary.get("robot_time_s"),
            }
            status["n_diverged"] = len(summary.get("diverged") or [])
            details = self._json(self._run.details)
            status |= {key: details.get(key) for key in ("n_discarded", "discarded_by")}
        elif status.get("state") == "living":
            since_s = time.time() - (self.live / "now.json").stat().st_mtime
            if since_s >= silent_s:
                status |= {
                    "state": "silent" if self._run.is_locked() else "dead",
                    "silent_s": since_s,
                }
        disk = shutil.disk_usage(self.folder)
        status["disk"] = {"free": disk.free, "total": disk.total, "run": _size(self.folder)}
        is_ended = status.get("state") in ("over", "dead")
        is_physical = bool(stop_options(self._run))
        status["can_stop"] = (is_open and not is_ended) or (
            is_physical and status.get("state") != "over"
        )
        status["snapshots"] = sum(1 for _ in snapshots.found(self._run.checkpoint))
        if self._run.summary.is_file():
            status["tables_at"] = self._run.summary.stat().st_mtime
        else:
            status["tables_at"] = None
        return {"state": "unknown", "step": 0, **status}

    def rows(self) -> list[Table]:
        """Return the newest rows, oldest first, each as a dict of its fields, and `values`; None is not a number."""
        return [finite(_row(row)) for row in self.record().rows]

    # ---- demons ------------------------------------------------------------------------------------------------------

    def measures(self) -> NDArray[np.float64]:
        """Return NMSRE, MSPBE and divergence (0, 1) of each demon, shape (3, n_demons); NaN if unknown."""
        n = len(self.facts()["questions"])
        table = []
        if self._is_over():
            table = self._questions()
        if len(table) == n and n:
            rows = [(line.nmsre, line.mspbe_scalar, float(line.has_diverged)) for line in table]
            return np.array(rows).T
        demons = self._demons()
        if not demons:
            return np.full((3, n), np.nan)
        return np.array([demons[key] for key in ("nmsre", "mspbe", "diverged")], dtype=np.float64)

    def _questions(self) -> list[QuestionLine]:
        """Return the lines of questions.csv; none without it, or if it is damaged."""
        try:
            return read_questions(self._run.questions)
        except (OSError, ValueError, LookupError):
            return []

    def _demons(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of demons.npz if they belong to the questions of facts.json; else an empty table."""
        try:
            with np.load(self.live / "demons.npz") as file:
                demons = dict(file)
        except (OSError, ValueError, zipfile.BadZipFile):
            return {}
        names = [question["name"] for question in self.facts()["questions"]]
        if demons.get("checksum") == checksum_of(names):
            return demons
        return {}

    def demons(self, find: str, sort: str, descending: bool, offset: int, limit: int) -> Table:
        """Return a part of the table of demons with each word of `find` in their names, sorted; NaN last."""
        columns = {"name": None, "nmsre": 0, "mspbe": 1, "diverged": 2}
        if sort not in columns:
            raise BadInput(
                f"the demons cannot be sorted by {sort[:60]!r}; choose {', '.join(columns)}"
            )
        names = [q["name"] for q in self.facts()["questions"]]
        measures = self.measures()
        words = find.lower().split()
        matches = [i for i, name in enumerate(names) if all(word in name.lower() for word in words)]
        if sort == "name":
            matches.sort(key=lambda i: names[i], reverse=descending)
        else:
            values = measures[columns[sort] or 0]
            if descending:
                values = -values
            matches.sort(key=lambda i: values[i] if math.isfinite(values[i]) else math.inf)
        return self._demons_at(matches[offset : offset + limit], len(matches))

    def families(self) -> list[Table]:
        """Return name and number of questions of each family, in their order; none if there are too many to show.

        A family are consecutive questions about one policy and time scale.
        """
        groups = [_group_of(question) for question in self.facts()["questions"]]
        families = [
            {"name": name, "n": len(list(of_family))}
            for name, of_family in itertools.groupby(groups)
        ]
        if not 1 < len(families) <= MOST_FAMILIES:
            return []
        return families

    def at(self, i: int) -> Table:
        """Return the row of demon `i` alone; raise BadInput if there is none."""
        n_questions = len(self.facts()["questions"])
        if not 0 <= i < n_questions:
            raise BadInput(
                f"there is no question number {i}; the last of {n_questions} is {n_questions - 1}"
            )
        return self._demons_at([i], 1)

    def _demons_at(self, places: list[int], n_found: int) -> Table:
        questions = self.facts()["questions"]
        measures = self.measures()
        rows = [{"i": i, "name": questions[i]["name"], **_measures(measures[:, i])} for i in places]
        return {"n": len(questions), "n_found": n_found, "rows": finite(rows)}

    def demon(self, name: str) -> Table:
        """Return a demon's predictions over time, and the measured returns (None if not known).

        Of a question with another one about the variance of its return, also the learned standard
        deviation, `deviation`. Of one that was tested often enough, also `half_width` of the band that holds
        95 % of its returns, and the share `in_band` of those that had a band.
        """
        questions = self.facts()["questions"]
        names = [q["name"] for q in questions]
        if name not in names:
            advice = did_you_mean(name[:200], names) or "; /api/demons lists them"
            raise BadInput(f"there is no question {name[:60]!r}{advice}")
        i = names.index(name)
        channel = questions[i].get("channel")
        unit = ""
        if channel is not None:
            unit = str(self.facts()["channels"][channel].get("unit", ""))
        facts = {"name": name, **_measures(self.measures()[:, i]), "unit": unit, **self._band(i)}
        traced = self._traced(name)
        demons = self._demons()
        if demons and len(demons["steps"]) and not (traced["t"] and self._is_over()):
            predictions = demons["predictions"].astype(np.float64)
            columns = {
                "t": demons["t"],
                "prediction": predictions[:, i],
                "return": self._returns(questions[i], demons["steps"]),
            }
            variance = questions[i].get("variance")
            if variance is not None:
                columns["deviation"] = deviation_of(predictions[:, variance])
            traced = {key: column.tolist() for key, column in columns.items()}
        shown: Table = finite(facts | traced)
        return shown

    def _band(self, i: int) -> Table:
        """Return half the width of demon `i`'s band, and the share of returns within its bands; {} without one."""
        bands = BandFacts.of_details(self._json(self._run.details))
        path = self._run.excursions
        files = record_files(path)
        if bands is None and files:
            statuses = [file.stat() for file in files]
            if sum(status.st_size for status in statuses) > _MOST_BYTES_OF_TESTS:
                return {}
            bands = _bands(path, statuses[-1].st_mtime_ns)
        if bands is None or i >= len(bands.n_tested) or not bands.n_tested[i]:
            return {}
        half_width = float(bands.half_width[i])
        return {
            "half_width": half_width,
            "in_band": float(bands.n_inside[i] / bands.n_tested[i]),
            "n_bands": int(bands.n_tested[i]),
        }

    def surprise(self) -> Table:
        """Return the evidence over time and the alarms, as surprise.json has them; {} if none is watched for."""
        if self._is_over() and self._run.surprise.is_file():
            return self._json(self._run.surprise)
        return self._json(self.live / SURPRISE)

    def _traced(self, name: str) -> Table:
        """Return the question's columns of traces.csv, if it is one of the questions there."""
        try:
            traces = read_lines(self._run.traces)
        except (OSError, ValueError):
            traces = []
        rows = [row for row in traces if row["question"] == name]
        if not rows:
            return {
                "t": [],
                "prediction": [],
                "return": [],
                "why": "this run has no predictions of this question",
            }
        columns = {"t": "t_s", "prediction": "prediction", "return": "actual"}
        if rows[0].get("deviation"):
            columns["deviation"] = "deviation"
        return {key: [_number(row[column]) for row in rows] for key, column in columns.items()}

    def _returns(self, question: Table, steps: NDArray[Any]) -> NDArray[np.float64]:
        """Return the return from each step, sum gamma^k c_{t+1+k}, shape (n_steps,).

        It is NaN unless the robot took the actions of the question's policy, without a gap, until
        at most `NEGLIGIBLE_SHARE` of it lies beyond.
        """
        newest = max(self._json(self.live / "now.json").get("step", 0), steps.max())
        rows = self.record(int(min(newest - steps.min() + SHOWN, _MOST_ROWS))).rows
        gamma = question.get("gamma")
        channel = question.get("channel")
        action = question.get("action")
        returns = np.full(len(steps), np.nan)
        if (
            gamma is None
            or channel is None
            or not len(rows)
            or (action is None and not question.get("is_behaviour"))
        ):
            return returns
        if action is not None:
            followed = rows["action"] == action
        else:
            followed = rows["phase"] == Phase.BEHAVE
        followed &= are_followed(rows["flags"]) & (np.diff(rows["step"], append=-1) == 1)
        readings = rows["observation"][:, channel].astype(np.float64)
        # The rest is that of the mean reading, so that no zero point changes the picture
        followed = are_read_next(followed, readings[:, None])[:, 0]
        is_read = np.isfinite(readings)
        if not is_read.any():
            return returns
        beyond = persistent(np.full(len(rows), readings[is_read].mean()), gamma)
        ends = unmeasured((rows["flags"] & Flag.TERMINATED) > 0, beyond)
        measured = measured_along(readings, gamma, followed, ends)
        all_returns = measured.terms + measured.beyond(0)
        all_returns[measured.share > NEGLIGIBLE_SHARE] = np.nan
        is_there = np.isin(steps, rows["step"])
        # If a step has two rows, before and after a reset, the action belongs to the second.
        returns[is_there] = all_returns[
            np.searchsorted(rows["step"], steps[is_there], side="right") - 1
        ]
        return returns

    # ---- curves ------------------------------------------------------------------------------------------------------

    def curves(self) -> Table:
        """Return median and mean NMSRE and mean MSPBE over the steps, about MOST_POINTS of each."""
        tables = (
            ("learning_curve.csv", "median_nmsre"),
            ("learning_curve.csv", "mean_nmsre"),
            ("mspbe_curve.csv", "mspbe_scalar_mean"),
        )
        curves = [self._curve(*table) for table in tables]
        if not self._is_over() or not any(steps for steps, _ in curves):
            live = f"{FOLDER}/curve.csv"
            curves = [
                self._curve(live, name, CURVE_COLUMNS)
                for name in ("median_nmsre", "mean_nmsre", "mean_mspbe")
            ]
        return dict(zip(("median", "nmsre", "mspbe"), curves, strict=True))

    def _curve(
        self, name: str, column: str, head: tuple[str, ...] | None = None
    ) -> list[list[float | None]]:
        """Return steps and values of a curve; [[], []] without its file."""
        path = self.folder / name
        if path.is_file():
            return _read_curve(path, path.stat().st_mtime_ns, column, head)
        return [[], []]

    @staticmethod
    def _json(path: Path) -> Table:
        try:
            return read_json(path)
        except (OSError, ValueError):
            return {}


@lru_cache(maxsize=1)
def _bands(path: Path, changed: int) -> BandFacts | None:  # noqa: ARG001
    """Return the bands after the tests of a file; None if it cannot be read."""
    try:
        return bands_of(ExcursionTable.read(path)).facts()
    except (OSError, ValueError, LookupError):
        return None


@lru_cache(maxsize=2)
def _facts(path: Path, changed: int) -> Table:  # noqa: ARG001  read again after the file has changed
    facts: Table = json.loads(path.read_text(encoding="utf-8"))
    return LIVE.read(LIVE.version_of(facts, path), Content(facts)).head


@lru_cache(maxsize=6)
def _read_curve(
    path: Path,
    changed: int,  # noqa: ARG001
    column: str,
    head: tuple[str, ...] | None,
) -> list[list[float | None]]:
    curve: list[list[float | None]] = finite(read_curve(path, ("step", column), MOST_POINTS, head))
    return curve


def _row(row: Any) -> Table:
    """Return the fields of a row by name, with the readings as `values`, and no pose if it is unknown."""
    fields: Table = {name: row[name].tolist() for name in FIELDS if name in row.dtype.names}
    readings = fields.pop("observation")
    fields["values"] = [round(reading, 5) for reading in readings]
    if not np.isfinite(fields["pose"]).all():
        fields["pose"] = None
    return fields


def _measures(values: NDArray[np.float64]) -> Table:
    nmsre, mspbe, diverged = values.tolist()
    return {"nmsre": nmsre, "mspbe": mspbe, "diverged": diverged == 1.0}


def _group_of(question: Table) -> str:
    """Return the name of a question's policy and time scale, from its entry in facts.json."""
    gamma = question["gamma"]
    if gamma is None:
        gamma = math.nan
    columns = QuestionColumns(
        family=question["family"], policy=question["policy"], gamma=gamma, channel=""
    )
    return columns.group


def _number(text: str | None) -> float:
    try:
        return float(text) if text else math.nan
    except ValueError:
        return math.nan


def _size(folder: Path) -> int:
    """Return the bytes of the files in a folder, two levels deep."""
    total = 0
    for pattern in ("*", "*/*"):
        for path in folder.glob(pattern):
            try:
                if path.is_file():
                    total += path.stat().st_size
            except OSError:
                continue
    return total


# ---- TensorBoard -----------------------------------------------------------------------------------------------------

_COUNTS = ("deadlines_missed", "gaps", "crc_errors", "n_excursions", "learning_steps")
_NO_TENSORBOARD = (
    "TensorBoard's scalars need the extra `tensorboard`: pip install -e '.[tensorboard]'"
)
_WRITTEN = "written.json"
_FOLLOW_EVERY_S = 2.0


Scalar = tuple[str, int, float]
"""Tag, step and value of one point."""


class ScalarSink:
    """Write scalars to a folder for TensorBoard, each step of each scalar once; raise BadInput if it is not installed.

    `began_s` is in seconds since 1970.
    """

    def __init__(self, folder: Path, began_s: float, period_s: float) -> None:
        self._event = imported("tensorboard.compat.proto.event_pb2", _NO_TENSORBOARD).Event
        self._summary = imported("tensorboard.compat.proto.summary_pb2", _NO_TENSORBOARD).Summary
        self._open = imported(
            "tensorboard.summary.writer.event_file_writer", _NO_TENSORBOARD
        ).EventFileWriter
        # Opened at the first new point: an export without any leaves no empty file
        self._writer: Any = None
        self._began_s = began_s
        self._period_s = period_s
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / _WRITTEN
        self._written: dict[str, int] = (
            json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        )

    def write(self, scalars: list[Scalar]) -> None:
        """Write and flush the points after the last written step."""
        new = [
            (t, k, v) for t, k, v in scalars if k > self._written.get(t, -1) and math.isfinite(v)
        ]
        if not new:
            return
        if self._writer is None:
            self._writer = self._open(str(self._folder))
        for tag, step, value in new:
            summary = self._summary(value=[self._summary.Value(tag=tag, simple_value=value)])
            at_s = self._began_s + step * self._period_s
            self._writer.add_event(self._event(wall_time=at_s, step=step, summary=summary))
            self._written[tag] = max(step, self._written.get(tag, -1))
        self._writer.flush()
        unfinished = self._folder / f".{_WRITTEN}"
        unfinished.write_text(json.dumps(self._written), encoding="utf-8")
        unfinished.replace(self._folder / _WRITTEN)

    def close(self) -> None:
        """Close the file, if one was opened."""
        if self._writer is not None:
            self._writer.close()


def export_scalars(
    run: Path,
    out: Path | None = None,
    *,
    follow: bool = False,
    say: Callable[[str], None] = lambda _line: None,
) -> Path:
    """Write a run's scalars to `out` or its `export/tensorboard`, and return the folder, for `tensorboard --logdir`.

    With `follow`, continue until the run is over or its process has ended; `say` is called with a
    line at first. Raise BadInput if the run does not exist or is empty, or tensorboard is not
    installed.
    """
    reader = RunReader(run)
    place = out or RunFolder(run).exported / "tensorboard"
    began_s = RunFolder(run).events.read().began.timestamp()
    if not began_s:
        say("the time at which the run began is unknown: times are counted from 1970-01-01")
    sink = ScalarSink(place, began_s, float(reader.facts()["period_s"]))
    try:
        if follow:
            say(f"following {run}: tensorboard --logdir {place}")
        while True:
            status = reader.status()
            sink.write([*_scalars(reader, status)])
            if not follow or status["state"] in ("over", "dead"):
                return place
            time.sleep(_FOLLOW_EVERY_S)
    finally:
        sink.close()


def _scalars(reader: RunReader, status: dict[str, Any]) -> Iterator[Scalar]:
    curves = reader.curves()
    for name in ("nmsre", "mspbe"):
        for step, value in zip(*curves[name], strict=True):
            if step is not None and value is not None:
                yield (f"{name}/mean", int(step), value)
    step = status.get("step") or 0
    if step <= 0:
        return
    nmsre, _, diverged = reader.measures()
    scored = nmsre[np.isfinite(nmsre) & (diverged != 1.0)]
    if scored.size:
        yield ("nmsre/median", step, float(np.median(scored)))
        yield ("nmsre/share_below_1", step, float((scored < 1.0).mean()))
    yield ("demons/diverged", step, float(status.get("n_diverged") or 0))
    for name, milliseconds in (status.get("cycle_ms") or {}).items():
        if milliseconds is not None and name != "max":
            yield (f"life/cycle_ms_{name}", step, float(milliseconds))
    reward = status.get("reward")
    if isinstance(reward, int | float):
        yield ("life/reward", step, float(reward))
    for name in _COUNTS:
        count = status.get(name)
        if isinstance(count, int | float):
            yield (f"life/{name.removeprefix('n_')}", step, float(count))
