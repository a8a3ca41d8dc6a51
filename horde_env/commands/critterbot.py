"""What `horde-robot check` must know of the Critterbot.

Its thresholds are those of the real robot's log of October 2010: in each of its windows of 3 s every channel from
acceleration to thermal took at least two values, at rest too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from horde_env.backend import Floats
from horde_env.commands.anatomy import Anatomy, Line, Moment, Verdict
from horde_env.robot import RobotSpec
from horde_env.robots.critterbot.safety import LOW_BUS_V, Supervisor

# Groups that must flicker at rest, for they are noisy; a channel that does not is not connected, or its sensor hangs.
# But infrared may see nothing at all, and a driver's drops have too few bits left for its noise.
MAY_REST = ("ir_distance", "ir_light")
LIVELY = ("acceleration", "magnetic", "rotational_velocity", "ir_distance", "ir_light", "light", "thermal")
SOON_EMPTY_V, DEAD_V, UNBALANCED_V = 14.5, 8.0, 1.0  # below 14.5 V the dock charges even where charging is disabled


def judge_power(moments: Sequence[Moment], spec: RobotSpec) -> Line:
    """Judge the bus and the batteries by their means."""
    mean = np.mean([moment.values for moment in moments], axis=0)
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
    drive = spec.drive
    unit = drive["translation_unit"]
    wire = np.asarray(request) / np.array([unit, -unit, drive["rotation_unit"]])
    return np.asarray(np.array(drive["kinematics_1024"]) / 1024.0 @ wire * drive["wheel_unit"])


CRITTERBOT = Anatomy(
    wheels="motor_velocity",
    motors=("motor_voltage", "motor_current"),
    lively=LIVELY,
    may_rest=MAY_REST,
    voltages=("bus_voltage", "battery_voltage"),
    expected_wheels=expected_wheels,
    judge_power=judge_power,
    supervisor=Supervisor,
)
