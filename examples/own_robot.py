"""Add your own robot. This one is a point between two walls; see docs/robot.md for real ones.

Run it: python examples/own_robot.py [steps]
"""

import sys

import numpy as np

from horde_agent import Horde, Interface, Life, StickyRandom, questions
from horde_env import Frame, RobotEnv, RobotSpec
from horde_env.testing import BackendContract

STEPS = 3_000
if len(sys.argv) > 1:
    STEPS = int(sys.argv[1])
SHARE = {"unit": "1", "lsb": 0.001, "raw": [0, 1000], "range": [0, 1]}
TABLE = {
    "name": "own", "period_s": 0.1, "packet_period_s": 0.1, "body": {}, "drive": {"largest_request": [0.3, 0, 0]},
    "group": [
        {"name": "distance", "members": ["ahead", "behind"], **SHARE, "unit": "m", "raw": [0, 2000], "range": [0, 2]},
        {"name": "contact", "members": [""], **SHARE},
        {"name": "last_request", "members": ["x"], "sensor": False, **SHARE, "range": [-1, 1]},
    ],
    "action": [{"name": f"at {v} m/s", "request": [v, 0, 0]} for v in (0.3, 0.1, 0.0, -0.1, -0.3)],
}  # fmt: skip
SPEC = RobotSpec(TABLE, '[[tiling]]\ngroup = "distance"\nintervals = [8]\ntilings = 8\n')


class OwnBody:
    """A point that moves at the requested velocity between 0 and 2 m."""

    period_s = SPEC.period_s

    def reset(self, rng):
        self.rng = rng
        self.n = 0
        self.x = rng.uniform(0.5, 1.5)
        return self.frame(np.zeros(3))

    def exchange(self, command):
        self.n = self.n + 1
        self.x = min(max(self.x + self.period_s * command[0], 0.0), 2.0)
        return self.frame(command)

    def frame(self, command):
        distances = np.array([2.0 - self.x, self.x]) + self.rng.normal(0.0, 0.003, 2)
        values = np.array([*distances, self.x in (0.0, 2.0), *SPEC.shares(command)])
        return Frame(values=values, t=self.n * self.period_s)

    def close(self): ...


class TestOwnBody(BackendContract):
    """In a test file pytest finds it; here it is run by hand."""

    make_backend = staticmethod(OwnBody)
    make_spec = staticmethod(lambda: SPEC)


promises = [getattr(TestOwnBody(), name)() for name in dir(TestOwnBody) if name.startswith("test_")]
interface = Interface.of(env := RobotEnv(OwnBody(), spec=SPEC))
horde = Horde(
    questions.excursions(interface),
    n_features=interface.coder.n_features,
    n_active=interface.coder.n_active,
)
with Life(
    env, horde, StickyRandom(n_actions=5), np.random.default_rng(seed=0), interface=interface
) as life:
    life.run(STEPS)
print(f"{len(promises)} promises kept, and {horde.n_demons} demons learned of it for {STEPS} steps")
