"""A Horde with PPO, A2C, DQN and SAC: exact b, ends of episodes, normalised observations, several environments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from horde_agent import (
    GVF,
    Behaviour,
    Channel,
    ConstantAction,
    Horde,
    Interface,
    LearnerConfig,
    Reward,
    TabularObservation,
)
from horde_agent.learning.rules import PAPER_CONFIG
from horde_agent.life.counts import RobotInfo
from horde_agent.life.learner import StreamLearner
from horde_agent.record import NO_ACTION, Flag, Phase
from tests.agent.doubles import horde_of
from tests.agent.hordes import engine_of

stable_baselines3 = pytest.importorskip("stable_baselines3")

import torch  # noqa: E402 - after importorskip
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402 - after importorskip
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor  # noqa: E402 - after importorskip
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize  # noqa: E402 - after importorskip

from horde_agent.sb3 import (  # noqa: E402 - after importorskip
    BatchVecEnv,
    ChoiceByNumber,
    ControllerPolicy,
    HordeCallback,
    PredictiveObservation,
    squashed_share,
)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Use one thread in torch: numba's parallel loops set its number too, and two take ten times as long here."""
    torch.set_num_threads(1)


class Corridor(gym.Env[np.ndarray, int]):
    """Five places in a row, the last read as `top`; action 1 moves right, 0 stays. An episode has `length` steps.

    It terminates or is truncated; its step `faulty` has the info `fault`.
    """

    def __init__(
        self,
        *,
        terminates: bool = False,
        length: int = 20,
        faulty: int | None = None,
        fault: dict[str, int] | None = None,
        top: float = 1.0,
    ) -> None:
        self.observation_space = spaces.Box(0.0, top, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.terminates = terminates
        self.length = length
        self.faulty = faulty
        self.fault = fault or {}
        self.top = top

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.steps = 0
        self.place = 0
        return self.observed(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        self.place = min(self.place + int(action), 4)
        ended = self.steps == self.length
        info = {"gap": 0, "applied": 1, "stale": 0} | (
            self.fault if self.steps == self.faulty else {}
        )
        return (
            self.observed(),
            float(self.place),
            ended and self.terminates,
            ended and not self.terminates,
            info,
        )

    def observed(self) -> np.ndarray:
        return np.array([self.top * self.place / 4.0], dtype=np.float32)


class Spy(Horde):
    """Records its calls."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.calls: list[str] = []
        self.seen: list[tuple[int, float]] = []
        self.shown: list[float] = []
        self.rewards: list[float] = []

    def begin(self, observation: Any, tiles: Any) -> Any:
        self.calls.append("begin")
        self.shown.append(float(observation[0]))
        return super().begin(observation, tiles)

    def learn(
        self,
        action: int,
        probability: float,
        observation: Any,
        tiles: Any,
        *,
        terminated: bool = False,
        reward: float = np.nan,
    ) -> Any:
        self.calls.append("end" if terminated else "learn")
        self.seen.append((action, probability))
        self.shown.append(float(observation[0]))
        self.rewards.append(reward)
        return super().learn(
            action, probability, observation, tiles, terminated=terminated, reward=reward
        )


SAME_STEP = AutoresetMode.SAME_STEP
PLACE = GVF(
    "place",
    ConstantAction(1, 2),
    lambda observation, tiles: float(observation[0]),
    continuation=0.5,
)
PLAIN = LearnerConfig.paper(engine="plain", dtype="float64")
FEW = 2  # passes of PPO over its data instead of ten, which take most of a test's time
FACE = Interface.of(Corridor())


def spy(
    interface: Interface = FACE, question: GVF = PLACE, config: LearnerConfig = PAPER_CONFIG
) -> Spy:
    coder = interface.coder
    return Spy([question], n_features=coder.n_features, n_active=coder.n_active, config=config)


def model_of(algorithm: str, env: Any, **settings: Any) -> Any:
    return getattr(stable_baselines3, algorithm)("MlpPolicy", env, seed=0, device="cpu", **settings)


def ppo(env: Any, n_steps: int = 32) -> Any:
    return model_of("PPO", env, n_steps=n_steps, batch_size=n_steps, n_epochs=FEW)


def corridors(n: int, **arguments: Any) -> Any:
    return make_vec_env(Corridor, n_envs=n, env_kwargs=arguments)


def train(
    env: Any, steps: int = 64, face: Interface | None = None, question: GVF = PLACE
) -> tuple[Spy, HordeCallback, Any]:
    face = face or Interface.of(env)
    horde = spy(face, question)
    callback = HordeCallback(horde, face)
    return horde, callback, ppo(env).learn(steps, callback=callback)


class Unread(Corridor):
    """The corridor with a second channel, whose reading is missing at some steps of an episode."""

    def __init__(self, missing: Sequence[int] = (5, 6, 7, 8), **arguments: Any) -> None:
        super().__init__(**arguments)
        self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
        self.missing = missing

    def observed(self) -> np.ndarray:
        second = 0.5
        if self.steps in self.missing:
            second = np.nan
        return np.append(super().observed(), second).astype(np.float32)


class WithoutSecond(BaseFeaturesExtractor):
    """Reads the first channel alone."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__(space, 1)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return observations[:, :1]


def test_a_missing_reading_concerns_the_questions_about_it_alone() -> None:
    """In 64 steps of episodes of 20 it is missing in 4 of each, and in none of the last 4; nothing is a gap."""
    env = make_vec_env(Unread, n_envs=1)
    face = Interface.of(Unread()).with_unknown()
    questions = [GVF(f"{i}", Behaviour(), Channel(i), 0.5) for i in range(2)]
    horde = horde_of(questions, face)
    callback = HordeCallback(horde, face)
    policy = {"features_extractor_class": WithoutSecond}
    model = model_of("PPO", env, n_steps=32, batch_size=32, n_epochs=1, policy_kwargs=policy)
    model.learn(64, callback=callback)
    assert callback.n_learned == 64
    assert horde.n_skipped.tolist() == [0, 12]


class TilesSpy(Horde):
    """Records the tiles with which streams begin, and those of predictions."""

    def __init__(self, interface: Interface) -> None:
        coder = interface.coder
        question = GVF("second", Behaviour(), Channel(1), 0.5)
        super().__init__([question], n_features=coder.n_features, n_active=coder.n_active)
        self.began: list[list[int]] = []
        self.predicted: list[list[int]] = []

    def begin(self, observation: Any, tiles: Any) -> Any:
        self.began.append(tiles.tolist())
        return super().begin(observation, tiles)

    def predict(self, tiles: Any, observation: Any = None) -> Any:
        self.predicted.append(tiles.tolist())
        return super().predict(tiles, observation)


def test_a_stale_frame_ends_no_reading_that_is_held_and_a_gap_does() -> None:
    """Missing from step 5 on; at step 5 the last one is held, for a period, unless it follows a gap."""
    face = Interface.of(Unread()).with_unknown()
    for fault, second in (({"stale": 1}, 0.5), ({"gap": 1}, np.nan)):
        env = Unread(range(5, 100), faulty=5, fault=fault)
        horde = TilesSpy(face)
        policy = {"features_extractor_class": WithoutSecond}
        model = model_of("PPO", env, n_steps=8, batch_size=8, n_epochs=1, policy_kwargs=policy)
        model.learn(8, callback=HordeCallback(horde, face))
        expected = [face.encode(np.array([place / 4, second])).tolist() for place in range(5)]
        assert len(horde.began) == 2
        assert horde.began[1] in expected


def test_no_reading_of_an_episode_is_held_in_the_next_one() -> None:
    """Two steps after a reset it is there; after the next reset it is unknown, and not what it was."""
    face = Interface.of(Unread()).with_unknown()
    horde = TilesSpy(face)
    env = PredictiveObservation(Unread(missing=(0,)), horde, face, ["second"])
    for _ in range(2):
        env.reset()
        env.step(0)
    place = np.array([0.0, 0.5])
    unknown = np.array([0.0, np.nan])
    expected = [face.encode(one).tolist() for one in (unknown, place)]
    assert horde.predicted == expected * 2


@pytest.mark.parametrize("n_envs", [1, 3])
def test_b_is_the_probability_of_ppo_for_the_action_of_each_environment(n_envs: int) -> None:
    """The policy does not change within a rollout, so its probabilities can be computed again."""

    class Asked(HordeCallback):
        def probability(self, k: int, action: int) -> float:
            probability = super().probability(k, action)
            policy = self.model.policy
            with torch.no_grad():
                observation = torch.as_tensor(self.model._last_obs)[k : k + 1]
                b = float(
                    policy.get_distribution(observation).log_prob(torch.as_tensor([action])).exp()
                )
            assert probability == pytest.approx(b, rel=1e-5)
            asked.append((k, round(probability, 4)))
            return probability

    asked: list[tuple[int, float]] = []
    horde = spy(config=PLAIN)
    ppo(corridors(n_envs), 96 // n_envs // 3).learn(96, callback=Asked(horde, FACE))
    assert {k for k, _ in asked} == set(range(n_envs))
    assert len({b for _, b in asked}) > 10  # an untrained policy's b would be one half
    if n_envs == 1:
        assert [round(b, 4) for _, b in horde.seen] == [b for _, b in asked]


@pytest.mark.parametrize(
    ("episode", "n_before", "last", "n_learned", "n_gaps"),
    [
        ({}, 20, [], 32, 2),
        ({"terminates": True}, 19, ["end"], 32, 2),
        ({"faulty": 7, "fault": {"stale": 1}}, 6, [], 30, 4),  # at the steps 7 and 27
        ({"faulty": 20, "fault": {"applied": 0}, "terminates": True}, 19, [], 31, 2),
    ],
)
def test_a_stream_ends_with_an_episode_a_gap_a_stale_frame_or_a_refused_command(
    episode: dict[str, Any], n_before: int, last: list[str], n_learned: int, n_gaps: int
) -> None:
    """In episodes of 20 steps, of 32; a truncated one is learned to its end, and the beginning is a gap."""
    horde, callback, _ = train(Corridor(**episode), steps=32)
    first = ["begin", *["learn"] * n_before, *last, "begin", "learn"]
    assert horde.calls[: len(first)] == first
    assert (callback.n_learned, callback.n_gaps) == (n_learned, n_gaps)


def places_of(horde: Spy) -> list[float]:
    """Return which places follow from the actions that were learned from; an episode begins at place 0."""
    place = 0
    places = []
    actions = iter(horde.seen)
    for call in horde.calls:
        if call == "begin":
            place = 0
        else:
            place = min(place + next(actions)[0], 4)
        places.append(float(place))
    return places


def normalised(env: gym.Env[Any, Any], **settings: Any) -> Any:
    return VecNormalize(DummyVecEnv([lambda: env]), **settings)


@pytest.mark.parametrize("is_normalised", [False, True])
def test_a_horde_learns_from_the_rewards_of_the_environment(is_normalised: bool) -> None:
    """The reward is the place reached, also if VecNormalize scales it for the controller."""
    env = Corridor(length=8, top=4.0)
    wrapped: Any = env
    if is_normalised:
        wrapped = normalised(env, norm_obs=False)
    horde, _, _ = train(wrapped, 64, face=Interface.of(env))
    reached = [
        shown
        for shown, call in zip(horde.shown[1:], horde.calls[1:], strict=True)
        if call != "begin"
    ]
    assert horde.rewards == pytest.approx(reached)


def p_right_in_each_place(controller: Any) -> np.ndarray:
    """Return PPO's probability of moving right in the five places, shape (5,)."""
    places = np.linspace(0.0, 1.0, 5, dtype=np.float32)[:, np.newaxis]
    return own_probabilities(controller, places)[:, 1]


@pytest.mark.slow
def test_the_value_of_a_policy_in_eight_environments_is_that_of_monte_carlo() -> None:
    """The prediction in the first place, gamma = 0.9, after PPO has stopped learning: within two standard errors.

    The returns are those of 400 walks of 100 steps by PPO's probabilities: the rest is at most
    40 gamma^100 = .001. Episodes are cut after 10 steps, so the value needs bootstrapping. The
    prediction is a mean over 2,500 steps, since the step size is constant.
    """
    gamma = 0.9
    n_walks = 400
    env = corridors(8, length=10)
    face = Interface.of(Corridor())
    question = GVF("value", Behaviour(), Reward(), gamma)
    horde = horde_of([question], face, engine="plain", step_size=0.2)
    controller = model_of(
        "PPO",
        env,
        n_steps=100,
        batch_size=200,
        n_epochs=4,
        learning_rate=lambda remaining: 3e-3 * (remaining > 0.8),
    )
    first_place = face.encode(np.zeros(1, np.float32))
    predictions = []

    class Watch(HordeCallback):
        def _on_step(self) -> bool:
            continues = super()._on_step()
            predictions.append(float(horde.predict(first_place)[0]))
            return continues

    p_before = p_right_in_each_place(controller)
    controller.learn(32_000, callback=Watch(horde, face))

    p_right = p_right_in_each_place(controller)
    assert np.abs(p_right - p_before).max() > 0.05, "PPO has learned"
    rng = np.random.default_rng(0)
    place = np.zeros(n_walks, dtype=np.int64)
    returns = np.zeros(n_walks)
    for k in range(100):
        place = np.minimum(place + (rng.random(n_walks) < p_right[place]), 4)
        returns += gamma**k * place
    standard_error = returns.std() / np.sqrt(n_walks)
    assert abs(np.mean(predictions[-2_500:]) - returns.mean()) < 2.0 * standard_error


@pytest.mark.parametrize("norm_obs", [None, False, True])
def test_the_horde_learns_from_observations_that_vec_normalize_does_not_change(
    norm_obs: bool | None,
) -> None:
    """The places themselves reach it; with the last one of an episode, not the first of the next one (0)."""
    env = Corridor(length=8, top=4.0)  # 128 steps end with an episode
    wrapped = env
    if norm_obs is not None:
        wrapped = normalised(env, norm_obs=norm_obs)
    horde, callback, controller = train(wrapped, 128, face=Interface.of(env))
    lasts = [
        shown for shown, call in zip(horde.shown, horde.calls[1:], strict=False) if call == "begin"
    ]
    assert max(lasts) == pytest.approx(4.0, abs=1e-5)
    assert horde.shown == pytest.approx(places_of(horde), abs=1e-5)
    assert callback.n_learned == 128
    if norm_obs:
        assert float(np.abs(controller._last_obs).max()) not in (0.0, 1.0, 2.0, 3.0, 4.0)
    controller.learn(64, callback=callback, reset_num_timesteps=False)
    assert horde.shown == pytest.approx(places_of(horde), abs=1e-5)
    assert callback.n_learned == 192


def test_a_clipped_last_observation_is_not_learned_from() -> None:
    """At most half a standard deviation is shown: what lies beyond cannot be reckoned back."""
    env = Corridor(length=6, top=4.0)
    horde, callback, _ = train(normalised(env, clip_obs=0.5), 128, face=Interface.of(env))
    n_ends = 128 // 6
    assert 128 - n_ends <= callback.n_learned < 128
    assert horde.shown == pytest.approx(places_of(horde), abs=1e-5)


def test_a_recorded_stream_and_the_callback_learn_the_same() -> None:
    """The stream of PPO, recorded, teaches a student bit for bit what the callback learned."""

    class Keeping(HordeCallback):
        def _on_step(self) -> bool:
            goes_on = super()._on_step()
            is_over = bool(self.locals["dones"][0])
            if is_over:
                reached = self.locals["infos"][0]["terminal_observation"]
            else:
                reached = self.locals["new_obs"][0]
            flags = RobotInfo.of(self.locals["infos"][0], truncated=is_over).flags
            kept.append(
                (int(self.locals["actions"][0]), self.last_probability, reached.copy(), flags)
            )
            if is_over:
                kept.append((NO_ACTION, np.nan, self.locals["new_obs"][0].copy(), int(Flag.GAP)))
            return goes_on

    kept: list[Any] = []
    env = Corridor(length=9, top=4.0, faulty=4, fault={"stale": 1})
    face = Interface.of(env)

    horde = horde_of([PLACE], face)
    twin = horde_of([PLACE], face)
    ppo(env).learn(64, callback=Keeping(horde, face))
    student = StreamLearner(twin, face)
    student.observe(np.zeros(1, np.float32), Flag.GAP)
    for action, b, observation, flags in kept:
        student.set_action(Phase.END if action == NO_ACTION else Phase.BEHAVE, action, b, 0)
        student.observe(observation, flags)
    assert twin.weights_sha256() == horde.weights_sha256()
    assert student.learning_steps == 57  # 64 less the stale steps


def test_b_of_dqn_follows_from_epsilon_and_the_greedy_action() -> None:
    """Uniform before `learning_starts`; then epsilon / 2 for the other action and 1 - epsilon / 2 for the greedy one.

    A b of 1 for every greedy action would be wrong by epsilon / 2, here up to a half.
    """

    class Asked(HordeCallback):
        def probability(self, k: int, action: int) -> float:
            model: Any = self.model
            tensor, _ = model.policy.obs_to_tensor(model._last_obs)
            records.append(
                (float(model.exploration_rate), int(model.q_net(tensor).argmax()) == action)
            )
            return super().probability(k, action)

    horde = spy()
    records = list[tuple[float, bool]]()
    controller = model_of(
        "DQN", Corridor(), learning_starts=50, exploration_fraction=0.5, train_freq=4
    )
    controller.learn(300, callback=Asked(horde, FACE))
    probabilities_b = [b for _, b in horde.seen]
    assert probabilities_b[:50] == [0.5] * 50
    for b, (epsilon, is_greedy) in zip(probabilities_b[50:], records[50:], strict=True):
        assert b == pytest.approx(1.0 - epsilon / 2.0 if is_greedy else epsilon / 2.0)
    assert {is_greedy for _, is_greedy in records[50:]} == {True, False}
    assert min(probabilities_b) < 0.3


class Doubled(BaseFeaturesExtractor):
    """A feature extractor with an argument, weights and a running statistic."""

    def __init__(self, space: spaces.Box, width: int) -> None:
        super().__init__(space, width)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(1, width), torch.nn.BatchNorm1d(width), torch.nn.Tanh()
        )

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.layers(2.0 * observations)


CUSTOM = {
    "features_extractor_class": Doubled,
    "features_extractor_kwargs": {"width": 6},
    "net_arch": [8],
}
STATES = np.linspace(0.0, 1.0, 5, dtype=np.float32)[:, None]
NO_TILES = np.zeros(0, np.int64)


def controller_of(algorithm: str, env: Any, policy_kwargs: dict[str, Any] | None = None) -> Any:
    settings = {
        "PPO": {"n_steps": 16, "batch_size": 16, "n_epochs": FEW},
        "DQN": {"learning_starts": 10},
    }
    return model_of(
        algorithm, env, **settings[algorithm], learning_rate=0.05, policy_kwargs=policy_kwargs
    )


def probabilities(policy: Any, states: np.ndarray = STATES) -> np.ndarray:
    return np.array([policy.probabilities(state, NO_TILES) for state in states])


def own_probabilities(model: Any, states: np.ndarray = STATES) -> np.ndarray:
    """Return the controller's own probabilities in each state, shape (n_states, n_actions)."""
    if isinstance(model, stable_baselines3.DQN):
        return np.eye(2)[model.predict(states, deterministic=True)[0]]
    model.policy.set_training_mode(False)
    with torch.no_grad():
        action_probs = model.policy.get_distribution(torch.as_tensor(states)).distribution.probs
    return action_probs.numpy()


@pytest.mark.parametrize(
    ("algorithm", "policy_kwargs", "loaded"), [("PPO", CUSTOM, True), ("DQN", None, False)]
)
def test_a_frozen_controller_policy_does_not_change_while_the_controller_learns(
    algorithm: str, policy_kwargs: dict[str, Any] | None, loaded: bool, tmp_path: Path
) -> None:
    """The frozen policy has the trained controller's probabilities, and its weights do not follow the controller's."""
    model = controller_of(algorithm, Corridor(), policy_kwargs).learn(64)
    if loaded:
        model.save(tmp_path / "model")
        model = type(model).load(tmp_path / "model", env=Corridor(), device="cpu")
    frozen = ControllerPolicy(model)
    moving = ControllerPolicy(model, frozen=False)
    first_values = probabilities(frozen)
    np.testing.assert_allclose(first_values, own_probabilities(model), atol=1e-6)
    weights = {name: values.clone() for name, values in model.policy.state_dict().items()}
    model.learn(200)
    np.testing.assert_array_equal(probabilities(frozen), first_values)
    assert any(
        bool((values != weights[name]).any()) for name, values in model.policy.state_dict().items()
    )
    np.testing.assert_allclose(probabilities(moving), own_probabilities(model), atol=1e-6)


@pytest.mark.parametrize("algorithm", ["PPO", "DQN"])
def test_copying_a_controller_does_not_change_its_learning(algorithm: str) -> None:
    """Same seed, same weights: making the copy takes no draw from torch's generator."""

    def weights(asks: bool) -> list[float]:
        model = controller_of(algorithm, Corridor()).learn(64)
        if asks:
            ControllerPolicy(model)
        model.learn(64, reset_num_timesteps=False)
        return [float(values.double().sum()) for values in model.policy.state_dict().values()]

    assert weights(asks=True) == weights(asks=False)


@pytest.mark.parametrize("frozen", [True, False])
def test_a_controller_policy_normalises_as_vec_normalize_does(frozen: bool) -> None:
    """The raw places 0..4 are far from the normalised ones; frozen statistics stay those of the copy."""
    model = controller_of("PPO", normalised(Corridor(length=8, top=4.0)))
    model.learn(128)
    policy = ControllerPolicy(model, frozen=frozen)
    states = 4.0 * STATES
    first_values = probabilities(policy, states)
    np.testing.assert_allclose(
        first_values, own_probabilities(model, model.get_env().normalize_obs(states)), atol=1e-6
    )
    assert not np.allclose(first_values, own_probabilities(model, states), atol=1e-3)
    model.get_env().obs_rms.mean += 1.0
    assert np.array_equal(probabilities(policy, states), first_values) is frozen


def test_predictions_are_appended_for_the_controller_only() -> None:
    """The wrapped observation is the own one and the prediction; the Horde learns from the own part alone."""
    horde = spy()
    face = FACE
    env = PredictiveObservation(Corridor(), horde, face, ["place"])
    assert env.observation_space.shape == (2,)
    assert Interface.of(env).names == ("obs_0", "predicted place")
    ppo(env).learn(128, callback=HordeCallback(horde, face))
    assert len(horde.seen) > 100
    observation, _ = env.reset(seed=0)
    predicted = horde.predict(face.encode(observation[:1]), observation[:1])[0]
    assert observation[1] == np.float32(predicted)
    assert predicted != 0.0


def test_b_of_sac_is_the_share_of_its_draws_with_the_same_action() -> None:
    """Before `learning_starts` a half each; then against 20,000 draws of the same actor at the same observation."""

    class Asked(HordeCallback):
        def probability(self, k: int, action: int) -> float:
            probability = super().probability(k, action)
            if len(horde.seen) % 20 == 19:
                observation = torch.as_tensor(self.model._last_obs).repeat(20_000, 1)
                with torch.no_grad():
                    drawn = self.model.actor(observation).numpy()[:, 0]
                asked.append((probability, float(np.mean((drawn >= 0.0) == (action == 1)))))
            return probability

    asked: list[tuple[float, float]] = []
    horde = spy()
    face = FACE
    settings = {"learning_starts": 20, "learning_rate": 0.01, "batch_size": 32}
    controller = model_of("SAC", ChoiceByNumber(Corridor()), **settings)
    controller.learn(100, callback=Asked(horde, face))
    probabilities_b = [b for _, b in horde.seen]
    assert probabilities_b[:20] == [0.5] * 20
    assert len(set(probabilities_b[20:])) > 20
    assert {action for action, _ in horde.seen} == {0, 1}
    assert len(asked) == 5
    for b, share in asked[1:]:
        assert b == pytest.approx(share, abs=0.015)


def test_shares_of_a_squashed_gaussian_add_up_to_one_however_far_its_mean_lies() -> None:
    for mean, std in ((0.0, 1.0), (-4.0, 0.5), (9.0, 1.0)):
        shares = [squashed_share(mean, std, action, 5) for action in range(5)]
        assert sum(shares) == pytest.approx(1.0)
        assert min(shares) > 0.0


# ---- several environments --------------------------------------------------------------------------------------------


TWO = [
    GVF("left", ConstantAction(0, 2), Channel(0), continuation=0.8, lam=0.9),
    GVF("seen", Behaviour(), Channel(0), continuation=0.5, lam=0.4),
]


def after_a_step(seeds: list[int]) -> Any:
    """Return the weights of a Horde that learned from a step of several random streams."""
    hordes = [Horde(TWO, n_features=12, n_active=3, config=PLAIN)]
    hordes += [hordes[0].copy_for_stream() for _ in seeds[1:]]
    for horde, rng in zip(hordes, map(np.random.default_rng, seeds), strict=True):
        horde.begin(rng.random(1), rng.permutation(12)[:3])
        action = int(rng.random() < 0.7)
        horde.learn(action, 0.7 if action else 0.3, rng.random(1), rng.permutation(12)[:3])
    hordes[0].merge(hordes[1:])
    return hordes[0].weights()


def test_a_step_of_several_streams_is_the_mean_of_their_changes() -> None:
    """From the same weights, by hand: one learner for each stream, then theta + mean of the changes."""
    alone = [after_a_step([k]) for k in range(3)]
    np.testing.assert_allclose(after_a_step([0, 1, 2]), np.mean(alone, axis=0), atol=1e-15)


def test_a_demon_that_diverges_in_one_stream_is_diverged_in_all() -> None:
    first = Horde(TWO, n_features=12, n_active=3, config=LearnerConfig.paper(engine="plain"))
    second = first.copy_for_stream()
    state = np.array([0.5]), np.array([0, 1, 2])
    first.begin(*state)
    second.begin(*state)
    first.learn(0, 0.5, np.array([1e39]), state[1])  # float32 cannot hold it
    second.learn(0, 0.5, *state)
    first.merge([second])
    assert "left" in first.diverged
    assert first.diverged == second.diverged == first.copy_for_stream().diverged
    assert np.isfinite(first.weights()[0]).all()
    assert not first.weights()[0][0].any()


@pytest.mark.parametrize("algorithm", ["PPO", "A2C", "DQN"])
def test_each_environment_is_a_stream_and_all_share_weights(algorithm: str) -> None:
    """PPO's is a Gymnasium vector environment."""
    env: Any = corridors(3, length=7)
    if algorithm == "PPO":
        vector_env = gym.vector.SyncVectorEnv(
            [lambda: Corridor(length=7)] * 3, autoreset_mode=SAME_STEP
        )
        env = BatchVecEnv(vector_env)
    callback = HordeCallback(spy(config=PLAIN), FACE)
    settings = {}
    if algorithm == "PPO":
        settings = {"n_steps": 16, "batch_size": 16, "n_epochs": FEW}
    controller = model_of(algorithm, env, **settings)
    for _ in range(2):  # the second call continues learning
        controller.learn(96, callback=callback, reset_num_timesteps=False)
        weights = [stream.weights()[0] for stream in callback.streams]
        assert len(weights) == 3
        assert weights[0].any()
        assert all((one == weights[0]).all() for one in weights)
    assert callback.n_learned == controller.num_timesteps
    assert callback.n_gaps >= 3 * (callback.n_learned // 3 // 7)


def test_a_trace_is_each_streams_own() -> None:
    """Lambda = gamma = 1 - 1/5; one stream takes the target's action (rho = 2), the other does not (rho = 0)."""
    first = Horde(
        [GVF("left", ConstantAction(0, 2), Channel(0), 0.8)],
        n_features=12,
        n_active=3,
        config=PLAIN,
    )
    second = first.copy_for_stream()
    for horde, action in ((first, 0), (second, 1)):
        horde.begin(np.zeros(1), np.array([0, 1, 2]))
        horde.learn(action, 0.5, np.ones(1), np.array([3, 4, 5]))
    first.merge([second])
    traces = [engine_of(horde).rows("e")[0][0] for horde in (first, second)]
    np.testing.assert_array_equal(traces[0], [2.0] * 3 + [0.0] * 9)
    assert not traces[1].any()
    for a, b in zip(first.copy_for_stream().weights(), second.weights(), strict=True):
        assert a.any()
        np.testing.assert_array_equal(a, b)


# ---- a Gymnasium vector environment ----------------------------------------------------------------------------------


def test_a_vector_environment_steps_as_separate_ones() -> None:
    """Three CartPoles: observations, rewards, dones and infos with the last observations, through several episodes."""
    ours = BatchVecEnv(
        gym.make_vec("CartPole-v1", 3, "sync", vector_kwargs={"autoreset_mode": "SameStep"})
    )
    theirs = make_vec_env("CartPole-v1", 3)
    theirs = theirs.unwrapped
    ours.seed(4), theirs.seed(4)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    rng = np.random.default_rng(0)
    n_ended = 0
    for _ in range(60):
        actions = rng.integers(2, size=3)
        (*arrays, infos) = ours.step(actions)
        (*wanted, their_infos) = theirs.step(actions)
        for array, expected in zip(arrays, wanted, strict=True):
            np.testing.assert_array_equal(array, expected)
            assert array.dtype == expected.dtype
        for info, expected in zip(infos, their_infos, strict=True):
            last = expected.pop("terminal_observation", None)
            np.testing.assert_array_equal(info.pop("terminal_observation", None), last)
            assert info == {k: v for k, v in expected.items() if k != "episode"}
        n_ended += int(arrays[2].sum())
    assert n_ended > 3
    assert ours.get_attr("num_envs", [0, 2]) == [3, 3]
    assert not ours.has_attr("n_predictions")


# ---- refusals --------------------------------------------------------------------------------------------------------


def continuous() -> Corridor:
    env = Corridor()
    env.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)  # type: ignore[assignment]
    return env


def looped() -> HordeCallback:
    face = FACE.feeding_back(
        [PLACE], [{"questions": ["*"], "intervals": [4], "tilings": 2, "range": [0, 8]}]
    )
    return HordeCallback(horde_of([PLACE], face), face)


def of_three(face: Interface) -> Any:
    question = GVF("place", ConstantAction(1, 3), Channel(0), continuation=0.5)
    return train(Corridor(), face=face, question=question)


def of_four_actions(env: gym.Env[Any, Any]) -> Any:
    question = GVF("reward", ConstantAction(1, 4), Channel(1), continuation=0.5)
    return train(env, question=question)


def test_a_horde_learns_from_ppo_in_a_discrete_environment() -> None:
    horde, callback, _ = of_four_actions(TabularObservation(gym.make("FrozenLake-v1")))
    assert callback.n_learned > 32
    assert horde.n_features == 16
    assert horde.diverged == []


THREE = Interface(FACE.channels, ("a", "b", "c"), 1.0, FACE.coder, FACE.scaler)


@pytest.mark.parametrize(
    ("do", "words"),
    [
        (lambda: of_three(FACE), r"3 actions, .* 2"),
        (lambda: of_three(THREE), r"2 actions, the interface 3"),
        (looped, "feedback"),
        (lambda: train(corridors(2), face=FACE), "plain engine"),
        (
            lambda: train(VecFrameStack(DummyVecEnv([Corridor]), 2), face=FACE),
            r"shape \(2,\), .* 1 channels",
        ),
        (
            lambda: of_four_actions(gym.make("FrozenLake-v1")),
            r"train in horde_agent\.TabularObservation\(env\)",
        ),
        (lambda: train(VecNormalize(normalised(Corridor())), face=FACE), "VecNormalize 2 times"),
        (
            lambda: model_of("SAC", continuous()).learn(10, callback=HordeCallback(spy(), FACE)),
            "ChoiceByNumber",
        ),
        (
            lambda: model_of("TD3", continuous()).learn(10, callback=HordeCallback(spy(), FACE)),
            "TD3",
        ),
        (
            lambda: PredictiveObservation(Corridor(), spy(), FACE, ["plaice"]),
            "'plaice'; there are place",
        ),
        (lambda: PredictiveObservation(Corridor(), spy(), FACE, []), "names"),
        (lambda: ChoiceByNumber(ChoiceByNumber(Corridor())), "Discrete from 0"),
        (lambda: BatchVecEnv(gym.make_vec("CartPole-v1", 2)), "autoreset_mode"),
    ],
)
def test_what_does_not_fit_is_refused(do: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        do()
