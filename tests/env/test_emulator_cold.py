"""The first packet of an emulated robot on a machine that has not compiled anything yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.sim, pytest.mark.slow]

CRITTERBOT = """
from horde_env.robots.critterbot.emulator.emulator import Emulator
from horde_env.robots.critterbot.wire import Control, encode_control
from horde_env.robots.critterbot.simulator import firmware as first, motors as second

emulator = Emulator(seed=0)
emulator.robot.in_mi = True
spoken = encode_control(Control(1, 20))
"""
CREATE2 = """
from horde_env.robots.create2.emulator.emulator import CreateEmulator
from horde_env.robots.create2.wire import STREAM_ALL, Op, Wheels, drive_direct
from horde_env.robots.create2.simulator import tick as first, world as second

emulator = CreateEmulator(seed=0)
spoken = bytes([Op.START]) + STREAM_ALL + bytes([Op.SAFE]) + drive_direct(Wheels(100, 100))
"""
SCRIPT = """
kernels = [k for module in (first, second) for k in vars(module).values() if hasattr(k, "signatures")]
before = [len(kernel.signatures) for kernel in kernels]
emulator.robot.receive(spoken)
for _ in range(3):
    emulator.advance()
assert any(before) and before == [len(kernel.signatures) for kernel in kernels], before
emulator.close()
"""


@pytest.mark.parametrize("robot", [CRITTERBOT, CREATE2], ids=["critterbot", "create2"])
def test_nothing_is_compiled_while_a_host_waits(robot: str, tmp_path: Path) -> None:
    """Compiling takes longer than a host's three seconds of patience: the robot would seem to be switched off."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", robot + SCRIPT], env=environment, check=True)
