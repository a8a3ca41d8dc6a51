"""Another author's program drives the emulated robot in a square and reads its sensors; the MicroPython watchdog."""

from __future__ import annotations

import math
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from horde_env.robots.create2.emulator.emulator import CreateEmulator
from horde_env.robots.create2.wire import OFF

ROOT = Path(__file__).resolve().parents[3]


PYCREATE2 = """
import sys, time, pycreate2
bot = pycreate2.Create2(sys.argv[1])
bot.start()
bot.safe()
for _ in range(4):
    bot.drive_direct(199, 199)
    time.sleep(1.6)
    bot.drive_direct(178, -178)
    time.sleep(1.1)
bot.drive_direct(0, 0)
time.sleep(0.3)
sensors = bot.get_sensors()
print(sensors.open_interface_mode, sensors.voltage, sensors.cliff_left_signal)
"""


@pytest.mark.slow
@pytest.mark.hardware
def test_pycreate2_drives_a_square_and_reads_all_sensors(robot: tuple[CreateEmulator, str]) -> None:
    """Four sides of 0.3 m and four right angles, by its own clock; back within 0.25 m, and in Off (173) at the end."""
    pytest.importorskip("pycreate2")
    emulator, url = robot
    firmware, machine = emulator.robot, emulator.robot.machine
    start = machine.pose
    ran = subprocess.run([sys.executable, "-c", PYCREATE2, url], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert math.dist(start[:2], machine.pose[:2]) < 0.25
    assert firmware.n_cycles > 64 * 8
    mode, voltage, cliff = map(float, ran.stdout.split()[-3:])
    assert mode == 2
    assert voltage == pytest.approx(1000 * machine.volts, abs=500)
    assert abs(cliff - 2890) < 700
    assert firmware.mode == OFF


def test_the_microcontrollers_watchdog_stops_a_robot_half_a_second_after_the_last_byte() -> None:
    """Five stops 20 ms apart, START with the last, and silence; its clock wraps meanwhile, at 2^30 ms."""
    module = SimpleNamespace(**runpy.run_path(str(ROOT / "examples" / "microcontroller" / "create2_watchdog.py")))
    wraps = 1 << 30

    def apart(later: int, earlier: int) -> int:
        return (later - earlier + wraps // 2) % wraps - wraps // 2

    begin = wraps - 300
    dog = module.Watchdog(begin, apart)
    assert dog.due(begin + 290) == b""  # the computer has not spoken yet
    dog.received(begin + 50)
    said = {ms: words for ms in range(50, 2_000) if (words := dog.due((begin + ms) % wraps))}
    assert list(said) == [550, 570, 590, 610, 630]
    assert list(said.values()) == [module.STOP] * 4 + [module.STOP + module.START]
    dog.received((begin + 2_000) % wraps)
    assert dog.due((begin + 2_499) % wraps) == b""
    assert dog.due((begin + 2_500) % wraps) == module.STOP
