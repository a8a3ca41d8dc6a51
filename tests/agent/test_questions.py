"""Questions, and families of questions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from horde_agent import questions
from horde_agent.gvf import GVF, Channel
from horde_agent.policies import Behaviour, ConstantAction, Gibbs, Uniform
from tests.agent.shared import robot_interface

ROBOT = robot_interface()


def test_the_papers_first_experiment_has_795_questions() -> None:
    """5 policies x 3 time scales x 53 sensors, ordered policy, gamma, sensor; 159 share an action."""
    asked = questions.excursions(ROBOT)
    assert len(asked) == 795
    assert (asked[0].name, asked[-1].name) == ("forward/g0/bus_voltage", "stop/g0.8/thermal_7")
    assert asked[2 * 53 + 41].name == "forward/g0.8/light_0"
    assert asked[2 * 53 + 41].cumulant == Channel(41)
    assert sum(q.target_policy == ConstantAction(3, 5) for q in asked) == 159
    assert len({q.name for q in asked}) == 795


def test_nexting_follows_the_behaviour() -> None:
    asked = questions.nexting(ROBOT)
    assert len(asked) == 159
    assert all(q.target_policy == Behaviour() for q in asked)


def test_the_papers_last_experiment_has_a_policy_for_each_question() -> None:
    asked = questions.policies(ROBOT, np.random.default_rng(0), n=40)
    assert len({id(q.target_policy) for q in asked}) == 40
    assert all(isinstance(q.target_policy, Gibbs) for q in asked)
    assert {q.continuation for q in asked} <= {0.0, 0.5, 0.8, 0.95}
    again = questions.policies(ROBOT, np.random.default_rng(0), n=40)
    assert [q.name for q in again] == [q.name for q in asked]
    with pytest.raises(ValueError, match="n must"):
        questions.policies(ROBOT, np.random.default_rng(0), n=0)


def test_a_file_gives_questions(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[[family]]\npolicies = ["stop", "uniform"]\ngammas = [0.0, 0.9]\n'
        'groups = ["light"]\nchannels = ["thermal_0"]\n'
        '[[family]]\npolicies = ["behaviour"]\ngammas = [0.5]\nlam = 0.4\n'
    )
    asked = questions.from_file(path, ROBOT)
    assert len(asked) == 2 * 2 * 5 + 53
    assert asked[0].name == "stop/g0/light_0"
    assert asked[10].target_policy == Uniform(5)
    assert asked[-1].lam == 0.4


def test_a_continuation_of_one_is_for_streams_that_end() -> None:
    assert GVF("mine", Uniform(5), Channel(0), 1.0, ends=True).continuation == 1.0
