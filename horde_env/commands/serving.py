"""serve: an emulated robot for hosts in other processes (`horde-robot emulate`)."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

from horde_env.emulation.emulator import RobotEmulator
from horde_env.emulation.faults import FaultRates
from horde_env.robots.critterbot.emulator.emulator import Emulator
from horde_env.robots.critterbot.stream import ROBOT_PORT


def serve(
    *,
    tcp: str | None = None,
    drops: str | None = None,
    kind: str = "critterbot",
    speed: float = 1.0,
    faults: str = "",
    seed: int = 0,
    battery_scale: float = 1.0,
    say: Callable[[str], None] = print,
    stop: threading.Event | None = None,
    typed: int | None = None,
) -> dict[str, int]:
    """Emulate a robot until Ctrl-C, or until `stop` is set; return how often each fault has happened.

    There is always a pseudo terminal; `say` tells its path first, then the addresses.

    Args:
        tcp: "HOST:PORT" or "PORT" to serve the bytes of the serial line on.
        drops: "HOST:PORT" or "PORT" to serve drops on; "" for the driver's own port, 2330.
        kind: Which robot, one of `robot.ROBOTS`.
        speed: How many of the robot's seconds pass per second.
        faults: Rates per second of the robot's time, as "loss=0.5,unplug=0.01" (`FaultRates.parse`).
        seed: Of everything random.
        battery_scale: Factor on the batteries' capacity.
        say: Takes a line of text for the user.
        stop: Ends it.
        typed: Descriptor from which lines are read: a fault, with its seconds or without, or a button, as "lift 12" or
            "clean"; None for nothing.

    Raises:
        ValueError: If an argument makes no sense.
        BackendUnavailable: If PyBullet or pseudo terminals are missing, or an address cannot be listened on.
    """
    if drops is not None and kind != "critterbot":
        raise ValueError(f"--drops belongs to the Critterbot; the {kind} has one line")
    make = _critterbot if kind == "critterbot" else _create2
    addresses = {name: _address(text) for name, text in (("tcp", tcp), ("drops", drops)) if text is not None}
    if not 0.0 < speed < float("inf"):
        raise ValueError(f"speed must be positive and finite, not {speed}")
    stop = stop or threading.Event()
    with make(seed, faults, battery_scale) as emulator:
        say(f"serial   {emulator.open_pty()}   (parity none)")
        if "tcp" in addresses:
            say(f"serial   {emulator.listen(*addresses['tcp'])}")
        if "drops" in addresses and isinstance(emulator, Emulator):
            say(f"drops    {emulator.listen_drops(*addresses['drops'])}")
        emulator.start(speed)
        if typed is not None:
            what = ", ".join((*emulator.fault_kinds, *emulator.buttons))
            say(f"type a fault, as `stall 0.5` (seconds), or a button: {what}")
        try:
            while not stop.wait(0.2):
                if typed is not None:
                    typed = _do_typed(emulator, typed, say)
                if not emulator.is_running:
                    raise RuntimeError("the emulated robot's thread has died, of the error above")
        except KeyboardInterrupt:
            pass
        return emulator.fault_counts


def _do_typed(emulator: RobotEmulator, typed: int, say: Callable[[str], None]) -> int | None:
    """Do what the lines that were typed ask for; return the descriptor, or None at its end."""
    if os.isatty(typed) and os.tcgetpgrp(typed) != os.getpgrp():  # reading would suspend a program in the background
        return typed
    if not select.select([typed], [], [], 0.0)[0]:
        return typed
    lines = os.read(typed, 4096).decode(errors="replace")
    for line in filter(str.strip, lines.splitlines()):
        try:
            _do(emulator, *line.split())
        except (TypeError, ValueError) as error:
            say(f"{line!r} is no fault and no button: {error}")
    return typed if lines else None


def _do(emulator: RobotEmulator, what: str, seconds: str | None = None) -> None:
    """Press a button, or let a fault begin."""
    if what in emulator.buttons and seconds is None:
        emulator.press(what)
    else:
        emulator.inject(what, None if seconds is None else float(seconds))


def _critterbot(seed: int, faults: str, battery_scale: float) -> RobotEmulator:
    return Emulator(seed=seed, faults=FaultRates.parse(faults), battery_scale=battery_scale)


def _create2(seed: int, faults: str, battery_scale: float) -> RobotEmulator:
    from horde_env.robots.create2.emulator.emulator import CreateEmulator, CreateFaultRates

    return CreateEmulator(seed=seed, faults=CreateFaultRates.parse(faults), battery_scale=battery_scale)


def _address(text: str) -> tuple[str, int]:
    """Return the host and the port of "HOST:PORT", "PORT" or "" (the driver's port)."""
    host, _, port = text.rpartition(":")
    if not (port.isdigit() or not text) or int(port or 0) > 65_535:
        raise ValueError(f"an address is HOST:PORT or PORT, not {text!r}")
    return host or "127.0.0.1", int(port) if text else ROBOT_PORT
