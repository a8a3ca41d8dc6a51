"""UDE, the unexpected demon error: large where the TD error is no longer noise. Source: White (2015), chapter 7."""

from __future__ import annotations

import numpy as np

from horde_agent.types import Floats

_SMALLEST_DEVIATION = 1e-6  # White (2015): keeps a UDE finite where the TD error does not vary


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
        """Take in one sample, of the trace's shape."""
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
