"""Demons added and removed during a life; test_seams.py compares their weights with an oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from horde_agent.gvf import GVF, Channel, Prediction
from horde_agent.kernels.span.arrays import CHUNK
from horde_agent.policies import ConstantAction, Uniform
from tests.agent.hordes import BEHAVIOUR, IN_ALL, N_ACTIONS, RandomLife, after, ask, make, siblings


@IN_ALL
def test_a_diverged_demon_stays_diverged_until_its_name_is_added_again(engine: Any, mode: Any) -> None:
    calls: list[int] = []

    def breaks(observation: np.ndarray, tiles: np.ndarray) -> float:
        calls.append(0)
        return 1e300 if len(calls) == 20 else 1.0

    bad = ask("bad", cumulant=breaks)
    horde = make([bad, *siblings(6)], engine, mode)
    life = RandomLife(horde)
    life.run(30)
    assert horde.diverged == ["bad"]
    horde.remove(["sibling 0", "sibling 4"])
    horde.add([ask("new")])
    life.run(10)
    assert horde.diverged == ["bad"]
    assert horde.n_updated == horde.n_demons - 1
    for answer in (*horde.weights(), horde.predictions, horde.td_error, horde.mspbe_scalar):
        assert not answer[0].any()
        assert answer[1:].any()
    horde.remove(["bad"])
    horde.add([bad])
    assert horde.diverged == []
    life.run(10)
    assert horde.diverged == []
    assert horde.weights()[0][horde.names.index("bad")].any()
    assert horde.n_updated == horde.n_demons == 7


def test_demons_may_be_added_before_the_first_state_and_after_a_stream_ended() -> None:
    a, b, c = (ask(f"{k}", ConstantAction(1, N_ACTIONS), Channel(k)) for k in range(3))
    horde, whole = make([a]), make([a, b, c])
    horde.add([b])
    life = RandomLife(horde, whole)
    life.run(20)
    for each in (horde, whole):
        each.learn(1, 0.5, *life.state, terminated=True)
        each.reset_weights()
    horde.add([c])
    for each in (horde, whole):
        each.begin(*life.state)
    life.run(20)
    np.testing.assert_allclose(horde.weights()[0][:2], whole.weights()[0][:2], rtol=1e-11, atol=1e-14)
    assert horde.weights()[0][2].any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h: h.add([ask("0")]), "'0'"),
        (lambda h: h.add([ask("new", Uniform(7))]), "actions"),
        (lambda h: h.add([ask("new", cumulant=Prediction("missing"))]), "'missing'"),
        (lambda h: h.remove(["missing"]), "names .*missing"),
        (lambda h: h.remove("0"), "names must be a list"),
        (lambda h: h.remove(["0", "1", "about 0"]), "at least one"),
        (lambda h: h.remove(["0"]), "no demon '0'"),
    ],
)
def test_a_change_that_does_not_fit_is_refused_and_changes_nothing(change: Any, words: str) -> None:
    questions = [ask("0"), ask("1"), GVF("about 0", BEHAVIOUR, Prediction("0"), 0.5)]
    horde, twin = make(questions), make(questions)
    life = RandomLife(horde, twin)
    life.run(12)
    with pytest.raises(ValueError, match=words):
        change(horde)
    life.run(12)
    assert horde.weights_sha256() == twin.weights_sha256()


def test_the_memory_of_removed_demons_is_freed() -> None:
    """160 demons in several blocks; the 16 that stay fill one, whichever lanes they had."""
    horde = after(5, make([ask(f"{i}", ConstantAction(i % 3, N_ACTIONS)) for i in range(160)], dtype="float32"))
    engine: Any = horde._engine._only
    horde.remove([f"{i}" for i in range(160) if i % 10])
    assert engine.arrays.theta.size == 16 * CHUNK
    assert engine.layout.n_blocks == 1
