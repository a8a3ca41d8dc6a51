"""RUPEE, the recent unsigned projected error estimate: the square root of an MSPBE made without secondary weights.

Source: White (2015), chapter 7.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from horde_agent.kernels.checks import Signals
from horde_agent.learning.engine import Engine
from horde_agent.learning.layout import DemonMapping
from horde_agent.learning.rules import LearnerConfig
from horde_agent.saving import State, attributes, inner, nested, put_back
from horde_agent.types import Floats, Tiles


def rupee_beta0(step_size: float, lam: float) -> float:
    """Return White's time constant of a RUPEE: (1 - lambda) alpha tilings / 30, where alpha tilings is `step_size`.

    At lambda = 1 it would be 0, and its smallest sensible value, 1e-6, stands in.
    """
    return max((1.0 - lam) * step_size / 30.0, 1e-6)


class RUPEE:
    """Recent unsigned projected error estimate: sqrt(|h.d|), d a trace of delta e and h its projection on the features.

        h <- h + alpha_h (delta e - (h.phi) phi)
        d <- d + (beta0 / n) (delta e - d),   n <- n + beta0 (1 - n)

    h obeys the rule of w under "every-step", and d (1 - (1 - beta0)^t) after t steps that of m, both with another step
    size. So a second engine learns them, from the TD errors as its cumulants and with theta standing still at 0, where
    its own TD errors are these very cumulants. It goes as fast as any engine, and needs three more numbers per weight.

        rupee = horde.new_rupee(beta0)
        horde.begin(observation, tiles); rupee.begin(tiles)
        horde.learn(...); rupee.learn(tiles, horde.signals, horde.td_error)

    Args:
        engine: A fresh engine for the same demons, with alpha = 0, alpha_w = alpha_h, and `rupee_config`'s rules.
        config: These rules.

    Source: White (2015), chapter 7; he takes alpha_h = 5 alpha, and beta0 as in `rupee_beta0`.
    """

    def __init__(self, engine: Engine, config: LearnerConfig) -> None:
        self._engine, self._beta0 = engine, 1.0 / config.mspbe_tau
        self._n_steps = np.zeros(engine.latest.size)
        self._copied_from: Signals | None = None

    def begin(self, tiles: Tiles) -> None:
        """Clear the traces, as `Engine.begin`; `tiles` of shape (n_active,)."""
        self._engine.begin(tiles)

    def learn(self, tiles: Tiles, signals: Signals, td_error: Floats, *, is_last: bool = False) -> None:
        """Learn from the signals and TD errors of a transition to `tiles`, shape (n_demons,).

        One that is NaN is a gap. `is_last` says that the stream ends there.
        """
        if signals is not self._copied_from:  # a Horde's are the same arrays on each step, and so are these
            self._copied_from = signals
            self._signals = signals._replace(c_tp1=np.zeros_like(td_error), z_tp1=np.zeros_like(td_error))
        self._signals.c_tp1[:] = td_error
        self._engine.learn(tiles, self._signals, is_last=is_last)
        self._n_steps += 1

    def state(self) -> State:
        """Return all that this estimate's future depends on."""
        return nested(engine=self._engine.state(), own=attributes(self, "_n_steps"))

    def restore(self, state: State) -> None:
        """Restore a state from `state`."""
        self._engine.restore(inner(state, "engine"))
        put_back(self, inner(state, "own"), "_n_steps")
        self._copied_from = None

    def pop_flagged(self) -> dict[int, str]:
        """Return demons whose RUPEE diverged since the last call, with the reasons."""
        return self._engine.pop_flagged() if self._engine.flags else {}

    def freeze(self, demon: int) -> None:
        """Set one demon's RUPEE to 0 for good."""
        self._engine.freeze(demon)

    def rearrange(self, mapping: DemonMapping) -> None:
        """Continue after demons were added or removed; new ones start with 0 steps."""
        self._engine.rearrange(mapping)
        self._n_steps = np.where(mapping.is_new, 0.0, self._n_steps[mapping.old_index])

    def value(self) -> Floats:
        """Return the RUPEE, shape (n_demons,); 0 before the first step."""
        weight = -np.expm1(self._n_steps * np.log1p(-self._beta0))
        return np.asarray(np.sqrt(np.abs(self._engine.mspbe_vector()) / np.where(weight > 0, weight, 1.0)))


def rupee_config(config: LearnerConfig, beta0: float) -> LearnerConfig:
    """Return the rules of the engine behind a RUPEE: those of the demons, but for its own of h and d."""
    return replace(config, w_rule="every-step", mspbe_tau=1.0 / beta0, vector_mspbe=True)
