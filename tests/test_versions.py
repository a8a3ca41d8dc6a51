"""Declared versions are the tested ones."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]

TRIED = {
    "numba": ("0.62.0", "0.62.1", "0.63.1", "0.64.0", "0.65.1", "0.66.0", "0.67.0", "0.68.1"),
    "numpy": ("1.26.4", "2.0.2", "2.1.3", "2.2.6", "2.3.5", "2.4.0", "2.4.6"),
    "tyro": ("0.9.1", "1.0.17"),
    "rich": ("13.0.0", "15.0.0"),
    "gymnasium": ("1.0.0", "1.4.0"),
}
"""A life of 700 steps in the simulator, seed 1, has bit-identical weights with each of them."""

REFUSED = {
    # 0.61.0 and 0.61.2 never finish compiling `kernels.runs.list_of` (400 s, 1.4 GB); 0.69 is untested.
    "numba": ("0.61.0", "0.61.2", "0.69.0"),
    "tyro": ("0.8.14", "2.0.0"),
}


def requirement_of(package: str) -> Requirement:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (found,) = [r for r in map(Requirement, table["project"]["dependencies"]) if r.name == package]
    return found


@pytest.mark.parametrize("package", TRIED)
def test_every_version_that_was_tried_may_be_installed(package: str) -> None:
    """The lower bound is one of them."""
    requirement = requirement_of(package)
    assert all(requirement.specifier.contains(tried) for tried in TRIED[package])
    lowest = next(s.version for s in requirement.specifier if s.operator == ">=")
    assert any(tried == lowest or tried.startswith(f"{lowest}.") for tried in TRIED[package])


@pytest.mark.parametrize("package", REFUSED)
def test_versions_that_do_not_work_are_excluded(package: str) -> None:
    assert not any(requirement_of(package).specifier.contains(refused) for refused in REFUSED[package])


@pytest.mark.parametrize("package", ["numba", "tyro"])
def test_the_installed_version_was_tried(package: str) -> None:
    """Try a newer one, and add it above."""
    here, tried = version(package), TRIED[package]
    assert here.rsplit(".", 1)[0] in {v.rsplit(".", 1)[0] for v in tried}, f"{package} {here} was never tried"
