from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from horde_env.backend import Frame
from horde_env.env import PenEnv
from horde_env.errors import BackendUnavailable
from horde_env.robot import critterbot
from horde_env.robots.critterbot.drawing import painter as critterbot_painter
from horde_env.robots.critterbot.place import load_pen
from horde_env.view.canvas import Canvas, pygame
from horde_env.view.render import BEAM, SHELL
from tests.env.toy import ToyBody

SPEC = critterbot()
RED = (1.0, 0.0, 0.0)


def is_colour(picture: np.ndarray, colour: tuple[float, ...], tolerance: int = 2) -> np.ndarray:
    return (np.abs(picture.astype(int) - np.rint(np.array(colour) * 255)) <= tolerance).all(axis=-1)


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


def frame_at(x: float, y: float, heading: float) -> Frame:
    body = ToyBody()
    body.reset(np.random.default_rng(0))
    return body.place(x, y, heading)


def middle_of_shell(picture: np.ndarray) -> tuple[float, float]:
    rows, columns = np.nonzero(is_colour(picture[:, :480], SHELL))
    return float(columns.mean()), float(rows.mean())


def test_the_body_is_drawn_where_it_stands() -> None:
    """The world's x is right, its y up: 216 pixels to the metre around the middle (240, 240)."""
    picture = critterbot_painter(SPEC, load_pen()).draw(frame_at(0.5, 0.5, 0.0))
    assert (picture.shape, picture.dtype) == ((480, 720, 3), np.uint8)
    x, y = middle_of_shell(picture)
    assert x == pytest.approx(240 + 0.48 * 216, abs=8)
    assert y == pytest.approx(240 - 0.5 * 216, abs=8)


def test_the_tail_points_away_from_the_heading() -> None:
    """Facing north, the tail hangs to the south: the shell's lowest pixel is twice as far as its highest."""
    rows, _ = np.nonzero(
        is_colour(critterbot_painter(SPEC, load_pen()).draw(frame_at(0.0, 0.0, np.pi / 2))[:, :480], SHELL)
    )
    assert rows.max() - 240 > 1.8 * (240 - rows.min())


def test_a_body_without_a_pose_is_drawn_large_and_forward_up() -> None:
    placed = frame_at(0.0, 0.0, np.pi / 2)
    unplaced = Frame(values=placed.values, t=1.0)
    painter = critterbot_painter(SPEC, load_pen())
    large, small = (is_colour(painter.draw(f)[:, :480], SHELL).sum() for f in (unplaced, placed))
    assert large > 2.5 * small
    rows, _ = np.nonzero(is_colour(painter.draw(unplaced)[:, :480], SHELL))
    assert rows.max() - 240 > 1.8 * (240 - rows.min())


def test_a_near_wall_shows_as_a_beam() -> None:
    near, far = (
        is_colour(critterbot_painter(SPEC, load_pen()).draw(frame_at(x, 0.0, 0.0)), BEAM, 40).sum() for x in (0.85, 0.0)
    )
    assert near > far + 20


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


def test_frames_of_nan_are_drawn() -> None:
    values = np.full(SPEC.n_channels, np.nan)
    assert critterbot_painter(SPEC, load_pen()).draw(Frame(values=values, t=0.0)).shape == (480, 720, 3)


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
