"""Supervisor: whether the robot may move, judged from what it senses, with a margin before it may move again.

Each condition has two thresholds. The reading that crosses the first stops the robot at once; only one that reaches the
second lets it go, so that a reading that hovers about a threshold never starts and stops it step by step.

Source: thresholds of the robot's own firmware of June 2011 (lib_monitor.c, the power and motor AVRs), but for the low
bus voltage: the robot switches its computer off below 12.0 V, and this stops it before.
"""

from __future__ import annotations

from horde_env.backend import Floats
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
