"""A Horde: many general value functions learned off-policy and in parallel from one stream of experience."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from horde_agent import problems, questions
from horde_agent.gvf import GVF, Channel, Feature, Prediction
from horde_agent.horde import Horde
from horde_agent.interface import Interface, TabularObservation
from horde_agent.learning.rules import LearnerConfig
from horde_agent.life.life import Life
from horde_agent.life.student import relearn
from horde_agent.policies import (
    Behaviour,
    BehaviourPolicy,
    ConstantAction,
    EpsilonGreedy,
    Follow,
    Gaussian,
    Gibbs,
    Greedy,
    Policy,
    PolicyFunction,
    StickyRandom,
    Uniform,
)
from horde_agent.tiles import TileCoder

if TYPE_CHECKING:
    from horde_agent.runs.jobs.learn_from import interface_of, learn_from

__all__ = [
    "GVF",
    "Behaviour",
    "BehaviourPolicy",
    "Channel",
    "ConstantAction",
    "EpsilonGreedy",
    "Feature",
    "Follow",
    "Gaussian",
    "Gibbs",
    "Greedy",
    "Horde",
    "Interface",
    "LearnerConfig",
    "Life",
    "Policy",
    "PolicyFunction",
    "Prediction",
    "StickyRandom",
    "TabularObservation",
    "TileCoder",
    "Uniform",
    "interface_of",
    "learn_from",
    "problems",
    "questions",
    "relearn",
]


def __getattr__(name: str) -> Any:
    """Import the data sets' modules at first use: the process of an environment starts 0.2 s sooner without them."""
    if name not in ("interface_of", "learn_from"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from horde_agent.runs.jobs import learn_from

    return getattr(learn_from, name)
