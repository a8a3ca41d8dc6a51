"""A robot without the robot: its program over its simulated body, on a line that a host plugs into.

What its bytes are each robot's own emulator says (`robots.*.emulator`); here are its lines, its faults and its time,
which runs in a thread, or in lockstep with its host (`lockstep.LockstepClock`). `horde-robot emulate` is
`commands.serving.serve`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self

from horde_env.emulation.faults import LineFaults
from horde_env.emulation.lines import Line, PtyLine, SocketLine
from horde_env.errors import BackendUnavailable

SLIP_S = 0.1  # a thread that is later than this gives up catching up


class RobotProgram(Protocol):
    """What an emulator needs of a robot's program; one call of `cycle` is its tick."""

    n_cycles: int

    def receive(self, data: bytes, errors: int = 0) -> None:
        """Take bytes off the line, and the error flags that damage to them sets."""

    def cycle(self, look: bool = True) -> bytes:
        """Let a tick pass and return what the robot puts on its line.

        Without `look` it may repeat an earlier packet in place of a new one, if its motion is the same either way.
        """

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
        kind: Which robot it is, one of `robot.ROBOTS`.
        buttons: Names of the buttons that a person can press.
        robot: Its program.
        lines: Where hosts plug in, in the order in which they were opened.
        n_slips: How often the thread was too late to catch up, and the robot's time fell behind.
    """

    kind: ClassVar[str]
    buttons: ClassVar[tuple[str, ...]] = ()

    def __init__(self, robot: RobotProgram, faults: LineFaults, delays: Iterator[float], tick_s: float) -> None:
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
        return self._add(PtyLine(self.kind))

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
        """Let a fault begin with the next cycle; see `LineFaults.inject`."""
        with self._lock:
            self._faults.inject(kind, for_s)

    @property
    def fault_kinds(self) -> tuple[str, ...]:
        """Names of the faults that `inject` takes."""
        return tuple(self._faults.counts)

    def press(self, button: str) -> None:
        """Press one of `buttons`.

        Raises:
            ValueError: If there is no such button.
        """
        if button not in self.buttons:
            raise ValueError(f"unknown button {button!r}; the {self.kind} has {', '.join(self.buttons) or 'none'}")
        with self._lock:
            self.robot.press(button)

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
            look: Whether to read the sensors anew (`RobotProgram.cycle`).
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


def _is_plugged_in(line: Line) -> bool:
    """Plug a line in; return False where somebody has taken its name, or port, in the meantime."""
    try:
        line.plug()
    except BackendUnavailable:
        return False
    return True
