"""Learning from a recorded life as the experiments do it, against `student.relearn`."""

from __future__ import annotations

import numpy as np
import pytest

from horde_agent import questions
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.life import Life
from horde_agent.life.student import relearn
from horde_agent.policies import StickyRandom
from horde_agent.record import Recorder, Stream
from horde_agent.reproduce.lessons import TrainingData, learn, predict_at_tests
from tests.agent.doubles import ToyBody

FAULTS = {40: {"gap": 1}, 77: {"applied": 0}, 120: {"stale": 1}, 333: {"gap": 1}, 700: {"applied": 0}, 1500: {"gap": 1}}


@pytest.fixture(scope="module")
def life() -> tuple[Stream, Interface]:
    """A life with faults in and out of its excursions."""
    env = ToyBody(faults={**FAULTS, **{1000 + 37 * k: {"gap": 1} for k in range(12)}})
    face = Interface.of(env)
    recorder = Recorder(len(face.channels))
    behaviour, rng = StickyRandom(len(face.actions)), np.random.default_rng(3)
    often = ExcursionConfig(probability=1 / 15)
    with Life(env, horde_of(face), behaviour, rng, interface=face, excursions=often, recorder=recorder) as lived:
        lived.run(4_000)
    return recorder.stream(), face


def horde_of(face: Interface) -> Horde:
    return Horde(questions.excursions(face), n_features=face.coder.n_features, n_active=face.coder.n_active)


def test_lessons_teach_what_relearning_teaches(life: tuple[Stream, Interface]) -> None:
    """The same updates in the same order: the same weights to the bit, and the same tests with the same returns."""
    stream, face = life
    student = relearn(stream, horde_of(face), face)
    horde, lessons = horde_of(face), TrainingData(stream)
    learned = learn(lessons, horde, face)

    assert student.errors.n_discarded > 0  # some excursions were broken by the faults
    assert learned.n_updates == student.learning_steps == lessons.n_learned[-1]
    assert horde.weights_sha256() == student.horde.weights_sha256()
    for mine, theirs in zip(learned.outcomes, student.errors.table.outcomes(), strict=True):
        np.testing.assert_array_equal(mine.step, theirs.step)
        np.testing.assert_allclose(mine.returns, theirs.returns, rtol=1e-12)
        np.testing.assert_allclose(mine.predictions, theirs.predictions, rtol=1e-5, atol=1e-6)


def test_the_last_weights_are_asked_at_every_test(life: tuple[Stream, Interface]) -> None:
    stream, face = life
    horde, lessons = horde_of(face), TrainingData(stream)
    learned = learn(lessons, horde, face)
    at_end = predict_at_tests(lessons, horde, face)
    assert at_end.shape == (sum(len(test.step) for test in learned.outcomes), horde.n_demons)
    tiles = face.encode(stream.rows["observation"][lessons.tests.row[0]])
    np.testing.assert_array_equal(at_end[0], horde.predict(tiles))


def test_updates_are_counted_as_they_are_made(life: tuple[Stream, Interface]) -> None:
    stream, face = life
    counts: list[int] = []
    learned = learn(TrainingData(stream), horde_of(face), face, after=counts.append)
    assert counts == list(range(1, learned.n_updates + 1))
