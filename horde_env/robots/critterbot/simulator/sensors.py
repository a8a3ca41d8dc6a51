"""Senses: channels 16..52 of a packet, from the body's state and the pen alone (no engine), noisy and quantised.

Each model is a kernel in `fields.py` or `packet.py`; this file adds lags, time and the steps of the
converter. The noise of each group is from the real robot at rest (log of 5 October 2010);
docs/results.md compares them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.random import Generator

from horde_env._jit import Record, Records
from horde_env.backend import State
from horde_env.robot import RobotSpec
from horde_env.robots.critterbot.arena import Pen
from horde_env.robots.critterbot.simulator import packet
from horde_env.robots.critterbot.simulator.state import new_robot

_ROUNDING_S = 1e-6  # robot time is counted in ticks, so 9200.1 s may be slightly less

# The groups that measure at a distance, in the order of the channels.
EYES = packet.Eyes._fields


class Senses:
    """All sensors of the world and of the body's motion: acceleration to thermal.

    Attributes:
        scene: What the sensors perceive now; a new record after each change of the pen.
        eyes: Where the sensors are that measure at a distance.
        robots: The state of the robot, an array of one, as the kernels of `period` take it.
        state: Its record, with what they keep from packet to packet: see `state.state_type`.
        has_moves: Whether lamps move; the random draws are the same with moves and without.
        steps: Of the converter, shape (4, 37); see `packet.quantise`.
        room: See `packet`, shape (4,).

    Args:
        spec: The robot, with the sensors' poses and converters.
        pen: The surroundings at the beginning of a life. Assign `senses.pen` to change them between
            two packets.
        lamp_moves: Changes during each life, by increasing time: robot time of the first packet
            after the move in seconds, name of the lamp, new position (x, y, z) in metres. A warm
            object of the same name moves along.
        robots: The robot's state; a new one when None.

    Raises:
        ValueError: If a lamp is unknown, a position invalid, or the times do not increase from 0
            on.
    """

    def __init__(
        self,
        spec: RobotSpec,
        pen: Pen,
        lamp_moves: Sequence[Any] = (),
        robots: Records | None = None,
    ) -> None:
        self._move_s, self._pens = _moves(pen, lamp_moves)
        self.has_moves = bool(self._move_s)
        self._n_moved = 0
        first = spec.group("acceleration").start
        last = spec.group("thermal").stop
        self._ir_light = spec.group("ir_light")
        converter = np.stack([spec.lsb, spec.offset, spec.raw_low, spec.raw_high])
        self.steps = converter[:, first:last].copy()
        sensors = [np.column_stack([spec.positions(name), spec.angles(name)]) for name in EYES]
        self.eyes = packet.Eyes(*sensors)
        if robots is None:
            robots = new_robot(spec, pen)
        self.robots = robots
        self.state: Record = robots[0]
        self.pen = pen
        self.reset(np.random.default_rng(0))

    @property
    def pen(self) -> Pen:
        """The surroundings."""
        return self._pen

    @pen.setter
    def pen(self, pen: Pen) -> None:
        self._pen = pen
        beacon = pen.beacon
        earth = pen.magnetism
        lamps = [[*lamp.position_m, lamp.intensity] for lamp in pen.lamps]
        warm = [[*body.position_m, *body[2:]] for body in pen.warm]
        iron = [[*piece.position_m, piece.depth_m, *piece.field] for piece in pen.iron]
        self.scene = packet.Scene(
            segments=pen.segments(),
            heights=pen.heights(),
            reflectances=pen.reflectances(),
            beacon=np.array([*beacon.position_m, beacon.direction_rad, beacon.intensity]),
            lamps=np.array(lamps).reshape(-1, 4),
            warm=np.array(warm).reshape(-1, 6),
            earth=np.array([earth.north_rad, *earth.centre, *earth.swing]),
            iron=np.array(iron).reshape(-1, 6),
        )
        self.room = np.array(pen.room)

    def reset(self, rng: Generator) -> None:
        """Clear all lags, and draw this life's beacon oscillator, roller phases and thermal drift from `rng`."""
        self._move_to(0)
        state = self.state
        state.times[packet.BLINK_HZ] = rng.uniform(*self._pen.beacon.rate_hz)
        state.times[packet.BLINK_PHASE] = rng.random()
        state.roller[:] = rng.uniform(0.0, 2.0 * math.pi, 3)
        state.drift[:] = packet.THERMAL_DRIFT_SD * rng.standard_normal(state.drift.size)
        state.zones[:] = 0.0
        state.times[packet.LAST_S] = -math.inf
        state.times[packet.ZONE_S] = -math.inf

    def save(self) -> State:
        """Return the number of lamp moves so far if there are any; the rest is in the robot's arrays."""
        if self.has_moves:
            return {"n_moved": np.array(self._n_moved)}
        return {}

    def restore(self, state: State) -> None:
        """Restore a state from `save`."""
        self._move_to(int(state.get("n_moved", 0)))

    def move_lamps(self, t_s: float) -> None:
        """Move the lamps that are due at `t_s`, seconds."""
        self._move_to(sum(t_s >= move_s - _ROUNDING_S for move_s in self._move_s))

    def _move_to(self, n_moved: int) -> None:
        if n_moved != self._n_moved:
            self._n_moved = n_moved
            self.pen = self._pens[n_moved]


def _moves(pen: Pen, lamp_moves: Sequence[Any]) -> tuple[list[float], list[Pen]]:
    """Return the times of the moves, and the pens before, between and after them."""
    try:
        moves = [(at_s, lamp, (x, y, z)) for at_s, lamp, (x, y, z) in lamp_moves]
        is_sound = all(
            isinstance(lamp, str) and all(map(math.isfinite, (t, *place)))
            for t, lamp, place in moves
        )
    except (TypeError, ValueError):
        is_sound = False
    if not is_sound:
        expected = "a sequence of (seconds, name of a lamp, (x, y, z) in metres), all finite"
        raise ValueError(f"lamp_moves must be {expected}, not {lamp_moves!r}")
    times = [float(at_s) for at_s, _, _ in moves]
    pens = [pen]
    if any(at_s < 0 for at_s in times) or not all(
        later > earlier for earlier, later in pairwise(times)
    ):
        raise ValueError(f"the times of the moves must increase from 0 s on, not {times}")
    for _, lamp, place in moves:
        pens.append(pens[-1].lit_from(lamp, place))
    return times, pens
