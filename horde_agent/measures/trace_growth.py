"""Growth of a trace's second moment: whether a target policy can be learned from a behaviour policy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

HEAVY_TAILS_FROM, INFINITE_VARIANCE_FROM = 0.5, 1.0


class TraceGrowth(NamedTuple):
    """Growth per step of the second moment of a "plain" trace, and a warning ("" below 0.5)."""

    factor: float
    warning: str


def trace_growth(target: ArrayLike, behaviour: ArrayLike, gamma: float, lam: float) -> TraceGrowth:
    """Return the factor by which E[e^2] grows per step under the trace rule "plain".

    The trace is multiplied by rho gamma lambda on each step, so its second moment grows with the spectral radius of
    M[l, a] = pi(a)^2 / b(a | l), times (gamma lambda)^2; l is the last action. From 1 on the variance is infinite.

    Args:
        target: pi(a), shape (n_actions,); for a policy that depends on the state, its values in some state.
        behaviour: b(a | l), shape (n_actions, n_actions), or (n_actions,) without memory.
        gamma: Continuation.
        lam: Trace decay.

    Raises:
        ValueError: If the target takes an action that the behaviour never takes.
    """
    pi, b = np.asarray(target, dtype=np.float64), np.asarray(behaviour, dtype=np.float64)
    b = np.broadcast_to(b, (pi.size, pi.size))
    taken = np.broadcast_to(pi > 0, b.shape)
    if (b[taken] <= 0).any():
        raise ValueError("behaviour must give every action of the target policy a probability above 0")
    moments = np.divide(pi**2, b, out=np.zeros(b.shape), where=taken)
    factor = float(np.abs(np.linalg.eigvals(moments)).max()) * (gamma * lam) ** 2
    if factor >= INFINITE_VARIANCE_FROM:
        return TraceGrowth(factor, f"infinite variance: the second moment is multiplied by {factor:.3f} per step")
    if factor >= HEAVY_TAILS_FROM:
        return TraceGrowth(factor, f"heavy tails: the second moment is multiplied by {factor:.3f} per step")
    return TraceGrowth(factor, "")
