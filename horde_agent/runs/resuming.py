"""How a life goes on that was stopped, by whatever: from its newest sound snapshot, and from its record since then.

In a simulated world the life since the snapshot is lived once more: the same world, the same draws, the same bits; what
it senses is compared with the record on the way. A real robot has gone on meanwhile: there what it saw and did since is
learned from the record, and it goes on after a gap.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from horde_agent import questions as families
from horde_agent.cluster.shards import check_snapshots
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.life.life import Life
from horde_agent.life.observers import RowObserver
from horde_agent.life.student import relearn, rows_of
from horde_agent.record import DRIVES, Flag, Phase, Stream, read_in_parts, snapshots
from horde_agent.record.segments import part, parts
from horde_agent.runs.config import BadInput, LearnConfig, read_config
from horde_agent.runs.run import Run
from horde_agent.runs.run_folder import RunFolder, digests, lived_steps, own_version
from horde_agent.saving import State, untext

_SHARDED = "life/student/horde/own/sharded"  # what a `ShardedHorde` stores, in a snapshot
_STEPS = (Phase.BEHAVE, Phase.EXCURSION)


class Resumption(NamedTuple):
    """From where a life goes on.

    Attributes:
        step: Of the snapshot; 0 where there is none, and the life is redone from its beginning.
        state: What it holds; empty where there is none.
        facts: What it says.
        notes: Sentences for whoever resumes it.
    """

    step: int
    state: State
    facts: dict[str, Any]
    notes: tuple[str, ...]

    @property
    def n_rows(self) -> int:
        """Rows of the record by then."""
        return int(self.facts.get("n_rows", 0))

    @property
    def shards(self) -> str | None:
        """In how many processes the demons were; None where they were in one Horde, or there is no snapshot."""
        sharded = self.state.get(_SHARDED)
        return None if sharded is None else str(untext(sharded)["n_shards"])

    @property
    def changes(self) -> list[dict[str, Any]]:
        """Questions that came and went by then."""
        return list(self.facts.get("changes", ()))

    @property
    def lived_s(self) -> float:
        """Seconds that the life took by then."""
        return float(self.facts.get("wall_s", 0.0))


def settings(folder: RunFolder, steps: int | None) -> LearnConfig:
    """Return what a run was asked, which must be whole.

    Raises:
        BadInput: If it is missing, cut off, or of a log that was read.
    """
    if not folder.config.is_file():
        raise BadInput(f"{folder.path} holds no life to resume: there is no config.toml in it")
    config = read_config(folder.config)
    if "versions" not in tomllib.loads(folder.config.read_text(encoding="utf-8")):
        raise BadInput(f"{folder.config} is cut off before its versions: a missing setting would silently be another")
    if config.backend == "replay":
        raise BadInput(f"{folder.path} is no life but the reading of a log; `horde learn` reads it again")
    if not parts(folder.life):
        raise BadInput(f"{folder.path} holds no life to resume: there is no {folder.life.name} in its log")
    return replace(config, out=folder.path, steps=steps if steps is not None else config.steps)


def resumption(folder: RunFolder) -> Resumption:
    """Return the newest sound snapshot of a run; those that are damaged are named.

    Raises:
        BadInput: If it is in a format that this version does not know, or was written for other questions or settings
            than there are now.
    """
    notes: list[str] = []
    for path in snapshots.found(folder.checkpoint):
        try:
            kept = snapshots.read(path)
            if (sharded := kept.state.get(_SHARDED)) is not None:
                own = untext(sharded)
                check_snapshots(folder.shards, own["life"], own["at"], own["n_shards"])
        except snapshots.SnapshotDamaged as error:
            notes.append(f"{error}; the snapshot before it is taken.")
            continue
        except snapshots.SnapshotOfAnother as error:
            raise BadInput(str(error)) from None
        _refuse_another(folder, kept)
        return Resumption(int(kept.facts["step"]), kept.state, kept.facts, (*notes, *_promises(kept)))
    notes.append("There is no sound snapshot: the life is redone from its beginning.")
    return Resumption(0, {}, {}, tuple(notes))


def refuse_over(folder: RunFolder, resumed: Resumption, steps: int | None) -> None:
    """Refuse to resume a life that has lived all its steps, before anything of it is touched.

    One that was killed before its tables were written is not over.

    Raises:
        BadInput: If so.
    """
    written = lived_steps(folder) or 0
    if steps is not None and (written >= steps or resumed.step > steps):
        raise BadInput(
            f"{folder.path} has lived {max(written, resumed.step):,} steps, and was asked for {steps:,} in all: name "
            "more by --steps"
        )


def refuse_other_ranges(folder: RunFolder, recorded: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse a run whose channels were scaled by other ranges: its tiles, and so its weights, mean something else.

    Args:
        folder: The run's.
        recorded: Header of its recording.
        now: The header that the environment gets today (`described`).

    Raises:
        BadInput: If a range differs; the first channel is named.
    """
    again = (
        f"its weights do not fit; start a new run, or learn from its recording: --backend replay --log {folder.path}"
    )
    for name, is_now in now["ranges"].items():
        if "ranges" not in recorded:
            raise BadInput(f"{folder.path} was recorded before channel ranges changed and were stored: {again}")
        if (was := recorded["ranges"].get(name)) != is_now:
            raise BadInput(f"{folder.path} was recorded with {name} in the range {was}, which is now {is_now}: {again}")


def _refuse_another(folder: RunFolder, kept: snapshots.Snapshot) -> None:
    """Refuse a snapshot of other settings or questions than there are now."""
    for name, digest in kept.facts["asked"].items():
        if digests(folder).get(name) != digest:
            raise BadInput(f"{folder.path / name} is not what it was when {kept.path.name} was written; put it back")


def _promises(kept: snapshots.Snapshot) -> list[str]:
    """Return a sentence for each promise that does not hold here."""
    broken = [
        f"It goes on under another {what} ({here} instead of {kept.facts[what]}): what it learns may differ in "
        "rounding from a life that never stopped."
        for what, here in snapshots.identity().items()
        if kept.facts[what] != here
    ]
    if kept.facts["version"] != (here := own_version()):
        broken.append(
            f"It goes on under version {here} instead of {kept.facts['version']}: what is seen, done and learned from "
            "here on is this version's, and may differ from a life that never stopped."
        )
    return broken


# ---- questions that come and go --------------------------------------------------------------------------------------


def change(life: Life, interface: Interface, folder: RunFolder, changes: list[dict[str, Any]]) -> None:
    """Let questions come and go in a life as they did before."""
    for one in changes:
        if "add" in one:
            life.add(families.from_file(folder.path / one["add"], interface))
        else:
            life.remove(one["remove"])


def new_changes(
    folder: RunFolder, names: list[str], add: Path | None, remove: str | None, n_before: int
) -> list[dict[str, Any]]:
    """Return the changes that are asked for now; a question file is copied into the run's folder.

    Args:
        folder: The run's.
        names: Of the questions that there are.
        add: A question file.
        remove: A shell pattern of names.
        n_before: Changes that there were before.

    Raises:
        BadInput: If the file cannot be read, or no question has such a name.
    """
    asked: list[dict[str, Any]] = []
    if remove is not None:
        gone = [name for name in names if fnmatchcase(name, remove)]
        if not gone:
            raise BadInput(f"--remove {remove}: no question's name matches; the first one is {names[0]!r}")
        asked.append({"remove": gone})
    if add is not None:
        copy = part(folder.question_file, n_before + 2)
        try:
            copy.write_bytes(add.read_bytes())
        except OSError as error:
            raise BadInput(f"the question file {add} cannot be read ({error.strerror})") from None
        asked.append({"add": copy.name})
    return asked


def learn_from_record(life: Life, run: Run, names: set[str]) -> None:
    """Give questions that are new what they would have learned from the life so far: their theta.

    They learn off-policy, with the probabilities that were recorded, in a Horde of their own; then their weights are
    put beside those of the others, who keep theirs.
    """
    asked = [question for question in life.horde.questions if question.name in names]
    horde, coder = life.horde, run.interface.coder
    alone = Horde(asked, n_features=coder.n_features, n_active=coder.n_active, config=horde.config, mode="deferred")
    relearn(read_in_parts(run.folder.life), alone, run.interface)
    theta = horde.weights()[0]
    theta[[horde.names.index(question.name) for question in asked]] = alone.weights()[0]
    horde.reset_weights(theta)


# ---- a robot that has gone on meanwhile ------------------------------------------------------------------------------


def redo(life: Life, since: Iterable[Stream], observer: RowObserver) -> None:
    """Learn from the rows since the snapshot, and let the life stand after the last of them.

    Args:
        life: As it was restored.
        since: The rows, in parts that follow one another.
        observer: Called with the student and the step after each row.
    """
    student, n_gaps, reached = life.student, 0, None
    last = student.phase
    for observation, action, b, phase, flags, step, policy in rows_of(since):
        is_first = reached is None
        if not (phase == last and phase in DRIVES):
            if not (is_first and life.is_observed):
                student.observe(observation, flags)
            student.set_action(Phase(phase), action, b, step, policy)
        observer(student, step)
        n_gaps += int(last in _STEPS and bool(flags & Flag.GAP) and not is_first)
        last, reached = Phase(phase), step
    if reached is not None:
        life.set_position(reached + int(last in _STEPS), n_gaps)
