"""What `horde-robot check` must know of the Create 2."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from horde_env.backend import Floats
from horde_env.commands.anatomy import Anatomy, Line, Moment, Verdict
from horde_env.robot import RobotSpec
from horde_env.robots.create2.body import SWAPPED
from horde_env.robots.create2.safety import LOW_V, CreateSupervisor

SOON_EMPTY_V = 14.0
CERTAIN = 0.5  # of a speed that was asked for


def judge_power(moments: Sequence[Moment], spec: RobotSpec) -> Line:
    """Judge the battery by its mean voltage; the charge that it tells is an estimate."""
    mean = np.mean([moment.values for moment in moments], axis=0)
    volts, charge = float(mean[spec.index("battery_voltage")]), float(mean[spec.index("battery_charge")])
    text = f"battery {volts:.1f} V, {charge:.2f} A h by its own estimate"
    if volts < LOW_V:
        return Line(Verdict.FAIL, "power", f"{text}: too low to move; put it on its dock")
    if volts < SOON_EMPTY_V:
        return Line(Verdict.WARN, "power", f"{text}: charge it soon")
    return Line(Verdict.OK, "power", text)


def expected_wheels(request: Floats, spec: RobotSpec) -> Floats:
    """Return the speeds of the left and the right wheel, m/s, forward positive."""
    half = 0.5 * float(spec.drive["wheel_base_m"]) * float(request[2])
    return np.array([request[0] - half, request[0] + half])


def explain(got: Floats, asked: Floats) -> str:
    """Say that the encoders are swapped, where a turn on the spot shows the other wheel's speed in each."""
    if asked[0] * asked[1] < 0.0 and (got * asked < -CERTAIN * asked**2).all():
        return SWAPPED
    return ""


# In a flat room cliffs, drops, brushes and dirt never change, and a light bumper far from everything reads 0.
CREATE2 = Anatomy(
    wheels="wheel_velocity",
    motors=("wheel_current",),
    lively=("battery_current", "light_bump", "cliff_signal"),
    may_rest=("light_bump",),
    voltages=("battery_voltage",),
    expected_wheels=expected_wheels,
    judge_power=judge_power,
    supervisor=CreateSupervisor,
    explain=explain,
)
