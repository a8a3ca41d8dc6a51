"""ESS, UDE, RUPEE and when an MSPBE estimate counts."""

from __future__ import annotations

import numpy as np
import pytest

from horde_agent.learner import GTDLambda, LearnerConfig, Signals
from horde_agent.measures import RUPEE, UDE, Ratios, UnbiasedTrace, rupee_beta0, updates_until_valid
from tests.agent.shared import reference


def test_the_golden_rupee() -> None:
    """Twelve demons, 500 steps, alpha_h .05 and beta0 .01, from the plain engine's TD errors and traces."""
    stream = reference("gtd_golden.npz")
    config = LearnerConfig(trace_rule="plain", dtype="float64", mspbe_tau=float(stream["tau"]))
    learner = GTDLambda(np.arange(12), 40, float(stream["alpha_v"]), 0.02, config)
    active = stream["active"].astype(np.int64)
    learner.begin(active[0], stream["gamma"][0], stream["lam"])
    rupee, found = RUPEE(12, 40, alpha_h=0.05, beta0=0.01), []
    for t in range(500):
        told = (stream["rho"][t], stream["gamma"][t + 1], stream["lam"], stream["cumulant"][t + 1], stream["z"][t + 1])
        learner.learn(active[t + 1], Signals(*told))
        rupee.update(learner.td_error, learner.traces(), active[t])
        if t + 1 in stream["checkpoints"]:
            found.append(rupee.value())
    np.testing.assert_allclose(found, stream["full/rupee"], rtol=1e-7)


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
    ratios = Ratios(3)
    for t in range(1_000):
        ratios.update(np.array([1.0, 5.0 if t % 5 == 0 else 0.0, 0.0]))
    np.testing.assert_allclose(ratios.effective_sample_size(), [1_000, 200, 0])
    assert ratios.n_steps == 1_000
    assert ratios.n_updates.tolist() == [1_000, 200, 0]


def test_an_estimate_counts_once_w_has_had_time_to_move() -> None:
    """With the paper's step sizes 1 / (.1 x .001) = 10,000 updates; steps with rho = 0 are none; without w never."""
    assert updates_until_valid(LearnerConfig()) == pytest.approx(10_000)
    assert updates_until_valid(LearnerConfig(secondary_ratio=0.0)) == np.inf
    fast, ratios = LearnerConfig(secondary_ratio=1.0), Ratios(2)  # ten updates
    for t in range(20):
        ratios.update(np.array([1.0, float(t % 2)]))
        assert ratios.is_valid(fast).tolist() == [t >= 9, t >= 19]


def test_the_time_constant_of_a_rupee() -> None:
    assert rupee_beta0(0.1, 0.9) == pytest.approx(0.1 * 0.1 / 30)
    assert rupee_beta0(0.1, 1.0) == 1e-6
