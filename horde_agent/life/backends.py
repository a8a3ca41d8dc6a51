"""Robots and their backends by name, without the modules that they need, and the rules of their settings.

A further robot is a line in `ROBOTS`: it is a folder of another package, which is imported when it is
made, and settings are refused before.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import NamedTuple

from horde_agent.refusals import BadInput, Rule, check_one_of

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
        id_prefix: Of the ids of its environments, which end as `ID_ENDINGS` say.
        backends: Its backends.
        physics: The physics engines that can move it.
        with_parity: The backend whose serial line has a parity; None without one.
        meaning: What it is, for --help; "" if its name says it.
    """

    name: str
    id_prefix: str
    backends: tuple[str, ...]
    physics: tuple[str, ...] = PHYSICS
    with_parity: str | None = None
    meaning: str = ""


ID_ENDINGS = {
    "simulator": "Pen",
    "serial": "Serial",
    "drops": "Drops",
    "replay": "Replay",
    "emulated": "Emulated",
}
"""The end of an environment's id by its backend."""
ROBOTS = {
    "critterbot": RobotModel(
        name="Critterbot",
        id_prefix="Critterbot",
        backends=tuple(ID_ENDINGS),
        with_parity="serial",
    ),
    "create2": RobotModel(
        name="Create 2",
        id_prefix="Create",
        backends=("simulator", "serial", "emulated"),
        physics=("planar",),
        meaning="an iRobot Create 2 or Roomba 500 to 900",
    ),
}
"""Robots by name."""


def _help() -> str:
    texts = []
    for name, model in ROBOTS.items():
        text = f"`{name}`"
        if model.meaning:
            text += f" ({model.meaning})"
        texts.append(text)
    return f"The robot: {', or '.join(texts)}."


HELP = _help()
"""What --help says of the setting."""


def robot_model(robot: str) -> RobotModel:
    """Return a robot by its name; raise BadInput if there is none."""
    check_one_of("robot", robot, tuple(ROBOTS))
    return ROBOTS[robot]


def environment_of(robot: str, backend: str) -> str:
    """Return the id of a robot's environment with a backend; raise BadInput if there is none."""
    model = robot_model(robot)
    if backend not in model.backends:
        raise BadInput(
            f"the robot {robot} has no backend {backend!r}: choose {', '.join(model.backends)}"
        )
    return f"horde_env:{model.id_prefix}{ID_ENDINGS[backend]}-v0"


def rules_of_robot(
    robot: str,
    backend: str,
    body: str,
    *,
    port: str | None,
    parity: str | None,
    physics: str | None,
) -> Iterator[Rule]:
    """Yield the rules of port, parity and physics engine, None if not set; raise BadInput at an unknown name.

    `body` is what sentences call the robot with its backend, or the environment in its place.
    """
    model = robot_model(robot)
    is_port = port is not None and backend not in ONE_AT_A_TIME
    yield is_port, f"--port belongs to a real robot; the backend {backend!r} has none"
    if parity is not None:
        check_one_of("parity", parity, PARITIES)
        owners = [one.name for one in ROBOTS.values() if one.with_parity is not None]
        yield (
            backend != model.with_parity,
            f"--parity belongs to the {' and the '.join(owners)}'s serial line; {body} has none",
        )
    if physics is not None:
        check_one_of("physics", physics, PHYSICS)
        yield (
            backend not in SIMULATED,
            f"--physics belongs to a simulated robot; {body} has its own",
        )
        movable = [one.name for one in ROBOTS.values() if physics in one.physics]
        yield (
            physics not in model.physics,
            f"--physics {physics} moves the {' and the '.join(movable)} alone: leave it out for the {model.name} "
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
