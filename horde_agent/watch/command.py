"""`horde watch RUN`, and the page that `horde learn --watch` opens beside a life, in a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import tyro

from horde_agent.processes import python
from horde_agent.runs.config import BadInput
from horde_agent.watch.server import _MISSING, serve

PORT = 8420


@dataclass(frozen=True)
class WatchConfig:
    """Show a run on a page in the browser: a life that goes on, or one that is over.

    Attributes:
        run: The run's folder.
        host: Address to listen on. Anything but the loopback is guarded by a token, which is printed.
        port: Port to listen on; 0 takes a free one.
    """

    run: tyro.conf.Positional[Path]
    host: Annotated[str, tyro.conf.arg(metavar="ADDRESS")] = "127.0.0.1"
    port: Annotated[int, tyro.conf.arg(metavar="PORT")] = PORT


def watch(config: WatchConfig) -> None:
    """Serve the page until Ctrl-C.

    Raises:
        BadInput: See `serve`.
    """
    if not 0 <= config.port <= 65535:
        raise BadInput(f"--port must be from 0 to 65535, got {config.port}")
    serve(config.run, config.host, config.port, lambda address: print(f"watch at {address}", flush=True))


def open_beside(folder: Path, say: Callable[[str], None]) -> subprocess.Popen[str]:
    """Start the page of a run in a process of its own, and say where it is; the life goes on whatever becomes of it.

    The page ends with this process, however that ends: see `beside`.

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
        start_new_session=True,  # a Ctrl-C is the life's
    )
    assert page.stdout is not None
    assert page.stderr is not None
    line = page.stdout.readline().strip()
    if not line:
        page.wait()
        raise BadInput(page.stderr.read().strip().removeprefix("horde: ") or "the live page could not be opened")
    say(line)
    return page


def need_extras() -> None:
    """Check that what the page is made of is installed.

    Raises:
        BadInput: If not.
    """
    if any(find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise BadInput(_MISSING)
