"""Experiment `swifttd`: SwiftTD beside TD, true-online TD and GTD on the sensors of nexting, with its parts left out.

Features that are never active in a life are left out, which changes no result. Source: Javed, Sharifnassab & Sutton
(2024), SwiftTD: a fast and robust algorithm for temporal difference learning, RLJ 2, 840-863.
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
from horde_agent.reproduce.lessons import learn
from horde_agent.reproduce.lives import interface_of
from horde_agent.reproduce.nexting.life import Asked, NextingLife, WindowScores
from horde_agent.reproduce.parallel import OnProgress
from horde_agent.reproduce.study import Study
from horde_agent.tiles import TileCoder
from horde_agent.types import Bools, Floats, Tiles

N_RANDOM, N_RANDOM_ACTIVE = 500, 38
"""Random bits, and how many of them are active at once: about the share of the tiles."""
RIVALS = ("td", "true_online_td", "gtd")
STEP_SIZES = (0.01, 0.03, 0.1, 0.3, 1.0)
METAS = (1e-4, 1e-3, 1e-2)
TUNING_SEED = 100
"""Seed of the life on which SwiftTD's first step size was chosen."""


class Variant(NamedTuple):
    """A rule with its settings.

    Attributes:
        rule: Its name.
        step_size: alpha times the active features; of SwiftTD, the first one.
        meta, eta: SwiftTD's meta step size, 0 without adaptation, and its bound, infinite without one.
        n_random: Number of random bits beside the features.
    """

    rule: str
    step_size: float
    meta: float = 1e-3
    eta: float = 0.1
    n_random: int = 0

    def config(self) -> LearnerConfig:
        """Return the learner's options."""
        parameters = {"meta": self.meta, "eta": self.eta} if self.rule == "swift_td" else {}
        return LearnerConfig(algorithm=self.rule, step_size=self.step_size, parameters=parameters, vector_mspbe=False)


SWIFT = Variant("swift_td", 0.1)
PARTS = {"without adaptation": SWIFT._replace(meta=0.0), "without the bound": SWIFT._replace(eta=np.inf)}
LARGE, NOISY = SWIFT._replace(step_size=10.0), SWIFT._replace(n_random=N_RANDOM)
GRID = [SWIFT._replace(step_size=size, meta=meta) for meta in METAS for size in STEP_SIZES]


class Size(NamedTuple):
    """Steps learned from; those of the variants of SwiftTD, and the distance between two of their questions."""

    steps: int
    fewer_steps: int
    stride: int


SIZES = {"paper": Size(18_000, 18_000, 4), "quick": Size(300, 300, 16)}


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
    """Result of a variant on a life.

    Attributes:
        nmse: Over all steps learned from, shape (n_questions,).
        sound: Which demons did not diverge, shape (n_questions,).
        random_steps: Mean step size of the random bits over that of the features, shape (n_questions,); NaN without.
    """

    nmse: Floats
    sound: Bools
    random_steps: Floats


def life_of(study: Study, path: Path, n_random: int, stride: int, n_steps: int) -> NextingLife:
    """Return the start of a life with its live features renumbered, and one of every `stride` sensors."""
    interface = interface_of(study)
    kept = set(interface.sensors[::stride])
    channels = tuple(channel._replace(is_sensor=i in kept) for i, channel in enumerate(interface.channels))
    interface = replace(interface, channels=channels)
    asked = Asked(interface, n_bits=0, events=())
    stream = read(path)[: n_steps + asked.horizon + 2]
    coder: Any = LiveCoder(interface.coder, NextingLife(stream, asked).live.index, n_random)
    return NextingLife(stream, replace(asked, interface=replace(interface, coder=coder)))


def score(on_progress: OnProgress, study: Study, seed: int, path: Path, variant: Variant, is_whole: bool) -> Score:
    """Learn from a life by a variant unless cached; a job for a worker process.

    Args:
        on_progress: Takes the finished share.
        study: The study.
        seed: Of the life.
        path: Of its recording.
        variant: The rule and its settings.
        is_whole: Whether all questions and steps are taken, or fewer.
    """
    size = SIZES[study.scale]
    n_steps, stride = (size.steps, 1) if is_whole else (size.fewer_steps, size.stride)

    def make() -> Score:
        life = life_of(study, path, variant.n_random, stride, n_steps)
        horde = life.asked.horde(variant.config())
        scores = WindowScores(life, horde, n_steps, 1, freezes=False)

        def after(n: int) -> None:
            scores(n)
            on_progress(n / n_steps)

        learn(life.lessons, horde, life.asked.interface, after=after)
        found = scores.result()
        random_steps = np.full(horde.n_demons, np.nan)
        if variant.n_random:
            sizes, n_live = horde.step_sizes(), horde.n_features - variant.n_random
            random_steps = sizes[:, n_live:].mean(axis=1) / sizes[:, :n_live].mean(axis=1)
        return Score(normalise(found.online, found.variance)[0], found.sound, random_steps)

    name = f"swifttd-{'-'.join(f'{x:g}' if isinstance(x, float) else str(x) for x in variant)}-{is_whole:d}-{seed}"
    return study.cached_arrays(Score, name, make, seed=seed, life=path.name, n_steps=n_steps, stride=stride)
