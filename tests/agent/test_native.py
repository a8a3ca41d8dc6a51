"""Use of numba's internals: it works with the installed numba, and a life runs without it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from tests.agent.short_lives import weights

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="an interpreter compiles nothing")


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a module of the tests in another process, which may crash."""
    own = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-m", *command], env=own, cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_native_kernels_work_with_the_installed_numba() -> None:
    """In another process, because a changed convention of numba may crash it."""
    done = run("tests.agent.canary")
    if done.stdout != "correct\n":
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        pytest.fail(
            f"horde_agent/kernels/native.py does not work with numba {numba.__version__} ({' '.join(last)}, exit code "
            f"{done.returncode}): set HORDE_PLAIN_KERNELS=1, or install a tested version of numba",
            pytrace=False,
        )


@pytest.mark.slow  # compiles all kernels again: 90 s
def test_a_life_without_native_kernels_learns_the_same(tmp_path: Path) -> None:
    done = run("tests.agent.short_lives", str(tmp_path / "found.npz"), HORDE_PLAIN_KERNELS="1")
    assert done.stdout == "portable\n", done.stderr
    with np.load(tmp_path / "found.npz") as found:
        for got, want in zip(found.values(), weights(), strict=True):
            assert np.abs(want).max() > 0
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-11 * np.abs(want).max())


# ---- a cache that cannot be read ------------------------------------------------------------------------------------


def flipped(index: bytes) -> bytes:
    """Return an index of a version with other types, which cannot be imported."""
    return index.replace(b"numba.core", b"numba.gone")


TORN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda index: index[:0],
    "cut short": lambda index: index[: len(index) // 2],
    "of other types": flipped,
    "of a module that is gone": lambda index: index[: len(pickle.dumps(numba.__version__))] + b"cgone\nthing\n.",
    "text": lambda _: b"there is nothing here\n",
}


@pytest.mark.parametrize("how", TORN)
def test_an_index_of_cached_kernels_that_cannot_be_read_counts_as_empty(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade or a power failure: the kernel is compiled and cached again."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    source = tmp_path / "mine.py"
    source.write_text(
        "from horde_agent.kernels._jit import kernel\n@kernel\ndef twice(x):\n    return 2.0 * x\n", encoding="utf-8"
    )

    def imported() -> Any:
        spec = spec_from_file_location("mine", source)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "mine", module)
        spec.loader.exec_module(module)
        return module.twice

    hits = []
    for step in range(4):
        twice = imported()
        assert twice(21.0) == 42.0
        hits.append(sum(twice.stats.cache_hits.values()))
        if step == 1:
            (index,) = (tmp_path / "cache").rglob("*.nbi")
            index.write_bytes(TORN[how](index.read_bytes()))
    assert hits == [0, 1, 0, 1]
