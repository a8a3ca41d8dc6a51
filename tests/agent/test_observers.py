"""Observers of a life: followers, durations, samples, valid estimates, and progress on a terminal and in a log."""

from __future__ import annotations

import io
import pickle
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from horde_agent import Horde
from horde_agent.interface import Interface
from horde_agent.learning import LearnerConfig
from horde_agent.life.counts import Durations
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.learner import StreamLearner, relearn
from horde_agent.life.observers import Follower, MspbeWatch, Progress, sample
from horde_agent.record import Phase, Recorder
from horde_agent.scoring.return_errors import ReturnErrors
from horde_agent.scoring.returns import PolicyUnderTest, TestExcursion
from tests.agent.doubles import SpyHorde, ToyBody, horde_of, live, toy_life, toy_questions

FACE = Interface.of(ToyBody())
OFTEN = ExcursionConfig(0.05, 10)


def test_a_follower_learns_the_same_as_from_the_record() -> None:
    """With gaps, broken steps, drives and excursions: weights, scores and counts are the same to the bit."""
    follower_horde, record_horde = (horde_of(toy_questions(), FACE, "deferred") for _ in range(2))
    follower = Follower(StreamLearner(follower_horde, FACE, OFTEN))
    recorder = Recorder(3)
    body = ToyBody({90: {"gap": 1}, 200: {"applied": 0}, 333: {"stale": 1}})
    further: dict[str, Any] = {"excursions": OFTEN, "recorder": recorder, "observers": [follower]}
    life = live(700, body, SpyHorde(toy_questions()), **further)
    follower.close()
    one = follower.student
    record_student = relearn(recorder.stream(), record_horde, FACE, excursions=OFTEN)
    assert follower_horde.weights_sha256() == record_horde.weights_sha256()
    np.testing.assert_array_equal(one.errors.nmsre(), record_student.errors.nmsre())
    assert (one.learning_steps, one.n_updated) == (
        record_student.learning_steps,
        record_student.n_updated,
    )
    assert one.errors.n_excursions == life.student.errors.n_excursions > 5
    assert follower.n_left_out == 0


class Slow(SpyHorde):
    """Waits in `begin` until `may_learn` is set."""

    def __init__(self) -> None:
        super().__init__(toy_questions())
        self.may_learn = threading.Event()
        self.has_begun = threading.Event()

    def begin(self, *args: Any) -> np.ndarray:
        self.has_begun.set()
        assert self.may_learn.wait(60.0)
        return super().begin(*args)


def test_rows_that_exceed_the_queue_are_counted_and_leave_a_gap() -> None:
    """Fifty rows wait while the life runs and nothing is learned; the stream then continues after a gap."""
    slow: Any = Slow()
    follower = Follower(StreamLearner(slow, FACE, ExcursionConfig(0.0)), most_waiting=50)
    with toy_life(ToyBody(), SpyHorde(toy_questions()), observers=[follower]) as life:
        life.run(1)
        assert slow.has_begun.wait(60.0)  # the first row was taken from the queue
        life.run(80)
        slow.may_learn.set()
        while follower.n_waiting:
            threading.Event().wait(0.001)
        life.run(20)
    follower.close()
    assert follower.n_left_out == 30
    assert [call[1] for call in slow.calls if call[0] == "begin"] == [0, 81]
    assert [call[4] for call in slow.learned] == [*range(1, 51), *range(82, 102)]


def test_an_error_of_the_student_ends_the_follower_only(caplog: pytest.LogCaptureFixture) -> None:
    broken: Any = SpyHorde(toy_questions(), on_learn=lambda: 1 / 0)
    follower = Follower(StreamLearner(broken, FACE, OFTEN))
    life = live(100, ToyBody(), SpyHorde(toy_questions()), observers=[follower])
    assert life.steps == 100
    with pytest.raises(ZeroDivisionError):
        follower.close()
    assert "follower stopped (division by zero)" in caplog.text
    assert follower.n_left_out > 50


def test_the_memory_of_durations_is_bounded() -> None:
    """Log-uniform between 0.1 ms and 100 ms: half are below 3.162 ms, 99 % below 93.3 ms."""
    rng = np.random.default_rng(0)
    durations = Durations()
    for seconds in (1e-4 * 1000.0 ** rng.random(300_000)).tolist():
        durations.add(seconds)
    durations.add(2.5)
    assert len(durations) == 300_001
    assert durations.summary_ms() == pytest.approx(
        {"p50": 3.162, "p99": 93.3, "max": 2500.0}, rel=0.02
    )
    assert len(pickle.dumps(durations)) < 600_000
    n_bytes = len(pickle.dumps(durations))
    for _ in range(1 << 17):
        durations.add(0.004)
    assert len(pickle.dumps(durations)) == pytest.approx(n_bytes, abs=5_000)
    assert durations.summary_ms() == pytest.approx(
        {"p50": 4.0, "p99": 90.5, "max": 2500.0}, rel=0.02
    )


def test_a_diverged_demon_is_left_out_of_the_mean() -> None:
    horde = SpyHorde(toy_questions())
    horde.mspbe_scalar = np.full(horde.n_demons, 2.0)
    horde.mspbe_scalar[3] = np.nan
    horde.diverged = [horde.names[3]]

    measurement = sample(5, 4, horde)  # type: ignore[arg-type]
    assert (measurement.mspbe_scalar_mean, measurement.n_diverged) == (2.0, 1)


def test_an_estimate_is_valid_from_exactly_20_updates_on_and_never_of_a_diverged_demon() -> None:
    """At alpha 0.1 and ratio 0.5: 20. Before the watch were 5 of each."""
    totals = np.full((3, 4), 5.0)
    horde = SimpleNamespace(
        questions=toy_questions()[:4],
        names=["19", "20", "21", "gone"],
        diverged=["gone"],
        config=LearnerConfig.paper(step_size=0.1, secondary_ratio=0.5),
        ratio_totals=lambda: totals.copy(),
    )
    watch = MspbeWatch(horde)  # type: ignore[arg-type]
    totals[0] += [19, 20, 21, 100]
    assert watch.n_updates.tolist() == [19, 20, 21, 100]
    assert watch.is_valid.tolist() == [False, True, True, False]


def mixed_horde() -> Horde:
    """Return a Horde of GTD(lambda) with questions that have rules and step sizes of their own."""
    algorithms = [None, "tdrc", "td", "gtd2", "tdrc:beta=0.5"]
    questions = [
        replace(question, algorithm=name)
        for question, name in zip(toy_questions(), algorithms, strict=False)
    ]
    # On the plain engine, whose kernels of these rules compile in a tenth of the time
    return horde_of(questions, FACE, engine="plain", dtype="float64")


def test_an_estimate_is_valid_by_the_step_sizes_of_its_own_rule() -> None:
    """1 / (alpha ratio) updates: .1 and .001 for gtd, 1 for tdrc, .1 for gtd2; td has no w and so no estimate."""
    horde = mixed_horde()
    watch = MspbeWatch(horde)
    assert watch.updates_needed == pytest.approx([10_000.0, 10.0, np.inf, 100.0, 10.0])
    with toy_life(ToyBody(), horde, observers=[watch]) as life:
        life.run(150)
        assert ((watch.n_updates > 10) & (watch.n_updates < 100)).all()
        assert watch.is_valid.tolist() == [False, True, False, False, True]
        life.run(600)
        assert (watch.n_updates > 100).all()
        assert watch.is_valid.tolist() == [False, True, False, True, True]
        life.remove([horde.names[0]])
        life.add([replace(toy_questions()[0], name="late", algorithm="tdrc")])
        assert watch.updates_needed == pytest.approx([10.0, np.inf, 100.0, 10.0, 10.0])
        facts = watch.facts()
    assert facts["n_without_estimate"] == 1
    assert facts["n_valid"] == np.count_nonzero(watch.is_valid)
    assert facts["n_valid"] + facts["n_not_yet_valid"] == 4
    assert facts["valid_after_updates_least"] == pytest.approx(10.0)
    assert facts["valid_after_updates"] == pytest.approx(100.0)


def test_questions_without_an_estimate_are_left_out_of_its_mean() -> None:
    horde = mixed_horde()
    with toy_life(ToyBody(), horde) as life:
        life.run(300)
    estimates = horde.mspbe_scalar
    assert np.isnan(estimates).tolist() == [False, False, True, False, False]
    mean = estimates[[0, 1, 3, 4]].mean()
    assert mean != 0.0
    assert sample(300, 299, horde).mspbe_scalar_mean == pytest.approx(mean)
    progress = Progress(1000, 0.1, Console(file=io.StringIO()))
    progress.watch = MspbeWatch(horde)
    assert dict(progress.facts(300, 1.0, horde, None))["mean MSPBE (online)"].startswith(
        f"{mean:.3g} ("
    )


def test_a_horde_whose_rules_have_no_w_shows_no_estimate() -> None:
    horde = horde_of(toy_questions(), FACE, algorithm="td")
    progress = Progress(1000, 0.1, Console(file=io.StringIO()))
    progress.watch = MspbeWatch(horde)
    facts = dict(progress.facts(300, 1.0, horde, None))
    assert facts["mean MSPBE (online)"] == "none: no update rule of these questions has w"
    assert np.isnan(sample(0, 0, horde).mspbe_scalar_mean)


def test_progress_shows_speed_scores_and_time_left() -> None:
    """250 of 1000 steps in 0.5 s: 500 steps/s, 50 times real time at 10 Hz, 1.5 s left (shown as 2).

    Three questions have an online NMSRE of 1.3 / .25, .9 / .25 and 1 / 2.5e-11; the fourth has
    diverged.
    """
    horde: Any = SimpleNamespace(
        max_trace=9.99,
        diverged=["a", "b", "c", "d"],
        names=["q", "r", "s", "a"],
        shards=[SimpleNamespace(lag=3), SimpleNamespace(lag=12)],
    )
    policy = PolicyUnderTest(0, np.arange(4), np.array([0, 0, 1, 1]), np.zeros(4))
    errors = ReturnErrors([policy], 4)
    for k, reached in enumerate(([1.0, 0.0], [2.0, 1e-5])):
        test = TestExcursion(policy, np.array([0.0, 2.0, 1.0, 1.0]), k, horizon=1)
        test.observe(np.array(reached))
        errors.add(test, [3])
    progress = Progress(1000, 0.1, Console(file=io.StringIO()))
    progress.steps = np.array([0.1, 0.01])

    facts = dict(progress.facts(250, 0.5, horde, errors))
    progress.time_name = ""
    facts_without_time = dict(progress.facts(250, 0.5, horde, errors))
    assert "robot time" not in facts_without_time
    assert facts_without_time["speed"] == "500 steps/s"
    assert facts == {
        "steps": "250 of 1,000 (25 %)",
        "robot time": "25 s",
        "speed": "500 steps/s, 50 x real time",
        "NMSRE (online)": "median 5.200, mean 1.33e10 (1: no better than the mean return), 1 nearly constant",
        "tests": "2",
        "max trace": "9.99",
        "shards": "2, at most 12 steps behind",
        "diverged": "4 (a, b, c, ...)",
        "time left": "2 s",
    }


def test_unknown_values_are_shown_in_words() -> None:
    """No question was tested twice, or every demon diverged; "nan" is never shown."""
    horde = SpyHorde(toy_questions())
    student = StreamLearner(horde, FACE)  # type: ignore[arg-type]
    progress = Progress(1000, 0.1, Console(file=io.StringIO()))
    progress.watch = SimpleNamespace(is_valid=np.zeros(horde.n_demons, dtype=bool))  # type: ignore[assignment]

    for n in (0, 1):
        if n:  # one test has no variance
            student.errors.n_tests[:9] = 1
        facts = dict(progress.facts(10, 0.1, horde, student.errors))  # type: ignore[arg-type]
        assert facts["NMSRE (online)"] == "not yet: no question was tested twice"

    horde.diverged = list(horde.names)
    horde.mspbe_scalar = np.full(horde.n_demons, np.nan)
    facts = dict(progress.facts(10, 0.0, horde, None))  # type: ignore[arg-type]
    assert facts["mean MSPBE (online)"] == "none: every demon diverged"
    assert not any("nan" in value for value in facts.values())


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_plain_lines_without_a_terminal(is_terminal: bool) -> None:
    file = io.StringIO()
    progress = Progress(100, 0.1, Console(file=file, force_terminal=is_terminal, width=120))
    progress.every_s = 0.0
    horde = SpyHorde(toy_questions())
    progress.start()
    live(3, ToyBody(), horde, observers=[progress])
    progress.stop()

    assert ("\x1b[" in file.getvalue()) is is_terminal
    assert "3 of 100" in file.getvalue()
    if not is_terminal:
        assert len(file.getvalue().splitlines()) == 4


def test_weights_do_not_depend_on_how_often_progress_is_shown() -> None:
    """Steps wait to be taken in batches; a look by the clock that took them early would change the rounding."""
    hashes = []
    shown = []
    for every_s in (0.0, 1e9):
        horde = horde_of(toy_questions(), FACE, "deferred")
        file = io.StringIO()
        progress = Progress(400, 0.1, Console(file=file))
        progress.every_s = every_s
        live(400, ToyBody(), horde, observers=[progress], excursions=OFTEN)
        hashes.append(horde.weights_sha256())
        shown.append(len(file.getvalue().splitlines()))
    assert hashes[0] == hashes[1]
    assert shown[0] > 5 > shown[1]


def test_the_time_of_a_batch_is_divided_among_its_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deferring a step takes 1 ms, a batch of four 9 ms more, and the last batch of two 4 ms."""
    clock_s = [0.0]
    monkeypatch.setattr(
        "horde_agent.life.learner.time", SimpleNamespace(perf_counter=lambda: clock_s[0])
    )
    horde = SpyHorde(toy_questions())

    def take() -> None:
        clock_s[0] += {4: 9e-3, 2: 4e-3}[horde.n_waiting]
        horde.n_waiting = 0

    def note() -> None:
        clock_s[0] += 1e-3
        horde.n_waiting += 1
        if horde.n_waiting == 4:
            take()

    horde.on_learn = note
    monkeypatch.setattr(horde, "catch_up", take)
    student = StreamLearner(horde, FACE)
    student.observe(np.zeros(3, dtype=np.float32), 0)
    for age in range(1, 7):
        student.set_action(Phase.BEHAVE, 0, 0.5, age)
        student.observe(np.full(3, age / 1000, dtype=np.float32), 0)
        clock_s[0] += 1.0  # time between updates does not count
    student.catch_up()
    student.catch_up()

    np.testing.assert_allclose(
        student.learn_s.latest(6), [(1 + 1 + 1 + 1 + 9) / 4e3] * 4 + [(1 + 1 + 4) / 2e3] * 2
    )
