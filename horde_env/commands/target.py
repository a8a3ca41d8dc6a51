"""The robot that a command is about: its options, over what the robot's file holds, and how to make its environment."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gymnasium

from horde_env.hardware import latch, robot_file
from horde_env.hardware.latch import EmergencyLatch
from horde_env.hardware.robot_file import BACKENDS, RobotFile
from horde_env.hardware.settings import PARITIES, PortConfig
from horde_env.robot import DEFAULT_ROBOT, ROBOTS, Environment, environments, part

ON_A_PORT = tuple(dict.fromkeys(b for kind in ROBOTS for b, entry in environments(kind).items() if entry.is_on_port))
"""The backends that move a real robot."""

OPTIONS = ("port", "parity", "baudrate", "log", "link", "faults")  # that not every environment has
EXAMPLES = {"drops": "HOST or HOST:2330"}  # of a port; others are serial


@dataclass(frozen=True)
class Target:
    """One robot, as a command's options describe it.

    Attributes:
        robot: Its name, after which its files are named.
        backend: One of the robot's backends.
        file: How it is reached: its file, changed by the options.
        options: Further arguments of its environment.
        seed: Seed of the reset; None for a body without randomness of its own.
    """

    robot: str
    backend: str
    file: RobotFile
    options: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None

    @property
    def kind(self) -> str:
        """The kind of robot, one of `robot.ROBOTS`."""
        return robot_file.kind_of(self.robot, self.file.kind)

    @property
    def environment(self) -> Environment:
        """Its environment's entry in the robot's folder.

        Raises:
            ValueError: If it has none for the backend.
        """
        return _environment(self.kind, self.backend)

    @property
    def title(self) -> str:
        """The robot in a few words."""
        return f"{self.robot} · {f'{self.file.port} ({self.backend})' if self.is_physical else self.backend}"

    @property
    def is_physical(self) -> bool:
        """True if a real motor may turn."""
        return self.backend in ON_A_PORT

    @property
    def config(self) -> PortConfig:
        """How its port is opened.

        Raises:
            ValueError: If the robot's file holds a value that no port can have.
        """
        module, name = self.environment.body.split(":")
        options = {key: getattr(self.file, key) for key in ("parity",) if key in self.environment.arguments}
        config: PortConfig = getattr(part(self.kind, module), name).line_of(
            self.file.port, self.file, self.latch, **options
        )[0]
        return config

    @property
    def latch(self) -> EmergencyLatch:
        """The robot's emergency stop."""
        return EmergencyLatch(latch.default_path(self.robot))

    def make(self, *, realtime: bool) -> gymnasium.Env[Any, Any]:
        """Return the robot's environment; nothing is opened before its reset.

        Args:
            realtime: Take 0.1 s per step; a real robot always does.
        """
        options, file = dict(self.options), self.file
        if self.is_physical:
            known = {"baudrate": file.baudrate, "parity": file.parity or None}
            options |= {"port": file.port, "latch": self.latch, "signs": file.signs, "robot": self.robot}
            options |= {key: value for key, value in known.items() if key in self.environment.arguments}
        elif realtime:
            options["realtime"] = True
        return gymnasium.make(f"horde_env:{self.environment.id}", disable_env_checker=True, **options)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a robot."""
    add = parser.add_argument
    robots = ", ".join(ROBOTS)
    add("--robot", default=DEFAULT_ROBOT, metavar="NAME", help=f"{robots}, or your own name for one, with its own file")
    add("--backend", choices=BACKENDS, help="the body; by default that of the robot's file, else simulator")
    add("--port", help="serial: a device or socket://HOST:PORT; drops: HOST or HOST:PORT")
    add("--parity", choices=tuple(PARITIES), help="parity of a serial line; the robot's is odd")
    add("--baudrate", type=int, metavar="N", help="bits per second of a serial line; the robot's are 115200")
    add("--log", type=Path, metavar="FILE", help="replay: the recorded life, a CSV file")
    add("--link", choices=ON_A_PORT, help="emulated: how the emulator is reached")
    add("--faults", metavar="RATES", help='emulated: faults per second, as "loss=0.5,unplug=0.01"')
    add("--seed", type=int, default=0, metavar="N", help="seed of the simulated robot")


def target_of(words: argparse.Namespace) -> Target:
    """Return the robot that the options describe.

    Raises:
        ValueError: If the options contradict each other, or are not enough.
        BackendUnavailable: If the robot's file cannot be read.
    """
    known = robot_file.known(words.robot)
    backend = words.backend or known.backend or ("" if words.port else "simulator")
    if not backend:
        raise ValueError(f"--port {words.port} needs --backend {' or --backend '.join(ON_A_PORT)}")
    _check_options(words, backend, robot_file.kind_of(words.robot, known.kind))
    file = known if backend == known.backend else RobotFile(backend, kind=known.kind)
    file = replace(
        file,
        port=file.port if words.port is None else words.port,
        parity=words.parity or file.parity,
        baudrate=file.baudrate if words.baudrate is None else words.baudrate,
    )
    if backend in ON_A_PORT and not file.port:
        example = EXAMPLES.get(backend, "/dev/serial/by-id/... or socket://HOST:PORT")
        raise ValueError(f"--backend {backend} needs --port: {example}")
    if backend == "replay" and words.log is None:
        raise ValueError("--backend replay needs --log FILE, the recorded life")
    given = {key: getattr(words, key) for key in ("log", "link", "faults") if getattr(words, key) is not None}
    return Target(words.robot, backend, file, given, words.seed)


def _environment(kind: str, backend: str) -> Environment:
    found = environments(kind)
    if backend not in found:
        raise ValueError(f"the {kind} has no backend {backend!r}; choose {', '.join(found)}")
    return found[backend]


def _check_options(words: argparse.Namespace, backend: str, kind: str) -> None:
    """Refuse options that the environment does not have: they would have no effect."""
    entry = _environment(kind, backend)
    for name in OPTIONS:
        if getattr(words, name) is not None and name not in entry.arguments:
            owners = [other for other, entry in environments(kind).items() if name in entry.arguments]
            if not owners:
                raise ValueError(f"this robot has no --{name}; leave it out")
            raise ValueError(f"--{name} belongs to --backend {' or '.join(owners)}, not to {backend}")
    if words.seed < 0:
        raise ValueError(f"--seed must not be negative, and is {words.seed}")
