"""A body without an engine, for the sensors; and a wandering life of one with an engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from horde_env.backend import Frame
from horde_env.robots.critterbot.simulator import packet as kernels
from horde_env.robots.critterbot.simulator import period
from horde_env.robots.critterbot.simulator.backend import SimulatedBody
from horde_env.robots.critterbot.simulator.fields import Pose
from horde_env.robots.critterbot.simulator.sensors import Senses


class BodyState(NamedTuple):
    """The inputs of the sensors at one 100 Hz instant, SI units, world frame; the last three are of the wheels."""

    x: float
    y: float
    heading: float
    vx: float
    vy: float
    yaw_rate: float
    ax: float
    ay: float
    wheel_speed: np.ndarray
    duty: np.ndarray
    contact_n_s: float


def read(
    senses: Senses,
    before: BodyState,
    now: BodyState,
    t_s: float,
    rng: np.random.Generator,
    out: np.ndarray,
) -> None:
    """Write channels 16..52 of the packet at `t_s`, as `period.sample` does for a body with an engine."""
    robot = senses.state
    n_ticks = len(robot.path)
    normal = rng.standard_normal(robot.normal.size - 3 * n_ticks - period.N_NOISE)
    uniform = rng.random(robot.uniform.shape)
    senses.move_lamps(t_s)
    air = kernels.air_at(robot.times, senses.room, t_s)
    instant = kernels.Instant(
        previous_pose=Pose(*before[:3], before.yaw_rate, before.ax, before.ay),
        pose=Pose(*now[:3], now.yaw_rate, 0.5 * (before.ax + now.ax), 0.5 * (before.ay + now.ay)),
        wheel_speed=now.wheel_speed,
        duty=tuple(now.duty.tolist()),
        contact_n_s=now.contact_n_s,
    )
    kernels.read(
        senses.scene,
        senses.eyes,
        robot,
        senses.steps,
        normal,
        uniform,
        instant,
        air,
        out[16:53],
    )


def at(x: float = 0.0, y: float = 0.0, heading: float = 0.0, **rest: float) -> BodyState:
    """Return a body standing still at a place, with any other of its quantities as given."""
    still = BodyState(x, y, heading, 0.0, 0.0, 0.0, 0.0, 0.0, np.zeros(3), np.zeros(3), 0.0)
    return still._replace(**rest)


def wander(body: SimulatedBody, n_steps: int, seed: int) -> Iterator[Frame]:
    """Repeat the last action half of the time, else draw a new one."""
    rng = np.random.default_rng(seed)
    action = 4
    for _ in range(n_steps):
        if rng.random() > 0.5:
            action = int(rng.integers(5))
        yield body.exchange(body.spec.requests[action])
