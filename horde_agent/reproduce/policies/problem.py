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
from horde_agent.reproduce.lessons import TrainingData, learn
from horde_agent.reproduce.lives import interface_of, record_lives
from horde_agent.reproduce.parallel import Job, OnProgress
from horde_agent.reproduce.result import Cell
from horde_agent.reproduce.study import Study
from horde_agent.runs.jobs.warm import warm_up
from horde_agent.types import Bools, Floats, Integers

FEW, MANY = 1_000, 10_000
GAMMAS = (0.0, 0.5, 0.8, 0.95)


class Size(NamedTuple):
    """Durations in learning steps: of the lives, with the other trace rules, with the many policies, of the timing."""

    life: int
    rules: int
    many: int
    cycles: int


SIZES = {"paper": Size(261_681, 261_681, 261_681, 2_000), "quick": Size(6_000, 600, 300, 100)}
N_SAMPLES, LEAST_BETWEEN = 500, 20
"""Samples of a course, and the learning steps between two of them where the life is short."""
LARGEST_PART = {"clipped": 5_000, "capped": 250, "plain": 5_000}
"""Most questions of one Horde. "capped" takes the plain engine: 1,000 take 3.3 ms of a core per step in one Horde, 2.4
to 3.0 ms in four, which can share the cores; smaller ones gain nothing."""
_STATES_LOOKED_AT = 60


class PolicyScores(NamedTuple):
    """Learning progress of n questions at four gammas, in S samples."""

    step: Integers  # learning steps at each sample, shape (S,)
    mspbe: NDArray[np.float32]  # scalar estimates of each question then, float32, shape (S, n); 0 after it diverged
    max_trace: Floats  # largest |e| so far of each gamma's questions, shape (S, 4)
    n_diverged: Integers  # questions of each gamma set aside so far, shape (S, 4)
    gamma: Floats  # of each question, shape (n,)
    is_sound: Bools  # whether a question was never set aside, shape (n,)
    seconds: float  # what learning took

    def of(self, which: Bools) -> PolicyScores:
        """Return the estimates of some of the questions; `which` has shape (n,)."""
        return self._replace(mspbe=self.mspbe[:, which], gamma=self.gamma[which], is_sound=self.is_sound[which])

    def first_part(self, steps: int) -> PolicyScores:
        """Return the samples of the first steps, at least one."""
        n = max(int(np.searchsorted(self.step, steps, side="right")), 1)
        return PolicyScores(self.step[:n], self.mspbe[:n], self.max_trace[:n], self.n_diverged[:n], *self[4:])


def asked(interface: Interface, seed: int, n: int) -> list[GVF]:
    """Return the questions that `horde learn --questions policies` asks with a seed."""
    return questions.policies(interface, np.random.default_rng([seed, 1]), n)


def horde_of(interface: Interface, gvfs: Sequence[GVF], trace_rule: str, mode: Mode = "deferred") -> Horde:
    """Return a Horde that has learned nothing, its kernels compiled; an eager one predicts on each step."""
    coder = interface.coder
    config = LearnerConfig(trace_rule=trace_rule, vector_mspbe=False)  # type: ignore[arg-type]
    horde = Horde(gvfs, n_features=coder.n_features, n_active=coder.n_active, config=config, mode=mode)
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


class Plan(NamedTuple):
    """What one process learns."""

    seed: int  # of the life and of the policies
    n: int  # policies of all parts together
    trace_rule: str  # as in `LearnerConfig`
    steps: int  # how much of the life is learned from
    part: Part  # which of the questions


def learn_part(on_progress: OnProgress, study: Study, life: Path, plan: Plan) -> PolicyScores:
    """Learn some of the questions from a life's first steps unless cached; a job for a worker process."""
    seed, n, rule, steps, part = plan

    def make() -> PolicyScores:
        interface = interface_of(study)
        horde = horde_of(interface, part.chosen(asked(interface, seed, n)), rule)
        return follow(TrainingData(read(life)[: steps + 1]), horde, interface, on_progress)

    name = f"policies-{n}-{rule}-{seed}-{part.k + 1}-of-{part.of}-by-gamma"
    settings: dict[str, Cell] = {"n": n, "rule": rule, "steps": steps, "part": repr(part)}
    return study.cached_arrays(PolicyScores, name, make, seed=seed, life=life.name, **settings)


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


# ---- all of it ------------------------------------------------------------------------------------------------------


class Data(NamedTuple):
    """The measurements."""

    few: dict[int, PolicyScores]  # the scores of a thousand questions, by seed
    many: PolicyScores  # the scores of ten thousand, on the first seed's life
    rules: dict[str, PolicyScores]  # those of a thousand there, by trace rule; each as long as `size.rules`
    cycles: dict[int, dict[str, float]]  # p50, p99 and max in milliseconds, by number of policies
    growth: Floats  # of each policy, see `growth_factors`
    size: Size  # durations


def gather(study: Study) -> Data:
    """Simulate the lives and learn from them; cached results are reused."""
    size, seeds, first = SIZES[study.scale], study.seeds, study.seeds[0]
    lived = record_lives(study, seeds, size.life, "behaviour")
    others = [rule for rule in LARGEST_PART if rule != "clipped"]
    courses = [(first, MANY, "clipped", size.many)]
    courses += [(first, FEW, rule, size.rules) for rule in others]
    courses += [(seed, FEW, "clipped", size.life) for seed in seeds]
    plans = [Plan(*c, part) for c in courses for part in parts_of(c[1], c[2])]
    learned = study.in_parallel([_job(study, lived[plan.seed], plan) for plan in plans])

    def course(*wanted: object) -> PolicyScores:
        return together([scores for plan, scores in zip(plans, learned, strict=True) if plan[:3] == wanted])

    def cycles(n: int) -> dict[str, float]:
        args = (study, first, lived[first], n, max(size.cycles * FEW // n, 50))
        [times] = study.in_parallel([Job(f"cycles of {n:,} policies", cycle_times, args)])  # alone, with all cores
        return dict(times)

    few = {seed: course(seed, FEW, "clipped") for seed in seeds}
    rules = {rule: course(first, FEW, rule) for rule in others}
    interface = interface_of(study)
    return Data(
        few,
        course(first, MANY, "clipped"),
        {rule: rules.get(rule) or few[first].first_part(size.rules) for rule in LARGEST_PART},
        {n: cycles(n) for n in (FEW, MANY)},
        growth_factors(interface, asked(interface, first, FEW), lived[first]),
        size,
    )


def _job(study: Study, life: Path, p: Plan) -> Job:
    name = f"{p.n:,} policies, {p.trace_rule}, life {p.seed}" + (f", part {p.part.k + 1}" if p.part.of > 1 else "")
    # "capped" is learned by the plain engine, which takes some twenty times as long.
    cost = p.n / p.part.of * p.steps * (20.0 if p.trace_rule == "capped" else 1.0)
    return Job(name, learn_part, (study, life, p), cost)
