"""The Critterbot of White, Modayil & Sutton (2012): its bytes, rules, body, emulator and simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from horde_env.robot import Environment

if TYPE_CHECKING:
    from horde_env.env import PenEnv

_PHYSICAL = ("port", "robot", "signs", "latch", "settings")
ENVIRONMENTS = {
    "simulator": Environment(
        "CritterbotPen-v0",
        "simulator.backend:SimulatedBody",
        ("realtime", "battery_scale", "physics", "lamp_moves", "friction_changes"),
        "simulator.fleet:SimulatedFleet",
    ),
    "serial": Environment("CritterbotSerial-v0", "body:SerialBody", (*_PHYSICAL, "parity", "baudrate")),
    "drops": Environment("CritterbotDrops-v0", "body:DropsBody", _PHYSICAL),
    "emulated": Environment(
        "CritterbotEmulated-v0",
        "emulator.emulator:EmulatedBody",
        ("link", "realtime", "speed", "faults", "seed", "battery_scale", "physics", "latch", "settings"),
    ),
    "replay": Environment("CritterbotReplay-v0", "log:recording", ("log", "realtime")),
}


def make_simulator_env(**arguments: Any) -> PenEnv:
    """Return the Critterbot in the simulated pen ("CritterbotPen-v0").

    Args:
        **arguments: realtime, battery_scale, physics, lamp_moves, friction_changes, and those of `PenEnv`; see
            `make.make_env`.
    """
    from horde_env.make import make_env

    return make_env("critterbot", "simulator", **arguments)


def make_replay_env(**arguments: Any) -> PenEnv:
    """Return a recorded life as an environment ("CritterbotReplay-v0"): its steps ignore the action.

    Args:
        **arguments: log, realtime, and those of `PenEnv`; see `make.make_env`.
    """
    from horde_env.make import make_env

    return make_env("critterbot", "replay", **arguments)


def make_serial_env(**arguments: Any) -> PenEnv:
    """Return the real Critterbot on a serial line ("CritterbotSerial-v0"). The first reset opens it.

    Args:
        **arguments: port, parity, baudrate, robot, signs, latch, settings, and those of `PenEnv`; see `make.make_env`.
    """
    from horde_env.make import make_env

    return make_env("critterbot", "serial", **arguments)


def make_drops_env(**arguments: Any) -> PenEnv:
    """Return the real Critterbot behind its on-board driver ("CritterbotDrops-v0"). The first reset opens it.

    Args:
        **arguments: port, robot, signs, latch, settings, and those of `PenEnv`; see `make.make_env`.
    """
    from horde_env.make import make_env

    return make_env("critterbot", "drops", **arguments)


def make_emulated_env(**arguments: Any) -> PenEnv:
    """Return an emulated Critterbot, reached through a port as the real one is ("CritterbotEmulated-v0").

    Robot and environment share one virtual clock at full speed; the same seed gives the same run.

    Args:
        **arguments: link, realtime, speed, faults, seed, battery_scale, physics, latch, settings, and those of
            `PenEnv`; see `make.make_env`.
    """
    from horde_env.make import make_env

    return make_env("critterbot", "emulated", **arguments)
