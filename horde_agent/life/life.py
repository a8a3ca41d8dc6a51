"""A life: environment and Horde at a fixed period, acting before learning.

For the observation o_t the loop chooses a_t, hands the learning of (o_{t-1}, a_{t-1}, o_t) to a worker thread and calls
`env.step(a_t)`; the worker's kernels run while the step waits, and are joined before the next observation is looked at.
So the time from observation to action does not depend on how many demons there are. One that is a `ProcessEnv`
needs no worker: it moves in its own process while this one learns.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import TracebackType
from typing import Any, NamedTuple, SupportsFloat

import gymnasium
import numpy as np

from horde_agent.cluster import AnyHorde
from horde_agent.gvf import GVF, named
from horde_agent.interface import Interface
from horde_agent.learning.layout import NEWCOMER
from horde_agent.life.docking import DockingConfig, Dockings
from horde_agent.life.excursions import Choice, ExcursionConfig, Excursions
from horde_agent.life.flags import flags_of, is_broken, is_unfit
from horde_agent.life.process_env import ProcessEnv
from horde_agent.life.student import Student, check_questions
from horde_agent.life.timing import LATE_S, Durations
from horde_agent.life.worker import Job, Worker, one_core_spared
from horde_agent.measures.returns import PolicyUnderTest
from horde_agent.policies import BehaviourPolicy, can_be_called, generator, whole_number
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
from horde_agent.types import Tiles

__all__ = ["BodyDisobeys", "Life", "Moment", "Observer"]

PATIENCE_S = 60.0  # with a body that does nothing of what it is asked

_STATE = (
    *("steps", "gaps", "crc_errors", "deadlines_missed", "n_clipped", "t", "n_not_applied", "_n_kept"),
    *("link_losses", "s_without_link", "_has_begun", "_flags", "_is_seen"),
)
_LONGEST_DRIVE = 40  # steps to the middle, by far
_NOWHERE = (np.nan, np.nan, np.nan)

_log = logging.getLogger(__name__)


class BodyDisobeys(RuntimeError):
    """The body answers, but has done nothing of what it was asked for `PATIENCE_S`.

    Args:
        steps: Of the life so far.
        why: What the body says of it, in one or two sentences; "" if it says nothing.
    """

    def __init__(self, steps: int, why: str) -> None:
        why = why or (
            "the body reports `obeyed` = 0. Check the wire that carries its commands, and whether another program "
            "drives it."
        )
        super().__init__(f"the life ends after {steps} steps, {PATIENCE_S:g} s after the last learning: {why}")


class Moment(NamedTuple):
    """What an observer is shown after each step; nothing is copied, so keep copies and not the arrays.

    Attributes:
        row: The observation, what was done from it, and how it came about.
        life: The life: counts, the student with its predictions and scores, the Horde. Learning has been joined.
    """

    row: Row
    life: Life


Observer = Callable[[Moment], None]
"""One that holds numbers in the order of the demons has a method `rearrange(stays)`, as `Student` has."""


class Life:
    """One robot's life: behaves, learns, tests, and docks when its battery is low.

    Args:
        env: Any Gymnasium environment with a flat Box observation and Discrete actions. Test excursions run where it
            can drive to the centre (`manoeuvre_frames`) and the Horde asks about constant actions.
        horde: Learns and predicts.
        behaviour: Chooses the actions and knows their probabilities: `StickyRandom`, `Follow(policy)`, or anything with
            `draw(rng, observation, tiles)`, which returns an action and its probability b, and `forget()`.
        rng: Source of the behaviour, of the excursions and of the environment's seed: same seed, same life.
        interface: What the agent knows of its body; read from the environment when None.
        excursions: When excursions begin and how long they last.
        docking: What to do when docking does not help.
        recorder: Keeps every observation and action; None keeps nothing.
        observers: Called after each step of the environment.
        worker: Learns while the body moves; a thread of its own when None. Not used with a `ProcessEnv`.

    Attributes:
        steps: 100 ms periods lived, excursions and drives included.
        gaps, crc_errors, deadlines_missed, n_clipped: Faults of the body so far; drives are no faults.
        t: Robot time of the latest observation in seconds (nan where the body has no clock).
        n_not_applied: Steps in which the body did not do what was asked (safety stop, charging).
        link_losses, s_without_link: How often the link to the body was lost, and for how many seconds in all; None
            where it does not tell.
        cycle_s: Durations of the cycles, step and learning included, in seconds.
        sensor_age_s, overrun_s: Age of the newest packet when it was used, and lateness of each step, in seconds;
            empty where the body does not tell them.
        student: Learns, predicts and scores; `student.errors` holds the NMSRE.
        dockings: When the life docks, and how often it did.
        keeper: Called before each choice, where all that was learned has been joined: a place to keep `state()`.
        is_cut: Whether the latest drive was cut short, by the end of the run or by who stopped it.
        is_out_of_battery: Whether the life stopped itself because stays at the dock did not charge the battery.
        at_end: Called likewise when a run is over, before the last observation is learned from.

    Raises:
        ValueError: If an argument is not what it must be, or the Horde, the behaviour and the body do not fit.

    Example:
        >>> import gymnasium
        >>> from horde_agent.horde import Horde
        >>> from horde_agent.policies import StickyRandom
        >>> from horde_agent.questions import nexting
        >>> env = gymnasium.make("CartPole-v1")
        >>> face = Interface.of(env)
        >>> horde = Horde(nexting(face), n_features=face.coder.n_features, n_active=face.coder.n_active)
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
        self.student = Student(horde, self.interface, excursions)
        self._can_drive = hasattr(env.unwrapped, "manoeuvre_frames")
        self.excursions = Excursions(self._excursion_policies(), excursions)
        can_dock = "dock" in env.unwrapped.metadata.get("manoeuvres", ())
        self.dockings = Dockings(docking or DockingConfig(), self.interface.period_s, can_dock=can_dock)
        self.recorder, self.observers = recorder, list(observers)
        self.keeper: Callable[[Life], None] | None = None
        self.at_end: Callable[[Life], None] | None = None
        self.steps = self.gaps = self.crc_errors = self.deadlines_missed = self.n_clipped = 0
        self.t = np.nan
        self.n_not_applied = self._n_kept = 0  # in all, and in a row
        self.link_losses: int | None = None
        self.s_without_link: float | None = None
        self.cycle_s, self.sensor_age_s, self.overrun_s = Durations(), Durations(), Durations()
        self._process_env = env if isinstance(env, ProcessEnv) else None
        self._worker = None if self._process_env else worker or Worker()
        self._has_begun = self._is_closed = self._is_stopped = self.is_cut = self.is_out_of_battery = False
        self._observation: Observation = np.zeros(0, dtype=np.float32)
        self._flags = int(Flag.NONE)
        self._pose = _NOWHERE
        self._tiles: Tiles | None = None  # of the current observation, once it was looked at
        self._is_seen = False
        self._is_left = False  # the current observation has its row, and no next one has come
        self._end = sys.maxsize  # the step at which the run ends
        self._unknown = np.full(len(self.interface.channels), np.nan, dtype=np.float32)

    def _excursion_policies(self) -> list[PolicyUnderTest]:
        """Return the policies that excursions follow: none if the body cannot drive back to the centre."""
        return [p for p in self.student.errors.policies if self._can_drive and not p.is_behaviour]

    @property
    def can_live_again(self) -> bool:
        """Whether the body can be put back to where it was, as a simulated one can."""
        return bool(self.env.unwrapped.metadata.get("restorable"))

    def state(self) -> State:
        """Return everything this life's future depends on: between two steps, or from `keeper`.

        The state of a body that cannot be put back is left out: such a life resumes with a gap.
        """
        body: Any = self.env.unwrapped
        behaviour: State = getattr(self.behaviour, "state", dict)()
        now = {
            "observation": self._observation.copy(),
            "pose": np.array(self._pose),
            "tiles": np.zeros(0) if self._tiles is None else self._tiles.copy(),
        }
        return nested(
            student=self.student.state(),
            excursions=self.excursions.state(),
            dockings=self.dockings.state(),
            behaviour=behaviour,
            now=now,
            own=attributes(self, *_STATE),
            world=body.save_state() if self.can_live_again and self._has_begun else {},
            rng=generator_state(self.rng),
        )

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, in a life that was made alike and has not begun.

        A body that can be put back is opened, and put back; any other goes on with a gap, after `begin`.
        """
        assert not self._has_begun, "a life that has begun goes its own way"
        self.student.restore(inner(state, "student"))
        self.excursions.restore(inner(state, "excursions"))
        self.dockings.restore(inner(state, "dockings"))
        restore_behaviour = getattr(self.behaviour, "restore", None)
        if restore_behaviour is not None:
            restore_behaviour(inner(state, "behaviour"))
        put_back(self, inner(state, "own"), *_STATE)
        if not inner(state, "world"):
            self.excursions.cancel()
            self._has_begun = False
        now, world = inner(state, "now"), inner(state, "world")
        self._observation, self._pose = now["observation"].copy(), tuple(now["pose"].tolist())
        self._tiles = None if now["tiles"].dtype.kind == "f" else now["tiles"].copy()
        if world:
            self.env.reset(seed=0)  # opens the body; where it then stands does not matter
            body: Any = self.env.unwrapped
            body.restore_state(world)
        restore_generator(self.rng, inner(state, "rng"))  # last: nothing may draw from it after this

    @property
    def is_before_drive(self) -> bool:
        """Whether the next thing is a drive, to the centre or the dock: it begins late without harm to learning."""
        is_in_excursion = self.excursions.phase is Phase.EXCURSION
        return self.excursions.is_over(broken=is_broken(self._flags)) or self.dockings.is_due(
            self.steps, in_excursion=is_in_excursion
        )

    @property
    def may_be_cut(self) -> bool:
        """Whether a drive begins now that the end of the run may cut short."""
        return self._end - self.steps <= _LONGEST_DRIVE and self.is_before_drive

    @property
    def is_seen(self) -> bool:
        """Whether the student has seen the current observation."""
        return self._is_seen

    def stand_at(self, step: int, n_gaps: int) -> None:
        """Count what was lived since the state was kept, as a record tells it, of a body that went its own way."""
        self.steps, self._is_seen = step, True
        self.gaps += n_gaps

    def begin(self) -> None:
        """Bring the body to its first observation; `run` does it where it was not done."""
        if not self._has_begun:
            self._drive(Phase.CENTRE, seed=int(self.rng.integers(2**31)))
            self._has_begun = True

    def stop(self) -> None:
        """Ask the life to end after the current step, or a stay at the dock early; safe from a signal handler."""
        self._is_stopped = True
        end_manoeuvre = getattr(self.env.unwrapped, "end_manoeuvre", None)
        if end_manoeuvre is not None:
            end_manoeuvre()

    def add(self, questions: Sequence[GVF]) -> None:
        """Ask further questions in mid-life: between two runs, or from an observer.

        Their demons know nothing yet; they learn from the next transition on, are scored from now on, and their
        policies are tested too. Everything else lives on: the other demons' weights and scores, the state in hand, an
        excursion that is under way, the record, and every observer that has a method `rearrange`. It takes about as
        long as building the Horde anew: see to it that a real robot can wait.

        Raises:
            ValueError: If a name is taken, or a question does not fit the others or the body; nothing has changed.
        """
        asked = named(questions, self.interface.names)
        check_questions(asked, self.interface)
        before = self.horde.names
        self.horde.add(asked)
        self._rearrange(before)

    def remove(self, names: Sequence[str]) -> None:
        """Drop questions in mid-life, as `add` takes them on; an excursion under way goes on for those that stay.

        Raises:
            ValueError: If a name is unknown, no demon would be left, or another demon or the tile coder needs the
                prediction of one that goes; nothing has changed.
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
        """Let everything that counts by demon go on; `before` are the names that there were."""
        place = {name: i for i, name in enumerate(before)}
        stays = np.array([place.get(name, NEWCOMER) for name in self.horde.names], dtype=np.int64)
        self.student.rearrange(stays)
        self.excursions.rearrange(self._excursion_policies())
        for observer in self.observers:
            rearrange = getattr(observer, "rearrange", None)
            if rearrange is not None:
                rearrange(stays)

    @property
    def is_stopped(self) -> bool:
        """True once somebody asked the life to end."""
        return self._is_stopped

    def run(self, steps: int) -> None:
        """Live for a number of 100 ms periods, excursions and drives included; may be called again to live on.

        A drive that is under way when the time is up is finished, but what exceeds `steps` is not counted.

        Raises:
            ValueError: If `steps` is no whole number, or negative.
            BodyDisobeys: If the body shows for a minute that it does nothing of what it is asked.
        """
        if isinstance(steps, int) and steps < 0:
            raise ValueError(f"steps must not be negative, got {steps}")
        steps = whole_number("steps", steps, 0)
        self.begin()
        self._end = self.steps + steps
        with one_core_spared() if self._process_env else nullcontext():
            self._live()
        if self.at_end is not None:
            self.at_end(self)
        self._see()

    def _live(self) -> None:
        """Live until the end of the run, or until somebody asks for it."""
        while self.steps < self._end and not self._is_stopped:
            if self.keeper is not None:
                self.keeper(self)
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

    def _choose(self) -> Choice:
        """Choose what to do from the current observation, which is shown as the functions of questions are shown it."""
        seen, tiles = self._observation.astype(np.float64), self._look()
        broken, unfit = is_broken(self._flags), is_unfit(self._flags)
        return self.excursions.choose(self.behaviour, self.rng, seen, tiles.copy(), broken=broken, is_unfit=unfit)

    def _step(self, choice: Choice) -> None:
        """Act, learn from the step before meanwhile, and take the next observation."""
        if self._process_env is not None:  # first of all: the other process stands idle until then
            self._process_env.send(choice.action)
        row = self._row(choice)
        observation, flags, tiles, is_seen = self._observation, self._flags, self._tiles, self._is_seen

        def learn() -> None:
            if not is_seen:
                self.student.see(observation, flags, tiles)
            self.student.act(choice.phase, choice.action, choice.b, row.step, choice.policy)

        self._is_seen = True
        arrived = self._beside(choice.action, learn, row)
        self.steps += 1
        self._arrive(*arrived)

    def _beside(self, action: int, learn: Job, row: Row) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Learn while the body moves, write the row, and return what the step brought."""
        if self._process_env is not None:
            learn()
            self._write(row)
            self._is_left = True
            arrived = self._process_env.receive()
            self._is_left = False
            return arrived
        assert self._worker is not None
        self._worker.start(learn)
        try:
            brought = self.env.step(action)
        finally:
            self._worker.join()
        self._write(row)
        return brought

    def _arrive(
        self, observation: Any, _reward: SupportsFloat, terminated: bool, truncated: bool, info: Mapping[str, Any]
    ) -> None:
        """Take in what a step brought; after the end of an episode, begin the next one."""
        self._take(observation, info, flags_of(info, terminated=terminated, truncated=truncated))
        self._time(info)
        if self._flags & Flag.GAP:
            self.gaps += 1
        if self._flags & Flag.NOT_APPLIED:
            self.n_not_applied += 1
        self._check_obedience(info)
        if terminated or truncated:
            self._depart(Choice(Phase.END, NO_ACTION, np.nan))
            self.excursions.cancel()
            self._drive(Phase.CENTRE)

    def _check_obedience(self, info: Mapping[str, Any]) -> None:
        """Lose patience with a body that does nothing of what it is asked; complain of one that is kept from it."""
        self._n_kept = self._n_kept + 1 if self._flags & Flag.NOT_APPLIED else 0
        patience = round(PATIENCE_S / self.interface.period_s)
        if self._n_kept >= patience and not info.get("obeyed", 1):
            raise BodyDisobeys(self.steps, getattr(self.env.unwrapped, "disobedience", ""))
        if self._n_kept == patience:
            _log.warning("for %g s the body was kept from all that it was asked: nothing was learned", PATIENCE_S)

    def _time(self, info: Mapping[str, Any]) -> None:
        """Count how late the step was and how old its packet, where the body tells."""
        if info.get("overrun_s", 0.0) > LATE_S:
            self.deadlines_missed += 1
        for name, durations in (("overrun_s", self.overrun_s), ("sensor_age_s", self.sensor_age_s)):
            if name in info:
                durations.add(info[name])

    def _reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Mapping[str, Any]:
        """Reset the environment: what follows does not follow from what was."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._take(observation, info, flags_of(info, begins=True))
        return info

    def _dock(self) -> None:
        """Go to the dock and charge, for as long as the life still lasts; end the life where that is in vain."""
        self._depart(Choice(Phase.DOCK, NO_ACTION, np.nan))
        self.excursions.cancel()
        left_s = (self._end - self.steps) * self.interface.period_s
        self._drive(Phase.DOCK, {"manoeuvre": "dock", "charge_s": left_s})
        if self.steps < self._end:  # a stay that the end of the run cut short says nothing about the dock
            self.dockings.return_at(self.steps)
        if self.dockings.is_hopeless:
            _log.warning("%s", self.dockings.complaint(self.steps))
            self._is_stopped = self.is_out_of_battery = True

    def _drive(self, phase: Phase, options: dict[str, Any] | None = None, seed: int | None = None) -> None:
        """Reset; where the body drives, its frames count as steps, up to the end of the run, but nothing is learned.

        A real robot drives in every reset, one that can be placed only where the options say so.
        """
        before = self.steps
        info = self._reset(seed, options)
        body: Any = self.env.unwrapped
        frames = getattr(body, "manoeuvre_frames", [])
        reached = before + info.get("manoeuvre_steps", len(frames))
        self.steps = min(self._end, reached)
        self.is_cut = reached > self._end or (self._is_stopped and options is not None)
        if self._is_stopped and self.can_live_again:
            return  # it may have been ended early, and is driven anew where the life goes on
        observations = getattr(body, "manoeuvre_observations", [])
        at = getattr(body, "manoeuvre_at", range(1, len(frames) + 1))
        for k, frame in enumerate(frames[:-1]):
            self.crc_errors += frame.crc_errors
            self._count_losses(frame.extras)
            if before + at[k] < self.steps and self.recorder is not None:
                seen = np.array(observations[k], dtype=np.float32) if observations else self._unknown
                # The body's own observation is not what a wrapper makes of it.
                seen = seen if seen.shape == self._unknown.shape else self._unknown
                self.recorder.write(_drive_row(before + at[k], seen, frame, phase))

    def _take(self, observation: Any, info: Mapping[str, Any], flags: int) -> None:
        """Make an observation with its info the current one, not yet seen by the student."""
        self._observation = np.array(observation, dtype=np.float32)
        self._flags, self._tiles, self._is_seen = flags, None, False
        self.crc_errors += info.get("crc_errors", 0)
        self._count_losses(info)
        self.n_clipped += info.get("clipped", 0)
        self.t = info.get("t", np.nan)
        self._pose = _pose(info)
        self.dockings.see(info)

    def _count_losses(self, info: Mapping[str, Any]) -> None:
        """Count what a step tells of a link that was lost in it, and for how long."""
        if "link_losses" in info:
            self.link_losses = (self.link_losses or 0) + info["link_losses"]
            self.s_without_link = (self.s_without_link or 0.0) + info["s_without_link"]

    def _look(self) -> Tiles:
        """Return the tiles of the current observation; learning has been joined."""
        if self._tiles is None:
            self._tiles = self.student.look(self._observation, self._flags)
        return self._tiles

    def _see(self) -> None:
        """Let the student see the current observation now, in this thread."""
        if not self._is_seen:
            self.student.see(self._observation, self._flags, self._look())
            self._is_seen = True

    def _depart(self, choice: Choice) -> None:
        """Leave the current observation without an action."""
        self._see()
        row = self._row(choice)
        self.student.act(choice.phase, choice.action, choice.b, row.step)
        self._write(row)

    def _row(self, choice: Choice) -> Row:
        phase, action, b, policy = choice
        return Row(self.steps, self.t, self._observation, action, b, phase, self._flags, self._pose, policy)

    def _write(self, row: Row) -> None:
        """Record a row and show it to the observers."""
        if self.recorder is not None:
            self.recorder.write(row)
        if self.observers:
            moment = Moment(row, self)
            for observer in self.observers:
                observer(moment)

    def close(self) -> None:
        """End the life: the last observation is learned from and recorded, the thread ends. The env stays open."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._has_begun and not self._is_left:
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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


def _drive_row(step: int, observation: Observation, frame: Any, phase: Phase) -> Row:
    """Return the record of one frame of a drive: for the pictures; nothing is chosen or learned."""
    flags = flags_of({"stale": frame.stale, "applied": getattr(frame, "applied", True)})
    return Row(step, frame.t, observation, NO_ACTION, np.nan, phase, flags, _pose(frame.extras))


def _pose(info: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return the pose that a simulator tells, nan where it is unknown."""
    if "x_m" not in info:
        return _NOWHERE
    return info["x_m"], info["y_m"], info.get("heading_rad", np.nan)
