"""Two small worlds with known answers: the cycle world, and compositional questions in a corridor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from horde_agent.gvf import GVF, Channel, Prediction
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.interface import ChannelInfo, Interface, Scaler
from horde_agent.policies import Behaviour, PolicyFunction
from horde_agent.reproduce.lives import new_horde
from horde_agent.tiles import TileCoder
from horde_agent.types import Floats

Tables = Sequence[Mapping[str, Any]]

# ---- the cycle world ------------------------------------------------------------------------------------------------

RING = 6
RING_GAMMA = 0.8
FED_BACK: Tables = ({"questions": ["*"], "intervals": [8], "tilings": 8},)


class Ring(NamedTuple):
    """The final predictions in the cycle world, each of shape (6,)."""

    looped: Floats
    without: Floats
    without_trace: Floats


def ring_values() -> Floats:
    """Return gamma^(5 - s) / (1 - gamma^6) for each state s of the ring: the bit is seen 6 - s steps ahead."""
    return np.asarray(RING_GAMMA ** (RING - 1 - np.arange(RING)) / (1 - RING_GAMMA**RING))


def best_without_memory() -> float:
    """Return the least root mean squared error in the ring of a predictor that sees only the bit.

    It gives one value to the five states in which the bit is 0; their own values spread about it.
    """
    return float(np.sqrt(ring_values()[1:].var() * (RING - 1) / RING))


def learn_ring(tables: Tables, lam: float = 0.9, n_steps: int = 12_000) -> Floats:
    """Learn in the cycle world and return the final prediction in each state, shape (6,).

    A ring of six states is walked in order; the one bit that is seen is 1 in the first and 0 in the
    five others. Without `[[feedback]]` tables nothing is fed back.

    Source: Tanner & Sutton (2005), TD(lambda) networks, the cycle world.
    """
    coder = TileCoder([{"group": "bit", "intervals": [2], "tilings": 1}], ["bit"])
    channels = (ChannelInfo("bit", "bit", "1", is_sensor=True),)
    interface = Interface(channels, ("go",), 1.0, coder, Scaler(np.zeros(1), np.ones(1)))
    questions = [GVF("bit", Behaviour(), Channel(0), RING_GAMMA, lam=lam)]
    if tables:
        interface = interface.feeding_back(questions, tables)
    horde = new_horde(
        interface, questions, config=LearnerConfig(secondary_ratio=0.01, dtype="float64")
    )
    horde.begin(np.ones(1), interface.encode(np.ones(1)))
    y = np.zeros(1)
    for t in range(1, n_steps):
        bit = np.array([float(t % RING == 0)])
        tiles = interface.encode(bit, y if tables else None)
        horde.learn(0, 1.0, bit, tiles)
        if tables:
            y = horde.predict(tiles)
    predictions = np.zeros(RING)
    for t in range(3 * RING):  # the loop runs with fixed weights
        y = horde.predict(interface.encode(np.array([float(t % RING == 0)]), y if tables else None))
        predictions[t % RING] = y[0]
    return predictions


# ---- the corridor ---------------------------------------------------------------------------------------------------

N_STATES = 5
_LEFT_WALL = np.eye(N_STATES)[0]
THEN_GAMMA = 0.5
THEN_RIGHT = 0.2
FIRST_GAMMA = 0.8
FIRST_RIGHT = 0.8


def corridor_value(p_right: float, gamma: float, cumulant: Floats = _LEFT_WALL) -> Floats:
    """Return (I - gamma P)^-1 P c of going right with a probability, between walls at both ends, shape (5,)."""
    stay = np.eye(N_STATES)
    to_right = np.vstack([stay[1:], stay[-1:]])
    to_left = np.vstack([stay[:1], stay[:-1]])
    P = p_right * to_right + (1.0 - p_right) * to_left
    return np.asarray(np.linalg.solve(stay - gamma * P, P @ cumulant), dtype=np.float64)


def composed_values() -> Floats:
    """Return the answers of the two questions of `learn_corridor` in each state, shape (5, 2)."""
    then = corridor_value(THEN_RIGHT, THEN_GAMMA)
    return np.stack([then, corridor_value(FIRST_RIGHT, FIRST_GAMMA, then)], axis=1)


def learn_corridor(rng: np.random.Generator, engine: Literal["span", "plain"] = "span") -> Floats:
    """Learn two questions off-policy, the second about the prediction of the first, and return the answers, (5, 2).

    "then": the left wall, going mostly left. "first": what "then" would say, along a walk that goes
        mostly right. The
    behaviour draws both actions equally often. Answers are means over the last two thirds of the
    learning.

    Source: Sutton & Tanner (2005), TD networks.
    """

    def policy(p_right: float) -> PolicyFunction:
        return PolicyFunction(lambda _observation, _tiles: np.array([1.0 - p_right, p_right]), 2)

    questions = [
        GVF("then", policy(THEN_RIGHT), Channel(0), THEN_GAMMA, lam=0.5),
        GVF("first", policy(FIRST_RIGHT), Prediction("then"), FIRST_GAMMA, lam=0.5),
    ]
    config = LearnerConfig(step_size=0.02, dtype="float64", engine=engine)
    horde = Horde(questions, n_features=N_STATES, n_active=1, config=config)
    state = 0
    predictions = []
    n_steps = 15_000
    horde.begin(np.ones(1), np.array([state]))
    for t in range(n_steps):
        action = int(rng.integers(2))
        state = min(max(state + (1 if action else -1), 0), N_STATES - 1)
        horde.learn(action, 0.5, np.array([float(state == 0)]), np.array([state]))
        if t >= n_steps // 3 and t % 20 == 0:
            predictions.append([horde.predict(np.array([s])) for s in range(N_STATES)])
    return np.asarray(np.mean(predictions, axis=0))
