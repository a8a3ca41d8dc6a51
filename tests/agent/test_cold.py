"""The first life on a machine compiles its kernels; every later one finds them in the cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

_LIVE = """
from horde_agent.bench import workload
from horde_agent.bench.competitors import Learning
stream = workload.stream(301)
for mode in ("eager", "deferred"):
    learning = Learning(workload.constant_action_questions()[:300], stream, mode)
    for t in range(300):
        learning(t)
    print(learning.horde.weights_sha256())
"""


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="an interpreter compiles nothing")
def test_the_first_life_is_bit_for_bit_that_of_every_later_one(tmp_path: Path) -> None:
    """Both run other copies of the same kernels, which a compiler that may fuse operations rounds differently."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", _LIVE]
    first, later = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert len(set(first.split())) == 2  # the modes round differently; both are there
    assert first == later
