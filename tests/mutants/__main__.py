"""Make each mistake in a copy of the project, and say whether the tests named with it noticed."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants import ROOT, Mutant, listed

HANGS_S = 900  # a mistake that stops everything was noticed too
NOTICED, FAILED_BEFORE, UNNOTICED = "noticed", "its tests fail without it", "NOT NOTICED"
NO_PROGRAM = "is no program, which any test would notice"


def copy_to(folder: Path) -> None:
    """Copy the tracked files, and those not yet tracked that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, names):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)


def passes(folder: Path, tests: Sequence[str]) -> bool:
    """Run tests in the copy, the first failure being enough."""
    cache = folder.parent / "cache"
    environment = {**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "", *tests]
    try:
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=HANGS_S, check=False)
    except subprocess.TimeoutExpired:
        return False
    if ran.returncode not in (0, 1, 2):  # 2: a mistake may keep a test file from being imported
        raise RuntimeError(f"pytest could not run {' '.join(tests)}: {ran.stdout.decode()[-2000:]}")
    return ran.returncode == 0


def tried(mutant: Mutant, folder: Path, sound: dict[tuple[str, ...], bool]) -> str:
    """Return what became of one mistake; `sound` remembers which tests pass without any."""
    if mutant.tests not in sound:
        sound[mutant.tests] = passes(folder, mutant.tests)
    if not sound[mutant.tests]:
        return FAILED_BEFORE
    path = folder / mutant.file
    right, wrong = path.read_text(encoding="utf-8"), mutant.applied(folder)
    try:
        if path.suffix == ".py":
            ast.parse(wrong)
    except SyntaxError:
        return NO_PROGRAM
    path.write_text(wrong, encoding="utf-8")
    try:
        return UNNOTICED if passes(folder, mutant.tests) else NOTICED
    finally:
        path.write_text(right, encoding="utf-8")


def main(words: Sequence[str]) -> int:
    """Try the mistakes whose name or file holds one of the words, all of them where none is given."""
    chosen = [m for m in listed() if not words or any(w in m.name or w in m.file for w in words)]
    if not chosen:
        print(f"no mistake is named by {' '.join(words)!r}", file=sys.stderr)
        return 2
    sound: dict[tuple[str, ...], bool] = {}
    bad = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "copy"
        copy_to(folder)
        shared = ROOT.parent / "shared"
        if shared.is_dir():
            (Path(temporary) / "shared").symlink_to(shared)
        for k, mutant in enumerate(chosen, start=1):
            began = time.perf_counter()
            outcome = tried(mutant, folder, sound)
            bad += outcome != NOTICED
            took_s = time.perf_counter() - began
            print(f"{k}/{len(chosen)} {outcome}: {mutant.name} ({mutant.file}, {took_s:.0f} s)", flush=True)
    print(f"{len(chosen) - bad} of {len(chosen)} noticed")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
