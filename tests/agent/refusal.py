"""A command that is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from horde_agent import cli
from horde_agent.runs.jobs.warm import COMPILING


def files() -> dict[Path, bytes | None]:
    """Return the contents of the files in the current folder; None for a folder."""
    there = [path for path in Path.cwd().rglob("*") if path.name != ".lock"]
    return {path: path.read_bytes() if path.is_file() else None for path in there}


def refused(words: Sequence[str], capsys: pytest.CaptureFixture[str], *, is_alone: bool = True) -> str:
    """Run a command, check that it is refused in one line and changes no file, and return that line.

    Args:
        words: Of the command.
        capsys: Pytest's.
        is_alone: False if messages may precede the line; that kernels are compiled may be said in any case.
    """
    capsys.readouterr()
    before = files()
    assert cli.main(list(words)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert files() == before
    *others, line = err.splitlines()
    assert line.startswith("horde: ")
    assert not is_alone or set(others) <= {COMPILING}
    return line
