"""Many Gibbs policies at once: against softmaxes in full, whatever the way to a state, and out of range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from horde_agent.kernels.tiles import switched
from horde_agent.learning.gibbs import GibbsTable
from horde_agent.learning.signals import PolicyTable
from horde_agent.policies import Behaviour, ConstantAction, Gibbs, PolicyFunction, Uniform
from tests.agent.shared import binary
from tests.oracles.gibbs import gibbs_ratios

N_FEATURES, N_ACTIVE, N_ACTIONS = 60, 12, 3
Tiles = NDArray[np.int64]


def policies(n: int, seed: int = 0, scale: float = 1.0) -> list[Gibbs]:
    """Return random policies with 20 parameters each."""
    rng = np.random.default_rng(seed)
    drawn = [Gibbs.random(rng, N_ACTIONS, N_FEATURES, 20) for _ in range(n)]
    return [Gibbs(N_ACTIONS, N_FEATURES, p.index, scale * p.value) for p in drawn]


def walk(n_steps: int, n_changed: int, seed: int = 0) -> Tiles:
    """Return tiles of which so many are drawn anew on each step; features may be there twice, and come back."""
    rng, tiles = np.random.default_rng(seed), []
    now = rng.integers(0, N_FEATURES, N_ACTIVE)
    for _ in range(n_steps):
        now = now.copy()
        now[rng.choice(N_ACTIVE, n_changed, replace=False)] = rng.integers(0, N_FEATURES, n_changed)
        tiles.append(now)
    return np.array(tiles)


def ratios(table: GibbsTable, tiles: Tiles, action: int, n: int, probability: float = 0.1) -> Any:
    """Return a table's ratios."""
    out = np.full(n, np.nan)
    table.ratios(tiles, action, probability, out)
    return out


@pytest.mark.kernels
@pytest.mark.parametrize("n_changed", [0, 2, 12])
@pytest.mark.parametrize("n", [1, 7, 300])
def test_ratios_are_those_of_softmaxes_in_full(n: int, n_changed: int) -> None:
    """Pi is within 1e-6 at every step: none, few and all of the tiles change; 300 policies are more than one sweep."""
    asked, path = policies(n), walk(40, n_changed)
    table = GibbsTable(asked, np.arange(n))
    for t, tiles in enumerate(path[:: 1 if n < 300 else 10]):
        action = t % N_ACTIONS
        want = gibbs_ratios(asked, binary(tiles, N_FEATURES), action, 0.1)
        np.testing.assert_allclose(ratios(table, tiles, action, n), want, atol=1e-5)  # rho = pi / 0.1
    assert not table.in_floats


def test_ratios_of_more_policies_than_a_block_holds() -> None:
    """5,000 policies lie in two blocks or more; the last one and a scattered order arrive too."""
    asked = policies(5_000, seed=3)
    position = np.random.default_rng(0).permutation(5_000)
    table, path = GibbsTable(asked, position), walk(30, 3)
    for tiles in path:
        got = ratios(table, tiles, 1, 5_000, 0.2)
    want = gibbs_ratios(asked, binary(path[-1], N_FEATURES), 1, 0.2)
    np.testing.assert_allclose(got[position], want, atol=5e-6)


@pytest.mark.kernels
def test_two_ways_to_the_same_tiles_give_the_same_bits() -> None:
    """One table takes 50 small steps, another jumps there, a third comes with the tiles in another order."""
    asked, path = policies(20), walk(50, 2)
    walked, jumped, shuffled = (GibbsTable(asked, np.arange(20)) for _ in range(3))
    for tiles in path:
        by_steps = ratios(walked, tiles, 2, 20)
    at_once = ratios(jumped, path[-1], 2, 20)
    ratios(shuffled, path[0], 2, 20)
    otherwise = ratios(shuffled, path[-1][::-1].copy(), 2, 20)
    np.testing.assert_array_equal(by_steps, at_once)
    np.testing.assert_array_equal(otherwise, at_once)


@pytest.mark.kernels
def test_a_policy_with_large_parameters_falls_back_to_floats() -> None:
    """Twenty parameters up to 40 could sum to hundreds, past the +-63 that whole numbers hold: they would wrap."""
    asked, path = policies(5, scale=40.0), walk(10, 3)
    table = GibbsTable(asked, np.arange(5))
    assert table.in_floats
    for tiles in path:
        want = gibbs_ratios(asked, binary(tiles, N_FEATURES), 0, 0.1)
        np.testing.assert_allclose(ratios(table, tiles, 0, 5), want, atol=1e-12)


@pytest.mark.kernels
def test_large_differences_of_logits_are_right_up_to_the_limit() -> None:
    """With u = (60, -60), pi(1) = 1 and pi(0) = exp(-120), zero in float32."""
    table, out = GibbsTable([Gibbs(2, 9, np.array([0, 9]), np.array([60.0, -60.0]))], np.arange(1)), np.zeros(1)
    table.ratios(np.array([0, 1, 2]), 1, 0.5, out)
    assert out[0] == 2.0
    table.ratios(np.array([0, 1, 2]), 0, 0.5, out)
    assert 0.0 <= out[0] < 1e-30
    assert not table.in_floats


def test_a_feature_that_is_on_too_often_is_noticed() -> None:
    """Three times +-60 is past 127: in whole numbers the sign would turn, and pi(1) would be 0."""
    table, out = GibbsTable([Gibbs(2, 9, np.array([0, 9]), np.array([60.0, -60.0]))], np.arange(1)), np.zeros(1)
    table.ratios(np.array([0, 0, 0]), 1, 0.5, out)
    assert out[0] == 2.0
    assert table.in_floats


def test_policies_of_different_shapes_are_refused() -> None:
    two = Gibbs(2, 3, np.array([0]), np.array([1.0]))
    three = Gibbs(3, 3, np.array([0]), np.array([1.0]))
    with pytest.raises(ValueError, match="one shape"):
        GibbsTable([two, three], np.arange(2))


def test_a_table_of_every_kind_of_policy() -> None:
    """Constant, uniform, on-policy, a function, and Gibbs policies both in whole numbers and in floats."""
    small, large = policies(40), policies(1, seed=1, scale=40.0)
    calls = []

    def shares(observation: Any, tiles: Any) -> list[float]:
        calls.append(1)
        return [0.2, 0.3, 0.5]

    asked = [
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
    table, (tiles,) = PolicyTable(asked, N_FEATURES), walk(1, 3)
    got = table.ratios(1, 0.6, np.zeros(3), tiles)
    want = gibbs_ratios([*small, *large], binary(tiles, N_FEATURES), 1, 0.6)
    np.testing.assert_allclose(got[[0, 6, *range(8, 46), 2]], want, atol=1e-6)
    np.testing.assert_allclose(got[[1, 3, 4, 5]], [1 / 0.6, 1 / 1.8, 1.0, 0.5])
    assert np.isnan(got[7])  # two numbers for three actions
    assert len(calls) == 1


def test_policies_of_one_function_are_one_policy() -> None:
    """Equal, so that a Horde evaluates the function once for all demons that ask about it."""

    def left(observation: Any, tiles: Any) -> list[float]:
        return [1.0, 0.0]

    assert PolicyFunction(left, 2) == PolicyFunction(left, 2)
    assert hash(PolicyFunction(left, 2)) == hash(PolicyFunction(left, 2))
    with pytest.raises(ValueError, match="n_actions"):
        PolicyFunction(left, 0)


lists = st.lists(st.integers(0, 8), max_size=8)


@pytest.mark.kernels
@given(lists, lists)
def test_switched_features_are_the_difference_of_two_lists(before: list[int], after: list[int]) -> None:
    """As multisets: a feature on three times, then once, goes off twice; order and place do not matter."""
    balance, gained, lost = np.zeros(9, np.int64), np.zeros(8, np.int64), np.zeros(8, np.int64)
    n_gained, n_lost = switched(np.array(before, np.int64), np.array(after, np.int64), balance, gained, lost)
    want = np.bincount(np.array(after, np.int64), minlength=9) - np.bincount(np.array(before, np.int64), minlength=9)
    np.testing.assert_array_equal(np.bincount(gained[:n_gained], minlength=9), np.maximum(want, 0))
    np.testing.assert_array_equal(np.bincount(lost[:n_lost], minlength=9), np.maximum(-want, 0))
    assert not balance.any()
