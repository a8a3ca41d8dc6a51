"""Processes of Python that this package starts: they can import what this one can, and nothing else."""

from __future__ import annotations

import os
import sys


def python(module: str, *words: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment with which a module is run in a process of its own.

    -P, for -m puts the current folder first: somebody's `random.py` would be run.
    """
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    return [sys.executable, "-P", "-m", module, *words], {**os.environ, "PYTHONPATH": path}
