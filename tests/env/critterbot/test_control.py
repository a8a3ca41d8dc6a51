"""Control packets, in bytes and in SI units."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horde_env.robots.critterbot.wire import (
    STOP,
    Control,
    MotorMode,
    drive,
    encode_control,
)
from tests.env.hardware.packets import RELAXED, SPEC


def test_control_packets_have_nine_bytes() -> None:
    assert encode_control(Control(MotorMode.XYTHETA_SPACE, 20, -3, 0, 1)) == bytes.fromhex("deadbeef 01 14 fd 00 01")
    assert bytes.fromhex("deadbeef 01 00 00 00 00") == STOP  # a velocity of zero


@pytest.mark.parametrize(
    "control", [Control(256), Control(-1), Control(1, 128), Control(1, 0, -129), Control(1, led_mode=256)]
)
def test_a_control_that_does_not_fit_is_refused(control: Control) -> None:
    """The old driver sent the low eight bits: 300 became 44."""
    with pytest.raises(ValueError, match="modes must be"):
        encode_control(control)


@pytest.mark.parametrize(
    ("action", "units"),
    [("forward", (20, 0, 0)), ("reverse", (-20, 0, 0)), ("rotate_clockwise", (0, 0, -10)), ("stop", (0, 0, 0))],
)
def test_an_action_is_these_wire_units(action: str, units: tuple[int, int, int]) -> None:
    request = next(np.array(a.request) for a in SPEC.actions if a.name == action)

    assert drive(request, SPEC) == Control(1, *units)


def test_the_wires_y_points_to_the_right() -> None:
    """A request to the left (+y, SI) is -y on the wire; the likely mistake gives +25."""
    assert drive(np.array([0, 0.44, 0]), SPEC) == Control(1, 0, -25, 0)


@RELAXED
@given(*[st.integers(-127, 127)] * 3)
def test_every_number_of_units_can_be_asked_for(x: int, y: int, theta: int) -> None:
    """A unit is .0176 m/s, of y to the right, and .196 rad/s."""
    assert drive(np.array([0.0176 * x, -0.0176 * y, 0.196 * theta]), SPEC) == Control(1, x, y, theta)


def test_a_request_beyond_int8_is_limited_alike_to_both_sides() -> None:
    assert drive(np.array([99, 99, 99.0]), SPEC) == Control(1, 127, -127, 127)
    assert drive(np.array([-99, -99, -99.0]), SPEC) == Control(1, -127, 127, -127)


@pytest.mark.parametrize("request_", [[0, np.nan, 0], [0, 0], [np.inf, 0, 0]])
def test_a_request_that_is_not_three_finite_numbers_is_refused(request_: list[float]) -> None:
    with pytest.raises(ValueError, match="three finite numbers"):
        drive(np.array(request_), SPEC)
