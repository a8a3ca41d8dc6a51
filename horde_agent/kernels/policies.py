"""Action probabilities of many Gibbs policies at once, from an index of who looks at which feature.

    pi_u(a) = exp(-u_a.phi) / sum_a' exp(-u_a'.phi)

A policy has few parameters that are not zero (60 of 30,325 in the paper), and few features switch from one step to the
next. So the sums u_a.phi, the *logits*, are kept, and only the entries of the features that went on are added and of
those that went off subtracted: about 2.7 of 60 per policy. In whole numbers, multiples of 2^-24, that is exact: nothing
drifts, the order is free, and the logits depend on the present tiles alone, however one got there.

The policies come in blocks of a few thousand, whose logits stay in a core's own cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import history as past
from horde_agent.kernels._jit import entry_kernel, inlined, inner_kernel, kernel, prefetch
from horde_agent.kernels.entry import share_out
from horde_agent.kernels.held import look_into
from horde_agent.kernels.tiles import switched

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Numbers = NDArray[Any]  # int32 in units of 2^-24, or float64

UNIT = 2.0**-24  # of a logit in whole numbers
LARGEST = 63.0  # |logit|: so that the difference of two, too, is an int32
LANES_AT_ONCE = 256  # policies whose probabilities are found in one sweep, in a core's first cache
_AHEAD = 8  # features whose entries are asked for before they are needed

# Rows of `GibbsState.features`
PHI = 0  # how often each feature is among the present tiles
BALANCE = 1  # zero between calls
GAINED, LOST = 2, 3

# 2^r for |r| <= 1/2, the polynomial of fifth degree that is nowhere off by more than 7.5e-8 of it.
_C0, _C1, _C2, _C3, _C4, _C5 = (
    np.float32(c) for c in (1.000000072, 0.6931469671, 0.2402211973, 0.05550713288, 0.009675541239, 0.001327646713)
)
_LOG2E = np.float32(UNIT / np.log(2.0))
_LOWEST = np.float32(-126.0)  # below 2^-126 a float32 is denormal
_ROUNDER = np.float32(1.5 * 2.0**23)  # added to a small float32, it leaves the nearest whole number in the last bits


class GibbsIndex(NamedTuple):
    """The policies' parameters by block, in the order of the features (compressed sparse columns)."""

    first: Integers  # (n_blocks + 1,): block b is the policies first[b]..first[b + 1]
    start: Integers  # (n_blocks, n_features + 2): entries start[b, f]..start[b, f + 1] belong to feature f
    entry: Numbers  # (n_entries, 2): place, action * (policies in the block) + policy in the block; value
    position: Integers  # (n_policies,): where the caller wants each ratio
    most_repeats: Floats  # (1,): a feature that is on more often may need logits past LARGEST


class GibbsState(NamedTuple):
    """What is kept from step to step, and scratch paper."""

    logits: Numbers  # (n_actions n_policies,): u_a.phi; each block's by action, then policy
    at: Integers  # (n_blocks,): time of the feature vector that they are about, for `follow_logits`
    tiles: Integers  # (n_active,): features at which they are, and the next two, for `gibbs_ratios`
    features: Integers  # (4, at least n_features + 1 and n_active): rows PHI, BALANCE, GAINED, LOST
    low: NDArray[np.int32]  # (n_blocks, LANES_AT_ONCE)
    sums: NDArray[np.float32]  # (n_blocks, 2, LANES_AT_ONCE)
    ratios: Floats  # (n_policies,): pi(action) / probability, the latest
    totals: Floats  # (2, n_policies): sum of the ratios that were handed out, and of their squares
    asked: Floats  # (2,): the action taken, and with which probability, for `gibbs_ratios`


class GibbsParts(NamedTuple):
    """What is held for the kernels that make ratios."""

    parameters: GibbsIndex
    state: GibbsState


# ---- one policy -----------------------------------------------------------------------------------------------------


@kernel
def gibbs_probabilities(feature: Integers, action: Integers, value: Floats, tiles: Integers, out: Floats) -> None:
    """Write one policy's pi(a) into `out`, shape (n_actions,); its entries are in increasing order of the feature."""
    out[:] = 0.0
    for k in range(tiles.shape[0]):
        low, high = 0, feature.shape[0]
        while low < high:
            middle = (low + high) // 2
            if feature[middle] < tiles[k]:
                low = middle + 1
            else:
                high = middle
        while low < feature.shape[0] and feature[low] == tiles[k]:
            out[action[low]] -= value[low]
            low += 1
    top, total = out.max(), 0.0
    for a in range(out.shape[0]):
        out[a] = np.exp(out[a] - top)
        total += out[a]
    for a in range(out.shape[0]):
        out[a] /= total


# ---- logits of a block ----------------------------------------------------------------------------------------------


@inner_kernel
def add_features(b: int, index: GibbsIndex, features: Integers, n: int, sign: int, logits: Numbers) -> None:
    """Add (sign 1) or subtract (sign -1) the entries of n features."""
    start, entry = index.start[b], index.entry
    for k in range(n):
        prefetch(start, features[min(k + 2 * _AHEAD, n - 1)])
        soon = min(start[features[min(k + _AHEAD, n - 1)]], entry.shape[0] - 1)
        prefetch(entry[soon], 0)
        for i in range(start[features[k]], start[features[k] + 1]):
            logits[np.uint64(entry[i, 0])] += sign * entry[i, 1]


@inlined
def logits_of(b: int, index: GibbsIndex, state: GibbsState) -> Numbers:
    """Return a block's logits, shape (n_actions * policies in the block,)."""
    n_actions = state.logits.shape[0] // index.first[-1]
    return state.logits[n_actions * index.first[b] : n_actions * index.first[b + 1]]


@inner_kernel
def sum_logits(b: int, index: GibbsIndex, state: GibbsState, tiles: Integers, n: int) -> None:
    """Write a block's logits at the first n `tiles`, from scratch."""
    logits = logits_of(b, index, state)
    logits[:] = 0
    add_features(b, index, tiles, n, 1, logits)


@inner_kernel
def move_logits(
    b: int, index: GibbsIndex, state: GibbsState, gained: Integers, n_gained: int, lost: Integers, n_lost: int
) -> None:
    """Move a block's logits on by the features that went on and off."""
    logits = logits_of(b, index, state)
    add_features(b, index, gained, n_gained, 1, logits)
    add_features(b, index, lost, n_lost, -1, logits)


@inner_kernel
def follow_logits(b: int, time: int, index: GibbsIndex, state: GibbsState, history: past.History) -> None:
    """Bring a block's logits to the feature vector at a time that is in the history's slots."""
    slot = past.slot_of(history, time)
    n_tiles, n_gained, n_lost = history.counts[slot, past.N_TILES : past.N_LOST + 1]
    if state.at[b] == time - 1 and n_gained + n_lost < n_tiles:
        changed = history.changed[slot]
        move_logits(b, index, state, changed[past.GAINED], n_gained, changed[past.LOST], n_lost)
    elif state.at[b] != time:
        sum_logits(b, index, state, history.tiles[slot], n_tiles)
    state.at[b] = time


@inner_kernel
def switch_features(state: GibbsState, tiles: Integers) -> tuple[int, int, int]:
    """Make `tiles` the present ones.

    Returns:
        How many features went on and off, and how often one is among the tiles that went on.
    """
    phi, gained, lost = state.features[PHI], state.features[GAINED], state.features[LOST]
    n_gained, n_lost = switched(state.tiles, tiles, state.features[BALANCE], gained, lost)
    most = 0
    for k in range(n_lost):
        phi[lost[k]] -= 1
    for k in range(n_gained):
        phi[gained[k]] += 1
        most = max(most, phi[gained[k]])
    for k in range(tiles.shape[0]):
        state.tiles[k] = tiles[k]
    return n_gained, n_lost, most


# ---- from logits to ratios ------------------------------------------------------------------------------------------


@inner_kernel
def exp_of_minus(difference: np.int32) -> Any:
    """Return exp(-difference 2^-24) in float32, for a difference of at least 0; with plain arithmetic, for vectors."""
    x = max(-np.float32(difference) * _LOG2E, _LOWEST)
    rounded = np.float32(x + _ROUNDER)
    r = x - (rounded - _ROUNDER)
    r2 = r * r  # two short sums: a long one would wait for each of its terms
    p = (_C0 + _C1 * r) + r2 * ((_C2 + _C3 * r) + r2 * (_C4 + _C5 * r))
    power = np.int32((rounded.view(np.int32) << np.int32(23)) + np.int32(127 << 23))  # the bits of 2^whole
    return p * power.view(np.float32)


@inner_kernel
def fixed_ratios(b: int, asked: float, probability: float, index: GibbsIndex, state: GibbsState) -> None:
    """Write pi(action)/b(action) of a block's policies, from logits in whole numbers, for the action asked about."""
    logits, action, rho = logits_of(b, index, state), int(asked), state.ratios
    first, width = index.first[b], index.first[b + 1] - index.first[b]
    n_actions = logits.shape[0] // width
    for since in range(0, width, LANES_AT_ONCE):
        n = min(LANES_AT_ONCE, width - since)
        low, total, taken = state.low[b, :n], state.sums[b, 0, :n], state.sums[b, 1, :n]
        for i in range(n):
            low[i], total[i] = logits[since + i], 0
        for a in range(1, n_actions):
            row = logits[a * width + since : a * width + since + n]
            for i in range(n):
                low[i] = min(low[i], row[i])
        for a in range(n_actions):
            row = logits[a * width + since : a * width + since + n]
            if a == action:
                for i in range(n):
                    taken[i] = exp_of_minus(np.int32(row[i] - low[i]))
            else:
                for i in range(n):
                    total[i] += exp_of_minus(np.int32(row[i] - low[i]))
        out, over = rho[first + since : first + since + n], 1.0 / probability
        for i in range(n):
            total[i] = taken[i] / (total[i] + taken[i])
        for i in range(n):
            out[i] = over * total[i]


@inner_kernel
def float_ratios(b: int, index: GibbsIndex, state: GibbsState) -> None:
    """Write pi(action)/b(action) of a block's policies, from logits in float64."""
    logits, action, probability, rho = logits_of(b, index, state), int(state.asked[0]), state.asked[1], state.ratios
    first, width = index.first[b], index.first[b + 1] - index.first[b]
    for i in range(width):
        low, total = logits[i], 0.0
        for a in range(1, logits.shape[0] // width):
            low = min(low, logits[a * width + i])
        for a in range(logits.shape[0] // width):
            total += np.exp(low - logits[a * width + i])
        rho[first + i] = np.exp(low - logits[action * width + i]) / total / probability


@inner_kernel
def hand_out(b: int, index: GibbsIndex, state: GibbsState, rho: Numbers) -> None:
    """Write a block's ratios to their positions, and add them up."""
    first, last = index.first[b], index.first[b + 1]
    ratios, position = state.ratios[first:last], index.position[first:last]
    total, squares = state.totals[0, first:last], state.totals[1, first:last]
    for i in range(last - first):
        rho[position[i]] = ratios[i]
    for i in range(last - first):
        total[i] += ratios[i]
        squares[i] += ratios[i] * ratios[i]


@entry_kernel
def take_turns(held: GibbsParts, hand: int, n_gained: int, n_lost: int, n_hands: int) -> None:
    """Move a hand's blocks on by the features that switched, and write their ratios."""
    parts = look_into(held)
    index, state = parts.parameters, parts.state
    for b in range(hand, index.start.shape[0], n_hands):
        if n_gained + n_lost < state.tiles.shape[0]:
            move_logits(b, index, state, state.features[GAINED], n_gained, state.features[LOST], n_lost)
        else:
            sum_logits(b, index, state, state.tiles, state.tiles.shape[0])
        fixed_ratios(b, state.asked[0], state.asked[1], index, state)


@entry_kernel
def take_turns_in_floats(held: GibbsParts, hand: int, _n_gained: int, _n_lost: int, n_hands: int) -> None:
    """Do as `take_turns` in float64, from scratch on each step: sums that were only corrected would drift."""
    parts = look_into(held)
    index, state = parts.parameters, parts.state
    for b in range(hand, index.start.shape[0], n_hands):
        sum_logits(b, index, state, state.tiles, state.tiles.shape[0])
        float_ratios(b, index, state)


@kernel
def gibbs_ratios(
    held: GibbsParts, entry: int, n_hands: int, tiles: Integers, action: int, probability: float, rho: Floats
) -> int:
    """Write rho = pi(action)/b(action) of every policy to its position, and return how often a feature is on.

    Nowhere if `rho` is empty: the state's ratios are what was asked for.
    `entry` is where `take_turns`, or `take_turns_in_floats`, begins.
    """
    parts = look_into(held)
    state, position = parts.state, parts.parameters.position
    state.asked[0], state.asked[1] = action, probability
    n_gained, n_lost, most = switch_features(state, tiles)
    share_out(entry, held, n_gained, n_lost, n_hands)
    for i in range(position.shape[0] if rho.shape[0] > 0 else 0):
        rho[position[i]] = state.ratios[i]
    return int(most)
