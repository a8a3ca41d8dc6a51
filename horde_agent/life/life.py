"""A life: environment and Horde at a fixed period, acting before learning.

For the observation o_t the loop chooses a_t, passes the learning of (o_{t-1}, a_{t-1}, o_t) to a
worker thread, calls `env.step(a_t)`, and joins the worker: the time from observation to action does
not depend on the number of demons. Few demons of a robot that is not physical learn in the same
thread, before the step.

Several robots share a Horde and take turns, each with its own body, behaviour and random numbers. A
robot behaves and learns for TURN steps, then the next one continues where it stopped, in a fixed
order. An excursion and the drive after it belong to one turn. So the recording is the sequence of
all transitions in the order in which they are learned from, and learning from it again gives the
same weights, to the bit.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from horde_agent.gvf import GVF
from horde_agent.interface import Interface
from horde_agent.learner import Learner
from horde_agent.life.counts import Durations, RobotCounts, RobotInfo, UnfitResult
from horde_agent.life.excursions import (
    Choice,
    DockingConfig,
    Dockings,
    ExcursionConfig,
    Excursions,
)
from horde_agent.life.learner import StreamLearner
from horde_agent.life.robot import RobotBody
from horde_agent.life.robot_stream import BodyDisobeys, RobotStream
from horde_agent.life.worker import Worker, worker_for
from horde_agent.parametric import Gaussian
from horde_agent.policies import BehaviourPolicy
from horde_agent.record import NO_ACTION, Flag, Phase, Recorder, Row
from horde_agent.refusals import whole_number
from horde_agent.saving import State, attributes, inner, nested, put_back
from horde_agent.scoring.returns import PolicyUnderTest
from horde_agent.types import Integers, RNGLike, Tiles

__all__ = ["BodyDisobeys", "Life", "LifeHooks", "Observer", "StepEvent"]

TURN = 128  # steps; a change of robots takes about 3 ms of processor time for 795 questions
_TURNS = ("robot", "_steps_of", "_turn_began")
_LONGEST_DRIVE = 40  # steps; most drives to the centre are much shorter
_N_RESULTS = 5  # of a step

_log = logging.getLogger(__name__)


class StepEvent(NamedTuple):
    """What an observer receives after each step. Arrays are not copied: copy what you keep."""

    row: Row  # the observation, the action taken there, and how the observation came about
    # The life: counts, the student with its predictions and scores, the Horde. Learning has been
    # joined
    life: Life


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
    """A robot's life: behaves, learns, runs test excursions, and docks when its battery is low; see `add_robot`.

    Args:
        env: Any Gymnasium environment with a flat Box observation and Discrete actions.
            `horde_agent.life.robot` lists what else a robot may offer, `life.counts.RobotInfo` what
            it may report in `info`. Test excursions run if it can drive to the centre, or if
            `excursions` says `without_drive`.
        horde: Learns and predicts.
        behaviour: Chooses the actions and their probabilities: `StickyRandom`, `Follow(policy)`, or
            any object with `draw(rng, observation, tiles)`, which returns an action and its
            probability b, and `forget()`.
        rng: Source of the behaviour, of the excursions and of the environment's seed: same seed,
            same life. A Generator, or what `numpy.random.default_rng` takes.
        interface: Channels, actions and tile coder; read from the environment when None.
        excursions: When excursions begin and how long they last, and whether they are made also
            without a drive.
        docking: What to do when docking does not help.
        recorder: Records every observation and action; None records nothing.
        observers: Functions called after each step, or `LifeHooks`.
        worker: Learns while the robot moves; None makes one if `worker_for` says so. A physical
            robot is one with "stop_options": pass `Worker()` for another one that moves in real
            time.
        unix_clock: Returns the seconds since 1970, for the record; nothing else depends on it. None
            leaves them unknown.

    Attributes:
        steps: Number of periods (100 ms on the robots), excursions and drives included.
        t: Robot time of the latest observation in seconds; NaN if the robot has no clock.
        cycle_s: Durations of the cycles, step and learning included, in seconds.
        counts: Steps, faults, ages and lateness of all robots of the life: `RobotCounts`.
        robots: The robot, or several that take turns.
        robot: Number of the robot whose turn it is, from 0.
        robot_stream: The robot whose turn it is. `env`, `behaviour`, `rng`, `body`, `excursions`,
            `dockings` and `t` are its own.
        body: What the robot offers beyond Gymnasium's methods.
        student: Learns, predicts and scores; `student.errors` holds the NMSRE.
        excursions: When the life tests a target policy, and which.
        dockings: When the life docks, and how often it did.
        is_stopped: Whether `stop` was called, or docking failed too often.
        is_cut: Whether the latest drive was cut short, by the end of the run or by `stop`.
        is_out_of_battery: Whether the life stopped because docking did not charge the battery.

    Raises:
        ValueError: If an argument is invalid, or the Horde, the behaviour and the environment do
            not fit together.

    Examples:
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
        horde: Learner,
        behaviour: BehaviourPolicy,
        rng: RNGLike,
        *,
        interface: Interface | None = None,
        excursions: ExcursionConfig | None = None,
        docking: DockingConfig | None = None,
        recorder: Recorder | None = None,
        observers: Sequence[Observer] = (),
        worker: Worker | None = None,
        unix_clock: Callable[[], float] | None = None,
    ) -> None:
        self.interface = interface or Interface.of(env)
        self.counts = RobotCounts()
        self._excursion_config = excursions
        self._docking_config = docking
        self.horde = horde
        self.student = StreamLearner(horde, self.interface, excursions)
        self.robots: list[RobotStream] = []
        # In finished turns
        self._steps_of: Integers = np.zeros(0, dtype=np.int64)
        self._turn_began = 0
        self.add_robot(env, behaviour, rng)
        self.robot_stream = self.robots[0]
        self.recorder = recorder
        self._unix_clock = unix_clock or _unknown_time
        self.observers = list(observers)
        self.cycle_s = Durations()
        is_physical = bool(self.body.stop_options)
        self._worker = worker or worker_for(horde.n_demons, is_physical=is_physical)
        self._is_closed = False
        self.is_stopped = False
        self.is_cut = False
        self.is_out_of_battery = False
        self._end = sys.maxsize  # the step at which the run ends
        self._unknown = np.full(len(self.interface.channels), np.nan, dtype=np.float32)

    def add_robot(
        self, env: gymnasium.Env[Any, Any], behaviour: BehaviourPolicy, rng: RNGLike
    ) -> None:
        """Add a robot that takes turns with the others, before the life begins.

        Attributes of a single robot, such as `env`, `t` and `dockings`, are those of the robot that
        acts. The Horde learns from all of them: `Horde.select_stream`.

        Args:
            env: An environment of the same kind as the others.
            behaviour: The behaviour of this robot.
            rng: Its random numbers; it begins as a life of one robot with the same numbers.

        Raises:
            ValueError: If the behaviour cannot be one of this robot's.
        """
        robot_stream = RobotStream(
            env,
            behaviour,
            rng,
            interface=self.interface,
            excursions=self._excursion_config,
            docking=self._docking_config,
            counts=self.counts,
            number=len(self.robots),
        )
        self.robots.append(robot_stream)
        self._steps_of = np.append(self._steps_of, 0)
        self._set_excursion_policies()

    def _set_excursion_policies(self) -> None:
        tested_policies = [p for p in self.student.errors.policies if not p.is_behaviour]
        for robot_stream in self.robots:
            excursions = robot_stream.excursions
            if robot_stream.body.can_drive or excursions.config.without_drive:
                refuse_not_followed(tested_policies, self.horde.questions)
                lost_names = robot_stream.body.metadata.get("lost_actions", ())
                lost = [self.interface.actions.index(name) for name in lost_names]
                excursions.rearrange([p for p in tested_policies if not p.may_take(lost)])
            else:
                robot_stream.excursions.rearrange([])

    @property
    def robot(self) -> int:
        """Number of the robot whose turn it is."""
        return self.robot_stream.number

    @robot.setter
    def robot(self, number: int) -> None:
        self.robot_stream = self.robots[number]

    @property
    def env(self) -> gymnasium.Env[Any, Any]:
        """Environment of the robot whose turn it is."""
        return self.robot_stream.env

    @property
    def behaviour(self) -> BehaviourPolicy:
        """Behaviour policy of the robot whose turn it is."""
        return self.robot_stream.behaviour

    @property
    def rng(self) -> np.random.Generator:
        """Random numbers of the robot whose turn it is."""
        return self.robot_stream.rng

    @property
    def body(self) -> RobotBody:
        """What the robot whose turn it is offers beyond Gymnasium's methods."""
        return self.robot_stream.body

    @property
    def excursions(self) -> Excursions:
        """Test excursions of the robot whose turn it is."""
        return self.robot_stream.excursions

    @property
    def dockings(self) -> Dockings:
        """Dockings of the robot whose turn it is."""
        return self.robot_stream.dockings

    @property
    def t(self) -> float:
        """Time of the robot whose turn it is, in seconds; NaN if it has no clock."""
        return float(self.robot_stream.info_fields["t"])

    @property
    def is_before_drive(self) -> bool:
        """True if a drive to the centre or the dock is next; it may begin late without harm to learning."""
        return self.robot_stream.is_before_drive

    @property
    def steps(self) -> int:
        """Number of periods, excursions and drives included."""
        return self.counts.steps

    @property
    def steps_of(self) -> Integers:
        """Steps of each robot so far, shape (n_robots,)."""
        steps_of = self._steps_of.copy()
        steps_of[self.robot] += self.steps - self._turn_began
        return steps_of

    def state(self) -> State:
        """Return everything that this life's future depends on: between two steps, or in `before_step`.

        Without the robot's own state if it is not restorable: such a life resumes with a gap.
        """
        life_state = nested(student=self.student.state()) | self.robot_stream.state()
        if len(self.robots) == 1:
            return life_state
        other_states = {f"robot{robot.number}": robot.state() for robot in self._other_robots()}
        return life_state | nested(turns=attributes(self, *_TURNS), **other_states)

    def restore(self, state: State) -> None:
        """Continue from what `state` returned, in a new life with the same arguments.

        A restorable robot is opened and restored; with any other the life continues after a gap, in
        `begin`. The random numbers continue from those of the state, so another life with such a
        robot and the same state repeats them: `draw_from` others.
        """
        if len(self.robots) > 1:
            put_back(self, inner(state, "turns"), *_TURNS)
        for robot in self._other_robots():
            robot.restore(inner(state, f"robot{robot.number}"))
        robot_stream = self.robot_stream
        assert not robot_stream.has_begun, "a life that has begun cannot be restored"
        self.student.restore(inner(state, "student"))
        robot_stream.restore(state)
        robot_stream.unix_s = self._unix_clock()

    def _other_robots(self) -> list[RobotStream]:
        return [robot for robot in self.robots if robot is not self.robot_stream]

    def set_position(self, step: int, t: float) -> None:
        """Set step and robot time, in s, from the recording, for a robot that kept moving after the snapshot."""
        self.counts.steps = step
        self.robot_stream.info_fields["t"] = t

    def draw_from(self, rngs: Sequence[np.random.Generator]) -> None:
        """Continue a robot that cannot be restored after a gap, in `begin`, with other random numbers.

        Args:
            rngs: The random numbers of each robot of this life.
        """
        for robot_stream, rng in zip(self.robots, rngs, strict=True):
            robot_stream.rng = rng
        self.robot_stream.is_resumed = True

    @property
    def may_be_cut(self) -> bool:
        """True if the end of the run may cut short a drive that begins now."""
        return self._end - self.steps <= _LONGEST_DRIVE and self.is_before_drive

    def begin(self) -> None:
        """Reset the environment for the first observation, unless it was done; `run` calls this."""
        robot_stream = self.robot_stream
        if not robot_stream.has_begun:
            self._drive(Phase.CENTRE, seed=int(robot_stream.rng.integers(2**31)))
            robot_stream.has_begun = True
            self.student.position.is_observed = False
        if robot_stream.is_resumed:
            robot_stream.is_resumed = False
            robot_stream.flags |= Flag.RESUMED
            self.counts.gaps += 1

    def stop(self) -> None:
        """End the life after the current step, and a stay at the dock early; safe in a signal handler."""
        self.is_stopped = True
        self.body.end_manoeuvre()

    def add(self, questions: Sequence[GVF]) -> None:
        """Add questions: between two runs, or in an observer.

        Their demons start with zero weights; they learn from the next transition on, are scored
        from now on, and their policies are tested. Everything else continues: the other demons'
        weights and scores, an excursion that is under way, the record and the observers. It takes
        about as long as making the Horde: choose a moment at which a real robot can wait.

        Raises:
            ValueError: If a name is taken, or a question does not fit the others or the body;
                nothing has changed.
        """
        self._rearrange(self.student.add(questions))

    def remove(self, names: Sequence[str]) -> None:
        """Remove questions, when `add` may be called; an excursion under way continues for the others.

        Raises:
            ValueError: If a name is unknown, no demon would be left, or another demon or the tile
                coder needs the prediction of one of them; nothing has changed.
        """
        self._rearrange(self.student.remove(names))

    def _rearrange(self, old_index: Integers) -> None:
        self._set_excursion_policies()
        self._notify("rearrange", old_index)

    def _notify(self, hook: str, argument: Any) -> None:
        for observer in self.observers:
            if isinstance(observer, LifeHooks):
                getattr(observer, hook)(argument)

    def __repr__(self) -> str:
        spec = self.env.spec
        if spec is None:
            env = type(self.env.unwrapped).__name__
        else:
            env = spec.id
        facts = [
            f"steps={self.steps}",
            f"learning_steps={self.student.learning_steps}",
            f"gaps={self.counts.gaps}",
            f"env={env}",
            f"behaviour={type(self.behaviour).__name__}",
            f"horde={self.horde!r}",
        ]
        return f"{type(self).__name__}({'; '.join(facts)})"

    def run(self, steps: int) -> None:
        """Live for a number of periods, excursions and drives included; call it again to continue.

        A drive that is under way at the end is finished, but what exceeds `steps` is not counted.
        Nothing is shown meanwhile, also in a notebook: an observer may print `event.life`, or
        `horde_agent.life.observers.Progress` shows what `horde learn` shows.

        Raises:
            ValueError: If `steps` is not a whole number from 0 on.
            BodyDisobeys: If the robot applied no action for a minute.
        """
        steps = whole_number("steps", steps, 0)
        self.begin()
        self._end = self.steps + steps
        self._live()
        self._notify("at_end", self)
        if not self.student.position.is_observed:
            stream = self.robot_stream
            self.student.observe(
                stream.observation, stream.flags, self._encode(), reward=stream.reward
            )

    def _live(self) -> None:
        while self.counts.steps < self._end and not self.is_stopped:
            self._before_step()
            robot_stream = self.robot_stream
            began = time.perf_counter()
            tiles = self._encode()
            choice = robot_stream.choose(tiles, self.student.position.held.latest)
            if choice.phase is Phase.DOCK:
                self._dock()
            elif choice.phase is Phase.CENTRE:
                self._depart(Phase.CENTRE)
                if self.body.can_drive:
                    self._drive(Phase.CENTRE, {"manoeuvre": "centre"})
                else:
                    robot_stream.begin_again()
            else:
                self._step(choice)
                self.cycle_s.add(time.perf_counter() - began)

    def _before_step(self) -> None:
        """Select the robot that acts next, and call `before_step`; learning has been joined."""
        if len(self.robots) > 1:
            is_over = self.steps - self._turn_began >= TURN
            if is_over and self.excursions.phase is not Phase.EXCURSION:
                self._begin_turn()
        for observer in self.observers:
            if isinstance(observer, LifeHooks):
                observer.before_step(self)

    def _begin_turn(self) -> None:
        """Continue with the next robot."""
        self._steps_of = self.steps_of
        self._turn_began = self.steps
        self.robot = (self.robot + 1) % len(self.robots)
        self.student.select_robot(self.robot)
        self.begin()
        self.robot_stream.flags |= Flag.TURN

    def _step(self, choice: Choice) -> None:
        """Act; learn from the step before while the robot moves; take the next observation.

        After the end of an episode, begin the next one.
        """
        robot_stream = self.robot_stream
        row = robot_stream.row(choice)
        learn = partial(self.student.take_row, row, self._encode())
        result = None
        try:
            if self._worker is None:
                learn()
            else:
                self._worker.start(learn)
            result = robot_stream.env.step(choice.action)
        finally:
            if self._worker is not None:
                self._worker.join()
            # Without a result `close` takes the row again, as the last one
            self.student.position.is_observed = result is None
        self._write(row)
        if len(result) != _N_RESULTS:
            raise UnfitResult(
                f"a step of the environment returned {len(result)} values, expected observation, reward, terminated, "
                "truncated and info"
            )
        observation, reward, terminated, truncated, info = result
        robot_info = RobotInfo.of(info, reward=reward, terminated=terminated, truncated=truncated)
        robot_stream.take(observation, robot_info, unix_s=self._unix_clock(), is_step=True)
        if terminated or truncated:
            self._depart(Phase.END)
            robot_stream.excursions.cancel()
            self._drive(Phase.CENTRE)

    def _dock(self) -> None:
        """Go to the dock and charge until the end of the run at most; stop the life if docking keeps failing."""
        self._depart(Phase.DOCK)
        self.excursions.cancel()
        left_s = (self._end - self.steps) * self.interface.period_s
        self._drive(Phase.DOCK, {"manoeuvre": "dock", "charge_s": left_s})
        # A stay that the end of the run cut short says nothing about the dock
        if self.steps < self._end:
            self.dockings.return_at(self.steps)
        if self.dockings.has_failed:
            _log.warning("%s", self.dockings.failure(self.steps))
            self.is_stopped = True
            self.is_out_of_battery = True

    def _drive(
        self, phase: Phase, options: dict[str, Any] | None = None, seed: int | None = None
    ) -> None:
        """Reset; the frames of the robot's drive count as steps, up to the end of the run, but nothing is learned.

        A real robot drives in every reset, one that can be placed only if the options say so.
        """
        robot_stream = self.robot_stream
        body = robot_stream.body
        first_step = self.steps
        began_unix_s = self._unix_clock()
        observation, info = robot_stream.env.reset(seed=seed, options=options)
        unix_s = self._unix_clock()
        robot_info = RobotInfo.of(info, begins=True)
        if robot_stream.is_resumed:
            robot_stream.continue_time(robot_info)
        robot_stream.take(observation, robot_info, unix_s=unix_s)
        if robot_info.manoeuvre_steps is None:
            n_steps = body.n_drive_frames
        else:
            n_steps = robot_info.manoeuvre_steps
        self.counts.steps = min(self._end, first_step + n_steps)
        self.is_cut = first_step + n_steps > self._end or (self.is_stopped and options is not None)
        if self.is_stopped and body.is_restorable:
            return  # the drive may have been ended early, and is repeated when the life is resumed
        for at, robot_info, observation in body.drive_frames():
            self.counts.add(robot_info, robot_info.flags, is_step=False)
            if first_step + at < self.steps and self.recorder is not None:
                observed = np.array(observation, dtype=np.float32)
                if observed.shape != self._unknown.shape:  # not recorded, or changed by a wrapper
                    observed = self._unknown
                before_end_s = (n_steps - at) * self.interface.period_s
                # A simulated drive takes less time than its frames
                frame_unix_s = max(began_unix_s, unix_s - before_end_s)
                row = Row(
                    step=first_step + at,
                    observation=observed,
                    phase=phase,
                    flags=robot_info.flags,
                    robot=self.robot,
                    unix_s=frame_unix_s,
                    **robot_stream.fields_of(robot_info),
                )
                self.recorder.write(row)

    def _encode(self) -> Tiles:
        """Return the tiles of the current observation; learning has been joined."""
        robot_stream = self.robot_stream
        if robot_stream.tiles is None:
            robot_stream.tiles = self.student.encode(robot_stream.observation, robot_stream.flags)
        return robot_stream.tiles

    def _depart(self, phase: Phase) -> None:
        """Leave the current observation without an action."""
        row = self.robot_stream.row(Choice(phase, NO_ACTION, np.nan))
        self.student.take_row(row, self._encode())
        self._write(row)

    def _write(self, row: Row) -> None:
        """Record the row of the current observation, which `close` does not write again, and call `after_step`."""
        is_written = self.recorder is None
        try:
            if self.recorder is not None:
                n_rows = self.recorder.n_rows
                try:
                    self.recorder.write(row)
                finally:  # an exception may also come after the row was taken
                    is_written = self.recorder.n_rows > n_rows
        finally:
            self.robot_stream.awaits_reply = is_written
            self.student.position.is_observed = not is_written
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
            if self.robot_stream.has_begun and not self.robot_stream.awaits_reply:
                self._depart(Phase.END)
        finally:
            if self._worker is not None:
                self._worker.close()
            try:
                if self.recorder is not None:
                    self.recorder.close()
            finally:
                self.student.errors.table.close()

    def __enter__(self) -> Life:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _unknown_time() -> float:
    return np.nan


def refuse_not_followed(policies: Sequence[PolicyUnderTest], questions: Sequence[GVF]) -> None:
    """Raise ValueError if an excursion could not follow one of these policies."""
    for policy in policies:
        if isinstance(policy.target, Gaussian):
            name = questions[int(policy.demons[0])].name
            raise ValueError(
                f"question {name!r}: its target policy is Gaussian, over real-valued actions, so no test excursion can "
                "follow it with discrete ones; set tested=False"
            )
