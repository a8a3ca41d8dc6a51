"""Truncated returns and the NMSRE: closed forms, and arrays of another implementation (reference data)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from horde_agent.measures.nmsre import Outcomes
from horde_agent.measures.return_errors import ReturnErrors
from horde_agent.measures.returns import PolicyUnderTest, TestExcursion, returns_along
from tests.agent.shared import reference
from tests.oracles.evaluation import truncated_return


def policy_of(n: int) -> PolicyUnderTest:
    return PolicyUnderTest(0, np.arange(n), np.zeros(n, np.int64), np.zeros(n), "policy")


def forwards(cumulants: np.ndarray, gamma: np.ndarray) -> TestExcursion:
    """Return the excursion that saw cumulants, shape (n_terms, n)."""
    n = len(gamma)
    policy = PolicyUnderTest(0, np.arange(n), np.arange(n), gamma, "policy")
    found = TestExcursion(policy, np.zeros(n), 0, len(cumulants))
    for c in cumulants:
        found.observe(c)
    return found


def test_a_return_is_the_same_forwards_backwards_and_by_its_definition() -> None:
    """Readings 9, 1, 2, 4: from the first row 1 + 2/2 + 4/4 = 3 at gamma 1/2, and 1 at gamma 0; without the 9."""
    readings, gamma = np.array([9.0, 1.0, 2.0, 4.0])[:, None] * np.ones(2), np.array([0.5, 0.0])
    assert forwards(readings[1:], gamma).returns.tolist() == [3.0, 1.0]
    rng = np.random.default_rng(3)
    for cumulants, gammas in ((readings, gamma), (rng.normal(size=(51, 4)), rng.random(4))):
        want = truncated_return(cumulants[1:].T, gammas)
        np.testing.assert_allclose(forwards(cumulants[1:], gammas).returns, want, rtol=1e-12)
        np.testing.assert_allclose(returns_along(cumulants, gammas)[0], want, rtol=1e-12)


def test_remaining_questions_keep_their_discount() -> None:
    """With gammas 1/2 and 1/4 the second remains after one term: 1 + 1/4, and not 1 + 1/2."""
    found = forwards(np.ones((1, 2)), np.array([0.5, 0.25]))
    found.rearrange(np.array([-1, 0]))
    found.observe(np.ones(2))
    assert found.returns.tolist() == [1.25]


def test_the_golden_returns_and_nmsre() -> None:
    """Six questions, 40 tests, 51 terms, tau 10. The return of question 4 is constant, so its NMSRE is exactly 1.

    After the last excursion the online NMSRE, with the variance so far, equals the two-pass one.
    """
    golden = reference("misc_golden.npz")
    returns, predictions = golden["nm_returns"].T, golden["nm_pred"].T
    rewards = np.moveaxis(golden["nm_rewards"], 2, 0).swapaxes(1, 2)[:51]
    found = [forwards(of_test, golden["nm_gamma"]).returns for of_test in rewards.swapaxes(0, 1)]
    np.testing.assert_allclose(found, returns, rtol=1e-12)
    curve = Outcomes(policy_of(6), np.arange(40), predictions, returns).nmsre()
    np.testing.assert_allclose(curve, golden["nm_first_tau10"].T, rtol=1e-10)
    assert (curve[:, 4] == 1.0).all()
    online = ReturnErrors([policy_of(6)], 6)
    for k, (p, g) in enumerate(zip(predictions, returns, strict=True)):
        test: Any = SimpleNamespace(demons=np.arange(6), predictions=p, returns=g, policy_name="policy", step=k)
        online.add(test)
        assert np.isnan(online.latest_mean) == (k == 0)
    np.testing.assert_allclose(online.online(), curve[-1], rtol=1e-9)
    np.testing.assert_allclose(online.nmsre(), curve[-1], rtol=1e-9)
    assert online.latest_mean == np.mean(online.online())
