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


@pytest.mark.parametrize(
    ("name", "channel", "share", "expected"),
    [
        ("light", "light_2", 1.0, 0.4375),  # mean of (1, .25, .25, .25)
        ("beacon", "ir_light_5", 0.9, 0.9),  # the brightest sensor
        ("centre", "ir_distance_9", 0.8, -0.8),  # the nearest wall
        ("spin", "rotational_velocity", 0.75, 0.5),  # 0 .. 1 is -1 .. 1 of the largest yaw rate
        ("none", "light_0", 1.0, 0.0),
    ],
)
def test_the_reward_of_each_task(name: str, channel: str, share: float, expected: float) -> None:
    assert reward(name, observation(**{channel: share})) == pytest.approx(expected)


def test_the_default_task_is_none_and_an_unknown_one_names_the_choices() -> None:
    assert task(None) is task("none")
    with pytest.raises(ValueError, match=r"unknown task 'lihgt'; choose one of none, light, beacon, centre, spin"):
        task("lihgt")


@pytest.mark.parametrize("name", sorted(TASKS))
def test_rewards_lie_between_minus_one_and_one(name: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        after = rng.random(SPEC.n_channels).astype(np.float32)
        assert -1.0 <= reward(name, after) <= 1.0
