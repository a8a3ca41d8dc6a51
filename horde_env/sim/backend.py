"""SimulatedBody: the simulated robot as a Backend. Time is virtual: as fast as it computes."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.random import Generator

from horde_env.backend import Backend, Floats, Frame, State
from horde_env.errors import opened
from horde_env.robot import RobotSpec, critterbot
from horde_env.sim import firmware, motors
from horde_env.sim.engine import Motion
from horde_env.sim.machine import N_RAW, Machine, look_back
from horde_env.sim.pen import Pen, load_pen
from horde_env.sim.physics import chosen
from horde_env.sim.saving import inner, nested
from horde_env.sim.sensors import Senses
from horde_env.sim.state import BodyState

# Half the square in which a life begins: even the tail's tip (0.289 m) is clear of the walls and of the dock there.
START_M = 0.6


class Sensing(Protocol):
    """What `SimulatedBody` needs of its senses; see `Senses`."""

    @property
    def beacon(self) -> Floats | None:
        """How much each ir_light sensor changed between the last two packets, shape (8,); None where unknown."""

    def reset(self, rng: Generator) -> None:
        """Begin a life."""

    def save(self) -> State:
        """Return what the next reading depends on."""

    def restore(self, state: State) -> None:
        """Go on from what `save` returned."""

    def read(self, previous: BodyState, body: BodyState, t_s: float, rng: Generator, out: Floats) -> None:
        """Write the channels from acceleration to thermal into `out`."""


class SimulatedBody(Backend):
    """The Critterbot in its pen: firmware, motors, batteries, physics and senses.

    Each frame carries the true pose in `extras` (x_m, y_m, heading_rad), for pictures only.

    Args:
        spec: The robot; the Critterbot by default.
        pen: Where it lives; `assets/pen.toml` by default.
        battery_scale: Factor on the batteries' capacity, which by default lasts 12 h of wandering.
        physics: What moves the body, "planar" or "bullet"; PyBullet where it is installed when None (`engine`).
        window: Whether to show PyBullet's own window.
        senses: What reads channels 16..52; the full `Senses` by default.

    Raises:
        BackendUnavailable: If PyBullet is asked for and missing, or a window where there is no display.
        ValueError: If `battery_scale` is not positive or `physics` unknown.
    """

    def __init__(
        self,
        spec: RobotSpec | None = None,
        *,
        pen: Pen | None = None,
        battery_scale: float = 1.0,
        physics: str | None = None,
        window: bool = False,
        senses: Sensing | None = None,
    ) -> None:
        if not 0.0 < battery_scale < math.inf:
            raise ValueError(f"battery_scale must be positive and finite, got {battery_scale}")
        self.physics = chosen(physics, window=window)
        self.spec = critterbot() if spec is None else spec
        self.pen = load_pen() if pen is None else pen
        self.senses: Sensing = Senses(self.spec, self.pen) if senses is None else senses
        self.period_s = self.spec.period_s
        self._ticks = round(self.spec.period_s / motors.TICK_S)
        self._battery_scale, self._window = battery_scale, window
        drive = self.spec.drive
        # m/s forward, m/s left, rad/s to the wire's x, y (RIGHT), theta.
        self._units = (drive["translation_unit"], -drive["translation_unit"], drive["rotation_unit"])
        self._request, self._overheating = self.spec.group("last_request"), self.spec.index("overheating")
        self._lsb, self._offset = self.spec.lsb[:N_RAW], self.spec.offset[:N_RAW]
        self._machine: Machine | None = None
        self._rng = np.random.default_rng(0)

    @property
    def machine(self) -> Machine:
        """The body behind the senses.

        Raises:
            BackendUnavailable: Before the first reset and after close.
        """
        return opened(self._machine, "the simulated body is not open")

    def reset(self, rng: Generator) -> Frame:
        """Place the robot, just switched on, at a random pose away from the walls, and return its first frame."""
        if self._machine is None:
            scale, window, physics = self._battery_scale, self._window, self.physics
            self._machine = Machine(self.spec, self.pen, battery_scale=scale, physics=physics, window=window)
            self._machine.body.is_remembering = True
            self._compile()
        self._rng = rng
        x, y = rng.uniform(-START_M, START_M, 2)
        self._machine.reset(float(x), float(y), float(rng.uniform(-math.pi, math.pi)))
        self.senses.reset(rng)
        at_rest = self._machine.state((0.0, 0.0))
        return self._frame(at_rest, at_rest, np.zeros(3), applied=True)

    def exchange(self, command: Floats) -> Frame:
        """Hold `command` (m/s, m/s, rad/s) for one period of physics and return the frame sampled at its end.

        Raises:
            ValueError: If `command` is not three finite numbers.
            BackendUnavailable: If the body was not reset or is closed.
        """
        machine = self.machine
        machine.firmware.command(firmware.XYTHETA_SPACE, *self._to_wire(command))
        free = not machine.is_held()
        noise = self._rng.standard_normal((self._ticks, 3))
        before, previous = (Motion(*row) for row in machine.run(noise)[-3:-1].tolist())
        body = machine.state((previous.vx, previous.vy))
        share = np.asarray(command, dtype=np.float64) / self.spec.largest_request
        return self._frame(look_back(previous, before), body, share, applied=free and not machine.is_held())

    def _compile(self) -> None:
        """Take one step that nobody sees, so that kernels are compiled before the first motion and not during it."""
        rng = np.random.default_rng(0)
        self._rng = rng
        self.machine.reset(0.0, 0.0, 0.0)
        self.senses.reset(rng)
        self.exchange(np.zeros(3))

    def save(self) -> State:
        """Return what the body's future depends on beside the generator that it was given.

        Raises:
            BackendUnavailable: If the body was not reset or is closed.
        """
        return nested(machine=self.machine.save(), senses=self.senses.save())

    def restore(self, state: State) -> None:
        """Go on from what `save` returned, bit for bit; the generator is its owner's to restore.

        Raises:
            BackendUnavailable: If the body was not reset or is closed.
        """
        self.machine.restore(inner(state, "machine"))
        self.senses.restore(inner(state, "senses"))

    def enable_charging(self, enabled: bool) -> None:
        """Let the dock charge the batteries, or not (as after boot); the robot cannot move while it is charged."""
        self.machine.power.charging_enabled = enabled

    def close(self) -> None:
        """Let go of the simulation. Closing twice does nothing."""
        if self._machine is not None:
            self._machine.close()
            self._machine = None

    def _to_wire(self, command: Floats) -> list[int]:
        """Return (x, y RIGHT, theta) in the wire's units, kept within a signed byte."""
        request = np.asarray(command, dtype=np.float64).tolist()
        if not isinstance(request, list) or len(request) != 3 or not all(map(math.isfinite, request)):
            raise ValueError(f"command must be three finite numbers (m/s, m/s, rad/s), got {command}")
        along, right, turn = self._units
        units = request[0] / along, request[1] / right, request[2] / turn
        return [min(max(round(number), -127), 127) for number in units]

    def _frame(self, previous: BodyState, body: BodyState, share: Floats, *, applied: bool) -> Frame:
        """Sample all channels of the packet at the end of the period."""
        spec, machine = self.spec, self.machine
        t = machine.n_ticks * motors.TICK_S
        values = np.zeros(spec.n_channels)
        values[:N_RAW] = self._lsb * machine.raw(self._rng) + self._offset
        self.senses.read(previous, body, t, self._rng, values)
        values[self._request] = share
        values[self._overheating] = machine.firmware.overheated
        extras = {"x_m": body.x, "y_m": body.y, "heading_rad": body.heading}
        return Frame(values=values, t=t, applied=applied, extras=extras, beacon=self.senses.beacon)
