"""Slow, obvious twins of the sensor kernels: vectors and `numpy.linalg.solve`, one sensor and one source at a time."""

from __future__ import annotations

import math

import numpy as np

from horde_env.robots.critterbot.simulator import fields, packet


def unit(angle: float) -> np.ndarray:
    return np.array([math.cos(angle), math.sin(angle)])


def turned(angle: float, v: np.ndarray) -> np.ndarray:
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]) @ v


def meeting(start: np.ndarray, end: np.ndarray, segment: np.ndarray) -> float:
    """Solve start + t (end - start) = a + u (b - a) for t >= 0 and 0 <= u <= 1; inf if there is none."""
    a = segment[:2]
    b = segment[2:]
    matrix = np.column_stack([end - start, a - b])
    if abs(np.linalg.det(matrix)) < 1e-15:
        return math.inf
    t, u = np.linalg.solve(matrix, a - start)
    if t >= 0 and 0 <= u <= 1:
        return float(t)
    return math.inf


def sensor_in_world(pose: np.ndarray, sensor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where one sensor starts to look, and its direction (a unit vector)."""
    facing = unit(pose[2] + sensor[2])
    return pose[:2] + turned(pose[2], sensor[:2]) - fields.SETBACK_M * facing, facing


def passing(
    place: np.ndarray, lamp: np.ndarray, segments: np.ndarray, heights: np.ndarray
) -> float:
    """Return the share of a lamp's light that comes over all obstacles; `lamp` is (x, y, z)."""
    share = 1.0
    for segment, height in zip(segments, heights, strict=True):
        t = meeting(place, lamp[:2], segment)
        if t < 1:
            z = (1 - t) * fields.SENSOR_HEIGHT_M + t * lamp[2]
            share *= float(np.clip(0.5 + (z - height) / fields.PENUMBRA_M, 0, 1))
    return share


def ir_distance(pose, sensors, segments, reflectances) -> np.ndarray:
    """The reflectance readings without noise."""
    readings = []
    for sensor in sensors:
        signal = 0.0
        for aside, weight in ((-fields.BEAM_RAD, 0.25), (0.0, 0.5), (fields.BEAM_RAD, 0.25)):
            start, _ = sensor_in_world(pose, sensor)
            ray = unit(pose[2] + sensor[2] + aside)
            hits = [meeting(start, start + ray, segment) for segment in segments]
            first = int(np.argmin(hits))
            if math.isfinite(hits[first]):
                along = segments[first, 2:] - segments[first, :2]
                normal = np.array([along[1], -along[0]]) / np.linalg.norm(along)
                d = max(hits[first] - fields.SETBACK_M, fields.NEAREST_M)
                signal += (
                    weight
                    * reflectances[first]
                    * abs(normal @ ray)
                    * (fields.HALF_SIGNAL_M / d) ** 2
                )
        readings.append(fields.IDLE_SHARE + (1 - fields.IDLE_SHARE) * signal / (1 + signal))
    return np.array(readings)


def ir_light(pose, sensors, beacon, lit, segments, heights) -> np.ndarray:
    """One packet's infrared light without noise."""
    readings = []
    for sensor in sensors:
        place, facing = sensor_in_world(pose, sensor)
        offset = beacon[:2] - place
        d = np.linalg.norm(offset)
        gain = max(facing @ offset / d, 0) ** 2 * max(-unit(beacon[3]) @ offset / d, 0)
        gain *= passing(place, beacon[:3], segments, heights)
        s = beacon[4] * (gain / d**2 + fields.BEACON_STRAY / (1 + d**2))
        readings.append(fields.IR_LIGHT_BASE + lit * fields.BEACON_TOP * s / (1 + s))
    return np.array(readings)


def light(pose, sensors, lamps, gain, ambient, segments, heights) -> np.ndarray:
    """The light readings without noise."""
    readings = []
    for sensor in sensors:
        place, facing = sensor_in_world(pose, sensor)
        total = 0.0
        for lamp in lamps:
            offset = lamp[:3] - np.array([*place, fields.SENSOR_HEIGHT_M])
            d = np.linalg.norm(offset)
            cosine = max(np.array([*facing, 0.0]) @ offset / d, 0)
            total += (
                lamp[3]
                * passing(place, lamp[:3], segments, heights)
                * (cosine + fields.BOUNCE)
                / d**2
            )
        readings.append(ambient + gain * total)
    return np.array(readings)


def warmth(pose, sensors, warm, room_k, segments, heights) -> np.ndarray:
    """The zones' temperatures: the view of each is summed over a fine grid of directions."""
    grid = np.linspace(-math.pi, math.pi, 4001)
    bell = np.exp(-0.5 * (grid / fields.ZONE_RAD) ** 2)
    bell /= bell.sum()
    readings = []
    for sensor in sensors:
        place, facing = sensor_in_world(pose, sensor)
        kelvin = room_k
        for x, y, radius, bottom, top, temperature in warm:
            offset = np.array([x, y]) - place
            d = np.linalg.norm(offset)
            lowest = bottom
            for segment, height in zip(segments, heights, strict=True):
                t = meeting(place, np.array([x, y]), segment)
                if t < 1:
                    lowest = max(
                        lowest, fields.SENSOR_HEIGHT_M + (height - fields.SENSOR_HEIGHT_M) / t
                    )
            if lowest >= top:
                continue
            aside = math.remainder(
                math.atan2(offset[1], offset[0]) - math.atan2(facing[1], facing[0]), 2 * math.pi
            )
            across = bell[np.abs(grid - aside) <= math.atan(radius / d)].sum()
            low, high = (math.atan((z - fields.SENSOR_HEIGHT_M) / d) for z in (lowest, top))
            kelvin += (temperature - room_k) * across * bell[(grid >= low) & (grid <= high)].sum()
        readings.append(kelvin)
    return np.array(readings)


def acceleration(motion, yaw_rate_before, wheel_speed, roller) -> np.ndarray:
    """The accelerometer without noise: rigid-body kinematics in the world frame, then turned into the body's."""
    heading = motion[2]
    yaw_rate = motion[3]
    a = motion[4:6]
    alpha = (yaw_rate - yaw_rate_before) / packet.PACKET_S
    r = turned(heading, np.array(packet.CHIP_M))
    at_chip = a + alpha * np.array([-r[1], r[0]]) - yaw_rate**2 * r
    out = np.array([*turned(-heading, at_chip), packet.GRAVITY_Z]) + np.array([packet.REST_X, 0, 0])
    for axis in range(3):
        size = np.minimum(
            packet.SHAKE_PER_SPEED[axis] * np.abs(wheel_speed), packet.SHAKE_MOST[axis]
        )
        out[axis] += (
            packet.SHAKE_TONE
            * math.sqrt(2 / 3)
            * (size * np.sin(roller + packet.SHAKE_PHASE[axis])).sum()
        )
    return out


def magnetic(motion, duty, earth, iron) -> np.ndarray:
    """The magnetometer without noise."""
    extra = sum(
        (row[3:] / (1 + np.sum((motion[:2] - row[:2]) ** 2) / row[2] ** 2) ** 1.5 for row in iron),
        np.zeros(3),
    )
    live = np.array([unit(motion[2]) @ extra[:2], 0.0, extra[2]])
    motors = np.array(packet.MOTOR_FIELD) * (duty @ np.array([1, -0.5, -0.5]))
    return (earth[1:4] + earth[4:] * math.cos(motion[2] - earth[0]) + live + motors) / 1023
