"""Trace rules: lambda_{t+1} from the question's lambda and the action's b and rho = pi / b; for any update rule.

    "plain"         lambda
    "clipped"       lambda min(1, c_bar/rho)        c_bar = 1: V-trace, Retrace
    "tree-backup"   lambda b
    "abtd"          min(psi b, 1, 1/rho)
    "capped"        lambda; entries of phi_t + gamma_t lambda_t e_{t-1} are at most 1 (`kernels/plain.py`)

GTD(lambda) with trace_rule="clipped" is gradient V-trace, with "tree-backup" gradient tree backup.

Sources: Precup, Sutton & Singh (2000), tree backup; Munos, Stepleton, Harutyunyan & Bellemare
(2016), Retrace; Espeholt et al. (2018), V-trace; Mahmood, Yu & Sutton (2017), ABTD.
"""

from __future__ import annotations

import numpy as np

from horde_agent.kernels._jit import inlined_kernel
from horde_agent.kernels.lanes import Lanes
from horde_agent.kernels.vectors import choose
from horde_agent.types import Floats

PLAIN = 0
CLIPPED = 1
TREE_BACKUP = 2
ABTD = 3

CODES = {"plain": PLAIN, "clipped": CLIPPED, "tree-backup": TREE_BACKUP, "abtd": ABTD}
"""Numbers of the trace rules that the span engine has."""


def next_lambda(
    trace_rule: str, bound: float, lam: Floats, rho: Floats, b: float | Floats
) -> Floats:
    """Return lambda_{t+1} from the questions' lambda and ratios, (n_demons,), and b(a_t); `bound` is c_bar or psi."""
    match trace_rule:
        case "clipped":
            return lam / np.maximum(rho / bound, 1.0)
        case "tree-backup":
            return lam * b
        case "abtd":
            return np.minimum(bound * b, 1.0 / np.maximum(rho, 1.0))
    return lam


@inlined_kernel
def next_lambda_of_lanes(
    code: int, bound: float, lam: Lanes, rho: Lanes, b: float, zero: Lanes
) -> Lanes:
    """Return lambda_{t+1} of a vector of lanes; `code` is one of `CODES`, `bound` 1 / c_bar or psi."""
    if code == CLIPPED:
        scaled = rho * bound
        return lam / choose(scaled > 1.0, scaled, zero + 1.0)
    if code == TREE_BACKUP:
        return lam * b
    if code == ABTD:
        lam = 1.0 / choose(rho > 1.0, rho, zero + 1.0)
        return choose(lam < bound * b, lam, zero + bound * b)
    return lam
