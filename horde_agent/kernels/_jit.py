"""Every numba option of this package, in one place.

Kernels release the GIL, so that the thread that reads the robot's port is never blocked, and are
cached on disk. Fast-math is off for two reasons. A NaN must stay visible, because it marks a demon
as diverged. And the compiler must not choose where to fuse a multiplication with an addition: its
choice differs each time a kernel is inlined, and a process that compiles its kernels inlines other
copies than one that reads them from the cache, so that the first run on a machine would differ from
the second in its last bits. Fused operations are explicit: `multiply_add` of `vectors.py`. Results
do not depend on the number of threads either, because no sum crosses a block of demons.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import importlib
import os
import pickle
import stat
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import numba
from llvmlite.binding import Linkage  # type: ignore[import-untyped,unused-ignore]
from numba.core import event, typed_passes, untyped_passes
from numba.core.caching import IndexDataCacheFile
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import AnalysisPass, PassManager, register_pass
from numba.core.typed_passes import IRLegalization

# A parallel region costs 1.8 us with OpenMP and 129 us with numba's own work queue (two threads): a
# fifth of a step.
_PREFERRED_LAYERS = ("omp", "tbb", "workqueue")
_SPINS = "2000"  # of some 25 ns

_SOURCES = hashlib.sha256(
    b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.rglob("*.py")))
).hexdigest()


def choose_cache() -> bool:
    """Choose a writable folder for numba's cache, if necessary a temporary one; warn if that fails.

    Numba tries NUMBA_CACHE_DIR, this folder and the user's cache folder, and refuses to compile if
    it can write none of them (a hardened container, a user without a home folder).

    Returns:
        True if compiled kernels can be cached.
    """
    if _finds_cache():
        return True
    folder = _own_folder()
    if folder is not None:
        os.environ["NUMBA_CACHE_DIR"] = str(folder)  # child processes inherit it
        numba.config.reload_config()  # type: ignore[no-untyped-call]
    effect = (
        f"kernels are cached in {folder}" if folder else "each start compiles for about a minute"
    )
    warnings.warn(
        f"none of numba's cache folders is writable, so {effect}: set NUMBA_CACHE_DIR to a writable folder",
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
    """Return a temporary folder that only this user can write, because cached code is executed; None if impossible."""
    user = os.getuid() if hasattr(os, "getuid") else None  # Windows has a temporary folder per user
    try:
        folder = Path(tempfile.gettempdir()) / f"horde-numba-{user}"
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return None
    is_own = user is None or (
        status.st_uid == user and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )
    return folder if stat.S_ISDIR(status.st_mode) and is_own else None


def _warn_if_unwritable(
    save: Callable[[Any, Any], None], folder: str
) -> Callable[[Any, Any], None]:
    """Wrap a cache's `save` so that a full or read-only disk causes a warning, not an error."""

    def save_if_possible(signature: Any, compiled: Any) -> None:
        try:
            save(signature, compiled)
        except OSError as error:
            warnings.warn(
                f"cannot write numba's cache in {folder} ({error.strerror}): the next start compiles again, for about "
                "a minute. Free disk space, or set NUMBA_CACHE_DIR to another folder",
                RuntimeWarning,
                stacklevel=2,
            )

    return save_if_possible


HAS_CACHE = choose_cache()


OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}

# Whether only documented features of numba are used: see `vectors.py`.
_IS_INTERPRETED = bool(numba.config.DISABLE_JIT)  # type: ignore[attr-defined]
IS_PORTABLE = _IS_INTERPRETED or os.environ.get("HORDE_PLAIN_KERNELS", "0") not in ("", "0")


@functools.cache
def _digest(file: str) -> str:
    """Return the SHA-256 of a source file."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def notice_sources(compiled: Any, function: Callable[..., Any]) -> None:
    """Key the cache of a kernel by the content of its file and of all files in this folder.

    Numba's own key covers the kernel's file alone: its content, or in older versions its time and
    size. Machine code contains copies of all that the kernel calls, so the key must cover those
    files; and content, unlike time, is the same in a fresh clone.
    """
    cache: Any = getattr(compiled, "_cache", None)
    # None without compilation or without a cache folder
    if getattr(cache, "_cache_file", None) is not None:
        stamp = _digest(function.__code__.co_filename), _SOURCES
        cache._cache_file = _CacheFile(cache.cache_path, cache._impl.filename_base, stamp)  # type: ignore[no-untyped-call]
        cache.save_overload = _warn_if_unwritable(cache.save_overload, cache.cache_path)


# Errors when unpickling truncated or damaged bytes, or names that no longer exist.
_UNREADABLE = (
    AttributeError,
    ImportError,
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
)


class _CacheFile(IndexDataCacheFile):
    """A kernel's cache on disk.

    An index that cannot be read is treated as empty: it is truncated, or names types of an older
    version or of a package that is not installed. Numba numbers the files of a kernel, so that two
    programs that compile it at the same time for different types could read each other's machine
    code. Here the file's name and content include the types.
    """

    def save(self, key: Any, data: Any) -> None:
        """Write the machine code for `key`, the types of a call and the processor, then add it to the index."""
        name = self._data_name_pattern.format(
            number=int(hashlib.sha256(repr(key).encode()).hexdigest()[:12], 16)
        )
        self._save_data(name, (self._source_stamp, key, data))  # type: ignore[no-untyped-call]
        self._save_index({**self._load_index(), key: name})  # type: ignore[no-untyped-call]

    def load(self, key: Any) -> Any:
        """Return the machine code for `key`, None if it is missing or was compiled from other sources or types."""
        try:
            stamp, signature, data = super().load(key) or (None, None, None)  # type: ignore[no-untyped-call]
        except _UNREADABLE:
            return None
        return data if (stamp, signature) == (self._source_stamp, key) else None

    def _load_index(self) -> Any:
        try:
            return super()._load_index()  # type: ignore[no-untyped-call]
        except _UNREADABLE:
            return {}


class _CollectRarely(event.Listener):
    """Lets Python's garbage collector run rarely while numba compiles: nearly all that it looks at is in use.

    It would take a tenth of the time to compile.
    """

    ALLOCATIONS = 100_000
    """Objects between two collections; Python's own number is 700 or 2,000."""

    def __init__(self) -> None:
        self._n_open = 0  # a kernel is compiled while another one that calls it is
        self._thresholds = gc.get_threshold()

    def on_start(self, event: event.Event) -> None:  # noqa: ARG002
        """Note the collector's settings at the first kernel of several, and change them."""
        if self._n_open == 0:
            self._thresholds = gc.get_threshold()
            if self._thresholds[0] > 0:  # not switched off
                gc.set_threshold(self.ALLOCATIONS, *self._thresholds[1:])
        self._n_open += 1

    def on_end(self, event: event.Event) -> None:  # noqa: ARG002
        """Put the settings back after the outermost kernel."""
        self._n_open -= 1
        if self._n_open == 0:
            gc.set_threshold(*self._thresholds)


if not _IS_INTERPRETED:
    event.register("numba:compile", _CollectRarely())  # type: ignore[no-untyped-call]


# Python calls no kernel through its wrapper for C.
_OUTER: dict[str, Any] = {"no_cfunc_wrapper": True, **OPTIONS}


def _njit(**options: Any) -> Any:
    """Return numba's decorator for kernels."""

    def decorate(function: Callable[..., Any]) -> Any:
        compiled: Any = numba.njit(cache=HAS_CACHE, **_OUTER, **options)(function)
        notice_sources(compiled, function)
        return compiled

    return decorate


class _PartLibrary(JITCodeLibrary):
    """Code of a kernel that only kernels call: they contain a copy, so that it need not be translated.

    Numba would translate it to machine code all the same, which takes a quarter of the time of
    compiling a robot, a third of that of a Horde.
    """

    def _optimize_functions(self, ll_module: Any) -> None:
        """Leave the code as it is: the kernels that contain it are optimised as a whole."""

    def finalize(self) -> None:
        """Neither link, optimise nor translate the code."""
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        """Return the code together with that of all kernels that it calls, each once."""
        self._ensure_finalized()  # type: ignore[no-untyped-call]
        if self._shared_module is None:
            self._shared_module = self._final_module.clone()
            for library in self._contained({}):
                module = library._final_module
                if not isinstance(library, _PartLibrary):
                    module = library._get_module_for_linking()
                self._shared_module.link_in(module, preserve=True)
            for function in self._shared_module.functions:
                if not function.is_declaration and function.linkage == Linkage.external:
                    function.linkage = "linkonce_odr"  # other kernels contain copies, too
        return self._shared_module

    def _contained(self, libraries: dict[Any, None]) -> dict[Any, None]:
        """Return all libraries that this one needs, callers first."""
        for library in self._linking_libraries:
            if library not in libraries:
                libraries[library] = None
                if isinstance(library, _PartLibrary):
                    library._contained(libraries)
        return libraries

    @property
    def codegen(self) -> Any:
        """An object with a `set_env` that does nothing: only machine code has an environment."""
        return SimpleNamespace(set_env=lambda *_: None)


@register_pass(mutates_CFG=False, analysis_only=True)  # type: ignore[no-untyped-call]
class _ChooseLibrary(AnalysisPass):
    _name = "horde_part_library"

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def run_pass(self, state: Any) -> bool:
        library: Any = _PartLibrary
        state.library = library(state.targetctx.codegen(), state.func_id.func_qualname)
        return False


_DEFAULT_FLAGS = {name: option.default for name, option in Flags.options.items()}
_HASH = hash(tuple(sorted(_DEFAULT_FLAGS)))


class _QuickFlags(Flags):
    """Numba's flags, read at once: numba compares them at each operator, a tenth of the time of compiling."""

    def values(self) -> Any:
        return {**_DEFAULT_FLAGS, **self._values}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Flags):
            return NotImplemented
        return bool(self.values() == {**_DEFAULT_FLAGS, **other._values})

    def __hash__(self) -> int:
        return _HASH  # that of numba's own flags, which is one of their names


# Numba's passes for constructs that parts do not have: with blocks, functions in functions, branches on constants of
# Python, raise, literal arguments, functions inlined by type, whole arrays. They take a twentieth of the time.
_UNUSED_PASSES = frozenset(
    {
        untyped_passes.WithLifting,
        untyped_passes.InlineClosureLikes,
        untyped_passes.RewriteSemanticConstants,
        untyped_passes.DeadBranchPrune,
        untyped_passes.RewriteDynamicRaises,
        untyped_passes.MakeFunctionToJitFunction,
        untyped_passes.FindLiterallyCalls,
        untyped_passes.LiteralUnroll,
        untyped_passes.LiteralPropagationSubPipelinePass,
        typed_passes.InlineOverloads,
        typed_passes.NopythonRewrites,
        typed_passes.NoPythonSupportedFeatureValidation,
        typed_passes.DumpParforDiagnostics,
    }
)


class _PartCompiler(CompilerBase):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)  # type: ignore[no-untyped-call]
        self.state.flags = _QuickFlags(self.state.flags)  # type: ignore[no-untyped-call]

    def define_pipelines(self) -> list[Any]:
        default: Any = DefaultPassBuilder.define_nopython_pipeline(self.state)  # type: ignore[no-untyped-call]
        passes: Any = PassManager("part")  # type: ignore[no-untyped-call]
        passes.passes = [entry for entry in default.passes if entry[0] not in _UNUSED_PASSES]
        passes.add_pass_after(_ChooseLibrary, IRLegalization)
        passes.finalize()
        return [passes]


kernel = _njit()
parallel_kernel = _njit(parallel=True)
# For kernels that only kernels call: without the wrappers for Python a third less code is compiled.
# They allocate nothing, so that references need no counting; numba would count one for each array
# of a tuple argument. They are not cached: with the kernels that contain them, nothing is left to
# compile.
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
if not IS_PORTABLE:
    _INNER["pipeline_class"] = _PartCompiler
INNER_OPTIONS: dict[str, Any] = {**_INNER, **OPTIONS}
inner_kernel: Any = numba.njit(**INNER_OPTIONS)
# The same for a small kernel in an inner loop: the compiler would not copy it into its callers if
# its vectors are wide.
INLINED_OPTIONS: dict[str, Any] = {**INNER_OPTIONS, "forceinline": True}
inlined_kernel: Any = numba.njit(**INLINED_OPTIONS)
# For a function that returns part of an array: inlined into its callers, it needs no reference
# counting.
inlined = _njit(inline="always")


class Constant(int):
    """An integer in a packed tuple that kernels are compiled for: branches on it cost nothing."""


@contextmanager
def _waiting_briefly() -> Iterator[None]:
    """Set that threads of GNU OpenMP, if it is loaded here, spin for 50 us after a parallel loop, and sleep then.

    By default they spin for some 8 ms in case that another loop follows: half a core is lost while a Horde learns
    from batches or in real time. Settings of the environment are respected, and other libraries see no change.
    """
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}.isdisjoint(os.environ):
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = _SPINS
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]


def choose_threading_layer() -> str:
    """Prefer OpenMP, then TBB, then the work queue; warn if only the slow work queue is available.

    Returns:
        The layer that numba uses from the first parallel kernel on; an explicit
        NUMBA_THREADING_LAYER is respected.
    """
    if "NUMBA_THREADING_LAYER" in os.environ or "NUMBA_THREADING_LAYER_PRIORITY" in os.environ:
        return str(numba.config.THREADING_LAYER)  # type: ignore[attr-defined]
    numba.config.THREADING_LAYER_PRIORITY = list(_PREFERRED_LAYERS)  # type: ignore[attr-defined]
    for layer, module in (("omp", "numba.np.ufunc.omppool"), ("tbb", "numba.np.ufunc.tbbpool")):
        try:
            with _waiting_briefly():
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

# Numba's work queue aborts the process if two threads run a parallel loop at the same time; the other layers do not.
_CAN_RUN_SIDE_BY_SIDE = THREADING_LAYER in ("omp", "tbb", "safe", "threadsafe")
# A process has one work queue, so its lock is stored in numba, where other packages with parallel loops find it.
_WORK_QUEUE_LOCK: threading.Lock = vars(numba).setdefault("horde_work_queue_lock", threading.Lock())

# Not empty in a process that was forked. A question to the system in each call, which process this
# is, would take longer than many kernels.
_forks: list[bool] = []


def _note_fork() -> None:
    _forks.append(True)


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_note_fork)


def one_at_a_time(function: Callable[..., Any], n_threads: int = 0) -> Callable[..., Any]:
    """Return a function that starts parallel loops, under a lock if the work queue runs them.

    Args:
        function: A compiled kernel.
        n_threads: Number of threads of its loops, 0 for all; one thread needs no lock.
    """
    if _CAN_RUN_SIDE_BY_SIDE or n_threads == 1:
        return function

    def call(*arguments: Any) -> Any:
        with _WORK_QUEUE_LOCK:
            return function(*arguments)

    return call


def outer_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a parallel loop that Python calls, and the same loop for one thread (`n_threads=1`).

    Little work is faster on one thread: while another program uses a core, each parallel region
    waits for that core. A forked process always uses one, because OpenMP aborts a forked process
    that starts a parallel region. Each of the two is compiled when it is first called; numba would
    confuse their caches if their names were equal.
    """
    serial = FunctionType(function.__code__, function.__globals__, f"{function.__name__}_serial")
    serial.__qualname__ = serial.__name__
    on_one_thread = kernel(serial)
    in_parallel = one_at_a_time(parallel_kernel(function))

    @functools.wraps(function)
    def call(*arguments: Any, n_threads: int = 0) -> Any:
        if threads_here(n_threads) == 1:
            return on_one_thread(*arguments)
        return in_parallel(*arguments)

    return call


def threads_here(n_threads: int) -> int:
    """Return how many threads a parallel loop may use, 0 for all: 1 in a forked process.

    OpenMP's threads do not survive a fork, and it aborts a child that starts a parallel region.
    Results do not depend on the number of threads: a forked process learns the same, only slower.
    """
    if _forks:
        return 1
    return n_threads
