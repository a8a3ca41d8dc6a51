"""The robot's body with its firmware, at 100 Hz, driven by control packets; without senses and host.

`SimulatedBody` is its host in the simulator; the emulator is another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from horde_env._jit import RecordFields
from horde_env.backend import Floats, State
from horde_env.robot import RobotSpec, asset
from horde_env.robots.critterbot.arena import Pen
from horde_env.robots.critterbot.simulator import motors, period
from horde_env.robots.critterbot.simulator.firmware import Firmware
from horde_env.robots.critterbot.simulator.power import POWER_STATE, PowerSupply
from horde_env.sim import bullet
from horde_env.sim.physics import Body, Physics, open_body
from horde_env.sim.planar import Motion, PlanarBody, facing
from horde_env.sim.saving import attributes, inner, nested, restore_attributes

# Largest distance of the robot's nose from the middle of the dock's face, and largest angle, at
# which contacts meet.
DOCK_REACH_M = 0.05
DOCK_REACH_DEG = 20.0
_ROUNDING_S = 1e-9
_DIRECTIONS = {
    "clockwise": motors.CLOCKWISE_FRICTION,
    "counterclockwise": motors.COUNTERCLOCKWISE_FRICTION,
}

# Robot time in s, direction of the rotation, factor on the axles' friction
FrictionChange = tuple[float, str, float]


def friction_changes_of(changes: Sequence[Any]) -> list[FrictionChange]:
    """Return changes in the order of time. A factor is on the first friction and replaces earlier ones.

    Raises:
        ValueError: If one is invalid.
    """
    try:
        ordered = sorted((float(at_s), str(way), float(factor)) for at_s, way, factor in changes)
        if all(
            way in _DIRECTIONS and 0.0 <= t < math.inf and 0.0 < factor < math.inf
            for t, way, factor in ordered
        ):
            return ordered
    except (TypeError, ValueError):
        pass
    expected = "a sequence of (seconds from 0 on, 'clockwise' or 'counterclockwise', factor above 0), all finite"
    raise ValueError(f"friction_changes must be {expected}, not {changes!r}")


class Machine:
    """Firmware, motors, power supply and body of one robot.

    `plant` is the state of firmware, motors and supply, `face` the dock's, shape (period.N_FACE,),
    for the kernels of `period`.
    """

    def __init__(
        self,
        spec: RobotSpec,
        pen: Pen,
        *,
        battery_scale: float = 1.0,
        physics: Physics = "bullet",
    ) -> None:
        self.firmware = Firmware(np.array(spec.drive["kinematics_1024"]))
        self.motion = np.zeros((motors.N_ROWS, 3))  # the motors' state
        self.power = PowerSupply(battery_scale)
        angles = np.deg2rad(spec.drive["wheel_angles_deg"])
        self._geometry = motors.wheel_geometry(angles, float(spec.drive["wheel_circle_m"]))
        self.face = _dock_face(pen, nose_m=float(spec.body["radius_m"]))
        self.plant = period.Plant(
            arm=self.firmware.arm,
            wheels=self.firmware.wheels,
            motion=self.motion,
            geometry=self._geometry,
            force=np.zeros(3),
            amounts=self.power.amounts,
            marks=self.power.marks,
        )
        self._plant_fields: RecordFields = tuple(self.plant)
        self.n_ticks = 0  # of 10 ms, since the last reset
        self.stuck: int | None = None  # number of a blocked wheel: 0, 1, 2
        urdf = asset("robot/critterbot.urdf")
        self.body: Body = open_body(physics, urdf, pen.boxes(), tick_s=motors.TICK_S)

    def reset(self, x: float, y: float, heading: float) -> None:
        """Boot the robot at a pose: motors cold, batteries full."""
        self.firmware.boot()
        self.power.boot()
        self.motion[:] = 0.0
        self.n_ticks = 0
        self.stuck = None
        self.body.place(x, y, heading)
        motors.sense(
            self.motion,
            self.firmware.wheels,
            self._geometry,
            np.zeros(3),
            facing(heading),
            0.0,
            0.0,
            0.0,
        )

    def set_friction(self, changes: Sequence[FrictionChange]) -> None:
        """Apply those of a life's changes that are due."""
        self._geometry[:, [*_DIRECTIONS.values()]] = 1.0
        for at_s, direction, factor in changes:
            if self.n_ticks * motors.TICK_S >= at_s - _ROUNDING_S:
                self._geometry[:, _DIRECTIONS[direction]] = factor

    def tick(self, noise: Floats) -> Floats:
        """Advance 10 ms and return the motion, shape (6,); `noise`: three standard normals for the encoders."""
        motion: Floats = self.run(noise)[0]
        return motion

    def run(self, noise: Floats) -> Floats:
        """Advance 10 ms for each three of `noise`, shape (3 n,); return the motion after each (`Motion`), (n, 6)."""
        n = len(noise) // 3
        body = self.body
        plant = self._plant_fields
        face = self.face
        stuck = self.stuck_wheel
        begin = self.n_ticks
        self.n_ticks += n
        if isinstance(body, PlanarBody):
            path = np.empty((n, len(Motion._fields)))
            shape = tuple(body.shape)
            period.run_ticks(plant, shape, face, begin, stuck, body.state, noise, path)
            return path
        assert isinstance(body, bullet.PlanarBody)
        states = []
        force = period.act(plant, stuck, facing(body.moved[2]))
        for k in range(n):
            states.append(body.advance(force))
            if k < n - 1:
                force = period.sense_and_act(plant, face, stuck, begin + k + 1, noise, k, states[k])
            else:
                period.sense(plant, face, stuck, begin + n, noise, k, states[k])
        return np.array(states)

    def is_held(self) -> bool:
        """Return whether charging, an empty battery, heat or overvoltage blocks the command."""
        return bool(period.is_held(self._plant_fields))

    @property
    def t_s(self) -> float:
        """Time since the last reset, seconds."""
        return self.n_ticks * motors.TICK_S

    @property
    def stuck_wheel(self) -> int:
        """Number of the wheel that is stuck, or `period.NO_WHEEL`."""
        if self.stuck is None:
            return period.NO_WHEEL
        return self.stuck

    def raw(self, rng: Generator) -> Floats:
        """Return channels 0..15 of a packet as the wire's integers, noise included, shape (16,)."""
        values = np.empty(period.N_RAW)
        period.report(self._plant_fields, rng.standard_normal(period.N_NOISE), values)
        return values

    def save(self) -> State:
        """Return the robot's state."""
        return nested(
            own=attributes(self, "motion", "n_ticks", "stuck"),
            firmware=attributes(self.firmware, "arm", "wheels"),
            power=attributes(self.power, *POWER_STATE),
            body=self.body.save(),
        )

    def restore(self, state: State) -> None:
        """Restore a state from `save`."""
        restore_attributes(self, inner(state, "own"), "motion", "n_ticks", "stuck")
        restore_attributes(self.firmware, inner(state, "firmware"), "arm", "wheels")
        restore_attributes(self.power, inner(state, "power"), *POWER_STATE)
        self.body.restore(inner(state, "body"))

    def on_dock(self) -> bool:
        """Return whether the robot's nose touches the dock's contacts."""
        m = self.body.motion
        return bool(period.on_dock(m.x, m.y, facing(m.heading), self.face))

    def close(self) -> None:
        """Close the body. Closing twice does nothing."""
        self.body.close()


def _dock_face(pen: Pen, *, nose_m: float) -> Floats:
    """Return the dock's face for the kernels, shape (period.N_FACE,); `nose_m` is the robot's."""
    (x, y) = pen.dock.centre_m
    (size_x, size_y) = pen.dock.size_m
    ux = math.cos(pen.beacon.direction_rad)
    uy = math.sin(pen.beacon.direction_rad)
    depth = 0.5 * (size_x * abs(ux) + size_y * abs(uy))
    face = np.zeros(period.N_FACE)
    face[period.FACE_X] = x + depth * ux
    face[period.FACE_Y] = y + depth * uy
    face[period.FACE_UX] = ux
    face[period.FACE_UY] = uy
    face[period.NOSE_M] = nose_m
    face[period.REACH_M] = DOCK_REACH_M
    face[period.REACH_COS] = math.cos(math.radians(DOCK_REACH_DEG))
    return face
