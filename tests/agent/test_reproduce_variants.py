"""Results of variants: written and read back unchanged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from horde_agent.horde import Horde
from horde_agent.life.student import relearn
from horde_agent.questions import excursions
from horde_agent.record import read
from horde_agent.reproduce.excursions.problem import Variant, learn_variant, read_variant_result
from horde_agent.reproduce.lessons import TrainingData
from horde_agent.reproduce.lives import interface_of, record_life
from horde_agent.reproduce.study import Study
from tests.agent.reproducing import toy_study


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    return toy_study(tmp_path, monkeypatch)


@pytest.mark.parametrize("variant", [Variant(), Variant("capped", "importance-weighted", 0.05, 0.01)])
def test_a_lesson_scores_what_relearning_scores(study: Study, variant: Variant) -> None:
    path, face = record_life(study, 1, 1_500), interface_of(study)
    asked = excursions(face)
    lesson = read_variant_result(learn_variant(lambda share: None, study, 1, path, variant), asked)
    horde = Horde(asked, n_features=face.coder.n_features, n_active=face.coder.n_active, config=variant.config())
    student = relearn(read(path), horde, face)

    assert lesson.sound.all()
    assert lesson.n_updates == student.learning_steps
    np.testing.assert_allclose(lesson.nmsre, student.errors.nmsre(), rtol=1e-3)
    last = lesson.curves()[-1]
    assert last.shape == (len(asked),)
    np.testing.assert_allclose(lesson.max_trace, horde.max_trace)


def test_the_last_weights_are_scored_on_the_tests_asked_for(study: Study) -> None:
    """By hand: squared errors of the last weights on the first policy's odd tests, over the variance of all of them."""
    path, face = record_life(study, 1, 1_500), interface_of(study)
    asked = excursions(face)
    lesson = read_variant_result(learn_variant(lambda share: None, study, 1, path, Variant()), asked)
    horde = Horde(asked, n_features=face.coder.n_features, n_active=face.coder.n_active, config=Variant().config())
    stream_ = read(path)
    relearn(stream_, horde, face)
    lessons = TrainingData(stream_)
    odd = np.arange(len(lessons.tests.row)) % 2 == 1

    test = lesson.outcomes[0]
    rows, returns = lessons.tests.row[lessons.tests.action == 0], test.returns[:, 0]
    predicted = [horde.predict(face.encode(stream_.rows["observation"][row]))[0] for row in rows]
    mine = odd[lessons.tests.action == 0]
    error = ((np.array(predicted) - returns)[mine] ** 2).mean()
    np.testing.assert_allclose(lesson.score(odd)[0], error / returns.var(), rtol=1e-3)


def test_a_question_that_was_set_aside_has_no_score(study: Study) -> None:
    """A step size of 200 for all active features together multiplies the error by about -200 at each update."""
    path = record_life(study, 1, 1_500)
    asked = excursions(interface_of(study))
    lesson = read_variant_result(learn_variant(lambda share: None, study, 1, path, Variant(step_size=200.0)), asked)
    aside = ~lesson.sound
    assert aside.any()
    assert np.isnan(lesson.nmsre[aside]).all()
    assert np.isfinite(lesson.nmsre[~aside]).all()
    assert lesson.curves().shape[1] == lesson.sound.sum()


def test_a_variant_is_learned_once(study: Study) -> None:
    path = record_life(study, 1, 600)
    kept = Path(learn_variant(lambda share: None, study, 1, path, Variant()))
    written = kept.stat().st_mtime_ns
    learn_variant(lambda share: None, study, 1, path, Variant())
    assert kept.stat().st_mtime_ns == written
