"""Snapshots of a life: its state is copied between two steps and written to disk by a background thread.

In a simulation the copy is made as soon as a snapshot is due. A robot in real time does not wait in
mid-drive: there the copy is made before a drive to the centre or to the dock, across which nothing
is learned. A snapshot is written after the rows of the record that it depends on, so that the two
always fit together.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from horde_agent.cluster import ShardLost
from horde_agent.life.life import Life, LifeHooks
from horde_agent.life.observers import Sampler
from horde_agent.life.stream import LearnedStream
from horde_agent.processes import own_version, return_free_memory
from horde_agent.record import Recorder, RecordLost, snapshots
from horde_agent.record.kinds import NewerFormat
from horde_agent.runs.config import Keep, seconds
from horde_agent.runs.storage.resume import Resumption, read_snapshot
from horde_agent.runs.storage.retention import Retention
from horde_agent.runs.storage.run import Run
from horde_agent.runs.storage.versions import versions
from horde_agent.saving import State, nested

# For a drive, in real time; after that the copy is made anyway and a step is late
LONGEST_WAIT_S = 60.0
_LATE = (
    "at step %d the snapshot started %.0f s ago is not written yet: the next one waits for it; choose a longer "
    "--snapshot-every"
)
_LARGE_BYTES = 500_000_000  # of a snapshot that takes seconds to write

_log = logging.getLogger(__name__)


class _Copy(NamedTuple):
    """What a snapshot is written from."""

    step: int
    state: State
    facts: dict[str, Any]


class SnapshotWriter(LifeHooks):
    """Write snapshots of a life to the run's folder, every `snapshot_every` of its settings and at the end.

    Args:
        run: The run.
        sampler: Samples of its MSPBE.
        resumed: Where it starts.
        recorder: Records its rows; None if they were recorded before.

    Attributes:
        n_rows: Recorded rows at the latest copy; whoever learns from rows recorded before counts
            them here.
        changes: Questions added and removed since the start of the run.
        lived_before_s: Duration of the run before this process, in seconds.
        source_state: Returns what further rows of a stream depend on, in JSON types; None for other
            sources.
        clock_state: Returns what a later process compares its clocks with, in JSON types; None if
            nobody looks at them.
        header: Of the recording, if the rows were recorded before; None if it is not known.
        pending: Adds and removes questions and returns the changes; called after the replay of a
            resumed run.
    """

    def __init__(
        self,
        run: Run,
        sampler: Sampler,
        resumed: Resumption,
        recorder: Recorder | None = None,
    ) -> None:
        self._run = run
        self._recorder = recorder
        self._sampler = sampler
        self._every_s = seconds(run.config.snapshot_every)
        self._retention: Retention | None = None
        if recorder is not None and run.config.keep is not None:
            keep = Keep.of(run.config.keep)
            self._retention = Retention(run.folder, keep, is_archived=run.config.archive)
        # At the start: an upgrade may follow
        self._version = own_version()
        self._versions = versions()
        self._asked = run.folder.digests()  # likewise: somebody may edit the files meanwhile
        self.n_rows = resumed.n_rows
        self.changes = list(resumed.changes)
        self.lived_before_s = resumed.lived_s
        self._n_resumes = resumed.number
        self.source_state: Callable[[], dict[str, Any]] | None = None
        self.clock_state: Callable[[], dict[str, Any]] | None = None
        self.header: dict[str, Any] | None = None
        self.pending: Callable[[], list[dict[str, Any]]] | None = None
        self._began = time.monotonic()
        self._taken_at = self._began
        self._thread: threading.Thread | None = None
        self._has_said_late = False
        self._before_cut: _Copy | None = None
        self._last: _Copy | None = None

    def start(self) -> None:
        """Start the clock."""
        self._began = self._taken_at = time.monotonic()

    def before_step(self, life: Life) -> None:
        """Take a snapshot if one is due, the previous one is written, and the robot can wait or it is overdue."""
        assert self._recorder is not None, "a life is recorded"
        if self.pending is not None and not self._recorder.is_redoing:
            change = self.pending
            self.pending = None
            self.add_changes(change())
            self.take_snapshot(life)
            return
        if life.may_be_cut and life.body.is_restorable:
            self._join()
            self._before_cut = self._copied(life)
        if not self._is_due(life.steps):
            return
        is_overdue = self._age_s >= (self._every_s or 0.0) + LONGEST_WAIT_S
        if not self._run.config.is_real_time or life.is_before_drive or is_overdue:
            self.take_snapshot(life)

    def add_changes(self, changes: Sequence[dict[str, Any]]) -> None:
        """Note questions that were added and removed, and files that were written for it."""
        self.changes += changes
        self._asked = self._run.folder.digests() | self._asked

    def take_if_due(self, learner: LearnedStream) -> None:
        """Take a snapshot if one is due and the previous one is written."""
        if self._is_due(learner.steps):
            self.take_snapshot(learner)

    @property
    def _age_s(self) -> float:
        return time.monotonic() - self._taken_at

    def _is_due(self, step: int) -> bool:
        """Return whether a snapshot is due and can be written; warn once if the previous one is not written yet."""
        if self._every_s is None or self._age_s < self._every_s:
            return False
        if self._thread is not None and self._thread.is_alive():
            if not self._has_said_late:
                _log.warning(_LATE, step, self._age_s)
            self._has_said_late = True
            return False
        return self._recorder is None or not self._recorder.is_paused

    def take_snapshot(self, learner: LearnedStream) -> None:
        """Copy the state now, and write it in a background thread."""
        self._taken_at = time.monotonic()
        self._join()
        self._thread = threading.Thread(
            target=self._write, args=(self._copied(learner),), name="keeping", daemon=True
        )
        self._thread.start()

    def at_end(self, life: Life) -> None:
        """Copy the final state, or that before an interrupted drive, which a resumed run repeats as a whole."""
        if life.is_cut and life.body.is_restorable:
            self._last = self._before_cut
        else:
            self.take_last(life)
        self._before_cut = None

    def take_last(self, learner: LearnedStream) -> None:
        """Copy the final state, for `finish`."""
        self._last = self._copied(learner)

    def finish(self) -> None:
        """Write the final snapshot, after the robot was stopped."""
        last = self._last
        self._last = None
        self._join()
        if last is not None:
            n_bytes = sum(array.nbytes for array in last.state.values())
            if n_bytes > _LARGE_BYTES:
                _log.warning("writing a snapshot of %.1f GB; the robot is stopped", n_bytes / 1e9)
            self._write(last)

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _copied(self, learner: LearnedStream) -> _Copy:
        observers = {"sampler": self._sampler.state(), "watch": self._run.watch.state()}
        state = nested(life=learner.state(), **observers)
        n_lost = 0
        if self._recorder is not None:
            n_lost = self._recorder.n_lost
            self.n_rows = self._recorder.n_rows - n_lost
        facts = {
            "n_rows": self.n_rows,
            "n_lost": n_lost,
            "steps": self._run.config.steps,
            "keep": self._run.config.keep,
            "archive": self._run.config.archive,
            "wall_s": self.lived_before_s + time.monotonic() - self._began,
            "changes": list(self.changes),
            "version": self._version,
            "versions": self._versions,
            "asked": dict(self._asked),
            "n_resumes": self._n_resumes,
            "excursions": learner.student.errors.table.counts(),
        }
        header = self.header
        if self._recorder is not None:
            header = self._recorder.header
        if header is not None:  # for `repair`, and for tilings that are added later
            facts["recording"] = header
        if self.source_state is not None:
            facts["source"] = self.source_state()
        if self.clock_state is not None:
            facts["clocks"] = self.clock_state()
        if self._run.shards is not None:
            facts["entry"] = self._run.shards.at
        return _Copy(learner.steps, state, facts)

    def _write(self, copy: _Copy) -> None:
        """Write a snapshot, after the record up to it; if the disk is full, log a warning and continue."""
        step = copy.step
        facts = copy.facts
        folder = self._run.folder
        shards = self._run.shards
        try:
            recorder = self._recorder
            if recorder is not None:
                recorder.sync()
            folder.sync_excursions()
            if recorder is not None and (recorder.is_paused or recorder.n_lost != facts["n_lost"]):
                _log.warning("no snapshot at step %d: the record is paused", step)
                return
            if shards is not None:
                shards.wait_for_snapshot(facts["entry"])
            path = snapshots.write(folder.checkpoint, step, copy.state, facts)
            snapshots.prune(path, partial(read_snapshot, folder))
            if shards is not None:
                shards.drop_snapshots(_entry(snapshots.found(folder.checkpoint)))
            folder.events.append({"step": step, "event": "snapshot", "row": facts["n_rows"]})
            if self._retention is not None:
                self._retention.apply(step)
            return_free_memory()
        except (RecordLost, OSError, ShardLost) as error:
            why: str | None
            if isinstance(error, ShardLost):
                why = error.why
            else:
                why = error.strerror
            _log.warning(
                "the snapshot at step %d cannot be written (%s); the previous one is kept",
                step,
                why,
            )


def _entry(paths: Iterable[Path]) -> int:
    """Return the stream entry of the oldest of these snapshots of shards; 0 if that of one is unknown."""
    entries = []
    for path in paths:
        try:
            facts = snapshots.read_facts(path)
        except (snapshots.SnapshotDamaged, NewerFormat):
            return 0
        entries.append(int(facts.get("entry", 0)))
    return min(entries, default=0)
