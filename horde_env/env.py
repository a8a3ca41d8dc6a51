"""RobotEnv: a robot body as a Gymnasium environment, the same for every body."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded

from horde_env import registry, spaces
from horde_env.backend import (
    FRAME_KEYS,
    Backend,
    Floats,
    Frame,
    InfoKey,
    Observation,
    Observed,
    Restorable,
    State,
)
from horde_env.clock import Clock, SimulatedClock
from horde_env.commands import CommandMonitor, NoCommandMonitor
from horde_env.docking import Finished, ManoeuvreRunner, Manoeuvres
from horde_env.errors import BackendLost
from horde_env.robot import ROBOTS, RobotSpec, default_robot
from horde_env.sim.snapshots import Snapshots
from horde_env.tasks import none as no_task
from horde_env.tasks import task as task_named
from horde_env.view.display import RENDER_MODES, Display

NO_FRAME_INFO = {"stale": 1, "gap": 1, "applied": 0}  # of a step that got no frame

_log = logging.getLogger(__name__)


class RobotEnv(gymnasium.Env[Observation, Any]):
    """A continuing task: one step is one period of the robot; only a fault or a time limit ends an episode.

    A step sends its request at once, waits one period, and reads the newest frame. Observations are
    Box(0, 1) float32 of shape (n_channels,), scaled by the robot's specified ranges; readings
    outside are clipped and counted. Actions are Discrete(5) by name, or with
    `action_type="velocity"` Box(-1, 1, (3,)): shares of the largest request (forward, left,
    counter-clockwise; a robot that cannot move to its left has two).

    `info` is flat and numeric, with the same keys after `reset` and `step`. `info_keys` describes
    them: those of every body, of the manoeuvres, of the monitors of commands and battery, and the
    body's own (`Frame.extras`). `gap` is 1 if a frame does not follow from the last one, as after
    every reset: a learner clears its traces there.

    The parts of a step are components, each with its state: `clock`, `backend`, `command_monitor`,
    `battery`, `display`; `manoeuvres` runs the drives of a reset.

    Args:
        backend: The body. It is opened by the first reset, never here.
        clock: Waits for the end of a period; `SimulatedClock`, which does not wait, when None.
        spec: The robot; `robot.default_robot()` when None.
        action_type: "discrete" or "velocity".
        render_mode: None, "rgb_array" or "human".
        task: Name of the reward (`horde_env.tasks`); no reward when None.

    Attributes:
        robot: The robot's specification.
        arena: Where it is, for pictures and drives; None if that is unknown.
        fault: The BackendLost that truncated the last episode, or None.

    Raises:
        ValueError: If `action_type`, `render_mode` or `task` is unknown, or the robot lacks the
            sensors of the task.
        BackendUnavailable: If `render_mode` is "human" and there is no display.

    Examples:
        >>> from horde_env import make_simulator_env
        >>> with make_simulator_env(physics="planar") as env:
        ...     observation, info = env.reset(seed=0)
        ...     observation, reward, terminated, truncated, info = env.step(0)  # forward
        >>> observation.shape, info["gap"], info["applied"]
        ((57,), 0, 1)
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": list(RENDER_MODES), "render_fps": 10}  # type: ignore[misc]

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
        self.backend = backend
        self.clock = clock or SimulatedClock()
        self.fault: BackendLost | None = None
        has_folder = self.robot.name in ROBOTS
        self.arena = None
        plan: dict[str, Any] = {}
        manoeuvres = Manoeuvres()
        if has_folder:
            kind = registry.robot(self.robot.name)
            self.arena = kind.arena_of(backend)
            plan = kind.plan(self.arena)
            manoeuvres = kind.manoeuvres()
        manoeuvres = getattr(backend, "manoeuvres", manoeuvres)  # a body may name its own

        self.task = task_named(task, self.robot)
        self.action_type = action_type
        self.action_space = spaces.action_space(self.robot, action_type)
        self.observation_space = self.robot.observation_space()  # type: ignore[assignment]
        self._requests = self.robot.requests.copy()
        self._requests.flags.writeable = False

        self.render_mode = render_mode
        picture = spaces.picture(self.robot, plan)
        self.display = Display(self.robot, render_mode, picture, is_drawable=has_folder)

        # Imported here, because they load a compiler
        from horde_env.observer import BatteryMonitor, Observer

        self.battery = BatteryMonitor(self.robot)
        self._observer = Observer(self.robot, self.battery)
        monitor_type = getattr(backend, "command_monitor", NoCommandMonitor)
        self.command_monitor: CommandMonitor = monitor_type(self.robot)
        self.manoeuvres = ManoeuvreRunner(self.robot, backend, manoeuvres, self.arena)
        self._snapshots = Snapshots(backend, (self.battery, self.command_monitor))
        # A simulated robot stands still while the computer is suspended
        self._moves_alone = not isinstance(backend, Restorable)

        # Of this instance: class-level metadata would be shared by environments of other robots.
        self.metadata = {  # type: ignore[misc]
            **spaces.robot_metadata(self.robot, action_type, self.display.modes),
            **spaces.body_metadata(backend),
            "manoeuvres": self.manoeuvres.names,
            "picture": picture,
        }

        self._frame: Frame | None = None
        self._observation: Observation = np.zeros(self.robot.n_channels, np.float32)
        self._overrun_s = 0.0  # how late the newest frame came

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode: restart the body, or drive from its position with `options={"manoeuvre": name}`.

        "centre" drives to the middle (2 s at most; with a seed, or in a first reset, from a new
        start). "dock" drives to the dock (60 s at most), charges until the batteries are full or
        for `charge_s` seconds, and backs off; info has `docked` 1 if it did. "stay" does nothing.
        `metadata["manoeuvres"]` names what the body can do. A physical body cannot be placed: a
        reset without options drives it to the middle.

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
        # Before the body: a display that refuses must not leave a robot running
        self.display.open()
        self.manoeuvres.clear()
        self.fault = None
        frame = self._frame
        if frame is None or frame.last or manoeuvre in (None, "stay") or seed is not None:
            frame = self._start()
        if manoeuvre is None and not getattr(self.backend, "can_be_placed", True):
            manoeuvre = "centre"
        self._overrun_s = 0.0
        self._observe(frame)

        manoeuvre_info = self.manoeuvres.no_manoeuvre_info
        if manoeuvre in ("centre", "dock"):
            start = Observed(frame, self._observation)
            frame, manoeuvre_info = self._drive(manoeuvre, start, charge_s)
        self.display.show(frame)
        return self._observation, self._info(frame) | {"gap": 1, **manoeuvre_info}

    def _start(self) -> Frame:
        """Restart the body; until it has answered no step is possible."""
        self._frame = None
        self.display.clear()
        # The first of each compiles, or makes a table: not within a period.
        self._observer.prepare()
        self.command_monitor.forget()
        self.manoeuvres.prepare()
        self.clock.start()
        frame = self.backend.reset(self.np_random)
        # A recording has further notes after it was read.
        self.metadata["notes"] = list(getattr(self.backend, "notes", ()))
        return frame

    def _drive(self, manoeuvre: str, start: Observed, charge_s: float) -> Finished:
        """Run a manoeuvre; the body may be lost meanwhile, see `reset`."""
        if manoeuvre == "centre":
            return self.manoeuvres.centre(start, self._exchange)
        return self.manoeuvres.dock(
            start, self._exchange, charge_s=charge_s, describe_battery=lambda: self.battery.finding
        )

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Send the action's request at once, let one period pass, and return what the body then senses.

        A body that stops answering, or a recorded life at its end, truncates the episode with its
        last observation.

        Raises:
            ValueError: If the action is not one of the action space; nothing was sent.
            gymnasium.error.ResetNeeded: Before the first reset, after `close`, and after a lost
                body.
        """
        newest = self._frame
        if newest is None:
            raise ResetNeeded("this environment has no running body: call reset() before step()")
        if self.action_type == "discrete":
            request = spaces.discrete_request(action, self._requests)
        else:
            request = spaces.velocity_request(action, self.robot.largest_request)
        if newest.last:
            return self._truncated(newest)
        previous = self._observation
        try:
            frame, observation = self._exchange(request)
        except BackendLost as lost:
            _log.error("%s The episode ends here, and the next reset connects once more.", lost)
            return self._truncated(newest)
        reward = 0.0
        if self.task is not no_task:
            reward = float(self.task(previous, request, observation, self.robot))
        if self.render_mode is not None:
            self.display.show(frame)
        return observation, reward, False, frame.last, self._info(frame)

    def _truncated(self, frame: Frame) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Return the step after the last `frame`: the body is lost, or its recording has ended."""
        self._observer.n_clipped = 0
        self._overrun_s = 0.0
        return self._observation, 0.0, False, True, self._info(frame) | NO_FRAME_INFO

    def _exchange(self, request: Floats) -> Observed:
        """Hold `request` (m/s, m/s, rad/s; shape (3,)) for one period and return what the body then senses."""
        self.clock.begin()
        try:
            frame = self.backend.exchange(request)
        except BackendLost as lost:
            self.fault = lost
            self._frame = None
            raise
        self._overrun_s = self.clock.wait()
        if self._moves_alone and self.clock.was_suspended():
            _log.warning("this computer was suspended: the frame after it is a gap")
            frame = replace(frame, gap=True)
        previous_complaint = self.command_monitor.complaint
        complaint = self.command_monitor.judge(request, frame)
        if complaint != previous_complaint:
            _log.warning("%s", complaint or "the robot follows its commands again")
        if complaint:
            frame = replace(frame, applied=False)
        return Observed(frame, self._observe(frame))

    def _observe(self, frame: Frame) -> Observation:
        """Make `frame` the newest one, and return its observation."""
        self._frame = frame
        self._observation = self._observer.observe(
            frame.values, applied=frame.applied or frame.stale
        )
        if self.render_mode is not None:
            self.display.follow(frame)
        return self._observation

    def _info(self, frame: Frame) -> dict[str, Any]:
        info = {
            "t": frame.t,
            "sensor_age_s": frame.sensor_age_s,
            "overrun_s": self._overrun_s,
            "crc_errors": frame.crc_errors,
            "stale": int(frame.stale),
            "gap": int(frame.gap),
            "applied": int(frame.applied),
            "clipped": self._observer.n_clipped,
        }
        if self.command_monitor.info_keys:
            info["obeyed"] = int(not self.command_monitor.complaint)
        return {
            **info,
            **self.battery.info(),
            **self.manoeuvres.no_manoeuvre_info,
            **frame.extras,
        }

    @property
    def frame(self) -> Frame | None:
        """The newest frame, in SI units and unclipped; None without a running body."""
        return self._frame

    @property
    def disobedience(self) -> str:
        """How frames show that the body does not follow its commands, in one or two sentences; "" while it does."""
        return self.command_monitor.complaint

    @property
    def manoeuvre_frames(self) -> list[Frame]:
        """The frames of the last reset's manoeuvre, in order; while charging, which may take hours, one in 60 s."""
        return self.manoeuvres.frames

    @property
    def manoeuvre_observations(self) -> list[Observation]:
        """The scaled observations of `manoeuvre_frames`, in the same order."""
        return self.manoeuvres.observations

    @property
    def manoeuvre_at(self) -> list[int]:
        """The number of each frame's step among the `manoeuvre_steps`, from 1."""
        return self.manoeuvres.step_numbers

    @property
    def info_keys(self) -> tuple[InfoKey, ...]:
        """The keys of `info`, with their units and meanings; a recording has the last ones only if it recorded them."""
        return (
            *FRAME_KEYS,
            *self.command_monitor.info_keys,
            *self.battery.info_keys,
            *self.manoeuvres.info_keys,
            *getattr(self.backend, "info_keys", ()),
        )

    def save_state(self) -> State:
        """Return all state that future steps depend on. Call it between two steps.

        Raises:
            ValueError: If this body cannot be saved (`metadata["restorable"]`).
            gymnasium.error.ResetNeeded: Before the first reset.
        """
        self._snapshots.restorable_body()  # refuses before it asks for a reset
        if self._frame is None:
            raise ResetNeeded("there is no state to save yet: call reset() before save_state()")
        return self._snapshots.save(self._frame, self._observation, self.np_random)

    def restore_state(self, state: State) -> None:
        """Restore a state of `save_state`, in any process: the same steps then give the same bits.

        Raises:
            ValueError: If this body cannot be restored.
            gymnasium.error.ResetNeeded: Before the first reset, which opens the body.
        """
        self._snapshots.restorable_body()
        if self._frame is None:
            raise ResetNeeded(
                "there is no body to restore yet: call reset() before restore_state()"
            )
        self._frame, self._observation = self._snapshots.restore(state, self.np_random)
        self.display.clear()

    def end_manoeuvre(self) -> None:
        """Ask a drive, or a stay at the dock, that is under way in `reset` to end early; safe in a signal handler."""
        self.manoeuvres.end()

    def emergency_stop(self, reason: str) -> bool:
        """Stop the body until a person clears it (`horde-robot stop --clear`); return whether it can be stopped so.

        Any thread may call this. `metadata["stop_options"]` are the options of the command
        `horde-robot stop` that does the same from another process, by name: robot, backend, port
        and perhaps parity. It is empty if there is none.
        """
        stop = getattr(self.backend, "emergency_stop", None)
        return stop is not None and bool(stop(reason))

    def wait_for_rest(self, limit_s: float) -> bool:
        """Wait until the body reports that its wheels are at rest; return whether it did within `limit_s` seconds.

        Any thread may call this, after `emergency_stop`. True at once for a body that reports
        nothing between steps.
        """
        wait = getattr(self.backend, "wait_for_rest", None)
        return wait is None or bool(wait(limit_s))

    def render(self) -> Any:
        """Return a top view as uint8 (480, 720, 3), show it in "human" mode, or return None without a render mode.

        Raises:
            gymnasium.error.ResetNeeded: Before the first reset.
        """
        return self.display.render(self._frame)

    def close(self) -> None:
        """Stop the motors, close the body and the window. Closing twice does nothing."""
        self._frame = None
        try:
            self.backend.close()  # first of all: it stops the motors
        finally:
            self.display.close()


PenEnv = RobotEnv
"""The earlier name of RobotEnv."""
