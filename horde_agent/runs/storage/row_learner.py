"""Learning from recorded rows, as the life of their robot did."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from horde_agent.gvf import GVF
from horde_agent.horde import Horde
from horde_agent.learner import Learner
from horde_agent.life.counts import RobotCounts
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.learner import StreamLearner
from horde_agent.life.observers import MspbeWatch, Sampler
from horde_agent.life.stream import LearnedStream
from horde_agent.questions import MODEL_FAMILY
from horde_agent.refusals import BadInput
from horde_agent.runs.storage.resume import (
    OF_HORDE,
    Resumption,
    change_questions,
    check_excursions,
)
from horde_agent.runs.storage.run import Run
from horde_agent.saving import State, inner, nested


class RowLearner:
    """Learns from recorded rows as the life of their robot did, without the robot.

    Args:
        run: The run.
        is_tested: As of `StreamLearner`.

    Attributes:
        student: Learns, predicts and scores.
        sampler: Samples of the MSPBE.
        counts: Steps, gaps, and actions that were not applied.
    """

    def __init__(self, run: Run, *, is_tested: bool = True) -> None:
        horizon = ExcursionConfig(horizon=run.config.horizon)
        self.student = StreamLearner(run.horde, run.interface, horizon, is_tested=is_tested)
        self.sampler = Sampler()
        self.counts = RobotCounts()
        self._run = run

    @property
    def steps(self) -> int:
        """Number of periods up to the latest row."""
        return self.counts.steps

    def state(self) -> State:
        """Return everything that later learning depends on, under the names of `Life.state`."""
        return nested(student=self.student.state(), counts=self.counts.state())

    def resume(self, resumed: Resumption, excursions: Path) -> bool:
        """Continue from a snapshot of a data set's run or of a life; without one, from the first row.

        Excursions are recorded in existing files, of which `excursions` is the first; those after
        the snapshot are removed from them. Return whether the next row follows a gap, as `load_state`
        says.

        Raises:
            BadInput: If a file of excursions is missing.
            ValueError: If the snapshot does not fit.
        """
        run = self._run
        check_excursions(run.folder, resumed)
        change_questions(self.student, run.interface, run.folder, resumed.changes)
        run.watch = MspbeWatch(run.horde)
        self.student.errors.table.resume_in(excursions)
        has_further_features = load_state(self, run, self.sampler, resumed)
        # It may be mapped from files that are deleted after newer snapshots
        resumed.state.clear()
        return has_further_features

    def add(self, questions: Sequence[GVF]) -> None:
        """Add questions between two rows; raise as `StreamLearner.add`."""
        self._run.watch.rearrange(self.student.add(questions))

    def remove(self, names: Sequence[str]) -> None:
        """Remove questions between two rows; raise as `StreamLearner.remove`."""
        self._run.watch.rearrange(self.student.remove(names))

    def restore(self, state: State) -> None:
        """Continue from what `state` returned, or `Life.state`."""
        self.student.restore(inner(state, "student"))
        self.counts.restore(inner(state, "counts"))


_LATER_READINGS: dict[str, float] = {
    r"(robot\d+/)?current/observation": math.nan,
    r"student/counts/_latest": 0.0,
    r"student/horde/current/stream\d+/observation": math.nan,
    r"student/streams/stream\d+/held/latest": 0.0,
    r"student/streams/stream\d+/held/age": 1e9,  # nothing was read yet
    r"student/streams/stream\d+/held/n_missing": 0.0,
    r"student/streams/stream\d+/held/is_missing": 1.0,
    r"student/streams/stream\d+/held/since_step": -1.0,
    r"student/streams/stream\d+/held/(lost_)?since_s": math.nan,
}
"""Arrays of a snapshot with a number per channel, and what a channel has that was added after it."""
_N_UNREAD = r"life/student/streams/stream\d+/held/_n_unread"


def with_further_channels(state: State, n_channels: int) -> State:
    """Return a snapshot's state for a body with channels behind those that it had then; as it is without any."""
    n_before = len(state["life/student/counts/_latest"])
    n_further = n_channels - n_before
    if not n_further:
        return state
    wider = dict(state)
    for name, array in state.items():
        if re.fullmatch(_N_UNREAD, name):
            wider[name] = array + n_further
        for pattern, value in _LATER_READINGS.items():
            if array.shape == (n_before,) and re.fullmatch(f"life/{pattern}", name):
                wider[name] = np.append(array, np.full(n_further, value).astype(array.dtype))
    return wider


def with_further_actions(state: State, horde: Learner) -> State:
    """Return a snapshot's state for a body with more actions than it had then: values of further ones are 0.

    The weights of a question that finds a policy are blocks of all features, one for each action.
    """
    if not any(question.finds_policy for question in horde.questions):
        return state
    wider = dict(state)
    for name, array in nested(life=nested(student=nested(horde=horde.state()))).items():
        former = state.get(name)
        if former is None or former.shape == array.shape or not array.ndim:
            continue
        n_further = array.shape[-1] - former.shape[-1]
        is_of_actions = (
            array.shape[-1] % horde.n_features == former.shape[-1] % horde.n_features == 0
        )
        if former.shape[:-1] == array.shape[:-1] and n_further > 0 and is_of_actions:
            further = np.zeros((*former.shape[:-1], n_further), former.dtype)
            wider[name] = np.concatenate([former, further], axis=-1)
    return wider


def of_present_body(state: State, run: Run) -> State:
    """Return a snapshot's state for the channels and actions that a run has now."""
    state = with_further_channels(state, len(run.interface.channels))
    if run.interface.n_later_actions:
        state = with_further_actions(state, run.horde)
    return state


def load_state(learner: LearnedStream, run: Run, sampler: Sampler, resumed: Resumption) -> bool:
    """Restore a learner and its observers from a snapshot.

    Without a state, the learner is at its start, and only excursions that it recorded before are
    removed.

    Returns:
        Whether tilings were added after the snapshot. Then the state before the next row
        has no tiles of them, and that row follows a gap.
    """
    state = resumed.state
    if not state:
        errors = learner.student.errors
        errors.restore(errors.state())
        return False
    header_then = resumed.header or {}
    later_tilings = header_then.get("later_tilings", [])
    has_further_features = list(run.later_tilings) != list(later_tilings)
    if has_further_features:
        state = _with_further_features(state, run, later_tilings, resumed.changes)
    state = of_present_body(state, run)
    sampler.restore(inner(state, "sampler"))
    run.watch.restore(inner(state, "watch"))
    learner.restore(inner(state, "life"))
    if has_further_features:
        learner.student.position.is_observed = False
    return has_further_features


def refuse_models(horde: Learner) -> None:
    """Raise BadInput if a question is about the features themselves, to which further ones cannot be added."""
    for question in horde.questions:
        if question.family == MODEL_FAMILY:
            raise BadInput(
                f"--tilings: {question.name!r} is of an option's model, which has a question for each feature: "
                "remove it first, by a resume with --remove"
            )


def _with_further_features(
    state: State,
    run: Run,
    later_tilings: Sequence[Mapping[str, Any]],
    changes: Sequence[dict[str, Any]],
) -> State:
    """Return the state of a snapshot for the coder of a run.

    Args:
        state: The state.
        run: The run.
        later_tilings: Those that were added before the snapshot.
        changes: Questions added and removed before it.

    Raises:
        BadInput: If a question is about the features themselves.
    """
    assert isinstance(run.horde, Horde), "it is not for shards"
    refuse_models(run.horde)
    former = run.with_later_tilings(later_tilings)
    change_questions(former.horde, former.interface, run.folder, changes)
    assert isinstance(former.horde, Horde)
    state = of_present_body(state, former)
    former.horde.restore(inner(state, OF_HORDE))
    run.horde.take_over(former.horde)
    state_beside = {
        name: array for name, array in state.items() if not name.startswith(f"{OF_HORDE}/")
    }
    horde_state = run.horde.state()
    return state_beside | {f"{OF_HORDE}/{name}": array for name, array in horde_state.items()}
