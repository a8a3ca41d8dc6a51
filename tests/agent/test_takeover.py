"""Changing to the plain engine when a trace is longer than the span engine supports."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from horde_agent.gvf import GVF, Channel
from horde_agent.horde import Horde
from horde_agent.learning import PlainEngine, SpanEngine
from horde_agent.learning.rules import LARGEST_TAIL
from horde_agent.policies import Behaviour, ConstantAction, Uniform
from tests.agent import hordes
from tests.agent.hordes import N_ACTIONS, RandomLife


def always(observation: np.ndarray, tiles: np.ndarray) -> float:
    """Return a constant continuation that is a function."""
    return 1.0


def wild(observation: np.ndarray, tiles: np.ndarray) -> float:
    return 1e200 if observation[3] == 300 else 0.5


def questions(gamma: Any = always, lam: Any = 1.0) -> list[GVF]:
    """Return a question with a trace that never fades, and others: off-policy, diverging, with an outcome."""
    off, on = ConstantAction(1, N_ACTIONS), Behaviour()
    return [
        GVF("long", on, Channel(0), gamma, 0.0, lam),
        GVF("off", off, Channel(1), 0.9),
        GVF("aside", Uniform(N_ACTIONS), wild, 0.8),
        *(GVF(f"{i}", Uniform(N_ACTIONS), Channel(i % 3), 0.8, float(i)) for i in range(20)),
        GVF("long too", on, Channel(2), gamma, 0.0, lam),
    ]


def make(asked: list[GVF], mode: Any = "eager", engine: Any = "span", **config: Any) -> Horde:
    return hordes.make(asked, engine, mode, step_size=1e-3, mspbe_tau=100.0, **config)


def assert_same(one: Horde, other: Horde) -> None:
    """Compare all results but the largest trace, for which the span engine has a bound."""
    pairs = [(h.weights()[0], h.weights()[1], h.predictions, h.td_error, h.mspbe_scalar) for h in (one, other)]
    if one.config.vector_mspbe:
        pairs = [(*numbers, h.mspbe_vector()) for numbers, h in zip(pairs, (one, other), strict=True)]
    for got, want in zip(*pairs, strict=True):
        assert np.isfinite(want).all()
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-10 * (1e-6 + np.abs(want).max()))
    assert one.diverged == other.diverged
    np.testing.assert_array_equal(one.n_skipped, other.n_skipped)
    assert (one.max_traces >= other.max_traces * (1 - 1e-12)).all()


@pytest.mark.parametrize(
    ("mode", "trace_rule", "vector_mspbe"),
    [("eager", "clipped", True), ("deferred", "clipped", False), ("deferred", "plain", True)],
)
def test_a_change_to_the_plain_engine_does_not_change_results(
    mode: Any, trace_rule: Any, vector_mspbe: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """During traces of 1,000 steps, after a divergence; then a gap, and demons are added and removed."""
    rules = {"trace_rule": trace_rule, "vector_mspbe": vector_mspbe}
    horde, plain = make(questions(), mode, **rules), make(questions(), engine="plain", **rules)
    assert isinstance(horde._engine._only, SpanEngine)
    lives = RandomLife(horde, plain)
    with caplog.at_level(logging.WARNING):
        lives.run(LARGEST_TAIL - 50)
        assert_same(horde, plain)
        assert isinstance(horde._engine._only, SpanEngine)
        assert caplog.text == ""
        lives.run(250)
    assert isinstance(horde._engine._only, PlainEngine)
    assert "a trace reaches back more than 1,000 steps" in caplog.text
    assert len(caplog.records) == 1
    assert horde.n_waiting == 0
    assert horde.diverged == ["aside"]
    assert_same(horde, plain)
    lives.run(1)
    assert_same(horde, plain)
    for each in (horde, plain):
        each.begin(*lives.state)
    lives.run(20)
    for each in (horde, plain):
        each.remove(["3", "long"])
        each.add([GVF("new", Behaviour(), Channel(1), 0.5)])
    lives.run(40)
    assert_same(horde, plain)
    assert len(caplog.records) == 1


def test_reading_weights_or_adding_demons_can_change_the_engine() -> None:
    """Reading weights or adding demons flushes deferred steps, which may detect the long trace."""
    for ask in (
        lambda h: h.weights(),
        lambda h: h.reset_weights(),
        lambda h: h.add([GVF("x", Behaviour(), Channel(0), 0.5)]),
    ):
        horde, plain = make(questions(), "deferred"), make(questions(), engine="plain")
        lives = RandomLife(horde, plain)
        lives.run(LARGEST_TAIL + 3)
        for each in (horde, plain):
            ask(each)
        lives.run(130)
        assert isinstance(horde._engine._only, PlainEngine)
        assert_same(horde, plain)


def test_known_long_traces_use_the_plain_engine_from_the_start(caplog: pytest.LogCaptureFixture) -> None:
    """At gamma lambda = .99 what lies 1,000 steps back still weighs 4e-5, and in float32 1e-8 is visible next to 1."""
    with caplog.at_level(logging.WARNING):
        horde = make(questions(0.99, 1.0), dtype="float32")
    assert isinstance(horde._engine._only, PlainEngine)
    assert "traces with gamma lambda = 0.99 reach back 2,292 steps" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        asked_for = make(questions(0.99, 1.0), engine="plain")
        short = make(questions(0.95, 1.0))
    assert caplog.text == ""
    assert isinstance(asked_for._engine._only, PlainEngine)
    assert isinstance(short._engine._only, SpanEngine)
