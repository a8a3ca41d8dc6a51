"""Behaviours that depend on the state, and test excursions of any policy: their inputs and their b."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TransformObservation

from horde_agent import GVF, Behaviour, Channel, Greedy, Interface, Life, StickyRandom, Uniform
from horde_agent.life.behaviours import Exploration, behaviour_of
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.learner import relearn
from horde_agent.questions import nexting
from horde_agent.record import Phase, Recorder
from horde_agent.refusals import BadInput
from tests.agent.doubles import (
    N_ACTIONS,
    SpyHorde,
    ToyBody,
    constant,
    horde_of,
    live,
    toy_life,
    toy_questions,
)

NEVER = ExcursionConfig(probability=0.0)
OFTEN = ExcursionConfig(probability=0.1, horizon=5)
FACE = Interface.of(ToyBody())


class BySaw:
    """A policy of the sawtooth, channel 1, in 0..`top`: the higher, the more probable is action 1."""

    n_actions = N_ACTIONS

    def __init__(self, top: float = 1.0) -> None:
        self.top = top

    def probabilities(self, observation: np.ndarray, tiles: np.ndarray) -> np.ndarray:
        high = float(observation[1]) / self.top
        return np.array([0.8 - 0.5 * high, 0.1 + 0.5 * high, 0.1])


def test_a_behaviour_receives_the_observation_in_its_units_and_its_tiles() -> None:
    """In float64, as functions of questions do, and as copies."""

    class Looking(StickyRandom):
        def draw(
            self, rng: np.random.Generator, observation: Any = None, tiles: Any = None
        ) -> tuple[int, float]:
            seen.append((observation.copy(), tiles.copy()))
            observation[:] = -1.0
            tiles[:] = 0
            return super().draw(rng)

    seen: list[tuple[np.ndarray, np.ndarray]] = []
    env = TransformObservation(
        ToyBody(), lambda seen: 200.0 * seen, spaces.Box(0.0, 200.0, (3,), np.float32)
    )
    recorder = Recorder(3)
    face = Interface.of(env)
    horde = horde_of([GVF("saw", Behaviour(), Channel(1), 0.0)], face)
    with Life(
        env,
        horde,
        Looking(N_ACTIONS),
        np.random.default_rng(0),
        excursions=NEVER,
        recorder=recorder,
    ) as life:
        life.run(20)

    rows = recorder.stream().rows
    assert seen[6][0].dtype == np.float64
    assert [float(o[1]) for o, _ in seen] == pytest.approx(
        [200.0 * (age % 7) / 7 for age in range(20)], rel=1e-6
    )
    for (observation, tiles), row in zip(seen, rows, strict=False):
        np.testing.assert_array_equal(observation, row["observation"].astype(np.float64))
        np.testing.assert_array_equal(tiles, face.encode(row["observation"]))
    twin = horde_of(horde.questions, face)
    relearn(recorder.stream(), twin, face)
    assert twin.weights_sha256() == horde.weights_sha256(), (
        "the behaviour changed the input of learning"
    )


def own_questions() -> list[GVF]:
    """Return questions of all kinds about two state-dependent policies and a constant one."""
    steep = BySaw()
    odd = BySaw(2.0)
    return [
        GVF("steep/g0.5/saw", steep, Channel(1), 0.5),
        GVF("steep/function", steep, lambda o, t: 1.0 + o[1], lambda o, t: 0.9 * o[1], outcome=2.0),
        GVF("odd/g0/last", odd, Channel(2), 0.0),
        GVF("stay/g0.5/age", constant(2), Channel(0), 0.5),
    ]


def test_an_excursion_follows_any_policy_and_records_its_own_probabilities() -> None:
    """Its b is pi(a) at the observation before the action; nothing is learned meanwhile."""
    recorder = Recorder(3)
    horde = SpyHorde(own_questions())
    looking = BySaw()
    life = live(1_000, ToyBody(), horde, excursions=OFTEN, recorder=recorder)
    rows = recorder.stream().rows
    by_tag = {policy.tag: policy for policy in life.student.errors.policies}
    tested = rows[rows["phase"] == Phase.EXCURSION]

    assert [call[1] for call in horde.learned] == rows["step"][
        rows["phase"] == Phase.BEHAVE
    ].tolist()
    assert {by_tag[tag].name for tag in np.unique(tested["policy"])} == {"steep", "odd", "action 2"}
    assert (rows["policy"][rows["phase"] != Phase.EXCURSION] == 0).all()
    for row in tested:
        target = by_tag[int(row["policy"])].target
        expected = target.probabilities(row["observation"].astype(np.float64), None)  # type: ignore[union-attr]
        assert row["b"] == expected[row["action"]]
    of_steep = tested[[by_tag[tag].name == "steep" for tag in tested["policy"]]]
    expected_ones = sum(looking.probabilities(o, None)[1] for o in of_steep["observation"])  # type: ignore[arg-type]
    n_ones = int((of_steep["action"] == 1).sum())
    assert len(of_steep) > 100
    assert abs(n_ones - expected_ones) < 4 * np.sqrt(0.25 * len(of_steep))
    assert set(of_steep["action"]) == {0, 1, 2}
    assert (life.student.errors.n_tests > 1).all()


LOOPED = FACE.feeding_back(
    toy_questions(), [{"questions": ["*/g0.5/*"], "intervals": [4], "tilings": 2}]
)
FAULTS: dict[int, Any] = {40: {"gap": 1}, 90: {"applied": 0}, 150: {"terminated": 1}}
ENDS: dict[int, Any] = {age: {"terminated": 1} for age in range(13, 800, 13)}


@pytest.mark.parametrize(
    ("questions", "face", "mode", "faults"),
    [
        (toy_questions(), FACE, "eager", {}),
        (toy_questions(), LOOPED, "eager", FAULTS),
        (own_questions(), FACE, "deferred", FAULTS),
        *((nexting(FACE, (0.0, 0.9)), FACE, mode, ENDS) for mode in ("eager", "deferred")),
    ],
    ids=[
        "constant actions",
        "fed back, with faults",
        "any policy",
        "on-policy",
        "on-policy, deferred",
    ],
)
def test_relearning_the_record_gives_the_same_weights_and_scores(
    questions: Any, face: Interface, mode: Any, faults: Any
) -> None:
    """Bit for bit, and the same scores for some of the questions in another order."""
    recorder = Recorder(3)
    horde = horde_of(questions, face, mode)
    twin = horde_of(questions, face, mode)
    live_student = live(
        800, ToyBody(faults), horde, seed=5, interface=face, excursions=OFTEN, recorder=recorder
    ).student
    student = relearn(recorder.stream(), twin, face, excursions=OFTEN)
    errors = live_student.errors

    assert twin.weights_sha256() == horde.weights_sha256()
    assert student.learning_steps == live_student.learning_steps
    assert (student.errors.n_excursions, student.errors.n_discarded) == (
        errors.n_excursions,
        errors.n_discarded,
    )
    assert errors.n_tests.min() > 5
    np.testing.assert_array_equal(student.errors.nmsre(), errors.nmsre())
    few = relearn(recorder.stream(), horde_of(questions[:0:-1], face, mode), face, excursions=OFTEN)
    np.testing.assert_array_equal(few.errors.nmsre(), errors.nmsre()[:0:-1])


def test_in_an_excursion_fed_back_predictions_are_made_by_the_fixed_weights() -> None:
    """The tiles that a policy receives in an excursion include the prediction of the step before."""

    class Showing(BySaw):
        def probabilities(self, observation: np.ndarray, tiles: np.ndarray) -> np.ndarray:
            shown.append((observation.copy(), tiles.copy()))
            return super().probabilities(observation, tiles)

    shown: list[tuple[np.ndarray, np.ndarray]] = []
    questions = [GVF("own", Showing(), Channel(1), 0.5), GVF("saw", Behaviour(), Channel(1), 0.5)]
    face = FACE.feeding_back(questions, [{"questions": ["saw"], "intervals": [64], "tilings": 1}])
    horde = horde_of(questions, face, dtype="float64")
    with toy_life(ToyBody(), horde, 2, interface=face) as life:
        life.run(150)
        shown.clear()  # calls of its demon
        life.excursions.config = ExcursionConfig(probability=1.0, horizon=5)
        life.run(5)
        assert life.student.learning_steps == 150
        assert len(shown) == 5
        assert face.feedback is not None
        fed_back = face.feedback.demons(horde.names)
        for (_, tiles), (observation, next_tiles) in itertools.pairwise(shown):
            np.testing.assert_array_equal(
                next_tiles, face.encode(observation, horde.predict(tiles)[fed_back])
            )
            assert not np.array_equal(next_tiles, face.encode(observation)), (
                "as if the stream began there"
            )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("curiosity", "--behaviour curiosity: write random, curious, or greedy:NAME with the name"),
        ("greedy", "--behaviour greedy: write random, curious, or greedy:NAME with the name"),
        ("curious:ude", "--behaviour curious:ude: write random, curious, or greedy:NAME"),
    ],
)
def test_an_unknown_name_of_a_behaviour_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(BadInput) as refusal:
        list(behaviour_of(text).rules(is_paper=False, questions="excursions"))
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("greedy:dock", "greedy:dock: no question finds this policy; there are lamp: add a"),
    ],
)
def test_a_behaviour_whose_questions_are_not_asked_is_refused(text: str, sentence: str) -> None:
    horde = horde_of([*toy_questions(), GVF("lamp", Greedy(N_ACTIONS), Channel(0), 0.5)], FACE)
    with pytest.raises(BadInput) as refusal:
        behaviour_of(text).policies(
            horde, N_ACTIONS, n_robots=1, exploration=Exploration(epsilon=0.1, repeat=0.5)
        )
    assert str(refusal.value).startswith(f"--behaviour {text}: ")
    assert sentence in str(refusal.value)


def test_invalid_behaviours_generators_and_questions_are_refused() -> None:
    class Blind:
        n_actions = N_ACTIONS

        def draw(self, rng: np.random.Generator) -> tuple[int, float]:
            return 0, 1.0

        def forget(self) -> None:
            pass

    sticky = StickyRandom(3)
    rng = np.random.default_rng(0)
    for behaviour, generator, question, words in (
        (Blind(), rng, None, r"Blind must take \(rng, observation, tiles\)"),
        (BySaw(), rng, None, r"behaviour must have draw.*Follow\(policy\) makes one of a policy"),
        (StickyRandom, rng, None, "behaviour must have draw"),
        (StickyRandom(5), rng, None, "the behaviour chooses among 5 actions, but the body has 3"),
        (
            sticky,
            -1,
            None,
            r"rng must be a numpy Generator or a seed of whole numbers from 0 on, not -1",
        ),
        (
            sticky,
            rng,
            GVF("q", Uniform(5), Channel(0), 0.5),
            "'q' is about a policy with 5 actions, .* has 3: left",
        ),
        (sticky, rng, GVF("q", Uniform(3), Channel(3), 0.5), "channel 3"),
    ):
        horde: Any = SpyHorde([question] if question else toy_questions())
        with pytest.raises(ValueError, match=words):
            Life(ToyBody(), horde, behaviour, generator)  # type: ignore[arg-type]
