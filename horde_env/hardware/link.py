"""Link: a connection to a robot that repeats commands, detects a lost port and reconnects.

What stops the motors:

    close(), exceptions, normal exit (atexit)
                            two stops, 20 ms apart, and the dialect's last bytes after the braking
                            ramp
    Ctrl-C                  KeyboardInterrupt, as other exceptions. A partial command is completed with zeros before
                            the next one (`Port.write`)
    SIGTERM, SIGHUP         not handled here; by default they end the program as SIGKILL does. The command-line programs
                            turn them into SystemExit
    the program hangs       `KeepAlive` sends the stop `hold_s` after the last command
    SIGKILL, power, cable   the robot's own timeout (`Dialect.stops`) or a watchdog process
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from horde_env.backend import Floats
from horde_env.errors import BackendUnavailable, PortLost
from horde_env.hardware.port import Port
from horde_env.hardware.settings import LinkSettings
from horde_env.hardware.stream import Counts, Reading, StreamParser
from horde_env.robot import RobotSpec

# ---- what differs between robots -------------------------------------------------------------------------------------


class Dialect(NamedTuple):
    """The wire protocol of a robot: encoding, parsing and timing of commands and states.

    `opening` begins a conversation on an open port, with the time in seconds: it yields while it
    waits, returns when the port has two readings, or raises BackendUnavailable. `explain_parting`
    returns why the port may have been lost meanwhile, by a reason.
    """

    # A request (m/s, m/s, rad/s) to a control; ValueError unless three finite numbers
    drive: Callable[[Floats, RobotSpec], Any]
    encode: Callable[[Any], bytes]  # of a control, to the bytes of one write
    parser: Callable[[], StreamParser]
    wake: bytes  # make a silent robot send states; empty if there are none
    fill: bytes  # complete a partial packet at the robot (`Port`)
    alone_s: float  # for which a control must be the newest to take effect for certain
    halt: Any  # the control that brakes the wheels
    coast: Any  # the control that is repeated after the braking ramp
    ramp_s: float  # of braking
    size: int  # bytes of a state on the wire, the unit of damage counts
    is_free: Callable[[Reading], bool]  # whether the motors may turn
    is_at_rest: Callable[[Reading], bool]  # whether the wheels stand still
    opening: Callable[[Port, Dialect, Callable[[], float]], Generator[None, None, None]]
    explain_parting: Callable[[Port, Dialect, str], str]
    stops: str  # a sentence: what stops the wheels of an unreachable robot
    last: bytes | None = None  # of a connection, after two stops; `coast` when None


# ---- keeping a command alive -----------------------------------------------------------------------------------------


class KeepAlive:
    """Repeats the last command every `repeat_s` for at most `hold_s`, then the stop, until the next command.

    It has neither a thread nor a port: the link calls `due` and sends the result. A stop is `halt`,
    which brakes for `ramp_s`, and `coast` from then on. `lapsed` says whether the last command
    became too old.
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
        self._halt = halt
        self._coast = coast
        self._repeat_s = repeat_s
        self._hold_s = hold_s
        self._monotonic = monotonic
        self._ramp_s = ramp_s
        self._command = halt
        self._renewed_t = monotonic()
        self._sent_t = self._halted_t = self._renewed_t
        self.lapsed = False

    @property
    def ramp_left_s(self) -> float:
        """Remaining time of braking in seconds; `ramp_s` while no stop is in force."""
        if self._command != self._halt:
            return self._ramp_s
        return max(self._halted_t + self._ramp_s - self._monotonic(), 0.0)

    def renew(self, command: bytes) -> None:
        """Record that the new `command` is being sent now."""
        self._renewed_t = self._sent_t = self._monotonic()
        if command == self._halt != self._command:  # a repeated stop keeps its start time
            self._halted_t = self._renewed_t
        self._command = command
        self.lapsed = False

    def due(self) -> bytes:
        """Return the bytes to send now, which count as sent; empty if none are due."""
        now_s = self._monotonic()
        if self._command != self._halt and now_s - self._renewed_t > self._hold_s:
            self._command = self._halt
            self._halted_t = now_s
            self.lapsed = True
        elif now_s - self._sent_t < self._repeat_s:
            return b""
        self._sent_t = now_s
        is_over = self._command == self._halt and self.ramp_left_s <= 0.0
        if is_over:
            return self._coast
        return self._command


# ---- waiting ---------------------------------------------------------------------------------------------------------

Steps = Generator[None, None, Port]


def pause(
    limit_s: float, monotonic: Callable[[], float], until: Callable[[], object] = lambda: False
) -> Generator[None, None, bool]:
    """Yield until a condition is true, for `limit_s` at most; return whether it is."""
    end = monotonic() + limit_s
    while not until():
        if monotonic() >= end:
            return False
        yield
    return True


# ---- the link --------------------------------------------------------------------------------------------------------

TICK_S = 0.01  # interval of `Link.poll`
# Between two packets that must both act: the Critterbot executes the last one of each 10 ms
APART_S = 0.02

_log = logging.getLogger(__name__)


class Link:
    """A port that is reopened when it is lost; `connect(parser=)` opens one, or raises BackendUnavailable."""

    def __init__(
        self,
        connect: Callable[..., Port],
        dialect: Dialect,
        settings: LinkSettings,
        monotonic: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._connect = connect
        self._dialect = dialect
        self._settings = settings
        self._monotonic = monotonic
        self._sleep = sleep
        self._halt = dialect.encode(dialect.halt)
        coast = dialect.encode(dialect.coast)
        self._last = coast
        if dialect.last is not None:
            self._last = dialect.last
        self._keep_alive = KeepAlive(
            self._halt, coast, settings.repeat_s, settings.hold_s, monotonic, dialect.ramp_s
        )
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._port: Port | None = None
        self._left: Port | None = None  # a lost port that is not closed yet
        self._reopening: Steps | None = None
        self._thread: threading.Thread | None = None
        self._before = Counts()  # of earlier connections
        self.epoch = self.losses = 0  # number of the current connection, from 1
        self.given_up = False
        self.lapsed = False  # whether the last command expired before the current one
        # Why it was lost the last time, and the last failed reconnection
        self.loss = self.refusal = ""
        self._lost_s = 0.0
        self._lost_at = monotonic()

    # ---- the connection ----------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """True while the port is connected."""
        port = self._port
        return port is not None and not port.lost

    def open(self) -> None:
        """Connect to the robot and stop it (blocking).

        Raises:
            BackendUnavailable: If no robot answers.
        """
        steps = self._open_port()
        try:
            while True:
                next(steps)
                self._sleep(TICK_S)
        except StopIteration as done:
            self.attach(done.value)
        finally:
            steps.close()
        atexit.register(self.close)
        if self._settings.threaded:
            self._thread = threading.Thread(
                target=self._poll_until_closed, name="link to the robot", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Stop the motors and close the port for good. Closing twice does nothing."""
        atexit.unregister(self.close)
        self._closing.set()
        with self._lock:
            port = self._port
            self._port = None
        try:
            if port is not None:
                self._before = self._before.plus(port.counts)
                self._send_stop(port)
        finally:
            if port is not None:
                port.close()
            if self._thread is None:
                self._close_all()
            else:
                self._thread.join(1.0)  # a thread that is still connecting closes its port itself

    def _send_stop(self, port: Port) -> None:
        """Send the stop twice, because it has neither checksum nor reply, and then the last bytes.

        `fill` goes first: after a damaged command the robot may take the stop for the rest of it.
        """
        with contextlib.suppress(PortLost):
            port.write(self._dialect.fill + self._halt)
            self._keep_alive.renew(self._halt)
            self._sleep(APART_S)
            port.write(self._halt)
            self._sleep(max(self._keep_alive.ramp_left_s, APART_S))
            port.write(self._last)

    def _close_all(self) -> None:
        if self._reopening is not None:
            self._reopening.close()
        self._close_left()

    def _close_left(self) -> None:
        with self._lock:
            abandoned = self._left
            self._left = None
        if abandoned is not None:
            abandoned.close()

    def _open_port(self) -> Steps:
        """Connect and begin the conversation; on an error the port is closed."""
        port = self._connect(parser=self._dialect.parser())
        try:
            yield from self._dialect.opening(port, self._dialect, self._monotonic)
        except PortLost as lost:
            port.close()
            raise BackendUnavailable(
                self._dialect.explain_parting(port, self._dialect, lost.reason)
            ) from lost
        except BaseException:
            port.close()
            raise
        return port

    def _reopen_port(self) -> Steps:
        """Reconnect, with growing pauses between attempts; raise the error of the last one."""
        interval_s = self._settings.first_pause_s
        for _ in range(self._settings.attempts - 1):
            try:
                return (yield from self._open_port())
            except BackendUnavailable as refusal:
                self.refusal = str(refusal)
            yield from pause(interval_s, self._monotonic)
            interval_s = min(2.0 * interval_s, self._settings.longest_pause_s)
        return (yield from self._open_port())

    def attach(self, port: Port) -> None:
        """Make `port` the current connection; the robot stands still until the next command."""
        with self._lock:
            if not self._closing.is_set():
                # Commands sent while the link was lost are dropped
                self._keep_alive.renew(self._halt)
                if self.epoch:
                    self._lost_s += self._monotonic() - self._lost_at
                self._port = port
                self._reopening = None
                self.epoch += 1
                return
        port.close()

    # ---- commands and readings ---------------------------------------------------------------------------------------

    def command(self, control: Any) -> bool:
        """Send a motor command now and repeat it until the next one; return whether it was written."""
        with self._lock:
            self.lapsed = self._keep_alive.lapsed
            data = self._dialect.encode(control)
            self._keep_alive.renew(data)
            return self.send(data)

    def send_apart(self, control: Any) -> None:
        """Send a control other than a motor command, `APART_S` from the commands before and after."""
        self._sleep(APART_S)
        self.send(self._dialect.encode(control))
        self._sleep(APART_S)

    def send(self, data: bytes) -> bool:
        """Send bytes once and return whether they were written; a failure loses the port."""
        with self._lock:
            try:
                if self._port is not None:
                    self._port.write(data)
                    return True
            except PortLost as lost:
                self.disconnect(lost.reason)
            return False

    def readings(self, after: int = 0) -> tuple[Reading, ...]:
        """Return the current connection's readings (`Port.readings`); none while disconnected."""
        port = self._port
        if port is None:
            return ()
        return port.readings(after)

    @property
    def parser(self) -> StreamParser | None:
        """The parser of the current connection; None while disconnected."""
        port = self._port
        if port is None:
            return None
        return port.parser

    @property
    def stats(self) -> Counts:
        """Counts since the link was opened."""
        with self._lock:
            counts = self._before
            lost_s = self._lost_s
            if self._port is not None:
                counts = counts.plus(self._port.counts)
            elif self.epoch:  # it was connected before
                lost_s += self._monotonic() - self._lost_at
            reconnects = max(self.epoch - 1, 0)
        return counts._replace(losses=self.losses, reconnects=reconnects, lost_s=lost_s)

    # ---- loss and reconnection ---------------------------------------------------------------------------------------

    def disconnect(self, reason: str) -> None:
        """Treat the port as lost: try once to stop the motors through it, then start to reconnect."""
        with self._lock:
            if self._port is None or self._closing.is_set():
                return
            port = self._port
            self._port = None
            with contextlib.suppress(PortLost):
                port.write(self._halt)
            self._before = self._before.plus(port.counts)
            self._lost_at = self._monotonic()
            self.losses = self.losses + 1
            self.loss = reason
            self._left = port
            self._reopening = self._reopen_port()
        limit_s = self._settings.frame_timeout_s
        _log.warning(
            "the link to the robot was lost: %s; reconnecting, for at most %g s", reason, limit_s
        )

    def poll(self) -> None:
        """Repeat the command if due, detect a lost port, or advance the reconnection by one step."""
        with self._lock:
            if self._closing.is_set():
                return
            if self._port is not None:
                if self._port.lost:
                    self.disconnect(self._port.lost)
                    return
                data = self._keep_alive.due()
                if data:
                    self.send(data)
                return
            steps = self._reopening
        if steps is not None:
            self._close_left()
            try:
                next(steps)  # without the lock, because connecting may take long
            except StopIteration as done:
                self.attach(done.value)
                _log.warning("the link to the robot is back")
            except BackendUnavailable as refusal:
                self.given_up = True
                self._reopening = None
                self.refusal = str(refusal)

    def _poll_until_closed(self) -> None:
        try:
            while not self._closing.is_set():
                self.poll()
                self._sleep(TICK_S)
        except Exception as error:  # without this thread nothing ends the last command
            _log.exception("the link to the robot failed")
            self.disconnect(f"{type(error).__name__}: {error}")
            self.given_up = True
            self.refusal = f"{type(error).__name__}: {error}"
        self._close_all()
