"""Experiment `loop`: predictions of the step before as features, as the first figure of the paper draws them.

On the robot: a question that needs memory, with the loop and without. In two small worlds: answers that are known.
Source: White, Modayil & Sutton (2012), section 3 and figure 1; Sutton & Tanner (2005), TD networks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from horde_agent.reproduce.experiment import Claims, Experiment, Finding
from horde_agent.reproduce.figure import COLOURS, new_canvas, save, style_axes
from horde_agent.reproduce.lives import LifeSpec
from horde_agent.reproduce.loop import problem
from horde_agent.reproduce.loop.problem import (
    ALONE,
    CLOSED,
    GAMMAS,
    OPEN,
    STEPS,
    TRUTH,
    VARIANTS,
    Data,
    Outcome,
    Ring,
    seeds_of,
)
from horde_agent.reproduce.result import Cell, Figure, Table, join, mean_ci
from horde_agent.reproduce.study import Study
from horde_agent.types import Floats

LARGEST_RING_ERROR, LARGEST_ANSWER_ERROR = 0.01, 0.12


CLAIMS = Claims("section 3, figure 1")


@CLAIMS.add(
    "Predictions fed back as features give the Horde a memory that the observation is not.",
    "the predictions can be used as input: predictive state information; no experiment",
    "For each gamma a gain over the observation alone, and one over the same with the loop open: above 0 for "
    "every seed, and with several seeds its 95 % interval above 0.",
)
def _memory(data: Data) -> Finding:
    gains: list[Floats] = []
    said: list[str] = []
    for k, gamma in enumerate(GAMMAS):
        errors = {variant: data.nmse(variant, k) for variant in VARIANTS}
        gains += [errors[ALONE] - errors[CLOSED], errors[OPEN] - errors[CLOSED]]
        gain, of_loop = (mean_ci(found) for found in gains[-2:])
        of_truth = float((errors[ALONE] - errors[TRUTH]).mean())
        closed = f" ({100 * gain.mean / of_truth:.0f} % of what the truth itself gains)" if of_truth > 0 else ""
        said.append(
            f"gamma {gamma:g}: {errors[ALONE].mean():.3f} from the observation alone, {errors[CLOSED].mean():.3f} with "
            f"the loop, a gain of {gain}{closed}; {errors[OPEN].mean():.3f} with the loop open, over which the loop "
            f"gains {of_loop}"
        )
    n_wide = sum(not _is_gain(found) and bool((found > 0).all()) for found in gains)
    return Finding(
        "Error over variance of the time since the wall was touched. " + "; ".join(said) + ".",
        [_is_gain(found) for found in gains],
        f"{n_wide} of {len(gains)} gains are above 0 in every life, with an interval that holds 0 all the same."
        if n_wide
        else "",
    )


def _is_gain(gains: Floats) -> bool:
    """Return whether all gains, one per seed, are above 0, and their interval too if there is one."""
    mean = mean_ci(gains)
    return bool((gains > 0).all()) and not mean.mean - mean.half_width <= 0


@CLAIMS.add(
    "Where only the loop can tell the states apart, it learns the exact answers.",
    "predictive state information; no experiment",
    f"Largest error below {LARGEST_RING_ERROR:g} with the loop; without it at least the error that the best "
    "predictor without memory has.",
    source="section 3 (after Littman et al., 2002; Sutton & Tanner, 2005)",
)
def _cycle_world(data: Data) -> Finding:
    true, least = problem.ring_values(), problem.best_without_memory()
    worst = {name: float(np.abs(found - true).max()) for name, found in data.ring._asdict().items()}
    without = float(np.sqrt(((data.ring.without - true) ** 2).mean()))
    return Finding(
        f"Cycle world of {problem.RING} states: largest error {worst['looped']:.2g} with the loop; "
        f"without it a root mean squared error of {without:.2f}, at least {least:.2f} for whatever sees only the bit. "
        f"With the loop and lambda 0: largest error {worst['without_trace']:.2f}, as TD(0) networks fail there.",
        [worst["looped"] < LARGEST_RING_ERROR, without >= least],
    )


@CLAIMS.add(
    "A question may be about the prediction of another demon, under another policy.",
    "learning of compositional predictions, similar to a TD network; no experiment",
    f"Largest error below {LARGEST_ANSWER_ERROR:g}, for both questions; with mistaken policies or cumulants "
    "it is more than 1.",
    source="section 3",
)
def _composed(data: Data) -> Finding:
    true = problem.composed_values()
    errors = np.abs(data.composed - true).max(axis=0)
    return Finding(
        f"Corridor of {problem.N_STATES} states, both learned off-policy: largest error {errors[0]:.3f} "
        f"of the prediction, {errors[1]:.3f} of the one about it, whose answers lie between {true[:, 1].min():.2f} and "
        f"{true[:, 1].max():.2f}.",
        [bool(error < LARGEST_ANSWER_ERROR) for error in errors],
    )


# ---- figures --------------------------------------------------------------------------------------------------------


_SHOWN = 600  # steps: a minute


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw all pictures into a folder and return their entries."""
    first = {variant: next(iter(outcomes.values())) for variant, outcomes in data.outcomes.items()}
    return [_draw_memory(first, folder / "memory.png"), _ring(data.ring, folder / "ring.png")]


def _draw_memory(outcomes: Mapping[str, Outcome], path: Path) -> Figure:
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
    y = np.arange(len(outcomes))
    for k, (gamma, colour) in enumerate(zip(GAMMAS, COLOURS[2:], strict=False)):
        axes.barh(y + 0.36 * k, [o.nmse[k] for o in outcomes.values()], 0.34, color=colour, label=f"gamma {gamma:g}")
    axes.set_yticks(y + 0.18, [variant.replace(" ", "\n", 1) for variant in outcomes], fontsize=8)
    axes.invert_yaxis()
    style_axes(axes, legend=True, xlabel="error / variance")


def _ring(ring: Ring, path: Path) -> Figure:
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


# ---- tables ---------------------------------------------------------------------------------------------------------


def tables(data: Data) -> list[Table]:
    """Return every seed's errors, and the corridor's learned and known answers."""
    rows: list[dict[str, Cell]] = []
    for k, gamma in enumerate(GAMMAS):
        for variant in VARIANTS:
            errors = data.nmse(variant, k)
            each = {f"seed {s}": float(error) for s, error in zip(data.outcomes[variant], errors, strict=True)}
            mean = str(mean_ci(errors))
            rows.append({"gamma": f"{gamma:g}", "coded beside the observation": variant, "mean": mean, **each})
    memory = Table.of(
        "Time since the wall was touched: mean squared error over variance, held out",
        rows,
        "The truth itself is the time since the touch, known one step late: what a perfect memory would have. A "
        "prediction fed back is also a new feature of the observation of one step before; with the loop open it is "
        "that alone, since demons that see only the observation make it.",
    )
    names = ("then: known", "then: learned", "first: known", "first: learned")
    pairs = np.stack([problem.composed_values(), data.composed], axis=2).reshape(-1, 4).tolist()
    corridor = Table.of(
        "Compositional questions in a corridor of five states",
        [{"state": s, **dict(zip(names, row, strict=True))} for s, row in enumerate(pairs)],
        '"then": discounted time at the left wall, going mostly left (gamma 0.5). "first": the discounted sum of what '
        '"then" predicts along a walk that goes mostly right (gamma 0.8).',
    )
    return [memory, corridor]


def settings(study: Study, data: Data) -> dict[str, Cell]:
    """Return everything needed to repeat the experiment."""
    return {
        "steps of each life": STEPS[study.scale],
        "of these not learned from": f"every third piece of {problem.MINUTE} steps",
        "a prediction fed back": f"{problem.TILINGS['tilings']} tilings of {problem.TILINGS['intervals'][0]}",
        "touch": f"an infrared distance of at least {problem.NEAR:g}",
        "time is counted up to, in seconds": problem.CAP_S,
        "alpha": "0.1 / active features",
        "alpha_w": "0.001 alpha (cycle world: 0.01)",
        "lambda": 0.9,
        "seeds": join(data.outcomes[ALONE]),
    }


def _lives(study: Study) -> list[LifeSpec]:
    return [LifeSpec(seed, STEPS[study.scale], "behaviour") for seed in seeds_of(study)]


REMARKS = [
    "Learning rests in every third minute, as in the paper's test excursions, and the loop runs on its own "
    "predictions: no signal shows when the wall was last touched. These minutes are scored in the "
    f"second half of each life, but for their first {problem.CAP_S:g} s, since the loop restarts there.",
    "The 32 tilings of a fed-back prediction were chosen among 8 tilings of 8, 32 of 8, 64 of 8 and 32 of 32 "
    "after a look at the life of seed 0; the scoring and the control after a look at those of seeds 0, 1 and "
    "2. {data.freshness}",
]
TITLE = "The loop of figure 1: predictions fed back as features"
EXPERIMENT = Experiment("loop", TITLE, problem.gather, CLAIMS, pictures, tables, settings, REMARKS, _lives)
