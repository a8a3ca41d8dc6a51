"""A stop that outlives its process, and cannot be missed."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from horde_env.errors import BackendUnavailable
from horde_env.hardware.latch import EmergencyLatch, default_path
from tests.env.hardware.peers import raising

refuse_writing = raising(PermissionError(13, "Permission denied"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "critterbot.stop"


def test_a_stop_is_seen_by_everybody_until_it_is_cleared(path: Path) -> None:
    ours = EmergencyLatch(path)
    theirs = EmergencyLatch(path)
    assert (ours.reason, ours.clear()) == ("", "")
    assert not path.parent.exists()
    ours.set("smoke from\nmotor 220")
    assert theirs.reason == ours.reason == "smoke from motor 220"
    assert theirs.clear() == "smoke from motor 220"
    assert ours.reason == ""


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe\x00half a sent", b"x" * 100_000])
def test_whatever_is_in_the_file_is_a_stop(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    assert EmergencyLatch(path).reason


def test_a_folder_in_the_files_place_is_a_stop(path: Path) -> None:
    path.mkdir(parents=True)
    latch = EmergencyLatch(path)
    assert "counts as a stop" in latch.reason
    with pytest.raises(BackendUnavailable, match="still holds"):
        latch.clear()


def test_a_place_that_cannot_be_looked_at_is_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    assert "counts as a stop" in EmergencyLatch(tmp_path / "file" / "critterbot.stop").reason
    latch = EmergencyLatch(tmp_path / "critterbot.stop")
    monkeypatch.setattr(os, "stat", refuse_writing)
    assert "Permission denied" in latch.reason


def test_a_stop_on_a_full_disk_is_an_empty_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file without a byte needs no block of the disk."""
    latch = EmergencyLatch(path)
    monkeypatch.setattr("os.fsync", raising(OSError(errno.ENOSPC, "No space left on device")))
    latch.set("smoke")
    assert path.read_bytes() == b""
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert EmergencyLatch(path).reason == "no reason was given"


def test_a_stop_that_is_held_is_not_stored_before_it_is_set(path: Path) -> None:
    latch = EmergencyLatch(path)
    latch.hold("smoke")
    assert latch.reason == "smoke"
    assert not path.exists()
    latch.set("another reason")
    assert EmergencyLatch(path).reason == "smoke"
    latch.clear()
    assert latch.reason == ""


@pytest.mark.usefixtures("own_folders")
def test_what_clears_a_latch_names_its_robot(path: Path) -> None:
    latch = EmergencyLatch(default_path("create2"))
    assert latch.robot == "create2"
    assert latch.remedy == "`horde-robot stop --clear --robot create2`"
    assert EmergencyLatch(path).robot == ""
    assert EmergencyLatch(path).remedy == f"removing {path}"


@pytest.mark.parametrize(
    "fails", ["tempfile.mkstemp", "os.replace"], ids=["read-only folder", "full disk"]
)
def test_an_unwritable_stop_holds_in_this_process(
    fails: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves no half-written file. A root user may write anywhere, so the system's answer is played."""
    latch = EmergencyLatch(path)
    with monkeypatch.context() as patch:
        patch.setattr(fails, refuse_writing)
        with pytest.raises(BackendUnavailable, match=r"this process only.*Permission denied"):
            latch.set("fire")
    assert latch.reason == "fire"
    assert EmergencyLatch(path).reason == ""
    assert list(path.parent.iterdir()) == []
    assert latch.clear() == "fire"
    assert latch.reason == ""


def test_many_who_stop_at_once_leave_one_whole_reason(path: Path) -> None:
    """No reader may ever see a stop that is set and then, uncleared, not set; nor half a reason."""
    start = threading.Barrier(9)
    finish = threading.Event()
    seen: list[str] = []

    def stop(k: int) -> None:
        start.wait()
        EmergencyLatch(path).set(f"stopped by number {k}")

    def watch() -> None:
        latch = EmergencyLatch(path)
        start.wait()
        while not finish.is_set():
            seen.append(latch.reason)
        seen.append(latch.reason)

    watcher = threading.Thread(target=watch)
    stoppers = [threading.Thread(target=stop, args=(k,)) for k in range(8)]
    for thread in (watcher, *stoppers):
        thread.start()
    for thread in stoppers:
        thread.join()
    finish.set()
    watcher.join()
    assert set(seen) <= {"", *(f"stopped by number {k}" for k in range(8))}
    assert all(seen[seen.index(next(filter(None, seen))) :])
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_who_stopped_the_robot_says_so_until_the_stop_is_cleared_or_set_anew(path: Path) -> None:
    ours = EmergencyLatch(path)
    theirs = EmergencyLatch(path)
    assert ours.answered_by == ""
    ours.set("fire")
    theirs.answer()
    assert ours.answered_by == f"process {os.getpid()}"
    ours.set("more fire")
    assert ours.answered_by, "it is the same stop"
    ours.clear()
    assert ours.answered_by == ""
    theirs.answer()
    ours.set("another fire")
    assert ours.answered_by == "", "that was an answer to an earlier stop"


def test_an_answer_that_cannot_be_written_or_read_is_none(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    latch = EmergencyLatch(path)
    latch.set("fire")
    with monkeypatch.context() as patch:
        patch.setattr("tempfile.mkstemp", refuse_writing)
        latch.answer()
    assert latch.answered_by == ""
    path.with_name("critterbot.stopped").write_bytes(b"\xff\xfe")
    assert latch.answered_by == ""


def test_each_robot_has_its_own_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_path("second") == tmp_path / "horde" / "second.stop"
    assert default_path() == tmp_path / "horde" / "critterbot.stop"
    monkeypatch.setenv("XDG_STATE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_path() == tmp_path / ".local" / "state" / "horde" / "critterbot.stop"
    for wrong in ("", "../etc", "a/b", "-f", "a b"):
        with pytest.raises(ValueError, match="a robot's name"):
            default_path(wrong)
