"""BatchState: many simulated robots, each with the state of a `SimulatedBody`, stepped by its kernels.

`step_row` is a whole step of the environment of one robot: noise, `period.run_period`, command
monitor, battery, scaling.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from horde_env import _jit, observer
from horde_env._jit import (
    DRAWS_IN_KERNEL,
    RecordFields,
    Records,
    RowLoop,
    addresses_of,
    draw_noise,
    kernel,
    kernel_over,
)
from horde_env.backend import (
    DOCKED_KEY,
    FRAME_KEYS,
    MANOEUVRE_STEPS_KEY,
    Floats,
    Ints,
    Observation,
)
from horde_env.env import RobotEnv
from horde_env.robots.critterbot import safety
from horde_env.robots.critterbot.safety import VoltageMonitor
from horde_env.robots.critterbot.simulator import fields, firmware, motors, packet, period, power
from horde_env.robots.critterbot.simulator.backend import SimulatedBody
from horde_env.sim import planar

# Numba's work queue aborts the process if two threads run a parallel loop at the same time. A
# process has one work queue, so its lock is stored in numba, where other packages with parallel
# loops find it.
_WORK_QUEUE_LOCK: threading.Lock = vars(numba).setdefault("horde_work_queue_lock", threading.Lock())

# Files of the kernels that a step calls.
SOURCES = (
    _jit,
    observer,
    safety,
    fields,
    packet,
    firmware,
    motors,
    power,
    planar,
    period,
)

# A thread waits for its core while another program uses it: fewer robots are faster without.
ROBOTS_PER_THREAD = 16


INFO_NAMES = tuple(
    key.name
    for key in (
        *FRAME_KEYS,
        *VoltageMonitor.info_keys,
        *observer.BATTERY_KEYS,
        *SimulatedBody.info_keys,
        MANOEUVRE_STEPS_KEY,  # 0, as the next: many robots have no drives
        DOCKED_KEY,
    )
)
"""Columns of `BatchState.numbers`: the keys of the environment's info."""

# Columns that a step writes; the others stay as the reset's info has them
T = INFO_NAMES.index("t")
GAP = INFO_NAMES.index("gap")
APPLIED = INFO_NAMES.index("applied")
CLIPPED = INFO_NAMES.index("clipped")
OBEYED = INFO_NAMES.index("obeyed")
BATTERY_LOW = INFO_NAMES.index("battery_low")
BATTERY_URGENT = INFO_NAMES.index("battery_urgent")
X_M = INFO_NAMES.index("x_m")
Y_M = INFO_NAMES.index("y_m")
HEADING_RAD = INFO_NAMES.index("heading_rad")


class Judgements(NamedTuple):
    """What a step of the environment keeps of each robot beside its body, a row per robot."""

    n_ticks: Ints  # of 10 ms, since it was switched on, (n,)
    counts: Ints  # of `safety.judge_voltages`, (n, safety.N_COUNTS)
    charge: Floats  # of `observer.read_battery`, (n, observer.N_NUMBERS)
    values: Floats  # the newest frame's, SI units, (n, n_channels)
    numbers: Floats  # the info's, (n, len(INFO_NAMES))


class Limits(NamedTuple):
    """Limits and scales that all robots share."""

    battery_limits: Floats  # of `observer.read_battery`
    battery_channels: Ints  # of `observer.read_battery`
    command_limits: Ints  # of `safety.judge_voltages`
    to_wheels: Floats  # of `safety.judge_voltages`
    voltage_channel: int  # first of the motors' three
    low: Floats  # of the channels' ranges, SI units, (n_channels,)
    span: Floats  # of the channels' ranges, SI units, (n_channels,)


class StepArguments(NamedTuple):
    """Arrays and records of all robots that a step of one of them reads and writes."""

    due: NDArray[np.bool_]  # mask of the robots that take a step, (n,)
    addresses: NDArray[np.uint64]  # of the robots' generators, see `draw_noise`, (n, 4)
    requests: Floats  # m/s, m/s, rad/s, (n, 3)
    robots: Records  # their states, see `state.state_type`, (n,)
    model_fields: RecordFields
    judgement_fields: RecordFields
    limit_fields: RecordFields
    observations: Observation  # receives those that are scaled, (n, n_channels)
    draws: int  # 1 if the kernel draws the noise, 0 if it was drawn before


@kernel
def flag(is_true: bool) -> float:
    """Return 1 or 0, as info has it; numba has no float(bool)."""
    if is_true:
        return 1.0
    return 0.0


@kernel_over(_jit, observer, safety)
def judge_frame(
    i: int,
    judgements: Judgements,
    limits: Limits,
    request: period.Request,
    was_held: bool,
    observation: Observation,
) -> None:
    """Judge robot `i`'s newest frame by the kernels of `RobotEnv`: command monitor, battery, scaling.

    `was_held`: whether the body blocked the request. `observation` receives the scaled values.
    """
    values = judgements.values[i]
    counts = judgements.counts[i]
    charge = judgements.charge[i]
    numbers = judgements.numbers[i]
    voltages = values[limits.voltage_channel : limits.voltage_channel + 3]
    safety.judge_voltages(
        counts, limits.command_limits, limits.to_wheels, request, voltages, not was_held
    )
    is_obeyed = counts[safety.COMPLAINT] == 0
    is_applied = is_obeyed and not was_held
    n_clipped = observer.observe_values(
        charge,
        limits.battery_limits,
        limits.battery_channels,
        values,
        is_applied,
        limits.low,
        limits.span,
        observation,
    )
    numbers[GAP] = 0.0
    numbers[APPLIED] = flag(is_applied)
    numbers[CLIPPED] = n_clipped
    numbers[OBEYED] = flag(is_obeyed)
    numbers[BATTERY_LOW] = charge[observer.IS_LOW]
    numbers[BATTERY_URGENT] = charge[observer.IS_URGENT]


@kernel_over(*SOURCES)
def step_robot(
    i: int,
    request: period.Request,
    robots: Records,
    model_fields: RecordFields,
    judgements: Judgements,
    limits: Limits,
    observation: Observation,
) -> None:
    """Take a step of robot `i` under a request, after its noise was drawn; records as of `StepArguments`."""
    n_ticks = judgements.n_ticks[i]
    x, y, heading, was_held = period.run_period(
        robots, i, model_fields, n_ticks, period.NO_WHEEL, request, False, judgements.values[i]
    )
    n_ticks += robots[i].path.shape[0]
    judgements.n_ticks[i] = n_ticks
    judge_frame(i, judgements, limits, request, was_held, observation)
    numbers = judgements.numbers[i]
    numbers[T] = n_ticks * motors.TICK_S
    numbers[X_M] = x
    numbers[Y_M] = y
    numbers[HEADING_RAD] = heading


def step_row(arguments: tuple[StepArguments], i: int) -> int:
    """Take a step of robot `i` if it is due, with noise from its generator; a function of `RowLoop`."""
    step = StepArguments(*arguments[0])
    if step.due[i]:
        robot = step.robots[i]
        judgements = Judgements(*step.judgement_fields)
        limits = Limits(*step.limit_fields)
        if step.draws:
            draw_noise(step.addresses[i], robot.normal, robot.uniform)
        request = (step.requests[i, 0], step.requests[i, 1], step.requests[i, 2])
        step_robot(
            i, request, step.robots, step.model_fields, judgements, limits, step.observations[i]
        )
    return 0


class BatchState:
    """The state of many robots, of which one at a time is that of an environment.

    Args:
        env: An environment with a `SimulatedBody` in the planar engine, after a reset.
        n_robots: Number of robots.

    Attributes:
        robots: The robots' states, see `state.state_type`, shape (n_robots,).
        judgements: What a step keeps of each robot beside its body.
        numbers: The info of each robot, shape (n_robots, len(INFO_NAMES)).
    """

    names = INFO_NAMES

    def __init__(self, env: RobotEnv, n_robots: int) -> None:
        body = env.backend
        command_monitor = env.command_monitor
        battery_monitor = env.battery
        assert isinstance(body, SimulatedBody)
        assert isinstance(command_monitor, VoltageMonitor)
        assert isinstance(body.machine.body, planar.PlanarBody)
        spec = env.robot
        self._machine = body.machine
        self._command_monitor = command_monitor
        self._battery_monitor = battery_monitor
        self._robot = body.machine.robots
        self.robots = np.zeros(n_robots, self._robot.dtype)
        self.judgements = Judgements(
            n_ticks=np.zeros(n_robots, np.int64),
            counts=_rows_of(command_monitor.counts, n_robots),
            charge=_rows_of(battery_monitor.numbers, n_robots),
            values=np.zeros((n_robots, spec.n_channels)),
            numbers=np.zeros((n_robots, len(INFO_NAMES))),
        )
        self.numbers = self.judgements.numbers
        limits = Limits(
            battery_limits=battery_monitor.limits,
            battery_channels=battery_monitor.channels,
            command_limits=command_monitor.limits,
            to_wheels=command_monitor.to_wheels,
            voltage_channel=spec.group("motor_voltage").start,
            low=spec.low,
            span=spec.high - spec.low,
        )
        self._generators: list[np.random.Generator] = [env.np_random] * n_robots
        self._addresses = np.zeros((n_robots, 4), np.uint64)
        self._due = np.zeros(n_robots, np.bool_)
        self._requests = np.zeros((n_robots, 3))
        self._observations = np.zeros((n_robots, spec.n_channels), np.float32)
        # Plain tuples, as the kernels receive records
        arguments = StepArguments(
            due=self._due,
            addresses=self._addresses,
            requests=self._requests,
            robots=self.robots,
            model_fields=body.machine.model(),
            judgement_fields=tuple(self.judgements),
            limit_fields=tuple(limits),
            observations=self._observations,
            draws=int(DRAWS_IN_KERNEL),
        )
        self._step_rows = RowLoop(step_row, tuple(arguments), SOURCES)

    def __getstate__(self) -> None:
        """Refuse a copy: its kernels would step the robots of this one."""
        raise TypeError(
            "robots that step together cannot be copied or pickled, because their kernels hold addresses of this "
            "process: make another environment with make_vec, and reset it"
        )

    def store(self, i: int, rng: np.random.Generator, info: dict[str, Any]) -> None:
        """Make robot `i` that of the environment after a reset; `rng` is its generator, `info` the reset's."""
        self.robots[i] = self._robot[0]
        self.judgements.n_ticks[i] = self._machine.n_ticks
        self.judgements.counts[i] = self._command_monitor.counts
        self.judgements.charge[i] = self._battery_monitor.numbers
        self.numbers[i] = [info[name] for name in INFO_NAMES]
        self._generators[i] = rng
        self._addresses[i] = addresses_of(rng)

    def exchange(self, requests: Floats, due: NDArray[np.bool_], observations: Observation) -> None:
        """Hold each request for a period, of the robots that are due, and write their scaled observations."""
        if not DRAWS_IN_KERNEL:
            for i in np.flatnonzero(due):
                self._generators[i].standard_normal(out=self.robots[i].normal)
                self._generators[i].random(out=self.robots[i].uniform)
        self._due[:] = due
        self._requests[:] = requests
        n_threads = numba.get_num_threads()
        numba.set_num_threads(min(n_threads, max(len(due) // ROBOTS_PER_THREAD, 1)))
        try:
            with _WORK_QUEUE_LOCK:
                self._step_rows(len(due))
        finally:
            numba.set_num_threads(n_threads)
        observations[:] = self._observations


def _rows_of(array: NDArray[Any], n: int) -> NDArray[Any]:
    """Return zeros for `n` arrays of this kind."""
    return np.zeros((n, *array.shape), array.dtype)
