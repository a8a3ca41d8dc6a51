"""How a command ends on a signal (Ctrl-C, SIGTERM, SIGHUP), and the causes that are recorded for the end of a run.

Before a life begins, a signal raises an exception that ends the command. Python drops an exception
that is raised in a finalizer, for example during compilation; it is then raised again, and a session
ends before its first reset if there was a signal (`raise_seen`). During a life the first signal
asks for an orderly end and the second one raises. The exit code is 128 + the first signal. A closed
terminal or broken pipe ends nothing.
"""

from __future__ import annotations

import _thread
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any, NamedTuple, TextIO

ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Windows has no SIGHUP."""
REPEAT_S = 0.1  # until a signal is handled again whose exception was lost in a finalizer


class ExitCause(Enum):
    """What can end a run: its code, `ended_by` in details.json and `cause` in log/events.jsonl, and its description.

    Then names of exceptions: horde_env is not imported here.
    """

    STEPS = "steps", "all its steps were taken"
    LOG_END = "log_end", "its log ended"
    SIGINT = "sigint", "SIGINT (Ctrl-C)", "KeyboardInterrupt"
    SIGTERM = "sigterm", "SIGTERM"
    SIGHUP = "sighup", "SIGHUP (its terminal was closed)"
    PAGE_STOP = "page_stop", "the stop button of its live page was pressed"
    BATTERY_LOW = "battery_low", "its battery was low, and docking did not help"
    EMERGENCY_STOP = "emergency_stop", "the robot's emergency stop is set", "EmergencyStop"
    DISOBEYED = "disobeyed", "the robot did not follow its commands", "BodyDisobeys"
    LINK_LOST = "link_lost", "the link to the robot was lost", "BackendLost", "PortLost"
    ROBOT_UNAVAILABLE = (
        "robot_unavailable",
        "the robot could not be opened again",
        "BackendUnavailable",
    )
    ROBOT_ERROR = "robot_error", "the robot's driver failed", "HordeEnvError"
    SHARD_LOST = "shard_lost", "a shard's process or machine was lost", "ShardLost"
    UNREADABLE = "unreadable", "its rows could not be read", "UnreadableRows"
    DISK_FULL = "disk_full", "its files could not be written", "RecordLost"
    ERROR = "error", "an error of the environment, a question or the program"
    CUT_OFF = "cut_off", "it was cut off"
    UNKNOWN = "unknown", "unknown: nothing recorded a cause"

    def __init__(self, code: str, description: str, *exceptions: str) -> None:
        self.code = code
        self.description = description
        self.exceptions = exceptions

    @classmethod
    def of_signal(cls, number: int) -> ExitCause:
        """Return the cause for one of `ENDING`."""
        return cls[signal.Signals(number).name]

    @classmethod
    def of_fault(cls, fault: BaseException) -> ExitCause:
        """Return the cause for an exception: that of its nearest class, `ERROR` for any other."""
        if isinstance(fault, Ended):
            return cls.of_signal(fault.signum)
        if isinstance(fault, OSError) and fault.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return cls.DISK_FULL
        kinds = [kind.__name__ for kind in type(fault).__mro__]
        return next(
            (cause for kind in kinds for cause in cls if kind in cause.exceptions), cls.ERROR
        )


class ExitReason(NamedTuple):
    """What ended a run."""

    cause: ExitCause  # from the table of causes
    why: str | None  # the cause in words; None if the run came to its end

    @classmethod
    def of(cls, cause: ExitCause) -> ExitReason:
        """Return an end that needs no further words."""
        return cls(
            cause, None if cause in (ExitCause.STEPS, ExitCause.LOG_END) else cause.description
        )

    @classmethod
    def of_fault(cls, fault: BaseException) -> ExitReason:
        """Return the end caused by an exception, with its message."""
        cause = ExitCause.of_fault(fault)
        if isinstance(fault, Ended):
            words = ""
        else:
            words = " ".join(f"{fault}".split())
        if isinstance(fault, OSError) and fault.filename:
            words = f"{fault.filename} cannot be written ({fault.strerror})"
        return cls(cause, words or f"{cause.description} ({type(fault).__name__})")

    @property
    def is_early(self) -> bool:
        """True if the run ended before its last step or the end of its log."""
        return self.why is not None


class Ended(BaseException):
    """A signal ends the command; a BaseException, so that no `except Exception` catches it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum

    @property
    def message(self) -> str:
        """What ended the command, as a sentence."""
        if self.signum == signal.SIGINT:
            return "interrupted."
        return f"ended by {signal_text(self.signum)}."


def signal_text(number: int) -> str:
    """Return a signal's number and name.

    Examples:
        >>> signal_text(15)
        'signal 15 (SIGTERM)'
    """
    return f"signal {number} ({signal.Signals(number).name})"


class SignalHandler:
    """Signal handler of a command; `seen` are the numbers of the received signals, in order."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self._ask: Callable[[], None] | None = None
        self._n = 0
        self._raised: Ended | None = None
        self._n_repeated = 0  # signals that `repeat` sent and that have not arrived
        self._timer: threading.Timer | None = None

    @property
    def exit_code(self) -> int:
        """128 + the first signal; 0 if there was none."""
        if self.seen:
            return 128 + self.seen[0]
        return 0

    def call_at_first(self, ask: Callable[[], None]) -> None:
        """Call `ask` at the next signal, and raise at the one after that."""
        self._ask = ask
        self._n = 0
        self._raised = None

    def raise_seen(self) -> None:
        """Raise Ended if there was a signal: the exception that it raised then was lost."""
        if self.seen:
            raise Ended(self.seen[0])

    def wait_after_end(self, wait: Callable[[], object]) -> None:
        """Call `wait` after the session is over, until it returns or a signal comes; Ctrl-C leaves the exit code 0."""
        self._ask = None
        self._n = 0
        self._raised = None
        try:
            wait()
        except Ended as end:
            if end.signum == signal.SIGINT:
                self.seen.remove(signal.SIGINT)

    def record_only(self) -> None:
        """Only record signals from now on."""
        self._ask = None
        self._n = 1
        self._raised = None

    def __call__(self, signum: int, frame: object) -> None:  # noqa: ARG002
        """Raise Ended at the first signal, or at the second one after `call_at_first`; only record further ones.

        If the exception of the first one was lost, the next one raises again.
        """
        is_lost = self._raised is not None and not _is_handled(self._raised)
        if self._n_repeated:
            self._n_repeated -= 1
            if is_lost:  # not raised again meanwhile
                self._end(signum)
            return
        self.seen.append(signum)
        self._n += 1
        if self._ask is None:
            if self._n == 1 or is_lost:
                self._end(signum)
        elif self._n == 1:
            self._ask()
        elif self._n == 2:
            self._end(signum)

    def _end(self, signum: int) -> None:
        self._raised = Ended(signum)
        raise self._raised

    def repeat(self, lost: Ended) -> None:
        """Handle a signal again in `REPEAT_S`, because Python dropped its exception."""

        def send() -> None:
            self._n_repeated += 1
            _thread.interrupt_main(signal.Signals(lost.signum))

        self._timer = threading.Timer(REPEAT_S, send)
        self._timer.daemon = True
        self._timer.start()

    def close(self) -> None:
        """Send nothing again from now on."""
        if self._timer is not None:
            self._timer.cancel()


def _is_handled(raised: BaseException) -> bool:
    """Return whether an exception, or one that it caused, is being handled, as while a command closes its files."""
    error = sys.exception()
    while error is not None:
        if error is raised:
            return True
        error = error.__context__
    return False


@contextmanager
def handling_signals() -> Iterator[SignalHandler]:
    """Handle the signals of ENDING in this context; Python allows that only in the main thread.

    Ignored signals, for example SIGHUP under `nohup`, stay ignored.
    """
    signals = SignalHandler()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    handlers = {number: signal.getsignal(number) for number in ENDING}
    numbers = [
        number for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)
    ]
    report_dropped = sys.unraisablehook

    def repeat_or_report(dropped: Any) -> None:
        if isinstance(dropped.exc_value, Ended):
            signals.repeat(dropped.exc_value)
        else:
            report_dropped(dropped)

    sys.unraisablehook = repeat_or_report
    for number in numbers:
        signal.signal(number, signals)
    try:
        yield signals
    finally:
        for number in numbers:
            signal.signal(number, handlers[number])
        sys.unraisablehook = report_dropped
        signals.close()


class SafeStream:
    """A text stream that never raises: after its first error, output is dropped.

    Its file is then replaced by the null device, because the interpreter flushes the rest when it
    exits.

    Args:
        stream: Where to write.

    Attributes:
        is_lost: True after an error.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write or drop the text; return its length."""
        with self._dropping_errors():
            try:
                self._stream.write("" if self.is_lost else text)
            except UnicodeEncodeError:  # a terminal with another encoding
                encoding = self._stream.encoding or "ascii"
                self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def flush(self) -> None:
        """Flush, or do nothing."""
        with self._dropping_errors():
            self._stream.flush()

    @contextmanager
    def _dropping_errors(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError:  # a signal handler prints during a print: dropped
            pass
        except (OSError, ValueError):  # gone, or closed
            self.is_lost = True
            with suppress(OSError, ValueError, AttributeError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)


@contextmanager
def unfailing() -> Iterator[None]:
    """Replace standard output and error by `SafeStream` streams in this context; closed ones (None) stay None."""
    streams = sys.stdout, sys.stderr
    out, err = (SafeStream(stream) if stream is not None else None for stream in streams)
    sys.stdout = out
    sys.stderr = err
    try:
        yield
    finally:
        for stream in (out, err):
            if stream is not None:
                stream.flush()  # the interpreter would do this at exit, and fail
        sys.stdout, sys.stderr = streams
