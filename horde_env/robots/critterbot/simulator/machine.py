"""The robot: firmware, body and senses, at 100 Hz, driven by control packets; without a host.

`SimulatedBody` is its host in the simulator; the emulator is another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from horde_env._jit import Record, RecordFields
from horde_env.backend import Floats, State
from horde_env.robot import RobotSpec, asset
from horde_env.robots.critterbot.arena import Pen
from horde_env.robots.critterbot.simulator import motors, packet, period
from horde_env.robots.critterbot.simulator.firmware import Firmware
from horde_env.robots.critterbot.simulator.power import PowerSupply
from horde_env.robots.critterbot.simulator.sensors import Senses
from horde_env.robots.critterbot.simulator.state import restore_fields, saved_fields
from horde_env.robots.critterbot.wire import UNITS
from horde_env.sim import bullet, planar
from horde_env.sim.physics import Body, Physics, open_body
from horde_env.sim.planar import Box, Motion, PlanarBody, facing
from horde_env.sim.saving import attributes, inner, nested, restore_attributes

# Largest distance of the robot's nose from the middle of the dock's face, and largest angle, at
# which contacts meet.
DOCK_REACH_M = 0.05
DOCK_REACH_DEG = 20.0
_ROUNDING_S = 1e-9
_SAVED = ("n_ticks", "stuck")
_DIRECTIONS = {
    "clockwise": motors.CLOCKWISE_FRICTION,
    "counterclockwise": motors.COUNTERCLOCKWISE_FRICTION,
}

# Robot time in s, direction of the rotation, factor on the axles' friction
FrictionChange = tuple[float, str, float]


def friction_changes_of(changes: Sequence[Any]) -> list[FrictionChange]:
    """Return changes in the order of time. A factor is on the first friction and replaces earlier ones.

    Raises:
        ValueError: If one is invalid.
    """
    try:
        ordered = sorted((float(at_s), str(way), float(factor)) for at_s, way, factor in changes)
        if all(
            way in _DIRECTIONS and 0.0 <= t < math.inf and 0.0 < factor < math.inf
            for t, way, factor in ordered
        ):
            return ordered
    except (TypeError, ValueError):
        pass
    expected = "a sequence of (seconds from 0 on, 'clockwise' or 'counterclockwise', factor above 0), all finite"
    raise ValueError(f"friction_changes must be {expected}, not {changes!r}")


class Machine:
    """Firmware, motors, power supply, body and senses of one robot, with the state of the senses.

    A caller draws a packet's noise before its ticks, and samples it at the end of its path.

    Attributes:
        senses: Its sensors; new ones when None.
        robots: The state of all these, an array of one, as the kernels of `period` take it.
        state: Its record: see `state.state_type`.
        motion: The motors', a view of it.
        geometry: The wheels', shape (3, 5); see `motors.wheel_geometry`.
        face: The dock's, shape (period.N_FACE,).
        n_ticks: Ticks of 10 ms since the last reset.
        stuck: Number of a blocked wheel, 0, 1 or 2, or `period.NO_WHEEL`.
        period_noise: Standard normals of a period, as `draw` drew them: `tick_noise` and `packet_noise`.
        tick_noise: Those of the encoders, three for each tick.
        packet_noise: Those of a packet: of its first channels, and `sense_noise`.
    """

    def __init__(
        self,
        spec: RobotSpec,
        pen: Pen,
        *,
        battery_scale: float = 1.0,
        physics: Physics = "bullet",
        senses: Senses | None = None,
    ) -> None:
        if senses is None:
            senses = Senses(spec, pen)
        self.spec = spec
        self.senses = senses
        self.robots = senses.robots
        state = senses.state
        self.state: Record = state
        matrix = np.array(spec.drive["kinematics_1024"])
        self.firmware = Firmware(matrix, state.arm, state.wheels)
        self.motion: Floats = state.motion
        self.power = PowerSupply(battery_scale, state.amounts, state.marks)
        angles = np.deg2rad(spec.drive["wheel_angles_deg"])
        self.geometry = motors.wheel_geometry(angles, float(spec.drive["wheel_circle_m"]))
        self.face = _dock_face(pen, nose_m=float(spec.body["radius_m"]))
        self.n_ticks = 0
        self.stuck = period.NO_WHEEL
        self._n_ticks_of_period = len(state.path)
        n_tick_draws = 3 * self._n_ticks_of_period
        self._uniform = state.uniform
        self.period_noise: Floats = state.normal
        self.tick_noise: Floats = self.period_noise[:n_tick_draws]
        self.packet_noise: Floats = self.period_noise[n_tick_draws:]
        self.sense_noise: Floats = self.packet_noise[period.N_NOISE :]
        self._scene: packet.Scene | None = None  # of which `_model_fields` are
        self._model_fields: RecordFields = ()
        self.open_body(physics, pen.boxes())

    def open_body(self, physics: Physics, boxes: Sequence[Box]) -> None:
        """Open the body among boxes; the planar engine moves the record's."""
        urdf = asset("robot/critterbot.urdf")
        self.body: Body = open_body(physics, urdf, boxes, tick_s=motors.TICK_S)
        if isinstance(self.body, PlanarBody):
            self.body.state = self.state.body
            self.body.contacts = self.state.contacts

    def reset(self, x: float, y: float, heading: float) -> None:
        """Boot the robot at a pose: motors cold, batteries full."""
        self.firmware.boot()
        self.power.boot()
        self.motion[:] = 0.0
        self.n_ticks = 0
        self.stuck = period.NO_WHEEL
        self.body.place(x, y, heading)
        motors.sense(
            self.motion,
            self.firmware.wheels,
            self.geometry,
            np.zeros(3),
            facing(heading),
            0.0,
            0.0,
            0.0,
        )

    def set_friction(self, changes: Sequence[FrictionChange]) -> None:
        """Apply those of a life's changes that are due."""
        self.geometry[:, [*_DIRECTIONS.values()]] = 1.0
        for at_s, direction, factor in changes:
            if self.n_ticks * motors.TICK_S >= at_s - _ROUNDING_S:
                self.geometry[:, _DIRECTIONS[direction]] = factor

    def run(self, noise: Floats) -> Floats:
        """Advance 10 ms for each three of `noise`, shape (3 n,); return the motion after each (`Motion`), (n, 6)."""
        n = len(noise) // 3
        body = self.body
        robots = self.robots
        geometry = self.geometry
        face = self.face
        stuck = self.stuck
        begin = self.n_ticks
        self.n_ticks += n
        if isinstance(body, PlanarBody):
            path = np.empty((n, len(Motion._fields)))
            shape = tuple(body.shape)
            period.run_ticks(robots, 0, geometry, shape, face, begin, stuck, noise, path)
            return path
        assert isinstance(body, bullet.PlanarBody)
        moves = []
        force = period.act(robots, 0, geometry, stuck, facing(body.moved[2]))
        for k in range(n):
            moved = body.advance(force)
            moves.append(moved)
            if k < n - 1:
                force = period.sense_and_act(
                    robots, 0, geometry, face, stuck, begin + k + 1, noise, k, moved
                )
            else:
                period.sense(robots, 0, geometry, face, stuck, begin + n, noise, k, moved)
        return np.array(moves)

    def is_held(self) -> bool:
        """Return whether charging, an empty battery, heat or overvoltage blocks the command."""
        return bool(period.is_held(self.robots, 0))

    # ---- packets -----------------------------------------------------------------------------------------------------

    def draw(self, rng: Generator, noise: Floats) -> None:
        """Draw `period_noise`, or its part `packet_noise` or `sense_noise`: standard normals, then uniforms."""
        rng.standard_normal(out=noise)
        rng.random(out=self._uniform)

    def run_period(
        self, request: period.Request, values: Floats, *, is_first: bool = False
    ) -> period.End:
        """Hold a request for one period of the planar engine, none for the first packet; see `period.run_period`."""
        n_ticks = self.n_ticks
        if not is_first:
            self.n_ticks += self._n_ticks_of_period
        end: period.End = period.run_period(
            self.robots, 0, self.model(), n_ticks, self.stuck, request, is_first, values
        )
        return end

    def sample(self, contact_n_s: float, request: period.Request, values: Floats) -> period.End:
        """Write the packet at the end of the path; see `period.sample`."""
        t_s = self.n_ticks * motors.TICK_S
        end: period.End = period.sample(
            self.robots, 0, self.model(), contact_n_s, request, t_s, values
        )
        return end

    def model(self) -> RecordFields:
        """Return what a period reads, as the fields of `period.RobotModel`: robot and pen, with the lamps as now."""
        senses = self.senses
        if senses.has_moves:
            senses.move_lamps(self.n_ticks * motors.TICK_S)
        if self._scene is not senses.scene:
            self._scene = senses.scene
            self._model_fields = self._read_model()
        return self._model_fields

    def _read_model(self) -> RecordFields:
        spec = self.spec
        senses = self.senses
        engine = self.body
        shape = planar.NO_SHAPE
        if isinstance(engine, PlanarBody):
            shape = engine.shape
        model = period.RobotModel(
            geometry=self.geometry,
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
            matrix=self.firmware.matrix,
            units=UNITS,
            face=self.face,
        )
        return tuple(model)

    # ------------------------------------------------------------------------------------------------------------------

    def save(self) -> State:
        """Return the robot's state, with that of its sensors if they share its arrays."""
        return nested(
            scalars=attributes(self, *_SAVED),
            arrays=saved_fields(self.state),
            body=self.body.save(),
        )

    def restore(self, state: State) -> None:
        """Restore a state from `save`."""
        restore_attributes(self, inner(state, "scalars"), *_SAVED)
        restore_fields(self.state, inner(state, "arrays"))
        self.body.restore(inner(state, "body"))

    def on_dock(self) -> bool:
        """Return whether the robot's nose touches the dock's contacts."""
        m = self.body.motion
        return bool(period.on_dock(m.x, m.y, facing(m.heading), self.face))

    def close(self) -> None:
        """Close the body. Closing twice does nothing."""
        self.body.close()


def _dock_face(pen: Pen, *, nose_m: float) -> Floats:
    """Return the dock's face for the kernels, shape (period.N_FACE,); `nose_m` is the robot's."""
    (x, y) = pen.dock.centre_m
    (size_x, size_y) = pen.dock.size_m
    ux = math.cos(pen.beacon.direction_rad)
    uy = math.sin(pen.beacon.direction_rad)
    depth = 0.5 * (size_x * abs(ux) + size_y * abs(uy))
    face = np.zeros(period.N_FACE)
    face[period.FACE_X] = x + depth * ux
    face[period.FACE_Y] = y + depth * uy
    face[period.FACE_UX] = ux
    face[period.FACE_UY] = uy
    face[period.NOSE_M] = nose_m
    face[period.REACH_M] = DOCK_REACH_M
    face[period.REACH_COS] = math.cos(math.radians(DOCK_REACH_DEG))
    return face
