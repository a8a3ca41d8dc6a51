"""The Create 2's drives between episodes: to a free place, and to the dock, charging and leaving.

The robot docks by its own program (opcode 143), which a host cannot steer: a stay starts it, watches and repeats it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from horde_env.backend import Floats, Frame, Observation
from horde_env.drives import Chargeable, Drives, Stay
from horde_env.robot import RobotSpec

TIME_LIMIT_S = 2.0
FORWARD, TURN = 0.199, 1.5148936170212766  # m/s, rad/s: the actions' own
BLOCKED, LAG_S = 0.5, 0.3  # light bumper's reading 0.15 m from a light wall; extra duration of a turn

SETTLED_S = 5.0  # the robot counts as docked after charging for this long
SEEK_S, SEEKS = 300.0, 3  # time limit of one attempt to dock, and number of attempts
MISSED_S = 10.0  # time at the dock without charging until docking is repeated
FULL_A, FULL_S = 0.15, 60.0  # the battery is full after this time with a smaller current
AWAY_S, TURN_S = 8.0, 2.1  # time limit to leave the dock; duration of half a turn


class ClearingDrive:
    """A drive of 2 s to a free place: turn from obstacles, then drive ahead. The robot's place is unknown."""

    def __init__(self, spec: RobotSpec, place: Any = None) -> None:  # noqa: ARG002
        self._light, self._bump = spec.group("light_bump"), spec.group("bump")
        self.max_steps, self._lag = round(TIME_LIMIT_S / spec.period_s), round(LAG_S / spec.period_s)
        self.n_steps = self._turning = 0
        self._side = 0.0

    def request(self, observation: Observation) -> Floats | None:
        """Return the request (m/s, m/s, rad/s) for a scaled observation, or None at the end."""
        if self.n_steps >= self.max_steps:
            return None
        self.n_steps += 1
        light, bump = observation[self._light], observation[self._bump]
        if bump.any() and self.n_steps < 4:
            return np.array([-FORWARD, 0.0, 0.0])
        if light.max() > BLOCKED or bump.any():
            self._turning = self._lag
            if not self._side:
                self._side = -1.0 if light[:3].sum() > light[3:].sum() else 1.0
        if self._turning:
            self._turning -= 1
            return np.array([0.0, 0.0, self._side * TURN])
        return np.array([FORWARD, 0.0, 0.0])


class CreateStay(Stay):
    """One stay at the dock, with the robot's own docking; `is_charging` is true from its start on."""

    def __init__(self, spec: RobotSpec, body: Chargeable, charge_s: float) -> None:
        super().__init__(body)
        self._period_s, self._charge_s = spec.period_s, charge_s
        self._docked, self._charging = spec.index("docked"), spec.index("charging")
        self._current, self._blocked = spec.index("battery_current"), spec.index("blocked")
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
        self._settled_s = self._settled_s + self._period_s if takes else 0.0
        self._missed_s = self._missed_s + self._period_s if is_there and not takes else 0.0
        if self._settled_s >= SETTLED_S:
            self.docked = True
        elif not self._n_seeks or self._seek_s >= SEEK_S:
            if self._n_seeks >= SEEKS:
                return self._begin_to_leave(frame, f"the dock was not found in {SEEKS} times {SEEK_S:g} s")
            self._n_seeks, self._seek_s = self._n_seeks + 1, 0.0
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
        self._missed_s = 0.0 if is_there else self._missed_s + self._period_s
        is_weak = frame.values[self._current] < FULL_A
        self._weak_s = self._weak_s + self._period_s if is_weak else 0.0
        if self._missed_s >= MISSED_S:
            return self._begin_to_leave(frame, "the dock's power failed")
        if self._weak_s >= FULL_S:
            return self._begin_to_leave(frame, "charged")
        if self._is_ended or self._charged_s >= self._charge_s:
            return self._begin_to_leave(frame, "charging was ended early")
        return np.zeros(3)

    def _begin_to_leave(self, frame: Frame, outcome: str) -> Floats | None:
        self.outcome, self._is_leaving = outcome, True
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


DRIVES = Drives(ClearingDrive, CreateStay)
