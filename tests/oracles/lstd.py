"""Slow twin of `learning.lstd`: what the readings say about returns, from recorded transitions and the equations."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from horde_agent.types import Floats

N_MEASURED = 1_024
DECAY = 0.9
N_QUEUED = 512
N_TURNS = 8
BATCH = 64
FIRST_SOLUTION = 512
GROWTH = 1.5
MOST_TRANSITIONS = 262_144
LARGEST_SHARE = 0.75
HALF_SHARE_AT = 1_000
FURTHEST = 10.0
LEAST_UNIT = 0.1
RIDGE = 10.0
RIDGE_OF_ONE = 0.01
BEHAVIOUR = None
"""In place of an action: transitions by all of them."""


class Transition(NamedTuple):
    """One step of a life; readings may be NaN."""

    left: Floats  # (n_readings,)
    action: int
    reached: Floats  # (n_readings,)
    reward: float
    terminated: bool
    follows: bool  # whether the transition before it ended where it begins


class Solution(NamedTuple):
    """When a policy and continuation were solved for."""

    n_steps: int  # of the life
    n_made: int  # transitions by the policy in the sums

    @property
    def n_summed(self) -> int:
        """Steps of the life until the latest addition to the sums."""
        return self.n_steps // N_QUEUED * N_QUEUED

    @property
    def largest_share(self) -> float:
        """Share where nothing is known of TD errors."""
        return LARGEST_SHARE * self.n_made / (self.n_made + HALF_SHARE_AT)


NEVER = Solution(0, 0)


def turn_of(action: int | None, gamma: float) -> int:
    """Return which of `N_TURNS` batches solves for a policy and continuation."""
    number = -1
    if action is not BEHAVIOUR:
        number = action
    return zlib.crc32(f"{number} {gamma}".encode()) % N_TURNS


def latest_solution(
    actions: Sequence[int],
    action: int | None,
    gamma: float,
    asked_at: int = 0,
    sums_since: int = N_MEASURED,
) -> Solution:
    """Return the latest solution for a policy and continuation after steps by these actions.

    Args:
        actions: Those of all steps of the life.
        action: That of the policy, or `BEHAVIOUR`.
        gamma: The continuation.
        asked_at: Number of steps before which the demon was not there.
        sums_since: Number of steps before those that the sums of the policy have.
    """
    latest = NEVER
    n_made = 0
    for n_steps in range(BATCH, len(actions) + 1, BATCH):
        if n_steps > sums_since and n_steps % N_QUEUED == 0:
            for taken in actions[n_steps - N_QUEUED : n_steps]:
                n_made += action is BEHAVIOUR or taken == action
        is_turn = n_steps // BATCH % N_TURNS == turn_of(action, gamma)
        is_enough = n_made >= max(FIRST_SOLUTION, GROWTH * latest.n_made)
        if is_turn and is_enough and n_steps > asked_at:
            latest = Solution(n_steps, n_made)
    return latest


class SlowLSTD:
    """Solutions from these transitions, the first of which make centre and unit.

    Args:
        transitions: All that were added, in order.
        projection: R, shape (n_readings, n_random).
        phase: p, shape (n_random,).
        most_transitions: Transitions of a policy from which on its sums are halved.
    """

    def __init__(
        self,
        transitions: Sequence[Transition],
        projection: Floats,
        phase: Floats,
        most_transitions: int = MOST_TRANSITIONS,
    ) -> None:
        self._projection = projection
        self._phase = phase
        self._most_transitions = most_transitions
        reached = np.array([self._cumulants(transition) for transition in transitions])
        measured = reached[:N_MEASURED]
        self._summed = transitions[N_MEASURED:]
        self.centre = np.zeros(reached.shape[1])
        self.unit = np.ones(reached.shape[1])
        self.lowest = np.zeros(reached.shape[1])
        self.highest = np.zeros(reached.shape[1])
        for j in range(reached.shape[1]):
            readings = measured[~np.isnan(measured[:, j]), j]
            if readings.size:
                self.centre[j] = readings.mean()
                self.unit[j] = max(readings.std(), LEAST_UNIT)
            ever_known = reached[~np.isnan(reached[:, j]), j]
            if ever_known.size:
                self.lowest[j] = ever_known.min()
                self.highest[j] = ever_known.max()

    @staticmethod
    def _cumulants(transition: Transition) -> Floats:
        return np.append(transition.reached, transition.reward)

    def features(self, readings: Floats) -> Floats:
        """Return z of the readings of one state, (n_readings,)."""
        n = readings.size
        u = (readings - self.centre[:n]) / self.unit[:n]
        u[np.isnan(u)] = 0.0
        u = np.clip(u, -FURTHEST, FURTHEST)
        waves = np.sqrt(2.0) * np.cos(u @ self._projection + self._phase)
        return np.concatenate([[1.0], u, waves])

    def weights(self, action: int | None, gamma: float, cumulant: int) -> Floats:
        """Return w of a policy, a continuation, and a cumulant: a reading, or -1 for the reward."""
        d = 1 + self._projection.shape[0] + self._phase.size
        C0 = np.zeros((d, d))
        C1 = np.zeros((d, d))
        c = np.zeros(d)
        squares = np.zeros(d)
        e = np.zeros(d)
        n = 0.0
        for first in range(0, len(self._summed), N_QUEUED):
            queue = self._summed[first : first + N_QUEUED]
            is_made = any(action in (BEHAVIOUR, transition.action) for transition in queue)
            if is_made and n >= self._most_transitions:
                C0 /= 2.0
                C1 /= 2.0
                c /= 2.0
                squares /= 2.0
                n /= 2.0
            for transition in queue:
                if action not in (BEHAVIOUR, transition.action):
                    e = np.zeros(d)
                    continue
                z_t = self.features(transition.left)
                z_tp1 = self.features(transition.reached)
                if transition.terminated:
                    z_tp1[:] = 0.0
                c_tp1 = self._cumulants(transition)[cumulant]
                if np.isnan(c_tp1):
                    c_tp1 = self.centre[cumulant]
                if not transition.follows:
                    e = np.zeros(d)
                e = z_t + DECAY * e
                C0 += np.outer(e, z_t)
                C1 += np.outer(e, z_tp1)
                c += e * c_tp1
                squares += z_t**2
                n += 1.0
        # A ridge of 10 samples of each feature with the mean return of a life that goes on
        P = RIDGE * np.diag(squares) / n
        P[0, 0] = RIDGE_OF_ONE
        at_mean = np.zeros(d)
        at_mean[0] = c[0] / C0[0, 0] / (1.0 - gamma)
        A = C0 - gamma * C1
        deviation = np.linalg.solve(A + P, c - A @ at_mean)
        return np.asarray(at_mean + deviation)

    def value(self, weights: Floats, gamma: float, cumulant: int, readings: Floats) -> float:
        """Return l at a state from `weights`, within the range of returns of one step and of a life that goes on."""
        longest = 1.0 / (1.0 - gamma)
        least = min(self.lowest[cumulant], longest * self.lowest[cumulant])
        most = max(self.highest[cumulant], longest * self.highest[cumulant])
        return float(np.clip(weights @ self.features(readings), least, most))
