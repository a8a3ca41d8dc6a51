"""Questions added and removed during a life."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import (
    GVF,
    Channel,
    EpsilonGreedy,
    Horde,
    Interface,
    LearnerConfig,
    Life,
    Prediction,
    Uniform,
)
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.learner import StreamLearner
from horde_agent.life.life import StepEvent
from horde_agent.life.observers import MspbeWatch, Sampler
from horde_agent.record import Phase, Recorder
from horde_agent.scoring import excursion_table, two_pass_nmsre
from horde_agent.scoring.excursion_table import ExcursionTable
from tests.agent.doubles import ToyBody, constant, horde_of, toy_life, toy_questions

OFTEN = ExcursionConfig(probability=0.1, horizon=5)
FACE = Interface.of(ToyBody())
CONFIG: dict[str, Any] = {"dtype": "float64", "secondary_ratio": 0.5}


def life_of(horde: Horde, **further: Any) -> Life:
    return toy_life(
        ToyBody(), horde, seed=5, **{"excursions": OFTEN, "recorder": Recorder(3)} | further
    )


def new_questions() -> list[GVF]:
    return [GVF(f"new/{action}", constant(action), Channel(1), 0.5, lam=0.4) for action in range(3)]


def returns_by_step(life: Life, name: str) -> dict[int, float]:
    """Return what the excursions that tested a demon measured, by the step at which they began."""
    demon = life.horde.names.index(name)
    returns = {}
    for outcome in life.student.errors.table.outcomes():
        if demon in outcome.policy.demons:
            column = outcome.policy.demons.tolist().index(demon)
            measured = zip(outcome.step.tolist(), outcome.returns[:, column].tolist(), strict=True)
            returns |= {step: g for step, g in measured if not np.isnan(g)}
    return returns


def test_old_demons_learn_as_if_none_had_been_added_or_removed() -> None:
    """Weights, predictions and scores of a life in which three come at step 301 and three of old go at step 502."""
    alone, visited = (horde_of(toy_questions(), FACE, **CONFIG) for _ in range(2))
    with life_of(alone) as life:
        life.run(900)
    removed_names = [visited.names[k] for k in (0, 7, 17)]
    stays = [k for k in range(18) if k not in (0, 7, 17)]
    with life_of(visited) as other:
        other.run(301)
        other.add(new_questions())
        other.run(201)
        other.remove(removed_names)
        other.run(398)

    assert other.steps == life.steps == 900
    assert other.student.learning_steps == life.student.learning_steps
    assert visited.names[:15] == [alone.names[k] for k in stays]
    np.testing.assert_allclose(
        visited.weights()[0][:15], alone.weights()[0][stays], rtol=1e-9, atol=1e-12
    )
    errors = other.student.errors
    theirs = life.student.errors
    assert errors.n_excursions == theirs.n_excursions > 20
    assert errors.n_tests[:15].tolist() == theirs.n_tests[stays].tolist()
    np.testing.assert_allclose(errors.nmsre()[:15], theirs.nmsre()[stays], rtol=1e-9)
    assert len(other.recorder.stream()) == len(life.recorder.stream())  # type: ignore[union-attr]


def test_a_new_demon_learns_and_is_scored_from_the_next_transition_on() -> None:
    """Its returns are those of the excursions that began after it came; the online mean counts it then too."""
    old = toy_questions()[::-1]  # the returns of the last one vary
    early, late = (
        horde_of(questions, FACE, **CONFIG) for questions in ([*old, *new_questions()], old)
    )
    with life_of(early) as life:
        life.run(900)
    with life_of(late) as other:
        other.run(400)
        came_at = other.steps
        other.add(new_questions())
        assert not late.predictions[18:].any(), "its weights are 0"
        other.run(500)

    for name in ("new/0", "new/1", "new/2"):
        whole = returns_by_step(life, name)
        later_returns = {step: g for step, g in whole.items() if step >= came_at}
        assert returns_by_step(other, name) == pytest.approx(later_returns)
        demon = late.names.index(name)
        assert other.student.errors.n_tests[demon] == len(later_returns) >= 2
        assert len(later_returns) < len(whole)
    final = other.student.errors.nmsre()
    assert np.isfinite(final).all()
    assert other.student.errors.latest_mean == pytest.approx(final.mean()), (
        "its variance is that of its returns"
    )
    assert late.weights()[0][18:].any()


@pytest.mark.parametrize("mode", ["eager", "deferred"])
def test_in_the_middle_of_an_excursion_those_that_stay_are_still_tested(mode: str) -> None:
    """At the third step of the first excursion: it is scored for those that stay, and for no other."""
    changed: list[int] = []

    def change(event: StepEvent) -> None:
        rows.append(event.row)
        if len(rows) > 3 and all(row.phase is Phase.EXCURSION for row in rows[-3:]) and not changed:
            action = event.row.action
            changed.append(action)
            event.life.add([GVF("new", constant(action), Channel("saw"), 0.8)])
            event.life.remove([f"{FACE.actions[action]}/g0/age"])

    rows: list[Any] = []
    undisturbed, horde = (horde_of(toy_questions(), FACE, mode, **CONFIG) for _ in range(2))
    with life_of(undisturbed) as life:
        life.run(300)
    with life_of(horde, observers=[change]) as other:
        other.run(300)

    (action,) = changed
    outcomes, theirs = (list(one.student.errors.table.outcomes()) for one in (other, life))
    assert [o.step.tolist() for o in outcomes] == [o.step.tolist() for o in theirs]
    tested, reference = (
        next(o for o in found if o.policy.action == action) for found in (outcomes, theirs)
    )
    np.testing.assert_array_equal(tested.returns[:, :5], reference.returns[:, 1:])
    np.testing.assert_allclose(
        tested.predictions[:, :5], reference.predictions[:, 1:], rtol=1e-9, atol=1e-12
    )
    assert np.isnan(tested.returns[0, 5])
    assert not np.isnan(tested.returns[1:, 5]).any()
    assert horde.names[-1] == "new"


def test_policies_of_new_demons_are_tested_and_those_of_removed_ones_are_not() -> None:
    horde = horde_of(toy_questions()[:6], FACE, **CONFIG)  # about "left" alone
    with life_of(horde, excursions=ExcursionConfig(probability=0.2, horizon=3)) as life:
        life.run(100)
        life.add(
            [
                GVF("even", Uniform(3), Channel("saw"), 0.5),
                GVF("after", Uniform(3), Prediction("even"), 0.5),
            ]
        )
        life.run(200)
        life.remove(old.name for old in toy_questions()[:6])  # type: ignore[arg-type]
        n_before = life.student.errors.n_excursions
        life.run(300)
    rows = life.recorder.stream().rows  # type: ignore[union-attr]
    followed = [
        (step, tag) for step, tag, phase in rows[["step", "policy", "phase"]].tolist() if phase == 1
    ]
    tags = {policy.name: policy.tag for policy in life.student.errors.policies}

    assert list(tags) == ["Uniform"]
    assert {tag for step, tag in followed if step >= 310} == {tags["Uniform"]}
    assert len({tag for step, tag in followed if 110 <= step < 300}) == 2
    assert tags["Uniform"] not in {tag for step, tag in followed if step < 100}
    assert horde.names == ["even", "after"]
    assert life.student.errors.n_excursions > n_before
    assert (
        sum(len(o.step) for o in life.student.errors.table.outcomes())
        < life.student.errors.n_excursions
    )
    assert (life.student.errors.n_tests > 10).all()


def test_observers_continue_when_demons_change() -> None:
    """Counts of updates continue for old demons and start at 0 for new ones."""
    horde = horde_of(toy_questions(), FACE, **CONFIG)
    seen: list[int] = []
    sampler = Sampler(every=100)
    with life_of(horde, excursions=ExcursionConfig(0.0)) as life:
        life.run(50)
        watch = MspbeWatch(horde)
        earlier_totals = horde.ratio_totals()[0].copy()
        life.observers += [watch, sampler, lambda event: seen.append(event.row.step)]
        life.run(100)
        counted = watch.n_updates
        life.add(new_questions())
        assert watch.n_updates.tolist() == [*counted.tolist(), 0, 0, 0]
        life.remove([horde.names[0]])
        life.run(150)

    actions = life.recorder.stream().rows["action"]  # type: ignore[union-attr]
    first = watch.n_updates[0]  # of "left" once its first question is gone
    assert first == (actions[50:300] == 0).sum() == horde.ratio_totals()[0][0] - earlier_totals[1]
    assert watch.n_updates[17:].tolist() == [
        (actions[150:300] == action).sum() for action in range(3)
    ]
    assert counted[0] == (actions[50:150] == 0).sum()
    assert watch.is_valid.tolist() == (watch.n_updates >= 20).tolist()
    assert watch.effective_sample_size().shape == (20,)
    assert seen == list(range(50, 301))
    assert [sample.step for sample in sampler.samples] == [100, 200, 300]


def test_a_long_curve_of_samples_is_thinned_by_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 60 samples, in blocks of 8: all after 48, every 2nd of the 8 before, every 4th of 16, every 8th of 32."""
    monkeypatch.setattr(excursion_table, "BLOCK", 8)
    monkeypatch.setattr(two_pass_nmsre, "EVERY", 2)
    sampler = Sampler(every=3)
    horde = horde_of(toy_questions(), FACE, **CONFIG)
    with life_of(horde, observers=[sampler], excursions=ExcursionConfig(0.0)) as life:
        life.run(50)
        second_sampler = Sampler(every=3)
        second_sampler.restore(sampler.state())
        life.observers += [second_sampler]
        life.run(130)
    expected = [*range(8, 25, 8), *range(28, 41, 4), *range(42, 49, 2), *range(49, 61)]
    for one in (sampler, second_sampler):
        assert [sample.step for sample in one.samples] == [3 * number for number in expected]


@pytest.mark.parametrize("n_bytes", [1 << 20, 500])
def test_recorded_excursions_read_back_over_comings_and_goings(
    n_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one piece, or in several."""
    monkeypatch.setattr(excursion_table, "CHUNK_BYTES", n_bytes)
    path = tmp_path / "excursions.rec"
    horde = horde_of(toy_questions(), FACE, **CONFIG)
    with life_of(horde) as life:
        life.student.errors.table.record_to(path)
        life.run(300)
        # No number before age 450
        odd = GVF("odd", Uniform(3), lambda o, t: np.nan if o[0] < 0.045 else 1.0, 0.5)
        greedy = EpsilonGreedy(lambda o, t: [0.0, o[1], 0.5], 3)
        further = [
            odd,
            GVF("even", Uniform(3), lambda o, t: float(o[1]), 0.5),
            GVF("rather", greedy, Channel(1), 0.5),
        ]
        life.add([*new_questions(), *further])
        life.run(300)
        life.remove(horde.names[:6])
        life.run(300)
    table = ExcursionTable.read(path)
    outcomes = table.outcomes()

    assert table.n_demons == 18
    live_outcomes = list(life.student.errors.table.outcomes())
    assert len(live_outcomes) == len(outcomes) == 5
    of_even = next(outcome for outcome in live_outcomes if outcome.policy.name == "Uniform")
    assert 0 < np.isnan(of_even.returns[:, 0]).sum() < len(of_even.returns)
    assert not np.isnan(of_even.returns[:, 1]).any()
    for mine, read in zip(live_outcomes, outcomes, strict=True):
        assert read.policy.name == mine.policy.name
        for ours, theirs in zip(mine[1:], read[1:], strict=True):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(read.policy.gamma, mine.policy.gamma)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "excursions-2.rec",
        "excursions-3.rec",
        "excursions.rec",
    ]


def test_predictions_fed_back_keep_their_places_and_cannot_go() -> None:
    """The second demon's prediction is fed back; removing the first demon does not change the tiles."""
    questions = [
        GVF("first", constant(0), Channel(0), 0.5),
        GVF("saw", constant(1), Channel(1), 0.5),
    ]
    looped = FACE.feeding_back(questions, [{"questions": ["saw"], "intervals": [16], "tilings": 2}])
    hashes = []
    for removes in (False, True):
        horde = horde_of(questions, looped, **CONFIG)
        with life_of(horde, interface=looped, excursions=ExcursionConfig(0.0)) as life:
            life.run(100)
            with pytest.raises(
                ValueError,
                match=r"'saw'.*fed back",
            ):
                life.remove(["saw"])
            if removes:
                life.remove(["first"])
            life.run(100)
        hashes.append(horde.weights()[0][-1])
    np.testing.assert_allclose(hashes[0], hashes[1], rtol=1e-9)


def test_an_invalid_change_of_questions_changes_nothing() -> None:
    horde = horde_of(toy_questions(), FACE, **CONFIG)
    with life_of(horde) as life:
        life.run(50)
        for questions, words in (
            ([GVF("q", Uniform(5), Channel(0), 0.5)], "5 actions, but the body has 3"),
            (
                [GVF("q", Uniform(3), Channel("smell"), 0.5)],
                "unknown channel 'smell'; there are age, saw, last",
            ),
            ([GVF("q", Uniform(3), Channel(7), 0.5)], "channel 7, but the body has only 0..2"),
            ([toy_questions()[0]], "different names"),
            (["q"], "questions must be GVFs; number 0 is 'q'"),
        ):
            with pytest.raises(ValueError, match=words):
                life.add(questions)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="names must be a list of names"):
            life.remove(["nobody"])
        life.add([])
        life.remove([])
        life.run(50)
    assert horde.names == [q.name for q in toy_questions()]
    assert life.steps == 100


def test_objects_that_were_not_notified_raise_with_advice() -> None:
    horde = horde_of(toy_questions(), FACE, **CONFIG)
    student = StreamLearner(horde, FACE)
    watch = MspbeWatch(horde)
    horde.remove([horde.names[0]])
    with pytest.raises(
        RuntimeError, match=r"use Life.add and Life.remove, or make a new StreamLearner"
    ):
        student.observe(np.zeros(3, np.float32), 0)
    with pytest.raises(
        RuntimeError, match=r"use Life.add and Life.remove, or make a new MspbeWatch"
    ):
        watch.n_updates  # noqa: B018


@pytest.mark.parametrize("rarity", [True, False])
def test_a_horde_takes_over_what_one_of_fewer_features_learned(rarity: bool) -> None:
    """Weights, averages and predictions are to the bit, further weights 0; then both engines learn the same.

    The span engine has steps whose changes wait, and traces, which do not reach into the wider stream.
    """
    wider = {}
    for engine in ("span", "plain"):
        config = LearnerConfig(engine=engine, rarity=rarity, dtype="float64")  # type: ignore[arg-type]
        questions = [GVF(f"q{k}", constant(k), Channel(0), 0.8, lam=0.5) for k in range(3)]
        former = Horde(questions, n_features=40, n_active=5, config=config)
        rng = np.random.default_rng(0)

        def seen(rng: np.random.Generator = rng) -> tuple[np.ndarray, np.ndarray]:
            return rng.random(1), rng.choice(40, 5, replace=False)

        former.begin(*seen())
        for _ in range(1_503):
            former.learn(int(rng.integers(3)), 1 / 3, *seen())
        observation, tiles = seen()
        learned = (*former.weights(), former.averaged_weights())
        prediction = former.predict(tiles, observation)
        horde = Horde(questions, n_features=140, n_active=6, config=config)
        horde.take_over(former)
        for array, former_array in zip(
            (*horde.weights(), horde.averaged_weights()), learned, strict=True
        ):
            np.testing.assert_array_equal(array[:, :40], former_array)
            assert not array[:, 40:].any()
        assert learned[0].any()
        np.testing.assert_array_equal(horde.begin(observation, np.append(tiles, 99)), prediction)
        for _ in range(300):
            observation, tiles = seen()
            tiles = np.append(tiles, 40 + int(rng.integers(100)))
            horde.learn(int(rng.integers(3)), 1 / 3, observation, tiles)
        wider[engine] = horde
    theta, w = wider["span"].weights()
    assert theta[:, 40:].any()
    np.testing.assert_allclose(theta, wider["plain"].weights()[0], rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(w, wider["plain"].weights()[1], rtol=1e-6, atol=1e-12)
