"""Train a light-seeking controller with PPO while a Horde learns, off-policy, what other policies would bring.

PPO drives 16 simulated robots, which step in one call, or one robot of another backend. The Horde's
b is PPO's own
probability of the action that it drew. Run it:
python examples/train_ppo.py [steps] [--backend simulator|emulated|serial|drops]
"""

import argparse
import sys

import gymnasium as gym

try:
    from stable_baselines3 import PPO
except ImportError:
    sys.exit(
        "train_ppo.py needs stable-baselines3; install it in the clone: pip install -e '.[sb3]'"
    )

from horde_agent import Horde, Interface, LearnerConfig, questions
from horde_agent.sb3 import BatchVecEnv, HordeCallback

BODIES = {"simulator": "Pen", "emulated": "Emulated", "serial": "Serial", "drops": "Drops"}

parser = argparse.ArgumentParser()
parser.add_argument("steps", nargs="?", type=int, default=20_000)
parser.add_argument("--backend", choices=BODIES, default="simulator")
arguments = parser.parse_args()

task = {"task": "light", "max_episode_steps": 500}
one = gym.make(f"horde_env:Critterbot{BODIES[arguments.backend]}-v0", **task)
env = one
if arguments.backend == "simulator":
    env = BatchVecEnv(
        gym.make_vec("horde_env:CritterbotPen-v0", 16, autoreset_mode="SameStep", **task)
    )
interface = Interface.of(one)
light_soon = [gvf for gvf in questions.excursions(interface) if gvf.name.endswith("/g0.8/light_0")]
# The engine of several streams
coder = interface.coder
plain = LearnerConfig(engine="plain")
horde = Horde(light_soon, n_features=coder.n_features, n_active=coder.n_active, config=plain)
callback = HordeCallback(horde, interface)

controller = PPO("MlpPolicy", env, n_steps=64, batch_size=64, seed=0, device="cpu")
controller.learn(arguments.steps, callback=callback)

print(
    f"{callback.n_learned} transitions learned by {horde.n_demons} demons; {len(horde.diverged)} set aside"
)
for policy in interface.actions:
    demon = horde.names.index(f"{policy}/g0.8/light_0")
    print(
        f"light ahead over the next half second, if the robot would {policy}: {horde.predictions[demon]:.3f}"
    )
env.close()
