"""The project's own words of stopping stop the robot's own programs from any state that bytes can bring them into."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import serial

from horde_env.hardware.link import Dialect, KeepAlive, Link
from horde_env.hardware.settings import LinkSettings, PortConfig
from horde_env.hardware.stream import Counts
from horde_env.robots.critterbot.body import DROPS, SERIAL
from horde_env.robots.critterbot.checks import send_stop
from horde_env.robots.critterbot.emulator.microcontroller import Receiver
from horde_env.robots.critterbot.simulator import firmware as fw
from horde_env.robots.critterbot.simulator.firmware import Firmware
from horde_env.robots.critterbot.wire import (
    COAST,
    HALT,
    LED_CUSTOM,
    LEDS_SIZE,
    RAMP_S,
    Control,
    encode_control,
)
from tests.env.hardware.packets import SPEC

pytestmark = pytest.mark.hardware

CYCLE_S = 0.01
BUS = 165
# Cycles after the words began: the longest ramp is 1 s, the last word comes after 0.4 s
WATCHED = 400
STILL_FROM = 150
Words = dict[int, bytes]  # what arrives, by the cycle in which it does


class Bare:
    """The robot's programs without a body: wheels that follow their duty slowly, or that something holds."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.receiver = Receiver()
        self.firmware = Firmware(np.array(SPEC.drive["kinematics_1024"]))
        self.firmware.wheels[fw.TEMPERATURE] = 128
        self.firmware.wheels[fw.CAP] = 94
        self._free = rng.random(3) < 0.7
        self._speed = np.zeros(3)

    def cycle(self, data: bytes = b"") -> None:
        wheels = self.firmware.wheels
        self.firmware.cycle(BUS, False)
        self._speed += 0.1 * (1.1 * wheels[fw.DUTY] * self._free - self._speed)
        wheels[fw.CLICKS] = 4 * self._speed
        wheels[fw.CURRENT] = 0.75 * np.abs(wheels[fw.DUTY] - 0.9 * self._speed)
        self.receiver.receive(data)
        for control in self.receiver.controls()[-1:]:
            self.firmware.command(*control[:4])

    def is_driven(self) -> bool:
        return bool(self.firmware.wheels[fw.SETPOINT].any() or self.firmware.wheels[fw.DUTY].any())


def anything(rng: np.random.Generator) -> bytes:
    """Return what a host, another program or a bad line may send: whole packets of any kind, pieces, noise."""
    mode = int(rng.choice([0, 1, 1, 2, 3, 77, 0x68, 0x69, 0x6E, rng.integers(256)]))
    leds = int(rng.choice([0, 1, LED_CUSTOM]))
    if rng.random() < 0.8:
        numbers = [int(v) for v in rng.integers(-128, 128, 3)]
    else:
        numbers = [0, 0, 0]
    packet = encode_control(Control(mode, *numbers, leds)) + (
        rng.bytes(LEDS_SIZE) if leds == LED_CUSTOM else b""
    )
    kind = rng.random()
    if kind < 0.7:
        return packet
    if kind < 0.85:
        return packet[: rng.integers(len(packet))]
    return packet[:4] + rng.bytes(int(rng.integers(60)))


def some_state(seed: int) -> Bare:
    """Return a robot after random commands, perhaps in a ramp or in the middle of a packet."""
    rng = np.random.default_rng(seed)
    robot = Bare(rng)
    for _ in range(rng.integers(1, 8)):
        robot.cycle(anything(rng))
        for _ in range(rng.integers(0, 30)):
            robot.cycle()
    return robot


def runs_on(robot: Bare, words: Words) -> bool:
    """Return whether the robot is still driven when the packets should have stopped it."""
    driven = []
    for k in range(WATCHED):
        robot.cycle(words.get(k, b""))
        driven.append(robot.is_driven())
    return any(driven[STILL_FROM:])


# ---- the words, as the project's own code says them ------------------------------------------------------------------


class Mouth:
    """A port that records writes and their times."""

    lost = ""
    counts = Counts()
    config = PortConfig("nowhere")
    in_waiting = 0

    def __init__(self) -> None:
        self.t = 0.0
        self.said = Words()

    def write(self, data: bytes) -> None:
        k = round(self.t / CYCLE_S)
        self.said[k] = self.said.get(k, b"") + data

    def monotonic(self) -> float:
        return self.t

    def sleep(self, seconds: float) -> None:
        self.t += seconds

    def read(self, n: int) -> bytes:
        return b""

    def close(self) -> None: ...


def closing_a_link() -> Words:
    mouth = Mouth()
    link = Link(
        lambda parser: mouth, SERIAL, LinkSettings(threaded=False), mouth.monotonic, mouth.sleep
    )
    link.attach(mouth)  # type: ignore[arg-type]
    link.command(Control(1, 20))
    mouth.said.clear()
    link.close()
    return mouth.said


def horde_robot_stop() -> Words:
    mouth = Mouth()
    config = PortConfig("nowhere", parity="none")
    send_stop(config, "serial", mouth.monotonic, mouth.sleep, connect=lambda *_, **__: mouth)
    return mouth.said


def a_lapse_of_the_keep_alive() -> Words:
    mouth = Mouth()
    keep = KeepAlive(
        encode_control(HALT), encode_control(COAST), 0.05, 0.35, mouth.monotonic, RAMP_S
    )
    keep.renew(b"forward")
    mouth.t = 0.36
    while mouth.t < 0.36 + CYCLE_S * WATCHED:
        data = keep.due()
        if data:
            mouth.write(data)
        mouth.t += CYCLE_S
    return {k - 36: data for k, data in mouth.said.items()}


SAID: dict[str, Callable[[], Words]] = {
    "closing a link": closing_a_link,
    "horde-robot stop": horde_robot_stop,
    "a lapse of the keep-alive": a_lapse_of_the_keep_alive,
}
N_STATES = [120, pytest.param(4_000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("n", N_STATES)
@pytest.mark.parametrize("words", SAID)
def test_no_state_goes_on_after_the_projects_words(words: str, n: int) -> None:
    """No setpoint and no motion from 1.5 s after the first packet on, which is 1.1 s after the last one."""
    schedule = SAID[words]()
    assert [seed for seed in range(n) if runs_on(some_state(seed), schedule)] == []


def test_the_states_are_hard_enough_to_show_a_difference() -> None:
    """Velocity 0 alone leaves a twentieth of them running: after duties the ramp's target is 0 already."""
    halts: Words = {k: encode_control(HALT) for k in range(0, WATCHED, 5)}
    n_running = sum(runs_on(some_state(seed), halts) for seed in range(120))
    assert 2 <= n_running <= 20
    assert sum(some_state(seed).is_driven() for seed in range(120)) > 50


def test_without_what_completes_a_half_packet_the_last_words_are_colours() -> None:
    """A robot that waits for 48 bytes takes HALT, HALT, COAST for 27 of them, and drives on until its own timeout."""

    def waiting() -> Bare:
        robot = Bare(np.random.default_rng(0))
        robot.cycle(encode_control(Control(0, 20, 20, 20, LED_CUSTOM)))
        return robot

    def driven_for(words: Words) -> int:
        robot = waiting()
        driven = [0]
        for k in range(WATCHED):
            robot.cycle(words.get(k, b""))
            driven += [k] * bool(robot.firmware.wheels[fw.SETPOINT].any())
        return driven[-1]

    schedule = closing_a_link()
    assert driven_for(schedule) <= 3
    assert driven_for({k: data.lstrip(b"\0") for k, data in schedule.items()}) > 60


def test_a_stop_brakes_while_its_ramp_lasts_and_is_duty_0_from_then_on() -> None:
    """Repeating a stop at 10 Hz, as a policy that stands still does, does not restart its ramp; a command ends it."""
    mouth = Mouth()
    halt = encode_control(HALT)
    coast = encode_control(COAST)
    sent = dict[int, bytes]()
    keep = KeepAlive(
        halt, coast, repeat_s=3 / 64, hold_s=22 / 64, monotonic=mouth.monotonic, ramp_s=RAMP_S
    )
    keep.renew(b"forward")
    mouth.t = 1.0
    keep.renew(halt)
    for i in range(64, 128):
        mouth.t = i / 64
        if i % 6 == 4:
            keep.renew(halt)
        data = keep.due()
        if data:
            sent[i] = data
    assert {data for i, data in sent.items() if i / 64 < 1.0 + RAMP_S} == {halt}
    assert {data for i, data in sent.items() if i / 64 > 1.0 + RAMP_S} == {coast}
    keep.renew(b"forward")
    keep.renew(halt)
    mouth.t += 3 / 64
    assert keep.due() == halt
    mouth.t += 10.0
    assert (keep.due(), keep.due()) == (coast, b"")
    assert not keep.lapsed, "only a command becomes too old"


class Stalling(Mouth):
    """A port that has no room for the first write."""

    def write(self, data: bytes) -> None:
        super().write(data)
        if len(self.said) == 1 and self.said[0] == data:
            raise serial.SerialTimeoutException


@pytest.mark.parametrize(("backend", "dialect"), [("serial", SERIAL), ("drops", DROPS)])
def test_after_a_write_that_stalled_a_stop_is_filled_up_as_its_dialect_says(
    backend: str, dialect: Dialect
) -> None:
    """Zeros between two drops would be no drop's beginning: the driver would lose its place."""
    mouth = Stalling()
    config = PortConfig("nowhere", parity="none")
    send_stop(config, backend, mouth.monotonic, mouth.sleep, connect=lambda *_, **__: mouth)
    stop = dialect.fill + dialect.encode(HALT)
    assert mouth.said[0] == stop + dialect.fill + stop
