"""Detectors of change to compare `scoring.surprise` with: from rows of numbers to a statistic, large after a change.

Rows are standardised by the first `n_known` of them, which also train what is trained. A limit is for the caller to
choose: `limit_of` gives the one that a stretch without a change just does not exceed.

Sources: Page (1954), Continuous inspection schemes, for CUSUM and Page-Hinkley; Bifet & Gavalda (2007), Learning from
time-changing data with adaptive windowing, for ADWIN, by `pip install river`; Jackson & Mudholkar (1979), Control
procedures for residuals associated with principal component analysis, for Q and T2; White (2015), for UDE.
"""

from __future__ import annotations

import importlib
import importlib.util

import numpy as np

from horde_agent.types import Floats

ALLOWANCE = 0.5  # of CUSUM and Page-Hinkley, in deviations: half of the shift that is looked for
UDE_RATE = 0.1  # of the mean of the errors, per row
EXPLAINED = 0.9  # share of the variance that the principal components keep
ADWIN_DELTAS = 10.0 ** -np.arange(2, 13)


def standardised(rows: Floats, n_known: int) -> Floats:
    """Return rows, (n, m), less the mean of the first `n_known`, over their deviation."""
    sample = rows[:n_known]
    return np.asarray((rows - sample.mean(axis=0)) / (sample.std(axis=0) + 1e-9))


def cusum(rows: Floats, n_known: int) -> Floats:
    """Return the largest two-sided CUSUM over the columns after each row, shape (n,)."""
    values = standardised(rows, n_known)
    values = np.concatenate([values, -values], axis=1)
    total = np.zeros(values.shape[1])
    statistic = np.zeros(len(values))
    for number, value in enumerate(values):
        total = np.maximum(total + value - ALLOWANCE, 0.0)
        statistic[number] = total.max()
    return statistic


def page_hinkley(rows: Floats, n_known: int) -> Floats:
    """Return the largest two-sided Page-Hinkley statistic, whose mean is that of all rows so far, shape (n,)."""
    values = standardised(rows, n_known)
    values = np.concatenate([values, -values], axis=1)
    mean = np.zeros(values.shape[1])
    total = np.zeros(values.shape[1])
    least = np.zeros(values.shape[1])
    statistic = np.zeros(len(values))
    for number, value in enumerate(values):
        mean += (value - mean) / (number + 1)
        total += value - mean - ALLOWANCE
        least = np.minimum(least, total)
        statistic[number] = (total - least).max()
    return statistic


def ude(rows: Floats, n_known: int) -> Floats:
    """Return the largest UDE, the mean of recent errors over their deviation, shape (n,)."""
    deviation = rows[:n_known].std(axis=0) + 1e-9
    mean = np.zeros(rows.shape[1])
    statistic = np.zeros(len(rows))
    for number, row in enumerate(rows):
        mean += UDE_RATE * (row - mean)
        statistic[number] = np.abs(mean / deviation).max()
    return statistic


def hotelling(rows: Floats, n_known: int) -> Floats:
    """Return T2 of rows, (n, m): the squared distance within the principal components, in variances; shape (n,)."""
    return _components(rows, n_known)[0]


def squared_rest(rows: Floats, n_known: int) -> Floats:
    """Return Q of rows, (n, m): the squared distance from the principal components, shape (n,)."""
    return _components(rows, n_known)[1]


def _components(rows: Floats, n_known: int) -> tuple[Floats, Floats]:
    values = standardised(rows, n_known)
    variance, axes = np.linalg.eigh(np.cov(values[:n_known].T))
    variance = variance[::-1]
    axes = axes[:, ::-1]
    n_kept = int(np.searchsorted(np.cumsum(variance) / variance.sum(), EXPLAINED)) + 1
    scores = values @ axes[:, :n_kept]
    residuals = values - scores @ axes[:, :n_kept].T
    return (scores**2 / variance[:n_kept]).sum(axis=1), (residuals**2).sum(axis=1)


def has_adwin() -> bool:
    """Return whether `river` is installed."""
    return importlib.util.find_spec("river") is not None


def adwin(rows: Floats, n_known: int) -> Floats:
    """Return -log10 of the smallest delta of `ADWIN_DELTAS` at which ADWIN finds a change, 0 without one; (n,)."""
    drift = importlib.import_module("river.drift")
    values = standardised(rows, n_known)
    statistic = np.zeros(len(values))
    for delta in ADWIN_DELTAS:
        detectors = [drift.ADWIN(delta=delta, clock=1) for _ in range(values.shape[1])]
        for number, value in enumerate(values):
            for detector, entry in zip(detectors, value.tolist(), strict=True):
                detector.update(entry)
                if detector.drift_detected:
                    statistic[number] = -np.log10(delta)
    return statistic


def limit_of(statistic: Floats, n_known: int) -> float:
    """Return the largest of the values, (n,), behind the known rows."""
    return float(statistic[n_known:].max())


def first_above(statistic: Floats, limit: float) -> float:
    """Return the number of rows up to the first above the limit, infinite without one."""
    above = np.flatnonzero(statistic > limit)
    if not above.size:
        return np.inf
    return float(above[0] + 1)
