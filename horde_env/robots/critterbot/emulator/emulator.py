"""The Critterbot without the Critterbot: its microcontroller over the simulator, on a line that a host plugs into.

    with Emulator(seed=0) as robot:
        path = robot.open_pty()        # or listen(), or listen_drops()
        robot.start()                  # real time; or in lockstep with its host, see `lockstep.LockstepClock`

Who talks to it cannot tell it from the robot: same bytes, same 100 Hz with the jitter of the real robot's log, same
faults of the firmware.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.random import Generator

from horde_env.emulation.emulated import EmulatedRobot
from horde_env.emulation.emulator import RobotEmulator
from horde_env.emulation.faults import FaultRates, LineFaults
from horde_env.hardware.settings import PortConfig
from horde_env.robot import RobotSpec, critterbot
from horde_env.robots.critterbot.body import DropsBody, SerialBody
from horde_env.robots.critterbot.emulator.driver import DropsLine
from horde_env.robots.critterbot.emulator.microcontroller import FRAMING, PARITY, Microcontroller, build_robot
from horde_env.robots.critterbot.place import Pen, load_pen
from horde_env.robots.critterbot.simulator import firmware, motors
from horde_env.robots.critterbot.simulator.backend import START_M
from horde_env.robots.critterbot.simulator.motors import TICK_S
from horde_env.robots.critterbot.stream import ROBOT_PORT
from horde_env.robots.critterbot.wire import HALT, STATE_SIZE, encode_control
from horde_env.sim.physics import resolve_physics

UNSET_CLOCK_S = 1_325_376_000.0  # 1 January 2012
LOW_BUS_V = 12.2  # under the limits of a careful host, above the 12.0 V at which the robot's power board gives up
HOT = 55.0  # temperature byte, lower is hotter: the motors are held below 65

# How long a fault lasts, seconds: uniform between these.
LASTING_S = {
    "stall": (0.05, 0.8),
    "unplug": (0.3, 2.0),
    "low_battery": (1.0, 4.0),
    "heat": (1.5, 4.0),
    "stuck_wheel": (0.5, 3.0),
}


class Faults(LineFaults):
    """What goes wrong with the Critterbot; a reboot is a hang of 3 s, till its watchdog. See `LineFaults`."""

    tick_s, packet_size, lasting_s = motors.TICK_S, STATE_SIZE, LASTING_S
    error_flags = {"flip": PARITY, "burst": PARITY | FRAMING}  # noqa: RUF012

    def __init__(self, robot: Microcontroller, rates: FaultRates, rng: Generator) -> None:
        super().__init__(robot, rates, rng)
        self._heat = [0.0, 0.0, 0.0]

    def begin(self, kind: str) -> None:
        """Let a lasting fault of the robot itself begin."""
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
        """Let it end."""
        machine = self._robot.machine
        if kind == "low_battery":
            machine.power.sag_v = 0.0
        elif kind == "stuck_wheel":
            machine.stuck = None
        elif kind == "heat":
            machine.motion[motors.HEAT] -= self._heat


class Emulator(RobotEmulator):
    """The Critterbot in its pen, with its faults, on any number of lines.

    It is switched on at a random pose. Nothing moves and nothing is sent before `start`, or `advance`.

    Args:
        seed: Of everything random: pose, noise, faults, jitter.
        spec: The robot; the Critterbot by default.
        pen: Where it lives; `assets/pen.toml` by default.
        battery_scale: Factor on the batteries' capacity.
        physics: What moves the body; see `horde_env.sim.physics`.
        faults: Rates of the faults that come by themselves; none by default.
        awake: Begin with state packets rather than at the console.
        wall_clock: The on-board driver's clock, for its drops, in seconds; one that nobody has set when None: it runs
            with the robot's time from a fixed date.

    Attributes:
        robot: The microcontroller.
        lines: Where hosts plug in, in the order in which they were opened.
        n_slips: How often the thread was too late to catch up, and the robot's time fell behind.

    Raises:
        BackendUnavailable: If PyBullet is asked for and missing.
        ValueError: If `battery_scale` is not positive.
    """

    kind = "critterbot"
    rates, drops_port = FaultRates, ROBOT_PORT

    def __init__(
        self,
        *,
        seed: int = 0,
        spec: RobotSpec | None = None,
        pen: Pen | None = None,
        battery_scale: float = 1.0,
        physics: str | None = None,
        faults: FaultRates | None = None,
        awake: bool = False,
        wall_clock: Callable[[], float] | None = None,
    ) -> None:
        own, of_faults, jitter = np.random.default_rng(seed).spawn(3)
        robot = build_robot(spec=spec, pen=pen, battery_scale=battery_scale, physics=physics, awake=awake)
        _compile(robot)
        x, y = own.uniform(-START_M, START_M, 2)
        robot.boot(own, float(x), float(y), float(own.uniform(-np.pi, np.pi)))
        super().__init__(robot, Faults(robot, faults or FaultRates(), of_faults), packet_delays(jitter), TICK_S)
        self._wall_clock = wall_clock or (lambda: UNSET_CLOCK_S + self.t)

    def listen_drops(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Serve drops over TCP, as the robot's on-board driver does, and return the url, "socket://HOST:PORT".

        Raises:
            BackendUnavailable: If the address cannot be listened on.
        """
        return self._add(DropsLine(host, port, self._wall_clock))


EMULATOR = Emulator


def _compile(robot: Microcontroller) -> None:
    """Let a robot that is yet to be booted take two cycles, so that no kernel is compiled when a host waits for it."""
    robot.in_mi = True
    robot.receive(encode_control(HALT))
    for _ in range(2):
        robot.cycle()


# ---- packet times ----------------------------------------------------------------------------------------------------

# When packets come, in ms after their 10 ms instants, fitted to the gaps in the real robot's log: most a little late,
# some late by half a cycle (the log's host was busy), and none sooner after the last than the line can carry it.
# Log against this model: p1 7 | 8, p5 8 | 8, median 10 | 10, p95 14 | 14, p99 18 | 18.
LATE_SD_MS, LATE_SHARE, LATE_MS, LINE_MS = 0.7, 0.06, (4.0, 10.0), 7.93


def packet_delays(rng: Generator) -> Iterator[float]:
    """Yield how long after its 10 ms instant each packet comes, in seconds, for ever; jitter as in the log."""
    last_ms = 0.0  # since the instant of the packet before
    while True:
        usual_ms, late_ms = np.abs(rng.normal(0.0, LATE_SD_MS, 256)), rng.uniform(*LATE_MS, 256)
        for wait_ms in np.where(rng.random(256) < LATE_SHARE, late_ms, usual_ms).tolist():
            last_ms = max(wait_ms, last_ms + LINE_MS - 1e3 * TICK_S)
            yield 1e-3 * last_ms


# ---- the backend -----------------------------------------------------------------------------------------------------

LinkKind = Literal["serial", "drops"]
BODIES: dict[str, type[SerialBody]] = {"serial": SerialBody, "drops": DropsBody}


class EmulatedBody(EmulatedRobot):
    """The Critterbot's body over an emulated one; see `EmulatedRobot`.

    Args:
        spec: The robot; the Critterbot when None.
        pen: Where it lives; `assets/pen.toml` when None.
        link: "serial", on a pseudo terminal, or "drops", over TCP.
        faults: Rates per second of faults that come by themselves, as "loss=0.5,unplug=0.01" (`FaultRates.parse`).
        physics: What moves the body; see `horde_env.sim.physics`.
        **common: speed, seed, battery_scale, settings and latch of `EmulatedRobot`.

    Raises:
        ValueError: If an argument makes no sense.
    """

    obedience = SerialBody.obedience

    def __init__(
        self,
        spec: RobotSpec | None = None,
        *,
        pen: Pen | None = None,
        link: LinkKind = "serial",
        faults: str = "",
        physics: str | None = None,
        **common: Any,
    ) -> None:
        if link not in BODIES:
            raise ValueError(f"link must be {' or '.join(BODIES)}, not {link!r}")
        super().__init__(critterbot() if spec is None else spec, FaultRates.parse(faults), **common)
        self.pen = load_pen() if pen is None else pen
        self.notes = BODIES[link].notes
        self._link = link
        self.physics = resolve_physics(physics)

    def switch_on(self, seed: int) -> Emulator:
        """Return a new emulated robot."""
        return Emulator(
            seed=seed,
            spec=self.spec,
            pen=self.pen,
            battery_scale=self._battery_scale,
            physics=self.physics,
            faults=self._faults,
        )

    def open_line(self, emulator: RobotEmulator) -> str:
        """Open a line and return its url."""
        assert isinstance(emulator, Emulator)
        return emulator.open_pty() if self._link == "serial" else emulator.listen_drops()

    def connect(self, url: str, **time_of: Any) -> SerialBody:
        """Return the host's side."""
        config, kind = PortConfig(url, parity="none"), BODIES[self._link]
        return kind(config, self.clock, self.spec, settings=self._settings, latch=self._latch, **time_of)

    def pose(self) -> tuple[float, float, float]:
        """Return where the robot is: metres, and a heading in radians."""
        m = self.emulator.robot.machine.body.motion
        return m.x, m.y, float(np.pi - (np.pi - m.heading) % (2.0 * np.pi))
