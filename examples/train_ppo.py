"""Train a light-seeking controller with PPO while a Horde learns what other policies would bring.

PPO drives 16 simulated robots, which step in one call, or one robot of another backend. The Horde's
b is PPO's own probability of the action that it drew.

Run it: python examples/train_ppo.py [steps] [--backend simulator|emulated|serial|drops]
"""

import argparse
import sys

import gymnasium as gym

try:
    from stable_baselines3 import PPO
except ImportError:
    sys.exit("train_ppo.py needs stable-baselines3: in the clone, pip install -e '.[sb3]'")

from horde_agent import Horde, Interface, LearnerConfig, questions
from horde_agent.sb3 import BatchVecEnv, HordeCallback

BACKENDS = {"simulator": "Pen", "emulated": "Emulated", "serial": "Serial", "drops": "Drops"}

parser = argparse.ArgumentParser()
parser.add_argument("steps", nargs="?", type=int, default=20_000)
parser.add_argument("--backend", choices=BACKENDS, default="simulator")
arguments = parser.parse_args()
environment_id = f"horde_env:Critterbot{BACKENDS[arguments.backend]}-v0"
task = {"task": "light", "max_episode_steps": 500}

one_robot = gym.make(environment_id, **task)
env = one_robot
if arguments.backend == "simulator":
    env = BatchVecEnv(gym.make_vec(environment_id, 16, autoreset_mode="SameStep", **task))

interface = Interface.of(one_robot)
all_questions = questions.excursions(interface)
light_soon = [gvf for gvf in all_questions if gvf.name.endswith("/g0.8/light_0")]
coder = interface.coder
config = LearnerConfig(engine="plain")  # the engine for several streams
horde = Horde(light_soon, n_features=coder.n_features, n_active=coder.n_active, config=config)
callback = HordeCallback(horde, interface)

controller = PPO("MlpPolicy", env, n_steps=64, batch_size=64, seed=0, device="cpu")
controller.learn(arguments.steps, callback=callback)

print(f"{callback.n_learned} transitions learned by {horde.n_demons} demons")
print(f"{len(horde.diverged)} demons diverged")
for policy, prediction in zip(interface.actions, horde.predictions, strict=True):
    print(f"light ahead over the next half second under {policy}: {prediction:.3f}")
env.close()
