"""Tables of a run from made-up numbers, each of which only the right formula gives, and scores on a recorded log."""

from __future__ import annotations

import csv
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from horde_agent import GVF, Behaviour, Channel, ConstantAction, Interface
from horde_agent.gvf import variance_of
from horde_agent.life.counts import Durations
from horde_agent.life.flags import are_followed
from horde_agent.life.learner import StreamLearner, relearn
from horde_agent.questions import nexting
from horde_agent.record import Flag, Phase, Recorder, Row, Stream
from horde_agent.refusals import BadInput
from horde_agent.runs import log_nexting
from horde_agent.runs.config import LearnConfig
from horde_agent.runs.exit_reason import ExitCause, ExitReason
from horde_agent.runs.log_nexting import (
    LEARNED_SHARE,
    Holdout,
    returns_asked,
)
from horde_agent.runs.sources.log import PlayedLog
from horde_agent.runs.storage import tables
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.question_table import SCORE_COLUMNS
from horde_agent.runs.storage.run import Run
from horde_agent.runs.storage.tables import (
    NOT_RECORDED,
    QuestionScores,
    SessionOutcome,
    holdout_traces,
    write_tables,
)
from horde_agent.saving import text
from horde_agent.scoring.nmsre import Outcomes
from horde_agent.scoring.return_errors import ReturnErrors
from horde_agent.scoring.returns import PolicyUnderTest, TestExcursion, returns_along
from horde_agent.scoring.two_pass_nmsre import PolicyScores, policy_scores
from tests.agent.doubles import SpyHorde, ToyBody, age_of, horde_of
from tests.facts import states
from tests.oracles.evaluation import partial_returns

FACE = Interface.of(ToyBody())
NAN = float("nan")


def test_nearly_constant_returns_vary_by_less_than_the_rounding_of_one_reading() -> None:
    """Rounding to steps of .6 has a variance of .03; the fourth has diverged, the fifth was not scored."""
    variance = np.array([0.029, 0.031, 0.0, 0.0, NAN])
    sound = np.array([True, True, True, False, True])
    nmsre = np.where(np.isnan(variance), NAN, 1.0)
    assert tables.n_nearly_constant(nmsre, variance, np.full(5, 0.6), sound) == 2
    assert (
        tables.n_nearly_constant(nmsre, variance, np.array([NAN, 0.6, NAN, 0.6, 0.6]), sound) == 0
    )
    assert tables.n_nearly_constant(nmsre, variance, np.full(5, NAN), sound) is None


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


def test_every_column_of_the_questions_holds_what_its_head_says() -> None:
    watch: Any = SimpleNamespace(
        n_updates=np.array([21, 22, 23]), is_valid=np.array([True, False, True])
    )
    nmsre = np.array([0.1, 0.2, 0.3])
    variance = np.array([4.0, 5.0, 6.0])
    n_tests = np.array([7, 8, 9])
    scores = QuestionScores(nmsre, np.array([0.7, 0.8, 0.9]), variance, n_tests)
    lines = tables.question_lines(horde(), scores, watch, np.array([7.0, 7.0, NAN]))
    table = [dict(zip(SCORE_COLUMNS, line, strict=True)) for line in lines]
    assert table[1] == {
        "name": "b",
        "nmsre": 0.2,
        "nmsre_of_persistence": 0.8,
        "variance": 5.0,
        "n_tests": 8,
        "mspbe_scalar": 50.0,
        "mspbe_vector": 70.0,
        "diverged": 1,
        "n_updates": 22,
        "mspbe_valid": 0,
        "nearly_constant": 0,
    }
    # Variances 4, 5, 6; 49 / 12 = 4.08
    assert [line["nearly_constant"] for line in table] == [1, 0, None]
    assert [line["diverged"] for line in table] == [0, 1, 0]
    assert [line["mspbe_valid"] for line in table] == [1, 0, 1]


LEFT = PolicyUnderTest(0, np.array([0, 2]), np.array([0, 1]), np.array([0.0, 0.0]), "left")
RIGHT = PolicyUnderTest(1, np.array([1]), np.array([0]), np.array([0.0]), "right")


def completed(
    policy: PolicyUnderTest, step: int, predictions: list[float], returns: list[float]
) -> TestExcursion:
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

    Demon 0: errors 4, 0, 0; returns 0, 2, 4 of variance 8/3. Demon 2: errors 1, 1, 1; returns 1, 1,
        4 of variance 2.
    Demon 1: errors 9 and 9, returns 0 and 6 of variance 9.
    """
    return_errors = ReturnErrors([LEFT, RIGHT], 4)
    return_errors.add(completed(LEFT, 10, [2.0, 0.0], [0.0, 1.0]))
    return_errors.add(completed(RIGHT, 20, [3.0], [0.0]))
    return_errors.add(completed(LEFT, 30, [2.0, 2.0], [2.0, 1.0]))
    return_errors.add(completed(RIGHT, 40, [3.0], [6.0]))
    return_errors.add(completed(LEFT, 50, [4.0, 3.0], [4.0, 4.0]))
    return return_errors


def column(lines: list[list[object]], name: str) -> list[Any]:
    return [line[tables.CURVE_COLUMNS.index(name)] for line in lines]


def test_the_curve_is_the_mean_over_the_questions_tested_by_then(errors: ReturnErrors) -> None:
    """In two passes, with the variance of the whole life; the trace keeps nine tenths of the first errors.

    Demon 0: 4, 3.6, 3.24 over 8/3: 1.5, 1.35, 1.215. Demon 2: 1 over 2: .5 each time. Demon 1: 9
        over 9: 1.
    """
    lines = curve(errors, np.ones(4, dtype=bool), ("left", "right"), 0.1)
    assert column(lines, "mean_nmsre") == pytest.approx(
        [1.0, 1.0, (1.35 + 0.5 + 1) / 3, 2.85 / 3, 2.715 / 3]
    )
    assert column(lines, "median_nmsre") == pytest.approx([1.0, 1.0, 1.0, 1.0, 1.0])
    assert column(lines, "excursion") == [1, 2, 3, 4, 5]
    assert column(lines, "step") == [10, 20, 30, 40, 50]
    assert column(lines, "robot_time_s") == pytest.approx([1.0, 2.0, 3.0, 4.0, 5.0])
    assert column(lines, "policy") == ["left", "right", "left", "right", "left"]
    # Demon 0 has diverged
    lines = curve(errors, np.array([False, True, True, True]), ("left", "right"), 0.1)
    assert column(lines, "mean_nmsre") == pytest.approx([0.5, 0.75, 0.75, 0.75, 0.75])
    assert column(lines, "median_nmsre") == pytest.approx([0.5, 0.75, 0.75, 0.75, 0.75])


def test_the_online_curve_has_the_variance_of_the_excursions_so_far(errors: ReturnErrors) -> None:
    """NaN until a demon was tested twice; then demon 0: 3.6 over 1, demon 2: exactly 1, as its returns are equal.

    With the fourth excursion demon 1: 9 over 9. In the end all variances are those of the whole
        life.
    """
    lines = curve(errors, np.ones(4, dtype=bool), ("left", "right"), 0.1)
    online = column(lines, "mean_nmsre_online")
    assert np.isnan(online[:2]).all()
    assert online[2:] == pytest.approx([(3.6 + 1) / 2, (3.6 + 1 + 1) / 3, 2.715 / 3])
    assert online[2] != pytest.approx(column(lines, "mean_nmsre")[2])


def curve(
    errors: ReturnErrors, sound: Any, actions: tuple[str, ...], period_s: float
) -> list[list[object]]:
    return list(tables.curve_lines(errors, policy_scores(errors.table), sound, actions, period_s))


def test_the_curve_leaves_out_questions_tested_once() -> None:
    """Its variance would be 0, and its NMSRE 1 by definition."""
    return_errors = ReturnErrors([LEFT, RIGHT], 4)
    return_errors.add(completed(LEFT, 10, [2.0, 0.0], [0.0, 1.0]))
    return_errors.add(completed(RIGHT, 20, [3.0], [0.0]))
    return_errors.add(completed(RIGHT, 30, [3.0], [6.0]))
    lines = curve(return_errors, np.ones(4, dtype=bool), ("left", "right"), 0.1)
    assert np.isnan(column(lines, "mean_nmsre")[0])
    assert column(lines, "mean_nmsre")[1:] == pytest.approx([1.0, 1.0])


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Six questions, the first of which has diverged."""
    horde = horde_of(nexting(FACE, (0.0, 0.5)), FACE)
    state = horde.state()
    state["divergence/is_diverged"][0] = True
    state["divergence/reasons"] = text({horde.names[0]: "a test"})
    horde.restore(state)
    return Run(
        LearnConfig(backend="replay", seed=5),
        FACE,
        horde,
        RunFolder(tmp_path),
        notes=["It snowed."],
    )


def test_a_score_on_a_log_is_of_the_questions_that_are_sound(run: Run) -> None:
    """NMSRE .5, 1, 2, .5, 4 of the sound ones; the mean predictor is beaten by the second, fourth and sixth of six."""
    score = Holdout(
        channel=np.array([0, 1, 2, 0, 1, 2]),
        gamma=np.array([0.0, 0.0, 0.0, 0.5, 0.5, 0.5]),
        n_steps=60,
        n_gaps=3,
        n_learned=40,
        n_scored=np.full(6, 2),
        is_constant=np.array([False, False, True, False, False, False]),
        nmsre_of_persistence=np.array([0.2, 0.4, 1.0, 3.0, 0.6, 3.0]),
        shown={},
        variance=np.array([1.0, 2.0, 0.0, 4.0, 5.0, 6.0]),
        nmsre=np.array([0.1, 0.5, 1.0, 2.0, 0.5, 4.0]),
        nmsre_of_mean=np.array([0.2, 0.6, 1.0, 3.0, 0.4, 5.0]),
    )
    student: Any = SimpleNamespace(learning_steps=30, n_updated=90, surprise=None)
    student.catch_up = lambda: None
    student.learn_s = Durations()
    robot = NOT_RECORDED | {"gaps": 3}
    outcome = SessionOutcome(
        steps=60, end=ExitReason.of(ExitCause.LOG_END), robot=robot, score=score, passes=12.5
    )
    summary = write_tables(run, student, outcome, 2.0)

    assert (summary["mean_nmsre"], summary["median_nmsre"], summary["share_nmsre_below_1"]) == (
        1.6,
        1.0,
        0.4,
    )
    assert (summary["learning_steps"], summary["n_updated_per_step"], summary["gaps"]) == (
        30,
        3.0,
        3,
    )
    assert (summary["backend"], summary["seed"], summary["n_excursions"]) == ("replay", 5, None)
    assert summary["stopped_early"] is False
    details = json.loads(run.folder.details.read_text())
    assert details["share_better_than_mean_predictor"] == pytest.approx(3 / 5)
    assert details["mean_predictor"]["mean_nmsre"] == pytest.approx(2.0)
    note, second_note = details["notes"]
    assert second_note == "It snowed."
    assert states(note, "12.5 passes", "70%", "2 steps")
    assert states(note, "1.000 in the median", "2.000 in the mean", "60%")
    assert summary["n_nearly_constant"] is None
    assert summary["share_better_than_persistence"] == pytest.approx(2 / 5)
    assert "1 of 6 questions have returns that do not vary" in note
    with run.folder.questions.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["nmsre"] for line in lines] == ["0.1", "0.5", "1", "2", "0.5", "4"]
    assert [line["nmsre_of_mean_predictor"] for line in lines] == [
        "0.2",
        "0.6",
        "1",
        "3",
        "0.4",
        "5",
    ]
    assert {line["n_tests"] for line in lines} == {"2"}


HORIZON = 12
POLICY = PolicyUnderTest(1, np.array([0, 1, 2]), np.array([0, 0, 1]), np.array([0.0, 0.5, 0.25]))
"""Two questions about the toy's age, at gamma 0 and .5, and one about its sawtooth at .25."""


def life(n_excursions: int, last: int = HORIZON) -> Stream:
    """Return excursions of action 1, each after a step of behaviour; the last one is recorded for some steps alone.

    The age is the number of the row over 1,000, the sawtooth the same backwards.
    """
    recorder = Recorder(3)
    step = 0
    for k in range(n_excursions):
        n = HORIZON
        if k == n_excursions - 1:
            n = last
        for phase, action in [(Phase.BEHAVE, 0), *[(Phase.EXCURSION, 1)] * n]:
            observation = np.array([step / 1000, 1 - step / 1000, 0.0], dtype=np.float32)
            recorder.write(
                Row(step, 0.1 * step, observation, action, 1.0, phase, Flag.NONE, (0.0, 0.0, 0.0))
            )
            step += 1
    if last == HORIZON:
        observation = np.array([step / 1000, 1 - step / 1000, 0.0], dtype=np.float32)
        recorder.write(
            Row(step, 0.1 * step, observation, 0, 1.0, Phase.END, Flag.NONE, (0.0, 0.0, 0.0))
        )
    return recorder.stream()


def trace_lines(
    n_excursions: int, last: int = HORIZON, variance: float = 0.25
) -> list[dict[str, Any]]:
    """Return the lines of traces.csv; the saw alone has a question about its variance."""
    starts = np.array([1 + k * (HORIZON + 1) for k in range(n_excursions)])
    course = PolicyScores(0, POLICY)
    course.add(Outcomes(POLICY, starts, np.zeros((n_excursions, 3)), np.zeros((n_excursions, 3))))
    saw = GVF("saw/.25", ConstantAction(1, 3), Channel(1), 0.25)
    questions = [
        GVF("age/0", ConstantAction(1, 3), Channel(0), 0.0),
        GVF("age/.5", ConstantAction(1, 3), Channel(0), 0.5),
        saw,
        variance_of(saw),
    ]
    horde: Any = SimpleNamespace(
        questions=questions,
        names=[question.name for question in questions],
        n_demons=4,
        predict=lambda *_: [1.0, 2.0, 3.0, variance],
    )
    traces = tables.excursion_traces(life(n_excursions, last), horde, FACE, [course], HORIZON)
    return [dict(zip(tables.TRACE_COLUMNS, line, strict=True)) for line in traces]


def test_the_last_excursion_is_shown_at_the_longest_time_scale() -> None:
    """From row 14 on: sum_k .5^k age_{t+k+1} up to the end of the excursion, row 26, and .5^12 of the 2 predicted."""
    shown = trace_lines(2)
    age = [line for line in shown if line["channel"] == "age"]
    assert {line["question"] for line in age} == {"age/.5"}
    assert {line["panel"] for line in age} == {"right"}
    actual_return = sum(0.5**k * (15 + k) / 1000 for k in range(HORIZON)) + 0.5**HORIZON * 2.0
    assert age[0] == {
        "question": "age/.5",
        "channel": "age",
        "panel": "right",
        "t_s": 0.0,
        "prediction": 2.0,
        "actual": pytest.approx(actual_return, rel=1e-6),
        "deviation": "",
    }
    assert [line["t_s"] for line in age[:3]] == pytest.approx([0.0, 0.1, 0.2])


def test_a_return_is_shown_while_little_of_it_lies_beyond_the_end() -> None:
    """.5^n < .05 from n = 5 on (4 is .0625), .25^n from 3 on (2 is .0625): log .05 / log gamma, rounded down."""
    shown = trace_lines(1)
    assert sum(line["channel"] == "age" for line in shown) == HORIZON - 4
    assert sum(line["channel"] == "saw" for line in shown) == HORIZON - 2
    assert {line["prediction"] for line in shown if line["channel"] == "saw"} == {3.0}


def test_the_deviation_is_the_root_of_the_variance_that_another_question_has_learned() -> None:
    """A variance of .25 gives .5; a learned one may be below 0, which counts as 0."""
    for variance, deviation in ((0.25, 0.5), (-0.25, 0.0)):
        saw = [line for line in trace_lines(1, variance=variance) if line["channel"] == "saw"]
        assert {line["deviation"] for line in saw} == {deviation}


def test_an_excursion_that_is_not_recorded_to_its_end_is_passed_over() -> None:
    """After a full disk or a kill, the excursion before it is shown, if there is one."""
    assert trace_lines(2, last=5) == trace_lines(1)
    assert trace_lines(1, last=5) == []


# ---- a recorded log --------------------------------------------------------------------------------------------------

BROKEN = [Flag.GAP, Flag.NOT_APPLIED, Flag.STALE]


def stream_of(rewards: list[float], flags: dict[int, int] | None = None, action: int = 0) -> Stream:
    """Return a stream: its first channel is its age, its second `rewards`."""
    recorder = Recorder(3)
    for k, reward in enumerate(rewards):
        observation = np.array([k / 10_000, reward, 0.0], dtype=np.float32)
        if k == len(rewards) - 1:
            phase = Phase.END
        else:
            phase = Phase.BEHAVE
        flag = (flags or {}).get(k, Flag.GAP if k == 0 else Flag.NONE)
        recorder.write(Row(k, 0.1 * k, observation, action, 1.0, phase, flag, (np.nan,) * 3))
    return recorder.stream()


def learn_and_score(stream: Stream, student: StreamLearner, passes: int, size: int = 13) -> Holdout:
    rows = [stream[k : k + size] for k in range(0, len(stream), size)]
    border = log_nexting.border_of(rows)
    for _ in range(passes):
        relearn(stream[: border.n_learned], student.horde, student.interface, student=student)
    return log_nexting.score(rows, student.horde, student.interface, border)


@pytest.mark.parametrize("flag", BROKEN)
def test_a_return_ends_where_the_stream_is_broken(flag: int) -> None:
    """Broken at the third reading: nothing runs across, and the row before is followed by nothing."""
    stream = stream_of([9.0, 1.0, 2.0, 4.0, 8.0], {2: flag})
    readings = stream.rows["observation"][:, 1]
    assert returns_along(readings, 0.5, are_followed(stream.rows["flags"])).tolist() == [
        1.0,
        0.0,
        8.0,
        8.0,
        0.0,
    ]
    assert are_followed(stream.rows["flags"]).tolist() == [True, False, True, True, False]


@pytest.mark.parametrize(("n", "split"), [(100, 70), (101, 71)])
def test_the_first_seventy_percent_are_learned_from_and_no_more(n: int, split: int) -> None:
    """70 of 100 rows: 69 transitions in each of two passes; rows from 70 on are predicted."""
    horde: Any = SpyHorde(nexting(FACE, (0.5,)))
    horde.predict = lambda *_: np.zeros(3)
    student = StreamLearner(horde, FACE)
    stream = stream_of([0.1] * n, {0: Flag.NONE})
    score = learn_and_score(stream, student, passes=2)
    assert LEARNED_SHARE == 0.7
    assert [(call[1], call[4]) for call in horde.learned] == [
        (k, k + 1) for k in range(split - 1)
    ] * 2
    assert score.n_learned == split
    assert score.n_scored.tolist() == [n - split - 5] * 3, ".5^5 is the first power below .05"


@pytest.mark.parametrize("flag", BROKEN)
def test_broken_rows_are_neither_learned_nor_scored(flag: int) -> None:
    """Row 30 is broken in the part that is learned, row 80 in the other: the row before each leads nowhere."""
    horde: Any = SpyHorde(nexting(FACE, (0.5,)))
    horde.predict = lambda *_: np.zeros(3)
    student = StreamLearner(horde, FACE)
    score = learn_and_score(stream_of([1.0] * 100, {30: flag, 80: flag}), student, passes=1)
    assert [call[1] for call in horde.learned] == [k for k in range(69) if k != 29]
    near_an_end = [*range(75, 80), *range(95, 100)]
    assert score.shown[1][:, 0].tolist() == [k - 70 for k in range(70, 99) if k not in near_an_end]
    assert score.n_scored.tolist() == [20] * 3


@pytest.mark.parametrize("size", [13, 4096])
def test_bands_of_a_log_are_of_every_fiftieth_held_out_return(size: int) -> None:
    """Of 1,500 rows 30 are tests at gamma .5, and 15 at .97, whose returns reach 99 rows: too few for a band.

    Half the newest band is the largest of the last 19 errors; with every row it would be that of the last 39.
    """
    horde: Any = SpyHorde([*nexting(FACE, (0.5,)), *nexting(FACE, (0.97,))])
    horde.predict = lambda *_: np.zeros(6)
    stream = stream_of(np.random.default_rng(3).random(5_000).tolist(), {0: Flag.NONE})
    bands = learn_and_score(stream, StreamLearner(horde, FACE), passes=1, size=size).bands
    assert bands is not None
    returns = returns_along(stream.rows["observation"][3_500:, 1].astype(np.float64), 0.5)
    errors = returns[::50]
    halves = np.array([errors[n - 19 : n].max() for n in range(19, 31)])
    (demon,) = [
        number
        for number, question in enumerate(horde.questions)
        if (question.cumulant, question.continuation) == (Channel(1), 0.5)
    ]
    assert bands.half_width[demon] == pytest.approx(halves[-1], rel=1e-4)
    assert bands.n_tested[demon] == 30 - 19
    assert bands.n_inside[demon] == (errors[19:] <= halves[:-1]).sum()
    assert np.isnan(bands.half_width[3:]).all()
    assert not bands.n_tested[3:].any()


@pytest.mark.parametrize("size", [7, 1000])
def test_rows_near_a_missing_reading_are_not_scored_for_its_channel_alone(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at a gap: of channel 1, row 80 itself and the five rows before it lack the terms that gamma .5 needs."""
    monkeypatch.setattr(log_nexting, "MOST_ROWS", size)
    horde: Any = SpyHorde(nexting(FACE, (0.5,)))
    horde.predict = lambda *_: np.zeros(3)
    stream = stream_of([1.0] * 100, {0: Flag.NONE})
    stream.rows["observation"][[30, 80], 1] = np.nan
    score = learn_and_score(stream, StreamLearner(horde, FACE), passes=1)
    assert len(horde.learned) == 69
    assert score.n_scored.tolist() == [25, 25 - 6, 25]
    near_an_end = [*range(75, 81), *range(95, 100)]
    assert score.shown[1][:, 0].tolist() == [k - 70 for k in range(70, 99) if k not in near_an_end]
    assert np.isfinite(score.nmsre_of_persistence[1])


def test_the_score_is_the_squared_error_over_the_variance_of_the_returns() -> None:
    """At gamma 0 the return is the next reading. Held out: 15 readings of 1 and 13 of 0; a row before a gap counts not.

    A prediction of 3/4 errs by 1/16 and 9/16. The learned part always reads .5, and so its mean
    errs by 1/4.
    """
    readings = [0.5] * 70 + [float(k % 2) for k in range(30)]
    readings[90] = 0.9
    horde: Any = SpyHorde([GVF("next", Behaviour(), Channel(1), 0.0)])
    horde.predict = lambda *_: np.full(1, 0.75)
    score = learn_and_score(
        stream_of(readings, {90: Flag.GAP}), StreamLearner(horde, FACE), passes=1
    )
    variance = 15 / 28 * 13 / 28
    assert score.n_scored.tolist() == [28]
    assert score.variance[0] == pytest.approx(variance)
    assert score.nmsre[0] == pytest.approx((15 / 16 + 13 * 9 / 16) / 28 / variance)
    assert score.nmsre_of_mean[0] == pytest.approx(0.25 / variance)
    lines = holdout_traces(score.shown, score.channel, horde, FACE.names, 0.1)
    assert len(lines) == 28
    assert {line[5] for line in lines} == {0.0, 1.0}


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_scores_do_not_depend_on_the_parts_in_which_a_log_is_read(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Returns at gamma .9 run across several parts, and end at gaps; row 150 is the end of an episode."""
    monkeypatch.setattr(log_nexting, "MOST_ROWS", 5)
    rewards = np.random.default_rng(0).random(200).tolist()
    flags = {20: Flag.GAP, 150: Flag.TERMINATED, 151: Flag.GAP, 160: Flag.STALE}
    stream = stream_of(rewards, flags)
    horde: Any = SpyHorde(nexting(FACE, (0.5, 0.9)))
    horde.predict = lambda *_: np.full(6, 0.3)
    score = learn_and_score(stream, StreamLearner(horde, FACE), 0, size=size)
    learned = stream[:140]
    held_out = stream[140:]
    channel, gamma = returns_asked(horde)
    actual = []
    for part in (stream[:140], stream[140:]):
        readings = part.rows["observation"][:, channel].astype(np.float64)
        flags_of_part = part.rows["flags"]
        is_terminal = (flags_of_part & Flag.TERMINATED) > 0
        actual.append(partial_returns(readings, gamma, are_followed(flags_of_part), is_terminal))
    learned, held_out = actual
    is_learned = np.broadcast_to(are_followed(stream[:140].rows["flags"])[:, None], (140, 6))
    is_scored = (held_out.share <= 0.05) & are_followed(flags_of_part)[:, None]
    assert is_scored.sum(axis=0).tolist() == [49, 49, 49, 21, 21, 21]
    variance = held_out.variance(is_scored)
    np.testing.assert_allclose(score.variance, variance, rtol=1e-9)
    present = readings / (1.0 - gamma)
    for scores, predicted in (
        (score.nmsre, np.full((60, 6), 0.3)),
        (score.nmsre_of_mean, np.tile(learned.mean(is_learned), (60, 1))),
        (score.nmsre_of_persistence, present),
    ):
        squares = np.where(is_scored, held_out.errors(predicted) ** 2, 0.0).sum(axis=0)
        expected = squares / is_scored.sum(axis=0)
        vary = variance > 0
        np.testing.assert_allclose(scores[vary], expected[vary] / variance[vary], rtol=1e-9)
        np.testing.assert_array_equal(scores[~vary], expected[~vary] > 0.0)
    for demon, shown in score.shown.items():
        rows = is_scored[:, demon]
        ends = held_out.terms + held_out.share * 0.3
        np.testing.assert_allclose(shown[:, 2], ends[rows, demon], rtol=1e-12)


def test_memory_does_not_grow_with_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times as many rows, made when they are read; only the shown returns are kept, three numbers a row."""
    monkeypatch.setattr(log_nexting, "MOST_ROWS", 50)
    horde: Any = SpyHorde(nexting(FACE, tuple(np.linspace(0.0, 0.9, 100))))
    horde.predict = lambda *_: np.zeros(300)

    class Log:
        def __init__(self, n_parts: int) -> None:
            self.n_parts = n_parts

        def __iter__(self) -> Iterator[Stream]:
            return (stream_of([k / 100, *[0.5] * 99], {0: Flag.NONE}) for k in range(self.n_parts))

    peaks = []
    for n_parts in (2, 10, 40):  # the first one imports modules
        tracemalloc.start()
        log = Log(n_parts)
        log_nexting.score(log, horde, FACE, log_nexting.border_of(log))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 2.0 * peaks[1]  # 3.2 times if each part stayed


class Told(ToyBody):
    """A body with the actions and probabilities of a logged agent."""

    def info_of_step(self) -> dict[str, Any]:
        return super().info_of_step() | {"action": self.age % 3, "b": 0.5 + self.age / 1_000}


def test_a_log_is_read_with_its_flags_its_actions_and_its_end() -> None:
    """The same flags as in a life; the beginning is a gap; the environment ends it at age 8."""
    faults = {
        2: {"gap": 1},
        4: {"stale": 1},
        5: {"applied": 0},
        6: {"gap": 1, "stale": 1},
        8: {"truncated": 1},
    }
    body = Told(faults)
    log = PlayedLog(body)
    assert not log.header["has_actions"]
    assert not log.header["b_known"]
    (part,) = log
    rows = part.rows
    assert [age_of(o) for o in rows["observation"]] == list(range(9))
    expected = [Flag.GAP, 0, Flag.GAP, 0, Flag.STALE, Flag.NOT_APPLIED, Flag.GAP | Flag.STALE, 0, 0]
    assert rows["flags"].tolist() == expected
    assert rows["phase"].tolist() == [Phase.BEHAVE] * 8 + [Phase.END]
    assert rows["action"].tolist() == [age % 3 for age in range(9)]
    assert rows["b"].tolist() == [0.5 + age / 1_000 for age in range(9)]
    assert body.actions == [(age, age % 3) for age in range(8)]


def test_a_log_that_is_too_short_or_has_no_two_consecutive_rows_is_refused() -> None:
    gaps = dict.fromkeys(range(100), int(Flag.GAP))
    with pytest.raises(BadInput, match="no two consecutive rows"):
        log_nexting.border_of([stream_of([0.0] * 100, gaps)])
    with pytest.raises(BadInput, match=r"a log of 9 steps .* 10 are needed"):
        log_nexting.border_of([stream_of([0.0] * 10)])


def test_a_question_whose_return_cannot_be_computed_is_learned_and_not_scored() -> None:
    """Beside one that is: its score is that of it alone, and each of the others has its reason."""
    scorable = GVF("known", Behaviour(), Channel(1), 0.5)
    further_questions = [
        GVF("f", Behaviour(), lambda o, t: 0.0, 0.5),
        GVF("g", Behaviour(), Channel(0), lambda o, t: 0.5),
        GVF("z", Behaviour(), Channel(0), 0.5, outcome=1.0),
    ]
    stream = stream_of(np.random.default_rng(0).random(100).tolist())

    def score_of(questions: list[GVF]) -> Holdout:
        horde: Any = SpyHorde(questions)
        horde.predict = lambda *_: np.full(len(questions), 0.5)
        return learn_and_score(stream, StreamLearner(horde, FACE), passes=1)

    score = score_of([*further_questions, scorable])
    alone = score_of([scorable])
    assert score.n_scored.tolist() == [0, 0, 0, alone.n_scored[0]]
    assert np.isnan(score.nmsre[:3]).all()
    assert score.nmsre[3] == alone.nmsre[0]
    assert all("a channel as its cumulant" in reason for reason in score.why_not[:3])
    assert "use a longer log" in score.why_not[3]
    assert [*score.shown] == [3]
