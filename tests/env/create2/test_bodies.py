"""The Create 2 as a body: its readings, and what its modes mean for a life."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from horde_env.env import RobotEnv
from horde_env.robot import create2
from horde_env.robots.create2.emulator.emulator import EmulatedCreate
from horde_env.robots.create2.simulator.backend import SimulatedCreate
from horde_env.robots.create2.wire import SAFE, Sensors
from tests.env.toy import ToyBody

SPEC = create2()
BUMP_LEFT = 2  # bit of packet 7
STAY = {"manoeuvre": "stay"}


def test_a_robot_without_a_drawing_of_its_own_cannot_be_drawn() -> None:
    spec = copy.copy(SPEC)
    spec.name = "own"
    with pytest.raises(ValueError, match="the own cannot be drawn"):
        RobotEnv(ToyBody(), spec=spec, render_mode="rgb_array")


def test_no_message_promises_that_this_robot_stops_by_itself() -> None:
    """The Critterbot does, 0.5 s after its last command; this one drives on."""
    from horde_env.errors import BackendLost
    from horde_env.robots.create2.body import CreateBody

    lost = str(BackendLost("/dev/ttyUSB0", 31.0, 30.0, 7, stops=CreateBody.dialect.stops))
    assert "no command timeout" in lost
    assert "stops by itself" not in lost
    assert "stops by itself 0.5 s" in str(BackendLost("/dev/ttyUSB0", 31.0, 30.0, 7))


def test_velocities_are_two_shares_for_a_robot_that_cannot_move_aside() -> None:
    env = RobotEnv(SimulatedCreate(), spec=SPEC, action_type="velocity")
    assert env.action_space.shape == (2,)
    env.reset(seed=0, options=STAY)
    env.step(np.array([0.5, -0.5], np.float32))
    assert env.frame.values[SPEC.group("last_request")] == pytest.approx([0.5, -0.5])
    with pytest.raises(ValueError, match="two shares"):
        env.step(np.zeros(3, np.float32))
    env.close()


@pytest.mark.hardware
def test_a_lifted_robot_is_not_applied_and_comes_back_as_a_gap(
    emulated: tuple[RobotEnv, EmulatedCreate],
) -> None:
    """Nothing of the stay, and nothing across it, is learned from; it is back half a second after the floor."""
    env, body = emulated
    machine = body.emulator.robot.machine
    for _ in range(5):
        assert env.step(2)[4]["applied"] == 1
    machine.lifted_s = 1.0
    infos = [env.step(2)[4] for _ in range(30)]
    applied = [info["applied"] for info in infos]
    assert applied[0] == 0
    return_step = applied.index(1)
    assert 15 <= return_step <= 21
    assert (
        infos[return_step - 1]["gap"] == 1
    )  # seen in Safe again; from here on commands are applied
    assert all(applied[return_step:])
    assert sum(info["gap"] for info in infos) == 1


@pytest.mark.hardware
@pytest.mark.parametrize("tick", range(1, 8))
def test_a_contact_in_any_one_frame_of_a_step_is_in_its_observation_and_in_no_other(
    tick: int, emulated: tuple[RobotEnv, EmulatedCreate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step has six or seven frames; from the newest alone, a contact in five or six of them would be lost."""
    env, body = emulated
    report = body.emulator.robot.report
    n_frames = 0

    def bumped() -> Sensors:
        nonlocal n_frames
        n_frames += 1
        return report()._replace(bumps=BUMP_LEFT * (n_frames == tick))

    monkeypatch.setattr(body.emulator.robot, "report", bumped)
    steps = [env.step(4)[0] for _ in range(3)]
    assert n_frames >= 3 * 6
    left, right = np.array([observation[SPEC.group("bump")] for observation in steps]).T
    assert sorted(left) == [0.0, 0.0, 1.0]
    assert right.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.hardware
def test_speeds_that_are_not_echoed_are_not_applied(
    emulated: tuple[RobotEnv, EmulatedCreate],
) -> None:
    """A robot that takes no drive command and stays in Safe: 41 and 42 keep their last values."""
    env, body = emulated
    firmware = body.emulator.robot
    env.step(0)
    firmware._drive = lambda *_: None
    assert [env.step(a)[4]["applied"] for a in (0, 2, 3, 0)] == [1, 0, 0, 1]


LEFT = {
    "off": "", "passive": "80", "safe": "80 83", "full": "80 84", "driving": "80 84 91 00 c7 00 c7",
    "half a command": "80 83 8c 00 10 20", "one too high": "80 83", "one START is lost": "80 83 94 01 64",
    "two STARTs are lost": "80 83 94 01 64",
}  # fmt: skip


@pytest.mark.hardware
@pytest.mark.parametrize("state", LEFT)
def test_a_robot_is_found_in_whatever_state_it_was_left(state: str) -> None:
    """It stands, in Safe, when the first frame comes, and then follows.

    A robot that was left in Safe and misses START reports 2, as one in Passive does that reports
    each mode one too
    high: taken for that one, it would be sent Safe for ever, and nothing would be learned.
    """
    body = EmulatedCreate()
    switch_on = body.switch_on

    def left(seed: int):
        emulator = switch_on(seed)
        robot = emulator.robot
        n_lost = list(LEFT).index(state) - list(LEFT).index("one too high")
        robot.mode_offset = int(state == "one too high")
        robot.receive(bytes.fromhex(LEFT[state]))
        receive = robot.receive

        def deaf(data: bytes, errors: int = 0) -> None:
            nonlocal n_lost
            while n_lost > 0 and b"\x80" in data:
                data = data.replace(b"\x80", b"", 1)
                n_lost = n_lost - 1
            receive(data, errors)

        robot.receive = deaf
        return emulator

    body.switch_on = left  # type: ignore[method-assign]
    with RobotEnv(body, body.clock, spec=SPEC) as env:
        _, info = env.reset(seed=0, options=STAY)
        assert info["applied"] == 1
        assert not body.emulator.robot.is_driven
        assert [env.step(0)[4]["applied"] for _ in range(3)] == [1, 1, 1]
        assert body.emulator.robot.mode == SAFE


@pytest.mark.hardware
def test_a_robot_that_was_put_to_sleep_is_woken_by_its_cable(
    emulated: tuple[RobotEnv, EmulatedCreate],
) -> None:
    """Opcode 133, which a damaged byte may be: it sleeps until RTS, wired to BRC, falls."""
    env, body = emulated
    env.step(0)
    body.emulator.robot.receive(bytes([133]))
    infos = [env.step(0)[4] for _ in range(60)]
    assert infos[10]["stale"] == 1
    assert infos[-1]["applied"] == 1
    assert sum(info["gap"] for info in infos) >= 1


@pytest.mark.hardware
def test_next_to_nothing_is_said_to_a_robot_that_charges(
    emulated: tuple[RobotEnv, EmulatedCreate],
) -> None:
    """One zero in a period and 50 ms later; whatever of it is damaged, an opcode that acts comes of it seldom."""
    env, body = emulated
    robot = body.emulator.robot
    heard = bytearray()
    receive = robot.receive
    robot.receive = lambda data, errors=0: (heard.extend(data), receive(data, errors))[1]
    body.enable_charging(True)
    for _ in range(4):
        env.step(4)
    assert bytes([128, 143]) in heard
    heard.clear()
    for _ in range(20):
        env.step(4)
    assert set(heard) == {0}
    assert 20 <= len(heard) <= 60
    body.enable_charging(False)
    for _ in range(20):
        env.step(4)
    assert body.emulator.robot.mode == SAFE


def test_every_channel_is_alive() -> None:
    """An hour's wandering with a stay at the dock, people about, and the mat, the sill and the rug within reach."""
    body = SimulatedCreate(battery_scale=0.2)
    env = RobotEnv(body, spec=SPEC)
    rng = np.random.default_rng(0)
    readings = []
    env.reset(seed=0, options=STAY)
    places = [
        (-1.1, 0.68, 3.1),
        (-1.3, -0.9, 0.9),
        (1.1, -0.2, 0.0),
        (0.0, 0.0, 0.0),
        (0.0, -0.9, -1.5),
    ]
    for k in range(25):
        x, y, heading = places[k % len(places)]
        body.machine.place(x, y, heading + float(rng.normal(0.0, 0.2)), rng)
        env.step(4)
        actions = [0] * 60 + rng.choice(5, 240, p=[0.5, 0.1, 0.15, 0.15, 0.1]).tolist()
        readings += [body.exchange(SPEC.requests[action]).values for action in actions]
    env.reset(options={"manoeuvre": "dock", "charge_s": 5.0})
    readings += [frame.values for frame in env.manoeuvre_frames]
    body.machine.lifted_s = 0.5
    body.machine.press(1)
    readings += [body.exchange(SPEC.requests[0]).values for _ in range(10)]
    assert [
        c.name
        for c, spread in zip(SPEC.channels, np.ptp(readings, axis=0), strict=True)
        if spread == 0.0
    ] == []
    env.close()


def test_readings_at_rest_are_create2s_typical_values() -> None:
    """OI users' figures: 14.8 V or more, -190..-250 mA, floor 2870..2915, wheels within 10 mA, brushes at 0."""
    body = SimulatedCreate()
    body.reset(np.random.default_rng(0))
    body.machine.place(0.0, 0.4, 0.0, np.random.default_rng(0))
    values = np.array([body.exchange(np.zeros(3)).values for _ in range(100)])
    mean = values.mean(axis=0)
    assert 14.5 < mean[SPEC.index("battery_voltage")] < 16.5
    assert -0.25 < mean[SPEC.index("battery_current")] < -0.19
    assert mean[SPEC.group("cliff_signal")] * 4095 == pytest.approx([2890] * 4, abs=90)
    assert np.abs(mean[SPEC.group("wheel_current")]).max() < 0.01
    assert (values[:, SPEC.group("wheel_velocity")] == 0.0).all()


@pytest.mark.hardware
def test_nothing_is_learned_across_a_fault() -> None:
    """Five minutes with every kind of fault: no frame is whole while the robot is held, disconnected or silent."""
    body = EmulatedCreate(faults="loss=0.1,flip=0.1,burst=0.02,stall=0.02,unplug=0.01,reboot=0.005,lift=0.03,"
                          "cliff=0.03,sleep=0.005,mode=0.03,text=0.05,stuck_wheel=0.02")  # fmt: skip
    env = RobotEnv(body, body.clock, spec=SPEC)
    rng = np.random.default_rng(0)
    wrong = []
    env.reset(seed=0, options=STAY)
    for k in range(3_000):
        action = int(rng.integers(5))
        info = env.step(action)[4]
        firmware = body.emulator.robot
        assert not (info["applied"] and not info["stale"] and info["sensor_age_s"] > 0.05)
        is_whole = (
            info["applied"]
            and not info["stale"]
            and not info["gap"]
            and info["sensor_age_s"] == 0.0
        )
        if is_whole and firmware.mode != SAFE:
            wrong.append((k, firmware.mode))
    counts = body.emulator.fault_counts
    env.close()
    assert sum(counts.values()) > 60
    assert wrong == []
