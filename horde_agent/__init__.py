"""A Horde: many general value functions learned off-policy and in parallel from one stream of experience."""

from __future__ import annotations

from horde_agent import problems, questions
from horde_agent.gvf import GVF, Channel, Feature, Prediction
from horde_agent.horde import Horde
from horde_agent.interface import Interface
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
from horde_agent.runs.jobs.learn_from import interface_of, learn_from
from horde_agent.tiles import TileCoder

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
    "TileCoder",
    "Uniform",
    "interface_of",
    "learn_from",
    "problems",
    "questions",
    "relearn",
]
