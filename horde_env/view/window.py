"""A window for the pictures of `render.py`, by pygame."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from horde_env.errors import BackendUnavailable

if TYPE_CHECKING:
    from horde_env.view.canvas import Picture


def has_display() -> bool:
    """Return whether a window could be shown here."""
    return sys.platform in ("win32", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


class Window:
    """A window that shows one picture after another.

    Raises:
        BackendUnavailable: If pygame is missing or no window can be opened.
    """

    def __init__(self, title: str, size: tuple[int, int] = (720, 480)) -> None:
        from horde_env.view.canvas import pygame

        self._pygame = pygame
        try:
            pygame.display.init()
            self._screen = pygame.display.set_mode(size)
        except pygame.error as error:
            raise BackendUnavailable(f'no window can be opened ({error}); use render_mode="rgb_array"') from error
        pygame.display.set_caption(title)
        self.is_open = True

    def show(self, picture: Picture) -> None:
        """Show a picture, uint8 (height, width, 3); do nothing once the user has closed the window."""
        if self.is_open and self._pygame.event.get(self._pygame.QUIT):
            self.close()
        if self.is_open:
            self._pygame.surfarray.blit_array(self._screen, picture.transpose(1, 0, 2))
            self._pygame.display.flip()

    def close(self) -> None:
        """Close the window. Closing twice does nothing."""
        if self.is_open:
            self.is_open = False
            self._pygame.display.quit()
