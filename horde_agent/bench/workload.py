"""The benchmark stream: 53 bounded random walks, 6065 features of which 457 are active, 30 % changing per step.

212 one-dimensional tilings of 8 tiles, 128 pairs of 4 x 4, 116 pairs of 4 x 5, and a bias. Sensors
differ in how fast they wander and in their noise, both log-uniform.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from horde_agent.gvf import GVF, Channel
from horde_agent.interface import Interface
from horde_agent.policies import ConstantAction, Gibbs, StickyRandom
from horde_agent.refusals import BadInput, one_line
from horde_agent.tiles import TileCoder
from horde_agent.types import Floats, Integers

N_SENSORS = 53
N_FEATURES = 6065
N_ACTIVE = 457
N_ACTIONS = 5
_N_1D = 212
_N_4X4 = 128
_N_4X5 = 116


class WorkloadStream(NamedTuple):
    """A life: T states and the actions between them."""

    tiles: Integers  # (T, 457)
    sensors: Floats  # (T, 53), or more: the first 53 are the sensors
    actions: Integers  # (T,)
    probabilities: Floats  # (T,)
    n_features: int = N_FEATURES

    @property
    def n_active(self) -> int:
        """Features that are on in each state."""
        return int(self.tiles.shape[1])


def stream(n_steps: int, seed: int = 0) -> WorkloadStream:
    """Return a stream, in which 30 % of the active features change per step."""
    rng = np.random.default_rng(seed)
    sensors = _walks(n_steps, rng)
    behaviour = StickyRandom(N_ACTIONS)
    drawn = [behaviour.draw(rng) for _ in range(n_steps)]
    actions = np.array([action for action, _ in drawn])
    return WorkloadStream(_tiles(sensors, rng), sensors, actions, np.array([b for _, b in drawn]))


def _walks(n_steps: int, rng: np.random.Generator) -> Floats:
    """Return random walks reflected at 0 and 1, seen through noise, shape (n_steps, 53)."""
    stride = 2.0 * np.exp(rng.uniform(np.log(0.006), np.log(0.05), N_SENSORS))
    noise = 2.0 * np.exp(rng.uniform(np.log(0.003), np.log(0.03), N_SENSORS))
    path = rng.uniform(size=N_SENSORS) + np.cumsum(
        rng.normal(size=(n_steps, N_SENSORS)) * stride, axis=0
    )
    reflected = 1.0 - np.abs(1.0 - path % 2.0)
    return np.clip(reflected + rng.normal(size=path.shape) * noise, 0.0, 1.0 - 1e-9)


def _tiles(sensors: Floats, rng: np.random.Generator) -> Integers:
    """Return the active features, shape (n_steps, 457), each row increasing."""
    columns: list[Integers] = []
    base = 0
    for i in range(_N_1D):
        columns.append(
            base
            + np.minimum((sensors[:, i % N_SENSORS] * 7 + (i // N_SENSORS) / 4).astype(np.int64), 7)
        )
        base += 8
    pairs = np.stack(np.triu_indices(N_SENSORS, 1), axis=1)
    for i, (a, b) in enumerate(rng.choice(pairs, _N_4X4 + _N_4X5, replace=False)):
        slow = 4
        fast = 4 if i < _N_4X4 else 5
        offset = rng.uniform(size=2)
        row = np.minimum((sensors[:, a] * (slow - 1) + offset[0]).astype(np.int64), slow - 1)
        column = np.minimum((sensors[:, b] * (fast - 1) + offset[1]).astype(np.int64), fast - 1)
        columns.append(base + row * fast + column)
        base += slow * fast
    columns.append(np.full(sensors.shape[0], base))
    assert base + 1 == N_FEATURES
    return np.stack(columns, axis=1)


def constant_action_questions() -> list[GVF]:
    """Return W1: 5 constant actions x gamma {0, .5, .8} x 53 sensors = 795 questions."""
    return [
        GVF(
            f"{action}/g{gamma:g}/{sensor}",
            ConstantAction(action, N_ACTIONS),
            Channel(sensor),
            gamma,
        )
        for action in range(N_ACTIONS)
        for gamma in (0.0, 0.5, 0.8)
        for sensor in range(N_SENSORS)
    ]


def gibbs_questions(
    n: int,
    seed: int = 1,
    *,
    n_features: int = N_FEATURES,
    gammas: Sequence[float] = (0.0, 0.5, 0.8, 0.95),
) -> list[GVF]:
    """Return W2: n questions, each with its own random Gibbs policy."""
    rng = np.random.default_rng(seed)
    return [
        GVF(
            f"gibbs_{i}",
            Gibbs.random(rng, N_ACTIONS, n_features),
            Channel(int(rng.integers(N_SENSORS))),
            float(rng.choice(gammas)),
        )
        for i in range(n)
    ]


def coder() -> TileCoder:
    """Return a tile coder of the same size: 53 inputs in three groups, 457 of 6,065 features."""
    groups = ["pairs of 4 x 4"] * 16 + ["pairs of 4 x 5"] * 29 + ["alone"] * 8
    tables: list[dict[str, Any]] = [
        {"group": g, "intervals": [8], "tilings": 4} for g in dict.fromkeys(groups)
    ]
    tables += [
        {"group": groups[0], "neighbour": 1, "intervals": [4, 4], "tilings": 8},
        {"group": groups[16], "neighbour": 1, "intervals": [4, 5], "tilings": 4},
    ]
    return TileCoder(tables, groups)


SIMULATOR = "horde_env:CritterbotPen-v0"


def recorded(n_states: int, seed: int = 0) -> tuple[WorkloadStream, TileCoder]:
    """Run the simulated robot under the sticky random behaviour; return its stream of `n_states` and tile coder.

    `seed` is used for the robot and for its behaviour. Raise BadInput if the simulator is not
    installed.
    """
    try:
        env = gymnasium.make(SIMULATOR, disable_env_checker=True)
    except (ImportError, gymnasium.error.Error) as error:
        raise BadInput(
            f"--stream simulator needs the simulated robot: {one_line(error)}"
        ) from error
    try:
        interface = Interface.of(env)
        behaviour = StickyRandom(len(interface.actions))
        rng = np.random.default_rng(seed)
        observation, _ = env.reset(seed=seed)
        observations = [interface.scaler(observation)]
        drawn = [behaviour.draw(rng)]
        while len(observations) < n_states:
            observation, *_ = env.step(drawn[-1][0])
            observations.append(interface.scaler(observation))
            drawn.append(behaviour.draw(rng))
    finally:
        env.close()
    tiles = np.array([interface.coder.encode(state) for state in observations])
    actions, probabilities = (np.array(column) for column in zip(*drawn, strict=True))
    return WorkloadStream(
        tiles, np.array(observations), actions, probabilities, interface.coder.n_features
    ), interface.coder
