"""A robot held by a command: opened, and stopped and closed however the command ends; and `horde-robot stop`.

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
from datetime import datetime
from typing import Any

import gymnasium

from horde_env.commands.target import ON_A_PORT, Target
from horde_env.commands.terminal import complain
from horde_env.errors import BackendUnavailable, HordeEnvError
from horde_env.hardware import robot_file
from horde_env.hardware.latch import EmergencyLatch, default_path
from horde_env.robot import DEFAULT_ROBOT, part

WELL, UNWELL, BAD_INPUT = 0, 1, 2  # exit codes
PATIENCE_S = 1.0  # for the program that drives the robot: it looks for the stop in every step

# The last one comes when the terminal closes, as with a lost ssh session; Windows has none.
ENDING = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


class BadInput(Exception):
    """The command cannot do what it was asked for; the message is one sentence."""


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
def running(target: Target, *, realtime: bool) -> Iterator[gymnasium.Env[Any, Any]]:
    """Open a robot, and stop and close it however this ends: return, exception or signal.

    Raises:
        BadInput: If it cannot be opened.
        Interrupted: At a signal; after the robot was closed if the signal comes while it is being closed.
    """
    latch = target.latch if target.is_physical else None
    with handling_signals(latch) as signals, _without_log():
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
    logger = logging.getLogger("horde_env.env")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


class SignalHandler:
    """Handles the signals of ENDING: the first one ends the command, and none disturbs the stopping that follows.

    Args:
        latch: The emergency stop that a second Ctrl-C sets; None if nothing can move.
        end: Ends the work without an exception; Interrupted is raised when None.

    Attributes:
        seen: The signals received.
        deferred: True while a signal must wait.
    """

    def __init__(self, latch: EmergencyLatch | None, end: Callable[[], None] | None = None) -> None:
        self.seen: list[int] = []
        self.deferred = False
        self._latch, self._end = latch, end

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


@contextmanager
def handling_signals(latch: EmergencyLatch | None, end: Callable[[], None] | None = None) -> Iterator[SignalHandler]:
    """Install a `SignalHandler`, in the main thread only, as Python requires."""
    handler = SignalHandler(latch, end)
    if threading.current_thread() is not threading.main_thread():
        yield handler
        return
    before = {signum: signal.signal(signum, handler) for signum in ENDING}
    try:
        yield handler
    finally:
        for signum, old in before.items():
            signal.signal(signum, old)


def stop_robot(words: argparse.Namespace) -> int:
    """Run `horde-robot stop`: set the emergency stop, and send a stop to the robot's port if it is known; or clear it.

    Either of the two works without the other.
    """
    with user_errors():
        path = default_path(words.robot)
        if words.clear:
            if words.port or words.parity or words.reason or words.backend:
                raise BadInput("--clear goes with --robot alone: clearing sends nothing to the robot")
            reason = EmergencyLatch(path).clear()
            print(f"cleared; it was set: {reason}" if reason else "no emergency stop was set")
            return WELL
    code, latch = WELL, EmergencyLatch(path)
    try:
        latch.set(words.reason or f"horde-robot stop, {datetime.now():%Y-%m-%d %H:%M:%S}")
        named = "" if words.robot == DEFAULT_ROBOT else f" --robot {words.robot}"
        print(f"the emergency stop of {words.robot} is set; `horde-robot stop --clear{named}` ends it")
    except BackendUnavailable as error:  # the stop that is sent is then even more important
        code = complain(str(error), UNWELL)
    with user_errors():
        file = robot_file.known(words.robot)
        backend = words.backend or (file.backend if file.backend in ON_A_PORT else "serial")
        port = words.port or (file.port if backend == file.backend else "")
        parity = words.parity or file.parity
        target = Target(
            words.robot, backend, robot_file.RobotFile(backend, port, parity, file.baudrate, kind=file.kind)
        )
        config = target.config if port else None
    if config is None:
        print("no port is known, so only programs that drive the robot from here receive the stop")
        return code
    report = part(target.kind, "checks").CHECKS.send_stop(config, backend)
    if report.has_stopped:
        print(report.text)
    elif report.has_stopped is None and (driver := _confirmed_by(latch)):
        print(f"{driver}, which drives the robot, has stopped it and keeps it still")
    else:
        code = complain(report.text, UNWELL)
    return code


def _confirmed_by(latch: EmergencyLatch) -> str:
    """Wait for the program that drives the robot to confirm the stop, and return its name; "" if none does."""
    end = time.monotonic() + PATIENCE_S
    while not (driver := latch.answered_by) and time.monotonic() < end:
        time.sleep(0.02)
    return driver
