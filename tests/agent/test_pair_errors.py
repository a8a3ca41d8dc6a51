"""Pairs of channels chosen by a run's errors: what their cells explain, and runs that learn from them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from horde_agent import Interface, learn_from
from horde_agent.features import features_of
from horde_agent.interface import ChannelInfo, Scaler
from horde_agent.kernels.cells import sum_by_cell
from horde_agent.refusals import BadInput
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.run import HeaderEnv, open_run
from horde_agent.scoring import pair_errors
from horde_agent.scoring.pair_errors import FEWEST_IN_CELL, PairErrors
from horde_agent.tiles import TileCoder
from tests.agent.commands import horde, refused, summary_of
from tests.agent.shared import robot_interface
from tests.oracles.cells import share_explained, sums_by_cell

NAMES = ("a", "b", "c", "d")


def four_channels() -> Interface:
    """Return an interface of four channels from 0 to 1, each with four tiles."""
    channels = tuple(ChannelInfo(name, "all", "1", is_sensor=True) for name in NAMES)
    layout = '[[tiling]]\ngroup = "all"\nintervals = [4]\ntilings = 1\n'
    coder = TileCoder.from_layout(layout, [channel._asdict() for channel in channels])
    scaler = Scaler(np.zeros(4), np.ones(4))
    return Interface(channels, ("go",), period_s=1.0, coder=coder, scaler=scaler)


def share_of(errors: PairErrors, *names: str) -> float:
    shares = errors.shares()
    pairs = [table["channels"] for table in errors.tables]
    return float(shares[pairs.index(sorted(names))])


@pytest.mark.kernels
def test_sums_by_cell_are_those_of_the_slow_twin() -> None:
    rng = np.random.default_rng(0)
    errors = rng.normal(size=(60, 3)).astype(np.float32)
    errors[rng.random((60, 3)) < 0.4] = 0.0
    cells = rng.integers(5, size=(60, 2)).astype(np.uint8)
    sums = np.zeros((2, 5, 3), dtype=np.float32)
    counts = np.zeros_like(sums)
    sum_by_cell(errors, cells, sums, counts)
    expected, n_errors = sums_by_cell(errors, cells, 5)
    np.testing.assert_allclose(sums, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(counts, n_errors)


def test_the_share_of_a_pair_is_that_of_the_slow_twin() -> None:
    """The second demon errs in every third row alone: a mean over all rows of a cell would be a third."""
    rng = np.random.default_rng(1)
    errors = PairErrors(four_channels(), n_demons=2, n_rows=400, seed=0)
    table = errors.tables[0]
    channels = [NAMES.index(name) for name in table["channels"]]
    cells = []
    of_demons = []
    for row in range(400):
        observation = rng.random(4)
        slow, fast = np.minimum(7, (observation[channels] * 8 + table["offset"]).astype(int))
        cells.append(int(8 * slow + fast))
        of_demons.append(rng.normal(size=2) + (slow > 4))
        of_demons[-1][1] *= row % 3 == 0
        errors.add(observation, of_demons[-1])
    shares = [
        share_explained([of[demon] for of in of_demons], cells, FEWEST_IN_CELL) for demon in (0, 1)
    ]
    assert 0.05 < shares[1] < shares[0] + 0.2
    assert errors.shares()[0] == pytest.approx(np.mean(shares), rel=1e-4)


def test_a_pair_whose_channels_tell_the_error_together_explains_it_and_no_other_does() -> None:
    """The error is 1 where a and b are on the same side, else -1: neither channel alone says anything.

    64 cells of 3,000 rows explain 2.1 % of any error by chance, which is not counted.
    """
    rng = np.random.default_rng(2)
    errors = PairErrors(four_channels(), n_demons=1, n_rows=3000, seed=0)
    for _ in range(3000):
        observation = rng.random(4)
        is_alike = (observation[0] > 0.5) == (observation[1] > 0.5)
        errors.add(observation, np.array([2.0 * is_alike - 1.0]))
    assert share_of(errors, "a", "b") > 0.7
    of_other_pairs = [share_of(errors, *names) for names in ("ac", "bc", "ad", "bd", "cd")]
    assert max(of_other_pairs) < 0.012
    (table, share), *_ = errors.best(1)
    assert table["channels"] == ["a", "b"]
    assert share == share_of(errors, "a", "b")


def test_demons_that_err_by_little_count_as_much_as_others() -> None:
    """One demon errs by 1,000 without relation, one by .001 as c and d say: the mean of their shares is a half."""
    rng = np.random.default_rng(3)
    errors = PairErrors(four_channels(), n_demons=2, n_rows=4000, seed=0)
    for _ in range(4000):
        observation = rng.random(4)
        is_alike = (observation[2] > 0.5) == (observation[3] > 0.5)
        errors.add(observation, np.array([1000.0 * rng.normal(), 0.002 * is_alike - 0.001]))
    assert 0.35 < share_of(errors, "c", "d") < 0.5


def test_errors_that_are_no_numbers_and_demons_without_errors_say_nothing() -> None:
    rng = np.random.default_rng(4)
    errors = PairErrors(four_channels(), n_demons=3, n_rows=500, seed=0)
    for _ in range(500):
        errors.add(rng.random(4), np.array([np.nan, np.inf, 0.0]))
    assert errors.shares().tolist() == [0.0] * 6
    assert errors.best(3) == []


def test_of_more_rows_and_demons_every_kth_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third row and every second demon: errors of the others change nothing."""
    monkeypatch.setattr(pair_errors, "MOST_ROWS", 400)
    monkeypatch.setattr(pair_errors, "MOST_DEMONS", 3)
    rng = np.random.default_rng(5)
    observations = rng.random((1200, 4))
    of_kept_rows = PairErrors(four_channels(), n_demons=3, n_rows=400, seed=0)
    errors = PairErrors(four_channels(), n_demons=5, n_rows=1200, seed=0)
    for row, observation in enumerate(observations):
        is_alike = (observation[0] > 0.5) == (observation[1] > 0.5)
        of_demons = np.full(5, 1e6 * rng.normal())
        if row % 3 == 0:
            of_demons[::2] = is_alike * rng.random(3)
            of_kept_rows.add(observation, of_demons[::2])
        errors.add(observation, of_demons)
    np.testing.assert_array_equal(errors.shares(), of_kept_rows.shares())


def test_of_more_pairs_random_ones_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_errors, "MOST_PAIRS", 4)
    errors = PairErrors(four_channels(), n_demons=1, n_rows=10, seed=3)
    layout = four_channels().with_pairs(4, seed=3).coder.layout
    assert [f"offset = {table['offset']}" in layout for table in errors.tables] == [True] * 4


# ---- runs ------------------------------------------------------------------------------------------------------------


def alternation(n: int) -> np.ndarray:
    """Return rows of a, b, c, and d, which is 1 after rows in which a and c were on the same side."""
    rng = np.random.default_rng(6)
    rows = rng.random((n, 4)).astype(np.float32)
    rows[1:, 3] = (rows[:-1, 0] > 0.5) == (rows[:-1, 2] > 0.5)
    return rows


def learned_alternation(out: Path, features: str, n: int = 2000) -> float:
    """Learn what d will be at the next row; return the NMSRE."""
    question = out.parent / "next.toml"
    question.write_text('[[family]]\npolicies = ["behaviour"]\ngammas = [0.0]\nchannels = ["d"]\n')
    learned = learn_from(
        dict(zip(NAMES, alternation(n).T, strict=True)),
        questions=str(question),
        features=features,
        passes=10,
        out=out,
    )
    return float(learned.summary["mean_nmsre"])


def test_the_pair_that_a_run_lacked_is_chosen_and_a_run_with_it_predicts_better(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What d will be, a and c say together; the layout pairs neighbours alone, and predicts the mean at best."""
    without = learned_alternation(tmp_path / "without", "fixed")
    capsys.readouterr()
    assert horde(f"features {tmp_path / 'without'} --pairs 1") == 0
    text = capsys.readouterr().out
    tables = tomllib.loads(text)["tiling"]
    assert [table["channels"] for table in tables] == [["a", "c"]]
    assert "% of the squared errors" in text
    chosen = tmp_path / "chosen.toml"
    chosen.write_text(text)
    better = learned_alternation(tmp_path / "with", str(chosen))
    assert without > 0.95
    assert better < 0.8


def test_a_run_has_its_tilings_in_its_settings_and_depends_on_no_file(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(  # with a byte order mark, as some editors write it
        '\ufeff[[tiling]]\nchannels = ["obs_0", "obs_2"]\nintervals = [3, 5]\ntilings = 2\noffset = 0.25\n'
    )
    words = f"learn --env CartPole-v1 --seed 1 --snapshot-every never --features {file}"
    assert horde(f"{words} --steps 120 --out {tmp_path / 'whole'}") == 0
    assert horde(f"{words} --steps 60 --out {tmp_path / 'stopped'}") == 0
    file.unlink()
    assert (
        horde(f"learn --backend replay --log {tmp_path / 'whole'} --out {tmp_path / 'again'}") == 0
    )
    whole = summary_of(tmp_path / "whole")
    assert summary_of(tmp_path / "again")["weights_sha256"] == whole["weights_sha256"]
    interface = open_run(RunFolder(tmp_path / "stopped")).interface
    assert interface.coder.n_features == 4 * 8 * 8 + 4 * 4 * 16 + 2 * 15 + 1
    assert horde(f"resume {tmp_path / 'stopped'} --steps 120") == 0
    report = (tmp_path / "stopped" / "report.html").read_text(encoding="utf-8")
    assert "1 kinds of tilings were added from a file: over obs_0 and obs_2." in report


def test_the_critterbots_chosen_layout_is_half_of_the_papers_and_150_pairs() -> None:
    """393 active tiles: half of 457 would be 228, and 230 are left of kinds with one tiling; 150 pairs; the bias."""
    interface = robot_interface()
    coder = interface.with_chosen_layout().coder
    assert (coder.n_features, coder.n_active) == (13_193, 393)
    pairs = set(re.findall(r'^channels = \["(\w+)", "(\w+)"\]$', coder.layout, re.MULTILINE))
    assert len(pairs) == 150
    assert interface.coder.n_features == 6065
    features = features_of(None)
    assert features.added_to(interface, 0).coder.layout == coder.layout


def test_a_chosen_layout_is_chosen_before_tilings_are_added() -> None:
    with pytest.raises(ValueError, match="choose the layout first"):
        robot_interface().with_pairs(3).with_chosen_layout()


@pytest.mark.parametrize(
    ("words", "size"),
    [
        ("", (13_193, 393)),
        ("--paper", (6065, 457)),
        ("--features fixed", (6065, 457)),
        ("--features unknown", (13_193 + 392, 393)),
        ("--robot create2", None),
    ],
)
def test_a_life_learns_from_the_chosen_layout_of_its_robot_unless_settings_name_others(
    tmp_path: Path, words: str, size: tuple[int, int] | None
) -> None:
    """A robot without a chosen layout has its layout."""
    folder = tmp_path / "run"
    assert (
        horde(f"learn --physics planar --steps 30 --questions nexting {words} --out {folder}") == 0
    )
    interface = open_run(RunFolder(folder)).interface
    summary = summary_of(folder)
    if size is None:
        header = RunFolder(folder).extent().header
        channels = [channel._asdict() for channel in interface.channels]
        coder = TileCoder.from_layout(header["tile_layout"], channels)
        size = (coder.n_features, coder.n_active)
    assert (interface.coder.n_features, interface.coder.n_active) == size
    assert (summary["n_features"], summary["n_active"]) == size


def test_a_recording_older_than_chosen_layouts_has_its_layout(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = "learn --physics planar --steps 30 --questions nexting --features fixed"
    assert horde(f"{words} --out {folder}") == 0
    header = dict(RunFolder(folder).extent().header)
    del header["chosen_layout"]
    interface = Interface.of(HeaderEnv(header))
    assert interface.with_chosen_layout().coder.n_features == 6065


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "own.toml cannot be read (No such file or directory)"),
        ("[[tiling", "own.toml is not valid TOML: "),
        ("bias = true\n", "own.toml has 'bias'; it may hold [[tiling]] tables alone"),
        ("", "own.toml has no [[tiling]] tables; `horde features RUN` prints some"),
        ("tiling = 3\n", "own.toml has no [[tiling]] tables"),
        (
            '[[tiling]]\nchannels = ["x", "obs_0"]\nintervals = [8, 8]\ntilings = 1\n',
            '--features tilings:[{"channels": ["x", "obs_0"], "intervals": [8, ...: [[tiling]] number 1 names the '
            "unknown channel 'x'; there are obs_0, obs_1, obs_2, obs_3",
        ),
    ],
)
def test_a_file_without_sound_tilings_is_refused(
    content: str | None,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("own.toml").write_text(content)
    words = ["learn", "--env", "CartPole-v1", "--features", "own.toml", "--out", "run"]
    assert sentence in refused(words, capsys)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("tilings:[", "features = tilings:... is not a list of tables in JSON"),
        ("tilings:" + "[" * 100_000, "features = tilings:... is not a list of tables in JSON"),
        ("tilings:[3]", "features = tilings:... has no [[tiling]] tables"),
    ],
)
def test_settings_without_sound_tilings_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=re.escape(sentence)):
        features_of(text)


def test_a_run_without_an_error_to_explain_has_no_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).random((60, 2)).astype(np.float32)
    learn_from(rows, questions="nexting", out=tmp_path / "short")
    line = refused(["features", "short"], capsys, is_alone=False)
    assert line.startswith("horde: no pair of channels explains an error in short: its predictions")
    line = refused(["features", "short", "--pairs", "0"], capsys)
    assert line == "horde: --pairs must be at least 1, got 0"
    learn_from(rows[:, :1], questions="nexting", out=tmp_path / "alone")
    assert "a pair needs two channels, and there are 1" in refused(
        ["features", "alone"], capsys, is_alone=False
    )
