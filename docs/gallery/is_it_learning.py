"""Is it learning: RUPEE and the MSPBE of one question while its sensor is replaced by another during the life."""

from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from horde_agent import GVF, Channel, ConstantAction, Horde, Interface, StickyRandom
from horde_agent.life.learner import encoder

env = gym.make("horde_env:CritterbotPen-v0", physics="planar")
interface = Interface.of(env)
behaviour = StickyRandom(5)
rng = np.random.default_rng(0)
tiles_of = encoder(interface)
(light, distance) = map(interface.index, ("light_0", "ir_distance_0"))
question = GVF("light ahead", ConstantAction(0, 5), Channel(light), 0.8)
horde = Horde([question], n_features=interface.coder.n_features, n_active=interface.coder.n_active)
rupee = horde.new_rupee(beta0=1 / 1000)
observation, _ = env.reset(seed=0)
horde.begin(observation, tiles_of(observation))
rupee.begin(tiles_of(observation))
errors = np.zeros((12_000, 3))
for t in range(len(errors)):
    action, b = behaviour.draw(rng, observation, tiles_of(observation))
    observation, *_ = env.step(action)
    tiles = tiles_of(observation)
    if t >= len(errors) // 2:
        observation = observation.copy()
        observation[light] = observation[distance]  # a cable in the wrong socket
    horde.learn(action, b, observation, tiles)
    rupee.learn(tiles, horde.signals, horde.td_error)
    errors[t] = rupee.value()[0], abs(horde.mspbe_vector()[0]) ** 0.5, horde.td_error[0]
figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
minutes = np.arange(len(errors)) / 600
axes.semilogy(minutes[100:], errors[100:, 0], label="RUPEE")
axes.semilogy(minutes[100:], errors[100:, 1], label="root of the MSPBE (slow by design)")
axes.axvline(minutes[-1] / 2, color="0.4", lw=0.8, ls="--", label="the sensor is swapped")
axes.set(xlabel="robot time (min)", ylabel="error left to learn")
axes.legend(frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)
env.close()
