"""When a life interrupts its behaviour: test excursions and dockings.

    behave ──(1/50 per step)──► excursion ──(50 steps, a gap, or an action not applied)──► centre ──► behave
    behave ──(battery low, no excursion under way, or urgent)──► dock ──► behave
                                 └─(still low: pause, then retry; after too many failures
                                    in a row the life ends)

An excursion suspends learning, follows one target policy, and compares the return
(`scoring/returns.py`) with its prediction. Its actions are drawn from the policy's own
probabilities, which are recorded as b and enter no ratio. A robot whose `info` lacks `battery_low`
and `battery_urgent` (0 or 1) is never sent to a dock.

Source: White, Modayil & Sutton (2012), section 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from horde_agent.policies import BehaviourPolicy
from horde_agent.record import BROKEN, ENDS_TEST, NO_ACTION, NO_POLICY, UNFIT, Phase
from horde_agent.refusals import number_in, real_number, whole_number
from horde_agent.saving import State, attributes, put_back
from horde_agent.scoring.returns import PolicyUnderTest
from horde_agent.types import Floats, Tiles

__all__ = [
    "BehaviourPolicy",
    "Choice",
    "DockingConfig",
    "Dockings",
    "ExcursionConfig",
    "Excursions",
]


@dataclass(frozen=True)
class ExcursionConfig:
    """When an excursion begins and how long it lasts.

    Raises:
        ValueError: If the probability is not in [0, 1], or the horizon not a whole number of at
            least 1.
    """

    # Probability of an interruption before each behaviour action, in [0, 1]
    probability: float = 1 / 50
    horizon: int = 50  # steps of an excursion, and terms of the truncated return
    # Whether to make excursions also in an environment that cannot drive back to the centre: the
    # behaviour then goes on from where the excursion ended
    without_drive: bool = False

    def __post_init__(self) -> None:
        number_in("excursion probability", self.probability, "[0, 1]")
        whole_number("excursion horizon", self.horizon, 1)


class Choice(NamedTuple):
    """What to do from an observation."""

    phase: Phase  # of the life
    action: int  # the discrete action, NO_ACTION for a drive
    b: float  # probability with which it was drawn
    policy: int = NO_POLICY  # tag of the policy that an excursion follows, or NO_POLICY


class Excursions:
    """The state machine behave, excursion, centre, of the policies to test; `phase` is the current one."""

    def __init__(
        self, policies: Sequence[PolicyUnderTest], config: ExcursionConfig | None = None
    ) -> None:
        self.policies = list(policies)
        self.config = config or ExcursionConfig()
        self.phase = Phase.BEHAVE
        self._followed: PolicyUnderTest | None = None
        self._n_taken = 0

    def choose(
        self,
        behaviour: BehaviourPolicy,
        rng: np.random.Generator,
        observation: Floats,
        tiles: Tiles,
        flags: int,
    ) -> Choice:
        """Choose what to do from an observation.

        Args:
            behaviour: The behaviour policy.
            rng: Source of the interruption, of the tested policy and of the action, in this order.
            observation: In the environment's own units, float64, shape (n_inputs,).
            tiles: Its active features, shape (n_active,).
            flags: How the observation came about, `Flag`: an excursion ends at once at one of
                ENDS_TEST, the behaviour forgets its last action at one of BROKEN, and no excursion
                begins at one of UNFIT; the same random numbers are drawn.

        Returns:
            The choice; after phase CENTRE drive to the centre, then call `choose` again.
        """
        if self.phase is Phase.EXCURSION:
            if self._followed is not None and not self.is_over(flags):
                return self._follow(self._followed, rng, observation, tiles)
            self.phase = Phase.CENTRE
            self._followed = None
            return Choice(Phase.CENTRE, NO_ACTION, np.nan)
        self.phase = Phase.BEHAVE
        if flags & BROKEN:
            behaviour.forget()
        if self.policies and rng.random() < self.config.probability and not flags & UNFIT:
            self.phase = Phase.EXCURSION
            self._n_taken = 0
            self._followed = self.policies[int(rng.integers(len(self.policies)))]
            return self._follow(self._followed, rng, observation, tiles)
        return Choice(Phase.BEHAVE, *behaviour.draw(rng, observation, tiles))

    def is_over(self, flags: int) -> bool:
        """Return whether an excursion ends now, at an observation with these flags, with a drive to the centre."""
        is_whole = self._followed is None or self._n_taken == self.config.horizon
        return self.phase is Phase.EXCURSION and (is_whole or bool(flags & ENDS_TEST))

    def rearrange(self, policies: Sequence[PolicyUnderTest]) -> None:
        """Replace the policies to test; an excursion ends at the next choice if its policy is not among them."""
        self.policies = list(policies)
        if self._followed:
            self._followed = self._named(self._followed.name)
        else:
            self._followed = None

    def _named(self, name: str) -> PolicyUnderTest | None:
        return next((policy for policy in self.policies if policy.name == name), None)

    def _follow(
        self, policy: PolicyUnderTest, rng: np.random.Generator, observation: Floats, tiles: Tiles
    ) -> Choice:
        self._n_taken += 1
        return Choice(Phase.EXCURSION, *policy.draw(rng, observation, tiles), policy.tag)

    def state(self) -> State:
        """Return everything that later choices depend on."""
        followed = ""
        if self._followed is not None:
            followed = self._followed.name
        return attributes(self, "_n_taken") | {
            "phase": np.array(int(self.phase)),
            "followed": np.array(followed),
        }

    def restore(self, state: State) -> None:
        """Continue from what `state` returned, with the same policies."""
        put_back(self, state, "_n_taken")
        self.phase = Phase(int(state["phase"]))
        self._followed = self._named(str(state["followed"]))

    def cancel(self) -> None:
        """End an excursion without a drive to the centre, because the environment was reset."""
        self.phase = Phase.BEHAVE
        self._followed = None


# ---- dockings -------------------------------------------------------------------------------------------------------

_DOCKING_STATE = (
    "n_done",
    "n_failed",
    "is_low",
    "is_urgent",
    "_n_failed_in_a_row",
    "_not_before",
)


@dataclass(frozen=True)
class DockingConfig:
    """When to retry a docking that failed to charge the battery.

    Raises:
        ValueError: If the pause is negative or infinite, or `attempts` is not a whole number of at
            least 1.
    """

    pause_s: float = 30.0  # time until the next attempt, in seconds
    attempts: int = 5  # number of failures in a row after which the life ends

    def __post_init__(self) -> None:
        if not 0.0 <= real_number("the pause between two dockings", self.pause_s) < math.inf:
            raise ValueError(
                f"the pause between two dockings must be finite and not negative, got {self.pause_s} s"
            )
        whole_number("the number of attempts at docking", self.attempts, 1)


class Dockings:
    """Decides when to dock, from the battery's state in `info`.

    Attributes:
        n_done: Dockings after which the battery was no longer low.
        n_failed: Dockings after which it was.
        is_low: Whether the battery is low, as `info` said last.
        is_urgent: Whether a test excursion is interrupted for it.
    """

    def __init__(self, config: DockingConfig, period_s: float, *, can_dock: bool) -> None:
        self.config = config
        self.n_done = self.n_failed = 0
        self._can_dock = can_dock
        self._pause = round(config.pause_s / period_s)
        self.is_low = False
        self.is_urgent = False
        self._n_failed_in_a_row = self._not_before = 0

    def state(self) -> State:
        """Return everything that later decisions depend on."""
        return attributes(self, *_DOCKING_STATE)

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        put_back(self, state, *_DOCKING_STATE)

    def is_due(self, step: int, *, in_excursion: bool) -> bool:
        """Return whether to dock now; unless it is urgent, a test excursion is finished first."""
        is_wanted = self.is_low and self._can_dock and step >= self._not_before
        return is_wanted and (self.is_urgent or not in_excursion)

    def return_at(self, step: int) -> None:
        """Count a docking that is over at `step`, by the battery's state there."""
        if self.is_low:
            self.n_failed += 1
            self._n_failed_in_a_row += 1
            self._not_before = step + self._pause
        else:
            self.n_done += 1
            self._n_failed_in_a_row = 0

    @property
    def has_failed(self) -> bool:
        """True if too many dockings in a row failed to charge the battery."""
        return self._n_failed_in_a_row >= self.config.attempts

    def failure(self, step: int) -> str:
        """Return the log message with which the life ends."""
        return (
            f"the life ends after {step} steps: the battery is low, and {self.config.attempts} dockings in a row did "
            f"not charge it. Put the robot on its dock by hand, and check the beacon and the contacts"
        )
