"""RobotRecords: a robot's machine and senses as the records that the kernels of `period` take."""

from __future__ import annotations

from numpy.random import Generator

from horde_env._jit import RecordFields
from horde_env.backend import Floats
from horde_env.robot import RobotSpec
from horde_env.robots.critterbot.simulator import packet, period
from horde_env.robots.critterbot.simulator.machine import Machine
from horde_env.robots.critterbot.simulator.sensors import Senses
from horde_env.robots.critterbot.wire import wire_units
from horde_env.sim import planar
from horde_env.sim.planar import PlanarBody

STILL: period.Request = (0.0, 0.0, 0.0)


class RobotRecords:
    """A robot's state and model for the kernels.

    Args:
        spec: The robot.
        machine: Firmware, motors, supply and body.
        senses: Its sensors, with the machine's `state`.
    """

    def __init__(self, spec: RobotSpec, machine: Machine, senses: Senses) -> None:
        self.spec = spec
        self.machine = machine
        self.senses = senses
        self.robots = machine.robots
        # Parts of the normals, in the order of the draws: the encoders at each tick, the packet's
        # first channels, its senses.
        state = machine.state
        self._n_ticks = len(state.path)
        n_tick_draws = 3 * self._n_ticks
        self._normal = state.normal
        self._uniform = state.uniform
        self.tick_noise: Floats = self._normal[:n_tick_draws]
        self._packet_noise = self._normal[n_tick_draws:]
        self._sense_noise = self._packet_noise[period.N_NOISE :]
        self._scene: packet.Scene | None = None  # of which `_model_fields` are
        self._model_fields: RecordFields = ()

    def draw(self, rng: Generator) -> None:
        """Draw the noise of a period: standard normals, then uniforms."""
        rng.standard_normal(out=self._normal)
        rng.random(out=self._uniform)

    def draw_packet(self, rng: Generator) -> None:
        """Draw the noise of a packet alone."""
        rng.standard_normal(out=self._packet_noise)
        rng.random(out=self._uniform)

    def draw_senses(self, rng: Generator) -> None:
        """Draw the noise of the senses alone."""
        rng.standard_normal(out=self._sense_noise)
        rng.random(out=self._uniform)

    def run_period(
        self, request: period.Request, values: Floats, *, is_first: bool = False
    ) -> period.End:
        """Hold a request for one period of the planar engine, none for the first packet; see `period.run_period`."""
        machine = self.machine
        n_ticks = machine.n_ticks
        if not is_first:
            machine.n_ticks += self._n_ticks
        end: period.End = period.run_period(
            self.robots, 0, self.model(), n_ticks, machine.stuck, request, is_first, values
        )
        return end

    def sample(self, contact_n_s: float, request: period.Request, values: Floats) -> period.End:
        """Write the packet at the end of the path; see `period.sample`."""
        end: period.End = period.sample(
            self.robots, 0, self.model(), contact_n_s, request, self.machine.t_s, values
        )
        return end

    def model(self) -> RecordFields:
        """Return what a period reads, as the fields of `period.RobotModel`: robot and pen, with the lamps as now."""
        senses = self.senses
        if senses.has_moves:
            senses.move_lamps(self.machine.t_s)
        if self._scene is not senses.scene:
            self._scene = senses.scene
            self._model_fields = self._read_model()
        return self._model_fields

    def _read_model(self) -> RecordFields:
        spec = self.spec
        machine = self.machine
        senses = self.senses
        engine = machine.body
        shape = planar.NO_SHAPE
        if isinstance(engine, PlanarBody):
            shape = engine.shape
        model = period.RobotModel(
            geometry=machine.geometry,
            scene_fields=tuple(senses.scene),
            room=senses.room,
            eyes_fields=tuple(senses.eyes),
            steps=senses.steps,
            lsb=spec.lsb[: period.N_RAW].copy(),
            offset=spec.offset[: period.N_RAW].copy(),
            largest_request=spec.largest_request,
            request_channel=spec.group("last_request").start,
            overheating_channel=spec.index("overheating"),
            shape_fields=tuple(shape),
            matrix=machine.firmware.matrix,
            units=wire_units(spec),
            face=machine.face,
        )
        return tuple(model)
