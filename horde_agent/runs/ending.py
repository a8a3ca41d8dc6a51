"""How a command ends when somebody asks for it: Ctrl-C, SIGTERM, and SIGHUP, which comes where a terminal goes away.

At first a signal ends the command at once, as an exception, so that whatever is open is closed. While a life is lived
it asks for an orderly end instead, and a second one breaks the life off. Exit code: 128 + the first signal, each time.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Windows has no SIGHUP."""


class Ended(BaseException):
    """A signal ends the command; a BaseException, so that nothing on the way mistakes it for a fault."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class Signals:
    """What a command does about signals.

    Attributes:
        seen: Those that came, in order.
    """

    def __init__(self) -> None:
        self.seen: list[int] = []
        self._ask: Callable[[], None] | None = None
        self._n = 0

    @property
    def exit_code(self) -> int:
        """128 + the first signal; 0 where none came."""
        return 128 + self.seen[0] if self.seen else 0

    def ask_first(self, ask: Callable[[], None]) -> None:
        """From now on call `ask` at the next signal, and raise at the one after that."""
        self._ask, self._n = ask, 0

    def only_note(self) -> None:
        """From now on do nothing at a signal but note it."""
        self._ask, self._n = None, 1

    def __call__(self, signum: int, frame: object) -> None:  # noqa: ARG002
        """Handle a signal; once it has raised, further ones do not disturb the closing that follows.

        Raises:
            Ended: At the first one, or at the second where there is somebody to ask.
        """
        self.seen.append(signum)
        self._n += 1
        if self._ask is not None and self._n == 1:
            self._ask()
        elif self._n == (1 if self._ask is None else 2):
            raise Ended(signum)


@contextmanager
def heard() -> Iterator[Signals]:
    """Hear the signals of ENDING meanwhile; in the main thread, where alone Python can.

    One that was to be ignored, as SIGHUP under `nohup`, goes on being ignored.
    """
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    mine = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]
    for number in mine:
        signal.signal(number, signals)
    try:
        yield signals
    finally:
        for number in mine:
            signal.signal(number, before[number])
