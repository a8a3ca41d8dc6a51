"""Your own log: columns of numbers, learned from on-policy. Here a thermometer by day and night."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from horde_agent import GVF, Behaviour, Channel, Horde, LearnerConfig, TileCoder

CONFIG = LearnerConfig.paper()

# A log of 60 days, a row per hour: light, warmth, hour of the day
rng = np.random.default_rng(seed=0)
hour = np.arange(24 * 60, dtype=float)
brightness = rng.uniform(0.5, 1.0, size=60).repeat(24)  # of each day
light = np.clip(np.sin(2 * np.pi * (hour - 6) / 24), 0, 1) * brightness
warmth = np.zeros(len(hour))
for t in range(1, len(hour)):
    warmth[t] = 0.9 * warmth[t - 1] + 0.1 * light[t - 1] + 0.01 * rng.normal()
log = np.column_stack([light, np.clip(warmth, 0, 1), (hour % 24) / 24])

coder = TileCoder.default(n_inputs=3)
questions = [
    GVF("the next hour", Behaviour(), Channel(1), continuation=0.0, lam=0.9),
    GVF("the next six hours", Behaviour(), Channel(1), continuation=5 / 6, lam=0.9),
]
horde = Horde(questions, n_features=coder.n_features, n_active=coder.n_active, config=CONFIG)

horde.begin(log[0], coder.encode(log[0]))
predictions = []
for row in log[1:]:
    sums = horde.learn(0, 1.0, row, coder.encode(row))  # on-policy: any action, with b = 1
    predictions.append(sums / (1, 6))  # sums over 1 and 6 hours become means

last_week = slice(-24 * 7, None)
day = hour[last_week] / 24
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.plot(day, log[last_week, 1], color="0.6", label="warmth")
axes.plot(day, predictions[last_week], label=["predicted for the next hour", "... six hours"])
axes.set(xlabel="day", ylabel="share of full scale")
axes.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
figure.savefig(Path(__file__).with_suffix(".png"), dpi=140)
