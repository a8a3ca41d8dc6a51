"""State packets in the serial line's stream of bytes, and drops in that of the on-board driver."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from horde_env.backend import Floats
from horde_env.hardware.stream import StreamParser
from horde_env.robots.critterbot import wire

# ---- IR light --------------------------------------------------------------------------------------------------------


class IrLightUnwrapper:
    """Restores the top two bits of IR light by continuity with the last three packets.

    The firmware sends readings of 0..1023 modulo 256. Near the dock its 50 Hz beacon makes a 100 Hz
    sample alternate between two levels, and occasionally a level comes twice, so a reading
    resembles the one two packets ago, or else the last or the third. Of the four readings that a
    byte may represent, the one nearest to any of these is chosen, with an advantage of 32 for the
    one two packets ago.

    The result is correct for changes of up to 32 in two packets, and for greater changes that are
    not near a multiple of 256. The first two packets are not changed (far from the dock the robot's
    log never exceeds 196); across lost packets the result is a guess. A guess too high cannot be
    detected later: `forget` starts again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.forget()

    def forget(self) -> None:
        """Leave the next two packets unchanged."""
        self._history = np.zeros((3, 8))  # the last, two ago, three ago

    def unwrap(self, state: wire.RobotState) -> Floats:
        """Return the next packet's channels, IR light in 0..1023, shape (57,)."""
        candidates = state.raw[wire.IR_LIGHT] + 256.0 * np.arange(4)[:, None]
        change = (
            np.abs(candidates[:, None, :] - self._history) + np.array([32.0, 0.0, 32.0])[:, None]
        )
        best = change.min(axis=1).argmin(axis=0)
        reading: Floats = candidates[best, np.arange(8)]
        self._history = np.stack([reading, self._history[0], self._history[1]])
        raw = state.raw.copy()
        raw[wire.IR_LIGHT] = reading
        return raw


# ---- packets of the serial line --------------------------------------------------------------------------------------


class StateParser(IrLightUnwrapper, StreamParser):
    """Turns the robot's stream of bytes into states; never accepts a packet with a wrong CRC."""

    header = wire.HEADER
    size = wire.STATE_SIZE

    is_sound = staticmethod(wire.is_sound)

    def feed(self, data: bytes) -> list[wire.RobotState]:
        """Add bytes and return the states that are now complete, in order."""
        packets = self.find(data)
        if packets:
            return wire.decode_states(packets)
        return []


# ---- drops of the on-board driver ------------------------------------------------------------------------------------

STATE_NAME = b"CritterStateDrop"
CONTROL_NAME = b"CritterControlDrop"
N_STATE_INTS = 93
ROBOT_PORT = 2330
SIMULATOR_PORT = 2324


def _frame_start(name: bytes, data_size: int) -> bytes:
    """Return the bytes of a frame before its data."""
    return len(name).to_bytes(4, "little") + name + data_size.to_bytes(4, "little")


STATE_START = _frame_start(STATE_NAME, 4 * N_STATE_INTS)
CONTROL_START = _frame_start(CONTROL_NAME, 5 * 4 + wire.LEDS_SIZE)
DROP_SIZE = len(STATE_START) + 4 * N_STATE_INTS
CONTROL_DROP_SIZE = len(CONTROL_START) + 5 * 4 + wire.LEDS_SIZE

# Positions among the 93 integers; from acceleration to thermal they lie in the order of the
# observation.
SECONDS = 0
MICROSECONDS = 1
SOURCE = 2
POWER = 3
CHARGE = 4
BUS = 5
BATTERY = 6
MOTORS = 9
ACCELERATION = 21
BUMP = 58
ERRORS = 90
CYCLE_TIME = 91
MONITOR = 92
# Driving, overheating and charging; firmware before June 2011 reported none of them.
MONITOR_STATES = {
    drive | charging
    for drive in (0, wire.MONITOR_DRIVE, wire.MONITOR_OVERHEATING)
    for charging in (0, wire.MONITOR_CHARGING)
}
_MOTORS = [MOTORS + 4 * motor + field for field in range(4) for motor in range(3)]
_CHANNELS = np.array([BUS, *range(BATTERY, MOTORS), *_MOTORS, *range(ACCELERATION, BUMP)])
_IR_DISTANCE = slice(23, 33)  # among the channels


def url_of(address: str) -> str:
    """Return the url of a driver at "HOST", "HOST:PORT" or "socket://HOST:PORT"; the default port is the robot's.

    >>> url_of("10.0.1.10"), url_of("localhost:2324"), url_of("[::1]")
    ('socket://10.0.1.10:2330', 'socket://localhost:2324', 'socket://[::1]:2330')
    """
    place = address.removeprefix("socket://")
    names_port = ":" in place.rpartition("]")[2]  # an IPv6 address is in brackets
    if names_port:
        return f"socket://{place}"
    return f"socket://{place}:{ROBOT_PORT}"


class DataSource(IntEnum):
    """The source of a drop's readings; only the simulator's IR distance is not scrambled."""

    ROBOT = 0
    SIMULATOR = 1


def restore_ir_distance(scrambled: Floats) -> Floats:
    """Estimate the readings before the driver's scrambling, 0..1023, shape (n,).

    A drop keeps hhhhhh and o = HH | ll of a reading's ten bits hhhhhhHHll. The reading is 16 (v >>
    2) + r, with v the drop's number and r = 0 exactly for o = 0, 1..5 for o = 1, 2..10 for o = 2,
    3..15 for o = 3. If the low four bits are uniform, as in the robot's log, r has the mean 10/3 o
    for each o: the estimate has no bias and an r.m.s. error of 3.3 of 1023, and one in sixteen is
    exact. A saturated sensor (1023) is restored as 1018.
    """
    quotient, either = np.divmod(np.asarray(scrambled, dtype=np.float64), 4.0)
    return np.asarray(16.0 * quotient + 10.0 / 3.0 * either)


def decode_state_drops(frames: list[bytes]) -> list[wire.RobotState]:
    """Decode complete state drops; faster than one by one. IR distance is an estimate and not an integer."""
    ints = np.frombuffer(b"".join(frames), dtype="<i4").reshape(-1, DROP_SIZE // 4)[
        :, -N_STATE_INTS:
    ]
    raw = np.zeros((len(frames), wire.N_CHANNELS))
    raw[:, : wire.N_ON_WIRE] = ints[:, _CHANNELS]
    raw[:, wire.OVERHEATING] = ints[:, MONITOR] & wire.MONITOR_OVERHEATING
    ir_readings = raw[:, _IR_DISTANCE]
    simulated = ints[:, SOURCE, None] == DataSource.SIMULATOR
    # The simulator's numbers are fractions of 255 and not scrambled; raw is a fraction of 1023.
    raw[:, _IR_DISTANCE] = np.where(
        simulated, ir_readings * (1023 / 255), restore_ir_distance(ir_readings)
    )
    raw.flags.writeable = False
    # The top byte of the error flags is a copy of the charge state.
    return [
        wire.RobotState(row, i[CHARGE], i[ERRORS] & 0xFFFFFF, i[CYCLE_TIME], i[MONITOR])
        for row, i in zip(raw, ints.tolist(), strict=True)
    ]


def encode_state_drop(state: wire.RobotState, time_s: float) -> bytes:
    """Encode the driver's drop of a state packet in 396 bytes; `time_s` is its wall clock.

    IR distance is scrambled: of ten bits the high eight OR the low two.
    """
    seconds, microseconds = divmod(round(time_s * 1e6), 1_000_000)
    ints = np.zeros(N_STATE_INTS, dtype="<i4")
    ints[_CHANNELS] = state.raw[: wire.N_ON_WIRE]
    bits = state.raw[_IR_DISTANCE].astype(np.int64)
    ints[_CHANNELS[_IR_DISTANCE]] = bits >> 2 | bits & 3
    ints[[SECONDS, MICROSECONDS, SOURCE, POWER]] = (
        seconds,
        microseconds,
        DataSource.ROBOT,
        state.raw[0] <= 170,
    )
    ints[[CHARGE, CYCLE_TIME, MONITOR]] = state.charge_state, state.cycle_time, state.monitor
    ints[ERRORS] = np.uint32(state.charge_state << 24 | state.error_flags).astype(np.int32)
    return STATE_START + ints.tobytes()


def encode_control_drop(control: wire.Control) -> bytes:
    """Encode a control in the 94 bytes of a control drop, to be sent in one write. It always has LED bytes.

    Raises:
        ValueError: If a number does not fit into its byte; the driver would send its low eight
            bits.
    """
    wire.encode_control(control)  # for its check
    return CONTROL_START + np.array(control, dtype="<i4").tobytes() + bytes(wire.LEDS_SIZE)


def decode_control_drop(frame: bytes) -> wire.Control:
    """Decode the 94 bytes of a control drop as the driver does: the low eight bits of each number."""
    return wire.decode_control(frame[len(CONTROL_START) : -wire.LEDS_SIZE : 4])


class StateDropParser(IrLightUnwrapper, StreamParser):
    """Parses the driver's stream of bytes into states; other bytes are skipped and counted.

    The driver neither checks nor forwards the checksum: after a byte lost on the robot's serial
    line, a drop is a mix of two packets. Most such drops are recognised by their shifted readings:
    spare bits are set, the copy of the charge state differs, the bus voltage is 0, or a cycle time
    that was always 0 is not.
    """

    header = STATE_START
    size = DROP_SIZE

    def __init__(self) -> None:
        super().__init__()
        self.is_simulator = False  # whether the newest drop is from the original simulator
        self._is_idle = False  # whether the cycle time was 0, as it is from the firmware of 2011

    def is_sound(self, packet: bytes) -> bool:
        """Return whether a frame of the right name and size may be a valid packet of the robot."""
        ints = np.frombuffer(packet, dtype="<i4", offset=len(STATE_START)).tolist()
        if ints[SOURCE] != DataSource.ROBOT:
            return True
        errors = ints[ERRORS] & 0xFFFFFF
        copy = ints[ERRORS] >> 24 & 0xFF
        sound = (
            ints[BUS] != 0
            and copy in (ints[CHARGE], 0)  # before June 2011 there was none
            and errors >> wire.N_ERRORS == 0
            and ints[MONITOR] in MONITOR_STATES
            and not (self._is_idle and ints[CYCLE_TIME] != 0)
        )
        self._is_idle = self._is_idle or (sound and ints[CYCLE_TIME] == 0)
        return sound

    def feed(self, data: bytes) -> list[wire.RobotState]:
        """Add bytes and return the states that are now complete, in order."""
        packets = self.find(data)
        if not packets:
            return []
        source = len(STATE_START) + 4 * SOURCE
        self.is_simulator = (
            int.from_bytes(packets[-1][source : source + 4], "little") == DataSource.SIMULATOR
        )
        return decode_state_drops(packets)


def is_original_simulator(parser: StreamParser | None) -> bool:
    """Return whether the newest drop is from the original simulator, which crashes on controls other than motors'."""
    return isinstance(parser, StateDropParser) and parser.is_simulator
