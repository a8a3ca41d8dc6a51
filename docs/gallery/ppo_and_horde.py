"""PPO drives and the Horde watches: what the light would be under other policies, from PPO's own experience."""

from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
from stable_baselines3 import PPO

from horde_agent import GVF, Behaviour, Channel, ConstantAction, Horde, Interface
from horde_agent.sb3 import HordeCallback

env = gym.make("horde_env:CritterbotPen-v0", physics="planar", task="light", max_episode_steps=500)
interface = Interface.of(env)
light = Channel(interface.index("light_0"))
policies = {
    "what PPO does": Behaviour(),
    "only forward": ConstantAction(0, 5),
    "only turning": ConstantAction(2, 5),
}
questions = [GVF(name, policy, light, 0.9, lam=0.8) for name, policy in policies.items()]
horde = Horde(questions, n_features=interface.coder.n_features, n_active=interface.coder.n_active)
history = list[np.ndarray]()


class Watch(HordeCallback):
    """Stores the predictions at each step of PPO."""

    def _on_step(self) -> bool:
        history.append(0.1 * horde.predictions)
        return super()._on_step()


PPO("MlpPolicy", env, n_steps=256, batch_size=64, seed=0, device="cpu").learn(
    3_072, callback=Watch(horde, interface)
)
predictions = np.array(history)
means = np.cumsum(predictions, axis=0)[500:] - np.cumsum(predictions, axis=0)[:-500]
figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
for k, name in enumerate(policies):
    axes.plot(np.arange(len(means)) / 600, means[:, k] / 500, label=name)
axes.set(
    xlabel="robot time (min)", ylabel="light ahead over the next second\n(predicted; mean of 50 s)"
)
axes.legend(frameon=False, ncols=3)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)
env.close()
