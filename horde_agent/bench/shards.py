"""Time a sharded Horde against one Horde of the same demons, in turns, over the same stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from horde_agent.bench.competitors import Learning
from horde_agent.bench.workload import Stream
from horde_agent.cluster import ShardedHorde
from horde_agent.gvf import GVF
from horde_agent.horde import Mode

N_SHARDS = 4
N_FEW = 1_100  # demons of a small shard: fewer than 1,024 of many policies are never parted

Questions = Callable[[int], Sequence[GVF]]


class Turns(NamedTuple):
    """How long to measure: rounds of `n_steps` steps; the first round does not count."""

    n_rounds: int
    n_steps: int


class Sharded(Learning):
    """Learns as `Learning` does, in shards.

    Args:
        questions: All of them.
        stream: The transitions.
        mode: As in `Horde`.
        ask: Names of the demons to return predictions of, on every step.
    """

    def __init__(self, questions: Sequence[GVF], stream: Stream, mode: Mode = "eager", ask: Sequence[str] = ()) -> None:
        self.stream, self._ask = stream, list(ask)
        size: dict[str, Any] = {"n_features": stream.n_features, "n_active": stream.n_active}
        self.sharded = ShardedHorde(questions, **size, config=Learning.config(), mode=mode, shards=N_SHARDS)
        self.sharded.begin(stream.sensors[0], stream.tiles[0])

    def __call__(self, t: int) -> None:
        """Learn from the transition from state t to state t + 1."""
        s = self.stream
        action, probability = int(s.actions[t]), float(s.probabilities[t])
        self.sharded.learn(action, probability, s.sensors[t + 1], s.tiles[t + 1], ask=self._ask)


def against_one(questions: Sequence[GVF], stream: Stream, turns: Turns) -> tuple[float, float]:
    """Return the ms per step, eager, of one Horde, and of shards of the same demons until every one has come as far."""
    one, many = Learning(questions, stream), Sharded(questions, stream)
    with many.sharded:
        spent: list[tuple[float, float]] = []
        for k in range(turns.n_rounds + 1):
            steps = range(k * turns.n_steps, (k + 1) * turns.n_steps)
            spent.append((_timed(one, steps, lambda: None), _timed(many, steps, many.sharded.catch_up)))
    alone, together = np.median(np.array(spent[1:]), axis=0).tolist()
    return 1e3 * alone / turns.n_steps, 1e3 * together / turns.n_steps


def _timed(step: Callable[[int], None], steps: range, finish: Callable[[], None]) -> float:
    """Return the seconds that some steps take, all that was put off included."""
    began = time.perf_counter()
    for t in steps:
        step(t)
    finish()
    return time.perf_counter() - began


def asked_ms(questions: Questions, stream: Stream, turns: Turns) -> list[float]:
    """Return the ms of each step that requests a prediction from the last of four small shards."""
    few = questions(N_SHARDS * N_FEW)
    many = Sharded(few, stream, ask=[few[-1].name])
    with many.sharded:
        return _each_ms(many, turns)


def noted_ms(questions: Questions, stream: Stream, turns: Turns) -> list[float]:
    """Return the driver's ms of each step with four small shards and no requested prediction."""
    many = Sharded(questions(N_SHARDS * N_FEW), stream, "deferred")
    with many.sharded:
        spent = _each_ms(many, turns)
        many.sharded.catch_up()
    return spent


def _each_ms(step: Callable[[int], None], turns: Turns) -> list[float]:
    """Return how long each step takes, those of the first round left out."""
    spent = []
    for t in range((turns.n_rounds + 1) * turns.n_steps):
        began = time.perf_counter()
        step(t)
        spent.append(1e3 * (time.perf_counter() - began))
    return spent[turns.n_steps :]
