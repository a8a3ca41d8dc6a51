"""The Critterbot of White, Modayil & Sutton (2012): its bytes, rules, body, emulator and simulator."""

from __future__ import annotations

from horde_env.robot import Environment

_PHYSICAL = ("port", "robot", "signs", "latch", "settings")
ENVIRONMENTS = {
    "simulator": Environment(
        "CritterbotPen-v0",
        "simulator.backend:SimulatedBody",
        ("realtime", "battery_scale", "physics", "lamp_moves", "friction_changes"),
        "simulator.batch:BatchState",
    ),
    "serial": Environment(
        "CritterbotSerial-v0", "body:SerialBody", (*_PHYSICAL, "parity", "baudrate")
    ),
    "drops": Environment("CritterbotDrops-v0", "body:DropsBody", _PHYSICAL),
    "emulated": Environment(
        "CritterbotEmulated-v0",
        "emulator.emulator:EmulatedBody",
        (
            "link",
            "realtime",
            "speed",
            "faults",
            "seed",
            "battery_scale",
            "physics",
            "latch",
            "settings",
        ),
    ),
    "replay": Environment("CritterbotReplay-v0", "log:recording", ("log", "realtime")),
}
