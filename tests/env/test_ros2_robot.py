"""The robot of examples/ros2_robot.py on a rosbridge server with a simulated base: its contract, and what stops it."""

from __future__ import annotations

import copy
import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import cli
from horde_env import RobotEnv, RobotSpec
from horde_env.backend import Backend
from horde_env.clock import ManualClock, SimulatedClock
from horde_env.errors import BackendLost, BackendUnavailable
from horde_env.testing import BackendContract
from tests.env.rosbridge import Request, Rosbridge, wait_until

pytest.importorskip("roslibpy")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ros2_robot.py"
FORWARD = np.array([0.1, 0.0, 0.0])
STILL = Request(0.0, 0.0, 0.0)


def load_example() -> Any:
    """Import the example once, by the name that `horde learn --env` uses."""
    if "ros2_robot" not in sys.modules:
        source = importlib.util.spec_from_file_location("ros2_robot", EXAMPLE)
        assert source is not None
        assert source.loader is not None
        module = importlib.util.module_from_spec(source)
        sys.modules["ros2_robot"] = module
        source.loader.exec_module(module)
    return sys.modules["ros2_robot"]


ros2_robot = load_example()
SPEC = RobotSpec(ros2_robot.SETTINGS, tile_layout="")


def settings(server: Rosbridge, **changes: Any) -> dict[str, Any]:
    """Return the example's settings for a server whose base stops after 0.5 s."""
    table: dict[str, Any] = copy.deepcopy(ros2_robot.SETTINGS)
    table["rosbridge"].update(host="127.0.0.1", port=server.port, command_timeout_s=0.5)
    table["rosbridge"].update(changes)
    return table


class LockstepRobot(ros2_robot.Ros2Robot):  # type: ignore[misc]
    """The example's robot, which waits for the answers to each of its commands instead of a period.

    Its time stands still unless a test advances `hand`.
    """

    def __init__(self, server: Rosbridge, **changes: Any) -> None:
        super().__init__(settings(server, **changes), SimulatedClock())
        self.server = server
        self.n_published = 0
        self.hand = ManualClock()
        self.monotonic = self.hand.monotonic

    def publish(self, request: Any) -> None:
        super().publish(request)
        self.n_published += 1
        wait_until(lambda: self.server.n_handled == self.n_published)
        wait_until(
            lambda: sum(arrival.number for arrival in self.newest.values()) == self.server.n_sent
        )


@pytest.fixture
def server() -> Iterator[Rosbridge]:
    base = Rosbridge(SPEC.period_s)
    yield base
    base.close()


class TestRos2Robot(BackendContract):
    """The contract of a robot; it waits for answers, not for time."""

    deterministic = False  # a base cannot be placed

    @pytest.fixture(autouse=True)
    def _servers(self) -> Iterator[None]:
        self.servers: list[Rosbridge] = []
        yield
        for server in self.servers:
            server.close()

    def make_backend(self) -> Backend:
        self.servers.append(Rosbridge(SPEC.period_s))
        robot: Backend = LockstepRobot(self.servers[-1])
        return robot

    def make_spec(self) -> RobotSpec:
        return SPEC


# ---- readings and commands -------------------------------------------------------------------------------------------


def test_a_scan_becomes_the_nearest_reading_of_each_eighth(server: Rosbridge) -> None:
    """1 m from the wall behind, 3 m from that ahead; a beam at angle a meets it after 1 m / cos a or 3 m / cos a.

    Beams that meet nothing within 3.5 m arrive as null.
    """
    server.x_m = 1.0
    robot = LockstepRobot(server)
    distances = robot.reset(np.random.default_rng(0)).values[SPEC.group("distance")]
    robot.close()
    beams = np.deg2rad(np.arange(360))
    ahead = 3.0 / np.cos(beams[23:68]).max()
    behind = 1.0 / np.abs(np.cos(beams[113:158])).max()
    beside = 1.0 / np.abs(np.cos(beams[90:113])).max()
    np.testing.assert_allclose(
        distances, [3.0, ahead, beside, behind, 1.0, behind, beside, ahead], atol=1e-12
    )


def test_commands_reach_the_base_and_its_speed_comes_back(server: Rosbridge) -> None:
    robot = LockstepRobot(server)
    robot.reset(np.random.default_rng(0))
    frame = robot.exchange(np.array([-0.05, 0.0, 0.25]))
    robot.close()
    assert server.requests == [STILL, Request(-0.05, 0.0, 0.25), STILL]
    assert frame.values[SPEC.index("speed")] == -0.05
    assert frame.values[SPEC.index("yaw_rate")] == 0.25
    np.testing.assert_allclose(frame.values[SPEC.group("last_request")], [-0.5, 0.5])


def test_a_stamped_command_is_a_twist_stamped() -> None:
    server = Rosbridge(SPEC.period_s, stamped=True)
    robot = LockstepRobot(server, stamped=True)
    robot.reset(np.random.default_rng(0))
    robot.exchange(FORWARD)
    assert server.kinds["/cmd_vel"] == "geometry_msgs/msg/TwistStamped"
    robot.close()
    server.close()
    assert server.requests[1] == Request(0.1, 0.0, 0.0)


# ---- what stops the wheels -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_s", [0.0, 0.1, 1.5])
def test_a_base_without_a_timeout_of_its_own_is_refused(
    server: Rosbridge, timeout_s: float
) -> None:
    """0: not filled in; 0.1 s, one period: it would stop between two commands."""
    with pytest.raises(BackendUnavailable, match=f"command_timeout_s is {timeout_s}"):
        LockstepRobot(server, command_timeout_s=timeout_s)
    assert server.requests == []


@pytest.mark.parametrize(("x_m", "forward"), [(3.8, 0.1), (0.2, -0.1)])
def test_a_command_towards_something_near_becomes_a_stop(
    server: Rosbridge, x_m: float, forward: float
) -> None:
    """20 cm from a wall; the other direction, and turns, stay possible."""
    server.x_m = x_m
    robot = LockstepRobot(server)
    robot.reset(np.random.default_rng(0))
    towards = robot.exchange(np.array([forward, 0.0, 0.0]))
    turn = robot.exchange(np.array([0.0, 0.0, 0.5]))
    away = robot.exchange(np.array([-forward, 0.0, 0.0]))
    robot.close()
    assert (towards.applied, turn.applied, away.applied) == (False, True, True)
    assert server.requests == [
        STILL,
        STILL,
        Request(0.0, 0.0, 0.5),
        Request(-forward, 0.0, 0.0),
        STILL,
    ]


@pytest.mark.parametrize("topic", ["/odom", "/scan"])
def test_a_silent_robot_is_stopped(server: Rosbridge, topic: str) -> None:
    """After 1 s the environment truncates; the next reset connects again, with a stop as its first command."""
    robot = LockstepRobot(server)
    env = RobotEnv(robot, spec=SPEC)
    env.reset(seed=0)
    env.step(0)
    server.silent = {topic}
    for _ in range(2):
        robot.hand.advance(0.4)
        assert not env.step(0)[3]
    robot.hand.advance(0.4)
    assert env.step(0)[3]
    assert f"no frame from {topic} " in str(env.fault)
    assert "stops 0.5 s after its last command" in str(env.fault)

    server.silent = set()
    env.reset(options={"manoeuvre": "stay"})
    env.step(3)
    env.close()
    forward = Request(0.1, 0.0, 0.0)
    turn = Request(0.0, 0.0, 0.5)
    assert server.requests == [STILL, *[forward] * 3, STILL, STILL, turn, STILL]


def test_a_cut_link_sends_no_late_command(server: Rosbridge) -> None:
    """A WebSocket that reconnects by itself would deliver what was queued: the next connection begins with a stop."""
    robot = LockstepRobot(server)
    robot.reset(np.random.default_rng(0))
    robot.exchange(FORWARD)
    server.drop()
    wait_until(lambda: not robot.link.is_connected)
    with pytest.raises(BackendLost):
        robot.exchange(FORWARD)
    n_requests = len(server.requests)
    robot.reset(np.random.default_rng(0))
    robot.close()
    assert server.requests[n_requests:] == [STILL, STILL]


def test_no_rosbridge_and_a_topic_without_publisher_are_refused(
    server: Rosbridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on_request = lambda _: monkeypatch.setattr(ros2_robot, "CONNECT_S", 0.1)
    server.silent = {"/scan"}
    with pytest.raises(BackendUnavailable, match="no message on /scan"):
        LockstepRobot(server).reset(np.random.default_rng(0))
    assert server.requests == [STILL, STILL]
    server.close()
    with pytest.raises(
        BackendUnavailable, match=f"no rosbridge answers at 127.0.0.1:{server.port}"
    ):
        LockstepRobot(server).reset(np.random.default_rng(0))


def test_horde_learn_drives_it_and_sigterm_stops_it(
    server: Rosbridge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes during the 30th command: the last one is a stop."""

    def end_at_30(_: Request) -> None:
        if len(server.requests) == 30:
            os.kill(os.getpid(), signal.SIGTERM)

    server.on_request = end_at_30
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ros2_robot, "SETTINGS", settings(server))
    monkeypatch.setattr(ros2_robot, "RealTimeClock", lambda _: SimulatedClock())
    monkeypatch.setattr(ros2_robot, "Ros2Robot", lambda settings, clock: LockstepRobot(server))
    words = "learn --env ros2_robot:Ros2Robot-v0 --questions nexting --steps 5000 --out a"
    assert cli.main(words.split()) == 128 + signal.SIGTERM
    assert 30 < len(server.requests) < 1_000
    assert server.requests[-1] == STILL
    assert any(request.yaw for request in server.requests)


def test_the_example_measures_the_timeout_of_the_base(
    server: Rosbridge, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Five commands forward, then silence: the base rolls to rest by itself."""

    def roll_to_rest_at_6(_: Request) -> None:
        if len(server.requests) == 6:
            server.roll_to_rest()

    server.on_request = roll_to_rest_at_6
    monkeypatch.setattr(ros2_robot, "SETTINGS", settings(server))
    monkeypatch.setattr(ros2_robot, "Ros2Robot", lambda settings, clock: LockstepRobot(server))
    ros2_robot.measure_stop()
    assert server.requests == [STILL, *[Request(0.1, 0.0, 0.0)] * 5, STILL]
    assert "stopped 0.00 s after the last command; 0.5 s were stated" in capsys.readouterr().out
