"""Your own log: columns of numbers, learned from on-policy. Here the day and the noise of a thermometer."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from horde_agent import GVF, Behaviour, Channel, Horde, TileCoder

# A log of 60 days, a row per hour
rng = np.random.default_rng(0)
hour = np.arange(24 * 60) * 1.0
light = np.clip(np.sin(2 * np.pi * (hour - 6) / 24), 0, 1) * rng.uniform(0.5, 1.0, 60).repeat(24)
warmth = np.zeros(len(hour))
for t in range(1, len(hour)):
    warmth[t] = 0.9 * warmth[t - 1] + 0.1 * light[t - 1] + 0.01 * rng.normal()
log = np.column_stack([light, np.clip(warmth, 0, 1), (hour % 24) / 24])

coder = TileCoder.default(log.shape[1])
questions = [GVF(f"{reach} h", Behaviour(), Channel(1), 1 - 1 / reach, lam=0.9) for reach in (1, 6)]
horde = Horde(questions, n_features=coder.n_features, n_active=coder.n_active)
horde.begin(log[0], coder.encode(log[0]))
predicted = np.array([horde.learn(0, 1.0, row, coder.encode(row)) for row in log[1:]]) / (1, 6)
figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
last = slice(-24 * 7, None)
axes.plot(hour[last] / 24, log[last, 1], color="0.6", label="warmth")
axes.plot(hour[last] / 24, predicted[last, 0], label="predicted for the next hour")
axes.plot(hour[last] / 24, predicted[last, 1], label="... the next six hours")
axes.set(xlabel="day", ylabel="share of full scale")
axes.legend(frameon=False, ncols=3)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)
