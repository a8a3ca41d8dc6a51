"""Kernels of a tick of 1/64 s, except the body's motion (`world`): battery, floor, dock and sensors.

`Machine` holds the arrays that the kernels change. `live` runs several ticks in one call.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from horde_env._jit import RecordFields, kernel, kernel_over
from horde_env.backend import Floats, Ints
from horde_env.robots.create2 import wire
from horde_env.robots.create2.simulator import world
from horde_env.robots.create2.simulator.world import (
    AHEAD,
    AMP_L,
    BASE_M,
    BUMP_L,
    BUMP_R,
    COUNT_L,
    HEADING,
    LEFT,
    RADIUS_M,
    X,
    Y,
)
from horde_env.robots.create2.stream import N_TICKS
from horde_env.robots.create2.wire import COUNT_MOST, OFF, PASSIVE, SAFE, TICK_S, Sensors

Bools = NDArray[np.bool_]

RESISTANCE_OHM = 0.25
CHARGE_A = 1.2
# Asleep; awake; in addition while driving, without the wheels' own
REST_A = -0.05
AWAKE_A = -0.22
DRIVE_A = -0.10
# Voltage of twelve NiMH cells at rest by their charge.
CHARGED = np.array([0.0, 0.05, 0.2, 0.5, 0.9, 1.0])
AT_REST_V = np.array([12.0, 13.0, 14.1, 14.7, 15.3, 15.9])
CHARGING_V = 1.1  # above rest
FULL_SHARE = 0.995

NEAR_SIGNALS = (125, 125, 125, 125, 125, 286)
NEAR_HYSTERESIS = 4
CLIFF_BELOW = 300
OVERCURRENT_A = 1.0
OVERCURRENT_S = 0.25
LIGHT_SD = 1.6
CLIPPED_SD = 0.2
CLIFF_SD = 9.0

EMITTER_M = 0.06  # in front of the dock's face
FIELD_M = 0.61
BEAM_M = 1.5
OMNI_BEAM_M = 1.2
# Seen from the dock, counter-clockwise; 10 degrees overlap
GREEN_DEG = (-25.0, 5.0)
RED_DEG = (-5.0, 25.0)
FIELD_BIT = 1
GREEN_BIT = 4
RED_BIT = 8
# Of the omnidirectional, left and right one: x, y (m), direction, half width (rad)
RECEIVERS = ((0.15, 0.0, 0.0, math.pi), (0.15, 0.03, 0.35, 0.9), (0.15, -0.03, -0.35, 0.9))
DROPOUT = 0.04  # share of ticks without the character
CONTACT_M = 0.03
CONTACT_RAD = math.radians(8.0)
SILL_DROP_S = 0.12
# Durations of being lifted and of a button
LIFT_S = (0.8, 2.0)
PRESSED_S = 1 / 6

# Numbers of `amounts`.
CHARGE_AH = 0  # of the battery
CAPACITY_AH = 1  # of the battery
VOLTS = 2  # of the battery
AMPS = 3  # of the battery
KELVIN = 4  # of the battery
SAG_V = 5  # voltage drop of a bad battery
SILL_S = 6  # time that a wheel is dropped on a sill, left
LIFTED_S = 7  # time that it is lifted, left
CLIFF_S = 8  # time at an edge, left
BUTTON_S = 9  # time that a button is pressed, left
OVER_S = 10  # first of two wheels: time under overcurrent, so far
LIGHT = 12  # first of six light signals, without noise
SEEN_AT = 18  # pose (x, y, heading) at which they were computed
FLOOR = 21  # first of four cliff sensors' offsets
OFFSET = 25  # first of six light sensors' offsets
ROOM_KELVIN = 31
BRIGHTNESS = 32  # cliff signal of the floor
N_AMOUNTS = 33
# Numbers of `marks`.
IS_DOCKED = 0  # 0 or 1
HAS_POWER = 1  # the dock, 0 or 1
IS_CHARGING = 2  # 0 or 1
STUCK = 3  # 0: neither wheel, 1: the left one, 2: the right one
ON_SILL = 4  # 0 or 1
BUTTON = 5  # bits
DIRT = 6  # signal
NEAR = 7  # six bits
N_HISTORY = 8  # ticks in the history
HISTORY = 9  # first of the encoders, left and right, of the last N_HISTORY ticks
N_MARKS = HISTORY + 2 * (N_TICKS + 1)

# Columns of `patches`, rectangles of the floor; of `sills` the first four.
FROM_X = 0  # m
FROM_Y = 1  # m
TO_X = 2  # m
TO_Y = 3  # m
CLIFF_LEVEL = 4  # cliff signal
CLIFF_SWING = 5  # of the cliff signal
DRAG_A = 6  # additional current of each wheel
DIRT_PER_S = 7
# Numbers of `dock`.
DOCK_X = 0  # m
DOCK_Y = 1  # m
DOCK_DIRECTION = 2  # rad


class RobotArrays(NamedTuple):
    """A robot in its room; everything from `state` on changes in place."""

    segments: Floats  # obstacles, (m, 6); see `world`
    patches: Floats  # of the floor, (p, 8)
    sills: Floats  # (s, 4)
    dock: Floats  # (3,)
    lights: Floats  # directions of the light sensors in the body frame, rad, (6,)
    cliffs: Floats  # positions of the cliff sensors in the body frame, m, (4, 2)
    lift_chance: float  # of being lifted in a tick
    button_chance: float  # of a button in a tick
    state: Floats  # pose, wheels, currents; see `world`
    contact: Floats  # what the last tick met; see `world`
    amounts: Floats  # (N_AMOUNTS,)
    marks: Ints  # (N_MARKS,)
    normal: Floats  # standard normals of the last tick, (12,)
    uniform: Floats  # for the dropouts of three receivers, (3,)
    packets: Ints  # the last readings, 7 to 58, in the order of `Sensors`, (N_PACKETS,)


class Rules(NamedTuple):
    """What the robot's program asks of a tick."""

    left_mps: float  # request of the left wheel
    right_mps: float  # request of the right wheel
    mode: int
    was_docked: bool  # a tick ago


# The fields of `Rules`, as Python passes them.
RuleFields = tuple[float, float, int, bool]

_PLACE = {name: i for i, name in enumerate(Sensors._fields)}
BUMPS = _PLACE["bumps"]
WALL = _PLACE["wall"]
CLIFF = _PLACE["cliff_left"]
VIRTUAL_WALL = _PLACE["virtual_wall"]
OVERCURRENTS = _PLACE["overcurrents"]
DIRTY = _PLACE["dirt"]
IR_OMNI = _PLACE["ir_omni"]
BUTTONS = _PLACE["buttons"]
VOLTAGE = _PLACE["voltage"]
WALL_SIGNAL = _PLACE["wall_signal"]
CLIFF_SIGNAL = _PLACE["cliff_signal_left"]
SOURCES = _PLACE["charging_sources"]
ENCODER = _PLACE["encoder_left"]
NEAR_BITS = _PLACE["light_bumper"]
LIGHTS = _PLACE["light_left"]
IR_LEFT = _PLACE["ir_left"]
IR_RIGHT = _PLACE["ir_right"]
WHEEL_MA = _PLACE["current_left"]
BRUSH_MA = _PLACE["current_main_brush"]
STASIS = _PLACE["stasis"]
N_PACKETS = len(Sensors._fields)
CHARACTERS = (IR_OMNI, IR_LEFT, IR_RIGHT)  # in the order of RECEIVERS

_TURN = 2.0 * math.pi


@kernel
def remainder(angle: float) -> float:
    """Return an angle modulo 2 pi, in [-pi, pi]."""
    return float(angle - _TURN * np.rint(angle / _TURN))


@kernel
def within(x: float, y: float, row: Floats) -> bool:
    """Return whether a point lies in a rectangle (x0, y0, x1, y1, ...)."""
    return bool(row[FROM_X] <= x <= row[TO_X] and row[FROM_Y] <= y <= row[TO_Y])


@kernel
def floor_under(x: float, y: float, patches: Floats) -> tuple[float, float]:
    """Return the drag (A of each wheel) and the dirt (1/s) of the first patch at a point."""
    for k in range(patches.shape[0]):
        if within(x, y, patches[k]):
            return patches[k, DRAG_A], patches[k, DIRT_PER_S]
    return 0.0, 0.0


@kernel_over(world)
def pass_time(robot_fields: RecordFields, may_charge: bool, is_awake: bool) -> None:
    """Advance timers, contacts and battery by a tick; the robot's `state` is the one after it."""
    robot = RobotArrays(*robot_fields)
    state = robot.state
    amounts = robot.amounts
    marks = robot.marks
    sills = robot.sills
    for i in (SILL_S, LIFTED_S, CLIFF_S, BUTTON_S):
        amounts[i] = max(amounts[i] - TICK_S, 0.0)
    marks[DIRT] = max(marks[DIRT] - 8, 0)
    x = state[X]
    y = state[Y]
    heading = state[HEADING]
    wheel_x = x - 0.5 * BASE_M * math.sin(heading)
    wheel_y = y + 0.5 * BASE_M * math.cos(heading)
    on_sill = 0
    for k in range(sills.shape[0]):
        if within(wheel_x, wheel_y, sills[k]):
            on_sill = 1
    if on_sill == 1 and marks[ON_SILL] == 0:
        amounts[SILL_S] = SILL_DROP_S
    marks[ON_SILL] = on_sill
    for i in range(2):
        if state[AMP_L + i] > OVERCURRENT_A:
            amounts[OVER_S + i] = amounts[OVER_S + i] + TICK_S
        else:
            amounts[OVER_S + i] = 0.0
    if marks[HAS_POWER] == 1 and touches_dock(x, y, heading, robot.dock):
        marks[IS_DOCKED] = 1
    else:
        marks[IS_DOCKED] = 0
    let_current_flow(state, amounts, marks, may_charge, is_awake)


@kernel
def touches_dock(x: float, y: float, heading: float, dock: Floats) -> bool:
    """Return whether the robot's contacts meet the dock's (x, y, direction)."""
    c = math.cos(dock[DOCK_DIRECTION])
    s = math.sin(dock[DOCK_DIRECTION])
    ahead = (x - dock[DOCK_X]) * c + (y - dock[DOCK_Y]) * s
    aside = -(x - dock[DOCK_X]) * s + (y - dock[DOCK_Y]) * c
    off = remainder(heading - dock[DOCK_DIRECTION] - math.pi)
    return bool(
        abs(ahead - RADIUS_M) < CONTACT_M and abs(aside) < CONTACT_M and abs(off) < CONTACT_RAD
    )


@kernel_over(world)
def let_current_flow(
    state: Floats, amounts: Floats, marks: Ints, may_charge: bool, is_awake: bool
) -> None:
    """Charge or drain the battery for a tick; see `pass_time`."""
    is_charging = marks[IS_DOCKED] == 1 and may_charge
    if is_charging:
        marks[IS_CHARGING] = 1
    else:
        marks[IS_CHARGING] = 0
    share = min(max(amounts[CHARGE_AH] / amounts[CAPACITY_AH], 0.0), 1.0)
    if is_charging:
        amps = 0.06
        if share < FULL_SHARE:
            amps = CHARGE_A
    elif is_awake:
        wheels = state[AMP_L] + state[AMP_L + 1]
        driving_a = DRIVE_A if wheels > 0.02 else 0.0
        amps = AWAKE_A + driving_a - wheels
    else:
        amps = REST_A
    amounts[AMPS] = amps
    amounts[CHARGE_AH] = min(
        max(amounts[CHARGE_AH] + amps * TICK_S / 3600.0, 0.0), amounts[CAPACITY_AH]
    )
    rest_v = world.between(share, CHARGED, AT_REST_V)
    if is_charging:
        amounts[VOLTS] = rest_v + CHARGING_V * share
    else:
        amounts[VOLTS] = rest_v + RESISTANCE_OHM * amps
    goal_k = amounts[ROOM_KELVIN] + 8.0 + 12.0 * abs(amps)
    amounts[KELVIN] += TICK_S / 600.0 * (goal_k - amounts[KELVIN])


@kernel_over(world)
def sense(robot_fields: RecordFields) -> None:
    """Write packets 7 to 58 into the robot's `packets`, without the program's own packets.

    The noise is the robot's `normal` and `uniform`. The light signals in `amounts` are recomputed if
    the pose has changed.
    """
    robot = RobotArrays(*robot_fields)
    state = robot.state
    contact = robot.contact
    amounts = robot.amounts
    marks = robot.marks
    normal = robot.normal
    out = robot.packets
    x = state[X]
    y = state[Y]
    heading = state[HEADING]
    if amounts[SEEN_AT] != x or amounts[SEEN_AT + 1] != y or amounts[SEEN_AT + 2] != heading:
        amounts[SEEN_AT] = x
        amounts[SEEN_AT + 1] = y
        amounts[SEEN_AT + 2] = heading
        world.look(x, y, heading, robot.lights, robot.segments, amounts[LIGHT : LIGHT + 6])
    read_lights(amounts, marks, normal, out)
    read_floor(robot, normal[6:10], out)
    read_infrared(robot, out)
    out[BUMPS] = bump_bits(contact, amounts)
    out[OVERCURRENTS] = overcurrent_bits(amounts)
    out[DIRTY] = marks[DIRT]
    if amounts[BUTTON_S] > 0.0:
        out[BUTTONS] = marks[BUTTON]
    else:
        out[BUTTONS] = 0
    out[VOLTAGE] = int(np.rint(1000.0 * (amounts[VOLTS] - amounts[SAG_V])))
    out[VOLTAGE + 1] = int(np.rint(1000.0 * amounts[AMPS] + 4.0 * normal[0]))
    out[VOLTAGE + 2] = int(np.rint(amounts[KELVIN] - 273.15))
    out[VOLTAGE + 3] = int(np.rint(1000.0 * amounts[CHARGE_AH]))
    out[VOLTAGE + 4] = int(np.rint(1000.0 * amounts[CAPACITY_AH]))
    out[SOURCES] = 2 * marks[IS_DOCKED]
    for i in range(2):
        out[ENCODER + i] = wrapped(math.floor(state[COUNT_L + i]))
        milliamps = (
            1000.0 * state[AMP_L + i] * math.copysign(1.0, state[LEFT + i]) + 2.0 * normal[4 + i]
        )
        out[WHEEL_MA + i] = int(np.rint(milliamps))
        out[BRUSH_MA + i] = int(np.rint(2.0 * normal[10 + i]))
    if contact[AHEAD] > 5e-4:
        out[STASIS] = 1
    else:
        out[STASIS] = 0


@kernel
def bump_bits(contact: Floats, amounts: Floats) -> int:
    """Return packet 7: the bumper's two switches, the wheels' two drops."""
    dropped = amounts[LIFTED_S] > 0.0
    bits = 0
    if contact[BUMP_R] > 0.0:
        bits += 1
    if contact[BUMP_L] > 0.0:
        bits += 2
    if dropped:
        bits += 4
    if dropped or amounts[SILL_S] > 0.0:
        bits += 8
    return bits


@kernel
def overcurrent_bits(amounts: Floats) -> int:
    """Return packet 14: the right wheel's overcurrent, the left one's."""
    bits = 0
    if amounts[OVER_S + 1] > OVERCURRENT_S:
        bits += 8
    if amounts[OVER_S] > OVERCURRENT_S:
        bits += 16
    return bits


@kernel
def wrapped(count: int) -> int:
    """Return a count as a signed 16-bit number."""
    return (count + 32768) % 65536 - 32768


@kernel
def read_lights(amounts: Floats, marks: Ints, normal: Floats, out: Ints) -> None:
    """Write the light signals and the bits of near obstacles; arguments as of `sense`."""
    near = 0
    for i in range(6):
        light = amounts[LIGHT + i]
        level = light + amounts[OFFSET + i] - 16.0
        noise_sd = LIGHT_SD if level > 0.0 else CLIPPED_SD
        level += noise_sd * normal[i]
        signal = min(max(int(np.rint(level)), 0), 4095)
        limit = NEAR_SIGNALS[i] - NEAR_HYSTERESIS * (marks[NEAR] >> i & 1)
        if signal >= limit:
            near += 1 << i
        out[LIGHTS + i] = signal
    marks[NEAR] = near
    out[NEAR_BITS] = near
    if out[LIGHTS + 5] > NEAR_SIGNALS[5]:
        out[WALL] = 1
    else:
        out[WALL] = 0
    out[WALL_SIGNAL] = min(out[LIGHTS + 5] // 4, 1023)


@kernel
def read_floor(robot: RobotArrays, normal: Floats, out: Ints) -> None:
    """Write the four cliff signals and bits; `normal` (4,)."""
    state = robot.state
    amounts = robot.amounts
    patches = robot.patches
    cliffs = robot.cliffs
    c = math.cos(state[HEADING])
    s = math.sin(state[HEADING])
    for i in range(4):
        x = state[X] + c * cliffs[i, 0] - s * cliffs[i, 1]
        y = state[Y] + s * cliffs[i, 0] + c * cliffs[i, 1]
        level = amounts[BRIGHTNESS] + amounts[FLOOR + i]
        for k in range(patches.shape[0]):
            if within(x, y, patches[k]):
                swing = patches[k, CLIFF_SWING]
                level = patches[k, CLIFF_LEVEL] + swing * math.sin(70.0 * x) * math.sin(70.0 * y)
        if amounts[CLIFF_S] > 0.0 or amounts[LIFTED_S] > 0.0:
            level = 20.0
        out[CLIFF_SIGNAL + i] = min(max(int(np.rint(level + CLIFF_SD * normal[i])), 0), 4095)
        if out[CLIFF_SIGNAL + i] < CLIFF_BELOW:
            out[CLIFF + i] = 1
        else:
            out[CLIFF + i] = 0


@kernel_over(world)
def read_infrared(robot: RobotArrays, out: Ints) -> None:
    """Write the infrared characters of three receivers, and whether the robot is in the dock's force field."""
    x = robot.state[X]
    y = robot.state[Y]
    heading = robot.state[HEADING]
    has_power = robot.marks[HAS_POWER] == 1
    dock = robot.dock
    from_x = dock[DOCK_X] + EMITTER_M * math.cos(dock[DOCK_DIRECTION])
    from_y = dock[DOCK_Y] + EMITTER_M * math.sin(dock[DOCK_DIRECTION])
    c = math.cos(heading)
    s = math.sin(heading)
    if has_power and math.hypot(x - from_x, y - from_y) < FIELD_M:
        out[VIRTUAL_WALL] = 1
    else:
        out[VIRTUAL_WALL] = 0
    for i in range(3):
        ahead, aside, looks, width = RECEIVERS[i]
        at_x = x + c * ahead - s * aside
        at_y = y + s * ahead + c * aside
        dx = at_x - from_x
        dy = at_y - from_y
        distance = math.hypot(dx, dy)
        bits = 0
        if has_power and robot.uniform[i] >= DROPOUT and distance < BEAM_M:
            if distance < FIELD_M:
                bits = FIELD_BIT
            off = remainder(math.atan2(-dy, -dx) - heading - looks)
            if (i > 0 or distance < OMNI_BEAM_M) and abs(off) <= width:
                bearing = math.degrees(remainder(math.atan2(dy, dx) - dock[DOCK_DIRECTION]))
                if GREEN_DEG[0] <= bearing <= GREEN_DEG[1]:
                    bits += GREEN_BIT
                if RED_DEG[0] <= bearing <= RED_DEG[1]:
                    bits += RED_BIT
            if bits > 0 and world.is_hidden(from_x, from_y, at_x, at_y, robot.segments):
                bits = 0
        if bits > 0:
            out[CHARACTERS[i]] = 0xA0 | bits
        else:
            out[CHARACTERS[i]] = 0


@kernel
def is_triggered(packets: Ints, was_docked: bool, right: float, left: float) -> bool:
    """Return whether Safe ends: a dropped wheel, a charger that is new in this tick, or a cliff ahead.

    `packets` have the order of `Sensors`; `right` and `left` are the wheels' requests in the same
    unit.
    """
    if packets[BUMPS] & 12 != 0 or (packets[SOURCES] & 2 != 0 and not was_docked):
        return True
    is_cliff = packets[CLIFF] + packets[CLIFF + 1] + packets[CLIFF + 2] + packets[CLIFF + 3] > 0
    forward = 0.5 * (right + left)
    turning = abs(right - left)
    is_tight = turning > 0.0 and abs(forward) * BASE_M / turning < RADIUS_M
    return bool(is_cliff and (forward > 0.0 or (forward < 0.0 and is_tight)))


@kernel_over(wire)
def follow(packets: Ints, marks: Ints, mode: int, out: Floats) -> None:
    """Write the raw channels of the next tick into `out`, shape (55,), as `stream.FrameParser.follow` returns them."""
    n = marks[N_HISTORY]
    if n > 0:
        at = HISTORY + 2 * (n - 1)
        for i in range(2):
            if abs(wrapped(packets[ENCODER + i] - marks[at + i])) > COUNT_MOST:
                n = 0
    if n == N_TICKS + 1:
        for i in range(HISTORY, HISTORY + 2 * N_TICKS):
            marks[i] = marks[i + 2]
        n -= 1
    marks[HISTORY + 2 * n] = packets[ENCODER]
    marks[HISTORY + 2 * n + 1] = packets[ENCODER + 1]
    marks[N_HISTORY] = n + 1
    scale = N_TICKS / max(n, 1)
    left_counts = np.rint(scale * wrapped(packets[ENCODER] - marks[HISTORY]))
    right = np.rint(scale * wrapped(packets[ENCODER + 1] - marks[HISTORY + 1]))
    for i in range(wire.N_CHANNELS):
        out[i] = packets[wire.LAYOUT[i, 0]] >> wire.LAYOUT[i, 1] & wire.LAYOUT[i, 2]
    for i in range(wire.LIGHTS, wire.LIGHTS + wire.N_LIGHTS):
        out[i] = wire.LOUDNESS[packets[wire.LAYOUT[i, 0]]]
    out[wire.COUNTS_LEFT] = left_counts
    out[wire.COUNTS_RIGHT] = right
    out[wire.TURN] = right - left_counts
    if mode != SAFE:
        out[wire.BLOCKED] = 1.0
    else:
        out[wire.BLOCKED] = 0.0
    out[wire.CHARGING] = marks[IS_CHARGING]
    if packets[BUTTONS] != 0:
        out[wire.BUTTON] = 1.0
    else:
        out[wire.BUTTON] = 0.0


@kernel_over(world, draws=True)
def pass_tick(
    rng: Generator,
    robot_fields: RecordFields,
    left_mps: float,
    right_mps: float,
    may_charge: bool,
    is_awake: bool,
) -> None:
    """Run a tick: motion under the wheels' requests, battery, and what happens by chance."""
    robot = RobotArrays(*robot_fields)
    state = robot.state
    amounts = robot.amounts
    marks = robot.marks
    normal = robot.normal
    contact = robot.contact
    for i in range(2):
        normal[i] = rng.standard_normal()
    lift = rng.random()
    button = rng.random()
    dirt = rng.random()
    drag, dirt_per_s = floor_under(state[X], state[Y], robot.patches)
    world.move(state, left_mps, right_mps, normal, drag, marks[STUCK], robot.segments, contact)
    pass_time(robot_fields, may_charge, is_awake)
    if lift < robot.lift_chance:
        amounts[LIFTED_S] = rng.uniform(LIFT_S[0], LIFT_S[1])
    if button < robot.button_chance:
        marks[BUTTON] = 1 << rng.integers(0, 8)
        amounts[BUTTON_S] = PRESSED_S
    if abs(contact[AHEAD]) > 1e-4 and dirt < dirt_per_s * TICK_S:
        marks[DIRT] = rng.integers(20, 200)


@kernel_over(world, draws=True)
def read_tick(rng: Generator, robot_fields: RecordFields) -> None:
    """Draw the noise of the sensors and read them (`sense`)."""
    robot = RobotArrays(*robot_fields)
    for i in range(12):
        robot.normal[i] = rng.standard_normal()
    if robot.marks[HAS_POWER] == 1:
        for i in range(3):
            robot.uniform[i] = rng.random()
    sense(robot_fields)


@kernel_over(world, wire, draws=True)
def live(
    rng: Generator, robot_fields: RecordFields, n: int, rule_fields: RuleFields, raw: Floats
) -> int:
    """Run `n` ticks of a robot that is awake: `pass_tick`, `read_tick`, and the end of Safe; return the mode after it.

    The robot's `packets` are those of the last tick then; `raw` receives the channels of each, shape
    (n, 55) or more rows.
    """
    robot = RobotArrays(*robot_fields)
    rules = Rules(*rule_fields)
    left_mps = rules.left_mps
    right_mps = rules.right_mps
    mode = rules.mode
    was_docked = rules.was_docked
    for k in range(n):
        pass_tick(rng, robot_fields, left_mps, right_mps, mode in (OFF, PASSIVE), True)
        read_tick(rng, robot_fields)
        if mode == SAFE and is_triggered(robot.packets, was_docked, right_mps, left_mps):
            mode = PASSIVE
            left_mps = 0.0
            right_mps = 0.0
        follow(robot.packets, robot.marks, mode, raw[k])
        was_docked = robot.marks[IS_DOCKED] == 1
    return mode


@kernel
def gather(n: int, raw: Floats, is_any: Bools, lsb: Floats, offset: Floats, out: Floats) -> None:
    """Write the SI values of a step of `n` ticks: the newest, or if `is_any` the largest; shapes (n, 55) and (55,)."""
    for i in range(out.shape[0]):
        value = raw[n - 1, i]
        if is_any[i]:
            for k in range(n - 1):
                value = max(value, raw[k, i])
        out[i] = lsb[i] * value + offset[i]
