"""The Create 2's two engines against each other: the same commands, the same poses; the same walls, the same bumps."""

from __future__ import annotations

import math

import numpy as np
import pytest

from horde_env.robots.create2.simulator import world
from horde_env.robots.create2.simulator.machine import Machine, boxes_of
from horde_env.robots.create2.simulator.room import load_room

pytestmark = pytest.mark.sim


def driven(
    physics: str, start: tuple[float, float, float], asked: np.ndarray, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return a machine's states and findings after each tick of a drive, shapes (n, 13) and (n, 4)."""
    machine = Machine(physics=physics)  # type: ignore[arg-type]
    machine.place(*start, np.random.default_rng(seed))
    states, found = [], []
    for left, right in asked:
        machine.tick(left, right, may_charge=False)
        states.append(machine.state.copy())
        found.append(machine._found.copy())
    machine.close()
    return np.array(states), np.array(found)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_same_commands_lead_to_the_same_poses_without_contact(seed: int) -> None:
    """Ten seconds, other speeds each half a second: within 5 mm and 1 degree, currents and counts too; it goes about.

    Measured: 2e-9 m. An engine that took the heading at the beginning of a tick would be off by millimetres, one
    whose wheels slipped without a wall by centimetres.
    """
    pytest.importorskip("pybullet")
    asked = np.repeat(np.random.default_rng(seed).uniform(-0.2, 0.2, (20, 2)), 32, axis=0)
    (ours, found), (theirs, _) = (driven(name, (0.0, -0.4, 0.3), asked, seed) for name in ("planar", "bullet"))
    assert not found[:, [world.BUMP_L, world.BUMP_R, world.AT_DOCK]].any()
    assert np.ptp(theirs[:, :2], axis=0).max() > 0.1
    assert np.abs(ours[:, :2] - theirs[:, :2]).max() < 5e-3
    assert np.abs(ours[:, 2] - theirs[:, 2]).max() < math.radians(1.0)
    assert ours[:, 3:] == pytest.approx(theirs[:, 3:], abs=1e-4)


@pytest.mark.parametrize(
    ("start", "place"),
    [
        ((0.9, -1.0, 0.0), (1.5 - world.RADIUS_M, -1.0)),  # a wall
        ((-1.0, 0.55, math.pi / 2), (-1.0, 1.0 - world.RADIUS_M)),  # the sofa
        ((0.0, -1.0, -math.pi / 2), (0.0, -1.4 + world.RADIUS_M)),  # the dock
    ],
)
@pytest.mark.parametrize("physics", ["planar", "bullet"])
def test_what_is_met_head_on_ends_the_way_and_is_felt(
    physics: str, start: tuple[float, float, float], place: tuple[float, float]
) -> None:
    """At 200 mm/s for four seconds: it stands before it, both switches closed but at the dock's face, and pushes on."""
    pytest.importorskip("pybullet")
    states, found = driven(physics, start, np.full((256, 2), 0.2))
    assert states[-1, :2] == pytest.approx(place, abs=3e-3)
    is_dock = place[0] == 0.0
    assert found[-64:, world.BUMP_L].all() == found[-64:, world.BUMP_R].all() == (not is_dock)
    assert found[-64:, world.AT_DOCK].all() == is_dock
    assert np.abs(found[-64:, world.AHEAD]).max() < 3e-4  # no progress, though the wheels turn
    assert states[-1, world.AMP_L] > 0.45
    assert (np.diff(states[-64:, world.COUNT_L]) > 0).all()


@pytest.mark.parametrize("physics", ["planar", "bullet"])
def test_a_wall_that_is_met_aslant_is_slid_along(physics: str) -> None:
    """At 30 degrees, the wall on its right: the right switch alone, and it goes on along the wall."""
    pytest.importorskip("pybullet")
    states, found = driven(physics, (0.3, -1.25, -math.pi / 6), np.full((256, 2), 0.15))
    end = found[-64:]
    assert (end[:, world.BUMP_L].mean(), end[:, world.BUMP_R].mean()) == pytest.approx((0.0, 1.0), abs=0.1)
    assert states[-64:, 1] == pytest.approx(-1.5 + world.RADIUS_M, abs=2e-3)
    speed = np.hypot(*(states[-1, :2] - states[-64, :2])) / (63 / 64)
    assert 0.05 < speed < 0.15


def test_the_boxes_of_a_room_are_its_segments() -> None:
    """The corners of furniture and dock are those that the planar engine meets, the dock's turned as it stands."""
    room = load_room()
    corners = {tuple(np.round(row[:2], 6)) for row in room.segments()} | {
        tuple(np.round(row[2:4], 6)) for row in room.segments()
    }
    for x, y, size_x, size_y, _, turned in boxes_of(room)[4:]:
        c, s = math.cos(turned), math.sin(turned)
        for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            ahead, aside = a * size_x / 2, b * size_y / 2
            assert tuple(np.round([x + c * ahead - s * aside, y + s * ahead + c * aside], 6)) in corners
