"""GTD(lambda) in dense matrix form, one row per demon: slow, obvious, float64.

Source: Maei (2011) and White, Modayil & Sutton (2012). Every right-hand side uses old values.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class DenseGTD:
    """The pseudo-code with phi, e, theta and w in full. Arguments as of GTDLambda; alpha may be one per demon."""

    def __init__(
        self,
        n_demons: int,
        n_features: int,
        alpha: float,
        alpha_w: float,
        *,
        trace_rule: str = "clipped",
        w_rule: str = "every-step",
        tau: float = 10_000.0,
    ) -> None:
        self.theta, self.w, self.e, self.m = np.zeros((4, n_demons, n_features))
        self.s, self.delta, self.max_e = np.zeros((3, n_demons))
        self.alpha = alpha
        self.alpha_w = alpha_w
        self.tau = tau
        self.trace_rule = trace_rule
        self.w_rule = w_rule
        self.phi = np.zeros(n_features)
        self.scale = np.ones(n_features)  # factor of each feature's step size
        self.is_bounded = (
            False  # the step sizes are divided by the largest gain, if that is above 1
        )
        self.largest_gain = np.zeros(n_demons)

    def begin(self, phi: Floats, gamma: Floats, lam: Floats) -> Floats:
        self.e[:] = 0
        self.phi = phi
        self.gamma_t = gamma
        self.lam_t = lam
        return self.theta @ phi

    def learn(
        self, phi_tp1: Floats, rho: Floats, gamma: Floats, lam: Floats, c: Floats, z: Floats
    ) -> Floats:
        """Learn from one transition; all numbers are per demon. Returns theta_{t+1} phi_{t+1}.

        A demon with a signal that is not finite skips the step: its trace is cleared and no weight
        changes.
        """
        is_valid = np.isfinite([rho, gamma, lam, c, z]).all(axis=0)
        rho, gamma, lam, c, z = (
            np.where(is_valid, values, 0.0) for values in (rho, gamma, lam, c, z)
        )
        lam_tp1 = lam
        if self.trace_rule == "clipped":
            lam_tp1 = lam * np.minimum(1.0, 1.0 / np.where(rho > 0, rho, 1.0))
        self.delta = is_valid * (
            c + (1 - gamma) * z + gamma * (self.theta @ phi_tp1) - self.theta @ self.phi
        )
        unweighted = self.phi + (self.gamma_t * self.lam_t)[:, None] * self.e
        if self.trace_rule == "capped":
            unweighted = np.minimum(unweighted, 1.0)
        self.e = rho[:, None] * unweighted
        self.max_e = np.maximum(self.max_e, self.e.max(axis=1))
        step = self.delta[:, None] * self.e
        y = (self.e * self.w).sum(axis=1)
        q = self.w @ self.phi
        self.m += (step - self.m) / self.tau
        self.s += (self.delta * y - self.s) / self.tau
        correction = (gamma * (1 - lam_tp1) * y)[:, None] * phi_tp1
        alpha = self.alpha
        alpha_w = self.alpha_w
        if self.is_bounded:
            gain = self.alpha[:, 0] * (self.e @ (self.scale * self.phi))
            self.largest_gain = np.maximum(self.largest_gain, gain)
            excess = np.maximum(self.largest_gain, 1.0)[:, None]
            alpha = alpha / excess
            alpha_w = alpha_w / excess
        self.theta += alpha * self.scale * (step - correction)
        decay = is_valid * (q if self.w_rule == "every-step" else rho * q)
        self.w += alpha_w * self.scale * (step - decay[:, None] * self.phi)
        self.phi = phi_tp1
        self.gamma_t = gamma
        self.lam_t = lam_tp1
        return self.theta @ phi_tp1
