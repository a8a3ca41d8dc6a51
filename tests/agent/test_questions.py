"""Questions, families of them, question files, and what the agent knows of its body."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from horde_agent import questions
from horde_agent.gvf import GVF, Channel, Feature
from horde_agent.interface import Interface
from horde_agent.policies import Behaviour, ConstantAction, Gibbs, Uniform
from tests.agent.shared import robot_interface

ROBOT = robot_interface()


def test_the_papers_first_experiment_has_795_questions() -> None:
    """5 policies x 3 time scales x 53 sensors, ordered policy, gamma, sensor; 159 share an action."""
    posed = questions.excursions(ROBOT)
    assert len(posed) == 795
    assert (posed[0].name, posed[-1].name) == ("forward/g0/bus_voltage", "stop/g0.8/thermal_7")
    assert posed[2 * 53 + 41].name == "forward/g0.8/light_0"
    assert posed[2 * 53 + 41].cumulant == Channel(41)
    assert sum(q.target_policy == ConstantAction(3, 5) for q in posed) == 159
    assert len({q.name for q in posed}) == 795


def test_nexting_follows_the_behaviour() -> None:
    posed = questions.nexting(ROBOT)
    assert len(posed) == 159
    assert all(q.target_policy == Behaviour() for q in posed)


def test_the_papers_last_experiment_has_a_policy_for_each_question() -> None:
    posed = questions.policies(ROBOT, np.random.default_rng(0), n=40)
    assert len({id(q.target_policy) for q in posed}) == 40
    assert all(isinstance(q.target_policy, Gibbs) for q in posed)
    assert {q.continuation for q in posed} <= {0.0, 0.5, 0.8, 0.95}
    again = questions.policies(ROBOT, np.random.default_rng(0), n=40)
    assert [q.name for q in again] == [q.name for q in posed]
    with pytest.raises(ValueError, match="n must"):
        questions.policies(ROBOT, np.random.default_rng(0), n=0)


def test_a_file_poses_questions(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[[family]]\npolicies = ["stop", "uniform"]\ngammas = [0.0, 0.9]\n'
        'groups = ["light"]\nchannels = ["thermal_0"]\n'
        '[[family]]\npolicies = ["behaviour"]\ngammas = [0.5]\nlam = 0.4\n'
    )
    posed = questions.from_file(path, ROBOT)
    assert len(posed) == 2 * 2 * 5 + 53
    assert posed[0].name == "stop/g0/light_0"
    assert posed[10].target_policy == Uniform(5)
    assert posed[-1].lam == 0.4


FAMILY = '[[family]]\npolicies = ["stop"]\ngammas = [0.5]\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FAMILY.replace("stop", "dance"), "unknown policy 'dance'; there are forward, reverse"),
        (FAMILY + 'channels = ["smell"]', "unknown sensor 'smell'; there are bus_voltage"),
        (FAMILY + 'groups = ["smell"]', "unknown group 'smell'; there are bus_voltage"),
        (FAMILY + "colour = 1", "unknown key 'colour'; it may hold policies, gammas"),
        ("title = 1\n" + FAMILY, "unknown key 'title'"),
        (FAMILY.replace("0.5", "1.5"), r"continuation must be in \[0, 1\], not 1.5"),
        (FAMILY.replace("0.5", "1.0"), "continuation of 1"),
        (FAMILY.replace("0.5", '"long"'), "gammas must be a number"),
        (FAMILY + "lam = 2", "lam must be in"),
        (FAMILY + 'channels = "light_0"', "channels must be a list"),
        ('[[family]]\npolicies = ["stop"]\n', "needs 'gammas'"),
        (FAMILY + FAMILY, "twice"),
        ("", "at least one"),
        ("family = [", "not a TOML file"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=words) as error:
        questions.from_file(path, ROBOT)
    assert str(error.value).startswith(str(path))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot read the question file"):
        questions.from_file(tmp_path / "nowhere.toml", ROBOT)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"continuation": 1.1}, "continuation"),
        ({"continuation": float("nan")}, "continuation"),
        ({"continuation": 1.0}, "ends=True"),
        ({"lam": -0.1}, "lam"),
        ({"outcome": float("inf")}, "outcome"),
    ],
)
def test_a_bad_question_is_refused_by_name(arguments: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=f"'mine'.*{words}"):
        GVF("mine", Uniform(5), Channel(0), **{"continuation": 0.5, **arguments})


def test_a_continuation_of_one_is_for_streams_that_end() -> None:
    assert GVF("mine", Uniform(5), Channel(0), 1.0, ends=True).continuation == 1.0


@pytest.mark.parametrize("kind", [Channel, Feature])
def test_a_negative_index_is_refused(kind: type) -> None:
    with pytest.raises(ValueError, match="index"):
        kind(-1)


class Body(gymnasium.Env):  # type: ignore[type-arg]
    """A body of two channels, one of them unbounded."""

    def __init__(self, metadata: dict[str, object] | None = None) -> None:
        self.observation_space = spaces.Box(np.array([-2.0, -np.inf], np.float32), np.array([2.0, np.inf], np.float32))
        self.action_space: spaces.Space = spaces.Discrete(3)  # type: ignore[type-arg]
        self.metadata = metadata or {}


def test_any_environment_has_an_interface() -> None:
    """Bounded channels become 0..1 linearly; an unbounded one through .5 + atan(x) / pi, so 1 becomes .75."""
    interface = Interface.of(Body())
    assert interface.actions == ("action_0", "action_1", "action_2")
    assert [c.name for c in interface.channels] == ["obs_0", "obs_1"]
    assert interface.period_s == 1.0
    np.testing.assert_allclose(interface.scaler(np.array([1.0, 1.0])), [0.75, 0.75])
    np.testing.assert_allclose(interface.scaler(np.array([5.0, -1e30])), [1.0, 0.0], atol=1e-12)
    assert interface.encode(np.array([0.0, 0.0])).size == interface.coder.n_active


def test_an_environment_may_describe_itself() -> None:
    described = {
        "channels": [
            {"name": "eye", "group": "light", "unit": "lx", "sensor": True},
            {"name": "self", "group": "own", "unit": "1", "sensor": False},
        ],
        "actions": ["left", "right", "stay"],
        "period_s": 0.1,
        "tile_layout": '[[tiling]]\ngroup = "light"\nintervals = [4]\ntilings = 1\n',
    }
    interface = Interface.of(Body(described))
    assert interface.sensors == (0,)
    assert interface.actions[0] == "left"
    assert (interface.coder.n_features, interface.coder.n_active) == (5, 2)
    assert [q.name for q in questions.nexting(interface, gammas=(0.5,))] == ["behaviour/g0.5/eye"]
    with pytest.raises(ValueError, match="unknown channel 'ear'; there are eye, self"):
        interface.index("ear")


@pytest.mark.parametrize(
    ("metadata", "words"), [({"channels": []}, "describes 0 channels"), ({"actions": ["a"]}, "names 1 actions")]
)
def test_a_description_must_fit(metadata: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Interface.of(Body(metadata))


def test_continuous_actions_have_no_interface() -> None:
    body = Body()
    body.action_space = spaces.Box(-1, 1, (3,))
    with pytest.raises(ValueError, match="Discrete"):
        Interface.of(body)
