"""Bands around predictions that hold 95 % of the returns, from the errors of the tests before.

Half the width of a question's band is the 0.95 (n + 1)-th smallest of the absolute errors of its last n tests: the
largest of 19, or the 38th of 39 once there are so many. If errors are exchangeable, the next return lies within it with
a probability of 0.95, whatever their distribution. More tests would change a band less from test to test, but reach
further back: of a Horde that learns, earlier errors are larger. How many returns each band held is counted.

Source: Lei et al. (2018), Distribution-free predictive inference for regression, https://arxiv.org/abs/1604.04173,
theorem 2.2, with the tests before as the calibration sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from horde_agent.saving import State, attributes, inner, put_back
from horde_agent.scoring.excursion_table import ExcursionTable
from horde_agent.types import Floats, Integers

SHARE = 0.95
FEWEST_ERRORS = 19  # of which a rank has this share: (n + 1) 0.95 is a whole number, at most n
MOST_ERRORS = 39  # the next number with such a rank
IN_FOLDED = "bands"
"""Their part of the state of folded excursions."""
_STATE = ("n_tested", "n_inside", "_n_errors", "_errors")


class BandFacts(NamedTuple):
    """Widths and counts of the bands of questions, each of shape (n,).

    Attributes:
        half_width: Half the width of the newest band; NaN without one.
        n_tested: Returns for which there was a band.
        n_inside: Those in it.
    """

    half_width: Floats
    n_tested: Integers
    n_inside: Integers

    @classmethod
    def of_details(cls, details: Mapping[str, Any]) -> BandFacts | None:
        """Return those of a log, from the `details.json` of its run; None if they are not there."""
        facts = details.get("bands")
        if facts is None:
            return None
        half_width = np.array(facts["half_width"], dtype=np.float64)
        return cls(half_width, np.array(facts["n_tested"]), np.array(facts["n_inside"]))


class Bands:
    """Bands of some questions.

    Args:
        n: Number of questions.

    Attributes:
        n_tested: Returns of each question for which there was a band, shape (n,).
        n_inside: Those in it.
    """

    def __init__(self, n: int) -> None:
        self.n_tested: Integers = np.zeros(n, dtype=np.int64)
        self.n_inside: Integers = np.zeros(n, dtype=np.int64)
        self._n_errors: Integers = np.zeros(n, dtype=np.int64)
        self._errors: Floats = np.full((n, MOST_ERRORS), np.inf)

    def facts(self) -> BandFacts:
        """Return widths and counts after the latest test."""
        return BandFacts(self.half_widths(), self.n_tested, self.n_inside)

    def half_widths(self, questions: Integers | None = None) -> Floats:
        """Return half the width of the bands of questions, shape (m,), or of all; NaN with fewer than 19 errors."""
        if questions is None:
            questions = np.arange(len(self._n_errors))
        n_errors = self._n_errors[questions]
        n = np.where(n_errors >= MOST_ERRORS, MOST_ERRORS, FEWEST_ERRORS)
        age = (n_errors[:, None] - 1 - np.arange(MOST_ERRORS)) % MOST_ERRORS
        latest = np.where(age < n[:, None], self._errors[questions], np.inf)
        rank = np.round(SHARE * (n + 1)).astype(np.int64)
        widths = np.sort(latest, axis=1)[np.arange(len(n)), rank - 1]
        return np.asarray(np.where(n_errors >= FEWEST_ERRORS, widths, np.nan))

    def add(self, errors: Floats, questions: Integers) -> None:
        """Add the errors of tests, in order, (n_tests, m), of questions, (m,); NaN where a test has none of one."""
        for error in np.abs(errors):
            half = self.half_widths(questions)
            is_known = np.isfinite(error)
            has_band = is_known & np.isfinite(half)
            self.n_tested[questions] += has_band
            self.n_inside[questions] += has_band & (error <= half)
            tested = questions[is_known]
            self._errors[tested, self._n_errors[tested] % MOST_ERRORS] = error[is_known]
            self._n_errors[tested] += 1

    def rearrange(self, old_index: Integers) -> None:
        """Continue after questions were added or removed; `old_index`, (n,), is -1 for the added ones."""
        nothing = Bands(1)
        is_old = old_index >= 0
        for name in _STATE:
            values = getattr(self, name)[old_index]
            values[~is_old] = getattr(nothing, name)
            setattr(self, name, values)

    def state(self) -> State:
        """Return the errors and the counts."""
        return attributes(self, *_STATE)

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        put_back(self, state, *_STATE)


def bands_of(table: ExcursionTable) -> Bands:
    """Return the bands of all questions of a Horde after the excursions of a table."""
    folded = table.folded
    if folded is None:
        bands = Bands(table.n_demons)
        first = 0
    else:
        state = inner(folded.state, IN_FOLDED)
        bands = Bands(len(state["n_tested"]))
        bands.restore(state)
        bands.rearrange(folded.old_index)
        first = int(folded.facts["n_excursions"])
    for chunk in table.chunks(first):
        for _, outcomes in table.by_policy(chunk.records):
            bands.add(outcomes.errors, outcomes.policy.demons)
    return bands
