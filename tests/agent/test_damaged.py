"""`horde report` on folders that something happened to: one sentence with the file's name, or a page that says it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from horde_agent import cli
from horde_agent.record import read
from horde_agent.runs.showing import pictures
from tests.agent.test_run_folder import closed  # noqa: F401  a fixture

pytestmark = pytest.mark.usefixtures("pictures")

Damage = Callable[[Path], None]


@pytest.fixture
def run(toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to be damaged; its pictures are composed, but not painted, which takes the longest."""
    monkeypatch.setattr(pictures, "save", lambda _figure, path: path.write_bytes(b""))
    return Path(shutil.copytree(toy_run, tmp_path / "run", ignore=shutil.ignore_patterns("*.png", "report.html")))


def text(content: str) -> Damage:
    """Put something else there."""
    return lambda file: file.write_text(content) and None  # type: ignore[func-returns-value]


def data(content: bytes) -> Damage:
    """Put something else there."""
    return lambda file: file.write_bytes(content) and None  # type: ignore[func-returns-value]


def half(file: Path) -> None:
    """Cut it in the middle."""
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])


def gone(file: Path) -> None:
    """Remove it."""
    file.unlink()


def folder(file: Path) -> None:
    """Put a folder in its place."""
    file.unlink()
    file.mkdir()


def key(**changes: Any) -> Damage:
    """Change values of a JSON table."""
    return lambda file: text(json.dumps(json.loads(file.read_text()) | changes))(file)


def without(name: str) -> Damage:
    """Leave a value of a JSON table out."""

    def leave_out(file: Path) -> None:
        table = json.loads(file.read_text())
        del table[name]
        file.write_text(json.dumps(table))

    return leave_out


def column(name: str, to: str) -> Damage:
    """Rename a column."""
    return lambda file: text(file.read_text().replace(name, to, 1))(file)


def cell(n: int, k: int, value: str) -> Damage:
    """Put something else into a cell."""

    def change(file: Path) -> None:
        lines = [line.split(",") for line in file.read_text().splitlines()]
        lines[n][k] = value
        file.write_text("\n".join(",".join(line) for line in lines) + "\n")

    return change


def lines(n: int) -> Damage:
    """Keep the first lines."""
    return lambda file: text("\n".join(file.read_text().splitlines()[:n]) + "\n")(file)


def header(**changes: Any) -> Damage:
    """Change what a record says of itself; None takes a value out."""

    def change(file: Path) -> None:
        content = file.read_bytes()
        at = content.index(b"\n") + 1
        table = {name: value for name, value in (json.loads(content[:at]) | changes).items() if value is not None}
        file.write_bytes(json.dumps(table).encode().ljust(at - 1)[: at - 1] + b"\n" + content[at:])

    return change


WRONG_TYPES = {"": "empty", "[1, 2]": "a list", "7": "a number", "null": "nothing", '{"a": ': "half", "{": "a brace"}
NO_RECORD = {"empty": b"", "another file": b"step,action\n1,2\n", "zeros": bytes(4096), "a list": b"[1]\n"}

DAMAGES: dict[str, tuple[str, Damage]] = {
    **{f"details.json, {what}": ("details.json", text(content)) for content, what in WRONG_TYPES.items()},
    "details.json, gone": ("details.json", gone),
    "details.json, a folder": ("details.json", folder),
    "details.json, no letters": ("details.json", data(b"\xff\xfe\x00")),
    "details.json, notes are a number": ("details.json", key(notes=5)),
    "details.json, notes are numbers": ("details.json", key(notes=[5])),
    "details.json, mspbe is a list": ("details.json", key(mspbe=[1])),
    "details.json, mspbe lacks its numbers": ("details.json", key(mspbe={})),
    "details.json, no channels": ("details.json", without("channels")),
    "details.json, channels are a number": ("details.json", key(channels=3)),
    "details.json, an action too few": ("details.json", key(actions=["left"])),
    "details.json, a duration in words": ("details.json", key(compile_s="long")),
    "details.json, percentiles are a number": ("details.json", key(overrun_ms=4.0)),
    "questions.csv, empty": ("questions.csv", text("")),
    "questions.csv, its head alone": ("questions.csv", lines(1)),
    "questions.csv, half": ("questions.csv", half),
    "questions.csv, some lines": ("questions.csv", lines(11)),
    "questions.csv, a folder": ("questions.csv", folder),
    "questions.csv, no letters": ("questions.csv", data(b"name,nmsre\n\xff\xfe,\x001\n")),
    "questions.csv, NMSRE under another name": ("questions.csv", column("nmsre", "error")),
    "questions.csv, no names": ("questions.csv", column("name", "question")),
    "questions.csv, no soundness": ("questions.csv", column("diverged", "sound")),
    "questions.csv, a word for a number": ("questions.csv", cell(3, 1, "much")),
    "questions.csv, a cell too many": ("questions.csv", cell(3, 1, "1.0,2.0")),
    "traces.csv, half": ("traces.csv", half),
    "traces.csv, a word for a number": ("traces.csv", cell(2, 4, "much")),
    "traces.csv, another head": ("traces.csv", column("prediction", "y")),
    "traces.csv, no letters": ("traces.csv", data(b"question,t_s\n\xff,\xfe\n")),
    "traces.csv, a folder": ("traces.csv", folder),
    "mspbe_curve.csv, a word for a number": ("mspbe_curve.csv", cell(1, 2, "much")),
    "mspbe_curve.csv, another head": ("mspbe_curve.csv", column("step", "t")),
    "mspbe_curve.csv, no letters": ("mspbe_curve.csv", data(b"step\n\xff\n\xfe\n")),
    "mspbe_curve.csv, a folder": ("mspbe_curve.csv", folder),
    "learning_curve.csv, a folder": ("learning_curve.csv", folder),
    **{f"life.rec, {what}": ("log/life.rec", data(content)) for what, content in NO_RECORD.items()},
    "life.rec, gone": ("log/life.rec", gone),
    "life.rec, a folder": ("log/life.rec", folder),
    "life.rec, half": ("log/life.rec", half),
    "life.rec, half a header": ("log/life.rec", lambda file: file.write_bytes(file.read_bytes()[:200]) and None),  # type: ignore[func-returns-value]
    "life.rec, a row cut off": ("log/life.rec", lambda file: os.truncate(file, file.stat().st_size - 5)),
    "life.rec, another version": ("log/life.rec", header(version=3)),
    "life.rec, another kind": ("log/life.rec", header(format="horde-excursions")),
    "life.rec, no types": ("log/life.rec", header(dtype=None)),
    "life.rec, types of another world": ("log/life.rec", header(dtype=[["t", "quantum"]])),
    "life.rec, rows without a step": ("log/life.rec", header(dtype=[["t", "<f8"]])),
    "life.rec, no offset": ("log/life.rec", header(offset=None)),
    "life.rec, an offset beyond its end": ("log/life.rec", header(offset=1 << 40)),
    "life.rec, an offset before its beginning": ("log/life.rec", header(offset=-64)),
    "life.rec, a period in words": ("log/life.rec", header(period_s="long")),
    **{f"excursions.rec, {what}": ("log/excursions.rec", data(content)) for what, content in NO_RECORD.items()},
    "excursions.rec, gone": ("log/excursions.rec", gone),
    "excursions.rec, half": ("log/excursions.rec", half),
    "excursions.rec, another version": ("log/excursions.rec", header(version=3)),
    "excursions.rec, no policies": ("log/excursions.rec", header(policies=None)),
    "excursions.rec, a policy without demons": ("log/excursions.rec", header(policies=[{"action": 0}])),
    "excursions.rec, no number of demons": ("log/excursions.rec", header(n_demons=None)),
    "excursions.rec, fewer demons": ("log/excursions.rec", header(n_demons=3)),
    "config.toml, gone": ("config.toml", gone),
    "config.toml, half": ("config.toml", half),
    "config.toml, no TOML": ("config.toml", text("steps = = 3\n")),
    "config.toml, no letters": ("config.toml", data(b"\xff\xfe\n")),
    "config.toml, a folder": ("config.toml", folder),
    "config.toml, versions are a number": ("config.toml", text("steps = 3\nversions = 1\n")),
    "summary.json, no number of questions": ("summary.json", without("n_questions")),
    "summary.json, steps in words": ("summary.json", key(steps="many")),
    "summary.json, a list of weights": ("summary.json", key(weights_sha256=[1])),
    "summary.json, diverged is a number": ("summary.json", key(diverged=5)),
    "summary.json, NMSRE in words": ("summary.json", key(mean_nmsre="low")),
    "summary.json, a time in words": ("summary.json", key(wall_s="long")),
}
NO_PICTURE = ("questions.csv", "config.toml", "summary.json")
"""What pictures do not depend on."""
HARMLESS = {"summary.json, no number of questions", "summary.json, a list of weights"}
"""Nothing of the page is lost by them but a number, in the place of which there is a dash."""


@pytest.mark.parametrize("what", DAMAGES)
def test_what_is_damaged_is_noted_on_the_page_by_its_name(
    what: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the rest is drawn: the table of settings, or that of time and health."""
    name, damage = DAMAGES[what]
    if name in NO_PICTURE:  # composing them takes most of the time
        for picture in ("nmsre", "pen", "scatter", "trace", "mspbe"):
            monkeypatch.setattr(pictures, f"{picture}_picture", lambda *_: None)
    damage(run / name)
    assert cli.main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    noted = page.partition("Missing or damaged")[2].partition("</ul>")[0]
    assert (Path(name).name in noted) is (what not in HARMLESS), noted
    assert "Time and health" in page or "<h2>Settings</h2>" in page
    assert "Traceback" not in capsys.readouterr().err


def test_a_whole_folder_has_nothing_to_note(run: Path) -> None:
    """So that the notes above come from the damage."""
    assert cli.main(["report", str(run)]) == 0
    assert "Missing or damaged" not in (run / "report.html").read_text()


def refusal(run: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one sentence with which a report is refused."""
    assert cli.main(["report", str(run)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1, err
    return err


def test_a_read_only_folder_is_refused(
    closed: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(closed.parent)
    said = refusal(closed, capsys)
    assert f"{closed / 'report.html'} cannot be written because its folder is read-only" in said


def test_a_folder_that_may_not_be_read_is_refused(
    closed: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "access", lambda _path, mode, **_: not mode & os.R_OK)
    assert f"{closed} is not readable; ask its owner for a copy" in refusal(closed, capsys)


def test_a_page_that_cannot_be_written_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "report.html").mkdir()
    assert f"{run / 'report.html'} cannot be written (Is a directory)" in refusal(run, capsys)


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
    os.truncate(run / "log" / "life.rec", (run / "log" / "life.rec").stat().st_size - 300 * rows.itemsize)
    lines(11)(run / "questions.csv")
    assert cli.main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert f"life.rec is cut off: it ends at step {rows['step'][-301]:,} of 1,200." in page
    assert "questions.csv is cut off: it contains 10 of 27 questions." in page


def test_a_config_that_is_cut_off_is_noted(run: Path) -> None:
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text[: text.index("realtime")])
    assert cli.main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert "config.toml is cut off before its versions." in page
