"""Predictions of the previous step as features: in a life and by hand (the loop of figure 1)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from examples.reproduce.loop import FED_BACK, best_without_memory, learn_ring, ring_values
from horde_agent.gvf import GVF, Channel, Feature, Prediction
from horde_agent.horde import Horde
from horde_agent.interface import ChannelInfo, Interface, Scaler
from horde_agent.interface.feedback import prediction_range
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.learner import predict_along, relearn
from horde_agent.life.life import Life, StepEvent
from horde_agent.policies import Behaviour
from horde_agent.questions import excursions, nexting
from horde_agent.record import BROKEN, Phase, Recorder
from horde_agent.tiles import TileCoder
from tests.agent.doubles import ToyBody, horde_of, live

ALL = [{"questions": ["*"], "intervals": [8], "tilings": 8}]
BOUNDS = np.array([[0.0, -2.0, -np.inf], [1.0, 2.0, np.inf]])


def test_in_the_cycle_world_only_feedback_distinguishes_the_states() -> None:
    """Five states look alike; with the loop every value is exact.

    Without it they get one value, so the mean of squared errors is at least 5/6 of the variance of
    theirs: .26 squared.
    """
    assert np.abs(learn_ring(FED_BACK) - ring_values()).max() < 0.005
    assert best_without_memory() == pytest.approx(0.26, abs=0.005)
    without = learn_ring([]) - ring_values()
    assert np.sqrt((without**2).mean()) > best_without_memory()


def test_the_loop_needs_a_trace_to_unfold_in_the_cycle_world() -> None:
    """With lambda = 0 a state learns from the next one alone, which looks like its neighbours: a loop that is stuck.

    Source: Tanner & Sutton (2005): TD(0) networks fail in the cycle world, TD(lambda) networks do
        not.
    """
    assert np.abs(learn_ring(FED_BACK, lam=0.0, n_steps=6_000) - ring_values()).max() > 0.1


def looped_life(faults: dict[int, Any]) -> tuple[Life, Any, Interface]:
    """Run a life of 300 steps of a toy body with every prediction at gamma .5 fed back."""
    body = ToyBody(faults)
    recorder = Recorder(3)
    face = Interface.of(body)
    questions = excursions(face, (0.0, 0.5))
    face = face.feeding_back(
        questions, [{"questions": ["*/g0.5/*"], "intervals": [4], "tilings": 2}]
    )
    life = live(300, body, toy_horde(face), seed=5, interface=face, recorder=recorder)
    return life, recorder.stream(), face


def toy_horde(face: Interface) -> Horde:
    """Return a Horde that has learned nothing."""
    return horde_of(excursions(face, (0.0, 0.5)), face, dtype="float64", secondary_ratio=0.1)


def test_the_loop_by_hand_is_the_loop_of_a_life() -> None:
    """encode(o_{t+1}, y_t), learn; where a stream begins encode(o) alone."""
    life, stream, face = looped_life({50: {"gap": 1}, 120: {"applied": 0}, 200: {"terminated": 1}})
    assert face.feedback is not None
    horde = toy_horde(face)
    fed_back = face.feedback.demons(horde.names)
    previous_row = None
    for row in stream.rows:
        observation = row["observation"]
        if previous_row is None or row["flags"] & BROKEN:
            horde.begin(observation, face.encode(observation))
        else:
            tiles = face.encode(observation, horde.predictions[fed_back])
            horde.learn(
                int(previous_row["action"]),
                float(previous_row["b"]),
                observation,
                tiles,
                terminated=row["flags"] & 4 > 0,
            )
        previous_row = None
        if row["phase"] == Phase.BEHAVE:
            previous_row = row
    assert horde.weights_sha256() == life.horde.weights_sha256()


def test_the_loop_goes_on_in_an_excursion_by_the_predictions_of_each_step() -> None:
    """The tiles of each observation, from the predictions of the one before by the weights of now, which stand still.

    Predictions that stayed those of the excursion's first observation would give other tiles.
    """
    body = ToyBody()
    face = Interface.of(body)
    questions = excursions(face, (0.0, 0.5))
    face = face.feeding_back(
        questions, [{"questions": ["*/g0.5/*"], "intervals": [8], "tilings": 2}]
    )
    horde = toy_horde(face)
    assert face.feedback is not None
    fed_back = face.feedback.demons(horde.names)
    expected: Any = None
    by_first: Any = None
    n_followed = 0
    n_other = 0

    def follow(event: StepEvent) -> None:
        nonlocal expected, by_first, n_followed, n_other
        observation = event.row.observation
        tiles = event.life.robot_stream.tiles
        if event.row.phase is not Phase.EXCURSION:
            expected = None
            by_first = None
            return
        if expected is not None:
            np.testing.assert_array_equal(tiles, face.encode(observation, expected))
            n_followed += 1
            n_other += not np.array_equal(tiles, face.encode(observation, by_first))
        expected = horde.predict(tiles, observation)[fed_back]
        if by_first is None:
            by_first = expected

    often = ExcursionConfig(0.1, 10)
    settings = {"interface": face, "excursions": often, "observers": [follow]}
    live(600, body, horde, seed=5, **settings)
    assert n_followed > 100
    assert n_other > 50


def test_after_a_gap_the_loop_begins_at_zero() -> None:
    """Row 3 of a stream, after a gap, is predicted as if the stream began there."""
    _, stream, face = looped_life({})
    horde = relearn(stream, toy_horde(face), face).horde
    broken = stream[100:106]
    broken.rows["flags"][3] = 1
    along = predict_along(broken, horde, face)
    observations = broken.rows["observation"]
    np.testing.assert_array_equal(along[3], horde.predict(face.encode(observations[3])))
    assert face.feedback is not None
    tiles = face.encode(observations[4], along[3, face.feedback.demons(horde.names)])
    np.testing.assert_array_equal(along[4], horde.predict(tiles))
    assert not np.array_equal(along[4], horde.predict(face.encode(observations[4])))


def test_the_tiles_of_the_observation_keep_their_numbers_and_the_bias_stays_last() -> None:
    """2 questions of 3 match, 8 tilings of 8: 128 more features, 16 more active."""
    body = ToyBody()
    plain = Interface.of(body)
    looped = plain.feeding_back(
        nexting(plain, gammas=(0.5,)), [{**ALL[0], "questions": ["*saw", "*age"]}]
    )
    assert looped.coder.n_features == plain.coder.n_features + 128
    assert looped.coder.n_active == plain.coder.n_active + 16
    observation = np.array([0.3, 0.6, 0.1])
    with_loop = looped.encode(observation, np.array([1.0, 2.0]))
    without = plain.encode(observation)
    np.testing.assert_array_equal(with_loop[: without.size - 1], without[:-1])
    assert with_loop[-1] == looped.coder.n_features - 1
    # age 1.0 of [0, 2]: cell 4 of the first tiling; saw 2.0: the last cell of every tiling.
    first = plain.coder.n_features - 1
    assert with_loop[without.size - 1] == first + 4
    np.testing.assert_array_equal(with_loop[-9:-1], first + 64 + 8 * np.arange(8) + 7)


def ask(name: str = "q", cumulant: Any = None, gamma: Any = 0.75, **more: Any) -> GVF:
    return GVF(name, Behaviour(), cumulant or Channel(0), gamma, **more)


@pytest.mark.parametrize(
    ("gvf", "low", "high"),
    [
        (ask(), 0.0, 4.0),
        (ask(cumulant=Channel(1), outcome=3.0), -5.0, 11.0),
        (ask(cumulant=Feature(7)), 0.0, 4.0),
        (ask(cumulant=Prediction("base"), gamma=0.5), -6.0, 14.0),  # twice -3..7
    ],
)
def test_a_prediction_lies_between_the_extremes_of_its_return(
    gvf: GVF, low: float, high: float
) -> None:
    """Sum_k gamma^k (c + (1 - gamma) z) = c / (1 - gamma) + z."""
    base = ask("base", Channel(1), 0.6, outcome=2.0)
    assert prediction_range(gvf, {"base": base, "q": gvf}, BOUNDS) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("gvf", "reason"),
    [
        (ask(cumulant=lambda o, t: 1.0), "its cumulant is not a channel"),
        (ask(cumulant=Channel(2)), "has no bounds"),
        (ask(gamma=lambda o, t: 0.5), "must be numbers"),
        (ask(cumulant=Prediction("q")), "refers to itself"),
    ],
)
def test_a_range_that_missing_knows_must_be_given(gvf: GVF, reason: str) -> None:
    face = Interface(
        tuple(ChannelInfo(f"c{i}", "c", "1", True) for i in range(3)),
        ("go",),
        1.0,
        TileCoder.default(3),
        Scaler(*BOUNDS),
    )
    table = {"questions": ["q"], "intervals": [4], "tilings": 1}
    with pytest.raises(ValueError, match=reason):
        face.feeding_back([gvf], [table])
    looped = face.feeding_back([gvf], [{**table, "range": [-1, 3]}])
    assert looped.feedback is not None
    np.testing.assert_allclose(looped.feedback.scaled(np.array([2.0])), [0.75])
    np.testing.assert_allclose(looped.feedback.scaled(np.array([-9.0])), [0.0])
    np.testing.assert_allclose(looped.feedback.scaled(None), [0.25])  # 0 of -1..3


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"questions": ["missing"], "intervals": [4], "tilings": 1}, "matches 'missing'"),
        ({"questions": [], "intervals": [4], "tilings": 1}, "needs 'questions'"),
        ({"questions": ["*"], "intervals": [4]}, "needs 'tilings'"),
        ({"questions": ["*"], "interval": [4]}, "unknown key 'interval'"),
        (
            {"questions": ["*"], "intervals": [4], "tilings": 1, "range": [1, 1]},
            "range must be two finite numbers",
        ),
    ],
)
def test_a_wrong_table_is_refused_in_one_sentence(table: dict[str, Any], message: str) -> None:
    face = Interface.of(ToyBody())
    with pytest.raises(ValueError, match=message):
        face.feeding_back(nexting(face), [table])


def test_arguments_that_do_not_fit_the_feedback_are_refused() -> None:
    plain = Interface.of(ToyBody())
    looped = plain.feeding_back(nexting(plain, gammas=(0.5,)), ALL)
    feedback: Any = looped.feedback
    for call, words in (
        (lambda: plain.encode(np.zeros(3), np.zeros(3)), "feeding_back"),
        (lambda: looped.encode(np.zeros(3), np.zeros(2)), r"must have shape \(3,\)"),
        (lambda: looped.feeding_back(nexting(plain), ALL), "already"),
        (lambda: feedback.demons(["other"]), r"lacks the question 'behaviour/g0\.5/age'"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
