"""A reflex on a prediction: turn when a wall is predicted ahead, before the robot reaches it."""

from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from horde_agent import GVF, Channel, ConstantAction, Follow, Horde, Interface, Life

figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
for reflex in (False, True):
    env = gym.make("horde_env:CritterbotPen-v0", physics="planar")
    interface = Interface.of(env)
    nose = interface.index("ir_distance_0")
    questions = [GVF("wall", ConstantAction(0, 5), Channel(nose), 0.8, lam=0.8)]
    horde = Horde(
        questions, n_features=interface.coder.n_features, n_active=interface.coder.n_active
    )

    class Driver:
        """Drive forward, now and then turn; where the reflex sees a wall coming, mostly turn."""

        n_actions = 5

        def probabilities(self, observation, tiles, horde=horde, reflex=reflex):
            """Return pi of each action."""
            # The mean reflectance of the next half second
            is_coming = reflex and 0.2 * horde.predict(tiles)[0] > 0.1
            return np.array([0.1, 0.1, 0.7, 0.05, 0.05] if is_coming else [0.6, 0.1, 0.1, 0.1, 0.1])

    near: list[bool] = []
    with Life(env, horde, Follow(Driver()), np.random.default_rng(0), interface=interface) as life:
        life.observers.append(
            lambda event, near=near, nose=nose: near.append(event.row.observation[nose] > 0.3)
        )
        life.run(12_000)
    minutes = np.arange(len(near)) / 600
    axes.plot(minutes, np.cumsum(near) / 10, label="with the reflex" if reflex else "without")
    env.close()
axes.set(xlabel="robot time (min)", ylabel="time spent close to a wall ahead (s)")
axes.legend(frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)
