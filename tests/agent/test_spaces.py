"""Discrete observations: one tile per state; spaces that are refused, and the advice, which works; `--wrap`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import (
    DtypeObservation,
    FilterObservation,
    FlattenObservation,
    TransformObservation,
)

from horde_agent import (
    GVF,
    Channel,
    Interface,
    Life,
    StickyRandom,
    TabularObservation,
    Uniform,
    questions,
)
from horde_agent.life.bodies import make_body
from horde_agent.life.wrapping import parse_wraps
from tests.agent import commands
from tests.agent.doubles import horde_of
from tests.facts import states

ROOT = Path(__file__).resolve().parents[2]
IMAGE = spaces.Box(0, 255, (96, 96, 3), np.uint8)
SMALL_IMAGE = spaces.Box(0, 255, (7, 7, 3), np.uint8)
TEXT = spaces.Text(20)
CORRIDOR = """
import gymnasium
from gymnasium import spaces


class Corridor(gymnasium.Env):
    observation_space = spaces.Discrete(5)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self.place, {}

    def step(self, action):
        self.place = max(0, self.place + 2 * int(action) - 1)
        is_at_end = self.place == 4
        return self.place, float(is_at_end), is_at_end, False, {}


gymnasium.register("Corridor-v0", entry_point=Corridor)
"""


class Sampled(gymnasium.Env[Any, Any]):
    """An environment whose observations are samples of its space."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.observation_space = space
        self.action_space = spaces.Discrete(2)
        self.metadata: dict[str, Any] = {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.5, False, False, {}


def newest(name: str) -> gymnasium.Env[Any, Any]:
    """Make the newest version of one of Gymnasium's toy texts, which it renames now and then."""
    ids = sorted(id_ for id_ in gymnasium.registry if id_.startswith(f"{name}-v"))
    return gymnasium.make(ids[-1])


# ---- one tile per state ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "n_states", "names"),
    [
        ("Taxi", 500, ("state", "reward")),
        ("FrozenLake", 16, ("state", "reward")),
        ("CliffWalking", 48, ("state", "reward")),
        ("Blackjack", 32 * 11 * 2, ("obs_0", "obs_1", "obs_2", "state", "reward")),
    ],
)
def test_gymnasiums_toy_texts_have_a_tile_per_state_and_live(
    name: str, n_states: int, names: tuple[str, ...]
) -> None:
    """One-hot numbers with tilings of each, as after FlattenObservation, were 64,001 features for Taxi."""
    env = newest(name)
    interface = Interface.of(env)
    assert interface.names == names
    assert (interface.coder.n_features, interface.coder.n_active) == (n_states, 1)

    horde = horde_of(questions.nexting(interface, gammas=(0.9,)), interface)
    behaviour = StickyRandom(len(interface.actions))
    with Life(env, horde, behaviour, np.random.default_rng(0)) as life:
        life.run(300)
    assert life.student.learning_steps > 200
    assert horde.diverged == []


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(7, start=-3),
        spaces.MultiDiscrete([3, 4]),
        spaces.MultiDiscrete([[2, 3], [4, 2]]),
        spaces.MultiBinary(5),
        spaces.Tuple((spaces.Discrete(3), spaces.MultiBinary(2))),
        spaces.Dict(where=spaces.Discrete(4, start=1), holds=spaces.Dict(left=spaces.Discrete(2))),
    ],
    ids=str,
)
def test_every_state_has_its_own_tile(space: spaces.Space[Any]) -> None:
    """Also from a raw observation, which has no reward."""
    env = TabularObservation(Sampled(space))
    raw_interface = Interface.of(Sampled(space))
    interface = Interface.of(env)
    n_states = interface.coder.n_features
    space.seed(0)
    tile_of: dict[str, int] = {}
    for _ in range(60 * n_states):
        raw = space.sample()
        (tile,) = raw_interface.encode(raw)
        tile_of.setdefault(str(raw), int(tile))
        assert tile_of[str(raw)] == tile
    assert sorted(tile_of.values()) == list(range(n_states))
    assert raw_interface.names == interface.names
    observation, reward, *_ = env.step(0)
    assert env.observation_space.contains(observation)
    assert (observation[-1], reward) == (0.5, 0.5)


@pytest.mark.slow
def test_a_horde_learns_the_values_of_a_frozen_lake() -> None:
    """Of the random policy, by its Bellman equation, in a lake that is not slippery; gamma 0.9, reward 1 at the end."""
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    interface = Interface.of(env)
    question = GVF("reward", Uniform(4), Channel(interface.index("reward")), 0.9)
    horde = horde_of([question], interface, step_size=0.01)
    with Life(env, horde, StickyRandom(4, repeat=0.0), np.random.default_rng(0)) as life:
        life.run(30_000)

    table: Any = env.unwrapped.P  # type: ignore[attr-defined]
    reward = np.zeros(16)
    transition = np.zeros((16, 16))
    ends = [state for state in table if all(ended for [(_, _, _, ended)] in table[state].values())]
    for state in (state for state in table if state not in ends):
        for [(probability, following, paid, ended)] in table[state].values():
            reward[state] += probability * paid / 4
            if not ended:
                transition[state, following] += probability / 4
    values = np.linalg.solve(np.eye(16) - 0.9 * transition, reward)
    learned = np.array([horde.predict(interface.encode(state))[0] for state in range(16)])
    visited = [0, 1, 4, 8, 9, 10, 13, 14]
    np.testing.assert_allclose(learned[visited], values[visited], atol=0.05)
    assert values[14] > 0.3


def test_numbers_and_real_values_have_tiles_of_their_own() -> None:
    """A tile per value of a whole number, the default tilings of real ones, and a bias."""
    space = spaces.Dict(mode=spaces.Discrete(3), speed=spaces.Box(-1.0, 1.0, (2,), np.float32))
    interface = Interface.of(Sampled(space))
    assert interface.names == ("mode", "speed_0", "speed_1", "reward")
    n_features = 3 + 2 * 8 * 8 + 2 * 4 * 16 + 1
    n_active = 1 + 2 * 8 + 2 * 4 + 1
    assert (interface.coder.n_features, interface.coder.n_active) == (n_features, n_active)
    modes = {int(interface.encode({"mode": mode, "speed": np.zeros(2)})[0]) for mode in range(3)}
    assert modes == {0, 1, 2}


def test_too_many_states_have_a_tile_per_value() -> None:
    interface = Interface.of(Sampled(spaces.MultiDiscrete([300, 400, 500])))
    assert (interface.coder.n_features, interface.coder.n_active) == (300 + 400 + 500 + 1, 4)
    assert interface.encode(np.array([299, 0, 1])).tolist() == [299, 300, 701, 1200]


def test_names_of_an_environments_own_are_kept() -> None:
    interface = Interface.of(
        Sampled(spaces.Dict(state=spaces.Discrete(3), reward=spaces.Discrete(3)))
    )
    assert len(set(interface.names)) == 4
    assert interface.coder.n_features == 9


# ---- spaces that are refused -----------------------------------------------------------------------------------------


def brightness(image: np.ndarray) -> np.ndarray:
    """Return the mean of each of 8 x 8 blocks, in [0, 1]."""
    return (image.reshape(8, 12, 8, 36).mean(axis=(1, 3)) / 255).ravel()


def test_an_image_is_sent_to_features_not_to_a_flat_row_of_its_pixels() -> None:
    advice = (
        r"27,648 numbers of an image: make features .* gymnasium\.wrappers\.TransformObservation"
    )
    with pytest.raises(ValueError, match=advice):
        Interface.of(Sampled(IMAGE))
    box = spaces.Box(0.0, 1.0, (64,), np.float64)
    interface = Interface.of(TransformObservation(Sampled(IMAGE), brightness, box))
    assert len(interface.channels) == 64


def test_a_part_that_is_no_number_is_left_out_as_advised() -> None:
    """MiniGrid's observation, which FlattenObservation cannot flatten."""
    env = Sampled(spaces.Dict(direction=spaces.Discrete(4), image=SMALL_IMAGE, mission=TEXT))
    with pytest.raises(
        ValueError, match=r"'mission' out: .*FilterObservation\(env, \['direction', 'image'\]\)"
    ):
        Interface.of(env)
    interface = Interface.of(FilterObservation(env, ["direction", "image"]))
    assert len(interface.channels) == 1 + 147 + 1
    assert interface.coder.n_features == 4 + 147 * 256 + 1


@pytest.mark.parametrize(
    "space",
    [TEXT, spaces.Tuple((spaces.Discrete(2), TEXT)), spaces.Sequence(spaces.Discrete(2))],
    ids=lambda s: type(s).__name__,
)
def test_what_has_no_fixed_numbers_is_refused(space: spaces.Space[Any]) -> None:
    with pytest.raises(ValueError, match=r"tiles cannot code .*TransformObservation"):
        Interface.of(Sampled(space))


def test_a_flattened_discrete_observation_is_better_left_as_it_is() -> None:
    with pytest.raises(ValueError, match="leave out FlattenObservation"):
        Interface.of(FlattenObservation(newest("Taxi")))
    assert (
        len(Interface.of(DtypeObservation(FlattenObservation(newest("Taxi")), np.float32)).channels)
        == 500
    )


# ---- on the command line ---------------------------------------------------------------------------------------------


def test_a_recorded_life_of_a_discrete_environment_is_learned_from_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record keeps channels and tiles, so replay and resume end with the weights of one life."""
    monkeypatch.chdir(tmp_path)
    assert commands.horde("learn --env FrozenLake-v1 --steps 400 --out whole") == 0
    assert (
        commands.horde(
            "learn --env FrozenLake-v1 --steps 400 --out again --backend replay --log whole"
        )
        == 2
    )
    assert commands.horde("learn --backend replay --log whole --out again") == 0
    whole, replay = (commands.summary_of(run) for run in ("whole", "again"))
    assert whole["n_features"] == 16
    assert whole["weights_sha256"] == replay["weights_sha256"]
    assert commands.horde("resume whole --steps 500") == 0
    assert commands.summary_of("whole")["steps"] == 500


def test_wraps_are_applied_from_the_inside() -> None:
    env = make_body("gymnasium", env_id="Pendulum-v1", wrap="discretize:3,limit:20")
    assert env.action_space == spaces.Discrete(3)
    env.reset(seed=0)
    truncated = [env.step(0)[3] for _ in range(20)]
    assert truncated == [False] * 19 + [True]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("discretize(5)", "there is no wrapper 'discretize(5)' but flatten, float, keep"),
        ("flaten", "there is no wrapper 'flaten'"),
        ("", "there is no wrapper ''"),
        ("flatten,", "there is no wrapper ''"),
        ("flatten:2", "flatten takes no argument, not '2'"),
        ("discretize", "discretize needs a whole number above 0"),
        ("discretize:0", "discretize needs a whole number above 0"),
        ("discretize:2.5", "discretize needs a whole number above 0"),
        ("keep:", "keep needs keys of a Dict"),
        ("keep:a++b", "keep needs keys of a Dict"),
    ],
)
def test_a_wrong_wrap_is_refused_with_an_example(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="write names with commas between") as error:
        parse_wraps(text)
    assert said in str(error.value)


def test_a_wrapper_that_does_not_fit_is_refused_in_one_sentence() -> None:
    for wrap in ("discretize:3", "keep:position"):
        with pytest.raises(
            ValueError, match=f"--wrap {wrap.partition(':')[0]} does not fit the environment"
        ):
            make_body("gymnasium", env_id="CartPole-v1", wrap=wrap)


@pytest.mark.parametrize(
    ("env_id", "facts"),
    [
        (
            "NoSuchThing-v0",
            ("no environment 'NoSuchThing-v0'", "doesn't exist; `python -c", "MODULE:Id-v0"),
        ),
        ("CartPole-v99", ("no environment 'CartPole-v99'", "versioned environments", "`v1`")),
        (
            "nowhere:Corridor-v0",
            ("there is no module nowhere, neither installed nor in the current folder",),
        ),
        *(
            (f"{path}:Corridor-v0", (f"'{path}' is no name of a module", "without path or .py"))
            for path in ("./corridor.py", "../corridor", "/corridor.py", "envs/corridor", "")
        ),
    ],
)
def test_an_environment_that_is_not_there_is_refused(env_id: str, facts: tuple[str, ...]) -> None:
    with pytest.raises((ValueError, ImportError)) as refusal:
        make_body("gymnasium", env_id=env_id)
    assert states(str(refusal.value), *facts)


def test_an_environment_of_the_current_folder_is_found(tmp_path: Path) -> None:
    """As `python -m` finds it, though the folder of the command `horde` is another: -P keeps Python from adding it."""
    (tmp_path / "corridor.py").write_text(CORRIDOR, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    code = (
        "import sys\nfrom horde_agent.cli import main\n"
        "words = 'learn --steps 200 --env {0}:Corridor-v0 --out run_of_{0}'\n"
        "print([main(words.format(name).split()) for name in sys.argv[1:]])"
    )
    command = [sys.executable, "-P", "-c", code, "corridor", "stairs"]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.stdout.splitlines()[-1] == "[0, 2]", ended.stderr
    last_line = ended.stderr.splitlines()[-1]
    assert states(last_line, "module stairs", "current folder")
    summary = json.loads(
        (tmp_path / "run_of_corridor" / "summary.json").read_text(encoding="utf-8")
    )
    assert summary["n_features"] == 5
    assert not (tmp_path / "run_of_stairs").exists()
