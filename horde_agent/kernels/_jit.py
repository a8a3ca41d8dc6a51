"""Every numba option of this package, in one place.

A kernel releases the GIL, so that a reader thread of the robot's port is never blocked, and is cached on disk. There is
no fast-math. A NaN must stay visible, because a demon is set aside by it. And a compiler must not choose where to fuse
a multiplication with an addition: it chooses anew wherever a kernel is put into another, and a process that compiles
its kernels runs other copies of them than one that reads them from the cache, so that the first life on a machine would
differ from the second in its last bits. Where fusing pays it is written: `multiply_add`, here and in `llvm.py`. Results
do not depend on the number of threads either, because no sum crosses a block of demons.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import stat
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from llvmlite import ir  # type: ignore[import-untyped,unused-ignore]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

# A parallel region costs 1.8 us with OpenMP and 129 us with numba's own work queue (two threads): a fifth of a step.
_PREFERRED_LAYERS = ("omp", "tbb", "workqueue")

_SOURCES = hashlib.sha256(
    b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))
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


_HAS_CACHE = choose_cache()


def _or_nothing(load: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that loads a list of cached kernels, or an empty one where it cannot be read.

    It names the types that kernels were compiled for, some of which may be a caller's own that is not installed here,
    or of a version before; or it is torn.
    """

    def load_or_nothing() -> Any:
        try:
            return load()
        except Exception:
            return {}

    return load_or_nothing


def _njit(**options: Any) -> Any:
    """Return numba's decorator for kernels whose cache is void after a change in any file of this folder.

    Numba's own notices a change in a kernel's own file, but what is compiled holds copies of all that the kernel calls.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        compiled: Any = numba.njit(nogil=True, cache=_HAS_CACHE, error_model="numpy", **options)(function)
        cache: Any = getattr(compiled, "_cache", None)
        file = getattr(cache, "_cache_file", None)
        if file is not None:  # neither without compiling nor where there is nowhere to keep a cache
            file._source_stamp = file._source_stamp, _SOURCES
            file._load_index = _or_nothing(file._load_index)
            cache.save_overload = _kept(cache.save_overload, cache.cache_path)
        return compiled

    return decorate


kernel = _njit()
parallel_kernel = _njit(parallel=True)
# For kernels that only kernels call: without the wrappers for Python a third less is compiled. They allocate nothing,
# so that no references need counting: numba would count one for each array of a tuple that is passed on.
inner_kernel = _njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)
# For one that is called by its address (`entry.py`).
entry_kernel = _njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
# For a kernel with one caller, which is then not optimized and translated on its own as well, and for one that returns
# part of an array, whose references must be counted or, as here, be written into its callers.
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


if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]

    def prefetch(row: NDArray[Any], i: int) -> None:
        """Do nothing: an interpreter has no cache to warm."""

    def multiply_add(a: Any, b: Any, c: Any) -> Any:
        """Return a b + c, rounded twice: an interpreter has no such instruction."""
        return a * b + c

else:

    @intrinsic
    def prefetch(typing_context: Any, row: Any, i: Any) -> Any:  # noqa: ARG001
        """Ask for the cache line that holds `row[i]`, without waiting for it (LLVM's llvm.prefetch)."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            byte_pointer, int32 = ir.IntType(8).as_pointer(), ir.IntType(32)
            address = builder.bitcast(builder.gep(array.data, [arguments[1]]), byte_pointer)
            of_type = ir.FunctionType(ir.VoidType(), [byte_pointer, int32, int32, int32])
            llvm_prefetch = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
                builder.module, of_type, "llvm.prefetch.p0"
            )
            builder.call(llvm_prefetch, [address, int32(0), int32(3), int32(1)])  # to read, into every cache, data
            return context.get_dummy_value()

        return types.void(row, types.intp), generate

    @intrinsic
    def multiply_add(typing_context: Any, a: Any, b: Any, c: Any) -> Any:  # noqa: ARG001
        """Return a b + c, rounded once, in the wider of their types."""
        real = types.float64 if types.float64 in (a, b, c) else types.float32

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            given = zip(arguments, signature.args, strict=True)
            numbers = [context.cast(builder, number, of_type, real) for number, of_type in given]
            return builder.fma(*numbers)

        return real(a, b, c), generate
