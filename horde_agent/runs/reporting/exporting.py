"""Export a recording as Parquet tables or MCAP, or the transitions that a run learned from as a data set.

Every format is written to a staging folder and renamed when it is complete (`keeping.staging`).

Parquet: a table of one row per step, zstd, in folders `day=2026-11-22`; DuckDB, polars and pandas
read the whole folder as one table. The day is computed from the start of the run and the step.
Columns are those of `record`, and one for each channel, by its name, in the unit of the table that
was learned from (`origin` and `scale` of its columns file). `NAME-events.parquet` has a
row per event; with `NAME-columns.toml`, `horde learn --data` learns from the table.
`NAME-predictions.parquet`, on request, has the predictions at each row. This needs pyarrow (`pip
install -e '.[log]'`).

MCAP: `NAME.mcap` (`mcap_file`), and `NAME-columns.toml` for `horde learn --data`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from horde_agent.formats.arrays import NEEDS_PYARROW
from horde_agent.formats.columns import Columns
from horde_agent.formats.format import UNFINISHED
from horde_agent.formats.lerobot import write_lerobot
from horde_agent.formats.minari import write_minari
from horde_agent.formats.tables import Predict, episodes_of
from horde_agent.life.learner import PredictorAlong, predict_along
from horde_agent.record import (
    FORMAT,
    READ_FIELDS,
    OnFault,
    Stream,
    header_of,
    read_in_parts,
)
from horde_agent.record.segments import KEYS_OF_FILE, read_header, record_files, started_files
from horde_agent.refusals import BadInput, imported
from horde_agent.runs.reporting.mcap_file import LifeWriter, RowTimes, columns_toml, resumes_of
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.parquet import SOURCE, columns_with_channels, write_table
from horde_agent.runs.storage.resume import open_trained
from horde_agent.runs.storage.run import Run
from horde_agent.runs.storage.staging import publish, remove_leftover, staging_folder

FORMATS = ("parquet", "mcap", "minari", "lerobot")
DAY_S = 86_400.0
_EVENT_COLUMNS = ("step", "event", "row", "time", "why", "cause")
_LARGEST_BYTES = 1_000_000_000  # of predictions
_MINARI_BYTES = 40_000  # overhead of HDF5 for each episode: 24,500 were measured
PREDICTED_ROWS = 4_096  # in memory at a time


def export(run: Path, to: str, out: Path | None = None, *, predictions: bool = False) -> Path:
    """Export the recording of a run to one of `FORMATS`, and return the path.

    Damaged rows are left out and reported on standard error; the next row follows a gap.

    Args:
        run: The run's folder.
        to: The format.
        out: A folder, or a file for MCAP; in `export` of the run's folder when None.
        predictions: With Parquet and MCAP: also write the predictions at each row, by the newest snapshot's
            weights.

    Raises:
        BadInput: If the format, the recording or a package is missing, the data set exists, or
            nothing was learned.
        ValueError: If the recording cannot be read.
        OSError: If the export cannot be written; nothing is left under its name.
    """
    folder = RunFolder(run)
    if to not in FORMATS:
        raise BadInput(f"unknown format {to!r}: choose {', '.join(FORMATS)}, tensorboard")
    folder.refuse_part()
    if predictions:
        refuse_predictions(to)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if to in ("minari", "lerobot"):
        return _to_data_set(folder, to, out or folder.exported / to, console)
    if not record_files(folder.life):
        raise BadInput(f"{run} contains no recording: log/{folder.life.name} is missing")
    place = out or folder.exported
    if to == "mcap":
        return _to_mcap(folder, place, console, predictions=predictions)
    return _to_parquet(folder, place, console, predictions=predictions)


def refuse_predictions(to: str) -> None:
    """Raise BadInput if a format holds no predictions of the newest snapshot's weights."""
    if to not in ("parquet", "mcap"):
        raise BadInput(
            f"--predictions requires --to parquet or mcap, not {to}; a Minari data set has predictions in any case"
        )


def _reporter(console: Console) -> OnFault:
    return lambda fault: console.print(f"{fault}.", markup=False)


# ---- Parquet ---------------------------------------------------------------------------------------------------------


def _to_parquet(folder: RunFolder, out: Path, console: Console, *, predictions: bool) -> Path:
    """Write each file of the recording into the folders of its days, unless an export of the same file exists."""
    imported("pyarrow.parquet", NEEDS_PYARROW)
    header = header_of(folder.life)
    if out.exists() and not out.is_dir():
        raise BadInput(f"--out {out} is a file; name a folder for the Parquet tables")
    with staging_folder(out) as stage:
        tables = stage / "tables"
        tables.mkdir()
        days = _Days(folder, out, console)
        written = days.write(tables)
        beside = []
        if folder.events.path.is_file():
            beside.append(stage / f"{out.name}-events.parquet")
            events = days.events.events
            columns = {name: [event.get(name) for event in events] for name in _EVENT_COLUMNS}
            write_table(beside[-1], columns)
        if "channels" in header:  # else it was recorded by a `Recorder` of the user's own
            names = {name: name for name in READ_FIELDS}
            if not _is_reward_known(folder.life):
                del names["reward"]
            beside.append(stage / f"{out.name}-columns.toml")
            beside[-1].write_text(Columns.of_header(header, **names).to_toml(), encoding="utf-8")
        if predictions:
            beside.append(stage / f"{out.name}-predictions.parquet")
            _write_predictions(folder, beside[-1], console)
        for path in beside:
            publish(path, out.parent / path.name)
        if out.exists():
            _move_tables(tables, out, written)
        else:
            publish(tables, out)
    return out


class _Days:
    """Writes files of a recording as one table per day."""

    def __init__(self, folder: RunFolder, out: Path, console: Console) -> None:
        self._folder = folder
        self._out = out
        self._report = _reporter(console)
        self.events = folder.events.read()
        if self.events.damaged:
            self._report(self.events.fault)
        self._began = self.events.began
        if 1 in self.events.damaged:
            self._report(
                "the time at which the run began is unknown: days are counted from 1970-01-01"
            )

    def write(self, tables: Path) -> list[str]:
        """Write the tables of new or changed files below `tables`; return the names of these files, without suffix."""
        files = started_files(self._folder.life)
        sources = self._sources(files)
        to_write = [file for file in files if not self._is_written(file, sources[file])]
        if not to_write:
            return []
        # The first row follows a gap if the file before it ends with a damaged row.
        first = files[max(files.index(to_write[0]) - 1, 0)]
        first_row = int(read_header(first, FORMAT).get("first", 0))
        for part in read_in_parts(self._folder.life, first_row, on_fault=self._report):
            assert part.path is not None, "a part is read from one file"
            if part.path in to_write:
                self._write_days(part, tables, part.path.stem, sources[part.path])
        return [file.stem for file in to_write]

    def _sources(self, files: Sequence[Path]) -> dict[Path, str]:
        """Return a text for each file that changes with the file, the one before it, and the start of the run."""
        sources = {}
        previous = ""
        for file in files:
            state = file.stat()
            current = f"{file.name} {state.st_size} {state.st_mtime_ns}"
            sources[file] = f"{previous} {current} {self._began.isoformat()}"
            previous = current
        return sources

    def _is_written(self, file: Path, source: str) -> bool:
        """Return whether all tables of a file exist, from the same state of the file."""
        import pyarrow.parquet as pq

        tables = list(self._out.glob(f"day=*/{file.stem}.parquet"))
        recorded = set()
        for table in tables:
            try:
                recorded.add((pq.read_schema(table).metadata or {}).get(SOURCE, b"").decode())
            except (OSError, ValueError):  # a damaged table is written again
                return False
        return recorded == {f"{source} {len(tables)}"}

    def _write_days(self, part: Stream, tables: Path, stem: str, source: str) -> None:
        """Write the rows of one file as one table per day."""
        columns = columns_with_channels(part)
        period_s = float(part.header.get("period_s", 0.1))
        t_s = self._began.timestamp() + columns["step"].astype(np.int64) * period_s
        days = (t_s // DAY_S).astype(np.int64)
        all_days = np.unique(days).tolist()
        for day in all_days:
            of_day = {
                name: np.ascontiguousarray(values[days == day]) for name, values in columns.items()
            }
            day_folder = tables / f"day={datetime.fromtimestamp(day * DAY_S, UTC):%Y-%m-%d}"
            day_folder.mkdir(exist_ok=True)
            write_table(day_folder / f"{stem}.parquet", of_day, f"{source} {len(all_days)}")


def _trained(folder: RunFolder, console: Console) -> Run:
    """Return a run with the weights of its newest snapshot; raise BadInput if it has no usable one."""
    run = open_trained(folder, console)
    if run is None:
        raise BadInput(
            f"--predictions needs the weights of {folder.path}, which has no usable snapshot; leave it out"
        )
    return run


def _pieces(folder: RunFolder, on_fault: OnFault) -> Iterator[Stream]:
    """Yield the recording in pieces of which each has its predictions in memory."""
    for part in read_in_parts(folder.life, on_fault=on_fault):
        for first in range(0, len(part), PREDICTED_ROWS):
            yield part[first : first + PREDICTED_ROWS]


def _write_predictions(folder: RunFolder, path: Path, console: Console) -> None:
    """Write step and predictions, float32, a column per question, for each row of the recording."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    run = _trained(folder, console)
    predict = PredictorAlong(run.horde, run.interface)
    schema = pa.schema([("step", pa.int64()), *((name, pa.float32()) for name in run.horde.names)])
    options: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
    with pq.ParquetWriter(path, schema, **options) as writer:
        # Faults are reported with the tables
        for piece in _pieces(folder, on_fault=lambda _: None):
            columns = [piece.rows["step"].copy(), *predict(piece).T.astype(np.float32)]
            arrays = [pa.array(column) for column in columns]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _move_tables(tables: Path, out: Path, written: Sequence[str]) -> None:
    """Replace the tables of the `written` files in an existing folder.

    These are several renames: until the last one, a file `UNFINISHED` keeps `horde learn --data`
    from a part of them.
    """
    staged = sorted(tables.glob("day=*/*.parquet"))
    new = {path.relative_to(tables) for path in staged}
    rewritten = [path for path in out.glob("day=*/*.parquet") if path.stem in written]
    outdated = [path for path in rewritten if path.relative_to(out) not in new]
    mark = out / UNFINISHED
    if staged or outdated:
        mark.touch()
    for path in staged:
        publish(path, out / path.relative_to(tables))
    for path in outdated:
        path.unlink()
    mark.unlink(missing_ok=True)


# ---- MCAP ------------------------------------------------------------------------------------------------------------


def _to_mcap(folder: RunFolder, out: Path, console: Console, *, predictions: bool) -> Path:
    """Write a recording as one MCAP file, and its columns file beside it."""
    mcap = imported("mcap.writer", "MCAP needs the package mcap: pip install mcap")
    path = out
    if out.suffix != ".mcap":
        path = out / "life.mcap"
    header = header_of(folder.life)
    columns = path.with_name(f"{path.stem}-columns.toml")
    with staging_folder(path) as stage:
        trained = None
        if predictions:
            trained = _trained(folder, console)
        staged = stage / path.name
        with staged.open("wb") as file:
            writer = mcap.Writer(file)
            writer.start(profile="", library="horde-gvf")
            _write_life(writer, folder, header, console, trained)
            writer.finish()
        if "channels" in header:  # else it was recorded by a `Recorder` of the user's own
            staged_columns = stage / columns.name
            text = columns_toml(header, is_reward_known=_is_reward_known(folder.life))
            staged_columns.write_text(text, encoding="utf-8")
            publish(staged_columns, columns)
        publish(staged, path)
    return path


def _write_life(
    writer: Any,
    folder: RunFolder,
    header: Mapping[str, Any],
    console: Console,
    trained: Run | None,
) -> None:
    """Write a recording in parts to an MCAP writer, with the predictions of a trained run if it is given."""
    report = _reporter(console)
    recorded = folder.events.read()
    events = recorded.events
    if recorded.damaged:
        report(recorded.fault)
    times = RowTimes(recorded.began, resumes_of(events), float(header.get("period_s", 0.1)))
    names: Sequence[str] = ()
    predict: Predict | None = None
    if trained is not None:
        names = trained.horde.names
        predict = PredictorAlong(trained.horde, trained.interface)
    life = LifeWriter(writer, header, times, events, names)
    for piece in _pieces(folder, report):
        predictions = None
        if predict is not None:
            predictions = predict(piece)
        life.write(piece, predictions)
    life.finish()
    if times.n_unknown:
        console.print(
            f"{times.n_unknown:,} rows have no wall clock: their times are counted from the start of the run and from "
            "its resumes.",
            markup=False,
        )
        if 1 in recorded.damaged:
            report("the time at which the run began is unknown: times are counted from 1970-01-01")


# ---- data sets -------------------------------------------------------------------------------------------------------


def _to_data_set(folder: RunFolder, to: str, place: Path, console: Console) -> Path:
    """Write the transitions that a run learned from as a Minari or LeRobot data set.

    A Minari data set has the predictions of the newest snapshot's weights in `infos`, up to 1 GB of
    them. It is named horde/RUN-v0, and lies below the folder, for MINARI_DATASETS_PATH.
    """
    name = re.sub(r"[^\w-]", "-", folder.path.resolve().name)
    folder.sound_settings()  # raises BadInput: predictions would be of other settings
    extent = folder.extent()
    header = {key: value for key, value in extent.header.items() if key not in KEYS_OF_FILE}
    header.setdefault("b_known", True)
    header["reward_known"] = _is_reward_known(folder.life)
    parts = read_in_parts(folder.life, on_fault=_reporter(console))
    if to == "lerobot":
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            remove_leftover(place)
            raise BadInput(f"{place} is not empty; name a new folder")
        with staging_folder(place) as stage:
            write_lerobot(stage / "data_set", name, header, episodes_of(parts))
            publish(stage / "data_set", place)
        return place

    namespace = "horde"
    data_set = f"{name}-v0"
    target = place / namespace / data_set
    if target.exists():
        remove_leftover(place)
        raise BadInput(
            f"the Minari data set {namespace}/{data_set} exists in {place}; choose another --out"
        )
    with staging_folder(place) as stage:
        run = _trained_run(folder, extent.n_rows, console)
        predict: Predict | None = None
        n_demons = 0
        if run is None:
            console.print(
                "predictions are left out: there is no snapshot, or they would exceed 1 GB"
            )
        else:
            horde = run.horde
            interface = run.interface
            n_demons = horde.n_demons
            predict = lambda stream: predict_along(stream, horde, interface)  # noqa: E731
        _reserve(stage, _minari_bytes(folder, n_demons))
        write_minari(stage, f"{namespace}/{data_set}", header, episodes_of(parts, predict))
        _publish_minari(stage / namespace, target)
    return place


def _trained_run(folder: RunFolder, n_rows: int, console: Console) -> Run | None:
    """Return a run with the weights of the newest snapshot; None without one, or if predictions are too many."""
    try:
        run = open_trained(folder, console)
    except BadInput as error:
        console.print(str(error), markup=False)
        return None
    if run is None or n_rows * run.horde.n_demons * 4 > _LARGEST_BYTES:
        return None
    return run


def _is_reward_known(recording: Path) -> bool:
    """Return whether a row of a recording has a reward: data may have none."""
    parts = read_in_parts(recording, on_fault=lambda _: None)
    return any(np.isfinite(part.rows["reward"]).any() for part in parts)


def _minari_bytes(folder: RunFolder, n_demons: int) -> int:
    """Return an upper bound of the size of a Minari data set with the predictions of `n_demons` demons."""
    n_bytes = _MINARI_BYTES
    for episode in episodes_of(read_in_parts(folder.life, on_fault=lambda _: None)):
        arrays = episode.observation.nbytes + episode.step.nbytes + episode.b.nbytes
        n_rows = len(episode.step)
        n_bytes += _MINARI_BYTES + int(1.1 * (arrays + 32 * n_rows + 4 * n_demons * n_rows))
    return n_bytes


def _reserve(stage: Path, n_bytes: int) -> None:
    """Raise OSError if the disk has no `n_bytes` left: HDF5 ends the process when the disk is full."""
    if not hasattr(os, "posix_fallocate"):  # Windows
        return
    path = stage / "reserved"
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, n_bytes)
    path.unlink()


def _publish_minari(staged: Path, target: Path) -> None:
    """Rename a staged data set; the files of its namespace are moved first if they are missing."""
    for path in sorted(staged.iterdir()):
        if path.is_file() and not (target.parent / path.name).exists():
            publish(path, target.parent / path.name)
    publish(staged / target.name, target)
