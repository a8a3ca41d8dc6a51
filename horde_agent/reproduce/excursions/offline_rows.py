"""The rows of the off-line problems: which e_t, x_t and y_t a recorded life gives (see `least_squares`)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from horde_agent.interface import Interface
from horde_agent.life.student import encoder
from horde_agent.measures.returns import returns_along
from horde_agent.record import Flag, Phase
from horde_agent.reproduce.excursions.least_squares import LeastSquares, LiveFeatures, Singles
from horde_agent.reproduce.lessons import HORIZON, LEARN, NOTHING, Lessons
from horde_agent.types import Floats, Integers

ENOUGH_LEFT = 1e-3
"""A step is regressed on where gamma^k, of the first term that its return lacks, is below this."""
_BLOCK = 2_000


class Problem:
    """A least-squares problem in the live features, about what exceeds a constant prediction.

    Without that constant a ridge would pull predictions towards 0, which is no sensor's usual reading.

    Args:
        live: The features.
        constant: What is added to every prediction, shape (n_questions,).
        n_rows: Number of rows that will be added to `system`.
    """

    def __init__(self, live: LiveFeatures, constant: Floats, n_rows: int) -> None:
        self.live, self.constant = live, constant
        self.system = LeastSquares(live.n, n_rows, len(constant))

    def predict(self, tiles: NDArray[np.integer], ridge: float) -> Floats:
        """Return the solution's predictions at states with these active features, shape (n_states, n_questions)."""
        return np.asarray(self.live.dense(tiles) @ self.system.solve(ridge) + self.constant)


class LifeRows:
    """A life's states as active features, and the problems made from them.

    Args:
        lessons: The life.
        interface: The body's, for its tile coder.
    """

    def __init__(self, lessons: Lessons, interface: Interface) -> None:
        self.lessons = lessons
        self.n_features = interface.coder.n_features
        rows = lessons.stream.rows
        self._observation = rows["observation"]
        needed = np.flatnonzero((lessons.does != NOTHING) | np.isin(rows["phase"], [Phase.BEHAVE, Phase.EXCURSION]))
        self._place = np.full(len(rows), -1, dtype=np.int64)
        self._place[needed] = np.arange(len(needed))
        encode = encoder(interface)
        self._tiles = np.empty((len(needed), interface.coder.n_active), dtype=np.uint16)
        for k, row in enumerate(needed.tolist()):
            self._tiles[k] = encode(self._observation[row])

    def tiles(self, rows: Integers) -> NDArray[np.uint16]:
        """Return the active features at some rows of the life, shape (n_rows, n_active)."""
        return self._tiles[self._place[rows]]

    def regression(self, starts: Integers, channel: Integers, gamma: float) -> Problem:
        """Return the problem of predicting the returns measured in excursions.

        Args:
            starts: Row of the first observation of each excursion.
            channel: Cumulant of each question, shape (n_questions,).
            gamma: Their continuation.
        """
        n_used = HORIZON - terms_needed(gamma) + 1
        rows = (starts[:, None] + np.arange(n_used)).ravel()
        returns = self._remaining_returns(starts, channel, gamma)[:, :n_used].reshape(len(rows), -1)
        tiles, mean = self.tiles(rows), returns.mean(axis=0)
        problem = Problem(LiveFeatures(tiles, self.n_features), mean, len(rows))
        for block in _blocks(len(rows)):
            phi = problem.live.dense(tiles[block])
            problem.system.add(phi, phi, returns[block] - mean)
        return problem

    def _remaining_returns(self, starts: Integers, channel: Integers, gamma: float) -> Floats:
        """Return the return from each step to its excursion's end, shape (n_excursions, HORIZON, n_questions)."""
        steps = starts + np.arange(HORIZON + 1)[:, None]
        seen = self._observation[steps][:, :, channel].astype(np.float64)
        return np.ascontiguousarray(returns_along(seen, gamma)[:-1].swapaxes(0, 1))

    def lstd(self, action: int, channel: Integers, gamma: float, lam: float) -> Problem:
        """Return the demons' own problem, E_b[delta e] = 0, of one constant-action policy on the learning stream.

        Only transitions by that action count: elsewhere rho = 0, and the trace with it.

        Args:
            action: The policy's.
            channel: Cumulant of each question, shape (n_questions,).
            gamma: Their continuation.
            lam: Trace decay, under the rule "clipped".
        """
        rows, lessons = self.lessons.stream.rows, self.lessons
        arrived = np.flatnonzero(lessons.does == LEARN)
        arrived = arrived[rows["action"][lessons.before[arrived]] == action]
        left = lessons.before[arrived]
        rho = 1.0 / rows["b"][left]
        goes_on = np.where(rows["flags"][arrived] & Flag.TERMINATED, 0.0, gamma)
        follows = np.concatenate([[False], left[1:] == arrived[:-1]])
        clipped = lam * np.minimum(1.0, 1.0 / np.concatenate([[1.0], rho[:-1]]))
        decay = np.where(follows, gamma * clipped, 0.0)
        reward = self._observation[arrived][:, channel].astype(np.float64)
        mean = (rho[:, None] * reward).sum(axis=0) / rho.sum()
        at, to = self.tiles(left), self.tiles(arrived)
        live = LiveFeatures(np.concatenate([at, to]), self.n_features)
        problem, trace = Problem(live, mean / (1.0 - gamma), len(left)), np.zeros(live.n, dtype=np.float32)
        for block in _blocks(len(left)):
            phi = live.dense(at[block])
            change = phi - goes_on[block, None].astype(np.float32) * live.dense(to[block])
            traces, trace = _traces(phi, rho[block], decay[block], trace)
            problem.system.add(traces, change, reward[block] - mean)
        return problem


def terms_needed(gamma: float) -> int:
    """Return how many terms a return must have for gamma^n to be below 1e-3.

    Example:
        >>> terms_needed(0.0), terms_needed(0.5), terms_needed(0.8)
        (1, 10, 31)
    """
    return 1 if gamma == 0.0 else math.floor(math.log(ENOUGH_LEFT) / math.log(gamma)) + 1


def _traces(phi: Singles, rho: Floats, decay: Floats, trace: Singles) -> tuple[Singles, Singles]:
    """Return e_t = rho_t (phi_t + decay_t e_{t-1}) of a block of steps, shape (k, n), and the last of them."""
    traces = phi * rho[:, None].astype(np.float32)
    for k in range(len(traces)):
        if decay[k]:
            traces[k] += np.float32(rho[k] * decay[k]) * trace
        trace = traces[k]
    return traces, trace


def _blocks(n: int) -> Iterator[slice]:
    """Cut n rows into runs."""
    for first in range(0, n, _BLOCK):
        yield slice(first, min(first + _BLOCK, n))
