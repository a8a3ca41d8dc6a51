"""Export TensorBoard scalars of a finished or a running run; a running one is only read.

nmsre/mean, nmsre/median, nmsre/share_below_1, mspbe/mean, demons/set_aside; and every two seconds of a running run:
life/cycle_ms_p50, cycle_ms_p99, deadlines_missed, gaps, crc_errors, excursions, learning_steps. Steps are those of the
run, times those of the robot's clock since its start. `written.json` beside the event files stores the last step of
each scalar, so a second export, or one after a resume, adds only new points.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent.runs.config import BadInput
from horde_agent.runs.keeping.export import began
from horde_agent.runs.keeping.folder import RunFolder
from horde_agent.watch.reader import RunReader

FOLDER, WRITTEN = "tensorboard", "written.json"
LOOK_EVERY_S = 2.0
_COUNTS = ("deadlines_missed", "gaps", "crc_errors", "n_excursions", "learning_steps")
_MISSING = "TensorBoard's scalars need the extra `tensorboard`: pip install -e '.[tensorboard]'"


class Scalar(NamedTuple):
    """One point of one curve."""

    tag: str
    step: int
    value: float


class ScalarSink:
    """Write scalars to a folder for TensorBoard, each step of each scalar once.

    Args:
        folder: For the event files; created if it is missing.
        began_s: Start of the run, in seconds since 1970.
        period_s: Duration of a step, in seconds.

    Raises:
        BadInput: If tensorboard is not installed.
    """

    def __init__(self, folder: Path, began_s: float, period_s: float) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            raise BadInput(_MISSING) from None
        self._event, self._summary, self._open = Event, Summary, EventFileWriter
        self._writer: Any = None  # opened at the first new point: an export without any leaves no empty file
        self._began_s, self._period_s, self._folder = began_s, period_s, folder
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / WRITTEN
        self._written: dict[str, int] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}

    def write(self, scalars: list[Scalar]) -> int:
        """Write and flush the points after the last written step; return their number."""
        new = [s for s in scalars if s.step > self._written.get(s.tag, -1) and math.isfinite(s.value)]
        if not new:
            return 0
        if self._writer is None:
            self._writer = self._open(str(self._folder))
        for tag, step, value in new:
            summary = self._summary(value=[self._summary.Value(tag=tag, simple_value=value)])
            at_s = self._began_s + step * self._period_s
            self._writer.add_event(self._event(wall_time=at_s, step=step, summary=summary))
            self._written[tag] = max(step, self._written.get(tag, -1))
        self._writer.flush()
        unfinished = self._folder / f".{WRITTEN}"
        unfinished.write_text(json.dumps(self._written), encoding="utf-8")
        unfinished.replace(self._folder / WRITTEN)
        return len(new)

    def close(self) -> None:
        """Close the file. Closing twice does nothing."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def export_scalars(
    run: Path,
    out: Path | None = None,
    *,
    follow: bool = False,
    say: Callable[[str], None] = lambda _line: None,
    wait: Callable[[float], None] = time.sleep,
) -> Path:
    """Write a run's scalars and return their folder, for `tensorboard --logdir`.

    Args:
        run: The run's folder.
        out: Where to write; `export/tensorboard` in the run's folder when None.
        follow: Continue until the run is over or its process has ended.
        say: Called with a line when following begins.
        wait: Sleeps for a number of seconds.

    Raises:
        BadInput: If the run does not exist or is empty, or tensorboard is not installed.
    """
    reader = RunReader(run)
    place = out or RunFolder(run).exported / FOLDER
    sink = ScalarSink(place, began(RunFolder(run)).timestamp(), float(reader.facts()["period_s"]))
    try:
        if follow:
            say(f"following {run}: tensorboard --logdir {place}")
        while True:
            status = reader.status()
            sink.write([*_curves(reader), *_now(reader, status)])
            if not follow or status["state"] in ("over", "dead"):
                return place
            wait(LOOK_EVERY_S)
    finally:
        sink.close()


def _curves(reader: RunReader) -> Iterator[Scalar]:
    """Yield the points of the run's curves."""
    curves = reader.curves()
    for name in ("nmsre", "mspbe"):
        for step, value in zip(*curves[name], strict=True):
            if step is not None and value is not None:
                yield Scalar(f"{name}/mean", int(step), value)


def _now(reader: RunReader, status: dict[str, Any]) -> Iterator[Scalar]:
    """Yield the current values: measures of all demons, counts, times."""
    step = status.get("step") or 0
    if step <= 0:
        return
    nmsre, _, set_aside = reader.measures()
    scored = nmsre[np.isfinite(nmsre) & (set_aside != 1.0)]
    if scored.size:
        yield Scalar("nmsre/median", step, float(np.median(scored)))
        yield Scalar("nmsre/share_below_1", step, float((scored < 1.0).mean()))
    yield Scalar("demons/set_aside", step, float(status.get("n_diverged") or 0))
    for name, milliseconds in (status.get("cycle_ms") or {}).items():
        if milliseconds is not None and name != "max":
            yield Scalar(f"life/cycle_ms_{name}", step, float(milliseconds))
    for name in _COUNTS:
        if isinstance(count := status.get(name), int | float):
            yield Scalar(f"life/{name.removeprefix('n_')}", step, float(count))
