"""One packet of all senses in one kernel: the models of `fields` and `inertial`, lags, and the converter's steps.

Seven calls of kernels would cost more than their computation. The values are in the order of the channels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from horde_env._jit import kernel, kernel_over
from horde_env.backend import Floats
from horde_env.robots.critterbot.simulator import fields, inertial

Pose = Any  # (x, y, heading, yaw rate, ax, ay): a tuple, which the models index like an array

N_FELT, N_FELT_DRAWS = 7, 11  # values and standard normals of acceleration, magnetic and rotational velocity

THERMAL_SD = 1.5 * 0.02  # of each new reading, K
THERMAL_DRIFT_SD = 6.0 * 0.02  # at rest the log's zones drift by 5 to 10 counts within seconds
# Offset of each zone of the real robot from the mean of all: mean of the log, K.
ZONE_BIAS_K = 0.02 * np.array([-7.0, -38.0, -6.0, -24.0, 7.0, 89.0, -4.0, -17.0])


# Arguments of `read`. Passing a NamedTuple costs twice as much, and `read` names the elements.
Scene = tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats]
Eyes = tuple[Floats, Floats, Floats, Floats]
Memory = tuple[Floats, Floats, Floats, Floats, Floats, Floats]
Air = tuple[float, tuple[float, float], float, float, float, float, float]  # elapsed_s, lit .. drift_share of `read`


@kernel_over(fields, inertial)
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
    elapsed_s: float,
    lit: tuple[float, float],
    gain: float,
    ambient: float,
    room_k: float,
    lag_share: float,
    drift_share: float,
    out: Floats,
) -> None:
    """Write a packet, quantised, SI units; infrared light is the mean of this packet and the one before.

    Args:
        scene: Obstacles (segments, heights, reflectances), beacon, lamps, warm objects, the Earth's field, iron; see
            `fields` and `inertial`.
        eyes: Poses of the sensors of ir_distance, ir_light, light and thermal: rows x, y, angle in the body frame.
        memory: Changed in place: the values before the converter (37,), of which the thermal zones' stay until they are
            refreshed; the rollers' phases (3,); the zones' lagged temperatures (8,) and drift (8,); infrared light of
            the last two packets (2, 8), and its change between them (8,).
        steps: Of the converter, shape (4, 37); see `quantise`.
        normal: Standard normals, shape (57,), in the order of the channels; infrared light and thermal have two each.
        uniform: For the jumps of ir_distance, shape (2, 10).
        before: The body 10 ms ago; its acceleration is not used.
        pose: The body now.
        wheel_speed: Rim speeds, m/s, shape (3,).
        duty: -1..1, shape (3,).
        contact_n_s: Contact impulse over the last 10 ms.
        elapsed_s: Since the last packet.
        lit: Brightness of the beacon in the last two packets, 0..1.
        gain: The lamps' flicker, about 1.
        ambient: Ambient light, share of full scale.
        room_k: Temperature of the room, K.
        lag_share: Share of the way from the thermal zones' lagged to their true temperatures, 0..1; 0 if they are not
            refreshed now.
        drift_share: Share of the zones' drift that is left.
        out: Receives the packet, shape (37,).
    """
    segments, heights, reflectances, beacon, lamps, warm, earth, iron = scene
    near_eyes, glare_eyes, light_eyes, warm_eyes = eyes
    values, roller, zones, drift, packets, change = memory
    # Each group's end among the values (v) and among the normals (n).
    v1, n1 = N_FELT + near_eyes.shape[0], N_FELT_DRAWS + near_eyes.shape[0]
    v2, n2 = v1 + glare_eyes.shape[0], n1 + 2 * glare_eyes.shape[0]
    v3, n3 = v2 + light_eyes.shape[0], n2 + light_eyes.shape[0]
    inertial.feel(pose, before[3], wheel_speed, duty, contact_n_s, elapsed_s, earth, iron, roller, normal, values)
    near, shine, heat = values[N_FELT:v1], values[v2:v3], values[v3:]
    fields.ir_distance(pose, near_eyes, segments, reflectances, normal[N_FELT_DRAWS:n1], uniform, near)
    fields.light(pose, light_eyes, lamps, gain, ambient, segments, heights, normal[n2:n3], shine)
    if lag_share > 0.0:
        fields.warmth(pose, warm_eyes, warm, room_k, segments, heights, heat)
        follow(lag_share, drift_share, normal[n3:], zones, drift, heat)
        for k in range(heat.shape[0]):
            heat[k] += ZONE_BIAS_K[k]
    for k in range(values.shape[0]):  # out[:] = values compiles for 2.5 s more
        out[k] = values[k]
    quantise(steps, out)
    glare = normal[n1:n2].reshape((2, v2 - v1))
    both: Any = (before, pose)
    fields.ir_light(both, glare_eyes, beacon, lit, segments, heights, glare, packets)
    mean_of_packets(steps[:, v1:v2], packets, out[v1:v2])
    for k in range(v2 - v1):
        change[k] = abs(packets[1, k] - packets[0, k])


@kernel
def follow(lag_share: float, drift_share: float, normal: Floats, zones: Floats, drift: Floats, out: Floats) -> None:
    """Add lag, drift and noise to the thermal zones' true temperatures in `out`; (n,) each.

    `zones`, the lagged temperatures, move by `lag_share` towards the true ones; `drift_share` of the drift remains (an
    Ornstein-Uhlenbeck process). `normal` (2 n,).
    """
    n = out.shape[0]
    for k in range(n):
        zones[k] += lag_share * (out[k] - zones[k])
        innovation = THERMAL_DRIFT_SD * math.sqrt(1.0 - drift_share * drift_share)
        drift[k] = drift_share * drift[k] + innovation * normal[n + k]
        out[k] = zones[k] + drift[k] + THERMAL_SD * normal[k]


@kernel
def quantise(steps: Floats, out: Floats) -> None:
    """Round to the converter's steps and clip to its range, in place, as RobotSpec.to_si(from_si(..)) does.

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
