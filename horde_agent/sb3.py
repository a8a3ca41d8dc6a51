"""A Horde with stable-baselines3: it learns off-policy from the transitions of a controller in training.

The controller's policy is the behaviour policy, and b in rho = pi(a) / b(a) is exact. PPO and A2C
report the probability of each action. DQN takes a random action with probability epsilon (before
`learning_starts` always), else the greedy one. SAC draws a real number, which `ChoiceByNumber` maps
to an action: b is the probability under its squashed Gaussian of all numbers with that action.
Questions get observations in the environment's units, as in a `Life`, also if the controller gets
normalised ones.

Each environment of a vector environment is a stream of experience with its own traces and shared
weights. A step changes the weights by the mean over the streams (`Horde.merge`).

`BatchVecEnv` is a Gymnasium vector environment, such as the simulator of many robots, for
stable-baselines3. `ControllerPolicy` is the target policy of a trained controller.
`PredictiveObservation` adds predictions of the Horde to a controller's observation.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from horde_agent.horde import Horde
from horde_agent.interface import HeldReadings, Interface
from horde_agent.life.counts import RobotInfo
from horde_agent.life.learner import check_fit, encoder
from horde_agent.record import BROKEN, Flag, Observation

try:
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize
    from stable_baselines3.dqn import DQN
    from stable_baselines3.sac import SAC
except ImportError as missing:  # pragma: no cover - depends on what is installed
    raise ImportError(
        "horde_agent.sb3 needs stable-baselines3: pip install -e '.[sb3]'"
    ) from missing


class HordeCallback(BaseCallback):
    """Callback with which a Horde learns from every transition of a controller with discrete actions.

    The controller is PPO, A2C, DQN, or SAC with a `ChoiceByNumber` environment.

    Args:
        horde: The learner. Its target policies choose among the controller's discrete actions. For
            several environments it must use the plain engine:
            `config=LearnerConfig(engine="plain")`.
        interface: Encoding of observations as features: `Interface.of(env)` of the training
            environment.
        verbose: As in stable-baselines3.

    Attributes:
        n_learned: Number of transitions learned from, of all environments.
        streams: A Horde for each environment, `horde` first; they differ only in their traces.
        n_gaps: How often the traces were cleared: after a truncated or ended episode, a gap, a
            stale frame, a refused command, or a last observation that `VecNormalize` clipped.
        last_probability: b of the latest action; of the last environment, if there are several.

    Raises:
        ValueError: If the interface has feedback, or the Horde does not fit it. At the start of
            training, if the probabilities of the algorithm's actions are unknown, if its actions
            are not discrete, if it has several environments and the Horde does not use the plain
            engine, or if the observations do not fit the interface.
    """

    def __init__(self, horde: Horde, interface: Interface, verbose: int = 0) -> None:
        super().__init__(verbose)
        if interface.feedback is not None:
            raise ValueError(
                "HordeCallback does not support feedback of predictions: pass an interface without"
            )
        check_fit(horde, interface)
        self.horde = horde
        self.interface = interface
        self._encode = encoder(interface)
        self._held = [HeldReadings(interface)]  # of each environment
        self._normalizer: Any = None  # a VecNormalize between the environment and the controller
        self.streams = [horde]
        self.n_learned = self.n_gaps = 0
        self._rewards: list[float] = []  # of the latest step of each environment
        self.last_probability = float("nan")

    def _on_training_start(self) -> None:
        is_sac = isinstance(self.model, SAC)
        if is_sac:
            n_actions = self._n_choices()
        else:
            n_actions = _n_discrete(self.model, "PPO, A2C, DQN or SAC")
        if n_actions != len(self.interface.actions):
            raise ValueError(
                f"the controller has {n_actions} actions, the interface {len(self.interface.actions)}"
            )
        self.streams = [
            self.horde,
            *(self.horde.copy_for_stream() for _ in range(self.model.n_envs - 1)),
        ]
        self._held = [HeldReadings(self.interface) for _ in self.streams]
        self._normalizer = _normalizer(self.model.get_env())
        # learn() may be called again: the stream restarts at the environment's current observation.
        for k, observation in enumerate(self._current(self.model._last_obs)):
            self._begin(k, observation)

    def _on_step(self) -> bool:
        """Learn from (o_t, a_t, o_{t+1}) of each environment with b(a_t | o_t)."""
        following = self._current(self.locals["new_obs"])  # of the next episode, if one ended
        self._rewards = self._original_rewards()
        for k, observation in enumerate(following):
            self._learn(k, observation)
        if len(self.streams) > 1:
            self.horde.merge(self.streams[1:])
        return True

    def _learn(self, k: int, following: Observation) -> None:
        """Learn from the latest transition of environment `k`; its stream continues at `following`."""
        chosen = self.locals["actions"][k]
        stream = self.streams[k]
        if isinstance(self.model, SAC):
            action = choice(float(chosen[0]), len(self.interface.actions))
        else:
            action = int(chosen)
        self.last_probability = self.probability(k, action)
        is_done = bool(self.locals["dones"][k])
        info = self.locals["infos"][k]
        terminated = is_done and not info.get("TimeLimit.truncated", False)
        if is_done:
            reached = self._last_of_episode(info["terminal_observation"])
        else:
            reached = following
        flags = RobotInfo.of(info).flags
        if reached is not None and not flags & BROKEN:
            stream.learn(
                action,
                self.last_probability,
                reached,
                self._encode(self._held[k].fill(reached, begins=False)),
                terminated=terminated,
                reward=self._rewards[k],
            )
            self.n_learned += 1
            if not is_done:
                return
        self._begin(k, following, is_other=is_done or bool(flags & Flag.GAP))

    def _original_rewards(self) -> list[float]:
        """Return the reward of the latest step of each environment, as the environment gave it."""
        rewards = self.locals["rewards"]
        if self._normalizer is not None:
            rewards = self._normalizer.get_original_reward()
        return [float(reward) for reward in rewards]

    def _n_choices(self) -> int:
        """Return the number of actions of SAC's environment; raise ValueError if their probabilities are unknown."""
        model: Any = self.model
        env = model.get_env()
        if env is None or not env.has_attr("n_choices"):
            raise ValueError(
                "SAC draws real numbers, which have no probability: wrap an environment with discrete actions in "
                "horde_agent.sb3.ChoiceByNumber(env)"
            )
        if model.action_noise is not None or model.use_sde:
            raise ValueError(
                "SAC's probabilities are known only for its Gaussian: omit action_noise and use_sde"
            )
        return int(env.get_attr("n_choices")[0])

    def probability(self, k: int, action: int) -> float:
        """Return b of the latest action of environment `k`; raise ValueError if DQN could not have taken it."""
        model: Any = self.model
        if isinstance(model, OnPolicyAlgorithm):
            # float32: exp(log 1) may come out one rounding above 1.
            return min(1.0, float(np.exp(float(self.locals["log_probs"][k]))))
        n = len(self.interface.actions)
        if model.num_timesteps - model.n_envs < model.learning_starts:
            return 1.0 / n
        shown: Any = model._last_obs
        tensor, _ = model.policy.obs_to_tensor(shown)
        if isinstance(model, SAC):
            mean, log_std, _ = model.actor.get_action_dist_params(tensor)
            return squashed_share(mean[k, 0].item(), log_std[k, 0].exp().item(), action, n)
        greedy = int(model.q_net(tensor).argmax(dim=1)[k])
        epsilon = float(model.exploration_rate)
        probability = epsilon / n + (1.0 - epsilon) * (action == greedy)
        if probability == 0.0:
            raise ValueError(
                f"DQN took action {action} where its greedy one is {greedy} and it explores with probability 0: is it "
                f"trained between the step and this callback?"
            )
        return probability

    def _begin(self, k: int, observation: Observation, *, is_other: bool = True) -> None:
        """Begin the stream of environment `k` at an observation, of which nothing is learned.

        `is_other` is whether time has passed since the one before, so that its readings are not held.
        """
        filled = self._held[k].fill(observation, begins=is_other)
        self.streams[k].begin(observation, self._encode(filled))
        self.n_gaps += 1

    def _current(self, shown: Any) -> list[Observation]:
        """Return the latest observation of each environment in its own units, float32 of shape (n_channels,).

        `shown` is the controller's observation, shape (n_envs, n_channels); raise ValueError if it
        does not fit.
        """
        original: Any = shown
        if self._normalizer is not None:
            original = self._normalizer.get_original_obs()
        n = len(self.interface.channels)
        n_envs = len(self.streams)
        env = self.model.get_env()
        n_appended = 0
        if env is not None and env.has_attr("n_predictions"):
            n_appended = int(env.get_attr("n_predictions")[0])
        if (
            n_appended
            and isinstance(original, np.ndarray)
            and original.shape == (n_envs, n + n_appended)
        ):
            original = original[:, :n]
        if not isinstance(original, np.ndarray) or original.shape != (n_envs, n):
            if self.interface.flatten is not None:
                raise ValueError(
                    "the environment's observations are discrete: train in horde_agent.TabularObservation(env), which "
                    "makes them the flat arrays that the interface describes"
                )
            raise ValueError(
                f"the environment's observations have the shape {getattr(original, 'shape', (1,))[1:]}, but the "
                f"interface describes {n} channels: pass Interface.of(env) of the training environment, "
                "with VecNormalize as the "
                f"outermost wrapper"
            )
        return list(np.array(original, dtype=np.float32))

    def _last_of_episode(self, shown: NDArray[Any]) -> Observation | None:
        """Return the last observation of an episode in its own units; None if `VecNormalize` clipped it.

        The wrapper stores only the latest observation, here the first of the next episode, so this
        one is computed from the normalised observation.
        """
        wrapper = self._normalizer
        n = len(self.interface.channels)
        if wrapper is None or not wrapper.norm_obs:
            return np.array(shown[:n], dtype=np.float32)
        if not (np.abs(shown) < wrapper.clip_obs).all():
            return None
        unscaled = np.asarray(wrapper.unnormalize_obs(shown), dtype=np.float32)[:n]
        box = self.interface.scaler  # rounding may exceed it
        return np.clip(unscaled, box.low.astype(np.float32), box.high.astype(np.float32))


def choice(number: float, n: int) -> int:
    """Return the action of a number in [-1, 1], which is divided into `n` equal intervals.

    Examples:
        >>> tuple(choice(a, 4) for a in (-1.0, -0.4, 0.0, 1.0))
        (0, 1, 2, 3)
    """
    return min(int(0.5 * (number + 1.0) * n), n - 1)


def squashed_share(mean: float, std: float, action: int, n: int) -> float:
    """Return the probability that tanh of a normal number is in the interval of one of `n` actions (`choice`).

    The first of four intervals ends at -1/2 = tanh(-0.549); a standard normal number is below that
    with 29.14 %.

    Examples:
        >>> round(squashed_share(0.0, 1.0, 0, 4), 4), round(squashed_share(1.0, 1e-3, 1, 2), 6)
        (0.2914, 1.0)
    """
    edges = (
        math.atanh(2.0 * k / n - 1.0) if 0 < k < n else math.copysign(math.inf, k - 0.5)
        for k in (action, action + 1)
    )
    low, high = ((edge - mean) / (std * math.sqrt(2.0)) for edge in edges)
    # The difference of two numbers near 1 loses digits: subtract the upper tails if both edges are
    # above the mean.
    return 0.5 * (
        math.erfc(low) - math.erfc(high) if low > 0.0 else math.erfc(-high) - math.erfc(-low)
    )


class ChoiceByNumber(gymnasium.ActionWrapper[Any, Any, Any]):
    """Wrapper with which a controller with real-valued actions, such as SAC, chooses one of `n_choices` (`choice`).

    The environment has Discrete actions from 0; create the Horde's interface from it.

    Raises:
        ValueError: If the actions are not Discrete from 0.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        if not isinstance(env.action_space, spaces.Discrete) or env.action_space.start != 0:
            raise ValueError(f"the action space must be Discrete from 0, not {env.action_space}")
        self.n_choices = int(env.action_space.n)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def action(self, action: Any) -> int:
        """Return the discrete action of `action`, shape (1,)."""
        return choice(float(action[0]), self.n_choices)


class BatchVecEnv(VecEnv):
    """A Gymnasium vector environment as one of stable-baselines3, without an environment object per robot.

    Steps, ends of episodes and infos are those of `DummyVecEnv` over the same environments.

    Raises:
        ValueError: If its autoreset mode is not SAME_STEP.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        mode = env.metadata.get("autoreset_mode")
        if mode != AutoresetMode.SAME_STEP:
            raise ValueError(
                f'BatchVecEnv needs autoreset_mode="SameStep", not {mode}: pass it to gymnasium.make_vec'
            )
        self.env = env
        self._actions: Any = None
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> Any:
        """Begin an episode of every environment, with the seeds of `seed()`, and return the observations."""
        seeds: Any = None
        if None not in self._seeds:
            seeds = self._seeds
        observations, infos = self.env.reset(seed=seeds, options=self._options[0] or None)
        self.reset_infos = info_rows(infos, self.num_envs)
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: NDArray[Any]) -> None:
        """Store the actions of the next step, shape (num_envs, ...)."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Take the step; return observations, rewards, dones and infos, with `terminal_observation` at an end."""
        observations, rewards, terminations, truncations, infos = self.env.step(self._actions)
        dones = terminations | truncations
        last = infos.pop("final_obs", None)
        last_infos = infos.pop("final_info", {})
        rows = info_rows(
            {k: v for k, v in infos.items() if k not in ("_final_obs", "_final_info")},
            self.num_envs,
        )
        ended = rows
        if dones.any():
            ended = info_rows(last_infos, self.num_envs)
        for i in np.flatnonzero(dones):
            rows[i] = {**ended[i], "terminal_observation": last[i]}
        for row, is_cut in zip(rows, (truncations & ~terminations).tolist(), strict=True):
            row["TimeLimit.truncated"] = is_cut
        return observations, rewards.astype(np.float32), dones, rows

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the vector environment, once per index."""
        return [getattr(self.env, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:  # noqa: ARG002
        """Set an attribute of the vector environment: all robots share it."""
        setattr(self.env, attr_name, value)

    def env_method(
        self, method_name: str, *arguments: Any, indices: Any = None, **named: Any
    ) -> list[Any]:
        """Call a method of the vector environment once, and return its result per index."""
        return [getattr(self.env, method_name)(*arguments, **named)] * len(
            list(self._get_indices(indices))
        )

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:  # noqa: ARG002
        """Return False per index: there is no environment of one robot to wrap."""
        return [False] * len(list(self._get_indices(indices)))


def info_rows(infos: dict[str, Any], n: int) -> list[dict[str, Any]]:
    """Return the infos of a vector environment as a dict per environment.

    Examples:
        >>> info_rows({"t": np.array([0.1, 0.2]), "_t": np.array([True, False])}, 2)
        [{'t': 0.1}, {}]
    """
    rows: list[dict[str, Any]] = [{} for _ in range(n)]
    for name, values in infos.items():
        if name.startswith("_"):
            continue
        mask = infos[f"_{name}"]
        if values.ndim == 1:
            row_values = values.tolist()
        else:
            row_values = list(values)
        for i in range(n) if mask.all() else np.flatnonzero(mask):
            rows[i][name] = row_values[i]
    return rows


class ControllerPolicy:
    """The policy of a trained controller, as a target policy.

    Args:
        model: PPO or A2C (the policy is its distribution over actions) or DQN (the policy is its
            greedy action).
        frozen: True to copy the controller's current weights, and the statistics of its
            `VecNormalize` if it has one. Otherwise the target policy changes when the controller
            learns, and the predictions lag behind.

    Raises:
        ValueError: If the controller's actions are not discrete, or it is another algorithm.
    """

    def __init__(self, model: Any, *, frozen: bool = True) -> None:
        self.n_actions = _n_discrete(model, "PPO, A2C or DQN")
        self._policy: Any = _frozen(model) if frozen else model.policy
        normalizer = _normalizer(model.get_env())
        self._normalizer: Any = copy.deepcopy(normalizer) if frozen else normalizer
        self._is_greedy = isinstance(model, DQN)

    def probabilities(
        self,
        observation: NDArray[Any],
        tiles: NDArray[np.int64],  # noqa: ARG002
    ) -> NDArray[np.float64]:
        """Return the probability of each action, shape (n_actions,)."""
        return np.asarray(self.probabilities_at(np.asarray(observation)[np.newaxis])[0])

    def probabilities_at(self, observations: NDArray[Any]) -> NDArray[np.float64]:
        """Return the probabilities at several observations, (n, ...), in one pass, shape (n, n_actions)."""
        import torch

        shown = np.asarray(observations, dtype=np.float32)
        if self._normalizer is not None:
            shown = self._normalizer.normalize_obs(shown)
        self._policy.set_training_mode(False)  # as when the controller acts
        with torch.no_grad():
            tensor, _ = self._policy.obs_to_tensor(shown)
            if self._is_greedy:
                chosen = self._policy.q_net(tensor).argmax(dim=1).cpu().numpy()
                return np.asarray(np.eye(self.n_actions)[chosen])
            distribution = self._policy.get_distribution(tensor).distribution
            probabilities = distribution.probs.double().cpu().numpy()
        return np.asarray(probabilities / probabilities.sum(axis=1, keepdims=True))


def _n_discrete(model: Any, known: str) -> int:
    """Return the number of a controller's actions; raise ValueError if it is not `known`, or they are continuous."""
    if not isinstance(model, OnPolicyAlgorithm | DQN):
        raise ValueError(
            f"{type(model).__name__} does not report the probability of its actions; use {known}"
        )
    if not isinstance(model.action_space, spaces.Discrete):
        raise ValueError(
            f"the controller's actions must be discrete, not {model.action_space}; wrap the environment: "
            f"gymnasium.wrappers.DiscretizeAction(env, bins=3)"
        )
    return int(model.action_space.n)


def _frozen(model: Any) -> Any:
    """Return a copy of the model's policy.

    `copy.deepcopy` fails after `learn`, because the distribution of the last update has tensors
    with a gradient.
    """
    import torch

    # Initial weights must not consume the controller's random numbers
    with torch.random.fork_rng(devices=[]):
        options = copy.deepcopy(model.policy_kwargs)  # modules in it would be shared
        policy = model.policy_class(
            model.observation_space, model.action_space, model.lr_schedule, **options
        )
    policy.load_state_dict(model.policy.state_dict())
    return policy.to(model.device)


class PredictiveObservation(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Wrapper that appends a Horde's current predictions to the observation, as features of a controller.

    The Horde learns by a `HordeCallback` with the interface of `env`. The predictions of the
    questions `names` are appended in this order; there are `n_predictions`.

    Raises:
        ValueError: If a question is unknown, `names` is empty, or the Horde does not fit the
            interface.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], horde: Horde, interface: Interface, names: Sequence[str]
    ) -> None:
        super().__init__(env)
        check_fit(horde, interface)
        index = {name: i for i, name in enumerate(horde.names)}
        unknown = [name for name in names if name not in index]
        if unknown:
            raise ValueError(
                f"the Horde has no question {unknown[0]!r}; there are {', '.join(horde.names[:5])}, ..."
            )
        if not names:
            raise ValueError("names must contain at least one question")
        self._horde = horde
        self._encode = encoder(interface)
        self._held = HeldReadings(interface)
        self._is_begun = False
        self._places = [index[name] for name in names]
        self.n_predictions = len(names)
        box: Any = env.observation_space
        beyond = np.full(self.n_predictions, np.inf, dtype=np.float32)
        low = np.concatenate([box.low, -beyond])
        high = np.concatenate([box.high, beyond])
        self.observation_space = spaces.Box(low.astype(np.float32), high.astype(np.float32))
        appended = [
            {"name": f"predicted {n}", "group": "predictions", "unit": "1", "sensor": False}
            for n in names
        ]
        channels = [
            {**channel._asdict(), "sensor": channel.is_sensor} for channel in interface.channels
        ]
        self.metadata = {
            **env.metadata,
            "channels": [*channels, *appended],
            "tile_layout": None,
            "chosen_layout": None,
        }

    def reset(self, **options: Any) -> Any:
        """Begin an episode, in which no reading of the one before is held; as of the environment."""
        self._is_begun = False
        return super().reset(**options)

    def observation(self, observation: Any) -> NDArray[np.float32]:
        """Return the observation with its predictions, float32, shape (n_channels + n_predictions,)."""
        readings = np.asarray(observation, dtype=np.float32)
        tiles = self._encode(self._held.fill(readings, begins=not self._is_begun))
        self._is_begun = True
        predicted = self._horde.predict(tiles, self._held.known(readings))[self._places]
        return np.concatenate([readings, predicted.astype(np.float32)])


def _normalizer(env: Any) -> Any:
    """Return the VecNormalize around an environment, or None; raise ValueError if there are several."""
    normalizers = []
    while isinstance(env, VecEnvWrapper):
        normalizers += [env] if isinstance(env, VecNormalize) else []
        env = env.venv
    if len(normalizers) > 1:
        raise ValueError(
            f"the environment is wrapped in VecNormalize {len(normalizers)} times; once is enough"
        )
    return normalizers[0] if normalizers else None
