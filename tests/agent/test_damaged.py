"""`horde report` and `horde doctor` on damaged folders: a page or a sentence names the file; repairs last."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import cli
from horde_agent.cli import learn
from horde_agent.record import read, snapshots
from horde_agent.record.segments import encode_header, read_header
from horde_agent.refusals import BadInput
from horde_agent.runs.reporting import pictures
from horde_agent.runs.reporting.report import write_report
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.scoring.excursion_table import FORMAT as EXCURSIONS
from tests.agent.commands import flip, summary_of, toy
from tests.agent.doubles import ToyBody
from tests.agent.test_data import COLUMNS, stream

pytestmark = pytest.mark.usefixtures("pictures")

Damage = Callable[[Path], None]


@pytest.fixture
def run(toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to be damaged; its pictures are composed, but not painted, which takes the longest."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pictures, "save", lambda _figure, path: path.write_bytes(b""))
    return Path(
        shutil.copytree(
            toy_run, tmp_path / "run", ignore=shutil.ignore_patterns("*.png", "report.html")
        )
    )


def put(content: str | bytes) -> Damage:
    data = content
    if isinstance(content, str):
        data = content.encode()
    return lambda file: file.write_bytes(data) and None  # type: ignore[func-returns-value]


def half(file: Path) -> None:
    """Leave the first half, which does not end with a line: nothing would show that lines are missing."""
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2].rstrip(b"\r\n"))


def gone(file: Path) -> None:
    file.unlink()


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def changed(table: dict[str, Any], changes: dict[str, Any]) -> str:
    """Return JSON with other values; None leaves one out."""
    return json.dumps(
        {name: v for name, v in (table | changes).items() if v is not None or name not in changes}
    )


def key(**changes: Any) -> Damage:
    return lambda file: put(changed(json.loads(file.read_text()), changes))(file)


def header(**changes: Any) -> Damage:

    def change(file: Path) -> None:
        content = file.read_bytes()
        at = content.index(b"\n") + 1
        file.write_bytes(
            changed(json.loads(content[:at]), changes).encode().ljust(at - 1)[: at - 1]
            + content[at - 1 :]
        )

    return change


def cell(n: int, k: int, value: str) -> Damage:

    def change(file: Path) -> None:
        lines = [line.split(",") for line in file.read_text().splitlines()]
        lines[n][k] = value
        file.write_text("\n".join(",".join(line) for line in lines) + "\n")

    return change


DAMAGES: dict[str, tuple[str, Damage]] = {
    "details.json, half": ("details.json", put('{"a": ')),
    "details.json, a folder": ("details.json", folder),
    "details.json, mspbe lacks its numbers": ("details.json", key(mspbe={})),
    "details.json, a duration in words": ("details.json", key(compile_s="long")),
    "questions.csv, half": ("questions.csv", half),
    "questions.csv, NMSRE under another name": ("questions.csv", cell(0, 1, "error")),
    "questions.csv, a word for a number": ("questions.csv", cell(3, 1, "much")),
    "questions.csv, a cell too many": ("questions.csv", cell(3, 1, "1.0,2.0")),
    "traces.csv, half": ("traces.csv", half),
    "mspbe_curve.csv, a word for a number": ("mspbe_curve.csv", cell(1, 2, "much")),
    "learning_curve.csv, a folder": ("learning_curve.csv", folder),
    "life.rec, another file": ("log/life.rec", put("step,action\n1,2\n")),
    "life.rec, gone": ("log/life.rec", gone),
    "life.rec, a row cut off": (
        "log/life.rec",
        lambda file: os.truncate(file, file.stat().st_size - 5),
    ),
    "life.rec, another version": ("log/life.rec", header(version=3)),
    "life.rec, rows without a step": ("log/life.rec", header(dtype=[["t", "<f8"]])),
    "life.rec, no offset": ("log/life.rec", header(offset=None)),
    "excursions.rec, empty": ("log/excursions.rec", put("")),
    "excursions.rec, half": ("log/excursions.rec", half),
    "excursions.rec, no policies": ("log/excursions.rec", header(policies=None)),
    "config.toml, gone": ("config.toml", gone),
    "config.toml, half": ("config.toml", half),
    "config.toml, versions are a number": ("config.toml", put("steps = 3\nversions = 1\n")),
    "summary.json, no number of questions": ("summary.json", key(n_questions=None)),
    "summary.json, steps in words": ("summary.json", key(steps="many")),
    "summary.json, diverged is a number": ("summary.json", key(diverged=5)),
}
MADE_FROM = {
    "_nmsre_section": ("excursions.rec", "questions.csv"),
    "_pen_section": ("life.rec",),
    "_scatter_section": ("excursions.rec", "details.json"),
    "_trace_section": ("traces.csv",),
    "_mspbe_section": ("mspbe_curve.csv", "life.rec", "details.json"),
}
"""The files that each picture is made from."""
HARMLESS = {"summary.json, no number of questions"}
"""Nothing of the page is lost by them but a number, in the place of which there is a dash."""


@pytest.mark.parametrize("what", DAMAGES)
def test_what_is_damaged_is_noted_on_the_page_by_its_name(
    what: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the rest is drawn: the table of settings, or that of time and health."""
    name, damage = DAMAGES[what]
    for picture, files in MADE_FROM.items():
        if Path(name).name not in files:  # composing all takes most of the time
            monkeypatch.setattr(pictures, picture, lambda *_: "")
    damage(run / name)
    assert cli.main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    noted = page.partition("Missing or damaged")[2].partition("</ul>")[0]
    assert (Path(name).name in noted) is (what not in HARMLESS), noted
    assert "Timing and health" in page or "<h2>Settings</h2>" in page
    assert "Traceback" not in capsys.readouterr().err


def test_a_whole_folder_has_nothing_to_note(run: Path) -> None:
    """So that the notes above come from the damage."""
    assert cli.main(["report", str(run)]) == 0
    assert "Missing or damaged" not in (run / "report.html").read_text()


@pytest.mark.parametrize(
    "content",
    ["[1, 2]", '{"a": ', "[" * 200_000, b"\xff\xfe\x00"],
    ids=["a list", "half", "deep", "no text"],
)
def test_a_damaged_summary_is_refused_with_the_remedy(content: str | bytes, run: Path) -> None:
    put(content)(run / "summary.json")
    with pytest.raises(BadInput, match=r"summary\.json is damaged \(.*remove it, and `horde rep"):
        write_report(run)


def header_without_low(run: Path) -> None:
    stream = read(run / "log/life.rec")
    header = {name: value for name, value in stream.header.items() if name != "low"}
    (run / "log/life.rec").write_bytes(encode_header(header) + stream.rows.tobytes())


def config_in(change: Callable[[str], str]) -> Damage:
    return lambda run: put(change((run / "config.toml").read_text()))(run / "config.toml")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (
            config_in(lambda text: text[: text.index("[versions]")]),
            "config.toml is cut off before its versions",
        ),
        (config_in(lambda text: text[:15]), "config.toml cannot be read"),
        (config_in(lambda text: f"speed = 3\n{text}"), "unknown setting 'speed'"),
        (lambda run: gone(run / "config.toml"), "config.toml is missing"),
        (lambda run: gone(run / "log/life.rec"), "there are neither tables nor a log in it"),
        (header_without_low, "life.rec lacks 'low', which learning from it requires"),
        (
            lambda run: os.truncate(
                run / "log/life.rec", read(run / "log/life.rec").header["offset"]
            ),
            "its log is empty",
        ),
    ],
)
def test_a_run_without_tables_needs_its_settings_and_its_log(
    damage: Damage, sentence: str, run: Path
) -> None:
    for file in [*run.glob("*.csv"), *run.glob("*.json")]:
        file.unlink()
    damage(run)
    names = sorted(run.iterdir())
    with pytest.raises(BadInput, match=sentence):
        write_report(run)
    assert sorted(run.iterdir()) == names


def test_a_page_that_cannot_be_written_is_refused(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "report.html").mkdir()
    assert cli.main(["report", str(run)]) == 2
    assert f"{run / 'report.html'} cannot be written (Is a directory)" in capsys.readouterr().err


def test_a_picture_that_cannot_be_written_is_noted(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "pen.png").mkdir()
    assert cli.main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert "The picture of the pen cannot be made" in page
    assert 'src="pen.png"' not in page
    assert 'src="nmsre.png"' in page


def test_the_page_says_how_much_of_a_file_is_cut_off(run: Path) -> None:
    rows = read(run / "log" / "life.rec").rows
    os.truncate(
        run / "log" / "life.rec", (run / "log" / "life.rec").stat().st_size - 300 * rows.itemsize
    )
    questions = (run / "questions.csv").read_text().splitlines()
    (run / "questions.csv").write_text("\n".join(questions[:11]) + "\n")
    assert cli.main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert f"life.rec is cut off: it ends at step {rows['step'][-301]:,} of 1,200." in page
    assert "questions.csv is cut off: it contains 10 of 27 questions." in page


# ---- horde doctor ----------------------------------------------------------------------------------------------------


def doctor(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str], str]:
    capsys.readouterr()
    code = cli.main(["doctor", str(run)])
    streams = capsys.readouterr()
    return code, streams.out.splitlines(), streams.err


def test_a_sound_run_is_sound_in_every_part(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = doctor(run, capsys)
    assert code == 0
    assert all(line.startswith("sound") for line in lines)
    names = {line.split()[1].rstrip(":") for line in lines}
    assert {
        "config.toml",
        "log/life.rec",
        "log/excursions.rec",
        "summary.json",
        "checkpoint/000000001200",
    } <= names


@pytest.mark.parametrize("name", ["questions.csv", "learning_curve.csv", "traces.csv"])
def test_a_table_that_ends_within_a_line_is_damaged_without_checksums_too(
    name: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its other lines are complete, and readers would leave this one out."""
    (run / "sums.sha256").unlink()
    file = run / name
    os.truncate(file, file.stat().st_size - 4)
    code, lines, _ = doctor(run, capsys)
    assert code == 1
    assert any(name in line and "its last line is truncated" in line for line in lines)
    assert f"sound    {name}" not in "\n".join(lines)


def test_a_file_without_a_header_is_removed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a kill between the making of a further file and its first line leaves it."""
    (run / "log/life-2.rec").write_bytes(b'{"form')
    code, lines, _ = doctor(run, capsys)
    assert code == 0
    assert "repaired log/life-2.rec: it contains no header, and was removed" in lines
    assert all(line.startswith("sound") for line in doctor(run, capsys)[1])


def kinds(run: Path) -> dict[str, Path]:
    """Return a file of each kind in a run folder, except pages and pictures."""
    top = (
        "config.toml",
        "summary.json",
        "details.json",
        "questions.csv",
        "learning_curve.csv",
        "mspbe_curve.csv",
    )
    names = (
        *top,
        "traces.csv",
        "sums.sha256",
        "log/life.rec",
        "log/excursions.rec",
        "log/events.jsonl",
    )
    snapshot = next(snapshots.found(run / "checkpoint"))
    return {name: run / name for name in names} | {path.name: path for path in snapshot.iterdir()}


@pytest.mark.parametrize("n", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_a_flipped_bit_in_any_file_is_found_and_named(
    run: Path, n: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also in a file that can still be read: another digit in a table, another letter in an event."""
    rng = np.random.default_rng(17)
    for _ in range(n):
        for name, file in kinds(run).items():
            sound = file.read_bytes()
            place = int(rng.integers(len(sound)))
            flip(file, place, int(rng.integers(8)))
            complaints = [line for line in doctor(run, capsys)[1] if not line.startswith("sound")]
            assert complaints, (name, place)
            assert any(
                name in line or file.parent.name in line or "sums.sha256" in line
                for line in complaints
            ), (name, complaints)
            for aside in (run / "checkpoint").glob("damaged-*"):
                aside.rename(aside.with_name(aside.name.removeprefix("damaged-")))
            file.write_bytes(sound)
    assert doctor(run, capsys)[0] == 0


def first_line_lost(file: Path) -> None:
    """Overwrite the first line by zeros, as a damaged sector does."""
    content = file.read_bytes()
    end = content.index(b"\n") + 1
    file.write_bytes(bytes(end) + content[end:])


def first_line_and_snapshots_lost(file: Path) -> None:
    first_line_lost(file)
    shutil.rmtree(file.parents[1] / "checkpoint")


FIRST_LINES: dict[str, Damage] = {
    "a flipped bit": lambda file: flip(file, 60, 2),
    "a flipped bit of its CRC-32": lambda file: flip(
        file, file.read_bytes().index(b', "crc": ') + 9
    ),
    "a flipped bit of its padding": lambda file: flip(file, file.read_bytes().index(b"\n") - 1),
    "a flipped end of line": lambda file: flip(file, file.read_bytes().index(b"\n"), 1),
    "lost": first_line_lost,
    "lost, without a snapshot": first_line_and_snapshots_lost,
}


@pytest.mark.parametrize("name", ["life.rec", "excursions.rec"])
@pytest.mark.parametrize("what", FIRST_LINES)
def test_a_damaged_first_line_is_written_again_to_the_byte(
    what: str,
    name: str,
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By its CRC-32, or by the settings and questions; the damaged file is kept. Before, no life could be resumed."""
    monkeypatch.setattr(learn, "make_env", lambda _config: ToyBody())
    file = run / "log" / name
    sound = file.read_bytes()
    FIRST_LINES[what](file)
    damaged = file.read_bytes()
    code, lines, _ = doctor(run, capsys)
    assert code == 0
    (line,) = [line for line in lines if not line.startswith("sound")]
    assert line.startswith(f"repaired log/{name}: ")
    assert line.endswith(f"the damaged file is damaged-{name}")
    assert file.read_bytes() == sound
    assert (run / "log" / f"damaged-{name}").read_bytes() == damaged
    assert all(line.startswith("sound") for line in doctor(run, capsys)[1])


@pytest.mark.parametrize(
    "words",
    [
        "learn --data t.npz --columns columns.toml",
        "learn --backend replay --log t.npz --columns columns.toml --passes 2",
        "learn --backend replay --log run",
        "learn --env CartPole-v1 --steps 60",
    ],
)
def test_lost_first_lines_of_other_sources_are_written_again(
    words: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a data set, a log, a run that replayed another one, and an environment of Gymnasium.

    That is not imported: a folder of somebody else may name any module. Its snapshot has the line.
    """
    np.savez("t.npz", **stream(200))
    Path("columns.toml").write_text(COLUMNS)
    assert cli.main([*words.split(), "--out", "b"]) == 0
    files = [Path("b/log") / name for name in ("life.rec", "excursions.rec")]
    sound = [file.read_bytes() for file in files]
    for file, content in zip(files, sound, strict=True):
        file.unlink()  # the replayed run has the same file
        file.write_bytes(content)
        first_line_lost(file)
    monkeypatch.setattr(learn, "make_env", lambda _config: pytest.fail("it was imported"))
    assert doctor(Path("b"), capsys)[0] == 0
    assert [file.read_bytes() for file in files] == sound
    if "CartPole" in words:
        shutil.rmtree("b/checkpoint")
        first_line_lost(files[0])
        assert doctor(Path("b"), capsys)[0] == 1


def test_a_report_names_no_temporary_path(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The one in which tables are learned again, from a snapshot whose excursions are missing."""
    for name in ("log/excursions.rec", "summary.json", "questions.csv"):
        (run / name).unlink()
    assert cli.main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    messages = capsys.readouterr().err + page
    assert "log/excursions.rec is missing" in messages
    assert str(Path(tempfile.gettempdir(), tempfile.gettempprefix())) not in messages


@pytest.mark.parametrize("damage", [gone, half, lambda file: flip(file, -20)])
def test_a_run_without_its_excursions_is_resumed_to_the_bit(
    damage: Damage,
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They are the scores alone. What is missing of them is said, and without the file the resume names the doctor."""
    file = run / "log" / "excursions.rec"
    sound = file.read_bytes()
    run_copy = Path(shutil.copytree(run, "other"))
    assert toy(f"resume {run_copy} --steps 1300", monkeypatch) == 0
    damage(file)
    if not file.exists():
        assert toy(f"resume {run} --steps 1300", monkeypatch) == 2
        assert "`horde doctor" in capsys.readouterr().err
        code, lines, _ = doctor(run, capsys)
        assert code == 0
        (line,) = [line for line in lines if not line.startswith("sound")]
        assert "it was missing, and was written without excursions" in line
        assert file.read_bytes() == sound[: read_header(file, EXCURSIONS)["offset"]]
    assert toy(f"resume {run} --steps 1300", monkeypatch) == 0
    assert summary_of(run)["weights_sha256"] == summary_of(run_copy)["weights_sha256"]
    assert "excursions.rec lacks" in caplog.text


def test_after_a_resume_past_a_damaged_snapshot_the_newest_may_be_damaged_again(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sound snapshot at step 1,200 was removed, because the damaged one at 1,300 counted as the second."""
    for steps in (1300, 1400):
        assert toy(f"resume {run} --steps {steps}", monkeypatch) == 0
        newest = max((run / "checkpoint").iterdir())
        half(newest / "small.bin")
    capsys.readouterr()
    assert toy(f"resume {run} --steps 1500", monkeypatch) == 0
    assert "resumed at step 1,200" in capsys.readouterr().err


def test_a_record_without_the_rows_of_the_newest_snapshot_is_resumed_from_an_earlier_one(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a file system may leave it that lost the end of a file: the doctor and the resume say it."""
    assert toy(f"resume {run} --steps 1300", monkeypatch) == 0
    file = run / "log" / "life.rec"
    n_bytes = read(file).rows.itemsize
    os.truncate(file, file.stat().st_size - 40 * n_bytes)
    n_rows = len(read(file).rows)
    n_needed = n_rows + 39  # the last row has no action, and follows the snapshot
    message = f"it has {n_rows:,} rows, but a snapshot follows {n_needed:,}"
    assert message in "".join(doctor(run, capsys)[1])
    assert toy(f"resume {run} --steps 1300", monkeypatch) == 0
    messages = capsys.readouterr().err
    assert f"follows {n_needed:,} rows, but life.rec has {n_rows:,}" in messages
    assert "resumed at step 1,200" in messages
    assert read(file).rows["step"][-1] == 1300


CHANGED_BY_A_BIT = {
    "config.toml": "a flipped bit was corrected by its SHA-256",
    "summary.json": "a flipped bit was corrected by its SHA-256",
    "questions.csv": "a flipped bit was corrected by its SHA-256",
    "sums.sha256": "a flipped bit was corrected by the files that it is about",
    "log/events.jsonl": "flipped bits were corrected by the CRC-32 of line 1",
}


@pytest.mark.parametrize("name", CHANGED_BY_A_BIT)
def test_a_flipped_bit_is_corrected_by_the_checksum_and_an_edit_is_not(
    name: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run / name
    sound = file.read_bytes()
    flip(file, 30, 3)
    code, lines, _ = doctor(run, capsys)
    assert code == 0
    (line,) = [line for line in lines if not line.startswith("sound")]
    aside = file.with_name(f"damaged-{file.name}")
    assert line == f"repaired {name}: {CHANGED_BY_A_BIT[name]}; the damaged file is {aside.name}"
    assert file.read_bytes() == sound
    aside.unlink()
    for place in (30, 31):
        flip(file, place, 3)
    edited = file.read_bytes()
    assert doctor(run, capsys)[0] == 1
    assert file.read_bytes() == edited
    assert not aside.exists()


def test_a_flipped_end_of_line_of_the_sums_is_corrected(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run / "sums.sha256"
    sound = file.read_bytes()
    flip(file, sound.index(b"\n"), 5)
    assert doctor(run, capsys)[0] == 0
    assert file.read_bytes() == sound


@pytest.mark.parametrize(("letter", "bit"), [(b"\n", 5), (b"*", 5), (b"J", 6)])
def test_a_flipped_end_of_line_of_the_events_is_corrected(
    letter: bytes, bit: int, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It joins two lines, or cuts one in two."""
    RunFolder(run).events.append({"step": 1200, "event": "questions", "remove": ["*/J"]})
    file = run / "log" / "events.jsonl"
    sound = file.read_bytes()
    flip(file, sound.index(letter), bit)
    assert len(file.read_bytes().splitlines()) == len(sound.splitlines()) + (-1) ** (
        letter == b"\n"
    )
    assert doctor(run, capsys)[0] == 0
    assert file.read_bytes() == sound


def test_a_torn_end_is_repaired_once(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = run / "log" / "life.rec"
    file.write_bytes(file.read_bytes()[:-7])
    code, lines, _ = doctor(run, capsys)
    assert code == 0
    (line,) = [line for line in lines if line.startswith("repaired")]
    assert "log/life.rec" in line
    assert "its end was torn off" in line
    size = file.stat().st_size
    assert not [line for line in doctor(run, capsys)[1] if line.startswith("repaired")]
    assert file.stat().st_size == size


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_stray_file_named_as_an_unfinished_snapshot_is_removed(
    kind: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the doctor, and by the next snapshot of a resumed run."""
    stray = run / "checkpoint" / ".unfinished-x"

    def put_there() -> None:
        if kind == "file":
            stray.write_bytes(b"stray")
        elif kind == "folder":
            stray.mkdir()
            (stray / "small.bin").write_bytes(b"stray")
        else:
            stray.symlink_to(run / "log")

    put_there()
    code, lines, _ = doctor(run, capsys)
    assert code == 0
    assert "repaired checkpoint/.unfinished-x: it was not finished, and was removed" in lines
    assert all(line.startswith("sound") for line in doctor(run, capsys)[1])
    assert (run / "log" / "life.rec").is_file()
    put_there()
    snapshots.write(run / "checkpoint", 1300, {"a": np.zeros(3)}, {})
    assert snapshots.unfinished(run / "checkpoint") == []
    assert (run / "log" / "life.rec").is_file()


def test_a_row_that_is_damaged_stays_and_is_named(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run / "log" / "life.rec"
    flip(file, -500)
    damaged = file.read_bytes()
    for _ in range(2):
        code, _, errors = doctor(run, capsys)
        assert code == 1
        assert "damaged and not repairable: log/life.rec" in errors
    assert file.read_bytes() == damaged
