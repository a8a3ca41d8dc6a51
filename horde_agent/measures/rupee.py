"""Other measures of learning, from what a Horde tells of each step: ESS, UDE, RUPEE, and when an MSPBE estimate counts.

ESS, the effective sample size, is how many on-policy steps the steps so far are worth; UDE, the unexpected demon error,
is large where the TD error is no longer noise; RUPEE, the recent unsigned projected error estimate, is the square root
of an MSPBE that is made without the secondary weights. Sources: Kong (1992); White (2015), chapter 7.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from horde_agent.kernels.gtd_arrays import Signals
from horde_agent.learning.engine import Engine
from horde_agent.learning.roster import Roster
from horde_agent.learning.rules import LearnerConfig
from horde_agent.saving import State, attributes, inner, nested, put_back

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


def effective_sample_size(total: Floats, squares: Floats) -> Floats:
    """Return (sum rho)^2 / sum rho^2 for each demon, from both sums: t after t on-policy steps, 0 if rho was 0."""
    return np.asarray(total**2 / np.where(squares > 0, squares, 1.0))


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
        return effective_sample_size(self._sum, self._square)

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

        h <- h + alpha_h (delta e - (h.phi) phi)
        d <- d + (beta0 / n) (delta e - d),   n <- n + beta0 (1 - n)

    h obeys the rule of w under "every-step", and d (1 - (1 - beta0)^t) after t steps that of m, both with another step
    size. So a second engine learns them, from the TD errors as its cumulants and with theta standing still at 0, where
    its own TD errors are these very cumulants. It goes as fast as any engine, and needs three more numbers per weight.

    Args:
        engine: A fresh engine for the same demons, with alpha = 0, alpha_w = alpha_h, and `rupee_config`'s rules.

    Source: White (2015), chapter 7; he takes alpha_h = 5 alpha, and beta0 as in `rupee_beta0`.
    """

    def __init__(self, engine: Engine, config: LearnerConfig) -> None:
        self._engine, self._beta0 = engine, 1.0 / config.mspbe_tau
        self._n_steps = np.zeros(engine.latest.size)
        self._told_from: Signals | None = None

    def begin(self, tiles: Tiles, gamma: Floats, lam: Floats) -> None:
        """Clear the traces, as `Engine.begin`."""
        self._engine.begin(tiles, gamma, lam)

    def learn(self, tiles: Tiles, signals: Signals, td_error: Floats) -> None:
        """Take in a transition: what the demons were told, and the TD errors that they made, shape (n_demons,).

        It is NaN for whom the step is a gap.
        """
        if signals is not self._told_from:  # a Horde's are the same arrays on each step, and so are these
            self._told_from = signals
            self._told = signals._replace(c_tp1=np.zeros_like(td_error), z_tp1=np.zeros_like(td_error))
        self._told.c_tp1[:] = td_error
        self._engine.learn(tiles, self._told)
        self._n_steps += 1

    def state(self) -> State:
        """Return all that this estimate's future depends on."""
        return nested(engine=self._engine.state(), own=attributes(self, "_n_steps"))

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        self._engine.restore(inner(state, "engine"))
        put_back(self, inner(state, "own"), "_n_steps")
        self._told_from = None

    def newly_broken(self) -> dict[int, str]:
        """Return the demons whose RUPEE cannot be kept any more since they were last asked for, and why."""
        return self._engine.newly_broken() if self._engine.alarm else {}

    def set_aside(self, demon: int) -> None:
        """Set one demon's RUPEE to 0 for good."""
        self._engine.set_aside(demon)

    def rearrange(self, roster: Roster) -> None:
        """Go on with other demons; a newcomer's steps are counted from now on."""
        self._engine.rearrange(roster)
        self._n_steps = np.where(roster.is_new, 0.0, self._n_steps[roster.stays])

    def value(self) -> Floats:
        """Return the RUPEE, shape (n_demons,); 0 before the first step."""
        weight = -np.expm1(self._n_steps * np.log1p(-self._beta0))
        return np.asarray(np.sqrt(np.abs(self._engine.mspbe_vector()) / np.where(weight > 0, weight, 1.0)))


def rupee_config(config: LearnerConfig, beta0: float) -> LearnerConfig:
    """Return the rules of the engine behind a RUPEE: those of the demons, but for its own of h and d."""
    return replace(config, w_rule="every-step", mspbe_tau=1.0 / beta0, vector_mspbe=True)
