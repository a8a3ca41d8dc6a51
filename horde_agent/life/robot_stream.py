"""A robot of a life: how it behaves, its current observation, and what interrupts its behaviour.

A life has one robot or several, and counts the faults of all of them together, in `RobotCounts`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from horde_agent.interface import Interface, readable
from horde_agent.kernels.tiles import first_outside
from horde_agent.life.excursions import (
    Choice,
    DockingConfig,
    Dockings,
    ExcursionConfig,
    Excursions,
)
from horde_agent.life.robot import RobotBody, RobotInfo, UnfitResult
from horde_agent.life.timing import LATE_S, Durations
from horde_agent.policies import BehaviourPolicy
from horde_agent.record import Flag, Observation, Phase, Row
from horde_agent.record.dtype import fields_in
from horde_agent.saving import (
    State,
    attributes,
    generator_state,
    inner,
    nested,
    put_back,
    restore_generator,
)
from horde_agent.types import Tiles, can_be_called, generator

PATIENCE_S = 60.0  # without an applied action

_N_RESULTS = 5  # of a step

_SAVED_COUNTS = (
    "steps",
    "gaps",
    "crc_errors",
    "deadlines_missed",
    "n_clipped",
    "n_not_applied",
    "link_losses",
    "s_without_link",
    "n_not_finite",
)

# Attributes of a stream, and their names in a snapshot
_SAVED = (
    "_n_not_applied_in_a_row",
    "has_begun",
    "flags",
    "reward",
    "_follows_not_finite",
    "is_resumed",
)

_NOT_FINITE = (
    "step %d: the reading of %s is %s. Such an observation repeats the one before it, is not learned from, and counts "
    "as a gap. Further ones are only counted"
)

_log = logging.getLogger(__name__)


class BodyDisobeys(RuntimeError):
    """The robot is connected, but has applied no action for `PATIENCE_S`, for the reason `why`, if it reports one."""

    def __init__(self, steps: int, why: str) -> None:
        why = why or (
            "the body reports `obeyed` = 0. Check the wire that carries its commands, and whether another program "
            "drives it."
        )
        super().__init__(
            f"the life ends after {steps} steps, {PATIENCE_S:g} s after the last learning: {why}"
        )


class RobotCounts:
    """Steps and faults of all robots of a life.

    Attributes:
        steps: Number of periods, excursions and drives included.
        gaps: Observations that do not follow from the one before, and resumes of a robot that cannot
            be restored; drives are no faults.
        crc_errors: Damaged packets.
        deadlines_missed: Steps that were late.
        n_clipped: Readings out of range.
        n_not_applied: Steps in which the action was not applied (safety stop, charging).
        n_not_finite: Observations with a reading that was not finite. Each repeats the one before it
            and is a gap.
        link_losses, s_without_link: Number of losses of the link, and their total duration in
            seconds; None if the robot does not report them.
        sensor_age_s, overrun_s: Age of the newest packet when it was used, and lateness of each
            step, in seconds; empty if the robot does not report them.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.gaps = 0
        self.crc_errors = 0
        self.deadlines_missed = 0
        self.n_clipped = 0
        self.n_not_applied = 0
        self.n_not_finite = 0
        self.link_losses: int | None = None
        self.s_without_link: float | None = None
        self.sensor_age_s = Durations()
        self.overrun_s = Durations()

    def add_damage(self, info: RobotInfo) -> None:
        """Add damaged packets and losses of the link, of a step or of a frame of a drive."""
        self.crc_errors += info.crc_errors
        if info.link_losses is not None and info.s_without_link is not None:
            self.link_losses = (self.link_losses or 0) + info.link_losses
            self.s_without_link = (self.s_without_link or 0.0) + info.s_without_link

    def add_timing(self, info: RobotInfo) -> None:
        """Add the lateness of a step and the age of its packet, if the robot reports them."""
        if info.overrun_s is not None:
            self.overrun_s.add(info.overrun_s)
            self.deadlines_missed += info.overrun_s > LATE_S
        if info.sensor_age_s is not None:
            self.sensor_age_s.add(info.sensor_age_s)

    def state(self) -> State:
        """Return the counts, without the durations, which belong to this process."""
        return attributes(self, *_SAVED_COUNTS)

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        put_back(self, state, *_SAVED_COUNTS)


class RobotStream:
    """A robot of a life, with the stream of its experience.

    Args:
        env: As of `Life`.
        behaviour: As of `Life`.
        rng: As of `Life`.
        interface: Channels, actions and period.
        excursions: As of `Life`.
        docking: As of `Life`.
        counts: Of all robots of the life; this robot adds its own.
        number: Of the robot, from 0.

    Attributes:
        body: What the robot offers beyond Gymnasium's methods.
        excursions: Decides when to test a target policy.
        dockings: Decides when to dock.
        has_begun: Whether the environment was reset for the first observation.
        is_resumed: Whether the robot kept moving since its state was saved, so that `Life.begin` is
            to mark and count a gap.
        observation: The current one, float32, shape (n_inputs,); (0,) before the first.
        flags: How it came about: `Flag`.
        info_fields: Fields of its row that `info` had, by name, such as t and pose.
        reward: Reward of the step to the current observation; NaN after a reset, or if it is
            unknown.
        unix_s: Wall clock when the current observation arrived, in seconds since 1970; NaN if
            unknown. It is not part of the state.
        tiles: Its active features, shape (n_active,), once it was encoded, else None.

    Raises:
        ValueError: If the behaviour cannot be one of this robot's.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        behaviour: BehaviourPolicy,
        rng: np.random.Generator,
        *,
        interface: Interface,
        excursions: ExcursionConfig | None,
        docking: DockingConfig | None,
        counts: RobotCounts,
        number: int = 0,
    ) -> None:
        _check_behaviour(behaviour, len(interface.actions))
        env = readable(env)
        self.env = env
        self.behaviour = behaviour
        self.rng = generator(rng)
        self.interface = interface
        self.counts = counts
        self.number = number
        self.body = RobotBody(env)
        self.excursions = Excursions([], excursions)
        self.dockings = Dockings(
            docking or DockingConfig(), interface.period_s, can_dock=self.body.can_dock
        )
        self.has_begun = False
        self.is_resumed = False
        self.observation: Observation = np.zeros(0, dtype=np.float32)
        self.flags = int(Flag.NONE)
        self.info_fields = fields_in({})
        self.reward = np.nan
        self.unix_s = np.nan
        self.tiles: Tiles | None = None
        self._n_not_applied_in_a_row = 0
        # The observation before had a reading that was not finite
        self._follows_not_finite = False
        low = interface.scaler.low
        high = interface.scaler.high
        # Observations go to the tile coder as they are
        self._is_unit = bool((low == 0.0).all() and (high == 1.0).all())

    @property
    def docks_next(self) -> bool:
        """True if a drive to the dock is next."""
        return self.dockings.is_due(
            self.counts.steps, in_excursion=self.excursions.phase is Phase.EXCURSION
        )

    @property
    def is_before_drive(self) -> bool:
        """True if a drive to the centre or the dock is next."""
        return self.excursions.is_over(self.flags) or self.docks_next

    def choose(self, tiles: Tiles) -> Choice:
        """Choose what to do from the current observation, whose active features are `tiles`, (n_active,)."""
        # Float64, as for questions' functions
        exact = self.observation.astype(np.float64)
        return self.excursions.choose(
            behaviour=self.behaviour,
            rng=self.rng,
            observation=exact,
            tiles=tiles.copy(),
            flags=self.flags,
        )

    def row(self, choice: Choice) -> Row:
        """Return the row of the current observation, with what was chosen there."""
        return Row(
            step=self.counts.steps,
            observation=self.observation,
            action=choice.action,
            b=choice.b,
            phase=choice.phase,
            flags=self.flags,
            policy=choice.policy,
            robot=self.number,
            reward=self.reward,
            unix_s=self.unix_s,
            **self.info_fields,
        )

    def take(
        self,
        observation: Any,
        info: RobotInfo,
        flags: int,
        *,
        reward: float = np.nan,
        unix_s: float = np.nan,
    ) -> None:
        """Make an observation the current one.

        `reward` is that of the step to it, NaN after a reset; `unix_s` the wall clock, NaN if
        unknown.

        If a reading is not finite, the observation repeats the one before it, as one that is stale
        does, and the next one is a gap.

        Raises:
            UnfitResult: If the observation has another shape or type than the observation space.
        """
        values = self._values_of(observation)
        if self._follows_not_finite:
            flags |= Flag.GAP
            self._follows_not_finite = False
        if not self._is_in_range(values):
            if not np.isfinite(values).all():
                self._count_not_finite(values)
                self._follows_not_finite = True
                flags |= Flag.STALE
                values = self._repeated(values)
            if self._is_unit:
                n_outside = np.count_nonzero((values < 0.0) | (values > 1.0))
                self.counts.n_clipped += int(n_outside)
                values = values.clip(0.0, 1.0)
        self.observation = values
        self.flags = flags
        self.tiles = None
        self.info_fields = info.row_fields
        self.reward = reward
        self.unix_s = unix_s
        self.counts.n_clipped += info.clipped
        self.counts.add_damage(info)
        self.dockings.update(info)

    def begin_again(self) -> None:
        """Make the current observation the first one after a gap, as if a drive had ended there."""
        self.flags = int(Flag.GAP)
        self.tiles = None
        self.reward = np.nan

    def check_result(self, result: Sequence[Any]) -> None:
        """Raise UnfitResult if the result of a step does not have the form of Gymnasium's API."""
        if len(result) != _N_RESULTS:
            raise UnfitResult(
                f"a step of the environment returned {len(result)} values, expected observation, reward, terminated, "
                "truncated and info"
            )
        observation, _, _, _, info = result
        if type(info) is not dict:
            RobotInfo.of(info)
        if getattr(observation, "shape", None) != self.observation.shape:
            self._values_of(observation)

    def count_step(self, info: RobotInfo) -> None:
        """Count the faults of the step to the current observation.

        Raises:
            BodyDisobeys: If the robot applied no action for `PATIENCE_S`.
        """
        counts = self.counts
        counts.add_timing(info)
        counts.gaps += bool(self.flags & Flag.GAP)
        if not self.flags & Flag.NOT_APPLIED:
            self._n_not_applied_in_a_row = 0
            return
        counts.n_not_applied += 1
        self._n_not_applied_in_a_row += 1
        patience = round(PATIENCE_S / self.interface.period_s)
        if self._n_not_applied_in_a_row >= patience and not info.obeyed:
            raise BodyDisobeys(counts.steps, self.body.disobedience)
        if self._n_not_applied_in_a_row == patience:
            _log.warning("no action was applied for %g s; learning was paused", PATIENCE_S)

    def _values_of(self, observation: Any) -> Observation:
        """Return a copy of an observation, shape (n_inputs,); raise UnfitResult if it has another shape or type."""
        n_inputs = len(self.interface.channels)
        if (
            isinstance(observation, np.ndarray)
            and observation.dtype == np.float32
            and observation.shape == (n_inputs,)
        ):
            return observation.copy()
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                values = np.array(observation, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise UnfitResult(
                f"the environment returned an observation of the type {type(observation).__name__}, expected "
                f"{n_inputs} numbers: {error}"
            ) from None
        if values.shape != (n_inputs,):
            raise UnfitResult(
                f"the environment returned an observation of shape {values.shape}, expected ({n_inputs},) as in its "
                "observation space"
            )
        return values

    def _is_in_range(self, values: Observation) -> bool:
        """Return whether all readings are finite, and in [0, 1] if the observation space is that."""
        if self._is_unit:
            return bool(first_outside(values) < 0)
        return bool(np.isfinite(values).all())

    def _repeated(self, values: Observation) -> Observation:
        """Return the current observation; 0 in the place of readings that are not finite if there is none."""
        if self.observation.size:
            return self.observation
        return np.nan_to_num(values, posinf=0.0, neginf=0.0)

    def _count_not_finite(self, values: Observation) -> None:
        self.counts.n_not_finite += 1
        if self.counts.n_not_finite == 1:
            index = int(np.flatnonzero(~np.isfinite(values))[0])
            name = self.interface.channels[index].name
            _log.warning(_NOT_FINITE, self.counts.steps, name, values[index])

    def state(self) -> State:
        """Return everything that the future of this robot depends on, with the counts of all robots.

        Without the robot's own state if it is not restorable.
        """
        behaviour: State = getattr(self.behaviour, "state", dict)()
        tiles: Any = np.zeros(0)
        if self.tiles is not None:
            tiles = self.tiles.copy()
        current = {"observation": self.observation.copy(), "tiles": tiles}
        info_fields = {name: np.array(value) for name, value in self.info_fields.items()}
        world = {}
        if self.body.is_restorable and self.has_begun:
            world = self.body.save_state()
        return nested(
            excursions=self.excursions.state(),
            dockings=self.dockings.state(),
            behaviour=behaviour,
            current=current | attributes(self, *_SAVED),
            info=info_fields,
            counts=self.counts.state(),
            world=world,
            rng=generator_state(self.rng),
        )

    def restore(self, state: State) -> None:
        """Continue from what `state` returned.

        A restorable robot is opened and restored; any other continues after a gap, in `Life.begin`.
        """
        self.excursions.restore(inner(state, "excursions"))
        self.dockings.restore(inner(state, "dockings"))
        restore_behaviour = getattr(self.behaviour, "restore", None)
        if restore_behaviour is not None:
            restore_behaviour(inner(state, "behaviour"))
        self.counts.restore(inner(state, "counts"))
        current = inner(state, "current")
        put_back(self, current, *_SAVED)
        self.observation = current["observation"].copy()
        for name, array in inner(state, "info").items():
            value = array.tolist()
            if array.ndim:
                value = tuple(value)
            self.info_fields[name] = value
        self.tiles = None
        if current["tiles"].dtype.kind != "f":
            self.tiles = current["tiles"].copy()
        world = inner(state, "world")
        if world:
            self.env.reset(seed=0)  # opens the robot; its state is replaced
            self.body.restore_state(world)
        elif self.has_begun:
            self.excursions.cancel()
            self.has_begun = False
            self.is_resumed = True
        # Last: nothing may draw from it after this
        restore_generator(self.rng, inner(state, "rng"))


def _check_behaviour(behaviour: object, n_actions: int) -> None:
    """Refuse what cannot be a behaviour policy."""
    draw = getattr(behaviour, "draw", None)
    forget = getattr(behaviour, "forget", None)
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
        raise ValueError(
            f"the behaviour chooses among {n_drawn} actions, but the body has {n_actions}"
        )
