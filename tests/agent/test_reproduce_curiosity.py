"""Experiment `curiosity`: the behaviours and their probabilities, and the record of a life."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from examples.reproduce import curiosity
from examples.reproduce.curiosity import (
    CHANGED,
    FOLLOW,
    NORMAL,
    OTHER,
    ROTATE_STEPS,
    STOP_STEPS,
    THRESHOLD,
    Bouts,
    CuriositySize,
    Curious,
    Record,
    live,
    reaction,
    recovery,
)
from examples.reproduce.experiment import ExperimentContext

NOTHING = (np.zeros(0), np.zeros(0, dtype=np.int64))
CW = 2
CCW = 3
STOP = 4
CHANGE = 6_000
AFTER = 9_000


def test_the_normal_behaviour_alternates_rotations_and_stops_with_true_probabilities() -> None:
    """The probability b is 1/2 at the beginning of a rotation, whose direction is drawn, and 1 elsewhere."""
    bouts = Bouts((CW, CCW), STOP)
    rng = np.random.default_rng(0)
    drawn = [
        bouts.draw(rng, *NOTHING) for _ in range(STOP_STEPS + 200 * (ROTATE_STEPS + STOP_STEPS))
    ][STOP_STEPS:]
    actions = np.array([action for action, _ in drawn]).reshape(200, -1)
    b = np.array([b for _, b in drawn]).reshape(200, -1)
    assert (actions[:, :ROTATE_STEPS] == actions[:, :1]).all()
    assert (actions[:, ROTATE_STEPS:] == STOP).all()
    assert (b[:, 0] == 0.5).all()
    assert (b[:, 1:] == 1.0).all()
    assert np.mean(actions[:, 0] == CW) == pytest.approx(0.5, abs=0.1)


def test_a_curious_robot_follows_the_more_surprised_question_above_the_threshold() -> None:
    behaviour = Curious(Bouts((CW, CCW), STOP), (CW, CCW), CuriositySize(1, 1, 1))
    rng = np.random.default_rng(0)
    behaviour.threshold = 0.5
    behaviour.drive = np.array([0.5, 0.4])
    assert behaviour.draw(rng, *NOTHING) == (STOP, 1.0)
    assert behaviour.followed == NORMAL
    behaviour.drive = np.array([0.6, 0.7])
    drawn = [behaviour.draw(rng, *NOTHING) for _ in range(2_000)]
    assert behaviour.followed == OTHER
    assert set(drawn) == {(CCW, FOLLOW), (STOP, 1.0 - FOLLOW)}
    assert np.mean([action == CCW for action, _ in drawn]) == pytest.approx(FOLLOW, abs=0.03)


@pytest.mark.sim
def test_the_twin_lives_as_a_robot_that_is_never_curious(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both lives are one until the change. Without curiosity they are one to the end, to the bit, tested or not."""

    def live_both(name: str) -> list[Record]:
        context = ExperimentContext(tmp_path / name, "quick", (7,), "simulator", lambda line: None)
        arrays = live(context, 7, ("curious", "twin"), CuriositySize(150, 50, 1))
        return [Record(*(array[k] for array in arrays)) for k in (0, 1)]

    monkeypatch.setattr(curiosity, "THRESHOLD", 0.0)
    curious, twin = live_both("curious")
    assert twin.tested.tolist() == curious.tested.tolist() == [0, 50, 100, 150]
    np.testing.assert_array_equal(curious.drive[:150], twin.drive[:150])
    assert set(curious.followed[151:]) <= {CHANGED, OTHER}
    assert set(twin.followed) == set(curious.followed[:150]) == {NORMAL}
    assert {CHANGED, OTHER} & set(twin.taken)
    monkeypatch.setattr(curiosity, "THRESHOLD", np.inf)
    monkeypatch.setattr(curiosity, "TESTED_FOR", 0)
    calm, _ = live_both("calm")
    assert not calm.tested.size
    np.testing.assert_array_equal(calm.drive, twin.drive)


def record(
    *, surprised: tuple[int, int] = (100, 700), other: tuple[int, int] = (0, 0), recovers: int = 400
) -> Record:
    """Return a life with surprise about each question from a step to another after the change."""
    drive = np.zeros((CHANGE + AFTER, 2))
    for question, (first, last) in ((CHANGED, surprised), (OTHER, other)):
        drive[CHANGE + first : CHANGE + last, question] = 2 * THRESHOLD
    followed = np.where(drive[:, CHANGED] > 0, CHANGED, NORMAL)
    actions = followed.copy()
    actions[CHANGE] = CHANGED
    t = np.arange(CHANGE + AFTER)
    error = np.full(CHANGE + AFTER, np.nan)
    error[::50] = np.where((t < CHANGE) | (t >= CHANGE + recovers), 1.0, 3.0)[::50]
    return Record(drive, actions, followed, error)


def test_a_reaction_is_measured_from_the_first_use_of_the_policy() -> None:
    result = reaction(record(surprised=(100, 700), other=(650, 660)), CHANGE)
    assert result.crossed.tolist() == [True, False]
    assert (result.before, result.settled, result.followed) == (0.0, 700, 1.0)
    assert reaction(record(surprised=(700, 800)), CHANGE).crossed.tolist() == [False, False]
    # The median of three tests, 350, 400 and 450
    assert recovery(record(recovers=400), CHANGE) == 450
    assert recovery(record(recovers=10**6), CHANGE) == AFTER
