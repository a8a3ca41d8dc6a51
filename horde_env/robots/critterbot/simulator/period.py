"""One period of the simulated robot: the command, its ticks of 10 ms, the power supply, and the frame at its end.

A tick is `act` (firmware, motors), a step of the physics, `sense` (encoders, supply). Calling a
kernel costs more than
its computation, so `run_period` is a whole step of the planar engine. PyBullet is called from
    Python at every tick:
`send_request` precedes its ticks, between two of them is `sense_and_act`, and `sample` follows
them.

Arguments of several kernels, all changed in place:

    plant     the ARM's words, the wheels' rows, the motors' state, the wheels' geometry (`motors.wheel_geometry`), the
              force of the last tick (3,), the power supply's amounts and marks
    senses    the first four arguments of `packet.read`, and those of `packet.air_at`
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from horde_env._jit import kernel, kernel_over
from horde_env.backend import Floats, Ints
from horde_env.robot import RobotSpec
from horde_env.robots.critterbot.simulator import fields, firmware, motors, packet, power
from horde_env.robots.critterbot.simulator.packet import Eyes, Memory, Scene
from horde_env.sim import planar
from horde_env.sim.planar import Facing, Shape

N_RAW = 16  # bus, three batteries, four numbers of each motor: the first channels of an observation
N_NOISE = 10
TICKS_PER_POWER_STEP = 10  # the supply changes slowly
VOLT_SD = (0.5, 0.4, 0.4, 0.4)  # of bus and batteries at rest in the log, 0.1 V
NO_WHEEL = -1  # is stuck

# The dock's face: its middle and outward direction, the distance of the robot's nose from the
# body's centre, and the largest distance and the cosine of the largest angle at which contacts
# meet.
FACE_X, FACE_Y, FACE_UX, FACE_UY, NOSE_M, REACH_M, REACH_COS, N_FACE = range(8)

PER_DUTY = 1.0 / firmware.FULL_DUTY

# Tuples, because passing a NamedTuple to a kernel costs twice as much.
# X, y, heading and their rates, as in `Motion`
Moved = tuple[float, float, float, float, float, float]
Plant = tuple[Ints, Ints, Floats, Floats, Floats, Floats, Ints]
Senses = tuple[Scene, Eyes, Memory, Floats, Floats, Floats]
Request = tuple[float, float, float]  # m/s forward, m/s left, rad/s counter-clockwise
# Lsb, offset, largest request, places of last_request, overheating
Scales = tuple[Floats, Floats, Floats, int, int]
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

    `units` are those of the wire's x, y (to the RIGHT: negative) and theta; m/s, m/s, rad/s; shape
    (3,).
    """
    x = to_byte(request[0] / units[0])
    y = to_byte(request[1] / units[1])
    theta = to_byte(request[2] / units[2])
    firmware.command(arm, wheels, matrix, firmware.XYTHETA_SPACE, x, y, theta)


@kernel_over(firmware, power)
def is_held(plant: Plant) -> bool:
    """Return whether charging, an empty battery, heat or overvoltage blocks the command."""
    arm, _, _, _, _, amounts, marks = plant
    is_off = power.holds_motors(marks) or arm[firmware.OVERHEATED] == 1
    return bool(is_off or power.bus_byte(amounts) > firmware.BUS_TOO_HIGH)


@kernel
def on_dock(x: float, y: float, towards: Facing, face: Floats) -> bool:
    """Return whether the robot's nose touches the dock's contacts; `towards` is cosine and sine of its heading."""
    c, s = towards
    if not -(c * face[FACE_UX] + s * face[FACE_UY]) > face[REACH_COS]:
        return False
    off_m = math.hypot(x + face[NOSE_M] * c - face[FACE_X], y + face[NOSE_M] * s - face[FACE_Y])
    return bool(off_m < face[REACH_M])


# ---- a tick ----------------------------------------------------------------------------------------------------------


@kernel_over(firmware, motors, power)
def act(plant: Plant, stuck: int, towards: Facing) -> tuple[float, float, float]:
    """Run the firmware and the motors for 10 ms; return their force on the body: (Fx, Fy) in N, torque in N m.

    `stuck` is the number of a blocked wheel, or NO_WHEEL; `towards` cosine and sine of the body's
    heading.
    """
    arm, wheels, motion, geometry, force, amounts, marks = plant
    firmware.cycle(arm, wheels, power.bus_byte(amounts), power.holds_motors(marks))
    if stuck == NO_WHEEL:
        motors.push(motion, wheels, geometry, towards, amounts[power.BUS_V], force)
    else:
        motors.push_with_stuck_wheel(
            motion, wheels, geometry, towards, amounts[power.BUS_V], force, stuck
        )
    return force[0], force[1], force[2]


@kernel_over(firmware, motors, planar, power)
def sense(
    plant: Plant, face: Floats, stuck: int, n_ticks: int, noise: Floats, k: int, moved: Moved
) -> Facing:
    """End a tick: update the encoders, and every tenth time the power supply; return `planar.facing` of the heading.

    `face` is the dock's, shape (N_FACE,); `n_ticks` the number of the tick since the robot was
    switched on, from 1 on; `noise` has three standard normals per tick for the encoders, `k` is the
    number of the tick in it; `moved` is the motion of the body at the end of the tick.
    """
    _, wheels, motion, geometry, _, amounts, marks = plant
    x, y, heading, vx, vy, yaw_rate = moved
    towards = planar.facing(heading)
    motors.sense(motion, wheels, geometry, noise[3 * k : 3 * k + 3], towards, vx, vy, yaw_rate)
    if stuck != NO_WHEEL:
        wheels[firmware.CLICKS, stuck] = 0
    if n_ticks % TICKS_PER_POWER_STEP == 0:
        span_s = TICKS_PER_POWER_STEP * motors.TICK_S
        a = motion[motors.SUPPLY, 0]
        b = motion[motors.SUPPLY, 1]
        c = motion[motors.SUPPLY, 2]
        power.advance(amounts, marks, (a + b + c) / span_s, on_dock(x, y, towards, face), span_s)
        for i in range(3):
            motion[motors.SUPPLY, i] = 0.0
    return towards


@kernel_over(firmware, motors, planar, power)
def sense_and_act(
    plant: Plant, face: Floats, stuck: int, n_ticks: int, noise: Floats, k: int, moved: Moved
) -> tuple[float, float, float]:
    """End a tick by `sense` and begin the next by `act`."""
    return act(plant, stuck, sense(plant, face, stuck, n_ticks, noise, k, moved))


@kernel_over(firmware, motors, planar, power)
def run_ticks(
    plant: Plant,
    face: Floats,
    now: tuple[int, int],
    shape: Shape,
    body: Floats,
    noise: Floats,
    path: Floats,
) -> None:
    """Advance the planar engine by one tick per row of `path`; arguments as for `run_period`."""
    n_ticks, stuck = now
    inertia, corners, pieces, radii, obstacles, contacts = shape
    towards = planar.facing(body[planar.HEADING])
    for k in range(path.shape[0]):
        push = act(plant, stuck, towards)
        planar.step(
            body, towards, inertia, corners, pieces, radii, obstacles, contacts, push, motors.TICK_S
        )
        moved = body[0], body[1], body[2], body[3], body[4], body[5]
        path[k, 0], path[k, 1], path[k, 2], path[k, 3], path[k, 4], path[k, 5] = moved
        towards = sense(plant, face, stuck, n_ticks + k + 1, noise, k, moved)


# ---- a period --------------------------------------------------------------------------------------------------------


@kernel_over(firmware, motors, power)
def report(plant: Plant, noise: Floats, out: Floats) -> None:
    """Write the first 16 channels as a packet's bytes: bus and batteries, V, in units of 0.1 V, then the motors'.

    `noise` are ten standard normals.
    """
    _, wheels, motion, _, _, amounts, _ = plant
    for i in range(4):
        if i == 0:
            volts = amounts[power.BUS_V]
        else:
            volts = amounts[power.BATTERY_V + i - 1]
        out[i] = min(max(np.rint(10.0 * volts + VOLT_SD[i] * noise[i]), 0.0), 255.0)
    motors.report(motion, wheels, noise[4:], out[4:])


@kernel_over(fields, packet, firmware, motors, power)
def sample(
    plant: Plant,
    senses: Senses,
    scales: Scales,
    path: Floats,
    contact_n_s: float,
    request: Request,
    t_s: float,
    normal: Floats,
    uniform: Floats,
    out: Floats,
) -> End:
    """Write all channels of the packet at the end of a path into `out`, SI units; return its end; once per packet.

    `path` has the motion at the end of each tick, of which the last three are used, shape (n, 6),
    in the order of `Motion`; `contact_n_s` is the contact impulse over the last tick, `t_s` the
    time since the robot was switched on;
    `normal` are standard normals, shape (67,): ten of `report`, then those of `packet.read`;
        `uniform` is for the jumps
    of ir_distance, shape (2, 10).
    """
    arm, wheels, motion, _, _, _, _ = plant
    scene, eyes, memory, steps, times, room = senses
    lsb, offset, largest, at_request, at_overheating = scales
    air = packet.air_at(times, room, t_s)
    report(plant, normal, out[:N_RAW])
    for i in range(N_RAW):
        out[i] = lsb[i] * out[i] + offset[i]
    earlier = path[path.shape[0] - 3]
    previous_pose = path[path.shape[0] - 2]
    now = path[path.shape[0] - 1]
    heading = wrapped(now[2])
    ax_before = (previous_pose[3] - earlier[3]) / motors.TICK_S
    ay_before = (previous_pose[4] - earlier[4]) / motors.TICK_S
    ax = (now[3] - previous_pose[3]) / motors.TICK_S
    ay = (now[4] - previous_pose[4]) / motors.TICK_S
    # The shell is soft: a hit shows in two packets of the accelerometer.
    pose = now[0], now[1], heading, now[5], 0.5 * (ax_before + ax), 0.5 * (ay_before + ay)
    pose_before = (
        previous_pose[0],
        previous_pose[1],
        wrapped(previous_pose[2]),
        previous_pose[5],
        ax_before,
        ay_before,
    )
    duties = wheels[firmware.DUTY]
    # Indexed like an array
    duty: Any = (duties[0] * PER_DUTY, duties[1] * PER_DUTY, duties[2] * PER_DUTY)
    speed = motion[motors.RIM_SPEED]
    readings = out[N_RAW : N_RAW + steps.shape[1]]
    noise = normal[N_NOISE:]
    packet.read(
        scene,
        eyes,
        memory,
        steps,
        noise,
        uniform,
        pose_before,
        pose,
        speed,
        duty,
        contact_n_s,
        air,
        readings,
    )
    for i in range(3):
        out[at_request + i] = request[i] / largest[i]
    if arm[firmware.OVERHEATED] == 1:
        out[at_overheating] = 1.0
    else:
        out[at_overheating] = 0.0
    return now[0], now[1], heading, is_held(plant)


@kernel_over(fields, packet, firmware, motors, power, planar)
def run_period(
    plant: Plant,
    senses: Senses,
    scales: Scales,
    shape: Shape,
    body: Floats,
    wire: tuple[Ints, Floats, Floats],
    now: tuple[int, int],
    request: Request,
    normal: Floats,
    uniform: Floats,
    path: Floats,
    out: Floats,
) -> End:
    """Hold a request for a period of the planar engine and write the packet at its end; see `sample`.

    `shape` and `body`, which changes in place, are for `planar.step`; `wire` has the kinematics in
    1/1024 (3, 3), the wire's units, and the dock's face; `now` the ticks since the robot was
    switched on, and the number of the stuck wheel; `normal` standard normals, shape (3 n + 67,): of
    n ticks' encoders, then of the packet. `path` receives the motion at the end of each tick, shape
    (n, 6). The end says whether the request was blocked at the beginning or the end of the period.
    """
    matrix, units, face = wire
    n = path.shape[0]
    send_request(plant[0], plant[1], matrix, request, units)
    was_held = is_held(plant)
    run_ticks(plant, face, now, shape, body, normal, path)
    impulse = body[planar.IMPULSE]
    t_s = (now[0] + n) * motors.TICK_S
    end = sample(plant, senses, scales, path, impulse, request, t_s, normal[3 * n :], uniform, out)
    return end[0], end[1], end[2], was_held or end[3]
