"""A body without an engine: follows its requests with a lag and stops at the walls. A life for the sensors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from horde_env.robot import RobotSpec
from horde_env.robots.critterbot.simulator import packet as kernels
from horde_env.robots.critterbot.simulator.sensors import Senses

PACKET_S, LAG_S, REACH_M = 0.01, 0.15, 0.875


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
    senses: Senses, before: BodyState, now: BodyState, t_s: float, rng: np.random.Generator, out: np.ndarray
) -> None:
    """Write channels 16..52 of the packet at `t_s`, as `period.sample` does for a body with an engine."""
    noise = rng.standard_normal(senses.n_normal), rng.random((2, senses.n_uniform))
    *kit, times, room = senses.at(t_s)
    air = kernels.air_at(times, room, t_s)
    felt = 0.5 * (before.ax + now.ax), 0.5 * (before.ay + now.ay)
    poses = (*before[:3], before.yaw_rate, *before[6:8]), (*now[:3], now.yaw_rate, *felt)
    kernels.read(*kit, *noise, *poses, now.wheel_speed, now.duty, now.contact_n_s, air, out[16:53])


def at(x: float = 0.0, y: float = 0.0, heading: float = 0.0, **rest: float) -> BodyState:
    """Return a body standing still at a place, with any other of its quantities as given."""
    still = BodyState(x, y, heading, 0.0, 0.0, 0.0, 0.0, 0.0, np.zeros(3), np.zeros(3), 0.0)
    return still._replace(**rest)


def wheels(spec: RobotSpec, forward: float, left: float, yaw_rate: float) -> np.ndarray:
    """Return the rim speeds of a body velocity: wheel at angle p drives tangentially, counter-clockwise positive."""
    p = np.deg2rad(spec.drive["wheel_angles_deg"])
    return -np.sin(p) * forward + np.cos(p) * left + spec.drive["wheel_circle_m"] * yaw_rate


def packet(spec: RobotSpec, body: BodyState, request: np.ndarray) -> BodyState:
    """Return the body one packet later under a request (vx forward, vy left, yaw rate)."""
    c, s = math.cos(body.heading), math.sin(body.heading)
    step = PACKET_S / LAG_S
    vx = body.vx + step * (c * request[0] - s * request[1] - body.vx)
    vy = body.vy + step * (s * request[0] + c * request[1] - body.vy)
    yaw_rate = body.yaw_rate + step * (request[2] - body.yaw_rate)
    x, y = body.x + PACKET_S * vx, body.y + PACKET_S * vy
    contact = 0.0
    if abs(x) > REACH_M:
        contact, x, vx = contact + 4.0 * abs(vx), math.copysign(REACH_M, x), 0.0
    if abs(y) > REACH_M:
        contact, y, vy = contact + 4.0 * abs(vy), math.copysign(REACH_M, y), 0.0
    heading = math.remainder(body.heading + PACKET_S * yaw_rate, 2.0 * math.pi)
    speeds = wheels(spec, c * vx + s * vy, c * vy - s * vx, yaw_rate)
    duty = np.clip(1.5 * speeds, -1.0, 1.0)
    ax, ay = (vx - body.vx) / PACKET_S, (vy - body.vy) / PACKET_S
    return BodyState(x, y, heading, vx, vy, yaw_rate, ax, ay, speeds, duty, contact)


def wander(spec: RobotSpec, rng: np.random.Generator, n_steps: int) -> Iterator[list[BodyState]]:
    """Yield the eleven bodies of each 100 ms of a sticky random life: the last one before, then ten packets."""
    body, action = at(heading=0.5), 4
    for _ in range(n_steps):
        if rng.random() >= 0.5:
            action = int(rng.integers(5))
        bodies = [body]
        for _ in range(10):
            bodies.append(packet(spec, bodies[-1], spec.requests[action]))
        body = bodies[-1]
        yield bodies
