"""A Horde beside stable-baselines3: it learns off-policy from what a controller does while the controller learns.

The controller's policy is the behaviour policy, and stable-baselines3 knows the probability of every action that it
drew. That probability, and no estimate of it, is the b of rho = pi(a) / b(a).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.horde import Horde
from horde_agent.interface import Interface

try:
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
except ImportError as missing:  # pragma: no cover - depends on what is installed
    raise ImportError("horde_agent.sb3 needs stable-baselines3: pip install 'horde-gvf[sb3]'") from missing


class HordeCallback(BaseCallback):
    """Let a Horde learn from every transition of an on-policy controller (PPO, A2C).

    Args:
        horde: The learner. Its questions' target policies choose among the controller's discrete actions.
        interface: How an observation becomes features: `Interface.of(env)` of the environment that is trained on.
        verbose: As in stable-baselines3.

    Attributes:
        n_learned: Transitions learned from.
        n_gaps: Times that the traces were cleared: after a truncated or ended episode, a gap, or a refused command.
        last_probability: b of the newest action.

    Raises:
        ValueError: If the interface feeds predictions back. When training starts, if the algorithm does not report its
            actions' probabilities (DQN, SAC), if its actions are not discrete, or if it runs more than one environment:
            a Horde has one stream of experience.
    """

    def __init__(self, horde: Horde, interface: Interface, verbose: int = 0) -> None:
        super().__init__(verbose)
        if interface.feedback is not None:
            raise ValueError("a Horde beside a controller cannot feed predictions back: give it an interface without")
        self.horde, self.interface = horde, interface
        self.n_learned = self.n_gaps = 0
        self.last_probability = float("nan")

    def _on_training_start(self) -> None:
        if not isinstance(self.model, OnPolicyAlgorithm):
            raise ValueError(
                f"{type(self.model).__name__} does not report the probability of its actions; use PPO or A2C"
            )
        if not hasattr(self.model.action_space, "n"):
            raise ValueError(f"the controller's actions must be discrete, not {self.model.action_space}")
        if self.model.n_envs != 1:
            raise ValueError(f"a Horde has one stream of experience, but {self.model.n_envs} environments are running")
        # learn() may be called again and go on: the environment's current observation is where the stream (re)starts.
        held: Any = self.model._last_obs
        self._begin(held[0])

    def _on_step(self) -> bool:
        """Learn from (o_t, a_t, o_{t+1}) with b(a_t | o_t) as the policy gave it."""
        action = int(self.locals["actions"][0])
        # float32: exp(log 1) may come out one rounding above 1.
        self.last_probability = min(1.0, float(np.exp(float(self.locals["log_probs"][0]))))
        new_obs, done, info = self.locals["new_obs"][0], bool(self.locals["dones"][0]), self.locals["infos"][0]
        reached = info["terminal_observation"] if done else new_obs
        terminated = done and not info.get("TimeLimit.truncated", False)
        if info.get("gap", 0) or not info.get("applied", 1):
            self._begin(new_obs)
            return True
        observation, tiles = self._features(reached)
        self.horde.learn(action, self.last_probability, observation, tiles, terminated=terminated)
        self.n_learned += 1
        if done:
            self._begin(new_obs)
        return True

    def _begin(self, observation: NDArray[Any]) -> None:
        """Start a new stream: nothing is learned across the gap."""
        self.horde.begin(*self._features(observation))
        self.n_gaps += 1

    def _features(self, observation: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        scaled = self.interface.scaler(observation)
        return scaled, self.interface.coder.encode(scaled)
