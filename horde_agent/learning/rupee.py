"""Online errors of a Horde's demons: UDE and RUPEE.

Source: White (2015), chapter 7.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from horde_agent.kernels.checks import Signals
from horde_agent.learning.engine import Engine
from horde_agent.learning.rules import PAPER_CONFIG, LearnerConfig
from horde_agent.refusals import number_in
from horde_agent.types import Floats, Tiles

_SMALLEST_DEVIATION = 1e-6  # White (2015): keeps the UDE finite if the TD error does not vary


class UnbiasedTrace:
    """An exponential trace that starts as a plain mean: x += (beta0 / n) (sample - x), n += beta0 (1 - n).

    `value`, of the given shape, is the weighted mean of the samples so far, 0 before the first.

    Source: Sutton & Barto (2018), exercise 2.7.
    """

    def __init__(self, shape: int | tuple[int, ...], beta0: float) -> None:
        self.value = np.zeros(shape)
        self._beta0 = number_in("beta0", beta0, "(0, 1]")
        self._n = 0.0

    def update(self, sample: Floats) -> None:
        """Add one sample, of the trace's shape."""
        self._n += self._beta0 * (1.0 - self._n)
        self.value += (self._beta0 / self._n) * (sample - self.value)


class UDE:
    """Unexpected demon error: |trace of rho delta| / (standard deviation of rho delta so far + 1e-6).

    With delta instead of rho delta, as first published, it does not settle off-policy: at rho = 0
    the mean error need not be 0. The trace has the step size beta0; White (2015) takes 10 alpha.

    Source: White (2015), chapter 7.
    """

    def __init__(self, n_demons: int, beta0: float) -> None:
        self._trace = UnbiasedTrace(n_demons, beta0)
        self._n = 0
        self._mean = np.zeros(n_demons)
        self._square = np.zeros(n_demons)

    def update(self, td_error: Floats, rho: Floats) -> None:
        """Add one learning step, both of shape (n_demons,)."""
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

    At lambda = 1 it would be 0; 1e-6 is used instead.
    """
    return max((1.0 - lam) * step_size / 30.0, 1e-6)


def rupee_config(config: LearnerConfig, beta0: float) -> LearnerConfig:
    """Return the options of the engine of a RUPEE, from those of the demons: h is GTD's w, whatever their rule."""
    changes: dict[str, Any] = {
        "mspbe_tau": 1.0 / beta0,
        "vector_mspbe": True,
        "average": 0.0,
        "rarity": False,
        "w_rule": "every-step",
    }
    return replace(config, algorithm=PAPER_CONFIG.algorithm, parameters={}, **changes)


class RUPEE:
    """Recent unsigned projected error estimate: sqrt(|h.d|), d a trace of delta e and h its projection on the features.

        h <- h + alpha_h (delta e - (h.phi) phi)
        d <- d + (beta0 / n) (delta e - d),   n <- n + beta0 (1 - n)

    h has the update of w under "every-step", and d (1 - (1 - beta0)^t) after t steps that of m. So
    a second engine learns them, with the TD errors as its cumulants and alpha = 0.

        rupee = horde.new_rupee(beta0)
        horde.begin(observation, tiles); rupee.begin(tiles)
        horde.learn(...); rupee.learn(tiles, horde.signals, horde.td_error)

    Args:
        engine: A new engine for the same demons, with alpha = 0, alpha_w = alpha_h, and the options
            of `rupee_config`.
        config: These options.

    Source: White (2015), chapter 7, with alpha_h = 5 alpha and beta0 as in `rupee_beta0`.
    """

    def __init__(self, engine: Engine, config: LearnerConfig) -> None:
        self._engine = engine
        self._beta0 = 1.0 / config.mspbe_tau
        self._n_steps = 0
        self._copied_from: Signals | None = None

    def begin(self, tiles: Tiles) -> None:
        """Clear the traces, as `PlainEngine.begin`; `tiles` of shape (n_active,)."""
        self._engine.begin(tiles)

    def learn(
        self, tiles: Tiles, signals: Signals, td_error: Floats, *, is_last: bool = False
    ) -> None:
        """Learn from the signals and TD errors, shape (n_demons,), of a transition to `tiles`, shape (n_active,).

        A demon with a NaN skips the step. `is_last` is True if the stream ends there.

        Raises:
            RuntimeError: If no stream was begun.
        """
        # A Horde's signals are the same arrays on each step, and so are these
        if signals is not self._copied_from:
            self._copied_from = signals
            self._signals = signals._replace(
                c_tp1=np.zeros_like(td_error),
                z_tp1=np.zeros_like(td_error),
                # w decays also in the steps that the Horde's demons skip for want of a ratio
                has_rho=np.ones(1, dtype=np.bool_),
            )
        self._signals.c_tp1[:] = td_error
        self._engine.learn(tiles, self._signals, is_last=is_last)
        self._n_steps += 1

    def value(self) -> Floats:
        """Return the RUPEE, shape (n_demons,); 0 before the first step."""
        weight = -np.expm1(self._n_steps * np.log1p(-self._beta0))
        return np.asarray(np.sqrt(np.abs(self._engine.mspbe_vector()) / (weight or 1.0)))
