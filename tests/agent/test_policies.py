"""Policies: their probabilities and draws; tables of many Gibbs policies equal softmaxes, also out of range."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from horde_agent.gvf import GVF, Channel
from horde_agent.kernels.policies import UNIT
from horde_agent.kernels.tiles import switched
from horde_agent.learning.gibbs import GibbsTable
from horde_agent.learning.groups import trace_groups
from horde_agent.learning.ratios import PolicyRatios
from horde_agent.parametric import Gaussian
from horde_agent.policies import (
    Behaviour,
    ConstantAction,
    EpsilonGreedy,
    Follow,
    Gibbs,
    PolicyFunction,
    StickyRandom,
    Uniform,
    draw_from,
)
from tests.agent.shared import binary, reference
from tests.oracles.gibbs import gibbs_ratios

NOWHERE = np.zeros(0)
NO_TILES = np.zeros(0, dtype=np.int64)


def test_a_constant_action_and_a_uniform_policy() -> None:
    np.testing.assert_array_equal(
        ConstantAction(2, 5).probabilities(NOWHERE, NO_TILES), [0, 0, 1, 0, 0]
    )
    np.testing.assert_array_equal(Uniform(4).probabilities(NOWHERE, NO_TILES), [0.25] * 4)


def test_the_ratio_of_a_gaussian_is_that_of_densities() -> None:
    """At one standard deviation from each mean: the standard normal's density .2419707, over .5 and over 2.

    Without the standard deviations it would be the same with any of them.
    """
    policy = Gaussian(mean=[1.0, -3.0], std=[0.5, 2.0], channels=[0, 2], b=1)
    observation = np.array([1.5, 0.1, -5.0])
    density = (0.24197072 / 0.5) * (0.24197072 / 2.0)
    assert policy.ratio(observation, NO_TILES) == pytest.approx(density / 0.1, rel=1e-6)
    narrow = Gaussian(mean=[1.0], std=[0.25], channels=[0], b=1)
    assert narrow.ratio(observation, NO_TILES) == pytest.approx(0.05399097 / 0.25 / 0.1, rel=1e-6)


def test_the_mean_ratio_of_a_gaussian_under_the_behaviour_is_1() -> None:
    """The behaviour is N(0, 2), the target N(tile, .5): the integral of b rho, by a sum over a grid."""
    policy = Gaussian(mean=lambda _, tiles: [float(tiles[0])], std=[0.5], channels=[0], b=1)
    actions = np.arange(-10.0, 10.0, 0.01)
    densities = np.exp(-0.125 * actions**2) / np.sqrt(8.0 * np.pi)
    tiles = np.array([1])
    ratios = [policy.ratio(np.array(pair), tiles) for pair in zip(actions, densities, strict=True)]
    assert (densities * ratios).sum() * 0.01 == pytest.approx(1.0, abs=1e-3)
    assert (densities * ratios * actions).sum() * 0.01 == pytest.approx(1.0, abs=1e-3)


def test_a_gibbs_policy_takes_actions_of_large_parameters_less() -> None:
    """Two actions, three features, of which 0 and 2 are active: sums 1 + 2 and 1, so e^-3 : e^-1.

    With a plus sign the first action would have .88, with the third feature left out .5.
    """
    policy = Gibbs(2, 3, index=np.array([0, 1, 2, 3]), value=np.array([1.0, 7.0, 2.0, 1.0]))
    probabilities = policy.probabilities(NOWHERE, np.array([0, 2]))
    expected = np.exp([-3.0, -1.0]) / np.exp([-3.0, -1.0]).sum()
    np.testing.assert_allclose(probabilities, expected)


def test_behaviour_has_no_probabilities_of_its_own() -> None:
    with pytest.raises(TypeError, match="rho = 1"):
        Behaviour().probabilities(NOWHERE, NO_TILES)


def test_the_sticky_behaviour_has_its_true_probabilities() -> None:
    """0.2 for a fresh draw, then 0.6 for the last action (0.5 + 0.5 / 5) and 0.1 for the others."""
    rng = np.random.default_rng(0)
    behaviour = StickyRandom(5)
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
    rng = np.random.default_rng(1)
    behaviour = StickyRandom(5)
    n = 60_000
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
    rng = np.random.default_rng(2)
    p = np.array([0.1, 0.0, 0.6, 0.3])
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
def test_an_action_of_probability_0_is_never_drawn(
    p: list[float], number: float, action: int
) -> None:
    assert draw_from(np.array(p), Fixed(number)) == (action, p[action])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [[0.5, 0.4], [0.5, 0.6], [-0.5, 1.5], [np.nan, 1.0], [np.inf, 0.0], [[1.0]], [0.0, 0.0], []],
)
def test_invalid_probabilities_are_refused(wrong: list[float]) -> None:
    with pytest.raises(ValueError, match="probabilities"):
        draw_from(np.array(wrong), np.random.default_rng(0))


def test_follow_draws_from_the_policy() -> None:
    """With the same draws and probabilities; it has no last action to forget."""
    policy = EpsilonGreedy(lambda observation, tiles: observation, 3, 0.3)
    behaviour = Follow(policy)
    state = np.array([0.0, 2.0, 1.0])
    drawn = [behaviour.draw(np.random.default_rng(k), state, NO_TILES) for k in range(50)]
    behaviour.forget()
    expected = policy.probabilities(state, NO_TILES)
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
    assert EpsilonGreedy(lambda o, t: [0.0, 1.0], 2, 0.0).probabilities(
        NOWHERE, NO_TILES
    ).tolist() == [0.0, 1.0]
    np.testing.assert_allclose(
        EpsilonGreedy(lambda o, t: [0, 1], 2, 1).probabilities(NOWHERE, NO_TILES), [0.5, 0.5]
    )
    for wrong in ([1.0, 2.0, 3.0], [1.0, np.nan, 0.0, 0.0], 1.0):
        with pytest.raises(ValueError, match="values must be 4 numbers"):
            EpsilonGreedy(lambda o, t, wrong=wrong: wrong, 4).probabilities(NOWHERE, NO_TILES)


def test_the_golden_gibbs_policies() -> None:
    """Pi = softmax(-u.psi), psi_a a copy of phi at offset a n."""
    golden = reference("misc_golden.npz")
    for u, want in zip(golden["gibbs_u"], golden["gibbs_pi"], strict=True):
        policy = Gibbs(5, 40, np.flatnonzero(u), u[np.flatnonzero(u)])
        for phi, pi in zip(golden["gibbs_phi"], want, strict=True):
            np.testing.assert_allclose(
                policy.probabilities(NOWHERE, np.flatnonzero(phi)), pi, atol=1e-14
            )


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


# ---- tables of policies ----------------------------------------------------------------------------------------------

N_FEATURES = 60
N_ACTIVE = 12
N_ACTIONS = 3
Tiles = NDArray[np.int64]


def policies(n: int, seed: int = 0, scale: float = 1.0) -> list[Gibbs]:
    """Return random policies with 20 parameters each."""
    rng = np.random.default_rng(seed)
    drawn = [Gibbs.random(rng, N_ACTIONS, N_FEATURES, 20) for _ in range(n)]
    return [Gibbs(N_ACTIONS, N_FEATURES, p.index, scale * p.value) for p in drawn]


def walk(n_steps: int, n_changed: int, seed: int = 0) -> Tiles:
    """Return shuffled tiles with `n_changed` new ones on each step; features may return."""
    rng = np.random.default_rng(seed)
    tiles = []
    active = rng.choice(N_FEATURES, N_ACTIVE, replace=False)
    for _ in range(n_steps):
        stays = rng.choice(active, N_ACTIVE - n_changed, replace=False)
        inactive = np.setdiff1d(np.arange(N_FEATURES), stays)
        active = rng.permutation(np.r_[stays, rng.choice(inactive, n_changed, replace=False)])
        tiles.append(active)
    return np.array(tiles)


def ratios(table: GibbsTable, tiles: Tiles, action: int, n: int, probability: float = 0.1) -> Any:
    out = np.full(n, np.nan)
    table.ratios(tiles, action, probability, out)
    return out


@pytest.mark.kernels
@pytest.mark.parametrize("n_changed", [0, 2, 12])
@pytest.mark.parametrize("n", [1, 7, 300])  # 300 are more than one sweep
def test_ratios_are_those_of_softmaxes(n: int, n_changed: int) -> None:
    """Pi is within 1e-6 at every step: none, few and all of the tiles change, and so does their number."""
    gibbs_policies = policies(n)
    path = walk(40, n_changed)
    table = GibbsTable(gibbs_policies, np.arange(n))
    for t, tiles in enumerate(path[:: 1 if n < 300 else 10]):
        action = t % N_ACTIONS
        tiles = tiles[: N_ACTIVE - t // 3 % 5]
        want = gibbs_ratios(gibbs_policies, binary(tiles, N_FEATURES), action, 0.1)
        # Rho = pi / 0.1
        np.testing.assert_allclose(ratios(table, tiles, action, n), want, atol=1e-5)
    assert not table.in_floats


def test_ratios_of_more_policies_than_a_block_holds() -> None:
    """5,000 policies lie in two blocks or more; the last one and a scattered order arrive too."""
    gibbs_policies = policies(5_000, seed=3)
    position = np.random.default_rng(0).permutation(5_000)
    table = GibbsTable(gibbs_policies, position)
    path = walk(30, 3)
    for tiles in path:
        rho = ratios(table, tiles, 1, 5_000, 0.2)
    want = gibbs_ratios(gibbs_policies, binary(path[-1], N_FEATURES), 1, 0.2)
    np.testing.assert_allclose(rho[position], want, atol=5e-6)


@pytest.mark.kernels
def test_ratios_do_not_depend_on_earlier_tiles() -> None:
    """One table takes 50 small steps, another jumps there, a third gets the tiles in another order."""
    gibbs_policies = policies(20)
    path = walk(50, 2)
    walked, jumped, shuffled = (GibbsTable(gibbs_policies, np.arange(20)) for _ in range(3))
    for tiles in path:
        by_steps = ratios(walked, tiles, 2, 20)
    at_once = ratios(jumped, path[-1], 2, 20)
    ratios(shuffled, path[0], 2, 20)
    otherwise = ratios(shuffled, path[-1][::-1].copy(), 2, 20)
    np.testing.assert_array_equal(by_steps, at_once)
    np.testing.assert_array_equal(otherwise, at_once)


@pytest.mark.kernels
def test_a_policy_with_large_parameters_falls_back_to_floats() -> None:
    """Twenty parameters up to 40 could sum to hundreds, beyond the +-63 of the integers, which would wrap."""
    gibbs_policies = policies(5, scale=40.0)
    path = walk(10, 3)
    table = GibbsTable(gibbs_policies, np.arange(5))
    assert table.in_floats
    for tiles in path:
        want = gibbs_ratios(gibbs_policies, binary(tiles, N_FEATURES), 0, 0.1)
        np.testing.assert_allclose(ratios(table, tiles, 0, 5), want, atol=1e-12)


@pytest.mark.kernels
def test_parameters_are_rounded_to_the_nearest_multiple() -> None:
    """60 parameters of 0.9 units each: rounded down, their sum is 54 units too small, and pi wrong by 8e-7."""
    policy = Gibbs(2, N_FEATURES, np.arange(N_FEATURES), np.full(N_FEATURES, 0.9 * UNIT))
    tiles = np.arange(N_FEATURES)
    want = gibbs_ratios([policy], binary(tiles, N_FEATURES), 0, 1.0)
    np.testing.assert_allclose(
        ratios(GibbsTable([policy], np.arange(1)), tiles, 0, 1, 1.0), want, rtol=0, atol=3e-7
    )


@pytest.mark.kernels
def test_large_differences_of_logits_are_right_up_to_the_limit() -> None:
    """With u = (60, -60), pi(1) = 1 and pi(0) = exp(-120), zero in float32."""
    table = GibbsTable([Gibbs(2, 9, np.array([0, 9]), np.array([60.0, -60.0]))], np.arange(1))
    out = np.zeros(1)
    table.ratios(np.array([0, 1, 2]), 1, 0.5, out)
    assert out[0] == 2.0
    table.ratios(np.array([0, 1, 2]), 0, 0.5, out)
    assert 0.0 <= out[0] < 1e-30
    assert not table.in_floats


def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,048 policies are enough for several threads."""
    gibbs_policies = policies(2_048)
    path = walk(12, 3)
    rhos = []
    for n_threads in (1, 2):
        if n_threads > numba.config.NUMBA_NUM_THREADS:
            pytest.skip("one core only")
        monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", n_threads)
        table = GibbsTable(gibbs_policies, np.arange(2_048))
        rhos.append([ratios(table, tiles, 1, 2_048) for tiles in path])
    np.testing.assert_array_equal(*rhos)


def test_a_table_of_every_kind_of_policy() -> None:
    """Constant, uniform, on-policy, a function, and Gibbs policies both in whole numbers and in floats."""
    small = policies(40)
    large = policies(1, seed=1, scale=40.0)
    calls = []

    def shares(observation: Any, tiles: Any) -> list[float]:
        calls.append(1)
        return [0.2, 0.3, 0.5]

    all_policies = [
        small[0],
        ConstantAction(1, 3),
        large[0],
        Uniform(3),
        Behaviour(),
        PolicyFunction(shares, 3),
        small[1],
        PolicyFunction(lambda *_: [0.5, 0.5], 3),
        *small[2:],
    ]
    questions = [GVF(f"{i}", p, Channel(0), 0.5) for i, p in enumerate(all_policies)]
    groups = trace_groups(questions, np.zeros(len(questions), dtype=np.int64))
    ratios = PolicyRatios(groups, max_finite=1e300)
    (tiles,) = walk(1, 3)
    ratios.write(1, 0.6, np.zeros(3), tiles)
    rho = ratios.of_demons
    want = gibbs_ratios([*small, *large], binary(tiles, N_FEATURES), 1, 0.6)
    np.testing.assert_allclose(rho[[0, 6, *range(8, 46), 2]], want, atol=1e-6)
    np.testing.assert_allclose(rho[[3, 5]], [1 / 1.8, 0.5])
    # A constant action, and the behaviour itself
    assert rho[[1, 4]].tolist() == [1 / 0.6, 1.0]
    # Two numbers for three actions
    assert rho[7] == 0.0
    assert np.flatnonzero(~ratios.has_rho).tolist() == [7]
    assert list(ratios.given) == [7]
    assert np.isnan(ratios.given_to_demons[7])
    np.testing.assert_array_equal(ratios.totals(), [rho > 0.0, rho, rho * rho])
    assert len(calls) == 1


@pytest.mark.kernels
@given(st.permutations(range(9)), st.permutations(range(9)), st.integers(0, 8))
def test_switched_features_are_the_difference_of_two_lists(
    before: list[int], after: list[int], n: int
) -> None:
    """Order and place do not matter."""
    balance = np.zeros(9, np.int64)
    gained = np.zeros(8, np.int64)
    lost = np.zeros(8, np.int64)
    n_gained, n_lost = switched(
        np.array(before[:n], np.int64), np.array(after[:n], np.int64), balance, gained, lost
    )
    assert sorted(gained[:n_gained]) == sorted(set(after[:n]) - set(before[:n]))
    assert sorted(lost[:n_lost]) == sorted(set(before[:n]) - set(after[:n]))
    assert not balance.any()
