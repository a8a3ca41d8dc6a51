"""An update rule of one's own: TD(lambda) with a limited TD error, the gradient of Huber's loss.

    cd examples; horde learn --algorithm my_rules:huber_td:limit=0.5

    delta_t, e_t as in `td`;   theta_{t+1} = theta_t + alpha max(-limit, min(limit, delta_t)) e_t

A rule is a file, or a class, with the names listed in `horde_agent/kernels/rules/__init__.py`. Its
functions are compiled; without `SPAN` it needs `learn` alone and runs on the plain engine.

Source: Huber (1964), Robust estimation of a location parameter.
"""

from typing import NamedTuple

from horde_agent.kernels import plain
from horde_agent.kernels.lanes import Update
from horde_agent.kernels.vectors import choose

RANGES = {"limit": "(0, inf)"}
SPAN = ()  # on the span engine a step stores what `td` stores


class HuberTD(NamedTuple):
    """The largest TD error; every parameter has a default."""

    limit: float = 1.0


def learn(rule, i, demons, step):
    """Update demon `i` in place: plain engine, full vectors."""
    delta = plain.td_error(i, demons, step)
    delta = min(max(delta, -rule.limit), rule.limit)
    e = demons.vectors[0, i]
    if plain.update_trace(i, demons, e, step, 1.0):
        plain.add_vector(demons.theta[i], demons.alpha[i] * delta, e)
    plain.update_estimates(i, demons, step, delta, e, 0.0)


def lane_step(rule, span, lane, step, trace, zero):
    """Return the step's delta: span engine, one number of each demon."""
    delta = choose(step.delta > rule.limit, zero + rule.limit, step.delta)
    delta = choose(delta < zero - rule.limit, zero - rule.limit, delta)
    delta = step.fraction * delta
    return Update(delta=delta, h=zero, q=zero, w_factor=zero + 1.0, e_w=zero)
