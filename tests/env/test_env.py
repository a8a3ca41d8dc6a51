from __future__ import annotations

import dataclasses
import gc
import logging
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

import horde_env
from horde_env.backend import Floats, Frame
from horde_env.clock import ManualClock, RealTimeClock
from horde_env.env import RobotEnv
from horde_env.errors import BackendLost, BackendUnavailable
from horde_env.observer import Observer
from horde_env.robot import critterbot
from horde_env.robots.critterbot.simulator.backend import SimulatedBody
from horde_env.tasks import TASKS, task
from tests.env.healthy import Robot
from tests.env.recording import packets, write
from tests.env.toy import ToyBody, begun


class LosingBody(ToyBody):
    """A toy that stops answering after three exchanges, until it is reset."""

    def exchange(self, command: Floats) -> Frame:
        if self._t >= 3:
            raise BackendLost(port="nowhere", silent_s=0.2, limit_s=0.1, last_frame=self._t)
        return super().exchange(command)


@pytest.fixture(autouse=True)
def _no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("id_", "action_type"),
    [
        ("CritterbotPen-v0", "discrete"),
        ("CritterbotReplay-v0", "velocity"),
        ("CreatePen-v0", "velocity"),
    ],
)
def test_gymnasiums_and_stable_baselines_checkers_pass(
    id_: str, action_type: str, tmp_path: Path
) -> None:
    if "Replay" in id_:
        options = {"log": write(tmp_path / "life.csv", packets(100))}
    else:
        options = {"physics": "planar"}
    with gymnasium.make(f"horde_env:{id_}", action_type=action_type, **options) as env:
        check_env(env.unwrapped)
        pytest.importorskip("stable_baselines3.common.env_checker").check_env(env)


def test_the_five_actions_request_the_five_velocities() -> None:
    body = Robot()
    env = begun(body)
    for action in (0, 1, 2, 3, np.int64(4)):
        env.step(action)
    expected = [[0.35, 0, 0], [-0.35, 0, 0], [0, 0, -1.96], [0, 0, 1.96], [0, 0, 0]]
    np.testing.assert_array_equal(body.requests, expected)
    # Vector environments, and policies of other libraries, return arrays of one element.
    for action in (np.array(0), np.array([1]), np.array([[3]])):
        env.step(action)
    np.testing.assert_array_equal(body.requests[5:], [expected[0], expected[1], expected[3]])


def test_a_velocity_is_a_share_of_the_largest_request() -> None:
    body = Robot()
    env = begun(body, action_type="velocity")
    env.step(np.array([1.0, -0.5, 0.25], dtype=np.float32))
    np.testing.assert_allclose(body.requests[0], [0.44, -0.22, 1.15])
    assert env.metadata["actions"] == ["x", "y", "yaw"]


@pytest.mark.parametrize(
    ("action_type", "action", "message"),
    [
        *(
            ("velocity", bad, "three shares of")
            for bad in ([0.0, 0.0, 1.01], [0.0, np.nan, 0.0], [0.0, 0.0], 1, "on")
        ),
        *(("discrete", bad, "an integer from 0 to 4") for bad in (5, -1, 2.0, None, "stop")),
        *(
            ("discrete", np.array(bad), "an integer from 0 to 4")
            for bad in ([1, 2], [5], [1.0], [])
        ),
    ],
)
def test_an_invalid_action_is_refused_and_sends_nothing(
    action_type: Any, action: Any, message: str
) -> None:
    body = Robot()
    env = begun(body, action_type=action_type)
    with pytest.raises(ValueError, match=f"action must be {message}"):
        env.step(action)
    assert body.requests == []


def test_readings_outside_their_range_are_clipped_and_counted() -> None:
    """Light of 0.9 (range .8) and -3 V: two clips; a NaN is missing, and the rest is untouched."""
    env = begun(ToyBody())
    assert env.frame is not None
    values = env.frame.values.copy()
    index = env.robot.index
    values[[index("light_0"), index("bus_voltage"), index("thermal_3")]] = 0.9, -3.0, np.nan
    env.backend = Robot(lambda frame, _: dataclasses.replace(frame, values=values))  # type: ignore[assignment]
    env.backend.reset(np.random.default_rng(0))
    observation, _, _, _, info = env.step(0)
    assert info["clipped"] == 2
    assert [observation[index(n)] for n in ("light_0", "bus_voltage")] == [1.0, 0.0]
    assert np.flatnonzero(np.isnan(observation)).tolist() == [index("thermal_3")]
    assert env.observation_space.contains(np.nan_to_num(observation))


def test_what_the_body_reports_reaches_info() -> None:
    changes = {"sensor_age_s": 0.004, "crc_errors": 2, "stale": True, "gap": True, "applied": False}
    env = begun(Robot(lambda frame, _: dataclasses.replace(frame, **changes, extras={"b": 0.2})))
    info = env.step(0)[4]
    expected = {
        "sensor_age_s": 0.004,
        "crc_errors": 2,
        "stale": 1,
        "gap": 1,
        "applied": 0,
        "b": 0.2,
    }
    assert {key: info[key] for key in expected} == expected


def test_a_lost_body_truncates_with_the_last_observation(caplog: pytest.LogCaptureFixture) -> None:
    """It logs the loss once, and can be reset."""
    env = begun(LosingBody())
    last, info = [env.step(0) for _ in range(3)][-1][::4]
    with caplog.at_level(logging.WARNING):
        observation, reward, terminated, truncated, lost_info = env.step(0)
    assert (reward, terminated, truncated) == (0.0, False, True)
    np.testing.assert_array_equal(observation, last)
    assert set(lost_info) == set(info)
    assert (lost_info["gap"], lost_info["applied"], lost_info["stale"]) == (1, 0, 1)
    assert caplog.text.count("no frame from nowhere") == 1
    assert (
        "Check the cable and the robot's switch. The episode ends here, and the next reset"
        in caplog.text
    )
    assert env.fault is not None
    with pytest.raises(ResetNeeded, match="reset"):
        env.step(0)
    env.reset()
    assert env.fault is None
    assert env.step(0)[3] is False


def test_a_body_lost_on_the_drive_needs_a_fresh_start(caplog: pytest.LogCaptureFixture) -> None:
    """The reset has no observation to return, so it raises; the next one opens the body again."""
    body = LosingBody()
    env = begun(body)
    body.place(0.8, 0.8, 0.0)
    env.step(4)
    with pytest.raises(BackendLost, match="no frame from nowhere"):
        env.reset(options={"manoeuvre": "centre"})
    assert caplog.text == "", "the caller reports the error"
    with pytest.raises(ResetNeeded):
        env.step(0)
    assert env.reset()[1]["gap"] == 1


def test_only_a_seed_or_a_closed_body_makes_a_drive_start_anew() -> None:
    """Otherwise it starts where the body stands; nothing is opened before the first reset."""
    body = ToyBody()
    drive = {"manoeuvre": "centre"}
    env = RobotEnv(body)
    assert body.log == []
    for seed, options, n_resets in (
        (None, drive, 1),
        (None, drive, 1),
        (4, drive, 2),
        (None, None, 3),
    ):
        env.reset(seed=seed, options=options)
        assert body.log.count("reset") == n_resets


def test_a_drive_can_be_ended_at_once() -> None:
    """By Ctrl-C, for example; the next drive is complete again."""

    class Hasty(ToyBody):
        def exchange(self, command: Floats) -> Frame:
            if self.log.count("exchange") == 3:
                env.end_manoeuvre()
            return super().exchange(command)

    body = Hasty()
    env = begun(body)
    body.place(-0.8, 0.6, 1.0)
    assert env.reset(options={"manoeuvre": "centre"})[1]["manoeuvre_steps"] == 4
    body.place(-0.8, 0.6, 1.0)
    env.step(4)
    assert env.reset(options={"manoeuvre": "centre"})[1]["manoeuvre_steps"] > 4


def test_an_overrun_reaches_info() -> None:
    """0.03 s of computing fit into the period, 0.13 s do not."""
    hand = ManualClock()
    env = begun(ToyBody(), RealTimeClock(0.1, monotonic=hand.monotonic, sleep=hand.sleep))
    hand.advance(0.03)
    assert env.step(0)[4]["overrun_s"] == pytest.approx(0.0, abs=1e-9)
    hand.advance(0.13)
    assert env.step(0)[4]["overrun_s"] == pytest.approx(0.03)


def test_a_suspension_of_the_computer_is_a_gap(caplog: pytest.LogCaptureFixture) -> None:
    """The monotonic clock stands still meanwhile, so that nothing is late; the robot may be anywhere."""
    hand = ManualClock()
    clock = RealTimeClock(0.1, monotonic=hand.monotonic, sleep=hand.sleep, boot_time=hand.boot_time)
    env = begun(ToyBody(), clock)
    hand.suspend(3600.0)
    infos = [env.step(0)[4] for _ in range(2)]
    hand.suspend(0.01)  # the rounding of two clocks
    infos.append(env.step(0)[4])
    assert [info["gap"] for info in infos] == [1, 0, 0]
    assert [info["overrun_s"] for info in infos] == pytest.approx([0.0, 0.0, 0.0], abs=1e-9)
    assert caplog.text.count("this computer was suspended") == 1


def test_a_simulated_robot_stands_still_while_the_computer_is_suspended() -> None:
    """With a real-time clock too: what it learns has the same bits."""
    hand = ManualClock()
    env = begun(SimulatedBody(physics="planar"))
    env.clock = RealTimeClock(
        0.1, monotonic=hand.monotonic, sleep=hand.sleep, boot_time=hand.boot_time
    )
    env.clock.start()
    hand.suspend(3600.0)
    assert env.step(0)[4]["gap"] == 0


def test_a_tasks_reward_is_that_of_the_observation_after_the_step() -> None:
    env = begun(ToyBody(), task="light")
    observation, reward, *_ = env.step(0)
    assert reward == pytest.approx(float(observation[env.robot.group("light")].mean()))


def test_metadata_describes_channels_actions_period_and_tiles() -> None:
    env = RobotEnv(ToyBody())
    channels = env.metadata["channels"]
    assert len(channels) == 57
    assert sum(channel["sensor"] for channel in channels) == 53
    light = {"name": "light_0", "group": "light", "unit": "1", "sensor": True, "range": [0.0, 0.8]}
    assert channels[41] == light | {"step": pytest.approx(1 / 1023 / 0.8), "role": ""}
    roles = {channel["group"]: channel["role"] for channel in channels if channel["role"]}
    assert roles == {"motor_velocity": "speed", "last_request": "request"}
    assert env.metadata["actions"] == [
        "forward",
        "reverse",
        "rotate_clockwise",
        "rotate_counterclockwise",
        "stop",
    ]
    assert env.metadata["period_s"] == 0.1
    assert env.metadata["tile_layout"] == env.robot.tile_layout
    assert "channels" not in RobotEnv.metadata


def test_a_window_needs_a_display_before_anything_is_opened() -> None:
    body = ToyBody()
    with pytest.raises(BackendUnavailable, match=r'needs a display.*"rgb_array"'):
        RobotEnv(body, render_mode="human")
    assert body.log == []
    assert RobotEnv(body).metadata["render_modes"] == ["rgb_array"]


def test_closing_stops_the_motors_first_and_always_closes_the_window() -> None:
    """Closing a window may be slow or fail; after a failure of the body it must still be closed."""
    done: list[str] = []

    class Body(ToyBody):
        def close(self) -> None:
            done.append("body")
            raise BackendUnavailable("it was closed already")

    env = RobotEnv(Body())
    env.display.close = lambda: done.append("window")  # type: ignore[method-assign]
    with pytest.raises(BackendUnavailable):
        env.close()
    assert done == ["body", "window"]


def test_nothing_is_compiled_between_the_first_frame_and_the_first_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first scaling compiles for a second, in which a robot's first step would be late."""
    order: list[str] = []

    def note(kind: type, name: str) -> None:
        method = getattr(kind, name)

        def noted(*arguments: Any, **options: Any) -> Any:
            order.append(name)
            return method(*arguments, **options)

        monkeypatch.setattr(kind, name, noted)

    note(Observer, "observe")
    note(RealTimeClock, "start")
    note(ToyBody, "reset")
    with RobotEnv(ToyBody(), RealTimeClock(0.1)) as env:
        env.reset(seed=0)
    assert order == ["observe", "start", "reset", "observe"]


def test_importing_the_package_stays_light() -> None:
    """No engine, compiler or learner is loaded before a body is made, nor by reading the robot's description."""
    code = (
        "import sys, horde_env; horde_env.critterbot(); horde_env.RobotEnv; "
        "print(sorted({'pybullet', 'numba', 'torch', 'pygame', 'matplotlib', 'serial'} & set(sys.modules)))"
    )
    out = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"


def test_every_public_name_exists() -> None:
    for name in horde_env.__all__:
        assert getattr(horde_env, name) is not None
    assert set(horde_env.__all__) <= set(dir(horde_env))
    with pytest.raises(AttributeError, match="horde_env has no 'Robot'"):
        _ = horde_env.Robot


class StandingBody(ToyBody):
    """A body that cannot be placed, like a real robot: it starts where it stands."""

    can_be_placed = False

    def reset(self, rng: np.random.Generator) -> Frame:
        if not self.log:
            return super().reset(rng)
        self.log.append("reset")
        return self.place(*self.pose)


def test_a_real_robot_drives_to_the_middle_in_every_reset_and_stays_only_on_request() -> None:
    body = StandingBody()
    env = RobotEnv(body)
    _, info = env.reset(seed=1)
    assert info["manoeuvre_steps"] == body.log.count("exchange") > 0
    assert np.hypot(*body.pose[:2]) < 0.3

    body.place(-0.6, 0.5, 1.0)
    _, info = env.reset(options={"manoeuvre": "stay"})
    assert (info["manoeuvre_steps"], info["gap"]) == (0, 1)
    assert body.pose.tolist() == [-0.6, 0.5, 1.0]
    assert env.reset()[1]["manoeuvre_steps"] > 0


def test_an_emergency_stop_reaches_the_body_that_has_one() -> None:
    body: Any = ToyBody()
    assert RobotEnv(body).emergency_stop("smoke") is False
    body.emergency_stop = lambda reason: reason == "smoke"
    assert RobotEnv(body).emergency_stop("smoke") is True


SPEC = critterbot()


def observation(**readings: float) -> np.ndarray:
    values = np.full(SPEC.n_channels, 0.25, dtype=np.float32)
    for name, share in readings.items():
        values[SPEC.index(name)] = share
    return values


SIMULATORS = ("horde_env:CritterbotPen-v0", "horde_env:CreatePen-v0")


def reward(name: str, after: np.ndarray) -> float:
    return task(name)(observation(), np.zeros(3), after, SPEC)


@pytest.mark.parametrize(
    ("name", "channel", "share", "expected"),
    [
        ("light", "light_2", 1.0, 0.4375),  # mean of (1, .25, .25, .25)
        ("beacon", "ir_light_5", 0.9, 0.9),  # the brightest sensor
        ("centre", "ir_distance_9", 0.8, -0.8),  # the nearest wall
        ("spin", "rotational_velocity", 0.75, 0.5),  # 0 .. 1 is -1 .. 1 of the largest yaw rate
        ("none", "light_0", 1.0, 0.0),
    ],
)
def test_the_reward_of_each_task(name: str, channel: str, share: float, expected: float) -> None:
    assert reward(name, observation(**{channel: share})) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["light", "beacon", "centre"])
def test_a_task_without_its_sensors_is_refused_before_the_first_step(name: str) -> None:
    """The Create 2 has no light sensors, no infrared light sensors and no distances in metres."""
    message = f"the create2 lacks the sensors of the task '{name}'; choose one of none, spin"
    with pytest.raises(ValueError, match=message):
        gymnasium.make("horde_env:CreatePen-v0", task=name)


@pytest.mark.parametrize("id_", SIMULATORS)
def test_a_reset_and_a_step_have_the_same_keys_of_info(id_: str) -> None:
    """As `minari.DataCollector(record_infos=True)` requires: after a reset, a drive, a stay at the dock, and a step."""
    env = gymnasium.make(id_, physics="planar")
    keys = set(env.reset(seed=0)[1])
    assert {"manoeuvre_steps", "docked"} <= keys
    assert set(env.step(0)[4]) == keys
    for options in (
        {"manoeuvre": "centre"},
        {"manoeuvre": "stay"},
        {"manoeuvre": "dock", "charge_s": 0.1},
    ):
        assert set(env.reset(options=options)[1]) == keys
    step = env.step(0)[4]
    assert (step["manoeuvre_steps"], step["docked"]) == (0, 0)
    env.close()


# The collector's own folder
@pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning")
@pytest.mark.parametrize("id_", SIMULATORS)
def test_minaris_collector_records_the_infos_of_a_robot(id_: str) -> None:
    minari = pytest.importorskip("minari")
    pytest.importorskip("jax")  # which the collector requires
    env = minari.DataCollector(
        gymnasium.make(id_, physics="planar", max_episode_steps=5), record_infos=True
    )
    for seed in range(2):
        env.reset(seed=seed)
        for k in range(5):
            env.step(k)
    env.close()
    del env
    gc.collect()


@pytest.mark.parametrize("id_", SIMULATORS)
def test_a_pickled_simulator_continues_with_the_same_bits(id_: str) -> None:
    """Also in the middle of an episode; its name in the registry and its arguments come along.

    After a reset of the copy its batteries are full: an array that was a view of another one is not
    a view in a copy, and batteries of 0 V hold the motors.
    """
    env = gymnasium.make(id_, physics="planar", task="spin")
    env.reset(seed=3)
    for k in range(10):
        env.step(k % 5)
    copy = pickle.loads(pickle.dumps(env))
    assert copy.spec == env.spec
    for k in range(20):
        ours = env.step(k % 5)
        theirs = copy.step(k % 5)
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[1:] == theirs[1:]
    drive = {"manoeuvre": "centre"}
    np.testing.assert_array_equal(env.reset(options=drive)[0], copy.reset(options=drive)[0])
    np.testing.assert_array_equal(env.reset(seed=4)[0], copy.reset(seed=4)[0])


@pytest.mark.parametrize("name", sorted(TASKS))
def test_rewards_lie_between_minus_one_and_one(name: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        readings = rng.random(SPEC.n_channels).astype(np.float32)
        assert -1.0 <= reward(name, readings) <= 1.0
