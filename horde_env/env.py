"""PenEnv: a robot body as a Gymnasium environment, the same for every body."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded

from horde_env.backend import Backend, Frame
from horde_env.clock import Clock, SimulatedClock
from horde_env.errors import BackendLost, BackendUnavailable
from horde_env.interface import ActionType, action_space, discrete_request, robot_metadata, velocity_request
from horde_env.manoeuvre import CentringDrive
from horde_env.robot import Floats, Observation, RobotSpec, critterbot
from horde_env.sim.pen import Pen, load_pen
from horde_env.tasks import task as task_named
from horde_env.window import has_display

if TYPE_CHECKING:
    from horde_env.render import Painter
    from horde_env.window import Window

MANOEUVRES = ("centre",)
NOTHING_NEW = {"stale": 1, "gap": 1, "applied": 0}  # of a step that got no frame
TRAIL_STEPS = 600  # of the path that a picture shows: one minute

_log = logging.getLogger(__name__)


class PenEnv(gymnasium.Env[Observation, Any]):
    """A continuing task: one step is one period of the body, and nothing but a fault or a limit ends an episode.

    A step sends its request at once, lets one period pass, and takes the newest frame. Observations are Box(0, 1)
    float32 of shape (n_channels,), scaled by the robot's specified ranges; readings outside are clipped and counted.
    Actions are Discrete(5) by name, or with `action_type="velocity"` Box(-1, 1, (3,)): shares of the largest request
    (forward, left, counter-clockwise).

    `info` is flat and numeric: t, sensor_age_s, overrun_s (seconds), crc_errors, clipped (counts), stale, gap, applied
    (0 or 1), manoeuvre_steps (of a reset), then whatever the body adds (`Frame.extras`). `gap` is 1 where a frame does
    not follow from the last one, as after every reset: a learner clears its traces there.

    `reset()` asks the body for a fresh start. `reset(options={"manoeuvre": "centre"})` drives to the middle from where
    the body stands, for 2 s at most; with a seed, or before a first reset, from a fresh start.

    Args:
        backend: The body. It is opened by the first reset, never here.
        clock: Who waits for the end of a period; nobody (`SimulatedClock`) when None.
        spec: The robot; the Critterbot when None.
        pen: Where it lives, for pictures and for the drive to the middle; `assets/pen.toml` when None.
        action_type: "discrete" or "velocity".
        render_mode: None, "rgb_array" or "human".
        task: Name of the reward (`horde_env.tasks`); no reward when None.

    Attributes:
        manoeuvre_frames: The frames of the last reset's drive, in order.
        manoeuvre_observations: What they look like to an agent, scaled, in the same order.
        fault: The BackendLost that truncated the last episode, or None.

    Raises:
        ValueError: If `action_type`, `render_mode` or `task` is unknown.
        BackendUnavailable: If `render_mode` is "human" and there is no display.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array", "human"], "render_fps": 10}  # type: ignore[misc]

    def __init__(
        self,
        backend: Backend,
        clock: Clock | None = None,
        *,
        spec: RobotSpec | None = None,
        pen: Pen | None = None,
        action_type: ActionType = "discrete",
        render_mode: str | None = None,
        task: str | None = None,
    ) -> None:
        self.robot = spec or critterbot()
        self.pen = pen or load_pen()
        self.task = task_named(task)
        self.action_type, self.action_space = action_type, action_space(self.robot, action_type)
        self.observation_space = self.robot.observation_space()  # type: ignore[assignment]
        self.render_mode = _checked_render_mode(render_mode)
        # Of this instance: class-level metadata would be shared by environments of other robots.
        modes = list(type(self).metadata["render_modes"]) if has_display() else ["rgb_array"]
        notes = list(getattr(backend, "notes", ()))  # what a reader of results from this body must know
        self.metadata = robot_metadata(self.robot, action_type, modes) | {"notes": notes}  # type: ignore[misc]
        self.backend, self.clock = backend, clock or SimulatedClock()
        self.manoeuvre_frames: list[Frame] = []
        self.manoeuvre_observations: list[Observation] = []
        self.fault: BackendLost | None = None
        self._requests = self.robot.requests.copy()
        self._requests.flags.writeable = False
        self._frame: Frame | None = None
        self._observation: Observation = np.zeros(self.robot.n_channels, np.float32)
        self._trail: deque[tuple[float, float]] = deque(maxlen=TRAIL_STEPS)
        self._painter: Painter | None = None
        self._window: Window | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; with `options={"manoeuvre": "centre"}` by driving to the middle of the pen.

        Args:
            seed: Seeds all randomness of this environment and its body.
            options: None, or {"manoeuvre": name}.

        Returns:
            The first observation, and info with `gap` 1 and `manoeuvre_steps`.

        Raises:
            ValueError: If the options name anything else.
            BackendUnavailable: If the body cannot be opened.
            BackendLost: If the body stopped answering during the drive; the next reset asks it for a fresh start.
        """
        super().reset(seed=seed)
        manoeuvre = _checked_manoeuvre(options)
        self._open_window()
        self.manoeuvre_frames, self.manoeuvre_observations, self.fault = [], [], None
        frame, overrun_s = self._frame, 0.0
        if frame is None or frame.last or manoeuvre is None or seed is not None:
            frame = self._start()
        clipped = self._take(frame)
        if manoeuvre is not None:
            drive = CentringDrive(self.robot, self.pen.side_m)
            while not frame.last and (request := drive.request(self._observation)) is not None:
                frame, clipped, overrun_s = self._exchange(request)
                self.manoeuvre_frames.append(frame)
                self.manoeuvre_observations.append(self._observation)
        self._show()
        info = _info(frame, clipped, overrun_s)
        return self._observation, info | {"gap": 1, "manoeuvre_steps": len(self.manoeuvre_frames)}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Send the action's request at once, let one period pass, and return what the body then senses.

        A body that stops answering, or a recorded life at its end, truncates the episode with its last observation.

        Raises:
            ValueError: If the action is not one of the action space; nothing was sent.
            gymnasium.error.ResetNeeded: Before the first reset, after `close`, and after a lost body.
        """
        frame = self._frame
        if frame is None:
            raise ResetNeeded("this environment has no running body: call reset() before step()")
        request = self._request(action)
        before = self._observation
        if frame.last:
            return before, 0.0, False, True, _info(frame, 0, 0.0) | NOTHING_NEW
        try:
            newest, clipped, overrun_s = self._exchange(request)
        except BackendLost:
            return before, 0.0, False, True, _info(frame, 0, 0.0) | NOTHING_NEW
        reward = self.task(before, request, self._observation, self.robot)
        self._show()
        return self._observation, reward, False, newest.last, _info(newest, clipped, overrun_s)

    @property
    def frame(self) -> Frame | None:
        """The newest frame, in SI units and unclipped; None without a running body."""
        return self._frame

    def render(self) -> Any:
        """Return a top view as uint8 (480, 720, 3), show it in "human" mode, or return None without a render mode.

        Raises:
            gymnasium.error.ResetNeeded: Before the first reset.
        """
        if self.render_mode is None:
            gymnasium.logger.warn('render() without a render mode shows nothing: make(..., render_mode="rgb_array")')
            return None
        picture = self._picture()
        if self.render_mode == "rgb_array":
            return picture
        if self._window is not None:
            self._window.show(picture)
        return None

    def close(self) -> None:
        """Stop the motors, let go of the body and close the window. Closing twice does nothing."""
        self._frame = None
        if self._window is not None:
            self._window.close()
            self._window = None
        self.backend.close()

    def _start(self) -> Frame:
        """Ask the body for a fresh start; until it has answered there is nothing to step from."""
        self._frame = None
        self._trail.clear()
        self.clock.start()
        return self.backend.reset(self.np_random)

    def _exchange(self, request: Floats) -> tuple[Frame, int, float]:
        """Return the frame that ended one period under `request`, its number of clips, and its lateness in seconds."""
        self.clock.begin()
        try:
            frame = self.backend.exchange(request)
        except BackendLost as lost:
            self.fault, self._frame = lost, None
            _log.warning("%s", lost)
            raise
        overrun_s = self.clock.wait()
        return frame, self._take(frame), overrun_s

    def _take(self, frame: Frame) -> int:
        """Make `frame` the newest one; return how many of its readings were clipped."""
        self._frame = frame
        self._observation, clipped = self.robot.scale(frame.values)
        if self.render_mode is not None and "x_m" in frame.extras:
            self._trail.append((frame.extras["x_m"], frame.extras["y_m"]))
        return clipped

    def _request(self, action: Any) -> Floats:
        """Return the request (m/s, m/s, rad/s) that an action stands for."""
        if self.action_type == "discrete":
            return discrete_request(action, self._requests)
        return velocity_request(action, self.robot.largest_request)

    def _picture(self) -> Any:
        if self._frame is None:
            raise ResetNeeded("there is nothing to draw yet: call reset() before render()")
        if self._painter is None:
            from horde_env.render import Painter

            self._painter = Painter(self.robot, self.pen)
        return self._painter.draw(self._frame, list(self._trail))

    def _open_window(self) -> None:
        """Open the window before the body: a display that refuses must not leave a robot running."""
        if self.render_mode == "human" and self._window is None:
            from horde_env.window import Window

            self._window = Window("horde_env")

    def _show(self) -> None:
        if self._window is not None:
            self._window.show(self._picture())


def _info(frame: Frame, clipped: int, overrun_s: float) -> dict[str, Any]:
    return {
        "t": frame.t,
        "sensor_age_s": frame.sensor_age_s,
        "overrun_s": overrun_s,
        "crc_errors": frame.crc_errors,
        "stale": int(frame.stale),
        "gap": int(frame.gap),
        "applied": int(frame.applied),
        "clipped": clipped,
        **frame.extras,
    }


def _checked_manoeuvre(options: dict[str, Any] | None) -> str | None:
    options = options or {}
    unknown = set(options) - {"manoeuvre"}
    if unknown:
        raise ValueError(f"unknown reset option {sorted(unknown)[0]!r}; the only one is 'manoeuvre'")
    manoeuvre = options.get("manoeuvre")
    if manoeuvre is not None and manoeuvre not in MANOEUVRES:
        raise ValueError(f"unknown manoeuvre {manoeuvre!r}; choose one of {', '.join(MANOEUVRES)}")
    return manoeuvre


def _checked_render_mode(render_mode: str | None) -> str | None:
    modes = PenEnv.metadata["render_modes"]
    if render_mode is not None and render_mode not in modes:
        raise ValueError(f"unknown render_mode {render_mode!r}; choose one of {', '.join(modes)}, or None")
    if render_mode == "human" and not has_display():
        raise BackendUnavailable(
            'render_mode "human" needs a display, and neither DISPLAY nor WAYLAND_DISPLAY is set; '
            'use render_mode="rgb_array" here'
        )
    return render_mode
