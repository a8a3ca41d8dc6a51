"""The arrays of the span engine.

Each demon has a *lane*. Adjacent lanes form a *block*, whose rows of weights, one per feature, are
contiguous. Blocks that learn at the same steps form a *flush group*: they write their pending
updates at the same time.

Time counts feature vectors, phi_0, phi_1, ...; their data are in a ring buffer of T times. Features
are *rows*, numbered in the order in which they first become active, so that memory of unused rows
is never touched.

S is a diagonal matrix of factors of step sizes, 1 without `LearnerConfig.rarity`. To learn with S is
to learn from the features sqrt(S) phi, so all inner products of features and traces contain S once,
those with weights do not, and a written update is multiplied by S.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import Constant, inner_kernel
from horde_agent.kernels.vectors import (
    by_most_lanes,
    lanes_of,
    narrow_zeros,
    wide_zeros,
    wider_zeros,
)
from horde_agent.types import Floats, Integers, Reals

Places = NDArray[np.int32]

# Kinds of a flush group's steps (`kind`).
IDLE = 0  # idle: every ratio is 0, the trace ends
DECAYS = 1  # every ratio is 0 but w decays, under the w rule "every-step"; the trace ends
LEARNS = 2

# Lists of runs; numba compiles a kernel once more for each literal int.
FLUSH = np.int64(0)
BATCH = np.int64(1)

NO_TIME = -2  # value of `w_at` that forces the next step to compute `base_w` from the rows of w

LANES_OF_A_TURN = 64  # adjacent lanes that a thread writes where threads share a block

CHUNK = 512  # rows of all blocks that are contiguous and pre-faulted together


class SpanArrays(NamedTuple):
    """Arrays of L lanes in B blocks and G flush groups: n features, T times, K pending steps.

    Arrays of reals are flat, so that a vector of lanes can start at any index. An array with r
    places for each block stores block b from r * start[b] on, one row of its lanes per place;
    weights: see `row_at`.
    """

    # Assignment of lanes. Signal arrays have a last entry of 0, index -1, for empty lanes and
    # diverged demons.
    policy: Integers  # (L,): index of the lane's ratio
    trace_group: Integers  # (L,): index of its gamma and lambda
    cumulant: Integers  # (L,): index of its cumulant
    outcome: Integers  # (L,): index of its outcome
    demon: Integers  # (L,): the demon, -1 for an empty lane
    start: Integers  # (B + 1,): block b is lanes start[b]..start[b + 1]
    flush_group: Integers  # (B,)
    first_block: Integers  # (G + 1,): group g is blocks first_block[g]..first_block[g + 1]
    only_policy: (
        Integers  # (G,): the policy of all its demons; -1 for several, some of which always learn
    )

    # Weights as last written: one row per feature and block.
    theta: Reals
    w: Reals
    m: Reals  # the vector MSPBE trace over its common scale; size 0 without the vector estimate
    average: Reals  # averaged theta, as of the latest average; size 0 without averages

    # History of each demon: one number per transition from phi_k to phi_{k+1}.
    c: Reals  # (C places): c_k = rho_k gamma_{k+1} lambda_{k+1}, at place k mod C
    d: Reals  # (K places): d_k = rho_k delta_k, at place k - flushed_at
    # Those that the rule does not store have size 0.
    h: Reals  # (K places): h_k = gamma_{k+1} (1 - lambda_{k+1}) e_k.w_k
    q: Reals  # (K places): q_k = w_k.phi_k, times rho_k under "importance-weighted"; or the rule's multiple of phi_k
    factor: Reals  # (C places): factor of phi_k in the trace, or of w in a step
    cut: Reals  # (K places): alpha / alpha_k, by which d_k is too small for m; size 0 unless S and m are there
    m_step: Floats  # (T,): the step size of m at k, at place k mod T

    # Schedule of each flush group.
    kind: NDArray[np.uint8]  # (G, T): kind of the step from time k to k + 1, at place k mod T
    flushed_at: Integers  # (G,): time up to which all updates are written
    tail_from: (
        Integers  # (G,): time of the first step that still affects a trace; at most flushed_at
    )
    n_pending: Integers  # (G,): steps since flushed_at that were not idle
    limit: Integers  # (G,): largest n_pending
    limit_of_turn: Integers  # (G,): the first limit after all groups were flushed at once
    average_wait: Integers  # (G,): step before which its averages move by their `rates`, the next being 1; 0: they have

    # One number per lane, (L,).
    prediction: Reals  # theta_t.phi_t
    td_error: Reals  # delta_t
    error_sum: Reals  # sum of rho delta since it was last read
    error_square: Reals  # sum of rho delta^2, likewise
    e_phi: Reals  # e_{t-1}.phi_t
    e_w: Reals  # e_{t-1}.w_t
    e_e: Reals  # |e_{t-1}|^2
    e_sum: Reals  # sum of the factors of e_{t-1}: no entry is larger
    max_trace: Reals  # the largest e_sum so far
    mspbe: Reals  # scalar MSPBE estimate
    largest_gain: (
        Reals  # largest alpha e_k.S.phi_k since features were last classified; 0 if S is 1
    )
    gamma_t: Reals
    lam_t: Reals
    alpha: Reals
    alpha_w: Reals
    bound: Reals  # largest plausible |theta|
    is_flagged: Reals  # 1 once a number was not finite or a weight above its bound
    base: Reals  # theta.phi_t, theta as written
    base_w: Reals  # w.phi at time w_at[block], w as written
    base_average: Reals  # average.phi at the latest completed step; 0 without averages
    d_sum: Reals  # sum d_k e_k.phi_t / rho_k over pending steps
    h_sum: Reals  # sum h_k phi_{k+1}.phi_t
    q_sum: Reals  # sum q_k phi_k.phi_t
    rho: Reals  # rho_t
    gamma_tp1: Reals
    lam_tp1: Reals  # before the trace rule
    c_tp1: Reals  # c_{t+1} + (1 - gamma_{t+1}) z_{t+1}
    w_left: Reals  # product of the factors of w over pending steps
    interest: Reals  # i(s_t)
    skips: Reals  # 1 in a step in which the demon's policy has no ratio, otherwise 0
    rates: Reals  # by which `average_task` moves the averages
    w_at: Integers  # (B,): time of base_w's feature vector

    # Signals of queued steps: those of the step to time t at place t mod the batch.
    signal_rho: Reals  # (batch, n_policies + 1)
    signal_c: Reals  # (batch, n_cumulants + 1)
    signal_gamma: Reals  # (batch + 1, n_groups + 1): the last row is the latest
    signal_lam: Reals  # (batch + 1, n_groups + 1)
    signal_z: Reals  # (batch, n_demons + 1)
    signal_interest: Reals  # (batch + 1, n_demons + 1): the last row is the latest
    # (batch + 1, n_groups + 1): 1 without a ratio; the last row is the latest
    signal_skips: NDArray[np.uint8]
    signal_b: Floats  # (batch,): b(a_t)
    # (batch, 2): whether gamma, lambda, skips or interest differ from before; whether an outcome is not 0.
    signal_changes: Integers

    # History shared by all demons.
    row_of: Integers  # (n,): row of each feature, -1 if it was never on
    feature_of: Integers  # (n,): feature of each row
    bits: NDArray[np.uint64]  # (T, n / 64): phi_k, a bit per row
    active: Integers  # (batch + 1, n_active): active rows at time k, at place k mod (batch + 1)
    changed: (
        Integers  # (2, 2, n_active): rows that switched on, and off, at time k, at place k mod 2
    )
    n_changed: Integers  # (2, 2)
    overlap: Reals  # (batch + 1, T): row j - now of phi_k.S.phi_j, from k = oldest on
    norm: Floats  # (batch + 1,): phi_k.S.phi_k, at place k mod (batch + 1)
    clock: Integers  # (N_CLOCKS,)

    # Step sizes by the rarity of features, S: see `learning/rarity.py`.
    class_bits: NDArray[np.uint64]  # (classes, n / 64): the rows of each class, a bit per row
    class_scale: Floats  # (classes,): factor of the step sizes
    scale: Reals  # (n,): the same by row

    # Runs of times during which a row was active: list 0 for a flush, list 1 for a batch.
    run_row: Places  # (2, n): rows that were active
    run_first: Places  # (2, n): index of a row's first run in run_ends
    run_last: Places  # (2, n): index after its last run
    run_ends: Places  # (2, ...): each run's first place, and the one after its last
    run_time: Integers  # (2, T + 2): times that have a coefficient; the index is the place
    run_place: Places  # (T + 2,): place of each time, from the first flushed time on
    n_runs: Integers  # (2,): rows listed

    # Scratch of each thread, (threads, ...).
    tail_needed: Integers  # (threads,): steps that affect a trace of the group being flushed
    table: Reals  # (threads, (T + 2) kinds lanes of a vector)
    precomputed: Reals  # (threads, 2, (batch + 1) lanes of a vector): base and base_w at each step of a batch

    predictions: Floats  # (n_demons,): at the latest completed step
    averaged: Floats  # (n_demons,): average.phi there

    # Settings.
    every_step: bool  # w decays also if rho = 0
    has_scales: bool  # step sizes depend on the rarity of features: S is not 1
    trace_rule: int  # one of `trace_rules.CODES`
    trace_bound: float  # 1 / c_bar, or psi
    drop_below: float  # a tail below this is dropped; an active feature enters with 1
    largest_tail: int  # steps
    one_over_tau: float  # step size of the MSPBE estimates
    largest_step: float  # |delta| max e at or above this flags a demon
    max_finite: float  # largest finite number of the engine's dtype
    period: int  # K
    longest_wait: int  # steps after which pending updates are written in any case
    n_active: int
    n_threads: int
    most_lanes: (
        Constant  # 16 if every block has fewer than 64 lanes: a third of the time to compile
    )

    # The update rule.
    rule: Any  # its parameters, a NamedTuple of floats
    numbers: Reals  # (its numbers L,): number j of a lane at j L + lane
    n_numbers: Constant  # the first numbers, which a gap keeps
    has_w: Constant  # 1 or 0, as below: it has secondary weights
    has_h: Constant  # it stores h of each step
    has_q: Constant  # q
    has_source: Constant  # a factor with which phi enters the trace
    has_w_factor: Constant  # a factor by which the step shrinks w
    has_interest: Constant  # it reads the interest
    rests: Constant  # a step with rho = 0 moves weights by multiples of phi_t only


# Places in `clock`
NOW = 0
N_ROWS = 1
OLDEST = 2
IS_KNOWN = 3  # 1: gamma and lambda equal those of the latest step, and all outcomes are 0
FLUSHED = 4  # time up to which the current group is being flushed
N_PLACES = 5  # places in the tables of the group being flushed
N_CLOCKS = 6


@inner_kernel
def row_at(r: int, first: int, width: int, stride: int) -> int:
    """Return the index of row `r` of a block of `width` lanes; rows start at `first`, chunks are `stride` apart."""
    return (r // CHUNK) * stride + first + (r % CHUNK) * width


def over_block(work: Any, longest: Any = wide_zeros) -> Any:
    """Return a kernel (span, b, how) that calls `work(span, b, lane, how, zero)` for all lanes of block b.

    `zero` sets the number of lanes from `lane` on: 64 or that of `longest`, or 80 if otherwise 16
    would remain; 16 if `span.most_lanes` is 16, so that `work` is compiled once, not three times.
    """

    @inner_kernel
    def each_of_16(span: SpanArrays, b: int, how: Any) -> None:
        narrow = narrow_zeros(span.theta)
        for lane in range(span.start[b], span.start[b + 1], lanes_of(narrow)):
            work(span, b, lane, how, narrow)

    @inner_kernel
    def each(span: SpanArrays, b: int, how: Any) -> None:
        row = longest(span.theta)
        narrow = narrow_zeros(span.theta)
        wider = wider_zeros(span.theta)
        wide = wide_zeros(span.theta)
        lane = span.start[b]
        end = span.start[b + 1]
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

    return by_most_lanes(each, each_of_16)
