"""A Horde on real-valued features, such as a network's last layer, with the plain engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from horde_agent import GVF, Channel, ConstantAction, Feature, Gibbs, Horde, LearnerConfig
from tests.oracles.gtd import DenseGTD

N, GAMMA, LAM = 7, 0.8, 0.6
CONFIG = LearnerConfig(dtype="float64")


def questions() -> list[GVF]:
    return [
        GVF("channel", ConstantAction(0, 2), Channel(0), GAMMA, lam=LAM),
        GVF("feature", ConstantAction(1, 2), Feature(3), GAMMA, lam=LAM),
    ]


@pytest.mark.parametrize(("trace_rule", "w_rule"), [("clipped", "importance-weighted"), ("capped", "every-step")])
def test_learning_from_real_valued_features_equals_the_oracle(trace_rule: Any, w_rule: Any) -> None:
    config = LearnerConfig(dtype="float64", trace_rule=trace_rule, w_rule=w_rule, secondary_ratio=0.5)
    horde = Horde(questions(), n_features=N, n_active=4, config=config, real_valued=True)
    oracle = DenseGTD(2, N, 0.1 / 4, 0.05 / 4, trace_rule=trace_rule, w_rule=w_rule)
    rng = np.random.default_rng(0)
    phi, gamma, lam = rng.normal(size=N), np.full(2, GAMMA), np.full(2, LAM)
    horde.begin(np.zeros(1), phi)
    oracle.begin(phi, gamma, lam)
    for _ in range(100):
        action, observation, phi = int(rng.random() < 0.3), rng.random(1), rng.normal(size=N)
        b = 0.3 if action else 0.7
        rho = np.array([(action == 0) / b, (action == 1) / b])
        got = horde.learn(action, b, observation, phi)
        expected = oracle.learn(phi, rho, gamma, lam, np.array([observation[0], phi[3]]), np.zeros(2))
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(horde.weights()[1], oracle.w, rtol=1e-10, atol=1e-14)
    assert np.abs(oracle.w).max() > 1e-4
    np.testing.assert_allclose(horde.predict(phi), horde.predictions)


@pytest.mark.parametrize(
    ("phi", "words"),
    [
        (np.array([1, 2]), "phi .*shape"),
        (np.zeros(N - 1), "phi .*shape"),
        (np.array([0.0, 0.0, np.nan, 0.0, 0.0, 0.0, 0.0]), "phi .*finite; feature 2"),
    ],
)
def test_an_invalid_phi_is_refused_and_changes_nothing(phi: Any, words: str) -> None:
    horde = Horde(questions()[:1], n_features=N, n_active=4, config=CONFIG, real_valued=True)
    horde.begin(np.zeros(1), np.ones(N))
    horde.learn(0, 0.5, np.ones(1), np.ones(N))
    before = horde.weights_sha256()
    with pytest.raises(ValueError, match=words):
        horde.learn(0, 0.5, np.ones(1), phi)
    with pytest.raises(ValueError, match=words):
        horde.predict(phi)
    assert horde.weights_sha256() == before
    horde.learn(0, 0.5, np.ones(1), np.ones(N))


def test_a_policy_over_tiles_is_refused() -> None:
    policy = Gibbs(2, N, np.array([0]), np.array([0.5]))
    with pytest.raises(ValueError, match="active tiles"):
        Horde([GVF("soft", policy, Channel(0), 0.5)], n_features=N, n_active=4, real_valued=True)


def test_streams_and_added_demons_take_real_valued_features() -> None:
    horde = Horde(questions(), n_features=N, n_active=4, config=CONFIG, real_valued=True)
    other = horde.copy_for_stream()
    for one in (horde, other):
        one.begin(np.zeros(1), np.ones(N))
        one.learn(0, 0.5, np.ones(1), np.full(N, 0.5))
    horde.merge([other])
    horde.add([GVF("late", ConstantAction(0, 2), Feature(0), 0.5)])
    horde.learn(0, 0.5, np.ones(1), np.full(N, 0.25))
    assert horde.weights()[0].any(axis=1).tolist() == [True, False, True]
