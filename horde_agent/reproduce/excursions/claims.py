"""The paper's first experiment: 795 questions about five policies, learned off-policy and tested by excursions.

Each seed's life is simulated once and learned from under every rule. Compared with the paper's parameters: two
rules for w, three for the trace, larger alpha and smaller alpha_w, and the best off-line linear predictors.
Source: White, Modayil & Sutton (2012), section 4.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from horde_agent.reproduce.excursions.problem import (
    LARGER_STEPS,
    PAPER,
    SMALLER_RATIOS,
    STEPS,
    Data,
    Variant,
    VariantResult,
    fifth_medians,
    gather,
    largest_contributor,
    nan_mean,
    nan_median,
    not_monotonic,
    summary,
)
from horde_agent.reproduce.experiment import ClaimRule, Experiment, Finding
from horde_agent.reproduce.lives import LifeSpec
from horde_agent.reproduce.result import Cell, Table, join, mean_ci
from horde_agent.reproduce.study import Study

HALF, NEAR_HALF = 0.5, 0.1
SEVERAL = 0.01
CYCLE_MS = 100.0
MOST_EXPLAINED = 0.5
N_WORST = 10


def _together(values: Sequence[float]) -> str:
    return f" ({mean_ci(values)} over lives)" if len(values) > 1 else ""


def _per_step(data: Data) -> Finding:
    lives, n_actions = data.lives.values(), len(data.interface.actions)
    per_action = np.bincount(data.action, minlength=n_actions)
    means = [float(life.updates_by_action @ per_action / life.updates_by_action.sum()) for life in lives]
    expected = len(data.questions) / n_actions
    return Finding(
        f"{join(means, '.4g')} of {len(data.questions)} on average have rho > 0",
        [bool((per_action == expected).all()), *(abs(mean - expected) < 1e-9 for mean in means)],
        "" if expected == 159 else "another body has other numbers of sensors and actions",
    )


def _half_of_the_time(data: Data) -> Finding:
    lives = list(data.lives.values())
    tests = [life.in_excursions for life in lives]
    both = [life.in_excursions + life.in_drives for life in lives]
    return Finding(
        f"{join([life.n_steps for life in lives], ',')} samples; excursions {join(tests, '.1%')}, with the drives to "
        f"the centre {join(both, '.1%')}; {join([life.n_updates for life in lives], ',')} learning steps",
        [abs(float(np.mean(shares)) - HALF) <= NEAR_HALF for shares in (tests, both)],
        "five seconds of behaviour, five of excursion and two of driving would give 42 % and 58 %",
    )


def _in_real_time(data: Data) -> Finding:
    ms = [lesson.ms_per_update for lesson in data.main.values()]
    return Finding(
        f"{join(ms, '.2f')} ms per update of {len(data.questions)} questions, with tiles and tests",
        [value < CYCLE_MS for value in ms],
    )


def _nothing_diverges(data: Data) -> Finding:
    aside = [lesson.n_diverged for lesson in data.main.values()]
    traces = join([lesson.max_trace for lesson in data.main.values()], ".3g")
    return Finding(
        f"{join(aside)} of {len(data.questions)} set aside; largest trace entries {traces}", [n == 0 for n in aside]
    )


def _below_one(data: Data) -> Finding:
    found = [summary(lesson) for lesson in data.main.values()]
    means, holds = [s.mean for s in found], [s.mean < 1.0 for s in found]
    most = [(seed, largest_contributor(lesson, data.sensor)) for seed, lesson in data.main.items()]
    cause = "; ".join(
        f"seed {seed}: {c.sensor} carries {c.share:.0%} of the mean (its returns' variance is {c.variance:.1e}); "
        f"without it the mean is {c.mean_without:.2f}"
        for seed, c in most
    )
    return Finding(
        f"means {join(means, '.2f')}{_together(means)}; {join([s.below_1 for s in found], '.1%')} of the questions end "
        "below 1",
        holds,
        "" if all(holds) else cause,
    )


def _substantial(data: Data) -> Finding:
    medians = [summary(lesson).median for lesson in data.main.values()]
    return Finding(
        f"median NMSRE {join(medians, '.3f')}{_together(medians)}", [value < MOST_EXPLAINED for value in medians]
    )


def _learning_curve(data: Data) -> Finding:
    parts = {seed: fifth_medians(lesson.curves().mean(axis=1)) for seed, lesson in data.main.items()}
    halves = [bool(part[-1] < 0.5 * part[0]) for part in parts.values()]
    falls = bool((np.diff(np.mean(list(parts.values()), axis=0)) <= 0).all())
    curves = "; ".join(f"seed {seed}: {join(part, '.2g')}" for seed, part in parts.items())
    return Finding(
        f"medians of the mean curve over fifths of the tests: {curves}",
        [*halves, falls],
        "" if all(halves) and falls else "a single excursion from a rare state lifts the mean for some ten more",
    )


def _not_monotonic(data: Data) -> Finding:
    shares = [not_monotonic(lesson) for lesson in data.main.values()]
    return Finding(
        f"{join(shares, '.1%')} of the questions end above 1.2 times their own lowest fifth",
        [share >= SEVERAL for share in shares],
    )


def _averages(data: Data, variants: Sequence[Variant]) -> str:
    """Return each variant's median and mean in the first life; "none" if every question was set aside."""
    found = [summary(data.first(v)) for v in variants]
    medians, means = ([s.median for s in found], [s.mean for s in found])
    return f"medians {_or_none(medians)}, means {_or_none(means)}"


def _or_none(values: Sequence[float]) -> str:
    return join(f"{value:.3g}" if np.isfinite(value) else "none" for value in values)


def _larger_alpha(data: Data) -> Finding:
    aside = [data.first(v).n_diverged for v in LARGER_STEPS]
    return Finding(
        f"alpha x active features {join([v.step_size for v in LARGER_STEPS], 'g')}: {join(aside)} questions set aside; "
        f"{_averages(data, LARGER_STEPS)}",
        [n > 0 for n in aside],
    )


def _smaller_alpha_w(data: Data) -> Finding:
    aside = [data.first(v).n_diverged for v in SMALLER_RATIOS]
    cause = (
        f"under the trace rule {PAPER.trace_rule!r} traces stay small (largest entry {data.first().max_trace:.3g}), "
        f"and w matters little: at the paper's alpha_w the same life ends at {_averages(data, [PAPER])}"
    )
    return Finding(
        f"alpha_w / alpha {join([v.secondary_ratio for v in SMALLER_RATIOS], 'g')}: {join(aside)} questions set aside; "
        f"{_averages(data, SMALLER_RATIOS)}",
        [n > 0 for n in aside],
        "" if all(aside) else cause,
    )


def _plain_trace(data: Data) -> Finding:
    lessons = list(data.lessons[PAPER._replace(trace_rule="plain")].values())
    aside = [lesson.n_diverged for lesson in lessons]
    gammas = sorted({float(gamma) for lesson in lessons for gamma in data.gamma[~lesson.sound]})
    return Finding(
        f"trace rule plain: {join(aside)} of {len(data.questions)} set aside"
        f"{' at gamma ' if gammas else ''}{join(gammas, 'g')}; largest trace entries "
        f"{join([lesson.max_trace for lesson in lessons], '.3g')}",
        [n == 0 for n in aside],
        ""
        if not any(aside)
        else "rho is 10 where an action begins and 1.67 where it is repeated, so at gamma .8 the second moment of the "
        "trace is multiplied by .864 per step, and its third and fourth by 1.04 and 1.24: they are infinite",
    )


RULES = [
    ClaimRule(
        "Each time step updates exactly the learners whose policy matches the action: a fifth of them",
        "section 4",
        "exactly 159 of 795 learners",
        "on every learning step questions / actions learners have rho > 0",
        _per_step,
    ),
    ClaimRule(
        "Half of the time goes to test excursions",
        "section 4",
        "261,681 samples, half of the time spent on test excursions",
        "the share of the excursions, and that of excursions and drives, lie within .4 to .6",
        _half_of_the_time,
    ),
    ClaimRule(
        "Hundreds of off-policy predictions are learned within the robot's cycle of 100 ms",
        "section 4",
        "45 ms per cycle on a dual-core laptop",
        "an update takes less than 100 ms in every life",
        _in_real_time,
    ),
    ClaimRule(
        "No question diverges with one set of parameters for all",
        "section 4, figure 3",
        "no divergence was observed for any question",
        "in every life no question is set aside: no weight passes 1000 r_max / (1 - gamma)",
        _nothing_diverges,
    ),
    ClaimRule(
        "The average NMSRE over all questions finishes below 1",
        "section 4, figure 3",
        "the average of the NMSRE for all the questions finished below 1.0",
        "the mean of the final NMSRE is below 1 in every life",
        _below_one,
    ),
    ClaimRule(
        "A substantial portion of the variance in the returns is explained",
        "section 4",
        "a substantial portion of the variance in the returns is being explained by the predictions",
        "the median question leaves less than half of the variance unexplained in every life",
        _substantial,
    ),
    ClaimRule(
        "The mean NMSRE falls like a learning curve",
        "figure 3",
        "the return error has the typical exponential learning profile",
        "in every life the last fifth's median is below half of the first's, and the mean over lives falls from each "
        "fifth to the next",
        _learning_curve,
    ),
    ClaimRule(
        "Several individual curves are not monotonic",
        "figure 3",
        "several individual curves exhibit non-monotonic shape",
        "at least 1 % of the questions in every life",
        _not_monotonic,
    ),
    ClaimRule(
        "Larger alpha makes questions diverge",
        "section 4",
        "divergence was observed on earlier runs with larger values of alpha",
        "questions are set aside at each of the larger step sizes (all: reproduced; some of them: partly)",
        _larger_alpha,
    ),
    ClaimRule(
        "Smaller alpha_w makes questions diverge",
        "section 4",
        "divergence was observed on earlier runs with smaller values of alpha_w",
        "questions are set aside at each of the smaller ratios (all: reproduced; some of them: partly)",
        _smaller_alpha_w,
    ),
    ClaimRule(
        "The pseudo-code's own trace does not diverge either",
        "section 4, pseudo-code",
        "no divergence was observed; the pseudo-code does not bound its trace",
        "in every life no question is set aside under the trace rule plain",
        _plain_trace,
    ),
]

# ---- tables ---------------------------------------------------------------------------------------------------------


def tables(data: Data) -> list[Table]:
    """Return the experiment's tables, in the order in which they are read."""
    gammas = [f"{gamma:g}" for gamma in data.gamma]
    return [
        _by_seed(data),
        _by(data, "sensor group", data.group),
        _by(data, "policy", [data.interface.actions[a] for a in data.action]),
        _worst(data),
        _rules(data),
        _steps(data),
        _offline(data, "gamma", gammas),
        _offline(data, "sensor group", data.group),
    ]


def _by_seed(data: Data) -> Table:
    rows: list[dict[str, Cell]] = []
    for seed, lesson in data.main.items():
        found, most = summary(lesson), largest_contributor(lesson, data.sensor)
        rows.append(
            {
                "life": f"seed {seed}",
                "median": found.median,
                "mean": found.mean,
                "below 1": f"{found.below_1:.1%}",
                "set aside": lesson.n_diverged,
                "carried most by": f"{most.sensor}: {most.share:.0%}",
                "mean without it": most.mean_without,
                "medians of fifths": join(fifth_medians(lesson.curves().mean(axis=1)), ".2g"),
            }
        )
    note = "The last column: the mean curve's median in each fifth of the tests."
    return Table.of("Final NMSRE of each life", rows, note)


def _by(data: Data, what: str, label: Sequence[str]) -> Table:
    """Return the final NMSRE by a label and gamma: median and mean over the questions, means over the seeds."""
    rows: list[dict[str, Cell]] = []
    for name in dict.fromkeys(label):
        row: dict[str, Cell] = {what: name, "questions": label.count(name)}
        for gamma in np.unique(data.gamma):
            mine = (np.array(label) == name) & (data.gamma == gamma)
            nmsre = [lesson.nmsre[mine] for lesson in data.main.values()]
            row[f"median, gamma {gamma:g}"] = str(mean_ci([nan_median(values) for values in nmsre]))
            row[f"mean, gamma {gamma:g}"] = float(np.mean([nan_mean(values) for values in nmsre]))
        rows.append(row)
    return Table.of(f"Final NMSRE by {what} and gamma", rows)


def _worst(data: Data) -> Table:
    nmsre = np.array([lesson.nmsre for lesson in data.main.values()])
    variance = np.array([lesson.variance for lesson in data.main.values()]).mean(axis=0)
    worst = np.argsort(-np.nan_to_num(nmsre.mean(axis=0), nan=-1.0))[:N_WORST]
    rows: list[dict[str, Cell]] = [
        {
            "question": data.questions[i].name,
            **{f"seed {seed}": float(value) for seed, value in zip(data.main, nmsre[:, i], strict=True)},
            "variance of its returns": float(variance[i]),
        }
        for i in worst
    ]
    return Table.of("The worst questions: final NMSRE", rows)


def _rules(data: Data) -> Table:
    """Return the six pairs of rules, and how far their predictions lie from those of the paper's."""
    rows = [{"trace rule": v.trace_rule, "w rule": v.w_rule, **_compared(data, v)} for v in data.rules]
    return Table.of("Trace rules and w rules", rows, _aside_note(data))


def _steps(data: Data) -> Table:
    rows = [
        {"alpha x active": f"{v.step_size:g}", "alpha_w / alpha": f"{v.secondary_ratio:g}", **_compared(data, v)}
        for v in (PAPER, *LARGER_STEPS, *SMALLER_RATIOS)
    ]
    note = "All under the trace rule and the w rule of the default. " + _aside_note(data)
    return Table.of("Larger alpha, smaller alpha_w", rows, note)


def _compared(data: Data, variant: Variant) -> dict[str, Cell]:
    lessons = list(data.lessons[variant].values())
    found = [summary(lesson) for lesson in lessons]
    below_1 = float(np.mean([s.below_1 for s in found]))
    return {
        "lives": len(lessons),
        "median": str(mean_ci([s.median for s in found])),
        "mean": str(mean_ci([s.mean for s in found])),
        "below 1": f"{below_1:.1%}" if np.isfinite(below_1) else "-",
        "set aside (by gamma)": join(_aside(data, lesson) for lesson in lessons),
        "max trace": max(lesson.max_trace for lesson in lessons),
        "ms per update": float(np.mean([lesson.ms_per_update for lesson in lessons])),
    }


def _aside(data: Data, lesson: VariantResult) -> str:
    """Return how many questions were set aside in a life, and at which gammas."""
    gammas = data.gamma[~lesson.sound]
    by_gamma = "; ".join(f"{gamma:g}: {(gammas == gamma).sum()}" for gamma in np.unique(gammas))
    return f"{len(gammas)} ({by_gamma})" if len(gammas) else "0"


def _aside_note(data: Data) -> str:
    return (
        f"Lives in the order of the seeds {join(data.main)}; mean and median are of the questions that were not set "
        "aside. Times belong to the machine and its neighbours."
    )


def _offline(data: Data, what: str, label: Sequence[str]) -> Table:
    """Compare the demons with the best off-line predictors on the same held-out excursions."""
    held, first = data.offline.is_held_out, data.first()
    late = held & (np.arange(len(held)) >= len(held) // 2)
    scores = {
        "demons, as lived": first.score(late, last=False),
        "demons, last weights": first.score(held),
        "LSTD(lambda)": data.offline.lstd,
        "ridge regression": data.offline.ridge,
        "mean return": data.offline.mean,
    }
    rows: list[dict[str, Cell]] = []
    for name in [*dict.fromkeys(label), "all"]:
        mine = np.array([name in (own, "all") for own in label])
        averages = {who: f"{nan_median(s[mine]):.3g} / {nan_mean(s[mine]):.3g}" for who, s in scores.items()}
        rows.append({what: name, **averages})
    note = (
        "Median / mean over the questions of mean squared error over variance, on the "
        f"{int(held.sum())} held-out excursions of the first life (30 %). "
        f"As lived: the predictions made then, on the {int(late.sum())} of them in the second half. Last "
        "weights: what the weights at the end of the life predict; no excursion is learned from. LSTD: the demons' own "
        "equations, solved on the whole learning stream. Ridge regression is shown the returns of the other excursions."
    )
    return Table.of(f"How far from the best linear predictor, by {what}", rows, note)


def settings(study: Study, data: Data) -> dict[str, Cell]:
    """Return everything needed to repeat the experiment."""
    return {
        "steps of each life": STEPS[study.scale],
        "questions": len(data.questions),
        "alpha": f"{PAPER.step_size:g} / {data.interface.coder.n_active}",
        "alpha_w": f"{PAPER.secondary_ratio:g} alpha",
        "lambda": 0.9,
        "trace rule, w rule": f"{PAPER.trace_rule}, {PAPER.w_rule}",
        "seeds": study.seed_list,
        "excursions tested, by seed": join(life.n_tests for life in data.lives.values()),
    }


EXPERIMENT = Experiment(
    "excursions",
    "795 predictions about five policies, tested by excursions",
    gather,
    RULES,
    tables,
    settings,
    remarks=[
        "A life does not depend on what is learned from it, so every rule learns from the same lives.",
        "NMSRE is the trace of squared errors (10 excursions) over the variance of all returns of the question; "
        "questions set aside, because their weights passed every bound that an answer can need, are left out of means "
        "and medians and counted apart.",
        "A return has 50 terms, all under the target policy; the paper's sum has 51, its excursions have 50 steps.",
    ],
    lives=lambda study: [LifeSpec(seed, STEPS[study.scale]) for seed in study.seeds],
)
