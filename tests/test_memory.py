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

MANY_ARRAYS = """
import numpy as np
from horde_agent.processes import return_free_memory
from tests.bench.growth import own_memory_mb
arrays = [np.ones(2**12) for _ in range(2_000)]
kept = arrays[::50]
del arrays
before_mb = own_memory_mb()
return_free_memory()
print(before_mb - own_memory_mb())
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
    """By default glibc takes it from the heap, which then gets a hole; a step of 80,000 demons has such arrays."""
    words = [sys.executable, "-c", ONE_ARRAY, how]
    finished = subprocess.run(words, capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == n_mapped


@pytest.mark.skipif(not has_glibc(), reason="other allocators return pages in their own ways")
def test_what_is_free_between_arrays_that_are_kept_is_returned() -> None:
    """2,000 arrays of 32 KiB are 65 MB; one of 50 is kept, so that little is free at the end of the heap."""
    words = [sys.executable, "-c", MANY_ARRAYS]
    finished = subprocess.run(words, capture_output=True, text=True, check=True)
    assert 50.0 < float(finished.stdout) < 66.0
