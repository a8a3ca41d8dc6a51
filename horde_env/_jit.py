"""The one place where this package's numba options live."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from numba import njit

# NaN stays visible: neither nnan nor ninf. A cache survives the process, so a second start compiles nothing.
kernel = njit(cache=True, nogil=True)

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel_over(*modules: ModuleType) -> Callable[[Function], Function]:
    """Return `kernel` for functions that call kernels of other files, the `modules`.

    Numba's cache notices a change in the function's own file alone. This one is void after a change in the others, too.
    """

    def decorate(function: Function) -> Function:
        compiled: Any = kernel(function)
        index = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
        if index is not None:  # neither without compiling nor where there is nowhere to keep a cache
            others = [os.stat(str(module.__file__)) for module in modules]
            index._source_stamp = (index._source_stamp, *((file.st_mtime, file.st_size) for file in others))
        return compiled  # type: ignore[no-any-return]

    return decorate
