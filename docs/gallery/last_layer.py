"""Learned features: a Horde on a small network's last layer, real numbers instead of tiles."""

from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
import torch

from horde_agent import GVF, Behaviour, Channel, Horde, LearnerConfig

GAMMA = 0.9
STEPS = 8_000
_ = torch.manual_seed(0)
env = gym.make("CartPole-v1")
rng = np.random.default_rng(0)
network = torch.nn.Sequential(
    torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32), torch.nn.Tanh()
)
# Trained to predict the next observation
whole = torch.nn.Sequential(network, torch.nn.Linear(32, 4))
optimiser = torch.optim.Adam(whole.parameters(), lr=3e-3)
questions = [GVF("angle", Behaviour(), Channel(2), GAMMA, lam=0.8)]
horde = Horde(
    questions, n_features=32, n_active=32, config=LearnerConfig(step_size=0.5), real_valued=True
)
rows = np.zeros((STEPS, 3))  # the next angle, whether the episode ended, and the prediction
observation = env.reset(seed=0)[0]
predicted = horde.begin(observation, network(torch.as_tensor(observation)).detach().numpy())
for t in range(STEPS):
    action = int(rng.integers(2))
    prediction = predicted[0]
    previous_observation = torch.as_tensor(observation)
    (observation, _, ended, *_) = env.step(action)
    phi = network(torch.as_tensor(observation)).detach().numpy()
    predicted = horde.learn(action, 0.5, observation, phi, terminated=ended)
    rows[t] = observation[2], ended, prediction
    whole.zero_grad()
    ((whole(previous_observation) - torch.as_tensor(observation)) ** 2).mean().backward()
    optimiser.step()
    if ended:
        observation = env.reset()[0]
        predicted = horde.begin(observation, network(torch.as_tensor(observation)).detach().numpy())
returns = np.zeros(STEPS + 1)
for t in range(STEPS - 1, -1, -1):
    returns[t] = rows[t, 0] + GAMMA * (1 - rows[t, 1]) * returns[t + 1]
figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
axes.plot(
    np.column_stack([returns[:-1], rows[:, 2]])[-250:-50],
    label=["the angles that then came", "predicted"],
)
axes.legend(title="pole's angle, summed over the next second (rad), by step", frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)
