"""KeepAlive: what to send a robot between two commands, so that it neither stops too early nor drives on for ever.

A robot may stop by itself where no command reaches it (the Critterbot after 0.5 s). Repeating the command covers a
packet lost on the way; but a program that hangs must not be kept moving by its own repetitions, so they end, in a stop.
A stop may be said in two ways, one after the other: one that brakes, and one that is said when that is over.
"""

from __future__ import annotations

from collections.abc import Callable


class KeepAlive:
    """Repeats the last command for a bounded time, then the stop, for as long as nobody asks for more.

    It has neither a thread nor a port: whoever has both asks what is `due`.

    Args:
        halt: The bytes of the stop that brakes: the command of whoever wants the robot to stand.
        coast: The bytes that are repeated in its place once the ramp is over.
        repeat_s: Time between two sendings, in seconds.
        hold_s: How old a command may become, in seconds.
        monotonic: The time in seconds.
        ramp_s: How long the braking takes, in seconds.

    Attributes:
        lapsed: True once a command became too old and was replaced by the stop, until the next one.
        n_lapses: How often that happened.
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
        """How long the ramp of the present stop may still take, in seconds; all of it where none was asked for."""
        if self._command != self._halt:
            return self._ramp_s
        return max(self._halted_t + self._ramp_s - self._monotonic(), 0.0)

    def renew(self, command: bytes) -> None:
        """Note that `command` is being sent now, as somebody has just asked for it."""
        self._renewed_t = self._sent_t = self._monotonic()
        self._take(command)
        self.lapsed = False

    def due(self) -> bytes:
        """Return what must be sent now, which counts as sent, or nothing."""
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
        """Make `command` the present one; a stop that goes on has begun when it began."""
        if command == self._halt != self._command:
            self._halted_t = self._monotonic()
        self._command = command
