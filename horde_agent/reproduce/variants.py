"""The same life, learned from under different rules and step sizes: one file of predictions and returns for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent.gvf import GVF
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.life.observers import sound_demons
from horde_agent.measures.nmsre import Outcomes, final_nmsre, nmsre_at_rest
from horde_agent.measures.returns import policies_under_test
from horde_agent.questions import excursions
from horde_agent.record import read
from horde_agent.reproduce.lessons import Lessons, OnProgress, learn, outcomes, predict_at_tests
from horde_agent.reproduce.lives import interface_of, quiet
from horde_agent.reproduce.study import Job, Study
from horde_agent.runs.warm import warm_up
from horde_agent.types import Bools, Floats, Integers


class Variant(NamedTuple):
    """One way to learn; the defaults are the paper's parameters and this program's default rules.

    Attributes:
        trace_rule, w_rule, step_size, secondary_ratio: As in `LearnerConfig`.
    """

    trace_rule: str = "clipped"
    w_rule: str = "every-step"
    step_size: float = 0.1
    secondary_ratio: float = 0.001

    @property
    def name(self) -> str:
        """What its files are called."""
        return f"{self.trace_rule}-{self.w_rule}-{self.step_size:g}-{self.secondary_ratio:g}"

    def config(self) -> LearnerConfig:
        """Return the learner's settings."""
        return LearnerConfig(**self._asdict(), vector_mspbe=False)


class Lesson(NamedTuple):
    """What one variant learned from one life.

    Attributes:
        outcomes: Each policy's excursions, with the predictions made before them.
        last_outcomes: The same with what the weights at the end of the life predict there.
        test_number: Of each excursion, among all of the life, by policy as in `outcomes`.
        sound: Which demons were not set aside, shape (n_demons,).
        max_trace: Largest |e|.
        seconds, n_updates: What learning took, and how many updates it was.
        channel, gamma, action: Of each question, shape (n_demons,).
    """

    outcomes: list[Outcomes]
    last_outcomes: list[Outcomes]
    test_number: list[Integers]
    sound: Bools
    max_trace: float
    seconds: float
    n_updates: int
    channel: Integers
    gamma: Floats
    action: Integers

    @property
    def nmsre(self) -> Floats:
        """Final NMSRE of each question, shape (n_demons,); nan where set aside or tested fewer than two times."""
        return np.where(self.sound, final_nmsre(self.outcomes, len(self.sound)), np.nan)

    @property
    def variance(self) -> Floats:
        """Variance of each question's returns, shape (n_demons,); nan where it was never tested."""
        found = np.full(len(self.sound), np.nan)
        for test in self.outcomes:
            found[test.policy.demons] = test.returns.var(axis=0)
        return found

    def curves(self, *, share: Sequence[bool] | None = None) -> Floats:
        """Return the NMSRE after each test of a question, shape (n_tests, n_questions).

        Only the sound questions, in no order, and as many tests as every policy had.

        Args:
            share: Which of all demons to take; all that are sound when None.
        """
        wanted = self.sound if share is None else self.sound & np.asarray(share)
        curves = [test.nmsre()[:, wanted[test.policy.demons]] for test in self.outcomes]
        n = min(len(curve) for curve in curves)
        return np.concatenate([curve[:n] for curve in curves], axis=1)

    def score(self, which: Bools, *, last: bool = True) -> Floats:
        """Return mean squared error over variance on some of the life's tests, shape (n_demons,); nan without a test.

        Args:
            which: Which tests, shape (n_tests,).
            last: Score what the weights at the end of the life predict, instead of what was predicted then.
        """
        found = np.full(len(self.sound), np.nan)
        for test, number in zip(self.last_outcomes if last else self.outcomes, self.test_number, strict=True):
            mine = which[number]
            if not mine.any():
                continue
            found[test.policy.demons] = nmsre_at_rest(test.predictions[mine], test.returns[mine], test.variance())
        return np.where(self.sound, found, np.nan)


def learn_variant(on_progress: OnProgress, study: Study, seed: int, life: Path, variant: Variant) -> str:
    """Learn from a life under a variant, and return the path of what came of it."""

    def make(path: Path) -> None:
        interface = interface_of(study)
        coder = interface.coder
        asked = excursions(interface)
        horde = Horde(
            asked, n_features=coder.n_features, n_active=coder.n_active, config=variant.config(), mode="deferred"
        )
        warm_up(horde, interface)
        lessons = Lessons(read(life))
        learned = learn(lessons, horde, interface, on_progress=on_progress)
        last = predict_at_tests(lessons, horde, interface)
        facts = {
            "sound": sound_demons(horde),
            "max_trace": horde.max_trace,
            "seconds": learned.seconds,
            "n_updates": learned.n_updates,
            "test_action": lessons.tests.action,
        }
        _write(path, learned.outcomes, outcomes(lessons, asked, last), facts)

    return str(study.kept(f"lesson-{variant.name}-{seed}.npz", make, seed=seed, life=life.name, **variant._asdict()))


class Task(NamedTuple):
    """One life to be learned from under one variant."""

    seed: int
    life: Path
    variant: Variant


def learn_all(study: Study, tasks: Sequence[Task]) -> list[str]:
    """Learn from lives under variants, in processes, and return the paths of what came of it, in their order."""
    found: list[str] = study.in_parallel([_job(study, task) for task in tasks])
    return found


def _job(study: Study, task: Task) -> Job:
    """Return a task as a job; "capped", which learns on the plain engine, takes the longest."""
    rule = (task.variant.trace_rule, task.variant.w_rule)
    cost = {("capped", "every-step"): 10.0, ("capped", "importance-weighted"): 4.0}.get(rule, 1.0)
    return Job(f"{task.variant.name} on life {task.seed}", learn_variant, (quiet(study), *task), cost)


def _write(path: Path, made: list[Outcomes], last: list[Outcomes], facts: dict[str, Any]) -> None:
    """Write a lesson's arrays; `path` is kept as it is, without an ending added."""
    arrays: dict[str, Any] = dict(facts)
    for before, after in zip(made, last, strict=True):
        key = f"action{before.policy.action}"
        arrays[f"{key}_step"], arrays[f"{key}_returns"] = before.step, before.returns
        arrays[f"{key}_predictions"], arrays[f"{key}_last"] = before.predictions, after.predictions
    with path.open("wb") as file:
        np.savez(file, **arrays)


def read_lesson(path: str | Path, questions: Sequence[GVF]) -> Lesson:
    """Read what `learn_variant` wrote.

    Args:
        path: The file.
        questions: Those that were asked.
    """
    with np.load(path) as file:
        arrays = dict(file)
    made, last, numbers = [], [], []
    channel, gamma, action = np.zeros(len(questions), np.int64), np.zeros(len(questions)), np.zeros(len(questions), int)
    for policy in policies_under_test(questions):
        channel[policy.demons], gamma[policy.demons] = policy.channel, policy.gamma
        action[policy.demons] = policy.action
        key = f"action{policy.action}"
        if f"{key}_step" in arrays:
            step, returns = arrays[f"{key}_step"], arrays[f"{key}_returns"]
            made.append(Outcomes(policy, step, arrays[f"{key}_predictions"], returns))
            last.append(Outcomes(policy, step, arrays[f"{key}_last"], returns))
            numbers.append(np.flatnonzero(arrays["test_action"] == policy.action))
    return Lesson(
        made,
        last,
        numbers,
        arrays["sound"],
        float(arrays["max_trace"]),
        float(arrays["seconds"]),
        int(arrays["n_updates"]),
        channel,
        gamma,
        action,
    )
