"""A robot held by a command: opened, and stopped and let go of however the command ends.

A signal ends a command as an exception would, so that one `finally` stops the motors in every case.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium

from horde_env.commands.target import Target
from horde_env.errors import BackendUnavailable, HordeEnvError
from horde_env.hardware.latch import EmergencyLatch

WELL, UNWELL, BAD_INPUT = 0, 1, 2  # exit codes

# The last one comes where the terminal goes away, as with a lost ssh session; Windows has none.
ENDING = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


class BadInput(Exception):
    """What was asked for cannot be done, in one sentence."""


class Interrupted(BaseException):
    """A signal asked for the end; a BaseException, so that nothing on the way mistakes it for a fault."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


@contextmanager
def answered() -> Iterator[None]:
    """Turn what the user can put right into BadInput; everything else is a bug and keeps its traceback."""
    try:
        yield
    except (HordeEnvError, ValueError, ImportError, OSError, gymnasium.error.Error) as error:
        raise BadInput(str(error)) from error


@contextmanager
def running(target: Target, *, realtime: bool) -> Iterator[gymnasium.Env[Any, Any]]:
    """Open a robot that is stopped and let go of however this ends: return, exception or signal.

    Raises:
        BadInput: If it cannot be opened.
        Interrupted: At a signal, after the robot was let go of if it comes while that is done.
    """
    with ending_on_signals(target.latch if target.moves_something else None) as signals, _said_by_the_command():
        with answered():
            env = target.make(realtime=realtime)
        try:
            try:
                with answered():
                    env.reset(seed=target.seed, options={"manoeuvre": "stay"})
                yield env
            finally:
                signals.deferred = True
        finally:  # two of them: a signal that hits the first one must not cost the second
            env.close()
        if signals.seen:
            raise Interrupted(signals.seen[0])


@contextmanager
def _said_by_the_command() -> Iterator[None]:
    """Keep what the environment would log back: a command says the same, once, in its own place."""
    logger = logging.getLogger("horde_env.env")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


class Signals:
    """What a command does about the signals of ENDING: the first one ends it; none disturbs the stopping that follows.

    Args:
        latch: The emergency stop that a second Ctrl-C sets; None where nothing can move.
        end: Ends what goes on, without an exception; Interrupted is raised when None.

    Attributes:
        seen: The signals that came.
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
def ending_on_signals(latch: EmergencyLatch | None, end: Callable[[], None] | None = None) -> Iterator[Signals]:
    """Hear the signals of ENDING meanwhile, as `Signals` does; in the main thread, where alone Python can."""
    signals = Signals(latch, end)
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    before = {signum: signal.signal(signum, signals) for signum in ENDING}
    try:
        yield signals
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
