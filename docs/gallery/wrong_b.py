"""When b is wrong: of two actions one pays 1; a policy that takes each half of the time is worth 1."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from horde_agent import GVF, Channel, Horde, LearnerConfig, Uniform

PAYS = 0.8  # b of the action that pays; the other's is .2
STATE = np.zeros(1, dtype=np.int64)  # there is one state, with one feature


def predictions(b_pays: float, b_other: float) -> list[float]:
    """Return the predictions of 1,500 steps if these probabilities are reported."""
    question = GVF("reward", Uniform(n_actions=2), Channel(0), continuation=0.5, lam=0.0)
    horde = Horde([question], n_features=1, n_active=1, config=LearnerConfig.paper(step_size=0.02))
    rng = np.random.default_rng(seed=0)
    horde.begin(np.zeros(1), STATE)
    values = []
    for _ in range(1_500):
        if rng.random() < PAYS:
            values.append(horde.learn(1, b_pays, np.ones(1), STATE)[0])
        else:
            values.append(horde.learn(0, b_other, np.zeros(1), STATE)[0])
    return values


figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.plot(predictions(b_pays=0.8, b_other=0.2), label="b = 0.8 and 0.2, as it is")
axes.plot(predictions(b_pays=0.5, b_other=0.5), label="b = 0.5, a guess")
axes.plot(predictions(b_pays=1.0, b_other=1.0), label="b = 1, forgotten")
axes.axhline(1.0, color="0.4", lw=0.8, ls="--")  # 0.5 / (1 - gamma)
axes.set(xlabel="step", ylabel="prediction (truth: 1)")
axes.legend(frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=140)
