"""Senses: channels 16..52 of a packet, from the body's state and the pen alone (no engine), noisy and quantised.

Each model is a kernel in `fields.py` or `inertial.py`; this file adds memory, time and the steps of the converter.
The noise of each group is that of the real robot at rest (log of 5 October 2010); docs/SIMULATOR.md compares.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from horde_env._jit import kernel
from horde_env.robot import RobotSpec
from horde_env.sim import fields, inertial
from horde_env.sim.pen import Pen
from horde_env.sim.state import BodyState

Floats = NDArray[np.float64]

BLINK_EDGE = 6.0  # steepness of the beacon's blink: it takes about a millisecond from dark to lit

THERMAL_PERIOD_S = 0.14  # the four sensors share a slow bus: the log's readings change every 14 packets
THERMAL_LAG_S = 0.3
THERMAL_SD = 1.5 * 0.02  # of each new reading, K
THERMAL_DRIFT_SD = 6.0 * 0.02  # at rest the log's zones swim by 5 to 10 counts within seconds
THERMAL_DRIFT_S = 1.5
# How far each zone of the real robot reads off the mean of all: mean of the log, K.
ZONE_BIAS_K = 0.02 * np.array([-7.0, -38.0, -6.0, -24.0, 7.0, 89.0, -4.0, -17.0])


class Group(NamedTuple):
    """What one group of sensors works with, all of it views or constants made once.

    Attributes:
        at: Its channels in an observation.
        sensors: Rows (x, y, angle) in the body frame, shape (n, 3); empty where a group has no direction.
        normal: Its share of the packet's standard normals.
        out: Its share of the packet's values.
    """

    at: slice
    sensors: Floats
    normal: Floats
    out: Floats


# Standard normals that each group uses up in a packet, in the order of the channels.
DRAWS = {
    "acceleration": 7,
    "magnetic": 3,
    "rotational_velocity": 1,
    "ir_distance": 10,
    "ir_light": 16,
    "light": 4,
    "thermal": 16,
}


class Senses:
    """All sensors that look at the world or feel the body's motion: acceleration to thermal.

    Args:
        spec: The robot: where its sensors sit and how their converters count.
        pen: What there is to be sensed. Assign `senses.pen` to change it between two packets.
    """

    def __init__(self, spec: RobotSpec, pen: Pen) -> None:
        first, last = spec.group("acceleration").start, spec.group("thermal").stop
        self._own = slice(first, last)
        self._values = np.zeros(last - first)
        self._normal, self._uniform = np.zeros(sum(DRAWS.values())), np.zeros((2, 10))
        self._pose, self._poses = np.zeros(6), np.zeros((2, 3))
        ends = np.cumsum([0, *DRAWS.values()])
        for i, name in enumerate(DRAWS):
            at = spec.group(name)
            sensors = np.column_stack([spec.positions(name), spec.angles(name)])
            out = self._values[at.start - first : at.stop - first]
            setattr(self, f"_{name}", Group(at, sensors, self._normal[ends[i] : ends[i + 1]], out))
        self._steps = np.stack([spec.lsb, spec.offset, spec.raw_low, spec.raw_high])[:, self._own].copy()
        at = self._ir_light.at
        self._ir_light_steps = self._steps[:, at.start - first : at.stop - first].copy()
        self._packets, self._glare = np.zeros((2, 8)), self._ir_light.normal.reshape(2, 8)
        n = self._rotational_velocity.at.stop - first
        self._felt = self._normal[: ends[3]], self._values[:n]
        self.pen = pen
        self.reset(np.random.default_rng(0))

    @property
    def beacon(self) -> Floats:
        """How much each ir_light sensor changed between the last two packets, share of full scale, shape (8,)."""
        return np.asarray(np.abs(self._packets[1] - self._packets[0]))

    _acceleration: Group
    _magnetic: Group
    _rotational_velocity: Group
    _ir_distance: Group
    _ir_light: Group
    _light: Group
    _thermal: Group

    @property
    def pen(self) -> Pen:
        """What there is to be sensed."""
        return self._pen

    @pen.setter
    def pen(self, pen: Pen) -> None:
        self._pen = pen
        self._segments, self._heights, self._reflectances = pen.segments(), pen.heights(), pen.reflectances()
        self._beacon = np.array([*pen.beacon.position_m, pen.beacon.direction_rad, pen.beacon.intensity])
        self._lamps = np.array([[*lamp.position_m, lamp.intensity] for lamp in pen.lamps]).reshape(-1, 4)
        self._warm = np.array([[*w.position_m, *w[2:]] for w in pen.warm]).reshape(-1, 6)
        self._earth = np.array([pen.magnetism.north_rad, *pen.magnetism.centre, *pen.magnetism.swing])
        self._iron = np.array([[*i.position_m, i.depth_m, *i.field] for i in pen.iron]).reshape(-1, 6)

    def reset(self, rng: Generator) -> None:
        """Forget all that lags, and draw this life's beacon oscillator, roller phases and thermal drift from `rng`."""
        self._blink_hz = float(rng.uniform(*self._pen.beacon.rate_hz))
        self._blink_phase = float(rng.random())
        self._roller = rng.uniform(0.0, 2.0 * math.pi, 3)
        self._drift = THERMAL_DRIFT_SD * rng.standard_normal(8)
        self._zones = np.zeros(8)
        self._last_s = self._zone_s = -math.inf

    def read(self, previous: BodyState, body: BodyState, t_s: float, rng: Generator, out: Floats) -> None:
        """Write acceleration .. thermal of the packet at `t_s` into `out`, quantised, SI units.

        Args:
            previous: The body 10 ms before; ir_light is the mean of the packets then and now.
            body: The body at `t_s`.
            t_s: Robot time of the packet, seconds; it never runs backwards between two resets.
            rng: Source of the noise. Each call draws the same number of values.
            out: The packet's values, shape (n_channels,); only these groups are touched.
        """
        rng.standard_normal(out=self._normal)
        rng.random(out=self._uniform)
        # The shell gives way when it hits a wall: what the chip feels of it lasts two packets.
        ax, ay = 0.5 * (previous.ax + body.ax), 0.5 * (previous.ay + body.ay)
        self._pose[:] = body.x, body.y, body.heading, body.yaw_rate, ax, ay
        self._poses[0] = previous.x, previous.y, previous.heading
        self._poses[1] = self._pose[:3]
        self._feel(previous.yaw_rate, body, t_s)
        self._look(t_s)
        if t_s - self._zone_s >= THERMAL_PERIOD_S - 1e-9:
            self._look_for_warmth(t_s)
        out[self._own] = self._values
        quantise(self._steps, out[self._own])
        self._look_for_beacon(t_s, out[self._ir_light.at])

    def _feel(self, yaw_rate_before: float, body: BodyState, t_s: float) -> None:
        """Write acceleration, magnetic and rotational velocity."""
        elapsed_s = min(max(t_s - self._last_s, 0.0), 1.0)
        self._last_s = t_s
        inertial.feel(
            self._pose,
            yaw_rate_before,
            body.wheel_speed,
            body.duty,
            body.contact_n_s,
            elapsed_s,
            self._earth,
            self._iron,
            self._roller,
            *self._felt,
        )

    def _look(self, t_s: float) -> None:
        """Write ir_distance and light."""
        group, pose, segments, room = self._ir_distance, self._pose, self._segments, self._pen.room
        fields.ir_distance(pose, group.sensors, segments, self._reflectances, group.normal, self._uniform, group.out)
        # A lamp on the mains brightens twice in every cycle.
        gain = 1.0 + room.flicker * math.sin(4.0 * math.pi * room.mains_hz * t_s)
        group = self._light
        fields.light(
            pose, group.sensors, self._lamps, gain, room.light, segments, self._heights, group.normal, group.out
        )

    def _look_for_warmth(self, t_s: float) -> None:
        """Refresh the eight thermal zones, which lag behind what they see and drift; `out` holds them until then."""
        group, room_k, elapsed = self._thermal, self._pen.room.temperature_k, t_s - self._zone_s
        fields.warmth(self._pose, group.sensors, self._warm, room_k, self._segments, self._heights, group.out)
        reach = 1.0 - math.exp(-elapsed / THERMAL_LAG_S)
        follow(reach, math.exp(-elapsed / THERMAL_DRIFT_S), group.normal, self._zones, self._drift, group.out)
        group.out[:] += ZONE_BIAS_K
        self._zone_s = t_s

    def _look_for_beacon(self, t_s: float, out: Floats) -> None:
        """Write the mean of the last two packets' infrared light, each counted by the converter on its own."""
        group, lit = self._ir_light, (self._lit(t_s - inertial.PACKET_S), self._lit(t_s))
        fields.ir_light(
            self._poses, group.sensors, self._beacon, lit, self._segments, self._heights, self._glare, self._packets
        )
        mean_of_packets(self._ir_light_steps, self._packets, out)

    def _lit(self, t_s: float) -> float:
        """Return how much of the beacon is lit at `t_s`, 0..1: a square wave with soft edges."""
        wave = math.sin(2.0 * math.pi * (self._blink_hz * t_s + self._blink_phase))
        return min(max(0.5 + BLINK_EDGE * wave, 0.0), 1.0)


@kernel
def follow(reach: float, kept: float, normal: Floats, zones: Floats, drift: Floats, out: Floats) -> None:
    """Turn what the thermal zones see, in `out`, into what they show: a lag, a drift that wanders, noise; (n,) each.

    `zones` and `drift` are the sensors' memory: zones move by the share `reach` towards what is seen, the drift keeps
    the share `kept` of itself (an Ornstein-Uhlenbeck process). `normal` (2 n,).
    """
    n = out.shape[0]
    for k in range(n):
        zones[k] += reach * (out[k] - zones[k])
        drift[k] = kept * drift[k] + THERMAL_DRIFT_SD * math.sqrt(1.0 - kept * kept) * normal[n + k]
        out[k] = zones[k] + drift[k] + THERMAL_SD * normal[k]


@kernel
def quantise(steps: Floats, out: Floats) -> None:
    """Round to the converter's steps and clip to its range, in place, as RobotSpec.to_si(from_si(..)) does.

    `steps` has rows lsb, offset, lowest and highest raw value, shape (4, n).
    """
    for k in range(out.shape[0]):
        raw = np.rint((out[k] - steps[1, k]) / steps[0, k])
        out[k] = steps[0, k] * min(max(raw, steps[2, k]), steps[3, k]) + steps[1, k]


@kernel
def mean_of_packets(steps: Floats, packets: Floats, out: Floats) -> None:
    """Quantise each of two packets, shape (2, n), and write their mean; `steps` as for `quantise`."""
    quantise(steps, packets[0])
    quantise(steps, packets[1])
    for k in range(out.shape[0]):
        out[k] = 0.5 * (packets[0, k] + packets[1, k])
