"""Averages of the weights: what is read of a Horde, while learning goes on from the latest weights.

    theta_bar := theta_bar + r (theta - theta_bar)
    r = max(1 - (t / t')^9, 1 - exp(-(t' - t) / H))

at learning step t', the latest average being of step t. The first term is polynomial-decay averaging,
in which the weights of step s count as much as s^8: the latest tenth of a life counts most, however
long the life is. The second one bounds the memory to the latest H steps, so that a world that has
changed is learned anew in the same time at any age. A large step size keeps up with the world; the
average takes out the noise that it leaves in the weights.

Between two averages are 1/32 of the steps so far, at most H/10: for an hour and more the cost does
not matter, and in the first minutes the average is hardly behind. A demon that was added predicts from
its weights until its first average.

Source: Polyak & Juditsky (1992), Acceleration of stochastic approximation by averaging; Shamir & Zhang
(2013), Stochastic gradient descent for non-smooth optimization, section 4: theta_bar_t = (1 - (eta +
1) / (t + eta)) theta_bar_{t-1} + (eta + 1) / (t + eta) theta_t, here with eta = 8 and over more than one
step, as the limit of many small ones.
"""

from __future__ import annotations

import numpy as np

from horde_agent.learning.engine import NEWCOMER
from horde_agent.saving import State, attributes, put_back
from horde_agent.types import Bools, Floats, Integers

DECAY = 8
"""Power of the step that is a step's share in the average: eta."""
STEPS_PER_AVERAGE = 32
"""The steps so far over those until the next average."""
AVERAGES_PER_HORIZON = 10
"""Averages in H steps, at least."""
_STATE = ("born_at", "averaged_at", "next_at", "restarted_at")


class AverageSchedule:
    """When the averages of a Horde's demons move toward their weights, and by how much.

    All demons move at the same steps, which do not depend on the demons: shards then process queued
    steps at the same time as the whole Horde, and learn the same bits.

    Args:
        horizon: H, in learning steps, at least 1.
        n_demons: Number of demons.

    Attributes:
        born_at: Learning step at which each demon began, shape (n_demons,).
        averaged_at: Learning step of the latest average.
        next_at: Learning step of the next one.
        restarted_at: Learning step at which all averages began, 0 unless weights were set.
    """

    def __init__(self, horizon: float, n_demons: int) -> None:
        self._horizon = horizon
        self.born_at = np.zeros(n_demons, dtype=np.int64)
        self.averaged_at = 0
        self.next_at = 1
        self.restarted_at = 0

    @property
    def is_empty(self) -> Bools:
        """Mask of demons that have no average yet, shape (n_demons,)."""
        return np.asarray((self.born_at > 0) & (self.born_at >= self.averaged_at))

    def advance(self, now: int) -> Floats:
        """Return r of each demon for an average at learning step `now`, (n_demons,), and schedule the next one."""
        age = now - self.born_at
        age_before = np.maximum(self.averaged_at - self.born_at, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            of_decay = 1.0 - (age_before / age) ** (DECAY + 1)
        of_horizon = -np.expm1(-(age - age_before) / self._horizon)
        rates = np.where(age > 0, np.maximum(of_decay, of_horizon), 0.0)
        longest = max(int(self._horizon) // AVERAGES_PER_HORIZON, 1)
        interval = min(max((now - self.restarted_at) // STEPS_PER_AVERAGE, 1), longest)
        self.averaged_at = now
        self.next_at = now + interval
        return np.asarray(rates)

    def restart(self, now: int) -> None:
        """Begin all averages again at learning step `now`, as for weights that were set."""
        self.born_at[:] = now
        self.averaged_at = now
        self.next_at = now + 1
        self.restarted_at = now

    def rearrange(self, old_index: Integers, now: int) -> None:
        """Continue with other demons at learning step `now`; `old_index`, (n_demons,), is as in `DemonMapping`."""
        is_new = old_index == NEWCOMER
        self.born_at = np.where(is_new, now, self.born_at[old_index])

    def copy_from(self, other: AverageSchedule) -> None:
        """Continue as the schedule of another Horde of the same demons."""
        self.restore(other.state())

    def state(self) -> State:
        """Return copies of the state, by name."""
        return attributes(self, *_STATE)

    def restore(self, state: State) -> None:
        """Restore a state of the same demons."""
        put_back(self, state, *_STATE)
