"""The robot's body with its firmware, at 100 Hz, driven by control packets; without senses and host.

`SimulatedBody` is its host in the simulator; the emulator is another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from horde_env.backend import Floats, State
from horde_env.robot import RobotSpec, asset
from horde_env.robots.critterbot.place import Pen
from horde_env.robots.critterbot.simulator import motors, period, tick
from horde_env.robots.critterbot.simulator.firmware import Firmware
from horde_env.robots.critterbot.simulator.period import N_NOISE, N_RAW, TICKS_PER_POWER_STEP
from horde_env.robots.critterbot.simulator.power import POWER_STATE, PowerSupply
from horde_env.robots.critterbot.simulator.tick import Supply
from horde_env.sim import bullet
from horde_env.sim.physics import Body, Physics, open_body
from horde_env.sim.planar import Motion, PlanarBody, facing
from horde_env.sim.saving import attributes, inner, nested, restore_attributes

_ROUNDING_S = 1e-9
_DIRECTIONS = {"clockwise": motors.CLOCKWISE_FRICTION, "counterclockwise": motors.COUNTERCLOCKWISE_FRICTION}


class FrictionChange(NamedTuple):
    """A change of the friction of the wheels' axles.

    Attributes:
        at_s: Robot time from which on it applies, in seconds.
        direction: Of the body's rotation in which it applies, "clockwise" or "counterclockwise".
        factor: On the friction at the beginning of the life; it replaces earlier ones.
    """

    at_s: float
    direction: str
    factor: float


def friction_changes_of(changes: Sequence[Any]) -> list[FrictionChange]:
    """Return changes, each a `FrictionChange` or its three elements, in the order of time.

    Raises:
        ValueError: If one is invalid.
    """
    try:
        found = sorted(FrictionChange(float(at_s), str(way), float(factor)) for at_s, way, factor in changes)
        if all(c.direction in _DIRECTIONS and 0.0 <= c.at_s < math.inf and 0.0 < c.factor < math.inf for c in found):
            return found
    except (TypeError, ValueError):
        pass
    expected = "a sequence of (seconds from 0 on, 'clockwise' or 'counterclockwise', factor above 0), all finite"
    raise ValueError(f"friction_changes must be {expected}, not {changes!r}")


class Machine:
    """Firmware, motors, power supply and body of one robot.

    Args:
        spec: The robot's geometry.
        pen: Its surroundings.
        battery_scale: Factor on the batteries' capacity.
        physics: The engine that moves the body.

    Attributes:
        firmware: Setpoints and timeouts, set by control packets (`firmware.command`).
        motion: The motors' state, see `motors`.
        power: Batteries and charger.
        body: The robot's body in its engine.
        n_ticks: Ticks of 10 ms since the last reset.
        stuck: Number of a blocked wheel (0, 1, 2), or None.
        plant: The state of firmware, motors and supply for `period.run_period`.
        face: Face of the dock, and distance of the robot's nose from its centre; see `period.on_dock`.

    Raises:
        BackendUnavailable: See `physics.resolve_physics`.
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
        self.motion = np.zeros((motors.N_ROWS, 3))
        self.power = PowerSupply(battery_scale)
        angles = np.deg2rad(spec.drive["wheel_angles_deg"])
        self._geometry = motors.wheel_geometry(angles, float(spec.drive["wheel_circle_m"]))
        self.face = np.array([*_dock_face(pen), float(spec.body["radius_m"])])
        self._drive = self.firmware.arm, self.firmware.wheels, self.motion, self._geometry, np.zeros(3)
        self.plant: period.Plant = self._drive, (self.power.amounts, self.power.marks)
        self.n_ticks = 0
        self.stuck: int | None = None
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
        motors.sense(self.motion, self.firmware.wheels, self._geometry, np.zeros(3), facing(heading), 0.0, 0.0, 0.0)

    def set_friction(self, changes: Sequence[FrictionChange]) -> None:
        """Apply those of a life's changes that are due."""
        self._geometry[:, [*_DIRECTIONS.values()]] = 1.0
        for change in changes:
            if self.n_ticks * motors.TICK_S >= change.at_s - _ROUNDING_S:
                self._geometry[:, _DIRECTIONS[change.direction]] = change.factor

    def tick(self, noise: Floats) -> Floats:
        """Advance 10 ms and return the motion, shape (6,); `noise`: three standard normals for the encoders."""
        motion: Floats = self.run(noise.reshape(1, 3))[0]
        return motion

    def run(self, noise: Floats) -> Floats:
        """Advance 10 ms for each row of `noise`, shape (n, 3), standard normals for the encoders.

        Returns:
            The motion at the end of each tick, a row in the order of `Motion`, shape (n, 6).
        """
        paths = []
        n_done = 0
        while n_done < len(noise):
            left = TICKS_PER_POWER_STEP - self.n_ticks % TICKS_PER_POWER_STEP
            supply = self.power.bus_byte, self.power.holds_motors, self.power.bus_v, self.stuck_wheel
            paths.append(self._run(supply, noise[n_done : n_done + left]))
            n_done += len(paths[-1])
            self.n_ticks += len(paths[-1])
            if self.n_ticks % TICKS_PER_POWER_STEP == 0:
                period.draw_power(self.motion, self.power.amounts, self.power.marks, self.on_dock())
        return paths[0] if len(paths) == 1 else np.concatenate(paths)

    def _run(self, supply: Supply, noise: Floats) -> Floats:
        """Run firmware, motors and body under a constant power supply; `noise` and the returned path as for `run`."""
        if isinstance(self.body, PlanarBody):
            path = np.empty((len(noise), len(Motion._fields)))
            tick.run(self._drive, supply, self.body.shape, self.body.state, motors.TICK_S, noise, path)
            return path
        assert isinstance(self.body, bullet.PlanarBody)
        drive, advance, seen = self._drive, self.body.advance, []
        force = tick.act(*drive, *supply, facing(self.body.joints[2][0]))
        for k in range(len(noise) - 1):
            joints = x, y, yaw = advance(force)
            seen.append(joints)
            force = tick.sense_and_act(*drive, *supply, noise, k, yaw[0], x[1], y[1], yaw[1])
        x, y, yaw = joints = advance(force)
        seen.append(joints)
        tick.sense(*drive[1:4], supply[3], noise[-1], facing(yaw[0]), x[1], y[1], yaw[1])
        return np.array([bullet.motion_of(joints) for joints in seen])

    def is_held(self) -> bool:
        """Return whether charging, an empty battery, heat or overvoltage blocks the command."""
        return bool(period.is_held(self.firmware.arm, self.power.amounts, self.power.marks))

    @property
    def stuck_wheel(self) -> int:
        """Number of the wheel that is stuck, or `tick.NO_WHEEL`."""
        return tick.NO_WHEEL if self.stuck is None else self.stuck

    def raw(self, rng: Generator) -> Floats:
        """Return channels 0..15 of a packet as the wire's integers, noise included, shape (16,)."""
        values = np.empty(N_RAW)
        noise = rng.standard_normal(N_NOISE)
        period.report(self.power.amounts, self.motion, self.firmware.wheels, noise, values)
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


def _dock_face(pen: Pen) -> tuple[float, float, float, float]:
    """Return the middle of the dock's face and its outward direction: (x, y, ux, uy)."""
    (x, y), (size_x, size_y) = pen.dock.centre_m, pen.dock.size_m
    ux, uy = math.cos(pen.beacon.direction_rad), math.sin(pen.beacon.direction_rad)
    depth = 0.5 * (size_x * abs(ux) + size_y * abs(uy))
    return x + depth * ux, y + depth * uy, ux, uy
