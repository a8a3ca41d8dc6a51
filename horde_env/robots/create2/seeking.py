"""How the robot drives by itself in Passive: to its dock (opcode 143), or cleaning (134 to 136). A script, not a model.

What the real one does is not published. This one knows where its dock is: it drives to a place before it, turns, and
drives in; where it bumps it backs off, turns and goes on elsewhere for a while.
"""

from __future__ import annotations

import math

from numpy.random import Generator

from horde_env.robots.create2.machine import Machine
from horde_env.robots.create2.wire import TICK_S
from horde_env.robots.create2.world import BASE_M, BUMP_L, BUMP_R

FAST, SLOW, TURN = 0.20, 0.08, 1.2  # m/s, m/s, rad/s
BEFORE_M, ARRIVED_M, AIMED_RAD = 0.55, 0.05, 0.05
BACK_S, TURN_S, ASIDE_S = 0.7, (0.5, 1.6), (1.0, 2.5)


class OwnDrive:
    """One drive of the robot's own.

    Args:
        to_dock: To the dock, or cleaning.
    """

    def __init__(self, to_dock: bool) -> None:
        self._to_dock = to_dock
        self._held: list[tuple[float, float, float]] = []  # for how long (s), forward (m/s), yaw (rad/s)
        self._is_lined_up = False

    def wheels(self, machine: Machine, bumped: bool, rng: Generator) -> tuple[float, float]:
        """Return what it asks of the wheels now, left and right, m/s."""
        if self._to_dock and machine.is_docked:
            return 0.0, 0.0
        if bumped and not self._held:
            side = 1.0 if rng.random() < 0.5 else -1.0
            self._held = [
                (BACK_S, -0.15, 0.0),
                (float(rng.uniform(*TURN_S)), 0.0, side * TURN),
                (float(rng.uniform(*ASIDE_S)), FAST, 0.0),
            ]
            self._is_lined_up = False
        elif bumped and self._held[0][1] > 0.0:
            self._held = []
        if self._held:
            left_s, forward, yaw = self._held[0]
            self._held[0] = left_s - TICK_S, forward, yaw
            if left_s <= TICK_S:
                self._held.pop(0)
            return _wheels(forward, yaw)
        return self._towards_dock(machine) if self._to_dock else _wheels(FAST, 0.0)

    def _towards_dock(self, machine: Machine) -> tuple[float, float]:
        dock = machine.room.dock
        x, y, heading = machine.pose
        c, s = math.cos(dock.direction), math.sin(dock.direction)
        ahead, aside = (x - dock.x) * c + (y - dock.y) * s, -(x - dock.x) * s + (y - dock.y) * c
        if not self._is_lined_up:
            to_x, to_y = dock.x + BEFORE_M * c - x, dock.y + BEFORE_M * s - y
            if math.hypot(to_x, to_y) < ARRIVED_M:
                self._is_lined_up = True
            else:
                return _steer(math.atan2(to_y, to_x) - heading, FAST)
        if ahead > 2.0 * BEFORE_M or abs(aside) > 0.15:
            self._is_lined_up = False
        aim = dock.direction + math.pi + math.atan2(2.5 * aside, 0.4)
        return _steer(aim - heading, SLOW)


def is_bumped(machine: Machine) -> bool:
    """Tell whether the bumper is pressed now."""
    found = machine._found
    return bool(found[BUMP_L] or found[BUMP_R])


def _steer(off: float, speed: float) -> tuple[float, float]:
    off = math.remainder(off, 2.0 * math.pi)
    yaw = min(max(2.5 * off, -TURN), TURN)
    return _wheels(speed * max(math.cos(off), 0.0) if abs(off) < 0.7 else 0.0, yaw)


def _wheels(forward: float, yaw: float) -> tuple[float, float]:
    return forward - 0.5 * BASE_M * yaw, forward + 0.5 * BASE_M * yaw
