"""KeepAlive: the bytes to send between two commands, so the robot neither stops too early nor drives without limit.

A robot may stop by itself when no command arrives (the Critterbot after 0.5 s). Repeating the command covers a lost
packet; but if the program hangs the robot must stop, so repetitions end after `hold_s`, with a stop. A stop has two
commands, one after the other: one that brakes, and one that is repeated after braking.
"""

from __future__ import annotations

from collections.abc import Callable


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
