"""What moves the Create 2 among what stands in its room: the planar kernels of `world`, or PyBullet.

Both turn the wheels, feel the currents and count with the same kernels; between them the planar engine slides the round
body out of what it meets, and PyBullet pushes it with the force that the wheels can bring to the floor.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from horde_env.backend import Floats
from horde_env.robot import RobotSpec, asset
from horde_env.robots.create2 import world
from horde_env.robots.create2.room import Room
from horde_env.robots.create2.wire import TICK_S
from horde_env.sim.engine import Box, Motion
from horde_env.sim.physics import Physics

WALL_M, HEIGHT_M = 0.1, 0.2
GRIP = 0.6  # friction of rubber on a hard floor: beyond it wheels slip
GRAVITY = 9.81
ON_FACE_M = 0.01

Push = tuple[float, float, float]  # of the world: N, N, N m; or m/s, m/s, rad/s
_NOTHING: Push = (0.0, 0.0, 0.0)


class Mover(Protocol):
    """What moves a body for a tick."""

    def place(self, x: float, y: float, heading: float) -> None:
        """Put it at rest at a pose (metres, radians)."""

    def move(
        self, state: Floats, left: float, right: float, noise: Floats, drag: float, stuck: int, found: Floats
    ) -> None:
        """Let a tick pass; arguments as of `world.move`."""

    def close(self) -> None:
        """Let go of it. Closing twice does nothing."""


class PlanarMover:
    """A round body that slides along what it meets: kernels alone, wherever numba runs."""

    def __init__(self, room: Room) -> None:
        self._segments = room.segments()

    def place(self, x: float, y: float, heading: float) -> None:
        """Nothing is remembered here."""

    def move(
        self, state: Floats, left: float, right: float, noise: Floats, drag: float, stuck: int, found: Floats
    ) -> None:
        """Let a tick pass; arguments as of `world.move`."""
        world.move(state, left, right, noise, drag, stuck, self._segments, found)

    def close(self) -> None:
        """Nothing is held."""


class BulletMover:
    """A rigid body in PyBullet, which the wheels drive with what force their grip allows.

    Raises:
        BackendUnavailable: If PyBullet is missing.
    """

    def __init__(self, spec: RobotSpec, room: Room) -> None:
        from horde_env.sim import bullet

        boxes, self._dock = boxes_of(room), room.dock
        urdf = asset("robot/create2.urdf")
        self._body = bullet.PlanarBody(boxes, tick_s=TICK_S, urdf=urdf)
        self._mass, self._inertia = float(spec.body["mass_kg"]), float(spec.body["inertia_kg_m2"])
        self._most_n = GRIP * self._mass * GRAVITY
        self._most_nm = self._most_n * 0.5 * world.BASE_M
        self._n_dock = len(boxes) - 1
        self._load = _NOTHING

    def place(self, x: float, y: float, heading: float) -> None:
        """Put it at rest at a pose."""
        self._body.place(x, y, heading)
        self._load = _NOTHING

    def move(
        self, state: Floats, left: float, right: float, noise: Floats, drag: float, stuck: int, found: Floats
    ) -> None:
        """Let a tick pass; arguments as of `world.move`."""
        before = self._body.motion
        world.turn_wheels(state, left, right, noise, stuck)
        push = self._traction(before, world.wanted(state))
        after = self._body.step(push)
        state[world.X], state[world.Y], state[world.HEADING] = after.x, after.y, after.heading
        found[:] = 0.0
        touches = self._body.touches()
        self._load = self._reaction(before, after, push) if touches else _NOTHING
        for x, y, box in touches:
            if box == self._n_dock and self._is_on_face(x, y):
                found[world.AT_DOCK] = 1.0
            else:
                world.press(state, x, y, found)
        world.feel(state, left, right, drag, stuck, before.x, before.y, before.heading, found)

    def close(self) -> None:
        """Let go of the client. Closing twice does nothing."""
        self._body.close()

    def _traction(self, now: Motion, wanted: Push) -> Push:
        """Return the force of the floor on the wheels, N and N m: what brings the body to its wanted velocity.

        It holds against what the walls did in the last tick, too, up to the grip: tyres do not creep under a load.
        """
        fx = self._mass / TICK_S * (wanted[0] - now.vx) - self._load[0]
        fy = self._mass / TICK_S * (wanted[1] - now.vy) - self._load[1]
        torque = self._inertia / TICK_S * (wanted[2] - now.yaw_rate) - self._load[2]
        share = min(1.0, self._most_n / max(math.hypot(fx, fy), 1e-9))
        return share * fx, share * fy, min(max(torque, -self._most_nm), self._most_nm)

    def _reaction(self, before: Motion, after: Motion, push: Push) -> Push:
        """Return what the walls did in a tick, N and N m."""
        return (
            self._mass / TICK_S * (after.vx - before.vx) - push[0],
            self._mass / TICK_S * (after.vy - before.vy) - push[1],
            self._inertia / TICK_S * (after.yaw_rate - before.yaw_rate) - push[2],
        )

    def _is_on_face(self, x: float, y: float) -> bool:
        dock = self._dock
        return (x - dock.x) * math.cos(dock.direction) + (y - dock.y) * math.sin(dock.direction) > -ON_FACE_M


def boxes_of(room: Room) -> list[Box]:
    """Return walls, furniture and, last, the dock: centre x, y, size x, y, height (metres), and turned by (radians)."""
    wide, deep = room.side_m
    far_x, far_y = 0.5 * (wide + WALL_M), 0.5 * (deep + WALL_M)
    boxes: list[Box] = [
        (0.0, far_y, wide + 2 * WALL_M, WALL_M, HEIGHT_M, 0.0),
        (0.0, -far_y, wide + 2 * WALL_M, WALL_M, HEIGHT_M, 0.0),
        (far_x, 0.0, WALL_M, deep, HEIGHT_M, 0.0),
        (-far_x, 0.0, WALL_M, deep, HEIGHT_M, 0.0),
    ]
    boxes += [(x, y, size_x, size_y, HEIGHT_M, 0.0) for x, y, size_x, size_y, _ in room.boxes.tolist()]
    dock, (along, behind) = room.dock, room.dock.size
    middle = np.array([dock.x, dock.y]) - 0.5 * behind * np.array([math.cos(dock.direction), math.sin(dock.direction)])
    return [*boxes, (float(middle[0]), float(middle[1]), behind, along, HEIGHT_M, dock.direction)]


def open_mover(physics: Physics, spec: RobotSpec, room: Room) -> Mover:
    """Return what moves the robot.

    Raises:
        BackendUnavailable: If PyBullet is asked for and missing.
    """
    return BulletMover(spec, room) if physics == "bullet" else PlanarMover(room)
