"""Experiment `swifttd`: SwiftTD beside TD, true-online TD and GTD on the sensors of nexting, with its parts left out.

Features that are never active in a life are left out, which changes no result. Published figures are of Atari
prediction and could not be read: the claims are the abstract's, with limits fixed before the run. Source: Javed,
Sharifnassab & Sutton (2024), SwiftTD: a fast and robust algorithm for temporal difference learning, RLJ 2, 840-863.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.horde import LearnerConfig
from horde_agent.measures.nmsre import normalise
from horde_agent.record import read
from horde_agent.reproduce import nexting
from horde_agent.reproduce.experiment import Cell, Claims, Experiment, Figure, Finding, Table, join, mean_ci
from horde_agent.reproduce.figure import COLOURS, new_canvas, save, style_axes
from horde_agent.reproduce.lessons import learn
from horde_agent.reproduce.lives import interface_of, simulate_lives
from horde_agent.reproduce.nexting_life import Asked, NextingLife, WindowScores
from horde_agent.reproduce.study import Job, OnProgress, Study, cached
from horde_agent.tiles import TileCoder
from horde_agent.types import Bools, Floats, Tiles

N_RANDOM, N_RANDOM_ACTIVE = 500, 38
"""Random bits, and how many of them are active at once: about the share of the tiles."""
STEP_SIZES = (0.01, 0.03, 0.1, 0.3, 1.0)
METAS = (1e-4, 1e-3, 1e-2)


class Variant(NamedTuple):
    """A rule with its settings."""

    rule: str  # its name
    step_size: float  # alpha times the active features; of SwiftTD, the first one
    meta: float = 1e-3  # SwiftTD's meta step size, 0 without adaptation
    eta: float = 0.1  # SwiftTD's bound, infinite without one
    n_random: int = 0  # number of random bits beside the features

    def config(self) -> LearnerConfig:
        """Return the learner's options."""
        parameters = {"meta": self.meta, "eta": self.eta} if self.rule == "swift_td" else {}
        return LearnerConfig(algorithm=self.rule, step_size=self.step_size, parameters=parameters, vector_mspbe=False)


SWIFT = Variant("swift_td", 0.1)
PARTS = {"without adaptation": SWIFT._replace(meta=0.0), "without the bound": SWIFT._replace(eta=np.inf)}
LARGE, NOISY = SWIFT._replace(step_size=10.0), SWIFT._replace(n_random=N_RANDOM)
GRID = [SWIFT._replace(step_size=size, meta=meta) for meta in METAS for size in STEP_SIZES]
RIVALS = [Variant(rule, size) for rule in ("td", "true_online_td", "gtd") for size in STEP_SIZES]


class Size(NamedTuple):
    """Steps learned from, those of the grid of parameters, and the distance between two sensors and two settings.

    The plain engine, SwiftTD's only one, takes about 0.1 ms a question and step: all 53 sensors would take an hour.
    """

    steps: int
    fewer: int
    stride: int
    thin: int


SIZES = {"paper": Size(18_000, 6_000, 16, 1), "quick": Size(250, 100, 16, 2)}


class LiveCoder:
    """The features of a tile coder that are active in a life, renumbered, and random bits after them.

    Args:
        coder: The tile coder.
        live: Numbers of the features that are active, increasing, shape (n_live,).
        n_random: Number of random bits.
    """

    def __init__(self, coder: TileCoder, live: NDArray[np.int64], n_random: int) -> None:
        self._coder, self.n_live, self._n_random = coder, len(live), n_random
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


class Score(NamedTuple):
    """Result of a variant on a life."""

    nmse: Floats  # over all steps learned from, shape (n_questions,)
    sound: Bools  # which demons did not diverge, shape (n_questions,)
    random_steps: Floats  # mean step size of the random bits over that of the features, (n_questions,); NaN without


def life_of(study: Study, path: Path, n_random: int, n_steps: int) -> NextingLife:
    """Return the start of a life with its live features renumbered, and one of every `stride` sensors."""
    interface = interface_of(study)
    asked_about = set(interface.sensors[:: SIZES[study.scale].stride])
    channels = tuple(channel._replace(is_sensor=i in asked_about) for i, channel in enumerate(interface.channels))
    asked = Asked(replace(interface, channels=channels), n_bits=0, events=())
    stream = read(path)[: n_steps + asked.horizon + 2]
    coder: Any = LiveCoder(interface.coder, NextingLife(stream, asked).live.index, n_random)
    return NextingLife(stream, replace(asked, interface=replace(asked.interface, coder=coder)))


@cached(Score)
def score(on_progress: OnProgress, study: Study, path: Path, variant: Variant, n_steps: int) -> Score:
    """Learn from the first steps of a life by a variant; a job for a worker process."""
    life = life_of(study, path, variant.n_random, n_steps)
    horde = life.asked.horde(variant.config())
    scores = WindowScores(life, horde, n_steps, 1, freezes=False)

    def after(n: int) -> None:
        scores(n)
        on_progress(n / n_steps)

    learn(life.lessons, horde, life.asked.interface, after=after)
    found, random_steps = scores.result(), np.full(horde.n_demons, np.nan)
    if variant.n_random:
        sizes, n_live = horde.step_sizes(), horde.n_features - variant.n_random
        random_steps = sizes[:, n_live:].mean(axis=1) / sizes[:, :n_live].mean(axis=1)
    return Score(normalise(found.online, found.variance)[0], found.sound, random_steps)


class Data(NamedTuple):
    """Everything that was measured."""

    scores: dict[Variant, list[Score]]  # by variant, then life
    grid: dict[Variant, Score]  # of SwiftTD and TD over their parameters, in the first life and fewer steps
    size: Size  # lengths


def gather(study: Study) -> Data:
    """Learn from the lives by every variant."""
    size, paths = SIZES[study.scale], simulate_lives(study, nexting.lives(study))
    rivals = RIVALS[:: size.thin]
    variants = [SWIFT, NOISY, *PARTS.values(), *rivals]
    plans = [(v, seed, path, size.steps) for v in variants for seed, path in zip(study.seeds, paths, strict=True)]
    tried = [*GRID[:: size.thin], LARGE, *(rival for rival in rivals if rival.rule == "td")]
    plans += [(v, study.seeds[0], paths[0], size.fewer) for v in tried]
    jobs = [
        Job(
            f"{v.rule} {v.step_size:g}, life {seed}",
            score,
            (study, path, v, n),
            50.0 if v.rule == "swift_td" else 1.0,
        )
        for v, seed, path, n in plans
    ]
    found, n = study.in_parallel(jobs), len(study.seeds)
    scores = {v: found[k * n : (k + 1) * n] for k, v in enumerate(variants)}
    return Data(scores, dict(zip(tried, found[len(variants) * n :], strict=True)), size)


# ---- claims ----------------------------------------------------------------------------------------------------------


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
    f"With {N_RANDOM} random bits: their mean step size below {MOST_RANDOM:g} of the other features' in "
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
EXPERIMENT = Experiment("swifttd", "SwiftTD", gather, CLAIMS, pictures, tables, settings, REMARKS, nexting.lives)
