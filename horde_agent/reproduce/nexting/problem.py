"""Learning on-line, the off-line solutions, autoregression, and the real robot's log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from horde_agent.horde import LearnerConfig
from horde_agent.interface import Interface
from horde_agent.life.bodies import make_body
from horde_agent.measures.nmsre import NO_VARIANCE, normalise
from horde_agent.record import Recorder, read
from horde_agent.reproduce import TUNING_SEED
from horde_agent.reproduce.lessons import TrainingData, learn
from horde_agent.reproduce.lives import LifeSpec, compiled_horde, interface_of, simulate_lives
from horde_agent.reproduce.nexting.life import (
    BITS_SEED,
    FROZEN_EVERY,
    N_WINDOWS,
    TIME_SCALES_S,
    Asked,
    Learned,
    NextingLife,
    learn_life,
    wall_follower,
    window,
)
from horde_agent.reproduce.offline import RIDGES, Problem, blocks, terms_needed
from horde_agent.reproduce.study import Job, Study, cached
from horde_agent.runs.holdout import LEARNED_SHARE, Moments, read_log
from horde_agent.types import Bools, Floats

TITLE = "Nexting"
CONFIG = LearnerConfig(algorithm="td", vector_mspbe=False)
"""TD(lambda) with lambda .9 and alpha .1 over the active features."""
LAGS = 20
"""Readings that autoregression sees."""


class Size(NamedTuple):
    """Rows of a window, feature bits of the questions learned and of the larger set that is timed, steps timed."""

    window: int
    bits: int
    many_bits: int
    many_steps: int


SIZES = {"paper": Size(6_000, 487, 1_447, 6_000), "quick": Size(150, 40, 80, 300)}
REAL_LOG = (
    Path(__file__).resolve().parents[4] / "shared/data/critterbot_real_wandering_2010-10-05.csv.gz"
)
REAL_SCALES_S = (0.1, 0.5, 2.0)
REAL_PASSES = 30
"""The log of 99.7 s is too short for returns over 8 s; passes as in `horde learn`."""

# ---- off-line solutions ---------------------------------------------------------------------------------------------


class Offline(NamedTuple):
    """Mean squared errors of off-line predictors in the scored part."""

    half: Floats  # of ridge regression on the first half of the life, shape (n_questions,)
    whole: Floats  # the same on all of it
    # On the sensor's last 20 readings at 8 s, fitted on the first half, shape (n_sensors,)
    autoregression: Floats


def offline(life: NextingLife, chooses: range, test: range) -> Offline:
    """Return how well the off-line solutions predict the rows of `test`.

    The first half ends with the rows of `chooses`, on which each question's ridge is chosen.
    """
    fits = range(1, chooses.start)
    judged_rows = range(chooses.stop, test.stop)
    mean = Moments(len(life.asked.scale))
    for _, returns in life.chunks(fits):
        mean.add(returns)
    problem = Problem(life.live, mean.mean, len(life.lessons.stream))
    _add(life, problem, fits)
    scores = [_errors(life, problem, ridge, chooses, FROZEN_EVERY) for ridge in RIDGES]
    chosen = np.array(RIDGES)[np.argmin(scores, axis=0)]
    _add(life, problem, chooses)
    half = _errors(life, problem, chosen, test)
    _add(life, problem, judged_rows)
    return Offline(
        half, _errors(life, problem, chosen, test), autoregression(life, [fits, chooses], test)
    )


def _add(life: NextingLife, problem: Problem, part: range) -> None:
    for rows, returns in life.chunks(part):
        for block in blocks(len(rows)):
            phi = life.live.dense(life.rows.tiles[rows[block]])
            problem.add(phi, phi, (returns[block] - problem.constant).astype(np.float32))


def _errors(
    life: NextingLife, problem: Problem, ridge: float | Floats, part: range, every: int = 1
) -> Floats:
    """Return the mean squared errors of the solutions, shape (n_questions,); `ridge` as in `Problem.solve`."""
    theta = problem.solve(ridge).astype(np.float32)
    errors = Moments(len(problem.constant))
    for rows, returns in life.chunks(part):
        predictions = life.live.dense(life.rows.tiles[rows[::every]]) @ theta + problem.constant
        errors.add((predictions - returns[::every]) ** 2)
    return errors.mean


def autoregression(life: NextingLife, fitted: list[range], test: range) -> Floats:
    """Return the mean squared errors of least squares on each sensor's last readings at 8 s, shape (n_sensors,)."""
    n_sensors = len(life.asked.interface.sensors)
    A = np.zeros((n_sensors, LAGS + 1, LAGS + 1))
    b = np.zeros((n_sensors, LAGS + 1, 1))
    for part in fitted:
        for lags, returns in _lags(life, part):
            A += lags.swapaxes(1, 2) @ lags
            b += lags.swapaxes(1, 2) @ returns
    theta = np.linalg.pinv(A, hermitian=True) @ b
    errors = Moments(n_sensors)
    for lags, returns in _lags(life, test):
        errors.add(((lags @ theta - returns)[..., 0] ** 2).T)
    return errors.mean


def _lags(life: NextingLife, part: range) -> Iterator[tuple[Floats, Floats]]:
    """Yield 1 and the last readings, (n_sensors, n_rows, 21), and the returns at 8 s, (n_sensors, n_rows, 1)."""
    sensors = list(life.asked.interface.sensors)
    observation = life.lessons.stream.rows["observation"]
    for rows, returns in life.chunks(part):
        returns = returns[rows >= LAGS]
        rows = rows[rows >= LAGS]
        windows = sliding_window_view(
            observation[rows[0] - LAGS + 1 : rows[-1] + 1, sensors], LAGS, axis=0
        )
        lags = windows[rows - rows[0]].swapaxes(0, 1).astype(np.float64)
        yield np.insert(lags, 0, 1.0, axis=2), returns[:, life.asked.of_longest].T[..., None]


# ---- the measurements -----------------------------------------------------------------------------------------------


@cached(Learned)
def _learn(study: Study, path: Path, size: Size) -> Learned:
    question_set = Asked(interface_of(study), size.bits)
    horde = compiled_horde(question_set.interface, question_set.questions(), config=CONFIG)
    return learn_life(NextingLife(read(path), question_set), horde, size.window)


@cached(Offline)
def _solve(study: Study, path: Path, size: Size) -> Offline:
    life = NextingLife(read(path), Asked(interface_of(study), size.bits))
    first, half, late, end = (
        window(k, size.window).start
        for k in (N_WINDOWS * 2 // 5, N_WINDOWS // 2, N_WINDOWS - 2, N_WINDOWS)
    )
    return offline(life, range(first, half), range(late, end))


def _time_many(study: Study, path: Path, size: Size) -> Floats:
    """Return the duration of each step with the larger set of questions, in milliseconds; a job."""
    question_set = Asked(interface_of(study), size.many_bits, events=())
    horde = compiled_horde(question_set.interface, question_set.questions(), config=CONFIG)
    return learn(TrainingData(read(path)[: size.many_steps]), horde, question_set.interface).ms


class RealLog(NamedTuple):
    """NMSE in the last 30 % of the real robot's log, each (n_questions,)."""

    td: Floats  # of TD(lambda) after 30 passes through the rest, with its weights frozen
    ridge: Floats  # of ridge regression on the rest
    varies: Bools  # whether the returns vary there


@cached(RealLog)
def _learn_log(study: Study, size: Size) -> RealLog:
    env = make_body("replay", log=REAL_LOG)
    question_set = Asked(Interface.of(env), size.bits, REAL_SCALES_S, events=())
    recorder = Recorder(len(question_set.interface.channels))
    read_log(env, recorder)
    env.close()
    stream = recorder.stream()
    life = NextingLife(stream, question_set)
    n = int(LEARNED_SHARE * len(stream))
    horde = question_set.horde(CONFIG)
    first = TrainingData(stream[:n])
    test = range(n, len(stream))
    for _ in range(2 if study.is_quick else REAL_PASSES):
        learn(first, horde, question_set.interface)
    theta = horde.weights()[0][:, life.live.index].T
    errors = Moments(horde.n_demons)
    variance = Moments(horde.n_demons)
    for rows, returns in life.chunks(test):
        errors.add((life.live.dense(life.rows.tiles[rows]) @ theta - returns) ** 2)
        variance.add(returns)
    half = offline(life, range(n * 3 // 4, n), test).half
    td, ridge = (normalise(error, variance.variance()) for error in (errors.mean, half))
    return RealLog(td, ridge, variance.variance() >= NO_VARIANCE)


class Data(NamedTuple):
    """Everything that was measured."""

    asked: Asked  # the questions
    size: Size  # lengths
    learned: list[Learned]  # by life
    offline: list[Offline]  # by life
    # Duration of each step with more questions, in the first life, shape (n_steps,)
    many_ms: Floats
    log: RealLog | None  # from the real robot's log; None without it


def lives(study: Study) -> list[LifeSpec]:
    """Return the lives: each has all windows, and the returns of the last one."""
    steps = N_WINDOWS * SIZES[study.scale].window + 1 + terms_needed(1.0 - 0.1 / TIME_SCALES_S[-1])
    return [
        LifeSpec(s, steps, "behaviour", behaviour=wall_follower, physics="planar")
        for s in study.seeds
    ]


def gather(study: Study) -> tuple[Data, dict[str, object]]:
    """Simulate the lives, learn from them, and solve them off-line."""
    recordings = simulate_lives(study, lives(study))
    size = SIZES[study.scale]
    jobs: dict[Any, Job] = {
        (work, seed): Job(f"{name}, life {seed}", work, (study, path, size), 2.0)
        for name, work in (("off-line solutions", _solve), ("learning", _learn))
        for seed, path in recordings.items()
    }
    jobs[_time_many] = Job(
        "more questions", _time_many, (study, recordings[study.seeds[0]], size), 0.5
    )
    if REAL_LOG.exists():
        jobs[_learn_log] = Job("the real robot's log", _learn_log, (study, size), 0.5)
    results = study.in_parallel(jobs)
    learned, solved = ([results[work, seed] for seed in study.seeds] for work in (_learn, _solve))
    question_set = Asked(interface_of(study), size.bits)
    return Data(
        question_set, size, learned, solved, results[_time_many], results.get(_learn_log)
    ), {
        "steps scored": N_WINDOWS * size.window,
        "questions": len(question_set.scale),
        "time scales (s)": TIME_SCALES_S,
        "seed of the feature bits": BITS_SEED,
        "seed of the life on which behaviour and events were chosen": TUNING_SEED,
        "rule": "TD(lambda), lambda .9, alpha .1 / active features",
        "ridges": RIDGES,
    }
