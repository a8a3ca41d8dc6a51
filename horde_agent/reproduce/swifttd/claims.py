"""Accuracy, robustness, and the parts of SwiftTD."""

from __future__ import annotations

import numpy as np

from horde_agent.reproduce.claims import Claims, Finding, Part, above, at_least, at_most, parts
from horde_agent.reproduce.stats import mean_ci
from horde_agent.reproduce.swifttd.problem import (
    LARGE,
    METAS,
    N_RANDOM,
    NOISY,
    PARTS,
    STEP_SIZES,
    SWIFT,
    Data,
    Variant,
)

CLAIMS = Claims("abstract")


def medians(data: Data, variant: Variant) -> list[float]:
    """Return a variant's median NMSE over the questions, for each life; a diverged demon's is infinite."""
    return [
        float(np.median(np.where(score.sound, score.nmse, np.inf)))
        for score in data.scores[variant]
    ]


def best_rivals(data: Data) -> dict[str, Variant]:
    """Return each rival with the step size that has the least median NMSE over the lives."""
    rivals = [v for v in data.scores if v.rule != SWIFT.rule]
    return {
        rule: min((v for v in rivals if v.rule == rule), key=lambda v: np.mean(medians(data, v)))
        for rule in dict.fromkeys(v.rule for v in rivals)
    }


@CLAIMS.add(
    "SwiftTD is more accurate than TD, true-online TD and GTD.",
    "more accurate than TD(lambda) and true-online TD(lambda)",
    "Share of the questions on which SwiftTD's NMSE over all steps is lower than the rival's at its best step size, in "
    "the worst life:",
)
def _better(data: Data) -> Finding:
    wins = {}
    sentences = []
    for rule, rival in best_rivals(data).items():
        pairs = zip(data.scores[SWIFT], data.scores[rival], strict=True)
        wins[rule] = min(np.mean(mine.nmse < its.nmse) for mine, its in pairs)
        sentences.append(f"{rule} {mean_ci(medians(data, rival))} (step size {rival.step_size:g})")
    return Finding(
        parts(wins, at_least(0.65), ".0%"),
        f"Median NMSE: SwiftTD {mean_ci(medians(data, SWIFT))}; {'; '.join(sentences)}.",
        f"The bound limits the step of all active features together to {SWIFT.eta:g}; the rivals are best above it. "
        f"TD with a step size of {SWIFT.eta:g} has a median of {mean_ci(medians(data, Variant('td', SWIFT.eta)))}.",
    )


@CLAIMS.add(
    "SwiftTD is robust over its parameters.",
    "robust over a wide range",
    f"SwiftTD has {len(METAS)} meta and {len(STEP_SIZES)} first step sizes, TD the latter as its step sizes. Worst "
    "median NMSE over the best:",
)
def _robust(data: Data) -> Finding:
    def spread(rule: str, least: float = 0.0) -> float:
        tried = [v for v in data.grid if v != LARGE and v.rule == rule and v.step_size >= least]
        medians_tried = [float(np.median(data.grid[v].nmse)) for v in tried]
        return max(medians_tried) / min(medians_tried)

    swift = spread(SWIFT.rule)
    td = spread("td")
    return Finding(
        [Part("SwiftTD", swift, at_most(1.5), ".2f"), Part("TD", td, at_least(swift), ".2f")],
        cause=f"With first step sizes from {SWIFT.eta:g} on SwiftTD's ratio is {spread(SWIFT.rule, SWIFT.eta):.2f}: "
        "smaller ones do not grow fast enough in ten minutes.",
    )


@CLAIMS.add(
    "SwiftTD does not diverge.", "the bound keeps updates from overshooting", "Diverged demons:"
)
def _never_diverges(data: Data) -> list[Part]:
    groups = {
        "with the default": data.scores[SWIFT],
        "with a first step size of 10": [data.grid[LARGE]],
    }
    return parts(
        {name: sum((~s.sound).sum() for s in scores) for name, scores in groups.items()}, at_most(0)
    )


@CLAIMS.add(
    "All parts contribute.",
    "adaptation, bound and decay contribute",
    "Median NMSE over that of all parts:",
)
def _parts_matter(data: Data) -> Finding:
    whole = np.mean(medians(data, SWIFT))
    is_sound = np.concatenate([score.sound for score in data.scores[PARTS["without the bound"]]])
    n_diverged = int((~is_sound).sum())
    n_demons = len(is_sound)
    return Finding(
        parts(
            {name: np.mean(medians(data, variant)) / whole for name, variant in PARTS.items()},
            above(1.0),
        ),
        f"That of all parts {whole:.3g}.",
        f"Without the bound {n_diverged} of {n_demons} demons diverge, fewer than the half that a median sees.",
    )


@CLAIMS.add(
    "Irrelevant features get small step sizes.",
    "step sizes are learned per feature",
    f"Step sizes of {N_RANDOM} random bits, means over the other features':",
)
def _small_steps(data: Data) -> Finding:
    shares = [np.mean(score.random_steps < 0.2) for score in data.scores[NOISY]]
    ratio = mean_ci([np.median(score.random_steps) for score in data.scores[NOISY]])
    gain = np.mean(medians(data, PARTS["without adaptation"])) / np.mean(medians(data, SWIFT)) - 1.0
    return Finding(
        [Part("share of the questions with a ratio below .2", shares, at_least(0.8))],
        f"Median ratio {ratio}.",
        f"Step sizes hardly move: without adaptation the median NMSE differs by {gain:.1%}. A meta step of "
        f"{SWIFT.meta:g} is small for errors of signals in [0, 1].",
    )


REMARKS = (
    "This is the simulated robot of the experiment nexting, not Atari: compare the order of the rules.",
    "Reduced: every second of the 53 sensors (--scale quick: every 16th), and the parameter grid in the first ten "
    "minutes of one life.",
)
