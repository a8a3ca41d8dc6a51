"""GTD(lambda) without stored traces and without dense passes: the arithmetic of one step, in the span of the past.

A trace is a sum of recent feature vectors, e_t = sum_k a_k phi_k, and so is what theta and w have changed by since they
were last written. All demons share the phi_k; a demon's own are a few numbers per step: rho, the decay
g = gamma lambda, delta, h = gamma (1 - lambda) e.w and q = phi.w. With the overlaps G(k, j) = phi_k.phi_j (whole
numbers, `history.py`) one pass over them gives everything that a step asks for, and no weight is written:

    x_k = e_k.phi_j = rho_k (G(k, j) + g_k x_{k-1})
    theta_t.phi_j = theta_0.phi_j + alpha   (sum delta_k x_k - sum h_k G(k+1, j))
    w_t.phi_j     = w_0.phi_j     + alpha_w (sum delta_k x_k - sum q_k G(k, j))

theta_0.phi_j, by the weights as written, moves with the rows of the features that went on and off. e.w, e.e, e.phi obey
recursions of their own (`learn_lanes`). Every K steps what is owed is written (`settle`): a backward pass gives the
coefficient of each phi_k, and a feature's row changes by the sum of the coefficients over its runs. It is exact: the
same algebra as `gtd.py`, in another order.

A *lane* is the place of one demon, a *tile* a run of lanes; each tile's rows lie together, feature by feature. A trace
reaches back beyond the last writing: the tile keeps rho and g of those steps (its *tail*) until nothing of them is
left. Where that takes too long, the tile is made to *carry*: the trace at the last writing is kept in rows of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from horde_agent.kernels import history as past
from horde_agent.kernels._jit import inner_kernel, kernel, parallel_kernel
from horde_agent.kernels.gtd import Signals
from horde_agent.kernels.history import History
from horde_agent.kernels.lanes import (
    ALPHA,
    ALPHA_W,
    BASE,
    BASE_E,
    BASE_W,
    BOUND,
    C_TP1,
    CLIPS,
    DECAYS,
    EVERY_STEP,
    GAMMA_T,
    GAMMA_TP1,
    LAM_T,
    LAM_TP1,
    MOST,
    NORM,
    NORM_TP1,
    ON,
    ONE_OVER_TAU,
    RHO_T,
    SICK,
    SPENT,
    SUM,
    TOP,
    TURNED,
    X_TP1,
    Q,
    V,
    X,
    Y,
    Z,
)
from horde_agent.kernels.vectors import follow, move_rows, take_busy_step, take_idle_step, weigh, write_runs

Reals = NDArray[Any]  # float32 or float64, the engine's dtype
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# One whole number per tile: columns of the array `book`, shape (T, N_COLUMNS).
N_KEPT = 0  # steps in `trace` and `times`: the tail, then the steps owed
N_OWED = 1
N_SPENT = 2  # steps in `spent`
LIMIT = 3  # written when so many are in `spent`
W_AT = 4  # time of the feature vector that BASE_W is about
WAS_BUSY = 5  # 1: the last step left a trace
CARRIES = 6  # place in `carried`, -1 for none
IS_CARRYING = 7  # 1: the carried trace is not zero
WANTS_CARRY = 8  # 1: its tail is too long
N_COLUMNS = 9

# What a writing adds to, and its place in a table of coefficients; the trace comes last.
TO_THETA, TO_W, TO_M = 0, 1, 2
# What a step returns, added up.
SOMEBODY_IS_SICK, SOMEBODY_WANTS_CARRY = 1, 2

LANES_AT_ONCE = 32  # a table of coefficients for so many lanes stays in a core's own cache


class Tiles(NamedTuple):
    """Who sits where: demons on L lanes in T tiles, over n features."""

    group: Integers  # (L,): group of each lane, -1 where it is empty
    demon: Integers  # (L,): demon of each lane, -1 where it is empty
    start: Integers  # (T + 1,): tile b is lanes start[b]..start[b + 1]


class Memory(NamedTuple):
    """What is learned, as last written. Tile b's rows are the numbers n start[b]..n start[b + 1]."""

    theta: Reals  # (n L,)
    w: Reals  # (n L,)
    m: Reals  # (n L,): the vector MSPBE trace over its common scale, or (0,) where it is not kept
    carried: Reals  # (places, n widest tile): traces at the last writing
    is_alive: NDArray[np.uint8]  # (places, n): the features in a carried trace


class Past(NamedTuple):
    """What each demon keeps of its past: C steps, K of them owed. Tile b's numbers are C (or K) times its lanes."""

    trace: Reals  # (2 C L,): rho_k, then g_k
    owed: Reals  # (2 K L,): delta_k, then h_k
    spent: Reals  # (K L,): q_k
    times: Integers  # (T, 2, C): of the steps kept, and of the steps spent
    m_steps: Floats  # (T, K): 1 / (tau scale) at each step owed
    book: Integers  # (T, N_COLUMNS)


class Work(NamedTuple):
    """Who is not well, and each hand's scratch paper."""

    is_aside: NDArray[np.uint8]  # (L,)
    scratch: Reals  # (hands, 7, longest): rows as below
    table: Reals  # (hands, 4 LANES_AT_ONCE (most times + 1)), and room for a tail
    paper: Integers  # (hands, 4, longest): rows as below
    runs: NDArray[np.int32]  # (hands, 2 most runs): each run's ends, as places in the table


# Rows of `scratch`: overlaps with the steps kept, with those after them, with those spent; what reaches back beyond the
# first step kept; the tile's numbers of `lanes.py`. Rows of `paper`: see `number_times` and `list_runs`.
AT, AFTER, SPENT_AT, REACH, REACH_M, LEFT, NUMBERS = 0, 1, 2, 3, 4, 5, 6
PLACE, FEATURES, FIRST_RUN, NEXT_RUN = 0, 1, 2, 3


class Rules(NamedTuple):
    """What distinguishes one engine from another, and the step's own numbers."""

    every_step: bool  # w decays where rho = 0 too
    clip_lambda: bool  # lambda_{t+1} = lambda min(1, 1/rho_t)
    drop_below: float  # a tail is dropped when it is below this, beside an active feature's 1, for good
    drop_carried: float  # a feature leaves a carried trace below this
    one_over_tau: float
    keep_at_most: int  # steps of tail
    period: int  # K
    longest_wait: int  # steps after which something owed is written
    n_rows: int  # so many rows of theta are looked through for weights past their bound
    n_hands: int


# ---- views --------------------------------------------------------------------------------------------------------


@inner_kernel
def rows_of(rows: Reals, start: int, stop: int, n: int) -> Reals:
    """Return a tile's rows, (n, lanes)."""
    return rows[n * start : n * stop].reshape(n, stop - start)


@inner_kernel
def pairs_of(pairs: Reals, start: int, stop: int, n: int) -> Reals:
    """Return a tile's pairs of rows, (n, 2, lanes)."""
    return pairs[2 * n * start : 2 * n * stop].reshape(n, 2, stop - start)


@inner_kernel
def carried_by(b: int, tiles: Tiles, memory: Memory, past_: Past) -> Reals:
    """Return a tile's carried trace, (n, lanes)."""
    n, width = memory.is_alive.shape[1], tiles.start[b + 1] - tiles.start[b]
    return memory.carried[past_.book[b, CARRIES], : n * width].reshape(n, width)


# ---- sums over rows and over the past -----------------------------------------------------------------------------


@inner_kernel
def move_base(rows: Reals, origin: int, width: int, history: History, step: int, tiles: Integers, out: Reals) -> None:
    """Move `out` from the rows at time `step` - 1 to those at `step`, at `tiles`; from scratch where that is less."""
    gained, lost = history.changed[step % 2, past.GAINED], history.changed[step % 2, past.LOST]
    n_changed = history.clock[past.N_CHANGED + 2 * (step % 2) :]
    if n_changed[past.GAINED] + n_changed[past.LOST] < tiles.shape[0]:
        move_rows(rows, origin, width, gained, n_changed[past.GAINED], lost, n_changed[past.LOST], out)
    else:
        sum_afresh(rows, origin, width, tiles, out)


@inner_kernel
def sum_afresh(rows: Reals, origin: int, width: int, tiles: Integers, out: Reals) -> None:
    """Write the sum of the rows at `tiles`, of a tile whose rows begin at `origin`."""
    out[:] = 0
    move_rows(rows, origin, width, tiles, tiles.shape[0], tiles, 0, out)


@inner_kernel
def scan(
    b: int, hand: int, tiles: Tiles, past_: Past, work: Work, history: History, overlap: NDArray[np.int32], sums: Reals
) -> None:
    """Add up the past against one feature vector, whose overlaps are given.

    `sums` are four rows over the tile's lanes: x (begun by the caller), sum delta x, sum q G, sum h G.
    """
    start, stop, book = tiles.start[b], tiles.start[b + 1], past_.book[b]
    n_kept, n_owed, origin = book[N_KEPT], book[N_OWED], history.clock[past.ORIGIN]
    at, after, spent_at = work.scratch[hand, AT], work.scratch[hand, AFTER], work.scratch[hand, SPENT_AT]
    for k in range(n_kept):
        at[k] = overlap[past_.times[b, 0, k] - origin]
    for k in range(n_owed):
        after[k] = overlap[past_.times[b, 0, n_kept - n_owed + k] + 1 - origin]
    for k in range(book[N_SPENT]):
        spent_at[k] = overlap[past_.times[b, 1, k] - origin]
    n_places, period, width = past_.times.shape[2], past_.m_steps.shape[1], stop - start
    owed = 2 * period * start
    follow(past_.trace, 2 * n_places * start, past_.owed, owed, at, n_kept, n_owed, sums[0], sums[1])
    weigh(past_.spent, period * start, width, spent_at, book[N_SPENT], sums[2])
    weigh(past_.owed, owed + width, 2 * width, after, n_owed, sums[3])


# ---- one step of one tile -----------------------------------------------------------------------------------------


@inner_kernel
def tell(b: int, tiles: Tiles, signals: Signals, lanes: Reals, work: Work) -> bool:
    """Spread the signals over a tile's lanes, and say whether rho > 0 for any.

    Empty lanes, and demons set aside, are told that nothing happens.
    """
    is_busy = False
    for i in range(tiles.start[b], tiles.start[b + 1]):
        if tiles.group[i] < 0 or work.is_aside[i]:
            lanes[RHO_T, i], lanes[GAMMA_TP1, i], lanes[LAM_TP1, i], lanes[C_TP1, i] = 0, 0, 0, 0
        else:
            g, demon = tiles.group[i], tiles.demon[i]
            lanes[RHO_T, i], lanes[GAMMA_TP1, i] = signals.rho_t[g], signals.gamma_tp1[g]
            lanes[LAM_TP1, i] = signals.lam_tp1[g]
            lanes[C_TP1, i] = signals.c_tp1[demon] + (1 - signals.gamma_tp1[g]) * signals.z_tp1[demon]
            is_busy |= lanes[RHO_T, i] > 0
    return is_busy


@inner_kernel
def find_q(
    b: int, tiles: Tiles, memory: Memory, past_: Past, lanes: Reals, history: History, tiles_t: Integers
) -> None:
    """Write w_t.phi_t: the rows as written, and what is owed to them."""
    start, stop, now = tiles.start[b], tiles.start[b + 1], history.clock[past.NOW]
    book, base, origin = past_.book[b], lanes[BASE_W, start:stop], history.features.shape[1] * start
    if book[W_AT] == now - 2:
        move_base(memory.w, origin, stop - start, history, now - 1, tiles_t, base)
    elif book[W_AT] != now - 1:
        sum_afresh(memory.w, origin, stop - start, tiles_t, base)
    book[W_AT] = now - 1
    for i in range(start, stop):
        lanes[Q, i] = lanes[BASE_W, i] + lanes[ALPHA_W, i] * (lanes[SUM, i] - lanes[SPENT, i])


@inner_kernel
def look_ahead(
    b: int,
    hand: int,
    tiles: Tiles,
    memory: Memory,
    past_: Past,
    lanes: Reals,
    work: Work,
    history: History,
    tiles_tp1: Integers,
) -> None:
    """Move a tile's sums on to phi_{t+1}: BASE, SUM, SPENT, TURNED, and X_TP1 = e_{t-1}.phi_{t+1}.

    The present of `history` is phi_{t+1} already.
    """
    start, stop, now = tiles.start[b], tiles.start[b + 1], history.clock[past.NOW]
    n, width, base_e = history.features.shape[1], stop - start, lanes[BASE_E, start:stop]
    move_base(memory.theta, n * start, width, history, now, tiles_tp1, lanes[BASE, start:stop])
    lanes[X_TP1, start:stop] = 0
    if past_.book[b, IS_CARRYING]:
        move_base(memory.carried[past_.book[b, CARRIES]], 0, width, history, now, tiles_tp1, base_e)
        lanes[X_TP1, start:stop] = lanes[BASE_E, start:stop]
    sums = (lanes[X_TP1, start:stop], lanes[SUM, start:stop], lanes[SPENT, start:stop], lanes[TURNED, start:stop])
    scan(b, hand, tiles, past_, work, history, history.overlap, sums)


@inner_kernel
def learn_lanes(
    b: int,
    hand: int,
    tiles: Tiles,
    past_: Past,
    lanes: Reals,
    work: Work,
    history: History,
    rules: Rules,
    is_busy: bool,
) -> None:
    """Let a tile's lanes take their step (`lanes.py`), and keep what it owes."""
    clock, start, book, number = history.clock, tiles.start[b], past_.book[b], work.scratch[hand, NUMBERS]
    width, n_places, period = tiles.start[b + 1] - start, past_.times.shape[2], past_.m_steps.shape[1]
    number[NORM], number[NORM_TP1] = clock[past.NORM_BEFORE], clock[past.NORM]
    number[MOST], number[ON] = clock[past.MOST_BEFORE], history.overlap[clock[past.NOW] - 1 - clock[past.ORIGIN]]
    number[DECAYS], number[ONE_OVER_TAU] = book[WAS_BUSY], rules.one_over_tau
    number[EVERY_STEP], number[CLIPS] = rules.every_step, rules.clip_lambda
    to_spent = period * start + min(book[N_SPENT], period - 1) * width
    if is_busy:
        to_trace, to_owed = 2 * (n_places * start + book[N_KEPT] * width), 2 * (period * start + book[N_OWED] * width)
        take_busy_step(lanes, start, width, number, past_.trace, to_trace, past_.owed, to_owed, past_.spent, to_spent)
    else:
        take_idle_step(lanes, start, width, number, past_.spent, to_spent)


@inner_kernel
def note(b: int, past_: Past, history: History, rules: Rules, m_step: float, is_busy: bool) -> None:
    """Enter the step into a tile's books."""
    book, time = past_.book[b], history.clock[past.NOW] - 1
    book[WAS_BUSY] = is_busy
    if not is_busy and book[N_OWED] == 0:
        book[N_KEPT] = 0  # the trace is zero, and nothing leans on its past
    if is_busy or rules.every_step:
        past_.times[b, 1, book[N_SPENT]] = time
        book[N_SPENT] += 1
    if is_busy:
        past_.times[b, 0, book[N_KEPT]] = time
        past_.m_steps[b, book[N_OWED]] = m_step
        book[N_KEPT] += 1
        book[N_OWED] += 1


@inner_kernel
def oldest_of(b: int, past_: Past, now: int) -> int:
    """Return the first time that a tile still needs."""
    book, oldest = past_.book[b], now
    if book[N_KEPT] > 0:
        oldest = min(oldest, past_.times[b, 0, 0])
    if book[N_SPENT] > 0:
        oldest = min(oldest, past_.times[b, 1, 0])
    return oldest


@inner_kernel
def look_for_unbounded(
    b: int, tiles: Tiles, memory: Memory, lanes: Reals, rules: Rules, n_features: int, first_row: int
) -> None:
    """Flag lanes whose theta passes its bound in the rows that are this step's share."""
    start, stop = tiles.start[b], tiles.start[b + 1]
    theta, bound = rows_of(memory.theta, start, stop, n_features), lanes[BOUND, start:stop]
    for f in range(first_row, min(first_row + rules.n_rows, n_features)):
        row, n_within = theta[f], 0
        for i in range(row.shape[0]):
            n_within += abs(row[i]) <= bound[i]  # NaN is not
        if n_within < row.shape[0]:
            for i in range(row.shape[0]):
                if not abs(row[i]) <= bound[i]:
                    lanes[SICK, start + i] = 1


# ---- writing what is owed -----------------------------------------------------------------------------------------


@inner_kernel
def number_times(b: int, hand: int, past_: Past, work: Work, now: int) -> tuple[int, int]:
    """Number the times at which a tile has a coefficient: place[t - first] is the number of those before t.

    Returns:
        The first time, and how many there are.
    """
    book, first, place = past_.book[b], oldest_of(b, past_, now), work.paper[hand, PLACE]
    place[: now - first + 2] = 0
    for k in range(book[N_KEPT]):
        place[past_.times[b, 0, k] - first] = 1
        if k >= book[N_KEPT] - book[N_OWED]:
            place[past_.times[b, 0, k] + 1 - first] = 1
    for k in range(book[N_SPENT]):
        place[past_.times[b, 1, k] - first] = 1
    total = 0
    for i in range(now - first + 2):
        here = place[i]
        place[i] = total
        total += here
    return first, total


@inner_kernel
def list_runs(
    hand: int, first: int, n_times: int, is_alive: NDArray[np.uint8], work: Work, history: History, tiles_now: Integers
) -> int:
    """List the features that were on since `first`, with their runs as places in the table; return how many.

    A feature in the carried trace is listed too. Runs are sorted by feature: counted, then put in their places.
    """
    features, first_run, next_run = work.paper[hand, FEATURES], work.paper[hand, FIRST_RUN], work.paper[hand, NEXT_RUN]
    runs, place, log = work.runs[hand], work.paper[hand, PLACE], history.log
    start = first - history.clock[past.ORIGIN]
    n_log = history.clock[past.N_LOG]
    oldest = n_log
    while oldest > 0 and log[oldest - 1, past.END] > start:
        oldest -= 1
    n_features = history.features.shape[1]
    next_run[:n_features] = 0
    for k in range(oldest, n_log):
        if place[max(log[k, past.START] - start, 0)] < place[log[k, past.END] - start]:
            next_run[log[k, past.FEATURE]] += log[k, past.COUNT]
    for i in range(tiles_now.shape[0]):
        if place[max(history.features[past.SINCE, tiles_now[i]] - first, 0)] < n_times:
            next_run[tiles_now[i]] += 1
    n_listed, n_runs = 0, 0
    for f in range(n_features):
        n = next_run[f]
        if n > 0 or (is_alive.shape[0] > 0 and is_alive[f]):
            features[n_listed], first_run[n_listed] = f, n_runs
            n_listed += 1
        next_run[f] = n_runs
        n_runs += n
    first_run[n_listed] = n_runs
    for k in range(oldest, n_log):
        since, until = place[max(log[k, past.START] - start, 0)], place[log[k, past.END] - start]
        if since < until:
            f = log[k, past.FEATURE]
            for _ in range(log[k, past.COUNT]):
                runs[2 * next_run[f]], runs[2 * next_run[f] + 1] = since, until
                next_run[f] += 1
    for i in range(tiles_now.shape[0]):
        f = tiles_now[i]
        since = place[max(history.features[past.SINCE, f] - first, 0)]
        if since < n_times:
            runs[2 * next_run[f]], runs[2 * next_run[f] + 1] = since, n_times
            next_run[f] += 1
    return n_listed


@inner_kernel
def tabulate(
    b: int,
    hand: int,
    first: int,
    lane: int,
    table: Reals,
    has_m: bool,
    has_e: bool,
    past_: Past,
    lanes: Reals,
    work: Work,
    start: int,
    stop: int,
) -> None:
    """Write the table of some lanes: entry k is the sum of the coefficients of the vectors before the k-th.

    The coefficient of phi_k in theta is alpha (s_k - h_{k-1}), with s_k = rho_k (delta_k + g_{k+1} s_{k+1}) from the
    end; in w it is alpha_w (s_k - q_k), in m s_k with delta_k times its step, in e the product of what follows.
    What arrives before the first step kept is for the carried trace: `ends`.
    """
    book, place, o, width = past_.book[b], work.paper[hand, PLACE], lane - start, table.shape[2]
    trace = pairs_of(past_.trace, start, stop, past_.times.shape[2])
    owed = pairs_of(past_.owed, start, stop, past_.m_steps.shape[1])
    spent = rows_of(past_.spent, start, stop, past_.m_steps.shape[1])
    alpha, alpha_w = lanes[ALPHA, lane : lane + width], lanes[ALPHA_W, lane : lane + width]
    reach, reach_m, left = (
        work.scratch[hand, REACH, :width],
        work.scratch[hand, REACH_M, :width],
        work.scratch[hand, LEFT, :width],
    )
    table[:], reach[:], reach_m[:], left[:] = 0, 0, 0, book[WAS_BUSY]
    last = table.shape[1] - 1
    for k in range(book[N_KEPT] - 1, -1, -1):
        row, at = table[1 + place[past_.times[b, 0, k] - first]], k - book[N_KEPT] + book[N_OWED]
        rho, decay = trace[k, 0, o : o + width], trace[k, 1, o : o + width]
        if at >= 0:
            after, m_step = table[1 + place[past_.times[b, 0, k] + 1 - first], TO_THETA], past_.m_steps[b, at]
            delta, h = owed[at, 0, o : o + width], owed[at, 1, o : o + width]
            for i in range(width):
                reach[i] += delta[i]
                reach_m[i] += delta[i] * m_step
                after[i] -= alpha[i] * h[i]
        for i in range(width):
            s = rho[i] * reach[i]
            row[TO_THETA, i] += alpha[i] * s
            row[TO_W, i] += alpha_w[i] * s
            reach[i] = decay[i] * s
        if has_m:
            for i in range(width):
                s = rho[i] * reach_m[i]
                row[TO_M, i] += s
                reach_m[i] = decay[i] * s
        if has_e:
            for i in range(width):
                s = rho[i] * left[i]
                row[last, i] += s
                left[i] = decay[i] * s
    for k in range(book[N_SPENT]):
        row, q = table[1 + place[past_.times[b, 1, k] - first]], spent[k, o : o + width]
        for i in range(width):
            row[TO_W, i] -= alpha_w[i] * q[i]
    for k in range(1, table.shape[0]):
        for kind in range(table.shape[1]):
            for i in range(width):
                table[k, kind, i] += table[k - 1, kind, i]


@inner_kernel
def spread(
    hand: int,
    n_listed: int,
    lane: int,
    o: int,
    stride: int,
    width: int,
    at: int,
    has_m: bool,
    lanes: Reals,
    work: Work,
    theta: Reals,
    w: Reals,
    m: Reals,
    e: Reals,
) -> None:
    """Give the rows of some lanes their share of the carried trace, and let it decay to what is left of it."""
    reach, reach_m, left = work.scratch[hand, REACH], work.scratch[hand, REACH_M], work.scratch[hand, LEFT]
    for j in range(n_listed):
        row = work.paper[hand, FEATURES, j] * stride
        for i in range(width):
            old = e[row + o + i]
            theta[row + at + i] += lanes[ALPHA, lane + i] * reach[i] * old
            w[row + at + i] += lanes[ALPHA_W, lane + i] * reach[i] * old
            e[row + o + i] = left[i] * old
            if has_m:
                m[row + at + i] += reach_m[i] * old


@inner_kernel
def renew_carried(
    hand: int, n_listed: int, e: Reals, is_alive: NDArray[np.uint8], drop_below: float, work: Work
) -> bool:
    """Let the features leave a carried trace that are too small in every lane; say whether any is left."""
    is_left = False
    for j in range(n_listed):
        row, largest = e[work.paper[hand, FEATURES, j]], 0.0
        for i in range(row.shape[0]):
            largest = max(largest, row[i])
        is_alive[work.paper[hand, FEATURES, j]] = largest > drop_below
        if largest > drop_below:
            is_left = True
        else:
            row[:] = 0
    return is_left


@inner_kernel
def write_owed(
    b: int,
    hand: int,
    tiles: Tiles,
    past_: Past,
    lanes: Reals,
    work: Work,
    history: History,
    tiles_now: Integers,
    origin: int,
    theta: Reals,
    w: Reals,
    m: Reals,
    e: Reals,
    is_alive: NDArray[np.uint8],
) -> int:
    """Add what a tile owes to rows given, flat from `origin` on (`e` from 0), and return the features listed.

    Without `m`, or `e`, where these are empty.
    """
    start, stop = tiles.start[b], tiles.start[b + 1]
    first, n_times = number_times(b, hand, past_, work, history.clock[past.NOW])
    n_listed = list_runs(hand, first, n_times, is_alive, work, history, tiles_now)
    features, first_run, runs = work.paper[hand, FEATURES], work.paper[hand, FIRST_RUN], work.runs[hand]
    has_m, has_e, stride = m.shape[0] > 0, e.shape[0] > 0, stop - start
    n_kinds = 2 + has_m + has_e
    for lane in range(start, stop, LANES_AT_ONCE):
        width, o = min(LANES_AT_ONCE, stop - lane), lane - start
        flat = work.table[hand, : (n_times + 1) * n_kinds * width]
        table, at = flat.reshape(n_times + 1, n_kinds, width), origin + o
        tabulate(b, hand, first, lane, table, has_m, has_e, past_, lanes, work, start, stop)
        if has_e:
            spread(hand, n_listed, lane, o, stride, width, at, has_m, lanes, work, theta, w, m, e)
            write_runs((e,), o, stride, flat, n_kinds - 1, n_kinds, width, features, first_run, n_listed, runs)
        if has_m:
            write_runs((theta, w, m), at, stride, flat, 0, n_kinds, width, features, first_run, n_listed, runs)
        else:
            write_runs((theta, w), at, stride, flat, 0, n_kinds, width, features, first_run, n_listed, runs)
    return int(n_listed)


@inner_kernel
def tail_of(b: int, tiles: Tiles, past_: Past, lanes: Reals, work: Work, hand: int, drop_below: float) -> int:
    """Return how many steps of a tile's trace still matter.

    Beside the 1 of an active feature, what lies before step k weighs at most g_{t+1} (prod of rho g after k) top_k,
    with top_k = rho_k (1 + g_k top_{k-1}) the sum of its coefficients. Under "clipped", g_{t+1} rho_t <= gamma lambda:
    this can only shrink as time goes on, so what is dropped once is below `drop_below` for good. Under "plain" it may
    grow, and only what is exactly 0 is dropped.
    """
    start, stop, book = tiles.start[b], tiles.start[b + 1], past_.book[b]
    trace, n, n_tail = pairs_of(past_.trace, start, stop, past_.times.shape[2]), book[N_KEPT], 0
    if book[WAS_BUSY] == 0:
        return 0
    for lane in range(start, stop, LANES_AT_ONCE):
        width, o = min(LANES_AT_ONCE, stop - lane), lane - start
        top = work.table[hand, : (n + 1) * width].reshape(n + 1, width)
        top[0] = 0
        for k in range(n):
            for i in range(width):
                top[k + 1, i] = trace[k, 0, o + i] * (1 + trace[k, 1, o + i] * top[k, i])
        reach = work.scratch[hand, REACH, :width]
        for i in range(width):
            reach[i] = lanes[GAMMA_T, lane + i] * lanes[LAM_T, lane + i]
        k, is_needed = n - 1, True
        while k >= 0 and is_needed:
            is_needed = False
            for i in range(width):
                is_needed |= reach[i] * top[k + 1, i] > drop_below
                reach[i] *= trace[k, 0, o + i] * trace[k, 1, o + i]
            k -= is_needed
        n_tail = max(n_tail, int(n - 1 - k))
    return n_tail


@inner_kernel
def keep_tail(b: int, n_tail: int, tiles: Tiles, past_: Past) -> None:
    """Keep a tile's last steps as its tail; nothing is owed any more."""
    book, start, stop = past_.book[b], tiles.start[b], tiles.start[b + 1]
    trace, n_before = pairs_of(past_.trace, start, stop, past_.times.shape[2]), book[N_KEPT] - n_tail
    if n_before > 0:
        for k in range(n_tail):
            trace[k] = trace[n_before + k]
            past_.times[b, 0, k] = past_.times[b, 0, n_before + k]
    book[N_KEPT], book[N_OWED], book[N_SPENT] = n_tail, 0, 0


@inner_kernel
def settle(
    b: int,
    hand: int,
    tiles: Tiles,
    memory: Memory,
    past_: Past,
    lanes: Reals,
    work: Work,
    history: History,
    rules: Rules,
    tiles_now: Integers,
) -> None:
    """Write what a tile owes into its weights, and begin anew from the weights as written."""
    start, stop, n, book = tiles.start[b], tiles.start[b + 1], history.features.shape[1], past_.book[b]
    theta, w, m = memory.theta, memory.w, memory.m
    if book[CARRIES] >= 0:
        e, is_alive = memory.carried[book[CARRIES]], memory.is_alive[book[CARRIES]]
        n_listed = write_owed(
            b, hand, tiles, past_, lanes, work, history, tiles_now, n * start, theta, w, m, e, is_alive
        )
        rows = carried_by(b, tiles, memory, past_)
        book[IS_CARRYING] = renew_carried(hand, n_listed, rows, is_alive, rules.drop_carried, work)
        sum_afresh(e, 0, stop - start, tiles_now, lanes[BASE_E, start:stop])
        keep_tail(b, 0, tiles, past_)
    else:
        nobody = work.is_aside[:0]
        write_owed(b, hand, tiles, past_, lanes, work, history, tiles_now, n * start, theta, w, m, theta[:0], nobody)
        n_tail = tail_of(b, tiles, past_, lanes, work, hand, rules.drop_below)
        book[WANTS_CARRY] = n_tail > rules.keep_at_most
        keep_tail(b, n_tail, tiles, past_)
    sum_afresh(memory.theta, n * start, stop - start, tiles_now, lanes[BASE, start:stop])
    sum_afresh(memory.w, n * start, stop - start, tiles_now, lanes[BASE_W, start:stop])
    book[W_AT], book[LIMIT] = history.clock[past.NOW], rules.period
    for i in range(start, stop):
        lanes[SUM, i], lanes[SPENT, i], lanes[TURNED, i], lanes[V, i] = 0, 0, 0, lanes[BASE, i]


# ---- one step -----------------------------------------------------------------------------------------------------


@inner_kernel
def learn_tile(
    b: int,
    hand: int,
    tiles: Tiles,
    signals: Signals,
    memory: Memory,
    past_: Past,
    lanes: Reals,
    work: Work,
    history: History,
    rules: Rules,
    m_step: float,
    first_row: int,
    tiles_t: Integers,
    tiles_tp1: Integers,
) -> None:
    """Let one tile learn from a transition."""
    is_busy = tell(b, tiles, signals, lanes, work)
    look_for_unbounded(b, tiles, memory, lanes, rules, history.features.shape[1], first_row)
    if is_busy or rules.every_step:
        find_q(b, tiles, memory, past_, lanes, history, tiles_t)
    look_ahead(b, hand, tiles, memory, past_, lanes, work, history, tiles_tp1)
    learn_lanes(b, hand, tiles, past_, lanes, work, history, rules, is_busy)
    note(b, past_, history, rules, m_step, is_busy)
    n_spent, now = past_.book[b, N_SPENT], history.clock[past.NOW]
    if n_spent >= past_.book[b, LIMIT] or (n_spent > 0 and now - past_.times[b, 1, 0] >= rules.longest_wait):
        settle(b, hand, tiles, memory, past_, lanes, work, history, rules, tiles_tp1)


@inner_kernel
def give_out(tiles: Tiles, past_: Past, lanes: Reals, history: History, predictions: Floats) -> int:
    """Give out the predictions, find how far back anybody still looks, and return SOMEBODY_... as it applies."""
    n_sick = 0
    for i in range(lanes.shape[1]):
        if tiles.demon[i] >= 0:
            predictions[tiles.demon[i]] = lanes[V, i]
            n_sick += lanes[SICK, i] > 0
    oldest, n_long = history.clock[past.NOW], 0
    for b in range(past_.book.shape[0]):
        oldest = min(oldest, oldest_of(b, past_, history.clock[past.NOW]))
        n_long += past_.book[b, WANTS_CARRY]
    history.clock[past.OLDEST] = oldest
    return SOMEBODY_IS_SICK * (n_sick > 0) + SOMEBODY_WANTS_CARRY * (n_long > 0)


def _learn(
    tiles: Tiles,
    signals: Signals,
    memory: Memory,
    past_: Past,
    lanes: Reals,
    work: Work,
    history: History,
    rules: Rules,
    m_step: float,
    first_row: int,
    tiles_t: Integers,
    tiles_tp1: Integers,
    predictions: Floats,
) -> int:
    """Learn from one transition and write the new predictions.

    Tiles are dealt to the hands in turn. No sum crosses a lane, so the result is the same, bit for bit, for any number
    of hands.
    """
    for hand in prange(rules.n_hands):
        for b in range(np.int64(hand), tiles.start.shape[0] - 1, rules.n_hands):
            learn_tile(
                b,
                np.int64(hand),
                tiles,
                signals,
                memory,
                past_,
                lanes,
                work,
                history,
                rules,
                m_step,
                first_row,
                tiles_t,
                tiles_tp1,
            )
    return int(give_out(tiles, past_, lanes, history, predictions))


# A parallel region costs 2 us on two idle cores and a time slice on busy ones: small problems do without.
learn, learn_alone = parallel_kernel(_learn), kernel(_learn)


@kernel
def begin(
    tiles: Tiles,
    memory: Memory,
    past_: Past,
    lanes: Reals,
    work: Work,
    history: History,
    tiles_now: Integers,
    predictions: Floats,
) -> None:
    """Go on at another feature vector with every trace at zero, and write the predictions there.

    What is owed stays owed: the trace's next decay will be 0. No trace may be carried.
    """
    for b in range(past_.book.shape[0]):
        book = past_.book[b]
        look_ahead(b, 0, tiles, memory, past_, lanes, work, history, tiles_now)
        for i in range(tiles.start[b], tiles.start[b + 1]):
            lanes[V, i] = lanes[BASE, i] + lanes[ALPHA, i] * (lanes[SUM, i] - lanes[TURNED, i])
            lanes[X, i], lanes[Y, i], lanes[Z, i], lanes[TOP, i] = 0, 0, 0, 0
        book[WAS_BUSY] = 0
        if book[N_OWED] == 0:
            book[N_KEPT] = 0
    give_out(tiles, past_, lanes, history, predictions)


@kernel
def settle_tile(
    b: int,
    tiles: Tiles,
    memory: Memory,
    past_: Past,
    lanes: Reals,
    work: Work,
    history: History,
    rules: Rules,
    tiles_now: Integers,
) -> None:
    """Write what one tile owes, out of turn."""
    settle(b, 0, tiles, memory, past_, lanes, work, history, rules, tiles_now)


@kernel
def read_tile(
    b: int,
    tiles: Tiles,
    past_: Past,
    lanes: Reals,
    work: Work,
    history: History,
    tiles_now: Integers,
    theta: Reals,
    w: Reals,
    m: Reals,
    e: Reals,
    is_alive: NDArray[np.uint8],
) -> None:
    """Add what a tile owes to flat copies of its rows, so that reading changes nothing."""
    write_owed(b, 0, tiles, past_, lanes, work, history, tiles_now, 0, theta, w, m, e, is_alive)


@kernel
def predict(
    tiles: Tiles,
    memory: Memory,
    past_: Past,
    lanes: Reals,
    work: Work,
    history: History,
    overlap: NDArray[np.int32],
    active: Integers,
    first_tile: int,
    last_tile: int,
    sums: Reals,
) -> None:
    """Write theta.phi at any feature vector into sums[4], for some tiles; `overlap` are its overlaps with the past."""
    n = history.features.shape[1]
    for b in range(first_tile, last_tile):
        start, stop = tiles.start[b], tiles.start[b + 1]
        x, total, spent, turned, v = (
            sums[0, start:stop],
            sums[1, start:stop],
            sums[2, start:stop],
            sums[3, start:stop],
            sums[4, start:stop],
        )
        x[:] = 0
        if past_.book[b, IS_CARRYING]:
            sum_afresh(memory.carried[past_.book[b, CARRIES]], 0, stop - start, active, x)
        scan(b, 0, tiles, past_, work, history, overlap, (x, total, spent, turned))
        sum_afresh(memory.theta, n * start, stop - start, active, v)
        for i in range(stop - start):
            v[i] += lanes[ALPHA, start + i] * (total[i] - turned[i])
