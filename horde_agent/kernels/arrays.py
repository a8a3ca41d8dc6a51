"""The arrays of the span engine, by what they are for, and the constants that name their rows and columns.

A *lane* is the place of one demon, a *tile* a run of lanes whose rows of weights lie together, feature by feature. A
*family* is a run of tiles that write what they owe at the same time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import inlined, inner_kernel
from horde_agent.kernels.checks import Told
from horde_agent.kernels.history import History
from horde_agent.kernels.policies import GibbsParts

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
IS_STALE = 9  # 1: BASE and V are those of an earlier time, and the sums over the past may be
SOON = 10  # so many numbers further lie the rows of the tile that is taken next, 0 if there is none
N_SICK = 11  # lanes that are flagged
N_COLUMNS = 12

# Columns of `Queue.varies`
STATE, OUTCOME = 0, 1

# What a writing adds to, and its place in a table of coefficients; the trace comes last.
TO_THETA, TO_W, TO_M = 0, 1, 2

# Rows of `Work.scratch`: overlaps with the steps kept, with those after them, with those spent; what reaches back
# beyond the first step kept; the tile's numbers of `lanes.py`.
AT, AFTER, SPENT_AT, REACH, REACH_M, LEFT, NUMBERS, N_SCRATCH = 0, 1, 2, 3, 4, 5, 6, 7
# Rows of `Work.paper`: see `number_times` and `list_runs`. Rows of `Work.masks`: see `mask_words`.
PLACE, FEATURES, FIRST_RUN, N_PAPER = 0, 1, 2, 3
N_FILLS, LEADING, NUMBERED, N_MASKS = 6, 6, 7, 8
# Columns of `Work.listed`: whose runs a hand has listed, and when; their first time; how many times and features.
FAMILY, WHEN, FIRST, N_TIMES, N_FEATURES, N_LISTED = 0, 1, 2, 3, 4, 5

LANES_AT_ONCE = 64  # a table of coefficients for so many lanes stays in a core's own cache


class Tiles(NamedTuple):
    """Who sits where: demons on L lanes in T tiles."""

    policy: Integers  # (L,): whose rho a lane is told, -1 (nothing happens) if empty or set aside
    group: Integers  # (L,): whose gamma and lambda, -1 likewise
    cumulant: Integers  # (L,): which of the cumulants a lane is told, -1 likewise
    outcome: Integers  # (L,): whose outcome, -1 likewise
    demon: Integers  # (L,): demon of each lane, -1 where it is empty
    start: Integers  # (T + 1,): tile b is lanes start[b]..start[b + 1]
    family: Integers  # (T,): family of each tile
    first: Integers  # (families + 1,): family f is tiles first[f]..first[f + 1]
    is_mixed: NDArray[np.uint8]  # (families,): 1 where its tiles are of several policies


class Memory(NamedTuple):
    """What is learned, as last written. Tile b's rows are the numbers n start[b]..n start[b + 1]."""

    theta: Reals  # (n L,)
    w: Reals  # (n L,)
    m: Reals  # (n L,): the vector MSPBE trace over its common scale, or (0,) where it is not kept
    carried: Reals  # (places, n widest tile): g_{t+1} e_t at the last writing
    is_alive: NDArray[np.uint8]  # (places, n): the features in a carried trace


class Past(NamedTuple):
    """What each demon keeps of its past: C steps, K of them owed. Tile b's numbers are C (or K) times its lanes."""

    trace: Reals  # (C L,): c_k = rho_k g_{k+1}
    owed: Reals  # (2 K L,): d_k = rho_k delta_k, then h_k
    spent: Reals  # (K L,): q_k
    ratios: Reals  # (2 K L,): rho_k, then g_k, of the steps owed: only `dropped.py` asks for them
    times: Integers  # (T, 2, C): of the steps kept, and of the steps spent
    m_steps: Floats  # (T, K): 1 / (tau scale) at each step owed
    dropped: Floats  # (N_BOUNDS, L): what the tails that were dropped may have changed, see `dropped.py`
    book: Integers  # (T, N_COLUMNS)


class Queue(NamedTuple):
    """What the demons are told about the latest transitions, in the slots of the history: of the one to that time.

    The last column is zero: what lanes are told to which nothing happens.
    """

    rho: Reals  # (slots, n_policies + 1)
    taken: Floats  # (slots, 2): the action taken, and the probability with which the behaviour policy took it
    gamma: Reals  # (slots + 1, n_groups + 1): the last row is that of the latest transition
    lam: Reals  # (slots + 1, n_groups + 1)
    c: Reals  # (slots, n_cumulants + 1)
    z: Reals  # (slots, n_demons + 1)
    varies: NDArray[np.uint8]  # (slots + 1, 2): whether gamma or lambda differ from those before, an outcome from 0
    m_step: Floats  # (slots,)


class Switched(NamedTuple):
    """Which features switch in a batch of steps, and when."""

    features: Integers  # (n,)
    first: Integers  # (2 n + 2,): feature j goes on at steps[first[2j]:first[2j + 1]], off until first[2j + 2]
    steps: NDArray[np.int32]  # (batch 2 most active,): places in the batch


class Work(NamedTuple):
    """Who is not well, and each hand's scratch paper."""

    is_aside: NDArray[np.uint8]  # (L,)
    predictions: Floats  # (n_demons,): at the latest step that was taken
    scratch: Reals  # (hands, N_SCRATCH, longest)
    table: Reals  # (hands, 4 LANES_AT_ONCE (n_times + 2))
    paper: Integers  # (hands, N_PAPER, longest)
    runs: NDArray[np.int32]  # (hands, 2 most runs): each run's ends, as places in the table
    masks: NDArray[np.uint64]  # (hands, N_MASKS, n_times / 64)
    listed: Integers  # (hands, N_LISTED)
    bases: Reals  # (hands, 2, batch widest tile): theta.phi and w.phi at each step of a batch, by weights as written
    turns: Integers  # (N_TURNS,): see `turns.py`


class Span(NamedTuple):
    """All that the span engine reads and writes."""

    tiles: Tiles
    memory: Memory
    past: Past
    lanes: Reals  # (N_ROWS, L), see `lanes.py`
    queue: Queue
    work: Work
    switched: Switched
    history: History


class Rules(NamedTuple):
    """What distinguishes one engine from another."""

    every_step: bool  # w decays where rho = 0 too
    clip_lambda: bool  # lambda_{t+1} = lambda min(1, 1/rho_t)
    drop_below: float  # a tail is dropped when it is below this, beside an active feature's 1, for good
    drop_carried: float  # a feature leaves a carried trace below this
    one_over_tau: float
    largest_step: float  # |delta| max e past this flags a demon
    keep_at_most: int  # steps of tail
    limit: int  # written when so many steps are in `spent`
    longest_wait: int  # steps after which something owed is written


class SpanParts(NamedTuple):
    """What is held for the span engine's kernels."""

    span: Span
    rules: Rules
    gibbs: GibbsParts  # the policies whose ratios the engine makes itself
    told: Told  # what `transition.meet` completes; a hold of its own would cost it half a microsecond


@inlined
def rows_of(rows: Reals, start: int, stop: int, n: int) -> Reals:
    """Return a tile's rows, (n, lanes)."""
    return rows[n * start : n * stop].reshape(n, stop - start)


@inlined
def pairs_of(pairs: Reals, start: int, stop: int, n: int) -> Reals:
    """Return a tile's pairs of rows, (n, 2, lanes)."""
    return pairs[2 * n * start : 2 * n * stop].reshape(n, 2, stop - start)


@inner_kernel
def oldest_of(b: int, past_: Past, now: int) -> int:
    """Return the first time that a tile still needs."""
    book, oldest = past_.book[b], now
    if book[N_KEPT] > 0:
        oldest = min(oldest, past_.times[b, 0, 0])
    if book[N_SPENT] > 0:
        oldest = min(oldest, past_.times[b, 1, 0])
    return oldest
