from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from horde_env.backend import Frame
from horde_env.env import PenEnv
from horde_env.errors import BackendUnavailable
from horde_env.robot import RobotSpec, create2, critterbot
from horde_env.robots.create2.drawing import BUMPER
from horde_env.robots.create2.drawing import painter as create_painter
from horde_env.robots.create2.place import load_room
from horde_env.robots.critterbot.drawing import painter as critterbot_painter
from horde_env.robots.critterbot.place import load_pen
from horde_env.view.canvas import Canvas, pygame
from horde_env.view.render import BEAM, SHELL
from tests.env.toy import ToyBody

SPEC = critterbot()
RED = (1.0, 0.0, 0.0)


def area(draw: Any) -> float:
    canvas = Canvas(60, 60, (0.0, 0.0, 0.0))
    draw(canvas)
    return float(canvas.picture()[..., 0].sum() / 255)


def test_shapes_cover_their_area_to_half_a_pixel_of_their_edge() -> None:
    """Pi r^2, length x width + a round end on both sides, 1/2 base x height; pygame draws whole half-pixels."""
    triangle = np.array([[10.0, 10.0], [50.0, 15.0], [20.0, 45.0]])
    assert area(lambda c: c.disc(30.3, 29.6, 12.0, RED)) == pytest.approx(np.pi * 144, abs=0.5 * np.pi * 24)
    assert area(lambda c: c.line(10, 10, 40, 50, 6.0, RED)) == pytest.approx(300 + np.pi * 9, abs=0.5 * 118)
    assert area(lambda c: c.polygon(triangle, RED)) == pytest.approx(0.5 * (40 * 35 - 10 * 5), abs=0.5 * 125)
    assert area(lambda c: c.rectangle(5, 6, 25, 16, RED, 0.5)) == pytest.approx(100.0, abs=1.0)


def test_shapes_may_leave_the_canvas() -> None:
    canvas = Canvas(40, 30, (0.0, 0.0, 0.0))
    canvas.disc(-50.0, -50.0, 5.0, RED)
    canvas.disc(40.0, 30.0, 5.0, RED)
    canvas.line(-20.0, 15.0, 80.0, 15.0, 2.0, RED)
    canvas.polygon(np.array([[-9.0, -9.0], [-5.0, -9.0], [-5.0, -5.0]]), RED)
    canvas.text(36, 26, "edge", RED)
    assert canvas.picture()[15, 20, 0] == 255


def frame(spec: RobotSpec, pose: tuple[float, float, float] | None = None, **values: float) -> Frame:
    """Return a frame with all readings 0 except `values`, and a pose (x, y, heading) in metres and radians, or none."""
    readings = np.zeros(spec.n_channels)
    for name, value in values.items():
        readings[spec.index(name)] = value
    extras = {} if pose is None else dict(zip(("x_m", "y_m", "heading_rad"), pose, strict=True))
    return Frame(values=readings, t=3.0, extras=extras)


def places(picture: np.ndarray, colour: tuple[float, float, float], tolerance: int = 2) -> np.ndarray:
    """Return columns and rows of a colour's pixels in the place on the left, shape (2, n)."""
    near = np.abs(picture[:, :480].astype(int) - np.rint(np.array(colour) * 255)) <= tolerance
    return np.array(np.nonzero(near.all(axis=-1)))[::-1]


PLACES: dict[str, tuple[RobotSpec, Any, Callable[..., Any]]] = {
    "critterbot": (critterbot(), load_pen(), critterbot_painter),
    "create2": (create2(), load_room(), create_painter),
}
ROBOT = pytest.mark.parametrize("robot", PLACES)


@pytest.mark.parametrize(
    ("robot", "pose", "centre_m", "px_per_m"),
    [("critterbot", (0.5, 0.5, 0.0), (0.48, 0.5), 216.0), ("create2", (0.2, 0.3, 0.5 * np.pi), (0.2, 0.3), 144.0)],
)
def test_the_body_is_drawn_where_it_stands(
    robot: str, pose: tuple[float, float, float], centre_m: tuple[float, float], px_per_m: float
) -> None:
    """The world's x is right, its y up, around the middle (240, 240)."""
    spec, place, painter = PLACES[robot]
    picture = painter(spec, place).draw(frame(spec, pose))
    assert (picture.shape, picture.dtype) == ((480, 720, 3), np.uint8)
    x, y = places(picture, SHELL).mean(axis=1)
    assert x == pytest.approx(240 + centre_m[0] * px_per_m, abs=8)
    assert y == pytest.approx(240 - centre_m[1] * px_per_m, abs=8)


@ROBOT
def test_a_body_without_a_pose_is_drawn_large_whatever_it_reads(robot: str) -> None:
    spec, place, painter = PLACES[robot]
    large, small = (painter(spec, place).draw(frame(spec, pose)) for pose in (None, (0.0, 0.0, 0.5 * np.pi)))
    assert places(large, SHELL).shape[1] > 2.5 * places(small, SHELL).shape[1]
    unknown = Frame(values=np.full(spec.n_channels, np.nan), t=0.0)
    assert painter(spec, place).draw(unknown).shape == (480, 720, 3)


@pytest.mark.parametrize("pose", [(0.0, 0.0, 0.5 * np.pi), None])
def test_the_critterbots_tail_points_away_from_the_heading(pose: tuple[float, float, float] | None) -> None:
    """Facing north, or forward up: the shell's lowest pixel is twice as far as its highest."""
    _, rows = places(critterbot_painter(SPEC, load_pen()).draw(frame(SPEC, pose)), SHELL)
    assert rows.max() - 240 > 1.8 * (240 - rows.min())


def test_a_near_wall_shows_as_a_beam() -> None:
    body = ToyBody()
    body.reset(np.random.default_rng(0))
    painter = critterbot_painter(SPEC, load_pen())
    near, far = (places(painter.draw(body.place(x, 0.0, 0.0)), BEAM, 40).shape[1] for x in (0.85, 0.0))
    assert near > far + 20


def test_the_creates_bumper_is_ahead_and_red_on_its_pressed_side() -> None:
    """Facing north, it lies above the shell."""
    spec, room, painter = PLACES["create2"]
    pose = (0.0, 0.0, 0.5 * np.pi)
    free = painter(spec, room).draw(frame(spec, pose))
    (x, y), (bumper_x, bumper_y) = (places(free, colour).mean(axis=1) for colour in (SHELL, BUMPER))
    assert bumper_x == pytest.approx(x, abs=2)
    assert bumper_y < y - 8
    assert places(free, BEAM).size == 0
    for name, side in (("bump_left", -1.0), ("bump_right", 1.0)):
        red = places(painter(spec, room).draw(frame(spec, pose, **{name: 1.0})), BEAM)
        assert red.shape[1] > 20
        assert side * (red[0].mean() - 240) > 8


def test_the_path_stays_in_the_picture() -> None:
    env = PenEnv(ToyBody(), render_mode="rgb_array")
    env.reset(seed=1)
    fresh = env.render()
    for _ in range(20):
        env.step(0)
    assert len(env._trail) == 21
    assert (env.render() != fresh).any()
    env.reset(seed=1)
    np.testing.assert_array_equal(env.render(), fresh)


def test_a_create_is_drawn_in_its_own_room() -> None:
    """Not of the Critterbot's pen."""
    env = gymnasium.make("horde_env:CreatePen-v0", render_mode="rgb_array", disable_env_checker=True)
    env.reset(seed=0)
    before = env.render()
    for _ in range(10):
        env.step(0)
    assert before.shape == (480, 720, 3)
    assert (env.render() != before).any()
    plan = env.unwrapped.metadata["picture"]
    assert np.array(plan["walls"]).shape == (len(load_room().segments()), 4)
    assert np.hypot(*np.array(plan["outline"]).T) == pytest.approx(create2().body["radius_m"])
    env.close()


def test_a_window_shows_every_step_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("DISPLAY", ":99")
    env = PenEnv(ToyBody(), render_mode="human")
    env.reset(seed=0)
    shown = []
    for action in (0, 3):
        env.step(action)
        shown.append(pygame.surfarray.array3d(pygame.display.get_surface()).transpose(1, 0, 2))
        np.testing.assert_array_equal(shown[-1], env._picture())
    assert (shown[0] != shown[1]).any()
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    env.step(0)
    assert not pygame.display.get_init()
    env.step(0)
    env.close()
    env.close()


def test_without_a_display_the_error_says_so_and_the_body_is_not_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":99")
    monkeypatch.setenv("SDL_VIDEODRIVER", "no_such_driver")
    body = ToyBody()
    with pytest.raises(BackendUnavailable, match="no window can be opened"):
        PenEnv(body, render_mode="human").reset(seed=0)
    assert body.log == []


def test_without_pygame_the_error_names_the_extra() -> None:
    code = "import sys; sys.modules['pygame'] = None; import horde_env.view.canvas"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "BackendUnavailable" in done.stderr
    assert "[render]" in done.stderr
