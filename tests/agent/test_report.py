"""The run folder and its report: from a small life in a toy body, without PyBullet."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from horde_agent.measures.excursion_table import ExcursionTable
from horde_agent.measures.nmsre import final_nmsre
from horde_agent.record import read
from horde_agent.runs.showing.pictures import half_side, visited_share
from horde_agent.runs.showing.report import NO_PICTURES, write_report
from tests.agent.commands import summary_of

PICTURES = ("nmsre.png", "pen.png", "predictions.png", "traces.png", "mspbe.png")


@pytest.fixture
def run(toy_run: Path) -> Path:
    return toy_run


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_summary_has_exactly_the_fixed_keys_in_their_order(run: Path) -> None:
    expected = (
        "steps robot_time_s wall_s steps_per_s learning_steps n_questions n_features n_active n_excursions "
        "n_updated_per_step mean_nmsre median_nmsre share_nmsre_below_1 diverged mspbe_vector_mean "
        "mspbe_scalar_mean max_trace learn_ms cycle_ms deadlines_missed gaps crc_errors backend seed "
        "weights_sha256 version stopped_early link_losses s_without_link n_nearly_constant"
    )

    assert expected.split() == list(summary_of(run))


def test_the_summary_agrees_with_the_record(run: Path) -> None:
    summary, rows = summary_of(run), read(run / "log" / "life.rec").rows
    tests = ExcursionTable.read(run / "log" / "excursions.rec")
    outcomes = tests.outcomes()
    nmsre = final_nmsre(outcomes, tests.n_demons)

    assert summary["steps"] == 1200 == rows["step"][-1]
    assert summary["robot_time_s"] == pytest.approx(120.0)
    assert summary["learning_steps"] == int((rows["phase"] == 0).sum())
    assert summary["n_excursions"] == sum(len(outcome.step) for outcome in outcomes)
    assert summary["n_updated_per_step"] == 9.0  # 3 gammas x 3 channels share an action
    assert summary["mean_nmsre"] == pytest.approx(np.nanmean(nmsre))
    assert summary["median_nmsre"] == pytest.approx(np.nanmedian(nmsre))
    assert set(summary["learn_ms"]) == {"p50", "p99", "max"}


def test_an_mspbe_that_is_not_yet_valid_is_marked(run: Path) -> None:
    """It takes 10,000 updates. The questions' updates add up to what the summary says of all."""
    questions, summary = lines_of(run / "questions.csv"), summary_of(run)
    facts = json.loads((run / "details.json").read_text())["mspbe"]

    assert {q["mspbe_valid"] for q in questions} == {"0"}
    assert (facts["n_valid"], facts["n_not_yet_valid"], facts["valid_after_updates"]) == (0, 27, pytest.approx(1e4))
    assert facts["scalar_mean_of_valid"] is None
    n_updates = sum(int(q["n_updates"]) for q in questions)
    assert n_updates == pytest.approx(summary["n_updated_per_step"] * summary["learning_steps"])
    assert "0 are valid, 27 are not yet" in (run / "report.html").read_text()


def test_the_report_shows_every_picture_and_the_worst_questions(run: Path) -> None:
    html = (run / "report.html").read_text()

    for picture in PICTURES:
        assert f'src="{picture}"' in html
        assert (run / picture).read_bytes().startswith(b"\x89PNG")
    worst = max(lines_of(run / "questions.csv"), key=lambda q: float(q["nmsre"]))
    assert worst["name"] in html
    assert "trace_rule" in html


@pytest.mark.usefixtures("pictures")
def test_without_matplotlib_the_report_says_what_to_install(
    toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Path(shutil.copytree(toy_run, tmp_path / "run"))
    monkeypatch.setitem(sys.modules, "horde_agent.runs.showing.pictures", None)
    monkeypatch.delattr("horde_agent.runs.showing.pictures", raising=False)
    html = write_report(run).read_text()

    assert NO_PICTURES in unescape(html)
    assert "<img" not in html
    assert "The worst questions" in html


def test_half_the_cells_within_reach_are_visited_by_a_walk_over_half_the_pen() -> None:
    """18 x 18 of the 20 x 20 cells can hold the body's centre; those with x < 0 are half of them."""
    x, y = np.meshgrid(np.arange(-0.85, 0, 0.1), np.arange(-0.85, 0.9, 0.1))
    visits, share = visited_share(x.ravel(), y.ravel())

    assert share == 0.5
    assert visits.sum() == x.size


def test_a_room_is_as_large_as_the_path_in_it_but_no_smaller_than_the_pen() -> None:
    """A Create 2 lives in a room of 3 m: 1.3 m from the middle means walls at 1.5 m, and 30 cells a side."""
    assert half_side(np.array([0.2]), np.array([-0.3])) == 1.0
    assert half_side(np.array([0.2, -1.3]), np.array([0.0, 0.9])) == 1.5
    assert visited_share(np.array([0.2, -1.3]), np.array([0.0, 0.9]))[0].shape == (30, 30)
