"""Robots and their backends by name, without the modules that they need, and the rules of their settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import NamedTuple, Protocol

from horde_agent.refusals import Rule, check_one_of

ONE_AT_A_TIME = ("serial", "drops")
"""Backends that are a physical robot: one life at a time."""
SIMULATED = ("simulator", "emulated")
"""Backends with a choice of physics engines."""
PHYSICS = ("planar", "bullet")
PARITIES = ("odd", "even", "none")


class RobotModel(NamedTuple):
    """A robot.

    Attributes:
        name: In sentences.
        environments: The environment of each of its backends.
        physics: The physics engines that can move it.
        with_parity: The backend whose serial line has a parity; None without one.
    """

    name: str
    environments: Mapping[str, str]
    physics: tuple[str, ...] = PHYSICS
    with_parity: str | None = None


ROBOTS = {
    "critterbot": RobotModel(
        name="Critterbot",
        environments={
            "simulator": "CritterbotPen",
            "serial": "CritterbotSerial",
            "drops": "CritterbotDrops",
            "replay": "CritterbotReplay",
            "emulated": "CritterbotEmulated",
        },
        with_parity="serial",
    ),
    "create2": RobotModel(
        name="Create 2",
        environments={
            "simulator": "CreatePen",
            "serial": "CreateSerial",
            "emulated": "CreateEmulated",
        },
        physics=("planar",),
    ),
}
"""Robots by name."""


class RobotSettings(Protocol):
    """The settings of a run that are about its robot; None is not set."""

    @property
    def robot(self) -> str:
        """One of `ROBOTS`."""

    @property
    def backend(self) -> str:
        """One of its backends, or that of another source."""

    @property
    def env(self) -> str | None:
        """An environment instead of a robot."""

    @property
    def port(self) -> str | None:
        """Port of a physical robot."""

    @property
    def parity(self) -> str | None:
        """Of its serial line."""

    @property
    def physics(self) -> str | None:
        """Engine of a simulated one."""


def rules_of_robot(settings: RobotSettings) -> Iterator[Rule]:
    """Yield the rules of port, parity and physics engine; raise BadInput at an unknown name."""
    robot = settings.robot
    backend = settings.backend
    model = ROBOTS[robot]
    is_port = settings.port is not None and backend not in ONE_AT_A_TIME
    yield is_port, f"--port belongs to a real robot; the backend {backend!r} has none"
    body = f"the body of {settings.env or f'{robot} with the backend {backend}'}"
    if settings.parity is not None:
        check_one_of("parity", settings.parity, PARITIES)
        owners = " and the ".join(
            one.name for one in ROBOTS.values() if one.with_parity is not None
        )
        yield (
            backend != model.with_parity,
            f"--parity belongs to the {owners}'s serial line; {body} has none",
        )
    if settings.physics is not None:
        check_one_of("physics", settings.physics, PHYSICS)
        yield (
            backend not in SIMULATED,
            f"--physics belongs to a simulated robot; {body} has its own",
        )
        movable = " and the ".join(
            one.name for one in ROBOTS.values() if settings.physics in one.physics
        )
        yield (
            settings.physics not in model.physics,
            f"--physics {settings.physics} moves the {movable} alone: leave it out for the {model.name} "
            f"({', '.join(model.physics)})",
        )


def default_physics(robot: str | None = None) -> str:
    """Return the default physics engine of a robot, or of any: PyBullet if it is installed."""
    if robot is not None and "bullet" not in ROBOTS[robot].physics:
        return "planar"
    try:
        if find_spec("pybullet") is not None:
            return "bullet"
        return "planar"
    except ValueError:  # a module of this name without a specification
        return "planar"
