"""Lives for the benchmarks of the robot, and their figures in short."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from horde_agent import questions
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.life.life import Life
from horde_agent.life.observers import sound_demons
from horde_agent.policies import StickyRandom
from horde_agent.runs.jobs import tables as results
from horde_agent.runs.jobs.warm import warm_up

FEW = ("/light_0", "/ir_light_0", "/rotational_velocity", "/ir_distance_0")


def make_life(env: gymnasium.Env[Any, Any], seed: int, *, few: bool = False) -> Life:
    """Return a life as `horde learn` leads it, its kernels compiled: the paper's 795 questions, or a `few` of them."""
    interface = Interface.of(env)
    asked = questions.excursions(interface)
    if few:
        asked = [gvf for gvf in asked if gvf.name.endswith(FEW) and "/g0.8/" in gvf.name]
    horde = Horde(asked, n_features=interface.coder.n_features, n_active=interface.coder.n_active)
    warm_up(horde, interface)
    return Life(env, horde, StickyRandom(len(interface.actions)), np.random.default_rng(seed), interface=interface)


def scores(life: Life) -> dict[str, Any]:
    """Return what a life has learned, as its summary.json says it, and the demons that were set aside."""
    nmsre = results.nmsre_summary(life.student.errors.nmsre(), sound_demons(life.horde))
    return {
        "learning_steps": life.student.learning_steps,
        "n_questions": life.horde.n_demons,
        "n_excursions": life.student.errors.n_excursions,
        "diverged": list(life.horde.diverged),
        **{key: rounded(value, 4) for key, value in nmsre.items()},
    }


def rounded(value: float | None, digits: int) -> Any:
    """Round a number that may be missing."""
    return None if value is None else round(value, digits)


def rounded_ms(durations: Any) -> dict[str, float] | None:
    """Return p50, p99 and max of durations in milliseconds."""
    summary = durations.summary_ms()
    return None if summary is None else {key: round(value, 3) for key, value in summary.items()}
