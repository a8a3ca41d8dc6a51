"""Jobs that hands take as they come, within one parallel region, and a wait until all of them are done.

    while take_next(turns) is a job: do it, then `finish` it
    wait_for_all(turns)

A hand waits only for jobs that another one has begun, so that nothing hangs where the hands come one after the other.
Two hands of a step's few microseconds cannot wait for a second region: to begin one takes as long.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from horde_agent.kernels._jit import inner_kernel

Integers = NDArray[np.int64]

# Places in `turns`, each on a cache line of its own: the job that is next, and how many are done.
NEXT, DONE, N_TURNS = 0, 8, 16

_intrinsic: Any = intrinsic  # numba has no hints for it


def count_up_plain(numbers: Integers, i: int, amount: int) -> int:
    """Add to one of some numbers in one go, though others may do so as well, and return what it was before.

    What was written before is then seen by whoever reads the sum by this function.
    """
    before = int(numbers[i])
    numbers[i] += amount
    return before


if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
    count_up: Any = count_up_plain
else:

    @_intrinsic
    def count_up(typing_context: Any, numbers: Any, i: Any, amount: Any) -> Any:  # noqa: ARG001, D103
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            place = builder.gep(array.data, [arguments[1]])
            return builder.atomic_rmw("add", place, arguments[2], "seq_cst")

        return types.int64(numbers, types.intp, types.int64), generate


@inner_kernel
def begin_turns(turns: Integers) -> None:
    """Let the jobs begin with the first; no hand may be at work."""
    turns[NEXT], turns[DONE] = 0, 0


@inner_kernel
def take_next(turns: Integers) -> int:
    """Return the number of a job that is then this hand's."""
    return int(count_up(turns, NEXT, 1))


@inner_kernel
def finish(turns: Integers) -> None:
    """Say that a job is done, and show the others what it wrote."""
    count_up(turns, DONE, 1)


@inner_kernel
def wait_for_all(turns: Integers, n_jobs: int) -> None:
    """Wait until all jobs are done, and see what they wrote."""
    while count_up(turns, DONE, 0) < n_jobs:
        pass
