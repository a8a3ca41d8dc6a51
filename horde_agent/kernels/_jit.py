"""Every numba option of this package, in one place.

A kernel releases the GIL, so that a reader thread of the robot's port is never blocked, and is cached on disk. There is
no fast-math. A NaN must stay visible, because a demon is set aside by it. And a compiler must not choose where to fuse
a multiplication with an addition: it chooses anew wherever a kernel is put into another, and a process that compiles
its kernels runs other copies of them than one that reads them from the cache, so that the first life on a machine would
differ from the second in its last bits. Where fusing pays it is written: `multiply_add` of `vectors.py`. Results
do not depend on the number of threads either, because no sum crosses a block of demons.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import pickle
import stat
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

# A parallel region costs 1.8 us with OpenMP and 129 us with numba's own work queue (two threads): a fifth of a step.
_PREFERRED_LAYERS = ("omp", "tbb", "workqueue")

_SOURCES = hashlib.sha256(
    b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.rglob("*.py")))
).hexdigest()


def choose_cache() -> bool:
    """See that numba has a folder to keep what it compiles in, if need be a temporary one, and warn where it has none.

    It takes NUMBA_CACHE_DIR, else this folder, else the user's own cache, and refuses to compile at all where none can
    be written: in a hardened container, say, or for a user without a home.

    Returns:
        Whether there is one.
    """
    if _finds_cache():
        return True
    folder = _own_folder()
    if folder is not None:
        os.environ["NUMBA_CACHE_DIR"] = str(folder)  # for processes that are started from here, too
        numba.config.reload_config()  # type: ignore[no-untyped-call]
    where = f"keeps it in {folder}, until that is cleared" if folder else "compiles anew, for about a minute, each time"
    warnings.warn(
        f"numba can write none of the folders where it keeps what it has compiled, so this program {where}: name a "
        "folder by NUMBA_CACHE_DIR",
        RuntimeWarning,
        stacklevel=2,
    )
    return folder is not None


def _finds_cache() -> bool:
    try:
        numba.njit(cache=True)(_finds_cache)
    except RuntimeError:  # cannot cache function: no locator available
        return False
    return True


def _own_folder() -> Path | None:
    """Return a temporary folder that nobody else may write, for what is in a cache is run; None where there is none."""
    user = os.getuid() if hasattr(os, "getuid") else None  # Windows has a temporary folder for each user
    try:
        folder = Path(tempfile.gettempdir()) / f"horde-numba-{user}"
        folder.mkdir(mode=0o700, exist_ok=True)
        there = folder.lstat()
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return None
    is_own = user is None or (there.st_uid == user and not there.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    return folder if stat.S_ISDIR(there.st_mode) and is_own else None


def _kept(save: Callable[[Any, Any], None], folder: str) -> Callable[[Any, Any], None]:
    """Return a cache's way to save that goes on without it where the disk takes no more."""

    def save_if_possible(signature: Any, compiled: Any) -> None:
        try:
            save(signature, compiled)
        except OSError as error:
            warnings.warn(
                f"what numba has compiled cannot be kept in {folder} ({error.strerror}): the next start compiles it "
                "again, for about a minute; make room there, or name another folder by NUMBA_CACHE_DIR",
                RuntimeWarning,
                stacklevel=2,
            )

    return save_if_possible


HAS_CACHE = choose_cache()


OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


@functools.cache
def _digest(file: str) -> str:
    """Return the SHA-256 of a source file."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def notice_sources(compiled: Any, function: Callable[..., Any]) -> None:
    """Key the cache of a kernel by the content of its file and of all files in this folder.

    Numba's own key is the time and size of the kernel's file. What is compiled holds copies of all that the kernel
    calls, so these must be in the key; and content, unlike time, is the same in a fresh clone.
    So is a list of what is in the cache that cannot be read: it names types of a version before, or a caller's own that
    are not installed here, or is torn. Numba numbers what it keeps of a kernel: of two programs that compile it at once
    for other types, one would find the other's machine code in its place. Here the types are in the file's name, and
    in the file.
    """
    cache: Any = getattr(compiled, "_cache", None)
    file = getattr(cache, "_cache_file", None)
    if file is not None:  # neither without compiling nor where there is nowhere to keep a cache
        file._source_stamp = _digest(function.__code__.co_filename), _SOURCES
        file._load_index = _or_nothing(file._load_index)
        file.save, file.load = functools.partial(_save, file), functools.partial(_load, file, file.load)
        cache.save_overload = _kept(cache.save_overload, cache.cache_path)


def _save(file: Any, key: Any, data: Any) -> None:
    """Keep what was compiled for `key`, the types of a call and the processor, and then list it."""
    name = file._data_name_pattern.format(number=int(hashlib.sha256(repr(key).encode()).hexdigest()[:12], 16))
    file._save_data(name, (file._source_stamp, key, data))
    file._save_index({**file._load_index(), key: name})


def _load(file: Any, load: Callable[[Any], Any], key: Any) -> Any:
    """Return what is kept for `key`, None where there is nothing, or what is there is another's."""
    try:
        stamp, of, data = load(key) or (None, None, None)
    except (*_UNREADABLE, pickle.UnpicklingError):
        return None
    return data if (stamp, of) == (file._source_stamp, key) else None


# What unpickling raises where bytes are missing, or others, or name what is no longer there.
_UNREADABLE = (AttributeError, ImportError, EOFError, IndexError, KeyError, TypeError, ValueError)


def _or_nothing(load: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that loads a list of cached kernels, or an empty one where it cannot be read."""

    def load_or_nothing() -> Any:
        try:
            return load()
        except (*_UNREADABLE, pickle.UnpicklingError):
            return {}

    return load_or_nothing


def _njit(**options: Any) -> Any:
    """Return numba's decorator for kernels."""

    def decorate(function: Callable[..., Any]) -> Any:
        compiled: Any = numba.njit(cache=HAS_CACHE, **OPTIONS, **options)(function)
        notice_sources(compiled, function)
        return compiled

    return decorate


kernel = _njit()
parallel_kernel = _njit(parallel=True)
# For kernels that only kernels call: without the wrappers for Python a third less is compiled. They allocate nothing,
# so that no references need counting: numba would count one for each array of a tuple that is passed on.
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
inner_kernel = _njit(**_INNER)
# For kernels that are made around another: in each process another, as far as a cache can tell.
made_kernel: Any = numba.njit(**_INNER, **OPTIONS)
# For one that returns part of an array, whose references must be counted or, as here, be written into its callers.
inlined = _njit(inline="always")


def choose_threading_layer() -> str:
    """Prefer OpenMP, then TBB, then the work queue, and warn where only the slow one is there.

    Returns:
        The layer that numba will use at the first parallel kernel; an explicit NUMBA_THREADING_LAYER is respected.
    """
    if "NUMBA_THREADING_LAYER" in os.environ or "NUMBA_THREADING_LAYER_PRIORITY" in os.environ:
        return str(numba.config.THREADING_LAYER)  # type: ignore[attr-defined]
    numba.config.THREADING_LAYER_PRIORITY = list(_PREFERRED_LAYERS)  # type: ignore[attr-defined]
    for layer, module in (("omp", "numba.np.ufunc.omppool"), ("tbb", "numba.np.ufunc.tbbpool")):
        try:
            importlib.import_module(module)
        except ImportError:
            continue
        return layer
    warnings.warn(
        "neither OpenMP (libgomp) nor TBB is installed: learning falls back to numba's work queue, which adds about "
        "0.13 ms to each step. Install libgomp1 or `pip install tbb`.",
        RuntimeWarning,
        stacklevel=2,
    )
    return "workqueue"


THREADING_LAYER = choose_threading_layer()

_PROCESS = os.getpid()


def outer_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a parallel loop that Python calls, with all threads or, on request, with `n_threads=1`.

    Little work is quicker with one: where others keep a core busy, each region waits for a slice of its time. In a
    process that was forked it is the same loop, with one thread: OpenMP ends one that begins a parallel region, of
    however few threads. That loop is not kept in the cache, where numba would take one for the other.
    """
    side_by_side, alone = parallel_kernel(function), numba.njit(**OPTIONS)(function)

    @functools.wraps(function)
    def call(*arguments: Any, n_threads: int = 0) -> Any:
        if os.getpid() != _PROCESS:
            return alone(*arguments)
        before = numba.get_num_threads()
        numba.set_num_threads(n_threads or before)
        try:
            return side_by_side(*arguments)
        finally:
            numba.set_num_threads(before)

    return call


def threads_here(n_threads: int) -> int:
    """Return how many threads a parallel loop may ask for: 1 in a process that was forked.

    A forked process has no threads but the one that forked it, and OpenMP ends one that asks for its parent's. The
    result does not depend on the number of threads, so that it learns the same, only slower.
    """
    return 1 if n_threads > 1 and os.getpid() != _PROCESS else n_threads
