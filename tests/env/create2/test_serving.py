"""The emulated Create 2 for hosts in other processes: `serve`, over TCP, through a real port and its guardian."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator

import pytest
import serial

from horde_env.commands.serving import serve
from horde_env.make import make_create_serial_env
from horde_env.robots.create2.wire import FRAME_SIZE, HEADER, PASSIVE, SAFE, decode, is_sound

pytestmark = pytest.mark.hardware
SAY_WITHIN_S = 30.0


@pytest.fixture
def url() -> Iterator[str]:
    """Where an emulated robot is served over TCP."""
    said: queue.Queue[str] = queue.Queue()
    stop = threading.Event()
    settings = {"kind": "create2", "tcp": "127.0.0.1:0", "seed": 1, "say": said.put, "stop": stop}
    server = threading.Thread(target=serve, kwargs=settings)
    server.start()
    try:
        lines = [said.get(timeout=SAY_WITHIN_S) for _ in range(2)]
        yield lines[1].split()[1]
    finally:
        stop.set()
        server.join()


def test_frames_come_over_tcp_as_over_a_serial_line(url: str) -> None:
    """START, then a stream: 84 bytes, 64 times a second, in Passive; after SAFE they tell that."""
    assert url.startswith("socket://127.0.0.1:")
    with serial.serial_for_url(url, timeout=5.0) as port:
        port.write(bytes([128, 148, 1, 100]))
        port.read_until(HEADER)
        began = time.monotonic()
        frames = [HEADER + port.read(FRAME_SIZE - len(HEADER))] + [port.read(FRAME_SIZE) for _ in range(31)]
        assert 0.4 < time.monotonic() - began < 5.0
        assert all(is_sound(frame) for frame in frames)
        assert decode(frames[-1][3:-1]).mode == PASSIVE
        port.write(bytes([131]))
        frames = [port.read(FRAME_SIZE) for _ in range(32)]
        assert decode(frames[-1][3:-1]).mode == SAFE


@pytest.mark.usefixtures("own_folders")
def test_a_life_drives_a_served_robot_through_its_guardian(url: str) -> None:
    """Within ten seconds, on a machine however busy, it turns clockwise at 1.4 rad/s and says so."""
    env = make_create_serial_env(port=url)
    turning = env.robot.index("rotational_velocity")
    try:
        env.reset(seed=0, options={"manoeuvre": "stay"})
        told = []
        for _ in range(100):
            info = env.step(2)[4]
            assert env.frame is not None
            told.append((env.frame.values[turning], info["applied"]))
            if told[-1][0] < -1.2 and info["applied"]:
                break
        assert told[-1] == (pytest.approx(-1.43, abs=0.1), 1)
    finally:
        env.close()
