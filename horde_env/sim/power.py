"""The bus and its three batteries: they empty over a life and fill at the dock, when charging is enabled there.

Source of thresholds and charge states: the published sources of the power AVR's and the ARM's firmware (2011).
Volts at rest and their spread are those of the real robot's log; capacity and load are assumptions, chosen so that a
wandering life lasts 12 h from full.
"""

from __future__ import annotations

from typing import Any

from horde_env._jit import kernel

# Charge states of the firmware: the three chargers one after the other, each with a normal charge and a top-off.
# States 3, 5 and 8 are passed in one step: they switch a charger on or off.
UNPLUGGED, START, COMPLETE, INTERRUPTED = 0, 1, 11, 201
CHARGING = ((2, 3, 4), (5, 6, 7), (8, 9, 10))  # states in which 40, 160, 280 is charged
NORMAL, TOP_OFF = (2, 6, 9), (4, 7, 10)  # of each charger: the states that last
TOP_OFF_CHARGE = 0.9  # share of charge from which a charger tops off; an assumption

CAPACITY_A_S = 7.7 * 3600.0  # of one battery: 12 h at 1.25 A and the 0.56 A that wandering motors take on average
ELECTRONICS_A = 1.25
CHARGE_A = 3.0
RESISTANCE_OHM = 0.05  # of a battery and its wires
BUS_OHM = 0.02
DIODE_V = 0.03

# Open-circuit volts over the share of charge left: four lithium cells in series.
CHARGE_KNOTS = (0.0, 0.03, 0.10, 0.25, 0.50, 0.80, 1.0)
VOLT_KNOTS = (11.0, 12.6, 14.0, 14.8, 15.3, 16.0, 16.72)
BATTERY_OFFSET_V = (0.07, -0.06, -0.03)  # the log's means differ so

DOCK_V = 17.6  # what the dock puts on the bus; above 18.5 V the motors would not turn
PLUGGED_V, PLUGGED_S = 17.2, 0.2
LOW_V, LOW_S, LOW_OVER_V = 12.0, 1.0, 17.0
UNBALANCED_V = 0.2
WORTH_CHARGING_V = 16.0
OVERRIDE_V = 14.5  # below it the dock charges even where charging is disabled
DEAD_V = 8.0


Three = tuple[float, float, float]  # a number per battery, at 40, 160, 280 degrees


@kernel
def open_circuit_v(charge: float) -> float:
    """Return a resting battery's voltage for a share of charge in 0..1, by straight lines between the knots.

    >>> open_circuit_v(0.5)
    15.3
    """
    i = 0
    while i < len(CHARGE_KNOTS) - 2 and charge >= CHARGE_KNOTS[i + 1]:
        i += 1
    share = (charge - CHARGE_KNOTS[i]) / (CHARGE_KNOTS[i + 1] - CHARGE_KNOTS[i])
    return VOLT_KNOTS[i] + share * (VOLT_KNOTS[i + 1] - VOLT_KNOTS[i])


@kernel
def charged(charge: float, gain_a: float, dt_s: float, capacity_a_s: float) -> float:
    """Return a battery's share of charge, 0..1, after `dt_s` under a current."""
    return min(max(charge + gain_a * dt_s / capacity_a_s, 0.0), 1.0)


@kernel
def batteries(
    charge: Three, gain_a: Three, dt_s: float, capacity_a_s: float, load_a: float, on_dock: bool, sag_v: float
) -> tuple[Three, Three, float]:
    """Return charge, voltages and the bus voltage after `dt_s`; at the dock the load is the dock's."""
    a = charged(charge[0], gain_a[0], dt_s, capacity_a_s)
    b = charged(charge[1], gain_a[1], dt_s, capacity_a_s)
    c = charged(charge[2], gain_a[2], dt_s, capacity_a_s)
    sag_v += 0.0 if on_dock else RESISTANCE_OHM * load_a / 3.0
    volts_a = open_circuit_v(a) + BATTERY_OFFSET_V[0] - sag_v
    volts_b = open_circuit_v(b) + BATTERY_OFFSET_V[1] - sag_v
    volts_c = open_circuit_v(c) + BATTERY_OFFSET_V[2] - sag_v
    bus_v = DOCK_V if on_dock else (volts_a + volts_b + volts_c) / 3.0 - DIODE_V - BUS_OHM * load_a
    return (a, b, c), (volts_a, volts_b, volts_c), bus_v


POWER_STATE = (
    *("charge", "charging_enabled", "state", "is_low", "sag_v", "battery_v", "bus_v"),
    *("_resumed", "_plugged_s", "_low_s"),
)


class PowerSupply:
    """Batteries, bus and charger.

    Args:
        battery_scale: Factor on the capacity; a small one makes a short life.

    Attributes:
        charge: Share of charge left in each battery (at 40, 160, 280 degrees).
        battery_v: Voltage of each battery under its load.
        bus_v: Voltage of the bus.
        charging_enabled: The host's wish; False after boot.
        state: Charge state, one of this module's constants.
        sag_v: What all voltages are lower than they should be: a tired battery (for tests of what a host does then).
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
        self.charge = [1.0, 1.0, 1.0]
        self.charging_enabled = False
        self.state = UNPLUGGED
        self.is_low = False
        self.sag_v = 0.0
        self._resumed = START
        self._plugged_s = self._low_s = 0.0
        self._settle((0.0, 0.0, 0.0), 0.0, ELECTRONICS_A, False)

    @property
    def holds_motors(self) -> bool:
        """Whether the motors must stand still: on the charger, or without enough power to run at all."""
        return self.is_low or self.state not in (UNPLUGGED, COMPLETE)

    @property
    def bus_byte(self) -> int:
        """Voltage of the bus in the firmware's 0.1 V."""
        return round(10.0 * self.bus_v)

    def advance(self, motors_a: float, on_dock: bool, dt_s: float) -> None:
        """Let `dt_s` pass: the motors take `motors_a` on average, the robot touches the dock's contacts or not."""
        load_a = ELECTRONICS_A + motors_a
        drain_a = 0.0 if on_dock else -load_a / 3.0
        one, two, three = CHARGING
        state = self.state
        gain_a = (
            CHARGE_A if state in one else drain_a,
            CHARGE_A if state in two else drain_a,
            CHARGE_A if state in three else drain_a,
        )
        self._settle(gain_a, dt_s, load_a, on_dock)
        self._plugged_s = self._plugged_s + dt_s if self.bus_v > PLUGGED_V else 0.0
        self._low_s = self._low_s + dt_s if self.bus_v < LOW_V else 0.0
        self.is_low = self._low_s >= LOW_S or (self.is_low and self.bus_v <= LOW_OVER_V)
        self._next_state()

    def _settle(self, gain_a: Three, dt_s: float, load_a: float, on_dock: bool) -> None:
        """Bring charge and voltages up to date."""
        before: Any = tuple(self.charge)
        after = batteries(before, gain_a, dt_s, self._capacity_a_s, load_a, on_dock, self.sag_v)
        self.charge[:], volts, self.bus_v = after
        self.battery_v = list(volts)

    def _next_state(self) -> None:
        """Move through the charge states. Unplugged while charging, the robot stays paralysed until it is back."""
        if self._plugged_s < PLUGGED_S:
            if self.state not in (UNPLUGGED, COMPLETE, INTERRUPTED):
                self._resumed, self.state = self.state, INTERRUPTED
            elif self.state == COMPLETE:
                self.state = UNPLUGGED
        elif self.state == INTERRUPTED:
            self.state = self._resumed
        elif self.state == UNPLUGGED:
            self.state = START if self._wants_charge() else UNPLUGGED
        elif self.state != COMPLETE and not self._stays():
            self.state += 1

    def _stays(self) -> bool:
        """Whether the charger at work has not reached the end of its normal charge, or of its top-off."""
        for i in range(3):
            if self.state == NORMAL[i]:
                return self.charge[i] < TOP_OFF_CHARGE
            if self.state == TOP_OFF[i]:
                return self.charge[i] < 1.0
        return False

    def _wants_charge(self) -> bool:
        """Whether a charge begins: batteries that differ are charged whatever the host says, empty ones likewise."""
        lowest, highest = min(self.battery_v), max(self.battery_v)
        if lowest < DEAD_V:
            return False
        if highest - lowest > UNBALANCED_V:
            return True
        return (self.charging_enabled or lowest < OVERRIDE_V) and self.battery_v[0] < WORTH_CHARGING_V
