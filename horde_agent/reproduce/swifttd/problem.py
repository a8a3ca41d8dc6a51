"""Variants of SwiftTD and its rivals on the sensors of a nexting life."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.horde import LearnerConfig
from horde_agent.measures.nmsre import normalise
from horde_agent.record import read
from horde_agent.reproduce.experiment import ExperimentContext, cached
from horde_agent.reproduce.lives import interface_of, simulate_lives
from horde_agent.reproduce.nexting.life import Asked, NextingLife, learn_life
from horde_agent.reproduce.nexting.problem import lives
from horde_agent.reproduce.runner import Job
from horde_agent.tiles import TileCoder
from horde_agent.types import Bools, Floats, Tiles

TITLE = "SwiftTD"
N_RANDOM = 500
N_RANDOM_ACTIVE = 38
"""Random bits, and how many of them are active at once: about the share of the tiles."""
STEP_SIZES = (0.01, 0.03, 0.1, 0.3, 1.0)
METAS = (1e-4, 1e-3, 1e-2)


class Variant(NamedTuple):
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
        return LearnerConfig(
            algorithm=self.rule, step_size=self.step_size, parameters=parameters, vector_mspbe=False
        )


SWIFT = Variant("swift_td", 0.1)
PARTS = {
    "without adaptation": SWIFT._replace(meta=0.0),
    "without the bound": SWIFT._replace(eta=np.inf),
}
LARGE = SWIFT._replace(step_size=10.0)
NOISY = SWIFT._replace(n_random=N_RANDOM)
GRID = [SWIFT._replace(step_size=size, meta=meta) for meta in METAS for size in STEP_SIZES]
RIVALS = [Variant(rule, size) for rule in ("td", "true_online_td", "gtd") for size in STEP_SIZES]


class Size(NamedTuple):
    """Steps learned from, those of the grid of parameters, and the distance between two sensors and two settings."""

    steps: int
    fewer: int
    stride: int
    thin: int


# The plain engine, SwiftTD's only one, takes 0.05 ms a question and step: all 53 sensors would take
# 30 min.
SIZES = {"paper": Size(18_000, 6_000, 2, 1), "quick": Size(250, 100, 16, 2)}


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


class Score(NamedTuple):
    """Result of a variant on a life."""

    nmse: Floats  # over all steps learned from, shape (n_questions,)
    sound: Bools  # which demons did not diverge, shape (n_questions,)
    # Mean step size of the random bits over that of the features, (n_questions,); NaN without
    random_steps: Floats


@cached(Score)
def score(context: ExperimentContext, path: Path, variant: Variant, n_steps: int) -> Score:
    """Learn one of every `stride` sensors from the first steps of a life by a variant."""
    interface = interface_of(context)
    asked_about = set(interface.sensors[:: SIZES[context.scale].stride])
    channels = tuple(
        channel._replace(is_sensor=i in asked_about) for i, channel in enumerate(interface.channels)
    )
    question_set = Asked(replace(interface, channels=channels), n_bits=0, events=())
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
    return Score(normalise(learned.online, learned.variance)[0], learned.sound, random_steps)


class Data(NamedTuple):
    """Everything that was measured."""

    scores: dict[Variant, list[Score]]  # by variant, then life
    grid: dict[
        Variant, Score
    ]  # of SwiftTD and TD over their parameters, in the first life and fewer steps


def gather(context: ExperimentContext) -> tuple[Data, dict[str, object]]:
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

    def job(v: Variant, seed: int, n_steps: int) -> Job:
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
    return Data(scores, {v: results[v, context.seeds[0], size.fewer] for v in tried}), {
        "steps": size.steps,
        "steps of the parameter grid, first life": size.fewer,
        "questions": len(scores[SWIFT][0].nmse),
    }
