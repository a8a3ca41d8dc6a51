"""A sensor comes or goes in the middle of a life: what does not read it keeps its bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import gymnasium
import numpy as np
import pytest

from horde_agent.cli import learn
from horde_agent.record import header_of, read
from horde_agent.record.segments import record_files
from horde_agent.runs.storage.folder import RunFolder
from tests.agent.commands import horde, refused, summary_of
from tests.agent.doubles import ToyBody
from tests.facts import states

NAMES = ("age", "saw", "last")
LIFE = "learn --horizon 8 --seed 2 --questions nexting"


class OtherBody(ToyBody):
    """The toy body with some of its channels, in another order, with new ones, or with one that has no readings."""

    def __init__(self, *names: str, silent: str = "") -> None:
        super().__init__()
        self._names = names
        self._silent = silent
        described = {channel["name"]: channel for channel in self.metadata["channels"]}
        extra = {"name": "extra", "group": "obs", "unit": "1", "sensor": True}
        channels = [described.get(name, extra) for name in names]
        self.metadata = {**self.metadata, "channels": channels}
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (len(names),), np.float32)

    def channel_values(self) -> np.ndarray:
        values = dict(zip(NAMES, super().channel_values(), strict=True))
        values["extra"] = np.float32((self.age % 5) / 5)
        if self._silent:
            values[self._silent] = np.float32(np.nan)
        return np.array([values[name] for name in self._names], np.float32)


def live(patch: pytest.MonkeyPatch, words: str, *names: str, silent: str = "") -> int:
    """Run a command with a body of these channels."""
    patch.setattr(learn, "make_env", lambda _config: OtherBody(*names, silent=silent))
    return horde(words)


def born(run: Path, patch: pytest.MonkeyPatch) -> Path:
    assert live(patch, f"{LIFE} --steps 300 --out {run}", *NAMES) == 0
    return run


def same(one: Path, other: Path) -> bool:
    tables = [
        [(run / name).read_bytes() for name in ("questions.csv", "learning_curve.csv")]
        for run in (one, other)
    ]
    digests = [summary_of(run)["weights_sha256"] for run in (one, other)]
    return tables[0] == tables[1] and digests[0] == digests[1]


def test_what_does_not_read_a_new_sensor_keeps_its_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The body has it in front of the others: by their places, they would be read as one another."""
    plain = born(tmp_path / "plain", monkeypatch)
    run = born(tmp_path / "run", monkeypatch)
    for steps in (500, 700):
        assert live(monkeypatch, f"resume {plain} --steps {steps}", *NAMES) == 0
    order = ("extra", "last", "age", "saw")
    assert live(monkeypatch, f"resume {run} --steps 500 --channels new:extra", *order) == 0
    assert live(monkeypatch, f"resume {run} --steps 700", *order) == 0
    assert same(plain, run)
    rows = read(run / "log/life.rec").rows
    first_readings = rows["observation"][rows["step"] < 300]
    assert np.isnan(first_readings[:, 3]).all()
    expected = read(plain / "log/life.rec").rows["observation"]
    np.testing.assert_array_equal(rows["observation"][:, :3], expected)
    later_readings = rows[rows["step"] > 301]["observation"]
    assert not np.isnan(later_readings[:, 3]).any()
    np.testing.assert_allclose(
        later_readings[:, 3], np.round(later_readings[:, 0] * 1e4) % 5 / 5, atol=1e-3
    )


def test_a_lost_sensor_is_one_without_readings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = born(tmp_path / "silent", monkeypatch)
    run = born(tmp_path / "run", monkeypatch)
    assert live(monkeypatch, f"resume {silent} --steps 500", *NAMES, silent="last") == 0
    words = f"resume {run} --steps 500 --channels lost:last"
    assert live(monkeypatch, words, "saw", "age") == 0
    assert same(silent, run)
    # It is back
    assert live(monkeypatch, f"resume {silent} --steps 700", *NAMES) == 0
    assert live(monkeypatch, f"resume {run} --steps 700", *NAMES) == 0
    assert same(silent, run)


def test_questions_about_a_new_sensor_are_learned_and_the_folder_is_whole(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its reading is the number of the step modulo 5, over 5, which the features do not tell: NMSRE about 1."""
    run = born(elsewhere / "run", monkeypatch)
    (elsewhere / "own.toml").write_text(
        '[[family]]\npolicies = ["behaviour"]\ngammas = [0.0]\nchannels = ["extra"]\n'
    )
    order = ("extra", *NAMES)
    words = "resume run --steps 1500 --channels new:extra --add own.toml"
    assert live(monkeypatch, words, *order) == 0
    questions = (run / "questions.csv").read_text().splitlines()
    (line,) = [line for line in questions if line.startswith("behaviour/g0/extra")]
    assert float(line.split(",")[1]) > 0.5
    folder = RunFolder(run)
    assert len(record_files(folder.life)) == 2
    names = [channel["name"] for channel in header_of(folder.life)["channels"]]
    assert names == [*NAMES, "extra"]

    capsys.readouterr()
    assert horde("doctor run") == 0
    assert "DAMAGED" not in capsys.readouterr().out
    table = (run / "questions.csv").read_bytes()
    for name in ("summary.json", "questions.csv"):
        (run / name).unlink()
    assert horde("report run") == 0
    assert (run / "questions.csv").read_bytes() == table
    assert horde("export run --out exported") == 0
    counts: Any = duckdb.sql(
        "select count(*), count(*) filter (isnan(extra)) from 'exported/**/*.parquet'"
    ).fetchall()
    n_rows = len(read(folder.life))
    assert counts[0][0] == n_rows
    assert 300 <= counts[0][1] <= 302


def test_channels_that_are_not_named_or_do_not_fit_are_refused(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    born(elsewhere / "run", monkeypatch)
    monkeypatch.setattr(learn, "make_env", lambda _config: OtherBody("saw", "age", "extra"))
    refusals = {
        "": ("channels", "--channels"),
        "--channels new:extra": ("no last any more", "lost:last"),
        "--channels lost:last": ("has extra besides", "new:extra"),
        "--channels new:saw,lost:last": ("new:saw", "the record must not"),
        "--channels new:extra,lost:age": ("lost:age", "the body must not"),
        "--channels extra": ("write new:NAME", "lost:NAME"),
    }
    for options, facts in refusals.items():
        line = refused(["resume", "run", "--steps", "400", *options.split()], capsys)
        assert states(line, *facts)


LAYOUT = """
[[tiling]]
channels = ["age"]
intervals = [4]
tilings = 2
"""
CHOSEN = LAYOUT.replace("[4]", "[8]")
OTHER = LAYOUT.replace("age", "saw")


def laid_out(tile_layout: str | None, chosen_layout: str | None, high: float = 1.0) -> Any:
    """Return what makes a body for which this program has these layouts."""

    def make(_config: object) -> ToyBody:
        body = ToyBody()
        layouts = {"tile_layout": tile_layout, "chosen_layout": chosen_layout}
        body.metadata = {**body.metadata, **layouts}
        body.observation_space = gymnasium.spaces.Box(0.0, high, (3,), np.float32)
        return body

    return make


@pytest.mark.parametrize("features", ["chosen", "fixed"])
def test_a_life_keeps_the_layouts_with_which_it_began(
    features: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By those of the later program, of as many tiles over another channel, it would learn other weights.

    A life that began without a chosen layout goes on without one.
    """
    for first in ((LAYOUT, CHOSEN), (None, None)):
        name = f"{features}{first[0] is None}"
        for run, later in ((f"{name}-same", first), (f"{name}-other", (OTHER, OTHER))):
            words = f"{LIFE} --features {features} --steps 100 --out {tmp_path / run}"
            monkeypatch.setattr(learn, "make_env", laid_out(*first))
            assert horde(words) == 0
            monkeypatch.setattr(learn, "make_env", laid_out(*later))
            assert horde(f"resume {tmp_path / run} --steps 200") == 0
        assert same(tmp_path / f"{name}-same", tmp_path / f"{name}-other")


def test_observations_with_other_bounds_are_refused(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same reading would be another tile."""
    monkeypatch.setattr(learn, "make_env", laid_out(LAYOUT, None))
    assert horde(f"{LIFE} --steps 100 --out run") == 0
    monkeypatch.setattr(learn, "make_env", laid_out(LAYOUT, None, high=2.0))
    line = refused(["resume", "run", "--steps", "200"], capsys)
    assert states(
        line, "observations of age from 0.0 to 1.0", "from 0.0 to 2.0", "--backend replay"
    )
