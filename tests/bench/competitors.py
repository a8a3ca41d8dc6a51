"""Baselines for the questions of `horde bench`: what a Horde is compared with.

They are what a careful NumPy user would write, in two memory layouts, and one compiled
dense pass; tests compare them with the Horde. They follow the benchmark's rules: trace rule
"clipped", w rule "importance-weighted", scalar MSPBE estimate, predictions of all demons.
`SharedTraces` has one trace per group and skips groups with rho = 0; `OwnTraces` and `DenseFused`
have one trace per demon. The dense pass is bound by memory bandwidth: 24 bytes per feature and
step, read and written, in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numba
import numpy as np
from numba import prange

from horde_agent.bench.learning import Step
from horde_agent.bench.workload import N_SENSORS, WorkloadStream
from horde_agent.gvf import GVF, Channel
from horde_agent.horde import Horde
from horde_agent.kernels._jit import parallel_kernel
from horde_agent.types import Reals, Tiles

Order = Literal["C", "F"]
LAMBDA = 0.9
STEP_SIZE = 0.1
RATIO = 0.001
TAU = 10_000.0
LAYOUTS: dict[str, Order] = {"learner-major": "F", "feature-major": "C"}


class Rates(NamedTuple):
    """Numbers that all demons share."""

    alpha: np.float32
    alpha_w: np.float32
    lam: np.float32
    tau: np.float32

    @classmethod
    def of(cls, stream: WorkloadStream) -> Rates:
        """Return the numbers for a stream."""
        alpha = STEP_SIZE / stream.n_active
        return cls(*map(np.float32, (alpha, RATIO * alpha, LAMBDA, TAU)))


class SharedTraces:
    """Demons start[g]..start[g + 1] share the trace of group g and its gamma, shape (n_groups,).

    theta and w have shape (n_features, n_demons), float32. The order "C" stores the weights of a
    feature together, "F" those of a demon.
    """

    def __init__(
        self, start: Tiles, gamma: Reals, n_features: int, rates: Rates, order: Order
    ) -> None:
        self.start = start
        self.order = order
        self.rates = rates
        self.gamma = gamma.astype(np.float32)
        self.lam_t = np.full(gamma.size, rates.lam)
        self.gamma_demon = np.repeat(self.gamma, np.diff(start))
        n_demons = int(start[-1])
        self.theta, self.w = (
            np.zeros((n_features, n_demons), dtype=np.float32, order=order) for _ in range(2)
        )
        self.e = np.zeros((gamma.size, n_features), dtype=np.float32)
        self.v, self.s = np.zeros((2, n_demons), dtype=np.float32)

    def learn(self, tiles_t: Tiles, tiles_tp1: Tiles, rho: Reals, c: Reals) -> Reals:
        """Learn from one transition between tiles, (n_active,), and return predictions at tiles_tp1, (n_demons,).

        rho is pi(a)/b(a) of each group, shape (n_groups,), c the cumulant of each demon, shape
        (n_demons,).
        """
        v_tp1: Reals = self.theta[tiles_tp1].sum(0)
        delta = c + self.gamma_demon * v_tp1 - self.v
        # e = rho (phi + gamma lambda_t e), then lambda_{t+1} = lambda min(1, 1/rho)
        self.e *= (self.gamma * self.lam_t)[:, None]
        self.e[:, tiles_t] += 1
        self.e *= rho[:, None]
        alpha, alpha_w, lam, tau = self.rates
        self.lam_t = np.where(rho > 1, lam / np.maximum(rho, 1), lam)
        self.s -= self.s / tau
        for g in np.flatnonzero(rho):
            lanes = slice(self.start[g], self.start[g + 1])
            e = self.e[g]
            # Laid out as the weights
            if self.order == "F":
                step = np.outer(delta[lanes], e).T
            else:
                step = np.outer(e, delta[lanes])
            y = e @ self.w[:, lanes]
            decay = rho[g] * self.w[tiles_t, lanes].sum(0)
            self.theta[:, lanes] += alpha * step
            self.theta[tiles_tp1, lanes] -= alpha * self.gamma[g] * (1 - self.lam_t[g]) * y
            self.w[:, lanes] += alpha_w * step
            self.w[tiles_t, lanes] -= alpha_w * decay
            self.s[lanes] += delta[lanes] * y / tau
            v_tp1[lanes] = self.theta[tiles_tp1, lanes].sum(0)
        self.v = v_tp1
        return v_tp1


class OwnTraces:
    """A trace for each demon. Arguments as of `SharedTraces`, gamma of each demon."""

    def __init__(self, gamma: Reals, n_features: int, rates: Rates, order: Order) -> None:
        shape = (n_features, gamma.size)
        self.rates = rates
        self.gamma = gamma.astype(np.float32)
        self.lam_t = np.full(gamma.size, rates.lam)
        self.theta, self.w, self.e, self._step = (
            np.zeros(shape, dtype=np.float32, order=order) for _ in range(4)
        )
        self.v, self.s = np.zeros((2, gamma.size), dtype=np.float32)

    def learn(self, tiles_t: Tiles, tiles_tp1: Tiles, rho: Reals, c: Reals) -> Reals:
        """Learn from one transition, as `SharedTraces` does; rho of each demon, shape (n_demons,)."""
        alpha, alpha_w, lam, tau = self.rates
        delta = c + self.gamma * self.theta[tiles_tp1].sum(0) - self.v
        q = self.w[tiles_t].sum(0)
        self.e *= rho * self.gamma * self.lam_t
        self.e[tiles_t] += rho
        self.lam_t = np.where(rho > 1, lam / np.maximum(rho, 1), lam)
        y = np.einsum("ij,ij->j", self.e, self.w)
        np.multiply(self.e, alpha * delta, out=self._step)
        self.theta += self._step
        self.theta[tiles_tp1] -= alpha * self.gamma * (1 - self.lam_t) * y
        self._step *= alpha_w / alpha
        self.w += self._step
        self.w[tiles_t] -= alpha_w * rho * q
        self.s += (delta * y - self.s) / tau
        self.v = self.theta[tiles_tp1].sum(0)
        return self.v


# The loop is vectorised only if the terms of the sum e.w may be reordered.
_fused: Any = numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc"})


class DenseState(NamedTuple):
    """Rows of demons, and one number per demon."""

    theta: Reals  # (n_demons, n_features)
    w: Reals
    e: Reals
    v: Reals  # (n_demons,): the prediction at the present
    s: Reals
    lam_t: Reals
    gamma: Reals


@_fused  # type: ignore[untyped-decorator]
def dense_one(
    i: int, state: DenseState, rates: Rates, tiles_t: Tiles, tiles_tp1: Tiles, rho: Reals, c: Reals
) -> None:
    """Update demon `i` from one transition between tiles, (n_active,); the active features are added after the pass.

    rho, pi(a)/b(a), and c, the cumulant, are those of each demon, shape (n_demons,), float32.
    """
    theta = state.theta[i]
    w = state.w[i]
    e = state.e[i]
    v_tp1 = np.float32(0.0)
    q = np.float32(0.0)
    for k in range(tiles_t.shape[0]):
        v_tp1 += theta[tiles_tp1[k]]
        q += w[tiles_t[k]]
    delta = c[i] + state.gamma[i] * v_tp1 - state.v[i]
    decay = rho[i] * state.gamma[i] * state.lam_t[i]
    y = rho[i] * q
    step = rates.alpha * delta
    step_w = rates.alpha_w * delta
    for j in range(e.shape[0]):
        trace = decay * e[j]
        y += trace * w[j]
        theta[j] += step * trace
        w[j] += step_w * trace
        e[j] = trace
    for k in range(tiles_t.shape[0]):
        j = tiles_t[k]
        e[j] += rho[i]
        theta[j] += step * rho[i]
        w[j] += step_w * rho[i] - rates.alpha_w * rho[i] * q
    state.lam_t[i] = rates.lam / max(rho[i], np.float32(1.0))
    turned = rates.alpha * state.gamma[i] * (np.float32(1.0) - state.lam_t[i]) * y
    v_tp1 = np.float32(0.0)
    for k in range(tiles_tp1.shape[0]):
        theta[tiles_tp1[k]] -= turned
        v_tp1 += theta[tiles_tp1[k]]
    state.s[i] += (delta * y - state.s[i]) / rates.tau
    state.v[i] = v_tp1


@parallel_kernel  # type: ignore[untyped-decorator]
def dense_step(
    state: DenseState, rates: Rates, tiles_t: Tiles, tiles_tp1: Tiles, rho: Reals, c: Reals
) -> None:
    """Update every demon from one transition; the shapes are those of `dense_one`."""
    for i in prange(rho.shape[0]):
        dense_one(i, state, rates, tiles_t, tiles_tp1, rho, c)


class DenseFused:
    """A trace for each demon. Arguments as of `OwnTraces`."""

    def __init__(self, gamma: Reals, n_features: int, rates: Rates) -> None:
        n = gamma.size
        self.rates = rates
        theta, w, e = (np.zeros((n, n_features), dtype=np.float32) for _ in range(3))
        v, s = np.zeros((2, n), dtype=np.float32)
        self.state = DenseState(theta, w, e, v, s, np.full(n, rates.lam), gamma.astype(np.float32))

    def learn(self, tiles_t: Tiles, tiles_tp1: Tiles, rho: Reals, c: Reals) -> Reals:
        """Learn from one transition, as `SharedTraces` does; rho and c of each demon, shape (n_demons,), float32."""
        dense_step(self.state, self.rates, tiles_t, tiles_tp1, rho, c)
        return self.state.v.copy()


def ratios(questions: Sequence[GVF], stream: WorkloadStream, n_steps: int) -> Any:
    """Return rho of each distinct policy at every step, float32, shape (n_steps, n_policies)."""
    policies = list(dict.fromkeys(q.target_policy for q in questions))
    few = [GVF(f"{i}", policy, Channel(0), 0.0) for i, policy in enumerate(policies)]
    horde = Horde(few, n_features=stream.n_features, n_active=stream.n_active)
    horde.begin(stream.sensors[0], stream.tiles[0])
    ratios = np.empty((n_steps, len(policies)), dtype=np.float32)
    for t in range(n_steps):
        action = int(stream.actions[t])
        probability = float(stream.probabilities[t])
        horde.learn(action, probability, stream.sensors[t + 1], stream.tiles[t + 1])
        ratios[t] = horde.rho
    return ratios


def of_constant_actions(
    questions: Sequence[GVF], stream: WorkloadStream, n_steps: int
) -> dict[str, Step]:
    """Return the NumPy versions of W1 in both layouts: five policies x three time scales share a trace each."""
    start = np.arange(0, 15 * N_SENSORS + 1, N_SENSORS)
    gamma = np.tile([0.0, 0.5, 0.8], 5)
    rho = np.repeat(ratios(questions, stream, n_steps), 3, axis=1)
    c = np.tile(stream.sensors[:, :N_SENSORS], 15).astype(np.float32)
    rates = Rates.of(stream)
    learners = {
        f"NumPy, {name}": SharedTraces(start, gamma, stream.n_features, rates, order)
        for name, order in LAYOUTS.items()
    }
    return {name: _step(learner, stream, rho, c) for name, learner in learners.items()}


def of_own_policies(questions: Sequence[GVF], stream: WorkloadStream, rho: Any) -> dict[str, Step]:
    """Return the NumPy versions of W2 in both layouts, and the dense pass."""
    channels: Any = [q.cumulant.index for q in questions]  # type: ignore[union-attr]
    c = stream.sensors[:, channels].astype(np.float32)
    rates = Rates.of(stream)
    gamma = np.array([q.continuation for q in questions])
    learners: dict[str, Any] = {
        f"NumPy, {name}": OwnTraces(gamma, stream.n_features, rates, order)
        for name, order in LAYOUTS.items()
    }
    learners["dense pass"] = DenseFused(gamma, stream.n_features, rates)
    return {name: _step(learner, stream, rho, c) for name, learner in learners.items()}


def _step(learner: Any, stream: WorkloadStream, rho: Any, c: Any) -> Step:
    tiles = stream.tiles
    return lambda t: learner.learn(tiles[t], tiles[t + 1], rho[t], c[t + 1])
