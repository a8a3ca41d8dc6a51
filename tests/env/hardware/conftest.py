"""A robot in virtual time, and a pseudo terminal, for every test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.env.hardware.peers import Terminal
from tests.env.hardware.virtual import VirtualRobot


@pytest.fixture
def robot() -> Iterator[VirtualRobot]:
    robot = VirtualRobot()
    yield robot
    robot.line.close()


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.unplug()
