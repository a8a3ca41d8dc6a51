"""The Create 2's drives between episodes: to a free place, and to the dock, charging and leaving.

The robot docks by its own program (opcode 143), which a host cannot steer: a stay starts it,
watches and repeats it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from horde_env.backend import Floats, Frame, Observation
from horde_env.docking import Chargeable, DockingStay, Manoeuvres
from horde_env.robot import RobotSpec

TIME_LIMIT_S = 2.0
# M/s, rad/s: the actions' own
FORWARD = 0.199
TURN = 1.5148936170212766
# Light bumper's reading 0.15 m from a light wall; extra duration of a turn
BLOCKED = 0.5
LAG_S = 0.3

SETTLED_S = 5.0  # the robot counts as docked after charging for this long
# Time limit of one attempt to dock, and number of attempts
SEEK_S = 300.0
SEEKS = 3
MISSED_S = 10.0  # time at the dock without charging until docking is repeated
# The battery is full after this time with a smaller current
FULL_A = 0.15
FULL_S = 60.0
# Time limit to leave the dock; duration of half a turn
AWAY_S = 8.0
TURN_S = 2.1


class ClearingDrive:
    """A drive of 2 s to a free place: turn from obstacles, then drive ahead. The robot's place is unknown."""

    def __init__(self, spec: RobotSpec, place: Any = None) -> None:  # noqa: ARG002
        self._light = spec.group("light_bump")
        self._bump = spec.group("bump")
        self.max_steps = round(TIME_LIMIT_S / spec.period_s)
        self._lag = round(LAG_S / spec.period_s)
        self.n_steps = self._turning = 0
        self._side = 0.0

    def request(self, observation: Observation) -> Floats | None:
        """Return the request (m/s, m/s, rad/s) for a scaled observation, or None at the end."""
        if self.n_steps >= self.max_steps:
            return None
        self.n_steps += 1
        light = observation[self._light]
        bump = observation[self._bump]
        if bump.any() and self.n_steps < 4:
            return np.array([-FORWARD, 0.0, 0.0])
        if light.max() > BLOCKED or bump.any():
            self._turning = self._lag
            if not self._side:
                if light[:3].sum() > light[3:].sum():
                    self._side = -1.0
                else:
                    self._side = 1.0
        if self._turning:
            self._turning -= 1
            return np.array([0.0, 0.0, self._side * TURN])
        return np.array([FORWARD, 0.0, 0.0])


class CreateStay(DockingStay):
    """One stay at the dock, with the robot's own docking; `is_charging` is true from its start on."""

    def __init__(self, spec: RobotSpec, body: Chargeable, charge_s: float) -> None:
        super().__init__(body)
        self._period_s = spec.period_s
        self._charge_s = charge_s
        self._docked = spec.index("docked")
        self._charging = spec.index("charging")
        self._current = spec.index("battery_current")
        self._blocked = spec.index("blocked")
        self._n_seeks = 0
        self._seek_s = self._settled_s = self._missed_s = self._charged_s = self._weak_s = 0.0
        self._leaving_s = self._turned_s = 0.0
        self._is_leaving = False

    def request(self, frame: Frame, observation: Observation) -> Floats | None:  # noqa: ARG002
        """Return the request (m/s, m/s, rad/s) for the newest frame and its scaled observation, or None at the end."""
        if self._is_leaving:
            return self._leave(frame)
        if self.docked:
            return self._charge(frame)
        return self._seek(frame)

    def _seek(self, frame: Frame) -> Floats | None:
        """Wait for docking; repeat it if the robot misses the contacts or takes too long."""
        if self._is_ended:
            return self._begin_to_leave(frame, "docking was ended early")
        is_there = bool(frame.values[self._docked])
        takes = is_there and frame.values[self._charging] and frame.values[self._current] > 0.0
        self._seek_s += self._period_s
        if takes:
            self._settled_s += self._period_s
        else:
            self._settled_s = 0.0
        if is_there and not takes:
            self._missed_s += self._period_s
        else:
            self._missed_s = 0.0
        if self._settled_s >= SETTLED_S:
            self.docked = True
        elif not self._n_seeks or self._seek_s >= SEEK_S:
            if self._n_seeks >= SEEKS:
                return self._begin_to_leave(
                    frame, f"the dock was not found in {SEEKS} times {SEEK_S:g} s"
                )
            self._n_seeks += 1
            self._seek_s = 0.0
            self._send()
        elif self._missed_s >= MISSED_S:
            self._missed_s = 0.0
            self._send()
        return np.zeros(3)

    def _send(self) -> None:
        self.is_charging = True
        self._body.enable_charging(True)

    def _charge(self, frame: Frame) -> Floats | None:
        """Wait until the battery is full or the time limit is reached."""
        self._charged_s += self._period_s
        is_there = bool(frame.values[self._docked])
        if is_there:
            self._missed_s = 0.0
        else:
            self._missed_s += self._period_s
        is_weak = frame.values[self._current] < FULL_A
        if is_weak:
            self._weak_s += self._period_s
        else:
            self._weak_s = 0.0
        if self._missed_s >= MISSED_S:
            return self._begin_to_leave(frame, "the dock's power failed")
        if self._weak_s >= FULL_S:
            return self._begin_to_leave(frame, "charged")
        if self._is_ended or self._charged_s >= self._charge_s:
            return self._begin_to_leave(frame, "charging was ended early")
        return np.zeros(3)

    def _begin_to_leave(self, frame: Frame, outcome: str) -> Floats | None:
        self.outcome = outcome
        self._is_leaving = True
        self.stop_charging()
        return self._leave(frame)

    def _leave(self, frame: Frame) -> Floats | None:
        """Back off until the robot is undocked, then turn by half a turn."""
        self._leaving_s += self._period_s
        is_off = not frame.values[self._docked] and not frame.values[self._blocked]
        if self._turned_s == 0.0 and not (is_off and self._leaving_s >= 1.0):
            if self._leaving_s >= AWAY_S:
                self.outcome += ", and the robot is still held at the dock"
                return None
            return np.array([-FORWARD, 0.0, 0.0])
        self._turned_s += self._period_s
        if self._turned_s > TURN_S:
            return None
        return np.array([0.0, 0.0, TURN])


MANOEUVRES = Manoeuvres(ClearingDrive, CreateStay)
