"""Vector operations for kernels: LLVM's (`native.py`), or vectors of one lane (`portable.py`).

HORDE_PLAIN_KERNELS=1 chooses the latter, if a new version of numba breaks the former; so does NUMBA_DISABLE_JIT=1.
"""

from __future__ import annotations

from typing import Any

from horde_agent.kernels._jit import IS_PORTABLE

if IS_PORTABLE:
    from horde_agent.kernels import portable as _chosen
else:
    from horde_agent.kernels import native as _chosen  # type: ignore[no-redef]

_of: Any = _chosen
absolute, any_true, choose, multiply_add = _of.absolute, _of.any_true, _of.choose, _of.multiply_add
square_root = _of.square_root
narrow_zeros, wide_zeros, wider_zeros, row_zeros = _of.narrow_zeros, _of.wide_zeros, _of.wider_zeros, _of.row_zeros
load, store, prefetch = _of.load, _of.store, _of.prefetch
limited, lanes_of = _of.limited, _of.lanes_of
hold, bind, entry_of, on_threads = _of.hold, _of.bind, _of.entry_of, _of.on_threads
