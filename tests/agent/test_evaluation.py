"""Values of policies from logged episodes: known answers by hand, exact values of small problems, and verdicts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from horde_agent.evaluation.doubly_robust import (
    doubly_robust,
    error_weight,
    weighted_doubly_robust,
)
from horde_agent.evaluation.episodes import Episodes, Target
from horde_agent.evaluation.fitted_q import FittedQ, QFunction, folds_of
from horde_agent.evaluation.importance import (
    effective_size,
    ordinary,
    per_decision,
    per_decision_size,
    weighted,
    weighted_per_decision,
)
from horde_agent.evaluation.intervals import (
    METHODS,
    Linearised,
    Mean,
    Ratios,
    Resampler,
    degrees_of_freedom,
)
from horde_agent.evaluation.judgement import EvaluationConfig, estimates_of, judge
from horde_agent.evaluation.verdict import Evidence, verdict, weight_share
from tests.bench.evaluate_coverage import collision, four_rooms, measure, random_walk

GAMMA = 0.5
START = 0
MIDDLE = 1
END = 2


def two_steps() -> Target:
    """Three episodes of two steps from START over MIDDLE to END; the behaviour is a coin, the target always goes right.

    Episode 0 goes right twice, with rewards 2 and 8: weights 2 and 4. Episode 1 goes right and
    left, with rewards 2 and 4: weights 2 and 0. Episode 2 goes left and right, with rewards 6 and
    8: weights 0 and 0.
    """
    episodes = Episodes(
        length=np.array([2, 2, 2]),
        tiles=np.array([[START], [MIDDLE], [END]] * 3),
        n_features=3,
        n_actions=2,
        action=np.array([1, 1, 1, 0, 0, 1]),
        b=np.full(6, 0.5),
        reward=np.array([2.0, 8.0, 2.0, 4.0, 6.0, 8.0]),
        is_terminated=np.ones(3, dtype=bool),
    )
    return Target("right", episodes, np.tile([0.0, 1.0], (9, 1)))


def test_importance_sampling_of_two_steps_by_hand() -> None:
    """Returns at gamma = 1/2 are 6, 4 and 10; products of all ratios 4, 0 and 0.

    Per decision: (2 * 2 + 2 * 2) / 3 of the first step, and 4 * 8 / 2 / 3 of the second one.
    """
    target = two_steps()
    np.testing.assert_allclose(target.weight, [2.0, 4.0, 2.0, 0.0, 0.0, 0.0])
    assert ordinary(target, GAMMA).value == pytest.approx(4 * 6 / 3)
    assert weighted(target, GAMMA).value == pytest.approx(6.0)
    assert per_decision(target, GAMMA).value == pytest.approx(8 / 3 + 16 / 3)
    # The first step has the weights 2, 2, 0, the second one 4, 0, 0
    assert weighted_per_decision(target, GAMMA).value == pytest.approx(2.0 + GAMMA * 8.0)
    assert effective_size(target.final_weight) == pytest.approx(1.0)
    # The rewards are 10 in the first step, and 20 / 2 in the second one: sizes 2 and 1
    assert per_decision_size(target, GAMMA) == pytest.approx(1.5)


def test_an_episode_that_has_ended_keeps_its_weight() -> None:
    """Without that, the second step would be divided by the weight of the longer episode alone: 3 + 5."""
    episodes = Episodes(
        length=np.array([1, 2]),
        tiles=np.array([[0], [1], [0], [0], [1]]),
        n_features=2,
        n_actions=1,
        action=np.zeros(3, dtype=np.int64),
        b=np.ones(3),
        reward=np.array([1.0, 5.0, 5.0]),
        is_terminated=np.ones(2, dtype=bool),
    )
    target = Target("only", episodes, np.ones((5, 1)))
    assert weighted_per_decision(target, 1.0).value == pytest.approx(3.0 + 2.5)
    assert weighted_per_decision(target, 1.0).value == pytest.approx(ordinary(target, 1.0).value)


def test_doubly_robust_of_two_steps_by_hand() -> None:
    """q(START, right) = 5, q(MIDDLE, right) = 6, 0 elsewhere, so v(START) = 5 and v(MIDDLE) = 6.

    Errors of episode 0: 2 + 6/2 - 5 = 0, 8 - 6 = 2; of episode 1: 0, 4 - 0 = 4; of episode 2:
    6 + 6/2 - 0 = 9, 8 - 6 = 2. With weights: episode 0 has 5 + 4 * 2 / 2, the others 5.
    """
    target = two_steps()
    q = np.zeros((9, 2))
    q[target.episodes.tiles[:, 0] == START, 1] = 5.0
    q[target.episodes.tiles[:, 0] == MIDDLE, 1] = 6.0
    function = QFunction(q, q[:, 1])
    continues = np.array([1.0, 0.0] * 3)
    value = doubly_robust(target, function, GAMMA, continues).value
    assert value == pytest.approx(5.0 + 4.0 / 3.0)
    value = weighted_doubly_robust(target, function, GAMMA, continues).value
    assert value == pytest.approx(5.0 + GAMMA * 2.0)


def test_doubly_robust_without_a_q_is_importance_sampling() -> None:
    target = two_steps()
    nothing = QFunction(np.zeros((9, 2)), np.zeros(9))
    continues = np.array([1.0, 0.0] * 3)
    plain = doubly_robust(target, nothing, GAMMA, continues).value
    assert plain == pytest.approx(per_decision(target, GAMMA).value)
    by_weight = weighted_doubly_robust(target, nothing, GAMMA, continues).value
    assert by_weight == pytest.approx(weighted_per_decision(target, GAMMA).value)


def test_the_fitted_q_of_a_table_solves_its_equations() -> None:
    """Rewards of right are 2 and 8 in the mean; the value of the start is 2 + 8 / 2 = 6."""
    target = two_steps()
    fitted = FittedQ(target, GAMMA, continues_truncated=False, fold=np.zeros(3, dtype=np.int64))
    assert fitted.value().value == pytest.approx(6.0, abs=0.01)


def test_the_influence_on_the_fitted_q_is_the_change_by_an_episode() -> None:
    """Removing an episode changes the value by -psi / (n - 1) to first order."""
    target = random_walk().draw(np.random.default_rng(3))
    n = target.episodes.n_episodes
    value = FittedQ(
        target, 1.0, continues_truncated=False, fold=np.zeros(n, dtype=np.int64)
    ).value()
    psi = value.influence()
    removed = int(np.abs(psi).argmax())
    remaining = np.delete(np.arange(n), removed)
    fewer = FittedQ(
        target.part(remaining), 1.0, continues_truncated=False, fold=np.zeros(n - 1, dtype=np.int64)
    ).value()
    assert fewer.value - value.value == pytest.approx(-psi[removed] / (n - 1), rel=0.15)


def test_a_truncated_episode_is_a_stretch_or_goes_on() -> None:
    """A state that returns to itself with reward 1, cut after 10 steps, gamma = 1/2: 2 - 2^-9, or 2."""
    episodes = Episodes(
        length=np.full(4, 10),
        tiles=np.zeros((44, 1), dtype=np.int64),
        n_features=1,
        n_actions=1,
        action=np.zeros(40, dtype=np.int64),
        b=np.ones(40),
        reward=np.ones(40),
        is_terminated=np.zeros(4, dtype=bool),
    )
    target = Target("only", episodes, np.ones((44, 1)))
    keys = ("ois", "cwpdis", "dr", "wdr")
    stretch = estimates_of(target, EvaluationConfig(gamma=0.5, estimators=keys))
    fitted = estimates_of(target, EvaluationConfig(gamma=0.5, estimators=keys, truncated="fitted"))
    for key in keys:
        assert stretch[key].value == pytest.approx(2.0 - 2.0**-9, abs=1e-6)
        assert fitted[key].value == pytest.approx(2.0, abs=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_intervals_of_a_mean_are_those_of_the_normal_distribution(method: str) -> None:
    numbers = np.random.default_rng(0).normal(3.0, 2.0, 400)
    ends = Resampler(400, 1, method=method).interval(Mean(numbers))
    reach = 1.96 * numbers.std() / 20.0
    assert ends.low == pytest.approx(numbers.mean() - reach, abs=0.03)
    assert ends.high == pytest.approx(numbers.mean() + reach, abs=0.03)


def test_the_standard_error_of_a_ratio_is_that_of_its_resamples() -> None:
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.5, 1.5, (300, 2))
    ratio = Ratios(weight * rng.normal(1.0, 1.0, (300, 2)), weight, np.array([1.0, 0.5]))
    draws = Resampler(300, 1).draws(ratio)
    assert draws.values.std() == pytest.approx(ratio.standard_error, rel=0.05)
    assert np.median(draws.errors) == pytest.approx(ratio.standard_error, rel=0.05)
    everything = np.ones((1, 300))
    assert ratio.standard_errors(everything)[0] == pytest.approx(ratio.standard_error)


def test_an_interval_of_one_episode_is_unknown() -> None:
    ends = Resampler(1, 0).interval(Mean(np.ones(1)))
    assert np.isnan(ends).all()


def test_draws_are_the_same_for_each_estimate() -> None:
    resampler = Resampler(50, 0, n_resamples=20)
    numbers = np.random.default_rng(0).normal(size=50)
    mean = resampler.draws(Mean(numbers)).values
    linear = resampler.draws(Linearised(float(numbers.mean()), numbers - numbers.mean())).values
    np.testing.assert_allclose(mean, linear)


def test_estimates_of_small_problems_agree_with_exact_values() -> None:
    """In 30 repetitions: bias below three standard errors, and 95 % intervals that cover 26 times at least."""
    for setting in (random_walk(), collision()):
        for line in measure("problem", setting, 30, seed=5, n_gvf_repetitions=0):
            if line["estimator"] in ("ois", "pdis", "dr", "fqe"):
                assert abs(float(line["bias"])) < 3.0 * float(line["rmse"]) / np.sqrt(30)
            if line["estimator"] in ("dr", "wdr", "fqe"):
                assert float(line["coverage_wider"]) >= 26 / 30


def test_intervals_with_few_rewarded_episodes_cover_the_value() -> None:
    """Of 200 episodes in the rooms, nine are paid; 56 of 60 intervals cover the value.

    Bootstrap-t alone covers it 52 times, and so does "wider" with the small ridge of the fitted Q.
    """
    lines = measure("rooms", four_rooms(high_variance=False), 60, seed=7, n_gvf_repetitions=0)
    by_key = {line["estimator"]: line for line in lines}
    for key in ("dr", "wdr", "fqe"):
        assert float(by_key[key]["coverage_wider"]) >= 54 / 60
    assert float(by_key["wdr"]["coverage_studentised"]) < 54 / 60


def aliased_states(n_episodes: int) -> Target:
    """Episodes of two steps with rewards 0 and then 1 or 3, whose two states have the same tile; on-policy."""
    last_rewards = np.where(np.arange(n_episodes) % 2, 1.0, 3.0)
    rewards = np.column_stack([np.zeros(n_episodes), last_rewards])
    episodes = Episodes(
        length=np.full(n_episodes, 2),
        tiles=np.array([[0], [0], [1]] * n_episodes),
        n_features=2,
        n_actions=1,
        action=np.zeros(2 * n_episodes, dtype=np.int64),
        b=np.ones(2 * n_episodes),
        reward=rewards.ravel(),
        is_terminated=np.ones(n_episodes, dtype=bool),
    )
    return Target("only", episodes, np.ones((3 * n_episodes, 1)))


def test_the_interval_of_a_fitted_q_and_of_a_gvf_is_that_of_the_correction() -> None:
    """The value is 2 / 2 = 1. A tile for both states has (1/2 + 1) v = 2, so 4/3, with a standard error of 1/30.

    The interval of its own draws would be 1.27 to 1.40.
    """
    target = aliased_states(400)
    config = EvaluationConfig(gamma=GAMMA, estimators=("wdr", "fqe", "gvf"))
    corrected, fitted, gvf = judge([target], config).judgements[0].lines
    for line in (fitted, gvf):
        assert line.low == corrected.low
        assert line.high == corrected.high
        assert line.low < 1.0 < line.high < 1.1
        assert line.value == pytest.approx(4 / 3, abs=0.15)
    assert fitted.standard_error == pytest.approx(1 / 30, rel=1e-3)
    assert np.isnan(gvf.standard_error)


def test_the_influence_through_q_is_the_change_by_an_episode() -> None:
    """Without an episode, the Q of the other fold changes the estimate by -psi / n to first order."""
    target = random_walk().draw(np.random.default_rng(3))
    episodes = target.episodes
    n = episodes.n_episodes
    fold = np.arange(n) % 2
    fitted = FittedQ(target, 1.0, continues_truncated=False, fold=fold)
    function, influence = fitted.cross_fitted([error_weight(target, 1.0)])
    removed = int(np.abs(influence[0]).argmax())
    remaining = np.delete(np.arange(n), removed)
    fewer = FittedQ(
        target.part(remaining), 1.0, continues_truncated=False, fold=fold[remaining]
    ).cross_fitted()
    is_remaining = np.repeat(np.arange(n) != removed, episodes.length + 1)
    q = function.q.copy()
    v = function.v.copy()
    q[is_remaining] = fewer.function.q
    v[is_remaining] = fewer.function.v
    continues = fitted.continues()
    with_all = doubly_robust(target, function, 1.0, continues).value
    with_fewer = doubly_robust(target, QFunction(q, v), 1.0, continues).value
    assert with_fewer - with_all == pytest.approx(-influence[0, removed] / n, rel=0.15)


@pytest.mark.parametrize(
    ("heavy", "n", "degrees"),
    [(0, 100, 99), (1, 100, 2), (10, 100, 28)],
)
def test_few_heavy_episodes_leave_few_degrees_of_freedom(heavy: int, n: int, degrees: int) -> None:
    """Influences of -1 and 1; or of k episodes alone, with the kurtosis n / k: 2 n / (n / k - 1)."""
    psi = np.where(np.arange(n) % 2, 1.0, -1.0)
    if heavy:
        psi[heavy:] = 0.0
    assert degrees_of_freedom(psi) == pytest.approx(degrees, abs=6)


def test_an_interval_is_at_least_as_wide_as_that_of_students_t() -> None:
    """One of 20 episodes carries nearly all of the error: 2 degrees of freedom, t = 4.3."""
    numbers = np.append(np.linspace(-0.1, 0.1, 19), 10.0)
    mean = Mean(numbers)
    ends = Resampler(20, 0, method="wider").interval(mean)
    reach = 4.303 * numbers.std(ddof=1) / np.sqrt(20)
    assert mean.value - ends.low == pytest.approx(reach, rel=1e-3)
    assert ends.high - mean.value >= reach * 0.999


def test_a_policy_that_is_better_is_called_better() -> None:
    target = random_walk().draw(np.random.default_rng(1))
    evaluation = judge([target], EvaluationConfig(estimators=("wdr",), n_resamples=300))
    judged = evaluation.judgements[0]
    assert judged.can_judge
    assert judged.verdict.startswith("better than the logged behaviour by")
    assert judged.difference is not None
    expected = judged.line("wdr").value - evaluation.behaviour.value
    assert judged.difference.value == pytest.approx(expected)


def test_weight_in_few_episodes_is_no_judgement() -> None:
    weight = np.append(np.full(397, 1.0), [4000.0, 5000.0, 4000.0])
    share = weight_share(weight)
    assert share.n_heaviest == 3
    evidence = Evidence(effective_size(weight), share, 1.0, 0.1, 0.95)
    assert verdict(evidence, None) == (
        "these data cannot judge this policy: 97% of the weight is in 3 of 400 episodes",
        False,
    )


def test_an_action_that_the_behaviour_lacks_is_no_judgement() -> None:
    """The target takes the second action half of the time; the data never do: ratios are 1/2."""
    n = 200
    episodes = Episodes(
        length=np.ones(n, dtype=np.int64),
        tiles=np.zeros((2 * n, 1), dtype=np.int64),
        n_features=1,
        n_actions=2,
        action=np.zeros(n, dtype=np.int64),
        b=np.ones(n),
        reward=np.ones(n),
        is_terminated=np.ones(n, dtype=bool),
    )
    target = Target("half", episodes, np.full((2 * n, 2), 0.5))
    judged = judge([target], EvaluationConfig(estimators=("cwpdis",), n_resamples=50)).judgements[0]
    assert not judged.can_judge
    assert "ratios pi/b have the mean 0.5, expected 1" in judged.verdict


def test_returns_of_which_none_differs_are_no_judgement() -> None:
    """Without a reward in the log, each estimate is 0 and each draw of it, whatever the policy may be worth."""
    target = random_walk().draw(np.random.default_rng(1))
    episodes = replace(target.episodes, reward=np.zeros(target.episodes.n_transitions))
    unpaid = replace(target, episodes=episodes)
    config = EvaluationConfig(estimators=("wdr",), n_resamples=50)
    judged = judge([unpaid], config).judgements[0]
    assert not judged.can_judge
    assert "each of the 100 logged returns is 0, so they say nothing of another" in judged.verdict


def test_probabilities_must_sum_to_one() -> None:
    episodes = two_steps().episodes
    with pytest.raises(ValueError, match=r"the policy odd gives the probabilities .* in row 0"):
        Target("odd", episodes, np.full((9, 2), 0.4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 1.5}, "gamma must be in"),
        ({"truncated": "never"}, "truncated must be stretch or fitted"),
        ({"estimators": ("best",)}, "estimators must be among"),
        ({"level": 1.0}, "level must be in"),
        ({"n_resamples": 49}, "n_resamples must be from 50 to 100,000, not 49"),
        ({"n_resamples": 100_001}, "n_resamples must be from 50 to 100,000, not 100,001"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_settings_out_of_range_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EvaluationConfig(**options)  # type: ignore[arg-type]


def test_folds_have_equal_sizes() -> None:
    fold = folds_of(12, np.random.default_rng(0), n_folds=5)
    assert sorted(np.bincount(fold).tolist()) == [2, 2, 2, 3, 3]
