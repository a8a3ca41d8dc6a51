"""What is wrong with a Create 2, in one sentence or two with the remedy."""

from __future__ import annotations

import string

from horde_env.hardware.diagnosis import NO_ROOM
from horde_env.hardware.readings import Counts
from horde_env.hardware.settings import PortConfig

NOTES = (
    "The encoders have one channel: their sign is that of the command, so that pushing by hand counts forward and the "
    "last counts after a reversal run the wrong way.",
    "A frame's checksum is one byte: damage that keeps it, and every reading in its range, cannot be told.",
    "The robot has no command timeout: if the program and its guardian both die, the wheels turn on.",
)
BANNERS = ("Roomba by iRobot", "bl-start", "Soft reset", "bat:")


def explain_silence(config: PortConfig, heard: bytes, counts: Counts) -> str:
    """Say what came instead of the robot's frames."""
    url = config.url
    if not heard:
        return (
            f"nothing comes from {url}. Is the robot asleep or off (press its Clean button once, off the dock), is "
            f"this its port, or is it a Create 1 or Roomba 400 (57600 baud, no such packets) or a model without the "
            f"Open Interface (i, s, j, Create 3)?"
        )
    text = heard[:80].decode("ascii", errors="replace")
    if any(banner in heard.decode("ascii", errors="replace") for banner in BANNERS):
        return (
            f"the robot at {url} is off and prints {text!r}, but takes no commands: is the wire to its RXD broken, or "
            f"the cable's TX and RX swapped? Take its battery out for ten seconds, then try again."
        )
    if counts.crc_errors:
        return (
            f"frames come from {url}, but the checksum of each was wrong ({counts.crc_errors} of them). Is the line "
            f"noisy, or shared with another program?"
        )
    if all(character in string.printable for character in text):
        return f"{url} is not the robot: it says {text!r}."
    return (
        f"{counts.n_bytes} bytes came from {url} but no frame, the first {heard[:8].hex(' ')}. Wrong baud rate, or not "
        f"this robot? It was opened at {config.baudrate} baud. A Create 2 at 19200 baud, at which its stream does not "
        f"fit, is back at 115200 after ten seconds without its battery."
    )


def explain_parting(config: PortConfig, reason: str) -> str:
    """Say that a port was lost before the robot had answered."""
    rival = "" if reason.startswith(NO_ROOM) else " Does another program drive the robot already?"
    return f"{config.url} was lost before the robot answered: {reason}.{rival}"


def explain_docked(config: PortConfig) -> str:
    """Say that the robot stands on its dock."""
    return (
        f"the robot at {config.url} stands on its dock, where the modes in which it can be driven discharge it; it was "
        f"left in Passive, charging. Put it on the floor, a metre from the dock, and start again."
    )


SWAPPED = (
    "left and right encoder are swapped, as on some Roomba 500; `horde-robot check --save` keeps that, and they are "
    "put right from then on"
)
