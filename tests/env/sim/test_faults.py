"""Faults of a simulated robot: what each changes, when it begins, and which are refused."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from horde_env import make
from horde_env.sim.faults import BODY_KINDS, KINDS, Fault, FaultyRobot
from tests.env.engines import NEEDS_PYBULLET

SECOND_S = 0.1


class Echo(gymnasium.Env[Any, Any]):
    """Two readings, 0.25 and 0.5 plus a tenth of the action; time goes on by 0.1 s."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), dtype=np.float32)
    action_space = gymnasium.spaces.Discrete(5)
    metadata = {"channels": [{"name": "x"}, {"name": "y"}]}  # noqa: RUF012

    def __init__(self) -> None:
        self.t = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0.0
        return np.array([0.25, 0.5], dtype=np.float32), {"t": self.t}

    def step(self, action: int) -> Any:
        self.t = round(self.t + SECOND_S, 6)
        reading = np.array([0.25, 0.5 + 0.1 * action], dtype=np.float32)
        return reading, 0.0, False, False, {"t": self.t}


def readings(fault: Fault, actions: list[int]) -> np.ndarray:
    """Return the readings after each action, shape (n_actions, 2)."""
    env = FaultyRobot(Echo(), [fault])
    env.reset()
    return np.array([env.step(action)[0] for action in actions])


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault("dead", "x"), 0.0),
        (Fault("stuck", "x", 0.75), 0.75),
        (Fault("biased", "x", 0.125), 0.375),
        (Fault("biased", "x", 2.0), 1.0),
        (Fault("drifting", "x", 0.6), 0.25 + 0.6 * 0.3 / 60.0),
        (Fault("swapped", "x,y"), 0.5),
    ],
)
def test_a_reading_is_what_its_fault_makes_of_it_once_it_has_begun(
    fault: Fault, expected: float
) -> None:
    """After 0.3 s; with the beginning at 0.3 s the two readings before are 0.25 still, and there is no drift yet."""
    assert readings(fault, [0, 0, 0])[2, 0] == pytest.approx(expected, abs=1e-6)
    late = readings(fault._replace(begins_s=0.3), [0, 0, 0])
    assert late[:2, 0].tolist() == [0.25, 0.25]


def test_noise_has_the_deviation_of_its_strength_and_depends_on_the_time_alone() -> None:
    noisy = readings(Fault("noisy", "x", 0.05), [0] * 400)
    assert noisy[:, 0].std() == pytest.approx(0.05, rel=0.1)
    assert noisy[:, 1].tolist() == [0.5] * 400
    np.testing.assert_array_equal(noisy, readings(Fault("noisy", "x", 0.05), [0] * 400))


def test_a_delayed_command_is_carried_out_that_many_steps_later() -> None:
    """The first one waits for none before it."""
    late = readings(Fault("delayed", strength=2), [1, 2, 3, 4])
    np.testing.assert_allclose(late[:, 1], [0.6, 0.6, 0.6, 0.7], rtol=1e-6)


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (Fault("broken"), "no fault is called 'broken': choose one of dead"),
        (Fault("dead", "z"), "needs 1 of the channels, not 'z': x, y"),
        (Fault("swapped", "x"), "needs 2 of the channels, not 'x'"),
        (Fault("heavy", "", 2.0), "this robot cannot have the fault 'heavy'"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(fault: Fault, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        FaultyRobot(Echo(), [fault])


def mean_reading(
    fault: Fault | None, channel: str, physics: str = "planar", robot: str = "critterbot"
) -> float:
    """Return the mean of a channel over 100 steps forward and back, with a fault from the start or without."""
    env = make.make_env(robot, "simulator", physics=physics)
    faults = [] if fault is None else [fault]
    faulty = FaultyRobot(env, faults)
    names = [channel["name"] for channel in env.metadata["channels"]]
    faulty.reset(seed=4)
    total = 0.0
    for number in range(100):
        observation, *_ = faulty.step((0, 0, 1, 1, 2)[number % 5])
        total += float(observation[names.index(channel)])
    faulty.close()
    return total / 100.0


@pytest.mark.parametrize(
    ("fault", "channel", "is_higher"),
    [
        (Fault("friction", "1", 5.0), "motor_current_220", None),
        (Fault("slipping", "1", 1.5), "motor_current_220", None),
        (Fault("heavy", "", 3.0), "motor_current_100", True),
        (Fault("weak battery", "", 1.0), "battery_voltage_40", False),
        (Fault("lamp dimmed", "window", 0.2), "light_1", False),
        (Fault("lamp moved", "window", -3.0), "light_1", False),
    ],
)
def test_a_fault_of_the_body_changes_the_reading_that_it_concerns(
    fault: Fault, channel: str, *, is_higher: bool | None
) -> None:
    """By at least a thirtieth of the reading without it; a wheel's current rises or falls with the movement."""
    change = mean_reading(fault, channel) / mean_reading(None, channel) - 1.0
    assert abs(change) > 1.0 / 30.0
    assert is_higher is None or (change > 0.0) == is_higher


def test_each_fault_of_a_body_is_one_of_the_critterbot() -> None:
    env = make.make_env("critterbot", "simulator", physics="planar")
    assert set(env.backend.body_faults) == set(BODY_KINDS)  # type: ignore[attr-defined]
    assert set(BODY_KINDS) < set(KINDS)


def test_a_create_has_a_weak_battery() -> None:
    """Two volts of some 15 to 16 V."""
    channel = "battery_voltage"
    weak = mean_reading(Fault("weak battery", "", 2.0), channel, robot="create2")
    assert weak < mean_reading(None, channel, robot="create2") - 0.05


@NEEDS_PYBULLET
def test_a_heavy_robot_is_heavy_in_pybullet_too() -> None:
    fault = Fault("heavy", "", 3.0)
    channel = "motor_current_100"
    change = mean_reading(fault, channel, "bullet") / mean_reading(None, channel, "bullet") - 1.0
    assert change > 1.0 / 30.0
