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
from tests.agent.commands import refused
from tests.agent.test_run_folder import closed  # noqa: F401  a fixture

pytestmark = pytest.mark.usefixtures("pictures")

Damage = Callable[[Path], None]


@pytest.fixture
def run(toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to be damaged; its pictures are composed, but not painted, which takes the longest."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pictures, "save", lambda _figure, path: path.write_bytes(b""))
    return Path(shutil.copytree(toy_run, tmp_path / "run", ignore=shutil.ignore_patterns("*.png", "report.html")))


def put(content: str | bytes) -> Damage:
    """Replace the content."""
    data = content.encode() if isinstance(content, str) else content
    return lambda file: file.write_bytes(data) and None  # type: ignore[func-returns-value]


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


def changed(table: dict[str, Any], changes: dict[str, Any]) -> str:
    """Return JSON with other values; None leaves one out."""
    return json.dumps({name: v for name, v in (table | changes).items() if v is not None or name not in changes})


def key(**changes: Any) -> Damage:
    """Change values of a JSON table."""
    return lambda file: put(changed(json.loads(file.read_text()), changes))(file)


def header(**changes: Any) -> Damage:
    """Change the header of a record."""

    def change(file: Path) -> None:
        content = file.read_bytes()
        at = content.index(b"\n") + 1
        file.write_bytes(
            changed(json.loads(content[:at]), changes).encode().ljust(at - 1)[: at - 1] + content[at - 1 :]
        )

    return change


def cell(n: int, k: int, value: str) -> Damage:
    """Put something else into a cell."""

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
    "life.rec, a row cut off": ("log/life.rec", lambda file: os.truncate(file, file.stat().st_size - 5)),
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
NO_PICTURE = ("questions.csv", "config.toml", "summary.json")
"""What pictures do not depend on."""
HARMLESS = {"summary.json, no number of questions"}
"""Nothing of the page is lost by them but a number, in the place of which there is a dash."""


@pytest.mark.parametrize("what", DAMAGES)
def test_what_is_damaged_is_noted_on_the_page_by_its_name(
    what: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the rest is drawn: the table of settings, or that of time and health."""
    name, damage = DAMAGES[what]
    if name in NO_PICTURE:  # composing them takes most of the time
        monkeypatch.setattr(pictures, "save", lambda *_: None)
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


def test_a_read_only_folder_is_refused(
    closed: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(closed.parent)
    said = refused(["report", str(closed)], capsys)
    assert f"{closed / 'report.html'} cannot be written because its folder is read-only" in said


def test_a_folder_that_may_not_be_read_is_refused(
    closed: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(closed.parent)
    monkeypatch.setattr(os, "access", lambda _path, mode, **_: not mode & os.R_OK)
    assert f"{closed} is not readable; ask its owner for a copy" in refused(["report", str(closed)], capsys)


def test_a_page_that_cannot_be_written_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    os.truncate(run / "log" / "life.rec", (run / "log" / "life.rec").stat().st_size - 300 * rows.itemsize)
    questions = (run / "questions.csv").read_text().splitlines()
    (run / "questions.csv").write_text("\n".join(questions[:11]) + "\n")
    assert cli.main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert f"life.rec is cut off: it ends at step {rows['step'][-301]:,} of 1,200." in page
    assert "questions.csv is cut off: it contains 10 of 27 questions." in page
