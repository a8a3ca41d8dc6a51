"""SpanGTD: the fast engine. It learns what `GTDLambda` learns, without stored traces and without dense passes.

Each demon keeps a few numbers per step instead of writing its weights; every K steps they are written, family by family
of tiles, at different times. Predictions, TD errors and estimates are those of every step all the same. With a `batch`
of more than one step, steps are only noted, and taken together when so many have come or somebody asks: the same
numbers, later and for less. The algebra is in `kernels/span.py`. The trace rule "capped" is not in it: for that, take
`GTDLambda`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import arrays, checks, span, transition
from horde_agent.kernels import lanes as of_lane
from horde_agent.kernels.entry import entry_of, hands_here
from horde_agent.kernels.gtd_arrays import Signals
from horde_agent.kernels.held import hold
from horde_agent.kernels.policies import GibbsParts
from horde_agent.learning.arrangement import TILES_OF_A_FAMILY, Arrangement
from horde_agent.learning.engine import (
    DROP_BELOW,
    LARGEST_STEP,
    SMALLEST_SCALE,
    SMALLEST_SHARED_WORK,
    Patient,
    check_weights,
    most,
)
from horde_agent.learning.gibbs import GibbsTable, nobody
from horde_agent.learning.history import SharedHistory
from horde_agent.learning.memory import touch
from horde_agent.learning.roster import Move, Roster, moves, rows_of, take_numbers, take_rows, take_tails
from horde_agent.learning.rules import PAPER_CONFIG, LearnerConfig
from horde_agent.learning.span_arrays import Size, allocate, most_threads, with_paper
from horde_agent.learning.span_reading import Readable
from horde_agent.learning.telling import Telling, nothing_told
from horde_agent.saving import State, gathered, inner, nested, scattered

Floats = NDArray[np.float64]
Tiles = NDArray[np.int64]
Reals = NDArray[Any]

_WIDEST_TILE = 128
_MANY, _WIDEST_OF_MANY = 8_192, 512  # demons whose weights come from memory: long rows come faster, writing is burstier
_WIDEST_DEFERRED_TILE = 64  # its sums at all steps of a batch stay in a core's first cache
_PERIODS = {False: 64, True: 128}  # steps between writings, eager and deferred
_NO_POLICIES = nobody()
# Scratch paper, which threads have each their own of; what others own; and what follows from how an engine is made.
_NOT_SAVED = (
    *("scratch", "table", "paper", "runs", "masks", "listed", "bases", "turns"),
    *("history", "layout", "_completed", "_table", "_rules", "_widest", "_policy", "_cumulant"),
)


def widest_tile(n_demons: int, *, is_deferred: bool) -> int:
    """Return the most lanes of a tile, unless they are set."""
    if is_deferred:
        return _WIDEST_DEFERRED_TILE
    return _WIDEST_OF_MANY if n_demons >= _MANY else _WIDEST_TILE


class SpanGTD(Readable):
    """GTD(lambda) for many demons that share one stream of tiles: the fast engine.

    Args:
        group: Group of each demon, shape (n_demons,), numbered from 0. The demons of a group have the same policy,
            continuation and trace decay.
        n_features: Length n of the weight vectors.
        alpha, alpha_w: Primary and secondary step sizes, already divided by the number of active tiles: a number, or
            one per demon.
        config: The other rules. Its step sizes are not read here.
        policy: Policy of each group, shape (n_groups,): groups of one policy have the same rho on every step, and are
            laid side by side. Results do not depend on it.
        period: Steps K after which what is owed is written: 64, or 128 where steps are taken in batches.
        tail: Steps beyond those that a trace may reach back before it is carried in rows of its own.
        widest: Most lanes of a tile; chosen unless given.
        batch: Steps that are noted before they are taken together, at most `period`.
        cumulant: Which of the cumulants that are told each demon sums, shape (n_demons,); its own unless given.
        drop_below: What is left of a trace is dropped below this, beside the 1 of an active feature; the rounding of
            the dtype unless given.
        table: Policies that the engine asks itself, for the ratios of each step that it `meet`s.

    Attributes:
        alarm: Not 0 where demons are flagged (`newly_broken`), or the engine cannot ask its policies any more
            (`dismiss`): SOMEBODY_IS_SICK, TOO_OFTEN.

    Raises:
        ValueError: If the trace rule is "capped".
    """

    NATIVE = ("_held", "_entry", "_told", "_told_from")
    _told: Any = None  # the latest signals in native form
    _told_from: Signals | None = None
    alarm = 0

    def __init__(
        self,
        group: NDArray[np.int64],
        n_features: int,
        alpha: float | Floats,
        alpha_w: float | Floats,
        config: LearnerConfig = PAPER_CONFIG,
        *,
        policy: NDArray[np.int64] | None = None,
        period: int | None = None,
        tail: int = 192,
        widest: int | None = None,
        batch: int = 1,
        cumulant: NDArray[np.int64] | None = None,
        drop_below: float | None = None,
        table: GibbsTable | None = None,
    ) -> None:
        if config.trace_rule == "capped":
            raise ValueError('the trace rule "capped" is no sum of past feature vectors: use GTDLambda for it')
        group = np.asarray(group, dtype=np.int64)
        self.config, self.n_features, self.n_demons = config, n_features, len(group)
        self.dtype = np.dtype(config.dtype)
        self.period = period or config.write_every or _PERIODS[batch > 1]
        self.tail, self.batch = tail, min(batch, self.period)
        self._drop_below = DROP_BELOW[config.dtype] if drop_below is None else drop_below
        policy = np.arange(group.max() + 1) if policy is None else policy
        self._policy, self._table, self._completed = policy, table, nothing_told()
        self._widest = widest or config.lanes  # 0: chosen
        self._cumulant = np.arange(self.n_demons) if cumulant is None else cumulant
        self.layout = self._arranged(group, policy)
        self.history = SharedHistory(n_features, self.batch + 1)
        self._span = allocate(self._size, self.history)
        touch(*self._span.memory[:3], *self._span.past[:4], n_threads=most_threads())
        lanes = self._span.lanes
        lanes[of_lane.ALPHA, self.layout.lane] = alpha
        lanes[of_lane.ALPHA_W, self.layout.lane] = alpha_w
        lanes[of_lane.BOUND] = most(self.dtype)
        self._m_scale, self._m_decay = 1.0, 1.0 - 1.0 / config.mspbe_tau
        self._rules = self._make_rules()
        self._n_places = 0  # of carried traces in use
        self.n_waiting = 0  # steps noted and not yet taken
        self.latest: Floats = np.zeros(self.n_demons)

    def state(self) -> State:
        """Return all that this engine's future depends on: noted steps, too; none is taken for its sake."""
        history = gathered(self.history, ())
        return nested(own=gathered(self, (*self.NATIVE, *_NOT_SAVED)), history=history)

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, of an engine that was made, and rearranged, in the same way."""
        scattered(self.history, inner(state, "history"))
        scattered(self, inner(state, "own"))
        self._span = with_paper(self._span, self.history, self._size)
        self._span.work.listed[:] = -1
        self._held = self._entry = self._told = self._told_from = None

    def _arranged(self, group: NDArray[np.int64], policy: NDArray[np.int64]) -> Arrangement:
        """Give each demon a lane."""
        widest = self._widest or widest_tile(group.size, is_deferred=self.batch > 1)
        return Arrangement(group, policy, widest, TILES_OF_A_FAMILY if self.batch == 1 else group.size)

    @property
    def _size(self) -> Size:
        """What decides how large the arrays are."""
        of_demons = self._policy, self._cumulant
        has_m = self.config.vector_mspbe
        return Size(self.layout, self.n_features, self.dtype, *of_demons, self.period, self.tail, self.batch, has_m)

    def _make_room(self, n_active: int) -> None:
        """Make room for one more time, with so many active features."""
        self.catch_up()
        self.history.make_room(n_active, self.batch)
        self._span = with_paper(self._span, self.history, self._size)

    # ---- the stream -----------------------------------------------------------------------------------------------

    def begin(self, tiles: Tiles, gamma: Floats, lam: Floats) -> Floats:
        """Start a stream at `tiles` with every trace at zero; weights and estimates stay.

        Args:
            tiles: Active features, shape (n_active,).
            gamma: Continuation at this state, shape (n_groups,).
            lam: Trace decay at this state, shape (n_groups,).

        Returns:
            Predictions of all demons there, float64, shape (n_demons,).
        """
        self.catch_up()
        for b in np.flatnonzero(self._span.past.book[:, arrays.IS_CARRYING]):
            self._settle(int(b))
            self._clear_carried(int(b))
        if not self.history.has_room(tiles.size):
            self._make_room(tiles.size)
        self.latest = np.zeros(self.n_demons)
        span.begin(self._held or self._hold(), tiles, self.latest)
        self._span.lanes[of_lane.GAMMA_T] = np.append(gamma, 0.0)[self.layout.group]
        self._span.lanes[of_lane.LAM_T] = np.append(lam, 0.0)[self.layout.group]
        if self.history.most > self._gibbs.parameters.most_repeats[0]:
            self.alarm |= span.TOO_OFTEN
        return self.latest

    def learn(self, tiles: Tiles, signals: Signals) -> Floats:
        """Learn from the transition to `tiles`, or note it where steps are taken in batches.

        Where something told is not finite, the step is a gap: see `Engine.learn`.

        Args:
            tiles: Active features, shape (n_active,).
            signals: What the demons are told, rho for each policy.

        Returns:
            Predictions theta_{t+1}.phi_{t+1} of all demons, float64, shape (n_demons,), at the latest step taken.

        Raises:
            ValueError: If there is not one rho for each policy, or the engine asks policies itself: see `meet`.
        """
        if signals is not self._told_from:
            self._check(signals)
            self._told, self._told_from = hold(signals), signals
        n_steps, latest, m_scale = self._before(tiles)
        held, m_step = self._held or self._hold(), 1.0 / (self.config.mspbe_tau * m_scale)
        hands = self._entry, n_steps, hands_here(self._n_hands)
        found = transition.step(held, self._told, tiles, m_step, *hands, latest)
        if found == span.NO_ROOM:
            self._make_room(tiles.size)
            return self.learn(tiles, signals)
        self._after(found, n_steps, latest, m_scale)
        return self.latest

    def _check(self, signals: Signals) -> None:
        """Raise ValueError where signals do not fit the policies: kernels write as many as they are given."""
        n_policies = int(self._policy.max()) + 1
        if self._table is not None:
            raise ValueError("this engine asks policies itself, for the action taken: tell it of a step by `meet`")
        if signals.rho_t.shape != (n_policies,):
            raise ValueError(f"rho_t must have one number for each of {n_policies} policies, not {signals.rho_t.shape}")

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
        """Do as `Engine.meet` says; rho is told for each policy, but those that the engine asks itself."""
        n_steps, latest, m_scale = self._before(tiles)
        if telling.told is not self._completed:
            self._completed, self._held = telling.told, None
        held, m_step = self._held or self._hold(), 1.0 / (self.config.mspbe_tau * m_scale)
        what = observation, tiles, action, probability, is_inspected, is_last
        hands = n_steps, hands_here(self._n_hands)
        found = transition.meet(held, *what, m_step, self._entry, *hands, latest)
        if found == span.NO_ROOM:
            self._make_room(tiles.size)
            return self.meet(telling, observation, tiles, action, probability, True, is_last)
        if found & checks.FINDINGS:
            return int(found)
        self._after(found, n_steps, latest, m_scale)
        return 0

    def _before(self, tiles: Tiles) -> tuple[int, Floats, float]:
        """Return how many steps are due with the coming one, where their predictions go, and the scale of m then."""
        if self.batch > 1 and not self.n_waiting and not self.history.has_room(tiles.size, self.batch):
            self._make_room(tiles.size)  # now, lest a batch be broken off in the middle
        n_steps = self.n_waiting + 1 if self.n_waiting + 1 >= self.batch else 0
        latest = np.empty(self.n_demons) if n_steps else self.latest
        return n_steps, latest, self._m_scale * self._m_decay

    def _after(self, found: int, n_steps: int, latest: Floats, m_scale: float) -> None:
        """Take note that a step was noted, and taken where it was due."""
        self.latest, self.n_waiting = latest, 0 if n_steps else self.n_waiting + 1
        self._m_scale = m_scale
        if found:
            self._heed(found)
        if m_scale < SMALLEST_SCALE:
            self._multiply_m_out()

    def catch_up(self) -> None:
        """Take the steps that were only noted so far."""
        if self.n_waiting:
            n_steps, self.n_waiting, self.latest = self.n_waiting, 0, np.empty(self.n_demons)
            self._take(n_steps)

    def _take(self, n_steps: int) -> None:
        """Take the last `n_steps` steps; without any, let tiles past their limit write what they owe."""
        held = self._held or self._hold()
        found = span.learn(held, self._entry, n_steps, hands_here(self._n_hands) if n_steps else 1, self.latest)
        self._heed(found if n_steps else found & span.SOMEBODY_IS_SICK)

    def _heed(self, found: int) -> None:
        """Raise an alarm where somebody must hear of it, and let those carry their trace whose tail is too long."""
        self.alarm |= int(found) & (span.SOMEBODY_IS_SICK | span.TOO_OFTEN)
        if found & span.SOMEBODY_WANTS_CARRY:
            for b in np.flatnonzero(self._span.past.book[:, arrays.WANTS_CARRY]):
                self._carry(int(b))

    @property
    def _gibbs(self) -> GibbsParts:
        """The policies that the engine asks itself."""
        return _NO_POLICIES if self._table is None else self._table.parts

    def dismiss(self) -> None:
        """Ask no policies any more: their ratios are told from now on."""
        self.catch_up()
        self._table, self._held = None, None
        self.alarm &= ~span.TOO_OFTEN

    def _hold(self) -> Any:
        """Hold all that a step needs in native form."""
        self._held = hold(arrays.SpanParts(self._arrays, self._rules, self._gibbs, self._completed))
        self._entry = entry_of(span.take_turns, self._held, 0, 0, 0, 1)
        # A step that reads few numbers is taken by one thread. Of more hands than threads, some wait for their turn.
        n_read = self.layout.n_lanes * max(self.history.arrays.tiles.shape[1], 1) * self.batch
        self._n_hands = 1 if n_read < SMALLEST_SHARED_WORK else most_threads()
        return self._held

    def _multiply_m_out(self) -> None:
        """Multiply m by its common scale, which decays instead of it: far from overflow."""
        self.catch_up()
        self._span.memory.m[...] *= self.dtype.type(self._m_scale)
        self._span.past.m_steps[...] *= self._m_scale
        self._m_scale = 1.0

    def _make_rules(self) -> arrays.Rules:
        """Return what distinguishes this engine from another."""
        drop_below, clips = self._drop_below, self.config.trace_rule == "clipped"
        return arrays.Rules(
            every_step=self.config.w_rule == "every-step",
            clip_lambda=clips,
            drop_below=drop_below if clips else 0.0,
            drop_carried=drop_below,
            one_over_tau=1.0 / self.config.mspbe_tau,
            largest_step=LARGEST_STEP[self.config.dtype],
            keep_at_most=self.tail,
            limit=self._size.limit,
            longest_wait=3 * self.period,
        )

    # ---- writing, carrying ------------------------------------------------------------------------------------------

    def _settle(self, b: int) -> None:
        """Write what a tile owes, out of turn: it is made to have passed its limit."""
        if self.history.now < 0:
            return
        self._span.past.book[b, arrays.LIMIT] = -1
        self._take(0)

    def _settle_all(self) -> None:
        """Write what all tiles owe, out of turn."""
        if self.history.now >= 0:
            self._span.past.book[:, arrays.LIMIT] = -1
            self._take(0)

    def _carry(self, b: int) -> None:
        """Give a tile rows for its trace, and write its tail there."""
        memory, place = self._span.memory, self._n_places
        if place == memory.carried.shape[0]:
            more = max(1, place)
            memory = memory._replace(
                carried=np.concatenate([memory.carried, np.zeros((more, memory.carried.shape[1]), self.dtype)]),
                is_alive=np.concatenate([memory.is_alive, np.zeros((more, self.n_features), np.uint8)]),
            )
            self._span = self._span._replace(memory=memory)
        self._n_places += 1
        self._span.past.book[b, arrays.CARRIES] = place
        self._span.past.book[b, arrays.WANTS_CARRY] = 0
        self._settle(b)

    def _clear_carried(self, b: int) -> None:
        """Set a tile's carried trace to zero."""
        place = self._span.past.book[b, arrays.CARRIES]
        self._span.memory.carried[place], self._span.memory.is_alive[place] = 0, 0
        self._span.past.book[b, arrays.IS_CARRYING] = 0

    # ---- demons set aside -------------------------------------------------------------------------------------------

    def newly_broken(self) -> dict[int, str]:
        """Return the demons flagged since they were last asked for, and what is wrong: not finite, or past a bound.

        Steps that are only noted so far can have flagged nobody yet.
        """
        if not self.alarm & span.SOMEBODY_IS_SICK:
            return {}
        self.alarm &= ~span.SOMEBODY_IS_SICK
        sick = self._span.lanes[of_lane.SICK]
        lanes = np.flatnonzero((sick != 0) & (self._span.work.is_aside == 0) & (self.layout.demon >= 0))
        sick.fill(0)
        return dict(sorted(self._ailments(lanes)))

    def _ailments(self, lanes: NDArray[np.int64]) -> Iterator[tuple[int, str]]:
        """Yield the demons on some lanes and what is wrong with them, reading each tile once."""
        of_tile, start = np.searchsorted(self.layout.start, lanes, side="right") - 1, self.layout.start
        rows_of_numbers = [of_lane.V, of_lane.S, of_lane.DELTA, of_lane.BOUND]
        for b in np.unique(of_tile):
            rows = self._read(int(b))
            for lane in lanes[of_tile == b]:
                numbers = self._span.lanes[rows_of_numbers, lane].astype(np.float64).tolist()
                theta, w, m = (r[:, lane - start[b]] for r in rows)
                yield int(self.layout.demon[lane]), Patient(theta, w, m, *numbers).ailment()

    def set_aside(self, demon: int) -> None:
        """Freeze one demon's weights at zero for good; its siblings are not touched."""
        self.catch_up()
        lane = int(self.layout.lane[demon])
        b = int(np.searchsorted(self.layout.start, lane, side="right")) - 1
        kept = [of_lane.ALPHA, of_lane.ALPHA_W, of_lane.BOUND, of_lane.MAX_E]
        keep = self._span.lanes[kept, lane].copy()
        past = self._span.past
        of_past = [rows_of(numbers, self.layout, b) for numbers in (past.trace, past.owed, past.spent, past.ratios)]
        for rows in (*self._rows(b), *of_past):
            rows[:, lane - int(self.layout.start[b])] = 0
        self._span.lanes[:, lane] = 0
        self._span.lanes[kept[2:], lane] = keep[2:]
        for told in self._span.tiles[:4]:
            told[lane] = -1
        self._span.work.is_aside[lane], self._span.work.predictions[demon], self.latest[demon] = 1, 0.0, 0.0

    def set_bounds(self, bound: Floats) -> None:
        """Set the |theta| past which a demon is flagged, shape (n_demons,), in the steps only noted so far too."""
        span.set_bounds(self._held or self._hold(), np.minimum(bound, most(self.dtype)))

    # ---- demons that come and go ------------------------------------------------------------------------------------

    def rearrange(self, roster: Roster) -> None:
        """Go on with other demons. What those that stay have learned, their traces and their estimates go with them.

        What is owed is written, so that they go on as if nobody had come or gone but for rounding. Newcomers begin at
        the present with nothing learned and no trace. While the weights move, there are two copies of one of them.
        """
        self.catch_up()
        self._settle_all()
        old, before, latest = self.layout, self._span, self.latest
        self.n_demons, self.layout = roster.group.size, self._arranged(roster.group, roster.policy)
        self._cumulant = np.arange(self.n_demons) if roster.cumulant is None else roster.cumulant
        self._policy, self._table, self._told_from = roster.policy, roster.table, None
        self._span, self._n_places = with_paper(allocate(self._size, self.history), self.history, self._size), 0
        moved, rows = moves(old, self.layout, roster.stays), list(before.memory[:3])
        nothing = np.zeros(0, dtype=self.dtype)
        before = before._replace(memory=before.memory._replace(theta=nothing, w=nothing, m=nothing))
        for into in self._span.memory[:3]:
            take_rows(rows.pop(0), old, into, self.layout, moved)
        take_tails(before.past, old, self._span.past, self.layout, moved, self.history.now)
        touch(*self._span.memory[:3], n_threads=most_threads())
        take_numbers(roster, before, old, self._span, self.layout)
        book = self._span.past.book
        book[:, arrays.WANTS_CARRY] = book[:, arrays.N_KEPT] > self.tail
        if self.history.now >= 0:
            book[:, arrays.W_AT] = self.history.now
        self.latest = np.where(roster.is_new, 0.0, latest[roster.stays])
        self._take_carried(before, moved)

    def _take_carried(self, before: arrays.Span, moved: list[Move]) -> None:
        """Take along the carried traces; a tile that one comes to carries those of all its lanes."""
        was, n = before.past.book, self.n_features
        for tile in sorted({move.tile for move in moved if was[move.source, arrays.IS_CARRYING]}):
            self._carry(tile)
            rows = self._rows(tile)[-1]
            for move in moved:
                if move.tile == tile and was[move.source, arrays.IS_CARRYING]:
                    e = before.memory.carried[was[move.source, arrays.CARRIES]]
                    width = int(before.tiles.start[move.source + 1] - before.tiles.start[move.source])
                    rows[:, move.here] = e[: n * width].reshape(n, width)[:, move.there]
            place = int(self._span.past.book[tile, arrays.CARRIES])
            self._span.memory.is_alive[place] = rows.any(axis=1)
            self._span.past.book[tile, arrays.IS_CARRYING] = 1
            start, stop = int(self.layout.start[tile]), int(self.layout.start[tile + 1])
            self._span.lanes[of_lane.BASE_E, start:stop] = rows[self.history.tiles].sum(axis=0)

    def reset_weights(self, theta: Reals | None = None) -> None:
        """Set theta, to zero unless given, for measuring how learning recovers; w, traces and estimates stay.

        Args:
            theta: Shape (n_demons, n_features).

        Raises:
            ValueError: If `theta` has another shape, or holds what the engine's dtype cannot.

        Source: White, Modayil & Sutton (2012), section 6: theta := 0 after 40,000 steps.
        """
        if theta is not None:
            check_weights(theta, (self.n_demons, self.n_features), self.dtype)
        self.catch_up()
        lanes = np.zeros((self.layout.n_lanes, self.n_features), dtype=self.dtype)
        if theta is not None:
            lanes[self.layout.lane] = np.where(self._span.work.is_aside[self.layout.lane, None], 0.0, theta)
        for b in range(self.layout.n_tiles):
            start, stop = int(self.layout.start[b]), int(self.layout.start[b + 1])
            self._settle(b)
            self._rows(b)[0][:] = lanes[start:stop].T
            base = lanes[start:stop][:, self.history.tiles].sum(axis=1)
            self._span.lanes[of_lane.BASE, start:stop] = self._span.lanes[of_lane.V, start:stop] = base
