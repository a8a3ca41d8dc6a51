"""When excursions begin, which policies they test, and the scores of their returns."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from horde_agent.gvf import GVF, Channel, Feature, Prediction
from horde_agent.interface import Interface
from horde_agent.learning.values import identity
from horde_agent.life.excursions import Excursions
from horde_agent.measures import excursion_table
from horde_agent.measures.excursion_table import ExcursionTable
from horde_agent.measures.nmsre import error_trace, normalise, variance_of
from horde_agent.measures.return_errors import ReturnErrors
from horde_agent.measures.returns import PolicyUnderTest, TestExcursion, policies_under_test
from horde_agent.policies import Behaviour, ConstantAction, StickyRandom, Uniform
from horde_agent.questions import policies
from horde_agent.record import NO_ACTION, Phase, RecordLost
from tests.agent.doubles import ToyBody, constant


def policy_under_test(action: int = 0, gamma: tuple[float, ...] = (0.0, 0.5)) -> PolicyUnderTest:
    n = len(gamma)
    return PolicyUnderTest(action, np.arange(n), np.zeros(n, dtype=np.int64), np.array(gamma))


def excursion_of(
    rewards: list[float], predictions: list[float], gamma: tuple[float, ...] = (0.0, 0.5)
) -> TestExcursion:
    test = TestExcursion(policy_under_test(gamma=gamma), np.array(predictions), step=0, horizon=len(rewards))
    for reward in rewards:
        test.observe(np.array([reward], dtype=np.float32))
    return test


SEEN, TILES = np.zeros(1), np.zeros(1, dtype=np.int64)
"""A state, for policies that ignore it."""


def under_test(actions: Iterable[int], n_actions: int = 5) -> list[PolicyUnderTest]:
    return policies_under_test([GVF(f"{a}", ConstantAction(a, n_actions), Channel(0), 0.5) for a in actions])


# ---- the state machine ----------------------------------------------------------------------------------------------


def test_interruptions_come_before_one_behaviour_action_in_fifty_and_choose_policies_evenly() -> None:
    """Binomial bounds of four standard deviations: 20,000 chances at 1/50, then five policies at 1/5."""
    machine = Excursions(under_test(range(5)))
    behaviour, rng = StickyRandom(5), np.random.default_rng(1)
    counts, n_begun, n_chances = np.zeros(5), 0, 20_000
    for _ in range(n_chances):
        choice = machine.choose(behaviour, rng, SEEN, TILES, broken=False)
        if choice.phase is Phase.EXCURSION:
            counts[choice.action] += 1
            n_begun += 1
            machine.cancel()

    assert abs(n_begun - n_chances / 50) < 4 * np.sqrt(n_chances * 0.02 * 0.98)
    assert (np.abs(counts - n_begun / 5) < 4 * np.sqrt(n_begun * 0.2 * 0.8)).all()


# ---- what can be tested, and the return ------------------------------------------------------------------------------


class ByBrightness:
    """Takes action 1 with the probability in channel 0."""

    n_actions = 3

    def probabilities(self, observation: np.ndarray, tiles: np.ndarray) -> np.ndarray:
        bright = float(observation[0])
        return np.array([1.0 - bright, bright, 0.0])


def test_policies_are_tested_in_the_order_of_their_questions_except_the_behaviour_and_untested_ones() -> None:
    """A return that is not a sum of a channel has channel -1 and gamma NaN, and its question is in `others`."""
    looking = ByBrightness()
    questions = [
        GVF("b", constant(2), Channel(1), 0.5),
        GVF("behaviour", Behaviour(), Channel(0), 0.5),
        GVF("even/g0.5/x", Uniform(3), Channel(0), 0.5),
        GVF("feature", constant(2), Feature(0), 0.5),
        GVF("untested", constant(1), Channel(0), 0.5, tested=False),
        GVF("outcome", constant(2), Channel(0), 0.5, outcome=1.0),
        GVF("varying", looking, Channel(0), lambda *_: 0.5),
        GVF("a", constant(0), Channel(2), 0.8),
        GVF("c", constant(2), Channel(0), 0.0),
    ]
    policies = policies_under_test(questions)

    assert [(policy.action, policy.name) for policy in policies] == [
        (2, "action 2"),
        (NO_ACTION, "even"),
        (NO_ACTION, "ByBrightness"),
        (0, "action 0"),
    ]
    assert policies[0].demons.tolist() == [0, 3, 5, 8]
    assert policies[0].channel.tolist() == [1, -1, -1, 0]
    np.testing.assert_array_equal(policies[0].gamma, [0.5, np.nan, np.nan, 0.0])
    assert [(k, question.name) for k, question in policies[0].others] == [(1, "feature"), (2, "outcome")]
    assert policies[2].target is looking
    assert [policy.label(["left", "right", "stay"]) for policy in policies] == ["stay", "even", "ByBrightness", "left"]


def test_policies_of_one_class_are_numbered_and_keep_their_names() -> None:
    """The second one is number 2, also after the first was removed."""
    first, second = ByBrightness(), ByBrightness()
    questions = [GVF("p", first, Channel(0), 0.5), GVF("q", second, Channel(0), 0.5)]
    one, two = policies_under_test(questions)
    assert (one.name, two.name) == ("ByBrightness", "ByBrightness 2")
    assert one.tag != two.tag
    assert [p.name for p in policies_under_test(questions[1:], {identity(second): two.name})] == ["ByBrightness 2"]


def test_thousands_of_random_policies_are_not_tested() -> None:
    """White, Modayil & Sutton (2012), section 6: a robot cannot follow each of a thousand policies often enough."""
    face = Interface.of(ToyBody())
    assert policies_under_test(policies(face, np.random.default_rng(0), n=5)) == []


def general_excursion(question: GVF, horizon: int = 3) -> TestExcursion:
    (policy,) = policies_under_test([question])
    return TestExcursion(policy, np.zeros(1), step=0, horizon=horizon)


def test_the_return_of_a_question_with_functions_follows_its_definition() -> None:
    """Observations (c, gamma, z) reached: (1, .5, 7), (2, .25, 8), (3, 0, 9).

    1 + .5 x 7, then .5 (2 + .75 x 8), then .125 (3 + 1 x 9): 4.5 + 4 + 1.5 = 10. With the outcome's share as gamma
    instead of 1 - gamma it is 4.5 + 2 + .375.
    """
    test = general_excursion(
        GVF("q", constant(0), lambda o, t: float(o[0]), lambda o, t: float(o[1]), outcome=lambda o, t: float(o[2]))
    )
    for observation in ([1.0, 0.5, 7.0], [2.0, 0.25, 8.0], [3.0, 0.0, 9.0]):
        test.observe(np.array(observation), TILES)
    assert test.is_complete
    assert test.returns.tolist() == [10.0]


def test_the_return_of_a_feature_or_a_prediction_sums_its_values() -> None:
    """Gamma .5; feature 3 is on at the first and third state reached: 1 + .25. Predictions 2, 4, 8: 2 + 2 + 2."""
    feature = general_excursion(GVF("q", constant(0), Feature(3), 0.5))
    prediction = general_excursion(GVF("q", constant(0), Prediction("other"), 0.5))
    asked = []
    for tiles, made in (([3, 5], 2.0), ([4, 5], 4.0), ([3, 6], 8.0)):

        def predict_one(name: str, tiles: np.ndarray, made: float = made) -> float:
            asked.append((name, tiles.tolist()))
            return made

        for test in (feature, prediction):
            test.observe(np.zeros(1), np.array(tiles), predict_one)
    assert feature.returns.tolist() == [1.25]
    assert prediction.returns.tolist() == [6.0]
    assert asked == [("other", [3, 5]), ("other", [4, 5]), ("other", [3, 6])]


def test_a_termination_completes_the_return_with_the_outcome() -> None:
    """Gamma .5, cumulant 1, outcome 4: one step with 1 + .5 x 4, then an end with .5 (1 + 4)."""
    test = general_excursion(GVF("q", constant(0), Channel(0), 0.5, outcome=4.0), horizon=50)
    test.observe(np.ones(1), TILES)
    assert not test.is_complete
    test.observe(np.ones(1), TILES, terminated=True)
    assert test.is_complete
    assert test.returns.tolist() == [3.0 + 2.5]


@pytest.mark.parametrize("nonsense", [float("nan"), -0.5, 1.5])
def test_an_invalid_continuation_leaves_its_demon_out_of_that_excursion(nonsense: float) -> None:
    """The other demon is scored, and in the next excursion both are."""
    gammas = iter([nonsense, 0.5, 0.5])
    questions = [
        GVF("odd", constant(0), Channel(0), lambda o, t: next(gammas)),
        GVF("sound", constant(0), Channel(0), 0.0),
    ]
    (policy,) = policies_under_test(questions)
    errors = ReturnErrors([policy], n_demons=2)
    for k in range(3):
        test = TestExcursion(policy, np.zeros(2), step=k, horizon=2)
        test.observe(np.ones(1), TILES)
        test.n_terms = 2
        errors.add(test)
    assert errors.n_tests.tolist() == [2, 3]
    (outcome,) = errors.table.outcomes()
    assert np.isnan(outcome.returns[:, 0]).tolist() == [True, False, False]
    assert errors.nmsre().tolist() == [1.0, 1.0], "returns of 1 that do not vary"


# ---- NMSRE -----------------------------------------------------------------------------------------------------------


def test_the_error_trace_starts_at_the_first_error_and_has_tau_ten() -> None:
    """Errors 1, 4, 0: 1; 1 + 3/10 = 1.3; 1.3 - .13 = 1.17. From zero it would begin at .1."""
    assert error_trace(np.array([[1.0], [4.0], [0.0]])).ravel() == pytest.approx([1.0, 1.3, 1.17])


def test_returns_with_a_small_variance_are_not_constant() -> None:
    """A magnetometer's returns have a variance of some 1e-6: an error of 4e-6 is four of them, and no score of 1.

    Returns 0, 1e-5, 0, 1e-5 have a variance of 2.5e-11; predictions of 0 leave a trace of 0, .1, .09, .181 x 1e-10.
    """
    assert normalise(np.array([5.0, 5.0]), np.array([1e-13, 2.0])).tolist() == [1.0, 2.5], "the first is constant"
    assert normalise(np.array([4e-6, 4e-6]), np.array([1e-6, 2e-12])).tolist() == [4.0, 2e6]
    errors = ReturnErrors([policy_under_test(gamma=(0.0,))], n_demons=1)
    for k in range(4):
        errors.add(excursion_of([1e-5 * (k % 2)], [0.0], (0.0,)))
    assert errors.nmsre()[0] == pytest.approx(0.724)
    assert errors.online_mean() == pytest.approx(errors.nmsre()[0])


def test_the_error_trace_skips_untested_excursions() -> None:
    """Errors NaN, 1, NaN, 4: trace NaN, 1, 1, 1.3. The variance ignores NaN."""
    nan = np.nan
    np.testing.assert_array_equal(error_trace(np.array([[nan], [1.0], [nan]])).ravel(), [nan, 1.0, 1.0])
    assert error_trace(np.array([[nan], [1.0], [nan], [4.0]]))[-1, 0] == pytest.approx(1.3)
    np.testing.assert_allclose(variance_of(np.array([[nan, nan], [1.0, nan], [3.0, nan]])), [1.0, nan])


@pytest.mark.parametrize(
    ("returns", "predicted", "n_tests", "scores"),
    [
        ([0.0, 2.0], [1.0, 1.0], [2, 2, 0], [1.0, 0.0, np.nan]),  # errors 1, 1 at a variance of 1
        ([3.0], [1.0], [1, 1, 0], [np.nan] * 3),  # no variance yet: 1 would say that returns do not vary
        ([3.0, 5.0], [1.0, 1.0], [2, 2, 0], [4.0 + (16.0 - 4.0) / 10.0, 0.0, np.nan]),
        ([0.0, 7.0, 2.0], [1.0, np.nan, 1.0], [2, 3, 0], [1.0, 0.0, np.nan]),  # NaN is no prediction to test
    ],
)
def test_nmsre_by_hand(returns: list[float], predicted: list[float], n_tests: list[int], scores: list[float]) -> None:
    """Gamma 0. The second demon predicts each return; the third is never tested and has no NMSRE."""
    errors = ReturnErrors([policy_under_test(gamma=(0.0, 0.0))], n_demons=3)
    for g, prediction in zip(returns, predicted, strict=True):
        errors.add(excursion_of([g], [prediction, g], (0.0, 0.0)))
    assert errors.n_tests.tolist() == n_tests
    np.testing.assert_array_equal(errors.nmsre(), scores)
    np.testing.assert_array_equal(errors.online_mean(), np.mean(scores[:2]))


def online_means(errors: ReturnErrors) -> np.ndarray:
    return np.concatenate([rows["online"] for rows in errors.table])


def test_excursions_that_wait_for_disk_space_are_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three are written, then none, then all: the scores are those without a file."""
    rng, takes = np.random.default_rng(4), True

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
    errors = ReturnErrors([policy_under_test(gamma=(0.0, 0.0))], n_demons=2)
    for reward in (0.0, 2.0):
        errors.add(excursion_of([reward], [np.nan, reward], (0.0, 0.0)), diverged=[0])

    assert errors.latest_mean == 0.0
