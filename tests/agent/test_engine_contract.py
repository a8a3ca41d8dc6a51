"""Contract of the learning engines: on any stream they learn what the dense oracle of their update rule learns.

Every engine in SETUPS passes every test here. To add an update rule, give its oracle in ORACLES and its engines in
SETUPS; what the oracle learns beyond LEARNED must be added there.
"""

from __future__ import annotations

import copy
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from horde_agent.kernels.checks import TAIL_TOO_LONG
from horde_agent.kernels.span.arrays import NOW
from horde_agent.learning import PlainEngine, Signals, SpanEngine
from horde_agent.learning import plain as plain_module
from horde_agent.learning import span_storage as span_module
from horde_agent.learning.engine import NEWCOMER, DemonMapping
from horde_agent.learning.span_storage import rows_of
from horde_agent.saving import State
from tests.agent.shared import Setup, binary, learn_all, new_engine, random_stream
from tests.oracles.gtd import DenseGTD

ORACLES: dict[str, Any] = {"gtd": DenseGTD}
SETUPS = {
    "span-eager": Setup("span", 1),
    "span-deferred": Setup("span", 4),
    "plain": Setup("plain"),
}
IN_ALL = pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS.keys())
W_RULES = pytest.mark.parametrize("w_rule", ["every-step", "importance-weighted"])
GROUPS = [0] * 20 + [1, 1, 2] + [3] * 9 + [4]

# features in two words of bits
N = 70
N_ACTIVE = 5
TINY = 1e-9  # a bound that each weight passes
OF_STREAM = ("e", "gamma_t", "lam_t")  # what the oracle learns in each stream, besides phi
LEARNED = ("theta", "w", "e", "m", "s", "delta", "max_e", "gamma_t", "lam_t", "alpha", "alpha_w")
SCRATCH = {"clock", "run_time", "run_place"}  # `clock` is compared by its first two numbers


class Trial:
    """An engine and its oracle on one random stream.

    Demon i asks about policy `policy[i]` with the continuation and trace decay of variant `variant[i]`, and was added
    at change `born[i]`. Policies 0 and 1 have enough demons for blocks of their own, which skip steps with rho = 0;
    policies 2 and 3 share a block, and for every other seed policy 3 is on-policy. The span engine's ring buffers are
    so short that the stream wraps around them several times.

    Args:
        setup: The engine.
        seed: Seed of the stream and of the events.
        gamma, lam: Continuations and trace decays to choose from.
        p_turn: Probability per step that a policy's ratios change between 0 and `rho`, by policy.
        rho: Ratios to choose from.
        alpha: The step size of all demons; None for several, some of them 0.
        rules: Settings of LearnerConfig.
    """

    def __init__(
        self,
        setup: Setup,
        seed: int,
        *,
        gamma: tuple[float, ...] = (0.0, 0.3, 0.5, 0.5),
        lam: tuple[float, ...] = (0.0, 0.3, 0.5, 0.5),
        p_turn: tuple[float, ...] | None = None,
        rho: tuple[float, ...] = (0.3, 1.0, 1.6, 5.0),
        alpha: float | None = None,
        **rules: Any,
    ) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.gamma = gamma
        self.lam = lam
        self.rho = rho
        self.policy = np.repeat([0, 1, 2, 3], [17, 16, 3, 2])
        self.variant = rng.integers(0, 2, self.policy.size)
        self.born = np.zeros(self.policy.size, dtype=np.int64)
        self.is_aside, self.has_tiny_bound = np.zeros((2, self.policy.size), dtype=bool)
        self.n_changes = 0
        self.group, self.leader = self._groups()
        alphas = rng.choice([0.0, 0.01, 0.03], (2, self.policy.size, 1), p=[0.1, 0.6, 0.3])
        self.alpha = alphas if alpha is None else np.full_like(alphas, alpha)
        pace = {
            "period": int(rng.choice([3, 5, 8])),
            "widest": 16,
            "largest_decay": max(gamma) * max(lam),
        }
        steps = (self.alpha[0].ravel(), self.alpha[1].ravel())
        policy = self.policy[self.leader]
        self.engine = new_engine(setup, self.group, N, *steps, policy=policy, pace=pace, **rules)
        if isinstance(self.engine, SpanEngine):
            self.engine.memory.n_threads = 1 + (seed == 0)
        self.oracle = self._oracle(self.policy.size)
        self.oracle.alpha, self.oracle.alpha_w = self.alpha
        self.is_followed = np.ones(4, dtype=bool)
        self.p_turn = p_turn or (0.15, 0.3, 0.3, 0.3 * (seed % 2))
        self.of_variant = np.stack([rng.choice(choices, (4, 2)) for choices in (gamma, lam)])
        self.tiles = rng.choice(N, N_ACTIVE, replace=False)
        self._allocate()
        # tiles and arrays of the other streams
        self.stream = 0
        self.others = dict[int, tuple[Any, dict[str, Any]]]()
        self.begin()

    def _oracle(self, n: int) -> Any:
        config = self.engine.config
        oracle = ORACLES[config.algorithm](
            n, N, 0.0, 0.0, trace_rule=config.trace_rule, w_rule=config.w_rule, tau=config.mspbe_tau
        )
        oracle.gamma_t, oracle.lam_t = np.zeros((2, n))
        return oracle

    def _groups(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the trace group of each demon, and one demon of each group."""
        keys = np.c_[self.born, self.policy, self.variant]
        _, firsts, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        return group.ravel(), firsts

    def _allocate(self) -> None:
        """Allocate the signals, which stay the same arrays until demons are added or removed."""
        n_policies = int(self.policy.max()) + 1
        n_groups = self.leader.size
        n = self.policy.size
        self.signals = Signals(
            *map(np.zeros, (n_policies, n_groups, n_groups, n, n)), has_rho=np.ones(n_groups, bool)
        )

    # ---- events ---------------------------------------------------------------------------------------------------

    def _move(self) -> None:
        """Change between none and all of the active tiles."""
        n_new = int(self.rng.choice([0, 1, 2, N_ACTIVE], p=[0.1, 0.4, 0.4, 0.1]))
        old_tiles = self.rng.permutation(self.tiles)[n_new:]
        self.tiles = np.r_[
            old_tiles, self.rng.choice(np.setdiff1d(np.arange(N), old_tiles), n_new, replace=False)
        ]

    def begin(self) -> None:
        """Begin a stream at another state."""
        self._move()
        nothing = np.zeros(self.policy.size)
        predictions = self.engine.begin(self.tiles)
        want = self.oracle.begin(binary(self.tiles, N), nothing, nothing)
        np.testing.assert_allclose(
            predictions, want, rtol=0, atol=1e-11 * (1e-3 + np.abs(want).max())
        )

    def learn(self, *, is_last: bool = False) -> None:
        """Learn from a transition; a few signals are not finite, and ratios are 0 for several steps in a row."""
        rng = self.rng
        signals = self.signals
        self.is_followed ^= rng.random(4) < self.p_turn
        drawn = np.stack([rng.choice(choices, (4, 2)) for choices in (self.gamma, self.lam)])
        self.of_variant = np.where(rng.random((2, 4, 2)) < 0.1, drawn, self.of_variant)
        signals.rho_t[:] = (rng.choice(self.rho, 4) * self.is_followed)[: signals.rho_t.size]
        signals.rho_t[3:] = signals.rho_t[3:] > 0
        where = self.policy[self.leader], self.variant[self.leader]
        signals.gamma_tp1[:] = self.of_variant[0][where]
        signals.lam_tp1[:] = self.of_variant[1][where]
        signals.c_tp1[:] = rng.normal(size=self.policy.size)
        signals.z_tp1[:] = rng.normal(size=self.policy.size) * (rng.random() < 0.3)
        for values in signals[:5]:
            holes = rng.random(values.size) < 0.004
            values[holes] = rng.choice([np.nan, np.inf, -np.inf], holes.sum())
        rho = signals.rho_t.copy()  # the oracle's have NaN
        has_ratio = np.isfinite(rho)
        signals.rho_t[~has_ratio] = 0.0
        signals.has_rho[:] = has_ratio[self.policy[self.leader]]
        self._move()
        self.engine.learn(self.tiles, signals, is_last=is_last)
        gamma = signals.gamma_tp1[self.group] * (0.0 if is_last else 1.0)
        signals_of_demons = (
            rho[self.policy],
            gamma,
            signals.lam_tp1[self.group],
            signals.c_tp1,
            signals.z_tp1,
        )
        self.oracle.learn(
            binary(self.tiles, N),
            *(np.where(self.is_aside, 0.0, values) for values in signals_of_demons),
        )

    @property
    def is_idle(self) -> bool:
        """True if demons have skipped every step since their weights were last written."""
        return isinstance(self.engine, SpanEngine) and bool(
            (self.engine.arrays.n_pending == 0).any()
        )

    def change(self) -> None:
        """Remove demons, add others, and reorder them."""
        rng = self.rng
        n_before = self.policy.size
        old_oracle = self.oracle
        old_index = rng.permutation(n_before)[: rng.integers(n_before // 2, n_before + 1)]
        old_index = np.sort(old_index) if rng.random() < 0.5 else old_index
        n_new = int(rng.integers(0, 12))
        self.n_changes += 1
        self.policy = np.r_[self.policy[old_index], np.repeat(rng.integers(0, 4, 2), n_new)]
        self.variant = np.r_[self.variant[old_index], rng.integers(0, 2, 2 * n_new)]
        self.born = np.r_[self.born[old_index], np.full(2 * n_new, self.n_changes)]
        self.is_aside = np.r_[self.is_aside[old_index], np.zeros(2 * n_new, dtype=bool)]
        self.has_tiny_bound = np.r_[self.has_tiny_bound[old_index], np.zeros(2 * n_new, dtype=bool)]
        self.oracle, alpha = self._oracle(self.policy.size), float(self.alpha.max())
        self.oracle.alpha, self.oracle.alpha_w = np.full((2, self.policy.size, 1), alpha)
        for name in LEARNED:
            getattr(self.oracle, name)[: old_index.size] = getattr(old_oracle, name)[old_index]
        self.oracle.phi = old_oracle.phi
        for _, arrays in self.others.values():
            for name in OF_STREAM:
                was = arrays[name]
                arrays[name] = np.zeros_like(getattr(self.oracle, name))
                arrays[name][: old_index.size] = was[old_index]
        self.group, self.leader = self._groups()
        index = np.r_[old_index, np.full(2 * n_new, NEWCOMER)]
        self.engine.rearrange(
            DemonMapping(index, self.group, self.policy[self.leader], alpha, alpha)
        )
        self._allocate()

    def freeze(self) -> None:
        demon = int(self.rng.integers(self.policy.size))
        self.engine.mark_diverged(demon)
        self.is_aside[demon] = True
        for name in ("theta", "w", "e", "m", "s", "delta"):
            getattr(self.oracle, name)[demon] = 0.0
        for _, arrays in self.others.values():
            arrays["e"][demon] = 0.0

    def select(self, stream: int) -> None:
        """Select another stream, which begins at its first selection."""
        oracle = self.oracle
        self.others[self.stream] = (
            self.tiles,
            {name: getattr(oracle, name) for name in (*OF_STREAM, "phi")},
        )
        self.stream = stream
        self.engine.select_stream(stream)
        if stream in self.others:
            self.tiles, arrays = self.others.pop(stream)
            vars(oracle).update(arrays)
        else:
            oracle.e = np.zeros_like(oracle.e)
            self.begin()

    def reset(self) -> None:
        """Set theta; a frozen demon ignores it and stays at zero."""
        n = self.policy.size
        theta = self.rng.normal(0, 0.1, (n, N)) if self.rng.random() < 0.7 else None
        self.engine.reset_weights(theta)
        self.oracle.theta = np.zeros((n, N)) if theta is None else theta * ~self.is_aside[:, None]

    # ---- properties -----------------------------------------------------------------------------------------------

    def check(self, when: str) -> None:
        """Compare everything readable with the oracle, and assert that reading changes no bit of the engine's state."""
        engine = self.engine
        oracle = self.oracle
        engine.catch_up()
        state = engine.state()
        theta, w = engine.weights()
        elsewhere = self.rng.choice(N, N_ACTIVE, replace=False)
        demon = int(self.rng.integers(self.policy.size))
        pairs = {
            "theta": (theta, oracle.theta),
            "w": (w, oracle.w),
            "m": (engine.mspbe_trace(), oracle.m),
            "m.w": (engine.mspbe_vector(), (oracle.m * oracle.w).sum(axis=1)),
            "s": (engine.mspbe_scalar, oracle.s),
            "delta": (engine.td_error, oracle.delta),
            "v": (engine.latest, oracle.theta @ oracle.phi),
            "v elsewhere": (engine.predict(elsewhere), oracle.theta @ binary(elsewhere, N)),
            "v of one": (
                engine.predict_one(demon, elsewhere),
                oracle.theta[demon] @ binary(elsewhere, N),
            ),
        }
        for name, (got, want) in pairs.items():
            scale = 1e-3 + np.abs(want).max(initial=0.0)
            np.testing.assert_allclose(
                got, want, rtol=0, atol=1e-11 * scale, err_msg=f"{name} {when}"
            )
        assert (engine.max_trace >= oracle.max_e * (1 - 1e-12)).all(), when
        if isinstance(engine, PlainEngine):  # the span engine has an upper bound
            np.testing.assert_allclose(engine.max_trace, oracle.max_e, rtol=1e-12, err_msg=when)
        assert_same_state(engine.state(), state, when)
        if isinstance(engine, SpanEngine):
            assert_running_sums_are_exact(engine, when)

    def check_flags(self) -> None:
        """Assert that at most the demon with the tiny bound is flagged; then give that bound to another one."""
        self.engine.catch_up()
        flagged = list(self.engine.pop_diverged())
        assert self.has_tiny_bound[flagged].all()
        self.has_tiny_bound = np.arange(self.policy.size) == self.rng.integers(self.policy.size)
        self.engine.set_bounds(np.where(self.has_tiny_bound, TINY, 1e9))


def assert_same_state(now: State, before: State, when: str) -> None:
    """Assert that two states of an engine are the same to the bit, except scratch arrays."""
    assert now.keys() == before.keys()
    for name in now.keys() - SCRATCH:
        np.testing.assert_array_equal(now[name], before[name], err_msg=f"{name} {when}")
    if "clock" in now:
        np.testing.assert_array_equal(now["clock"][:2], before["clock"][:2], err_msg=when)


def assert_running_sums_are_exact(engine: SpanEngine, when: str) -> None:
    """Assert that `base` and `base_w` are theta.phi now and w.phi at `w_at`, of the weights as last written."""
    span = engine.arrays
    layout = engine.layout
    step = int(engine.memory.clock[NOW])
    for b in range(layout.n_blocks):
        lanes = slice(int(layout.start[b]), int(layout.start[b + 1]))
        for name, sums, time in (("theta", span.base, step), ("w", span.base_w, int(span.w_at[b]))):
            if not max(step - len(span.bits), -1) < time <= step:
                continue  # NO_TIME, or too old: the next step that needs it computes it
            bits = np.unpackbits(
                span.bits[time % len(span.bits)].view(np.uint8), bitorder="little"
            )[:N]
            rows = rows_of(getattr(span, name), layout, b, 512).reshape(
                -1, lanes.stop - lanes.start
            )
            want = rows[:N][bits.astype(bool)].sum(axis=0)
            atol = 1e-11 * (1e-3 + np.abs(want).max())
            np.testing.assert_allclose(
                sums[lanes], want, rtol=0, atol=atol, err_msg=f"{name} of block {b} {when}"
            )


# ---- against the oracle ---------------------------------------------------------------------------------------------

SHORT = pytest.mark.kernels
HALF = 2 if numba.config.DISABLE_JIT else 1  # type: ignore[attr-defined]  # interpreted, a step takes 100 times as long
LENGTHS = [pytest.param(0, 150 // HALF, marks=SHORT), (1, 150), (2, 150), (3, 400), (9, 1_100)]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # interpreted, NumPy warns of inf - inf
@IN_ALL
@W_RULES
@pytest.mark.parametrize(("seed", "n_steps"), LENGTHS)
def test_an_engine_equals_the_oracle_through_random_events(
    setup: Setup, w_rule: str, seed: int, n_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gaps, ends, resets, copies, demons added, removed and frozen; each event also in the middle of a batch.

    At tau = 2 the MSPBE trace m halves on each step: without a change of its scale it would overflow after 1,075 steps.
    """
    if seed == 0:  # two threads share the demons
        monkeypatch.setattr(span_module, "SMALLEST_SHARED_WORK", 0)
        monkeypatch.setattr(plain_module, "SMALLEST_SHARED_WORK", 0)
    trace_rule = {3: "capped" if setup.engine == "plain" else "clipped", 4: "plain"}.get(
        seed % 5, "clipped"
    )
    trial = Trial(
        setup, seed, w_rule=w_rule, trace_rule=trace_rule, mspbe_tau=2.0 if seed % 2 else 30.0
    )
    for t in range(n_steps):
        event = int(trial.rng.integers(60))
        match event:
            case 0:
                trial.begin()
            case 1:
                trial.learn(is_last=True)
                trial.begin()
            case 2:
                trial.change()
            case 3:
                trial.reset()
            case 4:
                trial.freeze()
            case 5:
                trial.engine = copy.deepcopy(trial.engine)
            case 6:
                trial.check_flags()
            case _ if event < 15 and trial.is_idle:
                trial.change()
            case _:
                trial.learn()
        if event < 7 or t % 7 == 0 or t == n_steps - 1:
            trial.check(f"after step {t} (event {event})")


@IN_ALL
@pytest.mark.parametrize("trace_rule", ["clipped", "plain"])
def test_long_traces_are_exact(setup: Setup, trace_rule: str) -> None:
    """On-policy with gamma lambda up to 0.931: traces of some 500 steps, through gaps and demons added and removed.

    Under "plain" nothing is dropped; a ratio of 0 every now and then ends the traces.
    """
    gamma = (0.0, 0.8, 0.9, 0.95)
    p_turn = (0.0 if trace_rule == "clipped" else 1 / 200,) * 4
    trial = Trial(
        setup,
        4,
        gamma=gamma,
        lam=(0.98,),
        p_turn=p_turn,
        rho=(1.0,),
        alpha=1e-4,
        trace_rule=trace_rule,
    )
    for t in range(1_200):
        trial.learn()
        if t in (750, 757):
            trial.begin()
        if t % 300 == 299:
            trial.check(f"before the change after step {t}")
            trial.change()
        if t % 50 == 0:
            trial.check(f"after step {t}")
    assert not trial.engine.flags & TAIL_TOO_LONG


@pytest.mark.kernels
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # interpreted, NumPy warns of inf - inf
@IN_ALL
@pytest.mark.parametrize("n_learned", [0, 3])
def test_a_stream_may_begin_again_and_again(setup: Setup, n_learned: int) -> None:
    """More often than the span engine's ring has times, with and without pending steps: a robot that is carried."""
    trial = Trial(setup, 1)
    for _ in range(3):
        for _ in range(80):
            trial.begin()
        if isinstance(trial.engine, SpanEngine):
            assert trial.engine.memory.allocation.n_times < 80
        for _ in range(n_learned):
            trial.learn()
    trial.check("at the end")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # interpreted, NumPy warns of inf - inf
@IN_ALL
@W_RULES
@pytest.mark.parametrize(("seed", "n_turns"), [(0, 60), pytest.param(1, 30 // HALF, marks=SHORT)])
def test_streams_have_traces_of_their_own_and_share_the_weights(
    setup: Setup, w_rule: str, seed: int, n_turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four streams in turns of up to nine steps, each transition an update of the weights left by the one before it."""
    if seed == 0:
        monkeypatch.setattr(span_module, "SMALLEST_SHARED_WORK", 0)
    rules: dict[str, Any] = {"w_rule": w_rule, "trace_rule": ("clipped", "plain")[seed % 2]}
    trial = Trial(setup, seed, gamma=(0.5, 0.9), lam=(0.5, 0.9), **rules)
    for turn in range(n_turns):
        trial.select((trial.stream + 1 + turn % 3) % 4)
        trial.check(f"at the beginning of turn {turn}")
        for _ in range(trial.rng.integers(9)):
            match int(trial.rng.integers(20)):
                case 0:
                    trial.begin()
                case 1:
                    trial.change()
                case 2:
                    trial.reset()
                case 3:
                    trial.freeze()
                case 4:
                    trial.engine = copy.deepcopy(trial.engine)
                case _:
                    trial.learn()
        trial.check(f"in turn {turn}")
    assert len(trial.others) == 3


# ---- invariants -----------------------------------------------------------------------------------------------------


@IN_ALL
def test_permuting_demons_changes_nothing(setup: Setup) -> None:
    stream = random_stream(5, 80, GROUPS)
    order = np.random.default_rng(0).permutation(len(GROUPS))
    c, z = (np.ascontiguousarray(numbers[:, order]) for numbers in (stream.c, stream.z))
    permuted = stream._replace(group=stream.group[order], c=c, z=z)
    engines = [
        learn_all(new_engine(setup, s.group, dtype="float32"), s) for s in (stream, permuted)
    ]
    for want, got in zip(*(engine.weights() for engine in engines), strict=True):
        np.testing.assert_array_equal(got, want[order])


@IN_ALL
def test_threads_do_not_change_a_bit(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("one core only")
    monkeypatch.setattr(
        span_module, "SMALLEST_SHARED_WORK", 0
    )  # else one thread does so little alone
    stream = random_stream(10, 100, list(range(40)) * 15, n_new=3)
    results = []
    n_threads_before = numba.get_num_threads()
    dtype = (
        "float32" if setup.engine == "span" else "float64"
    )  # of which other tests compile the kernels
    for n_threads in (1, 2):
        monkeypatch.setattr(plain_module, "SMALLEST_SHARED_WORK", 10**9 if n_threads == 1 else 0)
        numba.set_num_threads(n_threads)
        engine = new_engine(setup, stream.group, dtype=dtype, pace={"period": 8})
        if isinstance(engine, SpanEngine):
            engine.memory.n_threads = n_threads
        learn_all(engine, stream)
        results.append((*engine.weights(), engine.mspbe_vector(), engine.mspbe_scalar))
        numba.set_num_threads(n_threads_before)
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)


@IN_ALL
def test_an_engine_answers_before_its_first_state(setup: Setup) -> None:
    engine = new_engine(setup, np.arange(3))
    engine.reset_weights(np.ones((3, 30)))
    np.testing.assert_array_equal(engine.predict(np.arange(4)), 4.0)
    np.testing.assert_array_equal(engine.weights()[0], 1.0)
    np.testing.assert_array_equal(engine.mspbe_vector(), 0.0)


@IN_ALL
def test_an_engine_refuses_to_learn_from_a_stream_that_has_not_begun(setup: Setup) -> None:
    """Neither at first nor in another stream; the refused steps leave no trace in what it learns afterwards."""
    stream = random_stream(34, 30, [0] * 9 + [1])
    engine = new_engine(setup, stream.group)
    for number in (0, 1):
        engine.select_stream(number)
        for _ in range(3):
            with pytest.raises(RuntimeError, match=r"no stream .* call begin\(tiles\) first"):
                engine.learn(stream.tiles[1], stream.signals(0))
    engine.select_stream(0)
    learn_all(engine, stream)
    engine.select_stream(1)
    with pytest.raises(RuntimeError, match="no stream"):
        engine.learn(stream.tiles[1], stream.signals(0))
    expected = learn_all(new_engine(setup, stream.group), stream)
    for weights, expected_weights in zip(engine.weights(), expected.weights(), strict=True):
        np.testing.assert_array_equal(weights, expected_weights)


@IN_ALL
def test_a_signal_that_the_dtype_cannot_hold_is_skipped_as_nan_is(setup: Setup) -> None:
    """The Horde freezes such a demon; an engine learns nothing from the step."""
    stream = random_stream(34, 30, [0] * 9 + [1])
    weights = []
    for bad in (np.nan, 1e300):
        stream.c[10, [2, 9]] = bad
        engine = learn_all(new_engine(setup, stream.group, dtype="float32"), stream)
        assert not engine.pop_diverged()
        weights.append(engine.weights()[0])
    np.testing.assert_array_equal(*weights)
