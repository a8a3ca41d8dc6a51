"""Predictions as features: on a ring, five of six places look alike; the last prediction differs."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from horde_agent import GVF, Behaviour, Channel, Horde, Interface, LearnerConfig, TileCoder
from horde_agent.interface import ChannelInfo, Scaler

N_PLACES = 6
GAMMA = 0.8
question = GVF("bit", Behaviour(), Channel(0), GAMMA, lam=0.9)  # when will the bit be 1 again?


def interface_of_the_ring(feeds_back: bool) -> Interface:
    """Return an interface with one channel, the bit, and perhaps with the last prediction."""
    coder = TileCoder([{"group": "bit", "intervals": [2], "tilings": 1}], ["bit"])
    channels = (ChannelInfo("bit", "bit", "1", is_sensor=True),)
    scaler = Scaler(low=np.zeros(1), high=np.ones(1))
    interface = Interface(channels, ("go",), 1.0, coder, scaler)
    if feeds_back:
        table = {"questions": ["bit"], "intervals": [8], "tilings": 8}
        interface = interface.feeding_back([question], [table])
    return interface


def learned(feeds_back: bool) -> np.ndarray:
    """Walk around the ring, learn, and return the prediction in each place."""
    interface = interface_of_the_ring(feeds_back)
    coder = interface.coder
    config = LearnerConfig.paper(secondary_ratio=0.01)
    horde = Horde([question], n_features=coder.n_features, n_active=coder.n_active, config=config)
    last_prediction = None
    predictions = np.zeros(N_PLACES)
    for t in range(12_000):
        place = t % N_PLACES
        bit = np.array([float(place == 0)])
        tiles = interface.encode(bit, last_prediction)
        if t == 0:
            horde.begin(bit, tiles)
        else:
            horde.learn(0, 1.0, bit, tiles)
        predictions[place] = horde.predict(tiles)[0]
        if feeds_back:
            last_prediction = horde.predict(tiles)
    return predictions


places = np.arange(N_PLACES)
truth = GAMMA ** (N_PLACES - 1 - places) / (1 - GAMMA**N_PLACES)
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.bar(places - 0.27, truth, 0.25, color="0.6", label="true value")
axes.bar(places, learned(feeds_back=True), 0.25, label="with its last prediction as a feature")
axes.bar(places + 0.27, learned(feeds_back=False), 0.25, label="from the bit alone")
axes.set(xlabel="place on the ring (the bit is 1 in place 0)", ylabel="prediction")
axes.legend(frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=140)
