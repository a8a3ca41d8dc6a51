"""Compositional questions, with predictions of other demons as cumulants and answers in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from horde_agent.gvf import GVF, Channel, Prediction
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.policies import Behaviour
from horde_agent.reproduce.loop.worlds import (
    FIRST_GAMMA,
    FIRST_RIGHT,
    N_STATES,
    THEN_GAMMA,
    THEN_RIGHT,
    composed_values,
    corridor_value,
    learn_corridor,
)


@pytest.mark.parametrize("engine", ["span", "plain"])
def test_a_chain_of_next_step_questions_predicts_k_steps_ahead(engine: Any) -> None:
    """On a ring walked in one direction, y_k(s) = 1 if state 0 is k steps ahead, within 1e-6."""
    posed = [GVF("1", Behaviour(), Channel(0), 0.0, lam=0.0)]
    posed += [GVF(f"{k}", Behaviour(), Prediction(f"{k - 1}"), 0.0, lam=0.0) for k in range(2, 6)]
    config = LearnerConfig(step_size=0.5, secondary_ratio=0.1, dtype="float64", engine=engine)
    horde = Horde(posed, n_features=N_STATES, n_active=1, config=config)
    horde.begin(np.array([1.0]), np.array([0]))
    for t in range(1, 400):
        state = t % N_STATES
        horde.learn(0, 1.0, np.array([float(state == 0)]), np.array([state]))
    found = np.array([horde.predict(np.array([s])) for s in range(N_STATES)])
    want = np.array([[float((s + k) % N_STATES == 0) for k in range(1, 6)] for s in range(N_STATES)])
    np.testing.assert_allclose(found, want, atol=1e-6)


@pytest.mark.parametrize("engine", ["span", "plain"])
def test_a_prediction_under_one_policy_of_a_prediction_under_another(engine: Any) -> None:
    """In a corridor: "how long would I then be at the left wall, going left, all along a walk to the right?".

    V1 = (I - g1 P1)^-1 P1 c and V2 = (I - g2 P2)^-1 P2 V1, found to .12. Off by more than 1 somewhere: the two policies
    exchanged, V1 or V2 learned on-policy, or c taken for V1.
    """
    found, want = learn_corridor(np.random.default_rng(0), engine), composed_values()
    np.testing.assert_allclose(found, want, atol=0.12)
    (p1, g1), (p2, g2) = (THEN_RIGHT, THEN_GAMMA), (FIRST_RIGHT, FIRST_GAMMA)
    mistakes = (
        corridor_value(p1, g2, corridor_value(p2, g1)),
        corridor_value(p2, g2, corridor_value(0.5, g1)),
        corridor_value(0.5, g2, corridor_value(p1, g1)),
        corridor_value(p2, g2),
    )
    assert min(np.abs(mistaken - want[:, 1]).max() for mistaken in mistakes) > 1.0
