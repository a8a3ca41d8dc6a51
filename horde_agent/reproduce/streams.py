"""The lives that every experiment learns from: simulated once for each seed, then learned from under any settings.

Behaviour does not depend on what is learned, so a life that is lived with a handful of questions is, bit for bit, the
life that `horde learn` lives with the same seed and all of its questions.

    path = stream(study, seed=0, steps=261_681)
    for row in horde_agent.record.read(path).rows: ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np

from horde_agent.gvf import GVF
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.interface import Interface
from horde_agent.loop import Life, Moment
from horde_agent.policies import StickyRandom
from horde_agent.questions import excursions, nexting
from horde_agent.record import Recorder
from horde_agent.reproduce.study import Job, Study

Kind = Literal["excursions", "behaviour"]
"""With test excursions, as in the paper's first two experiments, or learning on every step, as in its third."""

LampMove = tuple[float, str, tuple[float, float, float]]
"""When (robot time in seconds), which lamp, and where it goes (x, y, z in metres)."""

_ONE_AT_A_TIME = ("serial", "drops")


def make_body(backend: str, port: str | None = None, lamp_moves: Sequence[LampMove] = ()) -> gymnasium.Env[Any, Any]:
    """Return the body that a backend's name stands for, reached through Gymnasium alone.

    Args:
        backend: As in `horde learn --backend`.
        port: Of a real robot.
        lamp_moves: Changes of the pen during the life.

    Raises:
        ValueError: If this body's behaviour cannot be chosen, or its lamp cannot be moved by the program.
    """
    if backend == "replay":
        raise ValueError("a replayed log has no choices of its own to test: use simulator, emulated, serial or drops")
    if lamp_moves and backend != "simulator":
        raise ValueError(f"only the simulator can move its lamp by itself, not the backend {backend!r}")
    if backend in _ONE_AT_A_TIME:
        return gymnasium.make(f"horde_env:Critterbot{backend.title()}-v0", port=port, disable_env_checker=True)
    if backend == "emulated":
        return gymnasium.make("horde_env:CritterbotEmulated-v0", disable_env_checker=True)
    settings: dict[str, Any] = {"lamp_moves": tuple(lamp_moves)} if lamp_moves else {}
    return gymnasium.make("horde_env:CritterbotPen-v0", disable_env_checker=True, **settings)


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
    moves = {seed: tuple((lamp_moves or {}).get(seed, ())) for seed in seeds}
    jobs = [Job(f"life {s}", _live, (quiet(study), s, steps, kind, moves[s])) for s in seeds]
    if study.backend in _ONE_AT_A_TIME:  # there is one robot
        paths = [study.in_parallel([job])[0] for job in jobs]
    else:
        paths = study.in_parallel(jobs)
    return {seed: Path(path) for seed, path in zip(seeds, paths, strict=True)}


def quiet(study: Study) -> Study:
    """Return the study as it can be sent to another process: progress goes another way there."""
    return replace(study, say=_say_nothing)


def _say_nothing(line: str) -> None:
    """Take a line and drop it."""


def _live(
    tell: Callable[[float], None], study: Study, seed: int, steps: int, kind: Kind, moves: Sequence[LampMove]
) -> str:
    """Live a life into the kept file and return its path."""

    def live(path: Path) -> None:
        env = make_body(study.backend, study.port, moves)
        try:
            _record(env, path, seed, steps, kind, tell)
        finally:
            env.close()

    name = f"life-{kind}{'-lamp' if moves else ''}-{seed}.rec"
    return str(study.kept(name, live, seed=seed, steps=steps, kind=kind, lamp_moves=repr(moves)))


def _record(
    env: gymnasium.Env[Any, Any], path: Path, seed: int, steps: int, kind: Kind, tell: Callable[[float], None]
) -> None:
    """Live in a body and record it."""
    interface = Interface.of(env)
    horde = Horde(
        few_questions(interface, kind),
        n_features=interface.coder.n_features,
        n_active=interface.coder.n_active,
        config=LearnerConfig(vector_mspbe=False),
    )
    facts = {
        "channels": [channel._asdict() for channel in interface.channels],
        "actions": list(interface.actions),
        "period_s": interface.period_s,
        "seed": seed,
    }

    def observe(moment: Moment) -> None:
        tell(moment.life.steps / steps)

    behaviour, rng = StickyRandom(len(interface.actions)), np.random.default_rng(seed)
    recorder = Recorder(len(interface.channels), path, facts)
    with Life(env, horde, behaviour, rng, interface=interface, recorder=recorder, observers=[observe]) as life:
        life.run(steps)


def few_questions(interface: Interface, kind: Kind) -> list[GVF]:
    """Return what a life must ask for its excursions to be those of all questions: one about each policy.

    Where there are no excursions, one question about the behaviour itself.
    """
    if kind == "behaviour":
        return nexting(interface, gammas=(0.0,))[:1]
    asked = excursions(interface, gammas=(0.0,))
    return asked[:: len(interface.sensors)]
