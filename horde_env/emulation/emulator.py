"""An emulated robot: its program and simulated body behind lines to which hosts connect, with faults.

Time runs in a thread, or in lockstep with the host (`lockstep.LockstepClock`). Each robot's bytes
are implemented in `robots.*.emulator`. `horde-robot emulate` runs one (`commands.serving.serve`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, ClassVar, Self

from horde_env.emulation.faults import LineFaults
from horde_env.emulation.lines import Line, PtyLine, SocketLine
from horde_env.errors import BackendUnavailable

SLIP_S = 0.1  # a thread that is later than this does not catch up


class RobotEmulator:
    """A robot with faults on any number of lines. It runs only by `start` or `advance`.

    Args:
        robot: Its program and body, switched on, with `n_cycles` and `pose` (metres, radians).
            `receive(data, errors)` passes bytes from the line, with the error flags set by damage
            to them; `cycle(look)` runs one tick and returns the bytes that it sends, which without
            `look` may be an earlier packet, if the motion stays the same; `close()` frees it. It
            may have `wake()` and `press(button)`.
        faults: Its faults.
        delays: An endless sequence of each packet's delay after its tick, in seconds.
        tick_s: Duration of a tick, in seconds.

    Attributes:
        lines: Those that it serves.
        t: Seconds of the robot's time since it was switched on.
    """

    kind: ClassVar[str]  # one of `robot.ROBOTS`
    faults: ClassVar[type[LineFaults]]
    buttons: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, robot: Any, faults: LineFaults, delays: Iterator[float], tick_s: float
    ) -> None:
        self.robot = robot
        self.tick_s = tick_s
        self.t = float(robot.n_cycles * tick_s)
        self._faults = faults
        self._delays = delays
        self._absent: list[Line] = []
        self.lines: list[Line] = []
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    # ---- lines -------------------------------------------------------------------------------------------------------

    def open_pty(self) -> str:
        """Open a pseudo terminal and return its path, which stays the same when it is unplugged.

        Raises:
            BackendUnavailable: If this machine has no pseudo terminals.
        """
        return self.add(PtyLine(self.kind))

    def listen(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Serve the serial line over TCP and return its url; BackendUnavailable if the address is in use."""
        return self.add(SocketLine(host, port))

    def add(self, line: Line) -> str:
        """Serve a further line and return its url."""
        with self._lock:
            self.lines.append(line)
        return line.url

    # ---- faults ------------------------------------------------------------------------------------------------------

    @property
    def fault_counts(self) -> dict[str, int]:
        """Number of faults so far, by the names that `inject` accepts."""
        with self._lock:
            return dict(self._faults.counts)

    @property
    def damages_bytes(self) -> bool:
        """True if random faults may lose or change bytes."""
        return self._faults.damages_bytes

    def inject(self, kind: str, for_s: float | None = None) -> None:
        """Start a fault with the next tick; see `LineFaults.inject`."""
        with self._lock:
            self._faults.inject(kind, for_s)

    def press(self, button: str) -> None:
        """Press one of `buttons`.

        Raises:
            ValueError: If it has no such button.
        """
        if button not in self.buttons:
            raise ValueError(
                f"unknown button {button!r}; the {self.kind} has {', '.join(self.buttons) or 'none'}"
            )
        with self._lock:
            self.robot.press(button)

    def wake(self) -> None:
        """Pulse the robot's wake-up input, if it has one."""
        with self._lock:
            wake = getattr(self.robot, "wake", None)
            if wake is not None:
                wake()

    # ---- time --------------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """True while a thread advances it."""
        return self._thread is not None and self._thread.is_alive()

    def advance(self, *, look: bool = True, speak: bool = True) -> None:
        """Run one tick: read from the hosts, run the robot (`cycle(look)`), write to the hosts.

        `speak` is False without a host: its bytes would be left for the next one.
        """
        with self._lock:
            output = self._cycle(look)
            if speak:
                self._send(*output)

    def start(self, speed: float = 1.0) -> None:
        """Run in a thread, `speed` times as fast as real time, until `close`; a slow machine falls behind.

        Raises:
            RuntimeError: If it was started or closed before.
        """
        if self._thread is not None or self._stop.is_set():
            raise RuntimeError("this emulator was started before: create another one")
        self._thread = threading.Thread(
            target=self._run, args=(speed,), name="emulator", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and close the lines and the simulation. Closing twice does nothing."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            for line in self.lines:
                line.close()
            self.robot.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _cycle(self, look: bool) -> tuple[bytes, bool]:
        """Run the robot for one tick; return its output after faults, and whether its parity is wrong."""
        is_faulty = self._faults.is_active or bool(self._absent)
        if is_faulty:
            self._faults.tick()
            if self._absent or self._faults.is_on("unplug"):
                self.update_plugs()
        data = b""
        for line in self.lines:
            data += line.read()
        if is_faulty:
            self.robot.receive(*self._faults.damage_input(data))
        else:
            self.robot.receive(data)
        output = self.robot.cycle(look)
        self.t = float(self.robot.n_cycles * self.tick_s)
        if is_faulty:
            return self._faults.damage_output(output)
        return output, False

    def update_plugs(self) -> None:
        """Unplug or plug in the lines according to the faults; retry a line if its address is in use."""
        is_unplugged = self._faults.is_on("unplug")
        if is_unplugged and not self._absent:
            for line in self.lines:
                line.unplug()
            self._absent = list(self.lines)
        elif self._absent and not is_unplugged:
            absent = self._absent
            self._absent = []
            for line in absent:
                try:
                    line.plug()
                except BackendUnavailable:
                    self._absent.append(line)

    def _send(self, data: bytes, bad_parity: bool) -> None:
        for line in self.lines:
            line.write(data, bad_parity)

    def _run(self, speed: float) -> None:
        """Run ticks at their times, and send each tick's output after its delay."""
        period_s = self.tick_s / speed
        begin = time.monotonic()
        k = 0
        delays = self._delays
        sending: deque[tuple[float, tuple[bytes, bool]]] = deque()
        while not self._stop.is_set():
            cycle_at = begin + k * period_s
            due = cycle_at
            if sending:
                due = min(cycle_at, sending[0][0])
            pause_s = due - time.monotonic()
            if pause_s > 0.0:
                self._stop.wait(pause_s)
                continue
            if pause_s < -SLIP_S:
                begin -= pause_s
                sending = deque((t - pause_s, output) for t, output in sending)
            with self._lock:
                if due < cycle_at:
                    self._send(*sending.popleft()[1])
                    continue
                output = self._cycle(look=True)
            sending.append((cycle_at + next(delays) / speed, output))
            k += 1
