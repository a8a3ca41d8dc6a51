"""Tree backup(lambda): `td` with the trace rule "tree-backup".

    e_t = rho_t (phi_t + gamma_t lambda_t e_{t-1}),   lambda_{t+1} = lambda b(a_t)
    theta_{t+1} = theta_t + alpha delta_t e_t

With z = e / rho this is z_t = phi_t + gamma_t lambda pi(a_{t-1}) z_{t-1} and a step of alpha rho_t delta_t z_t. Entries
of z are at most 1 / (1 - gamma lambda), steps up to rho_max times larger.

Weakness: the semi-gradient may diverge (Baird's star). On policy it is *not* TD(lambda): the trace decays by b. Its
gradient version is `gtd`, `gtd2` or `tdrc` under the trace rule "tree-backup".
Identities: equal to `vtrace` if the target is deterministic, to `td` at lambda = 0.

Source: Precup, Sutton & Singh (2000) for action values; Ghiassian & Sutton (2021) for this form for state values.
"""

from __future__ import annotations

from collections import namedtuple

from horde_agent.kernels.rules import td

TRACE_RULE = "tree-backup"
SPAN = ()
learn = td.learn
TreeBackup = namedtuple("TreeBackup", ())  # no parameters
