"""The iRobot Create 2: its bytes, rules, body, guardian, emulator and simulator."""

from __future__ import annotations

from horde_env.robot import Environment

ENVIRONMENTS = {
    "simulator": Environment(
        "CreatePen-v0",
        "simulator.backend:SimulatedCreate",
        ("realtime", "battery_scale", "physics", "layout"),
    ),
    "serial": Environment(
        "CreateSerial-v0",
        "body:CreateBody",
        ("port", "robot", "signs", "latch", "settings", "baudrate", "guarded"),
    ),
    "emulated": Environment(
        "CreateEmulated-v0",
        "emulator.emulator:EmulatedCreate",
        (
            "realtime",
            "speed",
            "faults",
            "seed",
            "battery_scale",
            "physics",
            "layout",
            "latch",
            "settings",
        ),
    ),
}
