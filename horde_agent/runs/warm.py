"""Compile what a life uses before it is wanted: `horde warm`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from horde_agent import questions
from horde_agent.gvf import GVF
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.learning.rules import TRACE_RULES, W_RULES, LearnerConfig
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.life import Life
from horde_agent.policies import StickyRandom
from horde_agent.runs.jobs import warm_up

_STEPS = 150
_OFTEN = ExcursionConfig(probability=0.1, horizon=5)


def warm(env: gymnasium.Env[Any, Any]) -> float:
    """Live for a moment with the default questions, then learn twice under every other rule and family.

    Args:
        env: Where to live; it stays open.

    Returns:
        How long that took, in seconds. What was compiled is in numba's cache.
    """
    began = time.perf_counter()
    interface = Interface.of(env)
    hordes = _hordes(interface)
    rng, behaviour = np.random.default_rng(0), StickyRandom(len(interface.actions))
    with Life(env, next(hordes), behaviour, rng, interface=interface, excursions=_OFTEN) as life:
        life.run(_STEPS)
    for horde in hordes:
        warm_up(horde, interface)
    return time.perf_counter() - began


def _hordes(interface: Interface) -> Iterator[Horde]:
    """Yield a Horde of every kind that `horde learn` makes, the default one first."""
    coder = interface.coder
    families: list[list[GVF]] = [
        questions.excursions(interface),
        questions.nexting(interface),
        questions.policies(interface, np.random.default_rng(0)),
    ]
    for family, trace_rule, w_rule in itertools.product(families, TRACE_RULES, W_RULES):
        config: Any = LearnerConfig(trace_rule=trace_rule, w_rule=w_rule)  # type: ignore[arg-type]
        yield Horde(family, n_features=coder.n_features, n_active=coder.n_active, config=config)
