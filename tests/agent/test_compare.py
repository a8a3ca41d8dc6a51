"""`horde report A B C`: what differs between runs, and which question is better where."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from horde_agent import cli
from horde_agent.runs.showing.compare import write_comparison

pytestmark = pytest.mark.usefixtures("elsewhere")


def made(folder: Path, seed: int, nmsre: dict[str, float | None], diverged: str = "") -> Path:
    """Write what a comparison reads of a run."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(f'seed = {seed}\ntrace_rule = "clipped"\n', encoding="utf-8")
    summary = {"seed": seed, "steps": 60_000, "mean_nmsre": 0.5, "diverged": [diverged] if diverged else []}
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    lines = [f"{n},{'' if v is None else v},{int(n == diverged)}" for n, v in nmsre.items()]
    (folder / "questions.csv").write_text("\n".join(["name,nmsre,diverged", *lines]) + "\n", encoding="utf-8")
    (folder / "learning_curve.csv").write_text("step,mean_nmsre_online\n10,2.0\n20,\n30,1.0\n", encoding="utf-8")
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    one = {"a/g0/x": 1.0, "a/g0/y": 0.4, "a/g0/z": 0.2, "a/g0/odd": None, "a/g0/gone": 0.1}
    two = {"a/g0/x": 0.5, "a/g0/y": 0.4, "a/g0/z": 0.8, "a/g0/odd": 0.3, "a/g0/gone": 9.0}
    return [made(tmp_path / "a", 0, one), made(tmp_path / "b", 1, two, diverged="a/g0/gone")]


def text_of(page: Path) -> str:
    """Return a page's words, a cell after the other, without its pictures."""
    return " ".join(re.sub(r"<[^>]+>", " ", page.read_text(encoding="utf-8").split("</style>")[1]).split())


def test_questions_tested_in_both_runs_are_compared(runs: list[Path]) -> None:
    """X halves, z is four times as bad, y is the same; one was not tested in a, one was set aside in b."""
    said = text_of(write_comparison(runs))
    assert "Of 3 questions tested in both runs, b answers 1 better and 1 worse than a" in said
    assert "the median ratio of NMSRE is 1.000" in said
    assert "Much better question a b ratio a/g0/x 1.000 0.500 0.500" in said
    assert "Much worse question a b ratio a/g0/z 0.200 0.800 4.000" in said
    assert "a/g0 3 0.400 0.500" in said
    assert "odd" not in said
    assert "gone" not in said


def test_settings_that_differ_are_named_and_no_others(runs: list[Path]) -> None:
    said = text_of(write_comparison(runs))
    assert "Settings that differ a b seed 0 1" in said
    assert "trace_rule" not in said


def test_the_command_takes_any_number_of_runs_and_overwrites_nothing(
    runs: list[Path], tmp_path: Path, capsys: Any
) -> None:
    third = made(tmp_path / "deep" / "a", 2, {"a/g0/x": 2.0})
    for name in ("comparison-1.html", "comparison-2.html"):
        assert cli.main(["report", *map(str, [*runs, third])]) == 0
        assert capsys.readouterr().out.strip() == name
    said = text_of(Path("comparison-1.html"))
    assert "a (1), b, a (3)" in said
