"""Robot and learner on different computers: five demons steer the robot here, 795 learn in shards.

The behaviour takes the action for which its demon predicts the most room. The shards learn the
paper's 795 questions from the same stream with any delay; the robot waits for none of them.

Run it: python examples/cluster/robot_and_learner.py [steps] [HOST:PORT]. With an address the shards
run on that Ray cluster (examples/cluster/node.sh), without one in processes of this machine.
"""

import sys

import gymnasium as gym
import numpy as np

from horde_agent import GVF, ConstantAction, EpsilonGreedy, Follow, Horde, Interface, Life
from horde_agent import questions as families
from horde_agent.cluster import ShardedHorde
from horde_agent.life.learner import StreamLearner
from horde_agent.life.observers import Follower

STEPS = 3_000
ADDRESS = None
if len(sys.argv) > 1:
    STEPS = int(sys.argv[1])
if len(sys.argv) > 2:
    ADDRESS = sys.argv[2]

env = gym.make("horde_env:CritterbotPen-v0")
interface = Interface.of(env)
size = {"n_features": interface.coder.n_features, "n_active": interface.coder.n_active}
around = [interface.index(f"ir_distance_{i}") for i in range(7)]


def nearness(observation, tiles):
    """Return the strongest reflection of all directions: high is near."""
    return observation[around].max()


def room(observation, tiles):
    """Return a value for each action: minus the nearness that its demon predicts."""
    return -horde.predict(tiles)


questions = []
for number, action in enumerate(interface.actions):
    policy = ConstantAction(number, n_actions=5)
    questions.append(GVF(f"{action}/nearness", policy, nearness, continuation=0.9))
horde = Horde(questions, **size)
behaviour = Follow(EpsilonGreedy(room, n_actions=5, epsilon=0.2))

far_questions = families.excursions(interface)
with ShardedHorde(far_questions, shards=2, address=ADDRESS, mode="deferred", **size) as far:
    follower = Follower(StreamLearner(far, interface))
    rng = np.random.default_rng(seed=0)
    with Life(env, horde, behaviour, rng, observers=[follower]) as life:
        life.run(STEPS)
        print(
            f"{life.steps:,} steps, of which {follower.n_waiting:,} wait to be sent to the shards"
        )
    follower.close()
    n_excursions = follower.student.errors.n_excursions
    print(f"{far.n_demons} demons in {len(far.shards)} shards learned, {n_excursions} excursions")
env.close()
