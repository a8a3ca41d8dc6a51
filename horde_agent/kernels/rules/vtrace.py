"""V-trace(lambda), linear and online: `td` with the trace rule "clipped".

    e_t = rho_t (phi_t + gamma_t lambda_t e_{t-1}),   lambda_{t+1} = lambda min(1, c_bar / rho_t)
    theta_{t+1} = theta_t + alpha min(1, rho_bar / rho_t) delta_t e_t

With z = e / rho this is z_t = phi_t + gamma_t lambda min(c_bar, rho_{t-1}) z_{t-1} and a step of
alpha min(rho_bar, rho_t) delta_t z_t. Entries of z are at most 1 / (1 - gamma lambda) for c_bar = 1.

Parameters: c_bar = 1, rho_bar = infinity (unbiased); 0 < c_bar <= rho_bar. A finite rho_bar also bounds the steps, but
evaluates the policy proportional to min(rho_bar b, pi): another fixed point.
Weakness: the semi-gradient may diverge (Baird's star: growth .23 per unit of alpha). Its gradient version is `gtd`,
`gtd2` or `tdrc` under the trace rule "clipped".
Identities: c_bar = 1, rho_bar = infinity is `td` under "clipped"; equal to `tree_backup` if the target is
deterministic, to `abtd` with a large psi at lambda = 1, and to TD(lambda) on policy.

Source: Espeholt et al. (2018); its cut of the trace is that of Retrace(lambda), Munos et al. (2016).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from horde_agent.kernels._jit import inlined_kernel, inner_kernel
from horde_agent.kernels.lanes import Lanes, LaneStep, Trace, Update
from horde_agent.kernels.plain import Demons, Step
from horde_agent.kernels.rules import td
from horde_agent.kernels.vectors import choose

TRACE_RULE = "clipped"
RANGES = {"c_bar": "(0, inf)", "rho_bar": "(0, inf]"}
WARNS = {
    "rho_bar": (
        "[inf, inf]",
        "evaluates the policy proportional to min(rho_bar b, pi), not the target policy: omit it",
    )
}
SPAN = ()


class VTrace(NamedTuple):
    """The bounds of rho in the trace and in the step."""

    c_bar: float = 1.0
    rho_bar: float = float("inf")


@inner_kernel
def learn(rule: VTrace, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place."""
    td.move(i, demons, step, min(1.0, rule.rho_bar / max(step.rho[i], 1e-30)))


@inlined_kernel
def lane_step(
    rule: VTrace, _span: Any, _lane: int, step: LaneStep, _trace: Trace, zero: Lanes
) -> Update:
    """Return delta min(1, rho_bar / rho)."""
    rho = choose(step.rho > 0.0, step.rho, zero + 1.0)
    cut = choose(step.rho > rule.rho_bar, rule.rho_bar / rho, zero + 1.0)
    delta = step.fraction * step.delta * cut
    return Update(delta=delta, h=zero, q=zero, w_factor=zero + 1.0, e_w=zero)
