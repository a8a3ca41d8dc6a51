"""Clocks that wait for the end of a period: virtual time for a simulator, a monotonic clock for a real robot.

A step calls `begin` when it sends its command and `wait` before it reads the frame. A body that
must wait between the two (a serial port: send, wait, read the newest packet) has the same clock and
calls `wait` itself: the second `wait` of a period returns at once with the same value.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

TOLERANCE_S = 0.05  # largest lateness that keeps the schedule


def system_boot_time() -> float:
    """Return the time since the computer was started in seconds, including the time in which it was suspended.

    Where the system has no such clock, it is the monotonic time: a suspension is then not noticed.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None:
        return time.monotonic()
    return time.clock_gettime(clock)


class Clock(Protocol):
    """Keeps the steps of a life one period apart.

    Attributes:
        missed: Deadlines missed by more than the clock's tolerance since `start`.

    Examples:
        >>> def late_steps(clock: Clock, n_steps: int) -> int:
        ...     clock.start()
        ...     for _ in range(n_steps):
        ...         clock.begin()
        ...         clock.wait()
        ...     return clock.missed
        >>> late_steps(SimulatedClock(), 3)
        0
    """

    missed: int

    def was_suspended(self) -> bool:
        """Return whether the computer was suspended since the last call, or since `start`."""

    def start(self) -> None:
        """Start a run now: the first deadline is one period later."""

    def begin(self) -> None:
        """Start the period in which the command that is sent now is held."""

    def wait(self) -> float:
        """Wait for the end of the period and return the lateness in seconds, 0 if in time."""


class SimulatedClock:
    """Virtual time: nothing waits, and nothing is late.

    Examples:
        >>> SimulatedClock().wait()
        0.0
    """

    missed = 0

    def was_suspended(self) -> bool:
        """Return False: virtual time stands still meanwhile."""
        return False

    def start(self) -> None:
        """Start a run."""

    def begin(self) -> None:
        """Start a period."""

    def wait(self) -> float:
        """Return 0: a period ends when it has been computed."""
        return 0.0


class RealTimeClock:
    """Absolute deadlines, one period apart, on a monotonic clock, with plain sleep.

    Deadlines are absolute because relative sleeps drift (26 ms in 100 steps, measured). If a step
    ends at most `TOLERANCE_S` late, the schedule stays and the next step catches up. If it ends
    later, its deadline counts as missed and the schedule restarts at that time. A step that begins
    after its deadline still holds its command for a whole period.

    Args:
        period_s: Time between two deadlines, in seconds.
        monotonic: Returns the time in seconds, which may run faster than real time.
        sleep: Sleeps for a number of seconds of that time.
        boot_time: Returns the time in seconds with the time in which the computer was suspended,
            which `monotonic` may leave out. When None, `system_boot_time` for the system's own
            clock, and `monotonic` for another.

    Attributes:
        missed: Deadlines missed since `start`.
        overrun_s: How late the last period ended, in seconds.

    Raises:
        ValueError: If `period_s` is not positive.

    Examples:
        >>> hand = ManualClock()
        >>> clock = RealTimeClock(0.1, monotonic=hand.monotonic, sleep=hand.sleep)
        >>> clock.start()
        >>> clock.begin()
        >>> hand.advance(0.25)  # a computation of a quarter of a second
        >>> round(clock.wait(), 2), clock.missed
        (0.15, 1)
    """

    def __init__(
        self,
        period_s: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        boot_time: Callable[[], float] | None = None,
    ) -> None:
        if not period_s > 0.0:
            raise ValueError(f"period_s must be positive, not {period_s}")
        self.period_s = period_s
        self.missed = 0
        self.overrun_s = 0.0
        self._monotonic = monotonic
        self._sleep = sleep
        if boot_time is None:
            boot_time = monotonic
            if monotonic is time.monotonic:
                boot_time = system_boot_time
        self._boot_time = boot_time
        self._suspended_s = self._since_boot_alone()
        self._deadline = 0.0
        self._waited = True

    def _since_boot_alone(self) -> float:
        """Return the time that passed on `boot_time` alone, in seconds, plus a constant."""
        return self._boot_time() - self._monotonic()

    def was_suspended(self) -> bool:
        """Return whether more than `TOLERANCE_S` passed on `boot_time` alone since the last call, or since `start`."""
        before_s = self._suspended_s
        self._suspended_s = self._since_boot_alone()
        return self._suspended_s - before_s > TOLERANCE_S

    def start(self) -> None:
        """Start a run now: the first deadline is one period later."""
        self.missed = 0
        self.overrun_s = 0.0
        self._suspended_s = self._since_boot_alone()
        self._deadline = self._monotonic()
        self._waited = True

    def begin(self) -> None:
        """Start the next period; if its deadline has passed, count it as missed and restart the schedule now."""
        self._deadline += self.period_s
        self._waited = False
        self.overrun_s = 0.0
        now_s = self._monotonic()
        if self._count_if_missed(now_s):
            self._deadline = now_s + self.period_s

    def wait(self) -> float:
        """Sleep until the deadline and return the lateness in seconds; a second call in a period returns at once."""
        if self._waited:
            return self.overrun_s
        self._waited = True
        now_s = self._monotonic()
        while now_s < self._deadline:
            self._sleep(self._deadline - now_s)
            now_s = self._monotonic()
        if self._count_if_missed(now_s):
            self._deadline = now_s
        self.overrun_s = max(self.overrun_s, now_s - self._deadline)
        return self.overrun_s

    def _count_if_missed(self, now: float) -> bool:
        late = now - self._deadline
        if late <= TOLERANCE_S:
            return False
        self.missed += 1
        self.overrun_s = late
        return True


class ManualClock:
    """Time that a test advances: pass its `monotonic` and `sleep` to a RealTimeClock.

    Examples:
        >>> hand = ManualClock()
        >>> clock = RealTimeClock(0.1, monotonic=hand.monotonic, sleep=hand.sleep)
        >>> clock.start(); clock.begin(); hand.advance(0.03); clock.wait(); round(hand.monotonic(), 6)
        0.0
        0.1
    """

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s
        self.suspended_s = 0.0
        self.slept_s: list[float] = []

    def monotonic(self) -> float:
        """Return the time in seconds."""
        return self.now_s

    def boot_time(self) -> float:
        """Return the time in seconds, with that in which the computer was suspended."""
        return self.now_s + self.suspended_s

    def suspend(self, seconds: float) -> None:
        """Suspend the computer: the monotonic time stands still."""
        self.suspended_s += seconds

    def advance(self, seconds: float) -> None:
        """Advance the time, as a computation would."""
        self.now_s += seconds

    def sleep(self, seconds: float) -> None:
        """Advance the time by exactly `seconds` and record it in `slept_s`."""
        self.slept_s.append(seconds)
        self.now_s += seconds
