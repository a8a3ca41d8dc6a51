"""The microcontroller by its bytes: console, state packets, control packets. No line, no threads, no time."""

from __future__ import annotations

import numpy as np
import pytest

from horde_env.robots.critterbot import wire
from horde_env.robots.critterbot.arena import load_pen
from horde_env.robots.critterbot.emulator.microcontroller import PARITY, Microcontroller
from horde_env.robots.critterbot.simulator.backend import SimulatedBody
from horde_env.robots.critterbot.stream import IrLightUnwrapper
from horde_env.robots.critterbot.wire import LED_EXIT, MI_ON, Control, MotorMode, encode_control
from tests.env.critterbot.emulated import (
    SPEC,
    STOP,
    drive,
    is_packet,
    listen,
    robot,
    say,
    setpoints,
)
from tests.env.hardware.packets import decode_state

pytestmark = pytest.mark.sim
PEN = load_pen()


def test_after_a_reset_there_is_a_banner_a_prompt_and_no_packet() -> None:
    asleep = robot(awake=False)
    output = b"".join(asleep.cycle() for _ in range(100))

    assert output.startswith(b"\r\r\r------------CritterBOOT-------------\r")
    assert output.endswith(b"\rcritterprompt> ")
    assert b"\n" not in output
    assert wire.HEADER not in output


def test_cr_mi_on_cr_starts_the_packets() -> None:
    """The first CR ends an empty line, one line a cycle: two cycles of text, then a packet in every cycle."""
    asleep = robot(awake=False)
    asleep.cycle()
    asleep.receive(MI_ON)

    assert asleep.cycle() == b'\rInvalid command: ""\rcritterprompt> '
    assert asleep.cycle() == b"\rcritterprompt> "
    assert all(is_packet(asleep.cycle()) for _ in range(10))


def console(line: bytes, n: int = 1) -> tuple[Microcontroller, bytes]:
    """Return a robot at its console with full duty allowed, `n` cycles after a line was typed."""
    asleep = robot(awake=False)
    for _ in range(130):
        asleep.cycle(look=False)
    asleep.receive(line + b"\r")
    return asleep, b"".join(asleep.cycle() for _ in range(n))


def test_recharge_start_drives_the_robot_and_no_command_stops_it() -> None:
    """At the console and among packets alike; charging can be switched, and everything else is ignored."""
    asleep, _ = console(b"recharge start", n=100)
    asleep.receive(b"mi on\r")
    asleep.cycle()
    driven = []
    for _ in range(300):
        say(asleep, *STOP)
        say(asleep, MotorMode.WHEEL_VOLTAGE)
        assert is_packet(asleep.cycle())
        driven.append(max(map(abs, setpoints(asleep))))
    assert np.mean(np.array(driven) > 0) > 0.5
    say(asleep, MotorMode.ENABLE_CHARGING)
    asleep.cycle()
    assert asleep.machine.power.charging_enabled


def test_recharge_stop_gives_the_robot_back() -> None:
    """Its way out of the packets is the only word that is obeyed; then the timeout ends the last request."""
    awake, _ = console(b"recharge start\rmi on", n=200)
    say(awake, MotorMode.EXIT, led=LED_EXIT)
    awake.cycle()
    awake.receive(b"recharge stop\rmi on\r")
    listened = [awake.cycle() for _ in range(80)]
    assert is_packet(listened[-1])
    assert setpoints(awake) == [0, 0, 0]
    drive(awake, 30, MotorMode.WHEEL_SPACE, 5, 5, 5)
    assert setpoints(awake) == [5, 5, 5]


@pytest.mark.parametrize(("mode", "led"), [(MotorMode.EXIT, 0), (MotorMode.WHEEL_SPACE, LED_EXIT)])
def test_half_an_exit_is_none(mode: int, led: int) -> None:
    awake = robot()
    say(awake, mode, led=led)
    assert all(is_packet(awake.cycle()) for _ in range(5))


def test_every_cycle_is_one_sound_packet_with_the_robots_readings() -> None:
    """The same place, seen by the simulator: noise apart the same readings, IR light that of one packet."""
    awake = robot(x=0.2, y=-0.3, heading=1.0)
    raw = np.mean([state.raw for state in listen(awake, 400)], axis=0)
    body = SimulatedBody()
    body.reset(np.random.default_rng(0))
    body.machine.reset(0.2, -0.3, 1.0)
    frames = [body.exchange(np.zeros(3)).values for _ in range(200)]
    body.close()

    difference = np.abs(SPEC.to_si(raw) - np.mean(frames, axis=0))
    assert np.max(difference[:45]) < 0.15
    assert np.max(difference[SPEC.group("thermal")]) < 0.5  # which drift
    assert raw[SPEC.index("bus_voltage")] == pytest.approx(165, abs=2)
    assert raw[SPEC.index("acceleration_z")] == pytest.approx(978, abs=60)


def test_the_power_boards_misalignment_shows_in_three_packets_of_ten() -> None:
    """The log: bit 15 in 2,988 of 9,998 packets, independent of the packet before; no other bit at all."""
    flags = np.array([state.error_flags for state in listen(robot(), 2_000)])
    assert set(flags) == {0, 1 << 15}
    share = np.mean(flags != 0)
    assert share == pytest.approx(0.299, abs=4 * np.sqrt(0.299 * 0.701 / 2_000))


def test_error_flags_are_cleared_with_every_packet() -> None:
    """A byte with bad parity is used all the same; the flag stands in one packet."""
    awake = robot()
    awake.receive(encode_control(Control(1, 20)), errors=PARITY)
    assert listen(awake, 1)[0].error_flags & ~(1 << 15) == 1 << 11
    assert awake.control == Control(1, 20)
    assert all(state.error_flags & ~(1 << 15) == 0 for state in listen(awake, 20))


def test_ir_light_is_sent_modulo_256() -> None:
    """The converter has ten bits: 40, 171, 302 .. 957 become 40, 171, 46, 177, 52, 183, 60, 189 on the wire."""
    counts = np.array([40, 171, 302, 433, 564, 695, 826, 957])
    awake = robot()
    # The kernel goes on writing into the record that it had; the robot sends this one.
    state = awake.machine.state.copy()
    state.packets[:] = counts / 255
    awake.machine.state = state
    assert listen(awake, 1)[0].raw[SPEC.group("ir_light")].tolist() == (counts % 256).tolist()


def test_skipping_the_senses_changes_nothing_of_the_motion() -> None:
    one = robot(5)
    twin = robot(5)
    for k in range(300):
        for it, look in ((one, True), (twin, k % 10 >= 8)):
            say(it, MotorMode.XYTHETA_SPACE, 20, 0, 5 * (k // 50 % 3 - 1))
            assert is_packet(it.cycle(look))
    assert one.machine.body.motion == twin.machine.body.motion
    np.testing.assert_array_equal(one.machine.firmware.wheels, twin.machine.firmware.wheels)


def test_repeated_packets_keep_the_beacons_rhythm() -> None:
    """With every packet the one before, a host that unwraps by continuity would see 276 where 20 was sent."""
    (x, y, _) = PEN.beacon.position_m
    towards = PEN.beacon.direction_rad
    near = robot(x=x + 0.5 * np.cos(towards), y=y + 0.5 * np.sin(towards), heading=towards + np.pi)
    unwrapper = IrLightUnwrapper()
    states = [decode_state(near.cycle(look=k % 10 >= 8)) for k in range(400)]
    levels = [unwrapper.unwrap(state)[wire.IR_LIGHT] for state in states]
    assert np.max(levels) < 256


def test_the_last_packet_of_a_cycle_wins() -> None:
    """Charging on, then a motor command, in one write: the charging is lost."""
    awake = robot()
    say(awake, MotorMode.ENABLE_CHARGING)
    say(awake, MotorMode.WHEEL_SPACE, 4, 4, 4)
    awake.cycle()
    assert awake.control == Control(0, 4, 4, 4)
    assert not listen(awake, 1)[0].monitor & wire.MONITOR_CHARGING


def test_charging_is_switched_by_two_modes_and_shown_in_bit_7() -> None:
    awake = robot()
    say(awake, MotorMode.ENABLE_CHARGING)
    awake.cycle()
    assert listen(awake, 1)[0].monitor == 0xC0
    say(awake, MotorMode.DISABLE_CHARGING)
    awake.cycle()
    assert listen(awake, 1)[0].monitor == 0x40
