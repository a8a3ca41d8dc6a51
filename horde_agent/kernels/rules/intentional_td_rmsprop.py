"""Intentional TD(lambda) with RMSProp: `intentional_td` in units of each weight's root mean square feature.

    v_i <- beta2 v_i + (1 - beta2) phi_i^2,   s_i = sqrt(v_i / (1 - beta2^t)) + 1e-8
    the squares in sigma and in |z|^2 are divided by s_i, and so is the change of theta_i

Parameters: beta2 = .999 in [0, 1); eta, clip and clip_decay as in `intentional_td`.
Weakness: that of `intentional_td`; a vector more per demon. The factor of a weight depends on the weight and the step,
which the span engine cannot carry.

Source: as `intentional_td`.
"""

from __future__ import annotations

from typing import NamedTuple

from horde_agent.kernels import plain
from horde_agent.kernels._jit import inner_kernel
from horde_agent.kernels.plain import Demons, Step
from horde_agent.kernels.rules import intentional_td

TIMES_RHO = "eta"
RANGES = {"eta": "(0, 1]", "clip": "(0, inf)", "clip_decay": "[0, 1)", "beta2": "[0, 1)"}
IGNORES_STEP_SIZE = True
WEIGHTS = ("v", "scale")
NUMBERS = (*intentional_td.NUMBERS, "n_v")


class IntentionalTDRMSProp(NamedTuple):
    """As `IntentionalTD`, and the decay of the mean squares."""

    eta: float = 0.05
    clip: float = 20.0
    clip_decay: float = 0.9998
    beta2: float = 0.999


@inner_kernel
def learn(rule: IntentionalTDRMSProp, i: int, demons: Demons, step: Step) -> None:
    """Update demon `i` in place."""
    theta = demons.theta[i]
    v = demons.vectors[0, i]
    scale = demons.vectors[1, i]
    e = demons.vectors[2, i]
    phi = step.phi_t
    delta = plain.td_error(i, demons, step)
    decay = plain.decay_of(i, demons)
    demons.numbers[4, i] = weight = rule.beta2 * demons.numbers[4, i] + (1.0 - rule.beta2)
    plain.scale(v, rule.beta2)
    squared = 0.0
    norm = 0.0
    for k in range(phi.feature.shape[0]):
        v[phi.feature[k]] += (1.0 - rule.beta2) * phi.value[k] ** 2
    for k in range(v.shape[0]):
        scale[k] = (v[k] / weight) ** 0.5 + 1e-8
        norm += (decay * e[k]) ** 2 / scale[k]
    for k in range(phi.feature.shape[0]):
        f = phi.feature[k]
        x = phi.value[k]
        squared += x * x / scale[f]
        norm += x * (2.0 * decay * e[f] + x) / scale[f]
    change = intentional_td.change_of(rule, i, demons, delta, squared, norm)
    if plain.update_trace(i, demons, e, step, 1.0):
        for k in range(theta.shape[0]):
            theta[k] += change * e[k] / scale[k]
    plain.update_estimates(i, demons, step, delta, e, 0.0)
