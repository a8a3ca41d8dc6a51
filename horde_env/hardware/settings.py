"""Settings of a robot's port, and time limits of commands and reconnection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PARITIES = {"odd": "O", "even": "E", "none": "N"}  # pyserial's letters
# The Critterbot's own command timeout: an upper limit of `hold_s` for every robot
ROBOT_TIMEOUT_S = 0.5


@dataclass(frozen=True, slots=True)
class PortConfig:
    """Address and settings of a port.

    Attributes:
        url: A device ("/dev/serial/by-id/..."), "socket://HOST:PORT", "rfc2217://HOST:PORT" or
            "loop://".
        baudrate: Bits per second.
        parity: The Critterbot's is odd. A pseudo terminal allows only "none" when it is opened a
            second time.
        read_timeout_s: Longest wait of one read, thus of closing.
        write_timeout_s: Longest wait of one write; after two such waits the port counts as lost.

    Raises:
        ValueError: If the parity is unknown, or a number is not positive.

    Examples:
        >>> PortConfig("/dev/ttyUSB0").line, PortConfig("/dev/pts/3", parity="none").line
        ('115200 8O1', '115200 8N1')
    """

    url: str
    baudrate: int = 115_200
    parity: Literal["odd", "even", "none"] = "odd"
    read_timeout_s: float = 0.05
    write_timeout_s: float = 0.1

    def __post_init__(self) -> None:
        if self.parity not in PARITIES:
            raise ValueError(f"parity must be one of {', '.join(PARITIES)}, not {self.parity!r}")
        if not (self.baudrate > 0 and self.read_timeout_s > 0 and self.write_timeout_s > 0):
            raise ValueError(f"baudrate and timeouts must be positive: {self}")

    @property
    def line(self) -> str:
        """The line's settings in short, "115200 8O1"."""
        return f"{self.baudrate} 8{PARITIES[self.parity]}1"


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Time limits of commands and reconnection, in seconds.

    Attributes:
        repeat_s: Interval at which a command is repeated.
        hold_s: Longest age of a command; then the stop is sent, in case the program hangs.
        silence_s: The link is lost after this time without a packet, and at least two periods.
        frame_timeout_s: Duration of reconnection before the body counts as lost.
        attempts: Largest number of reconnection attempts.
        first_pause_s: Pause after the first attempt; it doubles with each.
        longest_pause_s: The longest pause.
        threaded: Run `Link.poll` in a thread. Otherwise each exchange calls it, for a clock that
            stands still between exchanges.

    Raises:
        ValueError: If a number is out of range.

    Examples:
        >>> patient = LinkSettings(frame_timeout_s=120.0)  # for a robot that is switched off and on again
        >>> patient.attempts
        50
        >>> LinkSettings(hold_s=2.0)
        Traceback (most recent call last):
        ValueError: repeat_s must be in (0, 0.1] and hold_s between it and 0.5 s: 0.05, 2.0
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
            raise ValueError(
                f"pauses must be positive, the first no longer than the longest: {self}"
            )
