"""Vector operations for kernels: LLVM's (`native.py`), or vectors of one lane (`portable.py`).

HORDE_PLAIN_KERNELS=1 chooses the latter, if a new version of numba breaks the former; so does
NUMBA_DISABLE_JIT=1.
"""

from __future__ import annotations

from typing import Any

from horde_agent.kernels._jit import IS_PORTABLE

if IS_PORTABLE:
    from horde_agent.kernels import portable as _chosen
else:
    from horde_agent.kernels import native as _chosen  # type: ignore[no-redef]

_of: Any = _chosen
absolute = _of.absolute
any_true = _of.any_true
choose = _of.choose
multiply_add = _of.multiply_add
square_root = _of.square_root
narrow_zeros = _of.narrow_zeros
wide_zeros = _of.wide_zeros
wider_zeros = _of.wider_zeros
row_zeros = _of.row_zeros
load = _of.load
store = _of.store
prefetch = _of.prefetch
by_most_lanes = _of.by_most_lanes
lanes_of = _of.lanes_of
pack = _of.pack
generalise = _of.generalise
bind = _of.bind
entry_of = _of.entry_of
on_threads = _of.on_threads
