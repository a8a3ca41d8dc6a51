"""Classical conditioning: the streams, and both learners against slow twins."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from examples.reproduce import conditioning
from examples.reproduce.conditioning import (
    CLOSED,
    MICRO,
    REPRESENTATIONS,
    AdamLearner,
    Representation,
    Streams,
    features_of,
    predict,
    steps_since_onset,
)
from horde_agent.gvf import GVF, Channel
from horde_agent.interface import Interface
from horde_agent.policies import Behaviour
from horde_agent.problems.conditioning import Patterning, TraceConditioning
from tests.agent.shared import binary
from tests.oracles.conditioning import slow_adam

NAMES = ("TraceConditioning", "NoisyPatterning", "TracePatterning")


def onsets(column: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.diff(column, prepend=0.0) > 0)


def test_the_us_follows_the_cs_after_an_interval_of_about_m_steps() -> None:
    rows = TraceConditioning(isi=10).draw(np.random.default_rng(0), 2_000)
    us = onsets(rows[:, 0])
    cs = onsets(rows[:, 1])
    assert set(us - cs) == set(range(7, 14))
    assert set(cs[1:] - us[:-1]) == set(range(80, 121))
    assert rows[:, 0].sum() == 2 * len(us)
    assert rows[:, 1].sum() == 4 * len(cs) == 8_000


def test_the_kth_distractor_begins_with_probability_1_over_10_k() -> None:
    """It is on for 4 steps of every 4 + 10 k in the mean."""
    rows = TraceConditioning(n_distractors=10).draw(np.random.default_rng(2), 3_000)
    expected = 4.0 / (4.0 + 10.0 * np.arange(1, 11))
    np.testing.assert_allclose(rows[:, 2:].mean(axis=0), expected, rtol=0.1)


def test_half_of_the_trials_have_a_pattern_that_the_us_follows_but_for_the_noise() -> None:
    env = Patterning(n_cs=4, n_patterns=3, noise=0.1, n_distractors=2, task=5)
    assert env.patterns.sum(axis=1).tolist() == [2, 2, 2]
    rows = env.draw(np.random.default_rng(3), 8_000)
    at = onsets(rows[:, 1:5].max(axis=1))
    is_active = (rows[at, np.newaxis, 1:5] == env.patterns).all(axis=2).any(axis=1)
    has_us = rows[at + 4, 0] == 1
    assert is_active.sum() / 8_000 == pytest.approx(0.5, abs=0.03)
    assert has_us[is_active].mean() == pytest.approx(0.9, abs=0.03)
    assert has_us[~is_active].mean() == pytest.approx(0.1, abs=0.03)
    np.testing.assert_allclose(rows[at, 5:].mean(axis=0), 0.5, atol=0.03)


@pytest.mark.parametrize("name", NAMES)
def test_conditioning_is_a_sound_environment_that_goes_on_after_a_block(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horde_agent.problems.conditioning.BLOCK", 2)
    env = gymnasium.make(f"horde_agent/{name}-v0")
    check_env(env.unwrapped)
    env.reset(seed=0)
    steps = [env.step(0) for _ in range(1_000)]
    assert all(seen[0] == reward for seen, reward, *_ in steps)
    assert sum(reward for _, reward, *_ in steps) > 2


def test_a_trace_is_1_at_the_onset_of_its_stimulus_and_decays_while_it_lasts() -> None:
    signals = np.array([[0, 0], [1, 0], [1, 0], [0, 1], [1, 0]], dtype=np.float32)
    onset_ages = steps_since_onset(signals)
    np.testing.assert_array_equal(onset_ages[:, 0], [np.inf, 0, 1, 2, 0])
    phi = features_of(signals, onset_ages, Representation(decays=(0.5,)), 0.9)
    np.testing.assert_allclose(phi[:, 3], [0, 1, 0.5, 0.25, 1])
    micro = features_of(signals, onset_ages, Representation(n_bases=2), 0.9)
    near = np.exp(-(0.31**2) / (2 * 0.08**2))
    far_value = np.exp(-(0.19**2) / (2 * 0.08**2))
    np.testing.assert_allclose(micro[2, [3, 5]], [near, far_value])  # centres .5 and 1, trace .9^2


def test_td_with_adam_learns_as_its_slow_twin_in_pieces_or_not() -> None:
    signals = TraceConditioning(n_distractors=2).draw(np.random.default_rng(4), 6)
    phi = features_of(signals, steps_since_onset(signals), REPRESENTATIONS[MICRO], 0.9)
    us = signals[:, 0].astype(float)
    n = phi.shape[1]
    learner = AdamLearner(n, gamma=0.9, step_size=0.01)
    for piece in (slice(0, 301), slice(300, len(us))):
        learner.learn(phi[piece], us[piece])
    np.testing.assert_allclose(learner.theta, slow_adam(phi, us, 0.9, 0.01), rtol=1e-9, atol=1e-13)


def test_the_loop_predicts_as_its_slow_twin() -> None:
    """TD(lambda) over dense features, with the predictions of the step before fed back."""
    env = TraceConditioning(isi=10)
    learned, scored = (env.draw(np.random.default_rng(seed), 5) for seed in (5, 6))
    predictions = predict(env, Streams(learned, scored), CLOSED)
    gamma = np.tile([0.0, 0.8, 0.9, 1 - 1 / 30], 2)
    channel = np.repeat([0, 1], 4)
    questions = [
        GVF(f"{k}", Behaviour(), Channel(int(c)), float(g))
        for k, (c, g) in enumerate(zip(channel, gamma, strict=True))
    ]
    largest = [sum(g**k for k in range(4 if c else 2)) for c, g in zip(channel, gamma, strict=True)]
    tables = [
        {"questions": [f"{k}"], "range": [0, y], "intervals": [8], "tilings": 8}
        for k, y in enumerate(largest)
    ]
    interface = Interface.of(env).feeding_back(questions, tables)
    alpha = conditioning.STEP_SIZE / interface.coder.n_active
    theta, e = np.zeros((2, len(questions), interface.coder.n_features))

    def features(row: np.ndarray, y: np.ndarray | None) -> np.ndarray:
        return binary(interface.encode(row, y), interface.coder.n_features)

    phi = features(learned[0], None)
    y = [np.zeros(len(questions))]
    for row in learned[1:]:
        next_phi = features(row, y[-1])
        delta = row[channel] + gamma * (theta @ next_phi) - theta @ phi
        e = e * (gamma * conditioning.LAM)[:, np.newaxis] + phi
        theta = theta + alpha * delta[:, np.newaxis] * e
        phi = next_phi
        y.append(theta @ phi)
    np.testing.assert_allclose(predictions[0], y, rtol=1e-6, atol=1e-9)
    y = [theta @ features(scored[0], None)]
    for row in scored[1:]:
        y.append(theta @ features(row, y[-1]))
    np.testing.assert_allclose(predictions[1], y, rtol=1e-6, atol=1e-9)
