"""Supervisor: whether the robot may move, judged from what it senses, with a margin before it may move again.

Each condition has two thresholds. The reading that crosses the first stops the robot at once; only one that reaches the
second lets it go, so that a reading that hovers about a threshold never starts and stops it step by step.

Source: thresholds of the robot's own firmware of June 2011 (lib_monitor.c, the power and motor AVRs), but for the low
bus voltage: the robot switches its computer off below 12.0 V, and this stops it before.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from horde_env.backend import Floats, Frame
from horde_env.drives import Obedience
from horde_env.robot import RobotSpec, critterbot

# Temperature readings are shares of 255, and LOWER is hotter: the robot itself refuses to drive below 65 of 255, and
# drives again when all three are at 85.
HOT_BELOW, COOL_FROM = 65 / 255, 85 / 255

# The bus rises by about 0.3 V when stalled motors let go: the margin must be wider, or each stop would end itself.
LOW_BUS_V, RECOVERED_BUS_V = 12.5, 13.5
HIGH_BUS_V, LOWERED_BUS_V = 18.5, 18.3  # above 18.5 V the motors get nothing

ROUNDING = 1e-6  # 85 x (1 / 255) is not 85 / 255; the smallest unit of a reading is 0.004

UNPLUGGED, COMPLETE = 0, 11
FREE = (UNPLUGGED, COMPLETE)  # the charge states in which the robot can move
FIRST_FAULT = 200  # states from here on are a charger's faults
SETTLE_S = 0.5  # for how long the charge state must be free: a contact that chatters leaves and returns


class Supervisor:
    """Judges every frame; remembers what stopped the robot until that is over by a margin.

    Args:
        spec: The robot, for the places of its channels; the Critterbot when None.
        hot_below, cool_from: Motor temperature readings (shares of full scale, lower is hotter).
        low_bus_v, recovered_bus_v: Volts on the bus below which it stops, and from which it goes on.
        high_bus_v, lowered_bus_v: Volts above which it stops, and up to which it goes on again.
        settle_s: Seconds for which the charge state must stay free.

    Raises:
        ValueError: If a second threshold lies on the wrong side of the first, or `settle_s` is negative.
    """

    def __init__(
        self,
        spec: RobotSpec | None = None,
        *,
        hot_below: float = HOT_BELOW,
        cool_from: float = COOL_FROM,
        low_bus_v: float = LOW_BUS_V,
        recovered_bus_v: float = RECOVERED_BUS_V,
        high_bus_v: float = HIGH_BUS_V,
        lowered_bus_v: float = LOWERED_BUS_V,
        settle_s: float = SETTLE_S,
    ) -> None:
        if not (cool_from >= hot_below and low_bus_v <= recovered_bus_v < lowered_bus_v <= high_bus_v):
            raise ValueError(
                f"a margin must lie on the safe side: cool_from {cool_from} >= hot_below {hot_below}, and low_bus_v "
                f"{low_bus_v} <= recovered_bus_v {recovered_bus_v} < lowered_bus_v {lowered_bus_v} <= high_bus_v "
                f"{high_bus_v}"
            )
        if not settle_s >= 0.0:
            raise ValueError(f"settle_s must not be negative, and is {settle_s}")
        spec = spec or critterbot()
        self._temperatures = spec.group("motor_temperature")
        self._motors = [channel.name.rpartition("_")[2] for channel in spec.channels[self._temperatures]]
        self._overheating, self._bus = spec.index("overheating"), spec.index("bus_voltage")
        self._hot_below, self._cool_from = hot_below, cool_from
        self._low_v, self._recovered_v = low_bus_v, recovered_bus_v
        self._high_v, self._lowered_v = high_bus_v, lowered_bus_v
        self._settle_s = settle_s
        self._hot = self._low = self._high = self._charging = ""  # each a reason while it holds
        self._charging_t = 0.0

    def judge(self, values: Floats, charge_state: int, t: float) -> str:
        """Return "" while the robot may move, else why not: words that stay the same while the reason does.

        A reading that is not a number counts as the worst one.

        Args:
            values: All channels in SI units, shape (n_channels,).
            charge_state: The robot's own number: 0 unplugged, 11 complete; it moves in these two alone.
            t: Time of the frame in seconds. Where it runs backwards (a new connection), waiting begins again.
        """
        self._judge_heat(values)
        self._judge_bus(float(values[self._bus]))
        self._judge_charging(charge_state, t)
        return self._hot or self._low or self._high or self._charging

    def _judge_heat(self, values: Floats) -> None:
        readings = values[self._temperatures].tolist()
        flagged = not values[self._overheating] < 0.5
        if self._hot:
            if not flagged and all(reading >= self._cool_from - ROUNDING for reading in readings):
                self._hot = ""
        elif not all(reading >= self._hot_below - ROUNDING for reading in readings):
            hottest = min(range(len(readings)), key=lambda i: (readings[i] >= 0.0, readings[i]))
            self._hot = (
                f"motor {self._motors[hottest]} is too hot: its reading is {255 * readings[hottest]:.0f} of 255, where "
                f"lower is hotter; the robot waits for {255 * self._cool_from:.0f}"
            )
        elif flagged:
            self._hot = "the robot reports that its motors are too hot"

    def _judge_bus(self, bus_v: float) -> None:
        if self._low:
            self._low = "" if bus_v >= self._recovered_v - ROUNDING else self._low
        elif not bus_v >= self._low_v - ROUNDING:
            self._low = (
                f"bus voltage {bus_v:.1f} V is below {self._low_v:.1f} V; the robot waits for {self._recovered_v:.1f} V"
            )
        if self._high:
            self._high = "" if bus_v <= self._lowered_v + ROUNDING else self._high
        elif not bus_v <= self._high_v + ROUNDING:
            self._high = (
                f"bus voltage {bus_v:.1f} V is above {self._high_v:.1f} V; the robot waits for {self._lowered_v:.1f} V"
            )

    def _judge_charging(self, charge_state: int, t: float) -> None:
        if charge_state not in FREE:
            self._charging_t = t
            fault = f"the charger reports a fault (charge state {charge_state})"
            self._charging = fault if charge_state >= FIRST_FAULT else "the robot is charging"
        elif self._charging:
            if t < self._charging_t:
                self._charging_t = t
            if t - self._charging_t >= self._settle_s:
                self._charging = ""


# ---- obedience -------------------------------------------------------------------------------------------------------

MOVING_UNITS = 10.0  # asked of some wheel, from which on it must show a voltage
STANDING_UNITS = 0.5  # below it nothing is asked
LONGEST_RAMP_S = 1.2  # its way to the motors included
CERTAIN_S = 0.6

IDLE = (
    f"the robot does not follow its commands: in {CERTAIN_S} s in which its wheels were to turn no motor showed a "
    "voltage. Is its wire for commands cut, or does its firmware ignore them?"
)
ADRIFT = (
    f"the robot does not follow its commands: at a request to stand it drove its motors for {CERTAIN_S} s after the "
    "longest ramp. Does another program drive it? If not, switch it off."
)


class VoltageObedience(Obedience):
    """Judges every frame of a life; a finding holds until a frame shows the contrary.

    Args:
        spec: The robot, with a channel group motor_voltage.
    """

    saved: ClassVar = ("complaint", "_n_idle", "_n_standing", "_n_adrift")

    def __init__(self, spec: RobotSpec) -> None:
        self._voltage = spec.group("motor_voltage")
        self._to_wheels: list[list[float]] = _to_wheels(spec)
        self._n_certain = round(CERTAIN_S / spec.period_s)
        self._n_ramp = round(LONGEST_RAMP_S / spec.period_s)
        super().__init__(spec)

    def forget(self) -> None:
        """Begin a life without a complaint."""
        super().forget()
        self._n_idle = self._n_standing = self._n_adrift = 0  # steps

    def judge(self, request: Floats, frame: Frame) -> str:
        """Take the frame that ended a step under `request` (m/s, m/s, rad/s; shape (3,)) and return `complaint`.

        A step of which the body itself says that it was kept from the request, or that broke the sequence, proves
        nothing: counting begins again after it. One without a new frame is passed over.
        """
        if frame.stale:
            return self.complaint
        if frame.gap or not frame.applied:
            self._n_standing = 0
            if not self.complaint:
                self._n_idle = self._n_adrift = 0
            return self.complaint
        x, y, yaw = request.tolist()
        asked = max([abs(a * x + b * y + c * yaw) for a, b, c in self._to_wheels])
        self._n_standing = self._n_standing + 1 if asked < STANDING_UNITS else 0
        if any(frame.values[self._voltage].tolist()):
            self._n_idle = 0
            self._n_adrift += self._n_standing > self._n_ramp
        else:
            self._n_idle += asked >= MOVING_UNITS
            self._n_adrift = 0
        is_idle, is_adrift = self._n_idle >= self._n_certain, self._n_adrift >= self._n_certain
        self.complaint = IDLE if is_idle else ADRIFT if is_adrift else ""
        return self.complaint


def _to_wheels(spec: RobotSpec) -> list[list[float]]:
    """Return the matrix that makes units of the wheels, of the wire, from a request (m/s, m/s, rad/s)."""
    drive = spec.drive
    units = np.array([drive["translation_unit"], -drive["translation_unit"], drive["rotation_unit"]])  # y right
    matrix: list[list[float]] = (np.array(drive["kinematics_1024"]) / 1024.0 / units).tolist()
    return matrix
