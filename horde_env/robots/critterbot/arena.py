"""The Critterbot's pen: walls, dock, lamps, warm objects and magnetic fields, as immutable data.

World frame: origin in the middle of the pen, x east, y north, z up; metres, kelvin, radians. Light
is a share of the sensor's full scale. The numbers live in `assets/pen.toml`.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from horde_env.backend import Floats
from horde_env.robot import RobotSpec, asset

Point = tuple[float, float]
Point3 = tuple[float, float, float]


class Dock(NamedTuple):
    """The charging station: a box of `size_m` (along x, along y) around `centre_m`."""

    centre_m: Point
    size_m: Point
    height_m: float
    reflectance: float


class Beacon(NamedTuple):
    """The dock's blinking infrared lamp; each life draws its rate from the range `rate_hz`."""

    position_m: Point3
    direction_rad: float
    rate_hz: Point
    intensity: float


class Lamp(NamedTuple):
    """A lamp; `intensity` is its reading at one metre, facing it: share of full scale x m^2."""

    name: str
    position_m: Point3
    intensity: float


class Warm(NamedTuple):
    """An upright object warmer than the room: a cylinder from `bottom_m` to `top_m` above the floor."""

    name: str
    position_m: Point
    radius_m: float
    bottom_m: float
    top_m: float
    temperature_k: float


class Room(NamedTuple):
    """The room around the pen: temperature, ambient light and mains."""

    temperature_k: float
    light: float
    mains_hz: float
    flicker: float


class Magnetism(NamedTuple):
    """Earth's field in counts of the chip: centre + swing cos(heading - north) per axis of the chip."""

    north_rad: float
    centre: Point3
    swing: Point3


class Iron(NamedTuple):
    """Steel `depth_m` below the floor; `field` are the counts (world x, world y, z) directly above it."""

    position_m: Point
    depth_m: float
    field: Point3


@dataclass(frozen=True, slots=True)
class Pen:
    """The robot's surroundings. Immutable: assign a changed copy to `Senses.pen`."""

    side_m: float  # inner side of the square
    wall_height_m: float
    wall_thickness_m: float
    wall_reflectance: float  # infrared, against matte white
    dock: Dock
    beacon: Beacon
    room: Room
    lamps: tuple[Lamp, ...]
    warm: tuple[Warm, ...]
    magnetism: Magnetism
    iron: tuple[Iron, ...]

    def segments(self) -> Floats:
        """Return the obstacles from above as segments (x0, y0, x1, y1), shape (7, 4).

        The inner faces of the walls east, north, west, south, then the dock's west side, face and
        east side.
        """
        h = self.side_m / 2
        west, east, back_edge, face = self._dock_edges()
        return np.array(
            [
                [h, -h, h, h],
                [h, h, -h, h],
                [-h, h, -h, -h],
                [-h, -h, h, -h],
                [west, back_edge, west, face],
                [west, face, east, face],
                [east, face, east, back_edge],
            ]
        )

    def heights(self) -> Floats:
        """Return the height of each of `segments()`, metres, shape (7,)."""
        return np.array([self.wall_height_m] * 4 + [self.dock.height_m] * 3)

    def reflectances(self) -> Floats:
        """Return the infrared reflectance of each of `segments()`, shape (7,)."""
        return np.array([self.wall_reflectance] * 4 + [self.dock.reflectance] * 3)

    def boxes(self) -> list[tuple[float, float, float, float, float]]:
        """Return the solid boxes (centre x, y, size x, y, height): walls east, north, west, south, then the dock."""
        t = self.wall_thickness_m
        c = (self.side_m + t) / 2
        long = self.side_m + 2 * t
        top = self.wall_height_m
        walls = [
            (c, 0.0, t, long, top),
            (0.0, c, long, t, top),
            (-c, 0.0, t, long, top),
            (0.0, -c, long, t, top),
        ]
        return [*walls, (*self.dock.centre_m, *self.dock.size_m, self.dock.height_m)]

    def lit_from(self, name: str, position_m: Point3) -> Pen:
        """Return this pen with the lamp `name` at a new position; a warm object of the same name moves along.

        Raises:
            ValueError: If there is no such lamp.
        """
        names = [lamp.name for lamp in self.lamps]
        if name not in names:
            raise ValueError(f"unknown lamp {name!r}; the pen has {', '.join(names)}")
        lamps = list(self.lamps)
        for index, lamp in enumerate(self.lamps):
            if lamp.name == name:
                lamps[index] = lamp._replace(position_m=position_m)
        warm_objects = list(self.warm)
        for index, warm in enumerate(self.warm):
            if warm.name == name:
                warm_objects[index] = warm._replace(position_m=position_m[:2])
        return replace(self, lamps=tuple(lamps), warm=tuple(warm_objects))

    def _dock_edges(self) -> tuple[float, float, float, float]:
        (x, y) = self.dock.centre_m
        (along, out) = self.dock.size_m
        return x - along / 2, x + along / 2, y - out / 2, y + out / 2


def load_pen() -> Pen:
    """Return the pen described by `assets/pen.toml`."""
    table = tomllib.loads(asset("pen.toml").read_text(encoding="utf-8"))
    return Pen(
        **table["pen"],
        dock=_read(Dock, table["dock"]),
        beacon=_read(Beacon, table["beacon"]),
        room=_read(Room, table["room"]),
        lamps=tuple(_read(Lamp, row) for row in table.get("lamp", [])),
        warm=tuple(_read(Warm, row) for row in table.get("warm", [])),
        magnetism=_read(Magnetism, table["magnetic"]),
        iron=tuple(_read(Iron, row) for row in table.get("iron", [])),
    )


def _read(kind: Any, row: dict[str, Any]) -> Any:
    """Return a row as a NamedTuple, with tuples for lists and radians for degrees."""
    values: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in row.items()
    }
    for name in [name for name in values if name.endswith("_deg")]:
        values[name.replace("_deg", "_rad")] = math.radians(values.pop(name))
    return kind(**values)


def plan(spec: RobotSpec, pen: Pen) -> dict[str, Any]:
    """Return what `RobotEnv.metadata["picture"]` shows of robot and pen."""
    places = spec.positions("ir_distance").tolist()
    angles = spec.angles("ir_distance").tolist()
    first = spec.group("ir_distance").start
    rays = [
        [x, y, angle, first + k]
        for k, ((x, y), angle) in enumerate(zip(places, angles, strict=True))
    ]
    lights = [[*lamp.position_m[:2], "lamp"] for lamp in pen.lamps] + [
        [*pen.beacon.position_m[:2], "beacon"]
    ]
    return {
        "walls": pen.segments().tolist(),
        "outline": spec.body["outline_m"],
        "rays": rays,
        "lights": lights,
    }
