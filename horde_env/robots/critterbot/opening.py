"""How a connection to the robot begins: whatever state it was left in, it stands still and talks when this is over.

Source: the Critterbot's firmware (lib_ui.c, lib_mi.c) and its host tool arm_mi.c for the way out of the console.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from horde_env.errors import BackendUnavailable, PortLost
from horde_env.hardware.dialect import Dialect
from horde_env.hardware.opening import Steps, pause
from horde_env.hardware.port import Port
from horde_env.hardware.readings import Reading
from horde_env.hardware.stream import StreamParser
from horde_env.robots.critterbot import diagnosis
from horde_env.robots.critterbot.commands import COAST, HALT, WAKE, Control, MotorMode
from horde_env.robots.critterbot.drops import is_original_simulator

PATIENCE_S = 1.0  # for a robot that sent a packet and then no more
NO_CHARGING = Control(MotorMode.DISABLE_CHARGING)  # as after boot: a robot that charges does not move


def open_critterbot(connect: Callable[[StreamParser], Port], dialect: Dialect, monotonic: Callable[[], float]) -> Steps:
    """Connect, stop the motors, bring the robot to send its state, forbid charging; return the port with two readings.

    The first bytes complete whatever half packet an earlier program left. Velocity 0 brakes; duty 0, in a later cycle,
    ends even the runaway of a robot that was left in WHEEL_VOLTAGE; velocity 0 again leaves it in the mode in which it
    is driven. Duty 0 does not come first, for from there a ramp to velocity 0 has no steps, by which the firmware
    would divide (lib_motor.c, motor_set_speed_slew).

    Raises:
        BackendUnavailable: If there is no robot, with what is there instead. The port is closed.
    """
    parser = dialect.parser()
    port = connect(parser)
    try:
        port.write(dialect.fill + dialect.encode(HALT))
        yield from pause(dialect.alone_s, monotonic)
        port.write(dialect.encode(COAST))
        yield from rouse(port, monotonic, wake=dialect.wake)
        yield from pause(dialect.alone_s, monotonic)
        for control in [HALT] if is_original_simulator(parser) else [HALT, NO_CHARGING]:
            port.write(dialect.encode(control))
            yield from pause(dialect.alone_s, monotonic)
        limit = monotonic() + PATIENCE_S
        while port.wait(1, 0.0) is None:
            if monotonic() > limit:
                raise BackendUnavailable(f"{port.config.url} sent one packet and then none for {PATIENCE_S:g} s.")
            yield
    except PortLost as lost:
        port.close()
        raise BackendUnavailable(_parted(port, lost, dialect.wake)) from lost
    except BaseException:
        port.close()
        raise
    return port


def rouse(
    port: Port,
    monotonic: Callable[[], float],
    *,
    wake: bytes = WAKE,
    listen_s: float = 0.1,
    patience_s: float = 1.0,
) -> Generator[None, None, Reading]:
    """Bring the robot to send its state, whatever mode it is in; yield where time must pass, return a reading.

    After a reset the robot's microcontroller shows a text console and sends no packets. So: listen first; if none
    comes, type `wake` at the console, three times at most. Nothing here moves a motor.

    Args:
        port: Where the robot is.
        monotonic: The time in seconds.
        wake: What starts the packets; empty for a peer that sends them unasked (drops).
        listen_s: How long to listen first, in seconds; the robot sends a packet every 10 ms.
        patience_s: How long to wait for a packet after each waking, in seconds.

    Raises:
        BackendUnavailable: If no packet came, with what came instead. The port is closed.
    """
    try:
        for word, limit_s in [(b"", listen_s), *[(wake, patience_s)] * 3]:
            if word:
                port.write(word)
            end = monotonic() + limit_s
            while (reading := port.wait(0, 0.0)) is None and monotonic() < end:
                yield
            if reading is not None:
                return reading
    except PortLost as lost:
        port.close()
        raise BackendUnavailable(_parted(port, lost, wake)) from lost
    port.close()
    raise BackendUnavailable(diagnosis.explain_silence(port.config, port.heard, port.counts, bool(wake)))


def _parted(port: Port, lost: PortLost, wake: bytes) -> str:
    return diagnosis.explain_parting(port.config, port.heard, lost.reason, bool(wake))
