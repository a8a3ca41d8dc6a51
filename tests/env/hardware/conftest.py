"""A pseudo terminal for every test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.env.hardware.peers import Terminal


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.unplug()
