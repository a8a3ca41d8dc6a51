"""Options: their models as questions, the policies found for subtasks, plans, and what does not fit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import (
    ConstantAction,
    Feature,
    Gibbs,
    Horde,
    Interface,
    LearnerConfig,
    Uniform,
    questions,
)
from horde_agent.learning.groups import trace_groups
from horde_agent.options.option import GreedyIn, Option, StopAt, StopForSubtask, Subtask, found
from horde_agent.options.planner import OptionModel, Planner, model_in
from tests.agent.hordes import ENGINES
from tests.agent.planned_lives import (
    GAMMA,
    N_STATES,
    ONE_STEP,
    PLAIN,
    PLAN_EVERY,
    RIGHT,
    TO_THE_END,
    Corridor,
    PlannedLife,
    live_with_kills,
)


@pytest.mark.parametrize(("engine", "mode"), ENGINES)
def test_the_model_of_an_option_is_that_of_its_stop(engine: str, mode: Any) -> None:
    """From state s it takes 4 - s steps: gamma^(4 - s), and the rewards -1 but for the last, discounted.

    From state 0 that is .6561; with x_j not discounted at the stop it is .729. State 4 is left and
    reached again: gamma. No other state is ever one of a stop.
    """
    demons = questions.model_of(TO_THE_END, range(N_STATES), n_features=N_STATES)
    corridor = Corridor.of(demons, engine, mode).run(3_000)
    model = model_in(corridor.horde, TO_THE_END, range(N_STATES))
    stops = np.array([GAMMA**4, GAMMA**3, GAMMA**2, GAMMA, GAMMA])
    np.testing.assert_allclose(model.transition[4], stops, atol=1e-9)
    np.testing.assert_array_equal(model.transition[:4], 0.0)
    rewards = [-1 - GAMMA - GAMMA**2 + GAMMA**3, -1 - GAMMA + GAMMA**2, -1 + GAMMA, 1.0, 1.0]
    np.testing.assert_allclose(model.reward, rewards, atol=1e-9)


def test_the_model_of_an_action_is_of_one_step() -> None:
    demons = questions.model_of(ONE_STEP, range(N_STATES))
    assert {question.continuation for question in demons} == {0.0}
    assert demons[3].outcome == Feature(2, GAMMA)
    model = model_in(Corridor.of(demons).run(1_000).horde, ONE_STEP, range(N_STATES))
    reached = np.minimum(np.arange(N_STATES) + 1, N_STATES - 1)
    np.testing.assert_allclose(model.transition, GAMMA * np.eye(N_STATES)[reached].T, atol=1e-9)
    np.testing.assert_allclose(model.reward, [-1, -1, -1, 1, 1], atol=1e-9)


@pytest.mark.parametrize("beta", [0.25, 1.0])
def test_an_option_that_may_stop_anywhere_stops_with_its_probability(beta: float) -> None:
    """A state that leads to itself: the discount at the stop is gamma beta / (1 - gamma (1 - beta)).

    With beta .25 that is .6923; without gamma at the stop it is .7692.
    """
    option = Option("wait", Uniform(2), stops=beta, gamma=GAMMA)
    config = LearnerConfig.paper(**PLAIN)
    horde = Horde(
        questions.model_of(option, [0], n_features=1), n_features=1, n_active=1, config=config
    )
    state = (np.zeros(1), np.array([0]))
    horde.begin(*state)
    for _ in range(500):
        horde.learn(0, 0.5, *state, reward=2.0)
    model = model_in(horde, option, [0])
    goes_on = GAMMA * (1.0 - beta)
    assert model.transition[0, 0] == pytest.approx(GAMMA * beta / (1.0 - goes_on))
    assert model.reward[0] == pytest.approx(2.0 / (1.0 - goes_on))


def test_all_questions_of_a_model_share_one_trace() -> None:
    model = questions.model_of(TO_THE_END, range(N_STATES))
    model_of_action = questions.model_of(ONE_STEP, range(N_STATES))
    groups = trace_groups([*model, *model_of_action], np.zeros(2 * N_STATES + 2, dtype=np.int64))
    assert groups.group.tolist() == [0] * (N_STATES + 1) + [1] * (N_STATES + 1)


# ---- subtasks -----------------------------------------------------------------------------------------------


def test_a_subtask_stops_where_that_is_worth_more_than_to_go_on() -> None:
    """To go right for ever is worth 10 in state 3: a bonus of 5 stops nowhere, one of 20 there alone.

    With it q(s, right) = -1 + .9 x 20 = 17 in state 2, 14.3 in 1; in 4 the way back is worth 17, too.
    """
    subtask = Subtask(feature=3, bonus=5.0, weights=np.zeros(N_STATES))
    model = [
        questions.control_of("reach 3", subtask, n_actions=2, gamma=GAMMA, lam=0.0, algorithm="qrc")
    ]
    corridor = Corridor.of(model, "plain").run(12_000)
    option = found(corridor.horde, "reach 3")
    assert isinstance(option.target_policy, GreedyIn)
    best = option.target_policy.weights.max(axis=0)
    np.testing.assert_allclose(best, [4.58, 6.2, 8.0, 10.0, 10.0], atol=0.01)
    stops = [option.stops(np.zeros(1), np.array([s])) for s in range(N_STATES)]  # type: ignore[operator]
    assert stops == [0.0] * N_STATES

    rich = Subtask(feature=3, bonus=20.0, weights=np.zeros(N_STATES))
    model = [
        questions.control_of("reach 3", rich, n_actions=2, gamma=GAMMA, lam=0.0, algorithm="qrc")
    ]
    option = found(Corridor.of(model, "plain").run(12_000).horde, "reach 3")
    assert isinstance(option.target_policy, GreedyIn)
    best = option.target_policy.weights.max(axis=0)
    np.testing.assert_allclose(best, [11.87, 14.3, 17.0, 1.0 + 17.0 * GAMMA, 17.0], atol=0.01)
    stops = [option.stops(np.zeros(1), np.array([s])) for s in range(N_STATES)]  # type: ignore[operator]
    assert stops == [0.0, 0.0, 0.0, 1.0, 0.0]


# ---- plans --------------------------------------------------------------------------------------------------


def test_a_plan_is_that_of_dynamic_programming() -> None:
    """Two options in each state, with exact models: the values solve v = max_o (r_o + N_o v)."""
    forward = GAMMA * np.eye(N_STATES)[np.minimum(np.arange(N_STATES) + 1, 4)]
    backward = GAMMA * np.eye(N_STATES)[np.maximum(np.arange(N_STATES) - 1, 0)]
    reward = np.where(np.arange(N_STATES) >= 3, 1.0, -1.0)
    models = [
        OptionModel("forward", reward, forward.T, np.arange(N_STATES)),
        OptionModel("backward", np.full(N_STATES, -1.0), backward.T, np.arange(N_STATES)),
    ]
    planner = Planner(models)
    for state in range(N_STATES):
        planner.remember(np.array([state]))
    planner.plan(np.random.default_rng(0), n_look_ahead=4_000)
    expected = np.zeros(N_STATES)
    for _ in range(500):
        expected = np.maximum(reward + forward @ expected, -1.0 + backward @ expected)
    np.testing.assert_allclose(planner.weights, expected, rtol=1e-9)
    assert planner.n_look_ahead == 4_000
    assert planner.option_values(np.array([0])).argmax() == 0


def test_values_of_options_are_renewed_when_due() -> None:
    """V = 1 + .5 v by turns: with values of u three states old it comes as far in three times the look-aheads."""
    model = OptionModel("stay", np.array([1.0]), np.array([[0.5]]), np.array([0]))
    lazy = Planner([model], renew_every=3)
    lazy.remember(np.array([0]))
    values = []
    for _ in range(7):
        lazy.look_ahead(np.array([0]))
        values.append(float(lazy.weights[0]))
    assert values == [1.0, 1.0, 1.0, 1.5, 1.5, 1.5, 1.75]


def test_several_active_features_share_a_step() -> None:
    """Two of three are active: a step of size 1 makes w.x the target, 6, with 3 each."""
    model = OptionModel("stay", np.array([2.0, 4.0, 9.0]), np.zeros((3, 3)), np.arange(3))
    planner = Planner([model])
    assert planner.look_ahead(np.array([0, 1])) == 6.0
    assert planner.weights.tolist() == [3.0, 3.0, 0.0]


def test_an_interrupted_plan_continues_to_the_bit() -> None:
    rng = np.random.default_rng(1)
    n = 6
    models = [
        OptionModel(f"{k}", rng.normal(size=n), 0.3 * rng.random((n, n)), np.arange(n))
        for k in range(3)
    ]

    def planner() -> Planner:
        return Planner(models, step_size=0.5, renew_every=7, n_remembered=4)

    whole = planner()
    first = planner()
    second = planner()
    draws = [np.random.default_rng(2) for _ in range(2)]
    for each in (whole, first):
        for state in range(6):
            each.remember(np.array([state, (state + 1) % n]))
    whole.plan(draws[0], 300)
    whole.plan(draws[0], 300)
    first.plan(draws[1], 300)
    second.restore(first.state())
    second.plan(draws[1], 300)
    np.testing.assert_array_equal(second.weights, whole.weights)
    assert second.n_look_ahead == whole.n_look_ahead == 600
    assert np.abs(whole.weights).max() > 0.1


def test_a_plan_goes_on_with_newer_models() -> None:
    """V = 1 + .5 v is 2; by a reward of 2 the next value is 3, at once, although the values u are not due yet."""
    model = OptionModel("stay", np.array([1.0]), np.array([[0.5]]), np.array([0]))
    planner = Planner([model], renew_every=2)
    planner.remember(np.array([0]))
    planner.plan(np.random.default_rng(0), 121)
    assert planner.weights[0] == pytest.approx(2.0)
    planner.take([model._replace(reward=np.array([2.0]))])
    assert planner.look_ahead(np.array([0])) == pytest.approx(3.0)
    planner.plan(np.random.default_rng(0), 121)
    assert planner.weights[0] == pytest.approx(4.0)


@pytest.mark.parametrize("n_steps", [8 * PLAN_EVERY, 8 * PLAN_EVERY + 30])
def test_a_life_that_plans_continues_to_the_bit(n_steps: int) -> None:
    """A found option, models of two, and a plan with them. Saved at a plan, whose models are those of the Horde.

    Saved between two plans, the next one is the same, too: it takes the models of its own step.
    """
    whole = PlannedLife().run(20 * PLAN_EVERY)
    first = PlannedLife().run(n_steps)
    second = PlannedLife().restore(first.state()).run(20 * PLAN_EVERY)
    assert second.results() == whole.results()
    assert np.abs(whole.planner.weights).max() > 1.0


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_a_killed_life_that_plans_equals_one_without_kills(tmp_path: Path) -> None:
    """SIGKILL at random moments after a new snapshot."""
    n_steps = 400 * PLAN_EVERY
    n_kills, results = live_with_kills(tmp_path, n_steps, kills=20)
    assert n_kills == 20
    assert results == PlannedLife().run(n_steps).results()


# ---- question files -----------------------------------------------------------------------------------------

OPTION = """
[[option]]
name = "ahead"
policy = "right"
gamma = 0.9
stops = [4]
"""


def walk() -> Interface:
    import gymnasium

    return Interface.of(gymnasium.make("horde_agent/RandomWalk-v0"))


def test_a_question_file_asks_for_the_model_of_an_option(tmp_path: Path) -> None:
    interface = walk()
    (tmp_path / "q.toml").write_text(OPTION)
    model = questions.from_file(tmp_path / "q.toml", interface)
    option = Option("ahead", ConstantAction(1, 2), StopAt((4,)), 0.9)
    assert model == questions.model_of(option, range(interface.coder.n_features))
    (tmp_path / "q.toml").write_text(OPTION.replace("stops = [4]", "features = [2, 0]"))
    model = questions.from_file(tmp_path / "q.toml", interface)
    assert [question.name for question in model] == [
        "ahead/reward",
        "ahead/feature_2",
        "ahead/feature_0",
    ]
    assert model[1].continuation == 0.0


STAY = OptionModel("stay", np.zeros(2), np.zeros((1, 2)), np.array([0]))

# ---- invalid input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Option("o", RIGHT, stops=1.5), "option 'o': stops must be in"),
        (lambda: Option("o", RIGHT, stops=lambda tiles: 1.0), "stops must be a function of"),
        (lambda: Option("o", RIGHT, gamma=1.0), "option 'o': gamma must be in"),
        (lambda: Option("o", "right"), "target_policy must give probabilities"),  # type: ignore[arg-type]
        (lambda: StopAt(()), "at least one feature"),
        (lambda: ONE_STEP.check(3, 9), "its policy has 2 actions, expected 3"),
        (
            lambda: Option("o", GreedyIn(np.zeros((2, 4)))).check(2, 9),
            "its policy is one of 4 features, expected 9",
        ),
        (
            lambda: questions.model_of(Option("o", RIGHT, StopAt((9,))), [0], n_features=9),
            "its stopping rule reads 10 features, and there are 9",
        ),
        (
            lambda: Option("o", RIGHT, StopForSubtask(Subtask(1, 1.0, np.zeros(4)), "q")).check(
                2, 9
            ),
            "its stopping rule reads 4 features, and there are 9",
        ),
        (lambda: questions.model_of(ONE_STEP, [9], n_features=9), "to predict feature 9"),
        (lambda: questions.model_of(ONE_STEP, [1, 1]), "must be different"),
        (
            lambda: questions.model_of(ONE_STEP, range(200_000), n_features=10**9),
            "its model is 200,001 demons of 1,000,000,000 features, whose weights need 1,600,008.0 GB",
        ),
        (lambda: Subtask(4, 1.0, np.zeros(4)), "must be one of the 4"),
        (
            lambda: model_in(Corridor.of([feature_alone()]).horde, "right", [0]),
            "no question 'right/reward' about its reward, without which there is nothing to plan for",
        ),
        (
            lambda: model_in(
                Corridor.of(questions.model_of(ONE_STEP, [0])).horde, ONE_STEP, [0, 1]
            ),
            "no question 'right/feature_1'",
        ),
        (lambda: Planner([]), "at least one option"),
        (lambda: Planner([STAY, STAY]), "must have different names, not stay, stay"),
        (lambda: Planner([STAY], weights=np.zeros(3)), "must be 2 finite numbers"),
        (lambda: Planner([STAY], weights=np.full(2, np.nan)), "must be 2 finite numbers"),
        (lambda: Planner([STAY]).remember(np.array([2])), "each below 2, not 1 from 2 to 2"),
        (
            lambda: Planner([STAY]).plan(np.random.default_rng(0), -1),
            "n_look_ahead must be a whole number of at least 0",
        ),
        (lambda: Planner([STAY]).take([STAY._replace(name="go")]), "models of go over 2 features"),
        (
            lambda: Planner([STAY]).restore(Planner([STAY, STAY._replace(name="go")]).state()),
            "restore it with the models that it was saved with",
        ),
        (lambda: StopAt(3), "features of a stop must be several, not 3"),  # type: ignore[arg-type]
        (lambda: StopAt((10**12,)), "must be below 100,000,000, not 1,000,000,000,000"),
        (lambda: Option("", RIGHT), "name of an option must be a text, not ''"),
        (
            lambda: found(Corridor.of([feature_alone()]).horde, "x"),
            "no question 'x' finds an option",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda: questions.model_of(Option("o", RIGHT, StopAt((9,))), [0]),
            "question 'o/reward': its stopping rule reads 10 features, and there are 5",
        ),
        (
            lambda: questions.model_of(Option("o", GreedyIn(np.zeros((2, 4)))), [0]),
            "question 'o/reward': its policy is one of 4 features, expected 5",
        ),
        (
            lambda: questions.model_of(Option("o", Gibbs.random(0, 2, 6)), [0]),
            "question 'o/reward': n_features of its Gibbs policy, 6, differs from the Horde's 5",
        ),
        (
            lambda: [questions.control_of("c", Subtask(1, 1.0, np.zeros(3)), 2)],
            "question 'c': its stopping rule reads 3 features, and there are 5",
        ),
        (
            lambda: (
                questions.model_of(Option("o", ConstantAction(0, 3)), [0])
                + questions.model_of(ONE_STEP, [0])
            ),
            "the target policies have different numbers of actions",
        ),
        (
            lambda: questions.model_of(ONE_STEP, [0]) + questions.model_of(ONE_STEP, [0]),
            "must have different names; 'right/reward' is there twice",
        ),
    ],
)
def test_a_horde_refuses_options_that_do_not_fit_its_features(make: Any, match: str) -> None:
    """Without a word a rule of feature 9 never stopped in a Horde of five, and a policy of four failed at the fifth."""
    with pytest.raises(ValueError, match=match):
        Corridor.of(make(), engine="plain")


def feature_alone() -> Any:
    return questions.model_of(ONE_STEP, [0])[1]


def test_a_rule_without_action_values_says_where_they_are() -> None:
    stops = StopForSubtask(Subtask(1, 1.0, np.zeros(4)), of="q")
    with pytest.raises(RuntimeError, match="take it from the questions of a Horde"):
        stops(np.zeros(1), np.array([0]))


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("stops = [4]", "stops = [999]", "number 1: option 'ahead': its stopping rule reads 1,000"),
        (
            "stops = [4]",
            "stops = 4",
            "q.toml: [[option]] number 1: stops must be a list that is not empty",
        ),
        ("right", "rihgt", "names the unknown policy 'rihgt'; there are left, right, uniform"),
        ("gamma = 0.9", "gamma = 1.0", "number 1: option 'ahead': gamma must be in"),
        ("stops", "stop", "stop"),
    ],
)
def test_an_option_of_a_file_that_does_not_fit_is_refused(
    tmp_path: Path, old: str, new: str, match: str
) -> None:
    (tmp_path / "q.toml").write_text(OPTION.replace(old, new))
    with pytest.raises(ValueError, match=re.escape(match)):
        questions.from_file(tmp_path / "q.toml", walk())
