"""A life: environment and Horde at a fixed period, acting before learning.

For the observation o_t the loop chooses a_t, passes the learning of (o_{t-1}, a_{t-1}, o_t) to a worker thread, and
calls `env.step(a_t)`. The worker's kernels run while the step waits, and are joined before the next observation is
encoded, so the time from observation to action does not depend on the number of demons. A `ProcessEnv` needs no
worker: it moves in its own process while this one learns. With `InPlace` the job is done before the step.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, SupportsFloat

import gymnasium
import numpy as np

from horde_agent.cluster import AnyHorde
from horde_agent.gvf import GVF, named
from horde_agent.interface import Interface
from horde_agent.learning.layout import NEWCOMER
from horde_agent.life.excursions import Choice, DockingConfig, Dockings, ExcursionConfig, Excursions
from horde_agent.life.flags import flags_of, is_broken, is_unfit
from horde_agent.life.process_env import ProcessEnv
from horde_agent.life.robot import UNKNOWN_POSE, RobotBody, RobotInfo
from horde_agent.life.student import Student, check_questions
from horde_agent.life.timing import LATE_S, Durations
from horde_agent.life.worker import Job, Worker, one_core_spared
from horde_agent.measures.returns import PolicyUnderTest
from horde_agent.policies import BehaviourPolicy
from horde_agent.record import NO_ACTION, Flag, Observation, Phase, Recorder, Row
from horde_agent.saving import (
    State,
    attributes,
    generator_state,
    inner,
    nested,
    put_back,
    restore_generator,
)
from horde_agent.types import Integers, Tiles, can_be_called, generator, whole_number

__all__ = ["BodyDisobeys", "Life", "LifeHooks", "Observer", "StepEvent"]

PATIENCE_S = 60.0  # without an applied action

Result = tuple[Any, SupportsFloat, bool, bool, Mapping[str, Any]]
"""Observation, reward, terminated, truncated, info."""

_STATE = (
    *("steps", "gaps", "crc_errors", "deadlines_missed", "n_clipped", "t", "n_not_applied", "_n_not_applied_in_a_row"),
    *("link_losses", "s_without_link", "_has_begun", "_flags", "_is_observed"),
)
_LONGEST_DRIVE = 40  # steps; most drives to the centre are much shorter

_log = logging.getLogger(__name__)


class BodyDisobeys(RuntimeError):
    """The robot is connected, but has applied no action for `PATIENCE_S`, for the reason `why`, if it reports one."""

    def __init__(self, steps: int, why: str) -> None:
        why = why or (
            "the body reports `obeyed` = 0. Check the wire that carries its commands, and whether another program "
            "drives it."
        )
        super().__init__(f"the life ends after {steps} steps, {PATIENCE_S:g} s after the last learning: {why}")


class StepEvent(NamedTuple):
    """What an observer receives after each step. Arrays are not copied: copy what you keep."""

    row: Row  # the observation, the action taken there, and how the observation came about
    life: Life  # the life: counts, the student with its predictions and scores, the Horde. Learning has been joined


class LifeHooks:
    """Methods that a life calls in each of its `observers`; a subclass overrides some of them.

    An observer may also be a function: it is called after each step.
    """

    def before_step(self, life: Life) -> None:
        """Called before each choice of what to do next; learning has been joined, so `life.state()` is complete."""

    def after_step(self, event: StepEvent) -> None:
        """Called after each row of the record."""

    def rearrange(self, old_index: Integers) -> None:
        """Called after demons were added or removed.

        Args:
            old_index: Former position of each demon, negative if it is new, shape (n_demons,).
        """

    def at_end(self, life: Life) -> None:
        """Called at the end of `Life.run`, before the last observation is learned from."""


Observer = LifeHooks | Callable[[StepEvent], None]


class Life:
    """One robot's life: behaves, learns, runs test excursions, and docks when its battery is low.

    Args:
        env: Any Gymnasium environment with a flat Box observation and Discrete actions. `horde_agent.life.robot` lists
            what else a robot may offer. Test excursions run if it can drive to the centre.
        horde: Learns and predicts.
        behaviour: Chooses the actions and their probabilities: `StickyRandom`, `Follow(policy)`, or any object with
            `draw(rng, observation, tiles)`, which returns an action and its probability b, and `forget()`.
        rng: Source of the behaviour, of the excursions and of the environment's seed: same seed, same life.
        interface: Channels, actions and tile coder; read from the environment when None.
        excursions: When excursions begin and how long they last.
        docking: What to do when docking does not help.
        recorder: Records every observation and action; None records nothing.
        observers: Functions called after each step, or `LifeHooks`.
        worker: Learns while the robot moves; None starts a thread. Not used with a `ProcessEnv`.

    Attributes:
        steps: Number of periods (100 ms on the robots), excursions and drives included.
        gaps, crc_errors, deadlines_missed, n_clipped: Faults of the robot so far; drives are no faults.
        t: Robot time of the latest observation in seconds; NaN if the robot has no clock.
        n_not_applied: Steps in which the action was not applied (safety stop, charging).
        link_losses, s_without_link: Number of losses of the link, and their total duration in seconds; None if the
            robot does not report them.
        cycle_s: Durations of the cycles, step and learning included, in seconds.
        sensor_age_s, overrun_s: Age of the newest packet when it was used, and lateness of each step, in seconds;
            empty if the robot does not report them.
        body: What the robot offers beyond Gymnasium's methods.
        student: Learns, predicts and scores; `student.errors` holds the NMSRE.
        dockings: When the life docks, and how often it did.
        is_cut: Whether the latest drive was cut short, by the end of the run or by `stop`.
        is_out_of_battery: Whether the life stopped because docking did not charge the battery.

    Raises:
        ValueError: If an argument is invalid, or the Horde, the behaviour and the environment do not fit together.

    Example:
        >>> import gymnasium
        >>> from horde_agent.horde import Horde
        >>> from horde_agent.policies import StickyRandom
        >>> from horde_agent.questions import nexting
        >>> env = gymnasium.make("CartPole-v1")
        >>> interface = Interface.of(env)
        >>> horde = Horde(
        ...     nexting(interface), n_features=interface.coder.n_features, n_active=interface.coder.n_active
        ... )
        >>> with Life(env, horde, StickyRandom(2), np.random.default_rng(0)) as life:
        ...     life.run(50)
        >>> life.steps
        50
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        horde: AnyHorde,
        behaviour: BehaviourPolicy,
        rng: np.random.Generator,
        *,
        interface: Interface | None = None,
        excursions: ExcursionConfig | None = None,
        docking: DockingConfig | None = None,
        recorder: Recorder | None = None,
        observers: Sequence[Observer] = (),
        worker: Worker | None = None,
    ) -> None:
        self.env, self.horde, self.behaviour, self.rng = env, horde, behaviour, generator(rng)
        self.interface = interface or Interface.of(env)
        _check_behaviour(behaviour, len(self.interface.actions))
        self.body = RobotBody(env)
        self.student = Student(horde, self.interface, excursions)
        self.excursions = Excursions(self._excursion_policies(), excursions)
        self.dockings = Dockings(docking or DockingConfig(), self.interface.period_s, can_dock=self.body.can_dock)
        self.recorder, self.observers = recorder, list(observers)
        self.robot = 0  # its number, for the record
        self.steps = self.gaps = self.crc_errors = self.deadlines_missed = self.n_clipped = 0
        self.t = np.nan
        self.n_not_applied = self._n_not_applied_in_a_row = 0
        self.link_losses: int | None = None
        self.s_without_link: float | None = None
        self.cycle_s, self.sensor_age_s, self.overrun_s = Durations(), Durations(), Durations()
        self._process_env = env if isinstance(env, ProcessEnv) else None
        self._worker = None if self._process_env else worker or Worker()
        self._has_begun = self._is_closed = self._is_stopped = self.is_cut = self.is_out_of_battery = False
        self._observation: Observation = np.zeros(0, dtype=np.float32)
        self._flags = int(Flag.NONE)
        self._pose = UNKNOWN_POSE
        self._tiles: Tiles | None = None  # of the current observation, once it was encoded
        self._is_observed = False  # by the student
        self._awaits_reply = False  # the current observation has its row, and the next one has not arrived
        self._end = sys.maxsize  # the step at which the run ends
        self._unknown = np.full(len(self.interface.channels), np.nan, dtype=np.float32)

    def _excursion_policies(self) -> list[PolicyUnderTest]:
        return [p for p in self.student.errors.policies if self.body.can_drive and not p.is_behaviour]

    def state(self) -> State:
        """Return everything that this life's future depends on: between two steps, or in `before_step`.

        Without the robot's own state if it is not restorable: such a life resumes with a gap.
        """
        return nested(student=self.student.state()) | self._state_of_robot()

    def _state_of_robot(self) -> State:
        """Return the state without the student's."""
        behaviour: State = getattr(self.behaviour, "state", dict)()
        now = {
            "observation": self._observation.copy(),
            "pose": np.array(self._pose),
            "tiles": np.zeros(0) if self._tiles is None else self._tiles.copy(),
        }
        return nested(
            excursions=self.excursions.state(),
            dockings=self.dockings.state(),
            behaviour=behaviour,
            now=now,
            own=attributes(self, *_STATE),
            world=self.body.save_state() if self.body.is_restorable and self._has_begun else {},
            rng=generator_state(self.rng),
        )

    def restore(self, state: State) -> None:
        """Continue from what `state` returned, in a new life with the same arguments.

        A restorable robot is opened and restored; with any other the life continues after a gap, in `begin`.
        """
        assert not self._has_begun, "a life that has begun cannot be restored"
        self.student.restore(inner(state, "student"))
        self._restore_robot(state)

    def _restore_robot(self, state: State) -> None:
        """Restore the state without the student's."""
        self.excursions.restore(inner(state, "excursions"))
        self.dockings.restore(inner(state, "dockings"))
        restore_behaviour = getattr(self.behaviour, "restore", None)
        if restore_behaviour is not None:
            restore_behaviour(inner(state, "behaviour"))
        put_back(self, inner(state, "own"), *_STATE)
        now, world = inner(state, "now"), inner(state, "world")
        self._observation, self._pose = now["observation"].copy(), tuple(now["pose"].tolist())
        self._tiles = None if now["tiles"].dtype.kind == "f" else now["tiles"].copy()
        if world:
            self.env.reset(seed=0)  # opens the robot; its state is replaced
            self.body.restore_state(world)
        else:
            self.excursions.cancel()
            self._has_begun = False
        restore_generator(self.rng, inner(state, "rng"))  # last: nothing may draw from it after this

    @property
    def is_before_drive(self) -> bool:
        """True if a drive to the centre or the dock is next; it may begin late without harm to learning."""
        is_in_excursion = self.excursions.phase is Phase.EXCURSION
        return self.excursions.is_over(broken=is_broken(self._flags)) or self.dockings.is_due(
            self.steps, in_excursion=is_in_excursion
        )

    @property
    def may_be_cut(self) -> bool:
        """True if the end of the run may cut short a drive that begins now."""
        return self._end - self.steps <= _LONGEST_DRIVE and self.is_before_drive

    @property
    def is_observed(self) -> bool:
        """True if the student has observed the current observation."""
        return self._is_observed

    def set_position(self, step: int) -> None:
        """Set the step counter from the recording, for a robot that kept moving after the snapshot."""
        self.steps, self._is_observed = step, True

    def begin(self) -> None:
        """Reset the environment for the first observation, unless it was done; `run` calls this."""
        if not self._has_begun:
            self._drive(Phase.CENTRE, seed=int(self.rng.integers(2**31)))
            self._has_begun = True

    def stop(self) -> None:
        """End the life after the current step, and a stay at the dock early; safe in a signal handler."""
        self._is_stopped = True
        self.body.end_manoeuvre()

    def add(self, questions: Sequence[GVF]) -> None:
        """Add questions: between two runs, or in an observer.

        Their demons start with zero weights; they learn from the next transition on, are scored from now on, and their
        policies are tested. Everything else continues: the other demons' weights and scores, an excursion that is
        under way, the record and the observers. It takes about as long as making the Horde: choose a moment at which a
        real robot can wait.

        Raises:
            ValueError: If a name is taken, or a question does not fit the others or the body; nothing has changed.
        """
        new = named(questions, self.interface.names)
        check_questions(new, self.interface)
        before = self.horde.names
        self.horde.add(new)
        self._rearrange(before)

    def remove(self, names: Sequence[str]) -> None:
        """Remove questions, when `add` may be called; an excursion under way continues for the others.

        Raises:
            ValueError: If a name is unknown, no demon would be left, or another demon or the tile coder needs the
                prediction of one of them; nothing has changed.
        """
        names = names if isinstance(names, str) else list(names)
        feedback = self.interface.feedback
        fed_back = [] if feedback is None else [name for name in feedback.names if name in names]
        if fed_back:
            raise ValueError(f"the prediction of {fed_back[0]!r} is fed back as a feature; it cannot be removed")
        before = self.horde.names
        self.horde.remove(names)
        self._rearrange(before)

    def _rearrange(self, before: Sequence[str]) -> None:
        index = {name: i for i, name in enumerate(before)}
        old_index = np.array([index.get(name, NEWCOMER) for name in self.horde.names], dtype=np.int64)
        self.student.rearrange(old_index)
        self.excursions.rearrange(self._excursion_policies())
        self._notify("rearrange", old_index)

    def _notify(self, hook: str, argument: Any) -> None:
        for observer in self.observers:
            if isinstance(observer, LifeHooks):
                getattr(observer, hook)(argument)

    @property
    def is_stopped(self) -> bool:
        """True after `stop` was called, or docking failed too often."""
        return self._is_stopped

    def run(self, steps: int) -> None:
        """Live for a number of periods, excursions and drives included; call it again to continue.

        A drive that is under way at the end is finished, but what exceeds `steps` is not counted.

        Raises:
            ValueError: If `steps` is not a whole number from 0 on.
            BodyDisobeys: If the robot applied no action for a minute.
        """
        steps = whole_number("steps", steps, 0)
        self.begin()
        self._end = self.steps + steps
        with one_core_spared() if self._process_env else nullcontext():
            self._live()
        self._notify("at_end", self)
        self._observe()

    def _live(self) -> None:
        n_observers, before_step = -1, []
        while self.steps < self._end and not self._is_stopped:
            self._take_turn()
            if len(self.observers) != n_observers:  # at first, and when an observer has added another
                n_observers = len(self.observers)
                before_step = [o.before_step for o in self.observers if isinstance(o, LifeHooks)]
            for call in before_step:
                call(self)
            if self.dockings.is_due(self.steps, in_excursion=self.excursions.phase is Phase.EXCURSION):
                self._dock()
                continue
            began = time.perf_counter()
            choice = self._choose()
            if choice.phase is Phase.CENTRE:
                self._depart(choice)
                self._drive(Phase.CENTRE, {"manoeuvre": "centre"})
            else:
                self._step(choice)
                self.cycle_s.add(time.perf_counter() - began)

    def _take_turn(self) -> None:
        """Select the robot whose turn it is; see `Robots`."""

    def _choose(self) -> Choice:
        exact, tiles = self._observation.astype(np.float64), self._encode()  # float64, as for questions' functions
        broken, unfit = is_broken(self._flags), is_unfit(self._flags)
        return self.excursions.choose(self.behaviour, self.rng, exact, tiles.copy(), broken=broken, is_unfit=unfit)

    def _step(self, choice: Choice) -> None:
        """Act, learn from the step before meanwhile, and take the next observation."""
        if self._process_env is not None:  # first: the other process is idle until then
            self._process_env.send(choice.action)
        row = self._row(choice)
        observation, flags, tiles, is_observed = self._observation, self._flags, self._tiles, self._is_observed

        def learn() -> None:
            if not is_observed:
                self.student.observe(observation, flags, tiles)
            self.student.set_action(choice.phase, choice.action, choice.b, row.step, choice.policy)

        self._is_observed = True
        result = self._step_and_learn(choice.action, learn, row)
        self.steps += 1
        self._take_step(*result)

    def _step_and_learn(self, action: int, learn: Job, row: Row) -> Result:
        """Learn while the robot moves, write the row, and return the result of the step."""
        if self._process_env is not None:
            learn()
            self._write(row)
            self._awaits_reply = True
            received = self._process_env.receive()
            self._awaits_reply = False
            return received
        assert self._worker is not None
        self._worker.start(learn)
        try:
            result = self.env.step(action)
        finally:
            self._worker.join()
        self._write(row)
        return result

    def _take_step(
        self, observation: Any, _reward: SupportsFloat, terminated: bool, truncated: bool, info: Mapping[str, Any]
    ) -> None:
        """Take the result of a step; after the end of an episode, begin the next one."""
        known = RobotInfo.of(info)
        self._take(observation, known, flags_of(known, terminated=terminated, truncated=truncated))
        if known.overrun_s is not None:
            self.overrun_s.add(known.overrun_s)
            self.deadlines_missed += known.overrun_s > LATE_S
        if known.sensor_age_s is not None:
            self.sensor_age_s.add(known.sensor_age_s)
        if self._flags & Flag.GAP:
            self.gaps += 1
        if self._flags & Flag.NOT_APPLIED:
            self.n_not_applied += 1
        self._check_obedience(known)
        if terminated or truncated:
            self._depart(Choice(Phase.END, NO_ACTION, np.nan))
            self.excursions.cancel()
            self._drive(Phase.CENTRE)

    def _check_obedience(self, info: RobotInfo) -> None:
        """Raise `BodyDisobeys` after `PATIENCE_S` without an applied action, or log that learning was paused."""
        self._n_not_applied_in_a_row = self._n_not_applied_in_a_row + 1 if self._flags & Flag.NOT_APPLIED else 0
        patience = round(PATIENCE_S / self.interface.period_s)
        if self._n_not_applied_in_a_row >= patience and not info.obeyed:
            raise BodyDisobeys(self.steps, self.body.disobedience)
        if self._n_not_applied_in_a_row == patience:
            _log.warning("no action was applied for %g s; learning was paused", PATIENCE_S)

    def _dock(self) -> None:
        """Go to the dock and charge until the end of the run at most; stop the life if docking keeps failing."""
        self._depart(Choice(Phase.DOCK, NO_ACTION, np.nan))
        self.excursions.cancel()
        left_s = (self._end - self.steps) * self.interface.period_s
        self._drive(Phase.DOCK, {"manoeuvre": "dock", "charge_s": left_s})
        if self.steps < self._end:  # a stay that the end of the run cut short says nothing about the dock
            self.dockings.return_at(self.steps)
        if self.dockings.has_failed:
            _log.warning("%s", self.dockings.failure(self.steps))
            self._is_stopped = self.is_out_of_battery = True

    def _drive(self, phase: Phase, options: dict[str, Any] | None = None, seed: int | None = None) -> None:
        """Reset; the frames of the robot's drive count as steps, up to the end of the run, but nothing is learned.

        A real robot drives in every reset, one that can be placed only if the options say so.
        """
        before = self.steps
        observation, info = self.env.reset(seed=seed, options=options)
        known = RobotInfo.of(info)
        self._take(observation, known, flags_of(known, begins=True))
        n_steps = self.body.n_drive_frames if known.manoeuvre_steps is None else known.manoeuvre_steps
        self.steps = min(self._end, before + n_steps)
        self.is_cut = before + n_steps > self._end or (self._is_stopped and options is not None)
        if self._is_stopped and self.body.is_restorable:
            return  # the drive may have been ended early, and is repeated when the life is resumed
        for frame in [*self.body.drive_frames()][:-1]:
            self.crc_errors += frame.info.crc_errors
            self._count_losses(frame.info)
            step = before + frame.at
            if step < self.steps and self.recorder is not None:
                observed = np.array(frame.observation, dtype=np.float32)
                if observed.shape != self._unknown.shape:  # not recorded, or changed by a wrapper
                    observed = self._unknown
                flags, pose = flags_of(frame.info), frame.info.pose
                row = Row(step, frame.info.t, observed, NO_ACTION, np.nan, phase, flags, pose, robot=self.robot)
                self.recorder.write(row)

    def _take(self, observation: Any, info: RobotInfo, flags: int) -> None:
        """Make an observation the current one, not yet observed by the student."""
        self._observation = np.array(observation, dtype=np.float32)
        self._flags, self._tiles, self._is_observed = flags, None, False
        self.crc_errors += info.crc_errors
        self._count_losses(info)
        self.n_clipped += info.clipped
        self.t, self._pose = info.t, info.pose
        self.dockings.update(info)

    def _count_losses(self, info: RobotInfo) -> None:
        if info.link_losses is not None and info.s_without_link is not None:
            self.link_losses = (self.link_losses or 0) + info.link_losses
            self.s_without_link = (self.s_without_link or 0.0) + info.s_without_link

    def _encode(self) -> Tiles:
        """Return the tiles of the current observation; learning has been joined."""
        if self._tiles is None:
            self._tiles = self.student.encode(self._observation, self._flags)
        return self._tiles

    def _observe(self) -> None:
        """Learn from the current observation now, in this thread."""
        if not self._is_observed:
            self.student.observe(self._observation, self._flags, self._encode())
            self._is_observed = True

    def _depart(self, choice: Choice) -> None:
        """Leave the current observation without an action."""
        self._observe()
        row = self._row(choice)
        self.student.set_action(choice.phase, choice.action, choice.b, row.step)
        self._write(row)

    def _row(self, choice: Choice) -> Row:
        phase, action, b, policy = choice
        return Row(self.steps, self.t, self._observation, action, b, phase, self._flags, self._pose, policy, self.robot)

    def _write(self, row: Row) -> None:
        """Record a row and call `after_step`."""
        if self.recorder is not None:
            self.recorder.write(row)
        event = StepEvent(row, self)
        for observer in self.observers:
            if isinstance(observer, LifeHooks):
                observer.after_step(event)
            else:
                observer(event)

    def close(self) -> None:
        """End the life: learn from the last observation, record it, and end the thread. The env stays open."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._has_begun and not self._awaits_reply:
                self._depart(Choice(Phase.END, NO_ACTION, np.nan))
        finally:
            if self._worker is not None:
                self._worker.close()
            try:
                if self.recorder is not None:
                    self.recorder.close()
            finally:
                self.student.errors.close()

    def __enter__(self) -> Life:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_behaviour(behaviour: object, n_actions: int) -> None:
    """Refuse what cannot be a behaviour policy."""
    draw, forget = getattr(behaviour, "draw", None), getattr(behaviour, "forget", None)
    if not callable(draw) or not callable(forget) or isinstance(behaviour, type):
        raise ValueError(
            f"behaviour must have draw(rng, observation, tiles) and forget(), not be {behaviour!r}; Follow(policy) "
            f"makes one of a policy"
        )
    if not can_be_called(draw, 3):
        raise ValueError(
            f"draw of the behaviour {type(behaviour).__name__} must take (rng, observation, tiles), and return an "
            f"action and its probability"
        )
    n_drawn = getattr(behaviour, "n_actions", n_actions)
    if n_drawn != n_actions:
        raise ValueError(f"the behaviour chooses among {n_drawn} actions, but the body has {n_actions}")
