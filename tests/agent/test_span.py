"""The span engine: exact against the dense oracle over thousands of steps, where a past that wraps or a tail shows."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

from horde_agent.kernels.checks import TAIL_TOO_LONG
from horde_agent.learning import LearnerConfig, PlainEngine, Signals, SpanEngine
from horde_agent.learning.layout import Layout, assign_lanes
from horde_agent.learning.span import LARGEST_TAIL, trace_length
from tests.agent.shared import RandomStream, binary, random_stream
from tests.oracles.gtd import DenseGTD

N_FEATURES, N_ACTIVE = 60, 9


def slow_stream(
    seed: int, n_steps: int, group: list[int], rho: list[float], gamma: list[float], lam: list[float]
) -> RandomStream:
    """Return a stream in which a third of the active features changes per step; the first feature is always on."""
    rng = np.random.default_rng(seed)
    n_groups, n_demons = max(group) + 1, len(group)
    tiles = np.empty((n_steps + 1, N_ACTIVE), dtype=np.int64)
    tiles[:] = np.r_[0, rng.choice(np.arange(1, N_FEATURES), N_ACTIVE - 1, replace=False)]
    for t in range(1, n_steps + 1):
        tiles[t] = tiles[t - 1]
        off = rng.choice(np.arange(1, N_ACTIVE), 3, replace=False)
        tiles[t, off] = rng.choice(np.setdiff1d(np.arange(1, N_FEATURES), tiles[t]), 3, replace=False)
    shape = (n_steps + 1, n_groups)
    return RandomStream(
        np.array(group),
        tiles,
        rng.choice(rho, (n_steps, n_groups)),
        rng.choice(gamma, shape),
        rng.choice(lam, shape),
        rng.normal(size=(n_steps + 1, n_demons)),
        rng.normal(size=(n_steps + 1, n_demons)),
    )


def assert_equals_oracle(
    stream: RandomStream,
    config: LearnerConfig,
    *,
    gaps: tuple[int, ...] = (),
    resets: tuple[int, ...] = (),
    tolerance: float = 1e-12,
    look_every: int = 97,
    alpha: float = 0.01,
    **options: Any,
) -> SpanEngine:
    """Live through a stream with both, and compare everything every now and then, each demon by its own scale."""
    n, of = int(stream.tiles.max()) + 1, stream.group
    engine = SpanEngine(of, n, alpha, alpha / 2, config, **options)
    oracle = DenseGTD(
        of.size, n, alpha, alpha / 2, trace_rule=config.trace_rule, w_rule=config.w_rule, tau=config.mspbe_tau
    )

    def begin(t: int) -> None:
        engine.begin(stream.tiles[t], stream.gamma[t], stream.lam[t])
        oracle.begin(binary(stream.tiles[t], n), stream.gamma[t][of], stream.lam[t][of])

    begin(0)
    for t in range(len(stream.rho)):
        if t in gaps:
            begin(t)
        if t in resets:
            engine.reset_weights()
            oracle.theta[:] = 0
        engine.learn(stream.tiles[t + 1], stream.signals(t))
        s = stream.signals(t)
        want = oracle.learn(
            binary(stream.tiles[t + 1], n), s.rho_t[of], s.gamma_tp1[of], s.lam_tp1[of], s.c_tp1, s.z_tp1
        )
        if engine.batch == 1 or t % 41 == 0:
            engine.catch_up()
            scale = 1e-3 + np.abs(oracle.theta).max()
            assert np.abs(engine.latest - want).max() <= 10 * tolerance * scale, f"predictions after {t + 1}"
        if t % look_every == 0 or t == len(stream.rho) - 1:
            compare(engine, oracle, tolerance, f"after {t + 1}")
    return engine


def compare(engine: SpanEngine, oracle: DenseGTD, tolerance: float, when: str) -> None:
    theta, w = engine.weights()
    for name, got, want in (
        ("theta", theta, oracle.theta),
        ("w", w, oracle.w),
        ("m", engine.mspbe_trace(), oracle.m),
    ):
        scale = 1e-3 + np.abs(want).max(axis=1, keepdims=True)
        assert (np.abs(got - want) <= tolerance * scale).all(), f"{name} {when}: {(np.abs(got - want) / scale).max()}"
    for name, value, right in (
        ("delta", engine.td_error, oracle.delta),
        ("s", engine.mspbe_scalar, oracle.s),
        ("vector", engine.mspbe_vector(), (oracle.m * oracle.w).sum(axis=1)),
    ):
        assert np.abs(value - right).max() <= 10 * tolerance * (1e-3 + np.abs(right).max()), f"{name} {when}"
    assert (engine.max_trace >= oracle.max_e * (1 - 1e-12)).all()


GROUPS = [0] * 70 + [1] * 3 + [2, 3, 4, 5, 5]


BATCHES = pytest.mark.parametrize("batch", [1, 5], ids=["eager", "deferred"])


@BATCHES
@pytest.mark.parametrize("w_rule", ["every-step", "importance-weighted"])
def test_the_engine_equals_the_dense_oracle_for_3000_steps(w_rule: Any, batch: int) -> None:
    stream = slow_stream(1, 3_001, GROUPS, [0, 0.3, 1, 1.6, 5], [0, 0.5, 0.9], [0, 0.4, 0.9])
    config = LearnerConfig(w_rule=w_rule, dtype="float64", mspbe_tau=50.0)
    assert_equals_oracle(stream, config, period=7, gaps=(40, 41, 300, 1777), resets=(2_000,), batch=batch)


@pytest.mark.parametrize("trace_rule", ["plain", "clipped"])
@BATCHES
def test_long_traces_are_exact_as_far_as_they_may_reach(trace_rule: Any, batch: int) -> None:
    """On-policy, gamma up to .95 at lambda .98: tails of some 500 steps under "clipped".

    Under "plain" a rho of 0 ends them now and then, and before nothing is dropped.
    """
    stream = slow_stream(4, 2_000, list(range(5)) + [5] * 20, [1.0], [0.0], [0.98])
    stream.gamma[:] = [0.0, 0.9, 0.95, 0.8, 0.9, 0.95]
    if trace_rule == "plain":
        stream.rho[np.random.default_rng(0).random(2_000) < 1 / 300] = 0
    config = LearnerConfig(trace_rule=trace_rule, dtype="float64", mspbe_tau=50.0)
    engine = assert_equals_oracle(stream, config, period=16, gaps=(900, 907), alpha=1e-4, batch=batch)
    assert not engine.flags & TAIL_TOO_LONG


def test_a_trace_that_reaches_back_too_far_raises_an_alarm() -> None:
    """Gamma lambda = 1 on-policy never fades: after LARGEST_TAIL steps it must be said, and not before."""
    stream = slow_stream(4, LARGEST_TAIL + 80, [0, 1], [1.0], [1.0], [1.0])
    engine = SpanEngine(stream.group, N_FEATURES, 1e-5, 1e-5, LearnerConfig(dtype="float64"), period=16)
    engine.begin(stream.tiles[0], stream.gamma[0], stream.lam[0])
    alarms = []
    for t in range(len(stream.rho)):
        engine.learn(stream.tiles[t + 1], stream.signals(t))
        alarms.append(engine.flags)
    first = int(np.argmax(np.array(alarms) > 0))
    assert alarms[first] == TAIL_TOO_LONG
    assert LARGEST_TAIL < first < LARGEST_TAIL + 20


def test_how_far_a_trace_reaches_follows_from_its_decay() -> None:
    """What lies before step k back weighs at most g^k / (1 - g)."""
    k = trace_length(0.9, 1e-8)
    assert 0.9**k / 0.1 <= 1e-8 < 0.9 ** (k - 1) / 0.1
    assert trace_length(0.0, 1e-8) == 0
    assert trace_length(1.0, 1e-8) > LARGEST_TAIL


@pytest.mark.kernels
@pytest.mark.parametrize("batch", [1, 2], ids=["eager", "deferred"])
@pytest.mark.parametrize("n_learned", [0, 3])
def test_a_stream_may_begin_again_and_again(n_learned: int, batch: int) -> None:
    """More often than the ring has times, with steps pending and without: a robot that is carried about, say."""
    stream = random_stream(9, 3 * (80 + n_learned), [0, 0, 1], n_features=9, n_active=3)
    config, of = LearnerConfig(dtype="float64", mspbe_tau=20.0), stream.group
    engine = SpanEngine(of, 9, 0.02, 0.01, config, period=5, largest_decay=0.2, batch=batch)
    oracle, t = DenseGTD(3, 9, 0.02, 0.01, tau=20.0), 0
    stream.lam[:] = 0.2
    for _ in range(3):
        for _ in range(80):
            v = engine.begin(stream.tiles[t])
            want = oracle.begin(binary(stream.tiles[t], 9), stream.gamma[t][of], stream.lam[t][of])
            t += 1
        np.testing.assert_allclose(v, want, rtol=0, atol=1e-13)
        assert engine._n_times < 80
        t -= 1
        for _ in range(n_learned):
            told = stream.signals(t)
            t += 1
            engine.learn(stream.tiles[t], told)
            told_each = told.rho_t[of], told.gamma_tp1[of], told.lam_tp1[of], told.c_tp1, told.z_tp1
            oracle.learn(binary(stream.tiles[t], 9), *told_each)
        t += 1
    engine.catch_up()
    np.testing.assert_allclose(engine.weights(), (oracle.theta, oracle.w), rtol=0, atol=1e-13)


def test_steps_that_are_noted_are_taken_when_somebody_asks() -> None:
    """Batches of eight: what `learn` returns is that of the last full batch, and every answer that of the last step."""
    stream = slow_stream(17, 60, GROUPS, [0, 0.3, 1.6], [0.5, 0.9], [0.9])
    config = LearnerConfig(dtype="float64", mspbe_tau=20.0)
    engines = [SpanEngine(stream.group, N_FEATURES, 0.01, 0.005, config, period=16, batch=batch) for batch in (1, 8)]
    for engine in engines:
        engine.begin(stream.tiles[0], stream.gamma[0], stream.lam[0])
    for t in range(60):
        now, late = (e.learn(stream.tiles[t + 1], stream.signals(t)).copy() for e in engines)
        if t % 8 == 7:
            np.testing.assert_allclose(late, now, rtol=1e-11, atol=1e-14)
            full = late
        elif t > 8:
            np.testing.assert_array_equal(late, full)
    eager, deferred = engines
    np.testing.assert_allclose(deferred.td_error, eager.td_error, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(deferred.latest, eager.latest, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(deferred.mspbe_vector(), eager.mspbe_vector(), rtol=1e-9, atol=1e-15)


def test_the_scale_of_m_is_multiplied_out_in_time() -> None:
    """At tau = 2 the common scale passes 1e-12 every 40 steps, in the middle of what is pending."""
    stream = slow_stream(8, 1_300, [0, 0, 1], [0.5, 1.5], [0.9], [0.9])
    assert_equals_oracle(stream, LearnerConfig(dtype="float64", mspbe_tau=2.0), period=30)


def plain_and_span(stream: RandomStream, config: LearnerConfig) -> tuple[PlainEngine, SpanEngine]:
    """Return both engines after the whole stream."""
    n = int(stream.tiles.max()) + 1
    engines = (
        PlainEngine(stream.group, n, 0.01, 0.005, config),
        SpanEngine(stream.group, n, 0.01, 0.005, config, period=16),
    )
    for engine in engines:
        engine.begin(stream.tiles[0], stream.gamma[0], stream.lam[0])
        for t in range(len(stream.rho)):
            engine.learn(stream.tiles[t + 1], stream.signals(t))
    return engines


def test_float32_is_as_exact_as_the_plain_engine_s() -> None:
    """Against the oracle in float64: within five times the plain engine's own error."""
    stream = slow_stream(9, 3_000, GROUPS, [0.3, 1, 1.6], [0.5, 0.9], [0.9])
    plain, span = plain_and_span(stream, LearnerConfig())
    exact = plain_and_span(stream, LearnerConfig(dtype="float64"))[0].weights()[0]
    scale = np.abs(exact).max(axis=1, keepdims=True)
    errors = [np.abs((e.weights()[0] - exact) / scale).max(axis=1) for e in (plain, span)]
    assert np.median(errors[1]) < 5 * np.median(errors[0])
    assert errors[1].max() < 5 * errors[0].max()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@BATCHES
def test_threads_do_not_change_a_bit(dtype: Any, batch: int) -> None:
    """It also compiles the parallel kernel, which not every form of its arguments survives."""
    stream = slow_stream(10, 200, list(range(40)) * 30, [0.3, 1, 1.6], [0.5, 0.9], [0.9])
    found = []
    for n_threads in (1, 2):
        if n_threads > numba.config.NUMBA_NUM_THREADS:
            pytest.skip("one core only")
        before = numba.get_num_threads()
        numba.set_num_threads(n_threads)
        engine = SpanEngine(stream.group, N_FEATURES, 0.01, 0.005, LearnerConfig(dtype=dtype), period=8, batch=batch)
        engine._n_threads = n_threads
        engine.begin(stream.tiles[0], stream.gamma[0], stream.lam[0])
        for t in range(200):
            engine.learn(stream.tiles[t + 1], stream.signals(t))
        found.append((*engine.weights(), engine.mspbe_vector(), engine.mspbe_scalar))
        numba.set_num_threads(before)
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


def test_predictions_are_the_weights_at_the_active_tiles() -> None:
    stream = slow_stream(12, 61, GROUPS, [0.3, 1.6], [0.5, 0.9], [0.9])
    engine = SpanEngine(stream.group, N_FEATURES, 0.01, 0.005, LearnerConfig(dtype="float64"), period=8)
    engine.begin(stream.tiles[0], stream.gamma[0], stream.lam[0])
    for t in range(61):
        now = engine.learn(stream.tiles[t + 1], stream.signals(t))
    theta = engine.weights()[0]
    np.testing.assert_allclose(now, theta[:, stream.tiles[61]].sum(axis=1), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(engine.predict(stream.tiles[3]), theta[:, stream.tiles[3]].sum(axis=1), rtol=1e-11)
    assert engine.predict_one(4, stream.tiles[3]) == pytest.approx(theta[4, stream.tiles[3]].sum())


def test_what_is_asked_before_life_begins_is_zero() -> None:
    engine = SpanEngine(np.arange(3), N_FEATURES, 0.01, 0.005, LearnerConfig(dtype="float64"))
    engine.reset_weights(np.ones((3, N_FEATURES)))
    np.testing.assert_array_equal(engine.predict(np.arange(4)), 4.0)
    np.testing.assert_array_equal(engine.weights()[0], 1.0)
    np.testing.assert_array_equal(engine.mspbe_vector(), 0.0)


def test_a_demon_set_aside_stays_at_zero_and_its_siblings_go_on() -> None:
    """One of a group is set aside in mid-life, with updates pending; nobody else notices a bit."""
    stream = slow_stream(14, 90, GROUPS, [0.3, 1, 1.6], [0.9], [0.9])
    engines = [SpanEngine(stream.group, N_FEATURES, 0.01, 0.005, LearnerConfig(), period=8) for _ in range(2)]
    for engine in engines:
        engine.begin(stream.tiles[0], stream.gamma[0], stream.lam[0])
    for t in range(90):
        if t == 37:
            engines[1].freeze(5)
        now = [e.learn(stream.tiles[t + 1], stream.signals(t)) for e in engines]
    assert now[1][5] == 0
    others = np.arange(len(GROUPS)) != 5
    for left, right in zip(engines[0].weights(), engines[1].weights(), strict=True):
        assert not right[5].any()
        np.testing.assert_array_equal(left[others], right[others])
    assert engines[1].mspbe_vector()[5] == engines[1].mspbe_scalar[5] == engines[1].td_error[5] == 0


def test_a_demon_whose_step_is_too_large_or_that_passes_its_bound_is_flagged_once() -> None:
    stream = slow_stream(15, 60, [0, 0, 1], [1.0], [0.9], [0.9])
    stream.c[20, 1] = 1e26  # so that a step of m, over its scale, is past what float32 can hold
    engine = SpanEngine(stream.group, N_FEATURES, 0.01, 0.005, LearnerConfig(check_every=1), period=4)
    engine.begin(stream.tiles[0], stream.gamma[0], stream.lam[0])
    flagged = {}
    for t in range(60):
        if t == 40:
            engine.set_bounds(np.array([np.inf, np.inf, 1e-6]))
        engine.learn(stream.tiles[t + 1], stream.signals(t))
        for demon in engine.pop_flagged():
            flagged[int(demon)] = t
            engine.freeze(int(demon))
    assert flagged == {1: 19, 2: 41}  # a weight is held against its bound when it is written
    assert np.isfinite(engine.weights()[0]).all()


def test_max_trace_is_exact_with_a_bias_and_never_too_small() -> None:
    """Feature 0 is always on: the largest entry of e is its own, the sum of all coefficients."""
    stream = slow_stream(16, 300, GROUPS, [0, 0.3, 1, 5], [0.9], [0.9])
    engine = assert_equals_oracle(stream, LearnerConfig(dtype="float64", mspbe_tau=50.0), look_every=400)
    plain = plain_and_span(stream, LearnerConfig(dtype="float64"))[0]
    np.testing.assert_allclose(engine.max_trace, plain.max_trace, rtol=1e-12)


def test_policies_lie_side_by_side_in_even_blocks() -> None:
    """795 questions about five policies, named by turns: ten blocks of 80 lanes, one policy in each."""
    group, policy = np.arange(795) % 15, np.arange(15) % 5
    layout = Layout(policy[group], assign_lanes(group, policy, widest=128))
    assert np.unique(layout.lane).size == 795
    np.testing.assert_array_equal(layout.demon[layout.lane], np.arange(795))
    assert layout.n_blocks == 10
    assert layout.n_lanes == 800
    assert layout.only_policy.tolist() == [0, 1, 2, 3, 4]
    for b in range(layout.n_blocks):
        members = layout.demon[layout.start[b] : layout.start[b + 1]]
        assert np.unique(group[members[members >= 0]] % 5).tolist() == [layout.only_policy[layout.flush_group[b]]]


def test_the_rule_capped_is_refused() -> None:
    with pytest.raises(ValueError, match="capped"):
        SpanEngine(np.zeros(1, np.int64), 3, 0.1, 0.1, LearnerConfig(trace_rule="capped"))


def test_another_number_of_features_than_in_the_first_state_is_refused() -> None:
    engine = SpanEngine(np.arange(2), 6, 0.1, 0.05)
    engine.begin(np.array([1, 3]), np.zeros(2), np.zeros(2))
    with pytest.raises(ValueError, match="tiles must be 2 as in the first state, not 3"):
        engine.begin(np.array([1, 2, 3]), np.zeros(2), np.zeros(2))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_begin_with_a_cache_line(dtype: Any) -> None:
    """Else each of a row's vectors lies across two lines: a fifth slower with 10,000 demons, measured."""
    engine = SpanEngine(np.arange(40), 30, 0.1, 0.01, LearnerConfig(dtype=dtype))
    engine.begin(np.arange(3), np.full(40, 0.9), np.full(40, 0.9))
    span = engine._span
    for array in (span.theta, span.w, span.m, span.c, span.d, span.h, span.q, span.base, span.table):
        assert array.ctypes.data % 64 == 0


def test_signals_of_another_number_of_policies_are_refused() -> None:
    """Three groups of two policies: three ratios would be written past the two that there is room for."""
    engine = SpanEngine(np.arange(3), N_FEATURES, 0.01, 0.005, policy=np.array([0, 1, 1]))
    engine.begin(np.arange(4), np.zeros(3), np.zeros(3))
    zero = np.zeros(3)
    with pytest.raises(ValueError, match=r"rho_t must have the shape \(2,\), not \(3,\)"):
        engine.learn(np.arange(4), Signals(np.ones(3), zero, zero, zero, zero))
    engine.learn(np.arange(4), Signals(np.ones(2), zero, zero, zero, zero))
