"""EmulatedRobot: a physical body over an emulated robot, which it starts by itself: the whole way, on any machine."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np

from horde_env.backend import Backend, Floats, Frame
from horde_env.clock import Clock, RealTimeClock, SimulatedClock
from horde_env.emulation.emulator import RobotEmulator
from horde_env.emulation.faults import FaultRates
from horde_env.emulation.lockstep import BATCH, LockstepClock
from horde_env.errors import opened
from horde_env.hardware.backend import PhysicalBody
from horde_env.hardware.latch import EmergencyLatch
from horde_env.hardware.settings import LinkSettings
from horde_env.robot import RobotSpec


class FastTime:
    """Time that runs `speed` times as fast as real time."""

    def __init__(self, speed: float) -> None:
        self.speed = speed

    def monotonic(self) -> float:
        """Return the time in seconds."""
        return self.speed * time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let seconds of this time pass."""
        time.sleep(seconds / self.speed)


class RelayClock:
    """The clock of whatever robot there is now: each reset brings a new one, and the environment has but one clock.

    Attributes:
        clock: The present one.
        missed: Deadlines missed since `start`.
    """

    def __init__(self) -> None:
        self.clock: Clock = SimulatedClock()
        self.missed = 0

    def start(self) -> None:
        """Begin a life."""
        self.clock.start()
        self.missed = 0

    def begin(self) -> None:
        """Begin a period."""
        self.clock.begin()

    def wait(self) -> float:
        """Wait for the end of the period and return how late that was noticed, in seconds."""
        late_s = self.clock.wait()
        self.missed = self.clock.missed
        return late_s


class EmulatedRobot(Backend):
    """A robot's body over an emulated robot: each reset switches on a new robot, at a random pose, and connects to it.

    Frames are those of the physical body, with the true pose (x_m, y_m, heading_rad) in `extras`, for pictures only.

    Args:
        spec: The robot.
        rates: Of the faults that come by themselves.
        speed: How many of the robot's seconds pass per second; in lockstep with its host, as fast as the machine can
            and the same for the same seed, when None.
        seed: Added to what the environment's seed gives, for other faults and noise in the same life.
        battery_scale: Factor on the batteries' capacity.
        settings: Of the link; `threaded` is up to `speed`.
        latch: An emergency stop; none when None.

    Attributes:
        clock: The clock for the environment.

    Raises:
        ValueError: If an argument makes no sense.
    """

    batch = BATCH  # ticks of which the reader takes the bytes at once, in lockstep

    def __init__(
        self,
        spec: RobotSpec,
        rates: FaultRates,
        *,
        speed: float | None = None,
        seed: int = 0,
        battery_scale: float = 1.0,
        settings: LinkSettings | None = None,
        latch: EmergencyLatch | None = None,
    ) -> None:
        if speed is not None and not 0.0 < speed < float("inf"):
            raise ValueError(f"speed must be positive and finite, not {speed}")
        if seed < 0:
            raise ValueError(f"seed must not be negative, and is {seed}")
        self.spec = spec
        self.period_s = self.spec.period_s
        self.clock = RelayClock()
        self._speed, self._seed, self._battery_scale = speed, seed, battery_scale
        self._faults = rates
        self._settings = replace(settings or LinkSettings(), threaded=speed is not None)
        self._latch = latch
        self._emulator: RobotEmulator | None = None
        self._body: PhysicalBody | None = None

    # ---- what a robot adds -------------------------------------------------------------------------------------------

    @abstractmethod
    def switch_on(self, seed: int) -> RobotEmulator:
        """Return a new emulated robot."""

    @abstractmethod
    def connect(self, url: str, **time_of: Any) -> PhysicalBody:
        """Return the host's side; `time_of` is what `PhysicalBody` takes of clocks."""

    def open_line(self, emulator: RobotEmulator) -> str:
        """Open a line and return its url."""
        return emulator.open_pty()

    @abstractmethod
    def pose(self) -> tuple[float, float, float]:
        """Return where the robot is: metres, and a heading in radians."""

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def emulator(self) -> RobotEmulator:
        """The robot behind the bytes.

        Raises:
            BackendUnavailable: Before the first reset and after close.
        """
        return opened(self._emulator, "the emulated robot is not switched on")

    @property
    def body(self) -> PhysicalBody:
        """The host's side.

        Raises:
            BackendUnavailable: Before the first reset and after close.
        """
        return opened(self._body, "the emulated robot is not connected")

    def reset(self, rng: np.random.Generator) -> Frame:
        """Switch on a new robot, connect to it, and return its first frame."""
        self.close()
        self._emulator = self.switch_on(int(rng.integers(1 << 62)) + self._seed)
        try:
            self._body = self._connect(self.open_line(self._emulator), self._emulator)
            return self._posed(self._body.reset(rng))
        except BaseException:
            self.close()
            raise

    def exchange(self, command: Floats) -> Frame:
        """Exchange with the robot, as its body does."""
        return self._posed(self.body.exchange(command))

    def emergency_stop(self, reason: str) -> bool:
        """Stop the motors, as its body does; return whether there is a latch that keeps them stopped."""
        return self.body.emergency_stop(reason)

    def enable_charging(self, enabled: bool) -> None:
        """Let the dock charge the batteries, or not."""
        self.body.enable_charging(enabled)

    def close(self) -> None:
        """Let go of the robot and switch it off. Closing twice does nothing."""
        body, self._body = self._body, None
        emulator, self._emulator = self._emulator, None
        try:
            if body is not None:
                body.close()
        finally:
            if emulator is not None:
                emulator.close()
            self.clock.clock = SimulatedClock()

    def _connect(self, url: str, emulator: RobotEmulator) -> PhysicalBody:
        """Return the host's side, on the clock that the speed asks for."""
        time_of: dict[str, Any]
        if self._speed is None:
            lockstep = LockstepClock(emulator, self.period_s, batch=self.batch, inline=True)
            self.clock.clock = lockstep
            time_of = {"monotonic": lockstep.monotonic, "sleep": lockstep.sleep, "connect": lockstep.connect}
        else:
            fast = FastTime(self._speed)
            self.clock.clock = RealTimeClock(self.period_s, monotonic=fast.monotonic, sleep=fast.sleep)
            time_of = {"monotonic": fast.monotonic, "sleep": fast.sleep}
            emulator.start(self._speed)
        return self.connect(url, **time_of)

    def _posed(self, frame: Frame) -> Frame:
        x, y, heading = self.pose()
        return replace(frame, extras={**frame.extras, "x_m": x, "y_m": y, "heading_rad": heading})
