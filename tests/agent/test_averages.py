"""Averaged weights: what they are, that learning does not depend on them, and that they travel with a Horde."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from horde_agent import GVF, Channel, ConstantAction, Greedy, Horde, LearnerConfig, Prediction
from horde_agent.learning.averages import WeightAverages
from horde_agent.refusals import BadInput
from horde_agent.runs.config import LearnConfig, resolve
from tests.agent.hordes import (
    BEHAVIOUR,
    BOTH,
    IN_ALL,
    N_ACTIONS,
    N_ACTIVE,
    N,
    RandomLife,
    ask,
    breaking,
    make,
)

HORIZON = 100.0


def questions() -> list[GVF]:
    return [
        ask("off-policy"),
        ask("on-policy", BEHAVIOUR, Channel(1), 0.0),
        ask("forward", ConstantAction(0, N_ACTIONS), Channel(2), 0.5),
    ]


def rate(before: int, now: int) -> float:
    """Return the rate of an average of learning step `now` after one of step `before`."""
    of_decay = 1.0 - (before / now) ** 5
    of_horizon = 1.0 - np.exp(-(now - before) / HORIZON)
    return max(of_decay, float(of_horizon))


def steps_of_averages(n_steps: int) -> list[int]:
    """Return the learning steps after which weights are averaged: every H/10, as H/10 is less than a batch."""
    return list(range(10, n_steps + 1, 10))


class AverageByHand:
    """The average of the weights of a Horde that has none itself, by the equation."""

    def __init__(self, horde: Horde, n_steps: int) -> None:
        self._horde = horde
        self._due = steps_of_averages(n_steps)
        self._n_steps = 0
        self._averaged_at = 0
        self.average = np.zeros((horde.n_demons, N))
        self.shift = np.zeros(horde.n_demons)
        self._n_samples = 0
        self._sample_at = 128

    def begin(self, *state: Any) -> None:
        self._horde.begin(*state)

    def learn(
        self, action: int, b: float, observation: Any, tiles: Any, *, terminated: bool
    ) -> None:
        self._horde.learn(action, b, observation, tiles, terminated=terminated)
        self._n_steps += 1
        theta = self._horde.weights()[0]
        if self._n_steps in self._due:
            r = rate(self._averaged_at, self._n_steps)
            self.average += r * (theta - self.average)
            self._averaged_at = self._n_steps
        if self._n_steps >= self._sample_at and not terminated:
            difference = (theta - self.average)[:, tiles].sum(axis=1)
            self._n_samples += 1
            self.shift += (difference - self.shift) / min(max(self._n_samples / 8, 1), 8)
            self._sample_at = (self._n_steps // 128 + 1) * 128


@IN_ALL
@pytest.mark.parametrize("offset", [0.0, "mean"])
def test_averages_and_shifts_are_those_of_the_equation_and_learning_does_not_depend_on_them(
    engine: Any, mode: Any, offset: Any
) -> None:
    averaged = make(questions(), engine, mode, average=HORIZON, offset=offset, step_size=0.1)
    latest = make(questions(), engine, mode, offset=offset, step_size=0.1)
    by_hand = AverageByHand(latest, 700)
    RandomLife(averaged, by_hand, p_break=0.02).run(700)
    np.testing.assert_allclose(averaged.averaged_weights(), by_hand.average, rtol=0, atol=1e-12)
    assert np.abs(by_hand.average - latest.weights()[0]).max() > 0.01
    for theirs, ours in zip(averaged.weights(), latest.weights(), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-13)
    tiles = np.arange(N_ACTIVE)
    np.testing.assert_allclose(averaged.shifts, by_hand.shift, rtol=0, atol=1e-12)
    assert np.abs(by_hand.shift).max() > 0.001
    expected = by_hand.average[:, tiles].sum(axis=1) + by_hand.shift + latest.offsets
    np.testing.assert_allclose(averaged.predict(tiles), expected, rtol=0, atol=1e-12)


def test_an_eager_horde_learns_the_same_bits_with_averages() -> None:
    averaged = make(questions(), average=HORIZON, step_size=0.1)
    latest = make(questions(), step_size=0.1)
    RandomLife(averaged, latest, p_break=0.02).run(300)
    assert averaged.weights_sha256() == latest.weights_sha256()
    np.testing.assert_array_equal(averaged.td_error, latest.td_error)


@IN_ALL
def test_a_prediction_is_the_same_wherever_it_is_read(engine: Any, mode: Any) -> None:
    """Returned by `learn` and `begin`, as an attribute, at given tiles, and as another question's cumulant.

    By the latest weights it would be another number.
    """
    about = ask("about it", BEHAVIOUR, Prediction("off-policy"), 0.0)
    horde = make([*questions(), about], engine, mode, average=HORIZON, step_size=0.2)
    life = RandomLife(horde)
    life.run(200)
    observation, tiles = life.state
    predictions = horde.predictions
    expected = horde.averaged_weights()[:, tiles].sum(axis=1) + horde.shifts
    np.testing.assert_allclose(predictions, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(horde.predict(tiles), expected, rtol=0, atol=1e-12)
    of_latest_weights = horde.weights()[0][:, tiles].sum(axis=1)
    assert np.abs(of_latest_weights - predictions)[0] > 0.01
    returned = horde.learn(0, 0.5, observation, tiles)
    assert horde.signals.c_tp1[-1] == pytest.approx(predictions[0], abs=1e-12)
    if mode == "eager":
        np.testing.assert_array_equal(returned, horde.predictions)
    np.testing.assert_array_equal(horde.begin(observation, tiles), horde.predictions)


@BOTH
def test_the_predictions_after_the_last_step_of_a_stream_are_those_of_the_averages(
    engine: Any,
) -> None:
    horde = make(questions(), engine, average=HORIZON, step_size=0.2)
    life = RandomLife(horde)
    life.run(200)
    observation, tiles = life.state
    returned = horde.learn(0, 0.5, observation, tiles, terminated=True)
    np.testing.assert_array_equal(horde.predictions, returned)
    np.testing.assert_allclose(returned, horde.predict(tiles), rtol=0, atol=1e-12)


@IN_ALL
def test_a_restored_horde_continues_its_averages_to_the_bit(engine: Any, mode: Any) -> None:
    def new() -> Horde:
        return make(questions(), engine, mode, average=HORIZON)

    whole = new()
    life = RandomLife(whole, p_break=0.05)
    life.run(150)
    restored = new()
    restored.begin(*life.state)
    restored.restore(whole.state())
    life.hordes = (whole, restored)
    life.run(150)
    np.testing.assert_array_equal(whole.averaged_weights(), restored.averaged_weights())
    np.testing.assert_array_equal(whole.predictions, restored.predictions)


@IN_ALL
def test_an_added_demon_predicts_from_its_weights_and_then_from_an_average_of_its_own_age(
    engine: Any, mode: Any
) -> None:
    """The demon is born at step 405, between two averages; samples of shifts follow at steps 512 and 640."""
    horde = make(questions(), engine, mode, average=HORIZON)
    life = RandomLife(horde)
    life.run(405)
    average_before = horde.averaged_weights()
    horde.add([ask("late", BEHAVIOUR, Channel(2), 0.9)])
    np.testing.assert_array_equal(horde.averaged_weights()[:3], average_before)
    steps = [step for step in steps_of_averages(700) if step > 405]
    average = np.zeros(N)
    averaged_at = 405
    for step in range(406, 700):
        life.run(1)
        theta = horde.weights()[0][3]
        if step < steps[0]:
            average = theta
        elif step in steps:
            average = average + rate(averaged_at - 405, step - 405) * (theta - average)
            averaged_at = step
        if step % 7 == 0:
            np.testing.assert_allclose(horde.averaged_weights()[3], average, rtol=0, atol=1e-12)
            tiles = np.arange(N_ACTIVE)
            predicted = average[tiles].sum() + horde.shifts[3]
            assert horde.predict(tiles)[3] == pytest.approx(predicted, abs=1e-12)
    horde.remove(["on-policy"])
    np.testing.assert_allclose(horde.averaged_weights()[2], average, rtol=0, atol=1e-12)


def test_a_demon_without_an_average_has_no_sample_of_its_shift() -> None:
    """The demon is born at step 127, the sample is of step 128 and the next average of step 130."""
    horde = make(questions(), average=HORIZON)
    life = RandomLife(horde)
    life.run(127)
    horde.add([ask("late", BEHAVIOUR, Channel(2), 0.9)])
    life.run(1)
    assert horde.shifts[3] == 0.0
    assert horde.shifts[:3].all()
    life.run(128)
    assert horde.shifts[3] != 0.0


def test_averages_begin_late_and_become_rare_and_fall_on_whole_batches() -> None:
    averages = WeightAverages(horizon=10_000.0, n_demons=1)
    steps = []
    for _ in range(100):
        steps.append(averages.next_at)
        averages.advance(averages.next_at)
    assert steps[:4] == [960, 1_024, 1_088, 1_152]
    assert all(step % 64 == 0 for step in steps)
    intervals = np.diff(steps)
    beginnings = np.array(steps[:-1])
    assert set(intervals[beginnings < 2_048]) == {64}
    assert set(intervals[(beginnings >= 4_096) & (beginnings < 5_120)]) == {256}
    assert set(intervals[beginnings >= 16_384]) == {960}
    long = WeightAverages(horizon=1e9, n_demons=1)
    assert long.next_at == 1_024
    long.advance(160_000)
    assert long.next_at == 169_984


def test_averages_that_begin_again_have_the_intervals_of_new_ones() -> None:
    """The first averages after step 100,032 are 64 steps apart; as of a life of that age they would be 6,208."""
    averages = WeightAverages(horizon=1e9, n_demons=1)
    averages.restart(100_032)
    steps = []
    for _ in range(3):
        steps.append(averages.next_at)
        averages.advance(averages.next_at)
    assert steps == [101_056, 101_120, 101_184]


DEFAULTS: list[dict[str, Any]] = [
    {"average": 10_000.0},
    {"average": 10_000.0, "rarity": True, "offset": "reading"},
]


@pytest.mark.parametrize("mode", ["eager", "deferred"])
@pytest.mark.parametrize("settings", DEFAULTS)
def test_predictions_follow_from_the_first_steps_on(settings: dict[str, Any], mode: Any) -> None:
    """One state, the next reading alternates between 1 and 3: after 100 steps predictions are about 2.

    The first average is of step 960. Read from an empty one, predictions would be 0 until then; just
    after it, an average that counted the steps before as zeros would be too small.
    """
    horde = Horde(
        [GVF("next", BEHAVIOUR, Channel(0), 0.0)],
        n_features=1,
        n_active=1,
        config=LearnerConfig.paper(step_size=0.05, **settings),
        mode=mode,
    )
    tiles = np.zeros(1, dtype=np.int64)
    horde.begin(np.ones(1), tiles)
    for step in range(1, 1_200):
        horde.learn(0, 1.0, np.full(1, 1.0 + 2.0 * (step % 2)), tiles)
        if step >= 100:
            assert horde.predictions[0] == pytest.approx(2.0, abs=0.15)


@IN_ALL
def test_given_weights_are_their_own_average(engine: Any, mode: Any) -> None:
    horde = make(questions(), engine, mode, average=HORIZON)
    theta = np.random.default_rng(0).normal(size=(3, N))
    horde.reset_weights(theta)
    tiles = np.arange(N_ACTIVE)
    np.testing.assert_allclose(horde.predict(tiles), theta[:, tiles].sum(axis=1), atol=1e-12)
    RandomLife(horde).run(100)
    horde.reset_weights()
    assert not horde.averaged_weights().any()
    np.testing.assert_array_equal(horde.predict(tiles), np.zeros(3))


@IN_ALL
def test_a_diverged_demon_predicts_zero(engine: Any, mode: Any) -> None:
    infinite = GVF("infinite", BEHAVIOUR, breaking((50,), 1e300, 0.5), 0.5)
    horde = make([*questions(), infinite], engine, mode, average=HORIZON, dtype="float32")
    life = RandomLife(horde)
    life.run(40)
    assert horde.predictions[3] != 0.0
    life.run(60)
    assert horde.diverged == ["infinite"]
    assert not horde.averaged_weights()[3].any()
    assert horde.predictions[3] == 0.0
    assert horde.averaged_weights()[:3].any(axis=1).all()


def test_rules_in_one_horde_have_the_averages_that_each_has_alone() -> None:
    def asked(algorithm: str) -> list[GVF]:
        return [ask(f"{algorithm} {k}", cumulant=Channel(k), algorithm=algorithm) for k in range(2)]

    together = make([*asked("tdrc"), *asked("tidbd")], average=HORIZON, engine="auto")
    alone = [make(asked(name), average=HORIZON, engine="auto") for name in ("tdrc", "tidbd")]
    RandomLife(together, *alone).run(150)
    expected = np.concatenate([horde.averaged_weights() for horde in alone])
    np.testing.assert_allclose(together.averaged_weights(), expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(
        together.averaged_weights(np.array([3, 0])), together.averaged_weights()[[3, 0]]
    )


def test_a_control_demon_predicts_its_largest_averaged_value() -> None:
    control = GVF("find", Greedy(N_ACTIONS), Channel(0), 0.8, algorithm="greedy_gq")
    horde = make([control], "plain", average=HORIZON)
    life = RandomLife(horde)
    life.run(200)
    tiles = np.arange(N_ACTIVE)
    values = horde.averaged_weights().reshape(N_ACTIONS, N)[:, tiles].sum(axis=1)
    np.testing.assert_allclose(horde.predict(tiles), values.max() + horde.shifts, atol=1e-12)
    # Policies follow the latest weights
    latest = horde.weights()[0].reshape(N_ACTIONS, N)[:, tiles].sum(axis=1)
    np.testing.assert_allclose(horde.action_values("find", tiles), latest, atol=1e-12)


def test_streams_share_their_averages() -> None:
    horde = make(questions(), average=HORIZON)
    rng = np.random.default_rng(3)
    for step in range(60):
        horde.select_stream(step // 10 % 2)
        state = rng.random(4), rng.choice(N, N_ACTIVE, replace=False)
        if step in (0, 10):
            horde.begin(*state)
        else:
            horde.learn(0, 0.5, *state)
    average_before = horde.averaged_weights()
    horde.select_stream(0)
    np.testing.assert_array_equal(horde.averaged_weights(), average_before)
    assert average_before.any()


def test_merged_hordes_average_their_averages() -> None:
    first = make(questions(), "plain", average=HORIZON)
    RandomLife(first).run(50)
    second = first.copy_for_stream()
    np.testing.assert_array_equal(first.averaged_weights(), second.averaged_weights())
    rng = np.random.default_rng(4)
    for horde in (first, second):
        horde.begin(rng.random(4), np.arange(N_ACTIVE))
        for _ in range(50):
            horde.learn(0, 0.5, rng.random(4), rng.choice(N, N_ACTIVE, replace=False))
    mean = 0.5 * (first.averaged_weights() + second.averaged_weights())
    first.merge([second])
    np.testing.assert_allclose(first.averaged_weights(), mean, atol=1e-12)
    np.testing.assert_allclose(second.averaged_weights(), mean, atol=1e-12)


def test_the_shift_follows_a_signal_that_drifts() -> None:
    """One state whose signal rises by 1 in 10,000 steps: an average over 1,000 steps is late by a tenth."""
    horde = Horde(
        [GVF("rising", BEHAVIOUR, Channel(0), 0.0)],
        n_features=1,
        n_active=1,
        config=LearnerConfig.paper(step_size=0.1, average=1_000.0, dtype="float64"),
    )
    tiles = np.zeros(1, dtype=np.int64)
    horde.begin(np.zeros(1), tiles)
    for step in range(10_000):
        horde.learn(0, 1.0, np.array([step / 10_000]), tiles)
    late = 1.0 - horde.averaged_weights()[0, 0]
    assert 0.08 < late < 0.12
    assert abs(1.0 - horde.predictions[0]) < 0.2 * late


def test_averages_of_a_noisy_signal_are_nearer_to_the_mean() -> None:
    """One state, a cumulant of mean 0.5: the latest weight keeps the noise of the latest 1 / step_size readings.

    The shift is then a mean of some six of its samples, with a sixth of their variance and less.
    """
    horde = Horde(
        [GVF("mean", BEHAVIOUR, Channel(0), 0.0)],
        n_features=1,
        n_active=1,
        config=LearnerConfig.paper(step_size=0.1, average=1_000.0, dtype="float64"),
    )
    rng = np.random.default_rng(0)
    tiles = np.zeros(1, dtype=np.int64)
    horde.begin(np.zeros(1), tiles)
    squares = np.zeros(2)
    for step in range(6_000):
        predictions = horde.learn(0, 1.0, rng.random(1), tiles)
        if step >= 3_000:
            latest = horde.weights()[0][0, 0]
            squares += (np.array([latest, predictions[0]]) - 0.5) ** 2
    assert squares[1] < squares[0] / 6


@pytest.mark.parametrize("average", [-1.0, 0.5, np.nan, np.inf])
def test_an_impossible_reach_is_refused(average: float) -> None:
    sentence = f"average must be at least 1 learning step, or 0 for none, not {average}"
    with pytest.raises(ValueError, match=f"^{sentence}"):
        LearnerConfig.paper(average=average)
    with pytest.raises(BadInput, match=f"^--{sentence}"):
        resolve(LearnConfig(average=average))


REACHES: list[tuple[dict[str, Any], float, float]] = [
    ({}, 10_000.0, 0.05),
    ({"paper": True}, 0.0, 0.1),
    ({"average": 0.0}, 0.0, 0.05),
    ({"average": 500.0, "step_size": 0.2}, 500.0, 0.2),
]


@pytest.mark.parametrize(("settings", "average", "step_size"), REACHES)
def test_a_run_states_its_averages_and_the_step_size_that_goes_with_them(
    settings: dict[str, Any], average: float, step_size: float
) -> None:
    resolved = resolve(LearnConfig(**settings))
    assert (resolved.average, resolved.step_size) == (average, step_size)


def test_the_papers_learner_has_no_averages() -> None:
    with pytest.raises(BadInput, match="--paper learns without averages"):
        resolve(LearnConfig(paper=True, average=1_000.0))


def test_averages_of_several_rules_have_the_rates_of_their_own_demons() -> None:
    """Each rule's demon that is added at step 60 averages at its own age, not at that of the other rule's first one."""
    by_rule = {rule: ask(rule, algorithm=rule) for rule in ("tdrc", "gtd")}
    late = {rule: ask(f"late {rule}", algorithm=rule) for rule in ("tdrc", "gtd")}
    together = make([*by_rule.values()], "auto", average=HORIZON)
    alone = [make([question], "auto", average=HORIZON) for question in by_rule.values()]
    life = RandomLife(together, *alone)
    life.run(60)
    together.add([*late.values()])
    for horde, question in zip(alone, late.values(), strict=True):
        horde.add([question])
    life.run(60)
    for i, horde in enumerate(alone):
        averaged = together.averaged_weights(np.array([i, i + 2]))
        np.testing.assert_array_equal(averaged, horde.averaged_weights())


# ---- averages by turns -----------------------------------------------------------------------------------------------

MANY = 1_200
LONG_HORIZON = 1_280.0
"""Averages are of steps 128, 192, 256, ..."""


def many(**settings: Any) -> Horde:
    """Return a Horde with more demons of one policy than move their averages at once."""
    questions_of_all = [ask(f"of all {i}", cumulant=Channel(i % 3)) for i in range(MANY)]
    return make(questions_of_all, average=LONG_HORIZON, step_size=0.1, **settings)


class AveragesOfEachStep:
    """Follows a Horde's averages: each demon's moves before a step, by the equation with theta there.

    Args:
        life: Its life, with this Horde alone.
        rate: Of these moves.
    """

    def __init__(self, life: RandomLife, rate: float) -> None:
        self._life = life
        self._rate = rate
        self.n_moves = np.zeros(MANY, dtype=int)
        self.most_at_once = 0

    def run(self, n_steps: int) -> None:
        (horde,) = self._life.hordes
        for _ in range(n_steps):
            former = horde.averaged_weights()[:MANY]
            theta = horde.weights()[0][:MANY]
            self._life.run(1)
            self.check(former, theta, horde)

    def check(self, former: np.ndarray, theta: np.ndarray, horde: Horde) -> None:
        """Compare what moved since `former`, toward `theta`."""
        latest = horde.averaged_weights()[:MANY]
        moved = (latest != former).any(axis=1)
        expected = former + self._rate * (theta - former)
        np.testing.assert_allclose(latest[moved], expected[moved], rtol=0, atol=1e-12)
        self.n_moves += moved
        self.most_at_once = max(self.most_at_once, int(moved.sum()))


def long_rate(before: int, now: int) -> float:
    of_horizon = 1.0 - np.exp(-(now - before) / LONG_HORIZON)
    return max(1.0 - (before / now) ** 5, float(of_horizon))


def test_many_demons_move_their_averages_by_turns_once_each_before_the_next() -> None:
    """The first averages are of one step, as predictions are read from them at once."""
    horde = many()
    life = RandomLife(horde)
    life.run(128)
    np.testing.assert_array_equal(horde.averaged_weights(), horde.weights()[0])
    life.run(63)
    for before, now in ((128, 192), (192, 256)):
        averages = AveragesOfEachStep(life, long_rate(before, now))
        averages.run(64)
        assert (averages.n_moves == 1).all()
        assert 0 < averages.most_at_once <= 512
        predictions = horde.predictions
        np.testing.assert_allclose(horde.predict(life.state[1]), predictions, rtol=0, atol=1e-12)


def test_few_demons_and_deferred_steps_move_all_averages_at_once() -> None:
    few = make(questions(), average=LONG_HORIZON, step_size=0.1)
    deferred = many(mode="deferred")
    for horde in (few, deferred):
        life = RandomLife(horde)
        life.run(191)
        former = horde.averaged_weights()
        life.run(1)
        latest = horde.averaged_weights()
        assert (latest != former).any(axis=1).all()
        theta = horde.weights()[0]
        expected = former + long_rate(128, 192) * (theta - former)
        np.testing.assert_allclose(latest, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "event", [lambda horde: horde.add([ask("late")]), lambda horde: horde.select_stream(1)]
)
def test_new_demons_and_another_stream_find_all_averages_moved(
    event: Callable[[Horde], object],
) -> None:
    horde = many()
    life = RandomLife(horde)
    life.run(191)
    averages = AveragesOfEachStep(life, long_rate(128, 192))
    averages.run(20)
    assert 0 < averages.n_moves.sum() < MANY
    former = horde.averaged_weights()
    theta = horde.weights()[0]
    event(horde)
    averages.check(former, theta, horde)
    horde.begin(*life.state)
    averages.run(44)
    assert (averages.n_moves == 1).all()


def test_a_horde_that_is_restored_between_two_turns_goes_on_to_the_bit() -> None:
    whole = many()
    life = RandomLife(whole)
    life.run(200)
    restored = many()
    restored.restore(whole.state())
    life.hordes = (whole, restored)
    life.run(80)
    np.testing.assert_array_equal(whole.averaged_weights(), restored.averaged_weights())
    np.testing.assert_array_equal(whole.predictions, restored.predictions)


def test_a_state_without_turns_of_an_earlier_version_is_restored() -> None:
    """There all averages had moved."""
    whole = many()
    life = RandomLife(whole)
    life.run(255)
    state = {
        name: array
        for name, array in whole.state().items()
        if not name.endswith(("/rates", "/average_wait"))
    }
    assert len(state) == len(whole.state()) - 2
    restored = many()
    restored.restore(state)
    life.hordes = (whole, restored)
    life.run(70)
    np.testing.assert_array_equal(whole.averaged_weights(), restored.averaged_weights())
