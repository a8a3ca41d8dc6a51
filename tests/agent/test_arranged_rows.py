"""A sensor or an action comes or goes in the middle of a run on data: what does not depend on it keeps its bits."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from rich.console import Console

from horde_agent import StreamRun, cli
from horde_agent.cli import learn
from horde_agent.record import header_of, read
from horde_agent.record.segments import record_files
from horde_agent.refusals import BadInput
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.resume import open_trained
from tests.agent.commands import refused, summary_of
from tests.agent.test_arranging import relearned, weights_of
from tests.facts import states

CHANNEL = """
[[channel]]
column = "{0}"
low = 0.0
high = 1.0
"""
KEYS = 'period_s = 0.1\ntime = "t"\n'
ACTIONS = 'action = "a"\nb = "p"\nactions = {}\n'
QUESTIONS = """
[[family]]
policies = ["left", "uniform", "behaviour"]
gammas = [0.5, 0.8]
channels = ["x", "y"]
"""
ABOUT_EXTRA = """
[[family]]
policies = ["behaviour"]
gammas = [0.0]
channels = ["extra"]
"""
TILINGS = """
[[tiling]]
channels = ["extra"]
intervals = [18]
tilings = 2
"""
N_FIRST = 120
N_ROWS = 300


def columns(*channels: str, actions: Sequence[str] = ("left", "right")) -> str:
    described = ACTIONS.format(json.dumps(list(actions)))
    return KEYS + described + "".join(CHANNEL.format(name) for name in channels)


class Rows(NamedTuple):
    """Cells by column."""

    cells: dict[str, list[str]]

    def csv(self, names: Sequence[str], first: int, end: int) -> str:
        """Return rows [first, end) with these columns in this order."""
        lines = zip(*(self.cells[name][first:end] for name in names), strict=True)
        return "\n".join([",".join(names), *map(",".join, lines)]) + "\n"


def rows(n: int = N_ROWS, n_actions: int = 2) -> Rows:
    """Two actions with b = .25 and .75, or equally likely ones later; the extra sensor counts modulo 9, over 9."""
    rng = np.random.default_rng(3)
    actions = (rng.random(n) < 0.75).astype(int)
    b = np.where(actions == 1, 0.75, 0.25)
    if n_actions > 2:
        actions[N_FIRST:] = rng.integers(n_actions, size=n - N_FIRST)
        b[N_FIRST:] = 1.0 / n_actions
    x = np.zeros(n)
    for t in range(1, n):
        x[t] = 0.9 * x[t - 1] + 0.1 * (actions[t - 1] > 0)
    columns_of_rows = {
        "t": np.arange(n) / 10,
        "x": x.round(3),
        "y": (np.arange(n) % 7) / 8,
        "a": actions,
        "p": b,
        "extra": (np.arange(n) % 9) / 9,
        "shows": np.append(0.0, actions[:-1] / 2),
    }
    return Rows({name: [str(one) for one in column] for name, column in columns_of_rows.items()})


OLD = ("t", "x", "y", "a", "p")
NEW = ("extra", "p", "y", "t", "x", "a")  # in another order
LEARN = "--columns columns.toml --questions questions.toml --horizon 10 --seed 2"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the columns, questions and tables of a run, in which commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(learn, "write_report", lambda run: run / "report.html")
    table = rows()
    files = {
        "columns.toml": columns("x", "y"),
        "more.toml": columns("extra", "y", "x"),
        "questions.toml": QUESTIONS,
        "about.toml": ABOUT_EXTRA,
        "tilings.toml": TILINGS,
        "first.csv": table.csv(OLD, 0, N_FIRST),
        "second.csv": table.csv(OLD, N_FIRST, N_ROWS),
        "wider.csv": table.csv(NEW, N_FIRST, N_ROWS),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def run(words: str, patch: pytest.MonkeyPatch, lines: str = "") -> int:
    """Run a command with these lines on standard input."""
    patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    return cli.main(words.split())


def begin(name: str, patch: pytest.MonkeyPatch) -> None:
    """Learn from the first rows in a new folder."""
    assert run(f"learn --data first.csv {LEARN} --out {name}", patch) == 0


SCORES = ("weights_sha256", "learning_steps", "steps", "gaps", "mean_nmsre", "n_excursions")


def same(one: str, other: str, n_channels: int = 2) -> None:
    """Check that two runs learned, scored and recorded the same in their first channels."""
    for key in SCORES:
        assert summary_of(one)[key] == summary_of(other)[key], key
    tables = [(Path(name) / "questions.csv").read_bytes() for name in (one, other)]
    assert tables[0] == tables[1]
    recorded = [read(Path(name) / "log/life.rec").rows for name in (one, other)]
    for field in ("step", "t", "action", "b", "flags", "phase"):
        np.testing.assert_array_equal(recorded[0][field], recorded[1][field], err_msg=field)
    observations = [of_run["observation"][:, :n_channels] for of_run in recorded]
    np.testing.assert_array_equal(*observations)


class Given:
    """Ways in which further rows are given to a run."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._patch = patch

    def table(self, name: str, file: str, options: str) -> None:
        assert run(f"resume {name} --data {file} {options}", self._patch) == 0

    def pipe(self, name: str, file: str, options: str) -> None:
        lines = (self._folder / file).read_text()
        assert run(f"resume {name} --data - {options}", self._patch, lines) == 0

    def python(self, name: str, file: str, options: str) -> None:
        header, *lines = (self._folder / file).read_text().splitlines()
        words = options.split()
        flags = dict(zip(words[::2], words[1::2], strict=True))
        changes: dict[str, Any] = {flag.removeprefix("--"): text for flag, text in flags.items()}
        with StreamRun.resume(name, **changes) as stream:
            for line in lines:
                cells = dict(zip(header.split(","), map(float, line.split(",")), strict=True))
                readings = [cells.get(channel, np.nan) for channel in stream.interface.names]
                stream.row(readings, int(cells["a"]), cells["p"], cells["t"])


@pytest.mark.parametrize("way", ["table", "pipe", "python", "table behind a pipe"])
def test_what_does_not_read_a_new_sensor_keeps_its_bits(
    way: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The further rows have it in front of the others: by their places, they would be read as one another."""
    give = getattr(Given(folder, monkeypatch), way.partition(" ")[0])
    for name, file, options in (
        ("plain", "second.csv", ""),
        ("run", "wider.csv", "--channels new:extra --columns more.toml"),
    ):
        if way == "table behind a pipe":
            lines = (folder / "first.csv").read_text()
            assert run(f"learn - {LEARN} --out {name}", monkeypatch, lines) == 0
        else:
            begin(name, monkeypatch)
        give(name, file, options)
    same("run", "plain")
    readings = read(Path("run/log/life.rec")).rows["observation"][:, 2]
    # The last row of the first table got its action when it was recorded again, in the stream's file
    assert np.isnan(readings[:N_FIRST]).all()
    np.testing.assert_array_equal(
        readings[N_FIRST:], (np.arange(N_FIRST, N_ROWS) % 9 / 9).astype(np.float32)
    )
    header = header_of(Path("run/log/life.rec"))
    assert [channel["name"] for channel in header["channels"]] == ["x", "y", "extra"]


@pytest.mark.parametrize("missing", ["reading", "gap", "error"])
@pytest.mark.parametrize("way", ["table", "pipe"])
def test_a_lost_column_is_one_without_readings(
    way: str, missing: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if each other row without a reading is dropped or refused. Then the column is back."""
    give = getattr(Given(folder, monkeypatch), way)
    cells = rows().cells
    silent = Rows({**cells, "y": [""] * N_ROWS})
    (folder / "silent.csv").write_text(silent.csv(OLD, N_FIRST, 200))
    (folder / "narrow.csv").write_text(silent.csv(("a", "p", "x", "t"), N_FIRST, 200))
    (folder / "back.csv").write_text(rows().csv(OLD, 200, N_ROWS))
    described = (folder / "columns.toml").read_text()
    for name, file, options, key in (
        ("silent", "silent.csv", "", "reading"),
        ("run", "narrow.csv", "--channels lost:y", missing),
    ):
        (folder / "columns.toml").write_text(f'missing = "{key}"\n{described}')
        begin(name, monkeypatch)
        give(name, file, options)
    same("run", "silent")
    for name in ("silent", "run"):
        give(name, "back.csv", "")
    same("run", "silent")
    assert not np.isnan(read(Path("run/log/life.rec")).rows["observation"][200:]).any()


def numbers_of(question: str, name: str = "run") -> list[str]:
    """Return the line of a question in the table of a run."""
    lines = (Path(name) / "questions.csv").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(question)]
    return line.split(",")


@pytest.mark.parametrize("way", ["table", "pipe", "python"])
def test_questions_see_a_new_sensor_through_its_tilings(
    way: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next reading follows from its present one: NMSRE .14, and about 1 without these tilings.

    All former weights keep their bits when it comes with a row that follows a gap, from which nothing is learned.
    """
    give = getattr(Given(folder, monkeypatch), way)
    table = rows(1_500)
    # A table must have a step to learn from
    n_next = N_FIRST + 2 + (way == "table")
    (folder / "next.csv").write_text(table.csv(NEW, N_FIRST + 1, n_next))
    (folder / "many.csv").write_text(table.csv(NEW, n_next, 1_500))
    options = "--channels new:extra --columns more.toml --add about.toml --tilings tilings.toml"
    begin("run", monkeypatch)
    former = weights_of("run")
    n_active = summary_of("run")["n_active"]
    give("run", "next.csv", options)
    present = weights_of("run")
    for name, theta in former.items():
        if way == "table":
            continue
        np.testing.assert_array_equal(present[name][: len(theta)], theta)
        np.testing.assert_array_equal(present[name][len(theta) :], np.zeros(2 * 18))
    assert any(theta.any() for theta in former.values())
    assert summary_of("run")["n_active"] == n_active + 2
    give("run", "many.csv", "")
    assert float(numbers_of("behaviour/g0/extra")[1]) < 0.3


def test_a_folder_whose_columns_changed_is_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows from before the change are read: tables are learned again, rows exported, and learned from elsewhere."""
    begin("run", monkeypatch)
    give = Given(folder, monkeypatch)
    options = "--channels new:extra,lost:y --columns narrow.toml --add about.toml"
    (folder / "narrow.toml").write_text(columns("extra", "x"))
    (folder / "narrow.csv").write_text(rows().csv(("x", "extra", "t", "a", "p"), N_FIRST, 200))
    (folder / "last.csv").write_text(rows().csv(NEW, 200, N_ROWS))
    give.table("run", "narrow.csv", options)
    give.table("run", "last.csv", "")
    assert len(record_files(RunFolder(Path("run")).life)) == 2
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    capsys.readouterr()
    assert run("doctor run", monkeypatch) == 0
    assert "DAMAGED" not in capsys.readouterr().out
    table = Path("run/questions.csv").read_bytes()
    digest = summary_of("run")["weights_sha256"]
    for name in ("summary.json", "questions.csv"):
        (Path("run") / name).unlink()
    assert run("report run", monkeypatch) == 0
    assert Path("run/questions.csv").read_bytes() == table
    assert summary_of("run")["weights_sha256"] == digest
    assert run("export run --predictions --out exported", monkeypatch) == 0
    assert run(f"learn --data run {QUESTIONS_OF_NOW} --out replayed", monkeypatch) == 0
    recorded = [read(Path(name) / "log/life.rec").rows for name in ("run", "replayed")]
    for field in ("observation", "action", "b", "flags"):
        np.testing.assert_array_equal(recorded[0][field], recorded[1][field])
    assert summary_of("replayed")["learning_steps"] == N_ROWS - 1


QUESTIONS_OF_NOW = "--questions about.toml --horizon 10"


@pytest.mark.parametrize("way", ["table", "pipe"])
def test_a_new_action_is_known_and_questions_asked_before_keep_their_bits(
    way: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights are those that its record alone teaches, to a Horde that knew of the action from the first row on.

    A policy over two actions, such as uniform, does not take a third one. After jump the channel "shows" has 1: a
    question about it is learned.
    """
    give = getattr(Given(folder, monkeypatch), way)
    names = ("t", "x", "y", "shows", "a", "p")
    table = rows(900, n_actions=3)
    for name, first, end in (("first", 0, 120), ("more", 120, 400), ("last", 400, 900)):
        (folder / f"{name}.csv").write_text(table.csv(names, first, end))
    (folder / "columns.toml").write_text(columns("x", "y", "shows"))
    (folder / "about.toml").write_text(
        '[[family]]\npolicies = ["jump"]\ngammas = [0.0]\nchannels = ["shows"]\n'
    )
    begin("run", monkeypatch)
    give("run", "more.csv", "--actions new:jump")
    assert set(read(Path("run/log/life.rec")).rows["action"][N_FIRST:-1]) == {0, 1, 2}
    assert relearned(Path("run"), Path("again")) == summary_of("run")["weights_sha256"]
    give("run", "last.csv", "--add about.toml")
    assert int(numbers_of("jump/g0/shows")[8]) > 100
    trained = open_trained(RunFolder(Path("run")), Console(quiet=True))
    assert trained is not None
    prediction = trained.horde.predictions[trained.horde.names.index("jump/g0/shows")]
    assert prediction == pytest.approx(1.0, abs=0.2)


def test_a_followed_file_goes_on_below_another_header(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is stopped, and the file goes on with the new sensor in another order."""
    for name, more, options in (
        ("plain", "second.csv", ""),
        ("run", "wider.csv", "--channels new:extra --columns more.toml"),
    ):
        log = folder / f"{name}.csv"
        log.write_text((folder / "first.csv").read_text())
        words = f"learn --data {log.name} --follow {LEARN} --out {name} --steps {N_FIRST - 1}"
        assert run(words, monkeypatch) == 0
        with log.open("a") as file:
            file.write((folder / more).read_text())
        assert run(f"resume {name} {options} --steps 200", monkeypatch) == 0
        assert run(f"resume {name} --steps {N_ROWS - 1}", monkeypatch) == 0
    same("run", "plain")
    readings = read(Path("run/log/life.rec")).rows["observation"][N_FIRST:, 2]
    assert not np.isnan(readings).any()


def test_columns_that_are_not_named_or_do_not_fit_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An invalid row far down leaves the run as it was, too."""
    begin("run", monkeypatch)
    texts = {
        "narrow.csv": rows().csv(("t", "x", "a", "p"), N_FIRST, N_ROWS),
        "invalid.csv": rows().csv(NEW, N_FIRST, N_ROWS) + "oops,0,0,99,0,1\n",
        "ranges.toml": columns("extra", "y", "x").replace("high = 1.0", "high = 2.0"),
        "period.toml": columns("x", "y", "extra").replace("period_s = 0.1", "period_s = 0.2"),
        "numbers.toml": columns("x", "y", actions=("right", "left", "jump")),
        "rewards.toml": columns("x", "y", "extra") + "transition = true\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    refusals: dict[str, tuple[str, ...]] = {
        "--data narrow.csv": ("no y any more", "lost:y", "--channels"),
        "--data wider.csv --columns more.toml": ("has extra besides", "new:extra", "--channels"),
        "--data second.csv --channels new:extra": ("new:extra", "must have it"),
        "--data second.csv --channels lost:y": ("lost:y", "must not"),
        "--data wider.csv --channels new:extra,lost:z": ("lost:z", "the record must have it"),
        "--data wider.csv --channels extra": ("write new:NAME",),
        "--channels new:extra": ("further rows", "--data"),
        "--data wider.csv --channels new:extra --columns ranges.toml": (
            "high",
            "'y'",
            "2.0",
            "1.0",
        ),
        "--data wider.csv --channels new:extra --columns period.toml": ("period_s", "0.2", "0.1"),
        "--data second.csv --actions new:jump --columns numbers.toml": (
            "right, left, jump",
            "left, right",
        ),
        "--data wider.csv --channels new:extra --columns rewards.toml": (
            "new:extra",
            "transitions",
        ),
        "--data invalid.csv --channels new:extra": ("invalid.csv", "row 181", "'oops'"),
        "--data wider.csv --channels new:extra --compare-frozen": ("--compare-frozen", "omit it"),
        "--data - --channels new:extra": ("range", "run/columns.toml", "--columns"),
        "--data wider.csv --channels new:extra --tilings first.csv": ("--tilings first.csv",),
        "--data wider.csv --tilings tilings.toml": ("unknown channel 'extra'",),
        "--data wider.csv --add none.toml": ("none.toml",),
    }
    for options, facts in refusals.items():
        line = refused(["resume", "run", *options.split()], capsys, is_alone=False)
        assert states(line, *facts), line
    # Then as if nothing had been tried
    begin("plain", monkeypatch)
    give = Given(folder, monkeypatch)
    give.table("plain", "second.csv", "")
    give.table("run", "wider.csv", "--channels new:extra --columns more.toml")
    same("run", "plain")
    with pytest.raises(BadInput, match="new:x"):
        StreamRun.resume("plain", channels="new:x")


def test_an_import_that_was_killed_is_begun_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file with the further rows is there, and the event after them is not."""
    begin("plain", monkeypatch)
    begin("run", monkeypatch)
    give = Given(folder, monkeypatch)
    give.table("run", "wider.csv", "--channels new:extra")
    killed = Path("killed")
    begin("killed", monkeypatch)
    for file in record_files(RunFolder(Path("run")).life):
        (killed / "log" / file.name).write_bytes(file.read_bytes())
    assert len(record_files(RunFolder(killed).life)) == 2
    give.table("killed", "second.csv", "")
    give.table("plain", "second.csv", "")
    same("killed", "plain")
    assert len(record_files(RunFolder(killed).life)) == 1
