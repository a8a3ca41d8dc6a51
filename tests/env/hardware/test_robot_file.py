"""A robot's file: saved values are loaded, and a mistyped key is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horde_env.errors import BackendUnavailable
from horde_env.hardware.robot_file import BACKENDS, RobotFile, default_path, load, save
from horde_env.robot import critterbot
from tests.env.hardware.peers import raising

NAMES = st.sampled_from([channel.name for channel in critterbot().channels])
FINITE = st.floats(allow_nan=False, allow_infinity=False)
FILES = st.builds(
    RobotFile,
    backend=st.sampled_from(["", *BACKENDS]),
    port=st.text(st.characters(codec="utf-8")),
    parity=st.sampled_from(["", "odd", "even", "none"]),
    baudrate=st.integers(1, 4_000_000),
    signs=st.dictionaries(NAMES, st.sampled_from([1, -1])),
    ranges=st.dictionaries(
        NAMES, st.tuples(FINITE, FINITE).map(lambda pair: (min(pair), max(pair)))
    ),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all examples: pytest takes longer to make one than an example does."""
    return tmp_path_factory.mktemp("config")


@given(FILES)
def test_what_is_saved_comes_back(folder: Path, file: RobotFile) -> None:
    path = folder / "horde" / "robots" / "mine.toml"
    path.unlink(missing_ok=True)
    save(file, path)
    assert load(path) == file


def test_a_file_may_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("")
    assert load(tmp_path / "mine.toml") == RobotFile() == RobotFile("", "", "", 115_200, {}, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('backend = "robot"', "backend must be one of"),
        ("port = 3", "port must be a text"),
        ('parity = "mark"', "parity must be one of odd, even, none, not 'mark'"),
        ('parity = ["odd"]', "parity must be one of odd, even, none, not ['odd']"),
        ("baudrate = 0", "baudrate must be a positive whole number"),
        ('baudrate = "fast"', "baudrate"),
        ("baudrate = true", "baudrate"),
        ("signs = 1", "signs must be a table"),
        ("[signs]\nnose = 1", "unknown channel 'nose' in [signs]"),
        ("[signs]\nrotational_velocity = 0", "signs.rotational_velocity must be 1 or -1"),
        ("[ranges]\nlight_0 = [2, 1]", "ranges.light_0 must be [lowest, highest]"),
        ("[ranges]\nlight_0 = 2", "ranges.light_0"),
        ("[ranges]\nlight_0 = [1, nan]", "ranges.light_0"),
        ("port = ", "not valid TOML"),
        ('port = "\xff"', "not valid TOML"),  # a byte that is no text
    ],
)
def test_a_wrong_file_is_refused_by_the_name_of_what_is_wrong(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match="robot file") as refusal:
        load(path)
    assert said in str(refusal.value)
    assert str(path) in str(refusal.value)


def test_a_missing_file_says_who_writes_it(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match=r"check --robot \w+ --save"):
        load(tmp_path / "mine.toml")


def test_a_file_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.toml"
    save(RobotFile(port="old"), path)
    monkeypatch.setattr(os, "fsync", raising(OSError(28, "No space left on device")))
    with pytest.raises(BackendUnavailable, match="No space left"):
        save(RobotFile(port="new"), path)
    assert load(path).port == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_each_robot_has_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert default_path("second") == tmp_path / "horde" / "robots" / "second.toml"
    with pytest.raises(ValueError, match="a robot's name"):
        default_path("../second")
