"""The bus and its three batteries: they empty over a life and fill at the dock, when charging is enabled there.

Source of thresholds and charge states: the power AVR's and the ARM's firmware as recorded in the project's fact sheet.
Volts at rest and their spread are those of the real robot's log; capacity and load are assumptions, chosen so that a
wandering life lasts 12 h from full.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Charge states of the firmware that this model goes through: one charger after the other, then all full.
UNPLUGGED, START, CHARGING_40, CHARGING_160, CHARGING_280, COMPLETE = 0, 1, 2, 5, 8, 11
_CHARGERS = (CHARGING_40, CHARGING_160, CHARGING_280)

CAPACITY_A_S = 5.6 * 3600.0  # of one battery
ELECTRONICS_A = 1.25
CHARGE_A = 3.0
RESISTANCE_OHM = 0.05  # of a battery and its wires
BUS_OHM = 0.02
DIODE_V = 0.03

# Open-circuit volts over the share of charge left: four lithium cells in series.
CHARGE_KNOTS = np.array([0.0, 0.03, 0.10, 0.25, 0.50, 0.80, 1.0])
VOLT_KNOTS = np.array([11.0, 12.6, 14.0, 14.8, 15.3, 16.0, 16.72])
BATTERY_OFFSET_V = np.array([0.07, -0.06, -0.03])  # the log's means differ so

DOCK_V = 17.6  # what the dock puts on the bus; above 18.5 V the motors would not turn
PLUGGED_V, PLUGGED_S = 17.2, 0.2
LOW_V, LOW_S, LOW_OVER_V = 12.0, 1.0, 17.0
UNBALANCED_V = 0.2
WORTH_CHARGING_V = 16.0
OVERRIDE_V = 14.5  # below it the dock charges even where charging is disabled
DEAD_V = 8.0


class PowerSupply:
    """Batteries, bus and charger.

    Args:
        battery_scale: Factor on the capacity; a small one makes a short life.

    Attributes:
        charge: Share of charge left in each battery (40, 160, 280 degrees), shape (3,).
        charging_enabled: The host's wish; False after boot.
        state: Charge state, one of this module's constants.
        is_low: Whether the bus fell below 12 V: the robot is off until it has more than 17 V again.

    Raises:
        ValueError: If `battery_scale` is not positive.
    """

    def __init__(self, battery_scale: float = 1.0) -> None:
        if not 0.0 < battery_scale < float("inf"):
            raise ValueError(f"battery_scale must be positive and finite, got {battery_scale}")
        self._capacity_a_s = CAPACITY_A_S * battery_scale
        self.boot()

    def boot(self) -> None:
        """Start a life: batteries full, charging disabled, away from the dock."""
        self.charge = np.ones(3)
        self.charging_enabled = False
        self.state = UNPLUGGED
        self.is_low = False
        self._plugged_s = self._low_s = 0.0
        self._settle(ELECTRONICS_A, on_dock=False)

    @property
    def holds_motors(self) -> bool:
        """Whether the motors must stand still: on the charger, or without enough power to run at all."""
        return self.is_low or self.state not in (UNPLUGGED, COMPLETE)

    @property
    def bus_v(self) -> float:
        """Voltage of the bus."""
        return self._bus_v

    @property
    def bus_byte(self) -> int:
        """Voltage of the bus in the firmware's 0.1 V."""
        return round(10.0 * self._bus_v)

    @property
    def battery_v(self) -> Floats:
        """Voltage of each battery under its load, shape (3,)."""
        return self._battery_v

    def advance(self, motors_a: float, on_dock: bool, dt_s: float) -> None:
        """Let `dt_s` pass with the motors taking `motors_a` on average, the robot touching the dock's contacts or not."""
        load_a = ELECTRONICS_A + motors_a
        if not on_dock:
            self.charge -= load_a / 3.0 * dt_s / self._capacity_a_s
        if self.state in _CHARGERS:
            self.charge[_CHARGERS.index(self.state)] += CHARGE_A * dt_s / self._capacity_a_s
        np.clip(self.charge, 0.0, 1.0, out=self.charge)
        self._settle(load_a, on_dock)
        self._plugged_s = self._plugged_s + dt_s if self._bus_v > PLUGGED_V else 0.0
        self._low_s = self._low_s + dt_s if self._bus_v < LOW_V else 0.0
        self.is_low = self._low_s >= LOW_S or (self.is_low and self._bus_v <= LOW_OVER_V)
        self._next_state()

    def _settle(self, load_a: float, on_dock: bool) -> None:
        """Bring the voltages up to date; at the dock the load is the dock's."""
        open_v = np.interp(self.charge, CHARGE_KNOTS, VOLT_KNOTS) + BATTERY_OFFSET_V
        if on_dock:
            self._battery_v, self._bus_v = open_v, DOCK_V
        else:
            self._battery_v = open_v - RESISTANCE_OHM * load_a / 3.0
            self._bus_v = float(self._battery_v.mean()) - DIODE_V - BUS_OHM * load_a

    def _next_state(self) -> None:
        """Move through the charge states; leaving the dock ends them all."""
        if self._plugged_s < PLUGGED_S:
            self.state = UNPLUGGED
        elif self.state == UNPLUGGED:
            self.state = START if self._wants_charge() else UNPLUGGED
        elif self.state != COMPLETE:
            waiting = [state for i, state in enumerate(_CHARGERS) if self.charge[i] < 1.0]
            self.state = waiting[0] if waiting else COMPLETE

    def _wants_charge(self) -> bool:
        lowest, highest = float(self._battery_v.min()), float(self._battery_v.max())
        if lowest < DEAD_V:
            return False
        if lowest < OVERRIDE_V:
            return True
        needed = highest - lowest > UNBALANCED_V or float(self._battery_v[0]) < WORTH_CHARGING_V
        return self.charging_enabled and needed
