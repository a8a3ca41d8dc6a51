"""What update rules of the plain engine are written with: vectors in full, one demon at a time.

A feature vector is given as a list: `feature` are the features that are not 0, `value` their values. A trace, like
weights, is an array of all features.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from horde_agent.kernels._jit import inner_kernel, outer_kernel
from horde_agent.types import Floats, Integers, Reals


class Phi(NamedTuple):
    """A feature vector: phi[feature[k]] = value[k], and 0 elsewhere."""

    feature: Integers
    value: Floats


class DemonSignals(NamedTuple):
    """What each demon is told about a transition, (n_demons,)."""

    rho: Floats  # pi(a_t) / b(a_t)
    gamma: Floats  # continuation at the state reached
    lam: Floats  # trace decay there
    c: Floats  # cumulant
    z: Floats  # outcome
    skips: NDArray[np.bool_]  # for whom the step is a gap


class Demons(NamedTuple):
    """What demons have learned: d demons, n features."""

    theta: Reals  # (d, n)
    vectors: Reals  # (k, d, n): those that the rule names
    m: Reals  # (d, n): the trace of delta e; (0, n) where it is not kept
    alive: NDArray[np.bool_]  # (d,): whose trace is not 0
    prediction: Floats  # (d,), like all that follows: theta_t.phi_t
    td_error: Floats
    mspbe: Floats  # scalar estimate
    max_trace: Floats
    gamma_t: Floats
    lam_t: Floats
    alpha: Floats
    alpha_w: Floats
    bound: Floats  # |theta| that no answer can need
    flagged: NDArray[np.bool_]
    clips: bool  # lambda_{t+1} = lambda min(1, 1/rho_t)
    cap: float  # no entry of phi + gamma lambda e is above this
    every_step: bool  # w decays where rho = 0 too
    one_over_tau: float  # step of the MSPBE estimates
    largest_step: float  # |delta| max e past this flags a demon
    max_finite: float  # the largest number of the engine's type


# ---- vectors --------------------------------------------------------------------------------------------------------


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
    """Add a multiple of a vector in full, shape (n,), as the weights are."""
    factor = weights.dtype.type(factor)
    for k in range(weights.shape[0]):
        weights[k] += factor * e[k]


@inner_kernel
def inner(a: Reals, b: Reals) -> float:
    """Return a.b of two vectors, shape (n,): four sums in float64, since one would wait for each of its terms."""
    n, t0, t1, t2, t3 = a.shape[0] // 4, 0.0, 0.0, 0.0, 0.0
    for k in range(0, 4 * n, 4):
        t0 += np.float64(a[k]) * b[k]
        t1 += np.float64(a[k + 1]) * b[k + 1]
        t2 += np.float64(a[k + 2]) * b[k + 2]
        t3 += np.float64(a[k + 3]) * b[k + 3]
    for k in range(4 * n, a.shape[0]):
        t0 += np.float64(a[k]) * b[k]
    return (t0 + t1) + (t2 + t3)


# ---- a demon's trace and estimates ----------------------------------------------------------------------------------


@inner_kernel
def move_trace(i: int, demons: Demons, e: Reals, rho: float, phi_t: Phi) -> bool:
    """Write e_t = rho_t min(phi_t + gamma_t lambda_t e_{t-1}, cap), shape (n,), and say whether it is not 0.

    No entry of a trace is negative: `max_trace` is the largest of all so far.
    """
    decay, cap, largest = e.dtype.type(demons.gamma_t[i] * demons.lam_t[i]), e.dtype.type(demons.cap), 0.0
    if rho == 0.0:
        clear_trace(i, demons, e)
        return False
    if demons.alive[i]:
        for k in range(e.shape[0]):
            e[k] *= decay
    add(e, 1.0, phi_t)
    rho_ = e.dtype.type(rho)
    for k in range(e.shape[0]):
        e[k] = rho_ * min(e[k], cap)
    for k in range(e.shape[0]):
        largest = max(largest, e[k])
    demons.alive[i], demons.max_trace[i] = True, max(demons.max_trace[i], largest)
    return True


@inner_kernel
def clear_trace(i: int, demons: Demons, e: Reals) -> None:
    """Set a trace, shape (n,), to 0."""
    if demons.alive[i]:
        e[:] = 0
    demons.alive[i] = False


@inner_kernel
def estimate(i: int, demons: Demons, delta: float, e: Reals, e_w: float) -> None:
    """Move the MSPBE estimates on: s += (delta e.w - s) / tau, and m += (delta e - m) / tau, of which m.w is the other.

    The trace e and m have the shape (n,).
    Source: White, Modayil & Sutton (2012), equation 9; w is that from before the step.
    """
    step = demons.one_over_tau
    demons.mspbe[i] += step * (delta * e_w - demons.mspbe[i])
    if demons.m.shape[0] > 0:
        m, keep, gain = demons.m[i], e.dtype.type(1.0 - step), e.dtype.type(step * delta)
        if demons.alive[i]:
            for k in range(m.shape[0]):
                m[k] = keep * m[k] + gain * e[k]
        else:
            for k in range(m.shape[0]):
                m[k] *= keep


@inner_kernel
def skip(i: int, demons: Demons, e: Reals) -> None:
    """Let a step be a gap for one demon: its trace, shape (n,), is cleared, its weights stand, its TD error is 0."""
    clear_trace(i, demons, e)
    estimate(i, demons, 0.0, e, 0.0)
    demons.td_error[i], demons.gamma_t[i], demons.lam_t[i] = 0.0, 0.0, 0.0


@inner_kernel
def sound_delta(i: int, demons: Demons, delta: float, rho: float) -> float:
    """Return delta, noted as the TD error; 0 where the step would be past what the type can hold, which flags."""
    demons.td_error[i] = delta
    if abs(delta) <= demons.max_finite and abs(delta) * rho < demons.largest_step:
        return delta
    demons.flagged[i] = True
    return 0.0


# ---- all demons -----------------------------------------------------------------------------------------------------


@outer_kernel
def predict(theta: Reals, phi: Phi, out: Floats) -> None:
    """Write theta.phi of every demon, (n_demons,)."""
    for i in prange(theta.shape[0]):
        out[i] = dot(theta[i], phi)


@outer_kernel
def look_for_unbounded(demons: Demons, first: int, last: int) -> None:
    """Flag those of the demons first..last - 1 of whom a number is lost: theta past its bound, anything not finite."""
    for i in prange(last - first):
        flag_unbounded(first + i, demons)


@inner_kernel
def flag_unbounded(i: int, demons: Demons) -> None:
    """Flag a demon of whom a number is lost.

    By itself: in a parallel loop numba takes a write to an array of a tuple for one that nobody reads, and drops it.
    """
    is_sound = abs(demons.prediction[i] + demons.mspbe[i]) <= demons.max_finite
    for k in range(demons.theta.shape[1]):
        is_sound &= abs(demons.theta[i, k]) <= demons.bound[i]
        for v in range(demons.vectors.shape[0]):
            is_sound &= abs(demons.vectors[v, i, k]) <= demons.max_finite
        if demons.m.shape[0] > 0:
            is_sound &= abs(demons.m[i, k]) <= demons.max_finite
    if not is_sound:
        demons.flagged[i] = True
