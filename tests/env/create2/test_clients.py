"""Other programs at the emulated robot: pycreate2, hosts of `serve` over TCP, and the MicroPython watchdog."""

from __future__ import annotations

import math
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import serial

from horde_env.robots.create2.emulator.emulator import CreateEmulator
from horde_env.robots.create2.wire import FRAME_SIZE, HEADER, OFF, PASSIVE, decode, is_sound
from tests.env.hardware.peers import LIMIT_S, Served, Serving

pytestmark = pytest.mark.hardware
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
print("said", sensors.open_interface_mode, sensors.voltage, sensors.cliff_left_signal)
"""


@pytest.mark.slow
def test_pycreate2_drives_a_square_and_reads_all_sensors(robot: tuple[CreateEmulator, str]) -> None:
    """Four sides of 0.3 m and four right angles, by its own clock; back within 0.25 m, and in Off (173) at the end."""
    pytest.importorskip("pycreate2")
    emulator, url = robot
    firmware = emulator.robot
    machine = emulator.robot.machine
    start = machine.pose
    result = subprocess.run(
        [sys.executable, "-c", PYCREATE2, url], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    assert math.dist(start[:2], machine.pose[:2]) < 0.25
    assert firmware.n_cycles > 64 * 8
    mode, voltage, cliff = map(float, result.stdout.split("said ")[1].split()[:3])
    assert mode == 2
    assert voltage == pytest.approx(1000 * machine.volts, abs=500)
    assert abs(cliff - 2890) < 700
    assert firmware.mode == OFF


def test_the_microcontrollers_watchdog_stops_a_robot_half_a_second_after_the_last_byte() -> None:
    """Five stops 20 ms apart, START with the last, and silence; its clock wraps meanwhile, at 2^30 ms."""
    module = SimpleNamespace(
        **runpy.run_path(str(ROOT / "examples" / "microcontroller" / "create2_watchdog.py"))
    )
    wraps = 1 << 30

    def apart(later: int, earlier: int) -> int:
        return (later - earlier + wraps // 2) % wraps - wraps // 2

    begin = wraps - 300
    dog = module.Watchdog(begin, apart)
    assert dog.due(begin + 290) == b""  # the computer has not spoken yet
    dog.received(begin + 50)
    answers = {ms: dog.due((begin + ms) % wraps) for ms in range(50, 2_000)}
    commands = {ms: words for ms, words in answers.items() if words}
    assert list(commands) == [550, 570, 590, 610, 630]
    assert list(commands.values()) == [module.STOP] * 4 + [module.STOP + module.START]
    dog.received((begin + 2_000) % wraps)
    assert dog.due((begin + 2_499) % wraps) == b""
    assert dog.due((begin + 2_500) % wraps) == module.STOP


@pytest.fixture
def served(serving: Serving) -> Served:
    return serving(kind="create2", tcp="127.0.0.1:0", seed=1)


def test_a_robot_that_powered_down_is_woken_by_its_clean_button(served: Served) -> None:
    """Opcode 133: silent, START or not. Awake it is in Off and accepts START; a stream must be requested again."""
    with serial.serial_for_url(served.urls[1], timeout=1.0) as port:
        port.write(bytes([128, 148, 1, 100]))
        port.read_until(HEADER)
        port.write(bytes([133]))
        while port.read(FRAME_SIZE):
            pass
        port.write(bytes([128, 148, 1, 100]))
        assert port.read(1) == b""
        os.write(served.typed, b"clean\n")
        for _ in range(30):
            port.write(bytes([128, 148, 1, 100]))
            if port.read(FRAME_SIZE):
                break
        port.read_until(HEADER)
        frame = HEADER + port.read(FRAME_SIZE - len(HEADER))
    assert is_sound(frame)
    assert decode(frame[3:-1]).mode == PASSIVE


def test_faults_may_be_typed(served: Served) -> None:
    """Packet 7 reports the wheel drop while it lasts; an unknown word is named in an error."""
    with serial.serial_for_url(served.urls[1], timeout=5.0) as port:
        port.write(bytes([128, 148, 1, 7]))
        os.write(served.typed, b"\nlift 600\nlift up\ndance\nclean up now\n")
        drops = [
            port.read_until(bytes([19, 2, 7]))[-4:] and port.read(2)[0] & 12 for _ in range(200)
        ]
    assert drops[0] == 0
    assert drops[-1] == 12
    refused = [served.said.get(timeout=LIMIT_S) for _ in range(3)]
    assert [line.split(" is neither")[0] for line in refused] == [
        "'lift up'",
        "'dance'",
        "'clean up now'",
    ]
