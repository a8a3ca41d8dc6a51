"""Experiment `swifttd`: is SwiftTD more accurate and more robust than rules with one step size?

Published figures are of Atari prediction and could not be read: the claims are the abstract's, with limits fixed before
the run.
"""

from __future__ import annotations

import numpy as np

from horde_agent.reproduce.experiment import ClaimRule, Experiment, Finding
from horde_agent.reproduce.result import Cell, Table, join, mean_ci
from horde_agent.reproduce.study import Study
from horde_agent.reproduce.swifttd import problem
from horde_agent.reproduce.swifttd.problem import (
    GRID,
    LARGE,
    METAS,
    NOISY,
    PARTS,
    RIVALS,
    STEP_SIZES,
    SWIFT,
    Data,
    Variant,
)

LEAST_WINS, MOST_SPREAD, MOST_RANDOM, LEAST_SMALL = 0.65, 1.5, 0.2, 0.8


def medians(data: Data, variant: Variant) -> list[float]:
    """Return a variant's median NMSE over the questions, for each life."""
    return [float(np.median(score.nmse)) for score in data.scores[variant]]


def best_rivals(data: Data) -> dict[str, Variant]:
    """Return each rival with the step size that has the least median NMSE over the lives."""
    found: dict[str, Variant] = {}
    for rival in RIVALS:
        best = found.setdefault(rival.rule, rival)
        if np.mean(medians(data, rival)) < np.mean(medians(data, best)):
            found[rival.rule] = rival
    return found


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
    )


def _robust(data: Data) -> Finding:
    def spread(variants: list[Variant]) -> float:
        found = [float(np.median(data.grid[v].nmse)) for v in variants]
        return max(found) / min(found)

    swift, td = spread(GRID), spread([v for v in data.grid if v.rule == "td"])
    return Finding(f"Worst median over best: SwiftTD {swift:.2f}, TD {td:.2f}.", [swift <= MOST_SPREAD, td >= swift])


def _never_diverges(data: Data) -> Finding:
    groups = {"the default": data.scores[SWIFT], "a first step size of 10": [data.grid[LARGE]]}
    counts = {name: int(sum((~score.sound).sum() for score in scores)) for name, scores in groups.items()}
    words = join([f"{n} with {name}" for name, n in counts.items()])
    return Finding(f"Diverged demons: {words}.", [n == 0 for n in counts.values()])


def _parts_matter(data: Data) -> Finding:
    whole, without = medians(data, SWIFT), {name: medians(data, v) for name, v in PARTS.items()}
    words = join([f"{name} {mean_ci(values)}" for name, values in without.items()])
    return Finding(
        f"Median NMSE: all parts {mean_ci(whole)}, {words}.",
        [bool(np.mean(values) > np.mean(whole)) for values in without.values()],
    )


def _small_steps(data: Data) -> Finding:
    shares = [float(np.mean(score.random_steps < MOST_RANDOM)) for score in data.scores[NOISY]]
    ratio = mean_ci([float(np.median(score.random_steps)) for score in data.scores[NOISY]])
    return Finding(
        f"Below {MOST_RANDOM:g} in {mean_ci(shares)} of the questions; median ratio {ratio}.",
        [float(np.mean(shares)) >= LEAST_SMALL],
    )


CLAIMS = [
    ClaimRule(
        "SwiftTD is more accurate than TD, true-online TD and GTD.",
        "abstract",
        "more accurate than TD(lambda) and true-online TD(lambda)",
        f"Lower NMSE over all steps than each rival at its best step size on {LEAST_WINS:.0%} of the questions, in "
        "each life.",
        _better,
    ),
    ClaimRule(
        "SwiftTD is robust over its parameters.",
        "abstract",
        "robust over a wide range",
        f"Over {len(METAS)} meta step sizes and {len(STEP_SIZES)} first step sizes the worst median NMSE is at most "
        f"{MOST_SPREAD:g} times the best; TD's ratio over its step sizes is at least that.",
        _robust,
    ),
    ClaimRule(
        "SwiftTD does not diverge.",
        "abstract",
        "the bound keeps updates from overshooting",
        "No diverged demon, also with a first step size of 10 over the active features.",
        _never_diverges,
    ),
    ClaimRule(
        "All parts contribute.",
        "abstract",
        "adaptation, bound and decay contribute",
        "The median NMSE is higher without adaptation and without the bound.",
        _parts_matter,
    ),
    ClaimRule(
        "Irrelevant features get small step sizes.",
        "abstract",
        "step sizes are learned per feature",
        f"With {problem.N_RANDOM} random bits: their mean step size below {MOST_RANDOM:g} of the other features' in "
        f"{LEAST_SMALL:.0%} of the questions.",
        _small_steps,
    ),
]


def tables(data: Data) -> list[Table]:
    """Return the median NMSE of every variant."""
    rows: list[dict[str, Cell]] = [
        {
            "rule": v.rule,
            "step size": v.step_size,
            "meta": v.meta if v.rule == SWIFT.rule else None,
            "eta": f"{v.eta:g}" if v.rule == SWIFT.rule else None,
            "random bits": v.n_random,
            "median NMSE": str(mean_ci(medians(data, v))),
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


EXPERIMENT = Experiment(
    "swifttd",
    "SwiftTD",
    problem.gather,
    CLAIMS,
    tables,
    settings,
    remarks=(
        "This is the simulated robot of the experiment nexting, not Atari: compare the order of the rules.",
        "Reduced: every 16th sensor instead of all 53, and the parameter grid in the first ten minutes of one life.",
    ),
    lives=problem.lives,
)
