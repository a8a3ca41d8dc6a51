"""The memory of this process, in processes of their own."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

ONE_ARRAY = """
import ctypes, sys
import numpy as np
from horde_agent.processes import map_large_arrays
from tests.bench.growth import AllocatorState
state = ctypes.CDLL(None).mallinfo2
state.restype = AllocatorState
if sys.argv[1] != "as it is":
    map_large_arrays(int(sys.argv[1]))
eight_megabytes = np.ones(2**20)
del eight_megabytes
n_mapped = state().hblks
one_megabyte = np.ones(2**17)
print(state().hblks - n_mapped)
"""


def has_glibc() -> bool:
    try:
        return hasattr(ctypes.CDLL(None), "mallinfo2")
    except TypeError:  # Windows
        return False


@pytest.mark.skipif(not has_glibc(), reason="other allocators have no such threshold")
@pytest.mark.parametrize(("how", "n_mapped"), [("800", "1"), ("80000", "0"), ("as it is", "0")])
def test_an_array_of_a_megabyte_is_mapped_after_a_larger_one_was_freed(
    how: str, n_mapped: str
) -> None:
    """As glibc is, it comes from the heap then, where it leaves a hole; of 80,000 demons a step's are as large."""
    words = [sys.executable, "-c", ONE_ARRAY, how]
    finished = subprocess.run(words, capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == n_mapped
