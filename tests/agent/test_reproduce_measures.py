"""Experiment `measures`: its small learner is the library's, and the rules of its claims."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from examples.reproduce import measures
from examples.reproduce.measures import (
    Announced,
    ChainCurves,
    MeasuredRuns,
    MeasuresResults,
    Noise,
    Tracking,
)
from examples.reproduce.stats import rank_correlation
from horde_agent.gvf import GVF
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.learning.rupee import UDE, rupee_beta0
from horde_agent.policies import ConstantAction
from tests.agent.reproducing import letters


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


def data_of(
    *,
    scale: float = 1.0,
    falls: bool = True,
    jump: float = 2.0,
    ude: float = 0.5,
    floor: float = 1.0,
    late: int = 5,
) -> MeasuresResults:
    """Return measurements by which every claim is reproduced, but for some changes."""
    curve = np.concatenate([np.linspace(1.0, 0.1, 1001), np.linspace(2.0, 0.1, 1000)])
    chains = {name: [ChainCurves(curve, scale * curve)] for name in ("GTD(lambda)", "TD(lambda)")}
    noises = [Noise(np.full(100, ude), np.array(measures.DEVIATIONS) ** floor)]
    at = np.arange(100, 4_100, 100)
    if falls:
        level = np.linspace(1.0, 0.5, 40)
    else:
        level = np.linspace(0.5, 1.0, 40)
    level = np.where(at > 1_000, jump * level[9], level)
    factors = np.linspace(0.5, 1.5, 11)
    tracked = Tracking(
        at, level[:, None] * factors, np.square(level[:, None] * factors), np.ones(11, np.bool_)
    )
    bairds = [Announced(np.array([10, 10]), np.array([5, 5]), np.array([late, late]), 2.0)]
    return MeasuresResults(
        chains, noises, 1.0, bairds, [tracked], measures.MeasuresSize(9_000, 1_000, 100, 1)
    )


@pytest.mark.parametrize(
    ("changes", "verdicts"),
    [
        ({}, "rrrrrr"),
        ({"scale": 2.1}, "pprrrr"),
        ({"falls": False}, "rrprrr"),
        ({"jump": 1.4}, "rrrnrr"),
        ({"ude": 1.5}, "rrrrpr"),
        ({"floor": 0.5}, "rrrrpr"),
        ({"late": -1}, "rrrrrp"),
        ({"late": 11}, "rrrrrp"),
    ],
)
def test_the_rules_judge_by_their_limits(changes: dict[str, float], verdicts: str) -> None:
    assert letters(measures, data_of(**changes)) == verdicts  # type: ignore[arg-type]
