"""Episodes of recorded transitions, and what a target policy makes of them: ratios and their products.

Transition k of an episode has the state's tiles, the action a_k, its probability b_k under the
behaviour, and the reward r_{k+1} that followed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from horde_agent.scoring.returns import returns_along
from horde_agent.types import Bools, Floats, Integers

_LARGEST_LOG_WEIGHT = 300.0
"""Of a product of ratios: its square is a float64."""
_SUM_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Episodes:
    """Transitions of n_episodes episodes, one after another, and the states between them.

    An episode of T transitions has T + 1 rows of `tiles`, the last of them its last state.

    Attributes:
        length: Number of transitions of each episode, at least 1, shape (n_episodes,).
        tiles: Active tiles of each row, shape (n_rows, n_active).
        n_features: Number of features.
        n_actions: Number of actions.
        action: Action of each transition, shape (n,).
        b: Its probability under the behaviour, in (0, 1], shape (n,).
        reward: Reward of each transition, shape (n,).
        is_terminated: Whether each episode ended in a terminal state, shape (n_episodes,); the
            others were truncated.

    Raises:
        ValueError: If the shapes do not agree, or there is no episode.
    """

    length: Integers
    tiles: NDArray[np.int64]
    n_features: int
    n_actions: int
    action: Integers
    b: Floats
    reward: Floats
    is_terminated: Bools

    def __post_init__(self) -> None:
        n = int(self.length.sum())
        if not len(self.length) or self.length.min() < 1:
            raise ValueError("each episode needs a transition, and there must be an episode")
        if len(self.tiles) != n + len(self.length):
            raise ValueError(f"tiles must have {n + len(self.length)} rows, not {len(self.tiles)}")
        for name in ("action", "b", "reward"):
            if getattr(self, name).shape != (n,):
                raise ValueError(f"{name} must have shape ({n},), not {getattr(self, name).shape}")
        if self.is_terminated.shape != self.length.shape:
            raise ValueError("is_terminated must have a value per episode")

    @property
    def n_episodes(self) -> int:
        """Number of episodes."""
        return len(self.length)

    @property
    def n_transitions(self) -> int:
        """Number of transitions."""
        return len(self.action)

    @property
    def longest(self) -> int:
        """Number of transitions of the longest episode."""
        return int(self.length.max())

    @cached_property
    def first(self) -> Integers:
        """Number of the first transition of each episode, shape (n_episodes,)."""
        return np.cumsum(self.length) - self.length

    @cached_property
    def episode(self) -> Integers:
        """Number of the episode of each transition, shape (n,)."""
        return np.repeat(np.arange(self.n_episodes), self.length)

    @cached_property
    def step(self) -> Integers:
        """Number of each transition within its episode, from 0, shape (n,)."""
        return np.arange(self.n_transitions) - self.first[self.episode]

    @cached_property
    def row(self) -> Integers:
        """Row of the state of each transition, shape (n,); the next row is the state that it led to."""
        return np.arange(self.n_transitions) + self.episode

    @cached_property
    def last_row(self) -> Integers:
        """Row of the last state of each episode, shape (n_episodes,)."""
        return self.first + self.length + np.arange(self.n_episodes)

    @cached_property
    def first_row(self) -> Integers:
        """Row of the first state of each episode, shape (n_episodes,)."""
        return self.first + np.arange(self.n_episodes)

    @cached_property
    def is_last(self) -> Bools:
        """Whether each transition is the last one of its episode, shape (n,)."""
        return np.asarray(self.step == self.length[self.episode] - 1)

    def sums(self, values: Floats) -> Floats:
        """Return the sum of values of transitions, (n, ...), over each episode, (n_episodes, ...)."""
        return np.add.reduceat(values, self.first, axis=0)

    def returns(self, gamma: float) -> Floats:
        """Return the discounted return of each episode, shape (n_episodes,)."""
        # Steps are rows, episodes columns; after its end an episode has rewards of 0
        rewards = np.zeros((self.longest + 1, self.n_episodes))
        rewards[self.step + 1, self.episode] = self.reward
        return np.asarray(returns_along(rewards, gamma)[0])

    def part(self, selected: Integers) -> Episodes:
        """Return some of the episodes, by number, shape (n_selected,)."""
        starts = self.first[selected]
        lengths = self.length[selected]
        transitions = _ranges(starts, lengths)
        rows = _ranges(self.first_row[selected], lengths + 1)
        return Episodes(
            length=lengths,
            tiles=self.tiles[rows],
            n_features=self.n_features,
            n_actions=self.n_actions,
            action=self.action[transitions],
            b=self.b[transitions],
            reward=self.reward[transitions],
            is_terminated=self.is_terminated[selected],
        )


def _ranges(first: Integers, length: Integers) -> Integers:
    """Return the numbers first[i], ..., first[i] + length[i] - 1 for each i, one after another."""
    return np.concatenate(
        [np.arange(a, a + n) for a, n in zip(first.tolist(), length.tolist(), strict=True)]
    )


@dataclass(frozen=True)
class Target:
    """A target policy on episodes.

    Attributes:
        name: Its name.
        episodes: The episodes.
        probabilities: pi(a|s) in each row, shape (n_rows, n_actions).

    Raises:
        ValueError: If a probability is negative or NaN, or those of a row do not sum to 1.
    """

    name: str
    episodes: Episodes
    probabilities: Floats = field(repr=False)

    def __post_init__(self) -> None:
        episodes = self.episodes
        expected = (len(episodes.tiles), episodes.n_actions)
        if self.probabilities.shape != expected:
            raise ValueError(
                f"the policy {self.name} has probabilities of shape {self.probabilities.shape}, "
                f"expected {expected}"
            )
        is_valid = (self.probabilities >= 0.0).all(axis=1)
        is_valid &= np.abs(self.probabilities.sum(axis=1) - 1.0) <= _SUM_TOLERANCE
        if not is_valid.all():
            row = int(is_valid.argmin())
            raise ValueError(
                f"the policy {self.name} gives the probabilities {self.probabilities[row]} in row "
                f"{row}, expected numbers of at least 0 that sum to 1"
            )

    @cached_property
    def ratio(self) -> Floats:
        """Ratio rho = pi(a|s) / b(a|s) of each transition, shape (n,)."""
        episodes = self.episodes
        pi = self.probabilities[episodes.row, episodes.action]
        return np.asarray(pi / episodes.b)

    @cached_property
    def weight(self) -> Floats:
        """Product of the ratios of an episode up to and with each transition, shape (n,)."""
        logs = np.log(np.maximum(self.ratio, np.finfo(np.float64).tiny))
        is_zero = self.ratio == 0.0
        first = self.episodes.first
        weight = np.empty_like(logs)
        ends = first + self.episodes.length
        for begin, end in zip(first.tolist(), ends.tolist(), strict=True):
            total = np.cumsum(logs[begin:end])
            weight[begin:end] = np.exp(np.minimum(total, _LARGEST_LOG_WEIGHT))
            weight[begin:end][np.cumsum(is_zero[begin:end]) > 0] = 0.0
        return weight

    @cached_property
    def final_weight(self) -> Floats:
        """Product of all ratios of each episode, shape (n_episodes,)."""
        return np.asarray(self.weight[self.episodes.first + self.episodes.length - 1])

    def part(self, selected: Integers) -> Target:
        """Return the same policy on some of the episodes, by number, shape (n_selected,)."""
        rows = _ranges(self.episodes.first_row[selected], self.episodes.length[selected] + 1)
        return Target(self.name, self.episodes.part(selected), self.probabilities[rows])
