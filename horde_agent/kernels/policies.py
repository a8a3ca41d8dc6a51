"""Action probabilities of many Gibbs policies at once, from an index of their parameters by feature.

    pi_u(a) = exp(-u_a.phi) / sum_a' exp(-u_a'.phi)

A policy has few nonzero parameters (60 of 30,325 in the paper), and few features switch between two
steps. The sums u_a.phi, the *logits*, are therefore updated: entries of features that became active
are added, entries of features that became inactive subtracted, about 2.7 of 60 per policy. Integer
multiples of 2^-24 make this exact: there is no drift, the order is free, and the logits depend only
on the current tiles.

Policies are stored in blocks of at most 4,096, so that a block's logits fit into a core's L2 cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels._jit import inlined, inner_kernel, kernel
from horde_agent.kernels.tiles import switched
from horde_agent.kernels.vectors import on_threads, prefetch
from horde_agent.types import Floats, Integers

Numbers = NDArray[Any]  # int32 in units of 2^-24, or float64

UNIT = 2.0**-24  # of an integer logit
LARGEST = 63.0  # |logit|: the difference of two logits fits an int32
LANES_AT_ONCE = 256  # policies per sweep over probabilities; they fit into a core's L1 cache
_NEAR = (
    1 << 17
)  # entries that fit into a core's L2 cache: prefetching them costs more than it saves
_ENTRIES_OF_LINE = 8  # at most, in a cache line
_AHEAD = 8  # features to prefetch

# 2^r for |r| <= 1/2: polynomial of degree 5 with a relative error of at most 7.5e-8.
_C0, _C1, _C2, _C3, _C4, _C5 = (
    np.float32(c)
    for c in (
        1.000000072,
        0.6931469671,
        0.2402211973,
        0.05550713288,
        0.009675541239,
        0.001327646713,
    )
)
_LOG2E = np.float32(UNIT / np.log(2.0))
_LOWEST = np.float32(-126.0)  # below 2^-126 a float32 is denormal
_ROUNDER = np.float32(
    1.5 * 2.0**23
)  # added to a small float32, it leaves the nearest integer in the last bits


class GibbsArrays(NamedTuple):
    """The policies' parameters by block, in the order of the features (compressed sparse columns), and their logits."""

    first: Integers  # (n_blocks + 1,): block b is the policies first[b]..first[b + 1]
    start: Integers  # (n_blocks, n_features + 2): entries start[b, f]..start[b, f + 1] belong to feature f
    entry: Numbers  # (n_entries, 2): place, action * (policies in the block) + policy in the block; value
    position: Integers  # (n_policies,): index of each ratio in `ratios`
    logits: Numbers  # (n_actions n_policies,): u_a.phi; each block's by action, then policy
    tiles: Integers  # (n_active,): active features of the logits
    gained: Integers  # (n_active,): features that became active
    lost: Integers  # (n_active,): features that became inactive
    balance: Integers  # (n_features + 1,): zero between calls
    low: NDArray[np.int32]  # (n_blocks, LANES_AT_ONCE): scratch
    sums: NDArray[np.float32]  # (n_blocks, 2, LANES_AT_ONCE): scratch
    request: (
        Floats  # (4,): the action taken, its probability, the numbers of features gained and lost
    )
    ratios: Floats  # output
    n_threads: int


# ---- one policy ---------------------------------------------------------------------------------


@kernel
def gibbs_probabilities(
    feature: Integers, action: Integers, value: Floats, tiles: Integers, out: Floats
) -> None:
    """Write one policy's pi(a) into `out`, shape (n_actions,); its entries are sorted by feature."""
    out[:] = 0.0
    for k in range(tiles.shape[0]):
        low = 0
        high = feature.shape[0]
        while low < high:
            middle = (low + high) // 2
            if feature[middle] < tiles[k]:
                low = middle + 1
            else:
                high = middle
        while low < feature.shape[0] and feature[low] == tiles[k]:
            out[action[low]] -= value[low]
            low += 1
    top = out.max()
    total = 0.0
    for a in range(out.shape[0]):
        out[a] = np.exp(out[a] - top)
        total += out[a]
    for a in range(out.shape[0]):
        out[a] /= total


# ---- logits of a block --------------------------------------------------------------------------


@inner_kernel
def add_features(b: int, of: GibbsArrays, features: Integers, n: int, sign: int) -> None:
    """Add (sign 1) or subtract (sign -1) the entries of the first n features, (n_active,), to a block's logits."""
    start = of.start[b]
    entry = of.entry
    logits = logits_of(b, of)
    is_far = entry.shape[0] > _NEAR
    for k in range(n):
        if is_far:
            prefetch(start, features[min(k + 2 * _AHEAD, n - 1)], 0.0)
            soon = features[min(k + _AHEAD, n - 1)]
            for i in range(start[soon], start[soon + 1], _ENTRIES_OF_LINE):
                prefetch(entry[i], 0, 0.0)
        # unsigned: never from the end
        first = np.uint64(start[features[k]])
        last = np.uint64(start[features[k] + 1])
        for i in range(first, last):
            logits[np.uint64(entry[i, 0])] += sign * entry[i, 1]


@inlined
def logits_of(b: int, of: GibbsArrays) -> Numbers:
    """Return a block's logits, shape (n_actions * policies in the block,)."""
    n_actions = of.logits.shape[0] // of.first[-1]
    return of.logits[n_actions * of.first[b] : n_actions * of.first[b + 1]]


@inner_kernel
def sum_logits(b: int, of: GibbsArrays) -> None:
    """Compute a block's logits at the current tiles from scratch."""
    logits_of(b, of)[:] = 0
    add_features(b, of, of.tiles, of.tiles.shape[0], 1)


@inner_kernel
def move_logits(b: int, of: GibbsArrays) -> None:
    """Update a block's logits by the features gained and lost."""
    n_gained = int(of.request[2])
    n_lost = int(of.request[3])
    if n_gained + n_lost < of.tiles.shape[0]:
        add_features(b, of, of.gained, n_gained, 1)
        add_features(b, of, of.lost, n_lost, -1)
    else:
        sum_logits(b, of)


# ---- from logits to ratios ----------------------------------------------------------------------


@inner_kernel
def exp_of_minus(difference: np.int32) -> Any:
    """Return exp(-difference 2^-24) in float32 for a difference of at least 0; plain arithmetic vectorises."""
    x = max(-np.float32(difference) * _LOG2E, _LOWEST)
    rounded = np.float32(x + _ROUNDER)
    r = x - (rounded - _ROUNDER)
    r2 = r * r  # two short sums have a shorter chain of dependent additions
    p = (_C0 + _C1 * r) + r2 * ((_C2 + _C3 * r) + r2 * (_C4 + _C5 * r))
    power = np.int32(
        (rounded.view(np.int32) << np.int32(23)) + np.int32(127 << 23)
    )  # the bits of 2^whole
    return p * power.view(np.float32)


@inner_kernel
def fixed_ratios(b: int, of: GibbsArrays) -> None:
    """Write pi(action)/b(action) of a block's policies from integer logits."""
    logits = logits_of(b, of)
    action = int(of.request[0])
    over = 1.0 / of.request[1]
    first = of.first[b]
    width = of.first[b + 1] - of.first[b]
    n_actions = logits.shape[0] // width
    for since in range(0, width, LANES_AT_ONCE):
        n = min(LANES_AT_ONCE, width - since)
        low = of.low[b, :n]
        total = of.sums[b, 0, :n]
        weights_of_action = of.sums[b, 1, :n]
        for i in range(n):
            low[i] = logits[since + i]
            total[i] = 0
        for a in range(1, n_actions):
            row = logits[a * width + since : a * width + since + n]
            for i in range(n):
                low[i] = min(low[i], row[i])
        for a in range(n_actions):
            row = logits[a * width + since : a * width + since + n]
            if a == action:
                for i in range(n):
                    weights_of_action[i] = exp_of_minus(np.int32(row[i] - low[i]))
            else:
                for i in range(n):
                    total[i] += exp_of_minus(np.int32(row[i] - low[i]))
        for i in range(n):
            total[i] = weights_of_action[i] / (total[i] + weights_of_action[i])
        for i in range(n):
            of.ratios[of.position[first + since + i]] = over * total[i]


@inner_kernel
def float_ratios(b: int, of: GibbsArrays) -> None:
    """Write pi(action)/b(action) of a block's policies from float64 logits."""
    logits = logits_of(b, of)
    action = int(of.request[0])
    probability = of.request[1]
    first = of.first[b]
    width = of.first[b + 1] - of.first[b]
    for i in range(width):
        low = logits[i]
        total = 0.0
        for a in range(1, logits.shape[0] // width):
            low = min(low, logits[a * width + i])
        for a in range(logits.shape[0] // width):
            total += np.exp(low - logits[a * width + i])
        of.ratios[of.position[first + i]] = (
            np.exp(low - logits[action * width + i]) / total / probability
        )


def do_task(of: GibbsArrays, thread: int, in_floats: int) -> int:
    """Update the logits of a thread's blocks and write their ratios.

    Float64 logits are computed from scratch on each step, because updated sums would drift.
    """
    for b in range(thread, of.start.shape[0], of.n_threads):
        if in_floats:
            sum_logits(b, of)
            float_ratios(b, of)
        else:
            move_logits(b, of)
            fixed_ratios(b, of)
    return 0


@kernel
def gibbs_ratios(
    of: GibbsArrays, entry: Any, tiles: Integers, action: int, probability: float, in_floats: int
) -> None:
    """Write rho = pi(action | tiles)/b(action) of every policy; tiles (n_active,), `entry` the address of `do_task`."""
    n_gained, n_lost = switched(of.tiles, tiles, of.balance, of.gained, of.lost)
    for k in range(tiles.shape[0]):
        of.tiles[k] = tiles[k]
    of.request[0] = action
    of.request[1] = probability
    of.request[2] = n_gained
    of.request[3] = n_lost
    on_threads(entry, of, of.n_threads, in_floats)
