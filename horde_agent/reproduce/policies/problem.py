"""Learning thousands of Gibbs policies from a life, and the time of a cycle."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent import questions
from horde_agent.gvf import GVF
from horde_agent.horde import Horde, LearnerConfig, Mode
from horde_agent.interface import Interface
from horde_agent.life.learner import encoder
from horde_agent.life.observers import sound_demons
from horde_agent.measures.trace_growth import trace_growth
from horde_agent.policies import Gibbs, StickyRandom
from horde_agent.record import read
from horde_agent.reproduce.lessons import TrainingData, learn
from horde_agent.reproduce.lives import LifeSpec, compiled_horde, interface_of, simulate_lives
from horde_agent.reproduce.study import Job, Study, cached
from horde_agent.types import Bools, Floats, Integers

TITLE = "A thousand policies, and ten thousand, learned from one behaviour"
FEW = 1_000
MANY = 10_000
LAM = 0.9
GAMMAS = (0.0, 0.5, 0.8, 0.95)


class Size(NamedTuple):
    """Durations in learning steps: of the lives, with the other trace rules, with the many policies, of the timing."""

    life: int
    rules: int
    many: int
    cycles: int


SIZES = {"paper": Size(261_681, 261_681, 261_681, 2_000), "quick": Size(6_000, 600, 300, 100)}
N_SAMPLES = 500
LEAST_BETWEEN = 20
"""Samples of a course, and the learning steps between two of them where the life is short."""
TRACE_RULES = ("clipped", "capped", "plain")
_STATES_LOOKED_AT = 60


class PolicyScores(NamedTuple):
    """Learning progress of n questions at four gammas, in S samples."""

    step: Integers  # learning steps at each sample, shape (S,)
    mspbe: NDArray[
        np.float32
    ]  # scalar estimates of each question then, float32, shape (S, n); 0 after it diverged
    max_trace: Floats  # largest |e| so far of each gamma's questions, shape (S, 4)
    n_diverged: Integers  # questions of each gamma set aside so far, shape (S, 4)
    gamma: Floats  # of each question, shape (n,)
    is_sound: Bools  # whether a question was never set aside, shape (n,)

    def of(self, which: Bools) -> PolicyScores:
        """Return the estimates of some of the questions; `which` has shape (n,)."""
        return self._replace(
            mspbe=self.mspbe[:, which], gamma=self.gamma[which], is_sound=self.is_sound[which]
        )


def asked(interface: Interface, seed: int, n: int) -> list[GVF]:
    """Return the questions that `horde learn --questions policies` asks with a seed."""
    return questions.policies(interface, np.random.default_rng([seed, 1]), n)


def horde_of(
    interface: Interface, gvfs: Sequence[GVF], trace_rule: str, mode: Mode = "deferred"
) -> Horde:
    """Return a Horde that has learned nothing, its kernels compiled; an eager one predicts on each step."""
    config = LearnerConfig(trace_rule=trace_rule, vector_mspbe=False)  # type: ignore[arg-type]
    return compiled_horde(interface, gvfs, config=config, mode=mode)


@cached(PolicyScores)
def learn_policies(
    study: Study, life: Path, seed: int, n: int, trace_rule: str, steps: int
) -> PolicyScores:
    """Learn the questions that belong to a seed from a life's first steps."""
    interface = interface_of(study)
    # Both engines visit, for demons that lie side by side, what the longest of their traces needs.
    gvfs = sorted(asked(interface, seed, n), key=attrgetter("continuation"))
    return follow(
        TrainingData(read(life)[: steps + 1]), horde_of(interface, gvfs, trace_rule), interface
    )


def follow(lessons: TrainingData, horde: Horde, interface: Interface) -> PolicyScores:
    """Learn from a life and sample the questions' scores on the way."""
    n_updates = int(lessons.n_learned[-1])
    interval = max(n_updates // N_SAMPLES, LEAST_BETWEEN)
    gamma = np.array([gvf.continuation for gvf in horde.questions], dtype=np.float64)
    members = [gamma == g for g in GAMMAS]
    samples: list[tuple[int, NDArray[np.float32], list[float], list[int]]] = []

    def after(n: int) -> None:
        if n % interval == 0 or n == n_updates:
            traces = horde.max_traces
            aside = ~sound_demons(horde)
            largest = [float(traces[mine].max(initial=0.0)) for mine in members]
            counts = [int(aside[mine].sum()) for mine in members]
            samples.append((n, horde.mspbe_scalar.astype(np.float32), largest, counts))

    learn(lessons, horde, interface, after=after)
    step, mspbe, max_trace, n_diverged = zip(*samples, strict=True)
    return PolicyScores(
        np.array(step),
        np.stack(mspbe),
        np.array(max_trace),
        np.array(n_diverged),
        gamma,
        sound_demons(horde),
    )


# ---- in real time ---------------------------------------------------------------------------------------------------


def cycle_times(study: Study, seed: int, life: Path, n: int, cycles: int) -> dict[str, float]:
    """Return p50, p99 and max in milliseconds of a cycle: code the observation, learn, predict, for n policies.

    One Horde, a prediction of every demon on every step, all threads: what the robot's 100 ms must
        hold.
    """
    interface = interface_of(study)
    horde = horde_of(interface, asked(interface, seed, n), "clipped", "eager")
    ms = learn(TrainingData(read(life)[: cycles + 1]), horde, interface).ms
    return {
        "p50": float(np.median(ms)),
        "p99": float(np.percentile(ms, 99)),
        "max": float(ms.max()),
    }


# ---- heavy traces ---------------------------------------------------------------------------------------------------


def growth_factors(interface: Interface, gvfs: Sequence[GVF], life: Path) -> Floats:
    """Return the factor by which the second moment of each policy's "plain" trace grows per step, (n_policies,).

    It is divided by (gamma lambda)^2. The policies look at the state, so pi(a)^2 is its mean over
    states of the life.
    """
    rows = read(life).rows
    encode = encoder(interface)
    chosen = np.linspace(0, len(rows) - 1, _STATES_LOOKED_AT).astype(int)
    states = [(o, encode(o)) for o in rows["observation"][chosen]]
    behaviour = StickyRandom(len(interface.actions)).transition_probabilities()
    factors = []
    for gvf in gvfs:
        policy = gvf.target_policy
        assert isinstance(policy, Gibbs), f"{gvf.name} is not about a Gibbs policy"
        squares = np.mean([policy.probabilities(o, tiles) ** 2 for o, tiles in states], axis=0)
        factors.append(trace_growth(np.sqrt(squares), behaviour, 1.0, 1.0))
    return np.array(factors)


class Data(NamedTuple):
    """The measurements."""

    few: dict[int, PolicyScores]  # the scores of a thousand questions, by seed
    many: PolicyScores  # the scores of ten thousand, on the first seed's life
    rules: dict[
        str, PolicyScores
    ]  # those of a thousand there, by trace rule; each as long as `size.rules`
    cycles: dict[int, dict[str, float]]  # p50, p99 and max in milliseconds, by number of policies
    growth: Floats  # of each policy, see `growth_factors`
    size: Size  # durations


def gather(study: Study) -> tuple[Data, dict[str, object]]:
    """Simulate the lives and learn from them; cached results are reused."""
    size = SIZES[study.scale]
    seeds = study.seeds
    first = study.seeds[0]
    recordings = simulate_lives(study, [LifeSpec(seed, size.life, "behaviour") for seed in seeds])
    many = (first, MANY, "clipped", size.many)
    rules = {rule: (first, FEW, rule, size.rules) for rule in TRACE_RULES}
    few = {seed: (seed, FEW, "clipped", size.life) for seed in seeds}
    # "capped" is learned by the plain engine, which takes some twenty times as long.
    jobs = {
        plan: Job(
            f"{n:,} policies, {rule}, life {seed}",
            learn_policies,
            (study, recordings[seed], *plan),
            n * steps * (20.0 if rule == "capped" else 1.0),
        )
        for plan in (many, *rules.values(), *few.values())
        for seed, n, rule, steps in [plan]
    }
    results = study.in_parallel(jobs)

    def cycles(n: int) -> dict[str, float]:
        args = (study, first, recordings[first], n, max(size.cycles * FEW // n, 50))
        job = Job(f"cycles of {n:,} policies", cycle_times, args)
        return dict(study.in_parallel({n: job})[n])  # alone, with all cores

    interface = interface_of(study)
    data = Data(
        {seed: results[plan] for seed, plan in few.items()},
        results[many],
        {rule: results[plan] for rule, plan in rules.items()},
        {n: cycles(n) for n in (FEW, MANY)},
        growth_factors(interface, asked(interface, first, FEW), recordings[first]),
        size,
    )
    return data, {
        "steps of each life, all of them learned from": size.life,
        "steps for the other trace rules": size.rules,
        f"steps for {MANY:,} policies": size.many,
        "policies": "60 of 30,325 parameters, each U[0, 1]",
        "gamma": GAMMAS,
        "lambda": LAM,
        "alpha": "0.1 / 457",
        "alpha_w": "0.001 alpha",
        "trace rule, w rule": "clipped, every-step",
        "tau of the estimates, in steps": 10_000,
    }
