"""The benchmark of robots that share a Horde scores the learner that users have."""

from __future__ import annotations

import numpy as np
import pytest

from tests.bench import robots


def test_robots_that_share_a_horde_are_scored_on_another_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(robots, "N_TEST_STEPS", 1_500)
    monkeypatch.setattr(robots, "N_POINTS", 2)
    monkeypatch.setattr(robots, "FIRST", 60)
    test_sets = robots.tests()
    few, many = robots.curve(2, 2_000, test_sets)
    assert few[:2] == (2, 3.0)  # 30 steps of each robot, in seconds
    assert many[:2] == (2, 100.0)
    assert np.isfinite([few, many]).all()
    assert many[3] < 0.8 * few[3]
