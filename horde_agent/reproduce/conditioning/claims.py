"""Experiment `conditioning`: the US after a gap, from the present, from hand-made traces, from predictions fed back.

Source: Rafiee et al. (2023). Published errors could not be read: a claim is the shape of a result.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from horde_agent.reproduce.conditioning import problem
from horde_agent.reproduce.conditioning.problem import (
    ALONE,
    BEFORE_CS,
    CLOSED,
    FOREIGN,
    LONG,
    LOOPS,
    MICRO,
    OPEN,
    PRESENCE,
    REPRESENTATIONS,
    SHORT,
    TRACES,
    Data,
)
from horde_agent.reproduce.experiment import Claims, Experiment, Finding, finding_of_means
from horde_agent.reproduce.figure import COLOURS, new_canvas, save, style_axes
from horde_agent.reproduce.result import Cell, Figure, Table, join, mean_ci
from horde_agent.reproduce.study import Study
from horde_agent.types import Floats

LEAST_PRESENCE, MOST_TRACES, LEAST_RATIO = 0.8, 0.35, 1.5
MOST_CLOSED, LEAST_SHARE, LEAST_CONTROL = 0.6, 0.8, 0.85
MOST_DISTRACTED = 1.5


CLAIMS = Claims("Rafiee et al. (2023)")


@CLAIMS.add(
    "The present stimuli alone cannot bridge the gap between CS and US.",
    "representations without memory fail; no figure could be read",
    f"Mean error over variance at least {LEAST_PRESENCE:g} for m {SHORT} and {LONG}.",
)
def _presence(data: Data) -> Finding:
    return finding_of_means(_by_gap(data, problem.PRESENCE), lambda error: error >= LEAST_PRESENCE)


@CLAIMS.add(
    "Hand-made traces bridge it.",
    "hand-made traces are the baselines",
    f"Microstimuli and onset traces: mean error over variance at most {MOST_TRACES:g} for m {SHORT} and {LONG}.",
)
def _traces(data: Data) -> Finding:
    return finding_of_means(_by_gap(data, MICRO, TRACES), lambda error: error <= MOST_TRACES)


@CLAIMS.add(
    "A short memory fails on long gaps.",
    "the shape only",
    f"With the traces .5 and .8 alone, the mean error at m {LONG} is at least {LEAST_RATIO:g} times that at m {SHORT}.",
)
def _short_traces(data: Data) -> Finding:
    errors = _by_gap(data, problem.SHORT_TRACES)
    short, long = (found.mean() for found in errors.values())
    said = "; ".join(f"{name} {mean_ci(found)}" for name, found in errors.items())
    return Finding(f"{said}; ratio {long / short:.2f}.", [bool(long / short >= LEAST_RATIO)])


@CLAIMS.add(
    "Predictions fed back are a memory.",
    "nothing: the authors' representations use no predictions",
    f"At m {SHORT} the loop's error is at most {MOST_CLOSED:g} times that of the presence in {LEAST_SHARE:.0%} of "
    f"the seeds; both controls have at least {LEAST_CONTROL:g} times that of the presence in the mean.",
    source="a question of ours",
)
def _loop(data: Data) -> Finding:
    found, alone = data.gap[SHORT], data.gap[SHORT][problem.ALONE].mean()
    n = int((found[problem.CLOSED] <= MOST_CLOSED * found[problem.ALONE]).sum())
    controls = [float(found[name].mean() / alone) for name in (problem.OPEN, problem.FOREIGN)]
    said = "; ".join(f"{name} {mean_ci(errors)}" for name, errors in _by_gap(data, *LOOPS).items())
    return Finding(
        f"{said} (m {LONG} is not judged). The loop at most {MOST_CLOSED:g} times the presence: {n} of "
        f"{len(data.seeds)} seeds; open and foreign relative to it: {join(controls, '.2f')}.",
        [n >= LEAST_SHARE * len(data.seeds), *(control >= LEAST_CONTROL for control in controls)],
    )


@CLAIMS.add(
    "Distractors cost little with traces.",
    "the shape only",
    f"With {problem.N_DISTRACTORS} distractors, the mean error of microstimuli and of onset traces is less than "
    f"{MOST_DISTRACTED:g} times that without, for m {SHORT} and {LONG}.",
)
def _distractors(data: Data) -> Finding:
    without = _by_gap(data, MICRO, TRACES)
    having = _by_gap(data, MICRO, TRACES, ending=problem.WITH_DISTRACTORS)
    ratios = {name: having[name].mean() / without[name].mean() for name in without}
    return finding_of_means(ratios, lambda ratio: ratio < MOST_DISTRACTED, "Error with distractors over that without: ")


def _by_gap(data: Data, *names: str, ending: str = "") -> dict[str, Floats]:
    """Return the errors by name and interval, one per seed."""
    return {f"{name}, m {m}:": data.gap[m][name + ending] for name in names for m in data.gap}


_SHOWN = {PRESENCE: COLOURS[0], MICRO: COLOURS[2], CLOSED: COLOURS[1]}
_BARS = (PRESENCE, MICRO, TRACES, ALONE, CLOSED, OPEN, FOREIGN)


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw the mean predictions around the CS, and every representation's error."""
    canvas, (left, middle, right) = new_canvas(13.0, 3.8, 3)
    for axes, m in ((left, SHORT), (middle, LONG)):
        _draw_trial(axes, data, m)
    _draw_bars(right, data)
    return [
        save(
            canvas,
            folder / "conditioning.png",
            "Left and middle: mean return of the US and mean predictions by the time since the onset of the CS, with "
            "fixed weights on a fresh stream of the first seed. Right: mean squared error over the variance of the "
            "return, means over the seeds with 95 % intervals; the first three learn with Adam, the others with "
            "constant steps.",
        )
    ]


def _draw_trial(axes: Axes, data: Data, m: int) -> None:
    curves = data.around_cs[m]
    t = np.arange(len(curves["return"])) - BEFORE_CS
    axes.plot(t, curves["return"], color="black", linewidth=2.0, label="return")
    for name, colour in _SHOWN.items():
        axes.plot(t, curves[name], color=colour, linewidth=1.3, label=name)
    axes.axvline(0, color="0.7", linewidth=0.9, linestyle=":")
    ylabel = "prediction of the US" if m == SHORT else ""
    style_axes(axes, f"US about {m} steps after the CS", legend=m == SHORT, xlabel="steps since the CS", ylabel=ylabel)


def _draw_bars(axes: Axes, data: Data) -> None:
    y = np.arange(len(_BARS))
    for k, (m, colour) in enumerate(((SHORT, COLOURS[3]), (LONG, COLOURS[4]))):
        means = [mean_ci(data.gap[m][name]) for name in _BARS]
        half_widths = np.nan_to_num([mean.half_width for mean in means])
        axes.barh(y + 0.38 * k, [mean.mean for mean in means], 0.36, color=colour, xerr=half_widths, label=f"m {m}")
    axes.set_yticks(y + 0.19, _BARS, fontsize=8)
    axes.invert_yaxis()
    style_axes(axes, legend=True, xlabel="error / variance")


def tables(data: Data) -> list[Table]:
    """Return the errors of all representations in trace conditioning and in noisy patterning."""
    kinds = {
        name: "constant steps (the Horde's)" if name in LOOPS else "Adam (the authors')" for name in data.gap[SHORT]
    }
    rows = [[name, kind, *(str(mean_ci(data.gap[m][name])) for m in data.gap)] for name, kind in kinds.items()]
    note = (
        "Mean squared error over the variance of the return, on a fresh stream with fixed weights; means over the "
        "seeds with 95 % intervals. Loop open: predictions of demons that see only the stimuli."
    )
    return [
        Table(
            "Trace conditioning: error over variance",
            ["features", "TD(.9) with", *(f"m {m}" for m in data.gap)],
            rows,
            note,
        ),
        Table(
            "Noisy patterning: error over variance",
            ["features", "error"],
            [[name, str(mean_ci(found))] for name, found in data.patterning.items()],
            "Four CS, two patterns (sizes of ours). Not judged: a linear prediction from single stimuli, present or "
            "past, cannot tell a pattern from its parts.",
        ),
    ]


def settings(_study: Study, data: Data) -> dict[str, Cell]:
    """Return everything needed to repeat the experiment."""
    return {
        "seeds": join(data.seeds),
        "step sizes tried on seeds": join(problem.TUNED_ON),
        "step sizes": "; ".join(
            [f"{name}: Adam, {of.step_size:g}" for name, of in REPRESENTATIONS.items()]
            + [f"{name}: {step:g} / active tiles" for name, step in problem.STEP_SIZE.items()]
        ),
        "steps learned from": data.size.learned,
        "steps scored": data.size.scored,
        "lambda": problem.LAM,
        "gamma": "1 - 1/m; noisy patterning .75",
        "a prediction fed back": "8 tilings of 8",
        "fed back": f"US and CS at gamma {join(problem.GAMMAS, '.3g')}",
    }


REMARKS = [
    "A simulated stream, as in the paper. The interval between CS and US is m on average, and varies by a third.",
    "Weights are fixed before scoring, since weights that change are a memory of their own.",
]
TITLE = "Classical conditioning: memory by traces and by predictions fed back"
EXPERIMENT = Experiment("conditioning", TITLE, problem.gather, CLAIMS, pictures, tables, settings, REMARKS)
