"""Offsets that follow the reading: v(s) = o + kappa (x(s) - r) / (1 - gamma) + theta.phi(s)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from horde_agent import GVF, Channel, ConstantAction, Greedy, Horde, Prediction, Reward
from tests.agent.hordes import BEHAVIOUR, IN_ALL, N_ACTIONS, N_ACTIVE, RandomLife, ask, make
from tests.oracles.readings import SlowReading

GAMMAS = (0.0, 0.8, 0.95)
TILES = np.arange(N_ACTIVE)


def followers(**more: Any) -> list[GVF]:
    """Return questions with an offset that follows the reading, of two channels, some with an outcome."""
    return [
        ask("one", BEHAVIOUR, Channel(0), 0.8, **more),
        ask("at once", BEHAVIOUR, Channel(0), 0.0, **more),
        ask("outcome", ConstantAction(0, N_ACTIONS), Channel(1), 0.5, outcome=0.75, **more),
    ]


def following(questions: list[GVF], *args: Any, **settings: Any) -> Horde:
    return make(questions, *args, offset="reading", **settings)


def walk(rng: np.random.Generator, reading: np.ndarray) -> np.ndarray:
    """Return the next reading of four channels: one that lasts, noise, a constant, and a random walk."""
    noise = rng.normal(size=4)
    return np.array([0.9 * reading[0] + noise[0], noise[1], 7.0, reading[3] + noise[3]])


# ---- the share ------------------------------------------------------------------------------------------------------


@pytest.mark.kernels
@pytest.mark.parametrize("n_steps", [60, 340])
def test_the_share_is_that_of_the_slow_twin(n_steps: int) -> None:
    """With gaps and terminations; after 300 readings the mean forgets."""
    questions = [ask(f"{g}", BEHAVIOUR, Channel(0), g) for g in GAMMAS]
    horde = following(questions, "plain")
    slow = [SlowReading(g) for g in GAMMAS]
    rng = np.random.default_rng(2)
    reading = np.full(4, 5.0)
    horde.begin(reading, TILES)
    for one in slow:
        one.begin(reading[0])
    for _ in range(n_steps):
        reading = walk(rng, reading)
        is_last = bool(rng.random() < 0.03)
        horde.learn(0, 1.0, reading, TILES, terminated=is_last)
        for one in slow:
            one.learn(reading[0])
        if is_last or rng.random() < 0.03:
            reading = walk(rng, reading)
            horde.begin(reading, TILES)
            for one in slow:
                one.begin(reading[0])
    np.testing.assert_allclose(horde.reading_shares, [one.share() for one in slow], rtol=1e-9)


@pytest.mark.kernels
def test_a_missing_reading_begins_the_sums_again() -> None:
    """As a gap between the readings before and after it does, in the slow twin."""
    questions = [ask(f"{g}", BEHAVIOUR, Channel(0), g) for g in GAMMAS]
    horde = following(questions, "plain")
    slow = [SlowReading(g) for g in GAMMAS]
    rng = np.random.default_rng(2)
    reading = np.full(4, 5.0)
    horde.begin(np.full(4, np.nan), TILES)
    assert horde.predictions.tolist() == [0.0, 0.0, 0.0]
    was_missing = True
    for _ in range(60):
        reading = walk(rng, reading)
        is_missing = bool(rng.random() < 0.2)
        observation = reading
        if is_missing:
            observation = np.full(4, np.nan)
        horde.learn(0, 1.0, observation, TILES)
        for one in slow:
            if was_missing and not is_missing:
                one.begin(reading[0])
            elif not is_missing:
                one.learn(reading[0])
        was_missing = is_missing
    np.testing.assert_allclose(horde.reading_shares, [one.share() for one in slow], rtol=1e-9)


@IN_ALL
def test_the_last_reading_stands_for_a_missing_one_in_predictions(engine: Any, mode: Any) -> None:
    """They are o + g (x - r) + theta.phi with x of the state before, wherever the prediction is asked for."""
    horde = following([*followers(), ask("next", BEHAVIOUR, Prediction("one"), 0.5)], engine, mode)
    life = RandomLife(horde)
    life.run(30)
    observation, tiles = life.state
    expected = horde.predict(tiles, observation)
    missing = observation.copy()
    missing[:2] = np.nan
    np.testing.assert_allclose(horde.predict(tiles, missing), expected, rtol=1e-9)
    horde.learn(0, 1.0, missing, tiles)
    # Three demons know no cumulant; the fourth one learns from the prediction of the first
    np.testing.assert_allclose(horde.predictions[:3], expected[:3], rtol=1e-9)
    assert horde.n_skipped.tolist() == [1, 1, 1, 0]
    horde.begin(missing, tiles)
    np.testing.assert_allclose(horde.predictions[:3], expected[:3], rtol=1e-9)


def test_what_lasts_has_a_share_and_noise_has_none() -> None:
    """Of a deviation that shrinks to .9 each step, .5 (.9 / (1 - .5 .9)) lasts for gamma .5."""
    names = ("lasting", "noise", "constant", "walk")
    questions = [ask(name, BEHAVIOUR, Channel(i), 0.5) for i, name in enumerate(names)]
    horde = following(questions, "plain")
    rng = np.random.default_rng(0)
    reading = walk(rng, np.zeros(4))
    horde.begin(reading, TILES)
    for _ in range(5_000):
        reading = walk(rng, reading)
        horde.learn(0, 1.0, reading, TILES)
    lasting, noise, constant, wandering = horde.reading_shares
    np.testing.assert_allclose(lasting, 0.5 * 0.9 / 0.55, rtol=0.03)
    assert noise < 0.03
    assert constant == 0.0
    assert 0.97 < wandering <= 1.0


def test_a_drift_under_noise_is_no_reason_to_expect_that_the_noise_stays() -> None:
    """A mean over the whole life would find a share of .76; that of 300 readings lags by .3 of the noise."""
    horde = following([ask("battery", BEHAVIOUR, Channel(0), 0.8)], "plain")
    rng = np.random.default_rng(0)
    horde.begin(np.zeros(4), TILES)
    for t in range(6_000):
        horde.learn(0, 1.0, np.full(4, 1e-3 * t + rng.normal()), TILES)
    assert horde.reading_shares[0] < 0.1


def test_robots_at_different_levels_do_not_pass_for_a_signal_that_stays() -> None:
    """Two streams of noise around 0 and 100, in turns; one mean for both would find a share near 1."""
    horde = following([ask("level", BEHAVIOUR, Channel(0), 0.8)])
    rng = np.random.default_rng(0)
    for turn in range(40):
        stream = turn % 2
        horde.select_stream(stream)
        for step in range(50):
            reading = np.full(4, 100.0 * stream + rng.normal())
            if turn < 2 and step == 0:
                horde.begin(reading, TILES)
            else:
                horde.learn(0, 1.0, reading, TILES)
    assert horde.reading_shares[0] < 0.1


# ---- the prediction -------------------------------------------------------------------------------------------------


@IN_ALL
def test_the_td_error_is_that_of_the_whole_prediction(engine: Any, mode: Any) -> None:
    """Delta = c' + (1 - gamma') z + gamma' v(s') - v(s), with the predictions from before the step, also at an end."""
    questions = followers()
    horde = following(questions, engine, mode, step_size=0.2)
    rng = np.random.default_rng(1)
    state = rng.random(4), rng.choice(25, N_ACTIVE, replace=False)
    horde.begin(*state)
    for t in range(120):
        next_state = walk(rng, state[0]), rng.choice(25, N_ACTIVE, replace=False)
        is_last = t % 20 == 19
        if t == 60:
            horde.set_offsets(horde.offsets)  # from here on they stand still
        prediction = horde.predict(state[1], state[0])
        next_prediction = horde.predict(next_state[1], next_state[0])
        horde.learn(0, 0.5, *next_state, terminated=is_last)
        gamma = np.array([q.continuation for q in questions])
        if is_last:
            gamma[:] = 0.0
        z = np.array([q.outcome for q in questions])
        cumulant = next_state[0][[0, 0, 1]]
        expected = cumulant + (1.0 - gamma) * z + gamma * next_prediction - prediction
        if t >= 60:
            np.testing.assert_allclose(horde.td_error, expected, rtol=1e-9, atol=1e-9)
        if is_last:
            horde.begin(*next_state)
        state = next_state
    assert horde.reading_shares[0] > 0.1


@pytest.mark.parametrize("offset", ["mean", "reading"])
def test_the_answers_are_the_same_in_the_end(offset: Any) -> None:
    """On a ring of five places whose readings are 0, 1, 4, 9, 16, exactly."""
    gamma = 0.8
    question = ask("ring", BEHAVIOUR, Channel(0), gamma)
    horde = make([question], "plain", n_features=5 * N_ACTIVE, offset=offset, step_size=0.3)
    readings = np.arange(5.0) ** 2
    answers = np.zeros(5)
    for _ in range(200):
        answers = np.roll(readings + gamma * answers, -1)
    for t in range(4_000):
        place = t % 5
        state = np.full(4, readings[place]), place * N_ACTIVE + TILES
        if t == 0:
            horde.begin(*state)
        else:
            horde.learn(0, 1.0, *state)
    predictions = [
        horde.predict(place * N_ACTIVE + TILES, np.full(4, readings[place]))[0]
        for place in range(5)
    ]
    np.testing.assert_allclose(predictions, answers, rtol=1e-3)


def test_a_signal_that_no_feature_shows_is_predicted_from_its_reading() -> None:
    """One state for all places of a walk: without the reading, theta can only run after it."""
    errors = {}
    for offset in ("mean", "reading"):
        horde = make([ask("walk", BEHAVIOUR, Channel(3), 0.8)], offset=offset, step_size=0.01)
        rng = np.random.default_rng(4)
        reading = np.zeros(4)
        horde.begin(reading, TILES)
        readings = []
        predictions = []
        for _ in range(1_500):
            reading = walk(rng, reading)
            predictions.append(horde.learn(0, 1.0, reading, TILES)[0])
            readings.append(reading[3])
        returns = np.zeros(1_500)
        for t in range(1_498, -1, -1):
            returns[t] = readings[t + 1] + 0.8 * returns[t + 1]
        late = slice(500, -100)
        error = np.mean((np.array(predictions)[late] - returns[late]) ** 2)
        errors[offset] = error / np.var(returns[late])
    assert errors["reading"] < 0.02
    assert errors["mean"] > 0.1


def test_deferred_predictions_have_the_reading_of_the_step_that_they_are_of() -> None:
    """64 steps are processed at a time; in between, predictions stay those of the last processed step."""
    eager = following(followers(), "span", "eager")
    deferred = following(followers(), "span", "deferred")
    rng = np.random.default_rng(1)
    reading = np.zeros(4)
    for horde in (eager, deferred):
        horde.begin(reading, TILES)
        horde.set_offsets(np.zeros(3))  # which would move with each transition
    for t in range(1, 150):
        reading = walk(rng, reading)
        of_step = eager.learn(0, 0.5, reading, TILES)
        if t % 64 == 0:
            processed = of_step
        latest = deferred.learn(0, 0.5, reading, TILES)
        if t >= 64:
            np.testing.assert_allclose(latest, processed, rtol=1e-9)
    np.testing.assert_allclose(deferred.predictions, of_step, rtol=1e-9)


def test_a_prediction_as_cumulant_includes_the_reading() -> None:
    """The latest reading is the source's whole prediction; theta.phi and o alone would be 0."""
    questions = [
        ask("source", BEHAVIOUR, Channel(0), 0.0),
        ask("copy", BEHAVIOUR, Prediction("source"), 0.0, offset=0.0),
    ]
    horde = following(questions, step_size=1.0)
    horde.begin(np.zeros(4), TILES)
    for t in range(400):
        horde.learn(0, 1.0, np.full(4, float(t // 40 % 2)), TILES)
    share = horde.reading_shares[0]
    assert share > 0.8
    at_1 = horde.predict(TILES, np.ones(4))
    at_0 = horde.predict(TILES, np.zeros(4))
    np.testing.assert_allclose((at_1 - at_0)[0], share, rtol=1e-9)
    np.testing.assert_allclose(at_1[1], at_1[0], rtol=0.2)


def test_predict_asks_for_the_observation() -> None:
    horde = following(followers())
    horde.begin(np.zeros(4), TILES)
    with pytest.raises(ValueError, match=r"predict\(tiles, observation\)"):
        horde.predict(TILES)
    with pytest.raises(ValueError, match=r"observation must be finite, .*; channel 1 is inf"):
        horde.predict(TILES, np.array([0.0, np.inf, 0.0, 0.0]))


def test_other_questions_have_the_mean_as_offset() -> None:
    """State-dependent continuations, rewards, functions, control, and offsets that are numbers."""

    def ends(observation: np.ndarray, _: Any) -> float:
        return 0.5 + 0.4 * float(observation[1])

    questions = [
        ask("follows", BEHAVIOUR, Channel(0), 0.8),
        ask("ends", BEHAVIOUR, Channel(0), ends),
        ask("reward", BEHAVIOUR, Reward(), 0.8),
        ask("function", BEHAVIOUR, lambda observation, _: float(observation[0]), 0.8),
        ask("number", BEHAVIOUR, Channel(0), 0.8, offset=2.0),
        GVF("control", Greedy(N_ACTIONS), Channel(0), 0.8, algorithm="greedy_gq"),
    ]
    horde = following(questions, "plain")
    twin = make(questions, "plain", offset="mean")
    rng = np.random.default_rng(1)
    reading = np.full(4, 3.0)
    for one in (horde, twin):
        one.begin(reading, TILES)
    for _ in range(100):
        reading = np.clip(walk(rng, reading), 0.0, 1.0)
        for one in (horde, twin):
            one.learn(0, 0.5, reading, TILES, reward=1.0)
    assert horde.reading_shares[0] > 0.1
    assert not horde.reading_shares[1:].any()
    np.testing.assert_array_equal(horde.predictions[1:], twin.predictions[1:])


# ---- what a Horde does ----------------------------------------------------------------------------------------------


@IN_ALL
def test_an_added_demon_estimates_its_own_share(engine: Any, mode: Any) -> None:
    """It learns as in a Horde that begins there; the old one of the same channel keeps the share of its own time."""
    old = [ask("old", BEHAVIOUR, Channel(0), 0.8)]
    new = [ask("new", BEHAVIOUR, Channel(0), 0.8), ask("other", BEHAVIOUR, Channel(1), 0.5)]
    horde = following(old, engine, mode)
    alone = following(new, engine, mode)
    whole = following(old, engine, mode)
    rng = np.random.default_rng(1)
    reading = np.zeros(4)
    horde.begin(reading, TILES)
    whole.begin(reading, TILES)
    for t in range(200):
        reading = walk(rng, reading)
        horde.learn(0, 1.0, reading, TILES)
        whole.learn(0, 1.0, reading, TILES)
        if t == 120:
            horde.add(new)
            alone.begin(reading, TILES)
        elif t > 120:
            alone.learn(0, 1.0, reading, TILES)
    np.testing.assert_allclose(horde.reading_shares[1:], alone.reading_shares, rtol=1e-12)
    np.testing.assert_allclose(horde.predictions[1:], alone.predictions, rtol=1e-9)
    np.testing.assert_allclose(horde.reading_shares[0], whole.reading_shares[0], rtol=1e-12)
    np.testing.assert_allclose(horde.predictions[0], whole.predictions[0], rtol=1e-9)
    assert horde.reading_shares[0] != horde.reading_shares[1]
    horde.remove(["old"])
    np.testing.assert_allclose(horde.reading_shares, alone.reading_shares, rtol=1e-12)


def test_copies_for_other_streams_share_what_they_learned() -> None:
    first = following(followers(), "plain")
    life = RandomLife(first)
    life.run(30)
    second = first.copy_for_stream()
    np.testing.assert_array_equal(first.reading_shares, second.reading_shares)
    second.begin(*life.state)
    life.hordes = (second,)
    life.run(30)
    assert (first.reading_shares != second.reading_shares).any()
    first.merge([second])
    np.testing.assert_array_equal(first.reading_shares, second.reading_shares)


def test_streams_are_saved_with_their_readings() -> None:
    """A Horde that is restored in the middle of two streams' turns continues to the bit."""
    horde = following(followers())
    rng = np.random.default_rng(3)
    reading = np.zeros(4)

    def take_turns(hordes: list[Horde], turns: range) -> None:
        nonlocal reading
        for turn in turns:
            for one in hordes:
                one.select_stream(turn % 2)
            for step in range(20):
                reading = walk(rng, reading)
                for one in hordes:
                    if turn < 2 and step == 0:
                        one.begin(reading + 10.0 * (turn % 2), TILES)
                    else:
                        one.learn(0, 1.0, reading + 10.0 * (turn % 2), TILES)

    take_turns([horde], range(5))
    twin = following(followers())
    twin.restore(horde.state())
    take_turns([horde, twin], range(5, 9))
    assert horde.weights_sha256() == twin.weights_sha256()
    np.testing.assert_array_equal(horde.reading_shares, twin.reading_shares)
    np.testing.assert_array_equal(horde.predictions, twin.predictions)


@pytest.mark.parametrize("engine", ["plain", "span"])
def test_a_demon_added_in_a_second_stream_keeps_the_means_of_the_streams_apart(engine: Any) -> None:
    """The first one with an offset, added in stream 1: in stream 0, 10 lower, it has read nothing yet.

    With the mean of stream 1 there, all deviations would be near -10, and the share would be near 1.
    """
    new = [ask("new", BEHAVIOUR, Channel(1), 0.8, offset="reading")]
    horde = make([ask("old", BEHAVIOUR, Channel(0), 0.8, offset=0.0)], engine)
    alone = make(new, engine)
    rng = np.random.default_rng(4)
    horde.select_stream(1)
    alone.select_stream(1)
    horde.begin(np.zeros(4), TILES)
    horde.add(new)
    alone.begin(np.zeros(4), TILES)
    for stream, level in ((1, 10.0), (0, 0.0), (1, 10.0)):
        for one in (horde, alone):
            one.select_stream(stream)
            one.begin(np.full(4, level), TILES)
        for _ in range(40):
            reading = level + 0.1 * rng.normal(size=4)
            for one in (horde, alone):
                one.learn(0, 1.0, reading, TILES)
    assert alone.reading_shares[0] < 0.5
    np.testing.assert_allclose(horde.reading_shares[1:], alone.reading_shares, rtol=1e-12)


def test_a_demon_that_diverged_predicts_zero() -> None:
    questions = [*followers(), ask("beyond", BEHAVIOUR, Channel(3), 0.5)]
    horde = following(questions, dtype="float32")
    RandomLife(horde).run(30)
    reading = np.array([0.5, 0.5, 0.5, 1e39])
    horde.learn(0, 1.0, reading, TILES)
    assert horde.diverged == ["beyond"]
    assert horde.predictions[3] == 0.0
    assert horde.reading_shares[3] == 0.0
    assert horde.predict(TILES, reading)[3] == 0.0
    assert np.isfinite(horde.predictions).all()
    horde.add([ask("new", BEHAVIOUR, Channel(3), 0.5)])
    for step in range(20):
        horde.learn(0, 1.0, np.full(4, float(step)), TILES)
    assert horde.reading_shares[4] > 0.5
    assert horde.predictions[3] == 0.0
    assert horde.reading_shares[3] == 0.0


def test_what_was_learned_elsewhere_is_taken_over_with_its_share() -> None:
    elsewhere = following(followers())
    RandomLife(elsewhere).run(100)
    horde = following(followers())
    RandomLife(horde).run(10)
    horde.reset_weights(elsewhere.weights()[0])
    horde.set_offsets(elsewhere.offsets, elsewhere.reading_sums)
    np.testing.assert_array_equal(horde.reading_shares, elsewhere.reading_shares)
    state = TILES, np.full(4, 0.3)
    np.testing.assert_allclose(horde.predict(*state), elsewhere.predict(*state), rtol=1e-12)
    with pytest.raises(ValueError, match=r"reading_sums must have the shape \(2, 3\)"):
        horde.set_offsets(elsewhere.offsets, np.zeros(3))
