"""EmulatedRobot: a Backend that starts an emulated robot and connects the robot's physical body to it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from horde_env.backend import POSE_KEYS, Backend, Floats, Frame
from horde_env.clock import Clock, RealTimeClock
from horde_env.emulation.emulator import RobotEmulator
from horde_env.emulation.lines import Line, PtyLine, check_pty
from horde_env.emulation.lockstep import LockstepClock, MemoryLine
from horde_env.errors import BackendUnavailable
from horde_env.hardware.backend import LINK_KEYS, PhysicalBody
from horde_env.hardware.latch import EmergencyLatch
from horde_env.hardware.settings import LinkSettings, PortConfig
from horde_env.robot import spec_of

NOT_CONNECTED = "the emulated robot is not connected: call reset() first."


class EmulatedRobot(Backend):
    """A physical body connected to an emulated robot; each reset creates a new robot at a random pose.

    A subclass names both, and further arguments of the body. Frames are those of the physical body,
    with the true pose (x_m, y_m, heading_rad) in `extras`, for pictures only.

    `faults` are rates of random faults per second, as "loss=0.5,unplug=0.01"; `world` further
    arguments of the emulator. `speed` is in seconds of the robot's time per second; when None, it
    runs in lockstep with the host: as fast as possible, and reproducible by the seed. `seed` is
    added to the environment's, for other faults and noise with the same actions.
    """

    make_emulator: Any  # a class of RobotEmulator
    make_body: type[PhysicalBody]
    of_the_body: Mapping[str, Any] = MappingProxyType({})
    info_keys = (*LINK_KEYS, *POSE_KEYS)

    def __init__(
        self,
        *,
        faults: str = "",
        speed: float | None = None,
        seed: int = 0,
        settings: LinkSettings | None = None,
        latch: EmergencyLatch | None = None,
        **world: Any,
    ) -> None:
        self.spec = spec_of(self.make_emulator.kind)
        self.period_s = self.spec.period_s
        self._speed = fast = speed or 1.0
        self._fast: dict[str, Any] = {
            "monotonic": lambda: fast * time.monotonic(),
            "sleep": lambda seconds: time.sleep(seconds / fast),
        }
        self._lockstep: LockstepClock | None = None
        if speed is None:
            self._lockstep = LockstepClock(self.period_s)
        self.clock: Clock = self._lockstep or RealTimeClock(self.period_s, **self._fast)
        self._seed = seed
        self._world = {"faults": self.make_emulator.faults.parse(faults), **world}
        self._settings = replace(settings or LinkSettings(), threaded=speed is not None)
        self._latch = latch
        if speed is not None:
            self.check_line()
        self._emulator: RobotEmulator | None = None
        self._body: PhysicalBody | None = None

    def switch_on(self, seed: int) -> RobotEmulator:
        """Return a new emulated robot."""
        emulator: RobotEmulator = self.make_emulator(seed=seed, **self._world)
        return emulator

    def check_line(self) -> None:
        """Refuse a system that lacks what a line in real time needs; BackendUnavailable."""
        check_pty()

    def make_line(self, emulator: RobotEmulator, *, in_memory: bool) -> Line:
        """Return a new line, in memory for the lockstep."""
        if in_memory:
            return MemoryLine(emulator.wake)
        return PtyLine(emulator.kind)

    @property
    def emulator(self) -> RobotEmulator:
        """The emulated robot; BackendUnavailable before the first reset and after close."""
        if self._emulator is None:
            raise BackendUnavailable("the emulated robot is not switched on: call reset() first.")
        return self._emulator

    @property
    def body(self) -> PhysicalBody:
        """The physical body; BackendUnavailable before the first reset and after close."""
        if self._body is None:
            raise BackendUnavailable(NOT_CONNECTED)
        return self._body

    def reset(self, rng: np.random.Generator) -> Frame:
        """Create a new robot, connect to it and return its first frame."""
        self.close()
        self._emulator = self.switch_on(int(rng.integers(1 << 62)) + self._seed)
        try:
            self._body = self._connect(self._emulator)
            return _posed(self._body.reset(rng), self._emulator)
        except BaseException:
            self.close()
            raise

    def exchange(self, command: Floats) -> Frame:
        """Exchange with the robot; see `PhysicalBody.exchange`."""
        if self._body is None or self._emulator is None:
            raise BackendUnavailable(NOT_CONNECTED)
        return _posed(self._body.exchange(command), self._emulator)

    def emergency_stop(self, reason: str) -> bool:
        """Stop the motors; return whether a latch keeps them stopped."""
        return self.body.emergency_stop(reason)

    def enable_charging(self, enabled: bool) -> None:
        """Enable or disable charging by the dock."""
        self.body.enable_charging(enabled)

    def close(self) -> None:
        """Close the body and the emulator. Closing twice does nothing."""
        body = self._body
        self._body = None
        emulator = self._emulator
        self._emulator = None
        try:
            if body is not None:
                body.close()
        finally:
            if emulator is not None:
                emulator.close()

    def _connect(self, emulator: RobotEmulator) -> PhysicalBody:
        """Return the physical body, in lockstep or in real time."""
        clock = self._lockstep
        line = self.make_line(emulator, in_memory=self._lockstep is not None)
        config = PortConfig(emulator.add(line), parity="none")
        time_of = self._fast
        if clock is None:
            emulator.start(self._speed)
        else:
            assert isinstance(line, MemoryLine)
            clock.join(emulator, line)
            time_of = {"monotonic": clock.monotonic, "sleep": clock.sleep, "connect": line.connect}
        options: dict[str, Any] = {
            "settings": self._settings,
            "latch": self._latch,
            **self.of_the_body,
        }
        return self.make_body(config, self.clock, **options, **time_of)


def _posed(frame: Frame, emulator: RobotEmulator) -> Frame:
    """Return `frame` with the emulated robot's true pose."""
    x, y, heading = emulator.robot.pose
    return replace(frame, extras={**frame.extras, "x_m": x, "y_m": y, "heading_rad": heading})
