"""An emulated robot in the middle of its room, over its bytes, in lockstep."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from horde_env.env import PenEnv
from horde_env.robot import create2
from horde_env.robots.create2.emulator.emulator import EmulatedCreate


@pytest.fixture
def emulated(caplog: pytest.LogCaptureFixture) -> Iterator[tuple[PenEnv, EmulatedCreate]]:
    body = EmulatedCreate()
    env = PenEnv(body, body.clock, spec=create2())
    env.reset(seed=3, options={"manoeuvre": "stay"})
    body.emulator.robot.machine.place(0.0, -0.3, 1.57, np.random.default_rng(0))
    env.step(4)
    caplog.clear()
    yield env, body
    env.close()
