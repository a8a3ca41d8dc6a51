"""A robot in virtual time: the real firmware's rules on a pseudo terminal, one 10 ms cycle at a time.

Time is the robot's: it advances when the host sleeps, and not before the body's reader has taken all that was sent. So
a test is as fast as the machine, and the same on a busy one.
"""

from __future__ import annotations

import os
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from horde_env.clock import RealTimeClock
from horde_env.hardware.port import serial_for_url
from horde_env.robots.critterbot import wire
from horde_env.robots.critterbot.emulator.console import Receiver
from horde_env.robots.critterbot.simulator import firmware
from horde_env.robots.critterbot.wire import MI_ON, Control, MotorMode, RobotState
from tests.env.hardware.packets import GOLDEN_STATE, SPEC
from tests.env.hardware.peers import LIMIT_S, config

CYCLE_S = 0.01
LAG, STICTION = 3, 1  # the wheels follow three cycles later, and not at all for one unit


class Line:
    """The robot's end of a serial line that can be unplugged, at a path that stays."""

    def __init__(self, folder: Path) -> None:
        self.url = str(folder / "robot")
        self.receiver = Receiver()
        self._ends: tuple[int, ...] = ()
        self.n_plugs = 0
        self.plug()

    def plug(self) -> None:
        """Give the path a new terminal."""
        self.n_plugs += 1
        self._ends = os.openpty()
        tty.setraw(self._ends[1])
        os.set_blocking(self._ends[0], False)
        with suppress(FileNotFoundError):
            os.unlink(self.url)
        os.symlink(os.ttyname(self._ends[1]), self.url)

    def unplug(self) -> None:
        """Remove the device."""
        for end in self._ends:
            os.close(end)
        self._ends = ()
        with suppress(FileNotFoundError):
            os.unlink(self.url)

    close = unplug

    @property
    def is_there(self) -> bool:
        return bool(self._ends)

    def hear(self) -> bytes:
        """Return what the host has sent."""
        with suppress(BlockingIOError):
            return os.read(self._ends[0], 4096)
        return b""

    def controls(self, data: bytes) -> list[Control]:
        self.receiver.receive(data)
        return self.receiver.controls()

    def say(self, state: RobotState, t: float) -> bytes:
        """Send a state and return its bytes."""
        return wire.encode_state(state)

    def send(self, data: bytes) -> bool:
        """Send bytes to the host; without one they are lost."""
        try:
            os.write(self._ends[0], data)
        except BlockingIOError:
            return False
        return True


class VirtualRobot:
    """The firmware's rules behind a line, and the clock of its host.

    Attributes:
        raw: The channels that it will send, before the firmware's own are filled in, shape (57,).
        received: Time and control of each executed control packet.
        speeds: Time and the wheels' setpoints after each cycle.
        spoil: What becomes of a packet on its way.
    """

    def __init__(self, line: Line, *, awake: bool = True) -> None:
        self.line, self.firmware = line, firmware.Firmware(np.array(SPEC.drive["kinematics_1024"]))
        self.raw = GOLDEN_STATE.raw.copy()
        self.raw[SPEC.group("ir_light")] = 100.0
        self.charge_state, self.charging_enabled, self.silent, self.awake = 0, False, False, awake
        self.received: list[tuple[float, Control]] = []
        self.speeds: list[tuple[float, tuple[int, ...]]] = []
        self.spoil: Callable[[bytes], bytes] = lambda packet: packet
        self.now, self._cycles = 0.0, 0
        self._sent = self._n_heard = self._plugged = 0
        self._reading = threading.Condition()
        self._reader: _Counting | None = None

    # ---- time --------------------------------------------------------------------------------------------------------

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Advance the time, cycle by cycle."""
        end = self.now + seconds
        while (self._cycles + 1) * CYCLE_S <= end + 1e-9:
            self._cycles += 1
            self.now = self._cycles * CYCLE_S
            self._cycle()
        self.now = max(self.now, end)

    def clock(self) -> RealTimeClock:
        return RealTimeClock(SPEC.period_s, monotonic=self.monotonic, sleep=self.sleep)

    # ---- the other end -----------------------------------------------------------------------------------------------

    def connect(self, url: str, **settings: Any) -> Any:
        """Open the port as pyserial does, and count the bytes read."""
        self._reader = _Counting(serial_for_url(url, **settings), self._reading)
        self._sent = self._n_heard = 0
        self._plugged = self.line.n_plugs
        return self._reader

    @property
    def config(self) -> Any:
        return config(self.line.url, read_timeout_s=0.02)

    @property
    def setpoints(self) -> tuple[int, ...]:
        """What the wheels are to do, in wheel units."""
        return tuple(self.firmware.wheels[firmware.SETPOINT].tolist())

    def controls(self) -> list[Control]:
        return [control for _, control in self.received]

    def unplug(self) -> None:
        """Pull the plug and wait until the body's reader has noticed: its thread ends."""
        self.line.unplug()
        if self._reader is not None and self._reader.thread is not None:
            self._reader.thread.join(LIMIT_S)
            assert not self._reader.thread.is_alive()

    def _cycle(self) -> None:
        there = self.line.is_there
        data = self._hear() if there else b""
        self.awake = self.awake or MI_ON in data
        controls = self.line.controls(data)
        if controls and self.awake:
            self._obey(controls[-1])
        self.firmware.cycle(165, self.charge_state not in (0, 11))
        self.speeds.append((self.now, self.setpoints))
        if there and self.awake and not self.silent:
            self._send(self.spoil(self.line.say(self._state(), self.now)))

    def _hear(self) -> bytes:
        """Return what the host has sent, all of it: a pseudo terminal hands bytes on in its own time."""
        data, reader, limit = self.line.hear(), self._reader, time.monotonic() + LIMIT_S
        if reader is not None and self._plugged == self.line.n_plugs:
            while not (reader.closed or reader.failed) and self._n_heard + len(data) < reader.n_written:
                assert time.monotonic() < limit, f"{reader.n_written} bytes were written, {self._n_heard} came"
                data += self.line.hear()
        self._n_heard += len(data)
        return data

    def _obey(self, control: Control) -> None:
        self.received.append((self.now, control))
        self.firmware.command(*control[:4])
        if control.mode in (MotorMode.ENABLE_CHARGING, MotorMode.DISABLE_CHARGING):
            self.charging_enabled = control.mode == MotorMode.ENABLE_CHARGING

    def _state(self) -> RobotState:
        raw = self.raw.copy()
        speeds = self.speeds[-LAG][1] if len(self.speeds) >= LAG else (0, 0, 0)
        raw[SPEC.group("motor_velocity")] = [units if abs(units) > STICTION else 0 for units in speeds]
        raw[SPEC.group("motor_voltage")] = self.setpoints  # as the real one: 0 where a wheel is to stand, and else not
        self.firmware.wheels[firmware.TEMPERATURE] = raw[SPEC.group("motor_temperature")]
        self.firmware.wheels[firmware.CLICKS] = 4 * np.array(self.setpoints)
        raw[SPEC.index("overheating")] = self.firmware.overheated
        monitor = 0x40 * (not self.firmware.overheated) | int(self.firmware.overheated) | 0x80 * self.charging_enabled
        return RobotState(raw, charge_state=self.charge_state, monitor=monitor)

    def _send(self, data: bytes) -> None:
        reader = self._reader
        if not self.line.send(data) or reader is None or reader.closed:
            return
        self._sent += len(data)
        with self._reading:
            enough = self._reading.wait_for(
                lambda: reader.handled >= self._sent or reader.closed or reader.failed, LIMIT_S
            )
        assert enough, f"the reader took {reader.handled} of {self._sent} bytes"


@contextmanager
def in_real_time(robot: VirtualRobot) -> Iterator[None]:
    """Advance the robot in real time, in a thread."""
    stop = threading.Event()

    def run() -> None:
        begin, first = time.monotonic(), robot.now
        while not stop.is_set():
            stop.wait(max(begin + robot.now - first + CYCLE_S - time.monotonic(), 0.0))
            robot.sleep(CYCLE_S)

    thread = threading.Thread(target=run, name="robot")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class _Counting:
    """A serial port that counts the bytes its reader has processed: those it had before the next read."""

    def __init__(self, port: Any, changed: threading.Condition) -> None:
        self._port, self._changed = port, changed
        self.handled = self._returned = 0
        self.closed = self.failed = False
        self.n_written = 0
        self.thread: threading.Thread | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def write(self, data: bytes) -> Any:
        n = self._port.write(data)
        self.n_written += len(data)
        return n

    def read(self, n: int) -> bytes:
        self.thread = threading.current_thread()
        with self._changed:
            self.handled = self._returned
            self._changed.notify_all()
        try:
            data = self._port.read(1)  # whatever comes, for half a packet must not wait for the timeout
            data += self._port.read(min(n - 1, self._port.in_waiting)) if data else b""
        except BaseException:
            with self._changed:
                self.failed = True
                self._changed.notify_all()
            raise
        self._returned += len(data)
        return bytes(data)

    def close(self) -> None:
        self._port.close()
        with self._changed:
            self.closed = True
            self._changed.notify_all()
