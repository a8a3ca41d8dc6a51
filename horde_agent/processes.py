"""This process's memory; Python processes with its import path, and without the current folder in it."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def python(module: str, *words: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of a process that calls a module's `main` with words.

    Without -P, Python would import a `random.py` of the current folder.
    """
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    code = f"import sys; from {module} import main; sys.exit(main(*sys.argv[1:]))"
    return [sys.executable, "-P", "-c", code, *words], {**os.environ, "PYTHONPATH": path}


def resident_bytes() -> int:
    """Return the memory of this process in bytes; 0 if the system does not report it."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
