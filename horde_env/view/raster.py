"""A canvas for small pictures: discs, lines, polygons and words with smooth edges, in numpy alone.

Every shape is drawn from its signed distance in pixels (negative inside): coverage = clip(1/2 - distance, 0, 1).
Pixels are (x right, y down); colours are (red, green, blue) in 0..1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from horde_env.backend import Floats

Colour = tuple[float, float, float]
Picture = NDArray[np.uint8]

# The classic 5 x 7 terminal font: five columns a glyph, two hexadecimal digits each, the lowest bit on top.
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.-"
_COLUMNS = (
    "20545454787f484444383844444420384444487f3854545418087e0901020c5252523e7f0804047800447d40002040443d00"
    "7f1028440000417f40007c041804787c0804047838444444387c14141408081414187c7c080404084854545420043f444020"
    "3c4040207c1c2040201c3c4030403c44281028440c5050503c4464544c443e5149453e00427f400042615149462141454b31"
    "1814127f1027454545393c4a49493001710905033649494936064949291e00606000000808080808"
)
_GLYPHS = {letter: bytes.fromhex(_COLUMNS[10 * i : 10 * i + 10]) for i, letter in enumerate(_LETTERS)}


class Canvas:
    """A picture under construction.

    Attributes:
        pixels: Colours in 0..1, float32, shape (height, width, 3).
    """

    def __init__(self, width: int, height: int, colour: Colour) -> None:
        self.pixels = np.empty((height, width, 3), dtype=np.float32)
        self.pixels[:] = colour

    def copy(self) -> Canvas:
        """Return an independent copy."""
        other = object.__new__(Canvas)
        other.pixels = self.pixels.copy()
        return other

    def picture(self) -> Picture:
        """Return the picture as uint8, shape (height, width, 3)."""
        return np.asarray(np.rint(np.clip(self.pixels, 0.0, 1.0) * 255.0), dtype=np.uint8)

    def rectangle(self, x0: float, y0: float, x1: float, y1: float, colour: Colour, alpha: float = 1.0) -> None:
        """Fill the rectangle between two corners, to whole pixels."""
        height, width = self.pixels.shape[:2]
        rows = slice(max(round(y0), 0), min(max(round(y1), 0), height))
        columns = slice(max(round(x0), 0), min(max(round(x1), 0), width))
        self._blend(rows, columns, np.float32(alpha), colour)

    def disc(self, x: float, y: float, radius: float, colour: Colour, alpha: float = 1.0) -> None:
        """Fill a disc."""
        rows, columns, px, py = self._around(x - radius, y - radius, x + radius, y + radius)
        self._blend(rows, columns, alpha * _coverage(np.hypot(px - x, py - y) - radius), colour)

    def circle(self, x: float, y: float, radius: float, width: float, colour: Colour, alpha: float = 1.0) -> None:
        """Stroke a circle."""
        rows, columns, px, py = self._around(x - radius, y - radius, x + radius, y + radius, width)
        distance = np.abs(np.hypot(px - x, py - y) - radius) - 0.5 * width
        self._blend(rows, columns, alpha * _coverage(distance), colour)

    def glow(self, x: float, y: float, radius: float, colour: Colour, alpha: float) -> None:
        """Fill a disc that fades towards its rim."""
        rows, columns, px, py = self._around(x - radius, y - radius, x + radius, y + radius)
        fade = np.clip(1.0 - np.hypot(px - x, py - y) / radius, 0.0, 1.0)
        self._blend(rows, columns, alpha * fade * fade, colour)

    def line(
        self, x0: float, y0: float, x1: float, y1: float, width: float, colour: Colour, alpha: float = 1.0
    ) -> None:
        """Draw a straight line with round ends."""
        rows, columns, px, py = self._around(min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1), width)
        self._blend(rows, columns, alpha * _coverage(_to_segment(px, py, x0, y0, x1, y1) - 0.5 * width), colour)

    def path(self, points: Floats, alphas: Floats, width: float, colour: Colour) -> None:
        """Draw a path through points (n, 2) whose segments fade by `alphas` (n - 1,); it is no darker where it crosses.

        Overlapping round ends would darken every joint, so coverages are gathered first and blended once.
        """
        height, pixels_wide = self.pixels.shape[:2]
        cover = np.zeros((height, pixels_wide))
        for (x0, y0), (x1, y1), alpha in zip(points[:-1], points[1:], alphas, strict=True):
            rows, columns, px, py = self._around(min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1), width)
            stroke = alpha * _coverage(_to_segment(px, py, x0, y0, x1, y1) - 0.5 * width)
            np.maximum(cover[rows, columns], stroke, out=cover[rows, columns])
        (left, top), (right, bottom) = points.min(axis=0), points.max(axis=0)
        rows, columns, _, _ = self._around(left, top, right, bottom, width)
        self._blend(rows, columns, cover[rows, columns], colour)

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
        low, high = corners.min(axis=0), corners.max(axis=0)
        rows, columns, px, py = self._around(low[0], low[1], high[0], high[1], edge_width)
        outside = np.full(np.broadcast(px, py).shape, np.inf)
        inside = np.zeros(outside.shape, dtype=bool)
        for (x0, y0), (x1, y1) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
            outside = np.minimum(outside, _to_segment(px, py, x0, y0, x1, y1))
            if y0 != y1:
                inside ^= ((py < y0) != (py < y1)) & (px < x0 + (py - y0) * (x1 - x0) / (y1 - y0))
        distance = np.where(inside, -outside, outside)
        self._blend(rows, columns, alpha * _coverage(distance), colour)
        if edge is not None:
            self._blend(rows, columns, _coverage(outside - 0.5 * edge_width), edge)

    def text(self, x: float, y: float, words: str, colour: Colour, size: int = 1) -> None:
        """Write lower-case words and numbers, left top at (x, y), each letter 6 x 8 pixels times `size`."""
        rows = np.zeros((7, 6 * len(words)))
        for i, letter in enumerate(words):
            for column, byte in enumerate(_GLYPHS.get(letter, b"")):
                rows[:, 6 * i + column] = (byte >> np.arange(7)) & 1
        mask = np.kron(rows, np.ones((size, size)))
        top, left = round(y), round(x)
        mask = mask[: self.pixels.shape[0] - top, : self.pixels.shape[1] - left]
        self._blend(slice(top, top + mask.shape[0]), slice(left, left + mask.shape[1]), mask, colour)

    def _around(
        self, x0: float, y0: float, x1: float, y1: float, margin: float = 0.0
    ) -> tuple[slice, slice, Floats, Floats]:
        """Return the rows and columns that hold a box, and their pixels' centres as (1, w) and (h, 1)."""
        height, width = self.pixels.shape[:2]
        reach = margin + 2.0
        left, right = (min(max(int(v), 0), width) for v in (x0 - reach, x1 + reach))
        top, bottom = (min(max(int(v), 0), height) for v in (y0 - reach, y1 + reach))
        px = np.arange(left, right, dtype=np.float64)[None, :] + 0.5
        py = np.arange(top, bottom, dtype=np.float64)[:, None] + 0.5
        return slice(top, bottom), slice(left, right), px, py

    def _blend(self, rows: slice, columns: slice, alpha: NDArray[np.floating] | np.floating, colour: Colour) -> None:
        part = self.pixels[rows, columns]
        weight = np.asarray(alpha, dtype=np.float32)
        part += (weight[..., None] if weight.ndim else weight) * (np.asarray(colour, dtype=np.float32) - part)


def _coverage(distance: Floats) -> Floats:
    return np.asarray(np.clip(0.5 - distance, 0.0, 1.0))


def _to_segment(px: Floats, py: Floats, x0: float, y0: float, x1: float, y1: float) -> Floats:
    """Return the distance of pixels to a line segment."""
    dx, dy = x1 - x0, y1 - y0
    along = np.clip(((px - x0) * dx + (py - y0) * dy) / max(dx * dx + dy * dy, 1e-12), 0.0, 1.0)
    return np.asarray(np.hypot(px - x0 - along * dx, py - y0 - along * dy))
