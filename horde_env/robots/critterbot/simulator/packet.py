"""One packet of all senses in one kernel: accelerometer, gyroscope, magnetometer, `fields`, lags, converter's steps.

Seven calls of kernels would cost more than their computation. The values are in the order of the
channels.

The constants were measured in the real robot's log of 5 October 2010 (100 Hz, 100 s); 1 LSB of the
accelerometer is 9.81/1024 m/s^2, of the gyroscope 1/77.5 rad/s. `normal` are standard normals, one
per independent source of noise (all zero: the noise-free reading).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from horde_env._jit import Record, kernel, kernel_over
from horde_env.backend import Floats
from horde_env.robots.critterbot.simulator import fields
from horde_env.robots.critterbot.simulator.fields import Pose

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

# Numbers of `times`.
BLINK_HZ = 0  # of this life's beacon
BLINK_PHASE = 1  # of this life's beacon, share of a cycle
LAST_S = 2  # when the last packet was sent
ZONE_S = 3  # when the thermal zones were read
N_TIMES = 4

# Numbers of `room`, in the order of `place.Room`.
ROOM_K = 0
AMBIENT = 1  # light, share of full scale
MAINS_HZ = 2
FLICKER = 3  # of the lamps, share of their light

# Numbers of `earth`; counts are those of the magnetometer's three axes.
NORTH_RAD = 0
CENTRE = 1  # first of three, counts
SWING = 4  # first of three, counts

# Columns of `iron`.
IRON_X = 0  # m
IRON_Y = 1  # m
IRON_DEPTH = 2  # m
IRON_EAST = 3  # field right above it, counts
IRON_NORTH = 4
IRON_UP = 5

# Rows of `steps`.
LSB = 0
OFFSET = 1
RAW_LOW = 2
RAW_HIGH = 3


class Scene(NamedTuple):
    """What the sensors perceive; robots in one pen share it."""

    segments: Floats  # walls seen from above, (m, 4)
    heights: Floats  # of the walls, m, (m,)
    reflectances: Floats  # of the walls, 0..1, (m,)
    beacon: Floats  # (5,)
    lamps: Floats  # (l, 4)
    warm: Floats  # warm objects, (w, 6)
    earth: Floats  # the Earth's magnetic field, (7,)
    iron: Floats  # steel under the floor, (i, 6)


class Eyes(NamedTuple):
    """The sensors that measure at a distance, in the order of the channels: rows x, y, angle in the body frame."""

    ir_distance: Floats
    ir_light: Floats
    light: Floats
    thermal: Floats


class Instant(NamedTuple):
    """The body at the end of the tick that a packet is about."""

    previous_pose: Pose  # 10 ms ago; its acceleration is not used
    pose: Pose
    wheel_speed: Floats  # of the rims, m/s, (3,)
    duty: tuple[float, float, float]  # -1..1
    contact_n_s: float  # contact impulse over the last 10 ms


class Groups(NamedTuple):
    """Where the groups of channels end among the values, and among the standard normals."""

    near_end: int  # ir_distance
    glare_end: int  # ir_light
    light_end: int
    near_draws_end: int
    glare_draws_end: int
    light_draws_end: int


class Air(NamedTuple):
    """The state of the room for a packet."""

    elapsed_s: float  # since the last packet
    lit: tuple[float, float]  # brightness of the beacon 10 ms ago and now, 0..1
    gain: float  # the lamps' flicker, about 1
    ambient: float  # light, share of full scale
    room_k: float  # temperature
    lag_share: float  # of the way from lagged to true temperatures, 0..1; 0 without a refresh now
    drift_share: float  # share of the zones' drift that is left


@kernel
def lit_at(times: Floats, t_s: float) -> float:
    """Return the beacon's brightness at `t_s`, 0..1: a square wave with soft edges."""
    wave = math.sin(2.0 * math.pi * (times[BLINK_HZ] * t_s + times[BLINK_PHASE]))
    return min(max(0.5 + BLINK_EDGE * wave, 0.0), 1.0)


@kernel
def air_at(times: Floats, room: Floats, t_s: float) -> Air:
    """Return the state of the room for a packet at `t_s`, seconds since the robot was switched on; once per packet.

    `times`, shape (N_TIMES,), changes in place; `room` has shape (4,).
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
    lit_before = lit_at(times, t_s - PACKET_S)
    lit_now = lit_at(times, t_s)
    # A lamp on the mains brightens twice in every cycle.
    gain = 1.0 + room[FLICKER] * math.sin(4.0 * math.pi * room[MAINS_HZ] * t_s)
    return Air(
        elapsed_s=elapsed_s,
        lit=(lit_before, lit_now),
        gain=gain,
        ambient=room[AMBIENT],
        room_k=room[ROOM_K],
        lag_share=lag_share,
        drift_share=drift_share,
    )


@kernel
def acceleration(
    pose: Pose,
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
    c = math.cos(pose.heading)
    s = math.sin(pose.heading)
    alpha = (pose.yaw_rate - yaw_rate_before) / PACKET_S
    spin = pose.yaw_rate * pose.yaw_rate
    out[0] = c * pose.ax + s * pose.ay - alpha * CHIP_M[1] - spin * CHIP_M[0] + REST_X
    out[1] = -s * pose.ax + c * pose.ay + alpha * CHIP_M[0] - spin * CHIP_M[1]
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
    pose: Pose,
    duty: tuple[float, float, float],
    earth: Floats,
    iron: Floats,
    normal: Floats,
    out: Floats,
) -> None:
    """Write the magnetometer as a share of 1023 counts: Earth, steel under the floor, motors, noise. `normal` (3,).

    The Earth's part is centre + swing cos(heading - north). Steel at depth h and horizontal distance
    r adds its field times (1 + (r/h)^2)^(-3/2), as of a dipole. Of the horizontal axes only x is
    sensitive.
    """
    swing = math.cos(pose.heading - earth[NORTH_RAD])
    drive = duty[0] - 0.5 * duty[1] - 0.5 * duty[2]
    east = north = up = 0.0
    for i in range(iron.shape[0]):
        aside2 = (pose.x - iron[i, IRON_X]) ** 2 + (pose.y - iron[i, IRON_Y]) ** 2
        near = (1.0 + aside2 / iron[i, IRON_DEPTH] ** 2) ** -1.5
        east = east + near * iron[i, IRON_EAST]
        north = north + near * iron[i, IRON_NORTH]
        up = up + near * iron[i, IRON_UP]
    for axis in range(3):
        counts = (
            earth[CENTRE + axis]
            + earth[SWING + axis] * swing
            + MOTOR_FIELD[axis] * drive
            + MAGNETIC_SD[axis] * normal[axis]
        )
        if axis == 0:
            counts += math.cos(pose.heading) * east + math.sin(pose.heading) * north
        elif axis == 2:
            counts += up
        out[axis] = counts / 1023.0


@kernel
def feel(
    instant: Instant, elapsed_s: float, scene: Scene, roller: Floats, normal: Floats, out: Floats
) -> None:
    """Advance the rollers; write acceleration, magnetic and rotational velocity; `normal` (11,), `out` (7,).

    Longer arrays are fine: only their first elements are used.
    """
    for wheel in range(3):
        roller[wheel] += 2.0 * math.pi / ROLLER_PITCH_M * elapsed_s * instant.wheel_speed[wheel]
    acceleration(
        instant.pose,
        instant.previous_pose.yaw_rate,
        instant.wheel_speed,
        roller,
        instant.contact_n_s,
        normal[:7],
        out[:3],
    )
    magnetic(instant.pose, instant.duty, scene.earth, scene.iron, normal[7:10], out[3:6])
    rotational_velocity(instant.pose.yaw_rate, normal[10:N_FELT_DRAWS], out[6:N_FELT])


@kernel_over(fields)
def read(
    scene: Scene,
    eyes: Eyes,
    robot: Record,
    steps: Floats,
    normal: Floats,
    uniform: Floats,
    instant: Instant,
    air: Air,
    out: Floats,
) -> None:
    """Write a packet, quantised, SI units; infrared light is the mean of this packet and the one before.

    Args:
        scene: What the sensors perceive.
        eyes: Where the sensors that measure at a distance are.
        robot: What its sensors keep, changed in place: see `state`.
        steps: Of the converter, shape (4, 37); see `quantise`.
        normal: Standard normals, shape (57,), in the order of the channels; infrared light and
            thermal have two each.
        uniform: For the jumps of ir_distance, shape (2, 10).
        instant: The body now and 10 ms ago.
        air: See `air_at`.
        out: Receives the packet, shape (37,).
    """
    values = robot.sensed
    groups = groups_of(eyes)
    scratch = fields.Scratch(lines=robot.lines, along=robot.along)
    feel(instant, air.elapsed_s, scene, robot.roller, normal, values)
    read_fields(scene, eyes, robot, normal, uniform, instant.pose, air, groups, scratch)
    for k in range(values.shape[0]):  # out[:] = values compiles for 2.5 s more
        out[k] = values[k]
    quantise(steps, out)

    poses = (instant.previous_pose, instant.pose)
    draws = normal[groups.near_draws_end : groups.glare_draws_end]
    fields.ir_light(
        poses,
        eyes.ir_light,
        scene.beacon,
        air.lit,
        scene.segments,
        scene.heights,
        draws.reshape((2, eyes.ir_light.shape[0])),
        scratch,
        robot.packets,
    )
    glare_steps = steps[:, groups.near_end : groups.glare_end]
    mean_of_packets(glare_steps, robot.packets, out[groups.near_end : groups.glare_end])
    for k in range(robot.change.shape[0]):
        robot.change[k] = abs(robot.packets[1, k] - robot.packets[0, k])


@kernel
def groups_of(eyes: Eyes) -> Groups:
    """Return where the groups of channels end."""
    n_near = eyes.ir_distance.shape[0]
    n_glare = eyes.ir_light.shape[0]
    n_light = eyes.light.shape[0]
    return Groups(
        near_end=N_FELT + n_near,
        glare_end=N_FELT + n_near + n_glare,
        light_end=N_FELT + n_near + n_glare + n_light,
        near_draws_end=N_FELT_DRAWS + n_near,
        glare_draws_end=N_FELT_DRAWS + n_near + 2 * n_glare,
        light_draws_end=N_FELT_DRAWS + n_near + 2 * n_glare + n_light,
    )


@kernel_over(fields)
def read_fields(
    scene: Scene,
    eyes: Eyes,
    robot: Record,
    normal: Floats,
    uniform: Floats,
    pose: Pose,
    air: Air,
    groups: Groups,
    scratch: fields.Scratch,
) -> None:
    """Write the values of ir_distance and light, and of thermal if it is refreshed now; arguments as of `read`."""
    values = robot.sensed
    segments = scene.segments
    heights = scene.heights

    near = values[N_FELT : groups.near_end]
    draws = normal[N_FELT_DRAWS : groups.near_draws_end]
    fields.ir_distance(
        pose, eyes.ir_distance, segments, scene.reflectances, draws, uniform, scratch, near
    )
    fields.light(
        pose,
        eyes.light,
        scene.lamps,
        air.gain,
        air.ambient,
        segments,
        heights,
        normal[groups.glare_draws_end : groups.light_draws_end],
        scratch,
        values[groups.glare_end : groups.light_end],
    )
    if air.lag_share > 0.0:
        heat = values[groups.light_end :]
        fields.warmth(pose, eyes.thermal, scene.warm, air.room_k, segments, heights, scratch, heat)
        follow(air, normal[groups.light_draws_end :], robot.zones, robot.drift, heat)
        for k in range(heat.shape[0]):
            heat[k] += ZONE_BIAS_K[k]


@kernel
def follow(air: Air, normal: Floats, zones: Floats, drift: Floats, out: Floats) -> None:
    """Add lag, drift and noise to the thermal zones' true temperatures in `out`; (n,) each.

    `zones`, the lagged temperatures, move by `lag_share` towards the true ones; `drift_share` of
    the drift remains (an Ornstein-Uhlenbeck process). `normal` (2 n,).
    """
    n = out.shape[0]
    for k in range(n):
        zones[k] += air.lag_share * (out[k] - zones[k])
        innovation = THERMAL_DRIFT_SD * math.sqrt(1.0 - air.drift_share * air.drift_share)
        drift[k] = air.drift_share * drift[k] + innovation * normal[n + k]
        out[k] = zones[k] + drift[k] + THERMAL_SD * normal[k]


@kernel
def quantise(steps: Floats, out: Floats) -> None:
    """Round to the converter's steps and clip to its range, in place.

    `steps` has rows lsb, offset, lowest and highest raw value, shape (4, n).
    """
    for k in range(out.shape[0]):
        raw = np.rint((out[k] - steps[OFFSET, k]) / steps[LSB, k])
        raw_in_range = min(max(raw, steps[RAW_LOW, k]), steps[RAW_HIGH, k])
        out[k] = steps[LSB, k] * raw_in_range + steps[OFFSET, k]


@kernel
def mean_of_packets(steps: Floats, packets: Floats, out: Floats) -> None:
    """Quantise each of two packets, shape (2, n), and write their mean; `steps` as for `quantise`."""
    quantise(steps, packets[0])
    quantise(steps, packets[1])
    for k in range(out.shape[0]):
        out[k] = 0.5 * (packets[0, k] + packets[1, k])
