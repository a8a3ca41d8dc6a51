"""The room of the Create 2: furniture, dock and floor, from a layout file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from horde_env.backend import Floats
from horde_env.robot import RobotSpec, asset, parsed_toml

DOCK_REFLECTANCE = 0.4
CORNERS = 48  # of the round body's outline


class Dock(NamedTuple):
    """The dock: centre of its face, direction (radians), size along the face and behind it (metres)."""

    x: float
    y: float
    direction: float
    size: tuple[float, float]


@dataclass(frozen=True)
class Room:
    """The robot's surroundings."""

    side_m: tuple[float, float]  # inner sides along x and y
    boxes: Floats  # furniture: centre x, y, size x, y, reflectance; shape (n, 5)
    reflectance: float  # of the walls
    dock: Dock
    # Different floor: x0, y0, x1, y1, brightness, roughness, drag (A), dirt (1/s); shape (n, 8)
    patches: Floats
    sills: Floats  # places where a wheel drops briefly: x0, y0, x1, y1; shape (n, 4)
    brightness: float  # cliff signal of the bare floor
    spread: float  # its standard deviation between sensors
    temperature_k: float  # of the air
    lifts_per_h: float  # of the robot
    buttons_per_h: float  # pressed

    def segments(self) -> Floats:
        """Return all obstacles: x0, y0, x1, y1, reflectance, is-dock; shape (n, 6); the dock's face is last."""
        wide = 0.5 * self.side_m[0]
        deep = 0.5 * self.side_m[1]
        rows = _outline(-wide, -deep, wide, deep, self.reflectance)
        for x, y, size_x, size_y, reflectance in self.boxes:
            rows += _outline(
                x - size_x / 2, y - size_y / 2, x + size_x / 2, y + size_y / 2, reflectance
            )
        dock = self.dock
        (along, behind) = self.dock.size
        ahead = np.array([math.cos(dock.direction), math.sin(dock.direction)])
        aside = np.array([-ahead[1], ahead[0]])
        face = np.array([dock.x, dock.y])
        corners = [
            face + along / 2 * side * aside - back * ahead
            for side, back in ((1, behind), (1, 0), (-1, 0), (-1, behind))
        ]
        rows += [
            [*corners[0], *corners[1], DOCK_REFLECTANCE, 0.0],
            [*corners[2], *corners[3], DOCK_REFLECTANCE, 0.0],
        ]
        rows.append([*corners[1], *corners[2], DOCK_REFLECTANCE, 1.0])
        return np.array(rows)


def _outline(x0: float, y0: float, x1: float, y1: float, reflectance: float) -> list[list[float]]:
    corners = [(x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0)]
    return [[*corners[i], *corners[i + 1], reflectance, 0.0] for i in range(4)]


def load_room(layout: str | Path | None = None) -> Room:
    """Return the room of a layout file; that of `assets/room.toml` when None.

    Raises:
        ValueError: If the file is missing or not TOML, lacks an entry, or has an invalid value.
    """
    if layout is None:
        path = asset("room.toml")
    else:
        path = Path(layout)
    try:
        table = parsed_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read the layout {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"the layout {path} is not valid TOML: {error}") from None
    try:
        return _room(table)
    except KeyError as error:
        raise ValueError(
            f"the layout {path} lacks the entry {error}; assets/room.toml has all of them"
        ) from None
    except (TypeError, IndexError) as error:
        raise ValueError(f"the layout {path} has an invalid value: {error}") from None


def _room(t: dict[str, Any]) -> Room:
    dock = t["dock"]
    floor = t["floor"]
    visits = t["visits"]
    boxes = [[*b["centre_m"], *b["size_m"], b["reflectance"]] for b in t.get("box", [])]
    patches = [
        [*p["corners_m"], p["brightness"], p["roughness"], p["drag_a"], p["dirt_per_s"]]
        for p in t.get("patch", [])
    ]
    room = Room(
        side_m=(float(t["room"]["side_m"][0]), float(t["room"]["side_m"][1])),
        boxes=np.array(boxes, dtype=np.float64).reshape(-1, 5),
        reflectance=float(t["room"]["reflectance"]),
        dock=Dock(
            float(dock["position_m"][0]),
            float(dock["position_m"][1]),
            math.radians(dock["direction_deg"]),
            (float(dock["size_m"][0]), float(dock["size_m"][1])),
        ),
        patches=np.array(patches, dtype=np.float64).reshape(-1, 8),
        sills=np.array([s["corners_m"] for s in t.get("sill", [])], dtype=np.float64).reshape(
            -1, 4
        ),
        brightness=float(floor["brightness"]),
        spread=float(floor["spread"]),
        temperature_k=float(t["room"]["temperature_k"]),
        lifts_per_h=float(visits["lifts"]),
        buttons_per_h=float(visits["buttons"]),
    )
    if min(room.side_m) < 1.0:
        raise ValueError(
            f"a room of {room.side_m[0]} m x {room.side_m[1]} m is too small: each side must be at least 1 m"
        )
    return room


def plan(spec: RobotSpec, room: Room | None) -> dict[str, Any]:
    """Return what `RobotEnv.metadata["picture"]` shows of robot and room."""
    rim = np.linspace(0.0, 2.0 * np.pi, CORNERS, endpoint=False)
    outline = float(spec.body["radius_m"]) * np.column_stack([np.cos(rim), np.sin(rim)])
    walls = []
    if room is not None:
        walls = room.segments()[:, :4].tolist()
    return {"walls": walls, "outline": outline.tolist()}
