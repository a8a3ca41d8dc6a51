"""The paper's first experiment: 795 questions about five policies, learned off-policy and tested by excursions.

Each seed's life is simulated once and learned from under every rule. Compared with the paper's parameters: two
rules for w, three for the trace, larger alpha and smaller alpha_w, and the best off-line linear predictors.
Source: White, Modayil & Sutton (2012), section 4.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from horde_agent.reproduce.excursions.problem import (
    PAPER,
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
    over_lives,
    summary,
)
from horde_agent.reproduce.lives import LifeSpec
from horde_agent.reproduce.result import Cell, Claim, Table, verdict
from horde_agent.reproduce.study import Result, Study
from horde_agent.types import Bools


def run(study: Study) -> Result:
    """Do the experiment."""
    data = gather(study)
    # matplotlib is loaded here, after the work, and only in the process that draws.
    from horde_agent.reproduce.excursions.figure import pictures

    return Result(
        "excursions",
        "795 predictions about five policies, tested by excursions",
        claims(data),
        pictures(data, study.folder("excursions")),
        tables(data),
        settings={
            "steps of each life": STEPS[study.scale],
            "questions": len(data.questions),
            "alpha": f"{PAPER.step_size:g} / {data.interface.coder.n_active}",
            "alpha_w": f"{PAPER.secondary_ratio:g} alpha",
            "lambda": 0.9,
            "trace rule, w rule": f"{PAPER.trace_rule}, {PAPER.w_rule}",
            "seeds": study.seed_list,
            "excursions tested, by seed": ", ".join(str(time.n_tests) for time in data.times.values()),
        },
        remarks=remarks(),
    )


def remarks() -> list[str]:
    """Return remarks on how to read the figures."""
    return [
        "A life does not depend on what is learned from it, so every rule learns from the same lives.",
        "NMSRE is the trace of squared errors (10 excursions) over the variance of all returns of the question; "
        "questions set aside, because their weights passed every bound that an answer can need, are left out of means "
        "and medians and counted apart.",
        "A return has 50 terms, all under the target policy; the paper's sum has 51, its excursions have 50 steps.",
    ]


def lives(study: Study) -> list[LifeSpec]:
    """Return the lives that the experiment learns from."""
    return [LifeSpec(seed, STEPS[study.scale]) for seed in study.seeds]


SECTION = "section 4"
HALF, NEAR_HALF = 0.5, 0.1
SEVERAL = 0.01
CYCLE_MS = 100.0
MOST_EXPLAINED = 0.5


def claims(data: Data) -> list[Claim]:
    """Return the claims in the order of the paper."""
    return [
        _per_step(data),
        _half_of_the_time(data),
        _in_real_time(data),
        _nothing_diverges(data),
        _below_one(data),
        _substantial(data),
        _learning_curve(data),
        _not_monotonic(data),
        _larger_alpha(data),
        _smaller_alpha_w(data),
        _plain_trace(data),
    ]


def _together(values: Sequence[float]) -> str:
    return f" ({over_lives(values)} over lives)" if len(values) > 1 else ""


def _percents(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.1%}" for value in values)


def _per_step(data: Data) -> Claim:
    action = next(iter(data.main.values())).action
    per_action = np.bincount(action, minlength=len(data.interface.actions))
    means = [float(t.updates_by_action @ per_action / t.updates_by_action.sum()) for t in data.times.values()]
    expected = len(data.questions) / len(data.interface.actions)
    return Claim(
        "Each time step updates exactly the learners whose policy matches the action: a fifth of them",
        SECTION,
        "exactly 159 of 795 learners",
        f"{', '.join(f'{mean:.4g}' for mean in means)} of {len(data.questions)} on average have rho > 0",
        verdict([bool((per_action == expected).all()), *(abs(mean - expected) < 1e-9 for mean in means)]),
        "on every learning step questions / actions learners have rho > 0",
        "" if expected == 159 else "another body has other numbers of sensors and actions",
    )


def _half_of_the_time(data: Data) -> Claim:
    times = list(data.times.values())
    tests = [time.in_excursions for time in times]
    both = [time.in_excursions + time.in_drives for time in times]
    near = [abs(float(np.mean(shares)) - HALF) <= NEAR_HALF for shares in (tests, both)]
    return Claim(
        "Half of the time goes to test excursions",
        SECTION,
        "261,681 samples, half of the time spent on test excursions",
        f"{', '.join(f'{t.n_steps:,}' for t in times)} samples; excursions {_percents(tests)}, with the drives to "
        f"the centre {_percents(both)}; {', '.join(f'{t.n_updates:,}' for t in times)} learning steps",
        verdict(near),
        "the share of the excursions, and that of excursions and drives, lie within .4 to .6",
        "five seconds of behaviour, five of excursion and two of driving would give 42 % and 58 %",
    )


def _in_real_time(data: Data) -> Claim:
    ms = [1e3 * lesson.seconds / lesson.n_updates for lesson in data.main.values()]
    return Claim(
        "Hundreds of off-policy predictions are learned within the robot's cycle of 100 ms",
        SECTION,
        "45 ms per cycle on a dual-core laptop",
        f"{', '.join(f'{value:.2f}' for value in ms)} ms per update of {len(data.questions)} questions, with tiles and "
        "tests",
        verdict([value < CYCLE_MS for value in ms]),
        "an update takes less than 100 ms in every life",
    )


def _nothing_diverges(data: Data) -> Claim:
    aside = [int((~lesson.sound).sum()) for lesson in data.main.values()]
    traces = ", ".join(f"{lesson.max_trace:.3g}" for lesson in data.main.values())
    return Claim(
        "No question diverges with one set of parameters for all",
        f"{SECTION}, figure 3",
        "no divergence was observed for any question",
        f"{', '.join(map(str, aside))} of {len(data.questions)} set aside; largest trace entries {traces}",
        verdict([n == 0 for n in aside]),
        "in every life no question is set aside: no weight passes 1000 r_max / (1 - gamma)",
    )


def _below_one(data: Data) -> Claim:
    finals = [summary(lesson, data.questions).mean for lesson in data.main.values()]
    shares = [summary(lesson, data.questions).below_1 for lesson in data.main.values()]
    most = [largest_contributor(lesson, data.sensor) for lesson in data.main.values()]
    cause = "; ".join(
        f"seed {seed}: {c.sensor} carries {c.share:.0%} of the mean (its returns' variance is {c.variance:.1e}); "
        f"without it the mean is {c.mean_without:.2f}"
        for seed, c in zip(data.main, most, strict=True)
    )
    return Claim(
        "The average NMSRE over all questions finishes below 1",
        f"{SECTION}, figure 3",
        "the average of the NMSRE for all the questions finished below 1.0",
        f"means {', '.join(f'{value:.2f}' for value in finals)}{_together(finals)}; "
        f"{_percents(shares)} of the questions end below 1",
        verdict([value < 1.0 for value in finals]),
        "the mean of the final NMSRE is below 1 in every life",
        "" if all(value < 1.0 for value in finals) else cause,
    )


def _substantial(data: Data) -> Claim:
    medians = [summary(lesson, data.questions).median for lesson in data.main.values()]
    return Claim(
        "A substantial portion of the variance in the returns is explained",
        SECTION,
        "a substantial portion of the variance in the returns is being explained by the predictions",
        f"median NMSRE {', '.join(f'{value:.3f}' for value in medians)}{_together(medians)}",
        verdict([value < MOST_EXPLAINED for value in medians]),
        "the median question leaves less than half of the variance unexplained in every life",
    )


def _learning_curve(data: Data) -> Claim:
    parts = [fifth_medians(lesson.curves().mean(axis=1)) for lesson in data.main.values()]
    together = np.mean(parts, axis=0)
    halves = [bool(part[-1] < 0.5 * part[0]) for part in parts]
    falls = bool((np.diff(together) <= 0).all())
    curves = "; ".join(f"seed {s}: " + ", ".join(f"{v:.2g}" for v in p) for s, p in zip(data.main, parts, strict=True))
    return Claim(
        "The mean NMSRE falls like a learning curve",
        "figure 3",
        "the return error has the typical exponential learning profile",
        f"medians of the mean curve over fifths of the tests: {curves}",
        verdict([*halves, falls]),
        "in every life the last fifth's median is below half of the first's, and the mean over lives falls from each "
        "fifth to the next",
        "" if all(halves) and falls else "a single excursion from a rare state lifts the mean for some ten more",
    )


def _not_monotonic(data: Data) -> Claim:
    shares = [not_monotonic(lesson) for lesson in data.main.values()]
    return Claim(
        "Several individual curves are not monotonic",
        "figure 3",
        "several individual curves exhibit non-monotonic shape",
        f"{_percents(shares)} of the questions end above 1.2 times their own lowest fifth",
        verdict([share >= SEVERAL for share in shares]),
        "at least 1 % of the questions in every life",
    )


def _diverging(data: Data, variants: Sequence[Variant]) -> list[int]:
    """Return how many questions were set aside in the first life, under each variant."""
    return [int((~next(iter(data.lessons[v].values())).sound).sum()) for v in variants]


def _medians(data: Data, variants: Sequence[Variant]) -> str:
    found = [summary(next(iter(data.lessons[v].values())), data.questions) for v in variants]
    medians, means = [s.median for s in found], [s.mean for s in found]
    return f"medians {', '.join(map(_or_none, medians))}, means {', '.join(map(_or_none, means))}"


def _or_none(value: float) -> str:
    """Return a number, or "none" where no question is left to take it from."""
    return f"{value:.3g}" if np.isfinite(value) else "none"


def _larger_alpha(data: Data) -> Claim:
    aside = _diverging(data, data.larger_steps)
    sizes = ", ".join(f"{v.step_size:g}" for v in data.larger_steps)
    return Claim(
        "Larger alpha makes questions diverge",
        SECTION,
        "divergence was observed on earlier runs with larger values of alpha",
        f"alpha x active features {sizes}: {', '.join(map(str, aside))} questions set aside; "
        f"{_medians(data, data.larger_steps)}",
        verdict([n > 0 for n in aside]),
        "questions are set aside at each of the larger step sizes (all: reproduced; some of them: partly)",
    )


def _smaller_alpha_w(data: Data) -> Claim:
    aside = _diverging(data, data.smaller_ratios)
    ratios = ", ".join(f"{v.secondary_ratio:g}" for v in data.smaller_ratios)
    holds = [n > 0 for n in aside]
    cause = (
        f"under the trace rule {data.paper.trace_rule!r} traces stay small (largest entry "
        f"{next(iter(data.main.values())).max_trace:.3g}), and w matters little: at the paper's alpha_w the same life "
        f"ends at {_medians(data, [data.paper])}"
    )
    return Claim(
        "Smaller alpha_w makes questions diverge",
        SECTION,
        "divergence was observed on earlier runs with smaller values of alpha_w",
        f"alpha_w / alpha {ratios}: {', '.join(map(str, aside))} questions set aside; "
        f"{_medians(data, data.smaller_ratios)}",
        verdict(holds),
        "questions are set aside at each of the smaller ratios (all: reproduced; some of them: partly)",
        "" if all(holds) else cause,
    )


def _plain_trace(data: Data) -> Claim:
    plain = next(v for v in data.rules if v.trace_rule == "plain" and v.w_rule == data.paper.w_rule)
    lessons = list(data.lessons[plain].values())
    aside = [int((~lesson.sound).sum()) for lesson in lessons]
    gammas = sorted({float(gamma) for lesson in lessons for gamma in lesson.gamma[~lesson.sound]})
    traces = ", ".join(f"{lesson.max_trace:.3g}" for lesson in lessons)
    return Claim(
        "The pseudo-code's own trace does not diverge either",
        f"{SECTION}, pseudo-code",
        "no divergence was observed; the pseudo-code does not bound its trace",
        f"trace rule plain: {', '.join(map(str, aside))} of {len(data.questions)} set aside"
        f"{' at gamma ' if gammas else ''}{', '.join(f'{g:g}' for g in gammas)}; largest trace entries {traces}",
        verdict([n == 0 for n in aside]),
        "in every life no question is set aside under the trace rule plain",
        ""
        if not any(aside)
        else "rho is 10 where an action begins and 1.67 where it is repeated, so at gamma .8 the second moment of the "
        "trace is multiplied by .864 per step, and its third and fourth by 1.04 and 1.24: they are infinite",
    )


N_WORST = 10


def tables(data: Data) -> list[Table]:
    """Return the experiment's tables, in the order in which they are read."""
    return [
        _by_seed(data),
        _by(data, "sensor group", data.group),
        _by(data, "policy", [data.interface.actions[a] for a in _any(data).action]),
        _worst(data),
        _rules(data),
        _steps(data),
        _offline(data, "gamma", [f"{gamma:g}" for gamma in _any(data).gamma]),
        _offline(data, "sensor group", data.group),
    ]


def _any(data: Data) -> VariantResult:
    return next(iter(data.main.values()))


def _by_seed(data: Data) -> Table:
    header = (
        "life",
        "median",
        "mean",
        "below 1",
        "set aside",
        "carried most by",
        "mean without it",
        "medians of fifths",
    )
    rows: list[list[Cell]] = []
    for seed, lesson in data.main.items():
        found, most = summary(lesson, data.questions), largest_contributor(lesson, data.sensor)
        curve = fifth_medians(lesson.curves().mean(axis=1))
        rows.append(
            [
                f"seed {seed}",
                found.median,
                found.mean,
                f"{found.below_1:.1%}",
                found.n_diverged,
                f"{most.sensor}: {most.share:.0%}",
                most.mean_without,
                ", ".join(f"{value:.2g}" for value in curve),
            ]
        )
    return Table(
        "Final NMSRE of each life",
        header,
        rows,
        "The last column: the mean curve's median in each fifth of the tests.",
    )


def _by(data: Data, what: str, label: Sequence[str]) -> Table:
    """Return the final NMSRE by a label and gamma: median and mean over the questions, means over the seeds."""
    labels, gammas = list(dict.fromkeys(label)), np.unique(_any(data).gamma)
    rows: list[list[Cell]] = []
    for name in labels:
        row: list[Cell] = [name, label.count(name)]
        for gamma in gammas:
            mine = (np.array(label) == name) & (_any(data).gamma == gamma)
            row.append(over_lives([nan_median(lesson.nmsre[mine]) for lesson in data.main.values()]))
            row.append(float(np.mean([nan_mean(lesson.nmsre[mine]) for lesson in data.main.values()])))
        rows.append(row)
    columns = [f"{kind}, gamma {gamma:g}" for gamma in gammas for kind in ("median", "mean")]
    return Table(f"Final NMSRE by {what} and gamma", (what, "questions", *columns), rows)


def _worst(data: Data) -> Table:
    nmsre = np.array([lesson.nmsre for lesson in data.main.values()])
    variance = np.array([lesson.variance for lesson in data.main.values()]).mean(axis=0)
    worst = np.argsort(-np.nan_to_num(nmsre.mean(axis=0), nan=-1.0))[:N_WORST]
    rows = [[data.questions[i].name, *nmsre[:, i].tolist(), float(variance[i])] for i in worst]
    seeds = [f"seed {seed}" for seed in data.main]
    return Table("The worst questions: final NMSRE", ("question", *seeds, "variance of its returns"), rows)


def _rules(data: Data) -> Table:
    """Return the six pairs of rules, and how far their predictions lie from those of the paper's."""
    rows = [[variant.trace_rule, variant.w_rule, *_compared(data, variant)] for variant in data.rules]
    return Table("Trace rules and w rules", ("trace rule", "w rule", *_COMPARED), rows, _aside_note(data))


def _steps(data: Data) -> Table:
    variants = [data.paper, *data.larger_steps, *data.smaller_ratios]
    rows = [[f"{v.step_size:g}", f"{v.secondary_ratio:g}", *_compared(data, v)] for v in variants]
    note = "All under the trace rule and the w rule of the default. " + _aside_note(data)
    return Table("Larger alpha, smaller alpha_w", ("alpha x active", "alpha_w / alpha", *_COMPARED), rows, note)


_COMPARED = ("lives", "median", "mean", "below 1", "set aside (by gamma)", "max trace", "ms per update")


def _compared(data: Data, variant: Variant) -> list[Cell]:
    lessons = list(data.lessons[variant].values())
    found = [summary(lesson, data.questions) for lesson in lessons]
    below_1 = float(np.mean([s.below_1 for s in found]))
    return [
        len(lessons),
        over_lives([s.median for s in found]),
        over_lives([s.mean for s in found]),
        f"{below_1:.1%}" if np.isfinite(below_1) else "-",
        ", ".join(_aside(lesson) for lesson in lessons),
        max(lesson.max_trace for lesson in lessons),
        float(np.mean([1e3 * lesson.seconds / lesson.n_updates for lesson in lessons])),
    ]


def _aside(lesson: VariantResult) -> str:
    """Return how many questions were set aside in a life, and at which gammas."""
    gammas = lesson.gamma[~lesson.sound]
    by_gamma = "; ".join(f"{gamma:g}: {(gammas == gamma).sum()}" for gamma in np.unique(gammas))
    return f"{len(gammas)} ({by_gamma})" if len(gammas) else "0"


def _aside_note(data: Data) -> str:
    seeds = ", ".join(map(str, data.main))
    return (
        f"Lives in the order of the seeds {seeds}; mean and median are of the questions that were not set aside. Times "
        "belong to the machine and its neighbours."
    )


def _offline(data: Data, what: str, label: Sequence[str]) -> Table:
    """Compare the demons with the best off-line predictors on the same held-out excursions."""
    first = _any(data)
    held, late = data.offline.is_held_out, _second_half(data.offline.is_held_out)
    scores = {
        "demons, as lived": first.score(held & late, last=False),
        "demons, last weights": first.score(held),
        "LSTD(lambda)": data.offline.lstd,
        "ridge regression": data.offline.ridge,
        "mean return": data.offline.mean,
    }
    rows: list[list[Cell]] = []
    for name in [*dict.fromkeys(label), "all"]:
        mine = np.array([name in (own, "all") for own in label])
        rows.append([name, *(f"{nan_median(s[mine]):.3g} / {nan_mean(s[mine]):.3g}" for s in scores.values())])
    note = (
        "Median / mean over the questions of mean squared error over variance, on the "
        f"{int(held.sum())} held-out excursions of the first life (30 %). "
        f"As lived: the predictions made then, on the {int((held & late).sum())} of them in the second half. Last "
        "weights: what the weights at the end of the life predict; no excursion is learned from. LSTD: the demons' own "
        "equations, solved on the whole learning stream. Ridge regression is shown the returns of the other excursions."
    )
    return Table(f"How far from the best linear predictor, by {what}", (what, *scores), rows, note)


def _second_half(which: Bools) -> Bools:
    return np.asarray(np.arange(len(which)) >= len(which) // 2)
