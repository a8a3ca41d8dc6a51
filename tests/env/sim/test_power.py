"""The batteries, the bus and the charger."""

from __future__ import annotations

import numpy as np
import pytest

from horde_env.robots.critterbot.simulator import power
from horde_env.robots.critterbot.simulator.power import PowerSupply


def supply_with(charge: float | tuple[float, ...], *, enabled: bool = True) -> PowerSupply:
    supply = PowerSupply()
    supply.charge[:] = charge
    supply.charging_enabled = enabled
    return supply


def hours_until_low(motors_a: float) -> float:
    supply = PowerSupply()
    hours = 0.0
    while not supply.is_low:
        power.advance(supply.amounts, supply.marks, motors_a, False, 10.0)
        hours += 10.0 / 3600.0
    return hours


def test_full_batteries_last_twelve_hours_of_wandering_and_less_under_load() -> None:
    wandering_a = 0.56  # the motors' mean current in a wandering life
    assert 12.0 <= hours_until_low(wandering_a) <= 13.0
    assert hours_until_low(1.0) < 0.8 * hours_until_low(0.0)


def test_a_full_robot_reads_as_in_the_log() -> None:
    """Log: bus 163 to 167, batteries 164 to 168 (x 0.1 V)."""
    supply = PowerSupply()
    for motors_a in (0.0, 0.3, 2.0):
        power.advance(supply.amounts, supply.marks, motors_a, False, 0.1)
        assert 163 <= power.bus_byte(supply.amounts) <= 167
        assert all(164 <= 10 * v <= 168 for v in supply.battery_v)


def test_the_dock_changes_only_the_bus_while_charging_is_disabled() -> None:
    """As after boot: half empty, an hour at the dock, and the motors are never held."""
    supply = supply_with(0.5, enabled=False)
    for _ in range(3600):
        power.advance(supply.amounts, supply.marks, 0.2, True, 1.0)
        assert not power.holds_motors(supply.marks)
    assert supply.charge.tolist() == [0.5, 0.5, 0.5]
    # "plugged" for the firmware, and the motors still turn
    assert 172 < power.bus_byte(supply.amounts) <= 185


def test_enabled_the_dock_charges_one_battery_after_the_other_and_can_then_be_left() -> None:
    supply = supply_with(0.6)
    states = [supply.state]
    while supply.state != power.COMPLETE:
        power.advance(supply.amounts, supply.marks, 0.0, True, 1.0)
        if supply.state != states[-1]:
            states.append(supply.state)
            assert power.holds_motors(supply.marks) == (supply.state != power.COMPLETE)
    assert states == list(range(12))
    assert supply.charge.tolist() == [1.0, 1.0, 1.0]
    power.advance(supply.amounts, supply.marks, 0.0, False, 0.1)
    assert (supply.state, power.holds_motors(supply.marks)) == (power.UNPLUGGED, False)


@pytest.mark.parametrize(
    ("charge", "enabled", "on_dock", "duration_s", "charges"),
    [
        # 16.79 and 16.62 V: they differ by less than 0.2 V
        ((1.0, 1.0, 0.98), False, True, 3.0, False),
        ((1.0, 1.0, 0.93), False, True, 3.0, True),  # 16.44 V: charged even if the host forbids it
        ((0.95, 0.6, 0.95), True, True, 3.0, True),  # the first is full
        ((0.25, 0.25, 0.25), False, True, 3.0, False),  # 14.8 V
        # 14.27 V, below 14.5 V: even if the host forbids it
        ((0.15, 0.15, 0.15), False, True, 3.0, True),
        ((0.3, 0.3, 0.3), True, True, 0.1, False),  # a contact shorter than 0.2 s
        ((0.3, 0.3, 0.3), True, False, 60.0, False),
    ],
)
def test_when_a_charge_begins(
    charge: tuple[float, ...], enabled: bool, on_dock: bool, duration_s: float, charges: bool
) -> None:
    supply = supply_with(charge, enabled=enabled)
    for _ in range(round(duration_s / 0.1)):
        power.advance(supply.amounts, supply.marks, 0.0, on_dock, 0.1)
    assert power.holds_motors(supply.marks) == charges
    assert (supply.state == power.UNPLUGGED) != charges
    assert on_dock or max(supply.charge) < 0.3


def test_unplugged_while_charging_the_robot_is_paralysed_until_it_is_plugged_in_again() -> None:
    """State 201, then the state before it: not 1, which would start a new charge."""
    supply = supply_with((0.95, 0.3, 0.3))
    for _ in range(300):
        power.advance(supply.amounts, supply.marks, 0.0, True, 1.0)
    assert supply.state == 4
    for on_dock, state in ((False, power.INTERRUPTED), (True, power.INTERRUPTED), (True, 4)):
        power.advance(supply.amounts, supply.marks, 0.0, on_dock, 0.1)
        assert (supply.state, power.holds_motors(supply.marks)) == (state, True)


def test_a_load_lowers_the_voltages() -> None:
    """6 A more are 2 A of each battery, 0.05 ohm each: 0.1 V; the bus loses 0.02 ohm x 6 A more."""
    voltages = []
    for motors_a in (0.0, 6.0):
        supply = PowerSupply()
        power.advance(supply.amounts, supply.marks, motors_a, False, 1e-6)
        voltages.append([*supply.battery_v, supply.bus_v])
    np.testing.assert_allclose(np.subtract(*voltages), [0.1, 0.1, 0.1, 0.1 + 0.12], atol=1e-6)


def test_an_empty_robot_is_off_until_it_is_docked() -> None:
    """Off below 12.0 V for a second; on again above 17.0 V, which only the dock supplies."""
    supply = supply_with(0.005, enabled=False)
    for charge, on_dock, dt_s, is_low in (
        (0.005, False, 0.5, False), (0.005, False, 0.5, True), (0.9, False, 1.0, True), (0.9, True, 0.1, False),
    ):  # fmt: skip
        supply.charge[:] = charge
        power.advance(supply.amounts, supply.marks, 0.0, on_dock, dt_s)
        assert (supply.is_low, power.holds_motors(supply.marks)) == (is_low, is_low)
