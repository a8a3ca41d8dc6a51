"""The page of a run by made-up tables: each number stands where its heading says, and only the right one can."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horde_agent.measures.excursion_table import ExcursionTable
from horde_agent.measures.nmsre import Outcomes
from horde_agent.measures.passes import curves, policy_scores
from horde_agent.measures.returns import PolicyUnderTest
from horde_agent.runs.config import LearnConfig
from horde_agent.runs.jobs.tables import QUESTION_COLUMNS
from horde_agent.runs.keeping.folder import RunFolder, write_csv, write_json
from horde_agent.runs.showing import pictures, report
from horde_agent.runs.toml import to_toml

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
}
DETAILS: dict[str, Any] = {
    "compile_s": 7.25,
    "sensor_age_ms": {"p50": 7.5, "p99": 8.5, "max": 9.5},
    "overrun_ms": {"p50": 10.5, "p99": 11.5, "max": 12.5},
    "n_not_applied": 14,
    "n_discarded": 15,
    "notes": ["It snowed."],
    "unfinished": False,
}
QUESTIONS = [
    # name, nmsre, variance, n_tests, mspbe_scalar, mspbe_vector, diverged, n_updates, mspbe_valid, nearly_constant
    ["left/g0/a", 0.25, 1e-3, 41, 0.0, 0.0, 0, 1, 0, 0],
    ["left/g0/b", 1.0, 2e-3, 42, 0.0, 0.0, 0, 1, 0, 0],
    ["left/g0/c", 4.0, 3e-3, 43, 0.0, 0.0, 0, 1, 0, 1],
    ["left/g0.8/d", 500.0, 4e-3, 44, 0.0, 0.0, 1, 1, 0, 0],
    ["left/g0.8/e", 0.5, 5e-3, 45, 0.0, 0.0, 0, 1, 0, 0],
    ["right/g0/a", 3.0, 6e-3, 46, 0.0, 0.0, 0, 1, 0, 0],
    ["right/g0/b", float("nan"), 7e-3, 0, 0.0, 0.0, 0, 1, 0, 0],
    ["mine", 7.0, float("nan"), 48, 0.0, 0.0, 0, 1, 0, None],
]


def page_of(tmp_path: Path, **changes: Any) -> str:
    """Return the page of a run of these numbers, or others, without its pictures."""
    folder = RunFolder(tmp_path)
    folder.log.mkdir(exist_ok=True)
    config = {**vars(LearnConfig(steps=20_000, questions="excursions")), "out": tmp_path}
    folder.config.write_text(to_toml(config, {"horde-gvf": "1"}))
    write_json(folder.summary, SUMMARY | {k: v for k, v in changes.items() if k in SUMMARY})
    write_json(folder.details, DETAILS | {k: v for k, v in changes.items() if k not in SUMMARY})
    write_csv(folder.questions, QUESTION_COLUMNS, QUESTIONS)
    write_csv(folder.learning_curve, ["excursion"], [])
    return report.write_report(tmp_path).read_text()


@pytest.fixture
def page(tmp_path: Path) -> str:
    return page_of(tmp_path)


def table(page: str, title: str) -> list[list[str]]:
    """Return the cells of the table under a heading."""
    body = page.partition(f"<h2>{title}</h2>")[2].partition("</table>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", body)
    return [[unescape(cell) for cell in re.findall(r"<t[dh]>(.*?)</t[dh]>", row)] for row in rows]


def test_the_headline_says_what_the_summary_says(page: str) -> None:
    tiles = dict(reversed(pair) for pair in re.findall(r"<div><b>(.*?)</b><span>(.*?)</span></div>", page))
    assert tiles == {
        "questions": "8",
        "robot time": "1 h 02 min",
        "learning steps": "6,789",
        "test excursions": "321",
        "on-policy tests": "-",
        "median NMSRE": "0.252",
        "mean NMSRE": "1.29e9",
        "NMSRE below 1": "62.5%",
        "nearly constant": "3",
        "diverged": "1",
    }
    assert "Diverged, and learn no more: left/g0.8/d" in page
    assert "It snowed." in page
    assert list(tiles).index("median NMSRE") < list(tiles).index("mean NMSRE")
    assert "variance below step^2 / 12" in page
    assert "Always predicting the mean return scores 1" in page


def test_means_medians_and_shares_are_of_the_questions_that_were_scored(page: str) -> None:
    """left, gamma 0: .25, 1 and 4: mean 1.75, median 1, a third below 1. The one set aside and the untested are out."""
    assert table(page, "By policy and time scale") == [
        ["policy", "gamma", "questions", "median NMSRE", "mean NMSRE", "below 1"],
        ["left", "0", "3", "1.000", "1.750", "33%"],
        ["left", "0.8", "1", "0.500", "0.500", "100%"],
        ["right", "0", "1", "3.000", "3.000", "0%"],
    ]


def test_the_worst_questions_come_first_and_diverged_ones_are_left_out(page: str) -> None:
    worst = table(page, "The worst questions")
    assert [row[0] for row in worst[1:]] == ["mine", "left/g0/c", "right/g0/a", "left/g0/b", "left/g0.8/e", "left/g0/a"]
    assert worst[1:3] == [["mine", "7.000", "nan", "48", ""], ["left/g0/c", "4.000", "0.003", "43", "yes"]]


def test_the_table_of_time_and_health(page: str) -> None:
    assert dict(table(page, "Time and health")) == {  # type: ignore[arg-type]
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
        "excursions discarded because of a gap": "15",
        "weights (SHA-256)": "0123456789abcdef...",
    }


def test_a_run_that_was_stopped_says_when_and_by_what(tmp_path: Path, page: str) -> None:
    assert "Stopped early" not in page
    assert "nfinished" not in page
    page = page_of(tmp_path, stopped_early=True, stopped_by="no frame from /dev/robot.")
    assert "(stopped early)</h1>" in page
    assert "Stopped early, after 12,345 of 20,000 steps: no frame from /dev/robot.<" in page


def test_a_dash_stands_for_what_is_not_known(tmp_path: Path) -> None:
    nothing = dict.fromkeys(["wall_s", "mean_nmsre", "n_excursions", "cycle_ms", "crc_errors", "n_updated_per_step"])
    page = page_of(tmp_path, **nothing)
    health = dict(table(page, "Time and health"))  # type: ignore[arg-type]
    assert health["wall time"] == health["one cycle, p50 / p99 / max"] == "-"
    assert health["deadlines missed · gaps · checksum errors"] == "11 · 12 · -"
    assert "<b>-</b><span>mean NMSRE</span>" in page


# ---- pictures --------------------------------------------------------------------------------------------------------


def outcomes(action: int, demons: list[int], n: int) -> Outcomes:
    """Return excursions of a policy with different predictions and returns."""
    k = len(demons)
    policy = PolicyUnderTest(
        action, np.array(demons), np.array([0, 1, 0][:k]), np.array([0.9, 0.5, 0.5][:k]), f"{action}"
    )
    returns = np.arange(n * k, dtype=float).reshape(n, k)
    return Outcomes(policy, np.arange(n) * 10, returns + 0.25 * (1 + np.arange(k) ** 2), returns)


def table_of(tests: list[Outcomes], n_demons: int) -> ExcursionTable:
    """Return the same excursions as a table."""
    table = ExcursionTable([test.policy for test in tests], n_demons)
    for test in tests:
        for step, *values in zip(test.step.tolist(), test.predictions, test.returns, strict=True):
            table.append(test.policy.name, step, 0.0, test.policy.demons, tuple(values))
    return table


def test_dots_are_of_the_second_half_at_the_longest_time_scale() -> None:
    """Five excursions of two questions about channel 0, at gamma .9 and .5, and one about channel 1."""
    tests = table_of([outcomes(1, [4, 5, 6], 5)], 7)
    found = pictures.scatter_groups(tests, policy_scores(tests), ["light", "wall"], ["left", "right"])
    assert list(found) == ["light, gamma 0.9", "wall, gamma 0.5"]
    predictions, returns = found["light, gamma 0.9"]["right"]
    assert returns.tolist() == [6.0, 9.0, 12.0]
    assert predictions.tolist() == [6.25, 9.25, 12.25]
    assert found["wall, gamma 0.5"]["right"][1].tolist() == [7.0, 10.0, 13.0]


def test_the_bold_line_is_the_mean_and_the_dashed_one_the_median_of_the_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many tests as every policy had: two. Of four demons one was set aside; of three the median is no mean."""
    drawn: list[Any] = []
    monkeypatch.setattr(pictures, "save", lambda figure, _path: drawn.append(figure))
    tests = [outcomes(0, [0, 1, 3], 3), outcomes(1, [2], 2)]
    sound = np.array([True, False, True, True])
    through = table_of(tests, 4)
    pictures.nmsre_picture(curves(through, policy_scores(through)), sound, tmp_path / "x.png")
    lines = {line.get_label(): line.get_ydata() for line in drawn[0].axes[0].lines}
    together = np.column_stack([tests[0].nmsre()[:2, [0, 2]], tests[1].nmsre()[:, 0]])
    np.testing.assert_allclose(lines["mean over all questions"], together.mean(axis=1))
    np.testing.assert_allclose(lines["median"], np.median(together, axis=1))
    thin = [segment for collection in drawn[0].axes[0].collections for segment in collection.get_segments()]
    assert [len(segment) for segment in thin] == [3, 3, 2]
