"""Experiment `options`: its rooms against the known answers, the trap, and outcomes of executed options."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from examples.reproduce import options
from examples.reproduce.checks import judge
from examples.reproduce.options_pen import Outcomes, PenScores
from horde_agent.options.planner import OptionModel
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
    )
    np.testing.assert_allclose(outcomes.at_stop(np.array([1, 2, 3])), [[0.64, 0, 0.64], [0, 0, 0]])
    assert outcomes.frequent(5).tolist() == [1, 3]


def test_verdicts_follow_the_limits() -> None:
    """By made-up numbers: slipping pays here, and the model of the second option predicts too little."""
    sure = options.RoomsRuns(
        errors=np.full((2, 3), 1e-7),
        look_aheads=np.array([[4_000, 1_000, 5_000], [4_400, 1_400, 4_800]]),
        fixed=np.array([[0.8429, 0.8515], [0.8429, 0.8515]]),
    )
    rooms = {options.SURE: sure, options.SLIPPING: sure}
    scores = PenScores(
        learned=np.array([[0.2, 0.4, 0.9, np.nan], [0.2, 0.9, 0.9, 0.9]]),
        shuffled=np.array([[1.0, 1.05, 0.95, np.nan], [1.0, 1.0, 1.0, 1.0]]),
        chance=np.full((2, 4), 0.1),
        n_steps=np.array([3.0, 4.0]),
        stopped=np.array([1.0, 0.5]),
        n_demons=np.array([4, 5]),
    )
    options_found = [options.FoundRun(error=0.0, same_stops=1.0, value=1.0)]
    data = options.OptionsData(rooms, options_found, [scores])
    verdicts = [result.verdict for result in judge(options, data)]
    assert "".join(verdict[0] for verdict in verdicts) == "rrrrnrpr"
    assert len(options.tables(data)) == 2
    assert set(options.pictures(data)) == {"options"}
