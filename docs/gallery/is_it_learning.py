"""Is it learning: RUPEE and the MSPBE of a question, before and after its sensor is swapped."""

from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from horde_agent import GVF, Channel, ConstantAction, Horde, Interface, LearnerConfig, StickyRandom

CONFIG = LearnerConfig.paper()

STEPS = 12_000
SWAPPED = STEPS // 2

env = gym.make("horde_env:CritterbotPen-v0", physics="planar")
interface = Interface.of(env)
coder = interface.coder
light = interface.index("light_0")
distance = interface.index("ir_distance_0")
question = GVF("light ahead", ConstantAction(0, n_actions=5), Channel(light), continuation=0.8)
horde = Horde([question], n_features=coder.n_features, n_active=coder.n_active, config=CONFIG)
rupee = horde.new_rupee(beta0=1 / 1000)
behaviour = StickyRandom(n_actions=5)
rng = np.random.default_rng(seed=0)

observation, info = env.reset(seed=0)
tiles = interface.encode(observation)
horde.begin(observation, tiles)
rupee.begin(tiles)
rupee_values = []
mspbe_values = []
for step in range(STEPS):
    action, b = behaviour.draw(rng)
    observation, *_ = env.step(action)
    tiles = interface.encode(observation)
    if step >= SWAPPED:
        observation = observation.copy()
        observation[light] = observation[distance]  # a cable in the wrong socket
    horde.learn(action, b, observation, tiles)
    rupee.learn(tiles, horde.signals, horde.td_error)
    rupee_values.append(rupee.value()[0])
    mspbe_values.append(abs(horde.mspbe_vector()[0]))
env.close()

figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
minutes = np.arange(STEPS) / 600
axes.semilogy(minutes[100:], rupee_values[100:], label="RUPEE")
axes.semilogy(
    minutes[100:], np.sqrt(mspbe_values[100:]), label="root of the MSPBE (slow by design)"
)
axes.axvline(SWAPPED / 600, color="0.4", lw=0.8, ls="--", label="the sensor is swapped")
axes.set(xlabel="robot time (min)", ylabel="error left to learn")
axes.legend(frameon=False, ncols=3, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1))
figure.savefig(Path(__file__).with_suffix(".png"), dpi=140)
