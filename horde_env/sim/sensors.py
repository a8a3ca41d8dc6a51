"""Senses: channels 16..52 of a packet, from the body's state and the pen alone (no engine), noisy and quantised.

Each model is a function in `fields.py` or `inertial.py`; this file adds noise, memory and the steps of the converter.
The noise of each group is that of the real robot at rest (log of 5 October 2010); docs/SIMULATOR.md compares.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from horde_env.robot import RobotSpec
from horde_env.sim import fields, inertial
from horde_env.sim._jit import kernel
from horde_env.sim.pen import Pen
from horde_env.sim.state import BodyState

Floats = NDArray[np.float64]

G_LSB = 9.81 / 1024
ACCELERATION_SD = np.array([0.9, 0.9, 2.9]) * G_LSB
SHAKE_JITTER = 0.3  # random share of the shaking
MAGNETIC_SD = np.array([2.2, 0.9, 0.7])  # counts
GYRO_SD = 2.6 / 77.5  # rad/s
LIGHT_SD = 2.0 / 1023

IR_REST_SD = 0.001  # idle; grows to IR_SEEN_SD where anything is seen
IR_SEEN_SD = 0.006
IR_EDGE = (0.015, 0.22)  # readings at the edge of range, which now and then jump
IR_JUMP_CHANCE = 0.05
IR_JUMP_TOP = 50 / 255  # "jumps wildly between 2-3 and ~50"

IR_LIGHT_BASE = 0.042  # raw 10 to 12 with no beacon
IR_LIGHT_SD = 2.0 / 255
BEACON_EDGE = 6.0  # steepness of the blink: it takes about a millisecond from dark to lit

THERMAL_PERIOD_S = 0.17  # the four sensors share a slow bus: 94 % of the log's packets repeat the last reading
THERMAL_LAG_S = 0.3
THERMAL_SD = 2.5 * 0.02  # of each new reading, K
THERMAL_DRIFT_SD = 4.0 * 0.02
THERMAL_DRIFT_S = 8.0
# How far each zone of the real robot reads off the mean of all: mean of the log, K.
ZONE_BIAS_K = 0.02 * np.array([-7.0, -38.0, -6.0, -24.0, 7.0, 89.0, -4.0, -17.0])

# Where each group's share of one draw of standard normals begins.
_DRAWS = {"acceleration": 6, "magnetic": 3, "gyro": 1, "ir_distance": 10, "ir_light": 16, "light": 4, "thermal": 16}


class Senses:
    """All sensors that look at the world or feel the body's motion: acceleration to thermal.

    Args:
        spec: The robot: where its sensors sit and how their converters count.
        pen: What there is to be sensed. Assign `senses.pen` to change it between two packets.
    """

    def __init__(self, spec: RobotSpec, pen: Pen) -> None:
        self._sensors = {
            group: np.column_stack([spec.positions(group), spec.angles(group)])
            for group in ("ir_distance", "ir_light", "light", "thermal")
        }
        groups = ("acceleration", "magnetic", "rotational_velocity", "ir_distance", "ir_light", "light", "thermal")
        self._at = {group: spec.group(group) for group in groups}
        self._own = slice(self._at["acceleration"].start, self._at["thermal"].stop)
        self._lsb, self._offset = spec.lsb, spec.offset
        self._raw_low, self._raw_high = spec.raw_low, spec.raw_high
        ends = np.cumsum([0, *_DRAWS.values()])
        self._draw = {name: slice(ends[i], ends[i + 1]) for i, name in enumerate(_DRAWS)}
        self._n_draws = int(ends[-1])
        self.pen = pen
        self.reset(np.random.default_rng(0))

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

    def reset(self, rng: Generator) -> None:
        """Forget all that lags, and draw this life's beacon oscillator and roller phases from `rng`."""
        self._beacon_hz = float(rng.uniform(*self._pen.beacon.rate_hz))
        self._beacon_phase = float(rng.random())
        self._roller = rng.uniform(0.0, 2.0 * math.pi, 3)
        self._drift = THERMAL_DRIFT_SD * rng.standard_normal(8)
        self._zones = np.full(8, math.nan)
        self._shown = np.zeros(8)
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
        normal, uniform = rng.standard_normal(self._n_draws), rng.random((2, 10))
        pose = np.array([body.x, body.y, body.heading])
        draw, at = self._draw, self._at
        self._feel(previous, body, t_s, normal, out)
        ir = out[at["ir_distance"]]
        fields.ir_distance(pose, self._sensors["ir_distance"], self._segments, self._reflectances, ir)
        ir_noise(normal[draw["ir_distance"]], uniform, ir)
        self._see_light(pose, t_s, normal[draw["light"]], out[at["light"]])
        self._see_heat(pose, t_s, normal[draw["thermal"]], out[at["thermal"]])
        self._quantise(self._own, out)
        self._see_beacon(previous, pose, t_s, normal[draw["ir_light"]], out)
        self._last_s = t_s

    def _feel(self, previous: BodyState, body: BodyState, t_s: float, normal: Floats, out: Floats) -> None:
        """Write acceleration, magnetic and rotational velocity."""
        elapsed = min(max(t_s - self._last_s, 0.0), 1.0)
        self._roller += (2.0 * math.pi / inertial.ROLLER_PITCH_M * elapsed) * body.wheel_speed
        draws = normal[self._draw["acceleration"]]
        shake = inertial.shaking(body.wheel_speed, self._roller) * (1.0 + SHAKE_JITTER * draws[3:])
        x, y = inertial.specific_force(previous, body)
        ring = inertial.RING_PER_IMPACT * body.contact_n_s * draws[5]
        still = np.array([x + inertial.REST_X, y, inertial.GRAVITY_Z + ring])
        out[self._at["acceleration"]] = still + shake + ACCELERATION_SD * draws[:3]
        counts = inertial.magnetic_counts(body, self._pen.magnetism, self._pen.iron)
        out[self._at["magnetic"]] = (counts + MAGNETIC_SD * normal[self._draw["magnetic"]]) / 1023.0
        gyro = body.yaw_rate + inertial.GYRO_OFFSET
        out[self._at["rotational_velocity"]] = gyro + GYRO_SD * normal[self._draw["gyro"]]

    def _see_light(self, pose: Floats, t_s: float, normal: Floats, out: Floats) -> None:
        """Write the four light readings: what comes from everywhere, and the flickering lamps."""
        room = self._pen.room
        fields.lamp_light(pose, self._sensors["light"], self._lamps, self._segments, self._heights, out)
        out *= 1.0 + room.flicker * math.sin(4.0 * math.pi * room.mains_hz * t_s)
        out += room.light + LIGHT_SD * normal

    def _see_heat(self, pose: Floats, t_s: float, normal: Floats, out: Floats) -> None:
        """Write the eight thermal zones: refreshed every THERMAL_PERIOD_S, lagging, drifting, held in between."""
        elapsed = t_s - self._zone_s
        if elapsed >= THERMAL_PERIOD_S - 1e-9:
            room_k = self._pen.room.temperature_k
            fields.warmth(pose, self._sensors["thermal"], self._warm, room_k, self._segments, self._heights, out)
            if math.isnan(self._zones[0]):
                self._zones[:] = out
            self._zones += (1.0 - math.exp(-elapsed / THERMAL_LAG_S)) * (out - self._zones)
            kept = math.exp(-elapsed / THERMAL_DRIFT_S)
            self._drift *= kept
            self._drift += THERMAL_DRIFT_SD * math.sqrt(1.0 - kept * kept) * normal[8:]
            self._shown = self._zones + ZONE_BIAS_K + self._drift + THERMAL_SD * normal[:8]
            self._zone_s = t_s
        out[:] = self._shown

    def _see_beacon(self, previous: BodyState, pose: Floats, t_s: float, normal: Floats, out: Floats) -> None:
        """Write the mean of the last two packets' infrared light, each counted by the converter on its own."""
        at = self._at["ir_light"]
        earlier = np.array([previous.x, previous.y, previous.heading])
        total = np.zeros(8)
        for i, (place, t) in enumerate(((earlier, t_s - inertial.PACKET_S), (pose, t_s))):
            lit = out[at]
            fields.beacon_light(place, self._sensors["ir_light"], self._beacon, self._segments, self._heights, lit)
            lit *= self._blink(t)
            lit += IR_LIGHT_BASE + IR_LIGHT_SD * normal[8 * i : 8 * i + 8]
            self._quantise(at, out)
            total += lit
        out[at] = 0.5 * total

    def _blink(self, t_s: float) -> float:
        """Return how much of the beacon is lit at `t_s`, 0..1: a square wave with soft edges."""
        wave = math.sin(2.0 * math.pi * (self._beacon_hz * t_s + self._beacon_phase))
        return min(max(0.5 + BEACON_EDGE * wave, 0.0), 1.0)

    def _quantise(self, at: slice, out: Floats) -> None:
        """Round to the converter's steps and clip to its range, in place, as RobotSpec.to_si(from_si(..)) does."""
        values, lsb, offset = out[at], self._lsb[at], self._offset[at]
        raw = np.rint((values - offset) / lsb)
        np.maximum(raw, self._raw_low[at], out=raw)
        np.minimum(raw, self._raw_high[at], out=raw)
        out[at] = lsb * raw + offset


@kernel
def ir_noise(normal: Floats, uniform: Floats, out: Floats) -> None:
    """Add the noise of the reflectance sensors in place: small when idle, and jumps at the edge of range.

    `uniform` holds two rows: whether a reading jumps, and where to.
    """
    for k in range(out.shape[0]):
        share = out[k]
        seen = min(max((share - fields.IDLE_SHARE) / 0.05, 0.0), 1.0)
        out[k] = share + (IR_REST_SD + (IR_SEEN_SD - IR_REST_SD) * seen) * normal[k]
        if IR_EDGE[0] < share < IR_EDGE[1] and uniform[0, k] < IR_JUMP_CHANCE:
            out[k] = fields.IDLE_SHARE + (IR_JUMP_TOP - fields.IDLE_SHARE) * uniform[1, k]
