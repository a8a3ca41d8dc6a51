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

from horde_env.sim.machine import Machine

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
