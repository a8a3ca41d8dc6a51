"""Experiment `swifttd`: renumbered features, random bits, and the rules of its claims."""

from __future__ import annotations

import numpy as np
import pytest

from examples.reproduce import swifttd
from examples.reproduce.swifttd import (
    GRID,
    LARGE,
    NOISY,
    PARTS,
    RIVALS,
    SWIFT,
    LiveCoder,
    SwiftTDScore,
    SwiftTDScores,
)
from horde_agent.tiles import TileCoder
from tests.agent.reproducing import letters


def test_live_features_are_renumbered_and_random_bits_follow() -> None:
    """Distinct features stay distinct, and the random ones are drawn anew for each state."""
    whole = TileCoder.default(3)
    readings = np.random.default_rng(0).random((30, 3))
    live = np.unique([whole.encode(reading) for reading in readings])
    coder = LiveCoder(whole, live, 0)
    noisy = LiveCoder(whole, live, 500)
    for reading in readings:
        np.testing.assert_array_equal(live[coder.encode(reading)], whole.encode(reading))
    first, second = (noisy.encode(readings[0]) for _ in range(2))
    np.testing.assert_array_equal(first[: whole.n_active], coder.encode(readings[0]))
    assert len(set(first)) == noisy.n_active == whole.n_active + 38
    assert first[whole.n_active :].min() >= coder.n_features == len(live)
    assert first.max() < noisy.n_features == len(live) + 500
    assert set(first) != set(second)


def score(nmse: float, random_steps: float = np.nan, *, is_sound: bool = True) -> SwiftTDScore:
    return SwiftTDScore(np.full(4, nmse), np.full(4, is_sound), np.full(4, random_steps))


def data_of(**changes: SwiftTDScore) -> SwiftTDScores:
    """Return measurements by which every claim is reproduced, but for some changes."""
    all_of = {
        "swift": score(0.2),
        "td": score(0.3),
        "without": score(0.25),
        "noisy": score(0.2, 0.1),
    }
    all_of |= {"worst": score(0.25), "large": score(0.3)} | changes
    scores = {SWIFT: [all_of["swift"]] * 2, NOISY: [all_of["noisy"]] * 2}
    scores |= {v: [all_of["without"]] * 2 for v in PARTS.values()} | {
        v: [all_of["td"]] * 2 for v in RIVALS
    }
    grid = dict.fromkeys(GRID, score(0.2)) | {GRID[-1]: all_of["worst"], LARGE: all_of["large"]}
    td = [v for v in RIVALS if v.rule == "td"]
    return SwiftTDScores(scores, grid | dict.fromkeys(td, score(0.3)) | {td[0]: score(0.5)})


@pytest.mark.parametrize(
    ("changes", "verdicts"),
    [
        ({}, "rrrrr"),
        ({"td": score(0.2)}, "nrrrr"),
        ({"worst": score(0.31)}, "rprrr"),  # 1.55 times the best, and below TD's 1.67
        ({"large": score(0.3, is_sound=False)}, "rrprr"),
        ({"without": score(0.2)}, "rrrnr"),
        ({"noisy": score(0.2, 0.3)}, "rrrrn"),
    ],
)
def test_the_rules_judge_by_their_limits(changes: dict[str, SwiftTDScore], verdicts: str) -> None:
    assert letters(swifttd, data_of(**changes)) == verdicts


def test_a_rival_has_its_best_common_step_size() -> None:
    data = data_of()
    best = swifttd.SwiftTDVariant("gtd", 0.3)
    data.scores[best] = [score(0.1), score(0.4)]
    assert swifttd.best_rivals(data)["gtd"] == best
