"""Calling a kernel by the address of its machine code, so that its callers need not be compiled together with it.

Numba links everything that a kernel calls into it, and optimizes and translates the whole anew: a parallel loop does so
five times, for itself and for four wrappers. With some thousand lines below the loop this was 24 of 60 seconds. Here
the loop sees nothing but whole numbers.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped,unused-ignore]
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from horde_agent.kernels._jit import kernel, parallel_kernel

_typeof: Any = numba.typeof  # numba has no hints for these
_intrinsic: Any = intrinsic
_PROCESS = os.getpid()  # that loaded this file: a spawned process loads it anew, a forked one does not


def hands_here(n_hands: int) -> int:
    """Return how many hands may work side by side in this process, of `n_hands`: one after a fork.

    A forked process has no threads but the one that forked it, and OpenMP ends one that asks for its parent's. The
    result does not depend on the number of hands, so that it learns the same, only slower.
    """
    return 1 if n_hands > 1 and os.getpid() != _PROCESS else n_hands


def entry_of(kernel_: Any, *arguments: Any) -> Any:
    """Return where the machine code of a kernel begins, for arguments of these types.

    The kernel takes something held (`held.py`) and four whole numbers, and returns nothing. It is compiled, or read
    from the cache on disk, if it is not there yet. Where numba is switched off, the kernel itself is returned.
    """
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        return kernel_
    # Starts the threads, and makes known where they are: a parallel loop that is read from the cache as part of the
    # kernel that calls it would call nothing.
    numba.get_num_threads()
    signature = tuple(_typeof(argument) for argument in arguments)
    kernel_.compile(signature)
    compiled = kernel_.overloads[signature]
    return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)


class Holder:
    """Who holds arrays in native form for a kernel and knows where it begins; a copy of it holds its own.

    Both are addresses, which mean nothing in another process: `NATIVE` names the attributes that copies begin without.
    """

    NATIVE: ClassVar[tuple[str, ...]] = ("_held", "_entry")
    _held: Any = None
    _entry: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but the addresses."""
        return {name: value for name, value in vars(self).items() if name not in self.NATIVE}


if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]

    def share_out(entry: Any, held: Any, one: int, other: int, n_hands: int) -> None:
        """Call the kernel at `entry` with (held, hand, one, other, n_hands) for each hand."""
        for hand in range(n_hands):
            entry(held, hand, one, other, n_hands)

else:
    _INT32, _BYTES = ir.IntType(32), ir.IntType(8).as_pointer()

    @_intrinsic
    def _address_of(typing_context: Any, held: Any) -> Any:  # noqa: ARG001
        """Return the address of what is held, as a whole number: whoever has it must not outlive it."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            make: Any = cgutils.create_struct_proxy(signature.args[0])  # type: ignore[no-untyped-call]
            return builder.ptrtoint(make(context, builder, value=arguments[0]).meminfo, ir.IntType(64))

        return types.int64(held), generate

    @_intrinsic
    def _call(
        typing_context: Any,  # noqa: ARG001
        entry: Any,  # noqa: ARG001
        held_at: Any,  # noqa: ARG001
        hand: Any,  # noqa: ARG001
        one: Any,  # noqa: ARG001
        other: Any,  # noqa: ARG001
        n_hands: Any,  # noqa: ARG001
    ) -> Any:
        """Call the kernel at `entry` by numba's convention: where to answer, where to complain, then the arguments."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
            of_type = ir.FunctionType(_INT32, [_BYTES.as_pointer(), _BYTES.as_pointer(), _BYTES, *[ir.IntType(64)] * 4])
            allocate: Any = cgutils.alloca_once_value
            answer, complaint = (allocate(builder, ir.Constant(_BYTES, None)) for _ in range(2))
            begin = builder.inttoptr(arguments[0], of_type.as_pointer())
            held = builder.inttoptr(arguments[1], _BYTES)
            builder.call(begin, [answer, complaint, held, *arguments[2:]])
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), generate

    @parallel_kernel
    def _among_hands(entry: int, held_at: int, one: int, other: int, n_hands: int) -> None:
        for hand in prange(n_hands):
            _call(entry, held_at, np.int64(hand), one, other, n_hands)

    @kernel
    def share_out(entry: int, held: Any, one: int, other: int, n_hands: int) -> None:
        """Call the kernel at `entry` with (held, hand, one, other, n_hands) for each hand, side by side.

        A parallel region costs 2 us on two idle cores and a time slice on busy ones: one hand does without.
        """
        if n_hands == 1:
            _call(entry, _address_of(held), 0, one, other, 1)
        else:
            _among_hands(entry, _address_of(held), one, other, n_hands)
