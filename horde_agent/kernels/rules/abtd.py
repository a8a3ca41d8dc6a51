"""ABTD(zeta), action-dependent bootstrapping: `td` with the trace rule "abtd".

    e_t = rho_t (phi_t + gamma_t lambda_t e_{t-1});   theta_{t+1} = theta_t + alpha delta_t e_t
    lambda_{t+1} = nu_t b(a_t),   nu_t = min(psi, 1 / max(pi(a_t), b(a_t)))

The trace decay of a question is not used. With z = e / rho this is z_t = phi_t + gamma_t nu_{t-1} pi(a_{t-1}) z_{t-1}
and a step of alpha rho_t delta_t z_t; nu pi <= min(1, rho), so that entries of z are at most 1 / (1 - gamma).

Parameter: psi = 1, above 0. From zeta in [0, 1], psi = 2 zeta psi_0 + max(0, 2 zeta - 1) (psi_max - 2 psi_0) with
psi_0 = 1 / max max(b, pi) and psi_max = 1 / min max(b, pi) over all states and actions; zeta = 0 is TD(0).
Weakness: the semi-gradient may diverge (Baird's star). Its gradient version is `gtd`, `gtd2` or `tdrc` under
the trace rule "abtd".
Identities: psi >= psi_max is `vtrace` at lambda = 1, and so is psi >= 1 if the target is deterministic.

Source: Mahmood, Yu & Sutton (2017).
"""

from __future__ import annotations

from typing import NamedTuple

from horde_agent.kernels.rules import td

TRACE_RULE = "abtd"
RANGES = {"psi": "(0, inf)"}
SPAN = ()
learn = td.learn


class ABTD(NamedTuple):
    """The bound of nu."""

    psi: float = 1.0
