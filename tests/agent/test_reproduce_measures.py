"""Experiment `measures`: its small learner is the library's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from examples.reproduce import measures
from examples.reproduce.measures import (
    MeasuredRuns,
)
from examples.reproduce.stats import rank_correlation
from horde_agent.gvf import GVF
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.learning.rupee import UDE, rupee_beta0
from horde_agent.policies import ConstantAction


def test_the_runs_are_a_horde_of_gtd_with_its_rupee_and_ude() -> None:
    """Real-valued features, two actions taken equally often, the target policy takes one: rho is 2 or 0."""
    rng = np.random.default_rng(0)
    alpha = 0.05
    alpha_w = 0.05
    square = 1.0
    question = GVF("q", ConstantAction(1, 2), lambda o, _: float(o[0]), 0.8, lam=0.0)
    config = LearnerConfig.paper(
        step_size=alpha, secondary_ratio=alpha_w / alpha, trace_rule="plain", dtype="float64"
    )
    horde = Horde([question], n_features=3, n_active=1, config=config, real_valued=True)
    rupee = horde.new_rupee(rupee_beta0(alpha * square, 0.0))
    ude = UDE(1, 10.0 * alpha)
    runs = MeasuredRuns(np.zeros((1, 3)), alpha, alpha_w, square)
    phi = rng.random((60, 3))
    horde.begin(np.zeros(1), phi[0])
    rupee.begin(phi[0])
    for before, after in itertools.pairwise(phi):
        action = int(rng.integers(2))
        reward = rng.normal(size=1)
        horde.learn(action, 0.5, reward, after)
        rupee.learn(after, horde.signals, horde.td_error)
        ude.update(horde.td_error, horde.rho)
        runs.learn(before[None], after[None], reward, 0.8, np.array([2.0 * action]))
    np.testing.assert_allclose(runs.theta, horde.weights()[0], rtol=1e-9)
    np.testing.assert_allclose(runs.rupee, rupee.value(), rtol=1e-9)
    np.testing.assert_allclose(runs.ude.value(), ude.value(), rtol=1e-9)


def test_td_diverges_on_the_star_and_rupee_announces_it() -> None:
    """Baird's star: theta grows without bound under TD."""
    result = measures.baird(measures.TUNING_SEED, 5_000)
    assert (result.weight > 0).all()
    assert ((result.rupee > 100) & (result.rupee < result.weight)).all()


def test_ranks_are_compared_not_values() -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0])
    assert rank_correlation(x, np.exp(10.0 * x)) == pytest.approx(1.0)
    assert rank_correlation(x, -x) == pytest.approx(-1.0)
