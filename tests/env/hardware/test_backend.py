"""The physical bodies over a virtual robot: frames, losses, safety. What hangs or dies is in test_backend_stops.py."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from horde_env.backend import Frame
from horde_env.errors import BackendLost, BackendUnavailable, EmergencyStop
from horde_env.hardware.latch import EmergencyLatch
from horde_env.hardware.link import Link
from horde_env.robot import critterbot
from horde_env.robots.critterbot.body import SerialBody
from horde_env.robots.critterbot.wire import COAST, HALT, Control, MotorMode, drive
from tests.env.hardware.packets import GOLDEN_RAW, SPEC
from tests.env.hardware.peers import raising
from tests.env.hardware.virtual import FORWARD, REST, VirtualRobot, serial_body
from tests.facts import states

pytestmark = pytest.mark.hardware

RNG = np.random.default_rng(0)
ASKED = drive(FORWARD, SPEC)


Open = Callable[..., SerialBody]


@pytest.fixture
def unopened(robot: VirtualRobot) -> Iterator[SerialBody]:
    with contextlib.closing(serial_body(robot)) as body:
        yield body


@pytest.fixture
def open_body(robot: VirtualRobot) -> Iterator[Open]:
    """Make and reset bodies of the robot, which are closed in the end."""
    with contextlib.ExitStack() as stack:

        def opened(**rest: Any) -> SerialBody:
            body = stack.enter_context(contextlib.closing(serial_body(robot, **rest)))
            body.reset(RNG)
            return body

        yield opened


@pytest.fixture
def body(open_body: Open) -> SerialBody:
    return open_body()


def life(body: SerialBody, n: int, command: Any = FORWARD) -> list[Frame]:
    return [body.exchange(command) for _ in range(n)]


def marks(frames: list[Frame]) -> list[str]:
    """Each frame's flags as letters: stale, gap, not applied."""
    return [f"{'s' * f.stale}{'g' * f.gap}{'n' * (not f.applied)}" for f in frames]


# ---- opening ---------------------------------------------------------------------------------------------------------


def test_opening_stops_the_motors_twice_over_and_forbids_charging(
    robot: VirtualRobot, body: SerialBody
) -> None:
    """Velocity 0, duty 0, velocity 0, then no charging, each in a separate cycle, without motion."""
    assert robot.controls() == [HALT, COAST, HALT, Control(MotorMode.DISABLE_CHARGING)]
    times = [t for t, _ in robot.received]
    assert min(np.diff(times)) >= 0.01 - 1e-9
    assert robot.setpoints == (0, 0, 0)


def test_a_half_packet_of_an_earlier_program_moves_nothing(
    robot: VirtualRobot, unopened: SerialBody
) -> None:
    """Half a voltage packet was left: without the zeros our first header would be its velocities, DE AD BE."""
    robot.receive(bytes.fromhex("deadbeef 02"))
    unopened.reset(RNG)

    assert all(speeds == (0, 0, 0) for _, speeds in robot.speeds)
    assert robot.controls()[0] == HALT  # which came in one cycle with what the zeros had completed


def test_the_runaway_of_the_firmware_ends_with_the_opening(
    robot: VirtualRobot, unopened: SerialBody
) -> None:
    """A voltage and then zeros: the firmware drives on for ever, past its own timeout."""
    robot.firmware.command(MotorMode.WHEEL_VOLTAGE, 30, 30, 30)
    robot.firmware.command(*HALT[:4])
    robot.sleep(2.0)
    assert robot.setpoints == (30, 30, 30)

    unopened.reset(RNG)

    assert robot.setpoints == (0, 0, 0)
    life(unopened, 3)
    assert max(map(abs, robot.setpoints)) > 5
    life(unopened, 4, REST)
    assert robot.setpoints == (0, 0, 0)


def test_we_never_ask_for_a_voltage_other_than_zero(robot: VirtualRobot, body: SerialBody) -> None:
    for request in SPEC.requests:
        life(body, 3, request)
    body.close()
    robot.sleep(0.1)

    assert {c for c in robot.controls() if c.mode == MotorMode.WHEEL_VOLTAGE} == {COAST}
    assert robot.controls()[-1] == COAST


def test_a_reset_stops_a_moving_robot_awaits_rest_and_forbids_charging(
    robot: VirtualRobot, body: SerialBody
) -> None:
    """At once, not by the robot's own timeout half a second later; the same connection continues."""
    body.enable_charging(True)
    life(body, 5)
    assert robot.charging_enabled
    assert max(map(abs, robot.setpoints)) > 15
    n = len(robot.received)
    t = robot.now
    n_packets = body.stats.packets

    frame = body.reset(RNG)

    assert robot.received[n][1] == HALT
    assert robot.received[n][0] < t + 0.02
    assert max(map(abs, robot.setpoints)) <= 1
    assert np.abs(frame.values[SPEC.group("motor_velocity")]).max() <= 0.0176 + 1e-9
    assert frame.t == 0.0
    assert body.stats.packets > n_packets
    life(body, 2)
    assert not robot.charging_enabled


# ---- frames ----------------------------------------------------------------------------------------------------------


def test_a_command_leaves_at_once_and_the_frame_comes_at_the_deadline(
    robot: VirtualRobot, body: SerialBody
) -> None:
    start = robot.now
    n = len(robot.received)
    frames = life(body, 3)

    assert [round(t - start, 6) for t, c in robot.received[n:] if c == ASKED] == [0.01, 0.11, 0.21]
    assert [round(f.t, 6) for f in frames] == [0.1, 0.2, 0.3]
    assert [f.sensor_age_s for f in frames] == pytest.approx([0.0, 0.0, 0.0], abs=1e-9)
    never_lost = {"reconnects": 0, "link_losses": 0, "s_without_link": 0.0}
    assert [f.extras for f in frames] == [{"packets": 10, "skipped_bytes": 0, **never_lost}] * 3
    assert marks(frames) == ["", "", ""]


def test_a_frame_is_the_newest_packet_in_the_simulators_units(
    robot: VirtualRobot, body: SerialBody
) -> None:
    """Golden bytes of the original firmware, through the port, scaled by the robot's own table."""
    frame = body.exchange(np.array([0.0, 0.22, -2.3]))

    for name, raw in GOLDEN_RAW.items():
        if name not in ("ir_light", "motor_velocity", "motor_voltage"):
            group = SPEC.group(name)
            assert np.allclose(frame.values[group], SPEC.lsb[group] * raw, atol=1e-12), name
    assert np.allclose(frame.values[SPEC.group("last_request")], [0.0, 0.5, -0.5])
    # The chip is turned
    assert frame.values[SPEC.group("acceleration")][1] == pytest.approx(1234 * 9.81 / 1024)


def test_the_beacon_is_two_packets_difference_and_ir_light_their_mean(
    robot: VirtualRobot, body: SerialBody
) -> None:
    """20 and 120 by turns at sensor 2: mean 70, difference 100, whichever came last, and also across a damaged one."""
    ir_light = SPEC.group("ir_light")
    n = 0

    def blink(packet: bytes) -> bytes:
        nonlocal n
        n += 1
        robot.raw[ir_light] = 30.0
        robot.raw[ir_light][2] = 20.0 + 100.0 * (round(robot.now / 0.01) % 2)
        if n == 19:
            return packet[:30] + bytes([packet[30] ^ 4]) + packet[31:]
        return packet

    robot.spoil = blink
    frames = life(body, 4)[1:]
    assert [frame.crc_errors for frame in frames] == [1, 0, 0]
    assert frames[1].values[ir_light][2] == pytest.approx(70 / 255)
    expected = [0, 0, 100 / 255, 0, 0, 0, 0, 0]
    assert np.array([frame.beacon for frame in frames]) == pytest.approx(np.tile(expected, (3, 1)))


def test_two_packets_with_lost_ones_between_them_say_nothing_of_the_beacon(
    robot: VirtualRobot, body: SerialBody
) -> None:
    """Five are lost before the last of the second step: it and the one before them are both dark, difference 0."""
    n = 0

    def blink(packet: bytes) -> bytes:
        nonlocal n
        n += 1
        robot.raw[SPEC.group("ir_light")] = 20.0 + 100.0 * (round(robot.now / 0.01) % 2)
        if 15 <= n <= 19:
            return b""
        return packet

    robot.spoil = blink
    frames = life(body, 3)[1:]
    assert np.array([frame.beacon for frame in frames]) == pytest.approx(np.full((2, 8), 100 / 255))


def test_one_bad_packet_is_counted_and_is_no_gap(robot: VirtualRobot, body: SerialBody) -> None:
    spoil_packets(robot, {13}, lambda packet: packet[:30] + bytes([packet[30] ^ 4]) + packet[31:])
    frames = life(body, 3)

    assert marks(frames) == ["", "", ""]
    assert [f.crc_errors for f in frames] == [0, 1, 0]
    assert [f.extras["packets"] for f in frames] == [10, 9, 10]
    assert [f.extras["skipped_bytes"] for f in frames] == [0, 83, 0]


@pytest.mark.parametrize(
    ("which", "left", "gap"),
    [
        (range(11, 15), b"", False),
        (range(11, 16), b"", True),
        (range(11, 20), b"", True),
        (range(11, 20, 2), bytes(83), True),
    ],
)
def test_five_packets_that_are_missing_or_damaged_make_a_gap(
    robot: VirtualRobot, body: SerialBody, which: range, left: bytes, gap: bool
) -> None:
    """Missing ones show in the elapsed time alone, of which four are within the robot's own jitter."""
    spoil_packets(robot, which, lambda _: left)
    assert marks(life(body, 4)) == ["", "g" * gap, "", ""]


def test_five_damaged_packets_are_a_gap_though_a_delay_hides_them_in_the_time(
    robot: VirtualRobot, body: SerialBody
) -> None:
    """The sixth packet is read at 0.1 s, so the next step lacks one packet by its time; five are damaged."""
    n = 0
    late: list[bytes] = []

    def delay(packet: bytes) -> bytes:
        nonlocal n
        n += 1
        if n == 6:
            late.append(packet)
        if 6 <= n < 10:
            return b""
        if n == 10:
            return late[0]
        if n == 11:  # and the four before it
            return bytes(5 * len(packet))
        return packet

    robot.spoil = delay
    frames = life(body, 3)
    assert marks(frames) == ["", "g", ""]
    assert [frame.extras["packets"] for frame in frames] == [6, 9, 10]
    assert [frame.extras["skipped_bytes"] for frame in frames] == [0, 5 * 83, 0]


def test_a_silence_about_a_deadline_is_a_gap(robot: VirtualRobot, body: SerialBody) -> None:
    """From 30 ms before it until 30 ms after it: six packets, which neither step alone shows."""
    spoil_packets(robot, range(8, 14), lambda _: b"")
    frames = life(body, 3)
    assert marks(frames) == ["", "g", ""]
    assert [frame.extras["packets"] for frame in frames] == [7, 7, 10]
    assert frames[0].sensor_age_s == pytest.approx(0.03)


@pytest.mark.parametrize(("late_s", "gap"), [(0.14, False), (0.16, True), (0.8, True)])
def test_a_step_that_lasted_too_long_is_a_gap(
    robot: VirtualRobot, body: SerialBody, late_s: float, gap: bool
) -> None:
    """Up to 50 ms the next step makes good; what is longer held its action for too long, or the robot has stopped."""
    assert marks(life(body, 2)) == ["", ""]
    robot.sleep(late_s)  # the host was busy between two steps
    assert marks(life(body, 3)) == ["g" * gap, "", ""]


def test_packets_that_come_late_and_together_are_not_lost(
    robot: VirtualRobot, body: SerialBody
) -> None:
    """Fifteen held back for 0.15 s, then all at once, as on a machine that was busy: one stale frame and no gap."""
    held: list[bytes] = []
    start = robot.now

    def hold(packet: bytes) -> bytes:
        if 0.055 < robot.now - start < 0.205:
            held.append(packet)
            return b""
        late = b"".join(held)
        held[:] = []
        return late + packet

    robot.spoil = hold
    assert marks(life(body, 4)) == ["", "s", "", ""]


def spoil_packets(robot: VirtualRobot, which: Collection[int], change: Any) -> None:
    """Change the packets of these numbers, the next one being 1."""
    n = 0

    def spoil(packet: bytes) -> bytes:
        nonlocal n
        n += 1
        if n in which:
            return bytes(change(packet))
        return packet

    robot.spoil = spoil


# ---- a link that is lost ---------------------------------------------------------------------------------------------


def test_an_unplugged_robot_comes_back_as_a_gap(robot: VirtualRobot, body: SerialBody) -> None:
    """While disconnected, frames are stale and not applied, each at its deadline; then one gap, then as before."""
    life(body, 3)
    start = robot.now
    n = len(robot.received)
    robot.unplug()
    away = life(body, 5)
    robot.plug()
    frames = away + life(body, 12)

    assert robot.now - start == pytest.approx(1.7)
    gap_index = next(i for i, frame in enumerate(frames) if frame.gap)
    assert marks(frames[:gap_index]) == ["sn"] * gap_index
    assert marks(frames[gap_index + 1 :]) == [""] * (16 - gap_index)
    assert frames[gap_index].extras["reconnects"] == 1
    assert (body.stats.losses, body.stats.reconnects) == (1, 1)
    assert [frame.extras["link_losses"] for frame in frames] == [1] + [0] * 16, (
        "it was noticed at once"
    )
    away_s = [frame.extras["s_without_link"] for frame in frames]
    assert away_s[: gap_index - 1] == pytest.approx([0.1] * (gap_index - 1), abs=0.011)
    assert away_s[gap_index + 1 :] == [0.0] * (16 - gap_index)
    assert sum(away_s) == pytest.approx(body.stats.lost_s)
    assert 0.1 * (gap_index - 1) < sum(away_s) < 0.1 * (gap_index + 1)
    assert body.loss == "the device disconnected (unplugged, or switched off?)"
    assert robot.controls()[n : n + 3] == [HALT, COAST, HALT]  # as at the first opening
    times = [f.t for f in frames[gap_index:]]
    assert np.diff(times) == pytest.approx(0.1)


def test_a_robot_that_falls_silent_is_stopped_and_woken(
    robot: VirtualRobot, body: SerialBody
) -> None:
    """Its microcontroller was reset into the console: no packets, though the port is there."""
    life(body, 3)
    robot.awake = False
    robot.firmware.boot()
    frames = life(body, 30)

    assert marks(frames[:2]) == ["s", "s"]
    gap_index = next(i for i, frame in enumerate(frames) if frame.gap)
    assert "n" in marks(frames[:gap_index])[-1]
    assert marks(frames[gap_index + 1 :]) == [""] * (29 - gap_index)


def test_one_frame_without_packets_is_no_loss_however_long_it_lasted(
    robot: VirtualRobot, body: SerialBody
) -> None:
    """After a pause of this machine its packets are there, but not read yet: nothing is opened again for that."""
    life(body, 2)
    robot.silent = True
    robot.sleep(0.5)
    frames = life(body, 1)
    robot.silent = False
    frames += life(body, 2)
    assert marks(frames) == ["sg", "g", ""]
    assert body.stats.losses == 0


def test_reconnection_is_tried_at_growing_intervals(robot: VirtualRobot, open_body: Open) -> None:
    """0.1 s after the first attempt, then twice as long after each, 2 s at most; a try takes place within a step."""
    tried: list[float] = []

    def connect(url: str, **settings: Any) -> Any:
        tried.append(robot.now)
        return robot.connect(url, **settings)

    body = open_body(connect=connect)
    life(body, 2)
    robot.unplug()
    life(body, 130)
    body.close()
    assert np.diff(tried[1:9]) == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0], abs=0.101)
    assert np.diff(tried[1:9]).min() > 0.1


def test_a_robot_that_stays_away_is_given_up_and_may_be_reset(
    robot: VirtualRobot, open_body: Open, caplog: pytest.LogCaptureFixture
) -> None:
    body = open_body(link={"frame_timeout_s": 2.0})
    life(body, 3)
    start = robot.now
    robot.unplug()

    with pytest.raises(
        BackendLost, match=r"no frame from memory for 2\.\d s \(limit 2.0 s\)"
    ) as lost:
        life(body, 100)
    assert "; reconnecting, for at most 2 s" in caplog.text
    message = str(lost.value)
    assert "there is no port" in message
    assert message.endswith("Check the cable and the robot's switch.")
    assert states(message, "stops by itself", "0.5 s")
    assert "told to stop" not in message, "nobody could tell it"
    assert "timeout" not in message, "no command has such an option"
    assert robot.now - start == pytest.approx(2.1, abs=0.11)
    with pytest.raises(BackendUnavailable, match="call reset"):
        body.exchange(REST)
    with pytest.raises(BackendUnavailable, match="there is no port"):
        body.reset(RNG)
    robot.plug()
    assert not body.reset(RNG).stale
    assert marks(life(body, 2)) == ["", ""]


def test_a_robot_that_is_lost_in_the_middle_of_a_reset_is_refused_in_a_sentence(
    robot: VirtualRobot, body: SerialBody, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link's own thread may lose it just after the wheels stood still: then there are no readings."""
    life(body, 3)
    with monkeypatch.context() as patch:
        patch.setattr(Link, "readings", lambda *_: ())
        with pytest.raises(BackendUnavailable, match="disconnected before its first frame"):
            body.reset(RNG)
    robot.sleep(0.1)
    assert robot.controls()[-1] == COAST, "it was stopped first"
    assert marks([body.reset(RNG), *life(body, 2)]) == ["g", "", ""]


def test_closing_at_once_after_a_loss_leaves_no_port_open(
    robot: VirtualRobot, body: SerialBody
) -> None:
    """The reconnection that would have closed it has not begun."""
    link = body._link
    port = link._port
    link.disconnect("a test")
    body.close()
    assert port.lost == "it was closed"
    assert not robot.end.port.is_open


def test_attempts_are_bounded_too(robot: VirtualRobot, open_body: Open) -> None:
    body = open_body(link={"attempts": 3})
    robot.unplug()

    with pytest.raises(BackendLost):
        life(body, 100)
    assert robot.now < 3.0


def hang(robot: VirtualRobot, body: SerialBody, seconds: float) -> None:
    """Call `poll` as the link's thread does, without commands."""
    end = robot.now + seconds - 1e-9
    while robot.now < end:
        robot.sleep(0.01)
        body._link.poll()


def test_a_link_is_told_to_stop_before_it_is_given_up(
    robot: VirtualRobot, body: SerialBody
) -> None:
    """Its packets have stopped, but it may receive: the stop is sent at once, not at the reconnection."""
    life(body, 3)
    robot.silent = True
    while not body.stats.losses:
        body.exchange(FORWARD)
    lost_t = robot.now
    robot.sleep(0.02)
    controls = [control for t, control in robot.received if t > lost_t]
    assert controls == [HALT]
    assert max(map(abs, robot.setpoints)) < 19, "the ramp has begun"
    robot.silent = False


@pytest.mark.parametrize("asked_meanwhile", [0, 2])
def test_no_old_command_is_repeated_after_a_return(
    robot: VirtualRobot, body: SerialBody, asked_meanwhile: int
) -> None:
    """The program hangs while the link comes back, within the time for which a command is held: the robot stands."""
    life(body, 3)
    link = body._link
    link.disconnect("a test")
    life(body, asked_meanwhile)
    n = len(robot.received)
    while not link.is_open:
        hang(robot, body, 0.01)
    assert robot.now - robot.received[n - 1][0] < 0.3, "too late to show anything"
    hang(robot, body, 0.3)
    assert ASKED not in robot.controls()[n:]
    assert robot.setpoints == (0, 0, 0)


def test_a_command_is_repeated_every_50_ms_for_a_third_of_a_second(
    robot: VirtualRobot, body: SerialBody
) -> None:
    """The robot stops by itself after 0.5 s, and nine of ten commands may be lost before it does."""
    n = len(robot.received)
    body.exchange(FORWARD)
    hang(robot, body, 0.6)
    times = [t for t, control in robot.received[n:] if control == ASKED]
    assert np.diff(times) == pytest.approx([0.1] + [0.05] * (len(times) - 2), abs=0.011)
    assert 0.30 < times[-1] - times[0] <= 0.36
    assert robot.controls()[-1] == HALT


def test_a_lapse_of_the_keep_alive_is_told(robot: VirtualRobot, body: SerialBody) -> None:
    """The program hung for half a second: the robot was stopped meanwhile, so the step it then ends was not done."""
    life(body, 2)
    hang(robot, body, 0.5)
    frames = life(body, 3)
    assert [frame.applied for frame in frames] == [False, True, True]
    assert frames[0].gap


def test_the_supervisor_sees_every_new_frame_once_and_no_old_one(
    robot: VirtualRobot, body: SerialBody
) -> None:
    """A stale frame has no information on the present, so it must not end a condition by its time."""
    judged: list[float] = []
    body.supervisor = SimpleNamespace(judge=lambda values, charge_state, t: judged.append(t) or "")
    body.reset(RNG)
    life(body, 2)
    robot.silent = True
    frames = life(body, 2)
    robot.silent = False
    frames += life(body, 2)
    assert marks(frames) == ["s", "s", "g", ""]
    assert judged == pytest.approx([0.0, 0.1, 0.2, 0.5, 0.6])
    assert body.stats.losses == 0, "a short silence keeps the connection"


# ---- safety ----------------------------------------------------------------------------------------------------------


def test_heat_pauses_a_life_and_coolness_resumes_it(robot: VirtualRobot, body: SerialBody) -> None:
    robot.sleep(1.1)  # the firmware looks at heat after its first second
    assert marks(life(body, 2)) == ["g", ""]  # which was a long step
    robot.raw[SPEC.group("motor_temperature")] = 60
    assert marks(life(body, 3)) == ["n", "n", "n"]
    assert "too hot" in body.reason
    assert robot.controls()[-1] == HALT
    robot.raw[SPEC.group("motor_temperature")] = 75  # inside the margin
    assert marks(life(body, 2)) == ["n", "n"]
    assert not body.reset(RNG).applied
    robot.raw[SPEC.group("motor_temperature")] = 90
    frames = life(body, 3)
    assert marks(frames)[-1] == ""
    assert body.reason == ""
    # What the agent asked for
    assert np.allclose(frames[0].values[SPEC.group("last_request")][0], 0.35 / 0.44)


def test_a_robot_that_charges_is_not_driven(robot: VirtualRobot, body: SerialBody) -> None:
    robot.charge_state = 2
    assert marks(life(body, 2)) == ["n", "n"]
    assert robot.controls()[-1] == HALT
    robot.charge_state = 11
    assert marks(life(body, 10))[-1] == ""


def test_a_robot_that_is_let_go_within_a_step_has_not_done_that_step(
    robot: VirtualRobot, body: SerialBody
) -> None:
    """Without a supervisor; the charger held it for the first half of the step."""
    body.supervisor = SimpleNamespace(judge=lambda *_: "")
    robot.charge_state = 2
    assert marks(life(body, 2)) == ["n", "n"]
    robot.charge_state = 0
    assert marks(life(body, 2)) == ["n", ""]


def test_a_reset_stops_a_robot_that_must_not_move_and_says_so(
    robot: VirtualRobot, unopened: SerialBody
) -> None:
    """A bus of 12.0 V stops it by the supervisor's rule, not the robot's."""
    robot.raw[SPEC.index("bus_voltage")] = 120
    assert not unopened.reset(RNG).applied
    assert "bus voltage 12.0 V is below 12.5 V" in unopened.reason
    n = len(robot.received)
    assert marks(life(unopened, 2)) == ["n", "n"]
    assert ASKED not in robot.controls()[n:]


def test_after_an_interrupted_reset_no_command_is_sent(
    robot: VirtualRobot, unopened: SerialBody, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while it waits for the wheels: the link is open, and there is no frame yet."""
    with monkeypatch.context() as patch:
        interrupted = unopened.dialect._replace(is_at_rest=raising(KeyboardInterrupt()))
        patch.setattr(unopened, "dialect", interrupted)
        with pytest.raises(KeyboardInterrupt):
            unopened.reset(RNG)
    n = len(robot.received)
    with pytest.raises(
        BackendUnavailable, match=r"the reset was interrupted: call reset\(\) first"
    ):
        unopened.exchange(FORWARD)
    hang(robot, unopened, 0.1)
    assert {control for _, control in robot.received[n:]} <= {HALT, COAST}
    assert marks([unopened.reset(RNG), *life(unopened, 2)]) == ["g", "", ""]


def test_an_emergency_stop_holds_until_it_is_cleared(
    robot: VirtualRobot, open_body: Open, tmp_path: Path
) -> None:
    """A reset under it stops the motors and closes the port before it raises."""
    latch = EmergencyLatch(tmp_path / "stop")
    body = open_body(latch=latch)
    life(body, 3)
    n = len(robot.received)
    latch.set("a hand in the pen")
    with pytest.raises(EmergencyStop, match="a hand in the pen"):
        body.reset(RNG)
    assert not robot.end.port.is_open
    robot.sleep(0.1)
    assert robot.controls()[n:] == [HALT, HALT, COAST]

    latch.clear()
    body.reset(RNG)
    assert marks(life(body, 2)) == ["", ""]
    latch.set("a hand in the pen")
    assert marks(life(body, 3)) == ["n", "n", "n"]
    assert body.reason == "the emergency stop is set: a hand in the pen"
    assert robot.setpoints == (0, 0, 0)
    assert latch.answered_by == f"process {os.getpid()}"


def test_a_stop_is_answered_once_and_by_nobody_whose_stop_did_not_leave(
    robot: VirtualRobot, open_body: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing takes time, and without a link nothing was stopped."""
    answers: list[float] = []
    monkeypatch.setattr(EmergencyLatch, "answer", lambda _: answers.append(robot.now))
    latch = EmergencyLatch(tmp_path / "stop")
    body = open_body(latch=latch)
    life(body, 2)
    assert answers == []
    for n in (1, 2):
        latch.set("a hand in the pen")
        life(body, 3)
        assert len(answers) == n
        latch.clear()
        life(body, 2)
    robot.unplug()
    life(body, 2)
    latch.set("a hand in the pen")
    life(body, 2)
    assert len(answers) == 2


@pytest.mark.parametrize("has_latch", [True, False])
def test_an_emergency_stop_stops_at_once_and_lasts_if_there_is_a_latch(
    robot: VirtualRobot, open_body: Open, tmp_path: Path, has_latch: bool
) -> None:
    """The return value says whether the stop lasts."""
    latch = EmergencyLatch(tmp_path / "stop")
    body = open_body(latch=latch if has_latch else None)
    life(body, 3)
    assert body.emergency_stop("smoke") is has_latch
    robot.sleep(0.02)  # of virtual time: it looks at the line every 10 ms
    assert robot.controls()[-1] == HALT
    assert latch.reason == "smoke" * has_latch
    assert not has_latch or marks(life(body, 2)) == ["n", "n"]


def test_a_step_that_has_begun_sends_no_command_after_an_emergency_stop(
    robot: VirtualRobot, open_body: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread stops the robot when the step has looked at the latch and not yet sent its command.

    Of the packets within one cycle the robot executes the last.
    """
    latch = EmergencyLatch(tmp_path / "stop")
    body = open_body(latch=latch)
    life(body, 2)
    steer = body.steer
    send_state_commands = body.send_state_commands
    stopping = threading.Thread(target=body.emergency_stop, args=("smoke",))

    def stop_meanwhile(control: Any) -> Any:
        stopping.start()
        stopping.join(0.2)  # a thread that did not wait for the command would end here
        return steer(control)

    def wait_for_stop(link: Link) -> None:
        stopping.join()
        send_state_commands(link)

    monkeypatch.setattr(body, "steer", stop_meanwhile)
    monkeypatch.setattr(body, "send_state_commands", wait_for_stop)
    n = len(robot.received)
    body.exchange(FORWARD)
    assert set(robot.controls()[n:]) == {HALT}
    assert latch.reason == "smoke"


def test_a_robot_is_at_rest_once_its_wheels_and_not_its_commands_stand(
    robot: VirtualRobot, open_body: Open, unopened: SerialBody
) -> None:
    """The ramp takes 0.2 s and the wheels follow; a robot that keeps moving, or is away, is not at rest."""
    body = open_body()
    life(body, 5)
    assert not body.wait_for_rest(0.1)
    body.emergency_stop("smoke")
    began_s = robot.now
    assert body.wait_for_rest(1.5)
    assert 0.15 < robot.now - began_s < 0.4
    robot.unplug()
    assert not body.wait_for_rest(1.5)
    assert not unopened.wait_for_rest(1.5)


def test_the_robots_signs_correct_a_reversed_channel(robot: VirtualRobot, open_body: Open) -> None:
    body = open_body(signs={"rotational_velocity": -1})
    gyro = critterbot().index("rotational_velocity")
    frame = life(body, 2)[-1]
    plain = critterbot().to_si(body._link.readings()[-1].state.raw)  # type: ignore[union-attr]
    assert frame.values[gyro] == -plain[gyro] != 0.0
    assert frame.values[gyro + 1 :][:5].tolist() == plain[gyro + 1 :][:5].tolist()


def test_charging_is_asked_for_until_the_robot_agrees(
    robot: VirtualRobot, body: SerialBody
) -> None:
    """A control packet has no reply, and this one is lost three times; the deadlines are kept."""
    body.enable_charging(True)
    command = Control(MotorMode.ENABLE_CHARGING)
    lost = []
    act = robot.obey

    def forgetful(control: Control) -> None:
        if control == command and len(lost) < 3:
            lost.append(control)
        else:
            act(control)

    robot.obey = forgetful  # type: ignore[method-assign]
    start = robot.now
    frames = life(body, 6)

    assert robot.charging_enabled
    assert len(lost) == 3
    assert robot.controls().count(command) == 1
    assert marks(frames) == [""] * 6
    assert robot.now - start == pytest.approx(0.6)
    body.enable_charging(False)
    life(body, 2)
    assert not robot.charging_enabled


@pytest.mark.parametrize(("command", "coast_s"), [(FORWARD, 0.41), (REST, 0.05)])
def test_closing_sends_the_stop_once(
    robot: VirtualRobot, body: SerialBody, command: Any, coast_s: float
) -> None:
    """Duty 0 comes when the ramp is over; a robot that stands needs no time for one."""
    life(body, 5, command)
    start = robot.now
    body.close()
    robot.sleep(0.1)
    assert [(round(t - start, 6), c) for t, c in robot.received[-3:]] == [
        (0.01, HALT),
        (0.03, HALT),
        (coast_s, COAST),
    ]
    assert [speeds for t, speeds in robot.speeds if t <= start + coast_s - 0.01][-1] == (0, 0, 0)
    n = len(robot.received)
    body.close()
    robot.sleep(0.1)
    assert len(robot.received) == n


def test_a_refused_command_sends_nothing(robot: VirtualRobot, body: SerialBody) -> None:
    robot.sleep(0.05)
    n = len(robot.received)
    with pytest.raises(ValueError, match="three finite numbers"):
        body.exchange(np.array([np.nan, 0, 0]))
    robot.sleep(0.05)
    assert len(robot.received) == n
