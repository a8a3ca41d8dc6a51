"""Kernels of `learning.lstd`: features, sums of transitions, linear equations, and the values of all demons."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from horde_agent.kernels._jit import inner_kernel, kernel
from horde_agent.types import Floats, Integers, Reals

FURTHEST = 4.0
"""The largest distance of a reading from its centre, in units; larger ones count as this."""


class LSTDArrays(NamedTuple):
    """What the steps of an LSTD of n readings, d features and n_demons demons read and write."""

    centre: Floats  # (n + 1,): of each reading and of the reward
    unit: Floats  # (n + 1,)
    projection: Floats  # (n, n_random)
    phase: Floats  # (n_random,)
    weights: Reals  # float32, (d, n_demons)
    least: Floats  # (n_demons,): bounds of the values
    most: Floats  # (n_demons,)
    share: Floats  # (n_demons,)
    here: Floats  # (n,): readings of the current state
    left: Floats  # (n_rows, n): readings of the queued transitions
    reached: Floats  # (n_rows, n + 1): and the reward
    action: Integers  # (n_rows,)
    goes_on: Floats  # (n_rows,): 0 at the end of a stream, otherwise 1
    n_queued: Integers  # (1,)
    features: Floats  # (d,): scratch
    single: Reals  # float32, (n_demons,): scratch


@inner_kernel
def _write_features_of(of: LSTDArrays, readings: Floats, out: Floats) -> None:
    """Write z, (d,), of a state with these readings, (n,) or more; a missing one, NaN, counts as its centre."""
    n = of.projection.shape[0]
    n_random = of.phase.shape[0]
    waves = out[1 + n :]
    out[0] = 1.0
    for k in range(n_random):
        waves[k] = of.phase[k]
    for j in range(n):
        u = (readings[j] - of.centre[j]) / of.unit[j]
        if np.isnan(u):
            u = 0.0
        u = min(max(u, -FURTHEST), FURTHEST)
        out[1 + j] = u
        direction = of.projection[j]
        for k in range(n_random):
            waves[k] += u * direction[k]
    for k in range(n_random):
        waves[k] = math.sqrt(2.0) * math.cos(waves[k])


@kernel
def write_features(of: LSTDArrays, readings: Floats, out: Floats) -> None:
    """Write z of some states, (n_rows, d), from their readings, (n_rows, n) or more columns."""
    for t in range(readings.shape[0]):
        _write_features_of(of, readings[t], out[t])


@kernel
def note(of: LSTDArrays, readings: Floats, action: int, reward: float, goes_on: float) -> None:
    """Queue a transition from the current state to one with these readings, (n,), which is current then."""
    k = of.n_queued[0]
    for j in range(of.here.shape[0]):
        of.left[k, j] = of.here[j]
        of.reached[k, j] = readings[j]
        of.here[j] = readings[j]
    of.reached[k, of.here.shape[0]] = reward
    of.action[k] = action
    of.goes_on[k] = goes_on
    of.n_queued[0] = k + 1


@kernel
def mix(of: LSTDArrays, readings: Floats, own: Floats) -> None:
    """Move predictions, (n_demons,), toward the values at these readings, (n,): own := own + q (l - own)."""
    _write_features_of(of, readings, of.features)
    for i in range(own.shape[0]):
        of.single[i] = 0.0
    for k in range(of.features.shape[0]):
        feature = np.float32(of.features[k])
        weights = of.weights[k]
        for i in range(own.shape[0]):
            of.single[i] += feature * weights[i]
    for i in range(own.shape[0]):
        value = min(max(float(of.single[i]), of.least[i]), of.most[i])
        own[i] += of.share[i] * (value - own[i])


@kernel
def add_products(left: Floats, right: Floats, total: Floats) -> None:
    """Add sum_t left_t right_t' of n rows, (n, d) and (n, k), to a matrix, (d, k)."""
    n = left.shape[0]
    n_by_fours = n // 4 * 4
    for i in range(left.shape[1]):
        # Four rows at a time: the matrix is read and written a quarter as often
        for t in range(0, n_by_fours, 4):
            a = left[t, i]
            b = left[t + 1, i]
            c = left[t + 2, i]
            d = left[t + 3, i]
            for j in range(right.shape[1]):
                first_two = a * right[t, j] + b * right[t + 1, j]
                last_two = c * right[t + 2, j] + d * right[t + 3, j]
                total[i, j] += first_two + last_two
        for t in range(n_by_fours, n):
            for j in range(right.shape[1]):
                total[i, j] += left[t, i] * right[t, j]


N_PIVOTS = 4
"""Columns that are eliminated at a time: the matrix is read and written a quarter as often."""


@kernel
def solve(system: Floats) -> None:
    """Solve A X = B, (d, d) and (d, k), by Gaussian elimination with partial pivoting.

    `system` is [A, B], of shape (d, d + k), and [., X] afterwards. X is 0 in a row without a pivot.
    """
    d = system.shape[0]
    width = system.shape[1]
    for first in range(0, d, N_PIVOTS):
        behind = min(first + N_PIVOTS, d)
        # These columns alone; factors of rows stay in the places that become 0
        for i in range(first, behind):
            pivot = i
            for row in range(i + 1, d):
                if abs(system[row, i]) > abs(system[pivot, i]):
                    pivot = row
            for j in range(width):
                element = system[i, j]
                system[i, j] = system[pivot, j]
                system[pivot, j] = element
            for row in range(i + 1, d):
                factor = 0.0
                if system[i, i] != 0.0:
                    factor = system[row, i] / system[i, i]
                system[row, i] = factor
                for j in range(i + 1, behind):
                    system[row, j] -= factor * system[i, j]
        # Then the others
        for i in range(first + 1, behind):
            for row in range(first, i):
                factor = system[i, row]
                for j in range(behind, width):
                    system[i, j] -= factor * system[row, j]
        if behind - first < N_PIVOTS:
            continue  # the last columns: no row is below
        for row in range(behind, d):
            f = system[row, first]
            g = system[row, first + 1]
            h = system[row, first + 2]
            k = system[row, first + 3]
            for j in range(behind, width):
                first_two = f * system[first, j] + g * system[first + 1, j]
                last_two = h * system[first + 2, j] + k * system[first + 3, j]
                system[row, j] -= first_two + last_two
    for i in range(d - 1, -1, -1):
        for row in range(i + 1, d):
            factor = system[i, row]
            for j in range(d, width):
                system[i, j] -= factor * system[row, j]
        for j in range(d, width):
            if system[i, i] == 0.0:
                system[i, j] = 0.0
            else:
                system[i, j] /= system[i, i]
