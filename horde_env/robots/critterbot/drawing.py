"""A top view of the Critterbot: its pen if its pose is known, its senses in any case.

The body is shaped like a comma; its infrared beams end at their estimated reflections.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from horde_env.backend import Floats
from horde_env.robot import RobotSpec
from horde_env.robots.critterbot.drives import HALF_SIGNAL_M
from horde_env.robots.critterbot.place import Pen
from horde_env.view.canvas import Canvas, Colour
from horde_env.view.render import (
    BEAM,
    DOCK,
    FAINT,
    FLOOR,
    INK,
    IR_LIGHT,
    IR_REACH_M,
    LIGHT,
    PANEL_PX,
    PAPER,
    SHELL,
    SIZE_PX,
    SPEED,
    WARM,
    Look,
    Painter,
    View,
)

PITCH_PX = 16  # from one row of bars to the next
BAR_COLOURS: dict[str, Colour] = {
    "ir_distance": BEAM,
    "ir_light": IR_LIGHT,
    "light": (0.93, 0.67, 0.10),
    "thermal": WARM,
    "overheating": WARM,
}
BAR_NAMES = {"rotational_velocity": "gyro", "bus_voltage": "bus", "battery_voltage": "batteries"}


def painter(spec: RobotSpec, pen: Pen) -> Painter:
    """Return the painter of the robot in its pen."""
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
