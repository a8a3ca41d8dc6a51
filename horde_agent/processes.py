"""This process: its program's version, Ctrl-C during its imports, its memory; processes with its import path.

The package imports this module first, which then handles Ctrl-C, so it imports little itself.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import cache

COMMAND = "horde"
MODULE = "horde_agent.cli"
EXIT_CODE = 130
DISTRIBUTION = "horde-gvf"
_MAP_THRESHOLD = -3  # of glibc's mallopt: M_MMAP_THRESHOLD
_LARGE_BYTES = 256 * 1024


def python(module: str, *words: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of a process that calls a module's `main` with words.

    Without -P, Python would import a `random.py` of the current folder.
    """
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    code = f"import sys; from {module} import main; sys.exit(main(*sys.argv[1:]))"
    return [sys.executable, "-P", "-c", code, *words], {**os.environ, "PYTHONPATH": path}


@cache
def own_version() -> str:
    """Return the version of the installed distribution, or "unknown" in a checkout that is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


def resident_bytes() -> int:
    """Return the memory of this process in bytes; 0 if the system does not report it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = file.read().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def available_memory() -> int | None:
    """Return the bytes of memory that are free for use, or None if the system does not report it."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = file.readlines()
    except OSError:
        return None
    available = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    if available:
        return 1024 * int(available[0])
    return None


def map_large_arrays(n_demons: int) -> None:
    """Map each large array from now on, so that the system gets it back when it is freed.

    Large ones have 256 KiB or more, and four float64 for each of `n_demons`: those of a step stay on the heap.

    glibc raises the size from which arrays are mapped to the largest one that was freed, so that a snapshot's come
    from the heap. Others stay behind them, so the heap of a long run grows although nothing is kept. Elsewhere than
    with glibc nothing changes.
    """
    set_option = _of_glibc("mallopt")
    if set_option is not None:
        set_option(_MAP_THRESHOLD, max(_LARGE_BYTES, 4 * 8 * n_demons))


def return_free_memory() -> None:
    """Return pages of the heap in which nothing is left to the system; it takes about a millisecond.

    glibc returns only those at the heap's end. Elsewhere nothing changes.
    """
    trim = _of_glibc("malloc_trim")
    if trim is not None:
        trim(0)


def _of_glibc(name: str) -> Callable[..., int] | None:
    """Return a function of the C library, or None if it has none of this name."""
    import ctypes  # in a run, not in each import of the package

    try:
        function: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):  # macOS and musl; Windows has no library None
        return None
    return function


def handle_ctrl_c_of_imports() -> None:
    """End the command `horde` at Ctrl-C until it handles signals itself; do nothing in any other program."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default and is_command(sys.argv, sys.orig_argv):
        signal.signal(signal.SIGINT, _end)


def is_command(arguments: list[str], command_line: list[str]) -> bool:
    """Return whether these are the arguments of `horde` or `python -m horde_agent.cli`.

    Args:
        arguments: As in `sys.argv`; the first one is "-m" while Python looks for the module.
        command_line: As in `sys.orig_argv`.

    Examples:
        >>> is_command(["/usr/bin/horde", "learn"], ["python3", "/usr/bin/horde", "learn"])
        True
        >>> is_command(["-m", "learn"], ["python3", "-m", "horde_agent.cli", "learn"])
        True
        >>> is_command(["my_experiment.py"], ["python3", "my_experiment.py"])
        False
    """
    if not arguments:
        return False
    program = arguments[0]
    if program == "-m":
        return MODULE in command_line
    name, _ = os.path.splitext(os.path.basename(program))
    return name == COMMAND


def _end(number: int, frame: object) -> None:  # noqa: ARG001
    """Print a line and end the process: an exception could be lost, or shown with a traceback."""
    os.write(2, b"horde: interrupted.\n")
    os._exit(EXIT_CODE)


handle_ctrl_c_of_imports()
