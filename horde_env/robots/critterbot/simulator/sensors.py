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

from horde_env.backend import Floats, State
from horde_env.robot import RobotSpec
from horde_env.robots.critterbot.arena import Pen
from horde_env.robots.critterbot.simulator import fields, packet, period
from horde_env.sim.saving import inner, nested

_ROUNDING_S = 1e-6  # robot time is counted in ticks, so 9200.1 s may be slightly less

_TIMES = ("_blink_hz", "_blink_phase", "_last_s", "_zone_s")  # names of `times` in a saved state

# The groups that measure at a distance, in the order of the channels.
EYES = ("ir_distance", "ir_light", "light", "thermal")


class Senses:
    """All sensors of the world and of the body's motion: acceleration to thermal.

    Args:
        spec: The robot, with the sensors' poses and converters.
        pen: The surroundings at the beginning of a life. Assign `senses.pen` to change them between
            two packets.
        lamp_moves: Changes during each life, by increasing time: robot time of the first packet
            after the move in seconds, name of the lamp, new position (x, y, z) in metres. A warm
            object of the same name moves along.

    Raises:
        ValueError: If a lamp is unknown, a position invalid, or the times do not increase from 0
            on.
    """

    def __init__(self, spec: RobotSpec, pen: Pen, lamp_moves: Sequence[Any] = ()) -> None:
        self._move_s, self._pens = _moves(pen, lamp_moves)
        self._n_moved = 0
        first = spec.group("acceleration").start
        last = spec.group("thermal").stop
        self._own = slice(first, last)
        self._ir_light = spec.group("ir_light")
        self._steps = np.stack([spec.lsb, spec.offset, spec.raw_low, spec.raw_high])[
            :, self._own
        ].copy()
        sensors = [np.column_stack([spec.positions(name), spec.angles(name)]) for name in EYES]
        n_near, n_glare, n_bright, n_warm = map(len, sensors)
        self._eyes: Any = tuple(sensors)
        # Numbers of standard normals per packet, and of readings that jump (two draws each).
        self.n_normal = packet.N_FELT_DRAWS + n_near + 2 * n_glare + n_bright + 2 * n_warm
        self.n_uniform = n_near
        self._roller = np.zeros(3)
        self._zones = np.zeros(n_warm)
        self._drift = np.zeros(n_warm)
        # Infrared light of the last two, quantised, share of full scale
        self.packets = np.zeros((2, n_glare))
        self._change = np.zeros(n_glare)
        values = np.zeros(last - first)
        # The kernels' state: see `packet.air_at` and `packet.read`; `kit` are their arguments: see
        # `period`. The scratch at the end of `memory` is not saved.
        self.times = np.zeros(packet.N_TIMES)
        scratch = fields.scratch_for(max(3 * n_near, n_glare, n_bright, n_warm), pen.segments())
        arrays = values, self._roller, self._zones, self._drift, self.packets, self._change
        self.memory: packet.Memory = *arrays, *scratch
        self.pen = pen
        self.reset(np.random.default_rng(0))

    @property
    def beacon(self) -> Floats:
        """Change of each ir_light sensor between the last two packets, share of full scale, shape (8,)."""
        return self._change.copy()

    @property
    def pen(self) -> Pen:
        """The surroundings."""
        return self._pen

    @pen.setter
    def pen(self, pen: Pen) -> None:
        self._pen = pen
        self._scene: packet.Scene = (
            pen.segments(),
            pen.heights(),
            pen.reflectances(),
            np.array([*pen.beacon.position_m, pen.beacon.direction_rad, pen.beacon.intensity]),
            np.array([[*lamp.position_m, lamp.intensity] for lamp in pen.lamps]).reshape(-1, 4),
            np.array([[*w.position_m, *w[2:]] for w in pen.warm]).reshape(-1, 6),
            np.array([pen.magnetism.north_rad, *pen.magnetism.centre, *pen.magnetism.swing]),
            np.array([[*i.position_m, i.depth_m, *i.field] for i in pen.iron]).reshape(-1, 6),
        )
        room = np.array(pen.room)
        self.kit: period.Senses = (
            self._scene,
            self._eyes,
            self.memory,
            self._steps,
            self.times,
            room,
        )

    def reset(self, rng: Generator) -> None:
        """Clear all lags, and draw this life's beacon oscillator, roller phases and thermal drift from `rng`."""
        self._move_to(0)
        self.times[packet.BLINK_HZ] = rng.uniform(*self._pen.beacon.rate_hz)
        self.times[packet.BLINK_PHASE] = rng.random()
        self._roller[:] = rng.uniform(0.0, 2.0 * math.pi, 3)
        self._drift[:] = packet.THERMAL_DRIFT_SD * rng.standard_normal(self._drift.size)
        self._zones[:] = 0.0
        self.times[packet.LAST_S] = self.times[packet.ZONE_S] = -math.inf

    def save(self) -> State:
        """Return the lags, this life's beacon, and the number of lamp moves so far if there are any."""
        memory = {f"{i}": array.copy() for i, array in enumerate(self.memory[:-2])}
        moved = {}
        if self._move_s:
            moved = {"n_moved": np.array(self._n_moved)}
        return (
            nested(memory=memory, own=dict(zip(_TIMES, map(np.array, self.times), strict=True)))
            | moved
        )

    def restore(self, state: State) -> None:
        """Restore a state from `save`."""
        self._move_to(int(state.get("n_moved", 0)))
        for i, array in enumerate(self.memory[:-2]):
            array[...] = state[f"memory/{i}"]
        self.times[:] = [inner(state, "own")[name] for name in _TIMES]

    def at(self, t_s: float) -> period.Senses:
        """Move the lamps that are due at `t_s`, seconds, and return the kernels' arguments."""
        if self._move_s:  # the random draws are the same with moves and without
            self._move_to(sum(t_s >= move_s - _ROUNDING_S for move_s in self._move_s))
        return self.kit

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
