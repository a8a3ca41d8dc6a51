"""The emulated robot's rules: modes, triggers, answers to the start-up of other people's programs."""

from __future__ import annotations

import numpy as np
import pytest

from horde_env.robots.create2 import wire
from horde_env.robots.create2.simulator.firmware import Firmware
from horde_env.robots.create2.simulator.machine import Machine
from horde_env.robots.create2.stream import FrameParser
from horde_env.robots.create2.wire import (
    FULL,
    OFF,
    PASSIVE,
    SAFE,
    STREAM_ALL,
    Op,
    Wheels,
    drive_direct,
)

START = bytes([Op.START])
SAFE_OP = bytes([Op.SAFE])
FULL_OP = bytes([Op.FULL])
FORWARD = drive_direct(Wheels(199, 199))


@pytest.fixture
def firmware() -> Firmware:
    firmware = Firmware(Machine(), np.random.default_rng(0))
    firmware.machine.place(0.0, 0.3, 0.0, np.random.default_rng(0))
    return firmware


def ticks(firmware: Firmware, n: int) -> bytes:
    return b"".join(firmware.cycle() for _ in range(n))


def test_off_hears_nothing_but_start_and_remembers_nothing(firmware: Firmware) -> None:
    """A request in Off is not answered after START either."""
    firmware.receive(bytes([142, 100]) + STREAM_ALL + SAFE_OP + FULL_OP)
    assert firmware.mode == OFF
    firmware.receive(START)
    assert (firmware.mode, ticks(firmware, 3)) == (PASSIVE, b"")


def test_a_query_list_is_answered_in_its_order_and_a_stream_pauses(firmware: Firmware) -> None:
    firmware.receive(START + bytes([149, 3, 35, 22, 7]))
    reply = ticks(firmware, 1)
    assert (len(reply), reply[0]) == (4, PASSIVE)
    firmware.receive(STREAM_ALL + bytes([150, 0]))
    assert ticks(firmware, 2) == b""
    firmware.receive(bytes([150, 1]))
    assert len(ticks(firmware, 2)) == 2 * wire.FRAME_SIZE


@pytest.mark.parametrize(
    ("data", "mode", "requested"),
    [
        (START + SAFE_OP + FORWARD, SAFE, (199, 199)),
        *(
            (START + SAFE_OP + FORWARD[:k] + FORWARD[k + 1 :] + FORWARD, SAFE, (199, 199))
            for k in range(4, 9)
        ),
        (START + bytes([145, 0xFF, 0x8F, 0xFF, 0x8F]), PASSIVE, (0, 0)),
    ],
    ids=["whole", *(f"without byte {k}" for k in range(5)), "in Passive"],
)
def test_bytes_are_commands_and_their_operands_across_writes(
    data: bytes, mode: int, requested: tuple[int, int], firmware: Firmware
) -> None:
    """A lost byte is healed by the next padded command. FF 8F, not swallowed in Passive, would be a way to the dock."""
    for byte in data:
        firmware.receive(bytes([byte]))
    ticks(firmware, 10)
    assert (firmware.mode, firmware.requested, firmware.own_drive) == (mode, requested, None)


def test_it_never_stops_by_itself(firmware: Firmware) -> None:
    firmware.receive(START + SAFE_OP + drive_direct(Wheels(178, -178)))
    ticks(firmware, 64 * 60)
    assert firmware.is_driven


@pytest.mark.parametrize(("mode", "after"), [(SAFE_OP, PASSIVE), (FULL_OP, FULL)])
def test_a_wheel_drop_ends_safe_in_silence_and_not_full(
    mode: bytes, after: int, firmware: Firmware
) -> None:
    firmware.receive(START + STREAM_ALL + mode + FORWARD)
    ticks(firmware, 20)
    firmware.machine.lifted_s = 1.0
    ticks(firmware, 2)
    assert firmware.mode == after
    assert firmware.is_driven == (after == FULL)


@pytest.mark.parametrize(
    ("wheels", "after"),
    [
        ((199, 199), PASSIVE),
        ((-199, -199), SAFE),
        ((178, -178), SAFE),
        ((-199, -20), PASSIVE),
        ((0, 0), SAFE),
    ],
)
def test_a_cliff_ends_safe_on_the_way_towards_it(
    wheels: tuple[int, int], after: int, firmware: Firmware
) -> None:
    """Forward, or backward in a curve tighter than the robot's radius; not straight back, and not at rest."""
    firmware.receive(START + STREAM_ALL + SAFE_OP + drive_direct(Wheels(*wheels)))
    firmware.machine.cliff_s = 1.0
    ticks(firmware, 2)
    assert firmware.mode == after


def test_a_reset_prints_its_banner_and_is_off(firmware: Firmware) -> None:
    firmware.receive(START + STREAM_ALL + bytes([Op.RESET]))
    banner = ticks(firmware, 64 * 5)
    assert banner.startswith(b"Soft reset!\n\xfeRoomba by iRobot!\r\nstm32\r\n")
    assert b"release-stm32-3.7.1" in banner
    assert firmware.mode == OFF
    firmware.receive(SAFE_OP)
    assert firmware.mode == OFF


def test_nothing_reaches_a_robot_that_boots(firmware: Firmware) -> None:
    """After its supply was interrupted: START within five seconds is lost."""
    modes = []
    firmware.hang()
    for _ in range(6 * 64):
        firmware.receive(START)
        modes.append(firmware.mode)
        firmware.cycle()
    assert modes == [OFF] * (5 * 64) + [PASSIVE] * 64


def test_it_sleeps_after_five_minutes_in_passive_and_wakes_by_brc(firmware: Firmware) -> None:
    firmware.receive(START)
    ticks(firmware, 64 * 300 + 2)
    assert firmware.is_asleep
    firmware.receive(START)
    assert firmware.is_asleep
    firmware.wake()
    firmware.receive(START + STREAM_ALL)
    assert len(ticks(firmware, 3)) == 3 * wire.FRAME_SIZE


def test_its_buttons_wake_it_and_act_in_passive_alone(firmware: Firmware) -> None:
    """Clean starts and ends cleaning; in Safe it only shows in packet 18; a sleeping robot wakes, in Off."""
    firmware.receive(START)
    places = [firmware.machine.pose]
    for _ in range(2):
        firmware.press("clean")
        for _ in range(2):
            ticks(firmware, 64)
            places.append(firmware.machine.pose)
    assert places[0] != places[1] != places[2]
    assert places[3] == places[4]  # it has rolled out
    firmware.receive(SAFE_OP)
    firmware.press("clean")
    assert (firmware.sensors().buttons, firmware.mode, firmware.is_driven) == (1, SAFE, False)
    firmware.receive(bytes([Op.POWER]))
    firmware.press("clean")
    assert (firmware.is_asleep, firmware.mode) == (False, OFF)


def test_distance_and_angle_are_cleared_by_each_frame(firmware: Firmware) -> None:
    """199 mm/s for two seconds, in 128 frames: about 0.37 m, whatever each of them says."""
    firmware.machine.place(-0.6, -0.4, 0.0, np.random.default_rng(0))
    firmware.receive(START + STREAM_ALL + SAFE_OP + FORWARD)
    states = FrameParser().feed(ticks(firmware, 128))
    assert sum(s.sensors.distance for s in states) == pytest.approx(370, abs=30)


def test_encoders_take_the_commands_word_for_the_direction(firmware: Firmware) -> None:
    """After a reversal the last coasting counts run the wrong way."""
    firmware.receive(START + SAFE_OP + FORWARD)
    ticks(firmware, 32)
    previous_count = firmware.machine.state[5]
    firmware.receive(drive_direct(Wheels(-199, -199)))
    ticks(firmware, 1)
    assert firmware.machine.state[3] > 0.0
    assert firmware.machine.state[5] < previous_count


def test_it_docks_by_itself_and_charges_in_passive_alone(firmware: Firmware) -> None:
    """143 from the middle of the room; Safe on the dock falls back at once, Full does not, and charges nothing."""
    firmware.receive(START + STREAM_ALL + bytes([Op.DOCK]))
    parser = FrameParser()
    for _ in range(64 * 120):
        states = parser.feed(firmware.cycle())
        if firmware.machine.is_docked:
            break
    for _ in range(5):
        states = parser.feed(firmware.cycle())
    assert states[-1].sensors.charging_sources == 2
    assert states[-1].sensors.charging_state in (2, 3)
    assert states[-1].sensors.current > 0
    firmware.receive(SAFE_OP)
    ticks(firmware, 2)
    assert firmware.mode == PASSIVE
    firmware.receive(FULL_OP)
    newest = parser.feed(ticks(firmware, 3))[-1].sensors
    assert (newest.mode, newest.charging_state) == (FULL, 0)
    assert newest.current < 0


def test_a_robot_may_report_its_modes_one_too_high(firmware: Firmware) -> None:
    firmware.mode_offset = 1
    firmware.receive(START + bytes([142, 35]))
    assert ticks(firmware, 1) == bytes([2])


def test_random_bytes_raise_nothing(firmware: Firmware) -> None:
    rng = np.random.default_rng(0)
    for _ in range(3_000):
        firmware.receive(rng.bytes(int(rng.integers(0, 40))))
        firmware.cycle()
