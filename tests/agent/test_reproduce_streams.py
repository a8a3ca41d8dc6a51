"""Lives for the reproduction: simulated once, for any questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import questions
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.life.life import Life
from horde_agent.policies import StickyRandom
from horde_agent.record import Phase, Recorder, read
from horde_agent.reproduce import lives as streams
from horde_agent.reproduce.study import Study
from tests.agent.doubles import ToyBody


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    monkeypatch.setattr(streams, "make_body", lambda *_, **__: ToyBody())
    return Study(tmp_path, "quick", (0,), "simulator", lambda line: None)


def full_life(seed: int, steps: int) -> np.ndarray[Any, Any]:
    """Live with every question, as `horde learn` does."""
    env = ToyBody()
    face = Interface.of(env)
    coder = face.coder
    horde = Horde(questions.excursions(face), n_features=coder.n_features, n_active=coder.n_active)
    rng, recorder = np.random.default_rng(seed), Recorder(len(face.channels))
    with Life(env, horde, StickyRandom(3), rng, interface=face, recorder=recorder) as life:
        life.run(steps)
    return recorder.stream().rows


def test_a_stream_is_the_life_that_all_questions_would_have_led(study: Study) -> None:
    """One question about each policy is enough to draw the same excursions."""
    rows = read(streams.record_life(study, 3, 900)).rows
    full = full_life(3, 900)
    assert (rows["phase"] == Phase.EXCURSION).any()
    assert rows.tobytes() == full.tobytes()


def test_a_stream_of_behaviour_has_no_excursions(study: Study) -> None:
    """1 - (1 - 1/50)^900 = 1 - 1e-8: with excursions there would be some."""
    stream = read(streams.record_life(study, 3, 900, "behaviour"))
    assert set(stream.rows["phase"][:-1].tolist()) == {Phase.BEHAVE}
    assert stream.n_steps == 900


def test_a_life_longer_than_a_segment_of_a_record_is_kept_whole(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a period of 10 s, 900 steps are 2.5 h; a record begins another file after an hour."""

    class Slow(ToyBody):
        def __init__(self) -> None:
            super().__init__()
            self.metadata = {**self.metadata, "period_s": 10.0}

    monkeypatch.setattr(streams, "make_body", lambda *_, **__: Slow())
    path = streams.record_life(study, 3, 900)
    assert read(path).n_steps == 900


def test_a_life_is_lived_once(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    path = streams.record_life(study, 0, 300)

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("simulated again")

    monkeypatch.setattr(streams, "make_body", fail)
    assert streams.record_life(study, 0, 300) == path
    with pytest.raises(AssertionError, match="simulated again"):
        streams.record_life(study, 0, 301)


def test_no_program_moves_a_real_lamp() -> None:
    with pytest.raises(ValueError, match="lamp_moves"):
        streams.make_body("serial", lamp_moves=[(1.0, "lamp", (0.0, 0.0, 0.5))])
