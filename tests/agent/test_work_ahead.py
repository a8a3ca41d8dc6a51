"""Work of the next step done before it: the same life, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from horde_agent import Channel, Horde
from horde_agent.saving import State
from tests.agent.hordes import BEHAVIOUR, RandomLife, ask, make

MANY = 1_200
"""Demons of one policy: so many that updates are written and averages moved in several turns."""


def horde_of(algorithms: tuple[str, ...] = ("gtd",), **settings: Any) -> Horde:
    """Return a Horde with many demons of one policy, and some of another."""
    many = [ask(f"many {i}", cumulant=Channel(i % 3)) for i in range(MANY)]
    few = [
        ask(f"few {i}", BEHAVIOUR, Channel(i % 3), algorithm=algorithms[i % len(algorithms)])
        for i in range(30)
    ]
    return make([*many, *few], average=640.0, rarity=True, step_size=0.1, **settings)


def are_alike(one: State, other: State) -> bool:
    """Return whether two states have the same bytes."""
    return all(one[name].tobytes() == other[name].tobytes() for name in one)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"algorithms": ("gtd", "td", "etd")},
        {"mode": "deferred"},
        {"engine": "plain"},
    ],
    ids=str,
)
def test_a_life_in_which_work_is_done_ahead_is_the_same_to_the_bit(
    settings: dict[str, Any],
) -> None:
    """Through gaps, ends, averages by turns and classifications; sometimes ahead, sometimes not."""
    usual = horde_of(**settings)
    ahead = horde_of(**settings)
    life = RandomLife(usual, ahead, p_break=0.02)
    for step in range(400):
        life.run(1)
        if step % 5 < 3:
            ahead.work_ahead()
        np.testing.assert_array_equal(ahead.predictions, usual.predictions)
    np.testing.assert_array_equal(ahead.averaged_weights(), usual.averaged_weights())
    for of_ahead, of_usual in zip(ahead.weights(), usual.weights(), strict=True):
        np.testing.assert_array_equal(of_ahead, of_usual)


def test_a_state_from_after_the_work_goes_on_to_the_bit() -> None:
    whole = horde_of()
    life = RandomLife(whole)
    life.run(215)
    whole.work_ahead()
    restored = horde_of()
    restored.restore(whole.state())
    life.hordes = (whole, restored)
    life.run(80)
    np.testing.assert_array_equal(restored.predictions, whole.predictions)
    np.testing.assert_array_equal(restored.averaged_weights(), whole.averaged_weights())


def test_work_is_done_once_and_the_next_step_has_none() -> None:
    """The state changes by the work, not by asking again; some of 64 steps in a row have work."""
    horde = horde_of()
    life = RandomLife(horde)
    life.run(130)
    n_with_work = 0
    for _ in range(64):
        life.run(1)
        state_before = horde.state()
        horde.work_ahead()
        state_after = horde.state()
        n_with_work += not are_alike(state_before, state_after)
        horde.work_ahead()
        assert are_alike(state_after, horde.state())
    assert 4 <= n_with_work <= 12


def test_a_horde_that_has_not_begun_has_no_work() -> None:
    horde = horde_of()
    horde.work_ahead()
    assert horde.n_updates == 0
