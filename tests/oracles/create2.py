"""Slow twin of the Create 2's `tick`: floor, dock, battery and sensors in plain Python, one at a time."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from horde_env.robots.create2.arena import Room
from horde_env.robots.create2.simulator import world

TICK_S = 1 / 64
RECEIVERS = (
    (0.15, 0.0, 0.0, math.pi, 1.2),
    (0.15, 0.03, 0.35, 0.9, 1.5),
    (0.15, -0.03, -0.35, 0.9, 1.5),
)


class Battery(NamedTuple):
    """Ah, Ah, V, A, K."""

    charge: float
    capacity: float
    volts: float
    amps: float
    kelvin: float


def turned_to(angle: float) -> float:
    return math.remainder(angle, 2.0 * math.pi)


def from_dock(room: Room, x: float, y: float) -> tuple[float, float]:
    """Return a point's distance in front of the dock's face, and to the left as seen from the dock."""
    c = math.cos(room.dock.direction)
    s = math.sin(room.dock.direction)
    return (x - room.dock.x) * c + (y - room.dock.y) * s, -(x - room.dock.x) * s + (
        y - room.dock.y
    ) * c


def touches_dock(room: Room, x: float, y: float, heading: float) -> bool:
    """3 cm along, 3 cm aside, 8 degrees."""
    ahead, aside = from_dock(room, x, y)
    off = turned_to(heading - room.dock.direction - math.pi)
    return abs(ahead - 0.174) < 0.03 and abs(aside) < 0.03 and abs(off) < math.radians(8.0)


def flow(
    b: Battery, room_k: float, wheel_amps: float, *, is_charging: bool, is_awake: bool
) -> Battery:
    """A tick of charging, driving, waiting or sleeping."""
    share = min(max(b.charge / b.capacity, 0.0), 1.0)
    rest_v = float(
        np.interp(share, [0.0, 0.05, 0.2, 0.5, 0.9, 1.0], [12.0, 13.0, 14.1, 14.7, 15.3, 15.9])
    )
    if is_charging:
        amps = 1.2 if share < 0.995 else 0.06
        volts = rest_v + 1.1 * share
    else:
        driving = 0.0
        if wheel_amps > 0.02:
            driving = -0.10
        amps = -0.05
        if is_awake:
            amps = -0.22 + driving - wheel_amps
        volts = rest_v + 0.25 * amps
    charge = min(max(b.charge + amps / 3600.0 / 64.0, 0.0), b.capacity)
    kelvin = b.kelvin + (room_k + 8.0 + 12.0 * abs(amps) - b.kelvin) / 600.0 / 64.0
    return Battery(charge, b.capacity, volts, amps, kelvin)


def light(pose: tuple[float, float, float], angle: float, segments: np.ndarray) -> float:
    """Return a light signal without noise: five rays from the rim, each against all segments."""
    x, y, heading = pose
    at = heading + angle
    total = 0.0
    from_x = x + 0.174 * math.cos(at)
    from_y = y + 0.174 * math.sin(at)
    for off, weight in ((-20, 0.45), (-10, 0.85), (0, 1.0), (10, 0.85), (20, 0.45)):
        dx = math.cos(at + math.radians(off))
        dy = math.sin(at + math.radians(off))
        reaches = [world.hit(from_x, from_y, dx, dy, row) for row in segments]
        first = int(np.argmin(reaches))
        if reaches[first] < 0.8:
            along = segments[first, 2:4] - segments[first, :2]
            facing = abs(dx * along[1] - dy * along[0]) / math.hypot(*along)
            signal = math.exp(np.interp(reaches[first], world.DISTANCES, world.SIGNALS)) - 1.0
            total += weight / 3.6 * signal * segments[first, 4] * (0.3 + 0.7 * facing)
    return total


def lights(
    signals: np.ndarray, offsets: np.ndarray, draws: np.ndarray, near: int
) -> tuple[list[int], int]:
    """Return the six readings, and the robot's judgement: on from its limit, off below the limit less 4."""
    readings = []
    limits = (125, 125, 125, 125, 125, 286)
    for i, level in enumerate((signals + offsets - 16.0).tolist()):
        reading = min(max(round(level + (1.6 if level > 0.0 else 0.2) * draws[i]), 0), 4095)
        readings.append(reading)
        was_near = bool(near >> i & 1)
        if was_near and reading < limits[i] - 4:
            near -= 1 << i
        elif not was_near and reading >= limits[i]:
            near += 1 << i
    return readings, near


def floor(
    room: Room,
    pose: tuple[float, float, float],
    places: np.ndarray,
    spread: np.ndarray,
    draws: np.ndarray,
) -> list[int]:
    """Return the four cliff signals of a robot that stands on the floor."""
    x, y, heading = pose
    signals = []
    for (ahead, aside), own, draw in zip(places, spread, draws, strict=True):
        at = complex(x, y) + complex(ahead, aside) * complex(math.cos(heading), math.sin(heading))
        level = room.brightness + own
        for x0, y0, x1, y1, brightness, roughness, _, _ in room.patches:
            if x0 <= at.real <= x1 and y0 <= at.imag <= y1:
                level = brightness + roughness * math.sin(70.0 * at.real) * math.sin(70.0 * at.imag)
        signals.append(min(max(round(level + 9.0 * draw), 0), 4095))
    return signals


def infrared(room: Room, pose: tuple[float, float, float], uniform: np.ndarray) -> list[int]:
    """Return the characters that the omnidirectional, left and right receiver see of a dock with power."""
    x, y, heading = pose
    c = math.cos(room.dock.direction)
    s = math.sin(room.dock.direction)
    emitter = room.dock.x + 0.06 * c, room.dock.y + 0.06 * s
    characters = []
    for (ahead, aside, looks, half_width, reach), missed in zip(
        RECEIVERS, uniform < 0.04, strict=True
    ):
        at = complex(x, y) + complex(ahead, aside) * complex(math.cos(heading), math.sin(heading))
        dx = at.real - emitter[0]
        dy = at.imag - emitter[1]
        distance = math.sqrt(dx * dx + dy * dy)
        field = distance < 0.61
        green = False
        red = False
        if (
            distance < reach
            and abs(turned_to(math.atan2(-dy, -dx) - heading - looks)) <= half_width
        ):
            bearing = math.degrees(turned_to(math.atan2(dy, dx) - room.dock.direction))
            green = -25.0 <= bearing <= 5.0
            red = -5.0 <= bearing <= 25.0
        hidden = any(world.hit(*emitter, dx, dy, row) < 1.0 for row in room.segments()[:-3])
        is_received = (field or green or red) and not missed and not hidden
        characters.append(160 + field + 4 * green + 8 * red if is_received else 0)
    return characters
