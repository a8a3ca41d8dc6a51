"""Choose the engine that moves the robot's body by its name: PyBullet if it is installed, else the planar engine.

`bullet.PlanarBody` is the reference; `planar.PlanarBody` agrees with its poses and is many times
faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

from horde_env.sim import bullet, planar
from horde_env.sim.planar import Box

Physics = Literal["planar", "bullet"]
PHYSICS: tuple[Physics, ...] = get_args(Physics)
Body = planar.PlanarBody | bullet.PlanarBody


def default_physics() -> Physics:
    """Return "bullet" if PyBullet is installed, else "planar", without importing it."""
    try:
        if find_spec("pybullet") is not None:
            return "bullet"
        return "planar"
    except ValueError:  # sys.modules["pybullet"] has no specification, as in tests that hide it
        return "planar"


def resolve_physics(physics: str | None) -> Physics:
    """Return the engine's name, the default one for None, if it can be opened here.

    Raises:
        ValueError: If there is no such engine.
        BackendUnavailable: If PyBullet is missing.
    """
    if physics is None:
        physics = default_physics()
    if physics not in PHYSICS:
        raise ValueError(f"unknown physics {physics!r}; choose one of {', '.join(PHYSICS)}")
    if physics == "bullet":
        bullet.require()
        return "bullet"
    return "planar"


def open_body(physics: Physics, urdf: Path, boxes: Sequence[Box], *, tick_s: float) -> Body:
    """Return the body of a URDF file among boxes, in the engine of that name.

    Raises:
        BackendUnavailable: See `resolve_physics`.
    """
    if physics == "bullet":
        return bullet.PlanarBody(urdf, boxes, tick_s=tick_s)
    return planar.PlanarBody(planar.load_hull(urdf), boxes, tick_s=tick_s)
