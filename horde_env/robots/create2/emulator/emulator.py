"""The emulated Create 2: its program and simulated body behind lines for hosts.

with CreateEmulator(seed=0) as robot:
    path = robot.open_pty()        # or listen()
    robot.start()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.random import Generator

from horde_env.emulation.emulated import EmulatedRobot
from horde_env.emulation.emulator import RobotEmulator
from horde_env.emulation.faults import LineFaults
from horde_env.robots.create2.arena import Room, load_room
from horde_env.robots.create2.body import CreateBody
from horde_env.robots.create2.simulator import tick
from horde_env.robots.create2.simulator.firmware import BUTTONS, Firmware
from horde_env.robots.create2.simulator.machine import Machine, check_physics
from horde_env.robots.create2.wire import FRAME_SIZE, PASSIVE, SAFE, TICK_S

TEXT = b"\r\nnvm-write 57 us\r\nbattery-current-zero 252\r\n"
# Faults that are an amount of the machine: its attribute, and the value while the fault lasts.
AMOUNTS = {
    "low_battery": ("sag_v", 3.0),
    "lift": ("lifted_s", 3600.0),
    "cliff": ("cliff_s", 3600.0),
}


class CreateFaults(LineFaults):
    """The Create 2's faults.

    In addition to `LineFaults`: `lift` (wheels drop), `cliff`, `sleep`, `mode` (it leaves Safe
    without a message), `text` (within the stream). `heat` has no effect.
    """

    kinds = (*LineFaults.kinds, "lift", "cliff", "sleep", "mode", "text")
    tick_s = TICK_S
    packet_size = FRAME_SIZE
    lasting_s = {  # noqa: RUF012
        "stall": (0.05, 0.8),
        "unplug": (0.3, 2.0),
        "low_battery": (1.0, 4.0),
        "heat": (1.0, 2.0),
        "stuck_wheel": (0.5, 3.0),
        "lift": (0.3, 2.0),
        "cliff": (0.3, 2.0),
        "sleep": (1.0, 3.0),
        "mode": (0.1, 0.2),
        "text": (0.1, 0.2),
    }

    def begin(self, kind: str) -> None:
        """Start a lasting fault of the robot itself."""
        robot: Firmware = self._robot
        if kind in AMOUNTS:
            setattr(robot.machine, *AMOUNTS[kind])
        elif kind == "stuck_wheel":
            robot.machine.stuck = 1 + int(self._rng.integers(2))
        elif kind == "sleep":
            robot.fall_asleep()
        elif kind == "mode" and robot.mode == SAFE:
            robot.enter(PASSIVE)
        elif kind == "text" and not robot.is_asleep:
            robot.extra = TEXT

    def end(self, kind: str) -> None:
        """End a lasting fault of the robot itself."""
        robot: Firmware = self._robot
        if kind in AMOUNTS:
            setattr(robot.machine, AMOUNTS[kind][0], 0.0)
        elif kind == "stuck_wheel":
            robot.machine.stuck = 0
        elif kind == "sleep":
            robot.rouse()


def slight_delays(rng: Generator, sd_s: float = 2e-4) -> Iterator[float]:
    """Yield endlessly a packet's delay by the host's scheduler, in seconds."""
    while True:
        yield from (abs(wait_s) for wait_s in rng.normal(0.0, sd_s, 256).tolist())


class CreateEmulator(RobotEmulator):
    """The Create 2 at a random pose in its room, in Off, with faults, on any number of lines; see `RobotEmulator`.

    `seed` is that of pose, noise, faults and jitter; `battery_scale` a factor on the battery's
    capacity; `faults` are rates of random faults per second, by name. Without `room` it is that of
    `assets/room.toml`.
    """

    kind = "create2"
    faults = CreateFaults
    buttons = tuple(BUTTONS)

    def __init__(
        self,
        *,
        seed: int = 0,
        room: Room | None = None,
        battery_scale: float = 1.0,
        faults: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        robot_rng, of_faults, jitter = np.random.default_rng(seed).spawn(3)
        machine = Machine(room, battery_scale=battery_scale)
        robot = Firmware(machine, robot_rng)
        _compile(robot)
        robot.n_cycles = 0
        machine.place_freely(robot_rng)
        super().__init__(
            robot, CreateFaults(robot, faults, of_faults), slight_delays(jitter), TICK_S
        )


def _compile(robot: Firmware) -> None:
    """Run a tick and read the sensors before the robot is placed, so that no kernel is compiled while a host waits."""
    robot.cycle()
    tick.is_triggered(robot.machine.read(), False, 0.0, 0.0)


# ---- the backend -----------------------------------------------------------------------------------------------------


class EmulatedCreate(EmulatedRobot):
    """The Create 2's body connected to an emulated Create 2; see `EmulatedRobot` and `make.make_env`."""

    make_emulator = CreateEmulator
    make_body = CreateBody
    of_the_body = MappingProxyType({"may_stand_on_dock": True})
    notes = CreateBody.notes
    command_monitor = CreateBody.command_monitor

    def __init__(
        self, *, layout: str | Path | None = None, physics: str | None = None, **common: Any
    ) -> None:
        check_physics(physics)
        self.room = load_room(layout)
        super().__init__(room=self.room, **common)
