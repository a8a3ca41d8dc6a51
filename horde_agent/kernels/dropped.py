"""What dropping the tails of traces may have changed: a rigorous bound per demon, kept when what is owed is written.

Where an engine works with e' = e - eps, e the trace of which nothing is dropped, eps obeys the trace's own recursion
and so does a number beta with |eps| <= beta M and eps.phi <= beta N (M the largest entry of any phi, N the largest
|phi|^2; all entries are at least 0):

    beta_t = rho_t g_t beta_{t-1}, and at a drop beta += what is dropped

With the sum T_t = rho_t (M + g_t T_{t-1}) of the coefficients of e, the scalar that stands for e.w is wrong by at most

    eta_t = rho_t g_t (eta_{t-1} + alpha_w N beta_{t-1} (|delta_{t-1}| T_{t-1} + |spent_{t-1}|))

since its recursion asks for e.e and e.phi, and gets them with e' in the place of one e. By the TD errors that the
engine made, the full trace would have written a theta that differs in no entry by more than

    alpha M (sum |delta_t| beta_t + sum eta_t)                   and a w by no more than alpha_w M sum |delta_t| beta_t

A learner that drops nothing also makes other TD errors from then on. The difference u of its (theta, w), the larger of
the two Euclidean lengths, grows by no more than a factor of 1 + kappa_t per step, and then

    u <= sqrt(N) max(alpha, alpha_w) (sum |delta_t| beta_t + sum eta_t) exp(sum kappa_t)
    kappa_t = N T_t max(3 alpha, 2 alpha_w) + max(0, alpha_w rho_t N - 2),   if alpha_w N <= 2

from |gamma phi' - phi| <= 2 sqrt(N), |e| <= T sqrt(N), gamma (1 - lambda) <= 1 and |I - alpha_w phi phi'| <= 1.
Nothing is assumed of rho: the bound holds under every trace rule. In the plain engine (`gtd.py`) the same numbers are
kept on each step. There e'.w is what stands for e.w, eta is a bound on sum eps |w|, and a drop adds to it. An entry
that is capped makes eps smaller.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import history as past
from horde_agent.kernels._jit import inner_kernel, kernel
from horde_agent.kernels.arrays import (
    N_KEPT,
    N_OWED,
    N_SPENT,
    WAS_BUSY,
    Integers,
    Reals,
    Span,
    SpanParts,
    pairs_of,
    rows_of,
)
from horde_agent.kernels.bounds import LEAK, LOST, MOVED, TOP
from horde_agent.kernels.held import look_into
from horde_agent.kernels.lanes import ALPHA, ALPHA_W, GAMMA_T, LAM_T, RHO_T
from horde_agent.kernels.lanes import TOP as TOP_NOW
from horde_agent.kernels.vectors import move_bounds

Floats = NDArray[np.float64]

SCRATCH, SQUARE, N_BOUNDS = 6, 7, 8  # further rows of the array `dropped`, shape (N_BOUNDS, L): see `bounds.py`


@inner_kernel
def largest_of(history: past.History) -> tuple[int, int]:
    """Return M and N: no entry of a feature vector was larger, and no |phi|^2."""
    most = max(1, (1 << history.clock[past.PLANES]) - 1)
    return most, most * history.tiles.shape[1]


@inner_kernel
def lost_anything(dropped: Floats, start: int, stop: int) -> bool:
    """Say whether a tile ever dropped anything that mattered, or may yet."""
    lost = False
    for i in range(start, stop):
        lost |= dropped[LOST, i] > 0 or dropped[MOVED, i] > 0
    return lost


@inner_kernel
def account(b: int, span: Span, dropped: Floats) -> None:
    """Move a tile's bounds, in `dropped`, on through the steps that it owes."""
    past_, start, stop, book = span.past, span.tiles.start[b], span.tiles.start[b + 1], span.past.book[b]
    if not lost_anything(dropped, start, stop):
        return
    most, norm = largest_of(span.history)
    ratios = pairs_of(past_.ratios, start, stop, past_.m_steps.shape[1])
    owed = pairs_of(past_.owed, start, stop, past_.m_steps.shape[1])
    spent = rows_of(past_.spent, start, stop, past_.m_steps.shape[1])
    alpha, alpha_w = span.lanes[ALPHA, start:stop], span.lanes[ALPHA_W, start:stop]
    first, j = book[N_KEPT] - book[N_OWED], 0
    for k in range(book[N_OWED]):
        while j + 1 < book[N_SPENT] and past_.times[b, 1, j] != past_.times[b, 0, first + k]:
            j += 1
        move_bounds(dropped, start, ratios[k, 0], ratios[k, 1], owed[k, 0], spent[j], alpha, alpha_w, most, norm)


@inner_kernel
def lose_tail(b: int, n_tail: int, span: Span) -> None:
    """Note that of a tile's trace only the last `n_tail` steps are kept: what is lost are the others' coefficients."""
    past_, start, stop = span.past, span.tiles.start[b], span.tiles.start[b + 1]
    n, lost, sums = past_.book[b, N_KEPT], past_.dropped[LOST, start:stop], past_.dropped[SCRATCH, start:stop]
    if past_.book[b, WAS_BUSY] == 0 or n_tail == n:
        return
    trace, rho_t = rows_of(past_.trace, start, stop, past_.times.shape[2]), span.lanes[RHO_T, start:stop]
    sums[:] = 0
    for k in range(n - 1):
        c, enters = trace[k], np.float64(k < n - n_tail)
        for i in range(sums.shape[0]):
            sums[i] = c[i] * (enters + sums[i])
    for i in range(sums.shape[0]):
        lost[i] += rho_t[i] * ((n_tail == 0) + sums[i])


@inner_kernel
def lose_rows(b: int, features: Integers, e: Reals, drop_below: float, span: Span) -> None:
    """Note which rows of a carried trace will be dropped: those of `features` below `drop_below` in every lane.

    Entries of different features do not add up in |eps|: their largest counts, and their length over sqrt(N). What is
    carried is g_{t+1} e_t.
    """
    dropped, start, width = span.past.dropped, span.tiles.start[b], e.shape[1]
    lost, largest = dropped[LOST, start : start + width], dropped[SCRATCH, start : start + width]
    square, norm = dropped[SQUARE, start : start + width], largest_of(span.history)[1]
    largest[:], square[:] = 0, 0
    for f in features:
        row, top = e[f], 0.0
        for i in range(width):
            top = max(top, row[i])
        if 0 < top <= drop_below:
            for i in range(width):
                largest[i] = max(largest[i], row[i])
                square[i] += np.float64(row[i]) * row[i]
    for i in range(width):
        g = np.float64(span.lanes[GAMMA_T, start + i]) * span.lanes[LAM_T, start + i]
        if g > 0:
            lost[i] += max(largest[i], np.sqrt(square[i] / max(norm, 1))) / g


@inner_kernel
def stand_at_present(b: int, span: Span) -> None:
    """Begin anew from the trace of the present; one that has ended has lost nothing."""
    dropped, start, stop = span.past.dropped, span.tiles.start[b], span.tiles.start[b + 1]
    for i in range(start, stop):
        dropped[TOP, i] = span.lanes[TOP_NOW, i]
        if span.past.book[b, WAS_BUSY] == 0:
            dropped[LOST, i], dropped[LEAK, i] = 0, 0


@kernel
def read_bounds(held: SpanParts, dropped: Floats) -> tuple[int, int]:
    """Move a copy of all tiles' bounds on to the present, and return M and N."""
    span = look_into(held).span
    for b in range(span.past.book.shape[0]):
        account(b, span, dropped)
    most, norm = largest_of(span.history)
    return most, norm
