"""The first packet of an emulated robot on a machine that has not compiled anything yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.sim, pytest.mark.slow]

SCRIPT = """
from horde_env.robots.critterbot.emulator.emulator import Emulator
from horde_env.robots.critterbot.wire import Control, encode_control
from horde_env.robots.critterbot.simulator import firmware, motors

with Emulator(seed=0) as emulator:
    emulator.robot.in_mi = True
    kernels = [k for module in (firmware, motors) for k in vars(module).values() if hasattr(k, "signatures")]
    before = [len(kernel.signatures) for kernel in kernels]
    emulator.robot.receive(encode_control(Control(1, 20)))
    emulator.advance()
    assert any(before) and before == [len(kernel.signatures) for kernel in kernels], before
"""


def test_nothing_is_compiled_while_a_host_waits(tmp_path: Path) -> None:
    """Compiling takes longer than a host's three seconds of patience: the robot would seem to be switched off."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", SCRIPT], env=environment, check=True)
