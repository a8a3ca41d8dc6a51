"""The paper's second experiment: three measures of learning when the weights are lost, and when the world changes.

265 questions at gamma .8 learn from six hours of life. In one run theta := 0 after learning step 40,000, as in the
paper; in the other the lamp is moved at that step, which is the change that the paper speaks of and did not make.
Source: White, Modayil & Sutton (2012), section 5, figure 4.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from horde_agent.gvf import GVF
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.interface import Interface
from horde_agent.life.bodies import LampMove
from horde_agent.life.observers import sound_demons
from horde_agent.questions import excursions
from horde_agent.record import Stream, read
from horde_agent.reproduce.excursions import experiment as first_experiment
from horde_agent.reproduce.lessons import Lessons, OnProgress, learn
from horde_agent.reproduce.lives import Wanted, interface_of, live, quiet, streams
from horde_agent.reproduce.reset.claims import claims
from horde_agent.reproduce.reset.data import Data, Run
from horde_agent.reproduce.reset.gap import LaterPart
from horde_agent.reproduce.reset.tables import tables
from horde_agent.reproduce.study import Job, Result, Study
from horde_agent.runs.warm import warm_up

GAMMA = 0.8
STEPS = {"paper": 216_000, "quick": 6_000}
"""Six hours at 10 Hz: the first part of the first experiment's life."""
LAMP_STEPS = {"paper": 156_000, "quick": 6_000}
"""The lives with a moved lamp end some 25,000 learning steps after it: nothing later is looked at."""
CHANGE_AT = {"paper": 40_000, "quick": 1_100}
"""Learning step of the change; in a short life as early in proportion."""
EVERY = {"paper": 200, "quick": 20}
"""Learning steps between two looks at the measures."""
LOOKS_OF_A_BLOCK = 5
"""Looks between two at m and w in full: 1,000 learning steps at the paper's scale, a tenth of tau."""
LAMP, NEW_PLACE = "lamp", (-0.8, -0.8, 0.45)
"""From the north-east corner of the pen to the south-west one."""
LIT = "light"
"""The sensor group that a lamp concerns."""


def run(study: Study) -> Result:
    """Do the experiment."""
    data = gather(study)
    # matplotlib is loaded here, after the work, and only in the process that draws.
    from horde_agent.reproduce.reset.pictures import pictures

    config = LearnerConfig()
    return Result(
        "reset",
        "Three measures of learning: the weights are lost, the lamp is moved",
        claims(data),
        pictures(data, study.folder("reset")),
        tables(data),
        settings={
            "steps of each life": STEPS[study.scale],
            "steps of each life with a moved lamp": LAMP_STEPS[study.scale] if data.moved else None,
            "questions": len(data.questions),
            "gamma": GAMMA,
            "change at learning step": data.change_at,
            "tau of the MSPBE estimates, learning steps": config.mspbe_tau,
            "1 / (alpha_w active features), learning steps": 1.0 / (config.step_size * config.secondary_ratio),
            "the lamp goes to (x, y, z in m)": ", ".join(map(str, NEW_PLACE)) if data.moved else None,
            "seeds": study.seed_list,
        },
        remarks=[
            "Training time is counted in learning steps; excursions and drives lie between them and are not drawn.",
            "At theta := 0 the secondary weights w, the traces and the estimates are kept, as in the paper.",
            "The NMSRE is a trace over 10 excursions of a question, each of which is tested about every 250 learning "
            "steps: it shows no change at once either.",
            "The moved lamp changes nothing but what the light and thermal sensors read: actions, poses and all other "
            "sensors of that life are, to the bit, those of the life without it.",
        ],
    )


def lives(study: Study) -> list[Wanted]:
    """Return which lives the experiment learns from; those with a moved lamp depend on what these learned when."""
    return first_experiment.lives(study)


def gather(study: Study) -> Data:
    """Live with and without a moved lamp, and learn from both."""
    seeds, change_at, has_lamp = study.seeds, CHANGE_AT[study.scale], study.backend == "simulator"
    lived = streams(study, seeds, first_experiment.STEPS[study.scale])
    jobs = [Job(f"the lamp moves in life {s}", _learn_moved, (quiet(study), s, lived[s]), 3.0) for s in seeds]
    jobs = jobs if has_lamp else []
    jobs += [Job(f"theta := 0 in life {s}", _learn, (quiet(study), s, lived[s], True)) for s in seeds]
    runs = [read_run(path) for path in study.in_parallel(jobs)]
    interface = interface_of(study)
    return Data(
        interface=interface,
        questions=asked(interface),
        change_at=change_at,
        every=EVERY[study.scale],
        block=LOOKS_OF_A_BLOCK * EVERY[study.scale],
        reset=dict(zip(seeds, runs[-len(seeds) :], strict=True)),
        moved=dict(zip(seeds, runs, strict=False)) if has_lamp else {},
        lit_group=LIT,
    )


def asked(interface: Interface) -> list[GVF]:
    """Return the questions at gamma .8: 265 for the Critterbot."""
    return excursions(interface, gammas=(GAMMA,))


def first_steps(stream: Stream, steps: int) -> Stream:
    """Return the first part of a life."""
    return stream[: int(np.searchsorted(stream.rows["step"], steps, side="right"))]


def lamp_move(stream: Stream, change_at: int) -> LampMove:
    """Return the move of the lamp that the packet after learning step `change_at` is the first to see.

    Raises:
        ValueError: If the life has fewer learning steps.
    """
    lessons = Lessons(stream)
    if lessons.n_learned[-1] <= change_at:
        raise ValueError(
            f"the life has {lessons.n_learned[-1]} learning steps, and the change is due after {change_at}: live longer"
        )
    row = int(np.searchsorted(lessons.n_learned, change_at))
    between = 0.5 * float(stream.rows["t"][row] + stream.rows["t"][row + 1])
    return between, LAMP, NEW_PLACE


def _learn_moved(on_progress: OnProgress, study: Study, seed: int, life: Path) -> str:
    """Live the life again with the lamp moved, and learn from that; `life` is the one in which it stays."""
    steps = LAMP_STEPS[study.scale]
    move = lamp_move(first_steps(read(life), steps), CHANGE_AT[study.scale])
    path = Path(live(lambda share: on_progress(0.8 * share), study, Wanted(seed, steps, lamp_moves=(move,))))
    return _learn(lambda share: on_progress(0.8 + 0.2 * share), study, seed, path, resets=False)


def _learn(on_progress: OnProgress, study: Study, seed: int, life: Path, resets: bool) -> str:
    """Learn from a life, look at the measures now and then, and return the path of what was seen."""

    def make(path: Path) -> None:
        interface = interface_of(study)
        lessons = Lessons(first_steps(read(life), STEPS[study.scale]))
        with path.open("wb") as file:
            np.savez(file, **watched(lessons, interface, study.scale, resets, on_progress)._asdict())

    name = f"reset-{'theta' if resets else 'lamp'}-{seed}.npz"
    looks = {"every": EVERY[study.scale], "looks_of_a_block": LOOKS_OF_A_BLOCK}
    return str(study.kept(name, make, seed=seed, life=life.name, change_at=CHANGE_AT[study.scale], **looks))


def watched(
    lessons: Lessons, interface: Interface, scale: str, resets: bool, on_progress: OnProgress | None = None
) -> Run:
    """Learn from a life and return its measures over training time.

    Args:
        lessons: The life.
        interface: The body's.
        scale: "quick" or "paper".
        resets: Whether theta := 0 at the change.
        on_progress: Called with the share that is done.
    """
    coder, questions = interface.coder, asked(interface)
    horde = Horde(
        questions, n_features=coder.n_features, n_active=coder.n_active, config=LearnerConfig(), mode="deferred"
    )
    warm_up(horde, interface)
    looked: list[tuple[int, Any, Any]] = [(0, horde.mspbe_scalar, horde.mspbe_vector())]
    block = LOOKS_OF_A_BLOCK * EVERY[scale]
    part, later = LaterPart(horde, block), [np.zeros(horde.n_demons)]

    def look(n: int) -> None:
        if n == CHANGE_AT[scale] and resets:
            horde.reset_weights()
        if n % EVERY[scale] == 0:
            looked.append((n, horde.mspbe_scalar.copy(), horde.mspbe_vector()))
        if n % block == 0:
            part.end_block(horde)
            later.append(part.value)

    learned = learn(lessons, horde, interface, after=look, on_progress=on_progress)
    at, scalar, vector = (np.array(column) for column in zip(*looked, strict=True))
    step = lessons.stream.rows["step"].astype(np.int64)
    n_learned = dict(zip(step[lessons.tests.row].tolist(), lessons.n_learned[lessons.tests.row].tolist(), strict=True))
    nmsre = np.full((len(at), len(questions)), np.nan)
    for test in learned.outcomes:
        errors = test.nmsre()
        tested_at = np.array([n_learned[s] for s in test.step.tolist()])
        latest = np.searchsorted(tested_at, at, side="right") - 1
        nmsre[np.ix_(latest >= 0, test.policy.demons)] = errors[latest[latest >= 0]]
    sound, n_steps = sound_demons(horde), lessons.stream.n_steps
    return Run(at, nmsre, scalar, vector, np.array(later), sound, learned.n_updates, n_steps, learned.seconds)


def read_run(path: str) -> Run:
    """Read what was kept of a run."""
    with np.load(path) as file:
        values = {name: file[name] for name in Run._fields}
    return Run(**{name: value if value.ndim else value.item() for name, value in values.items()})
