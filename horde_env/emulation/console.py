"""The microcontroller's text console, which it shows after a reset: lines end in CR alone, nothing is echoed.

Source: the Critterbot's ARM firmware of June 2011 (lib_ui.c, lib_events.c, armio.c). Commands that look at a
chip, flash it, or move the robot by itself answer with a prompt here and do nothing.
"""

from __future__ import annotations

from horde_env.sim.machine import Machine

PROMPT = b"critterprompt> "
N_EVENTS = 14  # the firmware's tasks beside the console itself

HELP = {
    "help": "Do you need help?",
    "status": "status",
    "error": "error [clear]",
    "motor": "motor [motor1speed] [motor2speed] [motor3speed]",
    "mi": "mi on",
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
        "recharge",
        "bootloader",
    ]
)


def banner() -> bytes:
    """Return what the microcontroller says after a reset, the first prompt included."""
    tasks = "".join(f"Initialized EVENT_ID {i}\r" for i in range(1, N_EVENTS + 1))
    text = f"\r\r\r------------CritterBOOT-------------\r\rLast reset was a power-up reset.\r{tasks}"
    return text.encode("ascii") + PROMPT


def answer(line: bytes, machine: Machine, errors: int) -> tuple[bytes, str]:
    """Return the console's answer to one line, and what the microcontroller is to do: "", "mi on" or "reset now".

    Args:
        line: What was typed, without its CR.
        machine: The robot: `avr` enables charging, `status` looks at it.
        errors: The error flags so far.
    """
    text = line.decode("latin-1")
    words = text.split()
    name = words[0] if words else ""
    says, does = "", ""
    if name == "help":
        says = "List of commands and usage: \r" + "".join(f"{key} - {usage}\r" for key, usage in HELP.items())
    elif name == "status":
        says = _status(machine, errors)
    elif name == "error":
        says = f"Error status: {errors:x}\r"
    elif name == "avr" and words[1:] in (["0"], ["1"]):
        machine.power.charging_enabled = words[1] == "1"
    elif words in (["mi", "on"], ["reset", "now"]):
        does = " ".join(words)
    elif name not in HELP and name not in SILENT:
        says = f'Invalid command: "{text}"\r'
    return b"\r" + says.encode("latin-1") + PROMPT, does


def _status(machine: Machine, errors: int) -> str:
    """Return the console's report."""
    power = machine.power
    volts = " ".join(str(round(10 * v)) for v in power.battery_v)
    return (
        f"Last reset was a power-up reset.\rError status: {errors:x}\rSystem Voltage: {power.bus_byte}\r"
        f"Charge State: {power.state}\rBattery Voltages: {volts}\r\r"
    )
