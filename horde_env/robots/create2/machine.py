"""Machine: the robot without its rules: body, battery, eyes and switches in a room, one tick of 1/64 s at a time."""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator

from horde_env.robot import RobotSpec, create2
from horde_env.robots.create2 import world
from horde_env.robots.create2.physics import open_mover
from horde_env.robots.create2.room import Room, load_room
from horde_env.robots.create2.wire import TICK_S, Sensors
from horde_env.sim.physics import Physics

CAPACITY_AH, RESISTANCE_OHM, CHARGE_A = 2.7, 0.25, 1.2
REST_A, AWAKE_A, DRIVE_A = -0.05, -0.22, -0.10  # asleep; awake; awake and driving, beside the wheels' own
# Twelve cells at rest by their share of charge; NiMH stays flat for long.
CHARGED, AT_REST_V = np.array([0.0, 0.05, 0.2, 0.5, 0.9, 1.0]), np.array([12.0, 13.0, 14.1, 14.7, 15.3, 15.9])
CHARGING_V = 1.1  # above rest

NEAR_SIGNALS = (125, 125, 125, 125, 125, 286)
NEAR_HYSTERESIS = 4
CLIFF_BELOW = 300
OVERCURRENT_A, OVERCURRENT_S = 1.0, 0.25
OFFSETS, LIGHT_SD, CLIPPED_SD, CLIFF_SD = (0.0, 32.0), 1.6, 0.2, 9.0

EMITTER_M = 0.06  # before the dock's face
FIELD_M, BEAM_M, OMNI_BEAM_M = 0.61, 1.5, 1.2
BEAMS_DEG = {"green": (-25.0, 5.0), "red": (-5.0, 25.0)}  # seen from the dock, counter-clockwise; 10 degrees overlap
FIELD_BIT, GREEN_BIT, RED_BIT = 1, 4, 8
RECEIVERS = ((0.15, 0.0, 0.0, math.pi), (0.15, 0.03, 0.35, 0.9), (0.15, -0.03, -0.35, 0.9))  # x, y, looks, half width
DROPOUT = 0.04  # share of ticks in which a character is missed
CONTACT_M, CONTACT_RAD = 0.03, math.radians(8.0)

SILL_S, LIFT_S, BUTTON_S = 0.12, (0.8, 2.0), 1 / 6
START_M = 0.45  # of clear floor around the place where a life begins


class Machine:
    """A robot in its room.

    Args:
        spec: The robot: where its sensors look.
        room: Where it is; `assets/room.toml` when None.
        battery_scale: Factor on the battery's capacity.
        physics: What moves the body, "planar" or "bullet".

    Raises:
        BackendUnavailable: If PyBullet is asked for and missing.

    Attributes:
        state: Pose, wheels, currents: see `world`.
        charge_ah, volts, amps, temperature_k: Of the battery.
        is_docked: Whether it touches the dock's contacts, and the dock has power.
        dock_has_power: The dock's plug.
        stuck: 1 where something holds the left wheel, 2 the right one, 0 neither.
        lifted_s, cliff_s: For how much longer somebody holds it up, or it stands at an edge.
        sag_v: What a bad battery lacks, V.
        n_ticks: Since it was placed.
    """

    def __init__(
        self,
        spec: RobotSpec | None = None,
        room: Room | None = None,
        *,
        battery_scale: float = 1.0,
        physics: Physics = "planar",
    ) -> None:
        if not 0.0 < battery_scale < math.inf:
            raise ValueError(f"battery_scale must be positive and finite, got {battery_scale}")
        spec = create2() if spec is None else spec
        self.room = load_room() if room is None else room
        self.capacity_ah = CAPACITY_AH * battery_scale
        self._segments = self.room.segments()
        self._mover = open_mover(physics, spec, self.room)
        self._angles = spec.angles("light_bump")
        self._cliffs = spec.positions("cliff_signal")
        self.state, self._found = np.zeros(world.N_STATE), np.zeros(world.N_FOUND)
        self._light = np.zeros(6)
        self._look_at: tuple[float, float, float] | None = None
        self.place(0.0, 0.0, 0.0, np.random.default_rng(0))

    def place(self, x: float, y: float, heading: float, rng: Generator) -> None:
        """Put the robot at rest at a pose (metres, radians), battery full; `rng` is the source of all its noise."""
        self._rng = rng
        self.state[:] = 0.0
        self.state[:3] = x, y, heading
        self._mover.place(x, y, heading)
        self.state[world.SIGN_L : world.SIGN_R + 1] = 1.0
        self.state[world.COUNT_L : world.COUNT_R + 1] = rng.integers(-30_000, 30_000, 2)
        self._found[:] = 0.0
        self._look_at = None
        self.charge_ah, self.temperature_k = 0.98 * self.capacity_ah, self.room.temperature_k + 8.0
        self.volts, self.amps, self.sag_v = 15.5, AWAKE_A, 0.0
        self.is_docked, self.dock_has_power, self.is_charging = False, True, False
        self.stuck, self.lifted_s, self.cliff_s, self._sill_s = 0, 0.0, 0.0, 0.0
        self._on_sill = False
        self._over_s = [0.0, 0.0]
        self._button, self._button_s, self.dirt = 0, 0.0, 0
        self.n_ticks, self._near = 0, 0
        self._lights = [0] * 6
        self._offsets = rng.uniform(*OFFSETS, 6)
        self._floor = self.room.spread * rng.standard_normal(4)

    def place_freely(self, rng: Generator) -> None:
        """Put the robot at a random pose with room around it."""
        wide, deep = (0.5 * side - START_M for side in self.room.side_m)
        for _ in range(10_000):
            x, y = float(rng.uniform(-wide, wide)), float(rng.uniform(-deep, deep))
            free = min(math.dist((x, y), world.nearest(x, y, row)) for row in self._segments)
            if free > 0.5 * START_M:
                break
        self.place(x, y, float(rng.uniform(-math.pi, math.pi)), rng)

    def close(self) -> None:
        """Let go of the simulation. Closing twice does nothing."""
        self._mover.close()

    @property
    def pose(self) -> tuple[float, float, float]:
        """Where it is: metres, and radians in (-pi, pi]."""
        x, y, heading = self.state[:3].tolist()
        return x, y, math.pi - (math.pi - heading) % (2.0 * math.pi)

    def tick(self, left: float, right: float, *, may_charge: bool, is_awake: bool = True) -> None:
        """Let 1/64 s pass.

        Args:
            left: What the left wheel is asked for, m/s.
            right: The same of the right one.
            may_charge: Whether the rules let the dock charge the battery.
            is_awake: Whether the robot is on.
        """
        self.n_ticks += 1
        noise = self._rng.standard_normal(2)
        drag, dirt_per_s = self._floor_under()
        if self.lifted_s > 0.0:
            self.lifted_s -= TICK_S
        self._mover.move(self.state, left, right, noise, drag, self.stuck, self._found)
        self._happen(dirt_per_s)
        self._touch_dock()
        self._let_current_flow(may_charge, is_awake)

    def sensors(self, **rules: int) -> Sensors:
        """Return what all sensors say now; `rules` are the packets that the robot's program fills in."""
        rng = self._rng
        x, y, heading = self.state[:3].tolist()
        if self._look_at != (x, y, heading):  # a robot that stands sees the same
            self._look_at = x, y, heading
            world.look(x, y, heading, self._angles, self._segments, self._light)
        draws = rng.standard_normal(12)
        lights = self._see(draws[:6])
        cliffs = self._floor_signals(x, y, heading, draws[6:10])
        omni, ir_left, ir_right, in_field = self._hear(x, y, heading)
        amps = self.state[world.AMP_L : world.AMP_R + 1]
        brush = (2.0 * draws[10:]).tolist()
        milliamps = 1000.0 * amps * np.copysign(1.0, self.state[world.LEFT : world.RIGHT + 1]) + 2.0 * draws[4:6]
        dropped = self.lifted_s > 0.0
        bump_l, bump_r = bool(self._found[world.BUMP_L]), bool(self._found[world.BUMP_R])
        over_l, over_r = (bool(s > OVERCURRENT_S) for s in self._over_s)
        is_cliff = [int(signal < CLIFF_BELOW) for signal in cliffs]
        volts = self.volts - self.sag_v
        return Sensors(
            bumps=bump_r | bump_l << 1 | dropped << 2 | (dropped or self._sill_s > 0.0) << 3,
            wall=int(lights[5] > NEAR_SIGNALS[5]),
            cliff_left=is_cliff[0],
            cliff_front_left=is_cliff[1],
            cliff_front_right=is_cliff[2],
            cliff_right=is_cliff[3],
            virtual_wall=int(in_field),
            overcurrents=over_r << 3 | over_l << 4,
            dirt=self.dirt,
            ir_omni=omni,
            buttons=self._button if self._button_s > 0.0 else 0,
            voltage=round(1000.0 * volts),
            current=round(1000.0 * self.amps + 4.0 * draws[0]),
            temperature=round(self.temperature_k - 273.15),
            charge=round(1000.0 * self.charge_ah),
            capacity=round(1000.0 * self.capacity_ah),
            wall_signal=min(lights[5] // 4, 1023),
            cliff_signal_left=cliffs[0],
            cliff_signal_front_left=cliffs[1],
            cliff_signal_front_right=cliffs[2],
            cliff_signal_right=cliffs[3],
            charging_sources=2 * self.is_docked,
            encoder_left=_wrapped(self.state[world.COUNT_L]),
            encoder_right=_wrapped(self.state[world.COUNT_R]),
            light_bumper=self._near,
            light_left=lights[0],
            light_front_left=lights[1],
            light_centre_left=lights[2],
            light_centre_right=lights[3],
            light_front_right=lights[4],
            light_right=lights[5],
            ir_left=ir_left,
            ir_right=ir_right,
            current_left=round(milliamps[0]),
            current_right=round(milliamps[1]),
            current_main_brush=round(brush[0]),
            current_side_brush=round(brush[1]),
            stasis=int(self._found[world.AHEAD] > 5e-4),
        )._replace(**rules)

    # ---- parts of a tick ---------------------------------------------------------------------------------------------

    def _floor_under(self) -> tuple[float, float]:
        x, y = float(self.state[0]), float(self.state[1])
        for x0, y0, x1, y1, _, _, drag, dirt in self.room.patches.tolist():
            if x0 <= x <= x1 and y0 <= y <= y1:
                return drag, dirt
        return 0.0, 0.0

    def _happen(self, dirt_per_s: float) -> None:
        """Let people and the floor do what they do."""
        lift, button, dirt = self._rng.random(3)
        moved = abs(float(self._found[world.AHEAD])) > 1e-4
        if lift < self.room.lifts_per_h / 3600.0 * TICK_S:
            self.lifted_s = float(self._rng.uniform(*LIFT_S))
        self._button_s = max(self._button_s - TICK_S, 0.0)
        if button < self.room.buttons_per_h / 3600.0 * TICK_S:
            self._button, self._button_s = 1 << int(self._rng.integers(8)), BUTTON_S
        self.dirt = max(self.dirt - 8, 0)
        if moved and dirt < dirt_per_s * TICK_S:
            self.dirt = int(self._rng.integers(20, 200))
        self.cliff_s = max(self.cliff_s - TICK_S, 0.0)
        self._sill_s = max(self._sill_s - TICK_S, 0.0)
        x, y, heading = self.state[:3].tolist()
        wheel = x - 0.5 * world.BASE_M * math.sin(heading), y + 0.5 * world.BASE_M * math.cos(heading)
        on_sill = any(x0 <= wheel[0] <= x1 and y0 <= wheel[1] <= y1 for x0, y0, x1, y1 in self.room.sills.tolist())
        if on_sill and not self._on_sill:
            self._sill_s = SILL_S
        self._on_sill = on_sill
        for i in range(2):
            self._over_s[i] = self._over_s[i] + TICK_S if self.state[world.AMP_L + i] > OVERCURRENT_A else 0.0

    def press(self, bits: int) -> None:
        """Press buttons, bits as in packet 18, for 1/6 s."""
        self._button, self._button_s = bits, BUTTON_S

    def _touch_dock(self) -> None:
        dock = self.room.dock
        x, y, heading = self.state[:3].tolist()
        ahead = (x - dock.x) * math.cos(dock.direction) + (y - dock.y) * math.sin(dock.direction)
        aside = -(x - dock.x) * math.sin(dock.direction) + (y - dock.y) * math.cos(dock.direction)
        off = math.remainder(heading - dock.direction - math.pi, 2.0 * math.pi)
        touches = abs(ahead - world.RADIUS_M) < CONTACT_M and abs(aside) < CONTACT_M and abs(off) < CONTACT_RAD
        self.is_docked = self.dock_has_power and touches

    def _let_current_flow(self, may_charge: bool, is_awake: bool) -> None:
        self.is_charging = self.is_docked and may_charge
        share = min(max(self.charge_ah / self.capacity_ah, 0.0), 1.0)
        if self.is_charging:
            self.amps = CHARGE_A if share < 0.995 else 0.06
        else:
            wheels = float(self.state[world.AMP_L] + self.state[world.AMP_R])
            self.amps = (AWAKE_A + DRIVE_A * (wheels > 0.02) - wheels) if is_awake else REST_A
        self.charge_ah = min(max(self.charge_ah + self.amps * TICK_S / 3600.0, 0.0), self.capacity_ah)
        rest_v = world.between(share, CHARGED, AT_REST_V)
        self.volts = rest_v + (CHARGING_V * share if self.is_charging else RESISTANCE_OHM * self.amps)
        goal_k = self.room.temperature_k + 8.0 + 12.0 * abs(self.amps)
        self.temperature_k += TICK_S / 600.0 * (goal_k - self.temperature_k)

    @property
    def is_full(self) -> bool:
        """Whether no more goes into the battery."""
        return self.charge_ah >= 0.995 * self.capacity_ah

    # ---- the senses --------------------------------------------------------------------------------------------------

    def _see(self, draws: np.ndarray) -> list[int]:
        """Return the light signals, and keep the robot's own judgement of them."""
        signals = []
        for i, light in enumerate(self._light.tolist()):
            level = light + self._offsets[i] - 16.0
            level += (LIGHT_SD if level > 0.0 else CLIPPED_SD) * draws[i]
            signals.append(min(max(round(level), 0), 4095))
            limit = NEAR_SIGNALS[i] - NEAR_HYSTERESIS * (self._near >> i & 1)
            self._near = self._near & ~(1 << i) | (signals[i] >= limit) << i
        self._lights = signals
        return signals

    def _floor_signals(self, x: float, y: float, heading: float, draws: np.ndarray) -> list[int]:
        c, s = math.cos(heading), math.sin(heading)
        signals = []
        for i, (ahead, aside) in enumerate(self._cliffs.tolist()):
            at_x, at_y = x + c * ahead - s * aside, y + s * ahead + c * aside
            level = self.room.brightness + self._floor[i]
            for x0, y0, x1, y1, brightness, roughness, _, _ in self.room.patches.tolist():
                if x0 <= at_x <= x1 and y0 <= at_y <= y1:
                    level = brightness + roughness * math.sin(70.0 * at_x) * math.sin(70.0 * at_y)
            if self.cliff_s > 0.0 or self.lifted_s > 0.0:
                level = 20.0
            signals.append(min(max(round(level + CLIFF_SD * draws[i]), 0), 4095))
        return signals

    def _hear(self, x: float, y: float, heading: float) -> tuple[int, int, int, bool]:
        """Return the infrared characters that the receivers hear, and whether the robot is in the force field."""
        dock = self.room.dock
        if not self.dock_has_power:
            return 0, 0, 0, False
        from_x, from_y = dock.x + EMITTER_M * math.cos(dock.direction), dock.y + EMITTER_M * math.sin(dock.direction)
        c, s = math.cos(heading), math.sin(heading)
        missed = self._rng.random(3) < DROPOUT
        heard = []
        for i, (ahead, aside, looks, width) in enumerate(RECEIVERS):
            at_x, at_y = x + c * ahead - s * aside, y + s * ahead + c * aside
            dx, dy = at_x - from_x, at_y - from_y
            distance = math.hypot(dx, dy)
            bits = FIELD_BIT if distance < FIELD_M else 0
            off = math.remainder(math.atan2(-dy, -dx) - heading - looks, 2.0 * math.pi)
            if distance < (OMNI_BEAM_M if i == 0 else BEAM_M) and abs(off) <= width:
                bearing = math.degrees(math.remainder(math.atan2(dy, dx) - dock.direction, 2.0 * math.pi))
                for bit, (low, high) in ((GREEN_BIT, BEAMS_DEG["green"]), (RED_BIT, BEAMS_DEG["red"])):
                    bits |= bit * (low <= bearing <= high)
            if missed[i] or not bits or world.is_hidden(from_x, from_y, at_x, at_y, self._segments):
                bits = 0
            heard.append(0xA0 | bits if bits else 0)
        in_field = math.hypot(x - from_x, y - from_y) < FIELD_M
        return heard[0], heard[1], heard[2], in_field


def _wrapped(counts: float) -> int:
    return (math.floor(counts) + 32768) % 65536 - 32768
