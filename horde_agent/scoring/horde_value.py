"""The value of policies by a Horde: a GVF per policy about the reward, its prediction at the first states.

Its error is that of the tiles and of the learning that has not ended, which no resampling shows: the
interval is that of the estimate that corrects it (`intervals.Biased`).

Source: Sutton et al. (2011), Horde.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF, Channel
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.policies import PolicyFunction
from horde_agent.scoring.episodes import Target
from horde_agent.types import Floats, Tiles

UPDATES = 20_000
"""Number of updates of the demons, about: whole passes through the episodes."""
_MOST_PASSES = 50
_REWARD = (
    0  # channels of what the Horde observes: the reward that led to a row, and the row's number
)
_ROW = 1


def horde_values(
    targets: Sequence[Target], gamma: float, *, continues_truncated: bool
) -> list[float]:
    """Return the value of each policy on the same episodes, learned by GTD(lambda) in several passes.

    Args:
        targets: The policies.
        gamma: Discount, in [0, 1].
        continues_truncated: Whether the value goes on after a truncation; else it is 0 there.
    """
    episodes = targets[0].episodes
    questions = []
    for number, target in enumerate(targets):
        policy = PolicyFunction(_at_row(target.probabilities), episodes.n_actions)
        questions.append(GVF(f"policy {number}", policy, Channel(_REWARD), gamma, ends=True))
    horde = Horde(
        questions,
        n_features=episodes.n_features,
        n_active=episodes.tiles.shape[1],
        config=LearnerConfig.paper(),
        mode="deferred",
    )
    n_passes = min(max(UPDATES // episodes.n_transitions, 1), _MOST_PASSES)
    for _ in range(n_passes):
        _learn(horde, targets[0], continues_truncated=continues_truncated)
    starts = [horde.predict(tiles) for tiles in episodes.tiles[episodes.first_row]]
    means: list[float] = np.mean(starts, axis=0).tolist()
    return means


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
