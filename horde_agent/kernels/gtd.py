"""GTD(lambda) for blocks of demons: the arithmetic of one step, on arrays alone.

A *block* is `W` lanes, one demon each. The lanes of a *shared* block are demons of one (policy, gamma, lambda): they
have one trace, a number per feature. The lanes of a *packed* block belong to small groups: each lane has its own trace.
Blocks are numbered with the shared ones first. An active feature is one contiguous row [theta | w] of a block.

    delta_t = c_{t+1} + (1 - gamma_{t+1}) z_{t+1} + gamma_{t+1} theta_t.phi_{t+1} - theta_t.phi_t
    e_t     = rho_t (phi_t + gamma_t lambda_t e_{t-1})
    theta  += alpha   (delta_t e_t - gamma_{t+1} (1 - lambda_{t+1}) (e_t.w_t) phi_{t+1})
    w      += alpha_w (delta_t e_t - (phi_t.w_t) phi_t)                 times rho_t inside the brackets on request

Every right-hand side uses the weights from before the update. Sources: Maei (2011), GTD(lambda); White, Modayil &
Sutton (2012), pseudo-code. Only features whose trace is not zero are visited: `live` lists them, block by block.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from horde_agent.kernels._jit import kernel, parallel_kernel

Reals = NDArray[Any]  # float32 or float64, the learner's dtype
Tiles = NDArray[np.int64]

UNBOUNDED = np.uint8(1)  # |theta| passed its bound
NOT_FINITE = np.uint8(2)  # a TD error or a prediction is infinite or not a number


class Memory(NamedTuple):
    """What is learned; B blocks (S of them shared), n features, W lanes."""

    rows: Reals  # (B, n, 2, W): theta, then w
    m: Reals  # (B, n, W): the vector MSPBE trace over its common scale, or (B, 0, W) where it is not kept
    e_shared: Reals  # (S, n)
    e_packed: Reals  # (B - S, n, W)
    live: NDArray[np.int32]  # (B, n): the features in the trace, the first n_live[b] of a row
    n_live: NDArray[np.int64]  # (B,)
    is_live: NDArray[np.uint8]  # (B, n)


class Lanes(NamedTuple):
    """One number per lane, all of shape (B, W)."""

    v: Reals  # theta_t.phi_t, the prediction
    delta: Reals
    s: Reals  # scalar MSPBE trace
    c_tp1: Reals
    z_tp1: Reals
    rho_t: Reals
    gamma_t: Reals
    gamma_tp1: Reals
    lam_t: Reals
    lam_tp1: Reals
    alpha: Reals
    alpha_w: Reals
    max_e: Reals  # running max |e|
    bound: Reals  # |theta| that no answer can need
    flags: NDArray[np.uint8]


class Scratch(NamedTuple):
    """Room for sums over rows, all of shape (B, W)."""

    v_tp1: Reals  # theta_t.phi_{t+1}
    q: Reals  # w_t.phi_t
    y: Reals  # e_t.w_t
    decay: Reals  # gamma_t lambda_t
    to_theta: Reals  # alpha delta
    to_w: Reals  # alpha_w delta
    to_m: Reals  # delta / (tau scale)


class Rules(NamedTuple):
    """What distinguishes one learner from another, and the step's own numbers."""

    every_step: bool  # w decays where rho = 0 too
    clip_lambda: bool  # lambda_{t+1} = lambda min(1, 1/rho_t)
    cap: Reals  # (1,): the largest entry of phi + gamma lambda e; inf for none
    drop_below: Reals  # (1,): an entry of e below this leaves the trace
    one_over_tau: float
    m_step: float  # 1 / (tau scale)
    first_row: int  # rows [first_row, last_row) of theta are looked through for weights past their bound
    last_row: int


@kernel
def sum_rows(rows: Reals, b: int, part: int, tiles: Tiles, out: Reals) -> None:
    """Write the sum of a block's rows over the active tiles: theta.phi (part 0) or w.phi (part 1) of every lane."""
    n_by_four = tiles.shape[0] // 4 * 4
    for lane in range(out.shape[0]):
        out[lane] = 0
    for k in range(0, n_by_four, 4):  # four rows at a time: a quarter of the traffic to `out`
        r0, r1 = rows[b, tiles[k], part], rows[b, tiles[k + 1], part]
        r2, r3 = rows[b, tiles[k + 2], part], rows[b, tiles[k + 3], part]
        for lane in range(out.shape[0]):
            out[lane] += (r0[lane] + r1[lane]) + (r2[lane] + r3[lane])
    for k in range(n_by_four, tiles.shape[0]):
        row = rows[b, tiles[k], part]
        for lane in range(out.shape[0]):
            out[lane] += row[lane]


@kernel
def subtract_from_rows(rows: Reals, b: int, part: int, tiles: Tiles, amount: Reals) -> None:
    """Subtract `amount` (one number per lane) from the rows of the active tiles."""
    for k in range(tiles.shape[0]):
        row = rows[b, tiles[k], part]
        for lane in range(amount.shape[0]):
            row[lane] -= amount[lane]


@kernel
def td_errors(b: int, lanes: Lanes, v_tp1: Reals) -> bool:
    """Write delta_t of a block and say whether any of its lanes has rho > 0.

    A delta that is not finite is flagged and taken as 0, so that it never reaches a weight.
    """
    is_live = False
    for lane in range(v_tp1.shape[0]):
        gamma = lanes.gamma_tp1[b, lane]
        delta = lanes.c_tp1[b, lane] + (1 - gamma) * lanes.z_tp1[b, lane] + gamma * v_tp1[lane] - lanes.v[b, lane]
        if not np.isfinite(delta):
            lanes.flags[b, lane] |= NOT_FINITE
            delta = 0.0
        lanes.delta[b, lane] = delta
        is_live |= lanes.rho_t[b, lane] > 0
    return is_live


@kernel
def prepare(b: int, lanes: Lanes, scratch: Scratch, rules: Rules) -> None:
    """Write the coefficients of a block's trace and weight changes; lambda_{t+1} is made from rho_t here."""
    for lane in range(lanes.delta.shape[1]):
        delta, rho = lanes.delta[b, lane], lanes.rho_t[b, lane]
        scratch.decay[b, lane] = lanes.gamma_t[b, lane] * lanes.lam_t[b, lane]
        scratch.to_theta[b, lane] = lanes.alpha[b, lane] * delta
        scratch.to_w[b, lane] = lanes.alpha_w[b, lane] * delta
        scratch.to_m[b, lane] = rules.m_step * delta
        scratch.y[b, lane] = 0
        if rules.clip_lambda and rho > 1:
            lanes.lam_tp1[b, lane] /= rho


@kernel
def enlist(b: int, memory: Memory, tiles: Tiles) -> None:
    """Add the active features to the block's list of live ones."""
    n = memory.n_live[b]
    for k in range(tiles.shape[0]):
        f = tiles[k]
        if memory.is_live[b, f] == 0:
            memory.is_live[b, f] = 1
            memory.live[b, n] = f
            n += 1
    memory.n_live[b] = n


@kernel
def sweep_shared(b: int, memory: Memory, lanes: Lanes, scratch: Scratch, rules: Rules, phi: Reals) -> None:
    """Renew a shared block's trace and carry delta e into theta, w and m; collect y = e_t.w_t.

    One pass over the live rows. `phi` holds phi_t in full, shape (n,). Entries that fell below `drop_below` leave.
    """
    e, live, rho, decay = memory.e_shared[b], memory.live[b], lanes.rho_t[b, 0], scratch.decay[b, 0]
    y, to_theta, to_w, to_m = scratch.y[b], scratch.to_theta[b], scratch.to_w[b], scratch.to_m[b]
    cap, drop_below, max_e = rules.cap[0], rules.drop_below[0], lanes.max_e[b, 0]
    n_kept, keeps_m = 0, memory.m.shape[1] > 0
    for k in range(memory.n_live[b]):
        f = live[k]
        x = rho * min(phi[f] + decay * e[f], cap)
        theta, w = memory.rows[b, f, 0], memory.rows[b, f, 1]
        for lane in range(y.shape[0]):
            y[lane] += x * w[lane]
            theta[lane] += x * to_theta[lane]
            w[lane] += x * to_w[lane]
        if keeps_m:
            m = memory.m[b, f]
            for lane in range(y.shape[0]):
                m[lane] += x * to_m[lane]
        max_e = max(max_e, x)
        if x < drop_below:
            e[f], memory.is_live[b, f] = 0, 0
        else:
            e[f], live[n_kept] = x, f
            n_kept += 1
    memory.n_live[b] = n_kept
    for lane in range(y.shape[0]):
        lanes.max_e[b, lane] = max_e


@kernel
def sweep_packed(
    b: int, first_packed: int, memory: Memory, lanes: Lanes, scratch: Scratch, rules: Rules, phi: Reals
) -> None:
    """Do for a packed block what `sweep_shared` does for a shared one: here each lane has its own trace."""
    e_block, live, rho, decay = memory.e_packed[b - first_packed], memory.live[b], lanes.rho_t[b], scratch.decay[b]
    y, to_theta, to_w, to_m = scratch.y[b], scratch.to_theta[b], scratch.to_w[b], scratch.to_m[b]
    cap, drop_below, max_e = rules.cap[0], rules.drop_below[0], lanes.max_e[b]
    n_kept, keeps_m = 0, memory.m.shape[1] > 0
    for k in range(memory.n_live[b]):
        f = live[k]
        e, theta, w, phi_f = e_block[f], memory.rows[b, f, 0], memory.rows[b, f, 1], phi[f]
        largest = e_block.dtype.type(0)
        for lane in range(y.shape[0]):
            x = rho[lane] * min(phi_f + decay[lane] * e[lane], cap)
            e[lane] = x
            y[lane] += x * w[lane]
            theta[lane] += x * to_theta[lane]
            w[lane] += x * to_w[lane]
            max_e[lane] = max(max_e[lane], x)
            largest = max(largest, x)
        if keeps_m:
            m = memory.m[b, f]
            for lane in range(y.shape[0]):
                m[lane] += e[lane] * to_m[lane]
        if largest < drop_below:
            e[:] = 0
            memory.is_live[b, f] = 0
        else:
            live[n_kept] = f
            n_kept += 1
    memory.n_live[b] = n_kept


@kernel
def clear_trace(b: int, first_packed: int, memory: Memory) -> None:
    """Set a block's trace to zero."""
    for k in range(memory.n_live[b]):
        f = memory.live[b, k]
        memory.is_live[b, f] = 0
        if b < first_packed:
            memory.e_shared[b, f] = 0
        else:
            memory.e_packed[b - first_packed, f, :] = 0
    memory.n_live[b] = 0


@kernel
def correct(b: int, memory: Memory, lanes: Lanes, scratch: Scratch, tiles_tp1: Tiles) -> None:
    """Apply the gradient correction, theta -= alpha gamma_{t+1} (1 - lambda_{t+1}) (e_t.w_t) phi_{t+1}."""
    amount = scratch.to_theta[b]  # spent by now
    for lane in range(amount.shape[0]):
        share = lanes.gamma_tp1[b, lane] * (1 - lanes.lam_tp1[b, lane])
        amount[lane] = lanes.alpha[b, lane] * share * scratch.y[b, lane]
    subtract_from_rows(memory.rows, b, 0, tiles_tp1, amount)


@kernel
def decay_secondary(b: int, memory: Memory, lanes: Lanes, scratch: Scratch, rules: Rules, tiles_t: Tiles) -> None:
    """Apply w -= alpha_w (phi_t.w_t) phi_t, times rho_t where the rule is "importance-weighted"."""
    amount = scratch.to_w[b]
    for lane in range(amount.shape[0]):
        amount[lane] = lanes.alpha_w[b, lane] * scratch.q[b, lane]
        if not rules.every_step:
            amount[lane] *= lanes.rho_t[b, lane]
    subtract_from_rows(memory.rows, b, 1, tiles_t, amount)


@kernel
def look_for_divergence(b: int, memory: Memory, lanes: Lanes, rules: Rules) -> None:
    """Flag lanes whose prediction is not finite, or whose theta passes its bound in the rows of this step's share."""
    for lane in range(lanes.v.shape[1]):
        if not np.isfinite(lanes.v[b, lane]):
            lanes.flags[b, lane] |= NOT_FINITE
    for f in range(rules.first_row, rules.last_row):
        theta = memory.rows[b, f, 0]
        for lane in range(theta.shape[0]):
            if not abs(theta[lane]) <= lanes.bound[b, lane]:  # written so that NaN is caught
                lanes.flags[b, lane] |= UNBOUNDED


@kernel
def learn_block(
    b: int,
    first_packed: int,
    memory: Memory,
    lanes: Lanes,
    scratch: Scratch,
    rules: Rules,
    tiles_t: Tiles,
    tiles_tp1: Tiles,
    phi: Reals,
) -> None:
    """Update the demons of one block from one transition."""
    sum_rows(memory.rows, b, 0, tiles_tp1, scratch.v_tp1[b])
    is_live = td_errors(b, lanes, scratch.v_tp1[b])
    prepare(b, lanes, scratch, rules)
    if is_live or rules.every_step:
        sum_rows(memory.rows, b, 1, tiles_t, scratch.q[b])
    if is_live:
        enlist(b, memory, tiles_t)
        if b < first_packed:
            sweep_shared(b, memory, lanes, scratch, rules, phi)
        else:
            sweep_packed(b, first_packed, memory, lanes, scratch, rules, phi)
        correct(b, memory, lanes, scratch, tiles_tp1)
        sum_rows(memory.rows, b, 0, tiles_tp1, lanes.v[b])
    else:
        clear_trace(b, first_packed, memory)
        lanes.v[b, :] = scratch.v_tp1[b]
    if is_live or rules.every_step:
        decay_secondary(b, memory, lanes, scratch, rules, tiles_t)
    for lane in range(lanes.v.shape[1]):
        sample = lanes.delta[b, lane] * scratch.y[b, lane]
        lanes.s[b, lane] += rules.one_over_tau * (sample - lanes.s[b, lane])
        lanes.gamma_t[b, lane] = lanes.gamma_tp1[b, lane]
        lanes.lam_t[b, lane] = lanes.lam_tp1[b, lane]
    look_for_divergence(b, memory, lanes, rules)


@kernel
def blocks_by_work(rho_t: Reals, order: NDArray[np.int64]) -> None:
    """Write the blocks into `order`, those with most to do first, so that threads can be dealt equal shares."""
    n = 0
    for wanted in (True, False):
        for b in range(rho_t.shape[0]):
            is_live = False
            for lane in range(rho_t.shape[1]):
                is_live |= rho_t[b, lane] > 0
            if is_live == wanted:
                order[n] = b
                n += 1


@parallel_kernel
def learn_all(
    n_hands: int,
    first_packed: int,
    memory: Memory,
    lanes: Lanes,
    scratch: Scratch,
    rules: Rules,
    tiles_t: Tiles,
    tiles_tp1: Tiles,
    phi: Reals,
    order: NDArray[np.int64],
) -> None:
    """Update every block; blocks share `tiles` and `phi` and nothing else, so neither order nor threads matter."""
    blocks_by_work(lanes.rho_t, order)
    for hand in prange(n_hands):
        for k in range(hand, order.shape[0], n_hands):
            learn_block(order[k], first_packed, memory, lanes, scratch, rules, tiles_t, tiles_tp1, phi)


@parallel_kernel
def predict_all(rows: Reals, tiles: Tiles, v: Reals) -> None:
    """Write theta.phi of every lane into `v`, shape (B, W)."""
    for b in prange(rows.shape[0]):
        sum_rows(rows, b, 0, tiles, v[b])


@kernel
def clear_all(first_packed: int, memory: Memory) -> None:
    """Set every trace to zero: the start of a stream, and after every gap."""
    for b in range(memory.n_live.shape[0]):
        clear_trace(b, first_packed, memory)


@kernel
def mark(phi: Reals, tiles: Tiles) -> None:
    """Add the active tiles to a full feature vector."""
    for k in range(tiles.shape[0]):
        phi[tiles[k]] += 1


@kernel
def unmark(phi: Reals, tiles: Tiles) -> None:
    """Set a full feature vector to zero at the active tiles."""
    for k in range(tiles.shape[0]):
        phi[tiles[k]] = 0


@kernel
def first_outside(tiles: Tiles, n_features: int) -> int:
    """Return the position of the first tile outside 0..n_features - 1, or -1."""
    for k in range(tiles.shape[0]):
        if tiles[k] < 0 or tiles[k] >= n_features:
            return k
    return -1
