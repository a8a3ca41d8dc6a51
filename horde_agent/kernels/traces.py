"""Traces that are stored: renewed, cut where nothing is left of them, and cleared.

    e_t = rho_t (phi_t + gamma_t lambda_t e_{t-1})

A shared block has a number per feature, a packed one a number per feature and lane. Only features whose trace is not
zero are visited: `live` lists them, block by block. What is dropped is noted, for the bounds of `dropped.py`.
"""

from __future__ import annotations

import numpy as np

from horde_agent.kernels import bounds, dropped
from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.gtd_arrays import (
    DECAY,
    MAX_E,
    RHO_T,
    Floats,
    Integers,
    Memory,
    Places,
    Reals,
    Rules,
    Work,
)


@inner_kernel
def enlist(b: int, memory: Memory, tiles: Integers) -> None:
    """Add the active features to the block's list of live ones."""
    n = memory.n_live[b]
    for k in range(tiles.shape[0]):
        f = tiles[k]
        if memory.is_live[b, f] == 0:
            memory.is_live[b, f] = 1
            memory.live[b, n] = f
            n += 1
    memory.n_live[b] = n


@inner_kernel
def renew_shared_trace(b: int, start: int, stop: int, memory: Memory, lanes: Reals, rules: Rules) -> None:
    """Write a shared block's e_t = rho_t (phi_t + gamma_t lambda_t e_{t-1}), a number per live feature."""
    e, live, rho, decay = memory.e_shared[b, :, 0], memory.live[b], lanes[RHO_T, start], lanes[DECAY, start]
    cap, max_e = rules.cap[0], lanes[MAX_E, start]
    for k in range(memory.n_live[b]):
        x = rho * min(memory.phi_t[live[k]] + decay * e[live[k]], cap)
        e[live[k]] = x
        max_e = max(max_e, x)
    for i in range(start, stop):
        lanes[MAX_E, i] = max_e


@inner_kernel
def renew_packed_trace(b: int, start: int, stop: int, first: int, memory: Memory, lanes: Reals, rules: Rules) -> None:
    """Write a packed block's e_t, a number per live feature and lane."""
    rho, decay, max_e = lanes[RHO_T, start:stop], lanes[DECAY, start:stop], lanes[MAX_E, start:stop]
    cap = rules.cap[0]
    for k in range(memory.n_live[b]):
        e, phi = memory.e_packed[memory.live[b, k], start - first : stop - first], memory.phi_t[memory.live[b, k]]
        for i in range(e.shape[0]):
            e[i] = rho[i] * min(phi + decay[i] * e[i], cap)
            max_e[i] = max(max_e[i], e[i])


@inner_kernel
def drop_small(b: int, e: Reals, places: Places, memory: Memory, drop_below: float, work: Work) -> None:
    """Let the features whose trace fell below `drop_below` in every lane leave the block's list; `e` as in `move_w`."""
    live, n_kept, start, stop = memory.live[b], 0, places.start[b], places.start[b + 1]
    lost = work.dropped[:, start:stop]
    lost[dropped.SCRATCH], lost[dropped.SQUARE] = 0, 0
    for k in range(memory.n_live[b]):
        f, i = live[k], 0
        while i < e.shape[1] and e[f, i] < drop_below:
            i += 1
        if i == e.shape[1]:
            memory.is_live[b, f] = 0
            lose(e[f], memory.w[f, start:stop], lost)
            forget(b, f, places, memory)
        else:
            live[n_kept] = f
            n_kept += 1
    memory.n_live[b] = n_kept
    norm = work.largest[0] * work.largest[1]
    for i in range(stop - start):
        lost[bounds.LOST, i] += max(lost[dropped.SCRATCH, i], np.sqrt(lost[dropped.SQUARE, i] / max(norm, 1)))


@inner_kernel
def lose(e: Reals, w: Reals, lost: Floats) -> None:
    """Note that an entry of the trace is dropped, of each lane of a block."""
    for i in range(w.shape[0]):
        entry = np.float64(e[min(i, e.shape[0] - 1)])
        lost[dropped.SCRATCH, i] = max(lost[dropped.SCRATCH, i], entry)
        lost[dropped.SQUARE, i] += entry * entry
        lost[bounds.LEAK, i] += entry * abs(np.float64(w[i]))


@inner_kernel
def forget(b: int, f: int, places: Places, memory: Memory) -> None:
    """Set one feature's trace to zero in a block."""
    first = places.start[places.n_shared]
    if b < places.n_shared:
        memory.e_shared[b, f, 0] = 0
    else:
        for i in range(places.start[b] - first, places.start[b + 1] - first):
            memory.e_packed[f, i] = 0


@inner_kernel
def clear_trace(b: int, places: Places, memory: Memory) -> None:
    """Set a block's trace to zero."""
    for k in range(memory.n_live[b]):
        memory.is_live[b, memory.live[b, k]] = 0
        forget(b, memory.live[b, k], places, memory)
    memory.n_live[b] = 0
