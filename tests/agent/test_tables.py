"""The tables of a log that was learned from, by a made-up score."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from horde_agent import cli
from horde_agent.horde import Horde
from horde_agent.interface import Interface
from horde_agent.life.timing import Durations
from horde_agent.questions import nexting
from horde_agent.runs.config import LearnConfig
from horde_agent.runs.ending import Cause, End
from horde_agent.runs.jobs.holdout import Holdout
from horde_agent.runs.jobs.sources import NOT_RECORDED, Outcome
from horde_agent.runs.jobs.tables import _details, _learned, write_tables
from horde_agent.runs.keeping.folder import SUMMARY_KEYS, RunFolder
from horde_agent.runs.keeping.run import Run
from tests.agent.doubles import ToyBody


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Six questions, the first of which is set aside."""
    face = Interface.of(ToyBody())
    horde = Horde(nexting(face, (0.0, 0.5)), n_features=face.coder.n_features, n_active=face.coder.n_active)
    horde._set_aside_all({0: "for the sake of it"}, 3)
    return Run(LearnConfig(backend="replay", seed=5), face, horde, RunFolder(tmp_path), notes=["It snowed."])


def test_a_score_on_a_log_is_of_the_questions_that_are_sound(run: Run) -> None:
    """NMSRE .5, 1, 2, .5, 4 of the sound ones; the mean predictor is beaten by the second, fourth and sixth of six."""
    score = Holdout(
        channel=np.array([0, 1, 2, 0, 1, 2]),
        gamma=np.array([0.0, 0.0, 0.0, 0.5, 0.5, 0.5]),
        n_steps=60,
        n_learned=40,
        n_scored=2,
        shown={},
        variance=np.array([1.0, 2.0, 0.0, 4.0, 5.0, 6.0]),
        nmsre=np.array([0.1, 0.5, 1.0, 2.0, 0.5, 4.0]),
        nmsre_of_mean=np.array([0.2, 0.6, 1.0, 3.0, 0.4, 5.0]),
    )
    student: Any = SimpleNamespace(learning_steps=30, n_updated=90)
    student.catch_up, student.learn_s = lambda: None, Durations()
    robot = NOT_RECORDED | {"gaps": 3}
    outcome = Outcome(steps=60, end=End.of(Cause.LOG_END), robot=robot, score=score, passes=12.5)
    summary = write_tables(run, student, outcome, 2.0)

    assert set(summary) == set(SUMMARY_KEYS)
    assert (summary["mean_nmsre"], summary["median_nmsre"], summary["share_nmsre_below_1"]) == (1.6, 1.0, 0.4)
    assert (summary["learning_steps"], summary["n_updated_per_step"], summary["gaps"]) == (30, 3.0, 3)
    assert (summary["backend"], summary["seed"], summary["n_excursions"]) == ("replay", 5, None)
    assert summary["stopped_early"] is False
    details = json.loads(run.folder.details.read_text())
    assert details["share_better_than_mean_predictor"] == pytest.approx(3 / 5)
    assert details["mean_predictor"]["mean_nmsre"] == pytest.approx(2.0)
    note, other = details["notes"]
    assert other == "It snowed."
    assert "Learned in 12.5 passes over the first 70% of the log; scored on the last 2 steps" in note
    assert "scores 1.000 in the median and 2.000 in the mean; 60% of the questions do better" in note
    assert summary["n_nearly_constant"] is None
    assert "1 of 6 questions have returns that do not vary" in note
    with run.folder.questions.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["nmsre"] for line in lines] == ["0.1", "0.5", "1", "2", "0.5", "4"]
    assert [line["nmsre_of_mean_predictor"] for line in lines] == ["0.2", "0.6", "1", "3", "0.4", "5"]
    assert {line["n_tests"] for line in lines} == {"2"}


def test_a_run_that_was_stopped_says_so_in_both_tables(run: Run) -> None:
    run.end = End.of(Cause.SIGTERM)
    student: Any = SimpleNamespace(learning_steps=0, n_updated=0)
    assert _learned(run, student)["stopped_early"] is True
    assert _learned(run, student)["n_updated_per_step"] is None
    assert [_details(run)[key] for key in ("stopped_by", "ended_by", "unfinished")] == ["SIGTERM", "sigterm", False]


def test_tables_count_tests_and_end_with_the_measures_of_the_last_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "_make_env", lambda _config: ToyBody())
    words = ["learn", "--steps", "250", "--horizon", "8", "--seed", "1", "--out", str(tmp_path / "a")]
    assert cli.main(words) == 0
    folder = RunFolder(tmp_path / "a")
    with folder.questions.open(newline="") as questions, folder.mspbe_curve.open(newline="") as curve:
        n_tests = [int(row["n_tests"]) for row in csv.DictReader(questions)]
        steps = [int(row["step"]) for row in csv.DictReader(curve)]
    assert json.loads(folder.details.read_text())["n_tested_less_than_twice"] == sum(n < 2 for n in n_tests)
    assert 1 in n_tests
    assert steps == [250]
