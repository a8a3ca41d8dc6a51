"""This package's extensions of numba and LLVM: vectors of lanes, arrays by address, kernels by address.

**Vectors.** Demons on adjacent *lanes* learn as one vector of 16, 64, 80 or 128 numbers: `load(array, i, zero)` reads
as many numbers as `zero` has, and arithmetic between `load` and `store` acts on all of them. Numba's own loops over
short ranges are three to four times slower: they check whether arrays overlap, and keep sums in memory. A vector is an
array of LLVM vectors of 16, because LLVM would widen a vector of 80 to 128. This relies on numba's types without a
Python object (`register_model`, `type_callable`, `lower_builtin`, `intrinsic`).

**Packed arrays.** Numba inspects each array argument of a kernel, for 0.3 us, and passes a tuple of arrays between
kernels by value, which takes most of the compile time. `PackedArrays` writes addresses and shapes into a table once;
kernels receive its address and read `packed.theta` as from the tuple, without reference counts. A kernel that
receives a `generalise`d one is compiled once for all update rules, since its type has no constants. This relies on
`unbox`, `lower_getattr_generic`, `populate_array`, and on C-contiguous arrays.

**Entries.** Numba compiles the body of each parallel loop five times. `on_threads` is one parallel loop for all
kernels, which receives the kernel's address. This relies on `CFunc`, and on threads being started before a cached
parallel loop is called (`numba.get_num_threads`).

Tested with numba 0.62.1 to 0.68.1 (tests/agent/test_vectors.py). If another version fails,
HORDE_PLAIN_KERNELS=1 compiles `portable.py` instead: slower, and equal except for rounding.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import operator
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped,unused-ignore]
from numba import prange, types
from numba.core import cgutils
from numba.core.ccallback import CFunc
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import (
    NativeValue,
    intrinsic,
    lower_builtin,
    lower_getattr_generic,
    models,
    overload,
    register_model,
    type_callable,
    typeof_impl,
    unbox,
)
from numba.np.arrayobj import populate_array
from numba.np.numpy_support import as_dtype

from horde_agent.kernels._jit import (
    HAS_CACHE,
    INNER_OPTIONS,
    OPTIONS,
    Constant,
    kernel,
    notice_sources,
    parallel_kernel,
)

PART = 16  # lanes of one LLVM vector

_INT32 = ir.IntType(32)
_INT64 = ir.IntType(64)
_BYTES = ir.IntType(8).as_pointer()
_VOID = ir.VoidType()
_LINE = 64  # bytes of a cache's line
_IN_LLVM = {
    types.float32: ir.FloatType(),
    types.float64: ir.DoubleType(),
    types.boolean: ir.IntType(1),
}

# Numba's decorators and models have no hints.
_intrinsic: Any = intrinsic
_function: Any = cgutils.get_or_insert_function
_OPTIONS_OF_PARTS: Any = INNER_OPTIONS


# ---- vectors ------------------------------------------------------------------------------------


class Vector(types.Type):
    """Numba's type of `n` numbers, float32 or float64, or of `n` truth values."""

    def __init__(self, dtype: Any, n: int) -> None:
        self.dtype = dtype
        self.n = n
        super().__init__(f"Vector({dtype}, {n})")

    @property
    def part(self) -> Any:
        """The type of a part in LLVM."""
        return ir.VectorType(_IN_LLVM[self.dtype], PART)

    @property
    def suffix(self) -> str:
        """How LLVM's generic functions name the type of a part."""
        return f"v{PART}f{self.dtype.bitwidth}"


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, of_type: Any) -> None:
        super().__init__(manager, of_type, ir.ArrayType(of_type.part, of_type.n // PART))  # type: ignore[no-untyped-call]


def _apart(builder: Any, value: Any) -> list[Any]:
    """Return the LLVM vectors of a vector or mask."""
    return [builder.extract_value(value, i) for i in range(value.type.count)]


def _together(builder: Any, parts: list[Any]) -> Any:
    """Return the vector or mask made of LLVM vectors."""
    whole = ir.Constant(ir.ArrayType(parts[0].type, len(parts)), ir.Undefined)
    for i, part in enumerate(parts):
        whole = builder.insert_value(whole, part, i)
    return whole


def _spread(context: Any, builder: Any, value: Any, of_type: Any, to: Vector) -> list[Any]:
    """Return a vector's parts, or a number broadcast to the parts of `to`."""
    if isinstance(of_type, Vector):
        return _apart(builder, value)
    number = context.cast(builder, value, of_type, to.dtype)
    undefined = ir.Constant(to.part, ir.Undefined)
    first = ir.Constant(ir.VectorType(_INT32, PART), [0] * PART)
    part = builder.shuffle_vector(
        builder.insert_element(undefined, number, _INT32(0)), undefined, first
    )
    return [part] * (to.n // PART)


def _vector_of(*given: Any) -> Any:
    """Return the common vector type of vectors and numbers, None if they are incompatible."""
    vectors = {t for t in given if isinstance(t, Vector)}
    return (
        vectors.pop()
        if len(vectors) == 1 and all(isinstance(t, Vector | types.Number) for t in given)
        else None
    )


def _operation(
    operation: Any, write: Callable[[Any, Any, Any], Any], *, compares: bool = False
) -> None:
    """Define an operator for two vectors, or a vector and a number; `write(builder, a, b)` emits its instruction."""

    @type_callable(operation)
    def _type(context: Any) -> Any:  # noqa: ARG001
        def typed(a: Any, b: Any) -> Any:
            of_type = _vector_of(a, b)
            return Vector(types.boolean, of_type.n) if of_type and compares else of_type

        return typed

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector_type = _vector_of(*signature.args)
        pairs = zip(
            *_spread_all(context, builder, arguments, signature.args, vector_type), strict=True
        )
        return _together(builder, [write(builder, a, b) for a, b in pairs])

    for pair in ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)):
        lower_builtin(operation, *pair)(generate)  # type: ignore[no-untyped-call]


def _spread_all(
    context: Any, builder: Any, values: Any, of_types: Any, to: Vector
) -> list[list[Any]]:
    """Return the parts of vectors, and of numbers broadcast to vectors."""
    return [_spread(context, builder, v, t, to) for v, t in zip(values, of_types, strict=True)]


_operation(operator.add, lambda builder, a, b: builder.fadd(a, b))
_operation(operator.sub, lambda builder, a, b: builder.fsub(a, b))
_operation(operator.mul, lambda builder, a, b: builder.fmul(a, b))
_operation(operator.truediv, lambda builder, a, b: builder.fdiv(a, b))
_operation(operator.lt, lambda builder, a, b: builder.fcmp_ordered("<", a, b), compares=True)
_operation(operator.le, lambda builder, a, b: builder.fcmp_ordered("<=", a, b), compares=True)
_operation(operator.gt, lambda builder, a, b: builder.fcmp_ordered(">", a, b), compares=True)


def _zeros(lanes: int) -> Any:
    """Return a function of an array that returns zeros of its dtype in `lanes` lanes."""

    @_intrinsic
    def zeros(typing_context: Any, array: Any) -> Any:  # noqa: ARG001
        vector_type = Vector(array.dtype, lanes)
        return vector_type(array), lambda *_: ir.Constant(
            ir.ArrayType(vector_type.part, lanes // PART), None
        )

    return zeros


narrow_zeros = _zeros(16)
wide_zeros = _zeros(64)
wider_zeros = _zeros(80)
row_zeros = _zeros(128)


@_intrinsic
def lanes_of(typing_context: Any, zero: Any) -> Any:  # noqa: ARG001, D103 - documented in portable.py
    return types.intp(zero), lambda *_: _INT64(zero.n)


def _place(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Return the address of element i of an array; these are the first two arguments."""
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.gep(
        array.data, [context.cast(builder, arguments[1], signature.args[1], types.intp)]
    )


@_intrinsic
def load(typing_context: Any, array: Any, i: Any, zero: Any) -> Any:  # noqa: ARG001, D103
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = builder.bitcast(
            _place(context, builder, signature, arguments), zero.part.as_pointer()
        )
        places = [builder.gep(first, [_INT32(i)]) for i in range(zero.n // PART)]
        return _together(
            builder, [builder.load(place, align=zero.dtype.bitwidth // 8) for place in places]
        )

    return (zero(array, i, zero), generate) if array.dtype == zero.dtype else None


@_intrinsic
def store(typing_context: Any, array: Any, i: Any, x: Any) -> Any:  # noqa: ARG001, D103
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = builder.bitcast(_place(context, builder, signature, arguments), x.part.as_pointer())
        for i, part in enumerate(_apart(builder, arguments[2])):
            builder.store(part, builder.gep(first, [_INT32(i)]), align=x.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return (types.void(array, i, x), generate) if array.dtype == x.dtype else None


@_intrinsic
def prefetch(typing_context: Any, array: Any, i: Any, zero: Any) -> Any:  # noqa: ARG001, D103
    n_bytes = (zero.n if isinstance(zero, Vector) else 1) * array.dtype.bitwidth // 8

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = builder.bitcast(_place(context, builder, signature, arguments), _BYTES)
        of_type = ir.FunctionType(_VOID, [_BYTES, _INT32, _INT32, _INT32])
        ask = _function(builder.module, of_type, "llvm.prefetch.p0")
        for line in range(0, n_bytes, _LINE):
            builder.call(ask, [builder.gep(first, [_INT64(line)]), _INT32(0), _INT32(3), _INT32(1)])
        return context.get_dummy_value()

    return types.void(array, i, zero), generate


@_intrinsic
def multiply_add(typing_context: Any, a: Any, b: Any, c: Any) -> Any:  # noqa: ARG001, D103
    vector_type = _vector_of(a, b, c) or (
        types.float64 if types.float64 in (a, b, c) else types.float32
    )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if not isinstance(vector_type, Vector):
            typed_arguments = zip(arguments, signature.args, strict=True)
            values = [
                context.cast(builder, value, of_type, vector_type)
                for value, of_type in typed_arguments
            ]
            return builder.fma(*values)
        signature_of_parts = ir.FunctionType(vector_type.part, [vector_type.part] * 3)
        fuse = _function(builder.module, signature_of_parts, f"llvm.fma.{vector_type.suffix}")
        triples = zip(
            *_spread_all(context, builder, arguments, signature.args, vector_type), strict=True
        )
        return _together(builder, [builder.call(fuse, triple) for triple in triples])

    return vector_type(a, b, c), generate


@_intrinsic
def choose(typing_context: Any, mask: Any, a: Any, b: Any) -> Any:  # noqa: ARG001, D103
    vector_type = _vector_of(a, b)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pairs = _spread_all(context, builder, arguments[1:], signature.args[1:], vector_type)
        triples = zip(_apart(builder, arguments[0]), *pairs, strict=True)
        return _together(builder, [builder.select(*triple) for triple in triples])

    return (vector_type(mask, a, b), generate) if vector_type else None


def _unary(name: str) -> Any:
    """Return a function of a vector by the name of LLVM's generic function."""

    @_intrinsic
    def unary(typing_context: Any, x: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
            function = _function(
                builder.module, ir.FunctionType(x.part, [x.part]), f"llvm.{name}.{x.suffix}"
            )
            return _together(
                builder, [builder.call(function, [part]) for part in _apart(builder, arguments[0])]
            )

        return x(x), generate

    return unary


absolute = _unary("fabs")
square_root = _unary("sqrt")


@_intrinsic
def any_true(typing_context: Any, mask: Any) -> Any:  # noqa: ARG001, D103
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        bits = ir.IntType(PART)
        some = functools.reduce(builder.or_, _apart(builder, arguments[0]))
        return builder.icmp_unsigned("!=", builder.bitcast(some, bits), bits(0))

    return types.boolean(mask), generate


# ---- packed arrays --------------------------------------------------------------------------------


class PackedType(types.Type):
    """Numba's type of a `PackedArrays`: the position of each item in the table, and its type."""

    def __init__(self, items: dict[str, tuple[int, Any]]) -> None:
        self.items = items
        digest = hashlib.sha256(repr(items).encode()).hexdigest()[
            :16
        ]  # the full text would be in each kernel's name
        super().__init__(f"PackedArrays({digest})")


_array_types: dict[tuple[Any, ...], Any] = {}


def _type_of_array(array: np.ndarray[Any, Any]) -> Any:
    """Return numba's type of an array; numba makes one in 40 us, and a Horde has a hundred arrays of few types."""
    flags = array.flags
    key = (type(array), array.dtype, array.ndim, flags.c_contiguous, flags.writeable, flags.aligned)
    if key not in _array_types:
        _array_types[key] = numba.typeof(array)  # type: ignore[no-untyped-call]
    return _array_types[key]


class PackedArrays:
    """A named tuple of C-contiguous arrays, numbers and tuples of floats, which kernels read through one address.

    It keeps the arrays alive. Create another one when an array or number is replaced.

    Args:
        parts: The tuple.

    Attributes:
        address: Address of the table.
        numba_type: Type for which kernels are compiled.
    """

    def __init__(self, parts: Any) -> None:
        table: list[int] = []
        items: dict[str, tuple[int, Any]] = {}
        constants: dict[str, Constant] = {}
        tuples: dict[str, Any] = {}
        for name, part in zip(parts._fields, parts, strict=True):
            first = len(table)
            if isinstance(part, np.ndarray):
                items[name] = first, _type_of_array(part)
                table += [part.ctypes.data, *part.shape]
            elif isinstance(part, Constant):
                constants[name] = part
            elif isinstance(part, tuple):
                tuples[name] = part
            else:
                is_whole = isinstance(part, int | np.integer | np.bool_)
                items[name] = first, types.int64 if is_whole else types.float64
                table.append(int(part) if is_whole else int(np.float64(part).view(np.int64)))

        # At the end, so that positions of the other items are the same in both types
        general_items = dict(items)
        for name, constant in constants.items():
            items[name] = int(constant), Constant
            general_items[name] = len(table), types.int64
            table.append(int(constant))
        for name, part in tuples.items():
            items[name] = len(table), numba.typeof(part)  # type: ignore[no-untyped-call]
            table += np.array(part, dtype=np.float64).view(np.int64).tolist()
        self._parts = parts
        self._table = np.array(table, dtype=np.int64)
        self._general_type = PackedType(general_items)
        self.numba_type = PackedType(items)
        self.address = self._table.ctypes.data

    def general(self) -> PackedArrays:
        """Return the same arrays for kernels that read constants as numbers, and no tuples."""
        of_general_type = copy.copy(self)
        of_general_type.numba_type = self._general_type
        return of_general_type


pack = PackedArrays


def generalise(packed: PackedArrays) -> PackedArrays:
    """Return packed arrays of a type that depends neither on their constants nor on their tuples."""
    return packed.general()


def bind(function: Any, *given: Any, like: tuple[Any, ...]) -> Callable[..., Any]:
    """Return a kernel with its first arguments bound; the other arguments have the types of `like`.

    Numba inspects the types of all arguments in each call, 1.5 us for a `PackedArrays`; this does it once.
    """
    kinds = tuple(numba.typeof(x) for x in (*given, *like))  # type: ignore[no-untyped-call]
    return functools.partial(function.compile(kinds), *given)


@typeof_impl.register(PackedArrays)
def _type_of_packed(packed: PackedArrays, _context: Any) -> PackedType:
    return packed.numba_type


@register_model(PackedType)
class _PackedModel(models.PrimitiveModel):
    def __init__(self, manager: Any, of_type: Any) -> None:
        super().__init__(manager, of_type, _INT64.as_pointer())  # type: ignore[no-untyped-call]


@unbox(PackedType)  # type: ignore[no-untyped-call]
def _take_address(_of_type: Any, packed: Any, c: Any) -> Any:
    number = c.pyapi.object_getattr_string(packed, "address")
    address = c.pyapi.long_as_longlong(number)
    c.pyapi.decref(number)
    return NativeValue(c.builder.inttoptr(address, _INT64.as_pointer()))  # type: ignore[no-untyped-call]


@infer_getattr
class _PackedAttributes(AttributeTemplate):
    key = PackedType

    def generic_resolve(self, packed: Any, name: str) -> Any:  # type: ignore[override]
        """Return the type of an item."""
        of_type = packed.items[name][1] if name in packed.items else None
        return types.int64 if of_type is Constant else of_type


@lower_builtin("__array__", types.Array)  # type: ignore[no-untyped-call]
def _array_itself(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
    """Return an array as it is. Without this, numba searches all its registries at each use of an array."""
    return arguments[0]


@lower_getattr_generic(PackedType)  # type: ignore[no-untyped-call]
def _read_item(context: Any, builder: Any, packed: Any, table: Any, name: str) -> Any:
    first, of_type = packed.items[name]

    def word(i: int) -> Any:
        loaded = builder.load(builder.gep(table, [_INT32(first + i)]))
        loaded.set_metadata(
            "invariant.load", builder.module.add_metadata([])
        )  # the table is constant
        return loaded

    if of_type is Constant:
        return _INT64(first)
    if isinstance(of_type, types.BaseTuple):
        parts = [builder.bitcast(word(i), ir.DoubleType()) for i in range(len(of_type))]
        return context.make_tuple(builder, of_type, parts)
    if not isinstance(of_type, types.Array):
        return word(0) if of_type is types.int64 else builder.bitcast(word(0), ir.DoubleType())
    array = context.make_array(of_type)(context, builder)
    size = _INT64(as_dtype(of_type.dtype).itemsize)
    shape = [word(1 + d) for d in range(of_type.ndim)]
    strides = [size]
    for extent in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], extent))
    populate_array(  # type: ignore[no-untyped-call]
        array,
        data=builder.inttoptr(word(0), array.data.type),
        shape=cgutils.pack_array(builder, shape),  # type: ignore[no-untyped-call]
        strides=cgutils.pack_array(builder, strides),  # type: ignore[no-untyped-call]
        itemsize=size,
        meminfo=None,
    )
    return array._getvalue()


# ---- kernels by the width of blocks --------------------------------------------------------------


def by_most_lanes(wide: Any, narrow: Any) -> Any:
    """Return a kernel (packed, b, how) that is `narrow` if `packed.most_lanes` is 16, otherwise `wide`."""

    def call(packed: Any, b: int, how: Any) -> None:
        """Stand for the kernel in the code of other kernels."""

    @overload(call, jit_options=_OPTIONS_OF_PARTS, strict=False)
    def _compiled(packed: Any, b: Any, how: Any) -> Any:  # noqa: ARG001
        if packed.items["most_lanes"][0] == PART:
            return narrow.py_func
        return wide.py_func

    return call


# ---- entries ------------------------------------------------------------------------------------

_entries: dict[tuple[Any, PackedType], CFunc] = {}


def entry_of(function: Any, packed: PackedArrays) -> int:
    """Return the address of the machine code of a kernel of (packed, thread, task), compiled for the type of `packed`.

    The kernel returns 0. The first call compiles it, or reads it from the cache on disk.
    """
    numba.get_num_threads()  # starts the threads; without them a cached parallel loop does nothing
    key = function, packed.numba_type
    if key not in _entries:
        signature = (packed.numba_type, types.int64, types.int64), types.int64
        compiled: Any = CFunc(function, signature, locals={}, options=OPTIONS)
        if HAS_CACHE:
            compiled.enable_caching()
            notice_sources(compiled, function)
        compiled.compile()
        _entries[key] = compiled
    return int(_entries[key].address)  # type: ignore[arg-type]


@_intrinsic
def _call(typing_context: Any, entry: Any, packed: Any, thread: Any, task: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        of_type = ir.FunctionType(_INT64, [_INT64.as_pointer(), _INT64, _INT64])
        return builder.call(builder.inttoptr(arguments[0], of_type.as_pointer()), arguments[1:])

    return types.int64(types.int64, packed, types.int64, types.int64), generate


def _start(entry: Any, packed: Any, n_threads: int, task: int) -> None:
    """Call the kernel at `entry` on each thread; an address that is uint64 says that there is one."""


@overload(_start, jit_options=_OPTIONS_OF_PARTS, strict=False)
def _start_compiled(entry: Any, packed: Any, n_threads: Any, task: Any) -> Any:  # noqa: ARG001
    def alone(entry: Any, packed: Any, n_threads: int, task: int) -> None:  # noqa: ARG001
        _call(entry, packed, 0, task)

    def on_some(entry: Any, packed: Any, n_threads: int, task: int) -> None:
        if n_threads == 1:
            _call(entry, packed, 0, task)
        else:
            _side_by_side(entry, packed, n_threads, task)

    if entry == types.uint64:  # no parallel loop has to be compiled
        return alone
    return on_some


@kernel
def on_threads(entry: int, packed: Any, n_threads: int, task: int) -> None:
    """Call the kernel at `entry` with (packed, thread, task) on each thread; one thread needs no parallel region."""
    _start(entry, packed, n_threads, task)


@parallel_kernel
def _side_by_side(entry: int, packed: Any, n_threads: int, task: int) -> None:
    for thread in prange(n_threads):
        _call(entry, packed, np.int64(thread), task)
