"""Random pairs of channels: which tiles are active, which pairs a seed draws, and runs that learn from them."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import learn_from
from horde_agent.interface import ChannelInfo, Interface, Scaler
from horde_agent.refusals import BadInput
from horde_agent.runs.config import LearnConfig, read_config, resolve
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.run import open_run
from horde_agent.tiles import TileCoder
from tests.agent.commands import QUESTIONS, horde, refused, summary_of
from tests.agent.kills import differences
from tests.agent.shared import robot_interface

ROBOT = robot_interface()
NAMES = ("a", "b", "c", "d")
GROUPS = ("one", "one", "two", "three")

# a and b in one group, c and d named; d reads nothing else
LAYOUT = """
[[tiling]]
group = "one"
intervals = [4]
tilings = 1

[[tiling]]
channels = ["d", "a"]
intervals = [8, 2]
tilings = 2
offset = 0.75

[[tiling]]
channels = ["c"]
intervals = [4]
tilings = 1
offset = 0.5
"""


def channels() -> list[dict[str, Any]]:
    return [{"name": name, "group": group} for name, group in zip(NAMES, GROUPS, strict=True)]


def small_interface(layout: str = LAYOUT, *, high: float = 1.0) -> Interface:
    """Return an interface of four channels, the third with these bounds: 0 and `high`."""
    infos = tuple(
        ChannelInfo(name, group, "1", is_sensor=True)
        for name, group in zip(NAMES, GROUPS, strict=True)
    )
    scaler = Scaler(np.zeros(4), np.array([1.0, 1.0, high, 1.0]))
    coder = TileCoder.from_layout(layout, channels())
    return Interface(infos, ("go",), period_s=1.0, coder=coder, scaler=scaler)


# ---- tilings over named channels -------------------------------------------------------------------------------------


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("observation", "tiles"),
    [
        # a, b: tiles 0..3 and 4..7; d with a: 8..23, shifted by .75, and 24..39, by .75 + .5 - 1;
        # c: 40..43, shifted by .5; the bias: 44.
        ([0.0, 0.0, 0.0, 0.0], [0, 4, 8, 24, 40, 44]),
        ([1.0, 1.0, 1.0, 1.0], [3, 7, 23, 39, 43, 44]),
        # d: .5 x 8 = 4, so cells floor(4.75) = 4 and floor(4.25) = 4; a: .2 x 2 = .4, so cells 1
        # and 0; c: .2 x 4 + .5 = 1.3.
        ([0.2, 0.0, 0.2, 0.5], [0, 4, 8 + 4 * 2 + 1, 24 + 4 * 2 + 0, 41, 44]),
    ],
)
def test_a_tiling_over_named_channels_has_known_cells(
    observation: list[float], tiles: list[int]
) -> None:
    coder = TileCoder.from_layout(LAYOUT, channels())
    assert (coder.n_features, coder.n_active) == (45, 6)
    np.testing.assert_array_equal(coder.encode(np.array(observation)), tiles)


def test_frames_of_a_stack_have_tilings_over_their_own_channels() -> None:
    layout = 'bias = false\n[[tiling]]\nchannels = ["x", "y"]\nintervals = [2, 2]\ntilings = 1\n'
    stacked = [{"name": name, "group": "g"} for name in ("x@-1", "y@-1", "x", "y")]
    coder = TileCoder.from_layout(layout, stacked, ("", "@-1"))
    # The newest frame first: x = 0, y = 1 is cell 1; then x@-1 = 1, y@-1 = 0, cell 2
    np.testing.assert_array_equal(coder.encode(np.array([1.0, 0.0, 0.0, 1.0])), [1, 4 + 2])


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (('["d", "a"]', '["d", "e"]'), "number 2 names the unknown channel 'e'; there are a, b, c"),
        (('["d", "a"]', '["d", "d"]'), "number 2 names the channel 'd' twice"),
        (('["d", "a"]', '["d", "a", "b"]'), "channels must be one or two names in a list, not"),
        (('["d", "a"]', "[]"), "channels must be one or two names in a list, not"),
        (('["d", "a"]', '"da"'), "channels must be one or two names in a list, not 'da'"),
        (("[8, 2]", "[8]"), "number 2: intervals must be 2 whole"),
        (('["d", "a"]', '["d", "a"]\ngroup = "one"'), "number 2 has 'group' beside 'channels'"),
        (('["d", "a"]', '["d", "a"]\nneighbour = 1'), "number 2 has 'neighbour' beside 'channels'"),
        (("offset = 0.75", "offset = 1.0"), "offset must be a number from 0 to below 1, not 1.0"),
        (("offset = 0.75", "offset = nan"), "offset must be a number from 0 to below 1, not nan"),
        (("offset = 0.75", 'offset = "half"'), "offset must be a number from 0 to below 1"),
        (('group = "one"', ""), "number 1 needs 'group'"),
    ],
)
def test_a_bad_tiling_over_named_channels_is_refused(
    changed: tuple[str, str], sentence: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        TileCoder.from_layout(LAYOUT.replace(*changed), channels())


def test_channels_without_names_cannot_be_named() -> None:
    table = {"channels": ["a"], "intervals": [4], "tilings": 1}
    with pytest.raises(ValueError, match="unknown channel 'a'; there are none with a name"):
        TileCoder([table], ["one"])


# ---- drawn pairs -----------------------------------------------------------------------------------------------------


@pytest.mark.kernels
def test_a_pair_adds_one_active_tile_and_the_others_keep_their_numbers() -> None:
    paired = ROBOT.with_pairs(150, seed=3)
    assert (paired.coder.n_active, paired.coder.n_features) == (457 + 150, 6065 + 150 * 64)
    rng = np.random.default_rng(0)
    first = 6064 + 64 * np.arange(150)
    for _ in range(20):
        observation = rng.random(57)
        tiles = paired.encode(observation)
        np.testing.assert_array_equal(tiles[:456], ROBOT.encode(observation)[:456])
        assert (tiles[456:606] >= first).all()
        assert (tiles[456:606] < first + 64).all()
        assert tiles[-1] == paired.coder.n_features - 1


@pytest.mark.kernels
def test_the_cell_of_a_pair_is_that_of_its_channels_and_offset() -> None:
    """Cell = min(7, floor(8 x + offset)) along both, by the table in the layout."""
    paired = small_interface().with_pairs(6, seed=1)
    observation = np.array([0.1, 0.45, 0.8, 0.99])
    tables = TileCoder.from_layout(paired.coder.layout, channels()).layout.split("[[tiling]]")[-6:]
    expected = []
    for number, table in enumerate(tables):
        values = {line.split(" = ")[0]: line.split(" = ")[1] for line in table.split("\n") if line}
        offset = float(values["offset"])
        cells = [
            min(7, int(8 * observation[NAMES.index(name)] + offset))
            for name in json.loads(values["channels"])
        ]
        expected.append(44 + 64 * number + 8 * cells[0] + cells[1])
    np.testing.assert_array_equal(paired.encode(observation)[5:11], expected)


DRAWN_CHANNELS = ['channels = ["a", "b"]', 'channels = ["a", "c"]', 'channels = ["b", "c"]']
DRAWN_OFFSETS = [0.445153123967549, 0.6828411581325566, 0.2793738805224122]


def test_a_seed_draws_the_same_pairs_for_good() -> None:
    """Of PCG64's raw stream, which NumPy promises to keep: these were drawn by NumPy 2.4."""
    layout = small_interface().with_pairs(3, seed=7).coder.layout
    drawn = layout.split("[[tiling]]")[-3:]
    assert [table.split("\n")[1] for table in drawn] == DRAWN_CHANNELS
    assert [float(table.split("offset = ")[1]) for table in drawn] == DRAWN_OFFSETS


def test_more_pairs_begin_with_the_same_ones_and_another_seed_draws_others() -> None:
    few = ROBOT.with_pairs(20, seed=5).coder.layout
    assert ROBOT.with_pairs(200, seed=5).coder.layout.startswith(few)
    assert not ROBOT.with_pairs(200, seed=6).coder.layout.startswith(few)


def test_each_pair_of_channels_is_drawn_once_before_one_is_drawn_again() -> None:
    """Four channels have six pairs."""
    tables = small_interface().with_pairs(15).coder.layout.split("[[tiling]]")[-15:]
    pairs = [table.split("\n")[1] for table in tables]
    assert len(set(pairs[:6])) == len(set(pairs[6:12])) == 6
    assert sorted(Counter(pairs).values()) == [2, 2, 2, 3, 3, 3]
    assert len({table.split("offset = ")[1] for table in tables}) == 15


@pytest.mark.parametrize(
    ("interface", "varying"),
    [
        (small_interface(), ("a", "b", "c", "d")),
        (small_interface(high=0.0), ("a", "b", "d")),  # c has one value
        (small_interface(LAYOUT.replace('channels = ["c"]', 'channels = ["b"]')), ("a", "b", "d")),
        (small_interface(LAYOUT.replace("[8, 2]", "[8, 1]").split("[[tiling]]\ng")[0]), ()),
    ],
)
def test_pairs_are_drawn_from_channels_that_vary_and_have_tiles(
    interface: Interface, varying: tuple[str, ...]
) -> None:
    assert interface.varying == varying


def test_a_layout_with_pairs_is_read_back() -> None:
    paired = ROBOT.with_pairs(40, seed=2)
    described = [channel._asdict() for channel in ROBOT.channels]
    coder = TileCoder.from_layout(paired.coder.layout, described)
    assert coder.layout == paired.coder.layout
    observation = np.random.default_rng(0).random(57)
    np.testing.assert_array_equal(coder.encode(observation), paired.encode(observation))


def test_pairs_that_cannot_be_are_refused() -> None:
    alone = small_interface('[[tiling]]\nchannels = ["a"]\nintervals = [4]\ntilings = 1\n')
    with pytest.raises(
        ValueError, match=r"at least two channels that vary and have tiles, .* are 1"
    ):
        alone.with_pairs(5)
    with pytest.raises(ValueError, match="100,000,000; ask for fewer"):
        ROBOT.with_pairs(2_000_000)
    with pytest.raises(ValueError, match="has pairs or feedback already"):
        ROBOT.with_pairs(3).with_pairs(3)
    with pytest.raises(ValueError, match="n must be a whole number of at least 1, not 0"):
        ROBOT.with_pairs(0)


# ---- runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"features": "pairs"}, "--features 'pairs': write chosen, or fixed, or pairs:N"),
        ({"features": "pairs:0"}, "--features 'pairs:0': write chosen, or fixed, or pairs:N"),
        ({"features": "pairs:1.5"}, "--features 'pairs:1.5': write chosen, or fixed, or pairs:N"),
        ({"features": "pairs:9,seed=x"}, "write chosen, or fixed, or pairs:N"),
        ({"features": "pairs:9", "paper": True}, "--paper learns from the tilings of the layout"),
    ],
)
def test_impossible_features_are_refused_before_the_start(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BadInput) as refusal:
        resolve(LearnConfig(**settings))
    assert sentence in str(refusal.value)


def test_settings_name_the_seed_of_the_pairs() -> None:
    resolved = resolve(LearnConfig(features="pairs:9", seed=4))
    assert resolved.features == "pairs:9,seed=4"
    assert resolve(replace(resolved, seed=5)).features == "pairs:9,seed=4"
    assert resolve(LearnConfig()).features == "chosen"
    assert resolve(LearnConfig(paper=True)).features == "fixed"
    assert resolve(LearnConfig(paper=True, features="fixed")).features == "fixed"


@pytest.fixture
def life(tmp_path: Path) -> str:
    questions = tmp_path / "own.toml"
    questions.write_text(QUESTIONS)
    return (
        f"learn --questions {questions} --physics planar --excursion-probability 0.05 --horizon 12 "
        "--seed 1 --snapshot-every never --features pairs:12"
    )


@pytest.mark.sim
def test_a_run_with_pairs_resumes_and_replays_to_the_bit(life: str, tmp_path: Path) -> None:
    """A replay with other questions has the same pairs, whatever its seed."""
    whole = tmp_path / "whole"
    assert horde(life, f"--steps 300 --out {whole}") == 0
    assert summary_of(whole)["n_features"] == 6065 + 12 * 64
    assert summary_of(whole)["n_active"] == 457 + 12
    assert read_config(whole / "config.toml").features == "pairs:12,seed=1"

    assert horde(life, f"--steps 140 --out {tmp_path / 'stopped'}") == 0
    assert horde(f"resume {tmp_path / 'stopped'} --steps 300") == 0
    assert differences(tmp_path / "stopped", whole) == []
    assert horde(f"learn --backend replay --log {whole} --out {tmp_path / 'again'}") == 0
    assert differences(tmp_path / "again", whole) == []

    replayed = tmp_path / "replayed"
    words = "--questions nexting --seed 9"
    assert horde(f"learn --backend replay --log {whole} {words} --out {replayed}") == 0
    rebuilt = open_run(RunFolder(replayed))
    assert rebuilt.interface.coder.layout == ROBOT.with_pairs(12, seed=1).coder.layout
    first_pair = " and ".join(rebuilt.interface.pairs[0])
    assert f"12 tilings are over random pairs of channels: {first_pair}, " in (
        whole / "report.html"
    ).read_text(encoding="utf-8")


def test_a_data_set_and_an_environment_have_pairs_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    learned = learn_from(
        rng.random((60, 3)),
        rng.integers(2, size=60),
        b=np.full(60, 0.5),
        questions="nexting",
        features="pairs:4",
        seed=2,
        out=tmp_path / "data",
    )
    assert learned.summary["n_features"] == 192 + 192 + 4 * 64 + 1
    assert learned.interface.coder.layout.count("channels = ") == 4
    words = f"learn --env CartPole-v1 --steps 40 --features pairs:7 --out {tmp_path / 'pole'}"
    assert horde(words) == 0
    assert summary_of(tmp_path / "pole")["n_active"] == 4 * 8 + 4 * 4 + 7 + 1


def test_too_many_pairs_are_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = refused(
        ["learn", "--env", "CartPole-v1", "--features", "pairs:2000000", "--out", "run"], capsys
    )
    assert line.startswith("horde: --features pairs:2000000,seed=0: 2,000,000 pairs make 128,")


def test_later_tilings_are_numbered_behind_all_others_each_time() -> None:
    """2 x 3 tiles, the bias 6, and with tiles "unknown" 7 and 8; then a tiling of 4, and one of 5 after it.

    Without `later` the bias would move from 6 to 10.
    """
    first = [{"channels": ["a"], "intervals": [3], "tilings": 2}]
    four = {"channels": ["b"], "intervals": [4], "tilings": 1, "later": True}
    five = {"channels": ["b"], "intervals": [5], "tilings": 1, "later": True}
    for unknown, n_before, n_unknown in ((False, 7, 0), (True, 9, 1)):
        coder = TileCoder(first, ["x", "x"], names=["a", "b"], unknown=unknown)
        observation = np.array([0.99, 0.99])
        former = coder.encode(observation)
        assert coder.n_features == n_before
        for table, n_tiles in ((four, 4), (five, 5)):
            n_features = coder.n_features
            coder = coder.extended([table], groups=())
            present = coder.encode(observation)
            added = sorted(set(present.tolist()) - set(former.tolist()))
            assert set(former.tolist()) < set(present.tolist())
            assert added == [n_features + n_tiles - 1]
            assert coder.n_features == n_features + n_tiles + n_unknown
            if unknown:
                without = coder.encode(np.array([0.99, np.nan]))
                assert n_features + n_tiles in without
            former = present
        described = [{"name": name, "group": "x"} for name in "ab"]
        reread_coder = TileCoder.from_layout(coder.layout, described)
        np.testing.assert_array_equal(reread_coder.encode(observation), former)
