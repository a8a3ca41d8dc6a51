from __future__ import annotations

import numpy as np
import pytest

from horde_env.robot import critterbot
from horde_env.tasks import TASKS, task

SPEC = critterbot()


def observation(**readings: float) -> np.ndarray:
    values = np.full(SPEC.n_channels, 0.25, dtype=np.float32)
    for name, share in readings.items():
        values[SPEC.index(name)] = share
    return values


def reward(name: str, after: np.ndarray) -> float:
    return task(name)(observation(), np.zeros(3), after, SPEC)


def test_light_pays_for_the_light_after_the_step() -> None:
    """Mean of (1, .25, .25, .25)."""
    assert reward("light", observation(light_2=1.0)) == pytest.approx(0.4375)


def test_the_beacon_pays_by_its_brightest_sensor() -> None:
    assert reward("beacon", observation(ir_light_5=0.9)) == pytest.approx(0.9)


def test_centre_fears_the_nearest_wall_alone() -> None:
    assert reward("centre", observation(ir_distance_9=0.8)) == pytest.approx(-0.8)


def test_spin_pays_for_turning_counter_clockwise() -> None:
    turning = SPEC.scale(np.where(np.arange(57) == SPEC.index("rotational_velocity"), 2.7, 0.0))[0]
    assert reward("spin", turning) == pytest.approx(0.5)


def test_no_task_pays_nothing() -> None:
    assert task(None) is task("none")
    assert reward("none", observation(light_0=1.0)) == 0.0


def test_an_unknown_task_names_the_choices() -> None:
    with pytest.raises(ValueError, match=r"unknown task 'lihgt'; choose one of none, light, beacon, centre, spin"):
        task("lihgt")


@pytest.mark.parametrize("name", sorted(TASKS))
def test_rewards_lie_between_minus_one_and_one(name: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        after = rng.random(SPEC.n_channels).astype(np.float32)
        assert -1.0 <= reward(name, after) <= 1.0
