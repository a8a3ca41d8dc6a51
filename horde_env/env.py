"""PenEnv: a robot body as a Gymnasium environment, the same for every body."""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded

from horde_env import spaces
from horde_env.backend import Backend, Floats, Frame, Observation, Restorable, State, counted_with
from horde_env.clock import Clock, SimulatedClock
from horde_env.drives import RECORD_S, Chargeable, Drives, Obedience, Stay, Unjudged
from horde_env.errors import BackendLost, BackendUnavailable, HordeEnvError
from horde_env.robot import ROBOTS, RobotSpec, default_robot, part
from horde_env.sim.saving import (
    attributes,
    generator_state,
    inner,
    nested,
    restore_attributes,
    restore_generator,
)
from horde_env.tasks import task as task_named

if TYPE_CHECKING:
    from horde_env.view.render import Painter, Window

NOTHING_NEW = {"stale": 1, "gap": 1, "applied": 0}  # of a step that got no frame
TRAIL_STEPS = 600  # of the path that a picture shows: one minute

_FRAME_NUMBERS = ("t", "sensor_age_s", "crc_errors", "stale", "gap", "applied", "last")

_log = logging.getLogger(__name__)


class PenEnv(gymnasium.Env[Observation, Any]):
    """A continuing task: one step is one period of the robot; only a fault or a time limit ends an episode.

    A step sends its request at once, waits one period, and reads the newest frame. Observations are
    Box(0, 1) float32 of shape (n_channels,), scaled by the robot's specified ranges; readings
    outside are clipped and counted. Actions are Discrete(5) by name, or with
    `action_type="velocity"` Box(-1, 1, (3,)): shares of the largest request (forward, left,
    counter-clockwise; a robot that cannot move to its left has two).

    `info` is flat and numeric: t, sensor_age_s, overrun_s (seconds), crc_errors, clipped (counts),
        stale, gap, applied
    (0 or 1), obeyed (if the body has a rule for it: `drives.Obedience`), battery_low,
    battery_urgent (if the robot
    measures its batteries: `BatteryGauge`), manoeuvre_steps (of a reset, else 0), docked (if the
        body can dock; 1 after
    a reset that docked, else 0), then the body's own (`Frame.extras`). `reset` and `step` return
    the same keys.
    `gap` is 1 if a frame does not follow from the last one, as after every reset: a learner clears
        its traces there.

    Args:
        backend: The body. It is opened by the first reset, never here.
        clock: Waits for the end of a period; `SimulatedClock`, which does not wait, when None.
        spec: The robot; `robot.default_robot()` when None.
        action_type: "discrete" or "velocity".
        render_mode: None, "rgb_array" or "human".
        task: Name of the reward (`horde_env.tasks`); no reward when None.

    Attributes:
        manoeuvre_frames: The frames of the last reset's drive, in order; while charging, which may
            take hours, one in 60 s is kept.
        manoeuvre_observations: Their scaled observations, in the same order.
        manoeuvre_at: Number of each frame's step among the `manoeuvre_steps`, from 1.
        fault: The BackendLost that truncated the last episode, or None.

    Raises:
        ValueError: If `action_type`, `render_mode` or `task` is unknown, or the robot lacks the
            sensors of the task.
        BackendUnavailable: If `render_mode` is "human" and there is no display.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array", "human"], "render_fps": 10}  # type: ignore[misc]

    def __init__(
        self,
        backend: Backend,
        clock: Clock | None = None,
        *,
        spec: RobotSpec | None = None,
        action_type: spaces.ActionType = "discrete",
        render_mode: str | None = None,
        task: str | None = None,
    ) -> None:
        self.robot = spec or default_robot()
        has_folder = self.robot.name in ROBOTS
        if has_folder:
            self.pen = part(self.robot.name, "place").place_of(backend)
        else:
            self.pen = None
        self.task = task_named(task, self.robot)
        self.action_space = spaces.action_space(self.robot, action_type)
        self.action_type = action_type
        self.observation_space = self.robot.observation_space()  # type: ignore[assignment]
        if render_mode is not None and not has_folder:
            raise ValueError(f"the {self.robot.name} cannot be drawn: leave render_mode out")
        self.render_mode = _checked_render_mode(render_mode)
        # Of this instance: class-level metadata would be shared by environments of other robots.
        if has_display():
            modes = list(type(self).metadata["render_modes"])
        else:
            modes = ["rgb_array"]
        modes = modes if has_folder else []
        notes = list(getattr(backend, "notes", ()))  # caveats of its results, for the report
        if has_folder:
            default = part(self.robot.name, "drives").DRIVES
        else:
            default = Drives()
        self._drives: Drives = getattr(backend, "drives", default)
        can_charge = isinstance(backend, Chargeable) and self._drives.stay is not None
        can_do = [name for name in spaces.MANOEUVRES if name != "dock" or can_charge]
        facts = spaces.robot_metadata(self.robot, action_type, modes) | {
            "notes": notes,
            "manoeuvres": can_do,
        }
        facts["restorable"] = isinstance(backend, Restorable)
        physics = getattr(backend, "physics", None)
        if physics:
            facts["physics"] = physics
        facts["picture"] = spaces.picture(self.robot, self.pen)
        facts["stop_options"] = dict(getattr(backend, "stop_options", {}))
        self.metadata = facts  # type: ignore[misc]
        self._no_drive = {"manoeuvre_steps": 0}  # of a step, and of a reset without a drive
        if "dock" in can_do:
            self._no_drive["docked"] = 0
        self.backend = backend
        self.clock = clock or SimulatedClock()
        self.manoeuvre_frames: list[Frame] = []
        self.manoeuvre_observations: list[Observation] = []
        self.manoeuvre_at: list[int] = []
        self.fault: BackendLost | None = None
        from horde_env.sim.gauge import BatteryGauge  # imported here, because it loads a compiler

        self.gauge = BatteryGauge(self.robot)
        self.obedience: Obedience = getattr(backend, "obedience", Unjudged)(self.robot)
        self._stay: Stay | None = None
        self._is_asked_to_end = False
        self._requests = self.robot.requests.copy()
        self._requests.flags.writeable = False
        self._frame: Frame | None = None
        # Of the newest frame: readings beyond their range; how late it came
        self._clipped = 0
        self._overrun_s = 0.0
        self._observation: Observation = np.zeros(self.robot.n_channels, np.float32)
        self._trail: deque[tuple[float, float]] = deque(maxlen=TRAIL_STEPS)
        self._painter: Painter | None = None
        self._window: Window | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode: restart the body, or drive from its position with `options={"manoeuvre": name}`.

        "centre" drives to the middle (2 s at most; with a seed, or in a first reset, from a new
        start). "dock" drives to the dock (60 s at most), charges until the batteries are full or
        for `charge_s` seconds, and backs off; info has `docked` 1 if it did. "stay" does nothing.
        `metadata["manoeuvres"]` names what the body can do. A physical
        body cannot be placed: a reset without options drives it to the middle.

        Args:
            seed: Seeds all randomness of this environment and its body.
            options: None, or {"manoeuvre": "centre", "dock" or "stay"}, "dock" also with
                {"charge_s": seconds}.

        Returns:
            The first observation, and info with `gap` 1 and `manoeuvre_steps`.

        Raises:
            ValueError: If the options name anything else, or a manoeuvre that this body cannot do.
            BackendUnavailable: If the body cannot be opened.
            BackendLost: If the body stopped answering during the drive; the next reset asks it for
                a fresh start.
        """
        super().reset(seed=seed)
        manoeuvre, charge_s = spaces.reset_options(options, self.metadata["manoeuvres"])
        self._open_window()
        self.manoeuvre_frames = []
        self.manoeuvre_observations = []
        self.manoeuvre_at = []
        self.fault = None
        self._is_asked_to_end = False
        frame = self._frame
        if frame is None or frame.last or manoeuvre in (None, "stay") or seed is not None:
            frame = self._start()
        if manoeuvre is None and not getattr(self.backend, "can_be_placed", True):
            manoeuvre = "centre"
        self._overrun_s = 0.0
        drive = self._no_drive
        self._take(frame)
        if manoeuvre == "centre":
            frame, drive = self._centre(frame)
        elif manoeuvre == "dock":
            frame, drive = self._dock(frame, charge_s)
        self._show()
        return self._observation, self._info(frame) | {"gap": 1, **drive}

    def save_state(self) -> State:
        """Return all state that future steps depend on. Call it between two steps.

        Raises:
            ValueError: If this body cannot be saved (`metadata["restorable"]`).
            gymnasium.error.ResetNeeded: Before the first reset.
        """
        body = self._restorable()
        frame = self._frame
        if frame is None:
            raise ResetNeeded("there is no state to save yet: call reset() before save_state()")
        numbers = {name: np.array(getattr(frame, name)) for name in _FRAME_NUMBERS}
        beacon = {}
        if frame.beacon is not None:
            beacon = {"beacon": frame.beacon.copy()}
        return nested(
            body=body.save(),
            frame={"values": frame.values.copy(), **numbers, **beacon},
            extras={name: np.array(value) for name, value in frame.extras.items()},
            own=attributes(self, "_observation"),
            gauge=attributes(self.gauge, *self.gauge.saved),
            obedience=attributes(self.obedience, *self.obedience.saved),
            rng=generator_state(self.np_random),
        )

    def restore_state(self, state: State) -> None:
        """Restore a state of `save_state`, in any process: the same steps then give the same bits.

        Raises:
            ValueError: If this body cannot be restored.
            gymnasium.error.ResetNeeded: Before the first reset, which opens the body.
        """
        body = self._restorable()
        if self._frame is None:
            raise ResetNeeded(
                "there is no body to restore yet: call reset() before restore_state()"
            )
        frame = inner(state, "frame")
        extras = inner(state, "extras")
        self._frame = Frame(
            values=frame["values"].copy(),
            **{name: frame[name].tolist() for name in _FRAME_NUMBERS},
            extras={name: value.tolist() for name, value in extras.items()},
            beacon=frame["beacon"].copy() if "beacon" in frame else None,
        )
        self._observation = inner(state, "own")["_observation"].copy()
        restore_attributes(self.gauge, inner(state, "gauge"), *self.gauge.saved)
        restore_attributes(self.obedience, inner(state, "obedience"), *self.obedience.saved)
        self._trail.clear()
        body.restore(inner(state, "body"))
        # Last: nothing may draw from it after this
        restore_generator(self.np_random, inner(state, "rng"))

    def _restorable(self) -> Restorable:
        """Return the body if it can be restored; raise ValueError otherwise."""
        if not isinstance(self.backend, Restorable):
            raise ValueError(
                f"a body of the kind {type(self.backend).__name__} cannot be saved and restored"
            )
        return self.backend

    def end_manoeuvre(self) -> None:
        """Ask a drive, or a stay at the dock, that is under way in `reset` to end early; safe in a signal handler."""
        self._is_asked_to_end = True
        if self._stay is not None:
            self._stay.end()

    def emergency_stop(self, reason: str) -> bool:
        """Stop the body until a person clears it (`horde-robot stop --clear`); return whether it can be stopped so.

        Any thread may call this. `metadata["stop_options"]` are the options of the command
        `horde-robot stop` that does
        the same from another process, by name: robot, backend, port and perhaps parity. It is empty
            if there is none.
        """
        stop = getattr(self.backend, "emergency_stop", None)
        return stop is not None and bool(stop(reason))

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Send the action's request at once, let one period pass, and return what the body then senses.

        A body that stops answering, or a recorded life at its end, truncates the episode with its
        last observation.

        Raises:
            ValueError: If the action is not one of the action space; nothing was sent.
            gymnasium.error.ResetNeeded: Before the first reset, after `close`, and after a lost
                body.
        """
        frame = self._frame
        if frame is None:
            raise ResetNeeded("this environment has no running body: call reset() before step()")
        if self.action_type == "discrete":
            request = spaces.discrete_request(action, self._requests)
        else:
            request = spaces.velocity_request(action, self.robot.largest_request)
        previous = self._observation
        try:
            if frame.last:
                newest = None
            else:
                newest = self._exchange(request)
        except BackendLost as lost:
            _log.error("%s", lost)
            newest = None
        if newest is None:
            self._clipped = 0
            self._overrun_s = 0.0
            return previous, 0.0, False, True, self._info(frame) | NOTHING_NEW
        reward = float(self.task(previous, request, self._observation, self.robot))
        self._show()
        return self._observation, reward, False, newest.last, self._info(newest)

    def wait_for_rest(self, limit_s: float) -> bool:
        """Wait until the body reports that its wheels are at rest; return whether it did within `limit_s` seconds.

        Any thread may call this, after `emergency_stop`. True at once for a body that reports
        nothing between steps.
        """
        wait = getattr(self.backend, "wait_for_rest", None)
        return wait is None or bool(wait(limit_s))

    @property
    def frame(self) -> Frame | None:
        """The newest frame, in SI units and unclipped; None without a running body."""
        return self._frame

    @property
    def disobedience(self) -> str:
        """How frames show that the body does not follow its commands, in one or two sentences; "" while it does."""
        return self.obedience.complaint

    def render(self) -> Any:
        """Return a top view as uint8 (480, 720, 3), show it in "human" mode, or return None without a render mode.

        Raises:
            gymnasium.error.ResetNeeded: Before the first reset.
        """
        if self.render_mode is None:
            gymnasium.logger.warn(
                'render() without a render mode shows nothing: make(..., render_mode="rgb_array")'
            )
            return None
        picture = self._picture()
        if self.render_mode == "rgb_array":
            return picture
        if self._window is not None:
            self._window.show(picture)
        return None

    def close(self) -> None:
        """Stop the motors, close the body and the window. Closing twice does nothing."""
        self._frame = None
        window = self._window
        self._window = None
        try:
            self.backend.close()  # first of all: it stops the motors
        finally:
            if window is not None:
                window.close()

    def _start(self) -> Frame:
        """Restart the body; until it has answered no step is possible."""
        self._frame = None
        self._trail.clear()
        # The first of each compiles, or makes a table: not within a period.
        self.gauge.read(self.robot.low)
        self.gauge.forget()
        self.obedience.forget()
        if self._drives.centring is not None:
            self._drives.centring(self.robot, self.pen)
        self.robot.scale(self.robot.low)
        self.clock.start()
        frame = self.backend.reset(self.np_random)
        # A recording has further notes after it was read.
        self.metadata["notes"] = list(getattr(self.backend, "notes", ()))
        return frame

    def _centre(self, frame: Frame) -> tuple[Frame, dict[str, int]]:
        """Drive to the middle; return the last frame and the keys that the drive adds to info."""
        if self._drives.centring is None:
            return frame, self._no_drive
        drive = self._drives.centring(self.robot, self.pen)
        while not frame.last and (request := drive.request(self._observation)) is not None:
            if self._is_asked_to_end:
                break
            frame = self._exchange(request)
            self._keep(frame, len(self.manoeuvre_frames) + 1)
        return frame, {"manoeuvre_steps": len(self.manoeuvre_frames)}

    def _dock(self, frame: Frame, charge_s: float) -> tuple[Frame, dict[str, int]]:
        """Drive to the dock, charge, leave; return the last frame and the keys that the stay adds to info."""
        assert isinstance(self.backend, Chargeable), "metadata names what the body can do"
        assert self._drives.stay is not None
        stay = self._stay = self._drives.stay(self.robot, self.backend, charge_s)
        thinned = round(RECORD_S / self.robot.period_s)
        n_steps = 0
        is_kept = True
        _log.warning("the robot drives to its dock: %s", self.gauge.finding)
        try:
            while (
                not frame.last and (request := stay.request(frame, self._observation)) is not None
            ):
                first_frame = frame
                frame = self._exchange(request)
                if not is_kept:  # its counters are added to the next frame
                    frame = counted_with(first_frame, frame)
                n_steps += 1
                is_kept = not stay.is_charging or n_steps % thinned == 0
                if is_kept:
                    self._keep(frame, n_steps)
            if not is_kept:
                self._keep(frame, n_steps)
        finally:
            self._stay = None
            with suppress(HordeEnvError):  # the body is lost, which was reported
                stay.stop_charging()
        spent_s = n_steps * self.robot.period_s
        _log.warning(
            "a stay at the dock of %.0f s: %s; %s", spent_s, stay.outcome, self.gauge.finding
        )
        return frame, {"manoeuvre_steps": n_steps, "docked": int(stay.docked)}

    def _keep(self, frame: Frame, at: int) -> None:
        """Store a frame of a manoeuvre, received at its step `at`."""
        self.manoeuvre_frames.append(frame)
        self.manoeuvre_observations.append(self._observation)
        self.manoeuvre_at.append(at)

    def _exchange(self, request: Floats) -> Frame:
        """Return the frame that ended one period under `request`."""
        self.clock.begin()
        try:
            frame = self.backend.exchange(request)
        except BackendLost as lost:
            self.fault = lost
            self._frame = None
            raise
        self._overrun_s = self.clock.wait()
        # A simulated robot stands still meanwhile
        if self.clock.was_suspended() and not self.metadata["restorable"]:
            _log.warning("this computer was suspended: the frame after it is a gap")
            frame = replace(frame, gap=True)
        previous = self.obedience.complaint
        complaint = self.obedience.judge(request, frame)
        if complaint != previous:
            _log.warning("%s", complaint or "the robot follows its commands again")
        if complaint:
            frame = replace(frame, applied=False)
        self._take(frame)
        return frame

    def _take(self, frame: Frame) -> None:
        """Make `frame` the newest one."""
        self._frame = frame
        self.gauge.read(frame.values, applied=frame.applied or frame.stale)
        self._observation, self._clipped = self.robot.scale(frame.values)
        if self.render_mode is not None and "x_m" in frame.extras:
            self._trail.append((frame.extras["x_m"], frame.extras["y_m"]))

    def _info(self, frame: Frame) -> dict[str, Any]:
        return {
            "t": frame.t,
            "sensor_age_s": frame.sensor_age_s,
            "overrun_s": self._overrun_s,
            "crc_errors": frame.crc_errors,
            "stale": int(frame.stale),
            "gap": int(frame.gap),
            "applied": int(frame.applied),
            "clipped": self._clipped,
            **self.obedience.info(),
            **self.gauge.info(),
            **self._no_drive,
            **frame.extras,
        }

    def _picture(self) -> Any:
        if self._frame is None:
            raise ResetNeeded("there is nothing to draw yet: call reset() before render()")
        if self._painter is None:
            from horde_env.view.render import Painter

            self._painter = Painter(self.robot, self.metadata["picture"])
        return self._painter.draw(self._frame, list(self._trail))

    def _open_window(self) -> None:
        """Open the window before the body: a display that refuses must not leave a robot running."""
        if self.render_mode == "human" and self._window is None:
            from horde_env.view.render import Window

            self._window = Window("horde_env")

    def _show(self) -> None:
        if self._window is not None:
            self._window.show(self._picture())


def _checked_render_mode(render_mode: str | None) -> str | None:
    modes = PenEnv.metadata["render_modes"]
    if render_mode is not None and render_mode not in modes:
        raise ValueError(
            f"unknown render_mode {render_mode!r}; choose one of {', '.join(modes)}, or None"
        )
    if render_mode == "human" and not has_display():
        raise BackendUnavailable(
            'render_mode "human" needs a display, and neither DISPLAY nor WAYLAND_DISPLAY is set; '
            'use render_mode="rgb_array" here'
        )
    return render_mode


def has_display() -> bool:
    """Return whether a window could be shown here."""
    return sys.platform in ("win32", "darwin") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
