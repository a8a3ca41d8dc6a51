"""E-detector: an alarm on several series whose mean time between false alarms is a number that the caller chooses.

The newest value of each series gets a rank p among its earlier ones, ties broken at random. If a series is
exchangeable, p is uniform on (0, 1], whatever the distribution of the values, and so

    e = mean over j of 2^j where p <= 2^-j, else 0      has the mean 1
    R <- (1 + R) e                                      Shiryaev-Roberts: the evidence, over all possible beginnings

R minus the number of values is a martingale, and so is its mean over series and tests, whatever their
dependence. An alarm when that mean reaches a threshold T therefore comes after T values or more on average,
for any T: no quantile is estimated, and nothing is tuned. There are two tests of a value: it rises, it falls.
The bets 2^j share the stake evenly: with p^(kappa - 1) instead, a rank of 1/1000 brings a third as much. The largest
is 64: larger ones find faults a few values earlier, and a short spell of extreme values is an alarm, too.
An alarm is raised if the mean is at T for `n_confirming` values in a row: later than at first, never earlier.

Machines have spells, at a wall or a dock, in which values are not exchangeable. A test is therefore discounted if its
R, or that of a series of the same group, once reached M and fell again below 1: n values after the first test it
counts divided by (M / n)^1.5, if M / n is above 1. By chance the largest of n values is near n; where spells are
longer than by chance, the next one may be longer still, hence the power: with M / n alone there were twice as many
false alarms. This makes alarms later, never earlier, so that the bound stays.

Assumption: a value's rank is uniform given the ranks before it. It holds if values are exchangeable and all earlier
ones are compared with. Here they are the `WINDOW` values before the last `HOLD` ones, so that a change is not
compared with itself: the ranks share their references, and the mean of R is a little above the number of values.
Values that depend on the ones before, or drift, break it: `scoring.surprise` removes what it can.

Source: Shin, Ramdas & Rinaldo (2024), E-detectors: a nonparametric framework for sequential change detection,
https://arxiv.org/abs/2203.03532, theorem 2.4 and section 3.1; Vovk, Gammerman & Shafer (2022), Algorithmic learning in
a random world, chapter 8, for ranks and calibrators.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from horde_agent.kernels.evidence import bet_on_ranks, count_references, discount, note_peaks
from horde_agent.saving import State, attributes, put_back
from horde_agent.types import Bools, Floats, Integers

WINDOW = 1000  # values that a new one is compared with
HOLD = 24  # newest values that are not compared with yet
BURN_IN = 200  # values before the first test
STARTS = 300  # values back to which a beginning is looked for
PLAUSIBLE = 20.0  # ratio of evidence within which a beginning is as plausible as the best one
_SAVED = (
    "evidence",
    "is_muted",
    "n",
    "n_tested",
    "_peak",
    "_record",
    "_held",
    "_was_muted",
    "_references",
    "_n_references",
    "_log_e",
    "_n_at_threshold",
    "_labels",
)

N_VALUES = 4  # of a series
N_TESTS = 2 * N_VALUES
"""Test k < N_VALUES: value k rises. Test N_VALUES + k: it falls."""


class Beginning(NamedTuple):
    """When a change began: the label of the likeliest value, and of the first and last plausible ones."""

    likeliest: int
    first: int
    last: int


class EDetector:
    """Watches series of `N_VALUES` values each.

    Args:
        n_series: Number of series.
        threshold: T, the mean number of values between false alarms, above 1.
        seed: Of the numbers that break ties.
        groups: Number of the group of each series, from 0, shape (n_series,); None if each is one.
        n_confirming: Values in a row at the threshold that raise an alarm.

    Attributes:
        evidence: R of each test and series, shape (N_TESTS, n_series).
        is_muted: Series that are not tested and whose values are no references, shape (n_series,).
        n: Number of values so far.
        n_tested: Number of them since the first test.
    """

    def __init__(
        self,
        n_series: int,
        threshold: float,
        seed: int = 0,
        groups: Integers | None = None,
        n_confirming: int = 1,
    ) -> None:
        self.threshold = threshold
        self._groups = np.arange(n_series)
        if groups is not None:
            self._groups = groups
        n_groups = int(self._groups.max()) + 1
        self.evidence: Floats = np.zeros((N_TESTS, n_series))
        self.is_muted: Bools = np.zeros(n_series, dtype=np.bool_)
        self.n = 0
        self.n_tested = 0
        self._peak: Floats = np.zeros((N_TESTS, n_series))  # of the evidence since it was below 1
        self._record: Floats = np.zeros((N_TESTS, n_groups))  # the largest peak before
        self._n_confirming = n_confirming
        self._n_at_threshold = 0  # newest values in a row
        self._seed = seed
        self._held: Floats = np.zeros((HOLD, N_VALUES, n_series), dtype=np.float32)
        self._was_muted: Bools = np.zeros((HOLD, n_series), dtype=np.bool_)
        self._references: Floats = np.zeros((WINDOW, N_VALUES, n_series), dtype=np.float32)
        self._n_references = 0
        self._counts: Integers = np.zeros((2, N_VALUES, n_series), dtype=np.int64)
        self._log_e: Floats = np.zeros((STARTS, N_TESTS, n_series), dtype=np.float32)
        self._labels: Integers = np.zeros(STARTS, dtype=np.int64)
        # Compiled here, and not hours later in the middle of a life
        self._bet(self._held[0], n_references=0, log_e=np.zeros_like(self._log_e[0]))
        self.evidence[:] = 0.0
        self._note_peaks(ends_below=1.0)
        discount(self.evidence, self._groups, self._record, 1, np.zeros_like(self.evidence))

    @property
    def total(self) -> float:
        """The mean of the discounted evidence, which an alarm compares with the threshold."""
        discounted = np.zeros_like(self.evidence)
        total = discount(self.evidence, self._groups, self._record, self.n_tested, discounted)
        return float(total)

    @property
    def discounted(self) -> Floats:
        """Evidence over what earlier spells of its group would lead one to expect, shape (N_TESTS, n_series)."""
        discounted = np.zeros_like(self.evidence)
        discount(self.evidence, self._groups, self._record, self.n_tested, discounted)
        return discounted

    @property
    def is_ready(self) -> bool:
        """Whether there are enough values to compare with."""
        return self._n_references >= BURN_IN

    def update(self, values: Floats, label: int) -> bool:
        """Add a value of each series, shape (N_VALUES, n_series), and return whether it raises an alarm.

        Values are compared as float32. `label` names them where a beginning is reported.
        """
        values = values.astype(np.float32)
        place = self.n % STARTS
        self._labels[place] = label
        self._log_e[place] = 0.0
        if self.is_ready:
            self._bet(values, min(self._n_references, WINDOW), self._log_e[place])
            self.n_tested += 1
            self._note_peaks(ends_below=1.0)
        self._store(values)
        self.n += 1
        self._n_at_threshold += 1
        if self.total < self.threshold:
            self._n_at_threshold = 0
        return self._n_at_threshold >= self._n_confirming

    def _note_peaks(self, ends_below: float) -> None:
        note_peaks(self.evidence, ends_below, self._groups, self._peak, self._record)

    def _bet(self, values: Floats, n_references: int, log_e: Floats) -> None:
        """Multiply the evidence by the e-values of the newest values, and write their logarithms."""
        references = self._references[:n_references].reshape(n_references, values.size)
        n_above, n_equal = self._counts
        count_references(references, values.ravel(), n_above.ravel(), n_equal.ravel())
        # Of the number of values alone, so that a resumed run draws the same
        shares = np.random.default_rng([self._seed, self.n]).random(values.shape)
        bet_on_ranks(n_above, n_equal, n_references, shares, self.is_muted, self.evidence, log_e)

    def _store(self, values: Floats) -> None:
        """Hold the newest values, and make the oldest held ones references."""
        place = self.n % HOLD
        if self.n >= HOLD:
            slot = self._n_references % WINDOW
            released = self._held[place]
            substitutes = self._references[slot]
            if self._n_references < WINDOW:
                substitutes = self._references[slot - 1]
            is_no_reference = self.is_muted | self._was_muted[place]
            self._references[slot] = np.where(is_no_reference, substitutes, released)
            self._n_references += 1
        self._held[place] = values
        self._was_muted[place] = self.is_muted

    def beginning(self, test: int, series: int) -> Beginning:
        """Return when the evidence of a test of a series began: where its product of e-values is largest."""
        n_kept = min(self.n, STARTS)
        places = np.arange(self.n - n_kept, self.n) % STARTS
        log_e = self._log_e[places, test, series].astype(np.float64)
        log_evidence = np.cumsum(log_e[::-1])[::-1]
        least = log_evidence.max() - math.log(PLAUSIBLE)
        plausible = np.flatnonzero(log_evidence >= least)
        labels = self._labels[places]
        return Beginning(
            likeliest=int(labels[log_evidence.argmax()]),
            first=int(labels[plausible[0]]),
            last=int(labels[plausible[-1]]),
        )

    def n_since(self, label: int) -> int:
        """Return the number of values from the one with a label on."""
        n_kept = min(self.n, STARTS)
        places = np.arange(self.n - n_kept, self.n) % STARTS
        return int(np.count_nonzero(self._labels[places] >= label))

    def restart(self) -> None:
        """Set the evidence to 0, as after an alarm: later beginnings are looked for from here on. References stay."""
        self._note_peaks(ends_below=math.inf)
        self.evidence[:] = 0.0
        self._n_at_threshold = 0
        self._log_e[:] = -np.inf  # no beginning is before it

    def state(self) -> State:
        """Return everything that later alarms depend on."""
        return attributes(self, *_SAVED)

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        put_back(self, state, *_SAVED)
