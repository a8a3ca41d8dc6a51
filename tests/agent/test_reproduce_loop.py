"""Experiment `loop`: the channel that needs memory, the inputs of each variant, and the verdicts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from examples.reproduce import loop
from examples.reproduce.loop import (
    ALONE,
    CLOSED,
    MINUTE,
    OPEN,
    TRUTH,
    LoopResults,
    MemoryOutcome,
    Ring,
    composed_values,
    learn_and_score,
    remembering,
    ring_values,
    since_touch,
    with_copy,
    with_memory,
)
from horde_agent.record import Recorder, Row, Stream
from horde_agent.types import Floats
from tests.agent.reproducing import letters
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


KNOWN = ring_values()
COMPOSED = composed_values()
GOOD_RING = Ring(KNOWN, np.full(6, 0.8), KNOWN)


def data(
    alone: Sequence[float] = (0.5,),
    looped: Sequence[float] = (0.3,),
    others: Sequence[float] = (0.5,),
    ring: Ring = GOOD_RING,
    composed: Floats = COMPOSED,
) -> LoopResults:
    """Return made-up errors, one per seed, the same at both gammas, and the known answers of the small worlds."""
    nothing = np.zeros(1)
    errors = {ALONE: alone, CLOSED: looped, OPEN: others, TRUTH: [0.1] * len(alone)}
    outcomes = {
        variant: {
            seed: MemoryOutcome(np.full(2, error), nothing, nothing)
            for seed, error in enumerate(each)
        }
        for variant, each in errors.items()
    }
    return LoopResults(outcomes, ring, composed)


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        (([0.5, 0.6, 0.55], [0.3, 0.4, 0.35], [0.5, 0.6, 0.55]), "r"),
        (([0.5, 0.6, 0.55], [0.3, 0.4, 0.35], [0.2, 0.3, 0.25]), "p"),  # the control is better
        (([0.5, 0.6, 0.55], [0.49, 0.2, 0.54], [0.8, 0.5, 0.85]), "p"),  # an interval that holds 0
        (([0.5, 0.6, 0.55], [0.51, 0.2, 0.2], [0.5, 0.2, 0.2]), "n"),  # worse in one life
        (([0.5], [0.4], [0.5]), "r"),
    ],
)
def test_the_loop_must_beat_both_in_every_life(
    errors: tuple[list[float], ...], expected: str
) -> None:
    assert letters(loop, data(*errors))[0] == expected


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (data(composed=COMPOSED + 0.1), "rr"),
        (data(composed=COMPOSED + np.array([0.0, 0.2])), "rp"),
        (data(ring=Ring(KNOWN + 0.02, np.full(6, 0.8), KNOWN)), "pr"),
        (data(ring=Ring(KNOWN, KNOWN, KNOWN)), "pr"),  # impossible without memory
    ],
)
def test_the_small_worlds_are_judged_by_their_known_answers(
    measured: LoopResults, expected: str
) -> None:
    assert letters(loop, measured)[1:] == expected
