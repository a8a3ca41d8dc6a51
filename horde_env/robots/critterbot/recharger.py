"""Recharger: the robot's own way to its dock, which its console begins and which no host's command interrupts.

Source: the Critterbot's ARM firmware (lib_recharger.c). Its wall avoidance is left out: under the published signs of
the sensors it would steer into the walls.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

import numpy as np
from numpy.random import Generator

from horde_env.backend import Floats

Request = tuple[int, int, int]  # x, y (to the RIGHT), theta in wire units

CYCLES_PER_STEP = 5
ALTERNATING = (1.0, -1.0, 1.0, -1.0)
SEEN, NEAR = 10, 150  # of 255: the alternation of infrared light that is the beacon's, and the one beside the dock
DOCKED_BUS = 170  # 0.1 V
FAST, SLOW, TURN, SLOW_TURN = 20, 8, 10, 4  # wire units
WANDERING = ((FAST, 0, 0), (-FAST, 0, 0), (0, FAST, 0), (0, -FAST, 0), (0, 0, 0))
WANDER_STEPS, WIGGLE_STEPS, STANDS_AFTER, GIVES_UP_AFTER = 20, 20, 5, 500


class State(Enum):
    """What it is at."""

    WANDER = "looks for the beacon"
    APPROACH = "drives to it"
    CLOSE = "creeps into the dock"
    WIGGLE = "feels for the contacts"
    DONE = "is there"


class Recharger:
    """The robot's search for its dock, one step in 50 ms.

    Attributes:
        state: What it is at; it ends in DONE.
    """

    def __init__(self) -> None:
        self.state = State.WANDER
        self._seen: deque[Floats] = deque(maxlen=len(ALTERNATING))
        self._n_steps = self._n_standing = 0
        self._direction: Request = WANDERING[0]

    def step(self, ir_light: Floats, is_moving: bool, bus: int, rng: Generator) -> Request | None:
        """Return what the robot drives now, or None where it says nothing to its motors.

        Args:
            ir_light: The packet's eight readings, of 256.
            is_moving: Whether any wheel turns.
            bus: Bus voltage, 0.1 V.
            rng: Source of the direction of a search.
        """
        self._seen.append(ir_light)
        if len(self._seen) < len(ALTERNATING):
            return None
        beacon = np.abs(np.array(ALTERNATING) @ np.array(self._seen)) // 2
        ahead = int(np.argmax(beacon)) == 0
        self._n_steps += 1
        self._n_standing = 0 if is_moving else self._n_standing + 1
        if self.state == State.WIGGLE:
            return self._wiggle(bus)
        if self.state == State.WANDER or beacon.max() < SEEN:
            return self._wander(bool(beacon.max() >= SEEN), rng)
        if not ahead:
            return 0, 0, TURN if int(np.argmax(beacon)) <= 4 else -TURN
        if self.state == State.CLOSE and self._n_standing >= STANDS_AFTER:
            self._enter(State.WIGGLE)
        elif self.state == State.APPROACH and beacon[0] >= NEAR:
            self._enter(State.CLOSE)
        return (SLOW if self.state == State.CLOSE else FAST), 0, 0

    def _enter(self, state: State) -> None:
        self.state, self._n_steps, self._n_standing = state, 0, 0

    def _wander(self, sees: bool, rng: Generator) -> Request:
        """Drive for a second in one direction, then in another; approach a beacon that is there at its end."""
        if self.state != State.WANDER:
            self._enter(State.WANDER)
        if self._n_steps % WANDER_STEPS == 0:
            if sees:
                self._enter(State.APPROACH)
            self._direction = WANDERING[int(rng.integers(len(WANDERING)))]
        return self._direction

    def _wiggle(self, bus: int) -> Request | None:
        """Half sideways, half turning, until there is power; search again after 25 s without."""
        if bus > DOCKED_BUS:
            self._enter(State.DONE)
            return None
        if self._n_steps >= GIVES_UP_AFTER:
            self._enter(State.WANDER)
        return (0, -SLOW, 0) if self._n_steps // WIGGLE_STEPS % 2 == 0 else (0, 0, -SLOW_TURN)
