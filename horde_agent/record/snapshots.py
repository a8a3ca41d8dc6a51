"""Snapshots: the state of a run on disk, complete or absent, in files that numpy reads.

checkpoint/000000036000/       the state after 36,000 steps
    manifest.json              sizes and SHA-256 of all files, offsets of the small arrays, versions
    manifest.sha256            of the manifest itself, as `sha256sum -c` checks it
    small.bin                  arrays of less than 64 KB, one after the other
    student.horde...npy        any other array, by its name

A snapshot is written into a temporary folder, which is synced and then renamed, so that a snapshot
with its final name is complete. The newest two sound ones are kept. If one is damaged, the one
before it is used.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from horde_agent.record.kinds import SNAPSHOT, Content, NewerFormat
from horde_agent.record.segments import RecordLost, sync_folder, write_all
from horde_agent.saving import State

KEPT = 2
SMALL_BYTES = 1 << 16
_MANIFEST = "manifest.json"
_CHECK = "manifest.sha256"
_SMALL = "small.bin"
_UNFINISHED = ".unfinished-"

_log = logging.getLogger(__name__)


class SnapshotDamaged(ValueError):
    """A snapshot is damaged; the message names the file."""


class Snapshot(NamedTuple):
    """A snapshot that was read, in the present format."""

    path: Path  # its folder
    state: State  # see `Life.state`
    facts: dict[str, Any]  # its step, versions and further facts, from JSON


def processor() -> str:
    """Return the processor that kernels are compiled for."""
    import llvmlite.binding  # type: ignore[import-untyped,unused-ignore]

    return f"{platform.machine()} {llvmlite.binding.get_host_cpu_name()}"


def identity() -> dict[str, str]:
    """Return the versions and the processor, on which the rounding of sums depends."""
    return {
        "numba": numba.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "processor": processor(),
    }


def write(folder: Path, step: int, state: State, facts: Mapping[str, Any]) -> Path:
    """Write a snapshot into a folder, remove incomplete ones, and return its own folder; `prune` removes older ones.

    The state has arrays of numbers or texts, of any shape and layout; facts are JSON types, for the
    manifest, which adds the `identity` of this process unless they have one.

    Raises:
        RecordLost: If it cannot be written; its files are removed, and earlier snapshots stay.
        TypeError: If an array holds objects or records.
    """
    path = folder / f"{step:012d}"
    part = folder / f"{_UNFINISHED}new"
    odd = next((name for name, array in state.items() if array.dtype.kind in "OV"), None)
    if odd:
        raise TypeError(
            f"{odd} has dtype {state[odd].dtype}; a snapshot stores arrays of numbers or texts only"
        )
    try:
        folder.mkdir(exist_ok=True)
        for left in unfinished(folder):
            remove_unfinished(left)
        part.mkdir()
        manifest = {
            **SNAPSHOT.stamp(),
            "facts": {"step": step, **identity(), **facts},
        }
        text = json.dumps(manifest | _write_arrays(part, state), indent=1).encode()
        write_file(part / _MANIFEST, text)
        write_file(part / _CHECK, f"{hashlib.sha256(text).hexdigest()}  {_MANIFEST}\n".encode())
        sync_folder(part)
        _remove(path)  # of a run that was restored and reached this step again
        part.rename(path)
        sync_folder(folder)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise RecordLost(error.errno, error.strerror, str(part)) from error
    return path


def prune(newest: Path, check: Callable[[Path], object], *, kept: int = KEPT) -> None:
    """Remove all snapshots but the newest `kept` sound ones; damaged ones between these stay.

    Snapshots of later steps are removed, too: the run went back to before them, and takes these steps
    again.

    Args:
        newest: The snapshot that was just written.
        check: Raises SnapshotDamaged or NewerFormat for a snapshot that no run can be resumed from.
        kept: Number of snapshots.
    """
    remove_after(newest.parent, int(newest.name))
    n_sound = 0
    for path in found(newest.parent):
        if n_sound >= kept:
            _remove(path)
            continue
        try:
            if path != newest:
                check(path)
            n_sound += 1
        except (SnapshotDamaged, NewerFormat) as error:
            _log.warning("%s; the snapshot before it is kept", error)


def remove_after(folder: Path, step: int) -> None:
    """Remove the snapshots of steps after `step`."""
    _remove(*(path for path in found(folder) if int(path.name) > step))


def _write_arrays(part: Path, state: State) -> dict[str, Any]:
    """Write each array in C order, small ones into one file; return their entries of the manifest."""
    small = io.BytesIO()
    placed = list[dict[str, Any]]()
    files = dict[str, Any]()
    for name, array in state.items():
        if array.nbytes < SMALL_BYTES:
            placed.append(
                {
                    "name": name,
                    "dtype": array.dtype.str,
                    "shape": array.shape,
                    "offset": small.tell(),
                }
            )
            small.write(array.tobytes())
            continue
        array = np.asarray(array, order="C")
        head = io.BytesIO()
        file = name.replace("/", ".") + ".npy"
        np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(array))
        files[file] = write_file(part / file, head.getvalue(), array) | {"name": name}
    files[_SMALL] = write_file(part / _SMALL, small.getvalue())
    return {"files": files, "small": placed}


def write_file(path: Path, head: bytes, array: NDArray[Any] | None = None) -> dict[str, Any]:
    """Write and sync a file of a snapshot; return its size and SHA-256. Tests let it wait or fail.

    The bytes of `head` come first, then those of the array, of any shape.
    """
    digest = hashlib.sha256(head)
    data = memoryview(b"")
    if array is not None:
        data = memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    with path.open("xb", buffering=0) as file:
        write_all(file, head)
        write_all(file, data)
        digest.update(data)
        os.fsync(file.fileno())
    return {"bytes": len(head) + len(data), "sha256": digest.hexdigest()}


def remove(path: Path) -> None:
    """Remove a snapshot."""
    _remove(path)


def _remove(*paths: Path) -> None:
    """Remove snapshots, renamed first, so that none is visible in part."""
    for path in paths:
        if path.exists():
            if path.name.startswith(_UNFINISHED):
                hidden = path
            else:
                hidden = path.with_name(f"{_UNFINISHED}gone-{path.name}")
            if hidden != path:
                path.rename(hidden)
            remove_unfinished(hidden)


def unfinished(folder: Path) -> list[Path]:
    """Return what interrupted snapshots left in a folder, and anything else of such a name."""
    return sorted(folder.glob(f"{_UNFINISHED}*"))


def remove_unfinished(path: Path) -> None:
    """Remove an unfinished snapshot, or a file or link of such a name."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def found(folder: Path) -> Iterator[Path]:
    """Yield the snapshots in a folder, newest first."""
    yield from sorted((path for path in folder.glob("[0-9]*") if path.is_dir()), reverse=True)


def read(path: Path) -> Snapshot:
    """Read and check a snapshot; raise as `read_manifest`, or if a file is damaged. Large arrays are memory-mapped."""
    manifest = read_manifest(path)
    state: State = {}
    for file, entry in manifest["files"].items():
        _check(path / file, entry)
        if file != _SMALL:
            state[entry["name"]] = _map(path / file)
    data = (path / _SMALL).read_bytes()
    for place in manifest["small"]:
        dtype = np.dtype(place["dtype"])
        shape = tuple(place["shape"])
        n = int(np.prod(shape))
        if n and dtype.itemsize:
            array = np.frombuffer(data, dtype, n, place["offset"])
        else:
            array = np.zeros(n, dtype)
        state[place["name"]] = array.reshape(shape).copy()
    content = _in_present_format(manifest, state)
    return Snapshot(path, state=content.body, facts=content.head)


def read_facts(path: Path) -> dict[str, Any]:
    """Return the facts of a snapshot, without reading its arrays; raise as `read_manifest`."""
    return _in_present_format(read_manifest(path), {}).head


def _in_present_format(manifest: dict[str, Any], state: State) -> Content:
    """Return the facts and the state of a snapshot in the present format."""
    return SNAPSHOT.read(manifest["version"], Content(manifest["facts"], state))


def _map(path: Path) -> NDArray[Any]:
    """Return a large array, memory-mapped, copy on write; raise SnapshotDamaged if its header does not fit its data."""
    try:
        array: np.memmap[Any, Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    except ValueError as error:
        raise SnapshotDamaged(f"{path} is damaged: {error}") from None
    n_bytes = path.stat().st_size - array.offset
    if n_bytes != array.nbytes or not array.flags.c_contiguous:
        raise SnapshotDamaged(
            f"{path} is damaged: {n_bytes:,} bytes of data for shape {array.shape} of {array.dtype}"
        )
    return array


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a snapshot, as it was written; raise SnapshotDamaged, or NewerFormat if it is newer."""
    try:
        text = (path / _MANIFEST).read_bytes()
        check = (path / _CHECK).read_bytes()
    except OSError as error:
        raise SnapshotDamaged(f"{error.filename} cannot be read ({error.strerror})") from None
    if check != f"{hashlib.sha256(text).hexdigest()}  {_MANIFEST}\n".encode():
        raise SnapshotDamaged(
            f"{path / _MANIFEST} or {_CHECK} is damaged: the one does not have the other's SHA-256"
        )
    manifest: dict[str, Any] = json.loads(text)
    SNAPSHOT.version_of(manifest, path)
    return manifest


def _check(path: Path, entry: Mapping[str, Any]) -> None:
    try:
        n_bytes = path.stat().st_size
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SnapshotDamaged(f"{path} cannot be read ({error.strerror})") from None
    if n_bytes != entry["bytes"]:
        raise SnapshotDamaged(f"{path} is damaged: {n_bytes:,} bytes, expected {entry['bytes']:,}")
    if digest != entry["sha256"]:
        raise SnapshotDamaged(
            f"{path} is damaged: it does not have the SHA-256 that was written with it"
        )
