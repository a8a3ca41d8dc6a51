from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from horde_env import registry
from horde_env.backend import Frame
from horde_env.env import RobotEnv
from horde_env.errors import BackendUnavailable
from horde_env.robot import RobotSpec, create2, critterbot
from horde_env.robots.create2.arena import load_room
from horde_env.robots.critterbot.arena import load_pen
from horde_env.spaces import picture
from horde_env.view.render import GROUPS, INK, SHELL, Renderer, pygame
from tests.env.toy import ToyBody, begun

SPEC = critterbot()


def frame(
    spec: RobotSpec, pose: tuple[float, float, float] | None = None, **values: float
) -> Frame:
    """Return a frame with all readings 0 except `values`, and a pose (x, y, heading) in metres and radians, or none."""
    readings = np.zeros(spec.n_channels)
    for name, value in values.items():
        readings[spec.index(name)] = value
    extras = {}
    if pose is not None:
        extras = dict(zip(("x_m", "y_m", "heading_rad"), pose, strict=True))
    return Frame(values=readings, t=3.0, extras=extras)


def places(picture: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    """Return columns and rows of a colour's pixels in the place on the left, shape (2, n)."""
    near = np.abs(picture[:, :480].astype(int) - colour) <= 2
    return np.array(np.nonzero(near.all(axis=-1)))[::-1]


PLACES: dict[str, tuple[RobotSpec, Any]] = {
    "critterbot": (critterbot(), load_pen()),
    "create2": (create2(), load_room()),
}


def renderer(robot: str) -> Renderer:
    spec, arena = PLACES[robot]
    plan = registry.robot(robot).plan(arena)
    return Renderer(spec, picture(spec, plan))


@pytest.mark.parametrize(
    ("robot", "pose", "centre_m", "px_per_m"),
    [
        ("critterbot", (0.5, 0.5, 0.0), (0.48, 0.5), 216.0),
        ("create2", (0.2, 0.3, 0.5 * np.pi), (0.2, 0.3), 144.0),
    ],
)
def test_the_body_is_drawn_where_it_stands(
    robot: str, pose: tuple[float, float, float], centre_m: tuple[float, float], px_per_m: float
) -> None:
    """The world's x is right, its y up, around the middle (240, 240)."""
    drawn = renderer(robot).draw(frame(PLACES[robot][0], pose))
    assert (drawn.shape, drawn.dtype) == ((480, 720, 3), np.uint8)
    x, y = places(drawn, SHELL).mean(axis=1)
    assert x == pytest.approx(240 + centre_m[0] * px_per_m, abs=8)
    assert y == pytest.approx(240 - centre_m[1] * px_per_m, abs=8)
    assert places(drawn, INK)[0].min() == pytest.approx(240 - 216, abs=3), "the western wall"


@pytest.mark.parametrize("robot", PLACES)
def test_a_body_without_a_pose_is_drawn_large_whatever_it_reads(robot: str) -> None:
    spec = PLACES[robot][0]
    large, small = (
        renderer(robot).draw(frame(spec, pose)) for pose in (None, (0.0, 0.0, 0.5 * np.pi))
    )
    assert places(large, SHELL).shape[1] > 2.5 * places(small, SHELL).shape[1]
    unknown = Frame(values=np.full(spec.n_channels, np.nan), t=0.0)
    assert renderer(robot).draw(unknown).shape == (480, 720, 3)


@pytest.mark.parametrize("pose", [(0.0, 0.0, 0.5 * np.pi), None])
def test_the_critterbots_tail_points_away_from_the_heading(
    pose: tuple[float, float, float] | None,
) -> None:
    """Facing north, or forward up: the shell's lowest pixel is twice as far as its highest."""
    _, rows = places(renderer("critterbot").draw(frame(SPEC, pose)), SHELL)
    assert rows.max() - 240 > 1.8 * (240 - rows.min())


def test_a_near_wall_shows_as_a_longer_ray_and_a_longer_bar() -> None:
    """Of the front sensor, to the east, in its group's colour."""
    near_rgb, far_rgb = (
        renderer("critterbot").draw(frame(SPEC, (0.0, 0.0, 0.0), ir_distance_0=d))
        for d in (0.9, 0.1)
    )
    colour = GROUPS[SPEC.groups.index("ir_distance") % len(GROUPS)]
    assert places(near_rgb, colour).shape[1] > places(far_rgb, colour).shape[1] + 20
    bars = [
        np.count_nonzero((drawn[:, 480:] == colour).all(axis=-1)) for drawn in (near_rgb, far_rgb)
    ]
    assert bars[0] > bars[1] + 50


def test_the_path_stays_in_the_picture() -> None:
    env = RobotEnv(ToyBody(), render_mode="rgb_array")
    env.reset(seed=1)
    fresh = env.render()
    for _ in range(20):
        env.step(0)
    assert len(env.display.trail) == 21
    assert (env.render() != fresh).any()
    env.reset(seed=1)
    np.testing.assert_array_equal(env.render(), fresh)


def test_a_create_is_drawn_in_its_own_room() -> None:
    env = gymnasium.make(
        "horde_env:CreatePen-v0", render_mode="rgb_array", disable_env_checker=True
    )
    env.reset(seed=0)
    first_picture = env.render()
    for _ in range(10):
        env.step(0)
    assert first_picture.shape == (480, 720, 3)
    assert (env.render() != first_picture).any()
    plan = env.unwrapped.metadata["picture"]
    assert np.array(plan["walls"]).shape == (len(load_room().segments()), 4)
    assert np.hypot(*np.array(plan["outline"]).T) == pytest.approx(create2().body["radius_m"])
    env.close()


def test_a_window_shows_every_step_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("DISPLAY", ":99")
    env = begun(ToyBody(), render_mode="human")
    shown = []
    for action in (0, 3):
        env.step(action)
        shown.append(pygame.surfarray.array3d(pygame.display.get_surface()).transpose(1, 0, 2))
        assert env.frame is not None
        np.testing.assert_array_equal(shown[-1], env.display.picture(env.frame))
    assert (shown[0] != shown[1]).any()
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    env.step(0)
    assert not pygame.display.get_init()
    env.step(0)
    env.close()
    env.close()


def test_without_a_display_the_error_says_so_and_the_body_is_not_reset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DISPLAY", ":99")
    monkeypatch.setenv("SDL_VIDEODRIVER", "no_such_driver")
    body = ToyBody()
    with pytest.raises(BackendUnavailable, match="no window can be opened"):
        RobotEnv(body, render_mode="human").reset(seed=0)
    assert body.log == []


def test_without_pygame_the_error_names_the_extra() -> None:
    code = "import sys; sys.modules['pygame'] = None; import horde_env.view.render"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert "BackendUnavailable" in result.stderr
    assert "[render]" in result.stderr
