"""Both learning engines equal the dense oracle on random streams with every event that a stream can contain.

On a short random stream weights, estimates and predictions equal those of `DenseGTD`. The span engine's ring buffers
are so short that the stream wraps around them several times.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from horde_agent.kernels.span.arrays import NOW
from horde_agent.learning import LearnerConfig, PlainEngine, Signals, SpanEngine
from horde_agent.learning import span as span_module
from horde_agent.learning.layout import NEWCOMER, DemonMapping, rows_of
from horde_agent.saving import State
from tests.agent.shared import binary
from tests.oracles.gtd import DenseGTD

N, N_ACTIVE = 70, 5  # features in two words of bits
GAMMA, LAM = [0.0, 0.3, 0.5, 0.5], [0.0, 0.3, 0.5, 0.5]
TINY = 1e-9  # a bound that each weight passes
LEARNED = ("theta", "w", "e", "m", "s", "delta", "max_e", "gamma_t", "lam_t", "alpha", "alpha_w")
SCRATCH = {"clock", "run_time", "run_place"}  # `clock` is compared by its first two numbers


class Twins:
    """An engine and the oracle on one random stream.

    A demon asks about policy `policy[i]` with the continuation and trace decay of variant `variant[i]`, and came at
    change `born[i]`. Policies 0 and 1 have enough demons for blocks of their own, which skip steps with rho = 0;
    policies 2 and 3 share a block, and for every other seed policy 3 is on-policy.
    """

    def __init__(self, seed: int, kind: type[PlainEngine] | type[SpanEngine], w_rule: Any, batch: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.policy = np.repeat([0, 1, 2, 3], [17, 16, 3, 2])
        self.variant = rng.integers(0, 2, self.policy.size)
        self.born = np.zeros(self.policy.size, dtype=np.int64)
        self.is_aside, self.has_tiny_bound = np.zeros((2, self.policy.size), dtype=bool)
        self.n_changes = 0
        trace_rule: Any = "plain" if seed % 5 == 4 else "clipped"
        self.config = LearnerConfig(
            w_rule=w_rule, trace_rule=trace_rule, dtype="float64", mspbe_tau=float(rng.choice([2.0, 30.0]))
        )
        self.group, leader = self._groups()
        step_sizes = rng.choice([0.0, 0.01, 0.03], (2, self.policy.size, 1), p=[0.1, 0.6, 0.3])
        pace = {"batch": batch, "period": int(rng.choice([3, 5, 8])), "widest": 16, "largest_decay": 0.25}
        self.engine: Any = kind(
            self.group,
            N,
            step_sizes[0].ravel(),
            step_sizes[1].ravel(),
            self.config,
            policy=self.policy[leader],
            **(pace if kind is SpanEngine else {}),
        )
        if kind is SpanEngine:
            self.engine._n_threads = 1 + (seed == 0)
        self.oracle = self._oracle(self.policy.size)
        self.oracle.alpha, self.oracle.alpha_w = step_sizes  # type: ignore[assignment]
        self.is_followed, self.p_turn = np.ones(4, dtype=bool), np.array([0.15, 0.3, 0.3, 0.3 * (seed % 2)])
        self.of_variant = np.zeros((2, 4, 2))
        self.tiles = rng.choice(N, N_ACTIVE, replace=False)
        self._allocate()
        self.begin()

    def _oracle(self, n: int) -> DenseGTD:
        of = self.config
        oracle = DenseGTD(n, N, 0.0, 0.0, trace_rule=of.trace_rule, w_rule=of.w_rule, tau=of.mspbe_tau)
        oracle.gamma_t, oracle.lam_t = np.zeros((2, n))
        return oracle

    def _groups(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the trace group of each demon, and one demon of each group."""
        keys = np.c_[self.born, self.policy, self.variant]
        _, firsts, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        return group.ravel(), firsts

    def _roster(self, old_index: NDArray[np.int64]) -> DemonMapping:
        group, leader = self._groups()
        return DemonMapping(old_index, group, self.policy[leader], 0.02, 0.01)

    def _allocate(self) -> None:
        """Allocate the arrays of signals, which are the same objects until demons come or go."""
        group, leader = self._groups()
        n_policies, n_groups, n = int(self.policy.max()) + 1, leader.size, group.size
        self.group, self.leader = group, leader
        self.told = Signals(*map(np.zeros, (n_policies, n_groups, n_groups, n, n)))

    # ---- events ---------------------------------------------------------------------------------------------------

    def _move(self) -> None:
        """Change between none and all of the active tiles."""
        n_new = int(self.rng.choice([0, 1, 2, N_ACTIVE], p=[0.1, 0.4, 0.4, 0.1]))
        old_index = self.rng.permutation(self.tiles)[n_new:]
        self.tiles = np.r_[old_index, self.rng.choice(np.setdiff1d(np.arange(N), old_index), n_new, replace=False)]

    def begin(self) -> None:
        """Begin a stream at another state."""
        self._move()
        nothing = np.zeros(self.policy.size)
        got = self.engine.begin(self.tiles)
        want = self.oracle.begin(binary(self.tiles, N), nothing, nothing)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-11 * (1e-3 + np.abs(want).max()))

    def learn(self, *, is_last: bool = False) -> None:
        """Learn from a transition, some signals of which may not be finite; ratios are 0 in long runs."""
        rng, told = self.rng, self.told
        self.is_followed ^= rng.random(4) < self.p_turn
        self.of_variant = np.where(
            rng.random((2, 4, 2)) < 0.1, rng.choice([GAMMA, LAM], (2, 4, 2), axis=1)[0], self.of_variant
        )
        told.rho_t[:] = (rng.choice([0.3, 1.0, 1.6, 5.0], 4) * self.is_followed)[: told.rho_t.size]
        told.rho_t[3:] = told.rho_t[3:] > 0
        where = self.policy[self.leader], self.variant[self.leader]
        told.gamma_tp1[:], told.lam_tp1[:] = self.of_variant[0][where], self.of_variant[1][where]
        told.c_tp1[:] = rng.normal(size=self.policy.size)
        told.z_tp1[:] = rng.normal(size=self.policy.size) * (rng.random() < 0.3)
        for numbers in told[:5]:
            holes = rng.random(numbers.size) < 0.004
            numbers[holes] = rng.choice([np.nan, np.inf, -np.inf], holes.sum())
        self._move()
        self.engine.learn(self.tiles, told, is_last=is_last)
        each = [told.rho_t[self.policy], told.gamma_tp1[self.group], told.lam_tp1[self.group], told.c_tp1, told.z_tp1]
        each[1] = each[1] * (0.0 if is_last else 1.0)
        self.oracle.learn(binary(self.tiles, N), *(np.where(self.is_aside, 0.0, numbers) for numbers in each))

    def is_idle(self) -> bool:
        """Return whether demons have skipped every step since their weights were last written."""
        return isinstance(self.engine, SpanEngine) and bool((self.engine.arrays.n_pending == 0).any())

    def change(self) -> None:
        """Remove demons, add others, and order all anew."""
        rng, n_before, before = self.rng, self.policy.size, self.oracle
        old_index = rng.permutation(n_before)[: rng.integers(n_before // 2, n_before + 1)]
        old_index = np.sort(old_index) if rng.random() < 0.5 else old_index
        n_new = int(rng.integers(0, 12))
        self.n_changes += 1
        self.policy = np.r_[self.policy[old_index], np.repeat(rng.integers(0, 4, 2), n_new)]
        self.variant = np.r_[self.variant[old_index], rng.integers(0, 2, 2 * n_new)]
        self.born = np.r_[self.born[old_index], np.full(2 * n_new, self.n_changes)]
        self.is_aside = np.r_[self.is_aside[old_index], np.zeros(2 * n_new, dtype=bool)]
        self.has_tiny_bound = np.r_[self.has_tiny_bound[old_index], np.zeros(2 * n_new, dtype=bool)]
        self.oracle = self._oracle(self.policy.size)
        self.oracle.alpha, self.oracle.alpha_w = np.full((2, self.policy.size, 1), [[[0.02]], [[0.01]]])  # type: ignore[assignment]
        for name in LEARNED:
            getattr(self.oracle, name)[: old_index.size] = getattr(before, name)[old_index]
        self.oracle.phi = before.phi
        self.engine.rearrange(self._roster(np.r_[old_index, np.full(2 * n_new, NEWCOMER)]))
        self._allocate()

    def set_aside(self) -> None:
        """Freeze one demon at zero."""
        demon = int(self.rng.integers(self.policy.size))
        self.engine.freeze(demon)
        self.is_aside[demon] = True
        for name in ("theta", "w", "e", "m", "s", "delta"):
            getattr(self.oracle, name)[demon] = 0.0

    def reset(self) -> None:
        """Set theta; a diverged demon ignores it and stays at zero."""
        n = self.policy.size
        theta = self.rng.normal(0, 0.1, (n, N)) if self.rng.random() < 0.7 else None
        self.engine.reset_weights(theta)
        self.oracle.theta = np.zeros((n, N)) if theta is None else theta * ~self.is_aside[:, None]

    # ---- properties -----------------------------------------------------------------------------------------------

    def check(self, when: str) -> None:
        """Compare all that can be read with the oracle; assert that reading changes no bit of the engine's state."""
        engine, oracle = self.engine, self.oracle
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
            "v of one": (engine.predict_one(demon, elsewhere), oracle.theta[demon] @ binary(elsewhere, N)),
        }
        for name, (got, want) in pairs.items():
            scale = 1e-3 + np.abs(want).max(initial=0.0)
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-11 * scale, err_msg=f"{name} {when}")
        assert (engine.max_trace >= oracle.max_e * (1 - 1e-12)).all(), when
        assert_same_state(engine.state(), state, when)
        if isinstance(engine, SpanEngine):
            assert_running_sums_are_exact(engine, when)

    def find_flagged(self) -> None:
        """Read who was flagged, which is at most the demon with the tiny bound; then give that bound to another one."""
        self.engine.catch_up()
        flagged = list(self.engine.pop_flagged())
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
    span, layout, now = engine.arrays, engine.layout, int(engine._clock[NOW])
    for b in range(layout.n_blocks):
        lanes = slice(int(layout.start[b]), int(layout.start[b + 1]))
        for name, sums, time in (("theta", span.base, now), ("w", span.base_w, int(span.w_at[b]))):
            if not max(now - len(span.bits), -1) < time <= now:
                continue  # NO_TIME, or too old: the next step that needs it computes it anew
            bits = np.unpackbits(span.bits[time % len(span.bits)].view(np.uint8), bitorder="little")[:N]
            rows = rows_of(getattr(span, name), layout, b, 512).reshape(-1, lanes.stop - lanes.start)
            want = rows[:N][bits.astype(bool)].sum(axis=0)
            atol = 1e-11 * (1e-3 + np.abs(want).max())
            np.testing.assert_allclose(sums[lanes], want, rtol=0, atol=atol, err_msg=f"{name} of block {b} {when}")


SHORT = pytest.mark.kernels
LENGTHS = [pytest.param(seed, 150, marks=SHORT) for seed in range(3)] + [(seed, 400) for seed in range(3, 10)]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # interpreted, NumPy warns of inf - inf
@pytest.mark.parametrize("w_rule", ["every-step", "importance-weighted"])
@pytest.mark.parametrize(("kind", "batch"), [(SpanEngine, 1), (SpanEngine, 4), (PlainEngine, 1)])
@pytest.mark.parametrize(("seed", "n_steps"), LENGTHS)
def test_an_engine_equals_the_oracle_through_random_events(
    seed: int, n_steps: int, kind: Any, batch: int, w_rule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gaps, ends, resets, copies, demons added, removed and set aside; each event in the middle of a batch, too."""
    monkeypatch.setattr(span_module, "SMALLEST_SHARED_WORK", 0)  # so that two threads share the blocks
    twins = Twins(seed, kind, w_rule, batch)
    for t in range(n_steps):
        event = int(twins.rng.integers(60))
        match event:
            case 0:
                twins.begin()
            case 1:
                twins.learn(is_last=True)
                twins.begin()
            case 2:
                twins.change()
            case 3:
                twins.reset()
            case 4:
                twins.set_aside()
            case 5:
                twins.engine = copy.deepcopy(twins.engine)
            case 6:
                twins.find_flagged()
            case _ if event < 15 and twins.is_idle():
                twins.change()
            case _:
                twins.learn()
        if event < 7 or t % 7 == 0 or t == n_steps - 1:
            twins.check(f"after step {t} (event {event})")
