"""Experiment `policies`: a thousand random Gibbs policies, and ten thousand, learned from one behaviour.

Progress is seen by the scalar MSPBE estimates alone: no policy is ever followed. Source: White, Modayil & Sutton
(2012), section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from horde_agent.learning.rules import TRACE_RULES
from horde_agent.reproduce.lives import LifeSpec, interface_of, quiet, record_lives
from horde_agent.reproduce.parallel import n_cores
from horde_agent.reproduce.policies.problem import (
    GAMMAS,
    Part,
    PolicyScores,
    asked,
    cycle_times,
    growth_factors,
    learn_part,
    parts_of,
    read_scores,
)
from horde_agent.reproduce.result import Cell, Claim, Result, Table, mean_ci, verdict
from horde_agent.reproduce.study import Job, Study
from horde_agent.types import Floats

NAME = "policies"
FEW, MANY = 1_000, 10_000
LAM = 0.9


class Size(NamedTuple):
    """How long things last, in learning steps: the lives, the other trace rules, the many policies, the timing."""

    life: int
    rules: int
    many: int
    cycles: int


SIZES = {"paper": Size(261_681, 261_681, 261_681, 2_000), "quick": Size(6_000, 600, 300, 100)}

FALLEN, SHARE_FALLEN = 0.5, 0.9
PAPER_CYCLE_MS, PERIOD_MS = 85.0, 100.0
W_SETTLES = 10_000
"""Learning steps after which w has moved: 1 / (alpha_w x active features) = 1 / (0.001 x 0.1)."""


class Data(NamedTuple):
    """The measurements.

    Attributes:
        few: The course of a thousand questions, by seed.
        many: The course of ten thousand, on the first seed's life.
        rules: The course of a thousand questions on the first seed's life, by trace rule; each as long as `rules`.
        cycles: p50, p99 and max in milliseconds, by number of policies.
        growth: Factor by which the second moment of each policy's plain trace grows per step, over (gamma lambda)^2.
    """

    few: dict[int, PolicyScores]
    many: PolicyScores
    rules: dict[str, PolicyScores]
    cycles: dict[int, dict[str, float]]
    growth: Floats


def run(study: Study) -> Result:
    """Do the experiment."""
    data, size = gather(study), SIZES[study.scale]
    from horde_agent.reproduce.policies.figure import scores_picture, traces_picture

    folder, first = study.folder(NAME), study.seeds[0]
    return Result(
        NAME,
        "A thousand policies, and ten thousand, learned from one behaviour",
        [fall_claim(data, size), cycle_claim(data), many_claim(data, size), plain_claim(data, size)],
        [
            scores_picture(data.few[first], folder / "mspbe-1000.png"),
            scores_picture(data.many, folder / "mspbe-10000.png"),
            traces_picture(data.rules, folder / "traces.png"),
        ],
        [seeds_table(data), cycle_table(data), traces_table(data)],
        settings={
            "steps of each life, all of them learned from": size.life,
            "steps for the other trace rules": size.rules,
            f"steps for {MANY:,} policies": size.many,
            "policies": "60 of 30,325 parameters, each U[0, 1]",
            "gamma": ", ".join(f"{gamma:g}" for gamma in GAMMAS),
            "lambda": LAM,
            "alpha": "0.1 / 457",
            "alpha_w": "0.001 alpha",
            "trace rule, w rule": "clipped, every-step",
            "tau of the estimates, in steps": 10_000,
            "seeds": study.seed_list,
        },
        remarks=[
            "Every question learns on every step: a Gibbs policy never gives an action no probability.",
            f"The estimates start at 0 and rise while w learns, for some {W_SETTLES:,} steps; a fall is measured from "
            "their peak. MSPBE estimates of different trace rules measure different objectives and are not compared.",
            f"The trace rules are compared on the first life, over {size.rules:,} steps.",
        ],
    )


def lives(study: Study) -> list[LifeSpec]:
    """Return the lives that the experiment learns from."""
    return [LifeSpec(seed, SIZES[study.scale].life, "behaviour") for seed in study.seeds]


def gather(study: Study) -> Data:
    """Simulate the lives and learn from them; cached results are reused."""
    size, seeds, first = SIZES[study.scale], study.seeds, study.seeds[0]
    lived = record_lives(study, seeds, size.life, "behaviour")
    others = [rule for rule in TRACE_RULES if rule != "clipped"]
    courses = [(first, MANY, "clipped", size.many)]
    courses += [(first, FEW, rule, size.rules) for rule in others]
    courses += [(seed, FEW, "clipped", size.life) for seed in seeds]
    plan = [Plan(*c, part) for c in courses for part in parts_of(c[1], c[2])]
    paths = study.in_parallel([_job(quiet(study), lived[p.seed], p) for p in plan])

    def course(seed: int, n: int, rule: str) -> PolicyScores:
        wanted = (seed, n, rule)
        return read_scores([path for p, path in zip(plan, paths, strict=True) if (p.seed, p.n, p.rule) == wanted])

    few = {seed: course(seed, FEW, "clipped") for seed in seeds}
    rules = {rule: course(first, FEW, rule) for rule in others}
    interface = interface_of(study)
    return Data(
        few,
        course(first, MANY, "clipped"),
        {rule: rules.get(rule) or _cut(few[first], size.rules) for rule in TRACE_RULES},
        {n: _cycles(study, lived[first], n, size.cycles) for n in (FEW, MANY)},
        growth_factors(interface, asked(interface, first, FEW), lived[first]),
    )


class Plan(NamedTuple):
    """What one process learns: see `learn_part`."""

    seed: int
    n: int
    rule: str
    steps: int
    part: Part


def _job(study: Study, life: Path, p: Plan) -> Job:
    name = f"{p.n:,} policies, {p.rule}, life {p.seed}" + (f", part {p.part.k + 1}" if p.part.of > 1 else "")
    # "capped" is learned by the plain engine, which takes some twenty times as long.
    cost = p.n / p.part.of * p.steps * (20.0 if p.rule == "capped" else 1.0)
    return Job(name, learn_part, (study, p.seed, life, p.n, p.rule, p.steps, p.part), cost)


def _cycles(study: Study, life: Path, n: int, cycles: int) -> dict[str, float]:
    """Time the cycle alone, with all cores."""
    few = max(cycles * FEW // n, 50)
    times: dict[str, float] = study.in_parallel(
        [Job(f"cycles of {n:,} policies", cycle_times, (study, study.seeds[0], life, n, few))]
    )[0]
    return times


def _cut(course: PolicyScores, steps: int) -> PolicyScores:
    """Return the first part of a course, at least one sample."""
    n = max(int(np.searchsorted(course.step, steps, side="right")), 1)
    return course._replace(
        step=course.step[:n], mspbe=course.mspbe[:n], max_trace=course.max_trace[:n], n_diverged=course.n_diverged[:n]
    )


# ---- what a fall is -------------------------------------------------------------------------------------------------


class Fall(NamedTuple):
    """How far estimates fell from their peaks.

    Attributes:
        of_mean: The mean over the questions in the last tenth of the course, over that mean's peak.
        share: Share of the questions with an estimate that, in the mean of the last tenth, is nearer to 0 than half
            of its peak.
        negative: Share of the questions with an estimate below 0 then, which no MSPBE is.
        peak_at: Learning step of the mean's peak.
    """

    of_mean: float
    share: float
    negative: float
    peak_at: int


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


# ---- verdicts -------------------------------------------------------------------------------------------------------


def fall_claim(data: Data, size: Size) -> Claim:
    """Judge the learning of a thousand questions."""
    falls = [fall(course) for course in data.few.values()]
    n_diverged = sum(int(course.n_diverged[-1].sum()) for course in data.few.values())
    parts = [all(part) for part in zip(*(_has_fallen(f) for f in falls), strict=True)]
    peaks = ", ".join(f"{f.peak_at:,}" for f in falls)
    return Claim(
        text=f"The estimates show learning progress for each of {FEW:,} policies.",
        source="section 6, last figure",
        paper="the curves provide a clear indication of learning progress for each prediction",
        measured=f"The mean ends at {mean_ci([f.of_mean for f in falls])} of its peak (at step {peaks}); "
        f"{mean_ci([100 * f.share for f in falls])} % of the questions end nearer to 0 than half of their own; "
        f"{n_diverged} set aside.",
        verdict=verdict([*parts, n_diverged == 0]),
        rule=f"For every seed {_FALL_RULE}.",
        cause=_cause(falls, size.life),
    )


def cycle_claim(data: Data) -> Claim:
    """Judge the time of a cycle."""
    times = data.cycles[FEW]
    return Claim(
        text=f"{FEW:,} off-policy questions about as many policies are learned in real time.",
        source="section 6",
        paper=f"a cycle of {PAPER_CYCLE_MS:g} ms on a 4-core desktop, within {PERIOD_MS:g} ms",
        measured=f"Coding the observation, learning and predicting: p50 {times['p50']:.2f} ms, p99 "
        f"{times['p99']:.2f} ms, at most {times['max']:.1f} ms, on {n_cores()} cores.",
        verdict=verdict([times["p50"] <= PAPER_CYCLE_MS, times["p99"] <= PERIOD_MS]),
        rule=f"p50 at most {PAPER_CYCLE_MS:g} ms, p99 at most {PERIOD_MS:g} ms.",
    )


def many_claim(data: Data, size: Size) -> Claim:
    """Judge ten thousand policies: what the paper leaves to more computing power."""
    found, times, n_diverged = fall(data.many), data.cycles[MANY], int(data.many.n_diverged[-1].sum())
    return Claim(
        text=f"The same with {MANY:,} policies.",
        source="section 8",
        paper="significantly increased scaling can be obtained with more computational resources",
        measured=f"The mean ends at {found.of_mean:.2f} of its peak (at step {found.peak_at:,}); {found.share:.1%} of "
        f"the questions end nearer to 0 than half of their own; {n_diverged} set aside. A cycle takes p50 "
        f"{times['p50']:.1f} ms, p99 {times['p99']:.1f} ms.",
        verdict=verdict([*_has_fallen(found), n_diverged == 0, times["p99"] <= PERIOD_MS]),
        rule=f"On the first life {_FALL_RULE}; p99 of a cycle at most {PERIOD_MS:g} ms.",
        cause=_cause([found], size.many),
    )


def plain_claim(data: Data, size: Size) -> Claim:
    """Judge the pseudo-code's own trace."""
    growth = {gamma: np.median(data.growth) * (gamma * LAM) ** 2 for gamma in GAMMAS}
    plain = data.rules["plain"]
    aside, largest = plain.n_diverged[-1].tolist(), plain.max_trace[-1].tolist()
    return Claim(
        text="The pseudo-code's own trace learns them without divergence.",
        source="sections 2 and 6",
        paper="GTD(lambda) as printed; no divergence is spoken of",
        measured=f"In {size.rules:,} steps, at gamma {', '.join(f'{g:g}' for g in GAMMAS)}: largest |e| "
        f"{', '.join(f'{e:,.0f}' for e in largest)}; set aside {', '.join(map(str, aside))} of "
        f"{', '.join(str((plain.gamma == g).sum()) for g in GAMMAS)}.",
        verdict=verdict([n == 0 for n in aside]),
        rule="For each gamma no question is set aside under the trace rule plain.",
        cause="The second moment of the median policy's trace is multiplied per step by "
        + ", ".join(f"{factor:.2f} (gamma {gamma:g})" for gamma, factor in growth.items())
        + "; from 1 on its variance is infinite. clipped and capped bound the trace.",
    )


# ---- tables ---------------------------------------------------------------------------------------------------------


def seeds_table(data: Data) -> Table:
    """Return the fall by seed and gamma."""
    rows: list[Sequence[Cell]] = []
    named = [(f"{FEW:,}, seed {seed}", course) for seed, course in data.few.items()]
    for name, course in [*named, (f"{MANY:,}", data.many)]:
        for gamma in (None, *GAMMAS):
            mine = np.ones(course.gamma.shape, dtype=bool) if gamma is None else course.gamma == gamma
            if not mine.any():
                continue
            found = fall(course._replace(mspbe=course.mspbe[:, mine], is_sound=course.is_sound[mine]))
            sound = mine & course.is_sound
            peak = float(course.mspbe[:, sound].mean(axis=1).max()) if sound.any() else None
            label = "all" if gamma is None else f"{gamma:g}"
            shares = 100 * found.share, 100 * found.negative
            rows.append([name, label, int(mine.sum()), peak, found.peak_at, found.of_mean, *shares])
    return Table(
        "Scalar MSPBE estimates",
        ("policies", "gamma", "questions", "peak of mean", "at step", "end / peak", "% fallen", "% below 0"),
        rows,
        "Fallen: in the mean of the last tenth nearer to 0 than half of its own peak.",
    )


def cycle_table(data: Data) -> Table:
    """Return the times of a cycle."""
    rows = [[n, times["p50"], times["p99"], times["max"]] for n, times in data.cycles.items()]
    return Table(
        "One cycle, in milliseconds: code the observation, learn, predict",
        ("policies", "p50", "p99", "max"),
        rows,
        f"Measured here, on {n_cores()} cores; the paper reports {PAPER_CYCLE_MS:g} ms for {FEW:,} on 4.",
    )


def traces_table(data: Data) -> Table:
    """Return the largest traces by rule and gamma."""
    rows: list[Sequence[Cell]] = []
    for rule, c in data.rules.items():
        for k, gamma in enumerate(GAMMAS):
            mine = c.gamma == gamma
            found = fall(c._replace(mspbe=c.mspbe[:, mine], is_sound=c.is_sound[mine]))
            counts = int(c.n_diverged[-1, k]), int(mine.sum())
            rows.append([rule, f"{gamma:g}", float(c.max_trace[-1, k]), *counts, found.of_mean, 100 * found.share])
    low, middle, high = np.quantile(data.growth, [0.05, 0.5, 0.95])
    said = "; ".join(
        f"gamma {g:g}: {low * (g * LAM) ** 2:.2f}, {middle * (g * LAM) ** 2:.2f}, {high * (g * LAM) ** 2:.2f}"
        for g in GAMMAS[1:]
    )
    return Table(
        "Traces under each rule",
        ("trace rule", "gamma", "largest |e|", "set aside", "questions", "end / peak", "% fallen"),
        rows,
        "Factor by which the second moment of a policy's plain trace grows per step (5 %, median, 95 % of the "
        f"policies): {said}. The last two columns as in the table of estimates; a capped trace belongs to no Bellman "
        "operator, so they do not estimate an MSPBE.",
    )
