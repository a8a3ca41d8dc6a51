"""Learning about many Gibbs policies from one recorded life: the work of the experiment `policies`.

Parts of them learn in separate Hordes, which can share the cores. Demons are independent, so the results are the same.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent import questions
from horde_agent.gvf import GVF
from horde_agent.horde import Horde, LearnerConfig, Mode
from horde_agent.interface import Interface
from horde_agent.life.observers import sound_demons
from horde_agent.life.student import encoder
from horde_agent.life.timing import Durations
from horde_agent.policies import Gibbs, StickyRandom, trace_growth
from horde_agent.record import read
from horde_agent.reproduce.lessons import OnProgress, TrainingData, learn
from horde_agent.reproduce.lives import interface_of
from horde_agent.reproduce.study import Study
from horde_agent.runs.jobs.warm import warm_up
from horde_agent.types import Bools, Floats, Integers

GAMMAS = (0.0, 0.5, 0.8, 0.95)
N_SAMPLES, LEAST_BETWEEN = 500, 20
"""Samples of a course, and the learning steps between two of them where the life is short."""
LARGEST_PART = {"clipped": 5_000, "plain": 5_000, "capped": 250}
"""Most questions of one Horde. "capped" takes the plain engine: 1,000 take 3.3 ms of a core per step in one Horde, 2.4
to 3.0 ms in four, which can share the cores; smaller ones gain nothing."""
_STATES_LOOKED_AT = 60


class PolicyScores(NamedTuple):
    """Learning progress of n questions at four gammas, in S samples.

    Attributes:
        step: Learning steps at each sample, shape (S,).
        mspbe: Scalar estimates of each question then, float32, shape (S, n); 0 after it diverged.
        max_trace: Largest |e| so far of each gamma's questions, shape (S, 4).
        n_diverged: Questions of each gamma set aside so far, shape (S, 4).
        gamma: Of each question, shape (n,).
        is_sound: Whether a question was never set aside, shape (n,).
        seconds: What learning took.
    """

    step: Integers
    mspbe: NDArray[np.float32]
    max_trace: Floats
    n_diverged: Integers
    gamma: Floats
    is_sound: Bools
    seconds: float


def asked(interface: Interface, seed: int, n: int) -> list[GVF]:
    """Return the questions that `horde learn --questions policies` asks with a seed."""
    return questions.policies(interface, np.random.default_rng([seed, 1]), n)


def config(trace_rule: str) -> LearnerConfig:
    """Return the paper's step sizes with a trace rule."""
    return LearnerConfig(trace_rule=trace_rule, vector_mspbe=False)  # type: ignore[arg-type]


def horde_of(interface: Interface, gvfs: Sequence[GVF], trace_rule: str, mode: Mode = "deferred") -> Horde:
    """Return a Horde that has learned nothing, its kernels compiled; an eager one predicts on each step."""
    coder = interface.coder
    horde = Horde(gvfs, n_features=coder.n_features, n_active=coder.n_active, config=config(trace_rule), mode=mode)
    warm_up(horde, interface)
    return horde


class Part(NamedTuple):
    """Some of the questions of a course, which is cut into `of` parts: number `k`, from 0."""

    k: int
    of: int

    def chosen(self, gvfs: Sequence[GVF]) -> list[GVF]:
        """Return this part's questions, in the order of gamma.

        Both engines visit, for demons that lie side by side, what the longest of their traces needs.
        """
        by_gamma = np.argsort(gammas_of(gvfs), kind="stable")
        return [gvfs[i] for i in np.array_split(by_gamma, self.of)[self.k]]


def parts_of(n: int, trace_rule: str) -> list[Part]:
    """Return the parts in which n questions are learned under a trace rule."""
    of = -(-n // LARGEST_PART[trace_rule])
    return [Part(k, of) for k in range(of)]


def gammas_of(gvfs: Sequence[GVF]) -> Floats:
    """Return the gamma of each question, shape (n,)."""
    return np.array([gvf.continuation for gvf in gvfs], dtype=np.float64)


def learn_part(
    on_progress: OnProgress, study: Study, seed: int, life: Path, n: int, trace_rule: str, steps: int, part: Part
) -> str:
    """Learn some of the questions from a life's first steps in a worker process; return the file.

    Args:
        on_progress: Takes the share that is done.
        study: Where the file is kept.
        seed: Of the life and of the policies.
        life: Its record.
        n: Policies of all parts together.
        trace_rule: As in `LearnerConfig`.
        steps: How much of the life is learned from.
        part: Which of the questions.
    """

    def make(path: Path) -> None:
        interface = interface_of(study)
        gvfs = part.chosen(asked(interface, seed, n))
        course = follow(
            TrainingData(read(life)[: steps + 1]), horde_of(interface, gvfs, trace_rule), interface, on_progress
        )
        with path.open("wb") as file:
            np.savez(file, **course._asdict())

    name = f"policies-{n}-{trace_rule}-{seed}-{part.k + 1}-of-{part.of}-by-gamma.npz"
    return str(study.cached(name, make, seed=seed, life=life.name, n=n, rule=trace_rule, steps=steps, part=repr(part)))


def follow(lessons: TrainingData, horde: Horde, interface: Interface, on_progress: OnProgress) -> PolicyScores:
    """Learn from a life and sample the questions' scores on the way."""
    n_updates = int(lessons.n_learned[-1])
    every = max(n_updates // N_SAMPLES, LEAST_BETWEEN)
    gamma = gammas_of(horde.questions)
    members = [gamma == g for g in GAMMAS]
    samples: list[tuple[int, NDArray[np.float32], list[float], list[int]]] = []

    def after(n: int) -> None:
        if n % every == 0 or n == n_updates:
            traces, aside = horde.max_traces, ~sound_demons(horde)
            largest = [float(traces[mine].max(initial=0.0)) for mine in members]
            counts = [int(aside[mine].sum()) for mine in members]
            samples.append((n, horde.mspbe_scalar.astype(np.float32), largest, counts))
            on_progress(n / n_updates)

    seconds = learn(lessons, horde, interface, after=after).seconds
    step, mspbe, max_trace, n_diverged = zip(*samples, strict=True)
    return PolicyScores(
        np.array(step),
        np.stack(mspbe),
        np.array(max_trace),
        np.array(n_diverged),
        gamma,
        sound_demons(horde),
        seconds,
    )


def read_scores(paths: Sequence[str | Path]) -> PolicyScores:
    """Read what `learn_part` wrote of the parts of a course, and return the whole of it."""
    parts = []
    for path in paths:
        with np.load(path) as file:
            parts.append(PolicyScores(**{name: file[name] for name in PolicyScores._fields}))
    return together(parts)


def together(parts: Sequence[PolicyScores]) -> PolicyScores:
    """Return the questions of several parts as one course; the seconds are added."""
    return PolicyScores(
        parts[0].step,
        np.concatenate([c.mspbe for c in parts], axis=1),
        np.max([c.max_trace for c in parts], axis=0),
        np.sum([c.n_diverged for c in parts], axis=0),
        np.concatenate([c.gamma for c in parts]),
        np.concatenate([c.is_sound for c in parts]),
        float(sum(c.seconds for c in parts)),
    )


# ---- in real time ---------------------------------------------------------------------------------------------------


def cycle_times(on_progress: OnProgress, study: Study, seed: int, life: Path, n: int, cycles: int) -> dict[str, float]:
    """Return p50, p99 and max in milliseconds of a cycle: code the observation, learn, predict, for n policies.

    One Horde, a prediction of every demon on every step, all threads: what the robot's 100 ms must hold.
    """
    interface = interface_of(study)
    horde, encode = horde_of(interface, asked(interface, seed, n), "clipped", "eager"), encoder(interface)
    rows = read(life)[: cycles + 1].rows
    horde.begin(rows["observation"][0], encode(rows["observation"][0]))
    spent = Durations()
    for t in range(1, len(rows)):
        began = time.perf_counter()
        observation = rows["observation"][t]
        horde.learn(int(rows["action"][t - 1]), float(rows["b"][t - 1]), observation, encode(observation))
        spent.add(time.perf_counter() - began)
        on_progress(t / len(rows))
    summary = spent.summary_ms()
    assert summary is not None, "a life has more than one step"
    return summary


# ---- heavy traces ---------------------------------------------------------------------------------------------------


def growth_factors(interface: Interface, gvfs: Sequence[GVF], life: Path) -> Floats:
    """Return by what factor the second moment of each policy's "plain" trace grows per step, over (gamma lambda)^2.

    The policies look at the state, so pi(a)^2 is its mean over states of the life.

    Returns:
        Shape (n_policies,).
    """
    rows, encode = read(life).rows, encoder(interface)
    chosen = np.linspace(0, len(rows) - 1, _STATES_LOOKED_AT).astype(int)
    states = [(o, encode(o)) for o in rows["observation"][chosen]]
    behaviour = StickyRandom(len(interface.actions)).transition_probabilities()
    factors = []
    for gvf in gvfs:
        policy = gvf.target_policy
        assert isinstance(policy, Gibbs), f"{gvf.name} is not about a Gibbs policy"
        squares = np.mean([policy.probabilities(o, tiles) ** 2 for o, tiles in states], axis=0)
        factors.append(trace_growth(np.sqrt(squares), behaviour, 1.0, 1.0).factor)
    return np.array(factors)
