"""Experiment `swifttd`: is SwiftTD more accurate and more robust than rules with one step size?

Published figures are of Atari prediction and could not be read: the claims are the abstract's, with limits fixed before
the run.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from horde_agent.reproduce.experiment import Claims, Experiment, Finding
from horde_agent.reproduce.figure import COLOURS, new_canvas, save, style_axes
from horde_agent.reproduce.result import Cell, Figure, Table, join, mean_ci
from horde_agent.reproduce.study import Study
from horde_agent.reproduce.swifttd import problem
from horde_agent.reproduce.swifttd.problem import (
    LARGE,
    METAS,
    NOISY,
    PARTS,
    STEP_SIZES,
    SWIFT,
    Data,
    Variant,
)

LEAST_WINS, MOST_SPREAD, MOST_RANDOM, LEAST_SMALL = 0.65, 1.5, 0.2, 0.8


def medians(data: Data, variant: Variant) -> list[float]:
    """Return a variant's median NMSE over the questions, for each life; a diverged demon's is infinite."""
    return [float(np.median(np.where(score.sound, score.nmse, np.inf))) for score in data.scores[variant]]


def _text(values: list[float]) -> str:
    return str(mean_ci(values)) if np.isfinite(values).all() else f"inf in {np.isinf(values).sum()} lives"


def best_rivals(data: Data) -> dict[str, Variant]:
    """Return each rival with the step size that has the least median NMSE over the lives."""
    found: dict[str, Variant] = {}
    for rival in (v for v in data.scores if v.rule != SWIFT.rule):
        best = found.setdefault(rival.rule, rival)
        if np.mean(medians(data, rival)) < np.mean(medians(data, best)):
            found[rival.rule] = rival
    return found


CLAIMS = Claims("abstract")


@CLAIMS.add(
    "SwiftTD is more accurate than TD, true-online TD and GTD.",
    "more accurate than TD(lambda) and true-online TD(lambda)",
    f"Lower NMSE over all steps than each rival at its best step size on {LEAST_WINS:.0%} of the questions, in "
    "each life.",
)
def _better(data: Data) -> Finding:
    words, parts = [], []
    for rule, rival in best_rivals(data).items():
        pairs = zip(data.scores[SWIFT], data.scores[rival], strict=True)
        wins = [float(np.mean(mine.nmse < its.nmse)) for mine, its in pairs]
        parts.append(min(wins) >= LEAST_WINS)
        words.append(
            f"{rule} (step size {rival.step_size:g}): {join(wins, '.0%')}, median {mean_ci(medians(data, rival))}"
        )
    return Finding(
        f"Share of the questions with a lower NMSE than the rival's, by life. {'; '.join(words)}. SwiftTD's median "
        f"{mean_ci(medians(data, SWIFT))}.",
        parts,
        f"The bound limits the step of all active features together to {SWIFT.eta:g}; the rivals are best above it. "
        f"TD with a step size of {SWIFT.eta:g} has a median of {mean_ci(medians(data, Variant('td', SWIFT.eta)))}.",
    )


@CLAIMS.add(
    "SwiftTD is robust over its parameters.",
    "robust over a wide range",
    f"Over {len(METAS)} meta step sizes and {len(STEP_SIZES)} first step sizes the worst median NMSE is at most "
    f"{MOST_SPREAD:g} times the best; TD's ratio over its step sizes is at least that.",
)
def _robust(data: Data) -> Finding:
    def spread(variants: list[Variant]) -> float:
        found = [float(np.median(data.grid[v].nmse)) for v in variants]
        return max(found) / min(found)

    tried = [v for v in data.grid if v != LARGE]
    swift, td = (spread([v for v in tried if v.rule == rule]) for rule in (SWIFT.rule, "td"))
    without = spread([v for v in tried if v.rule == SWIFT.rule and v.step_size >= SWIFT.eta])
    return Finding(
        f"Worst median over best: SwiftTD {swift:.2f}, TD {td:.2f}.",
        [swift <= MOST_SPREAD, td >= swift],
        f"With first step sizes from {SWIFT.eta:g} on SwiftTD's ratio is {without:.2f}: smaller ones do not grow fast "
        "enough in ten minutes.",
    )


@CLAIMS.add(
    "SwiftTD does not diverge.",
    "the bound keeps updates from overshooting",
    "No diverged demon, also with a first step size of 10 over the active features.",
)
def _never_diverges(data: Data) -> Finding:
    groups = {"the default": data.scores[SWIFT], "a first step size of 10": [data.grid[LARGE]]}
    counts = {name: int(sum((~score.sound).sum() for score in scores)) for name, scores in groups.items()}
    words = join([f"{n} with {name}" for name, n in counts.items()])
    return Finding(f"Diverged demons: {words}.", [n == 0 for n in counts.values()])


@CLAIMS.add(
    "All parts contribute.",
    "adaptation, bound and decay contribute",
    "The median NMSE is higher without adaptation and without the bound.",
)
def _parts_matter(data: Data) -> Finding:
    whole, without = medians(data, SWIFT), {name: medians(data, v) for name, v in PARTS.items()}
    words = join([f"{name} {_text(values)}" for name, values in without.items()])
    is_sound = np.concatenate([score.sound for score in data.scores[PARTS["without the bound"]]])
    n_diverged, n_demons = int((~is_sound).sum()), len(is_sound)
    return Finding(
        f"Median NMSE: all parts {mean_ci(whole)}, {words}.",
        [bool(np.mean(values) > np.mean(whole)) for values in without.values()],
        f"Without the bound {n_diverged} of {n_demons} demons diverge, fewer than the half that a median sees.",
    )


@CLAIMS.add(
    "Irrelevant features get small step sizes.",
    "step sizes are learned per feature",
    f"With {problem.N_RANDOM} random bits: their mean step size below {MOST_RANDOM:g} of the other features' in "
    f"{LEAST_SMALL:.0%} of the questions.",
)
def _small_steps(data: Data) -> Finding:
    shares = [float(np.mean(score.random_steps < MOST_RANDOM)) for score in data.scores[NOISY]]
    ratio = mean_ci([float(np.median(score.random_steps)) for score in data.scores[NOISY]])
    gain = float(np.mean(medians(data, PARTS["without adaptation"])) / np.mean(medians(data, SWIFT)) - 1.0)
    return Finding(
        f"Below {MOST_RANDOM:g} in {mean_ci(shares)} of the questions; median ratio {ratio}.",
        [float(np.mean(shares)) >= LEAST_SMALL],
        f"Step sizes hardly move: without adaptation the median NMSE differs by {gain:.1%}. A meta step of "
        f"{SWIFT.meta:g} is small for errors of signals in [0, 1].",
    )


def pictures(data: Data, folder: Path) -> list[Figure]:
    """Draw the median NMSE over the step size: of the rivals in all lives, and of SwiftTD's grid in the first."""
    canvas, (left, right) = new_canvas(9.0, 3.2, 2)
    for colour, rule in zip(COLOURS, best_rivals(data), strict=False):
        mine = [v for v in data.scores if v.rule == rule]
        left.plot(
            [v.step_size for v in mine], [np.mean(medians(data, v)) for v in mine], "o-", color=colour, label=rule
        )
    left.axhline(float(np.mean(medians(data, SWIFT))), color="0.3", ls="--", label="swift_td, default")
    for colour, meta in zip(COLOURS, METAS, strict=False):
        mine = [v for v in data.grid if v.rule == SWIFT.rule and v.meta == meta and v != LARGE]
        heights = [np.median(data.grid[v].nmse) for v in mine]
        right.plot([v.step_size for v in mine], heights, "o-", color=colour, label=f"meta {meta:g}")
    style_axes(left, "median NMSE of the rules", legend=True, xscale="log", yscale="log", xlabel="step size")
    style_axes(right, "SwiftTD, first life", legend=True, xscale="log", yscale="log", xlabel="first step size")
    caption = "Median NMSE over all steps by step size: one step size for all weights (left), SwiftTD (right)."
    return [save(canvas, folder / "swifttd.png", caption)]


def tables(data: Data) -> list[Table]:
    """Return the median NMSE of every variant."""
    rows: list[dict[str, Cell]] = [
        {
            "rule": v.rule,
            "step size": v.step_size,
            "meta": v.meta if v.rule == SWIFT.rule else None,
            "eta": f"{v.eta:g}" if v.rule == SWIFT.rule else None,
            "random bits": v.n_random,
            "median NMSE": _text(medians(data, v)),
        }
        for v in data.scores
    ]
    return [
        Table.of(
            "Median NMSE over all steps", rows, "Means over the lives. Step sizes are divided by the active features."
        )
    ]


def settings(study: Study, data: Data) -> dict[str, Cell]:
    """Return everything needed to repeat the measurement."""
    return {
        "seeds": study.seed_list,
        "steps": data.size.steps,
        "steps of the parameter grid, first life": data.size.fewer,
        "questions": len(data.scores[SWIFT][0].nmse),
    }


REMARKS = (
    "This is the simulated robot of the experiment nexting, not Atari: compare the order of the rules.",
    "Reduced: every 16th sensor instead of all 53, and the parameter grid in the first ten minutes of one life.",
)
EXPERIMENT = Experiment(
    "swifttd", "SwiftTD", problem.gather, CLAIMS, pictures, tables, settings, REMARKS, problem.lives
)
