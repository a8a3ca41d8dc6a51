"""A snapshot returns the arrays that were written to it, and is on the disk before it has its name."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent.record.snapshots import SMALL_BYTES, SnapshotDamaged, found, read, write

DTYPES = ("?", "i1", "<u2", "<i8", ">i4", "<f4", "<f8", ">f8", "<c16", "<U7", "S3", "<M8[ms]")


def random_array(rng: np.random.Generator) -> Any:
    """Return an array of rank 0 to 3, empty, below or above `SMALL_BYTES`, contiguous in C or Fortran order or not."""
    rank, dtype = int(rng.integers(4)), np.dtype(rng.choice(DTYPES))
    n = rng.choice([0, 1, 50, SMALL_BYTES // dtype.itemsize - 1, SMALL_BYTES // dtype.itemsize, 20_000])
    if rank == 0:
        # A text is the one array of rank 0 that can be large.
        return np.array("t" * n) if rng.random() < 0.5 else rng.integers(0, 256, 16, np.uint8).view("<c16")[0]
    shape = [int(rng.integers(1, 9)) for _ in range(rank - 1)]
    shape.insert(int(rng.integers(rank)), -(-int(n) // int(np.prod(shape))))
    steps = rng.choice([1] if rng.random() < 0.5 else [-2, -1, 1, 2], rank)
    size = [length * abs(step) for length, step in zip(shape, steps, strict=True)]
    data = rng.integers(0, 2 if dtype.kind == "?" else 100, int(np.prod(size)) * dtype.itemsize, np.uint8)
    if dtype.kind == "U":
        data = data.reshape(-1, 4) * np.array([1, 0, 0, 0], np.uint8)  # code points below 100
    array = data.reshape(-1).view(dtype).reshape(size, order=rng.choice(["C", "F"]))
    return array[tuple(slice(None, None, int(step)) for step in steps)].transpose(rng.permutation(rank))


def is_same(a: Any, b: Any) -> bool:
    return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def test_a_thousand_random_arrays_come_back_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _file: None)  # hundreds of large files
    rng = np.random.default_rng(0)
    state = {f"a/{k}": np.asarray(random_array(rng)) for k in range(1_000)}
    large = [array for array in state.values() if array.nbytes >= SMALL_BYTES]
    assert sum(not array.flags.c_contiguous and array.flags.f_contiguous for array in large) > 30
    assert sum(not array.flags.c_contiguous and not array.flags.f_contiguous for array in large) > 100
    assert sum(array.nbytes == 0 for array in state.values()) > 50
    assert any(array.ndim == 0 for array in large)
    back = read(write(tmp_path, 7, state, {})).state
    assert back.keys() == state.keys()
    for name, array in state.items():
        assert is_same(back[name], array), (name, array.dtype, array.shape, array.strides)
        back[name][...] = array  # it may be written to


@pytest.mark.parametrize("array", [np.array([None]), np.zeros(2, [("x", "f8")])], ids=["objects", "records"])
def test_an_array_without_a_plain_type_is_refused(array: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="odd"):
        write(tmp_path, 7, {"odd": array}, {})


def rewritten(path: Path, file: str, data: bytes) -> None:
    """Replace a file of a snapshot, and sign for it in the manifest."""
    (path / file).write_bytes(data)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"][file] |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    text = json.dumps(manifest).encode()
    (path / "manifest.json").write_bytes(text)
    (path / "manifest.sha256").write_text(f"{hashlib.sha256(text).hexdigest()}  manifest.json\n")


@pytest.mark.parametrize("shape", [b"(3, 5001)", b"(3, 4999)", b"(2, 5000)"])
def test_a_header_that_does_not_fit_its_data_is_refused_by_name(shape: bytes, tmp_path: Path) -> None:
    path = write(tmp_path, 7, {"a/b": np.zeros((3, 5_000))}, {})
    rewritten(path, "a.b.npy", (path / "a.b.npy").read_bytes().replace(b"(3, 5000)", shape, 1))
    with pytest.raises(SnapshotDamaged, match=r"a\.b\.npy"):
        read(path)


def test_all_of_a_snapshot_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, unsynced, fsync, rename = dict[int, int](), list[str](), os.fsync, Path.rename

    def syncing(file: int) -> None:
        fsync(file)
        synced[os.fstat(file).st_ino] = time.monotonic_ns()

    def renaming(path: Path, target: Path) -> Path:
        written = {file: file.stat() for file in (path, *path.iterdir())}
        unsynced.extend(file.name for file, stat in written.items() if stat.st_ino not in synced)
        assert synced[path.stat().st_ino] == max(synced.values()), "the folder is last, with all of its files"
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(Path, "rename", renaming)
    path = write(tmp_path, 7, {"large": np.zeros(SMALL_BYTES), "small": np.zeros(3)}, {})
    assert {file.name for file in path.iterdir()} == {"manifest.json", "manifest.sha256", "small.bin", "large.npy"}
    assert unsynced == []
    assert synced[tmp_path.stat().st_ino] == max(synced.values()), "the new name is on the disk, too"


def test_the_newest_two_snapshots_are_kept(tmp_path: Path) -> None:
    for step in (300, 400, 500, 600):
        write(tmp_path, step, {"a": np.zeros(3)}, {})
    assert [path.name for path in found(tmp_path)] == ["000000000600", "000000000500"]
    assert read(tmp_path / "000000000500").state.keys() == {"a"}
