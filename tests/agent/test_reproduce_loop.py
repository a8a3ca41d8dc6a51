"""Experiment `loop`: the channel that needs memory, and the inputs of each variant."""

from __future__ import annotations

import numpy as np

from examples.reproduce.loop import (
    ALONE,
    MINUTE,
    TRUTH,
    learn_and_score,
    remembering,
    since_touch,
    with_copy,
    with_memory,
)
from horde_agent.record import Recorder, Row, Stream
from tests.agent.shared import robot_interface

ROBOT = robot_interface()
NEAR_CHANNEL = ROBOT.index("ir_distance_3")


def life(n_steps: int, touches: list[int], breaks: list[int] | None = None) -> Stream:
    """Return a life of the robot that stands still, all readings .5, but for the steps at which it is at a wall."""
    recorder = Recorder(57)
    for t in range(n_steps):
        o = np.full(57, 0.5, np.float32)
        if t in touches:
            o[NEAR_CHANNEL] = 0.9
        else:
            o[NEAR_CHANNEL] = 0.1
        flags = int(t == 0 or t in (breaks or []))
        recorder.write(Row(t, 0.1 * t, o, 0, 0.2, 0, flags, (0.0, 0.0, 0.0)))  # type: ignore[arg-type]
    return recorder.stream()


def test_time_since_the_wall_is_counted_up_to_its_cap_and_forgotten_over_a_gap() -> None:
    touches = np.zeros(12, bool)
    broken = np.zeros(12, bool)
    touches[[2, 3]] = broken[[0, 6, 9]] = touches[9] = True
    ages = since_touch(touches, broken, 4)
    np.testing.assert_allclose(ages, np.array([4, 4, 0, 0, 1, 2, 4, 4, 4, 0, 1, 2]) / 4)


def test_the_memory_is_there_to_be_asked_about_and_no_tile_reads_it() -> None:
    interface = remembering(ROBOT)
    rows = with_memory(life(80, [10]), ROBOT).rows
    np.testing.assert_allclose(
        rows["observation"][[9, 10, 20, 59, 60, 79], -1], [1, 0, 0.2, 0.98, 1, 1]
    )
    assert (interface.coder.n_features, interface.coder.n_active) == (
        ROBOT.coder.n_features,
        ROBOT.coder.n_active,
    )
    early_observation = rows["observation"][20]
    late_observation = rows["observation"][79]
    np.testing.assert_array_equal(
        interface.encode(early_observation), interface.encode(late_observation)
    )
    np.testing.assert_array_equal(
        interface.encode(early_observation), ROBOT.encode(early_observation[:-1])
    )


def test_with_the_loop_open_the_tiles_code_what_outsiders_said_one_step_before() -> None:
    """As many tiles as with the loop; a prediction does not depend on the one before it."""
    stream = with_memory(life(5 * MINUTE, [30, 700, 1300]), ROBOT)
    interface = remembering(ROBOT)
    widened, opened = with_copy(stream, interface)
    assert (opened.coder.n_active, opened.coder.n_features) == (457 + 64, 6065 + 8 * 64)
    predictions = widened.rows["observation"][:, -2:]
    assert predictions[0].tolist() == [0.0, 0.0]
    # Learning rests in the third minute: the same observation, the same words.
    held_out = predictions[2 * MINUTE + 1 : 3 * MINUTE]
    still = stream.rows["observation"][2 * MINUTE : 3 * MINUTE - 1, NEAR_CHANNEL] < 0.5
    assert np.unique(held_out[still], axis=0).shape == (1, 2)
    assert np.abs(held_out).max() > 0.1


def test_only_a_memory_foretells_what_the_observation_does_not_show() -> None:
    """Touches come at random, once in about 60 steps, and all else stands still.

    A constant prediction has an error of at least the variance, 1. Given the true time, the next
    value (gamma 0) is known except at touches, which are one step in 60.
    """
    rng = np.random.default_rng(0)
    n_steps = 8 * MINUTE
    stream = with_memory(
        life(n_steps, np.flatnonzero(rng.random(n_steps) < 1 / 60).tolist()), ROBOT
    )
    errors = {v: learn_and_score(stream, remembering(ROBOT), v).nmse for v in (ALONE, TRUTH)}
    assert (errors[ALONE] > 0.95).all()
    assert errors[TRUTH][0] < 0.5
