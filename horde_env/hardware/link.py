"""Link: a connection to the robot that outlives its port: it repeats commands, notices a loss and reconnects.

Who stops the motors, and when:

    close(), the end of a `with`, an exception that unwinds to it, the normal end of the program (atexit)
                            three stops are sent, 20 ms apart
    Ctrl-C                  Python raises KeyboardInterrupt: as an exception. A command that it cut short is completed
                            with zeros before the next (`Port.write`)
    SIGTERM, SIGHUP         nothing here handles signals, and their default ends the program without a word: as SIGKILL.
                            A command-line program turns them into SystemExit, which then is an exception
    the program hangs       the repetitions end `hold_s` after the last command, in a stop
    SIGKILL, power, cable   the robot's own 0.5 s after the last command that reached it

A stop is a ramp of one unit per 10 ms: 0.2 s from an action of 20 units.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from horde_env.errors import BackendUnavailable, PortLost
from horde_env.hardware.control import HALT, Control
from horde_env.hardware.dialect import Dialect
from horde_env.hardware.keepalive import KeepAlive
from horde_env.hardware.opening import Steps, open_port, pause
from horde_env.hardware.port import Port
from horde_env.hardware.readings import Counts, Reading
from horde_env.hardware.stream import StreamParser

TICK_S = 0.01  # how often the link is tended
N_STOPS, STOP_PAUSE_S = 3, 0.02  # a stop has neither checksum nor reply: at the end it is said three times
TELL_PAUSE_S = 0.02  # the robot acts on the last packet of each 10 ms
ROBOT_TIMEOUT_S = 0.5  # after which the robot stops by itself

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """How long to hold, to wait and to try again, in seconds.

    Attributes:
        repeat_s: Between two sendings of the same command.
        hold_s: How old a command may become before the robot is told to stop: for a program that hangs.
        silence_s: Without a packet for this long, over two periods at least, the link is lost.
        frame_timeout_s: How long reconnection is tried before the body counts as lost.
        attempts: How often it is tried at most.
        first_pause_s: Pause after the first attempt; it doubles with each.
        longest_pause_s: The longest pause.
        threaded: Tend the link in a thread of its own. Without it each exchange does (`Link.tend`): for a clock that
            stands still between exchanges.

    Raises:
        ValueError: If a number is out of range.
    """

    repeat_s: float = 0.05
    hold_s: float = 0.35
    silence_s: float = 0.3
    frame_timeout_s: float = 30.0
    attempts: int = 50
    first_pause_s: float = 0.1
    longest_pause_s: float = 2.0
    threaded: bool = True

    def __post_init__(self) -> None:
        if not 0.0 < self.repeat_s <= 0.1 or not self.repeat_s < self.hold_s <= ROBOT_TIMEOUT_S:
            raise ValueError(
                f"repeat_s must be in (0, 0.1] and hold_s between it and {ROBOT_TIMEOUT_S} s: {self.repeat_s}, "
                f"{self.hold_s}"
            )
        if not (self.silence_s > 0 and self.frame_timeout_s > 0 and self.attempts > 0):
            raise ValueError(f"silence_s, frame_timeout_s and attempts must be positive: {self}")
        if not 0.0 < self.first_pause_s <= self.longest_pause_s:
            raise ValueError(f"pauses must be positive, the first no longer than the longest: {self}")


class LinkStats(NamedTuple):
    """What a link has seen since it was opened.

    Attributes:
        packets: Sound packets.
        crc_errors: Packets refused for a wrong checksum.
        skipped_bytes: Bytes that belong to no sound packet.
        losses: How often the link was lost.
        reconnects: How often it came back.
        lapses: How often a command became too old and the robot was told to stop.
    """

    packets: int
    crc_errors: int
    skipped_bytes: int
    losses: int
    reconnects: int
    lapses: int


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
        self._keep_alive = KeepAlive(dialect.encode(HALT), settings.repeat_s, settings.hold_s, monotonic)
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._port: Port | None = None
        self._reopening: Steps | None = None
        self._thread: threading.Thread | None = None
        self._before = Counts(0, 0, 0, 0)  # what earlier connections have seen
        self.parser: StreamParser = dialect.parser()
        self.epoch, self.losses, self.given_up, self.lapsed, self.refusal = 0, 0, False, False, ""

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
                self._before = _sum(self._before, port.counts)
                self._say_stop(port)
        finally:
            if port is not None:
                port.close()
            if self._thread is not None:
                self._thread.join(1.0)  # one that is still connecting lets go by itself
            elif self._reopening is not None:
                self._reopening.close()

    def _say_stop(self, port: Port) -> None:
        with contextlib.suppress(PortLost):
            for i in range(N_STOPS):
                if i:
                    self._sleep(STOP_PAUSE_S)
                port.write(self._dialect.encode(HALT))

    def _open_port(self) -> Steps:
        return open_port(self._connect_with_parser, self._dialect, self._monotonic)

    def _connect_with_parser(self, parser: StreamParser) -> Port:
        self.parser = parser
        return self._connect(parser)

    def _adopt(self, port: Port) -> None:
        """Make `port` the present connection; nothing moves before the next command."""
        with self._lock:
            if not self._closing.is_set():
                self._keep_alive.renew(self._dialect.encode(HALT))
                self._port, self._reopening = port, None
                self.epoch += 1
                return
        port.close()

    # ---- what goes over it -------------------------------------------------------------------------------------------

    def command(self, control: Control) -> bool:
        """Send a command of the motors now, and again until the next one; return whether it left."""
        with self._lock:
            self.lapsed = self._keep_alive.lapsed
            self._keep_alive.renew(self._dialect.encode(control if self._port else HALT))
            return self._write(self._dialect.encode(control))

    def tell(self, control: Control) -> None:
        """Send a control that is no command of the motors, apart from those before and after it."""
        self._sleep(TELL_PAUSE_S)
        with self._lock:
            self._write(self._dialect.encode(control))
        self._sleep(TELL_PAUSE_S)

    def last_two(self) -> tuple[Reading, ...]:
        """Return the last two readings of the present connection, older first; none while there is no connection."""
        port = self._port
        return () if port is None else port.last_two()

    @property
    def stats(self) -> LinkStats:
        """What was seen since the link was opened."""
        with self._lock:
            counts = self._before if self._port is None else _sum(self._before, self._port.counts)
        reconnects = max(self.epoch - 1, 0)
        lapses = self._keep_alive.n_lapses
        return LinkStats(counts.packets, counts.crc_errors, counts.skipped_bytes, self.losses, reconnects, lapses)

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
                port.write(self._dialect.encode(HALT))
            self._before = _sum(self._before, port.counts)
            self.losses += 1
            self._reopening = self._reopen(port)
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
            try:
                next(steps)  # outside of the lock: connecting may take its time
            except StopIteration as done:
                self._adopt(done.value)
                _log.warning("the link to the robot is back")
            except BackendUnavailable as refusal:
                self.given_up, self._reopening, self.refusal = True, None, str(refusal)

    def _reopen(self, old: Port) -> Steps:
        """Try to connect again, at growing intervals, until it succeeds or was tried often enough."""
        old.close()
        interval_s = self._settings.first_pause_s
        for attempt in range(1, self._settings.attempts + 1):
            try:
                return (yield from self._open_port())
            except BackendUnavailable as refusal:
                self.refusal = str(refusal)
                if attempt == self._settings.attempts:
                    raise
            yield from pause(interval_s, self._monotonic)
            interval_s = min(2.0 * interval_s, self._settings.longest_pause_s)
        raise AssertionError("attempts are positive")

    def _tend_until_closed(self) -> None:
        try:
            while not self._closing.is_set():
                self.tend()
                self._sleep(TICK_S)
        except Exception as error:  # what died in silence would leave commands without an end
            _log.exception("the link to the robot cannot go on")
            self.lose(f"{type(error).__name__}: {error}")
            self.given_up, self.refusal = True, f"{type(error).__name__}: {error}"
        if self._reopening is not None:
            self._reopening.close()


def _sum(a: Counts, b: Counts) -> Counts:
    return Counts(*(x + y for x, y in zip(a, b, strict=True)))
