"""The pictures of the experiment `loop`. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from horde_agent.reproduce.figure import new_canvas, save, style_axes
from horde_agent.reproduce.loop import problem
from horde_agent.reproduce.loop.problem import ALONE, CLOSED, GAMMAS, Data, Outcome, Ring
from horde_agent.reproduce.result import Figure
from horde_agent.runs.showing.pictures import COLOURS

_SHOWN = 600  # steps: a minute


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw all pictures into a folder and return their entries."""
    first = {variant: next(iter(outcomes.values())) for variant, outcomes in data.outcomes.items()}
    return [_memory(first, folder / "memory.png"), _ring(data.ring, folder / "ring.png")]


def _memory(outcomes: Mapping[str, Outcome], path: Path) -> Figure:
    """Draw a minute of held-out predictions, and the errors of each variant."""
    canvas, (left, right) = new_canvas(12.0, 3.8, 2, width_ratios=[2.4, 1.0])
    actual = outcomes[ALONE].actual
    first = _liveliest(actual)
    span = slice(first, first + _SHOWN)
    t = np.arange(len(actual[span])) * 0.1
    left.plot(t, actual[span], color="black", linewidth=1.8, label="what happened")
    for colour, variant in zip(COLOURS, (ALONE, CLOSED), strict=False):
        left.plot(t, outcomes[variant].predicted[span], color=colour, linewidth=1.1, label=variant)
    left.set_ylim(top=1.2 * float(actual[span].max()))
    legend = {"loc": "upper center", "ncols": 3}
    ylabel = f"return at gamma {GAMMAS[-1]:g}"
    style_axes(left, "time since the wall was touched", legend=legend, xlabel="time (s)", ylabel=ylabel)
    _bars(right, outcomes)
    return save(
        canvas,
        path,
        "Left: a minute in which nothing was learned, the liveliest one of the first life (such minutes are joined end "
        "to end): what happened, and what is predicted from the observation alone and with the predictions of the step "
        "before fed back. "
        "Right: mean squared error over variance of each variant in that life.",
    )


def _liveliest(actual: np.ndarray) -> int:
    """Return where the minute begins in which the return changes most."""
    changes = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(actual)))])
    n = max(len(actual) - _SHOWN, 1)
    return int(np.argmax(changes[-n:] - changes[:n])) if len(actual) > _SHOWN else 0


def _bars(axes: Axes, outcomes: Mapping[str, Outcome]) -> None:
    """Draw the errors of each variant, a bar per gamma."""
    y = np.arange(len(outcomes))
    for k, (gamma, colour) in enumerate(zip(GAMMAS, COLOURS[2:], strict=False)):
        axes.barh(y + 0.36 * k, [o.nmse[k] for o in outcomes.values()], 0.34, color=colour, label=f"gamma {gamma:g}")
    axes.set_yticks(y + 0.18, [variant.replace(" ", "\n", 1) for variant in outcomes], fontsize=8)
    axes.invert_yaxis()
    style_axes(axes, legend=True, xlabel="error / variance")


def _ring(ring: Ring, path: Path) -> Figure:
    """Draw predictions and known values in the cycle world."""
    canvas, [axes] = new_canvas(5.6, 3.4)
    states = np.arange(problem.RING)
    axes.plot(states, problem.ring_values(), "o", color="black", markersize=9, fillstyle="none", label="known")
    axes.plot(states, ring.looped, "o", color=COLOURS[1], markersize=4, label="with the loop")
    axes.plot(states, ring.without, "s", color=COLOURS[0], markersize=4, label="without")
    axes.plot(states, ring.without_trace, "^", color=COLOURS[2], markersize=4, label="with the loop, lambda 0")
    labels = {
        "xlabel": "state (the bit is 1 in state 0 alone)",
        "ylabel": f"prediction at gamma {problem.RING_GAMMA:g}",
    }
    style_axes(axes, legend=True, **labels)
    return save(
        canvas,
        path,
        "The cycle world: a ring of six states, of which one bit is seen. The discounted sum of the bit is known in "
        "every state; five of them look alike.",
    )
