"""A transition in one call: what the demons are told is looked through, noted, and learned from.

Handing arrays to a kernel costs as much as what one of these does, so that a step with few demons is mostly calls.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels import history as past
from horde_agent.kernels import span
from horde_agent.kernels._jit import inlined, inner_kernel, kernel
from horde_agent.kernels.arrays import OUTCOME, STATE, Queue, SpanParts
from horde_agent.kernels.checks import add_up, complete
from horde_agent.kernels.gtd_arrays import Signals
from horde_agent.kernels.held import look_into
from horde_agent.kernels.history import History

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@inner_kernel
def take_in(
    history: History,
    queue: Queue,
    rho_t: Floats,
    c_tp1: Floats,
    tiles_tp1: Integers,
    action: int,
    probability: float,
    m_step: float,
) -> int:
    """Receive `tiles_tp1`, and keep what is new about the way there on each step; return its slot."""
    slot = past.receive(history, tiles_tp1)
    rho, c = queue.rho[slot], queue.c[slot]
    for p in range(rho_t.shape[0]):
        rho[p] = rho_t[p]
    for i in range(c_tp1.shape[0]):
        c[i] = c_tp1[i]
    queue.taken[slot, 0], queue.taken[slot, 1] = action, probability
    queue.m_step[slot] = m_step
    return int(slot)


@inner_kernel
def take_in_states(queue: Queue, slot: int, gamma_tp1: Floats, lam_tp1: Floats, z_tp1: Floats, is_last: bool) -> None:
    """Keep the continuations, trace decays and outcomes, and note whether the first two differ from those before.

    Where the stream ends, continuations are 0.
    """
    gamma, lam, z = queue.gamma[slot], queue.lam[slot], queue.z[slot]
    gamma_before, lam_before = queue.gamma[queue.gamma.shape[0] - 1], queue.lam[queue.lam.shape[0] - 1]
    n, n_same, n_outcomes, goes_on = gamma_tp1.shape[0], 0, 0, np.float64(not is_last)
    for g in range(n):  # several short loops, since numba makes vectors of such alone
        gamma[g] = goes_on * gamma_tp1[g]
    for g in range(n):
        lam[g] = lam_tp1[g]
    for g in range(n):
        n_same += (gamma[g] == gamma_before[g]) & (lam[g] == lam_before[g])
    for i in range(z_tp1.shape[0]):
        z[i] = z_tp1[i]
        n_outcomes += z_tp1[i] != 0
    if n_same < n:
        for g in range(n):
            gamma_before[g], lam_before[g] = gamma[g], lam[g]
    queue.varies[slot, STATE], queue.varies[slot, OUTCOME] = n_same < n, n_outcomes > 0


@inlined
def take_on(held: SpanParts, entry: int, n_steps: int, n_hands: int, predictions: Floats) -> int:
    """Observe what was received, and let all demons take the last `n_steps` steps, if any.

    Where that is one, observing is a job beside the policies'. Returned is, too, whether a feature is on too often.
    """
    parts = look_into(held)
    history, found = parts.span.history, 0
    if n_steps != 1:
        past.observe(history)
    if n_steps > 0:
        found = span.learn(held, entry, n_steps, n_hands, predictions)
    most = history.counts[past.slot_of(history, history.clock[past.NOW]), past.MOST]
    return int(found | span.TOO_OFTEN * (most > parts.gibbs.parameters.most_repeats[0]))


@kernel
def step(
    held: SpanParts,
    signals: Signals,
    tiles_tp1: Integers,
    m_step: float,
    entry: int,
    n_steps: int,
    n_hands: int,
    predictions: Floats,
) -> int:
    """Take in the transition to `tiles_tp1`, then let all demons take the last `n_steps` steps, if any: see `learn`.

    `signals` are held.
    """
    of_engine, told = look_into(held).span, look_into(signals)
    history, queue = of_engine.history, of_engine.queue
    if not past.has_room(history, tiles_tp1.shape[0], 1):
        return span.NO_ROOM
    slot = take_in(history, queue, told.rho_t, told.c_tp1, tiles_tp1, 0, 1.0, m_step)
    take_in_states(queue, slot, told.gamma_tp1, told.lam_tp1, told.z_tp1, np.bool_(False))
    return int(take_on(held, entry, n_steps, n_hands, predictions))


@kernel
def meet(
    held: SpanParts,
    observation: Floats,
    tiles_tp1: Integers,
    action: int,
    probability: float,
    is_inspected: bool,
    is_last: bool,
    m_step: float,
    entry: int,
    n_steps: int,
    n_hands: int,
    predictions: Floats,
) -> int:
    """Inspect what the demons are told (`checks.py`), and where there is nothing to say, do as `step`.

    Where it was inspected already, it is not again. `is_last` says that the stream ends here: all continuations are 0.
    """
    of_engine, told = look_into(held).span, look_into(held).told
    history, queue, n_varies = of_engine.history, of_engine.queue, of_engine.queue.varies.shape[0]
    if not is_inspected:
        found = complete(told, observation, tiles_tp1, action, probability)
        if found != 0:
            return int(found)
    if not past.has_room(history, tiles_tp1.shape[0], 1):
        return span.NO_ROOM
    slot = take_in(history, queue, told.rho, told.c, tiles_tp1, action, probability, m_step)
    if told.is_fixed and told.seen[0] and not is_last and not queue.varies[n_varies - 1, OUTCOME]:
        queue.varies[slot, STATE], queue.varies[slot, OUTCOME] = 0, 0
    else:
        take_in_states(queue, slot, told.gamma, told.lam, told.z, is_last)
    queue.varies[n_varies - 1, OUTCOME] = queue.varies[slot, OUTCOME]
    told.seen[0] = not is_last
    add_up(told)
    return int(take_on(held, entry, n_steps, n_hands, predictions))
