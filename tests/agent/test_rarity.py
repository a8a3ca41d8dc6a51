"""Step sizes by the rarity of features; their effect on weights through any events: `test_engine_contract.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from horde_agent import GVF, Behaviour, Channel, ConstantAction, Greedy, Horde, LearnerConfig
from horde_agent.learning import rarity
from horde_agent.learning.rarity import classified, next_classification
from tests.agent.hordes import BEHAVIOUR, N_ACTIONS, N_ACTIVE, N, RandomLife, ask, make
from tests.bench.random_mdps import learn, random_mdp


def test_a_feature_that_is_active_a_sixteenth_as_often_learns_four_times_as_fast() -> None:
    """With 30 imagined states: shares 1, .26, .12 and .0127 of 6,970 states."""
    visits = np.array([6_970, 1_790, 810, 59])
    classes = classified(visits, 6_970)
    assert classes.class_of.tolist() == [0, 0, 1, 2]
    factor = classes.scale_of
    np.testing.assert_allclose(factor[1:] / factor[:-1], 4.0, rtol=1e-12)
    mean_norm = (visits * factor[classes.class_of]).sum() / 6_970
    assert mean_norm == pytest.approx(visits.sum() / 6_970)


def test_features_are_alike_in_the_first_states() -> None:
    assert classified(np.array([9, 1, 0]), 9).class_of.tolist() == [0, 0, 0]


def test_features_are_classified_seldomer_as_time_passes() -> None:
    step = rarity.FIRST
    steps = []
    while step < 300_000:
        steps.append(step)
        step = next_classification(step)
    assert steps[:3] == [64, 128, 192]
    assert all(step % 64 == 0 for step in steps)
    intervals = np.diff(steps)
    beginnings = np.array(steps[:-1])
    assert steps[3:8] == [256, 384, 576, 832, 1_216]
    assert set(intervals[beginnings >= 16_384]) == {8_192}


@pytest.mark.parametrize(
    ("visits", "n_states", "class_of"),
    [(10, 129, 0), (10, 130, 1), (2, 2_017, 1), (2, 2_018, 2)],
)
def test_a_share_at_a_boundary_belongs_to_the_rarer_class(
    visits: int, n_states: int, class_of: int
) -> None:
    """40 of 160 states are 1/4, and 32 of 2,048 are 1/64."""
    assert classified(np.array([n_states, visits]), n_states).class_of.tolist() == [0, class_of]


@pytest.mark.parametrize(("n_states", "class_of"), [(65, 0), (89, 0), (90, 1), (100_000, 1)])
def test_a_feature_that_was_never_active_is_not_of_the_rarest_class(
    n_states: int, class_of: int
) -> None:
    """Its share is 30 / (n + 30), and 1/4 at 90 states; from 1,890 on one that was seen would be of class 2."""
    assert classified(np.array([n_states, 0]), n_states).class_of.tolist() == [0, class_of]


def first_classification_after(step: int) -> int:
    """Return the learning step of a classification."""
    classified_at = rarity.FIRST
    while classified_at < step:
        classified_at = next_classification(classified_at)
    return classified_at


@pytest.mark.parametrize("mode", ["eager", "deferred"])
@pytest.mark.parametrize(("n_steps", "factor"), [(64, 1), (128, 4), (2_000, 4)])
def test_the_first_visits_of_a_new_place_have_no_larger_steps_than_its_class(
    n_steps: int, factor: int, mode: Any
) -> None:
    """One question about the next reading, 1; alpha is .01, and the first tiles are active in all states before.

    With the rarest class before anything was seen, the first visit had a factor of 16.
    """
    horde = make([ask("next", BEHAVIOUR, Channel(0), 0.0)], mode=mode, rarity=True, step_size=0.04)
    reading = np.ones(1)
    common = np.arange(N_ACTIVE)
    horde.begin(reading, common)
    for _ in range(first_classification_after(n_steps)):
        horde.learn(0, 1.0, reading, common)
    new = common + N_ACTIVE
    horde.learn(0, 1.0, reading, new)
    assert horde.predict(new) == 0.0
    gained = []
    for _ in range(2):
        value = horde.predict(new)
        horde.learn(0, 1.0, reading, new)
        gained.append(((horde.predict(new) - value) / (1.0 - value)).item())
    np.testing.assert_allclose(gained, factor * 0.04, rtol=1e-12)


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_no_step_takes_a_prediction_beyond_its_target(mode: Any) -> None:
    """One state, whose reading is 1: a step of alpha = .5 with rho = 10 would take the prediction to 5.

    The step size is then a fifth in all steps until features are classified again, after 64.
    """
    horde = make(
        [ask("next", ConstantAction(0, 10), Channel(0), 0.0)],
        mode=mode,
        rarity=True,
        step_size=0.5,
    )
    tiles = np.arange(N_ACTIVE)
    horde.begin(np.ones(1), tiles)

    def gained(probability: float) -> float:
        """Return the change of the prediction by a step whose TD error is 1."""
        previous = horde.predict(tiles).item()
        horde.learn(0, probability, np.full(1, previous + 1.0), tiles)
        return float(horde.predict(tiles).item() - previous)

    assert gained(0.1) == pytest.approx(1.0, abs=1e-12)
    assert gained(1.0) == pytest.approx(0.1, abs=1e-12)
    for _ in range(62):
        horde.learn(1, 0.9, np.ones(1), tiles)  # rho = 0
    assert gained(1.0) == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_the_trace_counts_for_the_bound_of_a_step(mode: Any) -> None:
    """One state, on policy: with alpha = .5 and lambda = 1, alpha e.phi is .5, .95, 1.355, ... and 5 at last.

    Without the bound the prediction of a constant 1 at gamma = .9 passes 10, its value, at the third step.
    """
    horde = make(
        [ask("sum", BEHAVIOUR, Channel(0), 0.9, lam=1.0)],
        mode=mode,
        rarity=True,
        step_size=0.5,
        secondary_ratio=0.0,
    )
    tiles = np.arange(N_ACTIVE)
    horde.begin(np.ones(1), tiles)
    value = 0.0
    trace = 0.0
    for _ in range(40):
        horde.learn(0, 1.0, np.ones(1), tiles)
        trace = 0.9 * trace + 1.0
        value += 0.5 / max(1.0, 0.5 * trace) * trace * (1.0 + 0.9 * value - value)
        assert horde.predict(tiles) == pytest.approx(value, rel=1e-12)


SLOW = pytest.mark.slow  # each rule compiles for half a minute
IDENTITIES: list[Any] = [
    pytest.param("tdrc:beta=0", "gtd", {}, {}),
    pytest.param("vtrace", "td", {}, {}, marks=SLOW),
    pytest.param("gtd", "td", {"secondary_ratio": 0.0}, {}, marks=SLOW),
    pytest.param("etd", "td", {"trace_rule": "plain"}, {"lam": 1.0}, marks=SLOW),
    pytest.param("true_online_td", "td", {}, {"lam": 0.0}, marks=SLOW),
]


@pytest.mark.parametrize(("one", "other", "settings", "question"), IDENTITIES)
def test_rules_with_bounded_steps_are_equal_where_the_algebra_says_so(
    one: str, other: str, settings: dict[str, Any], question: dict[str, Any]
) -> None:
    """The step size is .1 and rho up to 2.5 with four active tiles: every rule has to apply the same factor."""
    questions = [
        ask("forward", ConstantAction(0, N_ACTIONS), **question),
        ask("off-policy", cumulant=Channel(1), continuation=0.5, **question),
    ]
    common: Any = {"engine": "auto", "rarity": True, "step_size": 0.4}
    hordes = [
        make(questions, algorithm=one, **common, **settings),
        make(questions, algorithm=other, **common, **settings),
    ]
    RandomLife(*hordes, p_break=0.02).run(300)
    weights, want = (horde.weights()[0] for horde in hordes)
    np.testing.assert_allclose(weights, want, rtol=0, atol=1e-11)
    assert np.abs(want).max() > 0.01


DIVERGED = (6, 42, 57)
"""Problems of `tests.bench.random_mdps` on which c alone, without a bound, diverges."""


@pytest.mark.parametrize("seed", DIVERGED)
def test_no_tabular_problem_diverges(seed: int) -> None:
    """A state that takes nearly all of the time, others of class 2, ratios up to 10."""
    result = learn(random_mdp(seed), 20_000, seed, LearnerConfig.paper(rarity=True))
    assert not any(result.is_diverged)


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_averages_follow_weights_that_learn_by_rarity(
    mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A feature is active in .16 of the states: the boundaries are set so that all classes occur."""
    monkeypatch.setattr(rarity, "BOUNDARIES", (0.165, 0.155))
    monkeypatch.setattr(rarity, "N_IMAGINED", 1)
    horde = make([ask("off-policy")], mode=mode, rarity=True, average=100.0, step_size=0.1)
    life = RandomLife(horde, p_break=0.02)
    average = np.zeros(N)
    for step in range(1, 300):
        life.run(1)
        if step % 10 == 0:
            rate = max(1.0 - ((step - 10) / step) ** 5, -np.expm1(-10 / 100.0))
            average += rate * (horde.weights()[0][0] - average)
    np.testing.assert_allclose(horde.averaged_weights()[0], average, rtol=0, atol=1e-12)
    alike = make([ask("off-policy")], mode=mode, average=100.0, step_size=0.1)
    RandomLife(alike, p_break=0.02).run(299)
    assert np.abs(alike.weights()[0] - horde.weights()[0]).max() > 0.01


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_both_engines_learn_and_predict_the_same_with_the_defaults(
    mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets that follow the reading, averages of the first steps on, and features of all classes."""
    monkeypatch.setattr(rarity, "BOUNDARIES", (0.165, 0.155))
    monkeypatch.setattr(rarity, "N_IMAGINED", 1)
    questions = [ask("off-policy"), ask("on-policy", BEHAVIOUR, Channel(1), 0.9)]
    hordes = []
    for engine in ("auto", "plain"):
        config = LearnerConfig(engine=engine, dtype="float64", average=200.0)
        hordes.append(Horde(questions, n_features=N, n_active=N_ACTIVE, config=config, mode=mode))
    life = RandomLife(*hordes, p_break=0.02)
    life.run(400)
    observation, tiles = life.state
    results = [
        (
            *horde.weights(),
            horde.averaged_weights(),
            horde.shifts,
            horde.predictions,
            horde.predict(tiles[::-1].copy(), observation),
            horde.td_error,
        )
        for horde in hordes
    ]
    for of_span, of_plain in zip(*results, strict=True):
        np.testing.assert_allclose(of_span, of_plain, rtol=0, atol=1e-11)
    assert all(horde.reading_shares.any() and horde.shifts.all() for horde in hordes)


def test_rules_that_only_the_plain_engine_has_learn_as_without() -> None:
    control = GVF("find", Greedy(N_ACTIONS), Channel(0), 0.8, algorithm="greedy_gq")
    settings: Any = {"engine": "auto", "average": 0.0}
    with_rarity = make([control, ask("forward")], rarity=True, **settings)
    without = make([control, ask("forward")], **settings)
    RandomLife(with_rarity, without).run(200)
    for demons, is_same in ((np.array([0]), True), (np.array([1]), False)):
        weights = [horde.weights(demons)[0] for horde in (with_rarity, without)]
        assert np.array_equal(*weights) == is_same


def test_a_rule_that_comes_later_continues_with_the_counts_of_the_others() -> None:
    """No state of 200 had the new tile, so the new rule's demon has the larger step size, too."""
    horde = Horde(
        [GVF("old", Behaviour(), Channel(0), 0.0)],
        n_features=2,
        n_active=1,
        config=LearnerConfig.paper(rarity=True, step_size=0.01, dtype="float64"),
    )
    reading = np.ones(1)
    horde.begin(reading, np.array([0]))
    for _ in range(200):
        horde.learn(0, 1.0, reading, np.array([0]))
    horde.add([GVF("new", Behaviour(), Channel(0), 0.0, algorithm="tdrc")])
    for _ in range(2):
        horde.learn(0, 1.0, reading, np.array([1]))
    old, new = horde.predict(np.array([1]))
    assert old == pytest.approx(4 * 0.01, rel=1e-6)
    assert new == pytest.approx(4 * 0.05, rel=1e-6)


@pytest.mark.parametrize("n_streams", [1, 2])
def test_a_rule_that_comes_later_counts_the_current_states_once(n_streams: int) -> None:
    """The factors of two tiles after 128 steps are those of 128 states and the first of each stream.

    With the current states counted twice, the new rule's factors are about 1 % larger.
    """
    visits = np.zeros(2, dtype=np.int64)
    horde = Horde(
        [GVF("old", Behaviour(), Channel(0), 0.0)],
        n_features=2,
        n_active=1,
        config=LearnerConfig.paper(rarity=True, step_size=0.01, dtype="float64"),
    )

    def tile(index: int) -> np.ndarray:
        visits[index] += 1
        return np.array([index])

    def gained(index: int) -> np.ndarray:
        """Return the share of the error that each demon learns in a visit of a tile."""
        horde.learn(0, 1.0, np.ones(1), tile(index))
        previous = horde.predict(np.array([index]))
        horde.learn(0, 1.0, np.ones(1), tile(0))
        return np.asarray((horde.predict(np.array([index])) - previous) / (1.0 - previous))

    for stream in range(n_streams):
        horde.select_stream(stream)
        horde.begin(np.ones(1), tile(1))
    for _ in range(100):
        horde.learn(0, 1.0, np.ones(1), tile(0))
    horde.learn(0, 1.0, np.ones(1), tile(1))
    horde.add([GVF("new", Behaviour(), Channel(0), 0.0, algorithm="tdrc")])
    while visits.sum() < 128 + n_streams:
        horde.learn(0, 1.0, np.ones(1), tile(int(visits[1] < 6)))
    scale = classified(visits, int(visits.sum()))
    assert scale.class_of.tolist() == [0, 1]
    for index in range(2):
        factor = scale.scale_of[scale.class_of[index]]
        np.testing.assert_allclose(gained(index), factor * np.array([0.01, 0.05]), rtol=1e-12)


REFUSED: list[dict[str, Any]] = [{"trace_rule": "capped"}, {"algorithm": "autostep"}]


@pytest.mark.parametrize("settings", REFUSED)
def test_options_without_a_fast_engine_are_refused_with_it(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^rarity needs the fast engine.*omit it"):
        LearnerConfig.paper(rarity=True, **settings)


def test_copies_of_a_horde_merge_what_they_learned_with_their_own_step_sizes() -> None:
    """Rare tiles are rare in the first stream alone, which learns them four times as fast; merging takes the means."""
    horde = make([ask("next", BEHAVIOUR, Channel(0), 0.0)], "plain", rarity=True, step_size=0.04)
    common = np.arange(N_ACTIVE)
    rare = common + N_ACTIVE
    horde.begin(np.ones(1), common)
    copy = horde.copy_for_stream()
    copy.begin(np.ones(1), common)
    for step in range(128):
        horde.learn(0, 1.0, np.ones(1), common)
        copy.learn(0, 1.0, np.ones(1), (common, rare)[step % 2])
    for one in (horde, copy):
        one.learn(0, 1.0, np.ones(1), rare)
        one.learn(0, 1.0, np.ones(1), common)
    weights = [one.weights()[0] for one in (horde, copy)]
    assert weights[0][0, rare[0]] == pytest.approx(4 * 0.01, rel=1e-9)
    horde.merge([copy])
    for one in (horde, copy):
        np.testing.assert_allclose(one.weights()[0], np.mean(weights, axis=0), rtol=1e-12)


def test_real_valued_features_which_nobody_counts_are_learned_without_it() -> None:
    horde = Horde([ask("a")], n_features=4, n_active=1, real_valued=True)
    assert horde.config == LearnerConfig(engine="plain", rarity=False, lstd=0)
    phi = np.array([0.5, 0.0, 1.0, 0.0])
    horde.begin(np.ones(1), phi)
    horde.learn(0, 1.0, np.zeros(1), phi)
    np.testing.assert_array_equal(horde.weights()[0][0] != 0.0, phi != 0.0)
