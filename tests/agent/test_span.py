"""What only the span engine does: batches, its layout in memory, long traces, float32; see test_engine_contract.py."""

from __future__ import annotations

import numpy as np
import pytest

from horde_agent.kernels.checks import TAIL_TOO_LONG
from horde_agent.learning import LearnerConfig, Signals
from horde_agent.learning.layout import Layout, assign_lanes
from horde_agent.learning.rules import LARGEST_TAIL, trace_length
from tests.agent.shared import Setup, learn_all, new_engine, random_stream

SPAN, PLAIN = Setup("span"), Setup("plain")
GROUPS = [0] * 70 + [1] * 3 + [2, 3, 4, 5, 5]
N_FEATURES, N_ACTIVE, N_NEW = 60, 9, 3


def test_a_trace_that_is_too_long_is_flagged() -> None:
    """On-policy with gamma lambda = 1 a trace never fades: it is flagged after LARGEST_TAIL steps, and not before."""
    stream = random_stream(4, LARGEST_TAIL + 80, [0, 1], N_FEATURES, N_ACTIVE, N_NEW)
    stream.rho[:], stream.gamma[:], stream.lam[:] = 1.0, 1.0, 1.0
    engine = new_engine(SPAN, stream.group, N_FEATURES, 1e-5, 1e-5, pace={"period": 16})
    engine.begin(stream.tiles[0])
    flags = []
    for t in range(len(stream.rho)):
        engine.learn(stream.tiles[t + 1], stream.signals(t))
        flags.append(engine.flags)
    first = int(np.argmax(np.array(flags) > 0))
    assert flags[first] == TAIL_TOO_LONG
    assert LARGEST_TAIL < first < LARGEST_TAIL + 20


def test_the_length_of_a_trace_follows_from_its_decay() -> None:
    """The part of a trace from before the last k steps weighs at most g^k / (1 - g)."""
    config = LearnerConfig()  # float32 drops what is below 1e-8
    k = trace_length(config, 0.9)
    assert 0.9**k / 0.1 <= 1e-8 < 0.9 ** (k - 1) / 0.1
    assert trace_length(config, 0.0) == 0
    assert trace_length(config, 1.0) > LARGEST_TAIL


def test_float32_is_as_exact_as_in_the_plain_engine() -> None:
    """Against float64: within five times the plain engine's own error."""
    stream = random_stream(9, 3_000, GROUPS, N_FEATURES, N_ACTIVE, N_NEW)
    np.maximum(stream.rho, 0.3, out=stream.rho)
    np.minimum(stream.rho, 1.6, out=stream.rho)
    rates = (N_FEATURES, 0.01, 0.005)
    exact, plain, span = (
        learn_all(new_engine(setup, stream.group, *rates, dtype=dtype), stream).weights()[0]
        for setup, dtype in ((PLAIN, "float64"), (PLAIN, "float32"), (SPAN, "float32"))
    )
    scale = np.abs(exact).max(axis=1, keepdims=True)
    errors = [np.abs((theta - exact) / scale).max(axis=1) for theta in (plain, span)]
    assert np.median(errors[1]) < 5 * np.median(errors[0])
    assert errors[1].max() < 5 * errors[0].max()


def test_max_trace_is_exact_with_a_bias_feature() -> None:
    """Feature 0 is always active, so its entry of e is the largest: the sum of all coefficients."""
    stream = random_stream(16, 300, GROUPS, N_FEATURES, N_ACTIVE, N_NEW)
    plain, span = (learn_all(new_engine(setup, stream.group, N_FEATURES), stream) for setup in (PLAIN, SPAN))
    np.testing.assert_allclose(span.max_trace, plain.max_trace, rtol=1e-12)


def test_the_demons_of_a_policy_share_blocks_of_even_width() -> None:
    """795 questions about five policies, alternating: ten blocks of 80 lanes, one policy in each."""
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


def test_rows_begin_with_a_cache_line() -> None:
    """Otherwise each vector of a row crosses two cache lines: measured a fifth slower with 10,000 demons."""
    engine = new_engine(SPAN, np.arange(40), dtype="float32")
    engine.begin(np.arange(3))
    span = engine.arrays
    for array in (span.theta, span.w, span.m, span.c, span.d, span.h, span.q, span.base, span.table):
        assert array.ctypes.data % 64 == 0


def test_a_different_number_of_tiles_is_refused() -> None:
    engine = new_engine(SPAN, np.arange(2), 6)
    engine.begin(np.array([1, 3]))
    with pytest.raises(ValueError, match=r"tiles must be 2 .* 3"):
        engine.begin(np.array([1, 2, 3]))


def test_a_different_number_of_ratios_is_refused() -> None:
    """Three groups with two policies: a third ratio would be written past the end of the array."""
    engine = new_engine(SPAN, np.arange(3), policy=np.array([0, 1, 1]))
    engine.begin(np.arange(4))
    zero = np.zeros(3)
    with pytest.raises(ValueError, match=r"rho_t .*\(2,\), not \(3,\)"):
        engine.learn(np.arange(4), Signals(np.ones(3), zero, zero, zero, zero))
    engine.learn(np.arange(4), Signals(np.ones(2), zero, zero, zero, zero))
