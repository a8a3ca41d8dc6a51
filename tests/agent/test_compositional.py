"""Compositional questions, with predictions of other demons as cumulants and answers in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from horde_agent.gvf import GVF, Channel, Prediction
from horde_agent.horde import Horde, LearnerConfig
from horde_agent.policies import Behaviour, ConstantAction
from horde_agent.reproduce.loop.problem import (
    FIRST_GAMMA,
    FIRST_RIGHT,
    N_STATES,
    THEN_GAMMA,
    THEN_RIGHT,
    composed_values,
    corridor_value,
    learn_corridor,
)
from tests.agent.shared import binary
from tests.oracles.gtd import DenseGTD


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


@pytest.mark.parametrize("engine", ["span", "plain"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_both_engines_take_the_prediction_of_the_old_weights_at_the_new_state(engine: Any, order: Any) -> None:
    """c_{t+1} = theta_t.phi_{t+1} of the demon referred to, whichever demon is updated first."""
    rng, n_features = np.random.default_rng(1), 20
    questions = {
        0: GVF("base", ConstantAction(0, 2), Channel(0), 0.8),
        1: GVF("above", Behaviour(), Prediction("base"), 0.5),
        2: GVF("top", ConstantAction(1, 2), Prediction("above"), 0.9, lam=0.3),
    }
    posed = [questions[i] for i in order]
    config = LearnerConfig(step_size=0.4, secondary_ratio=0.2, dtype="float64", engine=engine)
    horde = Horde(posed, n_features=n_features, n_active=4, config=config)
    oracle = DenseGTD(3, n_features, 0.1, 0.02)
    place = np.argsort(order)
    gamma, lam = np.array([0.8, 0.5, 0.9])[list(order)], np.array([0.9, 0.9, 0.3])[list(order)]
    tiles = rng.choice(n_features, 4, replace=False)
    horde.begin(np.zeros(1), tiles)
    oracle.begin(binary(tiles, n_features), gamma, lam)
    for _ in range(300):
        action, o = int(rng.integers(2)), rng.random(1)
        tiles = rng.choice(n_features, 4, replace=False)
        phi = binary(tiles, n_features)
        of_base, of_above = oracle.theta[place[:2]] @ phi
        c = np.array([o[0], of_base, of_above])[list(order)]
        rho = np.array([2.0 * (action == 0), 1.0, 2.0 * (action == 1)])[list(order)]
        horde.learn(action, 0.5, o, tiles)
        oracle.learn(phi, rho, gamma, lam, c, np.zeros(3))
    np.testing.assert_allclose(horde.weights()[0], oracle.theta, rtol=0, atol=1e-11)
    assert np.abs(oracle.theta[place[2]]).max() > 0.05
