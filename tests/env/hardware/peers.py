"""The other end of a port: a clock, a pseudo terminal, and waiting for readings."""

from __future__ import annotations

import os
import queue
import time
import tty
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

from horde_env.hardware.port import Port
from horde_env.hardware.settings import PortConfig
from horde_env.hardware.stream import Reading
from horde_env.robots.critterbot.body import start_packets
from horde_env.robots.critterbot.stream import StateParser
from horde_env.robots.critterbot.wire import FILL

LIMIT_S = 10.0  # for what takes milliseconds: reached only by a test that fails


def ticks() -> Callable[[], float]:
    """Return a clock that advances by 10 ms at each reading."""
    return (0.01 * n for n in count(1)).__next__


class Terminal:
    """A pseudo terminal: the test holds the robot's end."""

    def __init__(self) -> None:
        self.robot, self._ours = os.openpty()
        tty.setraw(self._ours)
        self.path = os.ttyname(self._ours)

    def say(self, data: bytes) -> None:
        os.write(self.robot, data)

    def hear(self, n: int) -> bytes:
        """Wait for the next `n` bytes to the robot."""
        data = b""
        while len(data) < n:
            data += os.read(self.robot, n - len(data))
        return data

    def unplug(self) -> None:
        for end in ("robot", "_ours"):
            descriptor = getattr(self, end)
            _ = setattr(self, end, -1)
            if descriptor >= 0:
                os.close(descriptor)


def config(url: str, **rest: object) -> PortConfig:
    return PortConfig(url, parity="none", **rest)  # type: ignore[arg-type]


def open_port(where: PortConfig, monotonic: Callable[[], float], **rest: Any) -> Port:
    usual = {"parser": StateParser(), "fill": FILL, "packet_period_s": 0.01}
    return Port(where, monotonic, **usual | rest)


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def until(condition: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
    """Return the condition's value as soon as it is true; fail after a while."""
    end = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.002)
    return value


def await_reading(p: Port, number: int) -> Reading:
    reading: Reading = until(lambda: p.newest(number - 1))
    return reading


def handshake(p: Port, **rest: Any) -> Reading:
    """Wait for a robot to be roused, and return a first reading."""
    for _ in start_packets(p, time.monotonic, **rest):
        time.sleep(0.002)
    return p.readings()[0]


class Served(NamedTuple):
    """A robot of `horde-robot emulate`: its addresses, further output, where faults are typed, and how it is ended."""

    urls: list[str]
    said: queue.Queue[str]
    typed: int
    end: Callable[[], dict[str, int]]


Serving = Callable[..., Served]  # of the fixture `serving`
