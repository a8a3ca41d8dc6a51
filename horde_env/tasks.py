"""Rewards by name, for training a controller; a Horde needs none.

A task is a pure function of (observation before, request, observation after, robot); observations
are scaled to [0, 1], the request is (vx m/s, vy m/s, yaw rate rad/s), and rewards lie in [-1, 1]
per step. With a leading axis, of robots, it returns an array, or one reward for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from horde_env.backend import Floats, Observation
from horde_env.robot import RobotSpec

Task = Callable[[Observation, Floats, Observation, RobotSpec], Any]


def none(before: Observation, request: Floats, after: Observation, spec: RobotSpec) -> Any:  # noqa: ARG001
    """Return 0: a life without a goal."""
    return 0.0


def light(before: Observation, request: Floats, after: Observation, spec: RobotSpec) -> Any:  # noqa: ARG001
    """Seek light: the mean reading of the light sensors, a share of their range."""
    return after[..., spec.group("light")].mean(axis=-1).astype(np.float64)


def beacon(before: Observation, request: Floats, after: Observation, spec: RobotSpec) -> Any:  # noqa: ARG001
    """Seek the dock: the brightest reading of the infrared light sensors, a share of their range."""
    return after[..., spec.group("ir_light")].max(axis=-1).astype(np.float64)


def centre(before: Observation, request: Floats, after: Observation, spec: RobotSpec) -> Any:  # noqa: ARG001
    """Keep clear of everything: minus the nearest reflection, a share of its range."""
    return -after[..., spec.group("ir_distance")].max(axis=-1).astype(np.float64)


def spin(before: Observation, request: Floats, after: Observation, spec: RobotSpec) -> Any:  # noqa: ARG001
    """Turn counter-clockwise: the gyro's reading, -1 .. 1 over its range."""
    return 2.0 * after[..., spec.index("rotational_velocity")].astype(np.float64) - 1.0


TASKS: dict[str, Task] = {f.__name__: f for f in (none, light, beacon, centre, spin)}


def fits(reward: Task, robot: RobotSpec) -> bool:
    """Return whether a robot has the sensors of a reward."""
    observation = np.zeros(robot.n_channels, np.float32)
    try:
        reward(observation, np.zeros(3), observation, robot)
    except ValueError:  # there is no such channel or group
        return False
    return True


def task(name: str | None, robot: RobotSpec | None = None) -> Task:
    """Return the reward function of that name; `None` means "none".

    Raises:
        ValueError: If there is no such task, or the robot lacks its sensors.
    """
    if name is None:
        return none
    if name not in list(TASKS):  # a list: the name may be unhashable
        raise ValueError(f"unknown task {name!r}; choose one of {', '.join(TASKS)}")
    if robot is not None and not fits(TASKS[name], robot):
        possible = ", ".join(other for other, reward in TASKS.items() if fits(reward, robot))
        raise ValueError(
            f"the {robot.name} lacks the sensors of the task {name!r}; choose one of {possible}"
        )
    return TASKS[name]
