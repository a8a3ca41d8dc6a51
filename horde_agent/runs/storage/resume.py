"""Resume an interrupted run from its newest intact snapshot and its recording.

A simulated robot is restored: the run repeats the steps since the snapshot with the same random
numbers, bit for bit, and compares the observations with the recording. Any other body, a real or an
emulated robot or an environment of Gymnasium, cannot be set back: the recorded rows since the
snapshot are learned from, and the run continues after a gap, with other random numbers than before,
so that it repeats no observation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rich.console import Console

from horde_agent import questions as families
from horde_agent.cluster.sharded import check_snapshots
from horde_agent.gvf import GVF, named
from horde_agent.interface import Interface
from horde_agent.life.learner import StreamLearner
from horde_agent.record import FORMAT as LIFE
from horde_agent.record import snapshots
from horde_agent.record.segments import (
    read_header,
    record_files,
    record_numbers,
    started_files,
)
from horde_agent.refusals import BadInput
from horde_agent.runs.config import LearnConfig
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.run import Run, open_run
from horde_agent.runs.storage.versions import differences
from horde_agent.saving import State, inner, untext
from horde_agent.scoring.excursion_table import FORMAT as EXCURSIONS
from horde_agent.scoring.excursion_table import expected_files

TESTS = "tests"
"""Key of a change from which on the behaviour is tested."""
OF_HORDE = "life/student/horde"  # state of the demons, in a snapshot
_SHARDED = "life/student/horde/facts/sharded"  # what a `ShardedHorde` stores, in a snapshot
_N_PARTS = "life/student/errors/_n_parts"  # number of files of excursions, in a snapshot


class Resumption(NamedTuple):
    """Where a run starts: at a snapshot, or, without one, at its first row.

    Attributes:
        state: Arrays of the snapshot; empty without one.
        number: Number of the resume, from 1; 0 for a new run.
        notes: Messages for the user.
        step: Its step.
        n_rows: Recorded rows at the snapshot.
        changes: Questions added and removed before it.
        lived_s: Duration of the run until then, in seconds.
        steps: As requested then.
        shards: Their number; None for a single Horde.
        source: What further rows of a stream depend on; None for other sources.
        clocks: What the clocks showed, as of `ClockEvents.reading`; None if nobody looked.
        header: What the recording said of itself and of the body then; None if it is not known.
    """

    state: State
    number: int = 0
    notes: Sequence[str] = ()
    step: int = 0
    n_rows: int = 0
    changes: Sequence[dict[str, Any]] = ()
    lived_s: float = 0.0
    steps: int | None = None
    shards: str | None = None
    source: dict[str, Any] | None = None
    clocks: dict[str, Any] | None = None
    header: dict[str, Any] | None = None


NEW = Resumption(state={})
"""The start of a new run."""


def resume_settings(folder: RunFolder, steps: int | None) -> LearnConfig:
    """Return the settings of a run to resume, as of its latest process; raise BadInput if it has no recording."""
    config = folder.sound_settings()
    if not record_files(folder.life):
        raise BadInput(
            f"{folder.path} contains no run to resume: log/{folder.life.name} is missing"
        )
    if folder.has_recorded_first and steps is not None:
        raise BadInput(
            f"--steps {steps}: {folder.path} learns from the rows in its log, whose number cannot change"
        )
    if steps is None:
        steps = config.steps
    # An earlier resume may have changed what stays of the record
    facts = folder.snapshot_facts()
    keep = facts.get("keep", config.keep)
    archive = facts.get("archive", config.archive)
    return replace(config, steps=steps, keep=keep, archive=archive)


def resumption(folder: RunFolder) -> Resumption:
    """Return the newest intact snapshot whose rows are recorded.

    Raises:
        BadInput: If its format, the questions or the settings are others.
    """
    notes: list[str] = []
    events = folder.events.read()
    if events.damaged:
        notes.append(f"{events.fault}; each counts as a resume.")
    if not folder.events.path.is_file():
        notes.append(f"{events.name} is missing: resumes after the snapshot are not counted.")
    n_recorded = _n_recorded(folder)
    for path in snapshots.found(folder.checkpoint):
        try:
            snapshot = read_snapshot(folder, path)
        except snapshots.SnapshotDamaged as error:
            notes.append(f"{error}; using the previous snapshot.")
            continue
        if snapshot.facts["n_rows"] > n_recorded:
            notes.append(
                f"The snapshot {path.name} follows {snapshot.facts['n_rows']:,} rows, but {folder.life.name} has "
                f"{n_recorded:,}; using the previous snapshot: a simulation repeats the missing rows, of any other "
                "robot they are lost."
            )
            continue
        present = folder.digests()
        for name, digest in snapshot.facts["asked"].items():
            if present.get(name) != digest:
                raise BadInput(
                    f"{folder.path / name} has changed since {path.name} was written; restore it"
                )
        shards = None
        if _SHARDED in snapshot.state:
            shards = str(untext(snapshot.state[_SHARDED])["n_shards"])
        step, n_rows, changes, wall_s, steps = (
            snapshot.facts[name] for name in ("step", "n_rows", "changes", "wall_s", "steps")
        )
        return Resumption(
            notes=(*notes, *_changed(snapshot)),
            state=snapshot.state,
            step=step,
            n_rows=n_rows,
            changes=changes,
            lived_s=wall_s,
            steps=steps,
            shards=shards,
            source=snapshot.facts.get("source"),
            clocks=snapshot.facts.get("clocks"),
            header=snapshot.facts.get("recording"),
            number=1 + max(snapshot.facts.get("n_resumes", 0), events.n_resumes),
        )
    folder.refuse_removed("be replayed from its start, though no snapshot is intact")
    notes.append("There is no intact snapshot: the run is replayed from its start.")
    return Resumption(state={}, number=1 + events.n_resumes, notes=notes)


def read_snapshot(folder: RunFolder, path: Path) -> snapshots.Snapshot:
    """Read and check a snapshot of a run with those of its shards; raise as `snapshots.read`."""
    snapshot = snapshots.read(path)
    if _SHARDED in snapshot.state:
        sharded = untext(snapshot.state[_SHARDED])
        check_snapshots(folder.shards, sharded["life"], sharded["at"], sharded["n_shards"])
    return snapshot


def check_excursions(folder: RunFolder, resumed: Resumption) -> None:
    """Raise BadInput if a file of excursions that a resumed run continues is missing, or its first line is damaged."""
    n_parts = int(resumed.state.get(_N_PARTS, 1))
    for file in expected_files(folder.excursions, n_parts):
        try:
            read_header(file, EXCURSIONS)
        except FileNotFoundError:
            raise BadInput(
                f"{folder.path} cannot be continued: log/{file.name} is missing; `horde doctor {folder.path}` writes "
                "it again"
            ) from None
        except ValueError as error:
            raise BadInput(f"{folder.path} cannot be continued: {error}") from None


def _n_recorded(folder: RunFolder) -> float:
    """Return the number of rows in the recording; infinity if snapshots do not count rows, or it cannot be read."""
    if folder.has_recorded_first:  # its positions count on from pass to pass
        return math.inf
    try:
        return record_numbers(started_files(folder.life)[-1], LIFE).stop
    except (ValueError, OSError, LookupError, TypeError):
        return math.inf


def refuse_over(folder: RunFolder, resumed: Resumption, steps: int | None) -> None:
    """Raise BadInput if a run has taken and recorded all its steps, before any of its files is changed."""
    recorded_steps = folder.extent(may_be_empty=True).last_step
    written = min(folder.summarised_steps() or 0, recorded_steps)
    if steps is not None and (written >= steps or resumed.step > steps):
        raise BadInput(
            f"{folder.path} has taken {max(written, resumed.step):,} steps, and --steps is {steps:,} in total: choose "
            "a larger --steps"
        )


def refuse_other_body(
    folder: RunFolder, recorded: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    """Raise BadInput if two headers (`record_header`) have other channels, actions or ranges: weights would not fit."""
    remedy = (
        "its weights do not fit; name sensors that came or went by --channels, actions by --actions, start a new run, "
        f"or learn from its recording: --backend replay --log {folder.path}"
    )
    channels_before = [channel["name"] for channel in recorded["channels"]]
    channels = [channel["name"] for channel in now["channels"]]
    for what, before, here in (
        ("channels", channels_before, channels),
        ("actions", list(recorded["actions"]), list(now["actions"])),
    ):
        if before != here:
            first = (
                next((name for name in here if name not in before), None) or f"{len(here)} of them"
            )
            raise BadInput(
                f"{folder.path} was recorded with {len(before)} {what}, and its body now has {len(here)}, such as "
                f"{first}: {remedy}"
            )
    bounds_before = list(zip(recorded["low"], recorded["high"], strict=True))
    bounds = list(zip(now["low"], now["high"], strict=True))
    for name, was, is_now in zip(channels, bounds_before, bounds, strict=True):
        if was != is_now:
            raise BadInput(
                f"{folder.path} was recorded with observations of {name} from {was[0]} to {was[1]}, which are now "
                f"from {is_now[0]} to {is_now[1]}: {remedy}"
            )
    for name, is_now in now["ranges"].items():
        was = recorded.get("ranges", {}).get(name)
        if was != is_now:
            raise BadInput(
                f"{folder.path} was recorded with {name} in the range {was}, which is now {is_now}: {remedy}"
            )


def _changed(snapshot: snapshots.Snapshot) -> list[str]:
    """Return a note for each change since the snapshot that may change the results."""
    return [
        f"Resumed under another {what} ({here} instead of {then}): weights may differ in rounding from those of an "
        "uninterrupted run."
        for what, then, here in differences(snapshot.facts)
    ]


# ---- added and removed questions -------------------------------------------------------------------------------------


class HasQuestions(Protocol):
    """A life, a student, a Horde or another learner, to which questions are added."""

    def add(self, questions: Sequence[GVF], /) -> object:
        """Add questions."""

    def remove(self, names: Sequence[str], /) -> object:
        """Remove questions by their names."""


def change_questions(
    learner: HasQuestions,
    interface: Interface,
    folder: RunFolder,
    changes: Sequence[dict[str, Any]],
) -> None:
    """Repeat recorded additions and removals of questions.

    A student also begins to test the behaviour where rows came one by one after those of a data set.
    """
    for one in changes:
        if TESTS in one:
            if isinstance(learner, StreamLearner):
                learner.begin_tests()
        elif "add" in one:
            interface_then = interface.with_first_actions(one.get("n_actions"))
            questions = families.from_file(folder.path / one["add"], interface_then)
            questions = families.with_further_actions(questions, len(interface.actions))
            learner.add(named(questions, interface.names))
        else:
            learner.remove(one["remove"])


def open_trained(folder: RunFolder, console: Console) -> Run | None:
    """Return the run of a folder with the weights of its newest snapshot, to predict; None without a usable one.

    A line on the console says from which step they are, or why there are none.

    Raises:
        BadInput: As `open_run`.
    """
    run = open_run(folder)
    try:
        resumed = resumption(folder)
        if not resumed.state or resumed.shards is not None:
            return None
        change_questions(run.horde, run.interface, folder, resumed.changes)
        run.horde.restore(inner(resumed.state, OF_HORDE))
    except (BadInput, ValueError, LookupError, OSError) as error:
        console.print(f"not from its snapshot: {error}", highlight=False, soft_wrap=True)
        return None
    for note in (*resumed.notes, f"from its snapshot at step {resumed.step:,}"):
        console.print(note, highlight=False, soft_wrap=True)
    return run
