"""Allocation: the arrays of a span engine at its start, and the sizes from which they follow."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from horde_agent.kernels._jit import Constant
from horde_agent.kernels.rules import rule
from horde_agent.kernels.span.arrays import ABTD, CHUNK, CLIPPED, PLAIN, TREE_BACKUP, SpanArrays
from horde_agent.learning.engine import DROP_BELOW, LARGEST_STEP, max_finite
from horde_agent.learning.layout import LANE_UNIT, WIDEST, Layout, ShardLayout, aligned_zeros, assign_lanes, widest
from horde_agent.learning.rules import LearnerConfig
from horde_agent.types import Integers, Reals

FIELDS = SpanArrays._fields
OF_LANES = FIELDS[FIELDS.index("prediction") : FIELDS.index("w_at")]  # one number per lane
OF_LAYOUT = ("demon", "start", "flush_group", "first_block", "only_policy")
_TRACE_RULES = {"plain": PLAIN, "clipped": CLIPPED, "tree-backup": TREE_BACKUP, "abtd": ABTD}
_PERIODS = {False: 64, True: 128}  # steps between two flushes, eager and deferred
_WAIT = 3  # periods after which pending updates are written in any case
_VECTOR, _WIDE = 80, 64  # lanes of scratch; of a block from which on wide vectors pay


class Allocation:
    """Makes the arrays of a span engine.

    Args:
        demons, n_features, config, batch, period, widest_block, share: As of `SpanMemory`.
        tail: Steps of traces to store, in addition to pending ones.

    Attributes:
        layout: Lane of each demon.
        n_times: Number of steps for which the active features are stored.
        period: Steps between two flushes.
    """

    def __init__(
        self,
        demons: tuple[Integers, Integers, Integers],
        n_features: int,
        config: LearnerConfig,
        batch: int,
        period: int,
        widest_block: int,
        share: ShardLayout | None,
        tail: int,
    ) -> None:
        group, policy, _ = self._demons = demons
        self._n_features, self._config, self._dtype = n_features, config, np.dtype(config.dtype)
        self._batch, self._share, self._tail = batch, share, tail
        self._rule = rule(config.algorithm)
        self._has_w = "w" in self._rule.WEIGHTS
        most_lanes = widest_block or widest(group.size, is_deferred=batch > 1)
        self.layout = Layout(policy[group], share.seating if share else assign_lanes(group, policy, most_lanes))
        self.period = max(period or _PERIODS[batch > 1], batch)
        self.n_times = _power_of_two(tail + _WAIT * self.period + batch + 2)
        # Pending updates are written after these steps in any case; later if a group can be idle.
        may_idle = share.may_idle if share else (self.layout.only_policy >= 0).any()
        w_decays = self._has_w and config.w_rule == "every-step"  # where rho = 0
        self._places = _WAIT * self.period if may_idle and not w_decays else self.period

    def arrays(self, n_active: int, **lasting: Any) -> SpanArrays:
        """Return the arrays for `n_active` active features, with `row_of`, `feature_of` and `clock` as given."""
        of_demons = self._of_lanes() | self._history() | self._signals()
        return SpanArrays(**of_demons, **self._settings(), **self.shared(n_active), **lasting)

    def zeros(self, *shape: int) -> Reals:
        """Return zeros of the engine's dtype, aligned to a cache line."""
        return aligned_zeros(shape, self._dtype)

    def _of_lanes(self) -> dict[str, Any]:
        """Return the assignment of lanes, rows of weights, and arrays with one number per lane."""
        (group, policy, cumulant), layout, has_w = self._demons, self.layout, self._has_w
        n_lanes, of_lane = layout.n_lanes, np.append(group, -1)
        n_weights = -(-self._n_features // CHUNK) * CHUNK * n_lanes
        return {
            "policy": np.append(policy, -1)[of_lane[layout.demon]],
            "trace_group": of_lane[layout.demon],
            "cumulant": np.append(cumulant, -1)[layout.demon],
            "outcome": layout.demon.copy(),
            **{name: getattr(layout, name) for name in OF_LAYOUT},
            "theta": self.zeros(n_weights),
            "w": self.zeros(n_weights if has_w else 0),
            "m": self.zeros(n_weights if has_w and self._config.vector_mspbe else 0),
            "numbers": self.zeros(len(self._rule.numbers) * n_lanes),
            **{name: self.zeros(n_lanes) for name in OF_LANES},
            "w_left": np.ones(n_lanes, dtype=self._dtype),
            "bound": np.full(n_lanes, max_finite(self._dtype), dtype=self._dtype),
        }

    def _history(self) -> dict[str, Any]:
        """Return each demon's history, and the schedules of the flush groups."""
        layout, share, places = self.layout, self._share, self._places * self.layout.n_lanes
        n_groups, ring = layout.only_policy.size, _power_of_two(self._tail + self._places) * layout.n_lanes
        groups, n_groups_of_all = (share.groups, share.n_groups) if share else (np.arange(n_groups), n_groups)
        turns = 1 + groups * self.period // n_groups_of_all
        stored = self._rule.SPAN
        return {
            "c": self.zeros(ring),
            "factor": self.zeros(ring if {"source", "w_factor"} & set(stored) else 0),
            "d": self.zeros(places),
            "h": self.zeros(places if "h" in stored else 0),
            "q": self.zeros(places if "q" in stored else 0),
            "m_step": np.zeros(self.n_times),
            "kind": np.zeros((n_groups, self.n_times), dtype=np.uint8),
            **{name: np.zeros(n_groups, np.int64) for name in ("flushed_at", "tail_from", "n_pending")},
            "limit": (turns if self._batch == 1 else np.full(n_groups, self.period)).astype(np.int64),
            **{name: np.zeros(layout.n_blocks, dtype=np.int64) for name in ("tail_needed", "w_at")},
        }

    def _signals(self) -> dict[str, Any]:
        """Return arrays for the signals of queued steps; their last column, for empty lanes, stays 0."""
        (group, policy, cumulant), batch = self._demons, self._batch
        gamma = self.zeros(batch + 1, policy.size + 1)
        gamma[-1, :-1] = np.nan  # so that the first transition's gamma counts as changed
        return {
            "signal_rho": self.zeros(batch, int(policy.max()) + 2),
            "signal_c": self.zeros(batch, int(cumulant.max()) + 2),
            "signal_gamma": gamma,
            "signal_lam": self.zeros(batch + 1, policy.size + 1),
            "signal_z": self.zeros(batch, group.size + 1),
            "signal_interest": self.zeros(batch + 1, group.size + 1),
            "signal_b": np.zeros(batch),
            "signal_changes": np.zeros((batch, 2), dtype=np.int64),
            "predictions": np.zeros(group.size),
        }

    def _settings(self) -> dict[str, Any]:
        config, bound, drop_below = self._config, self._config.trace_bound, DROP_BELOW[self._config.dtype]
        return {
            "every_step": config.w_rule == "every-step",
            "trace_rule": _TRACE_RULES[config.trace_rule],
            "trace_bound": bound if config.trace_rule == "abtd" else 1.0 / bound,
            "rule": config.rule_parameters,
            "has_w": Constant(self._has_w),
            **{f"has_{name}": Constant(name in self._rule.SPAN) for name in ("h", "q", "source", "w_factor")},
            "has_interest": Constant(self._rule.HAS_INTEREST),
            "n_numbers": Constant(len(self._rule.NUMBERS)),
            "rests": Constant(self._rule.RESTS),
            "drop_below": drop_below if config.bounds_trace else 0.0,
            "largest_tail": self._tail,
            "one_over_tau": 1.0 / config.mspbe_tau,
            "largest_step": LARGEST_STEP[config.dtype],
            "max_finite": max_finite(self._dtype),
            "period": self.period,
            "longest_wait": self._places,
            "n_threads": 1,
            "most_lanes": Constant(LANE_UNIT if np.diff(self.layout.start).max() < _WIDE else WIDEST),
        }

    def shared(self, n_active: int) -> dict[str, Any]:
        """Return history shared by all demons, and scratch, for `n_active` active features."""
        n, batch, n_times = self._n_features, self._batch, self.n_times
        n_threads = int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
        n_kinds = 1 + self._has_w * (1 + self._config.vector_mspbe)
        return {
            "bits": np.zeros((n_times, -(-n // 64)), dtype=np.uint64),
            "active": np.zeros((batch + 1, n_active), dtype=np.int64),
            "changed": np.zeros((2, 2, n_active), dtype=np.int64),
            "n_changed": np.zeros((2, 2), dtype=np.int64),
            "overlap": self.zeros(batch + 1, n_times),
            **{f"run_{name}": np.zeros((2, n), dtype=np.int32) for name in ("row", "first", "last")},
            "run_ends": np.zeros((2, 2 * n_active * (self._tail + _WAIT * self.period + 2)), dtype=np.int32),
            "run_time": np.zeros((2, n_times + 2), dtype=np.int64),
            "run_place": np.zeros(n_times + 2, dtype=np.int32),
            "n_runs": np.zeros(2, dtype=np.int64),
            "table": self.zeros(n_threads, (n_times + 2) * n_kinds * _VECTOR),
            "foreseen": self.zeros(n_threads, 2, (batch + 1) * _VECTOR),
            "n_active": n_active,
        }


def _power_of_two(n: int) -> int:
    return 1 << max(n - 1, 1).bit_length()
