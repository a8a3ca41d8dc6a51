"""Learned features: a Horde on a small network's last layer, real numbers instead of tiles."""

from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from horde_agent import GVF, Behaviour, Channel, Horde, LearnerConfig

GAMMA = 0.9
STEPS = 8_000
torch.manual_seed(0)
env = gym.make("CartPole-v1")
rng = np.random.default_rng(seed=0)
network = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
predictor = nn.Sequential(network, nn.Linear(32, 4))  # of the next observation
optimiser = torch.optim.Adam(predictor.parameters(), lr=3e-3)
question = GVF("angle", Behaviour(), Channel(2), GAMMA, lam=0.8)
config = LearnerConfig.paper(step_size=0.5)
horde = Horde([question], n_features=32, n_active=32, config=config, real_valued=True)


def features(observation):
    """Return the outputs of the network's last layer, shape (32,)."""
    return network(torch.as_tensor(observation)).detach().numpy()


angles = np.zeros(STEPS)  # reached by each step
continues = np.ones(STEPS)  # 0 where the episode ended
predictions = np.zeros(STEPS)  # before each step
observation, info = env.reset(seed=0)
prediction = horde.begin(observation, features(observation))
for t in range(STEPS):
    predictions[t] = prediction[0]
    previous = torch.as_tensor(observation)
    action = int(rng.integers(2))
    observation, reward, ended, truncated, info = env.step(action)
    prediction = horde.learn(action, 0.5, observation, features(observation), terminated=ended)
    angles[t] = observation[2]
    continues[t] = 1.0 - ended

    optimiser.zero_grad()
    errors = predictor(previous) - torch.as_tensor(observation)
    (errors**2).mean().backward()
    optimiser.step()
    if ended:
        observation, info = env.reset()
        prediction = horde.begin(observation, features(observation))

returns = np.zeros(STEPS + 1)
for t in reversed(range(STEPS)):
    returns[t] = angles[t] + GAMMA * continues[t] * returns[t + 1]
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.plot(returns[-251:-51], label="the angles that then came")
axes.plot(predictions[-250:-50], label="predicted")
axes.set(xlabel="step", ylabel="pole's angle, summed\nover the next ten steps (rad)")
axes.legend(frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=140)
