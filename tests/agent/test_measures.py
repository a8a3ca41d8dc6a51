"""ESS, UDE, RUPEE and when an MSPBE estimate counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from horde_agent.gvf import GVF, Channel
from horde_agent.horde import Horde
from horde_agent.kernels.gtd_arrays import Signals
from horde_agent.learning.learner import GTDLambda
from horde_agent.learning.rules import LearnerConfig
from horde_agent.learning.span import SpanGTD
from horde_agent.measures.mspbe import effective_sample_size, updates_until_valid
from horde_agent.measures.rupee import RUPEE, rupee_beta0, rupee_config
from horde_agent.measures.ude import UDE, UnbiasedTrace
from horde_agent.policies import ConstantAction, StickyRandom, Uniform
from tests.agent.shared import binary, reference
from tests.oracles.gtd import DenseGTD
from tests.oracles.rupee import DenseRUPEE


@pytest.mark.parametrize("kind", ["plain", "span", "deferred"])
def test_the_golden_rupee(kind: str) -> None:
    """Twelve demons, 500 steps, alpha_h .05 and beta0 .01."""
    stream = reference("gtd_golden.npz")
    config = LearnerConfig(trace_rule="plain", dtype="float64", mspbe_tau=float(stream["tau"]))
    own = rupee_config(config, 0.01)
    learner = engine_of(kind, np.arange(12), 40, float(stream["alpha_v"]), 0.02, config)
    rupee, found = RUPEE(engine_of(kind, np.arange(12), 40, 0.0, 0.05, own), own), []
    active = stream["active"].astype(np.int64)
    for each in (learner, rupee):
        each.begin(active[0], stream["gamma"][0], stream["lam"])
    assert (rupee.value() == 0).all()
    for t in range(500):
        told = Signals(
            stream["rho"][t], stream["gamma"][t + 1], stream["lam"], stream["cumulant"][t + 1], stream["z"][t + 1]
        )
        learner.learn(active[t + 1], told)
        rupee.learn(active[t + 1], told, learner.td_error)
        if t + 1 in stream["checkpoints"]:
            found.append(rupee.value())
    np.testing.assert_allclose(found, stream["full/rupee"], rtol=1e-7)


def engine_of(kind: str, *arguments: Any) -> GTDLambda | SpanGTD:
    """Return an engine by its name."""
    return GTDLambda(*arguments) if kind == "plain" else SpanGTD(*arguments, batch=8 if kind == "deferred" else 1)


@pytest.mark.parametrize(("engine", "mode"), [("plain", "eager"), ("span", "eager"), ("span", "deferred")])
@pytest.mark.parametrize("trace_rule", ["clipped", "capped"])
def test_a_horde_s_rupee_is_that_of_the_definition(engine: Any, mode: Any, trace_rule: Any) -> None:
    """Of one that comes late, one that is set aside, across a gap, under the rule by which w stands where rho = 0."""
    rng, behaviour, beta0, alpha = np.random.default_rng(2), StickyRandom(3), 0.02, 0.1 / 4
    rules: Any = {"trace_rule": trace_rule, "w_rule": "importance-weighted"}
    config = LearnerConfig(dtype="float64", engine=engine, rupee_beta0=beta0, secondary_ratio=0.1, **rules)
    questions = [GVF(f"{i}", [ConstantAction(1, 3), Uniform(3)][i % 2], Channel(i), 0.8) for i in range(3)]
    questions.append(GVF("bad", Uniform(3), lambda o, _: 1e200 if o[0] > 0.99 else 1.0, 0.8))
    horde = Horde(questions[1:], n_features=25, n_active=4, config=config, mode=mode)
    oracle, dense = DenseGTD(4, 25, alpha, alpha / 10, **rules), DenseRUPEE(4, 25, 5 * alpha, beta0)
    first = DenseRUPEE(1, 25, 5 * alpha, beta0)  # of the demon that comes late, and last
    now = rng.random(3), rng.choice(25, 4, replace=False)
    gamma, lam, one = np.full(4, 0.8), np.full(4, 0.9), np.ones(4)
    for t in range(150):
        if t in (0, 70):
            horde.begin(*now)
            oracle.begin(binary(now[1], 25), gamma, lam)
        if t == 40:
            horde.add(questions[:1])
            oracle.theta[0] = oracle.w[0] = oracle.e[0] = 0
        (action, b), tiles = behaviour.draw(rng), now[1]
        now = rng.random(3), rng.choice(25, 4, replace=False)
        horde.learn(action, b, *now)
        rho = np.where([1, 0, 1, 0], float(action == 1), 1 / 3) / b
        oracle.learn(binary(now[1], 25), rho, gamma, lam, np.r_[now[0], 1.0], 0 * one)
        dense.update(oracle.delta, oracle.e, tiles)
        if t >= 40:
            first.update(oracle.delta[:1], oracle.e[:1], tiles)
    assert horde.diverged == ["bad"]
    want = np.r_[dense.value()[1:3], 0.0, first.value()]
    np.testing.assert_allclose(horde.rupee(), want, rtol=1e-9, atol=1e-15)


def test_a_rupee_that_was_not_asked_for_is_not_there() -> None:
    horde = Horde([GVF("a", Uniform(3), Channel(0), 0.5)], n_features=4, n_active=1)
    with pytest.raises(ValueError, match="set rupee_beta0"):
        horde.rupee()
    with pytest.raises(ValueError, match="rupee_beta0 must be in"):
        LearnerConfig(rupee_beta0=1.0)


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
    delta, rho = rng.normal(size=(400, 2)), rng.choice([0.0, 1.5], size=(400, 2))
    delta[:, 1], rho[:, 1] = 0.3, 1.0
    ude = UDE(2, beta0=0.02)
    assert (ude.value() == 0).all()
    for d, r in zip(delta, rho, strict=True):
        ude.update(d, r)
    weights = 0.98 ** np.arange(399, -1, -1.0)
    mean = (weights[:, None] * rho * delta).sum(axis=0) / weights.sum()
    deviation = (rho * delta)[:, 0].std(ddof=1)
    assert ude.value()[0] == pytest.approx(abs(mean[0]) / (deviation + 1e-6), rel=1e-9)
    assert ude.value()[1] == pytest.approx(0.3 / 1e-6)


def test_the_ude_settles_off_policy_where_one_without_rho_would_not() -> None:
    """Two actions, equally likely; the target takes the one that pays 1 and has learned so. delta is 0 or -1.

    With rho (2 or 0) the mean error is 0; without it the trace is at -1/2 for good.
    """
    ude, without = UDE(1, 0.01), UDE(1, 0.01)
    for pays in np.random.default_rng(1).random(4_000) < 0.5:
        delta = np.array([0.0 if pays else -1.0])
        ude.update(delta, np.array([2.0 if pays else 0.0]))
        without.update(delta, np.ones(1))
    assert ude.value()[0] == 0.0
    assert without.value()[0] > 0.5


def test_the_effective_sample_size() -> None:
    """On-policy all steps count; a constant-action target followed every fifth time has a fifth; never followed, 0."""
    rho = np.array([[1.0, 5.0 if t % 5 == 0 else 0.0, 0.0] for t in range(1_000)])
    found = effective_sample_size(rho.sum(axis=0), (rho**2).sum(axis=0))
    np.testing.assert_allclose(found, [1_000, 200, 0])


def test_an_estimate_counts_once_w_has_had_time_to_move() -> None:
    """With the paper's step sizes 1 / (.1 x .001) = 10,000 updates; without w never."""
    assert updates_until_valid(LearnerConfig()) == pytest.approx(10_000)
    assert updates_until_valid(LearnerConfig(secondary_ratio=0.0)) == np.inf


def test_the_time_constant_of_a_rupee() -> None:
    assert rupee_beta0(0.1, 0.9) == pytest.approx(0.1 * 0.1 / 30)
    assert rupee_beta0(0.1, 1.0) == 1e-6
