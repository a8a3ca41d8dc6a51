"""Which robot a command is about: its words, over what the robot's file says, and how to make its environment."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium

from horde_env.hardware import latch, robot_file
from horde_env.hardware.latch import EmergencyLatch
from horde_env.hardware.robot_file import RobotFile
from horde_env.hardware.settings import PARITIES, PortConfig
from horde_env.robots.critterbot.stream import url_of

IDS = {
    "simulator": "CritterbotPen-v0",
    "serial": "CritterbotSerial-v0",
    "drops": "CritterbotDrops-v0",
    "emulated": "CritterbotEmulated-v0",
    "replay": "CritterbotReplay-v0",
}
IDS_OF = {
    "critterbot": IDS,
    "create2": {"simulator": "CreatePen-v0", "serial": "CreateSerial-v0", "emulated": "CreateEmulated-v0"},
}
ON_A_PORT = ("serial", "drops")  # bodies that weigh something

# Option -> the backends that it means something to.
OWNERS: dict[str, tuple[str, ...]] = {
    "port": ON_A_PORT,
    "parity": ("serial",),
    "baudrate": ("serial",),
    "log": ("replay",),
    "link": ("emulated",),
    "faults": ("emulated",),
}


@dataclass(frozen=True)
class Target:
    """One robot as it was asked for.

    Attributes:
        robot: Its name, after which its files are named.
        backend: A key of IDS.
        file: How it is reached: its file, with what the words changed.
        options: Further arguments of its environment.
        seed: Of the simulator; None for bodies that have no randomness of ours.
    """

    robot: str
    backend: str
    file: RobotFile
    options: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None

    @property
    def kind(self) -> str:
        """Which kind of robot it is, one of `robot.ROBOTS`."""
        return robot_file.kind_of(self.robot, self.file.kind)

    @property
    def has_parity(self) -> bool:
        """Whether its serial line has a parity."""
        return self.kind == "critterbot"

    @property
    def title(self) -> str:
        """The robot in a few words."""
        what = f"{self.file.port} ({self.backend})" if self.backend in ON_A_PORT else self.backend
        return f"{self.robot} · {what}"

    @property
    def moves_something(self) -> bool:
        """Whether a motor may turn somewhere when this is driven."""
        return self.backend in ON_A_PORT

    @property
    def config(self) -> PortConfig:
        """How its port is opened; drops travel in a TCP stream.

        Raises:
            ValueError: If the robot's file holds what no port can have.
        """
        url = url_of(self.file.port) if self.backend == "drops" else self.file.port
        parity = (self.file.parity or "odd") if self.has_parity else "none"
        return PortConfig(url, self.file.baudrate, parity)  # type: ignore[arg-type]

    @property
    def latch(self) -> EmergencyLatch:
        """The robot's emergency stop."""
        return EmergencyLatch(latch.default_path(self.robot))

    def make(self, *, realtime: bool) -> gymnasium.Env[Any, Any]:
        """Return the robot's environment; nothing is opened before its reset.

        Args:
            realtime: Let 0.1 s pass per step where the body itself does not see to that.
        """
        options = dict(self.options)
        if self.backend in ON_A_PORT:
            options |= {"port": self.file.port, "latch": self.latch, "signs": self.file.signs}
            if self.backend == "serial":
                options |= {"baudrate": self.file.baudrate}
                options |= {"parity": self.file.parity or None} if self.has_parity else {"robot": self.robot}
        elif realtime:
            options["realtime"] = True
        return gymnasium.make(f"horde_env:{IDS_OF[self.kind][self.backend]}", disable_env_checker=True, **options)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which robot is meant."""
    add = parser.add_argument
    add(
        "--robot",
        default="critterbot",
        metavar="NAME",
        help="critterbot, create2, or a name of your own, whose file holds what is not said here",
    )
    add("--backend", choices=tuple(IDS), help="the body; simulator where neither this nor the robot's file says")
    add("--port", help="serial: a device or socket://HOST:PORT; drops: HOST or HOST:PORT")
    add("--parity", choices=tuple(PARITIES), help="of a serial line; the robot's is odd")
    add("--baudrate", type=int, metavar="N", help="of a serial line; the robot's is 115200")
    add("--log", type=Path, metavar="FILE", help="replay: the recorded life, a CSV file")
    add("--link", choices=ON_A_PORT, help="emulated: how the emulator is reached")
    add("--faults", metavar="RATES", help='emulated: faults per second, as "loss=0.5,unplug=0.01"')
    add("--seed", type=int, default=0, metavar="N", help="of the simulated pen")


def target_of(words: argparse.Namespace) -> Target:
    """Return the robot that is meant.

    Raises:
        ValueError: If the words contradict each other, or say too little.
        BackendUnavailable: If the robot's file cannot be read.
    """
    known = robot_file.known(words.robot)
    backend = words.backend or known.backend or ("" if words.port else "simulator")
    if not backend:
        raise ValueError(f"--port {words.port} needs --backend {' or --backend '.join(ON_A_PORT)}")
    _check_belonging(words, backend, robot_file.kind_of(words.robot, known.kind))
    file = known if backend == known.backend else RobotFile(backend)
    file = RobotFile(
        backend=backend,
        port=file.port if words.port is None else words.port,
        parity=words.parity or file.parity,
        baudrate=file.baudrate if words.baudrate is None else words.baudrate,
        signs=file.signs,
        ranges=file.ranges,
        kind=known.kind,
        swapped_encoders=file.swapped_encoders,
    )
    if backend in ON_A_PORT and not file.port:
        example = "HOST or HOST:2330" if backend == "drops" else "/dev/serial/by-id/... or socket://HOST:PORT"
        raise ValueError(f"--backend {backend} needs --port: {example}")
    if backend == "replay" and words.log is None:
        raise ValueError("--backend replay needs --log FILE, the recorded life")
    options = {"log": words.log, "link": words.link, "faults": words.faults}
    given = {key: value for key, value in options.items() if value is not None}
    return Target(words.robot, backend, file, given, words.seed)


def _check_belonging(words: argparse.Namespace, backend: str, kind: str) -> None:
    """Refuse options that another backend, or robot, would have: they would be ignored."""
    if backend not in IDS_OF[kind]:
        raise ValueError(f"the {kind} has no backend {backend!r}; choose {', '.join(IDS_OF[kind])}")
    for name in ("parity", "link"):
        if kind != "critterbot" and getattr(words, name) is not None:
            raise ValueError(f"--{name} belongs to the Critterbot; the {kind} has one line, without parity")
    for name, whose in OWNERS.items():
        if getattr(words, name) is not None and backend not in whose:
            raise ValueError(f"--{name} belongs to --backend {' or '.join(whose)}, not to {backend}")
    if words.seed < 0:
        raise ValueError(f"--seed must not be negative, and is {words.seed}")
