"""The environment over an emulated robot, through bytes and port."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import pytest

from horde_env.robots.critterbot.emulator.driver import OnBoardDriver
from horde_env.robots.critterbot.stream import BUS, MOTORS, SOURCE, STATE_START, DataSource

pytest.importorskip("pybullet")
pytestmark = [pytest.mark.sim, pytest.mark.hardware]

ID = "horde_env:CritterbotEmulated-v0"


def make(**rest: Any) -> Any:
    return gymnasium.make(ID, disable_env_checker=True, **rest)


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
    """Twice as fast as real time, with all threads there are: on a busy machine later, but never earlier."""
    env = make(link="drops", speed=2.0)
    infos: list[dict[str, Any]] = []
    try:
        start, began = env.reset(seed=0)[1], time.monotonic()
        while sum(info["applied"] for info in infos) < 20:
            infos.append(env.step(len(infos) % 5)[4])
            assert len(infos) < 300, "the robot is not reached"
        took_s = time.monotonic() - began
    finally:
        env.close()
    passed_s = infos[-1]["t"] - start["t"]
    assert 0.1 * len(infos) - 0.15 < passed_s < 2.0 * took_s + 0.15
    assert max(info["packets"] for info in infos) >= 9
    assert sum(info["packets"] for info in infos) < 100 * passed_s + 20
