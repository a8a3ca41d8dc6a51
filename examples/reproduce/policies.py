"""Experiment `policies`: a thousand random Gibbs policies, and ten thousand, learned from one behaviour.

Progress is seen by the scalar MSPBE estimates alone: no policy is ever followed. Parts of the
questions learn in separate Hordes, which can share the cores. Demons are independent, so the
results are the same.

Source: White, Modayil & Sutton (2012), section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from numpy.typing import NDArray

from examples.reproduce.checks import Measured, Number, at_least, at_most, below, check
from examples.reproduce.experiment import ExperimentContext, Table, cached
from examples.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from examples.reproduce.lives import LifeSpec, compiled_horde, interface_of, simulate_lives
from examples.reproduce.runner import Job, n_cores
from examples.reproduce.stats import join
from examples.reproduce.training_data import TrainingData, learn
from horde_agent import questions
from horde_agent.gvf import GVF
from horde_agent.horde import Horde, LearnerConfig, Mode
from horde_agent.interface import Interface
from horde_agent.life.learner import encoder
from horde_agent.life.observers import sound_demons
from horde_agent.policies import Gibbs, StickyRandom
from horde_agent.record import read
from horde_agent.scoring.trace_growth import trace_growth
from horde_agent.types import Bools, Floats, Integers

TITLE = "A thousand policies, and ten thousand, learned from one behaviour"
FEW = 1_000
MANY = 10_000
LAM = 0.9
GAMMAS = (0.0, 0.5, 0.8, 0.95)


class PoliciesSize(NamedTuple):
    """Durations in learning steps: of the lives, with the other trace rules, with the many policies, of the timing."""

    life: int
    rules: int
    many: int
    cycles: int


SIZES = {
    "paper": PoliciesSize(261_681, 261_681, 261_681, 2_000),
    "quick": PoliciesSize(6_000, 600, 300, 100),
}
N_SAMPLES = 500
LEAST_BETWEEN = 20
"""Samples of a course, and the learning steps between two of them where the life is short."""
TRACE_RULES = ("clipped", "capped", "plain")
_STATES_LOOKED_AT = 60


class PolicyCourse(NamedTuple):
    """Learning progress of n questions at four gammas, in S samples."""

    step: Integers  # learning steps at each sample, shape (S,)
    # Scalar estimates of each question then, float32, shape (S, n); 0 after it diverged
    mspbe: NDArray[np.float32]
    max_trace: Floats  # largest |e| so far of each gamma's questions, shape (S, 4)
    n_diverged: Integers  # questions of each gamma set aside so far, shape (S, 4)
    gamma: Floats  # of each question, shape (n,)
    is_sound: Bools  # whether a question was never set aside, shape (n,)

    def of(self, which: Bools) -> PolicyCourse:
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
    config = LearnerConfig.paper(trace_rule=trace_rule, vector_mspbe=False)
    return compiled_horde(interface, gvfs, config=config, mode=mode)


@cached(PolicyCourse)
def learn_policies(
    context: ExperimentContext, life: Path, seed: int, n: int, trace_rule: str, steps: int
) -> PolicyCourse:
    """Learn the questions that belong to a seed from a life's first steps."""
    interface = interface_of(context)
    # Both engines visit, for demons that lie side by side, what the longest of their traces needs.
    gvfs = sorted(asked(interface, seed, n), key=attrgetter("continuation"))
    return follow(
        TrainingData(read(life)[: steps + 1]), horde_of(interface, gvfs, trace_rule), interface
    )


def follow(training_data: TrainingData, horde: Horde, interface: Interface) -> PolicyCourse:
    """Learn from a life and sample the questions' scores on the way."""
    n_updates = int(training_data.n_learned[-1])
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

    learn(training_data, horde, interface, after=after)
    step, mspbe, max_trace, n_diverged = zip(*samples, strict=True)
    return PolicyCourse(
        np.array(step),
        np.stack(mspbe),
        np.array(max_trace),
        np.array(n_diverged),
        gamma,
        sound_demons(horde),
    )


# ---- in real time ---------------------------------------------------------------------------------------------------


def cycle_times(
    context: ExperimentContext, seed: int, life: Path, n: int, cycles: int
) -> dict[str, float]:
    """Return p50, p99 and max in milliseconds of a cycle: code the observation, learn, predict, for n policies.

    One Horde with a prediction of every demon on every step and all threads, as within the robot's
    100 ms.
    """
    interface = interface_of(context)
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


class PoliciesResults(NamedTuple):
    """The measurements."""

    few: dict[int, PolicyCourse]  # the scores of a thousand questions, by seed
    many: PolicyCourse  # the scores of ten thousand, on the first seed's life
    # Those of a thousand there, by trace rule; each as long as `size.rules`
    rules: dict[str, PolicyCourse]
    cycles: dict[int, dict[str, float]]  # p50, p99 and max in milliseconds, by number of policies
    growth: Floats  # of each policy, see `growth_factors`
    size: PoliciesSize  # durations


def run(context: ExperimentContext) -> tuple[PoliciesResults, dict[str, object]]:
    """Simulate the lives and learn from them; cached results are reused."""
    size = SIZES[context.scale]
    seeds = context.seeds
    first = context.seeds[0]
    recordings = simulate_lives(context, [LifeSpec(seed, size.life, "behaviour") for seed in seeds])
    many = (first, MANY, "clipped", size.many)
    rules = {rule: (first, FEW, rule, size.rules) for rule in TRACE_RULES}
    few = {seed: (seed, FEW, "clipped", size.life) for seed in seeds}
    # "capped" is learned by the plain engine, which takes some twenty times as long.
    jobs = {
        plan: Job(
            f"{n:,} policies, {rule}, life {seed}",
            learn_policies,
            (context, recordings[seed], *plan),
            n * steps * (20.0 if rule == "capped" else 1.0),
        )
        for plan in (many, *rules.values(), *few.values())
        for seed, n, rule, steps in [plan]
    }
    results = context.in_parallel(jobs)

    def cycles(n: int) -> dict[str, float]:
        args = (context, first, recordings[first], n, max(size.cycles * FEW // n, 50))
        job = Job(f"cycles of {n:,} policies", cycle_times, args)
        return dict(context.in_parallel({n: job})[n])  # alone, with all cores

    interface = interface_of(context)
    data = PoliciesResults(
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


# ---- checks ---------------------------------------------------------------------------------------------------------

PAPER_CYCLE_MS = 85.0
PERIOD_MS = 100.0
W_SETTLES = 10_000
"""Learning steps after which w has moved: 1 / (alpha_w x active features) = 1 / (0.001 x 0.1)."""


class Fall(NamedTuple):
    """How far estimates fell from their peaks."""

    of_mean: float  # mean over the questions in the last tenth of the course, over that mean's peak
    # Share of the questions whose mean of the last tenth is nearer to 0 than half of their peak
    share: float
    negative: float  # share of the questions with an estimate below 0 then, which no MSPBE is
    peak_at: int  # learning step of the mean's peak


def fall(course: PolicyCourse) -> Fall:
    """Measure the fall over the questions that did not diverge; 0 if there are none."""
    curves = course.mspbe[:, course.is_sound].astype(np.float64)
    if not curves.shape[1]:
        return Fall(np.nan, 0.0, 0.0, 0)
    late = curves[-max(len(curves) // 10, 1) :].mean(axis=0)
    mean = curves.mean(axis=1)
    peaks = curves.max(axis=0)
    share = float((np.abs(late) < 0.5 * peaks).mean())
    return Fall(
        float(late.mean() / mean.max()),
        share,
        float((late < 0).mean()),
        int(course.step[mean.argmax()]),
    )


_TERMS = "In the last tenth, by the life that is farthest from the limit:"


def _fallen(courses: Sequence[PolicyCourse], n_steps: int) -> Measured:
    falls = [fall(course) for course in courses]
    cause = ""
    negative = float(np.mean([each.negative for each in falls]))
    if n_steps < 3 * W_SETTLES:
        cause = f"{n_steps:,} steps are too few to judge: for some {W_SETTLES:,} the estimates still rise with w."
    elif negative >= 0.05:
        cause = (
            f"{negative:.0%} of the estimates end below 0, as no MSPBE is: the estimate takes w for settled, and w, "
            "with a thousandth of theta's step size, lags behind theta."
        )
    return Measured(
        [
            Number(
                "|mean of the estimates| over its peak",
                np.max(np.abs([f.of_mean for f in falls])),
                below(0.5),
            ),
            Number(
                "share of questions nearer to 0 than half of their peak",
                min(f.share for f in falls),
                at_least(0.9),
            ),
            Number(
                "questions set aside",
                sum(course.n_diverged[-1].sum() for course in courses),
                at_most(0),
            ),
        ],
        f"Ends over peaks {join([f.of_mean for f in falls], '.3g')}, shares {join([f.share for f in falls], '.1%')}; "
        f"the mean's peak is at step {join([f.peak_at for f in falls], ',')}.",
        cause,
    )


@check(
    claim=f"The estimates show learning progress for each of {FEW:,} policies.",
    paper="the curves provide a clear indication of learning progress for each prediction",
    source="section 6, last figure",
    terms=_TERMS,
)
def _estimates_show_progress(data: PoliciesResults) -> Measured:
    return _fallen(list(data.few.values()), data.size.life)


@check(
    claim=f"{FEW:,} off-policy questions about as many policies are learned in real time.",
    paper=f"a cycle of {PAPER_CYCLE_MS:g} ms on a 4-core desktop, within {PERIOD_MS:g} ms",
    source="section 6",
    terms="Coding the observation, learning and predicting, in ms:",
)
def _cycle_is_in_real_time(data: PoliciesResults) -> Measured:
    times = data.cycles[FEW]
    return Measured(
        [
            Number("p50", times["p50"], at_most(PAPER_CYCLE_MS)),
            Number("p99", times["p99"], at_most(PERIOD_MS)),
        ],
        f"At most {times['max']:.1f} ms, on {n_cores()} cores.",
    )


@check(
    claim=f"The same with {MANY:,} policies.",
    paper="significantly increased scaling can be obtained with more computational resources",
    source="section 8",
    terms=_TERMS,
)
def _many_policies_show_progress(data: PoliciesResults) -> Measured:
    finding = _fallen([data.many], data.size.many)
    return finding._replace(
        numbers=[
            *finding.numbers,
            Number("p99 of a cycle in ms", data.cycles[MANY]["p99"], at_most(PERIOD_MS)),
        ],
        note=f"{finding.note} p50 of a cycle {data.cycles[MANY]['p50']:.1f} ms.",
    )


@check(
    claim="The pseudo-code's own trace learns them without divergence.",
    paper="GTD(lambda) as printed; no divergence is spoken of",
    source="sections 2 and 6",
    terms="Under the trace rule plain:",
    limit=at_most(0),
    form=".0f",
)
def _plain_trace_does_not_diverge(data: PoliciesResults) -> Measured:
    growth = {gamma: np.median(data.growth) * (gamma * LAM) ** 2 for gamma in GAMMAS}
    plain = data.rules["plain"]
    aside = {
        f"questions set aside at gamma {g:g}": n
        for g, n in zip(GAMMAS, plain.n_diverged[-1], strict=True)
    }
    return Measured(
        aside,
        f"By gamma: {join((plain.gamma == g).sum() for g in GAMMAS)} questions, largest |e| "
        f"{join(plain.max_trace[-1], ',.0f')} in {data.size.rules:,} steps.",
        "The second moment of the median policy's trace is multiplied per step by "
        + ", ".join(f"{factor:.2f} (gamma {gamma:g})" for gamma, factor in growth.items())
        + "; from 1 on its variance is infinite. clipped and capped bound the trace.",
    )


REMARKS = [
    "Every question learns on every step: a Gibbs policy never gives an action no probability.",
    f"The estimates start at 0 and rise while w learns, for some {W_SETTLES:,} steps; a fall is measured from "
    "their peak. MSPBE estimates of different trace rules measure different objectives and are not compared.",
    "The trace rules are compared on the first life.",
]


# ---- figure and tables ----------------------------------------------------------------------------------------------

_MOST_CURVES = 1_000


def pictures(data: PoliciesResults) -> dict[str, Picture]:
    """Draw the estimates of the first life's questions, and of the many."""
    return {"mspbe-1000": _scores(next(iter(data.few.values()))), "mspbe-10000": _scores(data.many)}


def _scores(course: PolicyCourse) -> Picture:
    canvas, (left, right) = new_canvas(12.0, 4.2, 2, sharex=True)
    n_shown = _draw_questions(left, course)
    _draw_means(right, course)
    legend = {"frameon": True, "framealpha": 0.8, "edgecolor": "none"}
    for axes, label, has_legend in (
        (left, "scalar MSPBE estimate", False),
        (right, "mean over its own peak", legend),
    ):
        axes.axhline(0.0, color="0.35", linewidth=0.8)
        style_axes(
            axes,
            legend=has_legend,
            xlim=(0, course.step[-1]),
            xlabel="learning steps",
            ylabel=label,
        )
    left.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    n = course.gamma.size
    if n_shown == n:
        shown = f"every one of {n:,} questions"
    else:
        shown = f"{n_shown:,} of {n:,} questions"
    caption = (
        f"The scalar MSPBE estimate of {shown}, each about a Gibbs policy of its own (left; black: the mean of all), "
        "and the mean of each gamma over that mean's own peak (right). The left axis leaves out a thousandth of the "
        "values at either end."
    )
    return Picture(canvas, caption)


def _draw_questions(axes: Axes, course: PolicyCourse) -> int:
    """Draw curves in the colour of their gamma and the mean; return how many."""
    sound = np.flatnonzero(course.is_sound)
    shown = sound[:: max(-(-sound.size // _MOST_CURVES), 1)]
    for gamma, colour in zip(GAMMAS, COLOURS, strict=False):
        demons = shown[course.gamma[shown] == gamma]
        curves = [np.column_stack([course.step, course.mspbe[:, k]]) for k in demons]
        axes.add_collection(LineCollection(curves, colors=colour, linewidths=0.5, alpha=0.18))
    low, high = np.quantile(course.mspbe[:, shown], [0.001, 0.999]) if shown.size else (0.0, 1.0)
    axes.set_ylim(min(low, 0.0), 1.05 * max(high, 1e-30))
    axes.plot(course.step, course.mspbe[:, sound].mean(axis=1), color="black", linewidth=2.6)
    return int(shown.size)


def _draw_means(axes: Axes, course: PolicyCourse) -> None:
    shown = [
        (course.gamma == g, c, 1.3, f"gamma {g:g}") for g, c in zip(GAMMAS, COLOURS, strict=False)
    ]
    for mine, colour, width, label in [*shown, (course.gamma >= 0, "black", 2.6, "all")]:
        chosen = course.is_sound & mine
        if chosen.any():
            mean = course.mspbe[:, chosen].mean(axis=1)
            axes.plot(course.step, mean / mean.max(), color=colour, linewidth=width, label=label)


def tables(data: PoliciesResults) -> list[Table]:
    """Return the experiment's tables, in the order in which they are read."""
    return [_seeds(data), _cycles(data), _traces(data)]


def _seeds(data: PoliciesResults) -> Table:
    rows = []
    named = {f"{FEW:,}, seed {seed}": course for seed, course in data.few.items()}
    for (name, course), gamma in product(
        {**named, f"{MANY:,}": data.many}.items(), (None, *GAMMAS)
    ):
        group = course.of(np.full(course.gamma.shape, gamma is None) | (course.gamma == gamma))
        if not group.gamma.size:
            continue
        falls = fall(group)
        sound = group.mspbe[:, group.is_sound]
        rows.append(
            {
                "policies": name,
                "gamma": "all" if gamma is None else f"{gamma:g}",
                "questions": group.gamma.size,
                "peak of mean": sound.mean(axis=1).max() if sound.size else None,
                "at step": falls.peak_at,
                "end / peak": falls.of_mean,
                "% fallen": 100 * falls.share,
                "% below 0": 100 * falls.negative,
            }
        )
    note = "Fallen: in the mean of the last tenth nearer to 0 than half of its peak."
    return Table.of("Scalar MSPBE estimates", rows, note)


def _cycles(data: PoliciesResults) -> Table:
    rows = [
        {"policies": n, **{key: times[key] for key in ("p50", "p99", "max")}}
        for n, times in data.cycles.items()
    ]
    note = f"Measured here, on {n_cores()} cores; the paper reports {PAPER_CYCLE_MS:g} ms for {FEW:,} on 4."
    return Table.of("One cycle, in milliseconds: code the observation, learn, predict", rows, note)


def _traces(data: PoliciesResults) -> Table:
    rows = []
    for (rule, course), (k, gamma) in product(data.rules.items(), enumerate(GAMMAS)):
        group = course.of(course.gamma == gamma)
        falls = fall(group)
        rows.append(
            {
                "trace rule": rule,
                "gamma": f"{gamma:g}",
                "largest |e|": course.max_trace[-1, k],
                "set aside": course.n_diverged[-1, k],
                "questions": group.gamma.size,
                "end / peak": falls.of_mean,
                "% fallen": 100 * falls.share,
            }
        )
    quantiles = np.quantile(data.growth, [0.05, 0.5, 0.95])
    factors = "; ".join(
        f"gamma {g:g}: {join(quantiles * (g * LAM) ** 2, '.2f')}" for g in GAMMAS[1:]
    )
    note = (
        "Factor by which the second moment of a policy's plain trace grows per step (5 %, median, 95 % of the "
        f"policies): {factors}. The last two columns as in the table of estimates; a capped trace belongs "
        "to no Bellman operator, so they do not estimate an MSPBE."
    )
    return Table.of("Traces under each rule", rows, note)
