"""Observer: what `RobotEnv` makes of each frame's values, in one kernel: the observation, and the battery's state."""

from __future__ import annotations

import numpy as np

from horde_env import _jit, battery
from horde_env._jit import kernel_over, scale_to_unit
from horde_env.backend import Floats, Ints, Observation
from horde_env.battery import BatteryMonitor, read_battery
from horde_env.robot import RobotSpec


@kernel_over(_jit, battery)
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
