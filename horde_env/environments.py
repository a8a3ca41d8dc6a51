"""A class per environment id, with tables of its channels, actions and info in its docstring.

    help(gymnasium.make("horde_env:CritterbotPen-v0").unwrapped)

The classes are made when they are first used. They add nothing else to `RobotEnv`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from horde_env import registry
from horde_env.backend import InfoKey
from horde_env.env import RobotEnv
from horde_env.registry import BodyKind, Environment
from horde_env.robot import RobotSpec
from horde_env.spaces import AXES

INDENT = "    "


def class_name(id_: str) -> str:
    """Return the name of an id's class: "CritterbotPen-v0" is `CritterbotPen_v0`."""
    return id_.replace("-", "_")


@cache
def environment_class(kind: str, backend: str) -> type[RobotEnv]:
    """Return the class of a robot's environment.

    Args:
        kind: The robot, one of `robot.ROBOTS`.
        backend: One of its backends, "simulator", "serial", ...
    """
    robot = registry.robot(kind)
    entry = robot.environment(backend)
    attributes = {
        "__module__": __name__,
        "__qualname__": class_name(entry.id),
        "__doc__": _introduction(robot.spec, entry),
    }
    return type(class_name(entry.id), (RobotEnv,), attributes)


def document_info(env: RobotEnv) -> None:
    """Append the table of its info to the docstring of an environment's class, once.

    The keys depend on the body, which the first environment of the class brings.
    """
    env_class = type(env)
    heading = "Info, the same keys after every reset and step:"
    introduction = env_class.__doc__ or ""
    if heading not in introduction:
        table = _info_table(env.info_keys)
        env_class.__doc__ = f"{introduction}\n{heading}\n\n{table}"


def __getattr__(name: str) -> Any:
    # For pickle, which looks a class up by its name in this module
    for robot in registry.all_robots():
        for backend, entry in robot.environments.items():
            if class_name(entry.id) == name:
                return environment_class(robot.name, backend)
    raise AttributeError(f"there is no environment class {name!r}")


_BODIES = {
    BodyKind.SIMULATED: "a simulated robot",
    BodyKind.EMULATED: "the driver of the real robot, connected to an emulated one",
    BodyKind.PHYSICAL: "the real robot",
    BodyKind.RECORDED: "a recorded life, whose actions are the recorded ones",
}


def _introduction(spec: RobotSpec, entry: Environment) -> str:
    """Return a docstring without the table of info."""
    return f"""The environment horde_env:{entry.id}: {_BODIES[entry.body_kind]} ({spec.name}).

One step is {spec.period_s:g} s. Arguments of gymnasium.make, which horde_env.make.make_env describes:
{", ".join((*entry.arguments, "action_type", "render_mode", "task"))}.

Observation: Box(0, 1, ({spec.n_channels},), float32), a channel each, scaled from its range to 0 .. 1:

{_channel_table(spec)}
Actions: Discrete({len(spec.actions)}), velocities of the body; with action_type="velocity"
Box(-1, 1, ({len(spec.axes)},)), shares of the largest velocity along {", ".join(AXES[i] for i in spec.axes)}:

{_action_table(spec)}"""


def _channel_table(spec: RobotSpec) -> str:
    rows = [("", "channel", "unit", "range", "")]
    for index, channel in enumerate(spec.channels):
        kind = "sensor"
        if not channel.is_sensor:
            kind = "state"
        span = f"{channel.low:g} .. {channel.high:g}"
        rows.append((str(index), channel.name, channel.unit, span, kind))
    return _table(rows)


def _action_table(spec: RobotSpec) -> str:
    rows: list[tuple[str, ...]] = [("", "action", "x, m/s", "y, m/s", "yaw, rad/s")]
    for index, action in enumerate(spec.actions):
        velocity = [f"{number:.3g}" for number in action.request]
        rows.append((str(index), action.name, *velocity))
    largest = [f"{number:.3g}" for number in spec.largest_request]
    rows.append(("", "(largest)", *largest))
    return _table(rows)


def _info_table(keys: Sequence[InfoKey]) -> str:
    rows = [("key", "unit", "meaning")]
    rows += [(key.name, key.unit, key.meaning) for key in keys]
    return _table(rows)


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines of text with aligned columns; the first row is the heading."""
    n_columns = len(rows[0])
    widths = [max(len(row[column]) for row in rows) for column in range(n_columns)]
    text = ""
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        text += INDENT + "  ".join(cells).rstrip() + "\n"
    return text
