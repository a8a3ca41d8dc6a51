"""The chain: exact values, its kernel, and properties of a correct implementation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from examples.reproduce import chain
from examples.reproduce.chain import ONLINE, Curves, fit, mean_curves
from examples.reproduce.tabular_runner import NewWeights
from tests.agent.reproducing import letters
from tests.agent.shared import reference
from tests.oracles.evaluation import true_mspbe


def test_the_chain_has_its_known_values() -> None:
    """State distribution, values, fixed point and the MSPBE of theta = 0, as computed by hand elsewhere."""
    expectations = chain.expectations(0.9)
    d_b = chain.chain().state_distribution(chain.going_right(chain.BEHAVIOUR_RIGHT))
    values = chain.chain().values(chain.going_right(chain.TARGET_RIGHT), 0.9)
    np.testing.assert_allclose(d_b, [0.254, 0.317, 0.333, 0.079, 0.016], atol=5e-4)
    np.testing.assert_allclose(values, [0.597, 0.698, 0.785, 0.882, 0.990], atol=1e-3)
    np.testing.assert_allclose(
        -np.linalg.pinv(expectations.A) @ expectations.b,
        [0.782, 0.579, 0.405, 0.213, -0.004],
        atol=1e-3,
    )
    assert true_mspbe(np.zeros(5), *expectations) == pytest.approx(0.014325, abs=1e-6)


def test_a_walk_is_the_chain_s() -> None:
    """It begins in the middle after each end; 1.538 % of the episodes end on the right."""
    left, actions, reached = chain.walk(np.random.default_rng(0), 50_000).tolist()
    state = 2
    ends = []
    for state_t, is_right, state_tp1 in zip(left, actions, reached, strict=True):
        assert state_t == state
        state += 1 if is_right else -1
        if state in (-1, 5):
            assert state_tp1 == 5
            ends.append(state)
            state = 2
        else:
            assert state_tp1 == state
    assert len(ends) == 50_000
    assert np.mean(np.array(ends) == 5) == pytest.approx(0.01538, abs=4 * np.sqrt(0.01538 / 50_000))
    assert len(actions) / 50_000 == pytest.approx(chain.steps_per_episode(), rel=0.02)


@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_the_golden_chain(gamma: float) -> None:
    """Sixty episodes with a change of theta after thirty: all four measures at two taus, from the first step on."""
    golden = reference("chain_golden.npz")
    state = golden["states"].astype(np.int64)
    right = golden["actions"].astype(np.int64)
    reached = state + 2 * right - 1
    is_over = (reached < 0) | (reached == 5)
    trajectory = np.stack([state, right, np.where(is_over, 5, reached)])
    change = NewWeights(int(golden["reset_after_episode"]), golden["theta_after_reset"])
    recorded = chain.record(trajectory, gamma, (10.0, 100.0), change)
    curves = chain.Recorded(*(of_episodes[1:] for of_episodes in recorded))
    true, sample, vector, scalar, *_ = chain.measures(curves, chain.expectations(gamma))
    measures = np.column_stack([true, *(x[:, k] for k in (0, 1) for x in (sample, vector, scalar))])
    np.testing.assert_allclose(measures, golden[f"curves_{gamma}"][:, :7], atol=1e-11)


@pytest.fixture(scope="module")
def curves() -> Iterator[Curves]:
    """The mean of 100 runs at gamma 0.9, with three of the eight time constants, each of which learns again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "TAUS", (chain.TAU, 50, 200))
        yield mean_curves(seed=0, gamma=0.9)


def test_the_chain_shows_what_a_right_implementation_must(curves: Curves) -> None:
    """At tau 20: zero at the start, shape and area after the rise and after the change, and where the peaks lie."""
    true = curves.at("true")
    assert curves.starts_at_zero
    assert 1e-4 <= true[1000] <= 4e-4
    assert 0.038 <= true[1001] <= 0.060
    assert 0.009 <= true[1050] <= 0.012
    for name in ONLINE:
        curve_fit = fit(curves.at(name), true)
        assert curve_fit.correlation >= 0.75
        assert curve_fit.correlation_changed >= 0.75
        assert 0.5 <= curve_fit.area <= 1.5
        assert 0.5 <= curve_fit.area_changed <= 1.5
        assert 0.012 <= curve_fit.peak <= 0.024
        assert 5 <= curve_fit.peak_after <= 25


def test_the_verdicts_follow_the_numbers(curves: Curves) -> None:
    """Partly where only the shape holds; and with estimates that are exact, no sample is as good as they are."""
    assert letters(chain, {(0.9, 0): curves}) == "ppprp"
    perfect = curves._replace(
        mean={**curves.mean, **dict.fromkeys(ONLINE, curves.mean["true"])}, starts_at_zero=False
    )
    assert letters(chain, {(0.9, 0): perfect, (0.9, 1): perfect}) == "rrnnr"


def test_the_older_w_is_that_of_two_episodes_before() -> None:
    """At a theta that stands still E[delta e] does too, so that the curve comes again two episodes later."""
    rng = np.random.default_rng(0)
    theta = np.tile(rng.normal(size=5), (6, 1))
    w = rng.normal(size=(6, 5))
    moving = chain.Recorded(theta, w, np.zeros((6, 1, 5)), np.zeros((6, 1)), np.zeros((6, 5, 5)))
    *_, exact_trace, older = chain.measures(moving, chain.expectations(0.9))
    np.testing.assert_allclose(older, [0.0, 0.0, *exact_trace[:-2]])
