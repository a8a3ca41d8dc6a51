"""Building blocks of the plain engine's update rules: full vectors, one demon at a time.

A feature vector is sparse: `feature` lists the features that are not 0, `value` their values. A
trace, like weights, is an array over all features.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from horde_agent.kernels._jit import inner_kernel, outer_kernel
from horde_agent.types import Floats, Integers, Reals

_NEGLIGIBLE = 1e-30


class Phi(NamedTuple):
    """A feature vector: phi[feature[k]] = value[k], and 0 elsewhere."""

    feature: Integers
    value: Floats


class Step(NamedTuple):
    """A transition: two feature vectors, the action, and each demon's signals, shape (n_demons,)."""

    phi_t: Phi
    phi_tp1: Phi
    action: int  # a_t
    b: float  # b(a_t)
    rho: Floats  # pi(a_t) / b(a_t)
    gamma: Floats  # continuation at the state reached
    lam: Floats  # trace decay there, lambda_{t+1} after the trace rule
    c: Floats  # cumulant
    z: Floats  # outcome
    interest: Floats  # i(s_t)


class Demons(NamedTuple):
    """Weights, traces and estimates of d demons over n features."""

    theta: Reals  # (d, n)
    vectors: Reals  # (k, d, n): the rule's other vectors, WEIGHTS then TRACES
    numbers: Floats  # (j, d): the rule's numbers, NUMBERS then TRACE_NUMBERS
    m: Reals  # (d, n): the trace of delta e; (0, n) without the vector MSPBE estimate
    average: Reals  # (d, n): averaged theta, as of the latest average; (0, n) without averages
    alive: NDArray[np.bool_]  # (d,): the trace is not 0
    prediction: Floats  # (d,), like all arrays below: theta_t.phi_t
    td_error: Floats
    error_sum: Floats  # sum of rho delta since it was last read
    error_square: Floats  # sum of rho delta^2, likewise
    mspbe: Floats  # scalar estimate
    max_trace: Floats
    largest_gain: (
        Floats  # largest alpha e_k.S.phi_k since features were last classified; 0 if S is 1
    )
    gamma_t: Floats
    lam_t: Floats
    alpha: Floats
    alpha_w: Floats
    bound: Floats  # largest plausible |theta|
    flagged: NDArray[np.bool_]
    root: Floats  # (n,): sqrt(S), factors of features; (0,) if S is 1: see the top of `learning/plain.py`
    n_weights: int  # the first vectors, which a gap keeps; it clears the others
    n_numbers: int  # the first numbers, which a gap keeps
    n_actions: int  # blocks of weights: one per action for a rule that finds policies, otherwise 1
    cap: float  # largest entry of phi + gamma lambda e
    every_step: bool  # w decays also if rho = 0
    one_over_tau: float  # step size of the MSPBE estimates
    largest_step: float  # |delta| max e at or above this flags a demon
    max_finite: float  # largest finite number of the engine's dtype


# ---- vectors ------------------------------------------------------------------------------------


@inner_kernel
def dot(weights: Reals, phi: Phi) -> float:
    """Return weights.phi, weights of shape (n,), summed in float64."""
    total = 0.0
    for k in range(phi.feature.shape[0]):
        total += phi.value[k] * weights[phi.feature[k]]
    return total


@inner_kernel
def add(weights: Reals, factor: float, phi: Phi) -> None:
    """Add a multiple of a feature vector to weights, shape (n,)."""
    for k in range(phi.feature.shape[0]):
        weights[phi.feature[k]] += factor * phi.value[k]


@inner_kernel
def add_vector(weights: Reals, factor: float, e: Reals) -> None:
    """Add a multiple of a full vector to weights, both of shape (n,)."""
    factor = weights.dtype.type(factor)
    for k in range(weights.shape[0]):
        weights[k] += factor * e[k]


@inner_kernel
def scale(weights: Reals, factor: float) -> None:
    """Multiply a full vector, shape (n,); entries below 1e-30 become 0.

    Rounding keeps float32's smallest numbers from decaying to 0, and processors are slow with them.
    """
    factor = weights.dtype.type(factor)
    least = weights.dtype.type(_NEGLIGIBLE)
    zero = weights.dtype.type(0.0)
    for k in range(weights.shape[0]):
        x = factor * weights[k]
        weights[k] = zero
        if abs(x) >= least:
            weights[k] = x


@inner_kernel
def inner(a: Reals, b: Reals) -> float:
    """Return a.b of two vectors, shape (n,), in float64; four partial sums shorten the chain of dependent additions."""
    n = a.shape[0] // 4
    t0 = 0.0
    t1 = 0.0
    t2 = 0.0
    t3 = 0.0
    for k in range(0, 4 * n, 4):
        t0 += np.float64(a[k]) * b[k]
        t1 += np.float64(a[k + 1]) * b[k + 1]
        t2 += np.float64(a[k + 2]) * b[k + 2]
        t3 += np.float64(a[k + 3]) * b[k + 3]
    for k in range(4 * n, a.shape[0]):
        t0 += np.float64(a[k]) * b[k]
    return (t0 + t1) + (t2 + t3)


# ---- a demon's trace and estimates --------------------------------------------------------------


@inner_kernel
def td_error(i: int, demons: Demons, step: Step) -> float:
    """Store and return delta_t = c_{t+1} + (1 - gamma_{t+1}) z_{t+1} + gamma_{t+1} theta.phi_{t+1} - theta.phi_t."""
    gamma = step.gamma[i]
    theta = demons.theta[i]
    delta = (
        step.c[i]
        + (1.0 - gamma) * step.z[i]
        + gamma * dot(theta, step.phi_tp1)
        - dot(theta, step.phi_t)
    )
    return float(checked_delta(i, demons, delta, step.rho[i]))


@inner_kernel
def checked_delta(i: int, demons: Demons, delta: float, rho: float) -> float:
    """Store delta as the TD error and return it; flag the demon and return 0 if the step exceeds the dtype's range."""
    demons.td_error[i] = delta
    if abs(delta) <= demons.max_finite and abs(delta) * rho < demons.largest_step:
        return delta
    demons.flagged[i] = True
    return 0.0


@inner_kernel
def decay_of(i: int, demons: Demons) -> float:
    """Return gamma_t lambda_t."""
    return float(demons.gamma_t[i] * demons.lam_t[i])


@inner_kernel
def update_trace(i: int, demons: Demons, e: Reals, step: Step, gain: float) -> bool:
    """Write e_t = rho_t min(gain phi_t + gamma_t lambda_t e_{t-1}, cap), shape (n,); return True if it is not 0.

    `max_trace` is the largest |entry| so far.
    """
    decay = e.dtype.type(decay_of(i, demons))
    cap = e.dtype.type(demons.cap)
    if step.rho[i] == 0.0:
        clear_trace(i, demons, e)
        return False
    if demons.alive[i]:
        scale(e, decay)
    add(e, gain, step.phi_t)
    rho_ = e.dtype.type(step.rho[i])
    for k in range(e.shape[0]):
        e[k] = rho_ * min(e[k], cap)
    demons.alive[i] = True
    demons.max_trace[i] = max(demons.max_trace[i], largest_entry(demons, e))
    return True


@inner_kernel
def largest_entry(demons: Demons, e: Reals) -> float:
    """Return the largest |entry| of a trace, shape (n,), which is stored times sqrt(S)."""
    largest = 0.0
    if demons.root.shape[0] > 0:
        for k in range(e.shape[0]):
            largest = max(largest, abs(e[k]) / demons.root[k])
    else:
        for k in range(e.shape[0]):
            largest = max(largest, abs(e[k]))
    return largest


@inner_kernel
def clear_trace(i: int, demons: Demons, e: Reals) -> None:
    """Set a trace, shape (n,), to 0."""
    if demons.alive[i]:
        e[:] = 0
    demons.alive[i] = False


@inner_kernel
def update_estimates(
    i: int, demons: Demons, step: Step, delta: float, e: Reals, e_w: float
) -> None:
    """Update the MSPBE estimates: s += (delta e.w - s) / tau and m += (delta e - m) / tau; m.w is the vector estimate.

    The trace e and m have the shape (n,). gamma_{t+1} and lambda_{t+1} become those of the next
    step.
    Source: White, Modayil & Sutton (2012), equation 9, with w from before the step.
    """
    estimate(i, demons, delta, e, e_w)
    demons.gamma_t[i] = step.gamma[i]
    demons.lam_t[i] = step.lam[i]


@inner_kernel
def estimate(i: int, demons: Demons, delta: float, e: Reals, e_w: float) -> None:
    """Update the MSPBE estimates from a trace, shape (n,), which is ignored unless the demon's trace is alive."""
    step = demons.one_over_tau
    demons.mspbe[i] += step * (delta * e_w - demons.mspbe[i])
    if demons.m.shape[0] > 0:
        m = demons.m[i]
        keep = e.dtype.type(1.0 - step)
        gain = e.dtype.type(step * delta)
        if demons.alive[i]:
            for k in range(m.shape[0]):
                m[k] = keep * m[k] + gain * e[k]
        else:
            scale(m, keep)


@inner_kernel
def weight_of_decay(i: int, demons: Demons, step: Step) -> float:
    """Return the factor of (w.phi) phi: 1, or rho_t under the w rule "importance-weighted"."""
    if demons.every_step:
        return 1.0
    return float(step.rho[i])


@inner_kernel
def flag_w(i: int, demons: Demons, q: float) -> None:
    """Flag a demon whose w.phi, times its step size, exceeds the dtype's range."""
    if not abs(q) * max(1.0, demons.alpha_w[i]) <= demons.max_finite:
        demons.flagged[i] = True


@inner_kernel
def skip(i: int, demons: Demons) -> None:
    """Skip a step for one demon: clear its traces, set its TD error to 0 and keep its weights."""
    demons.alive[i] = False
    for k in range(demons.n_weights, demons.vectors.shape[0]):
        demons.vectors[k, i, :] = 0
    for k in range(demons.n_numbers, demons.numbers.shape[0]):
        demons.numbers[k, i] = 0.0
    estimate(i, demons, 0.0, demons.theta[i], 0.0)
    demons.td_error[i] = 0.0
    demons.gamma_t[i] = 0.0
    demons.lam_t[i] = 0.0


@inner_kernel
def follow(numbers: Floats, i: int, decay: float, value: float) -> float:
    """Move a running mean, numbers[0, i], and its weight, numbers[1, i], towards a value; return the corrected mean.

    The numbers have the shape (2, n_demons).
    """
    numbers[0, i] = decay * numbers[0, i] + (1.0 - decay) * value
    numbers[1, i] = decay * numbers[1, i] + (1.0 - decay)
    if numbers[1, i] > 0.0:
        return float(numbers[0, i] / numbers[1, i])
    return 0.0


# ---- step sizes by the rarity of features -------------------------------------------------------


@inner_kernel
def squared(phi: Phi) -> float:
    """Return phi.phi, with S if there is one."""
    total = 0.0
    for k in range(phi.value.shape[0]):
        total += phi.value[k] ** 2
    return total


@inner_kernel
def record_gain(i: int, demons: Demons, gain: float) -> None:
    """Record the share of a TD error by which a step changes the prediction of the state it left, over alpha."""
    if demons.root.shape[0] > 0:
        demons.largest_gain[i] = max(demons.largest_gain[i], demons.alpha[i] * gain)


@inner_kernel
def step_fraction(i: int, demons: Demons) -> float:
    """Return alpha_t / alpha, which keeps alpha_t e_k.S.phi_k at or below 1: see `learning/rarity.py`."""
    return float(1.0 / max(1.0, demons.largest_gain[i]))


# ---- all demons ---------------------------------------------------------------------------------


@outer_kernel
def look_for_unbounded(demons: Demons, first: int, last: int) -> None:
    """Flag diverged demons in first..last - 1: theta above its bound, or any number not finite."""
    for i in prange(last - first):
        flag_unbounded(first + i, demons)


@inner_kernel
def flag_unbounded(i: int, demons: Demons) -> None:
    """Flag a demon if it diverged.

    This is a separate kernel because in a parallel loop numba drops a write to an array of a tuple
    as unused.
    """
    is_sound = abs(demons.prediction[i] + demons.mspbe[i]) <= demons.max_finite
    root = 1.0
    for k in range(demons.theta.shape[1]):
        if demons.root.shape[0] > 0:
            root = demons.root[k]
        is_sound &= root * abs(demons.theta[i, k]) <= demons.bound[i]
        for v in range(demons.vectors.shape[0]):
            is_sound &= abs(demons.vectors[v, i, k]) <= demons.max_finite
        if demons.m.shape[0] > 0:
            is_sound &= abs(demons.m[i, k]) <= demons.max_finite
    if not is_sound:
        demons.flagged[i] = True
