"""Expectations of small MDPs against arrays of another implementation, and against textbook values."""

from __future__ import annotations

import numpy as np
import pytest

from horde_agent.problems.markov import SmallMDP
from tests.agent.shared import reference
from tests.oracles.evaluation import true_mspbe


@pytest.mark.parametrize("lam", [0.0, 0.4, 0.9])
@pytest.mark.parametrize("policy", ["near", "mild", "wild"])
def test_the_golden_mdp(policy: str, lam: float) -> None:
    """Six states, three actions, four features: A, b, C, d_b; at the fixed point theta* the MSPBE is 0."""
    golden = reference("mdp_golden.npz")
    reward = (golden["P"] * golden["R"]).sum(axis=2)
    mdp = SmallMDP(golden["P"], reward, np.eye(6)[0])
    known = mdp.expectations(golden[f"pi_{policy}"], golden["b"], golden["Phi"], gamma=0.9, lam=lam)
    np.testing.assert_allclose(mdp.state_distribution(golden["b"]), golden["d_b"], atol=1e-12)
    np.testing.assert_allclose(known.A, golden[f"A_{policy}_{lam}"], atol=1e-12)
    np.testing.assert_allclose(known.b, golden[f"b_{policy}_{lam}"], atol=1e-12)
    np.testing.assert_allclose(known.C, golden["C"], atol=1e-12)
    assert true_mspbe(golden[f"theta_star_{policy}_{lam}"], *known) < 1e-20


def test_the_random_walk_of_the_textbook() -> None:
    """Five states, +1 on the right exit, undiscounted, equally often left and right: 1/6, ..., 5/6 (Sutton 1988)."""
    left, right = np.eye(5, k=-1), np.eye(5, k=1)
    reward = np.zeros((2, 5))
    reward[1, 4] = 1.0
    mdp = SmallMDP(np.stack([left, right]), reward, np.eye(5)[2])
    either = np.full((5, 2), 0.5)
    np.testing.assert_allclose(mdp.values(either, 1.0), np.arange(1, 6) / 6)
    np.testing.assert_allclose(mdp.state_distribution(either), np.array([1, 2, 3, 2, 1]) / 9)


def test_an_invalid_mdp_is_refused() -> None:
    with pytest.raises(ValueError, match="probabilities"):
        SmallMDP(np.full((1, 2, 2), 0.6), np.zeros((1, 2)), np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match="must be"):
        SmallMDP(np.zeros((1, 2, 2)), np.zeros((2, 2)), np.array([1.0, 0.0]))
