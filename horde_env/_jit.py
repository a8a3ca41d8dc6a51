"""All numba options of this package, and the kernel that every body needs."""

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

_ADVICE = "so each start compiles again, for some seconds; set NUMBA_CACHE_DIR to a writable folder"


def _finds_cache() -> bool:
    """Return whether numba has a writable cache folder; without one, `cache=True` fails."""
    try:
        njit(cache=True)(_finds_cache)
    except RuntimeError:  # cannot cache function: no locator available
        warnings.warn(
            f"numba has no writable cache folder, {_ADVICE}",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


_HAS_CACHE = _finds_cache()

# Kernels here neither create nor return arrays, so reference counts are unnecessary: counting each slice took half the
# time of a period of the planar engine. HORDE_PLAIN_KERNELS=1 disables this internal option of numba, in case a later
# numba no longer has it.
_COUNTING: dict[str, Any] = {} if os.environ.get("HORDE_PLAIN_KERNELS") == "1" else {"_nrt": False}


@functools.cache
def _digest(file: str) -> str:
    """Return the SHA-256 of a source file."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def kernel(function: Function, counting: dict[str, Any] = _COUNTING) -> Function:
    """Compile a function at its first call, with a cache on disk.

    NaN stays visible: neither nnan nor ninf.
    """
    compiled: Any = njit(cache=_HAS_CACHE, nogil=True, **counting)(function)
    cache: Any = getattr(compiled, "_cache", None)
    if getattr(cache, "_cache_file", None) is not None:  # None if nothing is compiled or cached
        save, folder = cache.save_overload, cache.cache_path
        # By content, not by time: a fresh clone can use another's cache. The options are part of the key.
        own = function.__code__.co_filename
        cache._cache_file._source_stamp = (_digest(own), _digest(__file__), *counting)

        def save_if_possible(signature: Any, made: Any) -> None:
            try:
                save(signature, made)
            except OSError as error:  # the disk is full
                message = f"numba cannot write its cache in {folder} ({error.strerror}), {_ADVICE}"
                warnings.warn(message, RuntimeWarning, stacklevel=2)

        cache.save_overload = save_if_possible
    return compiled  # type: ignore[no-any-return]


def drawing_kernel(function: Function) -> Function:
    """Compile a function that draws from a NumPy Generator, which needs reference counts."""
    return kernel(function, {})


def kernel_over(*modules: ModuleType) -> Callable[[Function], Function]:
    """Return `kernel` for functions that call kernels of other files, the `modules`.

    Numba's cache notices changes in the function's own file only; this one also those in `modules`.
    """

    def decorate(function: Function) -> Function:
        compiled: Any = kernel(function)
        index = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
        if index is not None:
            index._source_stamp = (index._source_stamp, *(_digest(str(module.__file__)) for module in modules))
        return compiled  # type: ignore[no-any-return]

    return decorate


EDGE = 1e-9  # a reading on the edge of its range may round past it by one ulp, which is not counted as clipped


@kernel
def scale_to_unit(values: Floats, low: Floats, span: Floats, out: Any) -> int:
    """Write (values - low) / span into `out`, float32, clipped to [0, 1]; return how many readings were clipped.

    All arrays have shape (n,). A reading that is not finite counts as clipped and becomes 0. Six passes of NumPy would
    take a tenth of a step.
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
