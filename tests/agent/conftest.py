"""Fixtures of all tests of the agent."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from horde_agent.runs.ending import ENDING


@pytest.fixture(scope="session", autouse=True)
def _default_signals() -> Iterator[None]:
    """Enable signals that pytest was started to ignore, as under nohup or in the background of a script."""
    before = {number: signal.getsignal(number) for number in ENDING}
    for number, handler in before.items():
        if handler is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        if handler is signal.SIG_IGN:
            signal.signal(number, handler)
