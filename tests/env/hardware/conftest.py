"""A robot in virtual time for every test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.env.hardware.virtual import VirtualRobot


@pytest.fixture
def robot() -> Iterator[VirtualRobot]:
    robot = VirtualRobot()
    yield robot
    robot.line.close()
