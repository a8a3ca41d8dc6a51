"""Many simulated robots: `SimulatedBody`'s state with a leading axis, stepped by the same kernels.

`step_fleet` is a whole step of `RobotEnv` for each robot: noise, `period.run_period`, command
monitor, battery, scaling.
"""

from __future__ import annotations

import threading
from typing import Any

import numba
import numpy as np
from numba import prange
from numpy.typing import NDArray

from horde_env import _jit
from horde_env import battery as batteries
from horde_env._jit import DRAWS_IN_KERNEL, addresses_of, draw_noise, kernel_over, scale_to_unit
from horde_env.backend import Floats, Observation
from horde_env.env import RobotEnv
from horde_env.robots.critterbot import safety
from horde_env.robots.critterbot.safety import VoltageMonitor
from horde_env.robots.critterbot.simulator import fields, firmware, motors, packet, period, power
from horde_env.robots.critterbot.simulator.backend import SimulatedBody
from horde_env.sim import planar

NUMBERS = (
    *(
        "t",
        "sensor_age_s",
        "overrun_s",
        "crc_errors",
        "stale",
        "gap",
        "applied",
        "clipped",
        "obeyed",
    ),
    *("battery_low", "battery_urgent", "x_m", "y_m", "heading_rad"),
    *("manoeuvre_steps", "docked"),  # 0: many robots have no drives
)
"""The columns of `SimulatedFleet.numbers`: the keys of `RobotEnv`'s info."""
# Numba's work queue aborts the process if two threads run a parallel loop at the same time. A
# process has one work queue, so its lock is stored in numba, where other packages with parallel
# loops find it.
_WORK_QUEUE_LOCK: threading.Lock = vars(numba).setdefault("horde_work_queue_lock", threading.Lock())
T, GAP, APPLIED, CLIPPED, OBEYED, BATTERY_LOW, BATTERY_URGENT, X, Y, HEADING = 0, *range(5, 14)

# The noise's places among the rows
NORMAL = 17
UNIFORM = 18

# A thread waits for its core while another program uses it: fewer robots are faster without.
ROBOTS_PER_THREAD = 16

Rows = Any  # tuple of arrays (n_robots, ...), what a step changes; see `SimulatedFleet`
Shared = Any  # tuple of arrays that all robots share


@kernel_over(_jit, batteries, safety, fields, packet, firmware, motors, power, planar, period)
def step_robot(
    i: int, requests: Floats, rows: Rows, shared: Shared, observations: Observation
) -> None:
    """Take a step of robot `i`, whose noise was drawn; arguments as for `step_fleet`."""
    (
        arm, wheels, motion, force, amounts, marks, body, contacts, sensed, roller, zones, drift, packets, change,
        lines, along, times, normal, uniform, path, n_ticks, counts, gauge, values, numbers,
    ) = rows  # fmt: skip
    (
        geometry, segments, heights, reflectances, beacon, lamps, warm, earth, iron, near, glare, bright, heat, steps,
        lsb, offset, largest, inertia, corners, pieces, radii, obstacles, matrix, units, face, room, low, span,
        limits_v, at, limits, to_wheels, places,
    ) = shared  # fmt: skip
    plant = arm[i], wheels[i], motion[i], geometry, force[i], amounts[i], marks[i]
    scene = segments, heights, reflectances, beacon, lamps, warm, earth, iron
    memory = sensed[i], roller[i], zones[i], drift[i], packets[i], change[i], lines[i], along[i]
    kit = scene, (near, glare, bright, heat), memory, steps, times[i], room
    scales = lsb, offset, largest, places[0], places[1]
    shape = inertia, corners, pieces, radii, obstacles, contacts[i]
    request = requests[i, 0], requests[i, 1], requests[i, 2]
    tick_state = n_ticks[i], period.NO_WHEEL
    n_ticks[i] += path.shape[1]
    x, y, heading, was_held = period.run_period(
        plant, kit, scales, shape, body[i], (matrix, units, face), tick_state, request, normal[i], uniform[i], path[i],
        values[i],
    )  # fmt: skip
    voltages = values[i, places[2] : places[2] + 3]
    numbers_i = numbers[i]
    safety.judge_voltages(counts[i], limits, to_wheels, request, voltages, not was_held)
    obeyed = counts[i, safety.COMPLAINT] == 0
    applied = obeyed and not was_held
    batteries.read_battery(gauge[i], limits_v, at, values[i], applied)
    numbers_i[CLIPPED] = scale_to_unit(values[i], low, span, observations[i])
    numbers_i[T] = n_ticks[i] * motors.TICK_S
    numbers_i[GAP] = 0.0
    numbers_i[X] = x
    numbers_i[Y] = y
    numbers_i[HEADING] = heading
    if applied:
        numbers_i[APPLIED] = 1.0
    else:
        numbers_i[APPLIED] = 0.0
    if obeyed:
        numbers_i[OBEYED] = 1.0
    else:
        numbers_i[OBEYED] = 0.0
    if batteries.is_low(gauge[i], places[3]):
        numbers_i[BATTERY_LOW] = 1.0
    else:
        numbers_i[BATTERY_LOW] = 0.0
    numbers_i[BATTERY_URGENT] = gauge[i, batteries.IS_URGENT]


@kernel_over(
    _jit, batteries, safety, fields, packet, firmware, motors, power, planar, period, parallel=True
)
def step_fleet(
    due: NDArray[np.bool_],
    addresses: NDArray[np.uint64],
    requests: Floats,
    rows: Rows,
    shared: Shared,
    observations: Observation,
    draws: bool,
) -> None:
    """Take a step of all robots that are due, each in one thread.

    `addresses` are those of their generators (`draw_noise`), from which the noise is drawn here if
    `draws`; `requests` (m/s, m/s, rad/s) have shape (n_robots, 3). `observations` receives the
    scaled observations of those that step, shape (n_robots, n_channels).
    """
    normal = rows[NORMAL]
    uniform = rows[UNIFORM]
    for i in prange(due.shape[0]):
        if due[i]:
            if draws:
                draw_noise(addresses, i, normal, uniform)
            step_robot(i, requests, rows, shared, observations)


class SimulatedFleet:
    """The state of many robots, of which one at a time is that of an environment.

    Args:
        env: An environment with a `SimulatedBody` in the planar engine, after a reset.
        n_robots: Number of robots.

    Attributes:
        numbers: The info of each robot, shape (n_robots, len(NUMBERS)).
    """

    names = NUMBERS

    def __init__(self, env: RobotEnv, n_robots: int) -> None:
        body = env.backend
        monitor = env.command_monitor
        battery = env.battery
        assert isinstance(body, SimulatedBody)
        assert isinstance(monitor, VoltageMonitor)
        machine = body.machine
        senses = body.senses
        spec = env.robot
        engine = machine.body
        assert isinstance(engine, planar.PlanarBody)
        arm, wheels, motion, geometry, force, amounts, marks = machine.plant
        scene, eyes, memory, steps, times, room = senses.kit
        *shape, contacts = engine.shape
        # What a step changes, robot for robot: the body's own arrays, in the order of `step_robot`.
        self._own = (
            *(arm, wheels, motion, force, amounts, marks, engine.state, contacts, *memory),
            *(times, body.normal, body.uniform, body.path),
        )
        self._judges = monitor.counts, battery.numbers
        self._machine = machine
        arrays = (
            *self._own,
            np.zeros((), np.int64),
            *self._judges,
            np.zeros(spec.n_channels),
            np.zeros(len(NUMBERS)),
        )
        self._rows = tuple(np.zeros((n_robots, *array.shape), array.dtype) for array in arrays)
        self.numbers = self._rows[-1]
        lsb, offset, largest, at_request, at_overheating = body.scales
        places = [
            at_request,
            at_overheating,
            spec.group("motor_voltage").start,
            battery.n_held_limit,
        ]
        self._shared = (
            *(geometry, *scene, *eyes, steps, lsb, offset, largest, *shape),
            *(
                machine.firmware.matrix,
                body.units,
                machine.face,
                room,
                spec.low,
                spec.high - spec.low,
            ),
            *(
                battery.limits,
                battery.channels,
                monitor.limits,
                monitor.to_wheels,
                np.array(places, dtype=np.int64),
            ),
        )
        self._generators: list[np.random.Generator] = [env.np_random] * n_robots
        self._addresses = np.zeros((n_robots, 4), np.uint64)

    def store(self, i: int, rng: np.random.Generator, info: dict[str, Any]) -> None:
        """Make robot `i` that of the environment after a reset; `rng` is its generator, `info` the reset's."""
        arrays = *self._own, np.array(self._machine.n_ticks), *self._judges
        for row, array in zip(self._rows, arrays, strict=False):
            row[i] = array
        self.numbers[i] = [info[name] for name in NUMBERS]
        self._generators[i] = rng
        self._addresses[i] = addresses_of(rng)

    def exchange(self, requests: Floats, due: NDArray[np.bool_], observations: Observation) -> None:
        """Hold each request for a period; see `step_fleet`."""
        if not DRAWS_IN_KERNEL:
            for i in np.flatnonzero(due):
                self._generators[i].standard_normal(out=self._rows[NORMAL][i])
                self._generators[i].random(out=self._rows[UNIFORM][i])
        n_threads = numba.get_num_threads()
        numba.set_num_threads(min(n_threads, max(len(due) // ROBOTS_PER_THREAD, 1)))
        try:
            with _WORK_QUEUE_LOCK:
                step_fleet(
                    due,
                    self._addresses,
                    requests,
                    self._rows,
                    self._shared,
                    observations,
                    DRAWS_IN_KERNEL,
                )
        finally:
            numba.set_num_threads(n_threads)
