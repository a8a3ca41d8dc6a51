"""Stop requests: the live page asks the process of a run to stop its robot, and waits for the confirmation.

While its robot is open, the process listens on the loopback. Port and token are in the file `.stop`
of the run's folder, which only its user can read, beside the options of the `horde-robot stop` that
stops the same robot from outside. A request writes no file, so it needs neither the live feed nor
space on the disk.

    page to run     the token, in a line
    run to page     at once a line, the receipt: {}
                    after the robot was stopped and closed, a line: {"is_confirmed": true, "said": "..."}

A process without a receipt hangs: the page says how to end it.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from horde_agent.life.bodies import ONE_AT_A_TIME
from horde_agent.runs.storage.files import read_json
from horde_agent.runs.storage.folder import RunFolder

PAGE_REASON = "requested on the live page"
STOP_OPTIONS = ("robot", "backend", "port", "parity")
LOOPBACK = "127.0.0.1"
TOKEN_S = 1.0  # within which a connection must send its token
CONNECT_S = 1.0
RECEIPT_S = 2.0  # the longest wait for the receipt
ANSWER_S = 10.0  # the longest wait for the confirmation after the receipt
# Interval at which the listener looks whether it was closed, where closing does not wake it
_LOOK_S = 1.0
_LONGEST = 4096  # bytes of a line

_log = logging.getLogger(__name__)


class StopAnswer(NamedTuple):
    """The answer to a stop request.

    Attributes:
        is_confirmed: Whether the robot was stopped, by its program or by a stop that was sent to
            its port.
        said: What else is to be known, in a few words; "" if nothing.
    """

    is_confirmed: bool
    said: str


class StopListener:
    """Receives stop requests for the robot of a run, from `open` to `close`.

    Args:
        folder: The run's folder.
        stop: Called at the first request, in a thread of its own: it stops the robot and ends the
            run, and returns a sentence for the page.
    """

    def __init__(self, folder: RunFolder, stop: Callable[[], str]) -> None:
        self._path = folder.stop
        self._stop = stop
        self._token = secrets.token_urlsafe(16)
        self._socket: socket.socket | None = None
        self._first = threading.Lock()  # until the first request has been handled
        self._said: str | None = None
        self._closed = threading.Event()
        self._is_confirmed = False

    def open(self, stop_options: Mapping[str, str]) -> None:
        """Listen for requests, and write `.stop`; if one of them fails, log it and continue without.

        Args:
            stop_options: Options of `horde-robot stop` for this robot, by name; empty if there is
                no such command.
        """
        try:
            self._socket = socket.create_server((LOOPBACK, 0))
            self._socket.settimeout(_LOOK_S)
            address = {
                "port": self._socket.getsockname()[1],
                "token": self._token,
                "pid": os.getpid(),
                "stop_options": dict(stop_options),
            }
            self._write(json.dumps(address))
        except OSError as error:
            _log.warning(
                "the live page cannot stop this run (%s); press Ctrl-C instead",
                error.strerror or error,
            )
        if self._socket is not None:
            threading.Thread(
                target=self._listen, args=(self._socket,), name="stop requests", daemon=True
            ).start()

    def close(self, *, is_stopped: bool) -> None:
        """Answer the requests whether the robot is stopped, and end. Closing twice does nothing."""
        if self._closed.is_set():
            return
        self._is_confirmed = is_stopped
        self._closed.set()
        if self._socket is not None:
            with suppress(OSError):  # some systems cannot shut down a listening socket
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _write(self, text: str) -> None:
        beside = self._path.with_name(f"{self._path.name}.part")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        beside.replace(self._path)

    def _listen(self, listening: socket.socket) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                continue
            except OSError:  # closed
                return
            threading.Thread(
                target=self._answer, args=(connection,), name="stop request", daemon=True
            ).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(TOKEN_S)
            token = _line_from(connection)
            if not secrets.compare_digest(token, self._token.encode()):
                return
            connection.sendall(b"{}\n")
            with self._first:
                if self._said is None and not self._closed.is_set():
                    self._said = self._stop()
            self._closed.wait()
            answer = StopAnswer(self._is_confirmed, self._said or "")
            connection.sendall(json.dumps(answer._asdict()).encode() + b"\n")


def stop_options(folder: RunFolder) -> dict[str, str]:
    """Return the options of the `horde-robot stop` for a run's robot, by name; none if that is not a physical robot.

    They are those in `.stop`; without that file, those in the run's settings.
    """
    written = _stop_file(folder).get("stop_options")
    options: dict[str, Any] = {}
    if isinstance(written, dict):
        options = written
    elif folder.settings().get("backend") in ONE_AT_A_TIME:
        options = folder.settings()
    return {name: str(options[name]) for name in STOP_OPTIONS if options.get(name)}


def _stop_file(folder: RunFolder) -> dict[str, Any]:
    """Return what a run's process wrote into `.stop`; empty without the file, or if it is damaged."""
    with suppress(OSError, ValueError):
        return read_json(folder.stop)
    return {}


def ask_process(folder: RunFolder) -> StopAnswer | None:
    """Ask the process of a run to stop its robot, and wait for its answer; None if none listens.

    Of a process that hangs, the answer names it and says how to end it.
    """
    address = _stop_file(folder)
    why = f"it did not answer within {RECEIPT_S:g} s"
    try:
        with (
            socket.create_connection((LOOPBACK, int(address["port"])), CONNECT_S) as connection,
            connection.makefile("rb") as lines,
        ):
            connection.sendall(str(address["token"]).encode() + b"\n")
            connection.settimeout(RECEIPT_S)
            json.loads(lines.readline(_LONGEST))
            why = f"it received the stop, but its step did not end within {ANSWER_S:g} s"
            connection.settimeout(ANSWER_S)
            answer = json.loads(lines.readline(_LONGEST))
            return StopAnswer(is_confirmed=answer["is_confirmed"] is True, said=str(answer["said"]))
    except TimeoutError:
        return StopAnswer(is_confirmed=False, said=_hang_text(folder, address.get("pid"), why))
    except (OSError, LookupError, ValueError, TypeError, OverflowError):
        return None


def _hang_text(folder: RunFolder, pid: Any, why: str) -> str:
    """Return a sentence about a process that hangs, with its end and what is kept."""
    return (
        f"process {pid} hangs: {why}. End it by `kill -9 {pid}`: the recording except its last second and the "
        f"snapshots are kept, and `horde resume {folder.path}` continues from them"
    )


def _line_from(connection: socket.socket) -> bytes:
    """Return the bytes up to a line's end, without it; those that came if the connection ends before."""
    data = b""
    while b"\n" not in data and len(data) < _LONGEST:
        more = connection.recv(_LONGEST)
        if not more:
            break
        data += more
    return data.partition(b"\n")[0]
