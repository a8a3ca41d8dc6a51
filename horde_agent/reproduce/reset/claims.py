"""The paper's second experiment: three measures of learning when the weights are lost, and when the world changes.

265 questions at gamma .8 learn from six hours of life. In one run theta := 0 after learning step 40,000, as in the
paper; in the other the lamp is moved at that step, which is the change that the paper speaks of and did not make.
Source: White, Modayil & Sutton (2012), section 5, figure 4.
"""

from __future__ import annotations

import numpy as np

from horde_agent.learning.rules import LearnerConfig
from horde_agent.reproduce.excursions.problem import STEPS as LIFE_STEPS
from horde_agent.reproduce.excursions.problem import over_lives
from horde_agent.reproduce.lives import LifeSpec
from horde_agent.reproduce.reset.problem import (
    GAMMA,
    LAMP_STEPS,
    NEW_PLACE,
    STEPS,
    Agreement,
    Data,
    Reaction,
    Run,
    correlation,
    gather,
    share_of_drift,
)
from horde_agent.reproduce.result import Cell, Claim, Table, verdict
from horde_agent.reproduce.study import Result, Study


def run(study: Study) -> Result:
    """Do the experiment."""
    data = gather(study)
    # matplotlib is loaded here, after the work, and only in the process that draws.
    from horde_agent.reproduce.reset.figure import pictures

    config = LearnerConfig()
    return Result(
        "reset",
        "Three measures of learning: the weights are lost, the lamp is moved",
        claims(data),
        pictures(data, study.folder("reset")),
        tables(data),
        settings={
            "steps of each life": STEPS[study.scale],
            "steps of each life with a moved lamp": LAMP_STEPS[study.scale] if data.moved else None,
            "questions": len(data.questions),
            "gamma": GAMMA,
            "change at learning step": data.change_at,
            "tau of the MSPBE estimates, learning steps": config.mspbe_tau,
            "1 / (alpha_w active features), learning steps": 1.0 / (config.step_size * config.secondary_ratio),
            "the lamp goes to (x, y, z in m)": ", ".join(map(str, NEW_PLACE)) if data.moved else None,
            "seeds": study.seed_list,
        },
        remarks=[
            "Training time is counted in learning steps; excursions and drives lie between them and are not drawn.",
            "At theta := 0 the secondary weights w, the traces and the estimates are kept, as in the paper.",
            "The NMSRE is a trace over 10 excursions of a question, each of which is tested about every 250 learning "
            "steps: it shows no change at once either.",
            "The moved lamp changes nothing but what the light and thermal sensors read: actions, poses and all other "
            "sensors of that life are, to the bit, those of the life without it.",
        ],
    )


def lives(study: Study) -> list[LifeSpec]:
    """Return the lives that the experiment learns from; those with a moved lamp depend on what these learned when."""
    return [LifeSpec(seed, LIFE_STEPS[study.scale]) for seed in study.seeds]


FIGURE = "section 5, figure 4"
ESTIMATES = ("vector", "scalar")
MEASURES = ("NMSRE", *ESTIMATES)
REACTS = 0.5
"""A measure reacts if it rises, after the change, by this multiple of its level before."""
SAME_SHAPE = 0.75
ALIKE, LEAST_AREA, LARGEST_AREA = 0.95, 0.8, 1.25
LEAST_COST, LARGEST_COST = 1.5, 2.5


def claims(data: Data) -> list[Claim]:
    """Return the claims in the order of the paper."""
    found = [
        _start_at_zero(data),
        _all_react(data),
        _same_shape(data),
        _alike(data),
        _lag(data),
        _wall_clock(data),
    ]
    return [*found, _environment(data)] if data.moved else found


def reactions(data: Data, run: Run, which: np.ndarray | None = None) -> dict[str, Reaction]:
    """Return how each measure of a run reacts to the change, over the questions `which`, all when None."""
    return {name: data.reaction(run.at, curve) for name, curve in run.means(which).items()}


def agreements(data: Data, run: Run) -> dict[str, list[Agreement]]:
    """Return how each estimate of a run agrees with its NMSRE, before and after the change."""
    means = run.means()
    return {name: data.agreement(run.at, means["NMSRE"], means[name]) for name in ESTIMATES}


def _start_at_zero(data: Data) -> Claim:
    firsts = [float(np.abs(values[0]).max()) for run in data.reset.values() for values in (run.vector, run.scalar)]
    means = [run.means() for run in data.reset.values()]
    tops = [float(m[name].max()) for m in means for name in ESTIMATES]
    rises = [rise(run.at, run.means()[name], data.change_at) for run in data.reset.values() for name in ESTIMATES]
    return Claim(
        "Both estimates are initially at zero, since w takes time to adapt",
        FIGURE,
        "both MSPBE estimates are initially at zero",
        f"largest absolute estimate of any question before the first update: {max(firsts):g}; half of the largest mean "
        f"before the change is reached after {', '.join(f'{steps:,.0f}' for steps in rises)} learning steps",
        verdict([first == 0.0 < top for first, top in zip(firsts, tops, strict=True)]),
        "every estimate is exactly 0 before the first update, and its mean rises above 0 later",
    )


def rise(at: np.ndarray, curve: np.ndarray, end: int) -> float:
    """Return after how many learning steps a curve first has half of its largest value before `end`."""
    before = curve[at <= end]
    return float(at[np.argmax(before >= 0.5 * before.max())])


def _all_react(data: Data) -> Claim:
    rises = {name: [reactions(data, run)[name].rise for run in data.reset.values()] for name in MEASURES}
    after = {name: [reactions(data, run)[name].peak_after for run in data.reset.values()] for name in MEASURES}
    said = "; ".join(
        f"{n}: {over_lives(rises[n])} times its level, after {over_lives(after[n])} steps" for n in MEASURES
    )
    holds = [bool(np.mean(rises[name]) >= REACTS) for name in MEASURES]
    weak = [name for name, is_there in zip(MEASURES, holds, strict=True) if not is_there]
    return Claim(
        "All three measures react quickly when theta is set to zero",
        FIGURE,
        "all three measures react quickly to the change",
        f"largest rise after the change: {said}",
        verdict(holds),
        f"the rise within {_reach(data):,} learning steps is, in the mean of lives, at least {REACTS} times the level "
        "before the change; one part for each measure",
        f"{' and '.join(weak)} rise by less than that; w is kept" if weak else "",
    )


def _reach(data: Data) -> int:
    return round(data.change_at / 2)


def _same_shape(data: Data) -> Claim:
    runs = [agreements(data, run) for run in data.reset.values()]
    parts, said = [], []
    for name in ESTIMATES:
        for k, when in enumerate(("before", "after")):
            plain = [run[name][k].correlation for run in runs]
            best, lag = [run[name][k].best for run in runs], [run[name][k].lag for run in runs]
            parts.append(bool(np.nanmean(best) >= SAME_SHAPE))
            said.append(
                f"{name} {when} {np.nanmean(plain):.2f}, with a lag of {np.nanmean(lag):,.0f} {np.nanmean(best):.2f}"
            )
    return Claim(
        "The estimates have the same shape as the NMSRE",
        FIGURE,
        "the MSPBE measures as computed off-policy have the same shape as the NMSRE",
        f"correlations with the NMSRE (means over lives; lags in learning steps): {'; '.join(said)}",
        verdict(parts),
        f"the correlation at the best lag is at least {SAME_SHAPE}, for each estimate before and after the change",
        "" if all(parts) else f"learning steps after the change until half of the rise is gone: {_halved(data)}",
    )


def _alike(data: Data) -> Claim:
    means = [run.means() for run in data.reset.values()]
    alike = [correlation(m["vector"], m["scalar"]) for m in means]
    areas = [float(m["scalar"].sum() / m["vector"].sum()) for m in means]
    ends = [float(m["scalar"][-1] / m["vector"][-1]) for m in means]
    holds = [bool(c >= ALIKE) for c in alike] + [bool(LEAST_AREA <= a <= LARGEST_AREA) for a in areas]
    return Claim(
        "The scalar estimate is almost identical to the vector one",
        FIGURE,
        "the scalar estimate of the MSPBE performs almost identically to the vector version",
        f"correlation {', '.join(f'{c:.3f}' for c in alike)}; area under the scalar over that under the vector "
        f"{', '.join(f'{a:.2f}' for a in areas)}, and at the end {', '.join(f'{e:.2f}' for e in ends)}",
        verdict(holds),
        f"in every life the correlation is at least {ALIKE}, the ratio of areas within {LEAST_AREA} to {LARGEST_AREA}",
        "" if all(holds) else _gap(data),
    )


def _gap(data: Data) -> str:
    """Return what sets the estimates apart: the samples that w and the trace share, or a drift of w."""
    later = [run.share_later(data.block) for run in data.reset.values()]
    return (
        "the two differ by the trace of delta e.(w_t - w_k), by what w did after step k. Of the area between them "
        f"{', '.join(f'{1 - share:.0%}' for share in later)} is what it did within the {data.block:,} steps in which "
        "step k lies, where it takes up the very samples that the trace holds, and "
        f"{', '.join(f'{share:.0%}' for share in later)} what it did later; of a steady drift of w those "
        f"{data.block:,} steps would have {share_of_drift(data.block, LearnerConfig().mspbe_tau):.1%}"
    )


def _lag(data: Data) -> Claim:
    halved = _halved_after(data)
    # What stays above half of its rise until the end of the window takes longer than the window.
    times = {name: np.nan_to_num(values, nan=np.inf) for name, values in halved.items()}
    holds = [bool(a > b) for name in ESTIMATES for a, b in zip(times[name], times["NMSRE"], strict=True)]
    return Claim(
        "The estimates react and settle more slowly than the NMSRE, since w was not reset",
        FIGURE,
        "the MSPBE estimates react more slowly to the change because the secondary weights w were not also reset",
        f"learning steps from the change until half of the rise is gone: {_halved(data)}",
        verdict(holds),
        "in every life both estimates take longer than the NMSRE until half of their rise is gone",
    )


def _halved_after(data: Data) -> dict[str, list[float]]:
    return {n: [reactions(data, run)[n].halved_after for run in data.reset.values()] for n in MEASURES}


def _halved(data: Data) -> str:
    return "; ".join(f"{n} {', '.join(_steps(value) for value in v)}" for n, v in _halved_after(data).items())


def _steps(value: float) -> str:
    return "not within the window" if np.isnan(value) else f"{value:,.0f}"


def _wall_clock(data: Data) -> Claim:
    cost = [run.n_steps / run.n_updates for run in data.reset.values()]
    return Claim(
        "The NMSRE needs twice the wall-clock time of the estimates",
        FIGURE,
        "the NMSRE requires twice as much wall-clock time as the MSPBE estimates",
        f"{', '.join(f'{c:.2f}' for c in cost)} steps of robot time per learning step: excursions and the drives after "
        "them; the estimates need none of it",
        verdict([LEAST_COST <= c <= LARGEST_COST for c in cost]),
        f"robot time per learning step is within {LEAST_COST} to {LARGEST_COST} in every life",
    )


def _environment(data: Data) -> Claim:
    lit = {n: [reactions(data, run, data.is_lit)[n].rise for run in data.moved.values()] for n in MEASURES}
    other = {n: [reactions(data, run, ~data.is_lit)[n].rise for run in data.moved.values()] for n in MEASURES}
    holds = [bool(np.mean(lit[name]) >= REACTS) for name in MEASURES]
    holds += [bool(np.mean(other[name]) < np.mean(lit[name])) for name in MEASURES]
    return Claim(
        "The measures react to a change in the environment",
        FIGURE,
        "the MSPBE measures react quickly to a change in the environment; the paper changed theta instead",
        f"the lamp moves; rise over level before, questions about {data.lit_group}: "
        f"{'; '.join(f'{n} {over_lives(lit[n])}' for n in MEASURES)}; all others: "
        f"{'; '.join(f'{n} {over_lives(other[n])}' for n in MEASURES)}",
        verdict(holds),
        f"the questions about {data.lit_group} rise within {_reach(data):,} learning steps by {REACTS} times their "
        "level before or more, and more so than the others do; two parts for each measure",
        "" if all(holds) else _others(data),
    )


def _others(data: Data) -> str:
    """Return which sensor carries the rise of the NMSRE of the questions that are not about light."""
    run = next(iter(data.moved.values()))
    mine = np.flatnonzero(run.sound & ~data.is_lit)
    after = (run.at > data.change_at) & (run.at <= data.change_at + _reach(data))
    at_peak = run.nmsre[after][np.argmax(run.means(~data.is_lit)["NMSRE"][after]), mine]
    sensor = np.array([data.questions[i].name.rsplit("/", 1)[-1] for i in mine.tolist()])
    most = max(dict.fromkeys(sensor), key=lambda name: float(at_peak[sensor == name].sum()))
    rises = [data.reaction(other.at, other.medians(~data.is_lit)).rise for other in data.moved.values()]
    return (
        f"at the peak of the others' mean NMSRE {most} alone holds "
        f"{at_peak[sensor == most].sum() / at_peak.sum():.0%} of it; their median "
        f"rises by {over_lives(rises)} times its level"
    )


def tables(data: Data) -> list[Table]:
    """Return the experiment's tables, in the order in which they are read."""
    return [_agreement(data), _reaction(data), *([_lamp(data)] if data.moved else []), _cost(data)]


def _agreement(data: Data) -> Table:
    rows: list[list[Cell]] = []
    for seed, run in data.reset.items():
        found = agreements(data, run)
        for name in ESTIMATES:
            before, after = found[name]
            rows.append([f"seed {seed}", name, *before, *after])
    columns = [f"{when}: {what}" for when in ("before", "after") for what in ("correlation", "best lag", "at that lag")]
    return Table(
        "The estimates against the NMSRE, before the change and after it",
        ("life", "estimate", *columns),
        rows,
        "Pearson's correlation of the means over all questions; lags in learning steps, by which the estimate trails. "
        "Where both curves fall all the time, the best lag is the longest one looked at, and measures no delay.",
    )


def _reaction(data: Data) -> Table:
    rows: list[list[Cell]] = []
    for seed, run in data.reset.items():
        found = reactions(data, run)
        found["median NMSRE"] = data.reaction(run.at, run.medians())
        rows += [[f"seed {seed}", name, *reaction] for name, reaction in found.items()]
    header = ("life", "measure", "mean before", "peak", "peak after", "half of the rise gone after")
    return Table("The reaction to theta := 0", header, rows, "The last two columns in learning steps.")


def _lamp(data: Data) -> Table:
    rows: list[list[Cell]] = []
    for what, which in ((f"about {data.lit_group}", data.is_lit), ("all others", ~data.is_lit)):
        for name in MEASURES:
            found = [reactions(data, run, which)[name] for run in data.moved.values()]
            columns = [over_lives(values) for values in zip(*found, strict=True)]
            rows.append([what, int(which.sum()), name, *columns, over_lives([r.rise for r in found])])
    header = (
        "questions",
        "number",
        "measure",
        "mean before",
        "peak",
        "peak after",
        "half of the rise gone after",
        "rise / level before",
    )
    return Table("The reaction to the moved lamp", header, rows, "Means over lives; times in learning steps.")


def _cost(data: Data) -> Table:
    rows: list[list[Cell]] = []
    for seed, run in data.reset.items():
        ms = 1e3 * run.seconds / run.n_updates
        rows.append([f"seed {seed}", run.n_steps, run.n_updates, run.n_steps / run.n_updates, ms])
    return Table(
        "What the measures cost",
        ("life", "steps of robot time", "learning steps", "robot time per learning step", "ms per learning step"),
        rows,
        "The NMSRE costs robot time: without excursions every step is a learning step. The last column is the "
        f"program's own time for {len(data.questions)} questions with both estimates, read every {data.every} steps; "
        "it belongs to the machine.",
    )
