"""Predictions as features: a ring of six places, five of which look alike; the last prediction distinguishes them."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from horde_agent import GVF, Behaviour, Channel, Horde, Interface
from horde_agent.horde import LearnerConfig
from horde_agent.interface import ChannelInfo, Scaler
from horde_agent.tiles import TileCoder

n = 6
gamma = 0.8
states = np.arange(6)
question = GVF("bit", Behaviour(), Channel(0), gamma, lam=0.9)  # when will the bit be seen again?


def learned(feeds_back: bool) -> np.ndarray:
    """Walk around the ring, learn, and return the prediction in each place."""
    coder = TileCoder([{"group": "bit", "intervals": [2], "tilings": 1}], ["bit"])
    channels = (ChannelInfo("bit", "bit", "1", is_sensor=True),)
    scaler = Scaler(np.zeros(1), np.ones(1))
    interface = Interface(channels, ("go",), 1.0, coder, scaler)
    if feeds_back:  # the prediction of the step before becomes an input of the tile coder
        interface = interface.feeding_back(
            [question], [{"questions": ["bit"], "intervals": [8], "tilings": 8}]
        )
    config = LearnerConfig(secondary_ratio=0.01)
    horde = Horde(
        [question],
        n_features=interface.coder.n_features,
        n_active=interface.coder.n_active,
        config=config,
    )
    bits = (states == 0).astype(float)
    fed_back = np.zeros(1)
    predictions = np.zeros(n)
    for t in range(12_000):
        tiles = interface.encode(bits[[t % n]], fed_back if feeds_back else None)
        horde.learn(0, 1.0, bits[[t % n]], tiles) if t else horde.begin(bits[[0]], tiles)
        predictions[t % n] = fed_back[0] = horde.predict(tiles)[0]
    return predictions


figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
axes.bar(
    states - 0.27, gamma ** (n - 1 - states) / (1 - gamma**n), 0.25, color="0.6", label="true value"
)
axes.bar(states, learned(feeds_back=True), 0.25, label="with its last prediction as a feature")
axes.bar(states + 0.27, learned(feeds_back=False), 0.25, label="from the bit alone")
axes.set(xlabel="place on the ring (the bit is 1 in place 0)", ylabel="prediction")
axes.legend(frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)
