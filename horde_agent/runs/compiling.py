"""The first start on a machine compiles the kernels, which takes a minute: this says so at once, and how far it is.

Numba tells of each function that it compiles, and of none that it finds in its cache (`numba.core.event`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from numba.core import event
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

SENTENCE = "compiling, once, about a minute (`horde warm` does it ahead)"
N_KERNELS = 80
"""Kernels that a life with the default questions compiles, about: the bar need not be exact."""
_SAY_EVERY_S = 10.0  # where there is no terminal


class Compiling(event.Listener):
    """Says that kernels are being compiled when the first one is, once, and shows how many are done.

    Args:
        console: Where.
    """

    def __init__(self, console: Console) -> None:
        self._console, self._done, self._said = console, set[Any](), 0.0
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("kernels")
        self._bar = Progress(*columns, console=console, transient=True, auto_refresh=False)
        self._task = self._bar.add_task(SENTENCE, total=N_KERNELS)

    def on_start(self, event: Any) -> None:
        """Hear that a function is going to be compiled."""
        if not _is_own(event):
            return
        if self._console.is_terminal:
            if not self._bar.live.is_started:
                self._bar.start()
        elif not self._said:
            self._said = time.perf_counter()
            self._console.print(SENTENCE, highlight=False, soft_wrap=True)

    def on_end(self, event: Any) -> None:
        """Hear that a function was compiled."""
        if not _is_own(event):
            return
        self._done.add(event.data["dispatcher"])
        n, now = len(self._done), time.perf_counter()
        self._bar.update(self._task, completed=n, total=max(n, N_KERNELS))
        if self._console.is_terminal:
            self._bar.refresh()
        elif now - self._said > _SAY_EVERY_S:
            self._said = now
            self._console.print(f"compiling: {n} of about {N_KERNELS} kernels", highlight=False, soft_wrap=True)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show what this process compiles meanwhile, if anything; a second time, how it goes on."""
        try:
            with event.install_listener("numba:compile", self):
                yield
        finally:
            self.stop()

    def stop(self) -> None:
        """Give the terminal back."""
        if self._bar.live.is_started:  # one that is not would print an empty line
            self._bar.stop()


def _is_own(compiled: Any) -> bool:
    return str(compiled.data["dispatcher"].py_func.__module__).startswith("horde_agent.")


def shown(console: Console) -> AbstractContextManager[None]:
    """Return a context in which a console shows what this process compiles, if anything."""
    return Compiling(console).shown()
