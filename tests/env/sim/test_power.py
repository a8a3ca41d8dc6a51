"""The batteries, the bus and the charger."""

from __future__ import annotations

import numpy as np
import pytest

from horde_env.sim import power
from horde_env.sim.power import PowerSupply

HOUR_S = 3600.0
# The mean that a wandering life takes for its motors; test_backend measures it.
WANDERING_A = 0.56


def hours_until_low(motors_a: float) -> float:
    supply, hours = PowerSupply(), 0.0
    while not supply.is_low:
        supply.advance(motors_a, on_dock=False, dt_s=10.0)
        hours += 10.0 / HOUR_S
    return hours


def test_full_batteries_last_twelve_hours_of_wandering() -> None:
    assert 12.0 <= hours_until_low(WANDERING_A) <= 13.0


def test_motors_shorten_the_life() -> None:
    assert hours_until_low(1.0) < 0.8 * hours_until_low(0.0)


def test_a_full_robot_reads_as_in_the_log() -> None:
    """Log: bus 163 to 167, batteries 164 to 168 (x 0.1 V)."""
    supply = PowerSupply()
    for motors_a in (0.0, 0.3, 2.0):
        supply.advance(motors_a, on_dock=False, dt_s=0.1)
        assert 163 <= supply.bus_byte <= 167
        assert all(164 <= 10 * v <= 168 for v in supply.battery_v)


def test_the_dock_changes_nothing_but_the_bus_while_charging_is_disabled() -> None:
    """As after boot: half empty, an hour at the dock, and never a moment in which the motors are held."""
    supply = PowerSupply()
    supply.charge[:] = [0.5, 0.5, 0.5]
    for _ in range(3600):
        supply.advance(0.2, on_dock=True, dt_s=1.0)
        assert not supply.holds_motors
    assert supply.charge.tolist() == [0.5, 0.5, 0.5]
    assert 172 < supply.bus_byte <= 185  # "plugged" for the firmware, and the motors still turn


def test_enabled_the_dock_charges_one_battery_after_the_other() -> None:
    supply = PowerSupply()
    supply.charge[:] = [0.6, 0.6, 0.6]
    supply.charging_enabled = True
    states = [supply.state]
    while supply.state != power.COMPLETE:
        supply.advance(0.0, on_dock=True, dt_s=1.0)
        if supply.state != states[-1]:
            states.append(supply.state)
            assert supply.holds_motors == (supply.state != power.COMPLETE)
    assert states == list(range(12))
    assert supply.charge.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(("charge", "begins"), [((1.0, 1.0, 0.98), False), ((1.0, 1.0, 0.93), True)])
def test_batteries_that_differ_are_charged_though_charging_is_disabled(charge: tuple[float, ...], begins: bool) -> None:
    """By more than 0.2 V: 16.79 V against 16.62 or 16.44 V. A robot that brushes its dock is held by it then."""
    supply = PowerSupply()
    supply.charge[:] = charge
    for _ in range(30):
        supply.advance(0.0, on_dock=True, dt_s=0.1)
    assert supply.holds_motors == begins


def test_away_from_the_dock_nothing_charges() -> None:
    supply = PowerSupply()
    supply.charging_enabled = True
    supply.charge[:] = [0.3, 0.3, 0.3]
    supply.advance(0.0, on_dock=False, dt_s=60.0)
    assert supply.state == power.UNPLUGGED
    assert max(supply.charge) < 0.3


def test_unplugged_while_charging_the_robot_is_paralysed_until_it_is_back() -> None:
    """State 201, and back in the state that was left: not in 1, which would begin again."""
    supply = PowerSupply()
    supply.charging_enabled = True
    supply.charge[:] = [0.95, 0.3, 0.3]
    for _ in range(300):
        supply.advance(0.0, on_dock=True, dt_s=1.0)
    assert supply.state == 4
    supply.advance(0.0, on_dock=False, dt_s=0.1)
    assert (supply.state, supply.holds_motors) == (power.INTERRUPTED, True)
    supply.advance(0.0, on_dock=True, dt_s=0.1)
    assert supply.state == power.INTERRUPTED
    supply.advance(0.0, on_dock=True, dt_s=0.1)
    assert supply.state == 4


def test_leaving_the_dock_when_all_are_full_is_no_interruption() -> None:
    supply = PowerSupply(battery_scale=0.01)
    supply.charging_enabled = True
    supply.charge[:] = [0.6, 0.6, 0.6]
    while supply.state != power.COMPLETE:
        supply.advance(0.0, on_dock=True, dt_s=1.0)
    supply.advance(0.0, on_dock=False, dt_s=0.1)
    assert (supply.state, supply.holds_motors) == (power.UNPLUGGED, False)


def test_a_load_pulls_the_voltages_down() -> None:
    """6 A more are 2 A of each battery, 0.05 ohm each: 0.1 V; the bus loses 0.02 ohm x 6 A more."""
    seen = []
    for motors_a in (0.0, 6.0):
        supply = PowerSupply()
        supply.advance(motors_a, on_dock=False, dt_s=1e-6)
        seen.append([*supply.battery_v, supply.bus_v])
    np.testing.assert_allclose(np.subtract(*seen), [0.1, 0.1, 0.1, 0.1 + 0.12], atol=1e-6)


def test_a_tired_battery_lowers_all_voltages() -> None:
    rested, tired = PowerSupply(), PowerSupply()
    tired.sag_v = 4.0
    rested.advance(0.5, on_dock=False, dt_s=0.1)
    tired.advance(0.5, on_dock=False, dt_s=0.1)
    assert tired.bus_v == pytest.approx(rested.bus_v - 4.0)
    assert tired.battery_v == pytest.approx([v - 4.0 for v in rested.battery_v])


def test_a_touch_shorter_than_a_fifth_of_a_second_is_no_plug() -> None:
    supply = PowerSupply()
    supply.charging_enabled = True
    supply.charge[:] = [0.3, 0.3, 0.3]
    supply.advance(0.0, on_dock=True, dt_s=0.1)
    assert supply.state == power.UNPLUGGED


@pytest.mark.parametrize(("charge", "charges"), [(0.25, False), (0.15, True)])
def test_below_14_and_a_half_volts_the_dock_charges_against_the_hosts_wish(charge: float, charges: bool) -> None:
    """0.25 of the charge is 14.8 V, 0.15 is 14.27 V."""
    supply = PowerSupply()
    supply.charge[:] = [charge] * 3
    for _ in range(5):
        supply.advance(0.0, on_dock=True, dt_s=1.0)
    assert supply.holds_motors == charges


def test_unequal_batteries_are_charged_though_the_first_is_high() -> None:
    supply = PowerSupply()
    supply.charging_enabled = True
    supply.charge[:] = [0.95, 0.6, 0.95]
    for _ in range(5):
        supply.advance(0.0, on_dock=True, dt_s=1.0)
    assert supply.holds_motors


def test_an_empty_robot_stays_off_until_the_dock_revives_it() -> None:
    """Off below 12.0 V for a second; on again above 17.0 V, which only the dock reaches."""
    supply = PowerSupply()
    supply.charge[:] = [0.005] * 3
    supply.advance(0.0, on_dock=False, dt_s=0.5)
    assert not supply.is_low
    supply.advance(0.0, on_dock=False, dt_s=0.5)
    assert supply.is_low
    assert supply.holds_motors
    supply.charge[:] = [0.9] * 3
    supply.advance(0.0, on_dock=False, dt_s=1.0)
    assert supply.is_low
    supply.advance(0.0, on_dock=True, dt_s=0.1)
    assert not supply.is_low


def test_a_small_scale_makes_a_short_life() -> None:
    small, large = PowerSupply(0.01), PowerSupply(1.0)
    small.advance(0.5, on_dock=False, dt_s=1.0)
    large.advance(0.5, on_dock=False, dt_s=100.0)
    assert small.charge == pytest.approx(large.charge, rel=1e-12)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_that_is_not_positive_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="battery_scale"):
        PowerSupply(scale)
