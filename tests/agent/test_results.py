"""The tables of a run by made-up numbers, each of which only the right formula gives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from horde_agent.life.timing import Durations
from horde_agent.measures.nmsre import Outcomes
from horde_agent.measures.passes import policy_scores
from horde_agent.measures.return_errors import ReturnErrors
from horde_agent.measures.returns import PolicyUnderTest, TestExcursion
from horde_agent.runs.jobs import tables as results

NAN = float("nan")
CODER: Any = SimpleNamespace(n_features=40, n_active=7)


def test_the_score_leaves_out_who_was_set_aside_and_who_was_not_tested() -> None:
    """Of .25, 1, 4 and .5: mean 1.4375, median .75, half below 1 (1 itself is not). A fifth was set aside at 100."""
    nmsre = np.array([0.25, 1.0, 100.0, 4.0, NAN, 0.5])
    sound = np.array([True, True, False, True, True, True])
    assert results.nmsre_summary(nmsre, sound) == {
        "mean_nmsre": 1.4375,
        "median_nmsre": 0.75,
        "share_nmsre_below_1": 0.5,
    }


@pytest.mark.parametrize("sound", [False, True])
def test_without_anybody_to_score_there_is_no_score(sound: bool) -> None:
    nmsre = np.array([NAN]) if sound else np.array([0.5])
    assert set(results.nmsre_summary(nmsre, np.array([sound])).values()) == {None}


def test_nearly_constant_returns_vary_by_less_than_the_rounding_of_one_reading() -> None:
    """Rounding to steps of .6 has a variance of .03; the fourth has diverged, the fifth was not scored."""
    variance, sound = np.array([0.029, 0.031, 0.0, 0.0, NAN]), np.array([True, True, True, False, True])
    nmsre = np.where(np.isnan(variance), NAN, 1.0)
    assert results.n_nearly_constant(nmsre, variance, np.full(5, 0.6), sound) == 2
    assert results.n_nearly_constant(nmsre, variance, np.array([NAN, 0.6, NAN, 0.6, 0.6]), sound) == 0
    assert results.n_nearly_constant(nmsre, variance, np.full(5, NAN), sound) is None


def horde(**further: Any) -> Any:
    """Return a Horde of three demons, the second of which was set aside."""
    facts = {
        "names": ["a", "b", "c"],
        "n_demons": 3,
        "diverged": ["b"],
        "mspbe_scalar": np.array([1.0, 50.0, 3.0]),
        "mspbe_vector": lambda: np.array([10.0, 70.0, 30.0]),
        "max_trace": 2.5,
        "weights_sha256": lambda: "abc",
    }
    return SimpleNamespace(**facts | further)


def test_the_summary_of_a_horde_is_over_its_sound_demons() -> None:
    found = results._horde_summary(horde(), CODER)
    assert found["mspbe_vector_mean"] == 20.0
    assert found["mspbe_scalar_mean"] == 2.0
    assert (found["n_questions"], found["n_features"], found["n_active"]) == (3, 40, 7)
    assert (found["diverged"], found["max_trace"], found["weights_sha256"]) == (["b"], 2.5, "abc")
    none = results._horde_summary(horde(diverged=["a", "b", "c"]), CODER)
    assert none["mspbe_vector_mean"] is none["mspbe_scalar_mean"] is None


def test_every_column_of_the_questions_holds_what_its_head_says() -> None:
    watch: Any = SimpleNamespace(n_updates=np.array([21, 22, 23]), is_valid=np.array([True, False, True]))
    nmsre, variance, n_tests = np.array([0.1, 0.2, 0.3]), np.array([4.0, 5.0, 6.0]), np.array([7, 8, 9])
    lines = results.question_lines(horde(), nmsre, variance, n_tests, watch, np.array([7.0, 7.0, NAN]))
    table = [dict(zip(results.QUESTION_COLUMNS, line, strict=True)) for line in lines]
    assert table[1] == {
        "name": "b",
        "nmsre": 0.2,
        "variance": 5.0,
        "n_tests": 8,
        "mspbe_scalar": 50.0,
        "mspbe_vector": 70.0,
        "diverged": 1,
        "n_updates": 22,
        "mspbe_valid": 0,
        "nearly_constant": 0,
    }
    assert [line["nearly_constant"] for line in table] == [1, 0, None]  # variances 4, 5, 6; 49 / 12 = 4.08
    assert [line["diverged"] for line in table] == [0, 1, 0]
    assert [line["mspbe_valid"] for line in table] == [1, 0, 1]


def test_time_is_told_in_seconds_of_the_robot_and_of_the_wall() -> None:
    learn, cycle = Durations(), Durations()
    learn.add(0.002)
    cycle.add(0.1)
    found = results.time_summary(600, 0.1, 30.0, learn, cycle)
    assert (found["steps"], found["robot_time_s"], found["wall_s"], found["steps_per_s"]) == (600, 60.0, 30.0, 20.0)
    assert found["learn_ms"]["p50"] == pytest.approx(2.0)
    assert found["cycle_ms"]["max"] == pytest.approx(100.0)
    assert results.time_summary(600, 0.1, 0.0, learn, cycle)["steps_per_s"] is None


LEFT = PolicyUnderTest(0, np.array([0, 2]), np.array([0, 1]), np.array([0.0, 0.5]), "left")
RIGHT = PolicyUnderTest(1, np.array([1]), np.array([0]), np.array([0.5]), "right")


def completed(policy: PolicyUnderTest, step: int, predictions: list[float], returns: list[float]) -> TestExcursion:
    """Return an excursion that was completed."""
    whole = np.zeros(4)
    whole[policy.demons] = predictions
    test = TestExcursion(policy, whole, step, horizon=1)
    readings = np.zeros(2)
    readings[policy.channel] = returns
    test.observe(readings)
    return test


@pytest.fixture
def errors() -> ReturnErrors:
    """Five excursions of two policies; a fourth demon is never tested.

    Demon 0: errors 4, 0, 0; returns 0, 2, 4 of variance 8/3. Demon 2: errors 1, 1, 1; returns 1, 1, 4 of variance 2.
    Demon 1: errors 9 and 9, returns 0 and 6 of variance 9.
    """
    made = ReturnErrors([LEFT, RIGHT], 4)
    made.add(completed(LEFT, 10, [2.0, 0.0], [0.0, 1.0]))
    made.add(completed(RIGHT, 20, [3.0], [0.0]))
    made.add(completed(LEFT, 30, [2.0, 2.0], [2.0, 1.0]))
    made.add(completed(RIGHT, 40, [3.0], [6.0]))
    made.add(completed(LEFT, 50, [4.0, 3.0], [4.0, 4.0]))
    return made


def column(lines: list[list[object]], name: str) -> list[Any]:
    return [line[results.CURVE_COLUMNS.index(name)] for line in lines]


def test_the_curve_is_the_mean_over_the_questions_tested_by_then(errors: ReturnErrors) -> None:
    """In two passes, with the variance of the whole life; the trace keeps nine tenths of the first errors.

    Demon 0: 4, 3.6, 3.24 over 8/3: 1.5, 1.35, 1.215. Demon 2: 1 over 2: .5 each time. Demon 1: 9 over 9: 1.
    """
    lines = curve(errors, np.ones(4, dtype=bool), ("left", "right"), 0.1)
    assert column(lines, "mean_nmsre") == pytest.approx([1.0, 1.0, (1.35 + 0.5 + 1) / 3, 2.85 / 3, 2.715 / 3])
    assert column(lines, "median_nmsre") == pytest.approx([1.0, 1.0, 1.0, 1.0, 1.0])
    assert column(lines, "excursion") == [1, 2, 3, 4, 5]
    assert column(lines, "step") == [10, 20, 30, 40, 50]
    assert column(lines, "robot_time_s") == pytest.approx([1.0, 2.0, 3.0, 4.0, 5.0])
    assert column(lines, "policy") == ["left", "right", "left", "right", "left"]


def test_the_online_curve_has_the_variance_of_the_excursions_so_far(errors: ReturnErrors) -> None:
    """Nothing while nobody was tested twice; then demon 0: 3.6 over 1, demon 2: 1 exactly, for its returns are alike.

    With the fourth excursion demon 1: 9 over 9. In the end all variances are those of the whole life.
    """
    lines = curve(errors, np.ones(4, dtype=bool), ("left", "right"), 0.1)
    online = column(lines, "mean_nmsre_online")
    assert np.isnan(online[:2]).all()
    assert online[2:] == pytest.approx([(3.6 + 1) / 2, (3.6 + 1 + 1) / 3, 2.715 / 3])
    assert online[2] != pytest.approx(column(lines, "mean_nmsre")[2])


def curve(errors: ReturnErrors, sound: Any, actions: tuple[str, ...], period_s: float) -> list[list[object]]:
    return list(results.curve_lines(errors, policy_scores(errors.table), sound, actions, period_s))


def test_the_curve_leaves_out_who_was_set_aside(errors: ReturnErrors) -> None:
    sound = np.array([False, True, True, True])
    lines = curve(errors, sound, ("left", "right"), 0.1)
    assert column(lines, "mean_nmsre") == pytest.approx([0.5, 0.75, 0.75, 0.75, 0.75])
    assert column(lines, "median_nmsre") == pytest.approx([0.5, 0.75, 0.75, 0.75, 0.75])


def test_the_curve_leaves_out_who_was_tested_but_once() -> None:
    """Its variance would be 0, and its NMSRE 1 by definition."""
    made = ReturnErrors([LEFT, RIGHT], 4)
    made.add(completed(LEFT, 10, [2.0, 0.0], [0.0, 1.0]))
    made.add(completed(RIGHT, 20, [3.0], [0.0]))
    made.add(completed(RIGHT, 30, [3.0], [6.0]))
    lines = curve(made, np.ones(4, dtype=bool), ("left", "right"), 0.1)
    assert np.isnan(column(lines, "mean_nmsre")[0])
    assert column(lines, "mean_nmsre")[1:] == pytest.approx([1.0, 1.0])


def test_variances_are_those_of_the_returns(errors: ReturnErrors) -> None:
    found = results.variances(policy_scores(errors.table), 4)
    np.testing.assert_allclose(found, [8 / 3, 9.0, 2.0, NAN])


def test_the_nmsre_of_a_policys_questions_is_the_trace_over_the_variance(errors: ReturnErrors) -> None:
    """What the report draws is what the summary says."""
    np.testing.assert_allclose(errors.nmsre(), [1.215, 1.0, 0.5, NAN])
    (left, right) = errors.table.outcomes()
    np.testing.assert_allclose(left.nmsre()[:, 0], [1.5, 1.35, 1.215])
    assert isinstance(right, Outcomes)
