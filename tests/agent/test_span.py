"""What only the span engine does: its layout in memory, float32, and its replacement when a trace is too long."""

from __future__ import annotations

import ctypes
import logging
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from horde_agent.gvf import GVF, Channel
from horde_agent.horde import Horde
from horde_agent.kernels.span.arrays import CHUNK, N_ROWS
from horde_agent.learning import LearnerConfig, PlainEngine, Signals, SpanEngine, span_storage
from horde_agent.learning.rules import LARGEST_TAIL
from horde_agent.learning.span_storage import Layout, aligned_zeros, assign_lanes, prefault
from horde_agent.policies import Behaviour, ConstantAction, Uniform
from tests.agent import hordes
from tests.agent.hordes import N_ACTIONS, RandomLife, engine_of
from tests.agent.shared import Setup, learn_all, new_engine, random_stream
from tests.facts import states

SPAN = Setup("span")
PLAIN = Setup("plain")
GROUPS = [0] * 70 + [1] * 3 + [2, 3, 4, 5, 5]
N_FEATURES = 60
N_ACTIVE = 9
N_NEW = 3


def test_float32_is_as_exact_as_in_the_plain_engine() -> None:
    """Against float64: within five times the plain engine's own error."""
    stream = random_stream(9, 3_000, GROUPS, N_FEATURES, N_ACTIVE, N_NEW)
    np.maximum(stream.rho, 0.3, out=stream.rho)
    np.minimum(stream.rho, 1.6, out=stream.rho)
    rates = (N_FEATURES, 0.01, 0.005)
    exact, plain, span = (
        learn_all(new_engine(setup, stream.group, *rates, dtype=dtype), stream).rows("theta")[0]
        for setup, dtype in ((PLAIN, "float64"), (PLAIN, "float32"), (SPAN, "float32"))
    )
    scale = np.abs(exact).max(axis=1, keepdims=True)
    errors = [np.abs((theta - exact) / scale).max(axis=1) for theta in (plain, span)]
    assert np.median(errors[1]) < 5 * np.median(errors[0])
    assert errors[1].max() < 5 * errors[0].max()


def test_max_trace_is_exact_with_a_bias_feature() -> None:
    """Feature 0 is always active, so its entry of e is the largest: the sum of all coefficients."""
    stream = random_stream(16, 300, GROUPS, N_FEATURES, N_ACTIVE, N_NEW)
    # Blocks of 16 lanes, whose kernels other tests compile in float64
    plain, span = (
        learn_all(new_engine(setup, stream.group, N_FEATURES, pace={"widest": 16}), stream)
        for setup in (PLAIN, SPAN)
    )
    np.testing.assert_allclose(span.numbers("max_trace"), plain.numbers("max_trace"), rtol=1e-12)


def test_pending_updates_outlive_any_number_of_beginnings() -> None:
    """Each advances the clock, and the history is a ring of some 2,000 times: what waits is written before."""
    stream = random_stream(17, 40, GROUPS, N_FEATURES, N_ACTIVE, N_NEW)
    plain, span = (
        learn_all(new_engine(setup, stream.group, N_FEATURES, pace={"widest": 16}), stream)
        for setup in (PLAIN, SPAN)
    )
    for k in range(3_000):
        tiles = stream.tiles[k % len(stream.tiles)]
        expected = plain.begin(tiles)
        np.testing.assert_allclose(span.begin(tiles), expected, rtol=1e-9, atol=1e-12)


def test_the_demons_of_a_policy_share_blocks_of_even_width() -> None:
    """795 questions about five policies, alternating: ten blocks of 80 lanes, one policy in each."""
    group = np.arange(795) % 15
    policy = np.arange(15) % 5
    layout = Layout(policy[group], assign_lanes(group, policy, widest=128))
    assert np.unique(layout.lane).size == 795
    np.testing.assert_array_equal(layout.demon[layout.lane], np.arange(795))
    assert layout.n_blocks == 10
    assert layout.n_lanes == 800
    assert layout.only_policy.tolist() == [0, 1, 2, 3, 4]
    for b in range(layout.n_blocks):
        members = layout.demon[layout.start[b] : layout.start[b + 1]]
        assert np.unique(group[members[members >= 0]] % 5).tolist() == [
            layout.only_policy[layout.flush_group[b]]
        ]


def test_a_policy_with_many_demons_is_flushed_by_turns() -> None:
    """10,000 demons of one policy: twenty groups of one block of 512 lanes; one group if steps are queued.

    The 795 of the paper's questions, and one policy with 900 demons, keep a group per policy.
    """
    one_policy = np.zeros(1, dtype=np.int64)
    many = np.zeros(10_000, dtype=np.int64)
    eager = assign_lanes(many, one_policy, widest=512)
    lanes = np.add.reduceat(eager.widths, np.cumsum(eager.n_blocks) - eager.n_blocks)
    assert eager.n_blocks.tolist() == [1] * 20
    assert lanes.max() <= 512
    assert eager.turn.tolist() == [0] * 20
    assert assign_lanes(many, one_policy, widest=128, is_deferred=True).n_blocks.tolist() == [79]
    assert assign_lanes(many[:900], one_policy, widest=128).n_blocks.tolist() == [8]
    of_paper = assign_lanes(np.arange(795) % 15, np.arange(15) % 5, widest=128)
    assert of_paper.n_blocks.tolist() == [2] * 5
    assert of_paper.phase.tolist() == [1.0] * 5


def learned_by_turns(engine: SpanEngine, first: int, last: int) -> list[int]:
    """Learn steps [first, last) of a stream, and return how many flush groups were flushed in each."""
    n_flushed = []
    for step in range(first, last):
        rng = np.random.default_rng(step)
        tiles = rng.choice(N_FEATURES, N_ACTIVE, replace=False)
        cumulants = rng.random(engine.n_demons)
        gamma = np.array([0.8])
        signals = Signals(np.ones(1), gamma, gamma, cumulants, np.zeros(engine.n_demons))
        flushed_at = engine.arrays.flushed_at.copy()
        engine.learn(tiles, signals)
        n_flushed.append(int((engine.arrays.flushed_at != flushed_at).sum()))
    return n_flushed


def engine_of_many() -> SpanEngine:
    """Return an engine of 2,100 demons of one policy, in blocks of 16 lanes: five flush groups."""
    engine = new_engine(SPAN, np.zeros(2_100, dtype=np.int64), N_FEATURES, pace={"widest": 16})
    engine.begin(np.arange(N_ACTIVE))
    return engine


def test_no_two_turns_are_in_one_step_also_after_all_groups_were_flushed() -> None:
    """Each of five groups is flushed every 64 steps, one in a step; after a flush of all, five would be in one."""
    engine = engine_of_many()
    assert engine.layout.phase.size == 5
    n_flushed = learned_by_turns(engine, 0, 192)
    assert max(n_flushed) == 1
    assert sum(n_flushed[64:]) == 10
    engine.reset_weights()  # flushes all
    n_flushed = learned_by_turns(engine, 192, 384)
    assert max(n_flushed) == 1
    assert sum(n_flushed[64:]) == 10


def test_a_state_in_which_a_policy_was_one_flush_group_is_restored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a snapshot of an earlier version: the weights are its bits, and learning goes on but for rounding."""
    with monkeypatch.context() as patch:
        patch.setattr(span_storage, "LANES_OF_A_GROUP", 4_096)
        one_group = engine_of_many()
    assert one_group.layout.phase.size == 1
    learned_by_turns(one_group, 0, 100)
    engine = engine_of_many()
    engine.restore(one_group.state())
    np.testing.assert_array_equal(engine.rows("theta")[0], one_group.rows("theta")[0])
    n_flushed = learned_by_turns(engine, 100, 300)
    assert max(n_flushed[10:]) == 1
    learned_by_turns(one_group, 100, 300)
    np.testing.assert_allclose(
        engine.rows("theta")[0], one_group.rows("theta")[0], rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(engine.latest, one_group.latest, rtol=1e-9)


def test_rows_begin_with_a_cache_line() -> None:
    """Otherwise each vector of a row crosses two cache lines: measured a fifth slower with 10,000 demons."""
    engine = new_engine(SPAN, np.arange(40), dtype="float32")
    engine.begin(np.arange(3))
    span = engine.arrays
    for array in (
        span.theta,
        span.w,
        span.m,
        span.c,
        span.d,
        span.h,
        span.q,
        span.base,
        span.table,
    ):
        assert array.ctypes.data % 64 == 0


def test_other_numbers_of_tiles_and_ratios_are_refused() -> None:
    """Three groups with two policies: a third ratio would be written past the end of the array."""
    engine = new_engine(SPAN, np.arange(3), policy=np.array([0, 1, 1]))
    engine.begin(np.arange(4))
    zero = np.zeros(3)
    with pytest.raises(ValueError, match=r"rho_t .*\(2,\), not \(3,\)"):
        engine.learn(np.arange(4), Signals(np.ones(3), zero, zero, zero, zero))
    engine.learn(np.arange(4), Signals(np.ones(2), zero, zero, zero, zero))
    with pytest.raises(ValueError, match=r"tiles must be 4 .* 3"):
        engine.begin(np.arange(3))


# ---- memory of weights that is resident before the steps that need it ------------------------------------------------

STATM = Path("/proc/self/statm")


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    return int(STATM.read_text().split()[1]) * mmap.PAGESIZE


def share_behind(numbers: NDArray[Any]) -> float:
    """Return the share of an array's pages that are resident."""
    first = numbers.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
    n_bytes = numbers.ctypes.data + numbers.nbytes - first
    pages = (ctypes.c_ubyte * -(-n_bytes // mmap.PAGESIZE))()
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(first), ctypes.c_size_t(n_bytes), pages) == 0
    return float(np.mean(np.frombuffer(pages, np.uint8) & 1))


@pytest.mark.skipif(not STATM.exists(), reason="needs /proc")
@pytest.mark.parametrize(("engine", "n_rows"), [(SpanEngine, 4 * CHUNK), (PlainEngine, 10_000)])
def test_the_first_rows_of_weights_are_resident(engine: Any, n_rows: int) -> None:
    """Otherwise a step waits for memory, 0.4 s with 50,000 demons. The span engine pre-faults the first rows only."""
    n_demons = 800
    n_features = 10_000
    resident_before = resident()
    built_engine = engine(
        np.arange(n_demons), n_features, 0.1, 0.001, LearnerConfig.paper(vector_mspbe=False)
    )
    grown = resident() - resident_before
    if engine is SpanEngine:
        for weights in (built_engine.arrays.theta, built_engine.arrays.w):
            assert share_behind(weights.ravel()[: n_demons * n_rows]) == 1.0
        assert grown < 2 * 4 * n_demons * n_features
    else:  # w and e, one array that is so large that it cannot lie in memory that was freed
        assert grown > 0.95 * 2 * 4 * n_demons * n_features
    assert built_engine.n_demons == n_demons


@pytest.mark.parametrize(("n_parts", "waits"), [(1, False), (4, False), (64, True)])
def test_rows_are_resident_before_their_features_are_first_active(
    monkeypatch: pytest.MonkeyPatch, n_parts: int, waits: bool
) -> None:
    """A chunk of rows is used up in eight steps: pre-faulting it in four parts is in time, in 64 it is not."""
    n_features = 8 * CHUNK
    n_active = CHUNK // 2
    n_demons = 16
    waited = False
    engine = SpanEngine(
        np.arange(n_demons), n_features, 0.1, 0.001, LearnerConfig.paper(vector_mspbe=False)
    )
    monkeypatch.setattr(span_storage, "PREFAULT_STEPS", n_parts)
    monkeypatch.setattr(span_storage, "LEAST_TOUCHED", 1)
    assert engine.memory.n_ready == 4 * CHUNK
    zero = np.zeros(n_demons)
    few = np.arange(n_active)
    engine.begin(few)
    for _ in range(60):
        waited |= bool(
            engine.memory.n_ready < min(n_features, engine.memory.clock[N_ROWS] + n_active)
        )
        few = few + CHUNK // 8
        engine.learn(few % n_features, Signals(zero, zero, zero, zero, zero))
        assert engine.memory.n_ready >= engine.memory.clock[N_ROWS]
    assert engine.memory.clock[N_ROWS] == n_features <= engine.memory.n_ready
    assert waited == waits


def test_pre_faulting_changes_no_number() -> None:
    """Not even the bits of -0.0 and NaN."""
    rows = aligned_zeros((40_000,), np.dtype("float32"))
    rows[:] = np.random.default_rng(0).normal(size=rows.size)
    rows[::1024] = -0.0
    rows[::512] = np.nan
    content = rows.tobytes()
    prefault(rows, rows[:0], rows[5:6], n_threads=2)
    assert rows.tobytes() == content


# ---- a trace that is longer than the span engine supports ------------------------------------------------------------


def always(observation: np.ndarray, tiles: np.ndarray) -> float:
    """Return a constant continuation that is a function."""
    return 1.0


def wild(observation: np.ndarray, tiles: np.ndarray) -> float:
    return 1e200 if observation[3] == 300 else 0.5


def questions(gamma: Any = always, lam: Any = 1.0) -> list[GVF]:
    """Return a question with a trace that never fades, and others: off-policy, diverging, with an outcome."""
    off = ConstantAction(1, N_ACTIONS)
    on = Behaviour()
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
    pairs = [
        (h.weights()[0], h.weights()[1], h.predictions, h.td_error, h.mspbe_scalar)
        for h in (one, other)
    ]
    if one.config.vector_mspbe:
        pairs = [
            (*numbers, h.mspbe_vector()) for numbers, h in zip(pairs, (one, other), strict=True)
        ]
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
    horde = make(questions(), mode, **rules)
    plain = make(questions(), engine="plain", **rules)
    assert isinstance(engine_of(horde), SpanEngine)
    lives = RandomLife(horde, plain)
    with caplog.at_level(logging.WARNING):
        lives.run(LARGEST_TAIL - 50)
        assert_same(horde, plain)
        assert isinstance(engine_of(horde), SpanEngine)
        assert caplog.text == ""
        lives.run(250)
    assert isinstance(engine_of(horde), PlainEngine)
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
        horde = make(questions(), "deferred")
        plain = make(questions(), engine="plain")
        lives = RandomLife(horde, plain)
        lives.run(LARGEST_TAIL + 3)
        for each in (horde, plain):
            ask(each)
        lives.run(130)
        assert isinstance(engine_of(horde), PlainEngine)
        assert_same(horde, plain)


def test_known_long_traces_use_the_plain_engine_from_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At gamma lambda = .99 what lies 1,000 steps back still weighs 4e-5, and in float32 1e-8 is visible next to 1."""
    with caplog.at_level(logging.WARNING):
        horde = make(questions(0.99, 1.0), dtype="float32")
    assert isinstance(engine_of(horde), PlainEngine)
    assert states(caplog.text, "gamma lambda = 0.99", "2,292 steps")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        asked_for = make(questions(0.99, 1.0), engine="plain")
        short = make(questions(0.95, 1.0))
    assert caplog.text == ""
    assert isinstance(engine_of(asked_for), PlainEngine)
    assert isinstance(engine_of(short), SpanEngine)
