"""RobotRecords: a robot's machine and senses as the records that the kernels of `period` take."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from horde_env._jit import RecordFields
from horde_env.backend import Floats
from horde_env.robot import RobotSpec
from horde_env.robots.critterbot.simulator import packet, period
from horde_env.robots.critterbot.simulator.machine import Machine
from horde_env.robots.critterbot.simulator.sensors import Senses
from horde_env.robots.critterbot.wire import wire_units
from horde_env.sim import planar
from horde_env.sim.planar import Motion, PlanarBody


class RobotRecords:
    """A robot's arrays for the kernels: the machine's and the senses' own, and room for random numbers and a path.

    Args:
        spec: The robot.
        machine: Firmware, motors, supply and body.
        senses: Its sensors.
        n_ticks: Number of ticks from one packet to the next.

    Attributes:
        normal, uniform, path: Of `period.RobotState`.
    """

    def __init__(self, spec: RobotSpec, machine: Machine, senses: Senses, *, n_ticks: int) -> None:
        self.spec = spec
        self.machine = machine
        self.senses = senses
        # In the order of the draws: the encoders at each tick, the packet's first channels, its
        # senses.
        self._packet_draws = 3 * n_ticks
        self._sense_draws = self._packet_draws + period.N_NOISE
        self.normal = np.zeros(self._sense_draws + senses.n_normal)
        self.uniform = np.zeros((2, senses.n_uniform))
        self.path = np.zeros((n_ticks, len(Motion._fields)))
        self._state_fields: RecordFields = tuple(self.state())
        self._scene: packet.Scene | None = None  # of which `_model_fields` are
        self._model_fields: RecordFields = ()

    @property
    def tick_noise(self) -> Floats:
        """The encoders' part of `normal`, three per tick."""
        return self.normal[: self._packet_draws]

    def draw(self, rng: Generator) -> None:
        """Draw the noise of a period: standard normals, then uniforms."""
        rng.standard_normal(out=self.normal)
        rng.random(out=self.uniform)

    def draw_packet(self, rng: Generator) -> None:
        """Draw the noise of a packet alone."""
        rng.standard_normal(out=self.normal[self._packet_draws :])
        rng.random(out=self.uniform)

    def draw_senses(self, rng: Generator) -> None:
        """Draw the noise of the senses alone."""
        rng.standard_normal(out=self.normal[self._sense_draws :])
        rng.random(out=self.uniform)

    def run_period(self, request: period.Request, values: Floats) -> period.End:
        """Hold a request for one period of the planar engine; see `period.run_period`."""
        machine = self.machine
        n_ticks = machine.n_ticks
        machine.n_ticks += self.path.shape[0]
        self._follow_pen()
        end: period.End = period.run_period(
            self._state_fields,
            self._model_fields,
            n_ticks,
            machine.stuck_wheel,
            request,
            False,
            values,
        )
        return end

    def write_first_packet(self, values: Floats) -> period.End:
        """Write the packet of a planar engine's robot after a reset; see `period.run_period`."""
        machine = self.machine
        self._follow_pen()
        end: period.End = period.run_period(
            self._state_fields,
            self._model_fields,
            machine.n_ticks,
            machine.stuck_wheel,
            (0.0, 0.0, 0.0),
            True,
            values,
        )
        return end

    def sample(self, contact_n_s: float, request: period.Request, values: Floats) -> period.End:
        """Write the packet at the end of `path`; see `period.sample`."""
        self._follow_pen()
        end: period.End = period.sample(
            self._state_fields, self._model_fields, contact_n_s, request, self.machine.t_s, values
        )
        return end

    def state(self) -> period.RobotState:
        """Return the arrays that a period changes."""
        plant = self.machine.plant
        memory = self.senses.memory
        engine = self.machine.body
        body = np.zeros(0)
        contacts = np.zeros((0, planar.N_COLUMNS))
        if isinstance(engine, PlanarBody):
            body = engine.state
            contacts = engine.shape.contacts
        return period.RobotState(
            arm=plant.arm,
            wheels=plant.wheels,
            motion=plant.motion,
            force=plant.force,
            amounts=plant.amounts,
            marks=plant.marks,
            body=body,
            contacts=contacts,
            sensed=memory.values,
            roller=memory.roller,
            zones=memory.zones,
            drift=memory.drift,
            packets=memory.packets,
            change=memory.change,
            lines=memory.lines,
            along=memory.along,
            times=self.senses.times,
            normal=self.normal,
            uniform=self.uniform,
            path=self.path,
        )

    def model(self) -> period.RobotModel:
        """Return what a period reads: robot and pen as they are now."""
        spec = self.spec
        machine = self.machine
        senses = self.senses
        engine = machine.body
        shape = planar.NO_SHAPE
        if isinstance(engine, PlanarBody):
            shape = engine.shape
        return period.RobotModel(
            geometry=machine.plant.geometry,
            **senses.scene._asdict(),
            room=senses.room,
            **senses.eyes._asdict(),
            steps=senses.steps,
            lsb=spec.lsb[: period.N_RAW].copy(),
            offset=spec.offset[: period.N_RAW].copy(),
            largest_request=spec.largest_request,
            request_channel=spec.group("last_request").start,
            overheating_channel=spec.index("overheating"),
            inertia=shape.inertia,
            corners=shape.corners,
            pieces=shape.pieces,
            radii=shape.radii,
            obstacles=shape.obstacles,
            matrix=machine.firmware.matrix,
            units=wire_units(spec),
            face=machine.face,
        )

    def _follow_pen(self) -> None:
        """Move the lamps that are due, and read the pen again if it has changed."""
        self.senses.move_lamps(self.machine.t_s)
        if self._scene is not self.senses.scene:
            self._scene = self.senses.scene
            self._model_fields = tuple(self.model())
