"""The Critterbot's manoeuvres without the agent: the drive to the middle of its pen, and the stay at its dock.

**To the middle**, from infrared distance alone: without a turn, in two seconds, and with walls
sensed only within about 0.6 m. The ten readings give a posterior over a fixed grid of poses in an
empty square pen (uniform prior), and the robot drives along the vector to the middle in its mean.
That becomes vague as walls get out of range, so the estimate with the smallest variance is stored
and continued by dead reckoning.

**To the dock**, by `Frame.beacon`, the strength of the blinking beacon at eight sensors. The
routine is the robot's (ARM firmware of 2011, lib_recharger.c): wander until the beacon is visible,
turn IR light 0 towards it, approach at 20 wire units, then at 8, then alternate side steps (y = -8)
and small turns (theta = -4) until the bus has more than 17.0 V. Here the bearing is interpolated
between sensors, and the wiggling goes towards the dock's axis: the reflectance 45 degrees to the
left and to the right is equal if the robot faces the dock squarely. Only then the last stretch is
driven, because otherwise the nose meets a corner of the dock instead of the contacts.

**At the dock** the robot charges only if its host allows it (control modes 0x69 and 0x6A), and
stands still meanwhile: its frames have `applied` False. It is full, or needs no charge, when it
follows commands again on the dock's power. The firmware always completes a charge once begun (power
AVR of 2011, power_avr_charge.c): disabling only prevents the next.
"""

from __future__ import annotations

import cmath
import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from horde_env.backend import Floats, Frame, Observation
from horde_env.docking import CHARGE_LIMIT_S, Chargeable, DockingStay, Manoeuvres
from horde_env.robot import RobotSpec

# To the middle.
CENTRE_LIMIT_S = 2.0
SPEED = 0.44  # m/s, 25 wire units, in any direction
NEAR_M = 0.08  # the drive ends within this distance of the middle ...
ARRIVED_SPEED = 0.10  # ... below this speed, m/s
CLOSING_S = 0.35  # requested speed = distance / this
LAG_S = 0.25  # until the wheels follow a request; the robot's slew is 1 unit per 10 ms
# The body may still turn from its last action: until then only the newest reading counts
SETTLING_STEPS = 4
DRIFT_M2 = 0.002  # variance that a step of dead reckoning adds
LOUDNESS_SD = 0.5  # error of the model: noise, unknown surfaces, the grid's pitch
# Of the grid: in a quarter turn, along each side
N_HEADINGS = 15
N_PLACES = 19

# The robot's reflectance curve is unknown; this one saturates at a wall and is below the noise
# beyond 0.6 m.
HALF_SIGNAL_M = 0.09
NOISE = 0.03  # share of full scale

# To the dock.
DOCK_LIMIT_S = 60.0
DOCKED_V = 17.0  # on the bus; no battery reaches it
DOCKED_STEPS = 3  # the power AVR asks for 0.2 s

# Wire units, in m/s and rad/s.
FAST = 20 * 0.0176
SLOW = 8 * 0.0176
TURN = 10 * 0.196
SMALL_TURN = 4 * 0.196
TURN_GAIN = 2.5  # rad/s per rad of bearing
ALIGNED_RAD = 0.4  # forward only within this bearing

# Beacon, share of full scale between two packets. The firmware takes half the alternating sum of
# four packets, which is the mean change between two; its thresholds are 10 of 255 (seen) and 150
# (near). The noise here allows lower ones, and slowing down sooner is gentler.
SEEN = 7.5 / 255
NEAR = 75 / 255
FLOOR = 4 / 255  # noise alone
# Below this share of the last look it blinks between two packets: its clock is not the robot's
DIM_SHARE = 0.4
DIM_DECAY = 0.97
FOLLOWED = 0.5  # share of a fresh bearing in the estimate

FAR = 0.05  # reading of the front sensor some 0.3 m from dark plastic
CLOSE = 0.08  # reading of the front sensor some 0.2 m from dark plastic
TOUCHING = 0.85  # about 0.02 m
SQUARE = 0.35  # difference of loudness, left and right, that still counts as square
ASIDE_GAIN = 0.14  # m/s per difference of loudness
BLOCKED = 0.30  # reading of a wall that is too near to drive on or to swing the tail
# M/s per reading beyond that, m/s
PUSH_GAIN = 0.5
PUSH_MOST = 0.15
WIGGLE_S = 0.5
WIGGLING_S = 6.0
RETREAT_S = 1.5

# At the dock.
SETTLED_S = 5.0  # commands applied for this time at the dock: charged
UNPLUGGED_S = 2.0
LEAVING_S = 2.0  # 0.28 m
HELD_LIMIT_S = 5.0
BEHIND = 0.5  # reading behind the robot at which it stops backing off


def reflectance(distance_m: Floats, incidence: Floats) -> Floats:
    """Return the expected reading, 0..1, of a matte wall: s / (1 + s) with s = incidence (half_signal / distance)^2.

    `incidence` is the cosine of the angle between the beam and the wall's normal.
    """
    signal = incidence * (HALF_SIGNAL_M / np.maximum(distance_m, 0.005)) ** 2
    return np.asarray(signal / (1.0 + signal))


def loudness(reading: Floats) -> Floats:
    """Return log(1 + reading / noise): unknown surfaces err by a share of the reading, noise by a constant."""
    return np.asarray(np.log1p(np.maximum(reading, 0.0) / NOISE))


class PoseTable(NamedTuple):
    """The expected readings and the direction of the middle at poses that fill the pen."""

    loudness: Floats  # of the expected infrared readings, shape (n_poses, n_sensors)
    square: Floats  # sum of the squares of each row of `loudness`, shape (n_poses,)
    # The vector to the middle in the body's frame, in metres, and its square, shape (n_poses, 3)
    moments: Floats


def wall_distances(origin: Floats, direction: Floats, half_side_m: float) -> tuple[Floats, Floats]:
    """Return the distances (m) of a square room's walls along rays, and the cosines of incidence, both of shape (...,).

    Args:
        origin: Points inside the room, metres from its middle, shape (..., 2).
        direction: Unit vectors, shape (..., 2).
        half_side_m: Half the side of the room.
    """
    with np.errstate(divide="ignore"):
        distance = (half_side_m - np.sign(direction) * origin) / np.abs(direction)
    incidence = np.where(
        distance[..., 0] < distance[..., 1], np.abs(direction[..., 0]), np.abs(direction[..., 1])
    )
    return np.maximum(distance.min(axis=-1), 0.0), incidence


@cache
def pose_table(spec: RobotSpec, side_m: float) -> PoseTable:
    """Return the table of all poses at which the body fits between the walls.

    A square is symmetric under quarter turns, so headings cover a quarter only.
    """
    half = side_m / 2.0
    places = np.linspace(-half, half, N_PLACES + 2)[1:-1]
    headings = np.arange(N_HEADINGS) * (0.5 * np.pi / N_HEADINGS)
    heading, x, y = (grid.ravel() for grid in np.meshgrid(headings, places, places, indexing="ij"))
    # Body to pen
    turn = np.array([[np.cos(heading), -np.sin(heading)], [np.sin(heading), np.cos(heading)]])
    middle = np.column_stack([x, y])

    def placed(points: Floats) -> Floats:
        return np.asarray(np.einsum("ijn,kj->nki", turn, points) + middle[:, None, :])

    fits = (np.abs(placed(np.array(spec.body["outline_m"]))) < half).all(axis=(1, 2))
    angles = spec.angles("ir_distance")
    origin = placed(spec.positions("ir_distance"))
    direction = placed(np.column_stack([np.cos(angles), np.sin(angles)])) - middle[:, None, :]
    loud = loudness(reflectance(*wall_distances(origin, direction, half)))[fits]
    to_middle = np.einsum("jin,nj->ni", turn, -middle)[fits]
    moments = np.column_stack([to_middle, (to_middle**2).sum(axis=1)])
    return PoseTable(loud, (loud**2).sum(axis=1), moments)


class CentringDrive:
    """One drive to the middle of a pen of that side: a function of this drive's observations alone."""

    def __init__(self, spec: RobotSpec, side_m: float) -> None:
        self._table = pose_table(spec, side_m)
        self._sensors = spec.group("ir_distance")
        self._period_s = spec.period_s
        self.max_steps = round(CENTRE_LIMIT_S / spec.period_s)
        self.n_steps = 0
        self.to_middle = np.zeros(2)
        self._variance = np.inf
        self._velocity = np.zeros(2)

    def request(self, observation: Observation) -> Floats | None:
        """Process the newest scaled observation and return the next request, no faster than `SPEED`, or None."""
        self._update(observation[self._sensors].astype(np.float64))
        distance = float(np.hypot(*self.to_middle))
        arrived = distance < NEAR_M and float(np.hypot(*self._velocity)) < ARRIVED_SPEED
        if arrived or self.n_steps >= self.max_steps:
            return None
        self.n_steps += 1
        request = self.to_middle * min(1.0 / CLOSING_S, SPEED / max(distance, 1e-9))
        self._reckon(request)
        return np.array([request[0], request[1], 0.0])

    def _update(self, readings: Floats) -> None:
        """Replace the estimate by the readings' mean if its variance is smaller."""
        table = self._table
        # |expected - read|^2 without its part |read|^2, which all poses share.
        error = table.square - 2.0 * (table.loudness @ loudness(readings))
        weight = np.exp((error.min() - error) / (2.0 * LOUDNESS_SD**2))
        x, y, square = (weight @ table.moments) / weight.sum()
        variance = square - x * x - y * y
        if variance <= self._variance or self.n_steps < SETTLING_STEPS:
            self.to_middle = np.array([x, y])
            self._variance = variance

    def _reckon(self, request: Floats) -> None:
        """Advance the estimate by one period of driving."""
        previous = self._velocity
        self._velocity = request + (previous - request) * np.exp(-self._period_s / LAG_S)
        self.to_middle = self.to_middle - 0.5 * (previous + self._velocity) * self._period_s
        self._variance += DRIFT_M2


class Compass:
    """Strength and bearing of the beacon, extrapolated by the gyroscope while the blink is not visible.

    Args:
        angles: Directions of the sensors, radians counter-clockwise from forward, shape (n,).
        period_s: Time between two looks.
    """

    def __init__(self, angles: Floats, period_s: float) -> None:
        self._directions = np.exp(1j * angles)
        self._period_s = period_s
        self._sum = 0j
        self.strongest = 0.0  # the beacon at the brightest sensor, share of full scale
        self.is_dim = False  # the newest look was too dim: the estimate is extrapolated

    def update(self, beacon: Floats, yaw_rate: float) -> None:
        """Process the newest strengths, shape (n,), and the body's yaw rate, rad/s."""
        fresh = complex(np.maximum(beacon - FLOOR, 0.0) @ self._directions)
        carried = self._sum * cmath.exp(-1j * yaw_rate * self._period_s)
        strongest = float(beacon.max())
        self.is_dim = strongest < DIM_SHARE * self.strongest
        if self.is_dim:
            self._sum = DIM_DECAY * carried
            self.strongest = DIM_DECAY * self.strongest
        else:
            self._sum = carried + FOLLOWED * (fresh - carried)
            self.strongest += FOLLOWED * (strongest - self.strongest)

    @property
    def is_seen(self) -> bool:
        """True if a beacon is visible."""
        return self.strongest > SEEN

    @property
    def bearing_rad(self) -> float:
        """Direction of the beacon, counter-clockwise from forward."""
        return cmath.phase(self._sum)


class DockingDrive:
    """One drive to the dock, of `time_limit_s` at most: a function of this drive's frames alone.

    `docked` says whether the dock's voltage is on the bus.
    """

    def __init__(self, spec: RobotSpec, time_limit_s: float = DOCK_LIMIT_S) -> None:
        self._infrared = spec.group("ir_distance")
        self._gyro = spec.index("rotational_velocity")
        self._gyro_range = spec.low[self._gyro], spec.high[self._gyro]
        angles = spec.angles("ir_distance")
        self._ways = np.column_stack([np.cos(angles), np.sin(angles)])
        rim = 1.05 * float(spec.body["radius_m"])
        on_rim = np.hypot(*spec.positions("ir_distance").T) < rim
        self._front, self._left, self._right = (
            _nearest(angles, on_rim, a) for a in (0.0, math.pi / 4, -math.pi / 4)
        )
        self._compass = Compass(spec.angles("ir_light"), spec.period_s)
        self._period_s = spec.period_s
        self.max_steps = round(time_limit_s / spec.period_s)
        self.n_steps = 0
        self.docked = False
        self._n_powered = self._n_wiggles = 0
        self._tilt = 0.0  # how much louder the right is than the left, smoothed
        self._aside = 1.0  # sign of the last way aside, + left
        self._held: tuple[float, float, float] = (0.0, 0.0, 0.0)
        self._held_until = 0

    def request(
        self, observation: Observation, beacon: Floats | None, bus_v: float
    ) -> Floats | None:
        """Process the newest frame and return the next request (m/s, m/s, rad/s), or None at the end of the drive.

        Args:
            observation: Scaled observation, shape (n_channels,).
            beacon: `Frame.beacon`, shape (8,); without it the robot wanders until the time limit.
            bus_v: Voltage of the bus.
        """
        if bus_v > DOCKED_V:
            self._n_powered += 1
        else:
            self._n_powered = 0
        self.docked = self._n_powered >= DOCKED_STEPS
        if self.docked or self.n_steps >= self.max_steps:
            return None
        self.n_steps += 1
        low, high = self._gyro_range
        yaw_rate = float(low + (high - low) * observation[self._gyro])
        infrared = observation[self._infrared].astype(np.float64)
        if beacon is not None:
            self._compass.update(beacon, yaw_rate)
        loud = loudness(infrared)
        self._tilt += 0.5 * (float(loud[self._right] - loud[self._left]) - self._tilt)
        if self._n_powered:
            return np.zeros(3)
        return np.array(self._act(infrared))

    def _act(self, infrared: Floats) -> tuple[float, float, float]:
        if self.n_steps < self._held_until:
            return self._held
        if not self._compass.is_seen:
            return self._search(infrared)
        bearing = self._compass.bearing_rad
        turn = min(max(TURN_GAIN * bearing, -TURN), TURN)
        if abs(bearing) > ALIGNED_RAD:
            vx, vy = self._away(infrared)
            return vx, vy, turn
        if infrared[self._front] > TOUCHING:
            return self._wiggle()
        return self._approach(infrared, turn)

    def _search(self, infrared: Floats) -> tuple[float, float, float]:
        """Wander forward, and turn from obstacles."""
        ahead = max(infrared[self._front], infrared[self._left], infrared[self._right])
        if ahead > BLOCKED:
            if infrared[self._right] > infrared[self._left]:
                self._aside = 1.0
            else:
                self._aside = -1.0
            return self._hold((0.0, 0.0, self._aside * TURN), WIGGLE_S)
        if ahead < CLOSE:
            return FAST, 0.0, 0.0
        return SLOW, 0.0, 0.0

    def _approach(self, infrared: Floats, turn: float) -> tuple[float, float, float]:
        """Drive to the beacon: slowly near the dock, and onto its axis before the last stretch."""
        front = float(infrared[self._front])
        is_far = self._compass.strongest < NEAR and front < FAR and not self._compass.is_dim
        if is_far:
            vx, vy = self._away(infrared)
            return FAST + vx, vy, turn
        aside = min(max(ASIDE_GAIN * self._tilt, -SLOW), SLOW)
        if abs(self._tilt) < SQUARE or front < CLOSE:
            return SLOW, aside, turn
        if front < BLOCKED:
            return 0.0, aside, turn
        return -0.5 * SLOW, aside, turn

    def _wiggle(self) -> tuple[float, float, float]:
        """Alternate side steps and turns towards the dock's axis, as the firmware does; retreat every 6 s."""
        self._n_wiggles += 1
        if self._n_wiggles * WIGGLE_S > WIGGLING_S:
            self._n_wiggles = 0
            return self._hold((-SLOW, 0.0, 0.0), RETREAT_S)
        if abs(self._tilt) > 0.1:
            self._aside = math.copysign(1.0, self._tilt)
        if self._n_wiggles % 2:
            return self._hold((0.25 * SLOW, self._aside * SLOW, 0.0), WIGGLE_S)
        return self._hold((0.25 * SLOW, 0.0, -self._aside * SMALL_TURN), WIGGLE_S)

    def _away(self, infrared: Floats) -> tuple[float, float]:
        """Return a velocity from near obstacles, which gives the tail room to swing."""
        x, y = -PUSH_GAIN * (np.maximum(infrared - BLOCKED, 0.0) @ self._ways)
        size = math.hypot(x, y)
        share = 0.0
        if size > 0.0:
            share = min(1.0, PUSH_MOST / size)
        return float(share * x), float(share * y)

    def _hold(
        self, request: tuple[float, float, float], duration_s: float
    ) -> tuple[float, float, float]:
        """Repeat a request for `duration_s`."""
        self._held_until = self.n_steps + round(duration_s / self._period_s)
        self._held = request
        return request


def _nearest(angles: Floats, of: np.ndarray, wanted: float) -> int:
    """Return the sensor, of those marked in `of`, that points closest to a direction."""
    off = np.abs(np.angle(np.exp(1j * (angles - wanted))))
    return int(np.where(of, off, np.inf).argmin())


class CritterbotStay(DockingStay):
    """One stay at the dock, with at most `charge_s` of charging; a robot that is still held then stays there."""

    def __init__(self, spec: RobotSpec, body: Chargeable, charge_s: float = CHARGE_LIMIT_S) -> None:
        super().__init__(body)
        self._period_s = spec.period_s
        self._drive = DockingDrive(spec)
        self._bus = spec.index("bus_voltage")
        self._behind = spec.group("ir_distance").start + int(
            np.cos(spec.angles("ir_distance")).argmin()
        )
        self._max_charging = round(charge_s / spec.period_s)
        self._is_leaving = False
        self._n_charging = self._n_free = self._n_unplugged = self._n_backing = self._n_held = 0

    def request(self, frame: Frame, observation: Observation) -> Floats | None:
        """Process the newest frame, raw and scaled; return the next request (m/s, m/s, rad/s), or None at the end."""
        if self._is_leaving:
            return self._leave(frame, observation)
        if self.is_charging:
            return self._charge(frame, observation)
        bus_v = float(frame.values[self._bus])
        if self._is_ended:
            request = None
        else:
            request = self._drive.request(observation, frame.beacon, bus_v)
        if self._drive.docked:
            self.docked = self.is_charging = True
            self._body.enable_charging(True)
            return np.zeros(3)
        return request

    def _charge(self, frame: Frame, observation: Observation) -> Floats | None:
        """Stand still until the charge is complete, the power is off, or the time is over."""
        self._n_charging += 1
        if frame.applied:
            self._n_free += 1
        else:
            self._n_free = 0
        if frame.values[self._bus] < DOCKED_V:
            self._n_unplugged += 1
        else:
            self._n_unplugged = 0
        if self._n_unplugged * self._period_s >= UNPLUGGED_S:
            self.outcome = "the dock's power failed"
        elif self._n_free * self._period_s >= SETTLED_S:
            self.outcome = "charged"
        elif self._is_ended or self._n_charging >= self._max_charging:
            self.outcome = "charging was ended early"
        else:
            return np.zeros(3)
        self.stop_charging()
        self._is_leaving = True
        return self._leave(frame, observation)

    def _leave(self, frame: Frame, observation: Observation) -> Floats | None:
        """Back off slowly once commands are applied, but not into a wall."""
        if self._n_backing * self._period_s >= LEAVING_S or observation[self._behind] > BEHIND:
            return None
        if frame.applied:
            self._n_backing += 1
        else:
            self._n_held += 1
            if self._n_held * self._period_s >= HELD_LIMIT_S:
                self.outcome += ", and the robot is still held at the dock"
                return None
        return np.array([-SLOW, 0.0, 0.0])


def _centring_drive(robot: RobotSpec, pen: Any) -> CentringDrive:
    """Return the drive to the middle of a pen; a function of the module, so that an environment can be pickled."""
    return CentringDrive(robot, pen.side_m)


MANOEUVRES = Manoeuvres(_centring_drive, CritterbotStay)
