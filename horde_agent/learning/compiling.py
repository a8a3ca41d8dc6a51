"""Announces that kernels are compiled, which delays the first step in a process by up to a minute.

In Python, a warning of the log says so once; numba's cache holds the kernels from then on. Commands
print a line of their own instead (`runs.warm`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event

COMPILING = "compiling, once, about a minute (`horde warm` does it in advance)"

_PACKAGES = ("horde_agent.", "horde_env.")
_log = logging.getLogger(__name__)


def is_own_kernel(compilation: Any) -> bool:
    """Return whether numba's event of a compilation is about a kernel of this project."""
    return str(compilation.data["dispatcher"].py_func.__module__).startswith(_PACKAGES)


class _LogNotice(event.Listener):
    """Writes one warning to the log when the first kernel is compiled, unless something else announces it."""

    def __init__(self) -> None:
        self.n_replacements = 0
        self.is_written = False

    def on_start(self, compilation: Any) -> None:
        """Write the warning once."""
        if self.is_written or self.n_replacements or not is_own_kernel(compilation):
            return
        self.is_written = True
        _log.warning(COMPILING)

    def on_end(self, compilation: Any) -> None:
        """Do nothing; numba requires it."""


_notice = _LogNotice()


def announce_compiling() -> None:
    """Let the log say when the first kernel of this process is compiled; calling it again does nothing."""
    event.register("numba:compile", _notice)  # type: ignore[no-untyped-call]


def leave_out_announcement() -> None:
    """Write nothing about compiling to the log of this process: the caller has said it."""
    _notice.is_written = True


@contextmanager
def announced_otherwise() -> Iterator[None]:
    """Leave the announcement to the caller in this context."""
    _notice.n_replacements += 1
    try:
        yield
    finally:
        _notice.n_replacements -= 1
