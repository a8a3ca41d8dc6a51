"""A snapshot returns the arrays that were written to it, is on the disk before it has its name, and changes no life.

`snapshot_names.txt` lists the arrays of a small life, each with its kind and number of dimensions.
If a change of the program changes this list, earlier snapshots cannot be resumed: after a release,
append a reader of them to `record.kinds.SNAPSHOT`. Then write the list again: `python -m
tests.agent.test_snapshots`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from horde_agent import cli
from horde_agent.life.life import Life
from horde_agent.processes import own_version
from horde_agent.record import Phase, RecordLost, read, snapshots
from horde_agent.record.snapshots import SMALL_BYTES, SnapshotDamaged
from horde_agent.runs.storage import snapshot_writer as keeping
from horde_agent.runs.storage.snapshot_writer import SnapshotWriter
from tests.agent.commands import edited_manifest, summary_of, toy
from tests.facts import states

DTYPES = ("?", "i1", "<u2", "<i8", ">i4", "<f4", "<f8", ">f8", "<c16", "<U7", "S3", "<M8[ms]")


def arrays() -> Iterator[Any]:
    """Yield arrays of each type, empty, below and above `SMALL_BYTES`, contiguous in C or Fortran order or not."""
    for dtype in map(np.dtype, DTYPES):
        for n in (
            0,
            1,
            50,
            SMALL_BYTES // dtype.itemsize - 1,
            SMALL_BYTES // dtype.itemsize,
            20_000,
        ):
            flat = (
                np.random.default_rng(0)
                .integers(2 if dtype.kind == "?" else 100, size=n)
                .astype(dtype)
            )
            cube = flat[: n // 6 * 6].reshape(2, 3, -1)
            yield from (
                flat,
                flat[::-2],
                np.asfortranarray(cube),
                cube.transpose(1, 0, 2),
                cube[:, :, ::2],
            )
    # A text is the one array of rank 0 that can be large
    yield from (np.array("t" * 20_000), np.array(1j))


def test_arrays_come_back_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _file: None)  # hundreds of large files
    state = {f"a/{k}": array for k, array in enumerate(arrays())}
    state_read = snapshots.read(snapshots.write(tmp_path, 7, state, {})).state
    assert state_read.keys() == state.keys()
    for name, array in state.items():
        array_read = state_read[name]
        assert (array_read.dtype, array_read.shape, array_read.tobytes()) == (
            array.dtype,
            array.shape,
            array.tobytes(),
        ), name
        array_read[...] = array  # it may be written to


@pytest.mark.parametrize(
    "array", [np.array([None]), np.zeros(2, [("x", "f8")])], ids=["objects", "records"]
)
def test_an_array_without_a_plain_type_is_refused(array: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="odd"):
        snapshots.write(tmp_path, 7, {"odd": array}, {})


@pytest.mark.parametrize("shape", [b"(3, 5001)", b"(3, 4999)", b"(2, 5000)"])
def test_a_header_that_does_not_fit_its_data_is_refused_by_name(
    shape: bytes, tmp_path: Path
) -> None:
    path = snapshots.write(tmp_path, 7, {"a/b": np.zeros((3, 5_000))}, {})
    data = (path / "a.b.npy").read_bytes().replace(b"(3, 5000)", shape, 1)
    (path / "a.b.npy").write_bytes(data)
    with edited_manifest(path) as manifest:
        manifest["files"]["a.b.npy"] |= {
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
    with pytest.raises(SnapshotDamaged, match=r"a\.b\.npy"):
        snapshots.read(path)


def test_all_of_a_snapshot_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = dict[int, int]()
    unsynced = list[str]()
    fsync = os.fsync
    rename = Path.rename

    def syncing(file: int) -> None:
        fsync(file)
        synced[os.fstat(file).st_ino] = time.monotonic_ns()

    def renaming(path: Path, target: Path) -> Path:
        written = {file: file.stat() for file in (path, *path.iterdir())}
        unsynced.extend(file.name for file, stat in written.items() if stat.st_ino not in synced)
        assert synced[path.stat().st_ino] == max(synced.values()), (
            "the folder is last, with all of its files"
        )
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(Path, "rename", renaming)
    path = snapshots.write(tmp_path, 7, {"large": np.zeros(SMALL_BYTES), "small": np.zeros(3)}, {})
    assert {file.name for file in path.iterdir()} == {
        "manifest.json",
        "manifest.sha256",
        "small.bin",
        "large.npy",
    }
    assert unsynced == []
    assert synced[tmp_path.stat().st_ino] == max(synced.values()), (
        "the new name is on the disk, too"
    )


def steps_after_pruning(folder: Path, *steps: int) -> list[int]:
    """Write a snapshot after each of some steps, prune after each, and return the steps of those that are left."""
    for step in steps:
        path = snapshots.write(folder, step, {"a": np.zeros(3)}, {})
        snapshots.prune(path, snapshots.read)
    return sorted(int(path.name) for path in snapshots.found(folder))


def test_the_newest_two_snapshots_are_kept(tmp_path: Path) -> None:
    assert steps_after_pruning(tmp_path, 300, 400, 500, 600) == [500, 600]
    assert snapshots.read(tmp_path / "000000000500").state.keys() == {"a"}


@pytest.mark.parametrize("part", ["small.bin", "manifest.json"])
def test_a_damaged_snapshot_does_not_count_as_one_of_the_two(
    part: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """400 stays with the damaged 500 until 700 is written: 500 and 600 would be one sound one."""
    steps_after_pruning(tmp_path, 300, 400, 500)
    file = tmp_path / "000000000500" / part
    file.write_bytes(file.read_bytes()[:-1])
    assert steps_after_pruning(tmp_path, 600) == [400, 500, 600]
    assert states(caplog.text, "000000000500", "damaged", "the snapshot before it is kept")
    assert steps_after_pruning(tmp_path, 700) == [600, 700]


def test_snapshots_of_steps_that_are_taken_again_are_removed(tmp_path: Path) -> None:
    """After a return to 400 the newest two would be 500 and 450, of which 500 is of the abandoned steps."""
    assert steps_after_pruning(tmp_path, 400, 500, 450) == [400, 450]


TOLD = ("weights_sha256", "learning_steps", "n_excursions", "steps")


def lived(
    run: Path, words: str, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> dict[str, Any]:
    assert toy(f"learn --horizon 8 --seed 1 {words} --out {run}", monkeypatch, **settings) == 0
    return summary_of(run)


def steps_kept(run: Path) -> list[int]:
    return sorted(int(path.name) for path in snapshots.found(run / "checkpoint"))


def keep_each(n_steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Advance a clock by a second every `n_steps` steps, and wait for each snapshot: no other program delays one."""
    see = SnapshotWriter.before_step
    clock = SimpleNamespace(now=0.0)

    def seeing(writer: Any, life: Life) -> None:
        for thread in threading.enumerate():
            if thread.name == "keeping":
                thread.join()
        clock.now += 1.0 / n_steps
        see(writer, life)

    monkeypatch.setattr(SnapshotWriter, "before_step", seeing)
    monkeypatch.setattr(keeping, "time", SimpleNamespace(monotonic=lambda: clock.now))


@pytest.mark.parametrize(
    "backend", ["simulator", "simulator --realtime"], ids=["deferred", "eager"]
)
def test_a_life_with_snapshots_is_the_life_without(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deferred, each is copied while steps wait to be learned."""
    words = f"--backend {backend} --steps 600"
    without = lived(tmp_path / "a", f"{words} --snapshot-every never", monkeypatch)
    monkeypatch.setattr(snapshots.prune, "__kwdefaults__", {"kept": 99})
    keep_each(50, monkeypatch)
    with_them = lived(tmp_path / "b", f"{words} --snapshot-every 1s", monkeypatch)
    assert {key: with_them[key] for key in TOLD} == {key: without[key] for key in TOLD}
    paths = list(snapshots.found(tmp_path / "b" / "checkpoint"))
    assert len(paths) >= 7
    for path in paths:
        state = snapshots.read(path).state
        assert any(name.startswith("life/student/horde/engine/") for name in state), path


def test_in_real_time_a_snapshot_is_copied_before_a_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The robot stands there, and no transition is learned across it: a copy that takes long delays no step."""
    monkeypatch.setattr(snapshots.prune, "__kwdefaults__", {"kept": 99})
    keep_each(5, monkeypatch)
    lived(
        tmp_path / "a",
        "--realtime --excursion-probability 0.2 --steps 300 --snapshot-every 1s",
        monkeypatch,
    )
    rows = read(tmp_path / "a" / "log" / "life.rec").rows
    drives = set(rows["step"][rows["phase"] == Phase.CENTRE].tolist())
    steps = steps_kept(tmp_path / "a")
    assert len(steps) > 5
    assert set(steps) - {300} <= drives


def test_in_real_time_a_snapshot_does_not_wait_for_ever_for_a_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second is 8 steps; a snapshot is due each second, and is copied in any case after a wait of two more."""
    monkeypatch.setattr(snapshots.prune, "__kwdefaults__", {"kept": 99})
    monkeypatch.setattr(keeping, "LONGEST_WAIT_S", 2.0)
    keep_each(8, monkeypatch)
    lived(
        tmp_path / "a",
        "--realtime --excursion-probability 0 --steps 100 --snapshot-every 1s",
        monkeypatch,
    )
    steps = steps_kept(tmp_path / "a")
    assert len(steps) == 5
    assert [later - earlier for earlier, later in pairwise(steps[:4])] == [24, 24, 24]
    assert steps[-1] == 100


def test_a_snapshot_has_the_state_of_its_step_however_late_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Writing takes 200 steps; the run continues, and resumes from that snapshot with the same weights."""
    words = "--physics planar --seed 1 --questions nexting --snapshot-every"
    may_write = Event()
    original = snapshots.write_file
    for name, every in (("never", "never"), ("late", "0.001s")):
        with monkeypatch.context() as patch:
            patch.setattr(snapshots.prune, "__kwdefaults__", {"kept": 99})
            patch.setattr(
                snapshots, "write_file", lambda *given: (may_write.wait(60.0), original(*given))[1]
            )
            patch.setattr(SnapshotWriter, "before_step", at_step(200, may_write.set))
            if every == "never":
                may_write.set()
            assert (
                cli.main(f"learn {words} {every} --steps 205 --out {tmp_path / name}".split()) == 0
            )
            may_write.clear()
    assert states(caplog.text, "not written yet")
    *others, first = snapshots.found(tmp_path / "late" / "checkpoint")
    assert int(first.name) < 50
    for path in others:
        shutil.rmtree(path)
    (tmp_path / "late" / "summary.json").unlink()
    assert cli.main(f"resume {tmp_path / 'late'} --steps 205".split()) == 0
    one, late_summary = (summary_of(tmp_path / name) for name in ("never", "late"))
    assert {key: one[key] for key in TOLD} == {key: late_summary[key] for key in TOLD}


def at_step(n: int, do: Callable[[], None]) -> Callable[[SnapshotWriter, Life], None]:
    """Return `SnapshotWriter.before_step`, which then calls `do` before step n."""
    before_step = SnapshotWriter.before_step

    def doing(writer: SnapshotWriter, life: Life) -> None:
        before_step(writer, life)
        if life.steps == n:
            do()

    return doing


def test_a_snapshot_that_cannot_be_written_is_logged_and_the_previous_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lived(tmp_path / "a", "--steps 300 --snapshot-every never", monkeypatch)
    (previous,) = snapshots.found(tmp_path / "a" / "checkpoint")

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    snapshot = snapshots.read(previous)
    with monkeypatch.context() as patch:
        patch.setattr(snapshots, "write_file", full)
        with pytest.raises(RecordLost, match="No space left"):
            snapshots.write(tmp_path / "a" / "checkpoint", 999, snapshot.state, snapshot.facts)
        caplog.set_level(logging.WARNING)
        assert cli.main(f"resume {tmp_path / 'a'} --steps 500".split()) == 0
    assert states(caplog.text, "snapshot", "step 500", "No space left on device")
    assert [path.name for path in snapshots.found(tmp_path / "a" / "checkpoint")] == [previous.name]
    assert not list((tmp_path / "a" / "checkpoint").glob(".*"))


def test_a_snapshot_names_the_version_that_the_run_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package may be upgraded meanwhile; the process keeps its code."""
    upgrade = lambda _age: monkeypatch.setattr(keeping, "own_version", lambda: "9.9")  # noqa: E731
    lived(tmp_path / "a", "--steps 50 --snapshot-every never", monkeypatch, on_step=upgrade)
    (path,) = snapshots.found(tmp_path / "a" / "checkpoint")
    assert snapshots.read(path).facts["version"] == own_version()


KNOWN = Path(__file__).with_name("snapshot_names.txt")
OWN = """
[[family]]
policies = ["forward", "behaviour"]
gammas = [0.0, 0.9]
channels = ["light_0"]
"""


def names_of(folder: Path) -> str:
    """Live 60 steps of the planar simulator and return the arrays of its snapshot, as `KNOWN` has them."""
    (folder / "own.toml").write_text(OWN)
    words = f"learn --physics planar --steps 60 --questions {folder / 'own.toml'} --out {folder / 'run'}"
    assert cli.main(words.split()) == 0
    (path,) = snapshots.found(folder / "run" / "checkpoint")
    state = snapshots.read(path).state
    return "".join(f"{name} {state[name].dtype.kind}{state[name].ndim}\n" for name in sorted(state))


def test_no_part_of_a_snapshot_changes_unnoticed(tmp_path: Path) -> None:
    names = set(names_of(tmp_path).splitlines())
    known_names = set(KNOWN.read_text().splitlines())
    assert sorted(names - known_names) == sorted(known_names - names) == [], __doc__


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as elsewhere:
        KNOWN.write_text(names_of(Path(elsewhere)))
