"""Motors, omniwheels and encoders: from duties to the force on the body, and from its motion to bytes.

A wheel's rim moves with the floor (no slip below the grip limit), so the wheels have no state of
motion but the body's. Forces are at the rim, in newtons; currents in the robot's bytes (255 full
scale), since the scale in ampere is unknown.

The numbers are fitted to the real robot's log of 5 October 2010. A stalled motor draws 0.75 byte
per unit of duty at 16.5 V (31 at the limit, falling as the stall cap lowers the duty); turned
freely at 19 units it draws 7. One driven wheel at 19 turns the other two at 9 to 11, two driven
wheels turn the third at 17: that determines the rollers' friction relative to the axles'. Newtons
per byte (0.12) follows from the time in which a 4 kg body stops.

State: `motion`, float64 of shape (N_ROWS, 3), one column per wheel.
"""

from __future__ import annotations

import math

import numpy as np

from horde_env._jit import kernel, kernel_over
from horde_env.backend import Floats, Ints
from horde_env.robots.critterbot.simulator import firmware
from horde_env.sim.planar import Facing

TICK_S = 0.01
WHEEL_UNIT = 0.0176  # m/s of rim speed
EDGE_M = WHEEL_UNIT * TICK_S / 4  # rim travel per encoder edge: four a tick are one unit

# Rows of `motion`.
RIM_SPEED = 0  # m/s
TRAVEL = 1  # of the rim, encoder edges
HANDOVER = 2  # error of the encoder's position, edges
CURRENT = 3  # bytes
SHOWN_CURRENT = 4  # lagged, bytes
HEAT = 5  # fall of the temperature byte
SUPPLY = 6  # charge taken from the bus since the supply's last step, A s
N_ROWS = 7

CURRENT_PER_VOLT = 5.77  # bytes: 0.75 per unit of duty at 16.5 V
BACK_EMF = 0.146 / WHEEL_UNIT  # V per m/s of rim speed: 1.12 units of duty per wheel unit at 16.5 V
FORCE_PER_BYTE = 0.12  # N
AMPERE_PER_BYTE = 0.05  # load of the batteries; an assumption
CURRENT_LAG_S = 0.02
GRIP_N = 8.0  # a third of the weight at a friction of 0.6

AXLE_FRICTION_N = 0.22  # gears and bearing, at any speed
AXLE_DRAG = 0.6 / (19 * WHEEL_UNIT)  # N per m/s
ROLLER_FRICTION_N = 0.85  # of a wheel dragged along its axle
STUCK_FRICTION_N = 4.0  # of a wheel that is dragged over the floor without turning
CREEP = 0.0176  # m/s: friction fades below it, which makes stopping smooth

# An omniwheel rolls from roller to roller, so the encoder runs ahead of the floor and behind it.
# The position error of a tick is a share of the tick's travel; a driven wheel climbs its rollers
# and errs more.
HANDOVER_DRIVEN = 0.075
HANDOVER_ROLLING = 0.035

IDLE_TEMPERATURE = (129.0, 131.0, 133.0)  # bytes, LOWER is hotter; first packet of the log
HEAT_PER_SQUARE = 0.083 / 600.0  # bytes per second and byte^2 of current
COOLING_S = 600.0
# Bytes
CURRENT_SD = 1.0
TEMPERATURE_SD = 0.2


# Columns of a wheel's geometry.
PER_VX = 0  # rim speed per forward speed of the body
PER_VY = 1  # rim speed per leftward speed of the body
PER_YAW_RATE = 2  # rim speed per yaw rate of the body, m
CLOCKWISE_FRICTION = 3  # factor on the friction of its axle
COUNTERCLOCKWISE_FRICTION = 4  # factor on the friction of its axle


def wheel_geometry(angles_rad: Floats, circle_m: float) -> Floats:
    """Return each wheel's rim speed per body velocity (vx, vy, yaw rate) and its friction factors, shape (3, 5).

    A row is (-sin p, cos p, R, 1, 1): the axle's friction is multiplied by the last two while the
    body turns clockwise and counter-clockwise.
    """
    return np.column_stack(
        [-np.sin(angles_rad), np.cos(angles_rad), np.full(3, circle_m), np.ones((3, 2))]
    )


@kernel
def fading(speed: float) -> float:
    """Return a friction's direction in -1..1: the sign of `speed`, smooth at zero."""
    return speed / math.sqrt(speed * speed + CREEP * CREEP)


@kernel_over(firmware)
def motor_current(duty: int, rim_speed: float, bus_v: float) -> float:
    """Return a motor's current, in bytes, >= 0: 0 without duty.

    By the bridge's free-wheeling diodes, a motor that turns faster than its duty coasts without
    braking. One that is driven against its rotation draws more, by its back EMF.
    """
    if duty == 0:
        return 0.0
    if duty > 0:
        along = rim_speed
    else:
        along = -rim_speed
    return max(0.0, CURRENT_PER_VOLT * (bus_v * abs(duty) / firmware.FULL_DUTY - BACK_EMF * along))


@kernel_over(firmware)
def push(
    motion: Floats, wheels: Ints, geometry: Floats, towards: Facing, bus_v: float, out: Floats
) -> None:
    """Write the wheels' force on the body for the coming tick into `out`: (Fx, Fy) of the world in N, torque in N m.

    `motion` has the current RIM_SPEED; its currents and heat are updated. `towards` is cosine and
    sine of the heading.
    """
    fx = 0.0
    fy = 0.0
    torque = 0.0
    vx, vy = motion_of_centre(motion, geometry)
    # 3 R times the yaw rate
    turn = motion[RIM_SPEED, 0] + motion[RIM_SPEED, 1] + motion[RIM_SPEED, 2]
    column = COUNTERCLOCKWISE_FRICTION
    if turn < 0.0:
        column = CLOCKWISE_FRICTION
    for i in range(3):
        duty = wheels[firmware.DUTY, i]
        rim = motion[RIM_SPEED, i]
        current = motor_current(duty, rim, bus_v)
        side = geometry[i, PER_VX]
        ahead = geometry[i, PER_VY]
        arm = geometry[i, PER_YAW_RATE]
        drag = geometry[i, column] * AXLE_DRAG
        friction = geometry[i, column] * AXLE_FRICTION_N
        drive = math.copysign(FORCE_PER_BYTE * current, duty) - drag * rim - friction * fading(rim)
        drive = min(max(drive, -GRIP_N), GRIP_N)
        # The axle points along (ahead, -side); the rollers' friction acts in that direction.
        across = -ROLLER_FRICTION_N * fading(ahead * vx - side * vy)
        fx += drive * side + across * ahead
        fy += drive * ahead - across * side
        torque += drive * arm
        heat_and_charge(motion, i, current, abs(duty))
    c, s = towards
    out[0] = c * fx - s * fy
    out[1] = s * fx + c * fy
    out[2] = torque


@kernel_over(firmware)
def push_with_stuck_wheel(
    motion: Floats,
    wheels: Ints,
    geometry: Floats,
    towards: Facing,
    bus_v: float,
    out: Floats,
    stuck: int,
) -> None:
    """Write the force of three wheels of which number `stuck` is blocked and slides; other arguments as for `push`.

    Its motor stands still and draws a stall current; its drive has no effect on the body.
    """
    rim_speed = motion[RIM_SPEED, stuck]
    motion[RIM_SPEED, stuck] = 0.0
    push(motion, wheels, geometry, towards, bus_v, out)
    drive = math.copysign(FORCE_PER_BYTE * motion[CURRENT, stuck], wheels[firmware.DUTY, stuck])
    change = -min(max(drive, -GRIP_N), GRIP_N) - STUCK_FRICTION_N * fading(rim_speed)
    side = geometry[stuck, PER_VX]
    ahead = geometry[stuck, PER_VY]
    arm = geometry[stuck, PER_YAW_RATE]
    c, s = towards
    out[0] += change * (c * side - s * ahead)
    out[1] += change * (s * side + c * ahead)
    out[2] += change * arm


@kernel
def motion_of_centre(motion: Floats, geometry: Floats) -> tuple[float, float]:
    """Return the body's (vx, vy) in its own frame from the three rim speeds: 2/3 of the sum along each wheel."""
    vx = 0.0
    vy = 0.0
    for i in range(3):
        vx += geometry[i, PER_VX] * motion[RIM_SPEED, i]
        vy += geometry[i, PER_VY] * motion[RIM_SPEED, i]
    return 2.0 / 3.0 * vx, 2.0 / 3.0 * vy


@kernel_over(firmware)
def heat_and_charge(motion: Floats, i: int, current: float, duty: int) -> None:
    """Advance motor i's shown current, heat and charge taken from the bus (A s) by one tick."""
    motion[CURRENT, i] = current
    motion[SHOWN_CURRENT, i] += TICK_S / CURRENT_LAG_S * (current - motion[SHOWN_CURRENT, i])
    motion[HEAT, i] += TICK_S * (HEAT_PER_SQUARE * current * current - motion[HEAT, i] / COOLING_S)
    motion[SUPPLY, i] += TICK_S * AMPERE_PER_BYTE * current * duty / firmware.FULL_DUTY


@kernel_over(firmware)
def sense(
    motion: Floats,
    wheels: Ints,
    geometry: Floats,
    noise: Floats,
    towards: Facing,
    vx: float,
    vy: float,
    yaw_rate: float,
) -> None:
    """Update rim speeds and the motors' bytes (CLICKS, CURRENT, TEMPERATURE) at the end of a tick.

    `noise` are standard normals for the rollers' handover, shape (3,); `vx` and `vy` the body's
    velocity in the world.
    """
    c, s = towards
    ahead = c * vx + s * vy
    leftward = c * vy - s * vx
    for i in range(3):
        rim = (
            geometry[i, PER_VX] * ahead
            + geometry[i, PER_VY] * leftward
            + geometry[i, PER_YAW_RATE] * yaw_rate
        )
        edges = rim * TICK_S / EDGE_M
        share = HANDOVER_DRIVEN
        if wheels[firmware.DUTY, i] == 0:
            share = HANDOVER_ROLLING
        shown_before = math.floor(motion[TRAVEL, i] + motion[HANDOVER, i])
        motion[RIM_SPEED, i] = rim
        motion[TRAVEL, i] += edges
        motion[HANDOVER, i] = share * abs(edges) * noise[i]
        wheels[firmware.CLICKS, i] = int(
            math.floor(motion[TRAVEL, i] + motion[HANDOVER, i]) - shown_before
        )
        wheels[firmware.CURRENT, i] = min(int(motion[SHOWN_CURRENT, i] + 0.5), 255)
        wheels[firmware.TEMPERATURE, i] = min(
            max(int(IDLE_TEMPERATURE[i] - motion[HEAT, i] + 0.5), 0), 255
        )


@kernel_over(firmware)
def report(motion: Floats, wheels: Ints, noise: Floats, out: Floats) -> None:
    """Write the motors' twelve bytes of a packet into `out`: three outputs, velocities, currents, temperatures.

    `noise` holds six standard normals, scaled here to the real robot's noise at rest.
    """
    for i in range(3):
        current = motion[SHOWN_CURRENT, i] + CURRENT_SD * noise[i]
        temperature = IDLE_TEMPERATURE[i] - motion[HEAT, i] + TEMPERATURE_SD * noise[3 + i]
        out[i] = wheels[firmware.OUTPUT, i]
        out[3 + i] = min(max(wheels[firmware.CLICKS, i] >> 2, -128), 127)
        out[6 + i] = min(max(math.floor(current + 0.5), 0.0), 255.0)
        out[9 + i] = min(max(math.floor(temperature + 0.5), 0.0), 255.0)
