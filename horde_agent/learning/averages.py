"""Averages of the weights: predictions are read from them, while learning continues from the latest weights.

    theta_bar := theta_bar + r (theta - theta_bar)
    r = max(1 - (t / t')^5, 1 - exp(-(t' - t) / H))
    prediction = theta_bar.phi + d,  d := d + (1/n) ((theta - theta_bar).phi_t - d)

at learning step t', the latest average being of step t. The first term is polynomial-decay averaging,
in which the weights of step s count as much as s^4: the latest fifth of a life counts most, however
long the life is. The second one bounds the memory to the latest H steps, so that a world that has
changed is learned again in the same time at any age. A large step size keeps up with the world; the
average takes out the noise that it leaves in the weights.

An average lags behind a signal that drifts, such as a battery's voltage. What all states have in common
of that lag is the shift d, a mean of (theta - theta_bar).phi: one number per demon, with little noise.
It is sampled every 128 steps, n being an eighth of the samples so far, at most 8, a thousand steps.

The first average is of step H/10, at most 1,024; until then a demon predicts from its weights, as one
that was added does until the next average. Between two averages are 1/16 of the steps so far, at least
64 and at most H/10. Of a policy with more than a thousand demons a few hundred move at a time, within the
63 steps from an average's (`SpanEngine.move_averages`): then theta is that of a step of these.

Source: Polyak & Juditsky (1992), Acceleration of stochastic approximation by averaging; Shamir & Zhang
(2013), Stochastic gradient descent for non-smooth optimization, section 4: theta_bar_t = (1 - (eta +
1) / (t + eta)) theta_bar_{t-1} + (eta + 1) / (t + eta) theta_t, here with eta = 4 and over more than one
step, as the limit of many small ones. The shift is this program's own.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from horde_agent.learning.stored import DEMON, Field, Fields, Stored
from horde_agent.types import Floats

DECAY = 4
"""Power of the step that is a step's share in the average: eta."""
STEPS_PER_AVERAGE = 16
"""The steps so far over those until the next average."""
AVERAGES_PER_HORIZON = 10
"""Averages in H steps, at least."""
BATCH = 64
"""The shortest interval; others end at its multiples, so that deferred steps are processed in whole batches."""
FIRST = STEPS_PER_AVERAGE * BATCH
"""Learning step of the first average, at the latest."""
STEPS_PER_SAMPLE = 2 * BATCH
"""Steps between two samples of the shift."""
N_SAMPLES = 8
"""Samples that the shift is a mean of, about."""
SAMPLES_PER_SAMPLE = 8
"""Samples so far over those of the mean, until these are `N_SAMPLES`."""


class WeightAverages(Stored):
    """When the averages of a Horde's demons move toward their weights, by how much, and their shifts.

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
        sample_at: Learning step of the next sample of the shifts.
        due_at: Learning step of the earlier of the two.
        has_average: Mask of demons that have an average, shape (n_demons,).
        shift: What is added to each demon's averaged prediction, d, shape (n_demons,).
        n_samples: Number of samples of each shift, shape (n_demons,).
    """

    FIELDS: ClassVar[Fields] = {
        "born_at": Field(DEMON),
        "averaged_at": Field(),
        "next_at": Field(),
        "restarted_at": Field(),
        "sample_at": Field(),
        "due_at": Field(),
        "has_average": Field(DEMON),
        "shift": Field(DEMON, diverged=0.0, merge=np.mean),
        "n_samples": Field(DEMON),
    }

    def __init__(self, horizon: float, n_demons: int) -> None:
        self._horizon = horizon
        self.born_at = np.zeros(n_demons, dtype=np.int64)
        self.averaged_at = 0
        self.restarted_at = 0
        self.next_at = self._after(0, FIRST)
        self.sample_at = _next_sample(self.next_at)
        self.due_at = min(self.next_at, self.sample_at)
        self.has_average = np.zeros(n_demons, dtype=bool)
        self.shift = np.zeros(n_demons)
        self.n_samples = np.zeros(n_demons, dtype=np.int64)

    def advance(self, now: int) -> Floats:
        """Return r of each demon for an average at learning step `now`, (n_demons,), and schedule the next one."""
        age = now - self.born_at
        age_before = np.maximum(self.averaged_at - self.born_at, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            of_decay = 1.0 - (age_before / age) ** (DECAY + 1)
        of_horizon = -np.expm1(-(age - age_before) / self._horizon)
        rates = np.where(age > 0, np.maximum(of_decay, of_horizon), 0.0)
        self.averaged_at = now
        self.has_average[:] = self.born_at < now
        interval = max((now - self.restarted_at) // STEPS_PER_AVERAGE, BATCH)
        self.next_at = self._after(now, interval)
        self.due_at = min(self.next_at, self.sample_at)
        return np.asarray(rates)

    def _after(self, now: int, interval: int) -> int:
        """Return the learning step about `interval` steps, at most H/10, after step `now`."""
        longest = max(int(self._horizon) // AVERAGES_PER_HORIZON, 1)
        if longest < BATCH:
            return now + longest
        return (now + min(interval, longest)) // BATCH * BATCH

    def sample(self, difference: Floats, now: int) -> None:
        """Move the shifts toward a difference of latest and averaged predictions, (n_demons,), at step `now`.

        The shift of a demon without an average stays 0.
        """
        self.n_samples += self.has_average
        rate = self.has_average / np.clip(self.n_samples / SAMPLES_PER_SAMPLE, 1.0, N_SAMPLES)
        self.shift += rate * (difference - self.shift)
        self.sample_at = _next_sample(now)
        self.due_at = min(self.next_at, self.sample_at)

    def restart(self, now: int) -> None:
        """Begin all averages again at learning step `now`, as for weights that were set."""
        self.born_at[:] = now
        self.averaged_at = now
        self.restarted_at = now
        self.has_average[:] = False
        self.next_at = self._after(now, FIRST)
        self.sample_at = _next_sample(self.next_at)
        self.due_at = min(self.next_at, self.sample_at)
        self.shift[:] = 0.0
        self.n_samples[:] = 0


def _next_sample(now: int) -> int:
    """Return the learning step of the first sample after step `now`."""
    return (now // STEPS_PER_SAMPLE + 1) * STEPS_PER_SAMPLE
