"""Arrays held in native form, so that handing them to a kernel costs one reference instead of fifty.

On each call numba looks at every array that it is given: 0.5 us an array, 25 us for all that the span engine has, which
is as much as a small Horde's learning. What stays from step to step is therefore translated once, and held.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
from numba import types
from numba.experimental import structref

from horde_agent.kernels._jit import kernel
from horde_agent.kernels.arrays import Memory, Past, Queue, Reals, Rules, Switched, Tiles, Work
from horde_agent.kernels.history import History
from horde_agent.kernels.policies import GibbsIndex, GibbsParts, GibbsState

_unliteral: Any = types.unliteral  # numba has no hints for these
_define_proxy: Any = structref.define_proxy


class SpanParts(NamedTuple):
    """What the span engine's kernels read and write on each step."""

    tiles: Tiles
    memory: Memory
    past: Past
    lanes: Reals
    queue: Queue
    work: Work
    switched: Switched
    history: History
    rules: Rules


if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
    hold_span: Any = SpanParts
    hold_gibbs: Any = GibbsParts

else:

    class _Held(types.StructRef):
        def preprocess_fields(self, fields: Any) -> Any:
            """Return the parts' types, without what is known of their values."""
            return tuple((name, _unliteral(of_type)) for name, of_type in fields)

    @structref.register
    class HeldSpanType(_Held):
        """Numba's type of a `HeldSpan`."""

    @structref.register
    class HeldGibbsType(_Held):
        """Numba's type of a `HeldGibbs`."""

    class HeldSpan(structref.StructRefProxy):
        """`SpanParts` in native form: replace it when one of its arrays is replaced."""

    class HeldGibbs(structref.StructRefProxy):
        """`GibbsParts` in native form."""

    _define_proxy(HeldSpan, HeldSpanType, SpanParts._fields)
    _define_proxy(HeldGibbs, HeldGibbsType, GibbsParts._fields)

    @kernel
    def hold_span(
        tiles: Tiles,
        memory: Memory,
        past: Past,
        lanes: Reals,
        queue: Queue,
        work: Work,
        switched: Switched,
        history: History,
        rules: Rules,
    ) -> Any:
        """Return a `HeldSpan`."""
        return HeldSpan(tiles, memory, past, lanes, queue, work, switched, history, rules)  # type: ignore[no-untyped-call]

    @kernel
    def hold_gibbs(parameters: GibbsIndex, state: GibbsState) -> Any:
        """Return a `HeldGibbs`."""
        return HeldGibbs(parameters, state)  # type: ignore[no-untyped-call]
