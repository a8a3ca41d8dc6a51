"""The way to the dock, from sensors alone: search, turn to the beacon, approach, wiggle until the contacts meet.

The dock shows itself by an infrared beacon that blinks at 50 Hz: of all light it alone changes from packet to packet at
100 Hz, so `Frame.beacon` holds its strength at eight sensors all around. The routine is the robot's own (ARM firmware
of 2011, lib_recharger.c): wander and avoid until the beacon is seen, turn IR light 0 towards it, approach at 20 wire
units, then at 8, then alternate steps aside (y = -8) and small turns (theta = -4) until the bus has more than 17.0 V.

Three things are ours. The firmware turns to the sensor that sees most; here the bearing is taken between sensors. It
wiggles to one side only; here the side is that of the dock's axis, told by the reflectance 45 degrees to the left and
to the right, which agree where the robot faces the wall squarely. And the last stretch is driven only while they agree,
so that the nose meets the contacts and not a corner of the dock.
"""

from __future__ import annotations

import cmath
import math

import numpy as np

from horde_env.backend import Floats, Observation
from horde_env.drives.manoeuvre import loudness
from horde_env.robot import RobotSpec

TIME_LIMIT_S = 60.0
DOCKED_V = 17.0  # on the bus; no battery reaches it
DOCKED_STEPS = 3  # the power AVR asks for 0.2 s

# Wire units, in m/s and rad/s.
FAST, SLOW = 20 * 0.0176, 8 * 0.0176
TURN, SMALL_TURN = 10 * 0.196, 4 * 0.196
TURN_GAIN = 2.5  # rad/s per rad of bearing
ALIGNED_RAD = 0.4  # forward only within this bearing

# Beacon, share of full scale between two packets. The firmware takes half the alternating sum of four packets, which is
# the mean change between two, and calls 10 of 255 seen and 150 near. Noise allows less for the one here, and slowing
# down sooner is gentler.
SEEN, NEAR = 7.5 / 255, 75 / 255
FLOOR = 4 / 255  # what noise alone shows
DIM_SHARE = 0.4  # a beacon that loses so much at once passes between two packets: its clock is not the robot's
DIM_KEPT = 0.97
FOLLOWED = 0.5  # share of a fresh bearing in the estimate

FAR = 0.05  # reading of the front sensor some 0.3 m from dark plastic
CLOSE = 0.08  # reading of the front sensor some 0.2 m from dark plastic
TOUCHING = 0.85  # about 0.02 m
SQUARE = 0.35  # difference of loudness, left and right, that still counts as square
ASIDE_GAIN = 0.14  # m/s per difference of loudness
BLOCKED = 0.30  # reading of a wall that is too near to drive on or to swing the tail
PUSH_GAIN, PUSH_MOST = 0.5, 0.15  # m/s per reading beyond that, m/s
WIGGLE_S, WIGGLING_S, RETREAT_S = 0.5, 6.0, 1.5


class Compass:
    """Strength and bearing of the beacon, carried on by the gyroscope while the blink is not to be seen.

    Args:
        angles: Directions of the sensors, radians counter-clockwise from forward, shape (n,).
        period_s: Time between two looks.

    Attributes:
        strongest: The beacon at the sensor that sees most of it, share of full scale.
        is_dim: Whether the newest look told nothing and the estimate is carried on.
    """

    def __init__(self, angles: Floats, period_s: float) -> None:
        self._directions = np.exp(1j * angles)
        self._period_s = period_s
        self._sum = 0j
        self.strongest = 0.0
        self.is_dim = False

    def look(self, beacon: Floats, yaw_rate: float) -> None:
        """Take the newest strengths, shape (n,), and how fast the body turns, rad/s."""
        fresh = complex(np.maximum(beacon - FLOOR, 0.0) @ self._directions)
        carried = self._sum * cmath.exp(-1j * yaw_rate * self._period_s)
        strongest = float(beacon.max())
        self.is_dim = strongest < DIM_SHARE * self.strongest
        if self.is_dim:
            self._sum, self.strongest = DIM_KEPT * carried, DIM_KEPT * self.strongest
        else:
            self._sum = carried + FOLLOWED * (fresh - carried)
            self.strongest += FOLLOWED * (strongest - self.strongest)

    @property
    def is_seen(self) -> bool:
        """Whether there is a beacon at all."""
        return self.strongest > SEEN

    @property
    def bearing_rad(self) -> float:
        """Where it is, counter-clockwise from forward."""
        return cmath.phase(self._sum)


class DockingDrive:
    """One drive to the dock: a function of the frames of this drive and of nothing else.

    Args:
        spec: The robot.
        time_limit_s: The drive is over after this time, docked or not.

    Attributes:
        docked: Whether the dock's voltage is on the bus.
        n_steps: Requests so far.
    """

    def __init__(self, spec: RobotSpec, time_limit_s: float = TIME_LIMIT_S) -> None:
        self._infrared, self._gyro = spec.group("ir_distance"), spec.index("rotational_velocity")
        self._gyro_range = spec.low[self._gyro], spec.high[self._gyro]
        angles = spec.angles("ir_distance")
        self._ways = np.column_stack([np.cos(angles), np.sin(angles)])
        rim = 1.05 * float(spec.body["radius_m"])
        on_rim = np.hypot(*spec.positions("ir_distance").T) < rim
        self._front, self._left, self._right = (_nearest(angles, on_rim, a) for a in (0.0, math.pi / 4, -math.pi / 4))
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

    def request(self, observation: Observation, beacon: Floats | None, bus_v: float) -> Floats | None:
        """Take what the newest frame tells and return the next request, or None where the drive is over.

        Args:
            observation: Scaled observation, shape (n_channels,).
            beacon: `Frame.beacon`, shape (8,); without it the robot wanders until the time is up.
            bus_v: Voltage of the bus.

        Returns:
            Velocity of the body (m/s forward, m/s left, rad/s counter-clockwise), shape (3,).
        """
        self._n_powered = self._n_powered + 1 if bus_v > DOCKED_V else 0
        self.docked = self._n_powered >= DOCKED_STEPS
        if self.docked or self.n_steps >= self.max_steps:
            return None
        self.n_steps += 1
        low, high = self._gyro_range
        yaw_rate = float(low + (high - low) * observation[self._gyro])
        infrared = observation[self._infrared].astype(np.float64)
        if beacon is not None:
            self._compass.look(beacon, yaw_rate)
        loud = loudness(infrared)
        self._tilt += 0.5 * (float(loud[self._right] - loud[self._left]) - self._tilt)
        return np.array((0.0, 0.0, 0.0) if self._n_powered else self._act(infrared))

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
        """Wander: forward, and away from what is in the way."""
        ahead = max(infrared[self._front], infrared[self._left], infrared[self._right])
        if ahead > BLOCKED:
            self._aside = 1.0 if infrared[self._right] > infrared[self._left] else -1.0
            return self._hold((0.0, 0.0, self._aside * TURN), WIGGLE_S)
        return (FAST if ahead < CLOSE else SLOW), 0.0, 0.0

    def _approach(self, infrared: Floats, turn: float) -> tuple[float, float, float]:
        """Drive to the beacon; near the dock slowly, and onto its axis before the last stretch."""
        front = float(infrared[self._front])
        is_far = self._compass.strongest < NEAR and front < FAR and not self._compass.is_dim
        if is_far:
            vx, vy = self._away(infrared)
            return FAST + vx, vy, turn
        aside = min(max(ASIDE_GAIN * self._tilt, -SLOW), SLOW)
        if abs(self._tilt) < SQUARE or front < CLOSE:
            return SLOW, aside, turn
        return (0.0 if front < BLOCKED else -0.5 * SLOW), aside, turn

    def _wiggle(self) -> tuple[float, float, float]:
        """Step aside and turn, by turns, as the firmware does, towards the dock's axis; after a while begin again."""
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
        """Return a velocity away from what is too near, so that the tail has room to swing."""
        x, y = -PUSH_GAIN * (np.maximum(infrared - BLOCKED, 0.0) @ self._ways)
        size = math.hypot(x, y)
        share = min(1.0, PUSH_MOST / size) if size > 0.0 else 0.0
        return float(share * x), float(share * y)

    def _hold(self, asked: tuple[float, float, float], duration_s: float) -> tuple[float, float, float]:
        """Ask for the same until `duration_s` has passed."""
        self._held, self._held_until = asked, self.n_steps + round(duration_s / self._period_s)
        return asked


def _nearest(angles: Floats, of: np.ndarray, wanted: float) -> int:
    """Return which of the sensors marked in `of` looks most in a direction."""
    off = np.abs(np.angle(np.exp(1j * (angles - wanted))))
    return int(np.where(of, off, np.inf).argmin())
