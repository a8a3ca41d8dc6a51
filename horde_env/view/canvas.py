"""A canvas for small pictures, drawn by pygame at twice the size and scaled down, and a window for them.

Pixels are (x right, y down) of the finished picture; colours are (red, green, blue) in 0..1, `alpha` the opacity.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_env.backend import Floats
from horde_env.errors import BackendUnavailable

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
try:
    import pygame as pygame
except ImportError as error:
    raise BackendUnavailable("pictures of the robot need pygame: pip install -e '.[render]' in the clone") from error

Colour = tuple[float, float, float]
Picture = NDArray[np.uint8]

SCALE = 2  # pixels drawn per pixel of the picture, each way
LETTER_PX = 10


class Canvas:
    """A picture under construction."""

    def __init__(self, width: int, height: int, colour: Colour) -> None:
        self._surface = pygame.Surface((SCALE * width, SCALE * height))
        self._surface.fill(_bytes(colour))

    def copy(self) -> Canvas:
        """Return an independent copy."""
        other = object.__new__(Canvas)
        other._surface = self._surface.copy()
        return other

    def picture(self) -> Picture:
        """Return the picture as uint8, shape (height, width, 3)."""
        width, height = self._surface.get_size()
        small = pygame.transform.smoothscale(self._surface, (width // SCALE, height // SCALE))
        return np.ascontiguousarray(pygame.surfarray.array3d(small).transpose(1, 0, 2))

    def rectangle(self, x0: float, y0: float, x1: float, y1: float, colour: Colour, alpha: float = 1.0) -> None:
        """Fill the rectangle between two corners."""
        left, top, right, bottom = (round(SCALE * v) for v in (x0, y0, x1, y1))
        rectangle = pygame.Rect(left, top, max(right - left, 0), max(bottom - top, 0))
        self._draw(rectangle, alpha, lambda on, at: on.fill(_bytes(colour), rectangle.move(at)))

    def disc(self, x: float, y: float, radius: float, colour: Colour, alpha: float = 1.0) -> None:
        """Fill a disc."""
        self.circle(x, y, radius, 0.0, colour, alpha)

    def circle(self, x: float, y: float, radius: float, width: float, colour: Colour, alpha: float = 1.0) -> None:
        """Stroke a circle; fill it if the width is 0."""
        centre, reach = np.array([SCALE * x, SCALE * y]), SCALE * (radius + width / 2)
        stroke = max(round(SCALE * width), 1) if width else 0
        box = _box(np.array([centre - reach, centre + reach]))
        self._draw(box, alpha, lambda on, at: pygame.draw.circle(on, _bytes(colour), centre + at, reach, stroke))

    def glow(self, x: float, y: float, radius: float, colour: Colour, alpha: float) -> None:
        """Fill a disc that fades towards its rim."""
        n = max(round(SCALE * radius), 1)
        distance = np.hypot(*(np.mgrid[-n : n + 1, -n : n + 1])) / n
        light = pygame.Surface(distance.shape, pygame.SRCALPHA)
        light.fill(_bytes(colour))
        pygame.surfarray.pixels_alpha(light)[:] = np.rint(255 * alpha * np.clip(1.0 - distance, 0.0, 1.0) ** 2)
        self._surface.blit(light, (SCALE * x - n, SCALE * y - n))

    def line(
        self, x0: float, y0: float, x1: float, y1: float, width: float, colour: Colour, alpha: float = 1.0
    ) -> None:
        """Draw a straight line with round ends."""
        ends, half = SCALE * np.array([[x0, y0], [x1, y1]]), 0.5 * SCALE * width
        along = (ends[1] - ends[0]) / max(float(np.hypot(*(ends[1] - ends[0]))), 1e-9)
        side = half * np.array([-along[1], along[0]])
        corners = np.array([ends[0] + side, ends[1] + side, ends[1] - side, ends[0] - side])

        def draw(on: Any, at: Floats) -> None:
            pygame.draw.polygon(on, _bytes(colour), (corners + at).tolist())
            for end in ends + at:
                pygame.draw.circle(on, _bytes(colour), end, half)

        self._draw(_box(ends, half), alpha, draw)

    def path(self, points: Floats, alphas: Floats, width: float, colour: Colour) -> None:
        """Draw a path through points (n, 2) with an opacity per segment, (n - 1,); crossings are no darker."""
        box = _box(SCALE * points, SCALE * width).clip(self._surface.get_rect())
        layer, at = pygame.Surface(box.size, pygame.SRCALPHA), -np.array(box.topleft)
        for start, end, alpha in zip(points[:-1], points[1:], alphas, strict=True):  # draws over, does not blend
            ends, shade = SCALE * np.array([start, end]) + at, (*_bytes(colour), round(255 * alpha))
            pygame.draw.line(layer, shade, ends[0], ends[1], round(SCALE * width))
            pygame.draw.circle(layer, shade, ends[1], SCALE * width / 2)
        self._surface.blit(layer, box)

    def polygon(
        self,
        corners: Floats,
        colour: Colour,
        alpha: float = 1.0,
        *,
        edge: Colour | None = None,
        edge_width: float = 2.0,
    ) -> None:
        """Fill a polygon, corners (n, 2), and stroke its edge if that has a colour."""
        points = SCALE * corners
        self._draw(_box(points), alpha, lambda on, at: pygame.draw.polygon(on, _bytes(colour), points + at))
        if edge is not None:
            for (x0, y0), (x1, y1) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
                self.line(x0, y0, x1, y1, edge_width, edge)

    def text(self, x: float, y: float, words: str, colour: Colour, size: int = 1) -> None:
        """Write words, left top at (x, y), in a font of `LETTER_PX` times `size` pixels."""
        written = _font(SCALE * LETTER_PX * size).render(words, True, _bytes(colour))
        self._surface.blit(written, (SCALE * x, SCALE * y - SCALE * size))

    def _draw(self, box: pygame.Rect, alpha: float, draw: Any) -> None:
        """Draw onto the canvas, or, if it shows through, onto a layer of the box's size that is blended."""
        if alpha >= 1.0:
            draw(self._surface, np.zeros(2))
            return
        box = box.clip(self._surface.get_rect())
        if not (box.width and box.height):
            return
        layer = pygame.Surface(box.size, pygame.SRCALPHA)
        draw(layer, -np.array(box.topleft))
        layer.fill((255, 255, 255, round(255 * alpha)), special_flags=pygame.BLEND_RGBA_MULT)
        self._surface.blit(layer, box)


class Window:
    """A window that shows one picture after another.

    Raises:
        BackendUnavailable: If no window can be opened.
    """

    def __init__(self, title: str, size: tuple[int, int] = (720, 480)) -> None:
        try:
            pygame.display.init()
            self._screen = pygame.display.set_mode(size)
        except pygame.error as error:
            raise BackendUnavailable(f'no window can be opened ({error}); use render_mode="rgb_array"') from error
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


@cache
def _font(size: int) -> Any:
    pygame.font.init()
    return pygame.font.Font(None, round(1.35 * size))  # pygame's own font; its size is the line's


def _bytes(colour: Colour) -> tuple[int, int, int]:
    red, green, blue = (round(255 * min(max(float(part), 0.0), 1.0)) for part in colour)
    return red, green, blue


def _box(points: Floats, margin: float = 0.0) -> pygame.Rect:
    """Return the smallest rectangle of whole pixels around points (n, 2)."""
    low, high = np.floor(points.min(axis=0) - margin), np.ceil(points.max(axis=0) + margin) + 1
    return pygame.Rect(low, high - low)
