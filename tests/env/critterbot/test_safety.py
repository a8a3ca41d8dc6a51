"""When the robot must not move, and when it may again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horde_env.robot import Floats, critterbot
from horde_env.robots.critterbot.safety import Supervisor

SPEC = critterbot()
HEAT = SPEC.index("motor_temperature_220")


def frame(*, bus: int = 160, heat: int = 128, flag: bool = False) -> Floats:
    raw = np.zeros(SPEC.n_channels)
    raw[SPEC.group("bus_voltage")] = bus
    raw[SPEC.group("motor_temperature")] = 128
    raw[HEAT] = heat
    raw[SPEC.index("overheating")] = flag
    return SPEC.to_si(raw)


def judged(frames: list[Floats], charge: int = 0) -> list[bool]:
    """Return for each frame whether the robot may move."""
    supervisor = Supervisor(SPEC)
    return [not supervisor.judge(values, charge, 0.1 * k) for k, values in enumerate(frames)]


@pytest.mark.parametrize(
    ("reading", "life", "free"),
    [
        ("heat", [128] * 3, "yyy"),
        # The firmware's own: off below 65, on again at 85
        ("heat", [66, 65, 64, 65, 84, 85, 84, 65, 64], "yynnnyyyn"),
        ("bus", [125, 124, 125, 134, 135, 125, 124], "ynnnyyn"),  # 12.5 V and 13.5 V
        ("bus", [185, 186, 185, 184, 183, 185], "ynnnyy"),  # 18.5 V and 18.3 V
        ("flag", [True, True, False], "nny"),
    ],
)
def test_a_reading_stops_it_until_it_is_beyond_a_margin(
    reading: str, life: list[int], free: str
) -> None:
    frames = [frame(**{reading: value}) for value in life]
    for charge in (0, 11):
        assert judged(frames, charge) == [letter == "y" for letter in free]


def test_the_robots_own_flag_stops_it_until_all_motors_are_cool() -> None:
    assert judged([frame(flag=True), frame(heat=84), frame(heat=85)]) == [False, False, True]


@pytest.mark.parametrize("state", [*range(1, 11), 200, 201, 215, 235])
def test_only_two_charge_states_let_it_move(state: int) -> None:
    assert judged([frame()], charge=state) == [False]


def test_a_chattering_contact_keeps_it_still_until_it_was_silent_for_half_a_second() -> None:
    supervisor = Supervisor(SPEC)
    states = [1, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    free = [not supervisor.judge(frame(), state, 0.125 * k) for k, state in enumerate(states)]
    assert free == [False] * 7 + [True] * 3


def test_a_new_connection_whose_time_begins_again_does_not_wait_for_ever() -> None:
    supervisor = Supervisor(SPEC)
    assert supervisor.judge(frame(), 2, 1000.0)
    assert supervisor.judge(frame(), 0, 0.0)
    assert not supervisor.judge(frame(), 0, 0.5)


def test_a_reading_that_is_no_number_stops_it() -> None:
    for channel in ("bus_voltage", "motor_temperature_340", "overheating"):
        broken = frame()
        broken[SPEC.index(channel)] = np.nan
        assert judged([broken, frame()]) == [False, True], channel


def test_the_reason_names_the_numbers_and_does_not_change_while_it_holds() -> None:
    """Neither by a better reading nor by a worse one, nor by the robot's own flag."""
    low = "bus voltage 11.9 V is below 12.5 V; the robot waits for 13.5 V"
    high = "bus voltage 19.0 V is above 18.5 V; the robot waits for 18.3 V"
    hot = "motor 220 is too hot: its reading is 60 of 255, where lower is hotter; the robot waits for 85"
    lives = [
        (low, [frame(bus=119), frame(bus=130), frame(bus=115)]),
        (high, [frame(bus=190), frame(bus=184), frame(bus=195)]),
        (hot, [frame(heat=60), frame(heat=70), frame(heat=50), frame(heat=70, flag=True)]),
    ]
    for first, frames in lives:
        supervisor = Supervisor(SPEC)
        for k, values in enumerate(frames):
            assert supervisor.judge(values, 0, 0.1 * k) == first
    assert "charger reports a fault" in str(Supervisor(SPEC).judge(frame(), 211, 0.0))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 255),
            st.integers(0, 255),
            st.booleans(),
            st.sampled_from([0, 11, 2, 211]),
        )
    )
)
def test_it_stops_at_once_and_lets_go_only_beyond_every_margin(
    life: list[tuple[int, int, bool, int]],
) -> None:
    """At 1 s per frame, so that contacts count as settled: it moves again only on a frame beyond all margins."""
    supervisor = Supervisor(SPEC)
    free = True
    for k, (bus, heat, flag, charge) in enumerate(life):
        was_free = free
        free = not supervisor.judge(frame(bus=bus, heat=heat, flag=flag), charge, 1.0 * k)
        if not 125 <= bus <= 185 or heat < 65 or flag or charge not in (0, 11):
            assert not free
        if free and not was_free:
            assert bus <= 185
            assert heat >= 65
            assert charge in (0, 11)
        if 135 <= bus <= 183 and heat >= 85 and not flag and charge in (0, 11):
            assert free
