"""The bus and its three batteries, which discharge over a life and charge at the dock if charging is enabled.

Source of thresholds and charge states: the published sources of the power AVR's and the ARM's
firmware (2011). Volts at rest and their spread are from the real robot's log; capacity and load are
assumptions: a wandering robot runs 12 h from full.
"""

from __future__ import annotations

import numpy as np

from horde_env._jit import kernel
from horde_env.backend import Floats, Ints
from horde_env.sim.saving import number_of

# Charge states of the firmware: the three chargers one after the other, each with a normal charge
# and a top-off. States 3, 5 and 8, which switch a charger on or off, last one step.
UNPLUGGED = 0
START = 1
COMPLETE = 11
INTERRUPTED = 201
CHARGING = ((2, 3, 4), (5, 6, 7), (8, 9, 10))  # states in which 40, 160, 280 is charged
# Of each charger: the states that last
NORMAL = (2, 6, 9)
TOP_OFF = (4, 7, 10)
TOP_OFF_CHARGE = 0.9  # share of charge from which a charger tops off; an assumption

# Of one battery: 12 h at 1.25 A and the 0.56 A that wandering motors take on average
CAPACITY_A_S = 7.7 * 3600.0
ELECTRONICS_A = 1.25
CHARGE_A = 3.0
RESISTANCE_OHM = 0.05  # of a battery and its wires
BUS_OHM = 0.02
DIODE_V = 0.03

# Open-circuit volts over the share of charge left: four lithium cells in series.
CHARGE_KNOTS = (0.0, 0.03, 0.10, 0.25, 0.50, 0.80, 1.0)
VOLT_KNOTS = (11.0, 12.6, 14.0, 14.8, 15.3, 16.0, 16.72)
BATTERY_OFFSET_V = (0.07, -0.06, -0.03)  # means of the log

DOCK_V = 17.6  # on the bus at the dock; above 18.5 V the motors would not turn
PLUGGED_V = 17.2
PLUGGED_S = 0.2
LOW_V = 12.0
LOW_S = 1.0
LOW_OVER_V = 17.0
UNBALANCED_V = 0.2
WORTH_CHARGING_V = 16.0
OVERRIDE_V = 14.5  # below it the dock charges even if charging is disabled
DEAD_V = 8.0

# Numbers of `amounts`.
CHARGE = 0  # first of three batteries, share of the capacity, 0..1
BATTERY_V = 3  # first of three batteries
BUS_V = 6
SAG_V = 7  # reduction of all voltages
PLUGGED = 8  # at the dock since, s
LOW = 9  # below LOW_V since, s
CAPACITY = 10  # of one battery, A s
N_AMOUNTS = 11
# Numbers of `marks`.
ENABLED = 0  # whether charging is, 0 or 1
STATE = 1  # charge state
IS_LOW = 2  # 0 or 1
RESUMED = 3  # charge state that continues when it is plugged in again
N_MARKS = 4

Three = tuple[float, float, float]  # a number per battery, at 40, 160, 280 degrees


@kernel
def open_circuit_v(charge: float) -> float:
    """Return a resting battery's voltage for a share of charge in 0..1, linear between the knots.

    >>> open_circuit_v(0.5)
    15.3
    """
    i = 0
    while i < len(CHARGE_KNOTS) - 2 and charge >= CHARGE_KNOTS[i + 1]:
        i += 1
    share = (charge - CHARGE_KNOTS[i]) / (CHARGE_KNOTS[i + 1] - CHARGE_KNOTS[i])
    return VOLT_KNOTS[i] + share * (VOLT_KNOTS[i + 1] - VOLT_KNOTS[i])


@kernel
def settle(amounts: Floats, gain_a: Three, dt_s: float, load_a: float, on_dock: bool) -> None:
    """Update charge and voltages after `dt_s` under each battery's current; at the dock the load is the dock's."""
    load_sag_v = 0.0
    if not on_dock:
        load_sag_v = RESISTANCE_OHM * load_a / 3.0
    sag_v = amounts[SAG_V] + load_sag_v
    sum_v = 0.0
    for i in range(3):
        charge = amounts[CHARGE + i] + gain_a[i] * dt_s / amounts[CAPACITY]
        amounts[CHARGE + i] = min(max(charge, 0.0), 1.0)
        amounts[BATTERY_V + i] = open_circuit_v(amounts[CHARGE + i]) + BATTERY_OFFSET_V[i] - sag_v
        sum_v += amounts[BATTERY_V + i]
    if on_dock:
        amounts[BUS_V] = DOCK_V
    else:
        amounts[BUS_V] = sum_v / 3.0 - DIODE_V - BUS_OHM * load_a


@kernel
def is_charged(amounts: Floats, state: int) -> bool:
    """Return whether the active charger has completed its normal charge, or its top-off."""
    for i in range(3):
        if state == NORMAL[i]:
            return bool(amounts[CHARGE + i] >= TOP_OFF_CHARGE)
        if state == TOP_OFF[i]:
            return bool(amounts[CHARGE + i] >= 1.0)
    return True


@kernel
def begins_charge(amounts: Floats, enabled: bool) -> bool:
    """Return whether a charge begins; unequal and empty batteries are charged even if charging is disabled."""
    a = amounts[BATTERY_V]
    b = amounts[BATTERY_V + 1]
    c = amounts[BATTERY_V + 2]
    lowest = min(a, b, c)
    highest = max(a, b, c)
    if lowest < DEAD_V:
        return False
    if highest - lowest > UNBALANCED_V:
        return True
    return bool((enabled or lowest < OVERRIDE_V) and a < WORTH_CHARGING_V)


@kernel
def next_state(amounts: Floats, marks: Ints) -> None:
    """Advance the charge state. If unplugged while charging, the robot is paralysed until it is plugged in again."""
    state = marks[STATE]
    if amounts[PLUGGED] < PLUGGED_S:
        if state not in (UNPLUGGED, COMPLETE, INTERRUPTED):
            marks[RESUMED] = state
            marks[STATE] = INTERRUPTED
        elif state == COMPLETE:
            marks[STATE] = UNPLUGGED
    elif state == INTERRUPTED:
        marks[STATE] = marks[RESUMED]
    elif state == UNPLUGGED:
        if begins_charge(amounts, marks[ENABLED] == 1):
            marks[STATE] = START
        else:
            marks[STATE] = UNPLUGGED
    elif state != COMPLETE and is_charged(amounts, state):
        marks[STATE] = state + 1


@kernel
def advance(amounts: Floats, marks: Ints, motors_a: float, on_dock: bool, dt_s: float) -> None:
    """Advance the supply by `dt_s` seconds under the motors' mean current, A; `amounts` and `marks` change in place."""
    load_a = ELECTRONICS_A + motors_a
    if on_dock:
        drain_a = 0.0
    else:
        drain_a = -load_a / 3.0
    state = marks[STATE]
    first_a = CHARGE_A if state in CHARGING[0] else drain_a
    second_a = CHARGE_A if state in CHARGING[1] else drain_a
    third_a = CHARGE_A if state in CHARGING[2] else drain_a
    gain_a = (first_a, second_a, third_a)
    settle(amounts, gain_a, dt_s, load_a, on_dock)
    bus_v = amounts[BUS_V]
    if bus_v > PLUGGED_V:
        amounts[PLUGGED] = amounts[PLUGGED] + dt_s
    else:
        amounts[PLUGGED] = 0.0
    if bus_v < LOW_V:
        amounts[LOW] = amounts[LOW] + dt_s
    else:
        amounts[LOW] = 0.0
    is_low = amounts[LOW] >= LOW_S or (marks[IS_LOW] == 1 and bus_v <= LOW_OVER_V)
    if is_low:
        marks[IS_LOW] = 1
    else:
        marks[IS_LOW] = 0
    next_state(amounts, marks)


@kernel
def bus_byte(amounts: Floats) -> int:
    """Return the voltage of the bus in the firmware's 0.1 V."""
    return int(np.rint(10.0 * amounts[BUS_V]))


@kernel
def holds_motors(marks: Ints) -> bool:
    """Return whether the motors are held still: by the charger, or by a lack of power."""
    return bool(marks[IS_LOW] == 1 or (marks[STATE] != UNPLUGGED and marks[STATE] != COMPLETE))


class PowerSupply:
    """Batteries (at 40, 160, 280 degrees), bus and charger; `battery_scale` is a factor on the capacity.

    `amounts` and `marks` are the kernels' state, with this module's constants as indices. `charge`
    is the share left in each battery, `battery_v` its voltage under load, both of shape (3,).

    Raises:
        ValueError: If `battery_scale` is not positive.
    """

    charging_enabled: bool = number_of("marks", ENABLED, bool)  # set by the host; False after boot
    state: int = number_of("marks", STATE, int)
    # The bus fell below 12 V: off until it has more than 17 V again
    is_low: bool = number_of("marks", IS_LOW, bool)
    _resumed: int = number_of("marks", RESUMED, int)
    bus_v: float = number_of("amounts", BUS_V, float)
    # Reduction of all voltages, as of an old battery
    sag_v: float = number_of("amounts", SAG_V, float)

    def __init__(
        self, battery_scale: float = 1.0, amounts: Floats | None = None, marks: Ints | None = None
    ) -> None:
        if not 0.0 < battery_scale < float("inf"):
            raise ValueError(f"battery_scale must be positive and finite, got {battery_scale}")
        if amounts is None:
            amounts = np.zeros(N_AMOUNTS)
        if marks is None:
            marks = np.zeros(N_MARKS, dtype=np.int64)
        self.amounts: Floats = amounts
        self.marks: Ints = marks
        self.charge = self.amounts[CHARGE:BATTERY_V]
        self.battery_v = self.amounts[BATTERY_V:BUS_V]
        self.amounts[CAPACITY] = CAPACITY_A_S * battery_scale
        self.boot()

    def boot(self) -> None:
        """Boot: batteries full, charging disabled, not at the dock."""
        self.amounts[:CAPACITY] = 0.0
        self.charge[:] = 1.0
        self.marks[:] = 0
        self._resumed = START
        settle(self.amounts, (0.0, 0.0, 0.0), 0.0, ELECTRONICS_A, False)
