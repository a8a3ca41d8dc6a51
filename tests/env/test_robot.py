from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import horde_env
from horde_env import registry
from horde_env.emulation.emulator import RobotEmulator
from horde_env.hardware.backend import PhysicalBody
from horde_env.hardware.checks import RobotChecks
from horde_env.make import make_env
from horde_env.robot import ROBOTS, RobotSpec, asset, create2, critterbot
from horde_env.robots.create2 import wire as create2_wire
from horde_env.robots.critterbot import wire as critterbot_wire

SPEC = critterbot()


def test_each_axis_of_the_magnetometer_has_its_own_range() -> None:
    """In the range of x, the y axis of the real robot would cover 1 % and its returns have a variance of 4e-6."""
    ranges = [(c.low, c.high) for c in SPEC.channels[SPEC.group("magnetic")]]
    assert ranges == [(0.30, 0.85), (0.59, 0.65), (0.35, 0.50)]


def test_the_ends_of_a_range_are_zero_and_one_and_no_clips() -> None:
    for values, share in ((SPEC.low, 0.0), (SPEC.high, 1.0)):
        observation, clipped = SPEC.scale(values)
        assert observation.dtype == np.float32
        np.testing.assert_array_equal(observation, share)
        assert clipped == 0


def test_an_ulp_beyond_the_range_is_no_clip_and_stays_in_the_box() -> None:
    for values in (np.nextafter(SPEC.high, np.inf), np.nextafter(SPEC.low, -np.inf)):
        observation, clipped = SPEC.scale(values)
        assert clipped == 0
        assert SPEC.observation_space().contains(observation)


@pytest.mark.parametrize(
    ("wild", "share", "n_clipped"),
    [
        (np.inf, np.nan, 0),
        (-np.inf, np.nan, 0),
        (np.nan, np.nan, 0),
        (99.0, 1.0, 1),
        (-99.0, 0.0, 1),
    ],
)
def test_a_wild_reading_is_clipped_or_missing_and_spoils_no_other(
    wild: float, share: float, n_clipped: int
) -> None:
    values = 0.5 * (SPEC.low + SPEC.high)
    values[23] = wild
    observation, clipped = SPEC.scale(values)
    assert clipped == n_clipped
    np.testing.assert_equal(observation[23], np.float32(share))
    np.testing.assert_allclose(np.delete(observation, 23), 0.5)


def test_scaling_can_be_undone() -> None:
    values = SPEC.low + (SPEC.high - SPEC.low) * np.random.default_rng(0).random(57)
    np.testing.assert_allclose(SPEC.unscale(SPEC.scale(values)[0]), values, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("spec", [critterbot(), create2()], ids=lambda spec: spec.name)
def test_a_channels_step_is_the_smallest_change_of_its_scaled_reading(spec: RobotSpec) -> None:
    """ir_light, the mean of two packets, has half of it; flags and channels that are not on the wire have none."""
    middle = 0.5 * (spec.raw_low + spec.raw_high)
    one_more = np.abs(spec.to_si(middle + 1) - spec.to_si(middle)) / (spec.high - spec.low)
    for channel, change in zip(spec.channels, one_more, strict=True):
        if channel.lsb == 0.0 or channel.raw_high == 1:
            assert channel.step is None, channel.name
        else:
            assert channel.step == pytest.approx(
                change / (2 if channel.group == "ir_light" else 1)
            ), channel.name


def test_sensors_look_where_they_are_placed() -> None:
    """Light 1 looks left (y) from the left rim; infrared 7 sits on the tail, behind, and looks left."""
    np.testing.assert_allclose(SPEC.positions("light")[1], [0.0, 0.121], atol=1e-12)
    np.testing.assert_allclose(
        np.rad2deg(SPEC.angles("ir_distance")), [0, 45, 90, 135, 225, 270, 315, 95, 180, 231]
    )
    assert SPEC.positions("ir_distance")[7][0] < -0.12


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown channel 'light'; the robot has bus_voltage"):
        SPEC.index("light")
    with pytest.raises(ValueError, match=r"unknown group 'light_0'; the robot has bus_voltage"):
        SPEC.group("light_0")
    with pytest.raises(FileNotFoundError, match=r"nothing\.toml"):
        asset("nothing.toml")


@pytest.mark.parametrize("name", ROBOTS)
def test_a_robots_folder_has_all_that_shared_modules_load_from_it(name: str) -> None:
    robot = registry.robot(name)
    assert robot.name == robot.spec.name == name
    for backend, entry in robot.environments.items():
        if entry.is_on_port:
            assert issubclass(robot.connect(backend), PhysicalBody)
    assert robot.manoeuvres().stay is not None
    assert isinstance(robot.checks(), RobotChecks)
    assert isinstance(robot.emulator(), type)
    assert issubclass(robot.emulator(), RobotEmulator)


def test_a_robot_without_recordings_or_batches_says_so() -> None:
    with pytest.raises(ValueError, match="the create2 has no recordings"):
        registry.robot("create2").replay(log="life.csv")
    with pytest.raises(ValueError, match="the create2 has no kernel for many robots"):
        registry.robot("create2").make_batch(None, 2)


DRIVE = {"critterbot": critterbot_wire.drive, "create2": create2_wire.drive}


@pytest.mark.parametrize("robot", ROBOTS)
@pytest.mark.parametrize(
    "bad", [[0.1, 0.0], [0.0, np.nan, 0.0], 3.0, [[0.0, 0.0, 0.0]], [np.inf, 0.0, 0.0]], ids=str
)
def test_a_request_that_is_not_three_finite_numbers_is_refused(robot: str, bad: object) -> None:
    """By its simulator, and by its bytes."""
    with make_env(robot, "simulator") as env:
        env.reset(seed=0)
        for ask in (
            env.backend.exchange,
            lambda request: DRIVE[robot](request, env.robot),
        ):
            with pytest.raises(ValueError, match="three finite numbers"):
                ask(np.array(bad))


def test_modules_that_robots_share_name_none_of_them() -> None:
    package = Path(horde_env.__file__).parent
    shared = [
        package / f"{name}.py"
        for name in (
            "env",
            "registry",
            "make",
            "docking",
            "commands",
            "observer",
            "spaces",
            "tasks",
            "cli",
        )
    ]
    shared += [
        file
        for folder in ("sim", "tools", "replay", "view")
        for file in (package / folder).glob("*.py")
    ]
    assert [
        file.name for file in shared if re.search("|".join(ROBOTS), file.read_text(), re.IGNORECASE)
    ] == []
