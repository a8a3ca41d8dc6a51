"""The value of policies by a Horde: a GVF per policy about the reward, its prediction at the first states.

The weights have no simple resampled form, so the standard error comes from demons that learn from
half of the episodes each: the spread of estimates from random halves is that of one from all.

Source: Sutton et al. (2011), Horde; Shao & Wu (1989), the delete-d jackknife, with d = n / 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.evaluation.episodes import Target
from horde_agent.evaluation.intervals import Interval
from horde_agent.gvf import GVF, Channel
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.policies import PolicyFunction
from horde_agent.types import Floats, Tiles

N_HALVES = 8
UPDATES = 20_000
"""Number of updates of the demons that learn from all episodes, at least; the same passes for halves."""
_MOST_PASSES = 50
_FEWEST_EPISODES = 4
_REWARD = (
    0  # channels of what the Horde observes: the reward that led to a row, and the row's number
)
_ROW = 1


class HordeValue(NamedTuple):
    """The value of a policy by its GVF, and the standard error, NaN if it is unknown."""

    value: float
    standard_error: float
    n_halves: int

    def interval(self, level: float) -> Interval:
        """Return the interval that contains the true value with probability `level`, by Student's t."""
        n_free = self.n_halves - 1
        if n_free < 1:
            return Interval(np.nan, np.nan)
        z = NormalDist().inv_cdf(0.5 + 0.5 * level)
        # Cornish & Fisher: the quantile of t from that of the normal distribution
        first = (z**3 + z) / (4.0 * n_free)
        second = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / (96.0 * n_free**2)
        reach = (z + first + second) * self.standard_error
        return Interval(self.value - reach, self.value + reach)


def horde_values(
    targets: Sequence[Target],
    gamma: float,
    rng: np.random.Generator,
    *,
    continues_truncated: bool,
    n_halves: int = N_HALVES,
) -> list[HordeValue]:
    """Return the value of each policy on the same episodes, learned by GTD(lambda) in several passes.

    Args:
        targets: The policies.
        gamma: Discount, in [0, 1].
        rng: Draws the halves of the episodes.
        continues_truncated: Whether the value goes on after a truncation; else it is 0 there.
        n_halves: Number of halves from which the standard error is estimated; at least 2, or 0.
    """
    n = targets[0].episodes.n_episodes
    selections = [np.arange(n)]
    if n >= _FEWEST_EPISODES:
        halves = [rng.permutation(n)[: n // 2] for _ in range(n_halves)]
        selections += [np.sort(half) for half in halves]
    means = np.empty((len(selections), len(targets)))
    for k, selection in enumerate(selections):
        parts = [target.part(selection) for target in targets]
        means[k] = _start_values(parts, gamma, continues_truncated=continues_truncated)
    values = []
    for column in means.T:
        error = np.nan
        if len(column) > 2:
            error = float(np.std(column[1:], ddof=1))
        values.append(HordeValue(float(column[0]), error, len(column) - 1))
    return values


def _start_values(targets: Sequence[Target], gamma: float, *, continues_truncated: bool) -> Floats:
    """Return the mean prediction at the first states for each policy, shape (n_policies,)."""
    episodes = targets[0].episodes
    questions = []
    for number, target in enumerate(targets):
        policy = PolicyFunction(_at_row(target.probabilities), episodes.n_actions)
        questions.append(GVF(f"policy {number}", policy, Channel(_REWARD), gamma, ends=True))
    horde = Horde(
        questions,
        n_features=episodes.n_features,
        n_active=episodes.tiles.shape[1],
        config=LearnerConfig(),
        mode="deferred",
    )
    n_passes = min(max(UPDATES // episodes.n_transitions, 1), _MOST_PASSES)
    for _ in range(n_passes):
        _learn(horde, targets[0], continues_truncated=continues_truncated)
    starts = [horde.predict(tiles) for tiles in episodes.tiles[episodes.first_row]]
    return np.asarray(np.mean(starts, axis=0))


def _at_row(probabilities: Floats) -> Callable[[NDArray[Any], Tiles], Floats]:
    """Return the function from an observation of `_learn` to the row of a table that it names."""

    def at_row(observation: NDArray[Any], tiles: Tiles) -> Floats:  # noqa: ARG001
        return np.asarray(probabilities[int(observation[_ROW])])

    return at_row


def _learn(horde: Horde, target: Target, *, continues_truncated: bool) -> None:
    """Learn from each episode in turn."""
    episodes = target.episodes
    tiles = episodes.tiles.astype(np.int64)
    actions = episodes.action.tolist()
    b = episodes.b.tolist()
    rewards = episodes.reward.tolist()
    is_terminated = episodes.is_terminated.tolist()
    k = 0
    for number, length in enumerate(episodes.length.tolist()):
        row = k + number
        horde.begin(np.array([0.0, row]), tiles[row])
        ends = is_terminated[number] or not continues_truncated
        for step in range(length):
            row += 1
            is_end = ends and step == length - 1
            observation = np.array([rewards[k], row])
            horde.learn(actions[k], b[k], observation, tiles[row], terminated=is_end)
            k += 1
