"""Arrays held in native form, so that handing them to a kernel costs one reference instead of fifty.

On each call numba looks at every array that it is given: 0.5 us an array, 25 us for all that the span engine has, which
is as much as a small Horde's learning. What stays from step to step is therefore translated once, and held.

Among kernels, numba hands a tuple on by value: some 350 numbers for the arrays of the span engine, at each call anew.
Most of the time of compiling went into that. `look_into` gives a *reference* instead, a pointer through which kernels
read `span.past.book` and so on, as from the tuple itself.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir  # type: ignore[import-untyped,unused-ignore]
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.experimental import structref
from numba.extending import intrinsic, lower_getattr_generic, models, register_model

from horde_agent.kernels._jit import kernel

_unliteral: Any = types.unliteral  # numba has no hints for these
_define_proxy: Any = structref.define_proxy
_lower_getattr_generic: Any = lower_getattr_generic
_gep: Any = cgutils.gep_inbounds


if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]

    def hold(parts: Any) -> Any:
        """Return the same: an interpreter has nothing to translate."""
        return parts

    def look_into(held: Any) -> Any:
        """Return what is held."""
        return held

else:

    @structref.register
    class HeldType(types.StructRef):
        """Numba's type of a `Held`."""

        def preprocess_fields(self, fields: Any) -> Any:
            """Return the parts' type, without what is known of their values."""
            return tuple((name, _unliteral(of_type)) for name, of_type in fields)

    class Held(structref.StructRefProxy):
        """A named tuple in native form: replace it when one of its arrays is replaced."""

    _define_proxy(Held, HeldType, ["parts"])

    @kernel
    def hold(parts: Any) -> Any:
        """Return a named tuple of arrays, numbers and named tuples as a `Held`."""
        return Held(parts)  # type: ignore[no-untyped-call]

    class Reference(types.Type):
        """Numba's type of a pointer to a named tuple that somebody else keeps."""

        def __init__(self, to: Any) -> None:
            self.to = to
            super().__init__(f"Reference({to})")

        def place_of(self, name: str) -> int:
            """Return which of the tuple's items has a name."""
            return int(self.to.fields.index(name))

    @register_model(Reference)
    class _ReferenceModel(models.PrimitiveModel):
        def __init__(self, manager: Any, of_type: Any) -> None:
            pointer = manager[of_type.to].get_value_type().as_pointer()
            super().__init__(manager, of_type, pointer)  # type: ignore[no-untyped-call]

    @infer_getattr
    class _ReferenceAttributes(AttributeTemplate):
        key = Reference

        def generic_resolve(self, reference: Any, name: str) -> Any:  # type: ignore[override]
            """Return the type of an item: a reference again, where it is a named tuple."""
            if name not in reference.to.fields:
                return None
            item = reference.to.types[reference.place_of(name)]
            return Reference(item) if isinstance(item, types.BaseNamedTuple) else item

    @_lower_getattr_generic(Reference)
    def _read_item(context: Any, builder: Any, reference: Any, pointer: Any, name: str) -> Any:
        at, item = reference.place_of(name), reference.to.types[reference.place_of(name)]
        place = _gep(builder, pointer, 0, at)
        if isinstance(item, types.BaseNamedTuple):
            return place
        loaded = _load(builder, place)
        return _without_owner(context, builder, item, loaded) if isinstance(item, types.Array) else loaded

    def _without_owner(context: Any, builder: Any, of_type: Any, value: Any) -> Any:
        """Return an array that counts no references.

        Each slice of an array counts one to its owner, by an atomic operation on memory that all threads share: two
        threads wait for each other there most of the time.
        """
        array = context.make_array(of_type)(context, builder, value)
        array.meminfo, array.parent = (ir.Constant(owner.type, None) for owner in (array.meminfo, array.parent))
        return array._getvalue()

    def _load(builder: Any, place: Any) -> Any:
        """Load a number, or a structure number by number: no kernel writes there, so that each is read once."""
        of_type = place.type.pointee
        if isinstance(of_type, (ir.LiteralStructType, ir.ArrayType)):
            whole, n = ir.Constant(of_type, ir.Undefined), len(of_type)
            for i in range(n):
                whole = builder.insert_value(whole, _load(builder, _gep(builder, place, 0, i)), i)
            return whole
        loaded = builder.load(place)
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
        return loaded

    @intrinsic
    def look_into(typing_context: Any, held: Any) -> Any:  # noqa: ARG001
        """Return a reference to the named tuple that is held, which must be held for longer than it is used."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            utils: Any = structref._Utils(context, builder, signature.args[0])  # type: ignore[no-untyped-call]
            return utils.get_data_struct(arguments[0])._get_ptr_by_name("parts")

        return Reference(held.field_dict["parts"])(held), generate
