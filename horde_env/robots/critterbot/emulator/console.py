"""The microcontroller's text console, which it shows after a reset: lines end in CR alone, nothing is echoed.

Two of its commands move the robot: `motor`, one wheel's duty or three wheels' speeds, for half a second, and
`recharge start`, until the robot has found its dock or is told to stop.

Source: the Critterbot's ARM firmware of June 2011 (lib_ui.c, lib_events.c, armio.c). Commands that look at a chip or
flash it answer with a prompt here and do nothing.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import NamedTuple

from horde_env.robots.critterbot.simulator.machine import Machine
from horde_env.robots.critterbot.wire import BODY_SIZE, HEADER, LEDS_SIZE, Control, LedMode

PROMPT = b"critterprompt> "
N_EVENTS = 14  # the firmware's tasks beside the console itself

HELP = {
    "help": "Do you need help?",
    "status": "status",
    "error": "error [clear]",
    "motor": "motor [motor #] [speed #], or\r      [motor1speed] [motor2speed] [motor3speed]",
    "mi": "mi on",
    "recharge": "recharge [start|stop]",
    "avr": "avr [0|1]",
    "vref": "vref [0|1]",
    "amp": "amp [0|1]",
    "reset": "reset now",
}
SILENT = frozenset(
    [
        "set_led",
        "get_led",
        "stat_led",
        "clearall",
        "setall",
        "get_accel",
        "get_adcspi",
        "mode",
        "pid",
        "bootloader",
    ]
)


def banner() -> bytes:
    """Return what the microcontroller says after a reset, the first prompt included."""
    tasks = "".join(f"Initialized EVENT_ID {i}\r" for i in range(1, N_EVENTS + 1))
    text = f"\r\r\r------------CritterBOOT-------------\r\rLast reset was a power-up reset.\r{tasks}"
    return text.encode("ascii") + PROMPT


TOLD = ("mi on", "reset now", "error clear", "recharge start", "recharge stop")


class Answer(NamedTuple):
    """What comes of one line.

    Attributes:
        says: The console's answer.
        does: What the microcontroller is to do: one of TOLD, "motor", or "".
        numbers: Of "motor": a wheel and its duty, or three wheels' speeds.
    """

    says: bytes
    does: str = ""
    numbers: tuple[int, ...] = ()


def answer(line: bytes, machine: Machine, errors: int) -> Answer:
    """Return what comes of one line.

    Args:
        line: What was typed, without its CR.
        machine: The robot: `avr` enables charging, `status` looks at it.
        errors: The error flags so far.
    """
    text = line.decode("latin-1")
    words = text.split()
    name, numbers = words[0] if words else "", _leading_numbers(words[1:])
    says, does = "", ""
    if " ".join(words[:2]) in TOLD:
        does = " ".join(words[:2])
    elif name == "help":
        says = "List of commands and usage: \r" + "".join(f"{key} - {usage}\r" for key, usage in HELP.items())
    elif name == "status":
        says = _status(machine, errors)
    elif name == "error":
        says = f"Error status: {errors:x}\r"
    elif name == "motor" and len(numbers) >= 2:
        does = name
    elif name == "motor":
        says = "Invalid argument(s) for motor.\r"
    elif name == "avr" and numbers:
        machine.power.charging_enabled = numbers[0] != 0
    elif name not in HELP and name not in SILENT:
        says = f'Invalid command: "{text}"\r'
    return Answer(b"\r" + says.encode("latin-1") + PROMPT, does, numbers[:3])


def _leading_numbers(words: list[str]) -> tuple[int, ...]:
    """Return the whole numbers that come first."""
    return tuple(int(word) for word in takewhile(re.compile(r"[+-]?[0-9]+").fullmatch, words))


def _status(machine: Machine, errors: int) -> str:
    """Return the console's report."""
    power = machine.power
    volts = " ".join(str(round(10 * v)) for v in power.battery_v)
    return (
        f"Last reset was a power-up reset.\rError status: {errors:x}\rSystem Voltage: {power.bus_byte}\r"
        f"Charge State: {power.state}\rBattery Voltages: {volts}\r\r"
    )


# ---- bytes to packets ------------------------------------------------------------------------------------------------

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
