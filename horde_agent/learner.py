"""GTDLambda: the plain engine. It owns the weights, the traces and the MSPBE estimates, and calls the kernels.

An engine answers all demons from one stream of tiles. It knows nothing of policies, sensors or names: the Horde turns
questions into numbers (`Signals`) first. Everything that enters or leaves is in the order of the demons; lanes and
blocks (see `kernels/gtd.py`) are this file's own business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numba
import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import bounds, checks, dropped, gtd
from horde_agent.kernels.entry import Holder, entry_of
from horde_agent.kernels.gtd import Signals
from horde_agent.kernels.held import hold
from horde_agent.kernels.span import SOMEBODY_IS_SICK
from horde_agent.roster import Roster
from horde_agent.telling import Telling

Floats = NDArray[np.float64]
Tiles = NDArray[np.int64]
Reals = NDArray[Any]

TRACE_RULES = ("clipped", "capped", "plain")
W_RULES = ("every-step", "importance-weighted")
DTYPES = ("float32", "float64")
ENGINES = ("span", "plain")

# Lanes come in multiples of a cache line of float32; a block's live rows (some 1,400 of a robot's features) should
# stay in a core's own cache.
_LANE_UNIT = 16
_SMALLEST_SHARED_WORK = 50_000  # weights read per step, below which one thread does it all
_WIDEST_BLOCK = 256
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
        rupee_beta0: Step size of RUPEE's trace, in (0, 1), such as `measures.rupee_beta0` gives it; 0: RUPEE is not
            kept. Keeping it costs as much again as learning.
        check_every: In the plain engine, every weight is held against its bound once in so many learning steps; in the
            other whenever it is written.
        write_every: Steps K between two writings of the fast engine; 0: 64, or 128 where it takes steps in batches.
        lanes: Most demons that the fast engine takes through a step together, a multiple of 16; 0: 128, 512 of 8,192
            demons and more, or 64 in batches. Results depend on both by rounding alone.
        engine: "span", the fast one (`span.SpanGTD`), or "plain", the reference. Under the trace rule "capped" it is
            the plain one in any case.

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
    rupee_beta0: float = 0.0
    check_every: int = 1_000
    write_every: int = 0
    lanes: int = 0
    engine: Literal["span", "plain"] = "span"

    def __post_init__(self) -> None:
        for name, choices in (("trace_rule", TRACE_RULES), ("w_rule", W_RULES), ("dtype", DTYPES), ("engine", ENGINES)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, not {getattr(self, name)!r}")
        if not (np.isfinite(self.step_size) and self.step_size > 0):
            raise ValueError(f"step_size must be positive, not {self.step_size!r}")
        if not (np.isfinite(self.secondary_ratio) and self.secondary_ratio >= 0):
            raise ValueError(f"secondary_ratio must be at least 0, not {self.secondary_ratio!r}")
        if not (np.isfinite(self.mspbe_tau) and self.mspbe_tau > 1):
            raise ValueError(f"mspbe_tau must be above 1 step, not {self.mspbe_tau!r}")
        if not 0 <= self.rupee_beta0 < 1:
            raise ValueError(f"rupee_beta0 must be in (0, 1), or 0 for no RUPEE, not {self.rupee_beta0!r}")
        if self.check_every < 1:
            raise ValueError(f"check_every must be at least 1 step, not {self.check_every!r}")
        if self.write_every < 0:
            raise ValueError(f"write_every must be at least 1 step, or 0 to leave it open, not {self.write_every!r}")
        if self.lanes < 0 or self.lanes % _LANE_UNIT:
            raise ValueError(f"lanes must be a multiple of {_LANE_UNIT}, or 0 to leave it open, not {self.lanes!r}")


PAPER_CONFIG = LearnerConfig()


class TailBounds(NamedTuple):
    """What dropping the tails of traces may have changed; float rounding comes on top. Each of shape (n_demons,).

    Attributes:
        theta: By the TD errors that it made, and with the full trace, a demon would have written a theta that differs
            in no entry by more than this. A prediction is the sum of n_active entries.
        w: The same of w.
        learned: A demon that dropped nothing, and made its own TD errors ever since, would have a theta at no greater
            Euclidean distance than this; nor would its w be. A prediction differs by at most |phi| times this. It grows
            exponentially with the steps since the first loss, as the worst case does: with large steps it soon says
            nothing, up to infinity, where `theta` still does.

    The derivation is in `kernels/dropped.py`.
    """

    theta: Floats
    w: Floats
    learned: Floats

    @classmethod
    def of(cls, sums: Floats, alpha: Floats, alpha_w: Floats, most: float, norm: float) -> TailBounds:
        """Return the bounds from sum |delta| beta, sum eta and sum kappa, shape (3, n_demons), and from M and N."""
        moved, leaked, growth = sums
        is_beyond = (alpha_w * norm > 2.0) | (growth > 700.0)  # exp(700) is close to overflow
        total = np.sqrt(norm) * np.maximum(alpha, alpha_w) * (moved + leaked)
        learned = total * np.exp(np.where(is_beyond, 0.0, growth))
        learned[is_beyond & (total > 0)] = np.inf
        return cls(alpha * most * (moved + leaked), alpha_w * most * moved, learned)


class Engine(Protocol):
    """What the Horde needs of whatever learns for it. Arrays are in the order of the demons, shape (n_demons,)."""

    latest: Floats
    """Predictions at the latest step that was taken."""
    n_waiting: int
    """Steps that were only noted so far."""

    def begin(self, tiles: Tiles, gamma: Floats, lam: Floats) -> Floats:
        """Start a stream at `tiles` with traces at zero, and return the predictions there."""

    def learn(self, tiles: Tiles, signals: Signals) -> Floats:
        """Learn from the transition to `tiles`, and return the latest predictions."""

    def meet(
        self,
        telling: Telling,
        observation: Floats,
        tiles: Tiles,
        action: int,
        probability: float,
        is_inspected: bool,
        is_last: bool,
    ) -> int:
        """Inspect what the demons are told about a transition, and where there is nothing to say, learn from it.

        Args:
            telling: What they are told. Where it was inspected already, it is not again.
            observation: Of the state reached, float64, shape (n_channels,).
            tiles: Of the state reached, int64, shape (n_active,).
            action: The action taken.
            probability: b(action).
            is_inspected: See `telling`.
            is_last: Says that the stream ends here: all continuations are 0.

        Returns:
            The findings of `checks.inspect`; where there are any, nothing was learned.
        """

    def catch_up(self) -> None:
        """Take the steps that were only noted so far."""

    def predict(self, tiles: Tiles) -> Floats:
        """Return the predictions at `tiles`; nothing changes."""

    def predict_one(self, demon: int, tiles: Tiles) -> float:
        """Return one demon's prediction at `tiles`."""

    def reset_weights(self, theta: Reals | None = None) -> None:
        """Set theta, to zero unless given; the rest stays."""

    def set_bounds(self, bound: Floats) -> None:
        """Set the |theta| past which a demon is flagged."""

    def newly_broken(self) -> NDArray[np.int64]:
        """Return the demons flagged since they were last asked for."""

    def set_aside(self, demon: int) -> None:
        """Freeze one demon's weights at zero for good."""

    def dismiss(self) -> None:
        """Ask no policies any more: their ratios are told from now on."""

    def rearrange(self, roster: Roster) -> None:
        """Go on with other demons; those that stay take along what they have learned, their traces and estimates."""

    def weights(self) -> tuple[Reals, Reals]:
        """Return copies of theta and w, each (n_demons, n_features)."""

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimates."""

    def mspbe_trace(self) -> Reals:
        """Return a copy of m, (n_demons, n_features)."""

    def tail_bounds(self) -> TailBounds:
        """Return what dropping the tails of traces may have changed."""

    @property
    def alarm(self) -> int:
        """Not 0 where demons are flagged (SOMEBODY_IS_SICK), or policies cannot be asked any more (TOO_OFTEN)."""

    @property
    def mspbe_scalar(self) -> Floats:
        """Scalar MSPBE estimates."""

    @property
    def td_error(self) -> Floats:
        """TD errors of the last step."""

    @property
    def max_trace(self) -> Floats:
        """Largest |e| of each demon so far."""


class Layout:
    """Which lane each demon has: the large groups first, a block or more each, then the small ones packed together.

    Args:
        group: Group of each demon, shape (n_demons,), numbered from 0.
        smallest_shared: Groups with fewer demons are packed, with a trace per lane.

    Attributes:
        n_lanes: Number of lanes, the empty ones at the ends of blocks included.
        lane: Lane of each demon, shape (n_demons,).
        group: Group of each lane, -1 where it is empty, shape (n_lanes,).
        start: Block b is the lanes start[b]..start[b + 1], shape (n_blocks + 1,).
        n_blocks: Number of blocks.
        n_shared: Number of those at the front whose lanes share one trace.
    """

    def __init__(self, group: NDArray[np.int64], smallest_shared: int = _SMALLEST_SHARED_GROUP) -> None:
        sizes = np.bincount(group)
        blocks = [b for g in np.flatnonzero(sizes >= smallest_shared) for b in _cut(np.flatnonzero(group == g))]
        self.n_shared = len(blocks)
        blocks += _cut(np.flatnonzero(sizes[group] < smallest_shared))
        self.n_blocks = len(blocks)
        widths = [-(-members.size // _LANE_UNIT) * _LANE_UNIT for members in blocks]
        self.start = np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)
        self.n_lanes = int(self.start[-1])
        self.lane = np.empty(group.size, dtype=np.int64)
        self.group = np.full(self.n_lanes, -1, dtype=np.int64)
        for members, first in zip(blocks, self.start, strict=False):
            self.lane[members] = np.arange(first, first + members.size)
        self.group[self.lane] = group


def _cut(members: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Cut a run of demons into pieces of at most one block."""
    return [members[i : i + _WIDEST_BLOCK] for i in range(0, members.size, _WIDEST_BLOCK)]


class GTDLambda(Holder):
    """GTD(lambda) for many demons that share one stream of tiles: the plain engine.

    Args:
        group: Group of each demon, shape (n_demons,), numbered from 0. The demons of a group have the same policy,
            continuation and trace decay, hence the same trace.
        n_features: Length n of the weight vectors.
        alpha, alpha_w: Primary and secondary step sizes, already divided by the number of active tiles: a number, or
            one per demon.
        config: The other rules. Its step sizes are not read here.
        smallest_shared: Groups with fewer demons get a trace for each demon. Results do not depend on it.
        drop_below: An entry of the trace below this leaves it; the rounding of the dtype unless given.

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
        drop_below: float | None = None,
    ) -> None:
        self.config, self.n_features, self.n_demons = config, n_features, len(group)
        self.dtype = np.dtype(config.dtype)
        self._smallest_shared = smallest_shared
        self._lay_out(np.asarray(group, dtype=np.int64))
        self._lanes[gtd.ALPHA, self.layout.lane] = alpha
        self._lanes[gtd.ALPHA_W, self.layout.lane] = alpha_w
        self._lanes[gtd.BOUND] = np.inf
        self._cap = np.array([1.0 if config.trace_rule == "capped" else np.inf], dtype=self.dtype)
        drop_below = _DROP_BELOW[config.dtype] if drop_below is None else drop_below
        self._drop_below = np.array([drop_below], dtype=self.dtype)
        self._tiles = np.zeros(0, dtype=np.int64)
        self._m_scale, self._next_row = 1.0, 0
        self.latest: Floats = np.zeros(self.n_demons)

    def _lay_out(self, group: NDArray[np.int64]) -> None:
        """Give each demon a lane, and make the arrays."""
        self.layout = Layout(group, self._smallest_shared)
        self._places = gtd.Places(self.layout.lane, self.layout.group, self.layout.start, self.layout.n_shared)
        self._memory, self._lanes, self._work = self._allocate()

    def _allocate(self) -> tuple[gtd.Memory, Reals, gtd.Work]:
        """Make the arrays, all zero: theta, w and m are the bulk, `n_features * n_lanes` numbers each."""
        n, lanes, blocks, shared = self.n_features, self.layout.n_lanes, self.layout.n_blocks, self.layout.n_shared

        def zeros(*shape: int) -> Reals:
            return np.zeros(shape, dtype=self.dtype)

        memory = gtd.Memory(
            theta=zeros(n, lanes),
            w=zeros(n, lanes),
            m=zeros(n if self.config.vector_mspbe else 0, lanes),
            e_shared=zeros(shared, n, 1),
            e_packed=zeros(n, lanes - int(self.layout.start[shared])),
            live=np.zeros((blocks, n), dtype=np.int32),
            n_live=np.zeros(blocks, dtype=np.int64),
            is_live=np.zeros((blocks, n), dtype=np.uint8),
            phi_t=zeros(n),
            phi_tp1=zeros(n),
        )
        work = gtd.Work(
            order=np.zeros(blocks, dtype=np.int64),
            is_busy=np.zeros(blocks, dtype=np.uint8),
            n_busy=np.zeros(1, dtype=np.int64),
            is_aside=np.zeros(lanes, dtype=np.uint8),
            flags=np.zeros(lanes, dtype=np.uint8),
            dropped=np.zeros((dropped.N_BOUNDS, lanes)),
            largest=np.ones(2, dtype=np.int64),
        )
        return memory, zeros(gtd.N_ROWS, lanes), work

    def _of_demons(self, lanes: Reals) -> Floats:
        """Return one number per demon, float64, shape (n_demons,)."""
        return lanes[self.layout.lane].astype(np.float64)

    def begin(self, tiles: Tiles, gamma: Floats, lam: Floats) -> Floats:
        """Start a stream at `tiles` with every trace at zero; weights and estimates stay.

        Args:
            tiles: Active features, shape (n_active,).
            gamma: Continuation at this state, shape (n_groups,).
            lam: Trace decay at this state, shape (n_groups,).

        Returns:
            Predictions of all demons there, float64, shape (n_demons,).
        """
        gtd.clear_all(self._places, self._memory)
        self._work.dropped[: bounds.TOP + 1] = 0
        self._lanes[gtd.GAMMA_T] = np.append(gamma, 0.0)[self.layout.group]
        self._lanes[gtd.LAM_T] = np.append(lam, 0.0)[self.layout.group]
        self._predict(tiles, self._lanes[gtd.V])
        self._tiles = np.array(tiles, dtype=np.int64)
        self.latest = self._of_demons(self._lanes[gtd.V])
        return self.latest

    def meet(
        self,
        telling: Telling,
        observation: Floats,
        tiles: Tiles,
        action: int,
        probability: float,
        is_inspected: bool,
        is_last: bool,
    ) -> int:
        """Do as `Engine.meet` says; rho is told for each group."""
        found = 0 if is_inspected else checks.inspect(telling.native, observation, tiles, action, probability)
        if not found:
            checks.take_note(telling.native)
            self.learn(tiles, telling.signals(is_last=is_last))
        return int(found)

    def dismiss(self) -> None:
        """Do nothing: all ratios are told."""

    @property
    def alarm(self) -> int:
        """SOMEBODY_IS_SICK where demons are flagged, else 0."""
        return SOMEBODY_IS_SICK * bool(self._work.flags.any())

    def learn(self, tiles: Tiles, signals: Signals) -> Floats:
        """Learn from the transition to `tiles`.

        Returns:
            Predictions theta_{t+1}.phi_{t+1} of all demons, float64, shape (n_demons,).
        """
        tiles, predictions = np.array(tiles, dtype=np.int64), np.empty(self.n_demons)
        step = gtd.Step(self._places, self._memory, self._lanes, self._rules(), self._work, self._tiles, tiles)
        held = hold(step)
        self._entry = self._entry or entry_of(gtd.take_turns, held, 0, 0, 0, 1)
        gtd.learn(held, self._entry, signals, self._n_hands(), predictions)
        self._tiles, self.latest = tiles, predictions
        return predictions

    n_waiting = 0

    def catch_up(self) -> None:
        """Do nothing: each step is taken when it comes."""

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
        v = np.empty(self.layout.n_lanes, dtype=self.dtype)
        self._predict(tiles, v)
        return self._of_demons(v)

    def _predict(self, tiles: Tiles, v: Reals) -> None:
        """Write theta.phi of every lane into `v`."""
        gtd.predict(self._memory.theta, tiles, v)

    def _n_hands(self) -> int:
        """Return how many threads share the work: one where a step reads few numbers."""
        is_small = self.layout.n_lanes * max(self._tiles.size, 1) < _SMALLEST_SHARED_WORK
        return 1 if is_small else numba.get_num_threads()

    def predict_one(self, demon: int, tiles: Tiles) -> float:
        """Return one demon's prediction at `tiles`."""
        return float(self._memory.theta[tiles, self.layout.lane[demon]].sum())

    # ---- demons set aside ---------------------------------------------------------------------------------------

    def newly_broken(self) -> NDArray[np.int64]:
        """Return the demons flagged since they were last asked for: not finite, or |theta| past its bound."""
        is_new = (self._work.flags != 0) & (self._work.is_aside == 0)
        self._work.flags.fill(0)
        return np.flatnonzero(is_new[self.layout.lane])

    def set_aside(self, demon: int) -> None:
        """Freeze one demon's weights at zero for good; its siblings are not touched."""
        lane, memory = int(self.layout.lane[demon]), self._memory
        first_packed = int(self.layout.start[self.layout.n_shared])
        for rows in (memory.theta, memory.w, memory.m):
            rows[:, lane] = 0
        if lane >= first_packed:
            memory.e_packed[:, lane - first_packed] = 0
        self._lanes[[gtd.V, gtd.S, gtd.DELTA, gtd.ALPHA, gtd.ALPHA_W], lane] = 0
        self._work.is_aside[lane], self.latest[demon] = 1, 0.0

    def set_bounds(self, bound: Floats) -> None:
        """Set the |theta| past which a demon is flagged, shape (n_demons,)."""
        self._lanes[gtd.BOUND, self.layout.lane] = bound

    # ---- demons that come and go ---------------------------------------------------------------------------------

    def rearrange(self, roster: Roster) -> None:
        """Go on with other demons. What those that stay have learned, their traces and their estimates go with them.

        They go on as if nobody had come or gone, but for the order in which sums are rounded. Newcomers begin at the
        present with nothing learned and no trace.
        """
        old, memory, lanes, work = self.layout, self._memory, self._lanes, self._work
        traces, latest = self.traces(), self.latest
        self.n_demons = roster.group.size
        self._lay_out(roster.group)
        new, staying = self.layout.lane[roster.is_new], self.layout.lane[~roster.is_new]
        came_from, group = old.lane[roster.stays[~roster.is_new]], roster.group[roster.is_new]
        for rows, rows_before in zip(self._memory[:3], memory[:3], strict=True):
            rows[:, staying] = rows_before[:, came_from]
        self._lanes[gtd.BOUND] = np.inf
        self._lanes[:, staying] = lanes[:, came_from]
        self._lanes[gtd.ALPHA, new], self._lanes[gtd.ALPHA_W, new] = roster.alpha, roster.alpha_w
        self._lanes[gtd.GAMMA_T, new], self._lanes[gtd.LAM_T, new] = roster.gamma[group], roster.lam[group]
        self._work.is_aside[staying], self._work.flags[staying] = work.is_aside[came_from], work.flags[came_from]
        self._work.dropped[:, staying], self._work.largest[:] = work.dropped[:, came_from], work.largest
        self._put_traces(np.where(roster.is_new[:, None], 0, traces[roster.stays]))
        self.latest = np.where(roster.is_new, 0.0, latest[roster.stays])

    def _put_traces(self, e: Reals) -> None:
        """Write every demon's e, shape (n_demons, n_features), the same for all of a group."""
        shared, memory = self.layout.n_shared, self._memory
        by_lane = np.zeros((self.layout.n_lanes, self.n_features), dtype=self.dtype)
        by_lane[self.layout.lane] = e
        memory.e_shared[:, :, 0] = by_lane[self.layout.start[:shared]]
        memory.e_packed[:] = by_lane[self.layout.start[shared] :].T
        for b in range(self.layout.n_blocks):
            live = np.flatnonzero(by_lane[self.layout.start[b] : self.layout.start[b + 1]].any(axis=0))
            memory.n_live[b], memory.live[b, : live.size] = live.size, live
            memory.is_live[b, live] = 1

    # ---- what is known -------------------------------------------------------------------------------------------

    @property
    def td_error(self) -> Floats:
        """TD errors of the last step, shape (n_demons,)."""
        return self._of_demons(self._lanes[gtd.DELTA])

    @property
    def mspbe_scalar(self) -> Floats:
        """Scalar MSPBE estimate s, signed, shape (n_demons,)."""
        return self._of_demons(self._lanes[gtd.S])

    @property
    def max_trace(self) -> Floats:
        """Largest |e| so far, shape (n_demons,)."""
        return self._of_demons(self._lanes[gtd.MAX_E])

    def tail_bounds(self) -> TailBounds:
        """Return what dropping small entries of the traces may have changed so far."""
        sums = self._work.dropped[bounds.MOVED : bounds.GROWTH + 1, self.layout.lane]
        rates = self._of_demons(self._lanes[gtd.ALPHA]), self._of_demons(self._lanes[gtd.ALPHA_W])
        most, n_active = self._work.largest.tolist()
        return TailBounds.of(sums, *rates, most, most * n_active)

    def mspbe_vector(self) -> Floats:
        """Return the vector MSPBE estimate m.w, shape (n_demons,).

        Raises:
            ValueError: If the learner does not keep m.
        """
        if not self.config.vector_mspbe:
            raise ValueError("this learner keeps no vector MSPBE estimate: set vector_mspbe=True in its LearnerConfig")
        estimate = np.einsum("fl,fl->l", self._memory.m, self._memory.w, dtype=np.float64)
        return self._of_demons(estimate * self._m_scale)

    def weights(self) -> tuple[Reals, Reals]:
        """Return copies of theta and w, each (n_demons, n_features), in the learner's dtype."""
        return self._by_demon(self._memory.theta), self._by_demon(self._memory.w)

    def mspbe_trace(self) -> Reals:
        """Return a copy of m, shape (n_demons, n_features)."""
        return np.asarray(self._by_demon(self._memory.m) * self.dtype.type(self._m_scale))

    def traces(self) -> Reals:
        """Return a copy of every demon's e, shape (n_demons, n_features)."""
        shared = self.layout.n_shared
        widths = np.diff(self.layout.start[: shared + 1])
        return self._by_demon(
            np.hstack([np.repeat(self._memory.e_shared[:, :, 0].T, widths, axis=1), self._memory.e_packed])
        )

    def _by_demon(self, rows: Reals) -> Reals:
        """Return a copy of (n_features, n_lanes) as (n_demons, n_features)."""
        return np.ascontiguousarray(rows[:, self.layout.lane].T)

    def reset_weights(self, theta: Reals | None = None) -> None:
        """Set theta, to zero unless given, for measuring how learning recovers; w, traces and estimates stay.

        Args:
            theta: Shape (n_demons, n_features).

        Raises:
            ValueError: If `theta` has another shape or is not finite.

        Source: White, Modayil & Sutton (2012), section 6: theta := 0 after 40,000 steps.
        """
        self._memory.theta[...] = 0
        if theta is not None:
            if np.shape(theta) != (self.n_demons, self.n_features) or not np.isfinite(theta).all():
                raise ValueError(f"theta must be finite, of shape ({self.n_demons}, {self.n_features})")
            self._memory.theta[:, self.layout.lane] = np.where(self._work.is_aside[self.layout.lane], 0.0, theta.T)
        self._predict(self._tiles, self._lanes[gtd.V])
