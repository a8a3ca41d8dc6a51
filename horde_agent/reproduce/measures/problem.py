"""RUPEE and UDE of runs on the chain, on noise and on Baird's star, and of the 795 questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_agent.horde import LearnerConfig
from horde_agent.life.observers import sound_demons
from horde_agent.measures.online import UDE, UnbiasedTrace, rupee_beta0
from horde_agent.problems.classics import baird as star_problem
from horde_agent.questions import PAPER_LAMBDA, excursions
from horde_agent.record import read
from horde_agent.reproduce import TUNING_SEED
from horde_agent.reproduce.chain import problem as chain
from horde_agent.reproduce.chain.problem import dot
from horde_agent.reproduce.experiment import ExperimentContext, cached
from horde_agent.reproduce.lives import LifeSpec, compiled_horde, interface_of, simulate_lives
from horde_agent.reproduce.runner import Job
from horde_agent.reproduce.training_data import TrainingData, latest_nmsre, learn, outcomes
from horde_agent.types import Bools, Floats, Integers

TITLE = "RUPEE and UDE"
GAMMA = 0.9


class Runs(chain.Runs):
    """The chain's runs with the RUPEE and the UDE of each; `square` is ||phi||^2.

    alpha ||phi||^2 is White's alpha times the number of tilings.
    """

    def __init__(self, theta: Floats, alpha: float, alpha_w: float, square: float) -> None:
        super().__init__(theta, alpha, alpha_w)
        self._h = np.zeros(theta.shape)
        self._d = UnbiasedTrace(theta.shape, rupee_beta0(alpha * square, 0.0))
        self.ude = UDE(len(theta), min(10.0 * alpha, 1.0))

    def learn(
        self, phi: Floats, phi_tp1: Floats, c: Any, gamma_tp1: Any, rho: Any
    ) -> tuple[Floats, Floats, Floats]:
        """Learn from a transition of each run, as in `chain.Runs`: features (n_runs, n), all else (n_runs,)."""
        delta, error, e_w = super().learn(phi, phi_tp1, c, gamma_tp1, rho)
        self._h += 5.0 * self.alpha * (error - dot(self._h, phi)[:, None] * phi)
        self._d.update(error)
        self.ude.update(delta, np.broadcast_to(rho, delta.shape))
        return delta, error, e_w

    @property
    def numbers(self) -> tuple[Floats, ...]:
        """Weights, shape (n_runs, n), and RUPEE of each run."""
        return self.theta, self.rupee

    @property
    def rupee(self) -> Floats:
        """RUPEE of each run, shape (n_runs,)."""
        return np.sqrt(np.abs(dot(self._h, self._d.value)))


# ---- the chain ------------------------------------------------------------------------------------------------------


class ChainCurves(NamedTuple):
    """Means over the runs after each episode, each (n_episodes + 1,): the true root MSPBE and the RUPEE."""

    true: Floats
    rupee: Floats


def chain_curves(seed: int, alpha_w: float, n_runs: int) -> ChainCurves:
    """Learn on the chain of the paper's first figure in independent runs; after episode 1,000 theta := U[0, 1]^5."""
    rng = np.random.default_rng([seed, 7])
    n = chain.N_STATES
    runs = Runs(np.zeros((n_runs, n)), chain.ALPHA, alpha_w, square=1.0)
    theta, rupee = chain.live(
        runs,
        GAMMA,
        lambda: rng.random(n_runs) < chain.BEHAVIOUR_RIGHT,
        lambda changed: rng.random((len(changed), n)),
    )
    expected_values = chain.expectations(GAMMA)
    expected = theta @ expected_values.A.T + expected_values.b
    mspbe = np.einsum(
        "rei,ij,rej->re", expected, np.linalg.pinv(expected_values.C, hermitian=True), expected
    )
    return ChainCurves(np.sqrt(mspbe).mean(axis=0), rupee.mean(axis=0))


# ---- noise and divergence -------------------------------------------------------------------------------------------

DEVIATIONS = (0.1, 0.3, 1.0, 3.0)
N_NOISY = 50
NOISE_STEPS = 20_000
N_TILES = 457


class Noise(NamedTuple):
    """Pure noise: the UDE of every run and step of the last quarter, and the mean RUPEE there by deviation, (4,)."""

    ude: Floats
    floor: Floats


def noise(seed: int, n_steps: int = NOISE_STEPS) -> Noise:
    """Predict white noise of several standard deviations by 457 features that are always active, as the robot's."""
    rng = np.random.default_rng([seed, 8])
    deviation = np.repeat(DEVIATIONS, N_NOISY)
    runs = Runs(np.zeros((len(deviation), 1)), 0.1 / N_TILES, 1e-4 / N_TILES, square=N_TILES)
    phi = np.full((len(deviation), 1), np.sqrt(N_TILES))
    ude = []
    rupee = np.zeros(len(deviation))
    for t in range(n_steps):
        runs.learn(phi, phi, deviation * rng.standard_normal(len(deviation)), 0.0, 1.0)
        if t >= 3 * n_steps // 4:
            ude.append(runs.ude.value())
            rupee += runs.rupee
    return Noise(np.array(ude), (rupee / len(ude)).reshape(len(DEVIATIONS), -1).mean(axis=1))


BAIRD_ALPHA = 2.0**-8
BAIRD_GAMMA = 0.99
BAIRD_RUNS = 10
BAIRD_STEPS = 20_000
LARGEST_WEIGHT = 1e3
TIMES = 10.0


class Announced(NamedTuple):
    """Step at which each first exceeds its limit in each run, -1 if it never does, each (n_runs,); the UDE's rise."""

    weight: Integers  # a weight exceeds 1e3
    rupee: Integers  # ten times the start
    ude: Integers
    ude_rise: float  # largest UDE over its start, of all runs


def baird(seed: int, n_steps: int = BAIRD_STEPS) -> Announced:
    """Run TD on Baird's star until a weight exceeds 1e3; the start of a measure is its mean in the first 100 steps.

    Source: Baird (1995), in the form of Ghiassian et al. (2020); rho is 7 or 0, and every reward 0.
    """
    rng = np.random.default_rng([seed, 9])
    star = star_problem()
    assert star.weights is not None, "TD starts away from the solution"
    runs = Runs(np.tile(star.weights, (BAIRD_RUNS, 1)), BAIRD_ALPHA, 0.0, square=5.0)
    state = np.full(BAIRD_RUNS, 6)
    samples = []
    for _ in range(n_steps):
        is_solid = rng.random(BAIRD_RUNS) < 1.0 / 7.0
        reached = np.where(is_solid, 6, rng.integers(6, size=BAIRD_RUNS))
        runs.learn(
            star.features[state],
            star.features[reached],
            0.0,
            BAIRD_GAMMA,
            np.where(is_solid, 7.0, 0.0),
        )
        state = reached
        samples.append((np.abs(runs.theta).max(axis=1), runs.rupee, runs.ude.value()))
        if samples[-1][0].min() > LARGEST_WEIGHT:
            break
    weight, rupee, ude = np.array(samples).swapaxes(0, 1)
    start = ude[:100].mean(axis=0)
    exceeds = (
        weight > LARGEST_WEIGHT,
        rupee > TIMES * rupee[:100].mean(axis=0),
        ude > TIMES * start,
    )
    first_weight, first_rupee, first_ude = (
        np.where(each.any(axis=0), each.argmax(axis=0), -1) for each in exceeds
    )
    return Announced(first_weight, first_rupee, first_ude, float((ude.max(axis=0) / start).max()))


# ---- the 795 questions ----------------------------------------------------------------------------------------------


class Size(NamedTuple):
    """Steps of a life, learning step of the reset, learning steps between two looks, distance between two questions."""

    steps: int
    reset: int
    every: int
    stride: int


SIZES = {"paper": Size(115_000, 40_000, 500, 1), "quick": Size(3_000, 700, 50, 10)}
BETA0 = rupee_beta0(0.1, PAPER_LAMBDA)


class Tracking(NamedTuple):
    """RUPEE and NMSRE of the questions in one life."""

    at: Integers  # learning steps of the looks, shape (n_looks,)
    # Divided by the standard deviation of the question's returns, shape (n_looks, n_questions)
    rupee: Floats
    nmsre: Floats  # latest NMSRE, NaN before the first test, shape (n_looks, n_questions)
    judged: Bools  # which questions are sound and have returns that vary, shape (n_questions,)


@cached(Tracking)
def track(context: ExperimentContext, life: Path, size: Size) -> Tracking:
    """Learn the questions from a life, and set theta to 0 at the reset."""
    interface = interface_of(context)
    lessons = TrainingData(read(life))
    questions = excursions(interface)[:: size.stride]
    horde = compiled_horde(interface, questions, config=LearnerConfig(vector_mspbe=False))
    rupee = horde.new_rupee(BETA0)
    looks: list[tuple[int, Floats]] = []

    def look(n: int) -> None:
        if n == size.reset:
            horde.reset_weights()
        if n % size.every == 0:
            looks.append((n, rupee.value()))

    learned = learn(lessons, horde, interface, rupee=rupee, after=look)
    at, rupees = (np.array(column) for column in zip(*looks, strict=True))
    nmsre = latest_nmsre(lessons, questions, learned.predictions, at)
    deviation = np.full(len(questions), np.nan)
    for test in outcomes(lessons, questions, learned.predictions):
        deviation[test.policy.demons] = test.returns.std(axis=0)
    judged = sound_demons(horde) & (deviation > 1e-6)
    return Tracking(at, rupees / np.where(judged, deviation, 1.0), nmsre, judged)


class Data(NamedTuple):
    """Everything that was measured."""

    chains: dict[str, list[ChainCurves]]  # the curves by rule, then seed
    noises: list[Noise]  # of each seed
    threshold: float  # the 99th percentile of the UDE under noise on the tuning seed
    bairds: list[Announced]  # of each seed
    tracked: list[Tracking]  # of each life
    size: Size  # lengths


def gather(context: ExperimentContext) -> tuple[Data, dict[str, object]]:
    """Learn the small problems, and the questions from the lives."""
    size = SIZES[context.scale]
    recordings = simulate_lives(context, [LifeSpec(seed, size.steps) for seed in context.seeds])
    tracked = context.in_parallel(
        {s: Job(f"life {s}", track, (context, path, size)) for s, path in recordings.items()}
    )
    n_noise, n_runs = (NOISE_STEPS // 10, 20) if context.is_quick else (NOISE_STEPS, chain.N_RUNS)
    chains = {
        name: [chain_curves(seed, alpha_w, n_runs) for seed in context.seeds]
        for name, alpha_w in (("GTD(lambda)", chain.ALPHA_W), ("TD(lambda)", 0.0))
    }
    noises = [noise(seed, n_noise) for seed in context.seeds]
    threshold = float(np.percentile(noise(TUNING_SEED, n_noise).ude, 99))
    bairds = [baird(seed) for seed in context.seeds]
    return Data(chains, noises, threshold, bairds, list(tracked.values()), size), {
        "tuning seed": TUNING_SEED,
        "steps of a life": size.steps,
        "learning step of the reset": size.reset,
        "RUPEE": "alpha_h = 5 alpha, beta0 = (1 - lambda) alpha tilings / 30",
        "UDE": "trace of rho delta at 10 alpha over its standard deviation so far",
        "chain": f"gamma {GAMMA:g}, lambda 0",
    }
