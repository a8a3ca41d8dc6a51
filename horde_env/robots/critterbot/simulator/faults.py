"""Faults of the simulated robot's body and of its pen, as `horde_env.sim.faults` sets them in each step.

Each sets numbers from what they are without the fault, so a second call changes nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

import numpy as np

from horde_env.backend import Floats
from horde_env.robot import RobotSpec
from horde_env.robots.critterbot.arena import Pen
from horde_env.robots.critterbot.simulator import motors
from horde_env.robots.critterbot.simulator.machine import Machine
from horde_env.robots.critterbot.simulator.sensors import Senses
from horde_env.sim.faults import BodyFault

_WHEELS = ("0", "1", "2")
_INTENSITY = 3  # column of a scene's lamps, behind x, y and z


class Body(Protocol):
    """What the faults change: the parts of `SimulatedBody`."""

    spec: RobotSpec
    pen: Pen
    senses: Senses

    @property
    def machine(self) -> Machine:
        """The robot without its host."""


def body_faults(body: Body) -> dict[str, BodyFault]:
    """Return what gives a simulated robot each kind of fault, from its target and strength."""
    lamps = {lamp.name: number for number, lamp in enumerate(body.pen.lamps)}
    places = np.array([lamp.position_m for lamp in body.pen.lamps]).reshape(-1, 3)
    lights = np.array([lamp.intensity for lamp in body.pen.lamps])
    return {
        "friction": partial(_rub, body),
        "slipping": partial(_slip, body),
        "heavy": lambda _target, factor: body.machine.body.load(factor),
        "weak battery": partial(_drain, body),
        "lamp dimmed": partial(_dim, body, lamps, lights),
        "lamp moved": partial(_move, body, lamps, places),
    }


def _number(name: str, names: tuple[str, ...], what: str) -> int:
    """Return the number of a name; raise ValueError if it is unknown."""
    if name not in names:
        raise ValueError(f"no {what} is called {name!r}: choose one of {', '.join(names)}")
    return names.index(name)


def _rub(body: Body, target: str, factor: float) -> None:
    wheel = _number(target, _WHEELS, "wheel")
    columns = [motors.CLOCKWISE_FRICTION, motors.COUNTERCLOCKWISE_FRICTION]
    body.machine.geometry[wheel, columns] = factor


def _slip(body: Body, target: str, factor: float) -> None:
    wheel = _number(target, _WHEELS, "wheel")
    columns = [motors.PER_VX, motors.PER_VY, motors.PER_YAW_RATE]
    drive = body.spec.drive
    angles = np.deg2rad(drive["wheel_angles_deg"])
    geometry = motors.wheel_geometry(angles, float(drive["wheel_circle_m"]))
    body.machine.geometry[wheel, columns] = factor * geometry[wheel, columns]


def _drain(body: Body, _target: str, volts: float) -> None:
    body.machine.power.sag_v = volts


def _dim(body: Body, lamps: dict[str, int], lights: Floats, target: str, factor: float) -> None:
    lamp = _number(target, tuple(lamps), "lamp")
    body.senses.scene.lamps[lamp, _INTENSITY] = factor * lights[lamp]


def _move(body: Body, lamps: dict[str, int], places: Floats, target: str, by_m: float) -> None:
    lamp = _number(target, tuple(lamps), "lamp")
    body.senses.scene.lamps[lamp, 0] = places[lamp, 0] + by_m
