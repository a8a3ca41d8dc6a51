"""The plain engine: against the dense oracle, and the invariants that a fast layout can break."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from horde_agent.kernels.gtd_arrays import Signals
from horde_agent.learning.blocks import Layout
from horde_agent.learning.learner import GTDLambda
from hypothesis import given, settings
from hypothesis import strategies as st

from horde_agent.learning.rules import LearnerConfig
from tests.agent.shared import RandomStream, binary, learn_all, random_stream
from tests.bench.numpy_horde import FeatureMajor, LearnerMajor
from tests.oracles.gtd import DenseGTD

GROUPS = [0] * 20 + [1, 1, 2] + [3] * 9 + [4]  # two groups with a shared trace, three packed ones


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


def assert_equals_oracle(stream: RandomStream, config: LearnerConfig, **options: Any) -> None:
    """Compare everything that is learned, relative to the largest entry of each array."""
    learner, (oracle, v) = learn_all(stream, config, **options), oracle_after(stream, config)
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
@given(seed=st.integers(0, 10**6), group=st.lists(st.integers(0, 5), min_size=1, max_size=40), shared=st.integers(1, 9))
def test_any_grouping_equals_the_oracle(seed: int, group: list[int], shared: int) -> None:
    numbered = list(np.unique(group, return_inverse=True)[1])
    config = LearnerConfig(dtype="float64", mspbe_tau=20.0)
    assert_equals_oracle(random_stream(seed, 25, numbered), config, smallest_shared=shared)


def test_the_scale_of_m_is_multiplied_out_in_time() -> None:
    """At tau = 2 the common scale passes 1e-12 every 40 steps; without renormalisation m would overflow at 1,075."""
    assert_equals_oracle(random_stream(2, 1_300, [0, 0, 1]), LearnerConfig(dtype="float64", mspbe_tau=2.0))


@pytest.mark.kernels
def test_a_short_stream_equals_the_oracle() -> None:
    """Small enough to run interpreted and bounds-checked; shared and packed blocks, a tile that counts twice."""
    stream = random_stream(3, 12, GROUPS, n_features=9, n_active=3)
    stream.tiles[5, 1] = stream.tiles[5, 0]
    assert_equals_oracle(stream, LearnerConfig(dtype="float64", mspbe_tau=20.0))


def test_threads_do_not_change_a_bit() -> None:
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
    """Kernels are called by address for one type: tiles of another must not reach them as they are."""
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
    learner = GTDLambda(np.zeros(1, np.int64), 30, 0.05, 0.0, LearnerConfig(dtype="float64"))
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
        learner = GTDLambda(np.zeros(1, np.int64), 3, 0.1, 0.1, LearnerConfig(dtype="float64", w_rule=w_rule))  # type: ignore[arg-type]
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


def test_every_demon_has_a_lane_of_its_own_in_a_block_of_its_group() -> None:
    group = np.random.default_rng(0).choice(40, 700, p=np.r_[0.6, np.full(39, 0.4 / 39)])
    group = np.unique(group, return_inverse=True)[1]
    layout = Layout(group)
    assert np.unique(layout.lane).size == 700
    np.testing.assert_array_equal(layout.group[layout.lane], group)
    for b in range(layout.n_shared):
        members = layout.group[layout.start[b] : layout.start[b + 1]]
        assert np.unique(members[members >= 0]).size == 1


@pytest.mark.parametrize("kind", [LearnerMajor, FeatureMajor])
def test_the_numpy_yardsticks_learn_the_same(kind: Any) -> None:
    """What the benchmark compares with must do the same work, or its ratio means nothing."""
    stream = random_stream(9, 60, [0] * 10 + [1] * 10)
    gamma = np.array([0.5, 0.9])
    start, n = np.array([0, 10, 20]), 30
    yardstick = kind(start, n, gamma, 0.9, 0.02, 0.01)
    learner = GTDLambda(stream.group, n, 0.02, 0.01, LearnerConfig())
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
        ({"write_every": -1}, "write_every"),
        ({"lanes": 24}, "lanes"),
    ],
)
def test_a_bad_setting_is_refused_by_name(setting: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LearnerConfig(**setting)
