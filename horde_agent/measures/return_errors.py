"""Online NMSRE: accumulate each completed excursion and append it to the table of excursions.

The online NMSRE uses the variance of the returns so far. The two-pass NMSRE of reports is computed
from the table (`passes`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from horde_agent.measures.excursion_table import ExcursionTable
from horde_agent.measures.nmsre import TAU, final_nmsre, normalise
from horde_agent.measures.returns import PolicyUnderTest, TestExcursion
from horde_agent.measures.two_pass_nmsre import policy_scores
from horde_agent.saving import State, attributes, put_back
from horde_agent.types import Floats, Integers

_STATE = ("n_excursions", "n_discarded", "n_tests", "latest_mean", "_mean", "_m2", "_trace")


class ReturnErrors:
    """The online NMSRE of `n_demons` demons, and the table of excursions of the tested policies.

    Attributes:
        table: The completed excursions.
        n_excursions: Completed tests: excursions, and stretches of the behaviour itself.
        n_discarded: Excursions that a gap interrupted.
        n_tests: Completed tests per demon, shape (n_demons,).
        latest_mean: Mean online NMSRE after the last excursion; NaN until a demon was tested twice.
    """

    def __init__(self, policies: Sequence[PolicyUnderTest], n_demons: int) -> None:
        self.table = ExcursionTable(policies, n_demons)
        self.n_excursions = self.n_discarded = 0
        self.latest_mean = float("nan")
        self.n_tests = np.zeros(n_demons, dtype=np.int64)
        self._mean, self._m2, self._trace = (np.zeros(n_demons) for _ in range(3))

    @property
    def policies(self) -> list[PolicyUnderTest]:
        """The tested policies."""
        return self.table.policies

    @property
    def n_demons(self) -> int:
        """Number of demons of the Horde."""
        return self.table.n_demons

    def state(self) -> State:
        """Return the scores so far, and the excursions that are in no file."""
        return attributes(self, *_STATE) | self.table.state()

    def restore(self, state: State) -> None:
        """Continue from what `state` returned; later excursions are removed from the file.

        Raises:
            ValueError: If the file contains fewer sound excursions.
        """
        put_back(self, state, *_STATE)
        self.table.restore(state)

    def rearrange(self, old_index: Integers, policies: Sequence[PolicyUnderTest]) -> None:
        """Continue after demons were added or removed: `ExcursionTable.rearrange`; `old_index`: (n_demons,)."""
        self.table.rearrange(old_index, policies)
        is_old = old_index >= 0
        self.n_tests = np.where(is_old, self.n_tests[old_index], 0)
        self._mean, self._m2, self._trace = (
            np.where(is_old, values[old_index], 0.0)
            for values in (self._mean, self._m2, self._trace)
        )

    def add(self, test: TestExcursion, diverged: Collection[int] = ()) -> None:
        """Score a completed excursion, omitting `diverged` demons from the mean, and append it to the table.

        A demon without a finite prediction counts as not tested.
        """
        is_known = np.isfinite(test.returns) & np.isfinite(test.predictions)
        i = test.demons[is_known]
        g = test.returns[is_known]
        predictions = test.predictions[is_known]
        error = (predictions - g) ** 2
        n = self.n_tests[i] + 1
        self.n_tests[i] = n
        self._trace[i] += (error - self._trace[i]) / np.where(n == 1, 1.0, TAU)
        away = g - self._mean[i]  # Welford (1962)
        self._mean[i] += away / n
        self._m2[i] += away * (g - self._mean[i])
        self.n_excursions += 1
        self.latest_mean = self.online_mean(diverged)
        self.table.append(test.policy_name, test.step, self.latest_mean, i, (predictions, g))

    def online_mean(self, diverged: Collection[int] = ()) -> float:
        """Return the mean NMSRE with the variance of the returns so far; nan while no demon was tested twice."""
        tested = self.n_tests >= 2
        tested[list(diverged)] = False
        if not tested.any():
            return float("nan")
        return float(self.online()[tested].mean())

    def online(self) -> Floats:
        """Return each demon's NMSRE with the variance of its returns so far, shape (n_demons,); nan before 2 tests."""
        variance = self.online_variance()
        return normalise(np.where(np.isnan(variance), np.nan, self._trace), variance)

    def online_variance(self) -> Floats:
        """Return the variance of each demon's returns so far, shape (n_demons,); nan before 2 tests."""
        variance: Floats = np.full(self.n_demons, np.nan)
        return np.divide(self._m2, self.n_tests, out=variance, where=self.n_tests >= 2)

    def online_median(self, diverged: Collection[int] = ()) -> float:
        """Return the median of `online` without the `diverged` demons; nan while no demon was tested twice."""
        nmsre = self.online()
        nmsre[list(diverged)] = np.nan
        if not np.isnan(nmsre).all():
            return float(np.nanmedian(nmsre))
        return float("nan")

    def nmsre(self) -> Floats:
        """Return the final two-pass NMSRE, shape (n_demons,); NaN for a demon tested fewer than two times."""
        return final_nmsre(policy_scores(self.table), self.n_demons)
