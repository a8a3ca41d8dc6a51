"""A Horde beside PPO: the b that it learns with is PPO's own, and nothing is learned across the end of an episode."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from horde_agent import GVF, ConstantAction, Horde, Interface

stable_baselines3 = pytest.importorskip("stable_baselines3")

from horde_agent.sb3 import HordeCallback  # noqa: E402 - only where stable-baselines3 is


class Corridor(gym.Env[np.ndarray, int]):
    """Five places in a row; action 1 goes right, 0 stays. Every `length` steps it ends or is cut; step 7 is a gap."""

    def __init__(self, *, terminates: bool = False, length: int = 20, gap_at: int | None = None) -> None:
        self.observation_space, self.action_space = spaces.Box(0.0, 1.0, (1,), np.float32), spaces.Discrete(2)
        self.terminates, self.length, self.gap_at = terminates, length, gap_at

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.steps, self.place = 0, 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        self.place = min(self.place + int(action), 4)
        ended = self.steps == self.length
        info = {"gap": int(self.steps == self.gap_at), "applied": 1}
        return self._observation(), float(self.place), ended and self.terminates, ended and not self.terminates, info

    def _observation(self) -> np.ndarray:
        return np.array([self.place / 4.0], dtype=np.float32)


class Spy(Horde):
    """Notes the order of calls."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.calls: list[str] = []
        self.seen: list[tuple[int, float]] = []

    def begin(self, observation: Any, tiles: Any) -> Any:
        self.calls.append("begin")
        return super().begin(observation, tiles)

    def learn(self, action: int, probability: float, observation: Any, tiles: Any, *, terminated: bool = False) -> Any:
        self.calls.append("end" if terminated else "learn")
        self.seen.append((action, probability))
        return super().learn(action, probability, observation, tiles, terminated=terminated)


def train(env: Corridor, steps: int = 64, algorithm: str = "PPO") -> tuple[Spy, HordeCallback, Any]:
    face = Interface.of(env)
    question = GVF("place", ConstantAction(1, 2), lambda observation, tiles: float(observation[0]), continuation=0.5)
    horde = Spy([question], n_features=face.coder.n_features, n_active=face.coder.n_active)
    callback = HordeCallback(horde, face)
    kind = getattr(stable_baselines3, algorithm)
    settings = {"n_steps": 32, "batch_size": 32} if algorithm == "PPO" else {}
    controller = kind("MlpPolicy", env, seed=0, device="cpu", **settings)
    controller.learn(steps, callback=callback)
    return horde, callback, controller


def test_b_is_the_probability_that_ppo_gave_its_action() -> None:
    """In one rollout of 32 steps the policy does not change, so it can be asked again afterwards."""

    class Asked(HordeCallback):
        def _on_step(self) -> bool:
            import torch

            observation = torch.as_tensor(self.model._last_obs)
            action = torch.as_tensor(self.locals["actions"])
            with torch.no_grad():
                b = float(self.model.policy.get_distribution(observation).log_prob(action).exp())
            asked.append(b)
            return super()._on_step()

    asked: list[float] = []
    env = Corridor()
    face = Interface.of(env)
    question = GVF("place", ConstantAction(1, 2), lambda observation, tiles: 0.0, continuation=0.5)
    horde = Spy([question], n_features=face.coder.n_features, n_active=face.coder.n_active)
    ppo = stable_baselines3.PPO("MlpPolicy", env, n_steps=32, batch_size=32, seed=0, device="cpu")
    ppo.learn(64, callback=Asked(horde, face))

    assert len(horde.seen) == 64
    np.testing.assert_allclose([b for _, b in horde.seen], asked, rtol=1e-6)
    # A fixed b of one half would pass a test with an untrained policy; this one has moved.
    assert len({round(b, 4) for _, b in horde.seen}) > 10


def test_a_truncated_episode_is_learned_to_its_end_and_then_begun_anew() -> None:
    horde, callback, _ = train(Corridor(length=20), steps=64)
    assert (
        horde.calls
        == ["begin", *["learn"] * 20, "begin", *["learn"] * 20, "begin", *["learn"] * 20, "begin"] + ["learn"] * 4
    )
    assert (callback.n_learned, callback.n_gaps) == (64, 4)


def test_a_terminated_episode_ends_the_question_and_then_begins_anew() -> None:
    horde, _, _ = train(Corridor(length=20, terminates=True), steps=32)
    assert horde.calls == ["begin", *["learn"] * 19, "end", "begin", *["learn"] * 12]


def test_nothing_is_learned_across_a_gap() -> None:
    horde, callback, _ = train(Corridor(length=20, gap_at=7), steps=32)
    assert horde.calls[:9] == ["begin", *["learn"] * 6, "begin", "learn"]
    assert callback.n_learned == 30  # the gaps at steps 7 and 27


def test_an_interface_that_feeds_predictions_back_is_refused() -> None:
    env = Corridor()
    face = Interface.of(env)
    question = GVF("place", ConstantAction(1, 2), lambda observation, tiles: float(observation[0]), continuation=0.5)
    looped = face.feeding_back([question], [{"questions": ["*"], "intervals": [4], "tilings": 2, "range": [0, 8]}])
    horde = Horde([question], n_features=looped.coder.n_features, n_active=looped.coder.n_active)
    with pytest.raises(ValueError, match="cannot feed predictions back: give it an interface without"):
        HordeCallback(horde, looped)


def test_an_algorithm_that_tells_no_probabilities_is_refused() -> None:
    with pytest.raises(ValueError, match="DQN does not report the probability of its actions; use PPO or A2C"):
        train(Corridor(), algorithm="DQN")
