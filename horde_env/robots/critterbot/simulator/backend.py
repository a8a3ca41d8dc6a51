"""SimulatedBody: the simulated robot as a Backend, in virtual time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from horde_env.backend import POSE_KEYS, Backend, Floats, Frame, State
from horde_env.errors import BackendUnavailable
from horde_env.robot import critterbot
from horde_env.robots.critterbot.arena import load_pen
from horde_env.robots.critterbot.safety import VoltageMonitor
from horde_env.robots.critterbot.simulator import motors, period
from horde_env.robots.critterbot.simulator.faults import body_faults
from horde_env.robots.critterbot.simulator.machine import Machine, friction_changes_of
from horde_env.robots.critterbot.simulator.sensors import Senses
from horde_env.robots.critterbot.wire import UNITS
from horde_env.sim.physics import resolve_physics
from horde_env.sim.planar import PlanarBody
from horde_env.sim.saving import inner, nested
from horde_env.spaces import checked_request

# Half the side of the square of start positions: even the tail's tip (0.289 m) is clear of walls
# and dock there.
START_M = 0.6
CLOSED = "the simulated body is not open: call reset() first."


class SimulatedBody(Backend):
    """The Critterbot in its pen: firmware, motors, batteries, physics and senses.

    Each frame has the true pose in `extras` (x_m, y_m, heading_rad), for pictures only. The
    arguments are those of `make.make_env`.
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
        self._arguments: dict[str, Any] = {
            "battery_scale": battery_scale,
            "physics": physics,
            "lamp_moves": lamp_moves,
            "friction_changes": friction_changes,
        }
        self.physics = resolve_physics(physics)
        self.spec = critterbot()
        self.pen = load_pen()
        self.senses = Senses(self.spec, self.pen, lamp_moves)
        self._path: Floats = self.senses.state.path
        self._beacon: Floats = self.senses.state.change
        self._friction_changes = friction_changes_of(friction_changes)
        self.period_s = self.spec.period_s
        self._n_channels = self.spec.n_channels
        self.body_faults = body_faults(self)
        self._machine: Machine | None = None
        self._rng = np.random.default_rng(0)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy is made of: its arrays are views of one record, which a copy makes anew."""
        state = {"arguments": self._arguments, "rng": self._rng, "pen": self.senses.pen}
        if self._machine is not None:
            state["saved"] = self.save()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Become a copy, by the state from `__getstate__`."""
        self.__init__(**state["arguments"])  # type: ignore[misc]
        self._rng = state["rng"]
        if "saved" in state:
            self._machine = self._open()
            self.restore(state["saved"])
        self.senses.pen = state["pen"]

    @property
    def machine(self) -> Machine:
        """The robot without its host; BackendUnavailable before the first reset and after close."""
        if self._machine is None:
            raise BackendUnavailable(CLOSED)
        return self._machine

    def reset(self, rng: Generator) -> Frame:
        """Boot the robot at a random pose clear of the walls, and return its first frame."""
        if self._machine is None:
            self._machine = self._open()
            self._compile()
        self._rng = rng
        x, y = rng.uniform(-START_M, START_M, 2)
        machine = self._machine
        machine.reset(float(x), float(y), float(rng.uniform(-math.pi, math.pi)))
        self.senses.reset(rng)
        self._path[:] = machine.body.motion
        machine.draw(rng, machine.packet_noise)
        if isinstance(machine.body, PlanarBody):
            values = np.zeros(self._n_channels)
            end = machine.run_period(period.STILL, values, is_first=True)
            return self._frame(machine, values, end)
        return self._sampled(machine, 0.0, period.STILL)

    def exchange(self, command: Floats) -> Frame:
        """Hold `command` (m/s, m/s, rad/s) for one period of physics and return the frame sampled at its end."""
        machine = self._machine
        if machine is None:
            raise BackendUnavailable(CLOSED)
        request = checked_request(command)
        if self._friction_changes:
            machine.set_friction(self._friction_changes)
        machine.draw(self._rng, machine.period_noise)
        if isinstance(machine.body, PlanarBody):
            values = np.zeros(self._n_channels)
            end = machine.run_period(request, values)
            return self._frame(machine, values, end)
        firmware = machine.firmware
        period.send_request(firmware.arm, firmware.wheels, firmware.matrix, request, UNITS)
        was_held = machine.is_held()
        self._path[:] = machine.run(machine.tick_noise)
        contact_n_s = machine.body.contact_impulse()
        return self._sampled(machine, contact_n_s, request, was_held=was_held)

    def _open(self) -> Machine:
        machine = Machine(
            self.spec,
            self.pen,
            battery_scale=self._arguments["battery_scale"],
            physics=self.physics,
            senses=self.senses,
        )
        machine.body.is_restorable = True
        return machine

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

    def _sampled(
        self,
        machine: Machine,
        contact_n_s: float,
        request: period.Request,
        *,
        was_held: bool = False,
    ) -> Frame:
        """Return the frame of the packet at the end of the path; `was_held`: whether the motors were held before it."""
        values = np.zeros(self._n_channels)
        x, y, heading, is_held = machine.sample(contact_n_s, request, values)
        return self._frame(machine, values, (x, y, heading, is_held or was_held))

    def _frame(self, machine: Machine, values: Floats, end: period.End) -> Frame:
        x, y, heading, was_held = end
        return Frame(
            values=values,
            t=machine.n_ticks * motors.TICK_S,
            applied=not was_held,
            extras={"x_m": x, "y_m": y, "heading_rad": heading},
            beacon=self._beacon.copy(),
        )
