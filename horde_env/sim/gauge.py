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

# Numbers of `gauge`.
LOWEST_V = 0  # voltage of the lowest battery, smoothed; NaN before the first reading
IS_BELOW = 1  # 0 or 1
IS_URGENT = 2  # 0 or 1
N_HELD = 3  # steps in a row in which the dock's charger blocked a request
N_GAUGE = 4
# Numbers of `limits`.
MOST_V = 0  # highest reading that a battery can have
SHARE = 1  # of the way from the smoothed voltage to the newest one, per step
LOW_V = 2
URGENT_V = 3
FULL_V = 4
DOCK_V = 5
# Numbers of `at`, channels.
FIRST = 0  # of the batteries
LAST = 1  # of the batteries
BUS = 2  # -1 without one
CHARGING = 3  # -1 without one


@kernel
def read_gauge(gauge: Floats, limits: Floats, at: Ints, values: Floats, applied: bool) -> None:
    """Process a frame's values, shape (n_channels,), for `BatteryGauge`; `applied`: its command was.

    `gauge`, shape (N_GAUGE,), changes in place.
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
    limit_v = limits[LOW_V]
    if gauge[IS_BELOW] == 1.0:
        limit_v = limits[FULL_V]
    if reading_v < limit_v:
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


@kernel
def is_low(gauge: Floats, n_held_limit: int) -> bool:
    """Return whether the robot must dock: its battery is low, or the charger held it for `n_held_limit` steps."""
    return bool(gauge[IS_BELOW] == 1.0 or gauge[N_HELD] >= n_held_limit)


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
        return bool(is_low(self.gauge, self.n_held_limit))

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
