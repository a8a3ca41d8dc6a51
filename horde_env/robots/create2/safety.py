"""Supervisor: stops the robot for heat, an empty battery, a stalled wheel or a charger fault, not for bumps.

These are in addition to the robot's own triggers. Each condition has one threshold for stopping and another for moving
again.
"""

from __future__ import annotations

from horde_env.backend import Floats
from horde_env.robot import RobotSpec, create2
from horde_env.robots.create2.wire import CHARGING_FAULT

HOT_K, COOL_K = 273.15 + 55.0, 273.15 + 50.0  # while driving only: 60 C occurs while charging
LOW_V, RECOVERED_V, SMOOTHED_S = 13.2, 13.8, 5.0
STALLED_S, RESTED_S = 0.3, 1.0


class CreateSupervisor:
    """Decides from each frame whether the robot may move.

    Args:
        spec: The robot, for the indices of its channels; the Create 2 when None.
    """

    def __init__(self, spec: RobotSpec | None = None) -> None:
        spec = create2() if spec is None else spec
        self._volts, self._kelvin = spec.index("battery_voltage"), spec.index("battery_temperature")
        self._charging, self._stall = spec.index("charging"), spec.group("wheel_overcurrent")
        self._share = min(spec.period_s / SMOOTHED_S, 1.0)
        self._mean_v: float | None = None
        self._stalled_t: float | None = None
        self._rest_until = float("-inf")
        self._hot = self._low = self._stalled = ""

    def judge(self, values: Floats, charge_state: int, t: float) -> str:
        """Return why the robot must not move, "" if it may; the text stays the same while the reason does.

        Args:
            values: All channels in SI units, shape (n_channels,).
            charge_state: Packet 21.
            t: Time of the frame in seconds.
        """
        self._judge_battery(values)
        self._judge_stall(any(values[self._stall].tolist()), t)
        fault = f"the charger reports a fault (charging state {charge_state})" if charge_state == CHARGING_FAULT else ""
        return self._hot or self._low or fault or self._stalled

    def _judge_battery(self, values: Floats) -> None:
        kelvin, volts = float(values[self._kelvin]), float(values[self._volts])
        if values[self._charging]:
            self._hot, self._mean_v = "", None
        elif self._hot:
            self._hot = "" if kelvin <= COOL_K else self._hot
        elif not kelvin <= HOT_K:
            self._hot = (
                f"the battery has {kelvin - 273.15:.0f} degrees C, more than {HOT_K - 273.15:.0f}; the robot waits for "
                f"{COOL_K - 273.15:.0f}"
            )
        before = volts if self._mean_v is None else self._mean_v
        self._mean_v = before + self._share * (volts - before)
        if self._low:
            self._low = "" if self._mean_v >= RECOVERED_V else self._low
        elif not self._mean_v >= LOW_V:
            self._low = f"the battery has less than {LOW_V} V over {SMOOTHED_S:g} s; put the robot on its dock"

    def _judge_stall(self, is_over: bool, t: float) -> None:
        if t < self._rest_until - RESTED_S - STALLED_S:  # a new connection: its time starts again
            self._rest_until = float("-inf")
        self._stalled_t = (
            (t if self._stalled_t is None or t < self._stalled_t else self._stalled_t) if is_over else None
        )
        if self._stalled_t is not None and t - self._stalled_t >= STALLED_S:
            self._stalled, self._rest_until = (
                "a wheel motor's current is too high; the robot pauses for a second",
                t + RESTED_S,
            )
        elif t >= self._rest_until:
            self._stalled = ""
