"""Experiment `options`: its rooms against the known answers, the trap, and outcomes of executed options."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from examples.reproduce import options, options_pen
from examples.reproduce.checks import judge
from examples.reproduce.options_pen import Life, Outcomes, PenCauses, PenScores, Shown
from horde_agent.options.option import Option, StopAt
from horde_agent.options.planner import OptionModel
from horde_agent.policies import ConstantAction
from horde_agent.problems.two_rooms import ACTIONS, GAMMA, HALLWAY, START, two_rooms

GOALS = {options.SURE: 0.8429, options.SLIPPING: -2.0498}


def slow_look_aheads(models: Sequence[OptionModel], goal: float, seed: int) -> int:
    """Return the look-aheads state by state, without values of options that are kept."""
    rng = np.random.default_rng(seed)
    weights = np.zeros(72)
    count = 0
    while abs(weights[START] - goal) > options.NEAR * abs(goal):
        state = rng.integers(72)
        weights[state] = max(
            model.reward[state] + weights @ model.transition[:, state] for model in models
        )
        count += len(models)
    return count


@pytest.mark.parametrize("moves", list(GOALS))
def test_the_rooms_have_the_known_value(moves: str) -> None:
    exact = options.best_option(two_rooms(options.SUCCESS[moves]), None)
    assert exact.values[START] == pytest.approx(GOALS[moves], abs=1e-4)


def test_the_plan_takes_as_many_look_aheads_as_a_slow_one() -> None:
    """With exact models: in the median of 100 runs 4,352, 1,248 and 4,775."""
    models = options.exact_models(two_rooms())
    actions = [models[name] for name in ACTIONS]
    for further in ([], [models[options.RESPECTING]], [models[options.SHORTEST]]):
        chosen = [*actions, *further]
        counts = [options.look_aheads(chosen, 0.8429, seed) for seed in range(2)]
        assert counts == [slow_look_aheads(chosen, 0.8429, seed) for seed in range(2)]


def test_the_trap_is_the_discount_at_the_stop() -> None:
    """.8515 if the model of the hallway option is not discounted at the stop, else .8429."""
    models = options.exact_models(two_rooms())
    actions = [models[name] for name in ACTIONS]
    option = models[options.RESPECTING]
    printed = option._replace(transition=option.transition / GAMMA)
    assert options.fixed_value([*actions, option]) == pytest.approx(0.8429, abs=1e-4)
    assert options.fixed_value([*actions, printed]) == pytest.approx(0.8515, abs=1e-4)


def test_the_option_that_respects_rewards_stops_at_the_hallway_and_where_value_is_negative() -> (
    None
):
    hallway_options = options.options_for(two_rooms())
    assert np.flatnonzero(hallway_options[options.SHORTEST].stops).tolist() == [HALLWAY]
    respecting = hallway_options[options.RESPECTING]
    assert respecting.stops[HALLWAY]
    np.testing.assert_array_equal(
        respecting.stops, np.where(np.arange(72) == HALLWAY, True, respecting.values <= 0.0)
    )
    assert respecting.stops.sum() == 9


def test_models_of_one_random_life_equal_the_exact_ones() -> None:
    """20,000 steps with sure moves: every entry, of all options."""
    one = options.one_run(options.SURE, seed=0, n_steps=20_000)
    assert max(one.errors) < 1e-5
    np.testing.assert_allclose(one.fixed, [0.8429, 0.8515], atol=1e-4)
    assert one.look_aheads[1] < 0.5 * one.look_aheads[0]


def test_the_outcome_of_an_executed_option_is_the_discounted_feature() -> None:
    """Two excursions: one stops after two steps with features 1 and 3, .8 ^ 2; the other does not stop."""
    outcomes = Outcomes(
        tiles=np.array([[0, 1], [0, 2]]),
        last_tiles=np.array([[1, 3], [1, 2]]),
        n_steps=np.array([2, 50]),
        has_stopped=np.array([True, False]),
        place=np.zeros((2, 4)),
    )
    np.testing.assert_allclose(outcomes.at_stop(np.array([1, 2, 3])), [[0.64, 0, 0.64], [0, 0, 0]])
    assert outcomes.frequent(5).tolist() == [1, 3]


def corridor(n_steps: int) -> Life:
    """Return a random life in a corridor of five states, each with a feature of its own; action 1 goes right."""
    rng = np.random.default_rng(0)
    actions = rng.integers(2, size=n_steps)
    places = [0]
    for action in actions.tolist():
        places.append(int(np.clip(places[-1] + 2 * action - 1, 0, 4)))
    states = np.array(places)
    return Life(
        observation=np.zeros((n_steps + 1, 1)),
        tiles=states[:, None],
        action=actions,
        b=np.full(n_steps, 0.5),
        reward=np.zeros(n_steps + 1),
    )


TO_THE_END = Option("to the end", ConstantAction(1, 2), StopAt((4,)), options_pen.GAMMA)


def test_least_squares_on_a_life_finds_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gamma^(4 - s) until state 4, from which it stops again in a step: .4096 from state 0, not .512."""
    monkeypatch.setattr(options_pen, "RIDGE", 1e-3)
    life = corridor(4_000)
    option = options_pen.in_life(life, TO_THE_END, Shown())
    weights, active = options_pen.lstd(life, option, np.array([3, 4]), 5)
    assert active.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(weights[:, 1], [0.4096, 0.512, 0.64, 0.8, 0.8], atol=1e-3)
    np.testing.assert_allclose(weights[:, 0], 0.0, atol=1e-3)


def test_least_squares_on_outcomes_is_ridge_regression_in_features_and_in_their_pairs() -> None:
    """The dual form equals the primal one; pairs are the features of all products."""
    rng = np.random.default_rng(0)
    tiles = np.array([rng.choice(8, 3, replace=False) for _ in range(700)])
    fresh = Outcomes(
        tiles=tiles[:600],
        last_tiles=tiles[:600],
        n_steps=rng.integers(1, 5, size=600),
        has_stopped=np.ones(600, dtype=bool),
        place=np.zeros((600, 4)),
    )
    unseen = fresh._replace(tiles=tiles[600:])
    features = np.array([2, 5])
    goals = fresh.at_stop(features)
    fitted = options_pen.fit(goals, options_pen.shared(fresh, unseen, 8), n_active=3)
    x = options_pen.dense(tiles, 8).astype(np.float64)
    scale = np.sqrt(options_pen.PAIRS_WEIGHT) / 3.0
    products = scale * np.einsum("ni,nj->nij", x, x).reshape(700, 64)
    for vectors, ridge, predictions in (
        (x, options_pen.RIDGE, fitted.linear),
        (products, options_pen.RIDGE_OF_PAIRS, fitted.pairs),
    ):
        matrix = vectors[:600].T @ vectors[:600] + ridge * np.eye(vectors.shape[1])
        weights = np.linalg.solve(matrix, vectors[:600].T @ (goals - goals.mean(axis=0)))
        expected = vectors[600:] @ weights + goals.mean(axis=0)
        np.testing.assert_allclose(predictions, expected, atol=2e-4)
    assert np.abs(fitted.linear - fitted.pairs).max() > 0.05


def test_the_control_learns_the_features_of_other_stops() -> None:
    """It stops where feature 4 is active; there its demon about feature 9 sees that of another stop."""
    life = corridor(300)
    tiles = np.column_stack([life.tiles[:, 0], 5 + np.arange(301) % 5])
    life = life._replace(tiles=tiles)
    shown = Shown()
    rng = np.random.default_rng(0)
    option = options_pen.in_life(life, TO_THE_END, shown)
    _, demon = options_pen.shuffled_model(life, option, np.array([9]), rng, shown)
    assert demon.name == "shuffled to the end/feature_9"
    outcome = demon.outcome
    assert callable(outcome)
    paid = np.zeros(301)
    for shown.step in range(301):
        paid[shown.step] = outcome(life.observation[0], tiles[shown.step])
    is_stop = tiles[:, 0] == 4
    unshuffled = options_pen.GAMMA * (is_stop & (tiles == 9).any(axis=1))
    assert not paid[~is_stop].any()
    assert paid.sum() == pytest.approx(unshuffled.sum())
    assert (paid != unshuffled).any()


def test_a_prediction_from_where_it_did_not_stop_stands_for_the_rest() -> None:
    """Predicted .5 and 0 at the start; the outcomes are .64, and 0 plus .8^50 of the last prediction."""
    outcomes = Outcomes(
        tiles=np.array([[0], [1]]),
        last_tiles=np.array([[2], [0]]),
        n_steps=np.array([2, 50]),
        has_stopped=np.array([True, False]),
        place=np.zeros((2, 4)),
    )
    errors = options_pen.errors_of(np.array([[0.5], [0.0], [0.0]]), outcomes, np.array([2]))
    last_part = 0.8**50 * 0.5
    assert errors[0] == pytest.approx((0.14**2 + last_part**2) / 2.0 / 0.32**2)


def test_verdicts_follow_the_limits() -> None:
    """By made-up numbers: slipping pays here, and the models of two options predict too little."""
    sure = options.RoomsRuns(
        errors=np.full((2, 3), 1e-7),
        look_aheads=np.array([[4_000, 1_000, 5_000], [4_400, 1_400, 4_800]]),
        fixed=np.array([[0.8429, 0.8515], [0.8429, 0.8515]]),
    )
    rooms = {options.SURE: sure, options.SLIPPING: sure}
    learned = np.array([[0.2, 0.4, 0.9, np.nan], [0.2, 0.9, 0.9, 0.9], [0.9, 0.9, 0.9, 0.9]])
    scores = PenScores(
        learned=learned,
        shuffled=np.array([[1.0, 1.05, 0.95, np.nan], [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]),
        chance=np.full((3, 4), 0.1),
        n_steps=np.array([3.0, 4.0, 4.0]),
        stopped=np.array([1.0, 0.5, 0.5]),
        n_frequent=np.array([4, 5, 4]),
        place=np.zeros((2, 5)),
    )
    causes = PenCauses(batch=learned, linear=learned, pairs=np.full((3, 4), 0.2))
    options_found = [options.FoundRun(error=0.0, same_stops=1.0, value=1.0)]
    data = options.OptionsData(rooms, options_found, [scores], [causes])
    verdicts = [result.verdict for result in judge(options, data)]
    assert "".join(verdict[0] for verdict in verdicts) == "rrrrnrpr"
    assert "On executed options to the wall 0.667;" in judge(options, data)[6].cause
    assert len(options.tables(data)) == 2
    assert set(options.pictures(data)) == {"options"}
