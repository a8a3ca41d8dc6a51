"""Classical conditioning as streams without actions: trace conditioning, trace patterning and noisy patterning.

A trial begins with conditioned stimuli (CS), 4 steps long. The unconditioned stimulus (US), 2 steps
long, follows one inter-stimulus interval (ISI, onset to onset) later, and the next trial 80 to 120
steps after the onset of the US.

Source: Rafiee, Abbas, Ghiassian, Kumaraswamy, Sutton, Ludvig & White (2023), Adaptive Behavior 31,
    and their program.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import combinations
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from horde_agent.refusals import number_in
from horde_agent.types import Bools, Integers, RNGLike, generator

Signals = NDArray[np.float32]
US_STEPS = 2
CS_STEPS = 4
# Steps from the onset of the US to the next trial
SHORTEST_PAUSE = 80
LONGEST_PAUSE = 120
MEAN_STEPS_TO_DISTRACTOR = 10  # of the first distractor; of the k-th k times as many
MOST_DISTRACTORS = 10
BLOCK = 1_000  # trials drawn at a time

_LAYOUT = """
[[tiling]]
group = "stimulus"
intervals = [2]
tilings = 1
"""


class Conditioning(gymnasium.Env[Signals, np.int64], ABC):
    """A stream of trials; a subclass draws their CS and distractors.

    The observation has one number for each stimulus, 1 while it is on: the US, the CS, the
    distractors. The reward is the US. The one action has no effect, and an episode never ends.
    """

    def __init__(self, n_cs: int, n_distractors: int, isi: int, largest_deviation: int) -> None:
        if not 0 <= n_distractors <= MOST_DISTRACTORS:
            raise ValueError(f"n_distractors must be in 0..{MOST_DISTRACTORS}, not {n_distractors}")
        if not 0 <= largest_deviation < isi:
            raise ValueError(f"isi must be at least 1 step, not {isi}")
        self.isi = np.arange(
            isi - largest_deviation, isi + largest_deviation + 1
        )  # equally likely, in steps
        self.n_cs = n_cs
        self.n_distractors = n_distractors
        names = (
            "US",
            *(f"CS_{k}" for k in range(n_cs)),
            *(f"distractor_{k}" for k in range(n_distractors)),
        )
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (len(names),), np.float32)
        self.action_space = gymnasium.spaces.Discrete(1)
        channels = [
            {"name": name, "group": "stimulus", "unit": "1", "sensor": name == "US"}
            for name in names
        ]
        facts = {"channels": channels, "actions": ["wait"], "period_s": 1.0, "tile_layout": _LAYOUT}
        self.metadata = {"render_modes": []} | facts
        self._rows = np.zeros((1, len(names)), np.float32)
        self._k = 0

    def draw(self, rng: RNGLike, n_trials: int) -> Signals:
        """Return the observations of whole trials, float32 of shape (n_steps, n_stimuli)."""
        rng = generator(rng)
        isi = rng.choice(self.isi, n_trials)
        steps = isi + rng.integers(SHORTEST_PAUSE, LONGEST_PAUSE + 1, n_trials)
        start = np.cumsum(steps) - steps
        rows = np.zeros((int(steps.sum()), 1 + self.n_cs + self.n_distractors), np.float32)
        has_us = self._draw_cs(rng, rows[:, 1 : 1 + self.n_cs], start)
        self._draw_distractors(rng, rows[:, 1 + self.n_cs :], start)
        switch_on(rows[:, 0], (start + isi)[has_us], US_STEPS)
        return rows

    def stream(self, rng: RNGLike, n_steps: int) -> Signals:
        """Return the observations of n steps from the onset of a trial on, float32 of shape (n_steps, n_stimuli)."""
        return self.draw(rng, 1 + n_steps // SHORTEST_PAUSE)[:n_steps]

    @abstractmethod
    def _draw_cs(self, rng: np.random.Generator, rows: Signals, start: Integers) -> Bools:
        """Switch on the CS of trials that begin at `start`, (n_trials,); return which trials have a US."""

    @abstractmethod
    def _draw_distractors(self, rng: np.random.Generator, rows: Signals, start: Integers) -> None:
        """Switch on the distractors in `rows`, shape (n_steps, n_distractors)."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Signals, dict[str, Any]]:
        """Begin a trial."""
        super().reset(seed=seed, options=options)
        self._rows = self.draw(self.np_random, BLOCK)
        self._k = 0
        return self._rows[0].copy(), {}

    def step(self, action: np.int64) -> tuple[Signals, float, bool, bool, dict[str, Any]]:  # noqa: ARG002
        """Return the next observation and the US, whatever the action."""
        self._k += 1
        if self._k == len(self._rows):
            self._rows = self.draw(self.np_random, BLOCK)
            self._k = 0
        row = self._rows[self._k]
        return row.copy(), float(row[0]), False, False, {}


class TraceConditioning(Conditioning):
    """One CS, which the US follows in every trial.

    Args:
        isi: Mean interval from the onset of the CS to that of the US, in steps; each trial's
            deviates from it by at most a third.
        n_distractors: Number of stimuli that come at random.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(self, isi: int = 10, n_distractors: int = 0) -> None:
        super().__init__(1, n_distractors, isi, isi // 3)

    def _draw_cs(self, rng: np.random.Generator, rows: Signals, start: Integers) -> Bools:  # noqa: ARG002
        switch_on(rows[:, 0], start, CS_STEPS)
        return np.ones(len(start), dtype=bool)

    def _draw_distractors(self, rng: np.random.Generator, rows: Signals, start: Integers) -> None:  # noqa: ARG002
        """Switch on distractors: the k-th begins with probability 1 / (10 k) in each step in which it was off."""
        for k, column in enumerate(rows.T, 1):
            p = 1.0 / (k * MEAN_STEPS_TO_DISTRACTOR)
            n = int(2 * p * len(rows)) + 10
            onsets = np.cumsum(rng.geometric(p, n) + CS_STEPS) - CS_STEPS
            switch_on(column, onsets[onsets < len(rows)], CS_STEPS)


class Patterning(Conditioning):
    """Several CS: the US follows certain patterns of them, which half of the trials have.

    With the default interval the US begins as the CS end (noisy patterning); with a longer one it
    is trace patterning.

    Args:
        isi: As in `TraceConditioning`; at the length of the CS, 4 steps, it is the same in every
            trial.
        n_cs: Number of CS; the patterns have n_cs / 2 of them on.
        n_patterns: Number of patterns that the US follows.
        noise: Probability with which a trial's outcome is inverted.
        n_distractors: Number of further stimuli, each on with probability 1/2 at the beginning of a
            trial.
        task: Seed of the choice of the patterns.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(
        self,
        isi: int = CS_STEPS,
        n_cs: int = 4,
        n_patterns: int = 2,
        noise: float = 0.1,
        n_distractors: int = 0,
        task: int = 0,
    ) -> None:
        super().__init__(n_cs, n_distractors, isi, 0 if isi == CS_STEPS else isi // 3)
        candidates = list(combinations(range(n_cs), n_cs // 2))
        if n_cs < 2 or not 1 <= n_patterns <= len(candidates):
            raise ValueError(
                f"n_patterns must be in 1..{len(candidates)} and n_cs at least 2, not {n_patterns}, {n_cs}"
            )
        number_in("noise", noise, "[0, 1]")
        chosen = np.random.default_rng(task).choice(len(candidates), n_patterns, replace=False)
        self.patterns = np.zeros((n_patterns, n_cs), dtype=bool)  # those that the US follows
        for row, k in zip(self.patterns, chosen, strict=True):
            row[list(candidates[k])] = True
        self._noise = noise

    def _draw_cs(self, rng: np.random.Generator, rows: Signals, start: Integers) -> Bools:
        """Draw the CS at random, but in half of the trials a pattern that the US follows."""
        n = len(start)
        (n_patterns, n_cs) = self.patterns.shape
        n_all = 2**n_cs
        of_pattern = rng.random(n) < (0.5 * n_all - n_patterns) / (n_all - n_patterns)
        chosen = self.patterns[rng.integers(n_patterns, size=n)]
        cs = np.where(of_pattern[:, np.newaxis], chosen, rng.integers(2, size=(n, n_cs)) == 1)
        for column, is_on in zip(rows.T, cs.T, strict=True):
            switch_on(column, start[is_on], CS_STEPS)
        is_active = (cs[:, np.newaxis] == self.patterns).all(axis=2).any(axis=1)
        return np.asarray(is_active ^ (rng.random(n) < self._noise))

    def _draw_distractors(self, rng: np.random.Generator, rows: Signals, start: Integers) -> None:
        for column in rows.T:
            switch_on(column, start[rng.random(len(start)) < 0.5], CS_STEPS)


def switch_on(column: Signals, onsets: Integers, n_steps: int) -> None:
    """Set a stimulus, shape (T,), to 1 for some steps from each onset on."""
    for k in range(n_steps):
        column[onsets[onsets + k < len(column)] + k] = 1.0
