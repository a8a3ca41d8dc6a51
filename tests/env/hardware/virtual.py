"""A Critterbot without a body in virtual time: the real firmware's rules behind an emulated line, in lockstep."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any, ClassVar

import numpy as np

from horde_env.backend import Floats, Frame
from horde_env.clock import RealTimeClock
from horde_env.emulation.emulator import RobotEmulator
from horde_env.emulation.faults import LineFaults
from horde_env.emulation.lockstep import LockstepClock, MemoryLine
from horde_env.hardware.settings import LinkSettings, PortConfig
from horde_env.robots.critterbot import wire
from horde_env.robots.critterbot.body import SerialBody
from horde_env.robots.critterbot.emulator.microcontroller import Receiver
from horde_env.robots.critterbot.simulator import firmware
from horde_env.robots.critterbot.wire import MI_ON, Control, MotorMode, RobotState
from tests.env.hardware.packets import GOLDEN_STATE, SPEC

CYCLE_S = 0.01
FORWARD = np.array([0.35, 0.0, 0.0])  # 20 wire units
REST = np.zeros(3)
# The wheels follow three cycles later, and not at all for one unit
LAG = 3
STICTION = 1


class Faults(LineFaults):
    """Faults of its line."""

    tick_s = CYCLE_S
    packet_size = wire.STATE_SIZE
    lasting_s: ClassVar = {"unplug": (1.0, 2.0)}


class Line(RobotEmulator):
    """Its line, and its time."""

    kind = "critterbot"
    # The host reads after each tick
    damages_bytes = True


class VirtualRobot:
    """The robot's program, its line and the clock of its host. Time advances when the host sleeps, and not before.

    Attributes:
        raw: The channels that it will send, before the firmware's own are filled in, shape (57,).
        received: Time and control of each executed control packet.
        speeds: Time and the wheels' setpoints after each cycle.
        spoil: What becomes of a packet on its way.
    """

    is_hung = False

    def __init__(self) -> None:
        self.firmware = firmware.Firmware(np.array(SPEC.drive["kinematics_1024"]))
        self.receiver = Receiver()
        self.raw = GOLDEN_STATE.raw.copy()
        self.raw[SPEC.group("ir_light")] = 100.0
        self.charge_state = 0
        self.charging_enabled = False
        self.silent = False
        self.awake = True
        self.received: list[tuple[float, Control]] = []
        self.speeds: list[tuple[float, tuple[int, ...]]] = []
        self.spoil: Callable[[bytes], bytes] = lambda packet: packet
        self.n_cycles = 0
        self._until = 0.0
        self._faults = Faults(self, {}, np.random.default_rng(0))
        self.line = Line(self, self._faults, repeat(0.0), CYCLE_S)
        self.end = MemoryLine()
        self.lockstep = LockstepClock()
        self.url = self.line.add(self.end)
        self.connect = self.end.connect
        self.lockstep.join(self.line, self.end)

    # ---- time --------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return max(self.n_cycles * CYCLE_S, self._until)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Advance the time, cycle by cycle."""
        end = self.now + seconds
        self.lockstep._advance(self.line, max(int((end + 1e-9) / CYCLE_S) - self.n_cycles, 0))
        self._until = end

    def clock(self) -> RealTimeClock:
        return RealTimeClock(SPEC.period_s, monotonic=self.monotonic, sleep=self.sleep)

    # ---- its line ----------------------------------------------------------------------------------------------------

    def unplug(self) -> None:
        """Pull the plug; the host notices at once."""
        self._faults.inject("unplug", 3600.0)
        self.line.update_plugs()
        if self.end.port is not None:
            self.end.port.hand_over()

    def plug(self) -> None:
        del self._faults._ends["unplug"]
        self.line.update_plugs()

    # ---- its program -------------------------------------------------------------------------------------------------

    @property
    def setpoints(self) -> tuple[int, ...]:
        """What the wheels are to do, in wheel units."""
        return tuple(self.firmware.wheels[firmware.SETPOINT].tolist())

    def controls(self) -> list[Control]:
        return [control for _, control in self.received]

    def receive(self, data: bytes, errors: int = 0) -> None:
        self.awake = self.awake or MI_ON in data
        self.receiver.receive(data)

    def cycle(self, look: bool = True) -> bytes:
        self.n_cycles += 1
        controls = self.receiver.controls()
        if controls and self.awake:
            self.obey(controls[-1])
        self.firmware.cycle(165, self.charge_state not in (0, 11))
        self.speeds.append((self.now, self.setpoints))
        if self.awake and not self.silent:
            return self.spoil(wire.encode_state(self._state()))
        return b""

    def close(self) -> None: ...

    def obey(self, control: Control) -> None:
        self.received.append((self.now, control))
        self.firmware.command(*control[:4])
        if control.mode in (MotorMode.ENABLE_CHARGING, MotorMode.DISABLE_CHARGING):
            self.charging_enabled = control.mode == MotorMode.ENABLE_CHARGING

    def _state(self) -> RobotState:
        raw = self.raw.copy()
        if len(self.speeds) >= LAG:
            speeds = self.speeds[-LAG][1]
        else:
            speeds = (0, 0, 0)
        raw[SPEC.group("motor_velocity")] = [
            units if abs(units) > STICTION else 0 for units in speeds
        ]
        # As the real one: 0 where a wheel is to stand, and else not
        raw[SPEC.group("motor_voltage")] = self.setpoints
        self.firmware.wheels[firmware.TEMPERATURE] = raw[SPEC.group("motor_temperature")]
        self.firmware.wheels[firmware.CLICKS] = 4 * np.array(self.setpoints)
        overheated = int(self.firmware.arm[firmware.OVERHEATED])
        raw[SPEC.index("overheating")] = overheated
        monitor = 0x40 * (1 - overheated) | overheated | 0x80 * self.charging_enabled
        return RobotState(raw, charge_state=self.charge_state, monitor=monitor)


class PacedSerialBody(SerialBody):
    """A body that begins its own periods, where no environment shares its clock."""

    def exchange(self, command: Floats) -> Frame:
        self.clock.begin()
        return super().exchange(command)


def serial_body(robot: VirtualRobot, **rest: Any) -> SerialBody:
    settings = LinkSettings(threaded=False, **rest.pop("link", {}))
    time: dict[str, Any] = {
        "monotonic": robot.monotonic,
        "sleep": robot.sleep,
        "connect": robot.connect,
    }
    return PacedSerialBody(
        PortConfig(robot.url, parity="none"), robot.clock(), settings=settings, **time | rest
    )
