"""The squared TD error of a demon as a cumulant: the variance of its return."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import (
    GVF,
    Behaviour,
    Channel,
    ConstantAction,
    Interface,
    Prediction,
    Reward,
)
from horde_agent.gvf import TDError, variance_of
from horde_agent.questions import from_file, variance_questions
from tests.agent.doubles import ToyBody
from tests.agent.hordes import BEHAVIOUR, BOTH, N_ACTIVE, make

GAMMA = 0.5
TILES = np.arange(N_ACTIVE)
LIGHT = GVF("light", BEHAVIOUR, Channel(0), GAMMA, outcome=2.0, lam=0.0)


@BOTH
def test_the_cumulant_is_the_squared_td_error_before_the_update(engine: Any) -> None:
    """With gamma 0 and step size 1 the answer is the latest cumulant: delta^2 of the other demon's latest step."""
    latest = GVF("latest", BEHAVIOUR, TDError("light"), 0.0, lam=0.0)
    horde = make([LIGHT, latest], engine, step_size=1.0, secondary_ratio=0.0, offset=3.0)
    rng = np.random.default_rng(0)
    horde.begin(np.zeros(1), TILES)
    for step in range(20):
        terminated = step == 10
        if step == 11:
            horde.begin(np.zeros(1), TILES)
        horde.learn(0, 1.0, rng.normal(size=1), TILES, terminated=terminated)
        expected = horde.td_error[0] ** 2
        assert horde.predict(TILES)[1] == pytest.approx(expected, rel=1e-9)


@BOTH
def test_the_td_error_has_the_offset_of_the_reading_at_the_state_left(engine: Any) -> None:
    """A signal that lasts, and offsets that follow its reading, kappa being nearly 1: v(s) has s's own reading.

    With the reading of the state reached, the value before would change by its difference.
    """
    latest = GVF("latest", BEHAVIOUR, TDError("light"), 0.0, lam=0.0)
    horde = make([LIGHT, latest], engine, step_size=1.0, secondary_ratio=0.0, offset="reading")
    rng = np.random.default_rng(0)
    light = np.zeros(1)
    horde.begin(light, TILES)
    for step in range(800):
        light = 0.99 * light + rng.normal(size=1)
        horde.learn(0, 1.0, light, TILES)
        if step >= 700:
            expected = horde.td_error[0] ** 2
            assert horde.predict(TILES, light)[1] == pytest.approx(expected, rel=1e-8)
    assert horde.reading_shares[0] > 0.5


def test_the_td_error_of_a_question_about_the_reward_has_the_reward() -> None:
    """The observation has one channel, which is 5; the reward is 0 or 1."""
    value = GVF("value", BEHAVIOUR, Reward(), GAMMA, lam=0.0)
    latest = GVF("latest", BEHAVIOUR, TDError("value"), 0.0, lam=0.0)
    light = GVF("light", BEHAVIOUR, Channel(0), 0.0)
    horde = make([value, latest, light], step_size=1.0, secondary_ratio=0.0)
    observation = np.full(1, 5.0)
    horde.begin(observation, TILES)
    for step in range(10):
        horde.learn(0, 1.0, observation, TILES, reward=float(step % 2))
        expected = horde.td_error[0] ** 2
        assert horde.predict(TILES)[1] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("engine", ["span", pytest.param("plain", marks=pytest.mark.slow)])
def test_the_answer_is_the_variance_of_the_return(engine: Any) -> None:
    """White noise of variance 4 in one state: Var(G) = 4 / (1 - gamma^2) = 16 / 3; with gamma it would be 8."""
    horde = make([LIGHT, variance_of(LIGHT)], engine, step_size=0.002, secondary_ratio=0.0)
    rng = np.random.default_rng(0)
    horde.begin(np.zeros(1), TILES)
    for _ in range(12_000):
        horde.learn(0, 1.0, rng.normal(0.0, 2.0, size=1), TILES)
    assert horde.predict(TILES)[1] == pytest.approx(16 / 3, rel=0.1)


def test_off_policy_only_steps_of_the_policy_count() -> None:
    """Action 0 gives 0 or 2 by chance, variance 1, and action 1 gives 9; b is 1/2."""
    question = GVF("coin", ConstantAction(0, 2), Channel(0), 0.0, lam=0.0)
    horde = make([question, variance_of(question)], step_size=0.01, secondary_ratio=0.0)
    rng = np.random.default_rng(0)
    horde.begin(np.zeros(1), TILES)
    for _ in range(4_000):
        action = int(rng.integers(2))
        reading = 9.0 if action else 2.0 * rng.integers(2)
        horde.learn(action, 0.5, np.array([reading]), TILES)
    assert horde.predict(TILES)[1] == pytest.approx(1.0, abs=0.15)


def test_variance_of_keeps_the_policy_and_squares_the_continuation() -> None:
    question = GVF("q", ConstantAction(1, 2), Channel(0), 0.8, outcome=1.0, lam=0.4, offset="mean")
    variance = variance_of(question)
    assert variance.target_policy == question.target_policy
    assert variance.continuation == pytest.approx(0.64)
    assert (variance.outcome, variance.lam, variance.offset, variance.tested) == (
        0.0,
        0.4,
        0.0,
        False,
    )


@pytest.mark.parametrize(
    ("ask", "match"),
    [
        (lambda: TDError(3), "name of the question must be a string, not 3"),  # type: ignore[arg-type]
        (
            lambda: GVF("v", BEHAVIOUR, TDError("q"), 0.5, offset="mean"),
            "'v': the offset of a question about a TD error must be a number",
        ),
        (
            lambda: variance_of(GVF("q", BEHAVIOUR, Channel(0), lambda o, t: 0.5)),
            "the continuation of 'q' must be a number",
        ),
        (
            lambda: make([GVF("v", BEHAVIOUR, TDError("q"), 0.5)]),
            "question 'v': there is no demon 'q' in this Horde",
        ),
        (
            lambda: make([LIGHT, variance_of(LIGHT), variance_of(variance_of(LIGHT))]),
            "'light/variance/variance' is about the TD error of 'light/variance'",
        ),
    ],
)
def test_invalid_input_is_refused(ask: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        ask()


def test_a_question_whose_error_is_needed_cannot_be_removed_alone() -> None:
    horde = make([LIGHT, variance_of(LIGHT), GVF("other", BEHAVIOUR, Prediction("light"), 0.5)])
    with pytest.raises(ValueError, match="no demon 'light'"):
        horde.remove(["light", "other"])
    horde.remove(["light/variance", "other"])
    assert horde.names == ["light"]


def test_a_question_file_asks_for_variances(tmp_path: Path) -> None:
    path = tmp_path / "q.toml"
    text = '[[family]]\npolicies = ["left"]\ngammas = [0.5]\nchannels = ["saw"]\nvariance = '
    interface = Interface.of(ToyBody())
    path.write_text(f"{text}true\n")
    names = [question.name for question in from_file(path, interface)]
    assert names == ["left/g0.5/saw", "left/g0.5/saw/variance"]
    path.write_text(f"{text}1\n")
    with pytest.raises(ValueError, match="variance must be true or false, not 1"):
        from_file(path, interface)


def test_a_behaviour_question_has_a_variance_too() -> None:
    question = variance_of(GVF("q", Behaviour(), Channel(0), 0.5), name="spread")
    assert question.name == "spread"


def test_the_question_about_a_variance_is_found_by_what_it_asks() -> None:
    """It needs gamma^2 and the other's policy; the name is free. The TD error itself is another question."""
    left = GVF("left", ConstantAction(0, 2), Channel(0), GAMMA)
    by_a_function = replace(left, name="by a function", continuation=lambda _o, _t: GAMMA)
    questions = [
        variance_of(LIGHT, "spread of light"),
        LIGHT,
        left,
        replace(variance_of(left), target_policy=ConstantAction(1, 2)),
        GVF("error of left", left.target_policy, TDError("left"), GAMMA),
        GVF("variance of nothing", BEHAVIOUR, TDError("nothing"), GAMMA**2),
        by_a_function,
        GVF("about a function", left.target_policy, TDError("by a function"), GAMMA**2),
    ]
    assert variance_questions(questions) == {1: 0}
    assert variance_questions([*questions, variance_of(left, "spread of left")]) == {1: 0, 2: 8}
