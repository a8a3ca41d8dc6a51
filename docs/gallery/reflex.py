"""A reflex on a prediction: turn when a wall is predicted ahead, before the robot reaches it."""

from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

from horde_agent import (
    GVF,
    Channel,
    ConstantAction,
    Follow,
    Horde,
    Interface,
    LearnerConfig,
    Life,
    PolicyFunction,
)

CONFIG = LearnerConfig.paper()

DRIVE = [0.6, 0.1, 0.1, 0.1, 0.1]  # mostly forward
TURN = [0.1, 0.1, 0.7, 0.05, 0.05]  # mostly clockwise


def time_near_a_wall(has_reflex: bool) -> np.ndarray:
    """Drive for 20 minutes, and return the time spent close to a wall so far, in s, at each step."""
    env = gym.make("horde_env:CritterbotPen-v0", physics="planar")
    interface = Interface.of(env)
    coder = interface.coder
    nose = interface.index("ir_distance_0")
    question = GVF("wall ahead", ConstantAction(0, n_actions=5), Channel(nose), 0.8, lam=0.8)
    horde = Horde([question], n_features=coder.n_features, n_active=coder.n_active, config=CONFIG)
    is_near = []

    def drive(observation, tiles):
        wall_ahead = 0.2 * horde.predict(tiles)[0]  # mean reflectance of the next half second
        if has_reflex and wall_ahead > 0.1:
            return TURN
        return DRIVE

    def record(event) -> None:
        is_near.append(event.row.observation[nose] > 0.3)

    behaviour = Follow(PolicyFunction(drive, n_actions=5))
    with Life(env, horde, behaviour, np.random.default_rng(seed=0), observers=[record]) as life:
        life.run(12_000)
    env.close()
    return interface.period_s * np.cumsum(is_near)


figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
for label, has_reflex in (("without", False), ("with the reflex", True)):
    time_s = time_near_a_wall(has_reflex)
    axes.plot(np.arange(len(time_s)) / 600, time_s, label=label)
axes.set(xlabel="robot time (min)", ylabel="time spent close to a wall ahead (s)")
axes.legend(frameon=False)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=140)
