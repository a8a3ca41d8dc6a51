"""The drops of the robot's driver."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horde_env.hardware.link import Dialect
from horde_env.robot import critterbot
from horde_env.robots.critterbot import stream, wire
from horde_env.robots.critterbot.body import DROPS, SERIAL
from horde_env.robots.critterbot.stream import StateDropParser
from horde_env.robots.critterbot.wire import Control, RobotState
from tests.env.hardware.packets import GOLDEN, HIGHEST, LOWEST, controls, state_of, states

SPEC = critterbot()
IR_DISTANCE = SPEC.group("ir_distance")

# Name, number of int32: the drop as the driver declares it.
LAYOUT = [
    ("time", 2),
    ("data_source", 1),
    ("power_source", 1),
    ("charge_state", 1),
    ("bus_voltage", 1),
    ("battery", 3),
    ("motor100", 4),
    ("motor220", 4),
    ("motor340", 4),
    ("accel", 3),
    ("mag", 3),
    ("rotation", 1),
    ("ir_distance", 10),
    ("ir_light", 8),
    ("light", 4),
    ("thermal", 8),
    ("bump", 32),
    ("error_flags", 1),
    ("cycle_time", 1),
    ("monitor_state", 1),
]


def fields_of(frame: bytes) -> dict[str, list[int]]:
    """The slow twin: one integer after the other, by the driver's own names."""
    integers = iter(struct.unpack("<93i", frame[24:]))
    return {name: list(itertools.islice(integers, n)) for name, n in LAYOUT}


def frame_of(**fields: list[int]) -> bytes:
    numbers = [n for name, size in LAYOUT for n in fields.get(name, [0] * size)]
    return b"\x10\0\0\0CritterStateDrop\x74\x01\0\0" + struct.pack("<93i", *numbers)


@given(states())
def test_a_drop_holds_the_readings_where_the_driver_puts_them(state: RobotState) -> None:
    frame = stream.encode_state_drop(state, 1286293951.252345)
    fields = fields_of(frame)
    (decoded_state,) = stream.decode_state_drops([frame])

    def raw(group: str) -> list[int]:
        return state.raw[SPEC.group(group)].astype(int).tolist()

    motors = zip(
        *[raw(f"motor_{f}") for f in ("voltage", "velocity", "current", "temperature")], strict=True
    )
    assert [fields[f"motor{angle}"] for angle in (100, 220, 340)] == [
        list(motor) for motor in motors
    ]
    names = {
        "battery": "battery_voltage",
        "accel": "acceleration",
        "mag": "magnetic",
        "rotation": "rotational_velocity",
    }
    for name in ("bus_voltage", "ir_light", "light", "thermal", *names):
        assert fields[name] == raw(names.get(name, name)), name
    assert fields["ir_distance"] == [v >> 2 | v & 3 for v in raw("ir_distance")]
    assert fields["time"] == [1286293951, 252345]
    assert fields["power_source"] == [0 if state.raw[0] > 170 else 1]
    assert fields["charge_state"] == [state.charge_state]
    assert fields["error_flags"][0] & 0xFFFFFFFF == state.charge_state << 24 | state.error_flags
    assert fields["monitor_state"] == [state.monitor]
    other_channels = np.delete(np.arange(57), IR_DISTANCE)
    np.testing.assert_array_equal(decoded_state.raw[other_channels], state.raw[other_channels])
    assert decoded_state[1:] == state[1:]
    assert np.abs(decoded_state.raw[IR_DISTANCE] - state.raw[IR_DISTANCE]).max() <= 7.0


def test_the_estimate_of_a_scrambled_ir_distance_is_the_mean_of_what_fits() -> None:
    """Every one of the 1024 readings, by exhaustion: without bias, and off by 3.3 of 1023."""
    readings = np.arange(1024.0)
    scrambled = np.arange(1024) >> 2 | np.arange(1024) & 3
    estimate = stream.restore_ir_distance(scrambled)
    for v in range(256):
        assert estimate[scrambled == v] == pytest.approx(readings[scrambled == v].mean(), abs=1e-9)
    assert np.sqrt(np.mean((estimate - readings) ** 2)) == pytest.approx(3.29, abs=0.005)


def test_the_simulators_ir_distance_is_a_share_of_255() -> None:
    """Were it unscrambled, its 255 would read 1018."""
    numbers = [0, 1, 2, 3, 51, 100, 127, 128, 254, 255]
    parser = StateDropParser()
    (state,) = parser.feed(frame_of(data_source=[1], ir_distance=numbers))
    assert parser.is_simulator
    np.testing.assert_allclose(
        SPEC.to_si(state.raw)[IR_DISTANCE], np.array(numbers) / 255, rtol=1e-12
    )


@given(controls)
def test_a_control_survives_its_drop(control: Control) -> None:
    frame = stream.encode_control_drop(control)

    assert len(frame) == 94
    assert stream.decode_control_drop(frame) == control


def test_a_control_drop_is_laid_out_as_the_driver_reads_it() -> None:
    frame = stream.encode_control_drop(Control(1, 20, -3, 0, 1))

    assert frame[:26] == b"\x12\0\0\0CritterControlDrop\x44\0\0\0"
    assert struct.unpack("<5i", frame[26:46]) == (1, 20, -3, 0, 1)
    assert frame[46:] == bytes(48)


def test_the_driver_passes_on_the_low_eight_bits() -> None:
    """300, 130, -200 became 44, -126, 56 in the original; we refuse to send them in the first place."""
    frame = stream.CONTROL_START + struct.pack("<5i", 1, 300, 130, -200, 0) + bytes(48)

    assert stream.decode_control_drop(frame) == Control(1, 44, -126, 56, 0)
    with pytest.raises(ValueError, match=r"a, b, c -128\.\.127"):
        stream.encode_control_drop(Control(1, 300))


@given(st.lists(st.integers(0, 5 * 396), max_size=20))
def test_drops_are_found_however_tcp_cuts_them(cuts: list[int]) -> None:
    frames = [
        frame_of(time=[100, i], charge_state=[i], bus_voltage=[160 + i], data_source=[2])
        for i in range(5)
    ]
    stream = b"".join(frames)
    parser = StateDropParser()
    edges = [0, *sorted(cuts), len(stream)]
    decoded_states = [
        state for a, b in itertools.pairwise(edges) for state in parser.feed(stream[a:b])
    ]

    assert [(state.charge_state, state.raw[0]) for state in decoded_states] == [
        (i, 160 + i) for i in range(5)
    ]
    assert (parser.packets, parser.crc_errors, parser.skipped_bytes) == (5, 0, 0)
    assert parser.n_wanted == parser.size
    assert not parser.is_simulator


def test_other_drops_and_other_peers_are_skipped_and_counted() -> None:
    audio = b"\x0c\0\0\0FftAudioDrop\x48\0\0\0" + bytes(72)
    parser = StateDropParser()
    states_ = parser.feed(b"HTTP/1.1 400\r\n" + audio + frame_of(bus_voltage=[166]) + audio)

    assert [state.raw[0] for state in states_] == [166]
    assert parser.skipped_bytes == 14 + 2 * len(audio)
    assert parser.n_wanted == 396


def drop_of_bytes(packet: bytes) -> bytes:
    """Return the drop that the driver makes of any 83 bytes: it looks at no checksum."""
    drop = bytearray(stream.encode_state_drop(wire.decode_states([packet])[0], 0.0))
    drop[24 + 4 * 90 + 3] = packet[75]
    return bytes(drop)


def test_a_drop_of_a_packet_that_lost_a_byte_is_refused() -> None:
    """Wherever in the readings it was, once it is known that this robot's cycle time is 0; at first a few pass.

    A byte of the checksum is in no drop. In place of a lost monitor byte stands one of the
    checksum, which once in 43 looks like one.
    """
    rng = np.random.default_rng(0)
    whole = drop_of_bytes(GOLDEN)
    n = 40
    n_taken = {"at first": 0, "later": 0, "monitor": 0}
    for values, errors in zip(
        rng.integers(LOWEST, HIGHEST + 1, (n, 53)), rng.integers(0, 2, n) << 15, strict=True
    ):
        values[0] = max(values[0], 1)
        packet = wire.encode_state(state_of(values, error_flags=int(errors)))
        for lost in range(4, 81):
            ruin = drop_of_bytes(packet[:lost] + packet[lost + 1 :] + b"\xde")
            n_taken["at first"] += len(StateDropParser().feed(ruin))
            parser = StateDropParser()
            assert len(parser.feed(whole)) == 1
            n_taken["monitor" if lost == 80 else "later"] += len(parser.feed(ruin))
    assert n_taken["later"] == 0
    assert n_taken["monitor"] <= 3 * n / 43
    assert n_taken["at first"] < 0.03 * 77 * n


@pytest.mark.parametrize(
    ("fields", "n_taken"),
    [
        ({}, 1),
        ({"bus_voltage": [0]}, 0),
        ({"charge_state": [5]}, 1),  # without a copy, as before June 2011
        ({"charge_state": [5], "error_flags": [5 << 24]}, 1),
        ({"charge_state": [5], "error_flags": [4 << 24]}, 0),
        ({"charge_state": [201], "error_flags": [(201 << 24) - (1 << 32)]}, 1),
        ({"error_flags": [0x3FFFF]}, 1),
        ({"error_flags": [0x40000]}, 0),
        ({"monitor_state": [0x81]}, 1),
        ({"monitor_state": [0xC0]}, 1),
        ({"monitor_state": [0]}, 1),  # before June 2011
        ({"monitor_state": [0x41]}, 0),  # free to drive, and too hot to
        ({"monitor_state": [0x20]}, 0),
        # The original simulator sends any value
        ({"monitor_state": [0x20], "data_source": [1]}, 1),
        ({"cycle_time": [9]}, 1),  # in 2010 the processor's load
    ],
)
def test_what_no_firmware_sends_is_no_drop(fields: dict[str, list[int]], n_taken: int) -> None:
    assert len(StateDropParser().feed(frame_of(**{"bus_voltage": [165], **fields}))) == n_taken


def test_a_cycle_time_that_was_0_stays_0() -> None:
    parser = StateDropParser()
    times = [9, 8, 0, 9, 0]
    counts = [len(parser.feed(frame_of(bus_voltage=[165], cycle_time=[t]))) for t in times]
    assert counts == [1, 1, 1, 0, 1]
    assert (parser.crc_errors, parser.skipped_bytes) == (1, 396)


@pytest.mark.parametrize(("dialect", "packet"), [(SERIAL, GOLDEN), (DROPS, drop_of_bytes(GOLDEN))])
def test_damage_to_one_packet_counts_as_one(dialect: Dialect, packet: bytes) -> None:
    """A drop holds almost five times the bytes of the packet that it was made of."""
    parser = dialect.parser()
    parser.feed(packet + bytes([packet[0] ^ 1]) + packet[1:] + packet)
    assert parser.packets == 2
    assert parser.skipped_bytes / dialect.size == 1
