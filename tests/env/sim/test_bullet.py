"""The body in either engine: its mass, its contacts, and the same bits after each `place`."""

from __future__ import annotations

import contextlib
import gc
import math
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

import numpy as np
import pytest

from horde_env.robot import asset, critterbot
from horde_env.robots.critterbot.arena import load_pen
from horde_env.sim import bullet, planar
from horde_env.sim.physics import Body, open_body
from horde_env.sim.planar import Motion
from tests.env.engines import ENGINES, NEEDS_PYBULLET

pytestmark = pytest.mark.sim
TICK_S = 0.01
URDF = asset("robot/critterbot.urdf")
BODY = critterbot().body


@pytest.fixture(params=ENGINES)
def body(request: pytest.FixtureRequest) -> Iterator[Body]:
    opened = open_body(request.param, URDF, load_pen().boxes(), tick_s=TICK_S)
    yield opened
    opened.close()


def drive(body: Body, force: list[float], n_ticks: int) -> Motion:
    for _ in range(n_ticks):
        body.step(force)
    return body.motion


def test_a_force_moves_the_robots_mass_about_its_own_centroid(body: Body) -> None:
    """Newton-Euler about the wheel centre: 4 kg, 0.041 kg m2, centroid 20 mm behind and 8 mm right of it.

    With PyBullet's own inertia, from the shapes, the yaw rate would be half; with the centroid in
    the middle it would be torque / 0.041 alone.
    """
    heading = 0.3
    force = np.array([1.0, 2.0, 0.1])
    body.place(0.0, 0.0, heading)
    motion = body.step(force.tolist())
    c = math.cos(heading)
    s = math.sin(heading)
    dx, dy = np.array([[c, -s], [s, c]]) @ BODY["centroid_m"]
    m = BODY["mass_kg"]
    inertia = BODY["inertia_kg_m2"]
    matrix = np.array([[m, 0, -m * dy], [0, m, m * dx], [-m * dy, m * dx, inertia]])
    expected = np.linalg.solve(matrix, force) * TICK_S
    np.testing.assert_allclose(motion[3:], expected, rtol=1e-5)


def test_without_force_the_robot_keeps_its_momentum(body: Body) -> None:
    """No joint motor, no damping: 2 s of rolling free. PyBullet's defaults would take 8 % of it."""
    body.place(-0.5, 0.0, 0.0)
    start_motion = drive(body, [4.0, 0.0, 4.0 * 0.008], 10)
    end_motion = drive(body, [0.0, 0.0, 0.0], 200)
    assert start_motion.vx == pytest.approx(0.1, rel=1e-3)
    assert end_motion.vx == pytest.approx(start_motion.vx, rel=1e-3)


@pytest.mark.parametrize(
    ("pose", "force", "axis", "stop"),
    [
        ((0.5, 0.0, 0.0), [5.0, 0.0, 0.0], 0, 1.0 - BODY["radius_m"]),  # the wall
        # The dock's face
        ((0.45, -0.5, -math.pi / 2), [0.0, -5.0, 0.0], 1, -0.91 + BODY["radius_m"]),
    ],
)
def test_wall_and_dock_stop_the_robot_at_its_radius_and_carry_its_force(
    body: Body, pose: tuple[float, float, float], force: list[float], axis: int, stop: float
) -> None:
    body.place(*pose)
    motion = drive(body, force, 300)
    assert motion[axis] == pytest.approx(stop, abs=1e-3)
    assert abs(motion[3 + axis]) < 1e-3
    assert body.contact_impulse() == pytest.approx(5.0 * TICK_S, rel=0.05)


def test_the_tails_tip_touches_first_where_the_robot_backs(body: Body) -> None:
    body.place(0.4, 0.0, math.pi)
    while body.contact_impulse() == 0.0:
        body.step([2.0, 0.0, -2.0 * 0.008])  # through the centroid, which lies 8 mm to its right
        assert body.motion.x < 1.0
    assert body.motion.x == pytest.approx(1.0 - BODY["tail_tip_m"], abs=0.01)


def test_the_robot_slides_along_a_wall_it_is_pushed_against(body: Body) -> None:
    body.place(0.85, -0.5, 0.0)
    motion = drive(body, [3.0, 3.0, 0.0], 100)
    assert motion.y > -0.3
    assert motion.x < 1.0 - BODY["radius_m"] + 2e-3


def test_a_corner_holds_against_all_that_the_wheels_can_do(body: Body) -> None:
    """At 0.6 m/s a tick's travel (6 mm) may pass before the contact acts; after that no more than 2 mm."""
    body.place(0.8, 0.8, 0.7)
    limit = 1.0 - BODY["radius_m"]
    for k in range(500):
        body.step([11.0, 11.0, 0.5])
        assert max(body.motion.x, body.motion.y) < limit + (7e-3 if k < 50 else 2e-3)


def test_two_bodies_do_not_meet(body: Body) -> None:
    physics = "bullet"
    if isinstance(body, planar.PlanarBody):
        physics = "planar"
    with contextlib.closing(open_body(physics, URDF, load_pen().boxes(), tick_s=TICK_S)) as other:
        body.place(0.0, 0.0, 0.0)
        other.place(0.0, 0.0, 0.0)
        drive(other, [5.0, 0.0, 0.0], 20)
        assert body.motion.x == 0.0
    body.step([1.0, 0.0, 0.0])  # closing one leaves the other alive
    assert body.motion.vx > 0.0


def test_the_urdf_agrees_with_the_robots_table() -> None:
    """Mass, centroid, radius and the tail's corners are the table's; inertia by the parallel axis theorem."""
    root = ElementTree.parse(asset("robot/critterbot.urdf")).getroot()
    link = next(e for e in root.iter("link") if e.get("name") == "body")
    inertial = link.find("inertial")
    assert float(inertial.find("mass").get("value")) == BODY["mass_kg"]
    x, y, _ = (float(v) for v in inertial.find("origin").get("xyz").split())
    assert [x, y] == BODY["centroid_m"]
    about_centre = float(inertial.find("inertia").get("izz")) + BODY["mass_kg"] * (x**2 + y**2)
    assert about_centre == pytest.approx(BODY["inertia_kg_m2"], rel=1e-6)
    spheres = [float(e.get("radius")) for e in link.iter("sphere")]
    assert spheres == [BODY["radius_m"]]
    outline = {tuple(p) for p in BODY["outline_m"]}
    for mesh in ("tail_root", "tail_tip"):
        lines = asset(f"robot/{mesh}.obj").read_text().splitlines()
        corners = {
            tuple(float(v) for v in line.split()[1:3]) for line in lines if line.startswith("v ")
        }
        assert corners <= outline


@NEEDS_PYBULLET
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have no DISPLAY")
def test_garbage_collection_disconnects_an_unclosed_body() -> None:
    """A process can have a few hundred clients, of 28 MB each."""
    import pybullet

    def connected() -> set[int]:
        return {client for client in range(1_000) if pybullet.isConnected(client)}

    other_clients = connected()
    forgotten = bullet.PlanarBody(URDF, load_pen().boxes(), tick_s=TICK_S)
    (client,) = connected() - other_clients
    del forgotten
    gc.collect()
    assert not pybullet.isConnected(client)
