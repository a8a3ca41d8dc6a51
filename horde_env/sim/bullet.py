"""A body that slides and turns in the plane among fixed boxes, by PyBullet; the only file that imports it.

Each tick applies a force to each of three joints (x, y, yaw). Each body has a client of 28 MB until
it is closed. PyBullet holds the interpreter lock while it steps, so bodies run in parallel only as
processes.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from horde_env.backend import State
from horde_env.errors import BackendUnavailable
from horde_env.sim.planar import WALL_FRICTION, WALL_RESTITUTION, Box, Motion

_JOINTS = (0, 1, 2)
_UNUSED = (0.0, 0.0, 0.0)
_ITERATIONS = 10  # three joints and a few contacts: 20 give the same poses to 1e-5 m
_normal_force = itemgetter(9)  # of a contact point's tuple

Moved = tuple[float, float, float, float, float, float]  # the numbers of `Motion`, in its order


class PlanarBody:
    """A robot's body, of a URDF file with three joints, among boxes, with the methods of `planar.PlanarBody`.

    If `is_restorable`, the forces since the last time without a contact are stored, for `save`.
    Call `contact_impulse` regularly then: it discards them at such times.

    Raises:
        BackendUnavailable: If PyBullet is missing.
    """

    def __init__(self, urdf: Path, boxes: Sequence[Box], *, tick_s: float) -> None:
        self._p = require()
        self._tick_s = tick_s
        self._client: int = self._p.connect(self._p.DIRECT)
        if self._client < 0:
            raise BackendUnavailable(
                "PyBullet returned no client (each takes 28 MB; a process can have a few hundred); close unused "
                "environments."
            )
        self._disconnect = weakref.finalize(self, self._p.disconnect, physicsClientId=self._client)
        self._disconnect.atexit = False  # PyBullet disconnects at exit
        self._p.setPhysicsEngineParameter(
            fixedTimeStep=tick_s,
            numSolverIterations=_ITERATIONS,
            deterministicOverlappingPairs=1,
            physicsClientId=self._client,
        )
        for box in boxes:
            self._add_box(*box)
        self._body = self._add_robot(urdf)
        dynamics = {
            link: self._p.getDynamicsInfo(self._body, link, physicsClientId=self._client)
            for link in (-1, *_JOINTS)
        }
        # Of each link: mass and moments of inertia
        self._unloaded = {link: (numbers[0], numbers[2]) for link, numbers in dynamics.items()}
        # Bound once, since they run at every tick.
        p = self._p
        client = self._client
        # Positional arguments take a third less than keywords; a torque needs no target positions
        # and velocities.
        self._push = partial(
            p.setJointMotorControlArray, self._body, _JOINTS, p.TORQUE_CONTROL, _UNUSED, _UNUSED
        )
        self._advance = partial(p.stepSimulation, client)
        self._read_joints: Callable[[], Any] = partial(
            p.getJointStates, self._body, _JOINTS, client
        )
        self._fresh: int = self._p.saveState(physicsClientId=client)
        self.moved: Moved = (0.0,) * 6  # pose and velocity after the last step
        self.is_restorable = False
        self._free = self.moved
        self._forces = list[Sequence[float]]()

    def load(self, factor: float) -> None:
        """Multiply the mass and the moments of inertia that the body's file has."""
        for link, (mass, inertia) in self._unloaded.items():
            self._p.changeDynamics(
                self._body,
                link,
                mass=factor * mass,
                localInertiaDiagonal=[factor * moment for moment in inertia],
                physicsClientId=self._client,
            )

    def place(self, x: float, y: float, heading: float) -> None:
        """Put the body at rest at a pose, with no memory of earlier contacts: the same bits as a new client."""
        self._begin((x, y, heading, 0.0, 0.0, 0.0))

    def save(self) -> State:
        """Return the body's state, if it `is_restorable`.

        PyBullet caches data of each contact, which affect the next bit and which its own saved
        states lack. A body without contacts has no such data. So the state is the motion when it
        last had none, and the forces of each tick
        since: replaying them gives the same bits (measured).
        """
        return {
            "free": np.reshape(self._free, (2, 3)).T,  # position and velocity of each joint
            "forces": np.array(self._forces, dtype=np.float64).reshape(-1, 3),
        }

    def restore(self, state: State) -> None:
        """Restore a state from `save`, in this or another process."""
        x, y, heading, vx, vy, yaw_rate = state["free"].T.ravel().tolist()
        self._begin((x, y, heading, vx, vy, yaw_rate))
        for force in state["forces"].tolist():
            self.advance(force)

    def _begin(self, moved: Moved) -> None:
        """Set pose and velocity, without a contact."""
        self._p.restoreState(self._fresh, physicsClientId=self._client)
        for joint in _JOINTS:
            self._p.resetJointState(
                self._body, joint, moved[joint], moved[3 + joint], physicsClientId=self._client
            )
        self.moved = self._free = moved
        self._forces = []

    def step(self, force: Sequence[float]) -> Motion:
        """Apply (Fx N, Fy N, torque N m) of the world frame for one tick and return the motion at its end."""
        return Motion(*self.advance(force))

    def advance(self, force: Sequence[float]) -> Moved:
        """Step, and return `moved`."""
        if self.is_restorable:
            self._forces.append(force)
        self._push(force, _UNUSED, _UNUSED, self._client)
        self._advance()
        x, y, yaw = self._read_joints()
        self.moved = x[0], y[0], yaw[0], x[1], y[1], yaw[1]
        return self.moved

    @property
    def motion(self) -> Motion:
        """The body's pose and velocity."""
        return Motion(*self.moved)

    def contact_impulse(self) -> float:
        """Return the sum of the normal impulses on the body in the last tick, N s."""
        points = self._p.getContactPoints(self._body, physicsClientId=self._client)
        if not points:
            self._free = self.moved
            self._forces.clear()
            return 0.0
        return self._tick_s * math.fsum(map(_normal_force, points))

    def close(self) -> None:
        """Disconnect the client, as garbage collection does. Closing twice does nothing."""
        self._client = -1
        self._disconnect()

    def _add_box(self, x: float, y: float, size_x: float, size_y: float, height: float) -> None:
        p = self._p
        half = [size_x / 2, size_y / 2, height / 2]
        shape = p.createCollisionShape(p.GEOM_BOX, halfExtents=half, physicsClientId=self._client)
        # Maximal coordinates: a plain rigid body costs a fifth less per step than a fixed
        # multi-body.
        box: int = p.createMultiBody(
            0,
            shape,
            basePosition=[x, y, height / 2],
            useMaximalCoordinates=1,
            physicsClientId=self._client,
        )
        p.changeDynamics(
            box,
            -1,
            lateralFriction=WALL_FRICTION,
            restitution=WALL_RESTITUTION,
            physicsClientId=self._client,
        )

    def _add_robot(self, urdf: Path) -> int:
        p = self._p
        client = self._client
        flags = p.URDF_USE_INERTIA_FROM_FILE
        body: int = p.loadURDF(str(urdf), useFixedBase=True, flags=flags, physicsClientId=client)
        # Switch off the joints' default motors, which hold them still, and the links' damping.
        p.setJointMotorControlArray(
            body, _JOINTS, p.VELOCITY_CONTROL, forces=[0.0] * 3, physicsClientId=client
        )
        for link in (-1, *_JOINTS):
            p.changeDynamics(
                body,
                link,
                linearDamping=0.0,
                angularDamping=0.0,
                jointDamping=0.0,
                physicsClientId=client,
            )
        return body


def require() -> Any:
    """Return PyBullet, imported only here, if a PlanarBody can be opened.

    Raises:
        BackendUnavailable: If PyBullet is missing.
    """
    try:
        with _quiet_stderr():
            import pybullet
    except ImportError as missing:
        raise BackendUnavailable(
            "PyBullet is not installed; the planar engine (physics='planar') does not need it. PyBullet has wheels for "
            "CPython 3.10 and 3.11 on Linux x86-64 only; elsewhere take it from conda-forge, or build it: `pip install "
            "numpy setuptools wheel && pip install --no-build-isolation pybullet`."
        ) from missing
    return pybullet


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Discard stderr output of C code: PyBullet prints its build time when it is imported."""
    stderr = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
