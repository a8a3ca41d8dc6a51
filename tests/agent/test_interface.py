"""What an agent knows of its body: what is refused, by which wrapper it can be had, and what wrappers stack."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import (
    DtypeObservation,
    FlattenObservation,
    FrameStackObservation,
    TimeAwareObservation,
    TimeLimit,
    TransformAction,
)

from horde_agent import Horde, Interface, Life, StickyRandom, questions
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.record import Phase, Recorder
from horde_agent.tiles import TileCoder
from tests.agent.doubles import N_ACTIONS, ToyBody

BOX = spaces.Box(0.0, 1.0, (2,), np.float32)


class Body(gymnasium.Env[Any, Any]):
    """A body with these spaces."""

    def __init__(self, observation: spaces.Space[Any] = BOX, action: spaces.Space[Any] | None = None) -> None:
        self.observation_space, self.action_space = observation, action or spaces.Discrete(2)
        self.metadata = {}


@pytest.mark.parametrize(
    ("space", "wrapper"),
    [
        (spaces.Dict(a=BOX, b=BOX), "FlattenObservation"),
        (spaces.Tuple((BOX, BOX)), "FlattenObservation"),
        (spaces.Discrete(5), "FlattenObservation"),
        (spaces.MultiDiscrete([2, 3]), "FlattenObservation"),
        (spaces.Box(0.0, 1.0, (4, 4), np.float32), "FlattenObservation"),
        (spaces.Box(0, 255, (4, 4, 3), np.uint8), "FlattenObservation"),
        (spaces.Box(0, 255, (7,), np.uint8), "DtypeObservation"),
        (spaces.MultiBinary(4), "FlattenObservation"),
    ],
)
def test_the_wrapper_that_is_named_makes_an_observation_that_can_be_read(
    space: spaces.Space[Any], wrapper: str
) -> None:
    """One after the other, until there is nothing left to say."""
    env: gymnasium.Env[Any, Any] = Body(space)
    with pytest.raises(ValueError, match=f"must be a flat Box of floats, not .*gymnasium.wrappers.{wrapper}"):
        Interface.of(env)
    for _ in range(3):
        try:
            Interface.of(env)
        except ValueError as error:
            env = FlattenObservation(env) if "Flatten" in str(error) else DtypeObservation(env, np.float32)
    assert Interface.of(env).actions == ("action_0", "action_1")


@pytest.mark.parametrize(
    ("space", "wrapper"),
    [
        (spaces.Box(-1.0, 1.0, (3,)), r"DiscretizeAction\(env, bins=3\).*SAC.*ChoiceByNumber"),
        (spaces.MultiDiscrete([2, 3]), r"TransformAction\(env, its_action, Discrete\(n\)\)"),
        (spaces.Discrete(3, start=-1), r"TransformAction\(env, lambda a: a \+ start, Discrete\(n\)\)"),
    ],
)
def test_a_refused_action_space_names_its_wrapper(space: spaces.Space[Any], wrapper: str) -> None:
    with pytest.raises(ValueError, match=f"must be Discrete from 0, not .*gymnasium.wrappers.{wrapper}"):
        Interface.of(Body(action=space))


def test_what_is_no_single_environment_is_refused() -> None:
    vector = gymnasium.make_vec("CartPole-v1", num_envs=2)
    for thing in (vector, "CartPole-v1", None):
        with pytest.raises(ValueError, match=f"not a {type(thing).__name__}"):
            Interface.of(thing)  # type: ignore[arg-type]
    vector.close()


def test_actions_that_a_wrapper_made_of_others_have_no_names() -> None:
    env = TransformAction(ToyBody(), lambda action: action % 3, spaces.Discrete(6))
    assert Interface.of(env).actions == tuple(f"action_{a}" for a in range(6))
    body = ToyBody()
    body.metadata["actions"] = ["left"]
    with pytest.raises(ValueError, match="metadata names 1 actions, the action space has 3"):
        Interface.of(body)


def test_a_wrapper_that_changes_the_observation_must_describe_it_and_may() -> None:
    """TimeAwareObservation appends the time to the three channels of the toy body."""
    env = TimeAwareObservation(TimeLimit(ToyBody(), 100), normalize_time=True)
    with pytest.raises(ValueError, match="metadata describes 3 channels, the observation has 4"):
        Interface.of(env)
    channels = [*ToyBody().metadata["channels"], {"name": "time", "group": "clock", "unit": "1"}]
    env.metadata = {**ToyBody().metadata, "channels": channels}
    assert Interface.of(env).names == ("age", "saw", "last", "time")


# ---- stacked frames --------------------------------------------------------------------------------------------------

LAYOUT = '[[tiling]]\ngroup = "obs"\nintervals = [2, 2]\nneighbour = 1\ntilings = 1\n'


def stacked(n: int = 2) -> gymnasium.Env[Any, Any]:
    body = ToyBody()
    body.metadata["tile_layout"] = LAYOUT
    return FlattenObservation(FrameStackObservation(body, n))


def test_stacked_frames_are_described_the_oldest_first() -> None:
    face = Interface.of(stacked(3))
    assert face.names == (
        *("age@-2", "saw@-2", "last@-2"),
        *("age@-1", "saw@-1", "last@-1"),
        *("age", "saw", "last"),
    )
    assert [channel.group for channel in face.channels] == ["obs@-2"] * 3 + ["obs@-1"] * 3 + ["obs"] * 3
    assert face.sensors == (6, 7, 8)
    assert [q.name for q in questions.nexting(face, (0.5,))] == [f"behaviour/g0.5/{n}" for n in ("age", "saw", "last")]


def test_each_frame_is_tiled_as_a_single_one_is_and_none_with_another() -> None:
    """12 tiles and a bias for one frame, 24 and a bias for two; the newest frame has the first tiles."""
    body = ToyBody()
    body.metadata["tile_layout"] = LAYOUT
    one, two = Interface.of(body), Interface.of(stacked())
    assert (one.coder.n_features, two.coder.n_features) == (13, 25)
    old, new = np.array([0.1, 0.6, 0.2]), np.array([0.9, 0.3, 0.7])
    expected = [*one.encode(new)[:-1], *(one.encode(old)[:-1] + 12), 24]
    assert two.encode(np.concatenate([old, new])).tolist() == expected


def test_a_stack_that_is_not_flat_names_the_wrapper() -> None:
    with pytest.raises(ValueError, match=r"gymnasium.wrappers.FlattenObservation\(env\)"):
        Interface.of(FrameStackObservation(ToyBody(), 2))


@pytest.mark.sim
def test_a_stack_of_the_critterbots_frames_can_be_described() -> None:
    env = FlattenObservation(FrameStackObservation(gymnasium.make("horde_env:CritterbotPen-v0"), 2))
    face = Interface.of(env)
    assert len(face.channels) == 114
    assert (face.names[0], face.names[57], face.names[-1]) == ("bus_voltage@-1", "bus_voltage", "overheating")
    assert (face.coder.n_features, face.coder.n_active) == (2 * 6064 + 1, 2 * 456 + 1)
    assert len(questions.excursions(face)) == 795
    env.close()


def test_a_life_with_stacked_frames_drives_and_learns() -> None:
    """The frames of a drive are the body's own, of another length: the record says that they are not known."""
    env, recorder = stacked(), Recorder(6)
    face = Interface.of(env)
    coder = face.coder
    horde = Horde(questions.excursions(face, (0.5,)), n_features=coder.n_features, n_active=coder.n_active)
    often = ExcursionConfig(probability=0.2, horizon=3)
    with Life(
        env, horde, StickyRandom(N_ACTIONS), np.random.default_rng(0), excursions=often, recorder=recorder
    ) as life:
        life.run(100)
    rows = recorder.stream().rows
    within = rows[(rows["phase"] == Phase.CENTRE) & ~np.isnan(rows["pose"][:, 2])]
    assert len(within) > 3
    assert np.isnan(within["observation"]).all()
    behaved = rows[rows["phase"] == Phase.BEHAVE]
    assert (behaved["observation"][:, 3] >= behaved["observation"][:, 0]).all(), "the older frame comes first"
    assert life.student.errors.n_excursions > 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tiling = 3", r"tiling must be \[\[tiling\]\] tables"),
        ("tiling = [1, 2]", r"tiling must be \[\[tiling\]\] tables"),
        ('bias = "yes"', "bias must be true or false, not 'yes'"),
        (LAYOUT + LAYOUT.replace("neighbour = 1\n", ""), r"\[\[tiling\]\] number 2: intervals must be 1 whole"),
        (LAYOUT.replace('"obs"', "3"), r"\[\[tiling\]\] number 1 names the unknown group"),
        (LAYOUT.replace("tilings = 1", "tilings = true"), "tilings must be whole, from 1 to 10,000, not True"),
    ],
)
def test_a_wrong_layout_is_named_by_its_own_number_for_each_frame(text: str, words: str) -> None:
    channels = [{"group": group} for group in ("obs@-1", "obs@-1", "obs", "obs")]
    with pytest.raises(ValueError, match=words):
        TileCoder.from_layout(text, channels, ("", "@-1"))
