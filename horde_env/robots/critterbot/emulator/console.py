"""The microcontroller's receive buffer, and its text console after a reset: lines end in CR, without an echo.

It has only the commands that a host needs: `mi on`, `reset now`, `recharge start` and `recharge
stop`.

Source: the Critterbot's ARM firmware of June 2011 (lib_ui.c, lib_events.c, armio.c).
"""

from __future__ import annotations

from horde_env.robots.critterbot.wire import (
    BODY_SIZE,
    HEADER,
    LED_CUSTOM,
    LEDS_SIZE,
    Control,
    decode_control,
)

PROMPT = b"critterprompt> "
N_EVENTS = 14  # the firmware's tasks beside the console itself
COMMANDS = ("mi on", "reset now", "recharge start", "recharge stop")
NAMES = ("mi", "reset", "recharge")  # with other words only the prompt is the reply


def banner() -> bytes:
    """Return the text that the microcontroller prints after a reset, with the first prompt."""
    tasks = "".join(f"Initialized EVENT_ID {i}\r" for i in range(1, N_EVENTS + 1))
    text = (
        f"\r\r\r------------CritterBOOT-------------\r\rLast reset was a power-up reset.\r{tasks}"
    )
    return text.encode("ascii") + PROMPT


def run_line(line: bytes) -> tuple[bytes, str]:
    """Return the console's reply to a line without its CR, and the command that the microcontroller must run or ""."""
    text = line.decode("latin-1")
    words = text.split()
    command = " ".join(words[:2])
    if words and words[0] in NAMES:
        if command not in COMMANDS:
            command = ""
        return b"\r" + PROMPT, command
    return f'\rInvalid command: "{text}"\r'.encode("latin-1") + PROMPT, ""


# ---- bytes to packets ------------------------------------------------------------------------------------------------

RING = 1024  # bytes of the ring buffer, which the hardware overwrites
LONGEST_LINE = 255  # characters of a console line
NOTHING = 0xFF  # the value read from an empty buffer: the low byte of C's EOF


class Receiver:
    """The robot's receive buffer and its parsers.

    header          a byte that does not continue it is consumed, and the match restarts at the NEXT byte, so
                    DE DE AD BE EF loses its packet
    packet          may arrive in parts. Mode, numbers and LED mode are read together, when all five are there; with
                    custom LEDs they act at once, and the next 48 bytes are read as LEDs, whatever
                    they are
    buffer          a ring: unread bytes are lost by whole rings. Bytes across its end are counted as one more than
                    there are, so once in 1,024 bytes a packet may be read a byte too early; the
                    missing byte is read as FF and arrives later as junk
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._place = 0  # of the first byte in the ring
        self._n_header = 0  # matched bytes of a header
        self._awaits_leds = False

    def receive(self, data: bytes) -> None:
        """Put received bytes into the buffer."""
        self._bytes += data
        del self._bytes[: len(self._bytes) // RING * RING]

    def controls(self) -> list[Control]:
        """Read the complete control packets and return them in order."""
        controls: list[Control] = []
        while True:
            if self._awaits_leds:
                if self._n_counted() < LEDS_SIZE:
                    return controls
                self._read(LEDS_SIZE)
                self._awaits_leds = False
            elif self._n_header < len(HEADER):
                if not self._bytes:
                    return controls
                continues = self._read(1)[0] == HEADER[self._n_header]
                if continues:
                    self._n_header += 1
                else:
                    self._n_header = 0
            elif self._n_counted() < BODY_SIZE:
                return controls
            else:
                control = decode_control(self._read(BODY_SIZE))
                controls.append(control)
                self._n_header = 0
                self._awaits_leds = control.led_mode == LED_CUSTOM

    def line(self) -> bytes | None:
        """Read the console's next line up to its CR or a zero byte; None if it is incomplete.

        Each call discards 255 characters of a longer line.
        """
        end = self._bytes.find(b"\r")
        if end > LONGEST_LINE:
            self._read(LONGEST_LINE)
            return None
        if end < 0:
            return None
        return self._read(end + 1)[:-1].partition(b"\0")[0]

    def _n_counted(self) -> int:
        """Return the number of buffered bytes by the firmware's faulty count."""
        n = len(self._bytes)
        if self._place + n >= RING:
            return n + 1
        return n

    def _read(self, n: int) -> bytes:
        data = bytes(self._bytes[:n])
        del self._bytes[:n]
        self._place = (self._place + len(data)) % RING
        return data + bytes([NOTHING]) * (n - len(data))
