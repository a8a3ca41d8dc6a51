"""LSTD in runs: its flag, resumes, replays, and a Horde that gets further features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent import GVF, Behaviour, Channel, Horde, LearnerConfig
from horde_agent.runs.config import LearnConfig, learner_config, read_config, resolve
from tests.agent.commands import QUESTIONS, horde, refused

LIFE = "learn --backend simulator --physics planar --seed 3 --excursion-probability 0.01"


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("questions") / "own.toml"
    path.write_text(QUESTIONS)
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, questions: Path) -> Path:
    """A life of 9,000 steps that never stopped; its LSTD has shares when half of it is over."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    assert horde(LIFE, f"--questions {questions} --lstd 24 --steps 9000 --out {run}") == 0
    return run


def scores_of(run: Path) -> bytes:
    return (run / "questions.csv").read_bytes()


@pytest.mark.sim
def test_a_resumed_run_with_lstd_equals_a_longer_one(
    whole: Path, questions: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert horde(LIFE, f"--questions {questions} --lstd 24 --steps 6300 --out {run}") == 0
    assert horde(f"resume {run} --steps 9000") == 0
    assert scores_of(run) == scores_of(whole)


@pytest.mark.sim
def test_a_replay_has_the_lstd_of_its_run_unless_it_names_another(
    whole: Path, tmp_path: Path
) -> None:
    replayed = tmp_path / "again"
    without = tmp_path / "without"
    assert horde(f"learn --backend replay --log {whole} --out {replayed}") == 0
    assert horde(f"learn --backend replay --log {whole} --lstd 0 --out {without}") == 0
    assert read_config(replayed / "config.toml").lstd == 24
    assert read_config(without / "config.toml").lstd == 0
    assert scores_of(replayed) == scores_of(whole)
    assert scores_of(without) != scores_of(whole)


def test_a_run_leaves_lstd_to_its_questions_unless_it_names_a_number() -> None:
    for settings, lstd in (
        ({}, None),
        ({"lstd": 0}, 0),
        ({"paper": True}, 0),
        ({"paper": True, "lstd": 16}, 16),
    ):
        resolved = resolve(LearnConfig(**settings))
        assert resolved.lstd == lstd
        assert learner_config(resolved).lstd == lstd
        assert resolve(resolved) == resolved


@pytest.mark.parametrize(
    ("value", "sentence"), [("-1", "--lstd must be a whole number"), ("2.5", "no whole number")]
)
def test_a_number_of_features_that_is_none_is_refused(
    value: str, sentence: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sentence in refused(["learn", f"--lstd={value}", "--out", "run"], capsys)


@pytest.mark.parametrize("engine", ["span", "plain"])
def test_a_horde_of_further_features_continues_with_the_solutions(engine: Any) -> None:
    """They are about the readings, of which there are as many as before."""
    question = GVF("light", Behaviour(), Channel(0), continuation=0.8)
    config = LearnerConfig(lstd=12, engine=engine)
    former = Horde([question], n_features=6, n_active=2, config=config)
    rng = np.random.default_rng(0)
    light = np.zeros(2)
    former.begin(light, np.array([0, 1]))
    for _ in range(1_700):
        light = 0.9 * light + rng.normal(size=2)
        former.learn(0, 1.0, light, rng.choice(6, 2, replace=False))
    later = Horde([question], n_features=9, n_active=3, config=config)
    later.take_over(former)
    state = former.state()
    assert state["lstd/share"][0] > 0.0
    for name, array in later.state().items():
        if name.startswith("lstd/"):
            np.testing.assert_array_equal(array, state[name])
    # Of the further features none has a weight yet
    former_tiles = np.array([2, 5])
    predicted = former.predict(former_tiles, light)
    np.testing.assert_array_equal(later.predict(np.array([2, 5, 8]), light), predicted)
