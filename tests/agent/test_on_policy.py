"""Questions about the behaviour are scored by the returns of learning steps."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from horde_agent import GVF, Behaviour, Channel, Horde, Interface, Life, Prediction
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.student import relearn
from horde_agent.measures.returns import BEHAVIOUR
from horde_agent.questions import nexting
from horde_agent.record import Phase, Recorder
from horde_agent.runs.jobs.tables import not_scored
from tests.agent.doubles import SpyHorde, ToyBody, constant, horde_of, toy_life
from tests.oracles.evaluation import nmsre, truncated_return

FACE = Interface.of(ToyBody())
HORIZON = 5


def life_of(body: gymnasium.Env[Any, Any], horde: Any, probability: float = 0.0, **further: Any) -> Life:
    return toy_life(body, horde, excursions=ExcursionConfig(probability, HORIZON), **further)


def on_policy_tests(life: Life) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Return steps, predictions and returns of the on-policy tests."""
    for outcomes in life.student.errors.table.outcomes():
        if outcomes.policy.name == BEHAVIOUR:
            return outcomes.step.tolist(), outcomes.predictions, outcomes.returns
    return [], np.zeros((0, 0)), np.zeros((0, 0))


def test_each_horizon_a_prediction_is_compared_with_the_return() -> None:
    """The prediction is from before the return: 1000 x updates + age. Learning continues meanwhile."""
    horde, recorder = SpyHorde(nexting(FACE, (0.0, 0.5))), Recorder(3)
    with life_of(ToyBody(), horde, recorder=recorder) as life:
        life.run(23)
    steps, predictions, returns = on_policy_tests(life)
    assert steps == [0, 5, 10, 15]
    assert predictions[:, 0].tolist() == [0.0, 5005.0, 10010.0, 15015.0]
    readings = recorder.stream().rows["observation"].astype(float)
    for k, step in enumerate(steps):
        expected = truncated_return(readings[step + 1 :].T, 0.5, HORIZON)
        np.testing.assert_allclose(returns[k, 3:], expected, rtol=1e-12)
    found, oracle = life.student.errors.nmsre(), nmsre(predictions[:, 4], returns[:, 4])
    assert found[4] == pytest.approx(oracle[-1])
    assert len(horde.learned) == 23, "no step was taken for the tests' sake"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({7: {"terminated": 1}}, [0, 5, 10, 15]),  # complete: no term can follow
        ({7: {"truncated": 1}}, [0, 10, 15]),  # terms are missing
        ({7: {"gap": 1}}, [0, 10, 15]),
        ({7: {"applied": 0}}, [0, 10, 15]),
        ({8: {"stale": 1}}, [0, 10, 15]),
    ],
)
def test_a_broken_sequence_is_no_test_and_a_terminated_one_is(fault: dict[int, Any], expected: list[int]) -> None:
    """Tests begin at every fifth learning step; a step across a break is none, so later ones begin a step later."""
    with life_of(ToyBody(fault), SpyHorde(nexting(FACE, (0.5,)))) as life:
        life.run(24)
    steps, _, returns = on_policy_tests(life)
    n_lost = 0 if next(iter(fault[min(fault)])) in ("terminated", "truncated") else 1
    assert steps == [step + (n_lost if step > 5 else 0) for step in expected]
    if "terminated" in fault.get(7, {}):
        saw = 6 / 7
        assert returns[1, 1] == pytest.approx(saw + 0.5 * 0.0)  # ages 6 and 7: sawtooth 6/7, then 0


def test_an_excursion_ends_an_on_policy_test() -> None:
    """No on-policy test contains a step of another policy."""
    questions = [*nexting(FACE, (0.5,)), GVF("left", constant(0), Channel(1), 0.5)]
    recorder = Recorder(3)
    with life_of(ToyBody(), SpyHorde(questions), 0.1, recorder=recorder) as life:
        life.run(600)
    steps, _, _ = on_policy_tests(life)
    rows = recorder.stream().rows
    phase = dict(zip(rows["step"].tolist(), rows["phase"].tolist(), strict=True))
    assert len(steps) > 20
    assert all(phase[step + k] == Phase.BEHAVE for step in steps for k in range(HORIZON))
    assert life.student.errors.n_excursions > len(steps), "excursions were completed, too"
    assert {policy.name for policy in life.excursions.policies} == {"action 0"}


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_learning_again_gives_the_same_scores(mode: Any) -> None:

    def new_horde() -> Horde:
        return horde_of(nexting(FACE, (0.0, 0.9)), FACE, mode)

    recorder, ends = Recorder(3), {age: {"terminated": 1} for age in range(13, 400, 13)}
    with life_of(ToyBody(ends), new_horde(), recorder=recorder) as life:
        life.run(300)
    stream = recorder.stream()
    again = relearn(stream, new_horde(), FACE, excursions=ExcursionConfig(0.0, HORIZON))
    np.testing.assert_array_equal(again.errors.nmsre(), life.student.errors.nmsre())
    assert again.errors.n_tests.min() > 30


def test_why_a_question_has_no_score() -> None:
    questions = [
        GVF("seen", Behaviour(), Channel(0), 0.5),
        GVF("rare", Behaviour(), Channel(0), 0.5),
        GVF("asked not to", Behaviour(), Channel(0), 0.5, tested=False),
        GVF("of another", Behaviour(), Prediction("seen"), 0.5),
        GVF("left", constant(0), Channel(0), 0.5),
    ]
    scores = np.array([0.5, np.nan, np.nan, np.nan, np.nan])
    told = {one["first"]: one["reason"] for one in not_scored(questions, scores, has_excursions=False)}
    assert list(told) == ["rare", "asked not to", "of another", "left"]
    for reason, word in zip(told.values(), ["2 complete", "tested", "prediction", "no test ex"], strict=True):
        assert word in reason
    assert not_scored(questions[4:], scores[4:], has_excursions=True)[0]["reason"] == told["rare"]
    with life_of(ToyBody(), horde_of(questions, FACE)) as life:
        assert [policy.demons.tolist() for policy in life.student.errors.policies] == [[4], [0, 1]]
