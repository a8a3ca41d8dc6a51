"""A Horde beside stable-baselines3: it learns off-policy from what a controller does while the controller learns.

The controller's policy is the behaviour policy, and stable-baselines3 knows the probability of every action that it
drew. That probability, and no estimate of it, is the b of rho = pi(a) / b(a). Questions are shown observations in the
environment's own units, as in a `Life`, also where the controller is shown normalised ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.life.flags import flags_of, is_learned
from horde_agent.life.student import check_fit, encoder
from horde_agent.record import Observation, Phase

try:
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.vec_env import VecEnvWrapper, VecNormalize
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
        n_gaps: Times that the traces were cleared: after a truncated or ended episode, a gap, an old frame, a refused
            command, or a last observation that `VecNormalize` clipped.
        last_probability: b of the newest action.

    Raises:
        ValueError: If the interface feeds predictions back, or the Horde does not fit it. When training starts, if the
            algorithm does not report its actions' probabilities (DQN, SAC), if its actions are not discrete, if it runs
            more than one environment (a Horde has one stream of experience), or if the environment's own observations
            are not those of the interface or cannot be had.
    """

    def __init__(self, horde: Horde, interface: Interface, verbose: int = 0) -> None:
        super().__init__(verbose)
        if interface.feedback is not None:
            raise ValueError("a Horde beside a controller cannot feed predictions back: give it an interface without")
        check_fit(horde, interface)
        self.horde, self.interface, self._encode = horde, interface, encoder(interface)
        self._normalizer: Any = None  # a VecNormalize between the environment and the controller
        self.n_learned = self.n_gaps = 0
        self.last_probability = float("nan")

    def _on_training_start(self) -> None:
        if not isinstance(self.model, OnPolicyAlgorithm):
            raise ValueError(
                f"{type(self.model).__name__} does not report the probability of its actions; use PPO or A2C"
            )
        n_actions = getattr(self.model.action_space, "n", None)
        if n_actions is None:
            raise ValueError(f"the controller's actions must be discrete, not {self.model.action_space}")
        if n_actions != len(self.interface.actions):
            raise ValueError(f"the controller has {n_actions} actions, the interface {len(self.interface.actions)}")
        if self.model.n_envs != 1:
            raise ValueError(f"a Horde has one stream of experience, but {self.model.n_envs} environments are running")
        self._normalizer = _normalizer(self.model.get_env())
        # learn() may be called again and go on: the environment's current observation is where the stream (re)starts.
        self._begin(self._current(self.model._last_obs))

    def _on_step(self) -> bool:
        """Learn from (o_t, a_t, o_{t+1}) with b(a_t | o_t) as the policy gave it."""
        action = int(self.locals["actions"][0])
        # float32: exp(log 1) may come out one rounding above 1.
        self.last_probability = min(1.0, float(np.exp(float(self.locals["log_probs"][0]))))
        done, info = bool(self.locals["dones"][0]), self.locals["infos"][0]
        terminated = done and not info.get("TimeLimit.truncated", False)
        following = self._current(self.locals["new_obs"])  # of the next episode, where one is done
        reached = self._last_of_episode(info["terminal_observation"]) if done else following
        goes_on = False
        if reached is not None and is_learned(Phase.BEHAVE, flags_of(info)):
            self.horde.learn(action, self.last_probability, reached, self._encode(reached), terminated=terminated)
            self.n_learned += 1
            goes_on = not done
        if not goes_on:
            self._begin(following)
        return True

    def _begin(self, observation: Observation) -> None:
        """Start a new stream: nothing is learned across the gap."""
        self.horde.begin(observation, self._encode(observation))
        self.n_gaps += 1

    def _current(self, shown: Any) -> Observation:
        """Return the newest observation in the environment's own units, float32 of shape (n_channels,).

        Args:
            shown: What the controller is shown, shape (1, n_channels).

        Raises:
            ValueError: If this is not an observation that the interface describes.
        """
        own: Any = shown if self._normalizer is None else self._normalizer.get_original_obs()
        n = len(self.interface.channels)
        if not isinstance(own, np.ndarray) or own.shape != (1, n):
            raise ValueError(
                f"the environment's observations have the shape {getattr(own, 'shape', (1,))[1:]}, but the interface "
                f"describes {n} channels: take Interface.of(env) of the environment that is trained on, and let "
                f"VecNormalize be the outermost wrapper"
            )
        return np.array(own[0], dtype=np.float32)

    def _last_of_episode(self, shown: NDArray[Any]) -> Observation | None:
        """Return the last observation of an episode in its own units; None where `VecNormalize` clipped it.

        That wrapper keeps the newest observation alone, which is already the next episode's: this one is reckoned back
        from what the controller is shown.
        """
        wrapper = self._normalizer
        if wrapper is None or not wrapper.norm_obs:
            return np.array(shown, dtype=np.float32)
        if not (np.abs(shown) < wrapper.clip_obs).all():
            return None
        own = np.asarray(wrapper.unnormalize_obs(shown), dtype=np.float32)
        box = self.interface.scaler  # rounding may have led out of it
        return np.clip(own, box.low.astype(np.float32), box.high.astype(np.float32))


def _normalizer(env: Any) -> Any:
    """Return the VecNormalize around an environment, or None.

    Raises:
        ValueError: If there are two: what the inner one was shown cannot be had.
    """
    found = []
    while isinstance(env, VecEnvWrapper):
        found += [env] if isinstance(env, VecNormalize) else []
        env = env.venv
    if len(found) > 1:
        raise ValueError(f"the environment is wrapped in VecNormalize {len(found)} times; once is enough")
    return found[0] if found else None
