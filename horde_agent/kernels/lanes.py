"""The numbers of a lane, and how they take one step: formulas written once, compiled for sixteen lanes at a time.

`busy_step` and `idle_step` are ordinary Python on anything that adds and multiplies. On NumPy rows they are the plain
twin; on LLVM vectors they write the code of the kernel (`vectors.py`), without the detours of a loop over 20 arrays.
"""

from __future__ import annotations

from typing import Any

# One number per lane: rows of the array `lanes`, shape (N_ROWS, L).
V = 0  # theta_t.phi_t, the prediction
Q = 1  # w_t.phi_t
X = 2  # e_{t-1}.phi_t
Y = 3  # e_{t-1}.w_t
Z = 4  # |e_{t-1}|^2
TOP = 5  # no entry of e_{t-1} is larger; equal to the largest where a feature was on since the trace began
MAX_E = 6  # the largest TOP so far
DELTA = 7
S = 8  # scalar MSPBE trace
GAMMA_T = 9
LAM_T = 10
ALPHA = 11
ALPHA_W = 12
BOUND = 13  # |theta| that no answer can need
BASE = 14  # theta.phi at the present, theta as written
BASE_W = 15  # w.phi at time W_AT, w as written
BASE_E = 16  # e.phi at the present, e as carried
SUM = 17  # sum delta_k x_k at the present
SPENT = 18  # sum q_k G(k, now)
TURNED = 19  # sum h_k G(k + 1, now)
DECAYED = 20  # g_t e_{t-1}.phi_{t+1}
RHO_T = 21
GAMMA_TP1 = 22
LAM_TP1 = 23
C_TP1 = 24  # with the outcome: c + (1 - gamma) z
SICK = 25  # 1 once a number was not finite or too large, or a weight past its bound
N_ROWS = 26

# What a step leaves behind: rows in other arrays.
TO_KEPT, TO_D, TO_H, TO_Q, TO_RHO, TO_DECAY = 26, 27, 28, 29, 30, 31

# The same for all lanes of a tile: places in `numbers`.
NORM = 0  # |phi_t|^2
NORM_TP1 = 1
MOST = 2  # largest entry of phi_t
ON = 3  # phi_t.phi_{t+1}
DECAYS = 4  # 1 where there is a trace to decay
EVERY_STEP = 5  # 1 where w decays though rho is 0
CLIPS = 6  # 1 where lambda_{t+1} = lambda min(1, 1/rho_t)
ONE_OVER_TAU = 7
LARGEST_STEP = 8  # largest |delta| max e, from which estimates are still numbers
N_NUMBERS = 9


def busy_step(at: Any, number: Any) -> None:
    """Let lanes learn. `at[ROW]` are their numbers, `number[PLACE]` the tile's; every formula uses values from before.

    With e_t = rho (phi_t + g e_{t-1}), g = gamma_t lambda_t:

        e_t.w_t       = rho (q + g e_{t-1}.w_t)
        e_t.w_{t+1}   = e_t.w_t + alpha_w (delta |e_t|^2 - q e_t.phi_t)
        |e_t|^2       = rho^2 (|phi_t|^2 + 2 g e_{t-1}.phi_t + g^2 |e_{t-1}|^2)
        e_t.phi_{t+1} = rho (phi_t.phi_{t+1} + g e_{t-1}.phi_{t+1})

    What a step leaves behind for the steps to come is c = rho_t g_{t+1} and d = rho_t delta_t, with h and q.
    """
    is_told, v, delta, gamma = _td_error(at)
    rho, q = at.choose(is_told, at[RHO_T], 0.0), at.choose(is_told, at[Q], 0.0)
    g = at[GAMMA_T] * at[LAM_T] * number[DECAYS]
    lam = at.choose(is_told, at[LAM_TP1], 0.0) / at.maximum(rho * number[CLIPS], 1.0)
    top = rho * (number[MOST] + g * at[TOP])
    at[DELTA], step = delta, delta * top
    is_small = number[LARGEST_STEP] > at.maximum(step, step * -1.0)  # what is not a number is not
    delta = at.choose(is_small, delta, 0.0)
    y = rho * (q + g * at[Y])
    z = rho * rho * (number[NORM] + g * (at[X] * 2.0 + g * at[Z]))
    e_phi = rho * (number[NORM] + g * at[X])
    x = rho * (number[ON] + at[DECAYED])
    h = gamma * (1.0 - lam) * y
    spent = q * (number[EVERY_STEP] + (1.0 - number[EVERY_STEP]) * rho)
    v = v + at[ALPHA] * (delta * x - h * number[NORM_TP1])
    s = at[S] + number[ONE_OVER_TAU] * (delta * y - at[S])
    y = y + at[ALPHA_W] * (delta * z - spent * e_phi)
    at[SICK] = at.choose(is_small, at.choose(at.is_finite(v + s + y), at[SICK], 1.0), 1.0)
    at[V], at[X], at[Y], at[Z], at[TOP], at[S] = v, x, y, z, top, s
    at[MAX_E] = at.maximum(at[MAX_E], top)
    at[SUM] = at[SUM] + delta * x
    at[TURNED] = at[TURNED] + h * number[NORM_TP1]
    at[SPENT] = at[SPENT] + spent * number[ON]
    at[GAMMA_T], at[LAM_T] = gamma, lam
    at[TO_KEPT], at[TO_D], at[TO_H], at[TO_Q] = rho * (gamma * lam), rho * delta, h, spent
    at[TO_RHO], at[TO_DECAY] = rho, g


def idle_step(at: Any, number: Any) -> None:
    """Let lanes pass a step in which every rho is 0: theta stands, w decays under "every-step".

    The trace is gone, and with it whatever gamma_{t+1} and lambda_{t+1} might decay.
    """
    is_told, v, delta, _ = _td_error(at)
    spent = at.choose(is_told, at.choose(number[EVERY_STEP] > 0.0, at[Q], 0.0), 0.0)
    at[SICK] = at.choose(at.is_finite(v + spent), at[SICK], 1.0)
    at[V], at[DELTA] = v, at.choose(at.is_finite(delta), delta, 0.0)
    at[X] = at[Y] = at[Z] = at[TOP] = 0.0
    at[SPENT] = at[SPENT] + spent * number[ON]
    at[S] = at[S] - number[ONE_OVER_TAU] * at[S]
    at[TO_Q] = spent


def _td_error(at: Any) -> tuple[Any, Any, Any, Any]:
    """Return who is told a transition, theta_t.phi_{t+1}, delta_t and gamma_{t+1}.

    To whom something is told that is not finite, the step is a gap: rho, gamma, q and delta are taken as 0, so that the
    trace is cleared and no weight moves.
    """
    is_told = at.is_finite(at[RHO_T] + at[GAMMA_TP1] + at[LAM_TP1] + at[C_TP1])
    gamma = at.choose(is_told, at[GAMMA_TP1], 0.0)
    v = at[BASE] + at[ALPHA] * (at[SUM] - at[TURNED])
    return is_told, v, at.choose(is_told, at[C_TP1] + gamma * v - at[V], 0.0), gamma
