"""Slow twin of `kernels.readings`: the share of a reading's deviation that lasts, from its definition."""

from __future__ import annotations

from collections.abc import Sequence

N_MEAN = 300


class SlowReading:
    """The readings of one channel, stretch by stretch, and the share that follows from them.

    Args:
        gamma: Continuation of the question.
    """

    def __init__(self, gamma: float) -> None:
        self._gamma = gamma
        self._first = 0.0  # reading at which the latest stretch begins
        self._n_read = 0
        self._mean = 0.0
        self._deviations: list[list[float]] = []  # x_t - m_t of each stretch
        self._pairs: list[tuple[int, int, float]] = []  # stretch, t, x_{t+1} - m_t

    def begin(self, reading: float) -> None:
        """Begin a stretch; of the first readings of stretches only the very first one is one of the mean."""
        self._first = reading
        self._deviations.append([reading - self._mean])

    def learn(self, reading: float) -> None:
        """Add the next reading of the stretch."""
        stretch = len(self._deviations) - 1
        deviations = self._deviations[stretch]
        if self._n_read == 0:
            self._read(self._first)
            deviations[0] = 0.0
        self._pairs.append((stretch, len(deviations) - 1, reading - self._mean))
        self._read(reading)
        deviations.append(reading - self._mean)

    def _read(self, reading: float) -> None:
        self._n_read += 1
        self._mean += (reading - self._mean) / min(self._n_read, N_MEAN)

    def share(self) -> float:
        """Return kappa: discounted products of each reading and those before it, over their squares."""
        product = 0.0
        square = 0.0
        for stretch, t, after in self._pairs:
            before: Sequence[float] = self._deviations[stretch]
            for k in range(t + 1):
                product += self._gamma**k * before[t - k] * after
                square += self._gamma**k * before[t - k] ** 2
        if square == 0.0:
            return 0.0
        return min(max(product / square, 0.0), 1.0)
