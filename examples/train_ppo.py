"""Train a light-seeking controller with PPO while a Horde learns, off-policy, what other policies would bring.

The Horde's b is PPO's own probability of the action that it drew. Run it:
python examples/train_ppo.py [steps] [--backend simulator|emulated|serial|drops]
"""

import argparse
import sys

import gymnasium as gym

try:
    from stable_baselines3 import PPO
except ImportError:
    sys.exit("train_ppo.py needs stable-baselines3; install it in the clone: pip install -e '.[sb3]'")

from horde_agent import Horde, Interface, questions
from horde_agent.sb3 import HordeCallback

BODIES = {"simulator": "Pen", "emulated": "Emulated", "serial": "Serial", "drops": "Drops"}

parser = argparse.ArgumentParser()
parser.add_argument("steps", nargs="?", type=int, default=20_000)
parser.add_argument("--backend", choices=BODIES, default="simulator")
asked = parser.parse_args()

env = gym.make(f"horde_env:Critterbot{BODIES[asked.backend]}-v0", task="light", max_episode_steps=500)
interface = Interface.of(env)
horde = Horde(questions.excursions(interface), n_features=interface.coder.n_features, n_active=interface.coder.n_active)
callback = HordeCallback(horde, interface)

controller = PPO("MlpPolicy", env, n_steps=256, batch_size=64, seed=0, device="cpu")
controller.learn(asked.steps, callback=callback)

print(f"{callback.n_learned} transitions learned by {horde.n_demons} demons; {len(horde.diverged)} set aside")
for policy in interface.actions:
    demon = horde.names.index(f"{policy}/g0.8/light_0")
    print(f"light ahead over the next half second, if the robot would {policy}: {horde.predictions[demon]:.3f}")
env.close()
