"""Questions that are added and removed when a run is resumed: checked first, changed when its rows were repeated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent import questions as families
from horde_agent.gvf import GVF, named
from horde_agent.horde import Horde
from horde_agent.life.behaviours import behaviour_of
from horde_agent.life.learner import check_questions, refuse_fed_back, relearn
from horde_agent.policies import Greedy
from horde_agent.record import Stream, read_in_parts
from horde_agent.record.segments import file_at
from horde_agent.refusals import BadInput
from horde_agent.runs.storage.folder import RunFolder, stamped
from horde_agent.runs.storage.resume import HasQuestions, change_questions
from horde_agent.runs.storage.run import Run


class RequestedChanges(NamedTuple):
    """Questions to add and to remove when a run is resumed."""

    add: Path | None = None  # file of the questions to add
    remove: str | None = None  # shell pattern of the names to remove
    learns: bool = False  # whether the added ones learn from the recording first


class CheckedChanges(NamedTuple):
    """Requested changes that fit a run; nothing has been written yet."""

    removed: Sequence[str]  # names
    added: bytes | None  # contents of the question file
    learns: bool


def check_changes(run: Run, requested: RequestedChanges) -> CheckedChanges:
    """Return the changes requested for a run with the questions of its snapshot.

    They are tried on another Horde of the same questions.

    Raises:
        BadInput: If a file cannot be read or is invalid, no name matches, the behaviour follows a
            removed question, a curious behaviour would have no option or too many, or the
            questions do not fit the others.
    """
    horde = run.horde
    interface = run.interface
    behaviour = run.config.behaviour
    names = list(horde.names)
    removed: list[str] = []
    added: bytes | None = None
    questions: Sequence[GVF] = ()
    if requested.remove is not None:
        removed = [name for name in names if fnmatchcase(name, requested.remove)]
        if not removed:
            raise BadInput(
                f"--remove {requested.remove}: no question's name matches; the first one is {names[0]!r}"
            )
        if len(removed) == len(names):
            raise BadInput(
                f"--remove {requested.remove}: all {len(names)} questions match; choose a pattern that leaves one"
            )
        if any(behaviour_of(behaviour).follows(name) for name in removed):
            raise BadInput(
                f"--remove {requested.remove}: the robot's behaviour is {behaviour}; choose a pattern that leaves it"
            )
    if requested.add is not None:
        try:
            added = requested.add.read_bytes()
        except OSError as error:
            raise BadInput(
                f"the question file {requested.add} cannot be read ({error.strerror})"
            ) from None
    coder = interface.coder
    trial = Horde(
        horde.questions,
        n_features=coder.n_features,
        n_active=coder.n_active,
        config=horde.config,
    )
    try:
        if requested.add is not None:
            questions = families.from_file(requested.add, interface)
            check_questions(questions, interface)
        refuse_fed_back(interface, removed)
        if removed:
            trial.remove(removed)
        if questions:
            trial.add(named(questions, interface.names))
        behaviour_of(behaviour).check_questions(trial.questions)
    except ValueError as error:
        raise BadInput(str(error)) from None
    return CheckedChanges(removed, added, requested.learns)


def write_changes(
    folder: RunFolder, checked: CheckedChanges, n_before: int, n_actions: int
) -> list[dict[str, Any]]:
    """Write the added questions to the run's folder, and return the changes, as in snapshots.

    They are about a body of `n_actions`, after `n_before` earlier changes.
    """
    changes: list[dict[str, Any]] = []
    if checked.removed:
        changes.append({"remove": list(checked.removed)})
    if checked.added is not None:
        copy = file_at(folder.question_file, n_before + 2)
        copy.write_bytes(stamped(checked.added))
        folder.seal()
        changes.append({"add": copy.name, "n_actions": n_actions})
    return changes


class QuestionChange:
    """Questions to add and to remove when a run is resumed.

    Args:
        run: The run, with the questions of its snapshot.
        requested: What the command asks for; None for nothing.

    Raises:
        BadInput: As of `check_changes`; if further questions are to learn from a record whose beginning was
            removed; or if a question that stays finds a policy among actions of which one is lost.
    """

    def __init__(
        self, run: Run, requested: RequestedChanges | None, lost_actions: Sequence[str] = ()
    ) -> None:
        self._run = run
        self._checked: CheckedChanges | None = None
        removed: Sequence[str] = ()
        if requested is not None:
            if requested.learns:
                run.folder.refuse_removed("teach further questions from its whole record")
            self._checked = check_changes(run, requested)
            removed = self._checked.removed
        for question in run.horde.questions:
            is_found = isinstance(question.target_policy, Greedy)
            if is_found and lost_actions and question.name not in removed:
                raise BadInput(
                    f"{question.name!r} is about the best of all actions, of which one is lost, whose value would stay "
                    f"as it is: add --remove '{question.name}'"
                )

    def apply(
        self, learner: HasQuestions, *, step: int, n_rows: int, n_before: int
    ) -> list[dict[str, Any]]:
        """Add and remove the questions; return the changes, as in snapshots.

        Theta of new ones may be learned from the recording; w and traces start at 0.

        Args:
            learner: Learns with the run's Horde.
            step: Its step.
            n_rows: Number of recorded rows that it has learned from.
            n_before: Number of earlier changes.
        """
        checked = self._checked
        if checked is None:
            return []
        run = self._run
        previous_names = set(run.horde.names)
        n_actions = len(run.interface.actions)
        changes = write_changes(run.folder, checked, n_before, n_actions)
        change_questions(learner, run.interface, run.folder, changes)
        for one in changes:
            run.folder.events.append({"step": step, "event": "questions", "row": n_rows, **one})
        if checked.learns and checked.added is not None:
            _learn_theta(run, set(run.horde.names) - previous_names, n_rows)
        return changes


def _learn_theta(run: Run, names: set[str], n_rows: int) -> None:
    """Learn theta and offsets of new questions off-policy from the first rows of the recording, in a separate Horde.

    Weights of other questions do not change.
    """
    horde = run.horde
    new = [question for question in horde.questions if question.name in names]
    coder = run.interface.coder
    alone = Horde(
        new,
        n_features=coder.n_features,
        n_active=coder.n_active,
        config=horde.config,
        mode="deferred",
    )
    relearn(_first_rows(run.folder.life, n_rows), alone, run.interface)
    added = [horde.names.index(question.name) for question in new]
    theta = horde.weights()[0]
    theta[added] = alone.weights()[0]
    horde.reset_weights(theta)
    if horde.offsets.any() or alone.offsets.any():
        offsets = np.full(horde.n_demons, np.nan)
        offsets[added] = alone.offsets
        sums = np.full((2, horde.n_demons), np.nan)
        sums[:, added] = alone.reading_sums
        horde.set_offsets(offsets, sums)


def _first_rows(life: Path, n_rows: int) -> Iterator[Stream]:
    """Yield the first rows of a recording, file by file."""
    n_left = n_rows
    for part in read_in_parts(life):
        yield part[:n_left]
        n_left -= len(part)
        if n_left <= 0:
            return
