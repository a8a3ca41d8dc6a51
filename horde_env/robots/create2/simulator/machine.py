"""Machine: the robot without its program: body, battery and sensors in a room, one tick of 1/64 s at a time."""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator

from horde_env.backend import Floats, Ints
from horde_env.robot import RobotSpec, create2
from horde_env.robots.create2.place import Room, load_room
from horde_env.robots.create2.simulator import tick, world
from horde_env.robots.create2.simulator.tick import Rules
from horde_env.robots.create2.wire import FULL, OFF, PASSIVE, SAFE, TICK_S
from horde_env.sim.saving import number_of

CAPACITY_AH = 2.7
OFFSETS = (0.0, 32.0)  # of the light signals
LIFT_S, BUTTON_S = (0.8, 2.0), 1 / 6
REACH_M = 0.1  # more than the robot moves in MOST_TICKS
DRIVEN, CHARGEABLE = (SAFE, FULL), (OFF, PASSIVE)  # modes
MOST_TICKS = 10  # of one `run`
START_M = 0.45  # clear floor around the start


def check_physics(physics: str | None) -> None:
    """Raise ValueError unless `physics` is "planar" or None: the Create 2 has one engine."""
    if physics not in (None, "planar"):
        raise ValueError(f"physics must be 'planar' for the Create 2, not {physics!r}; leave it out")


class Machine:
    """A robot in its room.

    Args:
        spec: The robot, for the positions of its sensors.
        room: The room; `assets/room.toml` when None.
        battery_scale: Factor on the battery's capacity.

    Raises:
        ValueError: If `battery_scale` is not positive and finite.

    Attributes:
        state: Pose, wheels, currents: see `world`.
        found: Contacts and motion of the last tick: see `world`.
        amounts, marks: Battery, timers and contacts, indexed by the constants of `tick`.
        packets: The last readings: packets 7 to 58, shape (52,).
        charge_ah, volts, amps, temperature_k: Of the battery.
        is_docked: Whether it touches the dock's contacts, and the dock has power.
        is_charging: Whether the dock charges the battery.
        dock_has_power: Whether the dock has power.
        stuck: 1 if the left wheel is blocked, 2 the right one, 0 neither.
        lifted_s, cliff_s: Remaining time of being lifted, and of being at an edge, in seconds.
        sag_v: Voltage drop of a bad battery, V.
    """

    charge_ah: float = number_of("amounts", tick.CHARGE_AH, float)
    capacity_ah: float = number_of("amounts", tick.CAPACITY_AH, float)
    volts: float = number_of("amounts", tick.VOLTS, float)
    amps: float = number_of("amounts", tick.AMPS, float)
    temperature_k: float = number_of("amounts", tick.KELVIN, float)
    sag_v: float = number_of("amounts", tick.SAG_V, float)
    lifted_s: float = number_of("amounts", tick.LIFTED_S, float)
    cliff_s: float = number_of("amounts", tick.CLIFF_S, float)
    is_docked: bool = number_of("marks", tick.IS_DOCKED, bool)
    dock_has_power: bool = number_of("marks", tick.HAS_POWER, bool)
    is_charging: bool = number_of("marks", tick.IS_CHARGING, bool)
    stuck: int = number_of("marks", tick.STUCK, int)

    def __init__(
        self,
        spec: RobotSpec | None = None,
        room: Room | None = None,
        *,
        battery_scale: float = 1.0,
    ) -> None:
        if not 0.0 < battery_scale < math.inf:
            raise ValueError(f"battery_scale must be positive and finite, got {battery_scale}")
        spec = create2() if spec is None else spec
        self.room = load_room() if room is None else room
        self.amounts, self.marks = np.zeros(tick.N_AMOUNTS), np.zeros(tick.N_MARKS, dtype=np.int64)
        self.capacity_ah = CAPACITY_AH * battery_scale
        self._segments = self.room.segments()
        dock = np.array(self.room.dock[:3])
        eyes = spec.angles("light_bump"), spec.positions("cliff_signal")
        self._scene: tick.Scene = (self._segments, self.room.patches, self.room.sills, dock, *eyes)
        self.state, self.found = np.zeros(world.N_STATE), np.zeros(world.N_FOUND)
        self.packets = np.zeros(tick.N_PACKETS, dtype=np.int64)
        normal, uniform = np.zeros((MOST_TICKS, 14)), np.zeros((MOST_TICKS, 6))
        self._normal, self._uniform = normal, uniform
        # Of each tick: the wheels' noise, what happens, the sensors' noise, the receivers' dropouts.
        self._draws = [(normal[k, :2], uniform[k, :3], normal[k, 2:], uniform[k, 3:]) for k in range(MOST_TICKS)]
        self._lift_chance = self.room.lifts_per_h / 3600.0 * TICK_S
        self._button_chance = self.room.buttons_per_h / 3600.0 * TICK_S
        self._dirty = [(*row[:4], row[7]) for row in self.room.patches.tolist() if row[7] > 0.0]
        self.place(0.0, 0.0, 0.0, np.random.default_rng(0))

    def place(self, x: float, y: float, heading: float, rng: Generator) -> None:
        """Place the robot at rest at a pose (metres, radians), battery full; `rng` is the source of all noise."""
        self._rng = rng
        self.state[:] = 0.0
        self.state[:3] = x, y, heading
        self.state[world.SIGN_L : world.SIGN_R + 1] = 1.0
        self.state[world.COUNT_L : world.COUNT_R + 1] = rng.integers(-30_000, 30_000, 2)
        self.found[:] = 0.0
        capacity_ah = self.capacity_ah
        self.amounts[:], self.marks[:] = 0.0, 0
        self.packets[:] = 0
        self.amounts[tick.SEEN_AT] = math.nan
        self.amounts[tick.ROOM_KELVIN], self.amounts[tick.BRIGHTNESS] = self.room.temperature_k, self.room.brightness
        self.capacity_ah, self.charge_ah, self.temperature_k = (
            capacity_ah,
            0.98 * capacity_ah,
            self.room.temperature_k + 8.0,
        )
        self.volts, self.amps = 15.5, tick.AWAKE_A
        self.dock_has_power = True
        self.amounts[tick.OFFSET : tick.OFFSET + 6] = rng.uniform(*OFFSETS, 6)
        self.amounts[tick.FLOOR : tick.FLOOR + 4] = self.room.spread * rng.standard_normal(4)

    def place_freely(self, rng: Generator) -> None:
        """Place the robot at a random pose with free floor around it."""
        wide, deep = (0.5 * side - START_M for side in self.room.side_m)
        for _ in range(10_000):
            x, y = float(rng.uniform(-wide, wide)), float(rng.uniform(-deep, deep))
            free = min(math.dist((x, y), world.nearest(x, y, row)) for row in self._segments)
            if free > 0.5 * START_M:
                break
        self.place(x, y, float(rng.uniform(-math.pi, math.pi)), rng)

    @property
    def pose(self) -> tuple[float, float, float]:
        """The pose: metres, and radians in (-pi, pi]."""
        x, y, heading = self.state[:3].tolist()
        return x, y, math.pi - (math.pi - heading) % (2.0 * math.pi)

    def tick(self, left: float, right: float, *, may_charge: bool, is_awake: bool = True) -> None:
        """Run one tick.

        Args:
            left: Request of the left wheel, m/s.
            right: Request of the right wheel, m/s.
            may_charge: Whether the mode permits charging.
            is_awake: Whether the robot is on.
        """
        wheels, chances, _, _ = self._draws[0]
        self._rng.standard_normal(out=wheels)
        self._rng.random(out=chances)
        self._pass(0, left, right, may_charge, is_awake)

    def read(self) -> Ints:
        """Return packets 7 to 58 as the sensors read them now, shape (52,); the program's own packets are not set.

        The array is `packets`.
        """
        return self._read(0)

    def run(self, n: int, rules: Rules, raw: Floats) -> int:
        """Run ticks as `tick` and `read` do, with the same random numbers, in as few calls as possible.

        Args:
            n: Number of ticks, at most MOST_TICKS.
            rules: The program's state; see `tick.Rules`.
            raw: Receives the channels of each tick, shape (n, 55) or more rows.

        Returns:
            The mode after the last tick: Passive if something ended Safe.
        """
        left, right, mode, was_docked = rules
        chances = self._lift_chance, self._button_chance, self._dirt_chance()
        n_done = 0
        while n_done < n:
            n_quiet = tick.draw(self._rng, n - n_done, chances, self.dock_has_power, self._normal, self._uniform)
            if n_quiet:
                before = left, right, mode, was_docked
                mode = tick.live(
                    n_quiet, self.state, self.found, self._scene, self.amounts, self.marks, before,
                    self._normal, self._uniform, self.packets, raw[n_done:],
                )  # fmt: skip
                n_done += n_quiet
            if n_done < n:  # something happens in the next tick
                left, right = (left, right) if mode in DRIVEN else (0.0, 0.0)
                was_docked = self.marks[tick.IS_DOCKED] == 1
                self._pass(n_quiet, left, right, mode in CHARGEABLE, True)
                self._read(n_quiet)
                mode = tick.conclude(self.packets, self.marks, (left, right, mode, was_docked), raw[n_done])
                n_done += 1
            left, right = (left, right) if mode in DRIVEN else (0.0, 0.0)
            was_docked = self.marks[tick.IS_DOCKED] == 1
        return int(mode)

    # ---- parts of it -------------------------------------------------------------------------------------------------

    def _read(self, k: int) -> Ints:
        _, _, noise, dropouts = self._draws[k]
        self._rng.standard_normal(out=noise)
        if self.dock_has_power:
            self._rng.random(out=dropouts)
        body = self.state, self.found, self._scene, self.amounts, self.marks
        tick.sense(*body, noise, dropouts, self.packets)
        return self.packets

    def _pass(self, k: int, left: float, right: float, may_charge: bool, is_awake: bool) -> None:
        """Run a tick with the random numbers of row `k`; arguments as of `tick`."""
        noise, chances, _, _ = self._draws[k]
        drag, dirt_per_s = tick.floor_under(self.state[world.X], self.state[world.Y], self.room.patches)
        world.move(self.state, left, right, noise, drag, self.stuck, self._segments, self.found)
        tick.pass_time(self.state, self._scene, self.amounts, self.marks, may_charge, is_awake)
        lift, button, dirt = chances.tolist()
        if lift < self._lift_chance:
            self.lifted_s = float(self._rng.uniform(*LIFT_S))
        if button < self._button_chance:
            self.press(1 << int(self._rng.integers(8)))
        if abs(float(self.found[world.AHEAD])) > 1e-4 and dirt < dirt_per_s * TICK_S:
            self.marks[tick.DIRT] = int(self._rng.integers(20, 200))

    def _dirt_chance(self) -> float:
        """Return the largest chance of dirt in a tick that the body can reach in MOST_TICKS."""
        x, y = self.state[:2].tolist()
        near = [
            dirt_per_s * TICK_S
            for x0, y0, x1, y1, dirt_per_s in self._dirty
            if x0 - REACH_M < x < x1 + REACH_M and y0 - REACH_M < y < y1 + REACH_M
        ]
        return max(near, default=0.0)

    def press(self, bits: int) -> None:
        """Press buttons, bits as in packet 18, for 1/6 s."""
        self.marks[tick.BUTTON], self.amounts[tick.BUTTON_S] = bits, BUTTON_S

    @property
    def is_full(self) -> bool:
        """True if the battery is full."""
        return self.charge_ah >= tick.FULL_SHARE * self.capacity_ah
