"""PastExcursions that are gone through a batch at a time come to what the same ones come to, held all at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from horde_agent.measures import excursion_file, passes
from horde_agent.measures.excursion_file import Batch
from horde_agent.measures.nmsre import final_nmsre
from horde_agent.measures.passes import PastExcursions, courses, curves, dots, nmsre_along
from horde_agent.measures.return_errors import ReturnErrors
from horde_agent.measures.returns import PolicyUnderTest, TestExcursion

N = 500
POLICIES = [
    PolicyUnderTest(0, np.array([0, 1, 2]), np.array([0, 0, 1]), np.array([0.0, 0.5, 0.5]), "left"),
    PolicyUnderTest(1, np.array([3, 4]), np.array([0, 1]), np.array([0.5, 0.5]), "right"),
]


def made_up(seed: int = 0) -> Batch:
    """Return excursions of two policies; demon 1 is first tested in the fifth, demon 4 never; returns lie far off 0.

    A variance by the mean of squares less the square of the mean would be wrong in its third digit.
    """
    rng = np.random.default_rng(seed)
    policy = rng.integers(0, 2, N)
    returns = 1e6 + rng.standard_normal((N, 3))
    returns[policy == 1, 1:] = np.nan
    returns[: np.flatnonzero(policy == 0)[4], 1] = np.nan
    predictions = np.where(np.isnan(returns), np.nan, returns + rng.standard_normal((N, 3)) * 0.5)
    return Batch(np.arange(N) * 7, policy, rng.standard_normal(N), predictions, returns)


def in_batches_of(n: int) -> PastExcursions:
    whole = made_up()

    def source() -> Iterator[Batch]:
        for first in range(0, N, n):
            yield Batch._make(column[first : first + n] for column in whole)

    return PastExcursions(POLICIES, 5, source)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> PastExcursions:
    """PastExcursions of which seven are held at a time."""
    monkeypatch.setattr(excursion_file, "BATCH_BYTES", 7 * (16 * 3 + 16))
    return in_batches_of(11)


def test_no_more_than_a_batch_is_held_at_a_time(small: PastExcursions) -> None:
    assert {len(batch.step) for batch in small} == {7, N % 7}


def test_two_passes_come_to_what_all_at_once_come_to(small: PastExcursions) -> None:
    held = small.outcomes()
    for course, outcome in zip(courses(small), held, strict=True):
        np.testing.assert_array_equal(course.step, outcome.step)
        np.testing.assert_allclose(course.variance, outcome.variance(), rtol=1e-9)
        np.testing.assert_array_equal(course.n_tests, (~np.isnan(outcome.returns)).sum(axis=0))
    np.testing.assert_allclose(passes.final_nmsre(courses(small), 5), final_nmsre(held, 5), rtol=1e-9)
    assert np.isnan(passes.final_nmsre(courses(small), 5)[4]), "it was never tested"


def test_what_it_comes_to_depends_on_no_file(small: PastExcursions) -> None:
    """To the bit: of a life that was resumed, some excursions may still wait for room in memory."""
    theirs = passes.final_nmsre(courses(in_batches_of(499)), 5)
    assert passes.final_nmsre(courses(small), 5).tobytes() == theirs.tobytes()


def test_each_excursion_is_told_in_its_order_with_the_nmsre_after_it(small: PastExcursions) -> None:
    held, seen = small.outcomes(), [0, 0]
    told = list(nmsre_along(small, courses(small)))
    assert [step for step, *_ in told] == (np.arange(N) * 7).tolist()
    assert [online for *_, online in told] == made_up().online.tolist()
    for _, course, nmsre, _ in told:
        k = course.number
        np.testing.assert_allclose(nmsre, held[k].nmsre()[seen[k]], rtol=1e-9)
        seen[k] += 1


def test_a_long_curve_is_thinned_to_what_a_picture_shows(
    small: PastExcursions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both policies at the same numbers of excursions, so that a mean over all can be drawn; and each one's last."""
    monkeypatch.setattr(passes, "MOST_POINTS", 20)
    held, found = small.outcomes(), curves(small, courses(small))
    for curve, outcome in zip(found, held, strict=True):
        assert len(curve.at) <= 21
        assert (curve.at[0], curve.at[-1]) == (1, len(outcome.step))
        np.testing.assert_allclose(curve.nmsre, outcome.nmsre()[curve.at - 1], rtol=1e-9)
    shorter, longer = sorted(found, key=lambda curve: int(curve.at[-1]))
    assert set(shorter.at[:-1]) <= set(longer.at)


def test_dots_are_some_of_the_second_half(small: PastExcursions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "MOST_DOTS", 9)
    outcome = small.outcomes()[0]
    ((k, (predictions, returns)),) = dots(small, courses(small), {0: np.array([2, 0])}).items()
    n = len(outcome.step)
    rows = np.unique(np.linspace(n // 2, n - 1, 9).round().astype(int))
    assert k == 0
    np.testing.assert_array_equal(predictions, outcome.predictions[rows][:, [2, 0]])
    np.testing.assert_array_equal(returns, outcome.returns[rows][:, [2, 0]])


def test_a_file_larger_than_a_batch_reads_back_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Demons come and go on the way: the pieces are of the demons that there are in the end."""
    rng = np.random.default_rng(1)
    errors = ReturnErrors(POLICIES, 5)
    errors.record_to(tmp_path / "x.rec")
    alone = ReturnErrors(POLICIES, 5)

    def add(n: int) -> None:
        for k in range(n):
            test = TestExcursion(errors.policies[k % 2], rng.random(errors.n_demons), step=k, horizon=1)
            test.observe(rng.random(2).astype(np.float32))
            for one in (errors, alone):
                one.add(test)

    add(20)
    stays = np.array([4, 2, -1])
    left = PolicyUnderTest(0, np.array([1]), np.array([1]), np.array([0.5]), "left")
    right = PolicyUnderTest(1, np.array([0, 2]), np.array([1, 0]), np.array([0.5, 0.0]), "right")
    for one in (errors, alone):
        one.rearrange(stays, [right, left])
    add(30)
    for n_bytes in (1 << 20, 500):
        monkeypatch.setattr(excursion_file, "BATCH_BYTES", n_bytes)
        read_back = PastExcursions.read(tmp_path / "x.rec").outcomes()
        for mine, theirs in zip(alone.excursions().outcomes(), read_back, strict=True):
            assert mine.policy.name == theirs.policy.name
            for ours, read in zip(mine[1:], theirs[1:], strict=True):
                np.testing.assert_array_equal(ours, read)
