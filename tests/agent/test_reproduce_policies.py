"""Experiment `policies`: what counts as a fall, and that splitting by gamma changes nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from examples.reproduce import policies
from examples.reproduce.checks import judge
from examples.reproduce.policies import (
    FEW,
    GAMMAS,
    MANY,
    SIZES,
    PoliciesResults,
    PolicyCourse,
    asked,
    fall,
    follow,
    growth_factors,
    horde_of,
    tables,
)
from examples.reproduce.training_data import TrainingData
from horde_agent.policies import Gibbs, StickyRandom
from horde_agent.record import UNKNOWN_POSE, Phase, Recorder, Row, Stream, read
from horde_agent.scoring.trace_growth import trace_growth
from tests.agent.shared import robot_interface

ROBOT = robot_interface()


def robot_life(n_steps: int, path: Path) -> Stream:
    """Record a made-up life of readings that wander, and return its rows."""
    rng = np.random.default_rng(0)
    behaviour = StickyRandom(5)
    wander = np.cumsum(rng.normal(scale=0.03, size=(n_steps + 1, 57)), axis=0)
    with Recorder(57, path) as recorder:
        for step, observation in enumerate(0.5 + 0.5 * np.sin(wander)):
            if step < n_steps:
                phase = Phase.BEHAVE
            else:
                phase = Phase.END
            recorder.write(
                Row(
                    step,
                    0.1 * step,
                    observation.astype(np.float32),
                    *behaviour.draw(rng),
                    phase,
                    0,
                    UNKNOWN_POSE,
                )
            )
    return read(path)


def course(
    curves: list[list[float]], gamma: list[float] | None = None, aside: int = 0, trace: float = 9.0
) -> PolicyCourse:
    """Return a course of given curves, each a list over time; the first ones were set aside, at gamma .95."""
    mspbe = np.array(curves, dtype=np.float32).T
    steps, n = mspbe.shape
    return PolicyCourse(
        np.arange(1, steps + 1) * 100,
        mspbe,
        np.full((steps, len(GAMMAS)), trace),
        np.tile([0, 0, 0, aside], (steps, 1)),
        np.array(gamma or [0.0] * n),
        np.arange(n) >= aside,
    )


@pytest.mark.parametrize(
    ("curves", "aside", "expected"),
    [
        # 20 samples: the last tenth is two. One peaks at 4 and ends at 1, the other stays at 2: (1
        # + 2) / (4 + 2).
        ([[0.0, 4.0, *[3.0] * 16, 0.5, 1.5], [2.0] * 20], 0, (0.5, 0.5, 0.0, 200)),
        # Ends of -.8 and -.2 of peaks of 1: the first is as far from 0 as a rise; both are no
        # MSPBE.
        ([[1.0, *[-0.8] * 9], [1.0, *[-0.2] * 9]], 0, (-0.5, 0.5, 1.0, 100)),
        # An estimate that was set aside is 0 from then on, which would look like perfect learning.
        ([[8.0, *[0.0] * 9], [2.0] * 10], 1, (1.0, 0.0, 0.0, 100)),
    ],
)
def test_a_fall_is_measured_from_the_peak_to_the_last_tenth(
    curves: list[list[float]], aside: int, expected: tuple[float, ...]
) -> None:
    assert fall(course(curves, aside=aside)) == pytest.approx(expected)


def test_each_gamma_has_its_own_largest_trace(tmp_path: Path) -> None:
    """Of gamma 0 it is the largest ratio, of others more."""
    scores = follow(
        TrainingData(robot_life(60, tmp_path / "life.rec")),
        horde_of(ROBOT, asked(ROBOT, 3, 24), "clipped"),
        ROBOT,
    )
    assert np.unique(scores.max_trace[-1]).size == len(GAMMAS)
    assert np.abs(scores.mspbe[-1]).max() > 0


def test_where_every_question_was_set_aside_nothing_fell() -> None:
    """All of gamma .95 at once, as under a step size that is too large: a row of the table, and no verdict but no."""
    lost = course([[0.0, 1.0, *[0.1] * 8]] * 4, list(GAMMAS), aside=4)
    assert np.isnan(fall(lost).of_mean)
    rules = dict.fromkeys(("clipped", "capped", "plain"), course([[1.0] * 3] * 4, list(GAMMAS)))
    times = {"p50": 50.0, "p99": 90.0, "max": 150.0}
    measured = PoliciesResults(
        few={0: lost},
        many=lost,
        rules=rules,
        cycles={FEW: times, MANY: times},
        growth=np.full(5, 1.8),
        size=SIZES["paper"],
    )
    assert judge(policies, measured)[0].verdict == "not reproduced"
    assert tables(measured)[0].rows[4][3] is None


def test_the_growth_of_a_trace_is_that_of_the_policys_mean_square(tmp_path: Path) -> None:
    """A policy without parameters is uniform: M = .2^2 / b(a | l) has the spectral radius that trace_growth gives."""
    path = tmp_path / "life.rec"
    robot_life(10, path)
    [gvf] = asked(ROBOT, 0, 1)
    uniform = replace(
        gvf, target_policy=Gibbs(5, ROBOT.coder.n_features, np.zeros(0, np.int64), np.zeros(0))
    )
    expected = trace_growth(np.full(5, 0.2), StickyRandom(5).transition_probabilities(), 1.0, 1.0)
    factors = growth_factors(ROBOT, [gvf, uniform], path)
    assert factors[1] == pytest.approx(expected)
    assert factors[0] > factors[1]
