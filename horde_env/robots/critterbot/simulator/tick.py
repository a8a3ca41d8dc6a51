"""All computation between two steps of the physics in one kernel, because calls of kernels are expensive.

A tick of 10 ms is: `act` (firmware, motors), a step of the physics, `sense` (encoders). `sense_and_act` ends one tick
and begins the next. The state is that of `firmware` (arm, wheels) and of `motors` (motion, geometry).
"""

from __future__ import annotations

import math

from horde_env._jit import kernel_over
from horde_env.backend import Floats, Ints
from horde_env.robots.critterbot.simulator import firmware, motors
from horde_env.sim import planar
from horde_env.sim.planar import Facing, Shape

NO_WHEEL = -1  # is stuck

# First arguments of `act`: the ARM's words, the wheels' rows, the motors' state, the wheels' geometry, and a buffer for
# the force. A tuple, because passing a NamedTuple to a kernel costs twice as much.
Drive = tuple[Ints, Ints, Floats, Floats, Floats]
Supply = tuple[int, bool, float, int]  # bus_byte, is_off, bus_v and stuck of `act`

STUCK_FRICTION_N = 4.0  # of a wheel that is dragged over the floor without turning


@kernel_over(firmware, motors)
def act(
    arm: Ints,
    wheels: Ints,
    motion: Floats,
    geometry: Floats,
    force: Floats,
    bus_byte: int,
    is_off: bool,
    bus_v: float,
    stuck: int,
    towards: Facing,
) -> tuple[float, float, float]:
    """Run the firmware and the motors for 10 ms; return their force on the body: (Fx, Fy) in N, torque in N m.

    Args:
        arm: The ARM's words, changed in place.
        wheels: The wheels' rows, changed in place.
        motion: The motors' state, changed in place.
        geometry: See `motors.wheel_geometry`.
        force: Also receives the force, shape (3,).
        bus_byte: Bus voltage as the firmware reads it, 0.1 V.
        is_off: Whether charger or battery hold the motors still.
        bus_v: Bus voltage, V.
        stuck: Number of a blocked wheel, or NO_WHEEL.
        towards: Cosine and sine of the body's heading.
    """
    firmware.cycle(arm, wheels, bus_byte, is_off)
    if stuck == NO_WHEEL:
        motors.push(motion, wheels, geometry, towards, bus_v, force)
    else:
        push_with_stuck_wheel(wheels, motion, geometry, force, bus_v, stuck, towards)
    return force[0], force[1], force[2]


@kernel_over(firmware, motors)
def push_with_stuck_wheel(
    wheels: Ints, motion: Floats, geometry: Floats, force: Floats, bus_v: float, stuck: int, towards: Facing
) -> None:
    """Write the force of three wheels of which one is blocked and slides; arguments as for `act`.

    Its motor stands still and draws a stall current; its drive has no effect on the body.
    """
    rim_speed = motion[motors.RIM_SPEED, stuck]
    motion[motors.RIM_SPEED, stuck] = 0.0
    motors.push(motion, wheels, geometry, towards, bus_v, force)
    drive = math.copysign(motors.FORCE_PER_BYTE * motion[motors.CURRENT, stuck], wheels[firmware.DUTY, stuck])
    change = -min(max(drive, -motors.GRIP_N), motors.GRIP_N) - STUCK_FRICTION_N * motors.fading(rim_speed)
    side, ahead, arm = geometry[stuck, 0], geometry[stuck, 1], geometry[stuck, 2]
    c, s = towards
    force[0] += change * (c * side - s * ahead)
    force[1] += change * (s * side + c * ahead)
    force[2] += change * arm


@kernel_over(firmware, motors)
def sense(
    wheels: Ints,
    motion: Floats,
    geometry: Floats,
    stuck: int,
    noise: Floats,
    towards: Facing,
    vx: float,
    vy: float,
    yaw_rate: float,
) -> None:
    """Update the encoders at the end of a tick; `noise` (3,), the rest as for `motors.sense`."""
    motors.sense(motion, wheels, geometry, noise, towards, vx, vy, yaw_rate)
    if stuck != NO_WHEEL:
        wheels[firmware.CLICKS, stuck] = 0


@kernel_over(firmware, motors, planar)
def sense_and_act(
    arm: Ints,
    wheels: Ints,
    motion: Floats,
    geometry: Floats,
    force: Floats,
    bus_byte: int,
    is_off: bool,
    bus_v: float,
    stuck: int,
    noise: Floats,
    k: int,
    heading: float,
    vx: float,
    vy: float,
    yaw_rate: float,
) -> tuple[float, float, float]:
    """End a tick by `sense`, with row `k` of `noise`, and begin the next by `act`."""
    towards = planar.facing(heading)
    sense(wheels, motion, geometry, stuck, noise[k], towards, vx, vy, yaw_rate)
    return act(arm, wheels, motion, geometry, force, bus_byte, is_off, bus_v, stuck, towards)


@kernel_over(firmware, motors, planar)
def tick_once(
    drive: Drive,
    supply: Supply,
    shape: Shape,
    motion: Floats,
    towards: Facing,
    dt: float,
    noise: Floats,
    out: Floats,
) -> Facing:
    """Advance the planar engine by one tick; arguments as for `run`, but `noise` (3,) and `out` (6,) of this tick.

    `towards` is the `planar.facing` of the heading; returned is that at the end.
    """
    arm, wheels, motor_state, geometry, force = drive
    bus_byte, is_off, bus_v, stuck = supply
    inertia, corners, pieces, radii, obstacles, contacts = shape
    push = act(arm, wheels, motor_state, geometry, force, bus_byte, is_off, bus_v, stuck, towards)
    planar.step(motion, towards, inertia, corners, pieces, radii, obstacles, contacts, push, dt)
    vx, vy, yaw_rate = motion[planar.VX], motion[planar.VY], motion[planar.YAW_RATE]
    towards = planar.facing(motion[planar.HEADING])
    sense(wheels, motor_state, geometry, stuck, noise, towards, vx, vy, yaw_rate)
    for i in range(out.shape[0]):
        out[i] = motion[i]
    return towards


@kernel_over(firmware, motors, planar)
def run(drive: Drive, supply: Supply, shape: Shape, motion: Floats, dt: float, noise: Floats, out: Floats) -> None:
    """Advance one tick per row of `noise`, shape (n, 3), and write the motion at the end of each, shape (n, 6).

    Args:
        drive: The first five arguments of `act`, changed in place.
        supply: The next four: state of the power supply, constant here, and the stuck wheel.
        shape: Body and obstacles for `planar.step`.
        motion: Of the body, changed in place.
        dt: Duration of a tick, seconds.
        noise: Standard normals for the encoders.
        out: Receives x, y, heading, vx, vy, yaw rate of each tick.
    """
    towards = planar.facing(motion[planar.HEADING])
    for k in range(noise.shape[0]):
        towards = tick_once(drive, supply, shape, motion, towards, dt, noise[k], out[k])
