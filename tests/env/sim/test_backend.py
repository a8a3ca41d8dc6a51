"""The whole simulated body, through the backend's one verb."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
from collections.abc import Iterator

import gymnasium
import numpy as np
import pytest

from horde_env.errors import BackendUnavailable
from horde_env.robot import critterbot
from horde_env.robots.critterbot.arena import load_pen
from horde_env.robots.critterbot.simulator import motors
from horde_env.robots.critterbot.simulator.backend import SimulatedBody
from horde_env.robots.critterbot.simulator.sensors import Senses
from tests.env.engines import ENGINES, NEEDS_PYBULLET
from tests.env.sim.kinematic import wander

pytestmark = pytest.mark.sim
SPEC = critterbot()
FORWARD, _, CLOCKWISE, COUNTER, STOP = SPEC.requests


@pytest.fixture(params=ENGINES)
def robot(request: pytest.FixtureRequest) -> Iterator[SimulatedBody]:
    body = SimulatedBody(physics=request.param)
    body.reset(np.random.default_rng(0))
    yield body
    body.close()


def put(robot: SimulatedBody, x: float, y: float, heading: float) -> None:
    """Move the robot and let its voltage cap grow."""
    robot.machine.reset(x, y, heading)
    for _ in range(13):
        robot.exchange(STOP)


def hold(robot: SimulatedBody, command: np.ndarray, n_steps: int) -> np.ndarray:
    """Hold a command; return the frames' values, shape (n_steps, 57)."""
    return np.array([robot.exchange(command).values for _ in range(n_steps)])


def life_on(body: SimulatedBody, seed: int) -> bytes:
    """Return 150 frames of a life with all senses, and its end, as bytes."""
    frames = [body.reset(np.random.default_rng(seed)), *wander(body, 150, seed)]
    return (
        np.array([frame.values for frame in frames]).tobytes()
        + np.array(list(frames[-1].extras.values())).tobytes()
    )


def life_of(seed: int, physics: str = "bullet") -> bytes:
    """Return that of a new body; runs in a child process too."""
    with contextlib.closing(SimulatedBody(physics=physics)) as body:
        return life_on(body, seed)


def test_the_first_frame_is_a_robot_at_rest_just_switched_on(robot: SimulatedBody) -> None:
    frame = robot.reset(np.random.default_rng(3))
    values = frame.values
    assert frame.t == 0.0
    assert frame.applied
    assert values.shape == (57,)
    assert np.all((values[0:4] > 16.2) & (values[0:4] < 17.0))
    assert np.all(values[4:10] == 0.0)
    assert np.all((values[13:16] * 255 > 126) & (values[13:16] * 255 < 136))
    assert np.all(values[53:57] == 0.0)


@pytest.mark.parametrize(
    ("request_", "axis", "low", "high"),
    [
        # 0.35 m/s: -19, 12, 6 after truncation, and control is 5 to 10 % low
        (FORWARD, "ahead", 0.28, 0.36),
        ([0.0, 0.3, 0.0], "left", 0.2, 0.32),  # the wire's y points right
        # 1.96 rad/s: 10 of 10.7 wheel units after truncation, 9.3 by control
        (COUNTER, "yaw", 1.6, 2.0),
        (CLOCKWISE, "yaw", -2.0, -1.6),
        ([0.0, 0.0, 4.6], "yaw", 4.1, 4.6),  # the largest request, 25 units
    ],
)
def test_the_robot_moves_as_requested(
    robot: SimulatedBody, request_: np.ndarray, axis: str, low: float, high: float
) -> None:
    put(robot, -0.5, 0.0, 0.3 if axis == "yaw" else 0.0)
    hold(robot, np.asarray(request_), 30 if axis == "yaw" else 12)
    motion = robot.machine.body.motion
    c = math.cos(motion.heading)
    s = math.sin(motion.heading)
    velocities = {
        "ahead": c * motion.vx + s * motion.vy,
        "left": c * motion.vy - s * motion.vx,
        "yaw": motion.yaw_rate,
    }
    assert low < velocities[axis] < high
    assert axis != "yaw" or math.hypot(motion.x + 0.5, motion.y) < 0.06


def test_a_wall_stops_the_wheels_and_raises_their_current(robot: SimulatedBody) -> None:
    """Log: velocity 0, current 25 to 35 of 255 in the wheels that push, after more than twice that in the first second.

    Along the axle of wheel 100 the other two push with equal torques and the robot does not turn;
    pushing straight ahead it would turn along the wall, because the current limit makes unequal
    wheels push equally.
    """
    axle = math.radians(100.0)
    put(robot, 0.8, 0.0, -axle)
    frames = hold(robot, 0.35 * np.array([math.cos(axle), math.sin(axle), 0.0]), 25)[14:]
    pushing = slice(SPEC.index("motor_velocity_220"), SPEC.index("motor_velocity_340") + 1)
    assert np.all(np.abs(frames[:, pushing]) <= 0.018)
    current = 255 * frames[:, SPEC.group("motor_current")].mean(axis=0)
    assert np.all((current[1:] > 22) & (current[1:] < 36))
    assert current[0] < 22
    assert robot.machine.body.motion.x < 0.882


def test_an_overheated_robot_reports_it_and_does_not_move(robot: SimulatedBody) -> None:
    put(robot, 0.0, 0.0, 0.0)
    robot.machine.motion[motors.HEAT, 1] = 70.0  # 131 - 70 = 61 < 65
    robot.exchange(COUNTER)
    frame = robot.exchange(COUNTER)
    assert frame.values[SPEC.index("overheating")] == 1.0
    assert not frame.applied
    hold(robot, COUNTER, 15)
    assert robot.machine.body.motion.yaw_rate == pytest.approx(0.0, abs=0.01)
    robot.machine.motion[motors.HEAT, 1] = 45.0
    robot.exchange(COUNTER)
    frame = robot.exchange(COUNTER)
    assert frame.values[SPEC.index("overheating")] == 0.0
    assert frame.applied


@pytest.mark.parametrize(
    ("aside_m", "off_deg", "meets"),
    [(0.0, 0, True), (0.0, 15, True), (0.0, 25, False), (0.06, 0, False)],
)
def test_the_docks_contacts_are_met_by_a_nose_that_is_near_and_straight(
    robot: SimulatedBody, aside_m: float, off_deg: float, meets: bool
) -> None:
    """Within 5 cm of the middle of the dock's face and 20 degrees of its axis."""
    machine = robot.machine
    x, y, ux, uy = machine.face[:4].tolist()
    heading = math.atan2(-uy, -ux) + math.radians(off_deg)
    radius = SPEC.body["radius_m"]
    nose = x - aside_m * uy, y + aside_m * ux
    machine.body.place(
        nose[0] - radius * math.cos(heading), nose[1] - radius * math.sin(heading), heading
    )
    assert machine.on_dock() is meets


@NEEDS_PYBULLET
def test_the_same_seed_gives_the_same_bits_in_another_process() -> None:
    first_life = life_of(7, "bullet")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(life_of, (7, "bullet")) == first_life
    assert life_of(8, "bullet") != first_life


@pytest.mark.parametrize("physics", ENGINES)
def test_a_reset_clears_the_earlier_life(physics: str) -> None:
    """Half a minute in a corner, hot motors and half-empty batteries, then the seed of a fresh process."""
    robot = SimulatedBody(physics=physics)
    robot.reset(np.random.default_rng(1))
    robot.machine.reset(0.85, 0.85, 0.6)
    robot.machine.power.charge[:] = [0.4, 0.5, 0.6]
    robot.enable_charging(True)
    hold(robot, FORWARD, 300)
    second_life = life_on(robot, 7)
    robot.close()
    assert second_life == life_of(7, physics)


def test_lives_begin_clear_of_walls_and_dock(robot: SimulatedBody) -> None:
    rng = np.random.default_rng(0)
    poses = []
    for _ in range(200):
        frame = robot.reset(rng)
        poses.append([frame.extras[key] for key in ("x_m", "y_m", "heading_rad")])
        robot.exchange(STOP)
        assert robot.machine.body.contact_impulse() == 0.0
    assert np.all(np.std(poses, axis=0) > (0.3, 0.3, 1.5))


@pytest.mark.slow
def test_a_long_life_stays_in_the_pen_visits_all_of_it_and_keeps_moving(
    robot: SimulatedBody,
) -> None:
    """20,000 steps. The body's disc stays in the pen, visits every quarter of it, and never stops for long."""
    frames = list(wander(robot, 20_000, seed=2))
    assert all(frame.applied for frame in frames)
    x, y, heading = np.array([list(frame.extras.values()) for frame in frames]).T
    assert ((-math.pi < heading) & (heading <= math.pi)).all()
    limit = 1.0 - SPEC.body["radius_m"] + 3e-3
    assert max(np.abs(x).max(), np.abs(y).max()) < limit
    visits, _, _ = np.histogram2d(x, y, bins=2, range=[[-0.88, 0.88]] * 2)
    assert np.all(visits > 0)
    speed = np.hypot(np.diff(x), np.diff(y)) / 0.1
    for stretch in np.array_split(speed, 20):
        assert stretch.mean() > 0.04


def test_a_closed_body_needs_a_reset(robot: SimulatedBody) -> None:
    robot.close()
    robot.close()
    with pytest.raises(BackendUnavailable, match="reset"):
        robot.exchange(STOP)
    assert robot.reset(np.random.default_rng(0)).applied


MOVE = (2.0, "lamp", (-0.8, -0.8, 0.45))


def life(n_steps: int, **settings: object) -> np.ndarray:
    """Return the observations of a life, its first one included, shape (n_steps + 1, 57)."""
    with gymnasium.make("horde_env:CritterbotPen-v0", disable_env_checker=True, **settings) as env:
        observations = [env.reset(seed=5)[0]]
        actions = np.random.default_rng(1).integers(0, 5, n_steps)
        observations += [env.step(int(action))[0] for action in actions]
        reset_observation = env.reset(seed=5)[0]
    np.testing.assert_array_equal(reset_observation, observations[0])  # a reset moves the lamp back
    return np.array(observations)


def test_a_moved_lamp_changes_only_light_and_warmth_from_its_time_on() -> None:
    """Packet 20 is the one at 2.0 s; the same noise is drawn in both lives, so all else is equal to the bit."""
    still = life(60)
    moved = life(60, lamp_moves=[MOVE])
    differs = still != moved
    assert not differs[:20].any()
    assert differs[20, SPEC.group("light")].any()
    assert not np.delete(differs, np.r_[SPEC.group("light"), SPEC.group("thermal")], axis=1).any()
    assert differs[:, SPEC.group("thermal")].any()


@pytest.mark.parametrize(
    ("moves", "message"),
    [
        ([(1.0, "sun", (0.0, 0.0, 1.0))], "unknown lamp 'sun'"),
        ([(-1.0, "lamp", (0.0, 0.0, 1.0))], "from 0 s on"),
        ([MOVE, MOVE], "must increase"),
        ([(float("nan"), "lamp", (0.0, 0.0, 1.0))], "lamp_moves must be"),
    ],
)
def test_invalid_moves_are_refused(moves: list[tuple], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Senses(SPEC, load_pen(), moves)


CURRENT = SPEC.group("motor_current")


@pytest.mark.parametrize("physics", ENGINES)
def test_more_friction_in_one_rotation_takes_more_current_there_from_its_time_on(
    physics: str,
) -> None:
    """Turning freely at 10 units the friction is .22 N + .3 N: 4.4 bytes of 255; 0.6 times that is 2.6 more."""

    def current(action: int, **settings: object) -> np.ndarray:
        with gymnasium.make(
            "horde_env:CritterbotPen-v0", disable_env_checker=True, physics=physics, **settings
        ) as env:
            env.reset(seed=5)
            return np.array([env.step(action)[0][CURRENT] for _ in range(80)])

    change = {"friction_changes": [(4.0, "clockwise", 1.6)]}
    for action, turn in enumerate(("clockwise", "counter-clockwise"), start=2):
        baseline = current(action)
        currents = current(action, **change)
        np.testing.assert_array_equal(currents[:40], baseline[:40])
        if turn != "clockwise":
            np.testing.assert_array_equal(currents, baseline)
        else:
            rise = (currents[50:] - baseline[50:]).mean() * 0.45 * 255
            assert rise == pytest.approx(2.6, abs=0.8)
