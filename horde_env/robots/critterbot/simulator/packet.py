"""One packet of all senses in one kernel: accelerometer, gyroscope, magnetometer, `fields`, lags, converter's steps.

Seven calls of kernels would cost more than their computation. The values are in the order of the
channels.

The constants were measured in the real robot's log of 5 October 2010 (100 Hz, 100 s); 1 LSB of the
accelerometer is 9.81/1024 m/s^2, of the gyroscope 1/77.5 rad/s. `motion` is (x, y, heading,
yaw_rate, ax, ay) of the body in the world; `normal` are standard normals, one per independent
source of noise (all zero: the noise-free reading).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from horde_env._jit import kernel, kernel_over
from horde_env.backend import Floats
from horde_env.robots.critterbot.simulator import fields

Pose = Any  # (x, y, heading, yaw rate, ax, ay): a tuple, which the models index like an array

# Values and standard normals of acceleration, magnetic and rotational velocity
N_FELT = 7
N_FELT_DRAWS = 11

PACKET_S = 0.01
G_LSB = 9.81 / 1024
GRAVITY_Z = 978 * G_LSB  # the chip reads 4.5 % low: raw 978 instead of 1024 at rest
REST_X = -13 * G_LSB  # raw +13 at rest; the chip is turned, so negative in the body frame
REST_SD = (0.9 * G_LSB, 0.9 * G_LSB, 2.9 * G_LSB)
# Of the accelerometer from the axis of rotation: regression of the log's x, y on yaw_rate^2
CHIP_M = (-0.005, -0.014)

ROLLER_PITCH_M = 0.0147  # rim travel per shake: the log's 20 .. 23 Hz at about 18 wheel units
SHAKE_PER_SPEED = (10.9, 12.0, 13.6)  # sd of the shaking over rim speed, (m/s^2)/(m/s), for x, y, z
SHAKE_MOST = (1.35, 3.1, 3.7)  # its largest sd, m/s^2
# By axis and wheel: they differ
SHAKE_PHASE = np.array([[0.0, 1.9, 4.2], [1.6, 5.7, 2.8], [3.6, 0.8, 5.0]])
# The sines carry half of the shaking's power, noise the rest: the log's lag at 0.01 s
SHAKE_TONE = math.sqrt(0.5)
RING_PER_IMPULSE = 6.0  # vertical ringing of the body when hit, m/s^2 per N s

GYRO_OFFSET = 5 / 77.5
GYRO_SD = 2.6 / 77.5

MAGNETIC_SD = (2.2, 0.9, 0.7)  # counts
MOTOR_FIELD = (12.0, 0.3, 4.0)  # counts that one motor's full duty adds to x, y, z

THERMAL_SD = 1.5 * 0.02  # of each new reading, K
THERMAL_DRIFT_SD = 6.0 * 0.02  # at rest the log's zones drift by 5 to 10 counts within seconds
# Offset of each zone of the real robot from the mean of all: mean of the log, K.
ZONE_BIAS_K = 0.02 * np.array([-7.0, -38.0, -6.0, -24.0, 7.0, 89.0, -4.0, -17.0])


BLINK_EDGE = 6.0  # steepness of the beacon's blink: it takes about a millisecond from dark to lit
# The four sensors share a slow bus: the log's readings change every 14 packets
THERMAL_PERIOD_S = 0.14
THERMAL_LAG_S = 0.3
THERMAL_DRIFT_S = 1.5

# Numbers of `times`: this life's beacon, and when the last packet was sent and the thermal zones
# were read, seconds.
BLINK_HZ, BLINK_PHASE, LAST_S, ZONE_S, N_TIMES = range(5)
# Numbers of `room`, in the order of `place.Room`.
ROOM_K, AMBIENT, MAINS_HZ, FLICKER = range(4)

# Arguments of `read`. Passing a NamedTuple costs twice as much, and `read` names the elements.
Scene = tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats]
Eyes = tuple[Floats, Floats, Floats, Floats]
Memory = tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats]
Air = tuple[float, tuple[float, float], float, float, float, float, float]  # what `air_at` returns


@kernel
def lit_at(times: Floats, t_s: float) -> float:
    """Return the beacon's brightness at `t_s`, 0..1: a square wave with soft edges."""
    wave = math.sin(2.0 * math.pi * (times[BLINK_HZ] * t_s + times[BLINK_PHASE]))
    return min(max(0.5 + BLINK_EDGE * wave, 0.0), 1.0)


@kernel
def air_at(times: Floats, room: Floats, t_s: float) -> Air:
    """Return the state of the room for a packet at `t_s`, seconds since the robot was switched on; once per packet.

    `times`, shape (N_TIMES,), changes in place; `room` has shape (4,).

    Returns:
        Seconds since the last packet; brightness of the beacon in the last two packets, 0..1; the
        lamps' flicker, about 1; ambient light, share of full scale; the room's temperature, K;
        share of the way from the thermal zones' lagged to their true temperatures, 0..1, 0 if they
        are not refreshed now; share of the zones' drift that is left.
    """
    elapsed_s = min(max(t_s - times[LAST_S], 0.0), 1.0)
    times[LAST_S] = t_s
    lag_share = 0.0
    drift_share = 1.0
    if t_s - times[ZONE_S] >= THERMAL_PERIOD_S - 1e-9:
        elapsed = t_s - times[ZONE_S]
        times[ZONE_S] = t_s
        lag_share = 1.0 - math.exp(-elapsed / THERMAL_LAG_S)
        drift_share = math.exp(-elapsed / THERMAL_DRIFT_S)
    lit = lit_at(times, t_s - PACKET_S), lit_at(times, t_s)
    # A lamp on the mains brightens twice in every cycle.
    gain = 1.0 + room[FLICKER] * math.sin(4.0 * math.pi * room[MAINS_HZ] * t_s)
    return elapsed_s, lit, gain, room[AMBIENT], room[ROOM_K], lag_share, drift_share


@kernel
def acceleration(
    motion: Floats,
    yaw_rate_before: float,
    wheel_speed: Floats,
    roller: Floats,
    contact_n_s: float,
    normal: Floats,
    out: Floats,
) -> None:
    """Write the accelerometer (x forward, y left, z up): motion, gravity, shaking, noise; `normal` (7,).

    The chip at r from the axis measures a + alpha x r - yaw_rate^2 r in the body frame. Each wheel,
    with its rollers at phase `roller`, shakes each axis by a sine and equal noise, which grow with
    its speed up to a bound.
    """
    c = math.cos(motion[2])
    s = math.sin(motion[2])
    alpha = (motion[3] - yaw_rate_before) / PACKET_S
    spin = motion[3] * motion[3]
    out[0] = c * motion[4] + s * motion[5] - alpha * CHIP_M[1] - spin * CHIP_M[0] + REST_X
    out[1] = -s * motion[4] + c * motion[5] + alpha * CHIP_M[0] - spin * CHIP_M[1]
    out[2] = GRAVITY_Z + RING_PER_IMPULSE * contact_n_s * normal[6]
    for axis in range(3):
        tone = power = 0.0
        for wheel in range(3):
            size = min(SHAKE_PER_SPEED[axis] * abs(wheel_speed[wheel]), SHAKE_MOST[axis])
            tone += size * math.sin(roller[wheel] + SHAKE_PHASE[axis, wheel])
            power += size * size
        out[axis] += SHAKE_TONE * math.sqrt(2.0 / 3.0) * tone
        out[axis] += math.sqrt((1.0 - SHAKE_TONE**2) * power / 3.0) * normal[3 + axis]
        out[axis] += REST_SD[axis] * normal[axis]


@kernel
def rotational_velocity(yaw_rate: float, normal: Floats, out: Floats) -> None:
    """Write the gyroscope's reading: the yaw rate, its offset, noise. `normal` (1,)."""
    out[0] = yaw_rate + GYRO_OFFSET + GYRO_SD * normal[0]


@kernel
def magnetic(
    motion: Floats, duty: Floats, earth: Floats, iron: Floats, normal: Floats, out: Floats
) -> None:
    """Write the magnetometer as a share of 1023 counts: Earth, steel under the floor, motors, noise. `normal` (3,).

    `earth` is (north, centre x 3, swing x 3): centre + swing cos(heading - north). `iron` has rows
        (x, y, depth, field
    x 3), shape (i, 6): steel at depth h and horizontal distance r adds its field times (1 +
    (r/h)^2)^(-3/2), as of a dipole. Of the horizontal axes only x is sensitive.
    """
    swing = math.cos(motion[2] - earth[0])
    drive = duty[0] - 0.5 * duty[1] - 0.5 * duty[2]
    east = north = up = 0.0
    for i in range(iron.shape[0]):
        aside2 = (motion[0] - iron[i, 0]) ** 2 + (motion[1] - iron[i, 1]) ** 2
        near = (1.0 + aside2 / iron[i, 2] ** 2) ** -1.5
        east = east + near * iron[i, 3]
        north = north + near * iron[i, 4]
        up = up + near * iron[i, 5]
    for axis in range(3):
        counts = (
            earth[1 + axis]
            + earth[4 + axis] * swing
            + MOTOR_FIELD[axis] * drive
            + MAGNETIC_SD[axis] * normal[axis]
        )
        if axis == 0:
            counts += math.cos(motion[2]) * east + math.sin(motion[2]) * north
        elif axis == 2:
            counts += up
        out[axis] = counts / 1023.0


@kernel
def feel(
    motion: Floats,
    yaw_rate_before: float,
    wheel_speed: Floats,
    duty: Floats,
    contact_n_s: float,
    elapsed_s: float,
    earth: Floats,
    iron: Floats,
    roller: Floats,
    normal: Floats,
    out: Floats,
) -> None:
    """Advance the rollers; write acceleration, magnetic and rotational velocity; `normal` (11,), `out` (7,)."""
    for wheel in range(3):
        roller[wheel] += 2.0 * math.pi / ROLLER_PITCH_M * elapsed_s * wheel_speed[wheel]
    acceleration(motion, yaw_rate_before, wheel_speed, roller, contact_n_s, normal[:7], out[:3])
    magnetic(motion, duty, earth, iron, normal[7:10], out[3:6])
    rotational_velocity(motion[3], normal[10:], out[6:])


@kernel_over(fields)
def read(
    scene: Scene,
    eyes: Eyes,
    memory: Memory,
    steps: Floats,
    normal: Floats,
    uniform: Floats,
    before: Pose,
    pose: Pose,
    wheel_speed: Floats,
    duty: Floats,
    contact_n_s: float,
    air: Air,
    out: Floats,
) -> None:
    """Write a packet, quantised, SI units; infrared light is the mean of this packet and the one before.

    Args:
        scene: Obstacles (segments, heights, reflectances), beacon, lamps, warm objects, the Earth's
            field, iron; see `fields` and `magnetic`.
        eyes: Poses of the sensors of ir_distance, ir_light, light and thermal: rows x, y, angle in
            the body frame.
        memory: Changed in place: the values before the converter (37,), of which the thermal zones'
            stay until they are refreshed; the rollers' phases (3,); the zones' lagged temperatures
            (8,) and drift (8,); infrared light of the last two packets (2, 8), and its change
            between them (8,); `fields.Scratch`.
        steps: Of the converter, shape (4, 37); see `quantise`.
        normal: Standard normals, shape (57,), in the order of the channels; infrared light and
            thermal have two each.
        uniform: For the jumps of ir_distance, shape (2, 10).
        before: The body 10 ms ago; its acceleration is not used.
        pose: The body now.
        wheel_speed: Rim speeds, m/s, shape (3,).
        duty: -1..1, shape (3,).
        contact_n_s: Contact impulse over the last 10 ms.
        air: See `air_at`.
        out: Receives the packet, shape (37,).
    """
    segments, heights, reflectances, beacon, lamps, warm, earth, iron = scene
    near_eyes, glare_eyes, light_eyes, warm_eyes = eyes
    values, roller, zones, drift, packets, change, lines, along = memory
    scratch = lines, along
    elapsed_s, lit, gain, ambient, room_k, lag_share, drift_share = air
    # Each group's end among the values (v) and among the normals (n).
    v1 = N_FELT + near_eyes.shape[0]
    n1 = N_FELT_DRAWS + near_eyes.shape[0]
    v2 = v1 + glare_eyes.shape[0]
    n2 = n1 + 2 * glare_eyes.shape[0]
    v3 = v2 + light_eyes.shape[0]
    n3 = n2 + light_eyes.shape[0]
    feel(
        pose,
        before[3],
        wheel_speed,
        duty,
        contact_n_s,
        elapsed_s,
        earth,
        iron,
        roller,
        normal,
        values,
    )
    near = values[N_FELT:v1]
    shine = values[v2:v3]
    heat = values[v3:]
    fields.ir_distance(
        pose, near_eyes, segments, reflectances, normal[N_FELT_DRAWS:n1], uniform, scratch, near
    )
    fields.light(
        pose, light_eyes, lamps, gain, ambient, segments, heights, normal[n2:n3], scratch, shine
    )
    if lag_share > 0.0:
        fields.warmth(pose, warm_eyes, warm, room_k, segments, heights, scratch, heat)
        follow(lag_share, drift_share, normal[n3:], zones, drift, heat)
        for k in range(heat.shape[0]):
            heat[k] += ZONE_BIAS_K[k]
    for k in range(values.shape[0]):  # out[:] = values compiles for 2.5 s more
        out[k] = values[k]
    quantise(steps, out)
    glare = normal[n1:n2].reshape((2, v2 - v1))
    both: Any = (before, pose)
    fields.ir_light(both, glare_eyes, beacon, lit, segments, heights, glare, scratch, packets)
    mean_of_packets(steps[:, v1:v2], packets, out[v1:v2])
    for k in range(v2 - v1):
        change[k] = abs(packets[1, k] - packets[0, k])


@kernel
def follow(
    lag_share: float, drift_share: float, normal: Floats, zones: Floats, drift: Floats, out: Floats
) -> None:
    """Add lag, drift and noise to the thermal zones' true temperatures in `out`; (n,) each.

    `zones`, the lagged temperatures, move by `lag_share` towards the true ones; `drift_share` of
    the drift remains (an Ornstein-Uhlenbeck process). `normal` (2 n,).
    """
    n = out.shape[0]
    for k in range(n):
        zones[k] += lag_share * (out[k] - zones[k])
        innovation = THERMAL_DRIFT_SD * math.sqrt(1.0 - drift_share * drift_share)
        drift[k] = drift_share * drift[k] + innovation * normal[n + k]
        out[k] = zones[k] + drift[k] + THERMAL_SD * normal[k]


@kernel
def quantise(steps: Floats, out: Floats) -> None:
    """Round to the converter's steps and clip to its range, in place.

    `steps` has rows lsb, offset, lowest and highest raw value, shape (4, n).
    """
    for k in range(out.shape[0]):
        raw = np.rint((out[k] - steps[1, k]) / steps[0, k])
        out[k] = steps[0, k] * min(max(raw, steps[2, k]), steps[3, k]) + steps[1, k]


@kernel
def mean_of_packets(steps: Floats, packets: Floats, out: Floats) -> None:
    """Quantise each of two packets, shape (2, n), and write their mean; `steps` as for `quantise`."""
    quantise(steps, packets[0])
    quantise(steps, packets[1])
    for k in range(out.shape[0]):
        out[k] = 0.5 * (packets[0, k] + packets[1, k])
