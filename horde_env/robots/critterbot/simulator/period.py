"""One period of the simulated robot: the command, its ticks of 10 ms, the power supply, and the frame at its end.

A tick is `act` (firmware, motors), a step of the physics, `sense` (encoders, supply). Calling a
kernel costs more than its computation, so `run_period` is a whole step of the planar engine, for an
environment of one robot and for each robot of a batch. PyBullet is called from Python at every tick:
`send_request` precedes its ticks, between two of them is `sense_and_act`, and `sample` follows them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from horde_env._jit import Record, RecordFields, Records, kernel, kernel_over
from horde_env.backend import Floats, Ints
from horde_env.robots.critterbot.simulator import fields, firmware, motors, packet, power
from horde_env.robots.critterbot.simulator.fields import Pose
from horde_env.sim import planar
from horde_env.sim.planar import Facing

N_RAW = 16  # bus, three batteries, four numbers of each motor: the first channels of an observation
N_NOISE = 10  # standard normals for them
TICKS_PER_POWER_STEP = 10  # the supply changes slowly
VOLT_SD = (0.5, 0.4, 0.4, 0.4)  # of bus and batteries at rest in the log, 0.1 V
NO_WHEEL = -1  # is stuck

# Numbers of `face`, the dock's.
FACE_X = 0  # of its middle, m
FACE_Y = 1  # of its middle, m
FACE_UX = 2  # outward direction, unit vector
FACE_UY = 3
NOSE_M = 4  # distance of the robot's nose from the body's centre
REACH_M = 5  # largest distance at which contacts meet
REACH_COS = 6  # cosine of the largest angle at which contacts meet
N_FACE = 7

PER_DUTY = 1.0 / firmware.FULL_DUTY

# x, y, heading and their rates, as in `Motion`
Moved = tuple[float, float, float, float, float, float]
Request = tuple[float, float, float]  # m/s forward, m/s left, rad/s counter-clockwise
STILL: Request = (0.0, 0.0, 0.0)


class RobotModel(NamedTuple):
    """Arrays and numbers that all robots of a kind in one pen share."""

    geometry: Floats  # of the wheels, (3, 5)
    # The world, and the sensors: fields of `packet.Scene` and `packet.Eyes`.
    scene_fields: RecordFields
    room: Floats  # (4,)
    eyes_fields: RecordFields
    steps: Floats  # of the converter, (4, 37)
    # Scales of the first channels, (N_RAW,), and of the request, (3,).
    lsb: Floats
    offset: Floats
    largest_request: Floats
    request_channel: int  # first of three
    overheating_channel: int
    # The planar engine's body and obstacles: fields of `planar.Shape`; unused with PyBullet.
    shape_fields: RecordFields
    # The wire: kinematics in 1/1024, (3, 3); units of x, y (to the RIGHT: negative) and theta, (3,).
    matrix: Ints
    units: Floats
    face: Floats  # of the dock, (N_FACE,)


# The end of a period: x and y (m), heading (rad, in (-pi, pi]), whether the command was blocked. Not a
# NamedTuple, which a kernel returns to Python in several microseconds.
End = tuple[float, float, float, bool]


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
def is_held(robots: Records, i: int) -> bool:
    """Return whether charging, an empty battery, heat or overvoltage blocks the command."""
    robot = robots[i]
    is_off = power.holds_motors(robot.marks) or robot.arm[firmware.OVERHEATED] == 1
    return bool(is_off or power.bus_byte(robot.amounts) > firmware.BUS_TOO_HIGH)


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
def act(
    robots: Records, i: int, geometry: Floats, stuck: int, towards: Facing
) -> tuple[float, float, float]:
    """Run the firmware and the motors for 10 ms; return their force on the body: (Fx, Fy) in N, torque in N m.

    `geometry` is the wheels', shape (3, 5); `stuck` the number of a blocked wheel, or NO_WHEEL;
    `towards` cosine and sine of the body's heading.
    """
    robot = robots[i]
    motion = robot.motion
    wheels = robot.wheels
    force = robot.force
    bus_v = robot.amounts[power.BUS_V]
    firmware.cycle(
        robot.arm, wheels, power.bus_byte(robot.amounts), power.holds_motors(robot.marks)
    )
    if stuck == NO_WHEEL:
        motors.push(motion, wheels, geometry, towards, bus_v, force)
    else:
        motors.push_with_stuck_wheel(motion, wheels, geometry, towards, bus_v, force, stuck)
    return force[0], force[1], force[2]


@kernel_over(firmware, motors, planar, power)
def sense(
    robots: Records,
    i: int,
    geometry: Floats,
    face: Floats,
    stuck: int,
    n_ticks: int,
    noise: Floats,
    k: int,
    moved: Moved,
) -> Facing:
    """End a tick: update the encoders, and every tenth time the power supply; return `planar.facing` of the heading.

    `geometry` is the wheels', `face` the dock's, shape (N_FACE,); `n_ticks` the number of the tick
    since the robot was switched on, from 1 on; `noise` has three standard normals per tick for the
    encoders, `k` is the number of the tick in it; `moved` is the motion of the body at the end of
    the tick.
    """
    robot = robots[i]
    motion = robot.motion
    wheels = robot.wheels
    x, y, heading, vx, vy, yaw_rate = moved
    towards = planar.facing(heading)
    draws = noise[3 * k : 3 * k + 3]
    motors.sense(motion, wheels, geometry, draws, towards, vx, vy, yaw_rate)
    if stuck != NO_WHEEL:
        wheels[firmware.CLICKS, stuck] = 0
    if n_ticks % TICKS_PER_POWER_STEP == 0:
        span_s = TICKS_PER_POWER_STEP * motors.TICK_S
        a = motion[motors.SUPPLY, 0]
        b = motion[motors.SUPPLY, 1]
        c = motion[motors.SUPPLY, 2]
        motors_a = (a + b + c) / span_s
        power.advance(robot.amounts, robot.marks, motors_a, on_dock(x, y, towards, face), span_s)
        for wheel in range(3):
            motion[motors.SUPPLY, wheel] = 0.0
    return towards


@kernel_over(firmware, motors, planar, power)
def sense_and_act(
    robots: Records,
    i: int,
    geometry: Floats,
    face: Floats,
    stuck: int,
    n_ticks: int,
    noise: Floats,
    k: int,
    moved: Moved,
) -> tuple[float, float, float]:
    """End a tick by `sense` and begin the next by `act`."""
    towards = sense(robots, i, geometry, face, stuck, n_ticks, noise, k, moved)
    return act(robots, i, geometry, stuck, towards)


@kernel_over(firmware, motors, planar, power)
def run_ticks(
    robots: Records,
    i: int,
    geometry: Floats,
    shape_fields: RecordFields,
    face: Floats,
    n_ticks: int,
    stuck: int,
    noise: Floats,
    path: Floats,
) -> None:
    """Advance the planar engine by one tick per row of `path`, which receives the motion at its end.

    `shape_fields` are those of `planar.Shape`; `n_ticks` is the number of ticks so far; the other
    arguments are those of `sense`.
    """
    robot = robots[i]
    body = robot.body
    towards = planar.facing(body[planar.HEADING])
    for k in range(path.shape[0]):
        force = act(robots, i, geometry, stuck, towards)
        planar.step(body, robot.contacts, towards, shape_fields, force, motors.TICK_S)
        for n in range(path.shape[1]):
            path[k, n] = body[n]
        moved = body[0], body[1], body[2], body[3], body[4], body[5]
        towards = sense(robots, i, geometry, face, stuck, n_ticks + k + 1, noise, k, moved)


# ---- a period --------------------------------------------------------------------------------------------------------


@kernel_over(firmware, motors, power)
def report(robots: Records, i: int, noise: Floats, out: Floats) -> None:
    """Write the first 16 channels as a packet's bytes: bus and batteries, V, in units of 0.1 V, then the motors'.

    `noise` are ten standard normals.
    """
    robot = robots[i]
    for k in range(4):
        if k == 0:
            volts = robot.amounts[power.BUS_V]
        else:
            volts = robot.amounts[power.BATTERY_V + k - 1]
        out[k] = min(max(np.rint(10.0 * volts + VOLT_SD[k] * noise[k]), 0.0), 255.0)
    motors.report(robot.motion, robot.wheels, noise[4:], out[4:])


@kernel_over(fields, packet, firmware, motors, planar)
def instant_of(robot: Record, contact_n_s: float) -> packet.Instant:
    """Return the body at the end of a robot's path; its last three rows are used."""
    n = robot.path.shape[0]
    earlier = robot.path[n - 3]
    previous = robot.path[n - 2]
    newest = robot.path[n - 1]
    previous_ax = (previous[planar.VX] - earlier[planar.VX]) / motors.TICK_S
    previous_ay = (previous[planar.VY] - earlier[planar.VY]) / motors.TICK_S
    ax = (newest[planar.VX] - previous[planar.VX]) / motors.TICK_S
    ay = (newest[planar.VY] - previous[planar.VY]) / motors.TICK_S
    previous_pose = Pose(
        x=previous[planar.X],
        y=previous[planar.Y],
        heading=wrapped(previous[planar.HEADING]),
        yaw_rate=previous[planar.YAW_RATE],
        ax=previous_ax,
        ay=previous_ay,
    )
    # The shell is soft: a hit shows in two packets of the accelerometer.
    pose = Pose(
        x=newest[planar.X],
        y=newest[planar.Y],
        heading=wrapped(newest[planar.HEADING]),
        yaw_rate=newest[planar.YAW_RATE],
        ax=0.5 * (previous_ax + ax),
        ay=0.5 * (previous_ay + ay),
    )
    duties = robot.wheels[firmware.DUTY]
    return packet.Instant(
        previous_pose=previous_pose,
        pose=pose,
        wheel_speed=robot.motion[motors.RIM_SPEED],
        duty=(duties[0] * PER_DUTY, duties[1] * PER_DUTY, duties[2] * PER_DUTY),
        contact_n_s=contact_n_s,
    )


@kernel_over(fields, packet, firmware, motors, planar, power)
def sample(
    robots: Records,
    i: int,
    model_fields: RecordFields,
    contact_n_s: float,
    request: Request,
    t_s: float,
    out: Floats,
) -> End:
    """Write all channels of the packet at the end of a robot's path into `out`, SI units; return its end.

    Call it once per packet. `contact_n_s` is the contact impulse over the last tick, `t_s` the time
    since the robot was switched on.
    """
    robot = robots[i]
    model = RobotModel(*model_fields)
    air = packet.air_at(robot.times, model.room, t_s)
    noise = robot.normal[3 * robot.path.shape[0] :]
    report(robots, i, noise, out[:N_RAW])
    for k in range(N_RAW):
        out[k] = model.lsb[k] * out[k] + model.offset[k]
    instant = instant_of(robot, contact_n_s)
    packet.read(
        packet.Scene(*model.scene_fields),
        packet.Eyes(*model.eyes_fields),
        robot,
        model.steps,
        noise[N_NOISE:],
        robot.uniform,
        instant,
        air,
        out[N_RAW : N_RAW + model.steps.shape[1]],
    )
    for k in range(3):
        out[model.request_channel + k] = request[k] / model.largest_request[k]
    if robot.arm[firmware.OVERHEATED] == 1:
        out[model.overheating_channel] = 1.0
    else:
        out[model.overheating_channel] = 0.0
    pose = instant.pose
    return pose.x, pose.y, pose.heading, is_held(robots, i)


@kernel_over(fields, packet, firmware, motors, power, planar)
def run_period(
    robots: Records,
    i: int,
    model_fields: RecordFields,
    n_ticks: int,
    stuck: int,
    request: Request,
    is_first: bool,
    out: Floats,
) -> End:
    """Hold a request for a period of the planar engine and write the packet at its end; see `sample`.

    `n_ticks` are the ticks since the robot was switched on, at the beginning; `stuck` is the number
    of a blocked wheel, or NO_WHEEL. The end says whether the request was blocked at the beginning or
    the end of the period. For the first packet after a reset, `is_first`, no tick passes and the
    request is not sent: `sample` alone would be compiled for Python once more, in a fifth of the time.
    """
    robot = robots[i]
    model = RobotModel(*model_fields)
    n_ticks_at_end = n_ticks
    was_held = False
    if not is_first:
        send_request(robot.arm, robot.wheels, model.matrix, request, model.units)
        was_held = is_held(robots, i)
        run_ticks(
            robots,
            i,
            model.geometry,
            model.shape_fields,
            model.face,
            n_ticks,
            stuck,
            robot.normal,
            robot.path,
        )
        n_ticks_at_end = n_ticks + robot.path.shape[0]
    contact_n_s = robot.body[planar.IMPULSE]
    t_s = n_ticks_at_end * motors.TICK_S
    x, y, heading, is_held_now = sample(robots, i, model_fields, contact_n_s, request, t_s, out)
    return x, y, heading, was_held or is_held_now
