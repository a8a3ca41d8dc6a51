"""The watchdog stops the robot whatever becomes of its life."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from horde_env.robots.create2.emulator.emulator import CreateEmulator
from horde_env.robots.create2.watchdog import START, STOP, WAKE_AGAIN_S, GuardedPort, Watch, is_set
from horde_env.robots.create2.wire import PASSIVE, SAFE
from tests.env.hardware.peers import until

pytestmark = pytest.mark.hardware
FORWARD = bytes.fromhex("80 83 00 00 00 00 91 00 c7 00 c7")
LIFE = """
import sys, time
from horde_env.robots.create2.watchdog import GuardedPort
port = GuardedPort(sys.argv[1], baudrate=115200, timeout=0.05)
print(port.process.pid, flush=True)
port.write(bytes([128, 131]))
while True:
    port.write(bytes.fromhex("00 00 00 00 91 00 c7 00 c7"))
    time.sleep(0.05)
"""


def test_a_silent_life_is_stopped_twice_and_let_go_of_after_five_seconds() -> None:
    """At 0.3 s two stops 20 ms apart, nothing more until 5 s, and bytes pass again as soon as the program sends any."""
    watch = Watch()
    assert watch.due(100.0) == b""  # a life that has not begun is not silent
    assert watch.take(b"abc", 0.0) == b"abc"
    schedule = [(t, watch.due(t)) for t in (0.29, 0.31, 0.32, 0.34, 0.35, 4.9, 5.0, 9.0)]
    assert schedule == [
        (0.29, b""), (0.31, STOP), (0.32, b""), (0.34, STOP), (0.35, b""), (4.9, b""), (5.0, STOP + START), (9.0, b""),
    ]  # fmt: skip
    assert watch.take(b"on", 9.1) == b"on"
    assert [watch.due(t) for t in (9.3, 9.45)] == [b"", STOP]


def test_nothing_of_the_life_passes_an_emergency_stop() -> None:
    watch = Watch()
    watch.take(FORWARD, 0.0)
    assert watch.bar(True, 0.05) == STOP
    assert watch.take(FORWARD, 0.06) == b""
    assert watch.due(0.08) == STOP
    assert (watch.bar(False, 0.2), watch.take(FORWARD, 0.25)) == (b"", FORWARD)


def test_an_emergency_stop_that_is_cleared_while_the_program_is_silent_sends_nothing() -> None:
    """The robot stands already. It is let go at 5 s of silence; then the program's next bytes pass.

    A watch that forgets the stop when it is cleared would send another one at 1.05 s.
    """
    watch = Watch()
    watch.take(FORWARD, 0.0)
    assert watch.bar(True, 0.05) == STOP
    assert watch.due(0.08) == STOP
    assert watch.bar(False, 1.0) == b""
    assert [watch.due(t) for t in (1.05, 1.1, 4.9, 5.0, 9.0)] == [b"", b"", b"", STOP + START, b""]
    assert watch.take(FORWARD, 9.5) == FORWARD
    assert [watch.due(t) for t in (9.7, 9.85, 9.88)] == [b"", STOP, STOP]


def test_an_emergency_file_that_cannot_be_looked_at_counts_as_set(tmp_path: Path) -> None:
    """Its folder may be unreadable, or, as here, no folder; only a file that is not there lets the life drive."""
    file = tmp_path / "robot.stop"
    assert not is_set(str(file))
    file.touch()
    assert is_set(str(file))
    assert is_set(str(file / "below a file"))


def test_a_silent_robot_is_woken_once_in_half_a_minute() -> None:
    """Asleep from 10 s on: woken at 30 s after the opening, then each 30 s. One that sends frames is not woken."""
    watch = Watch()
    watch.robot_sent(100.0)
    watch.robot_sent(110.0)
    assert [t for t in range(100, 200) if watch.must_wake(float(t))] == [131, 162, 193]
    watch.robot_sent(200.0)
    assert not watch.must_wake(201.0)
    assert watch.must_wake(200.0 + WAKE_AGAIN_S)


Guarded = tuple[CreateEmulator, str, GuardedPort]


@pytest.fixture
def guarded(robot: tuple[CreateEmulator, str]) -> Iterator[Guarded]:
    port = GuardedPort(robot[1], baudrate=115200, timeout=0.05)
    yield *robot, port
    port.close()


@pytest.mark.parametrize("victim", ["life", "life is stopped", "watchdog by a signal"])
def test_wheels_stop_within_0_6_s_of_every_loss_of_the_learner(
    victim: str, robot: tuple[CreateEmulator, str]
) -> None:
    """SIGKILL of the life, a life that hangs (SIGSTOP), SIGTERM of the watchdog: 0.3 s of silence and a tick."""
    emulator, url = robot
    life = subprocess.Popen([sys.executable, "-c", LIFE, url], stdout=subprocess.PIPE, text=True)
    try:
        watchdog = int(life.stdout.readline())
        firmware = emulator.robot
        until(lambda: firmware.is_driven, 5.0)
        if victim == "watchdog by a signal":
            os.kill(watchdog, signal.SIGTERM)
        else:
            os.kill(life.pid, signal.SIGKILL if victim == "life" else signal.SIGSTOP)
        until(lambda: not firmware.is_driven, 0.6)
        if victim == "life is stopped":  # a hiccup costs no change of mode
            assert firmware.mode == SAFE
        else:
            until(lambda: firmware.mode == PASSIVE, 1.0)
    finally:
        life.kill()
        life.wait()
        life.stdout.close()
    until(lambda: _is_dead(watchdog), 3.0)


def _is_dead(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
def test_a_life_says_the_stop_itself_when_its_watchdog_is_no_more(
    signum: int, guarded: Guarded
) -> None:
    """A killed watchdog is detected by the next read, a stopped one by `close`. The port is free afterwards."""
    emulator, url, port = guarded
    firmware = emulator.robot
    port.write(FORWARD)
    until(lambda: firmware.is_driven, 5.0)
    os.kill(port.process.pid, signum)
    if signum == signal.SIGKILL:
        with pytest.raises(OSError, match="watchdog was killed"):
            until(lambda: port.read(4096) is None, 5.0)
        until(lambda: not firmware.is_driven, 0.1)
    port.close()
    until(lambda: not firmware.is_driven, 0.1)
    GuardedPort(url, baudrate=115200, timeout=0.05).close()


def test_signals_to_the_lifes_terminal_do_not_reach_its_watchdog(guarded: Guarded) -> None:
    """Ctrl-C and Ctrl-Z go to each process of a session's foreground group; the watchdog leads a separate session."""
    pid = guarded[2].process.pid
    assert os.getsid(pid) == os.getpgid(pid) == pid != os.getsid(0)


def test_a_watchdog_ends_when_its_port_goes_away(guarded: Guarded) -> None:
    """A program that only reads gets the error too."""
    emulator, _, port = guarded
    emulator.inject("unplug", 60.0)
    with pytest.raises(OSError, match="the device disconnected"):
        until(lambda: port.read(4096) is None, 5.0)
    until(lambda: port.process.poll() is not None, 2.0)


def test_the_watchdog_is_small_and_knows_nothing_of_numpy(guarded: Guarded) -> None:
    """Less than 20 MB, whatever the life imports."""
    pid = guarded[2].process.pid
    assert psutil.Process(pid).memory_info().rss < 20e6
    maps = Path(f"/proc/{pid}/maps")
    assert not maps.exists() or "numpy" not in maps.read_text()


def test_a_port_in_use_is_refused(guarded: Guarded) -> None:
    with pytest.raises(BlockingIOError):
        GuardedPort(guarded[1], baudrate=115200, timeout=0.05)
