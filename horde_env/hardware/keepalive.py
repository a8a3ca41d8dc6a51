"""KeepAlive: what to send the robot between two commands, so that it neither stops too early nor drives on for ever.

The robot stops by itself 0.5 s after the last command that reached it. Repeating the command covers a packet lost on
the way; but a program that hangs must not be kept moving by its own repetitions, so they end, in a stop.
"""

from __future__ import annotations

from collections.abc import Callable


class KeepAlive:
    """Repeats the last command for a bounded time, then the stop, for as long as nobody asks for more.

    It has neither a thread nor a port: whoever has both asks what is `due`.

    Args:
        stop: The bytes of a stop.
        repeat_s: Time between two sendings, in seconds.
        hold_s: How old a command may become, in seconds.
        monotonic: The time in seconds.

    Attributes:
        lapsed: True once a command became too old and was replaced by the stop, until the next one.
        n_lapses: How often that happened.
    """

    def __init__(self, stop: bytes, repeat_s: float, hold_s: float, monotonic: Callable[[], float]) -> None:
        self._stop, self._repeat_s, self._hold_s, self._monotonic = stop, repeat_s, hold_s, monotonic
        self._command, self._renewed_t, self._sent_t = stop, monotonic(), monotonic()
        self.lapsed, self.n_lapses = False, 0

    def renew(self, command: bytes) -> None:
        """Note that `command` is being sent now, as somebody has just asked for it."""
        self._command = command
        self._renewed_t = self._sent_t = self._monotonic()
        self.lapsed = False

    def due(self) -> bytes:
        """Return what must be sent now, which counts as sent, or nothing."""
        now = self._monotonic()
        if self._command != self._stop and now - self._renewed_t > self._hold_s:
            self._command, self.lapsed = self._stop, True
            self.n_lapses += 1
        elif now - self._sent_t < self._repeat_s:
            return b""
        self._sent_t = now
        return self._command
