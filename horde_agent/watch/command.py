"""`horde watch RUN`, and the page of `horde learn --watch`, in a separate process."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import tyro

from horde_agent.processes import python
from horde_agent.runs.config import BadInput
from horde_agent.watch.server import _MISSING, serve

PORT = 8420
_CLOSE_S = 5.0


@dataclass(frozen=True)
class WatchConfig:
    """Show a run on a page in the browser, while it is running or after it has ended.

    Attributes:
        run: The run's folder.
        host: Address to listen on. Outside the loopback a token is required, which is printed.
        port: Port to listen on; 0 chooses a free one.
    """

    run: tyro.conf.Positional[Path]
    host: Annotated[str, tyro.conf.arg(metavar="ADDRESS")] = "127.0.0.1"
    port: Annotated[int, tyro.conf.arg(metavar="PORT")] = PORT


def watch(config: WatchConfig, wait_for_end: Callable[[], object] | None = None) -> None:
    """Serve the page until Ctrl-C, or until `wait_for_end`, called in another thread, returns.

    Raises:
        BadInput: See `serve`.
    """
    if not 0 <= config.port <= 65535:
        raise BadInput(f"--port must be from 0 to 65535, got {config.port}")
    serve(config.run, config.host, config.port, lambda at: print(f"watch at {at}", flush=True), wait_for_end)


class LivePage:
    """The page of a run, served by a child process, which ends with this process at the latest.

    Attributes:
        address: Its URL, "http://...".
    """

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self._process, self.address = process, address

    def wait(self) -> None:
        """Wait until the page's process ends, or a signal handler raises here."""
        self._process.wait()

    def close(self) -> None:
        """Send the final state to open pages, then end the process. Idempotent."""
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended already
            self._process.stdin.close()
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def open_beside(folder: Path, say: Callable[[str], None]) -> LivePage:
    """Start the page of a run in a child process and print its address; the run does not depend on it.

    Raises:
        BadInput: If an extra is missing or the page cannot be opened.
    """
    need_extras()
    command, environment = python("horde_agent.watch.beside", str(folder))
    page = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C goes to the run only
    )
    assert page.stdout is not None
    assert page.stderr is not None
    line = page.stdout.readline().strip()
    if not line:
        page.wait()
        raise BadInput(page.stderr.read().strip().removeprefix("horde: ") or "the live page could not be opened")
    say(line)
    return LivePage(page, line.split()[-1])


def need_extras() -> None:
    """Check that the extra `dash` is installed.

    Raises:
        BadInput: If not.
    """
    if any(find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise BadInput(_MISSING)
