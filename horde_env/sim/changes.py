"""A pen that changes during a life: lamps that somebody moves while the robot runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from horde_env.backend import State
from horde_env.robot import RobotSpec
from horde_env.sim.packet import Air
from horde_env.sim.pen import Pen
from horde_env.sim.sensors import Kit, Senses

_ROUNDING_S = 1e-6  # robot time is counted in ticks, so that 9200.1 s may read a little less


class LampMove(NamedTuple):
    """One change.

    Attributes:
        at_s: Robot time of the first packet that sees it, in seconds.
        lamp: Which lamp; a warm object of the same name moves along.
        position_m: Where it goes: x, y, z in metres.
    """

    at_s: float
    lamp: str
    position_m: tuple[float, float, float]


class ChangingSenses(Senses):
    """Senses in a pen whose lamps move; each life begins with the pen as it was given.

    Args:
        spec: The robot.
        pen: The pen before the first move.
        moves: In the order of time.

    Raises:
        ValueError: If a move names an unknown lamp or no place, or the times do not increase from 0 on.
    """

    def __init__(self, spec: RobotSpec, pen: Pen, moves: Sequence[LampMove]) -> None:
        self._pens = [pen]
        for move in moves:
            if len(move.position_m) != 3 or not all(map(math.isfinite, move.position_m)):
                raise ValueError(f"position_m must be three finite numbers (x, y, z in metres), not {move.position_m}")
            self._pens.append(self._pens[-1].lit(move.lamp, position_m=move.position_m))
        self._times = [move.at_s for move in moves]
        is_later = [later > earlier for earlier, later in pairwise([-math.inf, *self._times, math.inf])]
        if not all(is_later) or any(at_s < 0 for at_s in self._times):
            raise ValueError(f"the times of the moves must increase from 0 s on, not {self._times}")
        self._n_moved = 0
        super().__init__(spec, pen)

    def reset(self, rng: Generator) -> None:
        """Begin a life in the pen as it was given."""
        self._n_moved = 0
        self.pen = self._pens[0]
        super().reset(rng)

    def save(self) -> State:
        """Return what `Senses` do, and how many lamps were moved."""
        return super().save() | {"n_moved": np.array(self._n_moved)}

    def restore(self, state: State) -> None:
        """Go on from what `save` returned, in the pen of then."""
        self._n_moved = int(state["n_moved"])
        self.pen = self._pens[self._n_moved]
        super().restore(state)

    def prepare(self, t_s: float) -> tuple[Kit, Air]:
        """Move what is due; the same draws with moves and without."""
        while self._n_moved < len(self._times) and t_s >= self._times[self._n_moved] - _ROUNDING_S:
            self._n_moved += 1
            self.pen = self._pens[self._n_moved]
        return super().prepare(t_s)
