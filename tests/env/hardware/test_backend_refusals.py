"""What cannot be opened: one sentence each, and no motor was started."""

from __future__ import annotations

import socket
import threading
from typing import Any

import gymnasium
import numpy as np
import pytest

import horde_env
from horde_env.clock import SimulatedClock
from horde_env.errors import BackendUnavailable, EmergencyStop
from horde_env.hardware.backend import PhysicalBody
from horde_env.hardware.latch import EmergencyLatch
from horde_env.hardware.settings import PortConfig
from horde_env.robots.critterbot.body import SerialBody
from tests.env.hardware.virtual import VirtualRobot, serial_body

pytestmark = [pytest.mark.hardware, pytest.mark.usefixtures("own_folders")]

RNG = np.random.default_rng(0)


def test_a_port_in_use(robot: VirtualRobot) -> None:
    """A second program drives the robot already and is not disturbed."""
    first = serial_body(robot)
    second = serial_body(robot)
    first.reset(RNG)
    n = len(robot.received)
    with pytest.raises(BackendUnavailable, match="is in use by another program"):
        second.reset(RNG)
    assert not first.exchange(np.zeros(3)).stale
    assert len(robot.received) - n == 1  # this command alone
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("instead", "sentence"),
    [
        (b"", r"nothing comes from .*, not even after `mi on`\. Is the robot switched on"),
        (b"ok T:21.3 /0.0\n", r"is not the robot: it sends 'ok T:21\.3"),
        (
            b"\x9e\x13\xf8\x86\x00\x66",
            r"bytes came from .* but no packet, .* Wrong baud rate or parity, or not the",
        ),
        (b"\xde\xad\xbe\xef" + bytes(range(79)), r"the checksum of each was wrong"),
        (
            b"\x10\x00\x00\x00CritterStateDrop",
            r"sends drops, not the bytes .*: use the drops backend",
        ),
        (b"\rcritterprompt> ", r"the robot's console answers at .* reset the robot"),
    ],
    ids=["silence", "printer", "noise", "bad checksum", "drops", "console"],
)
def test_what_is_not_a_robot(robot: VirtualRobot, instead: bytes, sentence: str) -> None:
    robot.spoil = lambda _: instead
    body = serial_body(robot)
    with pytest.raises(BackendUnavailable, match=sentence):
        body.reset(RNG)
    assert not robot.end.port.is_open
    assert all(speeds == (0, 0, 0) for _, speeds in robot.speeds)
    body.close()


def test_no_driver_at_that_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    env = gymnasium.make("horde_env:CritterbotDrops-v0", port=f"127.0.0.1:{free}")
    with pytest.raises(
        BackendUnavailable, match=rf"socket://127.0.0.1:{free} cannot be opened: .*refused"
    ):
        env.reset()
    env.close()


@pytest.mark.parametrize("make", [horde_env.make_serial_env, horde_env.make_drops_env])
def test_a_second_client_where_one_is_served(make: Any) -> None:
    """The server takes the connection and ends it at once."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        env = make(port=f"socket://127.0.0.1:{server.getsockname()[1]}")
        served = threading.Thread(target=lambda: server.accept()[0].close())
        served.start()
        with pytest.raises(
            BackendUnavailable,
            match=r"closed the connection.*another program",
        ):
            env.reset()
        served.join()
        env.close()


def test_a_robot_that_was_stopped_is_not_even_opened(robot: VirtualRobot) -> None:
    """The environment looks at the robot's own latch unless it is given another."""
    EmergencyLatch().set("smoke")
    env = horde_env.make_serial_env(port=robot.url, parity="none")
    with pytest.raises(EmergencyStop, match="smoke"):
        env.reset()
    env.close()
    robot.sleep(0.1)
    assert robot.received == []


@pytest.mark.parametrize("part", ["kind", "dialect", "make_supervisor"])
def test_a_robot_of_which_something_is_left_out_is_refused_before_any_port_is_opened(
    part: str,
) -> None:
    """Not in mid-life, where it would be missed at the first frame, with the motors on."""
    adds = {
        name: getattr(SerialBody, name)
        for name in ("kind", "dialect", "make_supervisor")
        if name != part
    }
    incomplete = type("Incomplete", (PhysicalBody,), adds)
    with pytest.raises(AttributeError, match=f"no attribute '{part}'"):
        incomplete(
            PortConfig("/dev/nowhere"),
            SimulatedClock(),
            connect=lambda *_, **__: pytest.fail("opened"),
        ).reset(np.random.default_rng(0))
