"""The environment over an emulated robot, through bytes and port."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from horde_env.robot import critterbot
from horde_env.robots.critterbot.emulator.driver import OnBoardDriver
from horde_env.robots.critterbot.stream import BUS, MOTORS, SOURCE, STATE_START, DataSource

pytest.importorskip("pybullet")
pytestmark = [pytest.mark.sim, pytest.mark.hardware]

SPEC = critterbot()
ID = "horde_env:CritterbotEmulated-v0"
LINKS = ("serial", "drops")


def make(**rest: Any) -> Any:
    return gymnasium.make(ID, disable_env_checker=True, **rest)


@pytest.mark.parametrize("link", LINKS)
def test_the_five_actions_move_the_robot_as_in_the_simulator(link: str) -> None:
    """Through the wire and back: the gyro's sign, the wheels' sum, and the way that it went."""
    env = make(link=link)
    try:
        env.reset(seed=4)
        env.unwrapped.reset(options={"manoeuvre": "centre"})
        rate = {}
        for action in (2, 3):
            for _ in range(12):  # out of a drive to the middle, and later by the driver's 50 ms
                observation, *_, info = env.step(action)
            rate[action] = SPEC.unscale(observation)[SPEC.index("rotational_velocity")]
            assert info["applied"] == 1
        assert rate[2] < -1.5
        assert rate[3] > 1.5
        for _ in range(5):
            env.step(4)
        info = env.step(4)[4]
        x, y, heading = info["x_m"], info["y_m"], info["heading_rad"]
        for _ in range(8):
            info = env.step(0)[4]
        along = (info["x_m"] - x) * np.cos(heading) + (info["y_m"] - y) * np.sin(heading)
        assert along > 0.1
    finally:
        env.close()


def test_the_same_seed_gives_the_same_life_faults_and_all() -> None:
    lives = []
    for _ in range(2):
        env = make(faults="loss=1,flip=1,unplug=0.1", seed=3)
        try:
            observation, info = env.reset(seed=1)
            life = [(observation.tobytes(), info)]
            for i in range(150):
                observation, *_, info = env.step(i % 5)
                life.append((observation.tobytes(), info))
        finally:
            env.close()
        lives.append(life)

    assert lives[0] == lives[1]


def test_a_pose_depends_on_the_seeds_of_reset_and_of_the_robot() -> None:
    poses = set()
    for own, seed in ((0, 1), (0, 2), (3, 1), (0, 1)):
        env = make(seed=own)
        try:
            info = env.reset(seed=seed)[1]
        finally:
            env.close()
        poses.add((info["x_m"], info["y_m"], info["heading_rad"]))
    assert len(poses) == 3


def test_the_original_simulator_is_sent_motor_commands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other mode ends its reader; and its bus of 0 V is no empty battery."""
    make_drop, modes = OnBoardDriver._drop, set[int]()

    def simulated(line: OnBoardDriver, packet: bytes) -> bytes:
        drop, start = bytearray(make_drop(line, packet)), len(STATE_START)
        drop[start + 4 * SOURCE : start + 4 * SOURCE + 4] = DataSource.SIMULATOR.to_bytes(4, "little")
        drop[start + 4 * BUS : start + 4 * MOTORS] = bytes(4 * (MOTORS - BUS))
        return bytes(drop)

    monkeypatch.setattr(OnBoardDriver, "_drop", simulated)
    env = make(link="drops", physics="planar")
    env.reset(seed=0)
    robot = env.unwrapped.backend.emulator.robot
    run = robot._run_control
    robot._run_control = lambda: (run(), modes.add(robot.control.mode))
    env.unwrapped.backend.enable_charging(True)
    infos = [env.step(i % 5)[4] for i in range(4)]
    env.close()
    assert [info["applied"] for info in infos] == [1] * 4
    assert modes <= {0, 1, 2}


def test_it_also_runs_in_time() -> None:
    """Five times as fast as real time, with all threads there are; only a machine that is too busy makes it late."""
    env = make(link="drops", speed=5.0)
    try:
        env.reset(seed=0)
        infos = [env.step(i % 5)[4] for i in range(30)]
    finally:
        env.close()

    assert infos[-1]["t"] - infos[0]["t"] == pytest.approx(2.9, abs=0.5)
    assert np.median([info["packets"] for info in infos]) == pytest.approx(10, abs=1)
    assert np.mean([info["applied"] for info in infos]) > 0.8
