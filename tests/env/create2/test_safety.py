"""When the supervisor of the Create 2 stops it, and lets it go: by thresholds, one for each."""

from __future__ import annotations

import pytest

from horde_env.robot import Floats, create2
from horde_env.robots.create2.safety import CreateSupervisor

SPEC = create2()


def frame(*, celsius: float = 25.0, volts: float = 16.0, charging: bool = False) -> Floats:
    values = (SPEC.low + SPEC.high) / 2
    values[SPEC.index("battery_temperature")] = 273.15 + celsius
    values[SPEC.index("battery_voltage")] = volts
    values[SPEC.index("charging")] = charging
    values[SPEC.group("wheel_overcurrent")] = 0.0
    return values


def reasons(frames: list[Floats]) -> list[str]:
    supervisor = CreateSupervisor(SPEC)
    return [supervisor.judge(values, 0, SPEC.period_s * k) for k, values in enumerate(frames)]


def test_a_hot_battery_stops_it_until_it_has_cooled_or_charges() -> None:
    """Above 55 degrees C, until 50; the reason keeps the first reading, 56."""
    hot = "the battery has 56 degrees C, more than 55; the robot waits for 50"
    temperatures = [54.9, 56.0, 57.0, 54.0, 50.1, 50.0, 54.0]
    assert reasons([frame(celsius=t) for t in temperatures]) == ["", hot, hot, hot, hot, "", ""]
    assert reasons([frame(celsius=56.0), frame(celsius=60.0, charging=True)]) == [hot, ""]


@pytest.mark.parametrize("recovered_v", [13.5, 13.9])
def test_an_empty_battery_stops_it_until_its_mean_voltage_has_recovered(recovered_v: float) -> None:
    """The mean over 5 s starts at the first reading, 13.1 V, and must reach 13.8 V: 13.5 V never suffice.

    After n steps of 0.1 s at 13.9 V it is 13.9 - 0.8 x 0.98^n, which is 13.8 from n = 103 on.
    """
    frames = [frame(volts=13.1), *[frame(volts=recovered_v)] * 110]
    may_move = [not reason for reason in reasons(frames)]
    n_stopped = 111
    if recovered_v > 13.8:
        n_stopped = 103
    assert may_move == [False] * n_stopped + [True] * (111 - n_stopped)
