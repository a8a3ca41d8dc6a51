"""Display: the pictures of an environment, drawn on request or shown in a window after each step."""

from __future__ import annotations

import os
import sys
from collections import deque
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.error import ResetNeeded

from horde_env.backend import Frame
from horde_env.errors import BackendUnavailable
from horde_env.robot import RobotSpec

if TYPE_CHECKING:  # it loads pygame
    from horde_env.view.render import Picture, Renderer, Window

RENDER_MODES = ("rgb_array", "human")
TRAIL_STEPS = 600  # of the path that a picture shows: one minute


def has_display() -> bool:
    """Return whether a window could be shown here."""
    return sys.platform in ("win32", "darwin") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


class Display:
    """The pictures of a robot, and its window in "human" mode.

    Args:
        spec: The robot.
        render_mode: None, "rgb_array" or "human".
        plan: Its outline and its arena, as `spaces.picture` returns them.
        is_drawable: Whether they are known.

    Attributes:
        modes: The render modes that are possible here.
        trail: Its positions in the last `TRAIL_STEPS` steps, metres, oldest first.

    Raises:
        ValueError: If `render_mode` is unknown, or the robot cannot be drawn.
        BackendUnavailable: If it is "human" and there is no display.
    """

    def __init__(
        self,
        spec: RobotSpec,
        render_mode: str | None,
        plan: dict[str, Any],
        *,
        is_drawable: bool = True,
    ) -> None:
        if render_mode is not None and not is_drawable:
            raise ValueError(f"the {spec.name} cannot be drawn: leave render_mode out")
        if render_mode is not None and render_mode not in RENDER_MODES:
            modes = ", ".join(RENDER_MODES)
            raise ValueError(f"unknown render_mode {render_mode!r}; choose one of {modes}, or None")
        if render_mode == "human" and not has_display():
            raise BackendUnavailable(
                'render_mode "human" needs a display, and neither DISPLAY nor WAYLAND_DISPLAY is set; '
                'use render_mode="rgb_array" here'
            )
        self.modes: list[str] = []
        if is_drawable:
            self.modes = [mode for mode in RENDER_MODES if mode != "human" or has_display()]
        self._spec = spec
        self._mode = render_mode
        self._plan = plan
        self.trail: deque[tuple[float, float]] = deque(maxlen=TRAIL_STEPS)
        self._renderer: Renderer | None = None
        self._window: Window | None = None

    def open(self) -> None:
        """Open the window, if there is to be one."""
        if self._mode == "human" and self._window is None:
            from horde_env.view.render import Window

            self._window = Window("horde_env")

    def clear(self) -> None:
        """Forget the path."""
        self.trail.clear()

    def follow(self, frame: Frame) -> None:
        """Append the frame's position, if known, to the path."""
        if "x_m" in frame.extras:
            self.trail.append((frame.extras["x_m"], frame.extras["y_m"]))

    def show(self, frame: Frame) -> None:
        """Show a frame in the window, if one is open."""
        if self._window is not None:
            self._window.show(self.picture(frame))

    def render(self, frame: Frame | None) -> Picture | None:
        """Return a picture of the newest frame, show it in the window, or warn that there is no render mode."""
        if self._mode is None:
            gymnasium.logger.warn(
                'render() without a render mode shows nothing: make(..., render_mode="rgb_array")'
            )
            return None
        if frame is None:
            raise ResetNeeded("there is nothing to draw yet: call reset() before render()")
        if self._mode == "rgb_array":
            return self.picture(frame)
        self.show(frame)
        return None

    def picture(self, frame: Frame) -> Picture:
        """Return a top view, uint8 of shape (480, 720, 3)."""
        if self._renderer is None:
            from horde_env.view.render import Renderer

            self._renderer = Renderer(self._spec, self._plan)
        return self._renderer.draw(frame, list(self.trail))

    def close(self) -> None:
        """Close the window. Closing twice does nothing."""
        window = self._window
        self._window = None
        if window is not None:
            window.close()
