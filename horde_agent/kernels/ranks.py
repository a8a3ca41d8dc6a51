"""Ranks of new values among earlier ones, for the tests of `scoring.e_detector`.

NumPy counts each of two comparisons with 1,000 references into an array of its own: 380 us for 212 series, and 60 here.
"""

from __future__ import annotations

from horde_agent.kernels._jit import kernel
from horde_agent.types import Floats, Integers


@kernel
def count_references(
    references: Floats, values: Floats, n_above: Integers, n_equal: Integers
) -> None:
    """Count the references of each series that are above its value, and those that equal it.

    Args:
        references: Shape (n_references, n_series).
        values: Shape (n_series,).
        n_above: Number of references above the value, shape (n_series,), overwritten.
        n_equal: Number of references that equal it, shape (n_series,), overwritten.
    """
    n_above[:] = 0
    n_equal[:] = 0
    for k in range(references.shape[0]):
        for s in range(references.shape[1]):
            n_above[s] += references[k, s] > values[s]
            n_equal[s] += references[k, s] == values[s]
