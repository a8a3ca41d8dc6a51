"""LockstepClock: an emulated robot and its host on one virtual clock, with the same bytes in each run.

While the host waits for its deadline, the emulator computes its ticks. Their line is in memory:
what the host writes is there before the next tick, and after each batch of ticks the clock makes
the host read all that was sent. The host has no reader thread, and must not write from another one.

    clock, line = LockstepClock(), MemoryLine()
    emulator.add(line)
    clock.join(emulator, line)
    body = SerialBody(
        PortConfig(line.url, parity="none"),
        clock,
        monotonic=clock.monotonic,
        sleep=clock.sleep,
        connect=line.connect,
        settings=LinkSettings(threaded=False),
    )
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable
from typing import Any

from horde_env.emulation.emulator import RobotEmulator
from horde_env.emulation.lines import Line

BATCH = 10  # ticks between two reads of the host
N_NEW = 2  # packets before a deadline with new sensor readings: a host uses the last two
UNPLUGGED = "the line was unplugged"


class LockstepClock:
    """Virtual time of an emulator and its host, with `period_s` seconds between two deadlines."""

    missed = 0  # virtual time is never late

    def __init__(self, period_s: float = 0.1) -> None:
        self.period_s = period_s
        self._emulator: RobotEmulator | None = None

    def join(self, emulator: RobotEmulator, line: MemoryLine) -> None:
        """Run this emulator, connected by `line`, from now on; only this clock may advance it."""
        self._emulator = emulator
        self._line = line
        self._owed = 0.0  # fraction of a tick left over from earlier periods
        self._n_ticks = self.period_s / emulator.tick_s
        self._n_new = N_NEW
        self._n_batch = BATCH
        self._waited = True
        # Any packet may be the last one, and needs its tick's exact time
        if emulator.damages_bytes:
            self._n_new = math.ceil(self._n_ticks)
            self._n_batch = 1

    def monotonic(self) -> float:
        """Return the robot's time in seconds."""
        if self._emulator:
            return self._emulator.t
        return 0.0

    def sleep(self, seconds: float) -> None:
        """Advance by `seconds`, rounded up to ticks."""
        if self._emulator:
            self._advance(self._emulator, math.ceil(seconds / self._emulator.tick_s - 1e-9))

    def start(self) -> None:
        """Start a run."""
        self._waited = True

    def begin(self) -> None:
        """Start a period."""
        self._waited = False

    def was_suspended(self) -> bool:
        """Return False: emulated time stands still meanwhile."""
        return False

    def wait(self) -> float:
        """Advance by one period, unless this period has ended; return 0, the delay in seconds."""
        if self._emulator and not self._waited:
            self._waited = True
            self._owed += self._n_ticks
            n = int(self._owed + 1e-6)
            self._owed -= n
            self._advance(self._emulator, n)
        return 0.0

    def _advance(self, emulator: RobotEmulator, n: int) -> None:
        port = self._line.port
        for k in range(n):
            emulator.advance(look=k >= n - self._n_new, speak=port is not None and port.is_open)
            if port is not None and (k % self._n_batch == self._n_batch - 1 or k == n - 1):
                port.hand_over()


class MemoryLine(Line):
    """A line in memory; `wake` is called at the falling edge of RTS, which some cables connect to a robot's input."""

    url = "memory"

    def __init__(self, wake: Callable[[], None] = lambda: None) -> None:
        self.wake = wake
        self.port: MemoryPort | None = None  # the host's end since the last `connect`
        self.inbox = bytearray()
        self._is_plugged = True

    def connect(self, _: str, **settings: Any) -> MemoryPort:  # noqa: ARG002
        """Open the host's end, as `serial_for_url` does; OSError if it is unplugged, or the last port still open."""
        if self._is_plugged:
            number = 0
        else:
            number = errno.ENOENT
        if self.port is not None and self.port.is_open and not self.port.is_lost:
            number = errno.EBUSY
        if number:
            raise OSError(number, os.strerror(number), self.url)
        self._disconnect()
        self.port = MemoryPort(self)
        return self.port

    def plug(self) -> None:
        """Let a host connect again."""
        self._is_plugged = True

    def unplug(self) -> None:
        """Let the host's reads and writes fail."""
        self._is_plugged = False
        self._disconnect()

    def read(self) -> bytes:
        """Return the bytes that the host has written."""
        data = bytes(self.inbox)
        self.inbox.clear()
        return data

    def write(self, data: bytes, bad_parity: bool = False) -> None:  # noqa: ARG002  it has no parity
        """Send bytes to the host."""
        if self.port is not None and not self.port.is_lost:
            self.port.received += data

    def _disconnect(self) -> None:
        self.inbox.clear()
        if self.port is not None:
            self.port.is_lost = True
            self.port.received.clear()


class MemoryPort:
    """The host's end of a `MemoryLine`, as far as `Port` needs pyserial's methods."""

    def __init__(self, line: MemoryLine) -> None:
        self._line = line
        self._read_once: Callable[[], bool] = lambda: False
        self._rts = False
        self.received = bytearray()
        self.is_open = True
        self.is_lost = False

    def attach(self, read_once: Callable[[], bool]) -> bool:
        """Set the function that reads the available bytes; return True: it is called."""
        self._read_once = read_once
        return True

    def hand_over(self) -> None:
        """Make the host read all received bytes, or notice that the line is lost."""
        if self.is_open and (self.received or self.is_lost):
            self._read_once()

    @property
    def in_waiting(self) -> int:
        """Number of bytes that can be read now."""
        return len(self.received)

    def read(self, size: int = 1) -> bytes:
        """Return the available bytes, at most `size`."""
        if self.is_lost:
            self.is_open = False
            raise OSError(errno.EIO, UNPLUGGED)
        data = bytes(self.received[:size])
        del self.received[:size]
        return data

    def write(self, data: bytes) -> int:
        """Send bytes."""
        if self.is_lost:
            raise OSError(errno.EIO, UNPLUGGED)
        self._line.inbox += data
        return len(data)

    @property
    def rts(self) -> bool:
        """The RTS line, which wakes the robot when it falls."""
        return self._rts

    @rts.setter
    def rts(self, level: bool) -> None:
        previous = self._rts
        self._rts = level
        if previous and not level:
            self._line.wake()

    def close(self) -> None:
        """Close the port; unread bytes are lost."""
        self.is_open = False
        self.received.clear()
