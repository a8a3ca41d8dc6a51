"""How a connection to the robot begins: whatever state it was left in, it stands still and talks when this is over.

Everything here is a generator that yields where time must pass, so that the same steps serve a first connection, which
is waited for, and a reconnection, which goes on beside a life that keeps its deadlines.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from horde_env.errors import BackendUnavailable, PortLost
from horde_env.hardware import diagnosis
from horde_env.hardware.control import COAST, HALT, Control, MotorMode
from horde_env.hardware.dialect import Dialect, is_original_simulator
from horde_env.hardware.port import Port
from horde_env.hardware.stream import StreamParser

Steps = Generator[None, None, Port]
PATIENCE_S = 1.0  # for a robot that sent a packet and then no more

NO_CHARGING = Control(MotorMode.DISABLE_CHARGING)  # as after boot: a robot that charges does not move


def open_port(
    connect: Callable[[StreamParser], Port], dialect: Dialect, monotonic: Callable[[], float]
) -> Generator[None, None, Port]:
    """Connect, stop the motors, bring the robot to send its state, forbid charging; return the port with two readings.

    The first bytes complete whatever half packet an earlier program left. Duty 0 and then, in a later cycle, velocity
    0 end even the runaway of a robot that was left in WHEEL_VOLTAGE (lib_motor.c, motor_set_speed_slew).

    Raises:
        BackendUnavailable: If there is no robot, with what is there instead. The port is closed.
    """
    parser = dialect.parser()
    port = connect(parser)
    try:
        port.write(dialect.fill + dialect.encode(COAST))
        yield from port.rouse(wake=dialect.wake)
        controls = [COAST, HALT] if is_original_simulator(parser) else [COAST, HALT, NO_CHARGING]
        for control in controls:
            port.write(dialect.encode(control))
            yield from pause(dialect.alone_s, monotonic)
        limit = monotonic() + PATIENCE_S
        while port.wait(1, 0.0) is None:
            if monotonic() > limit:
                raise BackendUnavailable(f"{port.config.url} sent one packet and then none for {PATIENCE_S:g} s.")
            yield
    except PortLost as lost:
        port.close()
        raise BackendUnavailable(diagnosis.explain_parting(port.config.url, lost.reason)) from lost
    except BaseException:
        port.close()
        raise
    return port


def pause(duration_s: float, monotonic: Callable[[], float]) -> Generator[None, None, None]:
    """Yield until `duration_s` has passed."""
    end = monotonic() + duration_s
    while monotonic() < end:
        yield
