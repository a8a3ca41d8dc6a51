"""What moves the robot's body, chosen by name: PyBullet where it is installed, the planar engine anywhere.

`bullet.PlanarBody` is the reference; `planar.PlanarBody` meets its poses and is many times faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Literal, get_args

from horde_env.sim import bullet, planar
from horde_env.sim.engine import Body, Box

Physics = Literal["planar", "bullet"]
PHYSICS: tuple[Physics, ...] = get_args(Physics)


def default_physics() -> Physics:
    """Return "bullet" where PyBullet is installed, else "planar". Nothing is imported to find out."""
    try:
        return "bullet" if find_spec("pybullet") is not None else "planar"
    except ValueError:  # a module of this name without a specification: somebody has put it out of reach
        return "planar"


def chosen(physics: str | None, *, window: bool = False) -> Physics:
    """Return the engine that is asked for, the default one for None, where it can be opened here.

    Raises:
        ValueError: If there is no such engine, or a window is asked of one that has none.
        BackendUnavailable: If it needs PyBullet and that is missing, or a display that is not there.
    """
    if physics is None:
        physics = "bullet" if window else default_physics()
    if physics not in PHYSICS:
        raise ValueError(f"unknown physics {physics!r}; choose one of {', '.join(PHYSICS)}")
    if physics == "bullet":
        bullet.require(window)
        return "bullet"
    if window:
        raise ValueError('the planar engine has no window of its own: ask for physics="bullet", or render the pen')
    return "planar"


def open_body(physics: Physics, boxes: Sequence[Box], *, tick_s: float, window: bool = False) -> Body:
    """Return the robot's body in the engine of that name.

    Raises:
        BackendUnavailable: See `chosen`.
    """
    if physics == "bullet":
        return bullet.PlanarBody(boxes, tick_s=tick_s, window=window)
    return planar.PlanarBody(boxes, tick_s=tick_s)
