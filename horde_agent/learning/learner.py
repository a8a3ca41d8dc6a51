"""GTDLambda: the plain engine. It owns the weights, the traces and the MSPBE estimates, and calls the kernels.

Lanes and blocks (see `kernels/gtd.py`) are its own business: what enters or leaves is in the order of the demons.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import bounds, checks, dropped, gtd
from horde_agent.kernels import gtd_arrays as arrays
from horde_agent.kernels.entry import Holder, entry_of, hands_here
from horde_agent.kernels.gtd_arrays import Signals
from horde_agent.kernels.held import hold
from horde_agent.kernels.span import SOMEBODY_IS_SICK
from horde_agent.learning.blocks import SMALLEST_SHARED_GROUP, Layout
from horde_agent.learning.engine import (
    DROP_BELOW,
    LARGEST_STEP,
    SMALLEST_SCALE,
    SMALLEST_SHARED_WORK,
    Patient,
    TailBounds,
    check_weights,
    most,
)
from horde_agent.learning.memory import touch
from horde_agent.learning.roster import Roster
from horde_agent.learning.rules import PAPER_CONFIG, LearnerConfig
from horde_agent.learning.telling import Telling
from horde_agent.saving import State, gathered, scattered

Floats = NDArray[np.float64]
Tiles = NDArray[np.int64]
Reals = NDArray[Any]


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
        smallest_shared: int = SMALLEST_SHARED_GROUP,
        drop_below: float | None = None,
    ) -> None:
        self.config, self.n_features, self.n_demons = config, n_features, len(group)
        self.dtype = np.dtype(config.dtype)
        self._most = most(self.dtype)
        self._smallest_shared = smallest_shared
        self._lay_out(np.asarray(group, dtype=np.int64), np.zeros(len(group), dtype=bool))
        touch(*(rows.ravel() for rows in (*self._memory[:3], self._memory.e_packed)))
        self._lanes[arrays.ALPHA, self.layout.lane] = alpha
        self._lanes[arrays.ALPHA_W, self.layout.lane] = alpha_w
        self._lanes[arrays.BOUND] = self._most
        self._cap = np.array([1.0 if config.trace_rule == "capped" else np.inf], dtype=self.dtype)
        drop_below = DROP_BELOW[config.dtype] if drop_below is None else drop_below
        self._drop_below = np.array([drop_below], dtype=self.dtype)
        self._tiles = np.zeros(0, dtype=np.int64)
        self._m_scale, self._next_row = 1.0, 0
        self.latest: Floats = np.zeros(self.n_demons)

    def state(self) -> State:
        """Return all that this engine's future depends on."""
        return gathered(self, (*self.NATIVE, "_places", "_cap", "_drop_below"))

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, of an engine that was made, and rearranged, in the same way."""
        if not np.array_equal(self._is_alone, state["_is_alone"]):
            self._lay_out(self._group, state["_is_alone"])
        scattered(self, state)
        self._held = self._entry = None

    def _lay_out(self, group: NDArray[np.int64], is_alone: NDArray[np.bool_]) -> None:
        """Give each demon a lane, and make the arrays; who is alone shares no trace with its group."""
        self._group, self._is_alone = group, is_alone
        self.layout = Layout(group, self._smallest_shared, is_alone)
        self._places = arrays.Places(self.layout.lane, self.layout.group, self.layout.start, self.layout.n_shared)
        self._memory, self._lanes, self._work = self._allocate()

    def _allocate(self) -> tuple[arrays.Memory, Reals, arrays.Work]:
        """Make the arrays, all zero: theta, w and m are the bulk, `n_features * n_lanes` numbers each."""
        n, lanes, blocks, shared = self.n_features, self.layout.n_lanes, self.layout.n_blocks, self.layout.n_shared

        def zeros(*shape: int) -> Reals:
            return np.zeros(shape, dtype=self.dtype)

        memory = arrays.Memory(
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
        work = arrays.Work(
            order=np.zeros(blocks, dtype=np.int64),
            is_busy=np.zeros(blocks, dtype=np.uint8),
            n_busy=np.zeros(1, dtype=np.int64),
            is_aside=np.zeros(lanes, dtype=np.uint8),
            is_skipping=np.zeros(lanes, dtype=np.uint8),
            flags=np.zeros(lanes, dtype=np.uint8),
            dropped=np.zeros((dropped.N_BOUNDS, lanes)),
            largest=np.ones(2, dtype=np.int64),
        )
        return memory, zeros(arrays.N_ROWS, lanes), work

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
        self._lanes[arrays.GAMMA_T] = np.append(gamma, 0.0)[self.layout.group]
        self._lanes[arrays.LAM_T] = np.append(lam, 0.0)[self.layout.group]
        self._predict(tiles, self._lanes[arrays.V])
        self._tiles = np.array(tiles, dtype=np.int64)
        self.latest = self._of_demons(self._lanes[arrays.V])
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
        """Learn from the transition to `tiles`; where something told is not finite, it is a gap: see `Engine.learn`.

        Returns:
            Predictions theta_{t+1}.phi_{t+1} of all demons, float64, shape (n_demons,).
        """
        is_broken = ~((np.abs(signals.c_tp1) <= self._most) & (np.abs(signals.z_tp1) <= self._most))
        if is_broken.any():
            self._part(is_broken)
        tiles, predictions = np.array(tiles, dtype=np.int64), np.empty(self.n_demons)
        step = arrays.Step(self._places, self._memory, self._lanes, self._rules(), self._work, self._tiles, tiles)
        held = hold(step)
        self._entry = self._entry or entry_of(gtd.take_turns, held, 0, 0, 0, 1)
        gtd.learn(held, self._entry, signals, hands_here(self._n_hands()), predictions)
        self._tiles, self.latest = tiles, predictions
        return predictions

    n_waiting = 0

    def catch_up(self) -> None:
        """Do nothing: each step is taken when it comes."""

    def _rules(self) -> arrays.Rules:
        """Return this step's rules: the decayed scale of m, and the rows that are looked through for divergence."""
        tau = self.config.mspbe_tau
        self._m_scale *= 1.0 - 1.0 / tau
        if self._m_scale < SMALLEST_SCALE:
            self._memory.m[...] *= self.dtype.type(self._m_scale)
            self._m_scale = 1.0
        first = self._next_row
        last = min(self.n_features, first + -(-self.n_features // self.config.check_every))
        self._next_row = last % self.n_features
        return arrays.Rules(
            every_step=self.config.w_rule == "every-step",
            clip_lambda=self.config.trace_rule == "clipped",
            cap=self._cap,
            drop_below=self._drop_below,
            largest_step=LARGEST_STEP[self.config.dtype],
            most=self._most,
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
        is_small = self.layout.n_lanes * max(self._tiles.size, 1) < SMALLEST_SHARED_WORK
        return 1 if is_small else numba.get_num_threads()

    def predict_one(self, demon: int, tiles: Tiles) -> float:
        """Return one demon's prediction at `tiles`."""
        return float(self._memory.theta[tiles, self.layout.lane[demon]].sum())

    # ---- demons set aside ---------------------------------------------------------------------------------------

    def newly_broken(self) -> dict[int, str]:
        """Return the demons flagged since they were last asked for, and what is wrong: not finite, or past a bound."""
        is_new = (self._work.flags != 0) & (self._work.is_aside == 0)
        self._work.flags.fill(0)
        return {demon: self._ailment(demon) for demon in np.flatnonzero(is_new[self.layout.lane]).tolist()}

    def _ailment(self, demon: int) -> str:
        """Say what is wrong with a demon that was flagged."""
        lane = self.layout.lane[demon]
        numbers = self._lanes[[arrays.V, arrays.S, arrays.DELTA, arrays.BOUND], lane].astype(np.float64).tolist()
        theta, w, m = (rows[:, lane] for rows in self._memory[:3])
        return Patient(theta, w, m, *numbers).ailment()

    def set_aside(self, demon: int) -> None:
        """Freeze one demon's weights at zero for good; its siblings are not touched."""
        lane, memory = int(self.layout.lane[demon]), self._memory
        first_packed = int(self.layout.start[self.layout.n_shared])
        for rows in (memory.theta, memory.w, memory.m):
            rows[:, lane] = 0
        if lane >= first_packed:
            memory.e_packed[:, lane - first_packed] = 0
        self._lanes[[arrays.V, arrays.S, arrays.DELTA, arrays.Q, arrays.Y, arrays.ALPHA, arrays.ALPHA_W], lane] = 0
        self._work.is_aside[lane], self.latest[demon] = 1, 0.0

    def set_bounds(self, bound: Floats) -> None:
        """Set the |theta| past which a demon is flagged, shape (n_demons,)."""
        self._lanes[arrays.BOUND, self.layout.lane] = np.minimum(bound, self._most)

    # ---- demons that come and go ---------------------------------------------------------------------------------

    def rearrange(self, roster: Roster) -> None:
        """Go on with other demons. What those that stay have learned, their traces and their estimates go with them.

        They go on as if nobody had come or gone, but for the order in which sums are rounded. Newcomers begin at the
        present with nothing learned and no trace.
        """
        old, memory, lanes, work = self.layout, self._memory, self._lanes, self._work
        traces, latest = self.traces(), self.latest
        self.n_demons = roster.group.size
        self._lay_out(roster.group, ~roster.is_new & self._is_alone[roster.stays])
        new, staying = self.layout.lane[roster.is_new], self.layout.lane[~roster.is_new]
        came_from = old.lane[roster.stays[~roster.is_new]]
        for rows, rows_before in zip(self._memory[:3], memory[:3], strict=True):
            rows[:, staying] = rows_before[:, came_from]
        self._lanes[arrays.BOUND] = self._most
        self._lanes[:, staying] = lanes[:, came_from]
        self._lanes[arrays.ALPHA, new], self._lanes[arrays.ALPHA_W, new] = roster.alpha, roster.alpha_w
        self._work.is_aside[staying], self._work.flags[staying] = work.is_aside[came_from], work.flags[came_from]
        self._work.dropped[:, staying], self._work.largest[:] = work.dropped[:, came_from], work.largest
        self._put_traces(np.where(roster.is_new[:, None], 0, traces[roster.stays]))
        self.latest = np.where(roster.is_new, 0.0, latest[roster.stays])

    def _part(self, is_broken: NDArray[np.bool_]) -> None:
        """Give traces of their own to demons for whom alone a step is a gap, while others of their block go on."""
        lane, of_block = self.layout.lane, np.searchsorted(self.layout.start, self.layout.lane, side="right") - 1
        is_aside = self._work.is_aside[lane] != 0
        goes_on = np.bincount(of_block[~is_broken & ~is_aside], minlength=self.layout.n_blocks) > 0
        parts = is_broken & ~is_aside & (of_block < self.layout.n_shared) & goes_on[of_block]
        if parts.any():
            self._is_alone = self._is_alone | parts
            self.rearrange(Roster(np.arange(self.n_demons), self._group, self._group, 0.0, 0.0))

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
        return self._of_demons(self._lanes[arrays.DELTA])

    @property
    def mspbe_scalar(self) -> Floats:
        """Scalar MSPBE estimate s, signed, shape (n_demons,)."""
        return self._of_demons(self._lanes[arrays.S])

    @property
    def max_trace(self) -> Floats:
        """Largest |e| so far, shape (n_demons,)."""
        return self._of_demons(self._lanes[arrays.MAX_E])

    def tail_bounds(self) -> TailBounds:
        """Return what dropping small entries of the traces may have changed so far."""
        sums = self._work.dropped[bounds.MOVED : bounds.GROWTH + 1, self.layout.lane]
        rates = self._of_demons(self._lanes[arrays.ALPHA]), self._of_demons(self._lanes[arrays.ALPHA_W])
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
            ValueError: If `theta` has another shape, or holds what the learner's dtype cannot.

        Source: White, Modayil & Sutton (2012), section 6: theta := 0 after 40,000 steps.
        """
        if theta is not None:
            check_weights(theta, (self.n_demons, self.n_features), self.dtype)
        self._memory.theta[...] = 0
        if theta is not None:
            self._memory.theta[:, self.layout.lane] = np.where(self._work.is_aside[self.layout.lane], 0.0, theta.T)
        self._predict(self._tiles, self._lanes[arrays.V])
