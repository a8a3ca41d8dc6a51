"""An emulated robot and its host on one virtual clock: the same bytes every time, and the environment over them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

from horde_env.emulation.lockstep import LockstepClock, MemoryLine
from horde_env.hardware.settings import LinkSettings, PortConfig
from horde_env.robots.critterbot import checks
from horde_env.robots.critterbot.body import SerialBody
from horde_env.robots.critterbot.emulator.driver import OnBoardDriver
from horde_env.robots.critterbot.emulator.emulator import Emulator
from horde_env.robots.critterbot.stream import BUS, MOTORS, SOURCE, STATE_START, DataSource
from horde_env.robots.critterbot.wire import drive
from tests.env.critterbot.emulated import SPEC, setpoints

pytestmark = [pytest.mark.sim, pytest.mark.hardware]
ID = "horde_env:CritterbotEmulated-v0"
STAY = {"manoeuvre": "stay"}


Linked = tuple[Emulator, MemoryLine, LockstepClock]


@pytest.fixture
def linked() -> Iterator[Linked]:
    """A robot at its console, its line and their clock."""
    line = MemoryLine()
    clock = LockstepClock()
    with Emulator(seed=3) as emulator:
        emulator.add(line)
        clock.join(emulator, line)
        yield emulator, line, clock


def make(**rest: Any) -> Any:
    return gymnasium.make(ID, disable_env_checker=True, **rest)


@pytest.mark.parametrize("link", ["serial", "drops"])
def test_every_step_sees_the_packet_of_its_deadline(link: str) -> None:
    with make(link=link) as env:
        env.reset(seed=0, options=STAY)
        infos = [env.step(0)[4] for _ in range(50)]
    keys = ("packets", "sensor_age_s", "crc_errors", "skipped_bytes")
    assert {tuple(round(info[name], 9) for name in keys) for info in infos} == {(10, 0.0, 0, 0)}


def test_a_command_acts_in_its_own_step() -> None:
    """Read at the end of the first cycle, it drives for nine of ten: 90 % of the simulator's step, and not the next."""
    with make() as env:
        env.reset(seed=0, options=STAY)
        for _ in range(15):
            env.step(4)
        env.step(0)
        robot = env.unwrapped.backend.emulator.robot
        assert robot.control == drive(SPEC.requests[0], SPEC)
        assert max(map(abs, setpoints(robot))) == 9  # the ramp's unit per cycle


@pytest.mark.parametrize(
    "way", [b"recharge start\r", b"recharge start\rmi on\r"], ids=["console", "packets"]
)
def test_horde_robot_stop_ends_what_the_console_began(way: bytes, linked: Linked) -> None:
    """No packet ends the robot's own way to its dock: without the way over the console it would drive on for ever."""
    emulator, line, clock = linked
    for _ in range(130):
        emulator.advance(look=False)
    emulator.robot.receive(way)
    clock.sleep(0.4)
    assert setpoints(emulator.robot) != [0, 0, 0]
    config = PortConfig(line.url, parity="none")
    report = checks.send_stop(config, "serial", clock.monotonic, clock.sleep, connect=line.connect)
    assert report.text.endswith("its wheels are at rest")
    for _ in range(100):
        emulator.advance(look=False)
        assert setpoints(emulator.robot) == [0, 0, 0]


def test_a_body_ends_the_way_to_the_dock_of_a_robot_that_it_finds_at_its_console(
    linked: Linked,
) -> None:
    emulator, line, clock = linked
    emulator.robot.receive(b"recharge start\r")
    clock.sleep(1.0)
    time_of: dict[str, Any] = {
        "monotonic": clock.monotonic,
        "sleep": clock.sleep,
        "connect": line.connect,
    }
    body = SerialBody(
        PortConfig(line.url, parity="none"), clock, settings=LinkSettings(threaded=False), **time_of
    )
    body.reset(np.random.default_rng(0))
    assert not emulator.robot.recharging
    assert setpoints(emulator.robot) == [0, 0, 0]
    body.close()


def test_the_same_seed_gives_the_same_life_faults_and_all() -> None:
    def life() -> list[Any]:
        with make(faults="loss=1,flip=1,unplug=0.1", seed=3) as env:
            first = env.reset(seed=1)
            steps = [env.step(i % 5) for i in range(150)]
        return [(observation.tobytes(), info) for observation, *_, info in (first, *steps)]

    assert life() == life()


def test_a_pose_depends_on_the_seeds_of_reset_and_of_the_robot() -> None:
    poses = set()
    for own, seed in ((0, 1), (0, 2), (3, 1), (0, 1)):
        with make(seed=own) as env:
            info = env.reset(seed=seed)[1]
        poses.add((info["x_m"], info["y_m"], info["heading_rad"]))
    assert len(poses) == 3


def test_the_original_simulator_is_sent_motor_commands_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any other mode ends its reader; and its bus of 0 V is no empty battery."""
    make_drop = OnBoardDriver._drop
    modes = set[int]()

    def simulated(line: OnBoardDriver, packet: bytes) -> bytes:
        drop = bytearray(make_drop(line, packet))
        start = len(STATE_START)
        drop[start + 4 * SOURCE : start + 4 * SOURCE + 4] = DataSource.SIMULATOR.to_bytes(
            4, "little"
        )
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
    infos: list[dict[str, Any]] = []
    with make(link="drops", speed=2.0) as env:
        start = env.reset(seed=0)[1]
        began = time.monotonic()
        while sum(info["applied"] for info in infos) < 20:
            infos.append(env.step(len(infos) % 5)[4])
            assert len(infos) < 300, "the robot is not reached"
        took_s = time.monotonic() - began
    passed_s = infos[-1]["t"] - start["t"]
    assert 0.1 * len(infos) - 0.15 < passed_s < 2.0 * took_s + 0.15
    assert max(info["packets"] for info in infos) >= 9
    assert sum(info["packets"] for info in infos) < 100 * passed_s + 20
