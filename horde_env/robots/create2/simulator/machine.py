"""Machine: the robot without its program: body, battery and sensors in a room, one tick of 1/64 s at a time."""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator

from horde_env._jit import RecordFields
from horde_env.backend import Floats, Ints
from horde_env.robot import create2
from horde_env.robots.create2.arena import Room, load_room
from horde_env.robots.create2.simulator import tick, world
from horde_env.robots.create2.simulator.tick import RuleFields
from horde_env.robots.create2.wire import TICK_S
from horde_env.sim.saving import Saved, number_of

CAPACITY_AH = 2.7
OFFSETS = (0.0, 32.0)  # of the light signals
START_M = 0.45  # clear floor around the start


def check_physics(physics: str | None) -> None:
    """Raise ValueError unless `physics` is "planar" or None: the Create 2 has one engine."""
    if physics not in (None, "planar"):
        raise ValueError(
            f"physics must be 'planar' for the Create 2, not {physics!r}; leave it out"
        )


class Machine(Saved):
    """A robot in its room (`assets/room.toml` when None).

    Attributes:
        arrays: Room and robot for the kernels.
        state, contact, amounts, marks, packets: Arrays of it, which are its state, without the
            generator. Their indices are constants of `world` and `tick`.
    """

    saved = ("state", "contact", "amounts", "marks", "packets")
    charge_ah: float = number_of("amounts", tick.CHARGE_AH, float)
    capacity_ah: float = number_of("amounts", tick.CAPACITY_AH, float)
    volts: float = number_of("amounts", tick.VOLTS, float)
    amps: float = number_of("amounts", tick.AMPS, float)
    temperature_k: float = number_of("amounts", tick.KELVIN, float)
    sag_v: float = number_of("amounts", tick.SAG_V, float)  # voltage drop of a bad battery
    lifted_s: float = number_of("amounts", tick.LIFTED_S, float)  # remaining time
    cliff_s: float = number_of("amounts", tick.CLIFF_S, float)  # remaining time at an edge
    is_docked: bool = number_of("marks", tick.IS_DOCKED, bool)  # it touches contacts with power
    dock_has_power: bool = number_of("marks", tick.HAS_POWER, bool)
    is_charging: bool = number_of("marks", tick.IS_CHARGING, bool)
    # 1 if the left wheel is blocked, 2 the right one
    stuck: int = number_of("marks", tick.STUCK, int)

    def __init__(self, room: Room | None = None, *, battery_scale: float = 1.0) -> None:
        if not 0.0 < battery_scale < math.inf:
            raise ValueError(f"battery_scale must be positive and finite, got {battery_scale}")
        if room is None:
            self.room = load_room()
        else:
            self.room = room
        self.amounts = np.zeros(tick.N_AMOUNTS)
        self.marks = np.zeros(tick.N_MARKS, dtype=np.int64)
        self.capacity_ah = CAPACITY_AH * battery_scale
        self.state = np.zeros(world.N_STATE)
        self.contact = np.zeros(world.N_CONTACTS)
        self.packets = np.zeros(tick.N_PACKETS, dtype=np.int64)
        self.arrays = tick.RobotArrays(
            segments=self.room.segments(),
            patches=self.room.patches,
            sills=self.room.sills,
            dock=np.array(self.room.dock[:3]),
            lights=create2().angles("light_bump"),
            cliffs=create2().positions("cliff_signal"),
            lift_chance=self.room.lifts_per_h / 3600.0 * TICK_S,
            button_chance=self.room.buttons_per_h / 3600.0 * TICK_S,
            state=self.state,
            contact=self.contact,
            amounts=self.amounts,
            marks=self.marks,
            normal=np.zeros(12),
            uniform=np.zeros(3),
            packets=self.packets,
        )
        self._fields: RecordFields = tuple(self.arrays)
        self.place(0.0, 0.0, 0.0, np.random.default_rng(0))

    def place(self, x: float, y: float, heading: float, rng: Generator) -> None:
        """Place the robot at rest at a pose (metres, radians), battery full; `rng` is the source of all noise."""
        self._rng = rng
        self.state[:] = 0.0
        self.state[:3] = x, y, heading
        self.state[world.SIGN_L : world.SIGN_R + 1] = 1.0
        self.state[world.COUNT_L : world.COUNT_R + 1] = rng.integers(-30_000, 30_000, 2)
        self.contact[:] = 0.0
        capacity_ah = self.capacity_ah
        self.amounts[:] = 0.0
        self.marks[:] = 0
        self.packets[:] = 0
        self.amounts[tick.SEEN_AT] = math.nan
        self.amounts[tick.ROOM_KELVIN] = self.room.temperature_k
        self.amounts[tick.BRIGHTNESS] = self.room.brightness
        self.capacity_ah = capacity_ah
        self.charge_ah = 0.98 * capacity_ah
        self.temperature_k = self.room.temperature_k + 8.0
        self.volts = 15.5
        self.amps = tick.AWAKE_A
        self.dock_has_power = True
        self.amounts[tick.OFFSET : tick.OFFSET + 6] = rng.uniform(*OFFSETS, 6)
        self.amounts[tick.FLOOR : tick.FLOOR + 4] = self.room.spread * rng.standard_normal(4)

    def place_freely(self, rng: Generator) -> None:
        """Place the robot at a random pose with free floor around it."""
        wide, deep = (0.5 * side - START_M for side in self.room.side_m)
        for _ in range(10_000):
            x = float(rng.uniform(-wide, wide))
            y = float(rng.uniform(-deep, deep))
            free = min(math.dist((x, y), world.nearest(x, y, row)) for row in self.arrays.segments)
            if free > 0.5 * START_M:
                break
        self.place(x, y, float(rng.uniform(-math.pi, math.pi)), rng)

    @property
    def pose(self) -> tuple[float, float, float]:
        """The pose: metres, and radians in (-pi, pi]."""
        x, y, heading = self.state[:3].tolist()
        return x, y, math.pi - (math.pi - heading) % (2.0 * math.pi)

    def tick(self, left: float, right: float, *, may_charge: bool, is_awake: bool = True) -> None:
        """Run one tick under the wheels' requests, m/s; `may_charge`: the mode permits it, `is_awake`: it is on."""
        tick.pass_tick(self._rng, self._fields, left, right, may_charge, is_awake)

    def read(self) -> Ints:
        """Return `packets` as the sensors read them now; the program's own packets are not set."""
        tick.read_tick(self._rng, self._fields)
        return self.packets

    def run(self, n: int, rules: RuleFields, raw: Floats) -> int:
        """Run `n` ticks as `tick` and `read` do, with the same random numbers, in one call; see `tick.live`."""
        return int(tick.live(self._rng, self._fields, n, rules, raw))

    def press(self, bits: int) -> None:
        """Press buttons, bits as in packet 18, for 1/6 s."""
        self.marks[tick.BUTTON] = bits
        self.amounts[tick.BUTTON_S] = tick.PRESSED_S

    @property
    def is_full(self) -> bool:
        """True if the battery is full."""
        return self.charge_ah >= tick.FULL_SHARE * self.capacity_ah
