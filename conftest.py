"""Doctests of a module that needs an extra are skipped, with the reason, where the extra is not installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
NEEDS = {"horde_agent/sb3.py": ("stable_baselines3", "sb3")}
"""The package that a module imports, and the extra that installs it."""


@pytest.hookimpl(tryfirst=True)
def pytest_make_collect_report(collector: pytest.Collector) -> pytest.CollectReport | None:
    """Report a module as skipped instead of importing it; None leaves it to pytest."""
    if not isinstance(collector, pytest.File) or not collector.path.is_relative_to(ROOT):
        return None
    name = collector.path.relative_to(ROOT).as_posix()
    if name not in NEEDS:
        return None
    package, extra = NEEDS[name]
    if importlib.util.find_spec(package) is not None:
        return None
    reason = f"needs {package}: pip install -e '.[{extra}]'"
    return pytest.CollectReport(collector.nodeid, "skipped", (name, 1, reason), [])
