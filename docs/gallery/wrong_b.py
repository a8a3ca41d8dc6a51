"""When b is wrong: two actions, one pays 1. The target policy always takes it, so its value is 1 / (1 - 0.5) = 2."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from horde_agent import GVF, ConstantAction, Horde

paid = [0.0]
question = GVF(
    "pays", ConstantAction(1, 2), lambda observation, tiles: paid[0], continuation=0.5, lam=0.0
)
figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
for told_b, label in (
    (0.8, "b = 0.8, as it is"),
    (0.5, "b = 0.5, a guess"),
    (1.0, "b = 1, forgotten"),
):
    horde = Horde([question], n_features=1, n_active=1)
    state = np.zeros(1, np.float32)
    tile = np.zeros(1, np.int64)
    rng = np.random.default_rng(0)
    horde.begin(state, tile)
    values = []
    for _ in range(1_500):
        # The behaviour takes the paying action in 80 % of the steps
        action = int(rng.random() < 0.8)
        paid[0] = float(action)
        if action:
            b = told_b
        else:
            b = max(1.0 - told_b, 0.2)
        values.append(horde.learn(action, b, state, tile)[0])
    axes.plot(values, label=label)
axes.axhline(2.0, color="0.4", lw=0.8, ls="--")
axes.set(xlabel="step", ylabel="prediction (truth: 2)")
axes.legend(frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)
