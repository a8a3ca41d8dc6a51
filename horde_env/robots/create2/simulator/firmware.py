"""Firmware: the robot's program behind its serial line, without threads or real time. One call of `cycle` is 1/64 s.

    off       prints text, on its dock a battery line each second; accepts only 7 and 128
    passive   senses, charges, cleans or docks by its own program; sleeps after 5 min without a byte
    safe      executes commands; a cliff ahead, a dropped wheel or a charger stop it and set passive
    full      executes commands without these checks

It has no command timeout: the last speeds hold until the next command. Commands that the mode does
not allow, and unknown bytes, including 0, are skipped.

Source: iRobot Create 2 Open Interface Specification based on the Roomba 600 (2016); the texts are
those of a robot with firmware stm32-3.7.1.
"""

from __future__ import annotations

import math
import struct
from collections import deque
from typing import Any

from numpy.random import Generator

from horde_env.backend import Floats, State
from horde_env.robots.create2.simulator import tick
from horde_env.robots.create2.simulator.machine import Machine
from horde_env.robots.create2.simulator.world import BASE_M, BUMP_L, BUMP_R, COUNT_L, COUNT_R
from horde_env.robots.create2.wire import (
    FASTEST,
    FULL,
    OFF,
    OPERANDS,
    PASSIVE,
    SAFE,
    TICK_S,
    Op,
    Sensors,
    encode_packet,
    frame_of,
)
from horde_env.sim.saving import Saved, text, untext

SLEEP_S = 300.0
LINE_BYTES = 180  # capacity of the line in a tick
BOOT_S = 5.0
BANNER = (
    (0.015, b"Soft reset!\n"),
    (1.0, b"\xfe"),
    (3.0, b"Roomba by iRobot!\r\nstm32\r\n2015-12-18-1607-L   \r\nbattery-current-zero 254\r\n"),
    (
        4.0,
        b"\r\n2015-12-18-1607-L   \r\nr3-robot/tags/release-stm32-3.7.1:6174 CLEAN\r\n\r\n"
        b"bootloader id: 3115 C200 0033 5860 \r\nassembly: 3.5-lite\r\nrevision: 8\r\nflash version: 10\r\n"
        b"flash info crc passed: 1\r\n\r\nbattery-current-zero 252\r\n",
    ),
)
ALWAYS = (Op.RESET, Op.START)
DRIVING = (Op.DRIVE, Op.DRIVE_DIRECT, Op.DRIVE_PWM)
IN_CONTROL = (
    *DRIVING,
    Op.MOTORS,
    Op.PWM_MOTORS,
    Op.LEDS,
    Op.SCHEDULE_LEDS,
    Op.DIGITS_RAW,
    Op.DIGITS_ASCII,
    Op.PLAY,
)
OWN = (Op.SPOT, Op.CLEAN, Op.MAX, Op.DOCK)
MODE_OF = {
    Op.START: PASSIVE,
    Op.CONTROL: SAFE,
    Op.SAFE: SAFE,
    Op.FULL: FULL,
    Op.POWER: PASSIVE,
    Op.STOP: OFF,
}
KNOWN = {int(op) for op in Op}
BUTTONS = {"clean": 1, "spot": 2, "dock": 4}  # bits of packet 18
DISTANCE = Sensors._fields.index("distance")
MODE = Sensors._fields.index("mode")
STRAIGHT = (-32768, 32767)
DISTANCE_PACKETS = {19, 20, 0, 2, 6, 100}  # packets and groups with distance or angle


class Firmware(Saved):
    """The robot behind its serial line; `rng` is the source of the random numbers of docking and cleaning."""

    saved = (
        "mode",
        "mode_offset",
        "is_asleep",
        "n_cycles",
        "_reboot_until",
        "_boot_tick",
        "_is_streaming",
        "_travel",
        "_idle_s",
        "_was_docked",
    )

    def __init__(self, machine: Machine, rng: Generator) -> None:
        self.machine = machine
        self._rng = rng
        # Some robots report each mode one too high
        self.mode = OFF
        self.mode_offset = 0
        self.is_asleep = False  # until `wake`
        self.n_cycles = self._reboot_until = 0
        self.extra = b""  # text that a fault inserts into the stream
        self._boot_tick: int | None = None
        self._clear()

    def _clear(self) -> None:
        self.requested = (0, 0)  # wheel speeds of the last command, right and left, mm/s
        self.velocity_radius = (0, 0)
        self._pending = bytearray()
        self._answers: list[int] = []
        self._stream: tuple[int, ...] = ()
        self._is_streaming = False
        self.own_drive: OwnDrive | None = None  # while it docks or cleans
        self._travel = [0.0, 0.0]
        self._idle_s = 0.0
        self._was_docked = self.machine.is_docked
        self._texts: deque[tuple[int, bytes]] = deque()

    @property
    def is_driven(self) -> bool:
        """True if the last command turns a wheel."""
        return self.mode in (SAFE, FULL) and any(self.requested)

    @property
    def pose(self) -> tuple[float, float, float]:
        """The robot's true pose: metres, and a heading in radians."""
        return self.machine.pose

    @property
    def is_hung(self) -> bool:
        """True while it boots after `hang`; bytes are lost meanwhile."""
        return self.n_cycles < self._reboot_until

    def hang(self) -> None:
        """Interrupt its supply: it is off and prints the banner."""
        self._reboot_until = self.n_cycles + round(BOOT_S / TICK_S)
        self.reset()

    def close(self) -> None:
        """Do nothing: the simulation holds no resources."""

    def wake(self) -> None:
        """Pulse BRC: a sleeping robot off its dock wakes up, in Off."""
        self._idle_s = 0.0
        if not self.machine.is_docked:
            self.rouse()

    def press(self, button: str) -> None:
        """Press one of `BUTTONS`: wakes it from sleep; in Passive starts or ends its own drives."""
        if self.is_asleep:
            self.rouse()
            return
        self.machine.press(BUTTONS[button])
        if self.mode == PASSIVE:
            if self.own_drive is None:
                self.own_drive = OwnDrive(to_dock=button == "dock")
            else:
                self.own_drive = None

    def rouse(self) -> None:
        """Wake a sleeping robot up, on its dock too, in Off."""
        if self.is_asleep:
            self.is_asleep = False
            self.mode = OFF
            self._clear()

    def fall_asleep(self) -> None:
        """Sleep until `wake`."""
        self.enter(PASSIVE)
        self.is_asleep = True
        self._is_streaming = False
        self._pending.clear()
        self._answers.clear()

    def reset(self) -> None:
        """Reset, as opcode 7 or a removed battery does: off, with the banner."""
        self.mode = OFF
        self.is_asleep = False
        self._clear()
        self._boot_tick = self.n_cycles
        self._texts = deque((self.n_cycles + max(round(s / TICK_S), 1), text) for s, text in BANNER)

    def save(self) -> State:
        """Return the program's state, without the machine's and the generator's."""
        own_drive = None
        if self.own_drive is not None:
            own_drive = self.own_drive.save()
        program = {
            "extra": self.extra.hex(),
            "requested": self.requested,
            "velocity_radius": self.velocity_radius,
            "pending": self._pending.hex(),
            "answers": self._answers,
            "stream": self._stream,
            "own_drive": own_drive,
            "texts": [(tick, message.hex()) for tick, message in self._texts],
        }
        return super().save() | {"program": text(program)}

    def restore(self, state: State) -> None:
        """Restore a state from `save`."""
        super().restore(state)
        program = untext(state["program"])
        self.extra = bytes.fromhex(program["extra"])
        self.requested = tuple(program["requested"])
        self.velocity_radius = tuple(program["velocity_radius"])
        self._pending = bytearray.fromhex(program["pending"])
        self._answers = program["answers"]
        self._stream = tuple(program["stream"])
        self.own_drive = None
        if program["own_drive"] is not None:
            self.own_drive = OwnDrive.restored(program["own_drive"])
        self._texts = deque((tick, bytes.fromhex(message)) for tick, message in program["texts"])

    # ---- input -------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, errors: int = 0) -> None:  # noqa: ARG002
        """Receive bytes; a command may arrive in parts."""
        if self.is_asleep or self.is_hung:
            return
        self._pending += data
        if data:
            self._idle_s = 0.0
        while self._pending:
            opcode = self._pending[0]
            if opcode not in KNOWN:
                del self._pending[0]
                continue
            size = self._operands(opcode)
            if size is None or len(self._pending) < 1 + size:
                return
            operands = bytes(self._pending[1 : 1 + size])
            del self._pending[: 1 + size]
            self._execute(opcode, operands)

    def _operands(self, opcode: int) -> int | None:
        """Return the number of operand bytes of an opcode, None until it is known."""
        if opcode in (Op.STREAM, Op.QUERY_LIST):
            if len(self._pending) > 1:
                return 1 + self._pending[1]
            return None
        if opcode == Op.SONG:
            if len(self._pending) > 2:
                return 2 + 2 * min(self._pending[2], 16)
            return None
        return OPERANDS.get(opcode, 0)  # type: ignore[call-overload, no-any-return]

    def _execute(self, opcode: int, operands: bytes) -> None:
        if self.mode == OFF and opcode not in ALWAYS:
            return
        if opcode in IN_CONTROL and self.mode not in (SAFE, FULL):
            return
        if opcode == Op.RESET:
            self.reset()
        elif opcode == Op.POWER:
            self.fall_asleep()
        elif opcode in MODE_OF:
            self.enter(MODE_OF[Op(opcode)])
            if opcode == Op.STOP:
                self._is_streaming = False
                self._stream = ()
        elif opcode in OWN:
            self.enter(PASSIVE)
            self.own_drive = OwnDrive(to_dock=opcode == Op.DOCK)
        elif opcode in DRIVING:
            self._drive(opcode, operands)
        elif opcode in (Op.SENSORS, Op.QUERY_LIST):
            if opcode == Op.SENSORS:
                self._answers += operands
            else:
                self._answers += operands[1:]
        elif opcode == Op.STREAM:
            self._stream = tuple(operands[1:])
            self._is_streaming = bool(operands[0])
        elif opcode == Op.PAUSE_STREAM:
            self._is_streaming = bool(operands[0]) and bool(self._stream)
        elif opcode == Op.BUTTONS:
            self.machine.press(operands[0])

    def enter(self, mode: int) -> None:
        """Change the mode; stop the wheels unless they stay under control."""
        if mode not in (SAFE, FULL) or self.mode not in (SAFE, FULL):
            self.requested = (0, 0)
            self.velocity_radius = (0, 0)
        self.mode = mode
        self.own_drive = None
        self._idle_s = 0.0
        self._was_docked = self._was_docked and mode != SAFE  # a powered dock ends Safe at once

    def _drive(self, opcode: int, operands: bytes) -> None:
        first, second = struct.unpack(">hh", operands)
        if opcode == Op.DRIVE_DIRECT:
            self.requested = (_limited(first), _limited(second))
        elif opcode == Op.DRIVE_PWM:
            self.requested = (
                _limited(round(first * FASTEST / 255)),
                _limited(round(second * FASTEST / 255)),
            )
        else:
            self.velocity_radius = first, second
            self.requested = _arc(_limited(first), second)

    # ---- time and output ---------------------------------------------------------------------------------------------

    def cycle(self, look: bool = True) -> bytes:  # noqa: ARG002
        """Run 1/64 s and return the bytes that the robot sends."""
        extra = self.extra
        self.extra = b""
        self.advance()
        return extra + self.say()

    def advance(self) -> None:
        """Run 1/64 s."""
        self.n_cycles += 1
        machine = self.machine
        left_mps, right = self._wheels()
        left_count = float(machine.state[COUNT_L])
        right_count = float(machine.state[COUNT_R])
        machine.tick(
            left_mps, right, may_charge=self.mode in (OFF, PASSIVE), is_awake=not self.is_asleep
        )
        self._travel[0] += float(machine.state[COUNT_L] - left_count)
        self._travel[1] += float(machine.state[COUNT_R] - right_count)
        if self.mode == PASSIVE and not self.is_asleep and self.own_drive is None:
            self._idle_s += TICK_S
            if self._idle_s >= SLEEP_S and not machine.is_docked and not self._is_streaming:
                self.fall_asleep()

    def run(self, n: int, raw: Floats) -> None:
        """Run `n` ticks as `advance` and `sensors` do, awake, streaming; `raw` receives the channels of each."""
        n_run = 0
        while n_run < n:
            # Its own drive decides in each tick
            m = 1
            if self.own_drive is None:
                m = n - n_run
            mode = self.machine.run(m, (*self._wheels(), self.mode, self._was_docked), raw[n_run:])
            self.n_cycles = self.n_cycles + m
            n_run = n_run + m
            if mode != self.mode:
                self.enter(mode)
            self._was_docked = self.machine.is_docked

    def _wheels(self) -> tuple[float, float]:
        """Return the requests of the wheels in the next tick, left and right, m/s."""
        if self.own_drive is not None and self.mode == PASSIVE:
            return self.own_drive.wheels(self.machine, self._rng)
        right, left_mps = (1e-3 * speed for speed in self.requested)
        if self.mode in (SAFE, FULL):
            return (left_mps, right)
        return (0.0, 0.0)

    def sensors(self) -> Sensors:
        """Return the sensors as the robot would send them now; a trigger first ends Safe."""
        self._sense()
        return self.report()

    def _sense(self) -> None:
        packets = self.machine.read()
        if self.mode == SAFE and tick.is_triggered(
            packets, self._was_docked, *map(float, self.requested)
        ):
            self.enter(PASSIVE)
        self._was_docked = self.machine.is_docked

    def report(self) -> Sensors:
        """Return the last sensor readings with the program's own packets."""
        left_m, right = self._travel
        per_count = 1000.0 * 0.000444565
        packets = self.machine.packets.tolist()
        packets[DISTANCE : DISTANCE + 3] = (
            _clipped(0.5 * (left_m + right) * per_count),
            _clipped((right - left_m) * per_count / (1000.0 * BASE_M) * 57.29578),
            self._charging_state(),
        )
        packets[MODE : MODE + 8] = (
            self.mode + self.mode_offset,
            0,  # it plays no songs
            0,
            min(len(self._stream), 108),
            *self.velocity_radius,
            *self.requested,
        )
        return Sensors(*packets)

    def say(self) -> bytes:
        """Return the output of this tick: replies, a frame of the stream, text."""
        if self.is_asleep:
            return b""
        output = b""
        if self.mode == OFF:
            return self._text()
        numbers = self._answers
        self._answers = []
        sensors = self.sensors()
        for number in numbers:
            output += encode_packet(sensors, number)
        if self._is_streaming and self._stream:
            output += frame_of(sensors, self._stream)[:LINE_BYTES]
        reported = list(numbers)
        if self._is_streaming:
            reported += self._stream
        if not DISTANCE_PACKETS.isdisjoint(reported):
            self.forget_way()
        return output

    def forget_way(self) -> None:
        """Clear distance and angle, as each report of them does."""
        self._travel = [0.0, 0.0]

    def _text(self) -> bytes:
        output = b""
        while self._texts and self._texts[0][0] <= self.n_cycles:
            output += self._texts.popleft()[1]
        machine = self.machine
        n_up = -1
        if self._boot_tick is not None:
            n_up = self.n_cycles - self._boot_tick - round(BOOT_S / TICK_S)
        if machine.is_docked and n_up >= 0 and n_up % round(1 / TICK_S) == 0:
            minutes, seconds = divmod(round(n_up * TICK_S), 60)
            volts = round(1000.0 * machine.volts)
            amps = round(1000.0 * machine.amps)
            celsius = machine.temperature_k - 273.15
            line = f"bat:   min {minutes}  sec {seconds}  mV {volts}  mA {amps}  deg-C {celsius:.0f}\r\n"
            output += line.encode()
        return output

    def _charging_state(self) -> int:
        if not self.machine.is_charging:
            return 0
        if self.machine.is_full:
            return 3
        return 2


def _arc(velocity: int, radius: int) -> tuple[int, int]:
    """Return the wheel speeds of opcode 137, right and left."""
    if radius in STRAIGHT or radius == 0:
        return velocity, velocity
    if radius in (1, -1):
        return radius * velocity, -radius * velocity
    share = 500.0 * BASE_M / max(min(radius, 2000), -2000)
    return _limited(round(velocity * (1.0 + share))), _limited(round(velocity * (1.0 - share)))


def _limited(speed: int) -> int:
    return max(min(speed, FASTEST), -FASTEST)


def _clipped(number: float) -> int:
    return max(min(round(number), 32767), -32768)


# ---- docking by itself -----------------------------------------------------------------------------------------------

# M/s, m/s, rad/s
FAST = 0.20
SLOW = 0.08
TURN = 1.2
BEFORE_M = 0.55
ARRIVED_M = 0.05
BACK_S = 0.7
TURN_S = (0.5, 1.6)
ASIDE_S = (1.0, 2.5)


class OwnDrive:
    """One drive of the robot's own program: docking, or cleaning."""

    def __init__(self, to_dock: bool) -> None:
        self._to_dock = to_dock
        # Remaining time (s), forward (m/s), yaw (rad/s)
        self._held: list[tuple[float, float, float]] = []
        self._is_lined_up = False

    def save(self) -> dict[str, Any]:
        """Return the drive's state as JSON types."""
        return {"to_dock": self._to_dock, "held": self._held, "is_lined_up": self._is_lined_up}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> OwnDrive:
        """Return the drive whose state `save` returned."""
        drive = cls(state["to_dock"])
        drive._held = [(left_s, forward, yaw) for left_s, forward, yaw in state["held"]]
        drive._is_lined_up = state["is_lined_up"]
        return drive

    def wheels(self, machine: Machine, rng: Generator) -> tuple[float, float]:
        """Return the requests of the wheels, left and right, m/s."""
        if self._to_dock and machine.is_docked:
            return 0.0, 0.0
        bumped = bool(machine.contact[BUMP_L] or machine.contact[BUMP_R])
        if bumped and not self._held:
            side = -1.0
            if rng.random() < 0.5:
                side = 1.0
            self._held = [
                (BACK_S, -0.15, 0.0),
                (float(rng.uniform(*TURN_S)), 0.0, side * TURN),
                (float(rng.uniform(*ASIDE_S)), FAST, 0.0),
            ]
            self._is_lined_up = False
        elif bumped and self._held[0][1] > 0.0:
            self._held = []
        if self._held:
            left_s, forward, yaw = self._held[0]
            self._held[0] = left_s - TICK_S, forward, yaw
            if left_s <= TICK_S:
                self._held.pop(0)
            return _wheels(forward, yaw)
        if self._to_dock:
            return self._towards_dock(machine)
        return _wheels(FAST, 0.0)

    def _towards_dock(self, machine: Machine) -> tuple[float, float]:
        dock = machine.room.dock
        x, y, heading = machine.pose
        c = math.cos(dock.direction)
        s = math.sin(dock.direction)
        ahead = (x - dock.x) * c + (y - dock.y) * s
        aside = -(x - dock.x) * s + (y - dock.y) * c
        if not self._is_lined_up:
            to_x = dock.x + BEFORE_M * c - x
            to_y = dock.y + BEFORE_M * s - y
            if math.hypot(to_x, to_y) < ARRIVED_M:
                self._is_lined_up = True
            else:
                return _steer(math.atan2(to_y, to_x) - heading, FAST)
        if ahead > 2.0 * BEFORE_M or abs(aside) > 0.15:
            self._is_lined_up = False
        aim = dock.direction + math.pi + math.atan2(2.5 * aside, 0.4)
        return _steer(aim - heading, SLOW)


def _steer(off: float, speed: float) -> tuple[float, float]:
    off = math.remainder(off, 2.0 * math.pi)
    yaw = min(max(2.5 * off, -TURN), TURN)
    forward = 0.0
    if abs(off) < 0.7:
        forward = speed * max(math.cos(off), 0.0)
    return _wheels(forward, yaw)


def _wheels(forward: float, yaw: float) -> tuple[float, float]:
    return forward - 0.5 * BASE_M * yaw, forward + 0.5 * BASE_M * yaw
