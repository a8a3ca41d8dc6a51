"""Lives for the experiments, simulated once for any questions, and learning from them, against `student.relearn`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.reproduce import lives
from examples.reproduce.excursions import LearnerVariant, VariantResult, learn_variant
from examples.reproduce.experiment import ExperimentContext
from examples.reproduce.lives import interface_of
from examples.reproduce.training_data import TrainingData, learn, outcomes
from horde_agent import questions
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.life.excursions import ExcursionConfig
from horde_agent.life.learner import relearn
from horde_agent.record import Phase, Recorder, Stream, read
from tests.agent.doubles import ToyBody, horde_of, live
from tests.agent.reproducing import record_life, toy_context

FAULTS = {
    40: {"gap": 1},
    77: {"applied": 0},
    120: {"stale": 1},
    333: {"gap": 1},
    700: {"applied": 0},
    1500: {"gap": 1},
}


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExperimentContext:
    return toy_context(tmp_path, monkeypatch)


def new_horde(interface: Interface, **config: Any) -> Horde:
    return horde_of(questions.excursions(interface), interface, **config)


def test_a_life_with_few_questions_is_that_of_all_questions(context: ExperimentContext) -> None:
    """One question about each policy is enough to draw the same excursions as `horde learn` does."""
    rows = read(record_life(context, 3, 900)).rows
    body = ToyBody()
    recorder = Recorder(3)
    live(
        900,
        body,
        new_horde(Interface.of(body)),
        seed=3,
        excursions=ExcursionConfig(),
        recorder=recorder,
    )
    assert (rows["phase"] == Phase.EXCURSION).any()
    assert rows.tobytes() == recorder.stream().rows.tobytes()


def test_a_life_of_behaviour_has_no_excursions(context: ExperimentContext) -> None:
    """1 - (1 - 1/50)^900 = 1 - 1e-8: with excursions there would be some."""
    stream = read(record_life(context, 3, 900, "behaviour"))
    assert set(stream.rows["phase"][:-1].tolist()) == {Phase.BEHAVE}
    assert stream.n_steps == 900


def test_a_life_longer_than_a_segment_of_a_record_is_kept_whole(
    context: ExperimentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a period of 10 s, 900 steps are 2.5 h; a record begins another file after an hour."""

    class Slow(ToyBody):
        def __init__(self) -> None:
            super().__init__()
            self.metadata = {**self.metadata, "period_s": 10.0}

    monkeypatch.setattr(lives, "make_body", lambda *_, **__: Slow())
    path = record_life(context, 3, 900)
    assert read(path).n_steps == 900


@pytest.fixture(scope="module")
def life() -> tuple[Stream, Interface]:
    """A life with faults in and out of its excursions."""
    body = ToyBody(faults={**FAULTS, **{1000 + 37 * k: {"gap": 1} for k in range(12)}})
    interface = Interface.of(body)
    recorder = Recorder(3)
    often = ExcursionConfig(probability=1 / 15)
    live(4_000, body, new_horde(interface), seed=3, excursions=often, recorder=recorder)
    return recorder.stream(), interface


def test_lessons_teach_what_relearning_teaches(life: tuple[Stream, Interface]) -> None:
    """The same updates in the same order: the same weights to the bit, and the same tests with the same returns."""
    stream, interface = life
    student = relearn(stream, new_horde(interface), interface)
    horde = new_horde(interface)
    training_data = TrainingData(stream)
    counts: list[int] = []
    learned = learn(training_data, horde, interface, after=counts.append)

    assert counts == list(range(1, learned.n_updates + 1))
    assert student.errors.n_discarded > 0  # some excursions were broken by the faults
    assert learned.n_updates == student.learning_steps == training_data.n_learned[-1]
    assert horde.weights_sha256() == student.horde.weights_sha256()
    tested = outcomes(training_data, horde.questions, learned.predictions)
    for mine, theirs in zip(tested, student.errors.table.outcomes(), strict=True):
        np.testing.assert_array_equal(mine.step, theirs.step)
        np.testing.assert_allclose(mine.returns, theirs.returns, rtol=1e-12)
        np.testing.assert_allclose(mine.predictions, theirs.predictions, rtol=1e-5, atol=1e-6)


def result_of(context: ExperimentContext, life: Path, variant: LearnerVariant) -> VariantResult:
    result = learn_variant(context, life, variant)
    return VariantResult(
        result, TrainingData(read(life)), questions.excursions(interface_of(context))
    )


def test_a_lesson_scores_what_relearning_scores(context: ExperimentContext) -> None:
    """The last weights by hand: their errors on the first policy's odd tests, over the variance of all of them."""
    path = record_life(context, 1, 1_500)
    interface = interface_of(context)
    result = result_of(context, path, LearnerVariant())
    horde = new_horde(interface)
    stream = read(path)
    student = relearn(stream, horde, interface)
    training_data = TrainingData(stream)

    assert result.sound.all()
    np.testing.assert_allclose(result.nmsre, student.errors.nmsre(), rtol=1e-3)
    assert result.curves()[-1].shape == (horde.n_demons,)
    np.testing.assert_allclose(result.max_trace, horde.max_trace)
    odd = np.arange(len(training_data.test_row)) % 2 == 1
    test = result.outcomes[0]
    rows = training_data.test_row[training_data.test_action == 0]
    returns = test.returns[:, 0]
    predicted = [
        horde.predict(interface.encode(stream.rows["observation"][row]))[0] for row in rows
    ]
    is_odd = odd[training_data.test_action == 0]
    error = ((np.array(predicted) - returns)[is_odd] ** 2).mean()
    np.testing.assert_allclose(result.score(odd)[0], error / returns.var(), rtol=1e-3)


def test_a_question_that_was_set_aside_has_no_score(context: ExperimentContext) -> None:
    """A step size of 200 for all active features together multiplies the error by about -200 at each update."""
    result = result_of(context, record_life(context, 1, 1_500), LearnerVariant(step_size=200.0))
    aside = ~result.sound
    assert aside.any()
    assert np.isnan(result.nmsre[aside]).all()
    assert np.isfinite(result.nmsre[~aside]).all()
    assert result.curves().shape[1] == result.sound.sum()
