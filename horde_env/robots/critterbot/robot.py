"""The Critterbot as a `Robot`: its environments, and the factories of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from horde_env.backend import Backend
from horde_env.registry import BodyKind, Environment, Robot

if TYPE_CHECKING:
    from horde_env.docking import Manoeuvres
    from horde_env.hardware.checks import RobotChecks
    from horde_env.robots.critterbot.arena import Pen
    from horde_env.robots.critterbot.body import SerialBody
    from horde_env.robots.critterbot.emulator.emulator import Emulator

_PHYSICAL_ARGUMENTS = ("port", "robot", "signs", "latch", "settings")


class Critterbot(Robot):
    """The Critterbot of White, Modayil & Sutton (2012)."""

    name = "critterbot"
    environments: ClassVar[Mapping[str, Environment]] = {
        "simulator": Environment(
            "CritterbotPen-v0",
            BodyKind.SIMULATED,
            ("realtime", "battery_scale", "physics", "lamp_moves", "friction_changes"),
            steps_many=True,
        ),
        "serial": Environment(
            "CritterbotSerial-v0",
            BodyKind.PHYSICAL,
            (*_PHYSICAL_ARGUMENTS, "parity", "baudrate"),
        ),
        "drops": Environment("CritterbotDrops-v0", BodyKind.PHYSICAL, _PHYSICAL_ARGUMENTS),
        "emulated": Environment(
            "CritterbotEmulated-v0",
            BodyKind.EMULATED,
            (
                "link",
                "realtime",
                "speed",
                "faults",
                "seed",
                "battery_scale",
                "physics",
                "latch",
                "settings",
            ),
        ),
        "replay": Environment("CritterbotReplay-v0", BodyKind.RECORDED, ("log", "realtime")),
    }

    def simulate(self, **arguments: Any) -> Backend:
        """Return a `SimulatedBody`."""
        from horde_env.robots.critterbot.simulator.backend import SimulatedBody

        return SimulatedBody(**arguments)

    def emulate(self, **arguments: Any) -> Backend:
        """Return an `EmulatedBody`."""
        from horde_env.robots.critterbot.emulator.emulator import EmulatedBody

        return EmulatedBody(**arguments)

    def connect(self, backend: str) -> type[SerialBody]:
        """Return `SerialBody`, or `DropsBody` for its on-board driver."""
        from horde_env.robots.critterbot.body import DropsBody, SerialBody

        if backend == "drops":
            return DropsBody
        return SerialBody

    def replay(self, **arguments: Any) -> Backend:
        """Return the player of a log, or of the recording in a run's folder."""
        from horde_env.robots.critterbot.log import recording

        return recording(**arguments)

    def make_batch(self, env: Any, n_robots: int) -> Any:
        """Return a `BatchState`."""
        from horde_env.robots.critterbot.simulator.batch import BatchState

        return BatchState(env, n_robots)

    def manoeuvres(self) -> Manoeuvres:
        """Return its drive to the middle of the pen, and its stay at the dock."""
        from horde_env.robots.critterbot.manoeuvres import MANOEUVRES

        return MANOEUVRES

    def arena_of(self, body: Backend) -> Pen:
        """Return a body's pen; that of `assets/pen.toml` if it has none."""
        from horde_env.robots.critterbot.arena import load_pen

        pen: Pen | None = getattr(body, "pen", None)
        if pen is None:
            return load_pen()
        return pen

    def plan(self, arena: Pen) -> dict[str, Any]:
        """Return its outline and sensors, and the walls and lights of its pen."""
        from horde_env.robots.critterbot.arena import plan

        return plan(self.spec, arena)

    def checks(self) -> RobotChecks:
        """Return its part of `horde-robot check` and `stop`."""
        from horde_env.robots.critterbot.checks import CHECKS

        return CHECKS

    def emulator(self) -> type[Emulator]:
        """Return `Emulator`."""
        from horde_env.robots.critterbot.emulator.emulator import Emulator

        return Emulator


ROBOT = Critterbot()
