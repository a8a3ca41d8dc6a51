"""`horde-robot emulate`: an emulated robot for programs in other processes."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from typing import Any

from horde_env import registry
from horde_env.emulation.emulator import RobotEmulator
from horde_env.emulation.lines import check_pty
from horde_env.errors import BackendUnavailable
from horde_env.robot import DEFAULT_ROBOT


def serve(
    *,
    tcp: str | None = None,
    drops: str | None = None,
    kind: str = DEFAULT_ROBOT,
    speed: float = 1.0,
    faults: str = "",
    seed: int = 0,
    battery_scale: float = 1.0,
    say: Callable[[str], None] = print,
    stop: threading.Event | None = None,
    typed: int | None = None,
) -> dict[str, int]:
    """Emulate a robot until Ctrl-C, or until `stop` is set; return the number of faults of each kind.

    There is always a pseudo terminal, except on Windows; `say` is called with its path first, then
    with the addresses. `typed` is the descriptor of lines that the user types: a fault, with or
    without its seconds, or a button, as "lift 12" or "clean". The other arguments are the options
    of `horde-robot emulate`.

    Raises:
        ValueError: If an argument is invalid.
        BackendUnavailable: If PyBullet is missing, if pseudo terminals are and there is no address,
            or if an address cannot be listened on.
    """
    make: Any = registry.robot(kind).emulator()
    drops_port = getattr(make, "drops_port", None)
    if drops is not None and drops_port is None:
        raise ValueError(f"drops is not possible: the {kind} has one line; leave --drops out")
    addresses = {"tcp": _address(tcp, None), "drops": _address(drops, drops_port)}
    if not 0.0 < speed < float("inf"):
        raise ValueError(f"speed must be positive and finite, not {speed}")
    if not any(addresses.values()):
        check_pty()
    stop = stop or threading.Event()
    with make(seed=seed, faults=make.faults.parse(faults), battery_scale=battery_scale) as emulator:
        for line in _open_lines(emulator, addresses):
            say(line)
        emulator.start(speed)
        if typed is not None:
            choices = ", ".join((*emulator.fault_counts, *emulator.buttons))
            say(f"type a fault, as `stall 0.5` (seconds), or a button: {choices}")
        try:
            while not stop.wait(0.2):
                if typed is not None:
                    typed = _begin_typed(emulator, typed, say)
                if not emulator.is_running:
                    raise RuntimeError("the emulated robot's thread has ended with the error above")
        except KeyboardInterrupt:
            pass
        counts: dict[str, int] = emulator.fault_counts
        return counts


def _open_lines(emulator: Any, addresses: dict[str, tuple[str, int] | None]) -> list[str]:
    """Open the emulator's lines, and return a text about each."""
    lines = []
    try:
        lines.append(f"serial   {emulator.open_pty()}   (parity none)")
    except BackendUnavailable:
        if not any(addresses.values()):
            raise
    if addresses["tcp"]:
        lines.append(f"serial   {emulator.listen(*addresses['tcp'])}")
    if addresses["drops"]:
        lines.append(f"drops    {emulator.listen_drops(*addresses['drops'])}")
    return lines


def _begin_typed(emulator: RobotEmulator, typed: int, say: Callable[[str], None]) -> int | None:
    """Begin the faults and press the buttons that were typed; return the descriptor, or None at its end."""
    # Reading would suspend a program in the background
    if os.isatty(typed) and os.tcgetpgrp(typed) != os.getpgrp():
        return typed
    if not select.select([typed], [], [], 0.0)[0]:
        return typed
    lines = os.read(typed, 4096).decode(errors="replace")
    for line in filter(str.strip, lines.splitlines()):
        fault, *seconds = line.split()
        try:
            if fault in emulator.buttons and not seconds:
                emulator.press(fault)
            else:
                emulator.inject(fault, *map(float, seconds))
        except (TypeError, ValueError) as error:
            say(f"{line!r} is neither a fault nor a button: {error}")
    return typed if lines else None


def _address(text: str | None, default_port: int | None) -> tuple[str, int] | None:
    """Return host and port of "HOST:PORT" or "PORT", or the default port for "" if there is one; None for None."""
    if text is None:
        return None
    if not text and default_port is not None:
        return "127.0.0.1", default_port
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"an address is HOST:PORT or PORT, not {text!r}")
    return host or "127.0.0.1", int(port)
