"""The check of added lines in `make check`: which lines it refuses, and what it does without an older commit."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / ".ci" / "plain_code.py"
GOOD = """
def mean(first, second):
    first, second = second, first
    total = first + second
    while chunk := read():
        total += chunk
    return total if total else 1.0
"""
BAD = {
    "tuples": "width, height = 3.0, 4.0",
    "ternaries": "show(name, 1 if total else 2)",
    "ternaries ": "sign = 1 if x > 0 else -1 if x < 0 else 0",
    "walrus": "if match := search(text):\n    show(match)",
    "names": "found = search(text)",
}


def check(folder: Path, *words: str) -> tuple[int, str]:
    """Return the exit status and the output of the check in a folder."""
    process = subprocess.run(
        [sys.executable, str(SCRIPT), *words], cwd=folder, capture_output=True, text=True
    )
    assert process.stderr == ""
    return process.returncode, process.stdout


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.invalid")
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def commit(folder: Path, text: str) -> None:
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "tests" / "module.py").write_text(text, encoding="utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "--message", "A commit")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a repository whose only commit has each kind of place."""
    if not shutil.which("git"):
        pytest.skip("needs Git")
    git(tmp_path, "init", "--initial-branch", "main")
    commit(tmp_path, "\n".join(BAD.values()) + "\n")
    return tmp_path


@pytest.mark.parametrize("kind", BAD)
def test_an_added_line_that_says_two_things_is_refused_with_its_place(
    checkout: Path, kind: str
) -> None:
    """Neither what was there before, nor a line that is plain, is named; committed or not."""
    older = (checkout / "tests" / "module.py").read_text(encoding="utf-8")
    n_lines = len((older + GOOD).splitlines())
    git(checkout, "switch", "--create", "topic")
    commit(checkout, older + GOOD)
    assert check(checkout) == (0, "")

    commit(checkout, older + GOOD + BAD[kind] + "\n")
    new_file = checkout / "tests" / "new.py"
    new_file.write_text(BAD[kind] + "\n", encoding="utf-8")
    status, output = check(checkout)
    assert status == 1
    first_line = BAD[kind].splitlines()[0]
    assert output.splitlines()[:2] == [
        f"tests/module.py:{n_lines + 1}: {kind.strip()}: {first_line}",
        f"tests/new.py:1: {kind.strip()}: {first_line}",
    ]


def test_on_main_lines_are_compared_with_the_commit_before(checkout: Path) -> None:
    older = (checkout / "tests" / "module.py").read_text(encoding="utf-8")
    commit(checkout, older + BAD["names"] + "\n")
    status, output = check(checkout)
    assert (status, output.count("names: ")) == (1, 1)
    assert check(checkout, "--since", "HEAD") == (0, "")


@pytest.mark.parametrize("has_git", [True, False])
def test_without_an_older_commit_the_places_of_all_files_are_counted(
    checkout: Path, has_git: bool
) -> None:
    """A shallow clone has one commit, an archive none. A few places in many lines are allowed."""
    if not has_git:
        shutil.rmtree(checkout / ".git")
    status, output = check(checkout)
    assert status == 1
    for kind, text in BAD.items():
        assert f"{kind.strip()}: {text.splitlines()[0]}" in output

    module = checkout / "tests" / "module.py"
    module.write_text(BAD["names"] + "\n" + "number += 1\n" * 1_000, encoding="utf-8")
    status, _ = check(checkout)
    assert status == 0
