"""LockstepClock: an emulated robot and its host on one virtual clock, through real bytes and a real port.

Nothing waits for real time: when the host waits for its deadline, the emulator computes its ticks. Two promises
make a life deterministic, whatever the threads and the operating system do:

    before each tick    all that the host has written has reached the emulator
    before time goes on the host's reader thread has taken, parsed and put down all that the emulator has sent

Both are kept by counting bytes at the two ends of the line: the clock opens the host's port itself (`connect`), and the
reader thread's return to `read` says that it is done with what it read before. The port's own threads and buffers are
the real ones; the host must not write from a thread of its own, whose moments would be the operating system's. Or, with
`inline`, there is no reader thread: the clock lets the port read, itself, when it is time. The life is the same bit for
bit, without two changes of threads a tick, each of which waits where the machine is busy.

    emulator = Emulator(seed=0)        # the Critterbot's
    clock = LockstepClock(emulator)
    body = SerialBody(PortConfig(emulator.open_pty(), parity="none"), clock, monotonic=clock.monotonic,
                      sleep=clock.sleep, connect=clock.connect, settings=LinkSettings(threaded=False))
"""

from __future__ import annotations

import errno
import math
import threading
from collections.abc import Callable
from typing import Any

from horde_env.emulation.emulator import RobotEmulator
from horde_env.emulation.lines import Line
from horde_env.errors import HordeEnvError
from horde_env.hardware.port import serial_for_url

BATCH = 10  # cycles of which a reader takes the bytes at once: what they send fits into any line's buffer
PATIENCE_S, N_WAITS = 10.0, 5  # for a thread that has nothing else to do: reached only where something is broken


class LockstepLost(HordeEnvError):
    """The host's reader, or the operating system, did not do its part."""


class LockstepClock:
    """Virtual time that an emulator and its host share.

    Args:
        emulator: The robot; nobody else may let its time pass.
        period_s: Time between two deadlines, in seconds.
        look_last: How many packets before a deadline are made anew; the others repeat earlier ones, for a host takes
            the last two alone. All of them when None, and with faults of the line, by which a host may lose the last.
            The robot's motion is the same either way.
        batch: After how many ticks the reader takes what came: by its readings' times a host knows a gap, so that one
            whose packets come further apart than those of a hundred a second takes each by itself.
        inline: Let the port read in the thread that waits, and have no other.
        opener: Opens a port as pyserial's `serial_for_url` does.

    Attributes:
        missed: Always 0: virtual time is never late.

    Raises:
        ValueError: If the emulator was started, or `period_s` is shorter than its tick.
    """

    missed = 0

    def __init__(
        self,
        emulator: RobotEmulator,
        period_s: float = 0.1,
        *,
        look_last: int | None = 2,
        batch: int = BATCH,
        inline: bool = False,
        opener: Callable[..., Any] = serial_for_url,
    ) -> None:
        if emulator.is_running:
            raise ValueError("this emulator runs in its own thread; one in lockstep is not started")
        self.emulator, self.period_s = emulator, period_s
        self._tick_s, self._n_cycles = emulator.tick_s, period_s / emulator.tick_s
        is_whole = math.isclose(round(self._n_cycles), self._n_cycles)
        if self._n_cycles < 1.0 - 1e-9 or not (is_whole or batch == 1):
            raise ValueError(f"period_s must be a multiple of {self._tick_s} s, not {period_s}")
        self._owed = 0.0  # cycles that a period has beyond a whole number
        self._look_last = math.ceil(self._n_cycles) if look_last is None or emulator.spoils_bytes else look_last
        # Where packets may fail to come, a reading's time must be that of its own cycle: by it a host knows a gap.
        self._batch = 1 if emulator.spoils_bytes else batch
        self._opener, self._is_inline = opener, inline
        self._port: LockstepPort | None = None
        self._waited = True

    def monotonic(self) -> float:
        """Return the robot's time in seconds: the one time there is."""
        return self.emulator.t

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass, a whole number of cycles."""
        self._let_pass(math.ceil(seconds / self._tick_s - 1e-9))

    def start(self) -> None:
        """Begin a life."""
        self._waited = True

    def begin(self) -> None:
        """Begin a period."""
        self._waited = False

    def wait(self) -> float:
        """Let one period pass and return 0; again in the same period: at once."""
        if not self._waited:
            self._waited = True
            self._owed += self._n_cycles
            n = int(self._owed + 1e-6)
            self._owed -= n
            self._let_pass(n)
        return 0.0

    def connect(self, url: str, **settings: Any) -> LockstepPort:
        """Open a port to one of the emulator's lines, as `serial_for_url` does; for `Port(connect=...)`.

        Raises:
            ValueError: If the emulator has no such line, or the last port is still open.
            OSError: As `serial_for_url`, for instance while the line is unplugged.
        """
        lines = {line.url: line for line in self.emulator.lines}
        if url not in lines:
            raise ValueError(f"{url} is no line of this emulator; it has {', '.join(lines) or 'none'}")
        if self._port is not None and not self._port.is_closed:
            raise ValueError(f"the lockstep has one host at a time, and {self._port.line.url} is still open")
        # Timeouts of real time would lose a command, or leave bytes behind, where the machine is busy.
        port = self._opener(url, **settings | {"timeout": PATIENCE_S, "write_timeout": None})
        read_timeout_s = settings.get("timeout", PATIENCE_S)
        self._port = LockstepPort(port, lines[url], read_timeout_s, self.emulator.wake, inline=self._is_inline)
        return self._port

    def _let_pass(self, n: int) -> None:
        port = self._port
        for k in range(n):
            heard = port is not None and not port.is_closed
            if port is not None:
                port.deliver()
            self.emulator.advance(look=k >= n - self._look_last, speak=heard)
            if port is not None and (k % self._batch == self._batch - 1 or k == n - 1):
                port.hand_over()


class LockstepPort:
    """A pyserial port that knows how many bytes are on their way to it, and tells when its reader has taken them.

    Args:
        port: The open port.
        line: The emulator's end of it.
        read_timeout_s: How long `read` waits for bytes, in seconds of real time: no virtual time passes meanwhile.
        wake: Called at the falling edge of RTS, which a pseudo terminal lacks, and cables wire to what wakes a robot.
        inline: Take whoever attaches for the reader.
    """

    def __init__(
        self, port: Any, line: Line, read_timeout_s: float | None, wake: Callable[[], None], *, inline: bool = False
    ) -> None:
        self._port, self.line, self._read_timeout_s = port, line, read_timeout_s
        self._wake, self._rts = wake, False
        self._is_inline = inline
        self._read_once: Callable[[], bool] | None = None
        line.forget()
        line.in_lockstep = True
        line.await_received(0, PATIENCE_S)  # a server lets its host in
        self._epoch = line.n_breaks
        self._n_written = self._n_read = self._n_ready = 0
        self._reading = self.is_closed = self._is_gone = False
        self._changed = threading.Condition()  # whose lock the same thread may take again

    # ---- the clock's side --------------------------------------------------------------------------------------------

    def deliver(self) -> None:
        """Wait until all that the host has written is at the emulator's end.

        Raises:
            LockstepLost: If it does not come.
        """
        n = self._n_written
        if self.line.n_received >= n or self.is_closed or self._lost_line():
            return
        if not self.line.await_received(n, PATIENCE_S):
            raise LockstepLost(f"{n} bytes were written to {self.line.url}, only {self.line.n_received} came through")

    def hand_over(self) -> None:
        """Let the reader take all that was sent, and wait until it has.

        Raises:
            LockstepLost: If it does not.
        """
        with self._changed:
            if self.is_closed:
                return
            self.line.flush()
            self._is_gone = self._is_gone or self._lost_line()
            self._n_ready = self._n_read if self._is_gone else self.line.n_sent
            if self._n_ready == self._n_read and not self._is_gone:
                return
            if self._read_once is not None:
                self._let_read(self._read_once)
                return
            self._changed.notify_all()
            # In several waits: time goes on while this process is suspended, and its reader needs some after that.
            if not any(self._changed.wait_for(self._is_done, PATIENCE_S / N_WAITS) for _ in range(N_WAITS)):
                raise LockstepLost(f"nobody read {self._n_ready - self._n_read} bytes that came from {self.line.url}")

    def _let_read(self, read_once: Callable[[], bool]) -> None:
        while not self.is_closed and (self._n_read < self._n_ready or self._is_gone):
            before = self._n_read
            if not read_once():
                return  # the host has noted why
            if self._n_read == before:
                raise LockstepLost(f"{self._n_ready - self._n_read} bytes that came from {self.line.url} were not read")

    def _lost_line(self) -> bool:
        """Whether the line was unplugged since this port was opened, be it there again or not."""
        return self.line.n_breaks != self._epoch

    def _is_done(self) -> bool:
        return self.is_closed or (self._reading and self._n_read == self._n_ready and not self._is_gone)

    def attach(self, read_once: Callable[[], bool]) -> bool:
        """Take what reads once what is there, and returns False where that failed; return whether it will be called."""
        self._read_once = read_once if self._is_inline else None
        return self._is_inline

    # ---- the host's side, as pyserial has it -------------------------------------------------------------------------

    @property
    def in_waiting(self) -> int:
        """Bytes that can be read at once; waits for them, as `read` would, so that it reads them all in one go."""
        with self._changed:
            return self._await_bytes()

    def read(self, size: int = 1) -> bytes:
        """Return what is there, `size` bytes at most, or nothing after the port's timeout."""
        with self._changed:
            n = min(size, self._await_bytes())
            if not n and not self._is_gone:
                return b""
        try:
            data = bytes(self._port.read(n or 1))
        except BaseException:
            self._leave()
            raise
        with self._changed:
            self._n_read += len(data)
        return data

    def _await_bytes(self) -> int:
        """Say that all that was read is dealt with, and return how many bytes can be read now."""
        if self._n_ready == self._n_read and not self._is_gone and not self._is_inline:
            self._reading = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._n_ready > self._n_read or self._is_gone, self._read_timeout_s)
            self._reading = False
        return self._n_ready - self._n_read

    @property
    def rts(self) -> bool:
        """The line that wakes the robot when it falls."""
        return self._rts

    @rts.setter
    def rts(self, level: bool) -> None:
        before, self._rts = self._rts, level
        if before and not level:
            self._wake()

    def write(self, data: bytes) -> int | None:
        """Send bytes; they count as written once the operating system has them."""
        if self._lost_line():
            raise OSError(errno.EIO, "the line was unplugged")
        n: int | None = self._port.write(data)
        with self._changed:
            self._n_written += len(data)
        return n

    def close(self) -> None:
        """Close the port; what was written still reaches the robot, and what was sent is not left to the next host."""
        if not self.is_closed and not self._lost_line():
            self.line.await_received(self._n_written, PATIENCE_S)
            if self.line.n_sent > self._n_read:
                self._port.read(self.line.n_sent - self._n_read)
        self._leave()
        self._port.close()

    def _leave(self) -> None:
        """Nobody reads any more."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()
