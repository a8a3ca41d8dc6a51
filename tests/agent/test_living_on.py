"""A life that is saved at any step and gone on from elsewhere is the same life: bit for bit."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from horde_agent import questions as families
from horde_agent.horde import Horde, Mode
from horde_agent.interface import Interface
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.life import Life
from horde_agent.life.observers import MspbeWatch, Sampler
from horde_agent.life.process_env import ProcessEnv
from horde_agent.policies import StickyRandom
from horde_agent.record import Recorder
from horde_agent.saving import State
from tests.agent.doubles import BeforeStep

PEN = "horde_env:CritterbotPen-v0"
pytestmark = pytest.mark.sim


def life_in(env: Any, mode: Mode = "deferred") -> Life:
    """Return a life with some of the paper's questions, tested often."""
    face = Interface.of(env)
    asked = families.excursions(face)[::9]
    horde = Horde(asked, n_features=face.coder.n_features, n_active=face.coder.n_active, mode=mode)
    tests = ExcursionConfig(probability=0.05, horizon=12)
    life = Life(env, horde, StickyRandom(5), np.random.default_rng(4), interface=face, excursions=tests)
    life.recorder = Recorder(len(face.channels))
    life.observers = [Sampler(every=50), MspbeWatch(horde)]
    return life


def outcome(life: Life) -> list[Any]:
    errors, sampler = life.student.errors, life.observers[0]
    assert isinstance(sampler, Sampler)
    return [
        life.horde.weights_sha256(),
        life.steps,
        life.gaps,
        life.n_clipped,
        life.t,
        life.student.learning_steps,
        life.student.n_updated,
        errors.nmsre().tobytes(),
        [rows["online"].tobytes() for rows in errors.table],
        [np.array([o.predictions, o.returns]).tobytes() for o in errors.table.outcomes()],
        errors.n_discarded,
        list(sampler.samples),
        life.rng.random(),
    ]


def states_of(life: Life, steps: int, every: int) -> dict[int, tuple[State, int, list[State]]]:
    """Live, and return the states at some steps, with the number of rows by then."""
    kept: dict[int, tuple[State, int, list[State]]] = {}

    def keep(life: Life) -> None:
        assert life.recorder is not None
        if life.recorder.n_rows % every == 0:
            kept[life.steps] = life.state(), life.recorder.n_rows, [o.state() for o in life.observers[:2]]  # type: ignore[attr-defined]

    life.observers.append(BeforeStep(keep))
    life.run(steps)
    return kept


@pytest.mark.parametrize("apart", [False, True], ids=["here", "in a process of its own"])
def test_a_life_goes_on_from_any_step_with_the_same_bits(apart: bool) -> None:
    """Also from the middle of an excursion, and of a batch of steps; rows are the same, too."""
    settings = {"disable_env_checker": True}
    whole = life_in(gymnasium.make(PEN, **settings))
    kept = states_of(whole, 800, 67)
    assert whole.recorder is not None
    rows = whole.recorder.stream().rows
    expected = outcome(whole)
    whole.close()
    whole.env.close()
    phases = {str(state["excursions/phase"]) for state, *_ in kept.values()}
    assert len(phases) > 1, "no state was kept in an excursion"
    for step, (state, n_rows, observed) in list(kept.items())[:: 3 if apart else 1]:
        again = life_in(ProcessEnv(PEN, **settings) if apart else gymnasium.make(PEN, **settings))
        again.restore(state)
        for observer, known in zip(again.observers, observed, strict=True):
            observer.restore(known)  # type: ignore[attr-defined]
        again.run(800 - again.steps)
        assert again.recorder is not None
        assert again.recorder.stream().rows.tobytes() == rows[n_rows:].tobytes(), step
        for one, other in zip(outcome(again), expected, strict=True):
            assert one == other, step
        again.close()
        again.env.close()
