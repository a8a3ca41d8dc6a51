"""Returns and scores of excursions: by hand, by another implementation (reference data), in chunks, and from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from examples.reproduce.scores import nmsre_after_each, normalise, scores_of
from horde_agent.gvf import GVF, Channel, Reward
from horde_agent.policies import ConstantAction
from horde_agent.record import RecordLost, snapshots
from horde_agent.record.segments import record_files
from horde_agent.runs.reporting.nmsre_ratio import newest_tests
from horde_agent.scoring import excursion_table, folding, two_pass_nmsre
from horde_agent.scoring.bands import Bands, bands_of
from horde_agent.scoring.excursion_table import VALUES, ExcursionTable
from horde_agent.scoring.folding import fold, foldable
from horde_agent.scoring.nmsre import Outcomes
from horde_agent.scoring.return_errors import ReturnErrors
from horde_agent.scoring.returns import (
    PolicyUnderTest,
    TestExcursion,
    are_read_next,
    measured_along,
    policies_under_test,
    returns_along,
    unmeasured,
)
from horde_agent.scoring.two_pass_nmsre import curves, dots, final_nmsre, nmsre_along, policy_scores
from tests.agent.commands import flip
from tests.agent.shared import reference
from tests.oracles.evaluation import truncated_return


def forwards(cumulants: np.ndarray, gamma: np.ndarray) -> TestExcursion:
    """Return the excursion that saw cumulants, shape (n_terms, n)."""
    n = len(gamma)
    policy = PolicyUnderTest(0, np.arange(n), np.arange(n), gamma, "policy")
    excursion = TestExcursion(policy, np.zeros(n), 0, len(cumulants))
    for c in cumulants:
        excursion.observe(c)
    return excursion


def test_a_return_is_the_same_forwards_backwards_and_by_its_definition() -> None:
    """Readings 9, 1, 2, 4: from the first row 1 + 2/2 + 4/4 = 3 at gamma 1/2, and 1 at gamma 0; without the 9."""
    readings = np.array([9.0, 1.0, 2.0, 4.0])[:, None] * np.ones(2)
    gamma = np.array([0.5, 0.0])
    assert forwards(readings[1:], gamma).returns.tolist() == [3.0, 1.0]
    rng = np.random.default_rng(3)
    for cumulants, gammas in ((readings, gamma), (rng.normal(size=(51, 4)), rng.random(4))):
        want = truncated_return(cumulants[1:].T, gammas)
        np.testing.assert_allclose(forwards(cumulants[1:], gammas).returns, want, rtol=1e-12)
        np.testing.assert_allclose(returns_along(cumulants, gammas)[0], want, rtol=1e-12)


def test_a_return_ends_before_a_missing_reading_of_its_channel() -> None:
    """Of readings 9, 2, none, 4, 8 at gamma 1/2: 2 from the first row with a share of 1/2, then none, 4 + 8/2, 8.

    The other column has all readings: 1, 1/2 + 1, ... of ones.
    """
    readings = np.array([[9.0, 1.0], [2.0, 1.0], [np.nan, 1.0], [4.0, 1.0], [8.0, 1.0]])
    follows = np.array([True, True, True, True, False])
    ends = unmeasured(np.zeros(5, dtype=bool), np.full((5, 2), 100.0))
    measured = measured_along(readings, 0.5, are_read_next(follows, readings), ends)
    assert measured.terms[:, 0].tolist() == [2.0, 0.0, 8.0, 8.0, 0.0]
    assert measured.share[:, 0].tolist() == [0.5, 1.0, 0.25, 0.5, 1.0]
    assert measured.beyond(0)[:, 0].tolist() == [50.0, 100.0, 25.0, 50.0, 100.0]
    assert measured.terms[:, 1].tolist() == [1.875, 1.75, 1.5, 1.0, 0.0]


def test_remaining_questions_keep_their_discount() -> None:
    """With gammas 1/2 and 1/4 the second remains after one term: 1 + 1/4, and not 1 + 1/2."""
    excursion = forwards(np.ones((1, 2)), np.array([0.5, 0.25]))
    excursion.rearrange(np.array([-1, 0]))
    excursion.observe(np.ones(2))
    assert excursion.returns.tolist() == [1.25]


def policy_under_test(gamma: tuple[float, ...] = (0.0, 0.25)) -> PolicyUnderTest:
    n = len(gamma)
    return PolicyUnderTest(0, np.arange(n), np.zeros(n, dtype=np.int64), np.array(gamma))


def excursion_of(
    rewards: list[float], predictions: list[float], gamma: tuple[float, ...] = (0.0, 0.25)
) -> TestExcursion:
    test = TestExcursion(
        policy_under_test(gamma), np.array(predictions), step=0, horizon=len(rewards)
    )
    for reward in rewards:
        test.observe(np.array([reward], dtype=np.float32))
    return test


def test_the_golden_returns_and_nmsre() -> None:
    """Six questions, 40 tests, 51 terms, tau 10. The return of question 4 is constant, so its NMSRE is exactly 1.

    After the last excursion the online NMSRE, with the variance so far, equals the two-pass one.
    """
    golden = reference("misc_golden.npz")
    of_six = policy_under_test((0.0,) * 6)
    returns = golden["nm_returns"].T
    predictions = golden["nm_pred"].T
    rewards = np.moveaxis(golden["nm_rewards"], 2, 0).swapaxes(1, 2)[:51]
    test_returns = [
        forwards(of_test, golden["nm_gamma"]).returns for of_test in rewards.swapaxes(0, 1)
    ]
    np.testing.assert_allclose(test_returns, returns, rtol=1e-12)
    curve = nmsre_after_each(Outcomes(of_six, np.arange(40), predictions, returns))
    np.testing.assert_allclose(curve, golden["nm_first_tau10"].T, rtol=1e-10)
    assert (curve[:, 4] == 1.0).all()
    online = ReturnErrors([of_six], 6)
    for k, (p, g) in enumerate(zip(predictions, returns, strict=True)):
        test = TestExcursion(of_six, p, step=k, horizon=1)
        test.observe(np.zeros(1))
        test.returns = g
        online.add(test)
        assert np.isnan(online.latest_mean) == (k == 0)
    np.testing.assert_allclose(online.online(), curve[-1], rtol=1e-9)
    np.testing.assert_allclose(online.nmsre(), curve[-1], rtol=1e-9)
    assert online.latest_mean == np.mean(online.online())


def test_returns_with_a_small_variance_are_not_constant() -> None:
    """A magnetometer's returns have a variance of some 1e-6: an error of 4e-6 is four of them, and no score of 1.

    Returns 0, 1e-5, 0, 1e-5 have a variance of 2.5e-11; predictions of 0 leave a trace of 0, .1,
    .09, .181 x 1e-10.
    """
    assert normalise(np.array([5.0, 5.0]), np.array([1e-13, 2.0])).tolist() == [1.0, 2.5], (
        "the first is constant"
    )
    assert normalise(np.array([4e-6, 4e-6]), np.array([1e-6, 2e-12])).tolist() == [4.0, 2e6]
    errors = ReturnErrors([policy_under_test((0.0,))], n_demons=1)
    for k in range(4):
        errors.add(excursion_of([1e-5 * (k % 2)], [0.0], (0.0,)))
    assert errors.nmsre()[0] == pytest.approx(0.724)
    assert errors.latest_mean == pytest.approx(errors.nmsre()[0])


@pytest.mark.parametrize(
    ("returns", "predicted", "n_tests", "scores"),
    [
        ([0.0, 2.0], [1.0, 1.0], [2, 2, 0], [1.0, 0.0, np.nan]),  # errors 1, 1 at a variance of 1
        # No variance yet: 1 would say that returns do not vary
        ([3.0], [1.0], [1, 1, 0], [np.nan] * 3),
        ([3.0, 5.0], [1.0, 1.0], [2, 2, 0], [4.0 + (16.0 - 4.0) / 10.0, 0.0, np.nan]),
        # NaN is no prediction to test
        ([0.0, 7.0, 2.0], [1.0, np.nan, 1.0], [2, 3, 0], [1.0, 0.0, np.nan]),
    ],
)
def test_nmsre_by_hand(
    returns: list[float], predicted: list[float], n_tests: list[int], scores: list[float]
) -> None:
    """Gamma 0. The second demon predicts each return; the third is never tested and has no NMSRE."""
    errors = ReturnErrors([policy_under_test((0.0, 0.0))], n_demons=3)
    for g, prediction in zip(returns, predicted, strict=True):
        errors.add(excursion_of([g], [prediction, g], (0.0, 0.0)))
    assert errors.n_tests.tolist() == n_tests
    np.testing.assert_array_equal(errors.nmsre(), scores)
    np.testing.assert_array_equal(errors.latest_mean, np.mean(scores[:2]))
    (course,) = policy_scores(errors.table)
    assert np.isnan(course.variance).tolist() == [n < 2 for n in n_tests[:2]]
    np.testing.assert_array_equal(course.variance, errors.online_variance()[:2])


def test_persistence_is_scored_on_the_same_tests_and_the_mean_where_no_channel_is_summed() -> None:
    """Gamma 1/4 and two terms, of a channel and of the reward, which is the same reading.

    "The present reading lasts" predicts x / (3/4), less 1/16 of what it then predicts of the rest.
    The mean return mu takes 1/16 of itself off, or nothing if the episode ends.
    """
    gamma = 0.25
    action = ConstantAction(0, 3)
    questions = [GVF("x", action, Channel(0), gamma), GVF("reward", action, Reward(), gamma)]
    (policy,) = policies_under_test(questions)
    errors = ReturnErrors([policy], n_demons=2)
    readings = np.array([[1.0, 2.0, 4.0], [3.0, 0.0, 1.0], [2.0, 5.0, 3.0], [0.0, 1.0, 2.0]])
    for step, (first, second, third) in enumerate(readings):
        test = TestExcursion(policy, np.zeros(2), step, horizon=2, first=np.array([first]))
        test.observe(np.array([second]), reward=second)
        test.observe(np.array([third]), reward=third, terminated=step == 3)
        errors.add(test)
    terms = readings[:, 1] + gamma * readings[:, 2]
    share = np.array([1 / 16, 1 / 16, 1 / 16, 0.0])
    mean = terms.mean() / (1.0 - share.mean())
    variance = (terms + share * mean).var()
    predicted = (
        (readings[:, 0] - share * readings[:, 2]) / (1.0 - gamma),
        mean * (1.0 - share),
    )
    (scores,) = policy_scores(errors.table)
    for i, prediction in enumerate(predicted):
        trace = 0.0
        for k, error in enumerate((prediction - terms) ** 2):
            trace += (error - trace) / (10.0 if k else 1.0)
        assert scores.last_persistence_nmsre()[i] == pytest.approx(trace / variance)
    np.testing.assert_allclose(scores.variance, variance)


def online_means(errors: ReturnErrors) -> np.ndarray:
    return np.concatenate([rows["online"] for rows in errors.table])


def test_excursions_that_wait_for_disk_space_are_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three are written, then none, then all: the scores are those without a file."""
    rng = np.random.default_rng(4)
    takes = True

    def append_to(path: Path, data: bytes, size: int) -> None:
        if not takes:
            raise RecordLost(28, "No space left on device", str(path))
        append(path, data, size)

    append = excursion_table.append_to
    monkeypatch.setattr(excursion_table, "append_to", append_to)
    recorded, alone = (ReturnErrors([policy_under_test()], n_demons=2) for _ in "12")
    recorded.table.record_to(tmp_path / "excursions.rec")
    for k in range(10):
        takes = k < 3
        test = excursion_of(rng.random(3).tolist(), rng.random(2).tolist())
        for errors in (recorded, alone):
            errors.add(test)
    assert len(ExcursionTable.read(tmp_path / "excursions.rec").outcomes()[0].step) == 3
    assert recorded.nmsre().tolist() == alone.nmsre().tolist()
    with pytest.raises(RecordLost, match="No space left"):
        recorded.rearrange(np.array([0]), [])
    takes = True
    recorded.table.close()
    assert len(ExcursionTable.read(tmp_path / "excursions.rec").outcomes()[0].step) == 10
    assert recorded.nmsre().tolist() == alone.nmsre().tolist()
    assert online_means(recorded).tobytes() == online_means(alone).tobytes()


def test_a_diverged_demon_is_left_out_of_the_online_mean() -> None:
    errors = ReturnErrors([policy_under_test((0.0, 0.0))], n_demons=2)
    for reward in (0.0, 2.0):
        errors.add(excursion_of([reward], [np.nan, reward], (0.0, 0.0)), diverged=[0])

    assert errors.latest_mean == 0.0


N = 500
ONLINE = np.random.default_rng(1).standard_normal(N).tolist()
POLICIES = [
    PolicyUnderTest(0, np.array([0, 1, 2]), np.array([0, 0, 1]), np.array([0.0, 0.5, 0.5]), "left"),
    PolicyUnderTest(1, np.array([3, 4]), np.array([0, 1]), np.array([0.5, 0.5]), "right"),
]


def fill(table: ExcursionTable, first: int = 0, n: int = N) -> None:
    """Append excursions of two policies; demon 1 is first tested in the fifth, demon 4 never; returns lie far off 0.

    Of N excursions append `n` from number `first` on; what the present reading says is unknown in
    every third.

    A variance by the mean of squares less the square of the mean would be wrong in its third digit.
    """
    rng = np.random.default_rng(0)
    n_left = 0
    for step, (k, online) in enumerate(zip(rng.integers(0, 2, N).tolist(), ONLINE, strict=True)):
        n_left += k == 0
        if k:
            demons = np.array([3])
        else:
            demons = np.array([0, 1, 2] if n_left > 4 else [0, 2])
        returns = 1e6 + rng.standard_normal(len(demons))
        predictions = returns + rng.standard_normal(len(demons)) * 0.5
        values = {
            "prediction": predictions,
            "return": returns,
            "remainder": np.zeros(len(demons)),
            "share": np.zeros(len(demons)),
            "persistence": np.where(step % 3, returns - 1.0, np.nan),
        }
        if first <= step < first + n:
            table.append(POLICIES[k].name, 7 * step, online, demons, values)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> ExcursionTable:
    """A table that is read in chunks of seven."""
    monkeypatch.setattr(excursion_table, "CHUNK_BYTES", 7 * (36 * 3 + 16))
    table = ExcursionTable(POLICIES, 5)
    fill(table)
    return table


@pytest.mark.parametrize(("n_before", "rank"), [(19, 19), (38, 19), (39, 38), (90, 38)])
def test_a_band_reaches_to_the_95th_percentile_of_the_errors_with_the_next_one_counted(
    n_before: int, rank: int
) -> None:
    """The largest of the last 19 errors, and the 38th of the last 39; the 0.95 n-th of them is smaller."""
    rng = np.random.default_rng(2)
    errors = rng.standard_normal((n_before, 1))
    bands = Bands(2)
    bands.add(errors, np.array([1]))
    n_latest = 39
    if n_before < 39:
        n_latest = 19
    expected = np.sort(np.abs(errors[-n_latest:, 0]))[rank - 1]
    np.testing.assert_array_equal(bands.half_widths(), [np.nan, expected])


def test_bands_hold_95_percent_of_the_returns_whatever_the_distribution_of_the_errors() -> None:
    """The standard error of 40 x 1,000 returns is 0.001, some more as bands share errors; the 0.95 n-th holds 0.93."""
    rng = np.random.default_rng(0)
    bands = Bands(40)
    bands.add(rng.standard_cauchy((1_000, 40)), np.arange(40))
    assert bands.n_tested.tolist() == [1_000 - 19] * 40
    share = bands.n_inside.sum() / bands.n_tested.sum()
    assert share == pytest.approx(0.95, abs=0.005)


def test_no_more_than_a_batch_is_held_at_a_time(small: ExcursionTable) -> None:
    assert {len(rows) for rows in small} == {7, N % 7}


def test_scores_in_chunks_equal_scores_of_all_excursions(small: ExcursionTable) -> None:
    outcomes = small.outcomes()
    for course, outcome in zip(policy_scores(small), outcomes, strict=True):
        np.testing.assert_array_equal(course.step, outcome.step)
        np.testing.assert_allclose(course.variance, scores_of(outcome).variance, rtol=1e-9)
        np.testing.assert_array_equal(course.n_tests, (~np.isnan(outcome.returns)).sum(axis=0))
    np.testing.assert_allclose(
        final_nmsre(policy_scores(small), 5), final_nmsre(map(scores_of, outcomes), 5), rtol=1e-9
    )
    assert np.isnan(final_nmsre(policy_scores(small), 5)[4]), "it was never tested"


def test_scores_do_not_depend_on_the_files(small: ExcursionTable, tmp_path: Path) -> None:
    """To the bit: after a resume, some excursions may still wait for disk space in memory."""
    recorded = ExcursionTable(POLICIES, 5)
    recorded.record_to(tmp_path / "x.rec")
    fill(recorded)
    theirs = final_nmsre(policy_scores(ExcursionTable.read(tmp_path / "x.rec")), 5)
    assert final_nmsre(policy_scores(small), 5).tobytes() == theirs.tobytes()


def test_excursions_are_yielded_in_order_with_the_nmsre_after_each(small: ExcursionTable) -> None:
    expected = [nmsre_after_each(outcome) for outcome in small.outcomes()]
    counts = [0, 0]
    for point in nmsre_along(small, policy_scores(small)):
        k = point.scores.number
        demons = POLICIES[k].demons
        np.testing.assert_allclose(point.nmsre[demons], expected[k][counts[k]], rtol=1e-9)
        counts[k] += 1
        assert [point.n_excursions[k], point.number + 1] == [counts[k], sum(counts)]
        assert (point.step, point.online) == (7 * point.number, ONLINE[point.number])
    assert sum(counts) == N


def test_a_long_curve_is_thinned_to_what_a_picture_shows(
    small: ExcursionTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both policies at the same numbers of excursions, so that a mean over all can be drawn; and each one's last."""
    monkeypatch.setattr(two_pass_nmsre, "MOST_POINTS", 20)
    outcomes = small.outcomes()
    pictured = curves(small, policy_scores(small))
    for curve, outcome in zip(pictured, outcomes, strict=True):
        assert len(curve.at) <= 21
        assert (curve.at[0], curve.at[-1]) == (1, len(outcome.step))
        np.testing.assert_allclose(curve.nmsre, nmsre_after_each(outcome)[curve.at - 1], rtol=1e-9)
    shorter, longer = sorted(pictured, key=lambda curve: int(curve.at[-1]))
    assert set(shorter.at[:-1]) <= set(longer.at)


def test_dots_are_some_of_the_second_half(
    small: ExcursionTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_pass_nmsre, "MOST_DOTS", 9)
    outcome = small.outcomes()[0]
    ((k, (predictions, returns)),) = dots(
        small, policy_scores(small), {0: np.array([2, 0])}
    ).items()
    n = len(outcome.step)
    rows = np.unique(np.linspace(n // 2, n - 1, 9).round().astype(int))
    assert k == 0
    np.testing.assert_array_equal(predictions, outcome.predictions[rows][:, [2, 0]])
    np.testing.assert_array_equal(returns, outcome.returns[rows][:, [2, 0]])


# ---- folded excursions -----------------------------------------------------------------------------------------------


@pytest.fixture
def blocks_of_32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file have 32 excursions, and the curve of the newest block a point for every fourth."""
    monkeypatch.setattr(excursion_table, "BLOCK", 32)
    monkeypatch.setattr(two_pass_nmsre, "EVERY", 4)


def facts_of(table: ExcursionTable) -> dict[str, object]:
    """Return all that tables, report and comparisons say of a table of excursions, as text: NaN equals itself."""
    scores = policy_scores(table)
    facts = {
        one.policy.name: [
            one.n_excursions,
            one.n_tests.tolist(),
            one.variance.tolist(),
            one.last_nmsre().tolist(),
            one.last_persistence_nmsre().tolist(),
            one.step.tolist(),
        ]
        for one in scores
    }
    facts["curve"] = [
        [point.number, point.step, point.scores.number, point.online, point.nmsre.tolist()]
        for point in nmsre_along(table, scores)
    ]
    facts["pictures"] = [
        [curve.at.tolist(), curve.nmsre.tolist()] for curve in curves(table, scores)
    ]
    columns = {one.number: np.arange(len(one.policy.demons)) for one in scores}
    facts["dots"] = [[of.tolist() for of in both] for both in dots(table, scores, columns).values()]
    bands = bands_of(table)
    facts["bands"] = [
        bands.half_widths().tolist(),
        bands.n_inside.tolist(),
        bands.n_tested.tolist(),
    ]
    names = [f"{demon}" for demon in range(table.n_demons)]
    facts["newest"] = [
        [one.step.tolist(), one.squares.tolist(), one.variance.tolist(), one.is_whole]
        for one in newest_tests(table, names, names).values()
    ]
    return {name: str(fact) for name, fact in facts.items()}


def values_at_random(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    """Return the values of an excursion of n demons, far off 0, with up to 1 % of the return beyond it."""
    values = dict(zip(VALUES, 1e4 + rng.standard_normal((5, n)), strict=True))
    values["share"] = 0.01 * rng.random(n)
    return values


def fold_all(path: Path, n: int) -> None:
    """Fold what may be folded of a table with `n` excursions."""
    old = foldable(path, n, step=10**9)
    if old is not None:
        fold(path, old)


def test_a_curve_has_fewer_points_of_older_blocks(blocks_of_32: None) -> None:
    """Of 500 excursions the newest 52 are whole; before, 8 points of 32, 8 of the 64 before, 8 of 128, and 7 of 224."""
    table = ExcursionTable(POLICIES, 5)
    fill(table)
    numbers = [point.number for point in nmsre_along(table, policy_scores(table))]
    expected = [j for j in range(1, 225) if j % 32 == 0]
    expected += [j for j in range(225, 353) if j % 16 == 0]
    expected += [j for j in range(353, 417) if j % 8 == 0]
    expected += [j for j in range(417, 449) if j % 4 == 0]
    expected += range(449, 501)
    assert [number + 1 for number in numbers] == expected
    scores = policy_scores(table)
    after_each = [nmsre_after_each(outcome) for outcome in table.outcomes()]
    for point in nmsre_along(table, scores):
        for k, n_excursions in point.n_excursions.items():
            np.testing.assert_allclose(
                point.nmsre[POLICIES[k].demons], after_each[k][n_excursions - 1], rtol=1e-9
            )
    for one, outcome in zip(scores, table.outcomes(), strict=True):
        assert one.n_excursions == len(outcome.step)
        reference = scores_of(outcome)
        np.testing.assert_allclose(one.variance, reference.variance, rtol=1e-9)
        np.testing.assert_allclose(one.last_nmsre(), reference.last_nmsre(), rtol=1e-9)


def test_a_policy_that_is_not_tested_any_more_keeps_its_scores(blocks_of_32: None) -> None:
    """Of its 63 excursions all are of the past after 64 more of another policy; a few of them have no return."""
    alone = ExcursionTable(POLICIES, 5)
    both = ExcursionTable(POLICIES, 5)
    rng = np.random.default_rng(7)
    for step in range(128):
        policy = POLICIES[step // 64]
        values = values_at_random(rng, len(policy.demons))
        if step % 9 == 0:
            values["return"][0] = np.nan
        for table in (alone, both):
            if step < 63 or (step > 63 and table is both):
                table.append(policy.name, step, 0.5, policy.demons, values)
    for one, other in zip(policy_scores(alone), policy_scores(both), strict=False):
        assert one.n_excursions == other.n_excursions == 63
        for method in ("last_nmsre", "last_persistence_nmsre"):
            np.testing.assert_allclose(getattr(one, method)(), getattr(other, method)())
        assert not np.isnan(other.last_persistence_nmsre()[1:]).any()


def test_a_table_of_less_than_two_blocks_has_all_points(blocks_of_32: None) -> None:
    table = ExcursionTable(POLICIES, 5)
    fill(table, n=63)
    numbers = [point.number for point in nmsre_along(table, policy_scores(table))]
    assert numbers == list(range(63))


def test_scores_of_folded_excursions_have_the_bits_of_the_whole(
    blocks_of_32: None, tmp_path: Path
) -> None:
    """Folded again and again; with damage, too. Of 500 excursions the files have the newest 52."""
    paths = [tmp_path / "whole.rec", tmp_path / "kept.rec"]
    tables = []
    for path in paths:
        table = ExcursionTable(POLICIES, 5)
        table.record_to(path)
        tables.append(table)
    for first in range(0, N, 50):
        for table in tables:
            fill(table, first, 50)
        fold_all(paths[1], first + 50)
        assert facts_of(tables[0]) == facts_of(tables[1])
        assert facts_of(ExcursionTable.read(paths[0])) == facts_of(ExcursionTable.read(paths[1]))
    assert [len(record_files(path)) for path in paths] == [16, 2]
    assert sum(len(rows) for rows in ExcursionTable.read(paths[1])) == 52
    for path in paths:
        newest = record_files(path)[-1]
        flip(newest, newest.stat().st_size - 300)
    assert facts_of(ExcursionTable.read(paths[0])) == facts_of(ExcursionTable.read(paths[1]))


def test_folded_excursions_keep_their_scores_when_demons_come_and_go(
    blocks_of_32: None, tmp_path: Path
) -> None:
    """Demon 0 goes and a third policy comes after 300 of 500 excursions, with 256 folded; then a policy goes."""
    paths = [tmp_path / "whole.rec", tmp_path / "kept.rec"]
    tables = []
    later = PolicyUnderTest(2, np.array([4]), np.array([0]), np.array([0.5]), "up")
    present = [
        POLICIES[0]._replace(demons=np.array([0, 1]), channel=np.array([0, 1]), gamma=np.ones(2)),
        POLICIES[1]._replace(demons=np.array([2, 3])),
        later,
    ]
    for path in paths:
        table = ExcursionTable(POLICIES, 5)
        table.record_to(path)
        tables.append(table)
        fill(table, 0, 300)
        if path == paths[1]:
            fold_all(path, 300)
        table.rearrange(np.array([1, 2, 3, 4, -1]), present)
        rng = np.random.default_rng(5)
        for step in range(200):
            policy = present[step % 3]
            values = values_at_random(rng, len(policy.demons))
            table.append(policy.name, 7 * (300 + step), 0.5, policy.demons, values)
            if path == paths[1] and step % 40 == 0:
                fold_all(path, 301 + step)
    assert facts_of(tables[0]) == facts_of(tables[1])
    assert len(record_files(paths[1])) < 5
    for table in tables:
        table.rearrange(
            np.array([2, 3, 4]),
            [
                POLICIES[1]._replace(demons=np.array([0, 1])),
                later._replace(demons=np.array([2])),
            ],
        )
    assert facts_of(tables[0]) == facts_of(tables[1])
    assert facts_of(ExcursionTable.read(paths[0])) == facts_of(ExcursionTable.read(paths[1]))


def test_a_folded_question_keeps_its_scores_when_another_one_is_added(
    blocks_of_32: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy sums 16 numbers of one column alone in another order than one of several."""
    monkeypatch.setattr(two_pass_nmsre, "EVERY", 16)
    paths = [tmp_path / "whole.rec", tmp_path / "kept.rec"]
    one = PolicyUnderTest(0, np.array([0]), np.array([0]), np.array([0.5]), "left")
    two = one._replace(demons=np.array([0, 1]), channel=np.zeros(2), gamma=np.ones(2))
    tables = []
    for path in paths:
        table = ExcursionTable([one], 1)
        table.record_to(path)
        rng = np.random.default_rng(6)
        for step in range(100):
            values = values_at_random(rng, 1)
            table.append("left", step, 0.5, np.array([0]), values)
        if path == paths[1]:
            fold_all(path, 100)
            assert len(record_files(path)) == 2
        table.rearrange(np.array([0, -1]), [two])
        tables.append(table)
    assert facts_of(tables[0]) == facts_of(tables[1])


@pytest.mark.parametrize("at", ["before", "written", "half"])
def test_a_kill_while_excursions_are_folded_leaves_their_scores(
    at: str, blocks_of_32: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk nothing changes; once the rest is written, files may be left, and go with the next ones."""
    table = ExcursionTable(POLICIES, 5)
    path = tmp_path / "x.rec"
    table.record_to(path)
    fill(table, 0, 200)
    fold_all(path, 100)
    facts = facts_of(table)

    def full(place: Path, *_arguments: object) -> dict[str, object]:
        raise OSError(28, "No space left on device", str(place))

    def killed(path: Path, _n_parts: int) -> None:
        if at == "half":
            record_files(path)[0].unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if at == "before":
            patch.setattr(snapshots, "write_file", full)
        else:
            patch.setattr(folding, "remove_folded", killed)
        with pytest.raises((RecordLost, KeyboardInterrupt)):
            fold_all(path, 200)
    assert facts_of(ExcursionTable.read(path)) == facts_of(table) == facts
    n_left = {"before": 5, "written": 5, "half": 4}[at]
    assert len(record_files(path)) == n_left
    fold_all(path, 200)
    assert len(record_files(path)) == 2
    assert facts_of(ExcursionTable.read(path)) == facts_of(table) == facts


def test_excursions_that_a_resume_may_take_back_stay(blocks_of_32: None, tmp_path: Path) -> None:
    """A block before those, and what began after a step: of 200 excursions 96 would go, and 64 before step 7 x 90."""
    table = ExcursionTable(POLICIES, 5)
    path = tmp_path / "x.rec"
    table.record_to(path)
    fill(table, 0, 200)
    assert foldable(path, 31, step=10**9) is None
    assert foldable(path, 63, step=10**9) is None
    assert foldable(path, 64, step=10**9) == (1, 32)
    assert foldable(path, 159, step=10**9) == (3, 96)
    assert foldable(path, 159, step=7 * 90) == (2, 64)
    assert foldable(path, 159, step=7 * 64) == (2, 64)
    assert foldable(path, 159, step=7 * 64 - 1) == (1, 32)
