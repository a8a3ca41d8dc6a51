"""Experience: a robot's side of a life: how it behaves, its current observation, and counts of its faults."""

from __future__ import annotations

import logging
from typing import Any

import gymnasium
import numpy as np

from horde_agent.interface import Interface, readable
from horde_agent.life.excursions import DockingConfig, Dockings, ExcursionConfig, Excursions
from horde_agent.life.flags import is_broken
from horde_agent.life.process_env import ProcessEnv
from horde_agent.life.robot import UNKNOWN_POSE, RobotBody, RobotInfo, UnfitResult
from horde_agent.life.timing import LATE_S, Durations
from horde_agent.policies import BehaviourPolicy
from horde_agent.record import Flag, Observation, Phase
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

_STATE = (
    *(
        "steps",
        "gaps",
        "crc_errors",
        "deadlines_missed",
        "n_clipped",
        "t",
        "n_not_applied",
        "_n_not_applied_in_a_row",
    ),
    *("link_losses", "s_without_link", "_has_begun", "_flags", "_is_observed"),
    *("n_not_finite", "_follows_not_finite", "_is_resumed"),
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


class Experience:
    """The part of a life that does not learn: arguments and attributes are those of `Life`."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        behaviour: BehaviourPolicy,
        rng: np.random.Generator,
        interface: Interface,
        excursions: ExcursionConfig | None,
        docking: DockingConfig | None,
    ) -> None:
        _check_behaviour(behaviour, len(interface.actions))
        env = readable(env)
        self.env = env
        self.behaviour = behaviour
        self.rng = generator(rng)
        self.interface = interface
        self.body = RobotBody(env)
        self._process_env: ProcessEnv | None = None
        if isinstance(env, ProcessEnv):
            self._process_env = env
        self.excursions = Excursions([], excursions)
        self.dockings = Dockings(
            docking or DockingConfig(), interface.period_s, can_dock=self.body.can_dock
        )
        self.steps = self.gaps = self.crc_errors = self.deadlines_missed = self.n_clipped = 0
        self.t = np.nan
        self.n_not_applied = self._n_not_applied_in_a_row = 0
        self.link_losses: int | None = None
        self.s_without_link: float | None = None
        self.sensor_age_s = Durations()
        self.overrun_s = Durations()
        self._has_begun = False
        self._observation: Observation = np.zeros(0, dtype=np.float32)
        self._flags = int(Flag.NONE)
        self._pose = UNKNOWN_POSE
        self._tiles: Tiles | None = None  # of the current observation, once it was encoded
        self._is_observed = False
        low = interface.scaler.low
        high = interface.scaler.high
        self._is_unit = bool(
            (low == 0.0).all() and (high == 1.0).all()
        )  # observations go to the tile coder as they are
        self.n_not_finite = 0
        self._follows_not_finite = False  # the observation before had a reading that was not finite
        self._is_resumed = False  # it had begun, and cannot be restored: `begin` follows a gap

    @property
    def is_before_drive(self) -> bool:
        """True if a drive to the centre or the dock is next; it may begin late without harm to learning."""
        return self.excursions.is_over(broken=is_broken(self._flags)) or self._docks_next

    @property
    def _docks_next(self) -> bool:
        return self.dockings.is_due(
            self.steps, in_excursion=self.excursions.phase is Phase.EXCURSION
        )

    @property
    def is_observed(self) -> bool:
        """True if the student has observed the current observation."""
        return self._is_observed

    def set_position(self, step: int) -> None:
        """Set the step counter from the recording, for a robot that kept moving after the snapshot."""
        self.steps = step
        self._is_observed = True

    def _take(self, observation: Any, info: RobotInfo, flags: int) -> None:
        """Make an observation the current one, not yet observed by the student.

        If a reading is not finite, the observation repeats the one before it, as one that is stale
        does, and the next one is a gap.
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
                self.n_clipped += int(np.count_nonzero((values < 0.0) | (values > 1.0)))
                values = values.clip(0.0, 1.0)
        self._observation = values
        self._flags = flags
        self._tiles = None
        self._is_observed = False
        self.t = info.t
        self._pose = info.pose
        self.n_clipped += info.clipped
        self._count_damage(info)
        self.dockings.update(info)

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
        if self._is_unit:  # `reduce` takes half as long as the methods
            return bool(np.minimum.reduce(values) >= 0.0 and np.maximum.reduce(values) <= 1.0)
        return bool(np.isfinite(values).all())

    def _repeated(self, values: Observation) -> Observation:
        """Return the current observation; 0 in the place of readings that are not finite if there is none."""
        if self._observation.size:
            return self._observation
        return np.nan_to_num(values, posinf=0.0, neginf=0.0)

    def _count_not_finite(self, values: Observation) -> None:
        self.n_not_finite += 1
        if self.n_not_finite == 1:
            index = int(np.flatnonzero(~np.isfinite(values))[0])
            _log.warning(
                _NOT_FINITE, self.steps, self.interface.channels[index].name, values[index]
            )

    def _count_damage(self, info: RobotInfo) -> None:
        self.crc_errors += info.crc_errors
        if info.link_losses is not None and info.s_without_link is not None:
            self.link_losses = (self.link_losses or 0) + info.link_losses
            self.s_without_link = (self.s_without_link or 0.0) + info.s_without_link

    def _count_step(self, info: RobotInfo) -> None:
        """Count the faults of the step to the current observation; raise `BodyDisobeys` if no action gets applied."""
        if info.overrun_s is not None:
            self.overrun_s.add(info.overrun_s)
            self.deadlines_missed += info.overrun_s > LATE_S
        if info.sensor_age_s is not None:
            self.sensor_age_s.add(info.sensor_age_s)
        self.gaps += bool(self._flags & Flag.GAP)
        if not self._flags & Flag.NOT_APPLIED:
            self._n_not_applied_in_a_row = 0
            return
        self.n_not_applied = self.n_not_applied + 1
        self._n_not_applied_in_a_row = self._n_not_applied_in_a_row + 1
        patience = round(PATIENCE_S / self.interface.period_s)
        if self._n_not_applied_in_a_row >= patience and not info.obeyed:
            raise BodyDisobeys(self.steps, self.body.disobedience)
        if self._n_not_applied_in_a_row == patience:
            _log.warning("no action was applied for %g s; learning was paused", PATIENCE_S)

    def _state_of_robot(self) -> State:
        behaviour: State = getattr(self.behaviour, "state", dict)()
        current = {
            "observation": self._observation.copy(),
            "pose": np.array(self._pose),
            "tiles": np.zeros(0) if self._tiles is None else self._tiles.copy(),
        }
        return nested(
            excursions=self.excursions.state(),
            dockings=self.dockings.state(),
            behaviour=behaviour,
            now=current,
            own=attributes(self, *_STATE),
            world=self.body.save_state() if self.body.is_restorable and self._has_begun else {},
            rng=generator_state(self.rng),
        )

    def _restore_robot(self, state: State) -> None:
        self.excursions.restore(inner(state, "excursions"))
        self.dockings.restore(inner(state, "dockings"))
        restore_behaviour = getattr(self.behaviour, "restore", None)
        if restore_behaviour is not None:
            restore_behaviour(inner(state, "behaviour"))
        attributes_then = inner(state, "own")
        names = [name for name in _STATE if name in attributes_then]  # older snapshots lack some
        put_back(self, attributes_then, *names)
        current = inner(state, "now")
        world = inner(state, "world")
        self._observation = current["observation"].copy()
        self._pose = tuple(current["pose"].tolist())
        self._tiles = None
        if current["tiles"].dtype.kind != "f":
            self._tiles = current["tiles"].copy()
        if world:
            self.env.reset(seed=0)  # opens the robot; its state is replaced
            self.body.restore_state(world)
        elif self._has_begun:
            self.excursions.cancel()
            self._has_begun = False
            self._is_resumed = True
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
