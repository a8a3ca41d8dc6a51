"""Layout of the packages: few modules at the top, each folder a package, no ignored module, no circular imports."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[1]
MOST_AT_THE_TOP = 16


@pytest.fixture(params=["horde_agent", "horde_env"])
def package(request: pytest.FixtureRequest) -> Path:
    return ROOT / str(request.param)


def test_there_are_few_modules_at_the_top(package: Path) -> None:
    assert len(list(package.glob("*.py"))) <= MOST_AT_THE_TOP


def test_each_folder_of_modules_is_a_package(package: Path) -> None:
    """A folder without `__init__.py` can be imported, but neither import-linter nor mypy checks it."""
    folders = {path.parent for path in package.rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


@pytest.mark.skipif(not shutil.which("git") or not (ROOT / ".git").exists(), reason="no checkout")
def test_git_ignores_no_module(package: Path) -> None:
    """A line of .gitignore meant for results ("runs/") would also exclude a package of that name."""
    modules = "\n".join(str(path) for path in package.rglob("*.py"))
    ignored = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin"],
        cwd=ROOT,
        input=modules,
        capture_output=True,
        text=True,
    )
    assert ignored.stdout == ""


def test_there_are_no_circular_imports(package: Path) -> None:
    """Including imports within functions and for types only."""
    graph = grimp.build_graph(package.name, cache_dir=None)
    below = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    while leaves := {module for module, imported in below.items() if not imported & below.keys()}:
        below = {module: imported for module, imported in below.items() if module not in leaves}
    upstream = {module for imported in below.values() for module in imported}
    assert sorted(upstream & below.keys()) == []
