"""Run commands on a toy robot; read their files and refusals; damage files and disks."""

from __future__ import annotations

import hashlib
import json
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from horde_agent import cli
from horde_agent.cli import learn
from horde_agent.learning.compiling import COMPILING
from tests.agent.doubles import ToyBody

QUESTIONS = """
[[family]]
policies = ["forward", "stop", "uniform"]
gammas = [0.0, 0.9]
channels = ["ir_distance_0", "ir_distance_3", "light_0", "light_1"]
"""
# Until a wall is near: features of high readings of `ir_distance_0`
OPTIONS = """
[[option]]
name = "to the wall"
policy = "forward"
gamma = 0.8
stops = [5, 6, 7, 14, 15, 22, 23, 732, 748, 1299, 1372, 1388]
features = [5, 30, 748, 2001, 6064]

[[option]]
name = "turn"
policy = "rotate_clockwise"
gamma = 0.8
features = [5, 30, 748, 2001, 6064]
"""
CONTROL = """
[[control]]
name = "lamp"
channel = "light_0"
gamma = 0.9
algorithm = "qrc"

[[family]]
policies = ["greedy:lamp", "uniform"]
gammas = [0.8]
channels = ["light_0"]
"""


def horde(*words: object) -> int:
    """Run a command given in pieces of several words, and return the exit code."""
    return cli.main([word for piece in words for word in str(piece).split()])


def toy(words: str, patch: pytest.MonkeyPatch, **body: Any) -> int:
    """Run a command with a toy body in the robot's place, and return the exit code."""
    patch.setattr(learn, "make_env", lambda _config: ToyBody(**body))
    return cli.main(words.split())


def summary_of(run: Path | str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(run) / "summary.json").read_text())
    return found


def files() -> dict[Path, bytes | None]:
    """Return the contents of the files in the current folder; None for a folder."""
    paths = [path for path in Path.cwd().rglob("*") if path.name != ".lock"]
    return {path: path.read_bytes() if path.is_file() else None for path in paths}


def refused(
    words: Sequence[str], capsys: pytest.CaptureFixture[str], *, is_alone: bool = True
) -> str:
    """Run a command, check that it is refused in one line and changes no file, and return that line.

    Only the message about compiling may precede the line if it `is_alone`.
    """
    capsys.readouterr()
    contents = files()
    assert cli.main(list(words)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert files() == contents
    *others, line = err.splitlines()
    assert line.startswith("horde: ")
    assert not is_alone or set(others) <= {COMPILING}
    return line


def flip(path: Path, at: int, bit: int = 0) -> None:
    """Flip a bit of a file's byte `at`."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


@contextmanager
def edited_manifest(snapshot: Path) -> Iterator[dict[str, Any]]:
    """Yield a snapshot's manifest to be changed, and write it with its checksum."""
    manifest = json.loads((snapshot / "manifest.json").read_text())
    yield manifest
    text = json.dumps(manifest).encode()
    (snapshot / "manifest.json").write_bytes(text)
    (snapshot / "manifest.sha256").write_text(
        f"{hashlib.sha256(text).hexdigest()}  manifest.json\n"
    )


@contextmanager
def files_of_at_most(n_bytes: int) -> Iterator[None]:
    """Limit the size of files, as a full disk does; Python ignores the signal for it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
