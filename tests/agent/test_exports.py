"""Exports are whole or absent: kills, full disks, damaged rows, pages of Parquet files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from horde_agent import cli
from horde_agent.formats.columns import Columns
from horde_agent.formats.format import UNFINISHED
from horde_agent.record import Flag, Recorder, read
from horde_agent.refusals import BadInput
from horde_agent.runs.storage.staging import staging_folder
from tests.agent.commands import files_of_at_most, flip, summary_of, toy
from tests.agent.killed_exports import export_with_kills
from tests.agent.kills import FORKS
from tests.agent.table_files import open_table
from tests.facts import states

KINDS = ("parquet", "mcap", "minari", "lerobot")
EVERY = {"parquet": 11, "lerobot": 14}
NEEDS = {"parquet": "pyarrow", "mcap": "mcap", "minari": "minari", "lerobot": "pyarrow"}


@pytest.fixture(scope="module")
def exported_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose record has three files."""
    run = tmp_path_factory.mktemp("exports") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(Recorder.__init__.__kwdefaults__, "segment_s", 12.0)  # type: ignore[arg-type]
        assert (
            toy(
                f"learn --steps 300 --horizon 8 --excursion-probability 0.05 --seed 1 --out {run}",
                patch,
            )
            == 0
        )
    return run


def export(run: Path, kind: str, out: Path) -> int:
    return cli.main(["export", str(run), "--to", kind, "--out", str(out)])


def is_whole(kind: str, files: dict[str, int], whole: dict[str, int]) -> bool:
    """HDF5 files and metadata of the same contents may differ in their size."""
    if kind == "minari":
        return files.keys() == whole.keys()
    return files == whole


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kind", "is_thorough"),
    [
        ("parquet", False),
        ("lerobot", False),
        *(pytest.param(kind, True, marks=pytest.mark.slow) for kind in KINDS),
    ],
)
def test_a_kill_leaves_nothing_or_all_of_an_export_and_a_repeat_works(
    kind: str, is_thorough: bool, exported_run: Path, tmp_path: Path
) -> None:
    """At every operation on a file of the export, or at some of them, also those of libraries that Python sees."""
    pytest.importorskip(NEEDS[kind])
    interval = 1 if is_thorough else EVERY[kind]
    (tmp_path / "place").mkdir()
    lines = tmp_path / "lines"
    arguments = (exported_run, kind, tmp_path / "place" / "out", interval, lines)
    process = FORKS.Process(target=export_with_kills, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == 0
    *kills, last = [json.loads(line) for line in lines.read_text().splitlines()]
    assert last["code"] == 0
    assert len(kills) > 2
    whole = last["left"]
    assert whole
    for kill in kills:
        assert kill["code"] == -9
        assert not kill["left"] or is_whole(kind, kill["left"], whole), kill
        # A data set that is complete is not replaced.
        expected_code = 0
        if kill["left"] and kind in ("minari", "lerobot"):
            expected_code = 2
        assert kill["repeated"] == expected_code, kill
        assert is_whole(kind, kill["after"], whole), kill
        assert [name for name in kill["beside"] if name.startswith(".")] == [], kill


@pytest.mark.parametrize("kind", ["minari", "lerobot"])
def test_a_repeat_removes_what_a_kill_left_beside_a_complete_data_set(
    kind: str, exported_run: Path, tmp_path: Path
) -> None:
    """The data set had its final name, and its staging folder was still there; the repeat is refused."""
    pytest.importorskip(NEEDS[kind])
    out = tmp_path / "out"
    assert export(exported_run, kind, out) == 0
    contents = sorted(out.rglob("*"))
    leftover = tmp_path / ".out.unfinished"
    leftover.mkdir()
    (leftover / "part").write_text("")
    with staging_folder(out):  # another process writes there: the folder is its own
        assert export(exported_run, kind, out) == 2
        assert leftover.exists()
    leftover.mkdir()
    assert export(exported_run, kind, out) == 2
    assert not leftover.exists()
    assert sorted(out.rglob("*")) == contents


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_bytes", [200, 3_000])
def test_a_full_disk_leaves_nothing_of_an_export_and_a_repeat_works(
    kind: str, n_bytes: int, exported_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(NEEDS[kind])
    place = tmp_path / "place"
    place.mkdir()
    with files_of_at_most(n_bytes):
        code = export(exported_run, kind, place / "out")
    assert code == 1
    assert "File too large" in capsys.readouterr().err
    assert list(place.iterdir()) == []
    assert export(exported_run, kind, place / "out") == 0
    assert list(place.rglob(".*")) == []


@pytest.mark.parametrize("kind", KINDS)
def test_another_process_that_writes_the_same_export_is_not_disturbed(
    kind: str, exported_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(NEEDS[kind])
    if kind == "mcap":
        target = tmp_path / "out" / "life.mcap"
    else:
        target = tmp_path / "out"
    with staging_folder(target) as stage:
        assert export(exported_run, kind, tmp_path / "out") == 2
        assert "another process is writing" in capsys.readouterr().err
        assert stage.is_dir()
    assert export(exported_run, kind, tmp_path / "out") == 0


def test_a_part_of_an_interrupted_export_is_not_learned_from(
    exported_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Several tables of an existing folder are replaced one by one; the next export replaces the rest."""
    pytest.importorskip("pyarrow")
    out = tmp_path / "out"
    assert export(exported_run, "parquet", out) == 0
    (out / UNFINISHED).touch()
    (next(out.glob("day=*")) / "life-2.parquet").unlink()
    words = f"learn --data {out} --columns {out}-columns.toml --out {tmp_path / 'run'}"
    assert cli.main(words.split()) == 2
    assert "interrupted export" in capsys.readouterr().err
    assert export(exported_run, "parquet", out) == 0
    assert cli.main(words.split()) == 0
    assert summary_of(tmp_path / "run")["steps"] == 300


def test_damage_found_after_an_export_makes_a_gap_in_the_next_export(
    exported_run: Path, tmp_path: Path
) -> None:
    """Also in the first row of the file after the damaged one, whose own table was up to date."""
    parquet = pytest.importorskip("pyarrow.parquet")
    run = shutil.copytree(exported_run, tmp_path / "run")
    out = tmp_path / "out"
    assert export(run, "parquet", out) == 0
    first_of_third = next(out.glob("day=*")) / "life-3.parquet"
    assert parquet.read_table(first_of_third, partitioning=None)["flags"][0].as_py() & Flag.GAP == 0
    flip(run / "log" / "life-2.rec", -10)
    assert export(run, "parquet", out) == 0
    assert parquet.read_table(first_of_third, partitioning=None)["flags"][0].as_py() & Flag.GAP
    n_rows = sum(
        parquet.read_table(file, partitioning=None).num_rows
        for file in out.glob("day=*/life-2.parquet")
    )
    assert n_rows == 119


@pytest.mark.parametrize("kind", ["parquet", "mcap"])
def test_an_export_says_what_it_leaves_out(
    kind: str, exported_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged row and a damaged event; the time of the first event dates the tables."""
    pytest.importorskip(NEEDS[kind])
    run = shutil.copytree(exported_run, tmp_path / "run")
    flip(run / "log" / "life-2.rec", -100)
    events = run / "log" / "events.jsonl"
    events.write_text(events.read_text().replace('"time": "2', '"time": "3', 1))
    assert export(run, kind, tmp_path / "out") == 0
    messages = capsys.readouterr().err
    assert states(messages, "life-2.rec is damaged", "1 of its 120", "118")
    assert states(messages, "events.jsonl is damaged", "1 of its lines", "number 1")
    if kind == "parquet":
        assert "days are counted from 1970-01-01" in messages
        assert (tmp_path / "out" / "day=1970-01-01").is_dir()


def test_a_changed_byte_of_an_exported_table_is_not_learned_from(
    exported_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its pages, by their CRC-32. What a page does not hold, its footer, names columns and places."""
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "out"
    assert export(exported_run, "parquet", out) == 0
    table = next(out.glob("day=*")) / "life-2.parquet"
    sound = table.read_bytes()
    n_footer = int.from_bytes(sound[-8:-4], "little") + 8
    words = f"learn --data {out} --columns {out}-columns.toml --out".split()
    assert cli.main([*words, str(tmp_path / "sound")]) == 0
    expected = summary_of(tmp_path / "sound")["weights_sha256"]
    assert read(tmp_path / "sound" / "log" / "life.rec").faults == ()
    rng = np.random.default_rng(3)
    learned = []
    for k, place in enumerate(rng.integers(4, len(sound) - n_footer, 12).tolist()):
        flip(table, place, int(rng.integers(8)))
        code = cli.main([*words, str(tmp_path / f"{k}")])
        if code == 0:
            learned.append(summary_of(tmp_path / f"{k}")["weights_sha256"])
        table.write_bytes(sound)
    assert set(learned) <= {expected}
    assert len(learned) < 12
    assert parquet.read_metadata(table).num_rows == 120


def test_a_changed_byte_anywhere_in_a_table_is_read_or_refused_in_a_sentence(
    exported_run: Path, tmp_path: Path
) -> None:
    """Also in the footer, which has no checksum: other types, sizes and encodings."""
    pytest.importorskip("pyarrow")
    out = tmp_path / "out"
    assert export(exported_run, "parquet", out) == 0
    columns = Columns.read(Path(f"{out}-columns.toml"))
    table = next(out.glob("day=*")) / "life-2.parquet"
    sound = table.read_bytes()
    rng = np.random.default_rng(1)
    n_refused = 0
    for place in rng.integers(len(sound), size=600).tolist():
        new_byte = sound[place] ^ int(rng.integers(1, 256))
        table.write_bytes(sound[:place] + bytes([new_byte]) + sound[place + 1 :])
        try:
            for _ in open_table(table, columns):
                pass
        except BadInput:
            n_refused += 1
    assert n_refused > 300
