"""ProblemEnv: a small problem as a Gymnasium environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from horde_agent.problems.classics import baird, boyan_chain, collision, random_walk
from horde_agent.problems.markov import Problem
from horde_agent.problems.rooms import rooms

Observation = NDArray[np.float32]

PROBLEMS: dict[str, Callable[[], Problem]] = {
    "RandomWalk": random_walk,
    "BoyanChain": boyan_chain,
    "Baird": baird,
    "Collision": lambda: collision(np.random.default_rng(0)),
    "Rooms": rooms,
    "HighVarianceRooms": lambda: rooms(high_variance=True),
}


class ProblemEnv(gymnasium.Env[Observation, np.int64]):
    """A small problem whose observation is the state's number and the last reward.

    The tile layout has one tile per state and the end, number S, so that a Horde's weights are a
    table of values.

    Args:
        problem: The problem; its behaviour and features are for the reader, the environment uses
            neither.
        render_mode: None; there is nothing to draw.
    """

    def __init__(self, problem: Problem, render_mode: str | None = None) -> None:
        if render_mode is not None:
            raise ValueError(
                f"render_mode must be None, not {render_mode!r}: a small problem has no picture"
            )
        self.problem = problem
        self.render_mode = None
        reward = problem.mdp.reward
        n = len(problem.mdp.start)
        low = (0.0, min(0.0, reward.min()))
        high = (float(n), max(0.0, reward.max()) if reward.any() else 1.0)
        self.observation_space = spaces.Box(np.array(low, np.float32), np.array(high, np.float32))
        self.action_space = spaces.Discrete(len(problem.actions))
        channel = {"unit": "1", "step": 1.0}
        self.metadata = {
            "render_modes": [],
            "actions": list(problem.actions),
            "channels": [
                {"name": "state", "group": "state", "sensor": False, **channel},
                {"name": "reward", "group": "reward", "sensor": True, **channel},
            ],
            "tile_layout": f'bias = false\n[[tiling]]\ngroup = "state"\nintervals = [{n + 1}]\ntilings = 1\n',
        }
        self._state = n

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode in a state drawn from the problem's own distribution."""
        super().reset(seed=seed, options=options)
        self._state = self._draw(self.problem.mdp.start)
        return self._observation(0.0), {}

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take one action; the reward is its expectation in the state left."""
        mdp = self.problem.mdp
        state = self._state
        if state == len(mdp.start):
            raise gymnasium.error.ResetNeeded("the episode is over: call reset before step")
        reward = float(mdp.reward[action, state])
        self._state = self._draw(mdp.transition[action, state])
        return self._observation(reward), reward, self._state == len(mdp.start), False, {}

    def _draw(self, probability: NDArray[np.float64]) -> int:
        """Draw a state, or the number of states for the end, which has the rest of the probability."""
        upto = np.cumsum(probability)
        upto[upto > 1.0 - 1e-12] = 1.0  # rounding must not end a problem without an end
        return int(np.searchsorted(upto, self.np_random.random(), side="right"))

    def _observation(self, reward: float) -> Observation:
        return np.array([self._state, reward], dtype=np.float32)


def make_env(name: str, render_mode: str | None = None) -> ProblemEnv:
    """Return a problem's environment by the name in its id."""
    return ProblemEnv(PROBLEMS[name](), render_mode)
