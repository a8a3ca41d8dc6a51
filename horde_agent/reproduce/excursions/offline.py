"""The best off-line linear predictors: how far are the demons from what their features allow?

Two of them, each with the whole life at hand and no haste:

* **ridge regression** on every step of the training excursions that has enough of its return left: what a linear
  predictor can do that is shown the very returns that the tests measure;
* **LSTD(lambda)** on the learning stream: the solution of the demons' own equations, E_b[delta e] = 0, with their own
  traces (rule "clipped"), from the same off-policy transitions.

Excursions are split into training and held-out ones as wholes. The strength of the ridge is chosen for each question on
training excursions; everything is scored on the held-out ones. Source: Boyan (2002), LSTD(lambda); Modayil, White &
Sutton (2014) compare their predictions with the best off-line solution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.gvf import GVF
from horde_agent.interface import Interface
from horde_agent.measures.nmsre import nmsre_at_rest
from horde_agent.measures.returns import PolicyUnderTest, policies_under_test
from horde_agent.reproduce.excursions.offline_rows import LifeRows, Problem
from horde_agent.reproduce.lessons import Lessons
from horde_agent.types import Bools, Floats, Integers

RIDGES = (1e-3, 1e-2, 1e-1, 1.0)
HELD_OUT, CHOOSING = 0.3, 0.25
"""Share of the excursions that is held out, and share of the others on which regression chooses its ridge."""


class Split(NamedTuple):
    """What each excursion of one policy is for; bool, shape (n_excursions,)."""

    fits: Bools
    chooses: Bools
    is_held_out: Bools


class Offline(NamedTuple):
    """Scores on held-out excursions, (n_questions,): mean squared error over the variance of all returns measured.

    Attributes:
        ridge, lstd: Of the two off-line predictors.
        mean: Of always saying the mean return of the training excursions.
        ridge_strength, lstd_strength: The strengths chosen.
        is_held_out: Which of the life's tests were held out, shape (n_tests,).
    """

    ridge: Floats
    lstd: Floats
    mean: Floats
    ridge_strength: Floats
    lstd_strength: Floats
    is_held_out: Bools


def split(n: int, rng: np.random.Generator) -> Split:
    """Split n excursions at random into those that are fitted, those that choose the ridge, and the held-out ones."""
    n_held = round(HELD_OUT * n)
    n_choose = round(CHOOSING * (n - n_held))
    role = rng.permutation(np.repeat([0, 1, 2], [n - n_held - n_choose, n_choose, n_held]))
    return Split(role == 0, role == 1, role == 2)


class Tests(NamedTuple):
    """The tests of the questions about one policy and time scale.

    Attributes:
        row: Row of the first observation of each, shape (n_excursions,).
        tiles: Active features there, shape (n_excursions, n_active).
        returns: Shape (n_excursions, n_questions).
        part: What each excursion is for.
    """

    row: Integers
    tiles: NDArray[np.uint16]
    returns: Floats
    part: Split

    def score(self, predictions: Floats, which: Bools) -> Floats:
        """Return the score of predictions, (n_excursions, n_questions), on some excursions, shape (n_questions,)."""
        return nmsre_at_rest(predictions[which], self.returns[which], self.returns.var(axis=0))


def offline(
    lessons: Lessons,
    questions: Sequence[GVF],
    interface: Interface,
    rng: np.random.Generator,
    on_progress: Callable[[float], None] | None = None,
) -> Offline:
    """Return how well the best off-line linear predictors do on held-out excursions.

    Args:
        lessons: The life.
        questions: About constant actions, with channels as their cumulants.
        interface: The body's, for its tile coder.
        rng: Splits the excursions.
        on_progress: Called with the share that is done.
    """
    life, tests = LifeRows(lessons, interface), lessons.tests
    lam = _the_one([q.lam for q in questions])
    found = np.full((5, len(questions)), np.nan)
    is_held_out = np.zeros(len(tests.row), dtype=np.bool_)
    systems = [(policy, gamma) for policy in policies_under_test(questions) for gamma in np.unique(policy.gamma)]
    parts: dict[int, Split] = {}
    for k, (policy, gamma) in enumerate(systems):
        mine = tests.action == policy.action
        part = parts.setdefault(policy.action, split(int(mine.sum()), rng))
        is_held_out[mine] = part.is_held_out
        asked = policy.gamma == gamma
        found[:, policy.demons[asked]] = _system(life, policy, float(gamma), asked, part, lam)
        if on_progress is not None:
            on_progress((k + 1) / len(systems))
    ridge, lstd, mean, ridge_strength, lstd_strength = found
    return Offline(ridge, lstd, mean, ridge_strength, lstd_strength, is_held_out)


def _system(life: LifeRows, policy: PolicyUnderTest, gamma: float, asked: Bools, part: Split, lam: float) -> Floats:
    """Return the first five rows of `Offline` for the questions about one policy and time scale."""
    channel, trials = policy.channel[asked], life.lessons.tests
    row = trials.row[trials.action == policy.action]
    returns = life.lessons.returns(channel, np.full(len(channel), gamma), row)
    tests = Tests(row, life.tiles(row), returns, part)
    ridge, ridge_strength = _regress(life, channel, gamma, tests)
    problem = life.lstd(policy.action, channel, gamma, lam)
    lstd, lstd_strength = _choose(problem, tests, ~part.is_held_out)
    mean = np.broadcast_to(returns[~part.is_held_out].mean(axis=0), returns.shape)
    scores = [tests.score(predictions, part.is_held_out) for predictions in (ridge, lstd, mean)]
    return np.array([*scores, ridge_strength, lstd_strength])


def _regress(life: LifeRows, channel: Integers, gamma: float, tests: Tests) -> tuple[Floats, Floats]:
    """Return regression's predictions at the tests, and each question's ridge; fitted again once that is chosen."""
    part = tests.part
    _, strength = _choose(life.regression(tests.row[part.fits], channel, gamma), tests, part.chooses)
    problem = life.regression(tests.row[~part.is_held_out], channel, gamma)
    predictions = np.empty_like(tests.returns)
    for ridge in np.unique(strength):
        chosen = strength == ridge
        predictions[:, chosen] = problem.predict(tests.tiles, float(ridge))[:, chosen]
    return predictions, strength


def _choose(problem: Problem, tests: Tests, which: Bools) -> tuple[Floats, Floats]:
    """Return predictions at the tests, and each question's ridge: the one that does best on some excursions."""
    made = np.array([problem.predict(tests.tiles, ridge) for ridge in RIDGES])
    best = np.array([tests.score(predictions, which) for predictions in made]).argmin(axis=0)
    return np.take_along_axis(made, best[None, None, :], axis=0)[0], np.array(RIDGES)[best]


def _the_one(values: Sequence[object]) -> float:
    """Return the number that all values are.

    Raises:
        ValueError: If they differ, or are functions.
    """
    first = values[0]
    if not isinstance(first, float) or any(value != first for value in values):
        raise ValueError("the off-line solution needs questions with one constant lambda")
    return first
