"""The lives that every experiment learns from: simulated once for each seed, then learned from under any settings.

Behaviour does not depend on learning, so a life simulated with a few questions is, bit for bit, the
life that `horde learn` simulates with the same seed and all of its questions.

    paths = simulate_lives(context, [LifeSpec(seed, steps=261_681) for seed in (0, 1)])
    for row in horde_agent.record.read(paths[0]).rows: ...
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np

from examples.reproduce.experiment import ExperimentContext
from examples.reproduce.runner import Job
from horde_agent.gvf import GVF
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.life.bodies import ONE_AT_A_TIME, LampMove, make_body
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.life import Life, Observer
from horde_agent.policies import BehaviourPolicy, StickyRandom
from horde_agent.questions import excursions, nexting
from horde_agent.record import Recorder
from horde_agent.runs.warm import warm_up

Kind = Literal["excursions", "behaviour"]
"""With test excursions, as in the paper's first two experiments, or learning on every step, as in its third."""


def sticky_random(interface: Interface) -> BehaviourPolicy:
    """Return the paper's behaviour: a random action, repeated with probability 1/2."""
    return StickyRandom(len(interface.actions))


class LifeSpec(NamedTuple):
    """Settings of one life."""

    seed: int  # of the robot and its behaviour
    steps: int  # periods of 100 ms, excursions and drives included
    kind: Kind = "excursions"  # with test excursions or without
    lamp_moves: tuple[LampMove, ...] = ()  # changes of the pen during the life
    behaviour: Callable[[Interface], BehaviourPolicy] = sticky_random  # a module-level function
    physics: str | None = None  # engine of the simulator; the installed one when None


def interface_of(context: ExperimentContext) -> Interface:
    """Return the interface of the robot; the robot is not connected."""
    env = make_body(context.backend, context.port)
    try:
        return Interface.of(env)
    finally:
        env.close()


def new_horde(interface: Interface, questions: Sequence[GVF], **options: Any) -> Horde:
    """Return a Horde of a robot's questions that has learned nothing; options as in `Horde`."""
    return Horde(
        questions,
        n_features=interface.coder.n_features,
        n_active=interface.coder.n_active,
        **options,
    )


def compiled_horde(interface: Interface, questions: Sequence[GVF], **options: Any) -> Horde:
    """Return a Horde as `new_horde` does, with its kernels compiled."""
    horde = new_horde(interface, questions, **options)
    warm_up(horde, interface)
    return horde


def watched_life(
    env: Any,
    horde: Horde,
    behaviour: Any,
    seed: int | np.random.Generator,
    interface: Interface,
    observer: Observer,
) -> Life:
    """Return a life without test excursions that `observer` watches."""
    rng = np.random.default_rng(seed)
    tests = ExcursionConfig(0.0)
    options: dict[str, Any] = {"interface": interface, "excursions": tests}
    return Life(env, horde, behaviour, rng, observers=[observer], **options)


def simulate_lives(context: ExperimentContext, wanted: Sequence[LifeSpec]) -> dict[int, Path]:
    """Return the paths of the lives' recordings (`horde_agent.record`) by seed.

    Missing ones are simulated, in parallel if the backend allows it.
    """
    jobs = {
        w.seed: Job(f"life {w.seed}, {w.kind}", simulate_life, (context, w), w.steps)
        for w in wanted
    }
    if context.backend in ONE_AT_A_TIME:
        batches = [{seed: job} for seed, job in jobs.items()]
    else:
        batches = [jobs]
    return {seed: path for batch in batches for seed, path in context.in_parallel(batch).items()}


def simulate_life(context: ExperimentContext, wanted: LifeSpec) -> Path:
    """Simulate a life unless cached and return its recording's path."""
    wanted = _supported(context, wanted)

    def make(path: Path) -> None:
        env = body_of(context, wanted)
        try:
            _record(env, path, wanted)
        finally:
            env.close()

    # Lives of all experiments lie in one folder: each setting that is not a default is part of the
    # name.
    options = []
    if wanted.behaviour is not sticky_random:
        options = [wanted.behaviour.__name__]
    if wanted.physics is not None:
        options.append(wanted.physics)
    moves = map(str, wanted.lamp_moves)
    length = f"{wanted.steps}-steps"
    words = ["life", wanted.kind, *options, *moves, length, str(wanted.seed)]
    return context.cached(re.sub(r"[^\w.]+", "-", "-".join(words)) + ".rec", make)


def repeat_life(context: ExperimentContext, wanted: LifeSpec, observer: Observer) -> None:
    """Simulate a life once more, bit for bit, while `observer` watches; nothing is recorded."""
    env = body_of(context, wanted)
    try:
        _live(env, wanted, observers=[observer])
    finally:
        env.close()


def body_of(context: ExperimentContext, wanted: LifeSpec) -> gymnasium.Env[Any, Any]:
    """Return the body of a life, which has not been opened."""
    physics = _supported(context, wanted).physics
    return make_body(context.backend, context.port, lamp_moves=wanted.lamp_moves, physics=physics)


def _supported(context: ExperimentContext, wanted: LifeSpec) -> LifeSpec:
    """Return the settings without those of a simulator, if the backend is none."""
    if context.backend != "simulator":
        return wanted._replace(physics=None)
    return wanted


_NO_SEGMENTS_S = 1e9


def _record(env: gymnasium.Env[Any, Any], path: Path, wanted: LifeSpec) -> None:
    interface = Interface.of(env)
    facts = {
        "channels": [channel._asdict() for channel in interface.channels],
        "actions": list(interface.actions),
        "period_s": interface.period_s,
        "seed": wanted.seed,
    }
    recorder = Recorder(
        len(interface.channels), path, facts, segment_s=_NO_SEGMENTS_S, segment_bytes=1 << 62
    )
    _live(env, wanted, recorder=recorder)


def _live(env: gymnasium.Env[Any, Any], wanted: LifeSpec, **options: Any) -> None:
    """Live a life with few questions; options as of `Life`."""
    interface = Interface.of(env)
    horde = new_horde(interface, _few_questions(interface, wanted.kind))
    behaviour = wanted.behaviour(interface)
    rng = np.random.default_rng(wanted.seed)
    with Life(env, horde, behaviour, rng, interface=interface, **options) as life:
        life.run(wanted.steps)


def _few_questions(interface: Interface, kind: Kind) -> list[GVF]:
    """Return one question about each policy, which give the excursions of all; or one about the behaviour itself."""
    if kind == "behaviour":
        return nexting(interface, gammas=(0.0,))[:1]
    return excursions(interface, gammas=(0.0,))[:: len(interface.sensors)]
