"""Add your own robot: here a point between two walls, described by own_robot.toml.

Run it: python examples/own_robot.py [steps]. For real robots see docs/robot.md.
"""

import sys
import tomllib
from pathlib import Path

import numpy as np

from horde_agent import Horde, Interface, Life, StickyRandom, questions
from horde_env import Frame, RobotEnv, RobotSpec
from horde_env.testing import BackendContract

STEPS = 3_000
if len(sys.argv) > 1:
    STEPS = int(sys.argv[1])
DESCRIPTION = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
SPEC = RobotSpec(tomllib.loads(DESCRIPTION), tile_layout="")


class PointRobot:
    """Moves at the requested velocity between two walls that are 2 m apart."""

    period_s = SPEC.period_s

    def reset(self, rng):
        self.rng = rng
        self.n_periods = 0
        self.x = rng.uniform(0.5, 1.5)
        return self.frame(np.zeros(3))

    def exchange(self, command):
        self.n_periods += 1
        self.x = np.clip(self.x + self.period_s * command[0], 0.0, 2.0)
        return self.frame(command)

    def frame(self, command):
        ahead, behind = np.array([2.0 - self.x, self.x]) + self.rng.normal(0.0, 0.003, size=2)
        contact = self.x in (0.0, 2.0)
        values = np.array([ahead, behind, contact, *SPEC.shares(command)])
        return Frame(values=values, t=self.n_periods * self.period_s)

    def close(self): ...


class TestPointRobot(BackendContract):
    """The contract of a robot. In a test file, pytest finds it."""

    make_backend = staticmethod(PointRobot)
    make_spec = staticmethod(lambda: SPEC)


tests = [name for name in dir(TestPointRobot) if name.startswith("test_")]
for name in tests:
    getattr(TestPointRobot(), name)()

env = RobotEnv(PointRobot(), spec=SPEC)
interface = Interface.of(env)
coder = interface.coder
gvfs = questions.excursions(interface)
horde = Horde(gvfs, n_features=coder.n_features, n_active=coder.n_active)
with Life(env, horde, StickyRandom(n_actions=5), np.random.default_rng(seed=0)) as life:
    life.run(STEPS)
print(f"{len(tests)} tests passed, and {horde.n_demons} demons learned of it for {STEPS} steps")
