"""The lives that every experiment learns from: simulated once for each seed, then learned from under any settings.

Behaviour does not depend on learning, so a life simulated with a few questions is, bit for bit, the life that
`horde learn` simulates with the same seed and all of its questions.

    path = record_life(study, seed=0, steps=261_681)
    for row in horde_agent.record.read(path).rows: ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np

from horde_agent.gvf import GVF
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.life.bodies import ONE_AT_A_TIME, LampMove, make_body
from horde_agent.life.life import Life, StepEvent
from horde_agent.life.worker import InPlace
from horde_agent.policies import StickyRandom
from horde_agent.questions import excursions, nexting
from horde_agent.record import Recorder
from horde_agent.reproduce.parallel import OnProgress
from horde_agent.reproduce.study import Job, Study

Kind = Literal["excursions", "behaviour"]
"""With test excursions, as in the paper's first two experiments, or learning on every step, as in its third."""


def interface_of(study: Study) -> Interface:
    """Return the interface of the study's robot; the robot is not connected."""
    env = make_body(study.backend, study.port)
    try:
        return Interface.of(env)
    finally:
        env.close()


def record_life(
    study: Study, seed: int, steps: int, kind: Kind = "excursions", lamp_moves: Sequence[LampMove] = ()
) -> Path:
    """Return the path of a life's recording (`horde_agent.record`); simulate it unless cached.

    Args:
        study: Selects the robot and the cache folder.
        seed: Of the life.
        steps: Periods of 100 ms, excursions and drives included.
        kind: With test excursions or without.
        lamp_moves: Changes of the pen during the life.
    """
    return record_lives(study, [seed], steps, kind, {seed: lamp_moves})[seed]


def record_lives(
    study: Study,
    seeds: Sequence[int],
    steps: int,
    kind: Kind = "excursions",
    lamp_moves: Mapping[int, Sequence[LampMove]] | None = None,
) -> dict[int, Path]:
    """Return the paths of several lives' recordings by seed; simulated in parallel if the backend allows it.

    Args:
        study: Selects the robot and the cache folder.
        seeds: One for each life.
        steps: Periods of 100 ms, excursions and drives included.
        kind: With test excursions or without.
        lamp_moves: Changes of the pen, by seed; none when None.
    """
    moves = lamp_moves or {}
    wanted = [LifeSpec(seed, steps, kind, tuple(moves.get(seed, ()))) for seed in seeds]
    return dict(zip(seeds, simulate_lives(study, wanted), strict=True))


class LifeSpec(NamedTuple):
    """Settings of one life: the arguments of `record_life`."""

    seed: int
    steps: int
    kind: Kind = "excursions"
    lamp_moves: tuple[LampMove, ...] = ()


def simulate_lives(study: Study, wanted: Sequence[LifeSpec]) -> list[Path]:
    """Return the paths of the lives' recordings; simulated in parallel if the backend allows it."""
    jobs = [Job(f"life {w.seed}, {w.kind}", simulate_life, (quiet(study), w), w.steps) for w in wanted]
    batches = [[job] for job in jobs] if study.backend in ONE_AT_A_TIME else [jobs]
    return [Path(path) for batch in batches for path in study.in_parallel(batch)]


_NO_SEGMENTS_S = 1e9


def quiet(study: Study) -> Study:
    """Return a copy for a worker process, which reports progress through `on_progress`."""
    return replace(study, say=_say_nothing)


def _say_nothing(line: str) -> None:
    """Take a line and drop it."""


def simulate_life(on_progress: OnProgress, study: Study, wanted: LifeSpec) -> str:
    """Simulate a life and return its recording's path; a job for a worker process."""
    seed, steps, kind, moves = wanted

    def make(path: Path) -> None:
        env = make_body(study.backend, study.port, lamp_moves=moves)
        try:
            _record(env, path, seed, steps, kind, on_progress)
        finally:
            env.close()

    name = f"life-{kind}{'-lamp' if moves else ''}-{seed}.rec"
    return str(study.cached(name, make, seed=seed, steps=steps, kind=kind, lamp_moves=repr(moves)))


def _record(
    env: gymnasium.Env[Any, Any], path: Path, seed: int, steps: int, kind: Kind, on_progress: OnProgress
) -> None:
    """Run the robot and record it."""
    interface = Interface.of(env)
    coder = interface.coder
    horde = QuestionHolder(few_questions(interface, kind), n_features=coder.n_features, n_active=coder.n_active)
    facts = {
        "channels": [channel._asdict() for channel in interface.channels],
        "actions": list(interface.actions),
        "period_s": interface.period_s,
        "seed": seed,
    }

    def observe(event: StepEvent) -> None:
        on_progress(event.life.steps / steps)

    behaviour, rng = StickyRandom(len(interface.actions)), np.random.default_rng(seed)
    # One file: `Study.cached` renames that one alone, and further segments would be left behind.
    recorder = Recorder(len(interface.channels), path, facts, segment_s=_NO_SEGMENTS_S, segment_bytes=1 << 62)
    with Life(
        env,
        horde,
        behaviour,
        rng,
        interface=interface,
        recorder=recorder,
        observers=[observe],
        worker=InPlace(),
    ) as life:
        life.run(steps)


class QuestionHolder(Horde):
    """Holds questions, for which excursions are drawn, and learns nothing; learning uses the recording."""

    def begin(self, observation: Any, tiles: Any) -> Any:  # noqa: ARG002
        """Return the predictions without learning."""
        return self.predictions

    def learn(self, action: int, probability: float, observation: Any, tiles: Any, *, terminated: bool = False) -> Any:  # noqa: ARG002
        """Return the predictions without learning."""
        return self.predictions


def few_questions(interface: Interface, kind: Kind) -> list[GVF]:
    """Return the questions that give the same excursions as all questions: one about each policy.

    Without excursions, one question about the behaviour itself.
    """
    if kind == "behaviour":
        return nexting(interface, gammas=(0.0,))[:1]
    asked = excursions(interface, gammas=(0.0,))
    return asked[:: len(interface.sensors)]
