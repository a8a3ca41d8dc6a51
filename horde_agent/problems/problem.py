"""Problem: an MDP, a behaviour, features, and questions with exact values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from horde_agent.problems.markov import Expectations, SmallMDP
from horde_agent.types import Bools, Floats


class Question(NamedTuple):
    """A prediction about S states and N actions."""

    target: Floats  # target policy, shape (S, N); zeros in states without one
    reward: Floats  # cumulant of an action, shape (N, S)
    gamma: Floats  # continuation at the state reached, shape (S,)

    @property
    def is_defined(self) -> Bools:
        """True for states in which the target policy is defined, shape (S,); nothing is learned in others."""
        return np.asarray(self.target.sum(axis=1) > 0)


@dataclass(frozen=True)
class Problem:
    """A small problem of off-policy prediction."""

    mdp: SmallMDP  # transitions and rewards
    actions: Sequence[str]  # names of the N actions
    behaviour: Floats  # behaviour policy, shape (S, N)
    features: Floats  # Phi, shape (S, n)
    questions: Sequence[Question]  # the predictions
    weights: Floats | None = None  # first weights, shape (n,); zeros if None

    def values(self) -> Floats:
        """Return the exact values of every question, shape (Q, S); 0 where a question is not defined."""
        return np.array(
            [SmallMDP(self.mdp.transition, q.reward, self.mdp.start).values(q.target, q.gamma) for q in self.questions]
        )

    def state_weights(self) -> Floats:
        """Return how often the behaviour leaves each state where a question is defined, (Q, S); rows sum to 1."""
        d = np.array([self.mdp.state_distribution(self.behaviour) * q.is_defined for q in self.questions])
        return np.asarray(d / d.sum(axis=1, keepdims=True))

    def expectations(self) -> Expectations:
        """Return the exact expectations of GTD(0) for the only question, whose gamma is constant."""
        (question,) = self.questions
        return self.mdp.expectations(question.target, self.behaviour, self.features, float(question.gamma[0]), 0.0)


def one_question(mdp: SmallMDP, target: Floats, gamma: float) -> tuple[Question]:
    """Return the question about the MDP's own reward under a policy, shape (S, N)."""
    return (Question(target, mdp.reward, np.full(len(mdp.start), gamma)),)
