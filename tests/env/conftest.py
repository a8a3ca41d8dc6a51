"""Fixtures of the commands' tests: private folders, and a robot in place of the requested one."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from horde_env import cli
from horde_env.env import RobotEnv
from horde_env.tools.running import Target
from horde_env.tools.serving import serve
from tests.env.hardware.peers import LIMIT_S, Served, Serving, Terminal
from tests.env.healthy import Instead, Robot, Run


@pytest.fixture
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's own files."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def instead(monkeypatch: pytest.MonkeyPatch) -> Instead:

    def put(robot: Robot) -> Robot:
        monkeypatch.setattr(Target, "make", lambda self, realtime: RobotEnv(robot))
        return robot

    return put


@pytest.fixture
def run(own_folders: None, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `horde-robot` with these words, expect its exit code, and return its output and errors."""

    def run(words: str, *further: str, code: int = 0) -> Any:
        assert cli.main([*words.split(), *further]) == code
        return capsys.readouterr()

    return run


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.unplug()


@pytest.fixture
def serving() -> Iterator[Serving]:
    """Serve emulated robots from threads until the test ends, or sooner; `end` returns the counts of faults."""
    ends = list[Callable[[], dict[str, int]]]()
    pipes = list[int]()

    def begin(**arguments: Any) -> Served:
        said: queue.Queue[str] = queue.Queue()
        counts: dict[str, int] = {}
        stop = threading.Event()
        (typed, keys) = os.pipe()
        pipes.extend((typed, keys))
        controls = {"say": said.put, "stop": stop, "typed": typed}
        server = threading.Thread(target=lambda: counts.update(serve(**controls, **arguments)))
        server.start()

        def end() -> dict[str, int]:
            stop.set()
            server.join(LIMIT_S)
            assert not server.is_alive()
            return counts

        ends.append(end)
        # It may compile
        return Served([said.get(timeout=3 * LIMIT_S).split()[1] for _ in range(3)], said, keys, end)

    yield begin
    for end in ends:
        end()
    for descriptor in pipes:
        os.close(descriptor)
