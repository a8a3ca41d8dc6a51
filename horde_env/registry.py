"""Robot: what a kind of robot consists of. `robot(name)` returns one; a new kind is a new folder in `robots`.

The modules that robots share load a robot's own modules only through its factories, which import
them when they are called: so the package stays quick to import.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from horde_env.backend import Backend
from horde_env.robot import ROBOTS, RobotSpec, check_known, spec_of

if TYPE_CHECKING:  # these load a compiler, or pyserial
    from horde_env.docking import Manoeuvres
    from horde_env.emulation.emulator import RobotEmulator
    from horde_env.hardware.backend import PhysicalBody
    from horde_env.hardware.checks import RobotChecks


class BodyKind(StrEnum):
    """What is behind an environment, and so which factory of a `Robot` makes its body."""

    SIMULATED = "simulated"
    EMULATED = "emulated"
    PHYSICAL = "physical"
    RECORDED = "recorded"


class Environment(NamedTuple):
    """An environment of a robot."""

    id: str  # for `gymnasium.make`
    body_kind: BodyKind
    arguments: tuple[str, ...]  # in addition to those of `RobotEnv`; see `make.make_env`
    steps_many: bool = False  # `Robot.make_batch` steps many of these robots in a kernel

    @property
    def is_simulated(self) -> bool:
        """True if it is a simulator, of which a program can make many."""
        return self.body_kind == BodyKind.SIMULATED

    @property
    def is_on_port(self) -> bool:
        """True if a real robot is behind it."""
        return self.body_kind == BodyKind.PHYSICAL


class Robot(ABC):
    """A kind of robot; the module `robot` in its folder has the subclass, and an object of it as `ROBOT`.

    Attributes:
        name: That of its folder, and of `assets/NAME.toml`.
        environments: Its environments by the name of their backend ("simulator", "serial", ...).
    """

    name: ClassVar[str]
    environments: ClassVar[Mapping[str, Environment]]

    @property
    def spec(self) -> RobotSpec:
        """Its channels, actions and geometry."""
        return spec_of(self.name)

    def environment(self, backend: str) -> Environment:
        """Return its environment for a backend.

        Raises:
            ValueError: If it has no such backend.
        """
        if backend not in self.environments:
            choices = ", ".join(self.environments)
            raise ValueError(f"the {self.name} has no backend {backend!r}; choose {choices}")
        return self.environments[backend]

    # ---- its bodies ------------------------------------------------------------------------------

    @abstractmethod
    def simulate(self, **arguments: Any) -> Backend:
        """Return a simulated body; the arguments are those of its simulator."""

    @abstractmethod
    def emulate(self, **arguments: Any) -> Backend:
        """Return a physical body that is connected to an emulated robot."""

    @abstractmethod
    def connect(self, backend: str) -> type[PhysicalBody]:
        """Return the class of the body that reaches a real robot through a backend ("serial", ...)."""

    def replay(self, **arguments: Any) -> Backend:  # noqa: ARG002
        """Return a recorded body; a robot without logs of its own has none."""
        raise ValueError(f"the {self.name} has no recordings")

    def make_batch(self, env: Any, n_robots: int) -> Any:  # noqa: ARG002
        """Return the state of `n_robots` robots, from the `RobotEnv` of one; see `vector`."""
        raise ValueError(f"the {self.name} has no kernel for many robots")

    # ---- its own part of environments and commands ----------------------------------------------

    @abstractmethod
    def manoeuvres(self) -> Manoeuvres:
        """Return the drive to the middle and the stay at the dock."""

    @abstractmethod
    def arena_of(self, body: Backend) -> Any:
        """Return where a body is, None if that is unknown."""

    @abstractmethod
    def plan(self, arena: Any) -> dict[str, Any]:
        """Return what pictures show of robot and arena; see `spaces.picture`."""

    @abstractmethod
    def checks(self) -> RobotChecks:
        """Return its part of `horde-robot check` and `stop`."""

    @abstractmethod
    def emulator(self) -> Callable[..., RobotEmulator]:
        """Return what makes an emulated robot, for `horde-robot emulate`."""


def robot(name: str) -> Robot:
    """Return a kind of robot, one of `ROBOTS`.

    Raises:
        ValueError: If there is no such robot.
    """
    check_known(name)
    found: Robot = import_module(f"horde_env.robots.{name}.robot").ROBOT
    return found


def all_robots() -> list[Robot]:
    """Return all kinds of robots."""
    return [robot(name) for name in ROBOTS]
