"""What the span engine reads and writes, by name.

Each demon has a *lane*. Lanes that lie side by side are a *block*: its rows of weights, one per feature, lie together.
Blocks that learn at the same steps are a *flush group*: they write what is pending at the same time.

Time is counted in feature vectors, phi_0, phi_1, ...; what belongs to one lies in a ring of T times. Features are
*rows*, numbered in the order in which they are first on, so that the memory behind the rest is never touched.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import inner_kernel, made_kernel
from horde_agent.kernels.vectors import lanes_of, narrow_zeros, wide_zeros, wider_zeros
from horde_agent.types import Floats, Integers, Reals

Places = NDArray[np.int32]

# What a flush group does from one time to the next (`kind`).
RESTS = 0  # nothing: every ratio is 0, the trace ends
DECAYS = 1  # w decays though every ratio is 0, under the w rule "every-step"; the trace ends
LEARNS = 2

FLUSH, BATCH = 0, 1  # lists of runs

NO_TIME = -2  # value of `w_at` that forces the next step to compute `base_w` from the rows of w

CHUNK = 512  # rows of all blocks that lie together: memory is put behind so many at once


class SpanArrays(NamedTuple):
    """All that kernels read and write: L lanes in B blocks and G flush groups, n features, T times, K steps pending.

    Arrays of reals are flat, so that a vector of lanes can be read anywhere. One that has a row of each block's lanes
    for each of r places has block b's at r * start[b], place by place; weights: see `row_at`.
    """

    # Who sits where. Signals are told with one more at the end, 0: for lanes that are empty or set aside, number -1.
    policy: Integers  # (L,): whose ratio a lane is told
    trace_group: Integers  # (L,): whose gamma and lambda
    cumulant: Integers  # (L,): which cumulant
    outcome: Integers  # (L,): which outcome
    demon: Integers  # (L,): whose lane it is
    start: Integers  # (B + 1,): block b is lanes start[b]..start[b + 1]
    flush_group: Integers  # (B,)
    first_block: Integers  # (G + 1,): group g is blocks first_block[g]..first_block[g + 1]
    only_policy: Integers  # (G,): the policy of all its demons; -1 for several, some of which always learn

    # What is learned, as last written: a row per feature and block.
    theta: Reals
    w: Reals
    m: Reals  # the vector MSPBE trace over its common scale; of size 0 where it is not kept

    # The past of each demon, k before the present: numbers of the transition from phi_k to phi_{k+1}.
    c: Reals  # (C places): c_k = rho_k gamma_{k+1} lambda_{k+1}, at place k mod C
    d: Reals  # (K places): d_k = rho_k delta_k, at place k - flushed_at
    h: Reals  # (K places): h_k = gamma_{k+1} (1 - lambda_{k+1}) e_k.w_k
    q: Reals  # (K places): q_k = w_k.phi_k, times rho_k under "importance-weighted"
    m_step: Floats  # (T,): the step of m at k, at place k mod T

    # The books of each flush group.
    kind: NDArray[np.uint8]  # (G, T): what it did from time k on, at place k mod T
    flushed_at: Integers  # (G,): time up to which all is written
    tail_from: Integers  # (G,): time of the first step that still matters to a trace; at most flushed_at
    n_pending: Integers  # (G,): steps since flushed_at that are not rests
    limit: Integers  # (G,): flushed before more are pending
    tail_needed: Integers  # (B,): steps of its tail that matter, found when it is flushed

    # One number per lane, (L,).
    prediction: Reals  # theta_t.phi_t
    td_error: Reals  # delta_t
    e_phi: Reals  # e_{t-1}.phi_t
    e_w: Reals  # e_{t-1}.w_t
    e_e: Reals  # |e_{t-1}|^2
    e_sum: Reals  # sum of the factors of e_{t-1}: no entry is larger
    max_trace: Reals  # the largest e_sum so far
    mspbe: Reals  # scalar MSPBE estimate
    gamma_t: Reals
    lam_t: Reals
    alpha: Reals
    alpha_w: Reals
    bound: Reals  # |theta| that no answer can need
    is_flagged: Reals  # 1 once a number was not finite, or a weight past its bound
    base: Reals  # theta.phi_t, theta as written
    base_w: Reals  # w.phi at time w_at[block], w as written
    d_sum: Reals  # sum d_k e_k.phi_t / rho_k over what is pending
    h_sum: Reals  # sum h_k phi_{k+1}.phi_t
    q_sum: Reals  # sum q_k phi_k.phi_t
    rho: Reals  # rho_t, as told
    gamma_tp1: Reals
    lam_tp1: Reals
    c_tp1: Reals  # c_{t+1} + (1 - gamma_{t+1}) z_{t+1}
    w_at: Integers  # (B,): time of the feature vector that base_w is about

    # What was told of the steps that are not taken yet: of the one to time t at place t mod the batch.
    signal_rho: Reals  # (batch, n_policies + 1)
    signal_c: Reals  # (batch, n_cumulants + 1)
    signal_gamma: Reals  # (batch + 1, n_groups + 1): the last row is the latest
    signal_lam: Reals  # (batch + 1, n_groups + 1)
    signal_z: Reals  # (batch, n_demons + 1)
    signal_changes: Integers  # (batch, 2): whether gamma or lambda differ from before; whether an outcome is not 0

    # What all demons share of the past.
    row_of: Integers  # (n,): row of each feature, -1 if it was never on
    feature_of: Integers  # (n,): feature of each row
    bits: NDArray[np.uint64]  # (T, n / 64): phi_k, a bit per row
    active: Integers  # (batch + 1, n_active): rows that are on at time k, at place k mod (batch + 1)
    changed: Integers  # (2, 2, n_active): rows that went on, and off, at time k, at place k mod 2
    n_changed: Integers  # (2, 2)
    overlap: Reals  # (batch + 1, T): row j - now of phi_k.phi_j, from k = oldest on
    clock: Integers  # (N_CLOCKS,)

    # The runs of times during which a row was on: what a flush (list 0), and a batch (1), need to know of the past.
    run_row: Places  # (2, n): rows that were on
    run_first: Places  # (2, n): where a row's runs begin in run_ends
    run_last: Places  # (2, n): where they end
    run_ends: Places  # (2, ...): each run's first place, and the one after its last
    run_time: Integers  # (2, T + 2): the times that have a coefficient, in their order: their places
    run_place: Places  # (T + 2,): how many times before each have one, from the first that is flushed on
    n_runs: Integers  # (2,): rows listed

    # Each thread's scratch paper, (threads, ...).
    table: Reals  # (threads, (T + 2) kinds lanes of a vector)
    foreseen: Reals  # (threads, 2, (batch + 1) lanes of a vector): base and base_w at each step of a batch

    predictions: Floats  # (n_demons,): at the latest step that was taken

    # The rules.
    every_step: bool  # w decays where rho = 0 too
    clips: bool  # lambda_{t+1} = lambda min(1, 1/rho_t)
    drop_below: float  # a tail is dropped when it is below this, beside an active feature's 1
    largest_tail: int  # steps
    one_over_tau: float
    largest_step: float  # |delta| max e past this flags a demon
    max_finite: float  # the largest number of the engine's type
    period: int  # K
    longest_wait: int  # steps after which what is pending is written, however little it is
    n_active: int
    n_threads: int


# Places in `clock`
NOW, N_ROWS, OLDEST = 0, 1, 2
IS_KNOWN = 3  # 1: gamma and lambda are those of the latest step, and no outcome differs from 0
FLUSHED = 4  # time up to which the group is flushed that is being flushed
N_PLACES = 5  # places in the tables of the group that is being flushed
N_CLOCKS = 6


@inner_kernel
def row_at(r: int, first: int, width: int, stride: int) -> int:
    """Return where row `r` begins of a block of `width` lanes, its rows beginning at `first`, chunks `stride` apart."""
    return (r // CHUNK) * stride + first + (r % CHUNK) * width


def over_block(work: Any, longest: Any = wide_zeros) -> Any:
    """Return a kernel (span, b, how) that does `work(span, b, lane, how, zero)` for all lanes of block b.

    `zero` says how many lanes from `lane` on: 64, or as many as `longest` has, but 80 where else 16 would be left over.
    """

    @made_kernel
    def each(span: SpanArrays, b: int, how: Any) -> None:
        row, wider, wide = longest(span.theta), wider_zeros(span.theta), wide_zeros(span.theta)
        lane, end, narrow = span.start[b], span.start[b + 1], narrow_zeros(span.theta)
        while lane < end:
            if end - lane >= lanes_of(wider) and (end - lane) % lanes_of(wide) != 0:
                work(span, b, lane, how, wider)
                lane += lanes_of(wider)
            elif end - lane >= lanes_of(row):
                work(span, b, lane, how, row)
                lane += lanes_of(row)
            elif end - lane >= lanes_of(wide):
                work(span, b, lane, how, wide)
                lane += lanes_of(wide)
            else:
                work(span, b, lane, how, narrow)
                lane += lanes_of(narrow)

    return each
