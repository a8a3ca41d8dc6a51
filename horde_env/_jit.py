"""All numba options and internals of this package, and the kernels that every body needs.

Functions that `horde_agent.kernels._jit` has too are the same there, as neither package imports the
other: change both (`tests/test_twins.py` compares them).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import math
import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped,unused-ignore]
from llvmlite.binding import Linkage  # type: ignore[import-untyped,unused-ignore]
from numba import prange, types
from numba.core import cgutils, typed_passes, untyped_passes
from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import AnalysisPass, PassManager, register_pass
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import IRLegalization
from numba.extending import intrinsic
from numpy.random import Generator
from numpy.typing import NDArray

from horde_env.backend import Floats

Function = TypeVar("Function", bound=Callable[..., Any])

RecordFields = tuple[Any, ...]
"""A NamedTuple of arrays and numbers as Python passes it to a kernel: the plain tuple of its fields.

The kernel names them first: `plant = Plant(*plant_fields)`. To pass the NamedTuple itself takes more
than twice as long, as numba then finds its type anew in each call (7 us instead of 2 for 21 arrays).
Kernels call such a kernel with the plain tuple too (`record[:]`): for a NamedTuple it would be
compiled again.
"""


Record = np.record
Records = NDArray[Any]
"""A structured array of shape (n,), whose fields are arrays, and one of its rows: kernels read `robots[i].arm`.

Python passes the array and an index, in 0.2 us: numba takes a row apart in 4 us in each call.
"""


def _finds_cache() -> bool:
    try:
        numba.njit(cache=True)(_finds_cache)
    except RuntimeError:  # cannot cache function: no locator available
        return False
    return True


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


_HAS_CACHE = _finds_cache()
if not _HAS_CACHE:
    warnings.warn(
        "numba has no writable cache folder, so each start compiles again, for some seconds; set NUMBA_CACHE_DIR to a "
        "writable folder",
        RuntimeWarning,
        stacklevel=2,
    )

# Kernels here create no arrays, so reference counts are unnecessary: counting each slice took half
# the time of a period of the planar engine. An array is passed as ten numbers: without calls, as LLVM
# inlines a kernel into all that call it, a tick takes half the time. HORDE_PLAIN_KERNELS=1 disables
# these internal options of numba, in case a later numba no longer has them.
_INTERNAL: dict[str, Any] = {}
if os.environ.get("HORDE_PLAIN_KERNELS") != "1":
    _INTERNAL = {"_nrt": False, "forceinline": True}


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
    _name = "horde_env_part_library"

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


_ALL: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
# Kernels that call it need no wrappers for Python, which unpack each array of each record.
_OF_PARTS: dict[str, Any] = {
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": _PartCompiler,
}


class _KernelWithPart(CPUDispatcher):
    """A kernel that Python calls, compiled apart from its copies in the kernels that call it.

    Each kernel with wrappers for Python takes twice the time of compiling: 18 s instead of 9 until
    the first step of the planar engine.
    """

    part: Any

    @property
    def _numba_type_(self) -> Any:
        """Numba's type of the function that kernels call."""
        return types.Dispatcher(self.part)


@functools.cache
def _digest(file: str) -> str:
    """Return the SHA-256 of a source file."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _notice_sources(
    compiled: Any,
    function: Callable[..., Any],
    options: Iterable[str],
    modules: Iterable[ModuleType],
) -> None:
    """Key the cache of a kernel by the content of its file, this one and the `modules`, and by its options.

    By content, not by time: a fresh clone can use another's cache.
    """
    cache: Any = getattr(compiled, "_cache", None)
    file = getattr(cache, "_cache_file", None)
    if file is not None:  # None without compilation or without a cache folder
        files = (function.__code__.co_filename, __file__, *(str(m.__file__) for m in modules))
        file._source_stamp = (*(_digest(name) for name in files), *options)
        cache.save_overload = _warn_if_unwritable(cache.save_overload, cache.cache_path)


def kernel(
    function: Function, options: dict[str, Any] = _INTERNAL, modules: Iterable[ModuleType] = ()
) -> Function:
    """Compile a function at its first call, with a cache on disk.

    NaN stays visible: neither nnan nor ninf. `modules` are as of `kernel_over`.
    """
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        return function
    compiled: Any
    if "forceinline" in options:
        compiled = _KernelWithPart(function, targetoptions={"nopython": True, **_ALL, **options})
        compiled.part = numba.njit(**_ALL, **options, **_OF_PARTS)(function)
        if _HAS_CACHE:
            compiled.enable_caching()
    else:
        compiled = numba.njit(cache=_HAS_CACHE, **_ALL, **options)(function)
    _notice_sources(compiled, function, options, modules)
    return compiled  # type: ignore[no-any-return]


def drawing_kernel(function: Function) -> Function:
    """Compile a function that draws from a NumPy Generator, which needs reference counts."""
    return kernel(function, {})


def kernel_over(*modules: ModuleType, draws: bool = False) -> Callable[[Function], Function]:
    """Return `kernel` for functions that call kernels of other files, the `modules`.

    Numba's cache notices changes in the function's own file only; this one also those in `modules`.
    `draws` is for functions as of `drawing_kernel`.
    """

    def decorate(function: Function) -> Function:
        if draws:
            return kernel(function, {}, modules)
        return kernel(function, _INTERNAL, modules)

    return decorate


# ---- loops over rows -------------------------------------------------------------------------------------------------


def _call_entry(_typing: Any, entry: Any, table: Any, row: Any) -> Any:
    """Call the kernel at the address `entry` with the address `table` and a row."""

    def build(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        word = ir.IntType(64)
        function = ir.FunctionType(word, [word, word]).as_pointer()
        return builder.call(builder.inttoptr(values[0], function), values[1:])

    return types.int64(entry, table, row), build


_call: Any = intrinsic(_call_entry)


def _call_for_each_row(entry: int, table: int, n_rows: int) -> None:
    for i in prange(n_rows):
        _call(entry, table, np.int64(i))


_on_threads: Any = kernel(_call_for_each_row, {"parallel": True})


class RowLoop:
    """A kernel of one row of many arrays, called for each row in a parallel loop.

    Numba compiles the body of a parallel loop five times, and inspects the types of all arguments in each
    call. This loop receives two addresses: of the kernel, compiled once, and of a table with its
    arguments, written once.

    Args:
        function: A function of ((arguments,), row) that returns 0 and calls kernels of the `modules`.
        arguments: Arrays, which keep their memory, integers, floats, and tuples of them.
        modules: As of `kernel_over`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        modules: Iterable[ModuleType],
    ) -> None:
        self._arguments = (arguments,)  # kept alive
        self._is_compiled = bool(_INTERNAL) and not numba.config.DISABLE_JIT  # type: ignore[attr-defined]
        if not self._is_compiled:
            self._function = kernel(function, {}, modules)
            return
        self._table = np.array(_words_of(arguments), dtype=np.int64)
        of_arguments = numba.typeof(arguments)  # type: ignore[no-untyped-call]
        self._entry = _entry_of(function, of_arguments, tuple(modules))

    def __call__(self, n_rows: int) -> None:
        """Call the kernel for rows 0 to n_rows - 1, on numba's threads."""
        if self._is_compiled:
            _on_threads(self._entry.address, self._table.ctypes.data, n_rows)
            return
        for row in range(n_rows):
            self._function(self._arguments, row)


@functools.cache
def _entry_of(
    function: Callable[..., Any], of_arguments: Any, modules: tuple[ModuleType, ...]
) -> Any:
    """Return a kernel of `RowLoop`, compiled for arguments of a numba type or read from the cache on disk."""
    of_table = types.CPointer(of_arguments)  # type: ignore[no-untyped-call]
    signature = (of_table, types.int64), types.int64
    compiled: Any = CFunc(function, signature, locals={}, options=_ALL)
    if _HAS_CACHE:
        compiled.enable_caching()
        _notice_sources(compiled, function, _ALL, modules)
    compiled.compile()
    return compiled


def _words_of(arguments: tuple[Any, ...]) -> list[int]:
    """Return arguments as kernels receive them, in words of 8 bytes."""
    words: list[int] = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            # Neither an owner nor a Python object, so that nothing is counted
            words += [0, 0, argument.size, argument.itemsize, argument.ctypes.data]
            words += [*argument.shape, *argument.strides]
        elif isinstance(argument, tuple):
            words += _words_of(argument)
        else:
            words.append(int(np.array(argument).view(np.int64)))
    return words


# ---- random numbers of many generators -------------------------------------------------------------------------------

DRAWS_IN_KERNEL = bool(_INTERNAL) and not numba.config.DISABLE_JIT  # type: ignore[attr-defined]
"""Whether kernels draw from `generator_at`, which uses numba's internals; otherwise NumPy fills the arrays.

With NumPy a step of a vector environment takes 1.2 (16 robots) to 1.3 times (256) as long.
"""


def addresses_of(rng: Generator) -> NDArray[np.uint64]:
    """Return where a generator has its state, next_uint64, next_uint32 and next_double: shape (4,), while it exists."""
    bits = rng.bit_generator.ctypes
    functions = [
        ctypes.cast(f, ctypes.c_void_p).value
        for f in (bits.next_uint64, bits.next_uint32, bits.next_double)
    ]
    return np.array([bits.state_address, *functions], dtype=np.uint64)


def _generator_at(
    _typing: Any, state: Any, next_uint64: Any, next_uint32: Any, next_double: Any
) -> Any:
    """Return the generator of four `addresses_of`: numba accepts one as an argument, but no list of them."""

    def build(context: Any, builder: Any, _signature: Any, addresses: Any) -> Any:
        make: Any = cgutils.create_struct_proxy
        bits = make(types.npy_bitgen)(context, builder)
        bits.state_address = bits.state = addresses[0]
        bits.fnptr_next_uint64, bits.fnptr_next_uint32, bits.fnptr_next_double = addresses[1:]
        generator = make(types.npy_rng)(context, builder)
        generator.bit_generator = bits._getvalue()
        return generator._getvalue()

    return types.npy_rng(state, next_uint64, next_uint32, next_double), build


generator_at: Any = intrinsic(_generator_at)


@drawing_kernel
def draw_noise(addresses: NDArray[np.uint64], normal: Floats, uniform: Floats) -> None:
    """Fill arrays with standard normals, then with uniforms, as a generator of NumPy would.

    Args:
        addresses: As of `addresses_of`, shape (4,); the generator's state advances.
        normal: Shape (n_normal,).
        uniform: Shape (2, n_uniform).
    """
    rng = generator_at(addresses[0], addresses[1], addresses[2], addresses[3])
    for k in range(normal.shape[0]):
        normal[k] = rng.standard_normal()
    for row in range(uniform.shape[0]):
        for k in range(uniform.shape[1]):
            uniform[row, k] = rng.random()


# ---- scaling ---------------------------------------------------------------------------------------------------------

# A reading on the edge of its range may round past it by one ulp, which is not counted as clipped
EDGE = 1e-9


@kernel
def scale_to_unit(values: Floats, low: Floats, span: Floats, out: Any) -> int:
    """Write (values - low) / span into `out`, float32, clipped to [0, 1]; return how many readings were clipped.

    All arrays have shape (n,). A reading that is not finite is missing, NaN. Six passes of NumPy would
    take a tenth of a step.
    """
    n_clipped = 0
    for i in range(values.shape[0]):
        share = (values[i] - low[i]) / span[i]
        if not math.isfinite(share):
            out[i] = math.nan
            continue
        if share < -EDGE or share > 1.0 + EDGE:
            n_clipped += 1
        out[i] = min(max(share, 0.0), 1.0)
    return n_clipped
