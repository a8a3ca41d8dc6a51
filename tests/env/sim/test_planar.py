"""The planar engine against PyBullet, against the laws of contact, and without PyBullet anywhere."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horde_env.robot import asset, critterbot
from horde_env.robots.critterbot.arena import load_pen
from horde_env.robots.critterbot.simulator.backend import SimulatedBody
from horde_env.robots.critterbot.simulator.machine import Machine
from horde_env.sim import physics as engines
from horde_env.sim import planar
from horde_env.sim.planar import Hull, PlanarBody, load_hull
from tests.env.sim.kinematic import wander

SPEC = critterbot()
PEN = load_pen()
URDF = asset("robot/critterbot.urdf")
TICK_S = 0.01
REACH_M = SPEC.body["tail_tip_m"]


def body_among(*boxes: tuple[float, float, float, float]) -> PlanarBody:
    return PlanarBody(load_hull(URDF), [(*box, 0.25) for box in boxes], tick_s=TICK_S)


def commanded(physics: engines.Physics, seed: int) -> np.ndarray:
    """Return the path of 10 s in the free middle of a large pen under random control packets, rows of Motion."""
    machine = Machine(SPEC, PEN, physics=physics)
    machine.body.close()
    machine.open_body(physics, boxes=[])
    machine.reset(0.0, 0.0, 0.3)
    rng = np.random.default_rng(seed)
    path = []
    for _ in range(25):
        x, y, theta = rng.integers(-20, 21, 3).tolist()
        for _ in range(4):
            machine.firmware.command(1, x, y, theta)
            path.append(machine.run(rng.standard_normal(30)))
    machine.close()
    return np.concatenate(path)


@pytest.mark.sim
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_same_commands_lead_to_the_same_poses_without_contact(seed: int) -> None:
    """Ten seconds, firmware, motors and encoders included: within 5 mm and 1 degree of PyBullet, and it goes somewhere.

    The scheme is PyBullet's, so only rounding remains. With the centre of mass at the origin, 21 mm
    off, it would be wrong by centimetres.
    """
    pytest.importorskip("pybullet")
    ours = commanded("planar", seed)
    theirs = commanded("bullet", seed)
    assert np.ptp(theirs[:, 0]) > 0.2
    assert np.abs(ours[:, :2] - theirs[:, :2]).max() < 5e-3
    assert np.abs(ours[:, 2] - theirs[:, 2]).max() < math.radians(1.0)


def life(physics: str, seed: int, n_steps: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """Return the readings of a sticky random life, shape (n_steps, 57), and its contact impulses per period's end."""
    robot = SimulatedBody(physics=physics)
    robot.reset(np.random.default_rng(seed))
    samples = [
        (frame.values, robot.machine.body.contact_impulse())
        for frame in wander(robot, n_steps, 100 + seed)
    ]
    robot.close()
    values, impulses = zip(*samples, strict=True)
    return np.array(values), np.array(impulses)


@pytest.mark.sim
@pytest.mark.slow
def test_three_lives_are_alike_in_contact_and_in_every_sensor() -> None:
    """Means and spreads of both engines differ by no more than lives of one engine with other seeds do.

    For each channel the three lives' means (and standard deviations) are compared by Welch's t,
    below 6 everywhere: chance passes that rarely in 57 x 2 comparisons of three against three.
    """
    pytest.importorskip("pybullet")
    lives = {name: [life(name, seed, 12_000) for seed in range(3)] for name in engines.PHYSICS}

    def separation(statistic: object) -> np.ndarray:
        ours, theirs = (
            np.array([statistic(*one) for one in lives[name]]) for name in engines.PHYSICS
        )  # type: ignore[operator]
        spread = np.sqrt((ours.var(axis=0, ddof=1) + theirs.var(axis=0, ddof=1)) / 3.0)
        if ours.ndim == 1:
            step = np.abs(SPEC.lsb).max(initial=1e-3, where=SPEC.lsb > 0)
        else:
            step = np.abs(SPEC.lsb) + 1e-9
        return np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) / (spread + 0.1 * step)

    assert separation(lambda values, _: values.mean(axis=0)).max() < 6.0
    assert separation(lambda values, _: values.std(axis=0)).max() < 6.0
    touching = [np.array([(i > 0.0).mean() for _, i in lives[name]]) for name in engines.PHYSICS]
    pressing = [np.array([i[i > 0.0].mean() for _, i in lives[name]]) for name in engines.PHYSICS]
    for ours, theirs in (touching, pressing):
        assert ours.mean() == pytest.approx(theirs.mean(), rel=0.15)


@settings(max_examples=25, deadline=None)
@given(
    st.tuples(*[st.floats(-0.6, 0.6)] * 2, st.floats(-3.1, 3.1)),
    st.lists(
        st.tuples(st.floats(-12, 12), st.floats(-12, 12), st.floats(-1.5, 1.5)),
        min_size=1,
        max_size=5,
    ),
)
def test_no_force_pushes_the_body_out_of_the_pen(
    pose: tuple[float, float, float], pushes: list[tuple[float, float, float]]
) -> None:
    """Three wheels push with 24 N at most, and drag. No corner of the hull is ever more than 8 mm inside a wall."""
    body = PlanarBody(load_hull(URDF), PEN.boxes(), tick_s=TICK_S)
    hull = load_hull(URDF)
    body.place(*pose)
    first = np.repeat(hull.radii, hull.pieces[:, 1])
    for push in pushes:
        for _ in range(60):
            motion = body.motion
            motion = body.step(
                (
                    push[0] - 20.0 * motion.vx,
                    push[1] - 20.0 * motion.vy,
                    push[2] - 0.4 * motion.yaw_rate,
                )
            )
            c = math.cos(motion.heading)
            s = math.sin(motion.heading)
            corners = hull.corners @ np.array([[c, s], [-s, c]]) + motion[:2]
            assert (np.abs(corners) + first[:, None]).max() < 1.0 + 8e-3
            assert math.isfinite(motion.yaw_rate)


def test_a_contact_never_pulls_and_slides_only_at_the_friction_cone() -> None:
    """The laws that projected Gauss-Seidel solves, read off the impulses of bodies thrown into a corner.

    Signorini: impulse >= 0, speed >= target, one of them with equality. Coulomb: |along| <= mu
    normal, and on slip the friction is at its bound and against the slip.
    """
    rng = np.random.default_rng(0)
    n_seen = 0
    n_sliding = 0
    inertia = np.array([4.0, 0.04, -0.02, -0.008, 0.15, 0.1, REACH_M])
    for _ in range(200):
        contacts = np.zeros((2, planar.N_COLUMNS))
        for row, angle in zip(contacts, rng.uniform(-3.0, 3.0) + np.array([0.0, 1.8]), strict=True):
            n = -math.cos(angle), -math.sin(angle)
            row[: planar.ALONG] = (
                *n,
                0.12 * math.cos(angle),
                0.12 * math.sin(angle),
                rng.uniform(-1e-3, 1e-3),
            )
        velocity = tuple(rng.normal(size=3))
        planar.set_targets(velocity, inertia, contacts, 2, TICK_S)
        for _ in range(30):  # until convergence
            previous_contacts = contacts.copy()
            velocity = planar.resolve(velocity, inertia, contacts, 2)
            if np.allclose(previous_contacts, contacts, rtol=0, atol=1e-14):
                break
        for row in contacts:
            speed, slip = planar.speed_at(velocity, row)
            assert row[planar.ALONG] >= 0.0
            assert speed >= row[planar.TARGET] - 1e-6
            assert row[planar.ALONG] * (speed - row[planar.TARGET]) == pytest.approx(0.0, abs=1e-6)
            assert abs(row[planar.ACROSS]) <= 0.15 * row[planar.ALONG] + 1e-12
            if abs(slip) > 1e-6:
                assert row[planar.ACROSS] == pytest.approx(
                    -math.copysign(0.15 * row[planar.ALONG], slip), abs=1e-9
                )
                n_sliding += row[planar.ALONG] > 0.0
            n_seen += row[planar.ALONG] > 0.0
    assert n_seen > 100
    assert n_sliding > 30


def test_a_hit_changes_the_momentum_by_its_impulses_and_rebounds_little() -> None:
    """At 0.5 m/s, nose first, onto a wall: restitution 0.1 of the speed when the gap has closed."""
    body = body_among((1.025, 0.0, 0.05, 4.0))
    hull = load_hull(URDF)
    body.place(0.5, 0.0, 0.0)
    body.step((4.0 * 0.5 / TICK_S, 0.0, 4.0 * 0.5 / TICK_S * 0.008))
    total = 0.0
    for _ in range(100):
        motion = body.step((0.0, 0.0, 0.0))
        total += body.contact_impulse()
    c = math.cos(motion.heading)
    s = math.sin(motion.heading)
    across = s * hull.inertia[planar.CENTROID_X] + c * hull.inertia[planar.CENTROID_Y]
    of_centroid = motion.vx - motion.yaw_rate * across
    assert total == pytest.approx(hull.inertia[planar.MASS] * (0.5 - of_centroid), rel=1e-4)
    assert -0.05 <= of_centroid < 0.02


@pytest.mark.parametrize("restitution", [0.0, 0.1, 0.8])
def test_a_disc_that_touches_a_wall_leaves_it_with_its_restitution_times_the_walls(
    restitution: float,
) -> None:
    """Head-on at 0.5 m/s without a gap or spin: v' = -e v; the wall's factor is 1. A mean of both: e from .5 to .9."""
    inertia = np.array([2.0, 0.01, 0.0, 0.0, 0.3, restitution, 0.1])
    hull = Hull(inertia, np.zeros((1, 2)), np.array([[0, 1]]), np.array([0.1]))
    body = PlanarBody(hull, [(0.25, 0.0, 0.1, 4.0, 0.25)], tick_s=TICK_S)
    body.place(0.1, 0.0, 0.0)
    motion = body.step((2.0 * 0.5 / TICK_S, 0.0, 0.0))
    assert motion.vx == pytest.approx(-0.5 * restitution, abs=1e-9)
    assert body.contact_impulse() == pytest.approx(2.0 * 0.5 * (1.0 + restitution))


def test_a_corner_of_a_box_does_not_enter_the_tail() -> None:
    """Turning clockwise, the tail's long edge meets the corners of a box at which no corner of the hull arrives.

    An engine that looks at the hull's corners alone lets the box 4 cm into the tail.
    """
    hull = load_hull(URDF)
    corners = np.array([[-0.18, 0.13], [-0.16, 0.13]])
    body = body_among((-0.17, 0.23, 0.02, 0.20))
    body.place(0.0, 0.0, 0.0)
    touched = 0
    deepest = -math.inf
    for _ in range(130):
        motion = body.step((0.0, 0.0, -0.1))
        touched += body.contact_impulse() > 0.0
        c = math.cos(motion.heading)
        s = math.sin(motion.heading)
        for x, y in (corners - motion[:2]) @ np.array([[c, -s], [s, c]]):
            for first, n in hull.pieces[1:].tolist():
                gap = planar.corner_on_piece(hull.corners, first, n, x, y)[2]
                deepest = max(deepest, -gap)
    assert touched > 5
    assert deepest < 3e-3


def test_everything_runs_without_pybullet() -> None:
    """In a process without PyBullet: the pen, the emulated robot, and the error message."""
    program = """
import sys
sys.modules["pybullet"] = None
import gymnasium
for name in ("CritterbotPen", "CritterbotEmulated"):
    env = gymnasium.make(f"horde_env:{name}-v0")
    env.reset(seed=0)
    for _ in range(20):
        *_, info = env.step(0)
    assert info["applied"] == 1 and abs(info["x_m"]) < 1.0
    assert env.unwrapped.metadata["physics"] == "planar"
    env.close()
try:
    gymnasium.make("horde_env:CritterbotPen-v0", physics="bullet")
except Exception as error:
    print(type(error).__name__, error)
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith(
        "BackendUnavailable PyBullet is not installed; the planar engine"
    )
    assert re.search(r"conda-forge.*--no-build-isolation pybullet", result.stdout)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_without_numbas_insides_a_life_has_the_same_bits(tmp_path: object) -> None:
    """HORDE_PLAIN_KERNELS=1 counts references as any of numba's functions does; the cache keeps the two apart."""
    program = """
import hashlib, sys
import gymnasium, numpy
from horde_env import _jit
env, digest = gymnasium.make("horde_env:CritterbotPen-v0", physics="planar"), hashlib.sha256()
digest.update(env.reset(seed=0)[0].tobytes())
for action in numpy.random.default_rng(0).integers(5, size=300):
    digest.update(env.step(action)[0].tobytes())
print(_jit._INTERNAL, digest.hexdigest())
"""
    outputs = []
    for plain in ("0", "1"):
        environment = {**os.environ, "HORDE_PLAIN_KERNELS": plain, "NUMBA_CACHE_DIR": str(tmp_path)}
        result = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.append(result.stdout.split())
    assert [" ".join(words[:-1]) for words in outputs] == [
        "{'_nrt': False, 'forceinline': True}",
        "{}",
    ]
    assert outputs[0][-1] == outputs[1][-1]


def test_a_robot_with_other_shapes_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="has no link 'wheel'"):
        load_hull(URDF, "wheel")
