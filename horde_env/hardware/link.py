"""Link: a connection to a robot that outlives its port: it repeats commands, notices a loss and reconnects.

Who stops the motors, and when:

    close(), the end of a `with`, an exception that unwinds to it, the normal end of the program (atexit)
                            two stops are sent, 20 ms apart, and a last word when their ramp is over
    Ctrl-C                  Python raises KeyboardInterrupt: as an exception. A command that it cut short is completed
                            with zeros before the next (`Port.write`)
    SIGTERM, SIGHUP         nothing here handles signals, and their default ends the program without a word: as SIGKILL.
                            A command-line program turns them into SystemExit, which then is an exception
    the program hangs       the repetitions end `hold_s` after the last command, in a stop (`keepalive`)
    SIGKILL, power, cable   nothing from here: what the robot itself has for that (`Dialect.stops`), or a guardian
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
from collections.abc import Callable, Generator
from typing import Any

from horde_env.errors import BackendUnavailable, PortLost
from horde_env.hardware.dialect import Dialect
from horde_env.hardware.port import Port
from horde_env.hardware.settings import LinkSettings
from horde_env.hardware.stream import Counts, LinkStats, Reading, StreamParser

# ---- keeping a command alive -----------------------------------------------------------------------------------------


class KeepAlive:
    """Repeats the last command for at most `hold_s`, then the stop, until the next command.

    It has neither a thread nor a port: the link calls `due` and sends the result.

    Args:
        halt: The bytes of the command that brakes.
        coast: The bytes that are repeated after the braking ramp.
        repeat_s: Time between repetitions, in seconds.
        hold_s: Longest age of a command, in seconds.
        monotonic: The time in seconds.
        ramp_s: Duration of braking, in seconds.

    Attributes:
        lapsed: Whether the last command became too old and was replaced by the stop.
        n_lapses: Number of such replacements.
    """

    def __init__(
        self,
        halt: bytes,
        coast: bytes,
        repeat_s: float,
        hold_s: float,
        monotonic: Callable[[], float],
        ramp_s: float,
    ) -> None:
        self._ramp_s = ramp_s
        self._halt, self._coast, self._repeat_s, self._hold_s = halt, coast, repeat_s, hold_s
        self._monotonic = monotonic
        self._command, self._renewed_t = halt, monotonic()
        self._sent_t = self._halted_t = self._renewed_t
        self.lapsed, self.n_lapses = False, 0

    @property
    def ramp_left_s(self) -> float:
        """Remaining time of braking in seconds; `ramp_s` while no stop is in force."""
        if self._command != self._halt:
            return self._ramp_s
        return max(self._halted_t + self._ramp_s - self._monotonic(), 0.0)

    def renew(self, command: bytes) -> None:
        """Record that the new `command` is being sent now."""
        self._renewed_t = self._sent_t = self._monotonic()
        self._take(command)
        self.lapsed = False

    def due(self) -> bytes:
        """Return the bytes to send now, which count as sent; empty if none are due."""
        now = self._monotonic()
        if self._command != self._halt and now - self._renewed_t > self._hold_s:
            self._take(self._halt)
            self.lapsed = True
            self.n_lapses += 1
        elif now - self._sent_t < self._repeat_s:
            return b""
        self._sent_t = now
        is_over = self._command == self._halt and self.ramp_left_s <= 0.0
        return self._coast if is_over else self._command

    def _take(self, command: bytes) -> None:
        """Set the current command; a repeated stop keeps its start time."""
        if command == self._halt != self._command:
            self._halted_t = self._monotonic()
        self._command = command


# ---- opening a port --------------------------------------------------------------------------------------------------

Steps = Generator[None, None, Port]


def reopen_port(
    open_again: Callable[[], Steps],
    settings: LinkSettings,
    monotonic: Callable[[], float],
    refused: Callable[[BackendUnavailable], None],
) -> Steps:
    """Try to connect again, at growing intervals, until it succeeds or was tried often enough.

    Args:
        open_again: Begins an attempt.
        settings: How often, and at what intervals.
        monotonic: The time in seconds.
        refused: Takes the reason why an attempt failed.

    Raises:
        BackendUnavailable: If the last attempt failed.
    """
    interval_s = settings.first_pause_s
    for attempt in range(1, settings.attempts + 1):
        try:
            return (yield from open_again())
        except BackendUnavailable as refusal:
            refused(refusal)
            if attempt == settings.attempts:
                raise
        yield from pause(interval_s, monotonic)
        interval_s = min(2.0 * interval_s, settings.longest_pause_s)
    raise AssertionError("attempts are positive")


def pause(duration_s: float, monotonic: Callable[[], float]) -> Generator[None, None, None]:
    """Yield until `duration_s` has passed."""
    end = monotonic() + duration_s
    while monotonic() < end:
        yield


# ---- the link --------------------------------------------------------------------------------------------------------

TICK_S = 0.01  # how often the link is tended
APART_S = 0.02  # between two packets that must both act: the Critterbot obeys the last one of each 10 ms

_log = logging.getLogger(__name__)


class Link:
    """The connection of one life: a port, and what happens when it goes.

    Args:
        connect: Makes a port with the given parser; raises BackendUnavailable.
        dialect: What is spoken on it.
        settings: How long everything may take.
        monotonic: The time in seconds.
        sleep: Lets seconds of that time pass.

    Attributes:
        epoch: Number of the present connection: 1 for the first.
        lapsed: True if the last command became too old before the present one.
        loss: How it was lost the last time.
        refusal: Why the last attempt to reconnect failed.
    """

    def __init__(
        self,
        connect: Callable[[StreamParser], Port],
        dialect: Dialect,
        settings: LinkSettings,
        monotonic: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._connect, self._dialect, self._settings = connect, dialect, settings
        self._monotonic, self._sleep = monotonic, sleep
        self._halt, coast = dialect.encode(dialect.halt), dialect.encode(dialect.coast)
        self._last = coast if dialect.last is None else dialect.last
        self._keep_alive = KeepAlive(self._halt, coast, settings.repeat_s, settings.hold_s, monotonic, dialect.ramp_s)
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._port: Port | None = None
        self._left: Port | None = None  # the one before, which is still to be closed
        self._reopening: Steps | None = None
        self._thread: threading.Thread | None = None
        self._before = Counts()  # what earlier connections have seen
        self.parser: StreamParser = dialect.parser()
        self.epoch, self.losses, self.given_up, self.lapsed = 0, 0, False, False
        self.loss = self.refusal = ""
        self._lost_s, self._lost_at = 0.0, monotonic()

    # ---- the connection ----------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether there is a port that has not gone away."""
        port = self._port
        return port is not None and not port.lost

    def open(self) -> None:
        """Connect and bring the robot to a stand, waiting for it.

        Raises:
            BackendUnavailable: If there is no robot.
        """
        steps = self._open_port()
        try:
            while True:
                next(steps)
                self._sleep(TICK_S)
        except StopIteration as done:
            self._adopt(done.value)
        finally:
            steps.close()
        atexit.register(self.close)
        if self._settings.threaded:
            self._thread = threading.Thread(target=self._tend_until_closed, name="link to the robot", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop the motors and let go of the port. Closing twice does nothing; a closed link stays closed."""
        atexit.unregister(self.close)
        self._closing.set()
        with self._lock:
            port, self._port = self._port, None
        try:
            if port is not None:
                self._before = self._before.plus(port.counts)
                self._say_stop(port)
        finally:
            if port is not None:
                port.close()
            if self._thread is None:
                self._let_go()
            else:
                self._thread.join(1.0)  # one that is still connecting lets go by itself

    def _say_stop(self, port: Port) -> None:
        """Say the last words, the stop twice: it has neither checksum nor reply.

        They begin with what ends half a packet: a command that was damaged on its way may have left the robot waiting
        for more bytes, which the stops would be.
        """
        with contextlib.suppress(PortLost):
            port.write(self._dialect.fill + self._halt)
            self._keep_alive.renew(self._halt)
            self._sleep(APART_S)
            port.write(self._halt)
            self._sleep(max(self._keep_alive.ramp_left_s, APART_S))
            port.write(self._last)

    def _let_go(self) -> None:
        """Close what a reconnection holds, and the port that was lost before it began."""
        if self._reopening is not None:
            self._reopening.close()
        self._close_left()

    def _close_left(self) -> None:
        with self._lock:
            left, self._left = self._left, None
        if left is not None:
            left.close()

    def _open_port(self) -> Steps:
        def connect(parser: StreamParser) -> Port:
            self.parser = parser
            return self._connect(parser)

        return self._dialect.opening(connect, self._dialect, self._monotonic)

    def _adopt(self, port: Port) -> None:
        """Make `port` the present connection; nothing moves before the next command."""
        with self._lock:
            if not self._closing.is_set():
                self._keep_alive.renew(self._halt)  # what was asked for meanwhile is not repeated
                self._lost_s += self._absence_s
                self._port, self._reopening = port, None
                self.epoch += 1
                return
        port.close()

    # ---- what goes over it -------------------------------------------------------------------------------------------

    def command(self, control: Any) -> bool:
        """Send a command of the motors now, and again until the next one; return whether it left."""
        with self._lock:
            self.lapsed = self._keep_alive.lapsed
            data = self._dialect.encode(control)
            self._keep_alive.renew(data)
            return self._write(data)

    def tell(self, control: Any) -> None:
        """Send a control that is no command of the motors, apart from those before and after it."""
        self._sleep(APART_S)
        self.send(self._dialect.encode(control))
        self._sleep(APART_S)

    def send(self, data: bytes) -> None:
        """Send bytes that are no command of the motors, and are never repeated."""
        with self._lock:
            self._write(data)

    def last_two(self) -> tuple[Reading, ...]:
        """Return the last two readings of the present connection, older first; none while there is no connection."""
        port = self._port
        return () if port is None else port.last_two()

    def since(self, number: int) -> tuple[Reading, ...]:
        """Return the readings of the present connection after the one of that number, older first."""
        port = self._port
        return () if port is None else port.since(number)

    @property
    def stats(self) -> LinkStats:
        """What was seen since the link was opened."""
        with self._lock:
            seen = self._before if self._port is None else self._before.plus(self._port.counts)
            reconnects, lapses = max(self.epoch - 1, 0), self._keep_alive.n_lapses
            lost_s = self._lost_s + self._absence_s
        return LinkStats(seen.packets, seen.crc_errors, seen.skipped_bytes, self.losses, reconnects, lapses, lost_s)

    @property
    def _absence_s(self) -> float:
        """How long the link has been lost now, in seconds; 0 while it is there, and before it first was."""
        return self._monotonic() - self._lost_at if self._port is None and self.epoch else 0.0

    def _write(self, data: bytes) -> bool:
        """Write to the port there is; lose it if that fails."""
        if self._port is None:
            return False
        try:
            self._port.write(data)
        except PortLost as lost:
            self.lose(lost.reason)
            return False
        return True

    # ---- losing it and getting it back -------------------------------------------------------------------------------

    def lose(self, reason: str) -> None:
        """Give the present port up: try to stop the motors through it, and begin to reconnect."""
        with self._lock:
            if self._port is None or self._closing.is_set():
                return
            port, self._port = self._port, None
            with contextlib.suppress(PortLost):
                port.write(self._halt)
            self._before = self._before.plus(port.counts)
            self.losses, self.loss, self._lost_at = self.losses + 1, reason, self._monotonic()
            self._left = port
            self._reopening = reopen_port(self._open_port, self._settings, self._monotonic, self._refused)
        _log.warning("the link to the robot was lost: %s; reconnecting", reason)

    def tend(self) -> None:
        """Do what is due now: repeat the command, notice a port that went away, take a step of a reconnection."""
        with self._lock:
            if self._closing.is_set():
                return
            if self._port is not None:
                if self._port.lost:
                    self.lose(self._port.lost)
                elif data := self._keep_alive.due():
                    self._write(data)
                return
            steps = self._reopening
        if steps is not None:
            self._close_left()
            try:
                next(steps)  # outside of the lock: connecting may take its time
            except StopIteration as done:
                self._adopt(done.value)
                _log.warning("the link to the robot is back")
            except BackendUnavailable as refusal:
                self.given_up, self._reopening, self.refusal = True, None, str(refusal)

    def _refused(self, refusal: BackendUnavailable) -> None:
        self.refusal = str(refusal)

    def _tend_until_closed(self) -> None:
        try:
            while not self._closing.is_set():
                self.tend()
                self._sleep(TICK_S)
        except Exception as error:  # what died in silence would leave commands without an end
            _log.exception("the link to the robot cannot go on")
            self.lose(f"{type(error).__name__}: {error}")
            self.given_up, self.refusal = True, f"{type(error).__name__}: {error}"
        self._let_go()
