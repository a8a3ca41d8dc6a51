"""The Critterbot's part of `horde-robot`.

Its thresholds come from the real robot's log of October 2010: in each window of 3 s every channel from acceleration
to thermal had at least two values, even at rest.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from horde_env.backend import Floats
from horde_env.errors import BackendUnavailable, PortLost
from horde_env.hardware.checks import Line, RobotChecks, StepEvent, StopReport, Verdict
from horde_env.hardware.settings import PortConfig
from horde_env.robot import RobotSpec, critterbot
from horde_env.robots.critterbot import body
from horde_env.robots.critterbot.safety import LOW_BUS_V, Supervisor
from horde_env.robots.critterbot.wire import wire_units

SOON_EMPTY_V, DEAD_V, UNBALANCED_V = 14.5, 8.0, 1.0  # below 14.5 V the dock charges even if charging is disabled
SWITCH_OFF = "No program has confirmed the emergency stop either: stop any other by its own means, or switch it off."


def judge_power(events: Sequence[StepEvent], spec: RobotSpec) -> Line:
    """Judge the bus and the batteries by their means."""
    mean = np.mean([event.values for event in events], axis=0)
    bus, batteries = float(mean[spec.index("bus_voltage")]), mean[spec.group("battery_voltage")]
    text = f"bus {bus:.1f} V, batteries {' '.join(f'{v:.1f}' for v in batteries)} V"
    if bus < LOW_BUS_V or batteries.min() < DEAD_V:
        return Line(Verdict.FAIL, "power", f"{text}: too low to move; charge it")
    if bus < SOON_EMPTY_V:
        return Line(Verdict.WARN, "power", f"{text}: charge it soon")
    if np.ptp(batteries) > UNBALANCED_V:
        return Line(Verdict.WARN, "power", f"{text}: the batteries differ by {np.ptp(batteries):.1f} V")
    return Line(Verdict.OK, "power", text)


def expected_wheels(request: Floats, spec: RobotSpec) -> Floats:
    """Return the rim speeds, m/s, counter-clockwise positive, shape (3,).

    Source: the firmware's integer matrix (lib_motor.c); the wire's y points right.
    """
    to_wheels = np.array(spec.drive["kinematics_1024"]) / 1024.0 * spec.drive["wheel_unit"]
    return np.asarray(to_wheels @ (np.asarray(request) / wire_units(spec)))


def send_stop(config: PortConfig, backend: str) -> StopReport:
    """Send a stop, and report what the motors and the wheels then do."""
    spec, dialect = critterbot(), body.DROPS if backend == "drops" else body.SERIAL
    try:
        state = body.send_stop(config, dialect, time.monotonic, time.sleep)
    except (BackendUnavailable, PortLost) as error:
        return StopReport(None, f"nothing was sent to the robot: {error} {SWITCH_OFF}")
    sent = f"a stop was sent to {config.url}"
    if state is None:
        return StopReport(None, f"{sent}, but nothing answers there, not even a robot at its console. {SWITCH_OFF}")
    if body.is_driven(state, spec):
        return StopReport(False, f"{sent}, but its motors are still driven: switch the robot off")
    rest = "its motors are off, but a wheel still turns" if body.turns(state, spec) else "its wheels are at rest"
    return StopReport(True, f"{sent}; the robot answers, and {rest}")


CHECKS = RobotChecks(
    wheels="motor_velocity",
    motors=("motor_voltage", "motor_current"),
    # Their noise must show, or a channel is not connected or its sensor hangs. But infrared may receive nothing at all,
    # and a driver's drops have too few bits left for its noise.
    lively=("acceleration", "magnetic", "rotational_velocity", "ir_distance", "ir_light", "light", "thermal"),
    may_rest=("ir_distance", "ir_light"),
    voltages=("bus_voltage", "battery_voltage"),
    expected_wheels=expected_wheels,
    judge_power=judge_power,
    supervisor=Supervisor,
    send_stop=send_stop,
)
