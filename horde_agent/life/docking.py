"""When a life goes to its dock: the body says that its battery is low, the life asks for the manoeuvre and lives on.

    live ──(battery low, no excursion under way, or urgent)──► dock ──► live
                                 └─(still low afterwards: a pause, then again; in vain too often: the life ends)

The body speaks through `info`: `battery_low`, `battery_urgent` (0 or 1). A body that does not is never sent to a dock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from horde_agent.policies import real_number, whole_number
from horde_agent.saving import State, attributes, put_back

_STATE = ("n_done", "n_failed", "_is_low", "_is_urgent", "_n_in_vain", "_not_before")


@dataclass(frozen=True)
class DockingConfig:
    """How a life deals with a docking that did not help.

    Attributes:
        pause_s: How long it lives on before it tries again, in seconds.
        attempts: How many in a row may fail before the life ends.

    Raises:
        ValueError: If the pause is no number of seconds from 0 on, or the attempts no whole number of at least 1.
    """

    pause_s: float = 30.0
    attempts: int = 5

    def __post_init__(self) -> None:
        if not 0.0 <= real_number("the pause between two dockings", self.pause_s) < math.inf:
            raise ValueError(f"the pause between two dockings must not be negative or endless, got {self.pause_s} s")
        if whole_number("the number of attempts at docking", self.attempts, 0) < 1:
            raise ValueError(f"there must be at least 1 attempt at docking, got {self.attempts}")


class Dockings:
    """Decides when to dock, from what `info` says of the battery.

    Args:
        config: What to do after a failure.
        period_s: Duration of a step, in seconds.
        can_dock: Whether the body has such a manoeuvre at all.

    Attributes:
        n_done: Stays after which the battery was no longer low.
        n_failed: The others.
    """

    def __init__(self, config: DockingConfig, period_s: float, *, can_dock: bool) -> None:
        self.config = config
        self.n_done = self.n_failed = 0
        self._can_dock, self._pause = can_dock, round(config.pause_s / period_s)
        self._is_low = self._is_urgent = False
        self._n_in_vain = self._not_before = 0

    def see(self, info: Mapping[str, Any]) -> None:
        """Take in what the newest frame says of the battery."""
        self._is_low, self._is_urgent = bool(info.get("battery_low", 0)), bool(info.get("battery_urgent", 0))

    def state(self) -> State:
        """Return what the coming decisions depend on."""
        return attributes(self, *_STATE)

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        put_back(self, state, *_STATE)

    def is_due(self, step: int, *, in_excursion: bool) -> bool:
        """Tell whether to dock now; a test excursion is let finish unless it is urgent."""
        wanted = self._is_low and self._can_dock and step >= self._not_before
        return wanted and (self._is_urgent or not in_excursion)

    def return_at(self, step: int) -> None:
        """Note that a stay is over at `step`, after `see` has told whether it helped."""
        if self._is_low:
            self.n_failed, self._n_in_vain = self.n_failed + 1, self._n_in_vain + 1
            self._not_before = step + self._pause
        else:
            self.n_done, self._n_in_vain = self.n_done + 1, 0

    @property
    def is_hopeless(self) -> bool:
        """Whether too many stays in a row did not help."""
        return self._n_in_vain >= self.config.attempts

    def complaint(self, step: int) -> str:
        """Return why the life ends here."""
        return (
            f"the life ends after {step} steps: the battery is low, and {self.config.attempts} stays at the dock in a "
            f"row did not help; put the robot on its dock by hand and look at the beacon and the contacts"
        )
