"""SimulatedBody: the simulated robot as a Backend, in virtual time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from horde_env.backend import POSE_KEYS, Backend, Floats, Frame, State, checked_request
from horde_env.errors import opened
from horde_env.robot import critterbot
from horde_env.robots.critterbot.arena import load_pen
from horde_env.robots.critterbot.safety import VoltageMonitor
from horde_env.robots.critterbot.simulator import motors, period
from horde_env.robots.critterbot.simulator.machine import Machine, friction_changes_of
from horde_env.robots.critterbot.simulator.period import N_NOISE
from horde_env.robots.critterbot.simulator.sensors import Senses
from horde_env.robots.critterbot.wire import wire_units
from horde_env.sim.physics import resolve_physics
from horde_env.sim.planar import Motion, PlanarBody
from horde_env.sim.saving import inner, nested

# Half the side of the square of start positions: even the tail's tip (0.289 m) is clear of walls
# and dock there.
START_M = 0.6


class SimulatedBody(Backend):
    """The Critterbot in its pen: firmware, motors, batteries, physics and senses.

    Each frame has the true pose in `extras` (x_m, y_m, heading_rad), for pictures only. The
    arguments are those of `make.make_env`; units, scales, normal, uniform and path are arguments of
    `period.run_period`.
    """

    command_monitor = VoltageMonitor
    info_keys = POSE_KEYS

    def __init__(
        self,
        *,
        battery_scale: float = 1.0,
        physics: str | None = None,
        lamp_moves: Sequence[Any] = (),
        friction_changes: Sequence[Any] = (),
    ) -> None:
        self.physics = resolve_physics(physics)
        self.spec = critterbot()
        self.pen = load_pen()
        self.senses = Senses(self.spec, self.pen, lamp_moves)
        self._friction_changes = friction_changes_of(friction_changes)
        self.period_s = self.spec.period_s
        self._ticks = round(self.spec.period_s / motors.TICK_S)
        self._battery_scale = battery_scale
        self.units = wire_units(self.spec)
        self.scales = period.scales_of(self.spec)
        # In the order of the draws: the encoders at each tick, the packet's first channels, its
        # senses.
        self.normal = np.zeros(3 * self._ticks + N_NOISE + self.senses.n_normal)
        self.uniform = np.zeros((2, self.senses.n_uniform))
        self.path = np.zeros((self._ticks, len(Motion._fields)))
        self._machine: Machine | None = None
        self._rng = np.random.default_rng(0)

    @property
    def machine(self) -> Machine:
        """The body without senses; BackendUnavailable before the first reset and after close."""
        return opened(self._machine, "the simulated body is not open")

    def reset(self, rng: Generator) -> Frame:
        """Boot the robot at a random pose clear of the walls, and return its first frame."""
        if self._machine is None:
            self._machine = Machine(
                self.spec, self.pen, battery_scale=self._battery_scale, physics=self.physics
            )
            self._machine.body.is_restorable = True
            self._compile()
        self._rng = rng
        x, y = rng.uniform(-START_M, START_M, 2)
        self._machine.reset(float(x), float(y), float(rng.uniform(-math.pi, math.pi)))
        self.senses.reset(rng)
        self.path[:] = self._machine.body.motion
        self._draw(self.normal[3 * self._ticks :])
        return self._sampled(self._machine, self.path, 0.0, (0.0, 0.0, 0.0))

    def exchange(self, command: Floats) -> Frame:
        """Hold `command` (m/s, m/s, rad/s) for one period of physics and return the frame sampled at its end."""
        machine = self.machine
        request = checked_request(command)
        if self._friction_changes:
            machine.set_friction(self._friction_changes)
        self._draw(self.normal)
        if isinstance(machine.body, PlanarBody):
            return self._exchange_planar(machine, machine.body, request)
        firmware = machine.firmware
        period.send_request(firmware.arm, firmware.wheels, firmware.matrix, request, self.units)
        was_held = machine.is_held()
        path = machine.run(self.normal[: 3 * self._ticks])
        return self._sampled(
            machine, path, machine.body.contact_impulse(), request, was_held=was_held
        )

    def _compile(self) -> None:
        """Take one step before the first reset, which compiles the kernels."""
        rng = np.random.default_rng(0)
        self._rng = rng
        self.machine.reset(0.0, 0.0, 0.0)
        self.senses.reset(rng)
        self.exchange(np.zeros(3))

    def save(self) -> State:
        """Return the body's state, except the generator passed to `reset`."""
        return nested(machine=self.machine.save(), senses=self.senses.save())

    def restore(self, state: State) -> None:
        """Restore a state from `save`, bit for bit; its owner restores the generator."""
        self.machine.restore(inner(state, "machine"))
        self.senses.restore(inner(state, "senses"))

    def enable_charging(self, enabled: bool) -> None:
        """Allow charging at the dock, or forbid it (as after boot); the robot cannot move while it is charged."""
        self.machine.power.charging_enabled = enabled

    def close(self) -> None:
        """Close the simulation. Closing twice does nothing."""
        if self._machine is not None:
            self._machine.close()
            self._machine = None

    def _draw(self, normal: Floats) -> None:
        """Draw the next noise: standard normals, then uniforms."""
        self._rng.standard_normal(out=normal)
        self._rng.random(out=self.uniform)

    def _exchange_planar(
        self, machine: Machine, body: PlanarBody, request: period.Request
    ) -> Frame:
        """Hold a request for one period of the planar engine, in one kernel, and return the frame at its end."""
        tick_state = (machine.n_ticks, machine.stuck_wheel)
        values = np.zeros(self.spec.n_channels)
        machine.n_ticks += self._ticks
        arrays = machine.plant, self.senses.at(machine.n_ticks * motors.TICK_S), self.scales
        wire = machine.firmware.matrix, self.units, machine.face
        noise = self.normal, self.uniform
        end = period.run_period(
            *arrays, body.shape, body.state, wire, tick_state, request, *noise, self.path, values
        )
        return self._frame(values, machine, end)

    def _sampled(
        self,
        machine: Machine,
        path: Floats,
        contact_n_s: float,
        request: period.Request,
        *,
        was_held: bool = False,
    ) -> Frame:
        """Return the frame of the packet at the end of a path; `was_held`: whether the motors were held before it."""
        t_s = machine.n_ticks * motors.TICK_S
        values = np.zeros(self.spec.n_channels)
        arrays = (machine.plant, self.senses.at(t_s), self.scales)
        noise = self.normal[3 * self._ticks :]
        x, y, heading, is_held = period.sample(
            *arrays, path, contact_n_s, request, t_s, noise, self.uniform, values
        )
        return self._frame(values, machine, (x, y, heading, is_held or was_held))

    def _frame(self, values: Floats, machine: Machine, end: period.End) -> Frame:
        x, y, heading, was_held = end
        t = machine.n_ticks * motors.TICK_S
        extras = {"x_m": x, "y_m": y, "heading_rad": heading}
        return Frame(
            values=values, t=t, applied=not was_held, extras=extras, beacon=self.senses.beacon
        )
