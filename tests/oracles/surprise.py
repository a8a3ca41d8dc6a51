"""Slow twin of `kernels.surprise`: the values of signals, one question and one signal after another."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


class Question:
    """A question's past: the running mean and variance of its spreads.

    Args:
        signal: Its number; -1 if it is not watched.
        gamma: Its continuation.
        step: Quantisation step of its channel.
    """

    def __init__(self, signal: int, gamma: float, step: float) -> None:
        self.signal = signal
        self.gamma = gamma
        self.step = step
        self.n = 0
        self.mean = 0.0
        self.variance = 1.0

    def sample(
        self, error: float, square: float, n_updates: float, weight: float
    ) -> tuple[float, float] | None:
        """Return the distance of its spread, and its lean; None if a block says too little."""
        if n_updates < 3 or square <= 0.0 or not math.isfinite(error + square):
            return None
        m = self.step**2 + square / weight
        lean = math.sqrt(n_updates / m) * error / weight
        z = self.distance(math.log(m))
        if z is None:
            return None
        return z, lean

    def distance(self, spread: float) -> float | None:
        """Return the distance from the mean, None for the first eleven, and add it, cut off at 4 after 31."""
        away = spread - self.mean
        deviation = math.sqrt(self.variance + 0.2**2)
        z = away / deviation
        if self.n > 30 and abs(z) > 4.0:
            away = math.copysign(4.0 * deviation, z)
        self.n += 1
        rate = 1.0 / min(self.n, 600)
        self.mean += rate * away
        if self.n > 1:
            self.variance += rate * ((1.0 - rate) * away**2 - self.variance)
        if self.n - 1 > 10:
            return z
        return None


def own_values(
    questions: Sequence[Question], sums: np.ndarray, ratios: np.ndarray, n_signals: int
) -> tuple[np.ndarray, list[bool]]:
    """Return spread and lean of each signal, shape (2, n_signals), and which signals had an update."""
    spreads: list[list[tuple[float, float]]] = [[] for _ in range(n_signals)]
    leans: list[list[tuple[float, float]]] = [[] for _ in range(n_signals)]
    for number, question in enumerate(questions):
        sample = question.sample(*sums[:, number].tolist(), *ratios[:, number].tolist())
        if sample is None or question.signal < 0:
            continue
        z, lean = sample
        n = float(ratios[0, number])
        reach = 1.0 / max(1.0 - question.gamma, 1e-3)
        spreads[question.signal].append((n, min(max(z, -4.0), 4.0)))
        leans[question.signal].append((reach * math.sqrt(n), lean))
    values = np.zeros((2, n_signals))
    for row, lists in enumerate((spreads, leans)):
        for signal, samples in enumerate(lists):
            if samples:
                weights, numbers = zip(*samples, strict=True)
                values[row, signal] = np.average(numbers, weights=weights)
    return values, [bool(samples) for samples in spreads]


def apart_values(
    own: np.ndarray, has_update: Sequence[bool], is_muted: Sequence[bool], groups: Sequence[str]
) -> np.ndarray:
    """Return how far values, shape (2, n_signals), are from the mean of their group's others."""
    apart = np.zeros_like(own)
    for signal, group in enumerate(groups):
        members = [k for k in range(len(groups)) if groups[k] == group]
        compared = [k for k in members if k != signal and has_update[k] and not is_muted[k]]
        if len(members) >= 3 and has_update[signal] and compared:
            apart[:, signal] = own[:, signal] - own[:, compared].mean(axis=1)
    return apart


class Series:
    """What a lagged running mean and the preceding value do not say of one value of a signal."""

    def __init__(self, hold: int) -> None:
        self.hold = hold
        self.values: list[float] = []
        self.muted: list[bool] = []
        self.mean = 0.0
        self.n_pairs = 0
        self.product = 0.0
        self.square = 0.0
        self.previous = 0.0

    def residual(self, value: float, is_muted: bool) -> float:
        """Return the residual of the next value."""
        n = len(self.values)
        distance = value - self.mean
        phi = 0.0
        if self.n_pairs > 30:
            phi = min(max(self.product / max(self.square, 0.25**2), 0.0), 0.9)
        residual = distance - phi * self.previous
        if n > self.hold + 1:
            self.n_pairs += 1
            if not is_muted:
                reach = max(1.0 / self.n_pairs, 1.0 / 500)
                self.product += reach * (distance * self.previous - self.product)
                self.square += reach * (self.previous**2 - self.square)
        self.previous = distance
        if n >= self.hold and not (is_muted or self.muted[n - self.hold]):
            reach = max(1.0 / (n - self.hold + 1), 1.0 / 300)
            self.mean += reach * (self.values[n - self.hold] - self.mean)
        self.values.append(value)
        self.muted.append(is_muted)
        return residual
