"""Experiment `exam`: its returns, and when a change is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from examples.reproduce.exam import (
    ChangedLife,
    Exam,
    LampLife,
    make_exam,
)
from examples.reproduce.experiment import ExperimentContext
from horde_agent.interface import Interface
from horde_agent.life.bodies import make_body
from horde_agent.questions import excursions


class MeanHorde:
    """Predicts the same in every state."""

    def __init__(self, predictions: np.ndarray) -> None:
        self.answers = predictions

    def predict(self, _tiles: object, _observation: object) -> np.ndarray:
        return self.answers


@pytest.mark.sim
def test_the_exam_is_the_same_for_everybody_and_the_mean_scores_1(tmp_path: Path) -> None:
    """The returns of gamma 0 are readings of the first step, in [0, 1]."""

    def made(name: str) -> Exam:
        context = ExperimentContext(tmp_path / name, "quick", (0,), "simulator", lambda line: None)
        return make_exam(context, 3)

    first = made("a")
    second = made("b")
    np.testing.assert_array_equal(first.returns, second.returns)
    np.testing.assert_array_equal(first.observation, second.observation)
    env = make_body("simulator", physics="planar")
    interface = Interface.of(env)
    env.close()
    questions = excursions(interface)
    gammas = np.array([question.continuation for question in questions], dtype=np.float64)
    at_once = first.returns[:, gammas == 0.0]
    assert at_once.min() >= 0.0
    assert at_once.max() <= 1.0
    nmsre = first.nmsre(MeanHorde(first.returns.mean(axis=0)), interface)  # type: ignore[arg-type]
    varies = first.returns.std(axis=0) > 1e-6
    np.testing.assert_allclose(nmsre[varies], 1.0)


def test_a_change_is_found_after_a_hundred_steps_of_its_policy() -> None:
    every_other = np.arange(1_000) % 2 == 1
    assert ChangedLife(every_other).found == 200
    assert ChangedLife(every_other[:150]).found == 150


def lamp_life(n_looks: int) -> LampLife:
    """Return a life whose error doubles at the move and is back after a number of looks, 200 steps apart."""
    errors = np.where(np.arange(50) < n_looks, 0.8, 0.4)
    return LampLife(np.full(5, 0.4), errors, 200)


def test_light_is_learned_again_when_most_of_five_looks_show_the_error_before() -> None:
    """Twenty looks are bad; with three more, three of the latest five are good. One good look is no recovery."""
    life = lamp_life(20)
    assert life.rise == 2.0
    assert life.recovered == 23 * 200
    life.after[10] = 0.4
    assert life.recovered == 23 * 200
    assert LampLife(life.before, life.after[:20], 200).recovered == 20 * 200
