"""The tile coder: counts, numbering, known cells, and invalid arguments."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horde_agent.tiles import TileCoder
from horde_env.robot import create2
from tests.agent.shared import reference, robot_interface

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
CHANNELS = [{"name": f"light_{i}", "group": "light"} for i in range(3)] + [{"name": "heat", "group": "heat"}]


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("observation", "tiles"),
    [
        # light: 3 channels x 2 tilings x 4 cells = tiles 0..23; three pairs: 24..41; heat: 42, 43; bias: 44.
        ([0.0, 0.0, 0.0, 0.0], [0, 4, 8, 12, 16, 20, 24, 30, 36, 42, 44]),
        ([1.0, 1.0, 1.0, 1.0], [3, 7, 11, 15, 19, 23, 29, 35, 41, 43, 44]),
        # 0.49 x 4 = 1.96: cell 1, and cell 2 of the tiling that is offset by a half. Pairs: (0, 1), (1, 2), (2, 0).
        ([0.49, 0.5, 0.9, 0.5], [1, 6, 10, 14, 19, 23, 25, 35, 40, 43, 44]),
    ],
)
def test_known_cells(observation: list[float], tiles: list[int]) -> None:
    """Cell = min(n - 1, floor(x n + j / m)), row-major in pairs, the ring closed, the bias last."""
    coder = TileCoder.from_layout(SMALL, CHANNELS)
    assert (coder.n_features, coder.n_active, coder.n_inputs) == (45, 11, 4)
    np.testing.assert_array_equal(coder.encode(np.array(observation)), tiles)


def test_the_papers_count() -> None:
    """White, Modayil & Sutton (2012): 457 active of 6065."""
    assert (ROBOT.coder.n_active, ROBOT.coder.n_features, ROBOT.coder.n_inputs) == (457, 6065, 57)


@pytest.mark.parametrize("path", LAYOUTS, ids=lambda path: path.stem)
def test_every_layout_has_the_tiles_of_its_table(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    layout = tomllib.loads(text)
    robot = create2() if path.stem == "create2" else ROBOT
    channels = [{"name": c.name, "group": c.group} for c in robot.channels]
    groups = [channel["group"] for channel in channels]
    n_tilings = [t["tilings"] * groups.count(t["group"]) for t in layout["tiling"]]
    n_tiles = [n * int(np.prod(t["intervals"])) for n, t in zip(n_tilings, layout["tiling"], strict=True)]
    coder = TileCoder.from_layout(text, channels)
    assert (coder.n_active, coder.n_features) == (sum(n_tilings) + 1, sum(n_tiles) + 1)
    rng = np.random.default_rng(0)
    seen = {int(tile) for _ in range(300) for tile in coder.encode(rng.random(len(channels)))}
    assert min(seen) >= 0
    assert max(seen) == coder.n_features - 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_golden_tiles(dtype: type) -> None:
    golden = reference("tiles_golden.npz")
    for observation, active in zip(golden["observations"], golden["active"], strict=True):
        np.testing.assert_array_equal(ROBOT.coder.encode(observation.astype(dtype)), active)


@given(st.lists(st.floats(0, 1), min_size=57, max_size=57))
def test_one_tile_of_every_tiling_is_active(values: list[float]) -> None:
    tiles = ROBOT.coder.encode(np.array(values))
    assert tiles.size == 457
    assert (np.diff(tiles) > 0).all()
    assert tiles[-1] == 6064


def test_a_default_layout_serves_any_box() -> None:
    for n, n_active in ((1, 8 + 1), (4, 4 * 8 + 4 * 4 + 1)):
        coder = TileCoder.default(n)
        assert coder.n_active == n_active
        assert coder.encode(np.full(n, 0.5)).size == n_active


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
    ("text", "words"),
    [
        (SMALL.replace("heat", "smell"), "unknown group 'smell'; there are light, heat"),
        (SMALL.replace("tilings = 2", "tilings = 2\ncolour = 1"), "unknown key 'colour'"),
        (SMALL.replace("bias", "bais"), "unknown key 'bais'"),
        (SMALL.replace("tilings = 2", "tilings = 0"), "tilings"),
        (SMALL.replace("[2, 3]", "[2]"), "intervals must be 2"),
        (SMALL.replace("tilings = 2", ""), "needs 'tilings'"),
        ("bias = ", "not valid TOML"),
    ],
)
def test_a_bad_layout_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TileCoder.from_layout(text, CHANNELS)
