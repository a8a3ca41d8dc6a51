"""The timed programs: Hordes learning from a stream, and baselines for the same questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from horde_agent.bench.dense import DenseFused
from horde_agent.bench.measure import Step
from horde_agent.bench.numpy_horde import FeatureMajor, LearnerMajor, OwnTraces
from horde_agent.bench.workload import N_SENSORS, Stream
from horde_agent.gvf import GVF, Channel
from horde_agent.horde import Horde, Mode
from horde_agent.learning.rules import LearnerConfig
from horde_agent.learning.signals import SignalMaker

LAMBDA, STEP_SIZE, RATIO = 0.9, 0.1, 0.001  # the first and the last two over the active features make alpha and alpha_w
DTypes = Literal["float32", "float64"]


class Learning:
    """A Horde that learns from transition t when it is called with t: policies, checks and predictions included.

    The w rule is "importance-weighted" and no vector MSPBE is kept, unless `config` says otherwise.
    """

    def __init__(self, questions: Sequence[GVF], stream: Stream, mode: Mode = "eager", **config: Any) -> None:
        self.stream = stream
        self.horde = Horde(
            questions,
            n_features=stream.n_features,
            n_active=stream.n_active,
            config=self.config(**config),
            mode=mode,
        )
        self.horde.begin(stream.sensors[0], stream.tiles[0])

    @staticmethod
    def config(**config: Any) -> LearnerConfig:
        """Return how it learns, unless `config` says otherwise."""
        return LearnerConfig(**{"w_rule": "importance-weighted", "vector_mspbe": False, **config})

    def __call__(self, t: int) -> None:
        """Learn from the transition from state t to state t + 1."""
        s = self.stream
        self.horde.learn(int(s.actions[t]), float(s.probabilities[t]), s.sensors[t + 1], s.tiles[t + 1])


def ratios(questions: Sequence[GVF], stream: Stream, n_steps: int) -> Any:
    """Return rho of each distinct policy at every step, float32, shape (n_steps, n_policies)."""
    policies = list(dict.fromkeys(q.target_policy for q in questions))
    few = [GVF(f"{i}", policy, Channel(0), 0.0) for i, policy in enumerate(policies)]
    maker = SignalMaker(
        few, np.zeros(len(few), dtype=np.int64), stream.n_features, stream.n_active, np.dtype(np.float32)
    )
    found = np.empty((n_steps, len(policies)), dtype=np.float32)
    for t in range(n_steps):
        before, after = ((stream.sensors[k].astype(np.float64), stream.tiles[k]) for k in (t, t + 1))
        how = int(stream.actions[t]), float(stream.probabilities[t])
        maker.make(*how, before, after, lambda *_: 0.0, terminated=False)
        found[t] = maker.signals.rho_t
    return found


def of_constant_actions(questions: Sequence[GVF], stream: Stream, n_steps: int, dtype: DTypes) -> dict[str, Step]:
    """Return the NumPy versions of W1 in both layouts: five policies x three time scales share a trace each."""
    alpha = STEP_SIZE / stream.n_active
    start, gamma = np.arange(0, 15 * N_SENSORS + 1, N_SENSORS), np.tile([0.0, 0.5, 0.8], 5)
    rho = np.repeat(ratios(questions, stream, n_steps), 3, axis=1).astype(dtype)
    c = np.tile(stream.sensors[:, :N_SENSORS], 15).astype(dtype)
    kinds: dict[str, Callable[..., Any]] = {"learner-major": LearnerMajor, "feature-major": FeatureMajor}
    return {
        f"NumPy {dtype}, {name}": _step(
            kind(start, stream.n_features, gamma, LAMBDA, alpha, RATIO * alpha, every_step=False, dtype=dtype),
            stream,
            rho,
            c,
        )
        for name, kind in kinds.items()
    }


def of_own_policies(questions: Sequence[GVF], stream: Stream, rho: Any, dtype: DTypes) -> dict[str, Step]:
    """Return the NumPy versions of W2 in both layouts, and the dense pass where that is of this type."""
    rho, c = rho.astype(dtype), stream.sensors[:, _channels(questions)].astype(dtype)
    gamma, alpha = np.array([q.continuation for q in questions]), STEP_SIZE / stream.n_active
    rates = (stream.n_features, LAMBDA, alpha, RATIO * alpha)
    learners: dict[str, Any] = {
        f"NumPy {dtype}, {name}": OwnTraces(gamma, *rates, by_feature=name == "feature-major", dtype=dtype)
        for name in ("learner-major", "feature-major")
    }
    if dtype == "float32":
        learners["dense pass"] = DenseFused(gamma, *rates)
    return {name: _step(learner, stream, rho, c) for name, learner in learners.items()}


def _channels(questions: Sequence[GVF]) -> list[int]:
    """Return the channel that each question sums."""
    return [q.cumulant.index for q in questions]  # type: ignore[union-attr, misc]


def _step(learner: Any, stream: Stream, rho: Any, c: Any) -> Step:
    """Return a function that lets a yardstick learn from transition t."""
    tiles = stream.tiles
    return lambda t: learner.learn(tiles[t], tiles[t + 1], rho[t], c[t + 1])
