"""Who talks in a Critterbot's place, in one sentence or two; and what its readings cannot tell."""

from __future__ import annotations

import string
from urllib.parse import urlsplit

from horde_env.hardware.readings import Counts
from horde_env.hardware.settings import PortConfig
from horde_env.robots.critterbot import drops, wire

IR_LIGHT_NOTE = (
    "The firmware sends IR light modulo 256: its top two bits are guessed by continuity, and wrong where a reading "
    "passes 255 between two packets or across lost ones."
)
DROPS_NOTES = (
    "The driver's IR distance is the high eight of ten bits OR the low two: restored to 3.3 of 1023 r.m.s., no better.",
    "With its terminal's defaults the driver changes every byte 0D of the robot's into 0A, which cannot be told.",
    "The driver obeys any number of programs, the newest command of all: another one that drives is not noticed.",
)


def explain_parting(config: PortConfig, heard: bytes, reason: str, woken: bool) -> str:
    """Say that a port was lost before the robot had answered.

    So does a server that serves one client at a time, and the robot's on-board driver where it is not sent whole drops;
    `woken` where the bytes of the serial line were spoken.
    """
    url = config.url
    if woken and drops.STATE_NAME in heard:
        return _SENDS_DROPS.format(url)
    said = f"{url} was lost before the robot answered: {reason}."
    if not url.startswith("socket://"):
        return said
    if woken and urlsplit(url).port in (drops.ROBOT_PORT, drops.SIMULATOR_PORT):
        return f"{said} {urlsplit(url).port} is the port of the robot's own driver: use the drops backend there."
    rival = "Does another program drive the robot already"
    return f"{said} {rival}, or does its own driver listen there (backend drops)?" if woken else f"{said} {rival}?"


_SENDS_DROPS = "{} sends drops, not the bytes of the serial line: use the drops backend there."


def explain_silence(config: PortConfig, heard: bytes, counts: Counts, woken: bool) -> str:
    """Say what came instead of a robot's packets; `woken` where they were asked for (a serial line, not drops)."""
    url, asked = config.url, ", not even after `mi on`" if woken else ""
    opened = f" It was opened as {config.line}; the robot speaks 115200 8O1."
    if url.startswith("socket://"):  # has neither baud rate nor parity
        opened = ""
    if not heard:
        return f"nothing comes from {url}{asked}. Is the robot switched on, and is this its port?"
    if woken and drops.STATE_NAME in heard:
        return _SENDS_DROPS.format(url)
    if not woken and wire.HEADER in heard:
        return f"{url} sends the bytes of the serial line, not drops: use the serial backend there."
    if counts.crc_errors:
        return (
            f"packets come from {url}, but the checksum of each was wrong ({counts.crc_errors} of them). Is the line "
            f"noisy, or shared with another program?{opened}"
        )
    text = heard[:60].decode("ascii", errors="replace")
    if "critterprompt" in heard.decode("ascii", errors="replace"):
        return f"the robot's console answers at {url}, but sends no packets{asked}: reset the robot. It said {text!r}."
    if all(character in string.printable for character in text):
        return f"{url} is not the robot: it says {text!r}."
    cause = "Wrong baud rate or parity, or not the robot?" if opened else "Is it the robot's port?"
    return f"{counts.n_bytes} bytes came from {url} but no packet, the first {heard[:8].hex(' ')}. {cause}{opened}"
