"""LockstepClock: an emulated robot and its host on one virtual clock, through real bytes and a real port.

While the host waits for its deadline, the emulator computes its ticks. Each run with the same seed is the same because

    before each tick     all bytes that the host has written have reached the emulator
    after each batch     the host has read and parsed all bytes that the emulator has sent

Both are ensured by counting bytes at the two ends of the line: the clock opens the host's port itself (`connect`) and
calls the port's read function (`attach`), so there is no reader thread. The host must not write from another thread.

    emulator = Emulator(seed=0)        # the Critterbot's
    clock = LockstepClock(emulator)
    body = SerialBody(PortConfig(emulator.open_pty(), parity="none"), clock, monotonic=clock.monotonic,
                      sleep=clock.sleep, connect=clock.connect, settings=LinkSettings(threaded=False))
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from typing import Any

from horde_env.emulation.emulator import RobotEmulator
from horde_env.emulation.lines import Line
from horde_env.errors import HordeEnvError
from horde_env.hardware.port import serial_for_url

BATCH = 10  # ticks between two reads of the host; their bytes fit into any line's buffer
N_NEW = 2  # packets before a deadline with new sensor readings: a host uses the last two
PATIENCE_S = 10.0  # limit of waits for the operating system, in real time


class LockstepLost(HordeEnvError):
    """The operating system or the host's reader did not pass on the bytes in time."""


class LockstepClock:
    """Virtual time of an emulator and its host.

    Args:
        emulator: The robot; only this clock may advance it.
        period_s: Time between two deadlines, in seconds.
        batch: Ticks between two reads of the host. Readings have the time of the read, by which a host detects gaps:
            1 for a robot that sends fewer than a hundred packets per second.

    Attributes:
        missed: Always 0: virtual time is never late.

    Raises:
        ValueError: If the emulator was started, or `period_s` is not a multiple of its tick.
    """

    missed = 0

    def __init__(self, emulator: RobotEmulator, period_s: float = 0.1, *, batch: int = BATCH) -> None:
        if emulator.is_running:
            raise ValueError("emulator must not be started: it runs in its own thread already")
        self.emulator, self.period_s = emulator, period_s
        self._tick_s, self._n_ticks = emulator.tick_s, period_s / emulator.tick_s
        is_whole = math.isclose(round(self._n_ticks), self._n_ticks)
        if self._n_ticks < 1.0 - 1e-9 or not (is_whole or batch == 1):
            raise ValueError(f"period_s must be a multiple of {self._tick_s} s, not {period_s}")
        self._owed = 0.0  # fraction of a tick left over from earlier periods
        # With faults of the line, any packet may be the last one, and needs its tick's exact time.
        self._n_new = math.ceil(self._n_ticks) if emulator.damages_bytes else N_NEW
        self._batch = 1 if emulator.damages_bytes else batch
        self._port: LockstepPort | None = None
        self._waited = True

    def monotonic(self) -> float:
        """Return the robot's time in seconds."""
        return self.emulator.t

    def sleep(self, seconds: float) -> None:
        """Advance by `seconds`, rounded up to ticks."""
        self._advance(math.ceil(seconds / self._tick_s - 1e-9))

    def start(self) -> None:
        """Start a run."""
        self._waited = True

    def begin(self) -> None:
        """Start a period."""
        self._waited = False

    def wait(self) -> float:
        """Advance by one period, unless this period has ended; return 0, the delay in seconds."""
        if not self._waited:
            self._waited = True
            self._owed += self._n_ticks
            n = int(self._owed + 1e-6)
            self._owed -= n
            self._advance(n)
        return 0.0

    def connect(self, url: str, **settings: Any) -> LockstepPort:
        """Open a port to one of the emulator's lines, as `serial_for_url` does; for `Port(connect=...)`.

        Raises:
            ValueError: If the emulator has no such line, or the last port is still open.
            OSError: As `serial_for_url`, for instance while the line is unplugged.
        """
        lines = {line.url: line for line in self.emulator.lines}
        if url not in lines:
            raise ValueError(f"url must be one of the emulator's lines ({', '.join(lines) or 'none'}), not {url}")
        if self._port is not None and not self._port.is_closed:
            raise ValueError(f"the lockstep has one host at a time, and {self._port.line.url} is still open")
        # Timeouts in real time could lose a command or leave bytes unread on a busy machine.
        port = serial_for_url(url, **settings | {"timeout": PATIENCE_S, "write_timeout": None})
        self._port = LockstepPort(port, lines[url], self.emulator.wake)
        return self._port

    def _advance(self, n: int) -> None:
        port = self._port
        for k in range(n):
            has_reader = port is not None and not port.is_closed
            if port is not None:
                port.deliver()
            self.emulator.advance(look=k >= n - self._n_new, speak=has_reader)
            if port is not None and (k % self._batch == self._batch - 1 or k == n - 1):
                port.hand_over()


class LockstepPort:
    """A pyserial port that counts the bytes in both directions.

    Args:
        port: The open port.
        line: The emulator's end of it.
        wake: Called at the falling edge of RTS, which some cables connect to a robot's wake-up input.
    """

    def __init__(self, port: Any, line: Line, wake: Callable[[], None]) -> None:
        self._port, self.line, self._wake = port, line, wake
        self._rts = False
        self._read_once: Callable[[], bool] | None = None
        line.forget()
        line.in_lockstep = True
        line.await_received(0, PATIENCE_S)  # a TCP server accepts the connection
        self._epoch = line.n_breaks
        self._n_written = self._n_read = self._n_ready = 0
        self.is_closed = self._is_gone = False

    # ---- the clock's side --------------------------------------------------------------------------------------------

    def deliver(self) -> None:
        """Wait until all written bytes are at the emulator's end.

        Raises:
            LockstepLost: If they do not arrive.
        """
        n = self._n_written
        if self.line.n_received >= n or self.is_closed or self._was_unplugged():
            return
        if not self.line.await_received(n, PATIENCE_S):
            raise LockstepLost(f"{n} bytes were written to {self.line.url}, but only {self.line.n_received} arrived")

    def hand_over(self) -> None:
        """Call the host's read function until it has read all sent bytes.

        Raises:
            LockstepLost: If it leaves bytes unread.
        """
        if self.is_closed:
            return
        self.line.flush()
        self._is_gone = self._is_gone or self._was_unplugged()
        self._n_ready = self._n_read if self._is_gone else self.line.n_sent
        while self._read_once and not self.is_closed and (self._n_read < self._n_ready or self._is_gone):
            before = self._n_read
            if not self._read_once():
                return  # the host has recorded the reason
            if self._n_read == before:
                raise LockstepLost(f"{self._n_ready - self._n_read} bytes from {self.line.url} were not read")

    def _was_unplugged(self) -> bool:
        """Return whether the line was unplugged since this port was opened, even if it is back."""
        return self.line.n_breaks != self._epoch

    def attach(self, read_once: Callable[[], bool]) -> bool:
        """Set the function that reads the available bytes and returns False on failure; return True: it is called."""
        self._read_once = read_once
        return True

    # ---- the host's side, as in pyserial -----------------------------------------------------------------------------

    @property
    def in_waiting(self) -> int:
        """Number of bytes that can be read now."""
        return self._n_ready - self._n_read

    def read(self, size: int = 1) -> bytes:
        """Return the available bytes, at most `size`."""
        n = min(size, self.in_waiting)
        if not n and not self._is_gone:
            return b""
        try:
            data = bytes(self._port.read(n or 1))
        except BaseException:
            self.is_closed = True
            raise
        self._n_read += len(data)
        return data

    @property
    def rts(self) -> bool:
        """The RTS line, which wakes the robot when it falls."""
        return self._rts

    @rts.setter
    def rts(self, level: bool) -> None:
        before, self._rts = self._rts, level
        if before and not level:
            self._wake()

    def write(self, data: bytes) -> int | None:
        """Send bytes; they count as written once the operating system has them."""
        if self._was_unplugged():
            raise OSError(errno.EIO, "the line was unplugged")
        n: int | None = self._port.write(data)
        self._n_written += len(data)
        return n

    def close(self) -> None:
        """Close the port after delivering written bytes and discarding unread ones."""
        if not self.is_closed and not self._was_unplugged():
            self.line.await_received(self._n_written, PATIENCE_S)
            if self.line.n_sent > self._n_read:
                self._port.read(self.line.n_sent - self._n_read)
        self.is_closed = True
        self._port.close()
