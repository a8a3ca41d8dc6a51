"""The best off-line linear predictors: how far are the demons from what their features allow?

Ridge regression is shown the returns of training excursions, at each step with enough of its return
left. LSTD(lambda) solves the demons' own equations, E_b[delta e] = 0, on the learning stream, with
their traces (rule "clipped").

The ridge is chosen for each question on training excursions; all is scored on others. Source: Boyan
(2002), LSTD(lambda); Modayil, White & Sutton (2014) compare their predictions with the best
off-line solution.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from examples.reproduce.scores import nmsre_at_rest
from examples.reproduce.training_data import HORIZON, LEARN, TrainingData
from horde_agent.gvf import GVF
from horde_agent.interface import Interface
from horde_agent.life.learner import encoder
from horde_agent.record import Flag
from horde_agent.scoring.returns import PolicyUnderTest, policies_under_test, returns_along
from horde_agent.types import Bools, Floats, Integers

Singles = NDArray[np.float32]


class LiveFeatures:
    """The features that are ever active in rows of tiles, (n_rows, n_active): others' weights are 0 under any ridge.

    Their number is `n`, and their numbers among all features are `index`, shape (n,).
    """

    def __init__(self, tiles: NDArray[np.integer], n_features: int) -> None:
        is_live = np.zeros(n_features, dtype=np.bool_)
        is_live[tiles.ravel()] = True
        self.index = np.flatnonzero(is_live)
        self.n = len(self.index)
        # The others share a place after the live ones, which is cut off.
        self._place = np.where(is_live, np.cumsum(is_live) - 1, self.n)

    def dense(self, tiles: NDArray[np.integer]) -> Singles:
        """Return feature vectors, float32 of shape (n_rows, n); features that are not live are left out."""
        phi = np.zeros((len(tiles), self.n + 1), dtype=np.float32)
        np.put_along_axis(phi, self._place[tiles], np.float32(1.0), axis=1)
        return phi[:, :-1]


class LeastSquares:
    """A least-squares problem in the live features, about what exceeds a constant prediction.

    Without that `constant`, (n_questions,), a ridge would pull predictions towards 0, which is no
    sensor's usual reading. If fewer rows than features will be added, a system of their size gives
    the same theta: with E and X the rows stacked, (E'X + eta I)^-1 E' = E' (X E' + eta I)^-1.
    """

    def __init__(self, live: LiveFeatures, constant: Floats, n_rows: int) -> None:
        self.live = live
        self.constant = constant
        self._is_tall = n_rows > live.n
        size = live.n if self._is_tall else 0
        self._A = np.zeros((size, size))
        self._b = np.zeros((live.n, len(constant)))
        self._rows: list[tuple[Singles, Singles, Floats | Singles]] = []
        self._trace = 0.0

    def add(self, left: Singles, right: Singles, targets: Floats | Singles) -> None:
        """Add rows: e_t and x_t, float32 of shape (k, n_live), and y_t, shape (k, n_questions).

        Products of a block are summed in float32, blocks in float64.
        """
        self._trace += float(np.einsum("ij,ij->", left, right, dtype=np.float64))
        if self._is_tall:
            self._A += left.T @ right
            self._b += left.T @ targets
        else:
            self._rows.append((left, right, targets))
            vars(self).pop("_small_system", None)

    def solve(self, ridge: float | Floats) -> Floats:
        """Return theta from the rows so far, shape (n_live, n_questions).

        The `ridge`, a number or each question's, (n_questions,), is eta over the mean of A's
        diagonal.
        """
        theta = np.empty_like(self._b)
        ridges = np.broadcast_to(ridge, self.constant.shape)
        for strength in np.unique(ridges):
            chosen = ridges == strength
            eta = strength * self._trace / self.live.n
            if self._is_tall:
                theta[:, chosen] = np.linalg.solve(
                    self._A + eta * np.eye(self.live.n), self._b[:, chosen]
                )
            else:
                features_t, overlap, y = self._small_system
                theta[:, chosen] = features_t.T @ np.linalg.solve(
                    overlap + eta * np.eye(len(y)), y[:, chosen]
                )
        return theta

    @cached_property
    def _small_system(self) -> tuple[Floats, Floats, Floats]:
        """E, X E' and y of the rows so far."""
        features_t, right, y = (
            np.concatenate(parts).astype(np.float64) for parts in zip(*self._rows, strict=True)
        )
        return features_t, right @ features_t.T, y

    def predict(self, tiles: NDArray[np.integer], ridge: float | Floats) -> Floats:
        """Return the solution's predictions at states with these active features, shape (n_states, n_questions)."""
        return np.asarray(self.live.dense(tiles) @ self.solve(ridge) + self.constant)


ENOUGH_LEFT = 1e-3
"""A step is regressed on where gamma^k, of the first term that its return lacks, is below this."""
BLOCK_ROWS = 2_000


class LifeRows:
    """A life's states as active features, `tiles`, uint16 of shape (n_rows, n_active), and problems made from them."""

    def __init__(self, training_data: TrainingData, interface: Interface) -> None:
        self.training_data = training_data
        self.n_features = interface.coder.n_features
        self._observation = training_data.stream.rows["observation"]
        encode = encoder(interface)
        self.tiles = np.empty((len(self._observation), interface.coder.n_active), dtype=np.uint16)
        for k, observation in enumerate(self._observation):
            self.tiles[k] = encode(observation)

    def regression(self, starts: Integers, channel: Integers, gamma: float) -> LeastSquares:
        """Return the problem of predicting the returns of channels, (n_questions,), measured in excursions.

        `starts` is the row of the first observation of each, shape (n_excursions,).
        """
        n_used = HORIZON - terms_needed(gamma) + 1
        rows = (starts[:, None] + np.arange(n_used)).ravel()
        returns = self._remaining_returns(starts, channel, gamma)[:, :n_used].reshape(len(rows), -1)
        tiles = self.tiles[rows]
        mean = returns.mean(axis=0)
        problem = LeastSquares(LiveFeatures(tiles, self.n_features), mean, len(rows))
        for block in blocks(len(rows)):
            phi = problem.live.dense(tiles[block])
            problem.add(phi, phi, returns[block] - mean)
        return problem

    def _remaining_returns(self, starts: Integers, channel: Integers, gamma: float) -> Floats:
        """Return the return from each step to its excursion's end, shape (n_excursions, HORIZON, n_questions)."""
        steps = starts + np.arange(HORIZON + 1)[:, None]
        readings = self._observation[steps][:, :, channel].astype(np.float64)
        return np.ascontiguousarray(returns_along(readings, gamma)[:-1].swapaxes(0, 1))

    def lstd(self, action: int, channel: Integers, gamma: float, lam: float) -> LeastSquares:
        """Return the demons' own problem, E_b[delta e] = 0, of one constant-action policy on the learning stream.

        The cumulants are channels, shape (n_questions,). Only transitions by that action count:
        elsewhere rho = 0, and the trace with it.
        """
        rows = self.training_data.stream.rows
        training_data = self.training_data
        arrived = np.flatnonzero(training_data.does == LEARN)
        arrived = arrived[rows["action"][training_data.before[arrived]] == action]
        departed = training_data.before[arrived]
        rho = 1.0 / rows["b"][departed]
        goes_on = np.where(rows["flags"][arrived] & Flag.TERMINATED, 0.0, gamma)
        follows = np.concatenate([[False], departed[1:] == arrived[:-1]])
        clipped = lam * np.minimum(1.0, 1.0 / np.concatenate([[1.0], rho[:-1]]))
        decay = np.where(follows, gamma * clipped, 0.0)
        reward = self._observation[arrived][:, channel].astype(np.float64)
        mean = (rho[:, None] * reward).sum(axis=0) / rho.sum()
        tiles_t = self.tiles[departed]
        tiles_tp1 = self.tiles[arrived]
        live = LiveFeatures(np.concatenate([tiles_t, tiles_tp1]), self.n_features)
        problem = LeastSquares(live, mean / (1.0 - gamma), len(departed))
        trace = np.zeros(live.n, dtype=np.float32)
        for block in blocks(len(departed)):
            phi = live.dense(tiles_t[block])
            change = phi - goes_on[block, None].astype(np.float32) * live.dense(tiles_tp1[block])
            traces, trace = _traces(phi, rho[block], decay[block], trace)
            problem.add(traces, change, reward[block] - mean)
        return problem


def terms_needed(gamma: float) -> int:
    """Return how many terms a return must have for gamma^n to be below 1e-3.

    Examples:
        >>> terms_needed(0.0), terms_needed(0.5), terms_needed(0.8)
        (1, 10, 31)
    """
    if gamma == 0.0:
        return 1
    return math.floor(math.log(ENOUGH_LEFT) / math.log(gamma)) + 1


def _traces(phi: Singles, rho: Floats, decay: Floats, trace: Singles) -> tuple[Singles, Singles]:
    """Return e_t = rho_t (phi_t + decay_t e_{t-1}) of a block of steps, shape (k, n), and the last of them."""
    traces = phi * rho[:, None].astype(np.float32)
    for k in range(len(traces)):
        if decay[k]:
            traces[k] += np.float32(rho[k] * decay[k]) * trace
        trace = traces[k]
    return traces, trace


def blocks(n: int) -> Iterator[slice]:
    """Cut n rows into runs of at most 2,000."""
    for first in range(0, n, BLOCK_ROWS):
        yield slice(first, min(first + BLOCK_ROWS, n))


RIDGES = (1e-3, 1e-2, 1e-1, 1.0)
HELD_OUT = 0.3
CHOOSING = 0.25
"""Share of the excursions that is held out, and share of the others on which regression chooses its ridge."""


class Split(NamedTuple):
    """Use of each excursion of one policy; bool, shape (n_excursions,)."""

    fits: Bools
    chooses: Bools
    is_held_out: Bools


class OfflineScores(NamedTuple):
    """Scores on held-out excursions, (n_questions,): mean squared error over the variance of all returns measured."""

    ridge: Floats  # of ridge regression
    lstd: Floats  # of LSTD(lambda)
    mean: Floats  # of always saying the mean return of the training excursions
    is_held_out: Bools  # which of the life's tests were held out, shape (n_tests,)


def split(n: int, rng: np.random.Generator) -> Split:
    """Split n excursions at random into those that are fitted, those that choose the ridge, and the held-out ones."""
    n_held = round(HELD_OUT * n)
    n_choose = round(CHOOSING * (n - n_held))
    role = rng.permutation(np.repeat([0, 1, 2], [n - n_held - n_choose, n_choose, n_held]))
    return Split(role == 0, role == 1, role == 2)


class Tests(NamedTuple):
    """The tests of the questions about one policy and time scale."""

    row: Integers  # row of the first observation of each, shape (n_excursions,)
    tiles: NDArray[np.uint16]  # active features there, shape (n_excursions, n_active)
    returns: Floats  # shape (n_excursions, n_questions)
    part: Split  # what each excursion is for

    def score(self, predictions: Floats, which: Bools) -> Floats:
        """Return the score of predictions, (n_excursions, n_questions), on some excursions, shape (n_questions,)."""
        return nmsre_at_rest(predictions[which], self.returns[which], self.returns.var(axis=0))


def offline(
    training_data: TrainingData,
    questions: Sequence[GVF],
    interface: Interface,
    rng: np.random.Generator,
) -> OfflineScores:
    """Return how well the best off-line linear predictors do on held-out excursions, which `rng` chooses.

    The questions are about constant actions, with channels as their cumulants and one constant
    lambda.

    Raises:
        ValueError: If the questions' lambdas differ, or are functions.
    """
    lam = questions[0].lam
    if not isinstance(lam, float) or any(question.lam != lam for question in questions):
        raise ValueError("the off-line solution needs questions with one constant lambda")
    life = LifeRows(training_data, interface)
    scores = np.full((3, len(questions)), np.nan)
    is_held_out = np.zeros(len(training_data.test_row), dtype=np.bool_)
    systems = [
        (policy, gamma)
        for policy in policies_under_test(questions)
        for gamma in np.unique(policy.gamma)
    ]
    parts: dict[int, Split] = {}
    for policy, gamma in systems:
        of_policy = training_data.test_action == policy.action
        part = parts.setdefault(policy.action, split(int(of_policy.sum()), rng))
        is_held_out[of_policy] = part.is_held_out
        of_gamma = policy.gamma == gamma
        scores[:, policy.demons[of_gamma]] = _system(
            life, policy, float(gamma), of_gamma, part, lam
        )
    ridge, lstd, mean = scores
    return OfflineScores(ridge, lstd, mean, is_held_out)


def _system(
    life: LifeRows, policy: PolicyUnderTest, gamma: float, asked: Bools, part: Split, lam: float
) -> list[Floats]:
    """Return the first three fields of `Offline` for the questions about one policy and time scale."""
    channel = policy.channel[asked]
    training_data = life.training_data
    row = training_data.test_row[training_data.test_action == policy.action]
    returns = training_data.returns(channel, np.full(len(channel), gamma), row)
    tests = Tests(row, life.tiles[row], returns, part)
    ridge = _regress(life, channel, gamma, tests)
    lstd, _ = _choose(life.lstd(policy.action, channel, gamma, lam), tests, ~part.is_held_out)
    mean = np.broadcast_to(returns[~part.is_held_out].mean(axis=0), returns.shape)
    return [tests.score(predictions, part.is_held_out) for predictions in (ridge, lstd, mean)]


def _regress(life: LifeRows, channel: Integers, gamma: float, tests: Tests) -> Floats:
    """Return regression's predictions at the tests; it is fitted again once each question's ridge is chosen."""
    part = tests.part
    _, ridge = _choose(life.regression(tests.row[part.fits], channel, gamma), tests, part.chooses)
    return life.regression(tests.row[~part.is_held_out], channel, gamma).predict(tests.tiles, ridge)


def _choose(problem: LeastSquares, tests: Tests, which: Bools) -> tuple[Floats, Floats]:
    """Return predictions at the tests, and each question's ridge: the one that does best on some excursions."""
    candidates = np.array([problem.predict(tests.tiles, ridge) for ridge in RIDGES])
    best = np.array([tests.score(predictions, which) for predictions in candidates]).argmin(axis=0)
    return np.take_along_axis(candidates, best[None, None, :], axis=0)[0], np.array(RIDGES)[best]
