"""What is repeated between two commands; and, as bytes to the emulated firmware, that its runaway ends under it."""

from __future__ import annotations

import pytest

from horde_env.hardware.link import KeepAlive
from horde_env.robots.critterbot.wire import COAST, HALT, RAMP_S, STOP, Control, MotorMode, encode_control

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


def last_words(which: list[Control]) -> dict[int, bytes]:
    """Return what closing a link says, by the cycle in which it arrives (`Link.close`)."""
    return dict(zip((1, 3, 1 + round(100 * RAMP_S)), map(encode_control, which), strict=True))


@pytest.mark.sim
@pytest.mark.parametrize("damaged_from", [1, 22, 60])
def test_a_stop_damaged_into_a_duty_does_not_drive_on(damaged_from: int) -> None:
    """A burst makes mode 2 of the first repetition from that cycle on: while the robot brakes, or while it stands.

    A ramp of 20 cycles continues and overrules the duties. After it, if only velocity 0 is repeated, the wheels turn at
    40 units without end. With duty 0 they are at zero when RAMP_S and two repetitions have passed.
    """
    pytest.importorskip("pybullet")
    from tests.env.critterbot.emulated import robot, say, setpoints

    damaged = encode_control(Control(MotorMode.WHEEL_VOLTAGE, 40, 40, 40))

    def drive_and_stop(coast: bytes) -> list[int]:
        """Return the greatest setpoint of each cycle of 10 ms from the stop on."""
        it, hand = robot(), Hand()
        keep = KeepAlive(STOP, coast, repeat_s=0.05, hold_s=0.35, monotonic=hand, ramp_s=RAMP_S)
        for _ in range(40):
            say(it, *HALT._replace(a=20)[:4])
            it.cycle(look=False)
        keep.renew(b"forward")
        keep.renew(STOP)
        greatest, spoilt = [], False
        for k in range(300):
            hand.t = 0.01 * k
            data = keep.due() if k else STOP
            if data and k >= damaged_from and not spoilt:
                data, spoilt = damaged, True
            it.receive(data)
            it.cycle(look=False)
            greatest.append(max(map(abs, setpoints(it))))
        return greatest

    if is_braking := damaged_from < 20:
        assert drive_and_stop(STOP)[25:] == [0] * 275
    else:
        assert drive_and_stop(STOP)[-1] == 40, "this firmware has no runaway: the test would show nothing"
    stopped = drive_and_stop(DUTY_0)
    assert is_braking or max(stopped[damaged_from:]) == 40
    over = max(round(100 * RAMP_S), damaged_from) + 11
    assert stopped[over:] == [0] * (300 - over)


@pytest.mark.sim
@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_the_last_words_end_a_runaway_whichever_of_them_was_damaged(damaged: int) -> None:
    """Then the line is silent. The second packet arrives during the ramp of the first."""
    pytest.importorskip("pybullet")
    from tests.env.critterbot.emulated import robot, say, setpoints

    def at_the_end(words: list[Control]) -> list[int]:
        it = robot()
        for _ in range(40):
            say(it, *HALT._replace(a=20)[:4])
            it.cycle(look=False)
        words[damaged] = Control(MotorMode.WHEEL_VOLTAGE, 40, 40, 40)
        said = last_words(words)
        for k in range(150):
            it.receive(said.get(k, b""))
            it.cycle(look=False)
        return setpoints(it)

    assert at_the_end([HALT, HALT, COAST]) == [0, 0, 0]
