"""Experiment `swifttd`: renumbered features, random bits, and step sizes."""

from __future__ import annotations

import numpy as np

from examples.reproduce import swifttd
from examples.reproduce.swifttd import (
    RIVALS,
    LiveCoder,
    SwiftTDScore,
    SwiftTDScores,
)
from horde_agent.tiles import TileCoder


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


def score(nmse: float) -> SwiftTDScore:
    return SwiftTDScore(np.full(4, nmse), np.ones(4, dtype=bool), np.full(4, np.nan))


def test_a_rival_has_its_best_common_step_size() -> None:
    scores = {variant: [score(0.3)] * 2 for variant in RIVALS}
    best = swifttd.SwiftTDVariant("gtd", 0.3)
    scores[best] = [score(0.1), score(0.4)]
    assert swifttd.best_rivals(SwiftTDScores(scores, {}))["gtd"] == best
