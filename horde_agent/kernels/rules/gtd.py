"""GTD(lambda): gradient temporal-difference learning with off-policy corrections and eligibility traces.

    delta_t = c_{t+1} + (1 - gamma_{t+1}) z_{t+1} + gamma_{t+1} theta_t.phi_{t+1} - theta_t.phi_t
    e_t     = rho_t (phi_t + gamma_t lambda_t e_{t-1})
    theta_{t+1} = theta_t + alpha   (delta_t e_t - gamma_{t+1} (1 - lambda_{t+1}) (e_t.w_t) phi_{t+1})
    w_{t+1}     = w_t     + alpha_w (delta_t e_t - (w_t.phi_t) phi_t)

Trace rules: "plain": as above; "clipped": lambda_{t+1} = lambda min(1, 1/rho_t); "capped": entries of
phi_t + gamma_t lambda_t e_{t-1} are at most 1. Rules for w: "every-step": as above; "importance-weighted": the term
(w.phi) phi is multiplied by rho_t.

Source: Maei (2011), chapter 7; White, Modayil & Sutton (2012), pseudo-code of GTD(lambda).
"""

from __future__ import annotations

from numba import prange

from horde_agent.kernels._jit import inner_kernel, outer_kernel
from horde_agent.kernels.plain import (
    Demons,
    DemonSignals,
    Phi,
    add,
    add_vector,
    dot,
    estimate,
    inner,
    move_trace,
    skip,
    sound_delta,
)

VECTORS = ("w", "e")


@inner_kernel
def learn(i: int, demons: Demons, signals: DemonSignals, phi_t: Phi, phi_tp1: Phi) -> None:
    """Update demon `i` in place; every right-hand side uses the weights from before the step."""
    theta, w, e = demons.theta[i], demons.vectors[0, i], demons.vectors[1, i]
    alpha, alpha_w = demons.alpha[i], demons.alpha_w[i]
    rho, gamma, lam = signals.rho[i], signals.gamma[i], signals.lam[i]
    if demons.clips and rho > 1.0:
        lam /= rho
    delta = signals.c[i] + (1.0 - gamma) * signals.z[i] + gamma * dot(theta, phi_tp1) - dot(theta, phi_t)
    q, e_w, delta = dot(w, phi_t), 0.0, sound_delta(i, demons, delta, rho)

    if move_trace(i, demons, e, rho, phi_t):  # else e is 0
        e_w = inner(e, w)
        add_vector(theta, alpha * delta, e)
        add_vector(w, alpha_w * delta, e)
    add(theta, -alpha * gamma * (1.0 - lam) * e_w, phi_tp1)
    add(w, -alpha_w * q * (1.0 if demons.every_step else rho), phi_t)

    if not abs(q) * max(1.0, alpha_w) <= demons.max_finite:
        demons.flagged[i] = True  # w diverged
    estimate(i, demons, delta, e, e_w)
    demons.gamma_t[i], demons.lam_t[i] = gamma, lam


@outer_kernel
def learn_all(demons: Demons, signals: DemonSignals, phi_t: Phi, phi_tp1: Phi) -> None:
    """Update every demon, or skip its step; demons share only phi, so their order is free."""
    for i in prange(demons.theta.shape[0]):
        if signals.skips[i]:
            skip(i, demons, demons.vectors[1, i])
        else:
            learn(i, demons, signals, phi_t, phi_tp1)
