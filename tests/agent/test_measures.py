"""ESS, UDE, RUPEE and when an MSPBE estimate is valid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from horde_agent.learning import LearnerConfig, PlainEngine, Signals, SpanEngine
from horde_agent.learning.rupee import (
    RUPEE,
    UDE,
    UnbiasedTrace,
    rupee_beta0,
    rupee_config,
)
from horde_agent.scoring.mspbe import effective_sample_size, updates_until_valid
from tests.agent.shared import binary, reference
from tests.oracles.gtd import DenseGTD
from tests.oracles.rupee import DenseRUPEE


@pytest.mark.parametrize("kind", ["plain", "span", "deferred"])
def test_the_golden_rupee(kind: str) -> None:
    """Twelve demons, 500 steps, alpha_h .05 and beta0 .01."""
    stream = reference("gtd_golden.npz")
    config = LearnerConfig.paper(
        trace_rule="plain", dtype="float64", mspbe_tau=float(stream["tau"])
    )
    rupee_settings = rupee_config(config, 0.01)
    learner = engine_of(kind, np.arange(12), 40, float(stream["alpha_v"]), 0.02, config)
    rupee = RUPEE(engine_of(kind, np.arange(12), 40, 0.0, 0.05, rupee_settings), rupee_settings)
    rupees = []
    active = stream["active"].astype(np.int64)
    for each in (learner, rupee):
        each.begin(active[0])
    assert (rupee.value() == 0).all()
    for t in range(500):
        signals = Signals(
            stream["rho"][t],
            stream["gamma"][t + 1],
            stream["lam"],
            stream["cumulant"][t + 1],
            stream["z"][t + 1],
        )
        learner.learn(active[t + 1], signals)
        rupee.learn(active[t + 1], signals, learner.numbers("td_error"))
        if t + 1 in stream["checkpoints"]:
            rupees.append(rupee.value())
    np.testing.assert_allclose(rupees, stream["full/rupee"], rtol=1e-7)


def engine_of(kind: str, *arguments: Any) -> PlainEngine | SpanEngine:
    if kind == "plain":
        return PlainEngine(*arguments)
    return SpanEngine(*arguments, batch=8 if kind == "deferred" else 1)


@pytest.mark.parametrize(("kind", "trace_rule"), [("plain", "capped"), ("span", "clipped")])
def test_a_rupee_equals_its_definition(kind: str, trace_rule: Any) -> None:
    """With gaps, a step that is skipped, and the rule that leaves w unchanged at rho = 0."""
    rng = np.random.default_rng(2)
    beta0 = 0.02
    alpha = 0.1 / 4
    n = 25
    rules: Any = {"trace_rule": trace_rule, "w_rule": "importance-weighted"}
    config = LearnerConfig.paper(dtype="float64", secondary_ratio=0.1, **rules)
    rupee_settings = rupee_config(config, beta0)
    group = np.arange(3)
    learner = engine_of(kind, group, n, alpha, alpha / 10, config)
    rupee = RUPEE(engine_of(kind, group, n, 0.0, 5 * alpha, rupee_settings), rupee_settings)
    oracle = DenseGTD(3, n, alpha, alpha / 10, **rules)
    dense = DenseRUPEE(3, n, 5 * alpha, beta0)
    tiles = rng.choice(n, 4, replace=False)
    gamma = np.full(3, 0.8)
    lam = np.full(3, 0.9)
    for t in range(150):
        if t in (0, 70):
            learner.begin(tiles)
            rupee.begin(tiles)
            oracle.begin(binary(tiles, n), gamma, lam)
        previous_tiles = tiles
        tiles = rng.choice(n, 4, replace=False)
        rho = rng.choice([0.0, 0.6, 3.0], 3)
        c = rng.random(3)
        c[1] = np.nan if t == 60 else c[1]
        signals = Signals(rho, gamma, lam, c, np.zeros(3))
        learner.learn(tiles, signals)
        oracle.learn(binary(tiles, n), rho, gamma, lam, c, np.zeros(3))
        rupee.learn(tiles, signals, np.where(np.isnan(c), np.nan, learner.numbers("td_error")))
        h = dense.h[1].copy()
        dense.update(oracle.delta, oracle.e, previous_tiles)
        if t == 60:  # its trace is cleared, and h and d stand but for the decay of d
            dense.h[1] = h
    np.testing.assert_allclose(rupee.value(), dense.value(), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("kind", ["plain", "span", "deferred"])
def test_a_rupee_refuses_to_learn_before_it_begins(kind: str) -> None:
    """Afterwards it is that of one that was never asked."""
    rng = np.random.default_rng(4)
    config = rupee_config(LearnerConfig.paper(dtype="float64"), 0.02)
    rupees = [RUPEE(engine_of(kind, np.arange(3), 25, 0.0, 0.05, config), config) for _ in range(2)]
    tiles = [rng.choice(25, 4, replace=False) for _ in range(21)]
    signals = Signals(np.ones(3), np.full(3, 0.8), np.full(3, 0.9), np.zeros(3), np.zeros(3))
    td_errors = rng.normal(size=(20, 3))
    for _ in range(3):
        with pytest.raises(RuntimeError, match=r"no stream .* call begin\(tiles\) first"):
            rupees[0].learn(tiles[1], signals, td_errors[0])
    assert (rupees[0].value() == 0).all()
    for rupee in rupees:
        rupee.begin(tiles[0])
        for t in range(20):
            rupee.learn(tiles[t + 1], signals, td_errors[t])
    assert (rupees[0].value() > 0).all()
    np.testing.assert_array_equal(rupees[0].value(), rupees[1].value())


def test_a_trace_without_bias_starts_as_the_mean() -> None:
    """The first sample counts in full (an ordinary trace would give .01 of it); later ones decay."""
    trace = UnbiasedTrace(1, 0.01)
    trace.update(np.array([5.0]))
    assert trace.value == pytest.approx(5.0)
    trace.update(np.array([1.0]))
    assert trace.value == pytest.approx((0.99 * 5.0 + 1.0) / 1.99)
    with pytest.raises(ValueError, match="beta0"):
        UnbiasedTrace(1, 0.0)


def test_the_ude_is_the_deviation_of_the_recent_mean() -> None:
    """Against its definition in full; a constant error is infinitely unexpected, but for the 1e-6."""
    rng = np.random.default_rng(0)
    delta = rng.normal(size=(400, 2))
    rho = rng.choice([0.0, 1.5], size=(400, 2))
    delta[:, 1] = 0.3
    rho[:, 1] = 1.0
    ude = UDE(2, beta0=0.02)
    assert (ude.value() == 0).all()
    for d, r in zip(delta, rho, strict=True):
        ude.update(d, r)
    weights = 0.98 ** np.arange(399, -1, -1.0)
    mean = (weights[:, None] * rho * delta).sum(axis=0) / weights.sum()
    deviation = (rho * delta)[:, 0].std(ddof=1)
    assert ude.value()[0] == pytest.approx(abs(mean[0]) / (deviation + 1e-6), rel=1e-9)
    assert ude.value()[1] == pytest.approx(0.3 / 1e-6)


def test_the_effective_sample_size() -> None:
    """On-policy all steps count; a constant-action target followed every fifth time has a fifth; never followed, 0."""
    rho = np.array([[1.0, 5.0 if t % 5 == 0 else 0.0, 0.0] for t in range(1_000)])
    np.testing.assert_allclose(
        effective_sample_size(rho.sum(axis=0), (rho**2).sum(axis=0)), [1_000, 200, 0]
    )


def test_an_estimate_is_valid_once_w_has_moved() -> None:
    """With the paper's step sizes 1 / (.1 x .001) = 10,000 updates; without w never."""
    assert updates_until_valid(LearnerConfig.paper()) == pytest.approx(10_000)
    assert updates_until_valid(LearnerConfig.paper(secondary_ratio=0.0)) == np.inf
    assert updates_until_valid(LearnerConfig.paper(secondary_ratio=1.0)) == pytest.approx(10)
    assert updates_until_valid(LearnerConfig.paper(algorithm="td")) == np.inf


def test_the_time_constant_of_a_rupee_is_that_of_white_2015() -> None:
    """Chapter 7: beta0 = (1 - lambda) alpha / 30, alpha for all tilings; at lambda 0.4 and alpha 0.3 it is 0.006."""
    assert rupee_beta0(step_size=0.3, lam=0.4) == pytest.approx(0.6 * 0.3 / 30.0)
    assert rupee_beta0(step_size=0.3, lam=0.4) == pytest.approx(0.006)
    assert rupee_beta0(step_size=0.1, lam=0.0) == pytest.approx(0.1 / 30.0)
    assert rupee_beta0(step_size=0.1, lam=1.0) == 1e-6
