"""An emulated robot in the middle of its room, over its bytes, in lockstep or in real time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from horde_env.env import RobotEnv
from horde_env.robot import create2
from horde_env.robots.create2.emulator.emulator import CreateEmulator, EmulatedCreate


@pytest.fixture
def emulated(caplog: pytest.LogCaptureFixture) -> Iterator[tuple[RobotEnv, EmulatedCreate]]:
    body = EmulatedCreate()
    env = RobotEnv(body, body.clock, spec=create2())
    env.reset(seed=3, options={"manoeuvre": "stay"})
    body.emulator.robot.machine.place(0.0, -0.3, 1.57, np.random.default_rng(0))
    env.step(4)
    caplog.clear()
    yield env, body
    env.close()


@pytest.fixture
def robot() -> Iterator[tuple[CreateEmulator, str]]:
    """A robot in real time, and its port."""
    with CreateEmulator(seed=3) as emulator:
        emulator.robot.machine.place(0.0, -0.3, 0.0, np.random.default_rng(0))
        url = emulator.open_pty()
        emulator.start()
        yield emulator, url
