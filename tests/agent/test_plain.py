"""The plain engine: against the dense oracle, and the invariants that a parallel loop over demons can break."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horde_agent.bench.competitors import FeatureMajor, LearnerMajor
from horde_agent.kernels import rules
from horde_agent.learning import LearnerConfig, PlainEngine, Signals, plain
from tests.agent.shared import RandomStream, binary, learn_all, random_stream
from tests.oracles.gtd import DenseGTD

GROUPS = [0] * 20 + [1, 1, 2] + [3] * 9 + [4]


def oracle_after(stream: RandomStream, config: LearnerConfig) -> tuple[DenseGTD, np.ndarray]:
    """Return the oracle after the whole stream, and its last predictions."""
    n, of = int(stream.tiles.max()) + 1, stream.group
    oracle = DenseGTD(of.size, n, 0.02, 0.01, trace_rule=config.trace_rule, w_rule=config.w_rule, tau=config.mspbe_tau)
    v = oracle.begin(binary(stream.tiles[0], n), stream.gamma[0][of], stream.lam[0][of])
    for t in range(len(stream.rho)):
        v = oracle.learn(
            binary(stream.tiles[t + 1], n),
            stream.rho[t][of],
            stream.gamma[t + 1][of],
            stream.lam[t + 1][of],
            stream.c[t + 1],
            stream.z[t + 1],
        )
    return oracle, v


def assert_equals_oracle(stream: RandomStream, config: LearnerConfig) -> None:
    """Compare everything that is learned, relative to the largest entry of each array."""
    learner, (oracle, v) = learn_all(stream, config), oracle_after(stream, config)
    theta, w = learner.weights()
    pairs = {
        "theta": (theta, oracle.theta),
        "w": (w, oracle.w),
        "e": (learner.traces(), oracle.e),
        "m": (learner.mspbe_trace(), oracle.m),
        "s": (learner.mspbe_scalar, oracle.s),
        "vector": (learner.mspbe_vector(), (oracle.m * oracle.w).sum(axis=1)),
        "delta": (learner.td_error, oracle.delta),
        "max e": (learner.max_trace, oracle.max_e),
        "v": (learner.predict(stream.tiles[-1]), v),
    }
    for what, (got, want) in pairs.items():
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-11 * (1e-3 + np.abs(want).max()), err_msg=what)


@pytest.mark.parametrize("w_rule", ["every-step", "importance-weighted"])
@pytest.mark.parametrize("trace_rule", ["plain", "capped", "clipped"])
def test_the_engine_equals_the_dense_oracle(trace_rule: Any, w_rule: Any) -> None:
    """Random streams in which gamma, lambda, z and rho all vary, rho = 0 in two steps of five."""
    config = LearnerConfig(trace_rule=trace_rule, w_rule=w_rule, dtype="float64", mspbe_tau=50.0)
    assert_equals_oracle(random_stream(1, 200, GROUPS), config)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), group=st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_any_grouping_equals_the_oracle(seed: int, group: list[int]) -> None:
    numbered = list(np.unique(group, return_inverse=True)[1])
    config = LearnerConfig(dtype="float64", mspbe_tau=20.0)
    assert_equals_oracle(random_stream(seed, 25, numbered), config)


def test_estimates_of_a_short_memory_are_exact_for_as_long_as_one_likes() -> None:
    """At tau = 2, m halves on each step: a trace kept over a common scale would overflow at 1,075."""
    assert_equals_oracle(random_stream(2, 1_300, [0, 0, 1]), LearnerConfig(dtype="float64", mspbe_tau=2.0))


@pytest.mark.kernels
def test_a_short_stream_equals_the_oracle() -> None:
    """Small enough to run interpreted and bounds-checked; a tile that counts twice."""
    stream = random_stream(3, 12, GROUPS, n_features=9, n_active=3)
    stream.tiles[5, 1] = stream.tiles[5, 0]
    assert_equals_oracle(stream, LearnerConfig(dtype="float64", mspbe_tau=20.0))


def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "SMALLEST_SHARED_WORK", 0)  # else one thread does so little alone
    stream = random_stream(4, 100, GROUPS * 6)
    weights = []
    for n_threads in (1, 2):
        if n_threads > numba.config.NUMBA_NUM_THREADS:
            pytest.skip("one core only")
        before = numba.get_num_threads()
        numba.set_num_threads(n_threads)
        weights.append(learn_all(stream, LearnerConfig()).weights())
        numba.set_num_threads(before)
    np.testing.assert_array_equal(weights[0][0], weights[1][0])
    np.testing.assert_array_equal(weights[0][1], weights[1][1])


def test_tiles_of_another_type_or_layout_are_the_same_tiles() -> None:
    stream = random_stream(5, 30, GROUPS)
    want = learn_all(stream, LearnerConfig()).weights()
    spread = np.repeat(stream.tiles, 2, axis=1)[:, ::2]
    for tiles in (stream.tiles.astype(np.int32), spread, stream.tiles.astype(np.uint64)):
        got = learn_all(stream._replace(tiles=tiles), LearnerConfig()).weights()
        np.testing.assert_array_equal(got, want)


def test_permuting_demons_changes_nothing() -> None:
    stream = random_stream(5, 80, GROUPS)
    order = np.random.default_rng(0).permutation(len(GROUPS))
    permuted = stream._replace(group=stream.group[order], c=stream.c[:, order], z=stream.z[:, order])
    theta, w = learn_all(stream, LearnerConfig()).weights()
    theta_permuted, w_permuted = learn_all(permuted, LearnerConfig()).weights()
    np.testing.assert_array_equal(theta_permuted, theta[order])
    np.testing.assert_array_equal(w_permuted, w[order])


def test_rho_1_and_no_secondary_weights_is_td_lambda() -> None:
    """Sutton & Barto (2018), section 12.2: delta, e = gamma lambda e + phi, theta += alpha delta e."""
    stream = random_stream(6, 150, [0])
    rho, gamma, lam = np.ones(1), np.array([0.9]), np.array([0.8])
    learner = PlainEngine(np.zeros(1, np.int64), 30, 0.05, 0.0, LearnerConfig(dtype="float64"))
    learner.begin(stream.tiles[0], gamma, lam)
    theta, e = np.zeros(30), np.zeros(30)
    for t in range(150):
        learner.learn(stream.tiles[t + 1], Signals(rho, gamma, lam, stream.c[t + 1], np.zeros(1)))
        phi, phi_tp1 = binary(stream.tiles[t], 30), binary(stream.tiles[t + 1], 30)
        delta = stream.c[t + 1, 0] + 0.9 * theta @ phi_tp1 - theta @ phi
        e = 0.9 * 0.8 * e + phi
        theta = theta + 0.05 * delta * e
    np.testing.assert_allclose(learner.weights()[0][0], theta, rtol=0, atol=1e-13)


def test_w_decays_where_rho_is_0_only_under_every_step() -> None:
    """With rho = 0 the two w rules differ, and theta stands under both."""
    for w_rule, moves in (("every-step", True), ("importance-weighted", False)):
        learner = PlainEngine(np.zeros(1, np.int64), 3, 0.1, 0.1, LearnerConfig(dtype="float64", w_rule=w_rule))  # type: ignore[arg-type]
        one, tiles = np.ones(1), np.array([0, 2])
        learner.begin(tiles, 0 * one, 0 * one)
        learner.learn(tiles, Signals(one, 0 * one, 0 * one, one, 0 * one))
        theta, w = learner.weights()
        learner.learn(tiles, Signals(0 * one, 0 * one, 0 * one, one, 0 * one))
        np.testing.assert_array_equal(learner.weights()[0], theta)
        assert (learner.weights()[1] != w).any() == moves
        assert learner.traces().max() == 0.0


def test_a_gap_clears_traces_and_nothing_else() -> None:
    stream = random_stream(7, 30, GROUPS)
    learner = learn_all(stream, LearnerConfig())
    assert learner.traces().max() > 0
    before = learner.weights()
    learner.begin(stream.tiles[0], stream.gamma[0], stream.lam[0])
    assert learner.traces().max() == 0
    np.testing.assert_array_equal(learner.weights()[0], before[0])
    np.testing.assert_array_equal(learner.weights()[1], before[1])


def test_predictions_are_the_weights_at_the_active_tiles() -> None:
    stream = random_stream(8, 30, GROUPS)
    learner = learn_all(stream, LearnerConfig(dtype="float64"))
    theta = learner.weights()[0]
    np.testing.assert_allclose(learner.predict(stream.tiles[3]), theta[:, stream.tiles[3]].sum(axis=1), rtol=1e-12)
    assert learner.predict_one(4, stream.tiles[3]) == pytest.approx(theta[4, stream.tiles[3]].sum())


def test_features_may_have_any_value() -> None:
    """A state given by the value of every feature, as a paper's example may have it, against the oracle."""
    rng, config = np.random.default_rng(10), LearnerConfig(dtype="float64", mspbe_tau=20.0)
    engine, oracle = PlainEngine(np.arange(2), 6, 0.05, 0.02, config), DenseGTD(2, 6, 0.05, 0.02, tau=20.0)
    gamma, lam, phi = np.array([0.9, 0.5]), np.array([0.8, 0.4]), rng.random(6)
    np.testing.assert_allclose(engine.begin(phi), oracle.begin(phi, gamma, lam))
    for _ in range(60):
        phi, rho, c = rng.random(6) * (rng.random(6) < 0.7), rng.choice([0.0, 0.5, 2.0], 2), rng.normal(size=2)
        got = engine.learn(phi, Signals(rho, gamma, lam, c, np.ones(2)))
        np.testing.assert_allclose(got, oracle.learn(phi, rho, gamma, lam, c, np.ones(2)), rtol=0, atol=1e-12)
    for one, other in (
        (engine.weights()[0], oracle.theta),
        (engine.weights()[1], oracle.w),
        (engine.traces(), oracle.e),
    ):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    assert engine.predict_one(1, phi) == pytest.approx(float(oracle.theta[1] @ phi))


def test_an_update_rule_is_a_file() -> None:
    """Each has its vectors and one kernel for all demons; one that is not there is refused by name."""
    assert "gtd" in rules.names()
    for name in rules.names():
        assert set(rules.rule(name).VECTORS) <= {"w", "e"}
        assert callable(rules.rule(name).learn_all)
    with pytest.raises(ValueError, match="no update rule 'sarsa'; there is gtd"):
        rules.rule("sarsa")


@pytest.mark.parametrize("kind", [LearnerMajor, FeatureMajor])
def test_the_numpy_yardsticks_learn_the_same(kind: Any) -> None:
    """What the benchmark compares with must do the same work, or its ratio means nothing."""
    stream = random_stream(9, 60, [0] * 10 + [1] * 10)
    gamma = np.array([0.5, 0.9])
    start, n = np.array([0, 10, 20]), 30
    yardstick = kind(start, n, gamma, 0.9, 0.02, 0.01)
    learner = PlainEngine(stream.group, n, 0.02, 0.01, LearnerConfig())
    learner.begin(stream.tiles[0], gamma, np.full(2, 0.9))
    for t in range(60):
        c = stream.c[t + 1].astype(np.float32)
        got = yardstick.learn(stream.tiles[t], stream.tiles[t + 1], stream.rho[t].astype(np.float32), c)
        want = learner.learn(stream.tiles[t + 1], Signals(stream.rho[t], gamma, np.full(2, 0.9), c, np.zeros(20)))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
    w = yardstick.w if kind is LearnerMajor else yardstick.w.T
    np.testing.assert_allclose(w, learner.weights()[1], rtol=0, atol=1e-5 * np.abs(w).max())
    np.testing.assert_allclose(yardstick.s, learner.mspbe_scalar, rtol=0, atol=1e-5 * np.abs(yardstick.s).max())


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"step_size": 0.0}, "step_size"),
        ({"secondary_ratio": -1.0}, "secondary_ratio"),
        ({"trace_rule": "clip"}, "trace_rule must be one of clipped, capped, plain"),
        ({"w_rule": "never"}, "w_rule"),
        ({"dtype": "float16"}, "dtype"),
        ({"mspbe_tau": 1.0}, "mspbe_tau"),
        ({"check_every": 0}, "check_every"),
        ({"engine": "fast"}, "engine must be one of span, plain"),
        ({"algorithm": "td"}, "algorithm must be one of gtd, not 'td'"),
    ],
)
def test_a_bad_setting_is_refused_by_name(setting: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LearnerConfig(**setting)
