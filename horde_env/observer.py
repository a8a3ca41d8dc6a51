"""What `RobotEnv` makes of each frame's values, in one kernel: the observation, and whether the robot must dock."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from horde_env import _jit
from horde_env._jit import kernel, kernel_over, scale_to_unit
from horde_env.backend import Floats, InfoKey, Ints, Observation, State
from horde_env.robot import RobotSpec

# ---- the battery -----------------------------------------------------------------------------------------------------

SMOOTHED_S = 5.0  # motors pull the voltage down for moments
HELD_S = 10.0  # longer than a robot needs to leave a dock by itself

# Indices into the numbers of a battery.
LOWEST_V = 0  # the lowest battery's voltage, smoothed; NaN before the first reading
IS_BELOW = 1  # 1 from `low_v` until `full_v`
IS_URGENT = 2  # 1 below `urgent_v`
N_HELD = 3  # steps in a row in which the dock's charger blocked a request
IS_LOW = 4  # 1 if the robot must dock: IS_BELOW, or held for 10 s
N_NUMBERS = 5

# Indices into its limits.
MOST_V = 0  # the largest voltage that a packet can hold
SHARE = 1  # of a new reading in the smoothed voltage
LOW_V = 2
URGENT_V = 3
FULL_V = 4
DOCK_V = 5  # on the bus, from the dock
HELD_STEPS = 6  # in a row, after which the dock counts as holding the robot
N_LIMITS = 7

# Indices into its channels; -1 marks a channel that the robot lacks.
FIRST = 0  # of the batteries' voltages
LAST = 1  # of the batteries' voltages; -1 if the robot does not measure them
BUS = 2
CHARGING = 3

BATTERY_KEYS = (
    InfoKey(
        "battery_low", "1", "1 if the robot should dock: the battery is low, or the dock holds it"
    ),
    InfoKey("battery_urgent", "1", "1 if it must dock at once"),
)


@kernel
def read_battery(
    numbers: Floats, limits: Floats, channels: Ints, values: Floats, applied: bool
) -> None:
    """Update the `numbers` of a battery (`BatteryMonitor`) from a frame's values, shape (n_channels,).

    `applied` is True if the frame's command was applied.
    """
    if channels[LAST] < 0:
        return
    lowest_v = math.inf
    highest_v = -math.inf
    for i in range(channels[FIRST], channels[LAST] + 1):
        lowest_v = min(lowest_v, values[i])
        highest_v = max(highest_v, values[i])
    bus = channels[BUS]
    if highest_v > limits[MOST_V] or (bus >= 0 and values[bus] == 0.0):
        numbers[LOWEST_V] = math.nan
        numbers[IS_BELOW] = 0.0
        numbers[IS_URGENT] = 0.0
        numbers[N_HELD] = 0.0
        numbers[IS_LOW] = 0.0
        return

    previous_v = numbers[LOWEST_V]
    if math.isnan(previous_v):
        previous_v = lowest_v
    smoothed_v = previous_v + limits[SHARE] * (lowest_v - previous_v)
    threshold_v = limits[LOW_V]
    if numbers[IS_BELOW] == 1.0:
        threshold_v = limits[FULL_V]
    numbers[LOWEST_V] = smoothed_v
    numbers[IS_BELOW] = 0.0
    if smoothed_v < threshold_v:
        numbers[IS_BELOW] = 1.0
    numbers[IS_URGENT] = 0.0
    if smoothed_v < limits[URGENT_V]:
        numbers[IS_URGENT] = 1.0

    charging = channels[CHARGING]
    if charging >= 0:
        has_power = values[charging] != 0.0
    else:
        has_power = bus >= 0 and values[bus] > limits[DOCK_V]
    if applied or not has_power:
        numbers[N_HELD] = 0.0
    else:
        numbers[N_HELD] = numbers[N_HELD] + 1.0
    numbers[IS_LOW] = numbers[IS_BELOW]
    if numbers[N_HELD] >= limits[HELD_STEPS]:
        numbers[IS_LOW] = 1.0


class BatteryMonitor:
    """Judges whether the robot must dock: its battery is low, or the dock's charger holds it.

    Low is judged with hysteresis from the voltage of the lowest battery, smoothed over 5 s.

    A reading is ignored if the bus has 0 V, which no robot that answers can have, or if a battery
    exceeds the packet's range: a robot's original simulator shows both, because its battery is a
    counter from 10,000 down.

    Attributes:
        is_known: The robot measures its batteries, and has thresholds for them.
        info_keys: What it adds to info.
        numbers, limits, channels: Arguments of `read_battery`.
    """

    name: ClassVar[str] = "battery"  # in saved states

    def __init__(self, spec: RobotSpec) -> None:
        voltages = _channels_of(spec, "battery_voltage")
        bus = _channels_of(spec, "bus_voltage")
        charging = _channels_of(spec, "charging")
        self.is_known = bool(voltages and spec.battery)
        self.info_keys: tuple[InfoKey, ...] = ()
        self.channels = np.full(4, -1, dtype=np.int64)
        self.limits = np.full(N_LIMITS, math.nan)
        if self.is_known:
            self.info_keys = BATTERY_KEYS
            self.channels[FIRST] = voltages[0]
            self.channels[LAST] = voltages[-1]
            largest_v = max(spec.channels[i].lsb * spec.channels[i].raw_high for i in voltages)
            self.limits[MOST_V] = largest_v + 0.05
        if bus:
            self.channels[BUS] = bus[0]
        if charging:
            self.channels[CHARGING] = charging[0]
        self.limits[SHARE] = min(spec.period_s / SMOOTHED_S, 1.0)
        self.limits[LOW_V] = spec.battery.get("low_v", math.nan)
        self.limits[URGENT_V] = spec.battery.get("urgent_v", math.nan)
        self.limits[FULL_V] = spec.battery.get("full_v", math.nan)
        self.limits[DOCK_V] = spec.battery.get("dock_v", math.nan)
        self.limits[HELD_STEPS] = round(HELD_S / spec.period_s)
        self.numbers = np.zeros(N_NUMBERS)
        self.forget()

    def forget(self) -> None:
        """Discard all readings."""
        self.numbers[:] = 0.0
        self.numbers[LOWEST_V] = math.nan

    @property
    def is_urgent(self) -> bool:
        """True below `urgent_v`."""
        return bool(self.numbers[IS_URGENT])

    @property
    def is_held(self) -> bool:
        """True if the dock's charger has blocked the robot's requests for 10 s."""
        return bool(self.numbers[N_HELD] >= self.limits[HELD_STEPS])

    @property
    def is_low(self) -> bool:
        """True if held, or below `low_v` until `full_v` is reached."""
        return bool(self.numbers[IS_LOW])

    def read(self, values: Floats, *, applied: bool = True) -> None:
        """Process the newest frame's values, shape (n_channels,), and whether its command was applied."""
        read_battery(self.numbers, self.limits, self.channels, values, applied)

    @property
    def finding(self) -> str:
        """The battery's state in words and volts."""
        lowest_v = self.numbers[LOWEST_V]
        if math.isnan(lowest_v):
            return "the battery's voltage is unknown"
        if self.is_urgent:
            judgement = f"urgent below {self.limits[URGENT_V]} V"
        elif self.numbers[IS_BELOW]:
            judgement = f"low below {self.limits[LOW_V]} V"
        elif self.is_held:
            judgement = f"not low, but the dock has charged it for {HELD_S:g} s without a request"
        else:
            judgement = "not low"
        return (
            f"the lowest battery has {lowest_v:.1f} V over the last {SMOOTHED_S:g} s, {judgement}"
        )

    def info(self) -> dict[str, int]:
        """Return `battery_low` and `battery_urgent`, 0 or 1; nothing if the robot has no such channels."""
        if not self.is_known:
            return {}
        numbers = self.numbers
        return {"battery_low": int(numbers[IS_LOW]), "battery_urgent": int(numbers[IS_URGENT])}

    def save(self) -> State:
        """Return what later judgements depend on."""
        return {"numbers": self.numbers.copy()}

    def restore(self, state: State) -> None:
        """Restore a state from `save`."""
        self.numbers[:] = state["numbers"]


def _channels_of(spec: RobotSpec, group: str) -> list[int]:
    """Return the indices of a group's channels; none if the robot lacks it."""
    return [i for i, channel in enumerate(spec.channels) if channel.group == group]


# ---- a frame ---------------------------------------------------------------------------------------------------------


@kernel_over(_jit)
def observe_values(
    battery_numbers: Floats,
    battery_limits: Floats,
    battery_channels: Ints,
    values: Floats,
    applied: bool,
    low: Floats,
    span: Floats,
    observation: Observation,
) -> int:
    """Process a frame's values, shape (n_channels,), and return the number of readings that were clipped.

    `battery_numbers` and `observation` are written: see `read_battery` and `scale_to_unit`.
    `applied` is True if the frame's command was applied.
    """
    read_battery(battery_numbers, battery_limits, battery_channels, values, applied)
    return scale_to_unit(values, low, span, observation)


class Observer:
    """Scales a robot's frames, and has its battery judged.

    Attributes:
        n_clipped: Readings of the newest frame that were outside their range.
    """

    def __init__(self, spec: RobotSpec, monitor: BatteryMonitor) -> None:
        self._battery = monitor
        self._low = spec.low
        self._span = spec.high - spec.low
        self._n_channels = spec.n_channels
        self.n_clipped = 0

    def prepare(self) -> None:
        """Compile the kernel, which takes longer than a period, and discard the battery's readings."""
        self.observe(self._low, applied=True)
        self._battery.forget()

    def observe(self, values: Floats, *, applied: bool) -> Observation:
        """Return the observation, float32 of shape (n_channels,), of a frame's values in SI units.

        Args:
            values: All channels, shape (n_channels,).
            applied: Whether the frame's command was applied.
        """
        observation = np.empty(self._n_channels, np.float32)
        monitor = self._battery
        self.n_clipped = observe_values(
            monitor.numbers,
            monitor.limits,
            monitor.channels,
            values,
            applied,
            self._low,
            self._span,
            observation,
        )
        return observation
