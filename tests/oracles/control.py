"""Control rules in dense form, one demon, float64: slow and obvious. Every right-hand side uses old values.

Sources: see horde_agent/kernels/rules/greedy_gq.py, qrc.py and qrc_2025.py.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class DenseControl:
    """Greedy-GQ(lambda), QRC(lambda) or QRC(lambda) of 2025 on theta of shape (n_actions, n_features)."""

    def __init__(
        self,
        rule: str,
        n_actions: int,
        n_features: int,
        alpha: float,
        alpha_w: float,
        *,
        beta: float,
        rho_max: float,
    ) -> None:
        self.rule = rule
        self.alpha = alpha
        self.alpha_w = alpha_w
        self.beta = beta
        self.rho_max = rho_max
        self.theta, self.w, self.e = np.zeros((3, n_actions, n_features))
        self.u = self.delta = 0.0

    def begin(self, phi: Floats) -> None:
        self.e[:] = 0.0
        self.u = 0.0
        self.phi = phi
        self.decay = 0.0

    def policy(self, phi: Floats) -> Floats:
        """Return the greedy policy; equal values share it."""
        values = self.theta @ phi
        is_best = values == values.max()
        return np.asarray(is_best / is_best.sum())

    def learn(
        self, action: int, b: float, phi_tp1: Floats, gamma: float, lam: float, c: float, z: float
    ) -> None:
        rho = self.policy(self.phi)[action] / b
        if self.rule == "qrc_2025":
            cut = float(rho > 0)
        else:
            cut = min(rho, self.rho_max)
        phi = np.zeros_like(self.theta)
        pb = self.policy(phi_tp1)[:, None] * phi_tp1
        phi[action] = self.phi
        self.delta = (
            c + (1 - gamma) * z + gamma * (self.theta * pb).sum() - (self.theta * phi).sum()
        )
        self.e = phi + self.decay * cut * self.e
        q = (self.w * phi).sum()
        e_w = (self.w * self.e).sum()
        self.u = q + self.decay * cut * self.u
        step = self.delta * self.e - gamma * (1 - lam) * e_w * pb
        if self.rule == "qrc_2025":
            step = self.delta * self.e - q * phi + self.u * (phi - gamma * pb)
        self.theta = self.theta + self.alpha * step
        self.w = self.w + self.alpha_w * (self.delta * self.e - q * phi - self.beta * self.w)
        self.phi = phi_tp1
        self.decay = gamma * lam
