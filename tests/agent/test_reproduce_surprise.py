"""Experiment `surprise`: its twelve kinds of faults are ones that the robot can have, with groups that it has."""

from __future__ import annotations

from examples.reproduce.surprise import TRIALS
from horde_agent.interface import Interface
from horde_agent.life.bodies import make_body
from horde_env.sim.faults import FaultyRobot


def test_each_trial_fits_the_robot() -> None:
    body = make_body("simulator", physics="planar")
    FaultyRobot(body, [trial.fault for trial in TRIALS])  # refuses what it cannot have
    groups = {channel.group for channel in Interface.of(body).channels}
    assert [set(trial.groups) - groups for trial in TRIALS] == [set()] * 12
    assert len({trial.fault.kind for trial in TRIALS}) == 12
