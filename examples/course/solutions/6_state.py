"""Exercise 6: predictions as state. Read 6_state.md, fill in the gaps, then run `python check.py 6`."""

import numpy as np

from horde_agent import GVF, Behaviour, Channel, Horde, Interface, LearnerConfig, TileCoder
from horde_agent.interface import ChannelInfo, Scaler

N_PLACES = 6
GAMMA = 0.8
question = GVF("bit", Behaviour(), Channel(0), GAMMA, lam=0.9)


def true_values():
    """Return the value of `question` in each place of the ring, shape (6,).

    Each step goes to the next place; the bit is 1 in place 0 alone, and counts in the place reached.
    """
    # gap: from place i the bit comes after 6 - i steps, and then after every sixth
    places = np.arange(N_PLACES)
    return GAMMA ** (N_PLACES - 1 - places) / (1 - GAMMA**N_PLACES)
    # end


def interface_of_the_ring():
    """Return an interface with one channel, the bit: it is 0 in five of six places."""
    coder = TileCoder([{"group": "bit", "intervals": [2], "tilings": 1}], ["bit"])
    channels = (ChannelInfo("bit", "bit", "1", is_sensor=True),)
    return Interface(channels, ("go",), 1.0, coder, Scaler(low=np.zeros(1), high=np.ones(1)))


def with_the_last_prediction(interface):
    """Return the interface with the last prediction of `question` as a further input of the coder.

    See `Interface.feeding_back`: 8 tilings of 8 tiles are enough to tell six places apart.
    """
    # gap: one call
    table = {"questions": ["bit"], "intervals": [8], "tilings": 8}
    return interface.feeding_back([question], [table])
    # end


def learned(interface, n_steps=8_000):
    """Walk around the ring, learn, and return the prediction in each place, shape (6,)."""
    coder = interface.coder
    config = LearnerConfig.paper(secondary_ratio=0.01)
    horde = Horde([question], n_features=coder.n_features, n_active=coder.n_active, config=config)
    feeds_back = interface.feedback is not None
    last_prediction = None
    predictions = np.zeros(N_PLACES)
    for t in range(n_steps):
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


def share_unexplained(predictions, values):
    """Return the mean squared error over the variance of the values: 0 is perfect, 1 is the mean."""
    # gap
    return float(np.mean((predictions - values) ** 2) / np.var(values))
    # end


def main():
    """Compare the bit alone with the bit and the last prediction."""
    plain = interface_of_the_ring()
    for name, interface in (
        ("the bit alone", plain),
        ("and the last prediction", with_the_last_prediction(plain)),
    ):
        share = share_unexplained(learned(interface), true_values())
        print(f"{name}: {100 * share:.0f} % of the variance is unexplained")


if __name__ == "__main__":
    main()
