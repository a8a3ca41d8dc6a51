"""Receiver: the robot's receive buffer and its reader of control packets, with their faults; no host has this one.

Source: the Critterbot's ARM firmware of June 2011 (armio.c, lib_mi.c, lib_ui.c), and what it did when compiled for a
host and fed byte by byte.
"""

from __future__ import annotations

from horde_env.robots.critterbot.commands import BODY_SIZE, LEDS_SIZE, Control, LedMode
from horde_env.robots.critterbot.wire import HEADER

RING = 1024  # bytes of the buffer, which the hardware fills without looking
LONGEST_LINE = 255  # characters of the console's
NOTHING = 0xFF  # what reading an empty buffer gives: the low byte of C's EOF


class Receiver:
    """What the robot does with the bytes that reach it.

        a header        a byte that does not continue it is consumed, and the match starts over at the NEXT byte, so
                        that DE DE AD BE EF loses its packet
        a packet        may be split in time. Its mode, numbers and LED mode are taken together, when all five are
                        there; with custom LEDs they act at once, and the reader then waits for 48 bytes, whatever they
                        are
        the buffer      is a ring: where nobody reads in time, bytes are lost by whole rings. Bytes that lie across its
                        end are counted as one more than they are, so that once in 1,024 bytes a packet may be taken
                        a byte too early; what is missing is read as FF, and comes later, as the first byte of junk

    Attributes:
        leds: The ring's 16 x (red, green, blue), as custom LED packets have set them.
    """

    def __init__(self) -> None:
        self.leds = bytes(LEDS_SIZE)
        self._bytes = bytearray()
        self._place = 0  # of the first of them in the ring
        self._n_header = 0  # bytes of a header that were matched
        self._awaits_leds = False

    def take(self, data: bytes) -> None:
        """Put bytes that came over the line into the buffer."""
        self._bytes += data
        del self._bytes[: len(self._bytes) // RING * RING]

    def controls(self) -> list[Control]:
        """Read all that can be read; return the controls that were, without LEDs (`leds`), in their order."""
        found: list[Control] = []
        while True:
            if self._awaits_leds:
                if self._n_counted() < LEDS_SIZE:
                    return found
                self.leds, self._awaits_leds = self._read(LEDS_SIZE), False
            elif self._n_header < len(HEADER):
                if not self._bytes:
                    return found
                continues = self._read(1)[0] == HEADER[self._n_header]
                self._n_header = self._n_header + 1 if continues else 0
            elif self._n_counted() < BODY_SIZE:
                return found
            else:
                mode, *numbers, led_mode = self._read(BODY_SIZE)
                a, b, c = (number - 256 * (number > 127) for number in numbers)
                found.append(Control(mode, a, b, c, led_mode))
                self._n_header, self._awaits_leds = 0, led_mode == LedMode.CUSTOM

    def line(self) -> bytes | None:
        """Read the console's next line, without its CR and what follows a zero byte; None where none is there yet.

        Of a line that is longer than 255 characters as many are lost each time.
        """
        end = self._bytes.find(b"\r")
        if end > LONGEST_LINE:
            self._read(LONGEST_LINE)
            return None
        return None if end < 0 else self._read(end + 1)[:-1].partition(b"\0")[0]

    def _n_counted(self) -> int:
        """Return how many bytes the firmware believes to be there."""
        n = len(self._bytes)
        return n + 1 if self._place + n >= RING else n

    def _read(self, n: int) -> bytes:
        data = bytes(self._bytes[:n])
        del self._bytes[:n]
        self._place = (self._place + len(data)) % RING
        return data + bytes([NOTHING]) * (n - len(data))
