"""The one place where this package's numba options live, and the one kernel that every body needs."""

from __future__ import annotations

import functools
import hashlib
import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from numba import njit

from horde_env.backend import Floats

Function = TypeVar("Function", bound=Callable[..., Any])

_ADVICE = "so each start compiles it again, for some seconds: name a folder that can be written by NUMBA_CACHE_DIR"


def _finds_cache() -> bool:
    """Whether numba has a folder to keep what it compiles in; without one it would refuse to compile."""
    try:
        njit(cache=True)(_finds_cache)
    except RuntimeError:  # cannot cache function: no locator available
        warnings.warn(
            f"numba can write none of the folders where it keeps what it has compiled, {_ADVICE}",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


_HAS_CACHE = _finds_cache()

# Kernels here make no arrays and return none, so that nobody need count who holds one: counting took half the time of a
# period of the planar engine, for each slice that a kernel hands on. HORDE_PLAIN_KERNELS=1 does without this option of
# numba's insides, should a numba come that no longer has it.
_COUNTING: dict[str, Any] = {} if os.environ.get("HORDE_PLAIN_KERNELS") == "1" else {"_nrt": False}


@functools.cache
def _digest(file: str) -> str:
    """Return the SHA-256 of a source file."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def kernel(function: Function, counting: dict[str, Any] = _COUNTING) -> Function:
    """Compile a function when it is first called; a cache survives the process, so a second start compiles nothing.

    NaN stays visible: neither nnan nor ninf.
    """
    compiled: Any = njit(cache=_HAS_CACHE, nogil=True, **counting)(function)
    cache: Any = getattr(compiled, "_cache", None)
    if getattr(cache, "_cache_file", None) is not None:  # neither without compiling nor where there is no cache
        save, folder = cache.save_overload, cache.cache_path
        # By content, not by time: a fresh clone finds what another has compiled. The options are part of it.
        own = function.__code__.co_filename
        cache._cache_file._source_stamp = (_digest(own), _digest(__file__), *counting)

        def save_if_possible(signature: Any, made: Any) -> None:
            try:
                save(signature, made)
            except OSError as error:  # the disk is full
                sentence = f"what numba has compiled cannot be kept in {folder} ({error.strerror}), {_ADVICE}"
                warnings.warn(sentence, RuntimeWarning, stacklevel=2)

        cache.save_overload = save_if_possible
    return compiled  # type: ignore[no-any-return]


def drawing_kernel(function: Function) -> Function:
    """Compile a function that draws from a NumPy Generator: numba must count the references to it."""
    return kernel(function, {})


def kernel_over(*modules: ModuleType) -> Callable[[Function], Function]:
    """Return `kernel` for functions that call kernels of other files, the `modules`.

    Numba's cache notices a change in the function's own file alone. This one is void after a change in the others, too.
    """

    def decorate(function: Function) -> Function:
        compiled: Any = kernel(function)
        index = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
        if index is not None:
            index._source_stamp = (index._source_stamp, *(_digest(str(module.__file__)) for module in modules))
        return compiled  # type: ignore[no-any-return]

    return decorate


EDGE = 1e-9  # a reading on the edge of its range may round past it by one ulp; that is no clip


@kernel
def scale_to_unit(values: Floats, low: Floats, span: Floats, out: Any) -> int:
    """Write (values - low) / span into `out`, float32, clipped to [0, 1]; return how many readings were clipped.

    Once per step from SI values to the unit interval: six passes of NumPy cost a tenth of a step. A reading that is not
    finite counts as clipped and becomes 0. All arrays have shape (n,).
    """
    n_clipped = 0
    for i in range(values.shape[0]):
        share = (values[i] - low[i]) / span[i]
        if not math.isfinite(share):
            n_clipped += 1
            share = 0.0
        elif share < -EDGE or share > 1.0 + EDGE:
            n_clipped += 1
        out[i] = min(max(share, 0.0), 1.0)
    return n_clipped
