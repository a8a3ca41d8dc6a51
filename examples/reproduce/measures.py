"""Experiment `measures`: RUPEE and UDE on the chain, on noise, on Baird's star and on the 795 questions.

The small problems are learned in independent runs at once, one per row of an array.

Source: White (2015), Developing a predictive approach to knowledge, chapter 7. No figure of the
thesis could be read: the claims are its shapes, with limits fixed before the run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from examples.reproduce import TUNING_SEED, chain
from examples.reproduce.chain import CHANGED, SETTLED
from examples.reproduce.checks import Measured, Number, at_least, below, check, numbers, within
from examples.reproduce.experiment import ExperimentContext, cached
from examples.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from examples.reproduce.lives import LifeSpec, compiled_horde, interface_of, simulate_lives
from examples.reproduce.runner import Job
from examples.reproduce.stats import join, mean_ci, rank_correlation
from examples.reproduce.training_data import TrainingData, latest_nmsre, learn, outcomes
from horde_agent.horde import LearnerConfig
from horde_agent.learning.rupee import UDE, UnbiasedTrace, rupee_beta0
from horde_agent.life.observers import sound_demons
from horde_agent.problems.classics import baird as star_problem
from horde_agent.questions import PAPER_LAMBDA, excursions
from horde_agent.record import read
from horde_agent.types import Bools, Floats, Integers

TITLE = "RUPEE and UDE"
GAMMA = 0.9


class MeasuredRuns:
    """Independent runs of GTD(0), one per row, with the RUPEE and the UDE of each.

    Args:
        theta: First weights, shape (n_runs, n).
        alpha, alpha_w: Step sizes; with alpha_w = 0 the rule is TD(0).
        square: ||phi||^2; alpha ||phi||^2 is White's alpha times the number of tilings.

    Source: White, Modayil & Sutton (2012), pseudo-code of GTD(lambda).
    """

    def __init__(self, theta: Floats, alpha: float, alpha_w: float, square: float) -> None:
        self.theta = theta.copy()
        self.w = np.zeros(theta.shape)
        self.alpha = alpha
        self.alpha_w = alpha_w
        self._h = np.zeros(theta.shape)
        self._d = UnbiasedTrace(theta.shape, rupee_beta0(alpha * square, 0.0))
        self.ude = UDE(len(theta), min(10.0 * alpha, 1.0))

    def learn(self, phi: Floats, phi_tp1: Floats, c: Any, gamma_tp1: Any, rho: Any) -> None:
        """Learn from a transition of each run: features (n_runs, n), all else a number or (n_runs,)."""
        delta = c + gamma_tp1 * dot(self.theta, phi_tp1) - dot(self.theta, phi)
        error = (rho * delta)[:, None] * phi
        e_w = rho * dot(self.w, phi)
        self.theta += self.alpha * (error - (gamma_tp1 * e_w)[:, None] * phi_tp1)
        self.w += self.alpha_w * (error - dot(self.w, phi)[:, None] * phi)
        self._h += 5.0 * self.alpha * (error - dot(self._h, phi)[:, None] * phi)
        self._d.update(error)
        self.ude.update(delta, np.broadcast_to(rho, delta.shape))

    @property
    def rupee(self) -> Floats:
        """RUPEE of each run, shape (n_runs,)."""
        return np.sqrt(np.abs(dot(self._h, self._d.value)))


def dot(a: Floats, b: Floats) -> Floats:
    """Return the scalar products of the rows of two arrays, (n_runs, n), shape (n_runs,)."""
    return np.asarray(np.einsum("ij,ij->i", a, b))


# ---- the chain ------------------------------------------------------------------------------------------------------

RHO = np.array(
    [
        (1 - chain.TARGET_RIGHT) / (1 - chain.BEHAVIOUR_RIGHT),
        chain.TARGET_RIGHT / chain.BEHAVIOUR_RIGHT,
    ]
)
"""pi / b of going left and right."""


class ChainCurves(NamedTuple):
    """Means over the runs after each episode, each (n_episodes + 1,): the true root MSPBE and the RUPEE."""

    true: Floats
    rupee: Floats


def chain_curves(seed: int, alpha_w: float, n_runs: int) -> ChainCurves:
    """Learn on the chain of the paper's first figure in independent runs; after episode 1,000 theta := U[0, 1]^5."""
    rng = np.random.default_rng([seed, 7])
    n = chain.N_STATES
    phi = np.vstack([chain.PHI, np.zeros(n)])  # the last row is the end
    runs = MeasuredRuns(np.zeros((n_runs, n)), chain.ALPHA, alpha_w, square=1.0)
    theta = np.zeros((n_runs, chain.N_EPISODES + 1, n))
    rupee = np.zeros((n_runs, chain.N_EPISODES + 1))
    state = np.full(n_runs, chain.MIDDLE)
    episode = np.zeros(n_runs, dtype=np.int64)
    while episode.min() < chain.N_EPISODES:
        is_right = rng.random(n_runs) < chain.BEHAVIOUR_RIGHT
        reached = state + 2 * is_right - 1
        is_over = (reached < 0) | (reached == n)
        runs.learn(
            phi[state],
            phi[np.where(is_over, n, reached)],
            c=reached == n,
            gamma_tp1=np.where(is_over, 0.0, GAMMA),
            rho=RHO[is_right.astype(int)],
        )
        state = np.where(is_over, chain.MIDDLE, reached)
        episode = episode + is_over
        ended = np.flatnonzero(is_over & (episode <= chain.N_EPISODES))
        theta[ended, episode[ended]] = runs.theta[ended]
        rupee[ended, episode[ended]] = runs.rupee[ended]
        changed = ended[episode[ended] == chain.CHANGE_AFTER]
        runs.theta[changed] = rng.random((len(changed), n))

    expected_values = chain.expectations(GAMMA)
    expected = theta @ expected_values.A.T + expected_values.b
    inverse = np.linalg.pinv(expected_values.C, hermitian=True)
    mspbe = np.einsum("rei,ij,rej->re", expected, inverse, expected)
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
    runs = MeasuredRuns(
        np.zeros((len(deviation), 1)), 0.1 / N_TILES, 1e-4 / N_TILES, square=N_TILES
    )
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
    runs = MeasuredRuns(np.tile(star.weights, (BAIRD_RUNS, 1)), BAIRD_ALPHA, 0.0, square=5.0)
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


class MeasuresSize(NamedTuple):
    """Steps of a life, learning step of the reset, learning steps between two looks, distance between two questions."""

    steps: int
    reset: int
    every: int
    stride: int


SIZES = {"paper": MeasuresSize(115_000, 40_000, 500, 1), "quick": MeasuresSize(3_000, 700, 50, 10)}
BETA0 = rupee_beta0(0.1, PAPER_LAMBDA)


class Tracking(NamedTuple):
    """RUPEE and NMSRE of the questions in one life."""

    at: Integers  # learning steps of the looks, shape (n_looks,)
    # Divided by the standard deviation of the question's returns, shape (n_looks, n_questions)
    rupee: Floats
    nmsre: Floats  # latest NMSRE, NaN before the first test, shape (n_looks, n_questions)
    judged: Bools  # which questions are sound and have returns that vary, shape (n_questions,)


@cached(Tracking)
def track(context: ExperimentContext, life: Path, size: MeasuresSize) -> Tracking:
    """Learn the questions from a life, and set theta to 0 at the reset."""
    interface = interface_of(context)
    training_data = TrainingData(read(life))
    questions = excursions(interface)[:: size.stride]
    horde = compiled_horde(interface, questions, config=LearnerConfig.paper(vector_mspbe=False))
    rupee = horde.new_rupee(BETA0)
    looks: list[tuple[int, Floats]] = []

    def look(n: int) -> None:
        if n == size.reset:
            horde.reset_weights()
        if n % size.every == 0:
            looks.append((n, rupee.value()))

    learned = learn(training_data, horde, interface, rupee=rupee, after=look)
    at, rupees = (np.array(column) for column in zip(*looks, strict=True))
    nmsre = latest_nmsre(training_data, questions, learned.predictions, at)
    deviation = np.full(len(questions), np.nan)
    for test in outcomes(training_data, questions, learned.predictions):
        deviation[test.policy.demons] = test.returns.std(axis=0)
    judged = sound_demons(horde) & (deviation > 1e-6)
    return Tracking(at, rupees / np.where(judged, deviation, 1.0), nmsre, judged)


class MeasuresResults(NamedTuple):
    """Everything that was measured."""

    chains: dict[str, list[ChainCurves]]  # the curves by rule, then seed
    noises: list[Noise]  # of each seed
    threshold: float  # the 99th percentile of the UDE under noise on the tuning seed
    bairds: list[Announced]  # of each seed
    tracked: list[Tracking]  # of each life
    size: MeasuresSize  # lengths


def run(context: ExperimentContext) -> tuple[MeasuresResults, dict[str, object]]:
    """Learn the small problems, and the questions from the lives."""
    size = SIZES[context.scale]
    recordings = simulate_lives(context, [LifeSpec(seed, size.steps) for seed in context.seeds])
    tracked = context.in_parallel(
        {s: Job(f"life {s}", track, (context, path, size)) for s, path in recordings.items()}
    )
    n_noise = NOISE_STEPS
    n_runs = chain.N_RUNS
    if context.is_quick:
        n_noise = NOISE_STEPS // 10
        n_runs = 20
    chains = {
        name: [chain_curves(seed, alpha_w, n_runs) for seed in context.seeds]
        for name, alpha_w in (("GTD(lambda)", chain.ALPHA_W), ("TD(lambda)", 0.0))
    }
    noises = [noise(seed, n_noise) for seed in context.seeds]
    threshold = float(np.percentile(noise(TUNING_SEED, n_noise).ude, 99))
    bairds = [baird(seed) for seed in context.seeds]
    return MeasuresResults(chains, noises, threshold, bairds, list(tracked.values()), size), {
        "tuning seed": TUNING_SEED,
        "steps of a life": size.steps,
        "learning step of the reset": size.reset,
        "RUPEE": "alpha_h = 5 alpha, beta0 = (1 - lambda) alpha tilings / 30",
        "UDE": "trace of rho delta at 10 alpha over its standard deviation so far",
        "chain": f"gamma {GAMMA:g}, lambda 0",
    }


# ---- checks ---------------------------------------------------------------------------------------------------------


def _follows(data: MeasuresResults, rule: str) -> list[Number]:
    curves = data.chains[rule]
    numbers = []
    for name, half in (("episodes 200-1000", SETTLED), ("after the reset", CHANGED)):
        ranks = [rank_correlation(c.rupee[half], c.true[half]) for c in curves]
        areas = [c.rupee[half].sum() / c.true[half].sum() for c in curves]
        numbers.append(Number(f"rank correlation, {name}", ranks, at_least(0.9)))
        numbers.append(Number(f"ratio of areas, {name}", areas, within(0.5, 2.0)))
    return numbers


@check(
    claim="On the chain RUPEE follows the true root MSPBE.",
    paper="shape only",
    source="chapter 7",
    terms="Means of 100 runs:",
)
def _rupee_agrees_with_gtd(data: MeasuresResults) -> list[Number]:
    return _follows(data, "GTD(lambda)")


@check(
    claim="RUPEE needs no GTD: it follows the root MSPBE of TD(lambda) as well.",
    paper="shape only",
    source="chapter 7",
    terms="Means of 100 runs:",
)
def _rupee_agrees_with_td(data: MeasuresResults) -> list[Number]:
    return _follows(data, "TD(lambda)")


def before_reset(data: MeasuresResults, life: Tracking) -> int:
    """Return the index of the last look before the reset."""
    return int(np.searchsorted(life.at, data.size.reset)) - 1


@check(
    claim="On the 795 questions RUPEE ranks the questions as the NMSRE does, and both fall.",
    paper="shape only",
    source="chapter 7",
    terms="Early is when every question was tested for the first time, late just before the reset:",
)
def _rupee_ranks_the_questions(data: MeasuresResults) -> Measured:
    ranks = []
    medians = []
    for life in data.tracked:
        last = before_reset(data, life)
        first = int(np.argmax(np.isfinite(life.nmsre[:, life.judged]).all(axis=1)))
        pairs = [
            (life.rupee[k, life.judged], np.sqrt(life.nmsre[k, life.judged])) for k in (first, last)
        ]
        ranks.append(rank_correlation(*pairs[1]))
        medians.append([[np.median(values) for values in pair] for pair in pairs])
    (rupee, error), (rupee_last, error_last) = np.mean(medians, axis=0)
    falls = {
        "median RUPEE, late over early": rupee_last / rupee,
        "median root NMSRE": error_last / error,
    }
    return Measured(
        [
            Number("rank correlation over the questions, late", ranks, at_least(0.5)),
            *numbers(falls, below(1.0)),
        ],
        f"Late medians {rupee_last:.3g} and {error_last:.3g}; RUPEE is divided by the deviation of the return.",
    )


@check(
    claim="RUPEE reacts to lost weights within 1/beta0 updates.",
    paper="shape only",
    source="chapter 7",
)
def _rupee_reacts_to_lost_weights(data: MeasuresResults) -> Measured:
    rises = []
    medians_after = []
    limit = at_least(1.5)
    for life in data.tracked:
        last = before_reset(data, life)
        curve = np.median(life.rupee[:, life.judged], axis=1)
        within_reach = curve[
            (life.at > data.size.reset) & (life.at <= data.size.reset + 1.0 / BETA0)
        ]
        rises.append(within_reach.max() / curve[last])
        reached = [k for k in range(last + 1, len(curve)) if limit.test(curve[k] / curve[last])]
        if reached:
            medians_after.append(life.at[reached[0]] - data.size.reset)
        else:
            medians_after.append(np.inf)
    description = f"largest median RUPEE within {1.0 / BETA0:,.0f} updates over the median before"
    return Measured(
        [Number(description, rises, limit)],
        f"The limit is reached after {join(medians_after, ',.0f')} updates.",
    )


@check(
    claim="Under pure noise UDE settles, and RUPEE has a floor proportional to the noise.",
    paper="shape only",
    source="chapter 7",
    terms=(
        f"The threshold is the 99th percentile under noise with seed {TUNING_SEED}; in the last "
        "quarter of the steps:"
    ),
)
def _ude_settles_under_noise(data: MeasuresResults) -> Measured:
    calm = [np.mean(noise_of_seed.ude < data.threshold) for noise_of_seed in data.noises]
    floor = np.mean([noise_of_seed.floor for noise_of_seed in data.noises], axis=0)
    slope = np.polyfit(np.log(DEVIATIONS), np.log(floor), 1)[0]
    share = f"share of runs and steps with a UDE below the threshold of {data.threshold:.3g}"
    slope_part = Number("slope of log RUPEE over log deviation", slope, within(0.9, 1.1), ".2f")
    return Measured(
        [Number(share, calm, at_least(0.95)), slope_part],
        f"RUPEE over the noise's deviation: {join(floor / DEVIATIONS, '.3f')} at deviations {join(DEVIATIONS, 'g')}.",
    )


@check(
    claim="Both announce the divergence of TD on Baird's star.",
    paper="shape only",
    source="chapter 7",
    terms=(
        f"Share of the runs in which it exceeds {TIMES:g} times its mean of the first 100 steps "
        "before a weight exceeds 1,000:"
    ),
    limit=at_least(1.0),
    form=".0%",
)
def _divergence_is_announced(data: MeasuresResults) -> Measured:
    limit = np.concatenate([measured.weight for measured in data.bairds])
    measured = {}
    sentences = []
    for name in ("rupee", "ude"):
        steps = np.concatenate([getattr(of_seed, name) for of_seed in data.bairds])
        in_time = (steps >= 0) & (steps < limit)
        measured[name.upper()] = in_time.mean()
        if in_time.any():
            sentences.append(f"{name.upper()} after {np.median(steps[in_time]):,.0f}")
    return Measured(
        measured,
        f"Median steps: {join([*sentences, f'a weight after {np.median(limit):,.0f}'])}.",
        "UDE is divided by the standard deviation of the whole past of rho delta, which grows with the errors: it "
        f"rises to at most {mean_ci([of_seed.ude_rise for of_seed in data.bairds])} times its start.",
    )


REMARKS = (
    "Claims about the 795 questions are of the simulated robot; the small problems are exact.",
    "The form is that of White (2015); published figures could not be read, so shapes alone are compared.",
)


# ---- figure and tables ----------------------------------------------------------------------------------------------


def pictures(data: MeasuresResults) -> dict[str, Picture]:
    """Draw RUPEE and the true root MSPBE on the chain, and RUPEE against the root NMSRE of every question."""
    canvas, (left, right) = new_canvas(9.0, 3.2, 2)
    for colour, (rule, curves) in zip(COLOURS, data.chains.items(), strict=False):
        left.plot(
            np.mean([c.true for c in curves], axis=0), color=colour, label=f"{rule}: root MSPBE"
        )
        left.plot(np.mean([c.rupee for c in curves], axis=0), ":", color=colour, label="its RUPEE")
    life = data.tracked[0]
    k = before_reset(data, life)
    right.plot(
        np.sqrt(life.nmsre[k, life.judged]), life.rupee[k, life.judged], ".", ms=3, color=COLOURS[0]
    )
    style_axes(left, "chain, mean of 100 runs", legend=True, xlabel="episodes", ylim=(0.0, None))
    labels = {"xlabel": "root NMSRE", "ylabel": "RUPEE / deviation of the return"}
    style_axes(
        right,
        "the 795 questions before the reset",
        legend=False,
        yscale="log",
        xlim=(0.0, 3.0),
        **labels,
    )
    caption = (
        "Left: RUPEE follows the true error, also after theta is replaced at episode 1,000. "
        "Right: one dot a question."
    )
    return {"measures": Picture(canvas, caption)}
