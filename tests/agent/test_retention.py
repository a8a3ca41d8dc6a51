"""Retention: a life of 30 days that keeps three ends as one that keeps all, and says what it cannot do any more."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest

from horde_agent.cli import learn
from horde_agent.record import kinds, read, snapshots
from horde_agent.record.segments import read_header, record_files
from horde_agent.runs.config import Keep
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.retention import Retention
from horde_agent.scoring import excursion_table, two_pass_nmsre
from horde_agent.scoring.excursion_table import FORMAT as EXCURSIONS
from horde_agent.scoring.excursion_table import ExcursionTable, folded_place
from horde_agent.scoring.two_pass_nmsre import policy_scores
from tests.agent.commands import flip, horde, refused, summary_of
from tests.agent.doubles import ToyBody
from tests.facts import states

PERIOD_S = 600.0
DAY = 144
"""Steps of a day; a file of rows has six, an hour of them."""
OWN = """
[[family]]
policies = ["left"]
gammas = [0.5]
channels = ["saw"]
"""
TABLES = ("questions.csv", "learning_curve.csv", "mspbe_curve.csv", "traces.csv")


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    """Let files of excursions have eight, and the curve of a block a point for every two."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(excursion_table, "BLOCK", 8)
        patch.setattr(two_pass_nmsre, "EVERY", 2)
        yield


DURATIONS = ("wall_s", "compile_s", "steps_per_s", "_ms")


def slow_body(_config: object) -> ToyBody:
    """Return a body of which a step lasts ten minutes."""
    body = ToyBody()
    body.metadata = {**body.metadata, "period_s": PERIOD_S}
    return body


def lived(run: Path, options: str = "") -> Path:
    """Live 30 days, with a stop and a snapshot after 20 and 25 of them."""
    words = f"--horizon 8 --snapshot-every 1h {options} --steps {20 * DAY}"
    assert horde("learn", words, f"--out {run}") == 0
    for days in (25, 30):
        assert horde(f"resume {run} --steps {days * DAY}") == 0
    return run


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two lives, of which one keeps three days and archives the others."""
    folder = tmp_path_factory.mktemp("lives")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learn, "make_env", slow_body)
        lived(folder / "whole")
        lived(folder / "kept", "--keep 3d --archive")
    return folder


def test_a_life_that_keeps_three_days_ends_as_one_that_keeps_all(lives: Path) -> None:
    short = RunFolder(lives / "kept")
    whole = RunFolder(lives / "whole")
    assert summary_of(short.path)["weights_sha256"] == summary_of(whole.path)["weights_sha256"]
    for name in TABLES:
        assert (short.path / name).read_bytes() == (whole.path / name).read_bytes()
    assert results_of(short.path) == results_of(whole.path)
    files = record_files(short.excursions)
    assert len(files) < len(record_files(whole.excursions)) - 3
    for file in files:
        assert file.read_bytes() == (whole.log / file.name).read_bytes()


def results_of(run: Path) -> dict[str, object]:
    """Return the summary and the details without durations."""
    results = summary_of(run) | json.loads((run / "details.json").read_text())
    return {name: results[name] for name in results if not name.endswith(DURATIONS)}


def test_rows_since_the_last_snapshot_but_one_stay_and_no_more_than_a_file(lives: Path) -> None:
    """That snapshot is of day 25, so five days stay, though three would do."""
    short = RunFolder(lives / "kept")
    rows = read(short.life).rows
    newest = read(RunFolder(lives / "whole").life, newest=len(rows)).rows
    np.testing.assert_array_equal(rows["step"], newest["step"])
    np.testing.assert_array_equal(rows["observation"], newest["observation"])
    counts = [snapshots.read_facts(path)["n_rows"] for path in snapshots.found(short.checkpoint)]
    n_needed = max(counts) - min(counts)
    assert n_needed > 5 * DAY - 50
    assert n_needed < len(rows) <= n_needed + 7
    assert short.n_removed == short.extent().n_rows - len(rows)
    (removed,) = [event for event in short.events.read().events if event["event"] == "removed"][-1:]
    assert removed["row"] == short.n_removed


def test_a_lost_first_line_of_excursions_is_written_again_by_what_stays(
    lives: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One file at a time, also the oldest that stays, and a missing one, which then has no excursions."""
    run = Path(shutil.copytree(lives / "kept", elsewhere / "run"))
    files = record_files(run / "log" / "excursions.rec")
    assert len(files) == 2
    for file in files:
        content = file.read_bytes()
        file.write_bytes(b"?" * 900 + content[900:])
        assert horde(f"doctor {run}") == 0
        assert "its first line was written again" in capsys.readouterr().out
        assert file.read_bytes() == content
    header = read_header(files[0], EXCURSIONS)
    files[0].unlink()
    assert horde(f"doctor {run}") == 0
    assert "it was missing, and was written without excursions" in capsys.readouterr().out
    assert read_header(files[0], EXCURSIONS) == header


def test_what_was_removed_is_in_the_archive(lives: Path) -> None:
    whole = read(RunFolder(lives / "whole").life).rows
    n_removed = RunFolder(lives / "kept").n_removed
    table = f"'{lives}/kept/archive/*.parquet'"
    archived = duckdb.sql(f"select step, age, action from {table} order by step, action").fetchall()
    expected = [
        (int(row["step"]), float(row["observation"][0]), int(row["action"]))
        for row in whole[:n_removed]
    ]
    assert archived == sorted(expected, key=lambda row: (row[0], row[2]))


def test_a_life_without_its_oldest_rows_is_examined_exported_and_reported(
    lives: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = lives / "kept"
    assert horde(f"doctor {run}") == 0
    assert "DAMAGED" not in capsys.readouterr().out
    tables = [(run / name).read_bytes() for name in TABLES]
    for name in (*TABLES, "summary.json"):
        (run / name).unlink()
    assert horde(f"report {run}") == 0
    assert [(run / name).read_bytes() for name in TABLES] == tables
    assert horde(f"export {run} --out exported") == 0


def test_what_was_folded_is_upgraded_and_found_damaged(
    lives: Path,
    elsewhere: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under the second format of all files it reads the same; with a flipped bit it is put aside, and scores go on."""
    run = RunFolder(Path(shutil.copytree(lives / "kept", elsewhere / "run")))
    for kind in kinds.KINDS:
        monkeypatch.setattr(kind, "readers", [kinds.Reader(lambda content: content)])
    assert horde(f"upgrade {run.path}") == 0
    (folded,) = snapshots.found(folded_place(run.excursions))
    assert snapshots.read_manifest(folded)["version"] == 2
    tables = [(run.path / name).read_bytes() for name in TABLES]
    for name in (*TABLES, "summary.json"):
        (run.path / name).unlink()
    assert horde(f"report {run.path}") == 0
    assert [(run.path / name).read_bytes() for name in TABLES] == tables
    flip(folded / "small.bin", 7)
    capsys.readouterr()
    assert horde(f"doctor {run.path}") == 0
    assert f"{folded.name} is damaged" in capsys.readouterr().out.replace("/small.bin", "")
    assert not list(snapshots.found(folded_place(run.excursions)))
    n_left = sum(len(rows) for rows in ExcursionTable.read(run.excursions))
    assert (
        sum(one.n_excursions for one in policy_scores(ExcursionTable.read(run.excursions)))
        == n_left
    )


NEEDS_ALL = (
    "learn --backend replay --out again --log run",
    "learn --data run --out again",
    "features run",
    "resume run --steps 9999 --add own.toml --learn-from-record",
)


@pytest.mark.parametrize("command", NEEDS_ALL)
def test_what_needs_the_whole_record_is_refused(
    command: str,
    lives: Path,
    elsewhere: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learn, "make_env", slow_body)
    shutil.copytree(lives / "kept", elsewhere / "run")
    (elsewhere / "own.toml").write_text(OWN)
    n_removed = RunFolder(elsewhere / "run").n_removed
    line = refused(command.split(), capsys)
    assert states(line, "run cannot", f"first {n_removed:,} rows", "--keep", "`horde export`")


def test_a_life_without_its_oldest_rows_goes_on_from_snapshots_alone(
    lives: Path,
    elsewhere: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the older one too; without any it says that the rows that it would start with are gone."""
    monkeypatch.setattr(learn, "make_env", slow_body)
    run = Path(shutil.copytree(lives / "kept", elsewhere / "run"))
    newest, _ = snapshots.found(run / "checkpoint")
    flip(newest / "small.bin", 7)
    assert horde(f"resume {run} --steps {30 * DAY + 10}") == 0
    assert summary_of(run)["steps"] == 30 * DAY + 10
    for path in snapshots.found(run / "checkpoint"):
        flip(path / "small.bin", 7)
    (run / "summary.json").unlink()
    for command in ("report run", "resume run --steps 9999"):
        line = refused(command.split(), capsys, is_alone=False)
        assert states(line, "run cannot be", "from its start", "were removed (--keep)")


def test_a_duration_keeps_the_files_that_reach_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last row is of hour 10, so four hours begin with that of step 36, the first one of the seventh file."""
    monkeypatch.setattr(learn, "make_env", slow_body)
    run = RunFolder(tmp_path / "run")
    assert horde(f"learn --horizon 8 --steps 60 --out {run.path}") == 0
    Retention(run, Keep(duration_s=4 * 3600.0), is_archived=False).apply(step=60)
    assert read(run.life).rows["step"][0] == 36
    Retention(run, Keep(duration_s=3.9 * 3600.0), is_archived=False).apply(step=60)
    assert read(run.life).rows["step"][0] == 36


def test_a_size_keeps_the_newest_files_that_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files have six rows; that being written stays, and the one with the last row before the snapshot."""
    monkeypatch.setattr(learn, "make_env", slow_body)
    run = RunFolder(tmp_path / "run")
    assert horde(f"learn --horizon 8 --steps 60 --out {run.path}") == 0
    assert len(record_files(run.life)) == 11
    sizes = [file.stat().st_size for file in record_files(run.life)]
    keep = Keep(n_bytes=float(sum(sizes[-4:])))
    Retention(run, keep, is_archived=False).apply(step=60)
    assert [file.name for file in record_files(run.life)] == [
        f"life-{number}.rec" for number in (8, 9, 10, 11)
    ]
    Retention(run, Keep(n_bytes=1.0), is_archived=False).apply(step=60)
    assert [file.name for file in record_files(run.life)] == ["life-10.rec", "life-11.rec"]


def test_a_life_keeps_what_its_latest_resume_said(
    lives: Path,
    elsewhere: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It kept all; from day 30 on one day, also when the next resume does not say so, and from day 32 on all again."""
    monkeypatch.setattr(learn, "make_env", slow_body)
    shutil.copytree(lives / "whole", elsewhere / "whole")
    shutil.copytree(lives / "whole", elsewhere / "run")
    days_left = []
    for days, options in ((31, "--keep 1d"), (32, "--archive"), (33, "--keep all")):
        for name, further in (("whole", ""), ("run", options)):
            assert horde(f"resume {name} --steps {days * DAY} {further}") == 0
        first_step = int(read(RunFolder(elsewhere / "run").life).rows["step"][0])
        days_left.append(round(days - first_step / DAY, 1))
    assert days_left == [1.0, 1.0, 2.0]
    assert 20 < len(list(Path("run/archive").iterdir())) < 28  # the files of a day
    facts = snapshots.read_facts(next(snapshots.found(Path("run/checkpoint"))))
    assert facts["keep"] is None
    assert summary_of("run")["weights_sha256"] == summary_of("whole")["weights_sha256"]
    for name in TABLES:
        assert Path("run", name).read_bytes() == Path("whole", name).read_bytes()
    assert horde("doctor run") == 0
    for words, facts in {
        "--keep 1h": ("--keep 1h is less than a resume needs", "2h"),
        "--keep much": ("--keep much is neither a duration nor a size",),
        "--archive": ("--archive", "give --keep"),
    }.items():
        line = refused(["resume", "run", "--steps", str(34 * DAY), *words.split()], capsys)
        assert states(line, *facts)
