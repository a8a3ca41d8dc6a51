"""LearnerConfig: the learning rules and options of both engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from horde_agent.kernels.rules import names

TRACE_RULES = ("clipped", "capped", "plain")
W_RULES = ("every-step", "importance-weighted")
DTYPES = ("float32", "float64")
ENGINES = ("span", "plain")


@dataclass(frozen=True, slots=True)
class LearnerConfig:
    """Options of the learning algorithm.

    Attributes:
        step_size: Primary step size; alpha = step_size / number of active tiles.
        secondary_ratio: alpha_w / alpha.
        trace_rule: "clipped": lambda_{t+1} = lambda min(1, 1/rho_t). "capped": entries of phi + gamma lambda e are at
            most 1, before rho. "plain": the paper's pseudo-code; the trace may have infinite variance.
        w_rule: "every-step": w -= alpha_w (phi.w) phi on every step, as in the paper's pseudo-code.
            "importance-weighted": this term is multiplied by rho.
        dtype: "float32" or "float64".
        mspbe_tau: Time constant of the online MSPBE estimates, in learning steps; above 1.
        vector_mspbe: True to compute the vector estimate (a third number per weight).
        check_every: Learning steps between two checks of a weight against its bound in the plain engine; the span
            engine checks each weight that it writes.
        engine: "span", the fast engine, or "plain", the reference, which supports all rules.
        algorithm: The update rule: the name of its file in `kernels/rules`; the span engine supports only "gtd".

    Raises:
        ValueError: If a value is out of range; the message names it.

    Source: White, Modayil & Sutton (2012), section 5, https://arxiv.org/abs/1206.6262: step size 0.1 over the active
    tiles, ratio 0.001.

    Example:
        >>> config = LearnerConfig(trace_rule="plain", step_size=0.05)
        >>> config.step_size, config.w_rule
        (0.05, 'every-step')
    """

    step_size: float = 0.1
    secondary_ratio: float = 0.001
    trace_rule: Literal["clipped", "capped", "plain"] = "clipped"
    w_rule: Literal["every-step", "importance-weighted"] = "every-step"
    dtype: Literal["float32", "float64"] = "float32"
    mspbe_tau: float = 10_000.0
    vector_mspbe: bool = True
    check_every: int = 1_000
    engine: Literal["span", "plain"] = "span"
    algorithm: str = "gtd"

    def __post_init__(self) -> None:
        for name, choices in (("trace_rule", TRACE_RULES), ("w_rule", W_RULES), ("dtype", DTYPES), ("engine", ENGINES)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, not {getattr(self, name)!r}")
        if not (np.isfinite(self.step_size) and self.step_size > 0):
            raise ValueError(f"step_size must be positive, not {self.step_size!r}")
        if not (np.isfinite(self.secondary_ratio) and self.secondary_ratio >= 0):
            raise ValueError(f"secondary_ratio must be at least 0, not {self.secondary_ratio!r}")
        if not (np.isfinite(self.mspbe_tau) and self.mspbe_tau > 1):
            raise ValueError(f"mspbe_tau must be above 1 step, not {self.mspbe_tau!r}")
        if self.check_every < 1:
            raise ValueError(f"check_every must be at least 1 step, not {self.check_every!r}")
        if self.algorithm not in names():
            raise ValueError(f"algorithm must be one of {', '.join(names())}, not {self.algorithm!r}")

    @property
    def needs_plain_engine(self) -> bool:
        """True if the plain engine is chosen or required: the span engine supports neither "capped" nor other rules."""
        return self.engine == "plain" or self.trace_rule == "capped" or self.algorithm != "gtd"


PAPER_CONFIG = LearnerConfig()
