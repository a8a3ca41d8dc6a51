"""Values of policies from logged episodes: known answers by hand, exact values of small problems, and verdicts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from horde_agent.scoring import horde_value
from horde_agent.scoring.doubly_robust import (
    doubly_robust,
    error_weight,
    weighted_doubly_robust,
)
from horde_agent.scoring.episodes import Episodes, Target
from horde_agent.scoring.fitted_q import FittedQ, QFunction, folds_of
from horde_agent.scoring.importance import (
    effective_size,
    expected_sizes,
    expected_squares,
    ordinary,
    per_decision,
    recorded_sizes,
    step_importance,
    weighted,
    weighted_per_decision,
)
from horde_agent.scoring.intervals import (
    Difference,
    Linearised,
    Mean,
    Ratios,
    Resampler,
    degrees_of_freedom,
)
from horde_agent.scoring.judgement import EvaluationConfig, estimates_of, judge
from horde_agent.scoring.returns import returns_along
from horde_agent.scoring.verdict import Evidence, verdict, weight_share
from tests.bench.evaluate_coverage import (
    collision,
    four_rooms,
    measure,
    random_walk,
    rare_steps,
)

GAMMA = 0.5
UNLEARNED = ("wdr", "dr", "cwpdis", "pdis", "wis", "ois", "fqe")
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


@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_the_return_of_an_episode_has_the_digits_of_a_measured_return(gamma: float) -> None:
    """Of 30 episodes of 1 to 60 steps; sums in another order differ in their last digits."""
    rng = np.random.default_rng(0)
    length = rng.integers(1, 61, size=30)
    reward = rng.normal(size=length.sum())
    episodes = Episodes(
        length=length,
        tiles=np.zeros((length.sum() + 30, 1), dtype=np.int64),
        n_features=1,
        n_actions=1,
        action=np.zeros(length.sum(), dtype=np.int64),
        b=np.ones(length.sum()),
        reward=reward,
        is_terminated=np.ones(30, dtype=bool),
    )
    rewards = np.split(reward, np.cumsum(length)[:-1])
    measured = [returns_along(np.append(0.0, of_one), gamma)[0] for of_one in rewards]
    assert episodes.returns(gamma).tolist() == measured


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
    importance = step_importance(target, GAMMA)
    assert recorded_sizes(target).per_decision(importance) == pytest.approx(2 / (1 / 2 + 1 / 1))
    # Each step has E[rho^2] = 1 / b = 2
    np.testing.assert_allclose(expected_squares(target), [2.0, 4.0])
    assert expected_sizes(target).per_decision(importance) == pytest.approx(2 / (2 / 3 + 4 / 3))


def test_effective_sizes_are_those_that_b_lets_expect() -> None:
    """Of two_steps(): by step 3 / 2 and 3 / 4, both with rewards of 10; of whole episodes 3 / 4.

    As recorded they are 2, 1 and 1. The six ratios 2, 2, 2, 0, 0, 2 have the size 4, of 3 in 6 episodes.
    """
    config = EvaluationConfig(gamma=GAMMA, n_resamples=50, estimators=UNLEARNED)
    lines = judge([two_steps()], config).judgements[0].lines
    sizes = {line.estimator: line.effective_size for line in lines}
    stepwise = 2 / (2 / 3 + 4 / 3)
    assert sizes == pytest.approx(
        dict.fromkeys(("wdr", "dr", "cwpdis", "pdis"), stepwise)
        | {"wis": 0.75, "ois": 0.75, "fqe": 2.0}
    )


def test_a_difference_to_itself_has_no_error() -> None:
    """And that of two means has the error of the mean difference; as independent ones they would have more."""
    rng = np.random.default_rng(0)
    first = rng.normal(size=30)
    second = first + 0.1 * rng.normal(size=30)
    assert Difference(Mean(first), Mean(first)).standard_error == 0.0
    expected = Mean(first - second).standard_error
    assert Difference(Mean(first), Mean(second)).standard_error == pytest.approx(expected)


def test_the_gvf_follows_the_policy_of_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The action that has the state's number pays 1, and the policy takes it: its value at gamma = 0 is 1.

    With the probabilities of another row, or of the first one, it would be about 1/2.
    """
    monkeypatch.setattr(horde_value, "UPDATES", 4_000)
    rng = np.random.default_rng(0)
    state = rng.integers(2, size=(300, 4))
    action = rng.integers(2, size=(300, 3))
    episodes = Episodes(
        length=np.full(300, 3),
        tiles=state.reshape(-1, 1),
        n_features=2,
        n_actions=2,
        action=action.ravel(),
        b=np.full(900, 0.5),
        reward=(action == state[:, :3]).astype(np.float64).ravel(),
        is_terminated=np.ones(300, dtype=bool),
    )
    target = Target("paid", episodes, np.eye(2)[state.ravel()])
    values = horde_value.horde_values([target], 0.0, continues_truncated=False)
    assert values[0] == pytest.approx(1.0, abs=0.02)


def rare_actions(n_episodes: int, length: int, probabilities: list[float], b: float) -> Target:
    """Episodes of one state in which the first action was always taken, with probability b."""
    n = n_episodes * length
    episodes = Episodes(
        length=np.full(n_episodes, length),
        tiles=np.zeros((n + n_episodes, 1), dtype=np.int64),
        n_features=1,
        n_actions=len(probabilities),
        action=np.zeros(n, dtype=np.int64),
        b=np.full(n, b),
        reward=np.random.default_rng(0).normal(size=n),
        is_terminated=np.ones(n_episodes, dtype=bool),
    )
    return Target("rare", episodes, np.tile(probabilities, (n + n_episodes, 1)))


@pytest.mark.parametrize(
    ("probabilities", "b", "square"),
    [
        ([0.9, 0.1], 0.97, 0.81 / 0.97 + 0.01 / 0.03),
        ([0.8, 0.1, 0.1], 0.9, 0.64 / 0.9 + 2 * 0.01 / 0.05),
        ([0.9, 0.1], 0.9, 1.0),
    ],
)
def test_b_shows_weights_that_were_never_seen(
    probabilities: list[float], b: float, square: float
) -> None:
    """Only the first action was taken: all weights are alike, and the recorded size is 100 of 100.

    But E[rho^2] = sum_a pi(a)^2 / b(a), with the other actions' b alike. With pi = b it is 1.
    """
    target = rare_actions(100, 5, probabilities, b)
    assert recorded_sizes(target).whole == pytest.approx(100.0)
    expected = square ** np.arange(1, 6)
    np.testing.assert_allclose(expected_squares(target), expected)
    assert expected_sizes(target).whole == pytest.approx(100.0 / expected[-1])


def test_recorded_ratios_count_among_three_actions() -> None:
    """With b = .8, .15, .05 and pi = .2, .2, .6: E[rho^2] = .05 + .267 + 7.2; by the b taken alone less than 5."""
    rng = np.random.default_rng(0)
    b = np.array([0.8, 0.15, 0.05])
    pi = np.array([0.2, 0.2, 0.6])
    action = rng.choice(3, size=4_000, p=b)
    single = rare_actions(4_000, 1, pi.tolist(), 0.8)
    target = replace(single, episodes=replace(single.episodes, action=action, b=b[action]))
    assert expected_squares(target)[0] == pytest.approx((pi**2 / b).sum(), rel=0.1)


def test_an_episode_that_has_ended_has_a_ratio_of_1() -> None:
    """Of two episodes one ends after a step: E[w^2] = 2, and 2 (2 + 1) / 2. Else it would be 4, or 2 / 2 per step."""
    episodes = Episodes(
        length=np.array([1, 2]),
        tiles=np.zeros((5, 1), dtype=np.int64),
        n_features=1,
        n_actions=2,
        action=np.ones(3, dtype=np.int64),
        b=np.full(3, 0.5),
        reward=np.ones(3),
        is_terminated=np.ones(2, dtype=bool),
    )
    target = Target("right", episodes, np.tile([0.0, 1.0], (5, 1)))
    np.testing.assert_allclose(expected_squares(target), [2.0, 3.0])


def test_a_policy_none_of_whose_actions_was_taken_is_unknown() -> None:
    """All weights are 0: its value is no number, where it would be 0."""
    target = rare_actions(30, 2, [0.0, 1.0], 0.5)
    judged = judge([target], EvaluationConfig(n_resamples=50, estimators=UNLEARNED)).judgements[0]
    assert not judged.can_judge
    for line in judged.lines:
        assert np.isnan([line.value, line.low, line.high]).all()


def test_per_decision_values_need_a_weight_at_each_step_with_a_reward() -> None:
    """Of two_steps() without episode 0, the first step has a weight, the second none."""
    target = two_steps().part(np.array([1, 2]))
    values = estimates_of(target, EvaluationConfig(gamma=GAMMA, estimators=UNLEARNED))
    assert np.isnan([values[key].value for key in ("cwpdis", "wis", "ois")]).all()
    assert values["pdis"].value == pytest.approx(2 * 2 / 2)
    # A reward of 0 in the second step leaves nothing unknown
    reward = target.episodes.reward * np.array([1.0, 0.0, 1.0, 0.0])
    unpaid = replace(target, episodes=replace(target.episodes, reward=reward))
    values = estimates_of(unpaid, EvaluationConfig(gamma=GAMMA, estimators=UNLEARNED))
    assert values["cwpdis"].value == pytest.approx(2.0)


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


@pytest.mark.parametrize("n_episodes", [2, 40])
def test_a_value_after_truncations_has_no_bias_by_the_ridge(n_episodes: int) -> None:
    """A state that returns to itself with reward 1, cut after 3 steps, gamma = .9: 10.

    With a ridge on all numbers `wdr` would be 4.52 after 2 episodes, and 9.90 after 40.
    """
    n = 3 * n_episodes
    episodes = Episodes(
        length=np.full(n_episodes, 3),
        tiles=np.zeros((n + n_episodes, 1), dtype=np.int64),
        n_features=1,
        n_actions=1,
        action=np.zeros(n, dtype=np.int64),
        b=np.ones(n),
        reward=np.ones(n),
        is_terminated=np.zeros(n_episodes, dtype=bool),
    )
    target = Target("only", episodes, np.ones((n + n_episodes, 1)))
    config = EvaluationConfig(gamma=0.9, truncated="fitted", estimators=UNLEARNED)
    for estimate in estimates_of(target, config).values():
        assert estimate.value == pytest.approx(10.0, abs=1e-6)


def test_the_gvf_goes_on_after_a_truncation_or_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that returns to itself with reward 1, cut after 5 steps, gamma = 1/2.

    Going on: 2. Ending: 1 + 1/2 of four fifths of the value, so 5/3, and less just after an end.
    """
    monkeypatch.setattr(horde_value, "UPDATES", 4_000)
    episodes = Episodes(
        length=np.full(200, 5),
        tiles=np.zeros((1_200, 1), dtype=np.int64),
        n_features=1,
        n_actions=1,
        action=np.zeros(1_000, dtype=np.int64),
        b=np.ones(1_000),
        reward=np.ones(1_000),
        is_terminated=np.zeros(200, dtype=bool),
    )
    target = Target("only", episodes, np.ones((1_200, 1)))
    goes_on = horde_value.horde_values([target], 0.5, continues_truncated=True)
    ends = horde_value.horde_values([target], 0.5, continues_truncated=False)
    assert goes_on[0] == pytest.approx(2.0, abs=0.01)
    assert ends[0] < 1.7


def test_what_the_ridge_holds_back_is_a_spread_of_the_estimate() -> None:
    """Two states pay 0 and 2 for the first action, the level is 1 and the learned numbers are -1 and 1.

    The second action, which the policy takes half of the time, was never taken: two numbers of that
    size would change the value by 1/4 each; and so would the two of the first action, by what of them
    is the level, which the second action shares. Of four independent ones that is 1/2. Taken often,
    it is nothing.
    """
    n = 400
    state = np.arange(n) % 2
    episodes = Episodes(
        length=np.ones(n, dtype=np.int64),
        tiles=np.column_stack([state, np.full(n, 2)]).reshape(-1, 1),
        n_features=3,
        n_actions=2,
        action=np.zeros(n, dtype=np.int64),
        b=np.full(n, 0.5),
        reward=2.0 * state,
        is_terminated=np.ones(n, dtype=bool),
    )
    unseen = Target("half", episodes, np.full((2 * n, 2), 0.5))
    both = replace(episodes, action=np.arange(n) // 2 % 2)
    well_seen = replace(unseen, episodes=both)
    assert spread_of(unseen) == pytest.approx(0.5, rel=0.02)
    assert spread_of(well_seen) < 1e-3


def spread_of(target: Target) -> float:
    """Return the spread of the weighted doubly robust estimate."""
    config = EvaluationConfig(estimators=("wdr",))
    return estimates_of(target, config)["wdr"].spread


def test_a_spread_widens_an_interval_as_an_independent_error() -> None:
    numbers = np.random.default_rng(0).normal(3.0, 2.0, 400)
    resampler = Resampler(400, 1)
    ends = resampler.interval(Mean(numbers))
    wider = resampler.interval(Mean(numbers, spread=0.1))
    reach = 1.5 * 1.959964 * 0.1
    value = numbers.mean()
    assert value - wider.low == pytest.approx(np.hypot(value - ends.low, reach))
    assert wider.high - value == pytest.approx(np.hypot(ends.high - value, reach))
    assert Difference(Mean(numbers, spread=0.3), Mean(numbers, spread=0.4)).spread == 0.5


def test_a_draw_of_one_episode_alone_has_no_error() -> None:
    """Numbers 1 and 3: drawn twice each, the error of their mean is 0; about the mean of both it would be .71."""
    weight = np.ones((2, 1))
    estimate = Ratios(np.zeros((2, 1)), weight, np.ones(1), np.array([1.0, 3.0]))
    counts = np.array([[2.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    np.testing.assert_allclose(estimate.standard_errors(counts), [0.0, np.sqrt(0.5), 0.0])
    assert estimate.standard_error == pytest.approx(np.sqrt(0.5))


def test_intervals_of_a_mean_are_those_of_the_normal_distribution() -> None:
    numbers = np.random.default_rng(0).normal(3.0, 2.0, 400)
    ends = Resampler(400, 1).interval(Mean(numbers))
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
                assert float(line["coverage"]) >= 26 / 30


def test_intervals_with_few_rewarded_episodes_cover_the_value() -> None:
    """Of 200 episodes in the rooms, nine are paid; 56 of 60 intervals cover the value.

    Bootstrap-t alone covers it 52 times, and so do these with the small ridge of the fitted Q.
    """
    lines = measure("rooms", four_rooms(high_variance=False), 60, seed=7, n_gvf_repetitions=0)
    by_key = {line["estimator"]: line for line in lines}
    for key in ("dr", "wdr", "fqe"):
        assert float(by_key[key]["coverage"]) >= 54 / 60


def test_a_policy_is_not_judged_where_its_heavy_weights_were_never_seen() -> None:
    """The behaviour steps up with probability .03, the target with .24, for 15 steps: E[w^2] is 2.5^15 = 10^6.

    The recorded weights look as if 200 episodes were 51, and their intervals cover 57 % of the
    values, by weighted importance sampling 48 %.
    """
    lines = measure("rare", rare_steps(0.24, 15, 200), 10, seed=1, n_gvf_repetitions=0)
    assert {line["share_judged"] for line in lines} == {"0"}


def test_intervals_cover_the_value_of_actions_that_were_hardly_taken() -> None:
    """Of 50 episodes of two steps, some three have a step up: 40 of 40 intervals cover the value.

    Without the spread 35 do.
    """
    lines = measure("rare", rare_steps(0.12, 2, 50), 40, seed=1, n_gvf_repetitions=0)
    by_key = {line["estimator"]: line for line in lines}
    for key in ("dr", "wdr", "fqe"):
        assert float(by_key[key]["coverage"]) >= 37 / 40


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
    function, influence, _ = fitted.cross_fitted([error_weight(target, 1.0)])
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
    ends = Resampler(20, 0).interval(mean)
    reach = 4.303 * numbers.std(ddof=1) / np.sqrt(20)
    assert mean.value - ends.low == pytest.approx(reach, rel=1e-3)
    assert ends.high - mean.value >= reach * 0.999


def test_an_interval_of_skewed_numbers_reaches_farther_where_they_do() -> None:
    """Of 60 lognormal numbers, Student's t has .397 to both sides; bootstrap-t alone has .473 upwards."""
    mean = Mean(np.random.default_rng(0).lognormal(size=60))
    ends = Resampler(60, 0).interval(mean)
    assert mean.value - ends.low == pytest.approx(0.397, abs=0.001)
    assert ends.high - mean.value == pytest.approx(0.473, abs=0.02)


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
    evidence = Evidence(
        recorded_size=effective_size(weight),
        expected_size=100.0,
        share=share,
        mean_ratio=1.0,
        mean_ratio_error=0.1,
        level=0.95,
    )
    assert verdict(evidence, None) == (
        "these data cannot judge this policy: 97% of the weight is in 3 of 400 episodes",
        False,
    )
    unseen = evidence._replace(recorded_size=300.0, expected_size=19.96)
    assert verdict(unseen, None) == (
        "these data cannot judge this policy: by their b, 400 episodes are worth 19.9 of its own, expected 20, so that "
        "what it does most differently was hardly seen",
        False,
    )

    never_seen = evidence._replace(recorded_size=300.0, expected_size=1e-9)
    assert "400 episodes are worth less than 0.1 of its own" in verdict(never_seen, None).sentence


def test_few_episodes_have_no_interval() -> None:
    """From 20 effective ones on; three would give ends as far as 1e8."""
    numbers = rare_actions(20, 1, [0.5, 0.5], 0.5)
    config = EvaluationConfig(estimators=("wdr", "wis"), n_resamples=50)
    enough = judge([numbers], config)
    few = judge([numbers.part(np.arange(19))], config)
    for evaluation, is_known in ((enough, True), (few, False)):
        lines = [evaluation.behaviour, *evaluation.judgements[0].lines]
        for line in lines:
            assert np.isfinite([line.low, line.high]).tolist() == [is_known, is_known]
            assert np.isfinite(line.value)
    assert few.judgements[0].verdict == (
        "these data cannot judge this policy: there are 19 episodes, expected 20 at least"
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
        ({"gamma": 1.5}, r"gamma must be in \[0, 1\], not 1.5"),
        ({"truncated": "never"}, "truncated must be stretch or fitted"),
        ({"estimators": ("best",)}, "estimators must be among"),
        ({"level": 1.0}, r"level must be in \(0, 1\), not 1.0"),
        ({"n_resamples": 49}, "n_resamples must be from 50 to 100,000, not 49"),
        ({"n_resamples": 100_001}, "n_resamples must be from 50 to 100,000, not 100,001"),
        ({"seed": -1}, "seed must be a whole number of at least 0, not -1"),
        ({"seed": 0.5}, "seed must be a whole number of at least 0, not 0.5"),
    ],
)
def test_settings_out_of_range_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EvaluationConfig(**options)  # type: ignore[arg-type]


def test_folds_have_equal_sizes() -> None:
    fold = folds_of(12, np.random.default_rng(0), n_folds=5)
    assert sorted(np.bincount(fold).tolist()) == [2, 2, 2, 3, 3]
