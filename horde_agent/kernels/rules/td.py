"""Off-policy TD(lambda), per decision: the semi-gradient, kept as the baseline.

    delta_t, e_t as in `gtd`;   theta_{t+1} = theta_t + alpha delta_t e_t

Weakness: it may diverge off-policy with function approximation (Baird's star, w -> 2w).
Identities: under the trace rule "clipped" it is `vtrace`, under "tree-backup" `tree_backup`, under "abtd" `abtd`; on
policy it equals `htd`; lambda = 1 or alpha_w = 0 makes `gtd`'s theta equal to it.

Source: Precup, Sutton & Dasgupta (2001), with state-dependent gamma and lambda.
"""

from __future__ import annotations

from collections import namedtuple

from horde_agent.kernels import plain
from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.plain import Demons, Step

CAN_CAP = True
SPAN = ()
TD = namedtuple("TD", ())  # no parameters


@inner_kernel
def move(i: int, demons: Demons, step: Step, cut: float) -> None:
    """Update demon `i` in place; the change of theta is multiplied by `cut`."""
    e, delta = demons.vectors[0, i], plain.sound_delta(i, demons, step)
    if plain.move_trace(i, demons, e, step, 1.0):
        plain.add_vector(demons.theta[i], demons.alpha[i] * delta * cut, e)
    plain.finish(i, demons, step, delta, e, 0.0)


@inner_kernel
def learn(_: TD, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place."""
    move(i, demons, step, 1.0)
