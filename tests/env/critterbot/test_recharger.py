"""The robot's own way to its dock, one step at a time: no physics, no bytes."""

from __future__ import annotations

import numpy as np
import pytest

from horde_env.robots.critterbot.emulator.microcontroller import Recharger, Request, State


class Drive:
    """A way that is fed with a beacon: which sensor sees it, and how strongly it blinks."""

    def __init__(self, seed: int = 0) -> None:
        self.way, self._rng, self._k = Recharger(), np.random.default_rng(seed), 0

    def steps(
        self, n: int, sensor: int = 0, blink: float = 0.0, *, moving: bool = True, bus: int = 165
    ) -> list[Request | None]:
        asked = []
        for _ in range(n):
            self._k += 1
            light = np.full(8, 20.0)
            light[sensor] += blink * (self._k % 2)
            asked.append(self.way.step(light, moving, bus, self._rng))
        return asked


def closing() -> Drive:
    drive = Drive()
    drive.steps(40, blink=200)
    assert drive.way.state == State.CLOSE
    return drive


def test_it_asks_nothing_before_it_has_seen_four_packets() -> None:
    assert Drive().steps(4)[:3] == [None, None, None]


def test_without_a_beacon_it_wanders_a_second_this_way_and_a_second_that() -> None:
    """Each of the four directions, and standing, is as likely; light that does not blink is no beacon."""
    asked = Drive().steps(2_003)[3:]
    changes = [k for k in range(1, len(asked)) if asked[k] != asked[k - 1]]
    assert {k % 20 for k in changes} == {19}
    assert set(asked) == {(20, 0, 0), (-20, 0, 0), (0, 20, 0), (0, -20, 0), (0, 0, 0)}
    assert len(changes) == pytest.approx(100 * 4 / 5, abs=15)


@pytest.mark.parametrize(("sensor", "turn"), [(1, 10), (4, 10), (5, -10), (7, -10)])
def test_it_turns_towards_a_beacon_and_drives_when_it_is_ahead(sensor: int, turn: int) -> None:
    drive = Drive()
    drive.steps(25, sensor, blink=40)
    assert drive.steps(1, sensor, blink=40) == [(0, 0, turn)]
    assert drive.steps(10, 0, blink=40)[-1] == (20, 0, 0)


def test_a_beacon_that_is_gone_is_looked_for() -> None:
    drive = Drive()
    drive.steps(30, blink=40)
    assert drive.way.state == State.APPROACH
    drive.steps(8)
    assert drive.way.state == State.WANDER


def test_near_the_dock_it_creeps_and_feels_for_the_contacts_where_it_is_stopped() -> None:
    """Sideways to the left for a second, turning clockwise for a second; 17.1 V on the bus is the dock's."""
    drive = closing()
    assert drive.steps(1, blink=200) == [(8, 0, 0)]
    drive.steps(4, blink=200, moving=False)
    assert drive.way.state == State.CLOSE
    drive.steps(1, blink=200, moving=False)
    assert drive.way.state == State.WIGGLE
    asked = drive.steps(41)
    assert asked == [(0, -8, 0)] * 19 + [(0, 0, -4)] * 20 + [(0, -8, 0)] * 2
    drive.steps(1, bus=170)
    assert drive.way.state == State.WIGGLE
    assert drive.steps(1, bus=171) == [None]
    assert drive.way.state == State.DONE


def test_where_no_power_comes_it_looks_for_the_dock_again() -> None:
    drive = closing()
    drive.steps(5, blink=200, moving=False)
    drive.steps(499)
    assert drive.way.state == State.WIGGLE
    drive.steps(1)
    assert drive.way.state == State.WANDER
