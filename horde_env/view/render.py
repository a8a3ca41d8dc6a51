"""A top view of a robot, drawn by pygame at twice the size and scaled down, and a window for it.

Left: the walls and lights of its place, the path of the last minute, the body, and a ray for each
reading of a sensor that looks into a direction, the longer the higher the reading. A body without a
pose is drawn large, forward up. Right: every channel as a bar over its specified range; a group's
bars and rays have one colour.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_env.backend import Floats, Frame
from horde_env.errors import BackendUnavailable
from horde_env.robot import RobotSpec

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
try:
    import pygame as pygame
except ImportError as error:
    raise BackendUnavailable(
        "pictures of the robot need pygame: pip install -e '.[render]' in the clone"
    ) from error

Colour = tuple[int, int, int]
Picture = NDArray[np.uint8]

SCALE = 2  # pixels drawn per pixel of the picture, each way
SIZE_PX = 480
PANEL_PX = 240
# Of the panel's first row; the largest pitch of its rows
TOP_PX = 40
ROW_PX = 24
LETTER_PX = 10
PLACE_SHARE = 0.90  # of the view that the place fills
CLOSE_PX_PER_M = 390.0  # of a body without a pose
# The longest ray; between the rays of two groups in one direction
RAY_M = 0.2
RAY_TURN_RAD = 0.06
N_RAYS = 4  # sensors that make a group one of all directions

FLOOR: Colour = (236, 232, 223)
PAPER: Colour = (246, 244, 239)
INK: Colour = (43, 51, 66)
FAINT: Colour = (204, 199, 189)
SHELL: Colour = (84, 112, 143)
PATH: Colour = (51, 120, 173)
LIGHTS: dict[str, Colour] = {"lamp": (255, 204, 64), "beacon": (184, 84, 212)}
GLOW_M = {"lamp": 0.6, "beacon": 0.3}
GROUPS: tuple[Colour, ...] = (
    (219, 64, 43),
    (184, 84, 212),
    (217, 152, 20),
    (51, 120, 173),
    (77, 148, 107),
)


class View(NamedTuple):
    """Transform from metres in the body's frame to pixels drawn."""

    scale: float
    x: float = 0.0
    y: float = 0.0
    heading: float = 0.0

    def px(self, points: Floats) -> list[tuple[float, float]]:
        """Return pixels of points (n, 2); the world's x is right, its y up, around the middle."""
        cos = np.cos(self.heading)
        sin = np.sin(self.heading)
        x = self.x + cos * points[:, 0] - sin * points[:, 1]
        y = self.y + sin * points[:, 0] + cos * points[:, 1]
        pixels = SCALE * (SIZE_PX / 2 + self.scale * np.column_stack([x, -y]))
        return [(column, row) for column, row in pixels.tolist()]


class Renderer:
    """Draws the frames of a robot; `plan` has its outline and its place, as `spaces.picture` returns them."""

    def __init__(self, spec: RobotSpec, plan: dict[str, Any]) -> None:
        self._spec = spec
        self._outline = np.array(plan["outline"])
        walls = np.array(plan["walls"]).reshape(-1, 2)  # start and end by turns
        half_m = 1.0
        if len(walls):
            half_m = np.abs(walls).max()
        self._world = View(PLACE_SHARE * SIZE_PX / (2.0 * half_m))
        self._floor = pygame.Surface((SCALE * (SIZE_PX + PANEL_PX), SCALE * SIZE_PX))
        self._floor.fill(FLOOR)
        self._place = self._floor.copy()  # drawn once: the glows take longer than all the rest
        self._draw_place(self._place, walls, plan["lights"])
        self._row_px = min(ROW_PX, (SIZE_PX - TOP_PX) // len(spec.groups))
        pygame.font.init()
        self._font = pygame.font.Font(None, round(1.35 * SCALE * LETTER_PX))

    def draw(self, frame: Frame, trail: Sequence[tuple[float, float]] = ()) -> Picture:
        """Return the picture of a frame, uint8 (480, 720, 3); `trail` has earlier positions in metres, oldest first."""
        pose = frame.extras
        surface = self._floor.copy()
        view = View(CLOSE_PX_PER_M, heading=np.pi / 2)
        if "x_m" in pose:
            surface = self._place.copy()
            if len(trail) > 1:
                pygame.draw.lines(surface, PATH, False, self._world.px(np.array(trail)), 2 * SCALE)
            view = self._world._replace(x=pose["x_m"], y=pose["y_m"], heading=pose["heading_rad"])
        observation, _ = self._spec.scale(frame.values)
        self._draw_body(surface, view, observation)
        surface.fill(PAPER, (SCALE * SIZE_PX, 0, SCALE * PANEL_PX, SCALE * SIZE_PX))
        self._write(surface, 12, f"{frame.t:.1f} s")
        self._draw_bars(surface, observation)
        small = pygame.transform.smoothscale(surface, (SIZE_PX + PANEL_PX, SIZE_PX))
        return np.ascontiguousarray(pygame.surfarray.array3d(small).transpose(1, 0, 2))

    def _draw_place(
        self, surface: Any, walls: Floats, lights: Sequence[tuple[float, float, str]]
    ) -> None:
        """Draw a glow and a ring at each lamp and at the beacon, and the walls."""
        for x, y, kind in lights:
            glow = pygame.Surface(surface.get_size(), pygame.SRCALPHA)
            ((column, row),) = self._world.px(np.array([[x, y]]))
            for radius_m in np.linspace(GLOW_M[kind], 0.05, 12):
                reach = max(round(SCALE * self._world.scale * radius_m), 1)
                pygame.draw.circle(
                    glow,
                    (*LIGHTS[kind], round(140.0 * (1.0 - radius_m / GLOW_M[kind]))),
                    (column, row),
                    reach,
                )
            surface.blit(glow, (0, 0))
            pygame.draw.circle(surface, INK, (column, row), SCALE * 6, 2 * SCALE)
        ends = self._world.px(walls)
        for start, end in zip(ends[::2], ends[1::2], strict=True):
            pygame.draw.line(surface, INK, start, end, 4 * SCALE)

    def _draw_body(self, surface: Any, view: View, observation: NDArray[np.float32]) -> None:
        """Draw the body with its nose, and the rays of the groups that look into all directions."""
        outline = view.px(self._outline)
        pygame.draw.polygon(surface, SHELL, outline)
        pygame.draw.polygon(surface, INK, outline, 2 * SCALE)
        pygame.draw.polygon(
            surface, PAPER, view.px(np.array([[0.06, 0.0], [0.02, 0.03], [0.02, -0.03]]))
        )
        for k, group in enumerate(self._spec.groups):
            angles = self._spec.angles(group) + RAY_TURN_RAD * (k % len(GROUPS))
            if len(angles) < N_RAYS or np.isnan(angles).any():
                continue
            places = self._spec.positions(group)
            lengths = RAY_M * observation[self._spec.group(group)]
            ends = places + lengths[:, None] * np.column_stack([np.cos(angles), np.sin(angles)])
            for start, end in zip(view.px(places), view.px(ends), strict=True):
                pygame.draw.line(surface, GROUPS[k % len(GROUPS)], start, end, 2 * SCALE)

    def _draw_bars(self, surface: Any, observation: NDArray[np.float32]) -> None:
        """Draw a row of bars per group; those of a symmetrical range grow from the middle."""
        high = 0.75 * self._row_px
        for k, group in enumerate(self._spec.groups):
            top = TOP_PX + self._row_px * k
            members = self._spec.group(group)
            self._write(surface, top, group.replace("_", " "))
            for i, share in enumerate(observation[members]):
                left_px = SIZE_PX + 126 + 10.5 * i
                zero = 0.0
                if self._spec.low[members.start + i] == -self._spec.high[members.start + i]:
                    zero = 0.5
                low, upper = sorted((zero, float(share)))
                bar = left_px, top + high * (1.0 - upper), 8, max(high * (upper - low), 1.0)
                surface.fill(FAINT, [round(SCALE * v) for v in (left_px, top, 8, high)])
                if math.isnan(share):  # a missing reading has no bar
                    continue
                surface.fill(GROUPS[k % len(GROUPS)], [round(SCALE * v) for v in bar])

    def _write(self, surface: Any, top: float, words: str) -> None:
        surface.blit(self._font.render(words, True, INK), (SCALE * (SIZE_PX + 14), SCALE * top))


class Window:
    """A window that shows one picture after another.

    Raises:
        BackendUnavailable: If no window can be opened.
    """

    def __init__(self, title: str, size: tuple[int, int] = (SIZE_PX + PANEL_PX, SIZE_PX)) -> None:
        try:
            pygame.display.init()
            self._screen = pygame.display.set_mode(size)
        except pygame.error as error:
            raise BackendUnavailable(
                f'no window can be opened ({error}); use render_mode="rgb_array"'
            ) from error
        pygame.display.set_caption(title)
        self.is_open = True

    def show(self, picture: Picture) -> None:
        """Show a picture, uint8 (height, width, 3); do nothing once the user has closed the window."""
        if self.is_open and pygame.event.get(pygame.QUIT):
            self.close()
        if self.is_open:
            pygame.surfarray.blit_array(self._screen, picture.transpose(1, 0, 2))
            pygame.display.flip()

    def close(self) -> None:
        """Close the window. Closing twice does nothing."""
        if self.is_open:
            self.is_open = False
            pygame.display.quit()
