"""Slow, obvious twin of the conditioning experiment's learner: TD(lambda) with Adam's step sizes, in vectors."""

from __future__ import annotations

import numpy as np


def slow_adam(
    phi: np.ndarray, cumulant: np.ndarray, gamma: float, step_size: float, lam: float = 0.9
) -> np.ndarray:
    """Return the weights after a stream of features, shape (n_steps, n); Kingma & Ba (2015), algorithm 1."""
    n_steps, n = phi.shape
    theta, e, m, v = np.zeros((4, n))
    for t in range(1, n_steps):
        delta = cumulant[t] + gamma * theta @ phi[t] - theta @ phi[t - 1]
        e = gamma * lam * e + phi[t - 1]
        m = 0.9 * m + 0.1 * delta * e
        v = 0.999 * v + 0.001 * (delta * e) ** 2
        theta = theta + step_size * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return theta
