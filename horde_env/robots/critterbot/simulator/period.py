"""One period of the simulated robot in one kernel: the command, its ticks, the supply, and the frame at its end.

Calling a kernel costs more than its computation, so `run_period` is a whole step of the planar engine. PyBullet is
called from Python at every tick: `send_request` precedes its ticks and `sample` follows them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from horde_env._jit import kernel, kernel_over
from horde_env.backend import Floats, Ints
from horde_env.robot import RobotSpec
from horde_env.robots.critterbot.simulator import fields, firmware, motors, packet, power, tick
from horde_env.robots.critterbot.simulator.packet import Air, Eyes, Memory, Scene
from horde_env.robots.critterbot.simulator.tick import Drive
from horde_env.sim import planar
from horde_env.sim.planar import Facing, Shape

N_RAW = 16  # bus, three batteries, four numbers of each motor: the first channels of an observation
N_NOISE = 10
TICKS_PER_POWER_STEP = 10  # the supply changes slowly
VOLT_SD = (0.5, 0.4, 0.4, 0.4)  # of bus and batteries at rest in the log, 0.1 V

# Largest distance of the robot's nose from the middle of the dock's face, and largest angle, at which contacts meet.
DOCK_REACH_M = 0.05
DOCK_COS = math.cos(math.radians(20.0))

PER_DUTY = 1.0 / firmware.FULL_DUTY

Request = tuple[float, float, float]  # m/s forward, m/s left, rad/s counter-clockwise
Plant = tuple[Drive, tuple[Floats, Ints]]  # firmware and motors, and the power supply's amounts and marks
Kit = tuple[Scene, Eyes, Memory, Floats]  # the first four arguments of `packet.read`
Scales = tuple[Floats, Floats, Floats, int, int]  # lsb, offset, largest request, places of last_request, overheating
End = tuple[float, float, float, bool]  # x, y, heading, and whether the command was blocked


def scales_of(spec: RobotSpec) -> Scales:
    """Return a robot's scales of the first channels and of the request."""
    places = spec.group("last_request").start, spec.index("overheating")
    return spec.lsb[:N_RAW].copy(), spec.offset[:N_RAW].copy(), spec.largest_request, *places


@kernel
def wrapped(heading: float) -> float:
    """Return an angle within (-pi, pi], radians."""
    return math.pi - (math.pi - heading) % (2.0 * math.pi)


@kernel
def to_byte(number: float) -> int:
    """Return the nearest integer in -127..127, the wire's range without -128."""
    return int(min(max(np.rint(number), -127.0), 127.0))


@kernel_over(firmware)
def send_request(arm: Ints, wheels: Ints, matrix: Ints, request: Request, units: Floats) -> None:
    """Send a request to the firmware in bytes of the wire.

    `units` are those of the wire's x, y (to the RIGHT: negative) and theta; m/s, m/s, rad/s; shape (3,).
    """
    x, y, theta = to_byte(request[0] / units[0]), to_byte(request[1] / units[1]), to_byte(request[2] / units[2])
    firmware.command(arm, wheels, matrix, firmware.XYTHETA_SPACE, x, y, theta)


@kernel_over(firmware, power)
def is_held(arm: Ints, amounts: Floats, marks: Ints) -> bool:
    """Return whether charging, an empty battery, heat or overvoltage blocks the command."""
    is_off = power.holds_motors(marks) or arm[firmware.OVERHEATED] == 1
    return bool(is_off or power.bus_byte(amounts) > firmware.BUS_TOO_HIGH)


@kernel
def on_dock(x: float, y: float, towards: Facing, face: Floats) -> bool:
    """Return whether the robot's nose touches the dock's contacts.

    `towards` is cosine and sine of its heading; `face` is the middle of the dock's face, its outward direction, and the
    nose's distance from the body's centre: x, y, ux, uy, m.
    """
    c, s = towards
    if not -(c * face[2] + s * face[3]) > DOCK_COS:
        return False
    return bool(math.hypot(x + face[4] * c - face[0], y + face[4] * s - face[1]) < DOCK_REACH_M)


@kernel_over(motors, firmware, power)
def draw_power(motion: Floats, amounts: Floats, marks: Ints, is_on_dock: bool) -> None:
    """Advance the power supply by `TICKS_PER_POWER_STEP`; reset the motors' charge counters."""
    span_s = TICKS_PER_POWER_STEP * motors.TICK_S
    a, b, c = motion[motors.SUPPLY, 0], motion[motors.SUPPLY, 1], motion[motors.SUPPLY, 2]
    power.advance(amounts, marks, (a + b + c) / span_s, is_on_dock, span_s)
    for i in range(3):
        motion[motors.SUPPLY, i] = 0.0


@kernel_over(firmware, motors, power)
def report(amounts: Floats, motion: Floats, wheels: Ints, noise: Floats, out: Floats) -> None:
    """Write the first 16 channels as a packet's bytes: bus and batteries, V, in units of 0.1 V, then the motors'.

    `amounts` of the supply, `noise` ten standard normals, motion and wheels as for `motors.report`.
    """
    for i in range(4):
        volts = amounts[power.BUS_V] if i == 0 else amounts[power.BATTERY_V + i - 1]
        out[i] = min(max(np.rint(10.0 * volts + VOLT_SD[i] * noise[i]), 0.0), 255.0)
    motors.report(motion, wheels, noise[4:], out[4:])


@kernel_over(fields, packet, firmware, motors, power)
def sample(
    plant: Plant,
    senses: Kit,
    scales: Scales,
    path: Floats,
    contact_n_s: float,
    request: Request,
    air: Air,
    normal: Floats,
    uniform: Floats,
    out: Floats,
) -> End:
    """Write all channels of the packet at the end of a path, SI units; return its end.

    Args:
        plant: The state of firmware, motors and supply.
        senses: First four arguments of `packet.read`.
        scales: Scales of the first channels and of the request.
        path: Motion at the end of each tick, of which the last three are used, shape (n, 6), in the order of `Motion`.
        contact_n_s: Contact impulse over the last tick.
        request: The request of this period.
        air: State of the room; see `packet.read`.
        normal: Standard normals, shape (67,): ten of `report`, then those of `packet.read`.
        uniform: For the jumps of ir_distance, shape (2, 10).
        out: Receives the packet, shape (n_channels,).
    """
    (arm, wheels, motion, _, _), (amounts, marks) = plant
    scene, eyes, memory, steps = senses
    lsb, offset, largest, at_request, at_overheating = scales
    elapsed_s, lit, gain, ambient, room_k, lag_share, drift_share = air
    report(amounts, motion, wheels, normal, out[:N_RAW])
    for i in range(N_RAW):
        out[i] = lsb[i] * out[i] + offset[i]
    earlier, before, now = path[path.shape[0] - 3], path[path.shape[0] - 2], path[path.shape[0] - 1]
    heading = wrapped(now[2])
    ax_before, ay_before = (before[3] - earlier[3]) / motors.TICK_S, (before[4] - earlier[4]) / motors.TICK_S
    ax, ay = (now[3] - before[3]) / motors.TICK_S, (now[4] - before[4]) / motors.TICK_S
    # The shell is soft: a hit shows in two packets of the accelerometer.
    pose = now[0], now[1], heading, now[5], 0.5 * (ax_before + ax), 0.5 * (ay_before + ay)
    pose_before = before[0], before[1], wrapped(before[2]), before[5], ax_before, ay_before
    duties = wheels[firmware.DUTY]
    duty: Any = (duties[0] * PER_DUTY, duties[1] * PER_DUTY, duties[2] * PER_DUTY)  # indexed like an array
    speed, seen = motion[motors.RIM_SPEED], out[N_RAW : N_RAW + steps.shape[1]]
    packet.read(
        scene, eyes, memory, steps, normal[N_NOISE:], uniform, pose_before, pose, speed, duty, contact_n_s,
        elapsed_s, lit, gain, ambient, room_k, lag_share, drift_share, seen,
    )  # fmt: skip
    for i in range(3):
        out[at_request + i] = request[i] / largest[i]
    out[at_overheating] = 1.0 if arm[firmware.OVERHEATED] == 1 else 0.0
    return now[0], now[1], heading, is_held(arm, amounts, marks)


@kernel_over(fields, packet, firmware, motors, power, tick, planar)
def run_period(
    plant: Plant,
    senses: Kit,
    scales: Scales,
    shape: Shape,
    motion: Floats,
    wire: tuple[Ints, Floats, Floats],
    now: tuple[int, int],
    request: Request,
    air: Air,
    normal: Floats,
    uniform: Floats,
    path: Floats,
    out: Floats,
) -> End:
    """Hold a request for a period of the planar engine and write the packet at its end; see `sample`.

    Args:
        plant: The state of firmware, motors and supply, changed in place.
        senses: First four arguments of `packet.read`; the memory is changed.
        scales: See `sample`.
        shape: Body and obstacles for `planar.step`.
        motion: Of the body, changed in place.
        wire: The kinematics in 1/1024 (3, 3), the wire's units, and the dock's face (see `on_dock`).
        now: Ticks since the robot was switched on, and the number of the stuck wheel.
        request: The request of this period.
        air: State of the room at the end.
        normal: Standard normals, shape (3 n + 67,): of n ticks' encoders, then of the packet.
        uniform: For the jumps of ir_distance, shape (2, 10).
        path: Receives the motion at the end of each of the n ticks, shape (n, 6).
        out: Receives the packet, shape (n_channels,).

    Returns:
        x, y, heading, and whether the request was blocked at the beginning or the end of the period.
    """
    drive, (amounts, marks) = plant
    matrix, units, face = wire
    n_ticks, stuck = now
    n = path.shape[0]
    send_request(drive[0], drive[1], matrix, request, units)
    was_held = is_held(drive[0], amounts, marks)
    towards = planar.facing(motion[planar.HEADING])
    for k in range(n):
        supply = power.bus_byte(amounts), power.holds_motors(marks), amounts[power.BUS_V], stuck
        noise = normal[3 * k : 3 * k + 3]
        towards = tick.tick_once(drive, supply, shape, motion, towards, motors.TICK_S, noise, path[k])
        if (n_ticks + k + 1) % TICKS_PER_POWER_STEP == 0:
            draw_power(drive[2], amounts, marks, on_dock(motion[planar.X], motion[planar.Y], towards, face))
    impulse = motion[planar.IMPULSE]
    end = sample(plant, senses, scales, path, impulse, request, air, normal[3 * n :], uniform, out)
    return end[0], end[1], end[2], was_held or end[3]
