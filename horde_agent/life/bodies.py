"""Environments of a life: robots by backend."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium

from horde_agent.life.backends import ONE_AT_A_TIME, environment_of
from horde_agent.life.wrapping import wrapped

__all__ = ["ONE_AT_A_TIME", "FrictionChange", "LampMove", "make_body"]

LampMove = tuple[float, str, tuple[float, float, float]]
"""Robot time in seconds, name of the lamp, and its new position (x, y, z in metres)."""

FrictionChange = tuple[float, str, float]
"""Robot time in seconds, "clockwise" or "counterclockwise", and the factor on the wheels' friction in that rotation."""


def make_body(
    backend: str,
    port: str | None = None,
    *,
    parity: str | None = None,
    env_id: str | None = None,
    wrap: str | None = None,
    robot: str = "critterbot",
    log: Path | None = None,
    realtime: bool = False,
    physics: str | None = None,
    lamp_moves: Sequence[LampMove] = (),
    friction_changes: Sequence[FrictionChange] = (),
) -> gymnasium.Env[Any, Any]:
    """Make an environment.

    Args:
        backend: As in `horde learn --backend`; "gymnasium" for `env_id`.
        port: Of a physical robot.
        parity: Of its serial line; None uses the robot's file.
        env_id: An id of Gymnasium; "MODULE:ID" imports a module first, also one of the current
            folder.
        wrap: Wrappers of that environment, as in `horde learn --wrap`.
        robot: As in `horde learn --robot`.
        log: Read by the backend "replay".
        realtime: Keep 100 ms between two steps, if the backend does not do so by itself.
        physics: Engine of a simulator; the installed one when None.
        lamp_moves: Changes of the simulated pen during the life.
        friction_changes: Changes of the simulated robot during the life.

    Raises:
        ValueError: If `lamp_moves` or `friction_changes` is not supported, the robot has no such
            backend, or an environment does not fit its wrappers.
    """
    changes = _changes(backend, robot, lamp_moves, friction_changes)
    if backend == "gymnasium":
        env = _make_by_id(str(env_id))
        if wrap is not None:
            env = wrapped(env, wrap)
        return env
    name = environment_of(robot, backend)
    settings: dict[str, Any] = {"disable_env_checker": True}
    if backend in ONE_AT_A_TIME:
        if parity is not None:
            settings["parity"] = parity
        return gymnasium.make(name, port=port, **settings)
    settings["realtime"] = realtime
    if backend == "replay":
        return gymnasium.make(name, log=str(log), **settings)
    if physics is not None:
        settings["physics"] = physics
    if changes:
        return gymnasium.make(name, **changes, **settings)
    return gymnasium.make(name, **settings)


def _changes(
    backend: str,
    robot: str,
    lamp_moves: Sequence[LampMove],
    friction_changes: Sequence[FrictionChange],
) -> dict[str, Any]:
    """Return the arguments of changes during the life; raise ValueError if the body has none."""
    schedules = {"lamp_moves": tuple(lamp_moves), "friction_changes": tuple(friction_changes)}
    changes = {argument: schedule for argument, schedule in schedules.items() if schedule}
    if changes and (robot, backend) != ("critterbot", "simulator"):
        name = next(iter(changes))
        raise ValueError(
            f"{name} needs the simulator of the critterbot, not the backend {backend!r} of {robot}"
        )
    return changes


def _make_by_id(env_id: str) -> gymnasium.Env[Any, Any]:
    """Make an environment; the module before a colon may also be in the current folder, as for `python -m`.

    Modules of the current folder come after the installed ones, so that a file `random.py` there
    replaces no other.

    Raises:
        ImportError: If there is no such module.
        ValueError: If no such environment is registered, or a path precedes the colon.
    """
    module, colon, _ = env_id.partition(":")
    if colon and not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(
            f"--env {env_id}: {module!r} is no name of a module; write MODULE:Id-v0 without path or .py, and run this "
            "in the module's folder"
        )
    folder = os.getcwd()
    if colon and folder not in sys.path:
        sys.path.append(folder)
    try:
        return gymnasium.make(env_id, disable_env_checker=True)
    except gymnasium.error.UnregisteredEnv as error:
        advice = (
            "`python -c 'import gymnasium; gymnasium.pprint_registry()'` lists the installed ones"
        )
        if not colon:
            advice += "; of a module that registers it: MODULE:Id-v0"
        raise ValueError(f"no environment {env_id!r}: {str(error).rstrip('.')}; {advice}") from None
    except ModuleNotFoundError as error:
        missing = getattr(error.__cause__, "name", None) or error.name
        if missing not in (module, module.partition(".")[0]):  # but one that it imports
            raise
        raise ImportError(
            f"--env {env_id}: there is no module {module}, neither installed nor in the current folder {folder}"
        ) from None
