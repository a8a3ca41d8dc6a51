"""Reports of a small life in a toy body, of made-up tables, whose numbers have one place each, and of several runs."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.reproduce.scores import final_nmsre, nmsre_after_each, scores_of
from horde_agent import GVF, Behaviour, Channel, LearnerConfig, cli, learn_from
from horde_agent.questions import QuestionColumns
from horde_agent.record import read
from horde_agent.refusals import BadInput
from horde_agent.runs.config import LearnConfig, time_name
from horde_agent.runs.reporting import pictures
from horde_agent.runs.reporting.compare import write_comparison
from horde_agent.runs.reporting.nmsre_ratio import trace_weights
from horde_agent.runs.reporting.pictures import half_side, visited_share
from horde_agent.runs.reporting.report import discarded, unscored, write_report
from horde_agent.runs.storage.files import write_csv, write_json
from horde_agent.runs.storage.folder import RunFolder
from horde_agent.runs.storage.question_table import SCORE_COLUMNS
from horde_agent.scoring.bands import Bands
from horde_agent.scoring.excursion_table import ExcursionTable
from horde_agent.scoring.nmsre import Outcomes, error_trace
from horde_agent.scoring.returns import PolicyUnderTest
from horde_agent.scoring.two_pass_nmsre import curves, policy_scores
from horde_agent.toml import to_toml
from tests.agent.commands import summary_of, toy
from tests.agent.doubles import write_question_table

PICTURES = ("nmsre.png", "pen.png", "predictions.png", "traces.png", "mspbe.png")


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_summary_has_exactly_the_fixed_keys_in_their_order(toy_run: Path) -> None:
    expected = (
        "steps robot_time_s wall_s steps_per_s learning_steps n_questions n_features n_active n_excursions "
        "n_updated_per_step mean_nmsre median_nmsre share_nmsre_below_1 diverged mspbe_vector_mean "
        "mspbe_scalar_mean max_trace learn_ms cycle_ms deadlines_missed gaps crc_errors backend seed "
        "weights_sha256 version stopped_early link_losses s_without_link n_nearly_constant "
        "share_better_than_persistence"
    )

    assert expected.split() == list(summary_of(toy_run))


def test_the_summary_agrees_with_the_record(toy_run: Path) -> None:
    summary = summary_of(toy_run)
    rows = read(toy_run / "log" / "life.rec").rows
    tests = ExcursionTable.read(toy_run / "log" / "excursions.rec")
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


def test_an_mspbe_that_is_not_yet_valid_is_marked(toy_run: Path) -> None:
    """It takes 20,000 updates. The questions' updates add up to what the summary says of all."""
    questions = lines_of(toy_run / "questions.csv")
    summary = summary_of(toy_run)
    facts = json.loads((toy_run / "details.json").read_text())["mspbe"]

    assert {q["mspbe_valid"] for q in questions} == {"0"}
    assert (facts["n_valid"], facts["n_not_yet_valid"], facts["valid_after_updates"]) == (
        0,
        27,
        pytest.approx(2e4),
    )
    assert facts["scalar_mean_of_valid"] is None
    n_updates = sum(int(q["n_updates"]) for q in questions)
    assert n_updates == pytest.approx(summary["n_updated_per_step"] * summary["learning_steps"])


@pytest.mark.usefixtures("pictures")
def test_the_report_shows_every_picture_and_the_worst_questions(
    toy_run: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(toy_run, tmp_path / "run"))
    html = write_report(run).read_text()

    for picture in PICTURES:
        assert f'src="{picture}"' in html
        assert (run / picture).read_bytes().startswith(b"\x89PNG")
    worst = max(lines_of(run / "questions.csv"), key=lambda q: float(q["nmsre"]))
    assert worst["name"] in html
    assert "trace_rule" in html
    assert "0 are valid, 27 are not yet" in html  # estimates of the MSPBE


@pytest.mark.usefixtures("pictures")
def test_a_band_around_the_predictions_over_time_shows_the_learned_deviation(
    toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a deviation in traces.csv, or an empty one, the picture has no band."""
    for other in ("_nmsre_section", "_pen_section", "_scatter_section", "_mspbe_section"):
        monkeypatch.setattr(pictures, other, lambda *_: "")
    run = tmp_path / "run"
    shutil.copytree(toy_run, run)
    lines = lines_of(run / "traces.csv")
    pages = []
    images = []
    for deviations in ({}, {"deviation": ""}, {"deviation": "0.25"}):
        rows = [{**line, **deviations} for line in lines]
        if not deviations:
            rows = [{k: v for k, v in line.items() if k != "deviation"} for line in lines]
        with (run / "traces.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
        pages.append("one standard deviation" in write_report(run).read_text(encoding="utf-8"))
        images.append((run / "traces.png").read_bytes())
    assert pages == [False, False, True]
    assert images[0] == images[1] != images[2]


@pytest.mark.usefixtures("pictures")
def test_all_bands_of_predictions_over_time_have_one_meaning(
    toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a question has a learned deviation, others have no band from the errors of tests: it would have its label."""
    for other in ("_nmsre_section", "_pen_section", "_scatter_section", "_mspbe_section"):
        monkeypatch.setattr(pictures, other, lambda *_: "")
    run = tmp_path / "run"
    shutil.copytree(toy_run, run)
    rows = lines_of(run / "traces.csv")
    for row in rows:
        row["deviation"] = ""
        if row["question"] == rows[0]["question"]:
            row["deviation"] = "0.25"
    with (run / "traces.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    images = []
    for half_width in (np.nan, 0.5):  # of the bands from the errors of tests
        monkeypatch.setattr(
            Bands,
            "half_widths",
            lambda bands, some=None, half=half_width: np.full(bands.n_tested[some].size, half),
        )
        assert "one standard deviation" in write_report(run).read_text(encoding="utf-8")
        images.append((run / "traces.png").read_bytes())
    assert images[0] == images[1]


@pytest.mark.usefixtures("pictures")
def test_no_label_or_legend_is_cut_off_or_lies_on_a_panel(
    toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The margins are fixed: predictions over time have seven characters at each tick."""
    run = Path(shutil.copytree(toy_run, tmp_path / "run"))
    lines = lines_of(run / "traces.csv")
    for line in lines:
        line["prediction"] = str(-2.5e5 * float(line["prediction"]))
    with (run / "traces.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(lines[0]))
        table.writeheader()
        table.writerows(lines)
    canvases = []
    monkeypatch.setattr(pictures, "save", lambda canvas, _: canvases.append(canvas))
    write_report(run)

    assert len(canvases) == len(PICTURES)
    for canvas in canvases:
        canvas.draw_without_rendering()
        width, height = canvas.get_size_inches()
        around = canvas.get_tightbbox()
        assert around.x0 >= 0.0
        assert around.y0 >= 0.0
        assert around.x1 <= width
        assert around.y1 <= height
        for legend in canvas.legends:
            box = legend.get_window_extent()
            assert not any(box.overlaps(axes.get_window_extent()) for axes in canvas.axes)


def test_a_log_scale_is_labelled_with_plain_numbers() -> None:
    canvas, [[narrow, wide]] = pictures.new_grid(8.0, 3.0, pictures.Margins(), n_columns=2)
    pictures.style_axes(narrow, yscale="log", ylim=(0.4, 3.0))
    pictures.style_axes(wide, yscale="log", ylim=(0.002, 200.0))
    canvas.draw_without_rendering()
    labels = []
    for axes in (narrow, wide):
        ticks = axes.yaxis.get_ticklabels(which="both")
        low, high = axes.get_ylim()
        labels.append(
            sorted(
                float(tick.get_text())
                for tick in ticks
                if tick.get_text() and low <= tick.get_position()[1] <= high
            )
        )
    assert {1.0, 2.0} <= set(labels[0])
    assert labels[1] == [0.01, 0.1, 1.0, 10.0, 100.0]


def test_questions_are_grouped_by_what_they_ask_and_not_by_their_names(tmp_path: Path) -> None:
    """Three questions of one policy and time scale, two of another; their names have one to four parts."""
    rng = np.random.default_rng(3)
    readings = rng.random((400, 2))
    names_and_gammas = [
        ("a/b/c/d", 0.5),
        ("light", 0.5),
        ("left/g0/obs_0", 0.5),
        ("one/two", 0.0),
        ("right/g0.5/obs_1", 0.0),
    ]
    asked = [
        GVF(name, Behaviour(), Channel(k % 2), gamma)
        for k, (name, gamma) in enumerate(names_and_gammas)
    ]
    run = tmp_path / "run"
    learn_from(readings, questions=asked, out=run)
    page = write_report(run).read_text(encoding="utf-8")
    table = page.split("By policy and time scale")[1].split("</table>")[0]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", table)
    assert [cells[:3], cells[8:11]] == [["behaviour", "0.5", "3"], ["behaviour", "0", "2"]]
    lines = lines_of(run / "questions.csv")
    about = [(line["policy"], line["gamma"], line["channel"]) for line in lines]
    assert about[:2] == [("behaviour", "0.5", "obs_0"), ("behaviour", "0.5", "obs_1")]
    medians = [float(line["nmsre"]) for line in lines[3:]]
    assert float(cells[11]) == pytest.approx(np.mean(medians), abs=6e-4)


RULES = """
[[family]]
policies = ["left"]
gammas = [0.5]

[[family]]
policies = ["left"]
gammas = [0.6]
algorithm = "td"

[[family]]
policies = ["left"]
gammas = [0.7]
algorithm = "tdrc"
"""


def test_questions_of_several_rules_have_the_estimates_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TD has none, which leaves it out of the means; TDRC's are valid after 20 updates, GTD's after 20,000.

    On the plain engine, which compiles in a tenth of the time.
    """
    monkeypatch.setattr(LearnerConfig, "needs_plain_engine", True)
    (tmp_path / "q.toml").write_text(RULES)
    run = tmp_path / "run"
    words = f"learn --steps 300 --seed 1 --no-rarity --questions {tmp_path}/q.toml"
    assert toy(f"{words} --out {run}", monkeypatch) == 0
    questions = lines_of(run / "questions.csv")
    assert [question["mspbe_valid"] for question in questions] == ["0"] * 6 + ["1"] * 3
    summary = summary_of(run)
    for estimate in ("mspbe_scalar", "mspbe_vector"):
        assert [question[estimate] == "" for question in questions] == [False] * 3 + [True] * 3 + [
            False
        ] * 3
        estimates = [float(question[estimate]) for question in questions if question[estimate]]
        assert summary[f"{estimate}_mean"] == pytest.approx(np.mean(estimates))
    curve = lines_of(run / "mspbe_curve.csv")
    assert float(curve[-1]["mspbe_scalar_mean"]) == pytest.approx(summary["mspbe_scalar_mean"])
    facts = json.loads((run / "details.json").read_text())["mspbe"]
    assert (facts["n_valid"], facts["n_not_yet_valid"], facts["n_without_estimate"]) == (3, 3, 3)
    assert facts["valid_after_updates_least"] == pytest.approx(20.0)
    assert facts["valid_after_updates"] == pytest.approx(20_000.0)


@pytest.mark.usefixtures("pictures")
def test_td_alone_has_a_sentence_instead_of_an_empty_picture_of_the_mspbe(
    toy_run: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(toy_run, tmp_path / "run"))
    (run / "mspbe_curve.csv").write_text("step,mspbe_scalar_mean\n1000,\n1200,nan\n")
    text = words_of(write_report(run))
    assert f"MSPBE estimate {pictures.NO_ESTIMATE}" in text


def test_reasons_beyond_the_fifth_are_counted_together() -> None:
    """As of a family with a hundred time scales beyond the horizon."""
    reasons = [{"reason": f"beyond {k}", "n": k + 1, "first": f"q{k}"} for k in range(8)]
    assert unscored(reasons[:1]) == ["Not scored: 1 questions (beyond 0), the first is q0."]
    assert len(unscored(reasons[:5])) == 5
    *each, together = unscored(reasons)
    assert each == unscored(reasons[:5])
    assert together == "Not scored: 21 questions for 3 further reasons, which details.json has."


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


# ---- the page of made-up tables --------------------------------------------------------------------------------------


SUMMARY: dict[str, Any] = {
    "steps": 12_345,
    "robot_time_s": 3_725.0,
    "wall_s": 65.0,
    "steps_per_s": 4_321.0,
    "learning_steps": 6_789,
    "n_questions": 8,
    "n_features": 40,
    "n_active": 7,
    "n_excursions": 321,
    "n_updated_per_step": 2.25,
    "mean_nmsre": 1289246595.028,
    "median_nmsre": 0.252,
    "share_nmsre_below_1": 0.625,
    "diverged": ["left/g0.8/d"],
    "mspbe_vector_mean": 0.1,
    "mspbe_scalar_mean": 0.2,
    "max_trace": 9.75,
    "learn_ms": {"p50": 1.5, "p99": 2.5, "max": 3.5},
    "cycle_ms": {"p50": 4.5, "p99": 5.5, "max": 6.5},
    "deadlines_missed": 11,
    "gaps": 12,
    "crc_errors": 13,
    "backend": "simulator",
    "seed": 0,
    "weights_sha256": "0123456789abcdef0123456789abcdef",
    "version": "1",
    "stopped_early": False,
    "n_nearly_constant": 3,
    "share_better_than_persistence": 5 / 7,
}
DETAILS: dict[str, Any] = {
    "compile_s": 7.25,
    "sensor_age_ms": {"p50": 7.5, "p99": 8.5, "max": 9.5},
    "overrun_ms": {"p50": 10.5, "p99": 11.5, "max": 12.5},
    "n_not_applied": 14,
    "n_discarded": 15,
    "discarded_by": {"a gap": 9, "stale frames": 6},
    "n_repeated": 40,
    "n_tests_of_questions": 360,
    "notes": ["It snowed."],
    "unfinished": False,
}
QUESTIONS = [
    # name, nmsre, nmsre_of_persistence, variance, n_tests, mspbe_scalar, mspbe_vector, diverged,
    # n_updates, mspbe_valid, nearly_constant
    ["left/g0/a", 0.25, 0.5, 1e-3, 41, 0.0, 0.0, 0, 1, 0, 0],
    ["left/g0/b", 1.0, 0.75, 2e-3, 42, 0.0, 0.0, 0, 1, 0, 0],
    ["left/g0/c", 4.0, 9.0, 3e-3, 43, 0.0, 0.0, 0, 1, 0, 1],
    ["left/g0.8/d", 500.0, 1.0, 4e-3, 44, 0.0, 0.0, 1, 1, 0, 0],
    ["left/g0.8/e", 0.5, 0.6, 5e-3, 45, 0.0, 0.0, 0, 1, 0, 0],
    ["right/g0/a", 3.0, 2.0, 6e-3, 46, 0.0, 0.0, 0, 1, 0, 0],
    ["right/g0/b", float("nan"), float("nan"), 7e-3, 0, 0.0, 0.0, 0, 1, 0, 0],
    ["mine", 7.0, 1.0, float("nan"), 48, 0.0, 0.0, 0, 1, 0, None],
]


def about(name: str) -> QuestionColumns:
    """Return the columns of a question that is named policy/g0.8/channel, or has no family."""
    parts = name.split("/")
    if len(parts) < 3:
        return QuestionColumns(family="", policy="", gamma=math.nan, channel="")
    policy, gamma, channel = parts
    gamma = gamma.removeprefix("g")
    return QuestionColumns(
        family=f"{policy}/g{gamma}", policy=policy, gamma=float(gamma), channel=channel
    )


def page_of(tmp_path: Path, **changes: Any) -> str:
    """Return the page of a run of these numbers, or others, without its pictures."""
    folder = RunFolder(tmp_path)
    folder.log.mkdir(exist_ok=True)
    config = {**vars(LearnConfig(steps=20_000, questions="excursions")), "out": tmp_path}
    folder.config.write_text(to_toml(config, {"horde-gvf": "1"}))
    write_json(folder.summary, SUMMARY | {k: v for k, v in changes.items() if k in SUMMARY})
    write_json(folder.details, DETAILS | {k: v for k, v in changes.items() if k not in SUMMARY})
    rows = [[*numbers, *about(str(numbers[0]))] for numbers in QUESTIONS]
    write_csv(folder.questions, [*SCORE_COLUMNS, *QuestionColumns._fields], rows)
    write_csv(folder.learning_curve, ["excursion"], [])
    return write_report(tmp_path).read_text()


@pytest.fixture
def page(tmp_path: Path) -> str:
    return page_of(tmp_path)


def table(page: str, title: str) -> list[list[str]]:
    body = page.partition(f"<h2>{title}</h2>")[2].partition("</table>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", body)
    return [[unescape(cell) for cell in re.findall(r"<t[dh]>(.*?)</t[dh]>", row)] for row in rows]


def test_the_headline_says_what_the_summary_says(page: str) -> None:
    tiles = dict(
        reversed(pair) for pair in re.findall(r"<div><b>(.*?)</b><span>(.*?)</span></div>", page)
    )
    assert tiles == {
        "questions": "8",
        "robot time": "1 h 02 min",
        "learning steps": "6,789",
        "test excursions": "321",
        "on-policy tests": "-",
        "median NMSRE": "0.252",
        "mean NMSRE": "1.29e9",
        "NMSRE below 1": "62.5%",
        "better than persistence": "71.4%",
        "nearly constant": "3",
        "diverged": "1",
    }
    assert "Diverged, and learn no more: left/g0.8/d" in page
    assert "It snowed." in page
    assert (
        "Discarded: 15 of 336 test excursions (9 by a gap, 6 by stale frames). Shorter ones, as with --horizon 10, "
        "are interrupted less often." in page
    )
    stale = discarded({"n_discarded": 3, "discarded_by": {"stale frames": 2, "a gap": 1}}, 7)
    assert stale[0].endswith("A longer period, in which a new frame arrives, leaves more of them.")
    assert "Left out: 40 of 400 tests of questions, because stale frames" in page
    assert list(tiles).index("median NMSRE") < list(tiles).index("mean NMSRE")
    assert "variance below step^2 / 12" in page
    assert "Always predicting the mean return scores 1" in page


def test_means_medians_and_shares_are_of_the_questions_that_were_scored(page: str) -> None:
    """left, gamma 0: .25, 1 and 4: mean 1.75, median 1, a third below 1. The one set aside and the untested are out.

    Persistence scores .5, .75 and 9 on these: worse than two of the three.
    """
    assert table(page, "By policy and time scale") == [
        [
            *("policy", "gamma", "questions", "median NMSRE", "mean NMSRE", "below 1"),
            *("median of persistence", "better than it"),
        ],
        ["left", "0", "3", "1.000", "1.750", "33%", "0.750", "67%"],
        ["left", "0.8", "1", "0.500", "0.500", "100%", "0.600", "100%"],
        ["right", "0", "1", "3.000", "3.000", "0%", "2.000", "0%"],
    ]


def test_the_worst_questions_come_first_and_diverged_ones_are_left_out(page: str) -> None:
    worst = table(page, "Worst questions")
    assert [row[0] for row in worst[1:]] == [
        "mine",
        "left/g0/c",
        "right/g0/a",
        "left/g0/b",
        "left/g0.8/e",
        "left/g0/a",
    ]
    assert worst[1:3] == [
        ["mine", "7.000", "1.000", "nan", "48", ""],
        ["left/g0/c", "4.000", "9.000", "0.003", "43", "yes"],
    ]


def test_the_table_of_time_and_health(page: str) -> None:
    assert dict(table(page, "Timing and health")) == {  # type: ignore[arg-type]
        "steps": "12,345",
        "wall time": "1 min 05 s",
        "steps per second": "4,321",
        "compiling the kernels": "7.2 s",
        "one update, or its share of a batch, p50 / p99 / max": "1.500 / 2.500 / 3.500 ms",
        "one cycle, p50 / p99 / max": "4.500 / 5.500 / 6.500 ms",
        "age of the newest packet at use, p50 / p99 / max": "7.500 / 8.500 / 9.500 ms",
        "lateness of a step, p50 / p99 / max": "10.500 / 11.500 / 12.500 ms",
        "steps in which no action was applied (charging, safety)": "14",
        "demons updated per learning step (rho > 0)": "2.2",
        "largest trace": "9.75",
        "deadlines missed · gaps · checksum errors": "11 · 12 · 13",
        "excursions discarded": "15 · 9 by a gap · 6 by stale frames",
        "weights (SHA-256)": "0123456789abcdef...",
    }


@pytest.mark.parametrize(
    ("backend", "period_s", "name"),
    [
        ("simulator", 0.1, "robot time"),
        ("replay", 0.1, "robot time"),
        ("data", 60.0, "time"),
        ("gymnasium", 0.05, "time"),
        ("gymnasium", 1.0, ""),
    ],
)
def test_the_time_of_steps_is_the_robots_or_that_of_the_data_or_none(
    backend: str, period_s: float, name: str
) -> None:
    """A step of an environment without a period, which Interface takes for 1 s, has no duration."""
    assert time_name({"backend": backend}, period_s) == name


def test_a_run_that_was_stopped_says_when_and_by_what(tmp_path: Path, page: str) -> None:
    assert "Stopped early" not in page
    assert "nfinished" not in page
    page = page_of(tmp_path, stopped_early=True, stopped_by="no frame from /dev/robot.")
    assert "(stopped early)</h1>" in page
    assert "Stopped early, after 12,345 of 20,000 steps: no frame from /dev/robot.<" in page


def test_the_features_are_described_if_they_are_more_than_the_tilings(
    tmp_path: Path, page: str
) -> None:
    """LSTD is named, too: it is on by default."""
    title = "<h2>Features</h2>"
    assert title not in page
    assert title not in page_of(tmp_path, n_random_features=0)
    chosen = "150 pairs of channels."
    page = page_of(tmp_path, features=chosen)
    assert f"{title}<p>40 features, 7 of them active. {chosen}</p>" in page
    mixed = "mixed with LSTD on the readings and 1,024 random features of them."
    page = page_of(tmp_path, features=chosen, n_random_features=1_024)
    assert f"{chosen} Predictions of readings and reward are {mixed}</p>" in page
    assert mixed in page_of(tmp_path, n_random_features=1_024)


def test_a_dash_stands_for_what_is_not_known(tmp_path: Path) -> None:
    nothing = dict.fromkeys(
        ["wall_s", "mean_nmsre", "n_excursions", "cycle_ms", "crc_errors", "n_updated_per_step"]
    )
    page = page_of(tmp_path, **nothing)
    health = dict(table(page, "Timing and health"))  # type: ignore[arg-type]
    assert health["wall time"] == health["one cycle, p50 / p99 / max"] == "-"
    assert health["deadlines missed · gaps · checksum errors"] == "11 · 12 · -"
    assert "<b>-</b><span>mean NMSRE</span>" in page


# ---- pictures --------------------------------------------------------------------------------------------------------


def outcomes(action: int, demons: list[int], n: int) -> Outcomes:
    """Return excursions of a policy with different predictions and returns."""
    k = len(demons)
    policy = PolicyUnderTest(
        action,
        np.array(demons),
        np.array([0, 1, 0][:k]),
        np.array([0.9, 0.5, 0.5][:k]),
        f"{action}",
    )
    returns = np.arange(n * k, dtype=float).reshape(n, k)
    return Outcomes(policy, np.arange(n) * 10, returns + 0.25 * (1 + np.arange(k) ** 2), returns)


def table_of(tests: list[Outcomes], n_demons: int) -> ExcursionTable:
    """Return the same excursions as a table."""
    table = ExcursionTable([test.policy for test in tests], n_demons)
    for test in tests:
        for step, *values in zip(test.step.tolist(), test.predictions, test.returns, strict=True):
            demons = test.policy.demons
            table.append(test.policy.name, step, 0.0, demons, numbers_of(*values))
    return table


def numbers_of(predicted: np.ndarray, measured: np.ndarray) -> dict[str, np.ndarray]:
    """Return the values of an excursion; each prediction has .5 more, for what follows after the excursion."""
    nothing = np.zeros(len(measured))
    return {
        "prediction": predicted + 0.5,
        "return": measured,
        "remainder": nothing + 0.5,
        "share": nothing,
        "persistence": nothing,
    }


def test_dots_are_of_the_second_half_at_the_longest_time_scale() -> None:
    """Five excursions of two questions about channel 0, at gamma .9 and .5, and one about channel 1."""
    tests = table_of([outcomes(1, [4, 5, 6], 5)], 7)
    groups = pictures.scatter_groups(
        tests, policy_scores(tests), ["light", "wall"], ["left", "right"]
    )
    assert list(groups) == ["light, gamma 0.9", "wall, gamma 0.5"]
    predictions, returns = groups["light, gamma 0.9"]["right"]
    assert returns.tolist() == [6.0, 9.0, 12.0]
    assert predictions.tolist() == [6.25, 9.25, 12.25]
    assert groups["wall, gamma 0.5"]["right"][1].tolist() == [7.0, 10.0, 13.0]


def test_the_bold_line_is_the_mean_and_the_dashed_one_the_median_of_the_sound() -> None:
    """As many tests as every policy had: two. Of four demons one was set aside; of three the median is no mean."""
    tests = [outcomes(0, [0, 1, 3], 3), outcomes(1, [2], 2)]
    sound = np.array([True, False, True, True])
    through = table_of(tests, 4)
    [axes] = pictures.nmsre_picture(curves(through, policy_scores(through)), sound).axes
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    together = np.column_stack(
        [nmsre_after_each(tests[0])[:2, [0, 2]], nmsre_after_each(tests[1])[:, 0]]
    )
    np.testing.assert_allclose(lines["mean over all questions"], together.mean(axis=1))
    np.testing.assert_allclose(lines["median"], np.median(together, axis=1))
    thin = [segment for collection in axes.collections for segment in collection.get_segments()]
    assert [len(segment) for segment in thin] == [3, 3, 2]


# ---- comparisons -----------------------------------------------------------------------------------------------------


def made(folder: Path, seed: int, nmsre: dict[str, float | None], diverged: str = "") -> Path:
    """Write what a comparison reads of a run."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(
        f'seed = {seed}\ntrace_rule = "clipped"\n', encoding="utf-8"
    )
    summary = {
        "seed": seed,
        "steps": 60_000,
        "mean_nmsre": 0.5,
        "diverged": [diverged] if diverged else [],
    }
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    scores = []
    for name, value in nmsre.items():
        score = {"name": name, "diverged": int(name == diverged), **about(name)._asdict()}
        if value is not None:
            score |= {"nmsre": value, "nmsre_of_persistence": 2.0 * value}
        scores.append(score)
    write_question_table(folder / "questions.csv", scores)
    (folder / "learning_curve.csv").write_text(
        "step,mean_nmsre_online\n10,2.0\n20,\n30,1.0\n", encoding="utf-8"
    )
    return folder


@pytest.fixture
def runs(tmp_path: Path, elsewhere: None) -> list[Path]:
    one = {"a/g0/x": 1.0, "a/g0/y": 0.4, "a/g0/z": 0.2, "a/g0/odd": None, "a/g0/gone": 0.1}
    two = {"a/g0/x": 0.5, "a/g0/y": 0.4, "a/g0/z": 0.8, "a/g0/odd": 0.3, "a/g0/gone": 9.0}
    return [made(tmp_path / "a", 0, one), made(tmp_path / "b", 1, two, diverged="a/g0/gone")]


def words_of(page: Path) -> str:
    """Return a page's words, a cell after the other, without its pictures."""
    return " ".join(
        re.sub(r"<[^>]+>", " ", page.read_text(encoding="utf-8").split("</style>")[1]).split()
    )


def test_questions_tested_in_both_runs_are_compared(runs: list[Path]) -> None:
    """X halves, z is four times as bad, y is the same; one was not tested in a, one was set aside in b.

    Persistence scores twice as much as each question.
    """
    text = words_of(write_comparison(runs))
    assert "Of 3 questions tested in both runs, b answers 1 better and 1 worse than a" in text
    assert "the median ratio of NMSRE is 1.000. There is no interval" in text
    assert "Much better, or by chance question a b ratio a/g0/x 1.000 0.500 0.500" in text
    assert "Much worse, or by chance question a b ratio a/g0/z 0.200 0.800 4.000" in text
    assert "n a b persistence, a persistence, b a/g0 3 0.400 0.500 0.800 1.000" in text
    assert "odd" not in text
    assert "gone" not in text


N_TESTS = 40
STEPS = np.arange(N_TESTS) * 100


def run_of(folder: Path, predictions: np.ndarray, returns: np.ndarray, algorithm: str) -> Path:
    """Write a run of four questions about one policy, with excursions of shape (n, 4), and its NMSRE."""
    policy = PolicyUnderTest(0, np.arange(4), np.arange(4), np.full(4, 0.5), "left")
    table = ExcursionTable([policy], 4)
    nmsre = scores_of(Outcomes(policy, STEPS, predictions, returns)).last_nmsre()
    made(folder, 0, {f"left/g0.5/{k}": float(nmsre[k]) for k in range(4)})
    with (folder / "config.toml").open("a") as file:
        file.write(f'algorithm = "{algorithm}"\n')
    (folder / "log").mkdir()
    table.record_to(folder / "log" / "excursions.rec")
    for step, *values in zip(STEPS.tolist(), predictions, returns, strict=False):
        table.append("left", step, 0.0, policy.demons, numbers_of(*values))
    table.close()
    return folder


RETURNS, ERRORS = np.random.default_rng(4).normal(size=(2, N_TESTS, 4))
OTHER_RETURNS, OTHER_ERRORS = np.random.default_rng(5).normal(size=(2, N_TESTS, 4))


def compared(tmp_path: Path, predictions: np.ndarray, returns: np.ndarray, n: int = N_TESTS) -> str:
    """Return the words of the comparison of a run with `RETURNS` and `ERRORS` with another of td."""
    first = run_of(tmp_path / "a", (RETURNS + ERRORS)[:n], RETURNS[:n], "gtd")
    second = run_of(tmp_path / "b", predictions[:n], returns[:n], "td")
    return words_of(write_comparison([first, second])).partition("b against a")[2]


def median_interval(text: str) -> list[float]:
    """Return the median ratio and the ends of its interval."""
    match = re.search(
        r"median ratio of NMSRE is ([\d.]+), with a 95 % interval \[([\d.]+), ([\d.]+)\]", text
    )
    assert match is not None, text
    return [float(number) for number in match.groups()]


@pytest.mark.usefixtures("elsewhere")
def test_equal_runs_show_no_difference(tmp_path: Path) -> None:
    """Ratios of exactly 1 were "Much better" and "Much worse" once rounding had moved them."""
    text = compared(tmp_path, RETURNS + ERRORS * (1.0 + 1e-9), RETURNS)
    assert median_interval(text) == [1.0, 1.0, 1.0]
    assert "answers 0 better and 0 worse than a by a quarter or more" in text
    assert "The test excursions show no difference. Both runs made the same excursions" in text
    assert "Much" not in text


@pytest.mark.usefixtures("elsewhere")
def test_the_ratio_of_runs_with_the_same_excursions_has_a_paired_interval(tmp_path: Path) -> None:
    """Errors of .8 of the others in each excursion: .64 in each draw; independent draws give .3 to 1.2."""
    text = compared(tmp_path, RETURNS + 0.8 * ERRORS, RETURNS)
    assert median_interval(text) == [0.64, 0.64, 0.64]
    assert "b is better than a." in text
    assert "answers 4 better and 0 worse" in text


@pytest.mark.usefixtures("elsewhere")
def test_questions_whose_returns_do_not_vary_count_as_equal(tmp_path: Path) -> None:
    """Three of four returns are always 3, and predicted as 3.5: NMSRE 1 in both runs; the fourth has half the errors.

    Without those three, the median ratio is that of the fourth alone, .25.
    """
    returns = np.where(np.arange(4) < 3, 3.0, RETURNS)
    errors = np.where(np.arange(4) < 3, 0.5, ERRORS)
    first = run_of(tmp_path / "a", returns + errors, returns, "gtd")
    errors[:, 3] /= 2.0
    second = run_of(tmp_path / "b", returns + errors, returns, "td")
    text = words_of(write_comparison([first, second]))
    assert median_interval(text.partition("b against a")[2]) == [1.0, 1.0, 1.0]


@pytest.mark.usefixtures("elsewhere")
def test_noise_of_other_excursions_is_no_difference_and_a_fifth_of_the_error_is_one(
    tmp_path: Path,
) -> None:
    """The same kind of run: each question differs, none is listed. With errors of a fifth the ratio is 1/25."""
    noise = compared(tmp_path / "noise", OTHER_RETURNS + OTHER_ERRORS, OTHER_RETURNS)
    middle, low, high = median_interval(noise)
    assert low < 1.0 < high
    assert low < 0.9 * middle
    assert "The test excursions show no difference. The runs made different excursions" in noise
    assert "Much" not in noise
    better = compared(tmp_path / "better", OTHER_RETURNS + 0.2 * OTHER_ERRORS, OTHER_RETURNS)
    middle, low, high = median_interval(better)
    assert low < 1 / 25 < high < 0.2
    assert "b is better than a." in better
    assert "answers 4 better and 0 worse" in better


@pytest.mark.usefixtures("elsewhere")
def test_a_small_difference_that_is_clear_is_called_small(tmp_path: Path) -> None:
    """Errors of .99: a ratio of .980 in each draw."""
    text = compared(tmp_path, RETURNS + 0.99 * ERRORS, RETURNS)
    assert median_interval(text) == [0.98, 0.98, 0.98]
    assert "There is a difference, of less than 5%." in text
    assert "answers 0 better and 0 worse" in text


@pytest.mark.usefixtures("elsewhere")
def test_a_return_that_varies_once_is_left_out_of_the_draws_without_that_excursion(
    tmp_path: Path,
) -> None:
    """Its variance is 0 there, and both NMSRE are infinite; the others give the interval."""
    returns = RETURNS.copy()
    returns[:, 3] = 0.0
    returns[7, 3] = 1.0
    first = run_of(tmp_path / "a", returns + ERRORS, returns, "gtd")
    second = run_of(tmp_path / "b", returns + 0.8 * ERRORS, returns, "td")
    text = words_of(write_comparison([first, second]))
    assert median_interval(text) == [0.64, 0.64, 0.64]
    assert "answers 4 better and 0 worse" in text


@pytest.mark.usefixtures("elsewhere")
def test_few_excursions_have_no_interval(tmp_path: Path) -> None:
    text = compared(tmp_path, RETURNS + 0.8 * ERRORS, RETURNS, n=9)
    assert "There is no interval, because not every policy has 10 recorded test excursions" in text


def test_the_weights_of_squared_errors_are_those_of_their_trace() -> None:
    """Some questions were not tested in some excursions; only a whole record has the first error of the trace."""
    rng = np.random.default_rng(6)
    errors = rng.random((30, 3))
    errors[rng.random((30, 3)) < 0.3] = np.nan
    is_known = ~np.isnan(errors)
    weights = trace_weights(is_known, is_whole=True)
    np.testing.assert_allclose(np.nansum(weights * errors, axis=0), error_trace(errors)[-1])
    later = trace_weights(is_known[10:], is_whole=False)
    np.testing.assert_allclose(later, weights[10:])


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("questions.csv", None, "No such file or directory"),
        ("questions.csv", "name,nmsre\na,1\n", "'family'"),
        ("questions.csv", "half,nmsre\na,1,2\nb,1\n", "line 2 does not fit the header"),
        ("held_out.csv", "question,policy,gamma\na,go,much\n", "'much'"),
    ],
)
def test_a_comparison_refuses_damaged_scores(
    name: str, content: str | None, why: str, runs: list[Path]
) -> None:
    """A missing table was compared as if no question had been asked; others ended in a traceback."""
    table = runs[1] / name
    table.unlink(missing_ok=True)
    if content is not None:
        table.write_text(content, encoding="utf-8")
    with pytest.raises(BadInput) as refused:
        write_comparison(runs)
    assert why in str(refused.value)
    assert f"`horde report {runs[1]}` repairs it if possible" in str(refused.value)


def test_a_comparison_of_a_run_with_itself_is_refused(runs: list[Path]) -> None:
    with pytest.raises(BadInput, match="is named twice; name each run once"):
        write_comparison([*runs, runs[0]])


def test_td_has_no_mspbe_and_the_comparison_says_why(tmp_path: Path, elsewhere: None) -> None:
    first, second = (
        run_of(tmp_path / rule, RETURNS + ERRORS, RETURNS, rule) for rule in ("gtd", "td")
    )
    why = "The update rule td has no estimate of its MSPBE, which needs secondary weights w."
    assert why in words_of(write_comparison([first, second]))


def test_a_comparison_explains_the_measures_that_it_shows(runs: list[Path], tmp_path: Path) -> None:
    """Runs without a score need no explanation of NMSRE; the last run has questions with nearly constant returns."""
    unscored = [made(tmp_path / name, seed, {"a/g0/x": None}) for seed, name in enumerate("cd")]
    flat = made(tmp_path / "flat", 2, {"a/g0/x": 2.0})
    no_score = {"mean_nmsre": None}
    for folder, changes in (
        (unscored[0], no_score),
        (unscored[1], no_score),
        (flat, {"n_nearly_constant": 3}),
    ):
        summary = json.loads((folder / "summary.json").read_text()) | changes
        (folder / "summary.json").write_text(json.dumps(summary))
    explained = {
        name: [
            title in words_of(write_comparison(paths))
            for title in ("NMSRE: mean squared", "Nearly constant:")
        ]
        for name, paths in {"scored": runs, "unscored": unscored, "flat": [runs[0], flat]}.items()
    }
    assert explained == {"scored": [True, False], "unscored": [False, False], "flat": [True, True]}


def test_settings_that_differ_are_named_and_no_others(runs: list[Path]) -> None:
    text = words_of(write_comparison(runs))
    assert "Settings that differ a b seed 0 1" in text
    assert "trace_rule" not in text


def test_the_command_takes_any_number_of_runs_and_overwrites_nothing(
    runs: list[Path], tmp_path: Path, capsys: Any
) -> None:
    third = made(tmp_path / "deep" / "a", 2, {"a/g0/x": 2.0})
    for name in ("comparison-1.html", "comparison-2.html"):
        assert cli.main(["report", *map(str, [*runs, third])]) == 0
        assert capsys.readouterr().out.strip() == name
    text = words_of(Path("comparison-1.html"))
    assert "a (1), b, a (3)" in text
