"""Policies: their probabilities, the sticky behaviour's statistics, and the growth of a plain trace."""

from __future__ import annotations

import numpy as np
import pytest

from horde_agent.measures.trace_growth import trace_growth
from horde_agent.policies import (
    Behaviour,
    ConstantAction,
    EpsilonGreedy,
    Follow,
    Gibbs,
    StickyRandom,
    Uniform,
    draw_from,
)
from tests.agent.shared import reference

NOWHERE, NO_TILES = np.zeros(0), np.zeros(0, dtype=np.int64)


def test_a_constant_action_and_a_uniform_policy() -> None:
    np.testing.assert_array_equal(ConstantAction(2, 5).probabilities(NOWHERE, NO_TILES), [0, 0, 1, 0, 0])
    np.testing.assert_array_equal(Uniform(4).probabilities(NOWHERE, NO_TILES), [0.25] * 4)


def test_behaviour_has_no_probabilities_of_its_own() -> None:
    with pytest.raises(TypeError, match="rho = 1"):
        Behaviour().probabilities(NOWHERE, NO_TILES)


def test_the_sticky_behaviour_has_its_true_probabilities() -> None:
    """0.2 for a fresh draw, then 0.6 for the last action (0.5 + 0.5 / 5) and 0.1 for the others."""
    rng, behaviour = np.random.default_rng(0), StickyRandom(5)
    np.testing.assert_allclose(behaviour.probabilities(), np.full(5, 0.2))
    action, b = behaviour.draw(rng)
    assert b == pytest.approx(0.2)
    expected = np.full(5, 0.1)
    expected[action] = 0.6
    np.testing.assert_allclose(behaviour.probabilities(), expected)
    behaviour.forget()
    np.testing.assert_allclose(behaviour.probabilities(), np.full(5, 0.2))


def test_the_sticky_behaviour_draws_with_its_probabilities() -> None:
    """60,000 draws: the share of repeats is .6 and of each change .1, within four standard deviations (.008, .005).

    A behaviour that excluded the last action from the fresh draw would repeat half of the time.
    """
    rng, behaviour, n = np.random.default_rng(1), StickyRandom(5), 60_000
    drawn = [behaviour.draw(rng) for _ in range(n)]
    actions = np.array([a for a, _ in drawn])
    b = np.array([p for _, p in drawn])
    repeats = actions[1:] == actions[:-1]
    assert repeats.mean() == pytest.approx(0.6, abs=0.008)
    np.testing.assert_allclose(b[1:], np.where(repeats, 0.6, 0.1))
    for step in range(1, 5):
        assert ((actions[1:] - actions[:-1]) % 5 == step).mean() == pytest.approx(0.1, abs=0.005)
    np.testing.assert_allclose(np.bincount(actions) / n, 0.2, atol=0.015)


def test_actions_are_drawn_with_their_probabilities() -> None:
    """20,000 draws of (.1, 0, .6, .3): within four standard deviations; the one of probability 0 never."""
    rng, p = np.random.default_rng(2), np.array([0.1, 0.0, 0.6, 0.3])
    drawn = [draw_from(p, rng) for _ in range(20_000)]
    share = np.bincount([a for a, _ in drawn], minlength=4) / len(drawn)
    assert share[1] == 0.0
    assert (np.abs(share - p) < 4 * np.sqrt(p * (1 - p) / len(drawn)) + 1e-12).all()
    assert all(b == p[a] for a, b in drawn)


class Fixed:
    """A generator that returns a given number."""

    def __init__(self, number: float) -> None:
        self.number = number

    def random(self) -> float:
        return self.number


@pytest.mark.parametrize(
    ("p", "number", "action"),
    [
        ([0.0, 1.0], 0.0, 1),
        ([0.0, 0.5, 0.5, 0.0], 1.0 - 2**-53, 2),
        ([0.5, 0.5 - 1e-7, 0.0], 1.0 - 1e-8, 1),  # a sum that rounding left below 1
        ([0.25, 0.75], 0.25, 1),
        ([0.25, 0.75], np.nextafter(0.25, 0.0), 0),
    ],
)
def test_an_action_of_probability_0_is_never_drawn(p: list[float], number: float, action: int) -> None:
    assert draw_from(np.array(p), Fixed(number)) == (action, p[action])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", [[0.5, 0.4], [0.5, 0.6], [-0.5, 1.5], [np.nan, 1.0], [np.inf, 0.0], [[1.0]], [0.0, 0.0], []]
)
def test_invalid_probabilities_are_refused(wrong: list[float]) -> None:
    with pytest.raises(ValueError, match="probabilities"):
        draw_from(np.array(wrong), np.random.default_rng(0))


def test_follow_draws_from_the_policy() -> None:
    """With the same draws and probabilities; it has no last action to forget."""
    policy = EpsilonGreedy(lambda observation, tiles: observation, 3, 0.3)
    behaviour, seen = Follow(policy), np.array([0.0, 2.0, 1.0])
    drawn = [behaviour.draw(np.random.default_rng(k), seen, NO_TILES) for k in range(50)]
    behaviour.forget()
    expected = policy.probabilities(seen, NO_TILES)
    assert drawn == [draw_from(expected, np.random.default_rng(k)) for k in range(50)]
    assert behaviour.n_actions == 3
    assert {b for _, b in drawn} == set(expected[[0, 1]])


def test_epsilon_greedy_shares_epsilon_among_all_and_the_rest_among_the_best() -> None:
    """Epsilon .2 of 4 actions: .05 each and .8 for the best; of two that are best, .4 each."""
    policy = EpsilonGreedy(lambda observation, tiles: observation[tiles], 4, 0.2)
    everything = np.arange(4)
    one = policy.probabilities(np.array([1.0, 5.0, -2.0, 4.9]), everything)
    np.testing.assert_allclose(one, [0.05, 0.85, 0.05, 0.05])
    two = policy.probabilities(np.array([5.0, 1.0, 5.0, 4.0]), everything)
    np.testing.assert_allclose(two, [0.45, 0.05, 0.45, 0.05])
    assert EpsilonGreedy(lambda o, t: [0.0, 1.0], 2, 0.0).probabilities(NOWHERE, NO_TILES).tolist() == [0.0, 1.0]
    np.testing.assert_allclose(EpsilonGreedy(lambda o, t: [0, 1], 2, 1).probabilities(NOWHERE, NO_TILES), [0.5, 0.5])
    for wrong in ([1.0, 2.0, 3.0], [1.0, np.nan, 0.0, 0.0], 1.0):
        with pytest.raises(ValueError, match="values must be 4 numbers"):
            EpsilonGreedy(lambda o, t, wrong=wrong: wrong, 4).probabilities(NOWHERE, NO_TILES)


def test_the_growth_of_a_target_that_is_never_followed_is_refused() -> None:
    with pytest.raises(ValueError, match="behaviour must give"):
        trace_growth([1.0, 0.0], [0.0, 1.0], 0.5, 0.9)


def test_the_golden_gibbs_policies() -> None:
    """Pi = softmax(-u.psi), psi_a a copy of phi at offset a n."""
    golden = reference("misc_golden.npz")
    for u, want in zip(golden["gibbs_u"], golden["gibbs_pi"], strict=True):
        policy = Gibbs(5, 40, np.flatnonzero(u), u[np.flatnonzero(u)])
        for phi, pi in zip(golden["gibbs_phi"], want, strict=True):
            np.testing.assert_allclose(policy.probabilities(NOWHERE, np.flatnonzero(phi)), pi, atol=1e-14)


@pytest.mark.kernels
def test_a_gibbs_policy_avoids_actions_with_large_parameters() -> None:
    """U = log 2 on (action 1, feature 0): pi = (1, 1/2) / 1.5 with the feature, 1/2 each without it.

    Without the minus the first would be (1, 2) / 3.
    """
    policy = Gibbs(2, 3, np.array([3]), np.array([np.log(2.0)]))
    np.testing.assert_allclose(policy.probabilities(NOWHERE, np.array([0, 2])), [2 / 3, 1 / 3])
    np.testing.assert_allclose(policy.probabilities(NOWHERE, np.array([1, 2])), [0.5, 0.5])


def test_a_random_gibbs_policy_has_sixty_parameters_in_the_unit_interval() -> None:
    policy = Gibbs.random(np.random.default_rng(0), 5, 6065)
    assert np.unique(policy.index).size == 60
    assert policy.index.max() < 30_325
    assert 0.0 <= policy.value.min() <= policy.value.max() <= 1.0
