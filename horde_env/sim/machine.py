"""The robot's body with its firmware, at 100 Hz: it takes control packets and moves; it has no senses and no host.

`SimulatedBody` is its host in the simulator; anything else that speaks the robot's integers may drive it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from horde_env._jit import kernel
from horde_env.robot import RobotSpec
from horde_env.sim import firmware, motors
from horde_env.sim.bullet import PlanarBody
from horde_env.sim.firmware import Firmware
from horde_env.sim.pen import Pen
from horde_env.sim.power import PowerSupply
from horde_env.sim.state import BodyState

Floats = NDArray[np.float64]

N_RAW = 16  # bus, three batteries, four numbers of each motor: the first channels of an observation
N_NOISE = 10
TICKS_PER_POWER_STEP = 10  # the supply changes slowly
STUCK_FRICTION_N = 4.0  # of a wheel that is dragged over the floor without turning
VOLT_SD = (0.5, 0.4, 0.4, 0.4)  # of bus and batteries at rest in the log, 0.1 V

# How near the robot's nose must be to the middle of the dock's face, and how straight, for the contacts to meet.
DOCK_REACH_M = 0.05
DOCK_COS = math.cos(math.radians(20.0))


class Machine:
    """Firmware, motors, power supply and body of one robot.

    Args:
        spec: The robot's geometry.
        pen: Where it lives.
        battery_scale: Factor on the batteries' capacity.
        window: Whether to show PyBullet's window.

    Attributes:
        firmware: Takes control packets (`firmware.command`), keeps the setpoints.
        motion: The motors' state, see `motors`.
        power: Batteries and charger.
        body: Where the robot is.
        n_ticks: Ticks of 10 ms since the last reset.
        stuck: Number of a wheel that something blocks (0, 1, 2), or None.

    Raises:
        BackendUnavailable: See PlanarBody.
    """

    def __init__(self, spec: RobotSpec, pen: Pen, *, battery_scale: float = 1.0, window: bool = False) -> None:
        self.firmware = Firmware(np.array(spec.drive["kinematics_1024"]))
        self.motion = np.zeros((motors.N_ROWS, 3))
        self.power = PowerSupply(battery_scale)
        angles = np.deg2rad(spec.drive["wheel_angles_deg"])
        self._geometry = motors.wheel_geometry(angles, float(spec.drive["wheel_circle_m"]))
        self._radius_m = float(spec.body["radius_m"])
        self._face = _dock_face(pen)
        self._force = np.zeros(3)
        self.n_ticks = 0
        self.stuck: int | None = None
        self._see_power()
        self.body = PlanarBody(pen.boxes(), tick_s=motors.TICK_S, window=window)

    def reset(self, x: float, y: float, heading: float) -> None:
        """Switch off and on at a pose: firmware booted, motors cold, batteries full."""
        self.firmware.boot()
        self.power.boot()
        self.motion[:] = 0.0
        self.n_ticks = 0
        self.stuck = None
        self.body.place(x, y, heading)
        self._see_power()
        motors.sense(self.motion, self.firmware.wheels, self._geometry, np.zeros(3), heading, 0.0, 0.0, 0.0)

    def tick(self, noise: Floats) -> None:
        """Let 10 ms pass; `noise` holds three standard normals for the encoders."""
        firm, body, force, motion, geometry = self.firmware, self.body, self._force, self.motion, self._geometry
        stuck, wheels = self.stuck, firm.wheels
        firm.cycle(self._bus_byte, self._is_off)
        rim_speed = 0.0 if stuck is None else self._block(stuck)
        motors.push(motion, wheels, geometry, body.motion[2], self.power.bus_v, force)
        if stuck is not None:
            self._drag(stuck, rim_speed)
        _, _, heading, vx, vy, yaw_rate = body.step(force.tolist())
        motors.sense(motion, wheels, geometry, noise, heading, vx, vy, yaw_rate)
        if stuck is not None:
            wheels[firmware.CLICKS, stuck] = 0
        self.n_ticks += 1
        if self.n_ticks % TICKS_PER_POWER_STEP == 0:
            self._supply()

    def is_held(self) -> bool:
        """Whether charging, an empty battery, heat or too high a voltage keeps the motors from the command."""
        return self._is_off or self.firmware.overheated or self._bus_byte > firmware.BUS_TOO_HIGH

    def raw(self, rng: Generator) -> Floats:
        """Return channels 0..15 of a packet as the wire's integers, noise included, shape (16,)."""
        noise, values, power = rng.standard_normal(N_NOISE), np.empty(N_RAW), self.power
        bus_to_280 = (power.bus_v, *power.battery_v)
        report_volts(bus_to_280, VOLT_SD, noise, values)
        motors.report(self.motion, self.firmware.wheels, noise[4:], values[4:])
        return values

    def state(self, previous: tuple[float, float], *, touch: bool = True) -> BodyState:
        """Return the body as the sensors may know it; `previous` is its velocity (vx, vy) one tick ago.

        Without `touch` nobody asks PyBullet for the contacts, and `contact_n_s` is 0.
        """
        x, y, heading, vx, vy, yaw_rate = self.body.motion
        return BodyState(
            x,
            y,
            math.pi - (math.pi - heading) % (2.0 * math.pi),
            vx,
            vy,
            yaw_rate,
            ax=(vx - previous[0]) / motors.TICK_S,
            ay=(vy - previous[1]) / motors.TICK_S,
            wheel_speed=self.motion[motors.RIM_SPEED].copy(),
            duty=self.firmware.wheels[firmware.DUTY] * (1.0 / firmware.FULL_DUTY),
            contact_n_s=self.body.contact_impulse() if touch and self.n_ticks else 0.0,
        )

    def on_dock(self) -> bool:
        """Whether the robot's nose touches the dock's contacts."""
        m, (x, y, ux, uy) = self.body.motion, self._face
        c, s = math.cos(m.heading), math.sin(m.heading)
        nose = math.hypot(m.x + self._radius_m * c - x, m.y + self._radius_m * s - y)
        return nose < DOCK_REACH_M and -(c * ux + s * uy) > DOCK_COS

    def close(self) -> None:
        """Let go of the body. Closing twice does nothing."""
        self.body.close()

    def _block(self, stuck: int) -> float:
        """Let a stuck wheel's motor stand still; return how fast the floor passes under that wheel, m/s."""
        rim_speed = float(self.motion[motors.RIM_SPEED, stuck])
        self.motion[motors.RIM_SPEED, stuck] = 0.0
        return rim_speed

    def _drag(self, stuck: int, rim_speed: float) -> None:
        """Take a stuck wheel's drive off the body's force, and let the wheel slide instead."""
        side, ahead, arm = self._geometry[stuck].tolist()
        current = float(self.motion[motors.CURRENT, stuck])
        drive = math.copysign(motors.FORCE_PER_BYTE * current, self.firmware.wheels[firmware.DUTY, stuck])
        change = -min(max(drive, -motors.GRIP_N), motors.GRIP_N) - STUCK_FRICTION_N * motors.fading(rim_speed)
        c, s = math.cos(self.body.motion.heading), math.sin(self.body.motion.heading)
        self._force += change * np.array([c * side - s * ahead, s * side + c * ahead, arm])

    def _supply(self) -> None:
        span_s = TICKS_PER_POWER_STEP * motors.TICK_S
        self.power.advance(float(self.motion[motors.SUPPLY].sum()) / span_s, self.on_dock(), span_s)
        self.motion[motors.SUPPLY] = 0.0
        self._see_power()

    def _see_power(self) -> None:
        """Tell the motors' side what the supply says; it changes no faster than it is stepped."""
        self._bus_byte, self._is_off = self.power.bus_byte, self.power.holds_motors


@kernel
def report_volts(volts: tuple[float, ...], sd: tuple[float, ...], noise: Floats, out: Floats) -> None:
    """Write bus and battery voltages, V, as a packet's bytes of 0.1 V; `sd` of their noise is in 0.1 V."""
    for i in range(4):
        out[i] = min(max(np.rint(10.0 * volts[i] + sd[i] * noise[i]), 0.0), 255.0)


def _dock_face(pen: Pen) -> tuple[float, float, float, float]:
    """Return the middle of the dock's face and the direction it looks in: (x, y, ux, uy)."""
    (x, y), (size_x, size_y) = pen.dock.centre_m, pen.dock.size_m
    ux, uy = math.cos(pen.beacon.direction_rad), math.sin(pen.beacon.direction_rad)
    depth = 0.5 * (size_x * abs(ux) + size_y * abs(uy))
    return x + depth * ux, y + depth * uy, ux, uy
