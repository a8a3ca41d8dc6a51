"""Kernels of a tick of 1/64 s, except the body's motion (`world`): battery, floor, dock and sensors.

`Machine` holds the arrays that the kernels change, `amounts` (float64) and `marks` (int64), indexed
by the constants below. `live` runs several ticks in one call.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from horde_env._jit import kernel, kernel_over
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
# X, y, looks, half width
RECEIVERS = ((0.15, 0.0, 0.0, math.pi), (0.15, 0.03, 0.35, 0.9), (0.15, -0.03, -0.35, 0.9))
DROPOUT = 0.04  # share of ticks without the character
CONTACT_M = 0.03
CONTACT_RAD = math.radians(8.0)
SILL_DROP_S = 0.12
# Durations of being lifted and of a button
LIFT_S = (0.8, 2.0)
PRESSED_S = 1 / 6

# Indices of `amounts`: battery; seconds that are left (SILL_S, LIFTED_S, CLIFF_S, BUTTON_S) or
# passed (OVER_S, of two wheels); the six light signals without noise, and the pose at which they
# were computed; each sensor's own offset.
CHARGE_AH, CAPACITY_AH, VOLTS, AMPS, KELVIN, SAG_V, SILL_S, LIFTED_S, CLIFF_S, BUTTON_S, OVER_S = (
    range(11)
)
LIGHT = 12
SEEN_AT = 18
FLOOR = 21
OFFSET = 25
ROOM_KELVIN = 31
BRIGHTNESS = 32
N_AMOUNTS = 33
# Indices of `marks`; `NEAR` holds six bits; from HISTORY on, the encoders, left and right, of the
# last N_HISTORY ticks.
IS_DOCKED, HAS_POWER, IS_CHARGING, STUCK, ON_SILL, BUTTON, DIRT, NEAR, N_HISTORY, HISTORY = range(
    10
)
N_MARKS = HISTORY + 2 * (N_TICKS + 1)

Scene = tuple[Floats, Floats, Floats, Floats, Floats, Floats]
"""Segments, patches and sills of the room, dock (x, y, direction), directions of lights, positions of cliff sensors."""
# The wheels' requests, left and right, m/s; the mode; docked a tick ago
Rules = tuple[float, float, int, bool]

Chances = tuple[float, float]  # of being lifted, of a button; in a tick
# Scene, `state` and `found` of `world`, amounts, marks
Body = tuple[Scene, Floats, Floats, Floats, Ints]

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

_TURN = 2.0 * math.pi


@kernel
def remainder(angle: float) -> float:
    """Return an angle modulo 2 pi, in [-pi, pi]."""
    return float(angle - _TURN * np.rint(angle / _TURN))


@kernel
def within(x: float, y: float, row: Floats) -> bool:
    """Return whether a point lies in a rectangle (x0, y0, x1, y1, ...)."""
    return bool(row[0] <= x <= row[2] and row[1] <= y <= row[3])


@kernel
def floor_under(x: float, y: float, patches: Floats) -> tuple[float, float]:
    """Return the drag (A of each wheel) and the dirt (1/s) of the first patch at a point."""
    for k in range(patches.shape[0]):
        if within(x, y, patches[k]):
            return patches[k, 6], patches[k, 7]
    return 0.0, 0.0


@kernel_over(world)
def pass_time(
    state: Floats, scene: Scene, amounts: Floats, marks: Ints, may_charge: bool, is_awake: bool
) -> None:
    """Advance timers, contacts and battery by a tick; `state` is the one after it."""
    for i in (SILL_S, LIFTED_S, CLIFF_S, BUTTON_S):
        amounts[i] = max(amounts[i] - TICK_S, 0.0)
    marks[DIRT] = max(marks[DIRT] - 8, 0)
    x = state[X]
    y = state[Y]
    heading = state[HEADING]
    wheel_x = x - 0.5 * BASE_M * math.sin(heading)
    wheel_y = y + 0.5 * BASE_M * math.cos(heading)
    sills = scene[2]
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
    if marks[HAS_POWER] == 1 and touches_dock(x, y, heading, scene[3]):
        marks[IS_DOCKED] = 1
    else:
        marks[IS_DOCKED] = 0
    let_current_flow(state, amounts, marks, may_charge, is_awake)


@kernel
def touches_dock(x: float, y: float, heading: float, dock: Floats) -> bool:
    """Return whether the robot's contacts meet the dock's (x, y, direction)."""
    c = math.cos(dock[2])
    s = math.sin(dock[2])
    ahead = (x - dock[0]) * c + (y - dock[1]) * s
    aside = -(x - dock[0]) * s + (y - dock[1]) * c
    off = remainder(heading - dock[2] - math.pi)
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
        amps = AWAKE_A + (DRIVE_A if wheels > 0.02 else 0.0) - wheels
    else:
        amps = REST_A
    amounts[AMPS] = amps
    amounts[CHARGE_AH] = min(
        max(amounts[CHARGE_AH] + amps * TICK_S / 3600.0, 0.0), amounts[CAPACITY_AH]
    )
    rest_v = world.between(share, CHARGED, AT_REST_V)
    amounts[VOLTS] = rest_v + (CHARGING_V * share if is_charging else RESISTANCE_OHM * amps)
    goal_k = amounts[ROOM_KELVIN] + 8.0 + 12.0 * abs(amps)
    amounts[KELVIN] += TICK_S / 600.0 * (goal_k - amounts[KELVIN])


@kernel_over(world)
def sense(
    state: Floats,
    found: Floats,
    scene: Scene,
    amounts: Floats,
    marks: Ints,
    normal: Floats,
    uniform: Floats,
    out: Ints,
) -> None:
    """Write packets 7 to 58, in the order of `Sensors`, into `out`, shape (52,), without the program's own packets.

    `normal` are standard normals, shape (12,), `uniform` for the dropouts of three receivers, shape
    (3,). The light signals in `amounts` are recomputed if the pose has changed.
    """
    x = state[X]
    y = state[Y]
    heading = state[HEADING]
    if amounts[SEEN_AT] != x or amounts[SEEN_AT + 1] != y or amounts[SEEN_AT + 2] != heading:
        amounts[SEEN_AT] = x
        amounts[SEEN_AT + 1] = y
        amounts[SEEN_AT + 2] = heading
        world.look(x, y, heading, scene[4], scene[0], amounts[LIGHT : LIGHT + 6])
    read_lights(amounts, marks, normal, out)
    read_floor(state, scene, amounts, normal[6:10], out)
    read_infrared(x, y, heading, scene, marks[HAS_POWER] == 1, uniform, out)
    dropped = amounts[LIFTED_S] > 0.0
    on_sill = dropped or amounts[SILL_S] > 0.0
    bumps = (1 if found[BUMP_R] > 0.0 else 0) + (2 if found[BUMP_L] > 0.0 else 0)
    out[BUMPS] = bumps + (4 if dropped else 0) + (8 if on_sill else 0)
    over_l = amounts[OVER_S] > OVERCURRENT_S
    over_r = amounts[OVER_S + 1] > OVERCURRENT_S
    out[OVERCURRENTS] = (8 if over_r else 0) + (16 if over_l else 0)
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
    if found[AHEAD] > 5e-4:
        out[STASIS] = 1
    else:
        out[STASIS] = 0


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
        level += (LIGHT_SD if level > 0.0 else CLIPPED_SD) * normal[i]
        signal = min(max(int(np.rint(level)), 0), 4095)
        limit = NEAR_SIGNALS[i] - NEAR_HYSTERESIS * (marks[NEAR] >> i & 1)
        near += (1 << i) if signal >= limit else 0
        out[LIGHTS + i] = signal
    marks[NEAR] = near
    out[NEAR_BITS] = near
    if out[LIGHTS + 5] > NEAR_SIGNALS[5]:
        out[WALL] = 1
    else:
        out[WALL] = 0
    out[WALL_SIGNAL] = min(out[LIGHTS + 5] // 4, 1023)


@kernel
def read_floor(state: Floats, scene: Scene, amounts: Floats, normal: Floats, out: Ints) -> None:
    """Write the four cliff signals and bits; `normal` (4,), the rest as of `sense`."""
    patches = scene[1]
    cliffs = scene[5]
    c = math.cos(state[HEADING])
    s = math.sin(state[HEADING])
    for i in range(4):
        x = state[X] + c * cliffs[i, 0] - s * cliffs[i, 1]
        y = state[Y] + s * cliffs[i, 0] + c * cliffs[i, 1]
        level = amounts[BRIGHTNESS] + amounts[FLOOR + i]
        for k in range(patches.shape[0]):
            if within(x, y, patches[k]):
                level = patches[k, 4] + patches[k, 5] * math.sin(70.0 * x) * math.sin(70.0 * y)
        if amounts[CLIFF_S] > 0.0 or amounts[LIFTED_S] > 0.0:
            level = 20.0
        out[CLIFF_SIGNAL + i] = min(max(int(np.rint(level + CLIFF_SD * normal[i])), 0), 4095)
        if out[CLIFF_SIGNAL + i] < CLIFF_BELOW:
            out[CLIFF + i] = 1
        else:
            out[CLIFF + i] = 0


@kernel_over(world)
def read_infrared(
    x: float, y: float, heading: float, scene: Scene, has_power: bool, uniform: Floats, out: Ints
) -> None:
    """Write the infrared characters of three receivers, and whether the robot is in the dock's force field."""
    dock = scene[3]
    from_x = dock[0] + EMITTER_M * math.cos(dock[2])
    from_y = dock[1] + EMITTER_M * math.sin(dock[2])
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
        if has_power and uniform[i] >= DROPOUT and distance < BEAM_M:
            bits = 0
            if distance < FIELD_M:
                bits = FIELD_BIT
            off = remainder(math.atan2(-dy, -dx) - heading - looks)
            if (i > 0 or distance < OMNI_BEAM_M) and abs(off) <= width:
                bearing = math.degrees(remainder(math.atan2(dy, dx) - dock[2]))
                bits += GREEN_BIT if GREEN_DEG[0] <= bearing <= GREEN_DEG[1] else 0
                bits += RED_BIT if RED_DEG[0] <= bearing <= RED_DEG[1] else 0
            if bits > 0 and world.is_hidden(from_x, from_y, at_x, at_y, scene[0]):
                bits = 0
        if bits > 0:
            out[IR_OMNI if i == 0 else IR_LEFT if i == 1 else IR_RIGHT] = 0xA0 | bits
        else:
            out[IR_OMNI if i == 0 else IR_LEFT if i == 1 else IR_RIGHT] = 0


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
    rules: Rules,
    may_charge: bool,
    is_awake: bool,
    chances: Chances,
    body: Body,
    normal: Floats,
) -> None:
    """Run a tick: motion, battery, and what happens by chance; `normal` is room for numbers that are drawn."""
    scene, state, contact, amounts, marks = body
    for i in range(2):
        normal[i] = rng.standard_normal()
    lift = rng.random()
    button = rng.random()
    dirt = rng.random()
    drag, dirt_per_s = floor_under(state[X], state[Y], scene[1])
    world.move(state, rules[0], rules[1], normal, drag, marks[STUCK], scene[0], contact)
    pass_time(state, scene, amounts, marks, may_charge, is_awake)
    if lift < chances[0]:
        amounts[LIFTED_S] = rng.uniform(LIFT_S[0], LIFT_S[1])
    if button < chances[1]:
        marks[BUTTON] = 1 << rng.integers(0, 8)
        amounts[BUTTON_S] = PRESSED_S
    if abs(contact[AHEAD]) > 1e-4 and dirt < dirt_per_s * TICK_S:
        marks[DIRT] = rng.integers(20, 200)


@kernel_over(world, draws=True)
def read_tick(rng: Generator, body: Body, normal: Floats, uniform: Floats, packets: Ints) -> None:
    """Read the sensors (`sense`); `normal` (12,) and `uniform` (3,) are room for numbers that are drawn."""
    scene, state, contact, amounts, marks = body
    for i in range(12):
        normal[i] = rng.standard_normal()
    if marks[HAS_POWER] == 1:
        for i in range(3):
            uniform[i] = rng.random()
    sense(state, contact, scene, amounts, marks, normal, uniform, packets)


@kernel_over(world, wire, draws=True)
def live(
    rng: Generator,
    n: int,
    rules: Rules,
    chances: Chances,
    body: Body,
    normal: Floats,
    uniform: Floats,
    packets: Ints,
    raw: Floats,
) -> int:
    """Run `n` ticks of a robot that is awake: `pass_tick`, `read_tick`, and the end of Safe; return the mode after it.

    `packets` receives those of the last tick, shape (52,), `raw` the channels of each, shape (n,
    55) or more rows.
    """
    left_mps, right, mode, was_docked = rules
    marks = body[4]
    for k in range(n):
        rules_before = left_mps, right, mode, was_docked
        pass_tick(rng, rules_before, mode in (OFF, PASSIVE), True, chances, body, normal)
        read_tick(rng, body, normal, uniform, packets)
        if mode == SAFE and is_triggered(packets, was_docked, right, left_mps):
            mode = PASSIVE
            left_mps = 0.0
            right = 0.0
        follow(packets, marks, mode, raw[k])
        was_docked = marks[IS_DOCKED] == 1
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
