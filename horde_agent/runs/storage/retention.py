"""Retention: files of rows that `--keep` leaves out are removed after a snapshot, or moved to Parquet tables before.

Whole files go, the oldest first, and none that a resume from one of the kept snapshots needs. So a
kill leaves fewer files of the same record, and the next snapshot removes the others. Files of excursions before
the oldest row are folded: tables and curves stay the same to the bit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from horde_agent.record import FORMAT, Stream, snapshots
from horde_agent.record.kinds import NewerFormat
from horde_agent.record.segments import (
    read_header,
    read_pieces,
    record_files,
    record_numbers,
    started_files,
    sync_folder,
)
from horde_agent.runs.config import Keep
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.parquet import columns_with_channels, write_table
from horde_agent.runs.storage.staging import publish
from horde_agent.scoring.folding import fold, foldable

_log = logging.getLogger(__name__)


class Retention:
    """Removes the oldest files of a run's record.

    Args:
        folder: The run's folder.
        keep: What stays.
        is_archived: Whether Parquet tables of them are written to `archive/` first.
    """

    def __init__(self, folder: RunFolder, keep: Keep, *, is_archived: bool) -> None:
        self._folder = folder
        self._keep = keep
        self._is_archived = is_archived

    def apply(self, step: int) -> None:
        """Remove what may go after the snapshot at a step was written; log what cannot be removed."""
        oldest_row: int | None = None
        try:
            for file in self._removable(step):
                if self._is_archived:
                    self._archive(file)
                row = record_numbers(file, FORMAT).stop
                file.unlink()
                oldest_row = row
            if oldest_row is not None:
                sync_folder(self._folder.log)
        except (OSError, ValueError) as error:
            _log.warning("the oldest rows stay: %s", error)
        if oldest_row is not None:
            self._folder.events.append({"step": step, "event": "removed", "row": oldest_row})
        try:
            self._fold_excursions()
        except (OSError, ValueError) as error:
            _log.warning("the oldest excursions stay: %s", error)

    def _fold_excursions(self) -> None:
        """Fold the excursions before the oldest row, except those that a resume may take back, and a block of them."""
        path = self._folder.excursions
        if len(record_files(path)) < 2:
            return
        n_excursions = min(
            (facts.get("excursions", {}).get("n", 0) for facts in self._facts()), default=0
        )
        oldest_step = _first_step(started_files(self._folder.life)[0]) or 0
        old = foldable(path, n_excursions, oldest_step)
        if old is not None:
            fold(path, old)

    def _removable(self, step: int) -> Iterator[Path]:
        """Yield the files that may go at a step, the oldest first."""
        files = started_files(self._folder.life)
        needed_row = self._first_needed_row()
        n_bytes = sum(file.stat().st_size for file in files)
        for file, next_file in pairwise(files):
            if record_numbers(file, FORMAT).stop >= needed_row:
                return
            is_out = False
            if self._keep.n_bytes is not None:
                is_out = n_bytes > self._keep.n_bytes
            if self._keep.duration_s is not None:
                is_out = _age_s(next_file, step) >= self._keep.duration_s
            if not is_out:
                return
            n_bytes -= file.stat().st_size
            yield file

    def _first_needed_row(self) -> int:
        """Return the number of the last row before the oldest snapshot: a resume may write it again; 0 if unknown."""
        return min((int(facts["n_rows"]) for facts in self._facts()), default=0)

    def _facts(self) -> Iterator[dict[str, Any]]:
        """Yield the facts of the intact snapshots."""
        for path in snapshots.found(self._folder.checkpoint):
            try:
                yield snapshots.read_facts(path)
            except (snapshots.SnapshotDamaged, NewerFormat):
                continue

    def _archive(self, file: Path) -> None:
        """Write the sound rows of a file to a Parquet table."""
        place = self._folder.archive
        place.mkdir(exist_ok=True)
        table = place / f"{file.stem}.parquet"
        part = table.with_name(f".{table.name}.part")
        pieces = list(read_pieces(file, FORMAT))
        rows = np.concatenate([piece.records[piece.is_sound] for piece in pieces])
        write_table(part, columns_with_channels(Stream(rows, pieces[0].header)))
        publish(part, table)


def _age_s(file: Path, step: int) -> float:
    """Return the robot time from the first sound row of a file to a step, in seconds; 0 without such a row."""
    first = _first_step(file)
    if first is None:
        return 0.0
    return (step - first) * float(read_header(file, FORMAT).get("period_s") or 0.1)


def _first_step(file: Path) -> int | None:
    """Return the step of the first sound row of a file; None without one in its first megabytes."""
    segment = next(read_pieces(file, FORMAT))
    sound = segment.records[segment.is_sound]
    if not len(sound):
        return None
    return int(sound["step"][0])
