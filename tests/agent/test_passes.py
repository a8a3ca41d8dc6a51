"""Scores of excursions that are read in chunks equal those of all excursions at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from horde_agent.measures import excursion_table, passes
from horde_agent.measures.excursion_table import ExcursionTable
from horde_agent.measures.nmsre import final_nmsre
from horde_agent.measures.passes import curves, dots, nmsre_along, policy_scores
from horde_agent.measures.returns import PolicyUnderTest

N = 500
ONLINE = np.random.default_rng(1).standard_normal(N).tolist()
POLICIES = [
    PolicyUnderTest(0, np.array([0, 1, 2]), np.array([0, 0, 1]), np.array([0.0, 0.5, 0.5]), "left"),
    PolicyUnderTest(1, np.array([3, 4]), np.array([0, 1]), np.array([0.5, 0.5]), "right"),
]


def fill(table: ExcursionTable) -> None:
    """Append excursions of two policies; demon 1 is first tested in the fifth, demon 4 never; returns lie far off 0.

    A variance by the mean of squares less the square of the mean would be wrong in its third digit.
    """
    rng = np.random.default_rng(0)
    n_left = 0
    for step, (k, online) in enumerate(zip(rng.integers(0, 2, N).tolist(), ONLINE, strict=True)):
        n_left += k == 0
        demons = np.array([3]) if k else np.array([0, 1, 2] if n_left > 4 else [0, 2])
        returns = 1e6 + rng.standard_normal(len(demons))
        predictions = returns + rng.standard_normal(len(demons)) * 0.5
        table.append(POLICIES[k].name, 7 * step, online, demons, (predictions, returns))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> ExcursionTable:
    """A table that is read in chunks of seven."""
    monkeypatch.setattr(excursion_table, "CHUNK_BYTES", 7 * (16 * 3 + 16))
    fill(table := ExcursionTable(POLICIES, 5))
    return table


def test_no_more_than_a_batch_is_held_at_a_time(small: ExcursionTable) -> None:
    assert {len(rows) for rows in small} == {7, N % 7}


def test_scores_in_chunks_equal_scores_of_all_excursions(small: ExcursionTable) -> None:
    held = small.outcomes()
    for course, outcome in zip(policy_scores(small), held, strict=True):
        np.testing.assert_array_equal(course.step, outcome.step)
        np.testing.assert_allclose(course.variance, outcome.variance(), rtol=1e-9)
        np.testing.assert_array_equal(course.n_tests, (~np.isnan(outcome.returns)).sum(axis=0))
    np.testing.assert_allclose(final_nmsre(policy_scores(small), 5), final_nmsre(held, 5), rtol=1e-9)
    assert np.isnan(final_nmsre(policy_scores(small), 5)[4]), "it was never tested"


def test_scores_do_not_depend_on_the_files(small: ExcursionTable, tmp_path: Path) -> None:
    """To the bit: after a resume, some excursions may still wait for disk space in memory."""
    recorded = ExcursionTable(POLICIES, 5)
    recorded.record_to(tmp_path / "x.rec")
    fill(recorded)
    theirs = final_nmsre(policy_scores(ExcursionTable.read(tmp_path / "x.rec")), 5)
    assert final_nmsre(policy_scores(small), 5).tobytes() == theirs.tobytes()


def test_excursions_are_yielded_in_order_with_the_nmsre_after_each(small: ExcursionTable) -> None:
    held, seen = small.outcomes(), [0, 0]
    told = list(nmsre_along(small, policy_scores(small)))
    assert [step for step, *_ in told] == (np.arange(N) * 7).tolist()
    assert [online for *_, online in told] == ONLINE
    for _, course, nmsre, _ in told:
        k = course.number
        np.testing.assert_allclose(nmsre, held[k].nmsre()[seen[k]], rtol=1e-9)
        seen[k] += 1


def test_a_long_curve_is_thinned_to_what_a_picture_shows(
    small: ExcursionTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both policies at the same numbers of excursions, so that a mean over all can be drawn; and each one's last."""
    monkeypatch.setattr(passes, "MOST_POINTS", 20)
    held, found = small.outcomes(), curves(small, policy_scores(small))
    for curve, outcome in zip(found, held, strict=True):
        assert len(curve.at) <= 21
        assert (curve.at[0], curve.at[-1]) == (1, len(outcome.step))
        np.testing.assert_allclose(curve.nmsre, outcome.nmsre()[curve.at - 1], rtol=1e-9)
    shorter, longer = sorted(found, key=lambda curve: int(curve.at[-1]))
    assert set(shorter.at[:-1]) <= set(longer.at)


def test_dots_are_some_of_the_second_half(small: ExcursionTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "MOST_DOTS", 9)
    outcome = small.outcomes()[0]
    ((k, (predictions, returns)),) = dots(small, policy_scores(small), {0: np.array([2, 0])}).items()
    n = len(outcome.step)
    rows = np.unique(np.linspace(n // 2, n - 1, 9).round().astype(int))
    assert k == 0
    np.testing.assert_array_equal(predictions, outcome.predictions[rows][:, [2, 0]])
    np.testing.assert_array_equal(returns, outcome.returns[rows][:, [2, 0]])
