"""The battery's gauge: whether the robot must dock."""

from __future__ import annotations

import math

import numpy as np

from horde_env._jit import kernel
from horde_env.backend import Floats, Ints
from horde_env.robot import RobotSpec
from horde_env.sim.saving import number_of

SMOOTHED_S = 5.0  # motors pull the voltage down for moments
HELD_S = 10.0  # longer than a robot needs to leave a dock by itself

# Numbers of a gauge, of its limits (V, but SHARE), and of its places: first and last channel of the
# batteries, then the channels of the bus and of charging, or -1.
LOWEST_V, IS_BELOW, IS_URGENT, N_HELD, N_GAUGE = range(5)
MOST_V, SHARE, LOW_V, URGENT_V, FULL_V, DOCK_V = range(6)
FIRST, LAST, BUS, CHARGING = range(4)


@kernel
def read_gauge(gauge: Floats, limits: Floats, at: Ints, values: Floats, applied: bool) -> None:
    """Process a frame's values, shape (n_channels,), for `BatteryGauge`; `applied`: its command was.

    `gauge` changes in place: the lowest voltage (smoothed; NaN at first), whether it is low, urgent
        (0 or 1), and the
    steps in a row in which the dock's charger blocked a request.
    """
    lowest = math.inf
    highest = -math.inf
    bus = at[BUS]
    for i in range(at[FIRST], at[LAST] + 1):
        lowest = min(lowest, values[i])
        highest = max(highest, values[i])
    if highest > limits[MOST_V] or (bus >= 0 and values[bus] == 0.0):
        gauge[LOWEST_V] = math.nan
        gauge[IS_BELOW] = gauge[IS_URGENT] = gauge[N_HELD] = 0.0
        return
    if math.isnan(gauge[LOWEST_V]):
        previous_v = lowest
    else:
        previous_v = gauge[LOWEST_V]
    reading_v = previous_v + limits[SHARE] * (lowest - previous_v)
    if reading_v < (limits[FULL_V] if gauge[IS_BELOW] == 1.0 else limits[LOW_V]):
        gauge[IS_BELOW] = 1.0
    else:
        gauge[IS_BELOW] = 0.0
    gauge[LOWEST_V] = reading_v
    if reading_v < limits[URGENT_V]:
        gauge[IS_URGENT] = 1.0
    else:
        gauge[IS_URGENT] = 0.0
    charging = at[CHARGING]
    if charging >= 0:
        has_power = values[charging] != 0.0
    else:
        has_power = bus >= 0 and values[bus] > limits[DOCK_V]
    if applied or not has_power:
        gauge[N_HELD] = 0.0
    else:
        gauge[N_HELD] = gauge[N_HELD] + 1.0


class BatteryGauge:
    """Judges whether the robot must dock: its battery is low, or the dock's charger holds it.

    Low is judged with hysteresis from the voltage of the lowest battery, smoothed over 5 s.

    A reading is ignored if the bus has 0 V, which no robot that answers can have, or if a battery
    exceeds the packet's
    range: a robot's original simulator shows both, because its battery is a counter from 10,000
        down.

    `gauge`, `limits` and `at` are arguments of `read_gauge`.
    """

    # Attributes that a saved environment keeps
    saved = ("is_urgent", "_is_below", "_lowest_v", "_n_held")
    is_urgent: bool = number_of("gauge", IS_URGENT, bool)  # below `urgent_v`
    _is_below: bool = number_of("gauge", IS_BELOW, bool)
    _n_held: int = number_of("gauge", N_HELD, int)

    def __init__(self, spec: RobotSpec) -> None:
        members, bus, charging = (
            [i for i, channel in enumerate(spec.channels) if channel.group == name]
            for name in ("battery_voltage", "bus_voltage", "charging")
        )
        # The robot has a group "battery_voltage", and its thresholds
        self.is_known = bool(members and spec.battery)
        most_v = (
            max((spec.channels[i].lsb * spec.channels[i].raw_high for i in members), default=0.0)
            + 0.05
        )
        share = min(spec.period_s / SMOOTHED_S, 1.0)
        battery = dict.fromkeys(("low_v", "urgent_v", "full_v", "dock_v"), math.nan) | spec.battery
        self.limits = np.array(
            [most_v, share, *(float(battery[k]) for k in ("low_v", "urgent_v", "full_v", "dock_v"))]
        )
        if members:
            ends = (members[0], members[-1])
        else:
            ends = (0, -1)
        self.at = np.array(
            [*ends, *(place[0] if place else -1 for place in (bus, charging))], dtype=np.int64
        )
        self.n_held_limit = round(HELD_S / spec.period_s)
        self.gauge = np.zeros(N_GAUGE)
        self.forget()

    def forget(self) -> None:
        """Discard all readings."""
        self.gauge[:] = 0.0
        self._lowest_v = None

    @property
    def _lowest_v(self) -> float | None:
        """The voltage of the lowest battery, smoothed; None before the first reading."""
        if math.isnan(self.gauge[LOWEST_V]):
            return None
        return float(self.gauge[LOWEST_V])

    @_lowest_v.setter
    def _lowest_v(self, volts: float | None) -> None:
        if volts is None:
            self.gauge[LOWEST_V] = math.nan
        else:
            self.gauge[LOWEST_V] = volts

    @property
    def is_held(self) -> bool:
        """True if the dock's charger has blocked the robot's requests for 10 s."""
        return self._n_held >= self.n_held_limit

    @property
    def is_low(self) -> bool:
        """True if held, or below `low_v` until `full_v` is reached."""
        return self._is_below or self.is_held

    def read(self, values: Floats, *, applied: bool = True) -> None:
        """Process the newest frame's values, shape (n_channels,), and whether its command was applied."""
        if self.is_known:
            read_gauge(self.gauge, self.limits, self.at, values, applied)

    @property
    def finding(self) -> str:
        """The battery's state in words and volts."""
        if self._lowest_v is None:
            return "the battery's voltage is unknown"
        if self.is_urgent:
            judgement = f"urgent below {self.limits[URGENT_V]} V"
        elif self._is_below:
            judgement = f"low below {self.limits[LOW_V]} V"
        elif self.is_held:
            judgement = f"not low, but the dock has charged it for {HELD_S:g} s without a request"
        else:
            judgement = "not low"
        return f"the lowest battery has {self._lowest_v:.1f} V over the last {SMOOTHED_S:g} s, {judgement}"

    def info(self) -> dict[str, int]:
        """Return `battery_low` and `battery_urgent`, 0 or 1; nothing if the robot has no such channels."""
        if self.is_known:
            return {"battery_low": int(self.is_low), "battery_urgent": int(self.is_urgent)}
        return {}
