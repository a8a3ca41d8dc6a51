"""Faults of the emulated robot, on request and random, each counted."""

from __future__ import annotations

from itertools import repeat
from typing import Any

import numpy as np
import pytest

from horde_env.emulation.emulator import RobotEmulator
from horde_env.emulation.lockstep import MemoryLine, MemoryPort
from horde_env.robot import critterbot
from horde_env.robots.critterbot.emulator.emulator import LASTING_S, Faults
from horde_env.robots.critterbot.emulator.microcontroller import FRAMING, PARITY, Microcontroller
from horde_env.robots.critterbot.simulator import firmware
from horde_env.robots.critterbot.simulator.period import NO_WHEEL
from horde_env.robots.critterbot.wire import Control, MotorMode, encode_control
from tests.env.critterbot.emulated import VELOCITY, drive, robot, setpoints
from tests.env.hardware.packets import decode_state

pytestmark = pytest.mark.sim
SPEC = critterbot()
PACKET = encode_control(Control(1, 20, 0, 5))


def faulty(seed: int = 0, **rates: float) -> tuple[Microcontroller, Faults]:
    controller = robot(seed)
    return controller, Faults(controller, rates, np.random.default_rng(seed))


def cycles(it: Microcontroller, faults: Faults, n: int, mode: int = 1, *values: int) -> bytes:
    """Return what arrives at the host in `n` cycles under a command."""
    heard = b""
    for _ in range(n):
        faults.tick()
        it.receive(*faults.damage_input(encode_control(Control(mode, *values))))
        heard += faults.damage_output(it.cycle())[0]
    return heard


@pytest.mark.parametrize("kind", ["loss", "flip", "burst"])
def test_damage_hits_the_next_traffic_once(kind: str) -> None:
    _, faults = faulty()
    for n_before in range(50):
        faults.inject(kind)
        assert faults.damage_input(b"") == (b"", 0)
        packet = bytes(range(83))
        spoilt, bad_parity = faults.damage_output(packet)
        assert bad_parity == (kind != "loss")  # which changes no byte
        differing = sum(a != b for a, b in zip(spoilt, packet, strict=False))
        if kind == "loss":
            assert len(spoilt) == 82
            assert spoilt in {packet[:i] + packet[i + 1 :] for i in range(83)}
        elif kind == "flip":
            bits = int.from_bytes(spoilt, "big") ^ int.from_bytes(packet, "big")
            assert bits.bit_count() == 1
        else:
            assert len(spoilt) == 83
            assert 1 <= differing <= 40
        assert faults.damage_output(packet) == (packet, False)
        assert faults.counts[kind] == n_before + 1


def test_damage_on_the_way_to_the_robot_sets_its_error_flags() -> None:
    """A byte of nine to the robot against 83 from it: one hit in ten is on the way in."""
    _, faults = faulty()
    flags = {"loss": 0, "flip": PARITY, "burst": PARITY | FRAMING}
    n_in = 0
    for kind, errors in flags.items():
        for _ in range(300):
            faults.inject(kind)
            data, error_flags = faults.damage_input(PACKET)
            faults.damage_output(bytes(83))
            assert error_flags == (errors if data != PACKET else 0)
            n_in += data != PACKET
    assert pytest.approx(n_in, abs=30) == 900 * 9 / 92


def test_damage_without_traffic_does_not_heap_up() -> None:
    """An idle console for weeks: two faults a second would be a million in six days."""
    _, faults = faulty()
    for _ in range(1_000):
        faults.inject("flip")
    faults.damage_output(bytes(10_000))
    assert faults.counts["flip"] == 100


def test_in_a_stall_nothing_passes_and_the_robot_stops_by_itself() -> None:
    controller, faults = faulty()
    cycles(controller, faults, 30, MotorMode.WHEEL_SPACE, 20, 20, 20)
    faults.inject("stall", for_s=0.8)
    assert cycles(controller, faults, 80, MotorMode.WHEEL_SPACE, 20, 20, 20) == b""
    assert setpoints(controller) == [0, 0, 0]
    assert len(cycles(controller, faults, 10, MotorMode.WHEEL_SPACE, 20, 20, 20)) == 830


def test_a_watchdog_resets_a_hanging_robot_after_3_s_and_it_is_back_at_the_console() -> None:
    controller, faults = faulty()
    cycles(controller, faults, 30, MotorMode.WHEEL_SPACE, 20, 20, 20)
    faults.inject("reboot")
    assert cycles(controller, faults, 300, MotorMode.WHEEL_SPACE, 20, 20, 20) == b""
    faults.inject("reboot", for_s=1.0)
    assert b"CritterBOOT" in cycles(controller, faults, 300 + 3, MotorMode.WHEEL_SPACE, 20, 20, 20)
    assert not controller.in_mi
    assert faults.counts["reboot"] == 2
    assert setpoints(controller) == [0, 0, 0]


def test_the_motor_boards_stop_a_robot_that_hangs_0_6_s_after_its_last_word() -> None:
    """Until then they keep the last setpoint, whatever the host sends."""
    controller, faults = faulty()
    cycles(controller, faults, 60, MotorMode.WHEEL_SPACE, 20, 20, 20)
    faults.inject("reboot")
    outputs = []
    for _ in range(64):
        cycles(controller, faults, 1, MotorMode.WHEEL_VOLTAGE, 0, 0, 0)
        outputs.append(bool(controller.machine.firmware.wheels[firmware.OUTPUT].all()))
    assert outputs == [True] * 61 + [False] * 3
    assert setpoints(controller) == [20, 20, 20]


def test_a_reset_forgets_what_the_arm_knew_and_not_what_the_motor_boards_know() -> None:
    controller, _ = faulty()
    wheels = controller.machine.firmware.wheels
    drive(controller, 30, MotorMode.WHEEL_SPACE, 20, 20, 20)
    controller.machine.power.charging_enabled = True
    wheels[firmware.INTEGRAL] = 77
    controller.reboot()
    assert not controller.machine.power.charging_enabled
    assert wheels[firmware.INTEGRAL].tolist() == [77, 77, 77]
    assert wheels[firmware.CAP].min() > 90
    assert [controller.cycle() for _ in range(60)][1:] == [b""] * 59
    assert setpoints(controller) == [0, 0, 0]


def test_a_stuck_wheel_stands_under_current_and_the_robot_turns_less() -> None:
    controller, faults = faulty(seed=4)
    free = drive(robot(4), 100, MotorMode.WHEEL_SPACE, 15, 15, 15)
    faults.inject("stuck_wheel", for_s=1.5)
    cycles(controller, faults, 99, MotorMode.WHEEL_SPACE, 15, 15, 15)
    stuck = decode_state(cycles(controller, faults, 1, MotorMode.WHEEL_SPACE, 15, 15, 15))
    wheel = controller.machine.stuck
    assert stuck.raw[VELOCITY][wheel] == 0
    assert stuck.raw[SPEC.group("motor_current")][wheel] > 12
    gyro = SPEC.index("rotational_velocity")
    assert stuck.raw[gyro] < 0.8 * free.raw[gyro]
    cycles(controller, faults, 150, MotorMode.WHEEL_SPACE, 15, 15, 15)
    assert controller.machine.stuck == NO_WHEEL
    assert (
        decode_state(cycles(controller, faults, 1, MotorMode.WHEEL_SPACE, 15, 15, 15)).raw[
            VELOCITY
        ][wheel]
        > 8
    )


def test_faults_come_at_their_rates() -> None:
    """Poisson: 2 a second for 50 s is 100 +- 10 of each; a stall of 0.4 s in which another begins counts as one."""
    controller, faults = faulty(loss=2.0, flip=2.0, burst=2.0, stall=0.2)
    controller.cycle = lambda look=True: (
        setattr(controller, "n_cycles", controller.n_cycles + 1) or bytes(83)
    )  # type: ignore[method-assign]
    cycles(controller, faults, 5_000)
    for kind in ("loss", "flip", "burst"):
        assert faults.counts[kind] == pytest.approx(100, abs=40)
    assert faults.counts["stall"] == pytest.approx(10, abs=8)
    assert faults.counts["unplug"] == faults.counts["heat"] == 0


def test_a_lasting_fault_lasts_as_long_as_it_is_told() -> None:
    controller, faults = faulty()
    for kind in LASTING_S:
        faults.inject(kind, for_s=0.3)
        for k in range(31):
            faults.tick()
            assert faults.is_on(kind) == (k < 30)
            controller.cycle(look=False)


# ---- an emulator enters its faults only while there are any ------------------------------------


class Talker:
    """A robot that sends the same bytes in each tick."""

    is_hung = False
    machine = None

    def __init__(self) -> None:
        self.n_cycles = 0
        self.words = bytes(83)

    def receive(self, data: bytes, errors: int = 0) -> None:
        pass

    def cycle(self, look: bool) -> bytes:
        self.n_cycles += 1
        return self.words


def talk(emulator: RobotEmulator, port: MemoryPort, n: int) -> list[int]:
    """Return the number of bytes that arrive at the host in each of `n` ticks."""
    sizes = []
    for _ in range(n):
        emulator.advance()
        sizes.append(len(port.received))
        port.received.clear()
    return sizes


def faultless(line: MemoryLine) -> RobotEmulator:
    """Return the emulator of a talker without random faults."""
    talker: Any = Talker()
    faults = Faults(talker, {}, np.random.default_rng(0))
    emulator = RobotEmulator(talker, faults, repeat(0.0), Faults.tick_s)
    emulator.add(line)
    return emulator


def test_a_stall_on_request_lasts_its_ticks_in_a_robot_without_random_faults() -> None:
    """5 of 12 ticks; if a fault were forgotten after its first tick, 1."""
    line = MemoryLine()
    port = line.connect("")
    emulator = faultless(line)
    assert talk(emulator, port, 3) == [83] * 3
    emulator.inject("stall", for_s=0.05)
    assert talk(emulator, port, 12) == [0] * 5 + [83] * 7
    emulator.inject("stall", for_s=0.02)
    assert talk(emulator, port, 3) == [0, 0, 83]


def test_damage_on_request_waits_for_the_words_of_a_silent_robot() -> None:
    line = MemoryLine()
    port = line.connect("")
    emulator = faultless(line)
    emulator.robot.words = b""
    emulator.inject("loss")
    assert talk(emulator, port, 4) == [0] * 4
    emulator.robot.words = bytes(83)
    assert talk(emulator, port, 2) == [82, 83]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nonsense=1", "unknown fault 'nonsense'; choose one of loss"),
        ("loss=often", "invalid rate 'loss=often': write loss=NUMBER, per second"),
        ("loss", "invalid rate 'loss': write loss=NUMBER, per second"),
        ("loss=-1", "the rate of loss must be in 0..100 per second, not -1.0"),
        ("all=100.5", "the rate of loss must be in 0..100 per second, not 100.5"),
        ("flip=nan", "the rate of flip must be in 0..100 per second, not nan"),
    ],
)
def test_rates_of_faults_that_cannot_be_are_refused(text: str, sentence: str) -> None:
    """One fault per tick, of 10 ms, is the most."""
    with pytest.raises(ValueError, match=sentence):
        Faults.parse(text)
    assert set(Faults.parse("all=100").values()) == {100.0}
