"""The microcontroller's receive buffer, and its text console after a reset: lines end in CR, without an echo.

Two console commands move the robot: `motor`, one wheel's duty or three wheels' speeds, for half a second, and `recharge
start`, until it is docked or stopped. Commands that read or flash a chip only return a prompt here.

Source: the Critterbot's ARM firmware of June 2011 (lib_ui.c, lib_events.c, armio.c).
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
ACTIONS = ("mi on", "reset now", "error clear", "recharge start", "recharge stop")
SILENT = (
    *("set_led", "get_led", "stat_led", "clearall", "setall"),
    *("get_accel", "get_adcspi", "mode", "pid", "bootloader"),
)


def banner() -> bytes:
    """Return the text that the microcontroller prints after a reset, with the first prompt."""
    tasks = "".join(f"Initialized EVENT_ID {i}\r" for i in range(1, N_EVENTS + 1))
    text = f"\r\r\r------------CritterBOOT-------------\r\rLast reset was a power-up reset.\r{tasks}"
    return text.encode("ascii") + PROMPT


class ConsoleReply(NamedTuple):
    """The result of one line.

    Attributes:
        text: The console's reply.
        action: What the microcontroller must do: one of ACTIONS, "motor", or "".
        numbers: Of "motor": a wheel and its duty, or three wheels' speeds.
    """

    text: bytes
    action: str = ""
    numbers: tuple[int, ...] = ()


def run_line(line: bytes, machine: Machine, errors: int) -> ConsoleReply:
    """Return the result of one line.

    Args:
        line: The typed line, without its CR.
        machine: The robot: `avr` enables charging, `status` reads it.
        errors: The error flags so far.
    """
    text = line.decode("latin-1")
    words = text.split()
    name = words[0] if words else ""
    is_number = re.compile(r"[+-]?[0-9]+").fullmatch
    numbers = tuple(int(word) for word in takewhile(is_number, words[1:]))
    says, action = "", ""
    if " ".join(words[:2]) in ACTIONS:
        action = " ".join(words[:2])
    elif name == "help":
        says = "List of commands and usage: \r" + "".join(f"{key} - {usage}\r" for key, usage in HELP.items())
    elif name == "status":
        says = _status(machine, errors)
    elif name == "error":
        says = f"Error status: {errors:x}\r"
    elif name == "motor" and len(numbers) >= 2:
        action = name
    elif name == "motor":
        says = "Invalid argument(s) for motor.\r"
    elif name == "avr" and numbers:
        machine.power.charging_enabled = numbers[0] != 0
    elif name not in HELP and name not in SILENT:
        says = f'Invalid command: "{text}"\r'
    return ConsoleReply(b"\r" + says.encode("latin-1") + PROMPT, action, numbers[:3])


def _status(machine: Machine, errors: int) -> str:
    power = machine.power
    volts = " ".join(str(round(10 * v)) for v in power.battery_v)
    return (
        f"Last reset was a power-up reset.\rError status: {errors:x}\rSystem Voltage: {power.bus_byte}\r"
        f"Charge State: {power.state}\rBattery Voltages: {volts}\r\r"
    )


# ---- bytes to packets ------------------------------------------------------------------------------------------------

RING = 1024  # bytes of the ring buffer, which the hardware overwrites
LONGEST_LINE = 255  # characters of a console line
NOTHING = 0xFF  # the value read from an empty buffer: the low byte of C's EOF


class Receiver:
    """The robot's receive buffer and its parsers.

        header          a byte that does not continue it is consumed, and the match restarts at the NEXT byte, so
                        DE DE AD BE EF loses its packet
        packet          may arrive in parts. Mode, numbers and LED mode are read together, when all five are there; with
                        custom LEDs they act at once, and the next 48 bytes are read as LEDs, whatever they are
        buffer          a ring: unread bytes are lost by whole rings. Bytes across its end are counted as one more than
                        there are, so once in 1,024 bytes a packet may be read a byte too early; the missing byte is
                        read as FF and arrives later as junk

    Attributes:
        leds: The ring's 16 x (red, green, blue), as set by custom LED packets.
    """

    def __init__(self) -> None:
        self.leds = bytes(LEDS_SIZE)
        self._bytes = bytearray()
        self._place = 0  # of the first byte in the ring
        self._n_header = 0  # matched bytes of a header
        self._awaits_leds = False

    def receive(self, data: bytes) -> None:
        """Put received bytes into the buffer."""
        self._bytes += data
        del self._bytes[: len(self._bytes) // RING * RING]

    def controls(self) -> list[Control]:
        """Read the complete control packets and return them in order, without LEDs (`leds`)."""
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
        """Read the console's next line up to its CR or a zero byte; None if it is incomplete.

        Each call discards 255 characters of a longer line.
        """
        end = self._bytes.find(b"\r")
        if end > LONGEST_LINE:
            self._read(LONGEST_LINE)
            return None
        return None if end < 0 else self._read(end + 1)[:-1].partition(b"\0")[0]

    def _n_counted(self) -> int:
        """Return the number of buffered bytes by the firmware's faulty count."""
        n = len(self._bytes)
        return n + 1 if self._place + n >= RING else n

    def _read(self, n: int) -> bytes:
        data = bytes(self._bytes[:n])
        del self._bytes[:n]
        self._place = (self._place + len(data)) % RING
        return data + bytes([NOTHING]) * (n - len(data))
