"""PyBullet, and the only file that imports it: a body that slides and turns in the plane, among boxes that do not move.

Three joints (x, y, yaw) take a force each at every tick; the wheels are elsewhere (`motors.py`). One client per body,
of 28 MB, which goes with it. PyBullet holds the interpreter lock while it steps: bodies run in parallel as processes,
not as threads.
"""

from __future__ import annotations

import math
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from horde_env.backend import State
from horde_env.errors import BackendUnavailable
from horde_env.robot import asset
from horde_env.sim import tick
from horde_env.sim.engine import WALL_FRICTION, WALL_RESTITUTION, Box, Floats, Motion
from horde_env.sim.tick import Drive, Supply

_JOINTS = (0, 1, 2)
_UNUSED = (0.0, 0.0, 0.0)
_ITERATIONS = 10  # three joints and a few contacts: 20 give the same poses to 1e-5 m
_OTHER, _PLACE, _NORMAL_FORCE = 2, 5, 9  # of a contact point's tuple

# What PyBullet tells of the joints x, y and yaw: (position, velocity, ...) of each.
Joints = tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]


def motion_of(joints: Joints) -> Motion:
    """Return the motion that the three joints are in."""
    x, y, yaw = joints
    return Motion(x[0], y[0], yaw[0], x[1], y[1], yaw[1])


class PlanarBody:
    """The robot's body in its pen; the seam is `engine.Body`.

    Args:
        boxes: What stands in its way: (centre x, centre y, size x, size y, height) in metres.
        tick_s: Time of one step, seconds.
        window: Whether to show PyBullet's own window.
        urdf: The body, on three joints; the Critterbot's when None.

    Attributes:
        joints: How the body moves, as PyBullet told it.
        is_remembering: Whether the forces since the last moment without a contact are kept, for `save`. Only for who
            asks for `contact_impulse` now and then: it notices such moments.

    Raises:
        BackendUnavailable: If PyBullet is missing, or a window was asked for where there is no display.
    """

    def __init__(self, boxes: Sequence[Box], *, tick_s: float, window: bool = False, urdf: Path | None = None) -> None:
        self._p = require(window)
        self._tick_s = tick_s
        self._client: int = self._p.connect(self._p.GUI if window else self._p.DIRECT)
        if self._client < 0:
            raise BackendUnavailable(
                "PyBullet gave no client (each takes 28 MB and it has room for a few hundred in a process); "
                "close the environments that are no longer used."
            )
        self._let_go = weakref.finalize(self, self._p.disconnect, physicsClientId=self._client)
        self._let_go.atexit = False  # PyBullet sees to that itself
        self._p.setPhysicsEngineParameter(
            fixedTimeStep=tick_s,
            numSolverIterations=_ITERATIONS,
            deterministicOverlappingPairs=1,
            physicsClientId=self._client,
        )
        self._boxes = {self._add_box(*box): i for i, box in enumerate(boxes)}
        self._body = self._add_robot(asset("robot/critterbot.urdf") if urdf is None else urdf)
        # Bound once: these run a thousand times per simulated second and body.
        p, client = self._p, self._client
        # By place, which takes a third less than by name; a torque needs no target positions and velocities.
        self._push = partial(p.setJointMotorControlArray, self._body, _JOINTS, p.TORQUE_CONTROL, _UNUSED, _UNUSED)
        self._advance = partial(p.stepSimulation, client)
        self._look: Callable[[], Joints] = partial(p.getJointStates, self._body, _JOINTS, client)
        self._fresh: int = self._p.saveState(physicsClientId=client)
        self.joints: Joints = ((0.0, 0.0),) * 3
        self.is_remembering = False
        self._free, self._forces = self.joints, list[Sequence[float]]()

    def place(self, x: float, y: float, heading: float) -> None:
        """Put the body at rest at a pose, with no memory of earlier contacts: the same bits as a new client."""
        self._p.restoreState(self._fresh, physicsClientId=self._client)
        for joint, position in zip(_JOINTS, (x, y, heading), strict=True):
            self._p.resetJointState(self._body, joint, position, 0.0, physicsClientId=self._client)
        self.joints = ((x, 0.0), (y, 0.0), (heading, 0.0))
        self._free, self._forces = self.joints, []

    def save(self) -> State:
        """Return what the body's future depends on, where it `is_remembering`.

        PyBullet keeps, beside positions and velocities, what it knew of each contact, which nothing that it saves holds
        and which enters the next bit. A body without contacts has none of that. So this is its motion when it last had
        none, and the forces of each tick since: pushed so again, it comes to the same bits (measured).
        """
        return {
            "free": np.array([[joint[0], joint[1]] for joint in self._free]),
            "forces": np.array(self._forces, dtype=np.float64).reshape(-1, 3),
        }

    def restore(self, state: State) -> None:
        """Go on from what `save` returned, here or in another process."""
        self._p.restoreState(self._fresh, physicsClientId=self._client)
        free = [(float(position), float(velocity)) for position, velocity in state["free"]]
        for joint, (position, velocity) in zip(_JOINTS, free, strict=True):
            self._p.resetJointState(self._body, joint, position, velocity, physicsClientId=self._client)
        self.joints = (free[0], free[1], free[2])
        self._free, self._forces = self.joints, []
        for force in state["forces"].tolist():
            self.advance(force)

    def step(self, force: Sequence[float]) -> Motion:
        """Apply (Fx N, Fy N, torque N m) of the world frame for one tick and return the motion at its end."""
        return motion_of(self.advance(force))

    def advance(self, force: Sequence[float]) -> Joints:
        """Do what `step` does, and return the motion as PyBullet tells it: `motion_of` reads it, at leisure."""
        if self.is_remembering:
            self._forces.append(force)
        self._push(force, _UNUSED, _UNUSED, self._client)
        self._advance()
        joints = self.joints = self._look()
        return joints

    def run(self, drive: Drive, supply: Supply, noise: Floats) -> Floats:
        """Let firmware, motors and body run for a tick per row of `noise`; see `engine.Body.run`."""
        seen: list[Joints] = []
        advance, see = self.advance, seen.append
        force = tick.act(*drive, *supply, self.joints[2][0])
        for k in range(len(noise) - 1):
            joints = x, y, yaw = advance(force)
            see(joints)
            force = tick.sense_and_act(*drive, *supply, noise, k, yaw[0], x[1], y[1], yaw[1])
        x, y, yaw = joints = advance(force)
        see(joints)
        tick.sense(*drive[1:4], supply[3], noise[-1], yaw[0], x[1], y[1], yaw[1])
        return np.array([motion_of(joints) for joints in seen])

    @property
    def motion(self) -> Motion:
        """How the body moves now."""
        return motion_of(self.joints)

    def contact_impulse(self) -> float:
        """Return the sum of the normal impulses on the body in the last tick, N s."""
        points = self._p.getContactPoints(self._body, physicsClientId=self._client)
        if not points:
            self._free = self.joints
            self._forces.clear()
        return self._tick_s * math.fsum([point[_NORMAL_FORCE] for point in points]) if points else 0.0

    def touches(self) -> list[tuple[float, float, int]]:
        """Return where the body was pushed in the last tick: x, y (metres), and by which of the boxes."""
        points = self._p.getContactPoints(self._body, physicsClientId=self._client)
        pushed = [point for point in points if point[_NORMAL_FORCE] > 0.0]
        return [(*point[_PLACE][:2], self._boxes[point[_OTHER]]) for point in pushed]

    def close(self) -> None:
        """Let go of the client, as happens to a body that nobody holds any more. Closing twice does nothing."""
        self._client = -1
        self._let_go()

    def _add_box(self, x: float, y: float, size_x: float, size_y: float, height: float, turned: float = 0.0) -> int:
        p, half = self._p, [size_x / 2, size_y / 2, height / 2]
        shape = p.createCollisionShape(p.GEOM_BOX, halfExtents=half, physicsClientId=self._client)
        # Maximal coordinates: a plain rigid body, a fifth cheaper per step than a multi-body that never moves.
        box: int = p.createMultiBody(
            0,
            shape,
            basePosition=[x, y, height / 2],
            baseOrientation=[0.0, 0.0, math.sin(turned / 2), math.cos(turned / 2)],
            useMaximalCoordinates=1,
            physicsClientId=self._client,
        )
        p.changeDynamics(
            box, -1, lateralFriction=WALL_FRICTION, restitution=WALL_RESTITUTION, physicsClientId=self._client
        )
        return box

    def _add_robot(self, urdf: Path) -> int:
        p, client = self._p, self._client
        flags = p.URDF_USE_INERTIA_FROM_FILE
        body: int = p.loadURDF(str(urdf), useFixedBase=True, flags=flags, physicsClientId=client)
        # A joint comes with a motor of its own that holds it still, and links with damping: neither belongs here.
        p.setJointMotorControlArray(body, _JOINTS, p.VELOCITY_CONTROL, forces=[0.0] * 3, physicsClientId=client)
        for link in (-1, *_JOINTS):
            p.changeDynamics(
                body, link, linearDamping=0.0, angularDamping=0.0, jointDamping=0.0, physicsClientId=client
            )
        return body


def require(window: bool) -> Any:
    """Return PyBullet, imported here and nowhere else, where a PlanarBody can be opened.

    Raises:
        BackendUnavailable: If PyBullet is missing, or a window was asked for where there is no display: PyBullet would
            end the process.
    """
    try:
        with _quiet_stderr():
            import pybullet
    except ImportError as missing:
        raise BackendUnavailable(
            "PyBullet is not installed; the planar engine (physics='planar') needs nothing. PyBullet has wheels for "
            "CPython 3.10 and 3.11 on Linux x86-64 only; elsewhere take it from conda-forge, or build it: `pip install "
            "numpy setuptools wheel && pip install --no-build-isolation pybullet`."
        ) from missing
    on_linux = sys.platform.startswith("linux")
    if window and on_linux and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise BackendUnavailable(
            "a window was asked for, but there is no display (neither DISPLAY nor WAYLAND_DISPLAY is set); "
            'use render_mode="rgb_array", or run where there is a display.'
        )
    return pybullet


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Send what C code writes to stderr nowhere: PyBullet announces its build time whenever it is imported."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
