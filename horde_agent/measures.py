"""Other measures of learning, from what a Horde tells of each step: ESS, UDE, RUPEE, and when an MSPBE estimate counts.

ESS, the effective sample size, is how many on-policy steps the steps so far are worth; UDE, the unexpected demon error,
is large where the TD error is no longer noise; RUPEE, the recent unsigned projected error estimate, is the square root
of an MSPBE that is made without the secondary weights. Sources: Kong (1992); White (2015), chapter 7.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from horde_agent.learner import LearnerConfig

Floats = NDArray[np.float64]
Tiles = NDArray[np.int64]

_SMALLEST_DEVIATION = 1e-6  # White (2015): keeps a UDE finite where the TD error does not vary


def updates_until_valid(config: LearnerConfig) -> float:
    """Return after how many updates with rho > 0 an MSPBE estimate may be read.

    Both estimates begin at 0 with w, and w has moved most of its way after some 1 / (alpha_w ||phi||^2) updates. With
    n active tiles ||phi||^2 = n and alpha_w = step_size secondary_ratio / n. Infinite where w does not move.
    """
    rate = config.step_size * config.secondary_ratio
    return 1.0 / rate if rate > 0 else np.inf


class Ratios:
    """What the importance sampling ratios of a stream add up to, for many demons.

    Args:
        n_demons: Number of demons.

    Attributes:
        n_steps: Learning steps.
        n_updates: Steps with rho > 0, shape (n_demons,).
    """

    def __init__(self, n_demons: int) -> None:
        self.n_steps = 0
        self.n_updates = np.zeros(n_demons, dtype=np.int64)
        self._sum, self._square = np.zeros((2, n_demons))

    def update(self, rho: Floats) -> None:
        """Take in one learning step's ratios, shape (n_demons,)."""
        self.n_steps += 1
        self.n_updates += rho > 0
        self._sum += rho
        self._square += rho * rho

    def effective_sample_size(self) -> Floats:
        """Return t mean(rho)^2 / mean(rho^2) after t steps, shape (n_demons,): t on-policy, 0 if rho was 0."""
        square = np.where(self._square > 0, self._square, 1.0)
        return np.asarray(self._sum**2 / square)

    def is_valid(self, config: LearnerConfig) -> NDArray[np.bool_]:
        """Return whose MSPBE estimates may be read: their w has had time to move; shape (n_demons,)."""
        return np.asarray(self.n_updates >= updates_until_valid(config))


class UnbiasedTrace:
    """An exponential trace that starts as a plain mean: x += (beta0 / n) (sample - x), n += beta0 (1 - n).

    Args:
        shape: Of a sample.
        beta0: Step size in the long run, in (0, 1].

    Attributes:
        value: Weighted mean of the samples so far; 0 before the first.

    Source: Sutton & Barto (2018), exercise 2.7.
    """

    def __init__(self, shape: int | tuple[int, ...], beta0: float) -> None:
        if not 0.0 < beta0 <= 1.0:
            raise ValueError(f"beta0 must be in (0, 1], not {beta0}")
        self.value, self._beta0, self._n = np.zeros(shape), beta0, 0.0

    def update(self, sample: Floats) -> None:
        """Take in one sample."""
        self._n += self._beta0 * (1.0 - self._n)
        self.value += (self._beta0 / self._n) * (sample - self.value)


class UDE:
    """Unexpected demon error: |trace of rho delta| / (standard deviation of rho delta so far + 1e-6).

    With plain delta, as first published, it does not settle off-policy: where rho = 0 the error need not average out.

    Args:
        n_demons: Number of demons.
        beta0: Step size of the trace; White (2015) takes 10 alpha.
    """

    def __init__(self, n_demons: int, beta0: float) -> None:
        self._trace = UnbiasedTrace(n_demons, beta0)
        self._n, self._mean, self._square = 0, np.zeros(n_demons), np.zeros(n_demons)

    def update(self, td_error: Floats, rho: Floats) -> None:
        """Take in one learning step, both of shape (n_demons,)."""
        sample = rho * td_error
        self._trace.update(sample)
        self._n += 1
        off = sample - self._mean
        self._mean += off / self._n
        self._square += off * (sample - self._mean)

    def value(self) -> Floats:
        """Return the UDE, shape (n_demons,); 0 before the second step."""
        if self._n < 2:
            return np.zeros_like(self._mean)
        deviation = np.sqrt(self._square / (self._n - 1))
        return np.asarray(np.abs(self._trace.value) / (deviation + _SMALLEST_DEVIATION))


def rupee_beta0(step_size: float, lam: float) -> float:
    """Return White's time constant of a RUPEE: (1 - lambda) alpha tilings / 30, where alpha tilings is `step_size`.

    At lambda = 1 it would be 0, and its smallest sensible value, 1e-6, stands in.
    """
    return max((1.0 - lam) * step_size / 30.0, 1e-6)


class RUPEE:
    """Recent unsigned projected error estimate: sqrt(|h.d|), d a trace of delta e and h its projection on the features.

    It keeps two more numbers per weight and needs every trace in full (`GTDLambda.traces` of the plain engine; the span
    engine stores none), so it is for a few demons.

    Args:
        n_demons: Number of demons.
        n_features: Number of features.
        alpha_h: Step size of h, already divided by the active tiles; White (2015) takes 5 alpha.
        beta0: Step size of d, see `rupee_beta0`.

    Source: White (2015), chapter 7.
    """

    def __init__(self, n_demons: int, n_features: int, alpha_h: float, beta0: float) -> None:
        self._h = np.zeros((n_demons, n_features))
        self._d = UnbiasedTrace((n_demons, n_features), beta0)
        self._alpha_h = alpha_h

    def update(self, td_error: Floats, e: Floats, tiles: Tiles) -> None:
        """Take in one learning step.

        Args:
            td_error: delta_t, shape (n_demons,).
            e: e_t, shape (n_demons, n_features); it holds rho already.
            tiles: Active features of phi_t, shape (n_active,); one that is there twice counts twice.
        """
        sample = td_error[:, None] * e
        h_phi = self._h[:, tiles].sum(axis=1)
        self._h += self._alpha_h * sample
        np.subtract.at(self._h.T, tiles, self._alpha_h * h_phi)
        self._d.update(sample)

    def value(self) -> Floats:
        """Return the RUPEE, shape (n_demons,)."""
        return np.asarray(np.sqrt(np.abs((self._h * self._d.value).sum(axis=1))))
