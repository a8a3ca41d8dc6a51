"""Nexting on a recorded log: rows to learn from, rows to score, and their returns."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from horde_agent import GVF, Behaviour, Channel, Interface
from horde_agent.life.flags import are_followed
from horde_agent.life.student import Student
from horde_agent.questions import nexting
from horde_agent.record import Flag, Phase, Recorder, Row, Stream
from horde_agent.runs.jobs import holdout
from horde_agent.runs.jobs.holdout import LEARNED_SHARE, Holdout, known_returns, read_log, returns_of
from horde_agent.runs.jobs.tables import holdout_traces
from tests.agent.doubles import SpyHorde, ToyBody, age_of

FACE = Interface.of(ToyBody())
BROKEN = [Flag.GAP, Flag.NOT_APPLIED, Flag.STALE]


def stream_of(rewards: list[float], flags: dict[int, int] | None = None, action: int = 0) -> Stream:
    """Return a stream: its first channel is its age, its second `rewards`."""
    recorder = Recorder(3)
    for k, reward in enumerate(rewards):
        observation = np.array([k / 10_000, reward, 0.0], dtype=np.float32)
        phase = Phase.END if k == len(rewards) - 1 else Phase.BEHAVE
        flag = (flags or {}).get(k, Flag.GAP if k == 0 else Flag.NONE)
        recorder.write(Row(k, 0.1 * k, observation, action, 1.0, phase, flag, (np.nan,) * 3))
    return recorder.stream()


def learn_and_score(stream: Stream, student: Student, passes: int, observer: Any = None, size: int = 13) -> Holdout:
    """Learn from a stream in parts of `size` rows, and score."""
    rows = [stream[k : k + size] for k in range(0, len(stream), size)]
    holdout.learn(rows, student, passes, observer)
    return holdout.score(rows, student)


@pytest.mark.parametrize("flag", BROKEN)
def test_a_return_ends_where_the_stream_is_broken(flag: int) -> None:
    """Broken at the third reading: nothing runs across, and the row before is followed by nothing."""
    stream = stream_of([9.0, 1.0, 2.0, 4.0, 8.0], {2: flag})
    assert returns_of(stream.rows, np.array([1]), np.array([0.5]))[:, 0].tolist() == [1.0, 0.0, 8.0, 8.0, 0.0]
    assert are_followed(stream.rows["flags"]).tolist() == [True, False, True, True, False]


@pytest.mark.parametrize(("n", "split"), [(100, 70), (101, 71)])
def test_the_first_seventy_percent_are_learned_from_and_no_more(n: int, split: int) -> None:
    """70 of 100 rows: 69 transitions in each of two passes; rows from 70 on are predicted.

    A pass does not continue from the last row of the one before, though no row is flagged as a gap.
    """
    horde: Any = SpyHorde(nexting(FACE, (0.5,)))
    horde.predict = lambda tiles: np.zeros(3)
    seen: list[int] = []
    student = Student(horde, FACE)
    stream = stream_of([0.1] * n, {0: Flag.NONE})
    score = learn_and_score(stream, student, passes=2, observer=lambda student, step: seen.append(step))
    assert LEARNED_SHARE == 0.7
    assert [(call[1], call[4]) for call in horde.learned] == [(k, k + 1) for k in range(split - 1)] * 2
    assert seen == [*range(split)] * 2
    assert (score.n_learned, score.n_scored) == (split, n - split - 1)


@pytest.mark.parametrize("flag", BROKEN)
def test_broken_rows_are_neither_learned_nor_scored(flag: int) -> None:
    """Row 30 is broken in the part that is learned, row 80 in the other: the row before each leads nowhere."""
    horde: Any = SpyHorde(nexting(FACE, (0.5,)))
    horde.predict = lambda tiles: np.zeros(3)
    student = Student(horde, FACE)
    score = learn_and_score(stream_of([1.0] * 100, {30: flag, 80: flag}), student, passes=1)
    assert [call[1] for call in horde.learned] == [k for k in range(69) if k != 29]
    assert score.shown[1][:, 0].tolist() == [k - 70 for k in range(70, 99) if k != 79]
    assert score.n_scored == 28


def test_the_score_is_the_squared_error_over_the_variance_of_the_returns() -> None:
    """At gamma 0 the return is the next reading. Held out: 15 readings of 1 and 13 of 0; a row before a gap counts not.

    A prediction of 3/4 errs by 1/16 and 9/16. The learned part always reads .5, and so its mean errs by 1/4.
    """
    readings = [0.5] * 70 + [float(k % 2) for k in range(30)]
    readings[90] = 0.9
    horde: Any = SpyHorde([GVF("next", Behaviour(), Channel(1), 0.0)])
    horde.predict = lambda tiles: np.full(1, 0.75)
    score = learn_and_score(stream_of(readings, {90: Flag.GAP}), Student(horde, FACE), passes=1)
    variance = 15 / 28 * 13 / 28
    assert score.n_scored == 28
    assert score.variance[0] == pytest.approx(variance)
    assert score.nmsre[0] == pytest.approx((15 / 16 + 13 * 9 / 16) / 28 / variance)
    assert score.nmsre_of_mean[0] == pytest.approx(0.25 / variance)
    lines = holdout_traces(score.shown, score.channel, horde, FACE.names, 0.1)
    assert len(lines) == 28
    assert {line[5] for line in lines} == {0.0, 1.0}


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_scores_do_not_depend_on_the_parts_in_which_a_log_is_read(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Returns at gamma .9 run across several parts, and end at gaps; so does a prediction that is fed back."""
    monkeypatch.setattr(holdout, "MOST_ROWS", 5)
    rewards, flags = np.random.default_rng(0).random(200).tolist(), {20: Flag.GAP, 160: Flag.STALE}
    stream = stream_of(rewards, flags)
    horde: Any = SpyHorde(nexting(FACE, (0.5, 0.9)))
    horde.predict = lambda tiles: np.full(6, 0.3)
    found = learn_and_score(stream, Student(horde, FACE), 0, size=size)
    learned, held_out = stream[:140], stream[140:]
    channel, gamma = known_returns(horde)
    known, scored = (are_followed(part.rows["flags"]) for part in (learned, held_out))
    actual, mean = (
        returns_of(held_out.rows, channel, gamma)[scored],
        returns_of(learned.rows, channel, gamma)[known].mean(axis=0),
    )
    variance = actual.var(axis=0)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-9)
    vary = variance > 0
    of_mean = ((mean - actual) ** 2).mean(axis=0)[vary] / variance[vary]
    np.testing.assert_allclose(found.nmsre_of_mean[vary], of_mean, rtol=1e-9)
    for demon, shown in found.shown.items():
        np.testing.assert_allclose(shown[:, 2], actual[:, demon], rtol=1e-12)


def test_memory_does_not_grow_with_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times as many rows, made when they are read; only the shown returns are kept, three numbers a row."""
    monkeypatch.setattr(holdout, "MOST_ROWS", 50)
    horde: Any = SpyHorde(nexting(FACE, tuple(np.linspace(0.0, 0.9, 100))))
    horde.predict = lambda tiles: np.zeros(300)

    class Log:
        def __init__(self, n_parts: int) -> None:
            self.n_parts = n_parts

        def __iter__(self) -> Iterator[Stream]:
            return (stream_of([k / 100, *[0.5] * 99], {0: Flag.NONE}) for k in range(self.n_parts))

    peaks = []
    for n_parts in (20, 20, 80):  # the first one imports modules
        tracemalloc.start()
        holdout.score(Log(n_parts), Student(horde, FACE))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 2.0 * peaks[1]  # 3.6 times if each part stayed


class Told(ToyBody):
    """A body with the actions and probabilities of a logged agent."""

    def _info(self) -> dict[str, Any]:
        return super()._info() | {"action": self.age % 3, "b": 0.5 + self.age / 1_000}


def test_a_log_is_read_with_its_flags_its_actions_and_its_end() -> None:
    """The same flags as in a life; the beginning is a gap that is not counted; the environment ends it at age 8."""
    faults = {2: {"gap": 1}, 4: {"stale": 1}, 5: {"applied": 0}, 6: {"gap": 1, "stale": 1}, 8: {"truncated": 1}}
    body, recorder = Told(faults), Recorder(3)
    assert read_log(body, recorder) == 2
    rows = recorder.stream().rows
    assert [age_of(o) for o in rows["observation"]] == list(range(9))
    expected = [Flag.GAP, 0, Flag.GAP, 0, Flag.STALE, Flag.NOT_APPLIED, Flag.GAP | Flag.STALE, 0, 0]
    assert rows["flags"].tolist() == expected
    assert rows["phase"].tolist() == [Phase.BEHAVE] * 8 + [Phase.END]
    assert rows["action"].tolist() == [age % 3 for age in range(9)]
    assert rows["b"].tolist() == [0.5 + age / 1_000 for age in range(9)]
    assert body.actions == [(age, age % 3) for age in range(8)]


def test_a_log_may_be_read_for_so_many_steps() -> None:
    recorder = Recorder(3)
    read_log(ToyBody(), recorder, 5)
    assert recorder.stream().rows["step"].tolist() == [0, 1, 2, 3, 4, 5]


def test_what_cannot_be_scored_is_refused() -> None:
    horde: Any = SpyHorde(nexting(FACE, (0.5,)))
    gaps = dict.fromkeys(range(100), int(Flag.GAP))
    with pytest.raises(ValueError, match="no two consecutive rows"):
        learn_and_score(stream_of([0.0] * 100, gaps), Student(horde, FACE), passes=1)
    assert horde.calls == [], "nothing was learned before it was found out"
    for question in (
        GVF("f", Behaviour(), lambda o, t: 0.0, 0.5),
        GVF("g", Behaviour(), Channel(0), lambda o, t: 0.5),
        GVF("z", Behaviour(), Channel(0), 0.5, outcome=1.0),
    ):
        with pytest.raises(ValueError, match=f"the return of {question.name} cannot be computed from a log"):
            known_returns(SpyHorde([question]))  # type: ignore[arg-type]
