"""How to reach the robot: the settings of a port and its line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PARITIES = {"odd": "O", "even": "E", "none": "N"}  # the letters by which pyserial knows them


@dataclass(frozen=True, slots=True)
class PortConfig:
    """How to reach the robot.

    Attributes:
        url: A device ("/dev/serial/by-id/..."), "socket://HOST:PORT", "rfc2217://HOST:PORT" or "loop://".
        baudrate: Bits per second.
        parity: The robot's is odd. A pseudo terminal refuses any but "none" when it is opened a second time.
        read_timeout_s: How long closing may take, and how long fewer bytes than a packet may stay unseen.
        write_timeout_s: How long a command may wait for room before the port counts as lost.

    Raises:
        ValueError: If the parity is unknown, or a number is not positive.
    """

    url: str
    baudrate: int = 115_200
    parity: Literal["odd", "even", "none"] = "odd"
    read_timeout_s: float = 0.05
    write_timeout_s: float = 0.2

    def __post_init__(self) -> None:
        if self.parity not in PARITIES:
            raise ValueError(f"parity must be one of {', '.join(PARITIES)}, not {self.parity!r}")
        if not (self.baudrate > 0 and self.read_timeout_s > 0 and self.write_timeout_s > 0):
            raise ValueError(f"baudrate and timeouts must be positive: {self}")

    @property
    def line(self) -> str:
        """The line's settings in short, "115200 8O1"."""
        return f"{self.baudrate} 8{PARITIES[self.parity]}1"
