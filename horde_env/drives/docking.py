"""Drive to the dock from sensors alone: search, turn to the beacon, approach, wiggle until the contacts meet.

The dock has an infrared beacon that blinks at 50 Hz. It is the only light that changes from packet to packet at 100 Hz,
so `Frame.beacon` holds its strength at eight sensors all around. The routine is the robot's (ARM firmware of 2011,
lib_recharger.c): wander and avoid until the beacon is visible, turn IR light 0 towards it, approach at 20 wire units,
then at 8, then alternate side steps (y = -8) and small turns (theta = -4) until the bus has more than 17.0 V.

Three things differ. The firmware turns to the brightest sensor; here the bearing is interpolated between sensors. It
wiggles to one side only; here the side is towards the dock's axis, found from the reflectance 45 degrees to the left
and to the right, which are equal if the robot faces the wall squarely. The last stretch is driven only while they are,
because otherwise the nose meets a corner of the dock instead of the contacts.
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
# the mean change between two; its thresholds are 10 of 255 (seen) and 150 (near). The noise here allows lower ones, and
# slowing down sooner is gentler.
SEEN, NEAR = 7.5 / 255, 75 / 255
FLOOR = 4 / 255  # noise alone
DIM_SHARE = 0.4  # below this share of the last look it blinks between two packets: its clock is not the robot's
DIM_DECAY = 0.97
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
    """Strength and bearing of the beacon, extrapolated by the gyroscope while the blink is not visible.

    Args:
        angles: Directions of the sensors, radians counter-clockwise from forward, shape (n,).
        period_s: Time between two looks.

    Attributes:
        strongest: The beacon at the brightest sensor, share of full scale.
        is_dim: Whether the newest look was too dim and the estimate is extrapolated.
    """

    def __init__(self, angles: Floats, period_s: float) -> None:
        self._directions = np.exp(1j * angles)
        self._period_s = period_s
        self._sum = 0j
        self.strongest = 0.0
        self.is_dim = False

    def update(self, beacon: Floats, yaw_rate: float) -> None:
        """Process the newest strengths, shape (n,), and the body's yaw rate, rad/s."""
        fresh = complex(np.maximum(beacon - FLOOR, 0.0) @ self._directions)
        carried = self._sum * cmath.exp(-1j * yaw_rate * self._period_s)
        strongest = float(beacon.max())
        self.is_dim = strongest < DIM_SHARE * self.strongest
        if self.is_dim:
            self._sum, self.strongest = DIM_DECAY * carried, DIM_DECAY * self.strongest
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
    """One drive to the dock: a function of this drive's frames alone.

    Args:
        spec: The robot.
        time_limit_s: The drive ends after this time, docked or not.

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
        """Process the newest frame and return the next request, or None at the end of the drive.

        Args:
            observation: Scaled observation, shape (n_channels,).
            beacon: `Frame.beacon`, shape (8,); without it the robot wanders until the time limit.
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
            self._compass.update(beacon, yaw_rate)
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
        """Wander forward, and turn from obstacles."""
        ahead = max(infrared[self._front], infrared[self._left], infrared[self._right])
        if ahead > BLOCKED:
            self._aside = 1.0 if infrared[self._right] > infrared[self._left] else -1.0
            return self._hold((0.0, 0.0, self._aside * TURN), WIGGLE_S)
        return (FAST if ahead < CLOSE else SLOW), 0.0, 0.0

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
        return (0.0 if front < BLOCKED else -0.5 * SLOW), aside, turn

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
        share = min(1.0, PUSH_MOST / size) if size > 0.0 else 0.0
        return float(share * x), float(share * y)

    def _hold(self, request: tuple[float, float, float], duration_s: float) -> tuple[float, float, float]:
        """Repeat a request for `duration_s`."""
        self._held, self._held_until = request, self.n_steps + round(duration_s / self._period_s)
        return request


def _nearest(angles: Floats, of: np.ndarray, wanted: float) -> int:
    """Return the sensor, of those marked in `of`, that points closest to a direction."""
    off = np.abs(np.angle(np.exp(1j * (angles - wanted))))
    return int(np.where(of, off, np.inf).argmin())
