"""Online NMSRE: accumulate each completed excursion and append it to the table of excursions.

The online NMSRE uses the variance of the returns so far. The two-pass NMSRE of reports is computed
from the table (`two_pass_nmsre`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum

import numpy as np

from horde_agent.saving import State, attributes, inner, nested, put_back
from horde_agent.scoring.excursion_table import ExcursionTable
from horde_agent.scoring.nmsre import ReturnMoments, error_trace
from horde_agent.scoring.returns import PolicyUnderTest, TestExcursion
from horde_agent.scoring.two_pass_nmsre import final_nmsre, policy_scores
from horde_agent.types import Floats, Integers

_STATE = ("n_excursions", "discarded", "n_repeated", "latest_mean", "_trace")
HORIZON = 50
"""Terms of a return, unless another number is chosen."""


class Discard(IntEnum):
    """Why a test was discarded; the values are rows of `ReturnErrors.discarded`."""

    GAP = 0
    NOT_APPLIED = 1
    STALE = 2  # stale frames have too much weight in the return of each question
    TRUNCATED = 3
    DOCKING = 4
    END = 5  # an excursion was under way at the end of the life
    BEHAVIOUR = 6  # anything that ends a test of the behaviour itself


DISCARDED_BY = {
    Discard.GAP: "a gap",
    Discard.NOT_APPLIED: "an action that was not applied",
    Discard.STALE: "stale frames",
    Discard.TRUNCATED: "the end of the episode",
    Discard.DOCKING: "docking",
}
"""In words, what interrupted an excursion of those that are counted."""

_OF_EXCURSIONS = (Discard.GAP, Discard.NOT_APPLIED, Discard.TRUNCATED, Discard.DOCKING, Discard.END)
"""What ends an excursion before its last term."""


class ReturnErrors:
    """The online NMSRE of `n_demons` demons, and the table of excursions of the tested policies.

    Attributes:
        table: The completed excursions.
        moments: Of the returns so far.
        n_excursions: Completed tests: excursions, and stretches of the behaviour itself.
        discarded: Tests that were discarded for each reason, by `Discard`, and by the number of their
            terms, shape (7, horizon + 1).
        n_repeated: Tests per demon that were not scored because of stale frames
            (`TestExcursion.is_repeated`), shape (n_demons,).
        latest_mean: Mean online NMSRE after the last excursion, of the demons that had not diverged;
            NaN until one was tested twice.
    """

    def __init__(
        self, policies: Sequence[PolicyUnderTest], n_demons: int, horizon: int = HORIZON
    ) -> None:
        self.table = ExcursionTable(policies, n_demons)
        self.n_excursions = 0
        self.n_repeated: Integers = np.zeros(n_demons, dtype=np.int64)
        self.discarded: Integers = np.zeros((len(Discard), horizon + 1), dtype=np.int64)
        self.latest_mean = float("nan")
        self.moments = ReturnMoments(n_demons)
        self._trace: Floats = np.full(n_demons, np.nan)

    @property
    def policies(self) -> list[PolicyUnderTest]:
        """The tested policies."""
        return self.table.policies

    @property
    def n_discarded(self) -> int:
        """Number of excursions that were discarded."""
        return int(self.discarded[list(DISCARDED_BY)].sum())

    def discarded_by(self) -> dict[str, int]:
        """Return how many excursions were discarded for each reason, in words, without those of 0."""
        counts = {
            words: int(self.discarded[reason].sum()) for reason, words in DISCARDED_BY.items()
        }
        return {words: n for words, n in counts.items() if n}

    @property
    def interrupted(self) -> Integers:
        """Tests that a break ended before their last term, by their terms, shape (2, horizon + 1).

        The first row has those of the behaviour, the second the excursions.
        """
        of_excursions = self.discarded[list(_OF_EXCURSIONS)].sum(axis=0)
        return np.stack([self.discarded[Discard.BEHAVIOUR], of_excursions])

    @property
    def n_tests(self) -> Integers:
        """Completed tests per demon, shape (n_demons,)."""
        return self.moments.n

    @property
    def n_demons(self) -> int:
        """Number of demons of the Horde."""
        return self.table.n_demons

    def state(self) -> State:
        """Return the scores so far, and the excursions that are in no file."""
        scores = attributes(self, *_STATE) | nested(moments=self.moments.state())
        return scores | self.table.state()

    def restore(self, state: State) -> None:
        """Continue from what `state` returned; later excursions are removed from the file.

        Raises:
            ValueError: If the file contains fewer sound excursions.
        """
        put_back(self, state, *_STATE)
        self.moments.restore(inner(state, "moments"))
        self.table.restore(state)

    def rearrange(self, old_index: Integers, policies: Sequence[PolicyUnderTest]) -> None:
        """Continue after demons were added or removed: `ExcursionTable.rearrange`; `old_index`: (n_demons,)."""
        self.table.rearrange(old_index, policies)
        self.moments.rearrange(old_index)
        self._trace = np.where(old_index >= 0, self._trace[old_index], np.nan)
        self.n_repeated = np.where(old_index >= 0, self.n_repeated[old_index], 0)

    def discard(self, reason: Discard, n_terms: int) -> None:
        """Count a test that was discarded after some terms of its return."""
        self.discarded[reason, n_terms] += 1

    def add(self, test: TestExcursion, diverged: Collection[int] = ()) -> None:
        """Score a completed excursion, omitting `diverged` demons from the mean, and append it to the table.

        A demon without a finite prediction counts as not tested. A test of which stale frames left
        nothing is not appended.
        """
        self.n_repeated[test.demons] += test.is_repeated
        if test.is_repeated.all():
            return
        is_known = np.isfinite(test.returns) & np.isfinite(test.predictions - test.remainder)
        i = test.demons[is_known]
        values = {
            "prediction": test.predictions[is_known],
            "return": test.returns[is_known],
            "remainder": test.remainder[is_known],
            "share": test.share[is_known],
            "persistence": test.persistence[is_known],
        }
        returns: Floats = np.full((1, self.table.n_demons), np.nan)
        share = np.zeros_like(returns)
        errors = returns.copy()
        returns[0, i] = values["return"]
        share[0, i] = values["share"]
        errors[0, i] = values["prediction"] - values["remainder"] - values["return"]
        self.moments.add(returns, share)
        error_trace(errors**2, self._trace)
        self.n_excursions += 1
        nmsre = self.online(diverged)
        scored = nmsre[~np.isnan(nmsre)]
        self.latest_mean = float("nan")
        if len(scored):
            self.latest_mean = float(scored.mean())
        self.table.append(test.policy_name, test.step, self.latest_mean, i, values)

    def online(self, diverged: Collection[int] = ()) -> Floats:
        """Return each demon's NMSRE with the variance of its returns so far, shape (n_demons,).

        It is NaN before two tests, and of the `diverged` demons.
        """
        nmsre = self.moments.normalise(self._trace)
        nmsre[list(diverged)] = np.nan
        return nmsre

    def online_variance(self) -> Floats:
        """Return the variance of each demon's returns so far, shape (n_demons,); nan before 2 tests."""
        return self.moments.spread().variance

    def online_median(self, diverged: Collection[int] = ()) -> float:
        """Return the median of `online` without the `diverged` demons; nan while no demon was tested twice."""
        nmsre = self.online(diverged)
        if not np.isnan(nmsre).all():
            return float(np.nanmedian(nmsre))
        return float("nan")

    def nmsre(self) -> Floats:
        """Return the final two-pass NMSRE, shape (n_demons,); NaN for a demon tested fewer than two times."""
        return final_nmsre(policy_scores(self.table), self.n_demons)
