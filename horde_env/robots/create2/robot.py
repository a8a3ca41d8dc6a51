"""The iRobot Create 2 as a `Robot`: its environments, and the factories of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from horde_env.backend import Backend
from horde_env.registry import BodyKind, Environment, Robot

if TYPE_CHECKING:
    from horde_env.docking import Manoeuvres
    from horde_env.hardware.checks import RobotChecks
    from horde_env.robots.create2.arena import Room
    from horde_env.robots.create2.body import CreateBody
    from horde_env.robots.create2.emulator.emulator import CreateEmulator


class Create2(Robot):
    """The iRobot Create 2, or Roomba 500 to 900."""

    name = "create2"
    environments: ClassVar[Mapping[str, Environment]] = {
        "simulator": Environment(
            "CreatePen-v0",
            BodyKind.SIMULATED,
            ("realtime", "battery_scale", "physics", "layout"),
        ),
        "serial": Environment(
            "CreateSerial-v0",
            BodyKind.PHYSICAL,
            ("port", "robot", "signs", "latch", "settings", "baudrate", "guarded"),
        ),
        "emulated": Environment(
            "CreateEmulated-v0",
            BodyKind.EMULATED,
            (
                "realtime",
                "speed",
                "faults",
                "seed",
                "battery_scale",
                "physics",
                "layout",
                "latch",
                "settings",
            ),
        ),
    }

    def simulate(self, **arguments: Any) -> Backend:
        """Return a `SimulatedCreate`."""
        from horde_env.robots.create2.simulator.backend import SimulatedCreate

        return SimulatedCreate(**arguments)

    def emulate(self, **arguments: Any) -> Backend:
        """Return an `EmulatedCreate`."""
        from horde_env.robots.create2.emulator.emulator import EmulatedCreate

        return EmulatedCreate(**arguments)

    def connect(self, backend: str) -> type[CreateBody]:  # noqa: ARG002  it has one line
        """Return `CreateBody`."""
        from horde_env.robots.create2.body import CreateBody

        return CreateBody

    def manoeuvres(self) -> Manoeuvres:
        """Return its drive to free space, and the stay with its own docking program."""
        from horde_env.robots.create2.manoeuvres import MANOEUVRES

        return MANOEUVRES

    def arena_of(self, body: Backend) -> Room | None:
        """Return a body's room, None if it is unknown."""
        room: Room | None = getattr(body, "room", None)
        return room

    def plan(self, arena: Room | None) -> dict[str, Any]:
        """Return its outline and the walls of its room."""
        from horde_env.robots.create2.arena import plan

        return plan(self.spec, arena)

    def checks(self) -> RobotChecks:
        """Return its part of `horde-robot check` and `stop`."""
        from horde_env.robots.create2.checks import CHECKS

        return CHECKS

    def emulator(self) -> type[CreateEmulator]:
        """Return `CreateEmulator`."""
        from horde_env.robots.create2.emulator.emulator import CreateEmulator

        return CreateEmulator


ROBOT = Create2()
