"""LearnerConfig, update rules by name, and the NumPy learners that the benchmark compares with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from horde_agent.bench.competitors import FeatureMajor, LearnerMajor
from horde_agent.kernels import rules
from horde_agent.learning import LearnerConfig, Signals
from tests.agent.shared import Setup, new_engine, random_stream


def test_an_update_rule_is_a_file() -> None:
    assert "gtd" in rules.names()
    for name in rules.names():
        assert set(rules.rule(name).VECTORS) <= {"w", "e"}
        assert callable(rules.rule(name).learn_all)
    with pytest.raises(ValueError, match="'sarsa'"):
        rules.rule("sarsa")


@pytest.mark.parametrize("kind", [LearnerMajor, FeatureMajor])
def test_the_numpy_competitors_learn_the_same(kind: Any) -> None:
    """A learner that did less work would make the benchmark's ratio meaningless."""
    stream = random_stream(9, 60, [0] * 10 + [1] * 10)
    gamma, lam = np.array([0.5, 0.9]), np.full(2, 0.9)
    start, n = np.array([0, 10, 20]), 30
    competitor = kind(start, n, gamma, 0.9, 0.02, 0.01)
    learner = new_engine(Setup("plain"), stream.group, dtype="float32", mspbe_tau=10_000.0)
    learner.begin(stream.tiles[0])
    for t in range(60):
        c = stream.c[t + 1].astype(np.float32)
        got = competitor.learn(stream.tiles[t], stream.tiles[t + 1], stream.rho[t].astype(np.float32), c)
        want = learner.learn(stream.tiles[t + 1], Signals(stream.rho[t], gamma, lam, c, np.zeros(20)))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
    w = competitor.w if kind is LearnerMajor else competitor.w.T
    np.testing.assert_allclose(w, learner.weights()[1], rtol=0, atol=1e-5 * np.abs(w).max())
    np.testing.assert_allclose(competitor.s, learner.mspbe_scalar, rtol=0, atol=1e-5 * np.abs(competitor.s).max())


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ({"step_size": 0.0}, "step_size"),
        ({"secondary_ratio": -1.0}, "secondary_ratio"),
        ({"trace_rule": "clip"}, "trace_rule .*clipped, capped, plain"),
        ({"w_rule": "never"}, "w_rule"),
        ({"dtype": "float16"}, "dtype"),
        ({"mspbe_tau": 1.0}, "mspbe_tau"),
        ({"check_every": 0}, "check_every"),
        ({"engine": "fast"}, "engine .*span, plain"),
        ({"algorithm": "sarsa"}, "algorithm .*gtd.*'sarsa'"),
    ],
)
def test_a_bad_setting_is_refused_by_name(setting: dict[str, Any], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        LearnerConfig(**setting)
