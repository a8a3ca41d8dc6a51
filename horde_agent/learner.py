"""GTDLambda: the plain engine. It owns the weights, the traces and the MSPBE estimates, and calls the kernels.

An engine answers all demons from one stream of tiles. It knows nothing of policies, sensors or names: the Horde turns
questions into numbers (`Signals`) first. Everything that enters or leaves is in the order of the demons; blocks and
lanes (see `kernels/gtd.py`) are this file's own business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numba
import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import gtd

Floats = NDArray[np.float64]
Tiles = NDArray[np.int64]
Reals = NDArray[Any]

TRACE_RULES = ("clipped", "capped", "plain")
W_RULES = ("every-step", "importance-weighted")
DTYPES = ("float32", "float64")

_WIDEST_BLOCK = 64
# A trace of its own for each lane costs less than the empty lanes of a block that fewer than eight demons share.
_SMALLEST_SHARED_GROUP = 8
# An entry of the trace below this leaves it: 1e-8 is invisible in float32 (it is a tenth of its rounding), 1e-16 is
# float64's own rounding. An active feature enters with 1.
_DROP_BELOW = {"float32": 1e-8, "float64": 1e-16}
# m is kept over a common scale that decays instead of it; far from overflow, the two are multiplied out.
_SMALLEST_SCALE = 1e-12


@dataclass(frozen=True, slots=True)
class LearnerConfig:
    """How the demons learn.

    Attributes:
        step_size: Primary step size; divided by the number of active tiles it is alpha.
        secondary_ratio: alpha_w over alpha.
        trace_rule: "clipped": lambda_{t+1} = lambda min(1, 1/rho_t). "capped": phi + gamma lambda e at most 1, entry by
            entry, before rho. "plain": the paper's pseudo-code, whose trace may have infinite variance.
        w_rule: "every-step": w -= alpha_w (phi.w) phi on every step, as in the paper's pseudo-code.
            "importance-weighted": that term times rho.
        dtype: "float32" or "float64".
        mspbe_tau: Time constant of the online MSPBE estimates, in learning steps; above 1.
        vector_mspbe: Whether the vector estimate is kept (a third number per weight).
        check_every: Every weight is held against its bound once in so many learning steps.

    Raises:
        ValueError: If a value is out of its range; the message names it.

    Source: White, Modayil & Sutton (2012), section 5: step size 0.1 over the active tiles, ratio 0.001.
    """

    step_size: float = 0.1
    secondary_ratio: float = 0.001
    trace_rule: Literal["clipped", "capped", "plain"] = "clipped"
    w_rule: Literal["every-step", "importance-weighted"] = "every-step"
    dtype: Literal["float32", "float64"] = "float32"
    mspbe_tau: float = 10_000.0
    vector_mspbe: bool = True
    check_every: int = 1_000

    def __post_init__(self) -> None:
        for name, choices in (("trace_rule", TRACE_RULES), ("w_rule", W_RULES), ("dtype", DTYPES)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, not {getattr(self, name)!r}")
        if not (np.isfinite(self.step_size) and self.step_size > 0):
            raise ValueError(f"step_size must be positive, not {self.step_size!r}")
        if not (np.isfinite(self.secondary_ratio) and self.secondary_ratio >= 0):
            raise ValueError(f"secondary_ratio must be at least 0, not {self.secondary_ratio!r}")
        if not (np.isfinite(self.mspbe_tau) and self.mspbe_tau > 1):
            raise ValueError(f"mspbe_tau must be above 1 step, not {self.mspbe_tau!r}")
        if self.check_every < 1:
            raise ValueError(f"check_every must be at least 1 step, not {self.check_every!r}")


PAPER_CONFIG = LearnerConfig()


class Signals(NamedTuple):
    """What the demons are told about one transition; the tiles are given beside it.

    Attributes:
        rho_t: pi(a_t)/b(a_t), shape (n_groups,).
        gamma_tp1: Continuation at the state reached, shape (n_groups,).
        lam_tp1: Trace decay at the state reached, before any clipping by rho, shape (n_groups,).
        c_tp1: Cumulant, shape (n_demons,).
        z_tp1: Outcome, shape (n_demons,).
    """

    rho_t: Floats
    gamma_tp1: Floats
    lam_tp1: Floats
    c_tp1: Floats
    z_tp1: Floats


class Engine(Protocol):
    """What the Horde needs of whatever learns for it; predictions are those of all demons, shape (n_demons,)."""

    def begin(self, tiles: Tiles, gamma: Floats, lam: Floats) -> Floats:
        """Start a stream at `tiles` with traces at zero, and return the predictions there."""

    def learn(self, tiles: Tiles, signals: Signals) -> Floats:
        """Learn from the transition to `tiles`, and return the new weights' predictions there."""

    def predict(self, tiles: Tiles) -> Floats:
        """Return the predictions at `tiles`; nothing changes."""


def block_width(group_sizes: NDArray[np.int64], unit: int) -> int:
    """Return the number of lanes per block that leaves fewest lanes empty; of equals, the widest.

    Args:
        group_sizes: Demons per group.
        unit: Lanes of one vector register; the width is a multiple of it.
    """

    def n_lanes(width: int) -> int:
        shared = group_sizes[group_sizes >= _SMALLEST_SHARED_GROUP]
        packed = int(group_sizes[group_sizes < _SMALLEST_SHARED_GROUP].sum())
        return width * (int((-(-shared // width)).sum()) - (-packed // width))

    return min(range(unit, _WIDEST_BLOCK + 1, unit), key=lambda width: (n_lanes(width), -width))


class Layout:
    """Where each demon sits: its block and lane, the blocks that share a trace first.

    Args:
        group: Group of each demon, shape (n_demons,), numbered from 0.
        unit: Lanes of one vector register.
        smallest_shared: Groups with fewer demons are packed together, with a trace per lane.

    Attributes:
        width, n_blocks, n_shared: Lanes per block; blocks; those of them whose lanes share one trace.
        lane: Position of each demon in the flattened (n_blocks, width) arrays, shape (n_demons,).
        demon: Demon of each lane, -1 where it is empty, shape (n_blocks * width,).
        group: Group of each lane; n_groups where it is empty, shape (n_blocks * width,).
    """

    def __init__(self, group: NDArray[np.int64], unit: int, smallest_shared: int = _SMALLEST_SHARED_GROUP) -> None:
        self.n_groups = int(group.max()) + 1
        sizes = np.bincount(group, minlength=self.n_groups)
        self.width = block_width(sizes, unit)
        blocks: list[NDArray[np.int64]] = []
        for g in np.flatnonzero(sizes >= smallest_shared):
            blocks += self._cut(np.flatnonzero(group == g))
        self.n_shared = len(blocks)
        blocks += self._cut(np.flatnonzero(sizes[group] < smallest_shared))
        self.n_blocks = len(blocks)
        self.demon = np.full(self.n_blocks * self.width, -1, dtype=np.int64)
        for b, members in enumerate(blocks):
            self.demon[b * self.width : b * self.width + members.size] = members
        taken = np.flatnonzero(self.demon >= 0)
        self.lane = np.empty(group.size, dtype=np.int64)
        self.lane[self.demon[taken]] = taken
        self.group = np.full(self.demon.size, self.n_groups, dtype=np.int64)
        self.group[taken] = group[self.demon[taken]]

    def _cut(self, members: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Cut a run of demons into pieces of at most one block."""
        return [members[i : i + self.width] for i in range(0, members.size, self.width)]


class GTDLambda:
    """GTD(lambda) for many demons that share one stream of tiles: the plain engine.

    Args:
        group: Group of each demon, shape (n_demons,), numbered from 0. The demons of a group have the same policy,
            continuation and trace decay, hence the same trace.
        n_features: Length n of the weight vectors.
        alpha, alpha_w: Primary and secondary step sizes, already divided by the number of active tiles: a number, or
            one per demon.
        config: The other rules. Its step sizes are not read here.
        smallest_shared: Groups with fewer demons get a trace for each demon. Results do not depend on it.

    Source: Maei (2011); White, Modayil & Sutton (2012). Shapes and arithmetic: `kernels/gtd.py`.
    """

    def __init__(
        self,
        group: NDArray[np.int64],
        n_features: int,
        alpha: float | Floats,
        alpha_w: float | Floats,
        config: LearnerConfig = PAPER_CONFIG,
        *,
        smallest_shared: int = _SMALLEST_SHARED_GROUP,
    ) -> None:
        self.config, self.n_features, self.n_demons = config, n_features, len(group)
        self.dtype = np.dtype(config.dtype)
        self.layout = Layout(np.asarray(group, dtype=np.int64), 64 // self.dtype.itemsize, smallest_shared)
        self._memory, self._lanes, self._scratch = self._allocate()
        self._to_lanes(self._lanes.alpha, alpha)
        self._to_lanes(self._lanes.alpha_w, alpha_w)
        self._lanes.bound.fill(np.inf)
        self._cap = np.array([1.0 if config.trace_rule == "capped" else np.inf], dtype=self.dtype)
        self._drop_below = np.array([_DROP_BELOW[config.dtype]], dtype=self.dtype)
        self._phi = np.zeros(n_features, dtype=self.dtype)
        self._tiles = np.zeros(0, dtype=np.int64)
        self._order = np.zeros(self.layout.n_blocks, dtype=np.int64)
        self._m_scale, self._next_row = 1.0, 0
        self._is_set_aside = np.zeros(self.n_demons, dtype=np.bool_)
        self._has_set_aside = False
        self.n_learned = 0

    def _allocate(self) -> tuple[gtd.Memory, gtd.Lanes, gtd.Scratch]:
        """Make the arrays, all zero: rows of weights are the bulk, `n_features * lanes * 2` numbers."""
        n, width, blocks, shared = self.n_features, self.layout.width, self.layout.n_blocks, self.layout.n_shared

        def zeros(*shape: int) -> Reals:
            return np.zeros(shape, dtype=self.dtype)

        memory = gtd.Memory(
            rows=zeros(blocks, n, 2, width),
            m=zeros(blocks, n if self.config.vector_mspbe else 0, width),
            e_shared=zeros(shared, n),
            e_packed=zeros(blocks - shared, n, width),
            live=np.zeros((blocks, n), dtype=np.int32),
            n_live=np.zeros(blocks, dtype=np.int64),
            is_live=np.zeros((blocks, n), dtype=np.uint8),
        )
        reals = {name: zeros(blocks, width) for name in gtd.Lanes._fields if name != "flags"}
        lanes = gtd.Lanes(**reals, flags=np.zeros((blocks, width), dtype=np.uint8))
        return memory, lanes, gtd.Scratch(*(zeros(blocks, width) for _ in gtd.Scratch._fields))

    def _to_lanes(self, lanes: Reals, values: float | Floats) -> None:
        """Spread one number per demon over the lanes; empty lanes keep what they had."""
        lanes.reshape(-1)[self.layout.lane] = values

    def _from_lanes(self, lanes: Reals) -> Floats:
        """Return one number per demon, float64, shape (n_demons,)."""
        return lanes.reshape(-1)[self.layout.lane].astype(np.float64)

    def _groups_to_lanes(self, lanes: Reals, values: Floats) -> None:
        """Spread one number per group over the lanes; empty lanes get 0."""
        lanes.reshape(-1)[:] = np.append(values, 0.0)[self.layout.group]

    def begin(self, tiles: Tiles, gamma: Floats, lam: Floats) -> Floats:
        """Start a stream at `tiles` with every trace at zero; weights and estimates stay.

        Args:
            tiles: Active features, shape (n_active,).
            gamma: Continuation at this state, shape (n_groups,).
            lam: Trace decay at this state, shape (n_groups,).

        Returns:
            Predictions of all demons there, float64, shape (n_demons,).
        """
        gtd.clear_all(self.layout.n_shared, self._memory)
        self._groups_to_lanes(self._lanes.gamma_t, gamma)
        self._groups_to_lanes(self._lanes.lam_t, lam)
        gtd.predict_all(self._memory.rows, tiles, self._lanes.v)
        self._tiles = tiles.copy()
        return self._from_lanes(self._lanes.v)

    def learn(self, tiles: Tiles, signals: Signals) -> Floats:
        """Learn from the transition to `tiles`.

        Returns:
            Predictions theta_{t+1}.phi_{t+1} of all demons, float64, shape (n_demons,).
        """
        lanes = self._lanes
        self._to_lanes(lanes.c_tp1, signals.c_tp1)
        self._to_lanes(lanes.z_tp1, signals.z_tp1)
        self._groups_to_lanes(lanes.rho_t, signals.rho_t)
        self._groups_to_lanes(lanes.gamma_tp1, signals.gamma_tp1)
        self._groups_to_lanes(lanes.lam_tp1, signals.lam_tp1)
        if self._has_set_aside:
            self._silence()
        rules = self._rules()
        gtd.mark(self._phi, self._tiles)
        gtd.learn_all(
            numba.get_num_threads(),
            self.layout.n_shared,
            self._memory,
            lanes,
            self._scratch,
            rules,
            self._tiles,
            tiles,
            self._phi,
            self._order,
        )
        gtd.unmark(self._phi, self._tiles)
        self._tiles = tiles.copy()
        self.n_learned += 1
        return self._from_lanes(lanes.v)

    def _rules(self) -> gtd.Rules:
        """Return this step's rules: the decayed scale of m, and the rows that are looked through for divergence."""
        tau = self.config.mspbe_tau
        self._m_scale *= 1.0 - 1.0 / tau
        if self._m_scale < _SMALLEST_SCALE:
            self._memory.m[...] *= self.dtype.type(self._m_scale)
            self._m_scale = 1.0
        first = self._next_row
        last = min(self.n_features, first + -(-self.n_features // self.config.check_every))
        self._next_row = last % self.n_features
        return gtd.Rules(
            every_step=self.config.w_rule == "every-step",
            clip_lambda=self.config.trace_rule == "clipped",
            cap=self._cap,
            drop_below=self._drop_below,
            one_over_tau=1.0 / tau,
            m_step=1.0 / (tau * self._m_scale),
            first_row=first,
            last_row=last,
        )

    def predict(self, tiles: Tiles) -> Floats:
        """Return theta.phi of all demons at `tiles`, float64, shape (n_demons,); nothing changes."""
        v = np.empty_like(self._lanes.v)
        gtd.predict_all(self._memory.rows, tiles, v)
        return self._from_lanes(v)

    def predict_one(self, demon: int, tiles: Tiles) -> float:
        """Return one demon's prediction at `tiles`."""
        b, lane = divmod(int(self.layout.lane[demon]), self.layout.width)
        return float(self._memory.rows[b, tiles, 0, lane].sum())

    # ---- demons set aside ---------------------------------------------------------------------------------------

    def newly_broken(self) -> NDArray[np.int64]:
        """Return the demons flagged since they were last asked for: not finite, or |theta| past its bound."""
        if not self._lanes.flags.any():
            return np.zeros(0, dtype=np.int64)
        broken = self._lanes.flags.reshape(-1)[self.layout.lane] != 0
        self._lanes.flags.fill(0)
        return np.flatnonzero(broken & ~self._is_set_aside)

    def set_aside(self, demon: int) -> None:
        """Freeze one demon's weights at zero for good; its siblings are not touched."""
        b, lane = divmod(int(self.layout.lane[demon]), self.layout.width)
        self._memory.rows[b, :, :, lane] = 0
        self._memory.m[b, :, lane] = 0
        if b >= self.layout.n_shared:
            self._memory.e_packed[b - self.layout.n_shared, :, lane] = 0
        for name in ("v", "s", "delta", "alpha", "alpha_w"):
            getattr(self._lanes, name)[b, lane] = 0
        self._is_set_aside[demon], self._has_set_aside = True, True
        members = self.layout.demon.reshape(-1, self.layout.width)[b]
        if b < self.layout.n_shared and self._is_set_aside[members[members >= 0]].all():
            gtd.clear_trace(b, self.layout.n_shared, self._memory)

    def _silence(self) -> None:
        """Give the demons set aside nothing to learn: c = z = 0, and rho = 0 where no living demon shares the trace."""
        width = self.layout.width
        aside = np.zeros(self.layout.demon.size, dtype=np.bool_)
        aside[self.layout.lane[self._is_set_aside]] = True
        self._lanes.c_tp1.reshape(-1)[aside] = 0
        self._lanes.z_tp1.reshape(-1)[aside] = 0
        by_block = aside.reshape(-1, width)
        empty = self.layout.demon.reshape(-1, width) < 0
        unshared = np.arange(self.layout.n_blocks)[:, None] >= self.layout.n_shared
        self._lanes.rho_t[by_block & (unshared | (by_block | empty).all(axis=1, keepdims=True))] = 0

    def set_bounds(self, bound: Floats) -> None:
        """Set the |theta| past which a demon is flagged, shape (n_demons,)."""
        self._to_lanes(self._lanes.bound, bound)

    # ---- what is known -------------------------------------------------------------------------------------------

    @property
    def td_error(self) -> Floats:
        """TD errors of the last step, shape (n_demons,)."""
        return self._from_lanes(self._lanes.delta)

    @property
    def mspbe_scalar(self) -> Floats:
        """Scalar MSPBE estimate s, signed, shape (n_demons,)."""
        return self._from_lanes(self._lanes.s)

    @property
    def max_trace(self) -> Floats:
        """Largest |e| so far, shape (n_demons,)."""
        return self._from_lanes(self._lanes.max_e)

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimate m.w, shape (n_demons,).

        Raises:
            ValueError: If the learner does not keep m.
        """
        if not self.config.vector_mspbe:
            raise ValueError("this learner keeps no vector MSPBE estimate: set vector_mspbe=True in its LearnerConfig")
        w = self._memory.rows[:, :, 1]
        estimate = np.einsum("bfl,bfl->bl", self._memory.m, w, dtype=np.float64) * self._m_scale
        return self._from_lanes(estimate)

    def weights(self) -> tuple[Reals, Reals]:
        """Return copies of theta and w, each (n_demons, n_features), in the learner's dtype."""
        theta, w = self._by_demon(self._memory.rows[:, :, 0]), self._by_demon(self._memory.rows[:, :, 1])
        return theta, w

    def mspbe_trace(self) -> Reals:
        """Return a copy of m, shape (n_demons, n_features)."""
        return np.asarray(self._by_demon(self._memory.m) * self.dtype.type(self._m_scale))

    def traces(self) -> Reals:
        """Return a copy of every demon's e, shape (n_demons, n_features)."""
        blocks, n, width = self.layout.n_blocks, self.n_features, self.layout.width
        e = np.empty((blocks, n, width), dtype=self.dtype)
        e[: self.layout.n_shared] = self._memory.e_shared[:, :, None]
        e[self.layout.n_shared :] = self._memory.e_packed
        return self._by_demon(e)

    def _by_demon(self, blocks: Reals) -> Reals:
        """Return a copy of (n_blocks, n_features, width) as (n_demons, n_features)."""
        by_lane = blocks.transpose(0, 2, 1).reshape(-1, blocks.shape[1])
        return np.ascontiguousarray(by_lane[self.layout.lane])

    def reset_weights(self) -> None:
        """Set theta to zero, for measuring how learning recovers; w, traces and estimates stay.

        Source: White, Modayil & Sutton (2012), section 6: theta := 0 after 40,000 steps.
        """
        self._memory.rows[:, :, 0] = 0
        self._lanes.v.fill(0)
