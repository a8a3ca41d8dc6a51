"""The state of simulated robots: structured records whose fields are the arrays that a period changes.

`state_type` declares them all. Firmware, supply, body and senses have views of their fields; kernels
take an array of records and an index, and a saved state is a record without its scratch.
A new variable is a field here, and what its kernel makes of `robot.NAME`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from horde_env._jit import Record, Records
from horde_env.backend import State
from horde_env.robot import RobotSpec
from horde_env.robots.critterbot.arena import Pen
from horde_env.robots.critterbot.simulator import fields, firmware, motors, packet, period, power
from horde_env.sim import planar
from horde_env.sim.planar import Motion

SCRATCH = ("contacts", "lines", "along", "normal", "uniform", "path")
"""Fields that each period writes before it reads them."""


def state_type(spec: RobotSpec, pen: Pen, n_ticks: int) -> np.dtype[Any]:
    """Return the dtype of a robot's state; `n_ticks` is the number of ticks from one packet to the next."""
    n_near = len(spec.angles("ir_distance"))
    n_glare = len(spec.angles("ir_light"))
    n_bright = len(spec.angles("light"))
    n_warm = len(spec.angles("thermal"))
    n_sensed = spec.group("thermal").stop - spec.group("acceleration").start
    # Of the encoders at each tick, of the packet's first channels, of its senses, in this order
    n_sense_draws = packet.N_FELT_DRAWS + n_near + 2 * n_glare + n_bright + 2 * n_warm
    n_normal = 3 * n_ticks + period.N_NOISE + n_sense_draws
    n_lines = max(3 * n_near, n_glare, n_bright, n_warm)
    shapes: dict[str, tuple[type, tuple[int, ...]]] = {
        # Firmware: words of the ARM, and a column per wheel.
        "arm": (np.int64, (firmware.N_WORDS,)),
        "wheels": (np.int64, (firmware.N_ROWS, 3)),
        # Motors, and their force on the body in the last tick: N, N, N m.
        "motion": (np.float64, (motors.N_ROWS, 3)),
        "force": (np.float64, (3,)),
        # Power supply.
        "amounts": (np.float64, (power.N_AMOUNTS,)),
        "marks": (np.int64, (power.N_MARKS,)),
        # The planar engine's pose and velocity, and its contacts; unused with PyBullet.
        "body": (np.float64, (planar.N_MOTION,)),
        "contacts": (np.float64, (planar.MOST_CONTACTS, planar.N_COLUMNS)),
        # What the sensors keep from packet to packet: readings before the converter (those of the
        # thermal zones stay until they are refreshed), phases of the wheels' rollers (rad), lagged
        # temperatures of the thermal zones and their drift (K), infrared light of the last two
        # packets (share of full scale) and its change between them.
        "sensed": (np.float64, (n_sensed,)),
        "roller": (np.float64, (3,)),
        "zones": (np.float64, (n_warm,)),
        "drift": (np.float64, (n_warm,)),
        "packets": (np.float64, (2, n_glare)),
        "change": (np.float64, (n_glare,)),
        "times": (np.float64, (packet.N_TIMES,)),
        # Lines of sight: see `fields.Scratch`.
        "lines": (np.float64, (fields.N_LINE_ROWS, n_lines)),
        "along": (np.float64, (len(pen.segments()), n_lines)),
        # The period's random numbers: standard normals, and uniforms for the jumps of ir_distance.
        "normal": (np.float64, (n_normal,)),
        "uniform": (np.float64, (2, n_near)),
        # Motion at the end of each tick.
        "path": (np.float64, (n_ticks, len(Motion._fields))),
    }
    return _record_type(tuple((name, kind, shape) for name, (kind, shape) in shapes.items()))


@cache
def _record_type(fields_of_type: tuple[tuple[str, type, tuple[int, ...]], ...]) -> np.dtype[Any]:
    """Return the dtype of records with these fields, the same object each time.

    Numba knows an array's type by its dtype object; an equal one is compared field by field, 1 us in
    each call of a kernel.
    """
    return np.dtype((Record, list(fields_of_type)))


def new_robot(spec: RobotSpec, pen: Pen, *, n_ticks: int | None = None) -> Records:
    """Return the state of a robot that was never switched on, shape (1,); `n_ticks` are those of a period when None."""
    if n_ticks is None:
        n_ticks = round(spec.period_s / motors.TICK_S)
    return np.zeros(1, state_type(spec, pen, n_ticks))


def saved_fields(robot: Record) -> State:
    """Return copies of the arrays that later periods depend on."""
    names = robot.dtype.names or ()
    return {name: robot[name].copy() for name in names if name not in SCRATCH}


def restore_fields(robot: Record, state: State) -> None:
    """Restore a state from `saved_fields`, in place."""
    for name in saved_fields(robot):
        robot[name][...] = state[name]
