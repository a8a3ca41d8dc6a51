"""Robots as Gymnasium environments, simulated, emulated, replayed or real.

    env = gymnasium.make("horde_env:CritterbotPen-v0")

Public names are loaded when they are first used, so that importing the package stays light.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

import gymnasium

from horde_env.registry import all_robots

# As in `horde_agent.kernels`: numba reads this when it is imported
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")

if TYPE_CHECKING:
    from horde_env.backend import Backend, Frame
    from horde_env.clock import Clock, ManualClock, RealTimeClock, SimulatedClock
    from horde_env.env import PenEnv, RobotEnv
    from horde_env.errors import BackendLost, BackendUnavailable, EmergencyStop, HordeEnvError
    from horde_env.hardware.settings import LinkSettings, PortConfig
    from horde_env.make import (
        make_drops_env,
        make_emulated_env,
        make_replay_env,
        make_serial_env,
        make_simulator_env,
    )
    from horde_env.robot import Action, Channel, RobotSpec, critterbot
    from horde_env.robots.critterbot.body import DropsBody, SerialBody
    from horde_env.robots.critterbot.log import RecordedLife

__all__ = [
    "Action",
    "Backend",
    "BackendLost",
    "BackendUnavailable",
    "Channel",
    "Clock",
    "DropsBody",
    "EmergencyStop",
    "Frame",
    "HordeEnvError",
    "LinkSettings",
    "ManualClock",
    "PenEnv",
    "PortConfig",
    "RealTimeClock",
    "RecordedLife",
    "RobotEnv",
    "RobotSpec",
    "SerialBody",
    "SimulatedClock",
    "critterbot",
    "make_drops_env",
    "make_emulated_env",
    "make_replay_env",
    "make_serial_env",
    "make_simulator_env",
]

_HOME = {
    "backend": ("Backend", "Frame"),
    "clock": ("Clock", "ManualClock", "RealTimeClock", "SimulatedClock"),
    "env": ("PenEnv", "RobotEnv"),
    "errors": ("BackendLost", "BackendUnavailable", "EmergencyStop", "HordeEnvError"),
    "hardware.settings": ("LinkSettings", "PortConfig"),
    "make": tuple(name for name in __all__ if name.startswith("make_")),
    "robot": ("Action", "Channel", "RobotSpec", "critterbot"),
    "robots.critterbot.body": ("DropsBody", "SerialBody"),
    "robots.critterbot.log": ("RecordedLife",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"horde_env has no {name!r}; its names are {', '.join(__all__)}")
    return getattr(import_module(f"horde_env.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


for _robot in all_robots():
    for _backend, _environment in _robot.environments.items():
        _vector_entry_point = None
        if _environment.is_simulated:
            _vector_entry_point = "horde_env.make:make_vector_env"
        gymnasium.register(
            id=_environment.id,
            entry_point="horde_env.make:make_env",
            vector_entry_point=_vector_entry_point,
            kwargs={"kind": _robot.name, "backend": _backend},
            # What a port brings depends on the world, so the same seed does not give the same life.
            nondeterministic=_environment.is_on_port,
        )
