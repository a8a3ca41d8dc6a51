"""Small Markov decision processes with exact expectations, and problems of off-policy prediction on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from horde_agent.types import Bools, Floats


class Expectations(NamedTuple):
    """What GTD(lambda) does in the mean over n features: E[delta e] = A theta + b."""

    A: Floats  # (n, n): E_b[e (gamma phi_{t+1} - phi_t)']
    b: Floats  # (n,): E_b[c e]
    C: Floats  # (n, n): E_b[phi phi']


@dataclass(frozen=True)
class SmallMDP:
    """An MDP of S states and N actions.

    Attributes:
        transition: P(s'|s, a), shape (N, S, S); where a row sums to less than 1 the rest is the end
            of the episode.
        reward: Expected reward of an action, shape (N, S).
        start: Distribution of the first state, shape (S,).

    Raises:
        ValueError: If the shapes do not agree or a row is no distribution.
    """

    transition: Floats
    reward: Floats
    start: Floats

    def __post_init__(self) -> None:
        n_actions, n = self.reward.shape
        if self.transition.shape != (n_actions, n, n) or self.start.shape != (n,):
            raise ValueError(
                f"transition, reward and start must be (N, S, S), (N, S) and (S,), not {self.transition.shape}, "
                f"{self.reward.shape} and {self.start.shape}"
            )
        rows = self.transition.sum(axis=2)
        if (
            (self.transition < 0).any()
            or (rows > 1 + 1e-12).any()
            or abs(self.start.sum() - 1) > 1e-9
        ):
            raise ValueError(
                "transition's rows must be probabilities that sum to at most 1, and start must sum to 1"
            )

    def under(self, policy: Floats) -> tuple[Floats, Floats]:
        """Return P (S, S) and r (S,) under a policy of shape (S, N)."""
        P = np.einsum("sa,ast->st", policy, self.transition)
        return P, np.einsum("sa,as->s", policy, self.reward)

    def state_distribution(self, behaviour: Floats) -> Floats:
        """Return how often each state is left under a policy of shape (S, N), episode after episode; shape (S,)."""
        P, _ = self.under(behaviour)
        endless = P + np.outer(1.0 - P.sum(axis=1), self.start)
        n = len(self.start)
        system = np.vstack([endless.T - np.eye(n), np.ones(n)])
        return np.asarray(np.linalg.lstsq(system, np.append(np.zeros(n), 1.0), rcond=None)[0])

    def values(self, policy: Floats, gamma: float | Floats) -> Floats:
        """Return V of a policy of shape (S, N), shape (S,); gamma, of the state reached, is a number or (S,)."""
        P, r = self.under(policy)
        return np.asarray(np.linalg.solve(np.eye(len(r)) - gamma * P, r))

    def expectations(
        self, target: Floats, behaviour: Floats, features: Floats, gamma: float, lam: float
    ) -> Expectations:
        """Return the expectations of off-policy GTD(lambda) over features (S, n), trace rule "plain".

        The policies are of shape (S, N); the behaviour gives the distribution of states.

        Source: the rho in the trace turn what follows a state into the target's own, so that with D
            = diag(d_b)
        E_b[delta e] = Phi' D (I - gamma lambda P)^{-1} (r + gamma P Phi theta - Phi theta); Maei
        (2011), chapter 7.
        """
        P, r = self.under(target)
        n = len(r)
        weighted = features * self.state_distribution(behaviour)[:, None]
        ahead = np.linalg.solve(
            np.eye(n) - gamma * lam * P, np.column_stack([gamma * P @ features - features, r])
        )
        return Expectations(
            weighted.T @ ahead[:, :-1], weighted.T @ ahead[:, -1], weighted.T @ features
        )


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
            [
                SmallMDP(self.mdp.transition, q.reward, self.mdp.start).values(q.target, q.gamma)
                for q in self.questions
            ]
        )

    def state_weights(self) -> Floats:
        """Return how often the behaviour leaves each state where a question is defined, (Q, S); rows sum to 1."""
        d = np.array(
            [self.mdp.state_distribution(self.behaviour) * q.is_defined for q in self.questions]
        )
        return np.asarray(d / d.sum(axis=1, keepdims=True))

    def expectations(self) -> Expectations:
        """Return the exact expectations of GTD(0) for the only question, whose gamma is constant."""
        (question,) = self.questions
        return self.mdp.expectations(
            question.target, self.behaviour, self.features, float(question.gamma[0]), 0.0
        )


def one_question(mdp: SmallMDP, target: Floats, gamma: float) -> tuple[Question]:
    """Return the question about the MDP's own reward under a policy, shape (S, N)."""
    return (Question(target, mdp.reward, np.full(len(mdp.start), gamma)),)
