"""The value function of PPO while it learns to balance a pole: the Horde's prediction, and the return that followed."""

from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
import torch
from stable_baselines3 import PPO

from horde_agent import GVF, Behaviour, Horde, Interface, LearnerConfig, Reward
from horde_agent.sb3 import HordeCallback

CONFIG = LearnerConfig.paper()

GAMMA = 0.95
SMOOTHED = 500  # steps
SHOWN = 150  # steps

env = gym.make("CartPole-v1", max_episode_steps=100_000)  # an episode ends when the pole falls
interface = Interface.of(env)
coder = interface.coder
questions = [GVF("value", Behaviour(), Reward(), continuation=GAMMA, lam=0.8)]
horde = Horde(questions, n_features=coder.n_features, n_active=coder.n_active, config=CONFIG)
predictions: list[float] = []
rewards: list[float] = []
falls: list[bool] = []


class Watch(HordeCallback):
    """Stores the prediction before each step of PPO, the reward after it, and whether the pole fell."""

    def _on_step(self) -> bool:
        predictions.append(float(horde.predictions[0]))
        rewards.append(float(self.locals["rewards"][0]))
        falls.append(bool(self.locals["dones"][0]))
        return super()._on_step()


torch.set_num_threads(1)  # a small network, beside the Horde's threads
controller = PPO(
    "MlpPolicy",
    env,
    n_steps=256,
    batch_size=128,
    n_epochs=5,
    learning_rate=1e-3,
    seed=0,
    device="cpu",
)
controller.learn(6_144, callback=Watch(horde, interface))
env.close()

n_steps = int(np.flatnonzero(falls)[-1]) + 1  # the return of the last episode is not complete
returns = np.zeros(n_steps)
following = 0.0
for step in reversed(range(n_steps)):
    if falls[step]:
        following = 0.0
    following = rewards[step] + GAMMA * following
    returns[step] = following
predicted = np.array(predictions[:n_steps])


def smoothed(values: np.ndarray) -> np.ndarray:
    """Return means of neighbouring values."""
    return np.convolve(values, np.full(SMOOTHED, 1 / SMOOTHED), mode="valid")


figure, (whole, last) = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
whole.plot(smoothed(returns), color="0.6", label="return that followed")
whole.plot(smoothed(predicted), color="C0", label="prediction")
whole.set(xlabel="steps of PPO (means of 500)", ylabel="discounted reward")
whole.legend(frameon=False)
steps = np.arange(-SHOWN, 0)
last.plot(steps, returns[-SHOWN:], color="0.6")
last.plot(steps, predicted[-SHOWN:], color="C0")
last.set(xlabel="steps before the last fall")
figure.savefig(Path(__file__).with_suffix(".png"), dpi=140)
