"""Kernels of the motion of a round body in the plane in one tick, 1/64 s, and of its light sensors.

The wheels follow their requests with a limited acceleration, and the body follows the wheels until
it meets an
obstacle: then it slides along it, its wheels slip, and their motors' currents rise.

Source: measurements of two robots by the RoombaCI project: steady speeds against requests, 2 m/s^2,
light signals by distance.
"""

from __future__ import annotations

import math

import numpy as np

from horde_env._jit import kernel
from horde_env.backend import Floats
from horde_env.robots.create2.wire import TICK_S

RADIUS_M = 0.174
BASE_M = 0.235
COUNT_M = 0.000444565
SLEW_M_S = 2.0 * TICK_S  # change of a wheel's speed in one tick

# Numbers of `state`; of two wheels, the left one is first.
X = 0  # m
Y = 1  # m
HEADING = 2  # rad
LEFT = 3  # rim speed, m/s
RIGHT = 4  # rim speed, m/s
COUNT_L = 5  # encoder counts, with fraction
COUNT_R = 6
AMP_L = 7  # current, A
AMP_R = 8
HELD_L = 9  # for how long it has been blocked, s
HELD_R = 10
SIGN_L = 11  # direction of the last command, +-1
SIGN_R = 12
N_STATE = 13

# Numbers of `contact`, which `move` writes.
BUMP_L = 0  # switch of the bumper, 0 or 1
BUMP_R = 1  # switch of the bumper, 0 or 1
AHEAD = 2  # distance moved forward in the tick, m
N_CONTACTS = 3

# Columns of `segments`.
FROM_X = 0  # m
FROM_Y = 1  # m
TO_X = 2  # m
TO_Y = 3  # m
REFLECTANCE = 4  # 0..1
IS_DOCK_FACE = 5  # 0 or 1

# Steady speed by encoders against the request, m/s: slow requests are exceeded, fast ones nearly
# reached.
ASKED = np.array([0.0, 0.028, 0.050, 0.078, 0.100, 0.149, 0.199, 0.500])
REACHED = np.array([0.0, 0.048, 0.066, 0.097, 0.116, 0.141, 0.189, 0.475])

BUMP_SIDE = math.radians(25.0)  # both switches close within this angle of forward
IDLE_A = 0.03
DRIVE_A_S_M = 0.45
HOLD_A = 0.45
SLIP_A = 0.25
GRIP_A = 0.75
STALL_S = 1.5
SMOOTHED = 0.3

# Light signal against a flat light wall by distance (m): logarithms of 1 + s, means of the two
# central sensors.
FAR_M = 0.8
DISTANCES = np.array(
    [0.0, 0.0125, 0.025, 0.035, 0.045, 0.07, 0.09, 0.11, 0.13, 0.15, 0.19, 0.35, FAR_M]
)
SIGNALS = np.log1p(
    np.array(
        [540.0, 1770.0, 1850.0, 1490.0, 1140.0, 560.0, 328.0, 200.0, 132.0, 92.0, 51.0, 10.0, 0.0]
    )
)
LOBE_RAD = np.radians(np.array([-20.0, -10.0, 0.0, 10.0, 20.0]))
LOBE_TAN = math.tan(math.radians(20.0))
MARGIN_M = 1e-9
LOBE = np.array([0.45, 0.85, 1.0, 0.85, 0.45]) / 3.6


@kernel
def between(x: float, xs: Floats, ys: Floats) -> float:
    """Return the value at `x` of the line through (xs, ys), constant beyond its ends; xs increases."""
    if x <= xs[0]:
        return float(ys[0])
    for i in range(1, xs.shape[0]):
        if x <= xs[i]:
            return float(ys[i - 1] + (ys[i] - ys[i - 1]) * (x - xs[i - 1]) / (xs[i] - xs[i - 1]))
    return float(ys[-1])


@kernel
def nearest(x: float, y: float, row: Floats) -> tuple[float, float]:
    """Return the point of a segment (x0, y0, x1, y1, ...) that is nearest to (x, y)."""
    ax = row[TO_X] - row[FROM_X]
    ay = row[TO_Y] - row[FROM_Y]
    share = ((x - row[FROM_X]) * ax + (y - row[FROM_Y]) * ay) / (ax * ax + ay * ay)
    share = min(max(share, 0.0), 1.0)
    return row[FROM_X] + share * ax, row[FROM_Y] + share * ay


@kernel
def is_beyond(x: float, y: float, reach: float, row: Floats) -> bool:
    """Return whether a segment's bounding box is farther than `reach` from (x, y) along x or y: quick to compute."""
    is_aside = x + reach < min(row[FROM_X], row[TO_X]) or x - reach > max(row[FROM_X], row[TO_X])
    return bool(
        is_aside
        or y + reach < min(row[FROM_Y], row[TO_Y])
        or y - reach > max(row[FROM_Y], row[TO_Y])
    )


@kernel
def hit(x: float, y: float, dx: float, dy: float, row: Floats) -> float:
    """Return the distance t along a ray (x, y) + t (dx, dy) to a segment; inf if they do not meet."""
    ax = row[TO_X] - row[FROM_X]
    ay = row[TO_Y] - row[FROM_Y]
    cross = dx * ay - dy * ax
    if abs(cross) < 1e-12:
        return math.inf
    ox = row[FROM_X] - x
    oy = row[FROM_Y] - y
    t = (ox * ay - oy * ax) / cross
    u = (ox * dy - oy * dx) / cross
    if t >= 0.0 and 0.0 <= u <= 1.0:
        return float(t)
    return math.inf


@kernel
def move(
    state: Floats,
    left: float,
    right: float,
    noise: Floats,
    drag: float,
    stuck: int,
    segments: Floats,
    contact: Floats,
) -> None:
    """Move the body for one tick; `state` and `contact`, which receives the contacts, are described above.

    `left` and `right` are the wheels' requests, m/s; `noise` two standard normals; `drag` the
    additional current of each wheel by the floor, A; `stuck` 1 if the left wheel is blocked, 2 the
    right one, 0 neither.
    """
    turn_wheels(state, left, right, noise, stuck)
    vx, vy, yaw_rate = wanted(state)
    before_x = state[X]
    before_y = state[Y]
    before_heading = state[HEADING]
    state[X] += vx * TICK_S
    state[Y] += vy * TICK_S
    state[HEADING] += yaw_rate * TICK_S
    contact[BUMP_L] = 0.0
    contact[BUMP_R] = 0.0
    _push_out(state, segments, contact)
    feel(state, left, right, drag, stuck, before_x, before_y, before_heading, contact)


@kernel
def turn_wheels(state: Floats, left: float, right: float, noise: Floats, stuck: int) -> None:
    """Accelerate the wheels towards their requests; arguments as of `move`."""
    requested = (left, right)
    for i in range(2):
        goal = math.copysign(between(abs(requested[i]), ASKED, REACHED), requested[i]) * (
            1.0 + 0.02 * noise[i]
        )
        state[LEFT + i] += min(max(goal - state[LEFT + i], -SLEW_M_S), SLEW_M_S)
        if stuck == 1 + i:
            state[LEFT + i] = 0.0
        if requested[i] != 0.0:
            state[SIGN_L + i] = math.copysign(1.0, requested[i])


@kernel
def wanted(state: Floats) -> tuple[float, float, float]:
    """Return the velocity of a free body with these wheel speeds: m/s in world axes, rad/s."""
    v = 0.5 * (state[LEFT] + state[RIGHT])
    yaw_rate = (state[RIGHT] - state[LEFT]) / BASE_M
    middle = state[HEADING] + 0.5 * yaw_rate * TICK_S
    # In a spin the encoders report 1.7 % more than a compass.
    return v * math.cos(middle), v * math.sin(middle), yaw_rate / 1.017


@kernel
def feel(
    state: Floats,
    left: float,
    right: float,
    drag: float,
    stuck: int,
    before_x: float,
    before_y: float,
    before_heading: float,
    contact: Floats,
) -> None:
    """Update motor currents and encoder counts from the poses before and after a tick; arguments as of `move`."""
    requested = (left, right)
    v = 0.5 * (state[LEFT] + state[RIGHT])
    yaw_rate = (state[RIGHT] - state[LEFT]) / BASE_M
    middle = before_heading + 0.5 * yaw_rate * TICK_S
    advance_m = (state[X] - before_x) * math.cos(middle) + (state[Y] - before_y) * math.sin(middle)
    contact[AHEAD] = advance_m
    way = abs(v) * TICK_S
    share_held = 0.0
    if way > 1e-4:
        share_held = min(max(1.0 - abs(advance_m) / way, 0.0), 1.0)
    for i in range(2):
        held_i = share_held
        if stuck == 1 + i and requested[i] != 0.0:
            held_i = 1.0
        if held_i > 0.5:
            state[HELD_L + i] = state[HELD_L + i] + TICK_S
        else:
            state[HELD_L + i] = 0.0
        speed = state[LEFT + i]
        amps = 0.0
        if requested[i] != 0.0 or abs(speed) > 0.005:
            amps = IDLE_A + drag + DRIVE_A_S_M * abs(speed)
        # On a hard floor wheels slip before they stall
        most = SLIP_A
        if drag > 0.0 or stuck == 1 + i:
            most = GRIP_A
        amps += held_i * (HOLD_A + most * min(state[HELD_L + i] / STALL_S, 1.0))
        state[AMP_L + i] += SMOOTHED * (amps - state[AMP_L + i])
        # One channel: the encoder does not measure the direction and uses the sign of the command.
        state[COUNT_L + i] += state[SIGN_L + i] * abs(speed) * TICK_S / COUNT_M


@kernel
def press(state: Floats, x: float, y: float, contact: Floats) -> None:
    """Close the bumper's switches for a contact at a point of the world."""
    angle = math.atan2(y - state[Y], x - state[X]) - state[HEADING]
    angle = math.atan2(math.sin(angle), math.cos(angle))
    if abs(angle) < 0.5 * math.pi:
        if angle > -BUMP_SIDE:
            contact[BUMP_L] = 1.0
        if angle < BUMP_SIDE:
            contact[BUMP_R] = 1.0


@kernel
def _push_out(state: Floats, segments: Floats, contact: Floats) -> None:
    """Push the round body out of obstacles and record the contacts of its bumper."""
    for _ in range(3):
        is_free = True
        for k in range(segments.shape[0]):
            if is_beyond(state[X], state[Y], RADIUS_M + MARGIN_M, segments[k]):
                continue
            px, py = nearest(state[X], state[Y], segments[k])
            dx = state[X] - px
            dy = state[Y] - py
            distance = math.hypot(dx, dy)
            if distance >= RADIUS_M or distance == 0.0:
                continue
            is_free = False
            state[X] = px + dx / distance * RADIUS_M
            state[Y] = py + dy / distance * RADIUS_M
            if segments[k, IS_DOCK_FACE] == 0.0:
                press(state, px, py, contact)
        if is_free:
            return


@kernel
def may_be_hit(from_x: float, from_y: float, c: float, s: float, row: Floats) -> bool:
    """Return False for a segment outside the lobe of a sensor that looks along (c, s): FAR_M deep, 20 degrees wide."""
    ahead_0 = c * (row[FROM_X] - from_x) + s * (row[FROM_Y] - from_y)
    aside_0 = c * (row[FROM_Y] - from_y) - s * (row[FROM_X] - from_x)
    ahead_1 = c * (row[TO_X] - from_x) + s * (row[TO_Y] - from_y)
    aside_1 = c * (row[TO_Y] - from_y) - s * (row[TO_X] - from_x)
    if min(ahead_0, ahead_1) > FAR_M + MARGIN_M or max(ahead_0, ahead_1) < -MARGIN_M:
        return False
    left_0 = aside_0 - LOBE_TAN * ahead_0
    left_1 = aside_1 - LOBE_TAN * ahead_1
    right_0 = -aside_0 - LOBE_TAN * ahead_0
    right_1 = -aside_1 - LOBE_TAN * ahead_1
    return bool(min(left_0, left_1) <= MARGIN_M and min(right_0, right_1) <= MARGIN_M)


@kernel
def look(x: float, y: float, heading: float, angles: Floats, segments: Floats, out: Floats) -> None:
    """Write the light bumpers' signals, without offset and noise, into `out`; `angles` (n,) in the body frame."""
    # Bits of the segments that a ray can reach; one with a number above 61 is taken for near
    near = 0
    for j in range(min(segments.shape[0], 62)):
        if not is_beyond(x, y, RADIUS_M + FAR_M + MARGIN_M, segments[j]):
            near |= 1 << j
    for i in range(angles.shape[0]):
        at = heading + angles[i]
        c = math.cos(at)
        s = math.sin(at)
        from_x = x + RADIUS_M * c
        from_y = y + RADIUS_M * s
        total = 0.0
        # Of those that a ray can hit
        first = segments.shape[0]
        end = 0
        for j in range(segments.shape[0]):
            if (j > 61 or near >> j & 1 == 1) and may_be_hit(from_x, from_y, c, s, segments[j]):
                first = min(first, j)
                end = j + 1
        n_rays = 0
        if end > 0:
            n_rays = LOBE.shape[0]
        for k in range(n_rays):
            dx = math.cos(at + LOBE_RAD[k])
            dy = math.sin(at + LOBE_RAD[k])
            reach = FAR_M
            met = -1
            for j in range(first, end):
                t = hit(from_x, from_y, dx, dy, segments[j])
                if t < reach:
                    reach = t
                    met = j
            if met >= 0:
                ax = segments[met, TO_X] - segments[met, FROM_X]
                ay = segments[met, TO_Y] - segments[met, FROM_Y]
                facing = abs(dx * ay - dy * ax) / math.hypot(ax, ay)
                signal = math.exp(between(reach, DISTANCES, SIGNALS)) - 1.0
                total += LOBE[k] * signal * segments[met, REFLECTANCE] * (0.3 + 0.7 * facing)
        out[i] = total


@kernel
def is_hidden(x: float, y: float, to_x: float, to_y: float, segments: Floats) -> bool:
    """Return whether an obstacle other than the dock is between two points."""
    dx = to_x - x
    dy = to_y - y
    for j in range(segments.shape[0] - 3):  # noqa: SIM110  the last three are the dock; a kernel has no any()
        if hit(x, y, dx, dy, segments[j]) < 1.0:
            return True
    return False
