"""GTD2(lambda): theta follows w instead of delta.

    delta_t, e_t and w as in `gtd`
    theta_{t+1} = theta_t + alpha ((w_t.phi_t) phi_t - gamma_{t+1} (1 - lambda_{t+1}) (e_t.w_t) phi_{t+1})

Under the w rule "importance-weighted" the term (w.phi) phi is multiplied by rho_t in both lines: the same expected
update, because E[rho] = 1 in every state.

Weakness: slow; with "every-step" theta moves even where rho = 0, so that no demon rests.
Identities: the fixed point of `td` and `gtd`; stable in expectation at every alpha_w / alpha that was tried.

Source: Sutton et al. (2009) for lambda = 0; Maei (2011).
"""

from __future__ import annotations

from collections import namedtuple

from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.plain import Demons, Step
from horde_agent.kernels.rules import gtd

WEIGHTS = ("w",)
SECONDARY_RATIO = 0.1
WARNS = {"secondary_ratio": ("[.01, inf)", "is off-policy TD in disguise: raise it")}
CAN_CAP = True
SPAN = ("has_w", "follows_w")
GTD2 = namedtuple("GTD2", ())  # no parameters


@inner_kernel
def learn(_: GTD2, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place."""
    gtd.move(i, demons, step, True, 0.0)
