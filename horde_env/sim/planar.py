"""The planar engine: the same body as PyBullet's, by this package's kernels (`rigid`).

A whole run of ticks, including firmware and motors, is one kernel; PyBullet is called three times a tick.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from horde_env._jit import kernel_over
from horde_env.backend import State
from horde_env.robot import asset
from horde_env.sim import firmware, motors, rigid, tick
from horde_env.sim.engine import WALL_FRICTION, WALL_RESTITUTION, Box, Motion
from horde_env.sim.hull import Hull, load_hull
from horde_env.sim.tick import Drive, Supply

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# inertia, corners, pieces, radii, obstacles, contacts of `rigid.step`
Shape = tuple[Floats, Floats, Ints, Floats, Floats, Floats]


@kernel_over(firmware, motors, tick, rigid)
def tick_once(
    drive: Drive, supply: Supply, shape: Shape, motion: Floats, dt: float, noise: Floats, out: Floats
) -> None:
    """Advance one tick; arguments as for `run`, but `noise` (3,) and `out` (6,) of this tick alone."""
    arm, wheels, motor_state, geometry, force = drive
    bus_byte, is_off, bus_v, stuck = supply
    inertia, corners, pieces, radii, obstacles, contacts = shape
    heading = motion[rigid.HEADING]
    push = tick.act(arm, wheels, motor_state, geometry, force, bus_byte, is_off, bus_v, stuck, heading)
    rigid.step(motion, inertia, corners, pieces, radii, obstacles, contacts, push, dt)
    vx, vy, yaw_rate = motion[rigid.VX], motion[rigid.VY], motion[rigid.YAW_RATE]
    tick.sense(wheels, motor_state, geometry, stuck, noise, motion[rigid.HEADING], vx, vy, yaw_rate)
    for i in range(out.shape[0]):
        out[i] = motion[i]


@kernel_over(firmware, motors, tick, rigid)
def run(drive: Drive, supply: Supply, shape: Shape, motion: Floats, dt: float, noise: Floats, out: Floats) -> None:
    """Advance one tick per row of `noise`, shape (n, 3), and write the motion at the end of each, shape (n, 6).

    Args:
        drive: The first five arguments of `tick.act`, changed in place.
        supply: The next four: state of the power supply, constant here, and the stuck wheel.
        shape: Body and obstacles for `rigid.step`.
        motion: Of the body, changed in place.
        dt: Duration of a tick, seconds.
        noise: Standard normals for the encoders.
        out: Receives x, y, heading, vx, vy, yaw rate of each tick.
    """
    for k in range(noise.shape[0]):
        tick_once(drive, supply, shape, motion, dt, noise[k], out[k])


class PlanarBody:
    """The robot's body in its pen; an `engine.Body`. Its state is its motion.

    Attributes:
        shape: Body and obstacles for `rigid.step`.
        state: Pose and velocity, shape (N_MOTION,), changed in place.

    Args:
        boxes: Obstacles: (centre x, centre y, size x, size y, height) in metres.
        posts: Round posts: (centre x, centre y, radius) in metres.
        tick_s: Time of one step, seconds.
        hull: The body's shape and inertia; from the robot's URDF if None.
    """

    is_restorable = True

    def __init__(
        self,
        boxes: Sequence[Box],
        *,
        tick_s: float,
        posts: Sequence[tuple[float, float, float]] = (),
        hull: Hull | None = None,
    ) -> None:
        hull = load_hull(asset("robot/critterbot.urdf")) if hull is None else hull
        rows = [(x, y, size_x / 2, size_y / 2, 0.0) for x, y, size_x, size_y, _ in boxes]
        rows += [(x, y, 0.0, 0.0, radius) for x, y, radius in posts]
        friction, restitution = hull.friction * WALL_FRICTION, hull.restitution * WALL_RESTITUTION
        inertia = np.array(
            [hull.mass_kg, hull.inertia_kg_m2, *hull.centroid_m, friction, restitution, hull.reach_m], dtype=np.float64
        )
        scratch = np.zeros((rigid.MOST_CONTACTS, rigid.N_COLUMNS))
        obstacles = np.array(rows, dtype=np.float64).reshape(-1, 5)
        self.shape: Shape = inertia, hull.corners_m, hull.pieces, hull.radii_m, obstacles, scratch
        self._tick_s = tick_s
        self.state = np.zeros(rigid.N_MOTION)

    def place(self, x: float, y: float, heading: float) -> None:
        """Put the body at rest at a pose."""
        self.state[:] = 0.0
        self.state[: rigid.VX] = x, y, heading

    def save(self) -> State:
        """Return the body's state: its motion."""
        return {"motion": self.state.copy()}

    def restore(self, state: State) -> None:
        """Restore a state from `save`, in this or another process."""
        self.state[:] = state["motion"]

    def step(self, force: Sequence[float]) -> Motion:
        """Apply (Fx N, Fy N, torque N m) of the world frame for one tick and return the motion at its end."""
        fx, fy, torque = map(float, force)
        rigid.step(self.state, *self.shape, (fx, fy, torque), self._tick_s)
        return self.motion

    def run(self, drive: Drive, supply: Supply, noise: Floats) -> Floats:
        """Run firmware, motors and body for a tick per row of `noise`; see `engine.Body.run`."""
        path = np.empty((noise.shape[0], len(Motion._fields)))
        run(drive, supply, self.shape, self.state, self._tick_s, noise, path)
        return path

    @property
    def motion(self) -> Motion:
        """The body's pose and velocity."""
        return Motion(*self.state[: rigid.IMPULSE].tolist())

    def contact_impulse(self) -> float:
        """Return the sum of the normal impulses on the body in the last tick, N s."""
        return float(self.state[rigid.IMPULSE])

    def close(self) -> None:
        """Do nothing: the body is arrays."""
