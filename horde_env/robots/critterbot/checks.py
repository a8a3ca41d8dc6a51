"""The Critterbot's part of `horde-robot`.

Its thresholds come from the real robot's log of October 2010: in each window of 3 s every channel
from acceleration to thermal had at least two values, even at rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from horde_env.backend import Floats
from horde_env.errors import BackendUnavailable, PortLost
from horde_env.hardware.checks import Line, RobotChecks, StepEvent, StopReport, Verdict
from horde_env.hardware.link import Dialect
from horde_env.hardware.port import Port
from horde_env.hardware.settings import PortConfig
from horde_env.hardware.stream import Reading
from horde_env.robot import RobotSpec, critterbot
from horde_env.robots.critterbot import body, wire
from horde_env.robots.critterbot.safety import LOW_BUS_V, Supervisor

# Below 14.5 V the dock charges even if charging is disabled
SOON_EMPTY_V = 14.5
DEAD_V = 8.0
UNBALANCED_V = 1.0
SWITCH_OFF = "No program has confirmed the emergency stop either: stop any other by its own means, or switch it off."


def judge_power(events: Sequence[StepEvent], spec: RobotSpec) -> Line:
    """Judge the bus and the batteries by their means."""
    mean = np.mean([event.values for event in events], axis=0)
    bus = float(mean[spec.index("bus_voltage")])
    batteries = mean[spec.group("battery_voltage")]
    text = f"bus {bus:.1f} V, batteries {' '.join(f'{v:.1f}' for v in batteries)} V"
    if bus < LOW_BUS_V or batteries.min() < DEAD_V:
        return Line(Verdict.FAIL, "power", f"{text}: too low to move; charge it")
    if bus < SOON_EMPTY_V:
        return Line(Verdict.WARN, "power", f"{text}: charge it soon")
    if np.ptp(batteries) > UNBALANCED_V:
        return Line(
            Verdict.WARN, "power", f"{text}: the batteries differ by {np.ptp(batteries):.1f} V"
        )
    return Line(Verdict.OK, "power", text)


def expected_wheels(request: Floats, spec: RobotSpec) -> Floats:
    """Return the rim speeds, m/s, counter-clockwise positive, shape (3,).

    Source: the firmware's integer matrix (lib_motor.c); the wire's y points right.
    """
    to_wheels = np.array(spec.drive["kinematics_1024"]) / 1024.0 * spec.drive["wheel_unit"]
    return np.asarray(to_wheels @ (np.asarray(request) / wire.UNITS))


# ---- the stop of horde-robot stop ------------------------------------------------------------------------------------

# Longest waits after the last bytes: for a packet, for motors without voltage (a ramp that
# continues as a duty takes 0.5 s), and for wheels at rest (0.6 s after an action); and the interval
# of checks.
ANSWER_S = 0.5
OFF_S = 0.7
SETTLE_S = 3.0
LOOK_S = 0.05
TYPED_S = 0.05  # the robot's console reads one line in 10 ms


def send_stop(
    config: PortConfig,
    backend: str,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    **connect: Any,
) -> StopReport:
    """Stop the robot, and report what the motors and the wheels do when they are at rest, or after 3 s.

    The stop is sent before anything is read, so it reaches a robot that cannot answer. Velocity 0
    brakes; duty 0, after that ramp, also stops a robot that was left in WHEEL_VOLTAGE (`wire`). If
    the robot still drives or is silent, it may be driving to its dock or be at its console: over a
    serial line it is then sent to the console, its docking is stopped, its packets are started, and
    the stop is sent again.
    """
    if backend == "drops":
        dialect = body.DROPS
    else:
        dialect = body.SERIAL
    connect["packet_period_s"] = critterbot().packet_period_s
    try:
        with Port(config, monotonic, parser=dialect.parser(), fill=dialect.fill, **connect) as port:
            reading = _stop(port, dialect, monotonic, sleep)
            if dialect.wake and (reading is None or _is_driven(reading)):
                port.write(dialect.encode(wire.LEAVE))
                sleep(dialect.alone_s)
                port.write(dialect.wake)
                sleep(TYPED_S)
                reading = _stop(port, dialect, monotonic, sleep)
    except (BackendUnavailable, PortLost) as error:
        return StopReport(None, f"nothing was sent to the robot: {error} {SWITCH_OFF}")
    sent = f"a stop was sent to {config.url}"
    if reading is None:
        return StopReport(
            None,
            f"{sent}, but nothing answers there, not even a robot at its console. {SWITCH_OFF}",
        )
    if _is_driven(reading):
        return StopReport(False, f"{sent}, but its motors are still driven: switch the robot off")
    wheel_state = "its motors are off, but a wheel still turns"
    if dialect.is_at_rest(reading):
        wheel_state = "its wheels are at rest"
    return StopReport(True, f"{sent}; the robot answers, and {wheel_state}")


def _stop(
    port: Port, dialect: Dialect, monotonic: Callable[[], float], sleep: Callable[[float], None]
) -> Reading | None:
    """Send the stop; return the robot's reading at rest, or its last one; None without one."""
    port.write(dialect.fill + dialect.encode(wire.HALT))
    sleep(dialect.alone_s)
    port.write(dialect.encode(wire.HALT))
    sleep(wire.RAMP_S)
    port.write(dialect.encode(wire.COAST))
    sent_t = monotonic()
    while True:
        sleep(LOOK_S)
        reading = port.newest()
        waited_s = monotonic() - sent_t
        if reading is None:
            limit_s = ANSWER_S
        elif _is_driven(reading):
            limit_s = OFF_S
        elif dialect.is_at_rest(reading):
            limit_s = 0.0
        else:
            limit_s = SETTLE_S
        if waited_s >= limit_s:
            return reading


def _is_driven(reading: Reading) -> bool:
    """Return whether a motor has a voltage."""
    return bool(reading.state.raw[critterbot().group("motor_voltage")].any())


CHECKS = RobotChecks(
    wheels="motor_velocity",
    motors=("motor_voltage", "motor_current"),
    # Their noise must show, or a channel is not connected or its sensor hangs. But infrared may
    # receive nothing at all, and a driver's drops have too few bits left for its noise.
    lively=(
        "acceleration",
        "magnetic",
        "rotational_velocity",
        "ir_distance",
        "ir_light",
        "light",
        "thermal",
    ),
    may_rest=("ir_distance", "ir_light"),
    voltages=("bus_voltage", "battery_voltage"),
    expected_wheels=expected_wheels,
    judge_power=judge_power,
    supervisor=Supervisor,
    send_stop=send_stop,
)
