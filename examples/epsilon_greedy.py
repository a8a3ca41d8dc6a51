"""A behaviour that uses what the Horde has learned: it keeps clear of walls by taking what promises the most room.

Five demons predict how near the nearest thing will be over the next second, one for each action if it were kept up. The
behaviour takes the action of the smallest prediction, and with probability epsilon any; its b is the true probability
of each draw, so that the demons go on learning off-policy. Run it: python examples/epsilon_greedy.py [steps]
"""

import sys

import gymnasium as gym
import numpy as np

from horde_agent import GVF, ConstantAction, EpsilonGreedy, Follow, Horde, Interface, Life

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 12_000

env = gym.make("horde_env:CritterbotPen-v0")
face = Interface.of(env)
n_actions = len(face.actions)
around = [face.index(f"ir_distance_{i}") for i in range(7)]


def nearest(observation, tiles):
    """Return the strongest reflection of all sides: high is near."""
    return observation[around].max()


questions = [
    GVF(f"{name}/g0.9/nearest", ConstantAction(action, n_actions), nearest, continuation=0.9, tested=False)
    for action, name in enumerate(face.actions)
]
horde = Horde(questions, n_features=face.coder.n_features, n_active=face.coder.n_active)


def room(observation, tiles):
    """Return a value for each action: what its demon predicts in this state, the wrong way round."""
    return -horde.predict(tiles)


def live(epsilon, seed):
    """Live with so much chance, and return how near the nearest thing was on average."""
    seen = []
    behaviour = Follow(EpsilonGreedy(room, n_actions, epsilon))
    with Life(env, horde, behaviour, np.random.default_rng(seed), interface=face) as life:
        life.observers.append(lambda moment: seen.append(nearest(moment.row.observation, None)))
        life.run(STEPS // 2)
    return np.mean(seen)


print(f"nearest thing: {live(1.0, seed=0):.2f} of full reflection while the robot did anything and learned,")
print(f"{live(0.2, seed=1):.2f} while it took what promised the most room, and went on learning")
env.close()
