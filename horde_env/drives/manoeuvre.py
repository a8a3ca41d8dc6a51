"""Drive to the middle of the pen, from infrared distance alone.

The robot cannot turn on this drive, has two seconds, and senses a wall only within about 0.6 m. From its ten readings
it computes a posterior over a fixed grid of poses in an empty square pen (uniform prior), and drives along the vector
to the middle in the posterior mean. That mean becomes vague as walls get out of range, so the estimate with the
smallest variance is stored and continued by dead reckoning.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from horde_env.backend import Floats, Observation
from horde_env.robot import RobotSpec

TIME_LIMIT_S = 2.0
SPEED = 0.44  # m/s, 25 wire units, in any direction
NEAR_M = 0.08  # the drive ends within this distance of the middle ...
SLOW = 0.10  # ... at this speed, m/s
CLOSING_S = 0.35  # requested speed = distance / this
LAG_S = 0.25  # until the wheels follow a request; the robot's slew is 1 unit per 10 ms
SETTLING_STEPS = 4  # the body may still turn from its last action: until then only the newest reading counts
DRIFT_M2 = 0.002  # variance that a step of dead reckoning adds
LOUDNESS_SD = 0.5  # error of the model: noise, unknown surfaces, the grid's pitch

# The robot's reflectance curve is unknown; this one saturates at a wall and is below the noise beyond 0.6 m.
HALF_SIGNAL_M = 0.09
NOISE = 0.03  # share of full scale


def reflectance(distance_m: Floats, incidence: Floats) -> Floats:
    """Return the expected reading, 0..1, of a matte wall: s / (1 + s) with s = incidence (half_signal / distance)^2.

    Args:
        distance_m: From sensor to wall along the beam, in metres.
        incidence: Cosine of the angle between the beam and the wall's normal.
    """
    signal = incidence * (HALF_SIGNAL_M / np.maximum(distance_m, 0.005)) ** 2
    return np.asarray(signal / (1.0 + signal))


def loudness(reading: Floats) -> Floats:
    """Return log(1 + reading / noise): unknown surfaces err by a share of the reading, noise by a constant."""
    return np.asarray(np.log1p(np.maximum(reading, 0.0) / NOISE))


class PoseTable(NamedTuple):
    """The expected readings and the direction of the middle at poses that fill the pen.

    Attributes:
        loudness: Of the expected infrared readings, shape (n_poses, n_sensors).
        square: Sum of the squares of each row of `loudness`, shape (n_poses,).
        moments: The vector to the middle in the body's frame, in metres, and its square, shape (n_poses, 3).
    """

    loudness: Floats
    square: Floats
    moments: Floats


def wall_distances(origin: Floats, direction: Floats, half_side_m: float) -> tuple[Floats, Floats]:
    """Return where rays meet the walls of a square room around the origin.

    Args:
        origin: Points inside the room, metres, shape (..., 2).
        direction: Unit vectors, shape (..., 2).
        half_side_m: Half the side of the room.

    Returns:
        The distances in metres and the cosines of the angles of incidence, both of shape (...,).
    """
    with np.errstate(divide="ignore"):
        distance = (half_side_m - np.sign(direction) * origin) / np.abs(direction)
    incidence = np.where(distance[..., 0] < distance[..., 1], np.abs(direction[..., 0]), np.abs(direction[..., 1]))
    return np.maximum(distance.min(axis=-1), 0.0), incidence


@cache
def pose_table(spec: RobotSpec, side_m: float, n_headings: int = 15, n_places: int = 19) -> PoseTable:
    """Return the table of all poses at which the body fits between the walls.

    A square is symmetric under quarter turns, so headings cover a quarter only.
    """
    half = side_m / 2.0
    places = np.linspace(-half, half, n_places + 2)[1:-1]
    headings = np.arange(n_headings) * (0.5 * np.pi / n_headings)
    heading, x, y = (grid.ravel() for grid in np.meshgrid(headings, places, places, indexing="ij"))
    turn = np.array([[np.cos(heading), -np.sin(heading)], [np.sin(heading), np.cos(heading)]])  # body to pen
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
    """One drive to the middle: a function of this drive's observations alone.

    Args:
        spec: The robot.
        side_m: Inner side of the pen, in metres.
    """

    def __init__(self, spec: RobotSpec, side_m: float) -> None:
        self._table = pose_table(spec, side_m)
        self._sensors = spec.group("ir_distance")
        self._period_s = spec.period_s
        self.max_steps = round(TIME_LIMIT_S / spec.period_s)
        self.n_steps = 0
        self.to_middle = np.zeros(2)
        self._variance = np.inf
        self._velocity = np.zeros(2)

    def request(self, observation: Observation) -> Floats | None:
        """Process the newest observation and return the next request, or None at the end of the drive.

        Args:
            observation: Scaled observation, shape (n_channels,).

        Returns:
            Velocity of the body (m/s forward, m/s left, 0 rad/s), shape (3,), no faster than `SPEED`.
        """
        self._update(observation[self._sensors].astype(np.float64))
        distance = float(np.hypot(*self.to_middle))
        arrived = distance < NEAR_M and float(np.hypot(*self._velocity)) < SLOW
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
            self.to_middle, self._variance = np.array([x, y]), variance

    def _reckon(self, request: Floats) -> None:
        """Advance the estimate by one period of driving."""
        before = self._velocity
        self._velocity = request + (before - request) * np.exp(-self._period_s / LAG_S)
        self.to_middle = self.to_middle - 0.5 * (before + self._velocity) * self._period_s
        self._variance += DRIFT_M2
