"""Numba's cache folder: a temporary one if no other is writable; the program runs without any, too.

Each test runs a process in which numba finds no folder but NUMBA_CACHE_DIR, as in a hardened
container, or for a user without a home directory or write access to the package.
"""

from __future__ import annotations

import gc
import os
import subprocess
from pathlib import Path
from typing import Any

import numba
import pytest

import horde_agent.kernels._jit  # noqa: F401  listens to numba
from tests import fresh

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="an interpreter compiles nothing")

ROOT = Path(__file__).resolve().parents[1]
NO_FOLDER = """
import sys
from numba.core import caching
caching.CacheImpl._locator_classes = [caching.UserProvidedCacheLocator]
"""
KERNEL = "from {package} import kernel\n@kernel\ndef twice(x):\n    return {factor} * x\n"
AGENT = "horde_agent.kernels._jit"
ENV = "horde_env._jit"
# Both have the same functions, see `test_twins`
PACKAGES = [AGENT, pytest.param(ENV, marks=pytest.mark.slow)]


def ran(
    code: str, package: str, folder: Path, *words: str, write: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Compile a kernel of a package's own kind, and call it."""
    if write:
        (folder / "mine.py").write_text(KERNEL.format(package=package, factor=2.0))
    call = "from mine import twice\nprint(twice(1.0), sum(twice.stats.cache_hits.values()))\n"
    variables = {
        name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"
    } | environment
    variables["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(folder)])
    return fresh.run(code + call, *words, folder=folder, environment=variables)


def test_without_any_folder_a_temporary_one_is_used_and_named(tmp_path: Path) -> None:
    """The next start uses its cache; other users cannot write to it."""
    first, second = (ran(NO_FOLDER, AGENT, tmp_path, TMPDIR=str(tmp_path)) for _ in range(2))
    assert (first.returncode, first.stdout.split(), second.stdout.split()) == (
        0,
        ["2.0", "0"],
        ["2.0", "1"],
    )
    assert first.stderr.count("RuntimeWarning") == 1
    assert "NUMBA_CACHE_DIR" in first.stderr
    (folder,) = tmp_path.glob("horde-numba-*")
    assert str(folder) in first.stderr
    assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_child_processes_use_it_without_a_warning(tmp_path: Path) -> None:
    start = "import os, subprocess\nimport horde_agent.kernels._jit\n"
    start += "print(subprocess.run([sys.executable, '-c', 'import horde_env._jit; import horde_agent.kernels._jit'],"
    start += " capture_output=True, text=True).stderr)\n"
    result = ran(NO_FOLDER + start, AGENT, tmp_path, TMPDIR=str(tmp_path))
    assert result.stdout.split() == ["2.0", "0"]


@pytest.mark.skipif(
    os.name != "posix", reason="other systems have a temporary folder for each user"
)
def test_a_temporary_folder_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    """Code in a cache is executed."""
    trap = tmp_path / f"horde-numba-{os.getuid()}"
    trap.mkdir()
    trap.chmod(0o777)
    result = ran(NO_FOLDER, AGENT, tmp_path, TMPDIR=str(tmp_path))
    assert result.stdout.split() == ["2.0", "0"]
    assert "NUMBA_CACHE_DIR" in result.stderr
    assert list(trap.iterdir()) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_without_even_that_kernels_are_compiled_and_not_cached(
    package: str, tmp_path: Path
) -> None:
    result = ran(
        NO_FOLDER + "import tempfile; tempfile.tempdir = '/proc/none'\n", package, tmp_path
    )
    assert (result.returncode, result.stdout.split()) == (0, ["2.0", "0"]), result.stderr
    assert "NUMBA_CACHE_DIR" in result.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_a_cache_on_a_full_disk_is_reported_and_not_needed(package: str, tmp_path: Path) -> None:
    full = """
import errno, os
from numba.core import caching
def save(self, name, data):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
caching.IndexDataCacheFile._save_data = save
"""
    result = ran(full, package, tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert (result.returncode, result.stdout.split()) == (0, ["2.0", "0"]), result.stderr
    assert f" in {tmp_path / 'cache'}" in result.stderr
    assert "No space left on device" in result.stderr
    assert "NUMBA_CACHE_DIR" in result.stderr


@pytest.mark.slow
def test_another_kernels_code_in_a_files_place_is_compiled_anew(tmp_path: Path) -> None:
    """As two programs leave it that compile one kernel at once for other types, or two versions; or a torn file."""
    code = "from mine import twice\nprint(twice(3))\n"
    first = ran(code, AGENT, tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert first.stdout.split() == ["6.0", "2.0", "0"], first.stderr
    one_file, other_file = sorted((tmp_path / "cache").rglob("*.nbc"))
    whole = one_file.read_bytes()
    for content in (other_file.read_bytes(), whole[:-100]):
        one_file.write_bytes(content)
        result = ran(code, AGENT, tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
        assert (result.returncode, result.stdout.split()) == (0, ["6.0", "2.0", "1"]), result.stderr
        assert len(one_file.read_bytes()) > 1_000, "written again"


def runs_after_changes(code: str, package: str, folder: Path) -> list[list[str]]:
    """Return the output of three runs; before the third, the function of `mine.py` has changed, but not its length."""
    runs: list[list[str]] = []
    for factor in (2.0, 2.0, 3.0):
        (folder / "mine.py").write_text(KERNEL.format(package=package, factor=factor))
        os.utime(folder / "mine.py", (len(runs), len(runs)))
        runs.append(
            ran(
                code, package, folder, write=False, NUMBA_CACHE_DIR=str(folder / "cache")
            ).stdout.split()
        )
    return runs


def test_the_cache_is_keyed_by_the_content_of_a_file_not_by_its_time(tmp_path: Path) -> None:
    """A fresh clone uses an earlier cache; another function of the same length does not."""
    assert runs_after_changes("", AGENT, tmp_path) == [["2.0", "0"], ["2.0", "1"], ["3.0", "0"]]


def test_a_cached_kernel_notices_a_change_in_the_file_of_a_kernel_that_it_calls(
    tmp_path: Path,
) -> None:
    """Numba's own cache does not: the third process would still print 2. The file's time changes in each run."""
    (tmp_path / "caller.py").write_text(
        f"import mine\nfrom {ENV} import kernel_over\n@kernel_over(mine)\ndef call(x):\n    return mine.twice(x)\n"
    )
    code = "from caller import call\nprint(call(1.0), sum(call.stats.cache_hits.values()))\nraise SystemExit\n"
    assert runs_after_changes(code, ENV, tmp_path) == [["2.0", "0"], ["2.0", "1"], ["3.0", "0"]]


@pytest.mark.slow
def test_two_programs_that_compile_a_kernel_for_other_types_at_once_write_two_files(
    tmp_path: Path,
) -> None:
    """Neither sees the other's list yet: numba alone would call both files by the number 1."""
    for name, number in (("one", "3"), ("two", "3.5")):
        code = f"from mine import twice\nprint(twice({number}))\nraise SystemExit\n"
        result = ran(code, AGENT, tmp_path, NUMBA_CACHE_DIR=str(tmp_path / name))
        assert result.stdout.split() == [str(2 * float(number))], result.stderr
    names = [{file.name for file in (tmp_path / name).rglob("*.nbc")} for name in ("one", "two")]
    assert [len(files) for files in names] == [1, 1]
    assert names[0] != names[1]


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
@pytest.mark.parametrize("is_sound", [True, False])
def test_the_garbage_collector_runs_rarely_while_kernels_compile_and_as_before_afterwards(
    is_sound: bool,
) -> None:
    """Also after a kernel that does not compile; 700 while it compiles would be Python's own number."""
    noted: list[int] = []

    def stand_in() -> None:
        """Stand for a function that only compiled code calls."""

    @numba.extending.overload(stand_in)
    def _() -> Any:
        noted.append(gc.get_threshold()[0])
        if is_sound:
            return lambda: None
        return lambda: noted  # a list of this test is nothing that compiled code can return

    @numba.njit
    def calls() -> None:
        stand_in()

    previous_thresholds = gc.get_threshold()
    gc.set_threshold(701, 9, 8)
    try:
        if is_sound:
            calls()
        else:
            with pytest.raises(numba.TypingError):
                calls()
        assert gc.get_threshold() == (701, 9, 8)
    finally:
        gc.set_threshold(*previous_thresholds)
    assert min(noted) > 10_000
