"""A robot of a life: how it behaves, its current observation, and what interrupts its behaviour.

A life has one robot or several, and counts the faults of all of them together, in `RobotCounts`.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import gymnasium
import numpy as np

from horde_agent.interface import Interface, readable
from horde_agent.kernels.tiles import first_outside
from horde_agent.kernels.vectors import bind
from horde_agent.life.counts import RobotCounts, RobotInfo, UnfitResult
from horde_agent.life.excursions import (
    Choice,
    DockingConfig,
    Dockings,
    ExcursionConfig,
    Excursions,
)
from horde_agent.life.robot import RobotBody
from horde_agent.policies import BehaviourPolicy
from horde_agent.record import NO_ACTION, Flag, Observation, Phase, Row
from horde_agent.saving import (
    State,
    attributes,
    generator_state,
    inner,
    nested,
    put_back,
    restore_generator,
)
from horde_agent.types import Floats, RNGLike, Tiles, can_be_called, generator

PATIENCE_S = 60.0  # without an applied action

# Attributes of a stream, and their names in a snapshot
_SAVED = (
    "_n_not_applied_in_a_row",
    "has_begun",
    "flags",
    "reward",
    "is_resumed",
)

_NOT_FINITE = (
    "step %d: the reading of %s is %s, so it is missing. Questions that need it skip the step, and the others learn. "
    "Further ones are only counted"
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
        observation: The current one, float32, shape (n_inputs,), NaN where a reading is missing; (0,)
            before the first.
        flags: How it came about: `Flag`.
        info_fields: Fields of its row that `info` had, by name, such as t and pose.
        reward: Reward of the step to the current observation; NaN after a reset, or if it is
            unknown.
        unix_s: Wall clock when the current observation arrived, in seconds since 1970; NaN if
            unknown. It is not part of the state.
        before_s: Robot time before a clock that began anew when the life was resumed, in seconds; 0 for
            any other.
        tiles: Its active features, shape (n_active,), once it was encoded, else None.
        awaits_reply: Whether it has its row, and the next one has not arrived.

    Raises:
        ValueError: If the behaviour cannot be one of this robot's.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        behaviour: BehaviourPolicy,
        rng: RNGLike,
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
        self.info_fields = RobotInfo.of({}).row_fields
        self.reward = np.nan
        self.unix_s = np.nan
        self.before_s = 0.0
        self.tiles: Tiles | None = None
        self.awaits_reply = False
        self._n_not_applied_in_a_row = 0
        low = interface.scaler.low
        high = interface.scaler.high
        self._n_inputs = len(interface.channels)
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

    def choose(self, tiles: Tiles, readings: Floats) -> Choice:
        """Choose what to do from the current observation.

        Args:
            tiles: Its active features, shape (n_active,).
            readings: Its readings, and the last ones in place of missing ones, shape (n_inputs,).
        """
        if self.dockings.is_low and self.docks_next:
            return Choice(Phase.DOCK, NO_ACTION, np.nan)
        return self.excursions.choose(
            behaviour=self.behaviour,
            rng=self.rng,
            observation=readings.copy(),  # float64, as for questions' functions
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
        self, observation: Any, info: RobotInfo, *, unix_s: float = np.nan, is_step: bool = False
    ) -> None:
        """Make the observation of a reset, or of a step, the current one, and count its faults.

        A reading that is not finite is missing, NaN. `unix_s` is the wall clock, NaN if unknown.

        Raises:
            UnfitResult: If the observation has another shape or type than the observation space;
                nothing has changed.
            BodyDisobeys: If the robot applied no action for `PATIENCE_S`.
        """
        if type(observation) is np.ndarray and observation.dtype == np.float32:
            values = observation.copy()
        else:
            values = _converted(observation, self._n_inputs)
        if values.shape != (self._n_inputs,):
            raise UnfitResult(
                f"the environment returned an observation of shape {values.shape}, expected ({self._n_inputs},) as "
                "in its observation space"
            )
        counts = self.counts
        counts.steps += is_step
        flags = info.flags
        if self._is_unit:
            is_in_range = _bound_check()(values) < 0
        else:
            is_in_range = np.isfinite(values).all()
        if not is_in_range:
            values = self._mended(values)
        self.observation = values
        self.flags = flags
        self.tiles = None
        self.info_fields = self.fields_of(info)
        self.reward = info.reward
        self.unix_s = unix_s
        self.awaits_reply = False
        self.dockings.is_low = bool(info.battery_low)
        self.dockings.is_urgent = bool(info.battery_urgent)
        counts.n_clipped += info.clipped
        counts.add(info, flags, is_step=is_step)
        if is_step and flags & Flag.NOT_APPLIED:
            self._wait_for_obedience(is_obeying=bool(info.obeyed))
        elif is_step:
            self._n_not_applied_in_a_row = 0

    def continue_time(self, info: RobotInfo) -> None:
        """Let robot time go on behind that of the record if the robot's clock began anew, as of a resume's reset."""
        latest_s = self.info_fields["t"]
        first_s = [frame_info.row_fields["t"] for _, frame_info, _ in self.body.drive_frames()]
        if min([*first_s, info.row_fields["t"]]) <= latest_s:
            self.before_s = latest_s + self.interface.period_s

    def fields_of(self, info: RobotInfo) -> dict[str, Any]:
        """Return the fields of a row that `info` has, with the time that goes on from that of the record."""
        fields = info.row_fields
        if self.before_s:
            fields["t"] += self.before_s
        return fields

    def begin_again(self) -> None:
        """Make the current observation the first one after a gap, as if a drive had ended there."""
        self.flags = int(Flag.GAP)
        self.tiles = None
        self.reward = np.nan
        self.awaits_reply = False

    def _mended(self, values: Observation) -> Observation:
        """Return readings that are finite or NaN, in [0, 1] if the observation space is that; count others."""
        counts = self.counts
        is_finite = np.isfinite(values)
        if not is_finite.all():
            counts.n_not_finite += 1
            if counts.n_not_finite == 1:
                index = int(np.flatnonzero(~is_finite)[0])
                name = self.interface.channels[index].name
                _log.warning(_NOT_FINITE, counts.steps, name, values[index])
            values[~is_finite] = np.nan
        if self._is_unit:
            n_outside = np.count_nonzero((values < 0.0) | (values > 1.0))
            counts.n_clipped += int(n_outside)
            values = values.clip(0.0, 1.0)
        return values

    def _wait_for_obedience(self, *, is_obeying: bool) -> None:
        """Count a step whose action was not applied; after `PATIENCE_S` of them warn, or raise BodyDisobeys."""
        self._n_not_applied_in_a_row += 1
        patience = round(PATIENCE_S / self.interface.period_s)
        if self._n_not_applied_in_a_row >= patience and not is_obeying:
            raise BodyDisobeys(self.counts.steps, self.body.disobedience)
        if self._n_not_applied_in_a_row == patience:
            _log.warning("no action was applied for %g s; learning was paused", PATIENCE_S)

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


@functools.cache
def _bound_check() -> Any:
    """Return the kernel that checks readings in [0, 1], compiled for observations."""
    return bind(first_outside, like=(np.zeros(1, dtype=np.float32),))


def _converted(observation: Any, n_inputs: int) -> Observation:
    """Return an observation as an array of float32; raise UnfitResult if it is none of `n_inputs` numbers."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.array(observation, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise UnfitResult(
            f"the environment returned an observation of the type {type(observation).__name__}, expected "
            f"{n_inputs} numbers: {error}"
        ) from None


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
