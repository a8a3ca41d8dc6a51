"""The first process compiles the kernels, later ones read them from the cache; weights are the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

import horde_agent
from tests.agent.short_lives import hashes

ROOT = Path(__file__).resolve().parents[2]

compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="needs compiled kernels")


def lived(**environment: str) -> list[str]:
    """Return the hashes of another process."""
    command, own = [sys.executable, "-m", "tests.agent.short_lives"], {**os.environ, **environment}
    return subprocess.run(command, env=own, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


@compiled
def test_cached_kernels_round_as_the_process_that_compiled_them() -> None:
    """`make test` begins with an empty cache: this process compiles the kernels that the others read from it."""
    here = hashes()
    assert len(set(here)) == 2  # the modes round differently
    assert lived() == here
    assert lived(NUMBA_THREADING_LAYER="workqueue") == here  # as without OpenMP


@compiled
@pytest.mark.slow
def test_a_processor_without_wide_vectors_has_the_same_weights(tmp_path: Path) -> None:
    plain = lived(NUMBA_CACHE_DIR=str(tmp_path), NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
    assert plain == hashes()


@compiled
def test_a_cached_kernel_notices_a_change_in_the_file_of_a_kernel_that_it_calls(tmp_path: Path) -> None:
    """Numba's own cache does not: after an upgrade it would use the old kernels."""
    package = tmp_path / "horde_agent"
    shutil.copytree(Path(horde_agent.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    head = "from horde_agent.kernels._jit import inner_kernel, kernel\n"
    (package / "kernels" / "caller.py").write_text(
        f"{head}from horde_agent.kernels.callee import times\n@kernel\ndef twice(x):\n    return times(x)\n"
    )
    code = "from horde_agent.kernels.caller import twice; print(twice(1.0), sum(twice.stats.cache_hits.values()))"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    outputs = []
    for factor in (1, 1, 2):
        (package / "kernels" / "callee.py").write_text(f"{head}@inner_kernel\ndef times(x):\n    return {factor} * x\n")
        command = [sys.executable, "-c", code]
        run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        outputs.append(run.stdout.split())
    assert outputs == [["1.0", "0"], ["1.0", "1"], ["2.0", "0"]]
