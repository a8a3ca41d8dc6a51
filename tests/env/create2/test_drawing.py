"""The Create 2 from above."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from horde_env.backend import Frame
from horde_env.robot import create2
from horde_env.robots.create2.drawing import BUMPER
from horde_env.robots.create2.drawing import painter as create_painter
from horde_env.robots.create2.place import load_room
from horde_env.view.render import BEAM, SHELL

SPEC, ROOM = create2(), load_room()
PX_PER_M = 0.9 * 480 / 3.0


def places(picture: np.ndarray, colour: tuple[float, float, float]) -> tuple[np.ndarray, int]:
    """Return the centre and the number of pixels of a colour in the room."""
    near = (np.abs(picture[:, :480].astype(int) - np.rint(np.array(colour) * 255)) <= 2).all(axis=-1)
    rows, columns = np.nonzero(near)
    return np.array([columns.mean(), rows.mean()]) if rows.size else np.full(2, np.nan), rows.size


def frame(pose: tuple[float, float, float] | None = None, **values: float) -> Frame:
    readings = np.zeros(SPEC.n_channels)
    for name, value in values.items():
        readings[SPEC.index(name)] = value
    extras = {} if pose is None else dict(zip(("x_m", "y_m", "heading_rad"), pose, strict=True))
    return Frame(values=readings, t=3.0, extras=extras)


def test_the_body_is_drawn_where_it_stands_and_its_bumper_is_ahead() -> None:
    """The world's x is right, its y up, 144 pixels to the metre; facing north, the bumper lies above the middle."""
    picture = create_painter(SPEC, ROOM).draw(frame((0.2, 0.3, np.pi / 2)))
    assert (picture.shape, picture.dtype) == ((480, 720, 3), np.uint8)
    (x, y), _ = places(picture, SHELL)
    assert x == pytest.approx(240 + 0.2 * PX_PER_M, abs=2)
    assert y == pytest.approx(240 - 0.3 * PX_PER_M, abs=8)  # its shell without the bumper
    (bumper_x, bumper_y), _ = places(picture, BUMPER)
    assert bumper_x == pytest.approx(x, abs=2)
    assert bumper_y < y - 8


def test_a_pressed_bumper_is_red_on_its_side() -> None:
    painter = create_painter(SPEC, ROOM)
    for name, side in (("bump_left", -1.0), ("bump_right", 1.0)):
        (x, _), n = places(painter.draw(frame((0.0, 0.0, np.pi / 2), **{name: 1.0})), BEAM)
        assert n > 20
        assert side * (x - 240) > 8
    assert places(painter.draw(frame((0.0, 0.0, np.pi / 2))), BEAM)[1] == 0


def test_a_body_that_does_not_know_its_pose_is_drawn_large() -> None:
    large, small = (
        places(create_painter(SPEC, room).draw(frame(pose)), SHELL)[1]
        for room, pose in ((None, None), (ROOM, (0.0, 0.0, 0.0)))
    )
    assert large > 4 * small
    values = np.full(SPEC.n_channels, np.nan)
    assert create_painter(SPEC, None).draw(Frame(values=values, t=0.0)).shape == (480, 720, 3)


def test_the_environment_draws_it_and_tells_a_page_of_its_own_room() -> None:
    """Not of the Critterbot's pen."""
    env = gymnasium.make("horde_env:CreatePen-v0", render_mode="rgb_array", disable_env_checker=True)
    env.reset(seed=0)
    before = env.render()
    for _ in range(10):
        env.step(0)
    assert before.shape == (480, 720, 3)
    assert (env.render() != before).any()
    plan = env.unwrapped.metadata["picture"]
    assert np.array(plan["walls"]).shape == (len(ROOM.segments()), 4)
    assert np.hypot(*np.array(plan["outline"]).T) == pytest.approx(SPEC.body["radius_m"])
    env.close()
