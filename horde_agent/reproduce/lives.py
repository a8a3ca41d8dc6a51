"""The lives that every experiment learns from: simulated once for each seed, then learned from under any settings.

Behaviour does not depend on what is learned, so a life that is lived with a handful of questions is, bit for bit, the
life that `horde learn` lives with the same seed and all of its questions.

    path = stream(study, seed=0, steps=261_681)
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
    """Return what the agent knows of the study's body; the body itself is not opened."""
    env = make_body(study.backend, study.port)
    try:
        return Interface.of(env)
    finally:
        env.close()


def stream(study: Study, seed: int, steps: int, kind: Kind = "excursions", lamp_moves: Sequence[LampMove] = ()) -> Path:
    """Return the record of a life (`horde_agent.record`), lived now where it was not kept.

    Args:
        study: Whose body lives, and where the record is kept.
        seed: Of the life.
        steps: Periods of 100 ms, excursions and drives included.
        kind: With test excursions or without.
        lamp_moves: Changes of the pen during the life.
    """
    return streams(study, [seed], steps, kind, {seed: lamp_moves})[seed]


def streams(
    study: Study,
    seeds: Sequence[int],
    steps: int,
    kind: Kind = "excursions",
    lamp_moves: Mapping[int, Sequence[LampMove]] | None = None,
) -> dict[int, Path]:
    """Return the records of several lives by seed, lived at the same time where the body allows it.

    Args:
        study: Whose body lives, and where the records are kept.
        seeds: One for each life.
        steps: Periods of 100 ms, excursions and drives included.
        kind: With test excursions or without.
        lamp_moves: Changes of the pen, by seed; none when None.
    """
    moves = lamp_moves or {}
    wanted = [Wanted(seed, steps, kind, tuple(moves.get(seed, ()))) for seed in seeds]
    return dict(zip(seeds, live_all(study, wanted), strict=True))


class Wanted(NamedTuple):
    """A life that somebody wants to learn from: as the arguments of `stream`."""

    seed: int
    steps: int
    kind: Kind = "excursions"
    lamp_moves: tuple[LampMove, ...] = ()


def live_all(study: Study, wanted: Sequence[Wanted]) -> list[Path]:
    """Return the records of lives, lived at the same time where the body allows it."""
    jobs = [Job(f"life {w.seed}, {w.kind}", live, (quiet(study), w), w.steps) for w in wanted]
    batches = [[job] for job in jobs] if study.backend in ONE_AT_A_TIME else [jobs]
    return [Path(path) for batch in batches for path in study.in_parallel(batch)]


_NO_SEGMENTS_S = 1e9


def quiet(study: Study) -> Study:
    """Return the study as it can be sent to another process: progress goes another way there."""
    return replace(study, say=_say_nothing)


def _say_nothing(line: str) -> None:
    """Take a line and drop it."""


def live(on_progress: OnProgress, study: Study, wanted: Wanted) -> str:
    """Live a life into the kept file and return its path; a job for a process of its own."""
    seed, steps, kind, moves = wanted

    def make(path: Path) -> None:
        env = make_body(study.backend, study.port, lamp_moves=moves)
        try:
            _record(env, path, seed, steps, kind, on_progress)
        finally:
            env.close()

    name = f"life-{kind}{'-lamp' if moves else ''}-{seed}.rec"
    return str(study.kept(name, make, seed=seed, steps=steps, kind=kind, lamp_moves=repr(moves)))


def _record(
    env: gymnasium.Env[Any, Any], path: Path, seed: int, steps: int, kind: Kind, on_progress: OnProgress
) -> None:
    """Live in a body and record it."""
    interface = Interface.of(env)
    coder = interface.coder
    horde = Onlooker(few_questions(interface, kind), n_features=coder.n_features, n_active=coder.n_active)
    facts = {
        "channels": [channel._asdict() for channel in interface.channels],
        "actions": list(interface.actions),
        "period_s": interface.period_s,
        "seed": seed,
    }

    def observe(event: StepEvent) -> None:
        on_progress(event.life.steps / steps)

    behaviour, rng = StickyRandom(len(interface.actions)), np.random.default_rng(seed)
    # One file: `Study.kept` renames that one alone, and further segments would be left behind.
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


class Onlooker(Horde):
    """Has questions, for which excursions are drawn, and learns nothing: the record is learned from later."""

    def begin(self, observation: Any, tiles: Any) -> Any:  # noqa: ARG002
        """Look away."""
        return self.predictions

    def learn(self, action: int, probability: float, observation: Any, tiles: Any, *, terminated: bool = False) -> Any:  # noqa: ARG002
        """Look away."""
        return self.predictions


def few_questions(interface: Interface, kind: Kind) -> list[GVF]:
    """Return what a life must ask for its excursions to be those of all questions: one about each policy.

    Where there are no excursions, one question about the behaviour itself.
    """
    if kind == "behaviour":
        return nexting(interface, gammas=(0.0,))[:1]
    asked = excursions(interface, gammas=(0.0,))
    return asked[:: len(interface.sensors)]
