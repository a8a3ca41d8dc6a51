"""An emulated robot and its host on one virtual clock: the same bytes every time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from horde_env.emulation.lockstep import LockstepClock, MemoryLine
from horde_env.errors import BackendUnavailable
from horde_env.hardware.port import Port
from horde_env.hardware.settings import LinkSettings, PortConfig
from horde_env.robots.critterbot import stream
from horde_env.robots.critterbot.body import SERIAL, SerialBody, send_stop, turns
from horde_env.robots.critterbot.emulator.driver import MemoryDropsLine
from horde_env.robots.critterbot.emulator.emulator import Emulator
from horde_env.robots.critterbot.stream import StateParser
from horde_env.robots.critterbot.wire import Control, encode_control
from tests.env.critterbot.emulated import SPEC, setpoints, wake
from tests.env.hardware.peers import open_port

pytestmark = [pytest.mark.sim, pytest.mark.hardware]

LINES = ["serial", "drops"]


def joined(emulator: Emulator, line: MemoryLine) -> LockstepClock:
    """Return the clock of an emulator with this line."""
    clock = LockstepClock()
    emulator.add(line)
    clock.join(emulator, line)
    return clock


class Host:
    """A host that sends a command at the start of each step and returns the readings."""

    def __init__(self, line: str = "serial", **rest: Any) -> None:
        self.emulator, self.is_drops = Emulator(**rest), line == "drops"
        wake(self.emulator.robot)
        self.line = MemoryDropsLine(clock=self.emulator.drops_time) if self.is_drops else MemoryLine()
        self.clock = joined(self.emulator, self.line)
        self.port = self.open()
        self.clock.sleep(0.1)
        self.clock.start()

    def open(self) -> Port:
        parser = stream.StateDropParser() if self.is_drops else StateParser()
        config = PortConfig(self.line.url, parity="none")
        return open_port(config, self.clock.monotonic, parser=parser, connect=self.line.connect)

    def step(self, control: Control) -> Any:
        self.clock.begin()
        self.port.write(stream.encode_control_drop(control) if self.is_drops else encode_control(control))
        self.clock.wait()
        return self.port.readings()[-1]

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.port.close()
        self.emulator.close()


@pytest.mark.parametrize("line", LINES)
def test_every_step_sees_the_packet_of_its_deadline(line: str) -> None:
    with Host(line) as host:
        first = host.port.readings()[-1].number
        for k in range(1, 51):
            reading = host.step(Control(1, 20))
            assert reading.number == first + 10 * k
            assert reading.t == host.clock.monotonic()
        counts = host.port.counts
        assert (counts.crc_errors, counts.skipped_bytes) == (0, 0)


def test_a_command_acts_in_its_own_step() -> None:
    """Read at the end of the first cycle, it drives for nine of ten: 90 % of the simulator's step, and not the next."""
    with Host() as host:
        for _ in range(15):
            host.step(Control(0))
        reading = host.step(Control(2, 30))  # no more, or the current limit would show
        assert reading.state.raw[SPEC.index("motor_voltage_100")] == 30
        assert host.emulator.robot.control == Control(2, 30)


OWN_WAYS = {
    "at its console": b"recharge start\r",
    "among its packets": b"recharge start\rmi on\r",
}


@pytest.mark.parametrize("way", OWN_WAYS)
def test_horde_robot_stop_ends_what_the_console_began(way: str) -> None:
    """No packet ends the robot's own way to its dock: without the way over the console it would drive on for ever."""
    with Emulator(seed=3) as emulator:
        line = MemoryLine()
        clock = joined(emulator, line)
        for _ in range(130):
            emulator.advance(look=False)
        emulator.robot.receive(OWN_WAYS[way])
        clock.sleep(0.4)
        assert setpoints(emulator.robot) != [0, 0, 0]
        config = PortConfig(line.url, parity="none")
        state = send_stop(config, SERIAL, clock.monotonic, clock.sleep, connect=line.connect)
        assert state is not None
        assert not turns(state, SPEC)
        for _ in range(100):
            emulator.advance(look=False)
            assert setpoints(emulator.robot) == [0, 0, 0]


def test_a_body_ends_the_way_to_the_dock_of_a_robot_that_it_finds_at_its_console() -> None:
    with Emulator(seed=3) as emulator:
        line = MemoryLine()
        clock = joined(emulator, line)
        emulator.robot.receive(b"recharge start\r")
        clock.sleep(1.0)
        time_of: dict[str, Any] = {"monotonic": clock.monotonic, "sleep": clock.sleep, "connect": line.connect}
        settings = LinkSettings(threaded=False)
        body = SerialBody(PortConfig(line.url, parity="none"), clock, settings=settings, **time_of)
        body.reset(np.random.default_rng(0))
        assert not emulator.robot.recharging
        assert setpoints(emulator.robot) == [0, 0, 0]
        body.close()


def test_the_next_host_finds_nothing_that_the_last_one_left() -> None:
    with Host() as host:
        host.step(Control(1, 20))
        host.port.close()
        host.clock.sleep(0.5)
        host.port = host.open()
        host.clock.sleep(0.05)
        assert host.port.counts == (5 * 83, 5, 0, 0)
        with pytest.raises(BackendUnavailable, match="in use"):
            host.open()


def test_a_reading_has_the_time_of_its_own_packet_where_the_line_may_fall_silent() -> None:
    """Silent from 30 ms before the deadline until 30 ms after it: six packets, a gap, that neither step alone shows."""
    with Host(faults={"stall": 1e-9}) as host:
        emulator, advance, start = host.emulator, host.emulator.advance, host.emulator.robot.n_cycles

        def advance_and_fall_silent(**rest: bool) -> None:
            if emulator.robot.n_cycles == start + 7:
                emulator.inject("stall", for_s=0.06)
            advance(**rest)

        emulator.advance = advance_and_fall_silent  # type: ignore[method-assign]
        before = host.step(Control(0))
        assert before.t == pytest.approx(host.clock.monotonic() - 0.03)
        after = host.step(Control(0))
        assert after.t - before.t == pytest.approx(0.13)
        assert after.number - before.number == 7
