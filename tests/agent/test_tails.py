"""What dropping the tails of traces changes: never more than an engine says, and not much less."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from horde_agent.learning.learner import GTDLambda

from horde_agent.gvf import GVF, Channel
from horde_agent.horde import Horde
from horde_agent.learning.rules import LearnerConfig
from horde_agent.learning.span import SpanGTD
from horde_agent.policies import Behaviour
from tests.agent.shared import RandomStream, binary
from tests.agent.test_span import N_FEATURES, slow_stream
from tests.oracles.gtd import DenseGTD

GROUPS = [0] * 20 + [1] * 3 + [2, 3, 4]
ROUNDING = 1e-13

SPAN: dict[str, dict[str, Any]] = {
    "kept": {"period": 8, "tail": 400},
    "deferred": {"period": 16, "tail": 400, "batch": 5},
    "carried": {"period": 8, "tail": 2, "widest": 16},
}


def engine_of(kind: str, stream: RandomStream, config: LearnerConfig, alpha: float, drop_below: float) -> Any:
    """Return an engine that drops early."""
    if kind == "plain":
        return GTDLambda(stream.group, N_FEATURES, alpha, alpha / 2, config, drop_below=drop_below)
    return SpanGTD(stream.group, N_FEATURES, alpha, alpha / 2, config, drop_below=drop_below, **SPAN[kind])


class FullTrace:
    """What full traces write by the TD errors, and the w, of an engine: theta and w without anything dropped."""

    def __init__(self, engine: Any, stream: RandomStream, alpha: float, config: LearnerConfig) -> None:
        self.engine, self.stream, self.alpha, self.config = engine, stream, alpha, config
        self.theta, self.w, self.e = np.zeros((3, stream.group.size, N_FEATURES))

    def begin(self, t: int) -> None:
        s = self.stream
        self.engine.begin(s.tiles[t], s.gamma[t], s.lam[t])
        self.e[:], self.lam_t = 0, s.lam[t][s.group]

    def learn(self, t: int) -> None:
        """Let the engine take a step, and write the same step with the full trace."""
        s, of, told, w = self.stream, self.stream.group, self.stream.signals(t), self.engine.weights()[1]
        self.engine.learn(s.tiles[t + 1], told)
        phi, phi_tp1 = binary(s.tiles[t], N_FEATURES), binary(s.tiles[t + 1], N_FEATURES)
        rho, gamma_tp1 = told.rho_t[of][:, None], told.gamma_tp1[of][:, None]
        unweighted = phi + (s.gamma[t][of] * self.lam_t)[:, None] * self.e
        self.e = rho * (np.minimum(unweighted, 1.0) if self.config.trace_rule == "capped" else unweighted)
        clip = np.maximum(1.0, rho[:, 0]) if self.config.trace_rule == "clipped" else 1.0
        self.lam_t = told.lam_tp1[of] / clip
        delta, y = self.engine.td_error[:, None], (self.e * w).sum(axis=1, keepdims=True)
        self.theta += self.alpha * (delta * self.e - gamma_tp1 * (1 - self.lam_t[:, None]) * y * phi_tp1)
        spent = (w @ phi)[:, None] * (1.0 if self.config.w_rule == "every-step" else rho)
        self.w += self.alpha / 2 * (delta * self.e - spent * phi)


@pytest.mark.parametrize("w_rule", ["every-step", "importance-weighted"])
@pytest.mark.parametrize(
    ("kind", "trace_rule"), [*itertools.product([*SPAN, "plain"], ["clipped", "plain"]), ("plain", "capped")]
)
def test_no_weight_is_further_off_than_the_bound(kind: str, trace_rule: Any, w_rule: Any) -> None:
    """By the same TD errors: at each step, for each demon, and a bound that is no more than a hundred times too large.

    Under the rule "plain" the span engine drops nothing but small features of carried traces: else the bound is 0.
    """
    stream = slow_stream(31, 400, GROUPS, [0, 0.5, 1, 1.6, 3], [0.5, 0.9], [0.9])
    stream.rho[:, 1:4] = np.maximum(stream.rho[:, 1:4], 0.5)  # some traces never end
    stream.gamma[:, 3] = 0.9
    if trace_rule == "plain":
        stream.rho[:] = np.minimum(stream.rho, 1.2)  # or some diverge
    config = LearnerConfig(trace_rule=trace_rule, w_rule=w_rule, dtype="float64", mspbe_tau=50.0)
    engine = engine_of(kind, stream, config, 0.01, 1e-3)
    full = FullTrace(engine, stream, 0.01, config)
    full.begin(0)
    for t in range(400):
        if t == 250:
            full.begin(t)
        full.learn(t)
        (theta, w), bounds = engine.weights(), engine.tail_bounds()
        off, off_w = np.abs(theta - full.theta).max(axis=1), np.abs(w - full.w).max(axis=1)
        assert (off <= bounds.theta * (1 + 1e-9) + ROUNDING).all(), t
        assert (off_w <= bounds.w * (1 + 1e-9) + ROUNDING).all(), t
    if trace_rule == "plain" and kind in ("kept", "deferred"):
        assert not np.concatenate(bounds).any()
    else:
        assert off.max() > 1e-7
    if trace_rule == "clipped":
        assert (bounds.theta <= 100 * off + ROUNDING).all()
        assert (bounds.w <= 100 * off_w + ROUNDING).all()


@pytest.mark.kernels
@pytest.mark.parametrize("kind", [*SPAN, "plain"])
def test_a_learner_that_drops_nothing_is_no_further_off_than_the_bound(kind: str) -> None:
    """The dense oracle, its TD errors its own: in 60 small steps the bound is within 1e4 of what is measured."""
    stream = slow_stream(32, 60, GROUPS, [0.5, 1, 1.6], [0.9], [0.9])
    config, of = LearnerConfig(dtype="float64", mspbe_tau=50.0), stream.group
    engine, oracle = engine_of(kind, stream, config, 5e-4, 1e-2), DenseGTD(of.size, N_FEATURES, 5e-4, 2.5e-4)
    engine.begin(stream.tiles[0], stream.gamma[0], stream.lam[0])
    oracle.begin(binary(stream.tiles[0], N_FEATURES), stream.gamma[0][of], stream.lam[0][of])
    for t in range(60):
        told = stream.signals(t)
        engine.learn(stream.tiles[t + 1], told)
        numbers = told.rho_t[of], told.gamma_tp1[of], told.lam_tp1[of], told.c_tp1, told.z_tp1
        oracle.learn(binary(stream.tiles[t + 1], N_FEATURES), *numbers)
        bound, (theta, w) = engine.tail_bounds().learned, engine.weights()
        off = np.linalg.norm(theta - oracle.theta, axis=1)
        assert (off <= bound + ROUNDING).all(), t
        assert (np.linalg.norm(w - oracle.w, axis=1) <= bound + ROUNDING).all(), t
    assert off.min() > 1e-8
    assert (bound < 1e4 * off).all()


@pytest.mark.parametrize("engine", ["span", "plain"])
def test_a_horde_s_bounds_are_as_small_as_rounding(engine: Any) -> None:
    """In float32 a tail is dropped below 1e-8: far less than the weights' own rounding; and long steps say nothing."""
    questions = [GVF(f"{g}", Behaviour(), Channel(0), g) for g in (0.0, 0.8)]
    horde = Horde(questions, n_features=400, n_active=4, config=LearnerConfig(engine=engine))
    rng = np.random.default_rng(0)
    horde.begin(rng.random(1), rng.choice(400, 4, replace=False))
    for _ in range(400):
        horde.learn(0, 1.0, rng.random(1), rng.choice(400, 4, replace=False))
    bounds, largest = horde.tail_bounds(), np.abs(horde.weights()[0]).max(axis=1)
    assert bounds.theta[0] == bounds.w[0] == bounds.learned[0] == 0  # gamma 0 has no tail
    assert 0 < bounds.theta[1] < 1e-6 * largest[1]
    assert bounds.learned[1] > 1.0
