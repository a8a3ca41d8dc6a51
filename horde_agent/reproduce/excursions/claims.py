"""Claims about 795 questions: cost, accuracy, divergence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from horde_agent.reproduce.claims import (
    Claims,
    Finding,
    Part,
    above,
    at_least,
    at_most,
    below,
    within,
)
from horde_agent.reproduce.excursions import problem
from horde_agent.reproduce.excursions.problem import Data, Summary, Variant, VariantResult
from horde_agent.reproduce.stats import join

CLAIMS = Claims("section 4")


@CLAIMS.add(
    "Each time step updates exactly the learners whose policy matches the action: a fifth of them",
    "exactly 159 of 795 learners",
)
def _per_step(data: Data) -> Finding:
    per_action = np.bincount(data.action, minlength=len(data.interface.actions))
    expected = float(per_action.mean())
    counts = [life.updates_by_action for life in data.lives.values()]
    means = [float(n @ per_action / n.sum()) for n in counts]
    parts = [
        Part("most questions about an action", per_action.max(), within(expected, expected), ".4g"),
        Part(
            "mean number of questions with rho > 0",
            means,
            within(expected - 1e-9, expected + 1e-9).in_each(),
            ".4g",
        ),
    ]
    cause = "another body has other numbers of sensors and actions"
    if expected == 159:
        cause = ""
    return Finding(parts, cause=cause)


@CLAIMS.add(
    "Half of the time goes to test excursions",
    "261,681 samples, half of the time spent on test excursions",
)
def _half_of_the_time(data: Data) -> Finding:
    lives = list(data.lives.values())
    half = within(0.4, 0.6)
    return Finding(
        [
            Part("share of excursions", [life.in_excursions for life in lives], half),
            Part(
                "share of excursions and of drives to the centre",
                [life.in_excursions + life.in_drives for life in lives],
                half,
            ),
        ],
        f"Samples {join([life.n_steps for life in lives], ',')}; learning steps "
        f"{join([life.n_updates for life in lives], ',')}.",
        "five seconds of behaviour, five of excursion and two of driving would give 42 % and 58 %",
    )


@CLAIMS.add(
    "Hundreds of off-policy predictions are learned within the robot's cycle of 100 ms",
    "45 ms per cycle on a dual-core laptop",
)
def _in_real_time(data: Data) -> list[Part]:
    ms = [lesson.ms_per_update for lesson in data.main.values()]
    return [Part("ms per update, with tiles and tests", ms, below(100.0).in_each(), ".2f")]


def _aside(lessons: Sequence[VariantResult]) -> list[int]:
    return [lesson.n_diverged for lesson in lessons]


def _none_aside(lessons: Sequence[VariantResult]) -> list[Part]:
    return [Part("questions set aside", _aside(lessons), at_most(0).in_each(), ",.0f")]


def _largest_traces(lessons: Sequence[VariantResult]) -> str:
    return f"Largest trace entries {join([lesson.max_trace for lesson in lessons], '.3g')}."


@CLAIMS.add(
    "No question diverges with one set of parameters for all",
    "no divergence was observed for any question",
    "Set aside is a question with a weight beyond 1000 r_max / (1 - gamma):",
    source="section 4, figure 3",
)
def _nothing_diverges(data: Data) -> Finding:
    lessons = list(data.main.values())
    return Finding(_none_aside(lessons), _largest_traces(lessons))


@CLAIMS.add(
    "The average NMSRE over all questions finishes below 1",
    "the average of the NMSRE for all the questions finished below 1.0",
    source="section 4, figure 3",
)
def _below_one(data: Data) -> Finding:
    summaries = [Summary.of(lesson.nmsre) for lesson in data.main.values()]
    most = [
        (seed, problem.largest_contributor(lesson, data.channels))
        for seed, lesson in data.main.items()
    ]
    cause = "; ".join(
        f"seed {seed}: {c.sensor} carries {c.share:.0%} of the mean (its returns' variance is {c.variance:.1e}); "
        f"without it the mean is {c.mean_without:.2f}"
        for seed, c in most
    )
    return Finding(
        [Part("mean of the final NMSRE", [s.mean for s in summaries], below(1.0).in_each())],
        f"{join([s.below_1 for s in summaries], '.1%')} of the questions end below 1.",
        cause,
    )


@CLAIMS.add(
    "A substantial portion of the variance in the returns is explained",
    "a substantial portion of the variance in the returns is being explained by the predictions",
)
def _substantial(data: Data) -> list[Part]:
    medians = [Summary.of(lesson.nmsre).median for lesson in data.main.values()]
    return [Part("median of the final NMSRE", medians, below(0.5).in_each())]


@CLAIMS.add(
    "The mean NMSRE falls like a learning curve",
    "the return error has the typical exponential learning profile",
    "Medians of the mean curve in fifths of the tests:",
    source="figure 3",
)
def _learning_curve(data: Data) -> Finding:
    fifths = [problem.fifth_medians(lesson.curves().mean(axis=1)) for lesson in data.main.values()]
    curves = "; ".join(
        f"seed {seed}: {join(each, '.2g')}" for seed, each in zip(data.main, fifths, strict=True)
    )
    rise = np.diff(np.mean(fifths, axis=0)).max()
    return Finding(
        [
            Part(
                "last fifth over the first",
                [each[-1] / each[0] for each in fifths],
                below(0.5).in_each(),
            ),
            Part("largest rise from a fifth to the next, mean of the lives", rise, at_most(0.0)),
        ],
        f"Fifths: {curves}.",
        "a single excursion from a rare state lifts the mean for some ten more",
    )


@CLAIMS.add(
    "Several individual curves are not monotonic",
    "several individual curves exhibit non-monotonic shape",
    source="figure 3",
)
def _not_monotonic(data: Data) -> list[Part]:
    shares = [problem.not_monotonic(lesson) for lesson in data.main.values()]
    return [
        Part(
            "share of questions that end above 1.2 times their lowest fifth",
            shares,
            at_least(0.01).in_each(),
        )
    ]


def _averages(data: Data, variants: Sequence[Variant]) -> str:
    """Return each variant's median and mean in the first life; "none" if every question was set aside."""
    summaries = [Summary.of(data.first(variant).nmsre) for variant in variants]
    medians, means = (
        join(f"{value:.3g}" if np.isfinite(value) else "none" for value in values)
        for values in ([s.median for s in summaries], [s.mean for s in summaries])
    )
    return f"medians {medians}, means {means}"


def _diverging(
    data: Data, setting: str, values: Sequence[float], variants: Sequence[Variant]
) -> Finding:
    aside = _aside([data.first(variant) for variant in variants])
    return Finding(
        [
            Part(
                f"questions set aside at {setting} {join(values, 'g')}",
                aside,
                above(0).in_each(),
                ",.0f",
            )
        ],
        f"In the first life {_averages(data, variants)}.",
    )


@CLAIMS.add(
    "Larger alpha makes questions diverge",
    "divergence was observed on earlier runs with larger values of alpha",
)
def _larger_alpha(data: Data) -> Finding:
    sizes = [variant.step_size for variant in problem.LARGER_STEPS]
    return _diverging(data, "alpha x active features", sizes, problem.LARGER_STEPS)


@CLAIMS.add(
    "Smaller alpha_w makes questions diverge",
    "divergence was observed on earlier runs with smaller values of alpha_w",
)
def _smaller_alpha_w(data: Data) -> Finding:
    cause = (
        f"under the trace rule {problem.PAPER.trace_rule!r} traces stay small (largest entry "
        f"{data.first().max_trace:.3g}), and w matters little: at the paper's alpha_w the same life ends at "
        f"{_averages(data, [problem.PAPER])}"
    )
    ratios = [variant.secondary_ratio for variant in problem.SMALLER_RATIOS]
    return _diverging(data, "alpha_w / alpha", ratios, problem.SMALLER_RATIOS)._replace(cause=cause)


@CLAIMS.add(
    "The pseudo-code's own trace does not diverge either",
    "no divergence was observed; the pseudo-code does not bound its trace",
    "Under the trace rule plain:",
    source="section 4, pseudo-code",
)
def _plain_trace(data: Data) -> Finding:
    lessons = list(data.lessons[problem.PAPER._replace(trace_rule="plain")].values())
    gammas = sorted({float(gamma) for lesson in lessons for gamma in data.gamma[~lesson.sound]})
    return Finding(
        _none_aside(lessons),
        f"{f'At gamma {join(gammas)}. ' if gammas else ''}{_largest_traces(lessons)}",
        "rho is 10 where an action begins and 1.67 where it is repeated, so at gamma .8 the second moment of the "
        "trace is multiplied by .864 per step, and its third and fourth by 1.04 and 1.24: they are infinite",
    )


REMARKS = [
    'The paper has no offsets: they are 0, except in the row with offset "mean" and step size 0.05, the defaults of '
    "`horde learn`.",
    "A life does not depend on what is learned from it, so every rule learns from the same lives.",
    "NMSRE is the trace of squared errors (10 excursions) over the variance of all returns of the question; "
    "questions set aside, because their weights passed every bound that an answer can need, are left out of means "
    "and medians and counted apart.",
    "A return has 50 terms, all under the target policy; the paper's sum has 51, its excursions have 50 steps.",
]
