"""When a life docks.

    live ──(battery low, no excursion under way, or urgent)──► dock ──► live
                                 └─(still low: pause, then retry; too many failures in a row: the life ends)

A robot whose `info` lacks `battery_low` and `battery_urgent` (0 or 1) is never sent to a dock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from horde_agent.life.robot import RobotInfo
from horde_agent.policies import real_number, whole_number
from horde_agent.saving import State, attributes, put_back

_STATE = ("n_done", "n_failed", "_is_low", "_is_urgent", "_n_failed_in_a_row", "_not_before")


@dataclass(frozen=True)
class DockingConfig:
    """When to retry a docking that failed to charge the battery.

    Attributes:
        pause_s: Time until the next attempt, in seconds.
        attempts: Number of failures in a row after which the life ends.

    Raises:
        ValueError: If the pause is negative or infinite, or `attempts` is not a whole number of at least 1.
    """

    pause_s: float = 30.0
    attempts: int = 5

    def __post_init__(self) -> None:
        if not 0.0 <= real_number("the pause between two dockings", self.pause_s) < math.inf:
            raise ValueError(f"the pause between two dockings must be finite and not negative, got {self.pause_s} s")
        if whole_number("the number of attempts at docking", self.attempts, 0) < 1:
            raise ValueError(f"there must be at least 1 attempt at docking, got {self.attempts}")


class Dockings:
    """Decides when to dock, from the battery's state in `info`.

    Args:
        config: When to retry.
        period_s: Duration of a step, in seconds.
        can_dock: Whether the robot can dock.

    Attributes:
        n_done: Dockings after which the battery was no longer low.
        n_failed: Dockings after which it was.
    """

    def __init__(self, config: DockingConfig, period_s: float, *, can_dock: bool) -> None:
        self.config = config
        self.n_done = self.n_failed = 0
        self._can_dock, self._pause = can_dock, round(config.pause_s / period_s)
        self._is_low = self._is_urgent = False
        self._n_failed_in_a_row = self._not_before = 0

    def update(self, info: RobotInfo) -> None:
        """Store the battery's state."""
        self._is_low, self._is_urgent = bool(info.battery_low), bool(info.battery_urgent)

    def state(self) -> State:
        """Return everything that later decisions depend on."""
        return attributes(self, *_STATE)

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        put_back(self, state, *_STATE)

    def is_due(self, step: int, *, in_excursion: bool) -> bool:
        """Return whether to dock now; unless it is urgent, a test excursion is finished first."""
        is_wanted = self._is_low and self._can_dock and step >= self._not_before
        return is_wanted and (self._is_urgent or not in_excursion)

    def return_at(self, step: int) -> None:
        """Count a docking that is over at `step`; call `update` first."""
        if self._is_low:
            self.n_failed, self._n_failed_in_a_row = self.n_failed + 1, self._n_failed_in_a_row + 1
            self._not_before = step + self._pause
        else:
            self.n_done, self._n_failed_in_a_row = self.n_done + 1, 0

    @property
    def has_failed(self) -> bool:
        """Whether too many dockings in a row failed to charge the battery."""
        return self._n_failed_in_a_row >= self.config.attempts

    def failure(self, step: int) -> str:
        """Return the log message with which the life ends."""
        return (
            f"the life ends after {step} steps: the battery is low, and {self.config.attempts} dockings in a row did "
            f"not charge it. Put the robot on its dock by hand, and check the beacon and the contacts"
        )
