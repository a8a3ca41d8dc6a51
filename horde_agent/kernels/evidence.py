"""The e-values of an e-detector's newest values, and its evidence (`scoring.e_detector`).

By NumPy alone a block takes .5 ms longer: of most arrays, the call takes more time than the numbers.
"""

from __future__ import annotations

import math

from horde_agent.kernels._jit import inner_kernel, kernel
from horde_agent.types import Bools, Floats, Integers

N_BETS = 7  # that a rank is at most 1, 1/2, 1/4 ... 1/64
_LARGEST = 1e200  # of the evidence: products of it stay finite
_SMALLEST_SHARE = 1e-9  # of a tie: a rank is not 0
_DISTRUST = 1.5  # power of what an earlier spell was above chance


@kernel
def e_value(p: float) -> float:
    """Return the e-value of a rank in (0, 1]: the mean over j of 2^j where p <= 2^-j.

    Examples:
        >>> [round(e_value(p), 2) for p in (0.0009, 0.3, 1.0)]
        [18.14, 0.43, 0.14]
    """
    payment = 0.0
    bet = 1.0
    for _ in range(N_BETS):
        if p * bet <= 1.0:
            payment += bet
        bet *= 2.0
    return payment / N_BETS


@inner_kernel
def _multiply(e: float, test: int, series: int, evidence: Floats, log_e: Floats) -> None:
    """Take the e-value of a test into its evidence, R <- (1 + R) e."""
    evidence[test, series] = min((1.0 + evidence[test, series]) * e, _LARGEST)
    log_e[test, series] = math.log(e)


@kernel
def count_references(
    references: Floats, values: Floats, n_above: Integers, n_equal: Integers
) -> None:
    """Count the references of each series that are above its value, and those that equal it.

    Args:
        references: Shape (n_references, n_series).
        values: Shape (n_series,).
        n_above: Shape (n_series,), overwritten.
        n_equal: Shape (n_series,), overwritten.
    """
    n_above[:] = 0
    n_equal[:] = 0
    for k in range(references.shape[0]):
        for s in range(references.shape[1]):
            n_above[s] += references[k, s] > values[s]
            n_equal[s] += references[k, s] == values[s]


@kernel
def bet_on_ranks(
    n_above: Integers,
    n_equal: Integers,
    n_references: int,
    shares: Floats,
    is_muted: Bools,
    evidence: Floats,
    log_e: Floats,
) -> None:
    """Take the ranks of the newest values into the evidence: test k that value k rises, n_values + k that it falls.

    Args:
        n_above: References above each value, shape (n_values, n_series).
        n_equal: References that equal it, shape (n_values, n_series).
        n_references: Of each value.
        shares: Of the ties that count as above, in [0, 1), shape (n_values, n_series).
        is_muted: Series that are not tested, with an evidence of 0, shape (n_series,).
        evidence: R of each test, shape (2 n_values, n_series), changed.
        log_e: Logarithms of the e-values, 0 of muted series, shape (2 n_values, n_series), overwritten.
    """
    n_values = n_above.shape[0]
    n_compared = n_references + 1.0
    for value in range(n_values):
        for series in range(n_above.shape[1]):
            if is_muted[series]:
                for test in (value, n_values + value):
                    evidence[test, series] = 0.0
                    log_e[test, series] = 0.0
                continue
            share = max(shares[value, series], _SMALLEST_SHARE)
            n_ties = 1 + n_equal[value, series]
            p_above = (n_above[value, series] + share * n_ties) / n_compared
            p_below = min(1.0 + _SMALLEST_SHARE / n_compared - p_above, 1.0)
            _multiply(e_value(p_above), value, series, evidence, log_e)
            _multiply(e_value(p_below), n_values + value, series, evidence, log_e)


@kernel
def note_peaks(
    evidence: Floats, ends_below: float, groups: Integers, peak: Floats, record: Floats
) -> None:
    """Follow the peaks of the evidence; those of spells that have ended are recorded for their groups.

    Args:
        evidence: R of each test, shape (n_tests, n_series).
        ends_below: Evidence below which a spell has ended.
        groups: Number of each series' group, shape (n_series,).
        peak: Of the evidence since it was below that, shape (n_tests, n_series), changed.
        record: The largest peak before, shape (n_tests, n_groups), changed.
    """
    for test in range(evidence.shape[0]):
        for series in range(evidence.shape[1]):
            peak[test, series] = max(peak[test, series], evidence[test, series])
            if evidence[test, series] < ends_below:
                group = groups[series]
                record[test, group] = max(record[test, group], peak[test, series])
                peak[test, series] = 0.0


@kernel
def discount(
    evidence: Floats, groups: Integers, record: Floats, n_tested: int, discounted: Floats
) -> float:
    """Write the evidence over what earlier spells of its group would lead one to expect, and return the mean.

    Args:
        evidence: R of each test, shape (n_tests, n_series).
        groups: Number of each series' group, shape (n_series,).
        record: The largest peak of earlier spells, shape (n_tests, n_groups).
        n_tested: Number of values since the first test.
        discounted: Shape (n_tests, n_series), overwritten.
    """
    n_values = max(n_tested, 1)
    total = 0.0
    for test in range(evidence.shape[0]):
        for series in range(evidence.shape[1]):
            excess = max(record[test, groups[series]] / n_values, 1.0)
            discounted[test, series] = evidence[test, series] / excess**_DISTRUST
            total += discounted[test, series]
    return total / evidence.size
