"""The bytes that are repeated between two commands; test_stopping.py shows that they stop the firmware."""

from __future__ import annotations

from horde_env.hardware.link import KeepAlive
from horde_env.robots.critterbot.wire import COAST, RAMP_S, STOP, encode_control

DUTY_0 = encode_control(COAST)


class Hand:
    """A clock moved by hand."""

    t = 0.0

    def __call__(self) -> float:
        return self.t


def test_a_stop_never_becomes_too_old() -> None:
    hand = Hand()
    keep = KeepAlive(STOP, DUTY_0, repeat_s=0.05, hold_s=0.35, monotonic=hand, ramp_s=RAMP_S)
    hand.t = 10.0
    assert keep.due() == DUTY_0
    assert (keep.lapsed, keep.n_lapses) == (False, 0)


def test_a_stop_brakes_while_its_ramp_lasts_and_is_duty_0_from_then_on() -> None:
    """Repeating a stop at 10 Hz, as a policy that stands still does, does not restart its ramp; a command ends it."""
    hand = Hand()
    keep = KeepAlive(STOP, DUTY_0, repeat_s=3 / 64, hold_s=22 / 64, monotonic=hand, ramp_s=RAMP_S)
    keep.renew(b"forward")
    assert keep.ramp_left_s == RAMP_S
    hand.t = 1.0
    keep.renew(STOP)
    sent = {}
    for i in range(64, 128):
        hand.t = i / 64
        if i % 6 == 4:
            keep.renew(STOP)
        if data := keep.due():
            sent[i] = data

    ramp_ends = 1.0 + RAMP_S
    assert {data for i, data in sent.items() if i / 64 < ramp_ends} == {STOP}
    assert {data for i, data in sent.items() if i / 64 > ramp_ends} == {DUTY_0}
    assert keep.ramp_left_s == 0.0
    keep.renew(b"forward")
    keep.renew(STOP)
    hand.t += 3 / 64
    assert keep.due() == STOP
