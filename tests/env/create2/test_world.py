"""The kernels of the Create 2's world against slow twins and plain geometry."""

from __future__ import annotations

import math

import gymnasium
import numpy as np
import pytest

from horde_env.robot import create2
from horde_env.robots.create2.place import load_room
from horde_env.robots.create2.simulator import world
from horde_env.robots.create2.simulator.machine import Machine
from horde_env.robots.create2.wire import TICK_S

SPEC = create2()
pytestmark = pytest.mark.kernels
WALL = np.array([[1.0, -5.0, 1.0, 5.0, 1.0, 0.0]])


def slow_hit(x: float, y: float, dx: float, dy: float, row: np.ndarray) -> float:
    """Solve (x, y) + t (dx, dy) = start + u (end - start) as two linear equations."""
    start, end = row[:2], row[2:4]
    matrix = np.array([[dx, start[0] - end[0]], [dy, start[1] - end[1]]])
    if abs(np.linalg.det(matrix)) < 1e-12:
        return math.inf
    t, u = np.linalg.solve(matrix, start - np.array([x, y]))
    return float(t) if t >= 0.0 and 0.0 <= u <= 1.0 else math.inf


def test_rays_and_nearest_points_agree_with_their_slow_twins() -> None:
    """Random rays and points in the room; nearest by a fine walk along the segment."""
    rng, segments = np.random.default_rng(0), load_room().segments()
    shares = np.linspace(0.0, 1.0, 2_001)[:, None]
    for _ in range(200):
        x, y, angle = rng.uniform(-1.4, 1.4), rng.uniform(-1.4, 1.4), rng.uniform(-math.pi, math.pi)
        row = segments[rng.integers(len(segments))]
        dx, dy = math.cos(angle), math.sin(angle)
        assert world.hit(x, y, dx, dy, row) == pytest.approx(slow_hit(x, y, dx, dy, row), abs=1e-9)
        walk = row[:2] + shares * (row[2:4] - row[:2])
        least = np.hypot(*(walk - [x, y]).T).min()
        assert math.dist((x, y), world.nearest(x, y, row)) == pytest.approx(least, abs=2e-3)


def test_light_falls_with_the_distance_as_it_was_measured() -> None:
    """Head-on against a light wall, the central pair: 1850 at 25 mm, 560 at 70, 92 at 150; the sides see less."""
    angles, out = SPEC.angles("light_bump"), np.zeros(6)
    for millimetres, signal in ((25, 1850), (70, 560), (150, 92)):
        world.look(1.0 - world.RADIUS_M - millimetres / 1000, 0.0, 0.0, angles, WALL, out)
        assert 0.5 * signal < out[2] < 1.1 * signal
        assert out[2] == pytest.approx(out[3])
        assert out[0] < out[1] < out[2]


def test_nothing_gets_into_a_wall_whatever_it_is_asked() -> None:
    """The centre keeps the radius from all segments; both switches close head-on, one for a contact on its side."""
    segments, found, rng = load_room().segments(), np.zeros(3), np.random.default_rng(0)
    state = np.zeros(world.N_STATE)
    for _ in range(64 * 60):
        left, right = rng.uniform(-0.5, 0.5, 2)
        for _ in range(8):
            world.move(state, left, right, rng.standard_normal(2), 0.0, 0, segments, found)
        gaps = [math.dist(state[:2], world.nearest(state[0], state[1], row)) for row in segments]
        assert min(gaps) > world.RADIUS_M - 2e-3
    for heading, bumps in ((0.0, (1.0, 1.0)), (0.8, (0.0, 1.0)), (-0.8, (1.0, 0.0)), (math.pi, (0.0, 0.0))):
        state[:] = 0.0
        state[:3] = 1.0 - world.RADIUS_M + 0.002, 0.0, heading
        world.move(state, 0.0, 0.0, np.zeros(2), 0.0, 0, WALL, found)
        assert (found[world.BUMP_L], found[world.BUMP_R]) == bumps


def test_wheels_take_their_speed_at_two_metres_per_second_squared() -> None:
    """0 to 0.189 m/s in seven ticks; the way is the speed's integral, and the encoders count it."""
    state, found = np.zeros(world.N_STATE), np.zeros(3)
    speeds = []
    for _ in range(64):
        world.move(state, 0.199, 0.199, np.zeros(2), 0.0, 0, WALL + np.array([10, 0, 10, 0, 0, 0]), found)
        speeds.append(state[world.LEFT])
    assert speeds[5] == pytest.approx(6 * 2.0 / 64, abs=1e-9)
    assert speeds[6] == pytest.approx(0.189)
    assert state[world.X] == pytest.approx(sum(speeds) * TICK_S)
    assert state[world.COUNT_L] * world.COUNT_M == pytest.approx(state[world.X])


def driven(start: tuple[float, float, float], speed: float) -> tuple[np.ndarray, np.ndarray]:
    """Return states and contacts after each tick of four seconds at a speed (m/s), shapes (256, 13) and (256, 3)."""
    machine = Machine()
    machine.place(*start, np.random.default_rng(0))
    states, found = [], []
    for _ in range(256):
        machine.tick(speed, speed, may_charge=False)
        states.append(machine.state.copy())
        found.append(machine.found.copy())
    return np.array(states), np.array(found)


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ((0.9, -1.0, 0.0), (1.5 - world.RADIUS_M, -1.0)),  # a wall
        ((-1.0, 0.55, math.pi / 2), (-1.0, 1.0 - world.RADIUS_M)),  # the sofa
        ((0.0, -1.0, -math.pi / 2), (0.0, -1.4 + world.RADIUS_M)),  # the dock
    ],
)
def test_an_obstacle_ahead_stops_the_robot_while_its_wheels_turn(
    start: tuple[float, float, float], end: tuple[float, float]
) -> None:
    """At 0.2 m/s: both bumper switches close, except at the dock's face; the motors' current rises."""
    states, found = driven(start, 0.2)
    assert states[-1, :2] == pytest.approx(end, abs=3e-3)
    is_dock = end[0] == 0.0
    assert found[-64:, world.BUMP_L].all() == found[-64:, world.BUMP_R].all() == (not is_dock)
    assert np.abs(found[-64:, world.AHEAD]).max() < 3e-4
    assert states[-1, world.AMP_L] > 0.45
    assert (np.diff(states[-64:, world.COUNT_L]) > 0).all()


def test_the_robot_slides_along_a_wall_met_at_30_degrees() -> None:
    """With the wall on its right the right switch closes, and the robot continues along the wall."""
    states, found = driven((0.3, -1.25, -math.pi / 6), 0.15)
    end = found[-64:]
    assert (end[:, world.BUMP_L].mean(), end[:, world.BUMP_R].mean()) == pytest.approx((0.0, 1.0), abs=0.1)
    assert states[-64:, 1] == pytest.approx(-1.5 + world.RADIUS_M, abs=2e-3)
    speed = np.hypot(*(states[-1, :2] - states[-64, :2])) / (63 / 64)
    assert 0.05 < speed < 0.15


@pytest.mark.parametrize("name", ["CreatePen-v0", "CreateEmulated-v0"])
def test_an_engine_other_than_planar_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="physics"):
        gymnasium.make(f"horde_env:{name}", physics="bullet")
