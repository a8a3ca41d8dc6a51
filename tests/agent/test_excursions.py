"""When excursions begin and end, what they measure, and how that is scored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from horde_agent.excursions import (
    ExcursionConfig,
    Excursions,
    PolicyUnderTest,
    TestExcursion,
    policies_under_test,
)
from horde_agent.gvf import GVF, Channel, Feature
from horde_agent.nmsre import ReturnErrors, error_trace, normalise, read_excursions
from horde_agent.policies import Behaviour, StickyRandom, Uniform
from horde_agent.record import NO_ACTION, Phase
from tests.agent.doubles import constant, toy_questions


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


# ---- the state machine ----------------------------------------------------------------------------------------------


def test_an_excursion_is_exactly_horizon_steps_and_then_a_drive() -> None:
    machine = Excursions([0, 1, 2], ExcursionConfig(probability=1.0, horizon=50))
    behaviour, rng = StickyRandom(3), np.random.default_rng(0)

    choices = [machine.choose(behaviour, rng, broken=False) for _ in range(51)]

    assert [choice.phase for choice in choices] == [Phase.EXCURSION] * 50 + [Phase.CENTRE]
    assert len({choice.action for choice in choices[:50]}) == 1
    assert choices[50].action == NO_ACTION


def test_interruptions_come_before_one_behaviour_action_in_fifty_and_choose_policies_evenly() -> None:
    """Binomial bounds of four standard deviations: 20,000 chances at 1/50, then five policies at 1/5."""
    machine = Excursions(range(5))
    behaviour, rng = StickyRandom(5), np.random.default_rng(1)
    counts, n_begun, n_chances = np.zeros(5), 0, 20_000
    for _ in range(n_chances):
        choice = machine.choose(behaviour, rng, broken=False)
        if choice.phase is Phase.EXCURSION:
            counts[choice.action] += 1
            n_begun += 1
            machine.cancel()

    assert abs(n_begun - n_chances / 50) < 4 * np.sqrt(n_chances * 0.02 * 0.98)
    assert (np.abs(counts - n_begun / 5) < 4 * np.sqrt(n_begun * 0.2 * 0.8)).all()


def test_a_broken_step_ends_an_excursion_at_once() -> None:
    machine = Excursions([1], ExcursionConfig(probability=1.0))
    behaviour, rng = StickyRandom(3), np.random.default_rng(0)
    machine.choose(behaviour, rng, broken=False)

    assert machine.choose(behaviour, rng, broken=True).phase is Phase.CENTRE


def test_b_is_a_fresh_fifth_after_a_break_and_sticky_else() -> None:
    """Five actions, repeat 0.5: 0.2 without a last action, then 0.6 for the last action and 0.1 for the others."""
    machine = Excursions([], None)
    behaviour, rng = StickyRandom(5), np.random.default_rng(2)
    last = None
    for k in range(400):
        broken = k % 10 == 0
        choice = machine.choose(behaviour, rng, broken=broken)
        expected = 0.2 if broken else (0.6 if choice.action == last else 0.1)
        assert choice.b == pytest.approx(expected, abs=1e-12)
        last = choice.action


def test_without_policies_to_test_the_behaviour_alone_draws() -> None:
    machine, behaviour, rng = Excursions([]), StickyRandom(3), np.random.default_rng(3)
    alone, its_rng = StickyRandom(3), np.random.default_rng(3)

    assert [machine.choose(behaviour, rng, broken=False)[1:] for _ in range(100)] == [
        alone.draw(its_rng) for _ in range(100)
    ]


@pytest.mark.parametrize("settings", [{"probability": 1.5}, {"probability": -0.1}, {"horizon": 0}])
def test_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"excursion (probability|horizon) must"):
        ExcursionConfig(**settings)  # type: ignore[arg-type]


# ---- what can be tested, and the return ------------------------------------------------------------------------------


def test_only_constant_actions_with_known_returns_are_tested_in_the_order_of_the_questions() -> None:
    questions = [
        GVF("b", constant(2), Channel(1), 0.5),
        GVF("behaviour", Behaviour(), Channel(0), 0.5),
        GVF("uniform", Uniform(3), Channel(0), 0.5),
        GVF("feature", constant(2), Feature(0), 0.5),
        GVF("outcome", constant(2), Channel(0), 0.5, outcome=1.0),
        GVF("varying", constant(2), Channel(0), lambda *_: 0.5),
        GVF("a", constant(0), Channel(2), 0.8),
        GVF("c", constant(2), Channel(0), 0.0),
    ]
    policies = policies_under_test(questions)

    assert [policy.action for policy in policies] == [2, 0]
    assert policies[0].demons.tolist() == [0, 7]
    assert policies[0].channel.tolist() == [1, 0]
    assert policies[0].gamma.tolist() == [0.5, 0.0]


def test_the_paper_tests_159_demons_per_policy() -> None:
    assert [len(policy.demons) for policy in policies_under_test(toy_questions())] == [6, 6, 6]


def test_the_return_is_the_discounted_sum_of_what_follows_the_first_observation() -> None:
    """Rewards 1, 2, 3: gamma 0 sees 1; gamma .5 sees 1 + 1 + .75 = 2.75."""
    test = excursion_of([1.0, 2.0, 3.0], [0.0, 0.0])

    assert test.is_complete
    assert test.returns.tolist() == [1.0, 2.75]


def test_predictions_are_those_of_the_first_observation_whatever_becomes_of_the_array() -> None:
    predictions = np.array([1.0, 2.0])
    test = TestExcursion(policy_under_test(), predictions, step=0, horizon=1)
    predictions[:] = 9.0

    assert test.predictions.tolist() == [1.0, 2.0]


# ---- NMSRE -----------------------------------------------------------------------------------------------------------


def test_the_error_trace_starts_at_the_first_error_and_has_tau_ten() -> None:
    """Errors 1, 4, 0: 1; 1 + 3/10 = 1.3; 1.3 - .13 = 1.17. From zero it would begin at .1."""
    assert error_trace(np.array([[1.0], [4.0], [0.0]])).ravel() == pytest.approx([1.0, 1.3, 1.17])


def test_a_question_whose_returns_do_not_vary_scores_exactly_one() -> None:
    assert normalise(np.array([5.0, 5.0]), np.array([1e-13, 2.0])).tolist() == [1.0, 2.5]


def test_nmsre_by_hand() -> None:
    """Gamma 0; returns 0 and 2 (variance 1), predictions 1 and 1: errors 1, 1, NMSRE 1; the other question is right."""
    errors = ReturnErrors([policy_under_test(gamma=(0.0, 0.0))], n_demons=3)
    errors.add(excursion_of([0.0], [1.0, 0.0], (0.0, 0.0)))
    errors.add(excursion_of([2.0], [1.0, 2.0], (0.0, 0.0)))

    assert errors.nmsre()[:2].tolist() == [1.0, 0.0]
    assert np.isnan(errors.nmsre()[2]), "a demon that no excursion tests has no NMSRE"
    assert errors.n_tests.tolist() == [2, 2, 0]


def test_always_predicting_the_mean_return_scores_about_one() -> None:
    rng = np.random.default_rng(0)
    errors = ReturnErrors([policy_under_test(gamma=(0.0,))], n_demons=1)
    returns = rng.permutation(np.repeat([-1.0, 1.0], 50))
    for g in returns:
        errors.add(excursion_of([g], [0.0], (0.0,)))

    assert errors.nmsre().tolist() == [1.0]


def test_online_and_two_pass_nmsre_agree_once_all_is_seen() -> None:
    """The online variance is that of the returns so far: after the last one it is that of all of them."""
    rng = np.random.default_rng(4)
    errors = ReturnErrors([policy_under_test()], n_demons=2)
    for _ in range(30):
        errors.add(excursion_of(rng.random(3).tolist(), rng.random(2).tolist()))

    assert np.isnan(errors.online_means[0]), "one excursion has no variance"
    assert errors.online_means[-1] == pytest.approx(float(errors.nmsre().mean()), rel=1e-9)


def test_a_demon_set_aside_is_left_out_of_the_online_mean() -> None:
    errors = ReturnErrors([policy_under_test(gamma=(0.0, 0.0))], n_demons=2)
    for reward in (0.0, 2.0):
        errors.add(excursion_of([reward], [np.nan, reward], (0.0, 0.0)), diverged=[0])

    assert errors.online_means[-1] == 0.0


def test_recorded_excursions_read_back_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    path = tmp_path / "excursions.rec"
    errors = ReturnErrors([policy_under_test(2, (0.0, 0.5, 0.8)), policy_under_test(0, (0.5,))], n_demons=4)
    errors.record_to(path)
    for k in range(6):
        policy = errors.policies[k % 2]
        test = TestExcursion(policy, rng.random(4), step=10 * k, horizon=1)
        test.observe(rng.random(1).astype(np.float32))
        errors.add(test)

    outcomes, n_demons = read_excursions(path)

    assert n_demons == 4
    for mine, read in zip(errors.outcomes(), outcomes, strict=True):
        assert read.policy.action == mine.policy.action
        np.testing.assert_array_equal(read.step, mine.step)
        np.testing.assert_array_equal(read.predictions, mine.predictions)
        np.testing.assert_array_equal(read.returns, mine.returns)
