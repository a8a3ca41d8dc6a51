"""The plain engine's arrays, as its kernels read and write them, and what demons are told in either engine."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[Any]  # float32 or float64, the learner's dtype
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SICK = np.uint8(1)  # a number is not finite or too large, or |theta| passed its bound

# One number per lane: rows of the array `lanes`, shape (N_ROWS, L). One array instead of twenty, since each costs every
# kernel that it passes through half a second of compilation.
V = 0  # theta_t.phi_t, the prediction
V_TP1 = 1  # theta_t.phi_{t+1}
DELTA = 2
S = 3  # scalar MSPBE trace
Q = 4  # w_t.phi_t
Y = 5  # e_t.w_t
C_TP1 = 6
Z_TP1 = 7
RHO_T = 8
GAMMA_T = 9
GAMMA_TP1 = 10
LAM_T = 11
LAM_TP1 = 12
ALPHA = 13
ALPHA_W = 14
DECAY = 15  # gamma_t lambda_t
TO_THETA = 16  # alpha delta
TO_W = 17  # alpha_w delta
TO_M = 18  # delta / (tau scale)
SPENT = 19  # what is subtracted from rows
MAX_E = 20  # running max |e|
BOUND = 21  # |theta| that no answer can need
N_ROWS = 22


class Places(NamedTuple):
    """Who sits where: n_demons demons on L lanes in B blocks, S of them shared."""

    lane: Integers  # (n_demons,): lane of each demon
    group: Integers  # (L,): group of each lane, -1 where it is empty
    start: Integers  # (B + 1,): block b is lanes start[b]..start[b + 1]
    n_shared: int


class Signals(NamedTuple):
    """What the demons are told about one transition; where something is not finite, it is a gap for these demons.

    Attributes:
        rho_t: pi(a_t)/b(a_t), shape (n_groups,); for the span engine that of each policy, shape (n_policies,).
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


class Memory(NamedTuple):
    """What is learned, over n features."""

    theta: Reals  # (n, L)
    w: Reals  # (n, L)
    m: Reals  # (n, L): the vector MSPBE trace over its common scale, or (0, L) where it is not kept
    e_shared: Reals  # (S, n, 1)
    e_packed: Reals  # (n, lanes of the packed blocks)
    live: NDArray[np.int32]  # (B, n): the features in a block's trace, the first n_live[b] of a row
    n_live: Integers  # (B,)
    is_live: NDArray[np.uint8]  # (B, n)
    phi_t: Reals  # (n,): in full
    phi_tp1: Reals  # (n,)


class Work(NamedTuple):
    """Who has work in this step, and who is not well."""

    order: Integers  # (B,): the blocks with rho > 0, the first n_busy[0] of them
    is_busy: NDArray[np.uint8]  # (B,)
    n_busy: Integers  # (1,)
    is_aside: NDArray[np.uint8]  # (L,): set aside: told that nothing happens
    is_skipping: NDArray[np.uint8]  # (L,): this step is a gap
    flags: NDArray[np.uint8]  # (L,): SICK
    dropped: Floats  # (N_BOUNDS, L): what dropping small entries of traces may have changed, see `dropped.py`
    largest: Integers  # (2,): the largest entry of a feature vector so far, and the most active tiles


class Rules(NamedTuple):
    """What distinguishes one learner from another, and the step's own numbers."""

    every_step: bool  # w decays where rho = 0 too
    clip_lambda: bool  # lambda_{t+1} = lambda min(1, 1/rho_t)
    cap: Reals  # (1,): the largest entry of phi + gamma lambda e; inf for none
    drop_below: Reals  # (1,): an entry of e below this leaves the trace
    largest_step: float  # |delta| max e past this flags a demon
    most: float  # the largest number that the learner's type can hold
    one_over_tau: float
    m_step: float  # 1 / (tau scale)
    first_row: int  # rows [first_row, last_row) are looked through: theta for its bound, w and m for what is finite
    last_row: int


class Step(NamedTuple):
    """What is held for the kernels that take one step."""

    places: Places
    memory: Memory
    lanes: Reals  # (N_ROWS, L)
    rules: Rules
    work: Work
    tiles_t: Integers
    tiles_tp1: Integers
