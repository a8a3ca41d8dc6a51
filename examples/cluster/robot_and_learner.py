"""Robot and learner on different computers: five demons here, on whose predictions the robot acts, 795 in shards.

The behaviour takes the action for which its demon predicts the most room. The shards learn the
paper's 795 questions from the same stream with any delay; the robot waits for none of them. Run it:
python examples/cluster/robot_and_learner.py [steps] [HOST:PORT]. With an address the shards run on
that Ray cluster (examples/cluster/node.sh), without one in processes of this machine.
"""

import sys

import gymnasium as gym
import numpy as np

from horde_agent import (
    GVF,
    ConstantAction,
    EpsilonGreedy,
    Follow,
    Horde,
    Interface,
    Life,
    questions,
)
from horde_agent.cluster import ShardedHorde
from horde_agent.life.learner import StreamLearner
from horde_agent.life.observers import Follower

STEPS = 3_000
if len(sys.argv) > 1:
    STEPS = int(sys.argv[1])
ADDRESS = None
if len(sys.argv) > 2:
    ADDRESS = sys.argv[2]

env = gym.make("horde_env:CritterbotPen-v0")
interface = Interface.of(env)
n_actions = len(interface.actions)
size = {"n_features": interface.coder.n_features, "n_active": interface.coder.n_active}
around = [interface.index(f"ir_distance_{i}") for i in range(7)]


def nearest(observation, tiles):
    """Return the strongest reflection of all directions: high is near."""
    return observation[around].max()


def room(observation, tiles):
    """Return a value for each action: minus the nearness that its demon predicts."""
    return -local.predict(tiles)


gvfs = [
    GVF(f"{name}/nearest", ConstantAction(a, n_actions), nearest, 0.9)
    for a, name in enumerate(interface.actions)
]
local = Horde(gvfs, **size)
behaviour = Follow(EpsilonGreedy(room, n_actions, epsilon=0.2))
with ShardedHorde(
    questions.excursions(interface), shards=2, address=ADDRESS, mode="deferred", **size
) as far:
    follower = Follower(StreamLearner(far, interface))
    with Life(
        env, local, behaviour, np.random.default_rng(0), interface=interface, observers=[follower]
    ) as life:
        life.run(STEPS)
        print(
            f"{life.steps:,} steps, of which {follower.n_waiting:,} are not yet sent to the shards"
        )
    follower.close()
    errors = follower.student.errors
    print(
        f"{far.n_demons} demons in {len(far.shards)} shards followed it, through {errors.n_excursions} excursions"
    )
env.close()
