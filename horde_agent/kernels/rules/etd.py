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
from horde_agent.kernels._jit import inlined_kernel, inner_kernel
from horde_agent.kernels.lanes import Lanes, LaneStep, load_number, store_number
from horde_agent.kernels.plain import Demons, Step
from horde_agent.kernels.vectors import choose, load

STEP_SIZE = 0.01
HAS_INTEREST = True
TRACE_NUMBERS = ("follow_on", "rho")
FOLLOW_ON = 0
RHO = 1
SPAN = ("source",)
ETD = namedtuple("ETD", ())  # no parameters


@inner_kernel
def plain_follow_on(i: int, demons: Demons, step: Step) -> float:
    """Return F_t."""
    past = demons.numbers[RHO, i] * demons.gamma_t[i] * demons.numbers[FOLLOW_ON, i]
    return float(past + step.interest[i])


@inner_kernel
def plain_emphasis(i: int, demons: Demons, step: Step) -> float:
    """Return M_t."""
    lam = demons.lam_t[i]
    return float(lam * step.interest[i] + (1.0 - lam) * plain_follow_on(i, demons, step))


@inner_kernel
def plain_gain(_: ETD, i: int, demons: Demons, step: Step) -> float:
    """Return e_t.S.phi_t before e_t is written, as `gain` does."""
    e = demons.vectors[0, i]
    past = plain.decay_of(i, demons) * plain.dot(e, step.phi_t)
    source = plain_emphasis(i, demons, step)
    return float(step.rho[i] * (source * plain.squared(step.phi_t) + past))


@inner_kernel
def learn(_: ETD, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place."""
    e = demons.vectors[0, i]
    follow_on = plain_follow_on(i, demons, step)
    emphasis = plain_emphasis(i, demons, step)
    demons.numbers[FOLLOW_ON, i] = follow_on
    demons.numbers[RHO, i] = step.rho[i]
    delta = plain.td_error(i, demons, step)
    if plain.update_trace(i, demons, e, step, emphasis):
        plain.add_vector(demons.theta[i], demons.alpha[i] * delta, e)
    plain.update_estimates(i, demons, step, delta, e, 0.0)


# ---- span engine: `td`, with the emphasis M_k as the factor with which phi_k enters the trace ---


@inlined_kernel
def interest_of(span: Any, lane: int, step: LaneStep, zero: Lanes) -> Lanes:
    """Return i_t, 0 in a lane that skips the step."""
    return choose(step.is_finite, load(span.interest, lane, zero), zero)


@inlined_kernel
def follow_on_of(span: Any, lane: int, step: LaneStep, zero: Lanes) -> Lanes:
    """Return F_t."""
    follow_on = load_number(span, RHO, lane, zero) * load(span.gamma_t, lane, zero)
    follow_on = follow_on * load_number(span, FOLLOW_ON, lane, zero)
    return follow_on + interest_of(span, lane, step, zero)


@inlined_kernel
def emphasis_of(span: Any, lane: int, step: LaneStep, zero: Lanes) -> Lanes:
    """Return M_t."""
    lam = load(span.lam_t, lane, zero)
    follow_on = follow_on_of(span, lane, step, zero)
    return lam * interest_of(span, lane, step, zero) + (1.0 - lam) * follow_on


@inlined_kernel
def gain(_: ETD, span: Any, lane: int, step: LaneStep, zero: Lanes) -> Lanes:
    """Return e_t.S.phi_t."""
    source = emphasis_of(span, lane, step, zero)
    return step.rho * (source * step.norm + step.decay * load(span.e_phi, lane, zero))


@inlined_kernel
def trace_source(_: ETD, span: Any, lane: int, step: LaneStep, zero: Lanes) -> Lanes:
    """Return M_t, and store F_t and rho_t."""
    emphasis = emphasis_of(span, lane, step, zero)
    store_number(span, FOLLOW_ON, lane, follow_on_of(span, lane, step, zero))
    store_number(span, RHO, lane, step.rho)
    return emphasis
