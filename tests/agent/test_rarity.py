"""Step sizes by the rarity of features; their effect on weights through any events: `test_engine_contract.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from horde_agent import GVF, Behaviour, Channel, Greedy, Horde, LearnerConfig
from horde_agent.learning import PlainEngine, rarity
from horde_agent.learning.rarity import classified, next_classification
from tests.agent.hordes import BEHAVIOUR, N_ACTIONS, N_ACTIVE, N, RandomLife, ask, make


def test_a_feature_that_is_active_a_sixteenth_as_often_learns_four_times_as_fast() -> None:
    """With 30 imagined states: shares 1, .26, .12 and .0127 of 6,970 states."""
    visits = np.array([6_970, 1_790, 810, 59])
    classes = classified(visits, 6_970)
    assert classes.class_of.tolist() == [0, 0, 1, 2]
    factor = classes.scale_of
    np.testing.assert_allclose(factor[1:] / factor[:-1], 4.0, rtol=1e-12)
    mean_norm = (visits * factor[classes.class_of]).sum() / 6_970
    assert mean_norm == pytest.approx(visits.sum() / 6_970)


def test_features_are_alike_in_the_first_states() -> None:
    assert classified(np.array([9, 1, 0]), 9).class_of.tolist() == [0, 0, 0]


def test_features_are_classified_seldomer_as_time_passes() -> None:
    step = rarity.FIRST
    steps = []
    while step < 300_000:
        steps.append(step)
        step = next_classification(step)
    assert steps[:3] == [64, 128, 192]
    assert all(step % 64 == 0 for step in steps)
    intervals = np.diff(steps)
    beginnings = np.array(steps[:-1])
    assert set(intervals[(beginnings >= 4_096) & (beginnings < 4_608)]) == {512}
    assert set(intervals[beginnings >= 65_536]) == {8_192}


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_a_feature_that_is_first_seen_late_learns_sixteen_times_as_fast(mode: Any) -> None:
    """One question about the next reading, 1; alpha is .01, and the first tile is active in all of 65 states."""
    horde = make([ask("next", BEHAVIOUR, Channel(0), 0.0)], mode=mode, rarity=True, step_size=0.04)
    reading = np.ones(1)
    common = np.arange(N_ACTIVE)
    horde.begin(reading, common)
    for _ in range(64):
        horde.learn(0, 1.0, reading, common)
    new = common + N_ACTIVE
    old_value = horde.predict(common)
    horde.learn(0, 1.0, reading, new)
    assert horde.predict(new) == 0.0
    gained = []
    for _ in range(2):
        value = horde.predict(new)
        horde.learn(0, 1.0, reading, new)
        gained.append(((horde.predict(new) - value) / (1.0 - value)).item())
    np.testing.assert_allclose(gained, 16 * 0.04, rtol=1e-12)
    assert horde.predict(common) == pytest.approx(old_value + 0.04 * (1.0 - old_value), rel=1e-12)


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_averages_follow_weights_that_learn_by_rarity(
    mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A feature is active in .16 of the states: the boundaries are set so that all classes occur."""
    monkeypatch.setattr(rarity, "BOUNDARIES", (0.165, 0.155))
    monkeypatch.setattr(rarity, "N_IMAGINED", 1)
    horde = make([ask("off-policy")], mode=mode, rarity=True, average=100.0, step_size=0.1)
    life = RandomLife(horde, p_break=0.02)
    average = np.zeros(N)
    for step in range(1, 300):
        life.run(1)
        if step % 10 == 0:
            rate = max(1.0 - ((step - 10) / step) ** 5, -np.expm1(-10 / 100.0))
            average += rate * (horde.weights()[0][0] - average)
    np.testing.assert_allclose(horde.averaged_weights()[0], average, rtol=0, atol=1e-12)
    alike = make([ask("off-policy")], mode=mode, average=100.0, step_size=0.1)
    RandomLife(alike, p_break=0.02).run(299)
    assert np.abs(alike.weights()[0] - horde.weights()[0]).max() > 0.01


def test_rules_that_only_the_plain_engine_has_learn_as_without() -> None:
    control = GVF("find", Greedy(N_ACTIONS), Channel(0), 0.8, algorithm="greedy_gq")
    settings: Any = {"engine": "auto", "average": 0.0}
    with_rarity = make([control, ask("forward")], rarity=True, **settings)
    without = make([control, ask("forward")], **settings)
    RandomLife(with_rarity, without).run(200)
    for demons, is_same in ((np.array([0]), True), (np.array([1]), False)):
        weights = [horde.weights(demons)[0] for horde in (with_rarity, without)]
        assert np.array_equal(*weights) == is_same


def test_a_rule_that_comes_later_continues_with_the_counts_of_the_others() -> None:
    """No state of 200 had the new tile, so the new rule's demon has the larger step size, too."""
    horde = Horde(
        [GVF("old", Behaviour(), Channel(0), 0.0)],
        n_features=2,
        n_active=1,
        config=LearnerConfig(rarity=True, step_size=0.01, dtype="float64"),
    )
    reading = np.ones(1)
    horde.begin(reading, np.array([0]))
    for _ in range(200):
        horde.learn(0, 1.0, reading, np.array([0]))
    horde.add([GVF("new", Behaviour(), Channel(0), 0.0, algorithm="tdrc")])
    for _ in range(2):
        horde.learn(0, 1.0, reading, np.array([1]))
    old, new = horde.predict(np.array([1]))
    assert old == pytest.approx(16 * 0.01, rel=0.1)
    assert new == pytest.approx(16 * 0.05, rel=0.1)


REFUSED: list[dict[str, Any]] = [
    {"trace_rule": "capped"},
    {"algorithm": "autostep"},
    {"engine": "plain"},
]


@pytest.mark.parametrize("settings", REFUSED)
def test_options_that_need_the_plain_engine_are_refused_with_it(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"needs the plain engine.*set rarity=False"):
        LearnerConfig(rarity=True, **settings)


def test_the_plain_engine_refuses_it() -> None:
    with pytest.raises(ValueError, match="set rarity=False, or use SpanEngine"):
        PlainEngine(np.zeros(1, dtype=np.int64), 4, 0.1, 0.1, LearnerConfig(rarity=True))


def test_real_valued_features_are_refused_with_it() -> None:
    with pytest.raises(ValueError, match="set rarity=False"):
        Horde(
            [ask("a")],
            n_features=4,
            n_active=1,
            real_valued=True,
            config=LearnerConfig(rarity=True),
        )
