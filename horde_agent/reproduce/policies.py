"""Experiment `policies`: a thousand random Gibbs policies, and ten thousand, learned from one behaviour.

Progress is seen by the scalar MSPBE estimates alone: no policy is ever followed. Parts of the questions learn in
separate Hordes, which can share the cores. Demons are independent, so the results are the same.
Source: White, Modayil & Sutton (2012), section 6.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from numpy.typing import NDArray

from horde_agent import questions
from horde_agent.gvf import GVF
from horde_agent.horde import Horde, LearnerConfig, Mode
from horde_agent.interface import Interface
from horde_agent.life.observers import sound_demons
from horde_agent.life.student import encoder
from horde_agent.life.timing import Durations
from horde_agent.measures.trace_growth import trace_growth
from horde_agent.policies import Gibbs, StickyRandom
from horde_agent.record import read
from horde_agent.reproduce.experiment import Cell, Claims, Experiment, Figure, Finding, Table, join, mean_ci
from horde_agent.reproduce.figure import COLOURS, new_canvas, save, style_axes
from horde_agent.reproduce.lessons import TrainingData, learn
from horde_agent.reproduce.lives import LifeSpec, interface_of, new_horde, simulate_lives
from horde_agent.reproduce.study import Job, OnProgress, Study, cached, n_cores
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
    config = LearnerConfig(trace_rule=trace_rule, vector_mspbe=False)  # type: ignore[arg-type]
    horde = new_horde(interface, gvfs, config=config, mode=mode)
    warm_up(horde, interface)
    return horde


def part_of(gvfs: Sequence[GVF], k: int, n_parts: int) -> list[GVF]:
    """Return part k, from 0, of some questions, in the order of gamma.

    Both engines visit, for demons that lie side by side, what the longest of their traces needs.
    """
    by_gamma = np.argsort(gammas_of(gvfs), kind="stable")
    return [gvfs[i] for i in np.array_split(by_gamma, n_parts)[k]]


def gammas_of(gvfs: Sequence[GVF]) -> Floats:
    """Return the gamma of each question, shape (n,)."""
    return np.array([gvf.continuation for gvf in gvfs], dtype=np.float64)


class Plan(NamedTuple):
    """What one process learns."""

    seed: int  # of the life and of the policies
    n: int  # policies of all parts together
    trace_rule: str  # as in `LearnerConfig`
    steps: int  # how much of the life is learned from
    part: int  # which of the parts
    n_parts: int  # how many there are


@cached(PolicyScores)
def learn_part(on_progress: OnProgress, study: Study, life: Path, plan: Plan) -> PolicyScores:
    """Learn some of the questions from a life's first steps; a job for a worker process."""
    interface = interface_of(study)
    gvfs = part_of(asked(interface, plan.seed, plan.n), plan.part, plan.n_parts)
    horde = horde_of(interface, gvfs, plan.trace_rule)
    return follow(TrainingData(read(life)[: plan.steps + 1]), horde, interface, on_progress)


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


def together(parts: Sequence[PolicyScores]) -> PolicyScores:
    """Return the questions of several parts as one course."""
    return PolicyScores(
        parts[0].step,
        np.concatenate([c.mspbe for c in parts], axis=1),
        np.max([c.max_trace for c in parts], axis=0),
        np.sum([c.n_diverged for c in parts], axis=0),
        np.concatenate([c.gamma for c in parts]),
        np.concatenate([c.is_sound for c in parts]),
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
    lived = dict(zip(seeds, simulate_lives(study, _lives(study)), strict=True))
    others = [rule for rule in LARGEST_PART if rule != "clipped"]
    courses = [(first, MANY, "clipped", size.many)]
    courses += [(first, FEW, rule, size.rules) for rule in others]
    courses += [(seed, FEW, "clipped", size.life) for seed in seeds]
    n_parts = [-(-n // LARGEST_PART[rule]) for _, n, rule, _ in courses]
    plans = [Plan(*course, k, n) for course, n in zip(courses, n_parts, strict=True) for k in range(n)]
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
    name = f"{p.n:,} policies, {p.trace_rule}, life {p.seed}" + (f", part {p.part + 1}" if p.n_parts > 1 else "")
    # "capped" is learned by the plain engine, which takes some twenty times as long.
    cost = p.n / p.n_parts * p.steps * (20.0 if p.trace_rule == "capped" else 1.0)
    return Job(name, learn_part, (study, life, p), cost)


# ---- claims ----------------------------------------------------------------------------------------------------------


LAM = 0.9
FALLEN, SHARE_FALLEN = 0.5, 0.9
PAPER_CYCLE_MS, PERIOD_MS = 85.0, 100.0
W_SETTLES = 10_000
"""Learning steps after which w has moved: 1 / (alpha_w x active features) = 1 / (0.001 x 0.1)."""

# ---- what a fall is -------------------------------------------------------------------------------------------------


class Fall(NamedTuple):
    """How far estimates fell from their peaks."""

    of_mean: float  # mean over the questions in the last tenth of the course, over that mean's peak
    share: float  # share of the questions whose mean of the last tenth is nearer to 0 than half of their peak
    negative: float  # share of the questions with an estimate below 0 then, which no MSPBE is
    peak_at: int  # learning step of the mean's peak


def fall(course: PolicyScores) -> Fall:
    """Measure the fall over the questions that did not diverge; 0 if there are none."""
    curves = course.mspbe[:, course.is_sound].astype(np.float64)
    if not curves.shape[1]:
        return Fall(np.nan, 0.0, 0.0, 0)
    late = curves[-max(len(curves) // 10, 1) :].mean(axis=0)
    mean, peaks = curves.mean(axis=1), curves.max(axis=0)
    share = float((np.abs(late) < FALLEN * peaks).mean())
    negative = float((late < 0).mean())
    return Fall(float(late.mean() / mean.max()), share, negative, int(course.step[mean.argmax()]))


def _has_fallen(found: Fall) -> list[bool]:
    return [abs(found.of_mean) < FALLEN, found.share >= SHARE_FALLEN]


_FALL_RULE = (
    f"the mean over the questions ends (last tenth) nearer to 0 than {FALLEN:.0%} of its peak; at least "
    f"{SHARE_FALLEN:.0%} of the questions end nearer to 0 than half of their own peak; no question is set aside"
)


def _cause(falls: Sequence[Fall], n_steps: int) -> str:
    """Return what the estimates cannot say: nothing yet, or something below 0."""
    if n_steps < 3 * W_SETTLES:
        return f"{n_steps:,} steps are too few to judge: for some {W_SETTLES:,} the estimates still rise with w."
    negative = float(np.mean([found.negative for found in falls]))
    if negative < 0.05:
        return ""
    return (
        f"{negative:.0%} of the estimates end below 0, as no MSPBE is: the estimate takes w for settled, and w, with a "
        "thousandth of theta's step size, lags behind theta."
    )


# ---- claims ----------------------------------------------------------------------------------------------------------


def _n_diverged(course: PolicyScores) -> int:
    return int(course.n_diverged[-1].sum())


CLAIMS = Claims("section 6, last figure")


@CLAIMS.add(
    f"The estimates show learning progress for each of {FEW:,} policies.",
    "the curves provide a clear indication of learning progress for each prediction",
    f"For every seed {_FALL_RULE}.",
)
def _progress(data: Data) -> Finding:
    falls = [fall(course) for course in data.few.values()]
    n_diverged = sum(map(_n_diverged, data.few.values()))
    parts = [all(part) for part in zip(*(_has_fallen(f) for f in falls), strict=True)]
    return Finding(
        f"The mean ends at {mean_ci([f.of_mean for f in falls])} of its peak (at step "
        f"{join([f.peak_at for f in falls], ',')}); {mean_ci([100 * f.share for f in falls])} % of the questions end "
        f"nearer to 0 than half of their own; {n_diverged} set aside.",
        [*parts, n_diverged == 0],
        _cause(falls, data.size.life),
    )


@CLAIMS.add(
    f"{FEW:,} off-policy questions about as many policies are learned in real time.",
    f"a cycle of {PAPER_CYCLE_MS:g} ms on a 4-core desktop, within {PERIOD_MS:g} ms",
    f"p50 at most {PAPER_CYCLE_MS:g} ms, p99 at most {PERIOD_MS:g} ms.",
    source="section 6",
)
def _cycle(data: Data) -> Finding:
    times = data.cycles[FEW]
    return Finding(
        f"Coding the observation, learning and predicting: p50 {times['p50']:.2f} ms, p99 {times['p99']:.2f} ms, at "
        f"most {times['max']:.1f} ms, on {n_cores()} cores.",
        [times["p50"] <= PAPER_CYCLE_MS, times["p99"] <= PERIOD_MS],
    )


@CLAIMS.add(
    f"The same with {MANY:,} policies.",
    "significantly increased scaling can be obtained with more computational resources",
    f"On the first life {_FALL_RULE}; p99 of a cycle at most {PERIOD_MS:g} ms.",
    source="section 8",
)
def _many(data: Data) -> Finding:
    found, times, n_diverged = fall(data.many), data.cycles[MANY], _n_diverged(data.many)
    return Finding(
        f"The mean ends at {found.of_mean:.2f} of its peak (at step {found.peak_at:,}); {found.share:.1%} of the "
        f"questions end nearer to 0 than half of their own; {n_diverged} set aside. A cycle takes p50 "
        f"{times['p50']:.1f} ms, p99 {times['p99']:.1f} ms.",
        [*_has_fallen(found), n_diverged == 0, times["p99"] <= PERIOD_MS],
        _cause([found], data.size.many),
    )


@CLAIMS.add(
    "The pseudo-code's own trace learns them without divergence.",
    "GTD(lambda) as printed; no divergence is spoken of",
    "For each gamma no question is set aside under the trace rule plain.",
    source="sections 2 and 6",
)
def _plain(data: Data) -> Finding:
    growth = {gamma: np.median(data.growth) * (gamma * LAM) ** 2 for gamma in GAMMAS}
    plain = data.rules["plain"]
    aside, largest = plain.n_diverged[-1].tolist(), plain.max_trace[-1].tolist()
    return Finding(
        f"In {data.size.rules:,} steps, at gamma {join(GAMMAS, 'g')}: largest |e| {join(largest, ',.0f')}; set aside "
        f"{join(aside)} of {join((plain.gamma == g).sum() for g in GAMMAS)}.",
        [n == 0 for n in aside],
        "The second moment of the median policy's trace is multiplied per step by "
        + ", ".join(f"{factor:.2f} (gamma {gamma:g})" for gamma, factor in growth.items())
        + "; from 1 on its variance is infinite. clipped and capped bound the trace.",
    )


# ---- figures --------------------------------------------------------------------------------------------------------


_MOST_CURVES = 1_000


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw all pictures into a folder and return their entries."""
    return [
        _scores(next(iter(data.few.values())), folder / "mspbe-1000.png"),
        _scores(data.many, folder / "mspbe-10000.png"),
        _draw_traces(data.rules, folder / "traces.png"),
    ]


def _scores(course: PolicyScores, path: Path) -> Figure:
    canvas, (left, right) = new_canvas(12.0, 4.2, 2, sharex=True)
    n_shown = _draw_questions(left, course)
    _draw_means(right, course)
    legend = {"frameon": True, "framealpha": 0.8, "edgecolor": "none"}
    for axes, label, has_legend in ((left, "scalar MSPBE estimate", False), (right, "mean over its own peak", legend)):
        axes.axhline(0.0, color="0.35", linewidth=0.8)
        style_axes(axes, legend=has_legend, xlim=(0, course.step[-1]), xlabel="learning steps", ylabel=label)
    left.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    n = course.gamma.size
    shown = f"every one of {n:,} questions" if n_shown == n else f"{n_shown:,} of {n:,} questions"
    return save(
        canvas,
        path,
        f"The scalar MSPBE estimate of {shown}, each about a Gibbs policy of its own (left; black: the mean of all), "
        "and the mean of each gamma over that mean's own peak (right). The left axis leaves out a thousandth of the "
        "values at either end.",
    )


def _draw_questions(axes: Axes, course: PolicyScores) -> int:
    """Draw curves in the colour of their gamma and the mean; return how many."""
    sound = np.flatnonzero(course.is_sound)
    shown = sound[:: max(-(-sound.size // _MOST_CURVES), 1)]
    for gamma, colour in zip(GAMMAS, COLOURS, strict=False):
        mine = shown[course.gamma[shown] == gamma]
        curves = [np.column_stack([course.step, course.mspbe[:, k]]) for k in mine]
        axes.add_collection(LineCollection(curves, colors=colour, linewidths=0.5, alpha=0.18))
    low, high = np.quantile(course.mspbe[:, shown], [0.001, 0.999]) if shown.size else (0.0, 1.0)
    axes.set_ylim(min(low, 0.0), 1.05 * max(high, 1e-30))
    axes.plot(course.step, course.mspbe[:, sound].mean(axis=1), color="black", linewidth=2.6)
    return int(shown.size)


def _draw_means(axes: Axes, course: PolicyScores) -> None:
    shown = [(course.gamma == g, c, 1.3, f"gamma {g:g}") for g, c in zip(GAMMAS, COLOURS, strict=False)]
    for mine, colour, width, label in [*shown, (course.gamma >= 0, "black", 2.6, "all")]:
        chosen = course.is_sound & mine
        if chosen.any():
            mean = course.mspbe[:, chosen].mean(axis=1)
            axes.plot(course.step, mean / mean.max(), color=colour, linewidth=width, label=label)


def _draw_traces(rules: Mapping[str, PolicyScores], path: Path) -> Figure:
    canvas, panels = new_canvas(12.0, 3.2, len(GAMMAS), sharey=True)
    for k, (axes, gamma) in enumerate(zip(panels, GAMMAS, strict=True)):
        for colour, (rule, course) in zip(COLOURS, rules.items(), strict=False):
            axes.plot(course.step, course.max_trace[:, k], color=colour, linewidth=1.6, label=rule)
        style_axes(axes, f"gamma {gamma:g}", legend=k == 0, yscale="log", xlabel="learning steps")
        axes.locator_params(axis="x", nbins=4)
    panels[0].set_ylabel("largest |e| so far")
    return save(canvas, path, "The largest entry of any trace so far, under each trace rule, on the first life.")


# ---- tables ---------------------------------------------------------------------------------------------------------


def tables(data: Data) -> list[Table]:
    """Return the experiment's tables, in the order in which they are read."""
    return [_seeds(data), _cycles(data), _traces(data)]


def _seeds(data: Data) -> Table:
    rows: list[dict[str, Cell]] = []
    named = {f"{FEW:,}, seed {seed}": course for seed, course in data.few.items()}
    for name, course in {**named, f"{MANY:,}": data.many}.items():
        for gamma in (None, *GAMMAS):
            mine = course.of(np.full(course.gamma.shape, gamma is None) | (course.gamma == gamma))
            if not mine.gamma.size:
                continue
            found, sound = fall(mine), mine.mspbe[:, mine.is_sound]
            rows.append(
                {
                    "policies": name,
                    "gamma": "all" if gamma is None else f"{gamma:g}",
                    "questions": mine.gamma.size,
                    "peak of mean": float(sound.mean(axis=1).max()) if sound.size else None,
                    "at step": found.peak_at,
                    "end / peak": found.of_mean,
                    "% fallen": 100 * found.share,
                    "% below 0": 100 * found.negative,
                }
            )
    note = "Fallen: in the mean of the last tenth nearer to 0 than half of its own peak."
    return Table.of("Scalar MSPBE estimates", rows, note)


def _cycles(data: Data) -> Table:
    rows = [{"policies": n, **{key: times[key] for key in ("p50", "p99", "max")}} for n, times in data.cycles.items()]
    note = f"Measured here, on {n_cores()} cores; the paper reports {PAPER_CYCLE_MS:g} ms for {FEW:,} on 4."
    return Table.of("One cycle, in milliseconds: code the observation, learn, predict", rows, note)


def _traces(data: Data) -> Table:
    rows: list[dict[str, Cell]] = []
    for rule, course in data.rules.items():
        for k, gamma in enumerate(GAMMAS):
            mine = course.of(course.gamma == gamma)
            found = fall(mine)
            rows.append(
                {
                    "trace rule": rule,
                    "gamma": f"{gamma:g}",
                    "largest |e|": float(course.max_trace[-1, k]),
                    "set aside": int(course.n_diverged[-1, k]),
                    "questions": mine.gamma.size,
                    "end / peak": found.of_mean,
                    "% fallen": 100 * found.share,
                }
            )
    quantiles = np.quantile(data.growth, [0.05, 0.5, 0.95])
    said = "; ".join(f"gamma {g:g}: {join(quantiles * (g * LAM) ** 2, '.2f')}" for g in GAMMAS[1:])
    return Table.of(
        "Traces under each rule",
        rows,
        "Factor by which the second moment of a policy's plain trace grows per step (5 %, median, 95 % of the "
        f"policies): {said}. The last two columns as in the table of estimates; a capped trace belongs to no Bellman "
        "operator, so they do not estimate an MSPBE.",
    )


def settings(study: Study, data: Data) -> dict[str, Cell]:
    """Return everything needed to repeat the experiment."""
    return {
        "steps of each life, all of them learned from": data.size.life,
        "steps for the other trace rules": data.size.rules,
        f"steps for {MANY:,} policies": data.size.many,
        "policies": "60 of 30,325 parameters, each U[0, 1]",
        "gamma": join(GAMMAS, "g"),
        "lambda": LAM,
        "alpha": "0.1 / 457",
        "alpha_w": "0.001 alpha",
        "trace rule, w rule": "clipped, every-step",
        "tau of the estimates, in steps": 10_000,
        "seeds": study.seed_list,
    }


def _lives(study: Study) -> list[LifeSpec]:
    return [LifeSpec(seed, SIZES[study.scale].life, "behaviour") for seed in study.seeds]


REMARKS = [
    "Every question learns on every step: a Gibbs policy never gives an action no probability.",
    f"The estimates start at 0 and rise while w learns, for some {W_SETTLES:,} steps; a fall is measured from "
    "their peak. MSPBE estimates of different trace rules measure different objectives and are not compared.",
    "The trace rules are compared on the first life, over {data.size.rules:,} steps.",
]
TITLE = "A thousand policies, and ten thousand, learned from one behaviour"
EXPERIMENT = Experiment("policies", TITLE, gather, CLAIMS, pictures, tables, settings, REMARKS, _lives)
