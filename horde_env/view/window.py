"""A window for the pictures of `render.py`, by the standard library alone."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from horde_env.errors import BackendUnavailable

if TYPE_CHECKING:
    from horde_env.view.raster import Picture


def has_display() -> bool:
    """Return whether a window could be shown here."""
    return sys.platform in ("win32", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


class Window:
    """A window that shows one picture after another, by tkinter.

    Raises:
        BackendUnavailable: If there is no display, or no tkinter to reach it.
    """

    def __init__(self, title: str) -> None:
        try:
            import tkinter
        except ImportError as error:
            raise BackendUnavailable(
                'render_mode "human" needs tkinter, which this Python lacks (on Debian: apt install python3-tk); '
                'use render_mode="rgb_array" here'
            ) from error
        try:
            self._root = tkinter.Tk()
        except tkinter.TclError as error:
            raise BackendUnavailable(f"no window can be opened here: {error}") from error
        self._tkinter = tkinter
        self._root.title(title)
        self._root.resizable(False, False)
        self._root.protocol("WM_DELETE_WINDOW", self.close)
        self._label = tkinter.Label(self._root, borderwidth=0)
        self._label.pack()
        self._image: Any = None
        self.is_open = True

    def show(self, picture: Picture) -> None:
        """Show a picture, uint8 (height, width, 3); nothing happens once the user has closed the window."""
        if not self.is_open:
            return
        height, width = picture.shape[:2]
        self._image = self._tkinter.PhotoImage(data=b"P6 %d %d 255 " % (width, height) + picture.tobytes())
        self._label.configure(image=self._image)
        self._root.update()

    def close(self) -> None:
        """Close the window. Closing twice does nothing."""
        if self.is_open:
            self.is_open = False
            self._root.destroy()
