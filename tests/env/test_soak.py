"""A short soak: a life among faults of every kind, and what its host made of them held against what its robot did."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from horde_env.backend import Frame
from horde_env.env import RobotEnv
from horde_env.robot import Floats
from horde_env.robots.critterbot.body import SerialBody
from horde_env.robots.critterbot.emulator.emulator import LASTING_S, EmulatedBody, Faults
from horde_env.robots.critterbot.emulator.microcontroller import WATCHDOG_CYCLES
from horde_env.robots.critterbot.simulator import firmware, motors
from horde_env.robots.critterbot.wire import COAST, HALT

pytestmark = [pytest.mark.sim, pytest.mark.hardware]

OFTEN = "loss=2,flip=2,burst=2,stall=0.4,unplug=0.2,reboot=0.1,low_battery=0.05,heat=0.05,stuck_wheel=0.3"
# Heat and low voltage: the packet, the supervisor's verdict, the frame of the command after it
SHOWN_AFTER_S = 0.3
# A cut must have shown in a frame for so long after its end: the handshake of a robot at its
# console
NOTICED_S = 2.5
STOPPED_CYCLES = 200  # of stops alone, in which every ramp ends: 2 s from 100 units to -100
SILENT_CYCLES = 300  # without a command, in which the robot's patience and every ramp end


@dataclass
class Event:
    """A fault that lasts, or a reboot; when it began and ended, and whether a frame has shown it."""

    kind: str
    begin: float
    end: float = np.inf
    shown: bool = False


class WatchedBody(EmulatedBody):
    """An emulated body that looks at its robot and its frames; `wrong` counts what must never happen."""

    def __init__(self, **rest: Any) -> None:
        super().__init__(**rest)
        self.wrong = Counter[str]()
        self.seen = Counter[str]()
        self.events: list[Event] = []
        self._open: list[Event] = []
        self.n_reconnects = 0

    def exchange(self, command: Floats) -> Frame:
        frame = super().exchange(command)
        t = self.emulator.t
        if frame.extras["reconnects"] > self.n_reconnects and not frame.stale:
            self.n_reconnects = frame.extras["reconnects"]
            self.wrong["return without a gap"] += not frame.gap
        for event in self._open:
            if event.kind in ("heat", "low_battery"):
                event.shown |= not frame.applied
                warned = event.begin + SHOWN_AFTER_S < t <= event.end
                self.wrong["moving in heat or on a low bus"] += (
                    warned and frame.applied and not frame.stale
                )
            else:
                event.shown |= (
                    frame.gap or frame.stale or (event.kind == "reboot" and not frame.applied)
                )
        self._open = [event for event in self._open if t <= event.end + NOTICED_S]
        return frame

    def _connect(self, emulator: Any) -> SerialBody:
        body = super()._connect(emulator)
        robot = emulator.robot
        faults = emulator._faults
        firm = emulator.robot.machine.firmware
        cycle = robot.cycle
        tick = faults.tick
        command = firm.command
        silent = stopping = 0

        def watched_command(mode: int, *values: int) -> None:
            nonlocal silent
            if mode <= firmware.WHEEL_VOLTAGE:
                silent = -1
            command(mode, *values)

        def watched_cycle(look: bool = True) -> bytes:
            nonlocal silent, stopping
            packet: bytes = cycle(look)
            # A hung one's motor boards have a timeout of their own
            if robot.is_hung:
                silent = 0
            else:
                silent = silent + 1
            if robot.control in (HALT, COAST) and not robot.is_hung:
                stopping = stopping + 1
            else:
                stopping = 0
            is_moving = bool(firm.wheels[firmware.SETPOINT].any())
            self.wrong["motor that runs on under a stop"] += stopping > STOPPED_CYCLES and is_moving
            self.wrong["motor that runs on in silence"] += silent > SILENT_CYCLES and is_moving
            self.seen["stop in silence"] += silent == SILENT_CYCLES
            return packet

        def watched_tick() -> None:
            previous_counts = dict(faults.counts)
            is_open = body._link is not None and body._link.is_open
            tick()
            for kind in ({*LASTING_S} - {"stuck_wheel"}) | {"reboot"}:  # which no frame shows
                if faults.counts[kind] > previous_counts[kind]:
                    if kind == "reboot":
                        end = emulator.t + WATCHDOG_CYCLES * motors.TICK_S
                    else:
                        end = np.inf
                    self.events.append(Event(kind, emulator.t, end))
                    self._open.append(self.events[-1])
                    self.seen["unplug of an open link"] += kind == "unplug" and is_open
            for event in self._open:
                if event.end == np.inf and not faults.is_on(event.kind):
                    event.end = emulator.t

        robot.cycle = watched_cycle
        faults.tick = watched_tick
        firm.command = watched_command
        return body


@pytest.mark.parametrize("link", ["serial", "drops"])
def test_a_life_among_faults_of_every_kind_is_sound(
    link: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Every fault is seen, motors stop in time, and steps are whole again after each loss."""
    n_faults = 150 if link == "serial" else 320  # fewer of those of drops lose the link
    body = WatchedBody(link=link, faults=OFTEN, seed=0, speed=None)
    rng = np.random.default_rng(0)
    action = 4
    # Number of reconnections before -> steps from which a learner would learn
    whole: dict[int, int] = {}

    def live(n_steps: int) -> None:
        nonlocal action
        for _ in range(n_steps):
            if rng.random() > 0.5:
                action = int(rng.integers(5))
            info = env.step(action)[4]
            assert info["obeyed"], "a working robot is said to ignore its commands"
            is_whole = info["applied"] and not info["stale"] and not info["gap"]
            whole[body.n_reconnects] = whole.get(body.n_reconnects, 0) + is_whole

    with RobotEnv(body, body.clock, spec=body.spec) as env:
        env.reset(seed=1)  # that of seed 0 falls into a reboot, and is refused
        while sum(body.emulator.fault_counts.values()) < n_faults:
            live(50)
        for kind in Faults.kinds:
            if not body.emulator.fault_counts[kind]:
                body.emulator.inject(kind)
                live(50)
        body.emulator.inject("unplug", for_s=4.0)
        live(100)
        body.emulator._faults._share = [0.0] * len(body.emulator._faults._share)
        live(200)
        counts = body.emulator.fault_counts
        stats = body.body.stats
        assert body.body._link.is_open

    assert +body.wrong == {}
    assert [event for event in body.events if not event.shown] == []
    assert all(counts[kind] > 0 for kind in Faults.kinds)
    assert stats.reconnects == stats.losses >= body.seen["unplug of an open link"] > 0
    assert body.seen["stop in silence"] > 0
    assert len(whole) == 1 + body.n_reconnects > 1
    resumed = [n > 1 for n in whole.values()]  # not where one loss follows another
    assert resumed[-1]
    assert sum(resumed) > 2
    assert [
        r.message
        for r in caplog.records
        if r.name.startswith("horde_env") and r.levelname == "ERROR"
    ] == []
