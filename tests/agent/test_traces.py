"""Predictions of a few questions beside what then happened: which question, which excursion, and how much of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from horde_agent.interface import Interface
from horde_agent.measures.passes import PolicyScores
from horde_agent.measures.returns import PolicyUnderTest
from horde_agent.record import Flag, Phase, Recorder, Row, Stream
from horde_agent.runs.jobs import curves as traces
from tests.agent.doubles import ToyBody

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
        n = last if k == n_excursions - 1 else HORIZON
        for phase, action in [(Phase.BEHAVE, 0), *[(Phase.EXCURSION, 1)] * n]:
            seen = np.array([step / 1000, 1 - step / 1000, 0.0], dtype=np.float32)
            recorder.write(Row(step, 0.1 * step, seen, action, 1.0, phase, Flag.NONE, (0.0, 0.0, 0.0)))
            step += 1
    if last == HORIZON:
        seen = np.array([step / 1000, 1 - step / 1000, 0.0], dtype=np.float32)
        recorder.write(Row(step, 0.1 * step, seen, 0, 1.0, Phase.END, Flag.NONE, (0.0, 0.0, 0.0)))
    return recorder.stream()


def lines(n_excursions: int, last: int = HORIZON) -> list[dict[str, Any]]:
    starts = np.array([1 + k * (HORIZON + 1) for k in range(n_excursions)])
    course = PolicyScores(0, POLICY, starts, np.full(3, n_excursions), np.ones(3), np.zeros(3))
    horde: Any = SimpleNamespace(names=["age/0", "age/.5", "saw/.25"], n_demons=3, predict=lambda _: [1.0, 2.0, 3.0])
    found = traces.excursion_traces(life(n_excursions, last), horde, Interface.of(ToyBody()), [course], HORIZON)
    return [dict(zip(traces.COLUMNS, line, strict=True)) for line in found]


def test_the_last_excursion_is_shown_at_the_longest_time_scale() -> None:
    """From row 14 on; what came is sum_k .5^k age_{t+k+1}, cut at the excursion's end, row 26."""
    shown = lines(2)
    age = [line for line in shown if line["channel"] == "age"]
    assert {line["question"] for line in age} == {"age/.5"}
    assert {line["panel"] for line in age} == {"right"}
    came = sum(0.5**k * (15 + k) / 1000 for k in range(HORIZON))
    assert age[0] == {
        "question": "age/.5",
        "channel": "age",
        "panel": "right",
        "t_s": 0.0,
        "prediction": 2.0,
        "actual": pytest.approx(came, rel=1e-6),
    }
    assert [line["t_s"] for line in age[:3]] == pytest.approx([0.0, 0.1, 0.2])


def test_a_return_is_shown_while_little_of_it_lies_beyond_the_end() -> None:
    """.5^n < .05 from n = 5 on (4 is .0625), .25^n from 3 on (2 is .0625): log .05 / log gamma, rounded down."""
    shown = lines(1)
    assert sum(line["channel"] == "age" for line in shown) == HORIZON - 4
    assert sum(line["channel"] == "saw" for line in shown) == HORIZON - 2
    assert {line["prediction"] for line in shown if line["channel"] == "saw"} == {3.0}


def test_an_excursion_that_is_not_recorded_to_its_end_is_passed_over() -> None:
    """A full disk, a process that was killed: the one before is shown; where there is none, nothing."""
    assert lines(2, last=5) == lines(1)
    assert lines(1, last=5) == []


def test_held_out_steps_are_shown_beside_the_logs_own_returns() -> None:
    shown = {1: np.array([[0, 2.0, 20.0], [1, 5.0, 50.0]]), 2: np.array([[0, 3.0, 30.0], [1, 6.0, 60.0]])}
    horde: Any = SimpleNamespace(names=["a0", "a8", "c5"])
    found = traces.holdout_traces(shown, np.array([0, 0, 2]), horde, ["a", "b", "c"], 0.1)
    panel = "held-out part of the log"
    assert found == [
        ["a8", "a", panel, 0.0, 2.0, 20.0],
        ["a8", "a", panel, 0.1, 5.0, 50.0],
        ["c5", "c", panel, 0.0, 3.0, 30.0],
        ["c5", "c", panel, 0.1, 6.0, 60.0],
    ]


@pytest.mark.parametrize(
    ("channels", "channel", "shown"),
    [
        (["x", "light_0", "y", "rotational_velocity", "z"], [0, 1, 2, 3, 4], [1, 3, 0]),
        (["x", "light_0", "y", "rotational_velocity", "z"], [4, 2, 0], [0, 1, 2]),
        (["x", "y"], [1, 1], [1]),
    ],
)
def test_three_sensors_are_shown_those_that_can_be_pictured_first(
    channels: list[str], channel: list[int], shown: list[int]
) -> None:
    gamma = np.linspace(0.1, 0.2, len(channel))  # the last question about a channel has the longest time scale
    assert traces.shown_demons(channels, np.array(channel), gamma) == shown
