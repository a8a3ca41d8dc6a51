"""The robot of a command: its options over the robot's file, its environment, and its stop however the command ends.

A signal ends a command as an exception would, so that one `finally` stops the motors in every case.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

import gymnasium

from horde_env import registry
from horde_env.errors import BackendUnavailable, HordeEnvError
from horde_env.hardware import robot_file
from horde_env.hardware.latch import EmergencyLatch, default_path
from horde_env.hardware.robot_file import BACKENDS, RobotFile
from horde_env.hardware.settings import PARITIES, PortConfig
from horde_env.registry import Environment
from horde_env.robot import DEFAULT_ROBOT, ROBOTS
from horde_env.tools.terminal import complain

# Exit codes
WELL = 0
UNWELL = 1
BAD_INPUT = 2
PATIENCE_S = 1.0  # for the program that drives the robot: it looks for the stop in every step

# The last one comes when the terminal closes, as with a lost ssh session; Windows has none.
ENDING = [signal.SIGINT, signal.SIGTERM]
if hasattr(signal, "SIGHUP"):
    ENDING.append(signal.SIGHUP)


def _physical_backends() -> tuple[str, ...]:
    backends: list[str] = []
    for robot in registry.all_robots():
        for backend, entry in robot.environments.items():
            if entry.is_on_port and backend not in backends:
                backends.append(backend)
    return tuple(backends)


ON_A_PORT = _physical_backends()
"""The backends that move a real robot."""

OPTIONS = ("port", "parity", "baudrate", "log", "link", "faults")  # that not every environment has
EXAMPLES = {"drops": "HOST or HOST:2330"}  # of a port; others are serial


class Target(NamedTuple):
    """One robot, as a command's options describe it."""

    robot: str  # its name, after which its files are named
    backend: str
    environment: Environment
    file: RobotFile  # changed by the options
    options: dict[str, Any]  # those that are arguments of its environment
    seed: int  # of the reset

    @property
    def title(self) -> str:
        """The robot in a few words."""
        if self.is_physical:
            return f"{self.robot} · {self.file.port} ({self.backend})"
        return f"{self.robot} · {self.backend}"

    @property
    def is_physical(self) -> bool:
        """True if a real motor may turn."""
        return self.backend in ON_A_PORT

    def make(self, *, realtime: bool) -> gymnasium.Env[Any, Any]:
        """Return the robot's environment, `realtime` or not; nothing is opened before its reset."""
        options = dict(self.options)
        if self.is_physical:
            options |= {"robot": self.robot, "port": self.file.port}
        elif realtime:
            options["realtime"] = True
        return gymnasium.make(
            f"horde_env:{self.environment.id}", disable_env_checker=True, **options
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a robot."""
    add = parser.add_argument
    robots = ", ".join(ROBOTS)
    add(
        "--robot",
        default=DEFAULT_ROBOT,
        metavar="NAME",
        help=f"{robots}, or your own name for one, with its own file",
    )
    add(
        "--backend",
        choices=BACKENDS,
        help="the body; default: the one in the robot's file, else simulator",
    )
    add("--port", help="serial: a device or socket://HOST:PORT; drops: HOST or HOST:PORT")
    add("--parity", choices=tuple(PARITIES), help="parity of a serial line; the robot's is odd")
    add(
        "--baudrate",
        type=int,
        metavar="N",
        help="bits per second of a serial line; the robot's are 115200",
    )
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
    settings = robot_file.known(words.robot)
    backend = words.backend or settings.backend
    if not backend and not words.port:
        backend = "simulator"
    if not backend:
        raise ValueError(f"--port {words.port} needs --backend {' or --backend '.join(ON_A_PORT)}")
    kind = robot_file.kind_of(words.robot, settings.kind)
    robot = registry.robot(kind)
    entry = robot.environment(backend)
    options = {name: getattr(words, name) for name in OPTIONS if getattr(words, name) is not None}
    for name in options:  # without effect otherwise
        if name not in entry.arguments:
            owners = [
                other for other, found in robot.environments.items() if name in found.arguments
            ]
            if not owners:
                raise ValueError(f"this robot has no --{name}; leave it out")
            raise ValueError(
                f"--{name} belongs to --backend {' or '.join(owners)}, not to {backend}"
            )
    if words.seed < 0:
        raise ValueError(f"--seed must not be negative, and is {words.seed}")
    line: dict[str, Any] = {"port": ""}
    if backend == settings.backend:
        line["port"] = settings.port
    line |= {name: options[name] for name in ("port", "parity", "baudrate") if name in options}
    file = replace(settings, backend=backend, **line)
    if backend in ON_A_PORT and not file.port:
        example = EXAMPLES.get(backend, "/dev/serial/by-id/... or socket://HOST:PORT")
        raise ValueError(f"--backend {backend} needs --port: {example}")
    if backend == "replay" and words.log is None:
        raise ValueError("--backend replay needs --log FILE, the recorded life")
    return Target(words.robot, backend, entry, file, options, words.seed)


class BadInput(Exception):
    """The command's options are invalid here; the message is one sentence."""


class Interrupted(BaseException):
    """A signal ends the command; a BaseException, so that no handler of errors catches it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn errors that the user can correct into BadInput; others are bugs and keep their traceback."""
    try:
        yield
    except (HordeEnvError, ValueError, ImportError, OSError, gymnasium.error.Error) as error:
        raise BadInput(str(error)) from error


@contextmanager
def opened_robot(target: Target, *, realtime: bool) -> Iterator[gymnasium.Env[Any, Any]]:
    """Open a robot, and stop and close it however this ends: return, exception or signal.

    Raises:
        BadInput: If it cannot be opened.
        Interrupted: At a signal; after the robot was closed if the signal comes while it is being
            closed.
    """
    latch = None
    if target.is_physical:
        latch = EmergencyLatch(default_path(target.robot))
    with SignalHandler(latch) as signals, _without_log():
        with user_errors():
            env = target.make(realtime=realtime)
        try:
            try:
                with user_errors():
                    env.reset(seed=target.seed, options={"manoeuvre": "stay"})
                yield env
            finally:
                signals.deferred = True
        finally:  # two of them: a signal during the first one must not skip the second
            env.close()
        if signals.seen:
            raise Interrupted(signals.seen[0])


@contextmanager
def _without_log() -> Iterator[None]:
    """Silence the environment's log: the command reports the same itself."""
    loggers = [logging.getLogger(f"horde_env.{module}") for module in ("env", "docking")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class SignalHandler:
    """Handles the signals of ENDING: the first one ends the command, and none disturbs the stopping that follows.

    As a context it is installed, in the main thread only, as Python requires.

    Args:
        latch: The emergency stop that a second Ctrl-C sets; None if nothing can move.
        end: Ends the work without an exception; Interrupted is raised when None.
    """

    def __init__(self, latch: EmergencyLatch | None, end: Callable[[], None] | None = None) -> None:
        self.seen: list[int] = []  # the signals received
        self.deferred = False  # while a signal must wait
        self._latch = latch
        self._end = end
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {signum: signal.signal(signum, self) for signum in ENDING}
        return self

    def __exit__(self, *_: object) -> None:
        for signum, old in self._before.items():
            signal.signal(signum, old)

    def __call__(self, signum: int, frame: object) -> None:  # noqa: ARG002
        """Handle a signal.

        Raises:
            Interrupted: At the first one, unless it is deferred.
        """
        self.seen.append(signum)
        if self._latch is not None and self.seen.count(signal.SIGINT) == 2:
            with contextlib.suppress(BackendUnavailable):
                self._latch.set("Ctrl-C was pressed twice")
        if self._end is not None:
            self._end()
        elif len(self.seen) == 1 and not self.deferred:
            raise Interrupted(signum)


def stop_robot(words: argparse.Namespace) -> int:
    """Run `horde-robot stop`: set the emergency stop, and send a stop to the robot's port if it is known; or clear it.

    Either of the two works without the other.
    """
    is_named = words.robot is not None
    words.robot = words.robot or DEFAULT_ROBOT
    with user_errors():
        path = default_path(words.robot)
        if words.clear:
            return _clear_stop(words, path)
    latch = EmergencyLatch(path)
    code = _set_stop(words, latch)
    if not is_named:
        other_stops = " or ".join(
            f"`horde-robot stop --robot {name}`" for name in _known_robots() if name != words.robot
        )
        print(
            f"no --robot was given, so this stops the {words.robot} only; another is stopped by {other_stops}"
        )
    with user_errors():
        line = _line_for_stop(words, latch)
    if line is None:
        print("no port is known, so only programs that drive the robot from here receive the stop")
        return code
    report = registry.robot(line.kind).checks().send_stop(line.config, line.backend)
    driver = ""
    if report.has_stopped is None:
        driver = _confirmed_by(latch)
    if report.has_stopped:
        print(report.text)
    elif driver:
        print(f"{driver}, which drives the robot, has stopped it and keeps it still")
    else:
        code = complain(report.text, UNWELL)
    if line.unread_file:
        complain(
            f"{line.unread_file}; the defaults of a {line.kind} were used for the stop: --robot KIND names another",
            code,
        )
    return code


def _clear_stop(words: argparse.Namespace, path: Path) -> int:
    """Clear the emergency stop in the file `path`."""
    if words.port or words.parity or words.reason or words.backend:
        raise BadInput("--clear goes with --robot alone: clearing sends nothing to the robot")
    reason = EmergencyLatch(path).clear()
    if reason:
        print(f"the emergency stop of {words.robot} is cleared; it was set: {reason}")
    else:
        print(f"no emergency stop of {words.robot} was set")
    for other in _other_latches(path):
        print(f"that of {other.robot} is set: {other.remedy} ends it")
    return WELL


def _set_stop(words: argparse.Namespace, latch: EmergencyLatch) -> int:
    """Set the emergency stop, and return an exit code: the stop that is sent matters more if this fails."""
    try:
        latch.set(words.reason or f"horde-robot stop, {datetime.now():%Y-%m-%d %H:%M:%S}")
    except BackendUnavailable as error:
        return complain(str(error), UNWELL)
    print(f"the emergency stop of {words.robot} is set; {latch.remedy} ends it")
    return WELL


class StopLine(NamedTuple):
    """The line over which a robot is stopped."""

    kind: str  # of robot
    backend: str
    config: PortConfig
    unread_file: str  # why the robot's file could not be read; "" if it was


def _line_for_stop(words: argparse.Namespace, latch: EmergencyLatch) -> StopLine | None:
    """Return the robot's line, None if no port is known."""
    unread_file = ""
    try:
        file = robot_file.known(words.robot)
    except (HordeEnvError, ValueError, OSError) as error:
        if not words.port:
            raise
        # A stop with the defaults of its kind is better than none.
        file = RobotFile(kind=robot_file.kind_in(robot_file.default_path(words.robot)))
        unread_file = str(error)
    backend = words.backend
    if not backend:
        backend = file.backend if file.backend in ON_A_PORT else "serial"
    port = words.port
    if not port and backend == file.backend:
        port = file.port
    if not port:
        return None
    kind = robot_file.kind_of(words.robot, file.kind)
    robot = registry.robot(kind)
    robot.environment(backend)  # it may have none for the backend
    line_file = replace(file, parity=words.parity or file.parity)
    config, _ = robot.connect(backend).line_of(port, line_file, latch)
    return StopLine(kind=kind, backend=backend, config=config, unread_file=unread_file)


def _known_robots() -> list[str]:
    """Return the kinds of robots, and the names of those that have a file."""
    files = robot_file.default_path().parent.glob("*.toml")
    return sorted({*ROBOTS, *(file.stem for file in files)})


def _other_latches(path: Path) -> list[EmergencyLatch]:
    """Return the latches of other robots that are set."""
    latches = [EmergencyLatch(file) for file in sorted(path.parent.glob("*.stop")) if file != path]
    return [latch for latch in latches if latch.robot]


def _confirmed_by(latch: EmergencyLatch) -> str:
    """Wait for the program that drives the robot to confirm the stop, and return its name; "" if none does."""
    end = time.monotonic() + PATIENCE_S
    while not (driver := latch.answered_by) and time.monotonic() < end:
        time.sleep(0.02)
    return driver
