"""Experiment `surprise`: its twelve kinds of faults are ones that the robot can have, with groups that it has."""

from __future__ import annotations

import pytest

from examples.reproduce.surprise import OTHER_ROBOTS, PLANAR, Robot, faulty_robot
from horde_agent.interface import Interface


@pytest.mark.parametrize("robot", [PLANAR, *OTHER_ROBOTS], ids=lambda robot: robot.title)
def test_each_trial_fits_the_robot(robot: Robot) -> None:
    if robot.physics == "bullet":
        pytest.importorskip("pybullet")
    body = faulty_robot(robot, [trial.fault for trial in robot.trials], seed=0)  # or is refused
    channels = Interface.of(body).channels
    groups = {channel.group for channel in channels}
    n_trials = len(robot.trials)
    assert [set(trial.groups) - groups for trial in robot.trials] == [set()] * n_trials
    assert len({trial.fault.kind for trial in robot.trials}) == n_trials
    for trial in robot.trials:
        assert any(trial.is_measured(channel.name, channel.group) for channel in channels)
    body.close()
