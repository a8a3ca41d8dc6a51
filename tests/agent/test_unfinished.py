"""`horde report` learns missing tables from the log, bit for bit."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from horde_agent import cli
from horde_agent.life.learner import StreamLearner
from horde_agent.life.observers import Sampler
from horde_agent.record import FORMAT, Phase, Recorder, read, snapshots
from horde_agent.record.segments import read_segment, record_files, sealed
from horde_agent.runs.sources.relearn import relearn_tables
from horde_agent.runs.storage.folder import RunFolder
from tests.agent.commands import flip, summary_of, toy
from tests.agent.test_snapshots import keep_each, steps_kept
from tests.facts import states

TIMED = {
    "wall_s",
    "steps_per_s",
    "learn_ms",
    "cycle_ms",
    "deadlines_missed",
    "crc_errors",
    "stopped_early",
}
"""Values that are not in a log."""
TABLES = (
    "summary.json",
    "details.json",
    "questions.csv",
    "learning_curve.csv",
    "mspbe_curve.csv",
    "traces.csv",
)

OWN = """
[[family]]
policies = ["left", "uniform"]
gammas = [0.5, 0.9]

[[feedback]]
questions = ["left/g0.9/saw"]
intervals = [8]
tilings = 4
"""


@pytest.fixture(scope="module", autouse=True)
def _often() -> Iterator[None]:
    """Sample the MSPBE so often that some samples fall due within a drive."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sampler.__init__, "__defaults__", (5,))
        yield


def lived(path: Path, words: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Live in a toy body that breaks now and then, and return the run's folder."""
    faults: dict[int, dict[str, Any]] = {
        100: {"gap": 1},
        300: {"applied": 0},
        500: {"stale": 1, "gap": 1},
    }
    assert (
        toy(
            f"learn --steps 700 --horizon 8 --seed 1 {words} --out {path}",
            monkeypatch,
            faults=faults,
        )
        == 0
    )
    return path


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        return lived(tmp_path_factory.mktemp("runs") / "life", "", patch)


@pytest.fixture
def cut(life: Path, tmp_path: Path) -> Path:
    """The life, killed before it could write its tables."""
    return without_tables(life, tmp_path)


def without_tables(run: Path, tmp_path: Path) -> Path:
    shutil.copytree(
        run, tmp_path / "cut", ignore=shutil.ignore_patterns(*TABLES, "*.png", "*.html")
    )
    return tmp_path / "cut"


def known(run: Path) -> dict[str, Any]:
    """Return the values of a summary that a log determines."""
    return {key: value for key, value in summary_of(run).items() if key not in TIMED}


@pytest.mark.parametrize("is_damaged", [False, True])
def test_the_tables_of_a_life_that_was_killed_are_made_from_its_log(
    is_damaged: bool, life: Path, cut: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From its snapshot on, or from the beginning if that is damaged."""
    if is_damaged:
        part = max(
            next(snapshots.found(cut / "checkpoint")).glob("*.npy"),
            key=lambda file: file.stat().st_size,
        )
        flip(part, part.stat().st_size // 2)
    capsys.readouterr()
    assert cli.main(["report", str(cut)]) == 0

    out, err = capsys.readouterr()
    assert ("from its snapshot at" in err) is not is_damaged
    assert known(cut) == known(life)
    assert summary_of(cut)["gaps"] == 2  # the body's, not those of drives and resets
    assert summary_of(cut)["stopped_early"] is True
    assert summary_of(cut)["wall_s"] is summary_of(cut)["crc_errors"] is None
    for table in ("questions.csv", "learning_curve.csv", "mspbe_curve.csv", "traces.csv"):
        assert (cut / table).read_bytes() == (life / table).read_bytes(), table
    page = (cut / "report.html").read_text()
    assert "cut (unfinished)</h1>" in page
    assert "cut off after 700 of 700 steps" in page
    assert out == f"{cut / 'report.html'}\n"


@pytest.mark.parametrize(
    "words",
    ["", "--realtime", "--questions own.toml", "--questions nexting"],
    ids=["deferred", "eager", "fed back", "on-policy"],
)
def test_a_life_that_was_killed_is_learned_from_its_snapshot_on(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever it is, the tables are those of the life that was not; no row before it is learned from again."""
    monkeypatch.setattr(snapshots.prune, "__kwdefaults__", {"kept": 99})
    keep_each(60, monkeypatch)
    (tmp_path / "own.toml").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    life = lived(tmp_path / "life", f"{words} --snapshot-every 1s", monkeypatch)
    (tmp_path / "own.toml").unlink()  # the run has its own copy
    steps = steps_kept(life)
    assert len(steps) >= (6 if "--realtime" in words else 10)  # in real time only before a drive
    capsys.readouterr()
    for step in steps[:: max(len(steps) // 2, 1)]:
        cut = without_tables(life, tmp_path / str(step))
        for other in snapshots.found(cut / "checkpoint"):
            if int(other.name) != step:
                shutil.rmtree(other)
        assert cli.main(["report", str(cut)]) == 0
        assert f"from its snapshot at step {step:,} on: " in capsys.readouterr().err
        assert known(cut) == known(life)
        tables = ["questions.csv", "learning_curve.csv", "mspbe_curve.csv"]
        for table in [*tables, *([] if "nexting" in words else ["traces.csv"])]:
            assert (cut / table).read_bytes() == (life / table).read_bytes(), table


@pytest.fixture(scope="module")
def in_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run recorded in eight files, with a snapshot in the middle, and drives and excursions before and after."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(Recorder.__init__.__kwdefaults__, "segment_s", 9.0)
        keep_each(350, patch)
        run = lived(tmp_path_factory.mktemp("runs") / "life", "--snapshot-every 1s", patch)
    last, _ = snapshots.found(run / "checkpoint")
    shutil.rmtree(last)
    assert len(record_files(run / "log" / "life.rec")) == 8
    return run


def kill_after(run: Path, n_rows: int) -> None:
    for file in record_files(run / "log" / "life.rec"):
        segment = read_segment(file, FORMAT)
        n = n_rows - segment.header.get("first", 0)
        if n <= 0 and file.name != "life.rec":
            file.unlink()
        elif n < len(segment.records):
            with file.open("rb+") as opened:
                opened.truncate(segment.header["offset"] + n * segment.records.itemsize)


def n_within(rows: np.ndarray, known: int, phase: Phase) -> int:
    """Return the number of rows up to the middle of a drive or an excursion, at least 90 rows after `known`."""
    within = np.flatnonzero(
        (rows["phase"][known + 90 :] == phase) & (rows["phase"][known + 89 : -1] == phase)
    )
    return known + 90 + int(within[0]) + 1


def tables_of(run: Path) -> dict[str, str]:
    """Learn from a record again, and return all that was written."""
    relearn_tables(RunFolder(run), Console(quiet=True))
    return {table: (run / table).read_text() for table in TABLES}


@pytest.mark.parametrize("killed", [None, Phase.CENTRE, Phase.EXCURSION])
def test_learning_from_a_snapshot_and_from_the_beginning_gives_the_same_tables(
    in_files: Path, tmp_path: Path, killed: Phase | None
) -> None:
    """Both results are those at the last recorded row: of the snapshot, or within a drive or an excursion after it.

    From the snapshot, files of the recording before it are not read: they may have been moved.
    """
    runs = [without_tables(in_files, tmp_path / name) for name in "ab"]
    (snapshot,) = snapshots.found(in_files / "checkpoint")
    n = int(snapshots.read(snapshot).facts["n_rows"])
    if killed is not None:
        n = n_within(read(in_files / "log" / "life.rec").rows, n, killed)
    for run in runs:
        kill_after(run, n)
    shutil.rmtree(runs[1] / "checkpoint")
    for file in record_files(runs[0] / "log" / "life.rec")[:3]:
        file.unlink()
    one, another = (tables_of(run) for run in runs)
    for table in TABLES:
        assert one[table] == another[table], table


def test_reports_of_a_running_life_have_its_steps_and_do_not_change_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The snapshot is older than the excursions: these are not truncated. The final tables do not change later."""
    run = tmp_path / "run"
    steps = list[int]()
    keep_each(150, monkeypatch)

    def report(age: int) -> None:
        if age in (300, 600):
            content = (run / "log" / "excursions.rec").read_bytes()
            assert cli.main(["report", str(run)]) == 0
            assert (run / "log" / "excursions.rec").read_bytes() == content
            steps.append(summary_of(run)["steps"])
            assert f"cut off after {steps[-1]} of 700 steps" in (run / "report.html").read_text()

    words = f"learn --steps 700 --horizon 8 --seed 1 --snapshot-every 1s --out {run}"
    assert toy(words, monkeypatch, on_step=report) == 0
    err = capsys.readouterr().err
    assert "has steps after its tables were written" in err
    assert re.search(r"from its snapshot at step \d+ on: \d+ rows", err)
    assert 150 <= steps[0] <= 300 < steps[1] <= 600  # steps on disk by then
    assert summary_of(run)["steps"] == 700
    texts = {table: (run / table).read_text() for table in TABLES}
    assert cli.main(["report", str(run)]) == 0
    assert {table: (run / table).read_text() for table in TABLES} == texts
    assert capsys.readouterr().err == ""


def test_added_and_removed_questions_are_in_the_tables_of_a_killed_run(
    life: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    new = tmp_path / "new.toml"
    new.write_text('[[family]]\npolicies = ["right"]\ngammas = [0.3]\n')
    shutil.copytree(life, run)
    assert toy(f"resume {run} --steps 900 --add {new} --remove left/g0/*", monkeypatch) == 0
    cut = without_tables(run, tmp_path)
    assert cli.main(["report", str(cut)]) == 0
    tables = [
        csv.DictReader((path / "questions.csv").read_text().splitlines()) for path in (run, cut)
    ]
    nmsre_by_name = [{row["name"]: row["nmsre"] for row in table} for table in tables]
    assert nmsre_by_name[0] == nmsre_by_name[1]
    assert any(name.startswith("right/g0.3/") for name in nmsre_by_name[0])
    assert not any(name.startswith("left/g0/") for name in nmsre_by_name[0])


def test_a_log_that_ends_in_the_middle_of_a_row_before_the_snapshot_is_learned_from_up_to_there(
    life: Path, cut: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after SIGKILL: the last buffer is lost, no row says that the life ended."""
    whole = (cut / "log" / "life.rec").read_bytes()
    rows = read(life / "log" / "life.rec").rows
    (cut / "log" / "life.rec").write_bytes(whole[: len(whole) - 300 * rows.itemsize - 11])

    assert cli.main(["report", str(cut)]) == 0
    assert "from its snapshot at" not in capsys.readouterr().err
    assert summary_of(cut)["steps"] == rows["step"][-302]
    assert summary_of(cut)["weights_sha256"] != summary_of(life)["weights_sha256"]
    page = (cut / "report.html").read_text()
    assert f"cut off after {rows['step'][-302]} of 700 steps" in page
    assert f"{rows.itemsize - 11} bytes of a row are left out" in page
    assert cli.main(["report", str(cut)]) == 0
    assert "cut (unfinished)</h1>" in (cut / "report.html").read_text()


@pytest.mark.parametrize("table", ["questions.csv", "learning_curve.csv"])
def test_a_missing_table_is_learned_again_and_no_other_changes(
    life: Path, tmp_path: Path, table: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(life, run)
    (run / table).unlink()
    summary = (run / "summary.json").read_text()

    assert cli.main(["report", str(run)]) == 0
    assert (run / table).read_bytes() == (life / table).read_bytes()
    assert (run / "summary.json").read_text() == summary
    page = (run / "report.html").read_text()
    assert f"{table} was missing and was learned again from the log" in page
    assert "unfinished" not in page


def test_weights_of_another_version_are_noted(life: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(life, run)
    (run / "questions.csv").unlink()
    (run / "summary.json").write_text(
        json.dumps(summary_of(life) | {"weights_sha256": "0" * 64, "version": "0.0.9"})
    )

    assert cli.main(["report", str(run)]) == 0
    assert "which version 0.0.9 wrote" in (run / "report.html").read_text()


def test_missing_excursions_are_recorded_again(life: Path, cut: Path) -> None:
    (cut / "log" / "excursions.rec").unlink()
    assert cli.main(["report", str(cut)]) == 0
    assert (cut / "log" / "excursions.rec").read_bytes() == (
        life / "log" / "excursions.rec"
    ).read_bytes()


def test_learning_again_that_is_interrupted_leaves_the_run_as_it_was(
    life: Path, cut: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a run without excursions, which are recorded beside their place until all rows are learned from."""
    shutil.rmtree(cut / "checkpoint")
    (cut / "log" / "excursions.rec").unlink()
    content = {file: file.read_bytes() for file in sorted(cut.rglob("*")) if file.is_file()}
    observe = StreamLearner.observe

    def interrupted(student: StreamLearner, *given: Any, **named: Any) -> None:
        if student.learning_steps == 300:
            raise KeyboardInterrupt
        observe(student, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(StreamLearner, "observe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            relearn_tables(RunFolder(cut), Console(quiet=True))
    assert {file: file.read_bytes() for file in sorted(cut.rglob("*")) if file.is_file()} == content
    assert cli.main(["report", str(cut)]) == 0
    assert known(cut) == known(life)
    for name in ("learning_curve.csv", "log/excursions.rec"):
        assert (cut / name).read_bytes() == (life / name).read_bytes()


@pytest.mark.parametrize("at", ["after a snapshot", "from the beginning", "at the first row"])
def test_learning_again_ends_at_an_invalid_row(
    in_files: Path, tmp_path: Path, at: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """If there is nothing before it, the log is refused."""
    run = without_tables(in_files, tmp_path)
    files = record_files(run / "log" / "life.rec")
    if at == "at the first row":
        file = files[0]
    else:
        file = files[-1]
    rows = read_segment(file, FORMAT).records
    (k,) = (
        np.flatnonzero(
            (rows["phase"][1:-1] == Phase.BEHAVE) & (rows["phase"][:-2] == Phase.BEHAVE)
        )[20:21]
        + 1
    )
    k = 0 if file == files[0] else int(k)
    rows["observation"][k] = 2.0
    offset = int(read_segment(file, FORMAT).header["offset"])
    file.write_bytes(file.read_bytes()[:offset] + sealed(rows))
    if at != "after a snapshot":
        shutil.rmtree(run / "checkpoint")
    assert cli.main(["report", str(run)]) == (2 if k == 0 else 0)
    if k == 0:
        assert states(capsys.readouterr().err, "life.rec", "observation", "[0, 1]")
    else:
        reached = rows["step"][k - 1]
        sentence = f"is damaged after step {reached}, and learned from up to there"
        assert sentence in (run / "report.html").read_text()
        assert summary_of(run)["steps"] == reached
