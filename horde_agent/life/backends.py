"""Robots and their backends by name, without the modules that they need."""

from __future__ import annotations

ONE_AT_A_TIME = ("serial", "drops")
"""Backends that are a physical robot: one life at a time."""

ROBOTS = {
    "critterbot": {
        "simulator": "CritterbotPen",
        "serial": "CritterbotSerial",
        "drops": "CritterbotDrops",
        "replay": "CritterbotReplay",
        "emulated": "CritterbotEmulated",
    },
    "create2": {"simulator": "CreatePen", "serial": "CreateSerial", "emulated": "CreateEmulated"},
}
"""Robots by name, and the environment of each of their backends."""
