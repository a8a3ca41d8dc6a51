"""Learning does not stiffen with age: counters of a thousand million steps change no bits, or are forgotten.

What stands still, or is of a whole life, by design: an offset, after 500 transitions, since the weights learn what
remains; the variance by which an NMSRE or a UDE is divided, which is a measure's and no learner's; theta under step
sizes that the user chose to decay.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from horde_agent import Channel, ConstantAction, LearnerConfig
from horde_agent.horde import Horde
from horde_agent.learning import rarity
from horde_agent.learning.rarity import FeatureRarity
from tests.agent.hordes import (
    BEHAVIOUR,
    N_ACTIONS,
    N_ACTIVE,
    N,
    RandomLife,
    ask,
    make,
    siblings,
)

OLD = 1 << 33
"""Steps: more than 32 bits count, and 27 years at 10 Hz."""


def n_states_until_noticed(n_states: int) -> int:
    """Return after how many states a feature that replaces another, which was active in `n_states`, has its class."""
    features = FeatureRarity(n_features=3, n_active=1)
    features.visits[:] = [n_states // 2, n_states - n_states // 2, 0]
    step = n_states
    while features.class_of[2] or step == n_states:
        previous_step = step
        features.classify(step)
        step = features.next_at
        features.visits[0] += (step - previous_step) // 2
        features.visits[2] += step - previous_step - (step - previous_step) // 2
    return step - n_states


def test_the_rarity_of_features_follows_a_changed_world_at_any_age() -> None:
    """Its share is half of the states from now on, and 1/4 when as many have passed as before.

    With counts of the whole life, that would take 10^9 states, not 3 x 10^5.
    """
    assert 90_000 < n_states_until_noticed(100_000) < 120_000
    assert n_states_until_noticed(10**9) < 300_000


def test_counts_of_features_are_exact_in_a_life_of_seven_hours() -> None:
    features = FeatureRarity(n_features=2, n_active=2)
    features.visits[:] = rarity.MOST_STATES
    features.classify(rarity.MOST_STATES)
    assert features.visits.tolist() == [1 << 18, 1 << 18]
    features.visits[:] += [1, 0]
    features.visits[1] = 2 * rarity.MOST_STATES
    features.classify(rarity.MOST_STATES + 1)
    assert features.visits.tolist() == [(1 << 17) + 1, 1 << 18]


FOLLOWER = "following/arrays/follower/"


def follower_after(n_read: float, n_steps: int, **sums: float) -> dict[str, float]:
    """Return the sums of an offset that follows its reading, after steps from these sums of `n_read` readings."""
    config = LearnerConfig(offset="reading")
    horde = Horde(
        [ask("light", ConstantAction(0, N_ACTIONS), Channel(0), 0.5)],
        n_features=N,
        n_active=N_ACTIVE,
        config=config,
    )
    life = RandomLife(horde)
    life.run(10)
    state = horde.state()
    for name, value in {**sums, "n_read": n_read}.items():
        state[FOLLOWER + name] = np.full_like(state[FOLLOWER + name], value)
    horde.restore(state)
    life.run(n_steps)
    return {
        name: float(horde.state()[FOLLOWER + name][0])
        for name in ("product", "square", "n_read", "gain")
    }


def test_the_share_of_a_reading_that_lasts_follows_a_changed_signal_at_any_age() -> None:
    """Readings that stayed as they were become noise, of which nothing lasts: kappa falls from 1 to less than .15.

    With sums of the whole life g would be 1.99 after these 400 steps, 2 being that of kappa = 1.
    """
    old = follower_after(1e9, 400, product=2e4, square=2e4)
    assert old["gain"] < 0.3
    assert old["n_read"] < 262_145.0


def test_the_sums_behind_the_share_are_halved_once_in_seven_hours() -> None:
    """A share of 1/2, so g = 1, is kept to 1e-4: noise of some readings adds little to 10^6."""
    whole = follower_after(262_134.0, 5, product=5e5, square=1e6)
    halved = follower_after(262_134.0, 20, product=5e5, square=1e6)
    assert whole["square"] == pytest.approx(1e6, rel=1e-4)
    assert halved["square"] == pytest.approx(5e5, rel=1e-4)
    assert halved["n_read"] == pytest.approx(131_072.0, abs=20.0)
    assert halved["gain"] == pytest.approx(1.0, abs=1e-4)


def aged(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a Horde with all counters of steps `OLD` higher."""
    older = {name: np.array(value) for name, value in state.items()}
    counters = (
        "averages/averaged_at", "averages/born_at", "averages/next_at", "averages/restarted_at",
        "averages/sample_at", "averages/due_at", "divergence/n_steps",
        "engine/span/flushed_at", "engine/span/tail_from", "engine/span/w_at",
    )  # fmt: skip
    for name in counters:
        older[name] += OLD
    for place in (0, 2, 4):  # NOW, OLDEST, FLUSHED
        older["engine/span/clock"][place] += OLD
    return older


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_a_horde_of_27_years_learns_the_bits_of_a_young_one(mode: Any) -> None:
    """Clocks of 32 bits would have wrapped twice, and float32 counts nothing above 2^24."""
    hordes = [make(siblings(), mode=mode, average=200.0, rarity=False) for _ in range(2)]
    life = RandomLife(*hordes, p_break=0.02)
    life.run(700)
    hordes[1].restore(aged(hordes[0].state()))
    life.run(700)
    young, old = hordes
    assert old.weights_sha256() == young.weights_sha256()
    np.testing.assert_array_equal(old.predictions, young.predictions)
    np.testing.assert_array_equal(old.averaged_weights(), young.averaged_weights())


N_STATES = 6
PERIOD = np.array([0.1, 0.9, 0.4, 0.6, 0.2, 0.8])
"""The readings of a world that goes through its states in turn."""
CHANGED = PERIOD[::-1] ** 2
GAMMA = 0.5


def true_answer(readings: np.ndarray, state: int) -> float:
    """Return the discounted sum of the readings after a state."""
    ahead = readings[(state + 1 + np.arange(60)) % N_STATES]
    return float((GAMMA ** np.arange(60)) @ ahead)


def live_in(horde: Horde, readings: np.ndarray, n_steps: int, first_tile: int) -> float:
    """Live in a world whose states have tiles of their own from a number on; return the mean error of 60 steps."""

    def seen(step: int) -> tuple[np.ndarray, np.ndarray]:
        state = step % N_STATES
        tiles = np.array([first_tile + state, 12 + state // 2, 15])
        return readings[[state]], tiles

    horde.begin(*seen(0))
    errors = []
    for step in range(1, n_steps):
        horde.learn(0, 1.0, *seen(step))
        errors.append(abs(horde.predictions[0] - true_answer(readings, step % N_STATES)))
    return float(np.mean(errors[-60:]))


def scaled_to(state: dict[str, Any], n_steps: int) -> dict[str, Any]:
    """Return the state of a Horde with counters as after so many steps; those that forget are at their bounds."""
    older = {name: np.array(values) for name, values in state.items()}
    if n_steps > 1 << 31:
        older = aged(state)
    n_states = min(n_steps, rarity.MOST_STATES)
    visits = older["rarity/visits"]
    older["rarity/visits"] = visits * n_states // (visits.sum() // 3)
    n_before = older[FOLLOWER + "n_read"]
    factor = min(n_steps, 262_144) / n_before
    for name in ("product", "square", "n_read"):
        older[FOLLOWER + name] = older[FOLLOWER + name] * factor
    older["ratios/arrays/totals"] = older["ratios/arrays/totals"] * n_steps / 3_000
    return older


def test_the_defaults_follow_a_changed_world_after_many_years_as_after_hours() -> None:
    """Offset, reading share, averages and rarity together: half of the features are new, and all readings.

    10^5 steps are three hours, and 2^33 are 27 years. A mean over the life, with steps of 1/n, would leave
    the error at the 0.34 with which both begin in the changed world.
    """
    question = ask("light", BEHAVIOUR, Channel(0), GAMMA)
    young = Horde([question], n_features=16, n_active=3, config=LearnerConfig(average=256.0))
    assert live_in(young, PERIOD, 3_000, first_tile=0) < 0.02
    state = young.state()
    errors = []
    for n_steps in (100_000, OLD):
        horde = Horde([question], n_features=16, n_active=3, config=LearnerConfig(average=256.0))
        horde.restore(scaled_to(state, n_steps))
        first_error = live_in(horde, CHANGED, 62, first_tile=6)
        errors.append((first_error, live_in(horde, CHANGED, 3_000, first_tile=6)))
    (young_before, young_after), (old_before, old_after) = errors
    assert min(young_before, old_before) > 0.2
    assert young_after < 0.02
    assert old_after < 1.2 * young_after + 0.005
