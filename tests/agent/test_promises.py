"""What a run's folder promises: later formats read it, an earlier program refuses it, and it is upgraded or left.

The present formats stand for the second ones here. `aged` writes a folder as their invented first
ones would have been, and `READERS` make these the second: rows and excursions of other sizes,
headers, facts, settings and questions under other names.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import shutil
import signal
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numba
import numpy as np
import pytest
from numpy.lib.recfunctions import rename_fields
from rich.console import Console

from horde_agent import cli
from horde_agent.horde import Horde
from horde_agent.processes import own_version
from horde_agent.record import kinds, read, snapshots
from horde_agent.record.kinds import Content, Kind, Reader
from horde_agent.record.segments import (
    encode_header,
    read_header,
    read_segment,
    record_files,
    sealed,
)
from horde_agent.record.stamps import stamped_files
from horde_agent.runs.storage.event_log import EventLog, encode_event
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.one_place import lived_once, parted_at
from horde_agent.runs.storage.resume import open_trained
from horde_agent.scoring.excursion_table import ExcursionTable
from tests.agent.commands import (
    QUESTIONS,
    edited_manifest,
    files_of_at_most,
    flip,
    horde,
    refused,
    summary_of,
)
from tests.agent.kills import FORKS
from tests.agent.test_streams import COLUMNS, csv_lines, rows
from tests.facts import states
from tests.folders.__main__ import LIVES, table_lines

LIFE = "learn --physics planar --excursion-probability 0.05 --horizon 12 --seed 1 --snapshot-every never"


def renamed(table: dict[str, Any], name: str, new_name: str) -> dict[str, Any]:
    """Return a table with another name of a value, in the place of the first; unchanged without it."""
    names = {name: new_name}
    return {names.get(key, key): value for key, value in table.items()}


def with_types(records: Any, types: dict[str, str]) -> Any:
    """Return records with other types of some fields."""
    fields = []
    for name, kind, *shape in records.dtype.descr:
        fields.append((name, types.get(name, kind), *shape))
    return records.astype(np.dtype(fields))


def row_of_2(content: Content) -> Content:
    records = rename_fields(with_types(content.body, {"phase": "u1"}), {"probability": "b"})
    return Content(renamed(content.head, "period", "period_s"), records)


def row_of_1(content: Content) -> Content:
    records = with_types(rename_fields(content.body, {"b": "probability"}), {"phase": "<i8"})
    return Content(renamed(content.head, "period_s", "period"), records)


def excursion_of_2(content: Content) -> Content:
    return Content(
        renamed(content.head, "targets", "policies"), with_types(content.body, {"action": "<i4"})
    )


def excursion_of_1(content: Content) -> Content:
    return Content(
        renamed(content.head, "policies", "targets"), with_types(content.body, {"action": "<i8"})
    )


def head_of_2(name: str, new_name: str) -> Callable[[Content], Content]:
    return lambda content: Content(renamed(content.head, name, new_name), content.body)


def snapshot_of_2(content: Content) -> Content:
    return Content(
        renamed(content.head, "rows", "n_rows"),
        renamed(content.body, "life/counts/periods", "life/counts/steps"),
    )


READERS = {
    kinds.LIFE: row_of_2,
    kinds.EXCURSIONS: excursion_of_2,
    kinds.EVENTS: head_of_2("what", "event"),
    kinds.SNAPSHOT: snapshot_of_2,
    kinds.SETTINGS: head_of_2("first_seed", "seed"),
    kinds.QUESTIONS: head_of_2("families", "family"),
    kinds.COLUMNS: head_of_2("channels", "channel"),
    kinds.LIVE: lambda content: content,
}


def of_first_format(file: Path, kind: Kind, convert: Callable[[Content], Content]) -> None:
    """Write a file of records as it would be in the first format."""
    segment = read_segment(file, kind)
    header, records = convert(Content(segment.header, segment.records))
    records = records.copy()
    header = {name: header[name] for name in header if name not in ("offset", "crc")}
    header["dtype"] = records.dtype.descr
    file.write_bytes(encode_header(header) + sealed(records))


def aged(run: Path) -> None:
    """Write a folder in the first formats; its stamps say so."""
    folder = RunFolder(run)
    for file in record_files(folder.life):
        of_first_format(file, kinds.LIFE, row_of_1)
    for file in record_files(folder.excursions):
        of_first_format(file, kinds.EXCURSIONS, excursion_of_1)
    events = []
    for event in folder.events.read().events:
        del event["crc"]
        events.append(encode_event(renamed(event, "event", "what")))
    folder.events.path.write_text("".join(events))
    digests = {}
    for file, now, then in (
        (folder.config, "\nseed =", "\nfirst_seed ="),
        (folder.question_file, "[[family]]", "[[families]]"),
        (folder.columns, "[[channel]]", "[[channels]]"),
    ):
        if not file.is_file():
            continue
        content = file.read_text()
        assert now in content
        file.write_text(content.replace(now, then))
        digests[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    lines = {**folder.sealed().digests, **digests}.items()
    folder.sums.write_text("".join(f"{digest}  {name}\n" for name, digest in lines))
    for path in snapshots.found(folder.checkpoint):
        with edited_manifest(path) as manifest:
            manifest["facts"]["rows"] = manifest["facts"].pop("n_rows")
            manifest["facts"]["asked"] = digests
            (counter,) = [
                place for place in manifest["small"] if place["name"] == "life/counts/steps"
            ]
            counter["name"] = "life/counts/periods"


def write_second_formats() -> None:
    for kind, convert in READERS.items():
        kind.readers.append(Reader(convert))


@pytest.fixture
def second_formats() -> Iterator[None]:
    """Let this program be one that writes the second formats and reads the first."""
    write_second_formats()
    yield
    for kind in READERS:
        kind.readers.pop()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A life of 300 steps with two snapshots and questions of its own."""
    folder = tmp_path_factory.mktemp("lives")
    (folder / "own.toml").write_text(QUESTIONS)
    run = folder / "sound"
    assert horde(LIFE, f"--steps 200 --questions {folder / 'own.toml'} --out {run}") == 0
    assert horde(f"resume {run} --steps 300") == 0
    return run


@pytest.fixture(scope="module")
def old(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same life, as a program of the first formats would have written it."""
    run = Path(shutil.copytree(sound, tmp_path_factory.mktemp("lives") / "old"))
    aged(run)
    return run


def first_line(file: Path) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(file.read_bytes().split(b"\n", 1)[0])
    return line


def copied(run: Path, place: Path) -> Path:
    return Path(shutil.copytree(run, place))


def results(run: Path) -> list[bytes]:
    """Return the tables of a run, and its rows and excursions without the wall clock."""
    tables = [(run / name).read_bytes() for name in ("questions.csv", "learning_curve.csv")]
    rows = read(run / "log/life.rec").rows.copy()
    rows["unix_s"] = 0
    rows["crc"] = 0
    excursions = [piece.tobytes() for piece in ExcursionTable.read(run / "log/excursions.rec")]
    return [*tables, summary_of(run)["weights_sha256"].encode(), rows.tobytes(), *excursions]


pytestmark = pytest.mark.sim


def test_a_folder_of_the_first_formats_is_no_folder_of_the_second(old: Path) -> None:
    """Without the readers, what the first formats name otherwise is missing."""
    with pytest.raises(ValueError, match="lack b"):
        read(old / "log/life.rec")
    assert horde(f"resume {old} --steps 301") == 2


@pytest.mark.usefixtures("second_formats")
def test_doctor_finds_a_folder_of_older_formats_sound(
    old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert horde(f"doctor {old}") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 10
    assert [line for line in lines if not line.startswith("sound")] == []


def test_a_torn_row_of_an_older_format_is_cut_off_by_its_size_there(
    old: Path, tmp_path: Path, second_formats: None
) -> None:
    """By the size of the present rows, 7 bytes less, whole rows would be cut off too."""
    run = copied(old, tmp_path / "run")
    file = run / "log/life.rec"
    whole = file.read_bytes()
    file.write_bytes(whole + b"torn")
    assert horde(f"doctor {run}") == 0
    assert file.read_bytes() == whole


@pytest.mark.usefixtures("second_formats")
def test_older_formats_give_the_same_report_and_replay(
    sound: Path, old: Path, tmp_path: Path
) -> None:
    run = copied(old, tmp_path / "run")
    for table in (*run.glob("*.csv"), *run.glob("*.json"), run / "report.html"):
        table.unlink()
    assert horde(f"report {run}") == 0
    assert results(run) == results(sound)
    assert horde(f"learn --backend replay --log {run} --out {tmp_path / 'again'}") == 0
    assert summary_of(tmp_path / "again")["weights_sha256"] == summary_of(sound)["weights_sha256"]


def test_a_life_of_older_formats_is_resumed_to_the_bit(
    sound: Path, old: Path, tmp_path: Path
) -> None:
    """Its rows and excursions go on in further files; a second resume finds them."""
    expected = copied(sound, tmp_path / "expected")
    assert horde(f"resume {expected} --steps 400") == 0
    run = copied(old, tmp_path / "run")
    write_second_formats()
    try:
        assert horde(f"resume {run} --steps 350") == 0
        assert horde(f"resume {run} --steps 400") == 0
        resumed = results(run)
        versions = [first_line(file)["version"] for file in record_files(run / "log/life.rec")]
    finally:
        for kind in READERS:
            kind.readers.pop()
    assert resumed == results(expected)
    assert versions == [1, 2]


def test_a_run_on_data_of_older_formats_continues_with_further_rows_to_the_bit(
    elsewhere: Path,
) -> None:
    """The last row of the first table is written again, in a new file, with the action that the second one has."""
    lines = csv_lines(rows())
    (elsewhere / "first.csv").write_text("\n".join(lines[:151]) + "\n")
    (elsewhere / "second.csv").write_text("\n".join([lines[0], *lines[151:]]) + "\n")
    (elsewhere / "columns.toml").write_text(COLUMNS)
    assert horde("learn --data first.csv --columns columns.toml --horizon 8 --out now") == 0
    copied(Path("now"), elsewhere / "old")
    aged(Path("old"))
    assert horde("resume now --data second.csv") == 0
    write_second_formats()
    try:
        assert horde("resume old --data second.csv") == 0
        continued = results(Path("old"))
        files = record_files(Path("old/log/life.rec"))
    finally:
        for kind in READERS:
            kind.readers.pop()
    assert continued == results(Path("now"))
    assert [first_line(file)["version"] for file in files] == [1, 2]


# ---- stored folders -------------------------------------------------------------------------------------------------

STORED = sorted((Path(__file__).parents[1] / "folders").glob("*/*.tar.xz"))


def test_a_small_folder_of_each_source_is_stored_of_this_version() -> None:
    version = own_version().partition(".dev")[0]
    sizes = {file.name: file.stat().st_size for file in STORED if file.parent.name == version}
    assert sizes.keys() == {f"{name}.tar.xz" for name in LIVES}, "run python -m tests.folders"
    assert sum(sizes.values()) < 500_000


def name_of(file: Path) -> str:
    return f"{file.parent.name}/{file.name}"


def unpacked(file: Path, folder: Path) -> Path:
    with tarfile.open(file) as archive:
        archive.extractall(folder, filter="data")
    return folder / file.name.removesuffix(".tar.xz")


@pytest.mark.parametrize("file", STORED, ids=name_of)
def test_each_command_reads_the_folders_of_each_released_version(
    file: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Results may differ from those of then by rounding; rows do not, and no row is left out."""
    run = unpacked(file, elsewhere)
    summary = summary_of(run)
    n_rows = len(read(run / "log/life.rec"))
    assert n_rows >= 60

    assert horde(f"doctor {run}") == 0
    states_of_files = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert states_of_files <= {"sound", "differs"}
    for table in (*run.glob("*.csv"), *run.glob("*.json")):
        table.unlink()
    assert horde(f"report {run}") == 0
    assert summary_of(run)["steps"] >= summary["steps"]
    assert horde(f"learn --backend replay --log {run} --out {elsewhere / 'again'}") == 0
    assert summary_of(elsewhere / "again")["n_questions"] == summary["n_questions"]
    assert horde(f"export {run} --out exported") == 0
    exported = duckdb.sql("select count(*) from 'exported/**/*.parquet'").fetchall()
    assert exported == [(n_rows,)]


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, marks=[pytest.mark.slow] * file.name.startswith("shards"))
        for file in STORED
    ],
    ids=name_of,
)
def test_the_lives_of_each_released_version_go_on(
    file: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = unpacked(file, elsewhere)
    steps = summary_of(run)["steps"]
    words = f"--steps {steps + 20}"
    if file.name.startswith("data"):  # whose rows are all there
        words = ""
    if file.name.startswith("stream"):
        lines = "\n".join(table_lines(seed=1))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
        words = "--data -"
    if file.name.startswith("shards"):
        pytest.importorskip("ray")
    assert horde(f"resume {run} {words}") == 0
    assert summary_of(run)["steps"] >= steps + 20


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, marks=[pytest.mark.slow] * file.name.startswith("shards"))
        for file in STORED
    ],
    ids=name_of,
)
def test_second_formats_read_and_upgrade_the_first_of_each_source(
    file: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its rows are those of now, before and after the upgrade, which leaves no file of a first format."""
    run = unpacked(file, elsewhere)
    rows = read(run / "log/life.rec").rows.copy()
    aged(run)
    write_second_formats()
    try:
        for command in ("report", "upgrade", "doctor", "report"):
            if command == "report":  # from the record
                for table in (*run.glob("*.csv"), *run.glob("*.json")):
                    table.unlink()
            assert horde(f"{command} {run}") == 0, command
            read_rows = read(run / "log/life.rec").rows
            for name in rows.dtype.names or ():
                if name != "crc":
                    np.testing.assert_array_equal(read_rows[name], rows[name])
        versions = {stamped.kind.name: stamped.version for stamped in stamped_files(run)}
    finally:
        for kind in READERS:
            kind.readers.pop()
    assert {"horde-life", "horde-settings", "horde-snapshot"} <= versions.keys()
    assert set(versions.values()) == {2}
    assert "DAMAGED" not in capsys.readouterr().out


# ---- versions and the page of the formats ---------------------------------------------------------------------------


def test_a_snapshot_names_what_wrote_it_and_doctor_what_differs_here(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(sound, tmp_path / "run")
    newest = next(snapshots.found(run / "checkpoint"))
    with edited_manifest(newest) as manifest:
        facts = manifest["facts"]
        assert manifest["program"] == facts["version"] == own_version()
        assert {"numba", "numpy", "python", "processor"} < facts.keys()
        facts |= {"numba": "0.62.9", "python": "3.9.99"}
    capsys.readouterr()
    assert horde(f"doctor {run}") == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("sound")]
    (numba_line, python_line) = lines
    assert states(numba_line, "differs", newest.name, "numba 0.62.9", numba.__version__)
    assert states(python_line, "python 3.9.99", platform.python_version())


def test_the_page_of_the_formats_reads_what_the_program_does(elsewhere: Path) -> None:
    """Its blocks import nothing else; the predictions come from its weights, offsets, shifts and tiles."""
    page = Path(__file__).parents[2] / "docs" / "format.md"
    first, *blocks = re.findall(
        r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE
    )
    names: dict[str, Any] = {}
    exec(first, names)
    for block in blocks:
        exec(block, names)
    modules = set(re.findall(r"^(?:import|from) (\w+)", "".join(blocks), re.MULTILINE))
    assert modules <= {"numpy", *sys.stdlib_module_names}

    folder = RunFolder(Path("run"))
    rows = read(folder.life).rows
    assert names["rows"].tobytes() == rows.tobytes()
    assert names["sound"] == [True] * len(rows)
    assert names["events"] == folder.events.read().events
    run = open_trained(folder, Console(quiet=True))
    assert run is not None
    trained = run.horde
    assert [question["name"] for question in names["questions"]] == list(trained.names)
    assert isinstance(trained, Horde)
    averaged = trained.averaged_weights()
    assert np.count_nonzero(averaged.any(axis=1)) > 100
    np.testing.assert_array_equal(names["weights"]("average"), averaged)
    np.testing.assert_allclose(names["predictions"], trained.predictions, rtol=0, atol=1e-5)


# ---- a newer folder --------------------------------------------------------------------------------------------------


def newer_line(file: Path) -> None:
    kind = kinds.EXCURSIONS
    if file.name == "life.rec":
        kind = kinds.LIFE
    header = read_header(file, kind)
    records = file.read_bytes()[header["offset"] :]
    file.write_bytes(encode_header({**header, "version": 7, "program": "9.1"}) + records)


def newer_manifest(file: Path) -> None:
    with edited_manifest(file.parent) as manifest:
        manifest |= {"version": 7, "program": "9.1"}


def newer_event(file: Path) -> None:
    event = {"step": 5, "event": "gap", "version": 7, "program": "9.1"}
    EventLog(file).append(event)


def newer_table(file: Path) -> None:
    text = file.read_text()
    changed = text.replace("version = 1\n", "version = 7\n", 1)
    file.write_text(changed.replace(f'program = "{own_version()}"', 'program = "9.1"', 1))
    sums = RunFolder(file.parent).sums
    digests = RunFolder(file.parent).sealed().digests
    digests[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    sums.write_text("".join(f"{digest}  {name}\n" for name, digest in digests.items()))


NEWER: dict[str, Callable[[Path], None]] = {
    "log/life.rec": newer_line,
    "log/excursions.rec": newer_line,
    "log/events.jsonl": newer_event,
    "config.toml": newer_table,
    "questions.toml": newer_table,
    "checkpoint/000000000300/manifest.json": newer_manifest,
}
COMMANDS = (
    "doctor",
    "report",
    "export",
    "upgrade",
    "features",
    "watch",
    "evaluate --policy uniform",
    "resume --steps 400",
)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        *((name, "doctor") for name in NEWER),
        *(("log/life.rec", command) for command in COMMANDS[1:]),
        *(
            (name, "learn --backend replay --out again --log")
            for name in ("log/life.rec", "config.toml")
        ),
    ],
)
def test_a_newer_folder_is_refused_with_the_version_that_it_needs(
    name: str,
    command: str,
    sound: Path,
    elsewhere: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = copied(sound, elsewhere / "run")
    NEWER[name](run / name)
    words = command.split()
    if words[-1] == "--log":
        words.append("run")
    else:
        words.insert(1, "run")
    line = refused(words, capsys)
    file_name = name.removesuffix("/manifest.json").rsplit("/", 1)[-1]
    assert states(line, file_name, "version 7", own_version(), "up to 1", "9.1")


# ---- half a folder ---------------------------------------------------------------------------------------------------

HALVES = {
    "config.toml": ("contains no run", "config.toml is missing"),
    "questions.toml": ("questions.toml is missing", "sums.sha256 lists", "restore it"),
    "log": ("log/life.rec is missing",),
    "log/excursions.rec": ("log/excursions.rec is missing", "`horde doctor run` writes it again"),
}


@pytest.mark.parametrize("part", HALVES)
def test_half_a_folder_is_refused_in_a_sentence_that_names_what_is_missing(
    part: str, sound: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not called changed, and the doctor names the same file, once."""
    run = copied(sound, elsewhere / "run")
    if part == "log":
        shutil.rmtree(run / part)
    else:
        (run / part).unlink()
    line = refused(["resume", "run", "--steps", "400"], capsys)
    assert states(line, *HALVES[part]), line
    if part != "log/excursions.rec":
        assert horde("doctor run") == 1
        *_, last = capsys.readouterr().err.splitlines()
        names = (
            last.removeprefix("horde: damaged and not repairable: ").removesuffix(".").split(", ")
        )
        assert len(names) == len(set(names))
        assert part in names or (part == "log" and "log/life.rec" in names)
    if part in ("config.toml", "questions.toml"):
        assert states(refused(["upgrade", "run"], capsys), *HALVES[part])


# ---- upgrade ---------------------------------------------------------------------------------------------------------


def content_of(run: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a run; its lock has the number of the latest process."""
    return {
        str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def test_an_upgraded_life_is_the_same_life(
    sound: Path, old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It resumes to the bit, its files have the present formats, and a second upgrade changes nothing."""
    expected = copied(sound, tmp_path / "expected")
    assert horde(f"resume {expected} --steps 400") == 0
    run = copied(old, tmp_path / "run")
    write_second_formats()
    try:
        assert horde(f"upgrade {run}") == 0
        out, err = capsys.readouterr()
        assert "the comments in questions.toml" in err
        upgraded = content_of(run)
        assert horde(f"upgrade {run}") == 0
        assert content_of(run) == upgraded
        assert horde(f"doctor {run}") == 0
        assert horde(f"resume {run} --steps 400") == 0
        resumed = results(run)
    finally:
        for kind in READERS:
            kind.readers.pop()
    assert resumed == results(expected)
    names = [line.removeprefix("upgraded ") for line in out.splitlines()]
    assert set(NEWER) < set(names)
    # Read by a program that knows the second formats alone
    with pytest.raises(ValueError, match="version 2"):
        read(run / "log/life.rec")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.usefixtures("second_formats")
def test_an_upgrade_that_cannot_be_done_changes_nothing(
    old: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = copied(old, elsewhere / "run")
    old_content = content_of(run)
    with files_of_at_most(20_000):
        assert cli.main(["upgrade", "run"]) == 1
    assert states(capsys.readouterr().err, "run cannot be upgraded", "it is as it was")
    with RunFolder(run).locked():
        assert "in use by process" in refused(["upgrade", "run"], capsys)
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(config.replace("horizon = 12", "horizon = 13"))
    assert "was changed after the run began" in refused(["upgrade", "run"], capsys)
    (run / "config.toml").write_text(config)
    assert content_of(run) == old_content
    assert [path.name for path in elsewhere.iterdir()] == ["run"]


def test_what_is_damaged_stays_damaged_in_the_new_format(
    old: Path, tmp_path: Path, second_formats: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row has no CRC-32 that is right, and a snapshot, which is not read, has the former format."""
    run = copied(old, tmp_path / "run")
    earlier, newest = sorted(snapshots.found(run / "checkpoint"))
    flip(earlier / "small.bin", 7)
    file = run / "log/life.rec"
    flip(file, first_line(file)["offset"] + 5)
    assert horde(f"upgrade {run}") == 0
    segment = read_segment(file, kinds.LIFE)
    assert np.flatnonzero(~segment.is_sound).tolist() == [0]
    out, err = capsys.readouterr()
    assert states(err, f"{earlier}/small.bin is damaged", "it stays as it is")
    assert f"upgraded checkpoint/{newest.name}/manifest.json" in out
    assert earlier.name not in out
    assert snapshots.read_manifest(earlier)["version"] == 1


def upgrade_again(run: str) -> None:
    """Upgrade a run in this process, with messages to nowhere."""
    write_second_formats()
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    raise SystemExit(cli.main(["upgrade", run]))


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_the_old_folder_or_the_new(old: Path, tmp_path: Path) -> None:
    old_content = content_of(old)
    for name in ("first", "run"):  # the first process waits for the imports of the others
        run = copied(old, tmp_path / name)
        began = time.monotonic()
        process = FORKS.Process(target=upgrade_again, args=(str(run),))
        process.start()
        process.join()
        duration_s = time.monotonic() - began
    new_content = content_of(run)
    assert new_content != old_content

    rng = np.random.default_rng(0)
    n_kills = {"old": 0, "new": 0}
    while sum(n_kills.values()) < 50:
        if content_of(run) == new_content:
            shutil.rmtree(run)
            copied(old, run)
        process = FORKS.Process(target=upgrade_again, args=(str(run),))
        process.start()
        process.join(rng.uniform(0.0, duration_s))
        if process.is_alive():
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            content = content_of(run)
            assert content in (old_content, new_content)
            side = "old"
            if content == new_content:
                side = "new"
            n_kills[side] += 1
    assert n_kills["old"] >= 10


# ---- another place ---------------------------------------------------------------------------------------------------


def test_a_life_that_tar_moved_goes_on_to_the_bit(sound: Path, tmp_path: Path) -> None:
    run = copied(sound, tmp_path / "run")
    archive = tmp_path / "life.tar"
    with tarfile.open(archive, "w") as file:
        file.add(run, "run")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path / "elsewhere", filter="data")
    moved = tmp_path / "elsewhere" / "run"
    for folder in (run, moved):
        assert horde(f"resume {folder} --steps 400") == 0
    assert results(moved) == results(run)
    assert horde(f"doctor {moved}") == 0


def test_a_copy_of_a_life_that_goes_on_is_refused(
    sound: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied(sound, elsewhere / "run")
    copied(sound, elsewhere / "copy")
    with lived_once(RunFolder(Path("run"))):
        line = refused(["resume", "copy", "--steps", "400"], capsys)
        assert states(line, "copy is a copy of a life", "goes on in another folder", "end it there")
    assert horde("resume copy --steps 400") == 0


def test_copies_of_a_life_that_went_on_apart_are_found(sound: Path, elsewhere: Path) -> None:
    """One that stays as it was is a backup, and no second life."""
    copied(sound, elsewhere / "run")
    copied(sound, elsewhere / "copy")
    assert horde("resume run --steps 400") == 0
    assert parted_at(RunFolder(Path("run")), RunFolder(Path("copy"))) is None
    time.sleep(1.1 - time.time() % 1.0)  # events of the same second are the same
    assert horde("resume copy --steps 350") == 0
    assert parted_at(RunFolder(Path("run")), RunFolder(Path("copy"))) == 300
    assert horde("report run copy") == 0
    page = Path("comparison-1.html").read_text()
    assert "run and copy are copies of one life, which went on apart from step 300 on" in page
    copied(sound, elsewhere / "another")
    events = EventLog(Path("another/log/events.jsonl"))
    first, *later = events.read().events
    lines = [
        {name: value for name, value in event.items() if name != "crc"}
        for event in (first | {"life": "0"}, *later)
    ]
    events.path.write_text("".join(map(encode_event, lines)))
    assert parted_at(RunFolder(Path("run")), RunFolder(Path("another"))) is None


def test_a_robot_without_a_port_gets_none_when_it_is_resumed(
    sound: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied(sound, elsewhere / "run")
    line = refused(["resume", "run", "--steps", "400", "--port", "/dev/ttyUSB1"], capsys)
    assert states(line, "--port /dev/ttyUSB1 belongs to a real robot", "backend simulator")
