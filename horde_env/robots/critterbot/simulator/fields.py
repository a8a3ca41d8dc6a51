"""Sensors that measure at a distance: reflected infrared, the beacon, light, heat.

Kernels on bare arrays. All four intersect lines of sight with walls and dock, so they share this
file.
Common arguments: `pose` is that of the body; `sensors` are rows (x, y, angle) in the body frame,
shape (n, 3); `segments` (m, 4) and `heights` (m,) are the obstacles; `normal` are standard normals,
zero for a reading without noise; `scratch` holds lines of sight. Metres, radians, kelvin; light as
a share of full scale.

Numbers are the robot's if they were measured (log of 5 October 2010, web site of its makers). No
source has its curve of infrared against distance, its height or the view of its thermal zones:
those are assumptions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from horde_env._jit import kernel
from horde_env.backend import Floats

SENSOR_HEIGHT_M = 0.10  # of all sensors above the floor; no source has the robot's height

# A line of sight starts this far inside the rim: a body pressed a millimetre into a wall still has
# the wall before it.
SETBACK_M = 0.02
NEAREST_M = 0.005
HALF_SIGNAL_M = 0.09  # distance at which a matte white wall, met squarely, gives half of full scale
BEAM_RAD = 0.10  # half width of the beam: rays at -BEAM_RAD, 0, BEAM_RAD, weighted 1 : 2 : 1
IDLE_SHARE = 0.010  # reading with nothing in range: 2.5 of 255
IR_REST_SD = 0.001  # when idle; grows to IR_SEEN_SD with the signal
IR_SEEN_SD = 0.008
IR_EDGE = (0.015, 0.22)  # readings at the edge of range, which now and then jump
IR_JUMP_CHANCE = 0.015
IR_JUMP_TOP = 50 / 255  # "jumps wildly between 2-3 and ~50"

IR_LIGHT_BASE = 0.042  # raw 10 to 12 with no beacon
IR_LIGHT_SD = 2.0 / 255
# Share of full scale that the brightest beacon approaches: stays below raw 256 with everything
# added
BEACON_TOP = 0.78
# Share of the beacon's light that reaches every sensor by way of walls and ceiling
BEACON_STRAY = 0.08

BOUNCE = 0.15  # share of a lamp's light that reaches a sensor from all around, whatever its heading
LIGHT_SD = 2.0 / 1023
PENUMBRA_M = 0.04  # height over which the edge of a shadow fades

# Standard deviation of a thermal zone's view: 40 degrees across at half height, 35 between two
# zones
ZONE_RAD = 0.30
ZONE_MOST_RAD = 6.0 * math.sqrt(2.0) * ZONE_RAD  # beyond it the view is 0: erf(6) is 1 in float64


# Columns of `sensors`, in the body frame.
SENSOR_X = 0  # m
SENSOR_Y = 1  # m
SENSOR_ANGLE = 2  # rad

# Columns of `segments`, the ends of a wall seen from above.
FROM_X = 0  # m
FROM_Y = 1  # m
TO_X = 2  # m
TO_Y = 3  # m

# Numbers of `beacon`.
BEACON_X = 0  # m
BEACON_Y = 1  # m
BEACON_Z = 2  # m
BEACON_DIRECTION = 3  # rad
BEACON_INTENSITY = 4  # m^2

# Columns of `lamps`.
LAMP_X = 0  # m
LAMP_Y = 1  # m
LAMP_Z = 2  # m
LAMP_INTENSITY = 3  # share of full scale times m^2

# Columns of `warm`, upright cylinders.
WARM_X = 0  # m
WARM_Y = 1  # m
WARM_RADIUS = 2  # m
WARM_BOTTOM = 3  # m
WARM_TOP = 4  # m
WARM_TEMPERATURE = 5  # K

# Rows of `lines`, one column per line of sight.
X = 0  # of its start, m
Y = 1  # of its start, m
AHEAD_X = 2  # unit vector of its sensor
AHEAD_Y = 3
END_X = 4  # m
END_Y = 5  # m
N_LINE_ROWS = 6


class Pose(NamedTuple):
    """Pose and motion of the body as its sensors feel it, in the world frame."""

    x: float  # m
    y: float  # m
    heading: float  # rad
    yaw_rate: float  # rad/s
    ax: float  # m/s^2
    ay: float  # m/s^2


class Scratch(NamedTuple):
    """Room for lines of sight; no state."""

    lines: Floats  # (N_LINE_ROWS, n)
    along: Floats  # where each meets each of m segments, (m, n); see `cross`


@kernel
def start(pose: Pose, sensors: Floats, n: int, lines: Floats) -> None:
    """Write start and direction of `n` sensors' lines of sight; they start SETBACK_M behind the sensors."""
    c = math.cos(pose.heading)
    s = math.sin(pose.heading)
    for k in range(n):
        x = pose.x + c * sensors[k, SENSOR_X] - s * sensors[k, SENSOR_Y]
        y = pose.y + s * sensors[k, SENSOR_X] + c * sensors[k, SENSOR_Y]
        ux = math.cos(pose.heading + sensors[k, SENSOR_ANGLE])
        uy = math.sin(pose.heading + sensors[k, SENSOR_ANGLE])
        lines[X, k] = x - SETBACK_M * ux
        lines[Y, k] = y - SETBACK_M * uy
        lines[AHEAD_X, k] = ux
        lines[AHEAD_Y, k] = uy


@kernel
def cross(lines: Floats, n: int, segments: Floats, along: Floats) -> None:
    """Write where the first `n` lines meet each of m segments: 0 at a line's start, 1 at its end, inf if nowhere.

    `along` has shape (m, n) at least. LLVM computes four lines at once, in half the time of one
    after the other.
    """
    xs = lines[X]
    ys = lines[Y]
    ends_x = lines[END_X]
    ends_y = lines[END_Y]
    for i in range(segments.shape[0]):
        row = along[i]
        x = segments[i, FROM_X]
        y = segments[i, FROM_Y]
        ex = segments[i, TO_X] - x
        ey = segments[i, TO_Y] - y
        for r in range(n):
            dx = ends_x[r] - xs[r]
            dy = ends_y[r] - ys[r]
            determinant = dx * ey - dy * ex
            ax = x - xs[r]
            ay = y - ys[r]
            # Nan: they are parallel
            divisor = determinant if determinant != 0.0 else math.nan
            share = (ax * ey - ay * ex) / divisor
            across = (ax * dy - ay * dx) * math.copysign(1.0, determinant)
            # Whether across / |determinant| is within 0..1, without a second division.
            if (share >= 0.0) & (across >= 0.0) & (across <= abs(determinant)):
                row[r] = share
            else:
                row[r] = math.inf


@kernel
def look_at(x: float, y: float, lines: Floats, n: int, segments: Floats, along: Floats) -> None:
    """Write where `n` lines of sight to the point (x, y) meet each segment; see `cross`."""
    for k in range(n):
        lines[END_X, k] = x
        lines[END_Y, k] = y
    cross(lines, n, segments, along)


@kernel
def clear_path(along: Floats, k: int, z: float, heights: Floats) -> float:
    """Return the share (0..1) of light from height z that passes over all obstacles to sensor `k`; see `look_at`."""
    share = 1.0
    for i in range(heights.shape[0]):
        if along[i, k] < 1.0:
            above = SENSOR_HEIGHT_M + along[i, k] * (z - SENSOR_HEIGHT_M) - heights[i]
            share *= min(max(above / PENUMBRA_M + 0.5, 0.0), 1.0)
    return share


@kernel
def length(ex: float, ey: float) -> float:
    """Return hypot(ex, ey), without a call along an axis: C defines it to be exact there."""
    if ex == 0.0 or ey == 0.0:
        return abs(ex) + abs(ey)
    return math.hypot(ex, ey)


@kernel
def echo(
    along: Floats, r: int, c: float, s: float, segments: Floats, reflectances: Floats
) -> float:
    """Return the infrared signal of ray `r` along (c, s), 1 at half of full scale: reflectance cos(incidence) (D/d)^2.

    `along` are the distances at which the rays meet each segment; see `cross`.
    """
    nearest = math.inf
    met = -1
    for i in range(reflectances.shape[0]):
        if along[i, r] < nearest:
            met = i
        nearest = min(nearest, along[i, r])
    if met < 0:
        return 0.0
    ex = segments[met, TO_X] - segments[met, FROM_X]
    ey = segments[met, TO_Y] - segments[met, FROM_Y]
    incidence = abs(c * ey - s * ex) / length(ex, ey)
    return float(
        reflectances[met] * incidence * (HALF_SIGNAL_M / max(nearest - SETBACK_M, NEAREST_M)) ** 2
    )


@kernel
def ir_reading(signal: float, normal: float, chance: float, place: float) -> float:
    """Return the reflectance reading of a signal: idle + (1 - idle) s / (1 + s), with the sensor's noise.

    At the edge of range a reading jumps now and then, where `chance` (0..1) is small, to anywhere
    (`place`, 0..1) between idle and IR_JUMP_TOP.
    """
    share = IDLE_SHARE + (1.0 - IDLE_SHARE) * signal / (1.0 + signal)
    if IR_EDGE[0] < share < IR_EDGE[1] and chance < IR_JUMP_CHANCE:
        return IDLE_SHARE + (IR_JUMP_TOP - IDLE_SHARE) * place
    share_seen = min((share - IDLE_SHARE) / 0.05, 1.0)
    return share + (IR_REST_SD + (IR_SEEN_SD - IR_REST_SD) * share_seen) * normal


@kernel
def ir_distance(
    pose: Pose,
    sensors: Floats,
    segments: Floats,
    reflectances: Floats,
    normal: Floats,
    uniform: Floats,
    scratch: Scratch,
    out: Floats,
) -> None:
    """Write the reflectance readings, each from the mean echo of three rays; `normal` (n,), `uniform` (2, n)."""
    lines = scratch.lines
    along = scratch.along
    n = out.shape[0]
    start(pose, sensors, n, lines)
    for k in range(n):
        x = lines[X, k]
        y = lines[Y, k]
        angle = pose.heading + sensors[k, SENSOR_ANGLE]
        for side in range(3):  # ahead, left, right
            r = side * n + k
            aside = angle + (2 * side - 3) * BEAM_RAD
            lines[X, r] = x
            lines[Y, r] = y
            if side > 0:
                lines[AHEAD_X, r] = math.cos(aside)
                lines[AHEAD_Y, r] = math.sin(aside)
            lines[END_X, r] = x + lines[AHEAD_X, r]
            lines[END_Y, r] = y + lines[AHEAD_Y, r]
    cross(lines, 3 * n, segments, along)
    for k in range(n):
        signal = 0.0
        for side in range(3):
            r = side * n + k
            weight = 0.25
            if side == 0:
                weight = 0.5
            signal += weight * echo(
                along, r, lines[AHEAD_X, r], lines[AHEAD_Y, r], segments, reflectances
            )
        out[k] = ir_reading(signal, normal[k], uniform[0, k], uniform[1, k])


@kernel
def ir_light(
    poses: tuple[Pose, Pose],
    sensors: Floats,
    beacon: Floats,
    lit: tuple[float, float],
    segments: Floats,
    heights: Floats,
    normal: Floats,
    scratch: Scratch,
    out: Floats,
) -> None:
    """Write two packets' infrared light, the body at two `poses`, the beacon `lit` (0..1); `normal`, `out` (2, n).

    base + lit top s / (1 + s), with s = I (clear cos^2(at the sensor) cos(at the beacon) / d^2 +
    stray / (1 + d^2)); cosines below 0 count as 0. `beacon` is (x, y, z, direction, intensity I).
    """
    lines = scratch.lines
    along = scratch.along
    n = out.shape[1]
    beacon_x = math.cos(beacon[BEACON_DIRECTION])
    beacon_y = math.sin(beacon[BEACON_DIRECTION])
    for packet in range(2):
        if lit[packet] == 0.0:  # half of the time: no need to look for the beacon
            for k in range(n):
                out[packet, k] = IR_LIGHT_BASE + IR_LIGHT_SD * normal[packet, k]
            continue
        start(poses[packet], sensors, n, lines)
        look_at(beacon[BEACON_X], beacon[BEACON_Y], lines, n, segments, along)
        for k in range(n):
            dx = beacon[BEACON_X] - lines[X, k]
            dy = beacon[BEACON_Y] - lines[Y, k]
            d = max(math.hypot(dx, dy), NEAREST_M)
            facing = max((lines[AHEAD_X, k] * dx + lines[AHEAD_Y, k] * dy) / d, 0.0)
            leaving = max(-(beacon_x * dx + beacon_y * dy) / d, 0.0)
            direct = facing * facing * leaving * clear_path(along, k, beacon[BEACON_Z], heights)
            signal = beacon[BEACON_INTENSITY] * (direct / (d * d) + BEACON_STRAY / (1.0 + d * d))
            share = IR_LIGHT_BASE + lit[packet] * BEACON_TOP * signal / (1.0 + signal)
            out[packet, k] = share + IR_LIGHT_SD * normal[packet, k]


@kernel
def light(
    pose: Pose,
    sensors: Floats,
    lamps: Floats,
    gain: float,
    ambient: float,
    segments: Floats,
    heights: Floats,
    normal: Floats,
    scratch: Scratch,
    out: Floats,
) -> None:
    """Write ambient + gain x the light of the lamps (x, y, z, intensity), shape (l, 4), each flickering by `gain`.

    A lamp gives I clear (cos(incidence) + bounce) / d^2, a cosine below 0 counting as 0.
    """
    lines = scratch.lines
    along = scratch.along
    n = out.shape[0]
    start(pose, sensors, n, lines)
    for k in range(n):
        out[k] = 0.0
    for j in range(lamps.shape[0]):
        look_at(lamps[j, LAMP_X], lamps[j, LAMP_Y], lines, n, segments, along)
        for k in range(n):
            dx = lamps[j, LAMP_X] - lines[X, k]
            dy = lamps[j, LAMP_Y] - lines[Y, k]
            dz = lamps[j, LAMP_Z] - SENSOR_HEIGHT_M
            d = max(math.sqrt(dx * dx + dy * dy + dz * dz), NEAREST_M)
            facing = max((lines[AHEAD_X, k] * dx + lines[AHEAD_Y, k] * dy) / d, 0.0)
            out[k] += (
                lamps[j, LAMP_INTENSITY]
                * clear_path(along, k, lamps[j, LAMP_Z], heights)
                * (facing + BOUNCE)
                / (d * d)
            )
    for k in range(n):
        out[k] = ambient + gain * out[k] + LIGHT_SD * normal[k]


@kernel
def within(low: float, high: float) -> float:
    """Return the share of a thermal zone's view between two angles from its axis: a Gaussian of width ZONE_RAD."""
    return 0.5 * (
        math.erf(high / (ZONE_RAD * math.sqrt(2.0))) - math.erf(low / (ZONE_RAD * math.sqrt(2.0)))
    )


@kernel
def warmth(
    pose: Pose,
    sensors: Floats,
    warm: Floats,
    room_k: float,
    segments: Floats,
    heights: Floats,
    scratch: Scratch,
    out: Floats,
) -> None:
    """Write the temperature each zone sees: room + sum of (T - room) x the share of its view that the object fills.

    `warm` has rows (x, y, radius, bottom, top, temperature), shape (w, 6); walls hide the part
    behind them.
    """
    lines = scratch.lines
    along = scratch.along
    n = out.shape[0]
    start(pose, sensors, n, lines)
    for k in range(n):
        out[k] = room_k
    for j in range(warm.shape[0]):
        look_at(warm[j, WARM_X], warm[j, WARM_Y], lines, n, segments, along)
        for k in range(n):
            visible = warm[j, WARM_BOTTOM]
            for i in range(heights.shape[0]):
                if along[i, k] < 1.0:
                    # Height of the object's lowest point that looks over this wall.
                    over = SENSOR_HEIGHT_M + (heights[i] - SENSOR_HEIGHT_M) / max(along[i, k], 1e-9)
                    visible = max(visible, over)
            if visible >= warm[j, WARM_TOP]:
                continue
            dx = warm[j, WARM_X] - lines[X, k]
            dy = warm[j, WARM_Y] - lines[Y, k]
            ux = lines[AHEAD_X, k]
            uy = lines[AHEAD_Y, k]
            d = max(math.hypot(dx, dy), NEAREST_M)
            aside = math.atan2(ux * dy - uy * dx, ux * dx + uy * dy)
            half = math.atan(warm[j, WARM_RADIUS] / d)
            if abs(aside) - half > ZONE_MOST_RAD:
                continue
            rise = within(
                math.atan((visible - SENSOR_HEIGHT_M) / d),
                math.atan((warm[j, WARM_TOP] - SENSOR_HEIGHT_M) / d),
            )
            out[k] += (
                (warm[j, WARM_TEMPERATURE] - room_k) * within(aside - half, aside + half) * rise
            )
