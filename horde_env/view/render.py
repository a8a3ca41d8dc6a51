"""A top view of a robot: the pen if its pose is known, its senses in any case.

Left: the pen with walls, dock and lamps, the path of the last minute, the comma-shaped body and its infrared beams up
to their estimated reflections. A body without a pose is drawn large, forward up, with rings every 0.2 m. Right: the
same body close up, and every channel as a bar over its specified range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from horde_env.backend import Floats, Frame
from horde_env.drives.manoeuvre import HALF_SIGNAL_M
from horde_env.robot import RobotSpec
from horde_env.sim.pen import Pen
from horde_env.view.canvas import Canvas, Colour, Picture

SIZE_PX, PANEL_PX = 480, 240
_MIDDLE = (SIZE_PX / 2, SIZE_PX / 2)
BARS_PX, PITCH_PX = (494, 234), 16  # left top of the channels' bars, and from one row to the next
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

BAR_COLOURS: dict[str, Colour] = {
    "ir_distance": BEAM,
    "ir_light": IR_LIGHT,
    "light": (0.93, 0.67, 0.10),
    "thermal": WARM,
    "overheating": WARM,
}
BAR_NAMES = {"rotational_velocity": "gyro", "bus_voltage": "bus", "battery_voltage": "batteries"}


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


def critterbot_painter(spec: RobotSpec, pen: Pen) -> Painter:
    """Return the painter of a robot with the Critterbot's senses in a pen."""
    near = View((SIZE_PX + PANEL_PX / 2, 104.0), 360.0, heading=np.pi / 2)

    def draw(canvas: Canvas, view: View, values: Floats, reach_m: float) -> None:
        draw_body(canvas, view, spec, values, reach_m)

    look = Look(partial(draw_pen, pen), pen.side_m, draw, near, PITCH_PX, BAR_NAMES, BAR_COLOURS)
    return Painter(spec, look)


def draw_pen(pen: Pen, canvas: Canvas, view: View) -> None:
    """Draw the empty pen: floor, lamplight, dock, walls, lamps."""
    half, thick = 0.5 * pen.side_m, pen.wall_thickness_m
    (x0, y0), (x1, y1) = view.px(np.array([[-half, half], [half, -half]]))
    edge = thick * view.scale
    canvas.rectangle(x0, y0, x1, y1, FLOOR)
    for metres in np.arange(-0.5, half, 0.5):
        (gx, gy), _ = view.px(np.array([[metres, metres], [0.0, 0.0]]))
        canvas.line(gx, y0, gx, y1, 1.0, FAINT, 0.6)
        canvas.line(x0, gy, x1, gy, 1.0, FAINT, 0.6)
    lamps = [(view.px(np.array([lamp.position_m[:2]]))[0], lamp.intensity) for lamp in pen.lamps]
    for (x, y), intensity in lamps:
        canvas.glow(x, y, view.scale * (0.5 + 4.0 * intensity), LIGHT, 0.75)
    for bx0, by0, bx1, by1 in (
        (x0 - edge, y0 - edge, x1 + edge, y0),
        (x0 - edge, y1, x1 + edge, y1 + edge),
        (x0 - edge, y0, x0, y1),
        (x1, y0, x1 + edge, y1),
    ):
        canvas.rectangle(bx0, by0, bx1, by1, INK)
    centre, size = np.array(pen.dock.centre_m), np.array(pen.dock.size_m)
    (dx0, dy1), (dx1, dy0) = view.px(np.array([centre - 0.5 * size, centre + 0.5 * size]))
    canvas.rectangle(dx0, dy0, dx1, dy1, DOCK)
    x, y = view.px(np.array([pen.beacon.position_m[:2]]))[0]
    canvas.glow(x, y, 0.30 * view.scale, IR_LIGHT, 0.45)
    canvas.disc(x, y, 3.5, IR_LIGHT)
    for (x, y), _ in lamps:
        canvas.disc(x, y, 7.0, INK)
        canvas.disc(x, y, 5.5, LIGHT)


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


def draw_body(canvas: Canvas, view: View, spec: RobotSpec, values: Floats, reach_m: float) -> None:
    """Draw the body and its readings around it; `values` are all channels in SI units, (n_channels,)."""
    _draw_beams(canvas, view, spec, values, reach_m)
    outline = view.px(np.array(spec.body["outline_m"]))
    canvas.polygon(outline, SHELL, edge=INK, edge_width=max(0.006 * view.scale, 1.4))
    _draw_wheels(canvas, view, spec, values)
    observation, _ = spec.scale(values)
    for group, colour, ring, size in (("ir_light", IR_LIGHT, 0.104, 0.010), ("light", LIGHT, 0.072, 0.017)):
        angles = spec.angles(group)
        centres = view.px(ring * np.column_stack([np.cos(angles), np.sin(angles)]))
        for (x, y), share in zip(centres, observation[spec.group(group)], strict=True):
            canvas.disc(x, y, size * view.scale, INK, 0.55)
            canvas.disc(x, y, (size - 0.002) * view.scale, colour, float(share) ** 0.4)
    nose = view.px(np.array([[0.052, 0.0], [0.018, 0.024], [0.018, -0.024]]))
    canvas.polygon(nose, PAPER, 0.95)


def _draw_beams(canvas: Canvas, view: View, spec: RobotSpec, values: Floats, reach_m: float) -> None:
    angles = spec.angles("ir_distance")
    towards = np.column_stack([np.cos(angles), np.sin(angles)])
    starts = spec.positions("ir_distance")
    readings = np.clip(np.nan_to_num(values[spec.group("ir_distance")]), 1e-4, 0.9999)
    echo_m = HALF_SIGNAL_M * np.sqrt((1.0 - readings) / readings)
    ends = starts + np.minimum(echo_m, reach_m)[:, None] * towards
    for (x0, y0), (x1, y1), reading, far in zip(view.px(starts), view.px(ends), readings, echo_m, strict=True):
        seen = far < IR_REACH_M
        strength = min(0.15 + float(reading) ** 0.5, 1.0)
        canvas.line(x0, y0, x1, y1, max(0.008 * view.scale, 1.2), BEAM, 0.8 * strength if seen else 0.08)
        if seen and far < reach_m:
            canvas.disc(x1, y1, max(0.012 * view.scale, 2.2), BEAM, min(0.35 + strength, 1.0))


def _draw_wheels(canvas: Canvas, view: View, spec: RobotSpec, values: Floats) -> None:
    """Draw the three wheels and, from each, its rim velocity as a bar along its tangent."""
    angles = np.deg2rad(np.array(spec.drive["wheel_angles_deg"], dtype=np.float64))
    hubs = spec.drive["wheel_circle_m"] * np.column_stack([np.cos(angles), np.sin(angles)])
    tangents = np.column_stack([-np.sin(angles), np.cos(angles)])
    speeds = np.nan_to_num(values[spec.group("motor_velocity")])
    low, high = view.px(hubs - 0.026 * tangents), view.px(hubs + 0.026 * tangents)
    hub, tip = view.px(hubs), view.px(hubs + 0.18 * speeds[:, None] * tangents)
    for i in range(len(hubs)):
        canvas.line(low[i, 0], low[i, 1], high[i, 0], high[i, 1], 0.018 * view.scale, INK)
        if abs(speeds[i]) > 0.01:
            canvas.line(hub[i, 0], hub[i, 1], tip[i, 0], tip[i, 1], max(0.009 * view.scale, 1.5), SPEED)


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
