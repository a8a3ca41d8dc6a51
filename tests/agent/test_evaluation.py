"""Returns and the normalised error against them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.agent.shared import reference
from tests.oracles.evaluation import OnlineNMSRE, SampleMSPBE, nmsre, true_mspbe, truncated_return


def test_a_truncated_return_has_as_many_terms_as_it_says() -> None:
    """Ones at gamma 1/2: 2 - 2^-(n-1). At gamma 0 it is the next cumulant alone."""
    ones = np.ones(60)
    assert truncated_return(ones, 0.5, n_terms=3) == 1.75
    assert truncated_return(ones, 1.0) == 50
    assert truncated_return(np.array([7.0, 1.0]), 0.0) == 7.0
    np.testing.assert_allclose(truncated_return(np.ones((2, 4)), np.array([0.0, 0.5])), [1.0, 1.875])


def test_the_golden_returns_and_nmsre() -> None:
    """Six questions of 40 tests, 51 terms, tau 10; question 4's return is constant, so its NMSRE is 1."""
    golden = reference("misc_golden.npz")
    for question in range(6):
        returns = truncated_return(golden["nm_rewards"][question], golden["nm_gamma"][question], n_terms=51)
        np.testing.assert_allclose(returns, golden["nm_returns"][question], rtol=1e-12)
        curve = nmsre(golden["nm_pred"][question], returns)
        np.testing.assert_allclose(curve, golden["nm_first_tau10"][question], rtol=1e-10)
    assert (nmsre(golden["nm_pred"][4], golden["nm_returns"][4]) == 1.0).all()


def test_the_mean_predictor_scores_one_in_the_long_run() -> None:
    returns = np.random.default_rng(0).normal(size=4_000)
    curve = nmsre(np.full(4_000, returns.mean()), returns, tau=1_000.0)
    assert curve[-1] == pytest.approx(1.0, abs=0.1)


def test_the_online_nmsre_ends_where_the_offline_one_does() -> None:
    """After the last excursion the variance so far is the variance over all."""
    rng = np.random.default_rng(1)
    returns, predictions = rng.normal(size=(30, 3)), rng.normal(size=(30, 3))
    returns[:, 2] = 5.0
    online = OnlineNMSRE(4)
    for p, g in zip(predictions, returns, strict=True):
        online.update(np.array([0, 1, 2]), p, g)
    values = online.values()
    for question in range(2):
        assert values[question] == pytest.approx(nmsre(predictions[:, question], returns[:, question])[-1])
    assert values[2] == 1.0
    assert np.isnan(values[3])
    assert online.mean() == pytest.approx(values[:3].mean())


def test_a_question_tested_once_is_not_in_the_mean() -> None:
    online = OnlineNMSRE(2)
    online.update(np.array([0]), np.ones(1), np.zeros(1))
    assert np.isnan(online.mean())


def test_the_mspbe_of_a_singular_problem_takes_the_pseudo_inverse() -> None:
    """Two features that are always equal: C = [[1, 1], [1, 1]], E[delta e] = (2, 2), MSPBE = 4."""
    assert true_mspbe(np.zeros(2), np.eye(2), np.full(2, 2.0), np.ones((2, 2))) == pytest.approx(4.0)
    sample = SampleMSPBE(2, tau=1.0)
    assert sample.value() == 0.0
    sample.update(np.ones(2), 2.0, np.ones(2))
    assert sample.value() == pytest.approx(4.0)


def test_bad_numbers_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="predictions and returns"):
        nmsre(np.zeros(3), np.zeros(2))
    with pytest.raises(ValueError, match="tau"):
        nmsre(np.zeros(3), np.zeros(3), tau=0.5)
    with pytest.raises(ValueError, match="tau"):
        OnlineNMSRE(3, tau=0.0)
