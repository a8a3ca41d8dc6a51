"""Experiment `league`: grids, the choice of the best settings, and the rule of its claim."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from examples.reproduce import league
from examples.reproduce.league import RULES, Entry, LeagueScore, LeagueScores, LeagueSize, grid
from tests.agent.reproducing import toy_context


def score(error: float, *, is_sound: bool = True) -> LeagueScore:
    return LeagueScore(np.array([error, error]), np.array([True, is_sound]), np.ones(2), 1.0, 1.0)


def data_of(**best: list[LeagueScore]) -> LeagueScores:
    """Return measurements in which all other rules are as good as the default, 0.5, 0.6 and 0.7."""
    alike = {name: [score(0.5), score(0.6), score(0.7)] for name in RULES}
    return LeagueScores(
        alike, alike | best, {name: Entry(name) for name in RULES}, LeagueSize(1, 1, 1, 1, 9)
    )


def test_every_rule_that_predicts_takes_part_with_its_defaults_first() -> None:
    """Rules that find policies answer other questions."""
    assert {"td", "gtd", "swift_td"} <= set(RULES)
    assert not {"greedy_gq", "qrc"} & set(RULES)
    for name in RULES:
        assert grid(name)[0] == Entry(name)
        assert len({entry.config() for entry in grid(name)}) == len(grid(name)) in (3, 6, 9)


@pytest.mark.parametrize(
    ("scores", "is_better"),
    [
        ([score(0.4), score(0.5), score(0.6)], True),
        ([score(0.4), score(0.5), score(0.71)], False),  # not in every life
        ([score(0.499), score(0.2), score(0.6999)], False),  # the interval holds 0
        ([score(0.4), score(0.5), score(0.1, is_sound=False)], False),
    ],
)
def test_a_rule_is_better_in_every_life_clearly_and_without_divergence(
    scores: list[LeagueScore], is_better: bool
) -> None:
    """The default has 0.5, 0.6 and 0.7."""
    assert list(league.better_rules(data_of(tdrc=scores))) == ["tdrc"] * is_better


def test_a_rule_on_fewer_questions_is_compared_with_the_default_on_the_same_ones() -> None:
    """The default has 0.1 and 0.9 on the two questions: half an error of 0.5 overall, 0.1 on the first."""
    full_score = LeagueScore(np.array([0.1, 0.9]), np.ones(2, bool), np.ones(2), 1.0, 1.0)
    first = LeagueScore(np.array([0.2]), np.ones(1, bool), np.ones(1), 1.0, 1.0)
    data = data_of(swift_td=[first] * 3)._replace(size=LeagueSize(1, 1, 1, 2, 9))
    data.defaults.update({"gtd": [full_score] * 3, "swift_td": [first] * 3})
    assert data.gains("swift_td", [first] * 3) == pytest.approx([-0.1] * 3)
    assert data.gains("td", [full_score] * 3) == [0.0] * 3
    assert not league.better_rules(data)


def test_the_league_chooses_on_one_life_and_scores_on_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rules on a toy robot; measurements are cached."""
    monkeypatch.setattr(league, "RULES", ("gtd", "tidbd"))
    monkeypatch.setitem(league.SIZES, "quick", LeagueSize(1_500, 1_200, 1, 1, 3))
    context = toy_context(tmp_path, monkeypatch, seeds=(0, 1))
    data, _ = league.run(context)
    assert set(data.best) == {"gtd", "tidbd"}
    for name in ("gtd", "tidbd"):
        assert data.chosen[name] in grid(name)
        assert all(0.0 < found.error <= 1.0 and found.megabytes > 0 for found in data.best[name])
    rows = league.tables(data)[0].rows
    assert [row[0] for row in rows] == ["gtd", "tidbd"]
    repeat, _ = league.run(context)
    np.testing.assert_array_equal(repeat.best["tidbd"][1].rupee, data.best["tidbd"][1].rupee)
    assert repeat.best["tidbd"][1].ms == data.best["tidbd"][1].ms
