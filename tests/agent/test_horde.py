"""Methods and invalid arguments of the Horde; test_seams.py compares its weights with an oracle."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import numpy as np
import pytest

from horde_agent.gvf import GVF, Channel, Feature, Prediction
from horde_agent.horde import Horde
from horde_agent.policies import ConstantAction, Gibbs, Uniform
from tests.agent.hordes import BEHAVIOUR, N_ACTIONS, N_ACTIVE, N, after, ask, make

SEEN, T = np.zeros(4), np.arange(N_ACTIVE)


def two() -> list[GVF]:
    return [ask("a", ConstantAction(0, N_ACTIONS)), ask("b")]


def test_a_termination_ends_the_return_and_the_stream() -> None:
    """One state; the stream ends after each step of reward 1: V = 1, not 1 / (1 - .8) = 5."""
    horde, o, tiles = Horde([ask("a", BEHAVIOUR)], n_features=1, n_active=1), np.ones(3), np.zeros(1, dtype=np.int64)
    for _ in range(300):
        horde.begin(o, tiles)
        horde.learn(0, 1.0, o, tiles, terminated=True)
    assert horde.predict(tiles)[0] == pytest.approx(1.0, abs=1e-6)
    with pytest.raises(RuntimeError, match="begin"):
        horde.learn(0, 1.0, o, tiles)


def test_the_hash_is_that_of_theta_then_w() -> None:
    horde = after(60, make(two(), dtype="float32"))
    theta, w = horde.weights()
    assert theta.dtype == np.float32
    assert horde.weights_sha256() == hashlib.sha256(theta.tobytes() + w.tobytes()).hexdigest()


READ: dict[str, Any] = {
    "predictions": lambda h: h.predictions,
    "predict": lambda h: h.predict(T),
    "weights": lambda h: h.weights()[0],
    "mspbe_scalar": lambda h: h.mspbe_scalar,
    "mspbe_vector": lambda h: h.mspbe_vector(),
    "td_error": lambda h: h.td_error,
    "max_trace": lambda h: h.max_trace,
}


def test_everything_read_from_a_deferred_horde_is_up_to_date() -> None:
    """Without a method that catches up having been called before."""
    eager, deferred = (after(37, make([ask("on", BEHAVIOUR), ask("uniform")], mode=m)) for m in ("eager", "deferred"))
    for name, read in READ.items():
        np.testing.assert_allclose(read(copy.deepcopy(deferred)), read(eager), rtol=1e-10, err_msg=name)


def test_resetting_theta_keeps_w() -> None:
    horde = after(60, make(two()))
    w = horde.weights()[1]
    horde.reset_weights()
    assert not horde.weights()[0].any()
    np.testing.assert_array_equal(horde.weights()[1], w)
    np.testing.assert_array_equal(horde.predictions, 0.0)
    with pytest.raises(ValueError, match="theta"):
        horde.reset_weights(np.zeros((1, 1)))


# ---- arguments that are refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 0.5, SEEN[:0], T), "observation"),
        ((0, 0.5, SEEN[None], T), "observation"),
        ((0, 0.5, np.array([0, np.nan, 0]), T), "observation .*channel 1 is nan"),
        ((0, 0.5, SEEN, T[:3]), "tiles .*shape"),
        ((0, 0.5, SEEN, T.astype(float)), "tiles"),
        ((0, 0.5, SEEN, T + N), "tiles .*0..24; number 0 is 25"),
        ((0, 0.5, SEEN, T - 1), "tiles .*number 0 is -1"),
        ((0, 0.5, SEEN, np.array([7, 2, 9, 2])), "tiles .*different.* 2 "),
    ],
)
def test_learn_refuses_by_name_and_learns_nothing(arguments: tuple[Any, ...], words: str) -> None:
    horde = make([ask("a")])
    horde.begin(SEEN, T)
    before = horde.weights_sha256()
    with pytest.raises(ValueError, match=words):
        horde.learn(*arguments)
    assert horde.weights_sha256() == before


@pytest.mark.parametrize("cumulant", [Channel(0), lambda *_: 1.0], ids=["channels", "functions"])
def test_a_repeated_tile_is_refused_everywhere(cumulant: Any) -> None:
    """With functions a state is checked in Python before they are called; otherwise in a kernel."""
    horde, twice = make([ask("a", cumulant=cumulant)]), np.array([1, 8, 8, 3])
    horde.begin(SEEN, T)
    horde.learn(1, 0.5, SEEN + 1, T)
    before = horde.weights_sha256()
    for refused in (
        lambda: horde.begin(SEEN, twice),
        lambda: horde.learn(1, 0.5, SEEN, twice),
        lambda: horde.predict(twice),
    ):
        with pytest.raises(ValueError, match=r"tiles .*different.* 8 "):
            refused()
    assert horde.weights_sha256() == before
    horde.learn(1, 0.5, SEEN + 1, T)
    assert horde.weights_sha256() != before


@pytest.mark.parametrize(
    ("questions", "words"),
    [
        ([], "at least one"),
        ([ask("a"), ask("a")], "'a'"),
        ([ask("a"), ask("b", Uniform(4))], "actions"),
        ([ask("a", cumulant=Feature(99))], "feature 99 of 25"),
        ([ask("a", cumulant=Prediction("b"))], "no demon 'b'"),
        ([ask("a", Gibbs(3, 7, np.array([0]), np.ones(1)))], "n_features"),
    ],
)
def test_questions_that_make_no_horde_are_refused(questions: list[GVF], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make(questions)


def test_settings_that_make_no_horde_are_refused() -> None:
    with pytest.raises(ValueError, match="n_active"):
        Horde([ask("a")], n_features=3, n_active=4)
    with pytest.raises(ValueError, match=r"mode .*'lazy'"):
        make([ask("a")], mode="lazy")
    with pytest.raises(ValueError, match="vector_mspbe=True"):
        make([ask("a")], vector_mspbe=False).mspbe_vector()
