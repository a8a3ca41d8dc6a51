"""PPO drives and the Horde watches: the light under other policies, from PPO's own experience."""

from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
from stable_baselines3 import PPO

from horde_agent import GVF, Behaviour, Channel, ConstantAction, Horde, Interface, LearnerConfig
from horde_agent.sb3 import HordeCallback

CONFIG = LearnerConfig.paper()

env = gym.make("horde_env:CritterbotPen-v0", physics="planar", task="light", max_episode_steps=500)
interface = Interface.of(env)
coder = interface.coder
light = Channel(interface.index("light_0"))
questions = [
    GVF("what PPO does", Behaviour(), light, continuation=0.9, lam=0.8),
    GVF("only forward", ConstantAction(0, n_actions=5), light, continuation=0.9, lam=0.8),
    GVF("only turning", ConstantAction(2, n_actions=5), light, continuation=0.9, lam=0.8),
]
horde = Horde(questions, n_features=coder.n_features, n_active=coder.n_active, config=CONFIG)
history: list[np.ndarray] = []


class Watch(HordeCallback):
    """Stores the predictions at each step of PPO."""

    def _on_step(self) -> bool:
        history.append(0.1 * horde.predictions)  # times 1 - gamma: a mean over a second
        return super()._on_step()


controller = PPO("MlpPolicy", env, n_steps=256, batch_size=64, seed=0, device="cpu")
controller.learn(3_072, callback=Watch(horde, interface))
env.close()

sums = np.cumsum(history, axis=0)
means = (sums[500:] - sums[:-500]) / 500
minutes = np.arange(len(means)) / 600
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.plot(minutes, means, label=horde.names)
axes.set(xlabel="robot time (min)", ylabel="light ahead, next second\n(predicted; mean of 50 s)")
axes.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
figure.savefig(Path(__file__).with_suffix(".png"), dpi=140)
