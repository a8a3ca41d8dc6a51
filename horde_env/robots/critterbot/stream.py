"""State packets out of the serial line's stream of bytes; `drops` has the reader of the driver's stream."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from horde_env.backend import Floats
from horde_env.hardware.stream import PacketFinder, StreamParser
from horde_env.robots.critterbot import wire
from horde_env.robots.critterbot.wire import (
    HEADER,
    LEDS_SIZE,
    STATE_SIZE,
    Control,
    LedMode,
    RobotState,
    decode_control,
    decode_states,
    encode_control,
    ir_light,
    is_sound,
)


class StateParser(PacketFinder):
    """Turns the robot's stream of bytes into states; never accepts a packet with a wrong CRC."""

    header, size = HEADER, STATE_SIZE

    def is_sound(self, packet: bytes) -> bool:
        """Tell whether a candidate of the right size and header is a state packet."""
        return is_sound(packet)

    def feed(self, data: bytes) -> list[RobotState]:
        """Take the next bytes and return the states that are now complete, in their order."""
        found = self.find(data)
        return decode_states(found) if found else []


# ---- drops of the on-board driver ------------------------------------------------------------------------------------

STATE_NAME, CONTROL_NAME = b"CritterStateDrop", b"CritterControlDrop"
N_STATE_INTS, N_BUMP = 93, 32
ROBOT_PORT, SIMULATOR_PORT = 2330, 2324


def _frame_start(name: bytes, data_size: int) -> bytes:
    """Return the bytes of a frame before its data."""
    return len(name).to_bytes(4, "little") + name + data_size.to_bytes(4, "little")


STATE_START = _frame_start(STATE_NAME, 4 * N_STATE_INTS)
CONTROL_START = _frame_start(CONTROL_NAME, 5 * 4 + LEDS_SIZE)
DROP_SIZE = len(STATE_START) + 4 * N_STATE_INTS
CONTROL_DROP_SIZE = len(CONTROL_START) + 5 * 4 + LEDS_SIZE

# Positions among the 93 integers; from acceleration to thermal they lie in the order of the observation.
SECONDS, MICROSECONDS, SOURCE, POWER, CHARGE, BUS, BATTERY, MOTORS, ACCELERATION = 0, 1, 2, 3, 4, 5, 6, 9, 21
BUMP, ERRORS, CYCLE_TIME, MONITOR = 58, 90, 91, 92
# It may drive or is too hot to; before June 2011 neither that nor charging was told.
MONITOR_STATES = {
    drive | charging
    for drive in (0, wire.MONITOR_DRIVE, wire.MONITOR_OVERHEATING)
    for charging in (0, wire.MONITOR_CHARGING)
}
_MOTORS = [MOTORS + 4 * motor + field for field in range(4) for motor in range(3)]
_CHANNELS = np.array([BUS, *range(BATTERY, MOTORS), *_MOTORS, *range(ACCELERATION, BUMP)])
_IR_DISTANCE = slice(23, 33)  # among the channels


def url_of(address: str) -> str:
    """Return the url of a driver at "HOST", "HOST:PORT" or "socket://HOST:PORT"; the robot's port where none is said.

    >>> url_of("10.0.1.10"), url_of("localhost:2324"), url_of("[::1]")
    ('socket://10.0.1.10:2330', 'socket://localhost:2324', 'socket://[::1]:2330')
    """
    place = address.removeprefix("socket://")
    names_port = ":" in place.rpartition("]")[2]  # an address with colons stands in brackets
    return f"socket://{place}" if names_port else f"socket://{place}:{ROBOT_PORT}"


class DataSource(IntEnum):
    """Where a drop's readings come from; only the simulator's IR distance is not scrambled."""

    ROBOT = 0
    SIMULATOR = 1
    LOG = 2


class StateDrop(NamedTuple):
    """What one state drop says.

    Attributes:
        state: As from the wire, but for IR distance, which is `restore_ir_distance`'s estimate and no integer.
        ir_distance: The drop's own ten numbers, 0..255, shape (10,).
        time_s: The driver's wall clock when it read the packet; 0 from the simulator.
        source: A DataSource.
        on_battery: True unless the bus was above 17.0 V.
        bump: The simulator's 32 touch cells, 0..255; the robot has none and sends whatever was in memory.
    """

    state: RobotState
    ir_distance: Floats
    time_s: float = 0.0
    source: int = DataSource.ROBOT
    on_battery: bool = True
    bump: tuple[int, ...] = (0,) * N_BUMP


def scramble_ir_distance(raw: Floats) -> Floats:
    """Return the 0..255 that the driver makes of ten bits: the high eight of them OR the low two."""
    bits = np.asarray(raw, dtype=np.int64)
    return np.asarray(bits >> 2 | bits & 3, dtype=np.float64)


class IrEstimate(NamedTuple):
    """IR distance of 0..1023 as far as a drop tells: estimate and bounds, each of shape (n,)."""

    estimate: Floats
    lowest: Floats
    highest: Floats


def restore_ir_distance(scrambled: Floats) -> IrEstimate:
    """Undo the driver's scrambling as far as it can be undone.

    Of a reading's ten bits hhhhhhHHll a drop keeps hhhhhh and o = HH | ll. With v the drop's number the reading is
    therefore 16 (v >> 2) + r with r = 0 exactly for o = 0, 1..5 for o = 1, 2..10 for o = 2, 3..15 for o = 3. If the low
    four bits are uniform, as they are in the robot's log, r has the mean 10/3 o whatever o is: this estimate has no
    bias and an r.m.s. error of 3.3 of 1023, and one in sixteen is exact. A saturated sensor (1023) is restored as 1018.

    Args:
        scrambled: The drop's numbers, 0..255, shape (n,).
    """
    kept, either = np.divmod(np.asarray(scrambled, dtype=np.float64), 4.0)
    return IrEstimate(16.0 * kept + 10.0 / 3.0 * either, 16.0 * kept + either, 16.0 * kept + 5.0 * either)


def decode_state_drop(frame: bytes) -> StateDrop:
    """Return what a state drop says.

    Raises:
        ValueError: If the frame is not 396 bytes of a CritterStateDrop.
    """
    if len(frame) != DROP_SIZE or not frame.startswith(STATE_START):
        raise ValueError(
            f"a state drop is {DROP_SIZE} bytes that start with {STATE_START!r}, not {len(frame)} bytes that start "
            f"with {frame[: len(STATE_START)]!r}"
        )
    return decode_state_drops([frame])[0]


def decode_state_drops(frames: list[bytes]) -> list[StateDrop]:
    """Return what whole state drops say; faster than one by one."""
    ints = np.frombuffer(b"".join(frames), dtype="<i4").reshape(-1, DROP_SIZE // 4)[:, -N_STATE_INTS:]
    raw = np.zeros((len(frames), wire.N_CHANNELS))
    raw[:, : wire.N_ON_WIRE] = ints[:, _CHANNELS]
    raw[:, wire.OVERHEATING] = ints[:, MONITOR] & wire.MONITOR_OVERHEATING
    own_ir_distance = raw[:, _IR_DISTANCE].copy()
    simulated = ints[:, SOURCE, None] == DataSource.SIMULATOR
    # The simulator's numbers are shares of 255 and not scrambled; raw is a share of 1023.
    raw[:, _IR_DISTANCE] = np.where(
        simulated, own_ir_distance * (1023 / 255), restore_ir_distance(own_ir_distance).estimate
    )
    raw.flags.writeable = False
    return [_drop(*row) for row in zip(raw, own_ir_distance, ints.tolist(), strict=True)]


def _drop(raw: Floats, ir_distance: Floats, ints: list[int]) -> StateDrop:
    """Return one drop; the top byte of its error flags repeats the charge state."""
    return StateDrop(
        RobotState(raw, ints[CHARGE], ints[ERRORS] & 0xFFFFFF, ints[CYCLE_TIME], ints[MONITOR]),
        ir_distance,
        time_s=ints[SECONDS] + ints[MICROSECONDS] * 1e-6,
        source=ints[SOURCE],
        on_battery=ints[POWER] != 0,
        bump=tuple(ints[BUMP : BUMP + N_BUMP]),
    )


def encode_state_drop(drop: StateDrop) -> bytes:
    """Return the 396 bytes that the driver would send; IR distance from `drop.ir_distance`."""
    seconds, microseconds = divmod(round(drop.time_s * 1e6), 1_000_000)
    ints = np.zeros(N_STATE_INTS, dtype="<i4")
    ints[_CHANNELS] = drop.state.raw[: wire.N_ON_WIRE]
    ints[_CHANNELS[_IR_DISTANCE]] = drop.ir_distance
    ints[[SECONDS, MICROSECONDS, SOURCE, POWER]] = seconds, microseconds, drop.source, drop.on_battery
    ints[[CHARGE, CYCLE_TIME, MONITOR]] = drop.state.charge_state, drop.state.cycle_time, drop.state.monitor
    ints[ERRORS] = np.uint32(drop.state.charge_state << 24 | drop.state.error_flags).astype(np.int32)
    ints[BUMP : BUMP + N_BUMP] = drop.bump
    return STATE_START + ints.tobytes()


def drop_of(state: RobotState, time_s: float) -> StateDrop:
    """Return the drop that the driver makes of a state packet, scrambled IR distance and all (for the emulator)."""
    own = scramble_ir_distance(state.raw[_IR_DISTANCE])
    return StateDrop(state, own, time_s, DataSource.ROBOT, on_battery=bool(state.raw[0] <= 170))


def encode_control_drop(control: Control) -> bytes:
    """Return the 94 bytes of a control drop: send them in one write. The LED bytes are always there.

    Raises:
        ValueError: If a, b or c is no int8 (the driver would send its low eight bits), a mode is no byte, or there are
            not 48 LED bytes with custom LEDs and none without.
    """
    encode_control(control)  # a drop carries what the wire carries: the same checks
    numbers = np.array([control.mode, control.a, control.b, control.c, control.led_mode], dtype="<i4")
    return CONTROL_START + numbers.tobytes() + (control.leds or bytes(LEDS_SIZE))


def decode_control_drop(frame: bytes) -> Control:
    """Return what a control drop asks of the robot, as the driver passes it on: the low eight bits of each number.

    The name is not looked at: the driver reads exactly 94 bytes, whatever they are called.

    Raises:
        ValueError: If there are not 94 bytes.
    """
    if len(frame) != CONTROL_DROP_SIZE:
        raise ValueError(f"a control drop is {CONTROL_DROP_SIZE} bytes, not {len(frame)}")
    mode, a, b, c, led_mode = np.frombuffer(frame, dtype="<i4", count=5, offset=len(CONTROL_START)) & 0xFF
    leds = frame[-LEDS_SIZE:] if led_mode == LedMode.CUSTOM else b""
    return decode_control(wire.HEADER + bytes([mode, a, b, c, led_mode]) + leds)


class StateDropParser(PacketFinder):
    """Turns the driver's stream of bytes into states. Other drops, and anything else, are skipped and counted.

    The driver looks at no checksum and passes none on: where a byte was lost between the robot and it, a drop holds the
    ruins of two packets. Most of them show it, for their readings are shifted: bits are set that no firmware sets, the
    copy of the charge state is another, the bus has no voltage, or a cycle time that was always 0 is not.

    Attributes:
        newest: The last drop, with its time and source; None before the first.
    """

    header = STATE_START
    size = DROP_SIZE

    def __init__(self) -> None:
        super().__init__()
        self.newest: StateDrop | None = None
        self._is_idle = False  # whether the cycle time was 0, as it is from the firmware of 2011

    def is_sound(self, packet: bytes) -> bool:
        """Tell whether a frame of the right name and size may come from a sound packet of the robot's."""
        ints = np.frombuffer(packet, dtype="<i4", offset=len(STATE_START)).tolist()
        if ints[SOURCE] != DataSource.ROBOT:
            return True
        errors, copy = ints[ERRORS] & 0xFFFFFF, ints[ERRORS] >> 24 & 0xFF
        sound = (
            ints[BUS] != 0
            and copy in (ints[CHARGE], 0)  # before June 2011 there was none
            and errors >> wire.N_ERRORS == 0
            and ints[MONITOR] in MONITOR_STATES
            and not (self._is_idle and ints[CYCLE_TIME] != 0)
        )
        self._is_idle = self._is_idle or (sound and ints[CYCLE_TIME] == 0)
        return sound

    def feed(self, data: bytes) -> list[RobotState]:
        """Take the next bytes and return the states that are now complete, in their order."""
        found = self.find(data)
        if not found:
            return []
        drops = decode_state_drops(found)
        self.newest = drops[-1]
        return [drop.state for drop in drops]


def is_original_simulator(parser: StreamParser) -> bool:
    """Tell whether the newest drop came from the original simulator, which dies of any control but a motor's."""
    newest = parser.newest if isinstance(parser, StateDropParser) else None
    return newest is not None and newest.source == DataSource.SIMULATOR


# ---- IR light --------------------------------------------------------------------------------------------------------


class IrLightContinuity:
    """Unwraps the IR light of the Critterbot's packets as they come."""

    def __init__(self) -> None:
        self._unwrapper = IrLightUnwrapper()

    def forget(self) -> None:
        """Take the next two packets as they are."""
        self._unwrapper.forget()

    def unwrap(self, state: RobotState) -> Floats:
        """Return the readings, 0..1023, shape (8,), of the next packet."""
        return self._unwrapper.unwrap(ir_light(state))


class IrLightUnwrapper:
    """Gives IR light its top two bits back, by continuity with the last three packets.

    The firmware sends a reading of 0..1023 modulo 256. Near the dock its 50 Hz beacon makes a 100 Hz sample alternate
    between two levels, and now and then one level comes twice, so a reading resembles the one two packets ago, or else
    the last or the third. Of the four readings that a byte may stand for, the one nearest to any of these is taken, 32
    in favour of the one two packets ago.

    Always right where the reading is within 32 of what it was two packets ago; right after greater changes unless they
    come near a multiple of 256. Not possible for the first two packets, which are taken as they are (away from the
    dock the robot's own log never passes 196), and only a guess across lost packets. A guess too high cannot be
    noticed later: `forget` starts again.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Take the next two packets as they are."""
        self._history = np.zeros((3, 8))  # the last, two ago, three ago

    def unwrap(self, wrapped: Floats) -> Floats:
        """Return the readings, 0..1023, shape (8,), of the next packet, which carried `wrapped`, 0..255."""
        candidates = wrapped + 256.0 * np.arange(4)[:, None]
        change = np.abs(candidates[:, None, :] - self._history) + np.array([32.0, 0.0, 32.0])[:, None]
        best = change.min(axis=1).argmin(axis=0)
        reading: Floats = candidates[best, np.arange(8)]
        self._history = np.stack([reading, self._history[0], self._history[1]])
        return reading
