"""Emphatic TD(lambda), with interest.

    F_t = rho_{t-1} gamma_t F_{t-1} + i_t;   M_t = lambda_t i_t + (1 - lambda_t) F_t
    e_t = rho_t (M_t phi_t + gamma_t lambda_t e_{t-1});   theta_{t+1} = theta_t + alpha delta_t e_t

The interest i_t >= 0 of a state is that of the question (`GVF.interest`, default 1); F = i at the start of a stream.

Weakness: stable in expectation, but of infinite variance where E[rho^2] gamma^2 >= 1: with the sticky behaviour from
gamma = .8 on for constant actions. Emphases are large: step_size is .01. Its fixed point is not that of `td`.
Identities: with i = 1 it is `td` at lambda = 1.

Source: Sutton, Mahmood & White (2016).
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from horde_agent.kernels import plain
from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.plain import Demons, Step
from horde_agent.kernels.vectors import choose, load, store

STEP_SIZE = 0.01
TRACE_NUMBERS = ("follow_on", "rho")
SPAN = ("has_source", "has_interest", "has_lanes")
ETD = namedtuple("ETD", ())  # no parameters


@inner_kernel
def learn(_: ETD, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place."""
    e, interest, lam = demons.vectors[0, i], step.interest[i], demons.lam_t[i]
    demons.numbers[0, i] = demons.numbers[1, i] * demons.gamma_t[i] * demons.numbers[0, i] + interest
    emphasis = lam * interest + (1.0 - lam) * demons.numbers[0, i]
    demons.numbers[1, i], delta = step.rho[i], plain.sound_delta(i, demons, step)
    if plain.move_trace(i, demons, e, step, emphasis):
        plain.add_vector(demons.theta[i], demons.alpha[i] * delta, e)
    plain.finish(i, demons, step, delta, e, 0.0)


@inner_kernel
def on_lanes(_: ETD, span: Any, lane: int, rho: Any, delta: Any, is_finite: Any, zero: Any) -> Any:
    """Return delta and M."""
    n, lam = span.policy.shape[0], load(span.lam_t, lane, zero)
    interest = choose(is_finite, load(span.interest, lane, zero), zero)
    follow_on = load(span.numbers, n + lane, zero) * load(span.gamma_t, lane, zero) * load(span.numbers, lane, zero)
    follow_on = follow_on + interest
    store(span.numbers, lane, follow_on)
    store(span.numbers, n + lane, rho)
    return delta, lam * interest + (1.0 - lam) * follow_on, zero, zero, zero
