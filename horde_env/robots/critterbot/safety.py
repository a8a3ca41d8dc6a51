"""Supervisor: stops the robot for heat, bus voltage and charging. VoltageMonitor: detects ignored commands.

Each condition of the supervisor has two thresholds: crossing the first stops the robot, and only
reaching the second releases it, so a reading near a threshold does not start and stop it step by
step.

Source: thresholds of the robot's firmware of June 2011 (lib_monitor.c, the power and motor AVRs),
except the low bus voltage: the robot switches its computer off below 12.0 V, and this stops it
before.
"""

from __future__ import annotations

import numpy as np

from horde_env._jit import kernel
from horde_env.backend import Floats, Frame, Ints
from horde_env.commands import CommandMonitor
from horde_env.robot import RobotSpec
from horde_env.robots.critterbot.wire import UNITS

# Temperature readings are shares of 255, and LOWER is hotter: the robot does not drive below 65 of
# 255, and drives again when all three are at 85.
HOT_BELOW = 65 / 255
COOL_FROM = 85 / 255

# The bus rises by about 0.3 V when stalled motors are switched off: with a smaller margin each stop
# would end itself.
LOW_BUS_V = 12.5
RECOVERED_BUS_V = 13.5
# Above 18.5 V the motors have no supply
HIGH_BUS_V = 18.5
LOWERED_BUS_V = 18.3

ROUNDING = 1e-6  # 85 x (1 / 255) is not 85 / 255; the smallest unit of a reading is 0.004

UNPLUGGED = 0
COMPLETE = 11
FREE = (UNPLUGGED, COMPLETE)  # the charge states in which the robot can move
FIRST_FAULT = 200  # lowest charge state that is a charger's fault
SETTLE_S = 0.5  # the charge state must be free for this long, because contacts chatter


class Supervisor:
    """Decides from each frame whether the robot may move; see the module."""

    def __init__(self, spec: RobotSpec) -> None:
        self._temperatures = spec.group("motor_temperature")
        self._motors = [
            channel.name.rpartition("_")[2] for channel in spec.channels[self._temperatures]
        ]
        self._overheating = spec.index("overheating")
        self._bus = spec.index("bus_voltage")
        self._hot = self._low = self._high = self._charging = ""  # each a reason while it holds
        self._charging_t = 0.0

    def judge(self, values: Floats, charge_state: int, t: float) -> str:
        """Judge a frame (`Supervising.judge`); NaN counts as the worst reading.

        The robot moves only in the charge states 0, unplugged, and 11, complete. If `t` decreases
        (a new connection), `SETTLE_S` starts again.
        """
        readings = values[self._temperatures]
        is_flagged = not values[self._overheating] < 0.5
        if not is_flagged and (readings >= COOL_FROM - ROUNDING).all():
            self._hot = ""
        elif not self._hot and not (readings >= HOT_BELOW - ROUNDING).all():
            # Of NumPy's minimum NaN is the smallest
            hottest = int(readings.argmin())
            self._hot = (
                f"motor {self._motors[hottest]} is too hot: its reading is {255 * readings[hottest]:.0f} of 255, where "
                f"lower is hotter; the robot waits for {255 * COOL_FROM:.0f}"
            )
        elif not self._hot and is_flagged:
            self._hot = "the robot reports that its motors are too hot"

        bus_v = float(values[self._bus])
        voltage = f"bus voltage {bus_v:.1f} V"
        if bus_v >= RECOVERED_BUS_V - ROUNDING:
            self._low = ""
        elif not self._low and not bus_v >= LOW_BUS_V - ROUNDING:
            self._low = (
                f"{voltage} is below {LOW_BUS_V:.1f} V; the robot waits for {RECOVERED_BUS_V:.1f} V"
            )
        if bus_v <= LOWERED_BUS_V + ROUNDING:
            self._high = ""
        elif not self._high and not bus_v <= HIGH_BUS_V + ROUNDING:
            self._high = (
                f"{voltage} is above {HIGH_BUS_V:.1f} V; the robot waits for {LOWERED_BUS_V:.1f} V"
            )

        if charge_state not in FREE:
            self._charging_t = t
            self._charging = "the robot is charging"
            if charge_state >= FIRST_FAULT:
                self._charging = f"the charger reports a fault (charge state {charge_state})"
        elif self._charging:
            self._charging_t = min(self._charging_t, t)
            if t - self._charging_t >= SETTLE_S:
                self._charging = ""
        return self._hot or self._low or self._high or self._charging


# ---- commands -------------------------------------------------------------------------------------------------------

MOVING_UNITS = 10.0  # request of a wheel from which on a motor must have a voltage
STANDING_UNITS = 0.5  # requests below it count as 0
LONGEST_RAMP_S = 1.2  # including the delay to the motors
CERTAIN_S = 0.6

IDLE = (
    f"the robot does not follow its commands: no motor had a voltage in {CERTAIN_S} s of requests to move. Is its wire "
    "for commands cut, or does its firmware ignore them?"
)
ADRIFT = (
    f"the robot does not follow its commands: its motors had voltages for {CERTAIN_S} s after the longest ramp to a "
    "stop. Does another program drive it? If not, switch it off."
)


COMPLAINTS = ("", IDLE, ADRIFT)
# Numbers of `counts` (steps, and the index of the complaint) and of `limits`: steps until a
# judgement is certain, and of the longest ramp.
N_IDLE, N_STANDING, N_ADRIFT, COMPLAINT, N_COUNTS = range(5)
N_CERTAIN, N_RAMP = range(2)


@kernel
def judge_voltages(
    counts: Ints,
    limits: Ints,
    to_wheels: Floats,
    request: tuple[float, float, float],
    voltages: Floats,
    ok: bool,
) -> None:
    """Evaluate a frame for `VoltageMonitor`: the request (m/s, m/s, rad/s) and the motors' voltages, shape (3,).

    `counts` changes in place; `to_wheels` is the matrix from requests to the wheels' wire units,
    shape (3, 3); `ok`: the request was applied, and the frame follows the one before.
    """
    if not ok:
        counts[N_STANDING] = 0
        if counts[COMPLAINT] == 0:
            counts[N_IDLE] = counts[N_ADRIFT] = 0
        return
    fastest_units = 0.0
    is_driven = False
    for i in range(3):
        wheel = (
            to_wheels[i, 0] * request[0]
            + to_wheels[i, 1] * request[1]
            + to_wheels[i, 2] * request[2]
        )
        fastest_units = max(fastest_units, abs(wheel))
        is_driven = is_driven or voltages[i] != 0.0
    if fastest_units < STANDING_UNITS:
        counts[N_STANDING] = counts[N_STANDING] + 1
    else:
        counts[N_STANDING] = 0
    if is_driven:
        counts[N_IDLE] = 0
        if counts[N_STANDING] > limits[N_RAMP]:
            counts[N_ADRIFT] += 1
    else:
        if fastest_units >= MOVING_UNITS:
            counts[N_IDLE] += 1
        counts[N_ADRIFT] = 0
    is_idle = counts[N_IDLE] >= limits[N_CERTAIN]
    is_adrift = counts[N_ADRIFT] >= limits[N_CERTAIN]
    if is_idle:
        counts[COMPLAINT] = 1
    elif is_adrift:
        counts[COMPLAINT] = 2
    else:
        counts[COMPLAINT] = 0


class VoltageMonitor(CommandMonitor):
    """Detects ignored commands by the motors' voltages; a complaint holds until a frame refutes it."""

    saved = ("complaint", "counts")

    def __init__(self, spec: RobotSpec) -> None:
        self._voltage = spec.group("motor_voltage")
        self.to_wheels = np.array(spec.drive["kinematics_1024"]) / 1024.0 / UNITS
        self.limits = np.array(
            [round(CERTAIN_S / spec.period_s), round(LONGEST_RAMP_S / spec.period_s)], np.int64
        )
        self.counts = np.zeros(N_COUNTS, np.int64)
        super().__init__(spec)

    def forget(self) -> None:
        """Start a run without a complaint."""
        super().forget()
        # Compiles
        judge_voltages(
            self.counts, self.limits, self.to_wheels, (0.0, 0.0, 0.0), np.zeros(3), False
        )
        self.counts[:] = 0

    def judge(self, request: Floats, frame: Frame) -> str:
        """Evaluate the frame after a step with `request` (m/s, m/s, rad/s; shape (3,)) and return `complaint`.

        A step whose request was not applied, or a gap, restarts the counts. A stale frame is
        skipped.
        """
        if not frame.stale:
            x, y, yaw = request.tolist()
            voltages = frame.values[self._voltage]
            ok = frame.applied and not frame.gap
            judge_voltages(self.counts, self.limits, self.to_wheels, (x, y, yaw), voltages, ok)
            self.complaint = COMPLAINTS[self.counts[COMPLAINT]]
        return self.complaint
