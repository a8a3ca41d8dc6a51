"""A top view of the Create 2 with its sensors, and of its room if the pose is known, drawn with `view.render`.

The body is a disc with its bumper in front. The beam of a light bumper is the redder the nearer an obstacle is; discs
under the rim have the brightness measured by the cliff sensors; the three receivers show the dock's beams that they
receive: the field violet, the buoys green and red.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from horde_env.backend import Floats
from horde_env.robot import RobotSpec
from horde_env.robots.create2.place import CORNERS, Room
from horde_env.robots.create2.simulator.tick import RECEIVERS
from horde_env.view.canvas import Canvas, Colour
from horde_env.view.render import (
    BEAM,
    DOCK,
    FAINT,
    FLOOR,
    INK,
    IR_LIGHT,
    PANEL_PX,
    PAPER,
    SHELL,
    SIZE_PX,
    SPEED,
    Look,
    Painter,
    View,
)

PITCH_PX = 10
BUMPER: Colour = (0.22, 0.30, 0.40)
BEAM_COLOURS: tuple[Colour, ...] = (IR_LIGHT, (0.25, 0.70, 0.35), BEAM)
BAR_COLOURS: dict[str, Colour] = {"light_bump": BEAM, "near": BEAM, "dock_beam": IR_LIGHT, "bump": BEAM}
BAR_NAMES = {
    "battery_temperature": "battery warmth",
    "rotational_velocity": "turning",
    "wheel_overcurrent": "overcurrent",
}
SEEN_M = 0.10  # length of a light bumper's beam
WHEEL_M = 0.036  # half of its diameter
TOUCHED, STANDING_M_S = 0.5, 0.005


def painter(spec: RobotSpec, room: Room | None) -> Painter:
    """Return the painter of a Create 2 in its room, or in an unknown place."""
    near = View((SIZE_PX + PANEL_PX / 2, 126.0), 360.0, heading=np.pi / 2)

    def draw(canvas: Canvas, view: View, values: Floats, _reach_m: float) -> None:
        draw_create(canvas, view, spec, values)

    place, side_m = (None, 1.0) if room is None else (partial(draw_room, room), max(room.side_m))
    return Painter(spec, Look(place, side_m, draw, near, PITCH_PX, BAR_NAMES, BAR_COLOURS))


def draw_room(room: Room, canvas: Canvas, view: View) -> None:
    """Draw the empty room: floor, furniture, dock, walls."""
    wide, deep = 0.5 * room.side_m[0], 0.5 * room.side_m[1]
    x0, y0, x1, y1 = _corners(view, -wide, -deep, wide, deep)
    canvas.rectangle(x0 - 5, y0 - 5, x1 + 5, y1 + 5, INK)
    canvas.rectangle(x0, y0, x1, y1, FLOOR)
    for low_x, low_y, high_x, high_y, brightness, *_ in room.patches.tolist():
        shade = brightness / max(room.brightness, brightness)
        canvas.rectangle(*_corners(view, low_x, low_y, high_x, high_y), tuple(shade * c for c in FLOOR))
    for low_x, low_y, high_x, high_y in room.sills.tolist():
        canvas.rectangle(*_corners(view, low_x, low_y, high_x, high_y), FAINT)
    for x, y, size_x, size_y, reflectance in room.boxes.tolist():
        shade = 0.15 + 0.6 * reflectance
        box = _corners(view, x - size_x / 2, y - size_y / 2, x + size_x / 2, y + size_y / 2)
        canvas.rectangle(*box, (shade, shade, shade))
    dock, (along, behind) = room.dock, room.dock.size
    at_dock = view._replace(x=dock.x, y=dock.y, heading=dock.direction)
    for low, high, colour in ((-25.0, 5.0, BEAM_COLOURS[1]), (-5.0, 25.0, BEAM_COLOURS[2])):
        fan = np.radians(np.linspace(low, high, 12))
        lobe = np.vstack([[0.0, 0.0], np.column_stack([np.cos(fan), np.sin(fan)])])
        canvas.polygon(at_dock.px(lobe), colour, 0.10)
    face = np.array([[0.0, along / 2], [0.0, -along / 2], [-behind, -along / 2], [-behind, along / 2]])
    canvas.polygon(at_dock.px(face), DOCK, edge=INK)


def draw_create(canvas: Canvas, view: View, spec: RobotSpec, values: Floats) -> None:
    """Draw the body and its readings; `values` are all channels in SI units, (n_channels,)."""
    radius, readings = float(spec.body["radius_m"]), np.nan_to_num(values)
    for angle, share in zip(spec.angles("light_bump"), readings[spec.group("light_bump")], strict=True):
        way = np.array([[np.cos(angle), np.sin(angle)]])
        (x0, y0), (x1, y1) = view.px(np.vstack([radius * way, (radius + SEEN_M) * way]))
        canvas.line(x0, y0, x1, y1, max(0.02 * view.scale, 1.5), BEAM, 0.06 + 0.9 * float(share) ** 2)
    rim = np.linspace(-np.pi, np.pi, CORNERS, endpoint=False)
    disc = radius * np.column_stack([np.cos(rim), np.sin(rim)])
    canvas.polygon(view.px(disc), SHELL, edge=INK, edge_width=max(0.006 * view.scale, 1.4))
    for side, pressed in zip((1.0, -1.0), readings[spec.group("bump")], strict=True):
        quarter = side * np.linspace(0.02, 0.5 * np.pi, 14)
        arc = np.column_stack([np.cos(quarter), np.sin(quarter)])
        colour = BEAM if pressed > TOUCHED else BUMPER
        canvas.polygon(view.px(np.vstack([radius * arc, (radius - 0.03) * arc[::-1]])), colour)
    _draw_wheels(canvas, view, spec, readings)
    floor = readings[spec.group("cliff_signal")]
    for (x, y), share in zip(view.px(spec.positions("cliff_signal")), floor, strict=True):
        canvas.disc(x, y, 0.013 * view.scale, INK)
        canvas.disc(x, y, 0.010 * view.scale, (float(share),) * 3)
    heard = readings[spec.group("dock_beam")].reshape(len(RECEIVERS), len(BEAM_COLOURS))
    for (ahead, aside, *_), beams in zip(RECEIVERS, heard, strict=True):
        for k, colour in enumerate(BEAM_COLOURS):
            x, y = view.px(np.array([[0.55 * ahead - 0.024 * k, 1.6 * aside]]))[0]
            canvas.disc(x, y, 0.009 * view.scale, colour, 1.0 if beams[k] > TOUCHED else 0.12)
    nose = view.px(np.array([[-0.02, 0.0], [-0.06, 0.026], [-0.06, -0.026]]))
    canvas.polygon(nose, PAPER, 0.95)


def _draw_wheels(canvas: Canvas, view: View, spec: RobotSpec, readings: Floats) -> None:
    """Draw both wheels, and from each its speed as a bar."""
    half = 0.5 * float(spec.drive["wheel_base_m"])
    for side, speed in zip((half, -half), readings[spec.group("wheel_velocity")], strict=True):
        ends = view.px(np.array([[-WHEEL_M, side], [WHEEL_M, side], [0.0, side], [0.3 * speed, side]]))
        (x0, y0), (x1, y1), (hub_x, hub_y), (tip_x, tip_y) = ends
        canvas.line(x0, y0, x1, y1, 0.022 * view.scale, INK)
        if abs(speed) > STANDING_M_S:
            canvas.line(hub_x, hub_y, tip_x, tip_y, max(0.010 * view.scale, 1.5), SPEED)


def _corners(view: View, x0: float, y0: float, x1: float, y1: float) -> tuple[float, float, float, float]:
    """Return left, top, right, bottom in pixels."""
    (left, bottom), (right, top) = view.px(np.array([[x0, y0], [x1, y1]])).tolist()
    return left, top, right, bottom
