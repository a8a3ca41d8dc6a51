from __future__ import annotations

import pytest

from horde_env.clock import ManualClock, RealTimeClock, system_boot_time


def clock_by_hand(period_s: float = 0.1) -> tuple[RealTimeClock, ManualClock]:
    hand = ManualClock(now_s=100.0)
    clock = RealTimeClock(period_s, monotonic=hand.monotonic, sleep=hand.sleep)
    clock.start()
    return clock, hand


def live(clock: RealTimeClock, hand: ManualClock, thinking_s: float, body_s: float = 0.0) -> float:
    hand.advance(thinking_s)
    clock.begin()
    hand.advance(body_s)
    return clock.wait()


def test_time_that_passes_on_the_boot_clock_alone_is_a_suspension() -> None:
    hand = ManualClock(now_s=100.0)
    clock = RealTimeClock(0.1, monotonic=hand.monotonic, sleep=hand.sleep, boot_time=hand.boot_time)
    hand.suspend(60.0)  # before the run
    clock.start()
    suspensions = []
    for suspended_s in (0.0, 0.04, 7.0, 0.0):
        hand.suspend(suspended_s)
        live(clock, hand, thinking_s=0.02)
        suspensions.append(clock.was_suspended())
    assert suspensions == [False, False, True, False]


def test_the_systems_boot_clock_is_read_if_the_systems_monotonic_clock_is() -> None:
    clock = RealTimeClock(0.1)
    clock.start()
    assert system_boot_time() > 0.0
    assert not clock.was_suspended()


def test_deadlines_do_not_drift() -> None:
    """A hundred steps of 13 ms of thinking take 10 s; sleeping 0.1 s after each would take 11.3 s."""
    clock, hand = clock_by_hand()
    for _ in range(100):
        assert live(clock, hand, thinking_s=0.013) == pytest.approx(0.0, abs=1e-9)
    assert hand.now_s == pytest.approx(110.0)
    assert clock.missed == 0


@pytest.mark.parametrize(
    ("thinking_s", "body_s", "late_s", "missed", "next_s"),
    [
        (0.14, 0.0, 0.04, 0, 0.2),  # a little late keeps the schedule
        (0.149, 0.0, 0.049, 0, 0.2),
        (0.151, 0.0, 0.051, 1, 0.351),
        (0.01, 0.16, 0.07, 1, 0.27),  # a late frame: the schedule begins again with it
        (3.0, 0.0, 2.9, 1, 3.2),  # a command after its own deadline is held for a whole period
    ],
)
def test_more_than_fifty_milliseconds_late_is_missed(
    thinking_s: float, body_s: float, late_s: float, missed: int, next_s: float
) -> None:
    """And the schedule begins again."""
    clock, hand = clock_by_hand()
    assert live(clock, hand, thinking_s, body_s) == pytest.approx(late_s)
    assert clock.missed == missed
    assert live(clock, hand, thinking_s=0.0) == pytest.approx(0.0)
    assert hand.now_s == pytest.approx(100.0 + next_s)


def test_a_body_that_shares_the_clock_waits_once() -> None:
    """A serial port sends, waits and reads inside `exchange`; the environment's own wait then adds nothing."""
    clock, hand = clock_by_hand()
    clock.begin()
    hand.advance(0.12)
    assert clock.wait() == pytest.approx(0.02)
    hand.advance(0.05)
    assert clock.wait() == pytest.approx(0.02)
    assert clock.missed == 0


def test_a_sleep_that_wakes_early_is_repeated() -> None:
    hand = ManualClock()
    clock = RealTimeClock(
        0.1, monotonic=hand.monotonic, sleep=lambda s: hand.sleep(0.7 * s if s > 1e-4 else s)
    )
    clock.start()
    clock.begin()
    clock.wait()
    assert hand.now_s == pytest.approx(0.1)
    assert len(hand.slept_s) > 2


def test_start_forgets_what_was_missed() -> None:
    clock, hand = clock_by_hand()
    live(clock, hand, thinking_s=1.0)
    clock.start()
    assert clock.missed == 0
    assert live(clock, hand, thinking_s=0.0) == pytest.approx(0.0)


@pytest.mark.parametrize("period_s", [0.0, -0.1, float("nan")])
def test_a_period_must_be_positive(period_s: float) -> None:
    with pytest.raises(ValueError, match="period_s must be positive"):
        RealTimeClock(period_s)
