"""The robot without the robot: its microcontroller over the simulator, on a line that a host plugs into.

    with Emulator(seed=0) as robot:
        path = robot.open_pty()        # or listen(), or listen_drops()
        robot.start()                  # real time; or in lockstep with its host, see `lockstep.LockstepClock`

Who talks to it cannot tell it from the robot: same bytes, same 100 Hz with the jitter of the real robot's log, same
faults of the firmware. `horde-robot emulate` is `serving.serve`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from horde_env.emulation.driver import DropsLine
from horde_env.emulation.faults import FaultRates, Faults, LineFaults
from horde_env.emulation.jitter import packet_delays
from horde_env.emulation.lines import Line, PtyLine
from horde_env.emulation.microcontroller import Microcontroller, build_robot
from horde_env.emulation.sockets import SocketLine
from horde_env.errors import BackendUnavailable
from horde_env.hardware.control import HALT, encode_control
from horde_env.robot import RobotSpec
from horde_env.sim.backend import START_M
from horde_env.sim.motors import TICK_S
from horde_env.sim.pen import Pen

__all__ = ["Emulator", "FaultRates", "Microcontroller"]

UNSET_CLOCK_S = 1_325_376_000.0  # 1 January 2012
SLIP_S = 0.1  # a thread that is later than this gives up catching up


class Playable(Protocol):
    """What an emulator needs of a robot's program; one call of `cycle` is its tick."""

    n_cycles: int

    def receive(self, data: bytes, errors: int = 0) -> None:
        """Take bytes off the line, and the error flags that damage to them sets."""

    def cycle(self, look: bool = True) -> bytes:
        """Let a tick pass and return what the robot puts on its line."""

    def close(self) -> None:
        """Let go of the simulation."""


class RobotEmulator:
    """A robot, with its faults, on any number of lines.

    Nothing moves and nothing is sent before `start`, or `advance`.

    Args:
        robot: Its program over its body, placed and switched on.
        faults: What goes wrong.
        delays: How long after its tick each of its packets comes, in seconds, for ever.
        tick_s: Time of a tick, in seconds.

    Attributes:
        robot: Its program.
        lines: Where hosts plug in, in the order in which they were opened.
        n_slips: How often the thread was too late to catch up, and the robot's time fell behind.
    """

    def __init__(self, robot: Playable, faults: LineFaults, delays: Iterator[float], tick_s: float) -> None:
        self.robot: Any = robot
        self.tick_s = tick_s
        self._faults, self._delays = faults, delays
        self._absent: list[Line] = []
        self.lines: list[Line] = []
        self.n_slips = 0
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    # ---- lines -------------------------------------------------------------------------------------------------------

    def open_pty(self) -> str:
        """Open a pseudo terminal and return its path, which outlives an unplug.

        Raises:
            BackendUnavailable: Where there are none.
        """
        return self._add(PtyLine())

    def listen(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Serve the bytes of the serial line over TCP and return the url, "socket://HOST:PORT".

        Raises:
            BackendUnavailable: If the address cannot be listened on.
        """
        return self._add(SocketLine(host, port))

    def _add(self, line: Line) -> str:
        with self._lock:
            self.lines.append(line)
        return line.url

    # ---- faults ------------------------------------------------------------------------------------------------------

    @property
    def fault_counts(self) -> dict[str, int]:
        """How often each fault has happened."""
        with self._lock:
            return dict(self._faults.counts)

    @property
    def spoils_bytes(self) -> bool:
        """Whether faults of the line come by themselves."""
        return self._faults.spoil_bytes

    def inject(self, kind: str, for_s: float | None = None) -> None:
        """Let a fault begin with the next cycle; see `Faults.inject`."""
        with self._lock:
            self._faults.inject(kind, for_s)

    def wake(self) -> None:
        """Pulse the line that wakes a sleeping robot, where it has one."""
        with self._lock:
            if (wake := getattr(self.robot, "wake", None)) is not None:
                wake()

    # ---- time --------------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether a thread of its own lets its time pass."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def t(self) -> float:
        """The robot's time in seconds since it was switched on."""
        return float(self.robot.n_cycles * self.tick_s)

    def advance(self, *, look: bool = True, speak: bool = True) -> None:
        """Let one tick pass: take what the hosts have written, and write what the robot says.

        Args:
            look: Whether to read the sensors anew (`Microcontroller.cycle`).
            speak: False where no host is there to read: nothing is written that the next one would find.
        """
        with self._lock:
            said = self._cycle(look)
            if speak:
                self._send(*said)

    def start(self, speed: float = 1.0, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Run in a thread, `speed` times as fast as real time, until `close`.

        Where the machine is too slow for that, the robot's time falls behind, and `n_slips` counts.

        Args:
            speed: How many of the robot's seconds pass per second.
            monotonic: The clock of the absolute deadlines, in seconds.

        Raises:
            ValueError: If `speed` is not positive.
            RuntimeError: If it runs already, or is closed.
        """
        if not 0.0 < speed < float("inf"):
            raise ValueError(f"speed must be positive and finite, not {speed}")
        if self._thread is not None or self._stop.is_set():
            raise RuntimeError("this emulator was started before: make another one")
        self._thread = threading.Thread(target=self._run, args=(speed, monotonic), name="emulator", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and close the lines and the simulation. Closing twice does nothing."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            for line in self.lines:
                line.close()
            self.robot.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _cycle(self, look: bool) -> tuple[bytes, bool]:
        """Let the robot take one cycle; return what comes out at the lines' end, and whether its parity is wrong."""
        self._faults.tick()
        self._plug()
        heard = b"".join(line.read() for line in self.lines)
        self.robot.receive(*self._faults.on_the_way_in(heard))
        return self._faults.on_the_way_out(self.robot.cycle(look))

    def _plug(self) -> None:
        """Unplug the lines, or plug them in again, as the faults have it; one whose name is taken is tried again."""
        is_unplugged = self._faults.is_on("unplug")
        if is_unplugged and not self._absent:
            for line in self.lines:
                line.unplug()
            self._absent = list(self.lines)
        elif self._absent and not is_unplugged:
            self._absent = [line for line in self._absent if not _is_plugged_in(line)]

    def _send(self, data: bytes, bad_parity: bool) -> None:
        for line in self.lines:
            line.write(data, bad_parity)

    def _run(self, speed: float, monotonic: Callable[[], float]) -> None:
        """Keep the pace: cycles at their instants, what they say a little later."""
        period_s, begin, k, delays = self.tick_s / speed, monotonic(), 0, self._delays
        sending: deque[tuple[float, tuple[bytes, bool]]] = deque()
        while not self._stop.is_set():
            cycle_at = begin + k * period_s
            due = min(cycle_at, sending[0][0]) if sending else cycle_at
            if (pause_s := due - monotonic()) > 0.0:
                self._stop.wait(pause_s)
                continue
            if pause_s < -SLIP_S:
                self.n_slips += 1
                begin -= pause_s
                sending = deque((t - pause_s, said) for t, said in sending)
            with self._lock:
                if due < cycle_at:
                    self._send(*sending.popleft()[1])
                    continue
                said = self._cycle(look=True)
            sending.append((cycle_at + next(delays) / speed, said))
            k += 1


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


def _is_plugged_in(line: Line) -> bool:
    """Plug a line in; return False where somebody has taken its name, or port, in the meantime."""
    try:
        line.plug()
    except BackendUnavailable:
        return False
    return True


def _compile(robot: Microcontroller) -> None:
    """Let a robot that is yet to be booted take two cycles, so that no kernel is compiled when a host waits for it."""
    robot.in_mi = True
    robot.receive(encode_control(HALT))
    for _ in range(2):
        robot.cycle()
