"""Export a recording as Parquet tables or MCAP, or the transitions that a run learned from as a data set.

Parquet: a table of one row per step, zstd, in folders `day=2026-11-22`; DuckDB, polars and pandas read the whole folder
as one table. The day is computed from the start of the run and the step. Columns are those of `record`, and one for
each channel, by its name. `NAME-events.parquet` has a row per event; with `NAME-columns.toml`, `horde learn --data`
learns from the table. This requires pyarrow (`pip install -e '.[log]'`).

MCAP: one channel `life` of JSON messages, with its schema; the log time is in nanoseconds since the start of the run.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from horde_agent.life.student import predict_along
from horde_agent.record import FORMAT, read_in_parts
from horde_agent.record.segments import Segment, read_header, read_segment, record_files, started_files
from horde_agent.runs.config import BadInput, imported
from horde_agent.runs.data.columns import Columns
from horde_agent.runs.data.files import NEEDS_PYARROW
from horde_agent.runs.data.lerobot import write_lerobot
from horde_agent.runs.data.minari import write_minari
from horde_agent.runs.data.tables import Predict, episodes_of
from horde_agent.runs.jobs.recorded import recorded_facts
from horde_agent.runs.jobs.relearn import one_horde, restored_run
from horde_agent.runs.keeping.folder import RunFolder, write_whole
from horde_agent.runs.keeping.resume import recorded_life, refuse_part

FORMATS = ("parquet", "mcap", "minari", "lerobot")
DAY_S = 86_400.0
_COLUMNS = ("step", "t", "action", "b", "phase", "flags", "policy", "robot")
_LARGEST_BYTES = 1_000_000_000  # of predictions


def export(run: Path, to: str, out: Path | None = None) -> Path:
    """Export the recording of a run to one of `FORMATS`, and return the path.

    `out` is a folder, or a file for MCAP; in `export` of the run's folder when None. Raise BadInput if the format, the
    recording or a package is missing, the data set exists, or nothing was learned; ValueError if it cannot be read.
    """
    folder = RunFolder(run)
    if to not in FORMATS:
        raise BadInput(f"unknown format {to!r}: choose {', '.join(FORMATS)}, tensorboard")
    refuse_part(folder)
    if to in ("minari", "lerobot"):
        return _to_data_set(folder, to, out or folder.exported / to)
    if not folder.life.is_file():
        raise BadInput(f"{run} contains no recording: log/{folder.life.name} is missing")
    place = out or folder.exported
    return _to_parquet(folder, place) if to == "parquet" else _to_mcap(folder, place)


def _columns_of(segment: Segment) -> dict[str, NDArray[Any]]:
    """Return the intact rows of a file as columns by name, each of shape (n_rows,)."""
    rows = segment.records[segment.is_sound]
    names = [channel["name"] for channel in segment.header.get("channels", [])]
    n_inputs = rows["observation"].shape[1]
    names = names if len(names) == n_inputs else [f"obs_{i}" for i in range(n_inputs)]
    pose = {name: rows["pose"][:, i] for i, name in enumerate(("x_m", "y_m", "heading_rad"))}
    columns = {name: rows[name] for name in _COLUMNS if name in (rows.dtype.names or ())}
    return {**columns, **pose, **{name: rows["observation"][:, i] for i, name in enumerate(names)}}


def _to_parquet(folder: RunFolder, out: Path) -> Path:
    """Write each file of the recording into the folders of its days, unless a newer export of it exists."""
    pa, pq = (imported(name, NEEDS_PYARROW) for name in ("pyarrow", "pyarrow.parquet"))
    out.mkdir(parents=True, exist_ok=True)
    for left in out.glob(f"day=*/.{folder.life.stem}*"):  # by a process that was killed
        left.unlink(missing_ok=True)
    header: dict[str, Any] = {}
    for path in record_files(folder.life):
        there = list(out.glob(f"day=*/{path.stem}.parquet"))
        header = header or read_header(path, FORMAT)
        if not there or min(file.stat().st_mtime for file in there) < path.stat().st_mtime:
            _write_days(read_segment(path, FORMAT), out, folder.began())
    if folder.events.is_file():
        events = [json.loads(line) for line in folder.events.read_text(encoding="utf-8").splitlines()]
        names = ("step", "event", "row", "time", "why", "cause")
        columns = {name: [event.get(name) for event in events] for name in names}
        pq.write_table(pa.table(columns), out.parent / f"{out.name}-events.parquet")
    if "channels" not in header:  # recorded by a `Recorder` of the user's own
        return out
    described = Columns.of_header(header, **{name: name for name in _COLUMNS if name not in ("t", "robot")})
    write_whole(out.parent / f"{out.name}-columns.toml", described.to_toml())
    return out


def _write_days(segment: Segment, out: Path, began: datetime) -> None:
    """Write a file of the recording as one table per day, each atomically."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns, period_s = _columns_of(segment), float(segment.header.get("period_s", 0.1))
    days = ((began.timestamp() + columns["step"].astype(np.int64) * period_s) // DAY_S).astype(np.int64)
    for day in np.unique(days).tolist():
        table = pa.table({name: np.ascontiguousarray(values[days == day]) for name, values in columns.items()})
        into = out / f"day={datetime.fromtimestamp(day * DAY_S, UTC):%Y-%m-%d}"
        into.mkdir(parents=True, exist_ok=True)
        unfinished = into / f".{segment.path.stem}-{os.getpid()}"
        pq.write_table(table, unfinished, compression="zstd")
        unfinished.replace(into / f"{segment.path.stem}.parquet")


def _to_mcap(folder: RunFolder, out: Path) -> Path:
    mcap = imported("mcap.writer", "MCAP needs the package mcap: pip install mcap")
    path = out if out.suffix == ".mcap" else out / "life.mcap"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        writer, channel = mcap.Writer(file), None
        writer.start(profile="", library="horde-gvf")
        for segment in (read_segment(file, FORMAT) for file in started_files(folder.life)):
            columns = {name: values.tolist() for name, values in _columns_of(segment).items()}
            period_s = float(segment.header.get("period_s", 0.1))
            if channel is None:
                properties = {name: {"type": "number"} for name in columns}
                schema = json.dumps({"type": "object", "title": "life", "properties": properties}).encode()
                schema_id = writer.register_schema("life", "jsonschema", schema)
                channel = writer.register_channel("life", "json", schema_id)
            for row in zip(*columns.values(), strict=True):
                values = dict(zip(columns, row, strict=True))
                at = round(values["step"] * period_s * 1e9)
                message = {name: value if np.isfinite(value) else None for name, value in values.items()}
                writer.add_message(channel, log_time=at, publish_time=at, data=json.dumps(message).encode())
        writer.finish()
    return path


def _to_data_set(folder: RunFolder, to: str, place: Path) -> Path:
    """Write the transitions that a run learned from as a Minari or LeRobot data set.

    A Minari data set has the predictions of the newest snapshot's weights in `infos`, up to 1 GB of them. It is named
    horde/RUN-v0, and lies below the folder, for MINARI_DATASETS_PATH.
    """
    name, console = re.sub(r"[^\w-]", "-", folder.path.resolve().name), Console(stderr=True)
    config = one_horde(folder)
    header, n_rows, _ = recorded_facts(folder)
    header = {key: header[key] for key in header if key not in ("dtype", "offset", "first", "crc", "format", "version")}
    header.setdefault("b_known", config.backend != "replay" or recorded_life(folder, config) is not None)
    parts = read_in_parts(folder.life)
    if to == "lerobot":
        write_lerobot(place, name, header, episodes_of(parts))
        return place
    predict: Predict | None = None
    with tempfile.TemporaryDirectory() as elsewhere:
        try:
            run = restored_run(folder, Path(elsewhere), config, header, console)
            if run is not None and n_rows * run.horde.n_demons * 4 <= _LARGEST_BYTES:
                horde, interface = run.horde, run.interface
                predict = lambda stream: predict_along(stream, horde, interface)  # noqa: E731
        except BadInput as error:
            console.print(str(error), highlight=False, soft_wrap=True)
        if predict is None:
            console.print("predictions are left out: there is no snapshot, or they would exceed 1 GB")
        write_minari(place, f"horde/{name}-v0", header, episodes_of(parts, predict))
    return place
