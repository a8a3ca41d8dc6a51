"""Interface.of: spaces, the wrappers that it names, metadata, stacked frames; the tile coder's cells and layouts."""

from __future__ import annotations

import tomllib
from pathlib import Path
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
from hypothesis import given
from hypothesis import strategies as st

from horde_agent import Interface, questions
from horde_agent.kernels.tiles import first_outside
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.record import Phase, Recorder
from horde_agent.tiles import TileCoder
from horde_env.robot import create2
from tests.agent.doubles import ToyBody, horde_of, live
from tests.agent.shared import reference, robot_interface

BOX = spaces.Box(0.0, 1.0, (2,), np.float32)


class Body(gymnasium.Env[Any, Any]):
    """An environment with these spaces and metadata."""

    def __init__(
        self,
        observation: spaces.Space[Any] = BOX,
        action: spaces.Space[Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self.observation_space = observation
        self.action_space = action or spaces.Discrete(2)
        self.metadata = metadata or {}


@pytest.mark.parametrize(
    ("space", "wrapper"),
    [
        (spaces.Dict(a=BOX, b=BOX), "FlattenObservation"),
        (spaces.Box(0, 255, (4, 4, 3), np.uint8), "FlattenObservation"),
        (spaces.Box(0, 255, (7,), np.uint8), "DtypeObservation"),
    ],
)
def test_the_named_wrapper_makes_the_observation_readable(
    space: spaces.Space[Any], wrapper: str
) -> None:
    """Wrapped as the errors say until there is none."""
    env: gymnasium.Env[Any, Any] = Body(space)
    with pytest.raises(
        ValueError,
        match=f"flat Box.*gymnasium.wrappers.{wrapper}",
    ):
        Interface.of(env)
    for _ in range(3):
        try:
            Interface.of(env)
        except ValueError as error:
            if "Flatten" in str(error):
                env = FlattenObservation(env)
            else:
                env = DtypeObservation(env, np.float32)
    assert Interface.of(env).actions == ("action_0", "action_1")


WRAP = "must be Discrete from 0, not .*gymnasium.wrappers."


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (
            Body(action=spaces.Box(-1.0, 1.0, (3,))),
            rf"{WRAP}DiscretizeAction\(env, bins=3\).*SAC.*ChoiceByNumber",
        ),
        (
            Body(action=spaces.MultiDiscrete([2, 3])),
            rf"{WRAP}TransformAction\(env, its_action, Discrete\(n\)\)",
        ),
        (
            Body(action=spaces.Discrete(3, start=-1)),
            rf"{WRAP}TransformAction\(env, lambda a: a \+ start, Discrete\(n",
        ),
        (Body(metadata={"channels": []}), "0 channels"),
        (Body(metadata={"actions": ["a"]}), "1 actions"),
    ],
)
def test_metadata_must_fit_and_a_refused_action_space_names_its_wrapper(
    env: Body, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        Interface.of(env)


def test_only_a_single_environment_is_accepted() -> None:
    vector = gymnasium.make_vec("CartPole-v1", num_envs=2)
    for thing in (vector, "CartPole-v1", None):
        with pytest.raises(ValueError, match=f"not a {type(thing).__name__}"):
            Interface.of(thing)  # type: ignore[arg-type]
    vector.close()


def test_actions_changed_by_a_wrapper_have_no_names() -> None:
    env = TransformAction(ToyBody(), lambda action: action % 3, spaces.Discrete(6))
    assert Interface.of(env).actions == tuple(f"action_{a}" for a in range(6))


def test_a_wrapper_that_changes_the_observation_must_describe_it() -> None:
    """TimeAwareObservation appends the time to the three channels of the toy body."""
    env = TimeAwareObservation(TimeLimit(ToyBody(), 100), normalize_time=True)
    with pytest.raises(ValueError, match=r"3 channels, .* 4"):
        Interface.of(env)
    channels = [*ToyBody().metadata["channels"], {"name": "time", "group": "clock", "unit": "1"}]
    env.metadata = {**ToyBody().metadata, "channels": channels}
    assert Interface.of(env).names == ("age", "saw", "last", "time")


def test_any_environment_has_an_interface() -> None:
    """Bounded channels become 0..1 linearly; an unbounded one through .5 + atan(x) / pi, so 1 becomes .75."""
    top = np.array([2.0, np.inf], np.float32)
    interface = Interface.of(Body(spaces.Box(-top, top)))
    assert interface.actions == ("action_0", "action_1")
    assert interface.names == ("obs_0", "obs_1")
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
        "actions": ["left", "right"],
        "period_s": 0.1,
        "tile_layout": '[[tiling]]\ngroup = "light"\nintervals = [4]\ntilings = 1\n',
    }
    interface = Interface.of(Body(metadata=described))
    assert interface.sensors == (0,)
    assert interface.actions == ("left", "right")
    assert (interface.coder.n_features, interface.coder.n_active) == (5, 2)
    assert [q.name for q in questions.nexting(interface, gammas=(0.5,))] == ["behaviour/g0.5/eye"]
    with pytest.raises(ValueError, match="'ear'; there are eye, self"):
        interface.index("ear")


# ---- stacked frames --------------------------------------------------------------------------------------------------

LAYOUT = '[[tiling]]\ngroup = "obs"\nintervals = [2, 2]\nneighbour = 1\ntilings = 1\n'


def stacked(n: int = 2) -> gymnasium.Env[Any, Any]:
    body = ToyBody()
    body.metadata["tile_layout"] = LAYOUT
    return FlattenObservation(FrameStackObservation(body, n))


def test_stacked_frames_are_described_the_oldest_first() -> None:
    interface = Interface.of(stacked(3))
    assert interface.names == (
        *("age@-2", "saw@-2", "last@-2"),
        *("age@-1", "saw@-1", "last@-1"),
        *("age", "saw", "last"),
    )
    assert [channel.group for channel in interface.channels] == ["obs@-2"] * 3 + ["obs@-1"] * 3 + [
        "obs"
    ] * 3
    assert interface.sensors == (6, 7, 8)
    assert [q.name for q in questions.nexting(interface, (0.5,))] == [
        f"behaviour/g0.5/{n}" for n in ("age", "saw", "last")
    ]


def test_each_frame_is_tiled_as_a_single_one() -> None:
    """12 tiles and a bias for one frame, 24 and a bias for two; the newest frame has the first tiles."""
    body = ToyBody()
    body.metadata["tile_layout"] = LAYOUT
    one = Interface.of(body)
    two = Interface.of(stacked())
    assert (one.coder.n_features, two.coder.n_features) == (13, 25)
    old = np.array([0.1, 0.6, 0.2])
    new = np.array([0.9, 0.3, 0.7])
    expected = [*one.encode(new)[:-1], *(one.encode(old)[:-1] + 12), 24]
    assert two.encode(np.concatenate([old, new])).tolist() == expected


def test_a_life_with_stacked_frames_drives_and_learns() -> None:
    """The frames of a drive are the body's own, of another length: the record has NaN for them."""
    env = stacked()
    recorder = Recorder(6)
    interface = Interface.of(env)
    horde = horde_of(questions.excursions(interface, (0.5,)), interface)
    life = live(
        100, env, horde, excursions=ExcursionConfig(probability=0.2, horizon=3), recorder=recorder
    )
    rows = recorder.stream().rows
    within = rows[(rows["phase"] == Phase.CENTRE) & ~np.isnan(rows["pose"][:, 2])]
    assert len(within) > 3
    assert np.isnan(within["observation"]).all()
    behaved = rows[rows["phase"] == Phase.BEHAVE]
    assert (behaved["observation"][:, 3] >= behaved["observation"][:, 0]).all(), (
        "the older frame comes first"
    )
    assert life.student.errors.n_excursions > 3


def test_a_wrong_layout_is_named_by_its_own_number_for_each_frame() -> None:
    channels = [{"group": group} for group in ("obs@-1", "obs@-1", "obs", "obs")]
    with pytest.raises(ValueError, match=r"\[\[tiling\]\] number 2: intervals must be 1 whole"):
        TileCoder.from_layout(LAYOUT + LAYOUT.replace("neighbour = 1\n", ""), channels, ("", "@-1"))


# ---- tiles -----------------------------------------------------------------------------------------------------------

LAYOUTS = sorted((Path(__file__).resolve().parents[2] / "assets" / "layouts").glob("*.toml"))
ROBOT = robot_interface()

SMALL = """
bias = true
[[tiling]]
group = "light"
intervals = [4]
tilings = 2
[[tiling]]
group = "light"
neighbour = 1
intervals = [2, 3]
tilings = 1
[[tiling]]
group = "heat"
intervals = [2]
tilings = 1
"""
CHANNELS = [{"name": f"light_{i}", "group": "light"} for i in range(3)] + [
    {"name": "heat", "group": "heat"}
]


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("observation", "tiles"),
    [
        # light: 3 channels x 2 tilings x 4 cells = tiles 0..23; three pairs: 24..41; heat: 42, 43;
        # bias: 44.
        ([0.0, 0.0, 0.0, 0.0], [0, 4, 8, 12, 16, 20, 24, 30, 36, 42, 44]),
        ([1.0, 1.0, 1.0, 1.0], [3, 7, 11, 15, 19, 23, 29, 35, 41, 43, 44]),
        # 0.49 x 4 = 1.96: cell 1, and cell 2 of the tiling that is offset by a half. Pairs: (0, 1),
        # (1, 2), (2, 0).
        ([0.49, 0.5, 0.9, 0.5], [1, 6, 10, 14, 19, 23, 25, 35, 40, 43, 44]),
    ],
)
def test_known_cells(observation: list[float], tiles: list[int]) -> None:
    """Cell = min(n - 1, floor(x n + j / m)), row-major in pairs, the ring closed, the bias last."""
    coder = TileCoder.from_layout(SMALL, CHANNELS)
    assert (coder.n_features, coder.n_active, coder.n_inputs) == (45, 11, 4)
    np.testing.assert_array_equal(coder.encode(np.array(observation)), tiles)


@pytest.mark.parametrize("path", LAYOUTS, ids=lambda path: path.stem)
def test_every_layout_has_the_tiles_of_its_table(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    layout = tomllib.loads(text)
    robot = ROBOT
    if path.stem.startswith("create2"):
        robot = create2()
    channels = [{"name": c.name, "group": c.group} for c in robot.channels]
    groups = [channel["group"] for channel in channels]
    n_tilings = []
    for table in layout["tiling"]:
        n_places = 1
        if "group" in table:
            n_places = groups.count(table["group"])
        n_tilings.append(table["tilings"] * n_places)
    n_tiles = [
        n * int(np.prod(t["intervals"])) for n, t in zip(n_tilings, layout["tiling"], strict=True)
    ]
    coder = TileCoder.from_layout(text, channels)
    assert (coder.n_active, coder.n_features) == (sum(n_tilings) + 1, sum(n_tiles) + 1)
    rng = np.random.default_rng(0)
    tiles = {int(tile) for _ in range(300) for tile in coder.encode(rng.random(len(channels)))}
    assert min(tiles) >= 0
    assert max(tiles) == coder.n_features - 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_golden_tiles(dtype: type) -> None:
    golden = reference("tiles_golden.npz")
    for observation, active in zip(golden["observations"], golden["active"], strict=True):
        np.testing.assert_array_equal(ROBOT.coder.encode(observation.astype(dtype)), active)


@given(st.lists(st.floats(0, 1), min_size=57, max_size=57))
def test_one_tile_of_every_tiling_is_active(values: list[float]) -> None:
    """White, Modayil & Sutton (2012): 457 active of 6065."""
    tiles = ROBOT.coder.encode(np.array(values))
    assert tiles.size == 457
    assert (np.diff(tiles) > 0).all()
    assert tiles[-1] == 6064


def test_a_default_layout_serves_any_box() -> None:
    for n, n_active in ((1, 8 + 1), (4, 4 * 8 + 4 * 4 + 1)):
        coder = TileCoder.default(n)
        assert coder.n_active == n_active
        assert coder.encode(np.full(n, 0.5)).size == n_active


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_default_layout_by_names_has_the_same_tiles_before_further_channels(n: int) -> None:
    names = [f"light_{i}" for i in range(n)]
    layout = TileCoder.default_of(names).layout
    described = [{"name": name, "group": "light"} for name in [*names, "later"]]
    wider = TileCoder.from_layout(layout, described)
    for values in np.random.default_rng(0).random((20, n + 1)):
        np.testing.assert_array_equal(wider.encode(values), TileCoder.default(n).encode(values[:n]))


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        (np.full(57, np.nan), "observation must lie in .* channel 0 is nan"),
        (np.r_[np.zeros(56), 1.5], "channel 56 is 1.5"),
        (np.r_[-0.1, np.zeros(56)], "channel 0 is -0.1"),
        (np.zeros(56), "shape"),
    ],
)
def test_a_reading_outside_is_refused_by_name(observation: np.ndarray, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ROBOT.coder.encode(observation)


@pytest.mark.parametrize(
    ("readings", "first"),
    [
        ([0.0, 1.0, 0.5], -1),
        ([0.5, -1e-30, 2.0], 1),
        ([0.5, 1.0, np.nextafter(np.float32(1.0), np.float32(2.0))], 2),
        ([np.nan, 0.5, 0.5], 0),
        ([0.5, 0.5, -np.inf], 2),
    ],
)
def test_the_first_reading_outside_is_found(readings: list[float], first: int) -> None:
    """Both ends of [0, 1] are inside."""
    assert first_outside(np.array(readings, dtype=np.float32)) == first


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SMALL.replace("heat", "smell"), "unknown group 'smell'; there are light, heat"),
        (SMALL.replace("tilings = 2", "tilings = 2\ncolour = 1"), "unknown key 'colour'"),
        (SMALL.replace("bias", "bais"), "unknown key 'bais'"),
        (SMALL.replace("tilings = 2", "tilings = 0"), "tilings"),
        (SMALL.replace("[2, 3]", "[2]"), "intervals must be 2"),
        (SMALL.replace("tilings = 2", ""), "needs 'tilings'"),
        ("bias = ", "not valid TOML"),
        ("tiling = [1, 2]", r"tiling must be"),
        ('bias = "yes"', "bias must be true or false, not 'yes'"),
        (
            SMALL.replace("tilings = 1", "tilings = true"),
            "tilings must be whole, from 1 to 10,000, not True",
        ),
    ],
)
def test_a_bad_layout_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TileCoder.from_layout(text, CHANNELS)
