"""A top view of a robot: its place if its pose is known, its senses in any case; a robot's `drawing` has its `Look`.

Left: the place, the path of the last minute, the body and its readings. A body without a pose is drawn large, forward
up, with rings every 0.2 m. Right: the same body close up, and every channel as a bar over its specified range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from horde_env.backend import Floats, Frame
from horde_env.robot import RobotSpec
from horde_env.view.canvas import Canvas, Colour, Picture

SIZE_PX, PANEL_PX = 480, 240
_MIDDLE = (SIZE_PX / 2, SIZE_PX / 2)
BARS_PX = (494, 234)  # left top of the channels' bars
PEN_SHARE = 0.90  # of the view that the pen's inside fills
SENSES_PX_PER_M = 390.0
IR_REACH_M, NEAR_REACH_M = 0.6, 0.085
TRAIL_PITCH_M = 0.02

PAPER: Colour = (0.965, 0.957, 0.937)
FLOOR: Colour = (0.925, 0.910, 0.875)
INK: Colour = (0.17, 0.20, 0.26)
FAINT: Colour = (0.80, 0.78, 0.74)
SHELL: Colour = (0.33, 0.44, 0.56)
PATH: Colour = (0.20, 0.47, 0.68)
BEAM: Colour = (0.86, 0.25, 0.17)
LIGHT: Colour = (1.00, 0.80, 0.25)
IR_LIGHT: Colour = (0.72, 0.33, 0.83)
WARM: Colour = (0.90, 0.45, 0.20)
DOCK: Colour = (0.30, 0.58, 0.42)
SPEED: Colour = (0.55, 0.86, 0.62)


class View(NamedTuple):
    """Transform from metres to pixels: pixel = origin + scale * flip_y(turn(point) + place)."""

    origin: tuple[float, float]
    scale: float
    x: float = 0.0
    y: float = 0.0
    heading: float = 0.0

    def px(self, points: Floats) -> Floats:
        """Return pixels (n, 2) of points (n, 2) in metres."""
        cos, sin = np.cos(self.heading), np.sin(self.heading)
        x = self.x + cos * points[:, 0] - sin * points[:, 1]
        y = self.y + sin * points[:, 0] + cos * points[:, 1]
        return np.column_stack([self.origin[0] + self.scale * x, self.origin[1] - self.scale * y])


class Look(NamedTuple):
    """How a robot is drawn.

    Attributes:
        draw_place: Draws the empty place in a view of the world; None if the place is unknown.
        side_m: Longest side of the place.
        draw_body: Draws the body and its senses: (canvas, view, values in SI units, reach of the beams in metres).
        near: View of the body close up, in the panel.
        pitch_px: Height of a row of bars.
        names, colours: Labels and colours of the groups of channels, if not their names and the default.
    """

    draw_place: Callable[[Canvas, View], None] | None
    side_m: float
    draw_body: Callable[[Canvas, View, Floats, float], None]
    near: View
    pitch_px: int
    names: Mapping[str, str]
    colours: Mapping[str, Colour]


class Painter:
    """Draws the frames of a robot; the background is drawn once.

    Args:
        spec: The robot.
        look: How it and its place are drawn.
    """

    def __init__(self, spec: RobotSpec, look: Look) -> None:
        self._spec, self._look = spec, look
        self._world = View(_MIDDLE, PEN_SHARE * SIZE_PX / look.side_m)
        self._backgrounds: dict[bool, Canvas] = {}

    def draw(self, frame: Frame, trail: Sequence[tuple[float, float]] = ()) -> Picture:
        """Return the picture of a frame, uint8 (480, 720, 3).

        Args:
            frame: The body's frame; `x_m`, `y_m`, `heading_rad` of its extras are its pose.
            trail: Earlier positions in metres, oldest first.
        """
        pose, look = frame.extras, self._look
        is_placed = "x_m" in pose and look.draw_place is not None
        canvas = self._background(is_placed).copy()
        view = View(_MIDDLE, SENSES_PX_PER_M, heading=np.pi / 2)
        if is_placed:
            draw_trail(canvas, self._world, trail)
            view = self._world._replace(x=pose["x_m"], y=pose["y_m"], heading=pose["heading_rad"])
        look.draw_body(canvas, view, frame.values, IR_REACH_M)
        look.draw_body(canvas, look.near, frame.values, NEAR_REACH_M)
        canvas.text(BARS_PX[0], 14, f"{frame.t:.1f} s", INK, size=2)
        draw_bars(canvas, self._spec, frame.values, look.pitch_px, look.colours)
        return canvas.picture()

    def _background(self, is_placed: bool) -> Canvas:
        if is_placed not in self._backgrounds:
            canvas = Canvas(SIZE_PX + PANEL_PX, SIZE_PX, PAPER if is_placed else FLOOR)
            if is_placed and self._look.draw_place is not None:
                self._look.draw_place(canvas, self._world)
            else:
                draw_rings(canvas)
            draw_labels(canvas, self._spec, self._look.pitch_px, self._look.names)
            self._backgrounds[is_placed] = canvas
        return self._backgrounds[is_placed]


def draw_rings(canvas: Canvas) -> None:
    """Draw rings every 0.2 m, for a body without a pose."""
    for metres in (0.2, 0.4, 0.6):
        canvas.circle(SIZE_PX / 2, SIZE_PX / 2, metres * SENSES_PX_PER_M, 1.0, FAINT)
        canvas.text(SIZE_PX / 2 + 4, SIZE_PX / 2 - metres * SENSES_PX_PER_M + 4, f"{metres:.1f} m", INK)


def draw_trail(canvas: Canvas, view: View, trail: Sequence[tuple[float, float]]) -> None:
    """Draw a path that fades with age, without the points at which the body hardly moved."""
    if len(trail) < 2:
        return
    places = np.array(trail)
    kept = [0]
    for i in range(1, len(places)):
        if i == len(places) - 1 or np.abs(places[i] - places[kept[-1]]).max() > TRAIL_PITCH_M:
            kept.append(i)
    fade = 0.10 + 0.70 * (np.array(kept[1:]) / len(places)) ** 1.5
    canvas.path(view.px(places[kept]), fade, 2.2, PATH)


def draw_labels(canvas: Canvas, spec: RobotSpec, pitch_px: int, names: Mapping[str, str]) -> None:
    """Draw the panel's paper and the name of every group of channels, one in `pitch_px`."""
    canvas.rectangle(SIZE_PX, 0, SIZE_PX + PANEL_PX, SIZE_PX, PAPER)
    left, top = BARS_PX
    for row, group in enumerate(spec.groups):
        y = top + pitch_px * row + max(pitch_px - 11, 0) // 2 + 1
        canvas.text(left, y, names.get(group, group.replace("_", " ")), INK)


def draw_bars(
    canvas: Canvas,
    spec: RobotSpec,
    values: Floats,
    pitch_px: int,
    colours: Mapping[str, Colour],
) -> None:
    """Draw every channel as a bar over its specified range, a row per group; signed ones grow from the middle."""
    observation, _ = spec.scale(values)
    left, top = BARS_PX
    high_px = 0.75 * pitch_px
    for row, group in enumerate(spec.groups):
        y, members = top + pitch_px * row, spec.group(group)
        for i, share in enumerate(observation[members]):
            x = left + 112 + 10.5 * i
            canvas.rectangle(x, y, x + 8, y + high_px, FAINT, 0.55)
            start = 0.5 if spec.low[members.start + i] == -spec.high[members.start + i] else 0.0
            low, high = sorted((start, float(share)))
            upper = y + high_px * (1 - high)
            colour = colours.get(group, PATH)
            canvas.rectangle(x, upper, x + 8, max(y + high_px * (1 - low), upper + 1), colour)
