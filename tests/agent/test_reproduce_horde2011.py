"""Experiment `horde2011`: the behaviours and the measured times."""

from __future__ import annotations

from itertools import groupby, pairwise

import numpy as np
import pytest

from examples.reproduce.horde2011 import (
    LONGEST_BOUT,
    REST_STEPS,
    SPIN_STEPS,
    Spinner,
    Wanderer,
    regression_nmse,
    until_obstacle,
    until_rest,
)
from tests.agent.shared import robot_interface

ROBOT = robot_interface()
NO_TILES = np.zeros(0, dtype=np.int64)


def seen(**readings: float) -> np.ndarray:
    """Return an observation of .5 but for some channels."""
    observation = np.full(len(ROBOT.channels), 0.5)
    for name, value in readings.items():
        observation[ROBOT.index(name)] = value
    return observation


def test_the_wanderer_is_sticky_and_ends_a_bout_after_one_second() -> None:
    """It repeats with probability .6; after ten steps each other action has .1 / .4."""
    wanderer = Wanderer(5)
    rng = np.random.default_rng(0)
    drawn = [wanderer.draw(rng) for _ in range(30_000)]
    bouts = [list(bout) for _, bout in groupby(drawn, key=lambda pair: pair[0])]
    lengths = np.array([len(bout) for bout in bouts])
    assert lengths.max() == LONGEST_BOUT
    assert lengths.mean() == pytest.approx((1 - 0.6**10) / 0.4, abs=0.06)
    first = {
        round(bout[0][1], 9) for before, bout in pairwise(bouts) if len(before) == LONGEST_BOUT
    }
    assert first == {0.25}
    assert {round(b, 9) for bout in bouts[1:] for _, b in bout[1:]} == {0.6}


def test_the_spinner_stops_until_the_robot_rests() -> None:
    """Spinning takes 15 steps in a direction drawn; here the robot rests 5 steps after each spin."""
    spinner = Spinner(ROBOT)
    rng = np.random.default_rng(0)
    turning = 0
    drawn = []
    for _ in range(400):
        pair = spinner.draw(rng, seen(rotational_velocity=0.6 if turning else 0.5), NO_TILES)
        if pair[0] != spinner.stop:
            turning = 5
        else:
            turning = max(turning - 1, 0)
        drawn.append(pair)
    bouts = [list(bout) for _, bout in groupby(drawn, key=lambda pair: pair[0] == spinner.stop)]
    assert {len(bout) for bout in bouts[1:-1:2]} == {SPIN_STEPS}
    assert {len(bout) for bout in bouts[2:-1:2]} == {5 + REST_STEPS}
    assert all([b for _, b in bout] == [0.5] + [1.0] * (SPIN_STEPS - 1) for bout in bouts[1:-1:2])
    assert {bout[0][0] for bout in bouts[1::2]} == {2, 3}


def test_continuations_end_at_the_obstacle_and_at_rest() -> None:
    """Rotational velocity is scaled from -5.4..5.4 rad/s: .1 rad/s is .5 + .1 / 10.8."""
    goes_on = until_obstacle(ROBOT)
    moves = until_rest(ROBOT)
    assert [goes_on(seen(ir_distance_0=near), NO_TILES) for near in (0.59, 0.61)] == [1.0, 0.0]
    rates = [0.5 + rate / 10.8 for rate in (-0.11, -0.09, 0.09, 0.11)]
    assert [moves(seen(rotational_velocity=rate), NO_TILES) for rate in rates] == [
        1.0,
        0.0,
        0.0,
        1.0,
    ]


def test_regression_on_the_other_approaches_finds_times_that_the_tiles_tell() -> None:
    """Two kinds of start, 3 and 7 steps from the obstacle: known from the others, but for the ridge."""
    kind = np.arange(40) % 2
    rng = np.random.default_rng(0)
    tiles = np.column_stack([kind, kind + 10, 20 + np.arange(40)])
    assert regression_nmse(tiles, 3 + 4 * kind) < 0.05
    assert regression_nmse(tiles, rng.permutation(3 + 4 * kind)) > 0.5
