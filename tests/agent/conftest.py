"""Fixtures of all tests of the agent."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from horde_agent.runs.exit_reason import ENDING
from horde_agent.runs.reporting import report
from tests.agent.commands import toy

PICTURES = report.draw_pictures


@pytest.fixture(scope="package", autouse=True)
def _no_pictures() -> Iterator[None]:
    """Leave the pictures out of reports: drawing them takes longer than a run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "draw_pictures", lambda *_: [])
        yield


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the pictures of reports."""
    monkeypatch.setattr(report, "draw_pictures", PICTURES)


@pytest.fixture
def elsewhere(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """An empty working folder, without a robot's settings."""
    monkeypatch.chdir(tmp_path)
    for folder in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(folder, str(tmp_path_factory.mktemp("home")))
    return tmp_path


@pytest.fixture(scope="session", autouse=True)
def _default_signals() -> Iterator[None]:
    """Enable signals that pytest was started to ignore, as under nohup or in the background of a script."""
    handlers = {number: signal.getsignal(number) for number in ENDING}
    for number, handler in handlers.items():
        if handler is signal.SIG_IGN:
            signal.signal(
                number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            )
    yield
    for number, handler in handlers.items():
        if handler is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 1,200 steps in a toy body, without pictures; copy it to change it."""
    path = tmp_path_factory.mktemp("runs") / "toy"
    with pytest.MonkeyPatch.context() as patch:
        # Fixtures of a session are made before `_no_pictures`
        patch.setattr(report, "draw_pictures", lambda *_: [])
        words = (
            f"learn --steps 1200 --horizon 20 --excursion-probability 0.05 --seed 1 --out {path}"
        )
        assert toy(words, patch) == 0
    return path
