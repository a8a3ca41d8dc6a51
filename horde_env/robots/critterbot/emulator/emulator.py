"""The emulated Critterbot: its microcontroller's program over the simulator, behind lines for hosts.

    with Emulator(seed=0) as robot:
        path = robot.open_pty()        # or listen(), or listen_drops()
        robot.start()                  # real time; or in lockstep with its host, see `lockstep.LockstepClock`

It sends the same bytes as the robot, at 100 Hz with the jitter of the real robot's log, and has its
firmware's faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.random import Generator

from horde_env.emulation.emulated import EmulatedRobot
from horde_env.emulation.emulator import RobotEmulator
from horde_env.emulation.faults import LineFaults
from horde_env.emulation.lines import Line
from horde_env.robots.critterbot.body import DropsBody, SerialBody
from horde_env.robots.critterbot.emulator.driver import DropsLine, MemoryDropsLine
from horde_env.robots.critterbot.emulator.microcontroller import FRAMING, PARITY, Microcontroller
from horde_env.robots.critterbot.simulator import firmware, motors
from horde_env.robots.critterbot.simulator.backend import START_M
from horde_env.robots.critterbot.simulator.motors import TICK_S
from horde_env.robots.critterbot.simulator.period import NO_WHEEL
from horde_env.robots.critterbot.stream import ROBOT_PORT
from horde_env.robots.critterbot.wire import HALT, STATE_SIZE, encode_control
from horde_env.sim.physics import resolve_physics

UNSET_CLOCK_S = 1_325_376_000.0  # 1 January 2012
# Below the supervisor's limit, above the 12.0 V at which the robot's power board shuts down
LOW_BUS_V = 12.2
HOT = 55.0  # temperature byte, lower is hotter: the firmware stops the motors below 65
LASTING_S = {
    "stall": (0.05, 0.8),
    "unplug": (0.3, 2.0),
    "low_battery": (1.0, 4.0),
    "heat": (1.5, 4.0),
    "stuck_wheel": (0.5, 3.0),
}


class Faults(LineFaults):
    """The Critterbot's faults; a reboot is a hang of 3 s, until its watchdog resets it. See `LineFaults`."""

    tick_s = motors.TICK_S
    packet_size = STATE_SIZE
    lasting_s = LASTING_S
    error_flags = {"flip": PARITY, "burst": PARITY | FRAMING}  # noqa: RUF012

    def __init__(self, robot: Microcontroller, rates: Mapping[str, float], rng: Generator) -> None:
        super().__init__(robot, rates, rng)
        self._heat = [0.0, 0.0, 0.0]

    def begin(self, kind: str) -> None:
        """Start a lasting fault of the robot itself."""
        machine = self._robot.machine
        if kind == "low_battery":
            machine.power.sag_v = max(machine.power.bus_v - LOW_BUS_V, 0.0)
        elif kind == "stuck_wheel":
            machine.stuck = int(self._rng.integers(3))
        elif kind == "heat":
            bytes_now = machine.firmware.wheels[firmware.TEMPERATURE].tolist()
            self._heat = [max(byte - HOT, 0.0) for byte in bytes_now]
            machine.motion[motors.HEAT] += self._heat

    def end(self, kind: str) -> None:
        """End a lasting fault of the robot itself."""
        machine = self._robot.machine
        if kind == "low_battery":
            machine.power.sag_v = 0.0
        elif kind == "stuck_wheel":
            machine.stuck = NO_WHEEL
        elif kind == "heat":
            machine.motion[motors.HEAT] -= self._heat


class Emulator(RobotEmulator):
    """The Critterbot at a random pose in its pen, with faults, on any number of lines; see `RobotEmulator`.

    `seed` is that of pose, noise, faults and jitter; `battery_scale` a factor on the batteries'
    capacity; `faults` are rates of random faults per second, by name.
    """

    kind = "critterbot"
    faults = Faults
    drops_port = ROBOT_PORT

    def __init__(
        self,
        *,
        seed: int = 0,
        battery_scale: float = 1.0,
        physics: str | None = None,
        faults: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        robot_rng, of_faults, jitter = np.random.default_rng(seed).spawn(3)
        robot = Microcontroller(battery_scale=battery_scale, physics=physics)
        _compile(robot)
        x, y = robot_rng.uniform(-START_M, START_M, 2)
        robot.boot(robot_rng, float(x), float(y), float(robot_rng.uniform(-np.pi, np.pi)))
        super().__init__(robot, Faults(robot, faults, of_faults), packet_delays(jitter), TICK_S)

    def drops_time(self) -> float:
        """Return the on-board driver's time in seconds, as of a clock that was never set."""
        return UNSET_CLOCK_S + self.t

    def listen_drops(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Serve drops over TCP, as the robot's on-board driver does, and return the url."""
        return self.add(DropsLine(host, port, clock=self.drops_time))


def _compile(robot: Microcontroller) -> None:
    """Run two cycles before `boot`, so that no kernel is compiled while a host waits."""
    robot.in_mi = True
    robot.receive(encode_control(HALT))
    for _ in range(2):
        robot.cycle()


# ---- packet times ----------------------------------------------------------------------------------------------------

# Packet delays in ms, fitted to the intervals in the real robot's log: most below 1 ms, some half a
# cycle (the log's host was busy), and none shorter than the transmission of the packet before.
# Percentiles of log | model: p1 7 | 8, p5 8 | 8, median 10 | 10, p95 14 | 14, p99 18 | 18.
LATE_SD_MS = 0.7
LATE_SHARE = 0.06
LATE_MS = (4.0, 10.0)
LINE_MS = 7.93


def packet_delays(rng: Generator) -> Iterator[float]:
    """Yield each packet's delay after its 10 ms tick, in seconds, endlessly; jitter as in the log."""
    last_ms = 0.0  # delay of the packet before
    while True:
        usual_ms = np.abs(rng.normal(0.0, LATE_SD_MS, 256))
        late_ms = rng.uniform(*LATE_MS, 256)
        for wait_ms in np.where(rng.random(256) < LATE_SHARE, late_ms, usual_ms).tolist():
            last_ms = max(wait_ms, last_ms + LINE_MS - 1e3 * TICK_S)
            yield 1e-3 * last_ms


# ---- the backend -----------------------------------------------------------------------------------------------------

LinkKind = Literal["serial", "drops"]
BODIES: dict[str, type[SerialBody]] = {"serial": SerialBody, "drops": DropsBody}


class EmulatedBody(EmulatedRobot):
    """The Critterbot's body connected to an emulated Critterbot; see `EmulatedRobot` and `make.make_env`.

    `link` is "serial" or "drops"; in lockstep in memory, else on a pseudo terminal or over TCP.
    """

    make_emulator = Emulator
    command_monitor = SerialBody.command_monitor

    def __init__(
        self, *, link: LinkKind = "serial", physics: str | None = None, **common: Any
    ) -> None:
        if link not in BODIES:
            raise ValueError(f"link must be {' or '.join(BODIES)}, not {link!r}")
        self.physics = resolve_physics(physics)
        self._link = link
        super().__init__(physics=self.physics, **common)
        self.make_body = BODIES[link]
        self.notes = BODIES[link].notes

    def check_line(self) -> None:
        """Refuse a system that lacks what a line in real time needs; drops take sockets."""
        if self._link == "serial":
            super().check_line()

    def make_line(self, emulator: RobotEmulator, *, in_memory: bool) -> Line:
        """Return a new line, in memory for the lockstep."""
        assert isinstance(emulator, Emulator)
        if self._link == "serial":
            return super().make_line(emulator, in_memory=in_memory)
        clock = emulator.drops_time
        if in_memory:
            return MemoryDropsLine(clock=clock)
        return DropsLine("127.0.0.1", 0, clock=clock)
