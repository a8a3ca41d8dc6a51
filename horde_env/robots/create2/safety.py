"""Supervisor: stops the robot for heat, an empty battery, a stalled wheel or a charger fault, not for bumps.

These are in addition to the robot's own triggers. Each condition has one threshold for stopping and
another for moving again.
"""

from __future__ import annotations

from horde_env.backend import Floats
from horde_env.robot import RobotSpec
from horde_env.robots.create2.wire import CHARGING_FAULT
from horde_env.sim.saving import Saved

# While driving only: 60 C occurs while charging
HOT_K = 273.15 + 55.0
COOL_K = 273.15 + 50.0
LOW_V = 13.2
RECOVERED_V = 13.8
SMOOTHED_S = 5.0
STALLED_S = 0.3
RESTED_S = 1.0


class CreateSupervisor(Saved):
    """Decides from each frame whether the robot may move."""

    saved = ("_mean_v", "_stalled_t", "_rest_until", "_hot", "_low", "_stalled")

    def __init__(self, spec: RobotSpec) -> None:
        self._volts = spec.index("battery_voltage")
        self._kelvin = spec.index("battery_temperature")
        self._charging = spec.index("charging")
        self._stall = spec.group("wheel_overcurrent")
        self._share = min(spec.period_s / SMOOTHED_S, 1.0)
        self._mean_v: float | None = None
        self._stalled_t: float | None = None
        self._rest_until = float("-inf")
        self._hot = self._low = self._stalled = ""

    def judge(self, values: Floats, charge_state: int, t: float) -> str:
        """Judge a frame (`Supervising.judge`); the charge state is packet 21."""
        self._judge_battery(values)
        self._judge_stall(any(values[self._stall].tolist()), t)
        fault = ""
        if charge_state == CHARGING_FAULT:
            fault = f"the charger reports a fault (charging state {charge_state})"
        return self._hot or self._low or fault or self._stalled

    def _judge_battery(self, values: Floats) -> None:
        kelvin = float(values[self._kelvin])
        volts = float(values[self._volts])
        if values[self._charging]:
            self._hot = ""
            self._mean_v = None
        elif kelvin <= COOL_K:
            self._hot = ""
        elif not self._hot and not kelvin <= HOT_K:
            limits = f"more than {HOT_K - 273.15:.0f}; the robot waits for {COOL_K - 273.15:.0f}"
            self._hot = f"the battery has {kelvin - 273.15:.0f} degrees C, {limits}"
        previous_v = volts
        if self._mean_v is not None:
            previous_v = self._mean_v
        self._mean_v = previous_v + self._share * (volts - previous_v)
        if self._mean_v >= RECOVERED_V:
            self._low = ""
        elif not self._mean_v >= LOW_V:
            self._low = f"the battery has less than {LOW_V} V over {SMOOTHED_S:g} s; put the robot on its dock"

    def _judge_stall(self, is_over: bool, t: float) -> None:
        if t < self._rest_until - RESTED_S - STALLED_S:  # a new connection: its time starts again
            self._rest_until = float("-inf")
        if not is_over:
            self._stalled_t = None
        elif self._stalled_t is None or t < self._stalled_t:
            self._stalled_t = t
        if self._stalled_t is not None and t - self._stalled_t >= STALLED_S:
            self._stalled = "a wheel motor's current is too high; the robot pauses for a second"
            self._rest_until = t + RESTED_S
        elif t >= self._rest_until:
            self._stalled = ""
