"""Offsets: v(s) = o + theta.phi(s), for every rule, engine and kind of question."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import (
    GVF,
    Channel,
    ConstantAction,
    Greedy,
    Horde,
    Interface,
    LearnerConfig,
    Prediction,
    Uniform,
)
from horde_agent.kernels import rules
from horde_agent.kernels.offsets import N_READINGS
from horde_agent.learning.groups import trace_groups
from horde_agent.learning.readout import Readout
from horde_agent.learning.signals import SignalMaker
from horde_agent.learning.values import Cumulants
from horde_agent.questions import from_file
from horde_agent.refusals import BadInput
from horde_agent.runs.config import LearnConfig, resolve
from tests.agent.doubles import ToyBody
from tests.agent.hordes import BEHAVIOUR, IN_ALL, N_ACTIONS, N_ACTIVE, N, RandomLife, ask, make
from tests.oracles.offsets import SlowOffset

PREDICTING = tuple(name for name in rules.names() if not rules.rule(name).FINDS_POLICY)
FINDING = tuple(name for name in rules.names() if rules.rule(name).FINDS_POLICY)
OFFSET = 3.5


def ends(observation: np.ndarray, _: Any) -> float:
    """Return a continuation that depends on the state."""
    return 0.9 * float(observation[1])


def reward(observation: np.ndarray, _: Any) -> float:
    """Return an outcome that depends on the state."""
    return 2.0 * float(observation[2]) - 1.0


def kinds(**more: Any) -> list[GVF]:
    """Return questions with constant and with state-dependent continuations and outcomes, and one that never ends."""
    return [
        ask("constant", **more),
        ask("same channel", BEHAVIOUR, continuation=0.0, **more),
        ask("other channel", ConstantAction(0, N_ACTIONS), Channel(1), 0.5, outcome=0.75, **more),
        ask("continuation of the state", BEHAVIOUR, Channel(2), ends, **more),
        ask("outcome of the state", Uniform(N_ACTIONS), Channel(1), 0.9, outcome=reward, **more),
        ask("until the end", BEHAVIOUR, Channel(0), 1.0, ends=True, outcome=-0.5, **more),
    ]


def at(value: Any, observation: np.ndarray) -> float:
    """Return a continuation or an outcome at a state."""
    if callable(value):
        return float(value(observation, None))
    return float(value)


def index(question: GVF) -> int:
    """Return the channel that is a question's cumulant."""
    assert isinstance(question.cumulant, Channel)
    return question.cumulant.index


def never(*_: Any) -> float:
    """Stand for predictions of other demons, which no question asks about."""
    raise AssertionError


def functions(**more: Any) -> list[GVF]:
    """Return the same with cumulants that are computed in Python."""
    changed = [
        GVF("function", BEHAVIOUR, lambda observation, _: float(observation[0]) ** 2, 0.8, **more)
    ]
    return [
        *kinds(**more),
        *changed,
        ask("compositional", BEHAVIOUR, Prediction("constant"), 0.5, **more),
    ]


QUESTIONS = pytest.mark.parametrize("questions", [kinds, functions])


def learned(horde: Horde, n_steps: int = 300, p_break: float = 0.05) -> Horde:
    RandomLife(horde, p_break=p_break).run(n_steps)
    return horde


def probe() -> np.ndarray:
    return np.arange(N_ACTIVE)


# ---- the equation ---------------------------------------------------------------------------------------------------


def rules_and_engines() -> list[Any]:
    """Return each rule with each engine that learns it, and its mode.

    An offset is applied to the signals, before any engine. So every rule is tried on the plain
    engine, and two on the span engine, which compiles for 15 s for each of the others.
    """
    cases = []
    for algorithm in PREDICTING:
        cases.append(pytest.param(algorithm, "plain", "eager"))
        if rules.rule(algorithm).SPAN is None:
            continue
        marks = []
        if algorithm not in ("gtd", "tdrc"):
            marks = [pytest.mark.slow]
        for mode in ("eager", "deferred"):
            cases += [pytest.param(algorithm, "span", mode, marks=marks)]
    return cases


@QUESTIONS
@pytest.mark.parametrize(("algorithm", "engine", "mode"), rules_and_engines())
def test_an_offset_equals_initial_weights_of_its_share(
    algorithm: str, engine: Any, mode: Any, questions: Any
) -> None:
    """theta_0 = o / n_active gives the same predictions, with terminations, gaps, outcomes and functions.

    Without the outcome at the end of a stream, z - o, the demons of the first channel would differ
    by tenths.
    """
    settings: dict[str, Any] = {"algorithm": algorithm}
    if not rules.rule(algorithm).IGNORES_STEP_SIZE:
        settings["step_size"] = 0.02
    with_offset = make(questions(), engine, mode, offset=OFFSET, **settings)
    by_weights = make(questions(), engine, mode, **settings)
    by_weights.reset_weights(np.full((by_weights.n_demons, N), OFFSET / N_ACTIVE))
    life = RandomLife(with_offset, by_weights, p_break=0.05)
    life.run(300)
    assert np.abs(with_offset.weights()[0]).max() > 0.01
    np.testing.assert_allclose(
        with_offset.predictions, by_weights.predictions, rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(with_offset.td_error, by_weights.td_error, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        with_offset.predict(probe()), by_weights.predict(probe()), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(
        with_offset.weights()[1], by_weights.weights()[1], rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(
        with_offset.mspbe_scalar, by_weights.mspbe_scalar, rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("algorithm", FINDING)
def test_a_control_demon_has_one_offset_for_all_actions(algorithm: str) -> None:
    """O equals an outcome of z - o and predictions that are higher by o: pi does not change, nor what is learned."""
    policy = Greedy(N_ACTIONS)
    seek = GVF("seek", policy, Channel(0), 0.9, algorithm=algorithm, offset=OFFSET)
    same = GVF("seek", policy, Channel(0), 0.9, algorithm=algorithm, outcome=-OFFSET)
    with_offset, by_outcome = (
        make([question], "auto", step_size=0.05) for question in (seek, same)
    )
    RandomLife(with_offset, by_outcome, p_break=0.05).run(300)
    tiles = probe()
    values = by_outcome.action_values("seek", tiles)
    assert np.ptp(values) > 1e-3
    np.testing.assert_allclose(with_offset.action_values("seek", tiles), values + OFFSET, rtol=1e-9)
    np.testing.assert_allclose(with_offset.predictions, by_outcome.predictions + OFFSET, rtol=1e-9)
    np.testing.assert_allclose(
        with_offset.weights()[0], by_outcome.weights()[0], rtol=1e-9, atol=1e-12
    )


@QUESTIONS
@IN_ALL
def test_an_offset_of_zero_changes_no_bit(engine: Any, mode: Any, questions: Any) -> None:
    one = make(questions(), engine, mode, dtype="float32")
    twin = make(questions(offset=0.0), engine, mode, dtype="float32", offset=0)
    RandomLife(one, twin, p_break=0.05).run(200)
    assert one.weights_sha256() == twin.weights_sha256()
    np.testing.assert_array_equal(one.predictions, twin.predictions)
    assert one.state().keys() == twin.state().keys()


# ---- the automatic offset -------------------------------------------------------------------------------------------


def answers_if_all_states_were_alike(
    rows: list[tuple[Any, bool]], questions: list[GVF]
) -> list[float]:
    """Return sum (c + (1 - gamma) z) / sum (1 - gamma) over observations, and whether each was the last."""
    answers = []
    for question in questions:
        total = 0.0
        weight = 0.0
        for observation, is_last in rows:
            gamma = question.continuation
            if callable(gamma):
                gamma = gamma(observation, None)
            if is_last:
                gamma = 0.0
            z = question.outcome
            if callable(z):
                z = z(observation, None)
            total += observation[question.cumulant.index] + (1.0 - gamma) * z  # type: ignore[union-attr,index]
            weight += 1.0 - gamma
        answers.append(total / weight if weight > 0.0 else 0.0)
    return answers


@IN_ALL
def test_the_automatic_offset_is_the_answer_if_all_states_were_alike(
    engine: Any, mode: Any
) -> None:
    """From the first state and 499 transitions; later ones leave it. Without the ends the last one would be 0."""
    horde = make(kinds(), engine, mode, offset="mean")
    rng = np.random.default_rng(3)
    rows: list[tuple[Any, bool]] = []
    for t in range(N_READINGS + 100):
        observation = np.append(rng.random(3) + np.array([5.0, 0.0, 5.0]), t)
        tiles = rng.choice(N, N_ACTIVE, replace=False)
        begins = t == 0 or rows[-1][1]
        is_last = t % 40 == 39
        if begins:
            horde.begin(observation, tiles)
            if t == 0:
                rows.append((observation, False))
        if not begins:
            horde.learn(0, 1.0, observation, tiles, terminated=is_last)
            rows.append((observation, is_last))
        elif t > 0:
            rows.append((None, False))
        counted = [row for row in rows if row[0] is not None][:N_READINGS]
        if t in (0, 10, 100, N_READINGS + 99):
            expected = answers_if_all_states_were_alike(counted, list(horde.questions))
            np.testing.assert_allclose(horde.offsets, expected, rtol=1e-12)


@pytest.mark.kernels
def test_cumulants_and_outcomes_are_those_of_the_slow_twin() -> None:
    """Before the last reading and later, with ends of streams, and readings that float32 cannot hold.

    The first channel is constant: of its cumulants nothing remains, not even a rounding.
    """
    questions = kinds()
    dtype = np.dtype(np.float32)
    limit = float(np.finfo(dtype).max)
    cohort = np.zeros(len(questions), dtype=np.int64)
    cumulants = Cumulants(questions, N)
    readout = Readout(questions, cumulants, cohort, LearnerConfig.paper(offset="mean"))
    groups = trace_groups(questions, cohort)
    maker = SignalMaker(questions, groups, cumulants, readout, max_finite=limit, n_features=N)
    twins = []
    for question in questions:
        twin = SlowOffset(gamma=0.0, outcome=0.0, is_centred=False)
        if not callable(question.continuation) and not callable(question.outcome):
            gamma = question.continuation
            twin = SlowOffset(gamma, question.outcome, is_centred=gamma < 1.0)
        twins.append(twin)
    rng = np.random.default_rng(1)
    tiles = probe()
    observation = np.array([0.1, 0.5, 3.0, 0.0])
    maker.begin(observation, tiles)
    for question, twin in zip(questions, twins, strict=True):
        gamma = at(question.continuation, observation)
        outcome = at(question.outcome, observation)
        twin.read(observation[index(question)], gamma, outcome, max_finite=limit)
    for t in range(N_READINGS + 60):
        reached = np.array([0.1, rng.random(), 3.0 + rng.normal(), t])
        if t % 50 == 7:
            reached[2] = 1e60
        is_last = t % 40 == 39
        maker.make((observation, tiles), (reached, tiles), never, terminated=is_last)
        observation = reached
        for i, (question, twin) in enumerate(zip(questions, twins, strict=True)):
            cumulant = reached[index(question)]
            outcome = at(question.outcome, reached)
            gamma = at(question.continuation, reached)
            if is_last:
                gamma = 0.0
            twin.read(cumulant, gamma, outcome, max_finite=limit)
            if t % 7 != 0 and not is_last:
                continue  # the twin is slow
            received = maker.arrays.c[maker.arrays.cumulant[i]]
            np.testing.assert_allclose(received, cumulant - twin.reference, rtol=1e-9, atol=1e-9)
            expected = twin.received_outcome(outcome, is_last=is_last)
            np.testing.assert_allclose(maker.arrays.z[i], expected, rtol=1e-9, atol=1e-9)
            if question.name == "same channel":
                assert received == 0.0


def test_before_anything_is_learned_the_prediction_is_the_first_reading_over_one_minus_gamma() -> (
    None
):
    questions = [
        ask("now", BEHAVIOUR, continuation=0.0),
        ask("later", BEHAVIOUR, continuation=0.8, outcome=2.0),
    ]
    horde = make(questions, offset="mean")
    predictions = horde.begin(np.array([7.0, 0.0, 0.0, 0.0]), probe())
    np.testing.assert_allclose(predictions, [7.0, 7.0 / 0.2 + 2.0])
    np.testing.assert_allclose(horde.predict(probe() + 9), predictions)


def test_predictions_do_not_jump_when_the_estimate_is_complete() -> None:
    """The offset moves by a 500th of a deviation at the last of its readings, and not at all afterwards."""
    horde = make([ask("level", BEHAVIOUR, continuation=0.0)], offset="mean")
    rng = np.random.default_rng(0)
    horde.begin(np.full(4, 100.0), probe())
    offsets = []
    for _ in range(N_READINGS + 5):
        horde.learn(0, 1.0, np.full(4, 100.0 + rng.normal()), probe())
        offsets.append(float(horde.offsets[0]))
    moves = np.abs(np.diff(offsets))
    assert moves[-5:].max() == 0.0
    assert 0.0 < moves[N_READINGS - 20 : N_READINGS - 3].max() < 5.0 / N_READINGS


@cache
def error_of(
    engine: Any, mode: Any, offset: Any, scale: float = 1.0, shift: float = 0.0
) -> np.ndarray:
    """Return the NMSE of three questions about readings with another zero point and unit."""
    questions = [ask(f"{g}", BEHAVIOUR, continuation=g) for g in (0.0, 0.5, 0.9)]
    horde = make(questions, engine, mode, dtype="float32", step_size=0.1, offset=offset)
    rng = np.random.default_rng(7)
    places = rng.integers(N - N_ACTIVE, size=2_000)
    readings = scale * (np.sin(places) + 0.1 * rng.normal(size=places.size) + shift)
    predictions = [horde.begin(np.full(4, readings[0]), places[0] + probe())]
    for place, reading in zip(places[1:], readings[1:], strict=True):
        predictions.append(horde.learn(0, 1.0, np.full(4, reading), place + probe()))
        if mode == "deferred":
            predictions[-1] = horde.predictions
    returns = np.zeros((places.size, 3))
    for t in range(places.size - 2, -1, -1):
        returns[t] = readings[t + 1] + np.array([0.0, 0.5, 0.9]) * returns[t + 1]
    late = slice(500, -200)
    errors = (np.array(predictions)[late] - returns[late]) ** 2
    return np.asarray(errors.mean(axis=0) / returns[late].var(axis=0))


@pytest.mark.parametrize(("scale", "shift"), [(1e-3, 1e6), (1.0, 1e3), (1e6, 0.0), (1e6, 1e6)])
@IN_ALL
def test_the_error_of_a_question_does_not_depend_on_the_zero_point_or_the_unit(
    engine: Any, mode: Any, scale: float, shift: float
) -> None:
    """Weights in float32, readings in float64, and the same changes; with offset 0 the error at 1e6 is above 1e4."""
    for offset in ("mean", "reading"):
        usual = error_of(engine, mode, offset)
        error = error_of(engine, mode, offset, scale, shift)
        np.testing.assert_allclose(error, usual, rtol=2e-3)
    if scale == shift == 1e6:  # the unit changes nothing
        assert (error_of(engine, mode, 0.0, scale, shift) > 1e4).all()


def test_readings_that_vary_by_a_few_steps_of_float32_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A latitude of 52 with changes of 1e-5 has three values in float32; in float64 nothing is lost."""
    for dtype in (np.float64, np.float32):
        horde = make([ask("latitude", BEHAVIOUR)], dtype="float32", offset="mean")
        rng = np.random.default_rng(0)
        horde.begin(np.full(4, 52.0), probe())
        for _ in range(N_READINGS):
            reading = dtype(52.0 + 1e-5 * rng.random())
            horde.learn(0, 1.0, np.full(4, reading, dtype=dtype), probe())
        has_warned = "'latitude'" in caplog.text
        assert has_warned == (dtype is np.float32)


# ---- what a Horde does ----------------------------------------------------------------------------------------------


def test_a_prediction_as_cumulant_includes_the_offset() -> None:
    """A prediction of 8 each step, summed with gamma .5, is 16; theta.phi alone would give 0."""
    questions = [
        ask("source", BEHAVIOUR, continuation=0.0),
        ask("sum", BEHAVIOUR, Prediction("source"), 0.5),
    ]
    horde = make(questions, offset="mean", step_size=0.5)
    horde.begin(np.full(4, 8.0), probe())
    for _ in range(200):
        horde.learn(0, 1.0, np.full(4, 8.0), probe())
    np.testing.assert_allclose(horde.predictions, [8.0, 16.0], rtol=1e-6)


@IN_ALL
def test_an_added_demon_estimates_its_offset_from_the_readings_after_its_birth(
    engine: Any, mode: Any
) -> None:
    """It learns as in a Horde that begins at the current state; the old one keeps the offset of its own time."""

    def old() -> list[GVF]:
        return [ask("old", BEHAVIOUR)]

    def new() -> list[GVF]:
        return [ask("new", BEHAVIOUR), ask("given", BEHAVIOUR, offset=2.0)]

    horde = make(old(), engine, mode, offset="mean")
    alone = make(new(), engine, mode, offset="mean")
    rng = np.random.default_rng(1)
    horde.begin(np.full(4, 0.0), probe())
    for t in range(300):
        state = (
            np.full(4, float(t >= 200) + 0.1 * rng.random()),
            rng.choice(N, N_ACTIVE, replace=False),
        )
        horde.learn(0, 1.0, *state)
        if t == 220:
            horde.add(new())
            alone.begin(*state)
        elif t > 220:
            alone.learn(0, 1.0, *state)
    np.testing.assert_allclose(horde.offsets[1:], alone.offsets, rtol=1e-12)
    np.testing.assert_allclose(horde.predictions[1:], alone.predictions, rtol=1e-9)
    assert horde.offsets[0] < 0.6 * horde.offsets[1]


def test_a_removed_demon_leaves_the_offsets_of_the_others() -> None:
    horde = learned(make(kinds(), offset="mean"))
    offsets = horde.offsets
    predictions = horde.predictions
    horde.remove(["constant", "outcome of the state"])
    indices = [1, 2, 3, 5]
    np.testing.assert_array_equal(horde.offsets, offsets[indices])
    np.testing.assert_allclose(horde.predictions, predictions[indices], rtol=1e-9)


@QUESTIONS
@IN_ALL
@pytest.mark.parametrize("n_steps", [20, N_READINGS + 50])
@pytest.mark.parametrize("offset", ["mean", "reading"])
def test_a_restored_horde_continues_to_the_bit(
    engine: Any, mode: Any, questions: Any, offset: Any, n_steps: int
) -> None:
    """Within the estimate and after it."""
    horde = make(questions(), engine, mode, offset=offset)
    life = RandomLife(horde, p_break=0.05)
    life.run(n_steps)
    twin = make(questions(), engine, mode, offset=offset)
    twin.restore(horde.state())
    life.hordes = (horde, twin)
    life.run(100)
    assert horde.weights_sha256() == twin.weights_sha256()
    np.testing.assert_array_equal(horde.offsets, twin.offsets)
    np.testing.assert_array_equal(horde.predictions, twin.predictions)


@pytest.mark.parametrize("offset", ["mean", "reading"])
def test_a_restored_horde_returns_the_predictions_of_the_latest_processed_step(offset: Any) -> None:
    """Steps are queued: the additions to these predictions are part of the state."""
    horde = make(kinds(), "span", "deferred", offset=offset)
    life = RandomLife(horde)
    life.run(100)
    twin = make(kinds(), "span", "deferred", offset=offset)
    twin.restore(horde.state())
    assert twin.n_waiting > 0
    step = (0, 0.5, np.full(4, 3.0), probe())
    np.testing.assert_array_equal(twin.learn(*step), horde.learn(*step))


def test_streams_share_the_offsets_and_copies_average_them() -> None:
    """Two streams with readings 0 and 2 have the offset 1 over 1 - gamma, in turns as well as merged."""
    questions = [ask("level", BEHAVIOUR, continuation=0.5)]
    in_turns = make(questions, offset="mean")
    first = make(questions, "plain", offset="mean")
    first.begin(np.zeros(4), probe())
    second = first.copy_for_stream()
    second.begin(np.full(4, 2.0), probe())
    for t in range(100):
        in_turns.select_stream(t % 2)
        state = np.full(4, 2.0 * (t % 2)), probe()
        if t < 2:
            in_turns.begin(*state)
        else:
            in_turns.learn(0, 1.0, *state)
        first.learn(0, 1.0, np.zeros(4), probe())
        second.learn(0, 1.0, np.full(4, 2.0), probe())
        first.merge([second])
    np.testing.assert_allclose(in_turns.offsets, 2.0, rtol=0.02)
    np.testing.assert_allclose(first.offsets, 2.0, rtol=0.02)
    np.testing.assert_array_equal(first.offsets, second.offsets)


def test_a_demon_that_diverges_predicts_zero_and_its_siblings_keep_their_offset() -> None:
    def wild(observation: np.ndarray, _: Any) -> float:
        if observation[3] == 50:
            return 1e39
        return 5.0

    questions = [
        GVF("wild", BEHAVIOUR, wild, 0.5),
        ask("sibling", BEHAVIOUR),
        ask("constant", BEHAVIOUR),
    ]
    horde = learned(make(questions, dtype="float32", offset="mean"), 100, p_break=0.0)
    assert horde.diverged == ["wild"]
    assert horde.predictions[0] == 0.0
    assert horde.offsets[0] == 0.0
    assert (horde.offsets[1:] > 1.0).all()


@pytest.mark.parametrize(("offset", "lowest", "highest"), [("mean", 1e3, 1e4), (0.0, 1e8, 2e8)])
def test_bounds_of_weights_are_measured_from_the_offset(
    offset: Any, lowest: float, highest: float
) -> None:
    """Readings of 1e5 that change by 1: theta, which grows by a step size of 30, is found at some thousands."""
    horde = make([ask("pressure", BEHAVIOUR, continuation=0.0)], offset=offset, step_size=30.0)
    rng = np.random.default_rng(0)
    horde.begin(np.full(4, 1e5), probe())
    for _ in range(200):
        horde.learn(0, 1.0, np.full(4, 1e5 + rng.uniform(-1, 1)), probe())
    reason = horde.divergence_reason["pressure"]
    bound = float(reason.split("above their bound of ")[1].split()[0])
    assert lowest <= bound <= highest


def test_offsets_that_were_learned_elsewhere_stand_still() -> None:
    horde = learned(make(kinds(), offset="mean"), 50, 0.0)
    values = np.full(horde.n_demons, np.nan)
    values[0] = 12.0
    horde.set_offsets(values)
    learned(horde, 50, 0.0)
    assert horde.offsets[0] == 12.0
    pair = make([ask("one"), ask("two")], offset="mean")
    with pytest.raises(ValueError, match="all demons with the same channel"):
        pair.set_offsets(np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match=r"shape \(2,\), not \(3,\)"):
        pair.set_offsets(np.zeros(3))


# ---- invalid input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [np.nan, np.inf, -1e39, "median", None, True])
def test_an_offset_that_is_no_number_of_the_dtype_is_refused(offset: Any) -> None:
    with pytest.raises(
        ValueError, match=r'offset must be "mean", "reading" or a number of at most'
    ):
        LearnerConfig.paper(offset=offset)


@pytest.mark.parametrize("offset", [np.nan, np.inf, "median", True])
def test_an_offset_of_a_question_that_is_no_number_is_refused(offset: Any) -> None:
    with pytest.raises(ValueError, match="question 'light': offset must be"):
        ask("light", offset=offset)


def test_an_offset_of_a_question_beyond_the_dtype_is_refused_by_the_horde() -> None:
    with pytest.raises(ValueError, match=r"question 'light': offset must .* 3.4e\+38"):
        make([ask("light", offset=1e39)], dtype="float32")
    assert make([ask("light", offset=1e39)], dtype="float64").offsets[0] == 1e39


def test_the_default_step_size_is_half_as_large_with_an_offset_or_with_rarity() -> None:
    assert LearnerConfig.paper().step_size == 0.1
    assert LearnerConfig.paper(offset="mean").step_size == 0.05
    assert LearnerConfig.paper(rarity=True).step_size == 0.05
    assert LearnerConfig.paper(offset="mean", rarity=True).step_size == 0.05
    assert LearnerConfig.paper(offset="reading", average=100.0).step_size == 0.05
    assert LearnerConfig.paper(offset="mean", step_size=0.1).step_size == 0.1
    assert LearnerConfig.paper(algorithm="swift_td", offset=1.0).step_size == 0.005


def test_a_rule_that_computes_its_step_size_has_none_of_an_offset() -> None:
    """Options with an offset can be copied, as engines do."""
    config = LearnerConfig.paper(algorithm="intentional_td", offset="mean")
    assert (
        replace(config, engine="plain").step_size
        == LearnerConfig.paper(algorithm="intentional_td").step_size
    )


# ---- runs and question files ----------------------------------------------------------------------------------------


def test_runs_have_offsets_unless_they_are_the_papers() -> None:
    usual = resolve(LearnConfig())
    paper = resolve(LearnConfig(paper=True))
    assert (usual.offset, usual.step_size) == ("reading", 0.05)
    assert (paper.offset, paper.step_size) == ("0", 0.1)
    assert resolve(replace(paper, offset="0")) == paper
    assert resolve(LearnConfig(offset="2.5", step_size=0.1)).step_size == 0.1


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"offset": "nan"}, '--offset must be "mean", "reading" or a number of at most 3.4e+38'),
        ({"offset": "1e39"}, '--offset must be "mean", "reading" or a number of at most 3.4e+38'),
        ({"offset": "median"}, "not 'median'"),
        (
            {"offset": "mean", "paper": True},
            "--paper learns without an offset, and --offset mean is one",
        ),
        ({"offset": "1", "paper": True}, "--paper learns without an offset, and --offset 1 is one"),
    ],
)
def test_a_run_with_an_impossible_offset_is_refused(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BadInput) as refusal:
        resolve(LearnConfig(**settings))
    assert sentence in str(refusal.value)


def test_a_question_file_sets_the_offset_of_its_questions(tmp_path: Path) -> None:
    body = ToyBody()
    interface = Interface.of(body)
    path = tmp_path / "questions.toml"
    family = '[[family]]\npolicies = ["behaviour"]\ngammas = [0.5]\n'
    path.write_text(
        f'{family}offset = "mean"\n{family.replace("0.5", "0.0")}offset = 3\n{family.replace("0.5", "0.9")}'
    )
    offsets = {question.offset for question in from_file(path, interface)}
    assert offsets == {"mean", 3, None}
    path.write_text(f'{family}offset = "median"\n')
    with pytest.raises(ValueError, match=r"family.* number 1: .*offset must be"):
        from_file(path, interface)
