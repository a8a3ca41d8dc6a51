"""How the bounds on what dropped tails may have changed move on by one step; `dropped.py` has the derivation.

A formula like those of `lanes.py`: ordinary Python on anything that adds and multiplies, compiled for sixteen lanes at
a time. Bounds are float64 in any engine.
"""

from __future__ import annotations

from typing import Any

# One number per lane: rows of the array `dropped`. Those further on are scratch.
LOST = 0  # beta at the last writing
LEAK = 1  # eta there, with the change of w
TOP = 2  # T there
MOVED = 3  # sum |delta| beta
LEAKED = 4  # sum eta
GROWTH = 5  # sum kappa, since the first loss

# What a step says: rows in other arrays.
RHO, DECAY, D, SPENT, ALPHA, ALPHA_W = 6, 7, 8, 9, 10, 11
# The same for all lanes: places in `numbers`. No entry of a feature vector is larger, and no |phi|^2.
MOST, NORM = 0, 1


def bounds_step(at: Any, number: Any) -> None:
    """Move the bounds on by a step with g = `at[DECAY]` and rho delta = `at[D]`."""
    rho, decay, rate = at[RHO], at[DECAY], at[ALPHA_W]
    moves, spent = at.maximum(at[D], at[D] * -1.0), at.maximum(at[SPENT], at[SPENT] * -1.0)
    beta, reached = decay * at[LOST], decay * at[TOP] + number[MOST]  # over rho
    lost, top, leak = rho * beta, rho * reached, rho * decay * at[LEAK]
    moved = at[MOVED] + moves * beta
    kappa = top * number[NORM] * at.maximum(at[ALPHA] * 3.0, rate * 2.0)
    kappa = kappa + at.maximum(rate * rho * number[NORM] - 2.0, 0.0)
    at[LEAKED] = at[LEAKED] + leak
    at[GROWTH] = at[GROWTH] + at.choose(moved > 0.0, kappa, 0.0)
    at[LEAK] = leak + rate * number[NORM] * (moves * beta * top + lost * spent)
    at[LOST], at[TOP], at[MOVED] = lost, top, moved
