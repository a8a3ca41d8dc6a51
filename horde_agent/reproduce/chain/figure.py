"""The curves of the MSPBE and its estimates, and their numbers by gamma, seed and tau."""

from __future__ import annotations

from itertools import product

import numpy as np
from matplotlib.axes import Axes

from horde_agent.reproduce.chain import problem
from horde_agent.reproduce.chain.problem import Data
from horde_agent.reproduce.experiment import Table
from horde_agent.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from horde_agent.reproduce.stats import mean_ci, student_t

_LOOKS = {
    "true": ("black", 2.2),
    "sample": (COLOURS[5], 1.0),
    "vector": (COLOURS[0], 1.4),
    "scalar": (COLOURS[1], 1.4),
}
_SAMPLE_TAU = 100
EPISODES_SHOWN = (1, 10, 100, 500, 1000, 1001, 1050, 1200, 2000)


def pictures(data: Data) -> dict[str, Picture]:
    """Draw the first seed's curves of each gamma."""
    first = {
        gamma: next(curves for (g, _), curves in data.items() if g == gamma)
        for gamma in problem.GAMMAS
    }
    return {f"gamma-{gamma:g}": _picture(curves, gamma) for gamma, curves in first.items()}


def _picture(curves: problem.Curves, gamma: float) -> Picture:
    canvas, (left, right) = new_canvas(9.0, 4.2, 2)
    true = curves.at("true")
    _draw(left, curves, 0, problem.CHANGE_AFTER)
    top = 1.8 * true[: problem.CHANGE_AFTER + 1].max()
    style_axes(left, "tracking", legend=True, xlabel="episode", ylabel="MSPBE", ylim=(-0.001, top))
    _draw(right, curves, problem.CHANGE_AFTER - 100, problem.N_EPISODES)
    top = 1.1 * true[problem.CHANGED].max()
    style_axes(
        right,
        f"theta := U[0, 1] after episode {problem.CHANGE_AFTER:,}",
        xlabel="episode",
        ylim=(-0.001, top),
    )
    caption = (
        f"Means of {problem.N_RUNS} runs at gamma {gamma:g}, bands of two standard errors. Left: the first "
        f"{problem.CHANGE_AFTER:,} episodes. Right: theta is redrawn, w and the estimates are kept. The estimates "
        f"have tau = {problem.TAU} steps, the sample MSPBE tau = {_SAMPLE_TAU} (at {problem.TAU} it lies above the "
        "panels)."
    )
    return canvas, caption


def _draw(axes: Axes, curves: problem.Curves, first: int, last: int) -> None:
    x = np.arange(first, last + 1)
    for name, (colour, width) in _LOOKS.items():
        tau = _SAMPLE_TAU
        if name != "sample":
            tau = problem.TAU
        mean, error = (curves.at(name, tau, field)[first : last + 1] for field in ("mean", "error"))
        axes.plot(
            x,
            mean,
            color=colour,
            linewidth=width,
            label=name if name == "true" else f"{name}, tau {tau}",
        )
        axes.fill_between(
            x, mean - 2 * error, mean + 2 * error, color=colour, alpha=0.15, linewidth=0
        )
    axes.set_xlim(first, last)


def tables(data: Data) -> list[Table]:
    """Return the experiment's tables, in the order in which they are read."""
    first = next(iter(data.values()))
    return [_gammas(data), _episodes(first), _taus(first)]


def _episodes(curves: problem.Curves) -> Table:
    of_taus = (
        (name, tau) for tau in (10, problem.TAU, 100) for name in ("vector", "scalar", "sample")
    )
    t = student_t(problem.N_RUNS - 1)
    rows = []
    for name, tau in (("true", problem.TAU), *of_taus):
        mean = 1e3 * curves.at(name, tau)
        error = 1e3 * t * curves.at(name, tau, "error")
        values = {f"{k:,}": f"{_short(mean[k])} ± {_short(error[k])}" for k in EPISODES_SHOWN}
        rows.append({"measure": name if name == "true" else f"{name}, tau {tau}", **values})
    return Table.of(
        "1000 x MSPBE by episode: means of 100 runs with 95 % intervals (gamma 0.9)", rows
    )


def _short(value: float) -> str:
    if abs(value) < 10:
        return f"{value:.2f}"
    if abs(value) < 100:
        return f"{value:.1f}"
    return f"{value:.0f}"


_COLUMNS = (
    "correlation 200-1000",
    "area 200-1000",
    "area 1-199",
    "correlation 1001-2000",
    "area 1001-2000",
    "peak after change",
    "episodes to peak",
    "error 1-1000",
    "error 1001-2000",
)


def _gammas(data: Data) -> Table:
    rows = []
    for gamma, name in product(
        problem.GAMMAS, (*problem.ONLINE, "sample", "exact_w", "exact_trace")
    ):
        fits = [problem.fit(c.at(name), c.at("true")) for (g, _), c in data.items() if g == gamma]
        means = map(mean_ci, zip(*fits, strict=True))
        rows.append({"gamma": gamma, "measure": name, **dict(zip(_COLUMNS, means, strict=True))})
    note = (
        "exact_w: the vector estimate with the w that belongs to theta; exact_trace: with E[delta e] in the place of "
        "its trace. Both need the exact model of the chain."
    )
    return Table.of(f"By gamma, means over the seeds, tau {problem.TAU}", rows, note)


def _taus(curves: problem.Curves) -> Table:
    rows = []
    for tau, name in product(problem.TAUS, (*problem.ONLINE, "sample")):
        fit = zip(_COLUMNS, problem.fit(curves.at(name, tau), curves.at("true")), strict=True)
        rounded = {column: round(n, 4) if isinstance(n, float) else n for column, n in fit}
        rows.append({"tau": tau, "measure": name, **rounded})
    return Table.of("Sensitivity to tau (gamma 0.9)", rows)
