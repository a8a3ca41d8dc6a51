"""The emulated Create 2 for hosts in other processes: `serve`, over TCP, through a real port and its guardian."""

from __future__ import annotations

import os

import pytest
import serial

from horde_env.robots.create2.wire import FRAME_SIZE, HEADER, PASSIVE, decode, is_sound
from tests.env.hardware.peers import LIMIT_S, Served, Serving

pytestmark = pytest.mark.hardware


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
        drops = [port.read_until(bytes([19, 2, 7]))[-4:] and port.read(2)[0] & 12 for _ in range(200)]
    assert drops[0] == 0
    assert drops[-1] == 12
    refused = [served.said.get(timeout=LIMIT_S) for _ in range(3)]
    assert [line.split(" is neither")[0] for line in refused] == ["'lift up'", "'dance'", "'clean up now'"]
