"""Experiment `swifttd`: SwiftTD against TD, true-online TD and GTD on the sensors of nexting, with its parts left out.

Features that are never active in a life are left out, which changes no result. Published figures
are of Atari prediction and could not be read: the claims are the abstract's, with limits fixed
before the run.

Source: Javed, Sharifnassab & Sutton (2024), SwiftTD: a fast and robust algorithm for temporal
difference learning, RLJ 2, 840-863.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from examples.reproduce.checks import Measured, Number, above, at_least, at_most, check
from examples.reproduce.experiment import ExperimentContext, Table, cached
from examples.reproduce.figures import COLOURS, Picture, new_canvas, style_axes
from examples.reproduce.lives import interface_of, simulate_lives
from examples.reproduce.nexting import lives
from examples.reproduce.nexting_life import NextingLife, NextingQuestions, learn_life
from examples.reproduce.runner import Job
from examples.reproduce.scores import normalise
from examples.reproduce.stats import mean_ci
from horde_agent.horde import LearnerConfig
from horde_agent.record import read
from horde_agent.tiles import TileCoder
from horde_agent.types import Bools, Floats, Tiles

TITLE = "SwiftTD"
N_RANDOM = 500
N_RANDOM_ACTIVE = 38
"""Random bits, and how many of them are active at once: about the share of the tiles."""
STEP_SIZES = (0.01, 0.03, 0.1, 0.3, 1.0)
METAS = (1e-4, 1e-3, 1e-2)


class SwiftTDVariant(NamedTuple):
    """A rule with its settings."""

    rule: str  # its name
    step_size: float  # alpha times the active features; of SwiftTD, the first one
    meta: float = 1e-3  # SwiftTD's meta step size, 0 without adaptation
    eta: float = 0.1  # SwiftTD's bound, infinite without one
    n_random: int = 0  # number of random bits in addition to the features

    def config(self) -> LearnerConfig:
        """Return the learner's options."""
        parameters = {}
        if self.rule == "swift_td":
            parameters = {"meta": self.meta, "eta": self.eta}
        return LearnerConfig.paper(
            algorithm=self.rule, step_size=self.step_size, parameters=parameters, vector_mspbe=False
        )


SWIFT = SwiftTDVariant("swift_td", 0.1)
PARTS = {
    "without adaptation": SWIFT._replace(meta=0.0),
    "without the bound": SWIFT._replace(eta=np.inf),
}
LARGE = SWIFT._replace(step_size=10.0)
NOISY = SWIFT._replace(n_random=N_RANDOM)
GRID = [SWIFT._replace(step_size=size, meta=meta) for meta in METAS for size in STEP_SIZES]
RIVALS = [
    SwiftTDVariant(rule, size) for rule in ("td", "true_online_td", "gtd") for size in STEP_SIZES
]


class SwiftTDSize(NamedTuple):
    """Steps learned from, those of the grid of parameters, and the distance between two sensors and two settings."""

    steps: int
    fewer: int
    stride: int
    thin: int


# The plain engine, SwiftTD's only one, takes 0.05 ms a question and step: all 53 sensors would take
# 30 min.
SIZES = {"paper": SwiftTDSize(18_000, 6_000, 2, 1), "quick": SwiftTDSize(250, 100, 16, 2)}


class LiveCoder:
    """The features of a tile coder that are active in a life, renumbered, and `n_random` random bits after them.

    `live` are the numbers of these features, increasing, shape (n_live,).
    """

    def __init__(self, coder: TileCoder, live: NDArray[np.int64], n_random: int) -> None:
        self._coder = coder
        self.n_live = len(live)
        self._n_random = n_random
        self._place = np.zeros(coder.n_features, dtype=np.int64)
        self._place[live] = np.arange(len(live))
        self._rng = np.random.default_rng(n_random)
        self.n_features = self.n_live + n_random
        self.n_active = coder.n_active + (N_RANDOM_ACTIVE if n_random else 0)

    def encode(self, observation: Any) -> Tiles:
        """Return the active features of an observation, shape (n_active,)."""
        tiles = self._place[self._coder.encode(observation)]
        if not self._n_random:
            return tiles
        drawn = self._rng.choice(self._n_random, N_RANDOM_ACTIVE, replace=False)
        return np.concatenate([tiles, self.n_live + drawn])


class SwiftTDScore(NamedTuple):
    """Result of a variant on a life."""

    nmse: Floats  # over all steps learned from, shape (n_questions,)
    sound: Bools  # which demons did not diverge, shape (n_questions,)
    # Mean step size of the random bits over that of the features, (n_questions,); NaN without
    random_steps: Floats


@cached(SwiftTDScore)
def score(
    context: ExperimentContext, path: Path, variant: SwiftTDVariant, n_steps: int
) -> SwiftTDScore:
    """Learn one of every `stride` sensors from the first steps of a life by a variant."""
    interface = interface_of(context)
    asked_about = set(interface.sensors[:: SIZES[context.scale].stride])
    channels = tuple(
        channel._replace(is_sensor=i in asked_about) for i, channel in enumerate(interface.channels)
    )
    question_set = NextingQuestions(replace(interface, channels=channels), n_bits=0, events=())
    stream = read(path)[: n_steps + question_set.horizon + 2]
    coder: Any = LiveCoder(
        interface.coder, NextingLife(stream, question_set).live.index, variant.n_random
    )
    life = NextingLife(
        stream, replace(question_set, interface=replace(question_set.interface, coder=coder))
    )
    horde = life.asked.horde(variant.config())
    learned = learn_life(life, horde, n_steps, n_windows=1)
    random_steps = np.full(horde.n_demons, np.nan)
    if variant.n_random:
        sizes = horde.step_sizes()
        n_live = horde.n_features - variant.n_random
        random_steps = sizes[:, n_live:].mean(axis=1) / sizes[:, :n_live].mean(axis=1)
    return SwiftTDScore(normalise(learned.online, learned.variance)[0], learned.sound, random_steps)


class SwiftTDScores(NamedTuple):
    """Everything that was measured."""

    scores: dict[SwiftTDVariant, list[SwiftTDScore]]  # by variant, then life
    # Of SwiftTD and TD over their parameters, in the first life and fewer steps
    grid: dict[SwiftTDVariant, SwiftTDScore]


def run(context: ExperimentContext) -> tuple[SwiftTDScores, dict[str, object]]:
    """Learn from the lives by every variant."""
    size = SIZES[context.scale]
    recordings = simulate_lives(context, lives(context))
    rivals = RIVALS[:: size.thin]
    variants = [SWIFT, NOISY, *PARTS.values(), *rivals]
    tried = [*GRID[:: size.thin], LARGE, *(rival for rival in rivals if rival.rule == "td")]
    keys = [
        *product(variants, context.seeds, [size.steps]),
        *((v, context.seeds[0], size.fewer) for v in tried),
    ]

    def job(v: SwiftTDVariant, seed: int, n_steps: int) -> Job:
        cost = 1.0
        if v.rule == SWIFT.rule:
            cost = 50.0
        return Job(
            f"{v.rule} {v.step_size:g}, life {seed}",
            score,
            (context, recordings[seed], v, n_steps),
            cost,
        )

    results = context.in_parallel({key: job(*key) for key in keys})
    scores = {v: [results[v, seed, size.steps] for seed in context.seeds] for v in variants}
    return SwiftTDScores(scores, {v: results[v, context.seeds[0], size.fewer] for v in tried}), {
        "steps": size.steps,
        "steps of the parameter grid, first life": size.fewer,
        "questions": len(scores[SWIFT][0].nmse),
    }


# ---- checks ---------------------------------------------------------------------------------------------------------


def medians(data: SwiftTDScores, variant: SwiftTDVariant) -> list[float]:
    """Return a variant's median NMSE over the questions, for each life; a diverged demon's is infinite."""
    return [
        float(np.median(np.where(score.sound, score.nmse, np.inf)))
        for score in data.scores[variant]
    ]


def best_rivals(data: SwiftTDScores) -> dict[str, SwiftTDVariant]:
    """Return each rival with the step size that has the least median NMSE over the lives."""
    rivals = [v for v in data.scores if v.rule != SWIFT.rule]
    return {
        rule: min((v for v in rivals if v.rule == rule), key=lambda v: np.mean(medians(data, v)))
        for rule in dict.fromkeys(v.rule for v in rivals)
    }


@check(
    claim="SwiftTD is more accurate than TD, true-online TD and GTD.",
    paper="more accurate than TD(lambda) and true-online TD(lambda)",
    source="abstract",
    terms=(
        "Share of the questions on which SwiftTD's NMSE over all steps is lower than the "
        "rival's at its best step size, in the worst life:"
    ),
    limit=at_least(0.65),
    form=".0%",
)
def _swift_is_more_accurate(data: SwiftTDScores) -> Measured:
    wins = {}
    sentences = []
    for rule, rival in best_rivals(data).items():
        pairs = zip(data.scores[SWIFT], data.scores[rival], strict=True)
        wins[rule] = min(np.mean(mine.nmse < its.nmse) for mine, its in pairs)
        sentences.append(f"{rule} {mean_ci(medians(data, rival))} (step size {rival.step_size:g})")
    td_at_the_bound = mean_ci(medians(data, SwiftTDVariant("td", SWIFT.eta)))
    return Measured(
        wins,
        f"Median NMSE: SwiftTD {mean_ci(medians(data, SWIFT))}; {'; '.join(sentences)}.",
        f"The bound limits the step of all active features together to {SWIFT.eta:g}; the rivals are best above it. "
        f"TD with a step size of {SWIFT.eta:g} has a median of {td_at_the_bound}.",
    )


@check(
    claim="SwiftTD is robust over its parameters.",
    paper="robust over a wide range",
    source="abstract",
    terms=(
        f"SwiftTD has {len(METAS)} meta and {len(STEP_SIZES)} first step sizes, TD the latter "
        "as its step sizes. Worst median NMSE over the best:"
    ),
)
def _swift_is_robust(data: SwiftTDScores) -> Measured:
    def spread(rule: str, least: float = 0.0) -> float:
        tried = [v for v in data.grid if v != LARGE and v.rule == rule and v.step_size >= least]
        medians_tried = [float(np.median(data.grid[v].nmse)) for v in tried]
        return max(medians_tried) / min(medians_tried)

    swift = spread(SWIFT.rule)
    td = spread("td")
    return Measured(
        [Number("SwiftTD", swift, at_most(1.5), ".2f"), Number("TD", td, at_least(swift), ".2f")],
        cause=f"With first step sizes from {SWIFT.eta:g} on SwiftTD's ratio is {spread(SWIFT.rule, SWIFT.eta):.2f}: "
        "smaller ones do not grow fast enough in ten minutes.",
    )


@check(
    claim="SwiftTD does not diverge.",
    paper="the bound keeps updates from overshooting",
    source="abstract",
    terms="Diverged demons:",
    limit=at_most(0),
)
def _swift_does_not_diverge(data: SwiftTDScores) -> Mapping[str, ArrayLike]:
    groups = {
        "with the default": data.scores[SWIFT],
        "with a first step size of 10": [data.grid[LARGE]],
    }
    return {name: sum((~s.sound).sum() for s in scores) for name, scores in groups.items()}


@check(
    claim="All parts contribute.",
    paper="adaptation, bound and decay contribute",
    source="abstract",
    terms="Median NMSE over that of all parts:",
    limit=above(1.0),
)
def _all_parts_contribute(data: SwiftTDScores) -> Measured:
    whole = np.mean(medians(data, SWIFT))
    is_sound = np.concatenate([score.sound for score in data.scores[PARTS["without the bound"]]])
    n_diverged = int((~is_sound).sum())
    n_demons = len(is_sound)
    return Measured(
        {name: np.mean(medians(data, variant)) / whole for name, variant in PARTS.items()},
        f"That of all parts {whole:.3g}.",
        f"Without the bound {n_diverged} of {n_demons} demons diverge, fewer than the half that a median sees.",
    )


@check(
    claim="Irrelevant features get small step sizes.",
    paper="step sizes are learned per feature",
    source="abstract",
    terms=f"Step sizes of {N_RANDOM} random bits, means over the other features':",
    limit=at_least(0.8),
)
def _irrelevant_features_get_small_steps(data: SwiftTDScores) -> Measured:
    shares = [np.mean(score.random_steps < 0.2) for score in data.scores[NOISY]]
    ratio = mean_ci([np.median(score.random_steps) for score in data.scores[NOISY]])
    gain = np.mean(medians(data, PARTS["without adaptation"])) / np.mean(medians(data, SWIFT)) - 1.0
    return Measured(
        {"share of the questions with a ratio below .2": shares},
        f"Median ratio {ratio}.",
        f"Step sizes hardly move: without adaptation the median NMSE differs by {gain:.1%}. A meta step of "
        f"{SWIFT.meta:g} is small for errors of signals in [0, 1].",
    )


REMARKS = (
    "This is the simulated robot of the experiment nexting, not Atari: compare the order of the rules.",
    "Reduced: every second of the 53 sensors (--scale quick: every 16th), and the parameter grid in the first ten "
    "minutes of one life.",
)


# ---- figure and tables ----------------------------------------------------------------------------------------------


def pictures(data: SwiftTDScores) -> dict[str, Picture]:
    """Draw the median NMSE over the step size: of the rivals in all lives, and of SwiftTD's grid in the first."""
    canvas, (left, right) = new_canvas(9.0, 3.2, 2)
    for colour, rule in zip(COLOURS, best_rivals(data), strict=False):
        variants = [v for v in data.scores if v.rule == rule]
        heights = [np.mean(medians(data, v)) for v in variants]
        left.plot([v.step_size for v in variants], heights, "o-", color=colour, label=rule)
    left.axhline(
        float(np.mean(medians(data, SWIFT))), color="0.3", ls="--", label="swift_td, default"
    )
    for colour, meta in zip(COLOURS, METAS, strict=False):
        variants = [v for v in data.grid if v.rule == SWIFT.rule and v.meta == meta and v != LARGE]
        heights = [np.median(data.grid[v].nmse) for v in variants]
        right.plot(
            [v.step_size for v in variants], heights, "o-", color=colour, label=f"meta {meta:g}"
        )
    style_axes(
        left,
        "median NMSE of the rules",
        legend=True,
        xscale="log",
        yscale="log",
        xlabel="step size",
    )
    style_axes(
        right,
        "SwiftTD, first life",
        legend=True,
        xscale="log",
        yscale="log",
        xlabel="first step size",
    )
    caption = "Median NMSE over all steps by step size: one step size for all weights (left), SwiftTD (right)."
    return {"swifttd": Picture(canvas, caption)}


def tables(data: SwiftTDScores) -> list[Table]:
    """Return the median NMSE of every variant."""
    rows = []
    for v in data.scores:
        errors = medians(data, v)
        is_swift = v.rule == SWIFT.rule
        row = {"rule": v.rule, "step size": v.step_size, "meta": v.meta if is_swift else None}
        row |= {"eta": f"{v.eta:g}" if is_swift else None, "random bits": v.n_random}
        error: Any = f"inf in {np.isinf(errors).sum()} lives"
        if np.isfinite(errors).all():
            error = mean_ci(errors)
        rows.append(row | {"median NMSE": error})
    note = "Means over the lives. Step sizes are divided by the active features."
    return [Table.of("Median NMSE over all steps", rows, note)]
