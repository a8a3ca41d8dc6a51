"""The fitted Q function of a target policy, linear in the tiles of each action: LSTDQ with a ridge.

    q(s, a) = theta_a . phi(s) + theta_0,   A theta = c
    A = sum_k phi_k (phi_k - gamma sum_a pi(a|s_{k+1}) phi(s_{k+1}, a))' + ridge I',   c = sum_k phi_k r_{k+1}

Each phi ends with 1, the feature of the level theta_0 of all states and actions, which the ridge
leaves alone (I' is 0 there): a value of 1 / (1 - gamma) everywhere is exact. The ridge shrinks the
other numbers towards 0; solving again with c + ridge I' theta takes most of that back, where there
are data. The Q that an estimate corrects has a larger ridge, so that an action seen once or twice
stays near the level: noise of Q adds to the error of the corrected estimate.

What the ridge still holds back, no draw of episodes shows: after N refinements the error of theta is
-(A^-1 ridge I')^(N+1) theta. With theta of mean 0 and the variance of the numbers that were learned,
it gives the estimate that Q corrects a standard deviation, its `spread`: nearly 0 where actions were
seen often, or where the corrections balance the error, large where the policy takes actions that the
data hardly have.

Features that no row has are left out. More than `MOST_FEATURES` are hashed: a tile becomes one of
fewer features with a random sign, which keeps inner products in the mean. If episodes were
truncated and count as ended, each step (or stretch of steps) adds a feature of its own, because the
value then depends on the remaining time.

Source: Lagoudakis & Parr (2003), LSTDQ; Le, Voloshin & Yue (2019), fitted Q evaluation; Weinberger
    et al. (2009), feature hashing; Ghavamzadeh et al. (2010), LSTD with random projections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from horde_agent.scoring.episodes import Episodes, Target
from horde_agent.scoring.intervals import Linearised
from horde_agent.types import Floats, Integers

RIDGE = 0.1
CROSS_FITTED_RIDGE = 3.0
N_REFINEMENTS = 2
MOST_FEATURES = 2_400
"""Of all actions together: the system is solved as a dense one."""
N_FOLDS = 5
_CHUNK = 2_048  # transitions
_MOST_CLOCK_TILES = 32


@dataclass(frozen=True)
class QFeatures:
    """Features of the state for the fitted Q: index and sign of each active one in each row.

    Attributes:
        index: Shape (n_rows, n_active).
        sign: 1 or -1, of the same shape; all 1 unless features are hashed.
        n_features: Number of features.
        is_hashed: Whether tiles share features.
    """

    index: NDArray[np.int64]
    sign: NDArray[np.float64]
    n_features: int
    is_hashed: bool

    @classmethod
    def of(cls, episodes: Episodes, *, has_clock: bool, seed: int = 0) -> QFeatures:
        """Return the features of episodes; `has_clock` adds one for the step, `seed` draws the hash."""
        tiles = episodes.tiles
        if has_clock:
            clock = _clock(episodes)
            tiles = np.column_stack([tiles, episodes.n_features + clock])
        tile_numbers, index = np.unique(tiles, return_inverse=True)
        index = index.reshape(tiles.shape)
        most = MOST_FEATURES // episodes.n_actions
        if len(tile_numbers) <= most:
            return cls(index, np.ones(index.shape), len(tile_numbers), is_hashed=False)
        rng = np.random.default_rng(seed)
        buckets = rng.integers(most, size=len(tile_numbers))
        signs = rng.choice([-1.0, 1.0], size=len(tile_numbers))
        return cls(buckets[index], signs[index], most, is_hashed=True)

    def dense(self, rows: Integers) -> Floats:
        """Return the features of rows as vectors, shape (len(rows), n_features)."""
        vectors = np.zeros((len(rows), self.n_features))
        places = np.arange(len(rows))[:, None] * self.n_features + self.index[rows]
        flat = np.bincount(places.ravel(), self.sign[rows].ravel(), vectors.size)
        return np.asarray(flat.reshape(vectors.shape))


def _clock(episodes: Episodes) -> Integers:
    """Return a number of each row that grows with the step, below `_MOST_CLOCK_TILES`, shape (n_rows,)."""
    steps = np.concatenate([np.arange(n + 1) for n in episodes.length.tolist()])
    n_tiles = min(episodes.longest + 1, _MOST_CLOCK_TILES)
    return np.asarray(steps * n_tiles // (episodes.longest + 1))


@dataclass(frozen=True)
class QFunction:
    """A fitted Q and the values that follow from it.

    Attributes:
        q: q(s, a) in each row, shape (n_rows, n_actions).
        v: v(s) = sum_a pi(a|s) q(s, a), shape (n_rows,).
    """

    q: Floats
    v: Floats


@dataclass
class _System:
    """Sums of LSTDQ over some transitions: A of shape (d, d), c of shape (d,); the level is the last unknown."""

    A: Floats
    c: Floats


class CrossFit(NamedTuple):
    """A Q fitted to the episodes of the other folds, and what an episode changes in estimates through it.

    Attributes:
        function: The Q of each row.
        influence: Influence of each episode on each of some estimates through the Q of the other
            folds, with mean 0, shape (n_estimates, n_episodes).
        spread: Standard deviation of the error of each estimate by what the ridge holds back, shape
            (n_estimates,).
    """

    function: QFunction
    influence: Floats
    spread: Floats


class _Solution(NamedTuple):
    """The unknowns, shape (d,), the inverse of A with its ridge, (d, d), and the ridge of each unknown, (d,)."""

    theta: Floats
    inverse: Floats
    ridge: Floats

    def adjoint(self, gradient: Floats) -> Floats:
        """Return by how much a change of c changes gradient . theta, shape (d,)."""
        return _refined(self.inverse.T, gradient, self.ridge)

    def held_back(self, gradient: Floats) -> Floats:
        """Return what the ridge takes from gradient . theta per unit of each number of theta, shape (d,)."""
        change = gradient
        for _ in range(N_REFINEMENTS + 1):
            change = self.ridge * (self.inverse.T @ change)
        return np.asarray(change)


@dataclass(frozen=True)
class FittedQ:
    """LSTDQ of a target policy on episodes, with or without some of the episodes.

    Args:
        target: The policy on the episodes.
        gamma: Discount, in [0, 1].
        continues_truncated: Whether the value goes on after a truncation; else it is 0 there.
        fold: Number of the fold of each episode, shape (n_episodes,), from 0.
    """

    target: Target
    gamma: float
    continues_truncated: bool
    fold: Integers
    features: QFeatures = field(init=False)
    _systems: list[_System] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        episodes = self.target.episodes
        is_cut = not self.continues_truncated and not episodes.is_terminated.all()
        object.__setattr__(self, "features", QFeatures.of(episodes, has_clock=is_cut))
        numbers = range(int(self.fold.max()) + 1)
        object.__setattr__(self, "_systems", [self._sums(fold) for fold in numbers])

    @property
    def n_unknown(self) -> int:
        """Number of unknowns, d: one per feature and action, and the level."""
        return self.features.n_features * self.target.episodes.n_actions + 1

    def continues(self) -> Floats:
        """Return 1 for transitions after which the value goes on, 0 for the last one, shape (n,)."""
        episodes = self.target.episodes
        goes_on = ~episodes.is_last
        if self.continues_truncated:
            goes_on |= ~episodes.is_terminated[episodes.episode]
        return goes_on.astype(np.float64)

    def _sums(self, fold: int) -> _System:
        """Return A and c of the transitions of a fold, without the ridge."""
        episodes = self.target.episodes
        n_features = self.features.n_features
        system = _System(np.zeros((self.n_unknown, self.n_unknown)), np.zeros(self.n_unknown))
        goes_on = self.continues()
        chosen = np.flatnonzero(self.fold[episodes.episode] == fold)
        for action in range(episodes.n_actions):
            numbers = chosen[episodes.action[chosen] == action]
            block = slice(action * n_features, (action + 1) * n_features)
            for begin in range(0, len(numbers), _CHUNK):
                part = numbers[begin : begin + _CHUNK]
                rows = episodes.row[part]
                phi = self.features.dense(rows)
                following = self.features.dense(rows + 1)
                reward = episodes.reward[part]
                discount = self.gamma * goes_on[part]
                system.A[block, block] += phi.T @ phi
                system.A[block, -1] += phi.T @ (1.0 - discount)
                system.A[-1, block] += phi.sum(axis=0)
                system.A[-1, -1] += (1.0 - discount).sum()
                system.c[block] += phi.T @ reward
                system.c[-1] += reward.sum()
                share = discount[:, None] * self.target.probabilities[rows + 1]
                for other in range(episodes.n_actions):
                    columns = slice(other * n_features, (other + 1) * n_features)
                    expected = share[:, other, None] * following
                    system.A[block, columns] -= phi.T @ expected
                    system.A[-1, columns] -= expected.sum(axis=0)
        return system

    def _solved(self, folds: Sequence[int], strength: float) -> _Solution:
        """Return theta and the inverse of A with a ridge of some strength, of some folds."""
        ridge = np.full(self.n_unknown, strength)
        ridge[-1] = 0.0
        A = np.diag(ridge)
        c = np.zeros(self.n_unknown)
        for fold in folds:
            A += self._systems[fold].A
            c += self._systems[fold].c
        inverse = _inverse(A)
        return _Solution(_refined(inverse, c, ridge), inverse, ridge)

    def _function(self, theta: Floats, rows: Integers) -> QFunction:
        index = self.features.index[rows]
        sign = self.features.sign[rows]
        by_action = theta[:-1].reshape(-1, self.features.n_features)
        q = np.column_stack([(weights[index] * sign).sum(axis=1) for weights in by_action])
        q += theta[-1]
        return QFunction(q, (q * self.target.probabilities[rows]).sum(axis=1))

    def cross_fitted(self, weights: Sequence[Floats] = ()) -> CrossFit:
        """Return the Q of each row, fitted to the episodes of the other folds.

        An estimate that corrects it by a row's own reward is then unbiased. But episodes of two
        folds correct each the Q of the other, which makes their errors dependent. So an episode has
        an influence through Q: what it changes in the estimates of the other folds.

        Args:
            weights: For each estimate mean v(s_0) + sum_k weight_k delta_k, the weights of the
                transitions' TD errors, shape (n,).

        Source: Chernozhukov et al. (2018), cross-fitting.
        """
        episodes = self.target.episodes
        all_rows = np.arange(len(episodes.tiles))
        fold_of_row = np.repeat(self.fold, episodes.length + 1)
        q = np.zeros((len(all_rows), episodes.n_actions))
        v = np.zeros(len(all_rows))
        influence = np.zeros((len(weights), episodes.n_episodes))
        held_back = np.zeros((len(weights), self.n_unknown))
        squares = []
        coefficients = [self._coefficients(weight) for weight in weights]
        numbers = range(len(self._systems))
        for fold in numbers:
            rows = np.flatnonzero(fold_of_row == fold)
            other_folds = [other for other in numbers if other != fold] or [fold]
            solution = self._solved(other_folds, CROSS_FITTED_RIDGE)
            function = self._function(solution.theta, all_rows)
            q[rows] = function.q[rows]
            v[rows] = function.v[rows]
            is_other = self.fold != fold
            squares.append(_mean_square(solution.theta[:-1]))
            for number, coefficient in enumerate(coefficients):
                gradient = self._gradient(coefficient, rows)
                adjoint = solution.adjoint(gradient)
                influence[number] += is_other * self._influence(adjoint, function)
                held_back[number] += solution.held_back(gradient)
        centred = influence - influence.mean(axis=1, keepdims=True)
        spread = np.sqrt(np.mean(squares) * (held_back**2).sum(axis=1))
        return CrossFit(QFunction(q, v), centred, spread)

    def _coefficients(self, weight: Floats) -> Floats:
        """Return the derivative of mean v(s_0) + sum_k weight_k delta_k by q of each row, (n_rows, n_actions)."""
        episodes = self.target.episodes
        probabilities = self.target.probabilities
        coefficients = np.zeros(probabilities.shape)
        first = episodes.first_row
        following = episodes.row + 1
        share = self.gamma * self.continues() * weight
        coefficients[first] += probabilities[first] / episodes.n_episodes
        coefficients[following] += share[:, None] * probabilities[following]
        coefficients[episodes.row, episodes.action] -= weight
        return coefficients

    def _gradient(self, coefficients: Floats, rows: Integers) -> Floats:
        """Return the sum of coefficients times features over some rows, the derivative by theta, shape (d,)."""
        index = self.features.index[rows]
        sign = self.features.sign[rows]
        blocks = []
        for column in coefficients[rows].T:
            summands = column[:, None] * sign
            blocks.append(np.bincount(index.ravel(), summands.ravel(), self.features.n_features))
        blocks.append(np.array([coefficients[rows].sum()]))
        return np.concatenate(blocks)

    def _influence(self, adjoint: Floats, function: QFunction) -> Floats:
        """Return n times the sum of (adjoint . phi_k) delta_k over each episode, shape (n_episodes,)."""
        episodes = self.target.episodes
        leverage = self._function(adjoint, episodes.row).q
        leverage_of_action = leverage[np.arange(episodes.n_transitions), episodes.action]
        delta = td_errors(self.target, function, self.gamma, self.continues())
        return episodes.n_episodes * episodes.sums(leverage_of_action * delta)

    def value(self) -> Linearised:
        """Return the mean of v over the first states, with the influence of each episode on it.

        With u = A^-T times the mean features of the first states, the influence of an episode is
        v(s_0) - value + n sum_k (u . phi_k) delta_k: what its transitions change in theta.
        """
        episodes = self.target.episodes
        solution = self._solved(range(len(self._systems)), RIDGE)
        function = self._function(solution.theta, np.arange(len(episodes.tiles)))
        first = episodes.first_row
        phi = self.features.dense(first)
        shares = self.target.probabilities[first]
        mean = np.concatenate([(share[:, None] * phi).mean(axis=0) for share in shares.T] + [[1.0]])
        start = function.v[first]
        value = float(start.mean())
        psi = start - value + self._influence(solution.adjoint(mean), function)
        return Linearised(value, psi - psi.mean())


def _mean_square(theta: Floats) -> float:
    """Return the mean square of the numbers that were learned: of a feature never seen it is 0."""
    learned = theta[theta != 0.0]
    if not len(learned):
        return 0.0
    return float((learned**2).mean())


def _refined(inverse: Floats, right_hand: Floats, ridge: Floats) -> Floats:
    """Return inverse @ right_hand, of shape (d,), with most of the shrinkage by the ridge taken back."""
    solution = inverse @ right_hand
    for _ in range(N_REFINEMENTS):
        solution = inverse @ (right_hand + ridge * solution)
    return np.asarray(solution)


def _inverse(A: Floats) -> Floats:
    """Return the inverse, or the pseudo-inverse if there is none."""
    try:
        return np.asarray(np.linalg.inv(A))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.pinv(A))


def td_errors(target: Target, function: QFunction, gamma: float, continues: Floats) -> Floats:
    """Return delta_k = r_{k+1} + gamma v(s_{k+1}) - q(s_k, a_k) of each transition, shape (n,).

    `continues`, shape (n,), is 0 where no value follows.
    """
    episodes = target.episodes
    q = function.q[episodes.row, episodes.action]
    return np.asarray(episodes.reward + gamma * continues * function.v[episodes.row + 1] - q)


def folds_of(n_episodes: int, rng: np.random.Generator, n_folds: int = N_FOLDS) -> Integers:
    """Return the number of a fold for each episode, at random, of equal sizes, shape (n_episodes,)."""
    numbers = np.arange(n_episodes) % min(n_folds, n_episodes)
    return np.asarray(rng.permutation(numbers))
