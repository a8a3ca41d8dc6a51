"""Control packets, in bytes and in SI units."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horde_env.robots.critterbot.wire import (
    STOP,
    Control,
    LedMode,
    MotorMode,
    decode_control,
    drive,
    encode_control,
)
from tests.env.hardware.packets import RELAXED, SPEC, controls


def test_the_golden_control_packet() -> None:
    control = Control(MotorMode.XYTHETA_SPACE, 20, 0, 0, LedMode.CLEAR)

    assert encode_control(control) == bytes.fromhex("deadbeef 01 14 00 00 01")
    assert decode_control(bytes.fromhex("deadbeef 01 14 00 00 01")) == control


def test_stop_is_a_velocity_of_zero() -> None:
    """Not WHEEL_VOLTAGE, and not the all-zero WHEEL_SPACE packet of the old driver."""
    assert bytes.fromhex("deadbeef 01 00 00 00 00") == STOP


@RELAXED
@given(controls)
def test_a_control_survives_its_packet(control: Control) -> None:
    packet = encode_control(control)

    assert len(packet) == (57 if control.led_mode == 7 else 9)
    assert decode_control(packet) == control


@pytest.mark.parametrize(
    "control",
    [
        Control(256),
        Control(-1),
        Control(1, 128),
        Control(1, 0, -129),
        Control(1, led_mode=256),
        Control(1, led_mode=7),
        Control(1, led_mode=7, leds=bytes(47)),
        Control(1, led_mode=1, leds=bytes(48)),
    ],
)
def test_a_control_that_does_not_fit_is_refused(control: Control) -> None:
    """The old driver sent the low eight bits: 300 became 44."""
    with pytest.raises(ValueError, match=r"modes must be|custom LEDs are 48 bytes"):
        encode_control(control)


@pytest.mark.parametrize("packet", [b"", STOP[:-1], STOP + b"\0", b"\0" + STOP[1:], STOP[:8] + b"\7"])
def test_bytes_that_are_no_control_are_refused(packet: bytes) -> None:
    with pytest.raises(ValueError, match="a control packet is 9 bytes"):
        decode_control(packet)


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
