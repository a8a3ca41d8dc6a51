"""Kernels of `learning.lstd`: features, sums of transitions, linear equations, and the values of all demons."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from horde_agent.kernels._jit import inner_kernel, kernel
from horde_agent.types import Bools, Floats, Reals

FURTHEST = 10.0
"""The largest distance of a reading from its centre, in units; larger ones count as this."""


class LSTDArrays(NamedTuple):
    """What the steps of an LSTD of n readings, d features and n_demons demons read and write."""

    centre: Floats  # (n + 1,): of each reading and of the reward
    unit: Floats  # (n + 1,)
    projection: Reals  # float32, (n, n_random)
    phase: Reals  # float32, (n_random,)
    weights: Reals  # float32, (d, n_demons)
    least: Floats  # (n_demons,): bounds of the values
    most: Floats  # (n_demons,)
    share: Floats  # (n_demons,)
    features: Reals  # float32, (d,): scratch
    single: Reals  # float32, (n_demons,): scratch


@inner_kernel
def _write_features_of(of: LSTDArrays, readings: Floats, out: Reals) -> None:
    """Write z, float32, (d,), of a state with these readings, (n,) or more; a missing one counts as its centre."""
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
        reading = np.float32(min(max(u, -FURTHEST), FURTHEST))
        out[1 + j] = reading
        direction = of.projection[j]
        for k in range(n_random):
            waves[k] += reading * direction[k]
    for k in range(n_random):
        waves[k] = math.sqrt(2.0) * math.cos(waves[k])


@kernel
def write_features(of: LSTDArrays, readings: Floats, out: Reals) -> None:
    """Write z of some states, float32, (n_rows, d), from their readings, (n_rows, n) or more columns."""
    for t in range(readings.shape[0]):
        _write_features_of(of, readings[t], out[t])


@kernel
def mix(of: LSTDArrays, readings: Floats, own: Floats) -> None:
    """Move predictions, (n_demons,), toward the values at these readings, (n,): own := own + q (l - own)."""
    _write_features_of(of, readings, of.features)
    for i in range(own.shape[0]):
        of.single[i] = 0.0
    for k in range(of.features.shape[0]):
        feature = of.features[k]
        weights = of.weights[k]
        for i in range(own.shape[0]):
            of.single[i] += feature * weights[i]
    for i in range(own.shape[0]):
        value = min(max(float(of.single[i]), of.least[i]), of.most[i])
        own[i] += of.share[i] * (value - own[i])


@kernel
def write_traces(
    z: Reals, by_policy: Bools, follows: Bools, decay: float, trace: Floats, out: Reals
) -> None:
    """Write e_t = z_t + decay e_{t-1} of the transitions by a policy.

    Args:
        z: Features of the states left by all transitions, float32, shape (n_rows, d).
        by_policy: Which of them are the policy's, shape (n_rows,). One that is not ends a trace.
        follows: Which of them begin where the one before ended, shape (n_rows,).
        decay: kappa.
        trace: e of the transition before the first one, shape (d,), and of the last one afterwards.
        out: e of the policy's transitions, one after the other, float32, shape (n_by_policy, d).
    """
    k = 0
    for t in range(z.shape[0]):
        if not by_policy[t]:
            for i in range(z.shape[1]):
                trace[i] = 0.0
            continue
        remainder = 0.0
        if follows[t]:
            remainder = decay
        for i in range(z.shape[1]):
            trace[i] = z[t, i] + remainder * trace[i]
            out[k, i] = trace[i]
        k += 1


@kernel
def add_products(left: Reals, right: Reals, rows: Reals, total: Floats) -> None:
    """Add sum_t left_t right_t' of n vectors, float32, (n, d) and (n, k), to a matrix, (d, k).

    `rows` is scratch, float32, (2, k): of the matrix, two rows and four of the products at a time, so that each
    vector is read half as often and each row of the sum a quarter as often.
    """
    n = left.shape[0]
    d = left.shape[1]
    k = right.shape[1]
    n_by_fours = n // 4 * 4
    upper = rows[0]
    lower = rows[1]
    for i in range(0, d, 2):
        below = min(i + 1, d - 1)
        for j in range(k):
            upper[j] = 0.0
            lower[j] = 0.0
        for t in range(0, n_by_fours, 4):
            a = left[t, i]
            b = left[t + 1, i]
            c = left[t + 2, i]
            e = left[t + 3, i]
            a_below = left[t, below]
            b_below = left[t + 1, below]
            c_below = left[t + 2, below]
            e_below = left[t + 3, below]
            for j in range(k):
                p = right[t, j]
                q = right[t + 1, j]
                r = right[t + 2, j]
                s = right[t + 3, j]
                upper[j] += (a * p + b * q) + (c * r + e * s)
                lower[j] += (a_below * p + b_below * q) + (c_below * r + e_below * s)
        for t in range(n_by_fours, n):
            for j in range(k):
                upper[j] += left[t, i] * right[t, j]
                lower[j] += left[t, below] * right[t, j]
        for j in range(k):
            total[i, j] += upper[j]
        if below > i:
            for j in range(k):
                total[below, j] += lower[j]


N_PIVOTS = 32
"""Columns that are eliminated at a time: the rows below are read and written once for all of them."""


@kernel
def solve(system: Floats, pivot_rows: Floats, rows: Floats, solution: Floats) -> None:
    """Solve A X = B, (d, d) and (d, k), by Gaussian elimination with partial pivoting.

    Args:
        system: [A, B], shape (d, d + k); overwritten.
        pivot_rows: Scratch, shape (N_PIVOTS, d + k).
        rows: Scratch, shape (2, d + k).
        solution: X, shape (d, k). A row without a pivot is 0.
    """
    d = system.shape[0]
    for first in range(0, d, N_PIVOTS):
        behind = min(first + N_PIVOTS, d)
        _eliminate_columns(system, first, behind)
        _eliminate_pivot_rows(system, first, behind, pivot_rows)
        for row in range(behind, d, 2):
            _eliminate_two_rows(system, first, behind, row, min(row + 1, d - 1), pivot_rows, rows)
    _substitute(system, rows[0], solution)


@inner_kernel
def _eliminate_columns(system: Floats, first: int, behind: int) -> None:
    """Find the pivots of these columns, and eliminate in them alone; factors stay in the places that become 0."""
    d = system.shape[0]
    for i in range(first, behind):
        pivot = i
        largest = abs(system[i, i])
        for row in range(i + 1, d):
            size = abs(system[row, i])
            if size > largest:
                pivot = row
                largest = size
        if pivot != i:
            for j in range(system.shape[1]):
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


@inner_kernel
def _eliminate_pivot_rows(system: Floats, first: int, behind: int, pivot_rows: Floats) -> None:
    """Eliminate in the other columns of the pivots' rows, and keep these columns."""
    n_columns = system.shape[1] - behind
    for i in range(behind - first):
        row = system[first + i]
        for j in range(n_columns):
            pivot_rows[i, j] = row[behind + j]
        for k in range(i):
            factor = row[first + k]
            for j in range(n_columns):
                pivot_rows[i, j] -= factor * pivot_rows[k, j]
        for j in range(n_columns):
            row[behind + j] = pivot_rows[i, j]


@inner_kernel
def _eliminate_two_rows(
    system: Floats,
    first: int,
    behind: int,
    row: int,
    row_below: int,
    pivot_rows: Floats,
    rows: Floats,
) -> None:
    """Eliminate in the other columns of two rows, or of one twice, four pivots at a time."""
    n_columns = system.shape[1] - behind
    above = system[row]
    below = system[row_below]
    upper = rows[0]
    lower = rows[1]
    for j in range(n_columns):
        upper[j] = above[behind + j]
        lower[j] = below[behind + j]
    for k in range(0, N_PIVOTS, 4):
        a = above[first + k]
        b = above[first + k + 1]
        c = above[first + k + 2]
        e = above[first + k + 3]
        a_below = below[first + k]
        b_below = below[first + k + 1]
        c_below = below[first + k + 2]
        e_below = below[first + k + 3]
        for j in range(n_columns):
            p = pivot_rows[k, j]
            q = pivot_rows[k + 1, j]
            r = pivot_rows[k + 2, j]
            s = pivot_rows[k + 3, j]
            upper[j] -= (a * p + b * q) + (c * r + e * s)
            lower[j] -= (a_below * p + b_below * q) + (c_below * r + e_below * s)
    for j in range(n_columns):
        above[behind + j] = upper[j]
        below[behind + j] = lower[j]


@inner_kernel
def _substitute(system: Floats, rest: Floats, solution: Floats) -> None:
    """Solve the triangular system, from the last row on."""
    d = system.shape[0]
    n_sides = system.shape[1] - d
    for i in range(d - 1, -1, -1):
        row = system[i]
        for j in range(n_sides):
            rest[j] = row[d + j]
        for k in range(i + 1, d):
            factor = row[k]
            for j in range(n_sides):
                rest[j] -= factor * solution[k, j]
        for j in range(n_sides):
            solution[i, j] = 0.0
            if row[i] != 0.0:
                solution[i, j] = rest[j] / row[i]
